//! What is kept of a zone beside its plug: of several writes in flight, and of a failure that the layer recovers from.

use crate::bio::{Bio, Status};

/// Beside a plug: 56 bytes. Kept for every zone where several writes may be in flight; elsewhere for the zones of a shard
/// from its first failure on.
#[derive(Debug, Default)]
pub(crate) struct Track {
    /// The queue that the writes in flight are on.
    pub(super) home: u32,
    /// How far writes have succeeded since the zone was last without any in flight, in sectors. Where one write is in
    /// flight: what was there before the one that failed.
    pub(super) done: u32,
    /// Recoveries since a write last succeeded.
    pub(super) attempts: u8,
    /// The number of the report that is on its way.
    pub(super) asked: u32,
    /// What has failed and waits for the others.
    pub(super) held: Vec<Held>,
    /// Where one write is in flight: the write pointer that the last recovery found, and the generation in which it did.
    pub(super) found: u32,
    pub(super) generation: u32,
    /// The ticket of writes that were given up and may still be at the device.
    pub(super) late: u32,
}

/// A write that has failed.
#[derive(Debug)]
pub(super) struct Held {
    /// It says how it failed. If the device was busy it is as if it had not been sent: it may still say how it failed before.
    pub(super) bio: Box<Bio>,
    pub(super) status: Status,
    /// Provably no data moved.
    pub(super) kept: bool,
}

/// What follows the end of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Then {
    /// Nothing by this queue.
    Nothing,
    /// The zone gets in line with what is parked.
    InLine,
    /// The zone is reported, under this number.
    Report(u32),
}

/// How often a zone goes on after a failure without any progress in between.
pub(super) const MAX_ATTEMPTS: u8 = 3;
