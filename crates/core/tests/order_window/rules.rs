//! One rule of the order window at a time.

use super::common::*;
use std::sync::Arc;
use zoneplug_core::disk::{WindowCounters, ZoneRecovery};
use zoneplug_core::zone::Condition;
use zoneplug_core::{Bios, Flags, Nanos, Op, Status, ZoneNo, lost_bios};
use zoneplug_devices::emu::ZonesInUse;

const WINDOW: Nanos = Nanos(1000);
const EARLY: Status = Status::NotAtWritePointer;

/// A disk of 4 zones of 64 sectors, 48 of which can be written, with a window of 1000 ns and three queues.
pub(super) fn windowed(f: impl FnOnce(&mut Make)) -> Rig {
    let mut m = make(4, 64, 48).queues(&[(64, 8), (64, 8), (64, 1)]);
    m.config.order_window = WINDOW;
    f(&mut m);
    m.rig()
}

fn window(r: &Rig) -> WindowCounters {
    r.disk.counters().window
}

/// What has come back so far, as tokens and statuses in order.
fn back(r: &mut Rig) -> Vec<(u64, Status)> {
    for q in (0..r.queues.len()).chain(0..r.queues.len()) {
        r.poll(q);
    }
    r.done.drain(..).map(|b| (b.token(), b.status)).collect()
}

/// Until nothing is at the device. What is held does not make time pass.
pub(super) fn rest(r: &mut Rig) {
    loop {
        (0..r.queues.len()).for_each(|q| r.poll(q));
        if !r.queues.iter().any(|q| q.is_busy()) {
            return;
        }
        let next = r.queues.iter().filter_map(|q| q.next_deadline()).min();
        r.now = next.unwrap_or(r.now).max(r.now);
    }
}

/// Lets time pass to `at` without a poll, and then looks.
fn back_at(r: &mut Rig, at: u64) -> Vec<(u64, Status)> {
    r.now = Nanos(at);
    back(r)
}

/// H1.
#[test]
fn h1_without_a_window_an_early_write_is_refused_at_once() {
    let mut m = make(4, 64, 48);
    m.emu.latency = Nanos(0);
    let mut r = m.rig();
    assert_eq!(r.disk.attribute("order_window").as_deref(), Some("0"));
    assert!(!r.disk.is_timed(), "the layer does not use the time");
    r.submit(0, [token(write(8, 8), 1)]);
    assert_eq!(back(&mut r), [(1, EARLY)]);
    assert_eq!(window(&r), WindowCounters::default());
    // Also on a disk without plugs, where there is nothing to wait for.
    let r = windowed(|m| m.config.mode = zoneplug_core::disk::Mode::None);
    assert_eq!(r.disk.attribute("order_window"), None);
}

/// H1: a new value holds for writes that come from then on.
#[test]
fn h1_the_window_can_be_changed_while_the_disk_is_in_use() {
    let mut r = make(4, 64, 48).rig();
    r.disk.set_attribute("order_window", "2ms").unwrap();
    assert_eq!(r.disk.attribute("order_window").as_deref(), Some("2"));
    assert!(r.disk.is_timed());
    r.submit(0, [token(write(8, 8), 1)]);
    r.disk.set_attribute("order_window", "0").unwrap();
    r.submit(0, [token(write(24, 8), 2)]);
    assert_eq!(back(&mut r), [(2, EARLY)]);
    assert_eq!(back_at(&mut r, 1_999_999), []);
    assert_eq!(back_at(&mut r, 2_000_000), [(1, EARLY)]);
}

