//! Commands that their initiator may have sent before, and writes whose answers it may not have. [`zoneplug_recovery`]
//! decides the steps; this module carries them out.
//!
//! An initiator that has lost its connection, or whose task was aborted, sends a write again. If the disk refuses it for
//! its place, and the first one is noted, the data on the disk are compared with its own.

use super::command::Work;
use super::{Server, Session};
use crate::unit::IoResult;
use std::collections::VecDeque;
use zoneplug_core::{DiskClient, FNV_START, Flags, IoRequest, Op, Sector, Status, fnv1a};
use zoneplug_recovery::{
    ClientKey, DoorStep, LateWait, NOTHING_LATE, Resend, Resending, Search, SentCommand, StepEnd,
};

/// Returns the key of an initiator in the notes about lost answers: a hash of its name. All of its sessions have the
/// same, and a server of another version computes the same.
pub(super) fn client_key(initiator: &str) -> ClientKey {
    ClientKey::new(fnv1a(FNV_START, initiator.bytes()))
}

pub(super) fn is_write(r: &IoRequest) -> bool {
    matches!(r.op, Op::Write | Op::WriteZeroes)
}

/// A write that was answered.
#[derive(Debug, Clone, Copy)]
struct Answer {
    stat_sn: u32,
    disk: u32,
    sector: Sector,
    len_sectors: u32,
}

/// The writes whose answers the initiator has not acknowledged, oldest first.
#[derive(Debug)]
pub(super) struct Answered {
    last: VecDeque<Answer>,
    /// The most answers kept.
    limit: usize,
}

impl Answered {
    /// Keeps at most `limit` answers: an initiator has no more commands in flight, and has taken all earlier answers.
    pub(super) fn new(limit: usize) -> Answered {
        Answered { last: VecDeque::new(), limit }
    }

    fn push(&mut self, stat_sn: u32, r: &IoRequest) {
        if self.last.len() == self.limit {
            self.last.pop_front();
        } else if self.last.capacity() == 0 {
            self.last.reserve_exact(self.limit);
        }
        let IoRequest { disk, sector, len_sectors, .. } = *r;
        self.last.push_back(Answer { stat_sn, disk, sector, len_sectors });
    }

    /// Notes that the initiator has all answers with numbers before `exp_stat_sn`.
    pub(super) fn acknowledge(&mut self, exp_stat_sn: u32) {
        // Numbers are compared in a circle (RFC 1982).
        while self.last.front().is_some_and(|a| (a.stat_sn.wrapping_sub(exp_stat_sn) as i32) < 0) {
            self.last.pop_front();
        }
    }
}

impl<C: DiskClient> Session<C> {
    /// Begins a request of a command.
    pub(super) fn start<S: Server<C>>(
        &mut self,
        slot: u16,
        n: usize,
        r: IoRequest,
        server: &mut S,
    ) {
        let Some(work) = self.work(slot) else { return };
        work.request = r;
        let durable = r.op == Op::Flush || r.flags.contains(Flags::FUA);
        if durable && server.owes(r.disk, self.client_key) {
            let result = IoResult { status: Status::Medium, sector: r.sector, zones: 0 };
            return self.request_ended(slot, result, server);
        }
        if server.recovery(r.disk).is_before(r.op) {
            // Nothing but an append is searched for before it is sent, and SCSI has none: this forgets zones.
            let begun = server.recovery(r.disk).begin(
                r.op,
                SentCommand::of(self.client_key, &r),
                None,
                server.now(),
            );
            debug_assert!(begun.is_none(), "{r:?}");
        }
        self.submit(slot, n, r, server);
    }

    /// Returns the work of a command that has begun.
    pub(super) fn work(&mut self, slot: u16) -> Option<&mut Work> {
        self.command(slot)?.work.as_mut()
    }

    /// Continues a command whose request has ended.
    pub(super) fn request_ended<S: Server<C>>(
        &mut self,
        slot: u16,
        result: IoResult,
        server: &mut S,
    ) {
        let Some(c) = self.command(slot) else { return };
        let Some(work) = c.work.as_mut() else { return };
        let step = work.task.next(&work.unit, result, c.data.as_mut());
        self.go_on(slot, step, server);
    }

