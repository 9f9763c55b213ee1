//! Reads memory at an address that may be wrong.

/// Copies memory of this process without trapping on a bad address.
pub(super) fn probe(addr: *const u8, out: &mut [u8]) -> bool {
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
    // That call is forbidden in some containers. A pipe has the same effect.
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

/// A NUL-terminated string of at most `max` bytes. `None` if there is none.
pub(super) fn probe_str(addr: *const u8, max: usize) -> Option<Vec<u8>> {
    const STEP: usize = 64;
    let mut out = Vec::new();
    while out.len() < max {
        let at = addr.wrapping_add(out.len());
        // A read never crosses into a page that the string may not reach.
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
