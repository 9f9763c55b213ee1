//! System calls that the standard library lacks. The `unsafe` code is the calls; pointers come from slices
//! and lent buffers.

use crate::backend::ring::check;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

fn fallocate(file: &File, mode: i32, at: u64, len: u64) -> io::Result<()> {
    // SAFETY: a call without pointers.
    check(unsafe { libc::fallocate(file.as_raw_fd(), mode, at as i64, len as i64) }).map(|_| ())
}

/// Makes a range a hole that reads as zeroes.
pub(super) fn punch(file: &File, at: u64, len: u64) -> io::Result<()> {
    fallocate(file, libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE, at, len)
}

/// Makes a range read as zeroes and be a hole for SEEK_HOLE, and keeps its space.
pub(super) fn unwrite(file: &File, at: u64, len: u64) -> io::Result<()> {
    fallocate(file, libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE, at, len)
}

/// Allocates space for a range without changing its content.
pub(super) fn preallocate(file: &File, at: u64, len: u64) -> io::Result<()> {
    fallocate(file, libc::FALLOC_FL_KEEP_SIZE, at, len)
}

/// Returns the kind of the file system (`f_type`, statfs(2)).
pub(crate) fn file_system(file: &File) -> io::Result<u64> {
    let mut s = std::mem::MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: `s` is room for one struct, and is read only if the call filled it.
    unsafe {
        check(libc::fstatfs(file.as_raw_fd(), s.as_mut_ptr()))?;
        // The type of the field differs between the libraries of C.
        Ok(s.assume_init().f_type as u64)
    }
}

/// The alignment that direct I/O needs: of memory, and of offsets and lengths. `None`: unknown.
pub(super) fn direct_alignment(file: &File) -> Option<(u32, u32)> {
    let mut s = std::mem::MaybeUninit::<libc::statx>::zeroed();
    // SAFETY: the path is an empty C string, `s` is room for one struct; all zeroes is a valid value of it.
    let s = unsafe {
        let r = libc::statx(
            file.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            libc::STATX_DIOALIGN,
            s.as_mut_ptr(),
        );
        if r != 0 {
            return None;
        }
        s.assume_init()
    };
    let told = s.stx_mask & libc::STATX_DIOALIGN != 0;
    told.then_some((s.stx_dio_mem_align, s.stx_dio_offset_align))
}

/// Makes I/O through this description direct from now on.
pub(super) fn set_direct(file: &File) -> io::Result<()> {
    // SAFETY: calls without pointers.
    unsafe {
        let flags = check(libc::fcntl(file.as_raw_fd(), libc::F_GETFL))?;
        check(libc::fcntl(file.as_raw_fd(), libc::F_SETFL, flags | libc::O_DIRECT)).map(|_| ())
    }
}

/// Makes I/O through this description wait instead of returning `EAGAIN`.
pub(super) fn set_blocking(file: &File) -> io::Result<()> {
    // SAFETY: calls without pointers.
    unsafe {
        let flags = check(libc::fcntl(file.as_raw_fd(), libc::F_GETFL))?;
        check(libc::fcntl(file.as_raw_fd(), libc::F_SETFL, flags & !libc::O_NONBLOCK)).map(|_| ())
    }
}

/// A lock of one byte.
fn one_byte(at: i64, how: i32) -> libc::flock {
    // SAFETY: all zeroes is a valid value of this struct.
    let mut l: libc::flock = unsafe { std::mem::zeroed() };
    (l.l_type, l.l_whence) = (how as i16, libc::SEEK_SET as i16);
    (l.l_start, l.l_len) = (at, 1);
    l
}

/// The type of the lock of another description that conflicts with `l` (`F_OFD_GETLK`), if there is one.
fn conflict(file: &File, mut l: libc::flock) -> io::Result<Option<i32>> {
    // SAFETY: `l` is one struct for as long as the call takes, which writes into it.
    check(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &mut l) })?;
    Ok(Some(i32::from(l.l_type)).filter(|l| *l != libc::F_UNLCK))
}

