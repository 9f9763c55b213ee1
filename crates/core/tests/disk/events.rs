//! Events: what a disk says of failures, zones and late commands, apart from the completions.

use crate::common::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Wake, Waker};
use zoneplug_core::disk::{
    Disk, DiskConfig, EVENTS_KEPT, Event, EventKind as Kind, Mode, ZoneRecovery,
};
use zoneplug_core::{Flags, Nanos, Op, Sector, Status, ZoneNo};
use zoneplug_devices::emu::EmuDisk;
use zoneplug_devices::stack::FaultDisk;

/// Commands have 1 ms; 8 zones of 64 sectors.
fn rig(plan: &str, set: impl FnOnce(&mut Make)) -> Rig {
    let mut make = make(8, 64, 64).queues(&[(64, 16)]);
    make.config.timeout = Some(Nanos(1_000_000));
    set(&mut make);
    let dev = EmuDisk::new(make.emu).unwrap();
    let fault = FaultDisk::new(dev.clone(), &plan.parse().unwrap()).unwrap();
    let disk = open(fault, make.config);
    let queues = vec![disk.open_polled_queue(64, 16).unwrap()];
    Rig { dev, disk, queues, now: Nanos(0), done: Vec::new() }
}

fn events(disk: &Disk, after: u64) -> Vec<Event> {
    let mut all = Vec::new();
    disk.events(after, usize::MAX, &mut all);
    all
}

/// Kind, operation, status, zone, sector, count, aborted.
type Seen = (Kind, Option<Op>, Status, Option<u32>, u64, u32, u32);

fn seen(disk: &Disk, after: u64) -> Vec<Seen> {
    let all = events(disk, after);
    assert!(all.iter().zip(after + 1..).all(|(e, n)| e.sequence == n), "no gaps: {all:?}");
    let flat =
        |e: Event| (e.kind, e.op, e.status, e.zone.map(|z| z.0), e.sector.0, e.count, e.aborted);
    all.into_iter().map(flat).collect()
}

/// Until the layer's own reports are back.
fn settle(r: &mut Rig) {
    for _ in 0..20 {
        r.now.0 += 1;
        r.poll(0);
    }
}

fn auto(m: &mut Make) {
    m.config.zone_recovery = Some(ZoneRecovery::Auto);
}

fn client(m: &mut Make) {
    m.config.zone_recovery = Some(ZoneRecovery::Client);
}

/// What succeeds is no event, nor what is refused before a device sees it, nor what opening a disk did.
#[test]
fn t6_a_disk_without_a_failure_has_no_events() {
    let mut r = rig("read/io/skip=1", |_| ());
    r.run(0, [write(0, 8), append(0, 8, 0), read(0, 8), op(Op::Flush, 0, 0)]);
    r.run(0, [op(Op::ZoneReset, 0, 64), op(Op::ZoneFinish, 64, 64), report(0, 8)]);
    assert_eq!(r.run(0, [write(128 + 8, 8)]), [Status::NotAtWritePointer]);
    assert_eq!(seen(&r.disk, 0), []);
}

/// A failed write says how many it took with it. The zone is stale until its client reports, resets or finishes it.
#[test]
fn e1_a_failed_write_makes_its_zone_stale_until_the_client_acts() {
    for heal in [Op::ReportZones, Op::ZoneReset, Op::ZoneResetAll, Op::ZoneFinish] {
        let mut r = rig("write/io/zone=2", client);
        let bios = [write(128, 8), write(136, 8), write(144, 8)].map(|b| flags(b, Flags::NOMERGE));
        r.run(0, bios);
        let failed = (Kind::Failed, Some(Op::Write), Status::Io, Some(2), 128, 1, 2);
        let stale = (Kind::Stale, None, Status::Io, Some(2), 128, 1, 0);
        assert_eq!(seen(&r.disk, 0), [failed, stale]);
        let bio = match heal {
            Op::ReportZones => report(128, 1),
            Op::ZoneResetAll => op(heal, 0, 0),
            _ => op(heal, 128, 64),
        };
        // Another zone's reset does not heal it.
        r.run(0, [op(Op::ZoneReset, 0, 64)]);
        assert_eq!(seen(&r.disk, 2), []);
        assert_eq!(r.run(0, [bio]), [Status::Ok]);
        let recovered = (Kind::Recovered, None, Status::Ok, Some(2), 128, 1, 0);
        assert_eq!(seen(&r.disk, 2), [recovered], "{heal:?}");
        r.run(0, [op(Op::ZoneReset, 128, 64)]);
        assert_eq!(seen(&r.disk, 3), [], "it is told once");
    }
}

