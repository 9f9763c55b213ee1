//! From a specification to a disk: the device, and the attributes that the layer takes from the same text.

#[cfg(not(all(feature = "file", feature = "drives", feature = "crypt")))]
mod absent;
#[cfg(feature = "file")]
mod cuts;
#[cfg(feature = "drives")]
mod drives;
mod keys;
mod named;

pub use keys::{KINDS, Kind, LAYERS, disk_keys};
pub use named::{check_name, is_volatile, takes_writes};

#[cfg(feature = "crypt")]
use crate::backend::crypt::CryptDisk;
use crate::backend::trace::trace;
use crate::paths::{is_drive, is_foreign, read_regular};
#[cfg(not(feature = "crypt"))]
use absent::crypt::CryptDisk;
#[cfg(not(feature = "file"))]
use absent::cuts;
#[cfg(not(feature = "drives"))]
use absent::drives;
use cuts::Opened;
use keys::{is_kind, is_layer, layer_names};
use std::io;
use std::path::Path;
use std::sync::Arc;
use zoneplug_core::disk::{ATTRIBUTES, DiskConfig, TAGS};
use zoneplug_core::zone::{Geometry, Limits};
use zoneplug_core::{Device, Error, ErrorKind};
use zoneplug_devices::emu::timing::Profile;
use zoneplug_devices::emu::{EmuConfig, EmuDisk, EmuKind};
use zoneplug_devices::spec::Spec;
use zoneplug_devices::stack::{FaultDisk, FaultPlan, JoinDisk, Po2Disk};

/// Most layers of a stack.
const MAX_LEVELS: usize = 16;
/// Between devices that are joined.
pub(crate) const JOINER: char = '%';
/// Longest profile. Those that come with zoneplug have less than 4 KiB.
const MAX_PROFILE: u64 = 64 << 10;

/// Whether a kind is the path of a durable disk.
fn is_path(kind: &str) -> bool {
    let path =
        kind.contains('/') || kind.ends_with(".zbd") || !is_kind(kind) && Path::new(kind).is_file();
    path && !is_drive(kind)
}

/// The first layer of a specification, and what it is on: of `po2@mem,zones=8` these are `po2` and `mem,zones=8`.
pub(crate) fn split_layer(text: &str) -> Option<(&str, &str)> {
    let (layer, rest) = text.split_once('@')?;
    let kind = layer.split(',').next().unwrap_or_default();
    // A path may have an @ too.
    is_layer(kind).then_some((layer, rest))
}

/// The device of a specification, without the layers on it.
///
/// ```
/// assert_eq!(zoneplug_host::base_of("po2@mem,zones=8"), "mem,zones=8");
/// ```
pub fn base_of(mut text: &str) -> &str {
    while let Some((layer, rest)) = split_layer(text) {
        // Of devices that are joined, the last: the attributes of the disk are there.
        text = match rest.rsplit_once(JOINER) {
            Some((_, last)) if joins(layer) => last,
            _ => rest,
        };
    }
    text
}

/// Whether a layer is on several devices. A *linear* that says which zones is a cut, of one.
pub(crate) fn joins(layer: &str) -> bool {
    let mut words = layer.split(',');
    match words.next() {
        Some("stripe") => true,
        Some("linear") => !words.any(|w| w.starts_with("first=") || w.starts_with("zones=")),
        _ => false,
    }
}

/// Whether there is a layer of several devices in a stack.
fn has_joins(mut text: &str) -> bool {
    while let Some((layer, rest)) = split_layer(text) {
        if joins(layer) {
            return true;
        }
        text = rest;
    }
    false
}

/// Every device of a specification.
pub(crate) fn bases(text: &str) -> Vec<&str> {
    let mut text = text;
    while let Some((layer, rest)) = split_layer(text) {
        if joins(layer) {
            return rest.split(JOINER).flat_map(bases).collect();
        }
        text = rest;
    }
    vec![text]
}

