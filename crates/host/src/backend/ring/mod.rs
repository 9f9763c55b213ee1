//! io_uring for every device of this crate: rings, the thread that wakes sleeping queues, and threads for what would
//! block.
//!
//! Owns the rings, whatever the size of their entries, and the queue that drives and durable files share (`slots.rs`).
//! That queue keeps memory and segment lists until the kernel has answered. Knows nothing of disks or zones.

mod completions;
mod epoll_waker;
mod pool;
mod slots;
mod sys;

pub(crate) use completions::{Completions, Reply};
pub(crate) use epoll_waker::EpollWaker;
pub(crate) use pool::{Job, Mailbox, Pool, Worker};
pub(crate) use slots::{RingSlot, RingSlots, SlotQueue, Steps};
use sys::MAX_SEGMENTS;
pub(crate) use sys::{Segments, check, transfer_now};

use io_uring::{IoUring, cqueue, opcode, squeue, types::Fd};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use zoneplug_core::Error;

/// Refuses a queue that could take no command.
pub(crate) fn check_depth(depth: u16) -> Result<(), Error> {
    match depth {
        0 => Err(Error::invalid("a queue of depth 0")
            .hint("a queue takes 1 to 65535 commands at a time")),
        _ => Ok(()),
    }
}

/// An entry of a completion queue.
pub(crate) trait RingCqe: cqueue::EntryMarker + Send {
    /// A number of bytes or a negative errno; for a passthrough command its status.
    fn result(&self) -> i32;

    /// The result of a passthrough command, for which only a large entry has room.
    fn extra(&self) -> u64;
}

impl RingCqe for cqueue::Entry {
    fn result(&self) -> i32 {
        cqueue::Entry::result(self)
    }

    fn extra(&self) -> u64 {
        0
    }
}

impl RingCqe for cqueue::Entry32 {
    fn result(&self) -> i32 {
        cqueue::Entry32::result(self)
    }

    fn extra(&self) -> u64 {
        self.big_cqe()[0]
    }
}

/// The kernel's answer to an operation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RingAnswer {
    /// The id with which the operation was begun.
    pub(crate) id: u64,
    /// See [`RingCqe::result`].
    pub(crate) result: i32,
    /// See [`RingCqe::extra`].
    pub(crate) extra: u64,
}

/// A ring, and the number of operations on it.
pub(crate) struct Ring<S = squeue::Entry, C = cqueue::Entry>
where
    S: squeue::EntryMarker,
    C: cqueue::EntryMarker,
{
    ring: IoUring<S, C>,
    in_flight: u32,
    /// There are entries that the kernel has not taken yet.
    unsent: bool,
}

impl<S: squeue::EntryMarker, C: cqueue::EntryMarker> std::fmt::Debug for Ring<S, C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring").field("in_flight", &self.in_flight).finish_non_exhaustive()
    }
}

/// An entry that moves the memory of `s`, or its first [`MAX_SEGMENTS`] pieces, to or from `at`. The answer says how
/// many bytes moved.
pub(crate) fn transfer(fd: RawFd, write: bool, at: u64, s: &Segments, flags: i32) -> squeue::Entry {
    let list = s.as_slice();
    let fd = Fd(fd);
    match list {
        [one] if write => {
            opcode::Write::new(fd, one.ptr, one.len as u32).offset(at).rw_flags(flags).build()
        }
        [one] => opcode::Read::new(fd, one.ptr, one.len as u32).offset(at).rw_flags(flags).build(),
        _ => {
            let (ptr, n) = (list.as_ptr().cast(), list.len().min(MAX_SEGMENTS) as u32);
            if write {
                opcode::Writev::new(fd, ptr, n).offset(at).rw_flags(flags).build()
            } else {
                opcode::Readv::new(fd, ptr, n).offset(at).rw_flags(flags).build()
            }
        }
    }
}

impl<S: squeue::EntryMarker, C: RingCqe> Ring<S, C> {
    /// A ring for `depth` operations. The kernel has carried one out: a filter of system calls may let a ring be made
    /// and refuse its use.
    pub(crate) fn new(depth: u16) -> io::Result<Ring<S, C>> {
        let entries = u32::from(depth).next_power_of_two();
        let mut ring = IoUring::<S, C>::builder().setup_clamp().build(entries)?;
        let nothing = opcode::Nop::new().build().into();
        // SAFETY: the operation uses no memory.
        unsafe { ring.submission().push(&nothing) }.map_err(io::Error::other)?;
        while ring.completion().next().is_none() {
            match ring.submit_and_wait(1) {
                Err(e) if e.kind() != io::ErrorKind::Interrupted => return Err(e),
                _ => {}
            }
        }
        Ok(Ring { ring, in_flight: 0, unsent: false })
    }

    /// Registers the one file that all operations use, so that the kernel need not look it up. Entries may name it as
    /// file 0, with `IOSQE_FIXED_FILE`.
    pub(crate) fn register(&self, fd: RawFd) -> bool {
        self.ring.submitter().register_files(&[fd]).is_ok()
    }

    /// Begins an operation. The answer comes with `id`.
    ///
    /// # Safety
    ///
    /// The memory that the entry points to stays valid and unchanged until that answer.
    pub(crate) unsafe fn push(&mut self, mut entry: S, id: u64) -> bool {
        entry.set_user_data(id);
        for _ in 0..2 {
            // SAFETY: by our own contract.
            if unsafe { self.ring.submission().push(&entry) }.is_ok() {
                self.in_flight += 1;
                self.unsent = true;
                return true;
            }
            self.send();
        }
        false
    }

    /// Submits the operations that were begun to the kernel.
    pub(crate) fn send(&mut self) {
        if self.unsent {
            // Entries that the kernel does not take stay in the ring for the next call.
            let sent = self.ring.submit();
            self.unsent = sent.is_err() || !self.ring.submission().is_empty();
        }
    }

    /// Whether the kernel has taken all entries.
    pub(crate) fn is_sent(&self) -> bool {
        !self.unsent
    }

    /// The next answer.
    pub(crate) fn answer(&mut self) -> Option<RingAnswer> {
        let e = self.ring.completion().next()?;
        self.in_flight -= 1;
        Some(RingAnswer { id: e.user_data(), result: e.result(), extra: e.extra() })
    }

    pub(crate) fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Waits for an answer.
    pub(crate) fn wait(&mut self) {
        if self.in_flight > 0 {
            let _ = self.ring.submit_and_wait(1);
            self.unsent = !self.ring.submission().is_empty();
        }
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.ring.as_raw_fd()
    }
}

impl<S: squeue::EntryMarker, C: cqueue::EntryMarker> Drop for Ring<S, C> {
    /// Waits for the operations in flight, because the kernel uses their memory until it has answered, and closing a
    /// ring does not wait. Usually none are left: a queue waits for its operations, unless a panic cuts its drop
    /// short.
    fn drop(&mut self) {
        while self.in_flight > 0 {
            let _ = self.ring.submit_and_wait(1);
            self.in_flight -= self.ring.completion().count() as u32;
        }
        // The kernel frees a ring some time after it was closed, and until then a registered file keeps its drive
        // busy. An error means that no file is registered.
        let _ = self.ring.submitter().unregister_files();
    }
}
