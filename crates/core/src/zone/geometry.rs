//! The layout of a disk.

use super::condition::ZoneType;
use super::memory::{ZONE_BYTES, ZoneMemory};
use crate::poison::lock_soon;
use crate::status::Status;
use crate::unit::{Bytes, Sector, ZoneNo};
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Mutex;

/// Most zones of a disk. Each takes [`ZONE_BYTES`] of memory, written or not.
pub const MAX_ZONES: u64 = 4_000_000;

/// Where zones start, and how much of each can be written. A zone may have any size below 2^32 sectors. Dividing by
/// the zone size is a shift if it is a power of two, otherwise a multiplication by a reciprocal.
///
/// A geometry is a value of a few words that is copied freely. Most disks have conventional zones only at their
/// start, and the geometry has their number. If there are others, their set is kept once for all geometries with this
/// set, until the process ends.
///
/// ```
/// use zoneplug_core::{ZoneNo, zone::Geometry};
/// let g = Geometry::new(128, 512, 512).unwrap().with_conventional([ZoneNo(100)]).unwrap();
/// let copy = g;
/// assert!(copy.is_conventional(ZoneNo(100)) && !g.is_conventional(ZoneNo(99)));
/// assert_eq!(copy, g);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    capacity_sectors: u64,
    zone_sectors: u32,
    zone_capacity_sectors: u32,
    last_zone_sectors: u32,
    last_zone_capacity_sectors: u32,
    conventional_capacity_sectors: u32,
    nr_zones: u32,
    nr_conventional: u32,
    /// The number of conventional zones at the start of the disk.
    leading: u32,
    /// A bit for each zone, set for the other conventional zones. Empty if there are none.
    others: &'static [u64],
    /// log2 of the zone size, or `NOT_PO2`.
    shift: u32,
    /// floor(2^64 / zone size).
    reciprocal: u64,
}

const NOT_PO2: u32 = 64;

/// The one copy of each set of zones.
static SETS: Mutex<BTreeSet<&'static [u64]>> = Mutex::new(BTreeSet::new());

/// Returns the one copy of a set of zones, or another copy if the list of them stays locked.
fn kept(bits: Vec<u64>) -> &'static [u64] {
    let Some(mut sets) = lock_soon(&SETS) else { return Box::leak(bits.into_boxed_slice()) };
    if let Some(known) = sets.get(&bits[..]) {
        return known;
    }
    let new: &'static [u64] = Box::leak(bits.into_boxed_slice());
    sets.insert(new);
    new
}

/// The reason for which numbers make no geometry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum GeometryError {
    /// No zone, or more than [`MAX_ZONES`].
    Zones(u64),
    /// The zone size is 0.
    ZoneSize,
    /// A capacity is 0 or larger than its zone, in sectors.
    Capacity(u64),
    /// The last zone is longer than the others, or empty, in sectors.
    LastZone(u64),
    /// Every zone is conventional.
    NoSequentialZone,
    /// The zone size would be 2^32 sectors or more.
    TooLong,
}

impl fmt::Display for GeometryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GeometryError::Zones(n) => write!(
                f,
                "{n} zones: 1 to {MAX_ZONES} are possible, for {ZONE_BYTES} bytes of memory each"
            ),
            GeometryError::ZoneSize => write!(f, "a zone of 0 sectors"),
            GeometryError::Capacity(n) => {
                write!(
                    f,
                    "a zone capacity of {n} sectors: it is at least 1 and at most the zone size"
                )
            }
            GeometryError::LastZone(n) => {
                write!(f, "a last zone of {n} sectors: it is at least 1 and at most the zone size")
            }
            GeometryError::NoSequentialZone => {
                write!(f, "every zone is conventional: at least one must be sequential")
            }
            GeometryError::TooLong => write!(f, "a zone of 2^32 sectors or more"),
        }
    }
}

impl std::error::Error for GeometryError {}

