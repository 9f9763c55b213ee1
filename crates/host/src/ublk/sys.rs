//! System calls of this room. All that is `unsafe` here is the call itself, and the promise to the kernel that what an entry of
//! a ring points to outlives it.

use super::abi::{self, IO_DESC_LEN, IoDesc};
use io_uring::{IoUring, cqueue, opcode, squeue, types};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::AtomicU64;
use std::time::Duration;
use zoneplug_buf::{AlignedBuf, IoBuf};

type RingOfControl = IoUring<squeue::Entry128, cqueue::Entry>;

/// The ring that control commands go through: they need the long entries. The kernel runs a command on a thread of its own, which
/// goes on whatever becomes of the wait for it: so the memory that a command reads or fills is the ring's, and outlives it.
pub(super) struct ControlRing {
    /// `None` after a wait that failed: the next command makes a new one.
    ring: Option<RingOfControl>,
    /// The number of the last command. An answer with another one is not its answer.
    last: u64,
}

/// What hands entries to the kernel and waits for an answer; tests put errors in its place.
type Enter = fn(&RingOfControl) -> io::Result<usize>;

fn enter(ring: &RingOfControl) -> io::Result<usize> {
    ring.submit_and_wait(1)
}

impl ControlRing {
    pub(super) fn new() -> io::Result<ControlRing> {
        Ok(ControlRing { ring: Some(Self::build()?), last: 0 })
    }

    fn build() -> io::Result<RingOfControl> {
        RingOfControl::builder().build(4)
    }

    /// Sends one command with the memory that it reads or fills, and waits for its answer.
    pub(super) fn call(
        &mut self,
        file: &File,
        op: u32,
        mut cmd: abi::CtrlCmd,
        buf: &mut [u8],
    ) -> io::Result<()> {
        let fd = types::Fd(file.as_raw_fd());
        self.run(buf, enter, |at, len| {
            if len > 0 {
                (cmd.addr, cmd.len) = (at as u64, len as u16);
            }
            opcode::UringCmd80::new(fd, op).cmd(cmd.encode()).build()
        })
        .map(|_| ())
    }

    /// Sends the entry that `make` makes of memory with what is in `buf`, and waits for its answer: the memory is copied back then.
    /// After any error but the command's own it is the kernel's for good, and so is the ring.
    fn run(
        &mut self,
        buf: &mut [u8],
        enter: Enter,
        make: impl FnOnce(*mut u8, usize) -> squeue::Entry128,
    ) -> io::Result<i32> {
        let mut ring = match self.ring.take() {
            Some(ring) => ring,
            None => Self::build()?,
        };
        self.last += 1;
        // Never freed but below: a pointer, so that nothing that moves here invalidates it.
        let (memory, len) = (Box::into_raw(Box::<[u8]>::from(&*buf)), buf.len());
        let entry = make(memory.cast(), len).user_data(self.last);
        let result = Self::wait(&mut ring, &entry, self.last, enter)?;
        self.ring = Some(ring);
        // SAFETY: of `into_raw` above, and the kernel has answered: it is done with it.
        let memory = unsafe { Box::from_raw(memory) };
        buf.copy_from_slice(&memory);
        if result < 0 {
            return Err(io::Error::from_raw_os_error(-result));
        }
        Ok(result)
    }

    /// Returns the result of the command, or what hindered the wait: then the command may still be under way.
    fn wait(
        ring: &mut RingOfControl,
        entry: &squeue::Entry128,
        number: u64,
        enter: Enter,
    ) -> io::Result<i32> {
        // SAFETY: what it points to is freed only when its answer has come.
        let pushed = unsafe { ring.submission().push(entry) };
        pushed.map_err(|_| io::Error::from(io::ErrorKind::WouldBlock))?;
        loop {
            let entered = enter(ring);
            let own = ring.completion().find(|answer| answer.user_data() == number);
            if let Some(answer) = own {
                return Ok(answer.result());
            }
            match entered {
                Err(e) if e.kind() != io::ErrorKind::Interrupted => return Err(e),
                _ => {}
            }
        }
    }
}

/// The descriptors of a queue's requests, which the driver writes.
pub(super) struct Descriptors {
    ptr: *mut libc::c_void,
    len: usize,
    depth: u16,
}

