//! W1-W26: the way of a write, and what merges with what (R1, R3-R5, R18-R25).

use crate::common::*;
use zoneplug_core::disk::Mode;
use zoneplug_core::zone::Condition;
use zoneplug_core::{Flags, Op, Status};
use zoneplug_devices::emu::Fault;

const ABORTED: Status = Status::AbortedBehind;

/// W1, R20: what is ordered: writes, write-zeroes, FUA and preflush writes with data. Reads and flushes pass.
#[test]
fn w1_writes_park_and_reads_and_flushes_pass() {
    let mut r = make(4, 64, 64).rig();
    let bios = [
        write(0, 8),
        op(Op::WriteZeroes, 8, 8),
        flags(write(16, 8), Flags::FUA),
        flags(write(24, 8), Flags::PREFLUSH),
        read(0, 8),
        op(Op::Flush, 0, 0),
    ];
    r.submit(0, bios.into_iter().zip(0..).map(|(b, t)| token(b, t)));
    assert_eq!(r.disk.counters().waiting, 3);
    assert_eq!(r.commands(Op::Read) + r.commands(Op::Flush), 2, "at the device at once");
    assert!(r.finish().iter().all(|b| b.status.is_ok()));
    assert_eq!((r.commands(Op::Write), r.commands(Op::WriteZeroes)), (3, 1));
    assert_eq!(r.dev.stats().overlaps, 0);
    assert_eq!(r.medium(24, 8), (24..32).collect::<Vec<_>>());
}

/// W2: a conventional zone has no plug: writes go there in any order, several at a time.
#[test]
fn w2_conventional_zones_are_not_plugged() {
    let mut r = make(4, 64, 64).conventional(&[0]).rig();
    r.submit(0, [write(32, 8), write(0, 8), write(32, 8)]);
    assert_eq!(r.commands(Op::Write), 3);
    assert_eq!(r.disk.counters().waiting, 0);
    assert!(r.finish().iter().all(|b| b.status.is_ok()));
    assert_eq!(r.cached(0), Some((Condition::NotWp, u64::MAX)));
    assert_eq!(r.status(append(0, 8, 0)), Status::ConventionalZone);
}

/// W3, W4, R21: a write over three zones is cut at their edges; the parts are admitted together.
#[test]
fn w4_a_write_that_spans_zones_is_cut_at_their_edges() {
    let mut r = make(4, 50, 50).rig();
    assert_eq!(r.status(write(0, 40)), Status::Ok);
    assert_eq!(r.status(write(40, 70)), Status::Ok);
    assert_eq!(r.commands(Op::Write), 4);
    assert_eq!(r.medium(0, 50), (0..50).collect::<Vec<_>>());
    assert_eq!(r.medium(50, 50), (50..100).collect::<Vec<_>>());
    assert_eq!((r.cached(0), r.wp(2)), (Some((Condition::Full, 50)), 10));
}

/// W4: the parts of a write fail on their own: the write fails, what the others wrote stays.
#[test]
fn w4_a_part_that_fails_fails_the_write_and_leaves_the_others() {
    let mut r = make(4, 64, 64).rig();
    r.dev.fail_next(Fault { skip: 1, ..Fault::next(Op::Write, Status::Medium) });
    assert_eq!(r.status(write(0, 128)), Status::Medium);
    assert_eq!(r.medium(0, 64), (0..64).collect::<Vec<_>>());
    assert_eq!((r.cached(0), r.cached(1)), (Some((Condition::Full, 64)), None));
}