impl Geometry {
    /// Returns the memory that the engine takes for the zones while a disk is opened.
    pub fn memory(&self) -> ZoneMemory {
        ZoneMemory { zones: u64::from(self.nr_zones), each: ZONE_BYTES }
    }

    /// A disk of `nr_zones` sequential zones of `zone_sectors`, of which `zone_capacity_sectors` can be written.
    /// Fails if a number is 0 or too large: see [`GeometryError`].
    /// ```
    /// use zoneplug_core::zone::Geometry;
    /// use zoneplug_core::{Sector, ZoneNo};
    /// let g = Geometry::new(4, 3000, 2000).unwrap();
    /// assert_eq!(g.zone_of(Sector(3000 * 2 + 7)), (ZoneNo(2), 7));
    /// assert_eq!(g.capacity(), Sector(12000));
    /// ```
    pub fn new(
        nr_zones: u64,
        zone_sectors: u32,
        zone_capacity_sectors: u32,
    ) -> Result<Geometry, GeometryError> {
        if nr_zones == 0 || nr_zones > MAX_ZONES {
            return Err(GeometryError::Zones(nr_zones));
        }
        if zone_sectors == 0 {
            return Err(GeometryError::ZoneSize);
        }
        if zone_capacity_sectors == 0 || zone_capacity_sectors > zone_sectors {
            return Err(GeometryError::Capacity(u64::from(zone_capacity_sectors)));
        }
        let nr_zones = nr_zones as u32;
        Ok(Geometry {
            capacity_sectors: u64::from(nr_zones) * u64::from(zone_sectors),
            zone_sectors,
            zone_capacity_sectors,
            last_zone_sectors: zone_sectors,
            last_zone_capacity_sectors: zone_capacity_sectors,
            conventional_capacity_sectors: zone_sectors,
            nr_zones,
            nr_conventional: 0,
            leading: 0,
            others: &[],
            shift: if zone_sectors.is_power_of_two() {
                zone_sectors.trailing_zeros()
            } else {
                NOT_PO2
            },
            reciprocal: if zone_sectors == 1 {
                u64::MAX
            } else {
                ((1u128 << 64) / u128::from(zone_sectors)) as u64
            },
        })
    }

    /// Makes the last zone `len_sectors` long, with `capacity_sectors` that can be written. Fails if it would be
    /// longer than the others, or a number is 0.
    pub fn with_last_zone(
        mut self,
        len_sectors: u32,
        capacity_sectors: u32,
    ) -> Result<Geometry, GeometryError> {
        if len_sectors == 0 || len_sectors > self.zone_sectors {
            return Err(GeometryError::LastZone(u64::from(len_sectors)));
        }
        if capacity_sectors == 0 || capacity_sectors > len_sectors {
            return Err(GeometryError::Capacity(u64::from(capacity_sectors)));
        }
        self.last_zone_sectors = len_sectors;
        self.last_zone_capacity_sectors = capacity_sectors;
        self.capacity_sectors =
            u64::from(self.nr_zones - 1) * u64::from(self.zone_sectors) + u64::from(len_sectors);
        Ok(self)
    }

    /// Makes `zones` conventional. Their capacity is their length. Fails if a zone is not on the disk, or if no
    /// sequential zone is left.
    pub fn with_conventional(
        mut self,
        zones: impl IntoIterator<Item = ZoneNo>,
    ) -> Result<Geometry, GeometryError> {
        let mut set = self.others.to_vec();
        for z in zones {
            if z.0 >= self.nr_zones {
                return Err(GeometryError::Zones(u64::from(z.0) + 1));
            }
            if z.0 == self.leading {
                self.leading += 1;
            } else if z.0 > self.leading {
                set.resize(self.nr_zones.div_ceil(64) as usize, 0);
                set[z.0 as usize / 64] |= 1 << (z.0 % 64);
            }
        }
        // The leading zones have no bits, so that equal sets have equal forms.
        let bit =
            |set: &[u64], z: u32| set.get(z as usize / 64).is_some_and(|w| w >> (z % 64) & 1 != 0);
        while bit(&set, self.leading) {
            self.leading += 1;
        }
        for z in 0..self.leading.min(set.len() as u32 * 64) {
            set[z as usize / 64] &= !(1 << (z % 64));
        }
        let behind: u32 = set.iter().map(|w| w.count_ones()).sum();
        self.others = if behind == 0 { &[] } else { kept(set) };
        self.nr_conventional = self.leading + behind;
        if self.nr_conventional >= self.nr_zones {
            return Err(GeometryError::NoSequentialZone);
        }
        Ok(self)
    }

