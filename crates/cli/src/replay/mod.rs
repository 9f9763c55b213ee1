//! `zoneplug replay`: a block trace, sent to models of drives, in virtual time; what each drive and policy would give.
//!
//! | file | what it does |
//! | --- | --- |
//! | `run.rs` | one trace on one disk, opened in one way |
//! | `text.rs` | what came of it, as text and as JSON |
//!
//! The trace is read once to see what is in it, and once more for each row; its text is never held. Two replays of one
//! trace print the same bytes.

mod run;
mod text;

use crate::failure::Failure;
use crate::interrupt::{self, is_asked};
use crate::suggest::{self, Suggest};
use crate::virtual_disk::{Modelled, Ways, say_what_never_waits, spread};
use crate::{json, term};
use clap::ValueEnum;
use clap::builder::StringValueParser;
use indicatif::{ProgressBar, ProgressStyle};
use run::{Job, Row};
use serde::Serialize;
use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use text::Report;
use zoneplug_core::Error;
use zoneplug_core::disk::Mode;
use zoneplug_host::open_regular;
use zoneplug_sim::time::Pace;
use zoneplug_sim::time::trace::{Events, Fit, Format, Reader, Survey};

/// Outstanding operations, where the times of a trace do not count and no flag gives a number.
const DEPTH: u32 = 32;

/// Flags of `zoneplug replay`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The trace: what blkparse prints, or what fio --write_iolog writes (version 2 or 3); which it is, is found out
    #[arg(value_name = "TRACE")]
    file: PathBuf,

    /// A disk with the times of a drive, as in sim-smr30,cache=64M. More than one: rows for each
    #[arg(long = "disk", value_name = "SPEC", required = true, value_parser = Suggest::new(StringValueParser::new(), suggest::drives), hide_possible_values = true)]
    disks: Vec<String>,

    #[command(flatten)]
    ways: Ways,

    /// How writes are ordered [default: plug]. More than one: a row for each
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = crate::bench::mode_parser())]
    mode: Vec<Mode>,

    /// How fast: so many times as fast as recorded, or asap for as fast as the disk goes
    #[arg(long, value_name = "N|asap", default_value = "1", value_parser = speed)]
    speed: Speed,

    /// Operations outstanding at most [default: any number at the recorded times; 1 of a trace without times, 32 with
    /// asap]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=30_000))]
    iodepth: Option<u32>,

    /// How addresses become places in zones
    #[arg(long, value_name = "HOW", value_enum, default_value = "auto")]
    map: Map,

    /// Which events of blkparse's are sent
    #[arg(long, value_name = "EVENTS", value_enum, ignore_case = true, default_value = "q")]
    events: Event,

    /// Whose operations, where the trace has several: 8,16, or the name of a file
    #[arg(long, value_name = "NAME")]
    device: Option<String>,

    /// Print one JSON document instead of tables
    #[arg(long)]
    json: bool,

    /// Print a line of comma-separated values for each row instead of tables
    #[arg(long, conflicts_with = "json")]
    csv: bool,
}

/// How fast.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Speed {
    Times(f64),
    Asap,
}

fn speed(text: &str) -> Result<Speed, Error> {
    if text == "asap" {
        return Ok(Speed::Asap);
    }
    let n = text.parse().ok().filter(|n| (0.001..=1e6).contains(n));
    n.map(Speed::Times).ok_or_else(|| {
        Error::invalid(format!("'{text}' is no speed"))
            .hint("a number from 0.001 to 1000000, or asap")
    })
}

/// How addresses become places in zones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Map {
    /// exact, if each write is at the write pointer of its zone; else log
    Auto,
    /// As they are: what is not at a write pointer is refused, and the exit code is 1
    Exact,
    /// Writes go to the write pointer of the zone of their address, which is reset when it is full
    Log,
}

/// Events of the block layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Event {
    /// Queued: what was asked for, before it was merged
    Q,
    /// Issued: what was sent to the driver
    D,
}

/// A file that is read more than once.
struct Input<'a> {
    path: &'a Path,
    events: Events,
    device: Option<&'a str>,
    bar: ProgressBar,
}

/// How a trace is read here.
type Trace = Reader<BufReader<UntilAsked>>;

/// A file that seems to end when a signal asks for the end, if it `stops`.
struct UntilAsked {
    file: indicatif::ProgressBarIter<File>,
    stops: bool,
}

