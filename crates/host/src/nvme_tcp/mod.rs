//! NVMe/TCP: serves disks as namespaces that any Linux host attaches over the network. Needs neither root nor the
//! kernel's target driver on this machine.
//!
//! | file | what it owns |
//! | --- | --- |
//! | `mod.rs` | a server: its start, its end, what its threads share |
//! | `options.rs` | options of a server |
//! | `worker.rs` | a thread: connections, sleep, deadlines |
//! | `connection.rs` | a socket, and the association that it carries |
//! | `io_queue.rs` | the disks as I/O queues use them |
//! | `listeners.rs` | the sockets at which a server listens |
//! | `shown.rs` | what hosts know a server by |
//! | `error.rs` | errors of the access of hosts, with fields for programs |
//! | `admission.rs` | which hosts may connect, and their keys |
//! | `key_exchange.rs` | the thread that computes values of Diffie-Hellman |
//! | `journal.rs` | which appends hosts were told of, for the next server |
//! | `mailbox.rs` | the messages of threads |
//! | `context.rs` | what a worker lends its connections for a call |
//! | `testing.rs` | servers for tests and benchmarks: without threads, with other bounds |
//!
//! Sockets, mailboxes and clients of disks are those of all servers of the network (`network/`).
//!
//! The protocol is [`zoneplug_nvme`]'s: an [`association`](zoneplug_nvme::association) turns bytes into commands, has them
//! carried out, and decides when its connection ends. Each connection belongs to one worker for its life. I/O takes no lock that connections share; Connect and admin commands lock the
//! target. A disk that stalls delays its commands, but blocks no thread.

mod admission;
mod connection;
mod context;
mod error;
mod io_queue;
mod journal;
mod key_exchange;
mod listeners;
mod mailbox;
mod options;
mod shown;
pub mod testing;
mod worker;

use crate::clock::Clock;
use crate::network::calls::Calls;
pub use crate::network::calls::NetworkCalls as NvmeTcpCalls;
use crate::network::connection_table::worker_of;
pub use crate::network::known::KnownClient;
use crate::network::known::KnownClients;
use crate::network::listeners::{ConnectionCount, Listeners};
use crate::network::open_files;
use crate::network::workers::spawn_workers;
use crate::os_error::{Attempt, os_error};
use crate::recovery::journal::Journal;
use crate::recovery::lost_writes;
use crate::recovery::space::block_sectors;
use crate::runtime::hosted::HostedDisk;
use crate::served::latency::LatencyLog;
use crate::served::timing::{INTERVAL, Timed, Timing, Untimed};
use crate::served::{Counters, ServedCounters};
use crate::{DiskMark, Specification, threads};
pub use admission::read_key;
pub use error::AccessError;
pub use journal::usual_records;
use key_exchange::KeyExchange;
pub use listeners::NvmeTcpListeners;
use mailbox::{Mail, Mailbox};
pub use options::NvmeTcpOptions;
pub use shown::{DiskShape, KnownDisk, ShownNamespace, ShownSubsystem, check, refused_by_linux};
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use worker::Worker;
use zoneplug_core::poison::lock;
use zoneplug_core::{Error, Nanos};
pub use zoneplug_nvme::dhchap::{DhGroup, Key};
pub use zoneplug_nvme::target::AnaState;
use zoneplug_nvme::target::{Activity, Nqn, QueueId, Target, TargetEvent};
use zoneplug_nvme::tcp::Config;
use zoneplug_recovery::DiskRecovery;

/// A disk to be served.
#[derive(Debug, Clone)]
pub struct Disk {
    /// The disk.
    pub disk: HostedDisk,
    /// The specification that the disk was opened from. The identity of its namespaces is derived from the disks and
    /// layers in it, and from the name of the subsystem. A disk in memory gets a new identity, because no other
    /// server can have that disk.
    pub spec: Specification,
    /// Commands of a queue at the device below, if fewer than the queue has entries.
    pub tags: Option<u16>,
    /// The numbers and identifier that hosts know from the last server. `None`: the next free numbers.
    pub known: Option<KnownDisk>,
}

impl Disk {
    /// The properties of the disk that hosts can see.
    pub fn shape(&self) -> DiskShape {
        DiskShape {
            mark: (!self.spec.is_volatile()).then(|| DiskMark::held(&self.disk, &self.spec)),
            known: self.known.clone(),
            geometry: self.disk.geometry(),
            limits: self.disk.limits(),
        }
    }
}