    /// Makes only the first `sectors` of each conventional zone usable; the rest is a gap. Fails if that is 0 or more
    /// than a zone.
    pub fn with_conventional_capacity(mut self, sectors: u32) -> Result<Geometry, GeometryError> {
        if sectors == 0 || sectors > self.zone_sectors {
            return Err(GeometryError::Capacity(u64::from(sectors)));
        }
        self.conventional_capacity_sectors = sectors;
        Ok(self)
    }

    /// The size of the disk in sectors.
    pub fn capacity(&self) -> Sector {
        Sector(self.capacity_sectors)
    }

    /// The size of the disk in bytes.
    pub fn capacity_bytes(&self) -> Bytes {
        self.capacity().to_bytes()
    }

    /// The number of zones.
    pub fn nr_zones(&self) -> u32 {
        self.nr_zones
    }

    /// The number of conventional zones.
    pub fn nr_conventional(&self) -> u32 {
        self.nr_conventional
    }

    /// The zone size: the distance from one zone's start to the next, in sectors.
    pub fn zone_sectors(&self) -> u32 {
        self.zone_sectors
    }

    /// The capacity of every sequential zone but the last, in sectors.
    pub fn zone_capacity_sectors(&self) -> u32 {
        self.zone_capacity_sectors
    }

    /// The capacity of the last zone if it is sequential, in sectors.
    pub fn last_zone_capacity_sectors(&self) -> u32 {
        self.last_zone_capacity_sectors
    }

    /// Returns the usable sectors of a conventional zone. A shorter last zone has less.
    pub fn conventional_capacity_sectors(&self) -> u32 {
        self.conventional_capacity_sectors
    }

    /// The zone of a sector, and the offset in it in sectors. The sector need not be within the disk.
    #[inline]
    pub fn zone_of(&self, sector: Sector) -> (ZoneNo, u32) {
        if self.shift != NOT_PO2 {
            let z = sector.0 >> self.shift;
            (ZoneNo(z as u32), sector.0 as u32 & (self.zone_sectors - 1))
        } else {
            // mulhi(n, floor(2^64 / d)) is the quotient or one less, for every n below 2^64.
            let d = u64::from(self.zone_sectors);
            let mut q = ((u128::from(sector.0) * u128::from(self.reciprocal)) >> 64) as u64;
            let mut r = sector.0 - q * d;
            if r >= d {
                q += 1;
                r -= d;
            }
            (ZoneNo(q as u32), r as u32)
        }
    }

    /// The first sector of a zone.
    #[inline]
    pub fn zone_start(&self, zone: ZoneNo) -> Sector {
        Sector(u64::from(zone.0) * u64::from(self.zone_sectors))
    }

    /// The length of a zone, in sectors.
    #[inline]
    pub fn zone_len_sectors(&self, zone: ZoneNo) -> u32 {
        if zone.0 + 1 == self.nr_zones { self.last_zone_sectors } else { self.zone_sectors }
    }

    /// Returns the writable sectors of a zone.
    #[inline(always)]
    pub fn capacity_of(&self, zone: ZoneNo) -> u32 {
        if self.is_conventional(zone) {
            self.zone_len_sectors(zone).min(self.conventional_capacity_sectors)
        } else {
            self.sequential_capacity(zone)
        }
    }

