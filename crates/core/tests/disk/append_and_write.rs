//! A7, E6, M5: native appends and writes in one zone.

use crate::common::*;
use zoneplug_core::disk::{DiskConfig, DiskQueue, ZoneRecovery};
use zoneplug_core::zone::Condition;
use zoneplug_core::{Bio, Bios, Flags, Nanos, Op, Sector, Status, ZoneNo};
use zoneplug_devices::emu::{EmuDisk, Fault};
use zoneplug_devices::stack::FaultDisk;

/// A device with native append, and two queues.
fn native() -> Make {
    make(4, 64, 64).limits(|l| l.zone_append_max_sectors = 16).queues(&[(32, 8), (32, 8)])
}

/// Polls queue `q` alone until one more BIO has come back, and returns it.
fn next_of(r: &mut Rig, q: usize) -> Box<Bio> {
    for _ in 0..16 {
        r.poll(q);
        if let Some(bio) = r.done.pop() {
            return bio;
        }
        r.now = r.queues[q].next_deadline().unwrap_or(r.now).max(r.now);
    }
    panic!("queue {q} hangs: {:?}", r.queues);
}

/// A7: an append says where it landed, and a write at its end is taken, with either way to recover.
#[test]
fn a7_a_write_follows_an_append_at_the_returned_end() {
    for recovery in ZoneRecovery::ALL {
        let mut r = native().config(|c| c.zone_recovery = Some(recovery)).rig();
        let b = r.one(append(64, 8, 0));
        assert_eq!((b.status, b.sector.0), (Status::Ok, 64));
        assert_eq!(r.status(write(72, 8)), Status::Ok);
        assert_eq!(r.one(append(64, 4, 0)).sector.0, 80);
        assert_eq!(r.status(write(80, 4)), Status::NotAtWritePointer);
        assert_eq!(r.status(write(84, 44)), Status::Ok);
        assert_eq!(r.status(write(127, 1)), Status::ZoneFull);
        assert_eq!(
            (r.device_wp(1), r.commands(Op::ReportZones)),
            (64, 1),
            "only that of the opening"
        );
    }
}

/// A7: while an append is on its way nothing is known. The last one that comes back tells, in whatever order they do.
#[test]
fn a7_appends_of_several_queues_come_back_in_any_order() {
    for first in [0, 1] {
        let mut r = native().rig();
        assert_eq!(r.status(write(0, 4)), Status::Ok);
        r.submit(0, [append(0, 8, 100)]);
        r.submit(1, [append(0, 2, 200)]);
        let one = next_of(&mut r, first);
        assert_eq!(r.status_of(1 - first, one.end().expect("an end").0), Status::StaleWritePointer);
        let other = next_of(&mut r, 1 - first);
        let mut ends = [one.end(), other.end()].map(|e| e.expect("an end").0);
        ends.sort_unstable();
        assert_eq!(ends[1], 14);
        assert_eq!(r.status(write(14, 2)), Status::Ok);
        assert_eq!(r.device_wp(0), 16);
    }
}

/// A7: an append aborts the writes that wait and leaves the one in flight. When both have ended, in either order, the
/// write pointer is behind the append.
#[test]
fn a7_an_append_behind_a_write_in_flight() {
    for first in [0, 1] {
        let mut r = native().rig();
        r.submit(0, [token(write(0, 8), 0), token(write(8, 8), 1)]);
        r.submit(0, [token(flags(write(16, 8), Flags::PREFLUSH), 2)]);
        r.submit(1, [append(0, 4, 100)]);
        if first == 1 {
            let b = next_of(&mut r, 1);
            assert_eq!((b.status, b.sector.0), (Status::Ok, 16));
        }
        let s: Vec<_> = r.finish().iter().map(|b| b.status).collect();
        assert_eq!(s[s.len() - 1], Status::AbortedBehind, "{s:?}");
        assert_eq!(r.status(write(16, 8)), Status::NotAtWritePointer);
        assert_eq!(r.status(write(20, 8)), Status::Ok);
        assert_eq!(r.device_wp(0), 28);
    }
}

