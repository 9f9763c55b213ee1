//! V1-V9, freeze, queues that go away (R12, R30, R31, R40).

use crate::common::*;
use std::sync::Arc;
use std::task::Waker;
use zoneplug_core::disk::{Disk, DiskConfig, Revalidation};
use zoneplug_core::zone::{Condition, Geometry, ZoneInfo, ZoneType};
use zoneplug_core::{Bios, Error, Flags, Nanos, Op, Sector, Status, ZoneNo};
use zoneplug_devices::emu::{EmuConfig, EmuDisk, EmuKind};

fn revalidate(r: &mut Rig) -> Result<(), Error> {
    let v = r.disk.revalidate();
    let result = finish(r, v);
    r.drain();
    result
}

fn finish(r: &mut Rig, mut v: Revalidation) -> Result<(), Error> {
    for _ in 0..1000 {
        if let Some(result) = v.poll(&mut r.queues[0], r.now) {
            return result;
        }
        for q in 1..r.queues.len() {
            r.poll(q);
        }
        let next = r.queues.iter().filter_map(|q| q.next_deadline()).min();
        r.now = next.unwrap_or(r.now).max(r.now);
    }
    panic!("a revalidation that does not end");
}

/// Opens a disk of 6 zones, the first conventional, whose report is edited.
fn open_edited(edit: impl FnMut(&mut Vec<ZoneInfo>) + Send + 'static) -> Result<Disk, Error> {
    let m = make(6, 64, 48).conventional(&[0]).last_zone(32, 16);
    let dev = EmuDisk::new(m.emu).expect("a device");
    try_open(Arc::new(Liar::new(dev, edit)), DiskConfig::default())
}

/// V1, O1: limits that make no sense are refused; any zone size will do.
#[test]
fn v1_preconditions() {
    for size in [1, 3, 24, 64, 1000, 1 << 20] {
        make(4, size, size).rig();
    }
    let dev = make(4, 64, 64).rig().dev;
    for change in [
        (|l| l.logical_block_sectors = 3) as fn(&mut zoneplug_core::zone::Limits),
        |l| l.write_granularity_sectors = 0,
        |l| (l.logical_block_sectors, l.write_granularity_sectors) = (8, 4),
        |l| (l.max_open_zones, l.max_active_zones) = (5, 4),
    ] {
        let mut liar = Liar::new(dev.clone(), |_| {});
        change(&mut liar.limits);
        let e = try_open(Arc::new(liar), DiskConfig::default()).unwrap_err();
        assert!(e.what_to_try().is_some(), "{e}");
    }
}

/// V2: every rule of a report, each broken in turn.
#[test]
fn v2_a_report_that_breaks_a_rule_is_refused() {
    assert!(open_edited(|_| {}).is_ok());
    type Break = fn(&mut ZoneInfo);
    let breaks: [(usize, Break); 13] = [
        (2, |z| z.start = z.start.plus(1)),
        (2, |z| z.start = Sector(64)),
        (2, |z| z.len_sectors = 63),
        (2, |z| z.len_sectors = 0),
        (5, |z| z.len_sectors = 64),
        (2, |z| z.capacity_sectors = 49),
        (2, |z| z.capacity_sectors = 0),
        (0, |z| z.capacity_sectors = 48),
        (2, |z| z.zone_type = ZoneType::Conventional),
        (2, |z| z.cond = Condition::NotWp),
        (0, |z| z.cond = Condition::Offline),
        (2, |z| z.cond = Condition::Active),
        (2, |z| (z.cond, z.wp) = (Condition::Closed, z.start.plus(49))),
    ];
    for (n, (zone, change)) in breaks.into_iter().enumerate() {
        let e = open_edited(move |zones| change(&mut zones[zone]));
        assert!(e.is_err(), "number {n}");
    }
}

/// V3: a report must be there, and whole.
#[test]
fn v3_a_short_report_is_refused() {
    assert!(open_edited(Vec::clear).is_err());
    assert!(open_edited(|zones| zones.retain(|z| z.start.0 != 64)).is_err());
    let all = Geometry::new(2, 8, 8).unwrap().with_conventional([ZoneNo(0), ZoneNo(1)]);
    assert!(all.is_err(), "at least one zone is sequential");
}