    /// Returns the writable sectors of a zone if it is sequential.
    #[inline]
    pub(crate) fn sequential_capacity(&self, zone: ZoneNo) -> u32 {
        if zone.0 + 1 == self.nr_zones {
            self.last_zone_capacity_sectors
        } else {
            self.zone_capacity_sectors
        }
    }

    /// Returns whether a zone is conventional.
    #[inline]
    pub fn is_conventional(&self, zone: ZoneNo) -> bool {
        zone.0 < self.leading
            || self.others.get(zone.0 as usize / 64).is_some_and(|w| w >> (zone.0 % 64) & 1 != 0)
    }

    /// The type of a zone.
    pub fn zone_type(&self, zone: ZoneNo) -> ZoneType {
        if self.is_conventional(zone) { ZoneType::Conventional } else { ZoneType::SeqWriteRequired }
    }

    /// The zone that contains a whole range, and the range's offset in it. Every device checks the range of a command
    /// with this. `block_mask` is the sectors of a logical block, less one; `max` is the longest range in sectors.
    /// Fails with [`Status::Boundary`] if the range crosses the end of a zone, and with [`Status::InvalidField`]
    /// otherwise.
    #[inline]
    pub fn range(
        &self,
        sector: Sector,
        len_sectors: u32,
        block_mask: u32,
        max: u32,
    ) -> Result<(ZoneNo, u32), Status> {
        let bits = sector.0 as u32 | len_sectors;
        if !self.contains(sector, len_sectors) || bits & block_mask != 0 || len_sectors > max {
            return Err(Status::InvalidField);
        }
        let (zone, offset) = self.zone_of(sector);
        if len_sectors > self.zone_len_sectors(zone) - offset {
            return Err(Status::Boundary);
        }
        Ok((zone, offset))
    }

    /// Returns the zone whose whole range this is: the unit of management by a device. Any other range is an
    /// [`InvalidField`](Status::InvalidField).
    ///
    /// ```
    /// # use zoneplug_core::{Sector, Status, ZoneNo, zone::Geometry};
    /// let g = Geometry::new(4, 2048, 2048).unwrap();
    /// assert_eq!(g.whole_zone(Sector(2048), 2048), Ok(ZoneNo(1)));
    /// assert_eq!(g.whole_zone(Sector(2048), 2040), Err(Status::InvalidField));
    /// assert_eq!(g.whole_zone(Sector(4 * 2048), 2048), Err(Status::InvalidField));
    /// ```
    pub fn whole_zone(&self, sector: Sector, len_sectors: u32) -> Result<ZoneNo, Status> {
        if !self.contains(sector, len_sectors) {
            return Err(Status::InvalidField);
        }
        let (zone, offset) = self.zone_of(sector);
        if offset != 0 || len_sectors != self.zone_len_sectors(zone) {
            return Err(Status::InvalidField);
        }
        Ok(zone)
    }

    /// Returns whether the range is within the disk and not empty.
    #[inline]
    pub fn contains(&self, sector: Sector, len_sectors: u32) -> bool {
        len_sectors != 0
            && u64::from(len_sectors) <= self.capacity_sectors
            && sector.0 <= self.capacity_sectors - u64::from(len_sectors)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// N1, N2. The reciprocal gives the exact quotient for every zone size and sector.
        #[test]
        fn dividing_by_any_zone_size_is_exact(d in 1u32..=u32::MAX, n in 0u64..=u64::MAX, near in 0u64..3) {
            let g = Geometry::new(1, d, d).unwrap();
            for n in [n, n - n % u64::from(d), (n - n % u64::from(d)).wrapping_sub(near), u64::MAX - near] {
                let (z, o) = g.zone_of(Sector(n));
                prop_assert_eq!(z.0, (n / u64::from(d)) as u32);
                prop_assert_eq!(u64::from(o), n % u64::from(d));
            }
        }
    }

