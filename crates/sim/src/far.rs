//! Worlds with very large zones: nearly 2^32 sectors, or a power of two, with a short last zone, a conventional zone,
//! and joins. Sums of offsets and lengths reach 2^32 there. The zones are too large for stamps and shadows, so the
//! disk has no data. The oracle is a model of write pointers in 64 bits, and a device that refuses misplaced writes.
//!
//! Each world has one client, which waits for each list. Order and faults are tested in the other worlds.

use std::sync::Arc;
use zoneplug_core::disk::{Disk, DiskConfig, DiskQueue};
use zoneplug_core::sched::Scheduler;
use zoneplug_core::zone::{Condition, Geometry};
use zoneplug_core::{Bio, Bios, Device, IoBuf, Nanos, Op, Random, Sector, Status, ZoneNo};
use zoneplug_devices::emu::{EmuConfig, EmuDisk, EmuKind};
use zoneplug_devices::stack::JoinDisk;

/// Counts of worlds with large zones.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Far {
    /// BIOs that were submitted.
    pub bios: u64,
    /// Writes and appends that end in the last 4096 sectors of a zone.
    pub near: u64,
    /// BIOs that were refused because a sum does not fit 32 bits.
    pub wrapped: u64,
    /// BIOs that span zones.
    pub spanning: u64,
    /// Worlds with a short last zone.
    pub short: u64,
    /// Worlds with a conventional zone.
    pub conventional: u64,
    /// Worlds on a join.
    pub joined: u64,
}

/// Most sectors of a BIO with data.
const MOST: u64 = 8192;

/// Memory that all BIOs share, because the disk does not access data.
static DATA: [u8; (MOST << 9) as usize] = [0; (MOST << 9) as usize];

struct World {
    rng: Random,
    emu: Arc<EmuDisk>,
    disk: Disk,
    queue: DiskQueue,
    now: Nanos,
    g: Geometry,
    /// The write pointer of each zone as an offset; the capacity if the zone is full.
    wp: Vec<u64>,
    seen: Far,
}

/// A BIO, and the statuses that it may have.
type Expected = (Box<Bio>, Vec<Status>);

fn geometry(rng: &mut Random) -> Geometry {
    let zones = rng.range(2, 5);
    let size = match rng.below(4) {
        0 => 1 << 31,
        1 => u32::MAX - 7,
        2 => u32::MAX - 8 * rng.range(1, 512) + 1,
        _ => u32::MAX / 8 * 8 - 8 * rng.below(1 << 20),
    };
    let cap = if rng.one_in(2) { size } else { size - 8 * rng.range(1, 600) };
    let mut g = Geometry::new(u64::from(zones), size, cap).expect("a layout");
    if rng.one_in(3) {
        let last = 8 * rng.range(1, 1 << 20);
        g = g.with_last_zone(last, last - 8 * rng.below(last / 8)).expect("a last zone");
    }
    if rng.one_in(3) {
        let z = rng.pick(&[0, zones - 1]);
        g = g.with_conventional([ZoneNo(z)]).expect("a zone");
    }
    g
}

impl World {
    fn new(seed: u64) -> World {
        let mut rng = Random::new(seed.wrapping_mul(0x8cb9_2ba7_2f3d_8dd7) ^ 0xfa2);
        let g = geometry(&mut rng);
        let mut emu = EmuConfig::new(EmuKind::Null, g);
        (emu.latency, emu.paranoid) = (Nanos(u64::from(rng.below(2) * 100)), true);
        let l = &mut emu.limits;
        (l.logical_block_sectors, l.write_granularity_sectors) = (1, 8);
        l.max_write_zeroes_sectors = rng.pick(&[0, 64, 1 << 30, u32::MAX]);
        l.max_transfer_sectors = rng.pick(&[0, 64, 4096]);
        l.keeps_write_order = rng.one_in(2);
        let emu = EmuDisk::new(emu).expect("a device");
        let n = g.nr_zones();
        let whole = !(0..n).any(|z| g.is_conventional(ZoneNo(z)));
        let join = whole && rng.one_in(3);
        let device: Arc<dyn Device> = if join {
            let at = rng.range(1, n - 1);
            let cut = |zones| -> Arc<dyn Device> {
                JoinDisk::cut(emu.clone(), zones).expect("zones of the device")
            };
            JoinDisk::linear(vec![cut(0..at), cut(at..n)]).expect("parts that are alike")
        } else {
            emu.clone()
        };
        let mut config = DiskConfig { nomerges: rng.one_in(4), ..DiskConfig::default() };
        config.scheduler = rng.pick(&[Scheduler::None, Scheduler::None, Scheduler::MqDeadline]);
        config.zoned_qd1_writes = rng.one_in(4).then_some(true);
        let deep = device.limits().keeps_write_order && config.zoned_qd1_writes.is_none();
        if deep && config.scheduler == Scheduler::None {
            config.zone_write_depth = rng.pick(&[1, 4]);
        }
        let mut wp = vec![0; n as usize];
        for z in 0..n {
            if !g.is_conventional(ZoneNo(z)) && rng.one_in(2) {
                let cap = g.capacity_of(ZoneNo(z));
                let to = cap - (8 * rng.below(600)).min(cap);
                emu.set_write_pointer(ZoneNo(z), to);
                wp[z as usize] = u64::from(to);
            }
        }
        let mut now = Nanos(0);
        let disk = Disk::open(device, config, &mut |due| {
            now = due.unwrap_or(now).max(now);
            now
        });
        let disk = disk.expect("the disk opens");
        let queue = disk.open_polled_queue(64, rng.pick(&[1, 4])).expect("a queue");
        let seen = Far {
            short: u64::from(g.zone_len_sectors(ZoneNo(n - 1)) < g.zone_sectors()),
            conventional: u64::from(!whole),
            joined: u64::from(join),
            ..Far::default()
        };
        World { rng, emu, disk, queue, now, g, wp, seen }
    }

