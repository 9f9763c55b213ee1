//! The address of a record.

use std::fmt;
use zoneplug_core::Sector;

/// The address of a record: valid until the zone of the record is reset. Addresses order as their
/// records do.
///
/// An address names the record, not only the place: if the place later holds another record,
/// reading the old address returns [`LogError::Stale`](super::LogError::Stale).
///
/// ```
/// use zoneplug::zone_log::LogAddress;
/// let bytes = [7; LogAddress::LEN];
/// assert_eq!(LogAddress::from_bytes(bytes).to_bytes(), bytes);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogAddress {
    sequence: u64,
    session: u32,
    /// Byte offset from the start of the disk.
    position: u64,
}

impl LogAddress {
    /// The length of a stored address in bytes.
    pub const LEN: usize = 20;

    pub(super) fn new(sequence: u64, session: u32, position: u64) -> LogAddress {
        LogAddress { sequence, session, position }
    }

    /// The number of the record: one more than that of the record before it.
    pub fn sequence(self) -> u64 {
        self.sequence
    }

    /// The sector in which the record begins. A record need not begin at a sector boundary.
    pub fn sector(self) -> Sector {
        Sector(self.position >> 9)
    }

    pub(super) fn session(self) -> u32 {
        self.session
    }

    pub(super) fn position(self) -> u64 {
        self.position
    }

    /// Encodes the address for storage elsewhere. The encoding does not depend on the machine.
    pub fn to_bytes(self) -> [u8; Self::LEN] {
        let mut b = [0; Self::LEN];
        b[0..8].copy_from_slice(&self.sequence.to_le_bytes());
        b[8..16].copy_from_slice(&self.position.to_le_bytes());
        b[16..20].copy_from_slice(&self.session.to_le_bytes());
        b
    }

    /// Decodes [`LogAddress::to_bytes`]. Other bytes give an address that is
    /// [`LogError::Stale`](super::LogError::Stale).
    pub fn from_bytes(b: [u8; Self::LEN]) -> LogAddress {
        let u32_at = |i: usize| u32::from_le_bytes([b[i], b[i + 1], b[i + 2], b[i + 3]]);
        let u64_at = |i: usize| u64::from(u32_at(i)) | u64::from(u32_at(i + 4)) << 32;
        LogAddress { sequence: u64_at(0), position: u64_at(8), session: u32_at(16) }
    }
}

impl fmt::Display for LogAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "record {} at {}", self.sequence, self.sector())
    }
}
