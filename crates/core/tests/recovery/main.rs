//! E12: with `zone_recovery=auto` the layer asks the device where the write pointer is after an error, and the zone
//! goes on from there. One write of a zone is in flight here; `tests/ordered` has the zones with several.
#![allow(clippy::unwrap_used, clippy::vec_box)]

mod answers;
#[path = "../common/mod.rs"]
mod common;
mod device;
mod late;
mod resets;

use common::*;
use device::*;
use zoneplug_core::disk::{DiskConfig, ZoneRecovery};
use zoneplug_core::sched::Scheduler;
use zoneplug_core::zone::Condition;
use zoneplug_core::{Nanos, Op, Random, Status, ZoneNo};
use zoneplug_devices::emu::Fault;

/// After an error with an unknown outcome the zone is usable, wherever the error left the write pointer. A client of
/// positional writes and a client of appends both get the true status.
#[test]
fn e12_a_zone_goes_on_from_what_the_device_says() {
    use Status as S;
    for status in [S::Io, S::Medium, S::ShortTransfer, S::NoSpace, S::UnalignedWrite] {
        for left in [0, 3, 8] {
            let (mut r, log) = rig();
            assert_eq!(r.status(write(0, 8)), S::Ok);
            torn(&r, status, left);
            r.submit(0, [token(write(8, 8), 0)]);
            r.submit(0, [token(write(16, 8), 1), token(append(0, 8, 0), 2)]);
            let done = r.finish();
            let s: Vec<_> = done.iter().map(|b| b.status).collect();
            assert_eq!(
                s,
                [status, S::AbortedBehind, S::AbortedBehind],
                "E1: nothing is sent again"
            );
            settle(&mut r);
            let wp = 8 + u64::from(left);
            assert_eq!(r.cached(0), Some((Condition::Active, wp)), "{status} {left}");
            assert_eq!(own(&log), [0]);
            let a = r.one(append(0, 4, 100));
            assert_eq!((a.status, a.sector.0), (S::Ok, wp));
            assert_eq!(r.status(write(wp + 4, 4)), S::Ok);
            assert_eq!(r.medium(0, 8), (0..8).collect::<Vec<_>>(), "what was acknowledged");
            assert_eq!(r.medium(wp, 4), [100, 101, 102, 103]);
            let c = r.disk.counters().plugs;
            assert_eq!((c.lost, c.resynced, c.missing, c.retried), (1, 1, 0, 0));
        }
    }
}

/// E3: the attribute, its default, its names; with `client` no report is sent.
#[test]
fn e12_the_attribute_says_who_recovers() {
    let value = |r: &Rig| r.disk.attribute("zone_recovery");
    let native = |m: &mut Make| m.emu.limits.zone_append_max_sectors = 16;
    assert_eq!(value(&rig().0).as_deref(), Some("auto"), "appends are emulated");
    assert_eq!(value(&rig_with(&[], native).0).as_deref(), Some("client"), "they are not");
    let (r, _) = rig_with(&[], |m| {
        native(m);
        m.config.emulate_append = true;
    });
    assert_eq!(value(&r).as_deref(), Some("auto"));
    let (r, _) = rig_with(&[], |m| m.config.mode = zoneplug_core::disk::Mode::None);
    assert_eq!(value(&r), None, "a disk without plugs");

    let (mut r, log) = rig();
    let e = r.disk.set_attribute("zone_recovery", "always").unwrap_err();
    assert_eq!(e.what(), "zone_recovery is one of auto, client, not always");
    r.disk.set_attribute("zone_recovery", "client").unwrap();
    r.fail(Op::Write, Status::Io);
    assert_eq!(r.status(write(0, 8)), Status::Io);
    assert_eq!(r.status(write(0, 8)), Status::StaleWritePointer);
    assert_eq!(own(&log), []);
    r.disk.set_attribute("zone_recovery", "auto").unwrap();
    assert_eq!(r.status(append(0, 8, 0)), Status::StaleWritePointer, "for the next failure");
    r.report(0, 1);
    r.fail(Op::Write, Status::Io);
    assert_eq!(r.status(write(0, 8)), Status::Io);
    assert_eq!(r.status(write(0, 8)), Status::Ok);
}

