//! The seam oracle's record of each zone: its writes at the device, their results, and the consequences for the next
//! one. This module asserts nothing; `seam_oracle.rs` does.

use crate::memory::stamp_at;
use std::collections::{BTreeMap, BTreeSet};
use zoneplug_core::{Command, Nanos, Op, Status, WritePointer, ZoneNo};

/// A write of a zone: the stamps of its first and last sector.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Last {
    pub(crate) first: u64,
    pub(crate) last: u64,
}

/// A write at the device.
pub(crate) struct Flying {
    /// The address of the command.
    pub(crate) at: usize,
    pub(crate) sent: Nanos,
    pub(crate) queue: usize,
    pub(crate) generation: u64,
    /// Whether its time was over when its queue was last polled. The layer does not wait for such a write.
    pub(crate) given_up: bool,
}

/// The history of one zone.
#[derive(Default)]
pub(crate) struct ZoneHistory {
    pub(crate) writes: Vec<Flying>,
    /// The end of the last write that was sent.
    pub(crate) sent_end: u64,
    /// Counts resets and finishes.
    pub(crate) generation: u64,
    /// Whether the last event was a reset or finish that the layer has not seen yet. A write to anywhere but the
    /// start of the zone belongs to the generation before it.
    pub(crate) just_reset: bool,
    /// Whether something other than the disk has moved the write pointer since then. Of several appends in flight,
    /// the first may miss the write pointer and the next may hit it by chance.
    pub(crate) moved_outside: bool,
    pub(crate) last: Last,
    /// The write before `last`.
    pub(crate) before: Last,
    /// The last write that succeeded.
    pub(crate) acked: Last,
    /// The end of that write, if other writes have been in flight since.
    pub(crate) acked_end: u64,
    /// The places and statuses of failed writes since the zone was last without writes in flight, or its write
    /// pointer was last known.
    pub(crate) burst: Vec<(u64, Status)>,
    /// The start of the last failed write, if everything before it was acknowledged in this generation.
    pub(crate) head: Option<u64>,
    /// Whether a write has failed since the layer last reported the zone by itself.
    pub(crate) failed: bool,
    /// Reports by the layer itself since a write succeeded, or since a report showed progress.
    pub(crate) attempts: u32,
    /// Writes that failed at the device, and resets or finishes with an unknown outcome.
    pub(crate) failures: Failures,
    /// The status of a zone that fails fast: its write pointer is unknown, or it refuses writes for good, and no
    /// report, reset or finish has come since.
    pub(crate) fails_fast: Option<Status>,
    /// Whether a native append, and no write, made it fail fast.
    pub(crate) append_failed: bool,
}

impl SeamHistory {
    /// Notes that the device has not taken a command.
    pub(crate) fn unsend(&mut self, c: &Command) {
        if c.op == Op::Write {
            for b in &c.bios {
                self.sent.remove(&stamp_at(b.data(), 0));
            }
        }
    }
}

impl ZoneHistory {
    /// Notes that the write pointer is known again. Writes that have failed may be sent again from there, for example if
    /// a reset whose time was over comes back together with their failures.
    pub(crate) fn pointer_known(&mut self) {
        if !self.burst.is_empty() {
            self.last = self.acked;
        }
        self.fails_fast = None;
        self.burst.clear();
        self.head = None;
        self.attempts = 0;
    }

    /// Notes that a write has succeeded.
    pub(crate) fn acked(&mut self, c: &Command) {
        self.attempts = 0;
        self.acked_end = c.sector.0 + u64::from(c.len_sectors);
        if c.op == Op::Write {
            let b = &c.bios[c.bios.len() - 1];
            let (first, last) =
                (stamp_at(c.bios[0].data(), 0), stamp_at(b.data(), b.len_sectors - 1));
            if last > self.acked.last {
                self.acked = Last { first, last };
            }
        }
    }
}

/// Returns whether these failures prove that none of the writes had an effect: the first did nothing, the writes
/// behind it were not at the write pointer, and none behind it succeeded.
pub(crate) fn harmless(burst: &[(u64, Status)], acked_end: u64) -> bool {
    let kept = |s: Status| s.write_pointer() == WritePointer::Kept;
    let alive = |s: Status| !matches!(s, Status::ZoneReadOnly | Status::ZoneOffline);
    let Some(&(first, status)) = burst.iter().min_by_key(|b| b.0) else { return true };
    kept(status)
        && acked_end <= first
        && burst.iter().all(|b| (kept(b.1) || b.1 == Status::UnalignedWrite) && alive(b.1))
}

/// The failures of writes to a zone: in all, and those that made the write pointer unknown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Failures {
    pub(crate) any: u64,
    pub(crate) unknown: u64,
}

#[derive(Default)]
pub(crate) struct SeamHistory {
    pub(crate) zones: Vec<ZoneHistory>,
    pub(crate) failed: BTreeMap<Status, u64>,
    /// The device's answers for BIOs that have not come back to their clients, by token.
    pub(crate) results: BTreeMap<u64, Status>,
    /// The first stamp of every write that was sent.
    pub(crate) sent: BTreeSet<u64>,
    /// The device's last answer to each write, by the first stamp.
    pub(crate) answers: BTreeMap<u64, Status>,
    /// The sectors of failed BIOs, by token.
    pub(crate) failed_at: BTreeMap<u64, u64>,
    /// Writes, and reports of the layer, that the device did not take or was too busy for: the operation, the zone,
    /// the queue, and the address of the command. A repeated report counts as the same one, even if the zone has
    /// recovered meanwhile, and so does a repeated write, even if a native append has failed meanwhile.
    pub(crate) repeats: Vec<(Op, ZoneNo, usize, usize)>,
    pub(crate) ordered: Ordered,
}

/// Counts of a device that keeps the order of writes.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Ordered {
    /// Most writes of a zone at the device.
    pub(crate) most: usize,
    /// Reports by the layer itself.
    pub(crate) reports: u64,
    /// Such reports for zones with one write in flight.
    pub(crate) asked: u64,
    /// BIOs that were sent again after a failure, and the appends among them that got another place.
    pub(crate) retried: u64,
    pub(crate) placed: u64,
    /// Zones that were given up after the last attempt.
    pub(crate) given_up: u64,
}
