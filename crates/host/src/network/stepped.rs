//! For tests and counting instructions: a server without threads, which runs step by step. No program uses this.

use std::io;
use std::ops::Deref;

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
