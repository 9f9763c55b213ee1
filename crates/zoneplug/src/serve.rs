//! Serves disks from a program, as `zoneplug serve` does: over NVMe/TCP, over iSCSI, or as block devices of this machine. A control socket
//! answers `zoneplug status`, `top`, `attr` and `snapshot`, and Prometheus can read metrics.
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
//! A program tells failures apart by the fields of an enum: [`ServeError`], [`ControlError`] for the control socket, [`AccessError`],
//! [`IscsiError`] and [`CredentialError`] for who may use the disks, or that of the disk's family.
//!
//! ```
//! use zoneplug::nvme_tcp::NvmeTcpOptions;
//! use zoneplug::serve::{Serve, ServeError};
//!
//! let options = NvmeTcpOptions::new("127.0.0.1:0".parse().unwrap(), "nqn.2026-11.org.example:disks");
//! let e = Serve::new().nvme_tcp(options, ["mem,zones=8", "mem,zones=8"]).start().unwrap_err();
//! let Some(ServeError::DiskTwice { disk, .. }) = e.detail() else { panic!("{e}") };
//! assert_eq!(disk, "mem,zones=8");
//! ```
//!
//! The disks are served by threads of their own; the program goes on, and its signals stay its own. Such a program does not hand
//! its disks over to another server, and takes none over.

use std::fs::DirBuilder;
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;
use zoneplug_core::{Error, ErrorKind};
use zoneplug_host::Specification;
use zoneplug_host::iscsi::{IscsiOptions, read_chap_secret};
use zoneplug_host::nvme_tcp::{NvmeTcpOptions, read_key};
use zoneplug_host::signals::Signals;
use zoneplug_host::ublk::Ublk;
use zoneplug_server::doors::iscsi::{self, IscsiDoor};
use zoneplug_server::doors::nvme_tcp::{NvmeTcpDoor, Plan};
use zoneplug_server::doors::ublk::{BlockDisk, DeviceOptions, Numbers, Rules, UblkDoor};
use zoneplug_server::doors::{NetworkPlans, planned};
use zoneplug_server::{
    Announcement, Attempt, Config, Doors, Failure, FileOrder, NamedAddress, Server, Stopper,
    check_addresses, check_socket,
};

pub use zoneplug_host::iscsi::{CredentialError, IscsiError};
pub use zoneplug_host::nvme_tcp::AccessError;
pub use zoneplug_server::{ControlError, Difference, Forbidden, ServeError};

/// The clients that may use disks over the network, as texts and paths: hosts with keys over NVMe/TCP, initiators with secrets over
/// iSCSI. For programs that are not in Rust.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Access {
    /// The names of clients that may connect. `None`: those with a proof, or any of this machine.
    pub clients: Option<Vec<String>>,
    /// Any client may connect, also over addresses that other machines reach.
    pub any_client: bool,
    /// The names of clients, and the files of the keys or secrets (CHAP) by which they authenticate themselves.
    pub proofs: Vec<(String, PathBuf)>,
    /// The file of the key or the secret by which the disks' side authenticates itself.
    pub own_proof: Option<PathBuf>,
}

impl Access {
    /// Options of NVMe/TCP with this access. Reads the files of the keys.
    ///
    /// # Errors
    ///
    /// The address is none, or a file holds no key.
    pub fn nvme_tcp(self, address: &str, nqn: &str) -> Result<NvmeTcpOptions, Error> {
        let mut options = NvmeTcpOptions::new(address_like(NVME_TCP, address)?, nqn);
        (options.hosts, options.any_host) = (self.clients, self.any_client);
        options.dhchap_keys = read_all(self.proofs, read_key)?;
        options.dhchap_ctrl_key = self.own_proof.map(|path| read_key(&path)).transpose()?;
        Ok(options)
    }

