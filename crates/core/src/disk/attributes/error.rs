//! Errors of attributes.

use crate::error::{ErrorDetail, ErrorKind};
use crate::hint::Hint;
use std::fmt;

/// The reason why an attribute of a disk is not set. [`Error::detail`](crate::Error::detail) returns it.
///
/// ```
/// use zoneplug_core::disk::{AttributeError, Disk, DiskConfig};
/// use zoneplug_core::Nanos;
/// # use zoneplug_devices::emu::{EmuConfig, EmuDisk};
/// # let device = EmuDisk::new("null,zones=4,zone-size=1M".parse::<EmuConfig>().unwrap()).unwrap();
/// let disk = Disk::open(device, DiskConfig::default(), &mut |_| Nanos(0)).unwrap();
/// let e = disk.set_attribute("zoned_qd1_writes", "2").unwrap_err();
/// let Some(AttributeError::Value { value, .. }) = e.detail() else { panic!("{e}") };
/// assert_eq!(value, "2");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum AttributeError {
    /// The disk has no such attribute.
    Unknown {
        /// The name.
        name: String,
        /// The attributes of the disk.
        known: Vec<&'static str>,
    },
    /// Other disks have the attribute.
    Absent {
        /// The attribute.
        name: &'static str,
        /// The setting of those disks, as the end of a sentence: `scheduler=mq-deadline`.
        with: &'static str,
    },
    /// The attribute shows a property of the disk and cannot be set.
    ReadOnly {
        /// The attribute.
        name: String,
        /// The attributes that can be set.
        writable: Vec<&'static str>,
    },
    /// The value is not possible.
    Value {
        /// The attribute.
        name: &'static str,
        /// The value.
        value: String,
        /// The values that are possible, as the end of a sentence: `a whole number from 1 to 8`.
        allowed: String,
    },
    /// The value takes effect while the disk is drained, and the disk has queues with work.
    Drains {
        /// The attribute.
        name: String,
    },
    /// Zone locks need a scheduler.
    LocksWithoutScheduler,
    /// Another change, which waits for the disk to drain, contradicts this one.
    Pending {
        /// The change.
        change: String,
        /// The change that waits.
        pending: String,
    },
    /// `zone_write_depth` does not go with another property of the disk.
    ZoneDepth {
        /// Writes of a zone in flight.
        depth: u32,
        /// The other property.
        with: &'static str,
        /// The change that makes room for it.
        instead: &'static str,
    },
}

impl fmt::Display for AttributeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AttributeError::Unknown { name, .. } => write!(f, "there is no attribute {name}"),
            AttributeError::Absent { name, with } => {
                write!(f, "this disk has no {name}: it is an attribute of disks with {with}")
            }
            AttributeError::ReadOnly { name, .. } => {
                write!(f, "the attribute {name} cannot be changed")
            }
            AttributeError::Value { name, value, allowed } => {
                write!(f, "{name} is {allowed}, not {value}")
            }
            AttributeError::Drains { name } => {
                write!(f, "{name} is changed while the disk is drained")
            }
            AttributeError::LocksWithoutScheduler => write!(f, "zone locks need a scheduler"),
            AttributeError::Pending { change, pending } => {
                write!(f, "{change} does not go with {pending}, which is being set")
            }
            AttributeError::ZoneDepth { depth, with, .. } => {
                write!(f, "zone_write_depth={depth} does not go with {with}")
            }
        }
    }
}

impl std::error::Error for AttributeError {}

impl ErrorDetail for AttributeError {
    fn kind(&self) -> ErrorKind {
        match self {
            AttributeError::Unknown { .. } | AttributeError::Absent { .. } => ErrorKind::NotFound,
            AttributeError::Drains { .. } | AttributeError::Pending { .. } => ErrorKind::Busy,
            AttributeError::ZoneDepth { .. } => ErrorKind::NotSupported,
            _ => ErrorKind::Invalid,
        }
    }

    fn hint(&self) -> Option<Hint> {
        Some(match self {
            AttributeError::Unknown { known, .. } => {
                format!("attributes: {}", known.join(", ")).into()
            }
            AttributeError::Absent { with, .. } => format!("a disk with {with}").into(),
            AttributeError::ReadOnly { writable, .. } => {
                format!("writable attributes: {}", writable.join(", ")).into()
            }
            AttributeError::Value { .. } => {
                "zoneplug help spec has every attribute with its range".into()
            }
            AttributeError::Drains { .. } => {
                "use change_attribute and poll every queue, or close the queues".into()
            }
            AttributeError::LocksWithoutScheduler => {
                "use mq-deadline, or open the disk with mode=plug".into()
            }
            AttributeError::Pending { .. } => {
                "wait until that change has taken effect, then decide for one".into()
            }
            AttributeError::ZoneDepth { instead, .. } => (*instead).into(),
        })
    }
}
