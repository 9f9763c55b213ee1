//! Clients of the disk for the threads that serve requests.

use std::sync::Mutex;
use zoneplug_core::Error;
use zoneplug_core::poison::lock;
use zoneplug_host::{BlockingDisk, HostedDisk};

/// Idle clients. There are as many clients as requests have ever run at a time.
#[derive(Debug)]
pub(super) struct Clients {
    disk: HostedDisk,
    idle: Mutex<Vec<BlockingDisk>>,
}

impl Clients {
    pub(super) fn new(disk: &HostedDisk) -> Result<Clients, Error> {
        let first = BlockingDisk::new(disk)?;
        Ok(Clients { disk: disk.clone(), idle: Mutex::new(vec![first]) })
    }

    /// Runs a request with its own client.
    pub(super) fn with<R>(&self, request: impl FnOnce(&mut BlockingDisk) -> R) -> Result<R, Error> {
        let idle = lock(&self.idle).pop();
        let mut io = match idle {
            Some(io) => io,
            None => BlockingDisk::new(&self.disk)?,
        };
        let result = request(&mut io);
        lock(&self.idle).push(io);
        Ok(result)
    }
}
