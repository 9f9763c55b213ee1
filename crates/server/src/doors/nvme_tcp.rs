//! The door of NVMe/TCP: serves disks over the network as namespaces of one subsystem.

mod attributes;
mod clients;
mod shown;
mod stamp;

use super::{Looks, known_client, known_client_of};
use crate::compare::{MarkedDisk, WantedDisk, WantedDoor, is_of};
use crate::door::{Door, leave_disks_and_flush};
use crate::error::ServeError;
use crate::inherited::Inherited;
use crate::open_disks::OpenDisks;
use crate::running::DISAPPEAR_TIMEOUT;
use crate::served::{AddClients, Network, PassedDisk, Served};
use attributes::NetworkAttributes;
pub use attributes::is_of_network;
use clients::Offered;
use stamp::Stamp;
use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;
use zoneplug_control::Failure;
use zoneplug_control::client::{KnownHostShown, PathShown, StateOfSubsystem};
use zoneplug_control::names::NAMESPACE;
use zoneplug_core::disk::find_attribute;
use zoneplug_core::plain;
use zoneplug_core::{Device, Nanos, Sector};
use zoneplug_host::nvme_tcp::{
    self, AnaState, Disk, DiskShape, Key, KnownDisk, NvmeTcp, NvmeTcpListeners, NvmeTcpOptions,
    ShownSubsystem,
};
use zoneplug_host::signals::Notifier;
use zoneplug_host::{BootNote, DiskMark, OpenFiles, Specification};

/// The name of this door.
const NAME: &str = "nvme-tcp";
/// How long a disk waits for a write that a later one has overtaken on the network, unless its specification says
/// otherwise. Initiators reorder the writes of a zone (docs/scheduling.md).
const WINDOW: Nanos = Nanos(1_000_000_000);

/// The running NVMe/TCP server with its disks.
struct Server {
    server: Arc<NvmeTcp>,
    disks: Vec<Disk>,
    passed: Vec<PassedDisk>,
    /// The reason why hosts may find changes after a restart, if there is one.
    unknown: Option<String>,
    authentication: AuthenticationUsed,
}

/// The directions of authentication that are used.
struct AuthenticationUsed {
    /// Hosts authenticate to the server.
    of_hosts: bool,
    /// The server authenticates to hosts.
    of_server: bool,
}

/// The options and disks of the door, checked as far as possible without opening a disk.
#[derive(Debug, Clone)]
pub struct Plan {
    options: NvmeTcpOptions,
    specs: Vec<Specification>,
}

impl Plan {
    /// A plan to serve disks of these specifications with `options`.
    pub fn new(options: NvmeTcpOptions, specs: Vec<Specification>) -> Plan {
        Plan { options, specs }
    }

    /// The specifications of the disks.
    pub fn specs(&self) -> &[Specification] {
        &self.specs
    }

    /// The NVMe name of the subsystem.
    pub fn nqn(&self) -> &str {
        &self.options.nqn
    }

