//! What Python calls. The package's `models.py` gives these functions their defaults and their documentation.

use super::call::Call;
use super::policy::own;
use crate::error::failed;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyRange, PyString};
use serde::Serialize;
use std::io::Read;
use std::path::PathBuf;
use std::sync::Arc;
use zoneplug_core::disk::Mode;
use zoneplug_core::sched::Scheduler;
use zoneplug_core::{Error, ErrorKind, Nanos};
use zoneplug_models::measure::{Names, Workload, check};
use zoneplug_models::replay::{Map, Replay, Speed, Trace};
use zoneplug_models::reproduce::{How, Plan, Report, TableReport, chosen, tables};
use zoneplug_models::time::trace::{Columns, Events};
use zoneplug_models::work::Rw;
use zoneplug_models::{VirtualDisk, Writer, scheduler, ways};
use zoneplug_sim::Worlds;

/// The names of the arguments of a workload.
const NAMES: Names = Names { bs: "block_bytes", rw: "rw", zone_lock: "zone_lock" };

/// Plain data: dictionaries, lists, numbers, texts.
fn plain<'py>(py: Python<'py>, data: &impl Serialize) -> PyResult<Bound<'py, PyAny>> {
    let text = serde_json::to_string(data).map_err(|e| {
        failed(py, &Error::new(ErrorKind::Io, "figures that are no data").source(e))
    })?;
    py.import("json")?.call_method1("loads", (text,))
}

fn disk(spec: &str) -> Result<VirtualDisk, Error> {
    VirtualDisk::parse(spec)?.ok_or_else(|| {
        Error::invalid(format!("{spec} is no disk with the times of a drive"))
            .hint("sim-smr30, sim-smr20, sim-smr14, sim-zns1, or sim,profile=FILE")
    })
}

/// What one of `names` stands for.
fn named<T>(what: &str, name: &str, found: Option<T>, names: &[&str]) -> Result<T, Error> {
    found.ok_or_else(|| {
        Error::invalid(format!("'{name}' is no {what}"))
            .hint(format!("one of {}", names.join(", ")))
    })
}

fn mode(name: &str) -> Result<Mode, Error> {
    named("mode", name, Mode::from_name(name), &Mode::ALL.map(Mode::name))
}

fn checked<T>(py: Python<'_>, result: Result<T, Error>) -> PyResult<T> {
    result.map_err(|e| failed(py, &e))
}

/// The single writers that policies are, and whether one of them is in Python.
fn writers(
    py: Python<'_>,
    policies: &[Bound<'_, PyAny>],
    call: &Arc<Call>,
) -> PyResult<(Vec<Writer>, bool)> {
    let mut in_python = false;
    let writer = |policy: &Bound<'_, PyAny>| {
        if let Ok(name) = policy.cast::<PyString>() {
            return checked(py, Writer::parse(name.to_str()?));
        }
        in_python = true;
        own(policy, call).map(Writer::Own)
    };
    let writers = policies.iter().map(writer).collect::<PyResult<_>>()?;
    Ok((writers, in_python))
}

/// A count from 1 on.
fn count(name: &str, n: u64, most: u64) -> Result<u32, Error> {
    if (1..=most).contains(&n) {
        return Ok(n as u32);
    }
    Err(Error::invalid(format!("{name} is from 1 to {most}, not {n}")).hint(format!("{name}=1")))
}

/// Sectors of so many bytes.
fn sectors(name: &str, bytes: u64) -> Result<u32, Error> {
    if bytes > 0 && bytes.is_multiple_of(512) && bytes <= 1 << 30 {
        return Ok((bytes / 512) as u32);
    }
    Err(Error::invalid(format!("{name} is no length of a BIO: {bytes}"))
        .hint("a multiple of 512 bytes, up to 16 MiB"))
}

fn seconds(name: &str, s: f64) -> Result<Nanos, Error> {
    if (0.0..=86_400.0).contains(&s) {
        return Ok(Nanos((s * 1e9) as u64));
    }
    Err(Error::invalid(format!("{name} is from 0 to 86400 s, not {s}")).hint(format!("{name}=10")))
}

/// The load of `measure`, besides its disk.
struct Load<'a> {
    rw: &'a str,
    block_bytes: u64,
    iodepth: u64,
    jobs: u64,
    zones: Option<u64>,
    zone_lock: bool,
    reads: Option<u64>,
    read_block_bytes: Option<u64>,
    warm_up_s: Option<f64>,
    runtime_s: Option<f64>,
    seed: u64,
}

