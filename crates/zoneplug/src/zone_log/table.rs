//! The state of a log's zones. Does no I/O: the writer asks what to do next and reports the
//! results.
//!
//! The zones in use form a line, oldest first; the last one is the head, which is written. A zone
//! is finished before the next is written, so a log never has more than one zone open or active.
//! The next head comes from the pool, which the logs of a set share.

use super::format::{HEADER_LEN, taken};
use super::pool::Pool;
use super::{LogAddress, LogError};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use zoneplug_core::zone::Condition;
use zoneplug_core::{Sector, ZoneNo};

/// How the log uses a zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    /// The zone holds no record of this log. If the pool has it, it is empty and can be written
    /// from its start.
    Free,
    /// The zone holds records.
    Held(Held),
    /// The zone is offline, or read-only without a record of this log.
    Lost(Condition),
    /// The zone holds data that are no record of this log.
    Foreign,
    /// The zone is being reset: its records are gone, and it cannot be written yet.
    BeingReset,
}

/// A zone that holds records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) generation: u64,
    /// The number of its first record.
    pub(super) first: u64,
    /// The end of the readable data, in bytes from the start of the disk.
    pub(super) end: u64,
    /// Whether no more records may be written to it.
    pub(super) sealed: bool,
}

/// A zone of the set.
#[derive(Debug, Clone, Copy)]
pub(super) struct LogZone {
    pub(super) no: ZoneNo,
    /// The start, in bytes from the start of the disk.
    pub(super) start: u64,
    pub(super) len_sectors: u32,
    /// The capacity in bytes.
    pub(super) capacity: u64,
    pub(super) state: Use,
}

impl LogZone {
    pub(super) fn sector(&self) -> Sector {
        Sector(self.start >> 9)
    }

    pub(super) fn limit(&self) -> u64 {
        self.start + self.capacity
    }
}

/// The place of the next batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BatchPlace {
    /// The head: position and room in bytes, and the zone's generation.
    At { position: u64, room: u64, generation: u64 },
    /// The reserved zone, once the zone `seal` has been sealed and finished.
    Next { seal: Option<usize> },
}

/// The state of a log.
#[derive(Debug)]
pub(super) struct Table {
    /// The log's id.
    pub(super) log: u64,
    /// The write granularity in bytes.
    pub(super) block: u64,
    /// The zones of the set, in the order of the disk.
    pub(super) zones: Vec<LogZone>,
    /// The zones that no log of the set has. Zones in `line`, `head` and `reserved` are not in it.
    pub(super) pool: Arc<Pool>,
    /// Zones with records, oldest first, as indices of `zones`.
    pub(super) line: VecDeque<usize>,
    /// The zone being written; not in `line` while it is empty.
    pub(super) head: Option<usize>,
    /// The zone to be written next, while the head is being finished.
    pub(super) reserved: Option<usize>,
    pub(super) next_sequence: u64,
    pub(super) next_generation: u64,
    pub(super) session: u32,
    /// Whether a record of this session is durable. Otherwise a crash could let the next session
    /// reuse the session's number.
    pub(super) session_durable: bool,
    /// Whether something was written since the last flush.
    pub(super) dirty: bool,
    /// Whether a write failed: the device has to be asked for the end of the head.
    pub(super) suspect: bool,
    /// Whether acknowledged records are gone.
    pub(super) failed: bool,
}

impl Table {
    /// Whether the log takes no more records: some are gone, or a flush of the set failed.
    pub(super) fn has_failed(&self) -> bool {
        self.failed || self.pool.has_flush_failed()
    }

    /// The length of the longest record in bytes.
    pub(super) fn max_len(&self) -> u64 {
        let capacity = self.zones.iter().map(|z| z.capacity).max().unwrap_or(0);
        capacity.saturating_sub(HEADER_LEN as u64).min(u64::from(u32::MAX) - 4096)
    }

    /// The range of record numbers.
    pub(super) fn numbers(&self) -> Range<u64> {
        let oldest = self.line.front().and_then(|z| self.held(*z));
        oldest.map_or(self.next_sequence, |h| h.first)..self.next_sequence
    }

