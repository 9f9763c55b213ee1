//! Turns the text of a specification into a disk: its device and its attributes.

#[cfg(not(all(feature = "file", feature = "drives", feature = "crypt")))]
mod absent;
#[cfg(feature = "file")]
mod cuts;
#[cfg(feature = "drives")]
mod drives;
mod keys;
mod layers;
pub(crate) mod meaning;
mod named;
mod profile;

pub use keys::{KINDS, Kind, LAYERS, disk_keys};
pub use layers::TimedLayers;
pub use named::{check_name, is_volatile, takes_writes, writes_to};

#[cfg(feature = "crypt")]
pub(crate) use crate::backend::crypt::CryptDisk;
use crate::backend::data_path::DataPath;
#[cfg(feature = "file")]
use crate::backend::file::FileDisk;
use crate::backend::trace::{can_be_made, trace};
use crate::held::HeldDisks;
use crate::paths::is_drive;
#[cfg(not(feature = "crypt"))]
pub(crate) use absent::crypt::CryptDisk;
#[cfg(not(feature = "file"))]
use absent::cuts;
#[cfg(not(feature = "drives"))]
use absent::drives;
use cuts::Cuts;
use keys::{is_kind, is_layer, layer_names};
use layers::take_layer;
use meaning::{Base, Meaning};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use zoneplug_core::disk::{ATTRIBUTES, DiskConfig, TAGS};
use zoneplug_core::zone::{Geometry, Limits};
use zoneplug_core::{Device, Error};
use zoneplug_devices::emu::timing::Profile;
use zoneplug_devices::emu::{EmuConfig, EmuDisk, EmuKind};
use zoneplug_devices::spec::Spec;
use zoneplug_devices::stack::{FaultDisk, FaultPlan, JoinDisk};

/// The largest number of layers in a stack.
const MAX_LEVELS: usize = 16;
/// The character between devices that are joined.
pub(crate) const JOINER: char = '%';

/// Whether a kind is the path of a durable disk.
fn is_path(kind: &str) -> bool {
    let path =
        kind.contains('/') || kind.ends_with(".zbd") || !is_kind(kind) && Path::new(kind).is_file();
    path && !is_drive(kind)
}

/// The first layer of a specification, and the rest: of `po2@mem,zones=8` these are `po2` and `mem,zones=8`.
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
        // Of devices that are joined, the last one has the attributes of the disk.
        text = match rest.rsplit_once(JOINER) {
            Some((_, last)) if joins(layer) => last,
            _ => rest,
        };
    }
    text
}

/// Whether a layer is on several devices. A `linear` that says which zones it shows is a cut of one device.
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

/// Whether all devices that a specification names keep the data that is written.
///
/// ```
/// assert!(zoneplug_host::keeps_data("po2@mem,zones=8"));
/// assert!(!zoneplug_host::keeps_data("stripe@mem%null"));
/// ```
pub fn keeps_data(text: &str) -> bool {
    bases(text).iter().all(|base| base.split(',').next() != Some("null"))
}

/// Whether a read of what a specification names writes each byte of its buffer. An emulated disk without data, and a
/// modelled drive, may leave in the buffer what was there.
#[cfg(feature = "nvme-tcp")]
pub(crate) fn fills_buffers(text: &str) -> bool {
    bases(text).iter().all(|base| {
        let kind = base.split(',').next().unwrap_or_default();
        kind == "mem" || is_path(kind)
    })
}

/// The path that a specification names, if its only device is a durable disk. There may be layers on it.
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

/// The paths of all durable disks and drives that a specification names.
///
/// ```
/// let paths: Vec<_> = zoneplug_host::paths_of("stripe@/dev/sda%mem%./b.zbd").collect();
/// assert_eq!(paths, [std::path::Path::new("/dev/sda"), std::path::Path::new("./b.zbd")]);
/// ```
pub fn paths_of(text: &str) -> impl Iterator<Item = &Path> {
    let kinds = bases(text).into_iter().map(|b| b.split(',').next().unwrap_or_default());
    kinds.filter(|kind| is_path(kind) || is_drive(kind)).map(Path::new)
}

impl HeldDisks {
    /// Whether a disk at the bottom of a specification is there.
    pub fn has(&self, spec: &str) -> bool {
        paths_of(spec).any(|path| self.at(path).is_some())
    }
}

