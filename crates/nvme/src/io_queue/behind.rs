//! Writes that a disk refused because those before them had not come, while the server itself holds those back. The host did
//! nothing wrong, so it does not get the disk's refusal.
//!
//! The queue knows what is on the way to itself, and asks the other queues of the host. When they have answered, it submits the
//! write again. If none of them had a write before it, this is done without waiting in an order window: a write that was on
//! the way when the disk refused this one may have reached the disk by then.
//!
//! A queue asks for the first refused write of a zone, and for few zones at a time, the first by disk and place. Another queue
//! answers late if it has a refused write before that one. So of the writes that wait for each other's queues the first never
//! waits.

use super::{DiskClient, Disks, IoContext, IoQueue, Running};
use crate::recovery::{Asked, PeerQueryId};
use crate::spec::{Completion, status};
use crate::target::io::{IoRequest, IoResult, Step, Task};
use crate::tcp::Connection;
use zoneplug_core::{Flags, Op, Sector, Status};

/// Most queries of a queue at a time: other queues look at all of them.
const MAX_QUERIES: usize = 16;

/// The refused writes of a queue that are not answered yet.
#[derive(Debug, Default)]
pub(super) struct Behind {
    writes: Vec<Refused>,
    queries: Vec<PeerQuery>,
    /// The tokens of BIOs that were refused, of commands that are not answered yet. Each has its slot in it.
    tokens: Vec<u64>,
}

/// A query to other queues.
#[derive(Debug, Clone, Copy)]
struct PeerQuery {
    id: PeerQueryId,
    /// The slot of the write that it is about, and its disk and place.
    slot: u16,
    place: (u32, Sector),
}

/// A refused write.
#[derive(Debug, Clone, Copy)]
struct Refused {
    slot: u16,
    /// A write before it was on the way: it may be held once more.
    awaited: bool,
}

/// The state of the writes that a queue has before a place in its zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Before {
    /// A write of which some data are on the way, or which waits for what other queues have carried out.
    OnTheWay,
    /// Refused writes that are not answered yet.
    HeldBack,
    Nothing,
}

impl Behind {
    pub(super) fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }

    /// Whether other queues are asked.
    pub(super) fn asks(&self) -> bool {
        !self.queries.is_empty()
    }

    /// Keeps the token of a refused BIO. One of the same slot is of a command that went unanswered.
    #[cold]
    pub(super) fn keep_token(&mut self, token: u64) {
        self.take_token(token as u16);
        self.tokens.push(token);
    }

    /// The token that was kept for a slot.
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
    /// The server or the controller ends, and takes no more data. What the disks carry out is still answered. A write that a
    /// disk refuses for its place from now on stays unanswered, because the write before it may not be taken any more: the
    /// host sends both again to what serves next.
    pub fn stop(&mut self) {
        self.stops = true;
        // Their memory is freed with the queue. Nothing waits for what others answer.
        self.behind = Behind::default();
        self.refuse_held();
    }

    /// Refuses the writes that order windows hold.
    pub(super) fn refuse_held(&mut self) {
        self.used.iter_mut().for_each(|u| u.client.refuse_held());
    }

    /// A disk has refused the request of a command for its place, or because it would have had to wait.
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
            // There was no tag for it.
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
            // As a command that comes now: its host sends it to another port.
            Step::Answer(Completion { status: status::INACCESSIBLE, ..Completion::default() }, 0)
        } else {
            if is_write(&r) {
                ctx.disks.refuses(&r);
            }
            running.task.next(result, running.buf.as_mut())
        };
        self.go_on(slot, running, step, tcp, ctx);
    }

    /// The refused BIO of a command is its last one for this request: the time of the operation ends here.
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

    /// Whether `r` is not answered yet, because the server may hold back a write before it: `Some(true)` if such a write is on
    /// the way, `Some(false)` if that has yet to be found out. `None`: it is answered. `tried_last`: no other queue has such a
    /// write.
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
            || ctx.disks.recovery(r.disk).with(|l| l.has_peers(self.host, self.queue, what));
        (before == Before::HeldBack || others()).then_some(false)
    }

    /// The state of the writes that the queue has before this place.
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
            Step::Submit(other) => is_before(&other),
            Step::Answer(..) => false,
        });
        let slots =
            self.waiting.iter().copied().chain(self.pending_queries.iter().map(|a| a.slot()));
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

    /// Submits the refused writes again before which nothing is on the way any more, in the order of their places. Asks other
    /// queues for the first one. False: it has done nothing.
    #[cold]
    pub(super) fn start_behind<D: Disks<Client = C>>(
        &mut self,
        tcp: &mut Connection,
        ctx: &mut IoContext<'_, D>,
    ) -> bool {
        let mut all = std::mem::take(&mut self.behind.writes);
        all.sort_by_key(|b| self.request(b.slot).map(|r| (r.disk, r.sector)));
        let (mut progress, mut began) = (false, None);
        // Writes that wait are put back in their order, so each one sees those before it.
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
            // A write that came before this one came before those behind it.
            began = if awaited { Some(zone) } else { began };
            self.withdraw(|q| q.slot == b.slot, ctx);
            if let Some(running) = self.running[usize::from(b.slot)].take() {
                self.submit_again(b.slot, running, awaited, tcp, ctx);
            }
            progress = true;
        }
        progress
    }

    /// Whether another queue had a write before `r` on the way. `None`: that is not known yet.
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
        let asked = recovery.with(|ledger| ledger.ask(self.host, self.queue, what));
        // The others may have gone.
        let Some((id, queues)) = asked else { return Some(false) };
        self.behind.queries.push(PeerQuery { id, slot, place });
        ctx.disks.ask(&queues);
        None
    }

    /// Takes such queries back.
    fn withdraw<D: Disks<Client = C>>(
        &mut self,
        which: impl Fn(&PeerQuery) -> bool,
        ctx: &IoContext<'_, D>,
    ) {
        for q in self.behind.queries.extract_if(.., |q| which(q)) {
            ctx.disks.recovery(q.place.0).with(|ledger| ledger.withdraw(q.id));
        }
    }

    /// `awaited`: a write before this one was on the way, and the order window may hold this one until that is there.
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
