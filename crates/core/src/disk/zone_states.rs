//! The state of each zone of a disk in use, as the layer knows it, for maps and tables.

use super::handle::Disk;
use crate::sync::lock;
use crate::unit::ZoneNo;
use crate::zone::Condition;
use std::ops::Range;

/// Zones that are read while the layout stays locked. Between batches it is unlocked.
const BATCH: u32 = 64;

/// The layer's view of a zone, without asking the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ZoneState {
    /// The zone.
    pub zone: ZoneNo,
    /// Its condition; an open zone and a closed one are both *active* (M10). `None`: the write pointer is unknown.
    pub condition: Option<Condition>,
    /// Sectors from the start of the zone to the next write, reserved ones included. 0 for a conventional zone.
    pub write_pointer: u32,
    /// Sectors that can be written.
    pub capacity: u32,
    /// BIOs that wait in the zone's plug.
    pub waiting: u32,
    /// Writes at the device, or about to be sent to it.
    pub in_flight: u32,
}

impl Disk {
    /// Calls `each` for the zones of a range, in order; zones that the disk does not have are left out. A zone is locked
    /// while its state is read, but not while `each` runs, so a slow `each` delays no BIO. Zones may change between two
    /// calls of `each`. Without plugs the layer knows no zone states, and `each` is not called.
    ///
    /// ```
    /// use zoneplug_core::disk::{Disk, DiskConfig};
    /// use zoneplug_core::{Nanos, zone::Condition};
    /// use zoneplug_devices::emu::{EmuConfig, EmuDisk};
    /// let config = "null,zones=8,zone-size=1M,conv=2".parse::<EmuConfig>().unwrap();
    /// let disk = Disk::open(EmuDisk::new(config).unwrap(), DiskConfig::default(), &mut |_| Nanos(0)).unwrap();
    /// let mut found = Vec::new();
    /// disk.zone_states(1..20, |z| found.push((z.zone.0, z.condition.unwrap(), z.capacity)));
    /// assert_eq!(found[..2], [(1, Condition::NotWp, 2048), (2, Condition::Empty, 2048)]);
    /// assert_eq!(found.len(), 7);
    /// ```
    pub fn zone_states(&self, zones: Range<u32>, mut each: impl FnMut(ZoneState)) {
        let mut next = zones.start;
        let mut some = Vec::with_capacity(BATCH as usize);
        while next < zones.end {
            // Locked because a revalidation that commits rebuilds the plugs.
            let layout = lock(&self.shared.layout);
            let end = zones.end.min(layout.geometry.nr_zones()).min(next.saturating_add(BATCH));
            if !layout.plugs || next >= end {
                return;
            }
            some.extend((next..end).map(|z| self.zone_state(ZoneNo(z))));
            drop(layout);
            some.drain(..).for_each(&mut each);
            next = end;
        }
    }

    /// Reads a zone. The caller holds the layout's lock.
    fn zone_state(&self, zone: ZoneNo) -> ZoneState {
        let (shard, i) = self.shared.shard(zone);
        let plug = &shard.plugs[i];
        let conventional = plug.condition() == Condition::NotWp;
        ZoneState {
            zone,
            condition: (!plug.is_stale()).then(|| plug.condition()),
            write_pointer: if conventional { 0 } else { plug.write_pointer() },
            capacity: plug.capacity(),
            waiting: plug.parked(),
            in_flight: plug.nr_in_flight(),
        }
    }
}