/// The path of the drive that a specification names (`/dev/sda`, `/dev/ng0n1`), if its only device is a drive. There
/// may be layers on it.
///
/// ```
/// assert!(zoneplug_host::drive_of("mem,zones=8").is_none());
/// ```
pub fn drive_of(text: &str) -> Option<&Path> {
    let [base] = bases(text)[..] else { return None };
    let kind = base.split(',').next().unwrap_or_default();
    is_drive(kind).then(|| Path::new(kind))
}

/// Checks that the traces that a specification asks for can be made. Nothing is made. `goes_on`: another server has the disk, and
/// its traces go on.
///
/// ```
/// let e = zoneplug_host::check_traces("trace,file=/none/t@mem", false).unwrap_err();
/// assert!(e.to_string().contains("no such directory"));
/// ```
pub fn check_traces(text: &str, goes_on: bool) -> Result<(), Error> {
    named_traces(text)?.iter().try_for_each(|path| can_be_made(path, goes_on))
}

/// The files of traces, as a specification names them.
fn named_traces(text: &str) -> Result<Vec<PathBuf>, Error> {
    let layers = text.split(['@', JOINER]).filter(|layer| layer.starts_with("trace,"));
    let files = layers.map(|layer| Spec::parse(layer)?.text(&keys::TRACE_FILE));
    files.filter_map(|file| Some(file.transpose()?.map(PathBuf::from))).collect()
}

/// The files of the traces that a specification asks for, by paths that are equal if the files are: their directories have no
/// links. Fails if two of its traces have one file, which only one of them would get.
///
/// ```
/// let files = zoneplug_host::trace_files("trace,file=/t@mem").unwrap();
/// assert_eq!(files, [std::path::Path::new("/t")]);
/// let e = zoneplug_host::trace_files("linear@trace,file=/t@mem%trace,file=//t@mem").unwrap_err();
/// assert!(e.to_string().contains("two traces into one file"));
/// ```
pub fn trace_files(text: &str) -> Result<Vec<PathBuf>, Error> {
    let mut all = Vec::new();
    for path in named_traces(text)? {
        let path = without_links(&path);
        if all.contains(&path) {
            return Err(Error::invalid(format!("two traces into one file, {}", path.display()))
                .hint("trace,file=PATH names a file of its own"));
        }
        all.push(path);
    }
    Ok(all)
}

/// A path whose directory has no links, if there is that directory. The file need not be there.
fn without_links(path: &Path) -> PathBuf {
    let dir = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match (dir.canonicalize(), path.file_name()) {
        (Ok(dir), Some(name)) => dir.join(name),
        _ => path.to_owned(),
    }
}

/// What a disk is opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// To write to it.
    Change,
    /// To read and report, while others may use it.
    Look,
    /// To serve it to clients, which own the data on it.
    Serve,
}

/// Opens a disk that takes the time of a modelled drive: `sim-smr30`, or `sim,profile=FILE`. Its options are the keys
/// of the profile (`cache=128M`), `data=0|1`: whether it keeps written data in memory, and `ordered=0|1`: whether it
/// declares that it keeps the order of writes, as all modelled drives do. Also returns the number of tags of the drive.
fn open_timed(spec: &mut Spec) -> Result<(Arc<EmuDisk>, u16), Error> {
    let kind = if spec.flag(&keys::DATA)? == Some(true) { EmuKind::Mem } else { EmuKind::Null };
    let ordered = spec.flag(&keys::ORDERED)?.unwrap_or(false);
    let profile = take_profile(spec).unwrap_or_else(|| Err(named::neither(spec)))?;
    spec.finish()?;
    let mut config = EmuConfig::new(kind, profile.geometry()?);
    config.limits = Limits { keeps_write_order: ordered, ..profile.limits() };
    Ok((EmuDisk::timed_with(&profile, config)?, profile.queue_depth))
}

/// Takes the profile that a specification names, `sim-smr30` or `sim,profile=FILE`, and the options that are keys of
/// profiles. `None`: the specification names no modelled drive.
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
    (spec.kind() == "sim").then(|| profile::from_file(spec))
}

/// Disks that the opening of a specification is given, and those that it has opened so far.
#[derive(Default)]
#[cfg_attr(not(any(feature = "file", feature = "drives")), allow(dead_code))]
struct Opened {
    cuts: Cuts,
    /// Disks that are open already. One that the specification names is used as it is.
    given: HeldDisks,
    /// The disks that this has opened, for a server that may pass them on.
    held: Option<HeldDisks>,
}

