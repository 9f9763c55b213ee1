//! Calibration: finds the profile of a drive, real or modelled, from measurements of it.
//!
//! Rates, seeks and the time of a command follow from the measurements directly. For the write
//! cache and its rules, models with candidate values are measured in the same way as the drive, and
//! the candidate nearest to the drive is taken. Some measurements are held back; they show how well
//! the profile predicts.
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
    /// Its key in the profile.
    pub key: &'static str,
    /// Its value, in `unit`.
    pub value: u64,
    /// The unit of the value: `sectors`, `ns`, `bytes/s` or `millionths`; empty for a count or the
    /// number of a choice.
    pub unit: &'static str,
    /// The value as a profile writes it.
    #[serde(skip)]
    pub text: String,
    /// The error of the value; empty if the drive reported it or it was not measured.
    pub error: String,
    /// How the value was found.
    pub source: String,
    /// Whether it was measured.
    pub is_measured: bool,
}

/// A measurement that no number was fitted to.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Held {
    /// The name of the measurement.
    pub what: String,
    /// Its unit.
    pub unit: &'static str,
    /// The drive's figure; 0 if the zones were too short to measure it.
    pub measured: f64,
    /// The figure that the profile predicts.
    pub predicted: f64,
}

impl Held {
    /// The error of the prediction in percent of the drive's figure. `None`: nothing was measured.
    pub fn error_percent(&self) -> Option<f64> {
        (self.measured > 0.0).then(|| 100.0 * (self.predicted / self.measured - 1.0))
    }
}

/// The unit of a profile's key.
pub fn unit(name: &str) -> &'static str {
    match key(name).map(|k| k.form) {
        Some(Form::Size { .. }) => "sectors",
        Some(Form::Time { .. }) => "ns",
        Some(Form::Rate) => "bytes/s",
        Some(Form::Fraction) => "millionths",
        _ => "",
    }
}

/// The value of a profile's key as a profile writes it.
pub fn shown(name: &str, value: u64) -> String {
    key(name).map_or_else(String::new, |k| k.form.show(&Value::Number(value)))
}

/// The result of a calibration.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Found {
    /// `smr` or `zns`.
    pub model: &'static str,
    /// The numbers, in the order of the profile.
    pub numbers: Vec<Number>,
    /// The measurements held back.
    pub held_back: Vec<Held>,
    /// The profile as text.
    pub profile: String,
}

/// Called before each step with the number of the step, the number of all steps, and what is
/// measured.
pub type Progress<'a> = dyn FnMut((u32, u32), &str) + 'a;

/// The key of a profile with this name.
fn key(name: &str) -> Option<&'static Key> {
    PROFILE_KEYS.iter().chain(&SMR_KEYS).chain(&ZNS_KEYS).find(|k| k.name == name)
}

/// Numbers of a profile while they are found.
#[derive(Debug, Clone)]
struct Numbers(Vec<Number>);

impl Numbers {
    /// The numbers that the drive itself reports.
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

    /// Puts a measured number. Rates, times and fractions are rounded to their significant digits.
    fn measured(&mut self, name: &'static str, value: u64, error: &str, how: &str) {
        let value = match key(name).map(|k| k.form) {
            Some(Form::Rate | Form::Time { .. }) => rounded(value, 1000),
            Some(Form::Fraction) => rounded(value, 100),
            _ => value,
        };
        self.put(name, value, error, &format!("measured here: {how}"), true);
    }

    /// The value of a number; 0 if it is missing.
    fn value(&self, name: &str) -> u64 {
        self.0.iter().find(|n| n.key == name).map_or(0, |n| n.value)
    }

    /// A copy of the numbers in which one has another value.
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

    /// Builds a profile of the numbers. Fails if a number is outside the range of its key.
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

/// The numbers of a profile that calibration measures, each in the unit of its key: what a
/// calibration of this profile's model should find.
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

/// Measures a drive and finds its profile. Writes the zones of the instrument; their content is
/// lost. Fails as [`check_zones`] does, before any command is sent.
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
    // The profile is parsed line by line, so the name must fit one.
    let name = plain(name);
    let title =
        format!("# {name}, as far as measurements from outside tell (zoneplug-lab calibrate).\n");
    let mut profile = title
        + "# It is a model that behaves like the drive where both were measured. Held back were:\n";
    for h in &held_back {
        let (what, unit) = (&h.what, h.unit);
        profile += &match h.error_percent() {
            Some(error) => format!(
                "#   {what}: {:.1} {unit}, predicted {:.1} ({error:+.1} %)\n",
                h.measured, h.predicted
            ),
            None => format!("#   {what}: not measured, the zones are too short\n"),
        };
    }
    profile += &format!("\n{}", numbers.text());
    Ok(Found { model, numbers: numbers.0, held_back, profile })
}

/// Rounds a number to as many significant digits as `least` has. Shorter numbers stay.
fn rounded(value: u64, least: u64) -> u64 {
    let mut unit = 1;
    while value / unit >= 10 * least {
        unit *= 10;
    }
    (value + unit / 2) / unit * unit
}

/// The error of a number in percent as text: `best` is the least that its measurement allows, `off`
/// this one's error.
fn near(best: f64, off: f64) -> String {
    format!("to {:.0} %", off.max(best))
}

/// The relative difference of a candidate's and the drive's rates that may be chance.
const CHANCE: f64 = 0.03;

/// Says how sure the chosen candidate is: names the others that `figures` rates cannot tell from
/// it. A candidate's distance is a sum of squares.
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

/// The candidate with the least distance; of several equal ones, the middle one.
fn nearest<T: Copy>(candidates: &[(T, f64)]) -> Option<T> {
    let least = candidates.iter().map(|c| c.1).fold(f64::INFINITY, f64::min);
    let best: Vec<T> = candidates.iter().filter(|c| c.1 <= least).map(|c| c.0).collect();
    best.get(best.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use zoneplug_devices::spec::Spec;

    /// A profile keeps a turn in whole nanoseconds; the speed it was made from is found again.
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
