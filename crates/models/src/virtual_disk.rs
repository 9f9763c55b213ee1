//! Disks with the times of a drive, in virtual time: which specifications name one, and the ways to
//! open its disk that are compared. Measures nothing itself.

use crate::own_policy::Own;
use crate::policy_expression;
use crate::time::{Layers, Run};
use zoneplug_core::disk::{DiskConfig, Mode, TAGS, find_attribute};
use zoneplug_core::form::{Form, Value, parse_time};
use zoneplug_core::sched::{Policy, Scheduler};
use zoneplug_core::zone::{Geometry, Limits};
use zoneplug_core::{Error, Nanos};
use zoneplug_devices::emu::timing::{Model, Profile};
use zoneplug_host::{SpecNode, SpecPart, Specification, TimedLayers, take_config, take_profile};

/// A modelled drive, and how its disk is opened.
///
/// ```
/// use zoneplug_models::VirtualDisk;
/// let disk = VirtualDisk::parse("sim-smr30,qd1=0,tags=4").unwrap().unwrap();
/// assert!(disk.rotational() && disk.run(&disk.config).tags == 4);
/// // A path of 2 ms to two drives as one.
/// let far = VirtualDisk::parse("delay,any=2ms@stripe@sim-zns1%sim-zns1").unwrap().unwrap();
/// assert_eq!(far.geometry().capacity().0, 2 * far.profile.geometry().unwrap().capacity().0);
/// assert!(VirtualDisk::parse("mem").unwrap().is_none(), "a disk, but none with the times of a drive");
/// ```
#[derive(Debug, Clone)]
pub struct VirtualDisk {
    /// Its specification.
    pub spec: String,
    /// The model of the drive.
    pub profile: Profile,
    /// How the disk is opened by default.
    pub config: DiskConfig,
    /// The number of commands at the drive, if the specification gives one.
    pub tags: Option<u16>,
    /// The number of drives joined.
    pub drives: u32,
    layers: TimedLayers,
    /// The geometry, layers included.
    geometry: Geometry,
    /// The limits, layers included.
    limits: Limits,
}

impl VirtualDisk {
    /// Parses the specification of a drive, with the layers that are possible in virtual time:
    /// `po2`, `delay`, a `stripe` of equal drives, and faults that only delay. `None` if it names
    /// another kind of device.
    pub fn parse(text: &str) -> Result<Option<VirtualDisk>, Error> {
        Self::of(&Specification::parse(text)?)
    }

    /// Like [`VirtualDisk::parse`], for a specification that was parsed before.
    pub fn of(spec: &Specification) -> Result<Option<VirtualDisk>, Error> {
        let Some(mut disk) = Self::bare(spec.disk())? else { return Ok(None) };
        disk.spec = spec.to_string();
        let odd = |e: &str| {
            Err(Error::invalid(format!("{e} in virtual time")).hint("stripe@sim-NAME%sim-NAME"))
        };
        let (mut layers, mut node) = (Vec::new(), spec.root());
        while let SpecNode::Layer(layer, below) = node {
            match &below[..] {
                [one] if layer.name() != "stripe" => {
                    layers.push(layer);
                    node = one;
                }
                [others @ .., last] if layer.text() == "stripe" && !others.is_empty() => {
                    if !disk.layers.is_empty() {
                        return odd("a stripe of drives with fault=");
                    }
                    for other in others {
                        let equal = Self::of_device(other)?.is_some_and(|o| {
                            o.profile == disk.profile
                                && o.config == DiskConfig::default()
                                && o.tags.is_none()
                        });
                        if !equal {
                            return odd("a stripe of different drives");
                        }
                        disk.drives += 1;
                    }
                    if !matches!(last, SpecNode::Device(_)) {
                        return odd("a stripe of layers");
                    }
                    node = last;
                }
                _ => return odd("drives that are joined in another way than as a stripe"),
            }
        }
        for layer in layers.into_iter().rev() {
            let more = "other layers: zoneplug-lab bench --real-time";
            disk.layers.push(layer).map_err(|e| e.and_try(more))?;
        }
        if disk.drives > 1 || !disk.layers.is_empty() {
            // Layers that do not fit are refused now.
            (disk.geometry, disk.limits) = disk.run(&disk.config).shape()?;
        }
        Ok(Some(disk))
    }