fn take_fault(spec: &mut Spec) -> Result<Option<FaultPlan>, Error> {
    spec.text(&keys::FAULT)?.map(|t| t.parse()).transpose()
}

/// Returns `device` with the faults of a plan, if there is one.
fn inject(device: Arc<dyn Device>, plan: Option<FaultPlan>) -> Result<Arc<dyn Device>, Error> {
    Ok(match plan {
        Some(plan) => FaultDisk::new(device, &plan)?,
        None => device,
    })
}

/// Opens what `rest` names, and puts the layer that `text` describes on it. The disk's attributes are those of the last
/// device.
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
    let mut meanings = Vec::new();
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
        meanings.push(other.meaning);
    }
    stack.append(&mut below.stack);
    meanings.push(std::mem::take(&mut below.meaning));
    let meaning = Meaning::joined(meanings);
    let mut check = None;
    let device = Arc::clone(&below.device);
    let finish = |spec: &Spec| {
        spec.finish().map_err(|e| {
            let hint = e.what_to_try().unwrap_or_default().to_owned();
            e.hint(format!("{hint}; options of the disk are at the end, as in po2@mem,tags=4"))
        })
    };
    let layer: Arc<dyn Device> = match spec.kind() {
        "linear" => {
            finish(&spec)?;
            if first.is_none() && zones.is_none() {
                devices.push(device);
                JoinDisk::linear(devices)?
            } else {
                let first = first.unwrap_or(0);
                let left = device.geometry().nr_zones().saturating_sub(first);
                let cut = first..first.saturating_add(zones.unwrap_or(left));
                opened.cuts.cut(&device, cut.clone());
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
            let path = Path::new(&path);
            let known = opened.given.key(path);
            let (disk, of_key, key) = CryptDisk::open(device, path, meaning.salt(), known)?;
            opened.held.iter_mut().for_each(|held| held.add_key(path, key.clone()));
            check = Some(of_key);
            disk
        }
        "trace" => {
            let Some(path) = spec.text(&keys::TRACE_FILE)? else {
                return Err(Error::invalid("trace without a file")
                    .hint("trace,file=PATH@... names the file that is made"));
            };
            finish(&spec)?;
            let (path, goes_on) = (Path::new(&path), opened.given.has(rest));
            if purpose == Purpose::Look { device } else { trace(device, path, goes_on)? }
        }
        _ => {
            let Some(layer) = take_layer(&mut spec)? else {
                return Err(spec.unknown_kind(&layer_names()));
            };
            finish(&spec)?;
            layer.put_on(device)?
        }
    };
    below.meaning = meaning.with(text, check);
    below.device = inject(layer, fault)?;
    stack.iter_mut().for_each(|level| level.depth += 1);
    let geometry = *below.device.geometry();
    stack.insert(0, Level { depth: 0, text: text.to_owned(), geometry, data_path: None });
    below.stack = stack;
    Ok(below)
}

/// Opens a joined device other than the last. It may have no attributes of the disk.
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
/// [`KINDS`] has the kinds of device and their keys, [`LAYERS`] the layers and theirs. [`disk_keys`] are those of the
/// disk itself: its attributes ([`ATTRIBUTES`]) under their Linux names or shorter aliases, `tags` for each queue, and
/// `fault` ([`FaultPlan`]: `fault=write/io/zone=3+read/delay=5ms/p=0.01`). `zoneplug help spec` prints all of them.
///
/// If the kind is the path of a block device or of an NVMe generic character device (`/dev/sda`, `/dev/ng0n1`), the
/// device is that drive. A specification may name a durable disk several times, by cuts (`linear,first=8,zones=16@A`)
/// that have no zone in common.
///
/// Options between the name of a layer and the `@` belong to the layer; `fault=` there puts a fault injector on top of
/// it. Attributes of the disk are at the very end. A path in a stack contains no `@`, and below `linear` and `stripe`
/// no `%`.
#[derive(Clone)]
pub struct DiskSpec {
    /// The device.
    pub device: Arc<dyn Device>,
    /// The attributes.
    pub config: DiskConfig,
    /// Tags of each queue, if the specification or its modelled drive has a number.
    pub tags: Option<u16>,
    /// The layers and devices, topmost first. A device alone is one level.
    pub stack: Vec<Level>,
    pub(crate) meaning: Meaning,
    #[cfg(feature = "file")]
    pub(crate) files: Vec<Arc<FileDisk>>,
    /// The disks at the bottom as they are open, if they were opened to be served.
    pub held: HeldDisks,
}

