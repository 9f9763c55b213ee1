//! State that a server has from the one before it: open disks with their locks, listening sockets, and the clients'
//! knowledge. After a failed hand-over, the server before it is the same process.

use crate::answer::Serving;
use crate::compare::{MarkedDisk, is_of};
use crate::running::Running;
use std::collections::BTreeMap;
use std::net::TcpListener;
use zoneplug_control::Failure;
use zoneplug_control::client::{StateOfDisk, StateShown};
use zoneplug_control::place;
use zoneplug_core::plain;
use zoneplug_host::signals::Signals;
use zoneplug_host::{DiskMark, HeldDisks, Specification};

/// Disks, sockets and records of the servers before.
#[derive(Default)]
pub struct Inherited {
    pub(crate) disks: HeldDisks,
    pub(crate) sockets: Vec<TcpListener>,
    /// The records of these servers: their disks and clients.
    pub states: Vec<StateShown>,
    /// The marks of these servers' disks at the comparison, by specification.
    pub(crate) marks: BTreeMap<String, DiskMark>,
    /// The sockets of these servers, whose places the new one takes.
    pub(crate) replaced: Vec<place::Id>,
    /// The servers that have not left yet.
    pub(crate) running: Vec<Running>,
    /// The servers that have left, and wait to hear whether this one serves.
    pub(crate) waiting: Vec<Running>,
}

impl Inherited {
    /// The state from which this process can serve its own disks again.
    pub(crate) fn of_own(serving: &Serving) -> Inherited {
        let mut own = Inherited { states: vec![serving.state()], ..Inherited::default() };
        // A socket that cannot be duplicated is bound again.
        own.sockets = serving.sockets.iter().filter_map(|s| s.try_clone().ok()).collect();
        for disk in &serving.disks {
            own.disks.add_all(&disk.passed.held);
            own.marks.insert(disk.spec.clone(), disk.passed.mark);
        }
        own
    }

    /// Makes disks with these specifications the ones that the servers have open, even if their paths name other
    /// files later. The marks identify them. False: a disk has changed since its mark was made.
    pub(crate) fn keep<'a>(&mut self, wanted: impl Iterator<Item = MarkedDisk<'a>>) -> bool {
        for MarkedDisk { spec, mark } in wanted {
            spec.paths().for_each(|path| self.disks.know(path));
            let was_compared = self.served().any(|d| is_of(d, mark));
            if was_compared != self.has(spec) {
                return false;
            }
            if was_compared {
                self.marks.insert(spec.to_string(), mark);
                if !self.is_as_compared(spec, DiskMark::of(spec)) {
                    return false;
                }
            }
        }
        true
    }

    /// Whether an open disk is the one that was compared.
    pub(crate) fn is_as_compared(&self, spec: &Specification, mark: DiskMark) -> bool {
        self.marks.get(&**spec).is_none_or(|was| was.is_same_disk(mark))
    }

    /// Whether all servers have left their disks.
    pub(crate) fn has_left(&self) -> bool {
        self.running.is_empty()
    }

    /// Whether a server has the disks of a specification.
    pub(crate) fn has(&self, spec: &Specification) -> bool {
        self.disks.has(spec.root())
    }

    /// The disks of the servers.
    fn served(&self) -> impl Iterator<Item = &StateOfDisk> {
        self.states.iter().flat_map(|s| &s.disks)
    }

    /// Makes the servers leave their disks, one after the other. After a failure, the remaining servers are not
    /// asked, and those that have left go on.
    pub(crate) fn make_servers_leave(&mut self, signals: &Signals) -> Result<(), Failure> {
        while let Some(mut running) = self.running.pop() {
            match running.make_leave_disks(signals) {
                Err(f) => {
                    self.running.push(running);
                    return Err(f);
                }
                // The records are in the order of the servers.
                Ok(Some(state)) => self.states[self.running.len()] = state,
                Ok(None) => {}
            }
            self.waiting.push(running);
        }
        Ok(())
    }

    /// Sets the attributes again that clients set before. `own`: this server has its own disks back, and ignores
    /// failures.
    pub(crate) fn set_again(&self, serving: &Serving, own: bool) -> Result<(), Failure> {
        for disk in &serving.disks {
            let is = |d: &&StateOfDisk| d.door() == disk.door && is_of(d, disk.passed.mark);
            let set = self.served().find(is).iter().flat_map(|d| &d.set).collect::<Vec<_>>();
            for (name, value) in in_order(&set) {
                match serving.set(&disk.name, name, value) {
                    Ok(_) => {}
                    // The attribute belongs to a scheduler that the disk no longer has.
                    Err(_) if !serving.has(&disk.name, name) => {}
                    Err(f) if own => {
                        let (disk, what) = (plain(&disk.name), plain(f.parts().what));
                        log::error!(event = "hand-over-failed"; "{disk}: {name} is not {value} again: {what}");
                    }
                    Err(f) => return Err(f),
                }
            }
        }
        Ok(())
    }

    /// Tells the servers that this one serves, so that they end.
    pub(crate) fn serves(&mut self) {
        for mut running in self.waiting.drain(..) {
            running.report_served();
        }
    }
}

/// Orders attributes so that they can be set: the scheduler comes first, because it adds attributes.
fn in_order<'a>(set: &[(&'a String, &'a String)]) -> Vec<(&'a String, &'a String)> {
    let mut all = set.to_vec();
    all.sort_by_key(|(name, _)| *name != "scheduler");
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An attribute of a scheduler can be set when the disk has that scheduler.
    #[test]
    fn the_scheduler_is_set_before_its_attributes() {
        let names = ["iosched/read_expire", "scheduler", "zoned_qd1_writes"].map(str::to_owned);
        let value = "1".to_owned();
        let set: Vec<_> = names.iter().map(|name| (name, &value)).collect();
        let order: Vec<&str> = in_order(&set).iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(order, ["scheduler", "iosched/read_expire", "zoned_qd1_writes"]);
    }
}
