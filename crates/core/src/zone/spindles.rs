//! The zones that share a head.

use crate::unit::ZoneNo;

/// The spindle of each zone of a device, as [`Device::spindles`](crate::Device::spindles) reports it. Zones of one
/// spindle share a head. A disk has a single writer for each spindle.
///
/// ```
/// use zoneplug_core::zone::Spindles;
/// use zoneplug_core::ZoneNo;
/// let (a, b) = (Spindles::one(1), Spindles::one(2));
/// // Two zones of one disk, and one of another.
/// let three = Spindles::join([(&a, ZoneNo(0)), (&a, ZoneNo(1)), (&b, ZoneNo(0))]);
/// assert_eq!(three.count(), 2);
/// assert_eq!([0, 1, 2].map(|z| three.of(ZoneNo(z))), [0, 0, 1]);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spindles {
    /// Numbers that identify spindles. Two cuts of one disk have the same number, however they are joined.
    ids: Vec<usize>,
    /// The spindle of each zone. Empty if there is one spindle.
    of: Vec<u16>,
}

impl Spindles {
    /// One spindle for all zones. `id` is a number that no other device of this program has, such as an address.
    pub fn one(id: usize) -> Spindles {
        Spindles { ids: vec![id], of: Vec::new() }
    }

    /// The spindles of a device that is made of zones of others, in this order. If there are more than 65,536
    /// spindles, all zones count as one spindle.
    pub fn join<'a>(zones: impl IntoIterator<Item = (&'a Spindles, ZoneNo)>) -> Spindles {
        let mut all = Spindles { ids: Vec::new(), of: Vec::new() };
        for (spindles, zone) in zones {
            let id = spindles.ids[spindles.of(zone)];
            // Neighbouring zones are often on the same spindle.
            let last = all.of.last().map(|&s| usize::from(s)).filter(|&s| all.ids[s] == id);
            let known = last.or_else(|| all.ids.iter().position(|&i| i == id));
            let nr = known.unwrap_or(all.ids.len());
            let Ok(spindle) = u16::try_from(nr) else {
                return Spindles::one(all.ids[0]);
            };
            if known.is_none() {
                all.ids.push(id);
            }
            all.of.push(spindle);
        }
        if all.ids.len() == 1 {
            all.of = Vec::new();
        }
        all
    }

    /// The number of spindles.
    pub fn count(&self) -> usize {
        self.ids.len()
    }

    /// The spindle of a zone, less than [`Spindles::count`]. A zone that was added to the device later counts as
    /// being on the first.
    #[inline]
    pub fn of(&self, zone: ZoneNo) -> usize {
        self.of.get(zone.0 as usize).map_or(0, |&s| usize::from(s))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_one_disk_have_one_spindle() {
        let (a, b) = (Spindles::one(7), Spindles::one(9));
        let zone = ZoneNo;
        assert_eq!(Spindles::join([(&a, zone(5)), (&a, zone(0))]), a);
        let both = Spindles::join([(&a, zone(0)), (&b, zone(0)), (&a, zone(1)), (&b, zone(1))]);
        assert_eq!((0..4).map(|z| both.of(zone(z))).collect::<Vec<_>>(), [0, 1, 0, 1]);
        assert_eq!(both.of(zone(99)), 0, "one that has come since");
        // A join of joins still distinguishes exactly the disks.
        let again =
            Spindles::join([(&both, zone(1)), (&both, zone(0)), (&a, zone(0)), (&both, zone(3))]);
        assert_eq!(
            (again.count(), (0..4).map(|z| again.of(zone(z))).collect::<Vec<_>>()),
            (2, vec![0, 1, 1, 0])
        );
        assert_eq!(Spindles::join([(&both, zone(0)), (&both, zone(2))]), a, "a cut of one disk");
    }
}
