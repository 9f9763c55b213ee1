//! The ring of a queue. The `unsafe` code passes entries to the kernel that point to no memory.

use super::abi;
use io_uring::{IoUring, opcode, squeue, types};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;

/// An answer of the ring.
#[derive(Debug, Clone, Copy)]
pub(super) struct RingAnswer {
    pub(super) id: u64,
    pub(super) result: i32,
}

/// The ring of a queue: it delivers requests of the driver and wake-ups.
pub(super) struct QueueRing(IoUring);

impl QueueRing {
    /// A ring for the calling thread. A request reaches the ring only when the thread asks for it or waits (deferred
    /// task work, since Linux 6.1), never in the middle of another call; meanwhile a flag in the ring says that there
    /// is one.
    ///
    /// The ring has room for `entries` that the kernel has not taken, and for `answers` that this thread has not
    /// taken.
    pub(super) fn new(entries: u32, answers: u32) -> io::Result<QueueRing> {
        let mut builder = IoUring::builder();
        builder.setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag();
        builder.setup_cqsize(answers.max(entries).next_power_of_two());
        builder.build(entries.next_power_of_two()).map(QueueRing)
    }

    /// A command without memory: answers the last request of a tag, if there was one, and fetches the next.
    pub(super) fn command(
        &mut self,
        char_dev: &File,
        op: u32,
        cmd: [u8; abi::IO_CMD_LEN],
        id: u64,
    ) -> io::Result<()> {
        let fd = types::Fd(char_dev.as_raw_fd());
        let entry = opcode::UringCmd16::new(fd, op).cmd(cmd).build();
        // SAFETY: the entry points to no memory.
        unsafe { self.push(&entry.user_data(id)) }
    }

    /// Reports once when `fd` is readable.
    pub(super) fn poll(&mut self, fd: RawFd, id: u64) -> io::Result<()> {
        let entry = opcode::PollAdd::new(types::Fd(fd), libc::POLLIN as u32).build();
        // SAFETY: the entry points to no memory.
        unsafe { self.push(&entry.user_data(id)) }
    }

    /// Whether the ring has no room until its entries are passed to the kernel.
    pub(super) fn is_full(&mut self) -> bool {
        self.0.submission().is_full()
    }

    /// # Safety
    ///
    /// The memory that the entry points to outlives its answer.
    unsafe fn push(&mut self, entry: &squeue::Entry) -> io::Result<()> {
        // SAFETY: by our own contract.
        unsafe { self.0.submission().push(entry) }
            .map_err(|_| io::Error::from(io::ErrorKind::WouldBlock))
    }

    /// Passes the pushed entries to the kernel without waiting, and takes its answers.
    pub(super) fn submit(&mut self) -> io::Result<()> {
        allowed(self.0.submit())
    }

    /// Passes the pushed entries to the kernel, and waits at most `most` for an answer.
    pub(super) fn wait(&mut self, most: Option<Duration>) -> io::Result<()> {
        let Some(most) = most else { return allowed(self.0.submit_and_wait(1)) };
        let time = types::Timespec::from(most);
        let args = types::SubmitArgs::new().timespec(&time);
        allowed(self.0.submitter().submit_with_args(1, &args))
    }

    /// Whether there is an answer now, or will be one at the next call of the kernel.
    pub(super) fn has_answers(&mut self) -> bool {
        !self.0.completion().is_empty() || self.0.submission().taskrun()
    }

    /// The next answer.
    pub(super) fn answer(&mut self) -> Option<RingAnswer> {
        self.0.completion().next().map(|e| RingAnswer { id: e.user_data(), result: e.result() })
    }
}

/// Ignores errors that only end the wait.
fn allowed(r: io::Result<usize>) -> io::Result<()> {
    match r {
        Err(e) if !matches!(e.raw_os_error(), Some(libc::EINTR | libc::ETIME | libc::EBUSY)) => {
            Err(e)
        }
        _ => Ok(()),
    }
}
