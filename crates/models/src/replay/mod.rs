//! Replays of a block trace on models of drives in virtual time, or on disks in real time
//! ([`RealDisk`]): the figures of each drive and policy.
//!
//! The trace is read once for its survey, and once more for each run of each row. If its lines are
//! far out of order, it is sorted once. Two replays of one trace have the same figures, whatever
//! the order of its lines and the epoch of its times.
//!
//! ```
//! use std::io::Read;
//! use zoneplug_models::replay::{Map, Replay, Speed, Trace};
//! use zoneplug_models::{VirtualDisk, Workers};
//! use zoneplug_models::time::trace::Events;
//! let text = "fio version 2 iolog\nf write 0 65536\nf write 65536 65536\nf read 0 4096\n";
//! let open = || Ok(vec![Box::new(text.as_bytes()) as Box<dyn Read>]);
//! let trace = Trace::new(&open, Events::Queued, None);
//! let disks = [VirtualDisk::parse("sim-smr30").unwrap().unwrap()];
//! let workers = Workers::all(&|| false);
//! let replay = Replay::of(&trace, &disks, &workers).unwrap();
//! let ways = [vec![disks[0].config.clone().into()]];
//! let pace = replay.pace(Speed::Asap, None);
//! let rows = replay.rows(&ways, Map::Auto, pace, 1, &workers).unwrap();
//! assert_eq!((rows[0].writes.operations, rows[0].reads.bytes), (2, 4096));
//! ```

mod beginning;
mod input;
mod order;
mod real;
mod row;
mod run;
mod spread;

pub use beginning::check_beginning;
pub use real::RealDisk;
pub use row::{Changed, FirstRefused, Kind, Latencies, Refused, Row, Spread};
pub use spread::{MAX_REPEAT, rates};

use crate::time::Pace;
use crate::time::trace::{Columns, Events, Fit, Reader, Survey};
use crate::virtual_disk::{VirtualDisk, Way};
use crate::workers::Workers;
use input::Input;
use order::{Ordered, ROOM};
use run::{ReplayPlan, in_virtual_time};
use serde::Serialize;
use std::fmt;
use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use zoneplug_core::Error;

/// Outstanding operations if the times of a trace do not count and no flag gives a number.
const DEPTH: u32 = 32;

/// The speed of a replay.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Speed {
    /// This many times as fast as recorded.
    Times(f64),
    /// As fast as the disk allows: recorded times do not count.
    Asap,
}

impl Speed {
    /// Parses `2.5` or `asap`.
    ///
    /// ```
    /// use zoneplug_models::replay::Speed;
    /// assert_eq!(Speed::parse("2").unwrap(), Speed::Times(2.0));
    /// assert!(Speed::parse("0").is_err());
    /// ```
    pub fn parse(text: &str) -> Result<Speed, Error> {
        if text == "asap" {
            return Ok(Speed::Asap);
        }
        let n = text.parse().ok().filter(|n| (0.001..=1e6).contains(n));
        n.map(Speed::Times).ok_or_else(|| {
            Error::invalid(format!("'{text}' is no speed"))
                .hint("a number from 0.001 to 1000000, or asap")
        })
    }
}

/// How addresses become places in zones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Map {
    /// `Exact` if each write is at the write pointer of its zone, else `Log`.
    Auto,
    /// Addresses stay as they are: the disk refuses writes that are not at a write pointer.
    Exact,
    /// Writes go to the write pointer of the zone of their address, which is reset when it is full.
    Log,
}

impl Map {
    /// All maps.
    pub const ALL: [Map; 3] = [Map::Auto, Map::Exact, Map::Log];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Map::Auto => "auto",
            Map::Exact => "exact",
            Map::Log => "log",
        }
    }

    /// The map with this name.
    pub fn from_name(name: &str) -> Option<Map> {
        Map::ALL.into_iter().find(|m| m.name() == name)
    }
}

/// Opens the files of a trace at their beginnings. blktrace has one for each processor.
pub type Open<'a> = &'a (dyn Fn() -> Result<Vec<Box<dyn Read + 'a>>, Error> + Sync);

/// Bytes read at once, over all files.
const BUFFER: usize = 256 << 10;

/// A trace that is read more than once.
#[derive(Clone, Copy)]
pub struct Trace<'a> {
    open: Open<'a>,
    events: Events,
    device: Option<&'a str>,
    columns: Option<&'a Columns>,
    room: usize,
}

impl fmt::Debug for Trace<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trace").field("device", &self.device).finish_non_exhaustive()
    }
}

impl<'a> Trace<'a> {
    /// A trace, also in gzip. `events` selects which events of the block layer are sent; `device`
    /// selects the operations of one device, as the trace names it.
    pub fn new(open: Open<'a>, events: Events, device: Option<&'a str>) -> Trace<'a> {
        Trace { open, events, device, columns: None, room: ROOM }
    }

    /// Reads the trace as a table with these columns, whatever its titles are.
    pub fn with_columns(self, columns: Option<&'a Columns>) -> Trace<'a> {
        Trace { columns, ..self }
    }

    /// Sets how many operations are sorted in memory. More are sorted through an unnamed file.
    pub fn with_room(self, operations: usize) -> Trace<'a> {
        Trace { room: operations, ..self }
    }

    /// Opens a reader. With `workers` the trace ends early when they are asked to end. Bytes behind the end of gzip data
    /// are added to `behind`.
    fn reader<'b>(
        &self,
        workers: Option<&'b Workers<'_>>,
        behind: &Arc<AtomicU64>,
    ) -> Result<Reader<Input<'b>>, Error>
    where
        'a: 'b,
    {
        let files = (self.open)()?;
        let size = (BUFFER / files.len().max(1)).max(4096);
        let files = files.into_iter().map(|file| input::reader(file, workers, size, behind));
        let files = files.collect::<Result<Vec<_>, _>>()?;
        let reader = Reader::of_files(files, self.events, self.device)?;
        match self.columns {
            Some(columns) => reader.with_columns(columns),
            None => Ok(reader),
        }
    }
}

