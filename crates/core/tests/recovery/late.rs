//! What comes back late: an answer of a recovery that has ended, and writes that were given up.

use crate::common::*;
use crate::device::*;
use zoneplug_core::disk::ZoneRecovery;
use zoneplug_core::{Nanos, Op, Status};

/// E6, M4: where several writes may be in flight, the answer to a report from before a reset comes while the next
/// failure still waits for the writes behind it. It is not that failure's.
#[test]
fn e6_an_answer_from_before_a_reset_is_not_the_next_failures() {
    let (mut r, log) = rig_with(&[(64, 8), (64, 8)], |m| {
        m.emu.limits.keeps_write_order = true;
        m.config.zone_write_depth = 4;
    });
    log.lock().unwrap().hold_own = true;
    assert_eq!(r.status(write(0, 8)), Status::Ok);
    torn(&r, Status::Io, 4);
    r.submit(0, [token(append(0, 8, 10), 1)]);
    for _ in 0..4 {
        r.step();
    }
    assert_eq!(own(&log), [0]);
    // It is answered: 12. A reset ends it.
    let b = one_of(&mut r, 1, token(op(Op::ZoneReset, 0, 64), 2));
    assert_eq!(b.status, Status::Ok);
    let b = one_of(&mut r, 0, token(read(0, 1), 9));
    assert_eq!(b.status, Status::Ok);
    let b = r.done.remove(0);
    assert_eq!((b.token(), b.status), (1, Status::Io));
    // The first of two fails, the second is still at the device.
    r.fail(Op::Write, Status::Io);
    r.submit(1, [token(append(0, 8, 50), 3)]);
    r.now.0 += 50;
    r.submit(1, [token(append(0, 8, 70), 4)]);
    r.now.0 += 50;
    r.poll(1);
    log.lock().unwrap().hold_own = false;
    r.poll(0);
    let done = r.finish();
    let got: Vec<_> = done.iter().map(|b| (b.status, b.sector.0)).collect();
    assert_eq!(got, [(Status::Ok, 0), (Status::Ok, 8)]);
    assert_eq!((r.wp(0), r.device_wp(0)), (16, 16));
}

/// A write fails while the first queue, which is not polled, has a write that was given up: the layer does not report
/// the zone.
fn fails_unasked(r: &mut Rig, log: &SharedLog) {
    log.lock().unwrap().hold_writes = false;
    r.fail(Op::Write, Status::Io);
    let wp = r.device_wp(0);
    r.submit(1, [write(wp, 8)]);
    while r.done.is_empty() {
        r.now.0 += 50;
        r.poll(1);
    }
    assert_eq!(r.done.remove(0).status, Status::Io);
    assert_eq!((r.queues[0].late(), own(log)), (1, vec![]));
}

/// A write that is given up in a zone that was stale already is at the device all the same. While it is, the
/// layer does not report the zone.
#[test]
fn e12_a_write_given_up_in_a_stale_zone_is_remembered() {
    let (mut r, log) = rig_with(&[(64, 8), (64, 8)], |m| m.config.timeout = Some(Nanos(500)));
    log.lock().unwrap().hold_writes = true;
    r.submit(0, [token(write(0, 8), 1)]);
    r.fail(Op::ZoneResetAll, Status::Io);
    assert_eq!(one_of(&mut r, 1, token(op(Op::ZoneResetAll, 0, 0), 2)).status, Status::Io);
    assert_eq!(r.cached(0), None, "a reset in doubt");
    assert_eq!(r.finish()[0].status, Status::Timeout);
    assert_eq!(one_of(&mut r, 1, token(report(0, 1), 3)).status, Status::Ok);
    fails_unasked(&mut r, &log);
}

