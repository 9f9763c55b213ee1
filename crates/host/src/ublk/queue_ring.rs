//! The ring of a queue, and the memory in which the kernel hands over the tags of requests in batch mode. The
//! `unsafe` code is the memory that the kernel reads and writes by itself.

use super::abi;
use super::sys::page_size;
use io_uring::{IoUring, cqueue, opcode, squeue, types};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

/// An answer of the ring.
#[derive(Debug, Clone, Copy)]
pub(super) struct RingAnswer {
    pub(super) id: u64,
    pub(super) result: i32,
    /// The buffer of tags that this answer fills.
    pub(super) buffer: Option<u16>,
    /// The command stays in the ring and will answer again.
    pub(super) more: bool,
}

/// The ring of a queue: requests of the driver and wake-ups come out of it.
pub(super) struct QueueRing(IoUring);

impl QueueRing {
    /// For the thread that calls this. A request reaches the ring only when the thread asks for it or waits
    /// (deferred task work), never in the middle of another call; a flag in the ring says meanwhile that
    /// there is one. Linux has this since 6.1.
    ///
    /// It has room for `entries` that the kernel has not taken, and for `answers` that this thread has not
    /// taken.
    pub(super) fn new(entries: u32, answers: u32) -> io::Result<QueueRing> {
        let mut builder = IoUring::builder();
        builder.setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag();
        builder.setup_cqsize(answers.max(entries).next_power_of_two());
        builder.build(entries.next_power_of_two()).map(QueueRing)
    }

    /// A command without memory: fetches a request of a tag, the first one, or the next after answering the
    /// last.
    pub(super) fn command(
        &mut self,
        char_dev: &File,
        op: u32,
        cmd: [u8; abi::IO_CMD_LEN],
        id: u64,
    ) -> io::Result<()> {
        let entry = command_entry(char_dev, op, cmd, None);
        // SAFETY: the entry points to no memory.
        unsafe { self.push(&entry.user_data(id)) }
    }

    /// A command that reads a list.
    ///
    /// # Safety
    ///
    /// The list stays where it is, and unchanged, until the command is answered.
    pub(super) unsafe fn list_command(
        &mut self,
        char_dev: &File,
        op: u32,
        cmd: [u8; abi::IO_CMD_LEN],
        list: *const u8,
        id: u64,
    ) -> io::Result<()> {
        let entry = command_entry(char_dev, op, cmd, Some(list));
        // SAFETY: by our own contract.
        unsafe { self.push(&entry.user_data(id)) }
    }

    /// A command that stays in the ring, and fills one buffer of `buffers` for each answer.
    ///
    /// # Safety
    ///
    /// `buffers` are of this ring, and are dropped only after an answer without `more`.
    pub(super) unsafe fn multishot_command(
        &mut self,
        char_dev: &File,
        op: u32,
        cmd: [u8; abi::IO_CMD_LEN],
        _buffers: &TagBuffers,
        id: u64,
    ) -> io::Result<()> {
        let entry = command_entry(char_dev, op, cmd, None);
        let entry = multishot(entry.flags(squeue::Flags::BUFFER_SELECT).user_data(id));
        // SAFETY: by our own contract.
        unsafe { self.push(&entry) }
    }

    /// Reports once when `fd` is readable.
    pub(super) fn poll(&mut self, fd: RawFd, id: u64) -> io::Result<()> {
        let entry = opcode::PollAdd::new(types::Fd(fd), libc::POLLIN as u32).build();
        // SAFETY: the entry points to no memory.
        unsafe { self.push(&entry.user_data(id)) }
    }

    /// Whether the ring has no room until its entries are handed to the kernel.
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

    /// Hands the pushed entries to the kernel without waiting, and takes what it has.
    pub(super) fn submit(&mut self) -> io::Result<()> {
        allowed(self.0.submit())
    }

    /// Hands the pushed entries to the kernel, and waits at most `most` until there are `answers`.
    pub(super) fn wait(&mut self, answers: usize, most: Option<Duration>) -> io::Result<()> {
        let Some(most) = most else { return allowed(self.0.submit_and_wait(answers)) };
        let time = types::Timespec::from(most);
        let args = types::SubmitArgs::new().timespec(&time);
        allowed(self.0.submitter().submit_with_args(answers, &args))
    }

    /// Whether there is an answer, or will be one as soon as the kernel is asked.
    pub(super) fn has_answers(&mut self) -> bool {
        !self.0.completion().is_empty() || self.0.submission().taskrun()
    }

    /// The next answer.
    pub(super) fn answer(&mut self) -> Option<RingAnswer> {
        self.0.completion().next().map(|e| RingAnswer {
            id: e.user_data(),
            result: e.result(),
            buffer: cqueue::buffer_select(e.flags()),
            more: cqueue::more(e.flags()),
        })
    }
}

