//! `zoneplug serve`: disks as block devices of this machine's Linux, or as namespaces for others, until a signal comes.

pub(crate) mod access;
pub(crate) mod answer;
mod block;
mod check_config;
mod clients;
mod compare;
mod config_file;
mod confine;
mod disk_events;
mod end;
mod handover;
mod inherited;
mod join;
mod leave;
#[cfg(test)]
mod log_pages;
mod logs;
mod measure;
mod metrics;
pub(crate) mod network_attributes;
mod notify;
mod nvme;
mod once;
mod opening;
pub(crate) mod pause;
mod place;
mod predecessors;
mod prove;
mod running;
mod served;
mod settings;
pub(crate) mod socket;
mod stamp;
pub(crate) mod zone_table;

use crate::failure::{Attempt, Failure};
use crate::said::{self, To};
use crate::{background, server_client, term};
use answer::{Served, Serving};
use block::{Device, options, parts, shown, start};
use disk_events::{DiskEvents, Watched};
use end::{End, flush, give_up, part, stop};
use handover::HandOver;
use inherited::Inherited;
use join::{Joined, Parts};
use metrics::Metrics;
use opening::OpenDisks;
use settings::{Doors, Settings};
use socket::Socket;
use stamp::Stamp;
use std::collections::BTreeMap;
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use zoneplug_core::plain;
use zoneplug_core::poison::lock;
use zoneplug_host::DiskMark;
use zoneplug_host::nvme_tcp::NvmeTcpListeners;
use zoneplug_host::signals::{Event, Signals};
use zoneplug_host::ublk::{Ublk, UblkDisk};

/// Flags of `zoneplug serve`. Those that describe a server are also the keys of its file (settings.rs).
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Args {
    /// A disk to serve as /dev/ublkbN: po2@disk.zbd,qd1=1. Repeat it for more disks
    #[arg(long, value_name = "SPEC")]
    ublk: Vec<String>,

    #[command(flatten)]
    network: nvme::NetworkArgs,

    #[command(flatten)]
    device: settings::DeviceArgs,

    #[command(flatten)]
    measured: metrics::MetricsArgs,

    /// Take the disks over from the server that has them, while they are in use: an upgrade. Nothing happens to that server
    /// if this one could not go on. Without such a server this is a start like any other. With the number of a process only
    /// from that one, and if it has none of the disks nothing is served: for the reload of a unit
    #[arg(long, value_name = "PID", num_args = 0..=1, require_equals = true, conflicts_with = "no_recovery")]
    takeover: Option<Option<u32>>,

    /// Remove the devices at the end also if they are in use: mounted, or open in a program. Without it these stay for the
    /// next server, and their I/O waits
    #[arg(long)]
    remove_on_exit: bool,

    /// Return when the disks are served, and go on in the background
    #[arg(long)]
    background: bool,

    /// Take over a device, or go on as a namespace, although its disk is in another file than when its server ended: it was
    /// moved there, and is no copy
    #[arg(long)]
    moved: bool,

    /// No host has the disks of the last server any more: make numbers and identifiers of namespaces anew, without a look at
    /// what hosts knew
    #[arg(long, conflicts_with = "takeover")]
    forget_hosts: bool,

    /// Join the devices of a disk that has more zones than Linux takes in one (16,384) by the device mapper; without it
    /// the command for that is printed
    #[arg(long)]
    join: bool,

    /// The socket for zoneplug status, top, attr, zone-wplugs and snapshot, instead of one in /run/zoneplug. They need --socket
    /// with this path then
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,

    #[command(flatten)]
    access: access::AccessArgs,

    #[command(flatten)]
    logs: logs::LogArgs,

    /// Read the disks and how they are served from a file. A flag overrides the key of its name (docs/serve-config.md)
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Only check the flags and the file, and show what would be served. Nothing is opened for writing. With --takeover also
    /// what the running server would refuse
    #[arg(long, value_name = "FILE", num_args = 0..=1)]
    check_config: Option<Option<PathBuf>>,

    /// With --check-config: what would be served as JSON
    #[arg(long, requires = "check_config")]
    json: bool,

    /// Remove a device whose server has died and will not be started again
    #[arg(long, value_name = "DEVICE", conflicts_with_all = ["ublk", "nvme_tcp", "config", "check_config"])]
    remove: Option<String>,

    /// Print a rule for udev: served devices are not watched. For /etc/udev/rules.d/61-zoneplug.rules
    #[arg(long, conflicts_with_all = ["ublk", "remove", "nvme_tcp", "config", "check_config"])]
    udev_rule: bool,
}

