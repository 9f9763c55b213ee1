//! Profiles: the numbers of a drive, each with its source. A profile is a data file of lines `key = value # source`.
//! A line that starts with white space and `#` continues the source above it; other comments are ignored. A value
//! without a source is an error, because a model is only as good as its sources.
//!
//! The keys are also options of a device specification, so `sim-smr30,cache=128M` is a hypothesis about a drive in
//! one line.

use super::keys;
use crate::spec::Spec;
use zoneplug_core::form::Key;
use zoneplug_core::unit::Nanos;
use zoneplug_core::zone::{Geometry, Limits};
use zoneplug_core::{Error, ErrorKind};

/// A drive: its zones, and the model that times its commands.
///
/// ```
/// use zoneplug_devices::emu::{EmuDisk, EmuKind, timing::Profile};
/// let profile = Profile::builtin("smr30").unwrap();
/// assert_eq!(profile.geometry().unwrap().nr_zones(), 111_759);
/// assert!(profile.source("cache").unwrap().contains("64 random zones"));
/// let disk = EmuDisk::timed(&profile, EmuKind::Null).unwrap();
/// # drop(disk);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    /// Name of the profile.
    pub name: String,
    /// Number of zones.
    pub zones: u32,
    /// Length of a zone, in sectors.
    pub zone_sectors: u32,
    /// Writable sectors of a zone.
    pub capacity_sectors: u32,
    /// Maximum number of open zones; 0: no limit.
    pub max_open_zones: u32,
    /// Maximum number of active zones; 0: no limit.
    pub max_active_zones: u32,
    /// Longest command, in sectors.
    pub max_transfer_sectors: u32,
    /// Longest native zone append, in sectors; 0: none.
    pub append_max_sectors: u32,
    /// Commands that the drive's interface holds: the tags of a host.
    pub queue_depth: u16,
    /// The numbers of its model.
    pub model: Model,
    /// Key and source, in the order of the file.
    sources: Vec<(String, String)>,
}

/// The model of a drive, with its numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Model {
    /// A host-managed SMR hard disk.
    Smr(SmrParams),
    /// A ZNS SSD.
    Zns(ZnsParams),
}

/// The order in which a disk empties its write cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Destage {
    /// In the order of arrival.
    Fifo,
    /// The run of contiguous writes that the head is at, then the run that it reaches first (shortest access time
    /// first).
    Satf,
}

/// The numbers of an SMR disk; see `docs/models.md` for the equations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SmrParams {
    /// `rpm`: one turn of the platter.
    pub turn: Nanos,
    /// `outer-rate`: media rate at the outer edge, in bytes per second.
    pub outer_rate: u64,
    /// `inner-radius`: radius of the innermost zone, in millionths of that of the outermost.
    pub inner_radius_ppm: u32,
    /// `seek-settle`: shortest seek.
    pub seek_settle: Nanos,
    /// `seek-sqrt`: the part of a full-stroke seek that grows with the square root of the distance.
    pub seek_sqrt: Nanos,
    /// `seek-linear`: the part of a full-stroke seek that grows with the distance.
    pub seek_linear: Nanos,
    /// `link-rate`: rate of the interface, in bytes per second.
    pub link_rate: u64,
    /// `command-time`: the time of a command besides its transfer.
    pub command_time: Nanos,
    /// `cache`: size of the write cache, in sectors. The disk chooses among the writes in it.
    pub cache_sectors: u64,
    /// `protected`: sectors of the cache that survive a power cut.
    pub protected_sectors: u64,
    /// `write-cache`: whether the cache is on. If it is off, a write is acknowledged once it is in the protected part
    /// of the cache, or on the medium.
    pub write_cache: bool,
    /// `cache-entries`: maximum number of writes in the cache; 0: no limit.
    pub cache_entries: u32,
    /// `max-run`: sectors of one run that are written before an older write goes first; 0: no limit.
    pub max_run_sectors: u32,
    /// `destage`: `satf` or `fifo`.
    pub destage: Destage,
    /// `queued-fifo`: with this many writes not acknowledged, the disk keeps the order of arrival; 0: never.
    pub queued_fifo: u32,
    /// `queued-window`: in that order the disk takes the nearest among this many of the oldest runs; 1: the oldest.
    pub queued_window: u32,
    /// `queued-runs`: whether, in that order, the head finishes the run that it is at, as far as `max-run`.
    pub queued_runs: bool,
    /// `read-burst`: number of reads that go before writes, if both wait.
    pub read_burst: u32,
    /// `write-burst`: number of sectors of writes that go before reads after such a burst of reads.
    pub write_burst_sectors: u32,
}

