//! Lets one thread wait for the signals that ask a server to end. Owns a signalfd(2) and an event counter; runs no code
//! in signal context.

use crate::eventfd::eventfd;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::sync::Arc;

/// Why [`Signals::wait`] returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// SIGINT, SIGTERM or SIGHUP has come.
    Signal(i32),
    /// [`Notifier::notify`] was called.
    Notified,
}

/// Blocks SIGINT, SIGTERM and, unless it is ignored, SIGHUP for this thread and those that it starts later, and
/// receives them instead.
///
/// ```
/// use zoneplug_host::signals::{Event, Signals};
/// let signals = Signals::block().unwrap();
/// signals.notifier().notify();
/// assert_eq!(signals.wait().unwrap(), Event::Notified);
/// ```
#[derive(Debug)]
pub struct Signals {
    signals: File,
    event: Arc<File>,
}

/// Ends a [`Signals::wait`] from another thread.
#[derive(Debug, Clone)]
pub struct Notifier(Arc<File>);

impl Notifier {
    /// Any number of calls before the next wait end one wait.
    pub fn notify(&self) {
        // The write fails only if the counter is raised already.
        let _ = (&*self.0).write(&1u64.to_ne_bytes());
    }
}

impl Signals {
    /// Blocks the signals. Call this before any thread is started, because threads inherit it.
    pub fn block() -> io::Result<Signals> {
        let mut set = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: `set` is initialised by the first call and lives across the others; all zeroes is a value of `old`;
        // the descriptor is new, hence ours.
        let signals = unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            libc::sigaddset(set.as_mut_ptr(), libc::SIGINT);
            libc::sigaddset(set.as_mut_ptr(), libc::SIGTERM);
            // A SIGHUP that is ignored from the start, as by nohup(1), stays ignored. Shells also ignore SIGINT for
            // background processes; SIGINT must end a server nevertheless, so it is always received.
            let mut old = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
            let known = libc::sigaction(libc::SIGHUP, std::ptr::null(), old.as_mut_ptr()) == 0;
            if !(known && old.assume_init().sa_sigaction == libc::SIG_IGN) {
                libc::sigaddset(set.as_mut_ptr(), libc::SIGHUP);
            }
            let r = libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut());
            if r != 0 {
                return Err(io::Error::from_raw_os_error(r));
            }
            let fd = libc::signalfd(-1, set.as_ptr(), libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            File::from_raw_fd(fd)
        };
        Ok(Signals { signals, event: Arc::new(eventfd()?) })
    }

    /// The same signals and notices, for another thread: each is received by one of the two.
    pub fn try_clone(&self) -> io::Result<Signals> {
        Ok(Signals { signals: self.signals.try_clone()?, event: self.event.clone() })
    }

    /// A handle that ends a wait from another thread.
    pub fn notifier(&self) -> Notifier {
        Notifier(self.event.clone())
    }

    /// Sleeps until a signal comes or [`Notifier::notify`] is called. If both happened, returns the signal.
    pub fn wait(&self) -> io::Result<Event> {
        loop {
            let of =
                |f: &File| libc::pollfd { fd: f.as_raw_fd(), events: libc::POLLIN, revents: 0 };
            let mut fds = [of(&self.signals), of(&self.event)];
            // SAFETY: `fds` has two elements and lives across the call.
            if unsafe { libc::poll(fds.as_mut_ptr(), 2, -1) } < 0 {
                match io::Error::last_os_error() {
                    e if e.kind() == io::ErrorKind::Interrupted => continue,
                    e => return Err(e),
                }
            }
            // struct signalfd_siginfo begins with the number.
            let mut info = [0; 128];
            if fds[0].revents != 0 && (&self.signals).read(&mut info).is_ok() {
                return Ok(Event::Signal(i32::from_ne_bytes([info[0], info[1], info[2], info[3]])));
            }
            if fds[1].revents != 0 && (&*self.event).read(&mut [0; 8]).is_ok() {
                return Ok(Event::Notified);
            }
        }
    }
}
