//! Refused writes that their host may have sent before through another controller whose loss the server has not
//! noticed yet. The queue asks the queues of that controller. [`zoneplug_recovery`] keeps the queries and answers.

use super::behind::Before;
use super::{DiskClient, Disks, IoContext, IoQueue, Running};
use crate::recovery_names::queue_ids;
use crate::target::io::IoResult;
use crate::tcp::Connection;
use zoneplug_core::{Op, Sector, Status};
use zoneplug_recovery::{Asked, PeerQueryId, Reply, Resend, SentCommand};

/// A write that waits for the answers of other queues.
#[derive(Debug)]
pub(super) struct PendingQuery {
    slot: u16,
    id: PeerQueryId,
    /// Why it was refused.
    refused: Status,
}

impl PendingQuery {
    /// Returns the slot of the write.
    pub(super) fn slot(&self) -> u16 {
        self.slot
    }
}

impl<C: DiskClient> IoQueue<C> {
    /// Asks other queues about a refused write, if one of them may have carried it out, and keeps the write.
    /// Otherwise gives the write back.
    pub(super) fn ask<D: Disks<Client = C>>(
        &mut self,
        slot: u16,
        mut running: Running,
        refused: Status,
        ctx: &IoContext<'_, D>,
    ) -> Option<Running> {
        if running.asked || !Resend::may_be_a_resend(refused) {
            return Some(running);
        }
        let r = running.request;
        let recovery = ctx.disks.recovery(r.disk);
        let what = Asked::Had(r.sector);
        let Some((id, queues)) =
            recovery.with(|ledger| ledger.ask(self.host, self.queue.into(), what))
        else {
            return Some(running);
        };
        running.asked = true;
        self.keep(slot, running);
        self.pending_queries.push(PendingQuery { slot, id, refused });
        ctx.disks.ask(&queue_ids(&queues));
        None
    }

    /// Continues the writes whose queries are answered. Returns false if there is none.
    #[cold]
    pub(super) fn take_answers<D: Disks<Client = C>>(
        &mut self,
        tcp: &mut Connection,
        ctx: &mut IoContext<'_, D>,
    ) -> bool {
        let (mut progress, mut n) = (false, 0);
        while let Some(&PendingQuery { slot, id, refused }) = self.pending_queries.get(n) {
            let Some(running) = self.running[usize::from(slot)].take() else {
                self.pending_queries.swap_remove(n);
                continue;
            };
            let recovery = ctx.disks.recovery(running.request.disk);
            match recovery.with(|ledger| ledger.take_answer(id)) {
                Some(known) => {
                    self.pending_queries.swap_remove(n);
                    self.go_on_after_answer(slot, running, refused, known, tcp, ctx);
                    progress = true;
                }
                None => {
                    self.keep(slot, running);
                    n += 1;
                }
            }
        }
        progress
    }

    fn go_on_after_answer<D: Disks<Client = C>>(
        &mut self,
        slot: u16,
        running: Running,
        refused: Status,
        known: bool,
        tcp: &mut Connection,
        ctx: &mut IoContext<'_, D>,
    ) {
        let r = running.request;
        let sent = SentCommand::of(self.host, &r);
        let begun = ctx.disks.recovery(r.disk).begin_refused(sent, refused, known, ctx.now);
        match (begun, self.client(r.disk, &ctx.disks)) {
            (Some(search), Some(n)) => self.search(slot, running, n, search, tcp, ctx),
            _ => {
                let result = IoResult { status: refused, sector: r.sector, zones: 0 };
                self.ended(slot, running, result, tcp, ctx);
            }
        }
    }

    /// Answers queries of other queues about the disks that this queue uses. A query about a write that is in flight
    /// or on the way is answered when that write has ended.
    pub(super) fn answer_questions<D: Disks<Client = C>>(
        &self,
        tcp: &Connection,
        ctx: &IoContext<'_, D>,
    ) {
        for u in &self.used {
            let recovery = ctx.disks.recovery(u.disk);
            if recovery.has_queries() {
                self.answer_of(u.disk, tcp, ctx);
            }
        }
    }

    /// Handles queries of another queue ([`Disks::ask`]) about disks that this queue does not use. If a write of such
    /// a disk is on the way, the queue opens a client of the disk, so that [`IoQueue::run`] answers later.
    #[cold]
    pub fn asked<D: Disks<Client = C>>(&mut self, tcp: &Connection, ctx: &IoContext<'_, D>) {
        for n in 0..self.shown.len() {
            let disk = self.shown[n];
            let recovery = ctx.disks.recovery(disk);
            if self.used.iter().all(|u| u.disk != disk)
                && recovery.has_queries()
                && self.answer_of(disk, tcp, ctx)
                && self.client(disk, &ctx.disks).is_none()
            {
                // Without a client the write that is on the way cannot be carried out.
                recovery.with(|ledger| ledger.leave(self.host, self.queue.into()));
                ctx.disks.queries_answered();
            }
        }
    }

    /// Answers the queries about a disk. Returns true if some are to be answered later.
    #[cold]
    fn answer_of<D: Disks<Client = C>>(
        &self,
        disk: u32,
        tcp: &Connection,
        ctx: &IoContext<'_, D>,
    ) -> bool {
        let reply = |what| match what {
            Asked::Had(at) if self.has_in_flight(disk, at) => Reply::Later(true),
            Asked::Had(at) => Reply::Now(self.answered.has_write(disk, at)),
            Asked::Awaits(at) => match self.has_before(disk, at, tcp, ctx) {
                Before::OnTheWay => Reply::Later(true),
                Before::HeldBack => Reply::Later(false),
                Before::Nothing => Reply::Now(false),
            },
        };
        let recovery = ctx.disks.recovery(disk);
        let (answered, stays) =
            recovery.with(|ledger| ledger.answer(self.host, self.queue.into(), reply));
        if answered {
            ctx.disks.queries_answered();
        }
        stays
    }

    /// Returns whether a disk has a write of this sector. A write that itself waits for other queues does not count.
    fn has_in_flight(&self, disk: u32, at: Sector) -> bool {
        self.running.iter().flatten().any(|running| {
            let r = &running.request;
            let end = r.sector.plus(u64::from(r.len_sectors));
            running.sent
                && r.disk == disk
                && matches!(r.op, Op::Write | Op::WriteZeroes)
                && r.sector <= at
                && at < end
        })
    }
}
