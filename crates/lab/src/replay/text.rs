//! The results of a replay: a table with a row for each disk and way to open it, and JSON with all digits.

use super::Args;
use super::files::{Files, MAX_MISSING};
use super::spread::{self, FIGURES, Overlap, of_differences};
use crate::csv;
use crate::failure::Failure;
use crate::figures::{figure, thousands, time};
use crate::interrupt::{self, is_asked};
use crate::table::Table;
use crate::virtual_disk::short;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::{self, Write};
use zoneplug_core::{Status, plain};
use zoneplug_models::replay::{Kind, Latencies, Map, Replay, Row, rates};
use zoneplug_models::time::Pace;
use zoneplug_models::time::trace::MisplacedWhy;

/// The properties of the trace.
#[derive(Debug, Serialize)]
pub(super) struct Recorded {
    format: String,
    files: usize,
    /// The unit of the format: lines or records.
    #[serde(skip)]
    unit: &'static str,
    operations: u64,
    pub(super) writes: u64,
    written_bytes: u64,
    pub(super) reads: u64,
    read_bytes: u64,
    flushes: u64,
    discards: u64,
    management: u64,
    end_sector: u64,
    /// `null` if the trace has no times.
    makespan_s: Option<f64>,
    lines: u64,
    unknown_lines: u64,
    first_unknown_line: Option<u64>,
    unknown_operations: BTreeMap<String, u64>,
    /// Unknown operations of all kinds that `unknown_operations` does not list.
    unknown_operations_of_other_kinds: u64,
    first_unknown_operation_line: Option<u64>,
    empty_operations: u64,
    pass_through_commands: u64,
    out_of_order: u64,
    out_of_order_by_s: f64,
    of_other_devices: u64,
    unclear_management: u64,
    cut_off_records: u64,
    bytes_behind_gzip: u64,
    missing_files: Vec<String>,
    lost_events: u64,
}

/// Kinds of unknown operations that the text names. JSON names more.
const KINDS_SHOWN: usize = 8;

/// The reason why a trace is not replayed unchanged on a disk.
#[derive(Debug, Serialize)]
struct Misfit {
    disk: String,
    misplaced_writes: u64,
    beyond_the_end: u64,
    first_misplaced_line: Option<u64>,
    #[serde(skip)]
    why: String,
}

/// The results of a whole replay.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) zoneplug: &'static str,
    /// `virtual` or `real`.
    pub(super) time: &'static str,
    pub(super) trace: String,
    pub(super) recorded: Recorded,
    /// `null`: as fast as the disk allows.
    speed: Option<f64>,
    outstanding: Option<u32>,
    /// Whether a signal came before the end: the last rows then cover the first part of the trace or are missing.
    pub(super) partial: bool,
    misfits: Vec<Misfit>,
    /// Runs of each row, if more than one.
    #[serde(skip_serializing_if = "Option::is_none")]
    repeat: Option<u32>,
    /// Present if there are repeats.
    #[serde(skip_serializing_if = "Option::is_none")]
    overlaps: Option<Vec<Overlap>>,
    pub(super) rows: Vec<Row>,
}

