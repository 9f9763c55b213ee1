//! `zoneplug-lab demo`: the three cases of `zoneplug-lab bench` in ten seconds, as bars. Every figure comes from the run that
//! prints it.

use crate::cases::append::{self, Append, AppendMode};
use crate::cases::order::{self, OrderFigures};
use crate::cases::tags::{self, Tags};
use crate::failure::Failure;
use crate::figures::{thousands, time};
use crate::load::arena::Arena;
use crate::load::latency::Latency;
use crate::outcome::{Build, failure_of};
use crate::progress::Progress;
use crate::term::{self, paint};
use crate::{interrupt, json, program};
use serde::Serialize;
use std::ffi::OsString;
use std::io::Write;
use std::time::{Duration, Instant};
use zoneplug_core::Error;
use zoneplug_core::disk::Mode;

/// Flags of `zoneplug-lab demo`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print one JSON document instead of bars
    #[arg(long)]
    json: bool,

    /// Seconds for each figure: for tests
    #[arg(long, value_name = "S", hide = true, default_value_t = 1.2, value_parser = seconds)]
    seconds: f64,
}

/// Parses the seconds of a figure.
pub(crate) fn seconds(text: &str) -> Result<f64, Error> {
    let n = text.parse().ok().filter(|n| (0.001..=3600.0).contains(n));
    n.ok_or_else(|| Error::invalid("not a number from 0.001 to 3600").hint("--seconds 0.5"))
}

/// Figures of the three cases.
const FIGURES: u32 = 8;
/// Columns of a full bar.
const BAR: usize = 26;

/// Commands to try next. Each works in an empty directory without root.
const NEXT: [(&str, &str); 3] = [
    ("bench --disk mem,reorder=1 --iodepth 16 --verify", "a workload of your own"),
    ("reproduce smr30-seq --quick", "published figures of a 30 TB disk, and ours"),
    ("calibrate sim-smr30", "the profile of that disk, from measurements of it alone"),
];

/// The results. A case that was not reached is empty.
#[derive(Debug, Serialize)]
struct Demo {
    build: Build,
    partial: bool,
    order: Vec<OrderFigures>,
    tags: Vec<Tags>,
    append: Vec<Append>,
    elapsed_s: f64,
}

/// A bar with its label and value.
struct Line<'a> {
    name: &'a str,
    value: f64,
    shown: String,
    /// Whether the value is zoneplug's; selects the colour.
    ours: bool,
}

/// Draws a bar: a full one is as long as the largest value; any value but 0 shows.
fn bar(value: f64, most: f64) -> String {
    let eighths = (value / most.max(f64::MIN_POSITIVE) * (BAR * 8) as f64).round() as usize;
    let eighths = if value > 0.0 { eighths.clamp(1, BAR * 8) } else { 0 };
    let part = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"][eighths % 8];
    "█".repeat(eighths / 8) + part
}

