//! Lets one thread wait for the signals that ask a server to end. Owns a signalfd(2) and an event counter; runs no code
//! in signal context.

use crate::eventfd::eventfd;
use std::fs::File;
use std::io::{self, Read, Write};
use std::mem::MaybeUninit;
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

/// Makes a write past the longest file that this process may have (`ulimit -f`) fail with `EFBIG`, instead of ending the
/// process without a word (SIGXFSZ).
pub fn survive_file_limit() {
    // SAFETY: a call without pointers. No code runs for an ignored signal.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// The signals that ask for an end.
fn set() -> libc::sigset_t {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: `set` is initialised by the first call and lives across the others; all zeroes is a value of `old`.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), libc::SIGINT);
        libc::sigaddset(set.as_mut_ptr(), libc::SIGTERM);
        // A SIGHUP that is ignored from the start, as by nohup(1), stays ignored. Shells also ignore SIGINT for
        // background processes; SIGINT must end a server nevertheless, so it is always received.
        let mut old = MaybeUninit::<libc::sigaction>::zeroed();
        let known = libc::sigaction(libc::SIGHUP, std::ptr::null(), old.as_mut_ptr()) == 0;
        if !(known && old.assume_init().sa_sigaction == libc::SIG_IGN) {
            libc::sigaddset(set.as_mut_ptr(), libc::SIGHUP);
        }
        set.assume_init()
    }
}

/// Changes which signals this thread blocks, and returns which it did.
fn change_mask(how: i32, set: &libc::sigset_t) -> io::Result<libc::sigset_t> {
    let mut old = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: a set and the place of one, which the call fills if it succeeds.
    unsafe {
        match libc::pthread_sigmask(how, set, old.as_mut_ptr()) {
            0 => Ok(old.assume_init()),
            e => Err(io::Error::from_raw_os_error(e)),
        }
    }
}

/// Signals that this thread has blocked and nothing receives: they wait, until [`Signals::block`] receives them or they are
/// released. For a program that does not know yet what a signal is to do.
///
/// ```
/// use zoneplug_host::signals::{Event, Held, Signals};
/// let held = Held::begin().unwrap();
/// // SAFETY: a call without pointers.
/// unsafe { libc::raise(libc::SIGINT) };
/// assert_eq!(Signals::block().unwrap().wait().unwrap(), Event::Signal(libc::SIGINT));
/// held.release();
/// ```
#[derive(Debug)]
pub struct Held(libc::sigset_t);

impl Held {
    /// Blocks the signals from now on, for this thread and those that it starts.
    pub fn begin() -> io::Result<Held> {
        change_mask(libc::SIG_BLOCK, &set()).map(Held)
    }

    /// Gives signals the effect that they had. One that has come meanwhile has it now.
    pub fn release(self) {
        // The call takes any set.
        let _ = change_mask(libc::SIG_SETMASK, &self.0);
    }
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
        let set = set();
        change_mask(libc::SIG_BLOCK, &set)?;
        // SAFETY: a set that lives across the call.
        let fd =
            unsafe { libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new, hence ours.
        let signals = unsafe { File::from_raw_fd(fd) };
        Ok(Signals { signals, event: Arc::new(eventfd()?) })
    }

    /// Receives no signal, and blocks none: only a notice ends a wait. For a thread of a program that has its signals for itself.
    ///
    /// ```
    /// use zoneplug_host::signals::{Event, Signals};
    /// let signals = Signals::none().unwrap();
    /// signals.notifier().notify();
    /// assert_eq!(signals.wait().unwrap(), Event::Notified);
    /// ```
    pub fn none() -> io::Result<Signals> {
        // An event counter that is never raised is in the place of the signals.
        Ok(Signals { signals: eventfd()?, event: Arc::new(eventfd()?) })
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
