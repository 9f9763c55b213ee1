//! Several devices as one device: end to end (*linear*; with one part, a *cut* of a device), or zone by zone in turns
//! (*stripe*).
//!
//! This file maps zones and addresses. `queue.rs` and `fan.rs` have the commands that concern more than one device:
//! flushes, reports, and resets of all zones. Each zone lies on one device as a whole, so the device enforces its
//! rules.
//!
//! A write with a preflush waits for the other devices, so a later write of its zone may overtake it. A disk with
//! plugs has only one write of a zone in flight, so this cannot happen there.
//!
//! All devices must have the same zone size and zone capacity. The limits of the joined disk are the strictest of all
//! devices. Each device still has its own limits of open and active zones; the joined disk shows the smallest, so a
//! client that keeps to it exceeds no device's limit.

mod fan;
mod lower;
mod queue;

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::task::Waker;
use zoneplug_core::Error;
use zoneplug_core::device::{Device, Queue};
use zoneplug_core::unit::{Bytes, Sector, ZoneNo};
use zoneplug_core::zone::{Geometry, Limits, Spindles, ZoneInfo};

/// The zones of one device that belong to the disk.
struct Part {
    device: Arc<dyn Device>,
    /// The layout of the whole device.
    below: Geometry,
    /// The first of its zones that is a zone of the disk.
    first: u32,
    /// The number of these zones.
    zones: u32,
}

impl Part {
    /// Returns the capacity of the part's conventional zones in sectors, if it has any.
    fn usable(&self) -> Option<u32> {
        let n = self.below.conventional_capacity_sectors();
        (self.below.nr_conventional() > 0).then_some(n)
    }

    /// Returns whether the disk has all sequential zones of the device.
    fn is_whole(&self) -> bool {
        let ours = self.first..self.first + self.zones;
        (0..self.below.nr_zones())
            .all(|z| ours.contains(&z) || self.below.is_conventional(ZoneNo(z)))
    }
}

/// The order of the parts' zones on the disk.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Order {
    /// One part after the other: the first zone of each, and the end.
    Linear(Vec<u32>),
    /// Zone `z` is on part `z % n`.
    Stripe(u32),
}

struct Map {
    parts: Vec<Part>,
    order: Order,
    geometry: Geometry,
    limits: Limits,
}

impl Map {
    /// Returns the part on which zone `zone` of the disk lies, and the zone's number on that device.
    #[inline]
    fn down(&self, zone: ZoneNo) -> (usize, ZoneNo) {
        let (part, nr) = match &self.order {
            Order::Linear(starts) => {
                let part = starts.partition_point(|&s| s <= zone.0) - 1;
                (part, zone.0 - starts[part])
            }
            Order::Stripe(n) => ((zone.0 % n) as usize, zone.0 / n),
        };
        (part, ZoneNo(self.parts[part].first + nr))
    }

    /// Returns the zone of the disk that is zone `below` of a part's device.
    #[inline]
    fn up(&self, part: usize, below: ZoneNo) -> ZoneNo {
        let nr = below.0 - self.parts[part].first;
        ZoneNo(match &self.order {
            Order::Linear(starts) => starts[part] + nr,
            Order::Stripe(n) => nr * n + part as u32,
        })
    }

    /// Maps an address of the disk to a part and the address there. The sector must be within the disk.
    #[inline]
    fn sector_down(&self, sector: Sector) -> (usize, Sector) {
        let (zone, offset) = self.geometry.zone_of(sector);
        let (part, below) = self.down(zone);
        (part, self.parts[part].below.zone_start(below).plus(u64::from(offset)))
    }

    /// Maps an address of a part's device to the disk.
    #[inline]
    fn sector_up(&self, part: usize, sector: Sector) -> Sector {
        let (zone, offset) = self.parts[part].below.zone_of(sector);
        self.geometry.zone_start(self.up(part, zone)).plus(u64::from(offset))
    }

    /// Returns the zones of a part that are among the disk's zones in `range`, counted from the part's first zone.
    fn zones_of(&self, part: usize, range: &Range<u32>) -> Range<u32> {
        match &self.order {
            Order::Linear(starts) => {
                let (first, end) = (starts[part], starts[part + 1]);
                let clamp = |z: u32| z.clamp(first, end) - first;
                clamp(range.start)..clamp(range.end)
            }
            Order::Stripe(n) => {
                let p = part as u32;
                // The first zone on this part whose number on the disk is at least `z`, counted within the part.
                let next = |z: u32| (z.saturating_sub(p)).div_ceil(*n);
                next(range.start)..next(range.end)
            }
        }
    }