    /// Continues a command whose request has ended on a disk for which lost answers are noted.
    #[cold]
    pub(super) fn ended_after_loss<S: Server<C>>(
        &mut self,
        slot: u16,
        n: usize,
        result: IoResult,
        server: &mut S,
    ) {
        let ended = self.ended;
        let Some(c) = self.commands[usize::from(slot)].as_mut() else { return };
        let Some(r) = c.work.as_ref().map(|work| work.request) else { return };
        if let Some(resending) = c.resending.take() {
            let now = server.now();
            let end = resending.ended(result, c.data.take(), server.recovery(r.disk), now);
            let StepEnd { search, data, own } = end;
            c.data = data;
            if let Some(own) = own {
                self.memory -= own.len();
                server.buffers().put(own);
            }
            return self.search(slot, n, search, server);
        }
        match r.op {
            Op::Write | Op::WriteZeroes if !result.status.is_ok() && !ended => {
                let (sent, now) = (SentCommand::of(self.client_key, &r), server.now());
                let recovery = server.recovery(r.disk);
                if let Some(search) = recovery.begin_refused(sent, result.status, false, now) {
                    if r.memory.1 == 0 {
                        // The data are zeroes, whatever block has come with the command.
                        self.free_data(slot, server);
                    }
                    return self.search(slot, n, search, server);
                }
            }
            // Forgets the zone again: commands noted during the reset may be from before it.
            Op::ZoneReset => server.recovery(r.disk).forget_zone(r.sector),
            Op::ZoneResetAll => server.recovery(r.disk).forget_all(),
            _ => {}
        }
        self.request_ended(slot, result, server);
    }

    fn free_data<S: Server<C>>(&mut self, slot: u16, server: &mut S) {
        if let Some(buf) = self.command(slot).and_then(|c| c.data.take()) {
            self.memory -= buf.len();
            server.buffers().put(buf);
        }
    }

    /// Carries out a step of the search for a command.
    fn search<S: Server<C>>(&mut self, slot: u16, n: usize, search: Search, server: &mut S) {
        let Some(c) = self.commands[usize::from(slot)].as_mut() else { return };
        let Some(r) = c.work.as_ref().map(|work| work.request) else { return };
        let memory = &mut self.memory;
        let take = |bytes| {
            let own = server.buffers().take(bytes);
            *memory += own.len();
            own
        };
        match search.carry_out(&r, &mut c.data, take) {
            DoorStep::Send(request, resending) => {
                c.resending = Some(resending);
                self.submit(slot, n, request, server);
            }
            DoorStep::AwaitLate(resend) => self.await_late(slot, n, resend, server),
            DoorStep::CarryOut => self.submit(slot, n, r, server),
            DoorStep::Replayed(result) => {
                server.count_replayed(r.disk);
                self.request_ended(slot, result, server);
            }
            DoorStep::Failed(result) => self.request_ended(slot, result, server),
        }
    }

    /// Lets a resent write wait, if the device may still carry out a command of its zone that was given up.
    fn await_late<S: Server<C>>(&mut self, slot: u16, n: usize, resend: Resend, server: &mut S) {
        let Some(r) = self.work(slot).map(|work| work.request) else { return };
        match server.late_limit(r.disk, r.sector) {
            None => {
                let search = server.recovery(r.disk).next(resend, NOTHING_LATE, server.now());
                self.search(slot, n, search, server);
            }
            Some(limit) => {
                if let Some(c) = self.command(slot) {
                    c.resending = Some(Box::new(Resending::waiting(resend)));
                }
                self.late.push(LateWait::new(slot, n, limit, server.now()));
            }
        }
    }

    /// Continues the writes that need not wait any more. Returns false if there is none.
    #[cold]
    pub(super) fn start_late<S: Server<C>>(&mut self, server: &mut S) -> bool {
        let mut progress = false;
        for wait in std::mem::take(&mut self.late) {
            let Some(r) = self.work(wait.slot).map(|work| work.request) else { continue };
            let limit = server.late_limit(r.disk, r.sector);
            let Some(outcome) = wait.outcome(limit, server.now()) else {
                self.late.push(wait);
                continue;
            };
            let resending = self.command(wait.slot).and_then(|c| c.resending.take());
            let Some(resending) = resending else { continue };
            let now = server.now();
            let search = resending.waited(outcome, server.recovery(r.disk), now);
            self.search(wait.slot, wait.client, search, server);
            progress = true;
        }
        progress
    }

