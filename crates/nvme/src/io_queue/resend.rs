//! Commands on a disk for which lost answers are noted: the host may have sent each of them before. This module
//! carries out the steps that [`zoneplug_recovery`] decides.

use super::{DiskClient, Disks, IoContext, IoQueue, Running};
use crate::target::io::IoResult;
use crate::tcp::Connection;
use zoneplug_buf::AlignedBuf;
use zoneplug_core::Op;
use zoneplug_recovery::{DoorStep, Search, SentCommand, StepEnd};

impl<D> IoContext<'_, D> {
    /// Keeps a buffer for the next command.
    pub(super) fn put(&mut self, buf: Option<AlignedBuf>) {
        buf.into_iter().for_each(|buf| self.buffers.put(buf));
    }
}

impl<C: DiskClient> IoQueue<C> {
    /// Begins a request of a command on a disk for which lost answers are noted.
    #[cold]
    pub(super) fn start_after_loss<D: Disks<Client = C>>(
        &mut self,
        slot: u16,
        running: Running,
        n: usize,
        tcp: &mut Connection,
        ctx: &mut IoContext<'_, D>,
    ) {
        let r = running.request;
        let sent = SentCommand::of(self.host, &r);
        let recovery = ctx.disks.recovery(r.disk);
        if r.op == Op::ZoneAppend && recovery.with(|ledger| ledger.is_draining(self.host)) {
            // Another queue of the host has ended, and its command in flight may be this append.
            self.keep(slot, running);
            return self.waiting.push_back(slot);
        }
        match recovery.begin(r.op, sent, running.buf.as_ref(), ctx.now) {
            Some(search) => self.search(slot, running, n, search, tcp, ctx),
            None => self.submit(slot, running, n, &r, &ctx.disks),
        }
    }

    /// Handles the end of a BIO on a disk for which lost answers are noted.
    #[cold]
    pub(super) fn ended_after_loss<D: Disks<Client = C>>(
        &mut self,
        slot: u16,
        mut running: Running,
        n: usize,
        result: IoResult,
        tcp: &mut Connection,
        ctx: &mut IoContext<'_, D>,
    ) {
        let r = running.request;
        if let Some(resending) = running.resending.take() {
            let buf = running.buf.take();
            let end = resending.ended(result, buf, ctx.disks.recovery(r.disk), ctx.now);
            let StepEnd { search, data, own } = end;
            running.buf = data;
            ctx.put(own);
            return self.search(slot, running, n, search, tcp, ctx);
        }
        let recovery = ctx.disks.recovery(r.disk);
        match r.op {
            Op::Write | Op::WriteZeroes if !result.status.is_ok() => {
                let Some(kept) = self.ask(slot, running, result.status, ctx) else { return };
                running = kept;
                let sent = SentCommand::of(self.host, &r);
                if let Some(search) = recovery.begin_refused(sent, result.status, false, ctx.now) {
                    return self.search(slot, running, n, search, tcp, ctx);
                }
            }
            // Forgets the zone again: commands noted during the reset may be from before it.
            Op::ZoneReset => recovery.forget_zone(r.sector),
            Op::ZoneResetAll => recovery.forget_all(),
            _ => {}
        }
        self.ended(slot, running, result, tcp, ctx);
    }

    /// Carries out a step of the search for a command.
    pub(super) fn search<D: Disks<Client = C>>(
        &mut self,
        slot: u16,
        mut running: Running,
        n: usize,
        search: Search,
        tcp: &mut Connection,
        ctx: &mut IoContext<'_, D>,
    ) {
        let r = running.request;
        match search.carry_out(&r, &mut running.buf, |bytes| ctx.buffers.take(bytes)) {
            DoorStep::Send(request, resending) => {
                running.resending = Some(resending);
                self.submit(slot, running, n, &request, &ctx.disks);
            }
            DoorStep::AwaitLate(resend) => self.await_late(slot, running, n, resend, tcp, ctx),
            DoorStep::CarryOut => {
                running.resets = ctx.disks.recovery(r.disk).resets(r.sector);
                self.submit(slot, running, n, &r, &ctx.disks);
            }
            DoorStep::Replayed(result) => {
                ctx.disks.count_replayed(r.disk);
                self.ended(slot, running, result, tcp, ctx);
            }
            DoorStep::Failed(result) => self.ended(slot, running, result, tcp, ctx),
        }
    }
}
