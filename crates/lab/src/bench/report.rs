//! The results of a run: as text with aligned tables, and as JSON with all digits.

use crate::cases::append::{self, Append};
use crate::cases::order::{self, OrderFigures};
use crate::cases::tags::{self, Tags};
use crate::figures::{figure, thousands, time};
use crate::load::generator::SAMPLE;
use crate::load::group::Measure;
use crate::load::latency::Latency;
use crate::load::pattern::Verified;
use crate::outcome::Build;
use crate::table::Table;
use crate::{csv, interrupt};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use zoneplug_core::Bytes;
use zoneplug_models::work::Rw;

impl fmt::Display for Build {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let slow = if cfg!(debug_assertions) { " (slow: use --release)" } else { "" };
        let s = if self.cores == 1 { "" } else { "s" };
        let Build { zoneplug, profile, cores } = self;
        write!(f, "zoneplug-lab {zoneplug} bench: {profile} build{slow}, {cores} core{s}")
    }
}

/// The figures of one workload in both modes.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) rw: Rw,
    pub(crate) block_bytes: u64,
    pub(crate) depth: u32,
    /// The key of the figure that the table shows as the rate.
    pub(crate) unit: &'static str,
    pub(crate) plug: Measure,
    pub(crate) none: Measure,
}

/// The cost of the first pass over a disk in memory (4 KiB, depth 16), and of copying later in the same run.
#[derive(Debug, Serialize)]
pub(crate) struct Fresh {
    pub(crate) plug_ns_per_bio: f64,
    pub(crate) none_ns_per_bio: f64,
    pub(crate) memcpy_4k_ns: f64,
    pub(crate) memcpy_1m_ns: f64,
}

/// The figures of all workloads on one disk.
#[derive(Debug, Serialize)]
pub(crate) struct DiskReport {
    pub(crate) spec: String,
    pub(crate) fresh: Option<Fresh>,
    pub(crate) rows: Vec<Row>,
    pub(crate) verified_plug: Option<Verified>,
    pub(crate) verified_none: Option<Verified>,
}

/// The document of a whole run.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) build: Build,
    /// Whether a signal came before the end.
    pub(crate) partial: bool,
    pub(crate) seconds_per_figure: f64,
    pub(crate) slices: u32,
    pub(crate) disks: Vec<DiskReport>,
    pub(crate) order: Vec<OrderFigures>,
    pub(crate) tags: Vec<Tags>,
    pub(crate) append: Vec<Append>,
    pub(crate) elapsed_s: f64,
}

/// The document of a user's own workload.
#[derive(Debug, Serialize)]
pub(crate) struct Own {
    pub(crate) build: Build,
    /// Whether a signal came before the end.
    pub(crate) partial: bool,
    pub(crate) disk: String,
    pub(crate) rw: Rw,
    pub(crate) block_bytes: u64,
    pub(crate) iodepth: u32,
    pub(crate) tags: u16,
    pub(crate) numjobs: u32,
    pub(crate) clients: &'static str,
    pub(crate) mode: &'static str,
    pub(crate) measure: Measure,
    pub(crate) verified: Option<Verified>,
}

/// A note if a polling thread had no core to itself.
fn busy(shares: impl Iterator<Item = f64>) -> Option<String> {
    let least = shares.fold(1.0, f64::min);
    (least < 0.9).then(|| {
        format!(
            "the machine is busy: the thread that polls had {:.0}% of a core at times",
            least * 100.0
        )
    })
}

fn percentiles(l: &Latency) -> String {
    if l.samples == 0 {
        return "-".to_owned();
    }
    format!("{}/{}", figure(l.p50_ns as f64 / 1e3), figure(l.p99_ns as f64 / 1e3))
}

fn percent(p: f64) -> String {
    format!("{p:.0}%")
}