/// What comes while the report is on its way waits for it: an append, and a write to the place of the one that failed.
/// They are placed from what the report says.
#[test]
fn e12_appends_wait_for_the_report() {
    for left in [0, 4] {
        let (mut r, log) = rig();
        until_asked(&mut r, &log, left);
        r.submit(1, [token(append(0, 8, 50), 1)]);
        r.submit(0, [token(append(0, 8, 70), 2)]);
        r.step();
        assert!(r.done.is_empty());
        assert_eq!(r.commands(Op::Write), 2, "nothing is sent");
        log.lock().unwrap().hold_own = false;
        let done = r.finish();
        let at = 8 + u64::from(left);
        let got: Vec<_> = done.iter().map(|b| (b.status, b.sector.0)).collect();
        assert_eq!(got, [(Status::Ok, at), (Status::Ok, at + 8)]);
        assert_eq!(r.medium(at, 1), [50]);
        assert_eq!(r.medium(at + 8, 1), [70]);
    }
}

/// A positional write that tries again waits too, and goes only where its client said.
#[test]
fn e12_a_write_to_the_same_place_waits_and_is_never_moved() {
    for (left, expected) in [(0, Status::Ok), (4, Status::AbortedBehind)] {
        let (mut r, log) = rig();
        until_asked(&mut r, &log, left);
        assert_eq!(
            one_of(&mut r, 0, token(write(16, 8), 77)).status,
            Status::NotAtWritePointer,
            "refused as ever"
        );
        r.submit(0, [token(write(8, 8), 1)]);
        r.step();
        assert!(r.done.is_empty());
        log.lock().unwrap().hold_own = false;
        assert_eq!(r.finish()[0].status, expected);
        let wp = if left == 0 { 16 } else { 12 };
        assert_eq!((r.cached(0), r.device_wp(0)), (Some((Condition::Active, wp)), wp));
    }
}

/// M4: a reset, a finish, the death of the zone or a native append end the recovery: its answer is not believed, and
/// what waited is aborted.
#[test]
fn e12_management_ends_a_recovery() {
    for what in [Op::ZoneReset, Op::ZoneFinish, Op::ZoneResetAll] {
        let (mut r, log) = rig();
        until_asked(&mut r, &log, 4);
        r.submit(1, [token(append(0, 8, 0), 1)]);
        let len = if what == Op::ZoneResetAll { 0 } else { 64 };
        r.submit(0, [token(op(what, 0, len), 2)]);
        let done = r.finish();
        assert_eq!(done[0].status, Status::AbortedByManagement);
        assert_eq!(done[1].status, Status::Ok);
        if what != Op::ZoneFinish {
            // Of the new generation, before the answer of the old one is seen.
            assert_eq!(r.run(1, [write(0, 8), append(0, 8, 0)]), [Status::Ok; 2]);
        }
        let_go(&mut r, &log);
        let wp = if what == Op::ZoneFinish { 64 } else { 16 };
        assert_eq!((r.wp(0), r.device_wp(0)), (wp, wp));
        assert!(!r.queues[0].is_busy());
    }
}

/// A7: from a native append on the layer does not know the write pointer; no answer from before changes that.
#[test]
fn e12_a_native_append_ends_a_recovery() {
    let (mut r, log) = rig_with(&[(64, 8), (64, 8)], |m| {
        m.emu.limits.zone_append_max_sectors = 16;
        m.config.zone_recovery = Some(ZoneRecovery::Auto);
    });
    until_asked(&mut r, &log, 4);
    let a = one_of(&mut r, 1, token(append(0, 8, 70), 5));
    assert_eq!((a.status, a.sector.0), (Status::Ok, 12));
    let_go(&mut r, &log);
    assert_eq!(r.status(write(12, 8)), Status::StaleWritePointer, "the device is at 20");
    r.report(0, 1);
    assert_eq!(r.status(write(20, 8)), Status::Ok);
}

