//! R41, N1-N18: zones of a power of two over zones of any size. The codes are requirements of docs/requirements.md.

#![allow(clippy::unwrap_used)]

mod disk;
mod mapped;

use std::sync::Arc;
use std::task::Waker;
use zoneplug_core::unit::SECTOR_SIZE;
use zoneplug_core::zone::{Condition, Geometry, Limits, ZoneInfo};
use zoneplug_core::{
    Bio, Bios, Command, Commands, Device, Error, IoBuf, Nanos, Op, Queue, Sector, Status, ZoneNo,
};
use zoneplug_devices::conformance::{Target, run};
use zoneplug_devices::emu::{EmuConfig, EmuDisk, EmuKind};
use zoneplug_devices::stack::{FaultDisk, Po2Disk};

fn emu(spec: &str) -> Arc<EmuDisk> {
    EmuDisk::new(spec.parse::<EmuConfig>().unwrap()).unwrap()
}

fn po2(spec: &str) -> (Arc<Po2Disk>, Box<dyn Queue>) {
    let disk = Po2Disk::new(emu(spec)).unwrap();
    let queue = disk.open_queue(16, Waker::noop().clone()).unwrap();
    (disk, queue)
}

fn run_one(queue: &mut dyn Queue, c: Box<Command>) -> Box<Command> {
    let mut list = Commands::from([c]);
    queue.submit(Nanos(1), &mut list);
    assert!(list.is_empty());
    queue.poll(Nanos(1), &mut list);
    assert_eq!(list.len(), 1, "one comes back");
    list.pop_front().unwrap()
}

/// A command of BIOs of these lengths, with memory full of `fill`.
fn data_command(op: Op, sector: u64, lens: &[u32], fill: u8) -> Box<Command> {
    let sum = lens.iter().sum();
    let mut c = Command::without_data(op, Sector(sector), sum);
    let mut at = sector;
    for &len in lens {
        let mut buf = IoBuf::leaked(len * SECTOR_SIZE);
        buf.copy_from(0, &vec![fill; (len * SECTOR_SIZE) as usize]);
        c.bios.push(Bio::with_buf(op, Sector(at), len, buf));
        at += u64::from(len);
    }
    c
}

fn data(c: &Command) -> Vec<u8> {
    let mut all = Vec::new();
    for bio in &c.bios {
        let mut part = vec![0; (bio.len_sectors * SECTOR_SIZE) as usize];
        bio.data().copy_to(0, &mut part);
        all.extend(part.chunks(SECTOR_SIZE as usize).map(|s| {
            assert!(s.iter().all(|b| *b == s[0]), "a sector is of one kind");
            s[0]
        }));
    }
    all
}

fn report(queue: &mut dyn Queue, from: u64, max: u32) -> Vec<ZoneInfo> {
    let mut c = Command::without_data(Op::ReportZones, Sector(from), 0);
    c.report_max = max;
    let c = run_one(queue, c);
    assert_eq!((c.status, c.sector), (Status::Ok, Sector(from)));
    c.report
}

/// Zones of 24 sectors, which become 32, with blocks of one sector.
const SMALL: &str = "mem,zones=6,zone-size=12K,lba-size=512";

/// N5, N7, R41: the sectors before, at and behind the end of the device's zone.
#[test]
fn the_end_of_a_zone_is_exact() {
    let (_, mut q) = po2(SMALL);
    for zone in [0, 1] {
        let c = run_one(&mut *q, data_command(Op::Write, zone * 32, &[24], 7 + zone as u8));
        assert_eq!((c.status, c.sector), (Status::Ok, Sector(zone * 32)));
    }
    for (at, want) in [(23, 7), (24, 0), (25, 0), (31, 0), (32, 8), (55, 8), (56, 0)] {
        let c = run_one(&mut *q, data_command(Op::Read, at, &[1], 0xff));
        assert_eq!((c.status, c.sector, data(&c)), (Status::Ok, Sector(at), vec![want]), "at {at}");
        for op in [Op::Write, Op::WriteZeroes, Op::ZoneAppend, Op::Discard] {
            let c = run_one(&mut *q, data_command(op, at, &[1], 1));
            assert!(!c.status.is_ok(), "{op:?} at {at}");
            assert_eq!(c.sector, Sector(at));
        }
    }
}

