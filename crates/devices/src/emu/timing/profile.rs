//! Profiles: the numbers of a drive, each with its source. A profile is a data file of lines `key = value # source`; a
//! line that starts with white space and `#` continues the source above it, any other comment is free. A value without a
//! source is an error, for a model is no better than what it was made from.
//!
//! The keys are also options of a device specification, so that `sim-smr30,cache=128M` is a hypothesis about a drive in
//! one line.

use crate::spec::Spec;
use zoneplug_core::unit::Nanos;
use zoneplug_core::zone::{Geometry, Limits, MAX_ZONES};
use zoneplug_core::{Error, ErrorKind};

/// A drive: its zones and the model that times them.
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
    /// What it is called.
    pub name: String,
    /// Zones of the drive.
    pub zones: u32,
    /// Length of a zone.
    pub zone_sectors: u32,
    /// What of a zone can be written.
    pub capacity_sectors: u32,
    /// Most open zones; 0: no limit.
    pub max_open_zones: u32,
    /// Most active zones; 0: no limit.
    pub max_active_zones: u32,
    /// Longest command.
    pub max_transfer_sectors: u32,
    /// Longest native zone append; 0: none.
    pub append_max_sectors: u32,
    /// Commands that its interface holds: the tags of a host.
    pub queue_depth: u16,
    /// The numbers of its model.
    pub model: Model,
    /// Key and source, in the order of the file.
    sources: Vec<(String, String)>,
}

/// Which model, with its numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Model {
    /// A host-managed SMR hard disk.
    Smr(SmrParams),
    /// A ZNS SSD.
    Zns(ZnsParams),
}

/// In which order a disk empties its write cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Destage {
    /// In the order of arrival.
    Fifo,
    /// The run of contiguous writes that it is at, then the one that it reaches first (shortest access time first).
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
    /// `seek-sqrt`: what grows with the square root of the distance, over the full stroke.
    pub seek_sqrt: Nanos,
    /// `seek-linear`: what grows with the distance, over the full stroke.
    pub seek_linear: Nanos,
    /// `link-rate`: rate of the interface, in bytes per second.
    pub link_rate: u64,
    /// `command-time`: what a command costs beside its transfer.
    pub command_time: Nanos,
    /// `cache`: writes that wait for the medium, and among which it chooses.
    pub cache_sectors: u64,
    /// `cache-entries`: most commands in there; 0: no limit.
    pub cache_entries: u32,
    /// `max-run`: after so much of one run an older one is due; 0: no limit.
    pub max_run_sectors: u32,
    /// `destage`: `satf` or `fifo`.
    pub destage: Destage,
    /// `queued-fifo`: with so many commands not acknowledged the order of arrival is kept; 0: never.
    pub queued_fifo: u32,
    /// `read-burst`: reads that are carried out before writes are, if both wait.
    pub read_burst: u32,
    /// `write-burst`: writes that are then carried out before reads are.
    pub write_burst_sectors: u32,
}

/// The numbers of a ZNS SSD.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ZnsParams {
    /// `latency`: what a command takes beside its data.
    pub latency: Nanos,
    /// `zone-rate`: how fast one zone takes data, in bytes per second.
    pub zone_rate: u64,
    /// `drive-rate`: how fast all zones together do.
    pub drive_rate: u64,
    /// `read-latency`: what a read takes beside its data.
    pub read_latency: Nanos,
}

/// Profiles that are part of the program: name and file.
const BUILTIN: [(&str, &str); 4] = [
    ("smr30", include_str!("../../../profiles/smr30.profile")),
    ("smr20", include_str!("../../../profiles/smr20.profile")),
    ("smr14", include_str!("../../../profiles/smr14.profile")),
    ("zns1", include_str!("../../../profiles/zns1.profile")),
];

/// What the kind of a specification of a built-in profile begins with.
const PREFIX: &str = "sim-";

impl Profile {
    /// The names of the profiles that are part of the program.
    pub fn builtin_names() -> [&'static str; BUILTIN.len()] {
        BUILTIN.map(|(name, _)| name)
    }

