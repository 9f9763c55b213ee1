//! Where BIOs that another queue completed wait for their owner.

use super::sync::{AtomicBool, AtomicU32, Mutex, Ordering, lock};
use crate::bio::Bio;
use std::task::Waker;

#[derive(Debug, Default)]
struct Inner {
    bios: Vec<Box<Bio>>,
    waker: Option<Waker>,
    closed: bool,
}

/// One for each queue: shared by the owner, who collects, and by every other queue, which delivers.
#[derive(Debug, Default)]
pub(crate) struct Mailbox {
    inner: Mutex<Inner>,
    /// A hint that saves the owner the lock.
    filled: AtomicBool,
    /// The freeze that the owner has seen, with the lowest bit set while it still had work (see `freeze`).
    pub(crate) ack: AtomicU32,
}

impl Mailbox {
    /// Delivers. The owner is woken if it armed. Gives the BIOs back if the owner has gone.
    pub(crate) fn push(&self, bios: impl Iterator<Item = Box<Bio>>) -> Result<(), Vec<Box<Bio>>> {
        let mut inner = lock(&self.inner);
        if inner.closed {
            return Err(bios.collect());
        }
        inner.bios.extend(bios);
        self.filled.store(true, Ordering::Release);
        let waker = inner.waker.take();
        drop(inner);
        if let Some(w) = waker {
            w.wake();
        }
        Ok(())
    }

    /// Whether there may be something to collect.
    #[inline]
    pub(crate) fn is_filled(&self) -> bool {
        self.filled.load(Ordering::Acquire)
    }

    /// Takes everything: exchanges it for the empty `into`, so that nothing is allocated.
    pub(crate) fn collect(&self, into: &mut Vec<Box<Bio>>) {
        debug_assert!(into.is_empty());
        let mut inner = lock(&self.inner);
        std::mem::swap(&mut inner.bios, into);
        self.filled.store(false, Ordering::Release);
    }

    /// Registers `waker` for the next delivery. False: something is there already, do not sleep. Because both
    /// sides hold the lock, a delivery either is seen here or wakes.
    pub(crate) fn arm(&self, waker: &Waker) -> bool {
        let mut inner = lock(&self.inner);
        if !inner.bios.is_empty() {
            return false;
        }
        match &mut inner.waker {
            Some(w) => w.clone_from(waker),
            none => *none = Some(waker.clone()),
        }
        true
    }

    /// Wakes an armed owner without a delivery: the disk was thawed.
    pub(crate) fn wake(&self) {
        let waker = lock(&self.inner).waker.take();
        if let Some(w) = waker {
            w.wake();
        }
    }

    /// Nothing is delivered any more.
    pub(crate) fn close(&self) -> Vec<Box<Bio>> {
        let mut inner = lock(&self.inner);
        inner.closed = true;
        std::mem::take(&mut inner.bios)
    }
}
