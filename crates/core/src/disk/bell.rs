//! The waker of a device's queue.

use super::mailbox::{Queues, wake_all};
use crate::sync::{AtomicBool, Ordering};
use std::sync::Arc;
use std::task::{Wake, Waker};

/// The waker that a queue of the device gets. It wakes the owner of the disk's queue, or all queues once that owner
/// has left. It does not keep the disk open, because a device's thread must not be the one that drops the last handle
/// of the disk.
#[derive(Debug)]
pub(crate) struct Bell {
    /// The waker of the queue's owner.
    owner: Waker,
    /// Whether the owner has left.
    left: AtomicBool,
    /// The mailboxes of all open queues.
    queues: Arc<Queues>,
}

impl Bell {
    pub(crate) fn new(owner: Waker, queues: Arc<Queues>) -> Arc<Bell> {
        Arc::new(Bell { owner, left: AtomicBool::new(false), queues })
    }

    /// Records that the queue becomes an orphan. Called before the other queues are woken to poll it.
    pub(crate) fn owner_leaves(&self) {
        self.left.store(true, Ordering::Release);
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.left.load(Ordering::Acquire) {
            wake_all(&self.queues);
        } else {
            self.owner.wake_by_ref();
        }
    }
}
