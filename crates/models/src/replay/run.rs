//! One trace on one disk, opened in one way. Owns the figures while it runs.

use super::spread::Spread;
use super::{Map, Trace};
use crate::status_key::by_status;
use crate::virtual_disk::{VirtualDisk, Way};
use crate::workers::Workers;
use hdrhistogram::Histogram;
use serde::Serialize;
use std::collections::BTreeMap;
use zoneplug_core::{Error, Nanos, Op, Status};
use zoneplug_sim::time::trace::Fit;
use zoneplug_sim::time::{Adapted, Pace, Place, Replayed, TraceClient};

/// What is to be replayed, and how.
pub(super) struct Job<'a> {
    pub(super) disk: &'a VirtualDisk,
    pub(super) way: &'a Way,
    pub(super) fit: &'a Fit,
    /// Not `Auto`.
    pub(super) map: Map,
    pub(super) pace: Pace,
}

/// Operations of one kind that succeeded. Percentiles are exact to 1 %, mean and longest are exact.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Kind {
    /// How many.
    pub operations: u64,
    /// Their bytes.
    pub bytes: u64,
    /// 10^6 bytes a second of the whole replay.
    pub mb_per_s: f64,
    /// From the time of an operation to the last completion of its parts.
    pub mean_ns: u64,
    /// Median.
    pub p50_ns: u64,
    /// 90 % took no longer. For plots.
    #[serde(skip)]
    pub p90_ns: u64,
    /// 99 % took no longer.
    pub p99_ns: u64,
    /// 99.9 % took no longer. For plots.
    #[serde(skip)]
    pub p999_ns: u64,
    /// The longest.
    pub max_ns: u64,
}

/// What was refused.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Refused {
    /// How many.
    pub operations: u64,
    /// The same by status.
    #[serde(serialize_with = "by_status")]
    pub by_status: BTreeMap<&'static str, u64>,
    /// The first in the trace.
    pub first: Option<First>,
}

/// The first that was refused.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct First {
    /// Its line in the trace.
    pub line: u64,
    /// What it was.
    pub operation: &'static str,
    /// Its first sector.
    pub sector: u64,
    /// How it failed.
    pub status: &'static str,
}

/// What was not sent as it was recorded.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Changed {
    /// Writes that went to another place of their zone.
    pub moved_writes: u64,
    /// Resets of zones that had no room for a write.
    pub zones_reset: u64,
    /// Zones finished because no more may be active.
    pub zones_finished: u64,
    /// Operations beyond the end of the disk, sent to its beginning.
    pub wrapped: u64,
    /// Discards of less than a zone.
    pub discards_not_sent: u64,
}

/// A row of the table.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// The specification of the disk.
    pub disk: String,
    /// How it was opened, in the words of the attributes.
    pub layer: String,
    /// How addresses became places. Not `Auto`.
    pub map: Map,
    /// 10^6 bytes a second, read and written.
    pub mb_per_s: f64,
    /// Writes, appends and writes of zeroes.
    pub writes: Kind,
    /// Reads.
    pub reads: Kind,
    /// What failed.
    pub refused: Refused,
    /// From the first operation to the last completion, in seconds of virtual time.
    pub makespan_s: f64,
    /// How long something was outstanding.
    pub busy_s: f64,
    /// The part of the makespan in which the head or the data path of the drive was busy.
    pub drive_busy_percent: f64,
    /// Accesses for which the head had to seek or wait. A drive without a head has none.
    pub head_moves: Option<u64>,
    /// What was not sent as recorded.
    pub changed: Changed,
    /// How far the runs of this row differ, if there may be several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spread: Option<Spread>,
}

/// Latencies and counts of one kind.
struct Sum {
    operations: u64,
    bytes: u64,
    total_ns: u128,
    max: u64,
    latency: Histogram<u64>,
}

impl Sum {
    fn new() -> Sum {
        // The bounds are constants that it takes: 1 ns to half a day, two digits.
        let latency = Histogram::new_with_bounds(1, 1 << 45, 2);
        let latency = latency.unwrap_or_else(|e| unreachable!("{e}"));
        Sum { operations: 0, bytes: 0, total_ns: 0, max: 0, latency }
    }

