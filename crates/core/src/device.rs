//! The seam below a disk. A [`Device`] is what a disk stands on; a [`Queue`] of it takes commands. Emulated disks, real
//! drives and layers on layers implement these two traits and pass the conformance suite.
//!
//! A layer that changes nothing but addresses for most commands offers an [`AddressMap`] with its queue ([`MappedQueue`]).

mod address_map;
mod mapped;

pub use address_map::{AddressMap, Displacement};
pub use mapped::{MapFallback, MappedQueue};

use crate::bio::Commands;
use crate::error::Error;
use crate::unit::Nanos;
use crate::zone::{Geometry, Limits, Spindles};
use std::task::Waker;

/// The control plane of a device: rare calls.
pub trait Device: Send + Sync {
    /// The layout, as the device has it now.
    fn geometry(&self) -> &Geometry;

    /// What it can do.
    fn limits(&self) -> &Limits;

    /// Whether the device uses `now`. If not, a driver may pass an old time and save reading a clock.
    fn is_timed(&self) -> bool {
        true
    }

    /// Whether its queues never panic. If they may, a disk keeps notes of the commands they hold, which costs 40 to
    /// 300 instructions a BIO (see `survive_panics` of [`DiskConfig`](crate::disk::DiskConfig)). Devices that wait for hardware
    /// and devices of other crates say no: beside them that cost is nothing.
    fn never_panics(&self) -> bool {
        false
    }

    /// Which zones share a head. A layer returns what the device below it returns, and a layer on several devices joins
    /// their answers; without that a disk has one single writer for all zones. Asked once, when a disk is opened.
    fn spindles(&self) -> Spindles {
        Spindles::one(std::ptr::from_ref(self).cast::<()>().addr())
    }

    /// Opens a queue that takes up to `depth` commands at a time. After [`Queue::arm`], `waker` is woken when the next
    /// command finishes.
    fn open_queue(&self, depth: u16, waker: Waker) -> Result<Box<dyn Queue>, Error>;

    /// [`Device::open_queue`] for an owner that calls the queue by value. A layer whose work for most commands is an addition
    /// to the sector returns its queue of the device below with an [`AddressMap`]: then a command takes no call of the layer.
    fn open_mapped_queue(&self, depth: u16, waker: Waker) -> Result<MappedQueue, Error> {
        self.open_queue(depth, waker).map(MappedQueue::from)
    }
}

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
