//! O1-O7 through the layer, tags (C3, R37), memory (P12, R38), and what can be seen of a disk (T1, T2, T5).

mod common;

use common::*;
use zoneplug_core::disk::Mode;
use zoneplug_core::zone::Condition;
use zoneplug_core::{Flags, Op, Status, ZoneNo};

fn limited(open: u32, active: u32) -> Make {
    make(8, 64, 64).limits(|l| (l.max_open_zones, l.max_active_zones) = (open, active))
}

/// O1, T1: limits that cannot be reached are shown as 0; a disk without limits shows 128 if it has more zones (O2, B3).
#[test]
fn o1_attributes_of_limits() {
    let shown = |m: Make| {
        let r = m.rig();
        (r.disk.attribute("max_open_zones").unwrap(), r.disk.attribute("max_active_zones").unwrap())
    };
    let text = |a: &str, b: &str| (a.to_owned(), b.to_owned());
    assert_eq!(shown(limited(2, 4)), text("2", "4"));
    assert_eq!(shown(limited(8, 9)), text("0", "0"));
    assert_eq!(shown(limited(0, 0)), text("0", "0"));
    assert_eq!(shown(make(200, 8, 8)), text("128", "0"));
    assert_eq!(shown(make(130, 8, 8).conventional(&[0, 1, 2])), text("0", "0"), "B3: 127 left");
}

/// O2: the limit that is shown for a disk without one may be exceeded.
/// R38.
#[test]
fn o2_the_fake_limit_is_a_hint() {
    let mut r = make(200, 16, 16).queues(&[(256, 32)]).rig();
    let s = r.run(0, (0..200).map(|z| write(z * 16, 8)));
    assert!(s.iter().all(|s| s.is_ok()));
    assert_eq!(r.disk.counters().live_plugs, 200);
}

/// O3, R33: a limit passes through unchanged, loses no write pointer, and goes away when a zone is finished.
#[test]
fn o3_limits_pass_through_and_recover() {
    for (open, active, status) in [(0, 2, Status::ActiveLimit), (2, 2, Status::ActiveLimit)] {
        let mut r = limited(open, active).rig();
        assert_eq!(r.run(0, [write(0, 8), write(64, 8)]), [Status::Ok; 2]);
        r.submit(0, [token(write(128, 8), 0)]);
        r.submit(0, [token(write(136, 8), 1)]);
        let s: Vec<_> = r.finish().iter().map(|b| b.status).collect();
        assert_eq!(s, [status, Status::AbortedBehind]);
        assert_eq!(r.cached(2), Some((Condition::Empty, 0)));
        assert_eq!(r.run(0, [write(8, 8), op(Op::ZoneFinish, 64, 64)]), [Status::Ok; 2]);
        assert_eq!(r.run(0, [append(128, 8, 128)]), [Status::Ok]);
    }
    assert_eq!((Status::OpenLimit.errno(), Status::ActiveLimit.errno()), (109, 75));
}

/// O3: the open limit, met by an explicit open of as many zones.
#[test]
fn o3_the_open_limit_passes_through() {
    let mut r = limited(2, 0).rig();
    assert_eq!(r.run(0, (0..2).map(|z| op(Op::ZoneOpen, z * 64, 64))), [Status::Ok; 2]);
    assert_eq!(r.status(op(Op::ZoneOpen, 128, 64)), Status::OpenLimit);
    assert_eq!(r.status(write(128, 8)), Status::OpenLimit);
    assert_eq!(r.cached(2), Some((Condition::Empty, 0)));
    assert_eq!(r.status(op(Op::ZoneClose, 0, 64)), Status::Ok);
    assert_eq!(r.status(write(128, 8)), Status::Ok);
}

/// O4: implicitly open zones are closed for others; the layer does not notice.
#[test]
fn o4_implicit_closes_do_not_disturb_plugs() {
    let mut r = limited(1, 0).rig();
    for round in 0..4 {
        for z in 0..6u64 {
            assert_eq!(r.status(write(z * 64 + round * 8, 8)), Status::Ok);
        }
    }
    assert_eq!(r.dev.zones_in_use().open, 1);
}

