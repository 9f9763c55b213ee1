//! The seam below a disk. A [`Device`] is what a disk stands on; a [`Queue`] of it takes commands. Emulated disks, real
//! drives and layers on layers implement these two traits and pass the conformance suite.
//!
//! A layer that changes nothing but addresses for most commands offers an [`AddressMap`] with its queue ([`MappedQueue`]).

mod address_map;
mod mapped;
mod queue;

pub use address_map::{AddressMap, Displacement};
pub use mapped::{MapFallback, MappedQueue};
pub(crate) use queue::Gone;
pub use queue::Queue;

use crate::error::Error;
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