    fn add(&mut self, bytes: u64, took: Nanos) {
        self.operations += 1;
        self.bytes += bytes;
        self.total_ns += u128::from(took.0);
        self.max = self.max.max(took.0);
        self.latency.saturating_record(took.0);
    }

    fn kind(&self, makespan: Nanos) -> Kind {
        // The histogram's buckets are named by their ends.
        let quantile = |q| self.latency.value_at_quantile(q).min(self.max);
        Kind {
            operations: self.operations,
            bytes: self.bytes,
            mb_per_s: rate(self.bytes, makespan),
            mean_ns: (self.total_ns / u128::from(self.operations.max(1))) as u64,
            p50_ns: quantile(0.5),
            p90_ns: quantile(0.9),
            p99_ns: quantile(0.99),
            p999_ns: quantile(0.999),
            max_ns: self.max,
        }
    }
}

/// 10^6 bytes a second.
fn rate(bytes: u64, time: Nanos) -> f64 {
    if time.0 == 0 { 0.0 } else { bytes as f64 * 1e3 / time.0 as f64 }
}

/// The results of the operations.
struct Tally {
    writes: Sum,
    reads: Sum,
    refused: Refused,
}

impl Tally {
    fn note(&mut self, r: &Replayed) {
        if r.status != Status::Ok {
            self.refused(r);
            return;
        }
        let bytes = r.event.sectors << 9;
        match r.event.op {
            Op::Write | Op::ZoneAppend | Op::WriteZeroes => self.writes.add(bytes, r.took),
            Op::Read => self.reads.add(bytes, r.took),
            _ => {}
        }
    }

    #[cold]
    fn refused(&mut self, r: &Replayed) {
        self.refused.operations += 1;
        *self.refused.by_status.entry(r.status.name()).or_default() += 1;
        let first = First {
            line: r.event.line,
            operation: r.event.op.name(),
            sector: r.event.sector,
            status: r.status.name(),
        };
        // Operations end in any order.
        let earlier = self.refused.first.filter(|f| f.line < first.line);
        self.refused.first = earlier.or(Some(first));
    }
}

impl Job<'_> {
    /// Sends all of it.
    pub(super) fn run(&self, trace: &Trace<'_>, workers: &Workers<'_>) -> Result<Row, Error> {
        let mut run = self.disk.run(&self.way.config);
        run.warm_up = Nanos(0);
        run.length = Nanos(u64::MAX >> 2);
        run.keep_latencies = false;
        let place = match self.map {
            Map::Log => Place::Log,
            Map::Exact | Map::Auto => Place::Exact { begin: self.fit.begin() },
        };
        let mut trace = trace.reader(None)?;
        let mut tally =
            Tally { writes: Sum::new(), reads: Sum::new(), refused: Refused::default() };
        let (report, makespan, busy, adapted) = {
            // What was sent before the end was asked for is what is replayed.
            let source =
                Box::new(|| if workers.is_asked() { Ok(None) } else { trace.next_event() });
            let seen = Box::new(|r: &Replayed| tally.note(r));
            let mut client = TraceClient::new(place, self.disk.limits(), self.pace, source, seen);
            let report = self.way.during(|| run.go_with(&mut [&mut client]))?;
            (report, client.makespan(), client.busy(), client.adapted())
        };
        let Adapted { resets, finishes, moved, wrapped, dropped_discards } = adapted;
        let turns = self.disk.rotational();
        Ok(Row {
            disk: self.disk.spec.clone(),
            layer: self.way.name(turns),
            map: self.map,
            mb_per_s: rate(tally.writes.bytes + tally.reads.bytes, makespan),
            writes: tally.writes.kind(makespan),
            reads: tally.reads.kind(makespan),
            refused: tally.refused,
            makespan_s: makespan.0 as f64 / 1e9,
            busy_s: busy.0 as f64 / 1e9,
            // What is in the cache at the end is written to the medium after the last completion.
            drive_busy_percent: (report.drive.busy.0 as f64 * 100.0 / makespan.0.max(1) as f64)
                .min(100.0),
            head_moves: turns.then_some(report.drive.moves),
            changed: Changed {
                moved_writes: moved,
                zones_reset: resets,
                zones_finished: finishes,
                wrapped,
                discards_not_sent: dropped_discards,
            },
            spread: None,
        })
    }
}
