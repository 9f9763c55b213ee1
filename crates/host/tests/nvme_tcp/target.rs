//! Disks served over TCP, and hosts that connect to them through a real socket.
#![cfg(feature = "nvme-tcp")]

use crate::nvme_host::{BLOCK, HOST, MEM, NQN, Queue, ZONE, disk, options, pattern, server, soon};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};
use zoneplug_host::nvme_tcp::{AccessError, NvmeTcp, NvmeTcpOptions};
use zoneplug_nvme::initiator::{
    Data, Initiator, Options, connect, read, report_zones, reset_zone, write, zone_append,
};
use zoneplug_nvme::spec::fabrics::ANY_CONTROLLER;
use zoneplug_nvme::spec::log::HealthLog;
use zoneplug_nvme::spec::{Command, admin as nvme_admin};
use zoneplug_nvme::tcp::pdu::Digests;

#[test]
fn what_is_written_and_appended_is_read() {
    let server = server(&[MEM], 2);
    for (header, data, align) in [(false, false, 0), (true, true, 3)] {
        let options = Options { digests: Digests { header, data }, align, ..Options::default() };
        let (_admin, id) = Queue::admin(&server, options);
        let mut q = Queue::io(&server, id, 1, options);
        let (small, large) = (pattern(4096, 1), pattern(300 << 10, 2));
        q.ok(write(1, 0, small.clone(), BLOCK));
        q.ok(write(1, 1, large.clone(), BLOCK));
        let wrong = q.run(write(1, 1, small.clone(), BLOCK)).completion.status;
        assert_eq!(wrong, 0x41bc, "zone invalid write, do not retry");
        let all = q.ok(read(1, 0, 1 + 75, BLOCK)).data;
        assert!(all[..4096] == small && all[4096..] == large);
        let first = q.ok(zone_append(1, ZONE, small.clone(), BLOCK)).completion.result;
        let second = q.ok(zone_append(1, ZONE, large.clone(), BLOCK)).completion.result;
        assert_eq!((first, second), (ZONE, ZONE + 1));
        assert!(q.ok(read(1, ZONE + 1, 75, BLOCK)).data == large);
        let report = q.ok(report_zones(1, 0, 64 * 4)).data;
        let wp = |n: usize| {
            let at = 64 * (n + 1);
            u64::from_le_bytes(report[at + 24..at + 32].try_into().unwrap())
        };
        assert_eq!([wp(0), wp(1), wp(2)], [76, ZONE + 76, 2 * ZONE]);
        q.ok(reset_zone(1, 0));
        q.ok(reset_zone(1, ZONE));
        q.ok(write(1, 0, small, BLOCK));
        q.ok(reset_zone(1, 0));
        assert_eq!(server.hosts().len(), 1);
        assert_eq!(server.hosts()[0].queues, 1);
        drop((q, _admin));
        soon("the host is gone", || server.hosts().is_empty());
    }
    let c = server.counters(0);
    assert_eq!((c.writes, c.written_bytes), (10, 2 * (3 * 4096 + 2 * (300 << 10))));
    assert_eq!((c.reads, c.others, c.errors), (4, 8, 2));
}

/// Writes in order through one queue, deep, and reads through another at the same time.
#[test]
fn queues_work_at_the_same_time() {
    let server = server(&[MEM, MEM], 2);
    let (_admin, id) = Queue::admin(&server, Options::default());
    std::thread::scope(|scope| {
        for qid in 1..=4u16 {
            let server = &server;
            scope.spawn(move || {
                let mut q = Queue::io(server, id, qid, Options::default());
                let (nsid, zone) = (1 + u32::from(qid % 2), u64::from(qid) * ZONE);
                let mut reads = Queue::io(server, id, qid + 4, Options::default());
                let mut sent = 0;
                let mut acknowledged = 0;
                while acknowledged < 256 {
                    while sent < 256 && sent - acknowledged < 64 {
                        let bytes = if sent % 16 == 15 { 12_288 } else { 4096 };
                        q.send(zone_append(nsid, zone, pattern(bytes, sent as u8), BLOCK));
                        sent += 1;
                    }
                    let done = q.next();
                    assert_eq!(done.completion.status, 0);
                    let at = done.completion.result;
                    // Identifiers are given in order from 1 on: Connect was 0.
                    let i = u32::from(done.completion.cid) - 1;
                    let bytes = if i % 16 == 15 { 12_288 } else { 4096 };
                    let back = reads.ok(read(nsid, at, bytes as u32 / BLOCK, BLOCK)).data;
                    assert!(back == pattern(bytes, i as u8), "{i}");
                    acknowledged += 1;
                }
            });
        }
    });
    let written: u64 = (0..2).map(|n| server.counters(n).written_bytes).sum();
    assert_eq!(written, 4 * (240 * 4096 + 16 * 12_288));
}

