//! The single writer of a spindle (Q1-Q12): at most one write to sequential zones under one head, zone after zone. On
//! a device with several spindles each has a [`SingleWriter`] of its own, independent of the others.
//!
//! Linux has a thread that takes the first zone of a list and writes until the zone has nothing left. This module has
//! a *token* instead: the queue that completes the write of a turn has it, and passes it on. The token is always in
//! one of three places, so no wake-up can be lost (Q8):
//!
//! * with a queue that has a write of the turn in its line or at the device;
//! * with a queue that waits for the zone's next write, for a bounded time (anticipation);
//! * in the [`SingleWriter`], and then no zone is listed. Short turns take it from there without the lock
//!   (`writer_cell.rs`).
//!
//! `disk/dispatch/single_writer.rs` calls this with the [`SingleWriter`] locked. An entry is valid as long as the plug
//! has its ticket (`plug/mod.rs`), which a queue takes when it parks the zone's first write. An abort changes the plug's
//! ticket under the plug's own lock, and the entry is removed from the list afterwards (Q7).

use super::policy::{Candidate, Policy, Turn, View};
use crate::unit::{Bytes, Nanos, Sector, ZoneNo};
use std::ops::Range;

/// Classes of the histogram of turns.
const CLASSES: usize = 16;

/// Counts of a single writer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WriterCounters {
    /// Turns: moves of the writer to a zone.
    pub turns: u64,
    /// Turns that ended although their zone had more to write, because another zone had waited past its deadline.
    pub cut_off: u64,
    /// Waits for more from the zone of the turn that were successful.
    pub anticipated: u64,
    /// The longest time that a zone has waited for its turn.
    pub longest_wait: Nanos,
    /// Turns by length: `drained[i]` counts turns of 2^i or more commands, and less than 2^(i+1).
    pub drained: [u64; CLASSES],
}

impl WriterCounters {
    /// Adds the counts of another spindle's writer.
    pub(crate) fn add(&mut self, o: &WriterCounters) {
        self.turns += o.turns;
        self.cut_off += o.cut_off;
        self.anticipated += o.anticipated;
        self.longest_wait = self.longest_wait.max(o.longest_wait);
        for (all, n) in self.drained.iter_mut().zip(o.drained) {
            *all += n;
        }
    }

    /// Adds turns of one command each.
    pub(crate) fn add_short_turns(&mut self, turns: u64) {
        self.turns += turns;
        self.drained[0] += turns;
    }
}

/// The place of the writer's token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Token {
    /// In the [`SingleWriter`]. No zone is listed.
    #[default]
    Free,
    /// With a queue that has a write of the turn.
    Taken,
    /// With a queue that waits for more from the zone of the last turn.
    Waiting,
}

/// Attributes of the disk that decide how the writer behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct WriterParams {
    pub(crate) policy: Policy,
    /// The longest wait for more from the zone of the turn.
    pub(crate) anticipation: Nanos,
    /// The time after which a waiting zone is next, whatever the policy says. 0: never.
    pub(crate) deadline: Nanos,
    pub(crate) capacity: Sector,
}

/// The state of one single writer: the zones that wait, and the zone that has its turn.
#[derive(Debug, Default)]
pub(crate) struct SingleWriter {
    /// The waiting zones, in the order in which they were listed. Policies see this.
    listed: Vec<Candidate>,
    /// The ticket of each waiting zone.
    tickets: Vec<u16>,
    token: Token,
    /// The number of the last wait. It also grows when a wait is answered, so that a queue can tell whether its own
    /// wait still lasts.
    waits: u64,
    /// The zone of the last turn.
    last: Option<ZoneNo>,
    /// The sector at which its last write ended, and the time.
    head: Sector,
    ended: Option<Nanos>,
    /// When the zone of the turn was listed, and the end of its writes that waited when the turn began. Before that
    /// sector is reached, only a zone that was listed earlier cuts off the turn.
    since: Nanos,
    start: Sector,
    until: Sector,
    /// The turn as policies see it.
    turn: Turn,
    /// Commands of this turn so far.
    commands: u64,
    /// The length of the part of the disk that the head goes over. `None`: the whole disk.
    span: Option<Sector>,
    /// Whether turns of one command need no lock (`writer_cell.rs`).
    short_turns: bool,
    pub(crate) counters: WriterCounters,
}

/// The next step of a queue that has listed a zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Listed {
    /// Do nothing: another queue has the token.
    Queued,
    /// Take the token and call [`SingleWriter::next`].
    Go,
    /// Take the token: the writer was waiting for this zone. Send, or call [`SingleWriter::next`] if the ticket is not valid.
    Resume,
    /// Take the token and wait for more writes of the last turn's zone, at most until `until`. `wait` is the number of
    /// this wait.
    Wait { wait: u64, until: Nanos },
}

