//! Where a record is.

use std::fmt;
use zoneplug_core::Sector;

/// The address of a record: valid until the zone that holds it is reset. Addresses order as their records do.
///
/// It names the record, not only the place: when the place holds another record later, reading the old address is
/// [`LogError::Stale`](super::LogError::Stale).
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
    /// In bytes from the start of the disk.
    position: u64,
}

impl LogAddress {
    /// Bytes of an address that is stored elsewhere.
    pub const LEN: usize = 20;

    pub(super) fn new(sequence: u64, session: u32, position: u64) -> LogAddress {
        LogAddress { sequence, session, position }
    }

    /// The number of the record: each has that of the record before it plus 1.
    pub fn sequence(self) -> u64 {
        self.sequence
    }

    /// The sector in which the record begins. A record need not begin where a sector does.
    pub fn sector(self) -> Sector {
        Sector(self.position >> 9)
    }

    pub(super) fn session(self) -> u32 {
        self.session
    }

    pub(super) fn position(self) -> u64 {
        self.position
    }

    /// The address as bytes, to be stored elsewhere. The form does not depend on the machine.
    pub fn to_bytes(self) -> [u8; Self::LEN] {
        let mut b = [0; Self::LEN];
        b[0..8].copy_from_slice(&self.sequence.to_le_bytes());
        b[8..16].copy_from_slice(&self.position.to_le_bytes());
        b[16..20].copy_from_slice(&self.session.to_le_bytes());
        b
    }

    /// The reverse of [`LogAddress::to_bytes`]. Bytes that are no address of a record give one that is
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