/// R32: a zone that the report says is read-only or offline takes no writes, and what waited fails.
#[test]
fn e12_a_zone_that_died_meanwhile_stays_dead() {
    for cond in [Condition::ReadOnly, Condition::Offline] {
        let (mut r, log) = rig();
        log.lock().unwrap().hold_own = true;
        assert_eq!(r.status(write(0, 8)), Status::Ok);
        r.fail(Op::Write, Status::Io);
        r.submit(0, [token(write(8, 8), 0)]);
        r.dev.set_condition(ZoneNo(0), cond);
        r.finish();
        r.submit(1, [token(append(0, 8, 0), 1)]);
        log.lock().unwrap().hold_own = false;
        assert_eq!(r.finish()[0].status, Status::AbortedBehind);
        let sent = r.commands(Op::Write);
        assert!(matches!(r.status(append(0, 8, 0)), Status::ZoneReadOnly | Status::ZoneOffline));
        assert_eq!(r.commands(Op::Write), sent);
    }
}

/// Acknowledged data that is not there any more: the zone stays stale, is counted, and nothing is put in its place
/// before the client has looked.
#[test]
fn e12_a_zone_that_lost_acknowledged_data_does_not_go_on() {
    for wp in [0, 4, 7] {
        let (mut r, log) = rig();
        log.lock().unwrap().hold_own = true;
        assert_eq!(r.status(write(0, 8)), Status::Ok);
        r.fail(Op::Write, Status::Io);
        r.submit(0, [token(append(0, 8, 0), 0)]);
        r.dev.set_write_pointer(ZoneNo(0), wp);
        assert_eq!(r.finish()[0].status, Status::Io);
        r.submit(0, [token(append(0, 8, 0), 1)]);
        log.lock().unwrap().hold_own = false;
        assert_eq!(r.finish()[0].status, Status::AbortedBehind);
        assert_eq!(r.cached(0), None);
        assert_eq!(r.status(append(0, 8, 0)), Status::StaleWritePointer);
        let c = r.disk.counters().plugs;
        assert_eq!((c.missing, c.resynced, c.lost), (1, 0, 1));
        r.report(0, 1);
        assert_eq!(r.wp(0), u64::from(wp), "the client has looked");
    }
}

/// E10: what another program wrote behind what was acknowledged is gone on from.
#[test]
fn e12_what_another_program_wrote_is_kept() {
    let (mut r, _) = rig();
    assert_eq!(r.status(write(0, 8)), Status::Ok);
    r.dev.set_write_pointer(ZoneNo(0), 20);
    assert_eq!(r.status(append(0, 8, 0)), Status::UnalignedWrite);
    assert_eq!(r.one(append(0, 8, 0)).sector.0, 20);
}

/// Bounded: a zone that makes no progress is left to the client after three attempts.
#[test]
fn e12_a_zone_that_goes_on_failing_is_given_up() {
    let (mut r, log) = rig();
    let fails = |r: &mut Rig, n: u32| {
        for i in 0..n {
            r.fail(Op::Write, Status::Io);
            assert_eq!(r.status(append(0, 8, 0)), Status::Io, "{i}");
            settle(r);
        }
    };
    fails(&mut r, 4);
    assert_eq!(own(&log).len(), 3);
    assert_eq!(r.status(append(0, 8, 0)), Status::StaleWritePointer);
    // A client that looks begins anew.
    r.report(0, 1);
    fails(&mut r, 4);
    assert_eq!(own(&log).len(), 6);
    // So does a reset,
    assert_eq!(r.status(op(Op::ZoneReset, 0, 64)), Status::Ok);
    fails(&mut r, 3);
    assert_eq!(own(&log).len(), 9);
    // and a write that succeeds.
    assert_eq!(r.status(append(0, 8, 0)), Status::Ok);
    fails(&mut r, 3);
    assert_eq!(own(&log).len(), 12);
    assert_eq!(r.status(append(0, 8, 0)), Status::Ok);
    assert_eq!(r.device_wp(0), 16);
}

