//! Counters of a served disk: each thread that serves it writes its own, `zoneplug status` reads their sum.

use std::sync::atomic::{AtomicU64, Ordering};
use zoneplug_core::Op;

/// Counters of one thread for one disk. Only that thread writes them, so they need no locked operation. Two cache
/// lines, because processors fetch lines in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Counters {
    reads: AtomicU64,
    read_bytes: AtomicU64,
    writes: AtomicU64,
    written_bytes: AtomicU64,
    others: AtomicU64,
    errors: AtomicU64,
    replayed: AtomicU64,
}

/// What a server has done with a disk since it began to serve it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
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
}

impl Counters {
    pub(crate) fn count(&self, op: Op, bytes: u32, ok: bool) {
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

    /// Counts a command that was on the disk already.
    pub(crate) fn count_replayed(&self) {
        add(&self.replayed, 1);
    }

    /// The counters of all threads together.
    pub(crate) fn sum<'a>(threads: impl Iterator<Item = &'a Counters>) -> ServedCounters {
        let mut sum = ServedCounters::default();
        for c in threads {
            for (total, counter) in [
                (&mut sum.reads, &c.reads),
                (&mut sum.read_bytes, &c.read_bytes),
                (&mut sum.writes, &c.writes),
                (&mut sum.written_bytes, &c.written_bytes),
                (&mut sum.others, &c.others),
                (&mut sum.errors, &c.errors),
                (&mut sum.replayed, &c.replayed),
            ] {
                *total += counter.load(Ordering::Relaxed);
            }
        }
        sum
    }
}

/// Adds to a counter that no other thread writes.
fn add(counter: &AtomicU64, by: u64) {
    counter.store(counter.load(Ordering::Relaxed) + by, Ordering::Relaxed);
}
