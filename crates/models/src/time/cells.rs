//! The cells of the published tables that a model can reproduce: the workload of each, as far as it
//! is known, and the expectation. Tables of CPU cost (null_blk), of schedulers that zoneplug lacks
//! (bfq) and of file systems have no cells.
//!
//! The bands are those of `docs/models.md`. A cell that cannot be matched has a reason instead of a
//! band: its figure is shown, and the model is never tuned to it.

use super::client::{SeqWriter, ZoneWriter};
use super::host_times::HostTimes;
use super::io::Client;
use super::report::Report;
use super::run::Run;
use zoneplug_core::disk::DiskConfig;
use zoneplug_core::{Error, Nanos};
use zoneplug_devices::emu::timing::{Model, Profile};

/// Rates of the medium, in millionths of the profile's. The layout of tracks is unknown, so a
/// figure is the mean over these.
pub const GEOMETRIES: [u32; 5] = [985_000, 995_000, 1_000_000, 1_005_000, 1_015_000];
/// Seeds of the clients.
pub const SEEDS: [u64; 4] = [1, 2, 3, 4];

const K: u32 = 1 << 10;
const M: u32 = 1 << 20;

/// The workload of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Workload {
    /// One job, zone after zone.
    Sequential {
        /// Length of a write, in bytes.
        bs: u32,
        /// Writes outstanding.
        depth: u32,
    },
    /// fio's zoned mode, random.
    Random {
        /// Number of jobs.
        jobs: u32,
        /// Writes that each job may have outstanding.
        depth: u32,
        /// Length of a write, in bytes.
        bs: u32,
        /// Open zones.
        zones: u32,
    },
    /// A full queue over open zones, without a lock on any zone.
    FullQueue {
        /// Writes outstanding.
        outstanding: u32,
        /// Length of a write, in bytes.
        bs: u32,
        /// Open zones.
        zones: u32,
    },
    /// A full queue of zone appends over open zones.
    Append {
        /// Appends outstanding.
        outstanding: u32,
        /// Length of an append, in bytes.
        bs: u32,
        /// Open zones.
        zones: u32,
    },
}

impl Workload {
    /// The clients of this workload.
    pub fn clients(&self, times: &HostTimes, seed: u64) -> Vec<Box<dyn Client>> {
        let mut zones = match *self {
            Workload::Sequential { bs, depth } => {
                let mut client = SeqWriter::new(depth, bs);
                (client.reap, client.cpu) = (times.next, times.cpu);
                // Near the outer edge: the published rates are those of the first zones of a new
                // disk.
                client.first_zone = 1500;
                return vec![Box::new(client)];
            }
            Workload::Random { jobs, depth, bs, zones } => {
                ZoneWriter::fio_zbd(jobs, depth, bs, zones, seed)
            }
            Workload::FullQueue { outstanding, bs, zones } => {
                ZoneWriter::open_queue(outstanding, bs, zones, seed)
            }
            Workload::Append { outstanding, bs, zones } => {
                ZoneWriter::appender(outstanding, bs, zones, seed)
            }
        };
        (zones.reap, zones.wake) = (times.reap, times.wake);
        vec![Box::new(zones)]
    }
}

/// How writes wait for each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layer {
    /// Zone write plugging, each zone by itself.
    Baseline,
    /// One writer for the disk (Q1-Q12) with the published policy `fifo`.
    SingleWriter,
}

impl Layer {
    /// The configuration with which the disk is opened.
    pub fn config(self) -> DiskConfig {
        // A rotational disk has a single writer by default (Q10).
        let zoned_qd1_writes = Some(self == Layer::SingleWriter);
        DiskConfig { zoned_qd1_writes, ..DiskConfig::default() }
    }
}

/// The unit of a figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// 10^6 bytes per second.
    MbPerS,
    /// I/O per second.
    Iops,
    /// 1000 I/O per second.
    Kiops,
}

