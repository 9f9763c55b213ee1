//! Writes that a disk refused because earlier writes of the zone have not arrived, while the server itself holds
//! those back. The host made no mistake, so the server does not pass the refusal on.
//!
//! The queue knows which writes are on the way to itself, and asks the other queues of the host about theirs. When
//! they have answered, the queue submits the write again. If none of them had an earlier write, the write does not
//! wait in an order window this time: an earlier write that was on the way at the refusal may have reached the disk
//! by now.
//!
//! A queue asks only for the first refused write of a zone, and for at most 16 zones at a time, lowest disk and
//! sector first. Another queue delays its answer if it holds a refused write with a lower sector. So if writes wait
//! for each other's queues, the write with the lowest sector never waits.

use super::{DiskClient, Disks, IoContext, IoQueue, Running};
use crate::recovery_names::queue_ids;
use crate::spec::{Completion, status};
use crate::target::io::{CommandStep, IoRequest, IoResult, Task};
use crate::tcp::Connection;
use zoneplug_core::{Flags, Op, Sector, Status};
use zoneplug_recovery::{Asked, PeerQueryId};

/// Most queries of a queue at a time. A limit, because every other queue looks at all of them.
const MAX_QUERIES: usize = 16;

/// The refused writes of a queue that are not answered yet.
#[derive(Debug, Default)]
pub(super) struct Behind {
    writes: Vec<Refused>,
    queries: Vec<PeerQuery>,
    /// The tokens of refused BIOs of commands that are not answered yet. Each token contains its slot.
    tokens: Vec<u64>,
}

/// A query to the host's other queues.
#[derive(Debug, Clone, Copy)]
struct PeerQuery {
    id: PeerQueryId,
    /// The slot of the write that the query is about, then its disk and sector.
    slot: u16,
    place: (u32, Sector),
}

/// A refused write.
#[derive(Debug, Clone, Copy)]
struct Refused {
    slot: u16,
    /// Whether an earlier write was on the way. If so, the order window may hold this write once more.
    awaited: bool,
}

/// The state of the writes that a queue has before a sector in its zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Before {
    /// A write is waiting for data, for closed connections to drain, for answers of other queues, or for late commands.
    OnTheWay,
    /// Only refused writes that are not answered yet.
    HeldBack,
    Nothing,
}

impl Behind {
    pub(super) fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }

    /// Returns whether queries to other queues are open.
    pub(super) fn asks(&self) -> bool {
        !self.queries.is_empty()
    }

    /// Keeps the token of a refused BIO. Replaces an older token of the same slot, whose command was never answered.
    #[cold]
    pub(super) fn keep_token(&mut self, token: u64) {
        self.take_token(token as u16);
        self.tokens.push(token);
    }

    /// Takes the token that was kept for a slot.
    #[cold]
    pub(super) fn take_token(&mut self, slot: u16) -> u64 {
        let place = self.tokens.iter().position(|token| *token as u16 == slot);
        place.map_or(u64::from(slot), |n| self.tokens.swap_remove(n))
    }
}

fn is_write(r: &IoRequest) -> bool {
    matches!(r.op, Op::Write | Op::WriteZeroes)
}

impl<C: DiskClient> IoQueue<C> {
    /// Stops taking data, because the server or the controller ends. The queue still answers commands that the disks
    /// carry out. A write that a disk refuses for its place from now on stays unanswered, because an earlier write
    /// may not be taken any more; the host sends both again to the next server.
    pub fn stop(&mut self) {
        self.stops = true;
        // The slots keep the memory of these writes until the queue is freed. No write needs the queries' answers any more.
        self.behind = Behind::default();
        self.late.clear();
        self.refuse_held();
    }

    /// Refuses the writes that order windows hold.
    pub(super) fn refuse_held(&mut self) {
        self.used.iter_mut().for_each(|u| u.client.refuse_held());
    }

