//! The offsets of fio's fields, by fio release.
//!
//! fio has no stable binary interface: an external engine is meant to be built against the headers of the fio that it
//! will run in. This module has the numbers instead (offsets, sizes and flag values, measured once per release on
//! LP64 Linux), so that one library serves every release listed in [`TABLE`]. [`lookup`] chooses the row by fio's own
//! version string and refuses every unknown version: a wrong offset would corrupt fio's memory.
//!
//! Only `ioengine_ops`, `io_u`, `fio_file` and `zbd_zone` are listed. fio's `thread_data` is left out on purpose: it
//! changes in nearly every release and the engine does not need it (`td` serves as an opaque key only).
//!
//! In addition to the table, the `check_*` functions compare the values that fio has filled in with those that it
//! must have at that moment. If they differ, the engine refuses to run.

use core::ffi::c_int;

mod access;
mod check;
mod probe;
mod table;
#[cfg(test)]
mod tests;

pub use access::{File, IoU};
pub(in crate::fio) use check::unlikely;
pub use check::{check_new_file, check_new_io_u, check_opened_file, check_transfer};
pub use table::{TABLE, lookup};

#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
compile_error!("the fio engine knows fio's structures on 64-bit Linux only");

/// A byte offset into one of fio's structures.
pub type Off = u16;

/// Offsets into `struct ioengine_ops`; `None` if the release lacks the field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are named as in fio")]
pub struct OpsAbi {
    pub size: Off,
    pub name: Off,
    pub version: Off,
    pub flags: Off,
    pub dlhandle: Off,
    pub setup: Off,
    pub init: Off,
    pub post_init: Off,
    pub prep: Off,
    pub queue: Off,
    pub commit: Off,
    pub getevents: Off,
    pub event: Off,
    pub errdetails: Off,
    pub cancel: Option<Off>,
    pub cleanup: Off,
    pub open_file: Off,
    pub close_file: Off,
    pub invalidate: Off,
    pub unlink_file: Off,
    pub get_file_size: Off,
    pub prepopulate_file: Off,
    pub terminate: Off,
    pub iomem_alloc: Off,
    pub iomem_free: Off,
    pub io_u_init: Off,
    pub io_u_free: Off,
    pub get_zoned_model: Off,
    pub report_zones: Off,
    pub reset_wp: Off,
    pub move_zone_wp: Option<Off>,
    pub get_max_open_zones: Off,
    pub get_max_active_zones: Option<Off>,
    pub finish_zone: Option<Off>,
    pub option_struct_size: Off,
    pub options: Off,
}

/// Offsets into `struct io_u`. The tail of that structure depends on how fio
/// was configured, so neither its size nor anything past `verify_list` is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are named as in fio")]
pub struct IoUAbi {
    pub issue_time: Off,
    pub file: Off,
    pub flags: Off,
    pub ddir: Off,
    pub buflen: Off,
    pub offset: Off,
    pub buf: Off,
    pub xfer_buf: Off,
    pub xfer_buflen: Off,
    pub resid: Off,
    pub error: Off,
    pub index: Off,
    pub verify_list: Off,
}

/// Offsets into `struct fio_file`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are named as in fio")]
pub struct FileAbi {
    pub filetype: Off,
    pub fd: Off,
    pub shadow_fd: Off,
    pub fileno: Off,
    pub file_name: Off,
    pub real_file_size: Off,
    pub zbd_info: Off,
    pub references: Off,
    pub flags: Off,
    pub size: Off,
}

/// Everything that differs between fio releases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Abi {
    /// fio's `FIO_IOOPS_VERSION`, which must match exactly.
    pub ioops_version: c_int,
    /// The callbacks.
    pub ops: OpsAbi,
    /// A request.
    pub io_u: IoUAbi,
    /// A file of a job.
    pub file: FileAbi,
    /// Value of the engine flag that forbids offloaded submission.
    pub flag_no_offload: c_int,
    /// Value of the engine flag for an engine that sets the time of submission itself.
    pub flag_sets_issue_time: c_int,
    /// The `syncfs` direction, if the release has it.
    pub ddir_syncfs: Option<c_int>,
}

/// A fio release, `(3, 33)` for 3.33.
pub type Release = (u16, u16);

pub use values::*;

/// Values equal in every listed release, named as in fio.
#[allow(missing_docs, reason = "the constants are named as in fio")]
mod values {
    use core::ffi::{c_int, c_uint};

    pub const FIO_RAWIO: c_int = 1 << 1;
    pub const FIO_DISKLESSIO: c_int = 1 << 2;
    pub const FIO_NOEXTEND: c_int = 1 << 3;
    pub const FIO_NODISKUTIL: c_int = 1 << 4;
    pub const FIO_MEMALIGN: c_int = 1 << 9;
    pub const FIO_ASYNCIO_SYNC_TRIM: c_int = 1 << 14;

    pub const FIO_Q_COMPLETED: c_int = 0;
    pub const FIO_Q_QUEUED: c_int = 1;
    pub const FIO_Q_BUSY: c_int = 2;

    pub const FIO_TYPE_FILE: c_int = 1;
    pub const FIO_TYPE_BLOCK: c_int = 2;
    pub const FIO_TYPE_DIR: c_int = 5;

    pub const FIO_FILE_OPEN: c_uint = 1;

    pub const IO_U_F_FREE: c_uint = 1;

    pub const DDIR_READ: c_int = 0;
    pub const DDIR_WRITE: c_int = 1;
    pub const DDIR_TRIM: c_int = 2;
    pub const DDIR_SYNC: c_int = 3;
    pub const DDIR_DATASYNC: c_int = 4;
    pub const DDIR_SYNC_FILE_RANGE: c_int = 5;

    pub const ZBD_HOST_MANAGED: c_int = 3;

    pub const ZBD_ZONE_TYPE_CNV: c_int = 1;
    pub const ZBD_ZONE_TYPE_SWR: c_int = 2;

    pub const ZBD_ZONE_COND_NOT_WP: c_int = 0x0;
    pub const ZBD_ZONE_COND_EMPTY: c_int = 0x1;
    pub const ZBD_ZONE_COND_IMP_OPEN: c_int = 0x2;
    pub const ZBD_ZONE_COND_EXP_OPEN: c_int = 0x3;
    pub const ZBD_ZONE_COND_CLOSED: c_int = 0x4;
    pub const ZBD_ZONE_COND_READONLY: c_int = 0xd;
    pub const ZBD_ZONE_COND_FULL: c_int = 0xe;
    pub const ZBD_ZONE_COND_OFFLINE: c_int = 0xf;

    /// fio's helper returns this when it has done a zoned trim as a zone reset.
    pub const IO_U_COMPLETED: c_int = 2;
}

/// One entry of a zone report, the same in every listed release. All values
/// are in bytes.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(missing_docs, reason = "the fields are named as in fio")]
pub struct ZbdZone {
    pub start: u64,
    pub wp: u64,
    pub len: u64,
    pub capacity: u64,
    pub zone_type: c_int,
    pub cond: c_int,
}

const _: () = {
    assert!(size_of::<ZbdZone>() == 40);
    assert!(core::mem::offset_of!(ZbdZone, cond) == 36);
};
