//! The profile of a drive from measurements of it: what a real drive would have to be, if it were one of the models.
//!
//! Rates, seeks and the time of a command follow from what was measured. The write cache and its rules are found by measuring
//! candidates, which are models, in the same way as the drive: the one that behaves most like the drive is taken. Some measurements are held
//! back, and show how well the profile predicts.
//!
//! | file | what it owns |
//! | --- | --- |
//! | `zones.rs` | the zones that are written: which, and how far from each other |
//! | `instrument.rs` | a disk, real or modelled, whose commands are timed |
//! | `measure.rs` | the measurements |
//! | `fit.rs` | curves from measurements |
//! | `smr.rs`, `zns.rs` | which measurements give which number |
//!
//! ```
//! use zoneplug_devices::emu::timing::Profile;
//! use zoneplug_models::calibrate::{Instrument, calibrate};
//! let zones: Vec<u32> = (0..8).collect();
//! let mut drive = Instrument::modelled(&Profile::builtin("zns1").unwrap(), &zones, &|| false).unwrap();
//! let found = calibrate(&mut drive, "mine", &mut |_, _| ()).unwrap();
//! let rate = found.numbers.iter().find(|n| n.key == "zone-rate").unwrap();
//! assert!((rate.value as f64 / 1.108e9 - 1.0).abs() < 0.02);
//! assert!(Profile::parse("mine", &found.profile).is_ok());
//! ```

mod fit;
mod instrument;
mod measure;
mod smr;
mod zns;
mod zones;

pub use instrument::Instrument;
pub use zones::{MOST_ZONES, all_over, check_zones};

use serde::Serialize;
use zoneplug_core::form::{Form, Key, Value};
use zoneplug_core::zone::MAX_ZONES;
use zoneplug_core::{Error, ErrorKind, plain};
use zoneplug_devices::emu::timing::{Destage, Model, PROFILE_KEYS, Profile, SMR_KEYS, ZNS_KEYS};

/// A number of a profile.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Number {
    /// Its key.
    pub key: &'static str,
    /// Its value.
    pub value: u64,
    /// The unit of the value: `sectors`, `ns`, `bytes/s`, `millionths`; empty: a count, or a choice by its number.
    pub unit: &'static str,
    /// The value as a profile has it.
    #[serde(skip)]
    pub text: String,
    /// How far off it may be; empty: it was reported by the drive, or not measured.
    pub error: String,
    /// Where it comes from.
    pub source: String,
    /// Whether a measurement says anything of it.
    pub is_measured: bool,
}

/// A measurement that no number was fitted to.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Held {
    /// What was measured.
    pub what: String,
    /// Its unit.
    pub unit: &'static str,
    /// What the drive gave.
    pub measured: f64,
    /// What the profile gives.
    pub predicted: f64,
}

impl Held {
    /// How far the prediction is from the drive, in percent of the drive's figure.
    pub fn error_percent(&self) -> f64 {
        if self.measured == 0.0 { 0.0 } else { 100.0 * (self.predicted / self.measured - 1.0) }
    }
}

/// The unit in which a profile's key is kept.
pub fn unit(name: &str) -> &'static str {
    match key(name).map(|k| k.form) {
        Some(Form::Size { .. }) => "sectors",
        Some(Form::Time { .. }) => "ns",
        Some(Form::Rate) => "bytes/s",
        Some(Form::Fraction) => "millionths",
        _ => "",
    }
}

/// What a value of a profile's key is called in the profile.
pub fn shown(name: &str, value: u64) -> String {
    key(name).map_or_else(String::new, |k| k.form.show(&Value::Number(value)))
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Found {
    /// `smr` or `zns`.
    pub model: &'static str,
    /// The numbers, in the order of the profile.
    pub numbers: Vec<Number>,
    /// What was held back.
    pub held_back: Vec<Held>,
    /// The profile as text.
    pub profile: String,
}

/// Called before each step: its number of how many, and what it is.
pub type Progress<'a> = dyn FnMut((u32, u32), &str) + 'a;

/// The key of a profile with this name.
fn key(name: &str) -> Option<&'static Key> {
    PROFILE_KEYS.iter().chain(&SMR_KEYS).chain(&ZNS_KEYS).find(|k| k.name == name)
}