/// Whether everything that is written to what a specification names can be read back.
///
/// ```
/// assert!(zoneplug_host::keeps_data("po2@mem,zones=8"));
/// assert!(!zoneplug_host::keeps_data("stripe@mem%null"));
/// ```
pub fn keeps_data(text: &str) -> bool {
    bases(text).iter().all(|base| base.split(',').next() != Some("null"))
}

/// The path that a specification names, if it is one of a single durable disk, with or without layers on it.
pub fn file_of(text: &str) -> Option<&Path> {
    let [base] = bases(text)[..] else { return None };
    let kind = base.split(',').next().unwrap_or_default();
    is_path(kind).then(|| Path::new(kind))
}

/// The files of all durable disks that a specification names.
///
/// ```
/// let files: Vec<_> = zoneplug_host::files_of("linear@./a.zbd%mem%./b.zbd").collect();
/// assert_eq!(files, [std::path::Path::new("./a.zbd"), std::path::Path::new("./b.zbd")]);
/// ```
pub fn files_of(text: &str) -> impl Iterator<Item = &Path> {
    let kinds = bases(text).into_iter().map(|b| b.split(',').next().unwrap_or_default());
    kinds.filter(|kind| is_path(kind)).map(Path::new)
}

/// The path of the drive that a specification names (`/dev/sda`, `/dev/ng0n1`), if it is one of a single drive, with or
/// without layers on it.
///
/// ```
/// assert!(zoneplug_host::drive_of("mem,zones=8").is_none());
/// ```
pub fn drive_of(text: &str) -> Option<&Path> {
    let [base] = bases(text)[..] else { return None };
    let kind = base.split(',').next().unwrap_or_default();
    is_drive(kind).then(|| Path::new(kind))
}

/// What a disk is opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// To write to it.
    Change,
    /// To read and report, while others may use it.
    Look,
    /// To pass on the writes of a server's clients, which own the data on it.
    Serve,
}

/// A disk with the times of a drive: `sim-smr30`, or `sim,profile=FILE`. The keys of a profile are its options
/// (`cache=128M`: another hypothesis about the drive), `data=0|1`: whether it keeps what is written, in memory, and
/// `ordered=0|1`: whether it declares that it keeps the order of writes, which all of these do.
/// Its tags are those of the drive, unless `tags` says otherwise.
fn open_timed(spec: &mut Spec) -> Result<(Arc<EmuDisk>, u16), Error> {
    let kind = if spec.flag(&keys::DATA)? == Some(true) { EmuKind::Mem } else { EmuKind::Null };
    let ordered = spec.flag(&keys::ORDERED)?.unwrap_or(false);
    let profile = take_profile(spec).unwrap_or_else(|| Err(named::neither(spec)))?;
    spec.finish()?;
    let mut config = EmuConfig::new(kind, profile.geometry()?);
    config.limits = Limits { keeps_write_order: ordered, ..profile.limits() };
    Ok((EmuDisk::timed_with(&profile, config)?, profile.queue_depth))
}

/// Takes the profile that a specification names, `sim-smr30` or `sim,profile=FILE`, with the options that are keys of
/// profiles. `None`: it names no drive that is modelled.
///
/// ```
/// use zoneplug_devices::spec::Spec;
/// let mut spec = Spec::parse("sim-smr30,cache=64M").unwrap();
/// let profile = zoneplug_host::take_profile(&mut spec).unwrap().unwrap();
/// assert_eq!(profile.name, "smr30");
/// assert!(zoneplug_host::take_profile(&mut Spec::parse("mem").unwrap()).is_none());
/// ```
pub fn take_profile(spec: &mut Spec) -> Option<Result<Profile, Error>> {
    if let Some(profile) = Profile::from_spec(spec) {
        return Some(profile);
    }
    (spec.kind() == "sim").then(|| from_file(spec))
}