/// H2: a held write has no tag, no plug slot, no open zone, no place in the single writer's list, and is no work.
#[test]
fn h2_a_held_write_has_not_been_accepted() {
    for single_writer in [false, true] {
        let mut r = windowed(|m| {
            m.emu.limits.max_open_zones = 1;
            m.emu.limits.max_active_zones = 1;
            m.config.zoned_qd1_writes = Some(single_writer);
        });
        // Queue 2 has one tag.
        r.submit(
            2,
            [token(write(8, 8), 1), token(write(64 + 8, 8), 2), token(write(128 + 8, 8), 3)],
        );
        assert_eq!(back(&mut r), []);
        assert_eq!((window(&r).writes, window(&r).sectors, window(&r).held), (3, 24, 3));
        assert_eq!((r.queues[2].outstanding(), r.queues[2].is_busy()), (3, false));
        assert_eq!((r.cached(0), r.wp(1)), (Some((Condition::Empty, 0)), 0));
        assert_eq!((r.disk.counters().waiting, r.disk.counters().live_plugs), (0, 0));
        assert!(r.disk.single_writer().listed.is_empty());
        assert_eq!(r.dev.zones_in_use(), ZonesInUse::default());
        r.submit(2, [token(write(192, 8), 4)]);
        r.step();
        assert_eq!(back(&mut r), [(4, Status::Ok)], "it has the tag and the open zone");
        assert_eq!(r.commands(Op::Write), 1);
        assert_eq!(back_at(&mut r, 1000), [(1, EARLY), (2, EARLY), (3, EARLY)]);
        assert_eq!((r.commands(Op::Write), r.wp(0)), (1, 0), "W9: nothing has changed");
    }
}

/// H2: the write pointer, the end of the zone, and conventional zones are no places before the turn.
#[test]
fn h2_only_a_write_past_the_write_pointer_and_within_the_capacity_is_held() {
    let mut r =
        windowed(|m| m.emu.geometry = m.emu.geometry.with_conventional([ZoneNo(3)]).unwrap());
    assert_eq!(r.status(write(0, 8)), Status::Ok);
    let cases = [(4, 4), (0, 8), (44, 8), (48, 4)];
    for (n, (at, len)) in (0..).zip(cases) {
        r.submit(0, [token(write(at, len), n)]);
        assert_eq!(back(&mut r), [(n, EARLY)], "{at}+{len}");
    }
    assert_eq!(r.status(write(192 + 8, 8)), Status::Ok, "a conventional zone is written anywhere");
    // A write that spans zones.
    r.submit(0, [token(write(40, 32), 9)]);
    assert_eq!(back(&mut r), [(9, EARLY)]);
    assert_eq!(window(&r).held, 0);
    r.submit(0, [token(write(40, 8), 10)]);
    assert_eq!((back(&mut r), window(&r).held), (vec![], 1), "up to the capacity");
}

/// H3: the held writes follow at once, merge, and come before what is submitted later.
/// W15.
#[test]
fn h3_when_the_gap_fills_the_held_writes_follow() {
    let mut r = windowed(|_| {});
    for (q, at) in [(0, 32), (1, 16), (0, 24)] {
        r.submit(q, [token(write(at, 8), at)]);
    }
    assert_eq!(back(&mut r), []);
    r.submit(1, [token(write(0, 16), 0), token(write(16, 8), 99)]);
    assert_eq!(r.wp(0), 40, "all of them are reserved");
    let done = r.finish();
    let s: Vec<_> = done.iter().map(|b| (b.token(), b.status)).collect();
    let ok = Status::Ok;
    // The run of queue 1 is one admission: its second BIO takes the place of the held one.
    assert_eq!(s, [(0, ok), (16, EARLY), (24, ok), (32, ok), (99, ok)]);
    assert_eq!(r.commands(Op::Write), 1, "one command");
    assert_eq!(r.medium(0, 40), (0..40).collect::<Vec<_>>());
    let w = window(&r);
    assert_eq!((w.held, w.admitted, w.dropped, w.writes), (3, 2, 1, 0));
}