/// E12: where the layer asks the device by itself, the zone is never told stale, unless the answer fails.
#[test]
fn e12_the_layers_own_recovery_is_told_too() {
    let mut r = rig("write/io/zone=1", auto);
    r.run(0, [write(64, 8)]);
    let failed = (Kind::Failed, Some(Op::Write), Status::Io, Some(1), 64, 1, 0);
    let recovered = (Kind::Recovered, None, Status::Ok, Some(1), 64, 1, 0);
    settle(&mut r);
    assert_eq!(seen(&r.disk, 0), [failed, recovered]);
    // The report fails too.
    let mut r = rig("write/io/zone=1+report/io/skip=1", auto);
    r.run(0, [write(64, 8)]);
    settle(&mut r);
    let report = (Kind::Failed, Some(Op::ReportZones), Status::Io, Some(1), 64, 1, 0);
    let stale = (Kind::Stale, None, Status::Io, Some(1), 64, 1, 0);
    assert_eq!(seen(&r.disk, 0), [failed, report, stale]);
}

/// E12: less data than was acknowledged is told as such.
#[test]
fn e12_missing_data_are_told() {
    let mut r = rig("write/io/zone=1/skip=1", auto);
    r.run(0, [write(64, 8)]);
    // Something else has reset the zone.
    let other = open(r.dev.clone(), DiskConfig::default());
    let queues = vec![other.open_polled_queue(1, 1).unwrap()];
    let mut outside = Rig { dev: r.dev.clone(), disk: other, queues, now: Nanos(0), done: vec![] };
    assert_eq!(outside.run(0, [op(Op::ZoneReset, 64, 64)]), [Status::Ok]);
    r.run(0, [write(72, 8)]);
    settle(&mut r);
    let kinds: Vec<_> = seen(&r.disk, 0).iter().map(|e| (e.0, e.2, e.3)).collect();
    assert_eq!(
        kinds,
        [(Kind::Failed, Status::Io, Some(1)), (Kind::DataMissing, Status::Io, Some(1))]
    );
    r.run(0, [report(64, 1)]);
    assert_eq!(seen(&r.disk, 2)[0].0, Kind::Recovered);
}

/// A limit, a deadline, an answer that comes late, and a device that is gone.
#[test]
fn t6_failures_of_every_kind_are_told() {
    let mut r = rig("read/delay=5ms/count=1+write/active-limit/zone=3+flush/gone", client);
    assert_eq!(r.run(0, [read(200, 8)]), [Status::Timeout]);
    r.now = Nanos(6_000_000);
    r.poll(0);
    r.run(0, [write(192, 8)]);
    r.run(0, [op(Op::Flush, 0, 0)]);
    r.run(0, [read(0, 8), read(8, 8)]);
    assert_eq!(
        seen(&r.disk, 0),
        [
            (Kind::Failed, Some(Op::Read), Status::Timeout, Some(3), 200, 1, 0),
            (Kind::LateBack, Some(Op::Read), Status::Ok, None, 200, 1, 0),
            (Kind::Failed, Some(Op::Write), Status::ActiveLimit, Some(3), 192, 1, 0),
            (Kind::Failed, Some(Op::Flush), Status::NoDevice, None, 0, 1, 0),
            (Kind::Failed, Some(Op::Read), Status::NoDevice, Some(0), 0, 2, 0),
        ]
    );
}