/// W4: a write that was split says why it failed: the status of the part that failed, not of those that were aborted
/// behind it.
#[test]
fn w4_a_split_write_says_the_cause() {
    for status in [Status::Io, Status::OpenLimit, Status::ShortTransfer] {
        for (skip, nomerges) in [(0, false), (0, true), (1, true), (2, true)] {
            let limits = |l: &mut zoneplug_core::zone::Limits| l.max_transfer_sectors = 8;
            let m = make(4, 64, 64).limits(limits).config(|c| c.nomerges = nomerges);
            let mut r = m.queues(&[(8, 8), (8, 8)]).rig();
            r.dev.fail_next(zoneplug_devices::emu::Fault {
                skip,
                ..zoneplug_devices::emu::Fault::next(Op::Write, status)
            });
            r.submit(0, [token(write(0, 32), 1)]);
            r.submit(1, [token(write(32, 8), 2)]);
            let done = r.finish();
            assert_eq!(done[0].status, status, "the fault meets part {skip}");
            assert_eq!(done[1].status, Status::AbortedBehind, "nothing of it was sent");
        }
        // Across zones, with the parts of the first behind one that fails.
        let mut r = make(4, 64, 64).limits(|l| l.max_transfer_sectors = 16).rig();
        r.fail(Op::Write, status);
        assert_eq!(r.run(0, [write(0, 96)]), [status]);
    }
}

/// W4: a part refused for its zone refuses the whole write, before anything has happened.
/// P16.
#[test]
fn w4_a_spanning_write_is_admitted_whole_or_not_at_all() {
    let mut r = make(4, 64, 64).rig();
    assert_eq!(r.status(write(64, 8)), Status::Ok);
    assert_eq!(r.status(write(0, 128)), Status::NotAtWritePointer);
    assert_eq!((r.wp(0), r.wp(1), r.device_wp(0)), (0, 8, 0));
    assert_eq!(r.disk.counters().waiting, 0);
}

/// W2, W4: from a conventional zone into a sequential one.
#[test]
fn w4_a_write_may_span_a_conventional_and_a_sequential_zone() {
    let mut r = make(4, 64, 64).conventional(&[0]).rig();
    assert_eq!(r.status(write(32, 40)), Status::Ok);
    assert_eq!(r.medium(32, 32), (32..64).collect::<Vec<_>>());
    assert_eq!(r.wp(1), 8);
    assert_eq!(r.status(write(32, 40)), Status::NotAtWritePointer);
}

/// W5, R21 (B13): parts are multiples of the write granularity, whatever the transfer limit is.
#[test]
fn w5_parts_are_multiples_of_the_write_granularity() {
    let limits = |l: &mut zoneplug_core::zone::Limits| {
        l.write_granularity_sectors = 8;
        l.max_transfer_sectors = 21;
        l.max_write_zeroes_sectors = 12;
    };
    let mut r = make(4, 64, 64).limits(limits).rig();
    assert_eq!(r.status(write(0, 40)), Status::Ok);
    assert_eq!(r.commands(Op::Write), 3, "16 + 16 + 8");
    // 12 sectors of write-zeroes are 8 and a rest that no drive takes.
    assert_eq!(r.status(op(Op::WriteZeroes, 40, 24)), Status::Ok);
    assert_eq!(r.commands(Op::WriteZeroes), 3);
    assert_eq!(r.status(write(64, 4)), Status::Unaligned);
    assert_eq!(r.status(write(64, 0)), Status::OutOfRange);
}

/// W6, R22 (B24): another queue's write never comes between the parts of a write.
/// W3.
#[test]
fn w6_parts_of_a_write_stay_together() {
    let mut r =
        make(4, 256, 256).limits(|l| l.max_transfer_sectors = 8).queues(&[(64, 1), (64, 1)]).rig();
    r.submit(0, [write_as(0, 100, 1000)]);
    r.submit(1, [append(0, 7, 2000), append(0, 8, 3000)]);
    r.submit(0, [write_as(115, 60, 4000)]);
    assert!(r.finish().iter().all(|b| b.status.is_ok()));
    let expected: Vec<_> =
        (1000..1100).chain(2000..2007).chain(3000..3008).chain(4000..4060).collect();
    assert_eq!(r.medium(0, 175), expected);
    assert_eq!(r.dev.stats().overlaps, 0);
}

/// W6: an append longer than a transfer is refused, not cut.
#[test]
fn w6_appends_are_never_split() {
    let mut r = make(4, 64, 64).limits(|l| l.max_transfer_sectors = 8).rig();
    assert_eq!(r.status(append(0, 16, 0)), Status::AppendTooLarge);
}