    /// The addresses at which the subsystem is served.
    pub fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        let more = self.options.also_listen.iter();
        std::iter::once(&self.options.listen).chain(more).copied()
    }

    /// Listens at the addresses. `given`: sockets that listen already.
    fn listen(&self, given: &mut Vec<TcpListener>) -> Result<NvmeTcpListeners, Failure> {
        Ok(NvmeTcpListeners::bind(&self.options, given)?)
    }

    /// Reads the stamp of the subsystem's last server. `forget`: assume that hosts know none of its disks.
    fn stamp(&self, forget: bool) -> Stamp {
        Stamp::read(self.nqn(), self.note(), forget)
    }

    /// The place of the stamp. `None`: hosts cannot find this server again (port 0), or there is no directory for
    /// stamps.
    fn note(&self) -> Option<BootNote> {
        let o = &self.options;
        let mut ports = std::iter::once(&o.listen).chain(&o.also_listen).map(SocketAddr::port);
        // Each subsystem has a file of its own.
        let name = format!("{}.hosts", o.nqn.replace('%', "%25").replace('/', "%2F"));
        let directory = o.records.as_ref().filter(|_| ports.any(|port| port != 0))?;
        Some(BootNote::at(directory, &name))
    }

    /// Gives disks that hosts do not know higher numbers than this one.
    fn give_numbers_behind(&mut self, last_nsid: u32) {
        self.options.last_nsid = last_nsid;
    }

    /// Checks that each disk can be shown as namespaces. Opens none for writing.
    pub(super) fn check_disks(&self, looks: &mut Looks) -> Result<(), Failure> {
        let check = |d: &dyn Device| nvme_tcp::check(d.geometry(), d.limits());
        self.specs.iter().try_for_each(|spec| looks.at(spec, check))
    }

    /// The namespaces that hosts would see for these disks.
    fn would_show(&self, disks: &[DiskShape]) -> Result<ShownSubsystem, Failure> {
        Ok(self.options.would_show(disks)?)
    }

    /// Whether a host may connect, with a key or without one.
    fn admits(&self, host: &str, with_key: bool) -> bool {
        let o = &self.options;
        let has_key = o.dhchap_keys.iter().any(|(nqn, _)| nqn == host);
        let listed = match &o.hosts {
            Some(list) => list.iter().any(|nqn| nqn == host),
            None => o.any_host || o.dhchap_keys.is_empty(),
        };
        has_key == with_key && (has_key || listed)
    }

    /// For each host with a key, a text that differs if the next server would refuse its present authentication.
    fn key_checks(&self) -> BTreeMap<String, String> {
        let o = &self.options;
        let of = |(host, key): &(String, Key)| {
            let ctrl = o.dhchap_ctrl_key.as_ref().map_or_else(String::new, |key| key.check(host));
            (host.clone(), format!("{} {ctrl} {}", key.check(host), o.dhchap_dhgroup as u8))
        };
        o.dhchap_keys.iter().map(of).collect()
    }

    /// Adds hosts for which another server reserves connections.
    fn set_known_hosts(&mut self, known: &[KnownHostShown]) {
        self.options.known_hosts.extend(known.iter().filter_map(known_client_of));
    }

    /// Sets the ANA states of addresses.
    fn set_ana_states(&mut self, paths: &[PathShown]) {
        let of = |path: &PathShown| {
            let state = AnaState::ALL.into_iter().find(|s| s.name() == path.ana_state)?;
            Some((path.address.parse().ok()?, state))
        };
        self.options.ana_states = paths.iter().filter_map(of).collect();
    }
}

/// How long writes of a disk wait for those before them. `None`: as the specification says.
fn order_window(spec: &Specification) -> Option<Nanos> {
    let key = find_attribute("order_window").map(|a| &a.key);
    (!key.is_some_and(|key| spec.disk().has(key))).then_some(WINDOW)
}

impl Server {
    fn start(
        plan: &Plan,
        listeners: &NvmeTcpListeners,
        disks: Vec<(Disk, PassedDisk)>,
        stamp: &mut Stamp,
        notifier: Notifier,
    ) -> Result<Server, Failure> {
        let options = &plan.options;
        let (mut disks, passed): (Vec<Disk>, Vec<PassedDisk>) = disks.into_iter().unzip();
        let shapes: Vec<DiskShape> = disks.iter().map(Disk::shape).collect();
        let shown = plan.would_show(&shapes)?;
        for (n, d) in disks.iter_mut().enumerate() {
            let enabled = d.known.as_ref().is_none_or(|known| known.enabled);
            d.known = shown.known(n).map(|known| KnownDisk { enabled, ..known });
        }
        stamp.write(&disks, &passed, &shown);
        let tell = move || notifier.notify();
        let server = NvmeTcp::start_at(listeners.clone(), options, disks.clone(), tell)?;
        let (most, wanted) = (server.max_connections(), options.max_connections);
        if most < wanted {
            log::warn!(
                event = "few-open-files", count = most;
                "{}: this process has room for {most} connections of hosts instead of {wanted}: {}",
                server.address(),
                OpenFiles::WAY
            );
        }
        let authentication = AuthenticationUsed {
            of_hosts: !options.dhchap_keys.is_empty(),
            of_server: options.dhchap_ctrl_key.is_some(),
        };
        let unknown = stamp.unknown().map(str::to_owned);
        Ok(Server { server: Arc::new(server), disks, passed, unknown, authentication })
    }

    /// For each disk, whether hosts may know it: they have used it, or a host is connected.
    fn used(&self) -> Vec<bool> {
        let connected = !self.server.hosts().is_empty();
        let of = |n: usize| {
            let c = self.server.counters(n);
            connected || c.reads + c.writes + c.others + c.errors > 0
        };
        (0..self.disks.len()).map(of).collect()
    }

