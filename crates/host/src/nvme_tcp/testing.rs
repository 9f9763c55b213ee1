//! For tests and counting instructions: a server without threads, which runs step by step, and a server with other
//! limits. No program uses this.

use super::{Disk, NvmeTcp, NvmeTcpListeners, NvmeTcpOptions, Started};
use crate::network::sys::Ready;
pub use crate::network::workers::SteppedServer;
use crate::served::timing::{SELDOM, Timed, Timing, Untimed};
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

/// Like [`NvmeTcp::start`], without threads. If it times operations, it times only a few.
///
/// # Errors
///
/// The errors of [`NvmeTcp::start`].
pub fn stepped(
    options: &NvmeTcpOptions,
    disks: Vec<Disk>,
) -> Result<SteppedServer<NvmeTcp>, Error> {
    let options = NvmeTcpOptions { threads: 1, ..options.clone() };
    if options.latencies {
        stepped_of::<Timed>(&options, disks)
    } else {
        stepped_of::<Untimed>(&options, disks)
    }
}

fn stepped_of<T: Timing>(
    options: &NvmeTcpOptions,
    disks: Vec<Disk>,
) -> Result<SteppedServer<NvmeTcp>, Error> {
    let listeners = NvmeTcpListeners::bind(options, &mut Vec::new())?;
    let prepared = NvmeTcp::prepare::<T>(listeners, options, disks, Config::default(), SELDOM)?;
    let Started { server, mut workers } = prepared;
    let (mut worker, mut ready) = (workers.remove(0), Ready::default());
    Ok(SteppedServer::new(server, move || worker.step(&mut ready, Some(0)).map(drop)))
}
