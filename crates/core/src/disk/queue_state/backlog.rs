//! The backlog of one queue: work that waits for a tag, in the order in which it is sent.

use crate::bio::Bio;
use crate::unit::{Sector, ZoneNo};
use std::collections::VecDeque;

/// Work that waits for a tag.
#[derive(Debug)]
pub(crate) enum Work {
    /// A BIO that no plug orders.
    Bio(Box<Bio>),
    /// A busy zone whose next write has not been sent. Its BIOs are parked in its plug and go on merging.
    Zone(ZoneNo),
    /// Like `Zone`, on a disk with a single writer: a zone that is to be listed, with its ticket. Only `ready` has it.
    Listed(ZoneNo, u16),
}

const _: () = assert!(size_of::<Work>() == 16);

/// An event in the turn of a zone, on a disk with a single writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TurnEvent {
    /// A write of the turn has ended at this sector, and the zone has more to write.
    More(ZoneNo, Sector),
    /// The zone has nothing more to write; its last write ended at this sector.
    Done(ZoneNo, Sector),
    /// The turn ends because a write failed, or because the waiting writes were aborted.
    Broken(ZoneNo),
}

/// The backlog of one queue.
///
/// Work comes into `ready`. An ordinary queue sends it from there. On an arbitrated disk, `dispatch`
/// moves it to `line` when it may be sent.
#[derive(Debug)]
pub(crate) struct Backlog {
    /// Work that has arrived.
    pub(crate) ready: VecDeque<Work>,
    /// The line: work that is sent as soon as there is a tag. Unused on ordinary queues.
    pub(crate) line: VecDeque<Work>,
    /// Events that `dispatch` has not handled. Empty between two calls of the queue.
    events: VecDeque<TurnEvent>,
    /// Zones whose turn begins in this call of the queue. `dispatch` puts them at the end of the line, behind the other
    /// work of this call.
    turns: Vec<ZoneNo>,
}

impl Backlog {
    /// An empty backlog with room for `nr` entries.
    pub(crate) fn new(nr: usize) -> Backlog {
        Backlog {
            ready: VecDeque::with_capacity(nr),
            line: VecDeque::with_capacity(nr),
            events: VecDeque::new(),
            turns: Vec::new(),
        }
    }

    /// Frees the spare memory of the lists.
    pub(crate) fn shrink(&mut self) {
        self.ready.shrink_to_fit();
        self.line.shrink_to_fit();
        self.events.shrink_to_fit();
        self.turns.shrink_to_fit();
    }

    /// Returns how many entries wait.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.ready.len() + self.line.len()
    }

    /// Returns whether nothing waits.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        debug_assert!(
            self.events.is_empty() && self.turns.is_empty(),
            "each call handles its events and turns"
        );
        self.ready.is_empty() && self.line.is_empty()
    }

    /// Returns whether there is work that `dispatch` has not handled.
    #[inline]
    pub(crate) fn has_unhandled(&self) -> bool {
        !self.ready.is_empty() || !self.events.is_empty()
    }

    /// Adds a zone that has a write to send.
    #[inline]
    pub(crate) fn push_zone(&mut self, zone: ZoneNo) {
        self.ready.push_back(Work::Zone(zone));
    }

    /// Adds a zone that has a write to send when the single writer comes to it.
    #[inline]
    pub(crate) fn push_listed(&mut self, zone: ZoneNo, ticket: u16) {
        self.ready.push_back(Work::Listed(zone, ticket));
    }

    /// Adds a BIO that no plug orders.
    #[inline]
    pub(crate) fn push_bio(&mut self, bio: Box<Bio>) {
        self.ready.push_back(Work::Bio(bio));
    }

    /// Adds an event in the turn of a zone.
    #[inline]
    pub(crate) fn push_event(&mut self, event: TurnEvent) {
        self.events.push_back(event);
    }

    /// Takes the first event.
    #[inline]
    pub(crate) fn next_event(&mut self) -> Option<TurnEvent> {
        self.events.pop_front()
    }

    /// Notes that the turn of a zone begins, or goes on after a wait.
    #[inline]
    pub(crate) fn begin_turn(&mut self, zone: ZoneNo) {
        self.turns.push(zone);
    }

    /// Puts the zones whose turn begins at the end of the line.
    #[inline]
    pub(crate) fn line_up_turns(&mut self) {
        if !self.turns.is_empty() {
            self.line.extend(self.turns.drain(..).map(Work::Zone));
        }
    }

    /// Takes the zones out of the line. The BIOs stay.
    pub(crate) fn take_zones(&mut self) -> Vec<ZoneNo> {
        let mut zones = Vec::new();
        self.line.retain(|work| match work {
            Work::Zone(zone) | Work::Listed(zone, _) => {
                zones.push(*zone);
                false
            }
            Work::Bio(_) => true,
        });
        zones
    }

    /// Puts zones back into the line, in front of all BIOs.
    pub(crate) fn put_zones(&mut self, zones: Vec<ZoneNo>) {
        for zone in zones.into_iter().rev() {
            self.line.push_front(Work::Zone(zone));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bio::Op;

    fn line(backlog: &Backlog) -> Vec<Option<u32>> {
        let name = |work: &Work| match work {
            Work::Zone(zone) | Work::Listed(zone, _) => Some(zone.0),
            Work::Bio(_) => None,
        };
        backlog.line.iter().map(name).collect()
    }

    #[test]
    fn zones_leave_the_line_in_order_and_come_back_in_front() {
        let mut backlog = Backlog::new(4);
        let bio = || Work::Bio(Bio::new(Op::Flush, Sector(0), 0));
        backlog.line.extend([bio(), Work::Zone(ZoneNo(7)), bio(), Work::Zone(ZoneNo(3))]);
        let zones = backlog.take_zones();
        assert_eq!(zones, [ZoneNo(7), ZoneNo(3)]);
        assert_eq!(line(&backlog), [None, None]);
        backlog.put_zones(zones);
        assert_eq!(line(&backlog), [Some(7), Some(3), None, None]);
    }

    #[test]
    fn zones_of_new_turns_go_behind_the_work_in_line() {
        let mut backlog = Backlog::new(4);
        backlog.begin_turn(ZoneNo(1));
        backlog.line.push_back(Work::Zone(ZoneNo(2)));
        backlog.line_up_turns();
        assert_eq!(line(&backlog), [Some(2), Some(1)]);
        assert!(!backlog.has_unhandled() && backlog.len() == 2);
    }
}
