//! A run: one trace on one disk, opened in one way.

use super::Map;
use super::order::Ordered;
use super::row::{Changed, FirstRefused, Kind, Refused, Row};
use crate::time::trace::Fit;
use crate::time::{Adapted, PLACE_BYTES, Pace, Placement, Replayed, TraceClient};
use crate::virtual_disk::{VirtualDisk, Way};
use crate::workers::Workers;
use hdrhistogram::Histogram;
use zoneplug_core::zone::Limits;
use zoneplug_core::{Error, Nanos, Op, Status};
use zoneplug_devices::emu::timing::DriveStats;

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
        // These constant bounds are valid: 1 ns to half a day, two digits.
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
        // A bucket of the histogram reports its upper end, which may exceed the maximum.
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

/// Sums of the results of operations.
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
        let first = FirstRefused {
            line: r.event.line,
            operation: r.event.op.name(),
            sector: r.event.sector,
            status: r.status.name(),
        };
        // Operations complete in any order.
        let earlier = self.refused.first.filter(|f| f.line < first.line);
        self.refused.first = earlier.or(Some(first));
    }
}

/// The result of a trace on a disk.
pub(super) struct Outcome {
    tally: Tally,
    makespan: Nanos,
    busy: Nanos,
    adapted: Adapted,
}

/// How a trace is sent: the mapping of its addresses, and its pace.
pub(super) struct ReplayPlan<'a> {
    pub(super) fit: &'a Fit,
    pub(super) limits: &'a Limits,
    /// Never `Auto`.
    pub(super) map: Map,
    pub(super) pace: Pace,
}

impl Outcome {
    /// Replays a whole trace: `go` runs its client.
    pub(super) fn of<R>(
        trace: &Ordered<'_>,
        plan: &ReplayPlan<'_>,
        workers: &Workers<'_>,
        go: impl FnOnce(&mut TraceClient<'_>) -> Result<R, Error>,
    ) -> Result<(Outcome, R), Error> {
        let place = match plan.map {
            Map::Log => Placement::Log,
            Map::Exact | Map::Auto => Placement::Exact { begin: plan.fit.begin() },
        };
        let mut next = trace.events()?;
        let mut tally =
            Tally { writes: Sum::new(), reads: Sum::new(), refused: Refused::default() };
        let (result, makespan, busy, adapted) = {
            // If asked to end, the source of events ends; the operations sent by then complete.
            let source = Box::new(|| if workers.is_asked() { Ok(None) } else { next() });
            let seen = Box::new(|r: &Replayed| tally.note(r));
            let mut client = TraceClient::new(place, plan.limits, plan.pace, source, seen);
            let result = go(&mut client)?;
            (result, client.makespan(), client.busy(), client.adapted())
        };
        Ok((Outcome { tally, makespan, busy, adapted }, result))
    }

    /// Converts the result to a row. `drive`: statistics of a model, and whether it rotates.
    pub(super) fn row(
        self,
        disk: &str,
        layer: String,
        map: Map,
        drive: Option<(DriveStats, bool)>,
    ) -> Row {
        let Outcome { tally, makespan, busy, adapted } = self;
        let Adapted { resets, finishes, moved, wrapped, dropped_discards, widened } = adapted;
        let percent = |d: DriveStats| d.busy.0 as f64 * 100.0 / makespan.0.max(1) as f64;
        Row {
            disk: disk.to_owned(),
            layer,
            map,
            mb_per_s: rate(tally.writes.bytes + tally.reads.bytes, makespan),
            writes: tally.writes.kind(makespan),
            reads: tally.reads.kind(makespan),
            refused: tally.refused,
            makespan_s: makespan.0 as f64 / 1e9,
            busy_s: busy.0 as f64 / 1e9,
            // The cache is written to the medium after the last completion, so busy time may exceed
            // the makespan.
            drive_busy_percent: drive.map(|(d, _)| percent(d).min(100.0)),
            head_moves: drive.and_then(|(d, turns)| turns.then_some(d.moves)),
            changed: Changed {
                moved_writes: moved,
                zones_reset: resets,
                zones_finished: finishes,
                wrapped,
                discards_not_sent: dropped_discards,
                made_whole_blocks: widened,
            },
            spread: None,
        }
    }
}

/// Replays a whole trace on a model opened in this way.
pub(super) fn in_virtual_time(
    trace: &Ordered<'_>,
    plan: &ReplayPlan<'_>,
    disk: &VirtualDisk,
    way: &Way,
    workers: &Workers<'_>,
) -> Result<Row, Error> {
    let mut run = disk.run(&way.config);
    run.warm_up = Nanos(0);
    run.length = Nanos(u64::MAX >> 2);
    run.keep_latencies = false;
    run.check_memory(PLACE_BYTES)?;
    let (outcome, report) =
        Outcome::of(trace, plan, workers, |client| way.during(|| run.go_with(&mut [client])))?;
    let turns = disk.rotational();
    Ok(outcome.row(&disk.spec, way.name(turns), plan.map, Some((report.drive, turns))))
}