/// N5, N7: whatever is not a read and touches a gap never reaches the device.
#[test]
fn only_reads_may_touch_a_gap() {
    let below = emu("mem,zones=6,zone-size=12K,lba-size=512,conv=1");
    let disk = Po2Disk::new(below.clone()).unwrap();
    let mut q = disk.open_queue(16, Waker::noop().clone()).unwrap();
    for zone in [0, 1] {
        for (at, len) in [(24, 1), (23, 2), (0, 25), (31, 1), (24, 8)] {
            for op in [Op::Write, Op::WriteZeroes, Op::ZoneAppend, Op::Discard] {
                let c = run_one(&mut *q, data_command(op, zone * 32 + at, &[len], 1));
                assert_eq!(c.status, Status::Boundary, "{op:?} {at}+{len} of zone {zone}");
            }
        }
    }
    let stats = below.stats();
    assert_eq!(stats.total(), 0, "{stats:?}");
}

/// N6, N8, R41: a read into the gap gets the zone and then zeroes in all of its BIOs, and nothing of the next zone.
#[test]
fn a_read_that_crosses_into_a_gap_leaks_nothing() {
    let (_, mut q) = po2(SMALL);
    for zone in 0..3 {
        run_one(&mut *q, data_command(Op::Write, zone * 32, &[24], 1 + zone as u8));
    }
    let lists: [&[u32]; 6] =
        [&[32], &[24, 8], &[1, 30, 1], &[23, 2, 7], &[20, 3, 1, 1, 7], &[25, 7]];
    for lens in lists {
        let c = run_one(&mut *q, data_command(Op::Read, 32, lens, 0xff));
        let want: Vec<u8> = [vec![2; 24], vec![0; 8]].concat();
        assert_eq!((c.status, data(&c)), (Status::Ok, want), "{lens:?}");
        assert_eq!((c.sector, c.len_sectors, c.bios.len()), (Sector(32), 32, lens.len()));
    }
    // All of it gap, in several BIOs; and the neighbour is whole.
    let c = run_one(&mut *q, data_command(Op::Read, 58, &[1, 2, 3], 0xff));
    assert_eq!((c.status, data(&c)), (Status::Ok, vec![0; 6]));
    let c = run_one(&mut *q, data_command(Op::Read, 64, &[24], 0xff));
    assert_eq!(data(&c), vec![3; 24]);
}

/// N6, N8: a read that fails below fails as a whole.
#[test]
fn a_crossing_read_that_fails_fails_as_a_whole() {
    let fault = FaultDisk::new(emu(SMALL), &"read/medium/count=1".parse().unwrap()).unwrap();
    let disk = Po2Disk::new(fault).unwrap();
    let mut q = disk.open_queue(16, Waker::noop().clone()).unwrap();
    let c = run_one(&mut *q, data_command(Op::Read, 0, &[32], 0xff));
    assert!(!c.status.is_ok());
    assert_eq!((c.sector, c.len_sectors), (Sector(0), 32));
    let c = run_one(&mut *q, data_command(Op::Read, 0, &[32], 0xff));
    assert_eq!((c.status, data(&c)), (Status::Ok, vec![0; 32]));
}