/// Numbers of a profile while they are found.
#[derive(Debug, Clone)]
struct Numbers(Vec<Number>);

impl Numbers {
    /// What the drive itself reports.
    fn reported(on: &Instrument<'_>, model: &str) -> Numbers {
        let (g, l) = (on.geometry(), on.limits());
        let mut all = Numbers(Vec::new());
        let kind = key("model").map_or(0, |k| match k.form.read(model) {
            Some(Value::Number(n)) => n,
            _ => 0,
        });
        let zones = u64::from(g.nr_zones()).min(MAX_ZONES);
        let sizes = (u64::from(g.zone_sectors()), u64::from(g.zone_capacity_sectors()));
        let append = u64::from(l.zone_append_max_sectors);
        for (name, value) in [
            ("model", kind),
            ("zones", zones),
            ("zone-size", sizes.0),
            ("zone-capacity", sizes.1),
            ("max-open", u64::from(l.max_open_zones)),
            ("max-active", u64::from(l.max_active_zones)),
            ("max-transfer", u64::from(on.longest())),
            ("append-max", append),
            ("queue-depth", u64::from(on.tags())),
        ] {
            all.put(name, value, "", "the drive reports it", false);
        }
        all
    }

    fn put(
        &mut self,
        name: &'static str,
        value: u64,
        error: &str,
        source: &str,
        is_measured: bool,
    ) {
        let (error, source) = (error.to_owned(), source.to_owned());
        let (unit, text) = (unit(name), shown(name, value));
        let number = Number { key: name, value, unit, text, error, source, is_measured };
        match self.0.iter_mut().find(|n| n.key == name) {
            Some(n) => *n = number,
            None => self.0.push(number),
        }
    }

    /// A number that a measurement gives. A rate or a time has as many digits as it deserves.
    fn measured(&mut self, name: &'static str, value: u64, error: &str, how: &str) {
        let value = match key(name).map(|k| k.form) {
            Some(Form::Rate | Form::Time { .. }) => rounded(value, 1000),
            Some(Form::Fraction) => rounded(value, 100),
            _ => value,
        };
        self.put(name, value, error, &format!("measured here: {how}"), true);
    }

    /// The value of a number; 0 if there is none.
    fn value(&self, name: &str) -> u64 {
        self.0.iter().find(|n| n.key == name).map_or(0, |n| n.value)
    }

    /// The same numbers but for one.
    fn with(&self, name: &'static str, value: u64) -> Numbers {
        let mut other = self.clone();
        other.put(name, value, "", "a candidate", false);
        other
    }

    fn text(&self) -> String {
        let mut text = String::new();
        for n in &self.0 {
            let of = if n.error.is_empty() { String::new() } else { format!(", {}", n.error) };
            text += &format!("{} = {} # {}{of}\n", n.key, n.text, n.source);
        }
        text
    }

    /// Fails if a number is one that no profile can have.
    fn profile(&self) -> Result<Profile, Error> {
        for n in &self.0 {
            let form = key(n.key).map(|k| k.form);
            if let Some(form) = form.filter(|f| !f.has(&Value::Number(n.value))) {
                let what =
                    format!("the measurements give {} = {}, which no model has", n.key, n.text);
                let hint = "zones far from each other; nothing else may use the drive meanwhile";
                return Err(Error::new(ErrorKind::NotSupported, what).hint(format!(
                    "{} is {}: {hint}",
                    n.key,
                    form.allowed()
                )));
            }
        }
        Profile::parse("candidate", &self.text())
    }
}

/// The numbers of a profile that are found by measuring, each with its value in the unit of its key: what calibrating a model of the
/// profile should find.
pub fn values(profile: &Profile) -> Vec<(&'static str, u64)> {
    match &profile.model {
        Model::Smr(p) => vec![
            ("rpm", (60_000_000_000 + p.turn.0 / 2) / p.turn.0.max(1)),
            ("outer-rate", p.outer_rate),
            ("inner-radius", u64::from(p.inner_radius_ppm)),
            ("seek-settle", p.seek_settle.0),
            ("seek-sqrt", p.seek_sqrt.0),
            ("seek-linear", p.seek_linear.0),
            ("link-rate", p.link_rate),
            ("command-time", p.command_time.0),
            ("cache", p.cache_sectors),
            ("destage", u64::from(p.destage == Destage::Fifo)),
            ("max-run", u64::from(p.max_run_sectors)),
            ("queued-fifo", u64::from(p.queued_fifo)),
            ("cache-entries", u64::from(p.cache_entries)),
            ("protected", p.protected_sectors),
            ("read-burst", u64::from(p.read_burst)),
            ("write-burst", p.write_burst_sectors.into()),
        ],
        Model::Zns(p) => vec![
            ("latency", p.latency.0),
            ("zone-rate", p.zone_rate),
            ("drive-rate", p.drive_rate),
            ("read-latency", p.read_latency.0),
        ],
    }
}

