//! Parses `published.txt`, the only place for published figures, the clients run beside them, and
//! the expectations. Owns the format of that file; runs nothing.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use zoneplug_core::Error;

const TEXT: &str = include_str!("published.txt");

/// The source of a table.
#[derive(Debug, Clone, Copy, serde::Serialize)]
pub struct Source {
    /// Its title.
    pub title: &'static str,
    /// When and where it was published.
    pub published: &'static str,
    /// The id of the message that contains it.
    pub message_id: &'static str,
}

/// How our figures are obtained.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum How {
    /// A model, in virtual time.
    Model,
    /// A measurement on this machine.
    Measure,
}

/// The figures that a table shows side by side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Layout {
    /// Published figures beside ours.
    Beside,
    /// Throughput beside latency.
    Front,
}

/// The expectation of a cell's figure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Expect {
    /// The published figure, within this many percent.
    Band(f64),
    /// Not the figure, with the reason; a claim may bind its direction.
    Shape(&'static str),
    /// Nothing: the figure is only shown, with the reason.
    Show(&'static str),
    /// Not run, with the reason.
    Not(&'static str),
    /// Measured: its ratio to the first column, judged if there is a band.
    Ratio(Option<RatioBand>),
}

/// The tolerance of a measured ratio.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RatioBand {
    /// The allowed difference from the published ratio, in percent.
    pub percent: f64,
    /// Whether the run fails if all measurements are outside the band on one side.
    pub binds: bool,
}

/// A cell of a table.
#[derive(Debug, Clone, Copy)]
pub struct Cell {
    /// The published figure, in the unit of its row.
    pub published: Option<f64>,
    /// Whether it set a number of the profile.
    pub calibrates: bool,
    /// The expectation of our figure.
    pub expect: Expect,
    /// The client to run, in the form of `client.rs`.
    pub client: &'static str,
}

/// A column: a way to open the disk.
#[derive(Debug, Clone, Copy, serde::Serialize)]
pub struct Column {
    /// Its name.
    pub name: &'static str,
    /// Options of the disk's specification.
    pub options: &'static str,
    /// Its heading in a table.
    pub says: &'static str,
}

/// A row: a workload.
#[derive(Debug, Clone)]
pub struct Row {
    /// Its name.
    pub name: &'static str,
    /// The unit of its figures.
    pub unit: &'static str,
    /// The cells, one for each column.
    pub cells: Vec<Cell>,
}

/// A figure that a claim is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Metric {
    /// The figure of the cell, such as a rate.
    Rate,
    /// The 99th percentile of the latency.
    P99,
    /// The longest latency.
    Max,
}

/// One side of a claim: a figure of a column, in one row or in all rows of a range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Side {
    /// The figure.
    pub metric: Metric,
    /// The name of the column.
    pub column: &'static str,
    /// The rows: a name, or a range of numbers.
    pub rows: &'static str,
}

/// A claim about a table's figures.
#[derive(Debug, Clone)]
pub struct Claim {
    /// The claim as the file has it.
    pub text: &'static str,
    /// The figure, or the numerator of a ratio.
    pub above: Side,
    /// The denominator; `None` if the claim is about the figure itself.
    pub below: Option<Side>,
    /// The allowed range.
    pub allowed: RangeInclusive<f64>,
    /// Whether the run fails if it does not hold.
    pub binds: bool,
}

/// A table.
#[derive(Debug, Clone)]
pub struct Table {
    /// Its name.
    pub name: &'static str,
    /// The title of the table.
    pub title: &'static str,
    /// The source of its published figures.
    pub source: Source,
    /// How our figures are obtained.
    pub how: How,
    /// The specification of its device.
    pub drive: &'static str,
    /// The layout: which figures are side by side.
    pub layout: Layout,
    /// The meaning of the rows, if they are numbers.
    pub x: Option<&'static str>,
    /// The columns: ways to open the disk.
    pub columns: Vec<Column>,
    /// The rows: workloads.
    pub rows: Vec<Row>,
    /// The claims about the figures.
    pub claims: Vec<Claim>,
    /// Notes for the reader.
    pub notes: Vec<&'static str>,
}

#[derive(Default)]
struct Names {
    sources: BTreeMap<&'static str, Source>,
    reasons: BTreeMap<&'static str, &'static str>,
}

/// Returns every published table, in the order of the file.
pub fn tables() -> Result<Vec<Table>, Error> {
    parse(TEXT)
}

