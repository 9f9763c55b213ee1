//! Disks that are served over the network as namespaces.

use super::answer::{HostShown, Network, Passed, Served};
use super::network_attributes::NetworkAttributes;
use super::stamp::Stamp;
use crate::failure::{Failure, Kind};
use crate::server_client::{DIRECTORY, KnownHostShown, PathShown};
use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use zoneplug_core::plain;
use zoneplug_core::{Nanos, Sector};
use zoneplug_host::nvme_tcp::{
    AnaState, DhGroup, Disk, DiskShape, Key, KnownDisk, NvmeTcp, NvmeTcpListeners, NvmeTcpOptions,
    ShownSubsystem, read_key, usual_records,
};
use zoneplug_host::signals::Signals;
use zoneplug_host::{BootNote, is_volatile};

/// How long a disk waits for a write that was overtaken on its way, unless its specification says otherwise. Initiators
/// reorder the writes of a zone (docs/scheduling.md).
const WINDOW: Nanos = Nanos(1_000_000_000);

/// Flags of `zoneplug serve` for the network.
#[derive(Debug, Clone, clap::Args)]
#[group(id = "network")]
pub(super) struct NetworkArgs {
    /// Serve disks over the network to the NVMe/TCP initiator of any Linux: 127.0.0.1:4420 po2@disk.zbd. Other machines
    /// need --allow-host or --dhchap-key. Repeat it with other addresses alone for more ways to the same disks
    #[arg(long, num_args = 1.., value_names = ["ADDRESS:PORT", "SPEC"])]
    pub(super) nvme_tcp: Vec<String>,

    /// The NVMe name of what --nvme-tcp serves; without it one made of the names of this machine and of the port
    #[arg(long, value_name = "NQN")]
    nqn: Option<String>,

    /// Only hosts with this name may connect (on the host: cat /etc/nvme/hostnqn). Repeat it for more hosts
    #[arg(long, value_name = "NQN")]
    allow_host: Vec<String>,

    /// Any host may connect, from wherever the address is reached
    #[arg(long, conflicts_with = "allow_host")]
    allow_any_host: bool,

    /// A host that may connect if it knows the key in this file, as nvme gen-dhchap-key writes it. Repeat it for more hosts.
    /// Without --allow-host no others may
    #[arg(long, value_name = "NQN=FILE")]
    dhchap_key: Vec<String>,

    /// The key by which this server shows hosts who it is, if they ask for that
    #[arg(long, value_name = "FILE")]
    dhchap_ctrl_key: Option<PathBuf>,

    /// The weakest Diffie-Hellman group that a host may use with its key: null, ffdhe2048, 3072, 4096, 6144 or 8192
    #[arg(long, value_name = "GROUP", default_value_t)]
    dhchap_dhgroup: DhGroup,
}

impl NetworkArgs {
    /// Has each flag need what it is of: an address, or a key.
    pub(super) fn require(command: clap::Command) -> clap::Command {
        let own = <Self as clap::Args>::augment_args(clap::Command::new("network"));
        let ids = own.get_arguments().map(|a| a.get_id().clone()).filter(|id| id != "nvme_tcp");
        ids.fold(command, |command, id| {
            let needed = if id == "dhchap_dhgroup" { "dhchap_key" } else { "nvme_tcp" };
            command.mut_arg(id, |arg| arg.requires(needed))
        })
    }
}

/// A server and its disks.
pub(super) struct Server {
    server: Arc<NvmeTcp>,
    disks: Vec<Disk>,
    passed: Vec<Passed>,
    /// Why hosts may find something changed after this server or the last one.
    unknown: Option<String>,
    /// Whether hosts authenticate, and whether the server does.
    keys: (bool, bool),
}

/// What is to be served, checked as far as that goes without opening a disk.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    options: NvmeTcpOptions,
    specs: Vec<String>,
}

/// The name of this machine, as far as a name of NVMe takes it.
fn machine() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let plain = |c: &char| c.is_ascii_alphanumeric() || ".-".contains(*c);
    let name: String = name.trim().chars().filter(plain).take(64).collect();
    if name.is_empty() { "localhost".to_owned() } else { name }
}

