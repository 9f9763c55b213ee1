//! Proofs of a server that takes over, before the running one is asked to leave: that it would show clients what they
//! know, and that it has what it needs.

use super::compare::{self, Wanted, WantedDisk};
use super::inherited::Inherited;
use super::nvme;
use super::opening;
use super::predecessors;
use super::settings::Settings;
use super::stamp::Stamp;
use crate::failure::{Failure, Kind};
use rustix::fs::{StatVfsMountFlags, fstatvfs};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::collections::BTreeMap;
use zoneplug_host::nvme_tcp::DiskShape;
use zoneplug_host::{DiskMark, DiskSpec, HeldDisk, is_volatile, takes_writes};

/// The stamp of the last server of what is to be served over the network.
pub(super) fn stamp(settings: &Settings, plan: Option<&nvme::Plan>) -> Stamp {
    plan.map_or_else(Stamp::default, |plan| plan.stamp(settings.args.forget_hosts))
}

/// Finds the servers of the disks, if this one takes over, and checks that it shows clients what they know from these or, by
/// the stamp, from earlier ones. Nothing has changed for those servers yet.
pub(super) fn find(
    settings: &Settings,
    (blocks, plan): (&[opening::Planned<'_>], Option<&nvme::Plan>),
    stamp: &Stamp,
) -> Result<Inherited, Failure> {
    let takeover = settings.args.takeover;
    if takeover.is_none() && stamp.is_empty() {
        return Ok(Inherited::default());
    }
    let ublk = blocks.iter().map(|planned| {
        let spec = planned.of.spec.clone();
        let outlives = !planned.of.device.no_recovery && !is_volatile(&spec);
        WantedDisk { mark: DiskMark::of(&spec), spec, id: planned.id, outlives }
    });
    let over_network = plan.iter().flat_map(|plan| plan.specs()).map(|spec| {
        let outlives = !is_volatile(spec);
        WantedDisk { mark: DiskMark::of(spec), spec: spec.clone(), id: None, outlives }
    });
    let admits = |host: &str, key: bool| plan.is_none_or(|plan| plan.admits(host, key));
    let wanted = Wanted {
        ublk: ublk.collect(),
        over_network: over_network.collect(),
        addresses: plan.iter().flat_map(|plan| plan.addresses()).map(|at| at.to_string()).collect(),
        nqn: plan.map_or("", nvme::Plan::nqn),
        admits: Some(&admits),
        key_checks: plan.map_or_else(BTreeMap::new, nvme::Plan::key_checks),
    };
    // A specification that is wrong shows while the disks are still served.
    let mut shapes = Vec::new();
    for d in &wanted.over_network {
        let device = DiskSpec::parse_to_look(&d.spec).map_err(|e| settings.of_disk(&d.spec, e))?;
        let (geometry, mut limits) = (*device.device.geometry(), device.device.limits().clone());
        // A disk that is only looked at says that it is read-only.
        limits.read_only = !takes_writes(&d.spec);
        let mark = (!is_volatile(&d.spec)).then_some(d.mark);
        shapes.push(DiskShape { mark, known: None, geometry, limits });
    }
    let mut inherited = match takeover {
        Some(of) => predecessors::find(&wanted, settings.args.socket.as_deref(), of)?,
        None => Inherited::default(),
    };
    let all = wanted.ublk.iter().chain(&wanted.over_network);
    if !inherited.keep(all.map(|w| (&*w.spec, w.mark))) {
        let what = "the file or the key of a disk has changed while it was compared";
        return Err(compare::refused(what.to_owned(), "again".to_owned()));
    }
    let Some(plan) = plan else { return Ok(inherited) };
    let moved = settings.args.moved;
    let is_new = |d: &&WantedDisk| inherited.known(d.mark).is_none();
    let new: Vec<_> = wanted.over_network.iter().filter(is_new).collect();
    let marks: Vec<_> = new.iter().map(|d| (&*d.spec, d.mark)).collect();
    let all: Vec<_> = wanted.over_network.iter().map(|d| d.mark).collect();
    stamp.compare(&marks, &all, moved)?;
    for (shape, d) in shapes.iter_mut().zip(&wanted.over_network) {
        shape.known = inherited.known(d.mark).or_else(|| stamp.known(&d.spec, d.mark, moved));
    }
    let shown = plan.would_show(&shapes)?;
    if let Some(known) = inherited.states.iter().find_map(|s| s.subsystem.as_ref()) {
        compare::namespaces(known, &shown).map_err(|(what, hint)| {
            compare::refused(what, format!("{hint}; or end the running server first"))
        })?;
    }
    let known = new.iter().filter_map(|d| stamp.known(&d.spec, d.mark, moved));
    let nsids: Vec<u32> = known.flat_map(|known| known.nsids).collect();
    stamp.compare_shown(&shown, &nsids)?;
    Ok(inherited)
}

/// Has this process open as many files as its user may let it. The usual soft limit is one for programs that use select(2).
pub(super) fn raise_open_files() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum {
        // The limit that there is bounds the connections of hosts, and is told.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    }
}

/// Checks that the disks can be written, and that there are as many open files as the servers have that are to leave.
pub(super) fn enough(inherited: &Inherited) -> Result<(), Failure> {
    let files = inherited.disks.iter().filter_map(|disk| HeldDisk::files(disk).next());
    for file in files {
        let flags = fstatvfs(file).map(|s| s.f_flag);
        if flags.is_ok_and(|flags| flags.contains(StatVfsMountFlags::RDONLY)) {
            let what = "the file system of a disk is read-only now";
            return Err(
                Failure::new(Kind::Device, what).hint("mount -o remount,rw; dmesg says why")
            );
        }
    }
    let most = getrlimit(Resource::Nofile).current;
    let own = std::fs::read_dir("/proc/self/fd").map_or(0, |all| all.count() as u64);
    let needed = own + inherited.states.iter().map(|s| s.descriptors).sum::<u64>();
    if most.is_some_and(|most| most < needed) {
        let what =
            format!("this server may open {} files, and needs {needed}", most.unwrap_or_default());
        return Err(Failure::new(Kind::Device, what).hint("ulimit -n, LimitNOFILE= in the unit"));
    }
    Ok(())
}