    /// Returns the place of a record with `len` bytes of data. Reserves a zone if the record goes
    /// to another one.
    pub(super) fn place(&mut self, len: u64) -> Result<BatchPlace, LogError> {
        let need = taken(len);
        // An earlier move to this zone was dropped in the middle. This record may not need it, or
        // need a larger one.
        self.release();
        if let Some(zone) = self.head.map(|h| &self.zones[h]) {
            let (position, generation, sealed) = match zone.state {
                Use::Held(held) => (held.end, held.generation, held.sealed),
                _ => (zone.start, self.next_generation, false),
            };
            let room = zone.limit().saturating_sub(position);
            if !sealed && need <= room {
                return Ok(BatchPlace::At { position, room, generation });
            }
        }
        // Zones are used in turn, starting behind the head.
        let from = self.head.or_else(|| self.line.back().copied()).map_or(0, |h| h + 1);
        let nr = self.zones.len();
        let fits = |i: &usize| self.zones[*i].state == Use::Free && need <= self.zones[*i].capacity;
        let next = (from..from + nr).map(|i| i % nr).find(|i| fits(i) && self.pool.take(*i));
        self.reserved = Some(next.ok_or(LogError::Full)?);
        let seal = self.head.filter(|h| matches!(self.zones[*h].state, Use::Held(_)));
        Ok(BatchPlace::Next { seal })
    }

    /// Returns the reserved zone to the pool: the log does not continue in it.
    pub(super) fn release(&mut self) {
        if let Some(zone) = self.reserved.take() {
            self.pool.give_back(zone);
        }
    }

    /// Makes the reserved zone the head. A head that was never written goes back to the pool.
    pub(super) fn advance(&mut self) {
        if let Some(unused) = self.head.filter(|h| self.zones[*h].state == Use::Free) {
            self.pool.give_back(unused);
        }
        self.head = self.reserved.take();
    }

    /// Extends the head's data to `end`; `first` is its first record if it was empty.
    pub(super) fn head_reaches(&mut self, end: u64, first: u64) {
        let Some(head) = self.head else { return };
        let zone = &mut self.zones[head];
        match &mut zone.state {
            Use::Held(held) => held.end = end,
            state => {
                let generation = self.next_generation;
                *state = Use::Held(Held { generation, first, end, sealed: false });
                self.next_generation += 1;
                self.line.push_back(head);
            }
        }
    }

    pub(super) fn seal_head(&mut self) {
        if let Some(Use::Held(held)) = self.head.map(|h| &mut self.zones[h].state) {
            held.sealed = true;
        }
    }

    /// Gives up a head that can no longer be written. A read-only one with records stays readable.
    pub(super) fn lose_head(&mut self, condition: Condition) {
        let Some(head) = self.head.take() else { return };
        let keep = condition == Condition::ReadOnly && self.line.contains(&head);
        if !keep {
            self.zones[head].state = Use::Lost(condition);
            self.line.retain(|z| *z != head);
        }
    }

    /// The oldest zone, if a newer one holds records: the newest must stay, because the numbers
    /// continue from it.
    pub(super) fn oldest(&self) -> Option<usize> {
        self.line.front().copied().filter(|_| self.line.len() > 1)
    }

    /// The oldest zone, if all of its records are older than `before`.
    pub(super) fn oldest_before(&self, before: LogAddress) -> Option<usize> {
        let second = *self.line.get(1)?;
        let first = self.held(second)?.first;
        self.oldest().filter(|_| first <= before.sequence())
    }

    /// Marks the zone as being reset. A reader that finds no record there now sees that its zone is
    /// gone.
    pub(super) fn begin_reset(&mut self, zone: usize) -> Use {
        self.line.retain(|z| *z != zone);
        std::mem::replace(&mut self.zones[zone].state, Use::BeingReset)
    }

    /// Notes the state of a zone after its reset. The zone was the oldest.
    pub(super) fn end_reset(&mut self, zone: usize, state: Use) {
        self.zones[zone].state = state;
        match state {
            Use::Held(_) => self.line.push_front(zone),
            Use::Free => self.pool.give_back(zone),
            _ => {}
        }
    }

    pub(super) fn held(&self, zone: usize) -> Option<Held> {
        match self.zones.get(zone)?.state {
            Use::Held(held) => Some(held),
            _ => None,
        }
    }

    /// The zone that holds a record, if it still does.
    pub(super) fn find(&self, at: LogAddress) -> Result<(usize, Held), LogError> {
        let behind = self.zones.partition_point(|z| z.start <= at.position());
        let found = behind.checked_sub(1).and_then(|i| self.held(i).map(|h| (i, h)));
        found
            .filter(|(_, held)| {
                held.first <= at.sequence()
                    && at.sequence() < self.next_sequence
                    && at.position().saturating_add(HEADER_LEN as u64) <= held.end
            })
            .ok_or(LogError::Stale(at))
    }

    /// The zone in use with the smallest generation above `generation`.
    pub(super) fn after(&self, generation: u64) -> Option<(usize, Held)> {
        let held = self.line.iter().filter_map(|z| self.held(*z).map(|h| (*z, h)));
        held.filter(|(_, h)| h.generation > generation).min_by_key(|(_, h)| h.generation)
    }

    /// Returns the zone's state if it is still in the use `generation`.
    pub(super) fn still(&self, zone: usize, generation: u64) -> Option<Held> {
        self.held(zone).filter(|h| h.generation == generation)
    }
}
