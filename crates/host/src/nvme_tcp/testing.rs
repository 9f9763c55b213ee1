//! For tests and counting instructions: a server without threads, which runs step by step, and a server with other
//! limits. No program uses this.

use super::worker;
use super::{Disk, NvmeTcp, NvmeTcpCalls, NvmeTcpListeners, NvmeTcpOptions, Started};
use crate::served::ServedCounters;
use crate::served::timing::{SELDOM, Timed, Timing, Untimed};
use std::io;
use std::net::SocketAddr;
use zoneplug_core::Error;
use zoneplug_nvme::tcp::Config;

/// Like [`NvmeTcp::start`], with other limits of connections.
///
/// # Errors
///
/// The errors of [`NvmeTcp::start`].
pub fn start(options: &NvmeTcpOptions, disks: Vec<Disk>, bounds: Config) -> Result<NvmeTcp, Error> {
    let listeners = NvmeTcpListeners::bind(options, &mut Vec::new())?;
    NvmeTcp::start_with(listeners, options, disks, bounds, || ())
}

/// A server whose only worker runs in the calls of [`SteppedServer::step`].
pub struct SteppedServer {
    server: NvmeTcp,
    /// Runs the worker once.
    step: Box<dyn FnMut() -> io::Result<()>>,
}

impl std::fmt::Debug for SteppedServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.server.fmt(f)
    }
}

impl SteppedServer {
    /// Like [`NvmeTcp::start`], without threads. If it times operations, it times only a few.
    ///
    /// # Errors
    ///
    /// The errors of [`NvmeTcp::start`].
    pub fn new(options: &NvmeTcpOptions, disks: Vec<Disk>) -> Result<SteppedServer, Error> {
        let options = NvmeTcpOptions { threads: 1, ..options.clone() };
        if options.latencies {
            SteppedServer::of::<Timed>(&options, disks)
        } else {
            SteppedServer::of::<Untimed>(&options, disks)
        }
    }

    fn of<T: Timing>(options: &NvmeTcpOptions, disks: Vec<Disk>) -> Result<SteppedServer, Error> {
        let listeners = NvmeTcpListeners::bind(options, &mut Vec::new())?;
        let prepared = NvmeTcp::prepare::<T>(listeners, options, disks, Config::default(), SELDOM)?;
        let Started { server, mut workers } = prepared;
        let (mut worker, mut ready) = (workers.remove(0), worker::ready());
        let step = move || worker.step(&mut ready, Some(0)).map(drop);
        Ok(SteppedServer { server, step: Box::new(step) })
    }

    /// Does the work of a worker between two sleeps.
    ///
    /// # Errors
    ///
    /// The worker cannot wait for descriptors.
    pub fn step(&mut self) -> io::Result<()> {
        (self.step)()
    }

    /// The address at which the server listens.
    pub fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// The counters of its first disk.
    pub fn counters(&self) -> ServedCounters {
        self.server.counters(0)
    }

    /// The system calls of its worker so far.
    pub fn calls(&self) -> NvmeTcpCalls {
        self.server.calls()
    }
}
