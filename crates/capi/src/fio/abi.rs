//! Where fio keeps its fields, by fio release.
//!
//! fio has no stable binary interface: an external engine is meant to be
//! built against the headers of the one fio it will run in. This module holds
//! the numbers instead (offsets, sizes and flag values, measured once per
//! release on LP64 Linux), so that one library serves every release listed in
//! [`TABLE`]. [`lookup`] picks the row by fio's own version string and refuses
//! everything it does not know: a wrong offset would corrupt fio's memory.
//!
//! Only `ioengine_ops`, `io_u`, `fio_file` and `zbd_zone` are listed. fio's
//! `thread_data` is deliberately not: it moves in nearly every release and
//! the engine gets by without it (`td` serves as an opaque key only).
//!
//! On top of the table the `check_*` functions compare what fio has filled in
//! with what it must be at that moment, and the engine refuses to run when
//! they disagree.

use core::ffi::{c_char, c_int, c_uint, c_void};

#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
compile_error!("the fio engine knows fio's structures on 64-bit Linux only");

/// A byte offset into one of fio's structures.
pub type Off = u16;

/// Offsets into `struct ioengine_ops`; `None` where that release lacks it.
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

/// All that differs between fio releases.
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
    /// The `syncfs` direction, where it exists.
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

    /// What fio's helper answers when a zoned trim was done as a zone reset.
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

// ---- the table ------------------------------------------------------------

/// `ioengine_ops` as far as `reset_wp`, which has moved only once: by the
/// `shift` of 8 when `cancel` was dropped in 3.41.
const fn ops(
    has_cancel: bool,
    size: Off,
    move_zone_wp: Option<Off>,
    get_max_open_zones: Off,
    get_max_active_zones: Option<Off>,
    finish_zone: Option<Off>,
    options: Off,
) -> OpsAbi {
    let s = if has_cancel { 8 } else { 0 };
    OpsAbi {
        size,
        name: 16,
        version: 24,
        flags: 28,
        dlhandle: 32,
        setup: 40,
        init: 48,
        post_init: 56,
        prep: 64,
        queue: 72,
        commit: 80,
        getevents: 88,
        event: 96,
        errdetails: 104,
        cancel: if has_cancel { Some(112) } else { None },
        cleanup: 112 + s,
        open_file: 120 + s,
        close_file: 128 + s,
        invalidate: 136 + s,
        unlink_file: 144 + s,
        get_file_size: 152 + s,
        prepopulate_file: 160 + s,
        terminate: 168 + s,
        iomem_alloc: 176 + s,
        iomem_free: 184 + s,
        io_u_init: 192 + s,
        io_u_free: 200 + s,
        get_zoned_model: 208 + s,
        report_zones: 216 + s,
        reset_wp: 224 + s,
        move_zone_wp,
        get_max_open_zones,
        get_max_active_zones,
        finish_zone,
        option_struct_size: options - 8,
        options,
    }
}

/// `io_u`: everything past `ddir` moved by 8 in 3.41; `index` also in 3.36.
const fn io_u(s: Off, index: Off) -> IoUAbi {
    IoUAbi {
        file: 32,
        flags: 40,
        ddir: 44,
        buflen: 64 + s,
        offset: 72 + s,
        buf: 88 + s,
        xfer_buf: 104 + s,
        xfer_buflen: 112 + s,
        resid: 136 + s,
        error: 144 + s,
        index,
        verify_list: if s == 0 { 160 } else { 176 },
    }
}

const fn file(zbd_info: Off, references: Off) -> FileAbi {
    FileAbi {
        filetype: 16,
        fd: 20,
        shadow_fd: 24,
        fileno: 36,
        file_name: 40,
        real_file_size: 48,
        zbd_info,
        references,
        flags: references + 4,
        size: references + 16,
    }
}

const V3_33: Abi = Abi {
    ioops_version: 31,
    ops: ops(true, 264, None, 240, None, None, 256),
    io_u: io_u(0, 152),
    file: file(72, 360),
    flag_no_offload: 1 << 15,
    ddir_syncfs: None,
};

const V3_34: Abi = Abi {
    ioops_version: 32,
    ops: ops(true, 280, None, 240, None, Some(248), 272),
    file: file(80, 368),
    ..V3_33
};

const V3_36: Abi = Abi {
    ioops_version: 33,
    ops: ops(true, 288, None, 240, Some(248), Some(256), 280),
    io_u: io_u(0, 148),
    ..V3_34
};

