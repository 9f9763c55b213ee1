//! `zoneplug serve`: disks as block devices of this machine's Linux, or as namespaces for others, until a signal comes.

pub(crate) mod access;
pub(crate) mod answer;
mod check_config;
mod clients;
mod config_file;
mod confine;
mod disk_events;
mod end;
mod handover;
mod join;
#[cfg(test)]
mod log_pages;
mod logs;
mod measure;
mod metrics;
mod network_attributes;
mod notify;
mod nvme;
pub(crate) mod pause;
mod place;
mod served;
mod settings;
pub(crate) mod socket;
pub(crate) mod zone_table;

use crate::disk::Named;
use crate::failure::{Failure, Kind};
use crate::plain::plain;
use crate::said::{self, To};
use crate::{background, server_client, term};
use answer::{Served, Serving};
use disk_events::{DiskEvents, Watched};
use end::{End, flush, give_up, part, stop};
use handover::{HandOver, Takeover, Wanted};
use join::Parts;
use metrics::Metrics;
use settings::{BlockDisk, Settings};
use socket::Socket;
use std::io::Write;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use zoneplug_core::poison::lock;
use zoneplug_core::zone::Geometry;
use zoneplug_core::{Bytes, Sector};
use zoneplug_host::signals::{Event, Signals};
use zoneplug_host::ublk::{Ublk, UblkDisk, UblkOptions, is_watched, slices};
use zoneplug_host::{DiskSpec, HostedDisk, ServedCounters, is_volatile};

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
    /// if this one could not go on. Without such a server this is a start like any other
    #[arg(long, conflicts_with = "no_recovery")]
    takeover: bool,

    /// Remove the devices at the end also if they are in use: mounted, or open in a program. Without it these stay for the
    /// next server, and their I/O waits
    #[arg(long)]
    remove_on_exit: bool,

    /// Return when the disks are served, and go on in the background
    #[arg(long)]
    background: bool,

    /// Take over a device although its disk is in another file than when its server died: it was moved there, and is no
    /// copy
    #[arg(long)]
    moved: bool,

    /// Join the devices of a disk that has more zones than Linux takes in one (16,384) by the device mapper; without it
    /// the command for that is printed
    #[arg(long)]
    join: bool,

    /// The socket for zoneplug status, attr and zone-wplugs, instead of one in /run/zoneplug
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,

    #[command(flatten)]
    access: access::AccessArgs,

    #[command(flatten)]
    logs: logs::LogArgs,

    /// Read the disks and how they are served from a file. A flag overrides the key of its name (docs/serve-config.md)
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Only check the flags and the file, and show what would be served. Nothing is opened for writing
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

/// How long udev may take to see the devices of a server.
const UDEV: Duration = Duration::from_secs(5);
/// The rule, which packages install.
const UDEV_RULE: &str = include_str!("../../udev/61-zoneplug.rules");

/// A device and its disk, from start to end.
struct Device {
    disk: HostedDisk,
    spec: String,
    /// `None` once it is stopped.
    device: Arc<Mutex<Option<UblkDisk>>>,
    path: PathBuf,
    /// The zones that it shows, if they are not all of the disk.
    zones: Option<Range<u32>>,
}

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
    let settings = Settings::read(args, line)?;
    if args.check_config.is_some() {
        return check_config::run(&settings, out);
    }
    measure::begin();
    let plan = settings.plan()?;
    let access = settings.access()?;
    if args.background {
        return background::start(out);
    }
    // Before any thread is there.
    let signals = Signals::block()
        .map_err(|e| Failure::io(format!("signals: {e}")).hint("more open files (ulimit -n)"))?;
    logs::start(settings.args.logs)?;
    said::begin_to_serve();
    confine::drop_rights(access.gives_away())?;
    logs::write()?;
    let ended = begin(&settings, plan, access, signals);
    logs::finish();
    said::finish();
    ended
}

/// Opens what is served, or takes it over, and serves it until the end.
fn begin(
    settings: &Settings,
    plan: Option<nvme::Plan>,
    access: access::Access,
    signals: Signals,
) -> Result<(), Failure> {
    let args = &settings.args;
    let ublk = if settings.block.is_empty() { None } else { Some(Ublk::open()?) };
    let takes_over = args.takeover && take_over(settings, plan.as_ref())?;
    let served = serve(settings, (ublk, plan), access, signals);
    if takes_over && served.is_err() {
        log::error!(
            event = "takeover-failed";
            "the last server has ended; its devices wait for this command without --takeover"
        );
    }
    served
}

