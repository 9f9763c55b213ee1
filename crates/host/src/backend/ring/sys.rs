//! System calls that the standard library does not have, and the memory of commands as lists for vectored I/O. The only
//! `unsafe` code is the calls; pointers come from slices and lent buffers.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use zoneplug_buf::{IoBuf, Segment};

/// Most segments of one vectored call (`UIO_MAXIOV`).
pub(super) const MAX_SEGMENTS: usize = 1024;

/// The error of a call that returned a negative number.
pub(crate) fn check(r: i32) -> io::Result<i32> {
    if r < 0 { Err(io::Error::last_os_error()) } else { Ok(r) }
}

/// The memory of a command as a list for vectored I/O. `Segment` is laid out as `struct iovec` is.
#[derive(Debug, Default)]
pub(crate) struct Segments(Vec<Segment>);

const _: () = assert!(size_of::<Segment>() == size_of::<libc::iovec>());

// SAFETY: addresses of lent memory, which `IoBuf` (itself `Send`) allows any thread to use until the I/O completes.
unsafe impl Send for Segments {}

impl Segments {
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Appends `len` bytes of `buf` from `offset` on. Pieces that are neighbours in memory become one. The caller keeps
    /// the buffer until the last system call that uses the list.
    pub(crate) fn push(&mut self, buf: &IoBuf, offset: u32, len: u32) {
        // SAFETY: the addresses go into a list; no code here reads or writes the memory.
        for s in unsafe { buf.segments(offset, len) } {
            if !self.0.last_mut().is_some_and(|last| joins(last, s)) {
                self.0.push(s);
            }
        }
    }

    /// Appends a piece.
    pub(crate) fn push_piece(&mut self, s: Segment) {
        self.0.push(s);
    }

    /// Removes the first `n` bytes, which have moved.
    pub(crate) fn advance(&mut self, n: usize) {
        let gone = skip(&mut self.0, n);
        self.0.drain(..gone);
    }

    pub(crate) fn as_slice(&self) -> &[Segment] {
        &self.0
    }

    /// Whether addresses are multiples of `memory` and lengths are multiples of `length`, as direct I/O needs.
    pub(crate) fn is_aligned(&self, memory: usize, length: usize) -> bool {
        self.0
            .iter()
            .all(|s| (s.ptr as usize).is_multiple_of(memory) && s.len.is_multiple_of(length))
    }
}

/// Makes `s` a part of `last` if it follows in memory.
fn joins(last: &mut Segment, s: Segment) -> bool {
    let follows = last.ptr.wrapping_add(last.len) == s.ptr;
    last.len += if follows { s.len } else { 0 };
    follows
}

/// Removes the first `n` bytes of a list. Returns the number of pieces that are gone.
fn skip(list: &mut [Segment], mut n: usize) -> usize {
    for (gone, s) in list.iter_mut().enumerate() {
        if s.len > n {
            s.ptr = s.ptr.wrapping_add(n);
            s.len -= n;
            return gone;
        }
        n -= s.len;
    }
    list.len()
}

/// Moves the memory of `bufs`, in this thread. If it is one piece, as it usually is, no list is allocated.
pub(crate) fn transfer_now(
    fd: RawFd,
    write: bool,
    at: u64,
    bufs: &mut dyn Iterator<Item = (IoBuf, u32)>,
) -> io::Result<()> {
    let mut list: Vec<Segment> = Vec::new();
    let mut last: Option<Segment> = None;
    for (buf, len) in bufs {
        // SAFETY: `bufs` are lent for this call, to be written where `write` is false.
        for s in unsafe { buf.segments(0, len) } {
            if !last.as_mut().is_some_and(|last| joins(last, s)) {
                list.extend(last.replace(s));
            }
        }
    }
    if list.is_empty() {
        return transfer_list(fd, write, at, last.as_mut_slice());
    }
    list.extend(last);
    transfer_list(fd, write, at, &mut list)
}

/// `preadv` or `pwritev` until all has moved.
fn transfer_list(fd: RawFd, write: bool, mut at: u64, list: &mut [Segment]) -> io::Result<()> {
    let mut gone = 0;
    while gone < list.len() {
        let left = &mut list[gone..];
        let n = left.len().min(MAX_SEGMENTS) as i32;
        let ptr = left.as_ptr().cast::<libc::iovec>();
        // SAFETY: `ptr` points to `n` iovecs of lent memory, which outlives the command and thus this call.
        let moved = unsafe {
            if write {
                libc::pwritev(fd, ptr, n, at as i64)
            } else {
                libc::preadv(fd, ptr, n, at as i64)
            }
        };
        match moved {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            1.. => {
                at += moved as u64;
                gone += skip(left, moved as usize);
            }
            _ => match io::Error::last_os_error() {
                e if e.kind() == io::ErrorKind::Interrupted => {}
                e => return Err(e),
            },
        }
    }
    Ok(())
}

/// An epoll instance.
#[derive(Debug)]
pub(crate) struct Epoll(OwnedFd);

impl Epoll {
    pub(crate) fn new() -> io::Result<Epoll> {
        // SAFETY: a call without pointers; the descriptor is ours alone.
        unsafe {
            let fd = check(libc::epoll_create1(libc::EPOLL_CLOEXEC))?;
            Ok(Epoll(OwnedFd::from_raw_fd(fd)))
        }
    }

    /// Makes `wait` return `id` once, when `fd` is readable, which may be now.
    pub(crate) fn once(&self, fd: RawFd, id: u64, first: bool) -> io::Result<()> {
        let op = if first { libc::EPOLL_CTL_ADD } else { libc::EPOLL_CTL_MOD };
        let mut e =
            libc::epoll_event { events: (libc::EPOLLIN | libc::EPOLLONESHOT) as u32, u64: id };
        // SAFETY: `e` lives across the call.
        check(unsafe { libc::epoll_ctl(self.0.as_raw_fd(), op, fd, &mut e) }).map(|_| ())
    }

    /// Waits for a descriptor of `once` to become readable. Returns its id.
    pub(crate) fn wait(&self) -> Option<u64> {
        let mut e = libc::epoll_event { events: 0, u64: 0 };
        // SAFETY: room for one event.
        let n = unsafe { libc::epoll_wait(self.0.as_raw_fd(), &mut e, 1, -1) };
        (n == 1).then_some(e.u64)
    }
}
