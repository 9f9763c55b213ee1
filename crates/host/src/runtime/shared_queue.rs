//! The queue of one client, which any thread may run. Owns the queue's lock, the flags that say whether the reactor
//! must run it, and the buffers of a client that has gone. Owns no thread and no waker.

use crate::runtime::owner_lock::{OtherGuard, OwnerGuard, OwnerLock};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use zoneplug_buf::Lent;
use zoneplug_core::Bios;
use zoneplug_core::disk::DiskQueue;
use zoneplug_core::poison::lock;

/// The reason for which a queue must be run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum QueueWork {
    /// BIOs of its client are not back, or commands of any client are at the device.
    Busy,
    /// Only commands that were given up are at the device: the reactor polls the queue now and then.
    Late,
    /// Nothing.
    None,
}

impl QueueWork {
    pub(crate) fn of(queue: &DiskQueue) -> QueueWork {
        if queue.outstanding() > 0 || queue.is_busy() {
            QueueWork::Busy
        } else if queue.late() > 0 {
            QueueWork::Late
        } else {
            QueueWork::None
        }
    }
}

/// Aligned to cache lines of its own, so that the client of another queue never waits for a line that this client
/// writes.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct SharedQueue {
    queue: OwnerLock<DiskQueue>,
    /// The client sleeps, or is about to.
    pub(crate) armed: AtomicBool,
    /// The client has gone. The reactor runs the queue until it is empty.
    pub(crate) orphan: AtomicBool,
    /// The queue is an orphan with only late commands: the reactor polls it now and then.
    pub(crate) lingers: AtomicBool,
    /// Memory of a client that has gone, which the device may still use.
    left: Mutex<Vec<Lent>>,
}

impl SharedQueue {
    /// The queue, locked for a thread that is not its client.
    pub(crate) fn lock(&self) -> OtherGuard<'_, DiskQueue> {
        self.queue.lock()
    }

    /// The queue for a thread that is not its client, unless another thread is running it.
    pub(crate) fn try_lock(&self) -> Option<OtherGuard<'_, DiskQueue>> {
        self.queue.try_lock()
    }

    /// Changes each time that the client polls the queue.
    pub(crate) fn turns(&self) -> u32 {
        self.queue.turns()
    }

    #[cfg(test)]
    pub(crate) fn is_claimed(&self) -> bool {
        self.queue.is_claimed()
    }

    pub(crate) fn is_orphan(&self) -> bool {
        self.orphan.load(Ordering::Acquire)
    }

    /// Whether the reactor must run the queue.
    pub(crate) fn is_wanted(&self) -> bool {
        self.armed.load(Ordering::Acquire)
            || self.is_orphan() && !self.lingers.load(Ordering::Acquire)
    }

    /// Whether commands of the queue may be late.
    pub(crate) fn may_be_late(&self) -> bool {
        self.lingers.load(Ordering::Acquire) || self.try_lock().is_none_or(|q| q.late() > 0)
    }

    /// Keeps lent memory until it comes back, even after its client was dropped.
    pub(crate) fn keep(&self, lent: impl Iterator<Item = Lent>) {
        lock(&self.left).extend(lent);
    }

    /// Takes finished BIOs of a client that has gone, and frees the memory that came back with them.
    pub(crate) fn dropped(&self, bios: &mut Bios) {
        let mut left = lock(&self.left);
        for mut bio in bios.drain(..) {
            let buf = bio.take_buf();
            if let Some(i) = left.iter().position(|l| l.range() == buf.range()) {
                drop(left.swap_remove(i).take_back(buf));
            }
        }
    }

    /// Takes the memory that has not come back. All BIOs of the dropped client have.
    pub(crate) fn take_left(&self) -> Vec<Lent> {
        std::mem::take(&mut lock(&self.left))
    }
}

impl Drop for SharedQueue {
    fn drop(&mut self) {
        // The device may still use these buffers, and no code is left that could learn when it is done.
        crate::runtime::withheld::leak(self.take_left());
    }
}

/// The client's side of its queue. Each queue has one. Its functions that lock borrow it exclusively.
#[derive(Debug)]
pub(crate) struct QueueOwner(Arc<SharedQueue>);

impl QueueOwner {
    pub(crate) fn new(queue: DiskQueue) -> QueueOwner {
        QueueOwner(Arc::new(SharedQueue {
            queue: OwnerLock::new(queue),
            armed: AtomicBool::new(false),
            orphan: AtomicBool::new(false),
            lingers: AtomicBool::new(false),
            left: Mutex::default(),
        }))
    }

    /// The queue, for the threads that run it while its client does not.
    pub(crate) fn shared(&self) -> &Arc<SharedQueue> {
        &self.0
    }

    /// Locks the queue. Waits while another thread is running it.
    #[inline]
    pub(crate) fn lock(&mut self) -> OwnerGuard<'_, DiskQueue> {
        // SAFETY: only `QueueOwner` calls the `_owner` functions, and each time it is borrowed exclusively until the
        // guard has ended.
        unsafe { self.0.queue.lock_owner(self.is_armed()) }
    }

    /// Locks the queue, unless another thread is running it.
    #[inline]
    pub(crate) fn try_lock(&mut self) -> Option<OwnerGuard<'_, DiskQueue>> {
        // SAFETY: as in `lock`.
        unsafe { self.0.queue.try_lock_owner(self.is_armed()) }
    }

    /// Whether the client sleeps or is about to. The reactor then runs its queue.
    #[inline]
    fn is_armed(&self) -> bool {
        self.0.armed.load(Ordering::Relaxed)
    }

    /// Locks the queue of a client that is about to sleep or to go, so that other threads can run it without cost.
    pub(crate) fn lock_to_leave(&mut self) -> OtherGuard<'_, DiskQueue> {
        // SAFETY: as in `lock`.
        unsafe { self.0.queue.lock_leaving_owner() }
    }
}

impl std::ops::Deref for QueueOwner {
    type Target = SharedQueue;

    fn deref(&self) -> &SharedQueue {
        &self.0
    }
}
