//! A queue right above the layer goes around it while no command needs it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Wake, Waker};
use zoneplug_core::disk::{Disk, DiskConfig, DiskQueue, QueueConfig};
use zoneplug_core::zone::ZONE_RECORD_LEN;
use zoneplug_core::{Bio, Bios, IoBuf, Nanos, Op, Sector, Status};
use zoneplug_devices::emu::{EmuConfig, EmuDisk};
use zoneplug_devices::stack::Po2Disk;

/// Zones of 24 sectors on 32; commands take a millisecond.
const SLOW: &str = "null,zones=6,zone-size=12K,lba-size=512,latency=1ms";

fn disk(spec: &str) -> (Arc<EmuDisk>, Disk) {
    let below = EmuDisk::new(spec.parse::<EmuConfig>().unwrap()).unwrap();
    let layer = Po2Disk::new(below.clone()).unwrap();
    let mut now = Nanos(0);
    let disk = Disk::open(layer, DiskConfig::default(), &mut |next| {
        now = now.max(next.unwrap_or(now));
        now
    });
    (below, disk.unwrap())
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

fn is_around(q: &DiskQueue) -> bool {
    q.way_down().0
}

/// N18: nothing is in between until a command needs the layer, and nothing is again when that is back. What went around it
/// before comes back through it as it was sent.
#[test]
fn the_layer_is_in_between_only_while_it_is_needed() {
    let (_, disk) = disk(SLOW);
    let mut q = disk.open_polled_queue(16, 16).unwrap();
    assert!(is_around(&q));
    let zeroes = |zone: u64| bio(Op::WriteZeroes, zone * 32, 8);
    for needs in [
        bio(Op::ZoneReset, 160, 32),
        bio(Op::ZoneFinish, 128, 32),
        bio(Op::Read, 32 + 20, 8),
        bio(Op::ReportZones, 40, 0),
    ] {
        let (op, at) = (needs.op, needs.sector.0);
        let mut needs = needs;
        if op == Op::ReportZones {
            needs.set_buf(IoBuf::leaked(2 * ZONE_RECORD_LEN as u32));
        }
        send(&mut q, 0, [zeroes(2)]);
        assert!(is_around(&q));
        send(&mut q, 0, [needs]);
        assert!(!is_around(&q), "{op:?}");
        send(&mut q, 0, [zeroes(3)]);
        assert!(!is_around(&q), "it waits for what it has noted");
        let mut done = finish(&mut q, 2_000_000);
        done.sort_unstable();
        let ok = |op, at| (op, at, Status::Ok);
        let mut want = [ok(Op::WriteZeroes, 64), ok(op, at), ok(Op::WriteZeroes, 96)];
        want.sort_unstable();
        assert_eq!(done, want);
        send(&mut q, 2_000_000, [bio(Op::Read, 3, 4), bio(Op::Flush, 0, 0)]);
        assert!(is_around(&q), "nor for a flush");
        send(&mut q, 2_000_000, [bio(Op::ZoneReset, 64, 32), bio(Op::ZoneReset, 96, 32)]);
        assert_eq!(finish(&mut q, 4_000_000).len(), 4);
        send(&mut q, 4_000_000, [bio(Op::Read, 3, 4)]);
        assert_eq!(finish(&mut q, 6_000_000), [ok(Op::Read, 3)]);
    }
}

/// What a busy device leaves is as the engine made it, whether one or many, and goes the same way the next time.
/// N18.
#[test]
fn what_a_busy_device_leaves_is_as_it_was() {
    let (below, disk) = disk("null,zones=6,zone-size=12K,lba-size=512");
    let mut q = disk.open_polled_queue(16, 16).unwrap();
    for nr in 1..=5 {
        let all = || (1..=nr).map(|zone| bio(Op::Read, zone * 32 + 3, 4));
        below.force_busy(2);
        send(&mut q, 0, all());
        for _ in 0..2 {
            let left = q.way_down().1;
            assert_eq!(left, Vec::from_iter(all().map(|b| (b.sector.0, 0))));
            assert!(is_around(&q));
            assert_eq!(finish(&mut q, 0), []);
        }
        let done = finish(&mut q, 0);
        let want = all().map(|b| (Op::Read, b.sector.0, Status::Ok));
        assert_eq!(done, Vec::from_iter(want));
    }
}

/// A scheduler looks into what is on its way down: the layer is in between while the layout is special.
/// N18.
#[test]
fn a_special_layout_brings_the_layer_back() {
    let (_, disk) = disk("null,zones=6,zone-size=12K,lba-size=512");
    let mut q = disk.open_polled_queue(16, 16).unwrap();
    for (value, at) in [("1", 0), ("0", 8), ("1", 16)] {
        let mut change = disk.change_attribute("zoned_qd1_writes", value).unwrap();
        while !change.poll() {
            assert_eq!(finish(&mut q, 0), []);
        }
        let zones = [1, 2, 5];
        send(&mut q, 0, zones.map(|zone| bio(Op::WriteZeroes, zone * 32 + at, 8)));
        assert_eq!(is_around(&q), value == "0");
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

/// A queue that was armed while the layer was aside is woken for what ends in the layer: a read of a gap.
/// N5.
#[test]
fn who_sleeps_is_woken_for_a_gap() {
    for fd in [false, true] {
        let (_, disk) = disk(SLOW);
        let count = Arc::new(Counter(AtomicU32::new(0)));
        let waker = Waker::from(count.clone());
        let config = QueueConfig { depth: 16, tags: 16, waker: waker.clone() };
        let mut q = disk.open_queue(config).unwrap();
        send(&mut q, 0, []);
        assert!(if fd { q.arm_fd(&waker).0 } else { q.arm(&waker) } && is_around(&q));
        send(&mut q, 0, [bio(Op::Read, 32 + 26, 4)]);
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
        assert_eq!(finish(&mut q, 0), [(Op::Read, 58, Status::Ok)]);
    }
}

/// A queue that its owner dropped is an orphan on the way around as on any other.
/// N18.
#[test]
fn an_orphan_goes_around_too() {
    let (_, disk) = disk(SLOW);
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
