//! One's own workload.

use super::Args;
use super::arena::Arena;
use super::group::Group;
use super::progress::Progress;
use super::report::{Build, Own, failure_of};
use super::verify::{self, Enough};
use super::work::{Rw, Work};
use crate::confirm::Yes;
use crate::disk::{Named, forced};
use crate::failure::{Failure, Kind};
use crate::interrupt::{self, is_asked};
use crate::virtual_disk::say_what_never_waits;
use crate::{json, term, zones};
use std::io::Write;
use std::time::Duration;
use zoneplug_core::disk::{DiskConfig, Mode};
use zoneplug_core::{Bytes, Sector};
use zoneplug_host::{BlockingDisk, HostedDisk};

/// Slices of the run: the figures are those of the median one.
const SLICES: u32 = 20;

/// Asks before a benchmark resets zones of a disk that holds data.
fn spare_data(named: &Named, yes: Yes) -> Result<(), Failure> {
    let disk = HostedDisk::open(named.device.clone(), DiskConfig::default())?;
    let zones = BlockingDisk::new(&disk)?.report(Sector(0), disk.disk().geometry().nr_zones())?;
    let lost = zones.iter().filter(|z| zones::holds_data(z)).count();
    if lost == 0 {
        return Ok(());
    }
    let what = format!("destroys the data of {} of {}", zones::count(lost, "zone"), named.spec);
    // Asks even for one zone: users do not expect a benchmark to destroy data.
    yes.ask(&what, lost.max(2))
}

/// Runs the workload that `args` names.
pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<(), Failure> {
    let named = Named::open(&forced(args.disk.as_deref().unwrap_or("null"), args.yes))?;
    let work = work(args, &named);
    let [config] =
        <[DiskConfig; 1]>::try_from(args.ways.of(&named.config, &args.mode)).map_err(|_| {
            Failure::usage("more than one mode, policy or scheduler in real time")
                .hint("one at a time, or a disk in virtual time, such as --disk sim-smr30")
        })?;
    let jobs = args.numjobs.unwrap_or(1);
    let time = args.runtime.unwrap_or(Duration::from_secs(5));
    check(&named, &config, work, args.verify)?;
    say_what_never_waits(std::slice::from_ref(&config), named.device.limits().rotational);
    spare_data(&named, args.yes)?;

    let mut arena = Arena::default();
    let progress = Progress::new(time);
    progress.say(format!("{} on {}", work.rw, named.spec));
    let mut group = Group::new(&named, config.clone(), work, jobs, &mut arena)?;
    group.slice(time / SLICES / 4, false)?;
    for _ in 0..SLICES {
        // A slice that was cut short counts too.
        group.slice(time / SLICES, true)?;
        progress.done(time / SLICES);
        if is_asked() {
            break;
        }
    }
    let clients = group.kind();
    let measure = group.measure();
    let verified = if args.verify && !is_asked() {
        progress.say("verifying");
        let enough = Enough { bytes: 256 << 20, time: time.max(Duration::from_secs(1)) };
        Some(verify::pass(&named, config.clone(), work, jobs, enough, &mut arena)?)
    } else {
        None
    };
    drop(progress);
    let own = Own {
        build: Build::this(),
        partial: is_asked(),
        disk: named.spec,
        rw: work.rw,
        block_bytes: u64::from(work.block_sectors) * 512,
        iodepth: work.depth,
        tags: work.tags,
        numjobs: jobs,
        clients,
        mode: config.mode.name(),
        measure,
        verified,
    };
    let refused = own.measure.all_refused() + own.verified.map_or(0, |v| v.refused);
    let wrong = own.verified.map_or(0, |v| v.wrong);
    let failure = failure_of(refused, wrong, config.mode == Mode::Plug);
    let failure = interrupt::or_partial(own.partial, failure);
    if args.json {
        return json::end(out, &own, failure);
    }
    if args.csv {
        out.write_all(own.csv().as_bytes())?;
    } else {
        term::print(out, &own.to_string())?;
    }
    failure.map_or(Ok(()), Err)
}

/// What `args` ask for.
pub(super) fn work(args: &Args, named: &Named) -> Work {
    let depth = args.iodepth.unwrap_or(1);
    Work {
        rw: args.rw.unwrap_or(Rw::Write),
        block_sectors: args.bs.unwrap_or(8),
        depth,
        tags: args.tags.or(named.tags).unwrap_or(depth.min(4096) as u16),
    }
}

/// Whether the disk can do it.
pub(super) fn check(
    named: &Named,
    config: &DiskConfig,
    work: Work,
    verify: bool,
) -> Result<(), Failure> {
    let l = named.device.limits();
    let unit =
        if work.rw.is_read() { l.logical_block_sectors } else { l.write_granularity_sectors };
    let bytes = |sectors: u32| Bytes(u64::from(sectors) * 512);
    if !work.block_sectors.is_multiple_of(unit) {
        return Err(Failure::usage(format!(
            "--bs {} is not a multiple of the disk's {}",
            bytes(work.block_sectors),
            bytes(unit)
        ))
        .hint(format!("--bs {}", bytes(work.block_sectors.next_multiple_of(unit)))));
    }
    let append_max = l.visible_append_sectors(named.device.geometry().zone_sectors());
    if work.rw == Rw::Append && work.block_sectors > append_max {
        return Err(Failure::usage(format!(
            "--bs {} is more than the disk appends at a time",
            bytes(work.block_sectors)
        ))
        .hint(format!("--bs {} or less", bytes(append_max))));
    }
    if work.rw == Rw::Append && config.mode != Mode::Plug && l.zone_append_max_sectors == 0 {
        let what = format!("mode {} has no zone append on this disk", config.mode);
        return Err(Failure::new(Kind::NotSupported, what)
            .hint("--mode plug, which emulates it, or append=native in the specification"));
    }
    if verify && !named.keeps_data {
        return Err(Failure::usage("--verify on a disk that keeps no data")
            .hint("--disk mem, with the same options"));
    }
    if l.read_only && !work.rw.is_read() {
        return Err(Failure::usage("writes on a disk that is read-only").hint("--rw randread"));
    }
    Ok(())
}
