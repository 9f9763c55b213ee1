//! E1-E11: a write failed. What is lost, what is kept, and how a zone comes back (R10, R11, R14, R27, R43).

use crate::common::*;
use zoneplug_core::zone::Condition;
use zoneplug_core::{Flags, Op, Status, ZoneNo};
use zoneplug_devices::emu::Fault;

/// E1, R10: a write that fails takes with it those that waited behind, with a status of their own.
#[test]
fn e1_a_failed_write_aborts_those_behind_it() {
    let mut r = make(4, 64, 64).queues(&[(8, 2), (8, 2)]).rig();
    r.fail(Op::Write, Status::Io);
    r.submit(0, [token(write(0, 8), 0)]);
    r.submit(1, [token(write(8, 8), 1), token(append(0, 8, 0), 2)]);
    r.submit(0, [token(write(64, 8), 3)]);
    let done = r.finish();
    let s: Vec<_> = done.iter().map(|b| b.status).collect();
    assert_eq!(s, [Status::Io, Status::AbortedBehind, Status::AbortedBehind, Status::Ok]);
    assert_eq!(done[2].sector.0, 0, "an append that was aborted has no sector");
    assert_eq!(r.commands(Op::Write), 2);
    let c = r.disk.counters();
    assert_eq!((c.plugs.lost, c.plugs.aborted, c.waiting), (1, 2, 0));
    assert_eq!(r.cached(0), None);
}

/// E1, O3: a status that proves that no data moved keeps the write pointer, and those behind fail too.
#[test]
fn e1_a_limit_undoes_the_reservation() {
    for status in [Status::OpenLimit, Status::ActiveLimit, Status::InvalidField, Status::Boundary] {
        let mut r = make(4, 64, 64).rig();
        assert_eq!(r.status(write(0, 8)), Status::Ok);
        r.fail(Op::Write, status);
        r.submit(0, [token(write(8, 8), 0)]);
        r.submit(0, [token(append(0, 8, 0), 1)]);
        let done = r.finish();
        assert_eq!(done[0].status, status);
        assert_eq!((done[1].status, done[1].sector.0), (Status::AbortedBehind, 0));
        assert_eq!(r.cached(0), Some((Condition::Active, 8)));
        assert_eq!(r.status(write(8, 8)), Status::Ok);
    }
}

/// All BIOs of a merged command have one result: after an error none of them succeeds.
/// E9.
#[test]
fn e1_a_merged_command_fails_as_one() {
    let mut r = make(4, 64, 64).rig();
    r.dev.fail_next(Fault {
        skip: 1,
        torn_sectors: Some(12),
        ..Fault::next(Op::Write, Status::Medium)
    });
    r.submit(0, [token(write(0, 8), 0)]);
    r.submit(0, (1..4).map(|i| token(append(0, 8, i * 8), i)));
    let done = r.finish();
    assert_eq!(done[0].status, Status::Ok);
    for b in &done[1..] {
        assert_eq!((b.status, b.sector.0), (Status::Medium, 0), "E9");
    }
    r.report(0, 1);
    assert_eq!(r.wp(0), 20, "E8: a part of it reached the medium");
}

/// E2, R10: a stale zone refuses writes and appends; reads and other zones go on.
#[test]
fn e2_a_stale_zone_fails_fast_and_others_do_not_notice() {
    let mut r = make(4, 64, 64).rig();
    assert_eq!(r.status(write(0, 8)), Status::Ok);
    r.fail(Op::Write, Status::Io);
    assert_eq!(r.status(write(8, 8)), Status::Io);
    let seen = r.commands(Op::Write);
    assert_eq!(r.run(0, [write(8, 8), append(0, 8, 0)]), [Status::StaleWritePointer; 2]);
    assert_eq!(r.commands(Op::Write), seen, "no device saw them");
    let read = r.one(read(0, 8));
    assert_eq!(stamps(read.data()), (0..8).collect::<Vec<_>>(), "what was acknowledged is there");
    assert_eq!(r.run(0, [write(64, 8), append(128, 8, 0)]), [Status::Ok; 2]);
    let counters = r.disk.counters();
    assert_eq!(counters.plugs.rejected.by(Status::StaleWritePointer), 2);
}

