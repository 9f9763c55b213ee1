//! The start of a world: disk, target and hosts; everything follows from the seed.

use super::disks::ServedDisk;
use super::host::Host;
use super::{NetworkWorld, NetworkZone, SUBSYSTEM, keys};
use crate::class::{Class, Coverage};
use crate::client_zone::{ClientZone, Stamps};
use crate::memory;
use crate::seam_oracle::{ObservedDevice, SeamOracle};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::Waker;
use zoneplug_buf::Buffers;
use zoneplug_core::disk::{Disk, DiskConfig, ZoneRecovery};
use zoneplug_core::sched::{Policy, Scheduler};
use zoneplug_core::zone::{Geometry, Limits};
use zoneplug_core::{Device, Error, Nanos, Random, ZoneNo};
use zoneplug_devices::emu::{EmuConfig, EmuDisk, EmuKind};
use zoneplug_devices::stack::{FaultDisk, FaultPlan};
use zoneplug_nvme::dhchap::DhGroup;
use zoneplug_nvme::target::{Namespace, Nqn, SubsystemConfig, Target};
use zoneplug_nvme::tcp::Config;

/// The properties of the network and the target.
#[derive(Debug, Clone, Copy)]
pub(super) struct NetworkConfig {
    pub(super) tcp: Config,
    /// Longest data of a command in bytes.
    pub(super) max_data: u32,
    /// Most delay of a piece, in nanoseconds.
    pub(super) delay: u32,
    /// The most bytes on their way in one direction.
    pub(super) capacity: usize,
    /// Whether connections have digests of headers and data. Then bytes may change on their way.
    pub(super) digests: bool,
    /// The number of the namespace with the conventional zones, and of the one with the others.
    pub(super) conventional: Option<u32>,
    pub(super) zoned: u32,
    /// The first sector of the zoned one.
    pub(super) zoned_start: u64,
}

fn layout(rng: &mut Random, block: u32) -> Geometry {
    let zones = rng.range(2, 6);
    // Appends of 8 KiB must fit.
    let size = block * rng.range((16 / block).max(4), 64);
    let conventional = if rng.one_in(4) { rng.range(1, zones - 1) } else { 0 };
    let whole = conventional > 0 || rng.one_in(2);
    let cap = if whole { size } else { block * rng.range(2, size / block) };
    let g = Geometry::new(u64::from(zones), size, cap).expect("a layout");
    g.with_conventional((0..conventional).map(ZoneNo)).expect("zones")
}

fn limits(rng: &mut Random, block: u32) -> Limits {
    let mut l = Limits {
        logical_block_sectors: block,
        write_granularity_sectors: block,
        ..Limits::default()
    };
    if rng.one_in(2) {
        l.max_transfer_sectors = block * rng.range(16 / block, 24);
    }
    if rng.one_in(3) {
        l.max_write_zeroes_sectors = block * rng.range(1, 12);
    }
    if rng.one_in(3) {
        l.max_bios = rng.range(1, 5);
    }
    if rng.one_in(6) {
        l.max_active_zones = rng.range(1, 4);
        l.max_open_zones = rng.range(0, l.max_active_zones);
    }
    l
}

fn disk_config(rng: &mut Random, keeps_order: bool) -> DiskConfig {
    let scheduler = match rng.below(6) {
        0 => Scheduler::MqDeadline,
        1 => Scheduler::Shuffle(rng.draw()),
        _ => Scheduler::None,
    };
    let single = rng.one_in(5).then_some(true);
    let several = keeps_order && scheduler.keeps_zone_order() && single.is_none();
    DiskConfig {
        nomerges: rng.one_in(5),
        shards: 1 << rng.range(0, 6),
        scheduler,
        queue_depth: if rng.one_in(3) { rng.range(1, 4) } else { 0 },
        zoned_qd1_writes: single,
        zoned_qd1_policy: rng.pick(&Policy::ALL),
        zone_write_depth: if several { rng.pick(&[1, 2, 4]) } else { 1 },
        zone_recovery: rng.pick(&[None, Some(ZoneRecovery::Auto), Some(ZoneRecovery::Client)]),
        order_window: Nanos(if rng.one_in(5) { 0 } else { u64::from(rng.range(2, 40)) * 500_000 }),
        ..DiskConfig::default()
    }
}

/// Opens the disk over a device, and tells the oracle which behaviour is allowed.
pub(super) fn open(
    seam: &Arc<SeamOracle>,
    config: &DiskConfig,
    mut now: Nanos,
) -> Result<Disk, Error> {
    let wait = &mut |due: Option<Nanos>| {
        now = due.unwrap_or(now).max(now);
        now
    };
    let device: Arc<dyn Device> = Arc::new(ObservedDevice(seam.clone()));
    seam.asked_only.store(false, Relaxed);
    let disk = Disk::open(device, config.clone(), wait)?;
    let attribute = |name| disk.attribute(name);
    seam.set_single_writer(attribute("zoned_qd1_writes").as_deref() == Some("1"));
    seam.set_auto_recovery(attribute("zone_recovery").as_deref() == Some("auto"));
    seam.set_depth(usize::from(config.zone_write_depth));
    seam.queueing().configure(config);
    seam.nomerges.store(config.nomerges, Relaxed);
    seam.asked_only.store(true, Relaxed);
    Ok(disk)
}

