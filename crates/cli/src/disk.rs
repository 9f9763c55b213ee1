//! From a specification to a device and the way to open it.

use crate::failure::Failure;
use std::sync::Arc;
use std::time::Instant;
use zoneplug_core::disk::{Disk, DiskConfig, DiskQueue};
use zoneplug_core::{Bio, Bios, Device, Nanos};
use zoneplug_host::DiskSpec;

/// What a specification names.
#[derive(Clone)]
pub(crate) struct Named {
    pub(crate) spec: String,
    pub(crate) device: Arc<dyn Device>,
    pub(crate) config: DiskConfig,
    /// Tags of a queue, if the specification gives them.
    pub(crate) tags: Option<u16>,
    /// Whether what was written can be read back.
    pub(crate) keeps_data: bool,
}

impl Named {
    /// Opens what `spec` names.
    pub(crate) fn open(spec: &str) -> Result<Named, Failure> {
        let DiskSpec { device, config, tags } = DiskSpec::parse(spec)?;
        let kind = spec.split(',').next().unwrap_or_default();
        Ok(Named { spec: spec.to_owned(), device, config, tags, keeps_data: kind != "null" })
    }

    /// Opens the device as a disk, Driven.
    pub(crate) fn driven(&self, config: DiskConfig) -> Result<Disk, Failure> {
        let start = Instant::now();
        let mut clock = |_| Nanos(start.elapsed().as_nanos() as u64);
        Ok(Disk::open(self.device.clone(), config, &mut clock)?)
    }
}

/// Sends one BIO and waits for it, in real time.
pub(crate) fn one(queue: &mut DiskQueue, bio: Box<Bio>) -> Box<Bio> {
    let start = Instant::now();
    let (mut list, mut done) = (Bios::from([bio]), Bios::new());
    loop {
        let now = Nanos(start.elapsed().as_nanos() as u64);
        queue.submit(now, &mut list);
        queue.poll(now, &mut done);
        if let Some(bio) = done.pop_front() {
            return bio;
        }
        std::thread::yield_now();
    }
}