/// Has the server of these disks end and leave them to this one. False: they have no server.
fn take_over(settings: &Settings, plan: Option<&nvme::Plan>) -> Result<bool, Failure> {
    let args = &settings.args;
    let ublk: Vec<String> = settings.block.iter().map(|d| d.spec.clone()).collect();
    let wanted = Wanted {
        ublk: &ublk,
        over_network: plan.map_or(&[], nvme::Plan::specs),
        addresses: plan.map_or_else(Vec::new, nvme::Plan::addresses),
        // Numbers of their own are kept by the devices, in whatever order they are.
        id: args.device.id.filter(|_| settings.block.iter().all(|d| !d.own_id)),
        moved: args.moved,
    };
    // A specification that is wrong shows while the disks are still served.
    for spec in wanted.ublk.iter().chain(wanted.over_network) {
        DiskSpec::parse_to_look(spec).map_err(|e| settings.of_disk(spec, e))?;
    }
    let takeover = Takeover::find(&wanted, args.socket.as_deref())?;
    let any = !takeover.is_none();
    takeover.take()?;
    Ok(any)
}

/// Serves until the end.
fn serve(
    settings: &Settings,
    (ublk, plan): (Option<Ublk>, Option<nvme::Plan>),
    access: access::Access,
    signals: Signals,
) -> Result<(), Failure> {
    let (args, block) = (&settings.args, &settings.block);
    // All disks or none: a restart starts all of them. What is wrong with a disk shows before any is served.
    let (mut disks, mut numbers) = (Vec::new(), settings.numbers());
    for (disk, ublk) in block.iter().zip(ublk.iter().cycle()) {
        let spec = &disk.spec;
        let open = || {
            if !is_volatile(spec) {
                // Checked before the disk is opened for writing, because that changes its file: a copy that is refused
                // stays unchanged.
                let geometry = *DiskSpec::parse_to_look(spec)?.device.geometry();
                let options = options(args, disk, numbers.first(disk), None, None);
                ublk.waiting(spec, &geometry, &options)?;
            }
            let named = Named::open_to_serve(spec)?;
            let tags = named.tags;
            Ok((HostedDisk::open_named(named)?, spec, tags))
        };
        let opened = open().map_err(|f: Failure| settings.of_disk(spec, f))?;
        numbers.take(disk, slices(&opened.0.disk().geometry()).len() as u32);
        disks.push(opened);
    }
    let over_network = plan.map(|plan| plan.open(&disks)).transpose()?;
    let mut numbers = settings.numbers();
    let mut devices = Vec::new();
    for (((disk, spec, tags), of), ublk) in disks.into_iter().zip(block).zip(ublk.iter().cycle()) {
        let first = numbers.first(of);
        let parts = shown(&disk.disk().geometry());
        numbers.take(of, parts.len() as u32);
        for (zones, nth) in parts.into_iter().zip(0..) {
            let options = options(args, of, first.map(|id| id + nth), tags, zones);
            match start(ublk, disk.clone(), spec, &options, &signals) {
                Ok(device) => devices.push(device),
                Err(f) => return Err(give_up(devices, settings.of_disk(spec, f))),
            }
        }
    }
    let joined = parts(&devices);
    let to_join = if args.join { &joined[..] } else { &[] };
    let to_part = match to_join.iter().map(Parts::join).collect::<Result<Vec<_>, _>>() {
        Ok(all) => all,
        Err(f) => return Err(give_up(devices, f)),
    };
    let network = over_network.map(|disks| nvme::Server::start(disks, &signals)).transpose();
    let network = match network {
        Ok(network) => network,
        Err(f) => return Err(give_up(devices, f)),
    };
    let again = || {
        let over_network = network.iter().flat_map(nvme::Server::served);
        devices.iter().map(Device::served).chain(over_network).collect()
    };
    let at = args.measured.address()?;
    let metrics = match at.map(|at| Metrics::open(at, again())).transpose() {
        Ok(metrics) => metrics,
        Err(f) => return Err(give_up(devices, f)),
    };
    let served = devices.iter().map(Device::served);
    let served: Vec<Served> = served.chain(network.iter().flat_map(nvme::Server::served)).collect();
    let events = match DiskEvents::start(Watched::of(&served)) {
        Ok(events) => events,
        Err(f) => return Err(give_up(devices, f)),
    };
    let notifier = signals.notifier();
    let hand_over = HandOver::new(move || notifier.notify());
    let serving = Serving { disks: served, hand_over: hand_over.clone() };
    let socket = match Socket::open(args.socket.as_deref(), access, serving) {
        Ok(socket) => Some(socket),
        // Only root has a place for it without being asked for one, and only block devices need root.
        Err(f) if block.is_empty() && args.socket.is_none() => {
            let (_, what, hint) = f.parts();
            term::note(&format!(
                "{what}; zoneplug status does not show this server without {hint}"
            ));
            None
        }
        Err(f) => {
            drop(metrics);
            return Err(give_up(devices, f));
        }
    };
    if let Err(f) = confine::filter_calls() {
        drop((socket, metrics));
        return Err(give_up(devices, f));
    }
    // A standard output that is closed, or whose reader stalls, is no reason to stop serving.
    let mut lines = Vec::new();
    let udev = Instant::now() + UDEV;
    for d in &devices {
        lines.push(d.line());
        lines.extend(d.watched(udev));
    }
    lines.extend(network.iter().flat_map(nvme::Server::lines));
    lines.extend(metrics.as_ref().map(Metrics::line));
    lines.extend(joined.iter().map(|parts| match args.join {
        true => format!("{}  joins {}", parts.path().display(), parts.names()),
        false => format!("to join them:\n{}", parts.command()),
    }));
    said::say(To::Stdout, lines.join("\n") + "\n");
    devices.iter().for_each(Device::log_start);
    network.iter().for_each(nvme::Server::log_start);
    notify::ready();
    let ended = end::wait(&signals, &devices, network.as_ref(), || hand_over.is_asked());
    if let Ok(End::HandedOver) = ended {
        drop(socket);
        log::info!(event = "handed-over"; "another server takes the disks over");
        end::leave_all(devices, network, events);
    }
    notify::stopping();
    let why = if ended.is_ok() { "a signal has come" } else { "it failed" };
    log::info!(event = "stop"; "the server ends: {why}");
    // A second signal ends this at once; what Linux then does with the devices depends on --no-recovery.
    let impatient = std::thread::Builder::new().name("zoneplug-signals".to_owned());
    let _ = impatient.spawn(move || {
        loop {
            if let Ok(Event::Signal(signal)) = signals.wait() {
                std::process::exit(128 + signal);
            }
        }
    });
    drop((socket, metrics));
    let outlive = devices.iter().all(Device::outlives);
    let remove = args.remove_on_exit || !outlive;
    let parted = to_part.into_iter().try_for_each(|joined| part(joined, remove));
    // An error that ended the server is reported before an error of its stop.
    let closed = network.map_or(Ok(()), nvme::Server::stop);
    let stopped = stop(devices, args.remove_on_exit);
    drop(events);
    ended.map(|_| ()).and(closed).and(stopped).and(parted)
}

