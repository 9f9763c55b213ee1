//! Operations, flags, statuses and zones for C. The numbers are those of the engine; the tests compare them.

use libc::{c_char, c_void};

/// Reads into `buf`. What is past the write pointer reads as zeroes.
pub const ZP_OP_READ: u8 = 0;
/// Writes `buf` at `sector`, which is the write pointer of a sequential zone once the writes before it are done.
pub const ZP_OP_WRITE: u8 = 1;
/// Makes durable what was acknowledged. Has no data and no sector.
pub const ZP_OP_FLUSH: u8 = 2;
/// Forgets the data of `nr_sectors` of conventional zones.
pub const ZP_OP_DISCARD: u8 = 3;
/// Writes `nr_sectors` of zeroes at `sector`, in order like a write.
pub const ZP_OP_WRITE_ZEROES: u8 = 4;
/// Opens the zones of a range, which count against the limit of open zones until they are closed or full.
pub const ZP_OP_ZONE_OPEN: u8 = 5;
/// Closes the open zones of a range.
pub const ZP_OP_ZONE_CLOSE: u8 = 6;
/// Makes the zones of a range full.
pub const ZP_OP_ZONE_FINISH: u8 = 7;
/// Writes `buf` at the write pointer of the zone that starts at `sector`. The completion says where.
pub const ZP_OP_ZONE_APPEND: u8 = 8;
/// Empties the zones of a range.
pub const ZP_OP_ZONE_RESET: u8 = 9;
/// Empties every sequential zone. Has no sector.
pub const ZP_OP_ZONE_RESET_ALL: u8 = 10;
/// Describes the zones from the one that holds `sector` on, in `buf`: an array of `struct zp_zone`.
pub const ZP_OP_REPORT_ZONES: u8 = 11;

/// The data are durable when the operation completes (force unit access).
pub const ZP_FUA: u16 = 1;
/// What was acknowledged before is made durable first.
pub const ZP_PREFLUSH: u16 = 2;
/// Fails with `ZP_STATUS_WOULD_BLOCK` rather than wait.
pub const ZP_NOWAIT: u16 = 4;
/// Is not merged with others into one command.
pub const ZP_NOMERGE: u16 = 8;
/// Of a report: also corrects what the layer knows of idle zones, after something else has changed them.
pub const ZP_RESYNC: u16 = 16;
/// With a scheduler: before the others. Writes to one zone stay in order.
pub const ZP_RT: u16 = 32;
/// With a scheduler: when the others have nothing to send.
pub const ZP_IDLE: u16 = 64;

/// Success.
pub const ZP_STATUS_OK: u8 = 0;
/// The write does not start at the zone's write pointer.
pub const ZP_STATUS_NOT_AT_WRITE_POINTER: u8 = 1;
/// The write or append does not fit below the zone's capacity.
pub const ZP_STATUS_PAST_CAPACITY: u8 = 2;
/// The zone is full.
pub const ZP_STATUS_ZONE_FULL: u8 = 3;
/// The zone is read-only.
pub const ZP_STATUS_ZONE_READ_ONLY: u8 = 4;
/// The zone is offline.
pub const ZP_STATUS_ZONE_OFFLINE: u8 = 5;
/// An earlier error left the write pointer unknown: report, reset or finish the zone first.
pub const ZP_STATUS_STALE_WRITE_POINTER: u8 = 6;
/// The range is empty, or not within the disk.
pub const ZP_STATUS_OUT_OF_RANGE: u8 = 7;
/// The address or length is not a multiple of the block size, or of the write granularity.
pub const ZP_STATUS_UNALIGNED: u8 = 8;
/// The buffer is shorter or longer than the BIO says.
pub const ZP_STATUS_BAD_BUFFER: u8 = 9;
/// The operation does not apply to a conventional zone.
pub const ZP_STATUS_CONVENTIONAL_ZONE: u8 = 10;
/// The sector of an append or a management command is not the start of a zone.
pub const ZP_STATUS_NOT_ZONE_START: u8 = 11;
/// The append is longer than `zone_append_max_bytes`.
pub const ZP_STATUS_APPEND_TOO_LARGE: u8 = 12;
/// The zone is busy: strict management found writes of it, a write came during strict management, or a resync found writes in flight.
pub const ZP_STATUS_ZONE_BUSY: u8 = 13;
/// A BIO with `ZP_NOWAIT` would have had to wait.
pub const ZP_STATUS_WOULD_BLOCK: u8 = 14;
/// The disk was opened for reading only.
pub const ZP_STATUS_READ_ONLY_DISK: u8 = 15;
/// The operation is not supported.
pub const ZP_STATUS_NOT_SUPPORTED: u8 = 16;
/// An earlier write of the zone failed, so this one was not sent.
pub const ZP_STATUS_ABORTED_BEHIND: u8 = 17;
/// The zone was reset or finished while this write waited, so it was not sent.
pub const ZP_STATUS_ABORTED_BY_MANAGEMENT: u8 = 18;
/// The queue or the disk was closed before this BIO was sent.
pub const ZP_STATUS_ABORTED: u8 = 19;
/// Too many open zones.
pub const ZP_STATUS_OPEN_LIMIT: u8 = 20;
/// Too many active zones.
pub const ZP_STATUS_ACTIVE_LIMIT: u8 = 21;
/// The command crosses the end of a zone.
pub const ZP_STATUS_BOUNDARY: u8 = 22;
/// The device refused a field of the command.
pub const ZP_STATUS_INVALID_FIELD: u8 = 23;
/// The zone's condition does not allow the operation.
pub const ZP_STATUS_INVALID_TRANSITION: u8 = 24;
/// The device refused the write because it does not start at the zone's write pointer.
pub const ZP_STATUS_UNALIGNED_WRITE: u8 = 25;
/// The device cannot take the command now; the same command may be tried again.
pub const ZP_STATUS_BUSY: u8 = 26;
/// An error of the device or the transport.
pub const ZP_STATUS_IO: u8 = 27;
/// The medium failed.
pub const ZP_STATUS_MEDIUM: u8 = 28;
/// Only a part of the data moved.
pub const ZP_STATUS_SHORT_TRANSFER: u8 = 29;
/// The device has run out of space to store data.
pub const ZP_STATUS_NO_SPACE: u8 = 30;
/// The command did not complete in time; its outcome is unknown.
pub const ZP_STATUS_TIMEOUT: u8 = 31;
/// The device is gone, or its queue has panicked.
pub const ZP_STATUS_NO_DEVICE: u8 = 32;

