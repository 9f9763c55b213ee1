//! Failures while a reset or a finish is on its way: what the device says then is not what will hold.

use crate::common::{self, *};
use crate::device::*;
use zoneplug_core::zone::Condition;
use zoneplug_core::{Nanos, Op, Status};

/// Zone 0 fails a write of which the device took everything, while `what` has been carried out and is not back. The
/// failure is seen, and the layer asks.
fn until_asked_beside(r: &mut Rig, log: &SharedLog, what: Op) {
    log.lock().unwrap().hold_writes = true;
    torn(r, Status::Io, 8);
    r.submit(0, [token(write(0, 8), 1), token(append(0, 8, 70), 2)]);
    for _ in 0..4 {
        r.step();
    }
    log.lock().unwrap().hold_resets = true;
    r.submit(1, [token(op(what, 0, if what == Op::ZoneResetAll { 256 } else { 64 }), 3)]);
    for _ in 0..4 {
        r.step();
    }
    log.lock().unwrap().hold_writes = false;
}

/// The reset is back, and the zone is what it made of it.
fn over(r: &mut Rig, log: &SharedLog, what: Op) {
    log.lock().unwrap().hold_resets = false;
    let done = r.finish();
    assert_eq!(done.iter().map(|b| (b.token(), b.status)).collect::<Vec<_>>(), [(3, Status::Ok)]);
    let wp = if what == Op::ZoneFinish { 64 } else { 0 };
    assert_eq!((r.wp(0), r.device_wp(0)), (wp, wp));
    if wp == 0 {
        assert_eq!(r.run(0, [write(0, 8), append(0, 8, 0)]), [Status::Ok; 2]);
        assert_eq!((r.wp(0), r.device_wp(0)), (16, 16));
    }
}

/// M4, E9: the device took all of a write that it failed, and an append behind it was acknowledged. Then the zone was
/// reset. The report says *empty*: the write is not sent a second time, and nothing that was acknowledged is missing.
#[test]
fn e12_nothing_is_sent_again_into_a_zone_that_is_reset() {
    for what in [Op::ZoneReset, Op::ZoneResetAll, Op::ZoneFinish] {
        let (mut r, log) = rig_with(&[(64, 8), (64, 8)], |m| {
            m.emu.limits.keeps_write_order = true;
            (m.config.nomerges, m.config.zone_write_depth) = (true, 4);
        });
        until_asked_beside(&mut r, &log, what);
        for _ in 0..8 {
            r.step();
        }
        let mut done: Vec<_> =
            r.done.drain(..).map(|b| (b.token(), b.status, b.sector.0)).collect();
        done.sort_unstable_by_key(|d| d.0);
        assert_eq!(done, [(1, Status::Io, 0), (2, Status::Ok, 8)]);
        assert_eq!((own(&log).len(), r.disk.counters().plugs.missing), (1, 0));
        assert_eq!(r.device_wp(0), if what == Op::ZoneFinish { 64 } else { 0 });
        assert_eq!(r.cached(0), None, "stale until the reset is over");
        over(&mut r, &log, what);
    }
}

/// The same with one write in flight: what parks meanwhile is aborted, also where the client looks.
#[test]
fn e12_a_zone_does_not_go_on_beside_a_reset() {
    for what in [Op::ZoneReset, Op::ZoneResetAll, Op::ZoneFinish] {
        for report in [false, true] {
            let (mut r, log) = rig();
            log.lock().unwrap().hold_own = report;
            until_asked_beside(&mut r, &log, what);
            for _ in 0..4 {
                r.step();
            }
            assert_eq!(own(&log), [0]);
            if report {
                r.submit(1, [token(append(0, 8, 0), 4)]);
                let b = one_of(&mut r, 1, token(common::report(0, 1), 5));
                assert_eq!(
                    (b.status, records(&b)[0].cond == Condition::Full),
                    (Status::Ok, what == Op::ZoneFinish)
                );
                log.lock().unwrap().hold_own = false;
            }
            for _ in 0..4 {
                r.step();
            }
            let mut done: Vec<_> = r.done.drain(..).map(|b| (b.token(), b.status)).collect();
            done.sort_unstable_by_key(|d| d.0);
            let behind = |t| (t, Status::AbortedBehind);
            assert_eq!(done[..2], [(1, Status::Io), behind(2)]);
            assert_eq!(done[2..], [behind(4)][..usize::from(report)]);
            let full = what == Op::ZoneFinish;
            let said = if full { (Condition::Full, 64) } else { (Condition::Empty, 0) };
            assert_eq!(r.cached(0), report.then_some(said), "its client may look");
            assert_eq!(r.disk.counters().plugs.missing, 0);
            over(&mut r, &log, what);
        }
    }
}