    fn start(&self, z: usize) -> u64 {
        self.g.zone_start(ZoneNo(z as u32)).0
    }

    fn cap(&self, z: usize) -> u64 {
        u64::from(self.g.capacity_of(ZoneNo(z as u32)))
    }

    fn len(&self, z: usize) -> u64 {
        u64::from(self.g.zone_len_sectors(ZoneNo(z as u32)))
    }

    fn is_conventional(&self, z: usize) -> bool {
        self.g.is_conventional(ZoneNo(z as u32))
    }

    /// Draws a length that fits, or is just too long.
    fn length(&mut self, left: u64) -> u64 {
        let some = u64::from(8 * self.rng.range(1, 512));
        match self.rng.below(4) {
            0 if (8..=MOST).contains(&left) => left,
            1 => (left + 8 * u64::from(self.rng.range(1, 64))).min(MOST),
            _ => some,
        }
    }

    /// Returns the status of a positional write by the model, and moves the model's write pointers.
    fn writes(&mut self, at: u64, len: u64) -> Status {
        if at + len > self.g.capacity().0 {
            return Status::OutOfRange;
        }
        let (mut from, mut after, mut zones) = (at, self.wp.clone(), 0);
        while from < at + len {
            let z = (from / u64::from(self.g.zone_sectors())) as usize;
            let (offset, cap) = (from - self.start(z), self.cap(z));
            let part = (at + len - from).min(self.len(z) - offset);
            if !self.is_conventional(z) {
                let status = match self.wp[z] {
                    wp if wp >= cap => Status::ZoneFull,
                    wp if wp != offset => Status::NotAtWritePointer,
                    wp if wp + part > cap => Status::PastCapacity,
                    _ => Status::Ok,
                };
                if !status.is_ok() {
                    self.seen.wrapped +=
                        u64::from(offset + part >= 1 << 32 || offset + len >= 1 << 32);
                    return status;
                }
                after[z] = offset + part;
            }
            self.seen.near += u64::from(offset + part + 4096 >= self.len(z));
            (from, zones) = (from + part, zones + 1);
        }
        self.wp = after;
        self.seen.spanning += u64::from(zones > 1);
        Status::Ok
    }

    /// Draws the next BIO. `first`: no BIO is in front of it in the list.
    fn entry(&mut self, first: bool) -> Option<Expected> {
        let n = self.wp.len();
        let z = self.rng.below(n as u32) as usize;
        let (start, cap, len) = (self.start(z), self.cap(z), self.len(z));
        let data = |sectors: u64| IoBuf::from_static(&DATA[..(sectors << 9) as usize]);
        Some(match self.rng.below(12) {
            0..=4 => {
                let offset = if self.is_conventional(z) {
                    (len - (8 * u64::from(self.rng.below(600))).min(len)).min(len - 8)
                } else {
                    self.wp[z].min(cap - 8)
                };
                let sectors = self.length(len.min(cap) - offset);
                let status = self.writes(start + offset, sectors);
                let bio =
                    Bio::with_buf(Op::Write, Sector(start + offset), sectors as u32, data(sectors));
                (bio, vec![status])
            }
            5..=7 if !self.is_conventional(z) => {
                let left = cap - self.wp[z].min(cap);
                let sectors = self.length(left).min(self.most_append());
                let wp = self.wp[z];
                let status = match left {
                    0 => Status::ZoneFull,
                    _ if sectors > left => Status::PastCapacity,
                    _ => Status::Ok,
                };
                if status.is_ok() {
                    self.wp[z] += sectors;
                    self.seen.near += u64::from(wp + sectors + 4096 >= len);
                } else {
                    self.seen.wrapped += u64::from(wp + sectors >= 1 << 32);
                }
                let bio =
                    Bio::with_buf(Op::ZoneAppend, Sector(start), sectors as u32, data(sectors));
                (bio, vec![status])
            }
            8 => {
                // A range across the end of a zone, or of the disk.
                let at = start + len - u64::from(self.rng.range(1, 64));
                let sectors = u64::from(self.rng.range(1, 128));
                let end = at + sectors > self.g.capacity().0;
                let status = if end { Status::OutOfRange } else { Status::Ok };
                self.seen.spanning += u64::from(!end && at + sectors > start + len);
                (Bio::with_buf(Op::Read, Sector(at), sectors as u32, data(sectors)), vec![status])
            }
            9 if !self.is_conventional(z) => {
                let what = self.rng.pick(&[Op::ZoneReset, Op::ZoneFinish]);
                self.wp[z] = if what == Op::ZoneReset { 0 } else { cap };
                (Bio::new(what, Sector(start), len as u32), vec![Status::Ok])
            }
            10 => return self.zeroes(z),
            _ if first && !self.is_conventional(z) => return self.leap(z),
            _ => return None,
        })
    }

