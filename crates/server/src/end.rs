//! Waits while a server serves, until an event ends it.

use crate::door::Door;
use crate::handover::HandOver;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use zoneplug_control::Failure;
use zoneplug_host::signals::{Notifier, SignalEvent, Signals};

/// A handle with which another thread ends a server.
#[derive(Debug, Clone)]
pub struct Stopper {
    is_stopped: Arc<AtomicBool>,
    notifier: Notifier,
}

impl Stopper {
    pub(crate) fn new(notifier: Notifier) -> Stopper {
        Stopper { is_stopped: Arc::default(), notifier }
    }

    /// Ends the server, as a signal does. Does not wait for the end.
    pub fn stop(&self) {
        self.is_stopped.store(true, Ordering::Release);
        self.notifier.notify();
    }

    fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Acquire)
    }
}

/// The reason for an end without a failure.
#[derive(Debug)]
pub(crate) enum End {
    /// A signal or [`Stopper::stop`] asked for it.
    Stopped,
    /// Another server asks for the disks.
    Asked(UnixStream),
}

/// Waits until a signal or another server asks for the end. Fails if a door ends by itself.
pub(crate) fn wait(
    signals: &Signals,
    doors: &[Box<dyn Door>],
    hand_over: &HandOver,
    stopper: &Stopper,
) -> Result<End, Failure> {
    loop {
        if stopper.is_stopped() {
            return Ok(End::Stopped);
        }
        match signals.wait() {
            Ok(SignalEvent::Signal(_)) => return Ok(End::Stopped),
            Ok(SignalEvent::Notified) => {
                if let Some(by) = hand_over.take() {
                    return Ok(End::Asked(by));
                }
                doors.iter().try_for_each(|door| door.check_running())?;
            }
            Err(e) => return Err(Failure::io(format!("signals: {e}")).hint("start it again")),
        }
    }
}
