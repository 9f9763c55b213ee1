//! `zoneplug-lab sim`: runs simulated worlds by seed until one breaks a promise. `shard.rs` has the parts of a run;
//! `merge` joins their results.

mod shard;

use crate::failure::Failure;
use crate::interrupt::{self, is_asked};
use crate::{json, term};
use indicatif::{ProgressBar, ProgressStyle};
use serde::{Deserialize, Serialize};
pub(crate) use shard::{Shard, count};
use std::io::Write;
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};
use zoneplug_sim::{Class, Steps, Summary as Figures, Tally, Worlds, run, shrink};

/// Flags of `zoneplug-lab sim`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Seeds, first and last: each is one world
    #[arg(long, value_name = "FIRST..LAST", value_parser = seeds, default_value = "1..10000")]
    seeds: RangeInclusive<u64>,

    /// One seed, with a trace of what happened if it fails
    #[arg(long, value_name = "N", conflicts_with = "seeds")]
    seed: Option<u64>,

    /// Only the I-th of N parts of the seeds, for one machine of several; zoneplug-lab merge puts the parts together
    #[arg(long, value_name = "I/N", conflicts_with = "seed")]
    shard: Option<Shard>,

    /// Only these steps of that seed, as in 3,17-20
    #[arg(long, value_name = "LIST", requires = "seed", default_value = "all")]
    steps: Steps,

    /// Stop after so many minutes, wherever that is
    #[arg(long, value_name = "M")]
    minutes: Option<f64>,

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

/// The results of a run of seeds, or of one of its shards.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Summary {
    /// The version of zoneplug.
    pub(crate) zoneplug: String,
    /// The seeds of the whole run, with all shards.
    pub(crate) first_seed: u64,
    pub(crate) last_seed: u64,
    pub(crate) shard: Option<Shard>,
    #[serde(flatten)]
    pub(crate) figures: Figures,
}

/// The JSON document of a single seed, which has a trace.
#[derive(Debug, Serialize)]
struct OneWorld<'a> {
    seed: u64,
    bios: Option<u64>,
    steps: Option<u32>,
    /// The steps of the simulation until a promise was broken; empty if none was.
    trace: &'a [String],
}

/// The seeds of a summary.
pub(crate) struct Of {
    pub(crate) seeds: RangeInclusive<u64>,
    pub(crate) shard: Option<Shard>,
}

impl Summary {
    /// A summary of these seeds.
    pub(crate) fn new(of: &Of, figures: Figures) -> Summary {
        Summary {
            zoneplug: env!("CARGO_PKG_VERSION").to_owned(),
            first_seed: *of.seeds.start(),
            last_seed: *of.seeds.end(),
            shard: of.shard,
            figures,
        }
    }

    /// Prints the summary as text. `t`: the tally that it was made of.
    pub(crate) fn show(&self, t: &Tally, out: &mut dyn Write) -> Result<(), Failure> {
        let (f, mut text) = (&self.figures, String::new());
        for &c in Class::ALL {
            text += &format!("{:>10}  {:<8} {}\n", t.coverage.of(c), c.name(), c.text());
        }
        text += &format!(
            "\n{} worlds in {:.1} s: {} worlds a minute, {} BIOs a second, {} BIOs and {} faults a world\n",
            f.worlds,
            f.elapsed_s,
            f.worlds_per_minute,
            f.bios_per_s,
            f.bios_per_world,
            f.faults_per_world
        );
        text += &format!(
            "worlds that parked {} %, merged {} %, split {} %, failed {} %, recovered {} %\n",
            f.parked_percent,
            f.merged_percent,
            f.split_percent,
            f.failed_percent,
            f.recovered_percent
        );
        if let Some(shard) = self.shard {
            text += &format!("{shard} of the seeds {}..{}\n", self.first_seed, self.last_seed);
        }
        term::print(out, &(text + interrupt::note(f.partial)))
    }
}