impl Report {
    pub(super) fn new(
        args: &Args,
        files: &Files,
        replay: &Replay<'_>,
        pace: Pace,
        rows: Vec<Row>,
    ) -> Report {
        let (s, fits) = (&replay.survey, &replay.fits);
        let unit = s.format.unit();
        let timed = s.format.has_times() || s.makespan().0 > 0;
        let misfits = args.disks.iter().zip(fits).filter(|(_, f)| !f.is_exact());
        let misfits = misfits.map(|(disk, f)| Misfit {
            disk: disk.clone(),
            misplaced_writes: f.misplaced,
            beyond_the_end: f.beyond,
            first_misplaced_line: f.first.map(|m| m.line),
            why: match f.first {
                Some(m) => {
                    let write = format!("{unit} {} writes at sector {}", m.line, m.sector);
                    let (zone, wp) = (m.zone, m.write_pointer);
                    match m.why {
                        MisplacedWhy::WritePointer => format!(
                            "{write}, and the write pointer of zone {zone} is {wp} sectors from its start"
                        ),
                        MisplacedWhy::PartOfBlock => format!("{write}, a part of a block"),
                        MisplacedWhy::PastCapacity => {
                            format!("{write}, past the capacity of zone {zone}")
                        }
                    }
                }
                None => "operations are beyond the end of the disk".to_owned(),
            },
        });
        let repeat = (args.repeat > 1).then_some(args.repeat);
        Report {
            zoneplug: env!("CARGO_PKG_VERSION"),
            time: if args.real_time { "real" } else { "virtual" },
            trace: match args.file.to_str() {
                Some("-") => "standard input".to_owned(),
                _ => args.file.display().to_string(),
            },
            recorded: Recorded {
                format: s.format.to_string(),
                files: files.count(),
                unit,
                operations: s.operations(),
                writes: s.writes,
                written_bytes: s.written,
                reads: s.reads,
                read_bytes: s.read,
                flushes: s.flushes,
                discards: s.discards,
                management: s.management,
                end_sector: s.end_sector,
                makespan_s: timed.then(|| s.makespan().0 as f64 / 1e9),
                lines: s.seen.lines,
                unknown_lines: s.seen.unknown,
                first_unknown_line: s.seen.first_unknown,
                unknown_operations: s.seen.strange_kinds.clone(),
                unknown_operations_of_other_kinds: s.seen.strange_of_other_kinds(),
                first_unknown_operation_line: s.seen.first_strange.as_ref().map(|(line, _)| *line),
                empty_operations: s.seen.empty,
                pass_through_commands: s.seen.pass_through,
                out_of_order: s.seen.backwards,
                out_of_order_by_s: s.seen.furthest_back.0 as f64 / 1e9,
                of_other_devices: s.seen.elsewhere,
                unclear_management: s.seen.unclear,
                cut_off_records: s.seen.cut,
                bytes_behind_gzip: s.seen.behind_gzip,
                missing_files: files.missing().to_vec(),
                lost_events: s.seen.lost,
            },
            speed: pace.speed,
            outstanding: pace.window,
            partial: is_asked(),
            misfits: misfits.collect(),
            repeat,
            overlaps: repeat.map(|_| Overlap::among(&rows)),
            rows,
        }
    }

    /// The failure of the command if operations were refused.
    pub(super) fn failure(&self) -> Option<Failure> {
        let row = self.rows.iter().find(|r| r.refused.operations > 0)?;
        let first = row.refused.first?;
        let what = format!(
            "{} refused on {}; the first is {} at sector {} in {} {}: {}",
            count(row.refused.operations, "operation was", "operations were"),
            row.disk,
            first.operation,
            first.sector,
            self.recorded.unit,
            first.line,
            first.status
        );
        let hint = match row.map {
            _ if first.status == Status::NotZoneStart.name() => {
                "a disk with zones of the size that the trace was recorded with (zone-size=)"
            }
            Map::Log => "a disk with more zones that may be active, or another mode",
            _ => "--map log, which writes at write pointers",
        };
        Some(Failure::io(what).hint(hint))
    }
}

/// A number with its noun.
fn count(n: u64, one: &str, more: &str) -> String {
    format!("{} {}", thousands(n), if n == 1 { one } else { more })
}

/// Latencies of a kind of operations, or dashes if there were none.
fn latencies(k: &Kind) -> [String; 4] {
    if k.operations == 0 {
        no_latencies()
    } else {
        [k.mean_ns, k.p50_ns, k.p99_ns, k.max_ns].map(time)
    }
}

fn no_latencies() -> [String; 4] {
    [const { String::new() }; 4].map(|_| "-".to_owned())
}

/// Ranges of the latencies of repeats, from lowest to highest.
fn ranges(k: &Kind, l: &Latencies) -> [String; 4] {
    if k.operations == 0 {
        no_latencies()
    } else {
        [l.mean_ns, l.p50_ns, l.p99_ns, l.max_ns].map(spread::times)
    }
}

/// Formats seconds with three significant digits.
fn seconds(s: f64) -> String {
    time((s * 1e9).round() as u64)
}

