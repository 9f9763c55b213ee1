//! `zoneplug-lab reproduce`: the published tables of zone write plugging, zone append and the single writer, beside
//! results on models of the drives or on this machine.
//!
//! | file | what |
//! | --- | --- |
//! | `measure.rs` | cells on this machine |
//! | `text.rs` | tables as text and as CSV |
//! | `page.rs`, `plot.rs` | one page of HTML with plots |
//!
//! `zoneplug_models::reproduce` has the published tables, the cells in virtual time, and the verdicts.

mod measure;
mod page;
mod plot;
mod text;

use crate::failure::Failure;
use crate::input::unreadable;
use crate::interrupt::{self, is_asked};
use crate::load::arena::Arena;
use crate::output::{Output, Over};
use crate::suggest::Suggest;
use crate::table::Table as Lines;
use crate::virtual_disk::workers;
use crate::{csv, json, term};
use clap::builder::StringValueParser;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;
use zoneplug_host::{is_foreign, read_text};
use zoneplug_models::reproduce::{self, How, Plan, Report, Table, TableReport, chosen};

/// Flags of `zoneplug-lab reproduce`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Tables, or what their names begin with; all of them if none is given
    #[arg(value_name = "TABLE", value_parser = Suggest::new(StringValueParser::new(), names), hide_possible_values = true)]
    tables: Vec<String>,

    /// List the tables and do nothing
    #[arg(long)]
    list: bool,

    /// Print one JSON document instead of text
    #[arg(long, conflicts_with = "csv")]
    json: bool,

    /// Print a line of CSV for each cell, geometry and seed instead of text
    #[arg(long)]
    csv: bool,

    /// Print only what all of it comes to
    #[arg(long)]
    headline: bool,

    /// Also write a page with tables and plots, self-contained
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,

    /// One geometry and one seed of each cell, and short measurements; bands and claims are shown, but do not fail
    #[arg(long)]
    quick: bool,

    /// Only tables that are simulated: nothing is measured on this machine
    #[arg(long)]
    simulated: bool,

    /// Tables of your own, in the form of published.txt, instead of the published ones
    #[arg(long, value_name = "FILE")]
    book: Option<PathBuf>,

    /// Also write a picture of one table, as the README shows it
    #[arg(long, value_name = "FILE", hide = true)]
    picture: Option<PathBuf>,
}

/// The names of the published tables.
fn names() -> Vec<&'static str> {
    reproduce::tables()
        .map_or_else(|_| Vec::new(), |tables| tables.iter().map(|t| t.name).collect())
}

/// Longest file of tables, in bytes.
const MAX_BOOK: u64 = 4 << 20;
/// Time to measure a figure.
const EACH: Duration = Duration::from_millis(500);
const EACH_QUICK: Duration = Duration::from_millis(50);

/// Runs the command.
pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<(), Failure> {
    let all = tables(args)?;
    let tables = chosen(&all, &args.tables, args.simulated)?;
    if args.list {
        return list(&tables, args, out);
    }
    // If a file cannot be made, the command fails at once, not after minutes of work.
    let begin = |path: &Option<PathBuf>| -> Result<Option<Output>, Failure> {
        path.as_ref().map(|p| Output::create(p, Over::Files, [])).transpose()
    };
    let (html, picture) = (begin(&args.html)?, begin(&args.picture)?);
    let files = [("--html", html.as_ref()), ("--picture", picture.as_ref())];
    let has_stdout = Output::have_stdout(&files, json::flag(args.json, args.csv))?;
    let report = compute(&tables, args)?;
    // If a file cannot be written, the results are still printed.
    let page = html.map(|file| file.end_with(page::page(&report).as_bytes()));
    let picture = picture.map(|file| file.end_with(plot::picture(&report).as_bytes()));
    let unwritten = [page, picture].into_iter().flatten().find_map(Result::err);
    let failure = (report.failed > 0).then(|| {
        let what = format!("{} cells or claims are outside of what is expected", report.failed);
        let hint = "look for FAIL in the tables; docs/models.md says where the bands come from";
        Failure::io(what).hint(hint)
    });
    let failure = unwritten.or(interrupt::or_partial(report.partial, failure));
    if has_stdout {
        return failure.map_or(Ok(()), Err);
    }
    if args.json && args.headline {
        return json::end(out, &report.headline, failure);
    }
    if args.json {
        return json::end(out, &report, failure);
    }
    if args.csv && args.headline {
        write!(out, "{}", text::headline_csv(&report.headline))?;
    } else if args.csv {
        write!(out, "{}", text::csv(&report))?;
    } else {
        for t in report.tables.iter().filter(|_| !args.headline) {
            term::print(out, &(text::table(t, &text::how(&report, t)) + "\n"))?;
        }
        term::print(out, &(text::summary(&report) + "\n" + interrupt::note(report.partial)))?;
    }
    out.flush()?;
    failure.map_or(Ok(()), Err)
}