fn refused(f: &mut fmt::Formatter<'_>, name: &str, mode: &str, m: &Measure) -> fmt::Result {
    let list = |by: &BTreeMap<&str, u64>| -> Vec<_> {
        by.iter().map(|(s, n)| format!("{s}: {}", thousands(*n))).collect()
    };
    if !m.refused_before.is_empty() {
        let (n, why) = (m.all_refused() - m.refused, list(&m.refused_before).join(", "));
        writeln!(f, "  refused before the measurement: {name}, {mode}: {} ({why})", thousands(n))?;
    }
    if m.refused == 0 {
        return Ok(());
    }
    let why = list(&m.refused_by_status);
    let (n, all) = (thousands(m.refused), thousands(m.bios));
    writeln!(f, "  refused: {name}, {mode}: {n} of {all} ({})", why.join(", "))
}

impl fmt::Display for Verified {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} writes, {} MB compared, {} wrong",
            thousands(self.written),
            thousands(self.bytes / 1_000_000),
            thousands(self.wrong)
        )
    }
}

impl fmt::Display for DiskReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "Disk {}", self.spec)?;
        let mut t = Table::new(&[
            "workload", "", "plug", "none", "plug", "none", "plug", "none", "plug", "plug", "none",
        ])
        .groups(&[
            ("", 2),
            ("rate", 2),
            ("ns/BIO", 2),
            ("CPU ns/BIO", 2),
            ("merged", 1),
            ("p50/p99, us", 2),
        ]);
        for r in &self.rows {
            let (p, n) = (&r.plug, &r.none);
            t.row([
                r.name.to_owned(),
                if r.rw.is_counted() { "KIOPS" } else { "MB/s" }.to_owned(),
                figure(p.rate(r.rw)),
                figure(n.rate(r.rw)),
                figure(p.ns_per_bio),
                figure(n.ns_per_bio),
                figure(p.cpu_ns_per_bio),
                figure(n.cpu_ns_per_bio),
                percent(p.merged_percent),
                percentiles(&p.latency),
                percentiles(&n.latency),
            ]);
        }
        let shares = self.rows.iter().flat_map(|r| [&r.plug, &r.none]).map(Measure::cpu_share);
        if let Some(note) = busy(shares) {
            t.note(note + "; compare CPU ns/BIO");
        }
        write!(f, "{t}")?;
        for r in &self.rows {
            refused(f, r.name, "plug", &r.plug)?;
            refused(f, r.name, "none", &r.none)?;
        }
        if let Some(x) = &self.fresh {
            writeln!(
                f,
                "  first pass over fresh pages, 4 KiB, depth 16: plug {} ns, none {} ns per BIO",
                figure(x.plug_ns_per_bio),
                figure(x.none_ns_per_bio)
            )?;
            writeln!(
                f,
                "  memcpy into warm pages in this run: 4 KiB {} ns, 1 MiB {} ns",
                figure(x.memcpy_4k_ns),
                figure(x.memcpy_1m_ns)
            )?;
        }
        match (&self.verified_plug, &self.verified_none) {
            (Some(p), Some(n)) => {
                writeln!(f, "  verified, all workloads again with a pattern in every BIO:")?;
                writeln!(f, "    plug: {p}")?;
                writeln!(f, "    none: {n}")
            }
            _ => writeln!(f, "  not verified: this disk keeps no data"),
        }
    }
}

/// The cells of a CSV line: a workload in one mode.
struct Line<'a> {
    disk: &'a str,
    workload: &'a str,
    rw: Rw,
    block_bytes: u64,
    iodepth: u32,
    tags: u16,
    numjobs: u32,
    mode: &'a str,
    measure: &'a Measure,
}

/// The title line of the CSV.
fn titles() -> String {
    csv::line([
        "disk",
        "workload",
        "rw",
        "block_bytes",
        "iodepth",
        "tags",
        "numjobs",
        "mode",
        "elapsed_s",
        "bios",
        "mb_per_s",
        "kiops",
        "ns_per_bio",
        "cpu_ns_per_bio",
        "merged_percent",
        "p50_ns",
        "p99_ns",
        "refused",
    ])
}

