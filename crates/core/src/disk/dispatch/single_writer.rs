//! How a queue gets the token of a single writer and passes it on. There is one single writer for each spindle.
//!
//! `sched/writer.rs` decides which zone has its turn. This file takes the locks for it: first that of a gate (the
//! state of one single writer), then that of a plug, and never those of two gates. A queue may hold the tokens of
//! several spindles.
//!
//! There is no thread: the queue that completes the write of a turn goes on, with a tag of its own. A queue with a
//! token has a command in flight, work in its line, or a wait with a deadline. So it counts as busy, a freeze waits
//! for it, and an orphan is polled until its tokens are free (Q8, Q9).

use crate::disk::lane::Lane;
use crate::disk::lane::backlog::Work;
use crate::disk::lane::waits::Wait;
use crate::disk::shared::Shared;
use crate::disk::snapshot::Layout;
use crate::disk::state;
use crate::sched::writer::{Gate, Listed};
use crate::sync::{Mutex, MutexGuard, Ordering, Padded, lock};
use crate::unit::{Nanos, Sector, ZoneNo};
use crate::zone::{Geometry, Spindles};

/// A gate for each spindle of a device.
pub(crate) fn gates(geometry: &Geometry, spindles: &Spindles) -> Box<[Padded<Mutex<Gate>>]> {
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
    let gate = |(first, end)| Padded(Mutex::new(Gate::of_span(first, end)));
    spans.into_iter().map(gate).collect()
}

impl Shared {
    /// The single writer of a zone, locked, and the number of its spindle.
    fn writer(&self, zone: ZoneNo) -> (MutexGuard<'_, Gate>, usize) {
        let spindle = self.spindles.of(zone);
        (lock(&self.gates[spindle].0), spindle)
    }
}

impl Lane {
    /// Lists a zone that has its first waiting write and nothing in flight; if the zone's turn still lasts, the turn
    /// goes on (Q2).
    pub(crate) fn enlist(&mut self, shared: &Shared, layout: &Layout, zone: ZoneNo, now: Nanos) {
        let (mut gate, spindle) = shared.writer(zone);
        let listed = gate.list(zone, now, &layout.manners);
        if let Listed::Queued(ticket) | Listed::Go(ticket) | Listed::Wait(ticket, ..) = listed {
            let (mut shard, i) = shared.shard(zone);
            shard.plugs[i].ticket = ticket;
        }
        match listed {
            Listed::Queued(_) => {}
            Listed::Go(_) => self.next_turn(shared, layout, (gate, spindle), now),
            Listed::Resume => self.backlog.begin_turn(zone),
            Listed::Wait(_, number, until) => self.waits.put(Wait { spindle, number, until }),
        }
    }

    /// Called with the token of a spindle and nothing of its turn in flight: begins the turn of the next zone, or
    /// frees the token.
    fn next_turn(
        &mut self,
        shared: &Shared,
        layout: &Layout,
        (mut gate, spindle): (MutexGuard<'_, Gate>, usize),
        now: Nanos,
    ) {
        if layout.manners.policy.wants_bytes() {
            Self::review(shared, layout, &mut gate);
        }
        while let Some((zone, ticket)) = gate.next(now, &layout.manners) {
            debug_assert_eq!(shared.spindles.of(zone), spindle, "a token is for its own spindle");
            let (mut shard, i) = shared.shard(zone);
            if shard.plugs[i].ticket != ticket {
                // The writes of the zone were aborted, and this entry of the list has not been removed yet.
                continue;
            }
            shard.plugs[i].ticket = 0;
            let start = layout.geometry.zone_start(zone);
            let waits = shard.extent(i, start).unwrap_or((start, start));
            gate.begin_turn(zone, waits, now);
            drop(shard);
            return self.backlog.begin_turn(zone);
        }
    }

    /// The zone of the turn has more to write: the turn goes on, unless another zone has waited too long.
    pub(crate) fn go_on(
        &mut self,
        shared: &Shared,
        layout: &Layout,
        zone: ZoneNo,
        end: Sector,
        now: Nanos,
    ) {
        let (mut gate, spindle) = shared.writer(zone);
        gate.wrote(end);
        if !gate.cuts_off(end, now, &layout.manners) {
            return self.backlog.line.push_back(Work::Zone(zone));
        }
        let ticket = gate.list_again(zone, end, now);
        let (mut shard, i) = shared.shard(zone);
        shard.plugs[i].ticket = ticket;
        drop(shard);
        self.next_turn(shared, layout, (gate, spindle), now);
    }

    /// The zone of a turn has nothing to write: waits for more if the policy wants to, or goes on with the next zone
    /// of the spindle.
    pub(crate) fn turn_over(
        &mut self,
        shared: &Shared,
        layout: &Layout,
        zone: ZoneNo,
        end: Option<Sector>,
        now: Nanos,
    ) {
        let frozen = state::is_frozen(shared.state.0.load(Ordering::Acquire));
        let (mut gate, spindle) = shared.writer(zone);
        if let Some(end) = end {
            gate.wrote(end);
            if layout.manners.anticipation.0 > 0 && layout.manners.policy.wants_bytes() {
                Self::review(shared, layout, &mut gate);
            }
        }
        match gate.drained(end, now, frozen, &layout.manners) {
            Some((number, until)) => self.waits.put(Wait { spindle, number, until }),
            None => self.next_turn(shared, layout, (gate, spindle), now),
        }
    }

    /// Looks at the waits for more writes that this queue began with a token. Another queue may have gone on with the
    /// turn.
    #[cold]
    pub(crate) fn check_waits(&mut self, shared: &Shared, layout: &Layout, now: Nanos) {
        let frozen = state::is_frozen(shared.state.0.load(Ordering::Acquire));
        let mut i = 0;
        while let Some(Wait { spindle, number, until }) = self.waits.get(i) {
            let mut gate = lock(&shared.gates[spindle].0);
            if now >= until || frozen {
                self.waits.remove(i);
                if gate.end_wait(number) {
                    self.next_turn(shared, layout, (gate, spindle), now);
                }
            } else if !gate.is_waiting(number) {
                self.waits.remove(i);
            } else {
                i += 1;
            }
        }
    }

    /// Tells the policy how much waits in each listed zone.
    fn review(shared: &Shared, layout: &Layout, gate: &mut Gate) {
        gate.review(|c, ticket| {
            let (shard, i) = shared.shard(c.zone);
            let start = layout.geometry.zone_start(c.zone);
            if let Some((first, end)) = shard.extent(i, start) {
                c.sector = first;
                c.bytes = Sector(end.0.saturating_sub(first.0)).to_bytes();
            }
            shard.plugs[i].ticket == ticket
        });
    }

    /// Called after writes were aborted: removes the list entries of zones that have none left (Q7).
    #[cold]
    pub(crate) fn sweep(shared: &Shared) {
        for gate in &shared.gates {
            lock(&gate.0).review(|c, ticket| {
                let (shard, i) = shared.shard(c.zone);
                shard.plugs[i].ticket == ticket
            });
        }
    }
}
