//! Many operations at a time, with a descriptor for an event loop. `zoneplug.aio` makes awaitables of it.

use crate::buffer::{Buffer, Source, zeroed};
use crate::disk::{Disk, whole_sectors};
use crate::error::{Process, closed, failed, io_failed};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyList;
use std::collections::HashMap;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;
use zoneplug_core::{Op, Sector};
use zoneplug_host::{Batch, IoError, OpId, WakeFd};

/// Operations in flight of one event loop.
#[pyclass(module = "zoneplug._zoneplug")]
pub(crate) struct Queue {
    /// `None`: closed. In a box, because Python gives objects no memory that is aligned as a client needs it.
    batch: Option<Box<Batch>>,
    bell: Arc<WakeFd>,
    waker: Waker,
    process: Process,
    next: u64,
    /// The number that Python knows an operation by, and where its memory comes from.
    sent: HashMap<OpId, (u64, Option<Source>)>,
    /// Operations that were refused before they had memory.
    refused: Vec<(u64, IoError)>,
}

impl Queue {
    fn open(&mut self, py: Python<'_>) -> PyResult<&mut Batch> {
        self.process.check(py)?;
        self.batch.as_deref_mut().ok_or_else(|| closed(py))
    }

    fn sent(&mut self, id: OpId, source: Option<Source>) -> u64 {
        self.next += 1;
        self.sent.insert(id, (self.next, source));
        self.next
    }

    /// Has `poll` return the failure of an operation that was not submitted.
    fn refuse(&mut self, e: IoError) -> u64 {
        self.next += 1;
        self.refused.push((self.next, e));
        self.watch();
        self.next
    }

    /// Makes the descriptor readable when there is something to fetch.
    fn watch(&mut self) {
        if !self.refused.is_empty() {
            return std::task::Wake::wake_by_ref(&self.bell);
        }
        let Queue { batch: Some(batch), bell, waker, .. } = self else { return };
        if !batch.arm(waker) && batch.outstanding() > 0 {
            std::task::Wake::wake_by_ref(bell);
        }
    }
}

#[pymethods]
impl Queue {
    #[new]
    fn new(py: Python<'_>, disk: &Bound<'_, Disk>, depth: u16) -> PyResult<Queue> {
        let disk = disk.get().hosted(py)?;
        let batch = Batch::new(&disk, depth).map_err(|e| failed(py, &e))?;
        let bell = WakeFd::new()?;
        let waker = Waker::from(bell.clone());
        let process = Process::this();
        let (sent, refused) = (HashMap::new(), Vec::new());
        Ok(Queue { batch: Some(Box::new(batch)), bell, waker, process, next: 0, sent, refused })
    }

    fn fileno(&self) -> i32 {
        self.bell.as_fd().as_raw_fd()
    }

    /// Submits a read of `nbytes`. The answer is a `Buffer`.
    fn read(&mut self, py: Python<'_>, sector: u64, nbytes: u64) -> PyResult<u64> {
        whole_sectors(nbytes)?;
        let batch = self.open(py)?;
        let at = Sector(sector);
        let id = match batch.check_length(Op::Read, at, nbytes) {
            Ok(len) => batch.read_buf(at, zeroed(len)?),
            Err(e) => return Ok(self.refuse(e)),
        };
        let n = self.sent(id, None);
        self.watch();
        Ok(n)
    }

    /// Submits a write, or with `append` an append to the zone at `sector`. The answer is a sector.
    fn write(
        &mut self,
        py: Python<'_>,
        sector: u64,
        data: &Bound<'_, PyAny>,
        append: bool,
        fua: bool,
    ) -> PyResult<u64> {
        let batch = self.open(py)?;
        let (op, at) = (if append { Op::ZoneAppend } else { Op::Write }, Sector(sector));
        let (source, memory) = match Source::take(py, data, |n| batch.check_length(op, at, n))? {
            Ok(taken) => taken,
            Err(e) => return Ok(self.refuse(e)),
        };
        let id = match (append, fua) {
            (false, false) => batch.write(at, memory),
            (false, true) => batch.write_fua(at, memory),
            (true, false) => batch.append(at, memory),
            (true, true) => batch.append_fua(at, memory),
        };
        let n = self.sent(id, Some(source));
        self.watch();
        Ok(n)
    }

    /// Submits an operation on a range, by its name. The answer is `None`.
    fn manage(&mut self, py: Python<'_>, op: &str, sector: u64, nr_sectors: u64) -> PyResult<u64> {
        let batch = self.open(py)?;
        let at = Sector(sector);
        let Some(op) = Op::ALL.into_iter().find(|o| o.name() == op) else {
            return Err(PyValueError::new_err(format!("no operation is called {op:?}")));
        };
        let id = match op {
            Op::Flush => batch.flush(),
            Op::Discard => batch.discard(at, nr_sectors),
            Op::WriteZeroes => batch.write_zeroes(at, nr_sectors),
            _ => batch.manage(op, at, nr_sectors),
        };
        let n = self.sent(id, None);
        self.watch();
        Ok(n)
    }

    /// What has ended: pairs of a number and an answer, which is an exception if the operation failed.
    fn poll<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        self.bell.clear();
        let ended = PyList::empty(py);
        self.open(py)?;
        for (n, e) in std::mem::take(&mut self.refused) {
            ended.append((n, io_failed(py, &e).into_value(py)))?;
        }
        while let Some(one) = self.batch.as_mut().and_then(|b| b.wait_any(Some(Duration::ZERO))) {
            let Some((n, source)) = self.sent.remove(&one.id) else { continue };
            match one.result {
                Ok(done) => match (one.op, source) {
                    (Op::Read, _) => ended.append((n, done.buf.map(Buffer::of)))?,
                    (_, Some(source)) => {
                        source.give_back(py, done.buf);
                        ended.append((n, done.sector.0))?;
                    }
                    (_, None) => ended.append((n, py.None()))?,
                },
                Err(e) => {
                    let error = io_failed(py, &e);
                    if let Some(source) = source {
                        source.give_back(py, e.into_buf());
                    }
                    ended.append((n, error.into_value(py)))?;
                }
            }
        }
        self.watch();
        Ok(ended)
    }

    /// How many operations have not been fetched.
    fn outstanding(&self) -> usize {
        self.batch.as_ref().map_or(0, |b| b.outstanding()) + self.refused.len()
    }

    /// Never waits: what is in flight goes on, and its answers are dropped.
    fn close(&mut self, py: Python<'_>) {
        let batch = self.batch.take();
        if self.process.is_other() {
            std::mem::forget(batch);
        } else {
            py.detach(|| drop(batch));
        }
        self.sent.clear();
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        if self.process.is_other() {
            std::mem::forget(self.batch.take());
        }
    }
}