fn from_file(spec: &mut Spec) -> Result<Profile, Error> {
    let Some(path) = spec.text(&keys::PROFILE)? else {
        return Err(Error::invalid("sim without a profile").hint(
            "say sim,profile=FILE with the numbers of a drive, or sim-smr30 for a known one",
        ));
    };
    let read = read_regular(Path::new(&path), MAX_PROFILE).and_then(|bytes| {
        String::from_utf8(bytes).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "no text"))
    });
    let text = read.map_err(|e| {
        Error::new(ErrorKind::NotFound, format!("the profile {path} cannot be read: {e}"))
            .hint("zoneplug's own profiles are called sim-smr30, sim-smr20, sim-smr14, sim-zns1")
            .source(e)
    })?;
    let stem = Path::new(&path).file_stem().and_then(|s| s.to_str()).unwrap_or("profile");
    // Keys of the specification are the caller's own words, and so are errors without the file.
    Profile::from_text(spec, stem, &text).map_err(|e| match is_foreign(Path::new(&path)) {
        true => Error::invalid(format!("{path} is no profile, or a wrong one"))
            .hint("a file of your own: the lines of another user's are not shown"),
        false => e,
    })
}

fn take_fault(spec: &mut Spec) -> Result<Option<FaultPlan>, Error> {
    spec.text(&keys::FAULT)?.map(|t| t.parse()).transpose()
}

/// `device` with the faults of a plan, if there is one.
fn inject(device: Arc<dyn Device>, plan: Option<FaultPlan>) -> Result<Arc<dyn Device>, Error> {
    Ok(match plan {
        Some(plan) => FaultDisk::new(device, &plan)?,
        None => device,
    })
}

/// Puts the layer that `text` describes on what `rest` names. The disk's attributes are those of the last device.
fn put_on(
    (text, rest): (&str, &str),
    purpose: Purpose,
    depth: usize,
    opened: &mut Opened,
) -> Result<DiskSpec, Error> {
    let mut spec = Spec::parse(text)?;
    let fault = take_fault(&mut spec)?;
    let (others, last) = match rest.rsplit_once(JOINER) {
        Some((others, last)) if joins(text) => (Some(others), last),
        _ => (None, rest),
    };
    let linear = spec.kind() == "linear";
    let first = if linear { spec.number(&keys::FIRST)?.map(|n| n as u32) } else { None };
    let zones = if linear { spec.number(&keys::CUT_ZONES)?.map(|n| n as u32) } else { None };
    // These layers hide a file system or a partition table of the drive below, so the server's clients cannot own it.
    let hides = spec.kind() == "crypt" || first.is_some_and(|n| n > 0);
    let purpose = if hides && purpose == Purpose::Serve { Purpose::Change } else { purpose };
    let mut below = DiskSpec::open(last, purpose, depth + 1, opened)?;
    let mut devices = Vec::new();
    let mut stack = Vec::new();
    if others.is_some() && rest.split(JOINER).any(has_joins) {
        return Err(Error::invalid(format!(
            "{text}@{rest}: a layer of several devices on another"
        ))
        .hint("the topmost one takes every % for its own; a program can nest JoinDisk"));
    }
    for other in others.into_iter().flat_map(|o| o.split(JOINER)) {
        let other = open_bare(other, purpose, depth + 1, opened)?;
        devices.push(other.device);
        stack.extend(other.stack);
    }
    stack.append(&mut below.stack);
    let device = Arc::clone(&below.device);
    let finish = |spec: &Spec| {
        spec.finish().map_err(|e| {
            let hint = e.what_to_try().unwrap_or_default().to_owned();
            e.hint(format!("{hint}; options of the disk are at the end, as in po2@mem,tags=4"))
        })
    };
    let layer: Arc<dyn Device> = match spec.kind() {
        "po2" => {
            finish(&spec)?;
            Po2Disk::new(device)?
        }
        "linear" => {
            finish(&spec)?;
            if first.is_none() && zones.is_none() {
                devices.push(device);
                JoinDisk::linear(devices)?
            } else {
                let first = first.unwrap_or(0);
                let left = device.geometry().nr_zones().saturating_sub(first);
                let cut = first..first.saturating_add(zones.unwrap_or(left));
                opened.cut(&device, cut.clone());
                JoinDisk::cut(device, cut)?
            }
        }
        "stripe" => {
            finish(&spec)?;
            devices.push(device);
            JoinDisk::stripe(devices)?
        }
        "crypt" => {
            let Some(path) = spec.text(&keys::KEY_FILE)? else {
                return Err(Error::invalid("crypt without a key").hint(
                    "crypt,key-file=PATH@... names a file of 64 bytes: head -c 64 /dev/urandom > PATH",
                ));
            };
            finish(&spec)?;
            CryptDisk::with_key_file(device, Path::new(&path))?
        }
        "delay" => {
            let mut plan = FaultPlan::default();
            for key in &keys::DELAYS {
                if let Some(time) = spec.number(key)? {
                    let rule: FaultPlan =
                        format!("{}/delay={time}ns/count=all", key.name).parse()?;
                    plan.rules.extend(rule.rules);
                }
            }
            finish(&spec)?;
            if plan.rules.is_empty() {
                return Err(Error::invalid("delay of nothing")
                    .hint("delay,write=2ms@...: read, write, append, flush, reset or any"));
            }
            FaultDisk::new(device, &plan)?
        }
        "trace" => {
            let Some(path) = spec.text(&keys::TRACE_FILE)? else {
                return Err(Error::invalid("trace without a file")
                    .hint("trace,file=PATH@... names the file that is made"));
            };
            finish(&spec)?;
            if purpose == Purpose::Look { device } else { trace(device, Path::new(&path))? }
        }
        _ => return Err(spec.unknown_kind(&layer_names())),
    };
    below.device = inject(layer, fault)?;
    stack.iter_mut().for_each(|level| level.depth += 1);
    let geometry = *below.device.geometry();
    stack.insert(0, Level { depth: 0, text: text.to_owned(), geometry });
    below.stack = stack;
    Ok(below)
}

