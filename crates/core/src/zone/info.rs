//! One zone as a report describes it.

use super::condition::{Condition, ZoneType};
use super::geometry::Geometry;
use super::machine::ZoneState;
use crate::unit::{Sector, ZoneNo};
use zoneplug_buf::AlignedBuf;

/// Bytes of one zone in a report (`struct blk_zone`).
pub const ZONE_RECORD_LEN: usize = 64;

/// One zone of a report. All numbers are in sectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ZoneInfo {
    /// First sector.
    pub start: Sector,
    /// Distance to the next zone, in sectors.
    pub len_sectors: u64,
    /// Sectors that can be written, from `start`.
    pub capacity_sectors: u64,
    /// The next sector to write. For a full zone: `start + len`. For a conventional, read-only or offline zone:
    /// `u64::MAX`.
    pub wp: Sector,
    /// Type.
    pub zone_type: ZoneType,
    /// Condition.
    pub cond: Condition,
}

impl ZoneInfo {
    /// Returns the report of a zone in this state.
    pub fn of(g: &Geometry, zone: ZoneNo, state: ZoneState) -> ZoneInfo {
        let start = g.zone_start(zone);
        let len = u64::from(g.zone_len_sectors(zone));
        ZoneInfo {
            start,
            len_sectors: len,
            capacity_sectors: u64::from(g.capacity_of(zone)),
            wp: match state.cond {
                Condition::NotWp | Condition::ReadOnly | Condition::Offline => Sector(u64::MAX),
                Condition::Full => start.plus(len),
                _ => start.plus(u64::from(state.wp)),
            },
            zone_type: g.zone_type(zone),
            cond: state.cond,
        }
    }

    /// Describes the same zone at another place, as a layer shows it. The write pointer of a full zone becomes the
    /// end of the new place.
    pub fn move_to(&mut self, start: Sector, len_sectors: u64) {
        self.wp = match self.wp {
            Sector(u64::MAX) => self.wp,
            _ if self.cond == Condition::Full => start.plus(len_sectors),
            // The sums may wrap around: a wrong write pointer before the zone must not become one inside of it.
            wp => Sector(start.0.wrapping_add(wp.0.wrapping_sub(self.start.0))),
        };
        (self.start, self.len_sectors) = (start, len_sectors);
    }

    /// The 64-byte record of Linux's `struct blk_zone`, little endian.
    ///
    /// ```
    /// use zoneplug_core::zone::{Condition, ZoneInfo, ZoneType};
    /// use zoneplug_core::Sector;
    /// let z = ZoneInfo {
    ///     start: Sector(64), len_sectors: 64, capacity_sectors: 48, wp: Sector(72),
    ///     zone_type: ZoneType::SeqWriteRequired, cond: Condition::ImpOpen,
    /// };
    /// assert_eq!(ZoneInfo::decode(&z.encode()), Some(z));
    /// ```
    pub fn encode(&self) -> [u8; ZONE_RECORD_LEN] {
        let mut r = [0u8; ZONE_RECORD_LEN];
        r[0..8].copy_from_slice(&self.start.0.to_le_bytes());
        r[8..16].copy_from_slice(&self.len_sectors.to_le_bytes());
        r[16..24].copy_from_slice(&self.wp.0.to_le_bytes());
        r[24] = self.zone_type as u8;
        r[25] = self.cond as u8;
        r[32..40].copy_from_slice(&self.capacity_sectors.to_le_bytes());
        r
    }

    /// Reads a record that [`ZoneInfo::encode`] has written. `None` if the type or condition is unknown.
    pub fn decode(r: &[u8; ZONE_RECORD_LEN]) -> Option<ZoneInfo> {
        let u64_at = |i: usize| {
            let mut b = [0u8; 8];
            b.copy_from_slice(&r[i..i + 8]);
            u64::from_le_bytes(b)
        };
        let zone_type = match r[24] {
            1 => ZoneType::Conventional,
            2 => ZoneType::SeqWriteRequired,
            _ => return None,
        };
        Some(ZoneInfo {
            start: Sector(u64_at(0)),
            len_sectors: u64_at(8),
            wp: Sector(u64_at(16)),
            capacity_sectors: u64_at(32),
            zone_type,
            cond: Condition::from_u8(r[25])?,
        })
    }

    /// Reads the record at `offset` of a report's buffer. `None` if the type or condition is unknown.
    ///
    /// # Panics
    ///
    /// If the record is not within the buffer.
    ///
    /// ```
    /// # use zoneplug_core::zone::{Condition, ZoneInfo, ZoneType};
    /// # use zoneplug_core::Sector;
    /// # let z = ZoneInfo {
    /// #     start: Sector(64), len_sectors: 64, capacity_sectors: 48, wp: Sector(72),
    /// #     zone_type: ZoneType::SeqWriteRequired, cond: Condition::ImpOpen,
    /// # };
    /// let mut report = zoneplug_buf::AlignedBuf::zeroed(128);
    /// report.write(64, &z.encode());
    /// assert_eq!((ZoneInfo::decode_at(&report, 0), ZoneInfo::decode_at(&report, 64)), (None, Some(z)));
    /// ```
    pub fn decode_at(report: &AlignedBuf, offset: u32) -> Option<ZoneInfo> {
        let mut record = [0; ZONE_RECORD_LEN];
        report.read(offset, &mut record);
        ZoneInfo::decode(&record)
    }
}