/// The zones of each device that a disk is served as; `None`: all of them.
fn shown(geometry: &Geometry) -> Vec<Option<Range<u32>>> {
    let all = slices(geometry);
    if all.len() > 1 { all.into_iter().map(Some).collect() } else { vec![None] }
}

/// The devices of each disk that has several.
fn parts(devices: &[Device]) -> Vec<Parts> {
    let mut all: Vec<Parts> = Vec::new();
    for d in devices {
        let Some(zones) = &d.zones else { continue };
        let sectors = zones.len() as u64 * u64::from(d.disk.disk().geometry().zone_sectors());
        let one = (d.path.clone(), sectors);
        match all.last_mut().filter(|_| zones.start > 0) {
            Some(Parts(parts)) => parts.push(one),
            None => all.push(Parts(vec![one])),
        }
    }
    all
}

/// How a device of a disk is served.
fn options(
    args: &Args,
    disk: &BlockDisk,
    id: Option<u32>,
    tags: Option<u16>,
    zones: Option<Range<u32>>,
) -> UblkOptions {
    let usual = UblkOptions::default();
    UblkOptions {
        id,
        queues: disk.device.queues.unwrap_or(usual.queues),
        depth: disk.device.depth,
        tags,
        recovery: !disk.device.no_recovery,
        // Not beside --socket: a server restarted with another socket must find it, and it must be in memory.
        records: Some(PathBuf::from(server_client::DIRECTORY)),
        moved: args.moved,
        zones,
        latencies: args.measured.times(),
    }
}