/// Parses tables from a text of the same format.
///
/// ```
/// let e = zoneplug_models::reproduce::parse("colour red").unwrap_err();
/// assert!(e.to_string().starts_with("line 1 of the published tables"));
/// ```
pub fn parse(text: &'static str) -> Result<Vec<Table>, Error> {
    let (mut names, mut tables) = (Names::default(), Vec::<Table>::new());
    for (i, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        read(line, &mut names, &mut tables).ok_or_else(|| {
            Error::invalid(format!("line {} of the published tables makes no sense: {line}", i + 1))
                .hint("the head of published.txt says what a line may be")
        })?;
    }
    Ok(tables)
}

/// Reads one line. `None` if it is wrong.
fn read(line: &'static str, names: &mut Names, tables: &mut Vec<Table>) -> Option<()> {
    let (key, rest) = line.split_once(' ')?;
    let fields: Vec<&str> = rest.split('|').map(str::trim).collect();
    match (key, &fields[..]) {
        ("source", &[name, title, published, message_id]) => {
            names.sources.insert(name, Source { title, published, message_id });
        }
        ("reason", &[name, why]) => {
            names.reasons.insert(name, why);
        }
        ("table", &[name, title]) => tables.push(Table {
            name,
            title,
            source: Source { title: "", published: "", message_id: "" },
            how: How::Model,
            drive: "",
            layout: Layout::Beside,
            x: None,
            columns: Vec::new(),
            rows: Vec::new(),
            claims: Vec::new(),
            notes: Vec::new(),
        }),
        _ => line_of_table(key, rest, &fields, names, tables.last_mut()?)?,
    }
    Some(())
}