/// Conventional: has no write pointer.
pub const ZP_COND_NOT_WP: u8 = 0;
/// Empty.
pub const ZP_COND_EMPTY: u8 = 1;
/// Open, by a write.
pub const ZP_COND_IMP_OPEN: u8 = 2;
/// Open, by an open.
pub const ZP_COND_EXP_OPEN: u8 = 3;
/// Partly written, and not open.
pub const ZP_COND_CLOSED: u8 = 4;
/// Cannot be written.
pub const ZP_COND_READ_ONLY: u8 = 13;
/// Full.
pub const ZP_COND_FULL: u8 = 14;
/// Can be neither read nor written.
pub const ZP_COND_OFFLINE: u8 = 15;
/// Open or closed: the layer's own answer without asking the device.
pub const ZP_COND_ACTIVE: u8 = 255;

/// Written anywhere, in any order.
pub const ZP_ZONE_CONVENTIONAL: u8 = 1;
/// Written at the write pointer only.
pub const ZP_ZONE_SEQ_WRITE_REQUIRED: u8 = 2;

/// A zone of a report, laid out as Linux's `struct blk_zone`. All numbers are in sectors of 512 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct zp_zone {
    /// First sector.
    pub start: u64,
    /// Distance to the next zone.
    pub len: u64,
    /// The next sector to write; `start + len` if the zone is full; all ones if it has no write pointer.
    pub wp: u64,
    /// `ZP_ZONE_*`.
    pub zone_type: u8,
    /// `ZP_COND_*`.
    pub cond: u8,
    /// Zero.
    pub reserved: [u8; 6],
    /// Sectors that can be written, from `start` on.
    pub capacity: u64,
    /// Zero.
    pub reserved2: [u8; 24],
}

/// An operation for a queue. Fields that an operation does not use are ignored, but for the reserved one.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct zp_op {
    /// Comes back in the completion.
    pub user_data: u64,
    /// First sector of 512 bytes. Of an append: the start of the zone.
    pub sector: u64,
    /// The memory of a read, write, append or report; with `iovcnt` an aligned array of `struct iovec` instead. The memory, and
    /// that array, belong to the library until the completion. A write or append only reads the memory, so several of
    /// them may share it.
    pub buf: *mut c_void,
    /// Bytes of `buf`, whole sectors; with `iovcnt` the sum of the pieces. Of a report: a multiple of
    /// `sizeof(struct zp_zone)`.
    pub len: u32,
    /// Sectors of a discard, of zeroes, or of zone management. Data operations ignore it.
    pub nr_sectors: u32,
    /// Pieces of a vectored read, write or append; 0: `buf` is the memory itself, as that of a report always is.
    pub iovcnt: u32,
    /// `ZP_OP_*`.
    pub op: u8,
    /// 0.
    pub reserved: u8,
    /// `ZP_FUA` and others.
    pub flags: u16,
}

