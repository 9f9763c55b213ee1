//! Operations and their flags.

/// The operation of a BIO or a command. Names are those of Linux's `REQ_OP_*`, where
/// `ReportZones` is none; the numbers are this crate's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Op {
    /// Read into the buffer. Data past the write pointer read as zeroes.
    Read = 0,
    /// Write the buffer at `sector`. In a sequential zone that must be the write pointer.
    Write = 1,
    /// Make everything that was acknowledged durable. Moves no data and names no sector.
    Flush = 2,
    /// Forget the data of a range of a conventional zone.
    Discard = 3,
    /// Write zeroes at `sector`, in order like a write.
    WriteZeroes = 4,
    /// Open zones explicitly.
    ZoneOpen = 5,
    /// Close open zones.
    ZoneClose = 6,
    /// Make zones full.
    ZoneFinish = 7,
    /// Write at the write pointer of the zone that starts at `sector`. The completion says where the data landed.
    ZoneAppend = 8,
    /// Empty the zones of a range.
    ZoneReset = 9,
    /// Empty every sequential zone.
    ZoneResetAll = 10,
    /// Describe the zones from the one that contains `sector` on, as many as the buffer has room for.
    ReportZones = 11,
}

impl Op {
    /// Every operation, in the order of its number.
    pub const ALL: [Op; 12] = [
        Op::Read,
        Op::Write,
        Op::Flush,
        Op::Discard,
        Op::WriteZeroes,
        Op::ZoneOpen,
        Op::ZoneClose,
        Op::ZoneFinish,
        Op::ZoneAppend,
        Op::ZoneReset,
        Op::ZoneResetAll,
        Op::ReportZones,
    ];

    /// Returns whether the operation changes zones rather than data. A reset of all zones is one.
    pub const fn is_zone_management(self) -> bool {
        matches!(
            self,
            Op::ZoneOpen | Op::ZoneClose | Op::ZoneFinish | Op::ZoneReset | Op::ZoneResetAll
        )
    }

    /// Returns whether the operation needs permission to write. All zone management does.
    pub const fn is_write(self) -> bool {
        !matches!(self, Op::Read | Op::Flush | Op::ReportZones)
    }

    /// Returns whether the operation carries data in a buffer.
    pub const fn has_data(self) -> bool {
        matches!(self, Op::Read | Op::Write | Op::ZoneAppend)
    }

    /// Returns the name that tools show.
    pub const fn name(self) -> &'static str {
        match self {
            Op::Read => "read",
            Op::Write => "write",
            Op::Flush => "flush",
            Op::Discard => "discard",
            Op::WriteZeroes => "write_zeroes",
            Op::ZoneOpen => "zone_open",
            Op::ZoneClose => "zone_close",
            Op::ZoneFinish => "zone_finish",
            Op::ZoneAppend => "zone_append",
            Op::ZoneReset => "zone_reset",
            Op::ZoneResetAll => "zone_reset_all",
            Op::ReportZones => "report_zones",
        }
    }
}

/// Flags of a BIO or a command: bits of one byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
#[repr(transparent)]
pub struct Flags(pub u8);

impl Flags {
    /// No flags.
    pub const NONE: Flags = Flags(0);
    /// The data is durable when the BIO completes (force unit access).
    pub const FUA: Flags = Flags(1);
    /// Everything that was acknowledged before is made durable first.
    pub const PREFLUSH: Flags = Flags(2);
    /// Fail with [`Status::WouldBlock`](crate::Status::WouldBlock) rather than wait. A BIO never fails so after its
    /// write pointer was reserved.
    pub const NOWAIT: Flags = Flags(4);
    /// Do not merge this BIO with others.
    pub const NOMERGE: Flags = Flags(8);

    /// For a report: also correct the write pointers of idle zones, because something other than this disk has
    /// changed them. The status is *zone busy* if a zone of the range had writes in flight.
    pub const RESYNC: Flags = Flags(16);

    /// Priority, with a scheduler: served before the others. Writes to one zone stay in order in any class.
    pub const RT: Flags = Flags(32);
    /// Priority, with a scheduler: served when the others have nothing to send.
    pub const IDLE: Flags = Flags(64);

    /// The flags that reach a device.
    pub(crate) const DEVICE: u8 = Self::FUA.0 | Self::PREFLUSH.0;

    /// Returns whether all bits of `other` are set.
    pub const fn contains(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }

    /// The flags without those of `other`.
    #[must_use]
    pub const fn without(self, other: Flags) -> Flags {
        Flags(self.0 & !other.0)
    }

    /// The flags of both.
    #[must_use]
    pub const fn with(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }
}
