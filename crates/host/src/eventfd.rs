//! How a client's thread sleeps: until it is woken, or until a descriptor of its device is readable. With a descriptor
//! the kernel wakes the thread directly, which saves the microseconds of a thread in between. Owns the two system
//! calls; knows nothing of disks.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::sync::Arc;
use std::task::Wake;
use std::time::Duration;

/// How often a sleeper looks if it has no event counter, because the process has too many files open.
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

    /// Sleeps until it is woken (since the last sleep), `fd` is readable, or `timeout` has passed; may return early.
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
            tv_sec: libc::time_t::try_from(t.as_secs()).unwrap_or(libc::time_t::MAX),
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
}