const V3_38: Abi = Abi { ioops_version: 36, file: file(88, 376), ..V3_36 };

const V3_40: Abi = Abi {
    ioops_version: 37,
    ops: ops(true, 296, Some(240), 248, Some(256), Some(264), 288),
    ..V3_38
};

const V3_41: Abi = Abi {
    ioops_version: 39,
    ops: ops(false, 288, Some(232), 240, Some(248), Some(256), 280),
    io_u: io_u(8, 160),
    file: file(88, 368),
    ..V3_40
};

const V3_42: Abi = Abi { flag_no_offload: 1 << 16, ddir_syncfs: Some(6), ..V3_41 };

/// First and last release a row holds for, and the row. Ascending, no gaps.
pub const TABLE: &[(Release, Release, Abi)] = &[
    ((3, 33), (3, 33), V3_33),
    ((3, 34), (3, 35), V3_34),
    ((3, 36), (3, 37), V3_36),
    ((3, 38), (3, 39), V3_38),
    ((3, 40), (3, 40), V3_40),
    ((3, 41), (3, 41), V3_41),
    ((3, 42), (3, 42), V3_42),
];

/// The releases [`TABLE`] knows, in words.
fn known() -> String {
    let (first, last) = (TABLE[0].0, TABLE[TABLE.len() - 1].1);
    format!("fio {}.{} to {}.{}", first.0, first.1, last.0, last.1)
}

/// Finds the row for a fio version string such as `fio-3.33`.
///
/// Only a plain release is accepted: a development build (`fio-3.36-12-gabc`,
/// `fio-3.33-dirty`) may hold structures of the release after it.
pub fn lookup(version: &str) -> Result<&'static Abi, String> {
    let unreadable = || {
        format!(
            "this program calls itself '{version}', which is not a fio release; known are {}",
            known()
        )
    };
    let rest = version.trim().strip_prefix("fio-").ok_or_else(unreadable)?;
    let (number, extra) = match rest.find('-') {
        Some(at) => rest.split_at(at),
        None => (rest, ""),
    };
    let mut parts = number.split('.');
    let mut next = || -> Option<u16> {
        let p = parts.next()?;
        if p.is_empty() || !p.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        p.parse().ok()
    };
    let (Some(major), Some(minor)) = (next(), next()) else {
        return Err(unreadable());
    };
    // A third number is not something fio has used since 2.x, except as ".0".
    if !matches!(parts.next(), None | Some("0")) || parts.next().is_some() {
        return Err(unreadable());
    }
    let release = (major, minor);
    let row = TABLE.iter().find(|(min, max, _)| *min <= release && release <= *max);
    match row {
        None => Err(format!(
            "fio {major}.{minor} is not a release this engine knows; known are {}",
            known()
        )),
        Some(_) if !extra.is_empty() => Err(format!(
            "'{version}' is a changed build of fio {major}.{minor}, not the release itself, \
             and may lay out its structures otherwise; use an unchanged release ({})",
            known()
        )),
        Some((_, _, abi)) => Ok(abi),
    }
}

// ---- raw access -----------------------------------------------------------

/// Reads a field.
///
/// # Safety
/// `base` must point to a live fio structure that holds a `T` at `off`.
#[inline]
unsafe fn get<T: Copy>(base: *const c_void, off: Off) -> T {
    // SAFETY: the caller vouches for the structure; unaligned access is not
    // relied upon but harmless.
    unsafe { base.cast::<u8>().add(off as usize).cast::<T>().read_unaligned() }
}

/// Writes a field.
///
/// # Safety
/// As for [`get`], and nobody else may access that field meanwhile.
#[inline]
unsafe fn set<T: Copy>(base: *mut c_void, off: Off, value: T) {
    // SAFETY: as above.
    unsafe { base.cast::<u8>().add(off as usize).cast::<T>().write_unaligned(value) }
}

/// A fio `io_u` seen through a table row.
#[derive(Clone, Copy)]
pub struct IoU<'a> {
    abi: &'a IoUAbi,
    base: *mut c_void,
}

