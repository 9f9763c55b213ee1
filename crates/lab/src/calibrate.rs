//! `zoneplug-lab calibrate`: the profile of a drive from measurements of it.

use crate::confirm::Consent;
use crate::disk::{Named, forced};
use crate::failure::Failure;
use crate::figures::figure;
use crate::interrupt::{self, is_asked};
use crate::output::{Output, Over};
use crate::program::quoted;
use crate::table::Table;
use crate::zones::{count, numbers, size};
use crate::{csv, json, term};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use std::fmt;
use std::io::Write;
use std::path::PathBuf;
use zoneplug_core::zone::{Geometry, Limits};
use zoneplug_core::{Error, ZoneNo, plain};
use zoneplug_devices::spec;
use zoneplug_host::Specification;
use zoneplug_models::VirtualDisk;
use zoneplug_models::calibrate::{
    Found, Held, Instrument, MOST_ZONES, all_over, calibrate, check_zones, shown, unit, values,
};

/// Flags of `zoneplug-lab calibrate`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The drive: a device such as /dev/sda, or a model such as sim-smr30
    #[arg(value_name = "DISK")]
    spec: String,

    /// The zones that may be written, by number: 5, 10-20, 1000-110000/3500 (every 3500th). Eight or more, all over the disk. A
    /// model needs no list
    #[arg(long, value_name = "LIST", value_parser = parse_zones)]
    zones: Option<Zones>,

    /// Of a model: in real time, as a drive would be measured
    #[arg(long)]
    real_time: bool,

    /// Also write the profile to this file; - is standard output, which has nothing else then
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,

    #[command(flatten)]
    consent: Consent,

    /// Print one JSON document
    #[arg(long, conflicts_with = "csv")]
    json: bool,

    /// Print the numbers as CSV
    #[arg(long)]
    csv: bool,
}

/// A list of zone numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Zones(Vec<u32>);

fn parse_zones(text: &str) -> Result<Zones, Error> {
    let wrong = |part: &str| {
        Error::invalid(format!("'{part}' names no zones"))
            .hint("numbers such as 5,10-20,1000-110000/3500")
    };
    let mut all = Vec::new();
    for part in text.split(',') {
        let (range, step) = part.split_once('/').unwrap_or((part, "1"));
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let number = |text: &str| text.trim().parse::<u32>().map_err(|_| wrong(part));
        let (first, last, step) = (number(first)?, number(last)?, number(step)?);
        if last < first || step == 0 {
            return Err(wrong(part));
        }
        let these = (first..=last).step_by(step as usize);
        if ((last - first) / step) as usize + all.len() >= MOST_ZONES {
            return Err(Error::invalid(format!("more than {MOST_ZONES} zones"))
                .hint("8 to 32 zones, all over the disk"));
        }
        all.extend(these);
    }
    all.sort_unstable();
    all.dedup();
    Ok(Zones(all))
}

/// Suggests zones spread over the disk that can be open together, in the words of the flag.
fn some_zones(g: &Geometry, limits: &Limits) -> String {
    let most = if limits.max_open_zones == 0 { 32 } else { limits.max_open_zones.min(32) };
    let (first, end) = (g.nr_conventional(), g.nr_zones());
    format!("{first}-{}/{}", end - 1, (end - first).div_ceil(most))
}

/// Largest error of a usable profile against the measurements that were held back, in percent.
const NEAR: f64 = 20.0;

/// The results to print.
#[derive(Debug, Serialize)]
struct Report {
    zoneplug: &'static str,
    disk: String,
    /// `virtual` or `real`.
    time: &'static str,
    zones: Vec<u32>,
    #[serde(flatten)]
    found: Found,
    /// The model's own numbers, if the drive is a model.
    put_in: Option<Vec<PutIn>>,
}

/// A number of a model.
#[derive(Debug, Serialize)]
struct PutIn {
    key: &'static str,
    value: u64,
    unit: &'static str,
    #[serde(skip)]
    text: String,
}

