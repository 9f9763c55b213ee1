//! What a policy sees of the zones that wait for a single writer.

use crate::unit::{Bytes, Nanos, Sector, ZoneNo};

/// A zone whose writes wait for their turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate {
    /// Which.
    pub zone: ZoneNo,
    /// Where its first waiting write starts. Kept only for policies that ask for it.
    pub sector: Sector,
    /// How much waits. Kept only for policies that ask for it.
    pub bytes: Bytes,
    /// When it was listed.
    pub since: Nanos,
}

/// The turn of a zone, as far as it has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Turn {
    /// When it began.
    pub began: Nanos,
    /// What it has written.
    pub written: Bytes,
    /// How often the writer has waited for more, and got it.
    pub waits: u32,
}

/// What a policy sees.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    /// The time.
    pub now: Nanos,
    /// The zones that wait, first listed first. Never empty.
    pub listed: &'a [Candidate],
    /// The zone of the last turn.
    pub last: Option<ZoneNo>,
    /// That turn.
    pub turn: Turn,
    /// Where the last write of that turn ended: the best estimate of where the head is.
    pub head: Sector,
    /// The size of the disk; of one of several, what lies from its first zone to its last.
    pub capacity: Sector,
}

impl View<'_> {
    /// How long the zone that was listed first has waited.
    pub fn longest_wait(&self) -> Nanos {
        self.listed.first().map_or(Nanos(0), |c| Nanos(self.now.0.saturating_sub(c.since.0)))
    }
}

/// Zones for the tests of the policies: (zone, KiB that wait), of 256 MiB each, on a disk of 1024 zones.
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

/// What a policy sees of them.
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
