//! Runs the cells of modelled tables in virtual time, over geometries and seeds, on all processors.
//! A figure depends only on its cell, geometry and seed, not on the thread that computes it or on
//! when.

use super::client::Modelled;
use super::outcome::{CellRuns, Run};
use super::published::{Expect, How, Table};
use crate::time::{
    self, Adapter, Client, ClientReport, GEOMETRIES, HostTimes, Report, SEEDS, Workload,
};
use crate::virtual_disk::layer_name;
use crate::watch::Watch;
use crate::work::seed_of_disk;
use crate::workers::Workers;
use zoneplug_core::disk::DiskConfig;
use zoneplug_core::form::Form;
use zoneplug_core::{Error, Nanos};
use zoneplug_devices::emu::timing::{Model, Profile};
use zoneplug_devices::spec::Spec;
use zoneplug_host::take_config;

/// A cell with more drives than this runs once.
const MANY: u32 = 4;

/// A client on a drive: how a cell of a modelled table is run.
///
/// ```
/// use zoneplug_models::reproduce::{Simulation, mean};
/// let text = "sim-zns1,mode=plug";
/// let simulation = Simulation::parse(text, "seq,bs=1M,depth=1", "MB/s").unwrap();
/// let ours = mean(&simulation.over(&simulation.repeats()).unwrap());
/// assert!((ours / 1083.0 - 1.0).abs() < 0.06);
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Simulation {
    /// The client.
    pub client: Modelled,
    /// The drive.
    pub profile: Profile,
    config: DiskConfig,
    one_writer: bool,
    adapter: Option<Adapter>,
    /// The processor time of the disk's scheduler for each command.
    scheduler_time: Nanos,
    unit: &'static str,
}

/// A planned run.
#[derive(Debug)]
struct PlannedRun {
    /// The number of the cell in the plan.
    cell: usize,
    /// The rate of the medium, in millionths of the model's.
    ppm: u32,
    seed: u64,
}

/// Modelled tables, in order, with all planned runs.
#[derive(Debug)]
pub struct Plan {
    cells: Vec<Option<Simulation>>,
    runs: Vec<CellRuns>,
    /// Pairs of equal cells, the earlier one first. The later one gets a copy of its results.
    equal: Vec<(usize, usize)>,
    planned: Vec<PlannedRun>,
    /// The number of cells of each table.
    lengths: Vec<usize>,
}

impl Simulation {
    /// Parses a simulation. The arguments have the form of the published tables: `drive` with the
    /// options of a column, `client` and `unit` as in a row.
    pub fn parse(drive: &str, client: &str, unit: &'static str) -> Result<Simulation, Error> {
        let mut spec = Spec::parse(drive)?;
        let profile = Profile::from_spec(&mut spec).ok_or_else(|| {
            Error::invalid(format!("{} is not a modelled drive", spec.kind()))
                .hint("sim- and the name of a profile")
        })??;
        let config = take_config(&mut spec)?;
        // Gives several drives one writer, as if the engine did not know which zones share a head.
        let one_writer = spec.take_as("one-writer", &Form::Flag)?.is_some_and(|v| v.number() == 1);
        let adapter = Adapter::of_drive(&mut spec)?;
        let time = spec.take_as("scheduler-time", &Form::Time { min: 0, max: 1_000_000 })?;
        let scheduler_time = Nanos(time.map_or(0, |v| v.number()));
        spec.finish()?;
        let client = Modelled::parse(client)?;
        Ok(Simulation { client, profile, config, one_writer, adapter, scheduler_time, unit })
    }

    /// The simulation of a cell: a row and a column of a modelled table, by number.
    pub fn of(table: &Table, row: usize, column: usize) -> Result<Simulation, Error> {
        let (row, options) = (&table.rows[row], table.columns[column].options);
        let drive = format!("{},{options}", table.drive);
        Simulation::parse(&drive, row.cells[column].client, row.unit)
    }

    /// Returns the rate of the medium and the seed of each run. A figure is the mean of these runs.
    pub fn repeats(&self) -> Vec<(u32, u64)> {
        let rotates = matches!(self.profile.model, Model::Smr(_));
        let geometries = if rotates { &GEOMETRIES[..] } else { &[1_000_000] };
        let seeds = if self.client.draws() { &SEEDS[..] } else { &SEEDS[..1] };
        geometries.iter().flat_map(|&ppm| seeds.iter().map(move |&seed| (ppm, seed))).collect()
    }

