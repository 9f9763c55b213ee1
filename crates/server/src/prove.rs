//! Checks of a server that takes over, before the running one is asked to leave: clients must find what they know,
//! and resources must suffice.

use crate::compare::MarkedDisk;
use crate::config::{Config, Takeover};
use crate::door::Door;
use crate::error::ServeError;
use crate::inherited::Inherited;
use crate::predecessors;
use rustix::fs::{StatVfsMountFlags, fstatvfs};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use zoneplug_control::Failure;
use zoneplug_host::{HeldDisk, OpenFiles};

/// Finds the servers of the disks, if this one takes over. Lets the doors check that clients find what they know from
/// these or from earlier servers. Changes nothing for those servers.
pub(crate) fn find(config: &Config, doors: &mut [Box<dyn Door>]) -> Result<Inherited, Failure> {
    let takeover = config.takeover;
    if takeover == Takeover::No && !doors.iter().any(|door| door.is_known()) {
        return Ok(Inherited::default());
    }
    // A wrong specification shows while the disks are still served.
    doors.iter_mut().try_for_each(|door| door.prepare())?;
    let wanted: Vec<_> = doors.iter().map(|door| door.wanted()).collect();
    let mut inherited = match takeover {
        Takeover::No => Inherited::default(),
        Takeover::Any => predecessors::find(&wanted, config, None)?,
        Takeover::Process(pid) => predecessors::find(&wanted, config, Some(pid))?,
    };
    let all = wanted.iter().flat_map(|door| &door.disks);
    if !inherited.keep(all.map(|w| MarkedDisk { spec: &w.spec, mark: w.mark })) {
        return Err(ServeError::Changed { disk: None }.into());
    }
    drop(wanted);
    doors.iter().try_for_each(|door| door.prove(&inherited))?;
    Ok(inherited)
}

/// Raises the limit of open files to the maximum of this user. The usual soft limit is for programs with select(2).
pub fn raise_open_files() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum {
        // On failure, the old limit bounds the connections of hosts, which is reported.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    }
}

/// Checks that the disks are writable, and that this process may open as many files as the servers that are to leave.
pub(crate) fn enough(inherited: &Inherited) -> Result<(), Failure> {
    let files = inherited.disks.iter().filter_map(|disk| HeldDisk::files(disk).next());
    for file in files {
        let flags = fstatvfs(file).map(|s| s.f_flag);
        if flags.is_ok_and(|flags| flags.contains(StatVfsMountFlags::RDONLY)) {
            return Err(ServeError::ReadOnly.into());
        }
    }
    // A limit that the system does not tell is found when it is reached.
    let Ok(files) = OpenFiles::of_this_process() else { return Ok(()) };
    let needed = files.open + inherited.states.iter().map(|s| s.descriptors).sum::<u64>();
    if files.limit < needed {
        return Err(ServeError::TooFewFiles { limit: files.limit, needed }.into());
    }
    Ok(())
}
