//! M1-M12: zone management and reports as seen through the layer (R7-R9, R29, R45).

use crate::common::*;
use zoneplug_core::zone::{Condition, ZONE_RECORD_LEN};
use zoneplug_core::{Bios, Flags, IoBuf, Op, Status, ZoneNo};
use zoneplug_devices::emu::Fault;

const MANAGEMENT: [Op; 4] = [Op::ZoneReset, Op::ZoneFinish, Op::ZoneOpen, Op::ZoneClose];

/// M1: ranges are whole zones; the last may be short; anything else is refused.
#[test]
fn m1_ranges_are_whole_zones() {
    for what in MANAGEMENT {
        let mut r = make(4, 64, 64).last_zone(20, 20).rig();
        let bad = [
            (1, 64, Status::NotZoneStart),
            (0, 63, Status::NotZoneStart),
            (0, 65, Status::NotZoneStart),
            (0, 0, Status::OutOfRange),
            (192, 21, Status::OutOfRange),
            (192, 64, Status::OutOfRange),
            (256, 64, Status::OutOfRange),
            (u64::MAX - 10, 64, Status::OutOfRange),
        ];
        for (sector, len, status) in bad {
            assert_eq!(r.status(op(what, sector, len)), status, "{what:?} {sector}+{len}");
        }
        assert_eq!(r.commands(what), 0);
        let fills = matches!(what, Op::ZoneReset | Op::ZoneFinish);
        let expected = if what == Op::ZoneClose { Status::InvalidTransition } else { Status::Ok };
        assert_eq!(r.status(op(what, 128, 84)), expected, "{what:?}");
        assert_eq!(r.commands(what), if what == Op::ZoneClose { 1 } else { 2 });
        if fills {
            let cond = if what == Op::ZoneReset { Condition::Empty } else { Condition::Full };
            assert_eq!(r.cached(3).unwrap().0, cond);
        }
    }
}

/// M1: a range is carried out zone by zone and stops at the first error, which is the status.
#[test]
fn m1_a_range_stops_at_the_first_error() {
    let mut r = make(4, 64, 64).rig();
    assert_eq!(r.run(0, (0..4).map(|z| write(z * 64, 8))), [Status::Ok; 4]);
    r.dev.fail_next(Fault { skip: 1, ..Fault::next(Op::ZoneReset, Status::Timeout) });
    assert_eq!(r.status(op(Op::ZoneReset, 0, 192)), Status::Timeout);
    assert!(r.cached(1).is_none(), "it may have happened, or may happen yet");
    r.report(64, 1);
    let wps: Vec<_> = (0..4).map(|z| r.wp(z)).collect();
    assert_eq!((wps, r.commands(Op::ZoneReset)), (vec![0, 8, 8, 8], 2));
}

/// M1, M7: a read-only disk refuses every management operation and every write, and answers reports.
#[test]
fn m1_a_read_only_disk_takes_no_management() {
    let mut r = make(4, 64, 64).limits(|l| l.read_only = true).rig();
    for what in MANAGEMENT {
        assert_eq!(r.status(op(what, 0, 64)), Status::ReadOnlyDisk);
    }
    assert_eq!(r.status(op(Op::ZoneResetAll, 0, 0)), Status::ReadOnlyDisk);
    assert_eq!(r.run(0, [write(0, 8), append(0, 8, 0)]), [Status::ReadOnlyDisk; 2]);
    assert_eq!(r.run(0, [read(0, 8)]), [Status::Ok]);
    assert_eq!(r.report(0, 4).len(), 4);
}

/// M1: a reset of exactly the whole disk is one command, and the BIO says reset still.
#[test]
fn m1_a_reset_of_the_whole_disk_is_a_reset_of_all_zones() {
    let mut r = make(4, 64, 64).conventional(&[0]).rig();
    assert_eq!(r.status(write(64, 8)), Status::Ok);
    let b = r.one(op(Op::ZoneReset, 0, 256));
    assert_eq!((b.status, b.op), (Status::Ok, Op::ZoneReset));
    assert_eq!((r.commands(Op::ZoneReset), r.commands(Op::ZoneResetAll)), (0, 1));
    assert_eq!((r.wp(1), r.device_wp(1)), (0, 0));
    let b = r.one(op(Op::ZoneReset, 64, 192));
    assert_eq!((b.status, r.commands(Op::ZoneReset)), (Status::Ok, 3), "not from 0: zone by zone");
}

