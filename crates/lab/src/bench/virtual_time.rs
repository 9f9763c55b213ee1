//! A user's own workload in virtual time: runs what the flags of `bench` describe, and shows the figures as text, JSON and
//! CSV. Processor time is not measured.

use super::Args;
use super::blkparse::Trace;
use super::workload::NAMES;
use crate::failure::Failure;
use crate::figures::{figure, thousands, time};
use crate::interrupt::{self, is_asked};
use crate::outcome::failure_of;
use crate::output::{Output, Over};
use crate::progress::Progress;
use crate::table::Table;
use crate::virtual_disk::{short, warn_of_ways_that_never_wait, workers};
use crate::{csv, json, term};
use serde::Serialize;
use std::fmt;
use std::io::Write;
use std::time::{Duration, Instant};
use zoneplug_core::disk::Mode;
use zoneplug_core::{Bytes, Nanos};
use zoneplug_models::measure::{Row, Shelf, Workload, check};
use zoneplug_models::work::Rw;
use zoneplug_models::{VirtualDisk, Way};

/// The document of a whole run.
#[derive(Debug, Serialize)]
struct Document {
    zoneplug: &'static str,
    /// Always `virtual`.
    time: &'static str,
    disk: String,
    rw: Rw,
    block_bytes: u64,
    iodepth: u32,
    tags: u16,
    numjobs: u32,
    zones: Option<u32>,
    zone_lock: bool,
    reads: Option<u32>,
    read_block_bytes: Option<u64>,
    warm_up_s: f64,
    virtual_s: f64,
    /// Whether a signal came before the end: the last rows then cover a shorter time or are missing.
    partial: bool,
    rows: Vec<Row>,
    /// Wall-clock time of the run. Unless the run is `partial`, everything else in this document follows from the command
    /// line.
    real_s: f64,
}

/// The workload that `args` describe.
fn workload(args: &Args, disk: &VirtualDisk) -> Workload {
    let mut load = Workload::new(disk, args.rw.unwrap_or(Rw::Write));
    load.work.block_sectors = args.bs.unwrap_or(8);
    load.work.depth = args.iodepth.unwrap_or(1);
    load.jobs = args.numjobs.unwrap_or(1);
    if let Some(depth) = args.reads {
        load.read_beside(depth, args.read_bs.unwrap_or(8));
    }
    (load.zones, load.zone_lock, load.adapter) = (args.zones, args.zone_lock, args.adapter);
    if let Some(time) = args.runtime {
        load.last(Nanos(time.as_nanos() as u64));
    }
    load
}