/// H3: a write to the place of a held one comes too late, even in the call that fills the gap.
#[test]
fn h3_a_later_write_does_not_overtake_a_held_one() {
    let mut r = windowed(|_| {});
    r.submit(0, [token(write(8, 8), 1)]);
    // A flush between the two keeps them from being one run.
    let list =
        [token(write(0, 8), 2), token(op(Op::Flush, 0, 0), 3), token(write_as(8, 8, 100), 4)];
    r.submit(1, list);
    let s: Vec<_> = r.finish().iter().map(|b| (b.token(), b.status)).collect();
    assert_eq!(s, [(1, Status::Ok), (2, Status::Ok), (3, Status::Ok), (4, EARLY)]);
    assert_eq!(r.medium(8, 8), (8..16).collect::<Vec<_>>());
}

/// H3: a zone without held writes is again like any other: its next write takes no lock.
#[test]
fn h3_the_zone_is_like_any_other_afterwards() {
    let mut r = windowed(|_| {});
    r.submit(0, [token(write(8, 8), 1), token(op(Op::Flush, 0, 0), 2), token(write(0, 8), 3)]);
    assert_eq!(r.finish().len(), 3);
    let parked = r.disk.counters().plugs.parked;
    assert_eq!(r.status(write(16, 8)), Status::Ok);
    assert_eq!(r.disk.counters().plugs.parked, parked, "it did not wait");
}

/// H4: of two writes that overlap, the one that came first is held.
#[test]
fn h4_a_write_that_overlaps_a_held_one_is_refused() {
    let mut r = windowed(|_| {});
    r.submit(0, [token(write(16, 8), 0)]);
    for (n, at, len) in [(1, 16, 8), (2, 12, 5), (3, 23, 1), (4, 10, 20), (5, 18, 2)] {
        r.submit(1, [token(write(at, len), n)]);
        assert_eq!(back(&mut r), [(n, EARLY)], "{at}+{len}");
    }
    r.submit(1, [token(write(8, 8), 6), token(write(24, 8), 7)]);
    assert_eq!((back(&mut r), window(&r).writes), (vec![], 3), "next to it there is room");
}

/// H4: a held write is in the way of nothing that a disk without a window would accept.
#[test]
fn h4_what_is_at_the_write_pointer_is_admitted_whatever_is_held() {
    let mut r = windowed(|_| {});
    r.submit(0, [token(write(16, 8), 1), token(write(24, 8), 2), token(write(40, 8), 3)]);
    r.submit(1, [token(write(0, 20), 4)]);
    let done = back(&mut r);
    assert_eq!(done, [(1, EARLY)], "its place is taken; the next two wait");
    assert_eq!(window(&r).writes, 2);
    r.submit(1, [token(write(20, 28), 5)]);
    let s: Vec<_> = r.finish().iter().map(|b| (b.token(), b.status)).collect();
    assert_eq!(s, [(2, Status::ZoneFull), (3, Status::ZoneFull), (4, Status::Ok), (5, Status::Ok)]);
    let w = window(&r);
    assert_eq!((w.writes, w.dropped, w.admitted), (0, 3, 0));
    assert_eq!(r.cached(0), Some((Condition::Full, 64)));
}

/// H4: an append takes the place at the write pointer, as ever.
/// A3.
#[test]
fn h4_an_append_may_fill_a_gap_and_may_overtake() {
    let mut r = windowed(|_| {});
    r.submit(0, [token(write(8, 8), 1)]);
    let mut a = append(0, 8, 500);
    a.set_token(2);
    r.submit(1, [a]);
    let done = r.finish();
    assert_eq!((done[0].status, done[1].status, done[1].sector.0), (Status::Ok, Status::Ok, 0));
    r.submit(0, [token(write(24, 8), 3)]);
    r.submit(1, [token(append(0, 12, 600), 4)]);
    let done = r.finish();
    assert_eq!((done[0].status, done[1].status, done[1].sector.0), (EARLY, Status::Ok, 16));
    assert_eq!(r.medium(16, 12), (600..612).collect::<Vec<_>>());
}