/// W7: the write of an idle plug goes out in the submitter's call.
#[test]
fn w7_an_idle_zone_issues_at_once() {
    let mut r = make(4, 64, 64).rig();
    r.submit(0, [write(0, 8)]);
    assert_eq!((r.commands(Op::Write), r.disk.counters().plugs.parked), (1, 0));
    r.submit(0, [write(8, 8)]);
    assert_eq!((r.commands(Op::Write), r.disk.counters().plugs.parked), (1, 1));
    r.finish();
}

/// W8, W17: what is reserved moves the write pointer; what is refused says why.
/// I3.
#[test]
fn w8_a_write_is_admitted_at_the_write_pointer_only() {
    let mut r = make(4, 64, 48).rig();
    r.submit(0, [write(0, 40)]);
    assert_eq!(r.wp(0), 40, "I3: reserved, not completed");
    let refused = [write(0, 8), write(48, 8), write(40, 16)];
    let expected = [Status::NotAtWritePointer, Status::NotAtWritePointer, Status::PastCapacity];
    r.submit(0, refused.into_iter().zip(1..).map(|(b, t)| token(b, t)));
    let done = r.finish();
    assert_eq!(done[1..].iter().map(|b| b.status).collect::<Vec<_>>(), expected);
    assert_eq!(r.status(write(40, 8)), Status::Ok);
    assert_eq!(r.cached(0), Some((Condition::Full, 64)));
    assert_eq!(r.status(write(48, 8)), Status::ZoneFull, "W17");
}

/// W9, R1, R2: a refused write changes nothing, on an empty zone or behind others.
/// P4.
#[test]
fn w9_a_refused_write_poisons_nothing() {
    let mut r = make(4, 64, 64).rig();
    assert_eq!(r.status(write(8, 8)), Status::NotAtWritePointer);
    assert_eq!((r.cached(0), r.commands(Op::Write)), (Some((Condition::Empty, 0)), 0));
    let list = [write(0, 8), write(16, 8), write(8, 8)];
    assert_eq!(r.run(0, list), [Status::Ok, Status::NotAtWritePointer, Status::Ok]);
    assert_eq!((r.wp(0), r.device_wp(0)), (16, 16));
}

/// W10, R21: a write that runs past the capacity is refused whole, and the rest of the zone stays writable.
/// A9.
#[test]
fn w10_a_write_past_capacity_is_refused_whole() {
    let mut r = make(4, 64, 40).rig();
    assert_eq!(r.status(write(0, 32)), Status::Ok);
    assert_eq!(r.status(write(32, 16)), Status::PastCapacity);
    assert_eq!(r.status(append(0, 16, 0)), Status::PastCapacity);
    assert_eq!(r.status(write(32, 40)), Status::PastCapacity, "across the end of the zone");
    assert_eq!((r.wp(0), r.device_wp(0), r.wp(1)), (32, 32, 0));
    assert_eq!(r.status(write(32, 8)), Status::Ok);
}

/// W11, R18 (B17a): a write with NOWAIT parks; would-block is only said of what reserved nothing.
#[test]
fn w11_nowait_never_fails_after_a_reservation() {
    let mut r = make(4, 64, 64).queues(&[(64, 1)]).rig();
    let nowait = |b| flags(b, Flags::NOWAIT);
    let list = [nowait(write(0, 8)), nowait(write(8, 8)), nowait(write(64, 8)), nowait(read(0, 8))];
    assert_eq!(r.run(0, list), [Status::Ok, Status::Ok, Status::Ok, Status::WouldBlock]);
    assert_eq!((r.wp(0), r.wp(1)), (16, 8));
    r.submit(0, [write(16, 8), nowait(op(Op::ZoneReset, 128, 64))]);
    assert!(r.finish().iter().all(|b| b.status.is_ok()), "B17b: ignored on management");
}

