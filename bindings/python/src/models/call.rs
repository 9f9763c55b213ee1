//! A computation without the interpreter lock. It ends early when a signal handler of Python raises, as for Ctrl-C, or
//! when a policy in Python raises.

use crate::error::failed;
use crate::signals::{self, EACH};
use pyo3::prelude::*;
use std::cell::Cell;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ThreadId;
use std::time::Instant;
use zoneplug_core::Error;
use zoneplug_core::poison::lock;
use zoneplug_models::Workers;

thread_local! {
    /// When this thread last looked for signals.
    static LOOKED: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// A call from Python that lasts.
pub(super) struct Call {
    caller: ThreadId,
    asked: AtomicBool,
    raised: Mutex<Option<PyErr>>,
}

impl Call {
    pub(super) fn new() -> Call {
        Call {
            caller: std::thread::current().id(),
            asked: AtomicBool::new(false),
            raised: Mutex::new(None),
        }
    }

    /// Ends the computation; the call raises `e`, unless it raises another already.
    pub(super) fn raise(&self, e: PyErr) {
        lock(&self.raised).get_or_insert(e);
        self.asked.store(true, Ordering::Release);
    }

    /// Whether the computation is to end. Only the main thread sees signals, so only the caller, which may be that
    /// thread, looks for them.
    pub(super) fn is_asked(&self) -> bool {
        if self.asked.load(Ordering::Acquire) {
            return true;
        }
        let due = |last: Option<Instant>| last.is_none_or(|t| t.elapsed() >= EACH);
        if !due(LOOKED.get()) || std::thread::current().id() != self.caller {
            return false;
        }
        let raised = signals::look();
        LOOKED.set(Some(Instant::now()));
        let is_raised = raised.is_some();
        raised.into_iter().for_each(|e| self.raise(e));
        is_raised
    }

    /// Computes, and raises what was raised meanwhile. `threads`: 0 for all processors.
    pub(super) fn compute<T: Send>(
        &self,
        py: Python<'_>,
        threads: usize,
        work: impl FnOnce(&Workers<'_>) -> Result<T, Error> + Send,
    ) -> PyResult<T> {
        let asked = || self.is_asked();
        let result = py.detach(|| {
            let workers = Workers::all(&asked);
            work(&if threads == 0 { workers } else { workers.at_most(threads) })
        });
        match lock(&self.raised).take() {
            Some(e) => Err(e),
            None => result.map_err(|e| failed(py, &e)),
        }
    }
}
