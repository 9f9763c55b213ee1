//! What the logs of a set share: the zones that no log has, and whether a flush has failed.

use super::lock;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// The state that the logs of a set have in common.
#[derive(Debug)]
pub(super) struct Pool {
    /// Which zones can be written from their start, by their place in the table of a log.
    free: Mutex<Vec<bool>>,
    flush_failed: AtomicBool,
}

impl Pool {
    pub(super) fn new(free: Vec<bool>) -> Pool {
        Pool { free: Mutex::new(free), flush_failed: AtomicBool::new(false) }
    }

    /// Takes a zone out. `false`: it is not in the pool.
    pub(super) fn take(&self, zone: usize) -> bool {
        lock(&self.free).get_mut(zone).is_some_and(std::mem::take)
    }

    /// Puts an empty zone in again, for any log of the set.
    pub(super) fn give_back(&self, zone: usize) {
        if let Some(free) = lock(&self.free).get_mut(zone) {
            *free = true;
        }
    }

    /// A flush failed. The disk may have dropped data of any log, and reports that once only.
    pub(super) fn set_flush_failed(&self) {
        self.flush_failed.store(true, Ordering::SeqCst);
    }

    pub(super) fn has_flush_failed(&self) -> bool {
        self.flush_failed.load(Ordering::SeqCst)
    }
}
