//! `zoneplug sim`: worlds by seed, in virtual time, until one breaks a promise.

use crate::failure::{Failure, Kind};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::Write;
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};
use zoneplug_sim::{Class, Steps, Tally, bugs, hunt, run, shrink};

/// Flags of `zoneplug sim`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Seeds, first and last: each is one world
    #[arg(long, value_name = "FIRST..LAST", value_parser = seeds, default_value = "1..10000")]
    seeds: RangeInclusive<u64>,

    /// One seed, with a trace of what happened if it fails
    #[arg(long, value_name = "N", conflicts_with = "seeds")]
    seed: Option<u64>,

    /// Only these steps of that seed, as in 3,17-20
    #[arg(long, value_name = "LIST", requires = "seed", default_value = "all")]
    steps: Steps,

    /// Stop after so many minutes, wherever that is
    #[arg(long, value_name = "M")]
    minutes: Option<f64>,

    /// Plant a bug, or all one after the other, and say in how many worlds each is caught (in builds of scripts/planted)
    #[arg(long, value_name = "NAME|all", conflicts_with = "seed")]
    planted: Option<String>,

    /// Print one JSON document instead of text
    #[arg(long)]
    json: bool,
}

fn seeds(text: &str) -> Result<RangeInclusive<u64>, String> {
    let (first, last) = text.split_once("..").unwrap_or((text, text));
    let number = |t: &str| t.parse::<u64>().map_err(|_| format!("'{t}' is no seed"));
    let (first, last) = (number(first)?, number(last)?);
    if first > last { Err(format!("{first} is after {last}")) } else { Ok(first..=last) }
}

#[derive(Debug, Serialize)]
struct Summary {
    seeds: u64,
    seconds: f64,
    seeds_per_minute: u64,
    bios: u64,
    bios_per_second: u64,
    bios_per_world: u64,
    faults_per_world: f64,
    /// Per cent of the worlds.
    parked: u64,
    merged: u64,
    split: u64,
    failed: u64,
    recovered: u64,
    classes: BTreeMap<&'static str, u64>,
    failed_seed: Option<u64>,
}

fn summary(t: &Tally, time: Duration, failed_seed: Option<u64>) -> Summary {
    let seconds = time.as_secs_f64().max(1e-9);
    let worlds = t.worlds.max(1);
    let share = |n: u64| n * 100 / worlds;
    Summary {
        seeds: t.worlds,
        seconds,
        seeds_per_minute: (t.worlds as f64 * 60.0 / seconds) as u64,
        bios: t.bios,
        bios_per_second: (t.bios as f64 / seconds) as u64,
        bios_per_world: t.bios / worlds,
        faults_per_world: (t.faults * 10 / worlds) as f64 / 10.0,
        parked: share(t.parked),
        merged: share(t.merged),
        split: share(t.split),
        failed: share(t.failed),
        recovered: share(t.recovered),
        classes: Class::ALL.iter().map(|&c| (c.name(), t.coverage.of(c))).collect(),
        failed_seed,
    }
}

fn show(s: &Summary, t: &Tally, out: &mut dyn Write) -> std::io::Result<()> {
    for &c in Class::ALL {
        writeln!(out, "{:>10}  {:<8} {}", t.coverage.of(c), c.name(), c.text())?;
    }
    writeln!(
        out,
        "\n{} worlds in {:.1} s: {} worlds a minute, {} BIOs a second, {} BIOs and {} faults a world",
        s.seeds,
        s.seconds,
        s.seeds_per_minute,
        s.bios_per_second,
        s.bios_per_world,
        s.faults_per_world
    )?;
    writeln!(
        out,
        "worlds that parked {} %, merged {} %, split {} %, failed {} %, recovered {} %",
        s.parked, s.merged, s.split, s.failed, s.recovered
    )
}

