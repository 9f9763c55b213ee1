//! The tables as text, for the terminal and the golden files.

use crate::table::Table;
use std::fmt::Write;
use zoneplug_models::reproduce::{
    CellReport, ClaimReport, Headline, How, Layout, Report, TableReport, Verdict,
};

/// Formats a figure with as many digits as tell one cell from another.
pub(crate) fn figure(x: f64) -> String {
    match x.abs() {
        _ if !x.is_finite() => "-".to_owned(),
        a if a >= 1000.0 => format!("{x:.0}"),
        a if a >= 10.0 => format!("{x:.1}"),
        _ => format!("{x:.2}"),
    }
}

fn maybe(x: Option<f64>, form: impl Fn(f64) -> String) -> String {
    x.map_or_else(|| "-".to_owned(), form)
}

/// A published figure; `*` marks one that calibrates the model.
pub(crate) fn published(c: &CellReport) -> String {
    maybe(c.published, |p| format!("{p}{}", if c.calibrates { "*" } else { "" }))
}

/// Formats the length of a command.
pub(crate) fn command(bytes: f64) -> String {
    match bytes {
        b if b >= 1048576.0 => format!("{:.2}M", b / 1048576.0),
        b => format!("{:.0}K", b / 1024.0),
    }
}

/// The verdict of a cell, with its band.
pub(crate) fn verdict(c: &CellReport) -> String {
    match c.band_percent {
        Some(band) => format!("{} (±{band} %)", c.verdict.text()),
        None => c.verdict.text().to_owned(),
    }
}

/// The state of a claim: a CSS class of the page, and a word.
pub(crate) fn state(c: &ClaimReport) -> (&'static str, &'static str) {
    match (c.holds, c.binds) {
        (true, _) => ("holds", "holds"),
        (false, true) => ("fails", "FAILS"),
        (false, false) => ("soft", "not held"),
    }
}

fn beside(t: &TableReport) -> String {
    let mut out = Table::new(&[
        t.x.unwrap_or("workload"),
        "column",
        "client",
        "layer",
        "command",
        "unit",
        "published",
        "ours",
        "±",
        "spread",
        "error",
        "verdict",
    ])
    .left_columns(4)
    .key_columns(2);
    for c in &t.cells {
        out.row([
            c.row.to_owned(),
            c.column.to_owned(),
            c.client.clone(),
            c.layer.clone(),
            maybe(c.command_bytes, command),
            c.unit.to_owned(),
            published(c),
            maybe(c.ours, figure),
            maybe(c.standard_error, figure),
            maybe(c.spread, figure),
            maybe(c.error_percent, |e| format!("{e:+.1} %")),
            verdict(c),
        ]);
    }
    out.to_string()
}

/// The range of the measured ratios.
pub(crate) fn repeats(c: &CellReport) -> String {
    c.our_ratio_range.map_or_else(|| "-".to_owned(), |[low, high]| format!("{low:.2}..{high:.2}"))
}

fn measured(t: &TableReport) -> String {
    let mut out = Table::new(&[
        "workload",
        "column",
        "client",
        "layer",
        "unit",
        "published",
        "ours",
        "ns a BIO",
        "published ratio",
        "our ratio",
        "repeats",
        "verdict",
    ])
    .left_columns(4)
    .key_columns(2);
    for c in &t.cells {
        let ns = |v: f64| match c.unit {
            "MB/s" => c.command_bytes.unwrap_or(0.0) / v * 1e3,
            _ => 1e6 / v,
        };
        out.row([
            c.row.to_owned(),
            c.column.to_owned(),
            c.client.clone(),
            c.layer.clone(),
            c.unit.to_owned(),
            published(c),
            maybe(c.ours, figure),
            maybe(c.ours, |v| figure(ns(v))),
            maybe(c.published_ratio, |r| format!("{r:.2}")),
            maybe(c.our_ratio, |r| format!("{r:.2}")),
            repeats(c),
            verdict(c),
        ]);
    }
    out.to_string()
}

