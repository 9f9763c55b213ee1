//! `zone_write_depth`: what it goes with, what refuses it, and how it changes. What it does is in `ordered/`.

use crate::common::*;
use zoneplug_core::disk::{Disk, DiskConfig, Mode};
use zoneplug_core::sched::Scheduler;
use zoneplug_core::{Error, ErrorKind, Status};
use zoneplug_devices::emu::EmuDisk;

/// An ordered disk of which `n` writes of a zone may be in flight.
fn rig(n: u16) -> Rig {
    let m = make(4, 64, 64).queues(&[(64, 16), (64, 16)]);
    let m = m.limits(|l| l.keeps_write_order = true);
    m.config(|c| (c.nomerges, c.zone_write_depth) = (true, n)).rig()
}

/// Q9: the attribute changes under load, at a moment when nothing is in flight.
#[test]
fn the_depth_changes_under_load() {
    let mut r = rig(1);
    let (mut at, mut done) = ([0u64; 4], 0);
    for round in 0..60 {
        let n = [1, 4, 2, 16, 3][round % 5];
        for (z, at) in at.iter_mut().enumerate() {
            let q = (round + z) % 2;
            if *at < 64 {
                r.submit(q, [write(z as u64 * 64 + *at, 1), append(z as u64 * 64, 1, 0)]);
                *at += 2;
            }
        }
        let mut change = r.disk.change_attribute("zone_write_depth", &n.to_string()).unwrap();
        let mut rounds = 0;
        while !change.poll() {
            r.step();
            rounds += 1;
            assert!(rounds < 100);
        }
        done += r.finish().len();
        assert_eq!(r.disk.attribute("zone_write_depth").unwrap(), n.to_string());
    }
    assert_eq!(done, 256);
    assert_eq!(r.dev.stats().failed(Status::UnalignedWrite), 0);
    assert_eq!(r.dev.stats().overlaps, 0);
}

/// What the attribute does not go with is named, both when it is set and when the other is.
/// Q9.
#[test]
fn the_depth_is_refused_by_name() {
    let refused = |e: Error, what: &str| {
        assert!(e.to_string().contains(what), "{e}");
        assert!(e.to_string().contains("zone_write_depth") && e.what_to_try().is_some());
    };
    let plain = make(4, 64, 64).rig();
    assert_eq!(plain.disk.attribute("zone_write_depth").unwrap(), "1");
    refused(plain.disk.set_attribute("zone_write_depth", "2").unwrap_err(), "does not declare");
    plain.disk.set_attribute("zone_write_depth", "1").unwrap();
    for value in ["0", "1025", "x"] {
        refused(plain.disk.set_attribute("zone_write_depth", value).unwrap_err(), value);
    }

    let r = rig(4);
    drop(r.queues);
    let d: &Disk = &r.disk;
    for (name, value) in [("scheduler", "mq-deadline"), ("zoned_qd1_writes", "1")] {
        refused(d.set_attribute(name, value).unwrap_err(), "does not go with");
        d.set_attribute("zone_write_depth", "1").unwrap();
        d.set_attribute(name, value).unwrap();
        let e = d.set_attribute("zone_write_depth", "4").unwrap_err();
        assert_eq!(e.kind(), ErrorKind::NotSupported);
        refused(e, if name == "scheduler" { "scheduler" } else { "single writer" });
        d.set_attribute(name, if name == "scheduler" { "none" } else { "0" }).unwrap();
        d.set_attribute("zone_write_depth", "4").unwrap();
    }
    // When the disk is opened too.
    let dev = EmuDisk::new(make(4, 64, 64).limits(|l| l.keeps_write_order = true).emu).unwrap();
    for f in [
        |c: &mut DiskConfig| c.mode = Mode::Lock,
        |c: &mut DiskConfig| c.scheduler = Scheduler::Shuffle(1),
        |c: &mut DiskConfig| c.zoned_qd1_writes = Some(true),
    ] {
        let mut config = DiskConfig { zone_write_depth: 2, ..Default::default() };
        f(&mut config);
        refused(try_open(dev.clone(), config).unwrap_err(), "does not go with");
    }
}

/// Of two changes under way that contradict each other the second one is refused, and the first takes effect. What does
/// not contradict it is not refused (Q9).
#[test]
fn of_two_changes_that_contradict_each_other_the_second_is_refused() {
    for (first, second) in [
        (("zone_write_depth", "4"), ("scheduler", "mq-deadline")),
        (("scheduler", "mq-deadline"), ("zone_write_depth", "4")),
        (("zoned_qd1_writes", "1"), ("zone_write_depth", "4")),
        (("scheduler", "mq-deadline"), ("scheduler", "shuffle")),
    ] {
        let mut r = rig(1);
        let mut change = r.disk.change_attribute(first.0, first.1).unwrap();
        let e = r.disk.change_attribute(second.0, second.1).unwrap_err();
        let what = format!("{}={} does not go with", second.0, second.1);
        assert!(e.what().starts_with(&what), "{e}");
        assert_eq!(e.kind(), ErrorKind::Busy);
        let other = format!("{}={}, which is being set", first.0, first.1);
        assert!(e.what().ends_with(&other) && e.what_to_try().is_some(), "{e}");
        let mut same = r.disk.change_attribute(first.0, first.1).unwrap();
        let mut other = r.disk.change_attribute("zone_recovery", "client").unwrap();
        for _ in 0..10 {
            r.step();
            if change.poll() & same.poll() & other.poll() {
                break;
            }
        }
        assert!(change.poll() && same.poll() && other.poll());
        assert_eq!(r.disk.attribute(first.0).unwrap(), first.1);
        assert_eq!(r.run(0, (0..8).map(|i| write(4 * i, 4))), [Status::Ok; 8]);
    }
}

/// A change that was dropped contradicts nothing any more.
#[test]
fn a_dropped_change_contradicts_nothing() {
    let r = rig(1);
    drop(r.disk.change_attribute("zone_write_depth", "4").unwrap());
    drop(r.disk.change_attribute("scheduler", "mq-deadline").unwrap());
    drop(r.disk.change_attribute("zone_write_depth", "4").unwrap());
}
