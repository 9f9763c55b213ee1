//! Counters of a device: each queue thread writes its own, `zoneplug status` reads their sum.

use super::request::Request;
use std::sync::atomic::{AtomicU64, Ordering};
use zoneplug_core::{Op, Status};

/// Counters of a queue since this process started to serve the device. Only the thread of the queue writes them, so
/// it needs no locked operation. Two cache lines, because processors fetch lines in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Counters {
    pub(super) reads: AtomicU64,
    pub(super) read_bytes: AtomicU64,
    pub(super) writes: AtomicU64,
    pub(super) written_bytes: AtomicU64,
    pub(super) others: AtomicU64,
    pub(super) errors: AtomicU64,
    pub(super) replayed: AtomicU64,
}

impl Counters {
    pub(super) fn count(&self, r: &Request, status: Status) {
        match r.op {
            _ if !status.is_ok() => add(&self.errors, 1),
            Op::Read => {
                add(&self.read_bytes, u64::from(r.bytes));
                add(&self.reads, 1);
            }
            Op::Write | Op::ZoneAppend => {
                add(&self.written_bytes, u64::from(r.bytes));
                add(&self.writes, 1);
            }
            _ => add(&self.others, 1),
        }
    }

    /// Counts a request that the last server had carried out.
    pub(super) fn count_replayed(&self) {
        add(&self.replayed, 1);
    }

    /// The counters of all queues together.
    pub(super) fn sum(queues: &[Counters]) -> UblkCounters {
        let sum = |of: fn(&Counters) -> &AtomicU64| {
            queues.iter().map(|c| of(c).load(Ordering::Relaxed)).sum()
        };
        UblkCounters {
            reads: sum(|c| &c.reads),
            read_bytes: sum(|c| &c.read_bytes),
            writes: sum(|c| &c.writes),
            written_bytes: sum(|c| &c.written_bytes),
            others: sum(|c| &c.others),
            errors: sum(|c| &c.errors),
            replayed: sum(|c| &c.replayed),
        }
    }
}

/// Adds to a counter that no other thread writes.
fn add(counter: &AtomicU64, by: u64) {
    counter.store(counter.load(Ordering::Relaxed) + by, Ordering::Relaxed);
}

/// Counters of a served device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UblkCounters {
    /// Reads that succeeded.
    pub reads: u64,
    /// Bytes of the reads that succeeded.
    pub read_bytes: u64,
    /// Writes and appends that succeeded.
    pub writes: u64,
    /// Bytes of the writes and appends that succeeded.
    pub written_bytes: u64,
    /// Other requests that succeeded: flush, zone management, reports.
    pub others: u64,
    /// Requests that failed.
    pub errors: u64,
    /// Writes and appends that Linux sent again after a takeover, and that the last server had carried out,
    /// wholly or in part.
    pub replayed: u64,
}
