//! The cases: the work of a client, and the disk that it works on.

use crate::NOW;
use std::sync::Arc;
use zoneplug_core::disk::{Disk, DiskConfig, Mode};
use zoneplug_core::sched::Scheduler;
use zoneplug_core::zone::Geometry;
use zoneplug_core::{Device, Nanos, ZoneNo};
use zoneplug_devices::emu::{EmuConfig, EmuDisk, EmuKind};
use zoneplug_devices::stack::Po2Disk;

const ZONES: u64 = 4096;
const MANY_ZONES: u64 = 200_000;
const ZONE_SECTORS: u32 = 256 << 11;

/// The BIOs that the client sends.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Work {
    Seq,
    Append,
    Random,
    Read,
}

/// The zones of the device.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Zones {
    /// 4,096 zones of 256 MiB.
    Po2,
    /// 200,000 zones of 256 MiB. Their plugs do not fit into the processor's caches.
    Many,
    /// As `Po2`, but the first half of the zones is conventional: writes there take no plug.
    Conventional,
    /// As `Po2`, but each zone is 4 KiB shorter. Counted only, to compare with `Layer`.
    Other,
    /// As `Other`, under the layer that makes the size of a zone a power of two. Counted only, because the client does
    /// not skip the gaps at the ends of zones.
    Layer,
}

impl Zones {
    /// Whether the benchmark measures cases of this kind in nanoseconds too.
    pub(crate) fn timed(self) -> bool {
        !matches!(self, Zones::Other | Zones::Layer)
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) mode: Mode,
    pub(crate) nomerges: bool,
    pub(crate) qd1: bool,
    /// Whether the disk has an order window. Nothing is ever held, so these cases cost what those without it cost.
    pub(crate) window: bool,
    pub(crate) scheduler: Scheduler,
    pub(crate) work: Work,
    pub(crate) depth: usize,
    pub(crate) block: u32,
    pub(crate) kind: EmuKind,
    pub(crate) zones: Zones,
}

const fn case(name: &'static str, mode: Mode, work: Work, depth: usize) -> Case {
    let scheduler = Scheduler::None;
    Case {
        name,
        mode,
        nomerges: false,
        qd1: false,
        window: false,
        scheduler,
        work,
        depth,
        block: 8,
        kind: EmuKind::Null,
        zones: Zones::Po2,
    }
}

