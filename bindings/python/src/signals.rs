//! Signals of Python while a call waits without the interpreter lock. All calls that wait look for them here. A signal
//! handler that raises, as the one for Ctrl-C does, ends the wait, and the call raises the same.

use pyo3::prelude::*;
use std::cell::RefCell;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

/// How often signals are looked for: the interpreter lock may be another thread's for some milliseconds each time.
pub(crate) const EACH: Duration = Duration::from_millis(50);

thread_local! {
    /// The exception that a handler has raised while this thread waited for a disk.
    static RAISED: RefCell<Option<PyErr>> = const { RefCell::new(None) };
}

/// Runs the handlers of signals that have come, if this is the main thread of Python, and returns what they raise. The
/// caller must not hold the interpreter lock for long.
pub(crate) fn look() -> Option<PyErr> {
    // Without an interpreter, which may be ending, no handler can run.
    Python::try_attach(|py| py.check_signals().err()).flatten()
}

/// Whether a wait for a disk is to end: see [`taken`].
pub(crate) fn is_raised() -> bool {
    let raised = look();
    let is_raised = raised.is_some();
    RAISED.set(raised);
    is_raised
}

/// The exception that was raised in this thread since the last call, when [`is_raised`] was true.
pub(crate) fn taken() -> Option<PyErr> {
    RAISED.take()
}

/// Runs work that cannot be interrupted, without the interpreter lock. If a handler raises meanwhile, the call ends, the
/// work goes on in a thread, and its result is dropped.
pub(crate) fn wait<T: Send + 'static>(
    py: Python<'_>,
    work: impl FnOnce() -> T + Send + 'static,
) -> PyResult<T> {
    py.detach(move || {
        let (tell, told) = channel();
        let body = move || drop(tell.send(work()));
        thread::Builder::new().name("zoneplug-waits".to_owned()).spawn(body)?;
        loop {
            match told.recv_timeout(EACH) {
                Ok(result) => return Ok(result),
                Err(RecvTimeoutError::Timeout) => look().map_or(Ok(()), Err)?,
                Err(RecvTimeoutError::Disconnected) => {
                    let text = "a thread of zoneplug has ended; please report it";
                    return Err(pyo3::exceptions::PyRuntimeError::new_err(text));
                }
            }
        }
    })
}
