//! Delays calls of clients' wakers until no queue is locked (I8). The engine wakes while queues are locked, and a
//! waker runs the client's code. So the engine wakes a [`DeferredWaker`], which puts the client's waker on a list;
//! the wakers on the list are called later. Nothing here refers to the disk: a device's thread that wakes must not
//! hold the last reference to it.

use crate::callback::contain_panic;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Wake, Waker};
use zoneplug_core::poison::lock;

/// Calls clients' wakers. If one panics, the others are still called.
pub(crate) fn wake_all(list: Vec<Waker>) {
    for waker in list {
        contain_panic(|| waker.wake());
    }
}

/// Clients' wakers that are to be called as soon as no queue is locked.
#[derive(Debug, Default)]
pub(crate) struct DeferredWakes {
    list: Mutex<Vec<Waker>>,
    /// Whether the list has any wakers.
    some: AtomicBool,
}

impl DeferredWakes {
    fn push(&self, waker: Waker) {
        lock(&self.list).push(waker);
        self.some.store(true, Ordering::Release);
    }

    /// Calls the wakers. They may use their clients. If one panics, the others are still called.
    #[inline]
    pub(crate) fn call(&self) {
        if self.some.load(Ordering::Acquire) {
            self.call_all();
        }
    }

    #[cold]
    fn call_all(&self) {
        self.some.store(false, Ordering::Release);
        // The list is unlocked before a waker is called, because the waker may add another one to it.
        let list = std::mem::take(&mut *lock(&self.list));
        wake_all(list);
    }
}

/// The engine wakes this in place of a client's waker.
#[derive(Debug)]
pub(crate) struct DeferredWaker {
    waker: Mutex<Option<Waker>>,
    list: Arc<DeferredWakes>,
}

impl DeferredWaker {
    pub(crate) fn new(list: &Arc<DeferredWakes>) -> Arc<DeferredWaker> {
        Arc::new(DeferredWaker { waker: Mutex::default(), list: list.clone() })
    }

    pub(crate) fn set(&self, waker: &Waker) {
        let new = waker.clone();
        let old = lock(&self.waker).replace(new);
        // Dropping a waker may drop a task, and with it a client, so the lock is released first.
        drop(old);
    }
}

impl Wake for DeferredWaker {
    fn wake(self: Arc<Self>) {
        let waker = lock(&self.waker).take();
        if let Some(waker) = waker {
            self.list.push(waker);
        }
    }
}