/// Reads `NQN=FILE` and the key in the file.
fn key_of_host(text: &str) -> Result<(String, Key), Failure> {
    let (nqn, file) = text.split_once('=').ok_or_else(|| {
        Failure::usage(format!("{} names no file", plain(text)))
            .hint("--dhchap-key NQN=FILE (on the host: cat /etc/nvme/hostnqn)")
    })?;
    Ok((nqn.to_owned(), read_key(Path::new(file))?))
}

impl Plan {
    /// Reads the flags. `None`: nothing is served over the network. A failure comes with the flag that it is of.
    pub(super) fn of(
        args: &NetworkArgs,
        latencies: bool,
    ) -> Result<Option<Plan>, (&'static str, Failure)> {
        let of_network = |f| ("nvme-tcp", f);
        let [first, rest @ ..] = &args.nvme_tcp[..] else { return Ok(None) };
        let address = |text: &String| {
            text.parse::<SocketAddr>().map_err(|_| {
                Failure::usage(format!("{} is no address with a port", plain(text)))
                    .hint("--nvme-tcp 127.0.0.1:4420 SPEC, or [::1]:4420")
            })
        };
        let listen = address(first).map_err(of_network)?;
        // No specification is an address.
        let more = rest.iter().position(|text| text.parse::<SocketAddr>().is_ok());
        let (specs, more) = rest.split_at(more.unwrap_or(rest.len()));
        if specs.is_empty() {
            let failure = Failure::usage(format!("--nvme-tcp {listen} names no disk"));
            let hint = format!("--nvme-tcp {listen} <SPEC>; further addresses come after it");
            return Err(of_network(failure.hint(hint)));
        }
        let also_listen = more.iter().map(|text| {
            address(text).map_err(|_| {
                Failure::usage(format!("{} follows the second address", plain(text)))
                    .hint("disks after the first address: each address shows all of them")
            })
        });
        let also_listen = also_listen.collect::<Result<_, _>>().map_err(of_network)?;
        let nqn = match &args.nqn {
            Some(nqn) => nqn.clone(),
            None => format!("nqn.2026-11.dev.zoneplug:{}-{}", machine(), listen.port()),
        };
        let hosts = Some(args.allow_host.clone()).filter(|list| !list.is_empty());
        let keys = args.dhchap_key.iter().map(|text| key_of_host(text));
        let keys = keys.collect::<Result<_, _>>().map_err(|f| ("dhchap-key", f))?;
        let own = args.dhchap_ctrl_key.as_deref().map(read_key).transpose();
        let own = own.map_err(|e| ("dhchap-ctrl-key", e.into()))?;
        let options = NvmeTcpOptions {
            also_listen,
            hosts,
            any_host: args.allow_any_host,
            dhchap_keys: keys,
            dhchap_ctrl_key: own,
            dhchap_dhgroup: args.dhchap_dhgroup,
            // Not beside --socket: a server restarted with another socket must find it, and it must be in memory.
            records: usual_records(Path::new(DIRECTORY)),
            latencies,
            ..NvmeTcpOptions::new(listen, &nqn)
        };
        options.check().map_err(|e| of_network(e.into()))?;
        Ok(Some(Plan { options, specs: specs.to_vec() }))
    }

    /// What is to be served.
    pub(super) fn specs(&self) -> &[String] {
        &self.specs
    }

    /// The name of what is to be served.
    pub(super) fn nqn(&self) -> &str {
        &self.options.nqn
    }