/// The published tables, or those of the user's file. Its text lives as long as the program.
fn tables(args: &Args) -> Result<Vec<Table>, Failure> {
    let Some(path) = &args.book else { return Ok(reproduce::tables()?) };
    let form = "a file in the form of crates/models/src/reproduce/published.txt";
    let text =
        read_text(path, MAX_BOOK).map_err(|e| unreadable(&path.display().to_string(), &e, form))?;
    // Errors do not quote a file of another user.
    reproduce::parse(text.leak()).map_err(|e| match is_foreign(path) {
        true => Failure::usage(format!("{} makes no sense", path.display())).hint(form),
        false => e.into(),
    })
}

/// A table, as `--list --json` shows it.
#[derive(Serialize)]
struct Listed<'a> {
    name: &'a str,
    how: &'static str,
    device: &'a str,
    title: &'a str,
    cells: usize,
}

fn list(tables: &[&Table], args: &Args, out: &mut dyn Write) -> Result<(), Failure> {
    let listed = tables.iter().map(|t| Listed {
        name: t.name,
        how: match t.how {
            How::Model => "simulated",
            How::Measure => "measured",
        },
        device: t.drive.split(',').next().unwrap_or_default(),
        title: t.title,
        cells: t.rows.len() * t.columns.len(),
    });
    let titles = ["name", "how", "device", "title", "cells"];
    let cells = |t: &Listed<'_>| {
        [t.name, t.how, t.device, t.title, &t.cells.to_string()].map(str::to_owned)
    };
    if args.json {
        #[derive(Serialize)]
        struct List<'a> {
            tables: Vec<Listed<'a>>,
        }
        return json::print(out, &List { tables: listed.collect() });
    }
    if args.csv {
        let rows = listed.map(|t| csv::line(cells(&t))).collect::<String>();
        return Ok(write!(out, "{}{rows}", csv::line(titles))?);
    }
    let mut lines = Lines::new(&["table", "how", "device", "what", "cells"]).left_columns(4);
    listed.for_each(|t| lines.row(cells(&t)));
    term::print(out, &lines.to_string())
}

/// Runs the tables: first the simulated ones on all processors, then the measured ones one at a time.
fn compute(tables: &[&Table], args: &Args) -> Result<Report, Failure> {
    let plan = Plan::new(tables, args.quick)?;
    let each = if args.quick { EACH_QUICK } else { EACH };
    let measured = tables.iter().filter(|t| t.how == How::Measure);
    let figures: usize = measured.clone().map(|t| measure::figures(t)).sum();
    // A simulated run is one step, 20 ms of measuring another. indicatif draws on stderr, only if that is a terminal.
    let steps = |d: Duration| (d.as_millis() / 20) as u64;
    let bar = ProgressBar::new(plan.len() as u64 + figures as u64 * steps(each));
    let form = "  {bar:40} {percent:>3}%  {elapsed}, {eta} left  {wide_msg}";
    if let Ok(style) = ProgressStyle::with_template(form) {
        bar.set_style(style);
    }
    bar.set_message("in virtual time");
    let mut simulated = plan.go(&workers(), || bar.inc(1))?.into_iter();
    let mut arena = Arena::default();
    let mut reports = Vec::new();
    for table in tables {
        let runs = match table.how {
            How::Model => simulated.next().unwrap_or_default(),
            How::Measure => {
                bar.set_message(table.name);
                // A table without figures was not reached.
                measure::table(table, each, &mut arena, |d| bar.inc(steps(d)))?
            }
        };
        let report = TableReport::new(table, runs);
        let judged = !args.quick && !is_asked();
        reports.push(if judged { report } else { report.without_judgement() });
    }
    bar.finish_and_clear();
    Ok(Report::new(reports, args.quick, is_asked()))
}
