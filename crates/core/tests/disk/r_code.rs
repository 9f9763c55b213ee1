//! CODE-1 to CODE-4: hazards found by reading the original, and that this layer does not have them.

use crate::common::*;
use std::sync::Arc;
use zoneplug_core::{Bios, Flags, Nanos, Op, Status};
use zoneplug_devices::emu::EmuDisk;
use zoneplug_devices::stack::{FaultAction, FaultDisk, FaultRule, OpSet};

fn rig() -> (Rig, Arc<FaultDisk>) {
    let make = make(8, 64, 64).queues(&[(64, 2), (64, 2)]);
    let config = make.config.clone();
    let dev = EmuDisk::new(make.emu).expect("a device");
    let plan = "seed=1".parse().expect("a plan");
    let fault = FaultDisk::new(dev.clone(), &plan).expect("a layer");
    let disk = open(fault.clone(), config);
    let queues = make.queues.iter().map(|&(d, t)| disk.open_polled_queue(d, t).expect("a queue"));
    let queues = queues.collect();
    (Rig { dev, disk, queues, now: Nanos(0), done: Vec::new() }, fault)
}

/// CODE-1 (W21): whatever ends a write between its reservation and the medium, its zone goes on.
/// R15.
#[test]
fn code1_a_write_that_ends_anywhere_after_its_reservation_stalls_no_zone() {
    for status in Status::all().filter(|s| !s.is_ok() && *s != Status::Busy) {
        for skip in 0..4 {
            let (mut r, fault) = rig();
            let mut rule = FaultRule::next(OpSet::WRITES, FaultAction::Fail(status));
            rule.skip = skip;
            fault.add(rule);
            let bios = (0..4).map(|i| flags(token(write(i * 8, 8), i), Flags::NOMERGE));
            let statuses = r.run(0, bios);
            assert_eq!(statuses[skip as usize], status, "{statuses:?}");
            assert!(statuses[skip as usize + 1..].iter().all(|s| *s == Status::AbortedBehind));
            // A zone that the device calls read-only or offline comes back with a report, as any other.
            let wp = r.report(0, 1)[0].wp.0;
            assert_eq!((wp, r.wp(0)), (skip * 8, skip * 8));
            assert_eq!(r.run(1, [write(wp, 8)]), [Status::Ok], "{status}");
        }
    }
}

/// CODE-2 (E6): a report that the device answered before a write failed does not bring the old write pointer back.
/// R14.
#[test]
fn code2_a_report_from_before_the_error_is_not_believed() {
    let (mut r, fault) = rig();
    assert_eq!(r.run(0, [write(0, 8)]), [Status::Ok]);
    let mut late =
        FaultRule::next(OpSet::of(&[Op::ReportZones]), FaultAction::Delay(Nanos(50_000)));
    late.zone = Some(0);
    fault.add(late);
    r.submit(1, [report(0, 1)]);
    r.step();
    let torn = FaultAction::Torn(Status::Io, Some(4));
    fault.add(FaultRule::next(OpSet::of(&[Op::Write]), torn));
    r.submit(0, [write(8, 8)]);
    assert!(r.finish().iter().any(|b| b.status == Status::Io));
    assert!(r.cached(0).is_none(), "the answer was 8, and the device is at 12");
    assert_eq!(r.report(0, 1)[0].wp.0, 12);
    assert_eq!(r.run(0, [write(12, 8)]), [Status::Ok]);
}

/// CODE-3 (V9): a report from the middle of the disk corrects the zones that it names, not those at its places.
#[test]
fn code3_a_report_is_applied_by_the_starts_of_its_zones() {
    let (mut r, fault) = rig();
    assert_eq!(r.run(0, [write(0, 8), write(320, 24)]), [Status::Ok; 2]);
    for zone in [0, 5] {
        let mut rule = FaultRule::next(OpSet::of(&[Op::Write]), FaultAction::Fail(Status::Io));
        rule.zone = Some(zone);
        fault.add(rule);
    }
    assert_eq!(r.run(0, [write(8, 8), write(344, 8)]), [Status::Io; 2]);
    r.report(5 * 64, 2);
    assert_eq!(r.wp(5), 24);
    assert!(r.cached(0).is_none(), "zone 0 was not in the report");
    r.report(0, 1);
    assert_eq!(r.wp(0), 8);
}

/// CODE-4 (B32c): a client that resets and writes again from its completion, in every order of completions.
/// R4, R45.
#[test]
fn code4_reset_and_write_from_the_completion() {
    for delays in 0..8u64 {
        let (mut r, fault) = rig();
        let slow = |bit: u64| Nanos(1 + 700 * (delays >> bit & 1));
        for (bit, op) in [(0, Op::Write), (1, Op::ZoneReset), (2, Op::Write)] {
            fault.add(FaultRule::next(OpSet::of(&[op]), FaultAction::Delay(slow(bit))));
        }
        for round in 0..3 {
            let q = round % 2;
            let mut list = Bios::from([write(0, 8)]);
            r.queues[q].submit(r.now, &mut list);
            assert_eq!(r.finish().remove(0).status, Status::Ok);
            let mut list = Bios::from([op(Op::ZoneReset, 0, 64)]);
            r.queues[1 - q].submit(r.now, &mut list);
            assert_eq!(r.finish().remove(0).status, Status::Ok);
            assert_eq!(r.run(q, [write(0, 8), write(8, 8)]), [Status::Ok; 2], "{delays} {round}");
            assert_eq!(r.run(q, [op(Op::ZoneReset, 0, 64)]), [Status::Ok]);
        }
    }
}