fn line_of_table(
    key: &'static str,
    rest: &'static str,
    fields: &[&'static str],
    names: &Names,
    table: &mut Table,
) -> Option<()> {
    match (key, fields) {
        ("of", &[name]) => table.source = *names.sources.get(name)?,
        ("model", &[drive]) => (table.how, table.drive) = (How::Model, drive),
        ("measure", &[drive]) => (table.how, table.drive) = (How::Measure, drive),
        ("layout", &["front"]) => table.layout = Layout::Front,
        ("x", &[x]) => table.x = Some(x),
        ("column", &[name, options, says]) => table.columns.push(Column { name, options, says }),
        ("row", &[name, unit, clients, ref cells @ ..]) => {
            let clients: Vec<&str> = clients.split('/').map(str::trim).collect();
            if cells.len() != table.columns.len()
                || clients.len() != 1 && clients.len() != cells.len()
            {
                return None;
            }
            let client = |i: usize| clients.get(i).unwrap_or(&clients[0]);
            let cell = |(i, text): (usize, &&'static str)| cell(text, client(i), names);
            let cells = cells.iter().enumerate().map(cell).collect::<Option<Vec<_>>>()?;
            table.rows.push(Row { name, unit, cells });
        }
        ("claim" | "aim", &[text]) => table.claims.push(claim(text, key == "claim")?),
        ("note", _) => table.notes.push(rest.trim()),
        _ => return None,
    }
    Some(())
}

fn cell(text: &'static str, client: &'static str, names: &Names) -> Option<Cell> {
    let (figure, expect) = text.split_once(' ')?;
    let (figure, calibrates) = match figure.strip_suffix('*') {
        Some(f) => (f, true),
        None => (figure, false),
    };
    let published = if figure == "-" { None } else { Some(figure.parse().ok()?) };
    let (verb, more) = expect.split_once(' ').unwrap_or((expect, ""));
    let reason = || names.reasons.get(more).copied();
    let expect = match verb {
        "band" => Expect::Band(more.parse().ok()?),
        "shape" => Expect::Shape(reason()?),
        "show" => Expect::Show(reason()?),
        "not" => Expect::Not(reason()?),
        "ratio" if more.is_empty() => Expect::Ratio(None),
        "ratio" => {
            let (binds, percent) = more.strip_prefix("aim ").map_or((true, more), |n| (false, n));
            Expect::Ratio(Some(RatioBand { percent: percent.parse().ok()?, binds }))
        }
        _ => return None,
    };
    Some(Cell { published, calibrates, expect, client })
}

fn claim(text: &'static str, binds: bool) -> Option<Claim> {
    let (left, allowed) = match text.split_once(">=") {
        Some((left, n)) => (left, n.trim().parse().ok()?..=f64::INFINITY),
        None => {
            let (left, n) = text.split_once("<=")?;
            (left, f64::NEG_INFINITY..=n.trim().parse().ok()?)
        }
    };
    let (above, below) = match left.split_once(" / ") {
        Some((a, b)) => (side(a)?, Some(side(b)?)),
        None => (side(left)?, None),
    };
    Some(Claim { text, above, below, allowed, binds })
}

fn side(text: &'static str) -> Option<Side> {
    let mut words = text.split_whitespace();
    let metric = match words.next()? {
        "rate" => Metric::Rate,
        "p99" => Metric::P99,
        "max" => Metric::Max,
        _ => return None,
    };
    let (column, rows) = (words.next()?, words.next()?);
    words.next().is_none().then_some(Side { metric, column, rows })
}

impl Table {
    /// Returns the rows that a claim names: one by its name, or those with numbers in a range.
    pub fn rows_of(&self, text: &str) -> Vec<usize> {
        let number = |r: &Row| r.name.parse::<u32>().ok();
        let range = text
            .split_once("..")
            .and_then(|(a, b)| Some(a.parse::<u32>().ok()?..=b.parse::<u32>().ok()?));
        let named = |r: &Row| match &range {
            Some(range) => number(r).is_some_and(|n| range.contains(&n)),
            None => r.name == text,
        };
        (0..self.rows.len()).filter(|&i| named(&self.rows[i])).collect()
    }

    /// Returns the column with this name.
    pub fn column(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|c| c.name == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_of_published_tables_is_right() {
        let tables = tables().unwrap();
        let cells = |how| {
            let of = tables.iter().filter(|t| t.how == how);
            of.flat_map(|t| &t.rows).map(|r| r.cells.len()).sum::<usize>()
        };
        assert!(tables.len() > 10 && cells(How::Model) > 100 && cells(How::Measure) > 30);
        for t in &tables {
            let mut names: Vec<_> = t.rows.iter().map(|r| r.name).collect();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), t.rows.len(), "{}: rows have names of their own", t.name);
            assert!(!t.source.title.is_empty() && !t.drive.is_empty(), "{}", t.name);
            for c in &t.claims {
                for side in [Some(&c.above), c.below.as_ref()].into_iter().flatten() {
                    assert!(t.column(side.column).is_some(), "{}: {}", t.name, c.text);
                    assert!(!t.rows_of(side.rows).is_empty(), "{}: {}", t.name, c.text);
                }
            }
            if t.x.is_some() {
                assert!(t.rows.iter().all(|r| r.name.parse::<u32>().is_ok()), "{}", t.name);
            }
            for cell in t.rows.iter().flat_map(|r| &r.cells) {
                let ratio = matches!(cell.expect, Expect::Ratio(_));
                let is_measured = t.how == How::Measure;
                let is_run = !matches!(cell.expect, Expect::Not(_));
                assert!(!is_run || ratio == is_measured, "{}: ratios are for measurements", t.name);
                let judged =
                    |e| matches!(e, Expect::Band(_) | Expect::Shape(_) | Expect::Ratio(Some(_)));
                let band = judged(cell.expect);
                assert!(!band || cell.published.is_some(), "{}: a band around what?", t.name);
            }
        }
    }

    #[test]
    fn a_line_that_makes_no_sense_is_named() {
        for (text, line) in [
            ("table a | b\nrow 1 | MB/s | seq | 1 band 2", 2),
            ("colour red", 1),
            ("table a | b\nclaim rate x 1 > 2", 2),
            ("table a | b\ncolumn c | qd1=0 | d\nrow 1 | MB/s | seq | 1 shape nowhere", 3),
        ] {
            let e = parse(text).unwrap_err().to_string();
            assert!(e.starts_with(&format!("line {line} of")), "{e}");
        }
    }

    /// The time of a scheduler is the extra time of a 4 KiB write on null_blk, compared with
    /// scheduler `none`.
    #[test]
    fn the_times_of_schedulers_are_those_of_null_blk() {
        let tables = tables().unwrap();
        let null = tables.iter().find(|t| t.name == "null-zwp").unwrap();
        let ns = |column: &str| {
            let cell = null.rows[null.rows_of("seqw4K1")[0]].cells[null.column(column).unwrap()];
            4096.0 / cell.published.unwrap() * 1e3
        };
        let mut seen = 0;
        for c in tables.iter().flat_map(|t| &t.columns) {
            if let Some((_, time)) = c.options.split_once("scheduler-time=") {
                let time: f64 = time.strip_suffix("ns").unwrap().parse().unwrap();
                assert!((time - (ns(c.name) - ns("plug-none"))).abs() < 1.0, "{}: {time}", c.name);
                seen += 1;
            }
        }
        assert_eq!(seen, 5);
    }

    #[test]
    fn a_range_of_rows_is_those_with_numbers_in_it() {
        let t = &tables().unwrap()[1];
        assert_eq!(t.rows_of("4..16"), [2, 3, 4]);
        assert_eq!(t.rows_of("128"), [7]);
        assert!(t.rows_of("3").is_empty());
    }
}
