//! How the queues of a device are told to leave it to the next server: each answers what it has begun, begins nothing
//! more, and ends. Linux keeps the other requests for the next server.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;
use std::time::Duration;
use zoneplug_core::poison::lock;

/// How long a queue of a server waits for requests that it has begun. What is still in flight then is sent to the next server again,
/// as if this server had died.
const PATIENCE: Duration = Duration::from_secs(10);

/// Whether the queues are to leave, and what wakes them.
pub(super) struct Leave {
    asked: AtomicBool,
    wakers: Mutex<Vec<Waker>>,
    /// How long a queue waits for the requests that it has begun.
    pub(super) patience: Duration,
}

impl Default for Leave {
    fn default() -> Leave {
        Leave::within(PATIENCE)
    }
}

impl Leave {
    /// Each queue waits so long for the requests that it has begun.
    pub(super) fn within(patience: Duration) -> Leave {
        Leave { asked: AtomicBool::new(false), wakers: Mutex::default(), patience }
    }

    /// A queue that looks at [`Leave::is_asked`] each time that it is woken by `waker`.
    pub(super) fn join(&self, waker: &Waker) {
        lock(&self.wakers).push(waker.clone());
    }

    /// Tells all queues.
    pub(super) fn ask(&self) {
        self.asked.store(true, Ordering::Release);
        lock(&self.wakers).iter().for_each(Waker::wake_by_ref);
    }

    pub(super) fn is_asked(&self) -> bool {
        self.asked.load(Ordering::Acquire)
    }
}
