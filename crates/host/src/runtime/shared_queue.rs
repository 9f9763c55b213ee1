//! A lane: the queue of one client, which any thread may run. Owns the queue's lock, the flags that say whether the
//! reactor must run it, and the buffers of a client that has gone. Owns no thread and no waker.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, TryLockError};
use zoneplug_buf::Lent;
use zoneplug_core::Bios;
use zoneplug_core::disk::DiskQueue;
use zoneplug_core::poison::lock;

/// What a lane is needed for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Work {
    /// BIOs of its client are not back, or commands of any client are at the device: it must be run.
    Busy,
    /// Only commands that were given up: the reactor looks at it now and then.
    Late,
    /// Nothing.
    None,
}

impl Work {
    pub(crate) fn of(queue: &DiskQueue) -> Work {
        if queue.outstanding() > 0 || queue.is_busy() {
            Work::Busy
        } else if queue.late() > 0 {
            Work::Late
        } else {
            Work::None
        }
    }
}

#[derive(Debug)]
pub(crate) struct Lane {
    queue: Mutex<DiskQueue>,
    /// The client sleeps, or is about to.
    pub(crate) armed: AtomicBool,
    /// The client has gone; the lane is run until it is empty.
    pub(crate) orphan: AtomicBool,
    /// An orphan that has nothing but late commands: it is looked at now and then.
    pub(crate) lingers: AtomicBool,
    /// Memory that a client has left which has gone: a device may use it.
    legacy: Mutex<Vec<Lent>>,
}

impl Lane {
    pub(crate) fn new(queue: DiskQueue) -> Lane {
        Lane {
            queue: Mutex::new(queue),
            armed: AtomicBool::new(false),
            orphan: AtomicBool::new(false),
            lingers: AtomicBool::new(false),
            legacy: Mutex::default(),
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, DiskQueue> {
        lock(&self.queue)
    }

    /// The queue, unless another thread is running it.
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, DiskQueue>> {
        match self.queue.try_lock() {
            Ok(q) => Some(q),
            Err(TryLockError::Poisoned(p)) => Some(p.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    pub(crate) fn is_orphan(&self) -> bool {
        self.orphan.load(Ordering::Acquire)
    }

    /// Whether the reactor must run it.
    pub(crate) fn is_wanted(&self) -> bool {
        self.armed.load(Ordering::Acquire)
            || self.is_orphan() && !self.lingers.load(Ordering::Acquire)
    }

    /// Whether commands of its queue may be late.
    pub(crate) fn may_be_late(&self) -> bool {
        self.lingers.load(Ordering::Acquire) || self.try_lock().is_none_or(|q| q.late() > 0)
    }

    /// Keeps what was lent until it is back, though the client goes.
    pub(crate) fn keep(&self, lent: impl Iterator<Item = Lent>) {
        lock(&self.legacy).extend(lent);
    }

    /// BIOs of a client that has gone have finished: frees the memory that came back with them.
    pub(crate) fn dropped(&self, bios: &mut Bios) {
        let mut legacy = lock(&self.legacy);
        for mut bio in bios.drain(..) {
            let buf = bio.take_buf();
            if let Some(i) = legacy.iter().position(|l| l.range() == buf.range()) {
                drop(legacy.swap_remove(i).take_back(buf));
            }
        }
    }

    /// All BIOs of the client that has gone are back: this is what came back without memory.
    pub(crate) fn take_legacy(&self) -> Vec<Lent> {
        std::mem::take(&mut lock(&self.legacy))
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        // The device may still use these buffers, and nothing is left that could tell when it is done: leak them.
        crate::runtime::withheld::leak(self.take_legacy());
    }
}