    /// Parses a drive without a layer. `None` for a layer.
    fn of_device(node: &SpecNode) -> Result<Option<VirtualDisk>, Error> {
        match node {
            SpecNode::Device(device) => Self::bare(device),
            SpecNode::Layer(..) => Ok(None),
        }
    }

    /// Parses the options of a drive.
    fn bare(device: &SpecPart) -> Result<Option<VirtualDisk>, Error> {
        let mut spec = device.options();
        let config = take_config(&mut spec)?;
        let tags = spec.number(&TAGS)?.map(|n| n as u16);
        let data = spec.take_as("data", &Form::Flag)?;
        let mut layers = TimedLayers::default();
        let fault = layers.take_fault(&mut spec);
        let Some(profile) = take_profile(&mut spec) else { return Ok(None) };
        let profile = profile?;
        fault?;
        spec.finish()?;
        if data.is_some_and(|d| d.number() == 1) {
            return Err(Error::invalid("data= in virtual time")
                .hint("leave data= out, or zoneplug-lab bench --real-time"));
        }
        let (spec, drives) = (device.text().to_owned(), 1);
        let (geometry, limits) = (profile.geometry()?, profile.limits());
        Ok(Some(VirtualDisk { spec, profile, config, tags, drives, layers, geometry, limits }))
    }

    /// The layout of the disk, layers included.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// The limits of the disk, layers included.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Whether the disk is a single drive without layers.
    pub fn is_bare(&self) -> bool {
        self.drives == 1 && self.layers.is_empty()
    }

    /// Whether the medium rotates.
    pub fn rotational(&self) -> bool {
        matches!(self.profile.model, Model::Smr(_))
    }

    /// Returns a copy with a rate of the medium of `ppm` millionths ([`Profile::with_rate`]).
    #[must_use]
    pub fn with_rate(&self, ppm: u32) -> VirtualDisk {
        VirtualDisk { profile: self.profile.with_rate(ppm), ..self.clone() }
    }

    /// Returns a run on this disk, opened with `config`.
    pub fn run(&self, config: &DiskConfig) -> Run {
        let mut profile = self.profile.clone();
        profile.queue_depth = self.tags.unwrap_or(profile.queue_depth);
        let mut run = Run::on(profile, config.clone());
        run.drives = self.drives;
        if !self.layers.is_empty() {
            let layers = self.layers.clone();
            run.layers = Some(Layers::new(move |device| layers.put_on(device)));
        }
        run
    }
}

/// Describes how a disk is opened, in the words of the attributes.
pub fn layer_name(config: &DiskConfig, rotational: bool) -> String {
    name_with(config, rotational, None)
}

/// Describes it as [`layer_name`] does, with another name for the policy.
fn name_with(config: &DiskConfig, rotational: bool, policy: Option<&str>) -> String {
    let mut text = format!("{} {}", config.mode, config.scheduler);
    if config.zoned_qd1_writes.unwrap_or(rotational) {
        text += &format!(" qd1 {}", policy.unwrap_or(config.zoned_qd1_policy.name()));
        if config.anticipation.0 > 0 {
            text += &format!(" +{}us", config.anticipation.0 / 1000);
        }
        if config.zone_deadline.0 > 0 {
            text += &format!(" {}ms", config.zone_deadline.0 / 1_000_000);
        }
    }
    text
}

/// How the writes of a disk are ordered.
#[derive(Debug, Clone, PartialEq)]
pub enum Writer {
    /// Each zone by itself.
    Off,
    /// One writer for the disk.
    Single {
        /// The policy that chooses the next zone.
        policy: Policy,
        /// How long the writer waits for a zone's next write.
        anticipation: Nanos,
        /// The age after which a zone is next, whatever the policy says; 0: never.
        deadline: Nanos,
    },
    /// One writer for the disk, with a policy of the caller. Waits and deadlines come from the
    /// specification.
    Own(Own),
    /// One writer for the disk, with an expression as its policy.
    Expression {
        /// The policy that chooses the next zone.
        policy: Own,
        /// How long the writer waits for a zone's next write.
        anticipation: Nanos,
        /// The age after which a zone is next, whatever the policy says; 0: never.
        deadline: Nanos,
    },
}

/// A way to open a disk.
#[derive(Debug, Clone, PartialEq)]
pub struct Way {
    /// Its attributes.
    pub config: DiskConfig,
    own: Option<Own>,
}