/// W13, W22, R12: parked writes need nothing new: a freeze lets them all go.
/// I6.
#[test]
fn w13_parked_writes_drain_under_freeze() {
    let mut r = make(4, 64, 64).queues(&[(64, 1), (64, 1)]).rig();
    for i in 0..16 {
        r.submit((i % 2) as usize, [flags(write(i * 4, 4), Flags::NOMERGE)]);
    }
    r.dev.force_busy(5);
    let freeze = r.disk.begin_freeze();
    let mut rounds = 0;
    while !freeze.poll() {
        r.step();
        rounds += 1;
        assert!(rounds < 1000);
    }
    assert_eq!(r.device_wp(0), 64);
    let mut list = [read(0, 8)].into();
    assert_eq!(r.queues[0].submit(r.now, &mut list), 0);
    drop(freeze);
    assert!(r.finish().iter().all(|b| b.status.is_ok()));
    assert_eq!(r.queues[0].submit(r.now, &mut list), 1);
    r.finish();
}

/// W14, R16, R17: one command follows one completion; the plug is idle at the end.
/// R3.
#[test]
fn w14_each_completion_issues_the_next() {
    let mut r = make(4, 64, 64).config(|c| c.nomerges = true).rig();
    r.submit(0, (0..8).map(|i| write(i * 8, 8)));
    for n in 1..=8 {
        while r.commands(Op::Write) < n {
            r.step();
        }
        assert_eq!((r.commands(Op::Write), r.disk.counters().waiting), (n, 8 - n));
    }
    assert_eq!(r.finish().len(), 8);
    let mut dump = String::new();
    r.disk.zone_wplugs(&mut dump).unwrap();
    assert_eq!(dump, "", "R3: a filled zone is not live");
}

/// W15, R23: what is parked merges into one command, up to the limits, in order.
#[test]
fn w15_parked_writes_merge_up_to_the_transfer_limit() {
    let mut r = make(4, 256, 256).limits(|l| l.max_transfer_sectors = 32).rig();
    r.submit(0, [write(0, 8)]);
    r.submit(0, (1..11).map(|i| write(i * 8, 8)));
    assert!(r.finish().iter().all(|b| b.status.is_ok()));
    assert_eq!(r.commands(Op::Write), 1 + 3, "32 + 32 + 16 sectors");
    assert_eq!(r.disk.counters().plugs.merged, 7);
    assert_eq!(r.medium(0, 88), (0..88).collect::<Vec<_>>());
}

/// W15: the number of BIOs in a command is limited too, and a batch of one submit merges as well.
#[test]
fn w15_merging_stops_at_max_bios() {
    let mut r = make(4, 256, 256).limits(|l| l.max_bios = 3).rig();
    r.submit(0, (0..7).map(|i| write(i * 8, 8)));
    assert_eq!(r.commands(Op::Write), 1);
    assert!(r.finish().iter().all(|b| b.status.is_ok()));
    assert_eq!(r.commands(Op::Write), 3, "3 + 3 + 1");
}

/// W15: a batch merges up to the transfer limit and not a sector more.
#[test]
fn w15_a_batch_stops_at_the_transfer_limit() {
    let mut r = make(4, 256, 256).limits(|l| l.max_transfer_sectors = 20).rig();
    r.submit(0, (0..7).map(|i| write(i * 8, 8)));
    assert!(r.finish().iter().all(|b| b.status.is_ok()));
    assert_eq!(r.commands(Op::Write), 4, "2 + 2 + 2 + 1 BIOs");
}

/// W15, R24 (B31b): FUA, preflush and write-zeroes do not mix with plain writes; equal ones merge, but for preflush.
#[test]
fn w15_kinds_do_not_mix() {
    let mut r = make(4, 256, 256).rig();
    r.submit(0, [write(0, 8)]);
    let kinds = [
        op(Op::WriteZeroes, 8, 8),
        op(Op::WriteZeroes, 16, 8),
        write(24, 8),
        append(0, 8, 32),
        flags(write(40, 8), Flags::FUA),
        flags(write(48, 8), Flags::FUA),
        flags(write(56, 8), Flags::PREFLUSH),
        flags(write(64, 8), Flags::PREFLUSH),
        flags(write(72, 8), Flags::NOMERGE),
        write(80, 8),
    ];
    r.submit(0, kinds);
    assert!(r.finish().iter().all(|b| b.status.is_ok()));
    assert_eq!(r.commands(Op::WriteZeroes), 1);
    assert_eq!(r.commands(Op::Write), 1 + 1 + 1 + 2 + 1 + 1);
    let expected: Vec<_> = (0..8).chain([0; 16]).chain(24..88).collect();
    assert_eq!(r.medium(0, 88), expected);
}