/// M2, R8 (B25): a reset or finish that fails changes nothing.
#[test]
fn r8_a_failed_reset_or_finish_leaves_the_write_pointer() {
    for what in [Op::ZoneReset, Op::ZoneFinish, Op::ZoneResetAll] {
        let mut r = make(4, 64, 64).rig();
        assert_eq!(r.status(write(0, 8)), Status::Ok);
        r.fail(what, Status::Io);
        let len = if what == Op::ZoneResetAll { 0 } else { 64 };
        assert_eq!(r.status(op(what, 0, len)), Status::Io);
        if what == Op::ZoneResetAll {
            // Some zones may have been reset before the one that could not be: which, a report says.
            assert_eq!(r.cached(0), None);
            r.report(0, 4);
        }
        assert_eq!(r.wp(0), 8);
        assert_eq!(r.status(write(8, 8)), Status::Ok);
    }
}

/// M2: the state changes when the command completes, not when it is sent.
#[test]
fn m2_the_state_changes_at_completion() {
    let mut r = make(4, 64, 64).rig();
    assert_eq!(r.status(write(0, 8)), Status::Ok);
    r.submit(0, [op(Op::ZoneReset, 0, 64)]);
    assert_eq!(r.wp(0), 8);
    r.finish();
    assert_eq!(r.wp(0), 0);
}

/// M3: reset, finish and reset-all of read-only, offline and full zones.
#[test]
fn m3_reset_all_leaves_read_only_and_offline_zones() {
    let mut r = make(5, 64, 64).conventional(&[0]).rig();
    assert_eq!(r.run(0, (1..5).map(|z| write(z * 64, 8))), [Status::Ok; 4]);
    r.dev.set_condition(ZoneNo(2), Condition::ReadOnly);
    r.dev.set_condition(ZoneNo(3), Condition::Offline);
    r.report(0, 5);
    assert_eq!(r.status(op(Op::ZoneFinish, 256, 64)), Status::Ok);
    assert_eq!(r.cached(4), Some((Condition::Full, 64)));
    assert_eq!(r.status(op(Op::ZoneResetAll, 0, 0)), Status::Ok);
    let conds: Vec<_> = (0..5).map(|z| r.cached(z).unwrap().0).collect();
    use Condition as C;
    assert_eq!(conds, [C::NotWp, C::Empty, C::ReadOnly, C::Offline, C::Empty]);
    assert_eq!(r.status(op(Op::ZoneReset, 128, 64)), Status::ZoneReadOnly);
}

/// M4, R7 (B30): a reset takes those that wait with it, and the zone works again.
#[test]
fn r7_a_reset_with_writes_waiting_leaves_a_zone_that_works() {
    for what in [Op::ZoneReset, Op::ZoneFinish] {
        let mut r = make(4, 64, 64).queues(&[(8, 4), (8, 4)]).rig();
        r.submit(0, [token(write(0, 8), 0)]);
        r.submit(1, [token(write(8, 8), 1), token(append(0, 8, 0), 2)]);
        // On its way before the write has completed; the device answers in order.
        r.submit(1, [token(op(what, 0, 64), 3)]);
        r.now.0 += 100;
        r.poll(1);
        let s: Vec<_> = r.done.iter().map(|b| (b.token(), b.status)).collect();
        assert_eq!(s.len(), 3, "{s:?}");
        assert!(s.contains(&(1, Status::AbortedByManagement)));
        assert!(s.contains(&(2, Status::AbortedByManagement)) && s.contains(&(3, Status::Ok)));
        assert!(r.done.iter().all(|b| b.token() != 2 || b.sector.0 == 0));
        r.drain();
        assert_eq!(r.done.last().unwrap().status, Status::Ok, "the write in flight ends normally");
        r.done.clear();
        assert_eq!(r.disk.counters().live_plugs, 0);
        if what == Op::ZoneReset {
            assert_eq!(r.wp(0), 0, "and does not bring its write pointer back");
            assert_eq!(r.status(write(0, 8)), Status::Ok);
        } else {
            assert_eq!(r.status(write(8, 8)), Status::ZoneFull);
            assert_eq!(r.status(op(Op::ZoneReset, 0, 64)), Status::Ok);
            assert_eq!(r.status(append(0, 8, 0)), Status::Ok);
        }
    }
}