impl<'a> IoU<'a> {
    /// # Safety
    /// `base` must be an `io_u` of the fio release `abi` was measured on, and
    /// belong to the engine for as long as the value is used (between `queue`
    /// and the return from `event`, or in `io_u_init`).
    #[inline]
    pub unsafe fn new(abi: &'a Abi, base: *mut c_void) -> IoU<'a> {
        IoU { abi: &abi.io_u, base }
    }
    /// The file it is for.
    #[inline]
    pub fn file(&self) -> *mut c_void {
        // SAFETY: promised at `new`; likewise below.
        unsafe { get(self.base, self.abi.file) }
    }
    /// fio's state flags.
    #[inline]
    pub fn flags(&self) -> c_uint {
        // SAFETY: promised at `new`.
        unsafe { get(self.base, self.abi.flags) }
    }
    /// What to do.
    #[inline]
    pub fn ddir(&self) -> c_int {
        // SAFETY: promised at `new`.
        unsafe { get(self.base, self.abi.ddir) }
    }
    /// Where, in bytes from the start of the file.
    #[inline]
    pub fn offset(&self) -> u64 {
        // SAFETY: promised at `new`.
        unsafe { get(self.base, self.abi.offset) }
    }
    /// Length of the whole buffer.
    #[inline]
    pub fn buflen(&self) -> u64 {
        // SAFETY: promised at `new`.
        unsafe { get(self.base, self.abi.buflen) }
    }
    /// The whole buffer.
    #[inline]
    pub fn buf(&self) -> *mut u8 {
        // SAFETY: promised at `new`.
        unsafe { get(self.base, self.abi.buf) }
    }
    /// The buffer of this transfer.
    #[inline]
    pub fn xfer_buf(&self) -> *mut u8 {
        // SAFETY: promised at `new`.
        unsafe { get(self.base, self.abi.xfer_buf) }
    }
    /// The length of this transfer.
    #[inline]
    pub fn xfer_buflen(&self) -> u64 {
        // SAFETY: promised at `new`.
        unsafe { get(self.base, self.abi.xfer_buflen) }
    }
    /// The error number so far.
    #[inline]
    pub fn error(&self) -> c_int {
        // SAFETY: promised at `new`.
        unsafe { get(self.base, self.abi.error) }
    }
    /// Bytes not transferred so far.
    #[inline]
    pub fn resid(&self) -> u64 {
        // SAFETY: promised at `new`.
        unsafe { get(self.base, self.abi.resid) }
    }
    /// Number of the unit within its job.
    #[inline]
    pub fn index(&self) -> c_uint {
        // SAFETY: promised at `new`.
        unsafe { get(self.base, self.abi.index) }
    }
    /// Sets the (positive) error number of the request.
    #[inline]
    pub fn set_error(&self, errno: c_int) {
        // SAFETY: promised at `new`.
        unsafe { set(self.base, self.abi.error, errno) }
    }
    /// Sets how many bytes were *not* transferred.
    #[inline]
    pub fn set_resid(&self, bytes: u64) {
        // SAFETY: promised at `new`.
        unsafe { set(self.base, self.abi.resid, bytes) }
    }
}

/// A fio `fio_file` seen through a table row.
#[derive(Clone, Copy)]
pub struct File<'a> {
    abi: &'a FileAbi,
    base: *mut c_void,
}

