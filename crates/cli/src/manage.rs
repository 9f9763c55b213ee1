//! `zoneplug reset | open | close | finish | flush | resync`: management of zones.

use crate::confirm::Consent;
use crate::disk::{Opened, Use, forced, warn_if_not_kept};
use crate::failure::Failure;
use crate::window::Window;
use crate::zones::{self, RangeArgs, count, holds_data, number, numbers, size, written};
use crate::{json, term};
use serde::Serialize;
use std::io::Write;
use zoneplug_core::zone::{Condition, ZoneInfo, ZoneType};
use zoneplug_core::{Op, Sector, ZoneNo};
use zoneplug_host::{AsyncDisk, Specification};

/// Commands at the device at a time.
const DEPTH: u16 = 32;

/// Flags of `zoneplug reset`, `open`, `close` and `finish`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The disk: a file made by zoneplug create, or a specification such as mem,zones=64
    #[arg(value_name = "DISK")]
    spec: String,

    #[command(flatten)]
    range: RangeArgs,

    #[command(flatten)]
    consent: Consent,

    /// Print which zones the command changed, and which it skipped
    #[arg(short, long)]
    verbose: bool,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// The results of a command, for JSON.
#[derive(Debug, Serialize)]
struct Done {
    command: &'static str,
    zones: Vec<u32>,
    /// Zones of the range that the command skips: conventional, read-only or offline ones.
    skipped: Vec<u32>,
}

/// Whether a command applies to a zone: to a sequential and writable one; a close only to an active one.
fn applies_to(op: Op, z: &ZoneInfo) -> bool {
    let dead = matches!(z.cond, Condition::ReadOnly | Condition::Offline);
    z.zone_type == ZoneType::SeqWriteRequired
        && !dead
        && (op != Op::ZoneClose || z.cond.is_active())
}

/// Runs a management command.
pub(crate) fn run(op: Op, args: &Args, out: &mut dyn Write) -> Result<(), Failure> {
    let mut disk = Opened::of(forced(args.spec.parse()?, args.consent)?, Use::Change)?;
    let range = args.range.whole_zones(&disk.geometry)?;
    let all = range.len() as u32 == disk.geometry.nr_zones();
    let found = disk.report(range)?;
    let g = &disk.geometry;
    let (mine, others): (Vec<&ZoneInfo>, Vec<&ZoneInfo>) =
        found.iter().partition(|z| applies_to(op, z));
    let name = op.name().trim_start_matches("zone_");
    if mine.is_empty() {
        return Err(Failure::usage(format!("there is no zone to {name} in this range"))
            .hint("zoneplug report shows types and conditions"));
    }
    ask(op, &mine, args.consent, g)?;
    let done = Done {
        command: match op {
            Op::ZoneOpen => "open",
            Op::ZoneClose => "close",
            Op::ZoneFinish => "finish",
            _ => "reset",
        },
        zones: mine.iter().map(|z| number(g, z)).collect(),
        skipped: others.iter().map(|z| number(g, z)).collect(),
    };
    if all && op == Op::ZoneReset {
        disk.io.manage(Op::ZoneResetAll, Sector(0), 0)?;
    } else {
        let io = AsyncDisk::new(&disk.disk, DEPTH)?;
        // Zones are independent, so their commands may be in flight together. Only a limit of open zones connects them:
        // the order decides which of too many opens fail.
        let mut window = Window::new(usize::from(DEPTH));
        for z in &mine {
            window.make_room()?;
            window.push(io.manage(op, z.start, z.len_sectors));
        }
        window.finish()?;
    }
    warn_if_not_kept(&disk.spec);
    if args.json {
        return json::print(out, &done);
    }
    if args.verbose {
        let zones = count(mine.len(), "zone");
        term::print(out, &format!("{name}: {zones} ({})\n", numbers(&done.zones)))?;
        if !others.is_empty() {
            let text = numbers(&done.skipped);
            let zones = count(others.len(), "zone");
            term::print(out, &format!("skipped: {zones} ({text})\n"))?;
        }
    }
    Ok(())
}

/// Asks for consent if the command would destroy data or give up room.
fn ask(
    op: Op,
    mine: &[&ZoneInfo],
    consent: Consent,
    g: &zoneplug_core::zone::Geometry,
) -> Result<(), Failure> {
    let lossy = |z: &&&ZoneInfo| match op {
        Op::ZoneReset => holds_data(z),
        // Finishing does not change a full zone, and takes room but no data from an empty one.
        Op::ZoneFinish => holds_data(z) && z.cond != Condition::Full,
        _ => false,
    };
    let lost: Vec<&&ZoneInfo> = mine.iter().filter(lossy).collect();
    let list = numbers(&lost.iter().map(|z| number(g, z)).collect::<Vec<_>>());
    let bytes = |f: fn(&ZoneInfo) -> u64| size(lost.iter().map(|z| f(z)).sum::<u64>() << 9);
    let zones = count(lost.len(), "zone");
    let what = if op == Op::ZoneReset {
        format!("destroys the data of {zones} ({list}): {} written", bytes(written))
    } else {
        let room = bytes(|z| z.capacity_sectors - written(z));
        format!("fills {zones} that are partly written ({list}), and gives up {room} of room")
    };
    consent.ask(&what, lost.len())
}

/// Flags of `zoneplug flush`.
#[derive(Debug, clap::Args)]
pub(crate) struct FlushArgs {
    /// The disk
    #[arg(value_name = "DISK")]
    spec: String,
}

/// Makes acknowledged data durable.
pub(crate) fn flush(args: &FlushArgs) -> Result<(), Failure> {
    // A flush of a drive's cache changes no data, so a drive that is in use may be flushed.
    let spec = Specification::parse(&args.spec)?;
    let usage = if spec.drive().is_some() { Use::Look } else { Use::Change };
    Ok(Opened::of(spec, usage)?.io.flush()?)
}

/// Flags of `zoneplug resync`.
#[derive(Debug, clap::Args)]
pub(crate) struct ResyncArgs {
    /// The disk
    #[arg(value_name = "DISK")]
    spec: String,

    #[command(flatten)]
    range: RangeArgs,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// Reads the zones of the device again, and corrects the layer's state of them.
pub(crate) fn resync(args: &ResyncArgs, out: &mut dyn Write) -> Result<(), Failure> {
    let mut disk = Opened::new(&args.spec, Use::Look)?;
    let range = args.range.zones(&disk.geometry)?;
    let known = |disk: &Opened, z: u32| disk.disk.disk().cached_zone(ZoneNo(z)).ok();
    let before: Vec<_> = range.clone().map(|z| known(&disk, z)).collect();
    disk.disk.revalidate()?;
    let start = disk.geometry.zone_start(ZoneNo(range.start));
    let found = disk.io.resync(start, range.len() as u32)?;
    let corrected: Vec<u32> =
        range.zip(&before).filter(|(z, b)| known(&disk, *z) != **b).map(|(z, _)| z).collect();
    #[derive(Serialize)]
    struct Resynced {
        zones: usize,
        corrected: Vec<u32>,
    }
    let r = Resynced { zones: found.len(), corrected };
    if args.json {
        return json::print(out, &r);
    }
    let (all, fixed) = (count(r.zones, "zone"), r.corrected.len());
    let list = zones::numbers(&r.corrected);
    let list = match fixed {
        0 => list,
        1 => format!(" (zone {list})"),
        _ => format!(" (zones {list})"),
    };
    term::print(out, &format!("{all} read, {fixed} corrected{list}\n"))
}