/// How long a server that was killed, or has handed over, may take until it is gone.
const DIES: Duration = Duration::from_secs(2);
/// How long udev may take to see the devices of a server.
const UDEV: Duration = Duration::from_secs(5);

/// The rule, which packages install.
const UDEV_RULE: &str = include_str!("../../udev/61-zoneplug.rules");

/// Runs the command. `line`: what `args` was made from.
pub(crate) fn run(
    args: &Args,
    line: &clap::ArgMatches,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    if let Some(device) = &args.remove {
        return remove(device, out);
    }
    if args.udev_rule {
        return Ok(write!(out, "{UDEV_RULE}")?);
    }
    let ended = serve(args, line, out);
    if args.takeover.is_some()
        && let Err(f) = &ended
    {
        notify::refused(f);
    }
    ended
}

fn serve(args: &Args, line: &clap::ArgMatches, out: &mut dyn Write) -> Result<(), Failure> {
    let settings = Settings::read(args, line)?;
    if args.check_config.is_some() {
        return check_config::run(&settings, out);
    }
    measure::begin();
    let doors = settings.doors()?;
    if args.background {
        return background::start(out);
    }
    prove::raise_open_files();
    // Before any thread is there.
    let signals =
        Signals::block().map_err(|e| Failure::of_system(Attempt::Descriptor, "signals", e))?;
    logs::start(settings.args.logs)?;
    said::begin_to_serve();
    confine::drop_rights(doors.access.gives_away())?;
    logs::write()?;
    let ended = begin(&settings, doors, signals);
    logs::finish();
    said::finish();
    ended
}

/// Opens what is served, or takes it over, and serves it until the end.
fn begin(settings: &Settings, doors: Doors, signals: Signals) -> Result<(), Failure> {
    let Doors { plan, access, metrics_at } = doors;
    // Once: the paths may name other files when the disks come back.
    let blocks = opening::planned(settings, plan.as_ref())?;
    let ublk = if settings.block.is_empty() { None } else { Some(Ublk::open()?) };
    let stamp = prove::stamp(settings, plan.as_ref());
    let mut server =
        Server { settings, ublk, plan, access, metrics_at, signals, stamp, stays: None };
    let mut inherited = prove::find(settings, (&blocks, server.plan.as_ref()), &server.stamp)?;
    opening::check(settings, server.plan.as_ref(), &inherited)?;
    opening::check_unused(settings, server.plan.as_ref(), &inherited, DIES)?;
    if !inherited.has_name(server.plan.as_ref().map(nvme::Plan::nqn)) {
        server.stamp.claim(DIES)?;
    }
    loop {
        match server.serve(&blocks, inherited)? {
            Ended::Stopped => return Ok(()),
            Ended::Left(next, back) => {
                let became = next.serves(&server.signals, &back.states[0]);
                if became != leave::Became::Returned {
                    if became == leave::Became::Served {
                        log::info!(event = "handed-over"; "another server has taken the disks over");
                    }
                    // The place of its socket goes with it.
                    drop(server.stays.take());
                    logs::finish();
                    // The rest of this process is left as it is: its end may wait for no thread.
                    std::process::exit(0);
                }
                inherited = *back;
            }
        }
    }
}