    /// Runs over rates of the medium and seeds, on this thread.
    pub fn over(&self, repeats: &[(u32, u64)]) -> Result<Vec<Run>, Error> {
        let one = Workers::all(&|| false);
        let runs = repeats.iter().map(|&(ppm, seed)| self.run(ppm, seed, &one));
        runs.filter_map(Result::transpose).collect()
    }

    /// The time before measuring starts, and the time measured.
    fn times(&self) -> (Nanos, Nanos) {
        let ms = |n: u64| Nanos(n * 1_000_000);
        let usual = match (&self.profile.model, self.client.workload) {
            (Model::Zns(_), _) => (ms(20), ms(300)),
            (_, Workload::Sequential { .. }) => (ms(3_000), ms(12_000)),
            _ if self.profile.name == "smr30" => (ms(5_000), ms(40_000)),
            // The warm-up lasts until a large write cache is full.
            (_, Workload::Random { bs: 4096, .. }) => (ms(15_000), ms(10_000)),
            _ => (ms(15_000), ms(20_000)),
        };
        (self.client.warm_up.unwrap_or(usual.0), self.client.length.unwrap_or(usual.1))
    }
}

impl Plan {
    /// Plans the runs of these tables; `quick`: one geometry and one seed of each cell.
    pub fn new(tables: &[&Table], quick: bool) -> Result<Plan, Error> {
        let mut plan = Plan {
            cells: Vec::new(),
            runs: Vec::new(),
            equal: Vec::new(),
            planned: Vec::new(),
            lengths: Vec::new(),
        };
        for table in tables.iter().filter(|t| t.how == How::Model) {
            plan.lengths.push(table.rows.len() * table.columns.len());
            for (r, row) in table.rows.iter().enumerate() {
                for (c, cell) in row.cells.iter().enumerate() {
                    let number = plan.cells.len();
                    let client = Modelled::parse(cell.client)?;
                    let mut runs = CellRuns { client: client.name(), ..CellRuns::default() };
                    if matches!(cell.expect, Expect::Not(_)) {
                        plan.cells.push(None);
                        plan.runs.push(runs);
                        continue;
                    }
                    let simulation = Simulation::of(table, r, c)?;
                    let rotates = matches!(simulation.profile.model, Model::Smr(_));
                    runs.layer = layer_name(&simulation.config, rotates);
                    let mut repeats = simulation.repeats();
                    let simulation = Some(simulation);
                    if let Some(first) = plan.cells.iter().position(|c| *c == simulation) {
                        plan.equal.push((first, number));
                        plan.cells.push(None);
                        plan.runs.push(runs);
                        continue;
                    }
                    // Many drives, each with its own seed, need no repeats.
                    if quick || client.disks * client.drives > MANY {
                        repeats = vec![(1_000_000, SEEDS[0])];
                    }
                    let planned = |(ppm, seed)| PlannedRun { cell: number, ppm, seed };
                    plan.planned.extend(repeats.into_iter().map(planned));
                    plan.cells.push(simulation);
                    plan.runs.push(runs);
                }
            }
        }
        Ok(plan)
    }

    /// Whether no run is planned.
    pub fn is_empty(&self) -> bool {
        self.planned.is_empty()
    }

    /// The number of planned runs.
    pub fn len(&self) -> usize {
        self.planned.len()
    }

