//! How a queue gets the token of a single writer and passes it on. There is one single writer for each spindle.
//!
//! `sched/writer.rs` decides which zone has its turn. This file takes the locks for it: first that of a
//! [`SingleWriter`], then that of a plug, and never those of two single writers. A queue may hold the tokens of several
//! spindles.
//!
//! Turns need no thread: the queue that completes the write of a turn sends the next write, with one of its own tags.
//! A queue with a token has a command in flight, work in its line, or a wait with a deadline. So the queue counts as
//! busy, a freeze waits for it, and an orphan is polled until its tokens are free (Q8, Q9).

use crate::disk::queue_state::QueueState;
use crate::disk::queue_state::backlog::Work;
use crate::disk::queue_state::waits::Wait;
use crate::disk::shared::Shared;
use crate::disk::snapshot::Layout;
use crate::disk::state;
use crate::sched::writer::{Listed, SingleWriter};
use crate::sched::writer_cell::WriterCell;
use crate::sync::{MutexGuard, Ordering, Padded};
use crate::unit::{Nanos, Sector, ZoneNo};
use crate::zone::{Geometry, Spindles};

/// A single writer for each spindle of a device.
pub(crate) fn per_spindle(geometry: &Geometry, spindles: &Spindles) -> Box<[Padded<WriterCell>]> {
    if spindles.count() == 1 {
        return Box::new([Padded::default()]);
    }
    // Policies compute distances over the span from the start of the spindle's first zone to the end of its last.
    let mut spans = vec![(geometry.capacity(), Sector(0)); spindles.count()];
    for zone in (0..geometry.nr_zones()).map(ZoneNo) {
        let (first, end) = &mut spans[spindles.of(zone)];
        let start = geometry.zone_start(zone);
        *first = start.min(*first);
        *end = start.plus(u64::from(geometry.zone_len_sectors(zone)));
    }
    let writer = |(first, end)| Padded(WriterCell::new(SingleWriter::of_span(first, end)));
    spans.into_iter().map(writer).collect()
}

impl Shared {
    /// The single writer of a zone, locked, and the number of its spindle.
    fn writer(&self, zone: ZoneNo) -> (MutexGuard<'_, SingleWriter>, usize) {
        let (writer, spindle) = self.single_writer(zone);
        (writer.lock(), spindle)
    }
}

impl QueueState {
    /// Lists a zone that has its first waiting write and nothing in flight.
    pub(crate) fn enlist(&mut self, shared: &Shared, layout: &Layout, zone: ZoneNo, now: Nanos) {
        let (mut shard, i) = shared.shard_of(zone);
        let ticket = shard.plugs[i].get_listed();
        drop(shard);
        self.enlist_with(shared, layout, zone, ticket, now);
    }

    /// Like [`QueueState::enlist`], with a ticket that the plug has given. If the queue with the token waits for more writes
    /// of this zone, the turn continues instead, and this queue takes over the token (Q2).
    pub(crate) fn enlist_with(
        &mut self,
        shared: &Shared,
        layout: &Layout,
        zone: ZoneNo,
        ticket: u16,
        now: Nanos,
    ) {
        let (mut writer, spindle) = shared.writer(zone);
        match writer.list(zone, ticket, now, &layout.writer_params) {
            Listed::Queued => {}
            Listed::Go => self.next_turn(shared, layout, writer, spindle, now),
            Listed::Resume => {
                let (mut shard, i) = shared.shard_of(zone);
                let valid = shard.plugs[i].leave_list(ticket);
                drop(shard);
                if valid {
                    self.backlog.begin_turn(zone);
                } else {
                    // An abort has taken the zone's writes meanwhile. Its next write is listed anew, and waits for a turn of its own.
                    self.next_turn(shared, layout, writer, spindle, now);
                }
            }
            Listed::Wait { wait: number, until } => {
                self.waits.put(Wait { spindle, number, until });
            }
        }
    }

