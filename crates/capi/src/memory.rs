//! Memory: that of arguments, and buffers that are aligned for any device.

use crate::boundary::{Failure, Outcome};
use libc::{c_int, c_void, iovec};

/// The most pieces of a vectored call: Linux's `IOV_MAX`.
const IOV_MAX: c_int = 1024;

/// The memory of a write.
///
/// # Safety
///
/// `buf` is null or has `len` bytes, which nothing writes meanwhile.
pub(crate) unsafe fn bytes<'a>(buf: *const c_void, len: usize) -> Outcome<&'a [u8]> {
    checked(buf, len)?;
    // SAFETY: not null or empty, and the caller's promise.
    Ok(if len == 0 { &[] } else { unsafe { std::slice::from_raw_parts(buf.cast(), len) } })
}

/// Refuses NULL, and returns the length.
fn checked(buf: *const c_void, len: usize) -> Outcome<u32> {
    if buf.is_null() && len > 0 {
        return Err(Failure::invalid("the buffer is NULL", "a buffer of that length"));
    }
    u32::try_from(len).map_err(|_| Failure::invalid("4 GiB of memory or more", "several calls"))
}

/// The pieces of a vectored call, checked, and the sum of their lengths.
///
/// # Safety
///
/// `iov` is null or has `iovcnt` elements.
pub(crate) unsafe fn pieces<'a>(iov: *const iovec, iovcnt: c_int) -> Outcome<(&'a [iovec], u32)> {
    if !(0..=IOV_MAX).contains(&iovcnt) {
        return Err(Failure::invalid(&format!("{iovcnt} pieces of memory"), "0 to 1024"));
    }
    if iovcnt == 0 {
        return Ok((&[], 0));
    }
    if iov.is_null() {
        return Err(Failure::invalid("the list of pieces is NULL", "an array of struct iovec"));
    }
    if !iov.is_aligned() {
        // The list is misaligned, for example in a packed structure.
        return Err(Failure::invalid("the list of pieces is misaligned", "aligned to a pointer"));
    }
    // SAFETY: aligned, not null, and the caller's promise.
    let list = unsafe { std::slice::from_raw_parts(iov, iovcnt as usize) };
    let mut sum = 0u32;
    for piece in list {
        let len = checked(piece.iov_base, piece.iov_len)?;
        let longer = || Failure::invalid("4 GiB of memory or more", "several calls");
        sum = sum.checked_add(len).ok_or_else(longer)?;
    }
    Ok((list, sum))
}

/// Allocates `size` zero bytes, aligned to 4096 as direct I/O of any drive needs it. NULL if there is not enough memory.
/// A queue moves data from and to other memory too; a drive then copies, or refuses.
#[unsafe(no_mangle)]
pub extern "C" fn zp_buf_alloc(size: usize) -> *mut c_void {
    // The memory is the C library's, so that `free` works for it too.
    let mut buf = std::ptr::null_mut();
    // SAFETY: `buf` is where the address goes.
    if unsafe { libc::posix_memalign(&raw mut buf, 4096, size.max(1)) } != 0 {
        crate::boundary::call(|| Err(Failure::no_memory()));
        return std::ptr::null_mut();
    }
    // SAFETY: the buffer has that many bytes.
    unsafe { std::ptr::write_bytes(buf.cast::<u8>(), 0, size.max(1)) };
    buf
}

/// Frees a buffer of `zp_buf_alloc`. NULL is allowed. A buffer that a queue still has must not be freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zp_buf_free(buf: *mut c_void) {
    // SAFETY: the caller's promise: a buffer of `zp_buf_alloc`, or null.
    unsafe { libc::free(buf) };
}