impl Load<'_> {
    fn workload(&self, disk: &VirtualDisk) -> Result<Workload, Error> {
        let rw = named("workload", self.rw, Rw::from_name(self.rw), &Rw::ALL.map(Rw::name))?;
        let mut load = Workload::new(disk, rw);
        load.work.block_sectors = sectors("block_bytes", self.block_bytes)?;
        load.work.depth = count("iodepth", self.iodepth, 65_535)?;
        load.jobs = count("jobs", self.jobs, 64)?;
        load.zones = self.zones.map(|n| count("zones", n, 1_000_000)).transpose()?;
        (load.zone_lock, load.seed) = (self.zone_lock, self.seed);
        match (self.reads, self.read_block_bytes) {
            (Some(n), bytes) => {
                let block = sectors("read_block_bytes", bytes.unwrap_or(4096))?;
                load.read_beside(count("reads", n, 65_535)?, block);
            }
            (None, Some(_)) => {
                return Err(Error::invalid("read_block_bytes without reads").hint("reads=1"));
            }
            (None, None) => {}
        }
        if let Some(s) = self.runtime_s {
            let length = seconds("runtime_s", s)?;
            if length < Nanos(1_000_000) {
                return Err(Error::invalid("runtime_s is less than 1 ms").hint("runtime_s=10"));
            }
            load.last(length);
        }
        if let Some(s) = self.warm_up_s {
            load.warm_up = seconds("warm_up_s", s)?;
        }
        load.check(&NAMES)?;
        Ok(load)
    }
}

/// One row of `zoneplug-lab bench` in virtual time.
#[pyfunction]
#[allow(clippy::too_many_arguments)] // each is one of Python's
pub(crate) fn _measure<'py>(
    py: Python<'py>,
    spec: &str,
    rw: &str,
    block_bytes: u64,
    iodepth: u64,
    jobs: u64,
    zones: Option<u64>,
    zone_lock: bool,
    reads: Option<u64>,
    read_block_bytes: Option<u64>,
    warm_up_s: Option<f64>,
    runtime_s: Option<f64>,
    policy: Option<Bound<'py, PyAny>>,
    scheduling: Option<&str>,
    order: Option<&str>,
    tags: Option<u64>,
    seed: u64,
) -> PyResult<Bound<'py, PyAny>> {
    let call = Arc::new(Call::new());
    let (writers, _) = writers(py, policy.as_slice(), &call)?;
    let load = Load {
        rw,
        block_bytes,
        iodepth,
        jobs,
        zones,
        zone_lock,
        reads,
        read_block_bytes,
        warm_up_s,
        runtime_s,
        seed,
    };
    let row = call.compute(py, 1, |workers| {
        let mut disk = disk(spec)?;
        if let Some(n) = tags {
            disk.tags = Some(count("tags", n, 4096)? as u16);
        }
        let load = load.workload(&disk)?;
        let schedulers: Vec<Scheduler> =
            scheduling.map(scheduler).transpose()?.into_iter().collect();
        let modes: Vec<Mode> = order.map(mode).transpose()?.into_iter().collect();
        let way = ways(&disk.config, &modes, &schedulers, &writers)?.swap_remove(0);
        let (geometry, limits) = (disk.geometry(), disk.limits());
        check(load.work, geometry, limits, way.config.mode, &NAMES)?;
        load.run(&disk, &way, workers, None)
    })?;
    plain(py, &row)
}

