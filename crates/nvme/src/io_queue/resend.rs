//! Commands on a disk for which lost answers are noted: the host may have sent each of them before. This module
//! carries out the steps that [`zoneplug_recovery`] decides.

use super::{DiskClient, Disks, IoContext, IoQueue, Running};
use crate::target::io::IoResult;
use crate::tcp::Connection;
use zoneplug_buf::AlignedBuf;
use zoneplug_core::{Op, Status};
use zoneplug_recovery::{Resend, ResendStep, Resending, Sent, StepEnd, rest_of};

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
        let sent = Sent::of(self.host, &r);
        let recovery = ctx.disks.recovery(r.disk);
        if r.op == Op::ZoneAppend && recovery.with(|ledger| ledger.is_draining(self.host)) {
            // Another queue of the host has ended, and its command in flight may be this append.
            self.keep(slot, running);
            return self.waiting.push_back(slot);
        }
        match recovery.begin(r.op, sent, running.buf.as_ref(), ctx.now) {
            Some((resend, step)) => self.step(slot, running, n, (resend, step), tcp, ctx),
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
            let came = (result.status, result.zones);
            let StepEnd { mut resend, outcome, data, own } =
                resending.ended(came, running.buf.take());
            running.buf = data;
            ctx.put(own);
            let step = ctx.disks.recovery(r.disk).next(&mut resend, outcome, ctx.now);
            return self.step(slot, running, n, (resend, step), tcp, ctx);
        }
        let recovery = ctx.disks.recovery(r.disk);
        match r.op {
            Op::Write | Op::WriteZeroes if !result.status.is_ok() => {
                let Some(kept) = self.ask(slot, running, result.status, ctx) else { return };
                running = kept;
                let sent = Sent::of(self.host, &r);
                let begun = recovery
                    .with(|ledger| Resend::of_write(sent, result.status, false, ledger, ctx.now));
                if let Some((resend, step)) = begun {
                    return self.step(slot, running, n, (resend, step), tcp, ctx);
                }
            }
            // Forgets the zone again: commands noted during the reset may be from before it.
            Op::ZoneReset => recovery.forget_zone(r.sector),
            Op::ZoneResetAll => recovery.forget_all(),
            _ => {}
        }
        self.ended(slot, running, result, tcp, ctx);
    }

    /// Carries out a step.
    pub(super) fn step<D: Disks<Client = C>>(
        &mut self,
        slot: u16,
        mut running: Running,
        n: usize,
        (resend, step): (Resend, ResendStep),
        tcp: &mut Connection,
        ctx: &mut IoContext<'_, D>,
    ) {
        let r = running.request;
        let (resending, request) = match step {
            ResendStep::Ask(io) => {
                let own = (io.bytes > 0).then(|| ctx.buffers.take(io.bytes));
                let data = std::mem::replace(&mut running.buf, own);
                (Resending::asking(resend, io, data), io.request(&r))
            }
            ResendStep::AwaitLate => return self.await_late(slot, running, n, resend, tcp, ctx),
            ResendStep::WriteRest(done) => (Resending::waiting(resend), rest_of(&r, done)),
            ResendStep::CarryOut => {
                running.resets = ctx.disks.recovery(r.disk).resets(r.sector);
                return self.submit(slot, running, n, &r, &ctx.disks);
            }
            ResendStep::Done(sector) => {
                ctx.disks.count_replayed(r.disk);
                let result = IoResult { status: Status::Ok, sector, zones: 0 };
                return self.ended(slot, running, result, tcp, ctx);
            }
            ResendStep::Failed(status) => {
                let result = IoResult { status, sector: r.sector, zones: 0 };
                return self.ended(slot, running, result, tcp, ctx);
            }
        };
        running.resending = Some(Box::new(resending));
        self.submit(slot, running, n, &request, &ctx.disks);
    }
}
