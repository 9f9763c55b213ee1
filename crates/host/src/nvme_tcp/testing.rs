//! For tests and counting instructions: a server without threads, which runs when it is told to, and one of other bounds. No
//! program uses this.

use super::worker::Worker;
use super::{Disk, NvmeTcp, NvmeTcpCalls, NvmeTcpOptions, Started, sys};
use std::io;
use std::net::SocketAddr;
use zoneplug_core::Error;
use zoneplug_nvme::tcp::Config;

/// As [`NvmeTcp::start`], with other bounds of connections.
///
/// # Errors
///
/// Those of [`NvmeTcp::start`].
pub fn start(options: &NvmeTcpOptions, disks: Vec<Disk>, bounds: Config) -> Result<NvmeTcp, Error> {
    NvmeTcp::run(NvmeTcp::prepare(options, disks, bounds)?, || ())
}

/// A server whose only worker runs in the calls of [`SteppedServer::step`].
pub struct SteppedServer {
    server: NvmeTcp,
    worker: Worker,
    ready: sys::Ready,
}

impl std::fmt::Debug for SteppedServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.server.fmt(f)
    }
}

impl SteppedServer {
    /// As [`NvmeTcp::start`], without its threads.
    ///
    /// # Errors
    ///
    /// Those of [`NvmeTcp::start`].
    pub fn new(options: &NvmeTcpOptions, disks: Vec<Disk>) -> Result<SteppedServer, Error> {
        let options = NvmeTcpOptions { threads: 1, ..options.clone() };
        let Started { server, mut workers } = NvmeTcp::prepare(&options, disks, Config::default())?;
        let worker = workers.remove(0);
        Ok(SteppedServer { server, worker, ready: Worker::ready() })
    }

    /// What a worker does between two sleeps, without the sleep.
    ///
    /// # Errors
    ///
    /// The worker cannot wait for descriptors.
    pub fn step(&mut self) -> io::Result<()> {
        self.worker.step(&mut self.ready, Some(0)).map(drop)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// The system calls of its worker so far.
    pub fn calls(&self) -> NvmeTcpCalls {
        self.server.calls()
    }
}
