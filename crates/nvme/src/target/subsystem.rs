//! A subsystem: a name, namespaces, and the hosts that may connect.

use super::namespace::{MAX_NAMESPACES, Namespace, Namespaces};
use crate::spec::fabrics::MAX_NQN;
use std::fmt;
use std::sync::Arc;
use zoneplug_core::Error;

/// An NVMe Qualified Name: 1 to 223 bytes of UTF-8 that begin with `nqn.`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nqn(String);

impl Nqn {
    /// Fails with [`ErrorKind::Invalid`](zoneplug_core::ErrorKind::Invalid) if `text` is no NQN.
    ///
    /// ```
    /// use zoneplug_nvme::target::Nqn;
    /// assert!(Nqn::new("nqn.2014-08.org.nvmexpress:uuid:6f1f").is_ok());
    /// assert!(Nqn::new("disk1").is_err());
    /// ```
    pub fn new(text: &str) -> Result<Nqn, Error> {
        let plain = !text.chars().any(char::is_control);
        if text.starts_with("nqn.") && text.len() <= MAX_NQN && plain {
            return Ok(Nqn(text.to_owned()));
        }
        Err(Error::invalid(format!("{text:?} is no NVMe qualified name"))
            .hint("nqn.YYYY-MM.DOMAIN:NAME, at most 223 bytes"))
    }

    /// From a field of a command's data: the bytes up to the first 0.
    pub(super) fn decode(field: &[u8; 256]) -> Option<Nqn> {
        let end = field.iter().position(|b| *b == 0)?;
        Nqn::new(std::str::from_utf8(&field[..end]).ok()?).ok()
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Nqn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The hosts that may connect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hosts {
    /// Every host.
    Any,
    /// These.
    Listed(Vec<Nqn>),
}

impl Hosts {
    /// Whether `host` may connect.
    pub fn admits(&self, host: &Nqn) -> bool {
        match self {
            Hosts::Any => true,
            Hosts::Listed(list) => list.contains(host),
        }
    }
}

/// What a subsystem is to be.
#[derive(Debug, Clone)]
pub struct SubsystemConfig {
    /// Its name.
    pub nqn: Nqn,
    /// Serial number: up to 20 characters of ASCII.
    pub serial: String,
    /// Who may connect.
    pub hosts: Hosts,
    /// Most I/O queues of a controller.
    pub max_queues: u16,
    /// Entries of a queue, at least 2.
    pub queue_entries: u16,
    /// Longest data of a command in bytes: a power of two, at least 4096.
    pub max_data: u32,
    /// Longest data within a command capsule of an I/O queue in bytes, a multiple of 16.
    pub in_capsule: u32,
}

impl SubsystemConfig {
    /// A subsystem for any host, with a serial number made of its name: 64 I/O queues of 128 entries, commands of up to 1
    /// MiB, 8 KiB in a capsule.
    pub fn new(nqn: Nqn) -> SubsystemConfig {
        // FNV-1a: the same name has the same serial number after a restart.
        let hash = nqn.as_str().bytes().fold(0xcbf2_9ce4_8422_2325_u64, |h, b| {
            (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3)
        });
        SubsystemConfig {
            nqn,
            serial: format!("zp{hash:016x}"),
            hosts: Hosts::Any,
            max_queues: 64,
            queue_entries: 128,
            max_data: 1 << 20,
            in_capsule: 8192,
        }
    }
}

/// A subsystem and its namespaces.
#[derive(Debug)]
pub(super) struct Subsystem {
    pub(super) config: SubsystemConfig,
    pub(super) namespaces: Arc<Namespaces>,
}

impl Subsystem {
    pub(super) fn new(config: SubsystemConfig) -> Subsystem {
        let namespaces = Arc::new(Namespaces::new(config.max_data));
        Subsystem { config, namespaces }
    }

    /// Adds namespaces and returns their numbers, or adds none if there would be too many.
    pub(super) fn add(&mut self, namespaces: Vec<Namespace>) -> Result<Vec<u32>, Error> {
        if self.namespaces.iter().count() + namespaces.len() > MAX_NAMESPACES as usize {
            let what = format!("more than {MAX_NAMESPACES} namespaces in {}", self.config.nqn);
            return Err(Error::invalid(what).hint("a subsystem for each disk, or for some of them"));
        }
        let mut all = Namespaces::clone(&self.namespaces);
        let numbers = namespaces.into_iter().map(|n| all.add(n)).collect();
        self.namespaces = Arc::new(all);
        Ok(numbers)
    }

    /// Removes the namespaces of a disk and returns their numbers.
    pub(super) fn remove(&mut self, disk: u32) -> Vec<u32> {
        let mut all = Namespaces::clone(&self.namespaces);
        let numbers = all.remove(disk);
        self.namespaces = Arc::new(all);
        numbers
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::text;

    #[test]
    fn names() {
        for bad in ["", "nqn", "disk", "nqn.a\nb", &format!("nqn.{}", "x".repeat(220))] {
            assert!(Nqn::new(bad).is_err(), "{bad}");
        }
        assert!(Nqn::new(&format!("nqn.{}", "x".repeat(219))).is_ok());
        assert_eq!(Nqn::decode(&text("nqn.a", 0)), Nqn::new("nqn.a").ok());
        assert_eq!(Nqn::decode(&text("nqn.a", b'a')), None, "no end");
        let mut field = text("nqn.a", 0);
        field[3] = 0xff;
        assert_eq!(Nqn::decode(&field), None, "no UTF-8");
    }

    #[test]
    fn a_serial_number_stays() {
        let serial = |n| SubsystemConfig::new(Nqn::new(n).unwrap()).serial;
        assert_eq!(serial("nqn.a"), serial("nqn.a"));
        assert_ne!(serial("nqn.a"), serial("nqn.b"));
        assert_eq!(serial("nqn.a").len(), 18);
    }
}