/// E3: a report, a reset or a finish brings a zone back.
#[test]
fn e3_report_reset_and_finish_recover() {
    for how in 0..3 {
        let mut r = make(4, 64, 64).rig();
        assert_eq!(r.status(write(0, 8)), Status::Ok);
        r.dev.fail_next(Fault {
            torn_sectors: Some(4),
            ..Fault::next(Op::Write, Status::ShortTransfer)
        });
        assert_eq!(r.status(write(8, 8)), Status::ShortTransfer);
        let expected = match how {
            0 => {
                r.report(0, 4);
                (Condition::Active, 12)
            }
            1 => {
                assert_eq!(r.status(op(Op::ZoneReset, 0, 64)), Status::Ok);
                (Condition::Empty, 0)
            }
            _ => {
                assert_eq!(r.status(op(Op::ZoneFinish, 0, 64)), Status::Ok);
                (Condition::Full, 64)
            }
        };
        assert_eq!(r.cached(0), Some(expected));
        if how < 2 {
            assert_eq!(r.status(write(expected.1, 8)), Status::Ok);
        }
    }
}

/// E3, I9: the layer itself sends no report after an error.
#[test]
fn e3_no_report_is_sent_by_itself() {
    let mut r = make(4, 64, 64).rig();
    let before = r.commands(Op::ReportZones);
    r.fail(Op::Write, Status::Io);
    r.submit(0, (0..4).map(|i| flags(write(i * 8, 8), Flags::NOMERGE)));
    r.finish();
    assert_eq!(r.commands(Op::ReportZones), before);
}

/// E4: a report that covers the zone clears it, whatever condition the device says.
#[test]
fn e4_a_report_settles_every_condition() {
    let cases = [
        (0, Condition::Empty, Some((Condition::Empty, 0))),
        (24, Condition::Closed, Some((Condition::Active, 24))),
        (24, Condition::ExpOpen, Some((Condition::Active, 24))),
        (64, Condition::Full, Some((Condition::Full, 64))),
    ];
    for (wp, cond, expected) in cases {
        let mut r = make(4, 64, 64).rig();
        r.fail(Op::Write, Status::Io);
        assert_eq!(r.status(write(0, 8)), Status::Io);
        r.dev.set_write_pointer(ZoneNo(0), wp);
        r.dev.set_condition(ZoneNo(0), cond);
        r.report(64, 3);
        assert_eq!(r.cached(0), None, "the report was of other zones");
        r.report(0, 1);
        assert_eq!(r.cached(0), expected);
        assert_eq!(r.disk.counters().plugs.resynced, 1);
    }
}

/// E5: a report changes nothing of a zone that is well, even with writes in flight.
#[test]
fn e5_a_report_leaves_a_healthy_zone_alone() {
    let mut r = make(4, 64, 64).queues(&[(8, 2), (8, 2)]).config(|c| c.nomerges = true).rig();
    r.submit(1, [report(0, 4)]);
    r.submit(0, (0..4).map(|i| write(i * 8, 8)));
    assert_eq!(r.wp(0), 32);
    r.submit(1, [report(0, 4)]);
    assert!(r.finish().iter().all(|b| b.status.is_ok()));
    assert_eq!((r.wp(0), r.device_wp(0)), (32, 32));
    r.dev.set_write_pointer(ZoneNo(0), 40);
    r.report(0, 4);
    assert_eq!(r.wp(0), 32, "out of band: only a resync corrects it");
}

/// E6, R14 (CODE-2): a report that was sent before the write failed is not believed.
#[test]
fn e6_a_stale_report_is_not_believed() {
    let mut r = make(4, 64, 64).queues(&[(8, 2), (8, 2)]).rig();
    r.submit(1, [report(0, 1)]); // answered now, seen later
    r.dev.fail_next(Fault { torn_sectors: Some(4), ..Fault::next(Op::Write, Status::Io) });
    r.submit(0, [write(0, 8)]);
    r.now.0 += 100;
    r.poll(0);
    assert_eq!(r.done[0].status, Status::Io);
    r.poll(1);
    assert_eq!(r.done[1].status, Status::Ok);
    assert_eq!(r.cached(0), None, "the report says 0, the device is at 4");
    r.done.clear();
    r.report(0, 1);
    assert_eq!(r.wp(0), 4);
}