/// H5: neither too early nor for ever; every queue knows the time, and any queue sees to it.
#[test]
fn h5_a_held_write_is_refused_when_its_time_is_over() {
    let mut r = windowed(|_| {});
    r.now = Nanos(50);
    r.submit(0, [token(write(8, 8), 1)]);
    r.now = Nanos(250);
    r.submit(1, [token(write(64 + 8, 8), 2)]);
    for q in &r.queues {
        assert_eq!(q.next_deadline(), Some(Nanos(1050)));
    }
    assert_eq!(back_at(&mut r, 1049), []);
    // Queue 2 has nothing to do with it.
    r.now = Nanos(1050);
    r.poll(2);
    assert!(r.queues[0].has_completions(), "it was delivered to its owner");
    assert_eq!(back(&mut r), [(1, EARLY)]);
    assert_eq!(r.queues[2].next_deadline(), Some(Nanos(1250)));
    assert_eq!(back_at(&mut r, 1250), [(2, EARLY)]);
    assert_eq!((r.queues[0].next_deadline(), window(&r).expired), (None, 2));
    assert_eq!(r.disk.counters().plugs.rejected.by(EARLY), 2);
    assert_eq!((r.run(0, [write(0, 8)]), r.wp(0)), (vec![Status::Ok], 8), "W9");
}

/// H5: a submit looks at the window before it takes anything, so a gap that fills too late does not help.
#[test]
fn h5_a_gap_that_fills_too_late_admits_nothing() {
    let mut r = windowed(|_| {});
    r.submit(0, [token(write(8, 8), 1)]);
    r.now = Nanos(1000);
    r.submit(1, [token(write(0, 8), 2)]);
    let s: Vec<_> = r.finish().iter().map(|b| (b.token(), b.status)).collect();
    assert_eq!(s, [(1, EARLY), (2, Status::Ok)]);
}

/// H7.
/// W11.
#[test]
fn h7_a_write_that_may_not_wait_is_refused() {
    let mut r = windowed(|_| {});
    r.submit(0, [token(flags(write(8, 8), Flags::NOWAIT), 1)]);
    assert_eq!((back(&mut r), window(&r).held), (vec![(1, EARLY)], 0));
}

/// H8: what ends the zone as it was ends what is held, with the status of a write that came now.
/// M4.
#[test]
fn h8_held_writes_do_not_outlive_what_they_were_sent_to() {
    use Status as S;
    let held = |r: &mut Rig| r.submit(1, [token(write(16, 8), 7), token(write(24, 8), 8)]);
    for strict in [false, true] {
        for (what, status) in
            [(Op::ZoneReset, EARLY), (Op::ZoneResetAll, EARLY), (Op::ZoneFinish, S::ZoneFull)]
        {
            let mut r = windowed(|m| m.config.strict_management = strict);
            assert_eq!(r.status(write(0, 8)), S::Ok);
            held(&mut r);
            let all = what == Op::ZoneResetAll;
            r.submit(0, [token(op(what, 0, if all { 0 } else { 64 }), 1)]);
            assert_eq!(back(&mut r), [], "M2: nothing happens before it has succeeded");
            assert!(r.step());
            let got = back(&mut r);
            assert!(got.contains(&(7, status)) && got.contains(&(8, status)), "{what:?}: {got:?}");
            assert_eq!((window(&r).writes, window(&r).dropped), (0, 2));
            if what != Op::ZoneFinish {
                assert_eq!(r.run(0, [write(0, 16)]), [S::Ok]);
                assert_eq!(r.wp(0), 16, "nothing of the old writes follows");
            }
        }
        // One that fails has changed nothing.
        let mut r = windowed(|m| m.config.strict_management = strict);
        held(&mut r);
        r.fail(Op::ZoneReset, S::Io);
        r.submit(0, [token(op(Op::ZoneReset, 0, 64), 1)]);
        r.step();
        assert_eq!(back(&mut r), [(1, S::Io)]);
        r.submit(0, [token(write(0, 16), 2)]);
        assert_eq!(r.finish().len(), 3, "they follow");
        assert_eq!(r.wp(0), 32);
    }
}

