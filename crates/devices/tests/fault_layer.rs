//! What the fault injector does, seen from above and below.

#[path = "../../core/tests/common/mod.rs"]
mod common;

use common::*;
use std::sync::Arc;
use zoneplug_core::disk::DiskConfig;
use zoneplug_core::zone::Condition;
use zoneplug_core::{Bios, Device, Flags, Op, Sector, Status, ZoneNo};
use zoneplug_devices::emu::EmuDisk;
use zoneplug_devices::stack::FaultDisk;

/// A disk with memory, faults above it, the layer above both.
fn rig(plan: &str) -> (Rig, Arc<FaultDisk>) {
    let make = make(8, 64, 64).queues(&[(64, 8), (64, 8)]);
    let dev = EmuDisk::new(make.emu).expect("a device");
    let fault = FaultDisk::new(dev.clone(), &plan.parse().expect("a plan")).expect("a layer");
    let disk = open(fault.clone(), DiskConfig::default());
    let queues = make.queues.iter().map(|&(d, t)| disk.open_polled_queue(d, t).expect("a queue"));
    let queues = queues.collect();
    (Rig { dev, disk, queues, now: zoneplug_core::Nanos(0), done: Vec::new() }, fault)
}

#[test]
fn a_rule_hits_by_operation_zone_range_skip_and_count() {
    let (mut r, f) =
        rig("write/medium/zone=1/skip=1/count=2+read/io/from=64K/to=96K+any/busy/count=5");
    assert_eq!(r.run(0, [write(0, 8)]), [Status::Ok]);
    assert_eq!(f.counts().busy, 5);
    assert_eq!(r.run(0, [write(64, 8)]), [Status::Ok], "the first goes unharmed");
    assert_eq!(r.run(0, [write(72, 8)]), [Status::Medium]);
    assert_eq!(r.report(64, 1)[0].wp, Sector(72));
    assert_eq!(r.run(0, [write(72, 8)]), [Status::Medium]);
    r.report(64, 1);
    assert_eq!(r.run(0, [write(72, 8)]), [Status::Ok], "twice is what was asked for");
    assert_eq!(r.run(0, [read(120, 8)]), [Status::Ok]);
    assert_eq!(r.run(0, [read(124, 8)]), [Status::Io], "it touches the range");
    assert_eq!(r.run(0, [read(124, 8)]), [Status::Ok]);
}