/// Writes of a zone that come in another order than they were sent, through two queues and through R2T.
#[test]
fn writes_that_overtake_each_other_are_put_in_order() {
    let server = server(&["mem,zones=8,zone-size=4M,order_window=10s"], 2);
    let (_admin, id) = Queue::admin(&server, Options::default());
    let mut queues = [1, 2].map(|qid| Queue::io(&server, id, qid, Options::default()));
    let data = |i: u64| pattern(16_384, i as u8);
    // The last first, each queue its half.
    for i in (0..64).rev() {
        let q = &mut queues[i as usize % 2];
        q.send(write(1, i * 4, data(i), BLOCK));
        q.flush();
    }
    for _ in 0..32 {
        for q in &mut queues {
            assert_eq!(q.next().completion.status, 0);
        }
    }
    let all = queues[0].ok(read(1, 0, 64 * 4, BLOCK)).data;
    assert!(all.chunks(16_384).zip(0..).all(|(part, i)| part == data(i)));
}

/// A host that goes leaves its writes to the disk, and nothing of it is left behind.
#[test]
fn a_host_that_dies_leaves_the_others_alone() {
    let server = server(&["delay,any=20ms@mem,zones=8,zone-size=4M"], 1);
    for _ in 0..3 {
        let (admin, id) = Queue::admin(&server, Options::default());
        let mut dying = Queue::io(&server, id, 1, Options::default());
        let mut lives = Queue::io(&server, id, 2, Options::default());
        for _ in 0..32 {
            dying.send(zone_append(1, 0, vec![1; 4096], BLOCK));
            dying.send(read(1, 0, 1, BLOCK));
        }
        // One is on its way to be fetched when the connection is cut.
        dying.send(zone_append(1, 0, vec![1; 65_536], BLOCK));
        dying.flush();
        drop(dying);
        lives.ok(zone_append(1, ZONE, vec![2; 4096], BLOCK));
        soon("its queue is free", || server.hosts()[0].queues == 1);
        let mut again = Queue::io(&server, id, 1, Options::default());
        again.ok(read(1, 0, 1, BLOCK));
        again.ok(reset_zone(1, 0));
        again.ok(reset_zone(1, ZONE));
        // The admin queue is the controller's life.
        drop(admin);
        let mut bytes = [0; 64];
        assert_eq!(lives.stream.read(&mut bytes).unwrap(), 0, "closed");
        soon("the host is gone", || server.hosts().is_empty());
    }
}

/// K3. Peers that stop in the middle of a PDU, or send what is none, take nothing from others.
#[test]
fn half_a_pdu_and_noise_harm_nobody() {
    let server = server(&[MEM], 1);
    let mut silent = Vec::new();
    let request = Initiator::new(Options::default()).take_output();
    for cut in [0, 1, 7, 8, 100, 127] {
        let mut s = TcpStream::connect(server.address()).unwrap();
        s.write_all(&request[..cut]).unwrap();
        silent.push(s);
    }
    let (_admin, id) = Queue::admin(&server, Options::default());
    let mut half = Queue::io(&server, id, 1, Options::default());
    half.send(zone_append(1, 0, vec![1; 8192], BLOCK));
    let bytes = half.host.take_output();
    half.stream.write_all(&bytes[..bytes.len() - 1]).unwrap();
    let mut noise = TcpStream::connect(server.address()).unwrap();
    noise.write_all(&[0xee; 4096]).unwrap();
    noise.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let mut told = Vec::new();
    noise.read_to_end(&mut told).unwrap();
    assert_eq!(told[..10], [3, 0, 24, 0, 32, 0, 0, 0, 1, 0], "C2HTermReq: invalid header field");
    let mut q = Queue::io(&server, id, 2, Options::default());
    q.ok(write(1, 0, pattern(4096, 1), BLOCK));
    assert_eq!(q.ok(read(1, 0, 1, BLOCK)).data, pattern(4096, 1));
    // The rest comes.
    half.stream.write_all(&bytes[bytes.len() - 1..]).unwrap();
    assert_eq!(half.next().completion.result, 1);
}

/// K6. The memory of a worker is used again for the commands of other hosts and disks.
#[test]
fn k6_a_read_shows_nothing_of_other_commands() {
    let server = server(&["null,zones=8,zone-size=4M", MEM, "sim-zns1,zones=8"], 1);
    let (_admin, id) = Queue::admin(&server, Options::default());
    let mut q = Queue::io(&server, id, 1, Options::default());
    for bytes in [4096, 65_536] {
        for nsid in [1, 3] {
            q.ok(reset_zone(2, 0));
            q.ok(write(2, 0, vec![0xd7; bytes], BLOCK));
            q.ok(read(2, 0, bytes as u32 / BLOCK, BLOCK));
            let data = q.ok(read(nsid, 0, bytes as u32 / BLOCK, BLOCK)).data;
            assert!(data.iter().all(|b| *b == 0), "namespace {nsid}");
            let report = q.ok(report_zones(nsid, 0, 4096)).data;
            assert!(!report.contains(&0xd7), "namespace {nsid}");
        }
    }
}

