//! The list of bad input: each its own status, changing nothing it should not, losing nothing acknowledged (R26, R32).

mod common;

use common::*;
use zoneplug_core::disk::{DiskConfig, Mode};
use zoneplug_core::zone::Condition;
use zoneplug_core::{IoBuf, Op, Sector, Status, ZoneNo};

/// Submits `bio` to zone 1 of a disk with 16 acknowledged sectors there, and checks that nothing changed.
fn refused(bio: impl FnOnce() -> Box<zoneplug_core::Bio>, expected: Status) {
    let mut r = make(4, 64, 48).limits(|l| l.write_granularity_sectors = 2).rig();
    assert_eq!(r.status(write(64, 16)), Status::Ok);
    // A write in flight and one that waits are not disturbed either.
    r.submit(0, [token(write(80, 8), 0)]);
    r.submit(0, [token(write(88, 8), 1)]);
    let seen = r.dev.stats().total();
    let before = r.cached(1);
    r.submit(0, [token(bio(), 2)]);
    assert_eq!((r.cached(1), r.dev.stats().total()), (before, seen), "{expected}");
    let done = r.finish();
    assert_eq!(done[2].status, expected);
    assert!(done[0].status.is_ok() && done[1].status.is_ok());
    assert_eq!(r.medium(64, 32), (64..96).collect::<Vec<_>>());
    assert_eq!((r.wp(0), r.wp(1), r.wp(2)), (0, 32, 0));
    assert_eq!(r.status(write(96, 16)), Status::Ok);
}

/// W8, W10: away from the write pointer, past the capacity, off the disk.
/// R2.
#[test]
fn misplaced_writes_are_refused() {
    refused(|| write(98, 8), Status::NotAtWritePointer);
    refused(|| write(64, 8), Status::NotAtWritePointer);
    refused(|| write(94, 8), Status::NotAtWritePointer);
    refused(|| write(112, 8), Status::NotAtWritePointer);
    refused(|| write(96, 18), Status::PastCapacity);
    refused(|| write(96, 40), Status::PastCapacity);
    refused(|| write(256, 2), Status::OutOfRange);
    refused(|| write(254, 4), Status::OutOfRange);
    refused(|| write(u64::MAX - 1, 2), Status::OutOfRange);
    refused(|| op(Op::WriteZeroes, 90, 2), Status::NotAtWritePointer);
}

/// On a disk of so many zones that their words are fetched ahead, of sizes with and without a power of two.
#[test]
fn misplaced_writes_among_many_zones_are_refused() {
    for zone_sectors in [64, 48] {
        let mut r = make(5000, zone_sectors, 48).rig();
        let last = u64::from(zone_sectors) * 4999;
        let places = [0, last, last + 1, last + 64, 1 << 40, u64::MAX - 7, u64::MAX];
        r.submit(0, (0..).zip(places).map(|(n, at)| token(write_as(at, 8, 0), n)));
        let done: Vec<_> = r.finish().iter().map(|bio| bio.status).collect();
        let (ok, off) = (Status::Ok, Status::OutOfRange);
        assert_eq!(done, [ok, ok, Status::NotAtWritePointer, off, off, off, off]);
    }
}

/// Unaligned addresses and lengths, and buffers that do not fit.
#[test]
fn unaligned_and_empty_buffers_are_refused() {
    refused(|| write(97, 2), Status::Unaligned);
    refused(|| write(96, 3), Status::Unaligned);
    refused(|| op(Op::Write, 96, 8), Status::BadBuffer);
    refused(|| op(Op::Read, 96, 8), Status::BadBuffer);
    refused(|| write(96, 0), Status::OutOfRange);
    refused(|| op(Op::WriteZeroes, 96, 0), Status::OutOfRange);
    for bytes in [0, 1, 511, 8 * 512 - 1, 8 * 512 + 1, 9 * 512] {
        refused(
            || zoneplug_core::Bio::with_buf(Op::Write, Sector(96), 8, IoBuf::leaked(bytes)),
            Status::BadBuffer,
        );
    }
}