/// A timeout says nothing, for the write may be carried out yet: the zone is left to the client. Nor is a later failure
/// recovered from while the late write is still at the device; once it is back, it is.
#[test]
fn e12_what_was_given_up_is_left_to_the_client() {
    let (mut r, log) = rig_with(&[(64, 8), (64, 8)], |m| m.config.timeout = Some(Nanos(500)));
    log.lock().unwrap().hold_writes = true;
    assert_eq!(r.status(write(0, 8)), Status::Timeout);
    assert_eq!(own(&log), []);
    assert_eq!(r.status(append(0, 8, 0)), Status::StaleWritePointer);
    r.report(0, 1);
    log.lock().unwrap().hold_writes = false;
    // On the other queue: the first one is not polled, and has the late write still.
    let fails = |r: &mut Rig| {
        r.fail(Op::Write, Status::Io);
        r.submit(1, [append(0, 8, 0)]);
        while r.done.is_empty() {
            r.now.0 += 50;
            r.poll(1);
        }
        assert_eq!(r.done.remove(0).status, Status::Io);
    };
    fails(&mut r);
    assert_eq!((r.queues[0].late(), own(&log)), (1, vec![]));
    assert_eq!(r.cached(0), None);
    r.poll(0);
    assert_eq!(r.queues[0].late(), 0);
    r.report(0, 1);
    fails(&mut r);
    assert_eq!(own(&log), [0]);
    r.now.0 += 200;
    r.poll(1);
    assert_eq!(r.wp(0), 8);
}

/// A device whose queue panics with the report: the zone is stale, and another queue goes on.
#[test]
fn e12_a_device_that_panics_leaves_the_zone_stale() {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let (mut r, log) = rig_with(&[(64, 8), (64, 8)], |m| m.config.survive_panics = true);
    until_asked(&mut r, &log, 4);
    r.submit(1, [token(append(0, 8, 0), 1)]);
    log.lock().unwrap().panics = true;
    let done = r.finish();
    std::panic::set_hook(hook);
    assert_eq!(done[0].status, Status::AbortedBehind);
    assert_eq!(r.cached(0), None);
    log.lock().unwrap().panics = false;
    assert_eq!(one_of(&mut r, 1, token(report(0, 1), 2)).status, Status::Ok);
    assert_eq!(one_of(&mut r, 1, token(append(0, 8, 0), 3)).sector.0, 12);
    assert_eq!(own(&log).len(), 1);
}

/// R11, I9: a freeze waits for the report and for what waited behind it, and takes nothing from them: one tag is
/// enough.
#[test]
fn e12_a_freeze_waits_for_a_recovery() {
    let (mut r, log) = rig_with(&[(64, 1), (64, 1)], |_| {});
    until_asked(&mut r, &log, 4);
    r.submit(1, [token(append(0, 8, 0), 1)]);
    let freeze = r.disk.begin_freeze();
    for _ in 0..5 {
        r.step();
        assert!(!freeze.poll() && r.queues[0].is_busy());
    }
    log.lock().unwrap().hold_own = false;
    assert_eq!(r.finish()[0].status, Status::Ok);
    r.step();
    assert!(freeze.poll());
    drop(freeze);
    assert_eq!((r.wp(0), r.device_wp(0)), (20, 20));
}

/// R40: a queue that goes away with the report in flight is finished by the others.
#[test]
fn e12_a_queue_that_goes_away_with_its_report() {
    for waits in [false, true] {
        let (mut r, log) = rig();
        until_asked(&mut r, &log, 4);
        if waits {
            r.submit(1, [token(append(0, 8, 0), 1)]);
        }
        drop(r.queues.remove(0));
        log.lock().unwrap().hold_own = false;
        let done = r.finish();
        r.step();
        assert_eq!(done.len(), usize::from(waits));
        assert!(done.iter().all(|b| b.status.is_ok() && b.sector.0 == 12));
        let wp = if waits { 20 } else { 12 };
        assert_eq!(r.cached(0), Some((Condition::Active, wp)));
        let freeze = r.disk.begin_freeze();
        r.step();
        assert!(freeze.poll(), "nothing is left");
    }
}

