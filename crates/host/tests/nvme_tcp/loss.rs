//! Hosts that lose their connections while commands are in flight, and send them again.
#![cfg(feature = "nvme-tcp")]

use crate::nvme_host::{BLOCK, HOST, Host, NQN, Queue, ZONE, pattern, replayed, server, soon};
use std::io::{ErrorKind, Read};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};
use zoneplug_nvme::initiator::{
    Data, Options, connect, read, report_zones, reset_zone, write, zone_append,
};
use zoneplug_nvme::spec::Command;
use zoneplug_nvme::spec::fabrics::{Configuration, csts, property};

/// A host that is not the usual one.
const OTHER: &str = "nqn.2014-08.org.nvmexpress:uuid:0b0b0b0b-0b0b-0b0b-0b0b-0b0b0b0b0b0b";
const INVALID_WRITE: u16 = 0x41bc;
/// Writes and appends take their time.
const SLOW: &str = "delay,write=300ms@mem,zones=8,zone-size=4M";

/// L1. Nothing of a new connection is carried out before the old write has ended, here by the deadline of the disk. Another
/// host does not wait.
#[test]
fn l1_a_new_connection_waits_for_the_commands_of_the_old_one() {
    let server = server(&["mem,zones=8,zone-size=4M,timeout=2s,fault=write/lost/count=1"], 2);
    Host::new(&server, HOST).lose(&server, vec![write(1, 0, pattern(8192, 1), BLOCK)]);
    let mut host = Host::new(&server, HOST);
    host.io.send(read(1, ZONE, 1, BLOCK));
    host.io.flush();
    Host::new(&server, OTHER).read(ZONE, 1);
    let stream = &mut host.io.stream;
    stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    assert!(stream.peek(&mut [0; 1]).is_err(), "it waits");
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    assert_eq!(host.io.next().completion.status, 0);
}

/// L2, L3. A write that landed is answered when it is sent again, by its host; what follows it is written.
#[test]
fn l2_a_write_that_landed_is_not_refused_when_it_is_sent_again() {
    let server = server(&[SLOW], 2);
    let data: Vec<Vec<u8>> = (0..4).map(|i| pattern(8192, i)).collect();
    let all = |n: usize| (0..n).map(|i| write(1, 2 * i as u64, data[i].clone(), BLOCK)).collect();
    Host::new(&server, HOST).lose(&server, all(3));
    let mut host = Host::new(&server, HOST);
    // In another order, and with one that is new.
    for i in [2, 0, 3, 1] {
        assert_eq!(host.write(2 * i as u64, &data[i]), 0, "{i}");
    }
    assert_eq!((replayed(&server), host.written(0)), (3, 8));
    assert!(host.read(0, 8) == data.concat());
    assert_eq!(host.write(0, &pattern(8192, 9)), INVALID_WRITE, "other data");
    assert_eq!(host.write(6, &data[3]), INVALID_WRITE, "its answer was not lost");
    assert_eq!(Host::new(&server, OTHER).write(0, &data[0]), INVALID_WRITE, "another host");
    // The zone is no longer as it was.
    host.io.ok(reset_zone(1, 0));
    assert_eq!(host.write(0, &data[0]), 0);
    assert_eq!(host.write(0, &data[0]), INVALID_WRITE);
    assert_eq!(replayed(&server), 3);
}

/// L14. The deadline of the disk passes for a write whose connection is lost, and the device carries it out late. The host's
/// resend waits until the device has answered, and is found. No client has to report the zone, and the next write goes on.
#[test]
fn l14_a_write_that_landed_after_its_deadline_is_found_when_it_is_sent_again() {
    for early in [true, false] {
        let spec = "mem,zones=8,zone-size=4M,io_timeout=1s,fault=write/delay=1500ms/zone=0/count=1";
        let server = server(&[spec], 2);
        let data = pattern(8192, 1);
        let begun = Instant::now();
        Host::new(&server, HOST).lose(&server, vec![write(1, 0, data.clone(), BLOCK)]);
        let mut host = Host::new(&server, HOST);
        if !early {
            std::thread::sleep(Duration::from_secs(2));
        }
        assert_eq!(host.write(0, &data), 0, "early: {early}");
        assert!(begun.elapsed() >= Duration::from_millis(1500), "the device may still write");
        assert_eq!(host.write(2, &pattern(4096, 2)), 0);
        assert_eq!((replayed(&server), host.written(0)), (1, 3));
        assert!(host.read(0, 2) == data);
        assert_eq!(host.write(0, &pattern(8192, 9)), INVALID_WRITE, "other data");
        assert_eq!(Host::new(&server, OTHER).write(0, &data), INVALID_WRITE, "another host");
    }
}

