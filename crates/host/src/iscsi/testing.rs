//! For counting instructions: a server without threads, which runs step by step. No program uses this.

use super::{Disk, Iscsi, IscsiListeners, IscsiOptions};
use crate::network::sys::Ready;
pub use crate::network::workers::SteppedServer;
use crate::served::timing::{SELDOM, Timed, Timing, Untimed};
use zoneplug_core::Error;

/// Like [`Iscsi::start`], without threads. If it times operations, it times only a few.
///
/// # Errors
///
/// The errors of [`Iscsi::start`].
pub fn stepped(options: &IscsiOptions, disks: Vec<Disk>) -> Result<SteppedServer<Iscsi>, Error> {
    let options = IscsiOptions { threads: 1, ..options.clone() };
    if options.latencies {
        stepped_of::<Timed>(&options, disks)
    } else {
        stepped_of::<Untimed>(&options, disks)
    }
}

fn stepped_of<T: Timing>(
    options: &IscsiOptions,
    disks: Vec<Disk>,
) -> Result<SteppedServer<Iscsi>, Error> {
    let listeners = IscsiListeners::bind(options, &mut Vec::new())?;
    let (server, mut workers) = Iscsi::prepare::<T>(listeners, options, disks, SELDOM)?;
    let (mut worker, mut ready) = (workers.remove(0), Ready::default());
    Ok(SteppedServer::new(server, move || worker.step(&mut ready, Some(0)).map(drop)))
}
