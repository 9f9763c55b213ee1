//! The meaning of a stack, apart from how its specification is written: which disks it has, and which layers that
//! decide where data is and what its bytes mean. Two stacks with one meaning show the same data to their clients.
//!
//! | level | what counts |
//! | --- | --- |
//! | disk | its UUID, or the path of a drive; its place is kept apart ([`Base::place`]) |
//! | `po2` | whether the layer is present |
//! | `linear`, `stripe` | which disks, in which order; for a part of a disk, the first zone and the number of zones |
//! | `crypt` | the cipher, and a check value of the key |
//! | `delay`, `trace`, faults | nothing |
//!
//! This module opens nothing. The caller supplies the disks and the check values: those of an open stack
//! (`spec/mod.rs`), or those that a specification names (`recovery/bases.rs`).
#![cfg_attr(
    not(any(feature = "iscsi", feature = "nvme-tcp", feature = "ublk")),
    allow(dead_code, reason = "servers compare what they serve")
)]

use super::keys;
use super::tree::{JOINER, SpecNode, SpecPart};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A disk at the bottom of a stack.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Base {
    /// The UUID of a disk in a file; the path of any other disk.
    pub(crate) name: String,
    pub(crate) path: String,
    /// Distinguishes the disk from a copy of it, or from another drive at the same path.
    pub(crate) place: String,
    /// Whether the disk counts how often it was opened for writing, in `opened`.
    pub(crate) counts: bool,
    pub(crate) opened: u64,
    /// The number of zones. `None` for a drive whose number the kernel does not show.
    pub(crate) zones: Option<u32>,
}

impl Base {
    /// A disk that is not a file of zoneplug: a drive at the path `kind`, or an emulated disk.
    pub(crate) fn other(kind: &str) -> Base {
        let path = Path::new(kind);
        let name =
            path.canonicalize().map_or_else(|_| kind.to_owned(), |p| p.display().to_string());
        let sysfs = SysfsDir::of(path);
        let zones = sysfs.read("queue/nr_zones").and_then(|n| n.parse().ok());
        Base { name: name.clone(), path: name, place: sysfs.serial(), zones, ..Base::default() }
    }
}

/// The meaning of a stack.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Meaning {
    /// The layers that count, in one spelling, with the names of the disks.
    pub(crate) layers: String,
    /// All layers as they are written, with the names of the disks. Earlier versions compared this text.
    pub(crate) written: String,
    /// Whether the meaning depends on a key.
    pub(crate) keyed: bool,
    /// The disks, in order.
    pub(crate) bases: Vec<Base>,
    /// The number of zones at the top of the stack, if known.
    zones: Option<u32>,
    /// Whether one of the layers has several disks.
    joins: bool,
}

impl From<Base> for Meaning {
    fn from(base: Base) -> Meaning {
        let (layers, zones) = (base.name.clone(), base.zones);
        let written = layers.clone();
        Meaning { written, layers, keyed: false, bases: vec![base], zones, joins: false }
    }
}

impl Meaning {
    /// The meaning of a specification. `base` supplies each disk. `check` computes the check value of the key in a
    /// file, with a salt; `None` if the file holds no key.
    pub(crate) fn of(
        node: &SpecNode,
        base: &mut impl FnMut(&SpecPart) -> Base,
        check: &mut impl FnMut(&Path, &str) -> Option<String>,
    ) -> Meaning {
        let SpecNode::Layer(layer, below) = node else { return base(node.part()).into() };
        let below = Meaning::joined(below.iter().map(|n| Meaning::of(n, base, check)).collect());
        let key = layer.value(&keys::KEY_FILE);
        let key = key.and_then(|path| check(Path::new(path), below.salt()));
        below.with(layer, key)
    }

    /// Combines several stacks into one, for a layer above them.
    pub(crate) fn joined(mut all: Vec<Meaning>) -> Meaning {
        if all.len() < 2 {
            return all.pop().unwrap_or_default();
        }
        let mut joined = Meaning { zones: Some(0), ..Meaning::default() };
        for (n, m) in all.into_iter().enumerate() {
            for (to, text) in [(&mut joined.layers, &m.layers), (&mut joined.written, &m.written)] {
                to.extend((n > 0).then_some(JOINER));
                // Brackets keep the disks of an inner layer apart from those of the outer one.
                let (open, close) = if m.joins { ("[", "]") } else { ("", "") };
                to.extend([open, text, close]);
            }
            joined.bases.extend(m.bases);
            joined.keyed |= m.keyed;
            joined.joins |= m.joins;
            joined.zones = joined.zones.zip(m.zones).and_then(|(a, b)| a.checked_add(b));
        }
        joined
    }

    /// The salt for check values of keys. Disks have different salts, so one key has another check value on each disk.
    pub(crate) fn salt(&self) -> &str {
        &self.layers
    }