impl<'a> File<'a> {
    /// # Safety
    /// `base` must be a live `fio_file` of the fio release `abi` was measured
    /// on, and the calling thread must be the one fio works on it with.
    #[inline]
    pub unsafe fn new(abi: &'a Abi, base: *mut c_void) -> File<'a> {
        File { abi: &abi.file, base }
    }
    /// One of the `FIO_TYPE` values.
    pub fn filetype(&self) -> c_int {
        // SAFETY: promised at `new`; likewise below.
        unsafe { get(self.base, self.abi.filetype) }
    }
    /// Sets one of the `FIO_TYPE` values.
    pub fn set_filetype(&self, t: c_int) {
        // SAFETY: promised at `new`.
        unsafe { set(self.base, self.abi.filetype, t) }
    }
    /// The size as fio knows it.
    pub fn real_file_size(&self) -> u64 {
        // SAFETY: promised at `new`.
        unsafe { get(self.base, self.abi.real_file_size) }
    }
    /// Tells fio the size.
    pub fn set_real_file_size(&self, bytes: u64) {
        // SAFETY: promised at `new`.
        unsafe { set(self.base, self.abi.real_file_size, bytes) }
    }
    /// fio's zone information, null unless it runs in zoned mode.
    pub fn zbd_info(&self) -> *const c_void {
        // SAFETY: promised at `new`.
        unsafe { get(self.base, self.abi.zbd_info) }
    }
    /// The zones fio works on, from and to; they follow `zbd_info`.
    fn zone_range(&self) -> (u32, u32) {
        // SAFETY: promised at `new`.
        unsafe { (get(self.base, self.abi.zbd_info + 8), get(self.base, self.abi.zbd_info + 12)) }
    }
    fn name_ptr(&self) -> *const c_char {
        // SAFETY: promised at `new`.
        unsafe { get(self.base, self.abi.file_name) }
    }
    /// The file name, that is the engine's device specification. Reads it
    /// through the kernel, so a pointer that is none gives an error.
    pub fn name(&self) -> Result<String, String> {
        let p = self.name_ptr();
        let bytes = probe_str(p.cast(), 4096).ok_or("the file name cannot be read")?;
        let s = String::from_utf8(bytes).map_err(|_| "the file name is not UTF-8")?;
        if s.is_empty() || s.chars().any(char::is_control) {
            return Err("the file name is empty or holds control characters".into());
        }
        Ok(s)
    }
}

// ---- self checks ----------------------------------------------------------

/// Copies memory of this process without trapping on a bad address.
fn probe(addr: *const u8, out: &mut [u8]) -> bool {
    if addr.is_null() {
        return false;
    }
    let local = libc::iovec { iov_base: out.as_mut_ptr().cast(), iov_len: out.len() };
    let remote = libc::iovec { iov_base: addr.cast_mut().cast(), iov_len: out.len() };
    // SAFETY: `local` is a live buffer; the remote side is only looked at by
    // the kernel, which answers EFAULT for a bad address.
    let n = unsafe { libc::process_vm_readv(libc::getpid(), &local, 1, &remote, 1, 0) };
    if n >= 0 {
        return n as usize == out.len();
    }
    if !matches!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EPERM | libc::ENOSYS)) {
        return false;
    }
    // That call is forbidden in some containers; a pipe does the same.
    let mut fds = [0; 2];
    // SAFETY: plain system calls on descriptors made here; `write` answers
    // EFAULT for a bad address. A pipe holds more than the 64 bytes asked for
    // at a time by the callers below.
    unsafe {
        if libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK) != 0 {
            return false;
        }
        let ok = libc::write(fds[1], addr.cast(), out.len()) == out.len() as isize
            && libc::read(fds[0], out.as_mut_ptr().cast(), out.len()) == out.len() as isize;
        libc::close(fds[0]);
        libc::close(fds[1]);
        ok
    }
}

/// A NUL-terminated string of at most `max` bytes, or nothing.
fn probe_str(addr: *const u8, max: usize) -> Option<Vec<u8>> {
    const STEP: usize = 64;
    let mut out = Vec::new();
    while out.len() < max {
        let at = addr.wrapping_add(out.len());
        // Never cross into a page the string may not reach.
        let room = STEP - (at as usize % STEP);
        let mut chunk = [0u8; STEP];
        if !probe(at, &mut chunk[..room]) {
            return None;
        }
        match chunk[..room].iter().position(|b| *b == 0) {
            Some(end) => {
                out.extend_from_slice(&chunk[..end]);
                return Some(out);
            }
            None => out.extend_from_slice(&chunk[..room]),
        }
    }
    None
}

/// To be called the first time fio shows a file, in `get_file_size`: nothing
/// was opened yet, and an engine flagged diskless has its sizes preset to -1.
/// `ours` is the size this engine set before, if it did.
pub fn check_new_file(abi: &Abi, base: *mut c_void, ours: Option<u64>) -> Result<(), String> {
    let mut bytes = [0u8; 512];
    let size = abi.file.size as usize;
    if size > bytes.len() || !probe(base.cast(), &mut bytes[..size]) {
        return Err("fio's file structure cannot be read".into());
    }
    let p: *const c_void = bytes.as_ptr().cast();
    // SAFETY: `bytes` holds a whole copy of the structure, by table size.
    let (filetype, fd, shadow, fileno, len, refs, flags) = unsafe {
        (
            get::<c_int>(p, abi.file.filetype),
            get::<c_int>(p, abi.file.fd),
            get::<c_int>(p, abi.file.shadow_fd),
            get::<c_int>(p, abi.file.fileno),
            get::<u64>(p, abi.file.real_file_size),
            get::<c_int>(p, abi.file.references),
            get::<c_uint>(p, abi.file.flags),
        )
    };
    let bad = |what: &str, value: i64| {
        Err(format!("fio's file structure is not laid out as expected ({what} = {value})"))
    };
    if !(FIO_TYPE_FILE..=FIO_TYPE_DIR).contains(&filetype) {
        return bad("type", filetype.into());
    }
    if fd != -1 || shadow != -1 {
        return bad("descriptor", fd.into());
    }
    if !(0..1 << 20).contains(&fileno) {
        return bad("number", fileno.into());
    }
    if len != u64::MAX && Some(len) != ours {
        return bad("size", len as i64);
    }
    if refs != 0 {
        return bad("references", refs.into());
    }
    if flags & FIO_FILE_OPEN != 0 || flags >> 16 != 0 {
        return bad("flags", flags.into());
    }
    Ok(())
}