/// H8: a zone that takes no writes any more has nothing to wait for.
#[test]
fn h8_a_zone_that_takes_no_writes_holds_none() {
    use Status as S;
    for (fails, status) in [
        (S::Io, S::StaleWritePointer),
        (S::ZoneReadOnly, S::ZoneReadOnly),
        (S::ZoneOffline, S::ZoneOffline),
    ] {
        let mut r = windowed(|_| {});
        r.submit(1, [token(write(16, 8), 7)]);
        r.fail(Op::Write, fails);
        r.submit(0, [token(write(0, 8), 1)]);
        r.step();
        let mut got = back(&mut r);
        got.sort_unstable_by_key(|g| g.0);
        assert_eq!(got, [(1, fails), (7, status)]);
        r.submit(1, [token(write(16, 8), 8)]);
        assert_eq!(back(&mut r), [(8, status)], "it holds no new ones");
        assert_eq!(window(&r).writes, 0);
    }
}

/// H8: a failure that changes nothing leaves what is held; the gap can still fill.
/// E1, E12.
#[test]
fn h8_held_writes_wait_for_a_zone_that_goes_on() {
    use Status as S;
    for fails in [S::OpenLimit, S::Io] {
        let mut r = windowed(|m| m.config.zone_recovery = Some(ZoneRecovery::Auto));
        r.submit(1, [token(write(16, 8), 7)]);
        r.fail(Op::Write, fails);
        r.submit(0, [token(write(0, 8), 1), token(op(Op::Flush, 0, 0), 2), token(write(8, 4), 3)]);
        rest(&mut r);
        let mut got = back(&mut r);
        got.sort_unstable_by_key(|g| g.0);
        assert_eq!(got, [(1, fails), (2, S::Ok), (3, S::AbortedBehind)]);
        assert_eq!((r.wp(0), window(&r).writes), (0, 1));
        r.submit(0, [token(write(0, 16), 4)]);
        r.drain();
        assert_eq!(r.wp(0), 24, "{fails}");
        assert_eq!(r.medium(16, 8), (16..24).collect::<Vec<_>>());
    }
}

/// H8: a report that moves the write pointer to a held write admits it, and past it refuses it.
/// E10.
#[test]
fn h8_a_resync_may_fill_the_gap() {
    for (moved, want, wp) in [(8, Status::Ok, 16), (12, EARLY, 12), (4, EARLY, 4)] {
        let mut r = windowed(|_| {});
        r.submit(1, [token(write(8, 8), 7)]);
        r.dev.set_write_pointer(ZoneNo(0), moved);
        assert_eq!(r.status_of_resync(), Status::Ok);
        r.drain();
        let done: Vec<_> = r.done.drain(..).map(|b| (b.token(), b.status)).collect();
        assert_eq!(done, [(7, want)], "{moved}");
        assert_eq!((r.wp(0), r.device_wp(0)), (wp, wp));
    }
}

impl Rig {
    /// A resync through queue 0. Other queues are not polled.
    fn status_of_resync(&mut self) -> Status {
        self.submit(0, [flags(report(0, 4), Flags::RESYNC)]);
        let mut done = Bios::new();
        while done.is_empty() {
            self.queues[0].poll(self.now, &mut done);
            self.now = self.queues[0].next_deadline().unwrap_or(self.now).max(self.now);
        }
        done[0].status
    }
}