    /// A set of zones has one form, in whatever order it was named.
    #[test]
    fn conventional_zones_are_a_set() {
        let g = |zones: &[u32]| {
            let g = Geometry::new(200, 8, 8).unwrap();
            zones.iter().fold(g, |g, z| g.with_conventional([ZoneNo(*z)]).unwrap())
        };
        for (one, other) in [
            (&[0, 1, 2][..], &[2, 1, 0][..]),
            (&[130, 0, 129], &[0, 130, 130, 129]),
            (&[1, 2, 64, 0], &[0, 1, 2, 64]),
        ] {
            assert_eq!(g(one), g(other), "{one:?}");
            for z in 0..200 {
                assert_eq!(g(one).is_conventional(ZoneNo(z)), one.contains(&z), "{z} of {one:?}");
            }
            assert_eq!(g(one).nr_conventional() as usize, one.len());
        }
        assert_ne!(g(&[0, 2]), g(&[0, 3]));
        assert_eq!(g(&[0, 1]).others, &[] as &[u64], "no set is kept for leading zones");
    }

    /// A program that opens and drops a disk again and again keeps one copy of its set of zones. In a child of a fork the
    /// list of them may stay locked: the disk opens all the same.
    #[test]
    #[allow(clippy::disallowed_methods)]
    fn a_set_of_zones_is_kept_once() {
        let set = || [7, 131, 199].map(ZoneNo);
        let first = Geometry::new(200, 8, 8).unwrap().with_conventional(set()).unwrap();
        for _ in 0..10_000 {
            let again = Geometry::new(200, 8, 8).unwrap().with_conventional(set()).unwrap();
            assert!(std::ptr::eq(first.others, again.others));
        }
        let other = Geometry::new(200, 8, 8).unwrap().with_conventional([ZoneNo(198)]).unwrap();
        assert!(!std::ptr::eq(first.others, other.others));
        let held = crate::poison::lock(&SETS);
        let (tell, told) = std::sync::mpsc::channel();
        let open = move || Geometry::new(200, 8, 8).unwrap().with_conventional(set()).unwrap();
        std::thread::spawn(move || tell.send(open()));
        let last = told.recv_timeout(std::time::Duration::from_secs(20));
        drop(held);
        assert_eq!(last.expect("it does not wait for the list"), first);
    }

    /// W18: the last zone has a length and a capacity of its own.
    #[test]
    fn the_last_zone_may_be_shorter() {
        let g = Geometry::new(3, 100, 90).unwrap().with_last_zone(40, 30).unwrap();
        assert_eq!(g.capacity(), Sector(240));
        assert_eq!((g.zone_len_sectors(ZoneNo(1)), g.capacity_of(ZoneNo(1))), (100, 90));
        assert_eq!((g.zone_len_sectors(ZoneNo(2)), g.capacity_of(ZoneNo(2))), (40, 30));
        assert!(g.contains(Sector(200), 40) && !g.contains(Sector(200), 41));
        assert!(!g.contains(Sector(u64::MAX), 1) && !g.contains(Sector(0), 0));
    }

    /// V3. An invalid layout gives an error with the reason.
    #[test]
    fn a_layout_that_is_none_says_why() {
        assert_eq!(Geometry::new(0, 8, 8), Err(GeometryError::Zones(0)));
        let more = MAX_ZONES + 1;
        assert_eq!(Geometry::new(more, 8, 8), Err(GeometryError::Zones(more)));
        assert_eq!(Geometry::new(1, 8, 9), Err(GeometryError::Capacity(9)));
        let g = Geometry::new(2, 8, 8).unwrap();
        assert_eq!(g.with_last_zone(9, 8), Err(GeometryError::LastZone(9)));
        let all = g.with_conventional([ZoneNo(0), ZoneNo(1)]);
        assert_eq!(all, Err(GeometryError::NoSequentialZone));
    }
}
