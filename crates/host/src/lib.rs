//! zoneplug with threads: everything that has a file descriptor, a thread or a system call.
//!
//! A [`HostedDisk`] is a disk whose progress does not depend on any one client: see [`hosted`]. [`BlockingDisk`] is
//! the adapter for programs that do one thing at a time, with buffers that they own. [`open_device`] turns a
//! specification into a device.
//!
//! Disks in memory are always built. Durable disks ([`mod@file`]), drives of Linux ([`blk`], [`nvme`]), encryption
//! ([`CryptDisk`]) and block devices served to the kernel ([`ublk`]) are the features `file`, `drives`, `crypt` and `ublk`.

#[cfg(not(all(feature = "file", feature = "drives", feature = "crypt")))]
mod absent;
mod asynchronous;
mod batch;
#[cfg(feature = "drives")]
pub mod blk;
mod blocking;
mod client;
mod clock;
#[cfg(feature = "crypt")]
mod crypt;
#[cfg(feature = "file")]
mod cuts;
#[cfg(feature = "drives")]
mod drive;
#[cfg(feature = "file")]
pub mod file;
pub mod hosted;
mod io_error;
mod lane;
mod latency;
#[cfg(feature = "drives")]
pub mod nvme;
mod outside;
mod reactor;
#[cfg(any(feature = "file", feature = "drives"))]
#[cfg_attr(
    not(all(feature = "file", feature = "drives")),
    allow(dead_code, reason = "files and drives use different parts of it")
)]
mod ring;
mod shelf;
pub mod signals;
mod sleep;
mod spec;
mod threads;
mod trace;
#[cfg(feature = "ublk")]
pub mod ublk;
mod wakers;

#[cfg(not(feature = "crypt"))]
use absent::crypt;
#[cfg(not(feature = "file"))]
use absent::cuts;
#[cfg(not(feature = "drives"))]
use absent::drive;

pub use asynchronous::AsyncDisk;
pub use batch::{Batch, Completion, Done, OpId};
pub use blocking::BlockingDisk;
pub use client::Client;
pub use clock::Clock;
#[cfg(feature = "crypt")]
pub use crypt::CryptDisk;
#[cfg(feature = "drives")]
pub use drive::DriveOptions;
pub use hosted::{Frozen, HostedDisk};
pub use io_error::IoError;
#[cfg(feature = "latency")]
pub use latency::Latencies;
#[cfg(feature = "file")]
pub use outside::is_disk_file;
pub use outside::{is_foreign, open_regular, read_regular};
pub use shelf::{Withheld, leaked_buffers};
pub use spec::{
    DiskSpec, KINDS, Kind, LAYERS, Level, base_of, check_name, disk_keys, drive_of, file_of,
    files_of, is_volatile, keeps_data, open_device, take_config, take_profile, takes_writes,
};
