//! Errors of drives.

use std::fmt;
use zoneplug_core::{CommandLine, ErrorDetail, ErrorKind, Hint};

/// The reason why a drive is not opened. [`Error::detail`](zoneplug_core::Error::detail) returns it. Failures of system
/// calls are not among them: their error has an [`std::io::Error`] as its source.
///
/// ```
/// use zoneplug_core::{Error, ErrorKind};
/// use zoneplug_host::DriveError;
/// let e = Error::from(DriveError::Mounted { drive: "/dev/sdb".into(), at: "/srv".into() });
/// assert_eq!((e.kind(), e.what()), (ErrorKind::Busy, "/dev/sdb is mounted at /srv"));
/// assert!(matches!(e.detail(), Some(DriveError::Mounted { at, .. }) if at == "/srv"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum DriveError {
    /// The path is that of a partition.
    Partition {
        /// The partition.
        drive: String,
    },
    /// The drive has no zones.
    NotZoned {
        /// The drive.
        drive: String,
    },
    /// The drive is host-aware: it takes writes in any order.
    HostAware {
        /// The drive.
        drive: String,
    },
    /// The kernel has refused the zones of the drive.
    NoZoneSize {
        /// The drive.
        drive: String,
    },
    /// The zones that the drive reports are none that can be served.
    Zones {
        /// The drive.
        drive: String,
        /// The reason.
        why: String,
    },
    /// The NVMe namespace cannot be used.
    Namespace {
        /// The namespace.
        drive: String,
        /// The reason.
        why: String,
    },
    /// The drive is write-protected.
    WriteProtected {
        /// The drive.
        drive: String,
    },
    /// The drive is mounted.
    Mounted {
        /// The drive.
        drive: String,
        /// The path of the mount.
        at: String,
    },
    /// Other devices are built on the drive.
    Holders {
        /// The drive.
        drive: String,
        /// Their names.
        holders: Vec<String>,
    },
    /// Another program has the drive open exclusively.
    InUse {
        /// The drive.
        drive: String,
    },
    /// The drive has a file system or a partition table.
    HoldsData {
        /// The drive.
        drive: String,
        /// The name of the file system, or of the partition table.
        found: String,
    },
}

impl fmt::Display for DriveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DriveError::Partition { drive } => write!(f, "{drive} is a partition"),
            DriveError::NotZoned { drive } => write!(f, "{drive} has no zones"),
            DriveError::HostAware { drive } => {
                write!(f, "{drive} is host-aware: it takes writes in any order")
            }
            DriveError::NoZoneSize { drive } => {
                write!(f, "the kernel knows no zone size of {drive}")
            }
            DriveError::Zones { drive, why } => write!(f, "{drive}: {why}"),
            DriveError::Namespace { drive, why } => write!(f, "{drive} cannot be used: {why}"),
            DriveError::WriteProtected { drive } => write!(f, "{drive} is write-protected"),
            DriveError::Mounted { drive, at } => write!(f, "{drive} is mounted at {at}"),
            DriveError::Holders { drive, holders } => {
                write!(f, "{drive} is in use: {} is built on it", holders.join(", "))
            }
            DriveError::InUse { drive } => write!(f, "{drive} is in use by another program"),
            DriveError::HoldsData { drive, found } => write!(f, "{drive} holds {found}"),
        }
    }
}

impl std::error::Error for DriveError {}

impl ErrorDetail for DriveError {
    fn kind(&self) -> ErrorKind {
        match self {
            DriveError::WriteProtected { .. }
            | DriveError::Mounted { .. }
            | DriveError::Holders { .. }
            | DriveError::InUse { .. }
            | DriveError::HoldsData { .. } => ErrorKind::Busy,
            _ => ErrorKind::NotSupported,
        }
    }

    fn hint(&self) -> Option<Hint> {
        let hint = match self {
            DriveError::Partition { .. } => "the whole disk; zoned disks have no partitions",
            DriveError::NotZoned { .. } => {
                return Some(
                    Hint::from(
                        "a host-managed drive (lsblk -z shows them), an NVMe one as /dev/ngXnY, or a disk in a file: ",
                    )
                    .command(CommandLine::new("create")),
                );
            }
            DriveError::HostAware { .. } => "zoneplug is for host-managed drives",
            DriveError::NoZoneSize { .. } => {
                "dmesg says why it refused the drive; an NVMe one can be had as /dev/ngXnY"
            }
            DriveError::Zones { .. } => {
                "zoneplug needs a host-managed drive whose zones are all of one size and capacity"
            }
            DriveError::Namespace { .. } => {
                "nvme zns id-ns shows what a namespace is; one with zones is needed"
            }
            DriveError::WriteProtected { .. } => {
                "open it with read-only=1; blockdev --setrw takes the protection of a block device away"
            }
            DriveError::Mounted { .. } => {
                return Some(
                    Hint::from("umount it first, or open with read-only=1; ")
                        .option("force")
                        .text(" (force=1) writes all the same"),
                );
            }
            DriveError::Holders { .. } => {
                "take that apart first (dmsetup ls shows it), or open with read-only=1"
            }
            DriveError::InUse { .. } => {
                "end that first (fuser -v names it), or open with read-only=1"
            }
            DriveError::HoldsData { .. } => {
                return Some(
                    Hint::from("another drive, or read-only=1; if its data may go: ")
                        .option("force")
                        .text(" (force=1), or blkzone reset before"),
                );
            }
        };
        Some(hint.into())
    }
}