impl Line<'_> {
    fn csv(&self) -> String {
        let m = self.measure;
        csv::line([
            self.disk.to_owned(),
            self.workload.to_owned(),
            self.rw.to_string(),
            self.block_bytes.to_string(),
            self.iodepth.to_string(),
            self.tags.to_string(),
            self.numjobs.to_string(),
            self.mode.to_owned(),
            m.elapsed_s.to_string(),
            m.bios.to_string(),
            m.mb_per_s.to_string(),
            m.kiops.to_string(),
            m.ns_per_bio.to_string(),
            m.cpu_ns_per_bio.to_string(),
            m.merged_percent.to_string(),
            m.latency.p50_ns.to_string(),
            m.latency.p99_ns.to_string(),
            m.refused.to_string(),
        ])
    }
}

impl Own {
    /// The row as CSV.
    pub(crate) fn csv(&self) -> String {
        let line = Line {
            disk: &self.disk,
            workload: "",
            rw: self.rw,
            block_bytes: self.block_bytes,
            iodepth: self.iodepth,
            tags: self.tags,
            numjobs: self.numjobs,
            mode: self.mode,
            measure: &self.measure,
        };
        titles() + &line.csv()
    }
}

impl Report {
    /// The rows as CSV: one for each workload, disk and mode.
    pub(crate) fn csv(&self) -> String {
        let mut text = titles();
        for (disk, row) in self.disks.iter().flat_map(|d| d.rows.iter().map(move |r| (d, r))) {
            for (mode, measure) in [("plug", &row.plug), ("none", &row.none)] {
                let line = Line {
                    disk: &disk.spec,
                    workload: row.name,
                    rw: row.rw,
                    block_bytes: row.block_bytes,
                    iodepth: row.depth,
                    tags: row.depth as u16,
                    numjobs: 1,
                    mode,
                    measure,
                };
                text += &line.csv();
            }
        }
        text
    }

    /// A report without results yet.
    pub(crate) fn new(build: Build, seconds_per_figure: f64, slices: u32) -> Report {
        Report {
            build,
            partial: false,
            seconds_per_figure,
            slices,
            disks: Vec::new(),
            order: Vec::new(),
            tags: Vec::new(),
            append: Vec::new(),
            elapsed_s: 0.0,
        }
    }

    pub(crate) fn header(&self) -> String {
        format!(
            "{}\n\
             Emulated disks; one thread that polls (Driven); the load generator is included in every figure.\n\
             A figure is the median of {} slices, {} s in all, plug and none by turns. MB is 10^6 bytes.\n\
             Latency is that of 1 BIO in {SAMPLE}, submit to completion. append: emulated in plug, native in none.\n",
            self.build, self.slices, self.seconds_per_figure
        )
    }

    pub(crate) fn order_text(&self) -> String {
        let mut t = Table::new(&[
            "mode",
            "writes",
            "refused",
            "first after",
            "zones given up",
            "acknowledged",
            "read back wrong",
        ]);
        for o in &self.order {
            t.row([
                o.mode.to_owned(),
                thousands(o.writes),
                thousands(o.refused),
                o.first_refused.map_or("-".to_owned(), thousands),
                thousands(o.zones_given_up),
                thousands(o.verified.written),
                thousands(o.verified.wrong),
            ]);
        }
        format!(
            "1. Why it exists: {} clients write one log, 4 KiB, depth {}. Each chooses the offset and submits\n   \
             under one lock, so each zone is sent in order; the disk carries out what it holds in any order,\n   \
             and refuses what is not at a write pointer. Then all that was acknowledged is read back.\n   \
             Disk {}\n{t}",
            order::CLIENTS,
            order::DEPTH,
            order::SPEC
        )
    }

