//! One zone as a report describes it.

use super::Geometry;
use super::machine::ZoneState;
use crate::unit::{Sector, ZoneNo};
use std::fmt;

/// Bytes of one zone in a report (`struct blk_zone`, T4).
pub const ZONE_RECORD_LEN: usize = 64;

/// How a zone may be written (`BLK_ZONE_TYPE_*`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ZoneType {
    /// Anywhere, in any order.
    Conventional = 1,
    /// At the write pointer only.
    SeqWriteRequired = 2,
}

/// The condition of a zone (`BLK_ZONE_COND_*`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Condition {
    /// A conventional zone.
    NotWp = 0x0,
    /// Nothing written.
    Empty = 0x1,
    /// Opened by a write.
    ImpOpen = 0x2,
    /// Opened by a command.
    ExpOpen = 0x3,
    /// Partly written and closed.
    Closed = 0x4,
    /// Can be read, not written.
    ReadOnly = 0xd,
    /// Full.
    Full = 0xe,
    /// Can be neither read nor written.
    Offline = 0xf,
    /// Partly written, open or closed: what a cached report says (M10). No device does (M12).
    Active = 0xff,
}

impl Condition {
    /// From the number in a report.
    pub fn from_u8(n: u8) -> Option<Condition> {
        Some(match n {
            0x0 => Condition::NotWp,
            0x1 => Condition::Empty,
            0x2 => Condition::ImpOpen,
            0x3 => Condition::ExpOpen,
            0x4 => Condition::Closed,
            0xd => Condition::ReadOnly,
            0xe => Condition::Full,
            0xf => Condition::Offline,
            0xff => Condition::Active,
            _ => return None,
        })
    }

    /// Whether it counts against the limit of open zones (O1).
    pub const fn is_open(self) -> bool {
        matches!(self, Condition::ImpOpen | Condition::ExpOpen)
    }

    /// Whether it counts against the limit of active zones (O1).
    pub const fn is_active(self) -> bool {
        self.is_open() || matches!(self, Condition::Closed)
    }

    /// Linux's name, as in `zone_wplugs`.
    pub const fn name(self) -> &'static str {
        match self {
            Condition::NotWp => "NOT_WP",
            Condition::Empty => "EMPTY",
            Condition::ImpOpen => "IMP_OPEN",
            Condition::ExpOpen => "EXP_OPEN",
            Condition::Closed => "CLOSED",
            Condition::ReadOnly => "READONLY",
            Condition::Full => "FULL",
            Condition::Offline => "OFFLINE",
            Condition::Active => "ACTIVE",
        }
    }

    /// `blkzone`'s two letters.
    pub const fn short_name(self) -> &'static str {
        match self {
            Condition::NotWp => "nw",
            Condition::Empty => "em",
            Condition::ImpOpen => "oi",
            Condition::ExpOpen => "oe",
            Condition::Closed => "cl",
            Condition::ReadOnly => "ro",
            Condition::Full => "fu",
            Condition::Offline => "ol",
            Condition::Active => "ac",
        }
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One zone of a report. Sectors throughout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ZoneInfo {
    /// First sector.
    pub start: Sector,
    /// Distance to the next zone, in sectors.
    pub len_sectors: u64,
    /// Sectors that can be written, from `start`.
    pub capacity_sectors: u64,
    /// Next sector to write. Full: `start + len` (O6). Conventional, read-only, offline: `u64::MAX`.
    pub wp: Sector,
    /// Type.
    pub zone_type: ZoneType,
    /// Condition.
    pub cond: Condition,
}

impl ZoneInfo {
    /// What a report says of a zone in this state.
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

    /// Describes the same zone at another place, as a layer on the device shows it. A full one's write pointer is at its
    /// end (O6).
    pub fn move_to(&mut self, start: Sector, len_sectors: u64) {
        self.wp = match self.wp {
            Sector(u64::MAX) => self.wp,
            _ if self.cond == Condition::Full => start.plus(len_sectors),
            wp => start.plus(wp.0 - self.start.0),
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

    /// The reverse of [`ZoneInfo::encode`]; `None` for a type or condition that is not known.
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
}