    /// Carries out all planned runs, and calls `done` after each, from any thread. Returns the
    /// cells of each table. If the workers are asked to end, leaves out the runs that have not
    /// ended.
    pub fn go(
        mut self,
        workers: &Workers<'_>,
        done: impl Fn() + Sync,
    ) -> Result<Vec<Vec<CellRuns>>, Error> {
        let (planned, cells) = (&self.planned, &self.cells);
        let found = workers.spread(planned.len(), |i| {
            let p = &planned[i];
            let Some(simulation) = cells[p.cell].as_ref() else { return Ok(None) };
            let run = simulation.run(p.ppm, p.seed, workers)?;
            done();
            Ok(run.map(|run| (p.cell, run)))
        })?;
        let mut found: Vec<(usize, Run)> = found.into_iter().flatten().collect();
        // Threads return results in any order; the order of the plan is restored here.
        found.sort_by_key(|(cell, r)| (*cell, r.geometry_ppm, r.seed));
        for (cell, run) in found {
            self.runs[cell].runs.push(run);
        }
        for (first, cell) in self.equal {
            self.runs[cell].runs = self.runs[first].runs.clone();
        }
        let mut rest = self.runs.into_iter();
        Ok(self.lengths.iter().map(|&n| rest.by_ref().take(n).collect()).collect())
    }
}

impl Simulation {
    /// Runs once. Returns `None` if the workers are asked to end meanwhile.
    fn run(&self, ppm: u32, seed: u64, workers: &Workers<'_>) -> Result<Option<Run>, Error> {
        let times = HostTimes::of(&self.profile).with_scheduler(self.scheduler_time);
        let mut run = time::Run::on(self.profile.with_rate(ppm), self.config.clone());
        (run.drives, run.one_writer) = (self.client.drives, self.one_writer);
        (run.disks, run.adapter) = (self.client.disks, self.adapter);
        (run.warm_up, run.length) = self.times();
        // `Run` assigns client i to disk i modulo the number of disks.
        let disks = self.client.disks;
        let seeds = || (0..disks).map(|disk| seed_of_disk(seed, disk));
        let writers = seeds().flat_map(|seed| self.client.workload.clients(&times, seed));
        let mut clients: Vec<_> = writers.collect();
        clients.extend(seeds().filter_map(|seed| self.client.reader(&times, seed)));
        let mut all: Vec<&mut dyn Client> = Vec::with_capacity(clients.len() + 1);
        for client in &mut clients {
            all.push(&mut **client);
        }
        let mut watch = Watch(*workers);
        all.push(&mut watch);
        let report = run.go_with(&mut all)?;
        if workers.is_asked() {
            return Ok(None);
        }
        let (writers, readers) = report.clients.split_at(disks as usize);
        let counted = if self.unit.starts_with("read ") { readers } else { writers };
        // With several clients, the worst latency counts.
        let ms = |permille| {
            counted.iter().map(|c| c.latency(permille).0 as f64 / 1e6).fold(0.0, f64::max)
        };
        Ok(Some(Run {
            geometry_ppm: ppm,
            seed,
            // A faster medium raises the figure by the same ratio. The division removes that, so
            // only the effect of the track layout remains.
            value: figure(&report, counted, self.unit)? * 1e6 / f64::from(ppm),
            p99_ms: ms(990),
            max_ms: ms(1000),
            command_bytes: report.mean_command(),
        }))
    }
}

/// The figure of some clients of a report.
fn figure(report: &Report, clients: &[ClientReport], unit: &str) -> Result<f64, Error> {
    let seconds = report.length.0 as f64 / 1e9;
    let bytes: u64 = clients.iter().map(|c| c.bytes).sum();
    let bios: u64 = clients.iter().map(|c| c.bios).sum();
    let iops = bios as f64 / seconds;
    Ok(match unit.trim_start_matches("read ") {
        "MB/s" => bytes as f64 / seconds / 1e6,
        "IOPS" => iops,
        "KIOPS" => iops / 1e3,
        _ => {
            return Err(
                Error::invalid(format!("figures have no unit {unit}")).hint("MB/s, IOPS, KIOPS")
            );
        }
    })
}

#[cfg(test)]
mod tests {
    use super::super::published::tables;
    use super::*;

    #[test]
    fn the_thread_of_a_run_makes_no_difference() {
        let tables = tables().unwrap();
        let zns = tables.iter().find(|t| t.name == "append-zns").unwrap();
        let go = || Plan::new(&[zns], true).unwrap().go(&Workers::all(&|| false), || ()).unwrap();
        let (a, b) = (go(), go());
        assert_eq!(a.len(), 1);
        for (a, b) in a[0].iter().zip(&b[0]) {
            assert_eq!(a.runs, b.runs);
            assert_eq!(a.runs.len(), 1);
        }
    }
}
