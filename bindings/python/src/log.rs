//! A log in the zones of a disk.

use crate::buffer::bytes_of;
use crate::disk::Disk;
use crate::error::{Process, log_failed};
use crate::signals;
use pyo3::basic::CompareOp;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex};
use zoneplug::zone_log::{LogAddress, LogError, LogIter, LogOptions, ZoneLog};
use zoneplug_core::ZoneNo;
use zoneplug_core::poison::lock;

/// The address of a record.
#[pyclass(module = "zoneplug", name = "LogAddress", frozen)]
#[derive(Clone, Copy)]
pub(crate) struct PyAddress(LogAddress);

#[pymethods]
impl PyAddress {
    /// The address that was stored as `data`.
    #[new]
    fn new(data: &[u8]) -> PyResult<PyAddress> {
        let wrong = || {
            let text = format!("an address is {} bytes, not {}", LogAddress::LEN, data.len());
            PyValueError::new_err(text)
        };
        data.try_into().map(|b| PyAddress(LogAddress::from_bytes(b))).map_err(|_| wrong())
    }

    #[getter]
    fn sequence(&self) -> u64 {
        self.0.sequence()
    }

    #[getter]
    fn sector(&self) -> u64 {
        self.0.sector().0
    }

    fn __bytes__<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.to_bytes())
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> (Bound<'py, PyAny>, (Bound<'py, PyBytes>,)) {
        let py = slf.py();
        (slf.get_type().into_any(), (slf.get().__bytes__(py),))
    }

    fn __richcmp__(&self, other: &PyAddress, op: CompareOp) -> bool {
        op.matches(self.0.cmp(&other.0))
    }

    fn __hash__(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.0.hash(&mut hasher);
        hasher.finish()
    }

    fn __repr__(&self) -> String {
        format!("<zoneplug.LogAddress of {}>", self.0)
    }
}

/// A log: see `zoneplug.ZoneLog`.
#[pyclass(module = "zoneplug._zoneplug", name = "Log", frozen)]
pub(crate) struct PyLog {
    log: ZoneLog,
    process: Process,
}

/// The records of a log, in order.
#[pyclass(module = "zoneplug._zoneplug", name = "LogRecords", frozen)]
pub(crate) struct PyRecords {
    records: Arc<Mutex<LogIter>>,
    process: Process,
}

/// Runs an operation without the interpreter lock. Ctrl-C gives up its answer.
fn run<T: Send + 'static>(
    py: Python<'_>,
    process: Process,
    work: impl FnOnce() -> Result<T, LogError> + Send + 'static,
) -> PyResult<T> {
    process.check(py)?;
    signals::wait(py, work)?.map_err(|e| log_failed(py, &e))
}

/// Opens logs, or begins them: see `zoneplug.ZoneLog`.
#[pyfunction]
pub(crate) fn _open_logs(
    py: Python<'_>,
    disk: &Bound<'_, Disk>,
    id: u64,
    zones: Option<(u32, u32)>,
    logs: u32,
    erase: bool,
) -> PyResult<Vec<PyLog>> {
    let disk = disk.get().hosted(py)?;
    let mut options = LogOptions::new().id(id);
    if let Some((first, end)) = zones {
        options = options.zones(first..end);
    }
    let open = move || match erase {
        true => ZoneLog::create_set(&disk, options, logs),
        false => ZoneLog::open_set(&disk, options, logs),
    };
    let process = Process::this();
    let opened = run(py, process, open)?;
    Ok(opened.into_iter().map(|log| PyLog { log, process }).collect())
}

#[pymethods]
impl PyLog {
    /// Appends records in order. `sync`: they are durable when this returns.
    fn append(
        &self,
        py: Python<'_>,
        records: Vec<Bound<'_, PyAny>>,
        sync: bool,
    ) -> PyResult<Vec<PyAddress>> {
        let bytes = |data: &Bound<'_, PyAny>| bytes_of(data)?.to_vec(py);
        let records = records.iter().map(bytes).collect::<PyResult<Vec<Vec<u8>>>>()?;
        let log = self.log.clone();
        let work = move || match sync {
            true => log.append_batch_sync(records),
            false => log.append_batch(records),
        };
        Ok(run(py, self.process, work)?.into_iter().map(PyAddress).collect())
    }

    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        let log = self.log.clone();
        run(py, self.process, move || log.sync())
    }

    fn read<'py>(&self, py: Python<'py>, at: &PyAddress) -> PyResult<Bound<'py, PyBytes>> {
        let (log, at) = (self.log.clone(), at.0);
        Ok(PyBytes::new(py, &run(py, self.process, move || log.read(at))?))
    }

    /// The records from an address on, or all.
    fn records(&self, py: Python<'_>, from: Option<&PyAddress>) -> PyResult<PyRecords> {
        let (log, process) = (self.log.clone(), self.process);
        let records = match from.map(|at| at.0) {
            Some(at) => run(py, process, move || log.iter_from(at))?,
            None => log.iter(),
        };
        Ok(PyRecords { records: Arc::new(Mutex::new(records)), process })
    }

    fn trim(&self, py: Python<'_>, before: &PyAddress) -> PyResult<Vec<u32>> {
        let (log, before) = (self.log.clone(), before.0);
        let zones = run(py, self.process, move || log.trim(before))?;
        Ok(zones.into_iter().map(|z| z.0).collect())
    }

    fn reset_oldest(&self, py: Python<'_>) -> PyResult<Option<u32>> {
        let log = self.log.clone();
        Ok(run(py, self.process, move || log.reset_oldest())?.map(|z| z.0))
    }

    fn max_record_bytes(&self) -> u64 {
        self.log.max_record_len()
    }

    fn numbers(&self) -> (u64, u64) {
        let numbers = self.log.numbers();
        (numbers.start, numbers.end)
    }

    /// The findings of the opening, as `zoneplug.Recovery` takes it.
    fn recovery<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let found = self.log.recovery();
        let all = PyDict::new(py);
        let holes = found.holes.iter().map(|e| log_failed(py, e).into_value(py));
        let numbers = |zones: &[ZoneNo]| zones.iter().map(|z| z.0).collect::<Vec<_>>();
        let lost: Vec<_> = found.lost.iter().map(|(zone, _)| *zone).collect();
        all.set_item("zones_in_use", found.zones_in_use)?;
        all.set_item("first", found.first)?;
        all.set_item("last", found.last)?;
        all.set_item("torn_bytes", found.torn_bytes)?;
        all.set_item("holes", holes.collect::<Vec<_>>())?;
        all.set_item("lost", numbers(&lost))?;
        all.set_item("foreign", numbers(&found.foreign))?;
        Ok(all)
    }
}

#[pymethods]
impl PyRecords {
    /// The next record, or None at the end.
    fn next<'py>(&self, py: Python<'py>) -> PyResult<Option<(PyAddress, Bound<'py, PyBytes>)>> {
        let records = self.records.clone();
        let next = run(py, self.process, move || lock(&records).next().transpose())?;
        Ok(next.map(|record| (PyAddress(record.address), PyBytes::new(py, &record.data))))
    }
}
