//! Ordered writes at any queue depth for zoned disks (SMR hard disks, ZNS SSDs), in user space.
//!
//! ```
//! use zoneplug::{AlignedBuf, BlockingDisk, HostedDisk, Sector};
//!
//! let disk = HostedDisk::open_spec("mem,zones=4,zone-size=1M")?;
//! let mut io = BlockingDisk::new(&disk)?;
//! let mut record = AlignedBuf::zeroed(4096);
//! record.write(0, b"zoned");
//! let (at, _) = io.append(Sector(0), record)?;
//! assert_eq!(&io.read(at, 8)?.to_vec()[..5], b"zoned");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

pub mod crash;
pub mod zone_log;

pub use zone_log::ZoneLog;
pub use zoneplug_buf::AlignedBuf;
pub use zoneplug_core::zone;
pub use zoneplug_core::{Bytes, Error, ErrorKind, Lba, Nanos, Sector, Status, ZoneNo, ZoneOffset};
pub use zoneplug_host::{AsyncDisk, BlockingDisk, HostedDisk};