/// Runs the workload that `args` names.
pub(super) fn run(args: &Args, modelled: &VirtualDisk, out: &mut dyn Write) -> Result<(), Failure> {
    let start = Instant::now();
    let load = workload(args, modelled);
    let work = load.work;
    let ways = args.ways.of(&modelled.config, &args.mode)?;
    if args.verify {
        return Err(Failure::usage("--verify in virtual time, where disks keep no data")
            .hint("--real-time with data=1 in the specification, or --disk mem"));
    }
    load.check(&NAMES)?;
    warn_of_ways_that_never_wait(&ways, modelled.rotational());
    let (geometry, limits) = (modelled.geometry(), modelled.limits());
    for way in &ways {
        check(work, geometry, limits, way.config.mode, &NAMES)?;
    }
    let trace = match &args.write_trace {
        Some(_) if ways.len() > 1 || args.drives.iter().any(|n| *n > 1) => {
            return Err(Failure::usage(
                "--write-trace with more than one mode, policy, scheduler or drive",
            )
            .hint("a trace is of one run, of one drive"));
        }
        Some(path) => Some(Output::create(path, Over::Files, [])?),
        None => None,
    };
    let document = json::flag(args.json, args.csv);
    let trace_has_stdout = Output::have_stdout(&[("--write-trace", trace.as_ref())], document)?;
    let each = Duration::from_nanos(load.length.0);
    // One load for each number of drives.
    let loads: Vec<Workload> = match args.drives.as_slice() {
        [] => vec![load.clone()],
        drives => drives.iter().map(|&disks| Workload { disks, ..load.clone() }).collect(),
    };
    let todo = loads.iter().flat_map(|load| ways.iter().map(move |way| (load, way)));
    let todo: Vec<(&Workload, &Way)> = todo.collect();
    let progress = Progress::new(each * todo.len() as u32);
    progress.say(format!("{} on {}, in virtual time", work.rw, modelled.spec));
    let rows = if let Some(file) = trace {
        let trace = Trace::new(file);
        let row = load.run(modelled, &ways[0], &workers(), Some(&trace))?;
        trace.finish()?;
        vec![row]
    } else {
        workers().spread(todo.len(), |i| {
            let (load, way) = todo[i];
            let row = load.run(modelled, way, &workers(), None)?;
            progress.done(each);
            Ok(row)
        })?
    };
    drop(progress);
    let timed = Document {
        zoneplug: env!("CARGO_PKG_VERSION"),
        time: "virtual",
        disk: modelled.spec.clone(),
        rw: work.rw,
        block_bytes: u64::from(work.block_sectors) * 512,
        iodepth: work.depth,
        tags: modelled.run(&modelled.config).tags,
        numjobs: load.jobs,
        zones: load.zones,
        zone_lock: load.zone_lock,
        reads: args.reads,
        read_block_bytes: load.reads.map(|w| u64::from(w.block_sectors) * 512),
        warm_up_s: load.warm_up.0 as f64 / 1e9,
        virtual_s: load.length.0 as f64 / 1e9,
        partial: is_asked(),
        rows,
        real_s: start.elapsed().as_secs_f64(),
    };
    let refused = |r: &Row| r.jobs.refused + r.reads.as_ref().map_or(0, |p| p.refused);
    let plugged = timed.rows.iter().all(|r| r.mode == Mode::Plug.name());
    let failure = failure_of(timed.rows.iter().map(refused).sum(), 0, plugged);
    let failure = interrupt::or_partial(timed.partial, failure);
    if trace_has_stdout {
        return failure.map_or(Ok(()), Err);
    }
    if args.json {
        return json::end(out, &timed, failure);
    }
    if args.csv {
        out.write_all(timed.csv().as_bytes())?;
    } else {
        term::print_report(out, &timed.to_string())?;
    }
    failure.map_or(Ok(()), Err)
}

impl Document {
    /// The rows as CSV: one for each way to open the disk and number of drives, and one more for the reads beside the jobs,
    /// if there are any.
    fn csv(&self) -> String {
        let mut text = csv::line([
            "disk",
            "opened_as",
            "mode",
            "client",
            "virtual_s",
            "bios",
            "mb_per_s",
            "iops",
            "mean_ns",
            "p50_ns",
            "p99_ns",
            "p999_ns",
            "max_ns",
            "drive_busy_percent",
            "head_moves_per_s",
            "mean_write_command_bytes",
            "refused",
            "disks",
            "slowest_mb_per_s",
            "fastest_mb_per_s",
            "fairness",
            "worst_p99_ns",
        ]);
        for r in &self.rows {
            // A shelf is several drives on one adapter. The figures of its drives count their jobs, not the reads beside them.
            let shelf = r.shelf.as_ref();
            let of = |f: &dyn Fn(&Shelf) -> String| shelf.map_or(String::new(), f);
            let reads = r.reads.iter().map(|p| ("reads", p));
            for (client, p) in [("jobs", &r.jobs)].into_iter().chain(reads) {
                text += &csv::line([
                    self.disk.clone(),
                    r.layer.clone(),
                    r.mode.to_owned(),
                    client.to_owned(),
                    r.virtual_s.to_string(),
                    p.bios.to_string(),
                    p.mb_per_s.to_string(),
                    p.iops.to_string(),
                    p.latency.mean_ns.to_string(),
                    p.latency.p50_ns.to_string(),
                    p.latency.p99_ns.to_string(),
                    p.latency.p999_ns.to_string(),
                    p.latency.max_ns.to_string(),
                    r.drive_busy_percent.to_string(),
                    r.head_moves_per_s.map_or(String::new(), |n| n.to_string()),
                    r.mean_write_command_bytes.to_string(),
                    p.refused.to_string(),
                    shelf.map_or(1, |s| s.disks).to_string(),
                    of(&|s| s.slowest_mb_per_s.to_string()),
                    of(&|s| s.fastest_mb_per_s.to_string()),
                    of(&|s| s.fairness.to_string()),
                    of(&|s| s.worst_p99_ns.to_string()),
                ]);
            }
        }
        text
    }

