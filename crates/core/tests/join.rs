//! Several devices as one: end to end, in stripes, and a cut of one.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::task::Waker;
use zoneplug_core::conformance::{Target, run};
use zoneplug_core::emu::{EmuConfig, EmuDisk, EmuKind};
use zoneplug_core::stack::{FaultDisk, JoinDisk, Po2Disk};
use zoneplug_core::unit::SECTOR_SIZE;
use zoneplug_core::zone::{Condition, ZoneInfo};
use zoneplug_core::{
    Bio, Command, Commands, Device, Flags, IoBuf, Nanos, Op, Queue, Sector, Status,
};

fn emu(spec: &str) -> Arc<EmuDisk> {
    EmuDisk::new(spec.parse::<EmuConfig>().unwrap()).unwrap()
}

fn open(disk: &Arc<JoinDisk>) -> Box<dyn Queue> {
    disk.open_queue(8, Waker::noop().clone()).unwrap()
}

fn run_one(queue: &mut dyn Queue, c: Box<Command>) -> Box<Command> {
    let (mut list, mut done) = (Commands::from([c]), Commands::new());
    let mut now = Nanos(1);
    queue.submit(now, &mut list);
    while done.is_empty() {
        queue.poll(now, &mut done);
        now = queue.next_deadline().unwrap_or(now).max(now);
    }
    assert_eq!(done.len(), 1);
    done.pop_front().unwrap()
}

fn write(queue: &mut dyn Queue, at: u64, fill: u8) -> Status {
    let buf = IoBuf::leaked(8 * SECTOR_SIZE);
    buf.copy_from(0, &[fill; 8 * SECTOR_SIZE as usize]);
    let c = run_one(queue, Command::of(Bio::with_buf(Op::Write, Sector(at), 8, buf)));
    assert_eq!(c.sector, Sector(at));
    c.status
}

fn read(queue: &mut dyn Queue, at: u64) -> u8 {
    let buf = IoBuf::leaked(8 * SECTOR_SIZE);
    let c = run_one(queue, Command::of(Bio::with_buf(Op::Read, Sector(at), 8, buf)));
    assert_eq!((c.status, c.sector), (Status::Ok, Sector(at)));
    let mut got = [0];
    buf.copy_to(0, &mut got);
    got[0]
}

fn report(queue: &mut dyn Queue, at: u64, max: u32) -> Vec<ZoneInfo> {
    let mut c = Command::without_data(Op::ReportZones, Sector(at), 0);
    c.report_max = max;
    let c = run_one(queue, c);
    assert_eq!((c.status, c.sector), (Status::Ok, Sector(at)));
    c.report
}

fn conds(queue: &mut dyn Queue) -> String {
    let name = |z: &ZoneInfo| match z.cond {
        Condition::Empty => 'e',
        Condition::NotWp => 'c',
        Condition::Full => 'f',
        Condition::ReadOnly => 'r',
        _ => 'o',
    };
    report(queue, 0, 999).iter().map(name).collect()
}

/// Zones of 64 KiB: 128 sectors.
const FOUR: &str = "mem,zones=4,zone-size=64K,zone-capacity=48K";

/// Each zone of a stripe is on the next device; what was written through it is found there.
#[test]
fn stripes_take_turns() {
    let (a, b, c) = (emu(FOUR), emu(FOUR), emu("mem,zones=3,zone-size=64K,zone-capacity=48K"));
    let disk = JoinDisk::stripe(vec![a.clone(), b.clone(), c.clone()]).unwrap();
    assert_eq!(disk.geometry().nr_zones(), 9, "as many as all have");
    let mut q = open(&disk);
    for zone in 0..9 {
        assert_eq!(write(&mut *q, zone * 128, zone as u8 + 1), Status::Ok);
    }
    for (device, first) in [(a, 1), (b, 2), (c, 3)] {
        let mut q = device.open_queue(1, Waker::noop().clone()).unwrap();
        let seen: Vec<_> = (0..3).map(|z| read(&mut *q, z * 128)).collect();
        assert_eq!(seen, [first, first + 3, first + 6]);
    }
    for zone in 0..9 {
        assert_eq!(read(&mut *q, zone * 128), zone as u8 + 1);
    }
}