/// Runs the command.
pub(crate) fn main(args: &Args, out: &mut dyn Write) -> Result<(), Failure> {
    if let Some(seed) = args.seed {
        return replay(seed, args, out);
    }
    let of = Of { seeds: args.seeds.clone(), shard: args.shard };
    let seeds = match args.shard {
        Some(shard) => shard.seeds(&args.seeds)?,
        None => args.seeds.clone(),
    };
    // indicatif draws on stderr, and only if that is a terminal.
    let bar = ProgressBar::new(u64::try_from(count(&seeds)).unwrap_or(u64::MAX));
    let form = "  {bar:40} {pos}/{len} worlds  {elapsed}  {per_sec}  {wide_msg}";
    if let Ok(style) = ProgressStyle::with_template(form) {
        bar.set_style(style);
    }
    let start = Instant::now();
    let limit = args.minutes.map(|m| Duration::from_secs_f64((m * 60.0).max(0.0)));
    let worlds = Worlds::run(seeds, true, |tally| {
        if tally.worlds % 64 == 0 && tally.worlds > 0 {
            bar.set_position(tally.worlds);
            if limit.is_some_and(|l| start.elapsed() >= l) {
                return false;
            }
        }
        !is_asked()
    });
    bar.finish_and_clear();
    let s = Summary::new(&of, worlds.summary(is_asked()));
    let Worlds { tally, broken, .. } = worlds;
    let Some(f) = broken.into_iter().next() else {
        // A class that one shard has not exercised may be exercised by another one.
        let hole = if args.shard.is_none() { missing(&tally) } else { None };
        let failure = interrupt::or_partial(s.figures.partial, hole);
        if args.json {
            return json::end(out, &s, failure);
        }
        s.show(&tally, out)?;
        return failure.map_or(Ok(()), Err);
    };
    let mut command = format!("zoneplug-lab sim --seed {}", f.seed);
    if let Some(small) = shrink(f.seed) {
        command = format!("{command} --steps {}", small.steps);
        if !args.json {
            writeln!(out, "seed {}, shrunk to {} BIOs:", f.seed, small.bios)?;
            small.failure.trace.iter().try_for_each(|line| writeln!(out, "{line}"))?;
            writeln!(out, "{}", small.failure.what)?;
        }
    }
    let failure = Failure::io(format!("seed {}: {}", f.seed, f.what))
        .hint(format!("run it again: {command}"));
    if args.json {
        return json::end(out, &s, Some(failure));
    }
    out.flush()?;
    Err(failure)
}

/// The failure if no world of a long run exercised some class: the simulation then has a gap.
pub(crate) fn missing(t: &Tally) -> Option<Failure> {
    let names: Vec<_> = t.coverage.missing().map(Class::name).collect();
    let what = || format!("no world exercised {}", names.join(", "));
    (t.worlds >= 1000 && !names.is_empty()).then(|| Failure::io(what()).hint("run more seeds"))
}

fn replay(seed: u64, args: &Args, out: &mut dyn Write) -> Result<(), Failure> {
    let (trace, what) = match run(seed, &args.steps, true) {
        Ok(o) => (Vec::new(), Ok(o)),
        Err(f) => (f.trace, Err(f.what)),
    };
    let failure = what.as_ref().err().map(|what| {
        Failure::io(format!("seed {seed}: {what}"))
            .hint(format!("the fewest steps: zoneplug-lab sim --seeds {seed}..{seed}"))
    });
    if args.json {
        let (bios, steps) =
            (what.as_ref().ok().map(|o| o.bios), what.as_ref().ok().map(|o| o.steps));
        return json::end(out, &OneWorld { seed, bios, steps, trace: &trace }, failure);
    }
    trace.iter().try_for_each(|line| writeln!(out, "{line}"))?;
    match what {
        Ok(o) => {
            let (bios, steps) = (o.bios, o.steps);
            writeln!(out, "seed {seed}: {bios} BIOs in {steps} steps, no promise broken")?;
        }
        Err(what) => writeln!(out, "{what}")?,
    }
    out.flush()?;
    failure.map_or(Ok(()), Err)
}