    pub(crate) fn tags_text(&self) -> String {
        let mut t =
            Table::new(&["mode", "writes waiting", "reads/s", "read p50", "read p99", "writes/s"]);
        for x in &self.tags {
            let lat = |ns| if x.read_latency.samples == 0 { "-".to_owned() } else { time(ns) };
            t.row([
                if x.waiting == 0 { "no writes".to_owned() } else { x.mode.to_owned() },
                thousands(u64::from(x.waiting)),
                thousands(x.reads_per_s.round() as u64),
                lat(x.read_latency.p50_ns),
                lat(x.read_latency.p99_ns),
                thousands(x.writes_per_s.round() as u64),
            ]);
        }
        if let Some(note) = busy(self.tags.iter().map(|t| t.cpu_share)) {
            t.note(note);
        }
        format!(
            "2. Tags: {} random reads in flight beside {} writes that wait for one zone; {} tags. In lock (zone\n   \
             write locking) a waiting write holds a tag, and reads queue behind it; in plug it holds none.\n   \
             Merging is off, so that both modes send the same commands.\n   \
             Disk {}\n{t}",
            tags::READS,
            tags::WRITES,
            tags::TAGS,
            tags::SPEC
        )
    }

    pub(crate) fn append_text(&self) -> String {
        let mut t = Table::new(&["append", "appends/s", "p50", "p99"]);
        for a in &self.append {
            t.row([
                a.way.name().to_owned(),
                thousands(a.appends_per_s.round() as u64),
                time(a.latency.p50_ns),
                time(a.latency.p99_ns),
            ]);
        }
        format!(
            "3. Append: {} clients append 4 KiB to one zone, each waits for its own. An emulated append is a\n   \
             write, of which one may be in flight in a zone; those that wait behind it leave as one, and each\n   \
             client is told its own sector.\n   \
             Disk {}\n{t}",
            append::CLIENTS,
            append::SPEC
        )
    }

    pub(crate) fn footer(&self) -> String {
        let (refused, wrong) = self.failures();
        let verdict = if refused + wrong == 0 {
            "nothing failed that should not, all data was as written".to_owned()
        } else {
            format!("{} BIOs failed, {} wrong", thousands(refused), thousands(wrong))
        };
        format!("{:.0} s; {verdict}.\n{}", self.elapsed_s, interrupt::note(self.partial))
    }

    /// Counts unexpected BIO failures and BIOs with wrong data. The writes that mode `none` loses on a disk that
    /// reorders do not count: case 1 shows them on purpose.
    pub(crate) fn failures(&self) -> (u64, u64) {
        let (mut refused, mut wrong) = (0, 0);
        for d in &self.disks {
            refused +=
                d.rows.iter().map(|r| r.plug.all_refused() + r.none.all_refused()).sum::<u64>();
            for v in d.verified_plug.iter().chain(&d.verified_none) {
                refused += v.refused;
                wrong += v.wrong;
            }
        }
        for o in &self.order {
            refused += if o.mode == "none" { 0 } else { o.refused };
            wrong += o.verified.wrong;
        }
        refused += self.tags.iter().map(|t| t.refused).sum::<u64>();
        refused += self.append.iter().map(|a| a.refused).sum::<u64>();
        (refused, wrong)
    }
}

impl fmt::Display for Own {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let m = &self.measure;
        writeln!(f, "{}; {}", self.build, self.clients)?;
        writeln!(
            f,
            "{} on {}: bs {}, iodepth {}, {} tags, numjobs {}, mode {}, {} s",
            self.rw,
            self.disk,
            Bytes(self.block_bytes),
            self.iodepth,
            self.tags,
            self.numjobs,
            self.mode,
            figure(m.elapsed_s)
        )?;
        let mut t = Table::new(&[
            "mode",
            "MB/s",
            "KIOPS",
            "ns per BIO",
            "CPU ns per BIO",
            "merged",
            "p50/p99 in us",
            "refused",
        ]);
        t.row([
            self.mode.to_owned(),
            figure(m.mb_per_s),
            figure(m.kiops),
            figure(m.ns_per_bio),
            figure(m.cpu_ns_per_bio),
            percent(m.merged_percent),
            percentiles(&m.latency),
            thousands(m.refused),
        ]);
        write!(f, "{t}")?;
        refused(f, &self.rw.to_string(), self.mode, m)?;
        if let Some(v) = &self.verified {
            writeln!(f, "  verified with a second run: {v}")?;
        }
        f.write_str(interrupt::note(self.partial))
    }
}
