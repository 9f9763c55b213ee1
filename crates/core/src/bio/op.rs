//! Operations and their flags.

/// What a BIO or a command asks for. Names are Linux's `REQ_OP_*`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Op {
    /// Read into the buffer. Past the write pointer: zeroes.
    Read = 0,
    /// Write the buffer at `sector`, which must be the write pointer of a sequential zone.
    Write = 1,
    /// Make durable what was acknowledged. Moves no data and names no sector.
    Flush = 2,
    /// Forget the data of a range of a conventional zone.
    Discard = 3,
    /// Write zeroes at `sector`, ordered as a write is.
    WriteZeroes = 4,
    /// Open zones explicitly.
    ZoneOpen = 5,
    /// Close open zones.
    ZoneClose = 6,
    /// Make zones full.
    ZoneFinish = 7,
    /// Write at the write pointer of the zone that starts at `sector`; the completion says where.
    ZoneAppend = 8,
    /// Empty the zones of a range.
    ZoneReset = 9,
    /// Empty every sequential zone.
    ZoneResetAll = 10,
    /// Describe the zones from the one that holds `sector`, as many as the buffer has room for.
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

    /// Whether it changes zones rather than data. Reset-all is one.
    pub const fn is_zone_management(self) -> bool {
        matches!(
            self,
            Op::ZoneOpen | Op::ZoneClose | Op::ZoneFinish | Op::ZoneReset | Op::ZoneResetAll
        )
    }

    /// Whether it needs permission to write: all zone management does.
    pub const fn is_write(self) -> bool {
        !matches!(self, Op::Read | Op::Flush | Op::ReportZones)
    }

    /// Whether it carries data in a buffer.
    pub const fn has_data(self) -> bool {
        matches!(self, Op::Read | Op::Write | Op::ZoneAppend)
    }

    /// The name that tools show.
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
    /// None.
    pub const NONE: Flags = Flags(0);
    /// Durable when completed (force unit access).
    pub const FUA: Flags = Flags(1);
    /// Everything acknowledged before is durable first.
    pub const PREFLUSH: Flags = Flags(2);
    /// Rather fail with [`Status::WouldBlock`](crate::Status::WouldBlock) than wait. Only ever before a write
    /// pointer was reserved.
    pub const NOWAIT: Flags = Flags(4);
    /// Do not merge this BIO with others.
    pub const NOMERGE: Flags = Flags(8);

    /// On a report: correct the write pointers of idle zones too, after something else than this disk has changed
    /// them. The status is *zone busy* if a zone of the range had writes in flight.
    pub const RESYNC: Flags = Flags(16);

    /// Ahead of the others, where a scheduler is on. Writes to one zone stay in order whatever their class.
    pub const RT: Flags = Flags(32);
    /// When the others have nothing to send, where a scheduler is on.
    pub const IDLE: Flags = Flags(64);

    /// The flags that reach a device.
    pub(crate) const DEVICE: u8 = Self::FUA.0 | Self::PREFLUSH.0;

    /// Whether all bits of `other` are set.
    pub const fn contains(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }

    /// Both sets.
    #[must_use]
    pub const fn with(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }
}