/// O6: a zone filled by writing and one that was finished look the same.
#[test]
fn o6_full_is_full() {
    let mut r = make(4, 64, 48).rig();
    assert_eq!(r.run(0, [write(0, 48), op(Op::ZoneFinish, 64, 64)]), [Status::Ok; 2]);
    let z = r.report(0, 2);
    assert_eq!((z[0].wp.0, z[1].wp.0), (64, 128));
    assert_eq!(
        (r.cached(0), r.cached(1)),
        (Some((Condition::Full, 64)), Some((Condition::Full, 64)))
    );
    assert_eq!(r.status(op(Op::ZoneFinish, 0, 64)), Status::Ok);
}

/// O7 (B31a): past the write pointer are zeroes; reads span zones and transfers; offline zones fail.
#[test]
fn o7_reads_past_the_write_pointer_are_zeroes() {
    let mut r = make(4, 64, 64).limits(|l| l.max_transfer_sectors = 24).rig();
    assert_eq!(r.run(0, [write_as(0, 60, 1), write_as(64, 10, 100)]), [Status::Ok; 2]);
    let b = r.one(read(50, 100));
    assert_eq!(b.status, Status::Ok);
    let expected: Vec<_> =
        (51..61).chain([0; 4]).chain(100..110).chain([0; 54]).chain([0; 22]).collect();
    assert_eq!(stamps(b.data()), expected);
    r.dev.set_condition(ZoneNo(1), Condition::Offline);
    assert_eq!(r.status(read(50, 100)), Status::ZoneOffline);
    assert_eq!(r.status(read(50, 14)), Status::Ok);
    assert_eq!(r.status(read(200, 57)), Status::OutOfRange);
}

/// C3, R37: with 32 tags, reads complete while 1000 writes to one zone wait; with zone locks they do not.
#[test]
fn c3_reads_are_not_starved_by_writes_that_wait() {
    for (mode, starved) in [(Mode::Plug, false), (Mode::Lock, true)] {
        let mut r = make(4, 8192, 8192).mode(mode).queues(&[(1100, 32)]).rig();
        r.submit(0, (0..1000).map(|i| flags(write(i * 8, 8), Flags::NOMERGE)));
        r.submit(0, (0..20).map(|i| token(read(8192 + i * 8, 8), 1)));
        for _ in 0..4 {
            r.step();
        }
        let reads = r.done.iter().filter(|b| b.token() == 1).count();
        assert_eq!(reads == 20, !starved, "{mode}: {reads} of 20 reads after two latencies");
        assert!(r.disk.counters().plugs.parked == if starved { 0 } else { 999 });
        assert!(r.finish().iter().all(|b| b.status.is_ok()));
    }
}

/// C3: also when as many zones are written as there are tags, and for as long as the writers like.
#[test]
fn c3_reads_get_a_tag_when_every_tag_has_a_busy_zone() {
    let mut r = make(4, 4096, 4096).config(|c| c.nomerges = true).queues(&[(64, 2)]).rig();
    for z in 0..2 {
        r.submit(0, (0..8).map(|i| write(z * 4096 + i * 8, 8)));
    }
    r.submit(0, [token(read(8192, 8), 9)]);
    for round in 0..40 {
        r.step();
        if r.done.iter().any(|b| b.token() == 9) {
            r.finish();
            return;
        }
        // As busy as before.
        for b in std::mem::take(&mut r.done) {
            let z = b.sector.0 / 4096;
            let next = z * 4096 + r.wp(z as u32);
            r.submit(0, [write(next, 8)]);
        }
        assert!(round < 39, "the read never got a tag");
    }
}