/// The numbers of a ZNS SSD.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ZnsParams {
    /// `latency`: the time of a command besides its data.
    pub latency: Nanos,
    /// `zone-rate`: the rate at which one zone takes data, in bytes per second.
    pub zone_rate: u64,
    /// `drive-rate`: the rate at which all zones together take data, in bytes per second.
    pub drive_rate: u64,
    /// `read-latency`: the time of a read besides its data.
    pub read_latency: Nanos,
    /// `write-occupancy`: the time for which a write keeps the drive from the next one, besides its data.
    pub write_occupancy: Nanos,
}

/// Profiles that are part of the program: name and file.
const BUILTIN: [(&str, &str); 4] = [
    ("smr30", include_str!("../../../profiles/smr30.profile")),
    ("smr20", include_str!("../../../profiles/smr20.profile")),
    ("smr14", include_str!("../../../profiles/smr14.profile")),
    ("zns1", include_str!("../../../profiles/zns1.profile")),
];

/// The prefix of built-in profiles in a specification.
const PREFIX: &str = "sim-";

impl Profile {
    /// Returns the names of the built-in profiles.
    pub fn builtin_names() -> [&'static str; BUILTIN.len()] {
        BUILTIN.map(|(name, _)| name)
    }

    /// Returns the text of a built-in profile, which a user can copy and change for another drive.
    pub fn builtin_text(name: &str) -> Option<&'static str> {
        BUILTIN.iter().find(|(n, _)| *n == name).map(|(_, text)| *text)
    }

    /// Returns a built-in profile. Fails if no profile has this name.
    pub fn builtin(name: &str) -> Result<Profile, Error> {
        let Some(text) = Self::builtin_text(name) else {
            let e = Error::new(ErrorKind::NotFound, format!("no profile is called '{name}'"));
            return Err(e.hint(format!("there are: {}", Self::builtin_names().join(", "))));
        };
        Self::parse(name, text)
    }

    /// Reads the text of a data file. Fails if a line has no source, a key is missing or unknown, or a value is not
    /// allowed.
    ///
    /// ```
    /// use zoneplug_devices::emu::timing::Profile;
    /// let text = Profile::builtin_text("smr30").unwrap().replace("= 18M", "= 64M");
    /// assert_ne!(Profile::parse("mine", &text).unwrap(), Profile::builtin("smr30").unwrap());
    /// let e = Profile::parse("mine", "zones = 4").unwrap_err();
    /// assert_eq!(e.what(), "profile mine, line 1: zones names no source");
    /// ```
    pub fn parse(name: &str, text: &str) -> Result<Profile, Error> {
        let mut spec = Spec::parse(&format!("{PREFIX}{name}"))?;
        let profile = Self::with_options(&mut spec, name, name, text)?;
        spec.finish()?;
        Ok(profile)
    }

    /// Returns the built-in profile that the kind of a specification names, as in `sim-smr30`, changed by the options
    /// of the specification. `None` if the kind names no built-in profile. The inner result is an error if the value
    /// of an option is not allowed.
    pub fn from_spec(spec: &mut Spec) -> Option<Result<Profile, Error>> {
        let name = spec.kind().strip_prefix(PREFIX)?.to_owned();
        let text = Self::builtin_text(&name)?;
        Some(Self::with_options(spec, &name, &name, text))
    }

    /// Returns the profile of a data file, changed by the options of a specification. `file` is the file's name in
    /// errors. Fails as [`Profile::parse`] does, and if the value of an option is not allowed.
    pub fn with_options(
        spec: &mut Spec,
        name: &str,
        file: &str,
        text: &str,
    ) -> Result<Profile, Error> {
        let place = |line: usize| format!("profile {file}, line {line}");
        let mut sources = Vec::new();
        for Setting { number, key, value, source } in settings(text, &place)? {
            spec.add_default(&key, &value, place(number));
            sources.push((key, source));
        }
        let profile = take(spec, name, file, sources)?;
        let own = match profile.model {
            Model::Smr(_) => keys::SMR_KEYS.as_slice(),
            Model::Zns(_) => keys::ZNS_KEYS.as_slice(),
        };
        let keys: Vec<&str> = keys::PROFILE_KEYS.iter().chain(own).map(|k| k.name).collect();
        spec.finish_defaults(&keys)?;
        Ok(profile)
    }

    /// Returns the source of the value of `key`.
    pub fn source(&self, key: &str) -> Option<&str> {
        self.sources.iter().find(|(k, _)| k == key).map(|(_, s)| s.as_str())
    }

    /// Returns all keys with their sources, in the order of the file.
    pub fn sources(&self) -> impl Iterator<Item = (&str, &str)> {
        self.sources.iter().map(|(k, s)| (k.as_str(), s.as_str()))
    }

    /// Returns the drive with its media rate (an SSD: both rates) scaled to `ppm` millionths. This moves the tracks of
    /// a disk, whose true positions are unknown: a result that depends on them differs between a few such rates.
    #[must_use]
    pub fn with_rate(&self, ppm: u32) -> Profile {
        let scale = |rate: &mut u64| *rate = *rate * u64::from(ppm) / 1_000_000;
        let mut p = self.clone();
        match &mut p.model {
            Model::Smr(m) => scale(&mut m.outer_rate),
            Model::Zns(m) => {
                scale(&mut m.zone_rate);
                scale(&mut m.drive_rate);
            }
        }
        p
    }

    /// Returns the layout of the drive's zones. Fails if the numbers describe no valid geometry.
    pub fn geometry(&self) -> Result<Geometry, Error> {
        self.geometry_of(&self.name)
    }

    /// Returns the geometry as [`Profile::geometry`] does. `file` is the profile's name in errors.
    fn geometry_of(&self, file: &str) -> Result<Geometry, Error> {
        Geometry::new(u64::from(self.zones), self.zone_sectors, self.capacity_sectors).map_err(
            |e| {
                Error::invalid(format!("the zones of profile {file} are not possible: {e}"))
                    .hint("see zones, zone-size and zone-capacity")
            },
        )
    }

    /// Returns the limits that the drive declares.
    pub fn limits(&self) -> Limits {
        let rotational = matches!(self.model, Model::Smr(_));
        let write_cache = matches!(&self.model, Model::Smr(p) if p.write_cache);
        Limits {
            max_transfer_sectors: self.max_transfer_sectors,
            zone_append_max_sectors: self.append_max_sectors,
            max_open_zones: self.max_open_zones,
            max_active_zones: self.max_active_zones,
            write_cache,
            rotational,
            ..Limits::default()
        }
    }
}