    /// Lines about the subsystem and its namespaces, and the command that attaches them.
    fn lines(&self) -> Vec<String> {
        let nqn = plain(self.server.nqn()).into_owned();
        let addresses = self.server.addresses().iter();
        let mut lines: Vec<String> = addresses.map(|a| format!("{a}  {nqn}")).collect();
        for (nsid, disk, refused) in self.server.namespaces() {
            let Some(Disk { disk, spec, .. }) = self.disks.get(disk) else { continue };
            let g = disk.disk().geometry();
            let zone = Sector(u64::from(g.zone_sectors())).to_bytes();
            let volatile =
                if spec.is_volatile() { ", in memory: gone when this process ends" } else { "" };
            lines.push(format!(
                "namespace {nsid}  {}  {}, {} zones of {zone}{volatile}",
                plain(spec),
                g.capacity_bytes(),
                g.nr_zones()
            ));
            if let Some(e) = refused {
                lines.push(format!("Linux makes no block device of namespace {nsid}: {e}"));
            }
        }
        for (spec, why) in self.server.unjournaled() {
            let what = "a server started after this one was killed does not know which appends were answered";
            lines.push(format!("{}: {what}: {why}", plain(spec)));
        }
        if let Some(why) = &self.unknown {
            let what =
                "hosts may find other disks under the numbers that they know after a restart";
            lines.push(format!("{what}: {why}"));
        }
        for address in self.server.addresses() {
            let ip = match address.ip() {
                ip if ip.is_unspecified() => "ADDRESS".to_owned(),
                ip => ip.to_string(),
            };
            let mut connect = format!("nvme connect -t tcp -a {ip} -s {} -n {nqn}", address.port());
            if self.authentication.of_hosts {
                connect += " --dhchap-secret KEY";
            }
            if self.authentication.of_server {
                connect += " --dhchap-ctrl-secret KEY";
            }
            lines.push(connect);
        }
        lines
    }

    /// Fails if a thread of the server has failed.
    fn check_running(&self) -> Result<(), Failure> {
        match self.server.failure() {
            None => Ok(()),
            Some(why) => Err(ServeError::DoorFailed {
                at: self.server.address().to_string(),
                because: why,
                then: "hosts connect again by themselves",
            }
            .into()),
        }
    }

    /// The disks for `zoneplug status`, each named by its first namespace.
    fn served(&self) -> Vec<Served> {
        let mut all: Vec<Served> = Vec::new();
        let shown = self.server.shown();
        for (n, d) in self.disks.iter().enumerate() {
            let Some(known) = shown.known(n) else { continue };
            let Some(name) = name(&self.server, &known) else { continue };
            let (for_counters, for_hosts) = (self.server.clone(), self.server.clone());
            let for_failures = self.server.clone();
            let counters = move || for_counters.counters(n);
            let hosts = move || for_hosts.hosts().into_iter().map(shown::host).collect();
            all.push(Served {
                counters: Box::new(counters),
                network: Some(Network {
                    nqn: self.server.nqn().to_owned(),
                    uuid: Some(known.uuid),
                    hosts: Box::new(hosts),
                    failed_authentications: Box::new(move || for_failures.failed_authentications()),
                    attributes: Box::new(NetworkAttributes::of(&self.server, n)),
                    ..Network::at(self.server.address())
                }),
                ..Served::new(NAME, name, &d.spec, &d.disk, &self.passed[n])
            });
        }
        all
    }

    fn log_start(&self) {
        let address = self.server.address();
        for s in self.served() {
            log::info!(
                event = "disk-start", disk = &*s.name, spec = &*s.spec;
                "{}: {} is served at {address}", s.name, s.spec
            );
        }
    }
}

/// The name of a disk in `zoneplug status`.
fn name(server: &NvmeTcp, known: &KnownDisk) -> Option<String> {
    let nsid = known.nsids.first()?;
    Some(NAMESPACE.name(server.address().port(), (*nsid).into()))
}

/// The subsystem, as hosts know it.
fn subsystem(server: &NvmeTcp, key_checks: &BTreeMap<String, String>) -> StateOfSubsystem {
    let shown = server.shown();
    let name = |disk| shown.known(disk).and_then(|known| name(server, &known));
    let namespaces = shown.namespaces.iter();
    let namespaces = namespaces.map(|n| shown::namespace(n, name(n.disk).unwrap_or_default()));
    let paths = server.addresses().iter().enumerate().map(|(n, address)| PathShown {
        address: address.to_string(),
        ana_state: server.ana_state(n).name().to_owned(),
    });
    StateOfSubsystem {
        nqn: server.nqn().to_owned(),
        paths: paths.collect(),
        append_limit: shown.append_limit,
        namespaces: namespaces.collect(),
        hosts: server.hosts().into_iter().map(shown::host).collect(),
        key_checks: key_checks.clone(),
        known_hosts: server.known_hosts().into_iter().map(known_client).collect(),
    }
}