impl fmt::Display for Recorded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", self.format, count(self.operations, "operation", "operations"))?;
        if let Some(s) = self.makespan_s {
            write!(f, " in {}", seconds(s))?;
        }
        let mut parts = Vec::new();
        for (n, one, more, bytes) in [
            (self.writes, "write", "writes", self.written_bytes),
            (self.reads, "read", "reads", self.read_bytes),
        ] {
            if n > 0 {
                parts.push(format!("{} ({} MB)", count(n, one, more), figure(bytes as f64 / 1e6)));
            }
        }
        for (n, one, more) in [
            (self.flushes, "flush", "flushes"),
            (self.discards, "discard", "discards"),
            (self.management, "of zone management", "of zone management"),
        ] {
            if n > 0 {
                parts.push(count(n, one, more));
            }
        }
        writeln!(f, ": {}", parts.join(", "))?;
        let unit = self.unit;
        if let Some(line) = self.first_unknown_line {
            let n = count(self.unknown_lines, &format!("{unit} is"), &format!("{unit}s are"));
            writeln!(f, "  {n} nothing of this format; the first is {unit} {line}")?;
        }
        if let Some(line) = self.first_unknown_operation_line {
            let named: u64 = self.unknown_operations.values().sum();
            let all = named + self.unknown_operations_of_other_kinds;
            let n = count(all, "operation", "operations");
            let first = || self.unknown_operations.iter().take(KINDS_SHOWN);
            let mut kinds: Vec<_> =
                first().map(|(kind, n)| format!("'{kind}' {}", thousands(*n))).collect();
            let others = all - first().map(|(_, n)| n).sum::<u64>();
            if others > 0 {
                kinds.push(format!("others {}", thousands(others)));
            }
            let kinds = kinds.join(", ");
            writeln!(f, "  {n} of no known kind not sent ({kinds}); the first is {unit} {line}")?;
        }
        if self.empty_operations > 0 {
            let n = count(self.empty_operations, "operation", "operations");
            writeln!(f, "  {n} of no length, not sent")?;
        }
        if self.pass_through_commands > 0 {
            let (one, more) = ("operation that passes", "operations that pass");
            let n = count(self.pass_through_commands, one, more);
            writeln!(f, "  {n} the block layer by, as of SCSI, not sent")?;
        }
        if self.cut_off_records > 0 {
            let n = count(self.cut_off_records, "record is", "records are");
            writeln!(f, "  {n} cut off where a file ends")?;
        }
        if self.bytes_behind_gzip > 0 {
            let n = count(self.bytes_behind_gzip, "byte", "bytes");
            writeln!(f, "  {n} behind the end of the gzip data left out")?;
        }
        if let [first, others @ ..] = &self.missing_files[..] {
            let others = match others.len() {
                0 => String::new(),
                // The list ends there.
                n if n + 1 == MAX_MISSING => format!(" (and at least {n} more)"),
                n => format!(" (and {n} more)"),
            };
            let first = plain(first);
            writeln!(
                f,
                "  no file {first}{others}: blktrace writes one for each processor that is online"
            )?;
        }
        if self.lost_events > 0 {
            let n = count(self.lost_events, "event was", "events were");
            writeln!(f, "  {n} lost while it was recorded: numbers are missing")?;
        }
        if self.unclear_management > 0 {
            let n = count(self.unclear_management, "operation", "operations");
            writeln!(
                f,
                "  {n} of zone management not sent: the trace does not say which, or of which zone"
            )?;
        }
        if self.out_of_order > 0 {
            let n = count(self.out_of_order, "event stands", "events stand");
            let by = seconds(self.out_of_order_by_s);
            writeln!(f, "  {n} behind later ones, by {by} at most: sorted by their times")?;
        }
        if self.of_other_devices > 0 {
            let n = count(self.of_other_devices, "operation", "operations");
            writeln!(f, "  {n} of other devices")?;
        }
        Ok(())
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "zoneplug-lab {} replay, in {} time", self.zoneplug, self.time)?;
        self.heading(f)?;
        let (titles, groups) = self.columns();
        let mut groups = groups.to_vec();
        groups.push(("", Self::LAST_TITLES.len()));
        let mut t = Table::new(&[&titles[..], &Self::LAST_TITLES].concat())
            .groups(&groups)
            .left_columns(2)
            .key_columns(2);
        for r in &self.rows {
            t.row(self.cells(r).into_iter().chain(self.last_cells(r)));
        }
        write!(f, "{t}")?;
        let ranges: Vec<_> = self.rows.iter().filter_map(|r| self.range_cells(r)).collect();
        if !ranges.is_empty() {
            writeln!(f, "Lowest and highest of the repeats")?;
            let mut t = Table::new(&titles)
                .groups(&groups[..groups.len() - 1])
                .left_columns(2)
                .key_columns(2);
            ranges.into_iter().for_each(|cells| t.row(cells));
            write!(f, "{t}")?;
        }
        self.notes(f)
    }
}

/// Titles of columns, and titles above groups of columns.
pub(super) type Columns = (Vec<&'static str>, Vec<(&'static str, usize)>);