/// N4, R41: a report's zones start at multiples of the power of two, and a full zone's write pointer is its own end. A
/// report may begin anywhere, the gap included.
#[test]
fn reports_have_the_zones_of_the_layer() {
    let (disk, mut q) = po2("mem,zones=6,zone-size=12K,zone-capacity=10K,lba-size=512,conv=1");
    run_one(&mut *q, data_command(Op::Write, 32, &[20], 1));
    run_one(&mut *q, data_command(Op::Write, 64, &[7], 1));
    let all = report(&mut *q, 0, u32::MAX);
    let seen: Vec<_> = all.iter().map(|z| (z.start.0, z.len_sectors, z.capacity_sectors)).collect();
    let want: Vec<_> = (0..6).map(|z| (z * 32, 32, if z == 0 { 24 } else { 20 })).collect();
    assert_eq!(seen, want);
    assert_eq!(all[0].wp, Sector(u64::MAX));
    assert_eq!((all[1].cond, all[1].wp), (Condition::Full, Sector(64)));
    assert_eq!((all[2].cond, all[2].wp), (Condition::ImpOpen, Sector(64 + 7)));
    assert_eq!((all[3].cond, all[3].wp), (Condition::Empty, Sector(96)));
    for from in [32, 33, 55, 56, 63] {
        assert_eq!(report(&mut *q, from, 2)[..], all[1..3], "from {from}");
    }
    let g = disk.geometry();
    assert_eq!(
        (g.capacity(), g.capacity_of(ZoneNo(0)), g.capacity_of(ZoneNo(1))),
        (Sector(192), 24, 20)
    );
}

/// N11: management is of whole zones of the layer.
#[test]
fn management_goes_to_the_zone_that_was_meant() {
    let (_, mut q) = po2(SMALL);
    for zone in 0..6 {
        run_one(&mut *q, data_command(Op::Write, zone * 32, &[3], 1));
    }
    let ask = |q: &mut dyn Queue, op, at, len| {
        let c = run_one(q, Command::without_data(op, Sector(at), len));
        assert_eq!((c.sector.0, c.len_sectors), (at, len));
        c.status
    };
    for (at, len) in [(24, 24), (48, 24), (32, 24), (32, 31), (33, 32), (32, 64), (192, 32)] {
        for op in [Op::ZoneReset, Op::ZoneFinish, Op::ZoneOpen, Op::ZoneClose] {
            assert_eq!(ask(&mut *q, op, at, len), Status::InvalidField, "{op:?} {at}+{len}");
        }
    }
    assert_eq!(ask(&mut *q, Op::ZoneReset, 64, 32), Status::Ok);
    assert_eq!(ask(&mut *q, Op::ZoneFinish, 96, 32), Status::Ok);
    assert_eq!(ask(&mut *q, Op::ZoneClose, 128, 32), Status::Ok);
    let conds: Vec<_> = report(&mut *q, 0, 9).iter().map(|z| z.cond).collect();
    use Condition::{Closed, Empty, Full, ImpOpen};
    assert_eq!(conds, [ImpOpen, ImpOpen, Empty, Full, Closed, ImpOpen]);
    assert_eq!(ask(&mut *q, Op::ZoneResetAll, 0, 0), Status::Ok);
    assert!(report(&mut *q, 0, 9).iter().all(|z| z.cond == Empty));
}

/// N10, A12, R41: an append is sent to the start of a zone of the layer, and says where in that zone it landed.
#[test]
fn an_append_lands_in_the_zone_of_the_layer() {
    let (disk, mut q) = po2("mem,zones=6,zone-size=12K,lba-size=512,append=native");
    assert_eq!(disk.limits().zone_append_max_sectors, 24);
    for zone in 0..6 {
        for i in 0..12 {
            let c = run_one(&mut *q, data_command(Op::ZoneAppend, zone * 32, &[2], 1));
            assert_eq!((c.status, c.sector), (Status::Ok, Sector(zone * 32 + 2 * i)));
        }
        let c = run_one(&mut *q, data_command(Op::ZoneAppend, zone * 32, &[1], 1));
        assert!(!c.status.is_ok());
        assert_eq!(c.sector, Sector(zone * 32));
    }
}

