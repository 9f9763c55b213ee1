//! The disks at the bottom of a specification: how a server recognises those of the last one. This module opens disks in
//! files for reading, and changes nothing.

use crate::backend::file::{Access, FileDisk};
use crate::spec::{JOINER, bases, file_of, joins, split_layer};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// What the last server of a device noted in its journal: where its disks were, and how often they had been
/// opened.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct LastServer {
    pub(crate) place: u64,
    pub(crate) opened: u64,
    /// The paths of its disks, for messages.
    pub(crate) paths: String,
}

/// The disks of a specification, as they are now.
pub(crate) struct Bases(Vec<Base>);

impl Bases {
    pub(crate) fn look(spec: &str) -> Bases {
        Bases(bases(spec).into_iter().map(Base::look).collect())
    }

    /// A hash of the UUIDs or paths of the disks.
    pub(crate) fn name(&self) -> u64 {
        hash(&self.all(|b| &b.name))
    }

    /// The layers of `spec`, whose disks these are.
    pub(crate) fn layers(&self, spec: &str) -> String {
        layers_of(spec, &mut self.0.iter().map(|b| b.name.as_str()))
    }

    /// How many of the disks are in files, which count openings.
    pub(crate) fn files(&self) -> u64 {
        self.0.iter().filter(|b| b.counts).count() as u64
    }

    /// Where they are, and how often they were opened.
    pub(crate) fn left(&self) -> LastServer {
        LastServer {
            place: hash(&self.all(|b| &b.place)).max(1),
            opened: self.0.iter().fold(0, |n, b| n.saturating_add(b.opened)),
            paths: self.all(|b| &b.path),
        }
    }

    fn all(&self, f: fn(&Base) -> &str) -> String {
        self.0.iter().map(f).collect::<Vec<_>>().join(&JOINER.to_string())
    }
}

/// FNV-1a.
pub(crate) fn hash(text: &str) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for b in b"zoneplug ".iter().chain(text.as_bytes()) {
        hash = (hash ^ u64::from(*b)).wrapping_mul(0x100_0000_01b3);
    }
    hash
}

/// The layers of a specification, with `names` in place of its disks.
fn layers_of<'a>(spec: &str, names: &mut impl Iterator<Item = &'a str>) -> String {
    let Some((layer, rest)) = split_layer(spec) else {
        return names.next().unwrap_or_default().to_owned();
    };
    let below: Vec<String> = match joins(layer) {
        true => rest.split(JOINER).map(|r| layers_of(r, &mut *names)).collect(),
        false => vec![layers_of(rest, names)],
    };
    format!("{layer}@{}", below.join(&JOINER.to_string()))
}

/// A device at the bottom of a specification.
struct Base {
    /// The UUID of a disk in a file; the path of any other disk.
    name: String,
    path: String,
    /// The device and inode of the file, or the serial number of the drive.
    place: String,
    counts: bool,
    opened: u64,
}

impl Base {
    fn look(spec: &str) -> Base {
        let kind = spec.split(',').next().unwrap_or_default();
        let path = Path::new(kind);
        let name =
            path.canonicalize().map_or_else(|_| kind.to_owned(), |p| p.display().to_string());
        let file = file_of(spec).and_then(|_| FileDisk::open(path, Access::ReadOnly).ok());
        let Some(file) = file else {
            let place = serial(path);
            return Base { name: name.clone(), path: name, place, counts: false, opened: 0 };
        };
        let (id, at) = (file.identity(), file.place());
        let place = format!("{}:{}", at.device, at.inode);
        Base { name: id.uuid, path: name, place, counts: true, opened: id.opened }
    }
}

/// The serial numbers of a drive, as far as the kernel shows them. Another drive at the same path has
/// others.
fn serial(path: &Path) -> String {
    let Ok(meta) = std::fs::metadata(path) else { return String::new() };
    let (major, minor) = (libc::major(meta.rdev()), libc::minor(meta.rdev()));
    let kinds = ["block", "char"].iter();
    let dirs = kinds.map(|kind| format!("/sys/dev/{kind}/{major}:{minor}"));
    let dir = dirs.map(std::path::PathBuf::from).find(|_| meta.rdev() != 0);
    let names = ["wwid", "serial", "device/wwid", "device/serial"].iter();
    let texts = names.filter_map(|n| std::fs::read_to_string(dir.as_ref()?.join(n)).ok());
    texts.map(|t| t.trim().to_owned()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drives_are_told_by_their_serial_numbers_where_there_are_any() {
        assert_eq!(serial(Path::new("/dev/none")), "");
        assert_eq!(serial(Path::new("/dev/null")), "", "it has none");
    }
}
