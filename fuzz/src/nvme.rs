//! What an NVMe drive says of itself: identify structures and a report of zones, with any of their bytes changed. Either it can be
//! used, within limits that the layer keeps to, or the reason is told.

use crate::explained;
use crate::input::Input;
use std::sync::Arc;
use std::task::Waker;
use zoneplug_core::disk::{Disk, DiskConfig};
use zoneplug_core::zone::{Condition, Geometry, Limits, ZoneInfo};
use zoneplug_core::{Commands, Device, Error, Nanos, Op, Queue, Status};
use zoneplug_host::nvme::testing::Namespace;

/// Zones of the drive that is changed, blocks of one, and log2 of the bytes of a block.
const ZONES: u64 = 8;
const ZONE_BLOCKS: u64 = 256;
const SHIFT: u8 = 12;

fn put(b: &mut [u8], at: usize, v: u64, n: usize) {
    // A report may have been cut short.
    let at = at.min(b.len());
    let end = (at + n).min(b.len());
    b[at..end].copy_from_slice(&v.to_le_bytes()[..end - at]);
}

/// A drive like QEMU's.
fn drive() -> [[u8; 4096]; 5] {
    let mut all = [[0; 4096]; 5];
    let [ctrl, ns, zns, nvm, zoned] = &mut all;
    ctrl[77] = 7;
    put(ctrl, 520, 0xc, 2);
    ctrl[525] = 7;
    put(ns, 0, ZONES * ZONE_BLOCKS, 8);
    put(ns, 128, u64::from(SHIFT) << 16, 4);
    put(zns, 4, 3, 4);
    put(zns, 8, 2, 4);
    put(zns, 2816, ZONE_BLOCKS, 8);
    nvm[1] = 3;
    zoned[0] = 5;
    all
}

/// Fields that are looked at: structure, offset, bytes.
const FIELDS: [(usize, usize, usize); 18] = [
    (0, 77, 1),
    (0, 520, 2),
    (0, 525, 1),
    (1, 0, 8),
    (1, 25, 1),
    (1, 26, 1),
    (1, 99, 1),
    (1, 128, 4),
    (1, 132, 4),
    (1, 192, 4),
    (2, 0, 2),
    (2, 4, 4),
    (2, 8, 4),
    (2, 2816, 8),
    (2, 2832, 8),
    (2, 3072, 8),
    (3, 1, 1),
    (4, 0, 1),
];

/// Identify structures and a report.
pub fn nvme_structures(data: &[u8]) {
    let mut s = Input::new(data);
    let mut all = drive();
    let flags = s.byte();
    for _ in 0..s.byte() % 16 {
        let (at, value) = (s.byte(), s.number());
        match FIELDS.get(usize::from(at) % (FIELDS.len() + 1)) {
            Some(&(which, at, n)) => put(&mut all[which], at, value, n),
            None => all[usize::from(at) % 5][usize::from(s.short()) % 4096] = value as u8,
        }
    }
    let [a, b, c, d, e] = &all;
    let has_limits = [flags & 1 == 0, flags & 2 == 0];
    let ns = match Namespace::of([a, b, c, d, e], has_limits) {
        Ok(ns) => ns,
        Err(why) => return assert!(!why.is_empty()),
    };
    let kernel = if flags & 4 == 0 { u64::MAX } else { s.number().max(4096) };
    let limits = ns.limits(kernel);
    check_limits(&ns, &limits);
    let nr = ns.sectors() / ns.zone_sectors();
    let Some(zones) = report(&ns, &limits, nr, &mut s) else { return };
    match ns.geometry(&zones) {
        Ok(geometry) => open(geometry, limits, zones),
        Err(e) => explained(&e),
    }
}

fn check_limits(ns: &Namespace, l: &Limits) {
    let block = l.logical_block_sectors;
    assert!(block.is_power_of_two() && l.write_granularity_sectors == block, "{l:?}");
    for n in [l.max_transfer_sectors, l.zone_append_max_sectors, l.max_write_zeroes_sectors] {
        assert!(n >= block && n.is_multiple_of(block), "{l:?}");
        let (blocks, bytes) = ns.sizes(n, 3);
        assert!(blocks * block == n && bytes == 256, "{n} sectors are {blocks} blocks");
    }
    assert!(l.zone_append_max_sectors <= l.max_transfer_sectors, "{l:?}");
    let (zone, all) = (ns.zone_sectors(), ns.sectors());
    assert!(zone > 0 && zone <= all && zone.is_multiple_of(block.into()), "{zone} of {all}");
    assert!(all < 1 << 55, "addresses in bytes");
}

