//! A write of several fails: the zone is reported and goes on, and what is not sent again fails with its own status.

use crate::common::*;
use crate::device::*;
use zoneplug_core::zone::Condition;
use zoneplug_core::{Nanos, Op, Status, ZoneNo};
use zoneplug_devices::emu::Fault;

/// A write fails, and at the device the writes behind it fail too. The layer waits for all of them, reports the zone,
/// and sends them again. No client sees an error.
/// E7.
#[test]
fn after_a_failure_the_zone_is_drained_reported_and_goes_on() {
    for status in [Status::Io, Status::ShortTransfer, Status::UnalignedWrite] {
        let (mut r, log) = rig(4);
        r.dev.fail_next(Fault { skip: 1, ..Fault::next(Op::Write, status) });
        assert_eq!(r.run(0, writes(0, 8)), [Status::Ok; 8], "{status}");
        assert_eq!(log.lock().unwrap().reports, [0], "one report, with nothing in flight");
        assert_eq!(sent(&log)[..8], [0, 4, 8, 12, 4, 8, 12, 16], "the first one was there");
        assert_eq!(r.medium(0, 32), (0..32).collect::<Vec<_>>());
        let c = r.disk.counters();
        assert_eq!((c.plugs.retried, c.plugs.resynced, c.plugs.lost), (3, 1, 0));
        assert_eq!(r.cached(0), Some((Condition::Active, 32)));
    }
}

/// E8, E9: of a write that failed with some of its data on the medium nothing is sent again. Positional writes behind
/// it fail; appends find a place.
#[test]
fn what_may_be_on_the_medium_is_not_sent_again() {
    for torn in [1, 3, 4] {
        let (mut r, _) = rig(4);
        r.dev.fail_next(Fault { torn_sectors: Some(torn), ..Fault::next(Op::Write, Status::Io) });
        let mut list = writes(0, 2);
        list.extend([token(append(0, 4, 100), 8), token(append(0, 4, 200), 12)]);
        r.submit(0, list);
        let done = r.finish();
        if torn == 4 {
            // The device was wrong: the second write was carried out behind it.
            assert_eq!(statuses(&done), [Status::Io, Status::Ok, Status::Ok, Status::Ok]);
            assert_eq!((done[2].sector.0, done[3].sector.0), (8, 12));
            continue;
        }
        let expected = [Status::Io, Status::UnalignedWrite, Status::Ok, Status::Ok];
        assert_eq!(statuses(&done), expected);
        let at = u64::from(torn);
        assert_eq!((done[2].sector.0, done[3].sector.0), (at, at + 4), "placed anew");
        assert_eq!(r.medium(at, 8), [100, 101, 102, 103, 200, 201, 202, 203]);
        assert_eq!(r.wp(0), at + 8, "and the zone is known");
    }
}

/// A torn write leaves the write pointer inside of a block that can only be written whole. Nothing can be written
/// there: the waiting writes fail, and nothing is sent that the device would have to refuse.
/// E8.
#[test]
fn a_zone_does_not_go_on_in_the_middle_of_a_block() {
    for torn in [1, 3, 7, 9] {
        let (mut r, log) = rig_with(4, &[(64, 16)], |m| {
            m.emu.limits.write_granularity_sectors = 8;
        });
        let fault = Fault { torn_sectors: Some(torn), ..Fault::next(Op::Write, Status::Io) };
        r.dev.fail_next(fault);
        r.submit(0, (0..6).map(|i| token(append(0, 16, 100 * (i + 1)), i)));
        let done = r.finish();
        assert_eq!(done[0].status, Status::Io, "torn after {torn}");
        assert!(done.iter().all(|b| !b.status.is_ok()), "{:?}", statuses(&done));
        assert_eq!(sent(&log).len(), 4, "those that were in flight, and no more");
        assert_eq!(
            r.dev.stats().failed(Status::InvalidField),
            0,
            "an unaligned write at the device"
        );
        assert_eq!(r.wp(0), u64::from(torn), "the zone is known, and a reset begins it again");
        assert_eq!(r.run(0, [op(Op::ZoneReset, 0, 64), append(64, 8, 1)]), [Status::Ok; 2]);
        assert_eq!(r.run(0, [append(0, 8, 1)]), [Status::Ok]);
    }
}