    fn most_append(&self) -> u64 {
        let l = self.disk.limits();
        u64::from(l.transfer_sectors())
    }

    /// Makes the longest possible write-zeroes.
    fn zeroes(&mut self, z: usize) -> Option<Expected> {
        let max = u64::from(self.disk.limits().max_write_zeroes_sectors);
        if max < 8 || self.is_conventional(z) {
            return None;
        }
        let left = self.cap(z) - self.wp[z].min(self.cap(z));
        let over = 8 * u64::from(self.rng.below(3));
        let sectors = (left + over).clamp(8, u64::from(u32::MAX / 8 * 8)).min(max / 8 * 8 * 512);
        if sectors > 1 << 20 && sectors / max > 4 {
            return None;
        }
        let at = self.start(z) + self.wp[z].min(self.cap(z) - 8);
        let status = self.writes(at, sectors);
        Some((Bio::new(Op::WriteZeroes, Sector(at), sectors as u32), vec![status]))
    }

    /// Moves a write pointer to near the end of its zone, as another program does, and makes the client's resync.
    fn leap(&mut self, z: usize) -> Option<Expected> {
        let to = self.cap(z) as u32 - (8 * self.rng.below(600)).min(self.cap(z) as u32);
        self.emu.set_write_pointer(ZoneNo(z as u32), to);
        self.wp[z] = u64::from(to);
        let mut bio = Bio::with_buf(Op::ReportZones, Sector(self.start(z)), 0, IoBuf::leaked(64));
        bio.flags = zoneplug_core::Flags::RESYNC;
        Some((bio, vec![Status::Ok]))
    }

    /// Submits one list, or one BIO, and waits for it.
    fn step(&mut self) {
        // The list has one BIO, or writes and appends that continue each other.
        let Some((bio, statuses)) = self.entry(true) else { return };
        let mut list = Bios::from([bio]);
        let mut expected = vec![statuses];
        let run = matches!(list[0].op, Op::ZoneAppend | Op::Write) && self.rng.one_in(2);
        while run && list.len() < 4 {
            match self.rng.below(2) {
                0 => break,
                _ => {
                    let Some((bio, statuses)) = self.entry(false) else { break };
                    if !matches!(bio.op, Op::ZoneAppend | Op::Write) {
                        // This BIO is submitted after those in front of it have ended.
                        self.run(list, &expected);
                        (list, expected) = (Bios::from([bio]), vec![statuses]);
                        break;
                    }
                    list.push_back(bio);
                    expected.push(statuses);
                }
            }
        }
        self.run(list, &expected);
        for z in 0..self.wp.len() {
            if self.is_conventional(z) {
                continue;
            }
            let zone = ZoneNo(z as u32);
            let offset = |i: zoneplug_core::zone::ZoneInfo| match i.cond {
                Condition::Full => self.cap(z),
                _ => i.wp.0 - i.start.0,
            };
            assert_eq!(offset(self.emu.zone_info(zone)), self.wp[z], "{zone} at the device");
            let cached = self.disk.cached_zone(zone).expect("nothing has failed");
            assert_eq!(offset(cached), self.wp[z], "{zone}: {cached:?}");
        }
    }

    fn run(&mut self, mut list: Bios, expected: &[Vec<Status>]) {
        let n = list.len();
        for (i, bio) in list.iter_mut().enumerate() {
            bio.set_token(i as u64);
        }
        let what: Vec<_> = list.iter().map(|b| (b.op, b.sector, b.len_sectors)).collect();
        self.seen.bios += n as u64;
        assert_eq!(self.queue.submit(self.now, &mut list), n);
        let (mut done, mut rounds) = (Bios::new(), 0);
        while done.len() < n {
            self.queue.poll(self.now, &mut done);
            self.now = self.queue.next_deadline().unwrap_or(self.now).max(self.now);
            rounds += 1;
            assert!(rounds < 100_000, "hang: {what:?}");
        }
        for bio in done {
            let expected = &expected[bio.token() as usize];
            assert!(expected.contains(&bio.status), "not {expected:?}: {bio:?} of {what:?}");
        }
    }
}

/// Runs the world of large zones with this seed.
///
/// # Panics
///
/// If the layer breaks a promise.
pub fn far(seed: u64) -> Far {
    let mut world = World::new(seed);
    for _ in 0..60 {
        world.step();
    }
    let stats = world.emu.stats();
    assert_eq!((stats.failed(Status::UnalignedWrite), stats.overlaps), (0, 0), "I1, I2");
    assert_eq!((stats.failed(Status::InvalidField), stats.failed(Status::Boundary)), (0, 0));
    world.seen
}