/// To be called in `io_u_init`: the unit is zeroed but for its index, which
/// counts up from 0, the flag that says it is free, and an empty list, whose
/// links point to itself: so every field before that list is where it was.
pub fn check_new_io_u(abi: &Abi, u: IoU<'_>, nth: c_uint) -> Result<(), String> {
    let mut bytes = [0u8; 256];
    let list = abi.io_u.verify_list;
    let end = list as usize + 16;
    if end > bytes.len() || !probe(u.base.cast(), &mut bytes[..end]) {
        return Err("fio's io unit cannot be read".into());
    }
    let head = u.base as usize + list as usize;
    // SAFETY: that many bytes of it could be read.
    let links: [usize; 2] = unsafe { get(u.base, list) };
    let ok = links == [head; 2]
        && u.index() == nth
        && u.flags() == IO_U_F_FREE
        && u.file().is_null()
        && u.ddir() == 0
        && u.offset() == 0
        && u.buflen() == 0
        && u.buf().is_null()
        && u.xfer_buf().is_null()
        && u.xfer_buflen() == 0
        && u.resid() == 0
        && u.error() == 0;
    if ok {
        return Ok(());
    }
    Err(format!(
        "fio's io unit {nth} is not laid out as expected (index {}, flags {:#x})",
        u.index(),
        u.flags()
    ))
}

/// To be called in `open_file`, when fio has set its zones up. `zones` is
/// their number, or 0 if fio never asked for the zones of this device.
pub fn check_opened_file(file: File<'_>, zones: u64) -> Result<(), String> {
    if file.zbd_info().is_null() {
        // Not in zoned mode, though another job of the same device may be.
        return Ok(());
    }
    let (min, max) = file.zone_range();
    if min <= max && u64::from(max) <= zones {
        return Ok(());
    }
    Err(format!(
        "fio's file structure is not laid out as expected (zones {min} to {max} of {zones})"
    ))
}

