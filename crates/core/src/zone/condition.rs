//! The type and the condition of a zone, with the numbers that reports use.

use std::fmt;

/// The way in which a zone may be written (`BLK_ZONE_TYPE_*`).
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
    /// Partly written, open or closed. Only a cached report says so, never a device.
    Active = 0xff,
}

impl Condition {
    /// The condition with this number in a report. `None` if there is none.
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

    /// Returns whether a zone in this condition counts against the limit of open zones.
    pub const fn is_open(self) -> bool {
        matches!(self, Condition::ImpOpen | Condition::ExpOpen)
    }

    /// Returns whether a zone in this condition counts against the limit of active zones.
    pub const fn is_active(self) -> bool {
        self.is_open() || matches!(self, Condition::Closed)
    }

    /// Returns Linux's name, as in `zone_wplugs`.
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

    /// Returns the two letters that `blkzone` shows.
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