// SAFETY: shared memory of the process; only read, and by copying.
unsafe impl Send for Descriptors {}

impl Descriptors {
    pub(super) fn map(char_dev: &File, queue: u16, depth: u16) -> io::Result<Descriptors> {
        let len = (usize::from(depth) * IO_DESC_LEN).next_multiple_of(page_size());
        let at = (u64::from(queue) * abi::DESCRIPTORS_STRIDE) as libc::off_t;
        let (prot, flags) = (libc::PROT_READ, libc::MAP_SHARED | libc::MAP_POPULATE);
        // SAFETY: a new mapping at an address that the kernel chooses.
        let ptr =
            unsafe { libc::mmap(std::ptr::null_mut(), len, prot, flags, char_dev.as_raw_fd(), at) };
        if ptr == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Descriptors { ptr, len, depth })
    }

    /// The request of a tag that the driver has handed over.
    pub(super) fn get(&self, tag: u16) -> IoDesc {
        assert!(tag < self.depth, "a tag of this queue");
        let mut b = [0; IO_DESC_LEN];
        // SAFETY: inside the mapping, which is as long as `depth` descriptors; the driver writes one only before it hands the
        // tag over.
        unsafe {
            let from = self.ptr.cast::<u8>().add(usize::from(tag) * IO_DESC_LEN);
            std::ptr::copy_nonoverlapping(from, b.as_mut_ptr(), IO_DESC_LEN);
        }
        IoDesc::decode(&b)
    }
}

impl Drop for Descriptors {
    fn drop(&mut self) {
        // SAFETY: mapped above with this length.
        unsafe { libc::munmap(self.ptr, self.len) };
    }
}

/// A file as words that whoever maps it next finds as they were last stored, however this process ends.
pub(super) struct SharedWords {
    ptr: *mut libc::c_void,
    words: usize,
}

// SAFETY: memory of the process for as long as this is there, and handed out as atomic words only.
unsafe impl Send for SharedWords {}
// SAFETY: as above.
unsafe impl Sync for SharedWords {}

impl SharedWords {
    /// Gives `file` a length, and the memory for it, so that no store finds that there is none left.
    pub(super) fn allocate(file: &File, words: usize) -> io::Result<()> {
        // SAFETY: a call without pointers.
        match unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, (words * 8) as libc::off_t) } {
            0 => Ok(()),
            e => Err(io::Error::from_raw_os_error(e)),
        }
    }

    /// Maps `file`, which must be as long as that.
    pub(super) fn map(file: &File, words: usize) -> io::Result<SharedWords> {
        let len = words * 8;
        if words == 0 || file.metadata()?.len() != len as u64 {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "another length"));
        }
        let (prot, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_POPULATE);
        // SAFETY: a new mapping at an address that the kernel chooses.
        let ptr =
            unsafe { libc::mmap(std::ptr::null_mut(), len, prot, flags, file.as_raw_fd(), 0) };
        if ptr == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // Not to be swapped out and waited for. Where it may not be held it usually is there all the same.
        // SAFETY: the mapping above.
        unsafe { libc::mlock(ptr, len) };
        Ok(SharedWords { ptr, words })
    }

    pub(super) fn words(&self) -> &[AtomicU64] {
        // SAFETY: a mapping of this length that begins at a page, borrowed for as long as it is there; other processes that have
        // it store whole words too.
        unsafe { std::slice::from_raw_parts(self.ptr.cast::<AtomicU64>(), self.words) }
    }
}

impl Drop for SharedWords {
    fn drop(&mut self) {
        // SAFETY: mapped above with this length.
        unsafe { libc::munmap(self.ptr, self.words * 8) };
    }
}

/// Who this process is to the file system.
pub(super) fn user() -> u32 {
    // SAFETY: a call without pointers.
    unsafe { libc::geteuid() }
}