/// H8: a revalidation that finds a zone as it was leaves what is held.
#[test]
fn h8_a_revalidation_ends_what_is_held_only_where_it_changes_the_zone() {
    let mut r = windowed(|_| {});
    assert_eq!(r.status(write(64, 4)), Status::Ok);
    let held = [(8, 1), (64 + 8, 2), (128 + 8, 3), (192 + 8, 4)];
    r.submit(1, held.map(|(at, t)| token(write(at, 8), t)));
    r.dev.set_write_pointer(ZoneNo(2), 4);
    assert!(r.dev.set_condition(ZoneNo(3), Condition::ReadOnly));
    let mut v = r.disk.revalidate();
    loop {
        if let Some(result) = v.poll(&mut r.queues[0], r.now) {
            break result.unwrap();
        }
        r.poll(1);
        r.poll(2);
        let next = r.queues[0].next_deadline();
        r.now = next.unwrap_or(r.now).max(r.now);
    }
    drop(v);
    let mut got = back(&mut r);
    got.sort_unstable_by_key(|g| g.0);
    assert_eq!(got, [(3, EARLY), (4, Status::ZoneReadOnly)]);
    r.submit(0, [token(write(0, 8), 5), token(write(64 + 4, 4), 6)]);
    let s: Vec<_> = r.finish().iter().map(|b| (b.token(), b.status)).collect();
    assert_eq!(s, [1, 2, 5, 6].map(|t| (t, Status::Ok)));
}

/// H9: a freeze does not wait for held writes, and their time stands still.
/// W22.
#[test]
fn h9_a_freeze_stops_the_time_of_held_writes() {
    let mut r = windowed(|_| {});
    r.submit(0, [token(write(8, 8), 1)]);
    assert_eq!(back_at(&mut r, 400), []);
    let freeze = r.disk.begin_freeze();
    assert_eq!(back(&mut r), []);
    assert!(freeze.poll(), "the disk is drained");
    assert_eq!(r.queues[0].next_deadline(), None);
    assert_eq!(back_at(&mut r, 50_000), []);
    drop(freeze);
    assert_eq!(r.queues[0].next_deadline(), Some(Nanos(0)), "the next call, whenever it comes");
    assert_eq!(back(&mut r), []);
    assert_eq!(r.queues[0].next_deadline(), Some(Nanos(50_600)), "600 of 1000 are left");
    assert_eq!(back_at(&mut r, 50_599), []);
    assert_eq!(back_at(&mut r, 50_600), [(1, EARLY)]);
}

/// H10: nothing of a client that goes away stays, and the others' writes do.
#[test]
fn h10_a_client_takes_its_held_writes_with_it() {
    let before = lost_bios();
    let mut r = windowed(|m| m.emu.limits.max_transfer_sectors = 4);
    r.submit(0, [token(write(8, 8), 1), token(write(64 + 8, 8), 2)]);
    r.submit(1, [token(write(16, 8), 3)]);
    // They come back where a client is still there to take them.
    r.queues[0].refuse_held();
    assert_eq!(back(&mut r), [(1, EARLY), (2, EARLY)]);
    r.submit(0, [token(write(8, 8), 4), token(write(64 + 8, 8), 5)]);
    let gone = r.queues.remove(0);
    assert_eq!(gone.outstanding(), 2);
    drop(gone);
    assert_eq!((window(&r).writes, lost_bios()), (1, before));
    r.submit(0, [token(write(0, 16), 6)]);
    let s: Vec<_> = r.finish().iter().map(|b| (b.token(), b.status)).collect();
    assert_eq!(s, [(3, Status::Ok), (6, Status::Ok)]);
    assert_eq!(r.wp(0), 24);
}

/// H11: a write that is longer than a command is held as a whole, and no other write comes between its parts.
/// W6.
#[test]
fn h11_a_split_write_is_held_as_a_whole() {
    let mut r = windowed(|m| m.emu.limits.max_transfer_sectors = 4);
    r.submit(0, [token(write(8, 15), 1)]);
    assert_eq!((window(&r).writes, window(&r).sectors), (1, 15));
    r.submit(1, [token(write(0, 8), 2), token(op(Op::Flush, 0, 0), 3), token(write(23, 1), 4)]);
    let s: Vec<_> = r.finish().iter().map(|b| b.status).collect();
    assert_eq!(s, [Status::Ok; 4]);
    assert_eq!((r.medium(0, 24), window(&r).admitted), ((0..24).collect(), 1));
    // One that expires comes back once, with all of its memory.
    r.submit(0, [token(write(32, 12), 5)]);
    r.now = Nanos(r.now.0 + 1000);
    r.poll(0);
    let bio = r.done.pop().unwrap();
    assert_eq!((bio.token(), bio.status, bio.data().len()), (5, EARLY, 12 << 9));
    assert_eq!((r.queues[0].outstanding(), window(&r).expired), (0, 1));
}

