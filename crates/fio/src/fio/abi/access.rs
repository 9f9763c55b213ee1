//! Fields of fio's structures, by table row.

use super::probe::probe_str;
use super::{Abi, FileAbi, IoUAbi, Off};
use core::ffi::{c_char, c_int, c_uint, c_void};

/// Reads a field.
///
/// # Safety
/// `base` must point to a live fio structure that holds a `T` at `off`.
#[inline]
pub(super) unsafe fn get<T: Copy>(base: *const c_void, off: Off) -> T {
    // SAFETY: the caller vouches for the structure; unaligned access is not
    // relied upon but harmless.
    unsafe { base.cast::<u8>().add(off as usize).cast::<T>().read_unaligned() }
}

/// Writes a field.
///
/// # Safety
/// As for [`get`], and no other thread may access that field meanwhile.
#[inline]
pub(super) unsafe fn set<T: Copy>(base: *mut c_void, off: Off, value: T) {
    // SAFETY: as above.
    unsafe { base.cast::<u8>().add(off as usize).cast::<T>().write_unaligned(value) }
}

/// A fio `io_u` seen through a table row.
#[derive(Clone, Copy)]
pub struct IoU<'a> {
    abi: &'a IoUAbi,
    pub(super) base: *mut c_void,
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
    /// The file of the request.
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
    /// The direction: one of the `DDIR` values.
    #[inline]
    pub fn ddir(&self) -> c_int {
        // SAFETY: promised at `new`.
        unsafe { get(self.base, self.abi.ddir) }
    }
    /// The offset in bytes from the start of the file.
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
    /// The address of the unit's time of submission.
    #[inline]
    pub fn issue_time(&self) -> *mut libc::timespec {
        self.base.cast::<u8>().wrapping_add(self.abi.issue_time as usize).cast()
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
    /// The size that fio has for the file.
    pub fn real_file_size(&self) -> u64 {
        // SAFETY: promised at `new`.
        unsafe { get(self.base, self.abi.real_file_size) }
    }
    /// Sets the size that fio has for the file.
    pub fn set_real_file_size(&self, bytes: u64) {
        // SAFETY: promised at `new`.
        unsafe { set(self.base, self.abi.real_file_size, bytes) }
    }
    /// fio's zone information, null unless it runs in zoned mode.
    pub fn zbd_info(&self) -> *const c_void {
        // SAFETY: promised at `new`.
        unsafe { get(self.base, self.abi.zbd_info) }
    }
    /// The first zone that fio works on, and the one after the last; they follow `zbd_info`.
    pub(super) fn zone_range(&self) -> (u32, u32) {
        // SAFETY: promised at `new`.
        unsafe { (get(self.base, self.abi.zbd_info + 8), get(self.base, self.abi.zbd_info + 12)) }
    }
    fn name_ptr(&self) -> *const c_char {
        // SAFETY: promised at `new`.
        unsafe { get(self.base, self.abi.file_name) }
    }
    /// The file name, which is the engine's device specification. Reads it through the kernel, so that a bad pointer
    /// gives an error.
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