/// The same, of a write that was given up while several could be in flight; and where one may be from then on.
#[test]
fn e12_a_write_given_up_at_another_depth_is_remembered() {
    for switch in [false, true] {
        let (mut r, log) = rig_with(&[(64, 8), (64, 8)], |m| {
            m.emu.limits.keeps_write_order = true;
            m.config.zone_write_depth = 4;
            m.config.timeout = Some(Nanos(500));
        });
        log.lock().unwrap().hold_writes = true;
        assert_eq!(r.status(write(0, 8)), Status::Timeout);
        r.report(0, 1);
        if switch {
            let mut change = r.disk.change_attribute("zone_write_depth", "1").unwrap();
            while !change.poll() {
                r.poll(0);
                r.poll(1);
            }
        }
        assert_eq!(r.queues[0].late(), 1, "a freeze does not wait for it");
        fails_unasked(&mut r, &log);
    }
}

/// The same, of a native append.
#[test]
fn e12_a_native_append_given_up_is_remembered() {
    let (mut r, log) = rig_with(&[(64, 8), (64, 8)], |m| {
        m.emu.limits.zone_append_max_sectors = 16;
        m.config.zone_recovery = Some(ZoneRecovery::Auto);
        m.config.timeout = Some(Nanos(500));
    });
    log.lock().unwrap().hold_writes = true;
    assert_eq!(r.status(append(0, 8, 0)), Status::Timeout);
    r.report(0, 1);
    fails_unasked(&mut r, &log);
}

/// A reset comes between a write and its failure, and what waited after it had filled the zone. That is aborted, so the
/// zone has room for an append while the layer asks.
#[test]
fn e12_what_was_aborted_takes_no_room() {
    let (mut r, log) = rig();
    log.lock().unwrap().hold_own = true;
    log.lock().unwrap().hold_writes = true;
    r.fail(Op::Write, Status::Io);
    r.submit(0, [token(write(0, 8), 1)]);
    assert_eq!(one_of(&mut r, 1, token(op(Op::ZoneReset, 0, 64), 2)).status, Status::Ok);
    r.submit(0, [token(write(0, 32), 3), token(write(32, 32), 4)]);
    log.lock().unwrap().hold_writes = false;
    let done = r.finish();
    let got: Vec<_> = done.iter().map(|b| b.status).collect();
    assert_eq!(got, [Status::Io, Status::AbortedBehind, Status::AbortedBehind]);
    r.submit(0, [token(append(0, 8, 0), 5)]);
    log.lock().unwrap().hold_own = false;
    assert_eq!(r.finish()[0].status, Status::Ok);
}

/// W23: a write that the device was too busy for is sent again, even while a write that was given up is still at the
/// device and the zone is not reported. It is not sent again if the next write was refused for good.
#[test]
fn w23_busy_beside_a_late_write() {
    for dies in [false, true] {
        let (mut r, log) = rig_with(&[(64, 8), (64, 8)], |m| {
            m.emu.limits.keeps_write_order = true;
            m.config.timeout = Some(Nanos(5000));
            (m.config.nomerges, m.config.zone_write_depth) = (true, 4);
        });
        log.lock().unwrap().hold_writes = true;
        assert_eq!(r.status(write(0, 8)), Status::Timeout);
        r.submit(1, [report(0, 1)]);
        while r.done.is_empty() {
            r.now.0 += 10;
            r.poll(1);
        }
        r.done.clear();
        log.lock().unwrap().hold_writes = false;
        r.fail(Op::Write, Status::Busy);
        if dies {
            r.fail(Op::Write, Status::ZoneReadOnly);
        }
        r.submit(1, [token(append(0, 8, 0), 1), token(append(0, 8, 0), 2)]);
        for _ in 0..60 {
            r.now.0 += 10;
            r.poll(1);
        }
        let mut got: Vec<_> = r.done.drain(..).map(|b| (b.token(), b.status)).collect();
        got.sort_unstable_by_key(|d| d.0);
        let (first, second) = match dies {
            true => (Status::AbortedBehind, Status::ZoneReadOnly),
            false => (Status::Ok, Status::Ok),
        };
        assert_eq!(got, [(1, first), (2, second)]);
        assert_eq!((r.queues[0].late(), own(&log)), (1, vec![]));
        let next = if dies { Status::ZoneReadOnly } else { Status::Ok };
        r.submit(1, [append(0, 8, 0)]);
        while r.done.is_empty() {
            r.now.0 += 10;
            r.poll(1);
        }
        assert_eq!(r.done[0].status, next);
    }
}
