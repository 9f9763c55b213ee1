//! The wakers of clients, or of logs, that wait for the same event.

use super::lock;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::task::{Wake, Waker};

/// Wakers by the number of the waiting client or log. As a waker, it wakes all of them.
#[derive(Debug, Default)]
pub(super) struct Sleepers(Mutex<BTreeMap<u64, Waker>>);

impl Sleepers {
    /// Registers `waker` for this number, in place of an earlier one.
    pub(super) fn insert(&self, id: u64, waker: &Waker) {
        let old = lock(&self.0).insert(id, waker.clone());
        drop(old);
    }

    pub(super) fn remove(&self, id: u64) {
        let old = lock(&self.0).remove(&id);
        drop(old);
    }

    pub(super) fn wake_one(&self, id: u64) {
        let waker = lock(&self.0).get(&id).cloned();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    pub(super) fn wake_all(&self) {
        let wakers: Vec<Waker> = lock(&self.0).values().cloned().collect();
        wakers.into_iter().for_each(Waker::wake);
    }
}

impl Wake for Sleepers {
    fn wake(self: Arc<Self>) {
        self.wake_all();
    }
}