/// V3, V9, R31: a device that answers in small pieces: each zone lands where its start says.
#[test]
fn v9_pieces_of_a_report_are_placed_by_their_start() {
    let dev = make(60, 64, 64).rig().dev;
    for z in 0..60 {
        dev.set_write_pointer(ZoneNo(z), z);
    }
    let disk = open(Arc::new(Liar::new(dev, |zones| zones.truncate(7))), DiskConfig::default());
    for z in 0..60 {
        assert_eq!(disk.cached_zone(ZoneNo(z)).unwrap().wp.0, u64::from(z) * 65);
    }
}

/// R31, P12, A11: 74,000 zones.
#[test]
fn r31_a_disk_of_many_zones_opens_and_reports_in_pieces() {
    let g = Geometry::new(74_000, 524_288, 524_288).unwrap();
    let dev = EmuDisk::new(EmuConfig::new(EmuKind::Null, g)).unwrap();
    dev.set_write_pointer(ZoneNo(73_999), 8);
    let disk = open(dev, DiskConfig::default());
    let mut queue = disk.open_polled_queue(4, 4).unwrap();
    assert_eq!(disk.counters().live_plugs, 1);
    let (mut at, mut last) = (0, None);
    while at < 74_000 {
        let mut list = Bios::from([report(at * 524_288, 10_000)]);
        queue.submit(Nanos(0), &mut list);
        let mut done = Bios::new();
        queue.poll(Nanos(0), &mut done);
        let zones = records(&done[0]);
        at += zones.len() as u64;
        last = zones.last().copied();
    }
    assert_eq!(last.unwrap().wp.0, 73_999 * 524_288 + 8);
}

/// V4, V5, R30, I6: revalidation under load: writes drain first, then the layer takes over what the device reports.
#[test]
fn r30_revalidation_under_load() {
    let mut r = make(4, 64, 64).queues(&[(16, 2), (16, 2)]).config(|c| c.nomerges = true).rig();
    r.fail(Op::Write, Status::Io);
    r.submit(0, [write(64, 8)]);
    for i in 0..8 {
        r.submit(i as usize % 2, [write(i * 8, 8)]);
    }
    let v = r.disk.revalidate();
    let mut list = Bios::from([write(128, 8)]);
    assert_eq!(r.queues[1].submit(r.now, &mut list), 0, "frozen");
    finish(&mut r, v).unwrap();
    assert_eq!(r.finish().len(), 9, "BIOs that finished meanwhile are delivered");
    let found = (r.cached(0), r.wp(1));
    assert_eq!(found, (Some((Condition::Full, 64)), 0), "V4: also the stale zone is known again");
    assert_eq!(r.queues[1].submit(r.now, &mut list), 1);
    assert!(r.finish()[0].status.is_ok());
}

/// V4, E10: revalidation finds what another program did.
#[test]
fn v4_revalidation_finds_every_write_pointer() {
    let mut r = make(4, 64, 64).rig();
    assert_eq!(r.run(0, [write(0, 8), write(64, 8)]), [Status::Ok; 2]);
    r.dev.set_write_pointer(ZoneNo(0), 32);
    r.dev.set_condition(ZoneNo(1), Condition::ReadOnly);
    r.dev.set_write_pointer(ZoneNo(2), 64);
    revalidate(&mut r).unwrap();
    assert_eq!(r.wp(0), 32);
    assert_eq!(r.cached(1).unwrap().0, Condition::ReadOnly);
    assert_eq!(r.cached(2).unwrap().0, Condition::Full);
}

