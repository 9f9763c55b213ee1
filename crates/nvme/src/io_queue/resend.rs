//! Commands on a disk for which lost answers are noted: the host may have sent each of them before. This module
//! carries out the steps that [`zoneplug_recovery`] decides.

use super::{DiskClient, Disks, IoContext, IoQueue, Running};
use crate::target::io::{IoRequest, IoResult};
use crate::tcp::Connection;
use zoneplug_buf::AlignedBuf;
use zoneplug_core::zone::{ZONE_RECORD_LEN, ZoneInfo};
use zoneplug_core::{Flags, Op, Sector, Status};
use zoneplug_recovery::{
    AppendData, ClientKey, DiskRecovery, Landed, Outcome, Resend, ResendStep, Sent, block_hashes,
    data_hash,
};

/// A command that its host may have sent before.
#[derive(Debug)]
pub(super) struct Resending {
    resend: Resend,
    /// The step that is being carried out.
    step: ResendStep,
    /// The command's data, while the command uses another buffer.
    data: Option<AlignedBuf>,
}

impl Resending {
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
        let begun = match (r.op, &running.buf) {
            (Op::ZoneAppend, Some(buf)) => {
                let mut data = AppendData { hash: data_hash(buf, r.memory.1), blocks: Vec::new() };
                if let Some(block) = recovery.with(|ledger| ledger.looks_for_blocks()) {
                    data.blocks = block_hashes(buf, r.len_sectors, block);
                }
                recovery.with(|ledger| Resend::of_append(sent, data, ledger, ctx.now))
            }
            (Op::ZoneReset, _) => {
                recovery.forget_zone(r.sector);
                None
            }
            (Op::ZoneResetAll, _) => {
                recovery.forget_all();
                None
            }
            _ => None,
        };
        match begun {
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
            let Resending { mut resend, step, data } = *resending;
            let outcome = match step {
                ResendStep::Report => Outcome::Zone(zone_of(&result, running.buf.as_ref())),
                ResendStep::Compare { len_sectors, skip, .. } if result.status.is_ok() => {
                    let found = running.buf.as_ref();
                    Outcome::Compared(is_equal(found, data.as_ref(), len_sectors, skip))
                }
                _ => Outcome::Ended(result.status),
            };
            if is_apart(step) {
                ctx.put(std::mem::replace(&mut running.buf, data));
            }
            let now = ctx.now;
            let recovery = ctx.disks.recovery(r.disk);
            let step = recovery.with(|ledger| resend.next(outcome, ledger, now));
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
        let ask = |op, sector, len_sectors, memory| IoRequest {
            op,
            sector,
            len_sectors,
            memory,
            ..IoRequest { flags: Flags::NONE, ..r }
        };
        let request = match step {
            ResendStep::Report => {
                let g = ctx.disks.geometry(r.disk);
                let start = g.zone_start(g.zone_of(r.sector).0);
                ask(Op::ReportZones, start, 0, (0, ZONE_RECORD_LEN as u32))
            }
            ResendStep::Compare { at, len_sectors, .. } => {
                ask(Op::Read, at, len_sectors, (0, len_sectors << 9))
            }
            ResendStep::WriteRest(done) => {
                let bytes = if r.memory.1 == 0 { 0 } else { r.memory.1 - (done << 9) };
                IoRequest {
                    sector: r.sector.plus(u64::from(done)),
                    len_sectors: r.len_sectors - done,
                    memory: (r.memory.0 + (r.memory.1 - bytes), bytes),
                    ..r
                }
            }
            ResendStep::Flush => ask(Op::Flush, Sector(0), 0, (0, 0)),
            ResendStep::Append => {
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
        let mut data = None;
        if is_apart(step) {
            data = running.buf.replace(ctx.buffers.take(request.memory.1));
        }
        running.resending = Some(Box::new(Resending { resend, step, data }));
        self.submit(slot, running, n, &request, &ctx.disks);
    }
}

/// Returns whether a step uses a buffer of its own.
fn is_apart(step: ResendStep) -> bool {
    matches!(step, ResendStep::Report | ResendStep::Compare { .. })
}

/// Returns the zone from a report of one zone.
fn zone_of(result: &IoResult, buf: Option<&AlignedBuf>) -> Option<ZoneInfo> {
    let buf = buf.filter(|_| result.status.is_ok() && result.zones > 0)?;
    let mut record = [0; ZONE_RECORD_LEN];
    buf.read(0, &mut record);
    ZoneInfo::decode(&record)
}

/// Compares this many sectors of `found` with `data` behind its first `skip` sectors. Without data, compares with
/// zeroes.
fn is_equal(
    found: Option<&AlignedBuf>,
    data: Option<&AlignedBuf>,
    len_sectors: u32,
    skip: u32,
) -> bool {
    let (bytes, skip) = ((len_sectors as usize) << 9, (skip as usize) << 9);
    let Some(found) = found.and_then(|b| b.as_slice().get(..bytes)) else { return false };
    match data {
        Some(data) => data.as_slice().get(skip..skip + bytes) == Some(found),
        None => found.iter().all(|b| *b == 0),
    }
}