impl Read for UntilAsked {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if self.stops && is_asked() { Ok(0) } else { self.file.read(buf) }
    }
}

impl Input<'_> {
    /// Opens it, from its beginning. If it `stops`, it seems to end when a signal asks for the end.
    fn open(&self, stops: bool) -> Result<Trace, Failure> {
        let file = open_regular(self.path).map_err(|e| self.unreadable(&e))?;
        let file = UntilAsked { file: self.bar.wrap_read(file), stops };
        let file = BufReader::with_capacity(256 << 10, file);
        Ok(Reader::new(file, self.events, self.device)?)
    }

    fn unreadable(&self, e: &std::io::Error) -> Failure {
        Failure::usage(format!("reading {}: {e}", self.path.display()))
            .hint("the output of blkparse, or of fio --write_iolog")
    }

    fn bytes(&self) -> Result<u64, Failure> {
        let meta = std::fs::metadata(self.path).map_err(|e| self.unreadable(&e))?;
        if meta.is_file() {
            return Ok(meta.len());
        }
        Err(Failure::usage(format!("{} is no file", self.path.display()))
            .hint("a file: a trace is read more than once"))
    }
}

/// Runs the command.
pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<(), Failure> {
    let mut disks = Vec::new();
    for spec in &args.disks {
        disks.push(Modelled::parse(spec)?.ok_or_else(|| {
            Failure::usage(format!("{spec} is no disk with the times of a drive"))
                .hint("sim-smr30, sim-smr20, sim-smr14, sim-zns1, or sim,profile=FILE")
        })?);
    }
    let events = match args.events {
        Event::Q => Events::Queued,
        Event::D => Events::Issued,
    };
    // indicatif draws on stderr, and only if that is a terminal.
    let bar = ProgressBar::new(0);
    let device = args.device.as_deref();
    let input = Input { path: &args.file, events, device, bar: bar.clone() };
    let ways: Vec<_> = disks.iter().map(|d| args.ways.of(&d.config, &args.mode)).collect();
    for (disk, ways) in disks.iter().zip(&ways) {
        say_what_never_waits(ways, disk.rotational());
    }
    let todo: Vec<(usize, usize)> =
        (0..disks.len()).flat_map(|d| (0..ways[d].len()).map(move |w| (d, w))).collect();
    bar.set_length(input.bytes()? * (1 + todo.len() as u64));
    if let Ok(style) =
        ProgressStyle::with_template("  {bar:40} {percent:>3}%  {elapsed} {wide_msg}")
    {
        bar.set_style(style);
    }
    bar.set_message("looking at the trace");
    let mut fits = Vec::new();
    for d in &disks {
        fits.push(Fit::new(&d.profile.geometry()?, &d.profile.limits()));
    }
    let survey = Survey::of(input.open(true)?, &mut fits);
    if is_asked() {
        bar.finish_and_clear();
        return Err(interrupt::failure("nothing was replayed yet"));
    }
    let survey = survey?;
    let pace = pace(args, survey.format);
    bar.set_message("in virtual time");
    let rows: Vec<Row> = spread(todo.len(), |i| {
        let (d, w) = todo[i];
        let map = match args.map {
            Map::Auto if fits[d].is_exact() => Map::Exact,
            Map::Auto => Map::Log,
            map => map,
        };
        Job { disk: &disks[d], config: &ways[d][w], fit: &fits[d], map, pace }.run(&input)
    })?;
    bar.finish_and_clear();
    let report = Report::new(args, &survey, pace, &fits, rows);
    let failure = interrupt::or_partial(report.partial, report.failure());
    if args.json {
        return json::end(out, &report, failure);
    }
    if args.csv {
        out.write_all(report.csv().as_bytes())?;
    } else {
        term::print(out, &report.to_string())?;
    }
    out.flush()?;
    failure.map_or(Ok(()), Err)
}

/// When operations are sent: a trace without times is one of a program that waits.
fn pace(args: &Args, format: Format) -> Pace {
    match (args.speed, format.has_times()) {
        (Speed::Asap, _) => Pace { speed: None, window: Some(args.iodepth.unwrap_or(DEPTH)) },
        (Speed::Times(n), true) => Pace { speed: Some(n), window: args.iodepth },
        (Speed::Times(n), false) => {
            Pace { speed: Some(n), window: Some(args.iodepth.unwrap_or(1)) }
        }
    }
}
