//! Which answer counts, of the layer's own report, of the client's, and of a resync; and answers that say nothing.

use crate::common::*;
use crate::device::*;
use zoneplug_core::zone::Condition;
use zoneplug_core::{Flags, Nanos, Op, Status};

/// E6: the answer to a report that was sent before the error is not believed, whether the client or the layer sent it.
#[test]
fn e12_only_a_report_that_is_newer_than_the_error_counts() {
    let (mut r, log) = rig();
    log.lock().unwrap().hold_own = true;
    log.lock().unwrap().hold_reports = true;
    assert_eq!(r.status(write(0, 8)), Status::Ok);
    r.submit(1, [token(report(0, 1), 9)]); // answered at 8, seen later
    r.step();
    torn(&r, Status::Io, 4);
    assert_eq!(one_of(&mut r, 0, token(write(8, 8), 77)).status, Status::Io);
    log.lock().unwrap().hold_reports = false;
    r.finish();
    assert_eq!(r.cached(0), None, "it says 8, the device is at 12");
    let_go(&mut r, &log);
    assert_eq!(r.wp(0), 12);
}

/// E3: a client that asks after the error may write where it was told at once, though the layer's own report is late.
#[test]
fn e12_a_report_of_the_client_comes_first() {
    for flag in [Flags::NONE, Flags::RESYNC] {
        let (mut r, log) = rig();
        until_asked(&mut r, &log, 4);
        r.submit(1, [token(append(0, 4, 50), 1)]);
        let b = one_of(&mut r, 0, token(flags(report(0, 1), flag), 9));
        assert_eq!(b.status, Status::Ok);
        let done = r.finish();
        assert_eq!((done[0].status, done[0].sector.0), (Status::Ok, 12), "what waited goes on");
        assert_eq!(r.cached(0), Some((Condition::Active, 16)));
        assert_eq!(r.status(write(16, 8)), Status::Ok);
        let_go(&mut r, &log);
        assert_eq!((r.wp(0), r.device_wp(0)), (24, 24), "the other one is old by now");
        assert!(!r.queues[0].is_busy());
    }
}

/// E10: a resync that was sent after the error is not *busy*, whichever report comes first.
#[test]
fn e12_a_resync_beside_a_recovery_is_answered() {
    let (mut r, log) = rig();
    log.lock().unwrap().hold_reports = true;
    torn(&r, Status::Io, 4);
    assert_eq!(r.status(write(0, 8)), Status::Io);
    r.submit(1, [token(flags(report(0, 1), Flags::RESYNC), 9)]);
    for _ in 0..4 {
        r.step();
    }
    assert_eq!(r.wp(0), 4, "the layer's own");
    log.lock().unwrap().hold_reports = false;
    assert_eq!(r.finish()[0].status, Status::Ok);
    assert_eq!(r.wp(0), 4);
}

/// E6: the layer's own report fails. A report that its client sent after the failure, but before a resync of the zone,
/// is newer than the failure all the same.
#[test]
fn e12_a_report_from_before_a_resync_clears_a_zone() {
    let (mut r, log) = rig();
    until_asked(&mut r, &log, 4);
    log.lock().unwrap().hold_reports = true;
    r.submit(0, [token(report(0, 1), 1)]);
    r.step();
    r.submit(1, [token(flags(report(0, 1), Flags::RESYNC), 2)]);
    r.step();
    {
        let mut log = log.lock().unwrap();
        (log.lies, log.hold_own) = (Some(true), false);
    }
    r.poll(0);
    assert_eq!(r.cached(0), None);
    log.lock().unwrap().hold_reports = false;
    r.poll(0);
    assert_eq!(r.done.iter().map(|b| (b.token(), b.status)).collect::<Vec<_>>(), [(1, Status::Ok)]);
    assert_eq!(r.cached(0), Some((Condition::Active, 12)));
    r.finish();
}

/// The answer that is late belongs to a recovery that has ended; the next failure has its own.
#[test]
fn e12_two_recoveries_do_not_take_each_others_answers() {
    let (mut r, log) = rig();
    until_asked(&mut r, &log, 4); // says 12
    assert_eq!(one_of(&mut r, 1, token(op(Op::ZoneReset, 0, 64), 77)).status, Status::Ok);
    r.fail(Op::Write, Status::Io);
    assert_eq!(one_of(&mut r, 1, token(write(0, 8), 77)).status, Status::Io);
    assert_eq!(own(&log), [0, 0]);
    // The first one alone.
    log.lock().unwrap().hold_own = false;
    r.poll(0);
    assert_eq!(r.cached(0), None);
    r.poll(1);
    assert_eq!(r.cached(0), Some((Condition::Empty, 0)));
}