/// The memory of this operation, which failed, is still with the device. A second completion with the same `user_data`
/// follows when it is back (`ZP_COMPLETION_MEMORY_BACK`); until then it must be neither used nor freed. This happens only
/// to disks with `timeout=`, and if a device fails to give back what it was lent.
pub const ZP_COMPLETION_MEMORY_LENT: u8 = 1;
/// This is the second completion: the memory is its owner's again.
pub const ZP_COMPLETION_MEMORY_BACK: u8 = 2;

/// The end of an operation of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct zp_completion {
    /// That of the operation.
    pub user_data: u64,
    /// First sector; of an append: where the data landed.
    pub sector: u64,
    /// 0, or a negative errno.
    pub result: i32,
    /// The number of zones that a report describes. 0 for other operations.
    pub nr_zones: u32,
    /// `ZP_STATUS_*`: finer than `result`.
    pub status: u8,
    /// `ZP_COMPLETION_*`.
    pub flags: u8,
    /// Zero.
    pub reserved: [u8; 6],
}

impl From<zoneplug_core::zone::ZoneInfo> for zp_zone {
    fn from(z: zoneplug_core::zone::ZoneInfo) -> zp_zone {
        zp_zone {
            start: z.start.0,
            len: z.len_sectors,
            wp: z.wp.0,
            zone_type: z.zone_type as u8,
            cond: z.cond as u8,
            reserved: [0; 6],
            capacity: z.capacity_sectors,
            reserved2: [0; 24],
        }
    }
}

/// All flags of an operation.
pub(crate) const ALL_FLAGS: u16 = 0x7f;

const _: () = assert!(size_of::<zp_zone>() == zoneplug_core::zone::ZONE_RECORD_LEN);

/// A few words for a status of a completion, in English. The text lives for ever. NULL: there is no such status.
#[unsafe(no_mangle)]
pub extern "C" fn zp_status_name(status: u8) -> *const c_char {
    match NAMES.get(usize::from(status)) {
        Some(name) => name.as_ptr(),
        None => std::ptr::null(),
    }
}

/// The version of the library, such as `"0.1.0"`. The text lives for ever.
#[unsafe(no_mangle)]
pub extern "C" fn zp_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

/// The names of the statuses, which the tests compare with the engine.
static NAMES: [&std::ffi::CStr; 33] = [
    c"ok",
    c"not at the write pointer",
    c"past the zone capacity",
    c"zone full",
    c"zone read-only",
    c"zone offline",
    c"stale write pointer",
    c"out of range",
    c"unaligned",
    c"buffer does not match the length",
    c"conventional zone",
    c"not a zone start",
    c"append too large",
    c"zone busy",
    c"would block",
    c"disk opened read-only",
    c"not supported",
    c"aborted behind a failed write",
    c"aborted by zone management",
    c"aborted",
    c"too many open zones",
    c"too many active zones",
    c"zone boundary",
    c"invalid field",
    c"invalid zone state transition",
    c"device refused the write",
    c"device busy",
    c"I/O error",
    c"medium error",
    c"short transfer",
    c"no space left",
    c"timeout",
    c"no device",
];

#[cfg(test)]
mod tests {
    use super::*;
    use zoneplug_core::zone::{Condition, ZoneInfo, ZoneType};
    use zoneplug_core::{Flags, Op, Sector, Status};

