//! What a server counts of its disks: each thread that serves a disk writes its own counters, `zoneplug status` and the
//! metrics read their sum.

pub(crate) mod latency;
pub(crate) mod timing;

use latency::{LatencyHistogram, LatencyLog, SlowZone};
use std::sync::atomic::{AtomicU64, Ordering};
use zoneplug_core::Op;

/// Of one kind of operation.
#[derive(Debug, Default)]
struct OfKind {
    succeeded: AtomicU64,
    bytes: AtomicU64,
}

/// Counters of one thread for one disk. Only that thread writes them, so they need no locked operation. On cache lines of
/// their own, two at a time, because processors fetch lines in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Counters {
    kinds: [OfKind; Op::ALL.len()],
    failed: [AtomicU64; Op::ALL.len()],
    replayed: AtomicU64,
}

/// What a server has done with a disk since it began to serve it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServedCounters {
    /// Reads that succeeded.
    pub reads: u64,
    /// Bytes of the reads that succeeded.
    pub read_bytes: u64,
    /// Writes and appends that succeeded.
    pub writes: u64,
    /// Bytes of the writes and appends that succeeded.
    pub written_bytes: u64,
    /// Other commands that succeeded: flush, zone management, reports.
    pub others: u64,
    /// Commands that failed.
    pub errors: u64,
    /// Writes and appends that were sent again after a server or a connection had ended, and that were on the disk already,
    /// wholly or in part.
    pub replayed: u64,
    /// The same by operation, without those that never occurred.
    pub operations: Vec<ServedOperation>,
    /// The zones with the slowest operations of the last minute, the slowest first, if the server times them.
    pub slow_zones: Vec<SlowZone>,
}

/// What a server has done with a disk by one kind of operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServedOperation {
    /// The kind.
    pub op: Op,
    /// How many succeeded.
    pub succeeded: u64,
    /// Bytes of those, if they move data.
    pub bytes: u64,
    /// How many failed.
    pub failed: u64,
    /// How long they took on the disk, those that failed included. `None`: the server does not time.
    pub latency: Option<LatencyHistogram>,
}

impl Counters {
    pub(crate) fn count(&self, op: Op, bytes: u32, ok: bool) {
        if ok {
            let kind = &self.kinds[op as usize];
            add(&kind.bytes, u64::from(bytes));
            add(&kind.succeeded, 1);
        } else {
            add(&self.failed[op as usize], 1);
        }
    }

    /// Counts a command that was on the disk already.
    pub(crate) fn count_replayed(&self) {
        add(&self.replayed, 1);
    }

    /// The counters of all threads together, and what they have timed. Without logs they time nothing.
    pub(crate) fn sum<'a>(
        threads: impl Iterator<Item = &'a Counters> + Clone,
        logs: &[&LatencyLog],
    ) -> ServedCounters {
        let of = |op: Op| {
            let mut o = ServedOperation { op, succeeded: 0, bytes: 0, failed: 0, latency: None };
            for c in threads.clone() {
                let kind = &c.kinds[op as usize];
                o.succeeded += kind.succeeded.load(Ordering::Relaxed);
                o.failed += c.failed[op as usize].load(Ordering::Relaxed);
                if op.has_data() {
                    o.bytes += kind.bytes.load(Ordering::Relaxed);
                }
            }
            for log in logs {
                log.add_to(op, o.latency.get_or_insert_default());
            }
            o
        };
        let mut sum = ServedCounters::default();
        for o in Op::ALL.map(of) {
            sum.errors += o.failed;
            match o.op {
                Op::Read => (sum.reads, sum.read_bytes) = (o.succeeded, o.bytes),
                Op::Write | Op::ZoneAppend => {
                    sum.writes += o.succeeded;
                    sum.written_bytes += o.bytes;
                }
                _ => sum.others += o.succeeded,
            }
            if o.succeeded + o.failed > 0 {
                sum.operations.push(o);
            }
        }
        sum.replayed = threads.map(|c| c.replayed.load(Ordering::Relaxed)).sum();
        sum.slow_zones = latency::slowest(logs.iter().flat_map(|log| log.slow()).collect());
        sum
    }
}

/// Adds to a counter that no other thread writes.
fn add(counter: &AtomicU64, by: u64) {
    counter.store(counter.load(Ordering::Relaxed) + by, Ordering::Relaxed);
}