/// E4: a report that fails leaves the zone stale, and what waited fails.
#[test]
fn e12_a_report_that_fails_leaves_the_zone_stale() {
    for status in [Status::Io, Status::Timeout, Status::NoDevice] {
        let (mut r, log) = rig();
        log.lock().unwrap().hold_own = true;
        r.fail(Op::ReportZones, status);
        r.fail(Op::Write, Status::Io);
        assert_eq!(r.status(append(0, 8, 0)), Status::Io);
        r.submit(1, [token(append(0, 8, 0), 1)]);
        log.lock().unwrap().hold_own = false;
        assert_eq!(r.finish()[0].status, Status::AbortedBehind);
        assert_eq!(own(&log), [0], "once");
        assert_eq!(r.cached(0), None);
        assert_eq!(r.status(append(0, 8, 0)), Status::StaleWritePointer);
        assert_eq!(r.run(1, [write(64, 8)]), [Status::Ok], "others do not notice");
        r.report(0, 1);
        assert_eq!(r.status(append(0, 8, 0)), Status::Ok);
    }
}

/// E3, E6: the layer's own report fails while one of the client's, sent after the error, is on its way: that one
/// counts. Found by the simulation (seed 74).
#[test]
fn e12_a_report_of_the_client_outlives_the_layers() {
    let (mut r, log) = rig();
    until_asked(&mut r, &log, 4);
    log.lock().unwrap().hold_reports = true;
    log.lock().unwrap().lies = Some(true);
    r.submit(1, [token(report(0, 1), 9)]);
    r.step();
    let_go(&mut r, &log);
    assert_eq!(r.cached(0), None);
    log.lock().unwrap().hold_reports = false;
    assert_eq!(r.finish()[0].status, Status::Ok);
    assert_eq!(r.cached(0), Some((Condition::Active, 12)));
}

/// V2, V9: a report of another zone, or one that says that the zone is conventional, is not believed, at any depth.
#[test]
fn e12_a_report_that_does_not_fit_the_zone_is_not_believed() {
    for depth in [1, 2] {
        for other in [false, true] {
            let (mut r, log) = rig_with(&[(64, 8)], |m| {
                m.emu.limits.keeps_write_order = true;
                m.config.zone_write_depth = depth;
            });
            log.lock().unwrap().lies = Some(other);
            assert_eq!(r.status(write(0, 8)), Status::Ok);
            r.fail(Op::Write, Status::Io);
            assert_eq!(r.status(write(8, 8)), Status::Io, "depth {depth}");
            settle(&mut r);
            assert_eq!((own(&log), r.cached(0)), (vec![0], None), "depth {depth}, {other}");
            assert_eq!(r.status(append(0, 8, 0)), Status::StaleWritePointer);
        }
    }
}

/// W23: a device that is too busy for the report is asked again.
#[test]
fn e12_a_busy_report_is_sent_again() {
    let (mut r, _) = rig();
    for _ in 0..5 {
        r.fail(Op::ReportZones, Status::Busy);
    }
    torn(&r, Status::Io, 2);
    assert_eq!(r.status(append(0, 8, 0)), Status::Io);
    let b = r.one(append(0, 8, 0));
    assert_eq!((b.status, b.sector.0), (Status::Ok, 2));
}

/// A report whose own time is over: the zone is stale, and a late answer changes nothing.
#[test]
fn e12_a_report_that_is_late_is_not_believed() {
    let (mut r, log) = rig_with(&[(64, 8), (64, 8)], |m| m.config.timeout = Some(Nanos(500)));
    until_asked(&mut r, &log, 4);
    r.submit(1, [token(append(0, 8, 0), 1)]);
    assert_eq!(r.finish()[0].status, Status::AbortedBehind, "at the deadline of the report");
    assert_eq!(r.cached(0), None);
    let_go(&mut r, &log);
    assert_eq!((r.cached(0), r.queues[0].late()), (None, 0));
    r.report(0, 1);
    assert_eq!(r.wp(0), 12);
}
