//! Queues that were dropped with work in flight, until that is done.
//!
//! Whoever polls another queue of the disk polls them, and whoever arms one arms them. Called by `DiskQueue`; owns the list
//! of them while it is out of its lock, and what their queues of the device wake. Never blocks, and never calls a device or
//! a waker under the list's lock.

use super::mailbox::Mailbox;
use super::{ORPHANS, Shared};
use crate::bio::Bios;
use crate::disk::queue::DiskQueue;
use crate::planted::{Bug, planted};
use crate::sync::{AtomicBool, Mutex, Ordering, lock};
use crate::unit::Nanos;
use std::sync::Arc;
use std::task::{Wake, Waker};

/// The mailboxes of the open queues of a disk, by id.
pub(crate) type Queues = Mutex<Vec<Option<Arc<Mailbox>>>>;

/// Wakes every queue that sleeps, with no lock held: a waker may use the disk (I8).
pub(crate) fn wake_all(queues: &Queues) {
    let all: Vec<_> = lock(queues).iter().flatten().cloned().collect();
    for q in all {
        q.wake();
    }
}

/// What a queue of the device wakes: its owner, or everybody once that one has gone. It does not hold the disk: a
/// device's thread must not be the last that does.
#[derive(Debug)]
pub(crate) struct Bell {
    owner: Waker,
    left: AtomicBool,
    queues: Arc<Queues>,
}

impl Bell {
    pub(crate) fn new(owner: Waker, queues: Arc<Queues>) -> Arc<Bell> {
        Arc::new(Bell { owner, left: AtomicBool::new(false), queues })
    }

    /// The queue becomes an orphan. Said before everybody is told of that.
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

impl DiskQueue {
    /// Polls the queues that were dropped with work in flight, and lets those go that have none left.
    #[cold]
    pub(crate) fn poll_orphans(&mut self, now: Nanos) {
        let mut dropped = Bios::new();
        self.shared.visit_orphans(|orphan| {
            let state = orphan.shared.state.0.load(Ordering::Acquire);
            orphan.lane.seen = state;
            orphan.layout = lock(&orphan.shared.layout).clone();
            orphan.lane.follow(&orphan.layout);
            orphan.lane.peers.clone_from(&lock(&orphan.shared.queues));
            orphan.poll(now, &mut dropped);
            super::freeze::acknowledge(&orphan.lane, state);
            orphan.lane.holds_commands()
        });
    }
}

impl Shared {
    /// Has the orphans' queues of the device wake those who sleep: what one of them waits for may be behind an orphan's
    /// command. Called with the caller's waker in place, so that nothing that happens from here on is missed.
    #[cold]
    pub(crate) fn arm_orphans(&self) {
        if !planted(Bug::OrphanUnarmed) {
            self.visit_orphans(|orphan| {
                orphan.lane.lower.arm();
                true
            });
        }
    }

    /// Lets `visit` see each of them; it answers whether the orphan stays.
    fn visit_orphans(&self, visit: impl FnMut(&mut DiskQueue) -> bool) {
        // Taken out meanwhile: their own refresh comes by here too.
        let mut orphans = std::mem::take(&mut *lock(&self.orphans));
        orphans.retain_mut(visit);
        let none_left = orphans.is_empty();
        let mut list = lock(&self.orphans);
        list.append(&mut orphans);
        // Under the list's lock: another visitor may have found it empty meanwhile, and cleared the bit.
        let mut missed = false;
        if list.is_empty() || planted(Bug::OrphanBitLost) && none_left {
            self.state.0.fetch_and(!ORPHANS, Ordering::AcqRel);
        } else {
            missed = self.state.0.fetch_or(ORPHANS, Ordering::AcqRel) & ORPHANS == 0;
        }
        drop(list);
        if missed && !planted(Bug::OrphansBackInSilence) {
            // He sleeps by now, and this owner may have nothing more to come back for.
            self.wake_all();
        }
    }
}
