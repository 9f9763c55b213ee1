//! zoneplug with threads: everything that has a file descriptor, a thread or a system call.
//!
//! A [`HostedDisk`] is a disk whose progress does not depend on any one client: see [`hosted`]. [`BlockingDisk`] is
//! the adapter for programs that do one thing at a time, with buffers that they own. [`open_device`] turns a
//! specification into a device.

pub mod asynchronous;
pub mod blk;
pub mod blocking;
pub mod client;
mod clock;
mod crypt;
mod cuts;
mod drive;
pub mod file;
pub mod hosted;
mod lane;
pub mod nvme;
mod outside;
mod reactor;
mod ring;
mod shelf;
pub mod signals;
mod sleep;
mod spec;
mod threads;
mod trace;
pub mod ublk;
mod wakers;

pub use asynchronous::AsyncDisk;
pub use blocking::BlockingDisk;
pub use client::Client;
pub use clock::Clock;
pub use crypt::CryptDisk;
pub use drive::DriveOptions;
pub use hosted::{Frozen, HostedDisk};
pub use outside::{is_disk_file, is_foreign, open_regular, read_regular};
pub use shelf::{Withheld, leaked_buffers};
pub use spec::{
    DiskSpec, Level, base_of, check_name, drive_of, file_of, files_of, is_volatile, keeps_data,
    open_device, take_config, take_profile, takes_writes,
};