/// The state that the threads of a server share.
struct Shared {
    target: Mutex<Target>,
    disks: Vec<Disk>,
    /// Whether a read of the disk writes each byte of its buffer.
    fills_buffers: Vec<bool>,
    /// For each disk: the number of writes that its order window has given up, up to the last log message.
    expired: Vec<AtomicU64>,
    /// For each disk: the commands that may be lost.
    recovery: Vec<DiskRecovery>,
    /// For each disk: the journal of appends that hosts were told of, for the next server.
    journals: Vec<Option<Journal>>,
    tcp: Config,
    clock: Clock,
    workers: Vec<Arc<Mailbox>>,
    /// Counters by worker and disk.
    counters: Vec<Vec<Counters>>,
    /// Logs by worker and disk, if operations are timed.
    latencies: Vec<Vec<Arc<LatencyLog>>>,
    /// System calls by worker.
    calls: Vec<Calls>,
    /// Worker and key of the connection of each queue, by controller and queue. Locked while the target is, or on its
    /// own.
    routes: Mutex<BTreeMap<(u16, u16), u64>>,
    /// Whether the first worker checks keep alive times. Changed while the target is locked.
    keeps_alive: AtomicBool,
    /// The number of connections, and of queues without one whose commands are still being carried out.
    connections: Arc<ConnectionCount>,
    /// When the server ends: the number of workers whose hosts may not have read all answers.
    unready_workers: AtomicUsize,
    failed_authentications: AtomicU64,
    key_exchange: KeyExchange,
    /// Locked while the target is, or on its own.
    known: Mutex<KnownClients>,
    /// Why a worker has ended without being stopped.
    failure: Arc<Mutex<Option<String>>>,
}

impl Shared {
    /// The work of all disks together.
    fn activity(&self) -> Activity {
        let c = Counters::sum(self.counters.iter().flatten(), &[]);
        Activity {
            reads: c.reads,
            read_bytes: c.read_bytes,
            writes: c.writes,
            written_bytes: c.written_bytes,
        }
    }

    /// Sends mail for the connection of a key to its worker.
    fn post(&self, key: u64, mail: Mail) {
        self.workers[worker_of(key)].put(mail);
    }

    fn add_route(&self, queue: QueueId, key: u64) {
        lock(&self.routes).insert((queue.controller, queue.qid), key);
    }

    /// Removes the route of a connection's queue. False: another connection has the queue now, or the target has
    /// ended it.
    fn remove_route(&self, queue: QueueId, key: u64) -> bool {
        let mut routes = lock(&self.routes);
        let id = (queue.controller, queue.qid);
        let own = routes.get(&id) == Some(&key);
        if own {
            routes.remove(&id);
        }
        own
    }

    /// Informs the target that these queues, which have no connection, have no commands left.
    fn drained(&self, queues: impl Iterator<Item = QueueId>) {
        let mut queues = queues.peekable();
        if queues.peek().is_none() {
            return;
        }
        let mut target = lock(&self.target);
        queues.for_each(|queue| target.drained(queue));
        self.deliver(target.take_events());
    }

    /// Makes every worker check its queues that wait for others.
    fn ring(&self) {
        self.workers.iter().for_each(|w| w.ring());
    }

    /// Makes the workers of these queues answer the queries of other queues.
    fn ask(&self, queues: &[QueueId]) {
        let routes = lock(&self.routes);
        for queue in queues {
            if let Some(key) = routes.get(&(queue.controller, queue.qid)) {
                self.post(*key, Mail::Asked(*key));
            }
        }
    }

    /// Makes the first worker check keep alive times, if there are any and it does not yet.
    fn note_keep_alive(&self, target: &Target) {
        if target.next_deadline().is_some() && !self.keeps_alive.swap(true, Ordering::Relaxed) {
            self.workers[0].put(Mail::KeepAlive);
        }
    }

    /// Sends events of the target to the connections that they concern.
    fn deliver(&self, events: Vec<TargetEvent>) {
        if events.is_empty() {
            return;
        }
        let mut routes = lock(&self.routes);
        for event in events {
            match event {
                TargetEvent::Complete(id, completion) => {
                    if let Some(key) = routes.get(&(id, 0)) {
                        self.post(*key, Mail::Complete(*key, completion));
                    }
                }
                TargetEvent::Namespaces(id, all) => {
                    for (_, key) in routes.range((id, 1)..=(id, u16::MAX)) {
                        self.post(*key, Mail::Namespaces(*key, all.clone()));
                    }
                }
                TargetEvent::CloseIo(id) => self.close(&mut routes, (id, 1)),
                TargetEvent::Close(id) => self.close(&mut routes, (id, 0)),
            }
        }
    }