/// Polls the second queue alone until `n` BIOs are back: the first has what is late.
fn until_back(r: &mut Rig, n: usize) {
    for _ in 0..40 {
        if r.done.len() >= n {
            return;
        }
        pass(r, 1);
    }
    panic!("{n} BIOs do not come back: {:?}", r.done);
}

/// Time passes for the second queue.
fn pass(r: &mut Rig, polls: u32) {
    for _ in 0..polls {
        r.now.0 += 10;
        r.poll(1);
    }
}

/// A reset of zone 0 is given up before the device has carried it out, and its client looks.
fn given_up(r: &mut Rig, log: &SharedLog) {
    log.lock().unwrap().delay_resets = true;
    assert_eq!(r.status(op(Op::ZoneReset, 0, 64)), Status::Timeout);
    r.submit(1, [common::report(0, 1)]);
    until_back(r, 1);
    assert_eq!(r.done.remove(0).status, Status::Ok);
}

/// An append to zone 0 fails.
fn fails(r: &mut Rig) {
    r.fail(Op::Write, Status::Io);
    r.submit(1, [append(0, 8, 0)]);
    until_back(r, 1);
    assert_eq!(r.done.remove(0).status, Status::Io);
    pass(r, 10);
}

/// A reset that was given up may be carried out at any time, also between the answer of a report and the moment at
/// which that is seen: until the reset is back the layer does not report the zone, and leaves it to the client.
#[test]
fn e12_a_reset_given_up_is_remembered() {
    let (mut r, log) = rig_with(&[(64, 8), (64, 8)], |m| m.config.timeout = Some(Nanos(5000)));
    assert_eq!(r.status(write(0, 8)), Status::Ok);
    given_up(&mut r, &log);
    assert_eq!(r.wp(0), 8);
    fails(&mut r);
    assert_eq!((own(&log).len(), r.cached(0)), (0, None));
    log.lock().unwrap().delay_resets = false;
    for _ in 0..6 {
        r.now.0 += 40;
        r.poll(0);
    }
    assert_eq!((r.queues[0].late(), r.device_wp(0)), (0, 0));
    r.submit(1, [common::report(0, 1)]);
    until_back(&mut r, 1);
    r.done.clear();
    fails(&mut r);
    assert_eq!((own(&log).len(), r.cached(0)), (1, Some((Condition::Empty, 0))));
}

/// The same where several writes may be in flight: the first of two fails though the device took it, the second is
/// acknowledged, and then the late reset is carried out.
#[test]
fn e12_nothing_is_sent_again_beside_a_reset_given_up() {
    let (mut r, log) = rig_with(&[(64, 8), (64, 8)], |m| {
        m.emu.limits.keeps_write_order = true;
        m.config.timeout = Some(Nanos(5000));
        (m.config.nomerges, m.config.zone_write_depth) = (true, 4);
    });
    given_up(&mut r, &log);
    log.lock().unwrap().hold_writes = true;
    torn(&r, Status::Io, 8);
    r.submit(1, [token(write(0, 8), 1), token(append(0, 8, 70), 2)]);
    pass(&mut r, 20);
    assert_eq!(r.device_wp(0), 16);
    log.lock().unwrap().delay_resets = false;
    r.poll(0);
    r.now.0 += 40;
    assert_eq!(r.device_wp(0), 0);
    log.lock().unwrap().hold_writes = false;
    pass(&mut r, 20);
    let mut done: Vec<_> = r.done.drain(..).map(|b| (b.token(), b.status, b.sector.0)).collect();
    done.sort_unstable_by_key(|d| d.0);
    assert_eq!(done, [(1, Status::Io, 0), (2, Status::Ok, 8)]);
    assert_eq!((own(&log).len(), r.cached(0), r.device_wp(0)), (0, None, 0));
}

/// Of a reset of several zones, those that are done go on by themselves: while the others are reset, and later.
#[test]
fn e12_a_zone_whose_part_of_a_reset_is_done_goes_on() {
    let (mut r, log) = rig();
    log.lock().unwrap().hold_resets = true;
    r.submit(1, [token(op(Op::ZoneReset, 0, 128), 3)]);
    for _ in 0..4 {
        r.step();
    }
    log.lock().unwrap().hold_resets = false;
    r.poll(1);
    log.lock().unwrap().hold_resets = true;
    r.fail(Op::Write, Status::Io);
    r.submit(0, [token(append(0, 8, 0), 1)]);
    for _ in 0..8 {
        r.step();
    }
    assert_eq!(r.cached(0), Some((Condition::Empty, 0)));
    log.lock().unwrap().hold_resets = false;
    let done: Vec<_> = r.finish().iter().map(|b| (b.token(), b.status)).collect();
    assert_eq!(done, [(1, Status::Io), (3, Status::Ok)]);
}
