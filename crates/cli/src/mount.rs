//! `zoneplug mount`: shows the zones of a disk as files, until the directory is unmounted or a signal comes.

use crate::background;
use crate::confirm::Consent;
use crate::disk::{Named, forced};
use crate::failure::{Attempt, Failure};
use crate::said::{self, To};
use crate::term;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;
use zoneplug_core::Bytes;
use zoneplug_core::plain;
use zoneplug_core::zone::{ZoneInfo, ZoneType};
use zoneplug_host::signals::{EndRequest, SignalEvent, Signals};
use zoneplug_host::{BlockingDisk, HeldDisks, HostedDisk, Specification};
use zoneplug_zonefs::{Group, Mount, MountError, MountOptions, NoSuperBlock, SuperBlock, Volume};

/// How long a second signal waits until the last writes are durable.
const LAST_WRITES: Duration = Duration::from_secs(5);
/// Sectors of a conventional zone that are checked for data before it is overwritten: 64 KiB.
const LOOK_SECTORS: u64 = 128;

/// Flags of `zoneplug mount`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The disk: disk.zbd, /dev/sda, mem,zones=64,zone-size=4M
    #[arg(value_name = "SPEC")]
    spec: String,

    /// Where its files appear
    #[arg(value_name = "DIR")]
    dir: PathBuf,

    /// Options, with commas between them: errors=remount-ro, zone-ro, zone-offline or repair (what an I/O error does);
    /// explicit-open (a file that is opened for writing has an open zone); buffered (sequential files also take writes
    /// without O_DIRECT: cp, tar, dd); ro; allow_other or no_allow_other (who may use the mount; all if root mounts)
    #[arg(short, long, value_name = "OPTIONS", default_value = "")]
    options: String,

    /// Make a new volume first, which empties the disk. A disk in memory has one made without asking
    #[arg(long)]
    format: bool,

    /// Of a new volume, as of mkzonefs: aggr_cnv (conventional zones are one file), uid=, gid=, perm=640, label=
    #[arg(long, value_name = "OPTIONS", default_value = "")]
    format_options: String,

    /// Return as soon as it is mounted, and leave the server in the background
    #[arg(short, long)]
    background: bool,

    #[command(flatten)]
    consent: Consent,
}

/// Runs the command.
pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<(), Failure> {
    let options: MountOptions = args.options.parse()?;
    let spec = forced(args.spec.parse()?, args.consent)?;
    let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    let new = SuperBlock::of_options(&args.format_options, uid, gid)?;
    if !args.format && !args.format_options.is_empty() && !spec.is_volatile() {
        let what = "--format-options are for a new volume, which is made only with --format";
        return Err(Failure::usage(what).hint("--format too, which empties the disk"));
    }
    // An error about missing parts of this system must come before the disk is changed.
    Mount::check(&args.dir)?;
    if args.background {
        return background::start(out);
    }
    // Signals must be blocked before any thread is started.
    let signals =
        Signals::block().map_err(|e| Failure::of_system(Attempt::Descriptor, "signals", e))?;
    let named = Named::open_to_serve(&spec, &HeldDisks::default())?;
    if !spec.keeps_data() {
        let what = format!("{} keeps no data, so it holds no volume", plain(&args.spec));
        return Err(Failure::usage(what).hint("mem instead of null"));
    }
    let disk = HostedDisk::open_named(named)?;
    prepare(args, &spec, &disk, &new)?;
    // From here on file accesses wait for this process, so it must not wait for the reader of its output.
    said::begin_to_serve();
    let notifier = signals.notifier();
    let warn = |text: &str| term::note(&plain(text));
    let mount =
        Mount::start(&disk, &spec.names(), &args.dir, options, warn, move || notifier.notify())?;
    said::say(To::Stdout, line(args, mount.volume()) + "\n");
    background::let_go();
    drop(disk);
    // Runs until the session ends by itself, or a signal asks for its end.
    while let Ok(SignalEvent::Signal(signal)) = signals.wait() {
        if let Err(e) = mount.unmount() {
            term::note(&plain(&format!("{} stays mounted: {e}", args.dir.display())));
            continue;
        }
        end_at_second_signal(args, &mount, signals, signal);
        break;
    }
    let ended = mount.wait().map_err(|e| failure(&e));
    said::finish();
    ended
}

