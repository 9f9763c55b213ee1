//! Starts the threads of this crate, and paces loops that poll the work of other threads. If the system refuses a
//! thread (`ulimit -u`, a pids limit), the caller gets an error with a hint.

use crate::os_error::{Attempt, os_error};
use std::thread::{Builder, JoinHandle, sleep, yield_now};
use std::time::Duration;
use zoneplug_core::Error;

/// Starts a thread of this name.
pub(crate) fn spawn(
    name: &str,
    body: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>, Error> {
    Builder::new()
        .name(name.to_owned())
        .spawn(body)
        .map_err(|e| os_error(Attempt::Thread, format!("cannot start the thread {name}"), e))
}

/// The pauses of a loop that polls for an action of another thread. They are short at first, and sleeps later: a
/// thread that only yields keeps a processor from threads of a lower priority, and the other thread may be one of
/// these.
#[derive(Default)]
pub(crate) struct Pauses(u32);

impl Pauses {
    const YIELDS: u32 = 64;
    const STEP: Duration = Duration::from_micros(50);
    const MOST: Duration = Duration::from_micros(500);

    /// Pauses, longer than last time.
    pub(crate) fn pause(&mut self) {
        self.0 = self.0.saturating_add(1);
        match self.0.checked_sub(Self::YIELDS) {
            None => yield_now(),
            Some(n) => sleep(Self::STEP.saturating_mul(n + 1).min(Self::MOST)),
        }
    }
}
