//! zoneplug with threads: everything that has a file descriptor, a thread or a system call.
//!
//! A [`HostedDisk`] is a disk whose progress does not depend on any one client: see [`hosted`]. [`BlockingDisk`] is
//! the adapter for programs that do one thing at a time, with buffers that they own. [`open_device`] turns a
//! specification into a device.

pub mod asynchronous;
pub mod blocking;
mod clock;
pub mod file;
pub mod hosted;
mod reactor;
mod sleep;
mod spec;

pub use asynchronous::AsyncDisk;
pub use blocking::BlockingDisk;
pub use clock::Clock;
pub use hosted::{Client, Frozen, HostedDisk};
pub use spec::{DiskSpec, file_of, open_device};