/// L14. The device never answers the write that was given up: the resend is refused when the deadline has passed for it, too.
/// A write that was not sent before is refused at once.
#[test]
fn l14_a_resend_waits_for_a_late_write_no_longer_than_the_deadline() {
    let spec = "mem,zones=8,zone-size=4M,io_timeout=500ms,fault=write/lost/zone=0/count=1";
    let server = server(&[spec], 2);
    let data = pattern(8192, 1);
    Host::new(&server, HOST).lose(&server, vec![write(1, 0, data.clone(), BLOCK)]);
    let mut host = Host::new(&server, HOST);
    host.read(ZONE, 1);
    let begun = Instant::now();
    assert_eq!(Host::new(&server, OTHER).write(0, &data), INVALID_WRITE);
    assert!(begun.elapsed() < Duration::from_millis(400), "a new write does not wait");
    let begun = Instant::now();
    let first = host.io.send(write(1, 0, data.clone(), BLOCK));
    let other = host.io.send(write(1, ZONE, data.clone(), BLOCK));
    host.io.flush();
    let c = host.io.next().completion;
    assert_eq!((c.cid, c.status), (other, 0), "another zone does not wait");
    let c = host.io.next().completion;
    assert_eq!((c.cid, c.status), (first, INVALID_WRITE));
    let waited = begun.elapsed();
    assert!(waited >= Duration::from_millis(450) && waited < Duration::from_secs(5), "{waited:?}");
    // The host is lost while its next resend waits, and sends it once more.
    host.lose(&server, vec![write(1, 0, data.clone(), BLOCK)]);
    let mut host = Host::new(&server, HOST);
    assert_eq!((host.write(0, &data), replayed(&server)), (INVALID_WRITE, 0));
}

/// Without a loss nothing is forgiven.
#[test]
fn l3_a_host_that_writes_twice_is_refused() {
    let server = server(&["mem,zones=8,zone-size=4M"], 1);
    let mut host = Host::new(&server, HOST);
    assert_eq!(host.write(0, &pattern(4096, 1)), 0);
    assert_eq!(host.write(0, &pattern(4096, 1)), INVALID_WRITE);
    // The host goes with everything answered, and comes back. An append that was answered is another one.
    assert_eq!(host.append(ZONE, &pattern(4096, 1)), ZONE);
    drop(host);
    soon("it is gone", || server.hosts().is_empty());
    let mut host = Host::new(&server, HOST);
    assert_eq!(host.append(ZONE, &pattern(4096, 1)), ZONE + 1);
    assert_eq!(host.write(0, &pattern(4096, 2)), INVALID_WRITE);
    assert_eq!((replayed(&server), server.counters(0).errors), (0, 2));
}

/// A write of which a part is on the disk: the rest is written.
#[test]
fn l2_the_rest_of_a_write_is_written() {
    let spec = "delay,write=300ms@mem,zones=8,zone-size=4M,fault=write/torn/count=1";
    let server = server(&[spec], 1);
    let data = pattern(8192, 1);
    Host::new(&server, HOST).lose(&server, vec![write(1, 0, data.clone(), BLOCK)]);
    let mut host = Host::new(&server, HOST);
    let there = host.written(0);
    assert!(there == 1, "{there}");
    assert_eq!(host.write(0, &data), 0);
    assert_eq!((replayed(&server), host.written(0)), (1, 2));
    assert!(host.read(0, 2) == data);
}

/// L4. Each append gets its place, each place one append, whatever their order; another host's does not get it.
#[test]
fn l4_an_append_that_landed_gets_its_place_when_it_is_sent_again() {
    for append in ["native", "emulated"] {
        let server = server(&[&format!("{SLOW},append={append}")], 2);
        let data: Vec<Vec<u8>> = [1, 2, 2, 3].iter().map(|seed| pattern(8192, *seed)).collect();
        let all = data.iter().map(|d| zone_append(1, ZONE, d.clone(), BLOCK)).collect();
        Host::new(&server, HOST).lose(&server, all);
        let mut host = Host::new(&server, HOST);
        assert_eq!(host.written(1), 8);
        assert_eq!(Host::new(&server, OTHER).append(ZONE, &data[0]), ZONE + 8, "another host's");
        let mut places: Vec<u64> =
            [3, 1, 0, 2].map(|i: usize| host.append(ZONE, &data[i])).to_vec();
        assert_eq!([places[0], places[2]], [ZONE + 6, ZONE]);
        places.sort_unstable();
        assert_eq!(places, [ZONE, ZONE + 2, ZONE + 4, ZONE + 6]);
        assert_eq!((replayed(&server), host.written(1)), (4, 10));
        assert_eq!(host.append(ZONE, &data[1]), ZONE + 10, "a new one");
        assert!(host.read(ZONE, 8) == data.concat());
    }
}