/// The rows of `zoneplug-lab replay`. The trace is a path or a text.
#[pyfunction]
#[allow(clippy::too_many_arguments)] // each is one of Python's
pub(crate) fn _replay<'py>(
    py: Python<'py>,
    path: Option<PathBuf>,
    text: Option<PyBackedBytes>,
    specs: Vec<String>,
    policies: Vec<Bound<'py, PyAny>>,
    schedulers: Vec<String>,
    modes: Vec<String>,
    speed: &str,
    iodepth: Option<u64>,
    map: &str,
    events: &str,
    device: Option<&str>,
    columns: Option<&str>,
    threads: usize,
) -> PyResult<Bound<'py, PyAny>> {
    let call = Arc::new(Call::new());
    let (writers, in_python) = writers(py, &policies, &call)?;
    // A policy in Python runs in the thread that called, so that it sees that thread's signals.
    let threads = if in_python { 1 } else { threads };
    let rows = call.compute(py, threads, |workers| {
        let disks = specs.iter().map(|s| disk(s)).collect::<Result<Vec<_>, _>>()?;
        let schedulers = schedulers.iter().map(|s| scheduler(s)).collect::<Result<Vec<_>, _>>()?;
        let modes = modes.iter().map(|m| mode(m)).collect::<Result<Vec<_>, _>>()?;
        let speed = Speed::parse(speed)?;
        let iodepth = iodepth.map(|n| count("iodepth", n, 30_000)).transpose()?;
        let map = named("map", map, Map::from_name(map), &Map::ALL.map(Map::name))?;
        let of = match events {
            "q" => Some(Events::Queued),
            "d" => Some(Events::Issued),
            _ => None,
        };
        let events = named("kind of event", events, of, &["q", "d"])?;
        let open = || -> Result<Vec<Box<dyn Read + '_>>, Error> {
            match (&path, &text) {
                (Some(path), _) => match zoneplug_host::open_regular(path) {
                    Ok(file) => Ok(vec![Box::new(file)]),
                    Err(e) => Err(Error::new(
                        ErrorKind::NotFound,
                        format!("reading {}: {e}", path.display()),
                    )
                    .hint("a file of blktrace, or the output of blkparse or of fio --write_iolog")
                    .source(e)),
                },
                (None, Some(text)) => Ok(vec![Box::new(&text[..])]),
                (None, None) => Ok(Vec::new()),
            }
        };
        let columns = columns.map(Columns::parse).transpose()?;
        let trace = Trace::new(&open, events, device).with_columns(columns.as_ref());
        let replay = Replay::of(&trace, &disks, workers)?;
        let ways = disks.iter().map(|d| ways(&d.config, &modes, &schedulers, &writers));
        let ways = ways.collect::<Result<Vec<_>, _>>()?;
        replay.rows(&ways, map, replay.pace(speed, iodepth), 1, workers)
    })?;
    plain(py, &rows)
}

/// The document of `zoneplug-lab reproduce`, for tables that are simulated.
#[pyfunction]
pub(crate) fn _reproduce(
    py: Python<'_>,
    names: Vec<String>,
    quick: bool,
    threads: usize,
) -> PyResult<Bound<'_, PyAny>> {
    let call = Call::new();
    let report = call.compute(py, threads, |workers| {
        let all = tables()?;
        let tables = chosen(&all, &names, names.is_empty())?;
        if let Some(t) = tables.iter().find(|t| t.how == How::Measure) {
            let what = format!("the table {} is of processor time, not of a model", t.name);
            return Err(Error::new(ErrorKind::NotSupported, what)
                .hint(format!("zoneplug-lab reproduce {}", t.name)));
        }
        let runs = Plan::new(&tables, quick)?.go(workers, || ())?;
        let reports = tables.iter().zip(runs).map(|(table, runs)| {
            let report = TableReport::new(table, runs);
            if quick { report.without_judgement() } else { report }
        });
        Ok(Report::new(reports.collect(), quick, false))
    })?;
    plain(py, &report)
}

/// A world that broke a promise.
#[derive(Serialize)]
struct Broken {
    seed: u64,
    what: String,
    command: String,
}

/// The tally of `zoneplug-lab sim`, with the worlds that broke a promise.
#[pyfunction]
pub(crate) fn _simulate<'py>(
    py: Python<'py>,
    seeds: &Bound<'py, PyAny>,
    stop_at_first: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let seeds: Box<dyn Iterator<Item = u64> + Send> = match seeds.cast::<PyRange>() {
        Ok(range) => {
            // A range is not made a list: it may be long.
            let get = |name: &str| range.getattr(name)?.extract::<i64>();
            let (start, n) = (get("start")?, range.len()?);
            let step = get("step")?;
            let last = start as i128 + step as i128 * (n.max(1) as i128 - 1);
            if n > 0 && (start < 0 || last < 0) {
                return Err(failed(py, &Error::invalid("a seed below 0").hint("seeds from 0 on")));
            }
            Box::new((0..n as i64).map(move |i| (start + step * i) as u64))
        }
        Err(_) => Box::new(
            seeds.try_iter()?.map(|n| n?.extract()).collect::<PyResult<Vec<u64>>>()?.into_iter(),
        ),
    };
    let call = Call::new();
    let worlds = call
        .compute(py, 1, |workers| Ok(Worlds::run(seeds, stop_at_first, |_| !workers.is_asked())))?;
    let broken: Vec<Broken> = worlds
        .broken
        .iter()
        .map(|f| Broken {
            seed: f.seed,
            what: f.what.clone(),
            command: format!("zoneplug-lab sim --seed {}", f.seed),
        })
        .collect();
    let data = plain(py, &worlds.summary(false))?;
    data.set_item("broken", plain(py, &broken)?)?;
    Ok(data)
}