/// To be called for every read and write in `queue`, before anything of it is
/// used. Cheap: it looks at the unit only. `size` is that of the file.
#[inline]
pub fn check_transfer(u: IoU<'_>, size: u64) -> Result<(), &'static str> {
    let (off, len) = (u.offset(), u.xfer_buflen());
    if u.error() != 0 || u.resid() != 0 {
        return Err("the result fields are not clear");
    }
    if u.xfer_buf().is_null() || u.buf().is_null() {
        return Err("there is no buffer");
    }
    if len == 0 || len > u.buflen() {
        return Err("the length is not within the buffer");
    }
    if off.checked_add(len).is_none_or(|end| end > size) {
        return Err("the range is not within the file");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases() {
        for (v, ioops) in [
            ("fio-3.33", 31),
            ("fio-3.34", 32),
            ("fio-3.35", 32),
            ("fio-3.36", 33),
            ("fio-3.37", 33),
            ("fio-3.38", 36),
            ("fio-3.39", 36),
            ("fio-3.40", 37),
            ("fio-3.41", 39),
            ("fio-3.42", 39),
        ] {
            assert_eq!(lookup(v).unwrap().ioops_version, ioops, "{v}");
        }
    }

    #[test]
    fn refused() {
        for v in ["fio-3.32", "fio-3.43", "fio-2.33", "fio-4.0", "fio-3.330"] {
            let e = lookup(v).unwrap_err();
            assert!(e.contains("fio 3.33 to 3.42"), "{e}");
        }
        for v in ["fio-3.33-dirty", "fio-3.36-12-gabcdef", "fio-3.42-1-g0000000-dirty"] {
            let e = lookup(v).unwrap_err();
            assert!(e.contains("changed build") && e.contains("fio 3.33 to 3.42"), "{e}");
        }
        for v in [
            "",
            "3.33",
            "fio-",
            "fio-3",
            "fio-3.",
            "fio-3.x",
            "fio-+3.33",
            "fio-3.33.1",
            "fio-3.33rc1",
        ] {
            let e = lookup(v).unwrap_err();
            assert!(e.contains("not a fio release"), "{v}: {e}");
        }
        // Newer changed builds are refused as unknown first.
        assert!(lookup("fio-3.50-dirty").unwrap_err().contains("not a release"));
    }

    #[test]
    fn rows_are_ascending_and_without_gaps() {
        assert_eq!(TABLE[0].0, (3, 33));
        for (min, max, _) in TABLE {
            assert!(min <= max);
        }
        for w in TABLE.windows(2) {
            assert_eq!(w[1].0, (w[0].1.0, w[0].1.1 + 1));
            assert!(w[0].2.ioops_version <= w[1].2.ioops_version);
            assert_ne!(w[0].2, w[1].2, "two rows could be one");
        }
    }

    /// Every field of the operations, in the order fio has them.
    fn ops_fields(o: &OpsAbi) -> Vec<Off> {
        let mut v = vec![
            o.name,
            o.flags,
            o.dlhandle,
            o.setup,
            o.init,
            o.post_init,
            o.prep,
            o.queue,
            o.commit,
            o.getevents,
            o.event,
            o.errdetails,
        ];
        v.extend(o.cancel);
        v.extend([
            o.cleanup,
            o.open_file,
            o.close_file,
            o.invalidate,
            o.unlink_file,
            o.get_file_size,
            o.prepopulate_file,
            o.terminate,
            o.iomem_alloc,
            o.iomem_free,
            o.io_u_init,
            o.io_u_free,
            o.get_zoned_model,
            o.report_zones,
            o.reset_wp,
        ]);
        v.extend(o.move_zone_wp);
        v.push(o.get_max_open_zones);
        v.extend(o.get_max_active_zones);
        v.extend(o.finish_zone);
        v
    }

    #[test]
    fn offsets_do_not_overlap() {
        for (min, _, abi) in TABLE {
            let o = &abi.ops;
            let f = ops_fields(o);
            assert!(f.windows(2).all(|w| w[0] < w[1]), "{min:?} {f:?}");
            // From `dlhandle` up to the last zone callback there is one
            // pointer after the other, with no hole.
            assert!(f[2..].windows(2).all(|w| w[1] == w[0] + 8), "{min:?} {f:?}");
            assert!(
                o.version == o.name + 8 && o.flags == o.version + 4 && o.dlhandle == o.flags + 4
            );
            assert!(*f.last().unwrap() < o.option_struct_size);
            assert!(o.options == o.option_struct_size + 8 && o.size == o.options + 8);

            let u = &abi.io_u;
            let f = [
                (u.file, 8),
                (u.flags, 4),
                (u.ddir, 4),
                (u.buflen, 8),
                (u.offset, 8),
                (u.buf, 8),
                (u.xfer_buf, 8),
                (u.xfer_buflen, 8),
                (u.resid, 8),
                (u.error, 4),
                (u.index, 4),
                (u.verify_list, 8),
            ];
            assert!(f.windows(2).all(|w| w[0].0 + w[0].1 <= w[1].0), "{min:?}");
            assert!(f.iter().all(|(off, size)| off % size == 0), "{min:?}");

            let f = &abi.file;
            let f = [
                (f.filetype, 4),
                (f.fd, 4),
                (f.shadow_fd, 4),
                (f.fileno, 4),
                (f.file_name, 8),
                (f.real_file_size, 8),
                (f.zbd_info, 8),
                (f.references, 4),
                (f.flags, 4),
                (f.size, 0),
            ];
            assert!(f.windows(2).all(|w| w[0].0 + w[0].1 <= w[1].0), "{min:?}");
        }
    }

    #[test]
    fn presence_by_release() {
        for (min, _, abi) in TABLE {
            let o = &abi.ops;
            assert_eq!(o.finish_zone.is_some(), *min >= (3, 34), "{min:?}");
            assert_eq!(o.get_max_active_zones.is_some(), *min >= (3, 36), "{min:?}");
            assert_eq!(o.move_zone_wp.is_some(), *min >= (3, 40), "{min:?}");
            assert_eq!(o.cancel.is_some(), *min < (3, 41), "{min:?}");
            assert_eq!(abi.ddir_syncfs.is_some(), *min >= (3, 42), "{min:?}");
        }
    }

    /// Spot values, noted independently of the constructors above.
    #[test]
    fn spot_values() {
        let at = |v: &str| *lookup(v).unwrap();
        for (v, model, options) in
            [("fio-3.33", 216, 256), ("fio-3.39", 216, 280), ("fio-3.41", 208, 280)]
        {
            assert_eq!((at(v).ops.get_zoned_model, at(v).ops.options), (model, options), "{v}");
        }
        for (v, off, buf, len, err) in [
            ("fio-3.33", 72, 104, 112, 144),
            ("fio-3.39", 72, 104, 112, 144),
            ("fio-3.41", 80, 112, 120, 152),
        ] {
            let u = at(v).io_u;
            assert_eq!((u.offset, u.xfer_buf, u.xfer_buflen, u.error), (off, buf, len, err), "{v}");
        }
        assert_eq!(at("fio-3.40").ops.finish_zone, Some(264));
        assert_eq!(at("fio-3.42").file.flags, 372);
        assert_eq!(at("fio-3.38").file.size, 392);
    }

    #[test]
    fn probing_survives_bad_addresses() {
        assert_eq!(probe_str(c"mem,zones=4".as_ptr().cast(), 4096).unwrap(), b"mem,zones=4");
        assert_eq!(probe_str(core::ptr::null(), 10), None);
        assert_eq!(probe_str(16 as *const u8, 10), None);
        assert_eq!(probe_str(0xdead_beef_dead_0000u64 as *const u8, 10), None);
        let long = [b'a'; 300];
        assert_eq!(probe_str(long.as_ptr(), 200), None, "no end within the limit");
        assert!(check_new_file(&TABLE[0].2, 64 as *mut c_void, None).is_err());
    }

    #[test]
    fn a_fresh_file_and_unit_pass_and_others_do_not() {
        for (_, _, abi) in TABLE {
            let mut f = [0u64; 64];
            let p: *mut c_void = f.as_mut_ptr().cast();
            let name = c"mem,zones=4";
            // SAFETY: the buffer is larger than the structure.
            unsafe {
                set(p, abi.file.filetype, FIO_TYPE_FILE);
                set(p, abi.file.fd, -1);
                set(p, abi.file.shadow_fd, -1);
                set(p, abi.file.real_file_size, u64::MAX);
                set(p, abi.file.file_name, name.as_ptr());
            }
            check_new_file(abi, p, None).unwrap();
            // SAFETY: as above.
            let file = unsafe { File::new(abi, p) };
            assert_eq!(file.name().unwrap(), "mem,zones=4");
            file.set_real_file_size(1 << 20);
            assert!(check_new_file(abi, p, None).is_err());
            check_new_file(abi, p, Some(1 << 20)).unwrap();
            // SAFETY: as above.
            unsafe { set(p, abi.file.fd, 3) };
            assert!(check_new_file(abi, p, Some(1 << 20)).is_err());

            let mut u = [0u64; 32];
            let p: *mut c_void = u.as_mut_ptr().cast();
            // SAFETY: as above.
            let unit = unsafe { IoU::new(abi, p) };
            // SAFETY: as above.
            unsafe {
                set(p, abi.io_u.flags, IO_U_F_FREE);
                set(p, abi.io_u.index, 7u32);
                let head = p as usize + abi.io_u.verify_list as usize;
                set(p, abi.io_u.verify_list, [head; 2]);
            }
            check_new_io_u(abi, unit, 7).unwrap();
            assert!(check_new_io_u(abi, unit, 8).is_err());
            // A row with everything elsewhere is found out.
            for (_, _, other) in
                TABLE.iter().filter(|(_, _, o)| o.io_u.verify_list != abi.io_u.verify_list)
            {
                // SAFETY: as above; only reads.
                let unit = unsafe { IoU::new(other, p) };
                assert!(check_new_io_u(other, unit, 7).is_err());
            }
            unit.set_error(5);
            assert!(check_new_io_u(abi, unit, 7).is_err());
            assert!(check_transfer(unit, 1 << 20).is_err());
        }
    }
}
