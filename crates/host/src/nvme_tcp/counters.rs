//! Counters of a disk: each worker writes its own, `zoneplug status` reads their sum.

use std::sync::atomic::{AtomicU64, Ordering};
use zoneplug_core::Op;

/// Counters of one worker. Only its thread writes them, so they need no locked operation. Two cache lines, because
/// processors fetch lines in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Counters {
    reads: AtomicU64,
    read_bytes: AtomicU64,
    writes: AtomicU64,
    written_bytes: AtomicU64,
    others: AtomicU64,
    errors: AtomicU64,
}

/// Counters of a served disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NvmeTcpCounters {
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
}

impl Counters {
    pub(super) fn count(&self, op: Op, bytes: u32, ok: bool) {
        match op {
            _ if !ok => add(&self.errors, 1),
            Op::Read => {
                add(&self.read_bytes, u64::from(bytes));
                add(&self.reads, 1);
            }
            Op::Write | Op::ZoneAppend => {
                add(&self.written_bytes, u64::from(bytes));
                add(&self.writes, 1);
            }
            _ => add(&self.others, 1),
        }
    }

    /// Adds these to `sum`.
    pub(super) fn add_to(&self, sum: &mut NvmeTcpCounters) {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        sum.reads += of(&self.reads);
        sum.read_bytes += of(&self.read_bytes);
        sum.writes += of(&self.writes);
        sum.written_bytes += of(&self.written_bytes);
        sum.others += of(&self.others);
        sum.errors += of(&self.errors);
    }
}

/// Adds to a counter that no other thread writes.
fn add(counter: &AtomicU64, by: u64) {
    counter.store(counter.load(Ordering::Relaxed) + by, Ordering::Relaxed);
}