/// N2, N3, N1, R41: products beyond 32 bits, to the last zone of a large disk.
#[test]
fn large_disks_need_64_bits() {
    let size = (3u64 << 30) / 512 + 8;
    let (disk, mut q) = po2(&format!("null,zones=200000,zone-size={}", size * 512));
    let p = u64::from(disk.geometry().zone_sectors());
    assert_eq!((p, disk.geometry().capacity().0), ((4 << 30) / 512, 200_000 * p));
    for zone in [0, 1, 511, 512, 65_535, 65_536, 199_999] {
        let r = report(&mut *q, zone * p, 1);
        assert_eq!((r[0].start.0, r[0].capacity_sectors), (zone * p, size));
        let c = run_one(&mut *q, data_command(Op::Write, zone * p, &[8], 1));
        assert_eq!((c.status, c.sector.0), (Status::Ok, zone * p));
        assert_eq!(report(&mut *q, zone * p + p - 8, 1)[0].wp.0, zone * p + 8);
        let c = run_one(&mut *q, data_command(Op::Read, zone * p + size - 8, &[16], 1));
        assert_eq!(c.status, Status::Ok);
    }
    for at in [200_000 * p, 200_001 * p, u64::MAX - 63] {
        for op in [Op::Read, Op::Write, Op::ZoneAppend, Op::WriteZeroes, Op::Discard] {
            let c = run_one(&mut *q, data_command(op, at & !7, &[8], 1));
            assert!(!c.status.is_ok(), "{op:?} at {at}");
            assert_eq!(c.sector.0, at & !7);
        }
    }
}

/// N3: a size that has no power of two in 32 bits is refused by name.
#[test]
fn a_zone_that_is_too_long_is_refused() {
    let g = Geometry::new(1, (1 << 31) + 8, 8).unwrap();
    let e = Po2Disk::new(EmuDisk::new(EmuConfig::new(EmuKind::Null, g)).unwrap()).unwrap_err();
    assert!(e.to_string().contains("2147483656 sectors"), "{e}");
}

/// N12, N17: commands for which the device has no room come back unchanged, also amid commands that touch a gap.
#[test]
fn a_busy_device_gets_the_same_commands_again() {
    let (_, mut q) = po2("mem,zones=6,zone-size=12K,lba-size=512,latency=1ms");
    let mut list: Commands = (0..40)
        .map(|i| match i % 3 {
            0 => data_command(Op::Read, 32 * (i % 6) + 20, &[8], 0xff),
            1 => data_command(Op::Read, 32 * (i % 6) + 1, &[2], 0xff),
            _ => data_command(Op::Read, 32 * (i % 6) + 26, &[2], 0xff),
        })
        .collect();
    let asked: Vec<_> = list.iter().map(|c| (c.sector, c.len_sectors)).collect();
    let (mut now, mut seen) = (Nanos(0), Vec::new());
    while seen.len() < 40 {
        q.submit(now, &mut list);
        let mut done = Commands::new();
        q.poll(now, &mut done);
        for c in done {
            assert_eq!((c.status, data(&c)), (Status::Ok, vec![0; c.len_sectors as usize]));
            seen.push((c.sector, c.len_sectors));
        }
        for c in &list {
            assert!(asked.contains(&(c.sector, c.len_sectors)), "{:?}", c.sector);
        }
        now = q.next_deadline().unwrap_or(now).max(now);
    }
    let sorted = |mut v: Vec<(Sector, u32)>| {
        v.sort_unstable();
        v
    };
    assert_eq!(sorted(seen), sorted(asked));
}