/// L10. A host that goes on by another controller is ahead of the server, which knows of no loss. What it sends again is found,
/// in flight or answered, and its workers are woken for it. The write of another host is refused.
#[test]
fn l10_a_write_that_comes_by_another_controller_first_is_found() {
    let server = server(&[SLOW], 2);
    let (mut left, mut other, mut stranger) =
        (Host::new(&server, HOST), Host::new(&server, HOST), Host::new(&server, OTHER));
    let data: Vec<Vec<u8>> = (0..3).map(|i| pattern(8192, i)).collect();
    let blocks = 8192 / u64::from(BLOCK);
    for (n, data) in data.iter().enumerate() {
        let at = n as u64 * blocks;
        left.io.send(write(1, at, data.clone(), BLOCK));
        left.io.flush();
        // The second one is answered before it is sent again.
        std::thread::sleep(Duration::from_millis(if n == 1 { 600 } else { 50 }));
        let begun = Instant::now();
        assert_eq!(other.write(at, data), 0);
        assert!(begun.elapsed() < Duration::from_millis(900), "nobody waits for a look around");
        assert_eq!(stranger.write(at, data), INVALID_WRITE);
        assert_eq!(other.write(at, &pattern(8192, 9)), INVALID_WRITE);
    }
    assert_eq!((replayed(&server), other.written(0)), (3, 3 * blocks));
    assert!(other.read(0, 3 * blocks as u32) == data.concat());
}

/// L10. An append on an open queue waits for the commands of a closed connection, and no other command of the queue does.
#[test]
fn l10_only_an_append_waits_on_an_open_queue() {
    let server = server(&["delay,write=1500ms@mem,zones=8,zone-size=4M"], 2);
    let mut host = Host::new(&server, HOST);
    host.read(0, 1);
    Host::new(&server, HOST).lose(&server, vec![write(1, 0, pattern(8192, 1), BLOCK)]);
    let begun = Instant::now();
    let append = host.io.send(zone_append(1, ZONE, pattern(8192, 2), BLOCK));
    let read = host.io.send(read(1, 0, 1, BLOCK));
    host.io.flush();
    let c = host.io.next().completion;
    assert_eq!((c.cid, c.status), (read, 0));
    assert!(begun.elapsed() < Duration::from_secs(1), "it did not wait");
    let c = host.io.next().completion;
    assert_eq!((c.cid, c.status), (append, 0));
    assert!(begun.elapsed() > Duration::from_secs(2), "it waited");
}

/// L5. What was lost is forgotten when its zone is reset, also by another host.
#[test]
fn l5_after_a_reset_nothing_is_found() {
    let server = server(&[SLOW], 1);
    let data = pattern(8192, 1);
    let lost = vec![
        zone_append(1, ZONE, data.clone(), BLOCK),
        write(1, 0, data.clone(), BLOCK),
        zone_append(1, 2 * ZONE, data.clone(), BLOCK),
    ];
    Host::new(&server, HOST).lose(&server, lost);
    let mut host = Host::new(&server, HOST);
    assert_eq!([0, 1, 2].map(|n| host.written(n)), [2, 2, 2]);
    let mut other = Host::new(&server, OTHER);
    for zone in [0, ZONE] {
        other.io.ok(reset_zone(1, zone));
        assert_eq!(other.append(zone, &data), zone);
    }
    assert_eq!(host.append(ZONE, &data), ZONE + 2, "what is there is another host's");
    assert_eq!(host.write(0, &data), INVALID_WRITE);
    assert_eq!(host.append(2 * ZONE, &data), 2 * ZONE, "of the other zone it is found");
    assert_eq!(replayed(&server), 1);
}