impl Report {
    /// Titles of the last columns, which have no spread over repeats.
    pub(super) const LAST_TITLES: [&'static str; 4] =
        ["drive busy", "refused", "takes", "recorded"];

    /// The kinds of operations that have columns: those of writes and reads that the trace contains.
    pub(super) fn kinds(&self) -> impl Iterator<Item = &'static str> {
        let all = [(self.recorded.writes, "writes"), (self.recorded.reads, "reads")];
        all.into_iter().filter(|(n, _)| *n > 0).map(|(_, name)| name)
    }

    fn of_kinds<'a>(&self, row: &'a Row) -> impl Iterator<Item = (&'static str, &'a Kind)> {
        self.kinds().map(|name| (name, if name == "writes" { &row.writes } else { &row.reads }))
    }

    /// The columns that identify a row, and those of figures that have a spread.
    pub(super) fn columns(&self) -> Columns {
        let mut titles = vec!["disk", "opened as", "MB/s"];
        let mut groups = vec![("", 3)];
        for name in self.kinds() {
            titles.extend(["mean", "p50", "p99", "max"]);
            groups.push((name, 4));
        }
        (titles, groups)
    }

    /// The cells of a row for [`Report::columns`].
    pub(super) fn cells(&self, r: &Row) -> Vec<String> {
        let mut cells = vec![r.disk.clone(), short(&r.layer), figure(r.mb_per_s)];
        cells.extend(self.of_kinds(r).flat_map(|(_, kind)| latencies(kind)));
        cells
    }

    /// The cells of a row for [`Report::columns`], as ranges over the row's runs. `None` if there was one run.
    pub(super) fn range_cells(&self, r: &Row) -> Option<Vec<String>> {
        let spread = r.spread.as_ref().filter(|s| s.runs > 1)?;
        let mut cells = vec![r.disk.clone(), short(&r.layer), spread::rates(spread.mb_per_s)];
        cells.extend(self.of_kinds(r).flat_map(|(name, kind)| {
            ranges(kind, if name == "writes" { &spread.writes } else { &spread.reads })
        }));
        Some(cells)
    }

    /// The cells of a row for [`Report::LAST_TITLES`].
    pub(super) fn last_cells(&self, r: &Row) -> [String; 4] {
        [
            r.drive_busy_percent.map_or("-".to_owned(), |p| format!("{p:.0}%")),
            thousands(r.refused.operations),
            seconds(r.makespan_s),
            self.recorded.makespan_s.map_or("-".to_owned(), seconds),
        ]
    }

    /// Writes the name of the trace, its contents, and the pace at which it is replayed.
    pub(super) fn heading(&self, f: &mut dyn Write) -> fmt::Result {
        write!(f, "{}", plain(&self.trace))?;
        if self.recorded.files > 1 {
            write!(f, " ({} files)", self.recorded.files)?;
        }
        write!(f, ": {}", self.recorded)?;
        let bounded =
            |n: Option<u32>| n.map_or(String::new(), |n| format!(", {n} outstanding at most"));
        match (self.speed, self.recorded.makespan_s) {
            (None, _) => write!(f, "As fast as the disk goes")?,
            (Some(_), None) => write!(f, "One after the other, for the trace has no times")?,
            (Some(1.0), _) => write!(f, "At the recorded times")?,
            (Some(n), _) => write!(f, "{n} times as fast as recorded")?,
        }
        writeln!(f, "{}", bounded(self.outstanding))?;
        if let Some(n) = self.repeat {
            let all = rates(n);
            let percent = |ppm: Option<&u32>| f64::from(ppm.copied().unwrap_or(0)) / 1e4;
            let (low, high) = (percent(all.iter().min()), percent(all.iter().max()));
            writeln!(
                f,
                "Medians of {n} runs on a disk with a head, with media at {low} to {high} % of the model's rate"
            )?;
        }
        Ok(())
    }

    /// Writes the notes below the table.
    pub(super) fn notes(&self, f: &mut dyn Write) -> fmt::Result {
        let mut disk = None;
        for r in &self.rows {
            if disk != Some(&r.disk) {
                disk = Some(&r.disk);
                if self.repeat.is_some() && r.head_moves.is_none() {
                    let why = "a drive without a head has no tracks that may lie elsewhere";
                    writeln!(f, "  {}: one run, for {why}", r.disk)?;
                }
                self.explain(f, r)?;
            }
            for (status, n) in &r.refused.by_status {
                let line = r.refused.first.map_or(0, |first| first.line);
                let (layer, n) = (short(&r.layer), thousands(*n));
                writeln!(
                    f,
                    "  {} {layer}: {n} refused ({status}); the first in {} {line}",
                    r.disk, self.recorded.unit
                )?;
            }
        }
        if let Some(overlaps) = &self.overlaps {
            f.write_str(&of_differences(&self.rows, overlaps))?;
        }
        f.write_str(interrupt::note(self.partial))
    }
}

