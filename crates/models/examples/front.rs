//! Compares the ways to run the single writer (`zoned_qd1_writes`) on the 30 TB SMR disk: each policy with each wait and
//! each deadline. The figures are rate and p99. The rows are numbers of zones, two clients, with and without reads beside
//! the writes.
//!
//!     cargo run --release -p zoneplug-models --example front             # all of it: under a minute on two cores
//!     cargo run --release -p zoneplug-models --example front clook       # ways whose names contain that, beside fifo
//!
//! A figure is compared with that of `fifo` in the same row: the same client, zones and seeds. The twelve seeds are used for
//! nothing else: neither for a table nor to choose a default. A way is on the front if its worst p99 is lower than that of
//! each way with a higher mean gain.

use zoneplug_core::disk::DiskConfig;
use zoneplug_core::sched::Policy;
use zoneplug_core::{Error, Nanos};
use zoneplug_devices::emu::timing::Profile;
use zoneplug_models::Workers;
use zoneplug_models::time::{Client, HostTimes, RandomReader, Run, Workload};

const SEEDS: std::ops::Range<u64> = 1001..1013;
/// A wait of 100 us or 1 ms gives the same as one of 300 us: the next write of a zone comes within 70 us, or long after.
const WAITS_US: [u64; 2] = [0, 300];
const DEADLINES_MS: [u64; 4] = [0, 500, 1000, 4000];
const ZONES: [u32; 7] = [2, 4, 8, 16, 32, 64, 128];
/// Random reads of 4 KiB outstanding beside the writes.
const READS: [u32; 2] = [0, 4];

/// A way to run the single writer: a policy, the time that it waits for the next write of a zone, and a deadline.
#[derive(Clone, Copy)]
struct Way {
    policy: Policy,
    wait_us: u64,
    deadline_ms: u64,
}

impl Way {
    fn name(&self) -> String {
        let mut name = self.policy.name().to_owned();
        if self.wait_us > 0 {
            name += &format!("+{}us", self.wait_us);
        }
        if self.deadline_ms > 0 {
            name += &format!("/{}ms", self.deadline_ms);
        }
        name
    }

    fn config(&self) -> DiskConfig {
        DiskConfig {
            zoned_qd1_writes: Some(true),
            zoned_qd1_policy: self.policy,
            anticipation: Nanos(self.wait_us * 1_000),
            zone_deadline: Nanos(self.deadline_ms * 1_000_000),
            ..DiskConfig::default()
        }
    }
}

fn ways(part: &str) -> Vec<Way> {
    let mut all = vec![Way { policy: Policy::Fifo, wait_us: 0, deadline_ms: 0 }];
    for policy in Policy::ALL {
        for wait_us in WAITS_US {
            for deadline_ms in DEADLINES_MS {
                let way = Way { policy, wait_us, deadline_ms };
                // Without a wait, such a policy is the same as another policy.
                let other = policy.is_about_waiting() && wait_us == 0;
                if !other && way.name() != "fifo" && way.name().contains(part) {
                    all.push(way);
                }
            }
        }
    }
    all
}

/// A row: what is written, and how many reads are beside it.
#[derive(Clone, Copy)]
struct Row {
    workload: Workload,
    reads: u32,
}

fn rows() -> Vec<Row> {
    let mut all = Vec::new();
    for reads in READS {
        for zones in ZONES {
            let bs = 1 << 20;
            let fio = Workload::Random { jobs: 16, depth: 32, bs, zones };
            let full = Workload::FullQueue { outstanding: 4 * zones.max(16), bs, zones };
            all.extend([fio, full].map(|workload| Row { workload, reads }));
        }
    }
    all
}

/// What a row gives, as means over the seeds: writes in MB/s, their p99 in ns, reads a second, their p99.
type Figures = [f64; 4];

fn figures(profile: &Profile, way: Way, row: Row) -> Result<Figures, Error> {
    let mut sum = [0.0; 4];
    let times = HostTimes::of(profile);
    for seed in SEEDS {
        let mut run = Run::on(profile.clone(), way.config());
        (run.warm_up, run.length) = (Nanos(10_000_000_000), Nanos(40_000_000_000));
        let mut clients = row.workload.clients(&times, seed);
        if row.reads > 0 {
            let mut reader = RandomReader::new(row.reads, 4096, seed);
            reader.reap = times.reap;
            clients.push(Box::new(reader) as Box<dyn Client>);
        }
        let report = run.go(clients)?;
        let seconds = report.length.0 as f64 / 1e9;
        for (n, c) in report.clients.iter().enumerate() {
            let rate = if n == 0 { c.bytes as f64 / 1e6 } else { c.bios as f64 } / seconds;
            sum[2 * n] += rate;
            sum[2 * n + 1] += c.latency(990).0 as f64;
        }
    }
    Ok(sum.map(|x| x / SEEDS.count() as f64))
}