/// E6: the same for a resync: an old answer is not taken for the new one, and a write in between wins.
#[test]
fn e6_a_stale_resync_is_not_believed() {
    let mut r = make(4, 64, 64).queues(&[(8, 2), (8, 2)]).rig();
    let resync = || flags(report(0, 1), Flags::RESYNC);
    r.submit(1, [token(resync(), 1)]); // answered now: 0
    r.submit(0, [write(0, 8)]);
    r.now.0 += 100;
    r.poll(0);
    r.submit(0, [token(resync(), 2)]);
    r.poll(1); // the old answer
    assert_eq!(r.done.last().unwrap().status, Status::ZoneBusy);
    assert_eq!(r.wp(0), 8);
    r.drain();
    assert_eq!(r.done.last().unwrap().status, Status::Ok);
    assert_eq!((r.wp(0), r.device_wp(0)), (8, 8));
}

/// E8: the write pointer after a torn write is where the device says.
#[test]
fn e8_torn_writes_leave_the_write_pointer_anywhere() {
    for torn in 0..=8 {
        let mut r = make(4, 64, 64).rig();
        r.dev.fail_next(Fault {
            torn_sectors: Some(torn),
            ..Fault::next(Op::Write, Status::ShortTransfer)
        });
        assert_eq!(r.status(write(0, 8)), Status::ShortTransfer);
        assert_eq!(r.report(0, 1)[0].wp.0, u64::from(torn));
        assert_eq!(r.wp(0), u64::from(torn));
        assert_eq!(r.status(write(torn.into(), 8)), Status::Ok);
        assert_eq!(r.medium(0, torn + 8), (0..u64::from(torn) + 8).collect::<Vec<_>>());
    }
}

/// E10, R43: a write pointer that something else moved is found again by a resync of an idle zone.
#[test]
fn e10_a_resync_finds_what_another_program_did() {
    let mut r = make(4, 64, 64).rig();
    assert_eq!(r.status(write(0, 8)), Status::Ok);
    r.dev.set_write_pointer(ZoneNo(0), 0);
    assert_eq!(r.status(flags(report(0, 4), Flags::RESYNC)), Status::Ok);
    assert_eq!(r.cached(0), Some((Condition::Empty, 0)));
    r.dev.set_write_pointer(ZoneNo(0), 16);
    // Without one the first write fails at the device, and the zone is stale.
    assert_eq!(r.status(write(0, 8)), Status::UnalignedWrite);
    assert_eq!(r.cached(0), None);
    r.report(0, 1);
    assert_eq!(r.status(write(16, 8)), Status::Ok);
}

/// E10: a resync that meets writes in flight says so and changes nothing.
#[test]
fn e10_a_resync_of_a_busy_zone_says_busy() {
    let mut r = make(4, 64, 64).queues(&[(8, 4)]).rig();
    r.dev.set_write_pointer(ZoneNo(1), 8);
    r.submit(0, [token(write(0, 8), 0), token(flags(report(0, 4), Flags::RESYNC), 1)]);
    let done = r.finish();
    assert_eq!((done[1].status, done[1].result), (Status::ZoneBusy, 4));
    assert_eq!((r.wp(0), r.wp(1)), (8, 8), "the idle ones are corrected");
}

/// R11 (B17d): an error while the disk freezes: the freeze ends.
/// I9.
#[test]
fn r11_an_error_under_freeze_does_not_hang() {
    let mut r = make(4, 64, 64).queues(&[(32, 2), (32, 2)]).config(|c| c.nomerges = true).rig();
    r.dev.fail_next(Fault { skip: 2, ..Fault::next(Op::Write, Status::Io) });
    for i in 0..16 {
        r.submit(i as usize % 2, [write(i * 4, 4)]);
    }
    let freeze = r.disk.begin_freeze();
    let mut rounds = 0;
    while !freeze.poll() {
        r.step();
        rounds += 1;
        assert!(rounds < 100);
    }
    drop(freeze);
    let done = r.finish();
    assert_eq!(done.iter().filter(|b| b.status.is_ok()).count(), 2);
    assert_eq!(done.iter().filter(|b| b.status == Status::AbortedBehind).count(), 13);
}