    /// Where it is to be served.
    pub(super) fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        let more = self.options.also_listen.iter();
        std::iter::once(&self.options.listen).chain(more).copied()
    }

    /// Listens at the addresses; `given` are sockets that listen already.
    pub(super) fn listen(&self, given: &mut Vec<TcpListener>) -> Result<NvmeTcpListeners, Failure> {
        Ok(NvmeTcpListeners::bind(&self.options, given)?)
    }

    /// The stamp of the last server of the subsystem. `forget`: no host knows its disks any more.
    pub(super) fn stamp(&self, forget: bool) -> Stamp {
        Stamp::read(self.nqn(), self.note(), forget)
    }

    /// The place of the stamp. `None`: no host finds this server again, or there is no place.
    fn note(&self) -> Option<BootNote> {
        let o = &self.options;
        let mut ports = std::iter::once(&o.listen).chain(&o.also_listen).map(SocketAddr::port);
        // Each name has a file of its own.
        let name = format!("{}.hosts", o.nqn.replace('%', "%25").replace('/', "%2F"));
        let directory = o.records.as_ref().filter(|_| ports.any(|port| port != 0))?;
        Some(BootNote::at(directory, &name))
    }

    /// Gives disks that hosts do not know numbers behind this one.
    pub(super) fn give_numbers_behind(&mut self, last_nsid: u32) {
        self.options.last_nsid = last_nsid;
    }

    /// The namespaces that hosts would see of these disks.
    pub(super) fn would_show(&self, disks: &[DiskShape]) -> Result<ShownSubsystem, Failure> {
        Ok(self.options.would_show(disks)?)
    }

    /// Whether a host may connect with what it has: a key, or none.
    pub(super) fn admits(&self, host: &str, with_key: bool) -> bool {
        let o = &self.options;
        let has_key = o.dhchap_keys.iter().any(|(nqn, _)| nqn == host);
        let listed = match &o.hosts {
            Some(list) => list.iter().any(|nqn| nqn == host),
            None => o.any_host || o.dhchap_keys.is_empty(),
        };
        has_key == with_key && (has_key || listed)
    }

    /// For each host that has a key, a text that changes when the host could not authenticate any more as it does.
    pub(super) fn key_checks(&self) -> BTreeMap<String, String> {
        let o = &self.options;
        let of = |(host, key): &(String, Key)| {
            let ctrl = o.dhchap_ctrl_key.as_ref().map_or_else(String::new, |key| key.check(host));
            (host.clone(), format!("{} {ctrl} {}", key.check(host), o.dhchap_dhgroup as u8))
        };
        o.dhchap_keys.iter().map(of).collect()
    }

    /// Adds hosts that another server keeps places for.
    pub(super) fn set_known_hosts(&mut self, known: &[KnownHostShown]) {
        self.options.known_hosts.extend(known.iter().filter_map(KnownHostShown::host));
    }

    /// Adds how hosts use addresses.
    pub(super) fn set_ana_states(&mut self, paths: &[PathShown]) {
        let of = |path: &PathShown| {
            let state = AnaState::ALL.into_iter().find(|s| s.name() == path.ana_state)?;
            Some((path.address.parse().ok()?, state))
        };
        self.options.ana_states = paths.iter().filter_map(of).collect();
    }
}

/// How long writes of a disk wait for those before them, unless its specification says that.
pub(super) fn order_window(spec: &str) -> Option<Nanos> {
    // Keys are spelled with `_` or `-`.
    let says = ["order_window=", "order-window="].iter().any(|key| spec.contains(key));
    (!says).then_some(WINDOW)
}

