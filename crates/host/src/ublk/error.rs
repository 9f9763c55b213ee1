//! Errors of ublk devices.

use super::MAX_ID;
use std::fmt;
use zoneplug_core::{CommandLine, ErrorDetail, ErrorKind, Hint, plain};

/// The reason why a disk is not served as a ublk device. [`Error::detail`](zoneplug_core::Error::detail) returns it.
/// Failures of system calls are not among them: their error has an [`std::io::Error`] as its source.
///
/// ```
/// use zoneplug_core::{Error, ErrorKind};
/// use zoneplug_host::ublk::UblkError;
/// let e = Error::from(UblkError::Served { id: 3, process: 77 });
/// assert_eq!(e.what(), "/dev/ublkb3 is this disk, and process 77 serves it");
/// assert!(matches!(e.detail(), Some(UblkError::Served { process: 77, .. })));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum UblkError {
    /// There is no device of this number.
    NoDevice {
        /// The number.
        id: u32,
    },
    /// Another process serves the device.
    InUse {
        /// The number of the device.
        id: u32,
        /// The process.
        process: i32,
    },
    /// Another device has the number that was asked for.
    Exists {
        /// The number.
        id: u32,
    },
    /// Linux has the disk as a device that another server serves.
    Served {
        /// The number of the device.
        id: u32,
        /// The process of the server.
        process: i32,
    },
    /// Linux has the disk as a device whose server ends. The driver has not noticed the end yet.
    Ending {
        /// The number of the device.
        id: u32,
        /// The process of the server.
        process: i32,
    },
    /// Linux has the disk as a device that waits for its server, and another number was asked for.
    OtherNumber {
        /// The number of the waiting device.
        id: u32,
    },
    /// A device waits for its server, and this disk cannot be proven to be the device's.
    Waits {
        /// The number of the device.
        id: u32,
        /// The paths of this disk's files or drives.
        paths: String,
        /// The difference.
        because: WaitReason,
    },
    /// The device waits for this disk, but had another layout.
    OtherLayout {
        /// The number of the device.
        id: u32,
    },
    /// An earlier version of zoneplug made the device in a mode that does not exist any more.
    Batch {
        /// The number of the device.
        id: u32,
    },
    /// Linux has no number as high as that of a disk's last device.
    NumberTooHigh {
        /// The specification of the disk.
        disk: String,
        /// The number.
        number: u64,
    },
    /// Two disks would have devices of one number.
    NumberTwice {
        /// The number.
        number: u64,
        /// The specification of a disk.
        disk: String,
        /// The specification of the other disk.
        other: String,
    },
    /// Another program has stopped the device while it was served.
    Stopped {
        /// The device.
        path: String,
    },
    /// The driver does not keep the words by which the next server recognises the disk of a device.
    KeepsNoIdentity,
}

/// The reason why a disk is not served as the device that waits for it. A mounted file system would find other data.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitReason {
    /// The file is a copy: the device was served from another one.
    Copy {
        /// The file of the device, if it is known.
        original: Option<String>,
    },
    /// The path now leads to another drive.
    OtherDrive,
    /// A backup was copied over the file.
    Older,
    /// The version of zoneplug that made the device did not note the place of the disk.
    PlaceUnknown,
    /// The version of zoneplug that made the device did not note the key of a layer.
    KeyUnknown,
    /// The layers, keys or order of disks differ, or the disk is to be served without recovery.
    OtherLayers,
}

impl fmt::Display for UblkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UblkError::NoDevice { id } => write!(f, "there is no ublk device {id}"),
            UblkError::InUse { id, process } => {
                write!(f, "/dev/ublkb{id} is served by process {process}")
            }
            UblkError::Exists { id } => write!(f, "there is a ublk device {id} already"),
            UblkError::Served { id, process } => {
                write!(f, "/dev/ublkb{id} is this disk, and process {process} serves it")
            }
            UblkError::Ending { id, process } => write!(
                f,
                "/dev/ublkb{id} is of this disk, and Linux waits for the end of its server, process {process}"
            ),
            UblkError::OtherNumber { id } => {
                write!(f, "Linux has this disk as /dev/ublkb{id}, which waits for its server")
            }
            UblkError::Waits { id, paths, because } => {
                let why = match because {
                    WaitReason::Copy { original } => {
                        let original = original.as_deref().unwrap_or("another file");
                        format!(
                            "{paths} is a copy of its disk: the device was served from {original}"
                        )
                    }
                    WaitReason::OtherDrive => format!("{paths} now leads to another drive"),
                    WaitReason::Older => {
                        format!(
                            "{paths} is older than what its last server had: a backup was copied over the file"
                        )
                    }
                    WaitReason::PlaceUnknown => {
                        format!(
                            "the version of zoneplug that made it did not note where {paths} was"
                        )
                    }
                    WaitReason::KeyUnknown => {
                        format!(
                            "the version of zoneplug that made it did not note which key {paths} had"
                        )
                    }
                    WaitReason::OtherLayers => {
                        return UblkError::OtherNumber { id: *id }.fmt(f);
                    }
                };
                write!(f, "/dev/ublkb{id} waits for its server, and {why}")
            }
            UblkError::OtherLayout { id } => {
                write!(f, "/dev/ublkb{id} waits for this disk, but the disk has another layout now")
            }
            UblkError::Batch { id } => write!(
                f,
                "/dev/ublkb{id} is this disk, made by an earlier zoneplug with --batch, which this version does not have"
            ),
            UblkError::NumberTooHigh { disk, number } => {
                write!(f, "{} would be up to /dev/ublkb{number}", plain(disk))
            }
            UblkError::NumberTwice { number, disk, other } => {
                let (disk, other) = (plain(disk), plain(other));
                write!(f, "/dev/ublkb{number} would be of {disk} and of {other}")
            }
            UblkError::Stopped { path } => write!(f, "{path} was stopped from outside"),
            UblkError::KeepsNoIdentity => {
                write!(f, "this kernel's ublk does not keep what another server knows a disk by")
            }
        }
    }
}