/// The subsystem of the servers that hand over.
fn inherited_subsystem(inherited: &Inherited) -> Option<&StateOfSubsystem> {
    inherited.states.iter().find_map(|s| s.subsystem.as_ref())
}

/// The hosts' knowledge of a disk of the servers that hand over.
fn inherited_disk(inherited: &Inherited, mark: DiskMark) -> Option<KnownDisk> {
    let state = inherited.states.iter().find(|s| s.subsystem.is_some())?;
    let disk = state.disks.iter().find(|d| d.door() == NAME && is_of(d, mark))?;
    let namespaces = state.subsystem.iter().flat_map(|s| &s.namespaces);
    let nsids = namespaces.filter(|n| n.disk == disk.name).map(|n| n.nsid).collect();
    Some(KnownDisk { nsids, uuid: disk.uuid()?, enabled: disk.enabled })
}

/// The properties of a disk before it is opened for serving.
struct DiskPreview {
    spec: Specification,
    mark: DiskMark,
    shape: DiskShape,
}

impl DiskPreview {
    fn new(spec: &Specification) -> Result<DiskPreview, Failure> {
        let device = spec.open_to_look()?.device;
        let (geometry, mut limits) = (*device.geometry(), device.limits().clone());
        // A disk that is opened to look reports that it is read-only.
        limits.read_only = !spec.takes_writes();
        let mark = DiskMark::of(spec);
        let of_shape = (!spec.is_volatile()).then_some(mark);
        let shape = DiskShape { mark: of_shape, known: None, geometry, limits };
        Ok(DiskPreview { spec: spec.clone(), mark, shape })
    }
}

/// The door of NVMe/TCP.
pub struct NvmeTcpDoor {
    plan: Plan,
    /// Whether disks may be in other files than when their last server ended.
    moved: bool,
    /// The hosts' knowledge of the disks, kept for a server that is started after the death of this one.
    stamp: Stamp,
    previews: Vec<DiskPreview>,
    listeners: Option<NvmeTcpListeners>,
    server: Option<Server>,
}

impl NvmeTcpDoor {
    /// A door that does not listen yet. `forget`: assume that hosts know none of the disks.
    pub fn new(plan: Plan, moved: bool, forget: bool) -> NvmeTcpDoor {
        let stamp = plan.stamp(forget);
        NvmeTcpDoor { plan, moved, stamp, previews: Vec::new(), listeners: None, server: None }
    }
}

impl Door for NvmeTcpDoor {
    fn specs(&self) -> Vec<&Specification> {
        self.plan.specs.iter().collect()
    }

