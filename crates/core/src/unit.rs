//! Units. A plain integer in hot code has its unit in its name (`len_sectors`). Everything else has one of these
//! types, and a conversion is a named method.

use std::fmt;
use std::ops::Add;

/// Bytes in a [`Sector`].
pub const SECTOR_SIZE: u32 = 512;
/// log2 of [`SECTOR_SIZE`].
pub const SECTOR_SHIFT: u32 = 9;

/// An address on a disk, or a count, in units of 512 bytes. The unit does not depend on the disk's block size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(transparent)]
pub struct Sector(pub u64);

impl Sector {
    /// Returns the bytes.
    pub const fn to_bytes(self) -> Bytes {
        Bytes(self.0 << SECTOR_SHIFT)
    }

    /// Returns the address that is `sectors` higher.
    #[must_use]
    pub const fn plus(self, sectors: u64) -> Sector {
        Sector(self.0 + sectors)
    }

    /// Returns the device block, of `block` bytes, rounded down.
    pub const fn to_lba(self, block: Bytes) -> Lba {
        Lba(self.0 / (block.0 >> SECTOR_SHIFT))
    }
}

/// The address that is so many sectors higher.
///
/// ```
/// use zoneplug_core::Sector;
/// assert_eq!(Sector(2048) + 8, Sector(2056));
/// ```
impl Add<u64> for Sector {
    type Output = Sector;

    fn add(self, sectors: u64) -> Sector {
        self.plus(sectors)
    }
}

impl fmt::Display for Sector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sector {}", self.0)
    }
}

/// An address in logical blocks of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(transparent)]
pub struct Lba(pub u64);

impl Lba {
    /// The first sector of the block, for blocks of `block` bytes.
    pub const fn to_sector(self, block: Bytes) -> Sector {
        Sector(self.0 * (block.0 >> SECTOR_SHIFT))
    }
}

/// A count of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(transparent)]
pub struct Bytes(pub u64);

impl Bytes {
    /// Returns the sectors, rounded down.
    pub const fn to_sectors(self) -> Sector {
        Sector(self.0 >> SECTOR_SHIFT)
    }
}

impl fmt::Display for Bytes {
    /// Shows the number in the largest unit (K, M, G, T: powers of 1024) that divides it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (shift, unit) in [(40, 'T'), (30, 'G'), (20, 'M'), (10, 'K')] {
            if self.0 != 0 && self.0.trailing_zeros() >= shift {
                return write!(f, "{}{unit}", self.0 >> shift);
            }
        }
        write!(f, "{}", self.0)
    }
}

/// The number of a zone: its start divided by the zone size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(transparent)]
pub struct ZoneNo(pub u32);

impl fmt::Display for ZoneNo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "zone {}", self.0)
    }
}

/// An offset inside a zone, in sectors. A zone is smaller than 2^32 sectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(transparent)]
pub struct ZoneOffset(pub u32);

/// A moment, or a span of time, in nanoseconds of the clock that drives the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(transparent)]
pub struct Nanos(pub u64);

impl Nanos {
    /// Returns the moment `span` later.
    #[must_use]
    pub const fn plus(self, span: Nanos) -> Nanos {
        Nanos(self.0 + span.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_shown_in_the_largest_unit_that_divides_them() {
        for (n, text) in [(0, "0"), (512, "512"), (4096, "4K"), (48 << 20, "48M"), (3 << 40, "3T")]
        {
            assert_eq!(Bytes(n).to_string(), text);
        }
        assert_eq!(Bytes((1 << 20) + 512).to_string(), "1049088");
    }

    #[test]
    fn sectors_and_blocks_convert_by_name() {
        assert_eq!(Sector(16).to_lba(Bytes(4096)), Lba(2));
        assert_eq!(Lba(2).to_sector(Bytes(4096)), Sector(16));
        assert_eq!(Bytes(8192).to_sectors().to_bytes(), Bytes(8192));
    }
}