/// Locks a byte for this description (`F_OFD_SETLK`, fcntl(2)): `F_RDLCK`, which descriptions share, or `F_WRLCK`, for which
/// it must be open for writing. Returns the type of a conflicting lock.
pub(super) fn lock_byte(file: &File, at: i64, how: i32) -> io::Result<Option<i32>> {
    let l = one_byte(at, how);
    for _ in 0..8 {
        // SAFETY: `l` is one struct for as long as the call takes.
        match check(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &l) }) {
            Ok(_) => return Ok(None),
            Err(e) if !matches!(e.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => {
                return Err(e);
            }
            Err(_) => {}
        }
        if let Some(other) = conflict(file, l)? {
            return Ok(Some(other));
        }
        // The conflicting lock is gone.
    }
    Ok(Some(libc::F_WRLCK))
}

/// Whether another description has a byte locked for writing (`F_OFD_GETLK`). This file may be open for reading only.
pub(super) fn is_write_locked(file: &File, at: i64) -> io::Result<bool> {
    conflict(file, one_byte(at, libc::F_RDLCK)).map(|other| other.is_some())
}

/// Reads from the page cache, up to the first page that is not in it (`RWF_NOWAIT`, preadv2(2)).
pub(super) fn read_cached(file: &File, at: u64, buf: &mut [u8]) -> io::Result<usize> {
    let v = libc::iovec { iov_base: buf.as_mut_ptr().cast(), iov_len: buf.len() };
    // SAFETY: `v` describes `buf`, which is borrowed for the call.
    let r = unsafe { libc::preadv2(file.as_raw_fd(), &v, 1, at as i64, libc::RWF_NOWAIT) };
    usize::try_from(r).map_err(|_| io::Error::last_os_error())
}

/// Switches readahead off or on (posix_fadvise(2)). It affects only the speed of readers.
pub(super) fn read_ahead(file: &File, ahead: bool) {
    let advice = if ahead { libc::POSIX_FADV_NORMAL } else { libc::POSIX_FADV_RANDOM };
    // SAFETY: a call without pointers.
    unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, advice) };
}

/// Drops clean pages of a range from the page cache (posix_fadvise(2)).
pub(super) fn forget(file: &File, at: u64, len: u64) -> io::Result<()> {
    let advice = libc::POSIX_FADV_DONTNEED;
    // SAFETY: a call without pointers.
    match unsafe { libc::posix_fadvise(file.as_raw_fd(), at as i64, len as i64, advice) } {
        0 => Ok(()),
        e => Err(io::Error::from_raw_os_error(e)),
    }
}

/// The next byte in a hole from `at` on. The end of a file counts as a hole. `None`: unknown.
pub(super) fn next_hole(file: &File, at: u64) -> Option<u64> {
    // SAFETY: a call without pointers. The file position that it moves is not used.
    let r = unsafe { libc::lseek(file.as_raw_fd(), at as i64, libc::SEEK_HOLE) };
    u64::try_from(r).ok()
}

/// The next byte from `at` on that is not in a hole. `None`: there are only holes, or it is unknown.
pub(super) fn next_data(file: &File, at: u64) -> Option<u64> {
    // SAFETY: a call without pointers. The file position that it moves is not used.
    let r = unsafe { libc::lseek(file.as_raw_fd(), at as i64, libc::SEEK_DATA) };
    u64::try_from(r).ok()
}

/// Makes a file share all blocks of another one; the kernel writes the dirty pages of that one back first (`FICLONE`,
/// ioctl_ficlone(2)). False: the file system cannot, or the files are on different ones.
pub(super) fn share(to: &File, from: &File) -> io::Result<bool> {
    // SAFETY: the argument is a descriptor, and the call writes to no memory.
    let r = unsafe { libc::ioctl(to.as_raw_fd(), libc::FICLONE, from.as_raw_fd()) };
    match check(r) {
        Ok(_) => Ok(true),
        Err(e) => match e.raw_os_error() {
            Some(libc::EOPNOTSUPP | libc::ENOTTY | libc::EXDEV | libc::EINVAL | libc::ENOSYS) => {
                Ok(false)
            }
            _ => Err(e),
        },
    }
}