/// A setting of a data file.
struct Setting {
    number: usize,
    key: String,
    value: String,
    source: String,
}

/// Reads the settings of a data file. `place` names a line in errors.
fn settings(text: &str, place: &dyn Fn(usize) -> String) -> Result<Vec<Setting>, Error> {
    let mut all: Vec<Setting> = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let wrong = |what: String, hint: &str| {
            Err(Error::invalid(format!("{}: {what}", place(number))).hint(hint))
        };
        let (setting, comment) = match line.split_once('#') {
            Some((s, c)) => (s, Some(c.trim())),
            None => (line, None),
        };
        if setting.trim().is_empty() {
            if let (Some(more), Some(last)) = (comment, all.last_mut())
                && !setting.is_empty()
            {
                last.source.push(' ');
                last.source.push_str(more);
            }
            continue;
        }
        let Some((key, value)) = setting.split_once('=') else {
            return wrong(
                format!("'{}' is not a setting", setting.trim()),
                "write key = value # source",
            );
        };
        let (key, value) = (key.trim(), value.trim());
        if key.is_empty() || value.is_empty() {
            return wrong(
                format!("'{}' has an empty side", setting.trim()),
                "write key = value # source",
            );
        }
        if all.iter().any(|l| l.key == key) {
            return wrong(format!("{key} is given twice"), "give it once");
        }
        match comment {
            Some(source) if !source.is_empty() => {
                let (key, value, source) = (key.to_owned(), value.to_owned(), source.to_owned());
                all.push(Setting { number, key, value, source });
            }
            _ => {
                return wrong(
                    format!("{key} names no source"),
                    "write after # where the number comes from, even if it is only 'a guess'",
                );
            }
        }
    }
    Ok(all)
}