/// Tables of policies: one for each figure, with a line for each policy and a column for each row of `t`.
fn front(t: &TableReport) -> String {
    let rows: Vec<&str> = (0..t.rows()).map(|r| t.cell(r, 0).row).collect();
    let mut out = String::new();
    type Of = fn(&CellReport) -> Option<f64>;
    let parts: [(&str, Of); 3] =
        [("MB/s", |c| c.ours), ("p99, ms", |c| c.p99_ms), ("longest, ms", |c| c.max_ms)];
    for (title, of) in parts {
        let what = format!("{title}, by {}", t.x.unwrap_or("row"));
        let titles: Vec<&str> = [&what[..]].into_iter().chain(rows.iter().copied()).collect();
        let mut part = Table::new(&titles);
        if title == "MB/s" && t.cells.iter().any(|c| c.published.is_some()) {
            let line = (0..t.rows()).map(|r| published(t.cell(r, 0)));
            part.row(["published".to_owned()].into_iter().chain(line));
        }
        for (i, c) in t.columns.iter().enumerate() {
            let form = |x: f64| if title == "MB/s" { format!("{x:.1}") } else { format!("{x:.0}") };
            let line = (0..t.rows()).map(|r| maybe(of(t.cell(r, i)), form));
            part.row([c.name.to_owned()].into_iter().chain(line));
        }
        out += &part.to_string();
    }
    out += &against_first(t, &rows);
    out
}

/// Compares throughput and p99 of each policy with those of the first one.
fn against_first(t: &TableReport, rows: &[&str]) -> String {
    let Some(first) = t.columns.first() else { return String::new() };
    let what = format!("rate, p99 to {}'s", first.name);
    let titles: Vec<&str> = [&what[..]].into_iter().chain(rows.iter().copied()).collect();
    let mut part = Table::new(&titles);
    for (i, c) in t.columns.iter().enumerate().skip(1) {
        let line = (0..t.rows()).map(|r| {
            let (cell, base) = (t.cell(r, i), t.cell(r, 0));
            let to = |x: Option<f64>, b: Option<f64>| Some(x? / b?);
            let (rate, p99) = (to(cell.ours, base.ours), to(cell.p99_ms, base.p99_ms));
            let rate = maybe(rate, |x| format!("{:+.1}%", (x - 1.0) * 100.0));
            format!("{rate} {}", maybe(p99, |x| format!("{x:.2}x")))
        });
        part.row([c.name.to_owned()].into_iter().chain(line));
    }
    part.to_string()
}

/// The reasons that the table of published figures gives for cells, each with its cells.
pub(crate) fn reasons(t: &TableReport) -> Vec<(&'static str, Vec<String>)> {
    let mut all: Vec<(&'static str, Vec<String>)> = Vec::new();
    for c in &t.cells {
        let Some(why) = c.reason else { continue };
        if t.layout == Layout::Front {
            continue;
        }
        let what = format!("{} {}", c.column, c.row);
        match all.iter_mut().find(|(w, _)| *w == why) {
            Some((_, cells)) => cells.push(what),
            None => all.push((why, vec![what])),
        }
    }
    all
}

/// Cells grouped by columns: "baseline (2, 4, 8)". Columns with the same rows stand together.
pub(crate) fn cells_text(t: &TableReport, cells: &[String]) -> String {
    let mut all: Vec<(Vec<&str>, Vec<&str>)> = Vec::new();
    for c in &t.columns {
        let prefix = format!("{} ", c.name);
        let rows: Vec<&str> = cells.iter().filter_map(|x| x.strip_prefix(&prefix)).collect();
        match all.iter_mut().find(|(r, _)| *r == rows) {
            _ if rows.is_empty() => {}
            Some((_, columns)) => columns.push(c.name),
            None => all.push((rows, vec![c.name])),
        }
    }
    let text = |(rows, columns): &(Vec<&str>, Vec<&str>)| match rows.len() {
        n if n == t.rows() => columns.join(", "),
        _ => format!("{} ({})", columns.join(", "), rows.join(", ")),
    };
    all.iter().map(text).collect::<Vec<_>>().join("; ")
}

/// A table with its notes.
pub(crate) fn table(t: &TableReport, how: &str) -> String {
    let mut out = format!("{}  {}\n", t.name, t.title);
    let _ = writeln!(out, "  published: {}; {}", t.source.title, t.source.published);
    let _ = writeln!(out, "  ours: {} {}, {how}", verb(t.how), t.drive);
    let width = t.columns.iter().map(|c| c.name.len()).max().unwrap_or(0);
    for c in &t.columns {
        let _ = writeln!(out, "  {:width$}  {}  ({})", c.name, c.says, c.options);
    }
    out += &match (t.layout, t.how) {
        (Layout::Front, _) => front(t),
        (_, How::Model) => beside(t),
        (_, How::Measure) => measured(t),
    };
    for (why, cells) in reasons(t) {
        let _ = writeln!(out, "  {}: {why}", cells_text(t, &cells));
    }
    for c in &t.claims {
        let (_, state) = state(c);
        let _ = writeln!(out, "  {state}: {} ({})", c.text, maybe(c.worst, |w| format!("{w:.3}")));
    }
    if t.cells.iter().any(|c| c.calibrates) {
        out += "  *: set a number of the model\n";
    }
    for note in &t.notes {
        let _ = writeln!(out, "  {note}");
    }
    out
}

fn verb(how: How) -> &'static str {
    match how {
        How::Model => "model",
        How::Measure => "measured on",
    }
}