impl NetworkWorld {
    pub(crate) fn new(seed: u64, tracing: bool) -> NetworkWorld {
        memory::recycle();
        let mut rng = Random::new(seed.wrapping_mul(0x6c62_272e_07bb_0142) ^ 0x2e7);
        let block = rng.pick(&[1, 1, 2, 8]);
        let geometry = layout(&mut rng, block);
        let mut l = limits(&mut rng, block);
        l.keeps_write_order = rng.one_in(2);
        let mut emu = EmuConfig::new(EmuKind::Mem, geometry);
        emu.limits = l.clone();
        emu.latency = Nanos(if rng.one_in(2) { 0 } else { u64::from(rng.range(1, 200_000)) });
        emu.reorder = rng.one_in(2).then(|| rng.draw());
        emu.paranoid = true;
        let emu = EmuDisk::new(emu).expect("a device");
        let checker = emu.open_queue(1, Waker::noop().clone()).expect("a queue");
        let plan = FaultPlan { rules: Vec::new(), seed: rng.draw() };
        let faults = FaultDisk::new(emu.clone(), &plan).expect("a layer");
        let config = disk_config(&mut rng, l.keeps_write_order);
        let seam = SeamOracle::new(faults.clone(), vec![geometry], true, None);
        let disk = open(&seam, &config, Nanos(0)).expect("the disk opens");
        seam.appends_in_any_order.store(true, Relaxed);
        let keys = keys::group(seed);
        let (target, network) = network(&mut rng, &disk, keys);
        let limited = l.max_active_zones != 0;
        let mut world = NetworkWorld {
            seed,
            now: Nanos(0),
            waited_rounds: 0,
            config,
            network,
            emu,
            faults,
            seam,
            served: ServedDisk::new(disk),
            checker,
            target,
            buffers: Buffers::new(1 << 20),
            hosts: Vec::new(),
            connections: Vec::new(),
            closing: Vec::new(),
            zones: Vec::new(),
            block,
            commands: BTreeMap::new(),
            next_id: 1,
            awaited: BTreeMap::new(),
            stamps: Stamps::default(),
            next_stamp: 1,
            freeze: None,
            parked: false,
            has_faults: false,
            limited,
            keys,
            preferred: None,
            failed: false,
            submitted: 0,
            troubles: 0,
            cover: Coverage::default(),
            trace: Vec::new(),
            tracing,
            rng,
        };
        world.hit(Class::Target);
        for z in 0..geometry.nr_zones() {
            let known = ClientZone::new(&geometry, ZoneNo(z));
            world.zones.push(NetworkZone { known, ..NetworkZone::default() });
        }
        if tracing {
            let (e, n) = (world.emu.config(), &world.network);
            world.trace.push(format!("device {e}, layer {:?}, network {n:?}", world.config));
        }
        for h in 0..world.rng.range(1, 2) {
            let host = Host::new(&mut world.rng, h, keys.is_some());
            world.hosts.push(host);
            while !world.connect_host(h as usize) {}
        }
        world
    }
}

/// Makes a target with the namespaces of the disk. Also returns their numbers.
pub(super) fn target(disk: &Disk, max_data: u32, keys: Option<DhGroup>) -> (Target, Vec<u32>) {
    let nqn = Nqn::new(SUBSYSTEM).expect("a name");
    let subsystem = SubsystemConfig {
        max_data,
        keys: keys.map(keys::keys).unwrap_or_default(),
        queue_entries: 64,
        max_queues: 8,
        ..SubsystemConfig::new(nqn.clone())
    };
    let mut target = Target::new(vec![]);
    target.add_subsystem(subsystem).expect("a subsystem");
    let (geometry, limits) = (disk.geometry(), disk.limits());
    let namespaces = Namespace::of(0, [1; 16], &geometry, &limits).expect("namespaces");
    let numbers = target.add_namespaces(&nqn, namespaces).expect("a place for them");
    (target, numbers)
}

/// Draws the target, and the properties of the network.
fn network(rng: &mut Random, disk: &Disk, keys: Option<DhGroup>) -> (Target, NetworkConfig) {
    let max_data = 4096 << rng.range(0, 6);
    let (target, numbers) = target(disk, max_data, keys);
    let geometry = disk.geometry();
    let conventional = geometry.nr_conventional();
    let tcp = Config {
        max_data,
        max_h2c_data: 4096 << rng.range(0, 2),
        max_bytes: if rng.one_in(3) { u64::from(max_data) << rng.range(0, 2) } else { 64 << 20 },
        patience: Nanos(200_000_000),
        ..Config::default()
    };
    let config = NetworkConfig {
        tcp,
        max_data,
        delay: 1000 * rng.pick(&[50, 500, 2000]),
        capacity: rng.pick(&[700, 5000, 1 << 16]),
        digests: rng.one_in(3),
        conventional: (numbers.len() > 1).then(|| numbers[0]),
        zoned: *numbers.last().expect("a namespace"),
        zoned_start: geometry.zone_start(ZoneNo(conventional)).0,
    };
    (target, config)
}
