//! Commands on a disk for which lost answers are noted: the host may have sent each of them before. This module
//! carries out the steps that [`zoneplug_recovery`] decides.

use super::{DiskClient, Disks, IoContext, IoQueue, Running};
use crate::target::io::{IoRequest, IoResult};
use crate::tcp::Connection;
use zoneplug_buf::AlignedBuf;
use zoneplug_core::{Flags, Op, Status};
use zoneplug_recovery::{
    ClientKey, DiskRecovery, Landed, Outcome, Resend, ResendStep, Sent, StepIo,
};

/// A command that its host may have sent before.
#[derive(Debug)]
pub(super) struct Resending {
    pub(super) resend: Resend,
    /// The command that the step sends to the disk. `None`: the step waits, or the rest of a write is written.
    asked: Option<StepIo>,
    /// The command's data, while a step asks the disk.
    data: Option<AlignedBuf>,
}

impl Resending {
    /// Makes a command whose step waits.
    pub(super) fn waiting(resend: Resend) -> Resending {
        Resending { resend, asked: None, data: None }
    }

    /// Returns the command's data, if the command uses another buffer.
    pub(super) fn into_data(self) -> Option<AlignedBuf> {
        self.data
    }

    /// Notes the request again, because the connection has ended and the host may send it once more.
    pub(super) fn lose(
        &mut self,
        host: ClientKey,
        r: &IoRequest,
        resets: u32,
        recovery: &DiskRecovery,
    ) {
        if r.op != Op::ZoneAppend {
            recovery.with(|ledger| ledger.lose_write(host, r.sector, r.len_sectors));
        } else if let Some(at) = self.resend.found_at() {
            let landed = Landed { at, len_sectors: r.len_sectors, hash: None };
            recovery.lose_append(host, landed, resets);
        }
        recovery.with(|ledger| self.resend.abandon(ledger));
    }
}

impl<D> IoContext<'_, D> {
    /// Keeps a buffer for the next command.
    pub(super) fn put(&mut self, buf: Option<AlignedBuf>) {
        buf.into_iter().for_each(|buf| self.buffers.put(buf));
    }
}

impl<C: DiskClient> IoQueue<C> {
    pub(super) fn sent(&self, r: &IoRequest) -> Sent {
        let fua = r.flags.contains(Flags::FUA);
        Sent { client: self.host, sector: r.sector, len_sectors: r.len_sectors, fua }
    }

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
        let sent = self.sent(&r);
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
            let Resending { mut resend, asked, data } = *resending;
            let mut outcome = Outcome::Ended(result.status);
            if let Some(io) = asked {
                let came = (result.status, result.zones);
                outcome = io.outcome(came, running.buf.as_ref(), data.as_ref());
                let own = std::mem::replace(&mut running.buf, data);
                ctx.put(own);
            }
            let step = ctx.disks.recovery(r.disk).next(&mut resend, outcome, ctx.now);
            return self.step(slot, running, n, (resend, step), tcp, ctx);
        }
        let recovery = ctx.disks.recovery(r.disk);
        match r.op {
            Op::Write | Op::WriteZeroes if !result.status.is_ok() => {
                let Some(kept) = self.ask(slot, running, result.status, ctx) else { return };
                running = kept;
                let sent = self.sent(&r);
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
        let (mut asked, mut data) = (None, None);
        let request = match step {
            ResendStep::Ask(io) => {
                let StepIo { op, sector, len_sectors, bytes, .. } = io;
                let own = (bytes > 0).then(|| ctx.buffers.take(bytes));
                data = std::mem::replace(&mut running.buf, own);
                asked = Some(io);
                IoRequest { op, sector, len_sectors, memory: (0, bytes), flags: Flags::NONE, ..r }
            }
            ResendStep::AwaitLate => return self.await_late(slot, running, n, resend, tcp, ctx),
            ResendStep::WriteRest(done) => {
                let bytes = if r.memory.1 == 0 { 0 } else { r.memory.1 - (done << 9) };
                IoRequest {
                    sector: r.sector.plus(u64::from(done)),
                    len_sectors: r.len_sectors - done,
                    memory: (r.memory.0 + (r.memory.1 - bytes), bytes),
                    ..r
                }
            }
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
        running.resending = Some(Box::new(Resending { resend, asked, data }));
        self.submit(slot, running, n, &request, &ctx.disks);
    }
}