/// Whether a file is in memory, so that a page of it never waits for a disk (tmpfs, ramfs).
pub(super) fn is_in_memory(file: &File) -> io::Result<bool> {
    const RAMFS_MAGIC: u64 = 0x8584_58f6;
    let mut s = std::mem::MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: the structure outlives the call, which fills it.
    if unsafe { libc::fstatfs(file.as_raw_fd(), s.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: filled by the call, which did not fail.
    let kind = unsafe { s.assume_init() }.f_type as u64;
    Ok(kind == libc::TMPFS_MAGIC as u64 || kind == RAMFS_MAGIC)
}

/// Keeps this thread, and those that it starts, from waiting for the I/O that they serve: when memory is short the kernel would
/// have them write out pages, of their own block device too (`PR_SET_IO_FLUSHER`, prctl(2)). Without the capability for it
/// nothing changes.
pub(super) fn never_write_out_pages() {
    // linux/prctl.h; the libc crate has no name for it.
    const PR_SET_IO_FLUSHER: libc::c_int = 57;
    // SAFETY: a call without pointers.
    unsafe { libc::prctl(PR_SET_IO_FLUSHER, 1 as libc::c_ulong, 0, 0, 0) };
}

pub(super) fn page_size() -> usize {
    // SAFETY: a call without pointers.
    let n = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(n).unwrap_or(4096)
}

/// Lends a buffer to a BIO.
///
/// # Safety
///
/// The buffer is kept, and not looked at, until the BIO has come back and is not late.
pub(super) unsafe fn lend(buf: &AlignedBuf, len: u32) -> IoBuf {
    // SAFETY: the caller's promise.
    unsafe { buf.io() }.slice(0, len)
}

/// Which way data of a request move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// From the request into the buffer.
    Fetch,
    /// From the buffer into the request.
    Store,
}

/// Copies the first `len` bytes between a buffer and the request whose data are at `at`.
pub(super) fn copy(
    char_dev: &File,
    way: Way,
    at: u64,
    buf: &mut AlignedBuf,
    len: u32,
) -> io::Result<()> {
    // SAFETY: the buffer is borrowed for longer than the list of its pieces is used.
    let Some(piece) = unsafe { buf.io() }.slice(0, len).segments().next() else { return Ok(()) };
    let mut moved = 0;
    while moved < piece.len {
        let (fd, left) = (char_dev.as_raw_fd(), piece.len - moved);
        let at = (at + moved as u64) as libc::off_t;
        let ptr = piece.ptr.wrapping_add(moved).cast::<libc::c_void>();
        // SAFETY: `left` bytes from `ptr` on are of the buffer.
        let n = unsafe {
            match way {
                Way::Fetch => libc::pread(fd, ptr, left, at),
                Way::Store => libc::pwrite(fd, ptr, left, at),
            }
        };
        match n {
            1.. => moved += n as usize,
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            _ => match io::Error::last_os_error() {
                e if e.kind() == io::ErrorKind::Interrupted => {}
                e => return Err(e),
            },
        }
    }
    Ok(())
}

/// The ring of a queue: what the driver hands over comes out of it, and so do wake-ups.
pub(super) struct QueueRing(IoUring);

impl QueueRing {
    /// For the thread that calls this. What the driver hands over reaches the ring when the thread asks for it or waits (deferred
    /// task work), never in the middle of another call; that there is something stands in the ring meanwhile. Linux has all of
    /// this since 6.1.
    pub(super) fn new(depth: u16) -> io::Result<QueueRing> {
        // A commit for each tag and two polls.
        let entries = (u32::from(depth) + 2).next_power_of_two();
        let mut builder = IoUring::builder();
        builder.setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag();
        builder.build(entries).map(QueueRing)
    }

    /// Fetches the first request of a tag, or the next one after the result of the last.
    pub(super) fn command(
        &mut self,
        char_dev: &File,
        op: u32,
        cmd: [u8; abi::IO_CMD_LEN],
        id: u64,
    ) -> io::Result<()> {
        let fd = types::Fd(char_dev.as_raw_fd());
        self.push(&opcode::UringCmd16::new(fd, op).cmd(cmd).build().user_data(id))
    }

    /// Tells once when `fd` is readable.
    pub(super) fn poll(&mut self, fd: RawFd, id: u64) -> io::Result<()> {
        let entry = opcode::PollAdd::new(types::Fd(fd), libc::POLLIN as u32).build();
        self.push(&entry.user_data(id))
    }

    /// Whether there is no room for an entry until those before it are handed to the kernel.
    pub(super) fn is_full(&mut self) -> bool {
        self.0.submission().is_full()
    }

    fn push(&mut self, entry: &squeue::Entry) -> io::Result<()> {
        // SAFETY: the entries of this room point to no memory.
        unsafe { self.0.submission().push(entry) }
            .map_err(|_| io::Error::from(io::ErrorKind::WouldBlock))
    }

    /// Hands what was pushed to the kernel, without waiting; takes what it has meanwhile.
    pub(super) fn submit(&mut self) -> io::Result<()> {
        allowed(self.0.submit())
    }

    /// Hands what was pushed to the kernel, and waits for an answer, at most `most`.
    pub(super) fn wait(&mut self, most: Option<Duration>) -> io::Result<()> {
        let Some(most) = most else { return allowed(self.0.submit_and_wait(1)) };
        let time = types::Timespec::from(most);
        let args = types::SubmitArgs::new().timespec(&time);
        allowed(self.0.submitter().submit_with_args(1, &args))
    }

    /// Whether there is an answer, or will be as soon as the kernel is asked.
    pub(super) fn has_answers(&mut self) -> bool {
        !self.0.completion().is_empty() || self.0.submission().taskrun()
    }

    /// The next answer: its id and its result.
    pub(super) fn answer(&mut self) -> Option<(u64, i32)> {
        self.0.completion().next().map(|e| (e.user_data(), e.result()))
    }
}

/// Errors that only say that the wait is over.
fn allowed(r: io::Result<usize>) -> io::Result<()> {
    match r {
        Err(e) if !matches!(e.raw_os_error(), Some(libc::EINTR | libc::ETIME | libc::EBUSY)) => {
            Err(e)
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    /// Reads from a pipe as a control command would fill its memory, and says what came.
    fn read(ring: &mut ControlRing, pipe: &impl AsRawFd, enter: Enter) -> io::Result<[u8; 4]> {
        let (fd, mut buf) = (types::Fd(pipe.as_raw_fd()), [0; 4]);
        let read = |at, len| opcode::Read::new(fd, at, len as u32).build().into();
        ring.run(&mut buf, enter, read)?;
        Ok(buf)
    }

    /// The kernel has the command, and the wait for it fails: what the command fills is not anybody else's memory by then, and
    /// its answer is not the next command's.
    #[test]
    fn a_command_that_is_under_way_when_the_wait_fails_is_not_mixed_up_with_the_next() {
        let mut ring = match ControlRing::new() {
            Ok(ring) => ring,
            // Sandboxes forbid rings.
            Err(e) => return println!("skipped: {e}"),
        };
        let (late, mut into_late) = io::pipe().unwrap();
        let (next, mut into_next) = io::pipe().unwrap();
        let taken_and_failed: Enter = |ring| {
            ring.submit()?;
            Err(io::Error::from_raw_os_error(libc::EBADR))
        };
        let refused: Enter = |_| Err(io::Error::from_raw_os_error(libc::EAGAIN));
        for fails in [taken_and_failed, refused] {
            let e = read(&mut ring, &late, fails).unwrap_err();
            assert!(matches!(e.raw_os_error(), Some(libc::EBADR | libc::EAGAIN)), "{e}");
        }
        into_late.write_all(b"late").unwrap();
        // The next command takes longer than the answer that is left over.
        let writer = std::thread::spawn(move || {
            for word in [b"next", b"more"] {
                std::thread::sleep(Duration::from_millis(50));
                into_next.write_all(word).unwrap();
            }
        });
        assert_eq!(&read(&mut ring, &next, enter).unwrap(), b"next");
        assert_eq!(&read(&mut ring, &next, enter).unwrap(), b"more");
        writer.join().unwrap();
    }

    /// An error of the command itself leaves the ring as it is.
    #[test]
    fn a_command_that_fails_is_told_by_its_own_error() {
        let Ok(mut ring) = ControlRing::new() else { return };
        let file = File::open("/proc/self/stat").unwrap();
        let e = ring.call(&file, abi::GET_FEATURES, abi::CtrlCmd::default(), &mut [0; 8]);
        assert!(e.unwrap_err().raw_os_error().is_some());
        assert!(ring.ring.is_some());
    }
}
