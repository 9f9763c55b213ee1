//! Disks that this program serves to others, as `zoneplug serve` does: over NVMe/TCP, or as block devices of this machine's Linux. A
//! control socket answers `zoneplug status`, `top`, `attr` and `snapshot`, and Prometheus can read metrics.
//!
//! ```
//! use zoneplug::nvme_tcp::NvmeTcpOptions;
//! use zoneplug::serve::Serve;
//!
//! # fn main() -> Result<(), zoneplug::Error> {
//! # let socket = std::env::temp_dir().join(format!("zoneplug-serve-{}", std::process::id()));
//! let options = NvmeTcpOptions::new("127.0.0.1:0".parse().unwrap(), "nqn.2026-11.org.example:disks");
//! let served = Serve::new().nvme_tcp(options, ["mem,zones=8"]).socket(&socket).start()?;
//! assert!(served.lines()[1].starts_with("namespace 1  mem,zones=8"));
//! served.stop()
//! # }
//! ```
//!
//! The program goes on meanwhile, and has its signals for itself. No other server takes these disks over while the program has
//! them; it takes none over either.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread::JoinHandle;
use zoneplug_core::{Error, ErrorKind};
use zoneplug_host::nvme_tcp::NvmeTcpOptions;
use zoneplug_host::signals::Signals;
use zoneplug_host::ublk::Ublk;
use zoneplug_server::doors::nvme_tcp::{NvmeTcpDoor, Plan};
use zoneplug_server::doors::planned;
use zoneplug_server::doors::ublk::{BlockDisk, DeviceOptions, Numbers, Rules, UblkDoor};
use zoneplug_server::{
    Attempt, Config, Doors, Failure, Order, Server, Stopper, check_addresses, check_socket,
};

/// The disks that are to be served, and where.
#[derive(Debug, Clone, Default)]
pub struct Serve {
    ublk: Vec<String>,
    network: Option<(NvmeTcpOptions, Vec<String>)>,
    socket: Option<PathBuf>,
    metrics: Option<SocketAddr>,
}

impl Serve {
    /// Nothing yet.
    pub fn new() -> Serve {
        Serve::default()
    }

    /// Also this disk, as a block device. Only root may.
    pub fn ublk(mut self, spec: &str) -> Serve {
        self.ublk.push(spec.to_owned());
        self
    }

    /// Also these disks, as namespaces of one subsystem.
    pub fn nvme_tcp(
        mut self,
        options: NvmeTcpOptions,
        specs: impl IntoIterator<Item = impl Into<String>>,
    ) -> Serve {
        self.network = Some((options, specs.into_iter().map(Into::into).collect()));
        self
    }

    /// Has the control socket at this path, instead of one in `/run/zoneplug`.
    pub fn socket(mut self, path: impl AsRef<Path>) -> Serve {
        self.socket = Some(path.as_ref().to_owned());
        self
    }

    /// Serves metrics over HTTP at this address. Whoever reaches it reads all.
    pub fn metrics(mut self, address: SocketAddr) -> Serve {
        self.metrics = Some(address);
        self
    }

    /// Serves from now on, in threads of its own. Returns when all disks are served; then all of them are, or none.
    pub fn start(self) -> Result<Serving, Error> {
        let doors = self.doors()?;
        let Serve { socket, metrics: metrics_at, .. } = self;
        if let Some(path) = &socket {
            check_socket(path)?;
        }
        let config = Config { socket, metrics_at, ..Config::default() };
        let signals = Signals::none();
        let signals = signals.map_err(|e| Failure::of_system(Attempt::Descriptor, "notices", e))?;
        let server = Server::new(config, doors, signals);
        let stopper = server.stopper();
        let (tell, told) = mpsc::channel();
        let body = move || {
            // The receiver is gone only if the thread that starts this has panicked.
            server.run(&move |lines| drop(tell.send(lines))).map(drop)
        };
        let thread = std::thread::Builder::new().name("zoneplug-server".to_owned()).spawn(body);
        let thread =
            thread.map_err(|e| Failure::of_system(Attempt::Thread, "no thread to serve", e))?;
        let mut serving = Serving { lines: Vec::new(), stopper, thread: Some(thread) };
        match told.recv() {
            Ok(lines) => {
                serving.lines = lines;
                Ok(serving)
            }
            Err(_) => Err(serving.end().err().unwrap_or_else(ended)),
        }
    }

    fn doors(&self) -> Result<Doors, Error> {
        let latencies = self.metrics.is_some();
        let device = DeviceOptions { depth: 128, ..DeviceOptions::default() };
        let block = |text: &String| -> Result<_, Error> {
            Ok(BlockDisk { spec: text.parse()?, device: device.clone(), own_id: false })
        };
        let blocks = self.ublk.iter().map(block).collect::<Result<Vec<_>, _>>()?;
        let network = |(options, specs): &(NvmeTcpOptions, Vec<String>)| -> Result<_, Error> {
            options.check()?;
            let specs = specs.iter().map(|text| text.parse()).collect::<Result<_, _>>()?;
            Ok(Plan::new(NvmeTcpOptions { latencies, ..options.clone() }, specs))
        };
        let plan = self.network.as_ref().map(network).transpose()?;
        let planned = planned(&blocks, Numbers(None), plan.as_ref(), &Order::new())?;
        let addresses = plan.iter().flat_map(Plan::addresses).map(|at| ("nvme-tcp", at));
        let addresses: Vec<_> = addresses.chain(self.metrics.map(|at| ("metrics", at))).collect();
        check_addresses(&addresses).map_err(|(_, f)| f)?;
        let mut doors: Doors = Vec::new();
        if !planned.is_empty() {
            let rules = Rules { latencies, ..Rules::default() };
            doors.push(Box::new(UblkDoor::new(Some(Ublk::open()?), planned, rules)));
        }
        if let Some(plan) = plan {
            doors.push(Box::new(NvmeTcpDoor::new(plan, false, false)));
        }
        Ok(doors)
    }
}

/// The server has ended, and does not say why.
fn ended() -> Error {
    Error::new(ErrorKind::Io, "the server has ended").hint("the log of this program")
}

/// Disks that are served, until this is stopped or dropped.
#[derive(Debug)]
pub struct Serving {
    lines: Vec<String>,
    stopper: Stopper,
    thread: Option<JoinHandle<Result<(), Failure>>>,
}

impl Serving {
    /// Each disk and how it is reached, in the lines that `zoneplug serve` prints.
    pub fn lines(&self) -> &[String] {
        &self.lines
    }

    /// Whether the disks are still served. If not, [`Serving::stop`] says why.
    pub fn is_served(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    /// Ends, and makes everything durable.
    pub fn stop(mut self) -> Result<(), Error> {
        self.end()
    }

    fn end(&mut self) -> Result<(), Error> {
        self.stopper.stop();
        let Some(thread) = self.thread.take() else { return Ok(()) };
        Ok(thread.join().map_err(|_| ended())??)
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        // A program that wants to know what was wrong calls `stop`.
        let _ = self.end();
    }
}