/// Reads and conventional zones are aligned to the logical block, sequential writes to the write granularity (B13).
#[test]
fn w5_reads_and_conventional_writes_are_aligned_to_the_block() {
    let limits = |l: &mut zoneplug_core::zone::Limits| {
        (l.logical_block_sectors, l.write_granularity_sectors) = (2, 8);
    };
    let mut r = make(4, 64, 64).conventional(&[0]).limits(limits).rig();
    assert_eq!(r.run(0, [write(2, 6), write(64, 8), read(2, 4)]), [Status::Ok; 3]);
    let bad = [write(1, 2), write(2, 3), read(1, 2), read(2, 1), write(72, 4), append(64, 4, 0)];
    assert_eq!(r.run(0, bad), [Status::Unaligned; 6]);
    assert_eq!(r.medium(2, 6), (2..8).collect::<Vec<_>>());
}

/// A batch in which good and bad alternate: the good ones are as if the bad ones were not there.
#[test]
fn bad_writes_between_good_ones_do_not_matter() {
    let mut r = make(4, 64, 64).limits(|l| l.write_granularity_sectors = 2).rig();
    let short = |sector| zoneplug_core::Bio::with_buf(Op::Write, Sector(sector), 4, buf(2));
    let list = [
        write(0, 4),
        short(4),
        write(4, 3),
        write(4, 4),
        append(0, 3, 0),
        append(0, 4, 8),
        append(2, 4, 8),
        write(12, 54),
        write(12, 52),
        append(0, 4, 0),
        write(64, 4),
    ];
    use Status as S;
    let expected = [
        S::Ok,
        S::BadBuffer,
        S::Unaligned,
        S::Ok,
        S::Unaligned,
        S::Ok,
        S::NotZoneStart,
        S::NotAtWritePointer,
        S::Ok,
        S::ZoneFull,
        S::Ok,
    ];
    // 12 + 54 spans into zone 1, which is empty: that one is good, so it fills zone 0 and those behind it differ.
    let mut expected = expected.to_vec();
    expected[7] = S::Ok;
    expected[8] = S::ZoneFull;
    expected[10] = S::NotAtWritePointer;
    assert_eq!(r.run(0, list), expected);
    assert_eq!(r.medium(0, 64), (0..64).collect::<Vec<_>>());
    assert_eq!(r.wp(1), 2);
}

/// W17, R32: full, read-only and offline zones refuse in the layer, once it knows.
/// P5.
#[test]
fn writes_to_full_read_only_and_offline_zones_are_refused() {
    let cases = [
        (Condition::Full, Status::ZoneFull),
        (Condition::ReadOnly, Status::ZoneReadOnly),
        (Condition::Offline, Status::ZoneOffline),
    ];
    for (cond, status) in cases {
        let mut r = make(4, 64, 64).rig();
        assert_eq!(r.status(write(0, 8)), Status::Ok);
        r.dev.set_condition(ZoneNo(0), cond);
        // The device says so first. Full where the layer saw room: the write pointer is unknown now.
        assert_eq!(r.status(write(8, 8)), status);
        let known = r.cached(0).map(|(c, _)| c);
        assert_eq!(known, if cond == Condition::Full { None } else { Some(cond) });
        assert_eq!(r.status(report_of(0)), Status::Ok);
        assert_eq!(r.cached(0).unwrap().0, cond);
        let seen = r.commands(Op::Write);
        for bio in [write(8, 8), write(0, 8), append(0, 8, 0), op(Op::WriteZeroes, 8, 8)] {
            assert_eq!(r.status(bio), status);
        }
        assert_eq!(r.commands(Op::Write), seen);
        assert_eq!(r.status(write(64, 8)), Status::Ok, "its neighbours do not notice");
        if cond == Condition::Full {
            assert_eq!(r.status(op(Op::ZoneReset, 0, 64)), Status::Ok);
        } else {
            // The device lets the zone be written again.
            r.dev.set_condition(ZoneNo(0), Condition::Empty);
            r.report(0, 1);
        }
        assert_eq!(r.status(write(0, 8)), Status::Ok);
    }
}

fn report_of(sector: u64) -> Box<zoneplug_core::Bio> {
    flags(report(sector, 1), zoneplug_core::Flags::RESYNC)
}

