//! One's own workload in virtual time: the engine on the model of a drive. Processor time is neither measured nor
//! printed.

use super::Args;
use super::job::{Job, Trace};
use super::progress::Progress;
use super::report::failure_of;
use super::table::{Table, figure, thousands, time};
use super::work::{Offsets, Rw, Work, max_open};
use super::workload::{check, work};
use crate::disk::Named;
use crate::failure::Failure;
use crate::interrupt::{self, is_asked};
use crate::json::by_status;
use crate::output::{Output, Over};
use crate::virtual_disk::{Modelled, layer_name, say_what_never_waits, spread};
use crate::{csv, json, term};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::io::Write;
use std::time::{Duration, Instant};
use zoneplug_core::disk::{DiskConfig, Mode};
use zoneplug_core::zone::Geometry;
use zoneplug_core::{Bytes, Nanos, ZoneNo};
use zoneplug_sim::time::{
    Client, ClientReport, Finished, HostTimes, Io, MAX_BYTES, Report, ZoneWriter,
};

/// From submission to the completion at the drive.
#[derive(Debug, Serialize)]
struct Latency {
    mean_ns: u64,
    p50_ns: u64,
    p99_ns: u64,
    p999_ns: u64,
    max_ns: u64,
}

/// What the jobs got, or the reads beside them.
#[derive(Debug, Serialize)]
struct Part {
    bios: u64,
    bytes: u64,
    /// 10^6 bytes.
    mb_per_s: f64,
    iops: f64,
    latency: Latency,
    /// Operations outstanding at the end, and the age of the oldest. The latencies do not include them.
    waiting: u32,
    oldest_waiting_ns: u64,
    refused: u64,
    #[serde(serialize_with = "by_status")]
    refused_by_status: BTreeMap<&'static str, u64>,
}

impl Part {
    fn of(clients: &[ClientReport], length: Nanos) -> Part {
        let seconds = (length.0 as f64 / 1e9).max(1e-9);
        let mut all = ClientReport::default();
        for c in clients {
            (all.bytes, all.bios) = (all.bytes + c.bytes, all.bios + c.bios);
            all.latencies.extend_from_slice(&c.latencies);
            for (&status, n) in &c.refused {
                *all.refused.entry(status).or_default() += n;
            }
        }
        all.latencies.sort_unstable();
        let sum: u128 = all.latencies.iter().map(|&ns| u128::from(ns)).sum();
        Part {
            bios: all.bios,
            bytes: all.bytes,
            mb_per_s: all.bytes as f64 / 1e6 / seconds,
            iops: all.bios as f64 / seconds,
            latency: Latency {
                mean_ns: (sum / all.latencies.len().max(1) as u128) as u64,
                p50_ns: all.latency(500).0,
                p99_ns: all.latency(990).0,
                p999_ns: all.latency(999).0,
                max_ns: all.latency(1000).0,
            },
            waiting: clients.iter().map(|c| c.waiting).sum(),
            oldest_waiting_ns: clients.iter().map(|c| c.oldest.0).max().unwrap_or(0),
            refused: all.refused.values().sum(),
            refused_by_status: all.refused.iter().map(|(s, &n)| (s.name(), n)).collect(),
        }
    }
}

/// One way to open the disk.
#[derive(Debug, Serialize)]
struct Row {
    layer: String,
    mode: &'static str,
    jobs: Part,
    reads: Option<Part>,
    /// Per second: accesses for which the head had to seek or wait. A drive without a head has none.
    head_moves_per_s: Option<f64>,
    /// The part of the time in which the head or the data path of the drive was busy.
    drive_busy_percent: f64,
    mean_write_command_bytes: f64,
    /// The measured time: shorter than requested if a signal came.
    virtual_s: f64,
}

/// A whole run.
#[derive(Debug, Serialize)]
struct Timed {
    zoneplug: &'static str,
    /// `virtual`.
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
    /// A signal came before the end: the last rows are of a shorter time or missing.
    partial: bool,
    rows: Vec<Row>,
    /// How long the run took here. All else in this document follows from the command line.
    real_s: f64,
}

/// What is to be run.
struct Plan<'a> {
    modelled: &'a Modelled,
    work: Work,
    jobs: u32,
    reads: Option<Work>,
    zones: Option<u32>,
    zone_lock: bool,
    warm_up: Nanos,
    length: Nanos,
    times: HostTimes,
}

