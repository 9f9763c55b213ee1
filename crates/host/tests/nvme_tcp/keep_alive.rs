//! Hosts with a keep alive time that fall silent, on a server with threads and sockets.
#![cfg(feature = "nvme-tcp")]

use crate::nvme_host::{MEM, NQN, Queue, server, soon};
use std::io::{ErrorKind, Read};
use std::time::{Duration, Instant};
use zoneplug_host::nvme_tcp::NvmeTcp;
use zoneplug_nvme::initiator::{Data, Options, connect};
use zoneplug_nvme::spec::fabrics::{ANY_CONTROLLER, Configuration, property};
use zoneplug_nvme::spec::{Command, admin};

/// The shortest keep alive time, in milliseconds: others are rounded up to whole seconds.
const TIME: u32 = 1000;

/// An admin queue of a host with a keep alive time in milliseconds.
fn host(server: &NvmeTcp, name: &str, time: u32) -> Queue {
    let mut queue = Queue::open(server, Options::default());
    let (command, data) = connect(0, 32, ANY_CONTROLLER, NQN, name);
    queue.ok((command.with_cdw(12, time), data));
    let start = Command::property_set(property::CC, Configuration::START.encode());
    queue.ok((start, Data::None));
    queue
}

/// Whether the server has closed a connection on which it has sent nothing.
fn is_closed(queue: &mut Queue) -> bool {
    queue.stream.set_nonblocking(true).unwrap();
    let read = queue.stream.read(&mut [0]);
    queue.stream.set_nonblocking(false).unwrap();
    match read {
        Ok(n) => n == 0,
        Err(e) => e.kind() != ErrorKind::WouldBlock,
    }
}

/// J6. A host that is silent for longer than its keep alive time loses its controller; one that is not, and one without
/// such a time, keep theirs. That holds for hosts that come after all others have gone.
#[test]
fn a_silent_host_is_ended_also_after_all_others_have_gone() {
    let server = server(&[MEM], 2);
    for round in 0..2 {
        let mut silent = host(&server, "nqn.silent", TIME);
        let mut without = host(&server, "nqn.without", 0);
        let mut alive = host(&server, "nqn.alive", TIME);
        let begun = Instant::now();
        while !is_closed(&mut silent) {
            assert!(begun.elapsed() < Duration::from_secs(10), "round {round}: it goes on");
            alive.ok((Command::new(admin::KEEP_ALIVE), Data::None));
            std::thread::sleep(Duration::from_millis(50));
        }
        let lasted = begun.elapsed();
        assert!(lasted >= Duration::from_millis(u64::from(TIME)), "round {round}: {lasted:?}");
        assert!(!is_closed(&mut without) && !is_closed(&mut alive), "round {round}");
        drop((silent, without, alive));
        soon("all hosts have gone", || server.hosts().is_empty());
        // The server looks once more, and finds no host with such a time.
        std::thread::sleep(Duration::from_millis(700));
    }
}

/// J6. A silent host is ended although no other host does anything at the server.
#[test]
fn a_silent_host_is_ended_also_when_it_is_alone() {
    let server = server(&[MEM], 2);
    let mut silent = host(&server, "nqn.silent", TIME);
    soon("its connection is closed", || is_closed(&mut silent));
}
