//! Lets one thread wait for the signals that ask a server to end. Owns a signalfd(2) and an event counter; runs no code
//! in signal context.

use crate::eventfd::eventfd;
use std::fs::File;
use std::io::{self, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Why [`Signals::wait`] returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignalEvent {
    /// SIGINT, SIGTERM or SIGHUP was received.
    Signal(i32),
    /// [`Notifier::notify`] was called.
    Notified,
}

/// Blocks SIGINT, SIGTERM and, unless it is ignored, SIGHUP for this thread and those that it starts later, and
/// receives them instead.
///
/// ```
/// use zoneplug_host::signals::{SignalEvent, Signals};
/// let signals = Signals::block().unwrap();
/// signals.notifier().notify();
/// assert_eq!(signals.wait().unwrap(), SignalEvent::Notified);
/// ```
#[derive(Debug)]
pub struct Signals {
    signals: File,
    event: Arc<File>,
}

/// Makes a write past the file size limit of this process (`ulimit -f`) fail with `EFBIG`. By default the signal
/// SIGXFSZ would end the process without a message.
pub fn survive_file_limit() {
    // SAFETY: a call without pointers. No code runs for an ignored signal.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// The signals that ask a server to end.
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

/// Changes the signals that this thread blocks, and returns those that it blocked before.
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

/// Signals that this thread has blocked and that stay pending, until [`Signals::block`] receives them or they are
/// released. For a program that does not know yet how to handle a signal.
///
/// ```
/// use zoneplug_host::signals::{Held, SignalEvent, Signals};
/// let held = Held::begin().unwrap();
/// // SAFETY: a call without pointers.
/// unsafe { libc::raise(libc::SIGINT) };
/// assert_eq!(Signals::block().unwrap().wait().unwrap(), SignalEvent::Signal(libc::SIGINT));
/// held.release();
/// ```
#[derive(Debug)]
pub struct Held(libc::sigset_t);

impl Held {
    /// Blocks the signals from now on, for this thread and those that it starts.
    pub fn begin() -> io::Result<Held> {
        change_mask(libc::SIG_BLOCK, &set()).map(Held)
    }

    /// Restores the signal mask of before. A signal that is pending and not blocked by it takes effect now.
    pub fn release(self) {
        // This cannot fail: the call takes any set.
        let _ = change_mask(libc::SIG_SETMASK, &self.0);
    }
}

/// Signals within this time of the first belong to the same request to end. timeout(1) signals its child and then the
/// group of both, and a service manager the group and then each process. No person is that fast.
const ONE_REQUEST: Duration = Duration::from_millis(50);

/// A request to end: the first signal, and those that come with it.
///
/// ```
/// use zoneplug_host::signals::EndRequest;
/// let request = EndRequest::begin();
/// assert!(!request.is_repeated(), "a signal that comes now comes with the first one");
/// ```
#[derive(Debug, Clone, Copy)]
pub struct EndRequest(Instant);

impl EndRequest {
    /// The request of a signal that has just come.
    pub fn begin() -> EndRequest {
        EndRequest(Instant::now())
    }

    /// Whether a signal that comes now is a second request, which asks for an immediate end.
    pub fn is_repeated(&self) -> bool {
        self.0.elapsed() >= ONE_REQUEST
    }
}

/// Ends a [`Signals::wait`] from another thread.
#[derive(Debug, Clone)]
pub struct Notifier(Arc<File>);

impl Notifier {
    /// Ends one wait, however often this is called before that wait.
    pub fn notify(&self) {
        // The write fails only at the counter's maximum, so the counter is raised in any case.
        let _ = (&*self.0).write(&1u64.to_ne_bytes());
    }
}

impl Signals {
    /// Blocks the signals. Call this before any thread is started, because threads inherit the mask.
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

    /// Neither blocks nor receives signals: only a notification ends a wait. For a thread of a program that handles signals
    /// itself.
    ///
    /// ```
    /// use zoneplug_host::signals::{SignalEvent, Signals};
    /// let signals = Signals::none().unwrap();
    /// signals.notifier().notify();
    /// assert_eq!(signals.wait().unwrap(), SignalEvent::Notified);
    /// ```
    pub fn none() -> io::Result<Signals> {
        // An event counter that is never raised is in the place of the signals.
        Ok(Signals { signals: eventfd()?, event: Arc::new(eventfd()?) })
    }

    /// Another receiver of the same signals and notices, for another thread. Only one of the two receives each.
    pub fn try_clone(&self) -> io::Result<Signals> {
        Ok(Signals { signals: self.signals.try_clone()?, event: self.event.clone() })
    }

    /// A handle that ends a wait from another thread.
    pub fn notifier(&self) -> Notifier {
        Notifier(self.event.clone())
    }

    /// Sleeps until a signal arrives or [`Notifier::notify`] is called. If both happened, returns the signal.
    pub fn wait(&self) -> io::Result<SignalEvent> {
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
                return Ok(SignalEvent::Signal(i32::from_ne_bytes([
                    info[0], info[1], info[2], info[3],
                ])));
            }
            if fds[1].revents != 0 && (&*self.event).read(&mut [0; 8]).is_ok() {
                return Ok(SignalEvent::Notified);
            }
        }
    }
}
