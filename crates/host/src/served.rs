//! Counters of served disks: each thread that serves a disk writes its own; `zoneplug status` and the metrics read
//! their sum.

#[cfg(any(feature = "iscsi", feature = "nvme-tcp"))]
pub(crate) mod identity;
pub(crate) mod latency;
pub(crate) mod timing;

use latency::{LatencyHistogram, LatencyLog, SlowZone};
use std::sync::atomic::{AtomicU64, Ordering};
use zoneplug_core::Op;

/// The counters of one kind of operation.
#[derive(Debug, Default)]
struct OfKind {
    succeeded: AtomicU64,
    bytes: AtomicU64,
}

/// Counters of one thread for one disk. Only that thread writes them, so they need no locked operation. They are
/// aligned to pairs of cache lines, because processors fetch lines in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Counters {
    kinds: [OfKind; Op::ALL.len()],
    failed: [AtomicU64; Op::ALL.len()],
    replayed: AtomicU64,
}

/// Counts the operations of a server on a disk since it began to serve it.
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
    /// Writes and appends that a client sent again after a server or a connection had ended, and that were on the
    /// disk already, at least in part.
    pub replayed: u64,
    /// The counts by operation, without those that never occurred.
    pub operations: Vec<ServedOperation>,
    /// The zones with the slowest operations of the last minute, the slowest first, if the server times them.
    pub slow_zones: Vec<SlowZone>,
}

/// Counts one kind of operation of a server on a disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServedOperation {
    /// The kind.
    pub op: Op,
    /// How many succeeded.
    pub succeeded: u64,
    /// Bytes of the operations that succeeded, if they move data.
    pub bytes: u64,
    /// How many failed.
    pub failed: u64,
    /// How long operations took on the disk, including those that failed. `None`: the server does not time them.
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
    #[cfg(any(feature = "iscsi", feature = "nvme-tcp", feature = "ublk"))]
    pub(crate) fn count_replayed(&self) {
        add(&self.replayed, 1);
    }

    /// The counters of all threads together, and the times in their logs, if there are any.
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
