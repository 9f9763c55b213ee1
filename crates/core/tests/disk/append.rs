//! A1-A15: zone append, emulated and native (R25-R28).

use crate::common::*;
use std::collections::BTreeSet;
use zoneplug_core::disk::Mode;
use zoneplug_core::zone::Condition;
use zoneplug_core::{Flags, IoBuf, Nanos, Op, Status};
use zoneplug_devices::emu::Fault;

fn native(append_max: u32) -> Make {
    make(4, 64, 64).limits(|l| l.zone_append_max_sectors = append_max)
}

/// A1, R26: conventional, not at a zone start, too long, past the capacity, full, off the disk: each its status.
/// A15.
#[test]
fn a1_a_bad_append_says_what_is_wrong() {
    for make in [
        make(4, 64, 48).limits(|l| l.max_transfer_sectors = 32).conventional(&[0]),
        make(4, 64, 48).limits(|l| l.zone_append_max_sectors = 32).conventional(&[0]),
    ] {
        let mut r = make.rig();
        assert_eq!(r.status(append(0, 8, 0)), Status::ConventionalZone);
        assert_eq!(r.status(append(65, 8, 0)), Status::NotZoneStart);
        assert_eq!(r.status(append(64, 33, 0)), Status::AppendTooLarge);
        assert_eq!(r.status(append(256, 8, 0)), Status::OutOfRange);
        assert_eq!(r.status(append(64, 0, 0)), Status::OutOfRange, "A15");
        let mut short = append(64, 8, 0);
        short.set_buf(IoBuf::leaked(7 * 512));
        assert_eq!(r.status(short), Status::BadBuffer);
        assert_eq!(r.status(append(64, 32, 0)), Status::Ok);
        assert_eq!(r.device_wp(1), 32, "only the last one did anything");
    }
}

/// A1, P15: a disk without plugs and without native append has none.
#[test]
fn a1_without_plugs_or_native_append_there_is_none() {
    for mode in [Mode::None, Mode::Lock] {
        let mut r = make(4, 64, 64).mode(mode).rig();
        assert_eq!(r.status(append(0, 8, 0)), Status::NotSupported);
        let mut r = native(8).mode(mode).rig();
        assert_eq!(r.one(append(0, 8, 0)).sector.0, 0);
        assert_eq!(r.one(append(0, 8, 0)).sector.0, 8);
    }
}

/// A2: the limit that a client sees is never 0: the device's, or what one transfer takes.
#[test]
fn a2_the_visible_limit_is_never_zero() {
    let seen = |m: Make| m.rig().disk.attribute("zone_append_max_bytes").unwrap();
    assert_eq!(seen(make(4, 64, 64)), (64 * 512).to_string());
    assert_eq!(seen(make(4, 64, 64).limits(|l| l.max_transfer_sectors = 32)), "16384");
    assert_eq!(seen(native(16)), "8192");
    assert_eq!(seen(native(16).config(|c| c.emulate_append = true)), (64 * 512).to_string());
}

/// A3, B20a: an emulated append is a write at the write pointer, and comes back as an append.
#[test]
fn a3_an_emulated_append_comes_back_as_an_append() {
    let mut r = make(4, 64, 64).rig();
    assert_eq!(r.status(write(64, 8)), Status::Ok);
    let mut bio = r.one(append(64, 8, 5));
    assert_eq!((bio.op, bio.sector.0, bio.flags), (Op::ZoneAppend, 72, Flags::NONE));
    assert_eq!((r.commands(Op::ZoneAppend), r.commands(Op::Write)), (0, 2));
    // The same BIO can be used again.
    bio.sector.0 = 64;
    assert_eq!(r.one(bio).sector.0, 80);
    assert_eq!(r.medium(72, 16), (5..13).chain(5..13).collect::<Vec<_>>());
}