    fn wanted(&self) -> WantedDoor<'_> {
        let disks = self.previews.iter().map(|d| WantedDisk {
            spec: d.spec.clone(),
            mark: d.mark,
            id: None,
            outlives: !d.spec.is_volatile(),
        });
        let addresses: Vec<SocketAddr> = self.plan.addresses().collect();
        let clients = |state: &_| {
            let admits = |host: &str, key: bool| self.plan.admits(host, key);
            let (nqn, addresses) = (self.plan.nqn(), self.plan.addresses());
            let addresses = addresses.map(|at| at.to_string()).collect();
            let key_checks = self.plan.key_checks();
            clients::compare(state, &Offered { nqn, addresses, admits: &admits, key_checks })
        };
        let door = WantedDoor::new(NAME, disks.collect()).at(&addresses);
        WantedDoor { clients: Box::new(clients), ..door }
    }

    fn is_known(&self) -> bool {
        !self.stamp.is_empty()
    }

    fn prepare(&mut self) -> Result<(), Failure> {
        let preview = |spec: &Specification| DiskPreview::new(spec).map_err(|f| f.of_disk(spec));
        self.previews = self.plan.specs.iter().map(preview).collect::<Result<_, _>>()?;
        Ok(())
    }

    fn prove(&self, inherited: &Inherited) -> Result<(), Failure> {
        let (stamp, moved) = (&self.stamp, self.moved);
        let is_new = |d: &&DiskPreview| inherited_disk(inherited, d.mark).is_none();
        let new: Vec<_> = self.previews.iter().filter(is_new).collect();
        let marks: Vec<_> =
            new.iter().map(|d| MarkedDisk { spec: &d.spec, mark: d.mark }).collect();
        let all: Vec<_> = self.previews.iter().map(|d| d.mark).collect();
        stamp.compare(&marks, &all, moved)?;
        let shapes = self.previews.iter().map(|d| {
            let known = inherited_disk(inherited, d.mark);
            DiskShape {
                known: known.or_else(|| stamp.known(&d.spec, d.mark, moved)),
                ..d.shape.clone()
            }
        });
        let shown = self.plan.would_show(&shapes.collect::<Vec<_>>())?;
        if let Some(known) = inherited_subsystem(inherited) {
            clients::compare_namespaces(known, &shown).map_err(|mut difference| {
                difference.hint += "; or end the running server first";
                ServeError::ClientsDiffer { process: None, difference }
            })?;
        }
        let known = new.iter().filter_map(|d| stamp.known(&d.spec, d.mark, moved));
        let nsids: Vec<u32> = known.flat_map(|known| known.nsids).collect();
        stamp.compare_shown(&shown, &nsids)
    }

    fn check_name(&self, inherited: &Inherited) -> Result<(), Failure> {
        match self.has_name(inherited) {
            true => Ok(()),
            false => self.stamp.check_claim(),
        }
    }

    fn claim_name(&mut self, inherited: &Inherited, patience: Duration) -> Result<(), Failure> {
        match self.has_name(inherited) {
            true => Ok(()),
            false => self.stamp.claim(patience),
        }
    }

    fn order_window(&self, spec: &Specification) -> Option<Nanos> {
        order_window(spec)
    }

    fn listen(&mut self, given: &mut Vec<TcpListener>) -> Result<(), Failure> {
        self.listeners = Some(self.plan.listen(given)?);
        Ok(())
    }

    fn sockets(&self) -> Vec<&TcpListener> {
        self.listeners.iter().flat_map(NvmeTcpListeners::sockets).collect()
    }

    fn start(
        &mut self,
        disks: &OpenDisks,
        inherited: &Inherited,
        notifier: &Notifier,
    ) -> Result<(), Failure> {
        let Some(listeners) = &self.listeners else { return Ok(()) };
        for subsystem in inherited.states.iter().filter_map(|s| s.subsystem.as_ref()) {
            self.plan.set_ana_states(&subsystem.paths);
            self.plan.set_known_hosts(&subsystem.known_hosts);
        }
        self.plan.give_numbers_behind(self.stamp.last_nsid());
        let mut all = Vec::new();
        for spec in &self.plan.specs {
            let Some(open) = disks.get(spec) else { continue };
            let mark = open.passed.mark;
            let known = inherited_disk(inherited, mark);
            let known = known.or_else(|| self.stamp.known(spec, mark, self.moved));
            let (disk, spec) = (open.disk.clone(), spec.clone());
            all.push((Disk { disk, spec, tags: open.tags, known }, open.passed.clone()));
        }
        let server = Server::start(&self.plan, listeners, all, &mut self.stamp, notifier.clone())?;
        self.server = Some(server);
        Ok(())
    }

    fn serves(&mut self) -> Result<(), Failure> {
        self.stamp.claim(DISAPPEAR_TIMEOUT)
    }

    fn served(&self) -> Vec<Served> {
        self.server.iter().flat_map(Server::served).collect()
    }

    fn of_clients(&self) -> Option<AddClients> {
        let server = self.server.as_ref()?.server.clone();
        let key_checks = self.plan.key_checks();
        Some(Box::new(move |state| state.subsystem = Some(subsystem(&server, &key_checks))))
    }

    fn lines(&self) -> Vec<String> {
        self.server.iter().flat_map(Server::lines).collect()
    }

    fn addresses(&self) -> Vec<SocketAddr> {
        self.server.iter().flat_map(|s| s.server.addresses()).copied().collect()
    }

    fn log_start(&self) {
        self.server.iter().for_each(Server::log_start);
    }

    fn check_running(&self) -> Result<(), Failure> {
        self.server.as_ref().map_or(Ok(()), Server::check_running)
    }

    /// Ends all connections. Hosts connect again, and resend requests without an answer.
    fn leave_disks(&mut self) {
        self.server = None;
        self.listeners = None;
    }

    fn stop(&mut self, _: bool) -> Result<(), Failure> {
        let Some(server) = &self.server else { return Ok(()) };
        let used = server.used();
        let stopped = leave_disks_and_flush(self);
        self.stamp.end(&used);
        stopped
    }
}

impl NvmeTcpDoor {
    /// Whether one of the servers that hand over has the name of the subsystem.
    fn has_name(&self, inherited: &Inherited) -> bool {
        let mut all = inherited.states.iter().flat_map(|s| &s.subsystem);
        all.any(|s| s.nqn == self.plan.nqn())
    }
}
