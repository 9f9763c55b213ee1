//! Queues that were dropped with work in flight: other queues of the disk poll them until the work is done.
//!
//! Each poll of another queue polls the orphans, and arming another queue arms them. Such a visitor takes the orphans
//! off their list meanwhile, so that it does not hold the list's lock while it calls a device or a waker.

use super::handle::DiskQueue;
use crate::bio::Bios;
use crate::disk::queue_state::QueueState;
use crate::disk::shared::{Orphan, Shared};
use crate::disk::state::EARLY;
use crate::sync::{Ordering, lock};
use crate::unit::Nanos;
use std::sync::Arc;

/// An orphan is the state of the dropped queue. This state does not keep the disk alive, so a visitor passes in the
/// disk's shared state.
impl Orphan for QueueState {
    #[cold]
    fn poll_orphan(&mut self, shared: &Arc<Shared>, now: Nanos) -> bool {
        let disk_state = shared.state.0.load(Ordering::Acquire);
        let layout = lock(&shared.layout).clone();
        let state = std::mem::replace(self, QueueState::closed());
        let mut queue = DiskQueue { shared: shared.clone(), layout, state };
        queue.state.seen = disk_state & !EARLY;
        queue.state.follow(&queue.layout);
        queue.state.peers.clone_from(&lock(&shared.queues));
        let mut dropped = Bios::new();
        queue.poll(now, &mut dropped);
        queue.state.acknowledge(disk_state);
        let has_work = queue.state.holds_commands();
        if has_work {
            std::mem::swap(self, &mut queue.state);
        }
        // A queue without work closes when it is dropped here.
        has_work
    }

    fn arm_orphan(&mut self) {
        self.lower.arm();
    }

    fn own_deadline(&self) -> Option<Nanos> {
        self.next_deadline()
    }
}