/// How a way compares with `fifo`, each as a ratio.
struct Line {
    name: String,
    /// The rate of writes: the geometric mean over all rows, and the least.
    gain: f64,
    least: f64,
    /// The p99 of writes: the geometric mean over all rows, and the greatest.
    p99: f64,
    worst: f64,
    /// The rate of reads, the least of the rows with reads, and their p99, the greatest.
    reads: f64,
    reads_p99: f64,
}

fn geometric_mean(all: impl Iterator<Item = f64>) -> f64 {
    let logs: Vec<f64> = all.map(f64::ln).collect();
    (logs.iter().sum::<f64>() / logs.len() as f64).exp()
}

fn line(name: String, rows: &[Row], ours: &[Figures], fifo: &[Figures]) -> Line {
    let ratio = |n: usize| ours.iter().zip(fifo).map(move |(a, b)| a[n] / b[n]);
    let read = |n: usize| ratio(n).zip(rows).filter(|(_, row)| row.reads > 0).map(|(r, _)| r);
    Line {
        name,
        gain: geometric_mean(ratio(0)),
        least: ratio(0).fold(f64::INFINITY, f64::min),
        p99: geometric_mean(ratio(1)),
        worst: ratio(1).fold(0.0, f64::max),
        reads: read(2).fold(f64::INFINITY, f64::min),
        reads_p99: read(3).fold(0.0, f64::max),
    }
}

fn main() -> Result<(), Error> {
    let part = std::env::args().nth(1).unwrap_or_default();
    let (ways, rows) = (ways(&part), rows());
    let profile = Profile::builtin("smr30")?;
    let workers = Workers::all(&|| false);
    let found: Vec<Figures> = workers.spread(ways.len() * rows.len(), |i| {
        figures(&profile, ways[i / rows.len()], rows[i % rows.len()])
    })?;
    let of = |way: usize| &found[way * rows.len()..(way + 1) * rows.len()];
    let mut lines: Vec<Line> =
        (0..ways.len()).map(|w| line(ways[w].name(), &rows, of(w), of(0))).collect();
    lines.sort_by(|a, b| b.gain.total_cmp(&a.gain));
    println!(
        "The mean gain over fifo, and the worst of {} rows; p99 and reads as ratios",
        rows.len()
    );
    println!(
        "{:22} {:>7} {:>7} {:>6} {:>6} {:>6} {:>6}  front",
        "way", "gain", "least", "p99", "worst", "reads", "r.p99"
    );
    // From the highest gain down: a way is on the front if all above have a higher worst p99.
    let mut lowest = f64::INFINITY;
    let is_on_front = |l: &Line| {
        let above = lowest;
        lowest = lowest.min(l.worst);
        l.worst < above
    };
    let front: Vec<bool> = lines.iter().map(is_on_front).collect();
    for (l, front) in lines.iter().zip(&front) {
        println!(
            "{:22} {:+6.1}% {:+6.1}% {:6.2} {:6.2} {:6.2} {:6.2}  {}",
            l.name,
            100.0 * (l.gain - 1.0),
            100.0 * (l.least - 1.0),
            l.p99,
            l.worst,
            l.reads,
            l.reads_p99,
            if *front { "*" } else { "" }
        );
    }
    println!(
        "\nRow by row, of those on the front and of each policy without wait and deadline: gain, p99"
    );
    for (l, front) in lines.iter().zip(&front) {
        if !front && l.name.contains(['+', '/']) {
            continue;
        }
        let way = ways.iter().position(|w| w.name() == l.name).expect("its line");
        println!("{}", l.name);
        for (n, row) in rows.iter().enumerate() {
            let (ours, fifo) = (of(way)[n], of(0)[n]);
            let (client, zones) = match row.workload {
                Workload::Random { zones, .. } => ("fio", zones),
                Workload::FullQueue { zones, .. } => ("full", zones),
                _ => ("", 0),
            };
            println!(
                "  {client:4} {zones:4} zones, {} reads: {:6.1} MB/s {:+6.1}%, p99 {:7.1} ms x {:.2}",
                row.reads,
                ours[0],
                100.0 * (ours[0] / fifo[0] - 1.0),
                ours[1] / 1e6,
                ours[1] / fifo[1],
            );
        }
    }
    Ok(())
}
