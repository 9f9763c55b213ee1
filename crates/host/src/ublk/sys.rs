//! System calls for ublk, except those of a queue (`queue_ring.rs`). The `unsafe` code is the calls, and the
//! promise that the memory of a ring entry outlives the entry.

use super::abi::{self, IO_DESC_LEN, IoDesc};
use io_uring::{IoUring, cqueue, opcode, squeue, types};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;
use zoneplug_buf::AlignedBuf;

type RingOfControl = IoUring<squeue::Entry128, cqueue::Entry>;

/// The ring for control commands, which need 128-byte entries. The kernel runs a command in a thread of its
/// own, which continues even if the wait for it fails. So the memory that a command reads or fills belongs
/// to the ring and outlives the command.
pub(super) struct ControlRing {
    /// `None` after a wait that failed. The next command makes a new ring.
    ring: Option<RingOfControl>,
    /// The number of the last command. An answer with another number belongs to an earlier command.
    last: u64,
}

/// Hands entries to the kernel and waits for an answer. Tests inject errors here.
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

    /// Runs one command with the memory that it reads or fills.
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

    /// Runs the entry that `make` builds for a copy of `buf`, and copies the result back. After an error of the wait,
    /// the kernel may keep using the memory and the ring, so both are leaked.
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
        // Freed only below. Kept as a pointer, so that no move here invalidates it.
        let (memory, len) = (Box::into_raw(Box::<[u8]>::from(&*buf)), buf.len());
        let entry = make(memory.cast(), len).user_data(self.last);
        let result = Self::wait(&mut ring, &entry, self.last, enter)?;
        self.ring = Some(ring);
        // SAFETY: from `into_raw` above, and the kernel has answered, so it no longer uses the memory.
        let memory = unsafe { Box::from_raw(memory) };
        buf.copy_from_slice(&memory);
        if result < 0 {
            return Err(io::Error::from_raw_os_error(-result));
        }
        Ok(result)
    }

    /// Returns the result of the command, or the error of the wait. After an error of the wait the command may still
    /// be under way.
    fn wait(
        ring: &mut RingOfControl,
        entry: &squeue::Entry128,
        number: u64,
        enter: Enter,
    ) -> io::Result<i32> {
        // SAFETY: the memory that the entry points to is freed only after its answer.
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

// SAFETY: shared memory of the process that is only read, by copying.
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
        // SAFETY: inside of the mapping, which has `depth` descriptors. The driver writes a descriptor only
        // before it hands over the tag.
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

/// Keeps this thread, and those that it starts, from waiting for the I/O that they serve: when memory is short the
/// kernel would make them write out pages, perhaps of their own block device (`PR_SET_IO_FLUSHER`, prctl(2)). Has no
/// effect without the capability.
pub(super) fn never_write_out_pages() {
    // From linux/prctl.h; the libc crate does not define it.
    const PR_SET_IO_FLUSHER: libc::c_int = 57;
    // SAFETY: a call without pointers.
    unsafe { libc::prctl(PR_SET_IO_FLUSHER, 1 as libc::c_ulong, 0, 0, 0) };
}

pub(super) fn page_size() -> usize {
    // SAFETY: a call without pointers.
    let n = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(n).unwrap_or(4096)
}

/// Waits at most `most` until one of `fds` is readable. Returns the readable ones.
pub(super) fn wait_readable(
    fds: impl Iterator<Item = RawFd>,
    most: Option<Duration>,
) -> io::Result<Vec<RawFd>> {
    let of = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    let mut list: Vec<libc::pollfd> = fds.map(of).collect();
    let millis = most.map_or(-1, |d| d.as_millis().max(1) as i32);
    // SAFETY: the list has this length and outlives the call.
    if unsafe { libc::poll(list.as_mut_ptr(), list.len() as libc::nfds_t, millis) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(list.iter().filter(|p| p.revents != 0).map(|p| p.fd).collect())
}

/// The direction of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CopyDirection {
    /// Copy from the request into the buffer.
    Fetch,
    /// Copy from the buffer into the request.
    Store,
}

/// Copies the first `len` bytes between a buffer and the request whose data is at `at`.
pub(super) fn copy(
    char_dev: &File,
    direction: CopyDirection,
    at: u64,
    buf: &mut AlignedBuf,
    len: u32,
) -> io::Result<()> {
    let len = len.min(buf.len()) as usize;
    let mut moved = 0;
    while moved < len {
        let (fd, left) = (char_dev.as_raw_fd(), len - moved);
        let at = (at + moved as u64) as libc::off_t;
        let ptr = buf.as_mut_ptr().wrapping_add(moved).cast::<libc::c_void>();
        // SAFETY: `left` bytes from `ptr` on belong to the buffer.
        let n = unsafe {
            match direction {
                CopyDirection::Fetch => libc::pread(fd, ptr, left, at),
                CopyDirection::Store => libc::pwrite(fd, ptr, left, at),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recovery::shared_words::tests::is_mapped;
    use std::io::Write;

    /// Reads from a pipe in the way a control command fills its memory, and returns the bytes.
    fn read(ring: &mut ControlRing, pipe: &impl AsRawFd, enter: Enter) -> io::Result<[u8; 4]> {
        let (fd, mut buf) = (types::Fd(pipe.as_raw_fd()), [0; 4]);
        let read = |at, len| opcode::Read::new(fd, at, len as u32).build().into();
        ring.run(&mut buf, enter, read)?;
        Ok(buf)
    }

    /// The kernel has the command and the wait fails. The memory that the command fills must not be reused, and its
    /// answer must not be taken for that of the next command.
    #[test]
    fn a_command_that_is_under_way_when_the_wait_fails_is_not_mixed_up_with_the_next() {
        let mut ring = match ControlRing::new() {
            Ok(ring) => ring,
            // Sandboxes forbid io_uring.
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
        // The next command takes longer than the stale answer.
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

    /// An error of the command itself leaves the ring intact.
    #[test]
    fn a_command_that_fails_is_told_by_its_own_error() {
        let Ok(mut ring) = ControlRing::new() else { return };
        let file = File::open("/proc/self/stat").unwrap();
        let e = ring.call(&file, abi::GET_FEATURES, abi::CtrlCmd::default(), &mut [0; 8]);
        assert!(e.unwrap_err().raw_os_error().is_some());
        assert!(ring.ring.is_some());
    }

    /// A queue that has ended leaves no memory of its requests behind.
    #[test]
    fn the_descriptors_of_a_queue_go_with_it() {
        let path = std::env::temp_dir().join(format!("zoneplug-queue-{}", std::process::id()));
        // Any file can stand in for the driver's.
        let mut file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .unwrap();
        file.write_all(&[0; 16 << 10]).unwrap();
        let descriptors = Descriptors::map(&file, 0, 512).unwrap();
        assert!(is_mapped(&path));
        drop(descriptors);
        assert!(!is_mapped(&path));
        std::fs::remove_file(&path).unwrap();
    }
}
