//! The results of BIOs and commands: one byte, one table.

use std::fmt;

/// The result of a BIO or a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
#[repr(u8)]
#[non_exhaustive]
pub enum Status {
    /// Success.
    #[default]
    Ok = 0,

    // ---- the layer's own answers, given before a device saw the BIO: nothing changed ----
    /// The write does not start at the zone's write pointer.
    NotAtWritePointer,
    /// The write or append does not fit below the zone's capacity.
    PastCapacity,
    /// The zone is full.
    ZoneFull,
    /// The zone is read-only.
    ZoneReadOnly,
    /// The zone is offline.
    ZoneOffline,
    /// An earlier error left the write pointer unknown: report, reset or finish the zone first.
    StaleWritePointer,
    /// The range is empty, or not within the disk.
    OutOfRange,
    /// The address or length is not a multiple of the block size, or of the write granularity.
    Unaligned,
    /// The buffer is shorter or longer than the BIO says.
    BadBuffer,
    /// The operation does not apply to a conventional zone.
    ConventionalZone,
    /// The sector of an append or a management command is not the start of a zone.
    NotZoneStart,
    /// The append is longer than `zone_append_max_bytes`.
    AppendTooLarge,
    /// The zone is busy: strict management found writes of it, a write came during strict management, or a resync
    /// found writes in flight.
    ZoneBusy,
    /// A BIO with `NOWAIT` would have had to wait.
    WouldBlock,
    /// The disk was opened for reading only.
    ReadOnlyDisk,
    /// The operation is not supported.
    NotSupported,

    // ---- because of another BIO ----
    /// An earlier write of the zone failed, so this one was not sent.
    AbortedBehind,
    /// The zone was reset or finished while this write waited, so it was not sent.
    AbortedByManagement,
    /// The queue or the disk was closed before this BIO was sent.
    Aborted,

    // ---- a device's answers ----
    /// Too many open zones.
    OpenLimit,
    /// Too many active zones.
    ActiveLimit,
    /// The command crosses the end of a zone.
    Boundary,
    /// The device refused a field of the command.
    InvalidField,
    /// The zone's condition does not allow the operation.
    InvalidTransition,
    /// The device refused the write because it does not start at the zone's write pointer.
    UnalignedWrite,
    /// The device cannot take the command now; the same command may be tried again.
    Busy,
    /// An error of the device or the transport.
    Io,
    /// The medium failed.
    Medium,
    /// Only a part of the data moved.
    ShortTransfer,
    /// The device has run out of space to store data.
    NoSpace,
    /// The command did not complete in time; its outcome is unknown.
    Timeout,
    /// The device is gone, or its queue has panicked.
    NoDevice,
}

/// The effect of a completed write on the write pointer of its zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WritePointer {
    /// The write pointer is where the reservation put it.
    Advanced,
    /// Provably no data was written: the reservation is undone, and the write pointer stays known.
    Kept,
    /// The write pointer may be anywhere: only a report tells (E8).
    Unknown,
}

/// SCSI sense.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sense {
    /// The sense key.
    pub key: u8,
    /// The additional sense code.
    pub code: u8,
    /// The qualifier of the additional sense code.
    pub qualifier: u8,
}

/// One row of the table: the name of a status, and its codes elsewhere.
struct Row {
    status: Status,
    name: &'static str,
    errno: i32,
    /// Status code type << 8 | status code.
    nvme: u16,
    sense: Sense,
    wp: WritePointer,
}

const fn row(
    status: Status,
    name: &'static str,
    errno: i32,
    nvme: u16,
    sense: Sense,
    wp: WritePointer,
) -> Row {
    Row { status, name, errno, nvme, sense, wp }
}

const fn sense(key: u8, code: u8, qualifier: u8) -> Sense {
    Sense { key, code, qualifier }
}

/// ABORTED COMMAND, without an additional code.
const ABORTED: Sense = sense(0xb, 0, 0);

// Linux's numbers (asm-generic/errno*.h), written out because core has no libc.
const EIO: i32 = 5;
const EAGAIN: i32 = 11;
const EBUSY: i32 = 16;
const ENODEV: i32 = 19;
const EINVAL: i32 = 22;
const ENOSPC: i32 = 28;
const EROFS: i32 = 30;
const EOVERFLOW: i32 = 75;
const EOPNOTSUPP: i32 = 95;
const ETOOMANYREFS: i32 = 109;
const ETIMEDOUT: i32 = 110;
const ECANCELED: i32 = 125;

use Status as S;
use WritePointer::{Advanced, Kept, Unknown};

