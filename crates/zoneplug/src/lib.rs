//! Ordered writes at any queue depth for zoned disks (SMR hard disks, ZNS SSDs), in user space.
//!
//! ```
//! use zoneplug::{BlockingDisk, HostedDisk, ZoneNo};
//!
//! fn main() -> Result<(), zoneplug::Error> {
//!     let disk = HostedDisk::open_spec("mem,zones=4,zone-size=1M")?;
//!     let mut io = BlockingDisk::new(&disk)?;
//!     let zone = io.zone(ZoneNo(0))?;
//!     let at = io.append_from(zone.start, &[7; 4096])?;
//!     let mut back = [0; 4096];
//!     io.read_into(at, &mut back)?;
//!     assert_eq!(back, [7; 4096]);
//!     Ok(())
//! }
//! ```
//!
//! A zone of such a disk is written from its start to its end, and a write out of order fails.
//! zoneplug puts a *plug* before each zone: any number of threads may write and append to it at a
//! time, and the disk sees one write after the other.
//!
//! # Contents
//!
//! | for | take |
//! | --- | --- |
//! | a disk that threads share, from a specification such as `mem,zones=4`, or the path of a file or drive | [`HostedDisk`] |
//! | a specification that a program puts together: paths with any characters, layers, joined disks | [`Specification`] |
//! | one operation after the other | [`BlockingDisk`] |
//! | many operations at a time, without futures | [`Batch`] |
//! | many operations at a time, with futures on any executor | [`AsyncDisk`] |
//! | a log that goes from zone to zone and survives power cuts | [`ZoneLog`], and with futures [`AsyncZoneLog`](zone_log::AsyncZoneLog) |
//! | power cuts for storage code of your own | [`crash`] |
//! | a device of your own, or layers on one | [`device`], [`layers`] |
//!
//! # Units
//!
//! Addresses on a disk are [`Sector`]s of 512 bytes, whatever the disk's block is; lengths in
//! sectors have names that end in `_sectors`. Data is read and written in whole blocks
//! ([`zone::Limits`] has their size); a partial block is refused with [`Status::Unaligned`]. A
//! buffer is shorter than 4 GiB.
//!
//! # Errors
//!
//! Functions that open and configure return an [`Error`]: what is wrong, and what to try. Functions
//! that read and write return an [`IoError`]: the operation, its place, its [`Status`], and the
//! buffer. `?` converts it to an [`Error`]. A status says whether the layer refused an operation
//! before the device saw it, or the device failed it.
//!
//! # Features
//!
//! | feature | brings |
//! | --- | --- |
//! | (none) | disks in memory, modelled drives, layers |
//! | `file` (default) | durable disks in files: [`mod@file`] |
//! | `drives` | block devices and NVMe character devices of Linux |
//! | `crypt` | the layer that encrypts |
//! | `ublk` | block devices of Linux that a program serves |
//! | `nvme-tcp` | namespaces of NVMe that a program serves over the network |
//! | `iscsi` | units of SCSI that a program serves over the network |
//! | `serve` | a server of disks with a control socket and metrics, as `zoneplug serve` is: the module `serve` |
//! | `latency` | histograms of how long operations take |
//!
//! A specification of a device that was not built returns an error that names the missing feature.

#![forbid(unsafe_code)]

pub mod crash;
#[cfg(feature = "serve")]
pub mod serve;
pub mod zone_log;

/// Zones: where they are, their reports, and what a device can do with them.
pub mod zone {
    pub use zoneplug_core::zone::{
        Condition, Geometry, GeometryError, Limits, MAX_ZONES, ZoneInfo, ZoneType,
    };
}

/// The configuration and the visible state of an open disk.
pub mod disk {
    pub use zoneplug_core::disk::{
        Attribute, AttributeError, Census, ConditionCount, Counters, Disk, DiskConfig,
        DiskCounters, EVENTS_KEPT, Event, EventKind, Mode, Rejections, WindowCounters, WriterState,
        ZoneCounters, ZoneRecovery, ZoneState, ZoneWaiting,
    };
    pub use zoneplug_core::sched::{Policy, Scheduler, WriterCounters, policy};
    pub use zoneplug_host::{DiskSpec, Frozen, Level, Withheld, leaked_buffers, open_device};
}

/// The interface of devices, for programs with their own device or layer.
pub mod device {
    pub use zoneplug_core::{
        Bio, BioPool, Bios, Command, Commands, Device, Flags, IoBuf, Queue, Sense, WritePointer,
    };
    pub use zoneplug_devices::emu::{EmuConfig, EmuDisk, EmuKind};
}

/// Layers: devices on devices. Specifications name them too, as in `po2@mem,zones=8`.
pub mod layers {
    pub use zoneplug_devices::stack::{
        FaultAction, FaultCounts, FaultDisk, FaultPlan, FaultRule, FaultSectors, JoinDisk,
        Listener, Po2Disk, TapDisk, TapEvent,
    };
    #[cfg(feature = "crypt")]
    pub use zoneplug_host::CryptDisk;
}

/// Block devices and NVMe character devices of Linux.
#[cfg(feature = "drives")]
pub mod drives {
    pub use zoneplug_host::blk::BlkDisk;
    pub use zoneplug_host::nvme::NvmeDisk;
    pub use zoneplug_host::{DriveError, DriveOptions};
}

pub use zone_log::ZoneLog;
pub use zoneplug_buf::AlignedBuf;
pub use zoneplug_core::{
    Bytes, CommandLine, Error, ErrorDetail, ErrorKind, Hint, Lba, Nanos, Op, Sector, Spelling,
    Status, ZoneNo, ZoneOffset,
};
pub use zoneplug_devices::spec::SpecError;
#[cfg(feature = "latency")]
pub use zoneplug_host::Latencies;
#[cfg(feature = "file")]
pub use zoneplug_host::file;
#[cfg(feature = "iscsi")]
pub use zoneplug_host::iscsi;
#[cfg(feature = "nvme-tcp")]
pub use zoneplug_host::nvme_tcp;
#[cfg(feature = "ublk")]
pub use zoneplug_host::ublk;
pub use zoneplug_host::{
    AsyncDisk, Batch, BlockingDisk, Completion, Done, HostedDisk, IoError, OpId, SpecNode,
    SpecPart, Specification,
};
