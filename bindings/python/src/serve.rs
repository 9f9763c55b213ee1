//! Disks that a program serves.

use crate::disk::Name;
use crate::error::{Process, failed};
use crate::signals;
use pyo3::prelude::*;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use zoneplug::serve::{Access, Serve, Serving, parse_address};
use zoneplug_core::Error;
use zoneplug_core::poison::lock;

/// Served disks: see `zoneplug.serve`.
#[pyclass(module = "zoneplug._zoneplug", name = "Served", frozen)]
pub(crate) struct Served {
    /// `None`: stopped.
    serving: Mutex<Option<Serving>>,
    lines: Vec<String>,
    addresses: Vec<(String, u16)>,
    socket: Option<PathBuf>,
    process: Process,
}

/// Hosts that may connect, whether any may, the keys of hosts, and the key of this side.
type Given = (Option<Vec<String>>, bool, Vec<(String, PathBuf)>, Option<PathBuf>);

#[pymethods]
impl Served {
    #[new]
    fn new(
        py: Python<'_>,
        disks: Vec<Name>,
        listen: &str,
        nqn: &str,
        access: Given,
        socket: Option<PathBuf>,
        metrics: Option<&str>,
    ) -> PyResult<Served> {
        let (hosts, any_host, keys, own_key) = access;
        let plan = || -> Result<Serve, Error> {
            let options = Access { hosts, any_host, keys, own_key }.options(listen, nqn)?;
            let specs = disks.iter().map(|disk| Ok(disk.read()?.to_string()));
            let specs = specs.collect::<Result<Vec<_>, Error>>()?;
            let serve = Serve::new().nvme_tcp(options, specs);
            let serve = match socket {
                Some(path) => serve.socket(path),
                None => serve.private_socket(),
            };
            Ok(match metrics {
                Some(at) => serve.metrics(parse_address(at)?),
                None => serve,
            })
        };
        let plan = plan().map_err(|e| failed(py, &e))?;
        let serving = signals::wait(py, move || plan.start())?.map_err(|e| failed(py, &e))?;
        let addresses = serving.addresses().iter().map(|a| (a.ip().to_string(), a.port()));
        let (lines, addresses) = (serving.lines().to_vec(), addresses.collect());
        let socket = serving.socket().map(Path::to_owned);
        let process = Process::this();
        Ok(Served { serving: Mutex::new(Some(serving)), lines, addresses, socket, process })
    }

    #[getter]
    fn lines(&self) -> Vec<String> {
        self.lines.clone()
    }

    #[getter]
    fn addresses(&self) -> Vec<(String, u16)> {
        self.addresses.clone()
    }

    #[getter]
    fn socket(&self) -> Option<PathBuf> {
        self.socket.clone()
    }

    #[getter]
    fn is_served(&self) -> bool {
        !self.process.is_other() && lock(&self.serving).as_ref().is_some_and(Serving::is_served)
    }

    fn stop(&self, py: Python<'_>) -> PyResult<()> {
        let serving = lock(&self.serving).take();
        if self.process.is_other() {
            std::mem::forget(serving);
            return Ok(());
        }
        let Some(serving) = serving else { return Ok(()) };
        signals::wait(py, move || serving.stop())?.map_err(|e| failed(py, &e))
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if self.process.is_other() {
            std::mem::forget(lock(&self.serving).take());
        }
    }
}