/// The only table of statuses. NVMe codes are those of the NVM Command Set and ZNS Command Set specifications, sense
/// codes those of ZBC and SPC.
const TABLE: [Row; Status::NUMBER] = [
    row(S::Ok, "ok", 0, 0x000, sense(0, 0, 0), Advanced),
    row(S::NotAtWritePointer, "not at the write pointer", EIO, 0x1bc, sense(5, 0x21, 4), Kept),
    row(S::PastCapacity, "past the zone capacity", EIO, 0x1b8, sense(5, 0x21, 5), Kept),
    // A device that answers this disagrees with the layer's write pointer.
    row(S::ZoneFull, "zone full", EIO, 0x1b9, sense(5, 0x24, 0), Unknown),
    row(S::ZoneReadOnly, "zone read-only", EIO, 0x1ba, sense(7, 0x27, 7), Kept),
    row(S::ZoneOffline, "zone offline", EIO, 0x1bb, sense(5, 0x2c, 0x0e), Kept),
    row(S::StaleWritePointer, "stale write pointer", EIO, 0x1bc, sense(5, 0x21, 4), Kept),
    row(S::OutOfRange, "out of range", EINVAL, 0x080, sense(5, 0x21, 0), Kept),
    row(S::Unaligned, "unaligned", EINVAL, 0x002, sense(5, 0x24, 0), Kept),
    row(S::BadBuffer, "buffer does not match the length", EINVAL, 0x002, sense(5, 0x24, 0), Kept),
    row(S::ConventionalZone, "conventional zone", EIO, 0x002, sense(5, 0x24, 0), Kept),
    row(S::NotZoneStart, "not a zone start", EINVAL, 0x002, sense(5, 0x24, 0), Kept),
    row(S::AppendTooLarge, "append too large", EINVAL, 0x002, sense(5, 0x24, 0), Kept),
    row(S::ZoneBusy, "zone busy", EBUSY, 0x1bf, sense(2, 4, 7), Kept),
    row(S::WouldBlock, "would block", EAGAIN, 0x082, sense(2, 4, 7), Kept),
    row(S::ReadOnlyDisk, "disk opened read-only", EROFS, 0x182, sense(7, 0x27, 0), Kept),
    row(S::NotSupported, "not supported", EOPNOTSUPP, 0x001, sense(5, 0x20, 0), Kept),
    row(S::AbortedBehind, "aborted behind a failed write", ECANCELED, 0x007, ABORTED, Kept),
    row(S::AbortedByManagement, "aborted by zone management", ECANCELED, 0x007, ABORTED, Kept),
    row(S::Aborted, "aborted", ECANCELED, 0x007, ABORTED, Unknown),
    row(S::OpenLimit, "too many open zones", ETOOMANYREFS, 0x1be, sense(7, 0x55, 0x0e), Kept),
    row(S::ActiveLimit, "too many active zones", EOVERFLOW, 0x1bd, sense(7, 0x55, 0x0e), Kept),
    row(S::Boundary, "zone boundary", EIO, 0x1b8, sense(5, 0x21, 5), Kept),
    row(S::InvalidField, "invalid field", EINVAL, 0x002, sense(5, 0x24, 0), Kept),
    row(S::InvalidTransition, "invalid zone state transition", EIO, 0x1bf, sense(5, 0x24, 0), Kept),
    row(S::UnalignedWrite, "device refused the write", EIO, 0x1bc, sense(5, 0x21, 4), Unknown),
    row(S::Busy, "device busy", EAGAIN, 0x082, sense(2, 4, 7), Kept),
    row(S::Io, "I/O error", EIO, 0x006, sense(4, 0x44, 0), Unknown),
    row(S::Medium, "medium error", EIO, 0x280, sense(3, 0x0c, 0), Unknown),
    row(S::ShortTransfer, "short transfer", EIO, 0x004, sense(0xb, 0x4b, 0), Unknown),
    row(S::NoSpace, "no space left", ENOSPC, 0x081, sense(4, 0x44, 0), Unknown),
    row(S::Timeout, "timeout", ETIMEDOUT, 0x007, sense(0xb, 0x2e, 1), Unknown),
    row(S::NoDevice, "no device", ENODEV, 0x370, sense(2, 4, 0), Unknown),
];

impl Status {
    /// The number of statuses.
    pub(crate) const NUMBER: usize = Status::NoDevice as usize + 1;

    /// Returns every status, in the order of its number.
    pub fn all() -> impl Iterator<Item = Status> {
        TABLE.iter().map(|r| r.status)
    }