    /// Maps the report of a zone of a part to the disk.
    fn translate(&self, part: usize, mut info: ZoneInfo) -> ZoneInfo {
        let zone = self.up(part, self.parts[part].below.zone_of(info.start).0);
        info.move_to(
            self.geometry.zone_start(zone),
            u64::from(self.geometry.zone_len_sectors(zone)),
        );
        info
    }
}

/// Several devices as one device.
///
/// ```
/// use zoneplug_devices::emu::{EmuConfig, EmuDisk};
/// use zoneplug_devices::stack::JoinDisk;
/// use zoneplug_core::Device;
/// let disk = || EmuDisk::new("null,zones=8,zone-size=1M".parse::<EmuConfig>().unwrap()).unwrap();
/// let both = JoinDisk::stripe(vec![disk(), disk()]).unwrap();
/// assert_eq!(both.geometry().nr_zones(), 16);
/// let some = JoinDisk::cut(disk(), 2..6).unwrap();
/// assert_eq!(some.geometry().nr_zones(), 4);
/// ```
pub struct JoinDisk {
    map: Arc<Map>,
}

impl fmt::Debug for JoinDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinDisk")
            .field("devices", &self.map.parts.len())
            .field("order", &self.map.order)
            .finish_non_exhaustive()
    }
}

impl JoinDisk {
    /// Joins devices end to end. If a last zone is shorter than the others, it is left out, except on the last
    /// device.
    ///
    /// Fails if there is no device, or if zone sizes or capacities differ.
    pub fn linear(devices: Vec<Arc<dyn Device>>) -> Result<Arc<JoinDisk>, Error> {
        let nr = devices.len();
        let parts = devices.into_iter().enumerate().map(|(i, d)| {
            let zones = if i + 1 == nr { d.geometry().nr_zones() } else { alike(d.geometry()) };
            part(d, 0..zones)
        });
        Self::new(parts.collect(), false)
    }

    /// Makes a device that has only `zones` of `device`. Fails if the range is empty or not within the device.
    pub fn cut(device: Arc<dyn Device>, zones: Range<u32>) -> Result<Arc<JoinDisk>, Error> {
        let nr = device.geometry().nr_zones();
        if zones.start >= zones.end || zones.end > nr {
            let what = format!("zones {} to {} are not of this device", zones.start, zones.end);
            return Err(Error::invalid(what).hint(format!("it has zones 0 to {nr}")));
        }
        Self::new(vec![part(device, zones)], false)
    }

    /// Joins devices zone by zone: zone `z` is on device `z % n`. Each device gives as many zones as the smallest
    /// has, without a last zone that is shorter than the others.
    ///
    /// Fails if there is no device, or if zone sizes or capacities differ.
    pub fn stripe(devices: Vec<Arc<dyn Device>>) -> Result<Arc<JoinDisk>, Error> {
        let zones = devices.iter().map(|d| alike(d.geometry())).min().unwrap_or(0);
        Self::new(devices.into_iter().map(|d| part(d, 0..zones)).collect(), true)
    }

    fn new(parts: Vec<Part>, stripe: bool) -> Result<Arc<JoinDisk>, Error> {
        let Some(last) = parts.last() else {
            return Err(Error::invalid("no devices to join").hint("name at least one"));
        };
        let g = &last.below;
        let usable = parts.iter().find_map(Part::usable);
        for p in &parts {
            let same = p.below.zone_sectors() == g.zone_sectors()
                && p.below.zone_capacity_sectors() == g.zone_capacity_sectors()
                && p.usable().is_none_or(|n| usable.is_none_or(|u| n == u));
            if !same {
                let text = |g: &Geometry| {
                    let bytes = |n: u32| Bytes(u64::from(n) << 9);
                    format!("{} of {}", bytes(g.zone_capacity_sectors()), bytes(g.zone_sectors()))
                };
                let what = format!("devices with zones of {} and of {}", text(&p.below), text(g));
                return Err(Error::invalid(what)
                    .hint("devices that are joined have the same zone size and zone capacity"));
            }
        }
        let mut starts = vec![0];
        for p in &parts {
            starts.push(starts[starts.len() - 1] + p.zones);
        }
        let nr = starts[parts.len()];
        let order = if stripe { Order::Stripe(parts.len() as u32) } else { Order::Linear(starts) };
        let invalid = |e: zoneplug_core::zone::GeometryError| {
            Error::invalid(format!("these devices make no disk: {e}"))
                .hint("fewer devices, or parts of them: linear,first=0,zones=N@DEVICE")
                .source(e)
        };
        let (size, capacity) = (g.zone_sectors(), g.zone_capacity_sectors());
        let mut geometry = Geometry::new(u64::from(nr), size, capacity).map_err(invalid)?;
        let end = last.first + last.zones;
        if !stripe && end == g.nr_zones() {
            let len = g.zone_len_sectors(ZoneNo(end - 1));
            geometry =
                geometry.with_last_zone(len, g.last_zone_capacity_sectors()).map_err(invalid)?;
        }
        let limits = parts.iter().map(|p| p.device.limits().clone()).reduce(strictest);
        let mut map = Map { parts, order, geometry, limits: limits.unwrap_or_default() };
        let conventional: Vec<_> = (0..nr)
            .map(ZoneNo)
            .filter(|&z| {
                let (part, below) = map.down(z);
                map.parts[part].below.is_conventional(below)
            })
            .collect();
        map.geometry = map.geometry.with_conventional(conventional).map_err(invalid)?;
        map.geometry =
            map.geometry.with_conventional_capacity(usable.unwrap_or(size)).map_err(invalid)?;
        Ok(Arc::new(JoinDisk { map: Arc::new(map) }))
    }