/// Has a disk served.
fn start(
    ublk: &Ublk,
    disk: HostedDisk,
    spec: &str,
    options: &UblkOptions,
    signals: &Signals,
) -> Result<Device, Failure> {
    let notifier = signals.notifier();
    let device = ublk.serve(&disk, spec, options, move || notifier.notify())?;
    let path = device.path();
    let (spec, zones) = (spec.to_owned(), options.zones.clone());
    Ok(Device { disk, spec, device: Arc::new(Mutex::new(Some(device))), path, zones })
}

impl Device {
    fn recovered(&self) -> bool {
        lock(&self.device).as_ref().is_some_and(UblkDisk::recovered)
    }

    /// Whether Linux keeps it for another server.
    fn outlives(&self) -> bool {
        lock(&self.device).as_ref().is_some_and(UblkDisk::outlives)
    }

    /// `/dev/ublkb0  po2@disk.zbd  1G, 8 zones of 128M`.
    fn line(&self) -> String {
        let g = self.disk.disk().geometry();
        let zone = Sector(u64::from(g.zone_sectors())).to_bytes();
        let (zones, size) = (g.nr_zones(), g.capacity_bytes());
        let whole = g.capacity_bytes().0 / zone.0 * zone.0;
        let mut line = format!(
            "{}  {}  {size}, {zones} zones of {zone}",
            self.path.display(),
            plain(&self.spec)
        );
        if let Some(zones) = &self.zones {
            line += &format!(", of which this shows {} from zone {} on", zones.len(), zones.start);
        } else if whole != size.0 {
            line += &format!(", shown without the shorter last one: {}", Bytes(whole));
        }
        let unrecorded =
            lock(&self.device).as_ref().and_then(|d| d.unrecorded().map(str::to_owned));
        if self.recovered() {
            line += ", taken over";
            if let Some(why) = unrecorded {
                line += &format!(", and appends that were in flight are appended again ({why})");
            }
        } else if let Some(why) = unrecorded {
            line += &format!(", without a record of appends for the next server ({why})");
        } else if is_volatile(&self.spec) {
            line += ", in memory: gone when this process ends";
        }
        line
    }

    /// `ublkb0`.
    fn name(&self) -> &str {
        self.path.file_name().and_then(|n| n.to_str()).unwrap_or_default()
    }

    fn log_start(&self) {
        let (disk, spec, line) = (self.name(), &*self.spec, self.line());
        if self.recovered() {
            log::info!(event = "takeover", disk, spec; "{line}");
        } else {
            log::info!(event = "disk-start", disk, spec; "{line}");
        }
    }

    /// What it costs that udev watches it, if udev does. Waits until `end` for udev to have seen it.
    fn watched(&self, end: Instant) -> Option<String> {
        is_watched(&self.path, end).then(|| {
            format!(
                "{} is watched by udev, which reads it through the page cache after each close: writes of io_uring may fail; to end \
                 that: zoneplug serve --udev-rule > /etc/udev/rules.d/61-zoneplug.rules",
                self.path.display()
            )
        })
    }

    /// Whether it has ended by itself.
    fn look(&self) -> Result<(), Failure> {
        let device = lock(&self.device);
        let (path, hint) =
            (self.path.display(), "start it again; dmesg has what the kernel says of it");
        match device.as_ref() {
            Some(d) if d.failure().is_some() => {
                let why = d.failure().unwrap_or_default();
                Err(Failure::io(format!("{path}: {why}")).hint(hint))
            }
            Some(d) if !d.is_served() => {
                let what = format!("{path} was stopped from outside");
                Err(Failure::new(Kind::Device, what).hint(hint))
            }
            _ => Ok(()),
        }
    }

    fn served(&self) -> Served {
        let device = self.device.clone();
        Served {
            name: self.name().to_owned(),
            spec: self.spec.clone(),
            disk: self.disk.clone(),
            recovered: self.recovered(),
            outlives: self.outlives(),
            counters: Box::new(move || {
                lock(&device).as_ref().map_or_else(ServedCounters::default, UblkDisk::counters)
            }),
            network: None,
        }
    }
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
