//! iSCSI: serves disks as SCSI units that any Linux attaches over the network: host-managed SMR disks with conventional
//! zones. Needs neither root nor a module of the kernel on this machine.
//!
//! | file | what it owns |
//! | --- | --- |
//! | `mod.rs` | a server: its start, its end, what its threads share |
//! | `options.rs` | options of a server, and who may log in |
//! | `error.rs` | errors of the options |
//! | `units.rs` | disks as units of SCSI |
//! | `worker.rs` | a thread: connections, sleep, deadlines |
//! | `connection.rs` | a socket, and the session that it carries |
//! | `testing.rs` | a server for benchmarks, without threads |
//!
//! The protocol is [`zoneplug_scsi`]'s: a [session](zoneplug_scsi::iscsi::Session) turns bytes into commands, and has them
//! carried out. Each connection belongs to one worker for its life. The beginning of a command locks the target for a
//! moment, since a unit keeps reservations and attentions for all initiators; I/O takes no lock that connections share.
//! Sockets, mailboxes and clients of disks are those of all servers of the network (`network/`).

mod connection;
mod error;
mod options;
pub mod testing;
mod units;
mod worker;

use crate::Specification;
use crate::clock::Clock;
use crate::network::connection_table::worker_of;
pub use crate::network::known::KnownClient;
use crate::network::known::KnownClients;
use crate::network::listeners::{ConnectionCount, ConnectionSlot, Listeners, Sockets};
use crate::network::mailbox::Mailbox;
use crate::network::open_files;
use crate::network::workers::spawn_workers;
use crate::os_error::{Attempt, os_error};
use crate::recovery::lost_writes;
use crate::runtime::hosted::HostedDisk;
use crate::served::latency::LatencyLog;
use crate::served::timing::{INTERVAL, Timed, Timing, Untimed};
use crate::served::{Counters, ServedCounters};
pub use error::IscsiError;
pub use options::{IscsiOptions, read_chap_secret};
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
pub use units::{check, identifiers};
use worker::Worker;
use zoneplug_core::poison::lock;
use zoneplug_core::{Error, Nanos};
use zoneplug_recovery::DiskRecovery;
pub use zoneplug_scsi::iscsi::{CredentialError, Initiator, Secret, check_name};
use zoneplug_scsi::iscsi::{SessionConfig, Target, TargetEvent};

/// A disk to be served.
#[derive(Debug, Clone)]
pub struct Disk {
    /// The disk.
    pub disk: HostedDisk,
    /// The specification that the disk was opened from. The identity of its unit is derived from the disks and layers in
    /// it, and from the name of the target.
    pub spec: Specification,
    /// Commands of a connection at the device below, if fewer than it may have.
    pub tags: Option<u16>,
}

/// A message for a worker.
#[derive(Debug)]
enum Mail {
    /// A new connection.
    Connection(TcpStream, ConnectionSlot),
    /// An event of the target for a session.
    Event(TargetEvent),
    /// Stop the worker.
    Stop,
}

/// The state that the threads of a server share.
struct Shared {
    target: Mutex<Target>,
    disks: Vec<Disk>,
    /// For each disk, the writes that initiators may send again.
    recovery: Vec<DiskRecovery>,
    /// Whether a read of the disk writes each byte of its buffer.
    fills_buffers: Vec<bool>,
    session: SessionConfig,
    clock: Clock,
    workers: Vec<Arc<Mailbox<Mail>>>,
    /// Counters by worker and disk.
    counters: Vec<Vec<Counters>>,
    /// Logs by worker and disk, if operations are timed.
    latencies: Vec<Vec<Arc<LatencyLog>>>,
    /// The number of connections, and of ended ones whose commands are still being carried out.
    connections: Arc<ConnectionCount>,
    /// The initiators for which places are reserved.
    known: Mutex<KnownClients>,
    failed_logins: AtomicU64,
    /// Why a worker has ended without being stopped.
    failure: Arc<Mutex<Option<String>>>,
}

impl Shared {
    /// Sends events of the target to the workers of the sessions that they are for.
    fn deliver(&self, events: Vec<TargetEvent>) {
        for event in events {
            let key = match event {
                TargetEvent::Close(key) | TargetEvent::Run(key) => key,
                TargetEvent::Reset(key, _) | TargetEvent::Notify(key, ..) => key,
            };
            if let Some(worker) = self.workers.get(worker_of(key)) {
                worker.put(Mail::Event(event));
            }
        }
    }
}

