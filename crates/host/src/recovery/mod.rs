//! The state that a server leaves for the next one, also when it is killed, and the checks that it belongs to the
//! same disk.
//!
//! | file | what it owns |
//! | --- | --- |
//! | `journal.rs` | which appends the clients of a disk were told of |
//! | `bases.rs` | the disks at the bottom of a specification |
//! | `mark.rs` | what two servers compare before a handover |
//! | `space.rs` | the data in space that no client was told of |
//! | `lost_writes.rs` | writes that clients of the network may send again |
//! | `directory.rs` | where journals are |
//! | `note.rs` | a text for the next server of the same boot |
//! | `shared_words.rs` | memory that outlives its process |
//!
//! `ublk/takeover/`, `nvme_tcp/` and `iscsi/` use it. [`zoneplug_recovery`] finds out how much of a resent command is on
//! the disk, and where.

pub(crate) mod bases;
pub(crate) mod directory;
pub(crate) mod journal;
#[cfg(any(feature = "iscsi", feature = "nvme-tcp"))]
pub(crate) mod lost_writes;
pub(crate) mod mark;
pub(crate) mod note;
#[cfg(test)]
mod several_tests;
pub(crate) mod shared_words;
pub(crate) mod space;
