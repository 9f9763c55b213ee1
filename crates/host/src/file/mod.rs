//! Durable disks: a zoned disk in one sparse file (being built; the signatures stand).

use std::path::Path;
use std::sync::Arc;
use std::task::Waker;
use zoneplug_core::zone::{Geometry, Limits};
use zoneplug_core::{Device, Error, ErrorKind, Queue, ZoneNo};

/// What a new disk is. Sizes are in bytes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CreateOptions {
    /// Bytes of the whole disk; what remains after whole zones becomes a short last zone. `None`: `zones` of them.
    pub size: Option<u64>,
    /// Number of zones, instead of `size`.
    pub zones: Option<u64>,
    /// Bytes of a zone. `None`: 256 MiB.
    pub zone_size: Option<u64>,
    /// Bytes of a zone that can be written. `None`: all.
    pub zone_capacity: Option<u64>,
    /// Bytes of the last zone (with `zones`).
    pub last_zone_size: Option<u64>,
    /// Bytes of the last zone that can be written.
    pub last_zone_capacity: Option<u64>,
    /// Conventional zones at the start of the disk.
    pub conv: u32,
    /// Most open zones; 0: no limit.
    pub max_open: u32,
    /// Most active zones; 0: no limit.
    pub max_active: u32,
    /// Bytes of a logical block. `None`: 4096.
    pub lba_size: Option<u64>,
    /// Write granularity in bytes. `None`: a logical block.
    pub granularity: Option<u64>,
    /// Longest native append in bytes; `None`: no native append, the layer emulates it.
    pub zone_append_max: Option<u64>,
    /// A name, up to 63 bytes.
    pub label: String,
}

/// How a disk is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// For writing: one process at a time.
    ReadWrite,
    /// For reading.
    ReadOnly,
}

/// Who a disk is.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Identity {
    /// Its UUID, as text.
    pub uuid: String,
    /// Its label.
    pub label: String,
    /// Version of the format.
    pub version: u32,
    /// When it was made: seconds since 1970.
    pub created: u64,
}

/// What a check found and did.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct CheckReport {
    /// What was found, and with repair what was done: a line each.
    pub lines: Vec<String>,
    /// Problems found.
    pub problems: u32,
    /// Problems repaired.
    pub repaired: u32,
    /// Zones looked at.
    pub zones: u32,
}

impl std::fmt::Display for CheckReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for line in &self.lines {
            writeln!(f, "{line}")?;
        }
        write!(f, "{} zones, {} problems, {} repaired", self.zones, self.problems, self.repaired)
    }
}

fn not_yet() -> Error {
    Error::new(ErrorKind::NotSupported, "durable disks are being built")
}

/// Makes a disk.
pub fn create(path: &Path, opts: &CreateOptions, force: bool) -> Result<Identity, Error> {
    let _ = (path, opts, force);
    Err(not_yet())
}

/// Checks a disk, and repairs it if asked to.
pub fn check(path: &Path, repair: bool) -> Result<CheckReport, Error> {
    let _ = (path, repair);
    Err(not_yet())
}

/// A durable disk.
#[derive(Debug)]
pub struct FileDisk {
    geometry: Geometry,
    limits: Limits,
    identity: Identity,
}

impl FileDisk {
    /// Opens a disk.
    pub fn open(path: &Path, access: Access) -> Result<Arc<FileDisk>, Error> {
        let _ = (path, access);
        Err(not_yet())
    }

    /// Who it is.
    pub fn identity(&self) -> Identity {
        self.identity.clone()
    }

    /// Writes that a zone has taken since the disk was made.
    pub fn write_count(&self, zone: ZoneNo) -> u64 {
        u64::from(zone.0) - u64::from(zone.0)
    }
}

impl Device for FileDisk {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }
    fn limits(&self) -> &Limits {
        &self.limits
    }
    fn open_queue(&self, _depth: u16, _waker: Waker) -> Result<Box<dyn Queue>, Error> {
        Err(not_yet())
    }
}