/// Measures a drive and finds its profile. The zones of the instrument are written; what was in them is lost. Fails as [`check_zones`] does
/// before it sends a command.
pub fn calibrate(
    on: &mut Instrument<'_>,
    name: &str,
    progress: &mut Progress<'_>,
) -> Result<Found, Error> {
    check_zones(on.zones(), on.geometry(), on.limits())?;
    let smr = on.limits().rotational;
    let (model, (numbers, held_back)) = match smr {
        true => ("smr", smr::find(on, progress)?),
        false => ("zns", zns::find(on, progress)?),
    };
    // The profile is read again line by line.
    let name = plain(name);
    let title =
        format!("# {name}, as far as measurements from outside tell (zoneplug calibrate).\n");
    let mut profile = title
        + "# It is a model that behaves like the drive where both were measured. Held back were:\n";
    for h in &held_back {
        let (what, unit) = (&h.what, h.unit);
        profile += &format!(
            "#   {what}: {:.1} {unit}, predicted {:.1} ({:+.1} %)\n",
            h.measured,
            h.predicted,
            h.error_percent()
        );
    }
    profile += &format!("\n{}", numbers.text());
    Ok(Found { model, numbers: numbers.0, held_back, profile })
}

/// The number with as many digits as `least` has, or with one less: 0 for the rest.
fn rounded(value: u64, least: u64) -> u64 {
    let mut unit = 1;
    while value / unit >= 10 * least {
        unit *= 10;
    }
    (value + unit / 2) / unit * unit
}

/// How near a number is, in percent: as its measurement allows at best, or as much worse as this one was.
fn near(best: f64, off: f64) -> String {
    format!("to {:.0} %", off.max(best))
}

/// How far rates of a candidate may be from those of the drive by chance, as a part of them.
const CHANCE: f64 = 0.03;

/// How sure a candidate is that was taken for its rates: it names those that `figures` rates do not tell from it. A distance is a sum of
/// squares.
fn how_sure<T: Copy + PartialEq>(
    candidates: &[(T, f64)],
    best: T,
    figures: usize,
    name: impl Fn(T) -> String,
) -> String {
    let least = candidates.iter().map(|c| c.1).fold(f64::INFINITY, f64::min);
    let near = least + figures as f64 * CHANCE * CHANCE;
    let others = candidates.iter().filter(|c| c.0 != best && c.1 <= near);
    let others: Vec<String> = others.map(|c| name(c.0)).collect();
    match others.as_slice() {
        [] => "of those tried".to_owned(),
        _ => format!("not told from {}", others.join(", ")),
    }
}

/// The candidate that is nearest, by its distance; of several that are equal the middle one.
fn nearest<T: Copy>(candidates: &[(T, f64)]) -> Option<T> {
    let least = candidates.iter().map(|c| c.1).fold(f64::INFINITY, f64::min);
    let best: Vec<T> = candidates.iter().filter(|c| c.1 <= least).map(|c| c.0).collect();
    best.get(best.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use zoneplug_devices::spec::Spec;

    /// A turn is kept in whole nanoseconds; the speed that it was made from comes out.
    #[test]
    fn the_values_of_a_profile_are_what_it_says() {
        for rpm in [4200, 5400, 5900, 7000, 7200, 10_520, 15_000] {
            let mut spec = Spec::parse(&format!("sim-smr30,rpm={rpm}")).unwrap();
            let profile = Profile::from_spec(&mut spec).unwrap().unwrap();
            let found = values(&profile).into_iter().find(|v| v.0 == "rpm");
            assert_eq!(found, Some(("rpm", rpm)));
        }
    }
}
