//! The seam: what a disk stands on. Everything below the layer is a [`Device`]; everything that submits
//! commands to one holds a [`Queue`]. Emulated disks, real drives and layers on layers all implement these two,
//! and all pass the conformance suite.

use crate::bio::Commands;
use crate::error::Error;
use crate::unit::Nanos;
use crate::way::Way;
use crate::zone::{Geometry, Limits, Spindles};
use std::task::Waker;

/// The control plane of a device: rare calls.
pub trait Device: Send + Sync {
    /// The layout, as the device has it now.
    fn geometry(&self) -> &Geometry;

    /// What it can do.
    fn limits(&self) -> &Limits;

    /// Whether the device looks at `now`. A driver may pass an old time to one that does not, and save reading a clock.
    fn is_timed(&self) -> bool {
        true
    }

    /// Whether its queues never panic: then nobody keeps notes of what they hold for that case, which costs some 40 to
    /// 300 instructions a BIO (see `survive_panics` of [`DiskConfig`](crate::disk::DiskConfig)). Everything that waits for
    /// hardware, or that is not of this crate, says no: there the notes are nothing beside the device.
    fn never_panics(&self) -> bool {
        false
    }

    /// Which zones share a head. A layer says what the device below it says, and one of several devices joins what they say:
    /// else a disk on it has one single writer for all of them. Asked once, when a disk is opened.
    fn spindles(&self) -> Spindles {
        Spindles::one(std::ptr::from_ref(self).cast::<()>().addr())
    }

    /// A queue that takes up to `depth` commands at a time. `waker` is woken after [`Queue::arm`] when the next
    /// command finishes without anybody polling.
    fn open_queue(&self, depth: u16, waker: Waker) -> Result<Box<dyn Queue>, Error>;
}

/// The data plane: never blocks, allocates or asks the time.
///
/// What a queue was given it gives back through `poll`, exactly once, whatever happens: an error, a power
/// cut and a device that has gone are statuses.
pub trait Queue: Send {
    /// Takes commands from the front of `commands`, in order, as many as fit. What is left means *busy*.
    fn submit(&mut self, now: Nanos, commands: &mut Commands);

    /// Appends what has finished by `now` to `done`.
    fn poll(&mut self, now: Nanos, done: &mut Commands);

    /// The next moment at which `poll` has work of its own. `None`: nothing in flight, or the waker will tell.
    fn next_deadline(&self) -> Option<Nanos>;

    /// Asks that the waker be woken at the next completion. A command that finished before this call counts as
    /// one that `poll` must be called for: arm, poll once more, then sleep.
    fn arm(&mut self);

    /// [`Queue::arm`] for an owner who can sleep in poll(2): if there is a descriptor that becomes readable at the next
    /// completion, returns it, and the waker need not be called for that. Each thread between the device and the
    /// sleeper costs some microseconds. `None`: as `arm`.
    fn arm_fd(&mut self) -> Option<i32> {
        self.arm();
        None
    }

    /// A layer that does no more for most commands than to add to their sectors gives up its queue of the device below, with
    /// what is to be added: who asked goes around it from now on. `None`: it has something of its own to do, perhaps always.
    #[doc(hidden)]
    fn step_aside(&mut self) -> Option<Aside> {
        None
    }

    /// A layer that stepped aside gets its queue of the device back. Commands that are below by then come back as it sends
    /// its own.
    #[doc(hidden)]
    fn step_in(&mut self, _below: Box<dyn Queue>) {}
}

/// What a layer has left behind that stepped aside: [`Queue::step_aside`]. Only layers of this crate do.
#[doc(hidden)]
pub struct Aside {
    /// What is to be done in its place.
    pub way: Way,
    /// The device's queue.
    pub below: Box<dyn Queue>,
}

impl std::fmt::Debug for Aside {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Aside").field("way", &self.way).finish_non_exhaustive()
    }
}

/// In the place of a queue that is somewhere else, or of a device that has died.
#[doc(hidden)]
#[derive(Debug)]
pub struct Gone;

impl Queue for Gone {
    fn submit(&mut self, _: Nanos, _: &mut Commands) {}
    fn poll(&mut self, _: Nanos, _: &mut Commands) {}
    fn next_deadline(&self) -> Option<Nanos> {
        None
    }
    fn arm(&mut self) {}
}
