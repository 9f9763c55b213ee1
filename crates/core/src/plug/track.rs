//! State of a zone that only two features need, kept beside its plug: several writes in flight, and recovery from a
//! failed write.

use crate::bio::{Bio, Status};
use crate::unit::Sector;

/// The state beside a plug, 56 bytes. On disks where several writes of a zone may be in flight, every zone has one.
/// On other disks the zones of a shard have one from the first failure in the shard on.
#[derive(Debug, Default)]
pub(crate) struct Track {
    /// The queue that the writes in flight are on.
    pub(super) home: u32,
    /// The offset up to which writes have succeeded since the zone last had none in flight, in sectors. On disks with
    /// one write in flight: the offset at which the failed write began.
    pub(super) done: u32,
    /// Recoveries since a write last succeeded.
    pub(super) attempts: u8,
    /// The number of the report that is in flight.
    pub(super) asked: u32,
    /// Writes that have failed, held until nothing of the zone is in flight.
    pub(super) held: Vec<Held>,
    /// Only on disks with one write in flight: the write pointer that the last recovery found, and the zone's
    /// generation at that time.
    pub(super) found: u32,
    pub(super) generation: u32,
    /// The ticket of writes that were given up and may still be at the device.
    pub(super) late: u32,
}

/// A write that has failed.
#[derive(Debug)]
pub(super) struct Held {
    /// Its own status says how the write failed last. An answer of *busy* does not change it, because the device has
    /// done nothing then.
    pub(super) bio: Box<Bio>,
    pub(super) status: Status,
    /// Whether the failure proves that no data was written.
    pub(super) kept: bool,
}

impl Held {
    /// Its offset in the zone that begins at `start`, in sectors. The subtraction may wrap around, because a faulty
    /// device may have changed the sector.
    pub(super) fn offset(&self, start: Sector) -> u32 {
        self.bio.sector.0.wrapping_sub(start.0) as u32
    }
}

/// What follows the end of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Then {
    /// This queue has nothing to do.
    Nothing,
    /// Parked writes are next: the zone gets in line.
    InLine,
    /// The layer reports the zone, under this number.
    Report(u32),
}

/// How many recoveries in a row a zone gets without any progress in between.
pub(super) const MAX_ATTEMPTS: u8 = 3;
