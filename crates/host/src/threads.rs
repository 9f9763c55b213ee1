//! Starts the threads of this crate. If the system refuses a thread (`ulimit -u`, a pids limit), the caller gets an
//! error with a hint.

use std::thread::{Builder, JoinHandle};
use zoneplug_core::{Error, ErrorKind};

/// Starts a thread of this name.
pub(crate) fn spawn(
    name: &str,
    body: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>, Error> {
    Builder::new().name(name.to_owned()).spawn(body).map_err(|e| {
        Error::new(ErrorKind::Busy, format!("cannot start the thread {name}: {e}"))
            .hint("more processes for this user (ulimit -u), or a higher pids limit of the container or service")
            .source(e)
    })
}
