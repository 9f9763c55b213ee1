//! The sleep of a client's thread: until a waker wakes it, or until a descriptor of its device is readable. With a
//! descriptor the kernel wakes the thread directly, which saves microseconds over a thread in between. A program with
//! an event loop of its own sleeps on a [`WakeFd`]. Owns the system calls; knows nothing of disks.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Wake;
use std::time::Duration;

/// The interval at which a sleeper polls if it has no event counter, because the process has too many files open.
const BLIND: Duration = Duration::from_micros(200);

/// An event counter (eventfd(2)) that is readable once it was raised.
pub(crate) fn eventfd() -> io::Result<File> {
    // SAFETY: a call without pointers.
    let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new, hence ours alone.
    Ok(unsafe { File::from_raw_fd(fd) })
}

/// Wakes a sleeping client.
#[derive(Debug)]
pub(crate) struct Alarm {
    event: Option<File>,
}

impl Alarm {
    pub(crate) fn new() -> Arc<Alarm> {
        Arc::new(Alarm { event: eventfd().ok() })
    }

    /// Sleeps until a wake since the last sleep, until `fd` is readable, or until `timeout` has passed. May return
    /// early.
    pub(crate) fn sleep(&self, fd: Option<RawFd>, timeout: Option<Duration>) {
        let timeout =
            if self.event.is_some() { timeout } else { Some(timeout.unwrap_or(BLIND).min(BLIND)) };
        let of = |fd: Option<RawFd>| libc::pollfd {
            // poll(2) ignores negative descriptors.
            fd: fd.unwrap_or(-1),
            events: libc::POLLIN,
            revents: 0,
        };
        let mut fds = [of(self.event.as_ref().map(AsRawFd::as_raw_fd)), of(fd)];
        let time = timeout.map(|t| libc::timespec {
            // 68 years are enough, whatever the width of this type on a platform.
            tv_sec: t.as_secs().try_into().unwrap_or(i32::MAX.into()),
            tv_nsec: t.subsec_nanos().into(),
        });
        let time = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: `fds` has two elements, and `time` is null or points to a timespec; both live across the call.
        unsafe { libc::ppoll(fds.as_mut_ptr(), 2, time, std::ptr::null()) };
        if let Some(mut event) = self.event.as_ref().filter(|_| fds[0].revents != 0) {
            // Resets the counter to 0. The read fails only if it is 0 already.
            let _ = event.read(&mut [0; 8]);
        }
    }
}

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        if let Some(mut event) = self.event.as_ref() {
            let _ = event.write(&1u64.to_ne_bytes());
        }
    }
}

/// A descriptor that a [`Waker`](std::task::Waker) makes readable, for a program that sleeps in epoll or in another
/// language's event loop.
///
/// Give its waker to [`Client::arm`](crate::Client::arm), poll the client once more, and sleep until the descriptor is
/// readable. Call [`clear`](WakeFd::clear) before the next poll of the client.
///
/// ```
/// use zoneplug_core::{Bio, Bios, Op, Sector};
/// use zoneplug_host::{HostedDisk, WakeFd};
/// use std::{os::fd::AsFd, task::Waker};
///
/// let disk = HostedDisk::open_spec("mem,zones=4,zone-size=1M").unwrap();
/// let mut client = disk.open_client(4, 4).unwrap();
/// let bell = WakeFd::new().unwrap();
/// let mut done = Bios::new();
/// client.submit(&mut Bios::from([Bio::new(Op::Flush, Sector(0), 0)]));
/// if client.arm(&Waker::from(bell.clone())) {
///     client.poll(&mut done);
///     // Here the program sleeps until `bell.as_fd()` is readable.
/// }
/// bell.clear();
/// client.wait(&mut done, 1, None);
/// assert!(done[0].status.is_ok());
/// ```
#[derive(Debug)]
pub struct WakeFd {
    event: File,
    /// Whether the counter was raised since it was last cleared. Saves system calls while no program sleeps.
    raised: AtomicBool,
}

impl WakeFd {
    /// Fails if the process has too many files open.
    pub fn new() -> io::Result<Arc<WakeFd>> {
        Ok(Arc::new(WakeFd { event: eventfd()?, raised: AtomicBool::new(false) }))
    }

    /// Makes the descriptor unreadable until the next wake.
    pub fn clear(&self) {
        self.clear_with(|| {});
    }

    fn clear_with(&self, in_between: impl FnOnce()) {
        if !self.raised.load(Ordering::Acquire) {
            return;
        }
        // The counter is cleared before the flag: a wake in between finds the flag raised and writes nothing, and the
        // owner polls afterwards. In the other order, such a wake would raise the flag and lose its write to this
        // read, and all later wakes would write nothing.
        let _ = (&self.event).read(&mut [0; 8]);
        in_between();
        // An exchange, so that the owner sees everything that a waker did before it found the flag raised.
        self.raised.swap(false, Ordering::AcqRel);
    }
}

impl AsFd for WakeFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

impl Wake for WakeFd {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.raised.swap(true, Ordering::AcqRel) {
            let _ = (&self.event).write(&1u64.to_ne_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn a_wake_before_the_sleep_ends_it() {
        let alarm = Alarm::new();
        alarm.clone().wake();
        alarm.sleep(None, None);
        let begin = Instant::now();
        alarm.sleep(None, Some(Duration::from_millis(5)));
        assert!(begin.elapsed() >= Duration::from_millis(4), "one wake ends one sleep");
    }

    #[test]
    fn a_readable_descriptor_ends_it() {
        let (alarm, event) = (Alarm::new(), eventfd().unwrap());
        (&event).write_all(&1u64.to_ne_bytes()).unwrap();
        alarm.sleep(Some(event.as_raw_fd()), None);
    }

    /// Whether `bell` ends a sleep.
    fn is_readable(bell: &WakeFd) -> bool {
        let mut fd =
            libc::pollfd { fd: bell.as_fd().as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one element, which lives across the call.
        (unsafe { libc::poll(&raw mut fd, 1, 0) }) == 1
    }

    /// A wake during the clearing is seen by the owner's poll after it. The next wake must end a sleep.
    #[test]
    fn a_wake_while_the_descriptor_is_cleared_does_not_silence_the_next() {
        let bell = WakeFd::new().unwrap();
        assert!(!is_readable(&bell));
        for in_between in [false, true, true, false] {
            bell.wake_by_ref();
            bell.wake_by_ref();
            assert!(is_readable(&bell));
            bell.clear_with(|| {
                if in_between {
                    bell.wake_by_ref();
                }
            });
            assert!(!is_readable(&bell));
            bell.wake_by_ref();
            assert!(is_readable(&bell), "a wake in between: {in_between}");
            bell.clear();
        }
    }
}
