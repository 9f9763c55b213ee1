//! `zoneplug-lab replay`: sends a block trace to models of drives in virtual time, to compare drives and policies; or to
//! disks in real time.
//!
//! `zoneplug_models::replay` computes the results. `text.rs` shows them as text, CSV and JSON, `spread.rs` compares
//! repeats, and `page.rs` and `plot.rs` make the page with plots. `files.rs` finds the files of a trace. `real.rs`
//! has the disks of a replay in real time.

mod files;
mod page;
mod plot;
mod real;
mod spread;
mod text;

use crate::failure::Failure;
use crate::interrupt::{self, is_asked};
use crate::output::{Output, Over};
use crate::suggest::{self, Suggest};
use crate::virtual_disk::{Ways, warn_of_ways_that_never_wait, workers};
use crate::{json, term};
use clap::ValueEnum;
use clap::builder::{PossibleValue, PossibleValuesParser, StringValueParser, TypedValueParser};
use files::Files;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::Write;
use std::path::PathBuf;
use text::Report;
use zoneplug_core::disk::Mode;
use zoneplug_models::VirtualDisk;
use zoneplug_models::replay::{MAX_REPEAT, Map, Replay, Speed, Trace, check_beginning};
use zoneplug_models::time::trace::{Columns, Events};

/// Flags of `zoneplug-lab replay`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The trace: a file that blktrace writes (with those of the other processors: sda for sda.blktrace.0 and so on), what
    /// blkparse prints, what fio --write_iolog writes (version 2 or 3), or CSV; which it is, is found out. Also in gzip. - is
    /// standard input
    #[arg(value_name = "TRACE")]
    file: PathBuf,

    /// A disk with the times of a drive, as in sim-smr30,cache=64M; with --real-time any disk. More than one: rows for each
    #[arg(long = "disk", value_name = "SPEC", required = true, value_parser = Suggest::new(StringValueParser::new(), suggest::drives), hide_possible_values = true)]
    disks: Vec<String>,

    /// Send the trace to the disk in real time: a drive, a file, or a disk in memory. What is written is zeroes
    #[arg(long)]
    real_time: bool,

    /// Empty the zones that the trace writes first, and write zeroes up to where the trace begins in a zone
    #[arg(long, requires = "real_time")]
    reset: bool,

    #[command(flatten)]
    consent: crate::confirm::Consent,

    #[command(flatten)]
    ways: Ways,

    /// How writes are ordered [default: plug]. More than one: a row for each
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = crate::bench::mode_parser())]
    mode: Vec<Mode>,

    /// How fast: so many times as fast as recorded, or asap for as fast as the disk goes
    #[arg(long, value_name = "N|asap", default_value = "1", value_parser = Speed::parse)]
    speed: Speed,

    /// Operations outstanding at most [default: any number at the recorded times; 1 of a trace without times, 32 with
    /// asap]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=30_000))]
    iodepth: Option<u32>,

    /// How addresses become places in zones
    #[arg(long, value_name = "HOW", value_parser = map_parser(), default_value = "auto")]
    map: Map,

    /// Which events of blktrace's are sent
    #[arg(long, value_name = "EVENTS", value_enum, ignore_case = true, default_value = "q")]
    events: BlockLayerEvent,

    /// The columns of a table that has no titles, or other ones: time_s, time_ms, time_us, time_100ns or time_ns; op or
    /// is_write; offset or sector; length or sectors; device; action; - for one that is ignored
    #[arg(long, value_name = "LIST", value_parser = columns)]
    columns: Option<Columns>,

    /// Whose operations, where the trace has several: 8,16, or the name of a file
    #[arg(long, value_name = "NAME")]
    device: Option<String>,

    /// Runs of each row, with other tracks of the disk in each, for where they lie is not known: medians, and how far the
    /// runs spread. A drive without a head has one
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "real_time", value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_REPEAT)))]
    repeat: u32,

    /// Print one JSON document instead of tables
    #[arg(long)]
    json: bool,

    /// Print a line of comma-separated values for each row instead of tables
    #[arg(long, conflicts_with = "json")]
    csv: bool,

    /// Also write a page with the table and plots, self-contained
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// Parses the value of a flag as a map from addresses to zones.
fn map_parser() -> impl TypedValueParser<Value = Map> {
    let value = |map: Map| {
        PossibleValue::new(map.name()).help(match map {
            Map::Auto => "exact, if each write is at the write pointer of its zone; else log",
            Map::Exact => {
                "As they are: what is not at a write pointer is refused, and the exit code is 1"
            }
            Map::Log => {
                "Writes go to the write pointer of the zone of their address, which is reset when it is full"
            }
        })
    };
    PossibleValuesParser::new(Map::ALL.map(value))
        .map(|name| Map::from_name(&name).unwrap_or(Map::Auto))
}

