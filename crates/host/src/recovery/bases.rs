//! The disks at the bottom of a specification: by these a server recognises the disks of the last server. This module
//! opens disks in files for reading, and changes nothing.

use crate::HostedDisk;
use crate::backend::file::{Access, FileDisk};
use crate::spec::meaning::{Base, Meaning};
use crate::spec::{CryptDisk, JOINER, SpecPart, Specification};
use std::path::Path;
use std::sync::Arc;
use zoneplug_core::{FNV_START, fnv1a};

/// The state of a server's disks: where they are, and how often they were opened. A server notes the state in its
/// journal, for the next server.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct DiskState {
    pub(crate) place: u64,
    pub(crate) opened: u64,
    /// The paths of its disks, for messages.
    pub(crate) paths: String,
}

/// The disks of a specification and the layers on them.
pub(crate) struct Bases(Arc<Meaning>);

impl Bases {
    /// The disks that are at the paths of a specification now.
    pub(crate) fn at_paths_of(spec: &Specification) -> Bases {
        Bases(Arc::new(Meaning::of(spec.root(), &mut base_at_path, &mut CryptDisk::key_check)))
    }

    /// The disks that `disk` has open, whatever is at their paths by now. If a program opened `disk` as a device, the
    /// disks at the paths of `spec`.
    pub(crate) fn held(disk: &HostedDisk, spec: &Specification) -> Bases {
        disk.meaning().cloned().map_or_else(|| Bases::at_paths_of(spec), Bases)
    }

    /// A hash of the UUIDs or paths of the disks, independent of their order.
    pub(crate) fn name(&self) -> u64 {
        let mut names: Vec<&str> = self.0.bases.iter().map(|b| &*b.name).collect();
        names.sort_unstable();
        hash(&names.join(&JOINER.to_string()))
    }

    /// The layers that decide what clients see, and the order of the disks.
    pub(crate) fn layers(&self) -> &str {
        &self.0.layers
    }

    /// The hash and the layers that earlier versions compared instead of [`Bases::name`] and [`Bases::layers`].
    #[cfg(feature = "ublk")]
    pub(crate) fn before(&self) -> (u64, &str) {
        (hash(&self.all(|b| &b.name)), &self.0.written)
    }

    /// Whether the data depends on a key.
    #[cfg(feature = "ublk")]
    pub(crate) fn keyed(&self) -> bool {
        self.0.keyed
    }

    /// The number of disks in files. Only these count how often they were opened.
    pub(crate) fn files(&self) -> u64 {
        self.0.bases.iter().filter(|b| b.counts).count() as u64
    }

    /// The places and paths of the disks, and how often they were opened.
    pub(crate) fn disk_state(&self) -> DiskState {
        DiskState {
            place: hash(&self.all(|b| &b.place)).max(1),
            opened: self.0.bases.iter().fold(0, |n, b| n.saturating_add(b.opened)),
            paths: self.all(|b| &b.path),
        }
    }

    fn all(&self, f: fn(&Base) -> &str) -> String {
        self.0.bases.iter().map(f).collect::<Vec<_>>().join(&JOINER.to_string())
    }
}

/// The hash of a text.
pub(crate) fn hash(text: &str) -> u64 {
    fnv1a(FNV_START, "zoneplug ".bytes().chain(text.bytes()))
}

/// The disk at the bottom of a specification, as it is now.
fn base_at_path(device: &SpecPart) -> Base {
    let path = Path::new(device.name());
    let file = device.file().and_then(|path| FileDisk::open(path, Access::ReadOnly).ok());
    file.map_or_else(|| Base::other(device.name()), |file| Base::of_file(&file, path))
}