/// An append of which the device wrote all, or some, and said that it failed: a second copy would be one too many.
/// E9.
#[test]
fn an_append_that_cannot_be_told_apart_fails() {
    for torn in 1..=4 {
        let (mut r, _) = rig(4);
        r.dev.fail_next(Fault { torn_sectors: Some(torn), ..Fault::next(Op::Write, Status::Io) });
        r.submit(0, (0..4).map(|i| token(append(0, 4, 1 + i * 100), i)));
        let done = r.finish();
        assert_eq!(statuses(&done), [Status::Io, Status::Ok, Status::Ok, Status::Ok]);
        assert_eq!(done[0].sector.0, 0, "A10: a failed append has no sector");
        let medium = r.medium(0, 64);
        assert_eq!(medium.iter().filter(|&&s| s == 1).count(), 1, "once");
        for (i, b) in done.iter().enumerate().skip(1) {
            assert_eq!(medium[b.sector.0 as usize], 1 + i as u64 * 100, "A4");
        }
    }
}

/// An append that failed and left nothing is placed anew, at the place of the one that will not be there.
/// E7.
#[test]
fn an_append_that_left_nothing_is_placed_anew() {
    let (mut r, _) = rig(4);
    r.fail(Op::Write, Status::Io);
    r.submit(0, [token(append(0, 4, 1), 0), token(append(0, 2, 50), 1)]);
    let done = r.finish();
    assert_eq!(statuses(&done), [Status::Ok; 2]);
    assert_eq!((done[0].sector.0, done[1].sector.0), (0, 4));
    assert_eq!(r.medium(0, 6), [1, 2, 3, 4, 50, 51]);
}

/// E1: a device that goes on failing is left alone after a few attempts; those behind it fail too, each as what it was.
#[test]
fn a_zone_that_goes_on_failing_is_given_up() {
    let (mut r, log) = rig(2);
    for _ in 0..40 {
        r.fail(Op::Write, Status::Io);
    }
    r.submit(0, writes(0, 4));
    let done = r.finish();
    assert_eq!(statuses(&done[..2]), [Status::Io; 2]);
    assert_eq!(statuses(&done[2..]), [Status::AbortedBehind; 2], "these were never sent");
    assert_eq!(log.lock().unwrap().reports.len(), 3, "bounded");
    assert_eq!(r.cached(0), None, "E2");
    assert_eq!(r.status(write(0, 4)), Status::StaleWritePointer);
    // E3: as ever, by a report of the client's.
    r.report(0, 1);
    assert_eq!(r.cached(0), Some((Condition::Empty, 0)));
}

/// What succeeds in between begins the count again.
/// E1.
#[test]
fn attempts_are_counted_without_progress() {
    let (mut r, log) = rig(2);
    for i in 0..6 {
        r.dev.fail_next(Fault { skip: 3 * i + 2, ..Fault::next(Op::Write, Status::Io) });
    }
    assert_eq!(r.run(0, writes(0, 12)), [Status::Ok; 12]);
    assert!(log.lock().unwrap().reports.len() > 3);
}

/// E1: statuses that another attempt would not change fail at once. A limit proves that nothing moved.
#[test]
fn what_is_not_worth_another_attempt_fails_as_ever() {
    for (status, wp) in [
        (Status::Medium, None),
        (Status::NoSpace, None),
        (Status::OpenLimit, Some((Condition::Active, 4))),
        (Status::InvalidField, Some((Condition::Active, 4))),
    ] {
        let (mut r, log) = rig(2);
        assert_eq!(r.status(write(0, 4)), Status::Ok);
        r.fail(Op::Write, status);
        r.submit(0, writes(4, 3));
        let done = r.finish();
        let expected = [status, Status::UnalignedWrite, Status::AbortedBehind];
        assert_eq!(statuses(&done), expected, "{status}");
        assert_eq!(log.lock().unwrap().reports, [] as [usize; 0]);
        assert_eq!(r.cached(0), wp, "{status}");
    }
}

