//! How long operations take at a server, measured on disks whose time is known.

#![cfg(all(feature = "nvme-tcp", feature = "ublk"))]

use crate::nvme_host;
use crate::nvme_host::{BLOCK, Queue, ZONE, disk, options, pattern};
use std::time::Duration;
use zoneplug_core::{Nanos, Op};
use zoneplug_host::nvme_tcp::{NvmeTcp, NvmeTcpOptions};
use zoneplug_host::ublk::testing::{Answer, BlockClient, serve_timed};
use zoneplug_host::{HostedDisk, ServedCounters, ServedOperation};
use zoneplug_nvme::initiator::{Options, read, reset_zone, write};

fn of(c: &ServedCounters, op: Op) -> &ServedOperation {
    c.operations.iter().find(|o| o.op == op).unwrap()
}

/// The buckets that have something, and the mean.
fn shape(o: &ServedOperation) -> (usize, usize, Duration) {
    let h = o.latency.unwrap();
    let first = h.buckets.iter().position(|n| *n > 0).unwrap();
    let last = h.buckets.iter().rposition(|n| *n > 0).unwrap();
    (first, last, Duration::from_nanos(h.sum.0 / h.count()))
}

const DELAYS: &str = "delay,write=20ms,read=1ms@mem,zones=8,zone-size=4M";

/// Slow enough that each one is timed: writes of 20 ms, reads of 1 ms, and two writes that fail.
#[test]
fn latencies_over_the_network_are_those_of_the_disk() {
    let options = NvmeTcpOptions { latencies: true, ..options() };
    let server = NvmeTcp::start(&options, vec![disk(DELAYS)], || ()).unwrap();
    let (_admin, id) = Queue::admin(&server, Options::default());
    let mut queues = [1, 2].map(|qid| Queue::io(&server, id, qid, Options::default()));
    for (zone, q) in (0..).zip(&mut queues) {
        for i in 0..10 {
            q.ok(write(1, zone * ZONE + i, pattern(4096, 1), BLOCK));
            q.ok(read(1, zone * ZONE + i, 1, BLOCK));
            std::thread::sleep(Duration::from_millis(4));
        }
    }
    assert_ne!(queues[0].run(write(1, 3, pattern(4096, 1), BLOCK)).completion.status, 0);
    queues[0].ok(reset_zone(1, 0));
    let c = server.counters(0);
    let (writes, reads) = (of(&c, Op::Write), of(&c, Op::Read));
    assert_eq!((writes.succeeded, writes.failed, writes.bytes), (20, 1, 20 * 4096));
    assert_eq!((reads.succeeded, reads.failed, reads.bytes), (20, 0, 20 * 4096));
    assert_eq!((writes.latency.unwrap().count(), reads.latency.unwrap().count()), (21, 20));
    assert_eq!(of(&c, Op::ZoneReset).latency.unwrap().count(), 1);
    let (_, last, mean) = shape(writes);
    // 2^24 ns are 17 ms. The one that failed was refused without a wait.
    assert!(last >= 25 && mean >= Duration::from_millis(19), "2^{last} ns, {mean:?}");
    assert_eq!(writes.latency.unwrap().buckets[25..].iter().sum::<u64>(), 20);
    let (first, _, mean) = shape(reads);
    assert!(first >= 20 && mean >= Duration::from_millis(1), "2^{first} ns, {mean:?}");
    assert!(mean < Duration::from_millis(20), "{mean:?}");
    let mut zones: Vec<u32> = c.slow_zones.iter().map(|z| z.zone.0).collect();
    zones.sort_unstable();
    assert_eq!(zones, [0, 1]);
    // On a loaded machine a read may be the slowest operation of its zone. It is not where each took less than 17 ms.
    let (_, slowest_read, _) = shape(reads);
    let writes_are_slowest = c.slow_zones.iter().all(|z| z.op == Op::Write);
    assert!(writes_are_slowest || slowest_read >= 24, "{:?}", c.slow_zones);
    assert!(c.slow_zones.iter().all(|z| z.took >= Nanos(20_000_000)), "{:?}", c.slow_zones);
}

/// Many at a time: what is not timed is counted with what is, but for the last ones.
#[test]
fn a_busy_queue_counts_all_by_some() {
    let options = NvmeTcpOptions { latencies: true, threads: 1, ..options() };
    let server = NvmeTcp::start(&options, vec![disk("mem,zones=8,zone-size=64M")], || ()).unwrap();
    let (_admin, id) = Queue::admin(&server, Options::default());
    let mut q = Queue::io(&server, id, 1, Options::default());
    const N: u64 = 12_000;
    for i in 0..N {
        q.send(write(1, i, pattern(4096, 1), BLOCK));
        if i >= 63 {
            assert_eq!(q.next().completion.status, 0);
        }
    }
    for _ in 0..63 {
        assert_eq!(q.next().completion.status, 0);
    }
    let c = server.counters(0);
    let writes = of(&c, Op::Write);
    let counted = writes.latency.unwrap().count();
    assert_eq!(writes.succeeded, N);
    assert!(counted <= N && counted > N - 240, "{counted}");
}

#[test]
fn a_server_that_does_not_measure_says_so() {
    let server = nvme_host::server(&[DELAYS], 1);
    let (_admin, id) = Queue::admin(&server, Options::default());
    Queue::io(&server, id, 1, Options::default()).ok(read(1, 0, 1, BLOCK));
    let c = server.counters(0);
    assert_eq!((of(&c, Op::Read).succeeded, of(&c, Op::Read).latency), (1, None));
    assert!(c.slow_zones.is_empty());
}

/// Appends to one zone, and a flush at the end.
struct Appends {
    left: u32,
}

impl BlockClient for Appends {
    fn next(&mut self, _tag: u16, _data: &mut [u8]) -> Option<[u8; 24]> {
        const FLUSH: u8 = 2;
        const APPEND: u8 = 13;
        self.left = self.left.checked_sub(1)?;
        let mut descriptor = [0; 24];
        descriptor[0] = if self.left == 0 { FLUSH } else { APPEND };
        if self.left > 0 {
            descriptor[4..8].copy_from_slice(&8u32.to_le_bytes());
            descriptor[8..16].copy_from_slice(&8192u64.to_le_bytes());
        }
        Some(descriptor)
    }

    fn answered(&mut self, answer: Answer, _data: &[u8]) {
        assert!(answer.result >= 0, "{answer:?}");
    }
}

#[test]
fn latencies_of_a_block_device_are_those_of_the_disk() {
    let disk = HostedDisk::open_spec("delay,write=10ms@mem,zones=4,zone-size=4M").unwrap();
    let interval = Nanos(4_000_000);
    let c = serve_timed(&disk, 1, 4096, &mut Appends { left: 21 }, interval).unwrap();
    let appends = of(&c, Op::ZoneAppend);
    assert_eq!((appends.succeeded, appends.latency.unwrap().count()), (20, 20));
    let (first, _, mean) = shape(appends);
    assert!(first >= 24 && mean >= Duration::from_millis(10), "2^{first} ns, {mean:?}");
    assert_eq!(of(&c, Op::Flush).latency.unwrap().count(), 1);
    assert_eq!((c.slow_zones.len(), c.slow_zones[0].zone.0), (1, 1));
}