/// R27: an append after an error fails, and works again after a report.
/// A10.
#[test]
fn r27_an_append_recovers_with_a_report() {
    let mut r = make(4, 64, 64).rig();
    r.dev.fail_next(Fault { torn_sectors: Some(3), ..Fault::next(Op::Write, Status::Io) });
    assert_eq!(r.status(append(0, 8, 0)), Status::Io);
    assert_eq!(r.status(append(0, 8, 0)), Status::StaleWritePointer, "A10");
    r.report(0, 1);
    let b = r.one(append(0, 8, 7));
    assert_eq!((b.status, b.sector.0), (Status::Ok, 3));
}

/// A report that fails recovers nothing, describes nothing, and can be tried again.
#[test]
fn e3_a_report_that_fails_changes_nothing() {
    let mut r = make(4, 64, 64).rig();
    r.fail(Op::Write, Status::Io);
    assert_eq!(r.status(write(0, 8)), Status::Io);
    r.fail(Op::ReportZones, Status::Timeout);
    let b = r.one(report(0, 1));
    assert_eq!((b.status, b.result), (Status::Timeout, 0));
    assert_eq!(r.cached(0), None);
    r.report(0, 1);
    assert_eq!(r.wp(0), 0);
}

/// The bad-input list: an error in the middle of a queue loses nothing that was acknowledged.
#[test]
fn a_device_error_in_the_middle_of_a_queue_loses_nothing_acknowledged() {
    for skip in 0..8 {
        let mut r = make(4, 64, 64).config(|c| c.nomerges = true).rig();
        r.dev.fail_next(Fault { skip, ..Fault::next(Op::Write, Status::Medium) });
        let s = r.run(0, (0..8).map(|i| write(i * 8, 8)));
        let ok = s.iter().filter(|s| s.is_ok()).count() as u64;
        assert_eq!(ok, skip);
        assert!(s[skip as usize + 1..].iter().all(|&s| s == Status::AbortedBehind));
        assert_eq!(r.medium(0, ok as u32 * 8), (0..ok * 8).collect::<Vec<_>>());
        r.report(0, 1);
        assert_eq!(r.run(0, (ok..8).map(|i| write(i * 8, 8))), vec![Status::Ok; 8 - ok as usize]);
        assert_eq!(r.medium(0, 64), (0..64).collect::<Vec<_>>());
    }
}

/// R32: a zone that turned read-only or offline at run time is known to be so from the first write that it refuses,
/// until a report says otherwise.
#[test]
fn r32_a_zone_that_refuses_for_good_fails_fast() {
    for status in [Status::ZoneReadOnly, Status::ZoneOffline] {
        let mut r = make(2, 64, 64).rig();
        assert_eq!(r.status(write(0, 8)), Status::Ok);
        r.fail(Op::Write, status);
        assert_eq!(r.status(write(8, 8)), status);
        let sent = r.commands(Op::Write);
        assert_eq!(r.status(write(8, 8)), status);
        assert_eq!(r.commands(Op::Write), sent, "the second one never reached the device");
        assert_eq!(r.report(0, 1)[0].wp.0, 8, "it was the injected fault that lied");
        assert_eq!(r.status(write(8, 8)), Status::Ok);
    }
}

/// E10: a device that says *full* where the layer sees room knows better: the write pointer is unknown.
#[test]
fn e10_a_device_that_is_full_before_us_is_believed() {
    let mut r = make(2, 64, 64).rig();
    assert_eq!(r.status(write(0, 8)), Status::Ok);
    r.fail(Op::Write, Status::ZoneFull);
    assert_eq!(r.status(write(8, 8)), Status::ZoneFull);
    assert_eq!(r.status(write(8, 8)), Status::StaleWritePointer);
    r.report(0, 1);
    assert_eq!(r.status(write(8, 8)), Status::Ok);
}
