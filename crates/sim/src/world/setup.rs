//! The start of a world; everything follows from its seed.

use super::join::Join;
use super::{World, WorldZone};
use crate::class::{Class, Coverage};
use crate::client_zone::{ClientZone, Stamps};
use crate::device_pending::{CountedDevice, DevicePending};
use crate::memory;
use crate::seam_oracle::{ObservedDevice, SeamOracle};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use zoneplug_core::disk::{Disk, DiskConfig, Mode, ZoneRecovery};
use zoneplug_core::sched::{Balance, DeadlineConfig, Policy, Scheduler};
use zoneplug_core::zone::{Geometry, Limits};
use zoneplug_core::{Device, Nanos, Random, ZoneNo};
use zoneplug_devices::emu::{EmuConfig, EmuDisk, EmuKind};
use zoneplug_devices::stack::{FaultDisk, FaultPlan, Po2Disk};

/// Draws layouts to show one after the other. The last is the device's own.
fn layouts(rng: &mut Random, grain: u32) -> Vec<Geometry> {
    let zones = rng.range(2, 6);
    let size = grain * if rng.one_in(2) { 1 << rng.range(2, 6) } else { rng.range(3, 70) };
    let cap = if rng.one_in(2) { size } else { grain * rng.range(1, size / grain) };
    let nr_conventional = if rng.one_in(3) { rng.range(1, zones - 1) } else { 0 };
    let grows = rng.one_in(5) && zones > nr_conventional + 2;
    let make = |n: u32| {
        let g = Geometry::new(u64::from(n), size, cap).expect("a layout");
        g.with_conventional((0..nr_conventional).map(ZoneNo)).expect("zones")
    };
    if grows {
        return vec![make(zones - 1), make(zones)];
    }
    let mut g = make(zones);
    if nr_conventional + 2 < zones && rng.one_in(6) {
        g = g.with_conventional([ZoneNo(zones - 1)]).expect("a zone");
    }
    if rng.one_in(3) {
        let last = grain * rng.range(1, size / grain);
        let last_cap = grain * rng.range(1, last / grain);
        g = g.with_last_zone(last, last_cap).expect("a last zone");
    }
    vec![g]
}

fn limits(rng: &mut Random, grain: u32) -> Limits {
    let mut l = Limits {
        logical_block_sectors: if rng.one_in(2) { 1 } else { grain },
        write_granularity_sectors: grain,
        ..Limits::default()
    };
    if rng.one_in(2) {
        l.max_transfer_sectors = grain * rng.range(1, 12) + rng.below(grain);
    }
    if rng.one_in(3) {
        l.max_write_zeroes_sectors = rng.range(0, 12);
    }
    if rng.one_in(3) {
        l.max_bios = rng.range(1, 5);
    }
    if rng.one_in(4) {
        l.max_active_zones = rng.range(1, 4);
        l.max_open_zones = rng.range(0, l.max_active_zones);
    }
    if rng.one_in(5) {
        l.zone_append_max_sectors = grain * rng.range(1, 6);
    }
    l
}

/// Opens a disk in virtual time.
pub(super) fn open(device: &Arc<dyn Device>, config: &DiskConfig) -> Disk {
    let mut now = Nanos(0);
    Disk::open(device.clone(), config.clone(), &mut |due| {
        now = due.unwrap_or(now).max(now);
        now
    })
    .expect("the disk opens")
}

/// Draws a single writer or a scheduler and its attributes, from its own sequence, so that the rest of the seed stays
/// the same.
fn queueing(seed: u64, config: DiskConfig) -> DiskConfig {
    let mut rng = Random::new(seed.wrapping_mul(0xd134_2543_de82_ef95) ^ 0x51d1);
    let scheduler = match rng.below(4) {
        0 => Scheduler::MqDeadline,
        1 => Scheduler::Shuffle(seed),
        _ => Scheduler::None,
    };
    let span = |rng: &mut Random| Nanos(u64::from(rng.range(0, 4000)));
    let deadline = DeadlineConfig {
        read_expire: span(&mut rng),
        write_expire: span(&mut rng),
        fifo_batch: rng.range(1, 8),
        writes_starved: rng.range(0, 3),
        prio_aging_expire: span(&mut rng),
    };
    let balance = Balance { write: span(&mut rng), read: span(&mut rng) };
    DiskConfig {
        scheduler,
        deadline,
        queue_depth: if rng.one_in(2) { rng.range(1, 4) } else { 0 },
        read_write_balance: rng.one_in(4).then_some(balance),
        zoned_qd1_writes: rng.one_in(3).then_some(true),
        zoned_qd1_policy: rng.pick(&Policy::ALL),
        anticipation: Nanos(if rng.one_in(2) { u64::from(rng.range(1, 3000)) } else { 0 }),
        zone_deadline: Nanos(if rng.one_in(2) { u64::from(rng.range(1, 4000)) } else { 0 }),
        ..config
    }
}