impl From<DiskConfig> for Way {
    fn from(config: DiskConfig) -> Way {
        Way { config, own: None }
    }
}

impl Way {
    /// Its name, in the words of the attributes.
    pub fn name(&self, rotational: bool) -> String {
        name_with(&self.config, rotational, self.own.as_ref().map(|own| &*own.name))
    }

    /// A note on an expression for waits, if no wait is allowed.
    pub fn never_waits(&self) -> Option<String> {
        let own = self.own.as_ref().filter(|own| own.decides_waits())?;
        let text = "without +300us (anticipation_us) never waits: what is after ';' is left";
        (self.config.anticipation == Nanos(0)).then(|| format!("{} {text}", own.name))
    }

    /// Runs on this thread a disk that is opened in this way.
    pub(crate) fn during<T>(&self, run: impl FnOnce() -> T) -> T {
        match &self.own {
            Some(own) => own.during(run),
            None => run(),
        }
    }
}

impl Writer {
    /// Parses `fifo`, `clook+300us/4s`, `off`, or an expression: `[wait_us + bytes / 4K]+300us`.
    ///
    /// ```
    /// use zoneplug_models::Writer;
    /// assert_eq!(Writer::parse("off").unwrap(), Writer::Off);
    /// assert!(Writer::parse("elevator").unwrap_err().to_string().contains("no policy"));
    /// let wrong = Writer::parse("[-weep]").unwrap_err();
    /// assert!(wrong.to_string().starts_with("'weep' is no variable at character 3"));
    /// ```
    pub fn parse(text: &str) -> Result<Writer, Error> {
        Self::parse_behind(text, 0)
    }

    /// Parses several writers, separated by commas. A comma in the brackets of an expression
    /// belongs to it.
    ///
    /// ```
    /// use zoneplug_models::Writer;
    /// assert_eq!(Writer::parse_list("off,[min(wait_us, bytes)]/4s,fifo").unwrap().len(), 3);
    /// ```
    pub fn parse_list(text: &str) -> Result<Vec<Writer>, Error> {
        let (mut is_inside, mut before) = (false, 0);
        let policies = text.split(|c| {
            is_inside = (is_inside || c == '[') && c != ']';
            c == ',' && !is_inside
        });
        let read = |policy: &str| {
            let writer = Self::parse_behind(policy, before);
            before += policy.chars().count() + 1;
            writer
        };
        policies.map(read).collect()
    }

    /// Parses a writer in a longer text; `before` is the number of characters before it.
    fn parse_behind(text: &str, before: usize) -> Result<Writer, Error> {
        let wrong = || {
            let all = Policy::NAMES.join(", ");
            Error::invalid(format!("'{text}' is no policy")).hint(format!(
                "{all}, or an expression in brackets such as '[wait_us]'; with +300us to wait for the zone's next write and /4s as deadline; or off"
            ))
        };
        if text == "off" {
            return Ok(Writer::Off);
        }
        // The bounds are those of the attributes.
        let time = |t: Option<&str>, attribute: &str| match t {
            None => Ok(Nanos(0)),
            Some(t) => {
                let form = find_attribute(attribute).map(|a| a.key.form);
                let fits = |n: &u64| form.is_some_and(|f| f.has(&Value::Number(*n)));
                parse_time(t).filter(fits).map(Nanos).ok_or_else(wrong)
            }
        };
        let (own, times) = if text.starts_with('[') {
            let (own, times) = policy_expression::parse(text, before)?;
            (Some(own), times)
        } else {
            (None, text)
        };
        let (rest, deadline) = match times.split_once('/') {
            Some((rest, deadline)) => (rest, Some(deadline)),
            None => (times, None),
        };
        let (name, anticipation) = match rest.split_once('+') {
            Some((name, anticipation)) => (name, Some(anticipation)),
            None => (rest, None),
        };
        let anticipation = time(anticipation, "anticipation_us")?;
        let deadline = time(deadline, "zone_deadline_ms")?;
        match own {
            Some(policy) if name.is_empty() => {
                Ok(Writer::Expression { policy, anticipation, deadline })
            }
            Some(_) => Err(wrong()),
            None => {
                let policy = Policy::from_name(name).ok_or_else(wrong)?;
                Ok(Writer::Single { policy, anticipation, deadline })
            }
        }
    }