    /// Ends the wait of resent writes without an answer: their initiator sends them once more.
    pub(super) fn drop_late<S: Server<C>>(&mut self, server: &mut S) {
        for wait in std::mem::take(&mut self.late) {
            self.lose_command(wait.slot, server);
            self.forget(wait.slot, server);
        }
    }

    /// Notes a write that was answered, until the initiator acknowledges the answer.
    pub(super) fn note_answer(&mut self, r: &IoRequest) {
        if is_write(r) && !self.ended {
            self.answered.push(self.window.last_stat_sn(), r);
        }
    }

    /// Notes a write of this initiator that it may send again.
    pub(super) fn lose_write<S: Server<C>>(&self, r: &IoRequest, server: &mut S) {
        let key = self.client_key;
        server.recovery(r.disk).with(|ledger| ledger.lose_write(key, r.sector, r.len_sectors));
    }

    /// Notes the command of a slot, which is at a disk, because the initiator may send it again.
    fn lose_command<S: Server<C>>(&mut self, slot: u16, server: &mut S) {
        let key = self.client_key;
        let Some(c) = self.commands[usize::from(slot)].as_mut() else { return };
        let Some(r) = c.work.as_ref().map(Work::changes) else { return };
        match c.resending.take() {
            Some(mut resending) => {
                resending.lose(key, &r, 0, server.recovery(r.disk));
                if let Some(buf) = resending.into_data() {
                    self.memory -= buf.len();
                    server.buffers().put(buf);
                }
            }
            None if is_write(&r) => self.lose_write(&r, server),
            None => {}
        }
    }

    /// Notes everything that the initiator may send again, because the session has ended.
    pub(super) fn lose_all<S: Server<C>>(&mut self, server: &mut S) {
        for Answer { disk, sector, len_sectors, .. } in std::mem::take(&mut self.answered.last) {
            let r = IoRequest { sector, len_sectors, ..IoRequest::new(disk, Op::Write) };
            self.lose_write(&r, server);
        }
        for slot in 0..self.commands.len() as u16 {
            self.lose_command(slot, server);
        }
    }

    /// Starts the time in which the initiator sends commands again, for all disks that the session has used.
    pub(super) fn is_back<S: Server<C>>(&self, server: &mut S) {
        let (key, now) = (self.client_key, server.now());
        for used in &self.used {
            server.recovery(used.disk).with(|ledger| ledger.is_back(key, now));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// S13. A server of another version finds what this one has noted of an initiator: the value was computed by another
    /// program.
    #[test]
    fn s13_the_key_of_an_initiator_is_the_same_in_each_version() {
        let key = client_key("iqn.2004-10.com.ubuntu:01:4c21e7f6a5d");
        assert_eq!(key, ClientKey::new(0xd448_2b3d_1fc9_7d14));
    }

    /// S13. Answers are kept until they are acknowledged, also where their numbers begin again.
    #[test]
    fn s13_answers_are_kept_until_they_are_acknowledged() {
        let mut all = Answered::new(3);
        let sectors = |all: &Answered| all.last.iter().map(|a| a.sector.0).collect::<Vec<_>>();
        for i in 0..4 {
            let r = IoRequest { sector: Sector(i), ..IoRequest::new(0, Op::Write) };
            all.push((u32::MAX - 1).wrapping_add(i as u32), &r);
        }
        assert_eq!(sectors(&all), [1, 2, 3], "no more than fit");
        all.acknowledge(u32::MAX - 1);
        assert_eq!(sectors(&all), [1, 2, 3]);
        all.acknowledge(0);
        assert_eq!(sectors(&all), [2, 3]);
        all.acknowledge(2);
        assert_eq!(sectors(&all), [0; 0]);
    }
}