/// L6. Answers that were sent and that the host's machine has not acknowledged, when both connections end, and when only that of
/// the admin queue does: then the acknowledgement is waited for in vain.
#[test]
fn l6_what_was_answered_in_vain_is_found_when_it_is_sent_again() {
    for all_end in [true, false] {
        let server = server(&["mem,zones=8,zone-size=4M"], 2);
        let data = pattern(8192, 1);
        let mut host = Host::new(&server, HOST);
        assert_eq!(host.append(0, &data), 0);
        let stuck =
            vec![zone_append(1, 0, data.clone(), BLOCK), write(1, ZONE + 256, data.clone(), BLOCK)];
        host.send_in_vain(&server, 0, stuck);
        let Host { admin, io } = host;
        let open = (!all_end).then_some(io);
        drop(admin);
        let mut host = Host::new(&server, HOST);
        assert_eq!(host.append(0, &data), 2, "not the one that was answered");
        assert_eq!(host.write(ZONE + 256, &data), 0);
        assert_eq!(replayed(&server), 2);
        assert_eq!(host.append(0, &data), 4);
        // The host reads no answer that counts as lost: its connection was reset.
        if let Some(io) = open {
            let e = (&io.stream).read_to_end(&mut Vec::new()).unwrap_err();
            assert_eq!(e.kind(), ErrorKind::ConnectionReset, "{e}");
        }
    }
}

/// L6. The controller has ended while the host's machine delays its acknowledgement. It comes, and the append was answered: the
/// next one with the same data gets a place of its own. Nothing of the host is carried out before it is known.
#[test]
fn l6_an_answer_may_be_acknowledged_after_the_controller_has_ended() {
    let server = server(&["mem,zones=8,zone-size=4M"], 2);
    let data = pattern(8192, 1);
    let mut host = Host::new(&server, HOST);
    delay_acknowledgements(&host.io.stream);
    assert_eq!(host.append(ZONE, &data), ZONE);
    let Host { admin, io } = host;
    drop(admin);
    soon("the controller has ended", || server.hosts().is_empty());
    let late = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(5));
        // The end of its connection acknowledges what was received.
        drop(io);
    });
    let mut host = Host::new(&server, HOST);
    assert_eq!(host.append(ZONE, &data), ZONE + 2);
    late.join().unwrap();
    assert_eq!(replayed(&server), 0);
}

/// Has the host's machine wait with each acknowledgement for bytes of its own to send it with (TCP_QUICKACK, tcp(7)).
fn delay_acknowledgements(stream: &TcpStream) {
    let off: libc::c_int = 0;
    let len = size_of_val(&off) as libc::socklen_t;
    // SAFETY: `off` has this length and lives across the call.
    let done = unsafe {
        libc::setsockopt(
            stream.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_QUICKACK,
            (&raw const off).cast(),
            len,
        )
    };
    assert_eq!(done, 0);
}

/// L6. The host's machine has acknowledged the answer, and the host has gone without it.
#[test]
fn l6_a_write_that_the_host_has_not_seen_answered_is_found() {
    let server = server(&["mem,zones=8,zone-size=4M"], 2);
    let data = pattern(8192, 1);
    let mut host = Host::new(&server, HOST);
    assert_eq!(host.write(0, &data), 0);
    drop(host);
    soon("it is gone", || server.hosts().is_empty());
    let mut host = Host::new(&server, HOST);
    assert_eq!(host.write(0, &data), 0);
    assert_eq!((replayed(&server), host.written(0)), (1, 2));
    assert_eq!(host.write(0, &pattern(8192, 2)), INVALID_WRITE);
}

/// L8. CSTS.RDY stays set until the commands in flight have ended.
#[test]
fn l8_a_controller_reset_waits_for_the_commands_in_flight() {
    let server = server(&[SLOW], 2);
    let mut host = Host::new(&server, HOST);
    host.io.send(write(1, 0, pattern(8192, 1), BLOCK));
    let sent = Instant::now();
    host.io.flush();
    std::thread::sleep(Duration::from_millis(50));
    let off = Configuration { enable: false, ..Configuration::START };
    host.admin.ok((Command::property_set(property::CC, off.encode()), Data::None));
    let mut state = || {
        let get = Command::property_get(property::CSTS, 4);
        host.admin.ok((get, Data::None)).completion.result as u32
    };
    let mut waited = 0;
    while state() & csts::READY != 0 {
        assert_eq!(server.counters(0).writes, 0);
        waited += 1;
        std::thread::sleep(Duration::from_millis(2));
        assert!(waited < 5000);
    }
    assert!(waited > 0, "it says at once that it is done");
    assert!(sent.elapsed() >= Duration::from_millis(300), "the write has not ended");
    // This controller goes on.
    let on = Configuration::START;
    host.admin.ok((Command::property_set(property::CC, on.encode()), Data::None));
    host.admin.ok(zoneplug_nvme::initiator::set_queues(16));
    let id = server.hosts()[0].controller;
    let mut io = Queue::open(&server, Options::default());
    io.ok(connect(1, 128, id, NQN, HOST));
    let report = io.ok(report_zones(1, 0, 128)).data;
    assert_eq!(report[64 + 24], 2, "it has landed");
}