/// W15e: with merging off every BIO is a command.
#[test]
fn w15e_nomerges_sends_one_bio_in_each_command() {
    let mut r = make(4, 64, 64).rig();
    r.disk.set_attribute("nomerges", "1").unwrap();
    r.submit(0, (0..8).map(|i| write(i * 8, 8)));
    r.finish();
    assert_eq!(r.commands(Op::Write), 8);
    assert_eq!(r.disk.counters().plugs.merged, 0);
}

/// W15, R25: appends of several queues merge into one command, and each learns its own sector.
#[test]
fn w15_appends_of_several_queues_merge_and_each_has_its_own_sector() {
    let mut r = make(4, 64, 64).queues(&[(8, 2), (8, 2), (8, 2)]).rig();
    for i in 0..9u64 {
        r.submit(i as usize % 3, [token(append(0, 4, 100 * i), i)]);
    }
    let done = r.finish();
    for (i, b) in (0..).zip(&done) {
        assert_eq!((b.status, b.sector.0), (Status::Ok, i * 4), "A5: in the order of acceptance");
        assert_eq!(r.medium(b.sector.0, 4), (100 * i..100 * i + 4).collect::<Vec<_>>());
    }
    assert_eq!(r.commands(Op::Write), 2, "the first, and all that waited");
}

/// W16 (B8, B9): a preflush write unplugs its zone, an empty flush does not touch it.
/// R20.
#[test]
fn w16_a_preflush_write_unplugs_its_zone() {
    let mut r = make(4, 64, 64).limits(|l| l.write_cache = true).rig();
    let list = [flags(write(0, 8), Flags::PREFLUSH), op(Op::Flush, 0, 0), write(8, 8)];
    assert_eq!(r.run(0, list), [Status::Ok; 3]);
    assert_eq!(r.run(0, [write(16, 8)]), [Status::Ok]);
}

/// W18, R21 (B11): the last zone is full at its own capacity.
#[test]
fn w18_a_short_last_zone_is_full_at_its_own_capacity() {
    let mut r = make(3, 64, 48).last_zone(20, 12).rig();
    assert_eq!(r.status(write(128, 16)), Status::PastCapacity);
    assert_eq!(r.status(write(128, 21)), Status::OutOfRange);
    assert_eq!(r.status(write(128, 12)), Status::Ok);
    assert_eq!(r.cached(2), Some((Condition::Full, 20)));
    assert_eq!(r.status(append(128, 1, 0)), Status::ZoneFull);
}

/// W19: a zone's writes leave in the order in which they came, through whichever queues.
/// I2.
#[test]
fn w19_a_zone_is_first_in_first_out() {
    let mut r = make(4, 64, 64).queues(&[(8, 1), (32, 4)]).config(|c| c.nomerges = true).rig();
    for i in 0..16 {
        r.submit(usize::from(i % 3 == 0), [write_as(i * 4, 4, 100 + i * 4)]);
        while r.queues[0].room() == 0 {
            r.step();
        }
    }
    assert!(r.finish().iter().all(|b| b.status.is_ok()));
    assert_eq!(r.medium(0, 64), (100..164).collect::<Vec<_>>());
}

/// W21, R15: a device that says busy, or fails in any place, never stalls the zone.
/// I4.
#[test]
fn w21_nothing_between_reservation_and_completion_stalls_a_zone() {
    for skip in 0..6 {
        for status in [Status::Io, Status::OpenLimit, Status::Busy, Status::NoDevice] {
            let mut r = make(4, 64, 64).config(|c| c.nomerges = true).rig();
            r.dev.fail_next(Fault { skip, ..Fault::next(Op::Write, status) });
            r.dev.force_busy(2);
            let s = r.run(0, (0..6).map(|i| write(i * 8, 8)));
            let n = skip as usize;
            if status == Status::Busy {
                assert_eq!(s, [Status::Ok; 6]);
            } else {
                assert!(s[..n].iter().all(|s| s.is_ok()));
                assert_eq!(s[n], status);
                assert!(s[n + 1..].iter().all(|&s| s == ABORTED), "{s:?}");
            }
            r.report(0, 1);
            assert_eq!(r.wp(0), r.device_wp(0));
            let at = r.wp(0);
            assert_eq!(r.status(write(at, 8)), Status::Ok);
        }
    }
}

