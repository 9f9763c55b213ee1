//! Several devices as one: end to end, in stripes, and a cut of one.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::task::Waker;
use zoneplug_core::unit::SECTOR_SIZE;
use zoneplug_core::zone::{Condition, Limits, ZoneInfo};
use zoneplug_core::{
    Bio, Command, Commands, Device, Flags, IoBuf, Nanos, Op, Queue, Sector, Status, ZoneNo,
};
use zoneplug_devices::conformance::{Target, run};
use zoneplug_devices::emu::{EmuConfig, EmuDisk, EmuKind};
use zoneplug_devices::stack::{FaultDisk, JoinDisk, Po2Disk, TapDisk, TapEvent};

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
    let mut buf = IoBuf::leaked(8 * SECTOR_SIZE);
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
    c.bios[0].data().copy_to(0, &mut got);
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
/// M9.
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

/// A failure of one part is the answer, whichever part it is and in whatever order the parts answer. A part that is
/// busy at the same time hides nothing: *busy* is tried again, and after a flush that failed the next one proves
/// nothing.
/// M9.
#[test]
fn one_part_that_fails_fails_the_whole_in_any_order() {
    let late = ["", "delay=2us", "delay=4us"];
    let kinds =
        [(Op::Flush, "flush"), (Op::ZoneResetAll, "reset-all"), (Op::ReportZones, "report")];
    for (op, name) in kinds {
        for broken in 0..3 {
            for first in 0..3 {
                for other in ["", "busy"] {
                    let part = |i: usize| -> Arc<dyn Device> {
                        let what = match i {
                            _ if i == broken => "io",
                            _ if other == "busy" && i == (broken + 1) % 3 => "busy",
                            _ => "",
                        };
                        let rule = |what: &str| format!("{name}/{what}/count=all").parse().unwrap();
                        let mut device: Arc<dyn Device> = emu(FOUR);
                        if !what.is_empty() {
                            device = FaultDisk::new(device, &rule(what)).unwrap();
                        }
                        // A failure is late too: the parts answer in an order that begins with `first`.
                        match late[(i + 3 - first) % 3] {
                            "" => device,
                            late => FaultDisk::new(device, &rule(late)).unwrap(),
                        }
                    };
                    for stripe in [false, true] {
                        let parts = (0..3).map(part).collect();
                        let disk =
                            if stripe { JoinDisk::stripe(parts) } else { JoinDisk::linear(parts) };
                        let mut c = Command::without_data(op, Sector(0), 0);
                        c.report_max = 99;
                        let c = run_one(&mut *open(&disk.unwrap()), c);
                        let what =
                            format!("{name}: part {broken} fails, {first} is first, {other}");
                        assert_eq!((c.status, c.report.len()), (Status::Io, 0), "{what}");
                    }
                }
            }
        }
    }
}

/// A part that fails a reset-all keeps its data, and the others have lost theirs: the disk above goes by a report again
/// that is asked to correct it.
/// M9.
#[test]
fn a_resync_tells_which_part_a_failed_reset_all_left() {
    use zoneplug_core::Bios;
    use zoneplug_core::disk::{Disk, DiskConfig};
    for broken in 0..2 {
        let part = |i: usize| -> Arc<dyn Device> {
            let plan = if i == broken { "reset-all/io" } else { "seed=1" };
            FaultDisk::new(emu(FOUR), &plan.parse().unwrap()).unwrap()
        };
        let join = JoinDisk::linear((0..2).map(part).collect()).unwrap();
        let disk = Disk::open(join, DiskConfig::default(), &mut |t| t.unwrap_or(Nanos(0))).unwrap();
        let mut q = disk.open_polled_queue(8, 4).unwrap();
        let mut go = |bio: Box<Bio>| {
            let (mut list, mut done) = (Bios::from([bio]), Bios::new());
            q.submit(Nanos(0), &mut list);
            while done.is_empty() {
                q.poll(Nanos(0), &mut done);
            }
            done.pop_front().unwrap()
        };
        for zone in [0, 4] {
            let buf = IoBuf::leaked(4096);
            assert!(go(Bio::with_buf(Op::Write, Sector(zone * 128), 8, buf)).status.is_ok());
        }
        assert_eq!(go(Bio::new(Op::ZoneResetAll, Sector(0), 0)).status, Status::Io);
        let buf = IoBuf::leaked(8 * 64);
        let mut report = Bio::with_buf(Op::ReportZones, Sector(0), 0, buf);
        report.flags = Flags::RESYNC;
        assert!(go(report).status.is_ok());
        let wp = |zone: u64| disk.cached_zone(ZoneNo(zone as u32)).unwrap().wp.0 - zone * 128;
        let kept = 4 * broken as u64;
        assert_eq!((wp(kept), wp(4 - kept)), (8, 0), "part {broken} has failed");
        for zone in [0, 4] {
            let at = zone * 128 + wp(zone);
            let buf = IoBuf::leaked(4096);
            assert!(go(Bio::with_buf(Op::Write, Sector(at), 8, buf)).status.is_ok(), "zone {zone}");
        }
    }
}