/// Takes every key of a profile. A profile that lacks a key without a default is an error.
fn take(
    spec: &mut Spec,
    name: &str,
    file: &str,
    sources: Vec<(String, String)>,
) -> Result<Profile, Error> {
    let missing = |key: &str| {
        Error::invalid(format!("profile {file} has no {key}"))
            .hint("a number of the drive is missing: copy the file of a built-in profile")
    };
    let mut required =
        |spec: &mut Spec, key: &Key| spec.number(key)?.ok_or_else(|| missing(key.name));
    let zone_sectors = required(spec, &keys::ZONE_SIZE)? as u32;
    let model = required(spec, &keys::MODEL)?;
    let profile = Profile {
        name: name.to_owned(),
        zones: required(spec, &keys::ZONES)? as u32,
        zone_sectors,
        capacity_sectors: spec.number(&keys::ZONE_CAPACITY)?.map_or(zone_sectors, |n| n as u32),
        max_open_zones: spec.number(&keys::MAX_OPEN)?.unwrap_or(0) as u32,
        max_active_zones: spec.number(&keys::MAX_ACTIVE)?.unwrap_or(0) as u32,
        max_transfer_sectors: required(spec, &keys::MAX_TRANSFER)? as u32,
        append_max_sectors: spec.number(&keys::APPEND_MAX)?.unwrap_or(0) as u32,
        queue_depth: required(spec, &keys::QUEUE_DEPTH)? as u16,
        model: match model {
            0 => Model::Smr(take_smr(spec, &mut required)?),
            _ => Model::Zns(take_zns(spec, &mut required)?),
        },
        sources,
    };
    profile.geometry_of(file)?;
    Ok(profile)
}

/// Takes a key that a profile must have.
type Required<'a> = dyn FnMut(&mut Spec, &Key) -> Result<u64, Error> + 'a;

fn take_smr(spec: &mut Spec, required: &mut Required<'_>) -> Result<SmrParams, Error> {
    let rpm = required(spec, &keys::RPM)?;
    Ok(SmrParams {
        turn: Nanos((60_000_000_000 + rpm / 2) / rpm),
        outer_rate: required(spec, &keys::OUTER_RATE)?,
        inner_radius_ppm: required(spec, &keys::INNER_RADIUS)? as u32,
        seek_settle: Nanos(required(spec, &keys::SEEK_SETTLE)?),
        seek_sqrt: Nanos(required(spec, &keys::SEEK_SQRT)?),
        seek_linear: Nanos(required(spec, &keys::SEEK_LINEAR)?),
        link_rate: required(spec, &keys::LINK_RATE)?,
        command_time: Nanos(required(spec, &keys::COMMAND_TIME)?),
        cache_sectors: required(spec, &keys::CACHE)?,
        protected_sectors: spec.number(&keys::PROTECTED)?.unwrap_or(0),
        write_cache: spec.flag(&keys::WRITE_CACHE)?.unwrap_or(true),
        cache_entries: spec.number(&keys::CACHE_ENTRIES)?.unwrap_or(0) as u32,
        max_run_sectors: spec.number(&keys::MAX_RUN)?.unwrap_or(0) as u32,
        destage: [Destage::Satf, Destage::Fifo][spec.number(&keys::DESTAGE)?.unwrap_or(0) as usize],
        queued_fifo: spec.number(&keys::QUEUED_FIFO)?.unwrap_or(0) as u32,
        queued_window: spec.number(&keys::QUEUED_WINDOW)?.unwrap_or(1) as u32,
        queued_runs: spec.flag(&keys::QUEUED_RUNS)?.unwrap_or(false),
        read_burst: spec.number(&keys::READ_BURST)?.unwrap_or(8) as u32,
        write_burst_sectors: spec.number(&keys::WRITE_BURST)?.unwrap_or(8 << 10) as u32,
    })
}

