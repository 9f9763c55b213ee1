//! What comes of a replay: plain data.

use super::Map;
use crate::status_key::by_status;
use serde::Serialize;
use std::collections::BTreeMap;

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
    /// Reads and writes of parts of blocks, sent as whole blocks.
    pub made_whole_blocks: u64,
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
    /// From the first operation to the last completion, in seconds of the time of the replay.
    pub makespan_s: f64,
    /// How long something was outstanding.
    pub busy_s: f64,
    /// The part of the makespan in which the head or the data path of the drive was busy. Only a model tells.
    pub drive_busy_percent: Option<f64>,
    /// Accesses for which the head had to seek or wait. A drive without a head has none, and only a model tells.
    pub head_moves: Option<u64>,
    /// What was not sent as recorded.
    pub changed: Changed,
    /// How far the runs of this row differ, if there may be several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spread: Option<Spread>,
}

/// Lowest and highest of the runs of a row.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Spread {
    /// How many runs there were. One on a drive without a head: where its data lies makes no difference.
    pub runs: usize,
    /// The rate of the medium of each, in millionths of the profile's.
    pub rates_ppm: Vec<u32>,
    /// 10^6 bytes a second.
    pub mb_per_s: [f64; 2],
    /// Of writes.
    pub writes: Latencies,
    /// Of reads.
    pub reads: Latencies,
}

/// Lowest and highest of each figure of a kind of operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Latencies {
    /// Of the means.
    pub mean_ns: [u64; 2],
    /// Of the medians.
    pub p50_ns: [u64; 2],
    /// Of the times that 99 % took at most.
    pub p99_ns: [u64; 2],
    /// Of the longest.
    pub max_ns: [u64; 2],
}
