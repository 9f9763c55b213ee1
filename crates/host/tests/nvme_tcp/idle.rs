//! A server without work.
#![cfg(feature = "nvme-tcp")]

use crate::nvme_host::{BLOCK, MEM, Queue, pattern, server};
use std::time::{Duration, Instant};
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

/// A disk that answers later wakes the connection that waits, also if an earlier one had its place. A worker looks at its
/// connections once a second besides, which would answer late.
#[test]
fn a_later_connection_is_woken_by_its_disk() {
    let server = server(&["delay,write=100ms@mem,zones=8,zone-size=4M"], 1);
    let (_admin, id) = Queue::admin(&server, Options::default());
    let wait = |n| {
        let mut q = Queue::io(&server, id, 1, Options::default());
        let begun = Instant::now();
        q.ok(write(1, n, pattern(4096, 1), BLOCK));
        begun.elapsed()
    };
    wait(0);
    let waits: Vec<Duration> = (1..5).map(wait).collect();
    assert!(waits.iter().any(|w| *w < Duration::from_millis(500)), "{waits:?}");
}
