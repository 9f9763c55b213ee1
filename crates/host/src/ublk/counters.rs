//! Counters of a device. Its queue threads write them, `zoneplug status` reads them.

use super::request::Request;
use std::sync::atomic::{AtomicU64, Ordering};
use zoneplug_core::{Op, Status};

/// Counters since this process started to serve the device.
#[derive(Debug, Default)]
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
        let add = |n: &AtomicU64, by: u64| n.fetch_add(by, Ordering::Relaxed);
        match r.op {
            _ if !status.is_ok() => add(&self.errors, 1),
            Op::Read => {
                add(&self.read_bytes, u64::from(r.bytes));
                add(&self.reads, 1)
            }
            Op::Write | Op::ZoneAppend => {
                add(&self.written_bytes, u64::from(r.bytes));
                add(&self.writes, 1)
            }
            _ => add(&self.others, 1),
        };
    }

    pub(super) fn now(&self) -> UblkCounters {
        let (c, get) = (self, |n: &AtomicU64| n.load(Ordering::Relaxed));
        UblkCounters {
            reads: get(&c.reads),
            read_bytes: get(&c.read_bytes),
            writes: get(&c.writes),
            written_bytes: get(&c.written_bytes),
            others: get(&c.others),
            errors: get(&c.errors),
            replayed: get(&c.replayed),
        }
    }
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