/// Draws whether the device keeps the order of writes, in half of the worlds, from its own sequence.
fn keeps_order(seed: u64, mode: Mode) -> Option<Random> {
    let mut rng = Random::new(seed.wrapping_mul(0x9fb2_1c65_1e98_df25) ^ 0x0de2);
    (mode == Mode::Plug && rng.one_in(2)).then_some(rng)
}

/// Draws several writes of a zone in flight on such a device, if the other attributes allow it.
fn ordering(mut rng: Random, mut config: DiskConfig) -> DiskConfig {
    if rng.one_in(2) {
        (config.scheduler, config.zoned_qd1_writes) = (Scheduler::None, None);
    }
    config.nomerges |= rng.one_in(2);
    if config.scheduler.keeps_zone_order() && config.zoned_qd1_writes.is_none() {
        config.zone_write_depth = rng.pick(&DEPTHS);
    }
    config
}

/// Draws which side finds a write pointer after an error, in most worlds the layer, from its own sequence.
fn recovery(seed: u64) -> Option<ZoneRecovery> {
    let mut rng = Random::new(seed.wrapping_mul(0xd6e8_feb8_6659_fd93) ^ 0xe12);
    let choices = [None, Some(ZoneRecovery::Auto), Some(ZoneRecovery::Client)];
    rng.pick(&choices)
}

/// Draws an order window in a third of the worlds with plugs, from its own sequence.
fn order_window(seed: u64, mode: Mode) -> Nanos {
    let mut rng = Random::new(seed.wrapping_mul(0xa076_1d64_78bd_642f) ^ 0x8014);
    let window = u64::from(rng.range(800, 20_000));
    Nanos(if mode == Mode::Plug && rng.one_in(3) { window } else { 0 })
}

/// Draws another zone size for the device, under the layer `po2` (R41), if zones have the size of a power of two and
/// a smaller capacity. From its own sequence.
fn below(seed: u64, layouts: &[Geometry], grain: u32) -> Option<Geometry> {
    let mut rng = Random::new(seed.wrapping_mul(0xc2b2_ae3d_27d4_eb4f) ^ 0x9002);
    let [g] = layouts else { return None };
    let (size, cap) = (g.zone_sectors(), g.zone_capacity_sectors());
    let last = ZoneNo(g.nr_zones() - 1);
    let uniform = g.zone_len_sectors(last) == size && g.capacity_of(last) == cap;
    let fits = size.is_power_of_two() && cap < size && uniform && g.nr_conventional() == 0;
    let least = (cap / grain).max(size / grain / 2 + 1);
    if !fits || least > size / grain - 1 || rng.one_in(4) {
        return None;
    }
    let shorter = grain * rng.range(least, size / grain - 1);
    Geometry::new(u64::from(g.nr_zones()), shorter, cap).ok()
}

/// Draws whether zones that take native appends take writes as well, as in most worlds with native appends. From its
/// own sequence.
fn mixes(seed: u64, native: bool) -> bool {
    let mut rng = Random::new(seed.wrapping_mul(0xe703_7ed1_a0b4_28db) ^ 0xa7);
    native && !rng.one_in(4)
}

/// Returns a device, or the layer on it.
fn shown(device: Arc<dyn Device>, layered: bool) -> Arc<dyn Device> {
    if layered { Po2Disk::new(device).expect("a layer") } else { device }
}

/// Possible numbers of writes of a zone in flight.
pub(super) const DEPTHS: [u16; 5] = [1, 2, 3, 4, 16];