/// A7, E1, E3: an append that provably wrote nothing changes nothing. After one that may have written something, and
/// in a zone that a write has made stale, only a report tells.
#[test]
fn a7_a_failed_append_leaves_what_is_known_or_a_stale_zone() {
    let mut r = native().rig();
    assert_eq!(r.one(append(0, 8, 0)).sector.0, 0);
    r.fail(Op::ZoneAppend, Status::OpenLimit);
    assert_eq!(r.status(append(0, 8, 0)), Status::OpenLimit);
    assert_eq!(r.status(write(8, 8)), Status::Ok);
    r.dev.fail_next(Fault { torn_sectors: Some(8), ..Fault::next(Op::ZoneAppend, Status::Io) });
    assert_eq!(r.status(append(0, 8, 0)), Status::Io);
    assert_eq!(r.status(write(24, 8)), Status::StaleWritePointer);
    // An append that succeeds does not take that back.
    assert_eq!(r.one(append(0, 8, 0)).sector.0, 24);
    assert_eq!(r.status(write(32, 8)), Status::StaleWritePointer);
    r.report(0, 1);
    assert_eq!(r.status(write(32, 8)), Status::Ok);
    // Nor in a zone whose write has failed, before the append or beside it, even if all of it is on the medium (E1).
    for beside in [false, true] {
        let mut r = native().rig();
        r.dev.fail_next(Fault { torn_sectors: Some(8), ..Fault::next(Op::Write, Status::Io) });
        r.submit(0, [write(0, 8)]);
        if !beside {
            r.drain();
        }
        r.submit(0, [append(0, 8, 0)]);
        r.drain();
        assert_eq!(r.device_wp(0), 16);
        assert_eq!(r.status_of(0, 16), Status::StaleWritePointer, "{beside}");
        r.done.clear();
        r.report(0, 1);
        assert_eq!(r.status(write(16, 8)), Status::Ok);
    }
}

/// A7, E1, E10: if an append is not where the layer expects it, something else has written, or a write has not landed.
#[test]
fn a7_an_append_elsewhere_than_expected_leaves_a_stale_zone() {
    let mut r = native().config(|c| c.zone_recovery = Some(ZoneRecovery::Auto)).rig();
    // Something else writes where the layer believes the zone to be empty.
    r.dev.set_write_pointer(ZoneNo(0), 4);
    assert_eq!(r.one(append(0, 8, 0)).sector.0, 4);
    assert_eq!(
        r.status(write(12, 4)),
        Status::StaleWritePointer,
        "the append is not where it had to be"
    );
    r.report(0, 1);
    assert_eq!(r.status(write(12, 4)), Status::Ok);
    // The device fails the write without carrying it out, so the append lands in its place.
    r.fail(Op::Write, Status::UnalignedWrite);
    r.submit(0, [token(write(16, 8), 0), token(append(0, 8, 0), 1)]);
    assert_eq!(r.finish()[1].sector.0, 16);
    assert_eq!(r.status(write(24, 8)), Status::StaleWritePointer);
}

/// A7, M3, M4: a reset or finish while an append is on its way leaves a stale zone; one before or after it does not.
#[test]
fn a7_a_reset_or_finish_beside_an_append() {
    for what in [Op::ZoneReset, Op::ZoneFinish] {
        for first in [0, 1] {
            let mut r = native().rig();
            assert_eq!(r.one(append(0, 8, 0)).sector.0, 0);
            r.submit(0, [append(0, 8, 0)]);
            r.submit(1, [op(what, 0, 64)]);
            let _ = next_of(&mut r, first);
            r.drain();
            r.done.clear();
            // Whether the append landed before the reset or after it is unknown.
            let status = r.status(write(16, 8));
            let refused = [Status::StaleWritePointer, Status::NotAtWritePointer, Status::ZoneFull];
            assert!(refused.contains(&status), "{what:?}, {first}: {status}");
            assert_eq!(
                r.commands(Op::Write),
                0,
                "no device sees a write at a place that is not known"
            );
            assert_eq!(r.status(op(Op::ZoneReset, 0, 64)), Status::Ok);
            assert_eq!(r.one(append(0, 8, 0)).sector.0, 0);
            assert_eq!(r.status(write(8, 8)), Status::Ok, "{what:?}, {first}");
        }
    }
}