/// V6, R30: a report that fails leaves everything as it was, and the disk goes on.
#[test]
fn v6_a_failed_revalidation_keeps_the_old_state() {
    let mut r = make(4, 64, 64).rig();
    assert_eq!(r.status(write(0, 8)), Status::Ok);
    r.dev.set_write_pointer(ZoneNo(1), 32);
    r.fail(Op::ReportZones, Status::Io);
    let mut v = r.disk.revalidate();
    let result = loop {
        if let Some(result) = v.poll(&mut r.queues[0], r.now) {
            break result;
        }
        r.now.0 += 100;
    };
    assert!(result.unwrap_err().what_to_try().is_some());
    assert!(v.poll(&mut r.queues[0], r.now).is_some_and(|again| again.is_err()), "still an error");
    assert_eq!((r.wp(0), r.wp(1)), (8, 0));
    assert_eq!(r.status(write(8, 8)), Status::Ok);
}

/// V7: a device that changes its layout while it is read is read again, and not for ever.
#[test]
fn v7_a_layout_that_changes_is_read_again() {
    let big = Geometry::new(4, 64, 64).unwrap();
    let small = Geometry::new(3, 64, 64).unwrap();
    for (changes, ok) in [(1, true), (2, true), (3, false)] {
        let liar = Liar::new(make(4, 64, 64).rig().dev, |_| {});
        // The layer reads the geometry at open, at the start of the revalidation, and after each report.
        let mut list = vec![big];
        for n in 0..=changes {
            list.push(if (n + changes) % 2 == 0 { big } else { small });
        }
        *liar.geometry.lock().unwrap() = list;
        let opened = try_open(Arc::new(liar), DiskConfig::default());
        assert_eq!(opened.is_ok(), ok, "{changes} changes: {opened:?}");
    }
}

/// V7, R30: more zones than before: the disk grows, and the old zones are read again.
#[test]
fn v7_a_disk_may_grow() {
    let dev = make(6, 64, 64).rig().dev;
    let (three, six) = (Geometry::new(3, 64, 64).unwrap(), Geometry::new(6, 64, 64).unwrap());
    let liar = Arc::new(Liar::new(dev.clone(), |_| {}));
    *liar.geometry.lock().unwrap() = vec![three];
    *liar.edit.lock().unwrap() = Box::new(|zones| zones.truncate(3));
    let disk = open(liar.clone(), DiskConfig::default());
    let queues = vec![disk.open_polled_queue(8, 2).unwrap()];
    let mut r = Rig { dev, disk, queues, now: Nanos(0), done: Vec::new() };
    assert_eq!(r.run(0, [write(128, 8), write(192, 8)]), [Status::Ok, Status::OutOfRange]);
    *liar.geometry.lock().unwrap() = vec![six];
    *liar.edit.lock().unwrap() = Box::new(|_| {});
    revalidate(&mut r).unwrap();
    assert_eq!(r.disk.geometry().nr_zones(), 6);
    assert_eq!(
        r.run(0, [write(136, 8), write(320, 8), write(384, 8)]),
        [Status::Ok, Status::Ok, Status::OutOfRange]
    );
    assert_eq!(r.run(0, (0..6).map(|z| report(z * 64, 1))), [Status::Ok; 6]);
}

/// V8: records whose start is outside the disk, or is not the start of a zone, are ignored.
#[test]
fn v8_records_of_no_zone_are_ignored() {
    let dev = make(4, 64, 64).rig().dev;
    let liar = Arc::new(Liar::new(dev.clone(), |_| {}));
    let disk = open(liar.clone(), DiskConfig::default());
    let queues = vec![disk.open_polled_queue(8, 2).unwrap()];
    let mut r = Rig { dev, disk, queues, now: Nanos(0), done: Vec::new() };
    r.fail(Op::Write, Status::Io);
    assert_eq!(r.status(write(0, 8)), Status::Io);
    *liar.edit.lock().unwrap() = Box::new(|zones| {
        for (z, start) in zones.iter_mut().zip([4096, u64::MAX, 1, 63]) {
            z.start = Sector(start);
        }
    });
    assert_eq!(r.status(report(0, 4)), Status::Ok);
    assert_eq!(r.cached(0), None);
}