/// Runs the command.
pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<(), Failure> {
    let given = args.zones.as_ref().map(|z| z.0.clone());
    let document = json::flag(args.json, args.csv);
    let file = |path: &PathBuf| {
        let file = Output::create(path, Over::Files, [])?;
        let has_stdout = Output::have_stdout(&[("--out", Some(&file))], document)?;
        Ok::<_, Failure>((file, has_stdout))
    };
    let spec = Specification::parse(&args.spec)?;
    let (mut on, zones, put_in, file) = match VirtualDisk::of(&spec)? {
        Some(disk) => {
            if !disk.is_bare() {
                return Err(Failure::usage("a drive with layers has no profile")
                    .hint(format!("the drive alone: {}", plain(spec.disk().text()))));
            }
            let zones = given.unwrap_or_else(|| all_over(disk.geometry(), disk.limits()));
            check_zones(&zones, disk.geometry(), disk.limits())?;
            let file = args.out.as_ref().map(file).transpose()?;
            let put_in = values(&disk.profile).into_iter();
            let put_in = put_in.map(|(key, value)| PutIn {
                key,
                value,
                unit: unit(key),
                text: shown(key, value),
            });
            let on = if args.real_time {
                let device = Named::of(&spec)?.device;
                Instrument::real(device, disk.profile.queue_depth, &zones, &is_asked)?
            } else {
                Instrument::modelled(&disk.profile, &zones, &is_asked)?
            };
            (on, zones, Some(put_in.collect::<Vec<_>>()), file)
        }
        None => {
            let Some(zones) = given else {
                let look = spec.open_to_look()?.device;
                let some = some_zones(look.geometry(), look.limits());
                return Err(Failure::usage("which zones of the drive may be written?")
                    .hint(format!("--zones {some}: what is in them is lost")));
            };
            let named = Named::of(&forced(spec, args.consent)?)?;
            let (g, limits) = (*named.device.geometry(), named.device.limits().clone());
            check_zones(&zones, &g, &limits)?;
            let bytes: u64 = zones.iter().map(|z| u64::from(g.capacity_of(ZoneNo(*z))) << 9).sum();
            let what = format!(
                "empties and writes {} of {} ({}), up to {} at a time, for some minutes",
                count(zones.len(), "zone"),
                args.spec,
                numbers(&zones),
                size(bytes)
            );
            args.consent.ask(&what, zones.len().max(2))?;
            let file = args.out.as_ref().map(file).transpose()?;
            let on = Instrument::real(named.device, named.tags.unwrap_or(31), &zones, &is_asked)?;
            (on, zones, None, file)
        }
    };
    let bar = ProgressBar::new(0);
    if let Ok(style) = ProgressStyle::with_template("  {bar:40} {pos}/{len}  {wide_msg}") {
        bar.set_style(style);
    }
    let found = calibrate(&mut on, &args.spec, &mut |(step, steps), what| {
        bar.set_length(u64::from(steps));
        bar.set_position(u64::from(step) - 1);
        bar.set_message(what.to_owned());
    });
    bar.finish_and_clear();
    if is_asked() {
        let written = if put_in.is_none() { "; the zones may be partly written" } else { "" };
        return Err(interrupt::failure(&format!("nothing was found yet{written}")));
    }
    let found = found?;
    let (file, has_stdout) = file.unzip();
    // If the file cannot be written, the results are still printed: they took minutes to measure.
    let unwritten = file.and_then(|file| file.end_with(found.profile.as_bytes()).err());
    if has_stdout == Some(true) {
        return unwritten.map_or(Ok(()), Err);
    }
    let time = if put_in.is_some() && !args.real_time { "virtual" } else { "real" };
    let report = Report {
        zoneplug: env!("CARGO_PKG_VERSION"),
        disk: args.spec.clone(),
        time,
        zones,
        found,
        put_in,
    };
    if args.json {
        return json::end(out, &report, unwritten);
    }
    if args.csv {
        out.write_all(report.csv().as_bytes())?;
    } else {
        term::print_report(out, &report.to_string())?;
    }
    if let Some(failure) = unwritten {
        if !args.csv {
            let lead = "The profile, which is in no file:\n";
            term::print_report(out, lead)?;
            out.write_all(report.found.profile.as_bytes())?;
        }
        out.flush()?;
        return Err(failure);
    }
    if !args.csv {
        let name = args.out.as_ref().map_or("FILE".into(), |p| p.to_string_lossy());
        let next =
            if args.out.is_some() { "" } else { "with --out FILE the profile is written; then " };
        let spec = with_profile(&name);
        term::print_report(
            out,
            &format!("Try next: {next}zoneplug-lab bench --disk {}\n", plain(&spec)),
        )?;
    }
    Ok(out.flush()?)
}

