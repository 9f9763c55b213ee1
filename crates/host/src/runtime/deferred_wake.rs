//! Clients' wakers, on their way from the engine to where they may be called. The engine wakes in the middle of its work,
//! with lanes locked; a client's waker is client's code. So what the engine wakes only puts it on a list, and the list is
//! called when no lane is locked (I8). None of this holds the disk: a device's thread that wakes must not be the last that
//! has it.

use crate::callback::contain_panic;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Wake, Waker};
use zoneplug_core::poison::lock;

/// Calls clients' wakers: one that panics leaves no other one uncalled.
pub(crate) fn wake_all(list: Vec<Waker>) {
    for waker in list {
        contain_panic(|| waker.wake());
    }
}

/// Clients' wakers that are to be called as soon as no lane is locked.
#[derive(Debug, Default)]
pub(crate) struct Wakers {
    list: Mutex<Vec<Waker>>,
    /// Whether there are any.
    some: AtomicBool,
}

impl Wakers {
    fn push(&self, waker: Waker) {
        lock(&self.list).push(waker);
        self.some.store(true, Ordering::Release);
    }

    /// Calls them. They may use their clients, and their panics are their own.
    #[inline]
    pub(crate) fn call(&self) {
        if self.some.load(Ordering::Acquire) {
            self.call_all();
        }
    }

    #[cold]
    fn call_all(&self) {
        self.some.store(false, Ordering::Release);
        wake_all(std::mem::take(&mut *lock(&self.list)));
    }
}

/// What the engine wakes in a client's place.
#[derive(Debug)]
pub(crate) struct Deferred {
    waker: Mutex<Option<Waker>>,
    wakers: Arc<Wakers>,
}

impl Deferred {
    pub(crate) fn new(wakers: &Arc<Wakers>) -> Arc<Deferred> {
        Arc::new(Deferred { waker: Mutex::default(), wakers: wakers.clone() })
    }

    pub(crate) fn set(&self, waker: &Waker) {
        let new = waker.clone();
        let old = lock(&self.waker).replace(new);
        // A waker may be the last that holds a task, and with it a client: not under the lock.
        drop(old);
    }
}

impl Wake for Deferred {
    fn wake(self: Arc<Self>) {
        let waker = lock(&self.waker).take();
        if let Some(waker) = waker {
            self.wakers.push(waker);
        }
    }
}