impl SingleWriter {
    /// Makes the single writer of one of several spindles, whose zones are between these sectors.
    pub(crate) fn of_span(start: Sector, end: Sector) -> SingleWriter {
        SingleWriter { head: start, span: Some(Sector(end.0 - start.0)), ..SingleWriter::default() }
    }

    /// Lists a zone that has its first waiting write and nothing in flight, with the ticket of its plug.
    pub(crate) fn list(
        &mut self,
        zone: ZoneNo,
        ticket: u16,
        now: Nanos,
        params: &WriterParams,
    ) -> Listed {
        if self.token == Token::Waiting && self.last == Some(zone) {
            self.token = Token::Taken;
            self.waits += 1;
            self.turn.waits += 1;
            self.counters.anticipated += 1;
            return Listed::Resume;
        }
        self.push(zone, ticket, now);
        if self.token != Token::Free {
            return Listed::Queued;
        }
        self.token = Token::Taken;
        if params.anticipation.0 != 0
            && let Some(ended) = self.ended
            && let until = Nanos(ended.0.saturating_add(params.anticipation.0))
            && now < until
            && self.last != Some(zone)
            && params.policy.stay()(&self.view(now, params))
        {
            let until = self.not_past_a_deadline(until, now, params);
            return Listed::Wait { wait: self.begin_wait(), until };
        }
        Listed::Go
    }

    fn push(&mut self, zone: ZoneNo, ticket: u16, now: Nanos) {
        self.listed.push(Candidate { zone, sector: Sector(0), bytes: Bytes(0), since: now });
        self.tickets.push(ticket);
    }

    /// Ends the turn of a zone at sector `end` although the zone has more. If the turn has written everything that
    /// waited when it began, the zone goes to the end of the list. Otherwise it returns to its old place, so that the
    /// rest keeps its deadline.
    pub(crate) fn list_again(&mut self, zone: ZoneNo, ticket: u16, end: Sector, now: Nanos) {
        self.counters.cut_off += 1;
        self.push(zone, ticket, now);
        if end < self.until {
            let since = self.since;
            let at = self.listed.partition_point(|c| c.since <= since);
            self.listed[at..].rotate_right(1);
            self.tickets[at..].rotate_right(1);
            self.listed[at].since = since;
        }
    }

    fn begin_wait(&mut self) -> u64 {
        self.token = Token::Waiting;
        self.waits += 1;
        self.waits
    }

    /// Takes the next zone off the list and returns it with its ticket. `None`: no zone waits, and the token is free
    /// again. The caller must have the token.
    pub(crate) fn next(&mut self, now: Nanos, params: &WriterParams) -> Option<(ZoneNo, u16)> {
        debug_assert!(self.token == Token::Taken, "only who has the token passes it on");
        if self.commands > 0 {
            let class = (self.commands.ilog2() as usize).min(CLASSES - 1);
            self.counters.drained[class] += 1;
            self.commands = 0;
        }
        let Some(highest) = self.listed.len().checked_sub(1) else {
            self.free_token();
            return None;
        };
        // The default policy always takes the first zone, so it needs no view.
        let first = highest == 0 || params.policy == Policy::Fifo;
        let i = if first || self.is_overdue(now, params) {
            0
        } else {
            // A policy that returns a wrong index gets the last zone: that may be slow, but it is safe.
            params.policy.pick()(&self.view(now, params)).min(highest)
        };
        let (Candidate { zone, since, .. }, ticket) = if i == highest {
            (self.listed.pop()?, self.tickets.pop()?)
        } else {
            (self.listed.remove(i), self.tickets.remove(i))
        };
        self.since = since;
        Some((zone, ticket))
    }

    /// Frees the token.
    pub(crate) fn free_token(&mut self) {
        self.token = Token::Free;
    }