    /// This meaning with one more layer. `key`: the check value of the layer's key, if it has one.
    pub(crate) fn with(self, layer: &SpecPart, key: Option<String>) -> Meaning {
        let written = format!("{}@{}", layer.text(), self.written);
        let joins = self.joins || layer.joins() && self.bases.len() > 1;
        let mut spec = layer.options();
        let mut number = |key| spec.number(key).ok().flatten().map(|n| n as u32);
        let (first, zones) = (number(&keys::FIRST), number(&keys::CUT_ZONES));
        let (mut keyed, mut nr_zones) = (self.keyed, self.zones);
        let what = match spec.kind() {
            "linear" if !layer.joins() => {
                let first = first.unwrap_or(0);
                let left = self.zones.map(|all| all.saturating_sub(first));
                nr_zones = zones.or(left);
                match nr_zones {
                    _ if first == 0 && (zones.is_none() || nr_zones == self.zones) => None,
                    Some(zones) => Some(format!("linear,first={first},zones={zones}")),
                    None => Some(format!("linear,first={first}")),
                }
            }
            "linear" | "stripe" if self.bases.len() == 1 => None,
            kind @ ("linear" | "stripe" | "po2") => Some(kind.to_owned()),
            "crypt" => {
                keyed = true;
                Some(format!("crypt,{}", key.as_deref().unwrap_or("no key")))
            }
            _ => None,
        };
        let layers = match what {
            Some(what) => format!("{what}@{}", self.layers),
            None => self.layers,
        };
        Meaning { layers, written, keyed, zones: nr_zones, bases: self.bases, joins }
    }
}

/// The directory of a drive in sysfs. `None`: the path is no drive.
struct SysfsDir(Option<PathBuf>);

impl SysfsDir {
    fn of(path: &Path) -> SysfsDir {
        let rdev = std::fs::metadata(path).map_or(0, |meta| meta.rdev());
        let (major, minor) = (libc::major(rdev), libc::minor(rdev));
        let dirs = ["block", "char"].map(|kind| format!("/sys/dev/{kind}/{major}:{minor}"));
        SysfsDir(dirs.into_iter().map(PathBuf::from).find(|dir| rdev != 0 && dir.exists()))
    }

    fn read(&self, name: &str) -> Option<String> {
        let text = std::fs::read_to_string(self.0.as_ref()?.join(name)).ok()?;
        Some(text.trim().to_owned()).filter(|text| !text.is_empty())
    }

    /// Distinguishes the drive from another at the same path. Returns its serial numbers, if the kernel shows them; else
    /// the UUID of a mapped device; else the kernel's number of the disk (`diskseq`), which no other disk gets until the
    /// next boot.
    fn serial(&self) -> String {
        let names = ["wwid", "serial", "device/wwid", "device/serial"].iter();
        let own: Vec<String> = names.filter_map(|name| self.read(name)).collect();
        match own.is_empty() {
            true => self.read("dm/uuid").or_else(|| self.read("diskseq")).unwrap_or_default(),
            false => own.join(" "),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Specification;

    #[test]
    fn drives_are_told_by_their_serial_numbers_where_there_are_any() {
        let serial = |path| SysfsDir::of(Path::new(path)).serial();
        assert_eq!(serial("/dev/none"), "");
        assert_eq!(serial("/dev/null"), "", "no serial number");
    }

    fn meaning(text: &str) -> String {
        let base = |part: &SpecPart| Base {
            name: part.name().to_owned(),
            zones: (part.name() != "drive").then_some(8),
            ..Base::default()
        };
        let check = |path: &Path, salt: &str| {
            let name = path.to_str()?;
            (name != "none").then(|| format!("key of {name} on {salt}"))
        };
        let spec = Specification::parse(text).unwrap();
        Meaning::of(spec.root(), &mut { base }, &mut { check }).layers
    }

    #[test]
    fn a_layer_counts_by_what_it_does() {
        for (text, same) in [
            ("a,qd1=1", "a"),
            ("po2,fault=write/io@a", "po2@a"),
            ("delay,write=1ms@trace,file=t@a", "a"),
            ("linear,zones=3,first=5@a", "linear,first=5,zones=3@a"),
            ("linear,first=5@a", "linear,first=5,zones=3@a"),
            ("linear,first=0,zones=8@a", "a"),
            ("linear,zones=3@linear,first=4@a", "linear,first=0,zones=3@linear,first=4,zones=4@a"),
            ("linear,first=5@drive", "linear,first=5@drive"),
            ("linear,zones=3@drive", "linear,first=0,zones=3@drive"),
            ("linear@a", "a"),
            ("stripe@a", "a"),
            ("stripe@a%po2@b", "stripe@a%po2@b"),
            ("linear,first=0@linear@a%b", "linear@a%b"),
            ("linear,first=1@stripe@a%b", "linear,first=1,zones=15@stripe@a%b"),
            ("stripe@[linear@a%b]%po2@[linear@c%d]", "stripe@[linear@a%b]%[po2@linear@c%d]"),
            ("stripe@[linear@a%b%c]%d", "stripe@[linear@a%b%c]%d"),
            ("po2@[linear@\"a\"%b]", "po2@linear@a%b"),
            ("crypt,key-file=k@a", "crypt,key of k on a@a"),
            ("crypt,key-file=none@a", "crypt,no key@a"),
        ] {
            assert_eq!(meaning(text), same, "{text}");
        }
    }
}