/// M3, M4: reset-all takes what waits in every zone, and the zones work again.
#[test]
fn m4_reset_all_with_writes_waiting() {
    let mut r = make(4, 64, 64).queues(&[(32, 8), (8, 4)]).rig();
    for z in 0..4 {
        r.submit(0, [token(write(z * 64, 8), 0)]);
        r.submit(0, [token(write(z * 64 + 8, 8), 1)]);
    }
    r.submit(1, [token(op(Op::ZoneResetAll, 0, 0), 2)]);
    r.now.0 += 100;
    r.poll(1);
    let done = r.finish();
    for b in &done {
        let expected = if b.token() == 1 { Status::AbortedByManagement } else { Status::Ok };
        assert_eq!(b.status, expected, "{b:?}");
    }
    assert_eq!((done.len(), r.disk.counters().live_plugs), (9, 0));
    assert_eq!(r.run(0, (0..4).map(|z| write(z * 64, 8))), [Status::Ok; 4]);
}

/// M4, R9: a write that fails after a reset has passed it does not undo the reset.
/// P10.
#[test]
fn r9_an_undo_belongs_to_its_generation() {
    let mut r = make(4, 64, 64).queues(&[(8, 4), (8, 4)]).rig();
    assert_eq!(r.status(write(0, 8)), Status::Ok);
    r.fail(Op::Write, Status::OpenLimit);
    r.submit(0, [token(write(8, 8), 0)]);
    r.submit(1, [token(op(Op::ZoneReset, 0, 64), 1)]);
    r.now.0 += 100;
    r.poll(1);
    r.submit(1, [token(write(0, 4), 2)]);
    let done = r.finish();
    let s: Vec<_> = done.iter().map(|b| b.status).collect();
    assert_eq!(s, [Status::OpenLimit, Status::Ok, Status::Ok]);
    assert_eq!((r.wp(0), r.device_wp(0)), (4, 4));
}

/// R32, M4: that the zone refuses for good is not of a generation: what has parked since the reset is not sent any
/// more.
#[test]
fn r32_a_refusal_for_good_is_of_every_generation() {
    for status in [Status::ZoneReadOnly, Status::ZoneOffline] {
        let mut r = make(4, 64, 64).queues(&[(8, 4), (8, 4)]).rig();
        assert_eq!(r.status(write(0, 8)), Status::Ok);
        r.fail(Op::Write, status);
        r.submit(0, [token(write(8, 8), 0)]);
        r.submit(1, [token(op(Op::ZoneReset, 0, 64), 1)]);
        r.now.0 += 100;
        r.poll(1);
        r.submit(1, [token(write(0, 4), 2)]);
        let s: Vec<_> = r.finish().iter().map(|b| b.status).collect();
        assert_eq!(s, [status, Status::Ok, Status::AbortedBehind]);
        assert_eq!((r.commands(Op::Write), r.status(write(0, 4))), (2, status));
        assert_eq!(r.report(0, 1)[0].wp.0, 0);
        assert_eq!(r.run(0, [write(0, 4)]), [Status::Ok]);
    }
}

