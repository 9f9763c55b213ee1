//! The seam below a disk. A disk stands on a [`Device`], and each queue of the disk has a [`Queue`] of the device,
//! which takes commands. Emulated disks, real drives and layers implement these two traits and pass the conformance
//! suite.
//!
//! A layer that changes only the address of most commands offers an [`AddressMap`] with its queue ([`MappedQueue`]).

mod address_map;
mod fua;
mod mapped;
mod queue;

pub use address_map::{AddressMap, Displacement};
pub(crate) use fua::FuaQueue;
pub use mapped::{MapFallback, MappedQueue};
pub(crate) use queue::ClosedQueue;
pub use queue::Queue;

use crate::error::Error;
use crate::zone::{Geometry, Limits, Spindles};
use std::task::Waker;

/// The control plane of a device: rare calls.
pub trait Device: Send + Sync {
    /// Returns the layout of zones as the device has it now. The layout may grow while a disk is open; a revalidation
    /// adopts it.
    fn geometry(&self) -> &Geometry;

    /// The limits and abilities of the device.
    fn limits(&self) -> &Limits;

    /// Returns whether the device uses the argument `now` of its queues. If not, a driver may pass an old time and
    /// need not read a clock.
    fn is_timed(&self) -> bool {
        true
    }

    /// Returns whether the device's queues never panic. If they may, a disk keeps notes of the commands that they
    /// hold, which costs 40 to 300 instructions a BIO (see `survive_panics` of
    /// [`DiskConfig`](crate::disk::DiskConfig)). Devices that wait for hardware, and devices of other crates, should
    /// return false: that cost is small beside the time that such a device takes.
    fn never_panics(&self) -> bool {
        false
    }

    /// Returns the spindle of each zone; zones of one spindle share a head. A layer returns what the device below it
    /// returns, and a layer on several devices joins their answers. A device that returns the default gets one single
    /// writer for all its zones. A disk asks once, when it is opened.
    fn spindles(&self) -> Spindles {
        Spindles::one(std::ptr::from_ref(self).cast::<()>().addr())
    }

    /// Opens a queue that takes up to `depth` commands at a time. After [`Queue::arm`], the device wakes `waker` when
    /// the next command finishes. Fails if the device cannot provide the queue, for example for lack of threads or
    /// descriptors.
    fn open_queue(&self, depth: u16, waker: Waker) -> Result<Box<dyn Queue>, Error>;

    /// Like [`Device::open_queue`], for an owner that calls the queue by value. A layer that only adds to the sector
    /// of most commands returns the queue of the device below with an [`AddressMap`]. Such a command then costs no
    /// call of the layer.
    fn open_mapped_queue(&self, depth: u16, waker: Waker) -> Result<MappedQueue, Error> {
        self.open_queue(depth, waker).map(MappedQueue::from)
    }
}
