//! `zoneplug serve`: serves disks as block devices of this machine, over NVMe/TCP or over iSCSI, until a signal comes.

mod access_args;
mod check_config;
mod config_file;
mod iscsi_args;
mod log_args;
mod metrics_args;
mod network_args;
mod settings;

use crate::background;
use crate::disk::Named;
use crate::failure::{Attempt, Failure};
use crate::said::{self, To};
use crate::term;
use settings::{ClientAccess, Settings};
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use zoneplug_host::signals::Signals;
use zoneplug_host::ublk::Ublk;
use zoneplug_server::doors::NetworkPlans;
use zoneplug_server::doors::iscsi::IscsiDoor;
use zoneplug_server::doors::nvme_tcp::NvmeTcpDoor;
use zoneplug_server::doors::ublk::{self, Planned, Rules, UblkDoor};
use zoneplug_server::{Access, Announcement, Config, Doors, Ended, Server, Takeover, doors, logs};

/// Flags of `zoneplug serve`. Those that describe a server are also the keys of its file (settings.rs).
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Args {
    /// A disk to serve as /dev/ublkbN: po2@disk.zbd,qd1=1. Repeat it for more disks
    #[arg(long, value_name = "SPEC")]
    ublk: Vec<String>,

    #[command(flatten)]
    network: network_args::NetworkArgs,

    #[command(flatten)]
    scsi: iscsi_args::IscsiArgs,

    #[command(flatten)]
    device: settings::DeviceArgs,

    #[command(flatten)]
    measured: metrics_args::MetricsArgs,

    /// Take the disks over from the server that has them, while they are in use: an upgrade. Nothing happens to that server
    /// if this one could not go on. Without such a server this is a start like any other. With the id of a process only
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
    access: access_args::AccessArgs,

    #[command(flatten)]
    logs: log_args::LogArgs,

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
    #[arg(long, value_name = "DEVICE", conflicts_with_all = ["ublk", "nvme_tcp", "iscsi", "config", "check_config"])]
    remove: Option<String>,

    /// Print a rule for udev: served devices are not watched. For /etc/udev/rules.d/61-zoneplug.rules
    #[arg(long, conflicts_with_all = ["ublk", "remove", "nvme_tcp", "iscsi", "config", "check_config"])]
    udev_rule: bool,
}

/// The udev rule, which packages install too.
const UDEV_RULE: &str = include_str!("../../udev/61-zoneplug.rules");

/// Runs the command. `line`: the parsed command line.
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
        zoneplug_server::refused(f);
    }
    ended
}

fn serve(args: &Args, line: &clap::ArgMatches, out: &mut dyn Write) -> Result<(), Failure> {
    let settings = Settings::read(args, line)?;
    let served = serve_as(&settings, out);
    served.map_err(|f| settings.placed(f))
}

fn serve_as(settings: &Settings, out: &mut dyn Write) -> Result<(), Failure> {
    if settings.args.check_config.is_some() {
        return check_config::run(settings, out);
    }
    let clients = settings.client_access()?;
    if settings.args.background {
        return background::start(out);
    }
    zoneplug_server::raise_open_files();
    // Signals must be blocked before any thread is started.
    let signals =
        Signals::block().map_err(|e| Failure::of_system(Attempt::Descriptor, "signals", e))?;
    logs::start(settings.args.logs.level())?;
    said::begin_to_serve();
    zoneplug_server::drop_rights(clients.access.gives_away())?;
    logs::write()?;
    let ended = begin(settings, clients, signals);
    logs::finish();
    said::finish();
    ended
}

/// Serves until the end.
fn begin(settings: &Settings, clients: ClientAccess, signals: Signals) -> Result<(), Failure> {
    let args = &settings.args;
    let ClientAccess { plans, access, metrics_at } = clients;
    // Planned only once: the paths may name other files when this server takes its disks back.
    let planned = planned(settings, &plans)?;
    let control = if planned.is_empty() { None } else { Some(Ublk::open()?) };
    let doors = requested(args, control, planned, plans);
    let config = config(args, access, metrics_at);
    let told = |told: Announcement| {
        // The server serves even if its standard output is closed or its reader stalls.
        said::say(To::Stdout, told.lines.join("\n") + "\n");
        background::let_go();
    };
    match Server::new(config, doors, signals).run(&told)? {
        Ended::Stopped => Ok(()),
        Ended::Left => {
            logs::finish();
            std::process::exit(0);
        }
    }
}

/// The configuration of the server.
fn config(args: &Args, access: Access, metrics_at: Option<SocketAddr>) -> Config {
    Config {
        takeover: match args.takeover {
            None => Takeover::No,
            Some(None) => Takeover::Any,
            Some(Some(pid)) => Takeover::Process(pid),
        },
        socket: args.socket.clone(),
        access,
        metrics_at,
        remove_on_exit: args.remove_on_exit,
        own_process: true,
        open: Named::open_to_serve,
        note: term::note,
    }
}

/// Plans what the doors are to serve.
fn planned(settings: &Settings, plans: &NetworkPlans) -> Result<Vec<Planned>, Failure> {
    doors::planned(&settings.block, settings.numbers(), plans, &settings.order())
}

/// The requested doors. Doors without `control` cannot be started.
fn requested(
    args: &Args,
    control: Option<Ublk>,
    planned: Vec<Planned>,
    plans: NetworkPlans,
) -> Doors {
    let rules = Rules { moved: args.moved, join: args.join, latencies: args.measured.times() };
    let mut doors: Doors = Vec::new();
    if !planned.is_empty() {
        doors.push(Box::new(UblkDoor::new(control, planned, rules)));
    }
    if let Some(plan) = plans.nvme_tcp {
        doors.push(Box::new(NvmeTcpDoor::new(plan, args.moved, args.forget_hosts)));
    }
    if let Some(plan) = plans.iscsi {
        doors.push(Box::new(IscsiDoor::new(plan)));
    }
    doors
}

/// Removes a device whose server has died.
fn remove(device: &str, out: &mut dyn Write) -> Result<(), Failure> {
    let name = Path::new(device).file_name().and_then(|n| n.to_str()).unwrap_or_default();
    let number = name.strip_prefix("ublkb").unwrap_or(name).parse().map_err(|_| {
        Failure::usage(format!("{device} is not a ublk device")).hint("--remove /dev/ublkb0")
    })?;
    ublk::remove(number)?;
    Ok(writeln!(out, "/dev/ublkb{number} is removed")?)
}