/// Found by the simulation (seed 85337): a write for which the device had no room was kept here and carried out long
/// after the disk above had given it up, in a zone that had been reset meanwhile.
#[test]
fn what_the_device_has_no_room_for_is_not_kept() {
    let lost = FaultDisk::new(
        emu("mem,zones=6,zone-size=12K,lba-size=512"),
        &"write/lost/count=2".parse().unwrap(),
    );
    let mut q = Po2Disk::new(lost.unwrap()).unwrap().open_queue(3, Waker::noop().clone()).unwrap();
    let report = || {
        let mut c = Command::without_data(Op::ReportZones, Sector(32), 0);
        c.report_max = 1;
        c
    };
    // Two places are gone for ever; while a report has the third, nothing more is taken, nor kept.
    let mut list = Commands::from([
        data_command(Op::Write, 0, &[2], 1),
        data_command(Op::Write, 32, &[2], 1),
        report(),
    ]);
    q.submit(Nanos(0), &mut list);
    assert!(list.is_empty());
    // A gap read would end here at once, but must not pass what is before it: a queue takes from the front.
    let gap = || data_command(Op::Read, 64 + 24, &[8], 0xff);
    let mut list = Commands::from([data_command(Op::Write, 64, &[2], 1), gap()]);
    q.submit(Nanos(0), &mut list);
    assert_eq!(list.iter().map(|c| c.sector.0).collect::<Vec<_>>(), [64, 88]);
    let crossing = || data_command(Op::Read, 64 + 20, &[8], 0xff);
    let reset = Command::without_data(Op::ZoneReset, Sector(96), 32);
    let mut list =
        Commands::from([data_command(Op::Write, 64, &[2], 1), crossing(), reset, report()]);
    let asked: Vec<_> = list.iter().map(|c| (c.op, c.sector, c.len_sectors)).collect();
    q.submit(Nanos(0), &mut list);
    let left: Vec<_> = list.iter().map(|c| (c.op, c.sector, c.len_sectors)).collect();
    assert_eq!(left, asked);
    let mut done = Commands::new();
    q.poll(Nanos(0), &mut done);
    assert_eq!((done.len(), done[0].op, done[0].sector), (1, Op::ReportZones, Sector(32)));
    // There is room for one.
    q.submit(Nanos(0), &mut list);
    assert_eq!((list.len(), list[0].op), (3, Op::Read));
}

/// Stands for a device of another author: zones of 28 sectors, of which 24 can be written, over zones of a power of
/// two. The device changes addresses in place, as a layer may.
struct Narrow {
    inner: Arc<dyn Device>,
    geometry: Geometry,
}

struct NarrowQueue(Box<dyn Queue>);

impl Device for Narrow {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }
    fn limits(&self) -> &Limits {
        self.inner.limits()
    }
    fn never_panics(&self) -> bool {
        self.inner.never_panics()
    }
    fn open_queue(&self, depth: u16, waker: Waker) -> Result<Box<dyn Queue>, Error> {
        Ok(Box::new(NarrowQueue(self.inner.open_queue(depth, waker)?)))
    }
}

impl Queue for NarrowQueue {
    fn submit(&mut self, now: Nanos, commands: &mut Commands) {
        for c in commands.iter_mut() {
            c.sector.0 = c.sector.0 / 28 * 32 + c.sector.0 % 28;
        }
        self.0.submit(now, commands);
        assert!(commands.is_empty());
    }
    fn poll(&mut self, now: Nanos, done: &mut Commands) {
        self.0.poll(now, done);
        for c in done {
            c.sector.0 = c.sector.0 / 32 * 28 + c.sector.0 % 32;
        }
    }
    fn next_deadline(&self) -> Option<Nanos> {
        self.0.next_deadline()
    }
    fn arm(&mut self) {
        self.0.arm();
    }
}

/// N1, N2: two layers, both with gaps, move the same command: each undoes only its own change of the address.
#[test]
fn a_layer_far_below_another_undoes_only_its_own_change() {
    let below = Po2Disk::new(emu("mem,zones=6,zone-size=12K,lba-size=512,append=native")).unwrap();
    let geometry = Geometry::new(6, 28, 24).unwrap();
    let disk = Po2Disk::new(Arc::new(Narrow { inner: below, geometry })).unwrap();
    assert_eq!(disk.geometry().zone_sectors(), 32);
    let mut q = disk.open_queue(16, Waker::noop().clone()).unwrap();
    let mut all = |list: Vec<Box<Command>>| -> Vec<Box<Command>> {
        let (n, mut list, mut done) = (list.len(), Commands::from(list), Commands::new());
        q.submit(Nanos(1), &mut list);
        q.poll(Nanos(1), &mut done);
        assert_eq!((list.len(), done.len()), (0, n));
        done.into()
    };
    // A single command, then a list. The layers keep nothing of either.
    for zones in [3..4, 0..6] {
        for op in [Op::Write, Op::ZoneAppend] {
            let at = |zone: u64| zone * 32 + if zones.start == 0 && zone == 3 { 4 } else { 0 };
            let list = zones.clone().map(|zone| match op {
                Op::Write => data_command(op, at(zone), &[2], 10 + zone as u8),
                _ => data_command(op, zone * 32, &[2], 20 + zone as u8),
            });
            for c in all(list.collect()) {
                let zone = c.sector.0 / 32;
                let landed = at(zone) + if op == Op::Write { 0 } else { 2 };
                assert_eq!((c.status, c.sector.0), (Status::Ok, landed), "{op:?}");
            }
        }
    }
    for c in all((0..6).map(|zone| data_command(Op::Read, zone * 32, &[4], 0xff)).collect()) {
        let zone = (c.sector.0 / 32) as u8;
        assert_eq!((c.status, c.sector.0 % 32), (Status::Ok, 0));
        assert_eq!(data(&c), [10 + zone, 10 + zone, 20 + zone, 20 + zone]);
    }
}

