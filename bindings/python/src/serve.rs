//! Disks that a program serves.

use crate::disk::Name;
use crate::error::{Process, failed};
use crate::signals;
use pyo3::prelude::*;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use zoneplug::serve::{Access, Serve, Serving, default_name, parse_address};
use zoneplug_core::Error;
use zoneplug_core::poison::lock;

/// Served disks: see `zoneplug.serve`.
#[pyclass(module = "zoneplug._zoneplug", name = "Served", frozen)]
pub(crate) struct Served {
    /// `None`: stopped.
    serving: Mutex<Option<Serving>>,
    lines: Vec<String>,
    addresses: Vec<(String, u16)>,
    iscsi_addresses: Vec<(String, u16)>,
    nqn: String,
    iqn: String,
    socket: Option<PathBuf>,
    process: Process,
}

/// Clients that may connect, whether any may, the files of the keys or secrets of clients, and that of this side.
type Given = (Option<Vec<String>>, bool, Vec<(String, PathBuf)>, Option<PathBuf>);

/// An address, the name of the subsystem or target there if it has one, and its clients.
type Door = (String, Option<String>, Given);

/// The host and the port of each address.
fn shown(all: &[SocketAddr]) -> Vec<(String, u16)> {
    all.iter().map(|a| (a.ip().to_string(), a.port())).collect()
}

#[pymethods]
impl Served {
    #[new]
    fn new(
        py: Python<'_>,
        disks: Vec<Name>,
        nvme_tcp: Option<Door>,
        iscsi: Option<Door>,
        conventional_only: bool,
        socket: Option<PathBuf>,
        metrics: Option<&str>,
    ) -> PyResult<Served> {
        let (mut names, default) = ([String::new(), String::new()], default_name("python"));
        let plan = |names: &mut [String; 2]| -> Result<Serve, Error> {
            let specs = disks.iter().map(|disk| Ok(disk.read()?.to_string()));
            let specs = specs.collect::<Result<Vec<_>, Error>>()?;
            let mut serve = Serve::new();
            let access = |(clients, any_client, proofs, own_proof): Given| Access {
                clients,
                any_client,
                proofs,
                own_proof,
            };
            if let Some((address, nqn, clients)) = nvme_tcp {
                let nqn = nqn.unwrap_or_else(|| format!("nqn.{default}"));
                names[0].clone_from(&nqn);
                let options = access(clients).nvme_tcp(&address, &nqn)?;
                serve = serve.nvme_tcp(options, specs.clone());
            }
            if let Some((address, iqn, clients)) = iscsi {
                let iqn = iqn.unwrap_or_else(|| format!("iqn.{default}"));
                names[1].clone_from(&iqn);
                let mut options = access(clients).iscsi(&address, &iqn)?;
                options.conventional_only = conventional_only;
                serve = serve.iscsi(options, specs);
            }
            let serve = match socket {
                Some(path) => serve.socket(path),
                None => serve.private_socket(),
            };
            Ok(match metrics {
                Some(at) => serve.metrics(parse_address(at)?),
                None => serve,
            })
        };
        let plan = plan(&mut names).map_err(|e| failed(py, &e))?;
        let [nqn, iqn] = names;
        let serving = signals::wait(py, move || plan.start())?.map_err(|e| failed(py, &e))?;
        Ok(Served {
            lines: serving.lines().to_vec(),
            addresses: shown(serving.addresses()),
            iscsi_addresses: shown(serving.iscsi_addresses()),
            nqn,
            iqn,
            socket: serving.socket().map(Path::to_owned),
            process: Process::this(),
            serving: Mutex::new(Some(serving)),
        })
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
    fn iscsi_addresses(&self) -> Vec<(String, u16)> {
        self.iscsi_addresses.clone()
    }

    /// Empty without NVMe/TCP.
    #[getter]
    fn nqn(&self) -> &str {
        &self.nqn
    }

    /// Empty without iSCSI.
    #[getter]
    fn iqn(&self) -> &str {
        &self.iqn
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