impl Plan<'_> {
    fn new<'a>(args: &Args, modelled: &'a Modelled, work: Work) -> Plan<'a> {
        let seconds = if modelled.rotational() { 60 } else { 5 };
        let length = args.runtime.unwrap_or(Duration::from_secs(seconds));
        let length = Nanos(length.as_nanos() as u64);
        let reads = args.reads.map(|depth| Work {
            rw: Rw::Randread,
            block_sectors: args.read_bs.unwrap_or(8),
            depth,
            tags: 1,
        });
        Plan {
            modelled,
            work,
            jobs: args.numjobs.unwrap_or(1),
            reads,
            zones: args.zones,
            zone_lock: args.zone_lock,
            // Long enough to fill caches and queues.
            warm_up: Nanos((length.0 / 4).min(5_000_000_000)),
            length,
            times: HostTimes::of(&modelled.profile),
        }
    }

    fn offsets(&self, named: &Named, work: Work, i: u32, jobs: u32) -> Result<Offsets, Failure> {
        let (g, max) = (named.device.geometry(), max_open(named.device.limits()));
        let mut o = Offsets::new(g, work, i, jobs, max);
        if !o.is_usable() {
            let what = format!("no room for {} in the zones of job {i}", work.rw);
            return Err(Failure::usage(what).hint("a smaller bs or numjobs, or a larger disk"));
        }
        if let Some(zones) = self.zones {
            let zones = if max == 0 { zones } else { zones.min(max) };
            o.spread_over(zones / jobs + u32::from(i < zones % jobs));
        }
        Ok(o)
    }

    fn run(
        &self,
        named: &Named,
        config: &DiskConfig,
        trace: Option<&Trace>,
    ) -> Result<Row, Failure> {
        let mut run = self.modelled.run(config);
        (run.warm_up, run.length) = (self.warm_up, self.length);
        let mut clients: Vec<Box<dyn Client + '_>> = Vec::new();
        let Work { depth, block_sectors, .. } = self.work;
        if self.zone_lock {
            let zones = self.zones.unwrap_or(super::work::RANDOM_ZONES);
            let max = max_open(named.device.limits());
            let zones = if max == 0 { zones } else { zones.min(max) };
            let mut fio = ZoneWriter::fio_zbd(self.jobs, depth, block_sectors << 9, zones, 1);
            (fio.reap, fio.wake) = (self.times.reap, self.times.wake);
            clients.push(Box::new(fio));
        } else {
            for i in 0..self.jobs {
                let offsets = self.offsets(named, self.work, i, self.jobs)?;
                clients.push(Box::new(Job::new(i, offsets, depth, self.times, trace)));
            }
        }
        if let Some(work) = self.reads {
            let offsets = self.offsets(named, work, 0, 1)?;
            clients.push(Box::new(Job::new(self.jobs, offsets, work.depth, self.times, trace)));
        }
        let mut all: Vec<&mut dyn Client> = Vec::with_capacity(clients.len());
        for client in &mut clients {
            all.push(&mut **client);
        }
        let mut watch = Watch;
        all.push(&mut watch);
        let mut report = run.go_with(&mut all)?;
        report.clients.pop();
        Ok(self.row(config, &report))
    }

    fn row(&self, config: &DiskConfig, report: &Report) -> Row {
        let (jobs, reads) = match self.reads {
            Some(_) => report.clients.split_at(report.clients.len() - 1),
            None => (&report.clients[..], &[][..]),
        };
        let turns = self.modelled.rotational();
        let length = report.length.0.max(1) as f64;
        let seconds = length / 1e9;
        Row {
            layer: layer_name(config, turns),
            mode: config.mode.name(),
            jobs: Part::of(jobs, report.length),
            reads: self.reads.map(|_| Part::of(reads, report.length)),
            head_moves_per_s: turns.then(|| report.drive.moves as f64 / seconds),
            // An access counts from its start.
            drive_busy_percent: (report.drive.busy.0 as f64 * 100.0 / length).min(100.0),
            virtual_s: seconds,
            mean_write_command_bytes: report.mean_command(),
        }
    }
}