fn take_zns(spec: &mut Spec, required: &mut Required<'_>) -> Result<ZnsParams, Error> {
    Ok(ZnsParams {
        latency: Nanos(required(spec, &keys::LATENCY)?),
        zone_rate: required(spec, &keys::ZONE_RATE)?,
        drive_rate: required(spec, &keys::DRIVE_RATE)?,
        read_latency: Nanos(required(spec, &keys::READ_LATENCY)?),
        write_occupancy: Nanos(spec.number(&keys::WRITE_OCCUPANCY)?.unwrap_or(0)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn smr30() -> &'static str {
        Profile::builtin_text("smr30").unwrap()
    }

    /// The built-in files can be read, and every parameter names its source.
    #[test]
    fn every_builtin_parameter_names_its_source() {
        for name in Profile::builtin_names() {
            let p = Profile::builtin(name).unwrap();
            assert!(p.sources().count() >= 11, "{name}");
            for (key, source) in p.sources() {
                assert!(source.len() >= 8, "{name}: {key}: {source}");
            }
        }
    }

    #[test]
    fn a_file_that_is_wrong_says_where_and_what_to_try() {
        for (from, to, what) in [
            ("cache = 18M", "cache = 20X", "cache=20X is not possible"),
            ("zones = 111759", "", "profile mine has no zones"),
            ("rpm = 7200", "", "profile mine has no rpm"),
            ("model = smr", "model = cmr", "model=cmr is not possible"),
            ("inner-radius = 0.59", "inner-radius = 1.0", "inner-radius=1.0 is not possible"),
            ("outer-rate = 245MB/s", "outer-rate = 246", "outer-rate=246 is not possible"),
            ("seek-settle = 1ms", "seek-settle = 2s", "seek-settle=2s is not possible"),
            ("cache = 18M", "cahce = 18M", "profile mine has no cache"),
            ("rpm = 7200", "rpm = 7200 # x\nrpm = 5400", "rpm is given twice"),
            ("rpm = 7200", "rpm = 7200 #\nx", "rpm names no source"),
            ("rpm = 7200", "rpm", "'rpm' is not a setting"),
        ] {
            assert!(smr30().contains(from), "{from}");
            let e = Profile::parse("mine", &smr30().replace(from, to)).expect_err(to);
            assert!(e.to_string().contains(what), "{to}: {e}");
            assert!(e.what_to_try().is_some_and(|h| !h.is_empty()), "{to}");
        }
        let e = Profile::parse("mine", &format!("{}\nx = 1 # y", smr30())).unwrap_err();
        let lines = smr30().lines().count();
        assert_eq!(e.what(), format!("profile mine, line {}: there is no key x", lines + 2));
        let text = smr30().replace("cache = 18M", "cache = 20X");
        let line = 1 + text.lines().position(|l| l.starts_with("cache = ")).unwrap();
        let mut spec = Spec::parse("sim").unwrap();
        let e = Profile::with_options(&mut spec, "mine", "./mine.profile", &text).unwrap_err();
        let what = format!("profile ./mine.profile, line {line}: cache=20X is not possible");
        assert_eq!(e.what(), what);
        assert!(Profile::builtin("smr31").unwrap_err().to_string().contains("smr31"));
    }

    /// A hypothesis about a drive is an option of its specification.
    #[test]
    fn options_of_a_specification_override_the_file() {
        let mut spec = Spec::parse("sim-smr30,cache=128M,destage=fifo,tags=4").unwrap();
        let p = Profile::from_spec(&mut spec).unwrap().unwrap();
        let Model::Smr(m) = &p.model else { panic!("a disk") };
        assert_eq!((m.cache_sectors, m.destage), (128 << 11, Destage::Fifo));
        assert!(spec.finish().unwrap_err().to_string().contains("no option tags"));
        assert!(Profile::from_spec(&mut Spec::parse("null").unwrap()).is_none());
        assert!(Profile::from_spec(&mut Spec::parse("sim-smr31").unwrap()).is_none());
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_a_panic(text in "\\PC*", line in "[a-z-]{0,12} ?=? ?[0-9a-zA-Z/.]{0,9} ?#?[ a-z]{0,4}\n?") {
            let _ = Profile::parse("x", &text);
            let _ = Profile::parse("x", &format!("{}{line}", smr30()));
        }
    }
}
