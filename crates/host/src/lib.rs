//! zoneplug with threads: everything that has a file descriptor, a thread or a system call.
//!
//! A [`HostedDisk`] is a disk whose progress does not depend on any one client: see [`hosted`]. [`BlockingDisk`] is
//! the adapter for programs that do one thing at a time, with buffers that they own. [`open_device`] turns a
//! specification into a device.
//!
//! Disks in memory are always built. Durable disks ([`mod@file`]), drives of Linux ([`blk`], [`nvme`]), encryption
//! ([`CryptDisk`]), block devices served to the kernel ([`ublk`]), and namespaces and units served over the network ([`nvme_tcp`],
//! [`iscsi`]) are the features `file`, `drives`, `crypt`, `ublk`, `nvme-tcp` and `iscsi`.

mod backend;
mod callback;
mod clock;
mod eventfd;
mod held;
#[cfg(feature = "iscsi")]
pub mod iscsi;
#[cfg(any(feature = "iscsi", feature = "nvme-tcp"))]
mod network;
#[cfg(feature = "nvme-tcp")]
pub mod nvme_tcp;
mod os_error;
mod part;
mod paths;
mod peer;
#[cfg(any(feature = "iscsi", feature = "nvme-tcp", feature = "ublk"))]
// The door of iSCSI has the marks of disks, and no journal.
#[cfg_attr(not(any(feature = "nvme-tcp", feature = "ublk")), allow(dead_code))]
mod recovery;
mod runtime;
mod scratch;
#[cfg(any(feature = "iscsi", feature = "nvme-tcp", feature = "ublk"))]
mod served;
pub mod signals;
mod spec;
mod threads;
#[cfg(feature = "ublk")]
pub mod ublk;
mod zone_memory;

#[cfg(feature = "crypt")]
pub use backend::crypt::CryptDisk;
pub use backend::data_path::DataPath;
#[cfg(feature = "drives")]
pub use backend::drive::{DriveError, DriveOptions};
#[cfg(feature = "file")]
pub use backend::file;
#[cfg(feature = "file")]
pub use backend::file::is_disk_file;
#[cfg(feature = "drives")]
pub use backend::{blk, nvme};
pub use clock::Clock;
pub use eventfd::WakeFd;
pub use held::{HeldDisk, HeldDisks, HeldPlace};
#[cfg(any(feature = "iscsi", feature = "nvme-tcp"))]
pub use network::open_files::OpenFiles;
pub use os_error::{Attempt, cannot_make, os_error};
pub use part::{Part, remove_parts, take_after};
pub use paths::{is_foreign, open_regular, read_regular, read_text};
pub use peer::peer_groups;
#[cfg(any(feature = "iscsi", feature = "nvme-tcp", feature = "ublk"))]
pub use recovery::mark::{DiskMark, STATE_VERSION};
#[cfg(any(feature = "iscsi", feature = "nvme-tcp", feature = "ublk"))]
pub use recovery::note::BootNote;
pub use runtime::asynchronous::AsyncDisk;
pub use runtime::batch::{Batch, Completion, Done, OpId};
pub use runtime::blocking::BlockingDisk;
pub use runtime::client::Client;
#[cfg(feature = "file")]
pub use runtime::hosted::Closing;
pub use runtime::hosted::{self, Frozen, HostedDisk};
pub use runtime::io_error::IoError;
#[cfg(feature = "latency")]
pub use runtime::latency::Latencies;
pub use runtime::withheld::{Withheld, leaked_buffers};
pub use scratch::scratch_file;
#[cfg(any(feature = "iscsi", feature = "nvme-tcp", feature = "ublk"))]
pub use served::latency::{LATENCY_BUCKETS, LatencyHistogram, SLOW_ZONES, SlowZone};
#[cfg(any(feature = "iscsi", feature = "nvme-tcp", feature = "ublk"))]
pub use served::{ServedCounters, ServedOperation};
pub use spec::{
    DiskSpec, KINDS, Kind, LAYERS, Level, SpecNode, SpecPart, Specification, TimedLayers,
    disk_keys, open_device, take_config, take_profile,
};
pub use zone_memory::{MemoryLimits, check_zone_memory};
