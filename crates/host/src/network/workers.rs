//! The workers of a server: each in a thread of its own, or, for tests and counting instructions, one without a thread.

use crate::threads;
use std::io;
use std::ops::Deref;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use zoneplug_core::Error;
use zoneplug_core::poison::lock;

/// Starts a thread for each worker, and adds it to `threads`. If a worker fails, `failure` says why the first one did, and
/// `ended` is called.
pub(crate) fn spawn_workers<W: Send + 'static>(
    threads: &mut Vec<JoinHandle<()>>,
    name: &str,
    workers: Vec<W>,
    run: fn(W) -> io::Result<()>,
    failure: &Arc<Mutex<Option<String>>>,
    ended: impl Fn() + Clone + Send + 'static,
) -> Result<(), Error> {
    for (n, worker) in workers.into_iter().enumerate() {
        let (ended, failure) = (ended.clone(), failure.clone());
        let body = move || {
            if let Err(e) = run(worker) {
                lock(&failure).get_or_insert_with(|| format!("thread {n}: {e}"));
                ended();
            }
        };
        threads.push(threads::spawn(&format!("zoneplug-{name}{n}"), body)?);
    }
    Ok(())
}

/// A server of the network whose only worker runs in the calls of [`SteppedServer::step`].
pub struct SteppedServer<S> {
    server: S,
    /// Runs the worker once.
    step: Box<dyn FnMut() -> io::Result<()>>,
}

impl<S: std::fmt::Debug> std::fmt::Debug for SteppedServer<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.server.fmt(f)
    }
}

impl<S> SteppedServer<S> {
    pub(crate) fn new(server: S, step: impl FnMut() -> io::Result<()> + 'static) -> Self {
        SteppedServer { server, step: Box::new(step) }
    }

    /// Does the work of a worker between two sleeps.
    ///
    /// # Errors
    ///
    /// The worker cannot wait for descriptors.
    pub fn step(&mut self) -> io::Result<()> {
        (self.step)()
    }
}

impl<S> Deref for SteppedServer<S> {
    type Target = S;

    fn deref(&self) -> &S {
        &self.server
    }
}