/// The origin of a table's figures.
pub(crate) fn how(report: &Report, t: &TableReport) -> String {
    match t.how {
        How::Measure => "this machine and build; rates are of processor time".to_owned(),
        How::Model if report.quick => {
            "one geometry and one seed (--quick): nothing is judged".to_owned()
        }
        How::Model => format!(
            "means over {} geometries (SMR) and {} seeds (clients that draw)",
            report.geometries, report.seeds
        ),
    }
}

/// The last lines: the counts of distinct results.
pub(crate) fn summary(r: &Report) -> String {
    let h = &r.headline;
    let count =
        |v: Verdict| r.tables.iter().flat_map(|t| &t.cells).filter(|c| c.verdict == v).count();
    let mut out = String::new();
    let mut line = |text: String| {
        let _ = writeln!(out, "{text}");
    };
    if h.bands > 0 {
        line(format!(
            "Results: {} of {} inside their bands ({} cells: {} set a number of the model,",
            h.inside, h.results, h.bands, h.calibrating
        ));
        line(format!("  {} repeat another, for the model cannot tell the two apart).", h.repeats));
    }
    if h.by_a_constant > 0 {
        let constants = h.constants.iter().map(|c| format!("{} {}", figure(c.value), c.unit));
        let constants = constants.collect::<Vec<_>>().join(", ");
        line(format!("  A constant for each unit passes {}: {constants}.", h.by_a_constant));
    }
    if h.gains > 0 {
        let (inside, all) = (h.gains_inside, h.gains);
        line(format!("Gains: {inside} of {all} within 15 % of the published ratio."));
    }
    if h.ratios > 0 {
        line(format!("Measured ratios: {} of {} inside their bands.", h.ratios_inside, h.ratios));
    }
    line(format!(
        "Claims: {} of {} hold. Aims: {} of {}.",
        h.claims_held, h.claims, h.aims_held, h.aims
    ));
    for u in &h.unsteady {
        line(format!(
            "Unsteady: {} {} {}: {} of {} runs are outside of its band.",
            u.table, u.row, u.column, u.outside, u.runs
        ));
    }
    let _ = write!(
        out,
        "Other cells: {} shape only, {} illustrations, {} measured, {} not run.",
        count(Verdict::ShapeOnly),
        count(Verdict::Illustration),
        count(Verdict::Measured),
        count(Verdict::NotRun),
    );
    out
}

/// The counts of results as CSV: a line for each.
pub(crate) fn headline_csv(h: &Headline) -> String {
    let counts = [
        ("bands", h.bands),
        ("calibrating", h.calibrating),
        ("repeats", h.repeats),
        ("results", h.results),
        ("inside", h.inside),
        ("by_a_constant", h.by_a_constant),
        ("gains", h.gains),
        ("gains_inside", h.gains_inside),
        ("ratios", h.ratios),
        ("ratios_inside", h.ratios_inside),
        ("unsteady", h.unsteady.len()),
        ("claims", h.claims),
        ("claims_held", h.claims_held),
        ("aims", h.aims),
        ("aims_held", h.aims_held),
    ];
    let lines = counts.map(|(what, n)| format!("{what},{n}\n"));
    format!("what,count\n{}", lines.concat())
}

/// All runs as CSV: a line for each cell, geometry and seed.
pub(crate) fn csv(r: &Report) -> String {
    let mut out = String::from(
        "table,row,column,unit,client,layer,published,geometry_ppm,seed,value,p99_ms,max_ms,command_bytes,verdict\n",
    );
    for t in &r.tables {
        for c in &t.cells {
            let published = c.published.map_or(String::new(), |p| p.to_string());
            for run in &c.runs {
                let _ = writeln!(
                    out,
                    "{},\"{}\",{},{},\"{}\",{},{published},{},{},{:.4},{:.4},{:.4},{:.0},{}",
                    t.name,
                    c.row,
                    c.column,
                    c.unit,
                    c.client,
                    c.layer,
                    run.geometry_ppm,
                    run.seed,
                    run.value,
                    run.p99_ms,
                    run.max_ms,
                    run.command_bytes,
                    c.verdict.text()
                );
            }
        }
    }
    out
}