/// Finds the volume on the disk, or makes one if there is none and the user allows it.
fn prepare(
    args: &Args,
    spec: &Specification,
    disk: &HostedDisk,
    new: &SuperBlock,
) -> Result<(), Failure> {
    let absent = || Ok::<_, Failure>(Volume::super_block_of(disk)? == Err(NoSuperBlock::Absent));
    let wanted = args.format || spec.is_volatile() && absent()?;
    if !wanted {
        return Ok(());
    }
    if args.format {
        let mut io = BlockingDisk::new(disk)?;
        let zones = io.report(zoneplug_core::Sector(0), u32::MAX)?;
        let mut written = 0;
        for zone in &zones {
            written += usize::from(holds_data(&mut io, zone)?);
        }
        let what = format!("empties {}, with data in {written} zones", plain(&args.spec));
        args.consent.ask(&what, if written > 0 { zones.len() } else { 0 })?;
    }
    Ok(Volume::format(disk, new)?)
}

/// Whether a zone holds data. A conventional zone is checked at its beginning, where file systems begin.
fn holds_data(io: &mut BlockingDisk, zone: &ZoneInfo) -> Result<bool, Failure> {
    if zone.zone_type == ZoneType::SeqWriteRequired {
        return Ok(zone.wp.0 != u64::MAX && zone.wp > zone.start);
    }
    let begin = io.read(zone.start, zone.capacity_sectors.min(LOOK_SECTORS))?;
    Ok(begin.as_slice().iter().any(|b| *b != 0))
}

/// The line that says what is mounted: `/mnt  disk.zbd  4 files in cnv, 59 in seq, of 48M`.
fn line(args: &Args, volume: &Volume) -> String {
    let count = |group: Group| match volume.files_of(group) {
        0 => None,
        1 => Some(format!("1 file in {}", group.name())),
        n => Some(format!("{n} files in {}", group.name())),
    };
    let counts: Vec<_> = Group::ALL.into_iter().filter_map(count).collect();
    let usage = volume.usage();
    let size = Bytes(usage.blocks * u64::from(usage.block));
    let read_only = if volume.is_read_only() { ", read-only" } else { "" };
    format!(
        "{}  {}  {}, {size} in all{read_only}",
        plain(&args.dir.display().to_string()),
        plain(&args.spec),
        counts.join(", ")
    )
}

/// Ends the process at a second signal, unless that comes with the first one. Open files keep the mount alive; the
/// second signal waits only for their last writes.
fn end_at_second_signal(args: &Args, mount: &Mount, signals: Signals, first: i32) {
    let dir = plain(&args.dir.display().to_string()).into_owned();
    let volume = mount.shared_volume();
    let request = EndRequest::begin();
    let watch = std::thread::Builder::new().name("zoneplug-signals".to_owned());
    let _ = watch.spawn(move || {
        while let Ok(event) = signals.wait() {
            if let SignalEvent::Signal(signal) = event
                && request.is_repeated()
            {
                term::note(&format!(
                    "{dir}: files were still open on it (signal {first}, then {signal})"
                ));
                let (closed, wait) = std::sync::mpsc::channel();
                std::thread::spawn(move || {
                    // The receiver is gone after a timeout.
                    let _ = closed.send(volume.close());
                });
                if !matches!(wait.recv_timeout(LAST_WRITES), Ok(Ok(()))) {
                    term::note(&format!("{dir}: what was written last is not durable"));
                }
                said::finish();
                std::process::exit(128 + signal);
            }
        }
    });
}

fn failure(e: &MountError) -> Failure {
    Failure::io(e.to_string()).hint("zoneplug report, to see what each zone holds")
}