    /// The file of a profile that is part of the program: what to copy for a drive of one's own.
    pub fn builtin_text(name: &str) -> Option<&'static str> {
        BUILTIN.iter().find(|(n, _)| *n == name).map(|(_, text)| *text)
    }

    /// A profile that is part of the program.
    pub fn builtin(name: &str) -> Result<Profile, Error> {
        let Some(text) = Self::builtin_text(name) else {
            let e = Error::new(ErrorKind::NotFound, format!("no profile is called '{name}'"));
            return Err(e.hint(format!("there are: {}", Self::builtin_names().join(", "))));
        };
        Self::parse(name, text)
    }

    /// The profile that the text of a data file describes.
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
        let profile = Self::from_text(&mut spec, name, text)?;
        spec.finish()?;
        Ok(profile)
    }

    /// The built-in profile that the kind of a specification names, as in `sim-smr30`, changed by the options that are
    /// keys of profiles. `None`: the kind names none.
    pub fn from_spec(spec: &mut Spec) -> Option<Result<Profile, Error>> {
        let name = spec.kind().strip_prefix(PREFIX)?.to_owned();
        let text = Self::builtin_text(&name)?;
        Some(Self::from_text(spec, &name, text))
    }

    /// The profile of a data file, changed by the options of a specification.
    pub fn from_text(spec: &mut Spec, name: &str, text: &str) -> Result<Profile, Error> {
        let in_file = |e: Error| {
            let hint = e.what_to_try().unwrap_or_default().to_owned();
            Error::invalid(format!("profile {name}, {}", e.what())).hint(hint)
        };
        let lines = lines(text).map_err(in_file)?;
        let mut sources = Vec::with_capacity(lines.len());
        for (key, value, source) in lines {
            spec.add_default(&key, &value);
            sources.push((key, source));
        }
        take(spec, name, sources)
    }

    /// What the value of `key` comes from.
    pub fn source(&self, key: &str) -> Option<&str> {
        self.sources.iter().find(|(k, _)| k == key).map(|(_, s)| s.as_str())
    }

    /// Every key with its source, in the order of the file.
    pub fn sources(&self) -> impl Iterator<Item = (&str, &str)> {
        self.sources.iter().map(|(k, s)| (k.as_str(), s.as_str()))
    }

    /// The same drive with another rate of its medium: `ppm` millionths of this one. Where the tracks lie is not known;
    /// a result that depends on it shows that by its spread over a few of these.
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

    /// The layout of its zones.
    pub fn geometry(&self) -> Result<Geometry, Error> {
        Geometry::new(u64::from(self.zones), self.zone_sectors, self.capacity_sectors).map_err(
            |e| {
                Error::invalid(format!("the zones of profile {} are not possible: {e}", self.name))
                    .hint("see zones, zone-size and zone-capacity")
            },
        )
    }

    /// What it declares.
    pub fn limits(&self) -> Limits {
        let rotational = matches!(self.model, Model::Smr(_));
        Limits {
            max_transfer_sectors: self.max_transfer_sectors,
            zone_append_max_sectors: self.append_max_sectors,
            max_open_zones: self.max_open_zones,
            max_active_zones: self.max_active_zones,
            write_cache: rotational,
            rotational,
            ..Limits::default()
        }
    }
}