    /// Whether its policy is not one of the engine's, and so works only in virtual time.
    pub fn is_only_virtual(&self) -> bool {
        matches!(self, Writer::Own(_) | Writer::Expression { .. })
    }

    fn apply(&self, way: &mut Way) {
        let config = &mut way.config;
        config.zoned_qd1_writes = Some(*self != Writer::Off);
        match self {
            Writer::Off => {}
            &Writer::Single { policy, anticipation, deadline } => {
                config.zoned_qd1_policy = policy;
                config.anticipation = anticipation;
                config.zone_deadline = deadline;
            }
            Writer::Own(own) => {
                config.zoned_qd1_policy = Own::policy();
                way.own = Some(own.clone());
            }
            Writer::Expression { policy, anticipation, deadline } => {
                config.zoned_qd1_policy = Own::policy();
                config.anticipation = *anticipation;
                config.zone_deadline = *deadline;
                way.own = Some(policy.clone());
            }
        }
    }
}

/// Finds the I/O scheduler with this name.
pub fn scheduler(text: &str) -> Result<Scheduler, Error> {
    Scheduler::from_name(text).ok_or_else(|| {
        Error::invalid(format!("'{text}' is no scheduler"))
            .hint(format!("one of {}", Scheduler::NAMES.join(", ")))
    })
}

/// Most ways to open a disk that are compared at a time.
const MOST_WAYS: usize = 10_000;

