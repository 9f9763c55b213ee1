//! The queue with the address map: which commands go past the layer, and what a disk's queue does with it.

use super::*;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Wake;
use zoneplug_core::device::MappedQueue;
use zoneplug_core::disk::{Disk, DiskConfig, DiskQueue, QueueConfig};

/// Zones of 24 sectors on 32; commands take a millisecond.
const SLOW: &str = "null,zones=6,zone-size=12K,lba-size=512,latency=1ms";

fn mapped(spec: &str) -> (Arc<EmuDisk>, MappedQueue) {
    let below = emu(spec);
    let queue =
        Po2Disk::new(below.clone()).unwrap().open_mapped_queue(16, Waker::noop().clone()).unwrap();
    (below, queue)
}

fn command(op: Op, sector: u64, len: u32) -> Box<Command> {
    if op == Op::Read {
        return data_command(op, sector, &[len], 0xff);
    }
    let mut c = Command::without_data(op, Sector(sector), len);
    c.report_max = 1;
    c
}

fn give(q: &mut dyn Queue, now: u64, list: impl IntoIterator<Item = Box<Command>>) {
    let mut list = Commands::from_iter(list);
    q.submit(Nanos(now), &mut list);
    assert!(list.is_empty());
}

fn take(q: &mut dyn Queue, now: u64) -> Vec<(Op, u64, u32, Status)> {
    let mut done = Commands::new();
    q.poll(Nanos(now), &mut done);
    done.iter().map(|c| (c.op, c.sector.0, c.len_sectors, c.status)).collect()
}

/// Commands go past the layer until it has one that needs more than an addition, and again when that one is back.
/// Commands that went past it come back through it as they were sent (N18).
#[test]
fn commands_pass_the_layer_unless_it_has_one() {
    let (_, mut q) = mapped(SLOW);
    assert!(q.is_mapping());
    for (op, at, len) in [
        (Op::ZoneReset, 160, 32),
        (Op::ZoneFinish, 128, 32),
        (Op::Read, 32 + 20, 8),
        (Op::ReportZones, 40, 0),
    ] {
        let zeroes = |zone: u64| command(Op::WriteZeroes, zone * 32, 8);
        give(&mut q, 0, [zeroes(2)]);
        assert!(q.is_mapping());
        give(&mut q, 0, [command(op, at, len)]);
        assert!(!q.is_mapping(), "{op:?}");
        give(&mut q, 0, [zeroes(3)]);
        assert!(!q.is_mapping(), "the layer has a command");
        let mut done = take(&mut q, 2_000_000);
        done.sort_unstable();
        let ok = |op, at, len| (op, at, len, Status::Ok);
        let mut want = [ok(Op::WriteZeroes, 64, 8), ok(op, at, len), ok(Op::WriteZeroes, 96, 8)];
        want.sort_unstable();
        assert_eq!(done, want);
        assert!(q.is_mapping(), "{op:?} is back");
        give(&mut q, 2_000_000, [command(Op::Read, 3, 4), command(Op::Flush, 0, 0)]);
        assert!(q.is_mapping(), "a flush passes");
        give(&mut q, 2_000_000, [64u64, 96].map(|at| command(Op::ZoneReset, at, 32)));
        assert_eq!(take(&mut q, 4_000_000).len(), 4);
        give(&mut q, 4_000_000, [command(Op::Read, 3, 4)]);
        assert_eq!(take(&mut q, 6_000_000), [ok(Op::Read, 3, 4)]);
    }
}

/// Commands that a busy device left are as they were given, one or many, and are taken the next time.
#[test]
fn commands_that_a_busy_device_left_are_as_they_were() {
    for nr in 1..=5u64 {
        let (below, mut q) = mapped("null,zones=6,zone-size=12K,lba-size=512");
        let mut list: Commands = (1..=nr).map(|z| command(Op::Read, z * 32 + 3, 4)).collect();
        let at: Vec<_> = (1..=nr).map(|z| z * 32 + 3).collect();
        below.force_busy(2);
        for _ in 0..2 {
            q.submit(Nanos(0), &mut list);
            assert_eq!(list.iter().map(|c| c.sector.0).collect::<Vec<_>>(), at);
            assert!(q.is_mapping());
            assert_eq!(take(&mut q, 0), []);
        }
        q.submit(Nanos(0), &mut list);
        assert!(list.is_empty());
        let done: Vec<_> = take(&mut q, 0).iter().map(|c| (c.1, c.3)).collect();
        assert_eq!(done, Vec::from_iter(at.iter().map(|&at| (at, Status::Ok))));
    }
}

