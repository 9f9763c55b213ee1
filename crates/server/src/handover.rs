//! Handing the disks of a running server over to the next one (`--takeover`).
//!
//! | step | the next server | the running server |
//! | --- | --- | --- |
//! | 1 | asks what it would get, and compares that with what it is to serve | answers; nothing has changed yet |
//! | 2 | asks for the open files and sockets; opens what is new; checks that it has what it needs | passes them on |
//! | 3 | asks for the disks | makes everything durable, answers the requests that it has begun, begins no others, closes its disks, and says that they are left |
//! | 4 | opens the disks from the files that it has, and serves them | waits |
//! | 5 | says that it serves | ends |
//!
//! A hand-over may be refused in step 1 or 2, or by the running server in step 3; that server then goes on. If the
//! next server fails or ends in step 4, the running server opens its disks again and goes on (leave.rs). The locks of
//! the disks are always held, and the sockets never refuse hosts.

use rustix::process::Pid;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};
use zoneplug_core::poison::lock;

/// The running server's slot for the connection of a server that asks for its disks.
#[derive(Clone)]
pub struct HandOver(Arc<Shared>);

struct Shared {
    asked: Mutex<Asked>,
    tell: Box<dyn Fn() + Send + Sync>,
}

#[derive(Default)]
enum Asked {
    #[default]
    Nobody,
    By(UnixStream),
    /// The disks are being left to the server that asked: its process, if known.
    Leaving(Option<u32>),
}

impl HandOver {
    /// `tell` wakes the thread that calls [`HandOver::take`].
    pub fn new(tell: impl Fn() + Send + Sync + 'static) -> HandOver {
        HandOver(Arc::new(Shared { asked: Mutex::default(), tell: Box::new(tell) }))
    }

    /// Stores a connection that waits for an answer. Returns it if another server has asked before.
    pub fn ask(&self, by: UnixStream) -> Result<(), UnixStream> {
        let mut asked = lock(&self.0.asked);
        if !matches!(*asked, Asked::Nobody) {
            return Err(by);
        }
        *asked = Asked::By(by);
        drop(asked);
        (self.0.tell)();
        Ok(())
    }

    /// Takes the connection of the server that has asked, if any. Others are refused until [`HandOver::refused`] is
    /// called.
    pub fn take(&self) -> Option<UnixStream> {
        let mut asked = lock(&self.0.asked);
        match std::mem::take(&mut *asked) {
            Asked::By(by) => {
                *asked = Asked::Leaving(peer(&by).map(process_id));
                Some(by)
            }
            other => {
                *asked = other;
                None
            }
        }
    }

    /// The process of the server that has asked, if known.
    pub(crate) fn asked_by(&self) -> Option<u32> {
        match &*lock(&self.0.asked) {
            Asked::Nobody => None,
            Asked::By(by) => peer(by).map(process_id),
            Asked::Leaving(process) => *process,
        }
    }

    /// Whether a server has asked. It gets the state of that moment, so later changes must be refused.
    pub fn is_asked(&self) -> bool {
        !matches!(*lock(&self.0.asked), Asked::Nobody)
    }

    /// Notes that the server that asked was refused, so another one may ask.
    pub fn refused(&self) {
        *lock(&self.0.asked) = Asked::Nobody;
    }
}

/// The process at the other end of a connection.
pub(super) fn peer(stream: &UnixStream) -> Option<Pid> {
    rustix::net::sockopt::socket_peercred(stream).ok().map(|peer| peer.pid)
}

/// The id of a process.
pub(super) fn process_id(process: Pid) -> u32 {
    process.as_raw_nonzero().get().unsigned_abs()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// Only one server gets the disks. Another one may ask after that one is refused.
    #[test]
    fn one_server_at_a_time_asks_for_the_disks() {
        let told = Arc::new(AtomicU32::new(0));
        let tell = told.clone();
        let hand_over = HandOver::new(move || {
            tell.fetch_add(1, Ordering::Relaxed);
        });
        let new = || UnixStream::pair().unwrap().0;
        assert!(hand_over.take().is_none());
        assert!(hand_over.ask(new()).is_ok() && hand_over.ask(new()).is_err());
        assert!(hand_over.take().is_some() && hand_over.take().is_none());
        assert!(hand_over.ask(new()).is_err(), "its disks are being left");
        assert_eq!(hand_over.asked_by(), Some(std::process::id()));
        hand_over.refused();
        assert!(hand_over.ask(new()).is_ok() && hand_over.take().is_some());
        assert_eq!(told.load(Ordering::Relaxed), 2);
    }
}