/// H11: FUA and preflush are those of the command that carries the write.
/// W16.
#[test]
fn h11_flags_are_carried_out_with_the_write() {
    let m = make(4, 64, 48);
    let dev = zoneplug_devices::emu::EmuDisk::new(m.emu).unwrap();
    let seen: Arc<std::sync::Mutex<Vec<(u64, Flags)>>> = Arc::default();
    let log = seen.clone();
    let device = wrapped(dev, move |inner| Box::new(Watch { inner, log: log.clone() }));
    let config = zoneplug_core::disk::DiskConfig { order_window: WINDOW, ..Default::default() };
    let disk = open(device, config);
    let mut queue = disk.open_polled_queue(16, 4).unwrap();
    let fua = flags(write(8, 8), Flags::FUA);
    let preflush = flags(write(16, 8), Flags::PREFLUSH);
    queue.submit(Nanos(0), &mut [preflush, fua].into());
    assert!(seen.lock().unwrap().is_empty());
    queue.submit(Nanos(0), &mut [write(0, 8)].into());
    let (mut done, mut now) = (Bios::new(), Nanos(0));
    while queue.outstanding() > 0 {
        queue.poll(now, &mut done);
        now = queue.next_deadline().unwrap_or(now).max(now);
    }
    let none = Flags::NONE;
    assert_eq!(*seen.lock().unwrap(), [(0, none), (8, Flags::FUA), (16, Flags::PREFLUSH)]);
}

struct Watch {
    inner: Box<dyn zoneplug_core::Queue>,
    log: Arc<std::sync::Mutex<Vec<(u64, Flags)>>>,
}

impl zoneplug_core::Queue for Watch {
    fn submit(&mut self, now: Nanos, commands: &mut zoneplug_core::Commands) {
        let writes = commands.iter().filter(|c| c.op == Op::Write);
        self.log.lock().unwrap().extend(writes.map(|c| (c.sector.0, c.flags)));
        self.inner.submit(now, commands);
    }
    fn poll(&mut self, now: Nanos, done: &mut zoneplug_core::Commands) {
        self.inner.poll(now, done);
    }
    fn next_deadline(&self) -> Option<Nanos> {
        self.inner.next_deadline()
    }
    fn arm(&mut self) {
        self.inner.arm();
    }
}

/// H12, T2: the plug dump shows a zone that has held writes, also one that is idle.
#[test]
fn h12_the_plug_dump_shows_what_is_held() {
    let mut r = windowed(|_| {});
    r.submit(0, [token(write(8, 8), 1), token(write(24, 8), 2)]);
    let mut dump = String::new();
    r.disk.zone_wplugs(&mut dump).unwrap();
    let line = "Zone no: 0, flags: 0x0, ref: 1, cond: EMPTY, wp ofst: 0, pending BIO: 0, held: 2\n";
    assert_eq!(dump, line);
    back_at(&mut r, 1000);
    dump.clear();
    r.disk.zone_wplugs(&mut dump).unwrap();
    assert_eq!(dump, "");
}

/// The deadline of commands does not apply to a write that is no command: it has its own.
/// H5.
#[test]
fn a_held_write_outlives_the_deadline_of_commands() {
    let mut r = windowed(|m| m.config.timeout = Some(Nanos(300)));
    r.submit(0, [token(write(8, 8), 1)]);
    assert_eq!(back_at(&mut r, 900), []);
    r.submit(0, [token(write(0, 8), 2)]);
    let s: Vec<_> = r.finish().iter().map(|b| (b.token(), b.status)).collect();
    assert_eq!(s, [(1, Status::Ok), (2, Status::Ok)]);
}