/// E6: a report that comes back while an append is on its way does not say where the write pointer is after it.
/// A resync says *zone busy* (E10).
#[test]
fn e6_a_report_beside_an_append_is_not_believed() {
    for resync in [false, true] {
        let mut r = native().rig();
        assert_eq!(r.status(write(0, 8)), Status::Ok);
        r.submit(0, [append(0, 8, 0)]);
        let flag = if resync { Flags::RESYNC } else { Flags::NONE };
        r.submit(1, [flags(report(0, 1), flag)]);
        let said = next_of(&mut r, 1).status;
        assert_eq!(said, if resync { Status::ZoneBusy } else { Status::Ok });
        assert_eq!(r.status_of(1, 8), Status::StaleWritePointer);
        assert_eq!(r.status_of(1, 16), Status::StaleWritePointer);
        assert_eq!(next_of(&mut r, 0).sector, Sector(8));
        assert_eq!(r.status(write(16, 8)), Status::Ok);
    }
}

/// E6: a report that the device has carried out before a write of the zone does not say where the write pointer is,
/// whichever of the two comes back first. The zone is stale because of an append or a reset with an unknown outcome.
#[test]
fn e6_a_report_beside_a_write_is_not_believed() {
    for (what, first) in [Op::ZoneAppend, Op::ZoneReset].map(|op| [(op, 0), (op, 1)]).concat() {
        let mut r = native().rig();
        // The device is busy when the write comes, so it carries the write out after the report.
        r.fail(Op::Write, Status::Busy);
        r.submit(0, [write(0, 8)]);
        r.dev.fail_next(Fault { torn_sectors: Some(0), ..Fault::next(what, Status::Timeout) });
        let unknown = if what == Op::ZoneAppend { append(0, 4, 0) } else { op(what, 0, 64) };
        r.submit(1, [unknown]);
        assert_eq!(next_of(&mut r, 1).status, Status::Timeout);
        r.submit(1, [report(0, 1)]);
        let ended = next_of(&mut r, first).status;
        assert_eq!(ended, Status::Ok, "{what:?}, {first}");
        r.drain();
        r.done.clear();
        assert_eq!(r.device_wp(0), 8);
        assert_eq!(r.status(write(8, 8)), Status::StaleWritePointer, "{what:?}, {first}");
        r.report(0, 1);
        assert_eq!(r.status(write(8, 8)), Status::Ok, "{what:?}, {first}");
    }
}

/// E6: a report that brings a read-only zone back, from before a write of the zone, does not say where the write pointer is.
#[test]
fn e6_a_report_from_before_a_write_does_not_bring_a_zone_back() {
    for (stale, first) in [(false, 0), (false, 1), (true, 0), (true, 1)] {
        let mut r = native().rig();
        // The device is busy when the write comes, so it carries the write out after the reports.
        r.fail(Op::Write, Status::Busy);
        r.submit(0, [write(0, 8)]);
        if stale {
            let f = Fault::next(Op::ZoneAppend, Status::Timeout);
            r.dev.fail_next(Fault { torn_sectors: Some(0), ..f });
            r.submit(1, [append(0, 4, 0)]);
            assert_eq!(next_of(&mut r, 1).status, Status::Timeout);
        }
        r.dev.set_condition(ZoneNo(0), Condition::ReadOnly);
        r.submit(1, [report(0, 1)]);
        assert_eq!(next_of(&mut r, 1).status, Status::Ok);
        r.dev.set_condition(ZoneNo(0), Condition::Empty);
        r.submit(1, [report(0, 1)]);
        assert_eq!(next_of(&mut r, first).status, Status::Ok);
        r.drain();
        r.done.clear();
        assert_eq!(r.device_wp(0), 8);
        let said = r.status(write(8, 8));
        assert!(
            [Status::ZoneReadOnly, Status::StaleWritePointer].contains(&said),
            "{stale}, {first}: {said}"
        );
        r.report(0, 1);
        assert_eq!(r.status(write(8, 8)), Status::Ok);
    }
}