/// The entry of a command of the driver, and the list that it reads.
fn command_entry(
    char_dev: &File,
    op: u32,
    cmd: [u8; abi::IO_CMD_LEN],
    list: Option<*const u8>,
) -> squeue::Entry {
    let fd = types::Fd(char_dev.as_raw_fd());
    opcode::UringCmd16::new(fd, op).cmd(cmd).addr(list.map(|list| list as u64)).build()
}

/// Makes an entry of a command one that answers more than once, with a buffer of group [`GROUP`] each time. The
/// crate has no way to say so: the entry is `struct io_uring_sqe`, with `uring_cmd_flags` at byte 28 and
/// `buf_group` at byte 40 (linux/io_uring.h).
fn multishot(entry: squeue::Entry) -> squeue::Entry {
    /// `IORING_URING_CMD_MULTISHOT`.
    const MULTISHOT: u32 = 1 << 1;
    // SAFETY: the entry is `repr(C)` around a structure of integers that has this length and no padding.
    let mut bytes: [u8; 64] = unsafe { std::mem::transmute(entry) };
    bytes[28..32].copy_from_slice(&MULTISHOT.to_ne_bytes());
    bytes[40..42].copy_from_slice(&GROUP.to_ne_bytes());
    // SAFETY: as above; each field takes any bits.
    unsafe { std::mem::transmute(bytes) }
}

/// The number by which a command names the buffers of its ring.
const GROUP: u16 = 0;
/// Number of buffers. If the kernel finds none free, the command ends and is sent again.
const BUFFERS: u16 = 16;
/// Length of a buffer in bytes: the kernel hands over 128 tags at most at a time (Linux 7.2).
const BUFFER_LEN: usize = 256;

/// Buffers that the kernel fills with the tags of requests, and the ring of those that it may use.
pub(super) struct TagBuffers {
    /// A page for the ring of free buffers, and the buffers behind it.
    memory: *mut libc::c_void,
    /// Buffers that were ever freed.
    freed: u16,
}

// SAFETY: memory of the process. The kernel writes a buffer only while it is free, and we read it only while it
// is not.
unsafe impl Send for TagBuffers {}

impl TagBuffers {
    fn len() -> usize {
        page_size() + usize::from(BUFFERS) * BUFFER_LEN
    }

    pub(super) fn new(ring: &QueueRing) -> io::Result<TagBuffers> {
        let (prot, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping at an address that the kernel chooses.
        let memory = unsafe { libc::mmap(std::ptr::null_mut(), Self::len(), prot, flags, -1, 0) };
        if memory == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let mut buffers = TagBuffers { memory, freed: 0 };
        // SAFETY: the memory begins at a page and has room for the entries. `multishot_command` has the
        // caller keep it for as long as the kernel uses it.
        unsafe {
            ring.0.submitter().register_buf_ring_with_flags(memory as u64, BUFFERS, GROUP, 0)?;
        }
        (0..BUFFERS).for_each(|id| buffers.free(id));
        Ok(buffers)
    }

    fn buffer(&self, id: u16) -> *mut u8 {
        assert!(id < BUFFERS, "a buffer of this ring");
        // SAFETY: inside of the mapping.
        unsafe { self.memory.cast::<u8>().add(page_size() + usize::from(id) * BUFFER_LEN) }
    }

    /// The tags in the first `len` bytes of a buffer that the kernel has filled.
    pub(super) fn tags(&self, id: u16, len: usize) -> impl Iterator<Item = u16> {
        let from = self.buffer(id).cast::<u16>();
        // SAFETY: inside of the buffer, which the kernel does not write until it is freed. The mapping is
        // aligned.
        (0..len.min(BUFFER_LEN) / 2).map(move |i| unsafe { from.add(i).read() })
    }

    /// Lets the kernel fill a buffer again.
    pub(super) fn free(&mut self, id: u16) {
        let base = self.memory.cast::<types::BufRingEntry>();
        let buffer = self.buffer(id) as u64;
        // SAFETY: an entry of the ring that the kernel does not read until the tail is past it.
        let entry = unsafe { &mut *base.add(usize::from(self.freed % BUFFERS)) };
        entry.set_addr(buffer);
        entry.set_len(BUFFER_LEN as u32);
        entry.set_bid(id);
        self.freed = self.freed.wrapping_add(1);
        // SAFETY: the tail of the ring is a field of its first entry, and the kernel reads it as an atomic.
        let tail = unsafe { AtomicU16::from_ptr(types::BufRingEntry::tail(base).cast_mut()) };
        tail.store(self.freed, Ordering::Release);
    }
}

impl Drop for TagBuffers {
    fn drop(&mut self) {
        // SAFETY: mapped above with this length.
        unsafe { libc::munmap(self.memory, Self::len()) };
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