/// A reset with an unknown outcome: no write of the zone was in flight, and its write pointer is unknown.
#[test]
fn t6_a_reset_in_doubt_makes_its_zone_stale() {
    let mut r = rig("reset/lost", client);
    r.run(0, [write(64, 8)]);
    assert_eq!(r.run(0, [op(Op::ZoneReset, 64, 64)]), [Status::Timeout]);
    let kinds: Vec<_> = seen(&r.disk, 0).iter().map(|e| (e.0, e.1, e.2, e.3)).collect();
    assert_eq!(
        kinds,
        [
            (Kind::Failed, Some(Op::ZoneReset), Status::Timeout, Some(1)),
            (Kind::Stale, None, Status::Timeout, Some(1)),
        ]
    );
}

/// A revalidation reads all write pointers, so no zone has to recover any more.
#[test]
fn t6_a_revalidation_is_told_once() {
    let mut r = rig("write/io/zone=2", client);
    r.run(0, [write(128, 8)]);
    let mut revalidation = r.disk.revalidate();
    let mut now = 0;
    while revalidation.poll(&mut r.queues[0], Nanos(now)).is_none() {
        now += 1;
    }
    assert_eq!(seen(&r.disk, 2), [(Kind::Revalidated, None, Status::Ok, None, 0, 1, 0)]);
    r.run(0, [op(Op::ZoneReset, 128, 64)]);
    assert_eq!(seen(&r.disk, 3), []);
}

/// With several writes of a zone in flight, the first failure asks for the write pointer and the others follow it.
#[test]
fn t6_several_writes_in_flight_fail_as_one_and_recover() {
    let mut r = rig("write/io/zone=1/skip=1", |m| {
        m.emu.limits.keeps_write_order = true;
        m.config.zone_write_depth = 4;
    });
    let bios = [64, 72, 80, 88].map(|at| flags(write(at, 8), Flags::NOMERGE));
    r.run(0, bios);
    settle(&mut r);
    let all = seen(&r.disk, 0);
    let kinds: Vec<_> = all.iter().map(|e| (e.0, e.2, e.3)).collect();
    assert_eq!(kinds[0], (Kind::Failed, Status::Io, Some(1)), "{all:?}");
    assert_eq!(kinds.last().unwrap(), &(Kind::Recovered, Status::Ok, Some(1)), "{all:?}");
    assert!(kinds.iter().all(|k| k.0 != Kind::Stale), "{all:?}");
}

#[derive(Debug, Default)]
struct Count(AtomicU32);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A waker is called once, at the next event; the sequence shows what a reader has missed.
#[test]
fn t6_a_waker_is_called_once_and_what_is_missed_shows() {
    let mut r = rig("read/io/count=all", |_| ());
    let count = Arc::new(Count::default());
    r.disk.wake_at_event(&Waker::from(count.clone()));
    r.run(0, [write(0, 8)]);
    assert_eq!(count.0.load(Ordering::Relaxed), 0);
    r.run(0, [read(0, 8)]);
    r.run(0, [read(64, 8)]);
    assert_eq!(count.0.load(Ordering::Relaxed), 1);
    r.disk.wake_at_event(&Waker::from(count.clone()));
    for i in 0..EVENTS_KEPT as u64 {
        r.run(0, [read(i % 2 * 64, 8)]);
    }
    assert_eq!(count.0.load(Ordering::Relaxed), 2);
    let all = events(&r.disk, 2);
    assert_eq!((all.len(), all[0].sequence), (EVENTS_KEPT, 3));
    r.run(0, [read(0, 8)]);
    let all = events(&r.disk, 2);
    assert_eq!((all.len(), all[0].sequence), (EVENTS_KEPT, 4), "the oldest is gone");
    let mut some = Vec::new();
    r.disk.events(10, 3, &mut some);
    assert_eq!(some.iter().map(|e| e.sequence).collect::<Vec<_>>(), [11, 12, 13]);
    assert_eq!(some[0].sector, Sector(u64::from(some[0].zone.unwrap_or(ZoneNo(9)).0) * 64));
}

/// Without plugs no write pointer is kept, so no zone is stale.
#[test]
fn t6_without_plugs_only_failures_are_told() {
    let mut r = rig("write/io", |m| m.config.mode = Mode::None);
    r.run(0, [write(0, 8)]);
    assert_eq!(seen(&r.disk, 0), [(Kind::Failed, Some(Op::Write), Status::Io, Some(0), 0, 1, 0)]);
}
