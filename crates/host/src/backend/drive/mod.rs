//! Shared by Linux block devices and NVMe character devices: commands on a ring, the memory that the kernel takes,
//! the limits in sysfs, the meaning of an errno, and the check that a drive holds no data of others.
//!
//! | file | state |
//! | --- | --- |
//! | `check.rs` | checks of a command that need no drive |
//! | `queue.rs` | commands in flight; the [`Drive`] decides each step |
//! | `memory.rs` | the memory of one command as the kernel takes it |
//! | `sysfs.rs` | a disk's attributes as the kernel shows them |
//! | `error.rs` | the errors, with fields for programs |
//! | `errno.rs` | the status that an errno means |
//! | `layout.rs` | from a report to a geometry |
//! | `guard.rs`, `signature.rs` | how a device is in use, and what is on it |
//!
//! `blk` and `nvme` call this and decide which commands are sent. This module sends none by itself.

mod check;
mod errno;
mod error;
mod guard;
mod layout;
mod memory;
mod queue;
mod signature;
pub(crate) mod sysfs;
#[cfg(test)]
pub(crate) mod testing;

pub(crate) use check::check;
pub(crate) use errno::{is_gone_errno, status_of};
pub use error::DriveError;
pub(crate) use guard::{Claim, Node, cannot_open, claim, claim_or, refuse_data};
pub(crate) use layout::geometry_of;
pub(crate) use memory::{Memory, Rules, memory_rules};
pub(crate) use queue::{Drive, DriveEvent, DriveShared, DriveSlot, DriveStep, Outcome};

use crate::os_error::{Attempt, os_error};
use zoneplug_core::Error;

/// How a drive is opened.
///
/// ```
/// let o = zoneplug_host::DriveOptions { read_only: true, ..Default::default() };
/// assert!(!o.force);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DriveOptions {
    /// Only reads and reports. The drive may then hold any data and be in use.
    pub read_only: bool,
    /// Write although the drive holds a file system or a partition table, or is mounted.
    pub force: bool,
    /// Write for the clients of a server, which own the data on the drive: a file system or a partition table on it is
    /// no reason to refuse it. A drive that is mounted or in use is refused all the same.
    pub serve: bool,
}

/// The error of a drive's ring that cannot be made.
pub(crate) fn no_ring(e: std::io::Error) -> Error {
    os_error(Attempt::DriveRing, "io_uring cannot be used", e)
}
