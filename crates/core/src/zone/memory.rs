//! The memory that zones take, written or not.

use crate::error::{Error, ErrorKind};
use crate::unit::Bytes;

/// The most bytes of memory that a zone takes while a disk is opened: its plug, its word, and its record of the first report,
/// which is given back then. About half of that stays while the disk is open.
pub const ZONE_BYTES: u64 = 96;

/// The memory that the zones of one or more disks take at most.
///
/// ```
/// use zoneplug_core::Bytes;
/// use zoneplug_core::zone::{Geometry, ZONE_BYTES};
/// let one = Geometry::new(1000, 8, 8).unwrap().memory();
/// assert_eq!(one.total(), Bytes(1000 * ZONE_BYTES));
/// // A device that keeps 8 bytes of each zone, and 20 such disks.
/// assert_eq!(one.and_each(8).of_disks(20).total(), Bytes(20_000 * (ZONE_BYTES + 8)));
/// assert_eq!(one.and(one.of_disks(2)), one.of_disks(3));
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ZoneMemory {
    /// The zones of all disks.
    pub zones: u64,
    /// Bytes of each zone.
    pub each: u64,
}

impl ZoneMemory {
    /// Adds the `bytes` that a device, or a program, keeps of each zone.
    pub fn and_each(self, bytes: u64) -> ZoneMemory {
        ZoneMemory { each: self.each + bytes, ..self }
    }

    /// The memory of so many such disks.
    pub fn of_disks(self, disks: u32) -> ZoneMemory {
        ZoneMemory { zones: self.zones * u64::from(disks), ..self }
    }

    /// Adds the zones of other disks. Each zone of both then counts as much as the dearer ones.
    pub fn and(self, other: ZoneMemory) -> ZoneMemory {
        let each = self.each.max(other.each);
        ZoneMemory { zones: self.zones.saturating_add(other.zones), each }
    }

    /// Returns the bytes of all zones.
    pub fn total(self) -> Bytes {
        Bytes(self.zones.saturating_mul(self.each))
    }

    /// Returns the error of disks whose zones take more memory than there is. `available`: how much there is, if that
    /// is known.
    pub fn too_much(self, available: Option<Bytes>) -> Error {
        // In whole MiB, for people.
        let whole = |bytes: u64| Bytes(bytes >> 20 << 20);
        let there = available.map(|n| format!(", and {} are available", whole(n.0)));
        let what = format!(
            "{} zones take {} of memory, {} bytes each{}",
            self.zones,
            whole(self.total().0.saturating_add((1 << 20) - 1)),
            self.each,
            there.unwrap_or_default()
        );
        Error::new(ErrorKind::NotSupported, what).hint("fewer zones, or more memory")
    }
}