/// The specification of a drive with the profile in this file, as a word of a shell.
fn with_profile(name: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "_+:./-".contains(c);
    match name.chars().all(is_plain) {
        true => format!("sim,profile={name}"),
        false => quoted(&format!("sim,profile={}", spec::quoted(name))),
    }
}

impl Report {
    /// The model's own value of the number `key`.
    fn put_in(&self, key: &str) -> Option<&PutIn> {
        self.put_in.as_ref()?.iter().find(|p| p.key == key)
    }

    fn csv(&self) -> String {
        let titles = ["key", "value", "unit", "put_in", "error", "source"];
        let mut text = csv::line(titles.map(str::to_owned));
        for n in &self.found.numbers {
            let put_in = self.put_in(n.key).map_or_else(String::new, |p| p.value.to_string());
            let (error, source) = (n.error.clone(), n.source.clone());
            text += &csv::line([
                n.key.to_owned(),
                n.value.to_string(),
                n.unit.to_owned(),
                put_in,
                error,
                source,
            ]);
        }
        text
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let zones = count(self.zones.len(), "zone");
        writeln!(
            f,
            "zoneplug-lab {} calibrate {}, {zones}, in {} time",
            self.zoneplug,
            plain(&self.disk),
            self.time
        )?;
        let is_model = self.put_in.is_some();
        let mut titles = vec!["number", "found"];
        if is_model {
            titles.push("put in");
        }
        titles.push("how near");
        let mut table = Table::new(&titles).left_columns(titles.len()).key_columns(1);
        for n in self.found.numbers.iter().filter(|n| n.is_measured) {
            let mut cells = vec![n.key.to_owned(), n.text.clone()];
            if is_model {
                cells.push(self.put_in(n.key).map_or_else(|| "-".to_owned(), |p| p.text.clone()));
            }
            cells.push(n.error.clone());
            table.row(cells);
        }
        write!(f, "{table}")?;
        writeln!(f, "What was held back, and what the profile says of it:")?;
        let mut table = Table::new(&["measurement", "unit", "measured", "predicted", "error"])
            .left_columns(2)
            .key_columns(1);
        for h in &self.found.held_back {
            let cells = match h.error_percent() {
                Some(error) => [figure(h.measured), figure(h.predicted), format!("{error:+.1} %")],
                None => ["-", "-", "not measured: short zones"].map(str::to_owned),
            };
            table.row([h.what.clone(), h.unit.to_owned()].into_iter().chain(cells));
        }
        write!(f, "{table}")?;
        let errors = self.found.held_back.iter().filter_map(Held::error_percent);
        let worst = errors.fold(0.0, |most: f64, e| most.max(e.abs()));
        match worst > NEAR {
            true => writeln!(
                f,
                "The profile is not that of the drive: what was held back is off by up to {worst:.0} %."
            ),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_is_named_so_that_a_shell_and_a_specification_take_it() {
        assert_eq!(with_profile("FILE"), "sim,profile=FILE");
        assert_eq!(with_profile("/a/b_1.toml"), "sim,profile=/a/b_1.toml");
        for name in ["we ird,name", "it's", "a\"b", "$HOME"] {
            let word = with_profile(name);
            let mut sh = std::process::Command::new("sh");
            let out = sh.args(["-c", &format!("printf %s {word}")]).output().unwrap();
            let said = String::from_utf8(out.stdout).unwrap();
            let read = spec::Spec::parse(&said).unwrap();
            assert_eq!(read.options().collect::<Vec<_>>(), [("profile", name)], "{word}");
        }
    }

    #[test]
    fn zones_are_named_by_numbers_ranges_and_steps() {
        assert_eq!(parse_zones("7,1-3,10-20/5").unwrap(), Zones(vec![1, 2, 3, 7, 10, 15, 20]));
        assert_eq!(parse_zones("0-63").unwrap().0.len(), 64);
        assert_eq!(parse_zones("0-4294967295/67108864").unwrap().0.len(), 64);
        for text in ["", "a", "3-1", "1-9/0", "0-64", "0-63,70", "0-4294967295", "-3"] {
            assert!(parse_zones(text).unwrap_err().what_to_try().is_some(), "{text}");
        }
    }
}
