//! What Linux block devices and NVMe character devices have in common: the way of a command through a ring, the memory that
//! the kernel takes, the limits in sysfs, the meaning of an errno, and what must not be written over.
//!
//! | file | state |
//! | --- | --- |
//! | `check.rs` | checks of a command that need no drive |
//! | `queue.rs` | commands on their way; the [`Drive`] decides each step |
//! | `memory.rs` | the memory of one command as the kernel takes it |
//! | `sysfs.rs` | a disk's attributes as the kernel shows them |
//! | `errno.rs` | what an errno says |
//! | `layout.rs` | from a report to a geometry |
//! | `guard.rs`, `signature.rs` | how a device is in use, and what is on it |
//!
//! Called by `blk` and `nvme`, which know commands; never issues one itself.

mod check;
mod errno;
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
pub(crate) use guard::{Claim, Node, cannot_open, claim, refuse_data};
pub(crate) use layout::geometry_of;
pub(crate) use memory::{Memory, Rules, memory_rules};
pub(crate) use queue::{Drive, Event, Outcome, Shared, Slot, Step};

use crate::spec::{Purpose, keys};
use std::path::Path;
use std::sync::Arc;
use zoneplug_core::{Device, Error, ErrorKind};
use zoneplug_devices::spec::Spec;

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

/// The error of a system without io_uring.
pub(crate) fn no_ring(e: std::io::Error) -> Error {
    Error::new(ErrorKind::NotSupported, format!("io_uring cannot be used: {e}"))
        .hint("a kernel of 6.1 or newer; sysctl kernel.io_uring_disabled=0; more open files (ulimit -n)")
        .source(e)
}

/// Whether a drive is write-protected. False if the drive cannot be asked.
pub(crate) fn is_protected(path: &Path) -> bool {
    use std::os::unix::fs::FileTypeExt;
    match std::fs::metadata(path) {
        Ok(m) if m.file_type().is_char_device() => crate::backend::nvme::is_protected(path),
        _ => Node::of(path, "block").is_ok_and(|node| node.disk.is_read_only()),
    }
}

/// Opens the drive at the path that a specification names.
pub(crate) fn open(spec: &mut Spec, purpose: Purpose) -> Result<Arc<dyn Device>, Error> {
    use std::os::unix::fs::FileTypeExt;
    let options = DriveOptions {
        read_only: spec.flag(&keys::READ_ONLY)?.unwrap_or(purpose == Purpose::Look),
        force: spec.flag(&keys::FORCE)?.unwrap_or(false),
        serve: purpose == Purpose::Serve,
    };
    let buffered = spec.flag(&keys::DRIVE_DIRECT)? == Some(false);
    spec.finish()?;
    if buffered {
        return Err(Error::invalid("direct=0 is not possible with a drive").hint(
            "the page cache would write in an order of its own, which a zone refuses: leave it out",
        ));
    }
    let path = Path::new(spec.kind());
    if std::fs::metadata(path).is_ok_and(|m| m.file_type().is_char_device()) {
        return Ok(crate::backend::nvme::NvmeDisk::open(path, options)?);
    }
    Ok(crate::backend::blk::BlkDisk::open(path, options)?)
}
