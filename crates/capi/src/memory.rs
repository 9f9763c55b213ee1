//! Buffers that are aligned for any device.

use crate::boundary::Failure;
use libc::c_void;

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