    /// Options of iSCSI with this access, for a target of this name. Reads the files of the secrets.
    ///
    /// # Errors
    ///
    /// The address is none, or a file holds no secret.
    pub fn iscsi(self, address: &str, name: &str) -> Result<IscsiOptions, Error> {
        let mut options = IscsiOptions::new(address_like(ISCSI, address)?, name);
        (options.initiators, options.any_initiator) = (self.clients, self.any_client);
        options.secrets = read_all(self.proofs, read_chap_secret)?;
        options.own_secret = self.own_proof.map(|path| read_chap_secret(&path)).transpose()?;
        Ok(options)
    }
}

/// Reads the files of the proofs of clients.
fn read_all<T>(
    proofs: Vec<(String, PathBuf)>,
    read: impl Fn(&Path) -> Result<T, Error>,
) -> Result<Vec<(String, T)>, Error> {
    proofs.into_iter().map(|(client, path)| Ok((client, read(&path)?))).collect()
}

/// Addresses that hints show, with the usual port of each protocol and of metrics.
const NVME_TCP: &str = "127.0.0.1:4420";
const ISCSI: &str = "127.0.0.1:3260";
const METRICS: &str = "127.0.0.1:9420";

/// The end of a name for a server without one, for programs that are not in Rust: with the number of the process, and from the
/// second call on with a number of its own. Clients take disks of equal names for one.
///
/// ```
/// use zoneplug::serve::default_name;
/// let first = default_name("perl");
/// assert!(first.starts_with("2026-11.org.example:perl-") && default_name("perl") != first);
/// ```
pub fn default_name(language: &str) -> String {
    static CALLS: AtomicU32 = AtomicU32::new(0);
    let name = format!("2026-11.org.example:{language}-{}", std::process::id());
    match CALLS.fetch_add(1, Ordering::Relaxed) {
        0 => name,
        n => format!("{name}-{}", n + 1),
    }
}

/// Reads the address and the port of [`Serve::metrics`], such as `127.0.0.1:9420`.
///
/// # Errors
///
/// The text is none.
pub fn parse_address(text: &str) -> Result<SocketAddr, Error> {
    address_like(METRICS, text)
}

/// Reads an address and a port. `usual`: the address that the hint shows.
fn address_like(usual: &str, text: &str) -> Result<SocketAddr, Error> {
    text.parse().map_err(|_| Error::invalid(format!("'{text}' is no address")).hint(usual))
}

/// A directory that only this user may use. Removed with all that is in it when this is dropped.
#[derive(Debug)]
struct PrivateDirectory(PathBuf);

impl PrivateDirectory {
    fn new() -> Result<PrivateDirectory, Error> {
        // A path that the program still knows from a server that ended leads to no other one.
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let mut tries = 10_000;
        loop {
            let nr = NEXT.fetch_add(1, Ordering::Relaxed);
            let name = format!("zoneplug-{}-{nr}", std::process::id());
            let path = std::env::temp_dir().join(name);
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(PrivateDirectory(path)),
                Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists && tries > 0 => tries -= 1,
                Err(e) => {
                    let what = format!("cannot make the directory {}", path.display());
                    let hint = "a directory that this user may write, in TMPDIR";
                    return Err(Error::new(ErrorKind::Io, what).hint(hint).source(e));
                }
            }
        }
    }
}