/// R32: a zone that goes read-only with writes in flight and waiting: all come back, none twice.
#[test]
fn r32_a_zone_that_goes_read_only_in_flight() {
    for cond in [Condition::ReadOnly, Condition::Offline] {
        let mut r = make(4, 64, 64).config(|c| c.nomerges = true).rig();
        r.submit(0, (0..4).map(|i| token(write(i * 8, 8), i)));
        r.dev.set_condition(ZoneNo(0), cond);
        r.submit(0, [token(report(0, 1), 4)]);
        let done = r.finish();
        assert_eq!(done.len(), 5);
        assert_eq!(done[0].status, Status::Ok);
        assert!(done[1..4].iter().all(|b| !b.status.is_ok()));
        assert_eq!(r.cached(0).unwrap().0, cond);
        assert_eq!(r.disk.counters().waiting, 0);
    }
}

/// Discard: conventional zones only.
#[test]
fn discard_of_a_sequential_zone_is_not_supported() {
    let mut r = make(4, 64, 64).conventional(&[0]).rig();
    assert_eq!(r.status(write(0, 16)), Status::Ok);
    assert_eq!(r.status(op(Op::Discard, 4, 8)), Status::Ok);
    assert_eq!(r.medium(0, 16), (0..4).chain([0; 8]).chain(12..16).collect::<Vec<_>>());
    assert_eq!(r.status(op(Op::Discard, 60, 8)), Status::NotSupported);
    assert_eq!(r.status(op(Op::Discard, 64, 8)), Status::NotSupported);
}

/// Nothing of a long write to a conventional zone, or of one without plugs, is sent if it would have to wait (W11).
#[test]
fn w11_nowait_of_a_split_write_is_all_or_nothing() {
    let limits = |l: &mut zoneplug_core::zone::Limits| l.max_transfer_sectors = 8;
    let nowait = |b| flags(b, zoneplug_core::Flags::NOWAIT);
    for mode in [Mode::None, Mode::Plug] {
        let m = make(4, 64, 64).mode(mode).conventional(&[0]).limits(limits).queues(&[(8, 2)]);
        let mut r = m.rig();
        let s = r.status(nowait(write_as(0, 32, 1)));
        let written = r.medium(0, 32).iter().filter(|&&s| s != 0).count();
        assert_eq!(written, if s.is_ok() { 32 } else { 0 }, "{mode}: {s}");
    }
}

/// W15: a BIO joins the run in front of it only if it could go alone. One that could not gets its own status, and the
/// good ones in front and behind are as if it were not there.
#[test]
fn a_malformed_follower_fails_alone() {
    use Status as S;
    let short = |sector| zoneplug_core::Bio::with_buf(Op::Write, Sector(sector), 8, buf(4));
    let zeroes = |sector, n| op(Op::WriteZeroes, sector, n);
    let limits = |l: &mut zoneplug_core::zone::Limits| {
        (l.write_granularity_sectors, l.max_write_zeroes_sectors) = (4, 64);
    };
    // A zone of 64 sectors, and a list of which the first BIO and the last are good.
    let w8 = |at| write(at, 8);
    type List = Vec<Box<zoneplug_core::Bio>>;
    let lists: Vec<(List, Vec<Status>)> = vec![
        (vec![w8(0), write(8, 3), w8(8)], vec![S::Ok, S::Unaligned, S::Ok]),
        (vec![w8(0), write(8, 0), w8(8)], vec![S::Ok, S::OutOfRange, S::Ok]),
        (vec![w8(0), short(8), w8(8)], vec![S::Ok, S::BadBuffer, S::Ok]),
        (vec![append(0, 8, 0), append(0, 3, 8), append(0, 8, 8)], vec![S::Ok, S::Unaligned, S::Ok]),
        (vec![zeroes(0, 8), zeroes(8, 5), zeroes(8, 8)], vec![S::Ok, S::Unaligned, S::Ok]),
    ];
    for in_flight in [false, true] {
        for (list, expected) in &lists {
            let mut r = make(4, 64, 64).limits(limits).queues(&[(64, 8), (8, 8)]).rig();
            let copies = list.iter().map(|b| {
                let buf = IoBuf::leaked(b.data().len());
                zoneplug_core::Bio::with_buf(b.op, b.sector.plus(64), b.len_sectors, buf)
            });
            // Behind a write in flight they wait in the plug, and merge there.
            let copies: Vec<_> = copies.collect();
            let bios: Vec<_> = if in_flight {
                r.submit(1, [append(64, 8, 1000)]);
                copies
                    .into_iter()
                    .map(|mut b| {
                        b.sector = if b.op == Op::ZoneAppend { b.sector } else { b.sector.plus(8) };
                        b
                    })
                    .collect()
            } else {
                copies
            };
            let bios = bios.into_iter().enumerate().map(|(i, b)| token(b, 1 + i as u64));
            r.submit(0, bios);
            let done = r.finish();
            let got: Vec<_> = done.iter().filter(|b| b.token() > 0).map(|b| b.status).collect();
            assert_eq!(&got, expected, "in flight {in_flight}");
            assert_eq!(r.wp(1), if in_flight { 24 } else { 16 });
        }
    }
}

