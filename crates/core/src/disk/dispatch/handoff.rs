//! What a queue whose device is gone leaves to another.
//!
//! Where a scheduler or a single writer decides who goes first, the queue that has a tag back sends what is next, whoever's it
//! is. One that has died, or whose every place at the device is late, would be the first that has room each time, and fail
//! everybody's work: so it asks another to go on in its place. Only disks whose queues are watched (`guard/inflight.rs`) come here.
//!
//! An errand moves work from a queue that is busy to one that may have told a freeze that it is idle: it makes that one's word
//! *busy*, under the mailbox's lock. A look at all words cannot miss it and see its sender idle: the look has the list of
//! queues locked, and who says that he is idle has had that lock since he left the errand (`DiskQueue::refresh`).

use crate::disk::lane::Lane;
use crate::disk::lane::backlog::Work;
use crate::disk::mailbox::Mailbox;
use crate::disk::shared::Shared;
use crate::sync::{Ordering, lock};
use std::sync::Arc;

impl Lane {
    /// Takes what another has left to this queue, and says whether others may leave something. Returns whether it has to ask the scheduler who is next.
    #[cold]
    pub(crate) fn run_errands(&mut self) -> bool {
        self.mailbox.down.store(self.outlook.is_down(), Ordering::Release);
        let line = &mut self.backlog.line;
        self.mailbox.has_errands()
            && self.mailbox.take_errands(|zone| line.push_back(Work::Zone(zone)))
    }

    /// If this queue is down: leaves the turns that it has in line to another, and `ask`, that the scheduler is asked. False:
    /// it is not, or it has to do so itself, and fail, for there is no other.
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