/// Zones as the drive reports them, some of the descriptors changed.
fn report(ns: &Namespace, l: &Limits, nr: u64, s: &mut Input<'_>) -> Option<Vec<ZoneInfo>> {
    let (nr, block) = (nr.min(2 * ZONES), u64::from(l.logical_block_sectors));
    let zone_blocks = ns.zone_sectors() / block;
    let mut bytes = vec![0; 64 * (nr as usize + 1)];
    put(&mut bytes, 0, nr, 8);
    for n in 0..nr {
        let at = 64 * (n as usize + 1);
        bytes[at] = 2;
        bytes[at + 1] = 1 << 4;
        put(&mut bytes, at + 8, zone_blocks, 8);
        put(&mut bytes, at + 16, n * zone_blocks, 8);
        put(&mut bytes, at + 24, n * zone_blocks, 8);
    }
    for _ in 0..s.byte() % 16 {
        let (zone, field) = (s.byte(), s.byte());
        let at = 64 * (usize::from(zone) % (nr as usize + 1));
        let value = s.number();
        match field % 8 {
            0 => put(&mut bytes, at, value, 1),
            1 => put(&mut bytes, at + 1, value << 4, 1),
            2 => put(&mut bytes, at + 8, value, 8),
            3 => put(&mut bytes, at + 16, value, 8),
            4 => put(&mut bytes, at + 24, value, 8),
            5 => {
                // All have another capacity.
                (1..=nr as usize).for_each(|n| put(&mut bytes, 64 * n + 8, value, 8));
            }
            6 => bytes.truncate(value as usize % (bytes.len() + 1)),
            _ => put(&mut bytes, at, value, 8),
        }
        if bytes.len() < 128 {
            break;
        }
    }
    let from = if s.byte() < 200 { 0 } else { s.number() };
    let zones = ns.zones(&bytes, from)?;
    assert!(zones.len() <= bytes.len().saturating_sub(64) / 64);
    for (n, z) in zones.iter().enumerate() {
        let start = from + n as u64 * ns.zone_sectors();
        assert_eq!((z.start.0, z.len_sectors), (start, ns.zone_sectors()));
        assert!(z.capacity_sectors <= z.len_sectors, "{z:?}");
        let none = matches!(z.cond, Condition::ReadOnly | Condition::Offline);
        let inside = z.start <= z.wp && z.wp.0 <= start + z.len_sectors;
        assert!(if none { z.wp.0 == u64::MAX } else { inside }, "{z:?}");
    }
    Some(zones)
}

/// A device that reports this.
#[derive(Debug)]
struct Said {
    geometry: Geometry,
    limits: Limits,
    zones: Arc<Vec<ZoneInfo>>,
}

impl Device for Said {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn open_queue(&self, _: u16, _: Waker) -> Result<Box<dyn Queue>, Error> {
        Ok(Box::new(SaidQueue { zones: self.zones.clone(), done: Commands::new() }))
    }
}

struct SaidQueue {
    zones: Arc<Vec<ZoneInfo>>,
    done: Commands,
}

impl Queue for SaidQueue {
    fn submit(&mut self, _: Nanos, commands: &mut Commands) {
        for mut c in commands.drain(..) {
            c.status = if c.op == Op::ReportZones { Status::Ok } else { Status::Io };
            let end = |z: &&ZoneInfo| z.start.0 + z.len_sectors > c.sector.0;
            let max = c.report_max as usize;
            c.report.extend(self.zones.iter().filter(end).take(max).copied());
            self.done.push_back(c);
        }
    }

    fn poll(&mut self, _: Nanos, done: &mut Commands) {
        done.append(&mut self.done);
    }

    fn next_deadline(&self) -> Option<Nanos> {
        (!self.done.is_empty()).then_some(Nanos(0))
    }

    fn arm(&mut self) {}
}

/// The layer on such a drive: it opens, or says why not.
fn open(geometry: Geometry, limits: Limits, zones: Vec<ZoneInfo>) {
    let said = Said { geometry, limits, zones: Arc::new(zones) };
    match Disk::open(Arc::new(said), DiskConfig::default(), &mut |_| Nanos(0)) {
        Ok(disk) => assert!(disk.attributes().iter().all(|a| !a.value.is_empty())),
        Err(e) => explained(&e),
    }
}
