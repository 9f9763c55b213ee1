//! The effects of authentication on the controllers of a target.

use crate::spec::status;
use crate::target::{Namespaces, QueueId, Target};
use std::sync::Arc;
use zoneplug_core::Nanos;

impl Target {
    /// Admits a queue whose host has authenticated. An I/O queue counts as connected only from now on: any peer that
    /// knows the names can send its Connect, so before this the queue must not occupy a number that the host needs.
    /// Returns the namespaces of an I/O queue.
    ///
    /// # Errors
    ///
    /// The status to answer if the controller or its I/O queues have ended meanwhile, or if the queue is connected by
    /// now. The caller must then close the connection.
    pub fn admitted(&mut self, queue: QueueId, now: Nanos) -> Result<Option<Arc<Namespaces>>, u16> {
        let Some(c) = self.controllers.get_mut(&queue.controller) else {
            return Err(status::SEQUENCE);
        };
        if queue.qid == 0 {
            c.unauthenticated = false;
            return Ok(None);
        }
        let subsystem = c.subsystem(&self.registry).ok_or(status::SEQUENCE)?;
        // The status answers an authentication command, so it is not the one that Connect would give.
        c.open_queue(queue.qid, now).map_err(|_| status::SEQUENCE)?;
        Ok(Some(c.shown(subsystem)))
    }

    /// Handles a host that has failed to authenticate, for the first time or again. On the admin queue, this ends the
    /// I/O queues and allows no new ones.
    pub fn refused(&mut self, queue: QueueId) {
        let of_admin = self.controllers.get_mut(&queue.controller).filter(|_| queue.qid == 0);
        if let Some(c) = of_admin {
            c.unauthenticated = true;
            c.close_queues(&mut self.events);
        }
    }
}
