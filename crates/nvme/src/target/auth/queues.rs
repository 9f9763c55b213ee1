//! What authentication changes for the controllers of a target.

use crate::spec::status;
use crate::target::{Namespaces, QueueId, Target};
use std::sync::Arc;
use zoneplug_core::Nanos;

impl Target {
    /// The host of a queue has authenticated. An I/O queue is connected from now on, not from its Connect on: until then
    /// any peer that knows names may have sent that, so it keeps no number of a queue from the host. Returns the namespaces of
    /// an I/O queue.
    ///
    /// # Errors
    ///
    /// The status to answer: the controller or its I/O queues have ended meanwhile, or the queue is connected by now. The
    /// connection is to be closed then.
    pub fn admitted(&mut self, queue: QueueId, now: Nanos) -> Result<Option<Arc<Namespaces>>, u16> {
        let Some(c) = self.controllers.get_mut(&queue.controller) else {
            return Err(status::SEQUENCE);
        };
        if queue.qid == 0 {
            c.locked = false;
            return Ok(None);
        }
        let subsystem = c.subsystem(&self.registry).ok_or(status::SEQUENCE)?;
        // The status is that of an authentication command, so not that of the Connect which asked for the queue.
        c.open_queue(queue.qid, now).map_err(|_| status::SEQUENCE)?;
        Ok(Some(c.shown(subsystem)))
    }

    /// The host of a queue has failed to authenticate, for the first time or again. If that is the admin queue, the I/O
    /// queues end, and no more are connected.
    pub fn refused(&mut self, queue: QueueId) {
        let of_admin = self.controllers.get_mut(&queue.controller).filter(|_| queue.qid == 0);
        if let Some(c) = of_admin {
            c.locked = true;
            c.close_queues(&mut self.events);
        }
    }
}
