//! A server without work.
#![cfg(feature = "nvme-tcp")]

use crate::nvme_host::{BLOCK, MEM, Queue, pattern, server};
use std::time::Duration;
use zoneplug_nvme::initiator::{Options, write};

/// A worker without work sleeps, whether hosts are connected or not: it looks at its connections once a second.
#[test]
fn a_server_without_work_sleeps() {
    let server = server(&[MEM], 1);
    let waits = || {
        let before = server.calls().waits;
        std::thread::sleep(Duration::from_millis(500));
        server.calls().waits - before
    };
    assert!(waits() <= 10, "before a host has connected");
    let (_admin, id) = Queue::admin(&server, Options::default());
    let mut q = Queue::io(&server, id, 1, Options::default());
    q.ok(write(1, 0, pattern(4096, 1), BLOCK));
    let more = waits();
    assert!(more <= 10, "{more} waits in half a second, with a host that sends nothing");
}
