//! The devices that need the system: durable disks in files, drives of Linux, and the layers that encrypt and trace.
//!
//! Each is a [`Device`](zoneplug_core::Device). None knows the clients or the specification that use it.

#[cfg(feature = "drives")]
pub mod blk;
#[cfg(feature = "crypt")]
pub(crate) mod crypt;
pub(crate) mod data_path;
#[cfg(feature = "drives")]
pub(crate) mod drive;
#[cfg(feature = "file")]
pub mod file;
#[cfg(feature = "drives")]
pub mod nvme;
#[cfg(any(feature = "file", feature = "drives"))]
#[cfg_attr(
    not(all(feature = "file", feature = "drives")),
    allow(dead_code, reason = "files and drives use different parts of it")
)]
pub(crate) mod ring;
pub(crate) mod trace;
