//! Opens devices and disks by their specifications.

use crate::confirm::Consent;
use crate::failure::{Failure, Kind};
use crate::term;
use std::sync::Arc;
use std::time::Instant;
use zoneplug_core::disk::{Disk, DiskConfig, DiskQueue, Mode};
use zoneplug_core::plain;
use zoneplug_core::sched::Policy;
use zoneplug_core::zone::{Geometry, ZoneInfo};
use zoneplug_core::{Bio, Bios, Device, Nanos, ZoneNo};
use zoneplug_host::file::{Access, FileDisk};
use zoneplug_host::{
    BlockingDisk, DiskSpec, HeldDisks, HostedDisk, Level, Specification, check_zone_memory,
};

/// An opened specification: a device, and how to open it as a disk.
#[derive(Clone)]
pub struct Named {
    /// The specification.
    pub spec: Specification,
    /// The device.
    pub device: Arc<dyn Device>,
    /// How to open it.
    pub config: DiskConfig,
    /// Tags of each queue, if the specification gives them.
    pub tags: Option<u16>,
    /// Whether reads return written data.
    pub keeps_data: bool,
}

impl Named {
    /// Opens the device that `spec` names.
    pub fn open(spec: &str) -> Result<Named, Failure> {
        Self::of(&spec.parse()?)
    }

    /// Opens the device of a specification.
    pub fn of(spec: &Specification) -> Result<Named, Failure> {
        tell(spec);
        let DiskSpec { device, config, tags, .. } = spec.open()?;
        Ok(Named { spec: spec.clone(), device, config, tags, keeps_data: spec.keeps_data() })
    }

    /// Opens the device of a specification to serve it. Uses the open files of disks in `given`.
    pub fn open_to_serve(spec: &Specification, given: &HeldDisks) -> Result<DiskSpec, Failure> {
        // The last server of a disk in `given` has printed its warnings.
        if !given.has(spec.root()) {
            tell(spec);
        }
        let named = spec.open_to_serve(given)?;
        warn_of_ways_that_never_wait(&[&named.config], named.device.limits().rotational);
        Ok(named)
    }

    /// Opens the device as a Driven disk.
    pub fn driven(&self, config: DiskConfig) -> Result<Disk, Failure> {
        check_zone_memory(self.device.geometry().memory())?;
        let start = Instant::now();
        let mut clock = |_| Nanos(start.elapsed().as_nanos() as u64);
        Ok(Disk::open(self.device.clone(), config, &mut clock)?)
    }
}

/// Warns about policies among the ways to open a disk that have no effect because waiting is not allowed.
pub fn warn_of_ways_that_never_wait(ways: &[&DiskConfig], rotational: bool) {
    let idle = |policy: Policy| {
        ways.iter().any(|c| {
            let one = c.zoned_qd1_writes.unwrap_or(rotational) && c.mode == Mode::Plug;
            one && c.zoned_qd1_policy == policy && c.anticipation == Nanos(0)
        })
    };
    for text in Policy::ALL.into_iter().filter(|p| idle(*p)).filter_map(Policy::never_waits) {
        term::note(&text);
    }
}

/// Prints warnings about a durable disk before it is used: damage, and writes that were lost. Opening the disk for
/// writing clears them, so this must come first.
fn tell(spec: &Specification) {
    let Some(path) = spec.file() else { return };
    // If the disk cannot be opened, the actual opening reports why.
    let disk = FileDisk::open(path, Access::ReadOnly);
    for line in disk.iter().flat_map(|d| d.notices()) {
        term::note(&plain(&format!("{}: {line}", path.display())));
    }
}

/// Warns at the end of a command that changed a disk in memory: the disk and the change end with the process.
pub fn warn_if_not_kept(spec: &Specification) {
    if spec.is_volatile() {
        let spec = plain(spec);
        term::note(&format!("the disk {spec} ends with this command, and its data with it"));
    }
}

/// Adds the `force` key to a specification if the user gave `--force` and it names a drive.
pub fn forced(spec: Specification, consent: Consent) -> Result<Specification, Failure> {
    let is_asked = consent.is_forced() && spec.drive().is_some();
    let force = spec.disk().keys().find(|key| key.is("force"));
    match force.filter(|force| is_asked && !spec.disk().has(force)) {
        Some(force) => Ok(spec.with(force.name, "1")?),
        None => Ok(spec),
    }
}

/// The access of a command to a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// Reads the disk; other processes may use it meanwhile.
    Look,
    /// Changes the disk.
    Change,
}

/// A disk that a command has open.
pub struct Opened {
    /// The specification.
    pub spec: Specification,
    /// Its layers, the topmost first.
    pub stack: Vec<Level>,
    /// The disk.
    pub disk: HostedDisk,
    /// A client of the disk.
    pub io: BlockingDisk,
    /// Its geometry.
    pub geometry: Geometry,
}

impl Opened {
    /// Opens the disk that `spec` names.
    pub fn new(spec: &str, usage: Use) -> Result<Opened, Failure> {
        Self::of(spec.parse()?, usage)
    }

    /// Opens the disk of a specification.
    pub fn of(spec: Specification, usage: Use) -> Result<Opened, Failure> {
        tell(&spec);
        let mut named = match usage {
            Use::Look => spec.open_to_look()?,
            Use::Change => spec.open()?,
        };
        let stack = std::mem::take(&mut named.stack);
        let disk = HostedDisk::open_named(named)?;
        let io = BlockingDisk::new(&disk)?;
        let geometry = disk.disk().geometry();
        Ok(Opened { spec, stack, disk, io, geometry })
    }

    /// Reports the zones of a range.
    pub fn report(&mut self, zones: std::ops::Range<u32>) -> Result<Vec<ZoneInfo>, Failure> {
        let start = self.geometry.zone_start(ZoneNo(zones.start));
        let found = self.io.report(start, zones.len() as u32)?;
        if found.len() != zones.len() {
            let what = format!("{} zones reported of {}", found.len(), zones.len());
            return Err(Failure::new(Kind::Io, what).hint("zoneplug check, or look at the device"));
        }
        Ok(found)
    }
}

/// Sends one BIO and waits for it, in real time.
pub fn one(queue: &mut DiskQueue, bio: Box<Bio>) -> Box<Bio> {
    let start = Instant::now();
    let (mut list, mut done) = (Bios::from([bio]), Bios::new());
    loop {
        let now = Nanos(start.elapsed().as_nanos() as u64);
        queue.submit(now, &mut list);
        queue.poll(now, &mut done);
        if let Some(bio) = done.pop_front() {
            return bio;
        }
        std::thread::yield_now();
    }
}
