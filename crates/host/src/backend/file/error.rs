//! Errors of disks in files.

use std::fmt;
use zoneplug_core::{Bytes, CommandLine, ErrorDetail, ErrorKind, Hint};

/// The reason why the file of a disk cannot be made, opened or used. [`Error::detail`](zoneplug_core::Error::detail)
/// returns it. Failures of system calls are not among them: their error has an [`std::io::Error`] as its source.
///
/// ```
/// use zoneplug_host::file::{self, Access, FileDisk, FileError};
/// # let path = std::env::temp_dir().join(format!("zoneplug-foreign-{}", std::process::id()));
/// std::fs::write(&path, "notes").unwrap();
/// let e = FileDisk::open(&path, Access::ReadWrite).unwrap_err();
/// assert!(matches!(e.detail(), Some(FileError::NoDisk { .. })));
/// // The second argument `false`: no file is replaced.
/// let e = file::create(&path, &Default::default(), false).unwrap_err();
/// assert_eq!(e.detail(), Some(&FileError::Exists { path: path.display().to_string() }));
/// # std::fs::remove_file(&path).unwrap();
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum FileError {
    /// The name of a new disk is that of a file, which is kept.
    Exists {
        /// The file.
        path: String,
    },
    /// The name of a snapshot is that of a file. A snapshot replaces nothing.
    SnapshotExists {
        /// The file.
        path: String,
    },
    /// The name of a new disk is that of something else than a file, such as a directory.
    NotRegular {
        /// The thing.
        path: String,
    },
    /// The name of a new disk is that of a symbolic link that leads nowhere.
    DanglingLink {
        /// The link.
        path: String,
        /// The path that the link leads to.
        target: String,
    },
    /// The label of a new disk has control characters or more than `most` bytes.
    Label {
        /// The label.
        label: String,
        /// Bytes of the longest label.
        most: usize,
    },
    /// The file has no superblock.
    NoDisk {
        /// The file.
        path: String,
    },
    /// A newer version of zoneplug made the disk.
    Newer {
        /// The file.
        path: String,
        /// The version of its format.
        version: u32,
        /// The newest version that this program knows.
        newest: u32,
    },
    /// Both copies of the superblock are damaged.
    Damaged {
        /// The file.
        path: String,
    },
    /// The file is shorter than the disk.
    Truncated {
        /// The file.
        path: String,
        /// The length of the file in bytes.
        len: u64,
        /// The length that the disk needs, in bytes.
        needed: u64,
    },
    /// Another process has the file open.
    InUse {
        /// The file.
        path: String,
        /// The use that the other process makes of it. `None`: it is another program than zoneplug, which has a read
        /// lock on the whole file.
        by: Option<FileUse>,
        /// The use that this process wanted to make of it.
        wanted: FileUse,
    },
    /// Another program has changed the file while the disk was open. The disk fails all I/O.
    Changed {
        /// The file.
        path: String,
        /// The change.
        change: FileChange,
    },
}

/// A use of a disk's file that excludes others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FileUse {
    /// Open for reading. Others may read, and one may write.
    Reading,
    /// Open for writing. Others may read.
    Writing,
    /// Replaced by a new disk. No other process may have the file open.
    Replacing,
}

/// A change of a disk's file by another program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FileChange {
    /// The superblock or the session is not what this process has written.
    Overwritten,
    /// The file is shorter than the disk: its length in bytes.
    Truncated(u64),
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FileError::Exists { path } | FileError::SnapshotExists { path } => {
                write!(f, "{path} exists")
            }
            FileError::NotRegular { path } => write!(f, "{path} is not a regular file"),
            FileError::DanglingLink { path, target } => {
                write!(f, "{path} is a link to {target}, and that does not exist")
            }
            FileError::Label { label, .. } => write!(f, "the label '{label}' is not possible"),
            FileError::NoDisk { path } => write!(f, "{path} is not a zoneplug disk"),
            FileError::Newer { path, version, newest } => {
                write!(f, "{path} has format version {version}, this program knows {newest}")
            }
            FileError::Damaged { path } => {
                write!(f, "both copies of the superblock of {path} are damaged")
            }
            FileError::Truncated { path, len, needed } => {
                write!(f, "{path} is truncated: {len} of {needed} bytes are there")
            }
            FileError::InUse { path, by, .. } => {
                let what = match by {
                    Some(FileUse::Reading) => "is open for reading in another process",
                    Some(FileUse::Writing) => "is open for writing in another process",
                    Some(FileUse::Replacing) => "is being replaced by another process",
                    None => "is kept from writers by another process, which has a read lock",
                };
                write!(f, "{path} {what}")
            }
            FileError::Changed { path, change } => match change {
                FileChange::Overwritten => {
                    write!(f, "{path}: this file was overwritten while it was open")
                }
                FileChange::Truncated(len) => {
                    let len = Bytes(*len);
                    write!(f, "{path}: this file was truncated to {len} while it was open")
                }
            },
        }
    }
}

impl std::error::Error for FileError {}

impl ErrorDetail for FileError {
    fn kind(&self) -> ErrorKind {
        match self {
            FileError::Exists { .. }
            | FileError::SnapshotExists { .. }
            | FileError::InUse { .. } => ErrorKind::Busy,
            FileError::NotRegular { .. } | FileError::Label { .. } | FileError::NoDisk { .. } => {
                ErrorKind::Invalid
            }
            FileError::DanglingLink { .. } => ErrorKind::NotFound,
            FileError::Newer { .. } => ErrorKind::NotSupported,
            FileError::Damaged { .. } | FileError::Truncated { .. } | FileError::Changed { .. } => {
                ErrorKind::Io
            }
        }
    }

    fn hint(&self) -> Option<Hint> {
        Some(match self {
            FileError::Exists { .. } => Hint::from("choose another name, or say ")
                .option("force")
                .text(" to lose what is in it"),
            FileError::SnapshotExists { .. } => {
                "choose another name: a snapshot replaces nothing".into()
            }
            FileError::NotRegular { .. } => "a durable disk is made in a regular file".into(),
            FileError::DanglingLink { path, .. } => {
                format!("rm {path}, another name, or the path that it is to lead to").into()
            }
            FileError::Label { most, .. } => {
                format!("a label has at most {most} bytes and no control characters").into()
            }
            FileError::NoDisk { .. } => Hint::from("make one with: ").command(
                CommandLine::new("create")
                    .operand("FILE")
                    .option("size", "20G")
                    .option("zone-size", "256M"),
            ),
            FileError::Newer { .. } => "use a newer zoneplug; nothing was changed".into(),
            FileError::Damaged { .. } => {
                "restore the file from a backup; its data begins where docs/disk-format.md says"
                    .into()
            }
            FileError::Truncated { needed, .. } => format!(
                "restore it from a backup; truncate -s {} makes it readable, what was cut off reads as zeroes",
                Bytes(*needed)
            )
            .into(),
            FileError::InUse { by, wanted, .. } => match (by, wanted) {
                (None, _) => {
                    "zoneplug takes no such lock: lslocks or fuser -v FILE names the process; \
                     chmod 600 keeps others from it"
                }
                (Some(FileUse::Replacing), _) => "try again",
                (Some(FileUse::Reading), _) | (_, FileUse::Replacing) => {
                    "end the other process (fuser -v FILE names it), or choose another name"
                }
                _ => {
                    "one process at a time may write: end the other (fuser -v FILE names it), \
                     or open with read-only=1"
                }
            }
            .into(),
            FileError::Changed { .. } => {
                "stop all programs that have it open, then put the disk or a backup in its place"
                    .into()
            }
        })
    }
}