impl Unit {
    /// The figure of a report.
    pub fn of(self, report: &Report) -> f64 {
        match self {
            Unit::MbPerS => report.mb_per_s(),
            Unit::Iops => report.iops(),
            Unit::Kiops => report.iops() / 1e3,
        }
    }
}

/// The expectation of the model's figure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Expect {
    /// The published figure, within this many percent.
    Within(f64),
    /// The direction only, with the reason.
    Shape(&'static str),
    /// Nothing, with the reason.
    Not(&'static str),
}

/// A published table, or a part of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Table {
    /// SMR 30 TB, sequential by depth.
    Smr30Sequential,
    /// SMR 30 TB, random by open zones.
    Smr30Random,
    /// ZNS 1 TB.
    Zns1,
    /// SMR 20 TB.
    Smr20,
    /// SMR 14 TB, zone append.
    Smr14,
}

impl Table {
    /// The profile of its drive.
    pub const fn profile(self) -> &'static str {
        match self {
            Table::Smr30Sequential | Table::Smr30Random => "smr30",
            Table::Zns1 => "zns1",
            Table::Smr20 => "smr20",
            Table::Smr14 => "smr14",
        }
    }

    /// The times of the host for its drive.
    pub const fn times(self) -> HostTimes {
        match self {
            Table::Zns1 => HostTimes::NVME,
            _ => HostTimes::DISK,
        }
    }
}

/// One cell of a table.
///
/// ```
/// use zoneplug_devices::emu::timing::Profile;
/// use zoneplug_models::time::{Cell, Table};
/// let is = |c: &Cell| c.table == Table::Zns1 && c.name == "seqw1M1";
/// let cell = Cell::all().into_iter().find(is).unwrap();
/// let ours = cell.sample(&Profile::builtin(cell.table.profile()).unwrap()).unwrap();
/// assert!((ours.mean() / cell.published - 1.0).abs() < 0.06);
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Cell {
    /// Its table.
    pub table: Table,
    /// Its name in the table: the depth, the zones, or the workload.
    pub name: &'static str,
    /// Its column.
    pub layer: Layer,
    /// The workload, as far as it is known.
    pub workload: Workload,
    /// The published figure.
    pub published: f64,
    /// Its unit.
    pub unit: Unit,
    /// The expectation of the model's figure.
    pub expect: Expect,
    /// Whether the cell was used to set a number of the profile.
    pub calibrates: bool,
}

const TRACKS: &str =
    "while two zones are written at a time, it depends on how long a track is, which is not known";
const SMALL: &str = "far below any limit of bandwidth or latency: locks of the host, or the firmware's small writes";
const UNKNOWN: &str = "neither threads nor zones are published";

impl Cell {
    /// Every cell.
    pub fn all() -> Vec<Cell> {
        let mut cells = Self::smr30();
        cells.extend(Self::others());
        cells
    }

    /// The 32 cells of the 30 TB SMR disk: sequential writes by depth and random ones by zones, without and with the
    /// single writer.
    pub fn smr30() -> Vec<Cell> {
        const NAMES: [&str; 8] = ["1", "2", "4", "8", "16", "32", "64", "128"];
        type Column = (Table, Layer, [f64; 8], fn(u32) -> (Expect, bool));
        let columns: [Column; 4] = [
            (
                Table::Smr30Sequential,
                Layer::Baseline,
                [244., 244., 245., 242., 222., 211., 193., 112.],
                |n| match n {
                    128 => (Expect::Shape(TRACKS), false),
                    _ => (Expect::Within(10.), n == 1 || n == 32),
                },
            ),
            (
                Table::Smr30Sequential,
                Layer::SingleWriter,
                [245., 245., 245., 245., 246., 245., 244., 246.],
                |_| (Expect::Within(2.), false),
            ),
            (
                Table::Smr30Random,
                Layer::Baseline,
                [191., 101., 115., 90., 64., 58., 56., 55.],
                |n| (Expect::Within(15.), n == 32),
            ),
            (
                Table::Smr30Random,
                Layer::SingleWriter,
                [192., 128., 123., 120., 115., 105., 101., 99.],
                |n| (Expect::Within(12.), matches!(n, 1 | 2 | 64)),
            ),
        ];
        let cells = columns.into_iter().flat_map(|(table, layer, published, expect)| {
            (0..8).map(move |i| {
                let n = 1 << i;
                let workload = match table {
                    Table::Smr30Sequential => Workload::Sequential { bs: M, depth: n },
                    _ => Workload::Random { jobs: 16, depth: 32, bs: M, zones: n },
                };
                let (expect, calibrates) = expect(n);
                Cell {
                    table,
                    name: NAMES[i],
                    layer,
                    workload,
                    published: published[i],
                    unit: Unit::MbPerS,
                    expect,
                    calibrates,
                }
            })
        });
        cells.collect()
    }

