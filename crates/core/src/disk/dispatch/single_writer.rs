//! How a queue gets the token of a single writer and passes it on. There is one single writer for each spindle.
//!
//! `sched/writer.rs` decides which zone has its turn. This file takes the locks for it: first that of a
//! [`SingleWriter`], then that of a plug, and never those of two single writers. A queue may hold the tokens of several
//! spindles.
//!
//! There is no thread: the queue that completes the write of a turn goes on, with a tag of its own. A queue with a
//! token has a command in flight, work in its line, or a wait with a deadline. So it counts as busy, a freeze waits
//! for it, and an orphan is polled until its tokens are free (Q8, Q9).

use crate::disk::queue_state::QueueState;
use crate::disk::queue_state::backlog::Work;
use crate::disk::queue_state::waits::Wait;
use crate::disk::shared::Shared;
use crate::disk::snapshot::Layout;
use crate::disk::state;
use crate::sched::writer::{Listed, SingleWriter};
use crate::sync::{Mutex, MutexGuard, Ordering, Padded, lock};
use crate::unit::{Nanos, Sector, ZoneNo};
use crate::zone::{Geometry, Spindles};

/// A single writer for each spindle of a device.
pub(crate) fn per_spindle(
    geometry: &Geometry,
    spindles: &Spindles,
) -> Box<[Padded<Mutex<SingleWriter>>]> {
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
    let writer = |(first, end)| Padded(Mutex::new(SingleWriter::of_span(first, end)));
    spans.into_iter().map(writer).collect()
}

impl Shared {
    /// The single writer of a zone, locked, and the number of its spindle.
    fn writer(&self, zone: ZoneNo) -> (MutexGuard<'_, SingleWriter>, usize) {
        let spindle = self.spindles.of(zone);
        (lock(&self.single_writers[spindle].0), spindle)
    }
}

impl QueueState {
    /// Lists a zone that has its first waiting write and nothing in flight; if the zone's turn still lasts, the turn
    /// goes on (Q2).
    pub(crate) fn enlist(&mut self, shared: &Shared, layout: &Layout, zone: ZoneNo, now: Nanos) {
        let (mut writer, spindle) = shared.writer(zone);
        let listed = writer.list(zone, now, &layout.writer_params);
        if let Listed::Queued(ticket) | Listed::Go(ticket) | Listed::Wait { ticket, .. } = listed {
            let (mut shard, i) = shared.shard_of(zone);
            shard.plugs[i].ticket = ticket;
        }
        match listed {
            Listed::Queued(_) => {}
            Listed::Go(_) => self.next_turn(shared, layout, (writer, spindle), now),
            Listed::Resume => self.backlog.begin_turn(zone),
            Listed::Wait { wait: number, until, .. } => {
                self.waits.put(Wait { spindle, number, until });
            }
        }
    }

    /// Called with the token of a spindle and nothing of its turn in flight: begins the turn of the next zone, or
    /// frees the token.
    fn next_turn(
        &mut self,
        shared: &Shared,
        layout: &Layout,
        (mut writer, spindle): (MutexGuard<'_, SingleWriter>, usize),
        now: Nanos,
    ) {
        if layout.writer_params.policy.wants_bytes() {
            Self::review(shared, layout, &mut writer);
        }
        while let Some((zone, ticket)) = writer.next(now, &layout.writer_params) {
            debug_assert_eq!(shared.spindles.of(zone), spindle, "a token is for its own spindle");
            let (mut shard, i) = shared.shard_of(zone);
            if shard.plugs[i].ticket != ticket {
                // The writes of the zone were aborted, and this entry of the list has not been removed yet.
                continue;
            }
            shard.plugs[i].ticket = 0;
            let start = layout.geometry.zone_start(zone);
            let waiting = shard.extent(i, start).unwrap_or(start..start);
            writer.begin_turn(zone, waiting, now);
            drop(shard);
            return self.backlog.begin_turn(zone);
        }
    }

    /// Goes on with a turn whose zone has more to write, unless another zone has waited too long.
    pub(crate) fn go_on(
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
        let ticket = writer.list_again(zone, end, now);
        let (mut shard, i) = shared.shard_of(zone);
        shard.plugs[i].ticket = ticket;
        drop(shard);
        self.next_turn(shared, layout, (writer, spindle), now);
    }

    /// Ends or extends a turn whose zone has nothing to write: waits for more if the policy wants to, or goes on with
    /// the next zone of the spindle.
    pub(crate) fn turn_over(
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
            None => self.next_turn(shared, layout, (writer, spindle), now),
        }
    }

    /// Looks at the waits for more writes that this queue began with a token. Another queue may have gone on with the
    /// turn.
    #[cold]
    pub(crate) fn check_waits(&mut self, shared: &Shared, layout: &Layout, now: Nanos) {
        let frozen = state::is_frozen(shared.state.0.load(Ordering::Acquire));
        let mut i = 0;
        while let Some(Wait { spindle, number, until }) = self.waits.get(i) {
            let mut writer = lock(&shared.single_writers[spindle].0);
            if now >= until || frozen {
                self.waits.remove(i);
                if writer.end_wait(number) {
                    self.next_turn(shared, layout, (writer, spindle), now);
                }
            } else if !writer.is_waiting(number) {
                self.waits.remove(i);
            } else {
                i += 1;
            }
        }
    }

    /// Tells the policy how much waits in each listed zone.
    fn review(shared: &Shared, layout: &Layout, writer: &mut SingleWriter) {
        writer.review(|c, ticket| {
            let (shard, i) = shared.shard_of(c.zone);
            let start = layout.geometry.zone_start(c.zone);
            if let Some(waiting) = shard.extent(i, start) {
                c.sector = waiting.start;
                c.bytes = Sector(waiting.end.0.saturating_sub(waiting.start.0)).to_bytes();
            }
            shard.plugs[i].ticket == ticket
        });
    }

    /// Called after writes were aborted: removes the list entries of zones that have none left (Q7).
    #[cold]
    pub(crate) fn sweep(shared: &Shared) {
        for writer in &shared.single_writers {
            lock(&writer.0).review(|c, ticket| {
                let (shard, i) = shared.shard_of(c.zone);
                shard.plugs[i].ticket == ticket
            });
        }
    }
}