/// K3. A connection that has ended keeps its memory while a disk does not answer, and its place as long.
#[test]
fn k3_a_connection_counts_until_its_commands_have_ended() {
    let spec = "null,zones=8,zone-size=4M,fault=read/lost,io_timeout=2s";
    let options = NvmeTcpOptions { threads: 1, max_connections: 2, ..options() };
    let server = NvmeTcp::start(&options, vec![disk(spec)], || ()).unwrap();
    // Bytes of no PDU: a server that has taken the connection says so.
    let is_full = || {
        let mut s = TcpStream::connect(server.address()).unwrap();
        s.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let _ = s.write_all(&[0xee; 128]);
        let mut told = Vec::new();
        let _ = s.read_to_end(&mut told);
        told.is_empty()
    };
    let (_admin, id) = Queue::admin(&server, Options::default());
    let mut dying = Queue::io(&server, id, 1, Options::default());
    dying.send(read(1, 0, 1, BLOCK));
    dying.flush();
    drop(dying);
    soon("its connection is gone", || server.hosts()[0].queues == 0);
    assert!(is_full(), "a command of the one that has ended is at the disk");
    soon("it has its place until the time of its command is over", || !is_full());
}

/// A disk that answers nothing keeps its commands; the thread serves the other disk.
#[test]
fn a_stalled_disk_does_not_stall_the_others() {
    let server = server(&["null,zones=8,zone-size=4M,fault=read/lost", MEM], 1);
    let (_admin, id) = Queue::admin(&server, Options::default());
    let mut stalled = Queue::io(&server, id, 1, Options::default());
    stalled.send(read(1, 0, 1, BLOCK));
    stalled.flush();
    let mut q = Queue::io(&server, id, 2, Options::default());
    for i in 0..200 {
        q.ok(write(2, i, pattern(4096, i as u8), BLOCK));
        assert_eq!(q.ok(read(2, i, 1, BLOCK)).data, pattern(4096, i as u8));
    }
    // This queue reaches the other disk, too.
    stalled.send(read(2, 0, 1, BLOCK));
    assert_eq!(stalled.next().data, pattern(4096, 0));
}

/// J17. The host has a command of the disk in flight, and another disk that stays.
#[test]
fn j17_a_disk_is_taken_from_its_hosts_and_given_back() {
    let server = server(&["delay,any=300ms@mem,zones=8,zone-size=4M", MEM], 2);
    let (_admin, id) = Queue::admin(&server, Options::default());
    let mut q = Queue::io(&server, id, 1, Options::default());
    let mut other = Queue::io(&server, id, 2, Options::default());
    let mut last = Queue::io(&server, id, 3, Options::default());
    let data = pattern(4096, 3);
    other.ok(write(2, 0, data.clone(), BLOCK));
    let slow = q.send(write(1, 0, data.clone(), BLOCK));
    let fast = q.send(read(2, 0, 1, BLOCK));
    assert_eq!(q.next().completion.cid, fast, "the one before it is in flight");
    server.set_enabled(0, false);
    assert!(!server.is_enabled(0) && server.is_enabled(1) && server.namespaces().len() == 1);
    let done = q.next().completion;
    assert_eq!((done.cid, done.status), (slow, 0), "it is carried out");
    for queue in [&mut q, &mut last] {
        soon("the disk is gone", || queue.run(read(1, 0, 1, BLOCK)).completion.status == 0x400b);
    }
    assert_eq!(other.ok(read(2, 0, 1, BLOCK)).data, data);
    server.set_enabled(0, true);
    for queue in [&mut q, &mut last] {
        soon("it is back", || queue.run(read(1, 0, 1, BLOCK)).completion.status == 0);
    }
    assert_eq!(q.ok(read(1, 0, 1, BLOCK)).data, data);
}

/// L13. Hosts of an earlier server may know numbers up to this one.
#[test]
fn l13_new_disks_get_numbers_behind_the_last_one() {
    let options = NvmeTcpOptions { last_nsid: 7, threads: 1, ..options() };
    let server = NvmeTcp::start(&options, vec![disk(MEM)], || ()).unwrap();
    assert_eq!(server.namespaces()[0].0, 8);
}