    const fn row(self) -> &'static Row {
        &TABLE[self as usize]
    }

    /// Returns whether the status is [`Status::Ok`].
    pub const fn is_ok(self) -> bool {
        matches!(self, Status::Ok)
    }

    /// Returns a few words for people.
    pub const fn name(self) -> &'static str {
        self.row().name
    }

    /// Returns the positive Linux `errno`, 0 for success.
    pub const fn errno(self) -> i32 {
        self.row().errno
    }

    /// Returns the NVMe status: status code type in the high byte, status code in the low one.
    pub const fn nvme(self) -> u16 {
        self.row().nvme
    }

    /// The status for an NVMe device's answer: status code type in the second byte, status code in the first. The
    /// bits above these (*more*, *do not retry*) are ignored. A code that is not in the table becomes
    /// [`Status::Medium`], [`Status::NoDevice`] or [`Status::Io`], by its type.
    ///
    /// ```
    /// use zoneplug_core::Status;
    /// assert_eq!(Status::from_nvme(0x41bc), Status::UnalignedWrite); // zone invalid write, do not retry
    /// assert_eq!(Status::from_nvme(0x1be), Status::OpenLimit);
    /// ```
    pub fn from_nvme(code: u16) -> Status {
        let code = code & 0x7ff;
        // The second half of the table has the answers of devices. The first half has statuses of the layer, with
        // some of the same codes.
        let known = |r: &&Row| r.nvme == code;
        if let Some(row) = TABLE[S::OpenLimit as usize..].iter().find(known) {
            return row.status;
        }
        match code {
            // Codes without a row of their own (NVM Express Base Specification, Status Code).
            0x00b => S::NoDevice,
            0x020 => S::ReadOnlyDisk,
            // Command interrupted: may be sent again.
            0x021 => S::Busy,
            _ => match (TABLE.iter().find(known), code >> 8) {
                (Some(row), _) => row.status,
                (None, 2) => S::Medium,
                (None, 3) => S::NoDevice,
                (None, _) => S::Io,
            },
        }
    }

    /// Returns the SCSI sense.
    pub const fn sense(self) -> Sense {
        self.row().sense
    }

    /// Returns whether a write that a device has answered with this status may succeed if it is sent again. The
    /// caller first makes sure that no part of it was written. Excludes failures caused by a limit, the medium or the
    /// command, and failures with an unknown outcome.
    pub const fn is_retryable(self) -> bool {
        matches!(self, Status::Busy | Status::Io | Status::ShortTransfer | Status::UnalignedWrite)
    }

    /// Returns what this status, as a *device's* answer to a write, proves about the zone's write pointer.
    pub const fn write_pointer(self) -> WritePointer {
        self.row().wp
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_the_order_of_the_statuses() {
        for (i, s) in Status::all().enumerate() {
            assert_eq!(s as usize, i, "{s:?}");
            assert_eq!(s.row().status, s);
            assert_eq!(s.errno() == 0, s.is_ok());
            assert_eq!(s.nvme() == 0, s.is_ok());
        }
        assert_eq!(Status::all().count(), Status::NoDevice as usize + 1);
    }

    /// O3, E1. A limit proves that nothing was written; an error, or a device that disagrees with the layer, does
    /// not.
    #[test]
    fn limits_keep_the_write_pointer_and_errors_do_not() {
        for s in [S::OpenLimit, S::ActiveLimit, S::Boundary, S::InvalidField, S::ZoneReadOnly] {
            assert_eq!(s.write_pointer(), Kept, "{s:?}");
        }
        for s in [S::Io, S::Medium, S::Timeout, S::ShortTransfer, S::UnalignedWrite, S::NoDevice] {
            assert_eq!(s.write_pointer(), Unknown, "{s:?}");
        }
        assert_eq!(S::OpenLimit.errno(), 109);
        assert_eq!(S::ActiveLimit.errno(), 75);
    }

    /// A device's answer never becomes a status of the layer, and an unknown code is an error (Y6).
    #[test]
    fn nvme_statuses_by_name() {
        assert_eq!(Status::from_nvme(0), S::Ok);
        for s in Status::all().skip(S::OpenLimit as usize) {
            let back = Status::from_nvme(s.nvme());
            assert_eq!(back.nvme(), s.nvme(), "{s:?}");
            assert!(back >= S::OpenLimit, "{s:?}");
        }
        let named = [
            (0x1b8, S::Boundary),
            (0x1b9, S::ZoneFull),
            (0x1ba, S::ZoneReadOnly),
            (0x1bb, S::ZoneOffline),
            (0x1bc, S::UnalignedWrite),
            (0x1bd, S::ActiveLimit),
            (0x1be, S::OpenLimit),
            (0x1bf, S::InvalidTransition),
            (0x002, S::InvalidField),
            (0x080, S::OutOfRange),
            (0x281, S::Medium),
            (0x371, S::NoDevice),
            (0x1ff, S::Io),
        ];
        for (code, status) in named {
            assert_eq!(Status::from_nvme(code), status, "{code:#x}");
            assert_eq!(Status::from_nvme(code | 0x6000), status, "{code:#x}, do not retry");
        }
        assert!(Status::all().all(|s| Status::from_nvme(s.nvme()).is_ok() == s.is_ok()));
    }
}
