//! What the spy has seen of each zone: writes at the device, how they ended, and what that says of the next one. Owns no
//! opinion: `seam_oracle.rs` asserts.

use crate::memory::stamp_at;
use std::collections::{BTreeMap, BTreeSet};
use zoneplug_core::{Command, Nanos, Op, Status, WritePointer};

/// The last write of a zone: stamps of its first and last sector.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Last {
    pub(crate) first: u64,
    pub(crate) last: u64,
}

/// A write at the device.
pub(crate) struct Flying {
    /// Where the command is.
    pub(crate) at: usize,
    pub(crate) sent: Nanos,
    pub(crate) queue: usize,
    pub(crate) generation: u64,
    /// Its time was over when its queue was last polled: the layer does not wait for it.
    pub(crate) given_up: bool,
}

/// What was seen of one zone.
#[derive(Default)]
pub(crate) struct ZoneSeen {
    pub(crate) writes: Vec<Flying>,
    /// Where the last one that was sent ends.
    pub(crate) sent_end: u64,
    /// Resets and finishes.
    pub(crate) generation: u64,
    /// One was the last that happened: what is sent to elsewhere than the start is of the generation before it, for the layer
    /// has not seen it yet.
    pub(crate) fresh: bool,
    /// Something else has moved the write pointer since the last of them: of several appends in flight the first may miss it,
    /// and the next be where it is by chance.
    pub(crate) foreign: bool,
    pub(crate) last: Last,
    /// The one before it.
    pub(crate) before: Last,
    /// The last write that succeeded.
    pub(crate) acked: Last,
    /// Where it ended, if others have been in flight since.
    pub(crate) acked_end: u64,
    /// Where writes failed, and how, since none was in flight or somebody looked.
    pub(crate) burst: Vec<(u64, Status)>,
    /// Where the last one that failed began, if everything before it was acknowledged in this generation.
    pub(crate) head: Option<u64>,
    /// One has since the layer last reported the zone by itself.
    pub(crate) failed: bool,
    /// The layer's report that the device did not take or was too busy for: it is the same one when it comes again, also if
    /// the zone has gone on meanwhile.
    pub(crate) again: Option<usize>,
    /// Reports by the layer itself since a write succeeded, or a report found that the zone had been written to.
    pub(crate) attempts: u32,
    /// How often the device failed a write, or left a reset or finish in doubt.
    pub(crate) failures: Failures,
    /// Nobody knows the write pointer, or the zone refuses for good, and neither report, reset nor finish came since.
    pub(crate) fails_fast: Option<Status>,
}

impl Seen {
    /// The device has not taken it.
    pub(crate) fn unsend(&mut self, c: &Command) {
        if c.op == Op::Write {
            for b in &c.bios {
                self.sent.remove(&stamp_at(b.data(), 0));
            }
        }
    }
}

impl ZoneSeen {
    /// Somebody knows the write pointer again.
    pub(crate) fn looked(&mut self) {
        self.fails_fast = None;
        self.burst.clear();
        self.head = None;
        self.attempts = 0;
    }

    /// A write has succeeded.
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

/// Whether writes that failed so prove that none of them did anything: the first did nothing, those behind it were not
/// at the write pointer, and none behind it succeeded.
pub(crate) fn harmless(burst: &[(u64, Status)], acked_end: u64) -> bool {
    let kept = |s: Status| s.write_pointer() == WritePointer::Kept;
    let alive = |s: Status| !matches!(s, Status::ZoneReadOnly | Status::ZoneOffline);
    let Some(&(first, status)) = burst.iter().min_by_key(|b| b.0) else { return true };
    kept(status)
        && acked_end <= first
        && burst.iter().all(|b| (kept(b.1) || b.1 == Status::UnalignedWrite) && alive(b.1))
}

/// How often writes to a zone failed: in any way, and so that the write pointer became unknown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Failures {
    pub(crate) any: u64,
    pub(crate) unknown: u64,
}

#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) zones: Vec<ZoneSeen>,
    pub(crate) failed: BTreeMap<Status, u64>,
    /// What the device said to BIOs that have not come back to their clients, by token.
    pub(crate) results: BTreeMap<u64, Status>,
    /// The first stamp of every write that was sent.
    pub(crate) sent: BTreeSet<u64>,
    /// What the device said last to each write that has ended, by its first stamp.
    pub(crate) said: BTreeMap<u64, Status>,
    /// Where BIOs were sent to that failed, by token.
    pub(crate) failed_at: BTreeMap<u64, u64>,
    pub(crate) ordered: Ordered,
}

/// What was seen on a device that keeps the order of writes.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Ordered {
    /// Most writes of a zone at the device.
    pub(crate) most: usize,
    /// Reports by the layer itself.
    pub(crate) reports: u64,
    /// Those of zones with one write in flight.
    pub(crate) asked: u64,
    /// BIOs that were sent again after they failed, and appends of these that went elsewhere.
    pub(crate) retried: u64,
    pub(crate) placed: u64,
    /// Zones that were tried again as often as they may.
    pub(crate) given_up: u64,
}