/// A device that is not the last of those that are joined: without attributes of the disk.
fn open_bare(
    text: &str,
    purpose: Purpose,
    depth: usize,
    opened: &mut Opened,
) -> Result<DiskSpec, Error> {
    let below = DiskSpec::open(text, purpose, depth, opened)?;
    let tags = Spec::parse(base_of(text))?.take(&TAGS)?;
    if below.config != DiskConfig::default() || tags.is_some() {
        return Err(Error::invalid(format!("{text} has options of the disk"))
            .hint("they are written once, at the end of the last device"));
    }
    Ok(below)
}

/// What a specification names: `mem,zones=64,zone-size=64M,mode=plug,tags=32`, or a stack of layers on a device, the
/// topmost first: `po2@mem,zones=64,zone-size=96M,tags=32`.
///
/// [`KINDS`] has the kinds of device and their keys, [`LAYERS`] the layers and theirs. [`disk_keys`] are those of the disk
/// itself: its attributes ([`ATTRIBUTES`]) under their Linux names or shorter aliases, `tags` for each queue, and `fault`
/// ([`FaultPlan`]: `fault=write/io/zone=3+read/delay=5ms/p=0.01`). `zoneplug help spec` prints all of them.
///
/// A kind that is the path of a block device or of an NVMe generic character device is that drive (`/dev/sda`,
/// `/dev/ng0n1`). A durable disk may be named several times by cuts (`linear,first=8,zones=16@A`) without a zone in common.
///
/// What follows the name of a layer up to the `@` is the layer's own; `fault=` there is a fault injector on top of it. Attributes
/// of the disk stay at the very end. A path in a stack has no `@`, and below `linear` and `stripe` no `%`.
#[derive(Clone)]
pub struct DiskSpec {
    /// The device.
    pub device: Arc<dyn Device>,
    /// The attributes.
    pub config: DiskConfig,
    /// Tags of each queue, if given.
    pub tags: Option<u16>,
    /// What it is made of, topmost first; a device alone is one level.
    pub stack: Vec<Level>,
}

/// A layer of a stack, or a device at its bottom.
#[derive(Debug, Clone)]
pub struct Level {
    /// How many levels are above it.
    pub depth: usize,
    /// As it is written in the specification.
    pub text: String,
    /// What it shows to the level above.
    pub geometry: Geometry,
}