/// Key, value and source of each line.
fn lines(text: &str) -> Result<Vec<(String, String, String)>, Error> {
    let mut all: Vec<(String, String, String)> = Vec::new();
    for (n, line) in text.lines().enumerate() {
        let wrong = |what: String, hint: &str| {
            Err(Error::invalid(format!("line {}: {what}", n + 1)).hint(hint))
        };
        let (setting, comment) = match line.split_once('#') {
            Some((s, c)) => (s, Some(c.trim())),
            None => (line, None),
        };
        if setting.trim().is_empty() {
            if let (Some(more), Some((_, _, source))) = (comment, all.last_mut())
                && !setting.is_empty()
            {
                source.push(' ');
                source.push_str(more);
            }
            continue;
        }
        let Some((key, value)) = setting.split_once('=') else {
            return wrong(
                format!("'{}' is no setting", setting.trim()),
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
        if all.iter().any(|(k, ..)| k == key) {
            return wrong(format!("{key} is given twice"), "give it once");
        }
        match comment {
            Some(source) if !source.is_empty() => {
                all.push((key.to_owned(), value.to_owned(), source.to_owned()));
            }
            _ => {
                return wrong(
                    format!("{key} names no source"),
                    "say after # where the number is from, if only: a guess",
                );
            }
        }
    }
    Ok(all)
}

/// Takes every key. What is physical has no default: a drive that forgot it is an error.
fn take(spec: &mut Spec, name: &str, sources: Vec<(String, String)>) -> Result<Profile, Error> {
    let missing = |key: &str| {
        Error::invalid(format!("profile {name} has no {key}"))
            .hint("every number of the model is needed: copy the file of a built-in profile")
    };
    let zone = u64::from(u32::MAX);
    let zone_sectors =
        spec.take_sectors("zone-size", zone)?.ok_or_else(|| missing("zone-size"))? as u32;
    let model = spec.take_choice("model", &["smr", "zns"])?.ok_or_else(|| missing("model"))?;
    let profile = Profile {
        name: name.to_owned(),
        zones: spec.take_number("zones", 1..=MAX_ZONES)?.ok_or_else(|| missing("zones"))? as u32,
        zone_sectors,
        capacity_sectors: spec
            .take_sectors("zone-capacity", zone)?
            .map_or(zone_sectors, |n| n as u32),
        max_open_zones: spec.take_u32("max-open")?.unwrap_or(0),
        max_active_zones: spec.take_u32("max-active")?.unwrap_or(0),
        max_transfer_sectors: spec
            .take_sectors("max-transfer", zone)?
            .ok_or_else(|| missing("max-transfer"))? as u32,
        append_max_sectors: spec.take_sectors("append-max", zone)?.unwrap_or(0) as u32,
        queue_depth: spec
            .take_number("queue-depth", 1..=4096)?
            .ok_or_else(|| missing("queue-depth"))? as u16,
        model: match model {
            0 => Model::Smr(take_smr(spec, &missing)?),
            _ => Model::Zns(take_zns(spec, &missing)?),
        },
        sources,
    };
    profile.geometry()?;
    Ok(profile)
}

fn take_smr(spec: &mut Spec, missing: &dyn Fn(&str) -> Error) -> Result<SmrParams, Error> {
    let max = u64::from(u32::MAX);
    let rpm = spec.take_number("rpm", 1..=1_000_000)?.ok_or_else(|| missing("rpm"))?;
    let p = SmrParams {
        turn: Nanos((60_000_000_000 + rpm / 2) / rpm),
        outer_rate: take_rate(spec, "outer-rate", missing)?,
        inner_radius_ppm: spec
            .take_with(
                "inner-radius",
                |t| parse_ppm(t).filter(|n| (1..1_000_000).contains(n)),
                || "the radius of the inner edge, between 0 and 1, such as 0.55".to_owned(),
            )?
            .ok_or_else(|| missing("inner-radius"))?,
        seek_settle: take_span(spec, "seek-settle", missing)?,
        seek_sqrt: take_span(spec, "seek-sqrt", missing)?,
        seek_linear: take_span(spec, "seek-linear", missing)?,
        link_rate: take_rate(spec, "link-rate", missing)?,
        command_time: take_span(spec, "command-time", missing)?,
        cache_sectors: spec.take_sectors("cache", 1 << 40)?.ok_or_else(|| missing("cache"))?,
        cache_entries: spec.take_u32("cache-entries")?.unwrap_or(0),
        max_run_sectors: spec.take_sectors("max-run", max)?.unwrap_or(0) as u32,
        destage: [Destage::Satf, Destage::Fifo]
            [spec.take_choice("destage", &["satf", "fifo"])?.unwrap_or(0)],
        queued_fifo: spec.take_u32("queued-fifo")?.unwrap_or(0),
        read_burst: spec.take_number("read-burst", 1..=max)?.unwrap_or(8) as u32,
        write_burst_sectors: spec.take_sectors("write-burst", max)?.unwrap_or(8 << 10) as u32,
    };
    Ok(p)
}

fn take_zns(spec: &mut Spec, missing: &dyn Fn(&str) -> Error) -> Result<ZnsParams, Error> {
    Ok(ZnsParams {
        latency: take_span(spec, "latency", missing)?,
        zone_rate: take_rate(spec, "zone-rate", missing)?,
        drive_rate: take_rate(spec, "drive-rate", missing)?,
        read_latency: take_span(spec, "read-latency", missing)?,
    })
}

/// The longest span of a model: with `u32` nanoseconds an access is added up without overflow.
const MAX_SPAN: u64 = 1_000_000_000;

fn take_span(
    spec: &mut Spec,
    key: &'static str,
    missing: &dyn Fn(&str) -> Error,
) -> Result<Nanos, Error> {
    let span = spec.take_time(key)?.ok_or_else(|| missing(key))?;
    if span.0 > MAX_SPAN {
        return Err(Error::invalid(format!("{key} of {} ns is not possible", span.0))
            .hint("the times of a drive are at most 1s"));
    }
    Ok(span)
}

fn take_rate(
    spec: &mut Spec,
    key: &'static str,
    missing: &dyn Fn(&str) -> Error,
) -> Result<u64, Error> {
    spec.take_with(key, parse_rate, || "a rate from 1kB/s to 100GB/s, such as 246MB/s".to_owned())?
        .ok_or_else(|| missing(key))
}

/// A rate in bytes per second, as drives' makers count: `246MB/s`, `1108MB/s`.
fn parse_rate(text: &str) -> Option<u64> {
    let number = text.strip_suffix("B/s")?;
    let (digits, unit) = match number.char_indices().next_back()? {
        (i, 'k') => (&number[..i], 1_000),
        (i, 'M') => (&number[..i], 1_000_000),
        (i, 'G') => (&number[..i], 1_000_000_000),
        _ => (number, 1),
    };
    let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    let n = plain.then(|| digits.parse::<u64>().ok()?.checked_mul(unit)).flatten()?;
    (1_000..=100_000_000_000).contains(&n).then_some(n)
}

/// A number below 10 with at most six digits after the point, in millionths.
fn parse_ppm(text: &str) -> Option<u32> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let digits = |t: &str| t.bytes().all(|b| b.is_ascii_digit());
    if whole.len() != 1 || part.len() > 6 || !digits(whole) || !digits(part) {
        return None;
    }
    format!("{whole}{part:0<6}").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn smr30() -> &'static str {
        Profile::builtin_text("smr30").unwrap()
    }

    /// "Every parameter names its source": the files are read, and a line without one is refused.
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
            ("seek-settle = 1ms", "seek-settle = 2s", "seek-settle of 2000000000 ns"),
            ("cache = 18M", "cahce = 18M", "profile mine has no cache"),
            ("rpm = 7200", "rpm = 7200 # x\nrpm = 5400", "rpm is given twice"),
            ("rpm = 7200", "rpm = 7200 #\nx", "rpm names no source"),
            ("rpm = 7200", "rpm", "'rpm' is no setting"),
        ] {
            assert!(smr30().contains(from), "{from}");
            let e = Profile::parse("mine", &smr30().replace(from, to)).expect_err(to);
            assert!(e.to_string().contains(what), "{to}: {e}");
            assert!(e.what_to_try().is_some_and(|h| !h.is_empty()), "{to}");
        }
        let e = Profile::parse("mine", &format!("{}\nx = 1 # y", smr30())).unwrap_err();
        assert_eq!(e.what(), "sim-mine has no option x");
        assert!(Profile::builtin("smr31").unwrap_err().to_string().contains("smr31"));
    }

    /// A hypothesis about a drive is an option of its specification.
    #[test]
    fn options_of_a_specification_come_before_the_file() {
        let mut spec = Spec::parse("sim-smr30,cache=128M,destage=fifo,tags=4").unwrap();
        let p = Profile::from_spec(&mut spec).unwrap().unwrap();
        let Model::Smr(m) = &p.model else { panic!("a disk") };
        assert_eq!((m.cache_sectors, m.destage), (128 << 11, Destage::Fifo));
        assert!(spec.finish().unwrap_err().to_string().contains("no option tags"));
        assert!(Profile::from_spec(&mut Spec::parse("null").unwrap()).is_none());
        assert!(Profile::from_spec(&mut Spec::parse("sim-smr31").unwrap()).is_none());
    }

    #[test]
    fn rates_and_fractions_are_read() {
        for (text, n) in [("246MB/s", 246_000_000), ("1GB/s", 1_000_000_000), ("2000B/s", 2000)] {
            assert_eq!(parse_rate(text), Some(n), "{text}");
        }
        for text in ["", "B/s", "MB/s", "246", "246M", "1.5GB/s", "999B/s", "101GB/s", "+1MB/s"] {
            assert_eq!(parse_rate(text), None, "{text}");
        }
        for (text, n) in [("0.59", 590_000), ("0.1", 100_000), ("0", 0), ("0.000001", 1)] {
            assert_eq!(parse_ppm(text), Some(n), "{text}");
        }
        for text in ["", ".5", "0.1234567", "-0.5", "0,5", "10"] {
            assert_eq!(parse_ppm(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_a_panic(text in "\\PC*", line in "[a-z-]{0,12} ?=? ?[0-9a-zA-Z/.]{0,9} ?#?[ a-z]{0,4}\n?") {
            let _ = Profile::parse("x", &text);
            let _ = Profile::parse("x", &format!("{}{line}", smr30()));
            let _ = (parse_rate(&text), parse_ppm(&text));
        }
    }
}