/// E8: the device took a part; only a report says how much.
#[test]
fn a_torn_write_leaves_its_first_sectors() {
    let (mut r, f) = rig("write/torn=2K+read/short=512");
    assert_eq!(r.run(0, [write(0, 8)]), [Status::Io]);
    assert_eq!(r.device_wp(0), 4);
    assert!(r.cached(0).is_none(), "the write pointer is unknown");
    r.report(0, 1);
    assert_eq!(r.run(0, [write(4, 4)]), [Status::Ok]);
    assert_eq!(r.medium(0, 8), [0, 1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(r.run(0, [read(0, 4)]), [Status::ShortTransfer]);
    assert_eq!(f.counts().torn, 2);
}

#[test]
fn a_delay_keeps_the_zone_waiting_and_loses_nothing() {
    let (mut r, _) = rig("write/delay=5ms");
    assert_eq!(r.run(0, [write(0, 8), write(8, 8), write(64, 8)]), [Status::Ok; 3]);
    assert!(r.now.0 >= 5_000_000);
    assert_eq!(r.device_wp(0), 16);
}

#[test]
fn zones_die_as_a_report_says() {
    let (mut r, f) = rig("write/readonly/zone=0/skip=1");
    assert_eq!(r.run(0, [write(0, 8)]), [Status::Ok]);
    assert_eq!(r.run(0, [write(8, 8)]), [Status::ZoneReadOnly]);
    assert_eq!(r.run(0, [read(0, 8)]), [Status::Ok]);
    assert_eq!(r.run(0, [op(Op::ZoneReset, 0, 64)]), [Status::InvalidTransition]);
    f.kill_zone(ZoneNo(1), Condition::Offline);
    assert_eq!(r.run(0, [read(64, 8)]), [Status::ZoneOffline]);
    let zones = r.report(0, 2);
    assert_eq!([zones[0].cond, zones[1].cond], [Condition::ReadOnly, Condition::Offline]);
    assert_eq!(r.run(0, [write(64, 8)]), [Status::ZoneOffline]);
    assert_eq!(r.run(0, [write(128, 8)]), [Status::Ok], "its neighbours do not notice");
}

/// Everything completes with an error, nothing hangs.
/// R17.
#[test]
fn a_device_that_vanishes_under_load_ends_everything() {
    let (mut r, f) = rig("write/gone/skip=5");
    for q in 0..2 {
        r.submit(
            q,
            (0..8)
                .map(|i| flags(write((q as u64 * 4 + i % 4) * 64 + i / 4 * 8, 8), Flags::NOMERGE)),
        );
    }
    r.submit(0, [read(0, 8), op(Op::Flush, 0, 0)]);
    let statuses: Vec<_> = r.finish().iter().map(|b| b.status).collect();
    assert_eq!(statuses.len(), 18);
    assert!(statuses.contains(&Status::NoDevice));
    assert!(f.counts().gone);
    assert_eq!(r.run(1, [read(0, 8), report(0, 1)]), [Status::NoDevice; 2]);
}

/// What a flush covers and what was written with FUA is there after a power cut; a write pointer covers data only.
#[test]
fn a_power_cut_takes_what_was_not_flushed() {
    let mut lost = 0;
    for seed in 0..64 {
        let (mut r, f) = rig(&format!("seed={seed}"));
        f.watch_cache().expect("a report");
        assert_eq!(r.run(0, [write(0, 8), write(64, 8)]), [Status::Ok; 2]);
        assert_eq!(r.run(0, [op(Op::Flush, 0, 0)]), [Status::Ok]);
        assert_eq!(
            r.run(0, [write(8, 8), flags(write(72, 8), Flags::FUA), write(80, 8)]),
            [Status::Ok; 3]
        );
        assert_eq!(
            r.run(0, [op(Op::ZoneOpen, 128, 64), op(Op::ZoneReset, 192, 64)]),
            [Status::Ok; 2]
        );
        f.power_cut().expect("the power comes back");
        for (zone, low) in [(0, 8), (1, 16)] {
            let wp = r.device_wp(zone);
            assert!((low..=24).contains(&wp), "zone {zone}: {wp}");
            let expected: Vec<_> = (0..wp).map(|i| u64::from(zone) * 64 + i).collect();
            assert_eq!(r.medium(u64::from(zone) * 64, wp as u32), expected);
            lost += u64::from(wp < low + 8);
        }
        assert!(!r.dev.zone_info(ZoneNo(2)).cond.is_open(), "explicit opens end with the power");
    }
    assert!(lost > 20, "cuts take something: {lost}");
}

/// R17.
#[test]
fn a_power_cut_ends_what_is_in_flight() {
    let (mut r, f) = rig("writes/cut/skip=3");
    let mut list =
        Bios::from([write(0, 8), write(64, 8), write(128, 8), write(192, 8), write(8, 8)]);
    assert_eq!(r.queues[0].submit(r.now, &mut list), 5);
    let statuses: Vec<_> = r.finish().iter().map(|b| b.status).collect();
    assert_eq!(statuses.iter().filter(|s| **s == Status::NoDevice).count(), 4);
    assert!(statuses.contains(&Status::AbortedBehind));
    assert_eq!(f.counts().cuts, 1);
    // The device is back.
    let wp = r.report(0, 1)[0].wp;
    assert_eq!(r.run(0, [write(wp.0, 8)]), [Status::Ok]);
    assert!(f.limits() == r.dev.limits());
}

/// A finish that was in flight at the power cut has happened or has not. It leaves no write pointer behind sectors that
/// were never written.
#[test]
fn a_power_cut_takes_a_finish_as_a_whole() {
    let (mut full, mut not) = (0, 0);
    for seed in 0..64 {
        let (mut r, f) = rig(&format!("seed={seed}"));
        f.watch_cache().expect("a report");
        assert_eq!(r.run(0, [write(0, 8)]), [Status::Ok]);
        r.submit(0, [op(Op::ZoneFinish, 0, 64)]);
        f.power_cut().expect("the power comes back");
        assert_eq!(r.finish()[0].status, Status::NoDevice);
        let info = r.dev.zone_info(ZoneNo(0));
        if info.cond == Condition::Full {
            full += 1;
        } else {
            not += 1;
            assert!(info.wp.0 <= 8, "nobody wrote up to {}", info.wp);
        }
        r.report(0, 1);
    }
    assert!(full > 5 && not > 5, "{full} {not}");
}