impl World {
    pub(crate) fn new(seed: u64, tracing: bool) -> World {
        memory::recycle();
        let mut rng = Random::new(seed.wrapping_mul(0x2545_f491_4f6c_dd1d) ^ 0x5a0e);
        let mode = match rng.below(16) {
            0 => Mode::Lock,
            1 => Mode::None,
            _ => Mode::Plug,
        };
        let grain = 1 << rng.range(0, 2);
        let layouts = layouts(&mut rng, grain);
        let geometry = layouts[0];
        let mut l = limits(&mut rng, grain);
        let below_layer = below(seed, &layouts, grain);
        let layered = below_layer.is_some();
        let join = if layered { None } else { Join::draw(seed, &layouts) };
        let order = keeps_order(seed, mode).filter(|_| join.is_none());
        l.keeps_write_order = order.is_some();
        let timeout =
            (mode == Mode::Plug && rng.one_in(4)).then(|| Nanos(u64::from(rng.range(2000, 6000))));
        let timeout = timeout.filter(|_| join.is_none());
        let own = below_layer.unwrap_or_else(|| layouts[layouts.len() - 1]);
        let mut emu = EmuConfig::new(EmuKind::Mem, own);
        emu.limits = l.clone();
        emu.latency = Nanos(if rng.one_in(2) { 0 } else { u64::from(rng.range(1, 1000)) });
        emu.reorder = rng.one_in(2).then(|| rng.draw());
        emu.paranoid = true;
        // A device that does not reorder has carried out late commands; only their completions are missing.
        let late = timeout.is_some() && emu.reorder.is_some();
        let inline = emu.latency.0 == 0 && emu.reorder.is_none();
        let emu = EmuDisk::new(emu).expect("a device");
        let plan = FaultPlan { rules: Vec::new(), seed: rng.draw() };
        let device_pending = late.then(|| DevicePending::new(emu.clone()));
        let below: Arc<dyn Device> = match &device_pending {
            Some(g) => Arc::new(CountedDevice(g.clone())),
            None => emu.clone(),
        };
        let faults = FaultDisk::new(below, &plan).expect("a layer");
        let cached = rng.one_in(3);
        if cached {
            faults.watch_cache().expect("the device reports its zones");
        }
        let config = DiskConfig {
            mode,
            nomerges: rng.one_in(5),
            emulate_append: rng.one_in(3),
            shards: 1 << rng.range(0, 6),
            strict_management: rng.one_in(6),
            timeout,
            ..DiskConfig::default()
        };
        let config = DiskConfig { zone_recovery: recovery(seed), ..queueing(seed, config) };
        let config = DiskConfig { order_window: order_window(seed, mode), ..config };
        let config = match order {
            Some(rng) => ordering(rng, config),
            None => config,
        };
        let native = l.zone_append_max_sectors != 0 && !config.emulate_append;
        let mixes = mixes(seed, native && mode == Mode::Plug);
        // In half of those worlds the seam oracle is below the layer: then the disk's queue maps the addresses
        // itself.
        let mapped = layered && seed.is_multiple_of(2);
        let mut watched = if mapped { vec![own] } else { layouts };
        let mut under = shown(faults.clone(), layered && !mapped);
        let mut geometry = geometry;
        let mut bare = shown(emu.clone(), layered);
        if let Some(join) = join {
            (under, bare) = (join.of(&under), join.of(&bare));
            geometry = *under.geometry();
            watched = vec![geometry];
        }
        let seam = SeamOracle::new(under, watched, mode == Mode::Plug, timeout);
        let device = shown(Arc::new(ObservedDevice(seam.clone())), mapped);
        let disk = open(&device, &config);
        seam.set_single_writer(disk.attribute("zoned_qd1_writes").as_deref() == Some("1"));
        seam.set_depth(usize::from(config.zone_write_depth));
        seam.queueing().configure(&config);
        seam.set_auto_recovery(disk.attribute("zone_recovery").as_deref() == Some("auto"));
        let mut world = World {
            seed,
            nomerges: config.nomerges,
            strict: config.strict_management,
            mode,
            device_pending,
            config,
            disk,
            queues: Vec::new(),
            tags: Vec::new(),
            now: Nanos(0),
            inline,
            zones: Vec::new(),
            outstanding: BTreeMap::new(),
            next_token: 1,
            next_stamp: 1,
            stamps: Stamps::default(),
            cursor: 0,
            max_transfer: l.transfer_sectors(),
            grain,
            // The cache of a disk with native appends is not used (A8).
            spoiled: native && !mixes || timeout.is_some(),
            native,
            mixes,
            freeze: None,
            revalidation: None,
            change: None,
            has_faults: timeout.is_some(),
            gone: false,
            appends: Vec::new(),
            limited: l.max_active_zones != 0,
            seen: BTreeSet::new(),
            hidden: timeout.is_some(),
            completions: 0,
            submitted: 0,
            troubles: 0,
            recoveries: 0,
            cover: Coverage::default(),
            trace: Vec::new(),
            tracing,
            parked: 0,
            recovered: 0,
            split: false,
            busy_before: 0,
            late: 0,
            own_reports: 0,
            is_read: true,
            bare,
            join,
            cached,
            spoiled_blocks: false,
            shuffled: None,
            early_troubled: false,
            not_sent: BTreeSet::new(),
            emu,
            faults,
            seam,
            device,
            rng,
        };
        if layered {
            world.hit(Class::R41);
        }
        if join.is_some() {
            world.hit(Class::Join);
        }
        if geometry.is_conventional(ZoneNo(geometry.nr_zones() - 1)) {
            world.hit(Class::LastConventional);
        }
        for _ in 0..world.rng.range(2, 4) {
            world.tags.push(0);
            world.queues.push(None);
            world.open_queue(world.queues.len() - 1);
        }
        world.add_zones(&geometry);
        if tracing {
            let e = world.emu.config();
            world.trace.push(format!("device {e}, layer {:?}", world.config));
        }
        world
    }

    /// Opens a new queue in place `q`.
    pub(super) fn open_queue(&mut self, q: usize) {
        let (depth, tags) = (self.rng.range(1, 32), self.rng.range(1, 5) as u16);
        self.tags[q] = tags;
        self.queues[q] = Some(self.disk.open_polled_queue(depth, tags).expect("a queue"));
    }

    /// Adds zones that the disk has and the client does not know yet.
    pub(super) fn add_zones(&mut self, g: &Geometry) {
        for z in self.zones.len() as u32..g.nr_zones() {
            let known = ClientZone::new(g, ZoneNo(z));
            self.zones.push(WorldZone { known, ..WorldZone::default() });
        }
    }
}