/// A4, A5, R25: many clients, with writes of other zones between: every piece is found where it was said to be.
#[test]
fn r25_all_appended_data_is_found_at_the_returned_sectors() {
    for m in [
        make(4, 100, 90),
        native(16),
        native(16).config(|c| c.emulate_append = true),
        make(4, 64, 64).config(|c| c.nomerges = true),
    ] {
        let mut m = m.queues(&[(32, 4), (32, 2), (32, 1)]);
        m.emu.reorder = Some(7);
        let zone = u64::from(m.emu.geometry.zone_sectors());
        let mut r = m.rig();
        for i in 0..36u64 {
            let bio = append(i % 3 * zone, 1 + i as u32 % 4, i * 100 + 1);
            r.submit(i as usize % 3, [token(bio, i)]);
        }
        let mut seen = BTreeSet::new();
        for b in r.finish() {
            assert_eq!(b.status, Status::Ok);
            let expected: Vec<_> =
                (0..u64::from(b.len_sectors)).map(|s| b.token() * 100 + 1 + s).collect();
            assert_eq!(r.medium(b.sector.0, b.len_sectors), expected);
            assert!((0..u64::from(b.len_sectors)).all(|s| seen.insert(b.sector.0 + s)), "overlap");
            assert_eq!(b.sector.0 / zone, b.token() % 3);
        }
    }
}

/// A5: emulated appends land in the order of acceptance, mixed with writes.
#[test]
fn a5_emulated_appends_and_writes_share_one_order() {
    let mut r = make(4, 64, 64).rig();
    let list = [append(0, 4, 0), write(4, 4), append(0, 4, 8), append(0, 4, 12), write(16, 4)];
    r.submit(0, list.into_iter().zip(0..).map(|(b, t)| token(b, t)));
    let done = r.finish();
    assert!(done.iter().all(|b| b.status.is_ok()));
    assert_eq!(done.iter().map(|b| b.sector.0).collect::<Vec<_>>(), [0, 4, 8, 12, 16]);
    assert_eq!(r.medium(0, 20), (0..20).collect::<Vec<_>>());
}

/// A6, B4: a disk that is opened on partly written zones knows where they are.
/// P5.
#[test]
fn a6_partly_written_zones_are_known_from_the_report() {
    let r = make(4, 64, 48).rig();
    r.dev.set_write_pointer(zoneplug_core::ZoneNo(1), 17);
    r.dev.set_write_pointer(zoneplug_core::ZoneNo(2), 48);
    let disk = open(r.dev.clone(), zoneplug_core::disk::DiskConfig::default());
    let mut r = Rig { queues: vec![disk.open_polled_queue(8, 8).unwrap()], disk, ..r };
    assert_eq!(r.one(append(64, 8, 0)).sector.0, 64 + 17);
    assert_eq!(r.status(append(128, 8, 0)), Status::ZoneFull);
    assert_eq!(r.one(append(192, 8, 0)).sector.0, 192);
    assert_eq!(r.cached(2), Some((Condition::Full, 64)));
}

/// A7, R28 (B19): while a native append is on its way the write pointer is unknown, and what waits is aborted.
/// `append_and_write.rs` has the mixes of appends and writes.
#[test]
fn a7_a_native_append_ends_the_tracking_of_its_zone() {
    let mut r = native(16).rig();
    r.submit(0, [token(write(0, 8), 0)]);
    r.submit(0, [token(write(8, 8), 1), token(append(0, 8, 50), 2), token(write(16, 8), 3)]);
    let s: Vec<_> = r.finish().iter().map(|b| b.status).collect();
    let expected = [Status::Ok, Status::AbortedBehind, Status::Ok, Status::StaleWritePointer];
    assert_eq!(s, expected);
    assert_eq!(r.commands(Op::ZoneAppend), 1);
    // The zone is writable again, behind the append.
    assert_eq!(r.status(write(16, 8)), Status::Ok);
}