/// M5: strict management finds the zone busy if writes wait for the report, and only then.
#[test]
fn e12_strict_management_and_a_recovery() {
    for waits in [false, true] {
        let (mut r, log) = rig_with(&[(64, 8), (64, 8)], |m| m.config.strict_management = true);
        until_asked(&mut r, &log, 4);
        if waits {
            r.submit(1, [token(append(0, 8, 0), 1)]);
        }
        let b = one_of(&mut r, 1, token(op(Op::ZoneReset, 0, 64), 2));
        assert_eq!(b.status, if waits { Status::ZoneBusy } else { Status::Ok });
        log.lock().unwrap().hold_own = false;
        let done = r.finish();
        assert!(done.iter().all(|b| b.status.is_ok()));
        settle(&mut r);
        assert_eq!(r.wp(0), if waits { 20 } else { 0 });
        assert_eq!(r.device_wp(0), r.wp(0));
    }
}

/// A reset comes between a write and its end (M4): nothing is acknowledged in the new generation, and what the old
/// write left is found.
#[test]
fn e12_a_failure_from_before_a_reset() {
    let (mut r, log) = rig();
    assert_eq!(r.status(write(0, 8)), Status::Ok);
    log.lock().unwrap().hold_writes = true;
    torn(&r, Status::Io, 4);
    r.submit(0, [token(write(8, 8), 1)]);
    r.step();
    assert_eq!(one_of(&mut r, 1, token(op(Op::ZoneReset, 0, 64), 2)).status, Status::Ok);
    log.lock().unwrap().hold_writes = false;
    assert_eq!(r.finish()[0].status, Status::Io);
    settle(&mut r);
    assert_eq!(r.cached(0), Some((Condition::Empty, 0)));
    assert_eq!(r.status(append(0, 8, 0)), Status::Ok);
}

/// A limit proves that nothing moved: there is nothing to ask.
#[test]
fn e12_a_failure_that_changed_nothing_asks_nothing() {
    for status in [Status::OpenLimit, Status::InvalidField, Status::ZoneReadOnly] {
        let (mut r, log) = rig();
        r.fail(Op::Write, status);
        assert_eq!(r.status(append(0, 8, 0)), status);
        assert_eq!(own(&log), []);
    }
}

/// Schedulers and the single writer: the report takes no place that it does not give back, and the turn goes to others
/// meanwhile.
#[test]
fn e12_under_schedulers_and_a_single_writer() {
    let single = |c: &mut DiskConfig| c.zoned_qd1_writes = Some(true);
    let deadline = |c: &mut DiskConfig| (c.scheduler, c.queue_depth) = (Scheduler::MqDeadline, 1);
    let both = |c: &mut DiskConfig| {
        single(c);
        deadline(c);
    };
    let setups: [&dyn Fn(&mut DiskConfig); 3] = [&single, &deadline, &both];
    for setup in setups {
        let (mut r, log) = rig_with(&[(64, 2), (64, 2)], |m| setup(&mut m.config));
        until_asked(&mut r, &log, 4);
        let scheduled = r.disk.config().scheduler != Scheduler::None;
        if !scheduled {
            // The token is not with the zone that is being asked.
            assert_eq!(r.run(1, [write(64, 8), append(128, 8, 0)]), [Status::Ok; 2]);
        }
        r.submit(1, [token(append(0, 8, 0), 1), token(append(64, 8, 0), 2)]);
        log.lock().unwrap().hold_own = false;
        let done = r.finish();
        assert!(done.iter().all(|b| b.status.is_ok()), "{done:?}");
        assert_eq!(done[0].sector.0, 12);
        settle(&mut r);
        assert_eq!(r.wp(0), 20);
        assert!(r.queues.iter().all(|q| !q.is_busy()));
        for name in ["zoned_qd1_writes", "scheduler"] {
            let value = if name == "scheduler" { "none" } else { "0" };
            let mut change = r.disk.change_attribute(name, value).unwrap();
            for _ in 0..10 {
                r.step();
            }
            assert!(change.poll(), "Q9: nothing is left in {name}");
        }
    }
}