    fn view(&self, now: Nanos, params: &WriterParams) -> View<'_> {
        View {
            now,
            listed: &self.listed,
            last: self.last,
            turn: self.turn,
            head: self.head,
            capacity: self.span.unwrap_or(params.capacity),
        }
    }

    /// Returns whether the zone that was listed first has waited past its deadline.
    fn is_overdue(&self, now: Nanos, params: &WriterParams) -> bool {
        let deadline = params.deadline.0;
        deadline != 0
            && self.listed.first().is_some_and(|c| now.0.saturating_sub(c.since.0) >= deadline)
    }

    /// Begins the turn of `zone`. Its writes in `waiting` wait.
    pub(crate) fn begin_turn(&mut self, zone: ZoneNo, waiting: Range<Sector>, now: Nanos) {
        self.last = Some(zone);
        (self.start, self.until) = (waiting.start, waiting.end);
        self.turn = Turn { began: now, ..Turn::default() };
        let waited = Nanos(now.0.saturating_sub(self.since.0));
        self.counters.longest_wait = self.counters.longest_wait.max(waited);
        self.commands = 0;
        self.counters.turns += 1;
    }

    /// Notes that a write of the turn has ended, at sector `end`.
    pub(crate) fn wrote(&mut self, end: Sector) {
        self.commands += 1;
        self.turn.written = Sector(end.0.saturating_sub(self.start.0)).to_bytes();
    }

    /// Returns whether the turn ends although its zone has more; its last write ended at `end`. It does if the zone
    /// that was listed first is past its deadline, and one of two things holds: this turn has written what its zone
    /// had when the turn began, or that zone was listed before this one (earliest deadline first).
    pub(crate) fn cuts_off(&self, end: Sector, now: Nanos, params: &WriterParams) -> bool {
        self.is_overdue(now, params)
            && (end >= self.until || self.listed.first().is_some_and(|c| c.since < self.since))
    }

    /// Handles a turn whose zone has nothing more to write; its last write ended at `end`, if that is known. Returns
    /// the number of a wait for more, and the time at which the wait ends. `None`: no wait. There is never a wait if
    /// no other zone is listed.
    pub(crate) fn drained(
        &mut self,
        end: Option<Sector>,
        now: Nanos,
        frozen: bool,
        params: &WriterParams,
    ) -> Option<(u64, Nanos)> {
        debug_assert!(self.token == Token::Taken, "the turn is over for who has the token");
        self.ended = end.map(|_| now);
        let end = end?;
        self.head = end;
        let wait = params.anticipation.0 != 0
            && !frozen
            && !self.listed.is_empty()
            && !self.is_overdue(now, params)
            && params.policy.stay()(&self.view(now, params));
        wait.then(|| {
            let until = Nanos(now.0.saturating_add(params.anticipation.0));
            let until = self.not_past_a_deadline(until, now, params);
            (self.begin_wait(), until)
        })
    }

    /// Shortens a wait so that it ends when the zone that was listed first reaches its deadline.
    fn not_past_a_deadline(&self, until: Nanos, now: Nanos, params: &WriterParams) -> Nanos {
        match self.listed.first() {
            Some(c) if params.deadline.0 != 0 => {
                until.min(Nanos(c.since.0.saturating_add(params.deadline.0))).max(now)
            }
            _ => until,
        }
    }

    /// Ends wait number `wait`. Returns true if it still lasted; the caller then has the token.
    pub(crate) fn end_wait(&mut self, wait: u64) -> bool {
        let on = self.token == Token::Waiting && self.waits == wait;
        if on {
            self.token = Token::Taken;
            // The writer waits once at the end of a turn.
            self.ended = None;
        }
        on
    }

    /// Returns whether wait number `wait` still lasts.
    pub(crate) fn is_waiting(&self, wait: u64) -> bool {
        self.token == Token::Waiting && self.waits == wait
    }

    /// Calls `f` for every entry and its ticket. `f` fills in the waiting writes, or returns false to remove the
    /// entry.
    pub(crate) fn review(&mut self, mut f: impl FnMut(&mut Candidate, u16) -> bool) {
        let mut i = 0;
        while i < self.listed.len() {
            if f(&mut self.listed[i], self.tickets[i]) {
                i += 1;
            } else {
                self.listed.remove(i);
                self.tickets.remove(i);
            }
        }
    }

    /// Returns the zone of the turn, if there is one, and the waiting zones, first listed first.
    pub(crate) fn state(&self) -> (Option<ZoneNo>, &[Candidate]) {
        (self.last.filter(|_| self.token != Token::Free), &self.listed)
    }

    /// Returns whether no zone waits and none has a turn.
    pub(crate) fn is_idle(&self) -> bool {
        self.listed.is_empty() && self.token == Token::Free
    }

    /// Allows short turns, or forbids them.
    pub(crate) fn allow_short_turns(&mut self, allowed: bool) {
        self.short_turns = allowed;
    }

    /// Returns the zone of the last turn, and where the head is, if short turns may begin now.
    #[inline]
    pub(crate) fn before_short_turns(&self) -> Option<(Option<ZoneNo>, Sector)> {
        (self.short_turns && self.is_idle()).then_some((self.last, self.head))
    }

    /// Takes over from short turns. The zone `last` had the last of them; if that one still `lasts`, it is an ordinary
    /// turn from now on. `head`: the sector at which the last short turn that has ended left the head. The rest of such a
    /// turn is unknown, and no policy asks for it: policies need it to decide about a wait, and a disk that waits has no
    /// short turns.
    pub(crate) fn learn_short_turns(&mut self, lasts: bool, last: Option<ZoneNo>, head: Sector) {
        self.head = head;
        match last {
            Some(zone) if lasts => {
                self.token = Token::Taken;
                self.since = Nanos(0);
                self.begin_turn(zone, Sector(u64::MAX)..Sector(0), Nanos(0));
            }
            _ => self.last = last,
        }
    }

    /// Forgets the waiting zones, because all plugs were made anew.
    pub(crate) fn clear(&mut self) {
        self.listed.clear();
        self.tickets.clear();
        (self.last, self.ended) = (None, None);
    }
}
