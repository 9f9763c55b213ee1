//! Turns the text of a specification into a disk: its device and its attributes.

#[cfg(not(all(feature = "file", feature = "drives", feature = "crypt")))]
mod absent;
mod build;
#[cfg(feature = "file")]
mod cuts;
#[cfg(feature = "drives")]
mod drives;
mod keys;
mod layers;
pub(crate) mod meaning;
mod named;
mod profile;
mod tree;

pub use keys::{KINDS, Kind, LAYERS, disk_keys};
pub use layers::TimedLayers;
#[cfg(any(feature = "iscsi", feature = "nvme-tcp", feature = "ublk"))]
pub(crate) use tree::JOINER;
pub use tree::{SpecNode, SpecPart, Specification};

#[cfg(feature = "crypt")]
pub(crate) use crate::backend::crypt::CryptDisk;
use crate::backend::data_path::DataPath;
#[cfg(feature = "file")]
use crate::backend::file::FileDisk;
use crate::backend::trace::trace;
use crate::held::HeldDisks;
use crate::zone_memory::check_zone_memory;
#[cfg(not(feature = "crypt"))]
pub(crate) use absent::crypt::CryptDisk;
#[cfg(not(feature = "file"))]
use absent::cuts;
#[cfg(not(feature = "drives"))]
use absent::drives;
use cuts::Cuts;
use keys::layer_names;
use layers::take_layer;
use meaning::{Base, Meaning};
use std::path::Path;
use std::sync::Arc;
use zoneplug_core::disk::{ATTRIBUTES, DiskConfig, TAGS};
use zoneplug_core::zone::{Geometry, Limits, MAX_ZONES};
use zoneplug_core::{Device, Error};
use zoneplug_devices::emu::timing::Profile;
use zoneplug_devices::emu::{EmuConfig, EmuDisk, EmuKind};
use zoneplug_devices::spec::{Spec, SpecError};
use zoneplug_devices::stack::{FaultDisk, FaultPlan, JoinDisk};

/// The purpose for which a disk is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// The disk is written.
    Change,
    /// The disk is read and reported, while others may use it.
    Look,
    /// The disk is served to clients, which own the data on it.
    Serve,
}

/// Opens a disk with the timing of a modelled drive: `sim-smr30`, or `sim,profile=FILE`. Its options are the keys of
/// the profile (`cache=128M`); `data=0|1`: whether it keeps written data in memory; `ordered=0|1`: whether it
/// declares that it keeps the order of writes, as all modelled drives do. Also returns the number of tags of the
/// drive.
fn open_timed(spec: &mut Spec) -> Result<(Arc<EmuDisk>, u16), Error> {
    let kind = if spec.flag(&keys::DATA)? == Some(true) { EmuKind::Mem } else { EmuKind::Null };
    let ordered = spec.flag(&keys::ORDERED)?.unwrap_or(false);
    let profile = take_profile(spec).unwrap_or_else(|| Err(named::neither(spec)))?;
    spec.finish()?;
    let mut config = EmuConfig::new(kind, profile.geometry()?);
    config.limits = Limits { keeps_write_order: ordered, ..profile.limits() };
    check_zone_memory(config.zone_memory())?;
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
    if spec.is_quoted() {
        return None;
    }
    if let Some(profile) = Profile::from_spec(spec) {
        return Some(profile);
    }
    (spec.kind() == "sim").then(|| profile::from_file(spec))
}