#[test]
fn hosts_that_are_not_listed_are_refused() {
    let listed = "nqn.2014-08.org.nvmexpress:uuid:1";
    let with = |hosts: Option<&str>, any_host, listen: &str| {
        let hosts = hosts.map(|h| vec![h.to_owned()]);
        let listen = listen.parse().unwrap();
        let options = NvmeTcpOptions { hosts, any_host, listen, threads: 1, ..options() };
        NvmeTcp::start(&options, vec![disk(MEM)], || ())
    };
    let server = with(Some(listed), false, "127.0.0.1:0").unwrap();
    let mut q = Queue::open(&server, Options::default());
    let refused = q.run(connect(0, 32, ANY_CONTROLLER, NQN, HOST)).completion.status;
    assert_eq!(refused, 0x4184, "Connect Invalid Host");
    assert_eq!(q.stream.read(&mut [0; 8]).unwrap(), 0, "closed");
    q.stream.shutdown(Shutdown::Both).ok();
    let mut q = Queue::open(&server, Options::default());
    q.ok(connect(0, 32, ANY_CONTROLLER, NQN, listed));
    // Every address of this machine needs a word on who may connect.
    let error = with(None, false, "0.0.0.0:0").unwrap_err();
    assert!(matches!(error.detail(), Some(AccessError::Open { .. })), "{error}");
    assert!(error.what_to_try().unwrap().contains("'allow-host'"), "{error}");
    assert!(with(Some(listed), true, "127.0.0.1:0").is_err());
    assert!(with(None, true, "0.0.0.0:0").is_ok());
    assert!(with(Some("host"), false, "0.0.0.0:0").is_err());
}

/// The health log says what the server has done for its hosts.
#[test]
fn the_health_log_counts() {
    let server = server(&[MEM, MEM], 1);
    let (mut admin, id) = Queue::admin(&server, Options::default());
    let mut q = Queue::io(&server, id, 1, Options::default());
    q.ok(write(1, 0, pattern(4096, 1), BLOCK));
    q.ok(write(2, 0, pattern(8192, 1), BLOCK));
    q.ok(read(1, 0, 1, BLOCK));
    let c = Command::new(nvme_admin::GET_LOG_PAGE).with_nsid(u32::MAX);
    let page = admin.ok((c.with_cdw(10, 0x02 | 127 << 16), Data::In(512))).data;
    let health = HealthLog::read(&page).unwrap();
    assert_eq!((health.host_reads, health.host_writes), (1, 2));
    assert_eq!((health.data_units_read, health.data_units_written), (1, 1));
}

/// A server that ends closes its connections and its port.
#[test]
fn the_end_closes_everything() {
    let server = server(&[MEM], 2);
    let address = server.address();
    let (mut admin, id) = Queue::admin(&server, Options::default());
    let mut q = Queue::io(&server, id, 1, Options::default());
    q.ok(write(1, 0, pattern(4096, 1), BLOCK));
    drop(server);
    assert_eq!(admin.stream.read(&mut [0; 8]).unwrap_or(0), 0);
    assert_eq!(q.stream.read(&mut [0; 8]).unwrap_or(0), 0);
    assert!(TcpStream::connect(address).is_err());
}

/// A command that is alone takes a wait, a read and a send. Counters of system calls that are wrong hide more of them.
#[test]
fn a_command_takes_three_system_calls() {
    let server = server(&[MEM], 1);
    let (_admin, id) = Queue::admin(&server, Options::default());
    let mut q = Queue::io(&server, id, 1, Options::default());
    let before = server.calls();
    for n in 0..100 {
        q.ok(write(1, n, pattern(4096, 1), BLOCK));
    }
    let after = server.calls();
    let (waits, receives, sends) =
        (after.waits - before.waits, after.receives - before.receives, after.sends - before.sends);
    assert_eq!(sends, 100);
    // A capsule may come in two pieces, and the answer may be read before the worker waits again.
    assert!((99..=110).contains(&waits) && (100..=110).contains(&receives), "{waits} {receives}");
}

/// Connections that wait for a slow disk are woken each for itself, while others go on. One that is not is looked at once a second.
#[test]
fn connections_that_wait_are_woken() {
    let server = server(&["null,zones=8,zone-size=4M,latency=2ms", MEM], 1);
    let (_admin, id) = Queue::admin(&server, Options::default());
    let mut all: Vec<_> =
        (1..=8).map(|qid| Queue::io(&server, id, qid, Options::default())).collect();
    let begun = Instant::now();
    for n in 0..20 {
        for (zone, q) in (0..).zip(&mut all) {
            q.send(write(1, zone * ZONE + n, pattern(4096, 1), BLOCK));
            q.flush();
        }
        // The last one has work at both disks.
        let fast = all.last_mut().unwrap();
        fast.send(write(2, n, pattern(4096, 2), BLOCK));
        for q in &mut all {
            assert_eq!(q.next().completion.status, 0);
        }
        assert_eq!(all.last_mut().unwrap().next().completion.status, 0);
    }
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
}
