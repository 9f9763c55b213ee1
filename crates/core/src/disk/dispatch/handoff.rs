//! What a queue whose device is gone leaves to another.
//!
//! Where a scheduler or a single writer decides who goes first, the queue that has a tag back sends what is next, whoever's it
//! is. One that has died, or whose every place at the device is late, would be the first that has room each time, and fail
//! everybody's work: so it asks another to go on in its place. Only disks whose queues are watched (`guard/inflight.rs`) come here.
//!
//! An errand moves work from a queue that is busy to one that may have told a freeze that it is idle: it makes that one's word
//! *busy*, under the mailbox's lock. A look at all words cannot miss it and see its sender idle: the look has the list of
//! queues locked, and who says that he is idle has had that lock since he left the errand (`DiskQueue::refresh`).

use crate::disk::Shared;
use crate::disk::mailbox::Mailbox;
use crate::disk::queue::{Lane, Ready};
use crate::sync::{Ordering, lock};
use std::sync::Arc;

impl Lane {
    /// Whether its queue of the device takes nothing any more.
    fn is_down(&self) -> bool {
        // One place is that of the disk's own reports.
        let places = u32::from(self.tags) + 1;
        self.late.as_ref().is_some_and(|toll| {
            toll.dead.load(Ordering::Acquire) || toll.late.load(Ordering::Acquire) >= places
        })
    }

    /// Takes what another has left to this queue, and says whether others may leave something. Returns whether it has to ask the scheduler who is next.
    #[cold]
    pub(crate) fn run_errands(&mut self) -> bool {
        self.mailbox.down.store(self.is_down(), Ordering::Release);
        self.mailbox.has_errands() && self.mailbox.take_errands(&mut self.line)
    }

    /// If this queue is down: leaves the turns that it has in line to another, and `ask`, that the scheduler is asked. False:
    /// it is not, or it has to do so itself, and fail, for there is no other.
    #[cold]
    pub(crate) fn leaves_to_another(&mut self, shared: &Shared, ask: bool) -> bool {
        if !self.is_down() {
            return false;
        }
        let bios;
        (bios, self.line) = self.line.drain(..).partition(|entry| matches!(entry, Ready::Bio(_)));
        if self.line.is_empty() && !ask {
            self.line = bios;
            return false;
        }
        let all: Vec<_> = lock(&shared.queues).iter().flatten().cloned().collect();
        let up = |m: &&Arc<Mailbox>| !m.down.load(Ordering::Acquire);
        let left = all.iter().filter(up).any(|peer| {
            let own = Arc::ptr_eq(peer, &self.mailbox);
            !own && peer.push_errands(&mut self.line, ask)
        });
        // What is its own fails here and now; turns are in front, if they are still here.
        self.line.extend(bios);
        left
    }
}