impl Drop for PrivateDirectory {
    fn drop(&mut self) {
        // A directory that stays is in the way of no other: the next one gets another number.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The disks to serve, and the places at which to serve them.
#[derive(Debug, Clone, Default)]
pub struct Serve {
    ublk: Vec<String>,
    network: Option<(NvmeTcpOptions, Vec<String>)>,
    scsi: Option<(IscsiOptions, Vec<String>)>,
    socket: Option<PathBuf>,
    private_socket: bool,
    metrics: Option<SocketAddr>,
}

impl Serve {
    /// Serves no disk yet.
    pub fn new() -> Serve {
        Serve::default()
    }

    /// Adds a disk to serve as a block device. Only root may serve one.
    pub fn ublk(mut self, spec: &str) -> Serve {
        self.ublk.push(spec.to_owned());
        self
    }

    /// Serves these disks as namespaces of one subsystem, instead of those that were set before.
    pub fn nvme_tcp(
        mut self,
        options: NvmeTcpOptions,
        specs: impl IntoIterator<Item = impl Into<String>>,
    ) -> Serve {
        self.network = Some((options, specs.into_iter().map(Into::into).collect()));
        self
    }

    /// Serves these disks as units of one target, LUN 0, 1 and so on, instead of those that were set before. A disk may also be served over
    /// NVMe/TCP, if both name it by the same specification.
    ///
    /// ```
    /// use zoneplug::iscsi::IscsiOptions;
    /// use zoneplug::serve::Serve;
    ///
    /// # fn main() -> Result<(), zoneplug::Error> {
    /// let options = IscsiOptions::new("127.0.0.1:0".parse().unwrap(), "iqn.2026-11.org.example:disks");
    /// let served = Serve::new().iscsi(options, ["mem,zones=8,conv=2"]).private_socket().start()?;
    /// assert!(served.lines()[1].starts_with("LUN 0  mem,zones=8,conv=2"));
    /// println!("iscsiadm -m discovery -t sendtargets -p {}", served.iscsi_addresses()[0]);
    /// served.stop()
    /// # }
    /// ```
    pub fn iscsi(
        mut self,
        options: IscsiOptions,
        specs: impl IntoIterator<Item = impl Into<String>>,
    ) -> Serve {
        self.scsi = Some((options, specs.into_iter().map(Into::into).collect()));
        self
    }

    /// Sets the path of the control socket. Without it the socket is in `/run/zoneplug`.
    pub fn socket(mut self, path: impl AsRef<Path>) -> Serve {
        self.socket = Some(path.as_ref().to_owned());
        self
    }

    /// Has the control socket in a temporary directory, which is removed at the end: for tests. [`Serving::socket`] names it.
    pub fn private_socket(mut self) -> Serve {
        self.private_socket = true;
        self
    }

    /// Serves metrics over HTTP at this address, and measures latencies for them. Every program that can connect reads all metrics.
    pub fn metrics(mut self, address: SocketAddr) -> Serve {
        self.metrics = Some(address);
        self
    }

    /// Opens the disks, and serves them in threads of their own. Returns when all of them are served.
    ///
    /// # Errors
    ///
    /// A disk that cannot be opened or shown, an address or a socket that is taken, or no disk at all. No disk is served then.
    pub fn start(self) -> Result<Serving, Error> {
        let doors = self.doors()?;
        let of_nvme_tcp = self.network.as_ref().map_or(0, |(o, _)| 1 + o.also_listen.len());
        let Serve { mut socket, private_socket, metrics: metrics_at, .. } = self;
        let directory = private_socket.then(PrivateDirectory::new).transpose()?;
        if let Some(directory) = &directory {
            socket = Some(directory.0.join("socket"));
        }
        if let Some(path) = &socket {
            check_socket(path)?;
        }
        let config = Config { socket: socket.clone(), metrics_at, ..Config::default() };
        let signals = Signals::none();
        let signals = signals.map_err(|e| Failure::of_system(Attempt::Descriptor, "notices", e))?;
        let server = Server::new(config, doors, signals);
        let stopper = server.stopper();
        let (tell, told) = mpsc::channel();
        let body = move || {
            // The receiver is gone only if the thread that starts this has panicked.
            server.run(&move |served| drop(tell.send(served))).map(drop)
        };
        let thread = std::thread::Builder::new().name("zoneplug-server".to_owned()).spawn(body);
        let thread =
            thread.map_err(|e| Failure::of_system(Attempt::Thread, "no thread to serve", e))?;
        let (announced, thread) = (Announcement::default(), Some(thread));
        let process = std::process::id();
        let mut serving =
            Serving { announced, of_nvme_tcp, stopper, thread, socket, directory, process };
        match told.recv() {
            Ok(announced) => {
                serving.announced = announced;
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
        let read = |specs: &[String]| -> Result<Vec<Specification>, Error> {
            specs.iter().map(|text| text.parse()).collect()
        };
        let network = |(options, specs): &(NvmeTcpOptions, Vec<String>)| -> Result<_, Error> {
            options.check()?;
            Ok(Plan::new(NvmeTcpOptions { latencies, ..options.clone() }, read(specs)?))
        };
        let scsi = |(options, specs): &(IscsiOptions, Vec<String>)| -> Result<_, Error> {
            options.check()?;
            Ok(iscsi::Plan::new(IscsiOptions { latencies, ..options.clone() }, read(specs)?))
        };
        let plans = NetworkPlans {
            nvme_tcp: self.network.as_ref().map(network).transpose()?,
            iscsi: self.scsi.as_ref().map(scsi).transpose()?,
        };
        let planned = planned(&blocks, Numbers(None), &plans, &FileOrder::new())?;
        let addresses: Vec<_> = plans
            .addresses()
            .chain(self.metrics.map(|address| NamedAddress { key: "metrics", address }))
            .collect();
        check_addresses(&addresses).map_err(|(_, f)| f)?;
        let mut doors: Doors = Vec::new();
        if !planned.is_empty() {
            let rules = Rules { latencies, ..Rules::default() };
            doors.push(Box::new(UblkDoor::new(Some(Ublk::open()?), planned, rules)));
        }
        if let Some(plan) = plans.nvme_tcp {
            doors.push(Box::new(NvmeTcpDoor::new(plan, false, false)));
        }
        if let Some(plan) = plans.iscsi {
            doors.push(Box::new(IscsiDoor::new(plan)));
        }
        Ok(doors)
    }
}

/// The error for a server that has ended without a reason.
fn ended() -> Error {
    Error::new(ErrorKind::Io, "the server has ended").hint("the log of this program")
}

/// Served disks. Stopping or dropping this ends the server.
#[derive(Debug)]
pub struct Serving {
    announced: Announcement,
    /// How many of the addresses are those of NVMe/TCP, which come first.
    of_nvme_tcp: usize,
    stopper: Stopper,
    thread: Option<JoinHandle<Result<(), Failure>>>,
    socket: Option<PathBuf>,
    /// Removed after the server has ended.
    directory: Option<PrivateDirectory>,
    /// The process that has started the server.
    process: u32,
}

impl Serving {
    /// The lines that `zoneplug serve` prints: each disk, and how clients reach it.
    pub fn lines(&self) -> &[String] {
        &self.announced.lines
    }

    /// The addresses of NVMe/TCP at which the disks are served. With port 0 these have the port that the system chose.
    pub fn addresses(&self) -> &[SocketAddr] {
        self.by_protocol().0
    }

    /// The addresses of iSCSI at which the disks are served, as [`Serving::addresses`] has those of NVMe/TCP.
    pub fn iscsi_addresses(&self) -> &[SocketAddr] {
        self.by_protocol().1
    }

    fn by_protocol(&self) -> (&[SocketAddr], &[SocketAddr]) {
        let all = &self.announced.addresses;
        all.split_at(self.of_nvme_tcp.min(all.len()))
    }

    /// The path of the control socket, if the program has chosen it or a temporary one.
    pub fn socket(&self) -> Option<&Path> {
        self.socket.as_deref()
    }

    /// Whether the disks are still served. If not, [`Serving::stop`] says why.
    pub fn is_served(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    /// Stops serving, and makes all data durable.
    ///
    /// # Errors
    ///
    /// Data that cannot be made durable, or the failure that ended the server before.
    pub fn stop(mut self) -> Result<(), Error> {
        self.end()
    }

    /// Whether this process is the child of a fork of the one that serves. The child has none of the server's threads, and the
    /// socket and its directory are the parent's.
    fn is_of_parent(&self) -> bool {
        self.process != std::process::id()
    }

    fn end(&mut self) -> Result<(), Error> {
        if self.is_of_parent() {
            std::mem::forget(self.thread.take());
            return Err(Error::new(
                ErrorKind::NotSupported,
                "the disks are served by another process",
            )
            .hint("stop it in the process that has started it"));
        }
        self.stopper.stop();
        let Some(thread) = self.thread.take() else { return Ok(()) };
        Ok(thread.join().map_err(|_| ended())??)
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        // `stop` reports this error.
        let _ = self.end();
        if self.is_of_parent() {
            std::mem::forget(self.directory.take());
        }
    }
}
