//! State of a zone that only three features need, kept beside its plug: several writes in flight, recovery from a
//! failed write, and native appends.

use super::state::NEED_WP;
use super::{Plug, Recovery};
use crate::bio::{Bio, Status};
use crate::unit::Sector;

/// The state beside a plug, 80 bytes. On disks where several writes of a zone may be in flight, every zone has one.
/// On other disks the zones of a shard have one from the first failure or native append in the shard on.
#[derive(Debug, Default)]
pub(crate) struct Track {
    /// The queue that the writes in flight are on.
    pub(super) home: u32,
    /// The offset up to which writes have succeeded since the zone last had none in flight, in sectors. On disks with
    /// one write in flight: the offset at which the failed write began.
    pub(super) succeeded_to: u32,
    /// Recoveries since a write last succeeded.
    pub(super) attempts: u8,
    /// The number of the report that is in flight.
    pub(super) report_number: u32,
    /// Writes that have failed, held until nothing of the zone is in flight.
    pub(super) held: Vec<Held>,
    /// Only on disks with one write in flight: the write pointer that the last recovery found, and the zone's
    /// generation at that time.
    pub(super) recovered_wp: u32,
    pub(super) generation: u32,
    /// The ticket of writes that were given up and may still be at the device.
    pub(super) late: u32,
    /// The account of the zone's native appends.
    pub(super) appends: Appends,
}

/// The account of the native appends of a zone (`appends.rs`).
#[derive(Debug, Default)]
pub(super) struct Appends {
    /// Appends on their way.
    pub(super) in_flight: u32,
    /// Total length in sectors of the appends that are on their way or have landed since the account began.
    pub(super) len_sectors: u32,
    /// The offset behind the last landed append of the zone. 0: none has landed.
    pub(super) end: u32,
    /// Whether the account is valid: the write pointer was known when it began.
    pub(super) is_valid: bool,
    /// Error epoch and generation of the plug when the account was last brought up to date. Any other event that
    /// makes the write pointer unknown, or known, changes one of them or clears `NEED_WP`.
    pub(super) error_epoch: u32,
    pub(super) generation: u32,
}

impl Appends {
    /// Returns whether an append is on its way.
    pub(super) fn any(&self) -> bool {
        self.in_flight > 0
    }

    /// Returns whether the account is valid, and only the appends in it have made the write pointer unknown.
    pub(super) fn explains(&self, plug: &Plug) -> bool {
        self.is_valid
            && plug.state & NEED_WP != 0
            && plug.recovery == Recovery::None
            && (self.error_epoch, self.generation) == (plug.error_epoch, plug.generation)
    }

    /// Notes that a write of the zone has ended while the write pointer is unknown. A new error epoch begins, which
    /// the account outlives if the write succeeded.
    pub(super) fn write_ended(&mut self, plug: &mut Plug, ok: bool, epoch: u32) {
        self.is_valid = ok && self.explains(plug);
        plug.error_epoch = epoch;
        self.note(plug);
    }

    /// Brings the account up to date after a change that it accounts for.
    pub(super) fn note(&mut self, plug: &Plug) {
        (self.error_epoch, self.generation) = (plug.error_epoch, plug.generation);
    }
}

/// A write that has failed.
#[derive(Debug)]
pub(super) struct Held {
    /// Its own status says how the write failed last. An answer of *busy* does not change it, because the device has
    /// done nothing then.
    pub(super) bio: Box<Bio>,
    pub(super) status: Status,
    /// Whether the failure proves that no data was written.
    pub(super) wrote_nothing: bool,
}

impl Held {
    /// Its offset in the zone that begins at `start`, in sectors. The subtraction may wrap around, because a faulty
    /// device may have changed the sector.
    pub(super) fn offset(&self, start: Sector) -> u32 {
        self.bio.sector.0.wrapping_sub(start.0) as u32
    }
}

/// The next step of a queue with a zone, after a command of the zone has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum QueueStep {
    /// This queue has nothing to do.
    Nothing,
    /// Parked writes are next: the zone gets in line.
    InLine,
    /// The layer reports the zone, under this number.
    Report(u32),
}

/// The number of recoveries in a row that a zone gets without any progress in between.
pub(super) const MAX_ATTEMPTS: u8 = 3;
