//! Queues that were dropped with work in flight: other queues of the disk poll them until the work is done.
//!
//! A poll of another queue polls them, and arming another queue arms them. A poller takes them off the list for that
//! time, so that the list's lock is not held while a device or a waker is called.

use super::handle::DiskQueue;
use crate::bio::Bios;
use crate::disk::shared::Orphan;
use crate::sync::{Ordering, lock};
use crate::unit::Nanos;

impl Orphan for DiskQueue {
    #[cold]
    fn poll_orphan(&mut self, now: Nanos) -> bool {
        let mut dropped = Bios::new();
        let state = self.shared.state.0.load(Ordering::Acquire);
        self.lane.seen = state;
        self.layout = lock(&self.shared.layout).clone();
        self.lane.follow(&self.layout);
        self.lane.peers.clone_from(&lock(&self.shared.queues));
        self.poll(now, &mut dropped);
        self.lane.acknowledge(state);
        self.lane.holds_commands()
    }

    fn arm_orphan(&mut self) {
        self.lane.lower.arm();
    }

    fn own_deadline(&self) -> Option<Nanos> {
        self.lane.next_deadline()
    }
}
