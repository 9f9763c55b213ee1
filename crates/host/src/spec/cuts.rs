//! Durable disks that one specification names several times. Each is opened once, and its cuts all use that one
//! device.

use super::meaning::Base;
use super::{Opened, Purpose, keys};
use crate::backend::data_path::DataPath;
use crate::backend::file::{Access, FileDisk, Io};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use zoneplug_core::{Device, Error};
use zoneplug_devices::spec::Spec;

impl Base {
    /// The open disk of a file that was at `path`.
    pub(crate) fn of_file(disk: &FileDisk, path: &Path) -> Base {
        let (id, at) = (disk.identity(), disk.place());
        let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        Base {
            name: id.uuid,
            path: path.display().to_string(),
            place: format!("{}:{}", at.device, at.inode),
            counts: true,
            opened: id.opened,
            zones: Some(disk.geometry().nr_zones()),
        }
    }
}

/// How a durable disk is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct How {
    read_only: bool,
    io: Io,
    direct: bool,
}

/// The durable disks that a specification has opened so far.
#[derive(Default)]
pub(crate) struct Cuts(Vec<One>);

struct One {
    path: PathBuf,
    how: How,
    device: Arc<dyn Device>,
    file: Arc<FileDisk>,
    base: Base,
    /// How often the specification names the disk.
    named: usize,
    /// The zones of its cuts.
    cuts: Vec<Range<u32>>,
}

/// Opens the durable disk at the path that a specification names, or uses the one that is open already.
pub(super) fn open(
    spec: &mut Spec,
    purpose: Purpose,
    opened: &mut Opened,
) -> Result<(Arc<dyn Device>, Base, DataPath), Error> {
    let read_only = spec.flag(&keys::READ_ONLY)?.unwrap_or(purpose == Purpose::Look);
    let ways = [Io::Auto, Io::Ring, Io::Threads];
    let io = spec.number(&keys::IO)?.map_or(Io::Auto, |i| ways[i as usize]);
    let direct = spec.flag(&keys::DIRECT)?.unwrap_or(true);
    spec.finish()?;
    let access = if read_only { Access::ReadOnly } else { Access::ReadWrite };
    let path = Path::new(spec.kind());
    let Opened { cuts, given, held } = opened;
    let open = || {
        let disk = match given.at(path) {
            Some(given) => FileDisk::open_held(given, path, access, io, direct)?,
            None => FileDisk::open_with(path, access, io, direct)?,
        };
        if let Some(held) = held {
            held.extend(disk.held()?.map(|disk| disk.named(path)));
        }
        Ok(disk)
    };
    cuts.file(path, How { read_only, io, direct }, open)
}

impl Cuts {
    /// The disk in a file. Calls `open` if the specification names it for the first time.
    fn file(
        &mut self,
        path: &Path,
        how: How,
        open: impl FnOnce() -> Result<Arc<FileDisk>, Error>,
    ) -> Result<(Arc<dyn Device>, Base, DataPath), Error> {
        let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let Some(one) = self.0.iter_mut().find(|one| one.path == real) else {
            let disk = open()?;
            let base = Base::of_file(&disk, path);
            let file = disk.clone();
            let device: Arc<dyn Device> = disk;
            let found = (device.clone(), base.clone(), file.io());
            self.0.push(One { path: real, how, device, file, base, named: 1, cuts: Vec::new() });
            return Ok(found);
        };
        if one.how != how {
            let what = format!("{} is named twice, with different options", path.display());
            return Err(Error::invalid(what)
                .hint("it is opened once: the same read-only=, io= and direct= each time"));
        }
        one.named += 1;
        Ok((one.device.clone(), one.base.clone(), one.file.io()))
    }

    /// The disks in files.
    pub(crate) fn files(&self) -> impl Iterator<Item = Arc<FileDisk>> {
        self.0.iter().map(|one| one.file.clone())
    }

    /// Notes a cut of a device.
    pub(crate) fn cut(&mut self, device: &Arc<dyn Device>, zones: Range<u32>) {
        if let Some(one) = self.0.iter_mut().find(|one| Arc::ptr_eq(&one.device, device)) {
            one.cuts.push(zones);
        }
    }

    /// Refuses a specification that shows one zone twice: two plugs would write the zone without knowing of each
    /// other.
    pub(crate) fn check(&mut self) -> Result<(), Error> {
        for one in self.0.iter_mut().filter(|one| one.named > 1) {
            one.cuts.sort_unstable_by_key(|c| c.start);
            let apart = one.cuts.windows(2).all(|w| w[0].end <= w[1].start);
            if one.cuts.len() < one.named || !apart {
                let what = format!("{} is named {} times", one.path.display(), one.named);
                return Err(Error::invalid(what)
                    .hint("each time by a cut of it, linear,first=0,zones=8@FILE, without a zone in common"));
            }
        }
        Ok(())
    }
}
