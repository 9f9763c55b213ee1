//! The queue of a device.

use crate::bio::Commands;
use crate::unit::Nanos;

/// The data plane: never blocks, allocates or asks the time.
///
/// Every command that a queue took comes back through `poll` exactly once. An error, a power cut and a device that was removed
/// are statuses.
pub trait Queue: Send {
    /// Takes commands from the front of `commands`, in order, as many as fit. If commands are left, the queue is busy.
    fn submit(&mut self, now: Nanos, commands: &mut Commands);

    /// Appends the commands that have finished by `now` to `done`.
    fn poll(&mut self, now: Nanos, done: &mut Commands);

    /// The next time at which a call of `poll` has something to do. `None`: nothing is in flight, or the waker will be woken.
    fn next_deadline(&self) -> Option<Nanos>;

    /// Asks that the waker be woken at the next completion. A command that finished before this call counts as
    /// one that `poll` must be called for: arm, poll once more, then sleep.
    fn arm(&mut self);

    /// [`Queue::arm`] for an owner that sleeps in poll(2). Returns a descriptor that becomes readable at the next completion, if
    /// there is one; the waker need not be woken for that completion. Each thread between the device and the
    /// owner costs some microseconds. `None`: the same as `arm`.
    fn arm_fd(&mut self) -> Option<i32> {
        self.arm();
        None
    }
}

/// Stands in the place of a queue that was closed or has panicked.
pub(crate) struct Gone;

impl Queue for Gone {
    fn submit(&mut self, _: Nanos, _: &mut Commands) {}
    fn poll(&mut self, _: Nanos, _: &mut Commands) {}
    fn next_deadline(&self) -> Option<Nanos> {
        None
    }
    fn arm(&mut self) {}
}
