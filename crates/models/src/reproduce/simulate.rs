//! Runs the cells of modelled tables in virtual time, over geometries and seeds, on all processors.
//! A figure follows from its cell, geometry and seed alone, so the thread and the time of a run
//! make no difference.

use super::client::Modelled;
use super::outcome::{CellRuns, Run};
use super::published::{Expect, How, Table};
use crate::time::{self, Adapter, Client, ClientReport, GEOMETRIES, Layer, Report, SEEDS, Unit};
use crate::virtual_disk::layer_name;
use crate::watch::Watch;
use crate::work::seed_of_disk;
use crate::workers::Workers;
use zoneplug_core::disk::DiskConfig;
use zoneplug_core::form::Form;
use zoneplug_core::sched::Scheduler;
use zoneplug_core::{Error, ErrorKind, Nanos};
use zoneplug_devices::emu::timing::{Model, Profile};
use zoneplug_devices::spec::Spec;
use zoneplug_host::take_config;

/// A cell with more drives than this runs once.
const MANY: u32 = 4;

/// A cell ready to run.
#[derive(Debug, PartialEq)]
struct Ready {
    cell: time::Cell,
    client: Modelled,
    profile: Profile,
    config: DiskConfig,
    one_writer: bool,
    adapter: Option<Adapter>,
    /// The processor time of its scheduler for each command.
    scheduler_time: Nanos,
    unit: &'static str,
}

/// A planned run: its cell, the rate of the medium and the seed.
#[derive(Debug)]
struct Todo {
    cell: usize,
    ppm: u32,
    seed: u64,
}

/// Modelled tables, in order, with all planned runs.
#[derive(Debug)]
pub struct Plan {
    cells: Vec<Option<Ready>>,
    runs: Vec<CellRuns>,
    /// Pairs of an earlier cell and an equal later one, which shares its runs.
    same: Vec<(usize, usize)>,
    todo: Vec<Todo>,
    /// The number of cells of each table.
    lengths: Vec<usize>,
}

/// Selects the run times and the host of a profile and a client.
fn kind(profile: &Profile, client: &Modelled) -> Result<time::Table, Error> {
    Ok(match (profile.name.as_str(), client.workload) {
        ("smr30", time::Workload::Sequential { .. }) => time::Table::Smr30Sequential,
        ("smr30", _) => time::Table::Smr30Random,
        ("smr20", _) => time::Table::Smr20,
        ("smr14", _) => time::Table::Smr14,
        ("zns1", _) => time::Table::Zns1,
        (name, _) => {
            let e = Error::new(ErrorKind::NotFound, format!("no table is of the drive {name}"));
            return Err(e.hint("one of smr30, smr20, smr14, zns1"));
        }
    })
}

fn ready(
    table: &Table,
    options: &str,
    client: Modelled,
    unit: &'static str,
) -> Result<Ready, Error> {
    let mut spec = Spec::parse(&format!("{},{options}", table.drive))?;
    let profile = Profile::from_spec(&mut spec).ok_or_else(|| {
        Error::invalid(format!("{} is no drive that is modelled", table.drive))
            .hint("sim- and the name of a profile")
    })??;
    let config = take_config(&mut spec)?;
    // Gives several drives one writer, as if the engine did not know which zones share a head.
    let one_writer = spec.take_as("one-writer", &Form::Flag)?.is_some_and(|v| v.number() == 1);
    let adapter = Adapter::of_drive(&mut spec)?;
    let time = spec.take_as("scheduler-time", &Form::Time { min: 0, max: 1_000_000 })?;
    let scheduler_time = Nanos(time.map_or(0, |v| v.number()));
    spec.finish()?;
    let cell = time::Cell {
        table: kind(&profile, &client)?,
        name: "",
        layer: Layer::Baseline,
        workload: client.workload,
        published: 0.0,
        unit: Unit::MbPerS,
        expect: time::Expect::Not(""),
        calibrates: false,
    };
    Ok(Ready { cell, client, profile, config, one_writer, adapter, scheduler_time, unit })
}

impl Plan {
    /// Plans the runs of these tables; `quick`: one geometry and one seed of each cell.
    pub fn new(tables: &[&Table], quick: bool) -> Result<Plan, Error> {
        let mut plan = Plan {
            cells: Vec::new(),
            runs: Vec::new(),
            same: Vec::new(),
            todo: Vec::new(),
            lengths: Vec::new(),
        };
        for table in tables.iter().filter(|t| t.how == How::Model) {
            plan.lengths.push(table.rows.len() * table.columns.len());
            for row in &table.rows {
                for (cell, column) in row.cells.iter().zip(&table.columns) {
                    let number = plan.cells.len();
                    let client = Modelled::parse(cell.client)?;
                    let mut runs = CellRuns { client: client.name(), ..CellRuns::default() };
                    if matches!(cell.expect, Expect::Not(_)) {
                        plan.cells.push(None);
                        plan.runs.push(runs);
                        continue;
                    }
                    let ready = ready(table, column.options, client, row.unit)?;
                    let turns = matches!(ready.profile.model, Model::Smr(_));
                    runs.layer = layer_name(&ready.config, turns);
                    let ready = Some(ready);
                    if let Some(first) = plan.cells.iter().position(|c| *c == ready) {
                        plan.same.push((first, number));
                        plan.cells.push(None);
                        plan.runs.push(runs);
                        continue;
                    }
                    // Many drives, each with its own seed, need no repeats.
                    let once = quick || client.disks * client.drives > MANY;
                    let geometries = if turns && !once { &GEOMETRIES[..] } else { &[1_000_000] };
                    let seeds = if client.draws() && !once { &SEEDS[..] } else { &SEEDS[..1] };
                    for &ppm in geometries {
                        plan.todo.extend(seeds.iter().map(|&seed| Todo {
                            cell: number,
                            ppm,
                            seed,
                        }));
                    }
                    plan.cells.push(ready);
                    plan.runs.push(runs);
                }
            }
        }
        Ok(plan)
    }

