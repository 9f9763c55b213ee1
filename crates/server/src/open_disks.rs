//! The open disks of a server. Several doors may serve one disk.

use crate::served::OpenDisk;
use std::collections::BTreeMap;
use std::sync::Weak;
use zoneplug_control::Failure;
use zoneplug_core::Device;
use zoneplug_host::{BlockingDisk, HostedDisk};

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

    /// Handles of the disks, with their specifications.
    pub fn handles(&self) -> Vec<(String, HostedDisk)> {
        self.0.iter().map(|(spec, d)| (spec.clone(), d.disk.clone())).collect()
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