/// Combines every writer with every scheduler in every mode: ways to open a disk that are compared.
/// An empty list means the value in `base`. Only mode `plug` has a single writer, so the other
/// modes have no row for each writer.
///
/// ```
/// use zoneplug_core::disk::DiskConfig;
/// use zoneplug_models::{Writer, ways};
/// let writers = [Writer::Off, Writer::parse("clook+300us").unwrap()];
/// let all = ways(&DiskConfig::default(), &[], &[], &writers).unwrap();
/// let names: Vec<String> = all.iter().map(|way| way.name(true)).collect();
/// assert_eq!(names, ["plug none", "plug none qd1 clook +300us"]);
/// ```
///
/// # Errors
///
/// More than 10,000 ways: each is a row of its own, and would be measured by itself.
pub fn ways(
    base: &DiskConfig,
    modes: &[Mode],
    schedulers: &[Scheduler],
    writers: &[Writer],
) -> Result<Vec<Way>, Error> {
    let all = [modes.len(), schedulers.len(), writers.len()];
    let count = all.iter().fold(1, |all: usize, n| all.saturating_mul((*n).max(1)));
    if count > MOST_WAYS {
        return Err(Error::invalid(format!("{count} ways to open a disk, more than {MOST_WAYS}"))
            .hint("fewer modes, policies or schedulers at a time"));
    }
    let modes = if modes.is_empty() { vec![base.mode] } else { modes.to_vec() };
    let schedulers = if schedulers.is_empty() { vec![base.scheduler] } else { schedulers.to_vec() };
    let mut all: Vec<Way> = Vec::new();
    for mode in modes {
        for &scheduler in &schedulers {
            let mut one = DiskConfig { mode, scheduler, ..base.clone() };
            if mode != Mode::Plug {
                // Only plugs have a single writer.
                one.zoned_qd1_writes = Some(false);
            }
            if mode != Mode::Plug || writers.is_empty() {
                all.push(one.into());
                continue;
            }
            all.extend(writers.iter().map(|writer| {
                let mut way = Way::from(one.clone());
                writer.apply(&mut way);
                way
            }));
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_are_read_with_their_times() {
        let single = |policy, us: u64, ms: u64| Writer::Single {
            policy,
            anticipation: Nanos(us * 1_000),
            deadline: Nanos(ms * 1_000_000),
        };
        for (text, writer) in [
            ("off", Writer::Off),
            ("fifo", single(Policy::Fifo, 0, 0)),
            ("clook+300us", single(Policy::Clook, 300, 0)),
            ("score/1s", single(Policy::Score, 0, 1000)),
            ("clook+300us/4s", single(Policy::Clook, 300, 4000)),
        ] {
            assert_eq!(Writer::parse(text).unwrap(), writer, "{text}");
        }
        for text in ["", "elevator", "fifo+", "fifo+2", "fifo/1", "fifo+2s", "off+1us", "fifo/2h"] {
            assert!(Writer::parse(text).unwrap_err().what_to_try().is_some(), "{text}");
        }
    }

    #[test]
    fn an_expression_has_times_and_keeps_its_commas() {
        let all = Writer::parse_list("fifo,[ min(wait_us,\tbytes); 1 ]+300us/4s,[0]").unwrap();
        let names = ways(&DiskConfig::default(), &[], &[], &all).unwrap();
        let names: Vec<String> = names.iter().map(|way| way.name(true)).collect();
        let is = ["fifo", "[ min(wait_us, bytes); 1 ] +300us 4000ms", "[0]"];
        assert_eq!(names, is.map(|name| format!("plug none qd1 {name}")));
        let never: Vec<bool> = ["[0]", "[0; 1]", "[0; 1]+1us"]
            .map(|p| ways(&DiskConfig::default(), &[], &[], &[Writer::parse(p).unwrap()]).unwrap())
            .map(|mut ways| ways.remove(0))
            .map(|way| way.never_waits().is_some())
            .into();
        assert_eq!(never, [false, true, false]);
        for (text, what) in [
            ("fifo,[waits,bytes]", "',' is not expected at character 12"),
            ("é,off", "'é' is no policy"),
            ("[0],[wait]", "'wait' is no variable at character 6"),
            ("off,[0", "']' is missing at character 7"),
            ("[0]x", "'[0]x' is no policy"),
            ("[0]+2h", "'[0]+2h' is no policy"),
            ("[0]+300us+1us", "'[0]+300us+1us' is no policy"),
            ("[0]]", "'[0]]' is no policy"),
            ("fifo,", "'' is no policy"),
        ] {
            let e = Writer::parse_list(text).unwrap_err();
            assert_eq!(e.what(), what, "{text}");
            assert!(e.what_to_try().is_some(), "{text}");
        }
    }

    #[test]
    fn every_policy_is_combined_with_every_scheduler_but_only_plugs_have_one() {
        let writers = [Writer::Off, Writer::parse("clook").unwrap()];
        let schedulers = [Scheduler::None, Scheduler::MqDeadline];
        let names = |modes: &[Mode]| -> Vec<String> {
            let all = ways(&DiskConfig::default(), modes, &schedulers, &writers).unwrap();
            all.iter().map(|way| way.name(true)).collect()
        };
        let plug =
            ["plug none", "plug none qd1 clook", "plug mq-deadline", "plug mq-deadline qd1 clook"];
        assert_eq!(names(&[]), plug);
        assert_eq!(names(&[Mode::Lock]), ["lock none", "lock mq-deadline"]);
        let one = ways(&DiskConfig::default(), &[], &[], &[]).unwrap();
        assert_eq!(one, [DiskConfig::default().into()]);
        // A hundred million ways would be gigabytes, and a year of work.
        let many = ways(
            &DiskConfig::default(),
            &[],
            &[Scheduler::None; 10_000],
            &vec![Writer::Off; 10_000],
        );
        let e = many.unwrap_err();
        assert_eq!(e.what(), "100000000 ways to open a disk, more than 10000");
    }

    #[test]
    fn only_modelled_drives_are_in_virtual_time() {
        let m = VirtualDisk::parse("sim-smr30,qd1=0,tags=4,cache=64M").unwrap().unwrap();
        assert_eq!((m.rotational(), m.run(&m.config).tags), (true, 4));
        assert!(VirtualDisk::parse("mem,latency=1ms").unwrap().is_none());
        assert!(VirtualDisk::parse("po2@mem").unwrap().is_none());
        for text in [
            "linear,first=1@sim-zns1",
            "crypt,key-file=x@sim-zns1",
            "linear@sim-zns1%sim-zns1",
            "stripe@sim-zns1",
            "stripe@sim-zns1%sim-smr30",
            "delay@sim-zns1",
            "sim-smr30,fault=write/io",
            "delay,any=1ms,fault=read/lost@sim-smr30",
            "sim-smr30,data=1",
            "sim-smr30,x=1",
            "sim",
        ] {
            let e = VirtualDisk::parse(text).unwrap_err();
            assert!(e.what_to_try().is_some(), "{text}: {e}");
        }
    }
}
