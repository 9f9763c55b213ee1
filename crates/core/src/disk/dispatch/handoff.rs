//! The hand-off: work that a queue leaves to another because its device's queue takes nothing any more.
//!
//! With a scheduler or a single writer, a queue that has a free tag sends the next work of any queue. A queue that is down (its
//! device's queue has died, or late commands fill it) has a free tag at once each time, and would fail the work of all
//! queues. So it leaves its zones to another queue as an *errand*. Only watched queues (`guard/inflight.rs`) come here.
//!
//! An errand moves work from a busy queue to a queue that may have told a freeze that it is idle, so it sets that queue's word
//! to *busy* under the mailbox's lock. A freeze that reads all words cannot miss the errand and find the sender idle: it
//! reads them under the lock of the list of queues, and a sender takes that lock after it has left an errand and before it
//! says that it is idle (`DiskQueue::refresh`).

use crate::disk::lane::Lane;
use crate::disk::lane::backlog::Work;
use crate::disk::mailbox::Mailbox;
use crate::disk::shared::Shared;
use crate::sync::{Ordering, lock};
use std::sync::Arc;

impl Lane {
    /// Takes the errands that other queues have left, and publishes whether this queue is down. Returns whether it has to ask
    /// the scheduler.
    #[cold]
    pub(crate) fn run_errands(&mut self) -> bool {
        self.mailbox.down.store(self.outlook.is_down(), Ordering::Release);
        let line = &mut self.backlog.line;
        self.mailbox.has_errands()
            && self.mailbox.take_errands(|zone| line.push_back(Work::Zone(zone)))
    }

    /// If this queue is down, leaves the zones in its line to another queue, and with `ask` also the question to the
    /// scheduler. False: the queue is not down, or there is no other queue, so it goes on by itself and fails the work.
    #[cold]
    pub(crate) fn leaves_to_another(&mut self, shared: &Shared, ask: bool) -> bool {
        if !self.outlook.is_down() {
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
        // Without another queue its zones fail here and now, and so do its BIOs in any case.
        self.backlog.put_zones(zones);
        left
    }
}