/// W22, R12: freezes overlap; the disk goes on when the last is dropped, also in the middle of draining.
#[test]
fn w22_freezes_overlap_and_may_be_given_up() {
    let mut r = make(4, 64, 64).queues(&[(16, 1), (16, 1)]).config(|c| c.nomerges = true).rig();
    r.submit(0, (0..4).map(|i| write(i * 8, 8)));
    let (a, b) = (r.disk.begin_freeze(), r.disk.begin_freeze());
    assert!(!a.poll());
    drop(a);
    assert_eq!(r.queues[1].submit(r.now, &mut Bios::from([read(0, 8)])), 0);
    drop(b);
    r.submit(1, [write(32, 8)]);
    let c = r.disk.begin_freeze();
    while !c.poll() {
        r.step();
    }
    assert_eq!(r.device_wp(0), 40);
    drop(c);
    assert_eq!(r.finish().len(), 5);
}

/// R40, I7, R17: a queue that is dropped with work in flight and waiting delays no other queue, and loses nothing it had
/// submitted.
#[test]
fn r40_a_dropped_queue_is_finished_by_the_others() {
    for keep in [0, 1] {
        let m = make(4, 64, 64).queues(&[(16, 1), (16, 1)]).config(|c| c.nomerges = true);
        let mut r = m.rig();
        for i in 0..8 {
            r.submit(i as usize % 2, [write(i * 8, 8)]);
        }
        r.submit(1 - keep, [read(0, 64), op(Op::Flush, 0, 0), write(64, 64)]);
        let gone = r.queues.remove(1 - keep);
        drop(gone);
        assert_eq!(r.finish().iter().filter(|b| b.status.is_ok()).count(), 4);
        let freeze = r.disk.begin_freeze();
        for round in 0.. {
            r.step();
            if freeze.poll() {
                break;
            }
            assert!(round < 1000);
        }
        assert_eq!(r.medium(0, 128), (0..128).collect::<Vec<_>>());
        assert_eq!(zoneplug_core::lost_bios(), 0);
    }
}

/// R40, P14: every queue goes away, then a new one is opened: it finishes what was left.
#[test]
fn r40_a_new_queue_finishes_what_the_last_one_left() {
    let mut r = make(4, 64, 64).config(|c| c.nomerges = true).rig();
    r.submit(0, (0..8).map(|i| write(i * 8, 8)));
    r.queues.clear();
    r.queues.push(r.disk.open_polled_queue(4, 2).unwrap());
    for _ in 0..40 {
        r.step();
    }
    assert_eq!((r.device_wp(0), r.disk.counters().waiting), (64, 0));
    assert_eq!(r.run(0, [read(0, 64), flags(report(0, 1), Flags::RESYNC)]), [Status::Ok; 2]);
}

/// A waker that uses the disk.
struct Curious(Disk);

impl std::task::Wake for Curious {
    fn wake(self: Arc<Self>) {
        let mut queue = self.0.open_polled_queue(1, 1).expect("a queue");
        queue.poll(Nanos(0), &mut Bios::new());
        drop(self.0.begin_freeze());
        let _ = self.0.counters();
    }
}

/// I8: no waker is called under a lock: at a thaw, a delivery or a drop it may use the disk.
#[test]
fn i8_a_waker_may_use_the_disk() {
    let mut r = make(4, 64, 64).queues(&[(8, 2), (8, 2)]).rig();
    let waker = Waker::from(Arc::new(Curious(r.disk.clone())));
    let freeze = r.disk.begin_freeze();
    assert!(r.queues[1].arm(&waker));
    drop(freeze);
    r.submit(0, [write(0, 8)]);
    r.submit(1, [write(8, 8)]);
    assert!(r.queues[1].arm(&waker));
    r.step();
    r.step();
    r.drain();
    assert!(r.queues[1].arm(&waker));
    r.submit(0, [write(16, 8)]);
    drop(r.queues.remove(0));
    r.step();
    r.step();
}

/// R40, P14: a disk outlives its handle as long as a queue is open.
#[test]
fn r40_queues_keep_their_disk() {
    let r = make(4, 64, 64).rig();
    let Rig { disk, mut queues, .. } = r;
    drop(disk);
    let mut list = Bios::from([write(0, 8)]);
    queues[0].submit(Nanos(0), &mut list);
    let mut done = Bios::new();
    queues[0].poll(Nanos(100), &mut done);
    assert_eq!(done.len(), 1);
}