    /// Whether no run is planned.
    pub fn is_empty(&self) -> bool {
        self.todo.is_empty()
    }

    /// The number of planned runs.
    pub fn len(&self) -> usize {
        self.todo.len()
    }

    /// Runs all, and calls `done` after each run, from any thread. Returns the cells of each table.
    /// If asked to end, leaves out runs that had not ended.
    pub fn go(
        mut self,
        workers: &Workers<'_>,
        done: impl Fn() + Sync,
    ) -> Result<Vec<Vec<CellRuns>>, Error> {
        let (todo, cells) = (&self.todo, &self.cells);
        let found = workers.spread(todo.len(), |i| {
            let t = &todo[i];
            let Some(ready) = cells[t.cell].as_ref() else { return Ok(None) };
            let run = ready.run(t.ppm, t.seed, workers)?;
            done();
            Ok(run.map(|run| (t.cell, run)))
        })?;
        let mut found: Vec<(usize, Run)> = found.into_iter().flatten().collect();
        // The results get the order of the plan, whichever thread ran them.
        found.sort_by_key(|(cell, r)| (*cell, r.geometry_ppm, r.seed));
        for (cell, run) in found {
            self.runs[cell].runs.push(run);
        }
        for (first, cell) in self.same {
            self.runs[cell].runs = self.runs[first].runs.clone();
        }
        let mut rest = self.runs.into_iter();
        Ok(self.lengths.iter().map(|&n| rest.by_ref().take(n).collect()).collect())
    }
}

impl Ready {
    /// Runs the cell once. `None` if the workers are asked to end meanwhile.
    fn run(&self, ppm: u32, seed: u64, workers: &Workers<'_>) -> Result<Option<Run>, Error> {
        let profile = self.profile.with_rate(ppm);
        let times = self.cell.table.times().with_scheduler(self.scheduler_time);
        let (mut run, mut clients) = self.cell.run_above(&profile, times, seed);
        run.disk = self.config.clone();
        (run.drives, run.one_writer) = (self.client.drives, self.one_writer);
        (run.disks, run.adapter) = (self.client.disks, self.adapter);
        run.warm_up = self.client.warm_up.unwrap_or(run.warm_up);
        run.length = self.client.length.unwrap_or(run.length);
        if self.config.scheduler != Scheduler::None {
            // Linux gives a scheduler twice the tags of the device, at most 256.
            run.disk.queue_depth = u32::from(run.tags);
            run.tags = 2 * run.tags.min(128);
        }
        // A run assigns its clients to the disks in turns.
        let disks = self.client.disks;
        let seeds = || (0..disks).map(|disk| seed_of_disk(seed, disk));
        for seed in seeds().skip(1) {
            clients.extend(self.client.workload.clients(&times, seed));
        }
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
        // The worst latency of several clients.
        let ms = |permille| {
            counted.iter().map(|c| c.latency(permille).0 as f64 / 1e6).fold(0.0, f64::max)
        };
        Ok(Some(Run {
            geometry_ppm: ppm,
            seed,
            // A faster medium raises the figure by the same ratio. Dividing by it leaves only the
            // effect of the layout of tracks.
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
            return Err(Error::invalid(format!("no figure is in {unit}")).hint("MB/s, IOPS, KIOPS"));
        }
    })
}

#[cfg(test)]
mod tests {
    use super::super::published::tables;
    use super::*;

    /// The cells in `time` agree with the published tables.
    #[test]
    fn the_models_cells_are_those_of_the_published_tables() {
        let tables = tables().unwrap();
        let mut seen = 0;
        for cell in time::Cell::all() {
            let (table, column) = match (cell.table, cell.layer) {
                (time::Table::Smr30Sequential, Layer::Baseline) => ("smr30-seq", "baseline"),
                (time::Table::Smr30Sequential, Layer::SingleWriter) => ("smr30-seq", "patched"),
                (time::Table::Smr30Random, Layer::Baseline) => ("smr30-random", "baseline"),
                (time::Table::Smr30Random, Layer::SingleWriter) => ("smr30-random", "patched"),
                (time::Table::Zns1, _) => ("zns", "plug-none"),
                (time::Table::Smr20, _) => ("smr20", "plug-none"),
                (time::Table::Smr14, _) => continue,
            };
            let t = tables.iter().find(|t| t.name == table).unwrap();
            let c = t.column(column).unwrap();
            let row = t.rows.iter().find(|r| r.name == cell.name).unwrap();
            let ours = row.cells[c];
            let what = format!("{table} {column} {}", cell.name);
            assert_eq!(ours.published, Some(cell.published), "{what}");
            assert_eq!(Modelled::parse(ours.client).unwrap().workload, cell.workload, "{what}");
            let same = match (ours.expect, cell.expect) {
                (Expect::Band(a), time::Expect::Within(b)) => a == b,
                (Expect::Shape(_), time::Expect::Shape(_)) => true,
                (Expect::Not(_), time::Expect::Not(_)) => true,
                _ => false,
            };
            assert!(same, "{what}: {:?} and {:?}", ours.expect, cell.expect);
            seen += 1;
        }
        assert_eq!(seen, 44);
    }

    /// Two runs on several threads give equal results.
    #[test]
    fn who_runs_a_cell_makes_no_difference() {
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