/// A layer of a stack, or a device at its bottom.
#[derive(Debug, Clone)]
pub struct Level {
    /// The number of levels above it.
    pub depth: usize,
    /// Its text in the specification.
    pub text: String,
    /// The geometry that it shows to the level above.
    pub geometry: Geometry,
    /// How data moves, if it is a file or a drive.
    pub data_path: Option<DataPath>,
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
        Self::open_all(text, Purpose::Change, Opened::default())
    }

    /// As [`DiskSpec::parse`], for a program that only inspects: opens disks for reading, and makes no trace.
    pub fn parse_to_look(text: &str) -> Result<DiskSpec, Error> {
        Self::open_all(text, Purpose::Look, Opened::default())
    }

    /// As [`DiskSpec::parse`], for a server. Its clients own the data on a drive, so a drive with a file system is not
    /// refused. The disks of `given` that the specification names are open already, with their locks, and are used as
    /// they are. [`DiskSpec::held`] has all that are open then.
    ///
    /// ```
    /// use zoneplug_host::{DiskSpec, HeldDisks};
    /// let spec = DiskSpec::parse_to_serve("mem,zones=8", &HeldDisks::default())?;
    /// assert_eq!(spec.held.iter().len(), 0, "a disk in memory is in no file");
    /// # Ok::<(), zoneplug_core::Error>(())
    /// ```
    pub fn parse_to_serve(text: &str, given: &HeldDisks) -> Result<DiskSpec, Error> {
        let held = Some(HeldDisks::default());
        let opened = Opened { given: given.clone(), held, cuts: Cuts::default() };
        Self::open_all(text, Purpose::Serve, opened)
    }

    fn open_all(text: &str, purpose: Purpose, mut opened: Opened) -> Result<DiskSpec, Error> {
        let mut spec = Self::open(text, purpose, 0, &mut opened)?;
        opened.cuts.check()?;
        #[cfg(feature = "file")]
        spec.files.extend(opened.cuts.files());
        spec.held = opened.held.unwrap_or_default();
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
        let other = |device: Arc<dyn Device>, kind: &str| (device, Base::other(kind), None);
        let (device, base, data_path): (Arc<dyn Device>, Base, Option<DataPath>) = match spec.kind()
        {
            kind @ ("null" | "mem") => {
                let kind = kind.to_owned();
                let emu = EmuConfig::from_spec(&mut spec)?;
                spec.finish()?;
                other(EmuDisk::new(emu)?, &kind)
            }
            kind if is_drive(kind) => {
                let kind = kind.to_owned();
                let (drive, data_path) = drives::open(&mut spec, purpose, opened)?;
                (drive, Base::other(&kind), Some(data_path))
            }
            kind if is_path(kind) => {
                let (disk, base, data_path) = cuts::open(&mut spec, purpose, opened)?;
                (disk, base, Some(data_path))
            }
            _ => {
                let (disk, depth) = open_timed(&mut spec)?;
                tags = tags.or(Some(depth));
                other(disk, spec.kind())
            }
        };
        let device = inject(device, fault)?;
        let geometry = *device.geometry();
        let stack = vec![Level { depth: 0, text: text.to_owned(), geometry, data_path }];
        Ok(DiskSpec {
            device,
            config,
            tags,
            stack,
            meaning: base.into(),
            #[cfg(feature = "file")]
            files: Vec::new(),
            held: HeldDisks::default(),
        })
    }
}

/// Takes the attributes of the disk from a specification; those that it does not name have their defaults. For a
/// program that opens the device by itself, such as a run in virtual time.
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
        let value = spec.take(&attribute.key).map_err(|e| {
            let is_expression = e.what().contains("policy=[");
            let form = attribute.key.form.allowed();
            let hint = format!("expressions are for virtual time, as bench --policy; here {form}");
            if is_expression { e.hint(hint) } else { e }
        })?;
        if let Some(value) = value {
            attribute.set(&mut config, value);
        }
    }
    Ok(config)
}

/// Opens the device that a specification names. Attributes of the disk are checked and ignored.
pub fn open_device(text: &str) -> Result<Arc<dyn Device>, Error> {
    Ok(DiskSpec::parse(text)?.device)
}