/// The listening sockets of a server. A server that takes over gets those of the last one, so that no initiator is
/// refused in between.
#[derive(Debug, Clone)]
pub struct IscsiListeners(Sockets);

impl IscsiListeners {
    /// Listens at all addresses of `options`, or fails. Takes sockets of `given` that are at one of these addresses;
    /// for port 0, any at the same IP address.
    ///
    /// # Errors
    ///
    /// [`IscsiOptions::check`] refuses the options, or an address is not available.
    pub fn bind(
        options: &IscsiOptions,
        given: &mut Vec<TcpListener>,
    ) -> Result<IscsiListeners, Error> {
        // Without a decision about who may log in, no socket listens where other machines reach it.
        options.check()?;
        Ok(IscsiListeners(Sockets::bind(options.addresses(), given)?))
    }

    /// The sockets.
    pub fn sockets(&self) -> impl Iterator<Item = &TcpListener> {
        self.0.iter()
    }
}

/// A server. Dropping it stops it.
pub struct Iscsi {
    shared: Arc<Shared>,
    name: String,
    uuids: Vec<[u8; 16]>,
    addresses: Vec<SocketAddr>,
    threads: Vec<JoinHandle<()>>,
}

impl std::fmt::Debug for Iscsi {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Iscsi")
            .field("name", &self.name)
            .field("addresses", &self.addresses)
            .finish()
    }
}

impl Iscsi {
    /// Serves `disks` as the units of one target: the first is LUN 0. Calls `ended` from another thread if a thread of
    /// the server fails.
    ///
    /// ```
    /// use zoneplug_host::iscsi::{Disk, Iscsi, IscsiOptions};
    /// use zoneplug_host::{HostedDisk, Specification};
    /// let spec = Specification::parse("mem,zones=4,zone-size=1M")?;
    /// let disk = Disk { disk: HostedDisk::open_named(spec.open()?)?, spec, tags: None };
    /// let options = IscsiOptions::new("127.0.0.1:0".parse()?, "iqn.2026-11.dev.zoneplug:example");
    /// let server = Iscsi::start(&options, vec![disk], || ())?;
    /// assert_ne!(server.address().port(), 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// A disk cannot be shown as a unit, a name is invalid, an address is not available, other machines reach an address
    /// and no option says who may log in, or there are too few threads or files.
    pub fn start(
        options: &IscsiOptions,
        disks: Vec<Disk>,
        ended: impl Fn() + Clone + Send + 'static,
    ) -> Result<Iscsi, Error> {
        Iscsi::start_at(IscsiListeners::bind(options, &mut Vec::new())?, options, disks, ended)
    }

    /// Like [`Iscsi::start`], with sockets that listen already.
    pub fn start_at(
        listeners: IscsiListeners,
        options: &IscsiOptions,
        disks: Vec<Disk>,
        ended: impl Fn() + Clone + Send + 'static,
    ) -> Result<Iscsi, Error> {
        if options.latencies {
            Iscsi::start_with::<Timed>(listeners, options, disks, ended)
        } else {
            Iscsi::start_with::<Untimed>(listeners, options, disks, ended)
        }
    }

    fn start_with<T: Timing>(
        listeners: IscsiListeners,
        options: &IscsiOptions,
        disks: Vec<Disk>,
        ended: impl Fn() + Clone + Send + 'static,
    ) -> Result<Iscsi, Error> {
        let (mut server, workers) = Iscsi::prepare::<T>(listeners, options, disks, INTERVAL)?;
        let Iscsi { threads, shared, .. } = &mut server;
        spawn_workers(threads, "iscsi", workers, Worker::run, &shared.failure, ended)?;
        Ok(server)
    }

