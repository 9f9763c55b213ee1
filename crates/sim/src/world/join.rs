//! Worlds whose disk stands on a join: parts of one device one after the other in another order, or in turns. This
//! file has its own mapping of zones, independent of the layer's.

use std::sync::Arc;
use zoneplug_core::zone::Geometry;
use zoneplug_core::{Device, Random, ZoneNo};
use zoneplug_devices::stack::JoinDisk;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Join {
    /// The zones below this number, then the others.
    Straight(u32),
    /// The zones from the first number on, then those below it. The second is the number of all.
    Turned(u32, u32),
    /// Zones of the first and the second half in turns; each half has this many.
    Stripe(u32),
}

impl Join {
    /// Draws a join in some worlds, from its own sequence.
    pub(super) fn draw(seed: u64, layouts: &[Geometry]) -> Option<Join> {
        let mut rng = Random::new(seed.wrapping_mul(0xa076_1d64_78bd_642f) ^ 0x101);
        let [g] = layouts else { return None };
        let n = g.nr_zones();
        if n < 2 || !rng.one_in(4) {
            return None;
        }
        let last = ZoneNo(n - 1);
        let uniform = g.zone_len_sectors(last) == g.zone_sectors()
            && g.last_zone_capacity_sectors() == g.zone_capacity_sectors();
        let at = rng.range(1, n - 1);
        let join = match rng.below(3) {
            0 if uniform => Join::Stripe(n / 2),
            1 if uniform => Join::Turned(at, n),
            _ => Join::Straight(at),
        };
        // No part may consist of conventional zones alone.
        let (first, second) = join.cuts(n);
        let good = |mut zones: std::ops::Range<u32>| zones.any(|z| !g.is_conventional(ZoneNo(z)));
        (good(first) && good(second)).then_some(join)
    }

    /// Returns the zones of both parts in the order of the join.
    fn cuts(self, n: u32) -> (std::ops::Range<u32>, std::ops::Range<u32>) {
        match self {
            Join::Straight(at) => (0..at, at..n),
            Join::Turned(at, n) => (at..n, 0..at),
            Join::Stripe(half) => (0..half, half..2 * half),
        }
    }

    /// Makes the join of the parts of `device`.
    pub(super) fn of(self, device: &Arc<dyn Device>) -> Arc<dyn Device> {
        let (first, second) = self.cuts(device.geometry().nr_zones());
        let cut = |zones| -> Arc<dyn Device> {
            JoinDisk::cut(device.clone(), zones).expect("zones of the device")
        };
        let parts = vec![cut(first), cut(second)];
        match self {
            Join::Stripe(_) => JoinDisk::stripe(parts).expect("parts that are alike"),
            _ => JoinDisk::linear(parts).expect("parts that are alike"),
        }
    }

    /// Returns the zone of the device for zone `z` of the disk.
    pub(super) fn below(self, z: usize) -> usize {
        match self {
            Join::Straight(_) => z,
            Join::Turned(at, n) => (z + at as usize) % n as usize,
            Join::Stripe(half) => z / 2 + z % 2 * half as usize,
        }
    }
}