/// A server, from one hand-over that came to nothing to the next.
struct Server<'a> {
    settings: &'a Settings,
    ublk: Option<Ublk>,
    plan: Option<nvme::Plan>,
    access: access::Access,
    metrics_at: Option<SocketAddr>,
    signals: Signals,
    /// How hosts know the disks, for a server that is started after the death of this one.
    stamp: Stamp,
    /// Kept through hand-overs that come to nothing. `None`: this process has not served yet.
    stays: Option<Stays>,
}

/// Made once for the life of a server: the filter of system calls forbids to make it again.
struct Stays {
    socket: Option<Socket>,
    to_part: Vec<Joined>,
}

/// How a server has ended.
enum Ended {
    /// By a signal.
    Stopped,
    /// Its disks are closed, and the next server has what it needs to serve them. So has this one.
    Left(leave::Next, Box<Inherited>),
}

impl Server<'_> {
    /// Serves until the end. All disks or none: a restart starts all of them. What is wrong with a disk shows before any is
    /// served.
    fn serve(
        &mut self,
        blocks: &[opening::Planned<'_>],
        mut inherited: Inherited,
    ) -> Result<Ended, Failure> {
        let settings = self.settings;
        let (args, signals) = (&settings.args, &self.signals);
        let mut disks = OpenDisks::default();
        let doors = (self.ublk.as_ref(), self.plan.as_ref());
        disks.open(settings, blocks, doors, &inherited)?;
        let sockets = &mut inherited.sockets;
        let listeners = self.plan.as_ref().map(|plan| plan.listen(sockets)).transpose()?;
        let metrics_at = self.metrics_at.map(|at| metrics::listen(at, sockets)).transpose()?;
        if !inherited.has_left() {
            prove::enough(&inherited)?;
            inherited.leave()?;
            disks.open(settings, blocks, doors, &inherited)?;
        }
        // A socket that is at no address of this server listens no more.
        inherited.sockets.clear();
        if let Some(plan) = &mut self.plan {
            let paths = inherited.states.iter().filter_map(|s| s.subsystem.as_ref());
            paths.for_each(|s| {
                plan.set_ana_states(&s.paths);
                plan.set_known_hosts(&s.known_hosts);
            });
            plan.give_numbers_behind(self.stamp.last_nsid());
        }
        let known = |spec: &str, mark: DiskMark| {
            inherited.known(mark).or_else(|| self.stamp.known(spec, mark, args.moved))
        };
        let over_network = self.plan.as_ref().map(|plan| disks.over_network(plan, known));
        let over_network = over_network.transpose()?;
        let mut devices = Vec::new();
        for (planned, ublk) in blocks.iter().zip(self.ublk.iter().cycle()) {
            let Some(opened) = disks.get(&planned.of.spec) else { continue };
            let spec = &*planned.of.spec;
            for (zones, nth) in shown(&opened.disk.disk().geometry()).into_iter().zip(0..) {
                let id = planned.id.map(|id| id + nth);
                let options = options(args, planned.of, id, opened.tags, zones);
                let disk = opened.disk.clone();
                match start(ublk, disk, (spec, &opened.passed), &options, signals) {
                    Ok(device) => devices.push(device),
                    Err(f) => return Err(give_up(devices, settings.of_disk(spec, f))),
                }
            }
        }
        let joined = parts(&devices);
        let to_join = if args.join && self.stays.is_none() { &joined[..] } else { &[] };
        let to_part = match to_join.iter().map(Parts::join).collect::<Result<Vec<_>, _>>() {
            Ok(all) => all,
            Err(f) => return Err(give_up(devices, f)),
        };
        let plan = self.plan.as_ref().zip(listeners.as_ref()).zip(over_network);
        let network = plan.map(|((plan, at), disks)| {
            nvme::Server::start(plan, at, disks, &mut self.stamp, signals)
        });
        let network = match network.transpose() {
            Ok(network) => network,
            Err(f) => return Err(give_up(devices, f)),
        };
        let served = || {
            let over_network = network.iter().flat_map(nvme::Server::served);
            devices.iter().map(Device::served).chain(over_network).collect::<Vec<Served>>()
        };
        let metrics = metrics_at.as_ref().map(|at| Metrics::open(at, served())).transpose();
        let metrics = match metrics {
            Ok(metrics) => metrics,
            Err(f) => return Err(give_up(devices, f)),
        };
        let events = match DiskEvents::start(Watched::of(&served())) {
            Ok(events) => events,
            Err(f) => return Err(give_up(devices, f)),
        };
        let notifier = signals.notifier();
        let hand_over = HandOver::new(move || notifier.notify());
        let sockets = listeners.iter().flat_map(NvmeTcpListeners::sockets).chain(&metrics_at);
        let sockets: std::io::Result<Vec<_>> =
            sockets.map(|s| s.try_clone().map(Arc::new)).collect();
        let mut serving = match sockets {
            Ok(sockets) => {
                let subsystem = network.as_ref().map(nvme::Server::of_hosts);
                Serving::new(served(), subsystem, sockets, hand_over.clone())
            }
            Err(e) => {
                let f = Failure::of_system(Attempt::Descriptor, "no further descriptor", e);
                return Err(give_up(devices, f));
            }
        };
        serving.key_checks = self.plan.as_ref().map_or_else(BTreeMap::new, nvme::Plan::key_checks);
        let goes_on = self.stays.is_some();
        if let Err(f) = inherited.set_again(&serving, goes_on) {
            drop((serving, metrics));
            return Err(give_up(devices, f));
        }
        if let Err(f) = self.answer(serving, to_part, &inherited.replaced) {
            drop(metrics);
            return Err(give_up(devices, f));
        }
        inherited.serves();
        if let Err(f) = self.stamp.claim(DIES) {
            log::error!(event = "hand-over-failed"; "{}", plain(f.parts().1));
        }
        if !goes_on {
            say(&devices, (network.as_ref(), metrics.as_ref()), (&joined, args.join));
            background::let_go();
        }
        devices.iter().for_each(Device::log_start);
        network.iter().for_each(nvme::Server::log_start);
        if goes_on {
            // The next server may have said that it is the main process.
            notify::main_process();
        } else {
            notify::ready();
        }
        let ended = loop {
            let ended = end::wait(&self.signals, &devices, network.as_ref(), &hand_over);
            let Ok(End::Asked(by)) = ended else { break ended };
            let (Some(next), Some(serving)) = (leave::Next::of(by), self.serving()) else {
                hand_over.refused();
                continue;
            };
            if let Err(f) = leave::drain(&serving, &devices) {
                next.refuse(&f);
                hand_over.refused();
                continue;
            }
            let back = Inherited::of_own(&serving);
            drop((serving, metrics, events));
            return Ok(self.leave(next, back, (devices, network, disks)));
        };
        self.stop(ended, (devices, network), (metrics, events))
    }

    /// Answers at the socket from now on, and gives up what a server does not need.
    fn answer(
        &mut self,
        serving: Serving,
        to_part: Vec<Joined>,
        replaced: &[place::Id],
    ) -> Result<(), Failure> {
        let args = &self.settings.args;
        if let Some(stays) = &mut self.stays {
            if let Some(socket) = &mut stays.socket {
                socket.put(serving);
                if let Err(f) = socket.restore() {
                    let what = f.parts().1;
                    log::error!(event = "hand-over-failed"; "this server serves, and cannot be asked: {what}");
                }
            }
            return Ok(());
        }
        let socket = match Socket::open(args.socket.as_deref(), self.access, serving, replaced) {
            Ok(socket) => Some(socket),
            // Only root has a place for it without being asked for one, and only block devices need root.
            Err(f) if self.settings.block.is_empty() && args.socket.is_none() => {
                let (_, what, hint) = f.parts();
                term::note(&format!(
                    "{what}; zoneplug status does not show this server without {hint}"
                ));
                None
            }
            Err(f) => return Err(f),
        };
        confine::filter_calls()?;
        self.stays = Some(Stays { socket, to_part });
        Ok(())
    }

    fn serving(&self) -> Option<Arc<Serving>> {
        self.stays.as_ref()?.socket.as_ref()?.serving()
    }

    /// Leaves the disks, which have answered what was begun. Hosts connect again, and send again what they have no answer
    /// to; Linux keeps the requests of block devices.
    fn leave(
        &self,
        next: leave::Next,
        back: Inherited,
        (devices, network, disks): (Vec<Device>, Option<nvme::Server>, OpenDisks),
    ) -> Ended {
        self.stays.iter().flat_map(|s| &s.socket).for_each(Socket::withdraw);
        log::info!(event = "handing-over"; "another server takes the disks over");
        drop(network);
        for d in &devices {
            let device = lock(&d.device).take();
            device.into_iter().for_each(UblkDisk::leave);
        }
        let (all, below) = (disks.handles(), disks.devices());
        drop((devices, disks));
        if !leave::close(all, &below) {
            next.end_for(&back.states[0]);
        }
        Ended::Left(next, Box::new(back))
    }

    /// Ends the server.
    fn stop(
        &mut self,
        ended: Result<End, Failure>,
        (devices, network): (Vec<Device>, Option<nvme::Server>),
        (metrics, events): (Option<Metrics>, DiskEvents),
    ) -> Result<Ended, Failure> {
        notify::stopping();
        let why = if ended.is_ok() { "a signal has come" } else { "it failed" };
        log::info!(event = "stop"; "the server ends: {why}");
        // A second signal ends this at once; what Linux then does with the devices depends on --no-recovery.
        let impatient = std::thread::Builder::new().name("zoneplug-signals".to_owned());
        if let Ok(signals) = self.signals.try_clone() {
            let _ = impatient.spawn(move || {
                loop {
                    if let Ok(Event::Signal(signal)) = signals.wait() {
                        std::process::exit(128 + signal);
                    }
                }
            });
        }
        let (socket, to_part) =
            self.stays.take().map_or((None, Vec::new()), |s| (s.socket, s.to_part));
        drop((socket, metrics));
        let args = &self.settings.args;
        let outlive = devices.iter().all(Device::outlives);
        let remove = args.remove_on_exit || !outlive;
        let parted = to_part.into_iter().try_for_each(|joined| part(joined, remove));
        // An error that ended the server is reported before an error of its stop.
        let used = network.as_ref().map(nvme::Server::used);
        let closed = network.map_or(Ok(()), nvme::Server::stop);
        used.iter().for_each(|used| self.stamp.end(used));
        let stopped = stop(devices, args.remove_on_exit);
        drop(events);
        ended.map(|_| Ended::Stopped).and_then(|e| closed.and(stopped).and(parted).map(|()| e))
    }
}