    /// Closes the connections of a controller, from this queue on.
    fn close(&self, routes: &mut BTreeMap<(u16, u16), u64>, from: (u16, u16)) {
        let gone = routes.extract_if(from..=(from.0, u16::MAX), |_, _| true);
        for (_, key) in gone {
            self.post(key, Mail::Close(key));
        }
    }
}

/// A connected host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NvmeTcpHost {
    /// The NQN of the host.
    pub nqn: String,
    /// Whether the host has authenticated.
    pub authenticated: bool,
    /// The number of the host's controller.
    pub controller: u16,
    /// The number of the controller's I/O queues.
    pub queues: usize,
}

/// A server. Dropping it stops it.
pub struct NvmeTcp {
    shared: Arc<Shared>,
    nqn: Nqn,
    shown: ShownSubsystem,
    addresses: Vec<SocketAddr>,
    unjournaled: Vec<(String, String)>,
    threads: Vec<JoinHandle<()>>,
}

/// A server whose threads have not begun.
struct Started<T> {
    server: NvmeTcp,
    workers: Vec<Worker<T>>,
}

impl<T: Timing> Started<T> {
    fn run(self, ended: impl Fn() + Clone + Send + 'static) -> Result<NvmeTcp, Error> {
        let Started { mut server, workers } = self;
        let NvmeTcp { threads, shared, .. } = &mut server;
        spawn_workers(threads, "nvme", workers, Worker::run, &shared.failure, ended)?;
        Ok(server)
    }
}

impl std::fmt::Debug for NvmeTcp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NvmeTcp")
            .field("nqn", &self.nqn)
            .field("addresses", &self.addresses)
            .finish()
    }
}

impl NvmeTcp {
    /// Serves `disks` as the namespaces of one subsystem, in this order. Calls `ended` from another thread if a
    /// thread of the server fails.
    ///
    /// ```
    /// use zoneplug_host::nvme_tcp::{Disk, NvmeTcp, NvmeTcpOptions};
    /// use zoneplug_host::{HostedDisk, Specification};
    /// let spec = Specification::parse("mem,zones=4,zone-size=1M")?;
    /// let disk = Disk { disk: HostedDisk::open_named(spec.open()?)?, spec, tags: None, known: None };
    /// let options = NvmeTcpOptions::new("127.0.0.1:0".parse()?, "nqn.2026-11.dev.zoneplug:example");
    /// let server = NvmeTcp::start(&options, vec![disk], || ())?;
    /// assert_ne!(server.address().port(), 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// A disk cannot be shown as a namespace, a name is invalid, an address is not available, other machines reach an
    /// address and no option says who may connect, or there are too few threads or files.
    pub fn start(
        options: &NvmeTcpOptions,
        disks: Vec<Disk>,
        ended: impl Fn() + Clone + Send + 'static,
    ) -> Result<NvmeTcp, Error> {
        NvmeTcp::start_at(NvmeTcpListeners::bind(options, &mut Vec::new())?, options, disks, ended)
    }

    /// Like [`NvmeTcp::start`], with sockets that listen already.
    pub fn start_at(
        listeners: NvmeTcpListeners,
        options: &NvmeTcpOptions,
        disks: Vec<Disk>,
        ended: impl Fn() + Clone + Send + 'static,
    ) -> Result<NvmeTcp, Error> {
        NvmeTcp::start_with(listeners, options, disks, Config::default(), ended)
    }

    fn start_with(
        listeners: NvmeTcpListeners,
        options: &NvmeTcpOptions,
        disks: Vec<Disk>,
        bounds: Config,
        ended: impl Fn() + Clone + Send + 'static,
    ) -> Result<NvmeTcp, Error> {
        if options.latencies {
            NvmeTcp::prepare::<Timed>(listeners, options, disks, bounds, INTERVAL)?.run(ended)
        } else {
            NvmeTcp::prepare::<Untimed>(listeners, options, disks, bounds, INTERVAL)?.run(ended)
        }
    }

