//! The hand-off: a queue leaves its work to another queue, because its own queue of the device takes nothing any
//! more.
//!
//! With a scheduler or a single writer, a queue that has a free tag sends the next work of any queue. A queue is
//! *down* if its device's queue has died, or if late commands fill it. The tags of such a queue are always free at
//! once, so it would take the work of all queues and fail it. Instead it leaves its zones to another queue as an
//! *errand*. Only queues that are watched for late commands (`guard/inflight.rs`) use this file.
//!
//! An errand moves work from a busy queue to one that may have told a freeze that it is idle. So the sender sets the
//! receiver's word to *busy*, under the mailbox's lock. A freeze cannot miss the errand and also find the sender
//! idle: it reads all words under the lock of the list of queues, and the sender takes that lock after it has left
//! the errand and before it says that it is idle (`DiskQueue::refresh`).

use crate::disk::mailbox::Mailbox;
use crate::disk::queue_state::QueueState;
use crate::disk::queue_state::backlog::Work;
use crate::disk::shared::Shared;
use crate::sync::{Ordering, lock};
use std::sync::Arc;

impl QueueState {
    /// Takes the errands that other queues have left, and publishes whether this queue is down. Returns whether an
    /// errand tells this queue to ask the scheduler for work.
    #[cold]
    pub(crate) fn run_errands(&mut self) -> bool {
        self.mailbox.down.store(self.late_commands.is_down(), Ordering::Release);
        let line = &mut self.backlog.line;
        self.mailbox.has_errands()
            && self.mailbox.take_errands(|zone| line.push_back(Work::Zone(zone)))
    }

    /// If this queue is down, leaves the zones in its line to another queue; with `ask`, also asks that queue to take
    /// work from the scheduler. Returns false if the queue is not down or there is no other queue. It then goes on by
    /// itself, and fails its work if it is down.
    #[cold]
    pub(crate) fn leaves_to_another(&mut self, shared: &Shared, ask: bool) -> bool {
        if !self.late_commands.is_down() {
            return false;
        }
        let mut zones = self.backlog.take_zones();
        if zones.is_empty() && !ask {
            return false;
        }
        let all: Vec<_> = lock(&shared.queues).iter().flatten().cloned().collect();
        let up = |m: &&Arc<Mailbox>| !m.down.load(Ordering::Acquire);
        let left = all.iter().filter(up).any(|peer| {
            let own = Arc::ptr_eq(peer, &self.mailbox);
            !own && peer.push_errands(&mut zones, ask)
        });
        // BIOs in the line always fail here. Zones fail here only if no other queue has taken them.
        self.backlog.put_zones(zones);
        left
    }
}