impl Report {
    /// The rows as CSV: one for each disk and way to open it.
    pub(super) fn csv(&self) -> String {
        let kinds = ["writes", "reads"];
        let of = ["", "_bytes", "_mb_per_s", "_mean_ns", "_p50_ns", "_p99_ns", "_max_ns"];
        let figures = kinds.iter().flat_map(|k| of.map(|of| format!("{k}{of}")));
        let ends = ["refused", "makespan_s", "busy_s", "drive_busy_percent", "head_moves"];
        let titles = ["disk", "opened_as", "map", "mb_per_s"].map(str::to_owned).into_iter();
        let spread = FIGURES.iter().flat_map(|f| ["low", "high"].map(|e| format!("{}_{e}", f.key)));
        let spread = ["runs".to_owned()].into_iter().chain(spread);
        let spread = spread.filter(|_| self.repeat.is_some());
        let titles = titles.chain(figures).chain(ends.map(str::to_owned)).chain(spread);
        let mut text = csv::line(titles);
        for r in &self.rows {
            let map = r.map.name().to_owned();
            let mut cells = vec![r.disk.clone(), r.layer.clone(), map, r.mb_per_s.to_string()];
            for k in [&r.writes, &r.reads] {
                cells.extend([k.operations, k.bytes].map(|n| n.to_string()));
                cells.push(k.mb_per_s.to_string());
                cells.extend([k.mean_ns, k.p50_ns, k.p99_ns, k.max_ns].map(|n| n.to_string()));
            }
            cells.push(r.refused.operations.to_string());
            cells.extend([r.makespan_s, r.busy_s].map(|n| n.to_string()));
            cells.push(r.drive_busy_percent.map_or(String::new(), |n| n.to_string()));
            cells.push(r.head_moves.map_or(String::new(), |n| n.to_string()));
            if let Some(spread) = &r.spread {
                cells.push(spread.runs.to_string());
                for f in &FIGURES {
                    let of = f.of(r).map(|range| range.map(|x| x.to_string()));
                    cells.extend(of.unwrap_or_default());
                }
            }
            text += &csv::line(cells);
        }
        text
    }

    /// Writes how the addresses of the trace were mapped to the disk.
    fn explain(&self, f: &mut dyn Write, r: &Row) -> fmt::Result {
        let misfit = self.misfits.iter().find(|m| m.disk == r.disk);
        if r.map != Map::Log {
            match misfit {
                None => writeln!(f, "  {}: every operation where it was recorded", r.disk)?,
                Some(m) => writeln!(f, "  {}: as recorded, though {}", r.disk, m.why)?,
            }
            return self.adapted(f, r);
        }
        writeln!(
            f,
            "  {}: writes at the write pointer of the zone of their address (--map log)",
            r.disk
        )?;
        if let Some(m) = misfit {
            writeln!(f, "    {}", m.why)?;
        }
        let c = &r.changed;
        for (n, what) in [
            (c.moved_writes, "writes moved within their zone"),
            (c.zones_reset, "resets of zones that had no room for a write"),
            (c.zones_finished, "zones finished, because no more zones may be active"),
            (c.wrapped, "beyond the end of the disk, and sent to its beginning"),
        ] {
            if n > 0 {
                writeln!(f, "    {}: {what}", thousands(n))?;
            }
        }
        self.adapted(f, r)
    }

    /// Writes how many operations were changed or not sent, with any map.
    fn adapted(&self, f: &mut dyn Write, r: &Row) -> fmt::Result {
        let c = &r.changed;
        if c.discards_not_sent > 0 {
            let n = count(c.discards_not_sent, "discard", "discards");
            writeln!(f, "    {n} of less than a zone, not sent")?;
        }
        if c.made_whole_blocks > 0 {
            let (one, more) = ("read or write of a part", "reads and writes of parts");
            let n = count(c.made_whole_blocks, one, more);
            writeln!(f, "    {n} of a block, sent as whole blocks")?;
        }
        Ok(())
    }
}
