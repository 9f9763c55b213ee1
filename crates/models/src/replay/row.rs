//! The results of a replay as plain data.

use super::Map;
use crate::status_key::by_status;
use serde::Serialize;
use std::collections::BTreeMap;

/// Operations of one kind that succeeded. Percentiles are accurate to 1 %; mean and maximum are
/// exact.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Kind {
    /// Their number.
    pub operations: u64,
    /// Their bytes.
    pub bytes: u64,
    /// 10^6 bytes a second over the whole replay.
    pub mb_per_s: f64,
    /// Mean time from the time of an operation to the last completion of its parts.
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

/// Operations that failed.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Refused {
    /// Their number.
    pub operations: u64,
    /// Their number by status.
    #[serde(serialize_with = "by_status")]
    pub by_status: BTreeMap<&'static str, u64>,
    /// The first of them in the trace.
    pub first: Option<FirstRefused>,
}

/// The first operation that failed.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct FirstRefused {
    /// Its line in the trace.
    pub line: u64,
    /// Its kind.
    pub operation: &'static str,
    /// Its first sector.
    pub sector: u64,
    /// Its status.
    pub status: &'static str,
}

/// Changes made to the recorded operations.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Changed {
    /// Writes sent to another place of their zone.
    pub moved_writes: u64,
    /// Resets of zones that had no room for a write.
    pub zones_reset: u64,
    /// Zones finished because no more may be active.
    pub zones_finished: u64,
    /// Operations beyond the end of the disk, sent to its beginning.
    pub wrapped: u64,
    /// Discards of less than a zone, which are not sent.
    pub discards_not_sent: u64,
    /// Reads and writes of parts of blocks, sent as whole blocks.
    pub made_whole_blocks: u64,
}

/// A row of the table.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// The specification of the disk.
    pub disk: String,
    /// The way in which it was opened, in the words of the attributes.
    pub layer: String,
    /// How addresses became places. Never `Auto`.
    pub map: Map,
    /// 10^6 bytes a second, read and written.
    pub mb_per_s: f64,
    /// Writes, appends and writes of zeroes.
    pub writes: Kind,
    /// Reads.
    pub reads: Kind,
    /// Operations that failed.
    pub refused: Refused,
    /// From the first operation to the last completion, in seconds of the replay's clock.
    pub makespan_s: f64,
    /// Seconds in which something was outstanding.
    pub busy_s: f64,
    /// The percentage of the makespan in which the head or the data path of the drive was busy.
    /// Only a model reports it.
    pub drive_busy_percent: Option<f64>,
    /// Accesses for which the head had to seek or wait. Only a model of a drive with a head reports
    /// it.
    pub head_moves: Option<u64>,
    /// Changes made to the recorded operations.
    pub changed: Changed,
    /// How far the runs of this row differ, if several were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spread: Option<Spread>,
}

/// The lowest and highest figures of the runs of a row.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Spread {
    /// The number of runs. One for a drive without a head: the layout of its data makes no
    /// difference.
    pub runs: usize,
    /// The rate of the medium in each run, in millionths of the profile's.
    pub rates_ppm: Vec<u32>,
    /// 10^6 bytes a second.
    pub mb_per_s: [f64; 2],
    /// The latencies of writes.
    pub writes: Latencies,
    /// The latencies of reads.
    pub reads: Latencies,
}

/// The lowest and highest of each figure of one kind of operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Latencies {
    /// Their means.
    pub mean_ns: [u64; 2],
    /// Their medians.
    pub p50_ns: [u64; 2],
    /// Their 99th percentiles.
    pub p99_ns: [u64; 2],
    /// Their maxima.
    pub max_ns: [u64; 2],
}