/// P4: the first write of a disk is checked like any other: the write pointer is known from the report.
#[test]
fn p4_the_first_write_is_checked() {
    let mut r = make(4, 64, 64).rig();
    r.dev.set_write_pointer(ZoneNo(1), 8);
    let disk = open(r.dev.clone(), zoneplug_core::disk::DiskConfig::default());
    let mut r2 =
        Rig { queues: vec![disk.open_polled_queue(8, 8).unwrap()], disk, ..make(4, 64, 64).rig() };
    r2.dev = r.dev.clone();
    assert_eq!(r2.run(0, [write(64, 8), write(0, 8)]), [Status::NotAtWritePointer, Status::Ok]);
    assert_eq!(r2.status(write(72, 8)), Status::Ok);
    assert_eq!(r.run(0, [read(0, 8)]), [Status::Ok]);
}

/// P11: busy, stale and partly written zones are live; empty and full ones are not.
#[test]
fn p11_only_partly_written_zones_are_live() {
    let mut r = make(8, 64, 64).rig();
    let live = |r: &Rig| r.disk.counters().live_plugs;
    assert_eq!(live(&r), 0);
    assert_eq!(r.run(0, [write(0, 8), write(64, 64)]), [Status::Ok; 2]);
    assert_eq!(live(&r), 1);
    r.fail(Op::Write, Status::Io);
    assert_eq!(r.status(write(128, 8)), Status::Io);
    assert_eq!(live(&r), 2);
    assert_eq!(r.status(op(Op::ZoneResetAll, 0, 0)), Status::Ok);
    assert_eq!(live(&r), 0);
}

/// P12, R38: queues that come and go leave no memory behind.
#[test]
fn p12_queues_that_come_and_go_leave_no_memory() {
    let rss = || {
        let s = std::fs::read_to_string("/proc/self/statm").ok()?;
        s.split(' ').nth(1)?.parse::<u64>().ok().map(|pages| pages * 4)
    };
    let r = make(64, 64, 64).config(|c| c.shards = 4).rig();
    let Some(before) = rss() else { return };
    for _ in 0..2000 {
        r.disk.open_polled_queue(1024, 1).unwrap();
    }
    let grown = rss().unwrap().saturating_sub(before);
    assert!(grown < 64 << 10, "{grown} KiB for queues that are gone");
}

/// P15: without plugs everything passes, spanning and long BIOs included.
#[test]
fn p15_every_operation_works_without_plugs() {
    for mode in [Mode::None, Mode::Lock] {
        let mut r = make(4, 64, 64).mode(mode).limits(|l| l.max_transfer_sectors = 64).rig();
        assert_eq!(r.run(0, [write(0, 8)]), [Status::Ok]);
        assert_eq!(r.run(0, [op(Op::WriteZeroes, 8, 8)]), [Status::Ok]);
        assert_eq!(r.run(0, [write(16, 112)]), [Status::Ok], "two zones");
        assert_eq!(r.run(0, [read(0, 200), op(Op::Flush, 0, 0)]), [Status::Ok; 2]);
        assert_eq!(r.report(0, 4).len(), 4);
        for what in [Op::ZoneReset, Op::ZoneOpen, Op::ZoneClose, Op::ZoneFinish] {
            assert_eq!(r.run(0, [op(what, 64, 64)]), [Status::Ok], "{what:?}");
        }
        assert_eq!(r.run(0, [op(Op::ZoneResetAll, 0, 0)]), [Status::Ok]);
        assert_eq!(r.run(0, [write(8, 8)]), [Status::UnalignedWrite], "the device says it");
        assert_eq!(r.run(0, [write(0, 8)]), [Status::Ok], "and nothing is poisoned");
    }
}

/// T1: names and values; only two can be changed, and errors say what to try.
#[test]
fn t1_attributes() {
    let r = limited(3, 5).limits(|l| l.write_granularity_sectors = 8).rig();
    let get = |name| r.disk.attribute(name).unwrap();
    for (name, value) in [
        ("zoned", "host-managed"),
        ("nr_zones", "8"),
        ("chunk_sectors", "64"),
        ("zone_write_granularity", "4096"),
        ("logical_block_size", "512"),
        ("max_open_zones", "3"),
        ("max_active_zones", "5"),
        ("nomerges", "0"),
        ("rotational", "0"),
        ("mode", "plug"),
    ] {
        assert_eq!(get(name), value, "{name}");
    }
    r.disk.set_attribute("nomerges", "1").unwrap();
    assert_eq!(get("nomerges"), "1");
    assert!(r.disk.config().nomerges);
    for (name, value) in [("nomerges", "2"), ("zoned", "none"), ("nosuch", "1")] {
        let e = r.disk.set_attribute(name, value).unwrap_err();
        assert!(e.what_to_try().is_some(), "{e}");
    }
}

