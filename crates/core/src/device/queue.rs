//! The queue of a device.

use crate::bio::Commands;
use crate::unit::Nanos;

/// The data plane of a device. No method blocks, allocates or reads a clock.
///
/// Every command that a queue took comes back through `poll` exactly once. Its status reports an error, a power cut or
/// the removal of the device.
pub trait Queue: Send {
    /// Takes commands from the front of `commands`, in order, as many as fit. Leaves commands in the list if the
    /// queue is full.
    fn submit(&mut self, now: Nanos, commands: &mut Commands);

    /// Appends the commands that have finished by `now` to `done`.
    fn poll(&mut self, now: Nanos, done: &mut Commands);

    /// Returns the next time at which a call of `poll` has something to do. `None`: nothing is in flight, or the
    /// waker will be called.
    fn next_deadline(&self) -> Option<Nanos>;

    /// Asks that the waker be called at the next completion. A command that has finished before this call need not
    /// call it, so the caller polls once more before it sleeps.
    fn arm(&mut self);

    /// Like [`Queue::arm`], for an owner that sleeps in poll(2). Returns a descriptor that becomes readable at the
    /// next completion, if the device has one. The device then need not call the waker for that completion, which saves
    /// the owner the microseconds of a wake-up by a thread of the device. Without such a descriptor, does what
    /// `arm` does and returns `None`.
    fn arm_fd(&mut self) -> Option<i32> {
        self.arm();
        None
    }
}

/// A placeholder for a queue that was closed or has panicked.
pub(crate) struct ClosedQueue;

impl Queue for ClosedQueue {
    fn submit(&mut self, _: Nanos, _: &mut Commands) {}
    fn poll(&mut self, _: Nanos, _: &mut Commands) {}
    fn next_deadline(&self) -> Option<Nanos> {
        None
    }
    fn arm(&mut self) {}
}