fn bars(title: &str, lines: &[Line<'_>], says: &str) -> String {
    let colours = term::colours();
    let most = lines.iter().map(|l| l.value).fold(0.0, f64::max);
    let width = lines.iter().map(|l| l.name.chars().count()).max().unwrap_or(0);
    let mut text = format!("{}\n", paint(title, "1", colours));
    for l in lines {
        let drawn = bar(l.value, most);
        let rest = BAR - drawn.chars().count();
        let drawn = paint(&drawn, if l.ours { "32" } else { "31" }, colours);
        text += &format!("   {:<width$}  {drawn}{:rest$}  {}\n", l.name, "", l.shown);
    }
    text + says
}

fn p99(latency: &Latency) -> String {
    if latency.samples == 0 { "-".to_owned() } else { time(latency.p99_ns) }
}

fn order_text(all: &[OrderFigures]) -> String {
    let lines = all.iter().map(|o| {
        let share = o.verified.written as f64 * 100.0 / o.writes.max(1) as f64;
        let plug = o.mode == Mode::Plug.name();
        let refused = thousands(o.refused);
        Line {
            name: if plug { "with zoneplug" } else { "without" },
            value: share,
            shown: format!("{share:5.1} % written, {refused:>6} refused"),
            ours: plug,
        }
    });
    let says = format!(
        "   {} clients write one log, {} writes in flight each; the disk reorders them.\n",
        order::CLIENTS,
        order::DEPTH
    );
    bars("1. Writes stay in order", &lines.collect::<Vec<_>>(), &says)
}

fn tags_text(all: &[Tags]) -> String {
    let lines = all.iter().map(|t| {
        let reads = thousands(t.reads_per_s.round() as u64);
        let p99 = p99(&t.read_latency);
        Line {
            name: match (t.waiting, t.mode) {
                (0, _) => "no writes",
                (_, mode) if mode == Mode::Plug.name() => "with zoneplug",
                _ => "zone locks",
            },
            value: t.reads_per_s,
            shown: format!("{reads:>7} reads/s, p99 {p99}"),
            ours: t.mode == Mode::Plug.name(),
        }
    });
    let says = format!(
        "   {} writes wait for one zone of a disk that takes {} commands at a time.\n   \
         With zone locks (Linux before 6.10) waiting writes occupy these places.\n",
        thousands(u64::from(tags::WRITES)),
        tags::TAGS
    );
    bars("2. Waiting writes do not delay reads", &lines.collect::<Vec<_>>(), &says)
}

fn append_text(all: &[Append]) -> String {
    let lines = all.iter().map(|a| {
        let (rate, p99) = (thousands(a.appends_per_s.round() as u64), p99(&a.latency));
        Line {
            name: match a.way {
                AppendMode::OneByOne => "one by one",
                AppendMode::Merged => "with zoneplug",
                AppendMode::Native => "native",
            },
            value: a.appends_per_s,
            shown: format!("{rate:>7} appends/s, p99 {p99}"),
            ours: a.way == AppendMode::Merged,
        }
    });
    let says = format!(
        "   {} clients append to one zone; a command takes the disk 1 ms. A disk without\n   \
         zone append is sent writes: one for each append, or one for all that wait.\n",
        append::CLIENTS
    );
    bars("3. Zone append works on every disk", &lines.collect::<Vec<_>>(), &says)
}

/// The command by which this program was called, so that the suggested commands can be copied. A build that has the
/// demonstration alone names cargo's alias for the whole program.
fn program() -> String {
    if !cfg!(feature = "models") {
        return "cargo lab".to_owned();
    }
    let name = std::env::args_os().next().unwrap_or_else(|| OsString::from("zoneplug-lab"));
    match name.into_string() {
        Ok(name) if !name.contains(char::is_whitespace) => name,
        _ => "zoneplug-lab".to_owned(),
    }
}

fn next_text() -> String {
    let program = program();
    let mut text = "Try next:\n".to_owned();
    for (command, what) in NEXT {
        text += &format!("   # {what}\n   {program} {command}\n");
    }
    text
}

/// Runs the command.
pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<(), Failure> {
    let start = Instant::now();
    let each = Duration::from_secs_f64(args.seconds);
    let (order, tags, append) = (Vec::new(), Vec::new(), Vec::new());
    let mut demo =
        Demo { build: Build::this(), partial: false, order, tags, append, elapsed_s: 0.0 };
    let mut arena = Arena::default();
    let progress = Progress::new(each * FIGURES);
    let print = |out: &mut dyn Write, text: &str| match args.json {
        true => Ok(()),
        false => progress.aside(|| term::print(out, text).and_then(|()| Ok(out.flush()?))),
    };
    print(
        out,
        &format!(
            "A zone of a zoned disk takes a write only where the last one ended. zoneplug\n\
             keeps any number of writes in flight, and in order. A {} build gives this:\n\n",
            program::PROFILE
        ),
    )?;
    if cfg!(debug_assertions) {
        print(out, "The figures of a debug build are lower than those of --release.\n\n")?;
    }
    let going = || !interrupt::is_asked();
    for mode in [Mode::None, Mode::Plug].into_iter().take_while(|_| going()) {
        progress.say("1. writes stay in order");
        demo.order.push(order::run(mode, each, &mut arena)?);
        progress.done(each);
    }
    print(out, &format!("{}\n", order_text(&demo.order)))?;
    let cases = [(Mode::Plug, 0), (Mode::Plug, tags::WRITES), (Mode::Lock, tags::WRITES)];
    for (mode, waiting) in cases.into_iter().take_while(|_| going()) {
        progress.say("2. waiting writes do not delay reads");
        demo.tags.push(tags::run(mode, waiting, each, &mut arena)?);
        progress.done(each);
    }
    if !demo.tags.is_empty() {
        print(out, &format!("{}\n", tags_text(&demo.tags)))?;
    }
    for way in AppendMode::ALL.into_iter().take_while(|_| going()) {
        progress.say("3. zone append works on every disk");
        demo.append.push(append::run(way, each, &mut arena)?);
        progress.done(each);
    }
    if !demo.append.is_empty() {
        print(out, &format!("{}\n", append_text(&demo.append)))?;
    }
    demo.elapsed_s = start.elapsed().as_secs_f64();
    demo.partial = interrupt::is_asked();
    if !demo.partial {
        print(out, &next_text())?;
    }
    print(out, interrupt::note(demo.partial))?;
    drop(progress);
    let refused = demo.order.iter().filter(|o| o.mode == Mode::Plug.name()).map(|o| o.refused);
    let refused = refused.chain(demo.tags.iter().map(|t| t.refused));
    let refused = refused.chain(demo.append.iter().map(|a| a.refused)).sum();
    let wrong = demo.order.iter().map(|o| o.verified.wrong).sum();
    let failure = interrupt::or_partial(demo.partial, failure_of(refused, wrong, true));
    if args.json {
        return json::end(out, &demo, failure);
    }
    failure.map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_as_long_as_its_value_and_any_value_shows() {
        assert_eq!(bar(0.0, 100.0), "");
        assert_eq!(bar(0.001, 100.0), "▏");
        assert_eq!(bar(100.0, 100.0), "█".repeat(BAR));
        assert_eq!(bar(50.0, 100.0), "█".repeat(BAR / 2));
        assert_eq!(bar(0.0, 0.0), "");
        let mut last = 0;
        for n in 0..=1000 {
            let length = bar(f64::from(n), 1000.0).chars().count();
            assert!((last..=BAR).contains(&length));
            last = length;
        }
    }
}
