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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::door::testing::StubDoor;
    use std::time::Duration;

    /// A server of several doors ends as soon as one of them does, whichever that is.
    #[test]
    fn each_door_is_asked_whether_it_goes_on() {
        let hand_over = HandOver::new(|| {});
        for n in 0..3 {
            let signals = Signals::none().unwrap();
            let stopper = Stopper::new(signals.notifier());
            let door = |i| Arc::new(StubDoor { has_ended: i == n, ..StubDoor::default() });
            let doors: Vec<Box<dyn Door>> = (0..2).map(|i| Box::new(door(i)) as _).collect();
            signals.notifier().notify();
            // A server whose doors all go on waits for its end.
            let (later, after) = (stopper.clone(), if n == 2 { 100 } else { 10_000 });
            std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(after));
                later.stop();
            });
            match wait(&signals, &doors, &hand_over, &stopper) {
                Err(e) => assert!(n < 2 && e.to_string().contains("has ended"), "{n}: {e}"),
                Ok(End::Stopped) => assert_eq!(n, 2, "all doors went on"),
                Ok(End::Asked(_)) => panic!("no server has asked"),
            }
        }
    }
}