/// T2: the plug dump has a line for each live plug, in Linux's form.
#[test]
fn t2_the_plug_dump_is_linuxs() {
    let mut r = make(8, 64, 64).rig();
    assert_eq!(r.run(0, [write(64, 8), write(128, 64)]), [Status::Ok; 2]);
    r.submit(0, [write(192, 8)]);
    r.submit(0, [write(200, 8), write(208, 8)]);
    let mut dump = String::new();
    r.disk.zone_wplugs(&mut dump).unwrap();
    assert_eq!(
        dump,
        "Zone no: 1, flags: 0x0, ref: 1, cond: ACTIVE, wp ofst: 8, pending BIO: 0\n\
         Zone no: 3, flags: 0x1, ref: 4, cond: ACTIVE, wp ofst: 24, pending BIO: 2\n"
    );
    r.finish();
    r.fail(Op::Write, Status::Io);
    assert_eq!(r.status(write(72, 8)), Status::Io);
    dump.clear();
    r.disk.zone_wplugs(&mut dump).unwrap();
    assert!(dump.starts_with("Zone no: 1, flags: 0x2, ref: 1, cond: ACTIVE"), "{dump}");
}

/// T5: every count, once.
#[test]
fn t5_counters_count_what_happened() {
    let mut r = make(8, 64, 48).rig();
    r.submit(0, [write(0, 8)]);
    r.submit(0, [write(8, 8), append(0, 8, 0), write(0, 8), write(64, 49), append(1, 1, 0)]);
    r.finish();
    r.fail(Op::Write, Status::Io);
    r.submit(0, [write(24, 8)]);
    r.submit(0, [write(32, 8)]);
    r.finish();
    r.status(write(24, 8));
    r.report(0, 1);
    let c = r.disk.counters();
    let p = &c.plugs;
    assert_eq!((p.issued, p.parked, p.merged, p.aborted), (3, 3, 1, 1));
    assert_eq!((p.lost, p.resynced, p.rejected.total()), (1, 1, 4));
    for s in [
        Status::NotAtWritePointer,
        Status::PastCapacity,
        Status::NotZoneStart,
        Status::StaleWritePointer,
    ] {
        assert_eq!(p.rejected.by(s), 1, "{s}");
    }
    assert_eq!((c.live_plugs, c.waiting), (1, 0));
}

/// T5: the side table counts what one zone's plug did, and is not there unless it was asked for.
#[test]
fn t5_zones_are_counted_where_that_was_asked_for() {
    let mut r = make(3, 64, 64).config(|c| c.zone_counters = true).rig();
    r.submit(0, [write(64, 8), flags(write(72, 8), Flags::NOMERGE), write(80, 8), write(88, 8)]);
    r.submit(0, [write(0, 8)]);
    assert!(r.finish().iter().all(|b| b.status.is_ok()));
    assert_eq!(r.status(write(64, 8)), Status::NotAtWritePointer);
    r.fail(Op::Write, Status::Io);
    r.submit(0, [flags(write(96, 8), Flags::NOMERGE), write(104, 8)]);
    r.finish();
    r.report(64, 1);
    let c = r.disk.zone_counters(ZoneNo(1)).unwrap();
    assert_eq!((c.issued, c.merged, c.parked), (4, 1, 4));
    assert_eq!((c.rejected, c.aborted, c.resynced), (1, 1, 1));
    assert_eq!(r.disk.zone_counters(ZoneNo(0)).unwrap().issued, 1);
    assert_eq!(r.disk.zone_counters(ZoneNo(3)), None);
    assert_eq!(make(3, 64, 64).rig().disk.zone_counters(ZoneNo(0)), None);
}