/// All cases.
pub(crate) const CASES: &[Case] = &[
    case("seq-1", Mode::Plug, Work::Seq, 1),
    case("seq-16", Mode::Plug, Work::Seq, 16),
    case("seq-128", Mode::Plug, Work::Seq, 128),
    Case { nomerges: true, ..case("seq-16-nomerges", Mode::Plug, Work::Seq, 16) },
    case("append-16", Mode::Plug, Work::Append, 16),
    case("random-1", Mode::Plug, Work::Random, 1),
    case("random-16", Mode::Plug, Work::Random, 16),
    Case { window: true, ..case("window-seq-1", Mode::Plug, Work::Seq, 1) },
    Case { window: true, ..case("window-random-16", Mode::Plug, Work::Random, 16) },
    case("read-1", Mode::Plug, Work::Read, 1),
    case("read-16", Mode::Plug, Work::Read, 16),
    case("none-seq-1", Mode::None, Work::Seq, 1),
    case("none-seq-16", Mode::None, Work::Seq, 16),
    case("none-random-1", Mode::None, Work::Random, 1),
    case("none-random-16", Mode::None, Work::Random, 16),
    Case { qd1: true, ..case("qd1-seq-1", Mode::Plug, Work::Seq, 1) },
    Case { qd1: true, ..case("qd1-seq-16", Mode::Plug, Work::Seq, 16) },
    Case { qd1: true, ..case("qd1-random-16", Mode::Plug, Work::Random, 16) },
    Case { scheduler: Scheduler::MqDeadline, ..case("mq-seq-1", Mode::Plug, Work::Seq, 1) },
    Case { scheduler: Scheduler::MqDeadline, ..case("mq-random-16", Mode::Plug, Work::Random, 16) },
    Case { scheduler: Scheduler::MqDeadline, ..case("mq-read-16", Mode::Plug, Work::Read, 16) },
    Case { zones: Zones::Many, ..case("random-200k-16", Mode::Plug, Work::Random, 16) },
    Case { zones: Zones::Many, ..case("none-random-200k-16", Mode::None, Work::Random, 16) },
    case("lock-random-16", Mode::Lock, Work::Random, 16),
    Case { zones: Zones::Conventional, ..case("conv-seq-1", Mode::Plug, Work::Seq, 1) },
    Case { zones: Zones::Conventional, ..case("conv-random-16", Mode::Plug, Work::Random, 16) },
    Case { zones: Zones::Other, ..case("npo2-seq-1", Mode::Plug, Work::Seq, 1) },
    Case { zones: Zones::Other, ..case("npo2-seq-16", Mode::Plug, Work::Seq, 16) },
    Case { zones: Zones::Other, ..case("npo2-random-16", Mode::Plug, Work::Random, 16) },
    Case { zones: Zones::Other, ..case("npo2-read-1", Mode::Plug, Work::Read, 1) },
    Case { zones: Zones::Other, ..case("npo2-read-16", Mode::Plug, Work::Read, 16) },
    Case { zones: Zones::Layer, ..case("po2-seq-1", Mode::Plug, Work::Seq, 1) },
    Case { zones: Zones::Layer, ..case("po2-seq-16", Mode::Plug, Work::Seq, 16) },
    Case { zones: Zones::Layer, ..case("po2-random-16", Mode::Plug, Work::Random, 16) },
    Case { zones: Zones::Layer, ..case("po2-read-1", Mode::Plug, Work::Read, 1) },
    Case { zones: Zones::Layer, ..case("po2-read-16", Mode::Plug, Work::Read, 16) },
    Case { kind: EmuKind::Mem, ..case("mem-4k-16", Mode::Plug, Work::Seq, 16) },
    Case { kind: EmuKind::Mem, block: 2048, ..case("mem-1m-16", Mode::Plug, Work::Seq, 16) },
];

/// The device of a case, and the disk on it.
pub(crate) fn disk(c: &Case) -> (Arc<EmuDisk>, Disk) {
    // The memory disk is small enough to be written whole, so that its pages are warm.
    let (zones, sectors) = match c.kind {
        EmuKind::Null if c.zones == Zones::Many => (MANY_ZONES, ZONE_SECTORS),
        EmuKind::Null => (ZONES, ZONE_SECTORS),
        EmuKind::Mem => (16, 16 << 11),
    };
    let sectors = sectors - if matches!(c.zones, Zones::Other | Zones::Layer) { 8 } else { 0 };
    let mut geometry = Geometry::new(zones, sectors, sectors).expect("a good geometry");
    if c.zones == Zones::Conventional {
        let half = (0..zones as u32 / 2).map(ZoneNo);
        geometry = geometry.with_conventional(half).expect("the other half is sequential");
    }
    let device = EmuDisk::new(EmuConfig::new(c.kind, geometry)).expect("a good disk");
    let top: Arc<dyn Device> = match c.zones {
        Zones::Layer => Po2Disk::new(device.clone()).expect("a layer"),
        _ => device.clone(),
    };
    let config = DiskConfig {
        mode: c.mode,
        nomerges: c.nomerges,
        zoned_qd1_writes: Some(c.qd1),
        scheduler: c.scheduler,
        order_window: Nanos(if c.window { 1_000_000_000 } else { 0 }),
        ..DiskConfig::default()
    };
    let disk = Disk::open(top, config, &mut |_| NOW).expect("an emulated disk opens");
    (device, disk)
}