/// N6, N17: a list of which one command cannot pass as it is, wherever that is, and wherever the list begins in its
/// buffer.
#[test]
fn one_special_command_anywhere_in_a_list() {
    let (_, mut q) = po2(SMALL);
    for zone in 0..6 {
        let c = run_one(&mut *q, data_command(Op::Write, zone * 32, &[24], zone as u8 + 1));
        assert_eq!(c.status, Status::Ok);
    }
    for begin in 0..8 {
        for special in 0..=8 {
            let mut list = Commands::with_capacity(8);
            // Moves the beginning along the buffer, so that the list wraps.
            for _ in 0..begin {
                list.push_back(data_command(Op::Flush, 0, &[], 0));
                list.pop_front();
            }
            list.extend((0..8).map(|n| {
                data_command(Op::Read, n % 6 * 32 + if n == special { 22 } else { 3 }, &[4], 0xff)
            }));
            assert_eq!(list.as_slices().1.len(), begin, "it wraps");
            let asked: Vec<_> = list.iter().map(|c| c.sector.0).collect();
            let mut done = Commands::new();
            q.submit(Nanos(1), &mut list);
            q.poll(Nanos(1), &mut done);
            assert_eq!((list.len(), done.len()), (0, 8));
            let mut seen: Vec<_> = done.iter().map(|c| c.sector.0).collect();
            for c in done {
                let fill = (c.sector.0 / 32) as u8 + 1;
                let kept = if c.sector.0 % 32 == 22 { 2 } else { 4 };
                let mut expected = vec![fill; kept];
                expected.resize(4, 0);
                assert_eq!((c.status, data(&c)), (Status::Ok, expected), "{}", c.sector);
            }
            let mut asked = asked;
            asked.sort_unstable();
            seen.sort_unstable();
            assert_eq!(seen, asked);
        }
    }
}

const ROUGH: &str = "zones=12,zone-size=640K,zone-capacity=600K,conv=3,max-open=3,max-active=5,\
    last-zone-size=320K,last-zone-capacity=300K";

fn conforms(options: &str, layers: &[&str]) {
    for kind in EmuKind::ALL {
        let spec = format!("{},{options}", kind.name());
        let mut make = || -> Arc<dyn Device> {
            layers.iter().fold(emu(&spec) as Arc<dyn Device>, |device, layer| match *layer {
                "po2" => Po2Disk::new(device).unwrap() as Arc<dyn Device>,
                plan => FaultDisk::new(device, &plan.parse().unwrap()).unwrap(),
            })
        };
        run(&mut Target::new(&mut make, kind == EmuKind::Mem));
    }
}

/// N3: the layer alone, on itself, and between others.
#[test]
fn conforms_in_every_stack() {
    const DELAYS: &str = "any/delay=3us/p=0.5";
    for layers in [
        &["po2"][..],
        &["po2", "po2"],
        &[DELAYS, "po2"],
        &["po2", DELAYS],
        &[DELAYS, "po2", DELAYS],
    ] {
        conforms(ROUGH, layers);
        conforms(&format!("{ROUGH},latency=1ms,append=native"), layers);
    }
    conforms(&format!("{ROUGH},reorder=2,latency=80us,append=native,paranoid=1"), &["po2"]);
    conforms("zones=9,zone-size=12K,zone-capacity=8K,append=native,max-open=2", &["po2"]);
    conforms("zones=8,zone-size=64K", &["po2"]);
}