/// A surveyed trace, and disks for it.
#[derive(Debug)]
pub struct Replay<'a> {
    ordered: Ordered<'a>,
    disks: &'a [VirtualDisk],
    /// The survey of the trace.
    pub survey: Survey,
    /// How the trace fits each disk.
    pub fits: Vec<Fit>,
}

impl<'a> Replay<'a> {
    /// Surveys the trace. If the workers are asked to end meanwhile, the survey covers a part.
    pub fn of(
        trace: &'a Trace<'a>,
        disks: &'a [VirtualDisk],
        workers: &Workers<'_>,
    ) -> Result<Replay<'a>, Error> {
        let fits = || disks.iter().map(|d| Fit::new(d.geometry(), d.limits())).collect();
        Self::fitting(trace, disks, &fits, workers)
    }

    fn fitting(
        trace: &'a Trace<'a>,
        disks: &'a [VirtualDisk],
        fits: &dyn Fn() -> Vec<Fit>,
        workers: &Workers<'_>,
    ) -> Result<Replay<'a>, Error> {
        let (ordered, survey, fits) = Ordered::look(trace, fits, workers)?;
        Ok(Replay { ordered, disks, survey, fits })
    }

    /// Resolves `map` for a disk, by its number. Never returns `Auto`.
    pub fn map_of(&self, disk: usize, map: Map) -> Map {
        match map {
            Map::Auto if self.fits[disk].is_exact() => Map::Exact,
            Map::Auto => Map::Log,
            map => map,
        }
    }

    /// When operations are sent, with at most `iodepth` outstanding. A trace without times is sent
    /// as by a program that waits for each operation.
    pub fn pace(&self, speed: Speed, iodepth: Option<u32>) -> Pace {
        match (speed, self.survey.format.has_times()) {
            (Speed::Asap, _) => Pace { speed: None, window: Some(iodepth.unwrap_or(DEPTH)) },
            (Speed::Times(n), true) => Pace { speed: Some(n), window: iodepth },
            (Speed::Times(n), false) => Pace { speed: Some(n), window: Some(iodepth.unwrap_or(1)) },
        }
    }

    /// The number of runs of each row if `repeat` are asked for: a drive without a head has one.
    pub fn runs_on(rotational: bool, repeat: u32) -> u32 {
        if rotational { repeat } else { 1 }
    }

    /// Replays the trace on each disk, opened in each of its ways. If the workers are asked to end,
    /// the last rows cover the first part of the trace or are missing.
    ///
    /// `repeat` is the number of runs of each row; all runs are spread over the processors. Each
    /// run has another rate of the medium, because a disk's layout of tracks is unknown. With more
    /// than one run a row has the median of each figure, and its `spread`.
    pub fn rows(
        &self,
        ways: &[Vec<Way>],
        map: Map,
        pace: Pace,
        repeat: u32,
        workers: &Workers<'_>,
    ) -> Result<Vec<Row>, Error> {
        let rows: Vec<(usize, usize)> =
            (0..self.disks.len()).flat_map(|d| (0..ways[d].len()).map(move |w| (d, w))).collect();
        let runs = rows.iter().enumerate().flat_map(|(row, (d, _))| {
            let rates = rates(Self::runs_on(self.disks[*d].rotational(), repeat.max(1)));
            rates.into_iter().map(move |ppm| (row, ppm))
        });
        let runs: Vec<(usize, u32)> = runs.collect();
        let done = workers.spread(runs.len(), |i| {
            let (row, ppm) = runs[i];
            let (d, w) = rows[row];
            let disk = self.disks[d].with_rate(ppm);
            let (fit, map) = (&self.fits[d], self.map_of(d, map));
            let plan = ReplayPlan { fit, limits: disk.limits(), map, pace };
            let ran = in_virtual_time(&self.ordered, &plan, &disk, &ways[d][w], workers)?;
            Ok((row, ppm, ran, workers.is_asked()))
        })?;
        let mut of_rows: Vec<Vec<(u32, Row, bool)>> = rows.iter().map(|_| Vec::new()).collect();
        for (row, ppm, ran, is_cut) in done {
            of_rows[row].push((ppm, ran, is_cut));
        }
        let joined = of_rows.into_iter().filter_map(|mut runs| {
            // Runs that were cut short are dropped if another run of the row is complete.
            match runs.iter().any(|(.., is_cut)| !is_cut) {
                true => runs.retain(|(.., is_cut)| !is_cut),
                false => runs.truncate(1),
            }
            let mut runs: Vec<(u32, Row)> =
                runs.into_iter().map(|(ppm, row, _)| (ppm, row)).collect();
            if repeat > 1 { Row::of_runs(&runs) } else { runs.pop().map(|(_, row)| row) }
        });
        Ok(joined.collect())
    }
}
