//! `zoneplug-lab bench` with a user's own workload.

use super::Args;
use super::report::Own;
use super::watch::watch;
use crate::confirm::Consent;
use crate::disk::{Named, forced};
use crate::failure::Failure;
use crate::interrupt::{self, is_asked};
use crate::load::arena::Arena;
use crate::load::group::Group;
use crate::load::verify::{self, Enough};
use crate::outcome::{Build, failure_of};
use crate::progress::Progress;
use crate::virtual_disk::warn_of_ways_that_never_wait;
use crate::{json, term, zones};
use std::io::Write;
use std::time::Duration;
use zoneplug_core::Sector;
use zoneplug_core::disk::{DiskConfig, Mode};
use zoneplug_host::{BlockingDisk, HostedDisk, Specification};
use zoneplug_models::measure::{Names, check};
use zoneplug_models::work::{Rw, Work};

/// Number of slices of the run. The figures are those of the median slice.
const SLICES: u32 = 20;

/// Asks before a benchmark resets zones of a disk that holds data.
fn spare_data(named: &Named, consent: Consent) -> Result<(), Failure> {
    let disk = HostedDisk::open(named.device.clone(), DiskConfig::default())?;
    let zones = BlockingDisk::new(&disk)?.report(Sector(0), disk.disk().geometry().nr_zones())?;
    let lost = zones.iter().filter(|z| zones::holds_data(z)).count();
    if lost == 0 {
        return Ok(());
    }
    let what = format!("destroys the data of {} of {}", zones::count(lost, "zone"), named.spec);
    // Asks even for one zone: users do not expect a benchmark to destroy data.
    consent.ask(&what, lost.max(2))
}

/// Runs the workload that `args` names.
pub(crate) fn run(args: &Args, spec: Specification, out: &mut dyn Write) -> Result<(), Failure> {
    args.ways.check_real_time()?;
    let named = Named::of(&forced(spec, args.consent)?)?;
    let work = work(args, &named);
    let ways = args.ways.of(&named.config, &args.mode)?;
    let [way] = &ways[..] else {
        return Err(Failure::usage("more than one mode, policy or scheduler in real time")
            .hint("one at a time, or a disk in virtual time, such as --disk sim-smr30"));
    };
    let config = way.config.clone();
    let jobs = args.numjobs.unwrap_or(1);
    let time = args.runtime.unwrap_or(Duration::from_secs(5));
    let (geometry, limits) = (named.device.geometry(), named.device.limits());
    check(work, geometry, limits, config.mode, &NAMES)?;
    if args.verify && !named.keeps_data {
        return Err(Failure::usage("--verify on a disk that keeps no data")
            .hint("--disk mem, with the same options"));
    }
    warn_of_ways_that_never_wait(&ways, named.device.limits().rotational);
    spare_data(&named, args.consent)?;

    let mut arena = Arena::default();
    let progress = Progress::new(time);
    progress.say(format!("{} on {}", work.rw, named.spec));
    let mut group = Group::new(&named, config.clone(), work, jobs, &mut arena)?;
    let socket = args.socket.as_ref().map(|path| {
        let clients = group.watch();
        watch(path, &named.spec, group.disk().clone(), work.rw, clients)
    });
    let socket = socket.transpose()?;
    group.run_slice(time / SLICES / 4, false)?;
    for _ in 0..SLICES {
        // A slice that a signal cut short counts too.
        group.run_slice(time / SLICES, true)?;
        progress.done(time / SLICES);
        if is_asked() {
            break;
        }
    }
    drop(socket);
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
        disk: named.spec.to_string(),
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
        term::print_report(out, &own.to_string())?;
    }
    failure.map_or(Ok(()), Err)
}

/// The work that `args` describe.
fn work(args: &Args, named: &Named) -> Work {
    let depth = args.iodepth.unwrap_or(1);
    Work {
        rw: args.rw.unwrap_or(Rw::Write),
        block_sectors: args.bs.unwrap_or(8),
        depth,
        tags: args.tags.or(named.tags).unwrap_or(depth.min(4096) as u16),
    }
}

/// The names of the flags of a workload.
pub(super) const NAMES: Names = Names { bs: "--bs", rw: "--rw", zone_lock: "--zone-lock" };
