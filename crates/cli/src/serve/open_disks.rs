//! The open disks of a server. Doors serve them, and several doors may serve one disk.

use super::served::OpenDisk;
use crate::failure::Failure;
use std::collections::BTreeMap;
use std::sync::Weak;
use zoneplug_core::Device;
use zoneplug_host::{BlockingDisk, HostedDisk};

/// The disks that are open, by their specifications.
#[derive(Default)]
pub(super) struct OpenDisks(BTreeMap<String, OpenDisk>);

impl OpenDisks {
    pub(super) fn get(&self, spec: &str) -> Option<&OpenDisk> {
        self.0.get(spec)
    }

    pub(super) fn insert(&mut self, spec: &str, disk: OpenDisk) {
        self.0.insert(spec.to_owned(), disk);
    }

    /// The disks, by their specifications.
    pub(super) fn handles(&self) -> Vec<(String, HostedDisk)> {
        self.0.iter().map(|(spec, d)| (spec.clone(), d.disk.clone())).collect()
    }

    /// The devices below the disks.
    pub(super) fn devices(&self) -> Vec<Weak<dyn Device>> {
        self.0.values().map(|d| d.device.clone()).collect()
    }
}

/// Makes durable what was written to a disk.
pub(super) fn flush(disk: &HostedDisk) -> Result<(), Failure> {
    BlockingDisk::new(disk)?.flush()?;
    Ok(())
}