/// E6: a report from before a zone went read-only does not bring it back, and does not say where the write pointer is.
#[test]
fn e6_a_report_from_before_a_zone_went_read_only_does_not_bring_it_back() {
    for depth in [1, 2] {
        let mut m = native().limits(|l| l.keeps_write_order = true);
        m.config.zone_write_depth = depth;
        let mut r = m.rig();
        // The device answers at once, and its answer waits.
        r.submit(1, [report(0, 1)]);
        r.submit(0, [write(0, 8)]);
        assert_eq!(next_of(&mut r, 0).status, Status::Ok);
        r.dev.set_condition(ZoneNo(0), Condition::ReadOnly);
        r.submit(0, [report(0, 1)]);
        assert_eq!(next_of(&mut r, 0).status, Status::Ok);
        assert_eq!(r.cached(0).map(|c| c.0), Some(Condition::ReadOnly));
        assert_eq!(next_of(&mut r, 1).status, Status::Ok);
        assert_eq!(r.cached(0).map(|c| c.0), Some(Condition::ReadOnly));
        r.dev.set_condition(ZoneNo(0), Condition::Closed);
        assert_eq!(r.device_wp(0), 8);
        r.report(0, 1);
        assert_eq!(r.status(write(8, 8)), Status::Ok);
    }
}

/// Calls the third queue in another thread, and goes on as soon as that has begun an error epoch. The disk has so many zones
/// that the other thread has not come to the last one yet.
fn beside(call: fn(&mut DiskQueue, Nanos), r: &mut Rig, meanwhile: impl FnOnce(&mut Rig)) {
    let (mut third, before, now) = (r.queues.remove(2), r.disk.error_epoch(), r.now);
    std::thread::scope(|s| {
        let other = s.spawn(move || {
            call(&mut third, now);
            third
        });
        while r.disk.error_epoch() == before {
            std::hint::spin_loop();
        }
        meanwhile(r);
        r.queues.push(other.join().expect("the other thread"));
    });
}

const MANY: u32 = 400_000;
const LAST: u64 = 64 * (MANY as u64 - 1);

/// E6: a report that is sent while a reset of all zones with an unknown outcome is noted, and that the device carries out
/// before a write of the zone.
#[test]
fn e6_a_report_while_a_reset_in_doubt_is_noted() {
    let mut r = make(MANY.into(), 64, 64).queues(&[(8, 8), (8, 8), (8, 8)]).rig();
    r.fail(Op::Write, Status::Busy);
    r.submit(0, [write(LAST, 8)]);
    r.fail(Op::ZoneResetAll, Status::Timeout);
    r.submit(2, [op(Op::ZoneResetAll, 0, 0)]);
    r.now.0 += 100;
    let polls = |q: &mut DiskQueue, now| q.poll(now, &mut Bios::new());
    beside(polls, &mut r, |r| {
        r.submit(1, [report(LAST, 1)]);
        assert_eq!(next_of(r, 0).status, Status::Ok);
    });
    assert_eq!(next_of(&mut r, 1).status, Status::Ok);
    assert_eq!(r.device_wp(MANY - 1), 8);
    r.report(LAST, 1);
    assert_eq!(r.status(write(LAST + 8, 8)), Status::Ok);
    r.drain();
}

/// E10: the mark of a resync of many zones does not make the answer to another one count that is from before a write.
#[test]
fn e10_a_resync_of_many_zones_beside_another() {
    // On a busy machine the other thread may be at the last zone first.
    (0..4).for_each(|_| resync_beside_another());
}