impl std::fmt::Debug for DiskSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DiskSpec")
            .field("config", &self.config)
            .field("tags", &self.tags)
            .finish_non_exhaustive()
    }
}

impl DiskSpec {
    /// Reads a specification and opens its device.
    ///
    /// ```
    /// let spec = zoneplug_host::DiskSpec::parse("null,zones=8,tags=4").unwrap();
    /// assert_eq!((spec.device.geometry().nr_zones(), spec.tags), (8, Some(4)));
    /// let e = zoneplug_host::DiskSpec::parse("null,zone=8").unwrap_err();
    /// assert!(e.to_string().contains("zone"));
    /// ```
    pub fn parse(text: &str) -> Result<DiskSpec, Error> {
        Self::open_all(text, Purpose::Change)
    }

    /// [`DiskSpec::parse`] for a program that only inspects: opens durable disks for reading, and makes no trace.
    pub fn parse_to_look(text: &str) -> Result<DiskSpec, Error> {
        Self::open_all(text, Purpose::Look)
    }

    /// [`DiskSpec::parse`] for a server. Its clients own the data on a drive, so a file system on it is no reason to
    /// refuse it.
    pub fn parse_to_serve(text: &str) -> Result<DiskSpec, Error> {
        Self::open_all(text, Purpose::Serve)
    }

    fn open_all(text: &str, purpose: Purpose) -> Result<DiskSpec, Error> {
        let mut opened = Opened::default();
        let spec = Self::open(text, purpose, 0, &mut opened)?;
        opened.check()?;
        Ok(spec)
    }

    fn open(
        text: &str,
        purpose: Purpose,
        depth: usize,
        opened: &mut Opened,
    ) -> Result<DiskSpec, Error> {
        if depth > MAX_LEVELS {
            return Err(Error::invalid(format!("a stack of more than {MAX_LEVELS} layers"))
                .hint("fewer layers"));
        }
        if let Some((layer, rest)) = split_layer(text) {
            return put_on((layer, rest), purpose, depth, opened);
        }
        let mut spec = Spec::parse(text)?;
        let config = take_config(&mut spec)?;
        let fault = take_fault(&mut spec)?;
        let mut tags = spec.number(&TAGS)?.map(|n| n as u16);
        let device: Arc<dyn Device> = match spec.kind() {
            "null" | "mem" => {
                let emu = EmuConfig::from_spec(&mut spec)?;
                spec.finish()?;
                EmuDisk::new(emu)?
            }
            kind if is_drive(kind) => drives::open(&mut spec, purpose)?,
            kind if is_path(kind) => opened.open(&mut spec, purpose)?,
            _ => {
                let (disk, depth) = open_timed(&mut spec)?;
                tags = tags.or(Some(depth));
                disk
            }
        };
        let device = inject(device, fault)?;
        let bottom = Level { depth: 0, text: text.to_owned(), geometry: *device.geometry() };
        Ok(DiskSpec { device, config, tags, stack: vec![bottom] })
    }
}

/// Takes the layer's own attributes from a specification; the defaults where it names none. For a program that opens
/// the device in another way than [`DiskSpec::parse`], as a run in virtual time does.
///
/// ```
/// use zoneplug_devices::spec::Spec;
/// let mut spec = Spec::parse("sim-smr30,qd1=1,policy=clook,anticipation-us=300").unwrap();
/// let config = zoneplug_host::take_config(&mut spec).unwrap();
/// spec.finish().unwrap();
/// assert_eq!((config.zoned_qd1_writes, config.anticipation.0), (Some(true), 300_000));
/// ```
pub fn take_config(spec: &mut Spec) -> Result<DiskConfig, Error> {
    let mut config = DiskConfig::default();
    for attribute in ATTRIBUTES.iter().filter(|a| a.is_key()) {
        if let Some(value) = spec.take(&attribute.key)? {
            attribute.set(&mut config, value);
        }
    }
    Ok(config)
}

/// Opens the device that a specification names; the layer's attributes in it are checked and left aside.
pub fn open_device(text: &str) -> Result<Arc<dyn Device>, Error> {
    Ok(DiskSpec::parse(text)?.device)
}
