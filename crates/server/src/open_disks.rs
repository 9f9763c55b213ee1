//! The open disks of a server. Several doors may serve one disk.

use crate::served::OpenDisk;
use std::collections::BTreeMap;
use std::sync::Weak;
use zoneplug_control::Failure;
use zoneplug_core::Device;
use zoneplug_host::{BlockingDisk, HostedDisk};

/// A handle of a disk, with its name in failures.
pub struct NamedDisk {
    /// The name.
    pub name: String,
    /// The disk.
    pub disk: HostedDisk,
}

impl NamedDisk {
    pub(crate) fn new(name: &str, disk: &HostedDisk) -> NamedDisk {
        NamedDisk { name: name.to_owned(), disk: disk.clone() }
    }
}

/// The open disks, by their specifications.
#[derive(Default)]
pub struct OpenDisks(BTreeMap<String, OpenDisk>);

impl OpenDisks {
    /// The open disk of a specification, if there is one.
    pub fn get(&self, spec: &str) -> Option<&OpenDisk> {
        self.0.get(spec)
    }

    pub(crate) fn insert(&mut self, spec: &str, disk: OpenDisk) {
        self.0.insert(spec.to_owned(), disk);
    }

    /// Handles of the disks, each named by its specification.
    pub fn handles(&self) -> Vec<NamedDisk> {
        let named = |(spec, d): (&String, &OpenDisk)| NamedDisk::new(spec, &d.disk);
        self.0.iter().map(named).collect()
    }

    /// The devices below the disks.
    pub fn devices(&self) -> Vec<Weak<dyn Device>> {
        self.0.values().map(|d| d.device.clone()).collect()
    }
}

/// Makes all data written to a disk durable.
pub(crate) fn flush(disk: &HostedDisk) -> Result<(), Failure> {
    disk.check_files()?;
    BlockingDisk::new(disk)?.flush()?;
    Ok(())
}
