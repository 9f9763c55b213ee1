//! The zones of a disk: one [`ZoneState`] each, in an atomic word, and the budget of open zones under a lock. A write
//! to an open zone is one compare-and-exchange. A condition changes only under the budget's lock. This file does not
//! know commands.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire};
use std::sync::{Mutex, MutexGuard};
use zoneplug_core::bio::Status;
pub(super) use zoneplug_core::poison::lock;
use zoneplug_core::unit::ZoneNo;
use zoneplug_core::zone::machine::{Advance, Budget, ZoneState, ZoneStates};
use zoneplug_core::zone::{Condition, Geometry};

/// log2 of the largest number of shards.
const MAX_SHIFT: u32 = 6;

const fn pack(s: ZoneState) -> u64 {
    (s.cond as u64) << 32 | s.wp as u64
}

#[inline]
fn unpack(word: u64) -> ZoneState {
    let cond = Condition::from_u8((word >> 32) as u8).expect("only conditions are packed");
    ZoneState { wp: word as u32, cond }
}

/// The zones of a disk that count against its limits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ZonesInUse {
    /// Open zones.
    pub open: u32,
    /// Active zones: open and closed ones.
    pub active: u32,
}

/// Every zone of a disk.
#[derive(Debug)]
pub(super) struct Table {
    /// A [`ZoneState`] in each word, one shard after the other.
    words: Box<[AtomicU64]>,
    /// log2 of the number of shards: groups of zones whose words lie together.
    shift: u32,
    /// Words of a shard: whole pairs of cache lines, because processors fetch lines in pairs.
    stride: usize,
    nr_zones: u32,
    budget: Mutex<Budget>,
}

impl ZoneStates for &Table {
    #[inline(always)]
    fn update<R>(&mut self, zone: ZoneNo, mut f: impl FnMut(&mut ZoneState) -> R) -> R {
        let word = &self.words[self.place(zone)];
        let mut old = word.load(Acquire);
        loop {
            let mut state = unpack(old);
            let r = f(&mut state);
            let new = pack(state);
            if new == old {
                return r;
            }
            match word.compare_exchange_weak(old, new, AcqRel, Acquire) {
                Ok(_) => return r,
                Err(now) => old = now,
            }
        }
    }
}

impl Table {
    pub(super) fn new(g: &Geometry, max_open: u32, max_active: u32) -> Table {
        let nr_zones = g.nr_zones();
        let shift = nr_zones.next_power_of_two().ilog2().min(MAX_SHIFT);
        let stride = nr_zones.div_ceil(1 << shift).next_multiple_of(16) as usize;
        let words = (0..stride << shift).map(|_| AtomicU64::new(pack(ZoneState::EMPTY))).collect();
        let budget = Mutex::new(Budget::new(nr_zones, max_open, max_active));
        let table = Table { words, shift, stride, nr_zones, budget };
        for zone in (0..nr_zones).map(ZoneNo).filter(|&z| g.is_conventional(z)) {
            (&table).update(zone, |s| *s = ZoneState::CONVENTIONAL);
        }
        table
    }

    /// The place of a zone's word. Each block of as many zones as there are shards has one zone in each shard, in an
    /// order of its own. So neighbours never share a cache line, and zones at a regular distance rarely do.
    #[inline]
    fn place(&self, zone: ZoneNo) -> usize {
        let block = zone.0 >> self.shift;
        // The upper bits of Fibonacci hashing give consecutive blocks very different orders.
        let hash = block.wrapping_mul(0x9e37_79b1) >> (32 - MAX_SHIFT);
        let shard = (zone.0 ^ hash) & ((1 << self.shift) - 1);
        shard as usize * self.stride + block as usize
    }

    /// Locks the budget, for an operation that changes a condition.
    pub(super) fn budget(&self) -> MutexGuard<'_, Budget> {
        lock(&self.budget)
    }

    /// Returns the present state of one zone.
    pub(super) fn get(&self, zone: ZoneNo) -> ZoneState {
        unpack(self.words[self.place(zone)].load(Acquire))
    }

    /// Writes at offset `at` of the zone in sectors, or at its write pointer. Returns the offset.
    #[inline(always)]
    pub(super) fn write(
        &self,
        zone: ZoneNo,
        at: Option<u32>,
        len_sectors: u32,
        capacity_sectors: u32,
    ) -> Result<u32, Status> {
        let mut zones = self;
        match zones.update(zone, |s| s.advance(at, len_sectors, capacity_sectors)) {
            Advance::At(start) => Ok(start),
            Advance::Refused(status) => Err(status),
            Advance::Transition => {
                self.budget().write(&mut zones, zone, at, len_sectors, capacity_sectors)
            }
        }
    }

    pub(super) fn reset_all(&self) {
        self.budget().reset_all(&mut &*self, self.nr_zones);
    }

    /// Returns how many zones are open, and how many are active.
    pub(super) fn zones_in_use(&self) -> ZonesInUse {
        let b = self.budget();
        ZonesInUse { open: b.open_zones(), active: b.active_zones() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_zone_has_a_place_of_its_own() {
        for n in [1, 2, 3, 63, 64, 65, 1000, 4097] {
            let t = Table::new(&Geometry::new(n, 8, 8).unwrap(), 0, 0);
            let places: BTreeSet<_> = (0..n as u32).map(|z| t.place(ZoneNo(z))).collect();
            assert_eq!(places.len() as u64, n);
        }
    }

    #[test]
    fn zones_at_a_regular_distance_spread_over_cache_lines() {
        let t = Table::new(&Geometry::new(8192, 8, 8).unwrap(), 0, 0);
        for step in [1, 2, 16, 64, 128] {
            let lines: BTreeSet<_> = (0..64).map(|i| t.place(ZoneNo(i * step)) / 8).collect();
            assert!(lines.len() >= 48, "{} lines for every {step}th zone", lines.len());
        }
    }
}
