//! A policy of the single writer that is a Python object: a function of a view, or an object with `pick` and perhaps
//! `stay`.

use super::call::Call;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyTuple;
use std::sync::Arc;
use zoneplug_core::sched::policy::{Candidate, Turn, View as CoreView};
use zoneplug_models::{Choose, Own};

/// What a policy sees: the zones that wait for the single writer, first listed first, and the turn of the last one.
#[pyclass(module = "zoneplug", frozen)]
pub(crate) struct View {
    listed: Vec<Candidate>,
    turn: Turn,
    /// The zone of the last turn, or None.
    #[pyo3(get)]
    last: Option<u32>,
    /// The virtual time, in nanoseconds.
    #[pyo3(get)]
    now_ns: u64,
    /// The sector at which the last turn ended.
    #[pyo3(get)]
    head: u64,
    /// The size of the disk in sectors.
    #[pyo3(get)]
    capacity: u64,
    columns: [PyOnceLock<Py<PyTuple>>; 4],
}

impl View {
    fn of(view: &CoreView<'_>) -> View {
        View {
            listed: view.listed.to_vec(),
            turn: view.turn,
            last: view.last.map(|z| z.0),
            now_ns: view.now.0,
            head: view.head.0,
            capacity: view.capacity.0,
            columns: [const { PyOnceLock::new() }; 4],
        }
    }

    /// A number of each zone, made when it is first asked for.
    fn column(
        &self,
        py: Python<'_>,
        i: usize,
        of: impl Fn(&Candidate) -> u64,
    ) -> PyResult<Py<PyTuple>> {
        let made = self.columns[i].get_or_try_init(py, || {
            PyTuple::new(py, self.listed.iter().map(of)).map(Bound::unbind)
        });
        Ok(made?.clone_ref(py))
    }
}

#[pymethods]
impl View {
    fn __len__(&self) -> usize {
        self.listed.len()
    }

    /// The number of each zone.
    #[getter]
    fn zones(&self, py: Python<'_>) -> PyResult<Py<PyTuple>> {
        self.column(py, 0, |c| u64::from(c.zone.0))
    }

    /// The first sector that waits in each zone.
    #[getter]
    fn sectors(&self, py: Python<'_>) -> PyResult<Py<PyTuple>> {
        self.column(py, 1, |c| c.sector.0)
    }

    /// How many bytes wait in each zone.
    #[getter]
    fn nbytes(&self, py: Python<'_>) -> PyResult<Py<PyTuple>> {
        self.column(py, 2, |c| c.bytes.0)
    }

    /// The virtual time at which each zone was listed, in nanoseconds.
    #[getter]
    fn since_ns(&self, py: Python<'_>) -> PyResult<Py<PyTuple>> {
        self.column(py, 3, |c| c.since.0)
    }

    /// The virtual time at which the last turn began, in nanoseconds.
    #[getter]
    fn turn_began_ns(&self) -> u64 {
        self.turn.began.0
    }

    /// How many bytes that turn has written.
    #[getter]
    fn turn_nbytes(&self) -> u64 {
        self.turn.written.0
    }

    /// How often the writer has waited for more in that turn, and got it.
    #[getter]
    fn turn_waits(&self) -> u32 {
        self.turn.waits
    }

    fn __repr__(&self) -> String {
        let zones: Vec<u32> = self.listed.iter().map(|c| c.zone.0).collect();
        format!("<zoneplug.View of zones {zones:?}>")
    }
}

/// A policy in Python, and the call whose run it decides on.
struct InPython {
    pick: Py<PyAny>,
    stay: Option<Py<PyAny>>,
    call: Arc<Call>,
}

impl InPython {
    /// Calls one of its functions; after one has raised, none is called.
    fn ask<T>(
        &self,
        function: &Py<PyAny>,
        view: &CoreView<'_>,
        otherwise: T,
        read: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<T>,
    ) -> T {
        if self.call.is_asked() {
            return otherwise;
        }
        let answer = Python::attach(|py| {
            let view = Bound::new(py, View::of(view))?;
            read(function.bind(py).call1((view,))?.as_any())
        });
        answer.unwrap_or_else(|e| {
            self.call.raise(e);
            otherwise
        })
    }
}

impl Choose for InPython {
    fn pick(&self, view: &CoreView<'_>) -> usize {
        self.ask(&self.pick, view, 0, |answer| {
            let n = view.listed.len();
            let wrong = || {
                let what = format!("a policy returns an index below {n}, not {answer:?}");
                PyErr::new::<PyValueError, _>(what)
            };
            let i = answer.extract::<usize>().map_err(|_| wrong())?;
            if i < n { Ok(i) } else { Err(wrong()) }
        })
    }

    fn stay(&self, view: &CoreView<'_>) -> bool {
        let Some(stay) = &self.stay else { return true };
        self.ask(stay, view, false, |answer| answer.is_truthy())
    }
}

/// The policy that a Python object is: a function, or an object with `pick`.
pub(super) fn own(policy: &Bound<'_, PyAny>, call: &Arc<Call>) -> PyResult<Own> {
    let method = |name: &str| policy.getattr_opt(name);
    let (pick, stay) = match method("pick")? {
        Some(pick) => (pick, method("stay")?),
        None => (policy.clone(), None),
    };
    if !pick.is_callable() {
        let kind = policy.get_type().name()?;
        return Err(PyTypeError::new_err(format!(
            "a policy is a name, a function, or an object with pick(view), not a {kind}"
        )));
    }
    let name = match policy.getattr_opt("__name__")? {
        Some(name) => name.extract::<String>()?,
        None => policy.get_type().name()?.to_string(),
    };
    let stay = stay.map(Bound::unbind);
    let choose = InPython { pick: pick.unbind(), stay, call: Arc::clone(call) };
    Ok(Own::new(&name, Arc::new(choose)))
}
