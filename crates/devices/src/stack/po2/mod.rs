//! A layer that shows zones whose size is a power of two, on a device with zones of any size (N1-N18). The layer
//! rounds the zone size up to the next power of two and shows each zone at a multiple of that. The range between the
//! end of a device's zone and the next start is a *gap* that cannot be written. Linux refuses drives whose zone size is
//! not a power of two, but accepts a disk with this layer.
//!
//! This file computes the layout that the layer shows. Most commands only need a number added to their sector; an
//! [`AddressMap`] adds it in the queue of the disk above. `fallback.rs` handles the others: those that touch a gap,
//! reports and zone management. The layer is below the plug, so the plug computes with shifts and masks (N14). No
//! state of a zone is kept here: write pointer, condition and limits are the device's.

mod fallback;

use std::fmt;
use std::sync::Arc;
use std::task::Waker;
use zoneplug_core::Error;
use zoneplug_core::device::{AddressMap, Device, MappedQueue, Queue};
use zoneplug_core::unit::ZoneNo;
use zoneplug_core::zone::{Geometry, GeometryError, Limits, Spindles, ZoneInfo};

/// The layouts above and below the layer, and the map between them.
#[derive(Debug)]
struct Map {
    /// The layout of the device below.
    below: Geometry,
    /// The layout that the layer shows.
    above: Geometry,
    /// The limits that the layer shows.
    limits: Limits,
    sectors: AddressMap,
}

impl Map {
    /// Translates the record of a zone for the layer above. The start identifies the zone, because the write pointer
    /// of a full zone is the start of the next one.
    fn translate(&self, info: &mut ZoneInfo) {
        let (zone, _) = self.below.zone_of(info.start);
        let start = self.above.zone_start(zone);
        let len = u64::from(self.above.zone_len_sectors(zone));
        info.move_to(start, len);
    }
}

/// A layer that shows zones whose size is a power of two, on a device with zones of any size.
///
/// A zone keeps its capacity, so the gap at its end is never written. Reads of the gap return zeroes, and any other
/// operation fails before the device sees it. A last zone that is shorter than the others keeps its length.
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
    /// Puts the layer on `inner`. If the zone size is a power of two already, the layer does nothing and costs
    /// nothing. Fails if zones of the larger size exceed the limits of a geometry.
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
        let sectors = AddressMap::new(above.zone_sectors(), size)
            .ok_or_else(|| Error::invalid(format!("po2 has no map for zones of {size} sectors")))?;
        let map = Map { below, above, limits, sectors };
        Ok(Arc::new(Po2Disk { inner, map: Arc::new(map) }))
    }

    /// Returns the device below.
    pub fn inner(&self) -> &Arc<dyn Device> {
        &self.inner
    }
}

/// Returns the layout that the layer shows for `below`.
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
        Ok(self.open_mapped_queue(depth, waker)?.boxed())
    }

    fn open_mapped_queue(&self, depth: u16, waker: Waker) -> Result<MappedQueue, Error> {
        // A map that changes no address costs nothing, because it is left out (N13).
        if self.map.sectors.is_identity() {
            return self.inner.open_mapped_queue(depth, waker);
        }
        let inner = self.inner.open_queue(depth, waker.clone())?;
        let may_panic = !self.inner.never_panics();
        let fallback = fallback::Po2Fallback::new(self.map.clone(), depth, may_panic, waker);
        Ok(MappedQueue::new(inner, self.map.sectors, Box::new(fallback)))
    }
}