/// W23, R12: a command that the device gives back as busy is sent again, and nothing passes it.
#[test]
fn w23_busy_is_tried_again_in_order() {
    let mut r = make(4, 64, 64).config(|c| c.nomerges = true).rig();
    for skip in [0, 2, 4] {
        r.dev.fail_next(Fault { skip, ..Fault::next(Op::Write, Status::Busy) });
    }
    assert_eq!(r.run(0, (0..8).map(|i| write(i * 8, 8))), [Status::Ok; 8]);
    assert_eq!(r.medium(0, 64), (0..64).collect::<Vec<_>>());
    assert_eq!((r.commands(Op::Write), r.dev.stats().overlaps), (11, 0));
}

/// W24: nothing is held back: what submit took is at the device when it returns.
#[test]
fn w24_submit_holds_nothing_back() {
    let mut r = make(4, 64, 64).rig();
    r.submit(0, (0..4).map(|z| write(z * 64, 8)));
    assert_eq!(r.commands(Op::Write), 4);
    r.finish();
}

/// W26 (B17c): without write-zeroes support nothing is reserved.
#[test]
fn w26_unsupported_write_zeroes_reserve_nothing() {
    let mut r = make(4, 64, 64).limits(|l| l.max_write_zeroes_sectors = 0).rig();
    assert_eq!(r.status(op(Op::WriteZeroes, 0, 8)), Status::NotSupported);
    assert_eq!(r.cached(0), Some((Condition::Empty, 0)));
    assert_eq!(r.status(write(0, 8)), Status::Ok);
    let mut r = make(4, 64, 64).limits(|l| l.max_write_zeroes_sectors = 0).mode(Mode::None).rig();
    assert_eq!(r.status(op(Op::WriteZeroes, 0, 8)), Status::NotSupported);
}

/// P3, P4, R5: several first writers of one empty zone: one order.
#[test]
fn r5_first_writers_of_an_empty_zone_are_ordered() {
    let mut r = make(4, 64, 64).queues(&[(4, 1), (4, 1), (4, 1), (4, 1)]).rig();
    for q in 0..4 {
        r.submit(q, [token(write(q as u64 * 8, 8), q as u64)]);
    }
    assert!(r.finish().iter().all(|b| b.status.is_ok()));
    assert_eq!((r.device_wp(0), r.dev.stats().overlaps), (32, 0));
}

/// R4 (B32c): write, reset, write, by two clients in turn: the plug is never in the way.
#[test]
fn r4_write_and_reset_in_turns_by_two_clients() {
    let mut r = make(2, 16, 16).queues(&[(4, 1), (4, 1)]).rig();
    for i in 0..50u64 {
        let (a, b) = (i as usize % 2, (i as usize + 1) % 2);
        assert_eq!(r.run(a, [write_as(0, 16, i * 16)]), [Status::Ok]);
        assert_eq!(r.medium(0, 16), (i * 16..i * 16 + 16).collect::<Vec<_>>());
        assert_eq!(r.run(b, [op(Op::ZoneReset, 0, 16)]), [Status::Ok]);
    }
    assert_eq!(r.disk.counters().live_plugs, 0);
}

/// R19: whichever queue polls, every parked write completes, also when its owner's tags are all in use elsewhere.
#[test]
fn r19_parked_writes_of_a_queue_without_tags_complete() {
    let mut r = make(4, 64, 64).queues(&[(32, 1), (32, 1)]).rig();
    r.submit(0, [write(0, 8)]);
    r.submit(1, [write(64, 8), write(8, 8), write(72, 8)]);
    r.submit(0, [write(80, 8), read(0, 1)]);
    assert_eq!(r.finish().len(), 6);
    assert_eq!((r.device_wp(0), r.device_wp(1)), (16, 24));
}