    /// Handles a request that a disk refused for its place, or because it would have had to wait.
    #[cold]
    pub(super) fn refused<D: Disks<Client = C>>(
        &mut self,
        slot: u16,
        mut running: Running,
        result: IoResult,
        tcp: &mut Connection,
        ctx: &mut IoContext<'_, D>,
    ) {
        let r = running.request;
        if is_write(&r) && self.stops {
            return running.free(ctx);
        }
        if result.status == Status::WouldBlock && running.tried_last {
            // The write found no free tag.
            return self.start(slot, running, tcp, ctx);
        }
        if is_write(&r)
            && let Some(awaited) = self.is_held_back(&r, running.tried_last, tcp, ctx)
        {
            self.keep(slot, running);
            return self.behind.writes.push(Refused { slot, awaited });
        }
        self.count_refused(slot, &mut running);
        let step = if is_write(&r) && self.namespaces.are_inaccessible() {
            // A command that arrives now gets the same answer. The host retries at another port.
            CommandStep::Answer(
                Completion { status: status::INACCESSIBLE, ..Completion::default() },
                0,
            )
        } else {
            if is_write(&r) {
                ctx.disks.refuses(&r);
            }
            running.task.next(result, running.buf.as_mut())
        };
        self.go_on(slot, running, step, tcp, ctx);
    }

    /// Reports the last refused BIO as the end of the operation, for the time that operations take.
    #[cold]
    pub(super) fn count_refused(&mut self, slot: u16, running: &mut Running) {
        let r = running.request;
        if !std::mem::take(&mut running.refused) {
            return;
        }
        let token = self.behind.take_token(slot);
        if let Some(u) = self.used.iter_mut().find(|u| u.disk == r.disk) {
            u.client.ended(token, r.op, r.sector);
        }
    }

    /// Returns whether the server may hold back a write before `r`, so that `r` must not be answered yet:
    /// `Some(true)` if such a write is on the way, `Some(false)` if other queues must be asked, `None` if `r` is to
    /// be answered now. `tried_last`: no other queue has such a write.
    fn is_held_back<D: Disks<Client = C>>(
        &self,
        r: &IoRequest,
        tried_last: bool,
        tcp: &Connection,
        ctx: &IoContext<'_, D>,
    ) -> Option<bool> {
        let before = self.has_before(r.disk, r.sector, tcp, ctx);
        if before == Before::OnTheWay {
            return Some(true);
        }
        if tried_last || self.namespaces.are_inaccessible() {
            return None;
        }
        let what = Asked::Awaits(r.sector);
        let others =
            || ctx.disks.recovery(r.disk).with(|l| l.has_peers(self.host, self.queue.into(), what));
        (before == Before::HeldBack || others()).then_some(false)
    }

    /// Returns the state of the writes that the queue has before this sector.
    pub(super) fn has_before<D: Disks<Client = C>>(
        &self,
        disk: u32,
        sector: Sector,
        tcp: &Connection,
        ctx: &IoContext<'_, D>,
    ) -> Before {
        if self.stops {
            return Before::Nothing;
        }
        let g = ctx.disks.geometry(disk);
        let zone = g.zone_of(sector).0;
        let is_before = |other: &IoRequest| {
            is_write(other)
                && other.disk == disk
                && other.sector < sector
                && g.zone_of(other.sector).0 == zone
        };
        let awaited = tcp.awaited().any(|c| match Task::begin(c, &self.namespaces, None).1 {
            CommandStep::Submit(other) => is_before(&other),
            CommandStep::Answer(..) => false,
        });
        let queries = self.pending_queries.iter().map(|a| a.slot());
        let late = self.late.iter().map(|w| w.slot);
        let slots = self.waiting.iter().copied().chain(queries).chain(late);
        let mut waiting = slots.filter_map(|n| self.running.get(usize::from(n))?.as_ref());
        if awaited || waiting.any(|running| is_before(&running.request)) {
            return Before::OnTheWay;
        }
        let behind = self.behind.writes.iter().filter_map(|b| self.request(b.slot));
        let mut last = self.running.iter().flatten().filter(|r| r.tried_last && r.sent);
        if behind.into_iter().any(|r| is_before(&r)) || last.any(|r| is_before(&r.request)) {
            return Before::HeldBack;
        }
        Before::Nothing
    }

    fn request(&self, slot: u16) -> Option<IoRequest> {
        Some(self.running.get(usize::from(slot))?.as_ref()?.request)
    }

