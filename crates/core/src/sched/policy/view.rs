//! The view that a policy gets of the zones that wait for a single writer.

use crate::unit::{Bytes, Nanos, Sector, ZoneNo};

/// A zone whose writes wait for their turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate {
    /// The zone.
    pub zone: ZoneNo,
    /// The first sector that waits. Filled in only for policies that look at bytes.
    pub sector: Sector,
    /// The bytes that wait. Filled in only for policies that look at bytes.
    pub bytes: Bytes,
    /// The time at which it was listed.
    pub since: Nanos,
}

/// The turn of a zone so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Turn {
    /// The time at which it began.
    pub began: Nanos,
    /// The bytes that it has written.
    pub written: Bytes,
    /// Waits for more that were successful.
    pub waits: u32,
}

/// A policy's view of the single writer and its zones.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    /// The time now.
    pub now: Nanos,
    /// The waiting zones, first listed first. Never empty.
    pub listed: &'a [Candidate],
    /// The zone that had the last turn.
    pub last: Option<ZoneNo>,
    /// The turn of that zone.
    pub turn: Turn,
    /// The sector at which the last write of that turn ended: the best estimate of where the head is.
    pub head: Sector,
    /// The size of the disk. If it has several spindles: the distance from the spindle's first zone to the end of its
    /// last.
    pub capacity: Sector,
}

impl View<'_> {
    /// Returns how long the zone that was listed first has waited.
    pub fn longest_wait(&self) -> Nanos {
        self.listed.first().map_or(Nanos(0), |c| Nanos(self.now.0.saturating_sub(c.since.0)))
    }
}

/// Zones for the tests of policies, as pairs: the zone and the KiB that wait. Zones of 256 MiB, on a disk of 1024
/// zones.
#[cfg(test)]
pub(crate) fn candidates(of: &[(u32, u64)]) -> Vec<Candidate> {
    of.iter()
        .enumerate()
        .map(|(i, &(zone, kib))| Candidate {
            zone: ZoneNo(zone),
            sector: Sector(u64::from(zone) << 19),
            bytes: Bytes(kib << 10),
            since: Nanos(i as u64),
        })
        .collect()
}

/// Returns a view of these zones.
#[cfg(test)]
pub(crate) fn view(listed: &[Candidate], last: Option<u32>) -> View<'_> {
    View {
        now: Nanos(listed.len() as u64),
        listed,
        last: last.map(ZoneNo),
        turn: Turn::default(),
        head: Sector(u64::from(last.unwrap_or(0)) << 19),
        capacity: Sector(1024 << 19),
    }
}