    /// Returns the devices below, in order.
    pub fn devices(&self) -> impl Iterator<Item = &Arc<dyn Device>> {
        self.map.parts.iter().map(|p| &p.device)
    }
}

fn part(device: Arc<dyn Device>, zones: Range<u32>) -> Part {
    let below = *device.geometry();
    Part { device, below, first: zones.start, zones: zones.end - zones.start }
}

/// Returns how many zones have the size and capacity of the first.
fn alike(g: &Geometry) -> u32 {
    let last = ZoneNo(g.nr_zones() - 1);
    let shorter = g.zone_len_sectors(last) < g.zone_sectors()
        || g.last_zone_capacity_sectors() < g.zone_capacity_sectors();
    g.nr_zones() - u32::from(shorter)
}

/// Returns the limits that satisfy both `a` and `b`.
fn strictest(a: Limits, b: Limits) -> Limits {
    // 0 means no limit.
    let least = |a: u32, b: u32| match (a, b) {
        (0, n) | (n, 0) => n,
        _ => a.min(b),
    };
    let max_active_zones = least(a.max_active_zones, b.max_active_zones);
    Limits {
        logical_block_sectors: a.logical_block_sectors.max(b.logical_block_sectors),
        write_granularity_sectors: a.write_granularity_sectors.max(b.write_granularity_sectors),
        max_transfer_sectors: least(a.max_transfer_sectors, b.max_transfer_sectors),
        max_bios: least(a.max_bios, b.max_bios),
        // The disk has native append only if all devices have it (A12).
        zone_append_max_sectors: a.zone_append_max_sectors.min(b.zone_append_max_sectors),
        // An open zone is an active one too, so a limit of active zones of one device also bounds the open ones.
        max_open_zones: match least(a.max_open_zones, b.max_open_zones) {
            0 => 0,
            open => least(open, max_active_zones),
        },
        max_active_zones,
        max_write_zeroes_sectors: a.max_write_zeroes_sectors.min(b.max_write_zeroes_sectors),
        discard: a.discard && b.discard,
        write_cache: a.write_cache || b.write_cache,
        fua: a.fua && b.fua,
        rotational: a.rotational || b.rotational,
        read_only: a.read_only || b.read_only,
        // A write with a preflush may be overtaken.
        keeps_write_order: false,
    }
}

impl Device for JoinDisk {
    fn geometry(&self) -> &Geometry {
        &self.map.geometry
    }

    fn limits(&self) -> &Limits {
        &self.map.limits
    }

    fn is_timed(&self) -> bool {
        self.devices().any(|d| d.is_timed())
    }

    fn never_panics(&self) -> bool {
        self.devices().all(|d| d.never_panics())
    }

    fn spindles(&self) -> Spindles {
        let parts: Vec<_> = self.devices().map(|d| d.spindles()).collect();
        Spindles::join((0..self.map.geometry.nr_zones()).map(|zone| {
            let (part, below) = self.map.down(ZoneNo(zone));
            (&parts[part], below)
        }))
    }

    fn open_queue(&self, depth: u16, waker: Waker) -> Result<Box<dyn Queue>, Error> {
        let inner = self.devices().map(|d| d.open_queue(depth, waker.clone()));
        let inner = inner.collect::<Result<Vec<_>, _>>()?;
        Ok(Box::new(queue::JoinQueue::new(Arc::clone(&self.map), inner, depth, waker)))
    }
}
