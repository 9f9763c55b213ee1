//! Which zone the single writer goes to next. A policy is one plain function over a [`View`]: no state, no clock, no
//! lock. A new one is a file here and a line in the table below.

mod clook;
mod fifo;
mod score;

use crate::unit::{Bytes, Nanos, Sector, ZoneNo};
use std::fmt;

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

/// What a policy sees.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    /// Those who wait, first listed first. Never empty.
    pub listed: &'a [Candidate],
    /// The zone of the last turn.
    pub last: Option<ZoneNo>,
    /// Where the last write of that turn ended: the place of the head, as far as anybody knows.
    pub head: Sector,
    /// The size of the disk.
    pub capacity: Sector,
}

/// A policy: the index in `listed` of the zone that is next.
pub type Pick = fn(&View<'_>) -> usize;

/// A policy by name.
///
/// ```
/// use zoneplug_core::sched::Policy;
/// assert_eq!(Policy::from_name("clook"), Some(Policy::Clook));
/// assert_eq!(Policy::default().name(), "fifo");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum Policy {
    /// In the order in which zones got their first waiting write: as published (Q3).
    #[default]
    Fifo,
    /// The next zone upward, and from the last one back to the first: one visit of each zone a sweep.
    Clook,
    /// The most bytes for the time that it takes to get there and write them.
    Score,
}

impl Policy {
    /// Every policy.
    pub const ALL: [Policy; 3] = [Policy::Fifo, Policy::Clook, Policy::Score];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Policy::Fifo => "fifo",
            Policy::Clook => "clook",
            Policy::Score => "score",
        }
    }

    /// The policy of that name.
    pub fn from_name(name: &str) -> Option<Policy> {
        Policy::ALL.into_iter().find(|p| p.name() == name)
    }

    /// The function.
    pub const fn pick(self) -> Pick {
        match self {
            Policy::Fifo => fifo::pick,
            Policy::Clook => clook::pick,
            Policy::Score => score::pick,
        }
    }

    /// Whether it looks at what waits in each zone, and where: that is asked of each plug before a pick.
    pub const fn wants_bytes(self) -> bool {
        matches!(self, Policy::Score)
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
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

#[cfg(test)]
pub(crate) fn view(listed: &[Candidate], last: Option<u32>) -> View<'_> {
    View {
        listed,
        last: last.map(ZoneNo),
        head: Sector(u64::from(last.unwrap_or(0)) << 19),
        capacity: Sector(1024 << 19),
    }
}