/// W23: a device that is busy is asked again, without an end, and those behind it that found it missing too.
#[test]
fn w23_busy_is_tried_again_in_order() {
    let (mut r, log) = rig(4);
    for i in 0..8 {
        r.dev.fail_next(Fault { skip: 2 * i, ..Fault::next(Op::Write, Status::Busy) });
    }
    assert_eq!(r.run(0, writes(0, 8)), [Status::Ok; 8]);
    assert!(log.lock().unwrap().reports.iter().all(|&n| n == 0));
    assert_eq!(r.medium(0, 32), (0..32).collect::<Vec<_>>());
    // One that is alone is simply sent again.
    let before = log.lock().unwrap().reports.len();
    r.fail(Op::Write, Status::Busy);
    assert_eq!(r.status(write(32, 4)), Status::Ok);
    assert_eq!(log.lock().unwrap().reports.len(), before);
}

/// E4: if the report fails too, the write pointer stays unknown.
#[test]
fn a_report_that_fails_leaves_the_zone_stale() {
    let (mut r, _) = rig(2);
    r.fail(Op::Write, Status::Io);
    r.fail(Op::ReportZones, Status::Io);
    r.submit(0, writes(0, 3));
    let done = r.finish();
    let expected = [Status::Io, Status::UnalignedWrite, Status::AbortedBehind];
    assert_eq!(statuses(&done), expected);
    assert_eq!(r.cached(0), None);
    assert_eq!(r.run(1, [write(64, 4)]), [Status::Ok], "E2: others do not notice");
}

/// What was acknowledged and is not there any more is not written over before the client has looked.
/// E7.
#[test]
fn a_zone_that_lost_acknowledged_data_does_not_go_on() {
    let (mut r, log) = rig(2);
    assert_eq!(r.run(0, writes(0, 2)), [Status::Ok; 2]);
    r.fail(Op::Write, Status::Io);
    r.submit(0, (0..3).map(|i| token(append(0, 4, 100 + i), i)));
    r.dev.set_write_pointer(ZoneNo(0), 4);
    let done = r.finish();
    let expected = [Status::Io, Status::UnalignedWrite, Status::AbortedBehind];
    assert_eq!(statuses(&done), expected);
    assert_eq!(log.lock().unwrap().reports, [0]);
    assert_eq!(r.cached(0), None);
    r.report(0, 1);
    assert_eq!(r.wp(0), 4);
}

/// R32: a zone that the report says is read-only has no more writes.
#[test]
fn r32_a_zone_that_died_is_not_tried_again() {
    let (mut r, log) = rig(2);
    r.fail(Op::Write, Status::Io);
    r.submit(0, writes(0, 3));
    r.dev.set_condition(ZoneNo(0), Condition::ReadOnly);
    let done = r.finish();
    assert!(done.iter().all(|b| !b.status.is_ok()));
    let seen = log.lock().unwrap().writes.len();
    assert_eq!(r.status(write(0, 4)), Status::ZoneReadOnly);
    assert_eq!(log.lock().unwrap().writes.len(), seen);
}

/// A deadline passes: a write with an unknown outcome is not sent again, and neither are the writes behind it.
/// E1.
#[test]
fn an_unknown_outcome_is_not_tried_again() {
    let (mut r, log) = rig_with(4, &[(64, 8)], |m| m.config.timeout = Some(Nanos(500)));
    log.lock().unwrap().hold_writes = true;
    r.submit(0, writes(0, 3));
    let done = r.finish();
    assert_eq!(statuses(&done), [Status::Timeout; 3]);
    assert_eq!(log.lock().unwrap().reports, [] as [usize; 0]);
    assert_eq!(r.cached(0), None);
    log.lock().unwrap().hold_writes = false;
    r.step();
    assert_eq!(r.queues[0].late(), 0);
    r.report(0, 1);
    assert_eq!(r.wp(0), 12, "they were carried out after all, once");
    assert_eq!(r.run(0, writes(12, 3)), [Status::Ok; 3]);
}