    /// Submits the refused writes again that no earlier write on the way blocks, in the order of their sectors. Asks
    /// other queues about the first one. Returns false if it did nothing.
    #[cold]
    pub(super) fn start_behind<D: Disks<Client = C>>(
        &mut self,
        tcp: &mut Connection,
        ctx: &mut IoContext<'_, D>,
    ) -> bool {
        let mut all = std::mem::take(&mut self.behind.writes);
        all.sort_by_key(|b| self.request(b.slot).map(|r| (r.disk, r.sector)));
        let (mut progress, mut began) = (false, None);
        // Writes that keep waiting go back to the list in order, so each write sees the earlier ones.
        for mut b in all {
            let Some(r) = self.request(b.slot) else { continue };
            let before = self.has_before(r.disk, r.sector, tcp, ctx);
            let zone = (r.disk, ctx.disks.geometry(r.disk).zone_of(r.sector).0);
            b.awaited |= before == Before::OnTheWay || began == Some(zone);
            let known = match before {
                Before::Nothing if b.awaited => Some(true),
                Before::Nothing => self.answer_about(b.slot, &r, ctx),
                _ => None,
            };
            let Some(awaited) = known else {
                self.behind.writes.push(b);
                continue;
            };
            // If an earlier write was on the way to this one, it was also on the way to the later ones.
            began = if awaited { Some(zone) } else { began };
            self.withdraw(|q| q.slot == b.slot, ctx);
            if let Some(running) = self.running[usize::from(b.slot)].take() {
                self.submit_again(b.slot, running, awaited, tcp, ctx);
            }
            progress = true;
        }
        progress
    }

    /// Returns whether another queue had a write before `r` on the way; `None` while that is unknown.
    fn answer_about<D: Disks<Client = C>>(
        &mut self,
        slot: u16,
        r: &IoRequest,
        ctx: &IoContext<'_, D>,
    ) -> Option<bool> {
        let place = (r.disk, r.sector);
        let recovery = ctx.disks.recovery(r.disk);
        if let Some(n) = self.behind.queries.iter().position(|q| q.slot == slot) {
            let answer = recovery.with(|ledger| ledger.take_answer(self.behind.queries[n].id))?;
            self.behind.queries.remove(n);
            return Some(answer);
        }
        if self.behind.queries.len() >= MAX_QUERIES {
            let last = self.behind.queries.iter().map(|q| q.place).max();
            if last < Some(place) {
                return None;
            }
            self.withdraw(|q| Some(q.place) == last, ctx);
        }
        let what = Asked::Awaits(r.sector);
        let asked = recovery.with(|ledger| ledger.ask(self.host, self.queue.into(), what));
        // The other queues may have ended.
        let Some((id, queues)) = asked else { return Some(false) };
        self.behind.queries.push(PeerQuery { id, slot, place });
        ctx.disks.ask(&queue_ids(&queues));
        None
    }

    /// Withdraws the queries that `which` selects.
    fn withdraw<D: Disks<Client = C>>(
        &mut self,
        which: impl Fn(&PeerQuery) -> bool,
        ctx: &IoContext<'_, D>,
    ) {
        for q in self.behind.queries.extract_if(.., |q| which(q)) {
            ctx.disks.recovery(q.place.0).with(|ledger| ledger.withdraw(q.id));
        }
    }

    /// Submits a refused write again. `awaited`: an earlier write was on the way, and the order window may hold this
    /// one until that arrives.
    fn submit_again<D: Disks<Client = C>>(
        &mut self,
        slot: u16,
        mut running: Running,
        awaited: bool,
        tcp: &mut Connection,
        ctx: &mut IoContext<'_, D>,
    ) {
        let r = running.request;
        let place = self.used.iter().position(|u| u.disk == r.disk);
        let Some(n) = place.filter(|_| !awaited) else {
            return self.start(slot, running, tcp, ctx);
        };
        running.tried_last = true;
        let request = IoRequest { flags: r.flags.with(Flags::NOWAIT), ..r };
        self.submit(slot, running, n, &request, &ctx.disks);
    }
}