/// With a device that may panic, every list is under the layer's guard. Without a gap there is no map.
#[test]
fn a_device_that_may_panic_and_one_without_gaps_are_not_mapped() {
    let fault = FaultDisk::new(emu(SMALL), &"read/medium/count=1".parse().unwrap()).unwrap();
    assert!(!fault.never_panics());
    let noop = || Waker::noop().clone();
    let mut q = Po2Disk::new(fault).unwrap().open_mapped_queue(4, noop()).unwrap();
    for want in [false, true] {
        assert!(!q.is_mapping());
        give(&mut q, 0, [command(Op::Read, 32, 4)]);
        let done = take(&mut q, 0);
        assert_eq!((done[0].1, done[0].3.is_ok()), (32, want));
    }
    let even = Po2Disk::new(emu("null,zones=4,zone-size=64K")).unwrap();
    assert!(!even.open_mapped_queue(4, noop()).unwrap().is_mapping());
}

fn disk(spec: &str) -> Disk {
    let mut now = Nanos(0);
    let disk = Disk::open(Po2Disk::new(emu(spec)).unwrap(), DiskConfig::default(), &mut |next| {
        now = now.max(next.unwrap_or(now));
        now
    });
    disk.unwrap()
}

fn bio(op: Op, sector: u64, len: u32) -> Box<Bio> {
    let memory = if op == Op::Read { len << 9 } else { 0 };
    Bio::with_buf(op, Sector(sector), len, IoBuf::leaked(memory))
}

fn send(q: &mut DiskQueue, now: u64, list: impl IntoIterator<Item = Box<Bio>>) {
    let mut list = Bios::from_iter(list);
    q.submit(Nanos(now), &mut list);
    assert!(list.is_empty());
}

fn finish(q: &mut DiskQueue, now: u64) -> Vec<(Op, u64, Status)> {
    let mut done = Bios::new();
    q.poll(Nanos(now), &mut done);
    done.iter().map(|b| (b.op, b.sector.0, b.status)).collect()
}

/// The map also holds while a single writer decides what is sent, and when that is switched on and off.
#[test]
fn a_single_writer_is_above_the_map() {
    let disk = disk("null,zones=6,zone-size=12K,lba-size=512");
    let mut q = disk.open_polled_queue(16, 16).unwrap();
    for (value, at) in [("1", 0), ("0", 8), ("1", 16)] {
        let mut change = disk.change_attribute("zoned_qd1_writes", value).unwrap();
        while !change.poll() {
            assert_eq!(finish(&mut q, 0), []);
        }
        let zones = [1u64, 2, 5];
        send(&mut q, 0, zones.map(|zone| bio(Op::WriteZeroes, zone * 32 + at, 8)));
        let mut done = Vec::new();
        while done.len() < zones.len() {
            done.extend(finish(&mut q, 0));
        }
        done.sort_unstable();
        assert_eq!(done, zones.map(|zone| (Op::WriteZeroes, zone * 32 + at, Status::Ok)));
    }
}

struct Counter(AtomicU32);

impl Wake for Counter {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A queue that is armed while the layer has nothing is woken when a read of a gap ends in the layer.
#[test]
fn a_sleeper_is_woken_for_a_gap() {
    for fd in [false, true] {
        let disk = disk(SLOW);
        let count = Arc::new(Counter(AtomicU32::new(0)));
        let waker = Waker::from(count.clone());
        let config = QueueConfig { depth: 16, tags: 16, waker: waker.clone() };
        let mut q = disk.open_queue(config).unwrap();
        send(&mut q, 0, []);
        assert!(if fd { q.arm_fd(&waker).may_sleep } else { q.arm(&waker) });
        send(&mut q, 0, [bio(Op::Read, 32 + 26, 4)]);
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
        assert_eq!(q.next_deadline(), Some(Nanos(0)), "it is there at once");
        assert_eq!(finish(&mut q, 0), [(Op::Read, 58, Status::Ok)]);
    }
}

/// The queue of an owner that has left keeps its map.
#[test]
fn an_orphan_keeps_its_map() {
    let disk = disk(SLOW);
    let mut left = disk.open_polled_queue(4, 4).unwrap();
    send(&mut left, 0, [bio(Op::WriteZeroes, 32, 8), bio(Op::Read, 64 + 20, 8)]);
    drop(left);
    let mut q = disk.open_polled_queue(4, 4).unwrap();
    send(&mut q, 0, [bio(Op::WriteZeroes, 40, 8)]);
    let mut done = Vec::new();
    for now in 1..9 {
        done.extend(finish(&mut q, now * 1_000_000));
    }
    assert_eq!(done, [(Op::WriteZeroes, 40, Status::Ok)]);
}
