//! What a server waits for, once it serves.

use super::door::Door;
use super::handover::HandOver;
use crate::failure::Failure;
use std::os::unix::net::UnixStream;
use zoneplug_host::signals::{Event, Signals};

/// Why a server ends, if nothing has failed.
#[derive(Debug)]
pub(super) enum End {
    /// A signal asked for it.
    Signal,
    /// Another server asks for the disks.
    Asked(UnixStream),
}

/// Waits until a signal or another server asks for the end, or a door ends by itself.
pub(super) fn wait(
    signals: &Signals,
    doors: &[Box<dyn Door>],
    hand_over: &HandOver,
) -> Result<End, Failure> {
    loop {
        match signals.wait() {
            Ok(Event::Signal(_)) => return Ok(End::Signal),
            Ok(Event::Notified) => {
                if let Some(by) = hand_over.take() {
                    return Ok(End::Asked(by));
                }
                doors.iter().try_for_each(|door| door.look())?;
            }
            Err(e) => return Err(Failure::io(format!("signals: {e}")).hint("start it again")),
        }
    }
}