/// A list that fills a zone goes on in the next: two runs, and the zone's end is between two commands.
/// W15.
#[test]
fn a_run_ends_where_its_zone_ends() {
    for cap in [64, 48] {
        let mut r = make(4, 64, cap).rig();
        let end = u64::from(cap);
        let list = [write(0, 8), write(8, cap - 8), write(64, 8), write(72, 8), append(128, 8, 1)];
        assert_eq!(r.run(0, list), [Status::Ok; 5], "capacity {cap}");
        assert_eq!((r.wp(0), r.wp(1), r.wp(2)), (64, 16, 8));
        assert_eq!(r.medium(0, cap), (0..end).collect::<Vec<_>>());
        // The last zone is shorter.
        let mut r = make(2, 64, 64).last_zone(16, 16).rig();
        let list = [write(64, 8), write(72, 8), write(80, 8)];
        assert_eq!(r.run(0, list)[..2], [Status::Ok; 2]);
        assert_eq!(r.wp(1), 16);
    }
}

/// The status of a BIO past the end of the disk is its own, whatever stands in front of it in the list.
#[test]
fn past_the_end_of_the_disk_is_out_of_range_in_any_list() {
    let fresh = || make(2, 64, 64).last_zone(16, 16);
    type Bad = fn() -> Box<zoneplug_core::Bio>;
    let cases: [(Vec<Box<zoneplug_core::Bio>>, Bad); 4] = [
        (vec![write(64, 8), write(72, 8)], || write(80, 8)),
        (vec![write(64, 8)], || write(72, 16)),
        (vec![write(64, 8), write(72, 8)], || op(Op::WriteZeroes, 80, 8)),
        (vec![append(64, 8, 1)], || append(64, 24, 1)),
    ];
    for (before, bad) in cases {
        for conventional in [&[][..], &[1]] {
            if bad().op == Op::ZoneAppend && !conventional.is_empty() {
                continue;
            }
            let rig = || fresh().conventional(conventional).rig();
            assert_eq!(rig().run(0, [bad()]), [Status::OutOfRange], "alone");
            let mut r = rig();
            let good = before.len();
            let list = before.iter().map(|b| match b.op {
                Op::ZoneAppend => append(b.sector.0, b.len_sectors, 1),
                _ => write(b.sector.0, b.len_sectors),
            });
            let list = list.chain([bad()]);
            let list: Vec<_> = list.enumerate().map(|(i, b)| token(b, 1 + i as u64)).collect();
            r.submit(0, list);
            let mut done = r.finish();
            done.retain(|b| b.token() > 0);
            done.sort_by_key(|b| b.token());
            let got: Vec<_> = done.iter().map(|b| b.status).collect();
            let expected: Vec<_> =
                std::iter::repeat_n(Status::Ok, good).chain([Status::OutOfRange]).collect();
            assert_eq!(got, expected, "behind {good}, conventional {conventional:?}");
        }
    }
}