/// Runs the command.
pub(crate) fn main(args: &Args, out: &mut dyn Write) -> Result<(), Failure> {
    if let Some(seed) = args.seed {
        return replay(seed, &args.steps, out);
    }
    if let Some(name) = &args.planted {
        return planted(name, &args.seeds, out);
    }
    let (first, last) = (*args.seeds.start(), *args.seeds.end());
    // indicatif draws on stderr, and only if that is a terminal.
    let bar = ProgressBar::new(last - first + 1);
    let form = "  {bar:40} {pos}/{len} worlds  {elapsed}  {per_sec}  {wide_msg}";
    if let Ok(style) = ProgressStyle::with_template(form) {
        bar.set_style(style);
    }
    let start = Instant::now();
    let limit = args.minutes.map(|m| Duration::from_secs_f64((m * 60.0).max(0.0)));
    let mut tally = Tally::default();
    let mut broken = None;
    for seed in first..=last {
        match run(seed, &Steps::All, false) {
            Ok(o) => tally.add(&o),
            Err(f) => {
                broken = Some(f);
                break;
            }
        }
        if tally.worlds % 64 == 0 {
            bar.set_position(tally.worlds);
            if limit.is_some_and(|l| start.elapsed() >= l) {
                break;
            }
        }
    }
    bar.finish_and_clear();
    let time = start.elapsed();
    let s = summary(&tally, time, broken.as_ref().map(|f| f.seed));
    if args.json {
        serde_json::to_writer_pretty(&mut *out, &s).map_err(std::io::Error::from)?;
        writeln!(out)?;
    } else if broken.is_none() {
        show(&s, &tally, out)?;
    }
    let Some(f) = broken else { return missing(&tally) };
    let mut command = format!("zoneplug sim --seed {}", f.seed);
    if let Some(small) = shrink(f.seed) {
        command = format!("{command} --steps {}", small.steps);
        if !args.json {
            writeln!(out, "seed {}, shrunk to {} BIOs:", f.seed, small.bios)?;
            small.failure.trace.iter().try_for_each(|line| writeln!(out, "{line}"))?;
            writeln!(out, "{}", small.failure.what)?;
        }
    }
    out.flush()?;
    Err(Failure::io(format!("seed {}: {}", f.seed, f.what))
        .hint(format!("run it again: {command}")))
}

fn planted(name: &str, seeds: &RangeInclusive<u64>, out: &mut dyn Write) -> Result<(), Failure> {
    let all = bugs();
    let wanted: Vec<_> = all.iter().filter(|b| name == "all" || *b == name).collect();
    if wanted.is_empty() {
        return Err(Failure::usage(format!("no bug is called '{name}'")).hint(all.join(", ")));
    }
    let mut missed = Vec::new();
    for bug in wanted {
        let Some(c) = hunt(bug, seeds.clone()) else {
            return Err(Failure::new(Kind::NotSupported, "no bugs can be planted in this build")
                .hint("scripts/planted builds one that can"));
        };
        let said = c.first.map_or(String::new(), |(seed, what)| {
            let what: String = what.chars().take(80).collect();
            format!("  first {seed}: {}", what.replace('\n', " "))
        });
        writeln!(out, "{:>6} of {} worlds  {:<24}{said}", c.caught, c.seeds, c.name)?;
        out.flush()?;
        if c.caught == 0 {
            missed.push(c.name);
        }
    }
    if missed.is_empty() {
        return Ok(writeln!(out, "every planted bug was caught")?);
    }
    Err(Failure::io(format!("not caught: {}", missed.join(", "))).hint("run more seeds"))
}

/// With enough worlds, a class that none of them exercised is a hole in the simulation.
fn missing(t: &Tally) -> Result<(), Failure> {
    let names: Vec<_> = t.coverage.missing().map(Class::name).collect();
    if t.worlds < 1000 || names.is_empty() {
        return Ok(());
    }
    Err(Failure::io(format!("no world exercised {}", names.join(", "))).hint("run more seeds"))
}

fn replay(seed: u64, steps: &Steps, out: &mut dyn Write) -> Result<(), Failure> {
    let (trace, what) = match run(seed, steps, true) {
        Ok(o) => (Vec::new(), Ok(o)),
        Err(f) => (f.trace, Err(f.what)),
    };
    trace.iter().try_for_each(|line| writeln!(out, "{line}"))?;
    match what {
        Ok(o) => Ok(writeln!(
            out,
            "seed {seed}: {} BIOs in {} steps, no promise broken",
            o.bios, o.steps
        )?),
        Err(what) => {
            writeln!(out, "{what}")?;
            out.flush()?;
            Err(Failure::io(format!("seed {seed}: {what}"))
                .hint(format!("the fewest steps: zoneplug sim --seeds {seed}..{seed}")))
        }
    }
}