/// A report is in the order of our zones, from any zone on, as long as was asked for.
#[test]
fn reports_go_across_devices() {
    for stripe in [false, true] {
        let devices: Vec<Arc<dyn Device>> = vec![emu(FOUR), emu(FOUR), emu(FOUR)];
        let disk = if stripe { JoinDisk::stripe(devices) } else { JoinDisk::linear(devices) };
        let mut q = open(&disk.unwrap());
        for zone in [1, 4, 5, 11] {
            write(&mut *q, zone * 128, 1);
        }
        let all = report(&mut *q, 0, 99);
        assert_eq!(all.len(), 12);
        for (i, z) in all.iter().enumerate() {
            let i = i as u64;
            let written = [1, 4, 5, 11].contains(&i);
            assert_eq!((z.start.0, z.len_sectors, z.capacity_sectors), (i * 128, 128, 96));
            assert_eq!(z.wp.0, i * 128 + if written { 8 } else { 0 }, "zone {i}");
        }
        for first in 0..12 {
            for n in 0..14 {
                let end = (first + n).min(12);
                let got = report(&mut *q, first as u64 * 128 + 5, n as u32);
                assert_eq!(got[..], all[first..end], "{n} from {first}");
            }
        }
        // A full zone's write pointer is at its own end.
        let finish = Command::without_data(Op::ZoneFinish, Sector(4 * 128), 128);
        assert_eq!(run_one(&mut *q, finish).status, Status::Ok);
        let z = report(&mut *q, 4 * 128, 1)[0];
        assert_eq!((z.cond, z.wp.0), (Condition::Full, 5 * 128));
    }
}

/// M9: where all of a device is ours it is reset as a whole; where a part is, only that part is, zone by zone.
#[test]
fn reset_all_stays_inside_of_a_cut() {
    let device = emu("mem,zones=8,zone-size=64K,conv=1");
    let mut raw = device.open_queue(8, Waker::noop().clone()).unwrap();
    for zone in 1..8 {
        write(&mut *raw, zone * 128, 1);
    }
    device.set_condition(zoneplug_core::ZoneNo(4), Condition::ReadOnly);
    let mut q = open(&JoinDisk::cut(device.clone(), 2..6).unwrap());
    assert_eq!(conds(&mut *q), "ooro");
    let before = device.stats().commands(Op::ZoneReset);
    let all = || Command::without_data(Op::ZoneResetAll, Sector(0), 0);
    assert_eq!(run_one(&mut *q, all()).status, Status::Ok);
    assert_eq!(conds(&mut *q), "eere");
    assert_eq!(device.stats().commands(Op::ZoneReset) - before, 3);
    assert_eq!(device.stats().commands(Op::ZoneResetAll), 0);
    let mut raw = device.open_queue(8, Waker::noop().clone()).unwrap();
    assert_eq!(conds(&mut *raw), "coeereoo");
    // All but the conventional zone: nothing is left out that could be reset.
    let mut q = open(&JoinDisk::cut(device.clone(), 1..8).unwrap());
    assert_eq!(run_one(&mut *q, all()).status, Status::Ok);
    assert_eq!(device.stats().commands(Op::ZoneResetAll), 1);
}

/// M9: and it is one of every device, whose first failure counts.
#[test]
fn reset_all_and_flush_are_for_every_device() {
    let (a, b) = (emu(FOUR), emu(FOUR));
    let broken = FaultDisk::new(b.clone(), &"flush/io+reset-all/io".parse().unwrap()).unwrap();
    for (disk, want) in [
        (JoinDisk::stripe(vec![a.clone(), b.clone()]).unwrap(), Status::Ok),
        (JoinDisk::linear(vec![a.clone(), broken]).unwrap(), Status::Io),
    ] {
        let mut q = open(&disk);
        for op in [Op::Flush, Op::ZoneResetAll] {
            let before = a.stats().commands(op);
            assert_eq!(run_one(&mut *q, Command::without_data(op, Sector(0), 0)).status, want);
            assert_eq!(a.stats().commands(op), before + 1);
        }
    }
    assert_eq!((b.stats().commands(Op::Flush), b.stats().commands(Op::ZoneResetAll)), (1, 1));
}

/// A preflush is of the whole disk: the other devices are flushed before the write goes down.
#[test]
fn a_preflush_flushes_the_other_devices_first() {
    let (a, b, c) = (emu(FOUR), emu(FOUR), emu(FOUR));
    let disk = JoinDisk::stripe(vec![a.clone(), b.clone(), c.clone()]).unwrap();
    let mut q = open(&disk);
    let write = |flags| {
        let mut bio = Bio::with_buf(Op::Write, Sector(128), 8, IoBuf::leaked(4096));
        bio.flags = flags;
        Command::of(bio)
    };
    let flushes = || [&a, &b, &c].map(|d| d.stats().commands(Op::Flush));
    assert_eq!(run_one(&mut *q, write(Flags::PREFLUSH)).status, Status::Ok);
    assert_eq!((flushes(), b.stats().commands(Op::Write)), ([1, 0, 1], 1));
    assert_eq!(report(&mut *q, 128, 1)[0].wp.0, 128 + 8);
    // One that cannot be flushed: the write is not sent.
    let broken = FaultDisk::new(c.clone(), &"flush/io".parse().unwrap()).unwrap();
    let mut q = open(&JoinDisk::stripe(vec![emu(FOUR), broken]).unwrap());
    let mut c = write(Flags::PREFLUSH);
    c.sector = Sector(0);
    c.bios[0].sector = Sector(0);
    let c = run_one(&mut *q, c);
    assert_eq!((c.status, c.sector), (Status::Io, Sector(0)));
    assert_eq!(report(&mut *q, 0, 1)[0].cond, Condition::Empty);
}