    /// Begins the turn of the next zone, or frees the token if no zone is listed. The caller has the spindle's token,
    /// and no write of the last turn is in flight.
    fn next_turn(
        &mut self,
        shared: &Shared,
        layout: &Layout,
        mut writer: MutexGuard<'_, SingleWriter>,
        spindle: usize,
        now: Nanos,
    ) {
        if layout.writer_params.policy.wants_bytes() {
            Self::review(shared, layout, &mut writer);
        }
        while let Some((zone, ticket)) = writer.next(now, &layout.writer_params) {
            debug_assert_eq!(shared.spindles.of(zone), spindle, "a token is for its own spindle");
            let (mut shard, i) = shared.shard_of(zone);
            if !shard.plugs[i].leave_list(ticket) {
                // The writes of the zone were aborted, and this entry of the list has not been removed yet.
                continue;
            }
            let start = layout.geometry.zone_start(zone);
            let waiting = shard.extent(i, start).unwrap_or(start..start);
            writer.begin_turn(zone, waiting, now);
            drop(shard);
            return self.backlog.begin_turn(zone);
        }
        // The token is free. The next write of the last zone may be a short turn, which needs the plug's word.
        if let Some((Some(zone), _)) = writer.before_short_turns()
            && !layout.words.is_idle(shared.place(zone))
        {
            let (mut shard, i) = shared.shard_of(zone);
            shard.unlock_plug(i);
        }
        shared.single_writers[spindle].0.open(&writer);
    }

    /// Continues a turn whose zone has more to write. If another zone has waited too long, ends the turn instead.
    pub(crate) fn continue_turn(
        &mut self,
        shared: &Shared,
        layout: &Layout,
        zone: ZoneNo,
        end: Sector,
        now: Nanos,
    ) {
        let (mut writer, spindle) = shared.writer(zone);
        writer.wrote(end);
        if !writer.cuts_off(end, now, &layout.writer_params) {
            return self.backlog.line.push_back(Work::Zone(zone));
        }
        let (mut shard, i) = shared.shard_of(zone);
        let ticket = shard.plugs[i].get_listed();
        drop(shard);
        writer.list_again(zone, ticket, end, now);
        self.next_turn(shared, layout, writer, spindle, now);
    }

    /// Handles a turn whose zone has nothing left to write: waits for more if the policy asks for that, and otherwise
    /// begins the turn of the spindle's next zone. `end`: where the last write ended, if it succeeded.
    pub(crate) fn end_or_extend_turn(
        &mut self,
        shared: &Shared,
        layout: &Layout,
        zone: ZoneNo,
        end: Option<Sector>,
        now: Nanos,
    ) {
        let frozen = state::is_frozen(shared.state.0.load(Ordering::Acquire));
        let (mut writer, spindle) = shared.writer(zone);
        if let Some(end) = end {
            writer.wrote(end);
            if layout.writer_params.anticipation.0 > 0 && layout.writer_params.policy.wants_bytes()
            {
                Self::review(shared, layout, &mut writer);
            }
        }
        match writer.drained(end, now, frozen, &layout.writer_params) {
            Some((number, until)) => self.waits.put(Wait { spindle, number, until }),
            None => self.next_turn(shared, layout, writer, spindle, now),
        }
    }

    /// Ends the waits of this queue whose time is over, and all of them during a freeze. Drops a wait if another queue
    /// has taken the token meanwhile and continues the turn.
    #[cold]
    pub(crate) fn check_waits(&mut self, shared: &Shared, layout: &Layout, now: Nanos) {
        let frozen = state::is_frozen(shared.state.0.load(Ordering::Acquire));
        let mut i = 0;
        while let Some(Wait { spindle, number, until }) = self.waits.get(i) {
            let mut writer = shared.single_writers[spindle].0.lock();
            if now >= until || frozen {
                self.waits.remove(i);
                if writer.end_wait(number) {
                    self.next_turn(shared, layout, writer, spindle, now);
                }
            } else if !writer.is_waiting(number) {
                self.waits.remove(i);
            } else {
                i += 1;
            }
        }
    }

    /// Updates the list for the policy: where the waiting writes of each zone begin, and how many bytes they have.
    /// Removes the entries of zones whose writes were aborted.
    fn review(shared: &Shared, layout: &Layout, writer: &mut SingleWriter) {
        writer.review(|c, ticket| {
            let (shard, i) = shared.shard_of(c.zone);
            let start = layout.geometry.zone_start(c.zone);
            if let Some(waiting) = shard.extent(i, start) {
                c.sector = waiting.start;
                c.bytes = Sector(waiting.end.0.saturating_sub(waiting.start.0)).to_bytes();
            }
            shard.plugs[i].is_listed_by(ticket)
        });
    }

    /// Removes the list entries of zones that have no waiting write left, after writes were aborted (Q7).
    #[cold]
    pub(crate) fn unlist_aborted(shared: &Shared) {
        for writer in &shared.single_writers {
            writer.0.inspect().review(|c, ticket| {
                let (shard, i) = shared.shard_of(c.zone);
                shard.plugs[i].is_listed_by(ticket)
            });
        }
    }
}
