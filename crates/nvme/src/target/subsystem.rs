//! A subsystem: namespaces, and the hosts that may connect.

use super::keys::Keys;
use super::namespace::{MAX_NAMESPACES, Namespace, Namespaces};
use super::nqn::Nqn;
use std::sync::Arc;
use zoneplug_core::{Error, ErrorKind, FNV_START, fnv1a};

/// Fewest entries of an admin queue (Base Specification, *Discovery Log Page Entry*, ASQSZ).
const MIN_ADMIN_ENTRIES: u16 = 32;

/// The hosts that may connect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hosts {
    /// Every host.
    Any,
    /// These.
    Listed(Vec<Nqn>),
}

impl Hosts {
    /// Returns whether `host` may connect.
    pub fn admits(&self, host: &Nqn) -> bool {
        match self {
            Hosts::Any => true,
            Hosts::Listed(list) => list.contains(host),
        }
    }
}

/// The parameters of a subsystem.
#[derive(Debug, Clone)]
pub struct SubsystemConfig {
    /// Its name.
    pub nqn: Nqn,
    /// Serial number: up to 20 characters of ASCII.
    pub serial: String,
    /// The hosts that may connect, besides those that have a key.
    pub hosts: Hosts,
    /// Keys for authentication.
    pub keys: Keys,
    /// Most I/O queues of a controller.
    pub max_queues: u16,
    /// Entries of an I/O queue, at least 2.
    pub queue_entries: u16,
    /// Longest data of a command in bytes: a power of two, at least 4096.
    pub max_data: u32,
    /// Longest data in a command capsule of an I/O queue in bytes: a multiple of 16, at most
    /// [`IN_CAPSULE_MAX`](crate::tcp::IN_CAPSULE_MAX).
    pub in_capsule: u32,
    /// Namespaces that are added without numbers get numbers above this one, because hosts may know lower ones from
    /// an earlier target.
    pub last_nsid: u32,
}

impl SubsystemConfig {
    /// Makes the parameters of a subsystem for any host: 64 I/O queues of 1024 entries, commands of up to 1 MiB, 8
    /// KiB in a capsule, and a serial number derived from the name.
    pub fn new(nqn: Nqn) -> SubsystemConfig {
        // A subsystem keeps its serial number across restarts.
        let hash = fnv1a(FNV_START, nqn.as_str().bytes());
        SubsystemConfig {
            nqn,
            serial: format!("zp{hash:016x}"),
            hosts: Hosts::Any,
            keys: Keys::default(),
            max_queues: 64,
            queue_entries: 1024,
            max_data: 1 << 20,
            in_capsule: 8192,
            last_nsid: 0,
        }
    }

    /// Returns whether `host` may connect. A host with a key must then authenticate.
    pub(super) fn admits(&self, host: &Nqn) -> bool {
        self.hosts.admits(host) || self.keys.of(host).is_some()
    }
}

/// A subsystem and its namespaces.
#[derive(Debug)]
pub(super) struct Subsystem {
    pub(super) config: SubsystemConfig,
    pub(super) namespaces: Arc<Namespaces>,
    /// The last number that was given to a namespace.
    last: u32,
    /// The longest append that every zoned namespace takes, in sectors; `None` before the first one.
    append_sectors: Option<u32>,
}

impl Subsystem {
    pub(super) fn new(config: SubsystemConfig) -> Subsystem {
        let namespaces = Arc::new(Namespaces::new(config.max_data));
        let last = config.last_nsid;
        Subsystem { config, namespaces, last, append_sectors: None }
    }

    /// Adds namespaces and returns their numbers, or adds none. `known` are the numbers that they had before; without
    /// them they get numbers above all earlier ones. `in_use`: a host is connected. Hosts read the longest append
    /// only once, at the first zoned namespace, so it must not become shorter.
    pub(super) fn add(
        &mut self,
        namespaces: Vec<Namespace>,
        known: Option<&[u32]>,
        in_use: bool,
    ) -> Result<Vec<u32>, Error> {
        let nqn = &self.config.nqn;
        let appends = namespaces.iter().filter_map(|n| Some(n.zones()?.append_sectors));
        let appends = appends.chain(self.append_sectors).min();
        if in_use && self.append_sectors.is_some() && appends < self.append_sectors {
            let what =
                format!("the appends of this disk are shorter than {nqn} has told its hosts");
            return Err(Error::new(ErrorKind::Busy, what).hint("a subsystem of its own"));
        }
        let (mut all, mut last) = (Namespaces::clone(&self.namespaces), self.last);
        let mut numbers = Vec::new();
        if known.is_some_and(|known| known.len() != namespaces.len()) {
            let what = format!("a disk of {nqn} has another number of namespaces than before");
            return Err(Error::invalid(what).hint("the disk as it was, or a name of its own"));
        }
        for (i, n) in namespaces.into_iter().enumerate() {
            if let Some(&nsid) = known.and_then(|known| known.get(i)) {
                if !all.put(n, nsid) {
                    let what = format!("namespace {nsid} of {nqn} is another disk");
                    return Err(Error::new(ErrorKind::Busy, what).hint("another number"));
                }
                numbers.push(nsid);
                last = last.max(nsid);
                continue;
            }
            let Some(nsid) = all.add(n, last) else {
                let what = format!("more than {MAX_NAMESPACES} namespaces in {nqn}");
                return Err(Error::invalid(what).hint("several subsystems"));
            };
            numbers.push(nsid);
            last = nsid;
        }
        (self.namespaces, self.last, self.append_sectors) = (Arc::new(all), last, appends);
        Ok(numbers)
    }

    /// Returns ZASL: log2 of the longest append in pages.
    pub(super) fn zasl(&self) -> u8 {
        let bytes = self.append_sectors.map_or(u64::MAX, |n| u64::from(n) << 9);
        (bytes.min(u64::from(self.config.max_data)) / 4096).max(1).ilog2() as u8
    }

    /// Returns the entries of an admin queue: at least 32, as the specification requires.
    pub(super) fn admin_entries(&self) -> u16 {
        self.config.queue_entries.max(MIN_ADMIN_ENTRIES)
    }

    /// Removes the namespaces of a disk and returns their numbers.
    pub(super) fn remove(&mut self, disk: u32) -> Vec<u32> {
        let mut all = Namespaces::clone(&self.namespaces);
        let numbers = all.remove(disk);
        self.namespaces = Arc::new(all);
        numbers
    }

    /// Shows or hides the namespaces of a disk and returns the numbers of those that change.
    pub(super) fn enable(&mut self, disk: u32, enabled: bool) -> Vec<u32> {
        let mut all = Namespaces::clone(&self.namespaces);
        let numbers = all.enable(disk, enabled);
        self.namespaces = Arc::new(all);
        numbers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_serial_number_stays() {
        let serial = |n| SubsystemConfig::new(Nqn::new(n).unwrap()).serial;
        assert_eq!(serial("nqn.a"), serial("nqn.a"));
        assert_ne!(serial("nqn.a"), serial("nqn.b"));
        assert_eq!(serial("nqn.a").len(), 18);
    }
}