/// Runs the workload that `args` names.
pub(super) fn run(args: &Args, modelled: &Modelled, out: &mut dyn Write) -> Result<(), Failure> {
    let start = Instant::now();
    let named = Named::open(&modelled.spec)?;
    let work = work(args, &named);
    let plan = Plan::new(args, modelled, work);
    let ways = args.ways.of(&modelled.config, &args.mode);
    possible(args, &plan)?;
    say_what_never_waits(&ways, modelled.rotational());
    for config in &ways {
        check(&named, config, work, false)?;
    }
    let trace = match &args.write_trace {
        Some(_) if ways.len() > 1 => {
            return Err(Failure::usage(
                "--write-trace with more than one mode, policy or scheduler",
            )
            .hint("a trace is of one run"));
        }
        Some(path) => Some(Output::create(path, Over::Files, [])?),
        None => None,
    };
    let each = Duration::from_nanos(plan.length.0);
    let progress = Progress::new(each * ways.len() as u32);
    progress.say(format!("{} on {}, in virtual time", work.rw, modelled.spec));
    let rows = if let Some(file) = trace {
        let trace = Trace::new(file);
        let row = plan.run(&named, &ways[0], Some(&trace))?;
        trace.finish()?;
        vec![row]
    } else {
        spread(ways.len(), |i| {
            let row = plan.run(&named, &ways[i], None)?;
            progress.done(each);
            Ok(row)
        })?
    };
    drop(progress);
    let timed = Timed {
        zoneplug: env!("CARGO_PKG_VERSION"),
        time: "virtual",
        disk: modelled.spec.clone(),
        rw: work.rw,
        block_bytes: u64::from(work.block_sectors) * 512,
        iodepth: work.depth,
        tags: modelled.run(&modelled.config).tags,
        numjobs: plan.jobs,
        zones: plan.zones,
        zone_lock: plan.zone_lock,
        reads: args.reads,
        read_block_bytes: plan.reads.map(|w| u64::from(w.block_sectors) * 512),
        warm_up_s: plan.warm_up.0 as f64 / 1e9,
        virtual_s: plan.length.0 as f64 / 1e9,
        partial: is_asked(),
        rows,
        real_s: start.elapsed().as_secs_f64(),
    };
    let parts = |r: &Row| r.jobs.refused + r.reads.as_ref().map_or(0, |p| p.refused);
    let plugged = timed.rows.iter().all(|r| r.mode == Mode::Plug.name());
    let failure = failure_of(timed.rows.iter().map(parts).sum(), 0, plugged);
    let failure = interrupt::or_partial(timed.partial, failure);
    if args.json {
        return json::end(out, &timed, failure);
    }
    if args.csv {
        out.write_all(timed.csv().as_bytes())?;
    } else {
        term::print(out, &timed.to_string())?;
    }
    failure.map_or(Ok(()), Err)
}

/// A client that sends nothing, and ends the run when a signal asks for the end.
struct Watch;

impl Watch {
    /// Virtual time between two looks.
    const STEP: Nanos = Nanos(10_000_000);
}

impl Client for Watch {
    fn prepare(&mut self, _: &Geometry) -> Vec<(ZoneNo, u32)> {
        Vec::new()
    }

    fn start(&mut self, io: &mut Io) {
        io.after(Self::STEP, 0);
    }

    fn finished(&mut self, _: &mut Io, _: Finished) {}

    fn timer(&mut self, io: &mut Io, _: u32) {
        match is_asked() {
            true => io.end(Ok(())),
            false => io.after(Self::STEP, 0),
        }
    }
}

impl Timed {
    /// As CSV: a row for each way to open the disk, and one for the reads beside it.
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
        ]);
        for r in &self.rows {
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
                ]);
            }
        }
        text
    }
}

/// Whether it makes sense in virtual time.
fn possible(args: &Args, plan: &Plan<'_>) -> Result<(), Failure> {
    if args.verify {
        return Err(Failure::usage("--verify in virtual time, where disks keep no data")
            .hint("--real-time with data=1 in the specification, or --disk mem"));
    }
    if plan.zone_lock && plan.work.rw != Rw::Randwrite {
        return Err(Failure::usage(format!("--zone-lock with {}", plan.work.rw))
            .hint("--rw randwrite: only random writes meet on zones"));
    }
    let longest = plan.reads.map_or(0, |w| w.block_sectors).max(plan.work.block_sectors);
    if longest > MAX_BYTES >> 9 {
        let max = Bytes(u64::from(MAX_BYTES));
        return Err(Failure::usage(format!("a BIO of more than {max} in virtual time"))
            .hint(format!("--bs {max}")));
    }
    Ok(())
}

impl fmt::Display for Timed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "zoneplug {} bench, in virtual time\n{} on {}: bs {}, iodepth {}, {} tags, numjobs {}",
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
            write!(f, "; beside it {n} random reads of {}", Bytes(bytes))?;
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
        .words(2)
        .keys(2);
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
                t.row([
                    only(r.layer.clone()),
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
        for r in &self.rows {
            for p in [Some(&r.jobs), r.reads.as_ref()].into_iter().flatten() {
                if p.oldest_waiting_ns > p.latency.max_ns {
                    let n = thousands(u64::from(p.waiting));
                    let oldest = time(p.oldest_waiting_ns);
                    writeln!(
                        f,
                        "  {}: {n} still wait at the end, the oldest for {oldest}",
                        r.layer
                    )?;
                }
                for (status, n) in &p.refused_by_status {
                    writeln!(f, "  refused: {}: {} ({status})", r.layer, thousands(*n))?;
                }
            }
        }
        let all = (self.warm_up_s + self.virtual_s) * self.rows.len() as f64;
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
