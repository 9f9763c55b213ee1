//! Wakes the reactor's thread, asks it to end, and waits for it. Knows nothing of disks: a device's thread that wakes
//! the reactor must not hold the last reference to its disk.

use std::sync::{Arc, Condvar, Mutex};
use std::task::Wake;
use std::thread::ThreadId;
use std::time::Duration;
use zoneplug_core::Error;
use zoneplug_core::poison::{lock, unpoisoned};

#[derive(Debug, Default)]
struct SignalState {
    started: bool,
    kicked: bool,
    /// No handle of the disk is left.
    closing: bool,
    /// The thread has released the disk.
    left: bool,
    thread: Option<ThreadId>,
}

/// The reactor's thread sleeps on this. Waking it as a [`Waker`](std::task::Waker) is a kick.
#[derive(Debug, Default)]
pub(crate) struct ReactorSignal {
    state: Mutex<SignalState>,
    wake: Condvar,
    left: Condvar,
}

impl ReactorSignal {
    /// Wakes the thread: a queue may have work.
    pub(crate) fn kick(&self) {
        lock(&self.state).kicked = true;
        self.wake.notify_one();
    }

    /// Calls `spawn`, which starts the thread, unless a call has succeeded before. The thread's
    /// [`enter`](ReactorSignal::enter) waits until this returns.
    pub(crate) fn start(&self, spawn: impl FnOnce() -> Result<(), Error>) -> Result<(), Error> {
        let mut state = lock(&self.state);
        if !state.started {
            spawn()?;
            state.started = true;
        }
        Ok(())
    }

    /// Registers the calling thread as the reactor. When the result is dropped, waiters learn that the thread has
    /// released the disk.
    pub(crate) fn enter(self: &Arc<Self>) -> Leaves {
        lock(&self.state).thread = Some(std::thread::current().id());
        Leaves(self.clone())
    }

    /// Asks the thread to end, since no handle of the disk is left. Returns whether the caller can wait for it: the
    /// thread exists and is not the caller.
    pub(crate) fn close(&self) -> bool {
        let mut state = lock(&self.state);
        state.closing = true;
        let wait = state.started && state.thread != Some(std::thread::current().id());
        drop(state);
        self.wake.notify_one();
        wait
    }

    /// Waits until the thread has released the disk, at most `patience`.
    pub(crate) fn wait_left(&self, patience: Duration) {
        let state = lock(&self.state);
        let waited = self.left.wait_timeout_while(state, patience, |s| !s.left);
        drop(unpoisoned(waited));
    }

    pub(crate) fn is_closing(&self) -> bool {
        lock(&self.state).closing
    }

    /// Sleeps until a kick, at most `sleep`.
    pub(crate) fn nap(&self, sleep: Duration) {
        let state = lock(&self.state);
        let woken = self.wake.wait_timeout_while(state, sleep, |s| !s.kicked);
        unpoisoned(woken).0.kicked = false;
    }

    /// Sleeps until a kick or until the disk is closing.
    pub(crate) fn rest(&self) {
        let state = lock(&self.state);
        let woken = self.wake.wait_while(state, |s| !s.kicked && !s.closing);
        unpoisoned(woken).kicked = false;
    }
}

impl Wake for ReactorSignal {
    fn wake(self: Arc<Self>) {
        self.kick();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.kick();
    }
}

/// Exists while the thread holds the disk. Its drop, also in a panic, signals that the thread has released it.
pub(crate) struct Leaves(Arc<ReactorSignal>);

impl Drop for Leaves {
    fn drop(&mut self) {
        lock(&self.0.state).left = true;
        self.0.left.notify_all();
    }
}