    /// A server whose threads have not begun, and their workers.
    fn prepare<T: Timing>(
        listeners: IscsiListeners,
        options: &IscsiOptions,
        disks: Vec<Disk>,
        interval: Nanos,
    ) -> Result<(Iscsi, Vec<Worker<T>>), Error> {
        let addresses = listeners.0.addresses().to_vec();
        let units = units::of(options, &disks)?;
        let uuids = units.iter().map(|(uuid, _)| *uuid).collect();
        let numbered = (0u16..).zip(units.into_iter().map(|(_, unit)| unit));
        let target = Target::new(&options.name, options.access(), addresses.clone(), numbered)?;
        let threads = options.threads.clamp(1, 64);
        let few = |e| {
            os_error(Attempt::Descriptor, format!("{}: no eventfd for a thread", options.listen), e)
        };
        let workers: io::Result<Vec<_>> = (0..threads).map(|_| Mailbox::new()).collect();
        let counters = || disks.iter().map(|_| Counters::default()).collect();
        let log = |d: &Disk| Arc::new(LatencyLog::new(d.disk.geometry().zone_sectors(), interval));
        let timed = if options.latencies { &disks[..] } else { &[] };
        let max_transfer = target.max_transfer();
        let clock = Clock::start();
        let recovery =
            |d: &Disk| lost_writes::after_start(&d.disk, !d.spec.is_volatile(), clock.now()).0;
        let recovery = disks.iter().map(recovery).collect();
        let max_connections = open_files::connections(options.max_connections)?;
        let valid = options.known_initiators.iter().filter(|k| check_name(&k.name).is_ok());
        let known = KnownClients::new(max_connections, valid, clock.now());
        let shared = Arc::new(Shared {
            session: SessionConfig {
                max_transfer,
                silence: Nanos(options.silence.as_nanos() as u64),
                ..SessionConfig::default()
            },
            target: Mutex::new(target),
            clock,
            recovery,
            workers: workers.map_err(few)?,
            counters: (0..threads).map(|_| counters()).collect(),
            latencies: (0..threads).map(|_| timed.iter().map(log).collect()).collect(),
            known: Mutex::new(known),
            failed_logins: AtomicU64::new(0),
            connections: Arc::new(ConnectionCount::new(max_connections)),
            failure: Arc::default(),
            fills_buffers: disks.iter().map(|d| d.spec.fills_buffers()).collect(),
            disks,
        });
        let mut listeners = Listeners::new(listeners.0);
        let workers: io::Result<Vec<Worker<T>>> = (0..threads)
            .map(|n| Worker::new(shared.clone(), n, std::mem::take(&mut listeners)))
            .collect();
        let name = options.name.clone();
        let server = Iscsi { shared, name, uuids, addresses, threads: Vec::new() };
        Ok((server, workers.map_err(few)?))
    }

    /// The name of the target.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The identifier of each disk.
    pub fn uuids(&self) -> &[[u8; 16]] {
        &self.uuids
    }

    /// The address at which the server listens; the first of several.
    pub fn address(&self) -> SocketAddr {
        self.addresses[0]
    }

    /// All addresses at which the server listens, in the order of the options.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// The connected initiators.
    pub fn initiators(&self) -> Vec<Initiator> {
        lock(&self.shared.target).initiators()
    }

    /// The initiators without a secret that have reserved places, for the next server
    /// ([`IscsiOptions::known_initiators`]).
    pub fn known_initiators(&self) -> Vec<KnownClient> {
        lock(&self.shared.known).all()
    }

    /// The limit of connections at a time.
    pub fn max_connections(&self) -> usize {
        self.shared.connections.max()
    }

    /// How often an initiator has not proven that it knows its secret.
    pub fn failed_logins(&self) -> u64 {
        self.shared.failed_logins.load(Ordering::Relaxed)
    }

    /// The counters of a disk since the start.
    pub fn counters(&self, disk: usize) -> ServedCounters {
        let logs = self.shared.latencies.iter().filter_map(|all| Some(&**all.get(disk)?));
        let logs: Vec<&LatencyLog> = logs.collect();
        Counters::sum(self.shared.counters.iter().filter_map(|all| all.get(disk)), &logs)
    }

    /// Why a thread of the server has failed.
    pub fn failure(&self) -> Option<String> {
        lock(&self.shared.failure).clone()
    }
}

impl Drop for Iscsi {
    /// Takes no more commands, answers those that have begun, and closes all connections when the initiators have their
    /// answers, or after a second. Writes in flight then continue without an acknowledgement.
    fn drop(&mut self) {
        for worker in &self.shared.workers {
            worker.put(Mail::Stop);
        }
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// The time that initiators have to read their answers at the end of a server.
const END: Nanos = Nanos(1_000_000_000);