    /// The cells of the other drives: zone write plugging with scheduler `none` (ZNS, 20 TB), and a single thread (14
    /// TB).
    pub fn others() -> Vec<Cell> {
        let seq = |bs, depth| Workload::Sequential { bs, depth };
        let random = |bs| Workload::Random { jobs: 1, depth: 16, bs, zones: 14 };
        let random20 = |bs| Workload::Random { jobs: 1, depth: 16, bs, zones: 128 };
        let sync = Workload::Random { jobs: 1, depth: 1, bs: 64 * K, zones: 1024 };
        let append = Workload::Append { outstanding: 1, bs: 64 * K, zones: 1024 };
        let (mb, within) = (Unit::MbPerS, Expect::Within);
        type Row = (Table, &'static str, Workload, f64, Unit, Expect, bool);
        let rows: [Row; 14] = [
            (Table::Zns1, "seqw4K1", seq(4 * K, 1), 190., mb, within(6.), true),
            (Table::Zns1, "seqw4K16", seq(4 * K, 16), 666., mb, within(6.), false),
            (Table::Zns1, "seqw1M1", seq(M, 1), 1083., mb, within(6.), false),
            (Table::Zns1, "seqw1M16", seq(M, 16), 1108., mb, within(6.), true),
            (Table::Zns1, "rndw4K16", random(4 * K), 51.4, Unit::Kiops, Expect::Not(SMALL), false),
            (Table::Zns1, "rndw128K16", random(128 * K), 14.7, Unit::Kiops, within(6.), true),
            (Table::Smr20, "seqw4K1", seq(4 * K, 1), 115., mb, within(10.), true),
            (Table::Smr20, "seqw4K16", seq(4 * K, 16), 235., mb, within(10.), false),
            (Table::Smr20, "seqw1M1", seq(M, 1), 249., mb, within(10.), true),
            (Table::Smr20, "seqw1M16", seq(M, 16), 242., mb, within(10.), false),
            (Table::Smr20, "rndw4K16", random20(4 * K), 2200., Unit::Iops, within(10.), true),
            (Table::Smr20, "rndw128K16", random20(128 * K), 763., Unit::Iops, within(10.), true),
            (Table::Smr14, "write", sync, 797., Unit::Iops, Expect::Shape(UNKNOWN), false),
            (Table::Smr14, "append", append, 806., Unit::Iops, Expect::Shape(UNKNOWN), false),
        ];
        rows.into_iter()
            .map(|(table, name, workload, published, unit, expect, calibrates)| Cell {
                table,
                name,
                layer: Layer::Baseline,
                workload,
                published,
                unit,
                expect,
                calibrates,
            })
            .collect()
    }

    /// Builds the run of this cell on a drive, and its clients. Callers may change the layer,
    /// clients or times before running.
    pub fn run(&self, profile: &Profile, seed: u64) -> (Run, Vec<Box<dyn Client>>) {
        self.run_above(profile, self.table.times(), seed)
    }

    /// Builds the run as [`Cell::run`] does, with other times of the host.
    pub fn run_above(
        &self,
        profile: &Profile,
        times: HostTimes,
        seed: u64,
    ) -> (Run, Vec<Box<dyn Client>>) {
        let mut run = Run::new(profile.clone());
        run.disk = self.layer.config();
        run.work = times.work;
        let ms = |n: u64| Nanos(n * 1_000_000);
        (run.warm_up, run.length) = match (self.table, self.workload) {
            (Table::Zns1, _) => (ms(20), ms(300)),
            (_, Workload::Sequential { .. }) => (ms(3_000), ms(12_000)),
            (Table::Smr30Random, _) => (ms(5_000), ms(40_000)),
            // A large cache fills first.
            (_, Workload::Random { bs, .. }) if bs == 4 * K => (ms(15_000), ms(10_000)),
            _ => (ms(15_000), ms(20_000)),
        };
        (run, self.workload.clients(&times, seed))
    }

    /// Runs the cell on a drive. Returns the figure in its unit. Fails as [`Run::go`] does.
    pub fn go(&self, profile: &Profile, seed: u64) -> Result<f64, Error> {
        let (run, clients) = self.run(profile, seed);
        Ok(self.unit.of(&run.go(clients)?))
    }

    /// Runs the cell over all geometries, and over all seeds if the workload is random. Figures of
    /// a faster medium are scaled down by the same ratio, so that only the layout of tracks
    /// differs. Fails as [`Run::go`] does.
    pub fn sample(&self, profile: &Profile) -> Result<Sample, Error> {
        let turns = matches!(profile.model, Model::Smr(_));
        let geometries = if turns { &GEOMETRIES[..] } else { &[1_000_000] };
        self.sample_over(profile, geometries, &SEEDS)
    }

    /// Samples as [`Cell::sample`] does, over other geometries and seeds, at least one of each.
    pub fn sample_over(
        &self,
        profile: &Profile,
        geometries: &[u32],
        seeds: &[u64],
    ) -> Result<Sample, Error> {
        let draws = !matches!(self.workload, Workload::Sequential { .. });
        let seeds = if draws { seeds } else { &seeds[..1] };
        let mut all = Vec::with_capacity(geometries.len() * seeds.len());
        for &ppm in geometries {
            let profile = profile.with_rate(ppm);
            for &seed in seeds {
                all.push(self.go(&profile, seed)? * 1e6 / f64::from(ppm));
            }
        }
        Ok(Sample { all, seeds: seeds.len() })
    }
}

/// Figures of one cell over geometries and seeds.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// Each figure, in the order of geometries, then seeds.
    pub all: Vec<f64>,
    /// Seeds of each geometry.
    seeds: usize,
}

