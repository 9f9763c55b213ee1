//! Zones of nearly 2^32 sectors: no sum of an offset and a length fits in 32 bits.

use crate::common::*;
use zoneplug_core::disk::{DiskConfig, Mode};
use zoneplug_core::zone::{Condition, Geometry};
use zoneplug_core::{Bio, IoBuf, Nanos, Op, Sector, Status, ZoneNo};
use zoneplug_devices::emu::{EmuConfig, EmuDisk, EmuKind, Fault};

/// A zone: 2^32 - 8 sectors.
const SIZE: u32 = u32::MAX - 7;

/// 4 such zones of which all but the last 8 sectors can be written, without memory; the first `used` sectors of each
/// but the last have been, and the last zone, of `last` sectors, is conventional.
fn rig(used: u32, last: u32, f: impl FnOnce(&mut EmuConfig, &mut DiskConfig)) -> Rig {
    let g = Geometry::new(4, SIZE, SIZE - 8).unwrap();
    let g = g.with_last_zone(last, last).unwrap().with_conventional([ZoneNo(3)]).unwrap();
    let mut emu = EmuConfig::new(EmuKind::Null, g);
    (emu.limits, emu.latency, emu.paranoid) = (limits(), Nanos(100), true);
    emu.limits.max_write_zeroes_sectors = u32::MAX;
    let mut config = DiskConfig::default();
    f(&mut emu, &mut config);
    let dev = EmuDisk::new(emu).unwrap();
    (0..3).for_each(|z| dev.set_write_pointer(ZoneNo(z), used));
    let disk = open(dev.clone(), config);
    let queues = (0..2).map(|_| disk.open_polled_queue(64, 8).unwrap()).collect();
    Rig { dev, disk, queues, now: Nanos(0), done: Vec::new() }
}

fn plain(used: u32) -> Rig {
    rig(used, SIZE, |_, _| {})
}

fn start(zone: u64) -> u64 {
    zone * u64::from(SIZE)
}

/// Of memory that a disk without data never looks at.
fn bio(op: Op, sector: u64, sectors: u32) -> Box<Bio> {
    let buf = if op.has_data() { IoBuf::leaked(sectors << 9) } else { IoBuf::empty() };
    Bio::with_buf(op, Sector(sector), sectors, buf)
}

/// W8, W10: what does not fit is refused, whichever operation, alone, in a run, or as the part of a longer write.
#[test]
fn w10_a_write_past_the_capacity_of_a_large_zone_is_refused() {
    // 24 sectors before the capacity, 32 before the next zone, 40 before 2^32.
    let used = SIZE - 32;
    let at = start(1) + u64::from(used);
    for len in [32, 40, 48, 4096] {
        for n in 0..4 {
            let mut r = plain(used);
            let bios = match n {
                0 => vec![bio(Op::ZoneAppend, start(1), len)],
                1 => vec![bio(Op::Write, at, len)],
                2 => vec![bio(Op::WriteZeroes, at, len)],
                _ => vec![bio(Op::ZoneAppend, start(1), 8), bio(Op::ZoneAppend, start(1), len)],
            };
            let first = bios.len() - 1;
            let statuses = r.run(0, bios);
            assert_eq!(statuses[first], Status::PastCapacity, "{n}, {len} sectors: {statuses:?}");
            assert_eq!((r.wp(1), r.device_wp(1)), (u64::from(used) + 8 * first as u64, r.wp(1)));
        }
    }
}