/// Says what is served. A standard output that is closed, or whose reader stalls, is no reason to stop serving.
fn say(
    devices: &[Device],
    (network, metrics): (Option<&nvme::Server>, Option<&Metrics>),
    (joined, join): (&[Parts], bool),
) {
    let mut lines = Vec::new();
    let udev = Instant::now() + UDEV;
    for d in devices {
        lines.push(d.line());
        lines.extend(d.watched(udev));
    }
    lines.extend(network.iter().flat_map(|network| network.lines()));
    lines.extend(metrics.map(Metrics::line));
    lines.extend(joined.iter().map(|parts| match join {
        true => format!("{}  joins {}", parts.path().display(), parts.names()),
        false => format!("to join them:\n{}", parts.command()),
    }));
    said::say(To::Stdout, lines.join("\n") + "\n");
}

/// Removes a device that has no server.
fn remove(device: &str, out: &mut dyn Write) -> Result<(), Failure> {
    let name = Path::new(device).file_name().and_then(|n| n.to_str()).unwrap_or_default();
    let number = name.strip_prefix("ublkb").unwrap_or(name).parse().map_err(|_| {
        Failure::usage(format!("{device} is not a ublk device")).hint("--remove /dev/ublkb0")
    })?;
    Ublk::open()?.remove(number, Some(Path::new(server_client::DIRECTORY)))?;
    Ok(writeln!(out, "/dev/ublkb{number} is removed")?)
}