/// W11: what may not wait is sent at once or comes back at once, whatever it would have to wait for.
#[test]
fn w11_nowait_never_waits() {
    let nowait = |b| flags(b, zoneplug_core::Flags::NOWAIT);
    let small = |l: &mut zoneplug_core::zone::Limits| l.max_transfer_sectors = 8;
    let native = |l: &mut zoneplug_core::zone::Limits| l.zone_append_max_sectors = 8;
    type Case = (&'static str, fn(Make) -> Make, fn() -> Box<zoneplug_core::Bio>);
    let cases: [Case; 9] = [
        ("read", |m| m, || read(64, 8)),
        ("report", |m| m, || report(0, 4)),
        ("split read", |m| m, || read(60, 8)),
        ("conventional write", |m| m, || write(0, 8)),
        ("flush", |m| m, || op(Op::Flush, 0, 0)),
        ("without plugs", |m| m.mode(Mode::None), || write(64, 8)),
        ("zone locks", |m| m.mode(Mode::Lock), || read(64, 8)),
        (
            "scheduler",
            |m| m.config(|c| c.scheduler = zoneplug_core::sched::Scheduler::MqDeadline),
            || read(64, 8),
        ),
        ("single writer", |m| m.config(|c| c.zoned_qd1_writes = Some(true)), || read(64, 8)),
    ];
    for (name, f, bio) in cases {
        let mut r = f(make(4, 64, 64).conventional(&[0]).limits(small).queues(&[(8, 1)])).rig();
        r.submit(0, [token(read(128, 8), 1)]);
        r.submit(0, [nowait(token(bio(), 2))]);
        r.poll(0);
        let back: Vec<_> = r.done.iter().map(|b| (b.token(), b.status)).collect();
        assert_eq!(back, [(2, Status::WouldBlock)], "{name}: with the only tag at the device");
        assert_eq!(r.finish().len(), 2);
        // With a tag it is done.
        assert_eq!(r.status(nowait(read(128, 8))), Status::Ok, "{name}");
    }
    // Two tags, one of them free, and a read of two parts: not even the first is sent.
    let mut r = make(4, 64, 64).limits(small).queues(&[(8, 2)]).rig();
    r.submit(0, [token(read(128, 8), 1)]);
    let sent = r.commands(Op::Read);
    r.submit(0, [nowait(token(read(64, 16), 2))]);
    assert_eq!(r.commands(Op::Read), sent, "all of it or nothing");
    r.poll(0);
    assert_eq!(r.done.iter().map(|b| b.status).collect::<Vec<_>>(), [Status::WouldBlock]);
    let mut r = make(4, 64, 64).limits(native).queues(&[(8, 1)]).rig();
    r.submit(0, [token(read(128, 8), 1)]);
    r.submit(0, [nowait(token(append(64, 8, 1), 2))]);
    r.poll(0);
    assert_eq!(r.done.iter().map(|b| b.status).collect::<Vec<_>>(), [Status::WouldBlock]);
}

/// A queue or a disk that makes no sense is refused with something to try.
#[test]
fn senseless_queues_and_disks_are_refused() {
    let r = make(4, 64, 64).rig();
    for (depth, tags) in [(0, 1), (1, 0), (1, u16::MAX)] {
        let e = r.disk.open_polled_queue(depth, tags).unwrap_err();
        assert!(e.what_to_try().is_some());
    }
    assert!(r.disk.cached_zone(ZoneNo(4)).is_err());
    assert!(DiskConfig::default() == DiskConfig { mode: Mode::Plug, ..DiskConfig::default() });
}

/// A full queue takes what fits and leaves the rest to the client, in order.
#[test]
fn a_full_queue_leaves_the_rest_with_the_client() {
    let mut r = make(4, 64, 64).queues(&[(3, 1)]).rig();
    let mut list: zoneplug_core::Bios = (0..5).map(|i| write(i * 8, 8)).collect();
    assert_eq!(r.queues[0].submit(r.now, &mut list), 3);
    assert_eq!((list.len(), list[0].sector.0, r.wp(0)), (2, 24, 24));
    assert_eq!((r.queues[0].room(), r.queues[0].submit(r.now, &mut list)), (0, 0));
    r.finish();
    assert_eq!(r.queues[0].submit(r.now, &mut list), 2);
    assert!(r.finish().iter().all(|b| b.status.is_ok()));
}