impl Sample {
    /// A sample of one geometry, with at least one figure.
    pub fn new(all: Vec<f64>) -> Sample {
        assert!(!all.is_empty(), "a mean of nothing");
        Sample { seeds: all.len(), all }
    }

    /// The mean.
    pub fn mean(&self) -> f64 {
        mean(&self.all)
    }

    /// Standard error of the mean. Runs of one seed draw the same zones in each geometry, so a seed
    /// counts once.
    pub fn standard_error(&self) -> f64 {
        if self.seeds == 1 {
            return standard_error(&self.all);
        }
        let of_seed = |s| self.all.iter().skip(s).step_by(self.seeds).copied().collect::<Vec<_>>();
        let seeds: Vec<f64> = (0..self.seeds).map(|s| mean(&of_seed(s))).collect();
        standard_error(&seeds)
    }

    /// The largest figure minus the smallest.
    pub fn spread(&self) -> f64 {
        let (mut min, mut max) = (self.all[0], self.all[0]);
        for &x in &self.all {
            (min, max) = (min.min(x), max.max(x));
        }
        max - min
    }
}

fn mean(all: &[f64]) -> f64 {
    all.iter().sum::<f64>() / all.len() as f64
}

fn standard_error(all: &[f64]) -> f64 {
    let (m, n) = (mean(all), all.len() as f64);
    if n < 2.0 {
        return 0.0;
    }
    (all.iter().map(|x| (x - m) * (x - m)).sum::<f64>() / (n - 1.0) / n).sqrt()
}