impl std::error::Error for UblkError {}

/// The command that removes a device without a server.
fn remove(id: u32) -> CommandLine {
    CommandLine::new("serve").option("remove", format!("/dev/ublkb{id}"))
}

impl ErrorDetail for UblkError {
    fn kind(&self) -> ErrorKind {
        match self {
            UblkError::NoDevice { .. } => ErrorKind::NotFound,
            UblkError::OtherLayout { .. }
            | UblkError::NumberTooHigh { .. }
            | UblkError::NumberTwice { .. } => ErrorKind::Invalid,
            UblkError::Batch { .. } | UblkError::KeepsNoIdentity => ErrorKind::NotSupported,
            _ => ErrorKind::Busy,
        }
    }

    fn hint(&self) -> Option<Hint> {
        Some(match self {
            UblkError::NoDevice { .. } => "ls /dev/ublkb*".into(),
            UblkError::InUse { .. } => "stop that process: it removes what it serves".into(),
            UblkError::Exists { .. } => Hint::from("another number, or none; ")
                .command(CommandLine::new("serve").flag("remove"))
                .text(" takes an abandoned one away"),
            UblkError::Served { .. } => "zoneplug status shows what is served".into(),
            UblkError::Ending { .. } => {
                "again in a moment; if a container has that server, zoneplug status there".into()
            }
            UblkError::OtherNumber { id } => Hint::from("")
                .option_with("id", id.to_string())
                .text(", or none; ")
                .command(remove(*id)),
            UblkError::Waits { id, paths, because } => match because {
                WaitReason::Copy { .. } => Hint::from(format!(
                    "serve the original; or, if {paths} is the disk itself, moved to another file: "
                ))
                .option("moved")
                .text("; or, for a device of its own: ")
                .command(CommandLine::new("check").flag("new-uuid").operand(paths))
                .text("; or, to go on with the copy instead: umount what is mounted of the device, then ")
                .command(remove(*id)),
                WaitReason::OtherDrive => Hint::from(
                    "serve the drive that the device had; or, if that drive has a new serial number: ",
                )
                .option("moved")
                .text("; or, to give the device up: ")
                .command(remove(*id)),
                WaitReason::Older => Hint::from(
                    "to go on with the backup: umount what is mounted of the device, then ",
                )
                .command(remove(*id)),
                WaitReason::PlaceUnknown => Hint::from("if this is the disk and not a copy of it: ")
                    .option("moved")
                    .text("; or, to give the device up: ")
                    .command(remove(*id)),
                WaitReason::KeyUnknown => Hint::from("if the key file has the key of then: ")
                    .option("moved")
                    .text("; or, to give the device up: ")
                    .command(remove(*id)),
                WaitReason::OtherLayers => Hint::from(
                    "serve it as it was, with the same layers, keys and order of disks, and with recovery; \
                     or, to give the device up: ",
                )
                .command(remove(*id)),
            },
            UblkError::OtherLayout { id } => {
                Hint::from("").command(remove(*id)).text(" gives it up")
            }
            UblkError::Batch { id } => Hint::from(
                "serve it with that version, umount what is mounted of the device and end the server; \
                 or, to give the device up: ",
            )
            .command(remove(*id)),
            UblkError::NumberTooHigh { .. } => {
                format!("a lower id: the highest number of Linux is {MAX_ID}").into()
            }
            UblkError::NumberTwice { .. } => {
                "an id for each disk, with room for all of its devices; or none: the next free numbers"
                    .into()
            }
            UblkError::Stopped { .. } => {
                "start it again; dmesg has what the kernel says of it".into()
            }
            UblkError::KeepsNoIdentity => Hint::from("")
                .option("no-recovery")
                .text(": the device goes when its server dies"),
        })
    }
}
