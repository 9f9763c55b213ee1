//! Power cuts of code in Python.

use crate::disk::{Disk, Opened};
use crate::error::{failed, power_cut};
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::types::PyList;
use std::sync::{Arc, Mutex};
use zoneplug::crash::{Crash, Power, Work};
use zoneplug_core::poison::lock;
use zoneplug_host::HostedDisk;

/// A fact that no power cut may undo.
type Promise = Arc<Py<PyAny>>;

/// The argument of the work: see `zoneplug.crash.Work`.
#[pyclass(module = "zoneplug._zoneplug", name = "Work", frozen)]
pub(crate) struct PyWork {
    work: Work<Promise>,
    disk: Py<PyAny>,
}

#[pymethods]
impl PyWork {
    #[getter]
    fn disk(&self, py: Python<'_>) -> Py<PyAny> {
        self.disk.clone_ref(py)
    }

    #[getter]
    fn seed(&self) -> u64 {
        self.work.seed()
    }

    fn promise(&self, promise: Py<PyAny>) {
        self.work.promise(Arc::new(promise));
    }
}

/// The exceptions of code in Python while it is tested.
#[derive(Default)]
struct Raised {
    /// That of the last check that failed: the one which the failure is about.
    last: Option<PyErr>,
    /// An exception that ends the test, such as Ctrl-C.
    end: Option<PyErr>,
}

struct Test<'a> {
    /// Makes a `zoneplug.Disk` of one that is open.
    make_disk: &'a Py<PyAny>,
    raised: Mutex<Raised>,
}

impl Test<'_> {
    /// A disk for code in Python, which is closed when `code` has ended.
    fn with_disk(
        &self,
        disk: &HostedDisk,
        code: impl for<'py> FnOnce(Python<'py>, &Bound<'py, PyAny>) -> PyResult<()>,
    ) -> Result<(), String> {
        if lock(&self.raised).end.is_some() {
            return Err("the test was ended".to_owned());
        }
        Python::attach(|py| {
            let run = || -> PyResult<()> {
                let disk = self.make_disk.bind(py).call1((Opened::new(disk.clone()),))?;
                let result = code(py, &disk);
                disk.call_method0("close")?;
                result
            };
            run().map_err(|e| {
                let mut raised = lock(&self.raised);
                let text = describe(py, &e);
                if e.is_instance_of::<PyException>(py) {
                    raised.last = Some(e);
                } else {
                    raised.end = Some(e);
                }
                text
            })
        })
    }
}

/// One line for an exception: an assertion without a text is named by the line that has failed.
fn describe(py: Python<'_>, e: &PyErr) -> String {
    // With its traceback.
    let raised = e.clone_ref(py).into_value(py);
    let described = py
        .import("zoneplug.crash")
        .and_then(|m| m.call_method1("_describe", (raised,)))
        .and_then(|text| text.extract());
    described.unwrap_or_else(|_| e.to_string())
}

/// Runs a test of power cuts: runs, commands, points and cuts.
#[pyfunction]
#[pyo3(signature = (disk, work, check, seeds, cuts, every, cut_check, make_disk))]
#[expect(clippy::too_many_arguments, reason = "the keywords of a function in Python")]
pub(crate) fn _crash(
    py: Python<'_>,
    disk: &str,
    work: Py<PyAny>,
    check: Py<PyAny>,
    seeds: (u64, u64),
    cuts: u64,
    every: bool,
    cut_check: bool,
    make_disk: Py<PyAny>,
) -> PyResult<(u64, u64, u64, u64)> {
    let mut crash = Crash::new(disk).seeds(seeds.0..seeds.1).cuts(cuts);
    if every {
        crash = crash.every();
    }
    if cut_check {
        crash = crash.cut_check();
    }
    let test = Test { make_disk: &make_disk, raised: Mutex::default() };
    let tested = &test;
    let result = py.detach(move || {
        crash.run(
            |w: &Work<Promise>| {
                tested.with_disk(w.disk(), |py, disk| {
                    let w = PyWork { work: w.clone(), disk: disk.clone().unbind() };
                    work.call1(py, (w,)).map(drop)
                })
            },
            |disk, promised: &[Promise]| {
                tested.with_disk(disk, |py, disk| {
                    let promised = PyList::new(py, promised.iter().map(|p| p.bind(py)))?;
                    check.call1(py, (disk, promised)).map(drop)
                })
            },
        )
    });
    let raised = std::mem::take(&mut *lock(&test.raised));
    if let Some(end) = raised.end {
        return Err(end);
    }
    match result {
        Ok(report) => Ok((report.runs, report.commands, report.points, report.cuts)),
        Err(failure) => Err(power_cut(py, &failure, raised.last)),
    }
}

/// The medium and the power of a `zoneplug.crash.Disk`.
#[pyclass(module = "zoneplug._zoneplug", name = "Power", frozen)]
pub(crate) struct PyPower(Power);

#[pymethods]
impl PyPower {
    #[new]
    fn new(py: Python<'_>, disk: &str, seed: u64) -> PyResult<PyPower> {
        Power::new(disk, seed).map(PyPower).map_err(|e| failed(py, &e))
    }

    fn open(&self, py: Python<'_>) -> PyResult<Opened> {
        self.0.open().map(Opened::new).map_err(|e| failed(py, &e))
    }

    /// Cuts the power, and has `disk` be the disk that is left.
    fn cut(&self, py: Python<'_>, disk: &Bound<'_, Disk>) -> PyResult<()> {
        let again = py.detach(|| self.0.cut().and_then(|()| self.0.open()));
        disk.get().replace(py, again.map_err(|e| failed(py, &e))?)
    }
}
