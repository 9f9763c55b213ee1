//! What comes while a zone with several writes in flight recovers: freezes, resets, reports, more writes.

use crate::common::*;
use crate::device::*;
use std::sync::{Arc, Mutex};
use zoneplug_core::{Op, Status};
use zoneplug_devices::emu::Fault;

/// Runs until the report of a recovery is at the device.
fn until_reported(r: &mut Rig, log: &Arc<Mutex<Log>>) {
    log.lock().unwrap().hold_reports = true;
    for _ in 0..10 {
        if !log.lock().unwrap().reports.is_empty() {
            break;
        }
        r.step();
    }
    assert_eq!(log.lock().unwrap().reports, [0]);
    r.step();
}

/// R11, I9: a freeze waits for a recovery, and a recovery needs nothing that a freeze takes.
#[test]
fn r11_a_freeze_waits_for_a_recovery() {
    let (mut r, log) = rig_with(4, &[(64, 4)], |_| {});
    r.fail(Op::Write, Status::Io);
    r.submit(0, writes(0, 6));
    let freeze = r.disk.begin_freeze();
    until_reported(&mut r, &log);
    assert!(!freeze.poll() && r.queues[0].is_busy());
    log.lock().unwrap().hold_reports = false;
    r.drain();
    assert!(r.done.iter().all(|b| b.status.is_ok()));
    r.step();
    assert!(freeze.poll());
    assert_eq!(r.device_wp(0), 24);
}

/// M4: a reset during a recovery ends it. What was sent says how it failed, what waited that it was aborted, and the
/// report says nothing any more.
#[test]
fn m4_a_reset_during_a_recovery_ends_it() {
    for finish in [false, true] {
        let (mut r, log) = rig(2);
        r.fail(Op::Write, Status::Io);
        r.submit(0, writes(0, 4));
        until_reported(&mut r, &log);
        let what = if finish { Op::ZoneFinish } else { Op::ZoneReset };
        r.submit(1, [token(op(what, 0, 64), 99)]);
        while r.done.len() < 5 {
            r.step();
        }
        let mut done = std::mem::take(&mut r.done);
        done.sort_by_key(|b| b.token());
        use Status as S;
        let expected = [S::Io, S::UnalignedWrite, S::AbortedByManagement, S::AbortedByManagement];
        assert_eq!(statuses(&done[..4]), expected);
        assert_eq!(done[4].status, S::Ok);
        // Writes of the new generation, before the report is back.
        if !finish {
            assert_eq!(r.run(1, writes(0, 2)), [S::Ok; 2]);
        }
        log.lock().unwrap().hold_reports = false;
        r.step();
        r.step();
        let wp = if finish { 64 } else { 8 };
        assert_eq!((r.wp(0), r.device_wp(0)), (wp, wp));
        assert!(!r.queues[0].is_busy());
    }
}

/// M5: a zone that is being recovered is busy for strict management.
#[test]
fn m5_strict_management_waits_for_a_recovery() {
    let (mut r, log) = rig_with(2, &[(64, 8), (64, 8)], |m| m.config.strict_management = true);
    r.fail(Op::Write, Status::Io);
    r.submit(0, writes(0, 4));
    until_reported(&mut r, &log);
    r.submit(1, [token(op(Op::ZoneReset, 0, 64), 99)]);
    r.step();
    assert_eq!(r.done.iter().find(|b| b.token() == 99).unwrap().status, Status::ZoneBusy);
    log.lock().unwrap().hold_reports = false;
    assert!(r.finish().iter().all(|b| b.status.is_ok() || b.token() == 99));
}

/// Writes that come during a recovery wait behind what failed, and are placed with it.
/// E7.
#[test]
fn writes_that_come_during_a_recovery_wait() {
    let (mut r, log) = rig(4);
    r.fail(Op::Write, Status::Io);
    r.submit(0, writes(0, 2));
    until_reported(&mut r, &log);
    r.submit(1, [token(write(8, 4), 8), token(append(0, 4, 12), 12)]);
    r.step();
    assert_eq!(sent(&log).len(), 2, "nothing is sent");
    log.lock().unwrap().hold_reports = false;
    assert_eq!(statuses(&r.finish()), [Status::Ok; 4]);
    assert_eq!(r.medium(0, 16), (0..16).collect::<Vec<_>>());
}

/// R40: a queue that goes away with several writes of a zone in flight, one of which fails, is finished by others.
#[test]
fn r40_a_home_that_goes_away_is_finished_by_the_others() {
    for fails in [false, true] {
        let (mut r, log) = rig(4);
        if fails {
            r.dev.fail_next(Fault { skip: 1, ..Fault::next(Op::Write, Status::Io) });
        }
        r.submit(0, writes(0, 6));
        r.submit(1, writes(24, 2));
        drop(r.queues.remove(0));
        let done = r.finish();
        assert_eq!(statuses(&done), [Status::Ok; 2], "the other queue's own");
        let freeze = r.disk.begin_freeze();
        for _ in 0..20 {
            r.step();
        }
        assert!(freeze.poll());
        assert_eq!(r.medium(0, 32), (0..32).collect::<Vec<_>>());
        assert!(!log.lock().unwrap().two_homes);
    }
}

/// E6: while writes of a zone that is lost are in flight no report says anything of it.
#[test]
fn e6_a_report_among_writes_that_end_is_not_believed() {
    let (mut r, _) = rig(4);
    assert_eq!(r.run(0, writes(0, 2)), [Status::Ok; 2]);
    // A reset in the middle: what fails then is of an older generation, and not tried again.
    r.submit(0, writes(8, 2));
    r.submit(1, [op(Op::ZoneReset, 0, 64)]);
    r.submit(0, writes(16, 2));
    r.submit(1, [report(0, 1)]);
    r.finish();
    r.report(0, 1);
    assert_eq!(r.wp(0), r.device_wp(0));
}