/// Attributes that change meanwhile leave a recovery as it is.
#[test]
fn e12_attributes_that_change_meanwhile() {
    let (mut r, log) = rig();
    until_asked(&mut r, &log, 4);
    for (name, value) in
        [("nomerges", "1"), ("zone_recovery", "client"), ("strict_management", "1")]
    {
        r.disk.set_attribute(name, value).unwrap();
        r.step();
    }
    let_go(&mut r, &log);
    assert_eq!(r.wp(0), 12, "it had begun");
}

/// T2, T5: the dump shows a zone that is being asked as one that needs its write pointer, and zones count it.
#[test]
fn e12_a_recovery_is_shown() {
    let (mut r, log) = rig_with(&[(64, 8)], |m| m.config.zone_counters = true);
    until_asked(&mut r, &log, 4);
    let mut dump = String::new();
    r.disk.zone_wplugs(&mut dump).unwrap();
    assert!(dump.starts_with("Zone no: 0, flags: 0x2, ref: 1, cond: ACTIVE"), "{dump}");
    r.submit(0, [append(0, 8, 0)]);
    dump.clear();
    r.disk.zone_wplugs(&mut dump).unwrap();
    assert!(dump.starts_with("Zone no: 0, flags: 0x3, ref: 3,"), "{dump}");
    log.lock().unwrap().hold_own = false;
    r.finish();
    assert_eq!(r.disk.zone_counters(ZoneNo(0)).unwrap().resynced, 1);
}

/// Any writes, appends, resets and reports of two clients under faults: what was acknowledged is on the medium, in its
/// place, and in the end the layer and the device agree.
#[test]
fn e12_acknowledged_data_survives_any_failures() {
    for seed in 0..200 {
        let mut rng = Random::new(seed);
        let (mut r, log) = rig_with(&[(64, 2), (64, 2)], |m| {
            m.config.nomerges = seed % 2 == 0;
            m.emu.latency = Nanos(u64::from(rng.range(0, 200)));
        });
        let mut next = 1;
        let mut acked: Vec<(u64, u64)> = Vec::new();
        for _ in 0..60 {
            if rng.one_in(4) {
                let status = rng.pick(&[Status::Io, Status::Medium, Status::UnalignedWrite]);
                let torn_sectors = rng.one_in(2).then(|| rng.range(0, 4));
                let skip = u64::from(rng.below(3));
                r.dev.fail_next(Fault { torn_sectors, skip, ..Fault::next(Op::Write, status) });
            }
            log.lock().unwrap().hold_own = rng.one_in(3);
            let q = rng.below(2) as usize;
            let bio = match rng.below(8) {
                0 => report(0, 1),
                1..=3 => match r.cached(0) {
                    Some((_, wp)) if wp < 60 => write_as(wp, 4, next),
                    _ => report(0, 1),
                },
                _ => append(0, 4, next),
            };
            r.submit(q, [token(bio, next)]);
            next += 4;
            for _ in 0..rng.below(4) {
                r.step();
            }
            for b in r.done.drain(..) {
                let data = matches!(b.op, Op::Write | Op::ZoneAppend);
                if data && b.status.is_ok() {
                    acked.push((b.sector.0, b.token()));
                }
            }
        }
        log.lock().unwrap().hold_own = false;
        for b in r.finish() {
            if matches!(b.op, Op::Write | Op::ZoneAppend) && b.status.is_ok() {
                acked.push((b.sector.0, b.token()));
            }
        }
        settle(&mut r);
        assert!(own(&log).iter().all(|&n| n == 0), "seed {seed}: with writes at the device");
        let medium = r.medium(0, 64);
        for (at, stamp) in acked {
            let found = &medium[at as usize..at as usize + 4];
            let expected: Vec<_> = (stamp..stamp + 4).collect();
            assert_eq!(found, expected, "seed {seed}: acknowledged at {at}");
        }
        if let Some((_, wp)) = r.cached(0) {
            assert_eq!(wp, r.device_wp(0), "seed {seed}");
        }
    }
}