impl Server {
    pub(super) fn start(
        plan: &Plan,
        listeners: &NvmeTcpListeners,
        disks: Vec<(Disk, Passed)>,
        stamp: &mut Stamp,
        signals: &Signals,
    ) -> Result<Server, Failure> {
        let notifier = signals.notifier();
        let options = &plan.options;
        let (mut disks, passed): (Vec<Disk>, Vec<Passed>) = disks.into_iter().unzip();
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
                "{}: this process has room for {most} connections of hosts instead of {wanted}: ulimit -n, LimitNOFILE= in the unit",
                server.address()
            );
        }
        let keys = (!options.dhchap_keys.is_empty(), options.dhchap_ctrl_key.is_some());
        let unknown = stamp.unknown().map(str::to_owned);
        Ok(Server { server: Arc::new(server), disks, passed, unknown, keys })
    }

    /// Whether a host has used each disk, or is connected.
    pub(super) fn used(&self) -> Vec<bool> {
        let connected = !self.server.hosts().is_empty();
        let of = |n: usize| {
            let c = self.server.counters(n);
            connected || c.reads + c.writes + c.others + c.errors > 0
        };
        (0..self.disks.len()).map(of).collect()
    }

    /// The server itself.
    pub(super) fn of_hosts(&self) -> Arc<NvmeTcp> {
        self.server.clone()
    }

    /// What is served, and the command that attaches it.
    pub(super) fn lines(&self) -> Vec<String> {
        let nqn = plain(self.server.nqn()).into_owned();
        let addresses = self.server.addresses().iter();
        let mut lines: Vec<String> = addresses.map(|a| format!("{a}  {nqn}")).collect();
        for (nsid, disk, refused) in self.server.namespaces() {
            let Some(Disk { disk, spec, .. }) = self.disks.get(disk) else { continue };
            let g = disk.disk().geometry();
            let zone = Sector(u64::from(g.zone_sectors())).to_bytes();
            let volatile =
                if is_volatile(spec) { ", in memory: gone when this process ends" } else { "" };
            lines.push(format!(
                "namespace {nsid}  {}  {}, {} zones of {zone}{volatile}",
                plain(spec),
                g.capacity_bytes(),
                g.nr_zones()
            ));
            if let Some(e) = refused {
                lines.push(format!("namespace {nsid} becomes no block device of Linux: {e}"));
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
            if self.keys.0 {
                connect += " --dhchap-secret KEY";
            }
            if self.keys.1 {
                connect += " --dhchap-ctrl-secret KEY";
            }
            lines.push(connect);
        }
        lines
    }

    /// Whether a thread of it has failed.
    pub(super) fn look(&self) -> Result<(), Failure> {
        match self.server.failure() {
            None => Ok(()),
            Some(why) => Err(Failure::new(Kind::Io, format!("{}: {why}", self.server.address()))
                .hint("start it again; hosts connect again by themselves")),
        }
    }

    /// For `zoneplug status`: each disk, by its first namespace.
    pub(super) fn served(&self) -> Vec<Served> {
        let mut all: Vec<Served> = Vec::new();
        let port = self.server.address().port();
        let shown = self.server.shown();
        for (n, d) in self.disks.iter().enumerate() {
            let Some(known) = shown.known(n) else { continue };
            let Some(nsid) = known.nsids.first().copied() else { continue };
            let (for_counters, for_hosts) = (self.server.clone(), self.server.clone());
            let for_failures = self.server.clone();
            let counters = move || for_counters.counters(n);
            let hosts = move || for_hosts.hosts().into_iter().map(HostShown::of).collect();
            all.push(Served {
                name: format!("tcp{port}n{nsid}"),
                spec: d.spec.clone(),
                disk: d.disk.clone(),
                recovered: false,
                outlives: !is_volatile(&d.spec),
                counters: Box::new(counters),
                network: Some(Network {
                    address: self.server.address().to_string(),
                    nqn: self.server.nqn().to_owned(),
                    place: n,
                    hosts: Box::new(hosts),
                    failed_authentications: Box::new(move || for_failures.failed_authentications()),
                    attributes: NetworkAttributes::of(&self.server, n),
                }),
                passed: Passed { known: Some(known), ..self.passed[n].clone() },
            });
        }
        all
    }

    pub(super) fn log_start(&self) {
        let address = self.server.address();
        for s in self.served() {
            log::info!(
                event = "disk-start", disk = &*s.name, spec = &*s.spec;
                "{}: {} is served at {address}", s.name, s.spec
            );
        }
    }

    /// Closes all connections, and makes everything durable. Nothing else may hold the server any more.
    pub(super) fn stop(self) -> Result<(), Failure> {
        let names: Vec<String> = self.served().into_iter().map(|s| s.name).collect();
        drop(self.server);
        self.disks.iter().try_for_each(|d| super::flush(&d.disk))?;
        for name in &names {
            let name = &**name;
            log::info!(event = "disk-stop", disk = name; "{name}: not served any more, and its data are durable");
        }
        Ok(())
    }
}