    #[test]
    fn the_numbers_are_those_of_the_engine() {
        let ops = [
            (ZP_OP_READ, Op::Read),
            (ZP_OP_WRITE, Op::Write),
            (ZP_OP_FLUSH, Op::Flush),
            (ZP_OP_DISCARD, Op::Discard),
            (ZP_OP_WRITE_ZEROES, Op::WriteZeroes),
            (ZP_OP_ZONE_OPEN, Op::ZoneOpen),
            (ZP_OP_ZONE_CLOSE, Op::ZoneClose),
            (ZP_OP_ZONE_FINISH, Op::ZoneFinish),
            (ZP_OP_ZONE_APPEND, Op::ZoneAppend),
            (ZP_OP_ZONE_RESET, Op::ZoneReset),
            (ZP_OP_ZONE_RESET_ALL, Op::ZoneResetAll),
            (ZP_OP_REPORT_ZONES, Op::ReportZones),
        ];
        assert!(ops.iter().all(|(n, op)| *n == *op as u8) && ops.len() == Op::ALL.len());
        let flags = [
            (ZP_FUA, Flags::FUA),
            (ZP_PREFLUSH, Flags::PREFLUSH),
            (ZP_NOWAIT, Flags::NOWAIT),
            (ZP_NOMERGE, Flags::NOMERGE),
            (ZP_RESYNC, Flags::RESYNC),
            (ZP_RT, Flags::RT),
            (ZP_IDLE, Flags::IDLE),
        ];
        assert!(flags.iter().all(|(n, flag)| *n == u16::from(flag.0)));
        assert_eq!(flags.iter().fold(0, |all, f| all | f.0), ALL_FLAGS);
        let conditions = [
            (ZP_COND_NOT_WP, Condition::NotWp),
            (ZP_COND_EMPTY, Condition::Empty),
            (ZP_COND_IMP_OPEN, Condition::ImpOpen),
            (ZP_COND_EXP_OPEN, Condition::ExpOpen),
            (ZP_COND_CLOSED, Condition::Closed),
            (ZP_COND_READ_ONLY, Condition::ReadOnly),
            (ZP_COND_FULL, Condition::Full),
            (ZP_COND_OFFLINE, Condition::Offline),
            (ZP_COND_ACTIVE, Condition::Active),
        ];
        assert!(conditions.iter().all(|(n, c)| *n == *c as u8));
        let statuses = [
            (ZP_STATUS_OK, Status::Ok),
            (ZP_STATUS_NOT_AT_WRITE_POINTER, Status::NotAtWritePointer),
            (ZP_STATUS_PAST_CAPACITY, Status::PastCapacity),
            (ZP_STATUS_ZONE_FULL, Status::ZoneFull),
            (ZP_STATUS_ZONE_READ_ONLY, Status::ZoneReadOnly),
            (ZP_STATUS_ZONE_OFFLINE, Status::ZoneOffline),
            (ZP_STATUS_STALE_WRITE_POINTER, Status::StaleWritePointer),
            (ZP_STATUS_OUT_OF_RANGE, Status::OutOfRange),
            (ZP_STATUS_UNALIGNED, Status::Unaligned),
            (ZP_STATUS_BAD_BUFFER, Status::BadBuffer),
            (ZP_STATUS_CONVENTIONAL_ZONE, Status::ConventionalZone),
            (ZP_STATUS_NOT_ZONE_START, Status::NotZoneStart),
            (ZP_STATUS_APPEND_TOO_LARGE, Status::AppendTooLarge),
            (ZP_STATUS_ZONE_BUSY, Status::ZoneBusy),
            (ZP_STATUS_WOULD_BLOCK, Status::WouldBlock),
            (ZP_STATUS_READ_ONLY_DISK, Status::ReadOnlyDisk),
            (ZP_STATUS_NOT_SUPPORTED, Status::NotSupported),
            (ZP_STATUS_ABORTED_BEHIND, Status::AbortedBehind),
            (ZP_STATUS_ABORTED_BY_MANAGEMENT, Status::AbortedByManagement),
            (ZP_STATUS_ABORTED, Status::Aborted),
            (ZP_STATUS_OPEN_LIMIT, Status::OpenLimit),
            (ZP_STATUS_ACTIVE_LIMIT, Status::ActiveLimit),
            (ZP_STATUS_BOUNDARY, Status::Boundary),
            (ZP_STATUS_INVALID_FIELD, Status::InvalidField),
            (ZP_STATUS_INVALID_TRANSITION, Status::InvalidTransition),
            (ZP_STATUS_UNALIGNED_WRITE, Status::UnalignedWrite),
            (ZP_STATUS_BUSY, Status::Busy),
            (ZP_STATUS_IO, Status::Io),
            (ZP_STATUS_MEDIUM, Status::Medium),
            (ZP_STATUS_SHORT_TRANSFER, Status::ShortTransfer),
            (ZP_STATUS_NO_SPACE, Status::NoSpace),
            (ZP_STATUS_TIMEOUT, Status::Timeout),
            (ZP_STATUS_NO_DEVICE, Status::NoDevice),
        ];
        assert!(statuses.iter().all(|(n, s)| *n == *s as u8));
        assert_eq!(statuses.len(), Status::all().count());
        let types = (ZoneType::Conventional as u8, ZoneType::SeqWriteRequired as u8);
        assert_eq!((ZP_ZONE_CONVENTIONAL, ZP_ZONE_SEQ_WRITE_REQUIRED), types);
    }

    #[test]
    fn the_names_are_those_of_the_engine() {
        let names = Status::all().map(|s| s.name().to_owned());
        assert!(NAMES.iter().map(|n| n.to_str().unwrap().to_owned()).eq(names));
    }

    #[test]
    fn a_zone_is_a_record_of_a_report() {
        let info = ZoneInfo {
            start: Sector(64),
            len_sectors: 65,
            capacity_sectors: 48,
            wp: Sector(72),
            zone_type: ZoneType::SeqWriteRequired,
            cond: Condition::ImpOpen,
        };
        // SAFETY: both are 64 bytes without padding, and every value of them is one of `zp_zone`.
        let read: zp_zone = unsafe { std::mem::transmute(info.encode()) };
        assert_eq!(read, zp_zone::from(info));
    }
}