    /// Prints how the drives of each row share the adapter.
    fn shelves(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.rows.iter().all(|r| r.shelf.is_none()) {
            return Ok(());
        }
        let titles = ["drives", "opened as", "each, MB/s", "slowest", "fastest", "fairness"];
        let mut t =
            Table::new(&[&titles[..], &["worst p99"]].concat()).left_columns(2).key_columns(2);
        for (r, s) in self.rows.iter().filter_map(|r| Some((r, r.shelf.as_ref()?))) {
            t.row([
                s.disks.to_string(),
                short(&r.layer),
                figure(r.jobs.mb_per_s / f64::from(s.disks)),
                figure(s.slowest_mb_per_s),
                figure(s.fastest_mb_per_s),
                format!("{:.4}", s.fairness),
                time(s.worst_p99_ns),
            ]);
        }
        write!(f, "{t}")
    }
}

impl fmt::Display for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "zoneplug-lab {} bench, in virtual time\n{} on {}: bs {}, iodepth {}, {} tags, numjobs {}",
            self.zoneplug,
            self.rw,
            self.disk,
            Bytes(self.block_bytes),
            self.iodepth,
            self.tags,
            self.numjobs
        )?;
        if let Some(n) = self.zones {
            write!(f, ", {n} zones")?;
        }
        if self.zone_lock {
            write!(f, ", fio's lock on zones")?;
        }
        if let (Some(n), Some(bytes)) = (self.reads, self.read_block_bytes) {
            write!(f, "; beside it random reads of {}, {n} outstanding", Bytes(bytes))?;
        }
        writeln!(f, "\n{} s, after {} s that are not counted", self.virtual_s, self.warm_up_s)?;
        let turns = self.rows.iter().any(|r| r.head_moves_per_s.is_some());
        let mut t = Table::new(&[
            "disk opened as",
            "",
            "MB/s",
            "IOPS",
            "p50",
            "p99",
            "p99.9",
            "max",
            if turns { "head busy" } else { "drive busy" },
            if turns { "moves/s" } else { "" },
            "a command",
            "refused",
        ])
        .left_columns(2)
        .key_columns(2);
        for r in &self.rows {
            let what = if self.rw.is_read() { "reads" } else { "writes" };
            let beside = r.reads.iter().map(|p| ("reads", p, false));
            for (name, p, first) in [(what, &r.jobs, true)].into_iter().chain(beside) {
                let l = &p.latency;
                let only = |text: String| if first { text } else { String::new() };
                let command = if self.rw.is_read() {
                    "-".to_owned()
                } else {
                    format!("{}K", figure(r.mean_write_command_bytes / 1024.0))
                };
                let layer = match &r.shelf {
                    Some(shelf) => format!("{} x {}", shelf.disks, short(&r.layer)),
                    None => short(&r.layer),
                };
                t.row([
                    only(layer),
                    name.to_owned(),
                    figure(p.mb_per_s),
                    figure(p.iops),
                    time(l.p50_ns),
                    time(l.p99_ns),
                    time(l.p999_ns),
                    time(l.max_ns),
                    only(format!("{:.0}%", r.drive_busy_percent)),
                    only(r.head_moves_per_s.map_or(String::new(), figure)),
                    only(command),
                    thousands(p.refused),
                ]);
            }
        }
        write!(f, "{t}")?;
        self.shelves(f)?;
        for r in &self.rows {
            for p in [Some(&r.jobs), r.reads.as_ref()].into_iter().flatten() {
                if p.oldest_waiting_ns > p.latency.max_ns {
                    let n = thousands(u64::from(p.waiting));
                    let oldest = time(p.oldest_waiting_ns);
                    writeln!(
                        f,
                        "  {}: {n} still wait at the end, the oldest for {oldest}",
                        short(&r.layer)
                    )?;
                }
                for (status, n) in &p.refused_by_status {
                    let layer = short(&r.layer);
                    writeln!(f, "  refused: {layer}: {} ({status})", thousands(*n))?;
                }
            }
        }
        // A row that a signal ended is shorter than requested.
        let all: f64 = self.rows.iter().map(|r| self.warm_up_s + r.virtual_s).sum();
        let times = all / self.real_s.max(1e-6);
        writeln!(
            f,
            "{} s of virtual time in {:.2} s: {} times as fast as the drive",
            figure(all),
            self.real_s,
            figure(times)
        )?;
        f.write_str(interrupt::note(self.partial))
    }
}
