//! Checks that fio's structures have the values that they must have at certain moments.

use super::access::get;
use super::probe::probe;
use super::{Abi, FIO_FILE_OPEN, FIO_TYPE_DIR, FIO_TYPE_FILE, File, IO_U_F_FREE, IoU};
use core::ffi::{c_int, c_uint, c_void};

/// Call it the first time fio passes a file, in `get_file_size`: nothing was opened yet, and fio presets the size to
/// -1 for a diskless engine. `ours`: the size that this engine has set before, if it has.
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

/// Call it in `io_u_init`. The unit is zeroes except for its index, which counts up from 0, the flag that says it is
/// free, and an empty list, whose links point to itself. So every field before that list is at the expected offset.
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

/// Call it in `open_file`, when fio has set up its zones. `zones`: their number, or 0 if fio never asked for the
/// zones of this device.
pub fn check_opened_file(file: File<'_>, zones: u64) -> Result<(), String> {
    if file.zbd_info().is_null() {
        // The job is not in zoned mode, though another job of the same device may be.
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

/// Returns `why`, and tells the compiler that the path is rare.
#[inline(always)]
pub(in super::super) fn unlikely<T>(why: T) -> T {
    core::hint::cold_path();
    why
}

/// Call it for every read and write in `queue`, before the unit is used. It is cheap: it reads only the unit. `size`:
/// the size of the file.
#[inline(always)]
pub fn check_transfer(u: IoU<'_>, size: u64) -> Result<(), &'static str> {
    let (off, len) = (u.offset(), u.xfer_buflen());
    if u.error() as u64 | u.resid() != 0 {
        return Err(unlikely("the result fields are not clear"));
    }
    if u.xfer_buf().is_null() {
        return Err(unlikely("there is no buffer"));
    }
    if u.buf().is_null() {
        return Err(unlikely("there is no whole buffer"));
    }
    // A length of 0 wraps.
    if len.wrapping_sub(1) >= u.buflen() {
        return Err(unlikely("the length is not within the buffer"));
    }
    if off.checked_add(len).is_none_or(|end| end > size) {
        return Err(unlikely("the range is not within the file"));
    }
    Ok(())
}