/// R9: resets and finishes against writes in flight in every order that a device may choose: nothing hangs.
/// M4.
#[test]
fn r9_resets_in_flight_never_hang() {
    for seed in 0..200 {
        let mut m = make(2, 64, 64).queues(&[(16, 4), (16, 4)]);
        m.emu.reorder = Some(seed);
        let mut r = m.rig();
        r.submit(0, (0..3).map(|i| flags(write(i * 8, 8), Flags::NOMERGE)));
        r.submit(1, [op(if seed % 3 == 0 { Op::ZoneFinish } else { Op::ZoneReset }, 0, 64)]);
        r.step();
        let at = r.cached(0).map_or(0, |c| c.1);
        r.submit(1, [write(at.min(56), 8), append(0, 8, 0)]);
        assert_eq!(r.finish().len(), 6);
        assert_eq!(r.status(op(Op::ZoneReset, 0, 64)), Status::Ok);
        assert_eq!(r.run(0, [write(0, 8), append(0, 8, 0)]), [Status::Ok; 2]);
    }
}

/// M5: a strict disk refuses to reset or finish a zone that has writes in flight.
#[test]
fn m5_strict_management_refuses_busy_zones() {
    let mut r = make(4, 64, 64).config(|c| c.strict_management = true).rig();
    for what in [Op::ZoneReset, Op::ZoneFinish, Op::ZoneResetAll] {
        let len = if what == Op::ZoneResetAll { 0 } else { 128 };
        let at = r.wp(1);
        r.submit(0, [token(write(64 + at, 8), 0), token(write(72 + at, 8), 1)]);
        r.submit(0, [token(op(what, 0, len), 2)]);
        let s: Vec<_> = r.finish().iter().map(|b| b.status).collect();
        assert_eq!(s, [Status::Ok, Status::Ok, Status::ZoneBusy]);
    }
    r.submit(0, [token(write(128, 8), 0), token(op(Op::ZoneOpen, 128, 64), 1)]);
    assert_eq!(r.finish()[1].status, Status::Ok, "open aborts nobody");
    assert_eq!(r.status(op(Op::ZoneReset, 0, 256)), Status::Ok);
}

/// M5: while a strict reset is on its way, writes to its zones are refused rather than aborted by it; so is another
/// one.
#[test]
fn m5_writes_during_a_strict_reset_are_refused() {
    let mut r = make(4, 64, 64).config(|c| c.strict_management = true).rig();
    assert_eq!(r.run(0, [write(0, 8), write(64, 8)]), [Status::Ok; 2]);
    for fails in [true, false] {
        if fails {
            r.fail(Op::ZoneReset, Status::Io);
        }
        r.submit(0, [token(op(Op::ZoneReset, 0, 128), 0)]);
        r.submit(0, [token(write(72, 8), 1), token(append(0, 8, 0), 2), token(write(128, 8), 3)]);
        r.submit(0, [token(op(Op::ZoneFinish, 64, 64), 4)]);
        let mut done = r.finish();
        done.sort_by_key(|b| b.token());
        let s: Vec<_> = done.iter().map(|b| b.status).collect();
        let reset = if fails { Status::Io } else { Status::Ok };
        let third = if fails { Status::Ok } else { Status::NotAtWritePointer };
        assert_eq!(s, [reset, Status::ZoneBusy, Status::ZoneBusy, third, Status::ZoneBusy]);
    }
    assert_eq!(
        r.run(0, [write(0, 8), write(64, 8)]),
        [Status::Ok; 2],
        "and then they may write again"
    );
}

/// M6: management of a conventional zone is refused in the layer, and reset-all passes it by.
#[test]
fn m6_conventional_zones_are_not_managed() {
    let mut r = make(4, 64, 64).conventional(&[1]).rig();
    for what in MANAGEMENT {
        assert_eq!(r.status(op(what, 64, 64)), Status::ConventionalZone);
        assert_eq!(r.status(op(what, 0, 192)), Status::ConventionalZone, "in a range");
        assert_eq!(r.commands(what), 0);
    }
    assert_eq!(r.status(op(Op::ZoneResetAll, 0, 0)), Status::Ok);
}

