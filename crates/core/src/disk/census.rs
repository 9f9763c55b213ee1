//! A census of the zones: how many are in which condition, and where the most BIOs wait.

use super::handle::Disk;
use crate::sync::lock;
use crate::unit::ZoneNo;
use crate::zone::Condition;

/// A count of all zones as the layer knows them, without asking the device.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Census {
    /// The number of zones in each condition that occurs. Open and closed zones are both *active* (M10). Stale zones
    /// are not counted here.
    pub conditions: Vec<ConditionCount>,
    /// Zones whose write pointer is unknown.
    pub stale: u32,
    /// The zones with the most waiting BIOs, in descending order of their numbers of BIOs.
    pub waiting: Vec<ZoneWaiting>,
}

/// The number of zones in one condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConditionCount {
    /// The condition.
    pub condition: Condition,
    /// How many zones are in it.
    pub zones: u32,
}

/// The number of BIOs that wait in one zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ZoneWaiting {
    /// The zone.
    pub zone: ZoneNo,
    /// How many BIOs wait in it.
    pub bios: u32,
}

impl Disk {
    /// Counts the zones by condition, and names up to `most` zones with waiting BIOs. Locks one shard after the other, so
    /// the numbers are of no single moment. Empty if the disk has no plugs.
    ///
    /// ```
    /// use zoneplug_core::disk::{Disk, DiskConfig};
    /// use zoneplug_core::{Nanos, zone::Condition};
    /// use zoneplug_devices::emu::{EmuConfig, EmuDisk};
    /// let config = "null,zones=8,zone-size=1M,conv=2".parse::<EmuConfig>().unwrap();
    /// let disk = Disk::open(EmuDisk::new(config).unwrap(), DiskConfig::default(), &mut |_| Nanos(0)).unwrap();
    /// let census = disk.census(4);
    /// let counts: Vec<_> = census.conditions.iter().map(|c| (c.condition, c.zones)).collect();
    /// assert_eq!(counts, [(Condition::NotWp, 2), (Condition::Empty, 6)]);
    /// assert!(census.stale == 0 && census.waiting.is_empty());
    /// ```
    pub fn census(&self, most: usize) -> Census {
        let mut census = Census::default();
        if !self.layout().plugs {
            return census;
        }
        for shard in &self.shared.shards {
            let mut shard = lock(&shard.0);
            for i in 0..shard.plugs.len() {
                shard.lock_plug(i);
                let plug = &shard.plugs[i];
                if plug.is_stale() {
                    census.stale += 1;
                } else {
                    census.add(plug.condition());
                }
                let parked = plug.parked();
                if parked > 0 {
                    census.note_waiting(self.shared.zone_at(shard.place_of(i)), parked, most);
                }
                shard.unlock_plug(i);
            }
        }
        census.conditions.sort_unstable_by_key(|c| c.condition as u8);
        census
    }
}

impl Census {
    fn add(&mut self, condition: Condition) {
        match self.conditions.iter_mut().find(|c| c.condition == condition) {
            Some(count) => count.zones += 1,
            None => self.conditions.push(ConditionCount { condition, zones: 1 }),
        }
    }

    /// Notes a zone, if it is among the `most` with the most waiting BIOs so far. Of equals the lower number comes first.
    fn note_waiting(&mut self, zone: ZoneNo, parked: u32, most: usize) {
        let before = |w: &ZoneWaiting| w.bios > parked || w.bios == parked && w.zone < zone;
        let at = self.waiting.partition_point(before);
        if at < most {
            self.waiting.truncate(most - 1);
            self.waiting.insert(at, ZoneWaiting { zone, bios: parked });
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    /// The order holds also when the list is full, and when equal numbers come in any order.
    #[test]
    fn the_zones_with_the_most_waiting_bios_are_kept() {
        let mut census = Census::default();
        for (zone, parked) in [(7, 1), (3, 5), (9, 2), (1, 5), (2, 9), (4, 2), (5, 1)] {
            census.note_waiting(ZoneNo(zone), parked, 4);
        }
        let list: Vec<(u32, u32)> = census.waiting.iter().map(|w| (w.zone.0, w.bios)).collect();
        assert_eq!(list, [(2, 9), (1, 5), (3, 5), (4, 2)]);
        census.note_waiting(ZoneNo(0), 1, 0);
    }
}