/// Devices end to end: a shorter last zone is kept at the end and given up elsewhere.
#[test]
fn a_shorter_last_zone_stays_at_the_end_only() {
    const SHORT: &str = "mem,zones=4,zone-size=64K,last-zone-size=32K,conv=1";
    let disk = JoinDisk::linear(vec![emu(SHORT), emu(SHORT)]).unwrap();
    let g = disk.geometry();
    assert_eq!((g.nr_zones(), g.capacity().0), (7, 6 * 128 + 64));
    let conventional = |z| g.is_conventional(zoneplug_core::ZoneNo(z));
    assert_eq!([0, 3, 4].map(conventional), [true, true, false]);
    let cut = JoinDisk::cut(emu(SHORT), 1..3).unwrap();
    assert_eq!(cut.geometry().capacity().0, 2 * 128);
    assert_eq!(JoinDisk::stripe(vec![emu(SHORT), emu(SHORT)]).unwrap().geometry().nr_zones(), 6);
}

#[test]
fn devices_that_do_not_match_are_refused() {
    let error = |r: Result<Arc<JoinDisk>, zoneplug_core::Error>| r.unwrap_err().to_string();
    let other = "mem,zones=4,zone-size=32K";
    let e = error(JoinDisk::linear(vec![emu(FOUR), emu(other)]));
    assert_eq!(e, "devices with zones of 48K of 64K and of 32K of 32K");
    assert_eq!(error(JoinDisk::stripe(Vec::new())), "no devices to join");
    for range in [(3, 3), (3, 5), (5, 4)] {
        let e = error(JoinDisk::cut(emu(FOUR), range.0..range.1));
        assert!(e.contains("are not of this device"), "{e}");
    }
    assert!(
        error(JoinDisk::cut(emu("mem,zones=4,zone-size=64K,conv=2"), 0..2)).contains("sequential")
    );
}

/// What is allowed is what all allow; a native append needs all (A12).
#[test]
fn limits_are_the_strictest() {
    let a = emu("mem,zones=4,zone-size=64K,max-open=3,max-active=3,append=native,max-transfer=32K");
    let b = emu("mem,zones=4,zone-size=64K,max-bios=4,lba-size=4096");
    let l = JoinDisk::stripe(vec![a, b]).unwrap().limits().clone();
    assert_eq!((l.max_open_zones, l.max_active_zones, l.max_bios), (3, 3, 4));
    assert_eq!((l.zone_append_max_sectors, l.max_transfer_sectors), (0, 64));
}

fn conforms(options: &str, stack: &dyn Fn(Make<'_>) -> Arc<dyn Device>) {
    for kind in EmuKind::ALL {
        let spec = format!("{},{options}", kind.name());
        let mut make = || stack(&|| emu(&spec));
        run(&mut Target::new(&mut make, kind == EmuKind::Mem));
    }
}

type Make<'a> = &'a dyn Fn() -> Arc<dyn Device>;

fn linear(d: Make<'_>) -> Arc<dyn Device> {
    JoinDisk::linear(vec![d(), d()]).unwrap()
}

fn stripe(d: Make<'_>) -> Arc<dyn Device> {
    JoinDisk::stripe(vec![d(), d(), d()]).unwrap()
}

fn cut(d: Make<'_>) -> Arc<dyn Device> {
    JoinDisk::cut(d(), 1..9).unwrap()
}

fn po2(d: Make<'_>) -> Arc<dyn Device> {
    Po2Disk::new(d()).unwrap()
}

fn slow(d: Make<'_>) -> Arc<dyn Device> {
    FaultDisk::new(d(), &"any/delay=3us/p=0.5".parse().unwrap()).unwrap()
}

/// Alone and three deep.
#[test]
fn conforms_in_every_stack() {
    const ROUGH: &str = "zones=12,zone-size=640K,zone-capacity=600K,conv=3,\
        last-zone-size=320K,last-zone-capacity=300K";
    for options in
        [ROUGH, &format!("{ROUGH},latency=1ms,append=native"), &format!("{ROUGH},reorder=3")]
    {
        conforms(options, &linear);
        conforms(options, &stripe);
        conforms(options, &cut);
        conforms(options, &|d| po2(&|| stripe(&|| cut(d))));
        conforms(options, &|d| stripe(&|| linear(&|| slow(d))));
        conforms(options, &|d| linear(&|| po2(&|| stripe(d))));
    }
    // Limits are one device's: where the first has zones enough they are met as if they were of all.
    conforms(&format!("{ROUGH},max-open=3,max-active=5"), &cut);
    conforms(&format!("{ROUGH},max-open=3,max-active=5"), &linear);
}