/// M10, M11, R29: what the layer has cached is what a report says, but that open and closed are both active.
/// M12.
#[test]
fn m11_a_cached_zone_is_what_a_report_says() {
    let mut r = make(6, 64, 48).conventional(&[0]).rig();
    let list = [
        write(64, 8),
        op(Op::ZoneOpen, 128, 64),
        write(192, 48),
        op(Op::ZoneFinish, 256, 64),
        write(320, 47),
    ];
    assert_eq!(r.run(0, list), [Status::Ok; 5]);
    assert_eq!(r.status(op(Op::ZoneClose, 320, 64)), Status::Ok);
    for info in r.report(0, 6) {
        let zone = ZoneNo((info.start.0 / 64) as u32);
        let cached = r.disk.cached_zone(zone).unwrap();
        assert_eq!(
            (cached.start, cached.len_sectors, cached.capacity_sectors, cached.wp),
            (info.start, info.len_sectors, info.capacity_sectors, info.wp)
        );
        assert_eq!(cached.zone_type, info.zone_type);
        assert_ne!(info.cond, Condition::Active, "M12");
        let active = cached.cond == Condition::Active && info.cond.is_active();
        let opened = cached.cond == Condition::Empty && info.cond == Condition::ExpOpen;
        assert!(cached.cond == info.cond || active || opened, "{cached:?} {info:?}");
    }
    assert!(r.disk.cached_zone(ZoneNo(6)).is_err());
}

/// P15, M10: a disk without plugs has no cache to show: it would be what was true when it was opened.
#[test]
fn p15_without_plugs_nothing_is_cached() {
    for mode in [zoneplug_core::disk::Mode::None, zoneplug_core::disk::Mode::Lock] {
        let mut r = make(4, 64, 64).mode(mode).rig();
        assert_eq!(r.status(write(0, 8)), Status::Ok);
        assert_eq!(r.cached(0), None);
        let mut dump = String::new();
        r.disk.zone_wplugs(&mut dump).unwrap();
        assert_eq!((dump.as_str(), r.disk.counters().live_plugs), ("", 0));
    }
}

/// M11, T4: a report describes as many zones as its buffer holds, from the zone of its sector.
#[test]
fn m11_reports_start_at_any_sector_and_fill_the_buffer() {
    let mut r = make(4, 64, 64).last_zone(10, 10).rig();
    assert_eq!(r.report(70, 2).iter().map(|z| z.start.0).collect::<Vec<_>>(), [64, 128]);
    let all = r.report(0, 10);
    assert_eq!((all.len(), all[3].len_sectors, all[3].capacity_sectors), (4, 10, 10));
    for len in [0, 1, ZONE_RECORD_LEN as u32 - 1, ZONE_RECORD_LEN as u32 + 1] {
        let mut bio = report(0, 1);
        bio.set_buf(IoBuf::leaked(len));
        assert_eq!(r.status(bio), Status::BadBuffer);
    }
    assert_eq!(r.status(report(202, 1)), Status::OutOfRange);
}

/// R45 (CODE-4): reset and write at once from where the completion is seen: all state is settled by then.
/// I8.
#[test]
fn r45_everything_is_settled_before_the_client_sees_its_completion() {
    let mut r = make(1, 16, 16).queues(&[(8, 2)]).rig();
    r.submit(0, [write(0, 8), write(8, 8)]);
    let (mut resets, mut rounds) = (0, 0);
    while resets < 50 {
        rounds += 1;
        assert!(rounds < 10_000);
        let mut done = Bios::new();
        r.now.0 += 100;
        r.queues[0].poll(r.now, &mut done);
        for b in done {
            assert_eq!(b.status, Status::Ok, "{b:?}");
            let full = r.cached(0) == Some((Condition::Full, 16));
            if b.op == Op::ZoneReset {
                resets += 1;
                assert_eq!(r.cached(0), Some((Condition::Empty, 0)));
                r.submit(0, [write(0, 8), append(0, 8, 8)]);
            } else if full && b.token() == 0 && r.queues[0].outstanding() == 0 {
                r.submit(0, [op(Op::ZoneReset, 0, 16)]);
            }
        }
    }
    r.drain();
}

/// A zone whose only write was aborted while it waited for the tag of queue 0, which has not been polled since.
fn aborted_while_it_waited_for_a_tag(r: &mut Rig) {
    r.submit(0, [token(read(128, 8), 0), token(write(0, 8), 1)]);
    assert_eq!(r.commands(Op::Write), 0, "the read has the only tag");
    r.submit(1, [token(op(Op::ZoneReset, 0, 64), 2)]);
    r.now.0 += 100;
    r.poll(1);
    assert_eq!(r.done.last().map(|b| (b.token(), b.status)), Some((2, Status::Ok)));
    assert_eq!(r.commands(Op::Write), 0);
}