/// Disks that are given to the opening of a specification, and those that it has opened so far.
#[derive(Default)]
#[cfg_attr(not(any(feature = "file", feature = "drives")), allow(dead_code))]
struct Opened {
    cuts: Cuts,
    /// Disks that are open already. If the specification names one, it is used as it is.
    given: HeldDisks,
    /// The disks that were opened, for a server that may pass them on.
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

/// Opens the devices below a layer, and puts the layer on them. The disk's attributes are those of the last device.
fn put_on(
    part: &SpecPart,
    nodes: &[SpecNode],
    purpose: Purpose,
    opened: &mut Opened,
) -> Result<DiskSpec, Error> {
    let mut spec = part.options();
    let fault = take_fault(&mut spec)?;
    let Some((last, others)) = nodes.split_last() else {
        return Err(named::neither(&spec));
    };
    let linear = spec.kind() == "linear";
    let first = if linear { spec.number(&keys::FIRST)?.map(|n| n as u32) } else { None };
    let zones = if linear { spec.number(&keys::CUT_ZONES)?.map(|n| n as u32) } else { None };
    // These layers hide a file system or a partition table of the drive below, so the server's clients cannot own it.
    let hides = spec.kind() == "crypt" || first.is_some_and(|n| n > 0);
    let purpose = if hides && purpose == Purpose::Serve { Purpose::Change } else { purpose };
    let mut below = DiskSpec::open(last, purpose, opened)?;
    let mut devices = Vec::new();
    let mut stack = Vec::new();
    let mut meanings = Vec::new();
    let mut nr_zones = u64::from(below.device.geometry().nr_zones());
    for other in others {
        // `JoinDisk::linear` refuses so many. A stripe has as many zones of each disk as the smallest one, which may be the last.
        if linear && nr_zones > MAX_ZONES {
            break;
        }
        let other = open_bare(other, purpose, opened)?;
        nr_zones += u64::from(other.device.geometry().nr_zones());
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
        let more = "options of the disk are at the end, as in po2@mem,tags=4";
        spec.finish().map_err(|e| e.and_try(more))
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
                return Err(SpecError::Missing {
                    kind: "crypt",
                    key: keys::KEY_FILE.name,
                    thing: "a key",
                    form: "crypt,key-file=PATH@... names a file of 64 bytes: head -c 64 /dev/urandom > PATH",
                }
                .into());
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
                return Err(SpecError::Missing {
                    kind: "trace",
                    key: keys::TRACE_FILE.name,
                    thing: "a file",
                    form: "trace,file=PATH@... names the file that is made",
                }
                .into());
            };
            finish(&spec)?;
            let (path, goes_on) = (Path::new(&path), opened.given.has(last));
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
    below.meaning = meaning.with(part, check);
    below.device = inject(layer, fault)?;
    stack.iter_mut().for_each(|level| level.depth += 1);
    let geometry = *below.device.geometry();
    stack.insert(0, Level { depth: 0, text: part.text().to_owned(), geometry, data_path: None });
    below.stack = stack;
    Ok(below)
}

/// Opens a joined device other than the last. It must have no attributes of the disk.
fn open_bare(node: &SpecNode, purpose: Purpose, opened: &mut Opened) -> Result<DiskSpec, Error> {
    let below = DiskSpec::open(node, purpose, opened)?;
    let tags = node.disk().has(&TAGS);
    if below.config != DiskConfig::default() || tags {
        return Err(Error::invalid(format!("{} has options of the disk", node.disk().text()))
            .hint("they are written once, at the end of the last device"));
    }
    Ok(below)
}

/// An opened specification: `mem,zones=64,zone-size=64M,mode=plug,tags=32`, or a stack of layers on a device, the
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
/// it. Attributes of the disk are at the very end. [`Specification`] has the grammar: a path or a value in quotation marks may
/// have any characters, and brackets hold the devices of an inner layer together.
#[derive(Clone)]
pub struct DiskSpec {
    /// The device.
    pub device: Arc<dyn Device>,
    /// The attributes.
    pub config: DiskConfig,
    /// Tags of each queue, if the specification or its modelled drive sets a number.
    pub tags: Option<u16>,
    /// The layers and devices, topmost first. A device alone is one level.
    pub stack: Vec<Level>,
    pub(crate) meaning: Meaning,
    #[cfg(feature = "file")]
    pub(crate) files: Vec<Arc<FileDisk>>,
    /// The open disks at the bottom, if they were opened to be served.
    pub held: HeldDisks,
}

/// A layer of a stack, or a device at its bottom.
#[derive(Debug, Clone)]
pub struct Level {
    /// The number of levels above it.
    pub depth: usize,
    /// Its text in the specification.
    pub text: String,
    /// The geometry that the level above sees.
    pub geometry: Geometry,
    /// How data moves, if the level is a file or a drive.
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
        Specification::parse(text)?.open()
    }

