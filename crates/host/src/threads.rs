//! Starts the threads of this crate. A system may refuse one (`ulimit -u`, a pids limit): that is an error with a hint, never a
//! thread that others wait for in vain.

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