fn resync_beside_another() {
    let mut r = make(MANY.into(), 64, 64).queues(&[(8, 8), (8, 8), (8, 8)]).rig();
    let resyncs = |q: &mut DiskQueue, now| {
        let all = flags(report(0, MANY), Flags::RESYNC);
        assert_eq!(q.submit(now, &mut Bios::from_iter([all])), 1);
    };
    beside(resyncs, &mut r, |r| {
        r.submit(1, [flags(report(LAST, 1), Flags::RESYNC)]);
        r.submit(0, [write(LAST, 8)]);
        assert_eq!(next_of(r, 0).status, Status::Ok);
    });
    let _ = next_of(&mut r, 1);
    assert_eq!(r.wp(MANY - 1), 8);
    r.drain();
}

/// A7, E3: an append that was given up leaves a stale zone. While it may still land, later appends do not tell either.
#[test]
fn a7_an_append_past_its_deadline_leaves_a_stale_zone() {
    // The answer to the first append comes never, or late.
    for (plan, back) in [("append/lost", false), ("append/delay=5ms", true)] {
        let make = native();
        let dev = EmuDisk::new(make.emu).expect("a device");
        let fault = FaultDisk::new(dev.clone(), &plan.parse().expect("a plan")).expect("a layer");
        let disk = open(fault, DiskConfig { timeout: Some(Nanos(1_000_000)), ..make.config });
        let queues = vec![disk.open_polled_queue(8, 8).expect("a queue")];
        let mut r = Rig { dev, disk, queues, now: Nanos(0), done: Vec::new() };
        assert_eq!(r.status(append(0, 8, 0)), Status::Timeout);
        assert_eq!(r.status(write(8, 8)), Status::StaleWritePointer);
        if back {
            r.now = Nanos(6_000_000);
            r.poll(0);
        }
        assert_eq!(r.queues[0].late(), u32::from(!back));
        assert_eq!(r.report(0, 1)[0].wp.0, 8);
        assert_eq!(r.one(append(0, 8, 0)).sector.0, 8);
        let then = if back { Status::Ok } else { Status::StaleWritePointer };
        assert_eq!(r.status(write(16, 8)), then);
    }
}

/// M5: in strict mode a reset or finish fails while an append is on its way.
#[test]
fn m5_a_strict_reset_beside_a_native_append_fails() {
    for what in [Op::ZoneReset, Op::ZoneFinish, Op::ZoneResetAll] {
        let mut r = native().config(|c| c.strict_management = true).rig();
        r.submit(0, [append(64, 8, 0)]);
        let len = if what == Op::ZoneResetAll { 0 } else { 64 };
        let at = if what == Op::ZoneResetAll { 0 } else { 64 };
        r.submit(1, [op(what, at, len)]);
        assert_eq!(next_of(&mut r, 1).status, Status::ZoneBusy);
        assert_eq!(next_of(&mut r, 0).status, Status::Ok);
        assert_eq!(r.status(write(72, 8)), Status::Ok);
        assert_eq!(r.status(op(what, at, len)), Status::Ok);
    }
}

/// A7: on a disk with several writes of a zone in flight too, the last of them and of the appends tells.
#[test]
fn a7_an_append_beside_several_writes_in_flight() {
    for first in [0, 1] {
        let mut m = native().limits(|l| l.keeps_write_order = true);
        m.config.zone_write_depth = 3;
        m.config.nomerges = true;
        let mut r = m.rig();
        r.submit(0, (0..5).map(|i| token(write(8 * i, 8), i)));
        r.submit(1, [token(append(0, 4, 100), 9)]);
        if first == 1 {
            assert_eq!(next_of(&mut r, 1).sector.0, 24);
        }
        let done = r.finish();
        let aborted = done.iter().filter(|b| b.status == Status::AbortedBehind).count();
        assert_eq!(aborted, 2, "three were in flight");
        assert_eq!(r.status(write(28, 4)), Status::Ok);
        assert_eq!(r.device_wp(0), 32);
    }
}