/// The last sectors of a zone are written as any: in one command where they merge, and then the zone is full.
#[test]
fn the_end_of_a_large_zone_is_exact() {
    let used = SIZE - 32;
    let mut r = plain(used);
    let at = start(2) + u64::from(used);
    assert_eq!(r.run(0, [bio(Op::Write, at, 8)]), [Status::Ok]);
    let list =
        [bio(Op::Write, at + 8, 8), bio(Op::ZoneAppend, start(2), 8), bio(Op::Write, at + 24, 8)];
    assert_eq!(r.run(0, list), [Status::Ok, Status::Ok, Status::ZoneFull]);
    assert_eq!(r.cached(2), Some((Condition::Full, u64::from(SIZE))));
    assert_eq!(r.cached(1), Some((Condition::Active, u64::from(used))));
    let zones = r.report(0, 4);
    assert_eq!(zones[2].start, Sector(start(2)));
    assert_eq!(zones[3].cond, Condition::NotWp);
    // Zeroes as long as a zone, and then some: in parts.
    let mut r = plain(0);
    assert_eq!(r.run(0, [bio(Op::WriteZeroes, start(1), SIZE - 8)]), [Status::Ok]);
    assert_eq!(r.cached(1), Some((Condition::Full, u64::from(SIZE))));
    assert_eq!(r.run(0, [bio(Op::WriteZeroes, start(2), SIZE - 7)]), [Status::PastCapacity]);
    assert_eq!(r.run(0, [bio(Op::ZoneFinish, start(2), SIZE)]), [Status::Ok]);
    assert_eq!(r.run(0, [bio(Op::ZoneReset, start(2), SIZE)]), [Status::Ok]);
    assert_eq!(r.wp(2), 0);
}

/// Reads, and writes to a conventional zone, are cut at the end of a zone, and a short last zone ends where it ends.
#[test]
fn large_zones_are_crossed_and_end() {
    for mode in [Mode::Plug, Mode::Lock, Mode::None] {
        for last in [64, SIZE - 1, SIZE] {
            let mut r = rig(SIZE - 16, last, |_, c| c.mode = mode);
            assert_eq!(r.run(0, [bio(Op::Read, start(1) - 16, 32)]), [Status::Ok], "{mode}");
            assert_eq!(r.commands(Op::Read), 2);
            let end = start(3) + u64::from(last);
            assert_eq!(r.run(0, [bio(Op::Write, end - 32, 32)]), [Status::Ok], "{mode}");
            assert_eq!(r.run(0, [bio(Op::Write, end - 16, 32)]), [Status::OutOfRange], "{mode}");
            assert_eq!(r.run(0, [bio(Op::Read, end - 1, 2)]), [Status::OutOfRange], "{mode}");
        }
    }
}

/// What goes on after a failure goes on where it fits, and no further.
#[test]
fn a_large_zone_goes_on_after_a_failure() {
    let used = SIZE - 48;
    let mut r = rig(used, SIZE, |emu, c| {
        emu.limits.keeps_write_order = true;
        (c.nomerges, c.zone_write_depth) = (true, 4);
    });
    let torn = Fault { torn_sectors: Some(8), ..Fault::next(Op::Write, Status::Io) };
    r.dev.fail_next(torn);
    let sizes = [16, 16, 8];
    let s = r.run(0, sizes.map(|n| bio(Op::ZoneAppend, start(0), n)));
    // 8 of the first are there, 32 are left: those behind it find a place.
    assert_eq!(s, [Status::Io, Status::Ok, Status::Ok]);
    assert_eq!((r.wp(0), r.device_wp(0)), (u64::from(used) + 32, u64::from(used) + 32));
    r.dev.fail_next(Fault { skip: 1, ..torn });
    let s = r.run(0, [8, 8].map(|n| bio(Op::ZoneAppend, start(1), n)));
    assert_eq!(s, [Status::Ok, Status::Io]);
}

/// The same where another program has moved the write pointer meanwhile, so that what waits does not fit any more.
#[test]
fn what_does_not_fit_a_large_zone_any_more_fails() {
    let mut r = rig(SIZE - 256, SIZE, |emu, c| {
        emu.limits.keeps_write_order = true;
        (c.nomerges, c.zone_write_depth) = (true, 2);
    });
    r.fail(Op::Write, Status::Io);
    r.submit(0, (0..4).map(|i| token(bio(Op::ZoneAppend, start(0), 32), i)));
    r.dev.set_write_pointer(ZoneNo(0), SIZE - 24);
    let done = r.finish();
    assert!(done.iter().all(|b| !b.status.is_ok()), "16 sectors are left, and each has 32");
    assert_eq!(done[3].status, Status::AbortedBehind);
    assert_eq!((r.wp(0), r.device_wp(0)), (u64::from(SIZE) - 24, u64::from(SIZE) - 24));
    assert_eq!(r.run(0, [bio(Op::ZoneAppend, start(0), 16)]), [Status::Ok]);
}