    /// A listening server, and its workers, which do not run yet. `interval`: if they time operations, one of each
    /// kind is timed about once in it.
    fn prepare<T: Timing>(
        listeners: NvmeTcpListeners,
        options: &NvmeTcpOptions,
        disks: Vec<Disk>,
        bounds: Config,
        interval: Nanos,
    ) -> Result<Started<T>, Error> {
        let has_keys = !options.dhchap_keys.is_empty();
        let nqn = Nqn::own(&options.nqn)?;
        let addresses = listeners.addresses().to_vec();
        let mut listeners = Listeners::new(listeners.0);
        let mut target = Target::new(addresses.clone());
        let shapes: Vec<DiskShape> = disks.iter().map(Disk::shape).collect();
        let shown = shown::subsystem(&mut target, options, &shapes)?;
        for (n, known) in disks.iter().enumerate().filter_map(|(n, d)| Some((n, d.known.as_ref()?)))
        {
            target.enable_namespaces(&nqn, n as u32, known.enabled)?;
        }
        for (n, at) in addresses.iter().enumerate() {
            let state = options.ana_states.iter().find(|(address, _)| address == at);
            state.into_iter().for_each(|(_, state)| target.set_ana_state(n, *state));
        }
        let max_data = target.namespaces(&nqn).map_or(1 << 20, |all| all.max_data());
        let threads = options.threads.clamp(1, 64);
        let few = |e| {
            os_error(Attempt::Descriptor, format!("{}: no eventfd for a thread", options.listen), e)
        };
        let workers: io::Result<Vec<_>> = (0..threads).map(|_| Mailbox::new()).collect();
        let clock = Clock::start();
        let counters = || disks.iter().map(|_| Counters::default()).collect();
        let log = |d: &Disk| Arc::new(LatencyLog::new(d.disk.geometry().zone_sectors(), interval));
        let timed = if options.latencies { &disks[..] } else { &[] };
        let latencies = (0..threads).map(|_| timed.iter().map(log).collect()).collect();
        let (mut recovery, mut journals, mut unjournaled) = (Vec::new(), Vec::new(), Vec::new());
        for d in &disks {
            let (lost, journal, why_not) =
                left_of(d, options.records.as_deref(), threads, clock.now());
            recovery.push(lost);
            journals.push(journal);
            unjournaled.extend(why_not.map(|why| (d.spec.to_string(), why)));
        }
        let max_connections = open_files::connections(options.max_connections)?;
        let valid = options.known_hosts.iter().filter(|k| Nqn::new(&k.name).is_ok());
        let known = KnownClients::new(max_connections, valid, clock.now());
        let shared = Arc::new(Shared {
            target: Mutex::new(target),
            tcp: Config { max_data, ..bounds },
            clock,
            workers: workers.map_err(few)?,
            counters: (0..threads).map(|_| counters()).collect(),
            latencies,
            calls: (0..threads).map(|_| Calls::default()).collect(),
            routes: Mutex::default(),
            keeps_alive: AtomicBool::new(false),
            unready_workers: AtomicUsize::new(threads),
            failed_authentications: AtomicU64::new(0),
            key_exchange: KeyExchange::default(),
            connections: Arc::new(ConnectionCount::new(max_connections)),
            known: Mutex::new(known),
            failure: Arc::default(),
            expired: disks.iter().map(|_| AtomicU64::new(0)).collect(),
            recovery,
            journals,
            fills_buffers: disks.iter().map(|d| d.spec.fills_buffers()).collect(),
            disks,
        });
        let workers =
            (0..threads).map(|n| Worker::new(shared.clone(), n, std::mem::take(&mut listeners)));
        let workers = workers.collect::<io::Result<_>>().map_err(few)?;
        let mut running = Vec::new();
        if has_keys {
            let shared = shared.clone();
            let body = move || shared.key_exchange.run(&shared.workers);
            running.push(threads::spawn("zoneplug-nvmedh", body)?);
        }
        let server = NvmeTcp { shared, nqn, shown, addresses, unjournaled, threads: running };
        Ok(Started { server, workers })
    }

    /// The subsystem that hosts see, including disks that are not [enabled](NvmeTcp::set_enabled).
    pub fn shown(&self) -> &ShownSubsystem {
        &self.shown
    }

    /// The address at which the server listens; the first of several.
    pub fn address(&self) -> SocketAddr {
        self.addresses[0]
    }

    /// All addresses at which the server listens, in the order of the options.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// How hosts should use an address, by its place in [`NvmeTcp::addresses`]. *Optimized* if there is no such
    /// address.
    pub fn ana_state(&self, address: usize) -> AnaState {
        lock(&self.shared.target).ana_state(address)
    }

    /// Sets how hosts should use an address. Hosts that are connected there are informed. At an inaccessible address
    /// no new command begins.
    pub fn set_ana_state(&self, address: usize, state: AnaState) {
        let mut target = lock(&self.shared.target);
        target.set_ana_state(address, state);
        self.shared.deliver(target.take_events());
    }

    /// Whether hosts see the namespaces of a disk, by its place among the disks of the server. False if there is no
    /// such disk.
    pub fn is_enabled(&self, disk: usize) -> bool {
        self.namespaces().iter().any(|(_, of, _)| *of == disk)
    }

