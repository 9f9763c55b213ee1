//! The queue of one device below a `linear` or a `stripe`, and the commands on their way to it.

use zoneplug_core::bio::Commands;
use zoneplug_core::device::Queue;
use zoneplug_core::unit::Nanos;

pub(super) struct Lower {
    pub(super) queue: Box<dyn Queue>,
    /// Commands that the device has not taken yet.
    pub(super) out: Commands,
}

impl Lower {
    pub(super) fn new(queue: Box<dyn Queue>, depth: usize) -> Lower {
        Lower { queue, out: Commands::with_capacity(depth) }
    }

    /// Offers the device the waiting commands. It takes as many as it has room for.
    pub(super) fn send(&mut self, now: Nanos) {
        if !self.out.is_empty() {
            self.queue.submit(now, &mut self.out);
        }
    }
}
