//! The single writer's seam: a queue that holds the token, and how it passes it on.
//!
//! `sched/gate.rs` says whose turn it is; this room holds the locks around it, the gate's before a plug's. Whoever
//! completes the write of a turn goes on from there, with a tag of its own: there is no thread. A queue that has the
//! token always has something in flight, in its line, or a wait with a deadline: it counts as busy, is polled by
//! whoever polls for others, keeps a freeze waiting, and as an orphan is polled until the token is free (Q8, Q9).

use super::layout::Layout;
use super::queue::{Lane, Ready};
use super::sync::{MutexGuard, Ordering, lock};
use super::{Disk, FREEZES, Shared};
use crate::planted::{Bug, planted};
use crate::sched::WriterCounters;
use crate::sched::gate::{Gate, Listed};
use crate::sched::policy::Candidate;
use crate::unit::{Nanos, Sector, ZoneNo};

impl Lane {
    /// A zone that nothing was in flight of has its first waiting write: it is listed, or its turn goes on (Q2).
    pub(super) fn enlist(&mut self, shared: &Shared, layout: &Layout, zone: ZoneNo, now: Nanos) {
        let mut gate = lock(&shared.gate.0);
        let listed = gate.list(zone, now, &layout.manners);
        if planted(Bug::TicketLate) {
            drop(gate);
            gate = lock(&shared.gate.0);
        }
        if let Listed::Queued(ticket) | Listed::Go(ticket) | Listed::Wait(ticket, ..) = listed {
            let (mut shard, i) = shared.shard(zone);
            shard.plugs[i].ticket = ticket;
        }
        match listed {
            Listed::Queued(_) => {}
            Listed::Go(_) => self.next_turn(shared, layout, gate, now),
            Listed::Resume => self.ready.push_back(Ready::Turn(zone)),
            Listed::Wait(_, wait, until) => self.wait = Some((wait, until)),
        }
    }

    /// This queue has the token and nothing of the turn in flight: it goes to the next zone, or gives the token up.
    fn next_turn(
        &mut self,
        shared: &Shared,
        layout: &Layout,
        mut gate: MutexGuard<'_, Gate>,
        now: Nanos,
    ) {
        if planted(Bug::TokenFreedLate) && gate.state().1.is_empty() {
            drop(gate);
            return lock(&shared.gate.0).rest();
        }
        if layout.manners.policy.wants_bytes() {
            Self::review(shared, layout, &mut gate);
        }
        while let Some((zone, ticket)) = gate.next(now, &layout.manners) {
            let (mut shard, i) = shared.shard(zone);
            if shard.plugs[i].ticket != ticket {
                // Its writes were aborted a moment ago, and nobody has swept yet.
                continue;
            }
            shard.plugs[i].ticket = 0;
            let start = layout.geometry.zone_start(zone);
            let waits = shard.extent(i, start).unwrap_or((start, start));
            gate.begin_turn(zone, waits, now);
            drop(shard);
            return self.ready.push_back(Ready::Turn(zone));
        }
    }

    /// The turn's zone has more to write: it goes on, unless another has waited too long.
    pub(super) fn go_on(
        &mut self,
        shared: &Shared,
        layout: &Layout,
        zone: ZoneNo,
        end: Sector,
        now: Nanos,
    ) {
        let mut gate = lock(&shared.gate.0);
        gate.wrote(end);
        if !gate.cuts_off(end, now, &layout.manners) {
            return self.line.push_back(Ready::Turn(zone));
        }
        let ticket = gate.list_again(zone, end, now);
        let (mut shard, i) = shared.shard(zone);
        shard.plugs[i].ticket = ticket;
        drop(shard);
        self.next_turn(shared, layout, gate, now);
    }

    /// The turn's zone has nothing to write: the next one, after a wait for more if that is wanted.
    pub(super) fn turn_over(
        &mut self,
        shared: &Shared,
        layout: &Layout,
        end: Option<Sector>,
        now: Nanos,
    ) {
        let frozen = shared.state.0.load(Ordering::Acquire) & FREEZES != 0;
        let mut gate = lock(&shared.gate.0);
        if let Some(end) = end {
            gate.wrote(end);
            if layout.manners.anticipation.0 > 0 && layout.manners.policy.wants_bytes() {
                Self::review(shared, layout, &mut gate);
            }
        }
        match gate.drained(end, now, frozen, &layout.manners) {
            Some(wait) => self.wait = Some(wait),
            None => self.next_turn(shared, layout, gate, now),
        }
    }

    /// This queue waits with the token, or did: another may have gone on with it.
    #[cold]
    pub(super) fn check_wait(&mut self, shared: &Shared, layout: &Layout, now: Nanos) {
        let Some((wait, until)) = self.wait else { return };
        let frozen = shared.state.0.load(Ordering::Acquire) & FREEZES != 0;
        let mut gate = lock(&shared.gate.0);
        if now >= until || frozen {
            self.wait = None;
            if gate.end_wait(wait) || planted(Bug::WaitGoesOn) {
                self.next_turn(shared, layout, gate, now);
            }
        } else if !gate.is_waiting(wait) {
            self.wait = None;
        }
    }

    /// Fills in what waits in each zone.
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

    /// Writes were aborted: removes the entries of zones that have none left (Q7).
    #[cold]
    pub(super) fn sweep(shared: &Shared) {
        lock(&shared.gate.0).review(|c, ticket| {
            let (shard, i) = shared.shard(c.zone);
            shard.plugs[i].ticket == ticket
        });
    }
}

impl Disk {
    /// What the single writer did, and who waits for it: the zone of the turn, and those that are listed, first
    /// listed first.
    ///
    /// ```
    /// use zoneplug_core::disk::{Disk, DiskConfig};
    /// use zoneplug_core::{Nanos, spec::Spec, emu::{EmuConfig, EmuDisk}};
    /// let config = EmuConfig::from_spec(&mut Spec::parse("null,zones=4,zone-size=1M").unwrap()).unwrap();
    /// let disk = Disk::open(
    ///     EmuDisk::new(config).unwrap(),
    ///     DiskConfig { zoned_qd1_writes: Some(true), ..DiskConfig::default() },
    ///     &mut |_| Nanos(0),
    /// ).unwrap();
    /// let (counters, turn, listed) = disk.single_writer();
    /// assert_eq!((counters.turns, turn, listed.len()), (0, None, 0));
    /// ```
    pub fn single_writer(&self) -> (WriterCounters, Option<ZoneNo>, Vec<Candidate>) {
        let gate = lock(&self.shared.gate.0);
        let (turn, listed) = gate.state();
        (gate.counters, turn, listed.to_vec())
    }
}