/// A8, R28 (B28a): once native append was used, nothing that is cached is believed, until all zones are reset.
#[test]
fn a8_the_cache_is_unusable_after_a_native_append_until_reset_all() {
    let mut r = native(16).rig();
    assert_eq!(r.cached(3), Some((Condition::Empty, 0)));
    assert_eq!(r.status(append(0, 8, 0)), Status::Ok);
    assert_eq!((r.cached(0), r.cached(3)), (None, None));
    assert_eq!(r.status(op(Op::ZoneReset, 0, 64)), Status::Ok);
    assert_eq!(r.cached(3), None);
    assert_eq!(r.status(op(Op::ZoneResetAll, 0, 0)), Status::Ok);
    assert_eq!(r.cached(0), Some((Condition::Empty, 0)));
    // Emulated appends keep it.
    let mut r = native(16).config(|c| c.emulate_append = true).rig();
    assert_eq!(r.status(append(0, 8, 0)), Status::Ok);
    assert_eq!(r.cached(0), Some((Condition::Active, 8)));
}

/// E6, A7: a report or a resync sent before a native append says nothing about the zone after it.
#[test]
fn a7_a_report_from_before_a_native_append_is_not_believed() {
    for flag in [Flags::NONE, Flags::RESYNC] {
        let mut r = native(16).queues(&[(8, 2), (8, 2)]).rig();
        r.submit(1, [flags(report(0, 1), flag)]);
        r.submit(0, [append(0, 8, 0)]);
        r.finish();
        // Believed, the report would have the layer accept a write at 0, which the device refuses.
        assert_eq!(r.status(write(0, 8)), Status::NotAtWritePointer);
        assert_eq!(r.status(write(8, 8)), Status::Ok);
    }
}

/// A9, W10: what does not fit is refused, and the zone can still be filled.
/// R26.
#[test]
fn a9_an_append_that_does_not_fit_writes_nothing() {
    let mut r = make(4, 64, 40).rig();
    assert_eq!(r.status(append(0, 36, 0)), Status::Ok);
    assert_eq!(r.status(append(0, 5, 0)), Status::PastCapacity);
    let b = r.one(append(0, 4, 0));
    assert_eq!((b.status, b.sector.0), (Status::Ok, 36));
    assert_eq!(r.status(append(0, 1, 0)), Status::ZoneFull);
}

/// A10, E9: an append that fails reports no sector, in flight or refused.
#[test]
fn a10_a_failed_append_reports_no_sector() {
    for m in [make(4, 64, 64), native(16)] {
        let mut r = m.rig();
        let op =
            if r.disk.limits().zone_append_max_sectors == 0 { Op::Write } else { Op::ZoneAppend };
        assert_eq!(r.status(append(64, 8, 0)), Status::Ok);
        r.dev.fail_next(Fault { torn_sectors: Some(3), ..Fault::next(op, Status::Io) });
        let b = r.one(append(64, 8, 0));
        assert_eq!((b.status, b.sector.0), (Status::Io, 64));
    }
}

/// A14: appends to zones made read-only or offline fail and nothing else happens.
#[test]
fn a14_appends_to_read_only_and_offline_zones_fail() {
    for (cond, status) in
        [(Condition::ReadOnly, Status::ZoneReadOnly), (Condition::Offline, Status::ZoneOffline)]
    {
        let mut r = make(4, 64, 64).rig();
        r.dev.set_condition(zoneplug_core::ZoneNo(1), cond);
        assert_eq!(r.status(append(64, 8, 0)), status, "the device says it");
        r.report(0, 4);
        let seen = r.commands(Op::Write);
        assert_eq!(r.status(append(64, 8, 0)), status, "the layer knows it");
        assert_eq!(r.commands(Op::Write), seen);
        assert_eq!(r.status(append(0, 8, 0)), Status::Ok);
    }
}

/// A1: appends are not merged with what is not contiguous: other zones stay apart.
#[test]
fn a1_appends_to_different_zones_are_different_commands() {
    let mut r = make(4, 64, 64).rig();
    r.submit(0, (0..8).map(|i| token(append(i % 2 * 64, 4, i), i)));
    let done = r.finish();
    let sectors: Vec<_> = done.iter().map(|b| b.sector.0).collect();
    assert_eq!(sectors, [0, 64, 4, 68, 8, 72, 12, 76]);
    assert_eq!(r.now, Nanos(200));
}