/// M5: nothing is at the device and nothing waits, so a strict disk has no reason to say busy, though the queue that
/// had the zone in its line for a tag has not noticed yet.
#[test]
fn m5_a_zone_whose_waiting_writes_were_aborted_is_not_busy() {
    for what in [Op::ZoneReset, Op::ZoneFinish, Op::ZoneResetAll] {
        let mut r = make(4, 64, 64).queues(&[(8, 1), (8, 4)]).rig();
        aborted_while_it_waited_for_a_tag(&mut r);
        r.disk.set_attribute("strict_management", "1").unwrap();
        let len = if what == Op::ZoneResetAll { 0 } else { 64 };
        r.submit(1, [token(op(what, 0, len), 3)]);
        r.submit(0, [token(write(0, 8), 4)]);
        let done = r.finish();
        let s: Vec<_> = done.iter().map(|b| (b.token(), b.status)).collect();
        let aborted = (1, Status::AbortedByManagement);
        let refused = (4, Status::ZoneBusy);
        assert_eq!(s, [(0, Status::Ok), aborted, (2, Status::Ok), (3, Status::Ok), refused]);
        let fills = what == Op::ZoneFinish;
        assert_eq!(r.wp(0), if fills { 64 } else { 0 });
        assert_eq!(r.disk.counters().live_plugs, 0, "and its place in the line does no harm");
        assert_eq!(r.status(op(Op::ZoneReset, 0, 64)), Status::Ok);
        assert_eq!(r.run(0, [write(0, 8), append(0, 8, 0)]), [Status::Ok; 2]);
    }
}

/// M5: a write that came since then waits in that place, and makes the zone busy until it is done. Aborted too, it
/// leaves the zone as free as before.
#[test]
fn m5_a_zone_in_line_for_a_tag_is_busy_while_a_write_waits() {
    let mut r = make(4, 64, 64).queues(&[(8, 1), (8, 4)]).rig();
    aborted_while_it_waited_for_a_tag(&mut r);
    r.done.clear();
    r.submit(1, [token(write(0, 8), 3)]);
    r.submit(1, [token(op(Op::ZoneReset, 0, 64), 4)]);
    r.poll(1);
    r.now.0 += 100;
    r.poll(1);
    let s: Vec<_> = r.done.iter().map(|b| (b.token(), b.status)).collect();
    assert!(s.contains(&(3, Status::AbortedByManagement)) && s.contains(&(4, Status::Ok)), "{s:?}");
    r.disk.set_attribute("strict_management", "1").unwrap();
    r.submit(1, [token(write(0, 8), 5)]);
    r.submit(1, [token(op(Op::ZoneReset, 0, 64), 6)]);
    r.done.clear();
    let done = r.finish();
    let s: Vec<_> = done.iter().filter(|b| b.token() >= 5).map(|b| b.status).collect();
    assert_eq!(s, [Status::Ok, Status::ZoneBusy]);
    assert_eq!((r.wp(0), r.device_wp(0)), (8, 8));
    assert_eq!(r.status(op(Op::ZoneReset, 0, 64)), Status::Ok);
}

/// E10: nor has a resync.
#[test]
fn e10_a_zone_whose_waiting_writes_were_aborted_can_be_resynced() {
    let mut r = make(4, 64, 64).queues(&[(8, 1), (8, 4)]).rig();
    aborted_while_it_waited_for_a_tag(&mut r);
    r.dev.set_write_pointer(ZoneNo(0), 16);
    r.submit(1, [token(flags(report(0, 1), Flags::RESYNC), 3)]);
    r.now.0 += 100;
    r.poll(1);
    assert_eq!(r.done.last().map(|b| (b.token(), b.status)), Some((3, Status::Ok)));
    assert_eq!(r.wp(0), 16);
    r.finish();
    assert_eq!(r.status(write(16, 8)), Status::Ok);
}