    /// Like [`DiskSpec::parse`], for a program that only inspects: opens disks for reading, and makes no trace.
    pub fn parse_to_look(text: &str) -> Result<DiskSpec, Error> {
        Specification::parse(text)?.open_to_look()
    }

    fn open_all(
        spec: &Specification,
        purpose: Purpose,
        mut opened: Opened,
    ) -> Result<DiskSpec, Error> {
        let mut spec = Self::open(spec.root(), purpose, &mut opened)?;
        opened.cuts.check()?;
        #[cfg(feature = "file")]
        spec.files.extend(opened.cuts.files());
        spec.held = opened.held.unwrap_or_default();
        Ok(spec)
    }

    fn open(node: &SpecNode, purpose: Purpose, opened: &mut Opened) -> Result<DiskSpec, Error> {
        let part = match node {
            SpecNode::Layer(part, below) => return put_on(part, below, purpose, opened),
            SpecNode::Device(part) => part,
        };
        let mut spec = part.options();
        let config = take_config(&mut spec)?;
        let fault = take_fault(&mut spec)?;
        let mut tags = spec.number(&TAGS)?.map(|n| n as u16);
        let other = |device: Arc<dyn Device>, kind: &str| (device, Base::other(kind), None);
        let (device, base, data_path): (Arc<dyn Device>, Base, Option<DataPath>) =
            if part.kind().is_some_and(|kind| matches!(kind.name, "null" | "mem")) {
                let emu = EmuConfig::from_spec(&mut spec)?;
                spec.finish()?;
                check_zone_memory(emu.zone_memory())?;
                other(EmuDisk::new(emu)?, part.name())
            } else if part.drive().is_some() {
                let (drive, data_path) = drives::open(&mut spec, purpose, opened)?;
                (drive, Base::other(part.name()), Some(data_path))
            } else if part.file().is_some() {
                let (disk, base, data_path) = cuts::open(&mut spec, purpose, opened)?;
                (disk, base, Some(data_path))
            } else {
                let (disk, depth) = open_timed(&mut spec)?;
                tags = tags.or(Some(depth));
                other(disk, part.name())
            };
        let device = inject(device, fault)?;
        let geometry = *device.geometry();
        let stack = vec![Level { depth: 0, text: part.text().to_owned(), geometry, data_path }];
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

impl Specification {
    /// Opens the device.
    ///
    /// # Errors
    ///
    /// A device that does not exist, or that is impossible with these options.
    pub fn open(&self) -> Result<DiskSpec, Error> {
        DiskSpec::open_all(self, Purpose::Change, Opened::default())
    }

    /// Like [`Specification::open`], for a program that only inspects: opens disks for reading, and makes no trace.
    ///
    /// # Errors
    ///
    /// The errors of [`Specification::open`].
    pub fn open_to_look(&self) -> Result<DiskSpec, Error> {
        DiskSpec::open_all(self, Purpose::Look, Opened::default())
    }

    /// Like [`Specification::open`], for a server. Its clients own the data on a drive, so a drive with a file system
    /// is not refused. Disks of `given` that the specification names are open already, with their locks, and are used
    /// as they are. [`DiskSpec::held`] then has all disks that are open.
    ///
    /// ```
    /// use zoneplug_host::{HeldDisks, Specification};
    /// let spec = Specification::parse("mem,zones=8")?.open_to_serve(&HeldDisks::default())?;
    /// assert_eq!(spec.held.iter().len(), 0, "a disk in memory is in no file");
    /// # Ok::<(), zoneplug_core::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of [`Specification::open`].
    pub fn open_to_serve(&self, given: &HeldDisks) -> Result<DiskSpec, Error> {
        let held = Some(HeldDisks::default());
        let opened = Opened { given: given.clone(), held, cuts: Cuts::default() };
        DiskSpec::open_all(self, Purpose::Serve, opened)
    }
}

/// Takes the attributes of the disk from a specification. Attributes that it does not name have their defaults. For a
/// program that opens the device itself, such as a run in virtual time.
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