/// A preflush is of the whole disk: the other devices are flushed before the write goes down.
/// M9.
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

/// FUA is for the part that has the data, and goes down to it; so does the preflush of a write.
/// M9.
#[test]
fn fua_goes_down_to_the_part() {
    let seen = Arc::new(std::sync::Mutex::new(Vec::new()));
    let part = |i: usize| -> Arc<dyn Device> {
        let seen = seen.clone();
        let listener = move |e: &TapEvent| {
            if e.status.is_none() {
                seen.lock().unwrap().push((i, e.op, e.flags));
            }
        };
        TapDisk::new(emu("mem,zones=4,zone-size=64K,write-cache=1"), Arc::new(listener))
    };
    let mut q = open(&JoinDisk::stripe(vec![part(0), part(1)]).unwrap());
    for flags in [Flags::FUA, Flags(Flags::FUA.0 | Flags::PREFLUSH.0)] {
        let mut bio = Bio::with_buf(Op::Write, Sector(128), 8, IoBuf::leaked(4096));
        bio.flags = flags;
        let mut c = Command::of(bio);
        c.sector = Sector(128 + if flags == Flags::FUA { 0 } else { 8 });
        c.bios[0].sector = c.sector;
        assert_eq!(run_one(&mut *q, c).status, Status::Ok);
        let seen = std::mem::take(&mut *seen.lock().unwrap());
        let write = (1, Op::Write, flags);
        let flush = (0, Op::Flush, Flags::NONE);
        let want = if flags == Flags::FUA { vec![write] } else { vec![flush, write] };
        assert_eq!(seen, want);
    }
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
    let error = |r: Result<Arc<JoinDisk>, zoneplug_core::Error>| r.unwrap_err().what().to_owned();
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
    // One that limits open zones, and one that limits active ones: a disk can be opened on both.
    let a = || emu("mem,zones=4,zone-size=64K,max-open=3");
    let b = || emu("mem,zones=4,zone-size=64K,max-active=2");
    for parts in [[a(), b()], [b(), a()]] {
        let l = JoinDisk::linear(parts.map(|d| d as _).to_vec()).unwrap().limits().clone();
        assert_eq!((l.max_open_zones, l.max_active_zones), (2, 2));
    }
}

/// What one part has the whole has: a cache, a medium that turns, a lock against writes. What one part lacks it lacks.
/// A12.
#[test]
fn what_one_part_has_counts_wherever_it_is() {
    let plain = Limits::default();
    type Change = (fn(&mut Limits), fn(&Limits) -> bool);
    let any: [Change; 3] = [
        (|l| l.write_cache = true, |l| l.write_cache),
        (|l| l.rotational = true, |l| l.rotational),
        (|l| l.read_only = true, |l| l.read_only),
    ];
    let all: [Change; 4] = [
        (|l| l.discard = false, |l| !l.discard),
        (|l| l.max_write_zeroes_sectors = 0, |l| l.max_write_zeroes_sectors == 0),
        (|l| l.max_active_zones = 2, |l| l.max_active_zones == 2),
        (|l| l.max_transfer_sectors = 16, |l| l.max_transfer_sectors == 16),
    ];
    for (i, (change, shown)) in any.into_iter().chain(all).enumerate() {
        for odd in 0..4 {
            // Three parts of which one differs, or none.
            let part = |p: usize| -> Arc<dyn Device> {
                let mut limits = plain.clone();
                if p == odd {
                    change(&mut limits);
                }
                let config = EmuConfig { limits, ..FOUR.parse::<EmuConfig>().unwrap() };
                EmuDisk::new(config).unwrap()
            };
            let parts = || (0..3).map(part).collect::<Vec<_>>();
            for disk in [JoinDisk::linear(parts()), JoinDisk::stripe(parts())] {
                assert_eq!(shown(disk.unwrap().limits()), odd < 3, "limit {i}, part {odd}");
            }
        }
    }
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