    /// Shows the namespaces of a disk to hosts, or hides them. Connected hosts are informed. Commands in flight are
    /// carried out, and the numbers of the namespaces stay.
    pub fn set_enabled(&self, disk: usize, enabled: bool) {
        let mut target = lock(&self.shared.target);
        // The subsystem exists as long as its server.
        let _ = target.enable_namespaces(&self.nqn, disk as u32, enabled);
        self.shared.deliver(target.take_events());
    }

    /// Disks that have no journal although [`NvmeTcpOptions::records`] has a directory for it, and why.
    pub fn unjournaled(&self) -> &[(String, String)] {
        &self.unjournaled
    }

    /// The name of the subsystem.
    pub fn nqn(&self) -> &str {
        self.nqn.as_str()
    }

    /// For each namespace shown: its number, its disk, and why Linux refuses it, if so.
    pub fn namespaces(&self) -> Vec<(u32, usize, Option<Error>)> {
        let all = lock(&self.shared.target).namespaces(&self.nqn);
        let all = all.iter().flat_map(|all| all.iter());
        all.map(|(nsid, n)| (nsid, n.disk() as usize, n.refused_by_linux())).collect()
    }

    /// The hosts without a key that have reserved places, for the next server ([`NvmeTcpOptions::known_hosts`]).
    pub fn known_hosts(&self) -> Vec<KnownClient> {
        lock(&self.shared.known).all()
    }

    /// The limit of connections at a time.
    pub fn max_connections(&self) -> usize {
        self.shared.connections.max()
    }

    /// How often a host has failed to authenticate, or has rejected the subsystem's own authentication.
    pub fn failed_authentications(&self) -> u64 {
        self.shared.failed_authentications.load(Ordering::Relaxed)
    }

    /// The connected hosts, without those that have yet to authenticate.
    pub fn hosts(&self) -> Vec<NvmeTcpHost> {
        let target = lock(&self.shared.target);
        let routes = lock(&self.shared.routes);
        let host = |(controller, nqn): (u16, &Nqn)| NvmeTcpHost {
            nqn: nqn.as_str().to_owned(),
            authenticated: target.has_key(&self.nqn, nqn),
            controller,
            queues: routes.range((controller, 1)..=(controller, u16::MAX)).count(),
        };
        target.hosts(&self.nqn).map(host).collect()
    }

    /// The counters of a disk since the start.
    pub fn counters(&self, disk: usize) -> ServedCounters {
        let logs = self.shared.latencies.iter().filter_map(|all| Some(&**all.get(disk)?));
        let logs: Vec<&LatencyLog> = logs.collect();
        Counters::sum(self.shared.counters.iter().filter_map(|all| all.get(disk)), &logs)
    }

    /// The system calls for I/O since the start.
    pub fn calls(&self) -> NvmeTcpCalls {
        let mut sum = NvmeTcpCalls::default();
        self.shared.calls.iter().for_each(|calls| calls.add_to(&mut sum));
        sum
    }

    /// Why a thread of the server has failed.
    pub fn failure(&self) -> Option<String> {
        lock(&self.shared.failure).clone()
    }
}

impl Drop for NvmeTcp {
    /// Takes no more commands, answers those that have begun, and closes all connections when the hosts have their
    /// answers, or after a second. Writes in flight then continue without an acknowledgement.
    fn drop(&mut self) {
        for worker in &self.shared.workers {
            worker.put(Mail::Stop);
        }
        self.shared.key_exchange.stop();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
        for (recovery, journal) in self.shared.recovery.iter().zip(&self.shared.journals) {
            if let Some(journal) = journal {
                journal.withdraw(&recovery.lost_appends().into_iter().collect());
            }
        }
    }
}

/// For a disk: its commands that may have been lost before this server started, its journal, and why it has none. If
/// the disk is newer than the last server, nothing was lost.
fn left_of(
    d: &Disk,
    directory: Option<&Path>,
    threads: usize,
    now: Nanos,
) -> (DiskRecovery, Option<Journal>, Option<String>) {
    let outlives = !d.spec.is_volatile();
    let (recovery, found) = lost_writes::after_start(&d.disk, outlives, now);
    let directory = directory.filter(|_| outlives);
    let Some(directory) = directory else { return (recovery, None, None) };
    let left = journal::open(d, directory, threads as u16, &found);
    recovery.set_spaces(left.spaces, block_sectors(&d.disk));
    (recovery, left.journal, left.why_not)
}