/// Parses the value of a flag as the columns of a table.
fn columns(names: &str) -> Result<Columns, zoneplug_core::Error> {
    Columns::parse(names)
}

/// Events of the block layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum BlockLayerEvent {
    /// Queued: what was asked for, before it was merged
    Q,
    /// Issued: what was sent to the driver
    D,
}

/// Runs the command.
pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<(), Failure> {
    let real = if args.real_time { Some(real::Disks::open(args)?) } else { None };
    let mut disks = Vec::new();
    for spec in args.disks.iter().filter(|_| real.is_none()) {
        disks.push(VirtualDisk::parse(spec)?.ok_or_else(|| {
            Failure::usage(format!("{spec} is no disk with the times of a drive")).hint(
                "sim-smr30, sim-smr20, sim-smr14, sim-zns1, or sim,profile=FILE; or --real-time",
            )
        })?);
    }
    let events = match args.events {
        BlockLayerEvent::Q => Events::Queued,
        BlockLayerEvent::D => Events::Issued,
    };
    // indicatif draws on stderr, and only if that is a terminal.
    let bar = ProgressBar::new(0);
    let (device, columns) = (args.device.as_deref(), args.columns.as_ref());
    let begins = |head: &[u8]| check_beginning(head, events, device, columns);
    let files = Files::of(&args.file, bar.clone(), begins)?;
    // If the page cannot be made, the command fails at once, not after minutes of work. The page must not replace the
    // trace.
    let html = args.html.as_ref().map(|p| Output::create(p, Over::Files, files.paths()));
    let html = html.transpose()?;
    let document = json::flag(args.json, args.csv);
    let has_stdout = Output::have_stdout(&[("--html", html.as_ref())], document)?;
    let open = || files.open();
    let trace = Trace::new(&open, events, device).with_columns(columns);
    let (ways, turns): (Vec<_>, Vec<_>) = match &real {
        Some(real) => (real.ways(args)?, real.rotational()),
        None => {
            let ways = disks.iter().map(|d| args.ways.of(&d.config, &args.mode));
            let ways = ways.collect::<Result<Vec<_>, Failure>>()?;
            (ways, disks.iter().map(VirtualDisk::rotational).collect())
        }
    };
    // A replay in real time has no repeats.
    let mut runs = 0;
    for (ways, turns) in ways.iter().zip(turns) {
        warn_of_ways_that_never_wait(ways, turns);
        runs += ways.len() as u64 * u64::from(Replay::runs_on(turns, args.repeat));
    }
    bar.set_length(files.bytes * (1 + runs));
    if let Ok(style) =
        ProgressStyle::with_template("  {bar:40} {percent:>3}%  {elapsed} {wide_msg}")
    {
        bar.set_style(style);
    }
    bar.set_message("looking at the trace");
    let workers = workers();
    let replay = match &real {
        Some(real) => real.prepare(&trace, &workers),
        None => Replay::of(&trace, &disks, &workers),
    };
    if is_asked() {
        bar.finish_and_clear();
        return Err(interrupt::failure("nothing was replayed yet"));
    }
    let replay = replay?;
    let pace = replay.pace(args.speed, args.iodepth);
    let rows = match real {
        Some(mut real) => {
            bar.suspend(|| real.agree(args, &replay, &ways))?;
            bar.set_message("in real time");
            real.rows(args, &replay, &ways, pace, &workers)?
        }
        None => {
            bar.set_message("in virtual time");
            replay.rows(&ways, args.map, pace, args.repeat, &workers)?
        }
    };
    bar.finish_and_clear();
    let report = Report::new(args, &files, &replay, pace, rows);
    // If the page cannot be written, the results are still printed.
    let page = html.map(|file| {
        // The words of the command line after the program's name.
        let command = std::env::args_os().skip(1).map(|w| w.to_string_lossy().into_owned());
        file.end_with(page::page(&report, &command.collect::<Vec<_>>()).as_bytes())
    });
    let failure = interrupt::or_partial(report.partial, report.failure());
    let failure = page.and_then(Result::err).or(failure);
    if has_stdout {
        return failure.map_or(Ok(()), Err);
    }
    if args.json {
        return json::end(out, &report, failure);
    }
    if args.csv {
        out.write_all(report.csv().as_bytes())?;
    } else {
        term::print_report(out, &report.to_string())?;
    }
    out.flush()?;
    failure.map_or(Ok(()), Err)
}
