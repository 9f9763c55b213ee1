//! Zones of a power of two over zones of any size (N1-N18): each zone of the device starts at a multiple of the next power
//! of two, and what is between its end and the next start is a *gap* that nobody can write. Linux refuses drives
//! whose zone size is not a power of two; above this layer it need not.
//!
//! Owns the layouts (this file), the mapping of addresses ([`Way`], which the engine applies itself), and the commands that cannot pass as they are (`queue.rs`): those
//! that touch a gap. Right below a disk it steps aside for all others ([`Queue::step_aside`]).
//! It is below the plug, so that the plug's arithmetic stays shifts and masks (N14), and holds nothing of any zone: a
//! write pointer, a condition and a limit are the device's.

mod queue;

use std::fmt;
use std::sync::Arc;
use std::task::Waker;
use zoneplug_core::Error;
use zoneplug_core::device::{Device, Queue};
use zoneplug_core::unit::ZoneNo;
use zoneplug_core::way::Way;
use zoneplug_core::zone::{Geometry, GeometryError, Limits, Spindles, ZoneInfo};

/// Both sides.
#[derive(Debug)]
struct Map {
    /// The device's layout.
    below: Geometry,
    /// Ours.
    above: Geometry,
    limits: Limits,
    way: Way,
}

impl Map {
    /// What a report says of a zone, in our addresses. The zone is that of its start: the write pointer of a full one is
    /// the next one's (N4).
    fn translate(&self, info: &mut ZoneInfo) {
        let (zone, _) = self.below.zone_of(info.start);
        let start = self.above.zone_start(zone);
        let len = u64::from(self.above.zone_len_sectors(zone));
        info.move_to(start, len);
    }
}

/// A device whose zones have the size of a power of two, over one whose zones have any.
///
/// The capacity of a zone is the device's, so the gap at its end is never written: reads of it give zeroes, everything else
/// fails before the device sees it. A last zone that is shorter than the others keeps its length (N3).
///
/// ```
/// use zoneplug_devices::emu::{EmuConfig, EmuDisk};
/// use zoneplug_devices::stack::Po2Disk;
/// use zoneplug_core::Device;
/// let config: EmuConfig = "null,zones=8,zone-size=96M".parse().unwrap();
/// let disk = Po2Disk::new(EmuDisk::new(config).unwrap()).unwrap();
/// let g = disk.geometry();
/// assert_eq!((g.zone_sectors(), g.zone_capacity_sectors()), (128 << 11, 96 << 11));
/// ```
pub struct Po2Disk {
    inner: Arc<dyn Device>,
    map: Arc<Map>,
}

impl fmt::Debug for Po2Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Po2Disk").field("map", &self.map).finish_non_exhaustive()
    }
}

impl Po2Disk {
    /// The layer over `inner`. Where the zone size is a power of two already it does nothing, and costs nothing.
    pub fn new(inner: Arc<dyn Device>) -> Result<Arc<Po2Disk>, Error> {
        let below = *inner.geometry();
        let size = below.zone_sectors();
        let above = emulate(&below).map_err(|e| {
            Error::invalid(format!("po2 has no layout for zones of {size} sectors: {e}"))
                .hint("po2 is for zones of at most 1 TiB")
        })?;
        let mut limits = inner.limits().clone();
        // A native append is at most a zone's capacity long (N10).
        limits.zone_append_max_sectors =
            limits.zone_append_max_sectors.min(below.zone_capacity_sectors());
        let way = Way {
            mask: u64::from(above.zone_sectors()) - 1,
            size: u64::from(size),
            minus_gap: i64::from(size) - i64::from(above.zone_sectors()),
            shift: above.zone_sectors().trailing_zeros(),
        };
        let map = Map { below, above, limits, way };
        Ok(Arc::new(Po2Disk { inner, map: Arc::new(map) }))
    }

    /// The device below.
    pub fn inner(&self) -> &Arc<dyn Device> {
        &self.inner
    }
}

/// The layout above `below`.
fn emulate(below: &Geometry) -> Result<Geometry, GeometryError> {
    let size = below.zone_sectors();
    let po2 = size.checked_next_power_of_two().ok_or(GeometryError::TooLong)?;
    let nr = below.nr_zones();
    let last = ZoneNo(nr - 1);
    let mut above = Geometry::new(u64::from(nr), po2, below.zone_capacity_sectors())?;
    let len = match below.zone_len_sectors(last) {
        len if len == size => po2,
        shorter => shorter,
    };
    above = above.with_last_zone(len, below.last_zone_capacity_sectors())?;
    let conventional = (0..nr).map(ZoneNo).filter(|&z| below.is_conventional(z));
    above
        .with_conventional(conventional)?
        .with_conventional_capacity(below.conventional_capacity_sectors())
}

impl Device for Po2Disk {
    fn geometry(&self) -> &Geometry {
        &self.map.above
    }

    fn limits(&self) -> &Limits {
        &self.map.limits
    }

    fn is_timed(&self) -> bool {
        self.inner.is_timed()
    }

    fn never_panics(&self) -> bool {
        self.inner.never_panics()
    }

    fn spindles(&self) -> Spindles {
        self.inner.spindles()
    }

    fn open_queue(&self, depth: u16, waker: Waker) -> Result<Box<dyn Queue>, Error> {
        let inner = self.inner.open_queue(depth, waker.clone())?;
        // N13: nothing between where nothing is to be done.
        if self.map.way.minus_gap == 0 {
            return Ok(inner);
        }
        Ok(Box::new(queue::Po2Queue::new(
            Arc::clone(&self.map),
            inner,
            depth,
            !self.inner.never_panics(),
            waker,
        )))
    }
}
