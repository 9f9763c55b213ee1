//! What the tests share: the C calls as a C program makes them, on disks in memory.

#![allow(dead_code, reason = "each test file uses a part of this")]

use libc::{c_int, c_void};
use std::ffi::{CStr, CString};
use std::ptr::null_mut;
use zoneplug_capi::*;

/// Options of a disk of 8 zones of 1 MiB.
pub(crate) fn small() -> zp_create_options {
    // SAFETY: numbers and a pointer.
    let zero: zp_create_options = unsafe { std::mem::zeroed() };
    zp_create_options { struct_size: size_of_val(&zero), zones: 8, zone_size: 1 << 20, ..zero }
}

/// Opens a disk.
pub(crate) fn open(spec: &str) -> *mut zp_disk {
    let spec = CString::new(spec).unwrap();
    let mut disk = null_mut();
    // SAFETY: a string and the place of a pointer.
    assert_eq!(unsafe { zp_open(spec.as_ptr(), &raw mut disk) }, 0, "{}", message());
    disk
}

/// Opens a queue.
pub(crate) fn queue(disk: *mut zp_disk, depth: u32) -> *mut zp_queue {
    let mut queue = null_mut();
    // SAFETY: an open disk and the place of a pointer.
    assert_eq!(unsafe { zp_queue_open(disk, depth, &raw mut queue) }, 0, "{}", message());
    queue
}

/// What the last failure of this thread was.
pub(crate) fn message() -> String {
    // SAFETY: a string that lives until the next failure.
    unsafe { CStr::from_ptr(zp_error_message()) }.to_str().unwrap().to_owned()
}

/// What to try after it.
pub(crate) fn hint() -> Option<String> {
    let hint = zp_error_hint();
    // SAFETY: the same, if it is not null.
    (!hint.is_null()).then(|| unsafe { CStr::from_ptr(hint) }.to_str().unwrap().to_owned())
}

/// The name of what was wrong.
pub(crate) fn reason() -> Option<String> {
    let reason = zp_error_reason();
    // SAFETY: the same.
    (!reason.is_null()).then(|| unsafe { CStr::from_ptr(reason) }.to_str().unwrap().to_owned())
}

/// A number of a disk.
pub(crate) fn property(disk: *mut zp_disk, name: &CStr) -> u64 {
    let mut value = 0;
    // SAFETY: an open disk, a string, the place of a number.
    assert_eq!(unsafe { zp_property(disk, name.as_ptr(), &raw mut value) }, 0, "{}", message());
    value
}

/// An operation with memory.
pub(crate) fn op(op: u8, sector: u64, buf: *const u8, len: u32, user_data: u64) -> zp_op {
    zp_op {
        user_data,
        sector,
        buf: buf.cast_mut().cast::<c_void>(),
        len,
        nr_sectors: 0,
        iovcnt: 0,
        op,
        reserved: 0,
        flags: 0,
    }
}

/// Submits operations; all are taken.
pub(crate) fn submit(queue: *mut zp_queue, ops: &[zp_op]) {
    // SAFETY: an open queue and an array; the callers keep the memory.
    let n = unsafe { zp_queue_submit(queue, ops.as_ptr(), ops.len() as u32) };
    assert_eq!(n, ops.len() as c_int, "{}", message());
}

/// Waits for up to `nr` completions.
pub(crate) fn wait(queue: *mut zp_queue, nr: u32, timeout_ms: c_int) -> Vec<zp_completion> {
    let mut all = Vec::with_capacity(nr as usize);
    // SAFETY: an open queue and an array of that length.
    let n = unsafe { zp_queue_wait(queue, all.as_mut_ptr(), nr, nr, timeout_ms) };
    assert!(n >= 0, "{}", message());
    // SAFETY: so many were written.
    unsafe { all.set_len(n as usize) };
    all
}

/// The completions that are there.
pub(crate) fn poll(queue: *mut zp_queue, max: u32) -> Vec<zp_completion> {
    let mut all = Vec::with_capacity(max as usize);
    // SAFETY: an open queue and an array of that length.
    let n = unsafe { zp_queue_poll(queue, all.as_mut_ptr(), max) };
    assert!(n >= 0, "{}", message());
    // SAFETY: so many were written.
    unsafe { all.set_len(n as usize) };
    all
}

/// A directory that is removed at the end.
pub(crate) struct Directory(std::path::PathBuf);

impl Directory {
    /// A new one for the test with this name.
    pub(crate) fn new(name: &str) -> Directory {
        let path =
            std::env::temp_dir().join(format!("zoneplug-capi-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Directory(path)
    }

    /// The path of a file in it.
    pub(crate) fn path(&self, name: &str) -> CString {
        CString::new(self.0.join(name).to_str().unwrap()).unwrap()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
