//! The naive model of a plug. It uses no code of the engine; `tests.rs` compares the two.

use super::{CAP, MERGE, ZONE};
use crate::bio::{Status, WritePointer};
use crate::zone::Condition;
use std::collections::VecDeque;

/// A waiting write: token, offset, length, number of BIOs, whether it is write-zeroes, whether it is an append.
pub(super) type Waiting = (u64, u32, u32, u32, bool, bool);

/// The naive model: the requirements written down as simply as possible.
#[derive(Debug, Clone, Default)]
pub(super) struct Model {
    pub(super) wp: u32,
    /// (offset, length, generation) of the command in flight.
    pub(super) flight: Option<(u32, u32, u32)>,
    /// The zone is in line for a tag.
    pub(super) line: bool,
    pub(super) waiting: VecDeque<Waiting>,
    pub(super) stale: bool,
    pub(super) read_only: bool,
    pub(super) offline: bool,
    pub(super) managed: bool,
    pub(super) generation: u32,
    pub(super) resync: bool,
    /// Tokens of aborted writes, in order.
    pub(super) aborted: Vec<u64>,
    /// Error epochs: the present one, that of the last lost write pointer, and that of the last resync.
    pub(super) epoch: u32,
    pub(super) lost_at: u32,
    pub(super) resync_at: u32,
    /// The number of the layer's own report while it is in flight, and what was acknowledged before the failure.
    pub(super) report_number: Option<u32>,
    pub(super) succeeded_to: u32,
    /// Recoveries without progress; where the last recovery ended, and in which generation.
    pub(super) attempts: u32,
    pub(super) recovered_wp: (u32, u32),
    /// A write that was given up may still be at the device.
    pub(super) late: bool,
}

impl Model {
    pub(super) fn refusal(&self, offset: u32, len: u32) -> Option<Status> {
        let reasons = [
            (self.read_only, Status::ZoneReadOnly),
            (self.offline, Status::ZoneOffline),
            (self.managed, Status::ZoneBusy),
            (self.stale, Status::StaleWritePointer),
            (self.wp >= CAP, Status::ZoneFull),
            (offset != self.wp, Status::NotAtWritePointer),
            (offset + len > CAP, Status::PastCapacity),
        ];
        reasons.into_iter().find(|r| r.0).map(|r| r.1)
    }

    pub(super) fn admit(&mut self, w: Waiting, tag: bool) -> Result<u32, Status> {
        let (_, offset, len, ..) = w;
        match self.refusal(offset, len) {
            Some(status) => return Err(status),
            None => (self.wp, self.resync) = (self.wp + len, false),
        }
        let idle = self.flight.is_none() && self.report_number.is_none();
        if tag && !self.line && idle {
            self.flight = Some((offset, len, self.generation));
        } else {
            self.line |= idle;
            self.waiting.push_back(w);
        }
        Ok(offset)
    }

    pub(super) fn has_writes(&self) -> bool {
        self.flight.is_some() || !self.waiting.is_empty()
    }

    pub(super) fn abort(&mut self) {
        if self.report_number.take().is_some() {
            self.attempts = 0;
        }
        for (token, _, _, nr, ..) in self.waiting.drain(..) {
            self.aborted.extend((0..u64::from(nr)).map(|i| token + i));
        }
    }

    /// Sends the next command: writes of one kind, at most two BIOs and three sectors.
    pub(super) fn send(&mut self) {
        let Some((_, at, mut total, mut bios, zeroes, _)) = self.waiting.pop_front() else {
            return;
        };
        while let Some(&(_, _, len, nr, z, _)) = self.waiting.front()
            && z == zeroes
            && total + len <= MERGE.max_sectors
            && bios + nr <= MERGE.max_bios
        {
            self.waiting.pop_front();
            (total, bios) = (total + len, bios + nr);
        }
        self.flight = Some((at, total, self.generation));
    }

    pub(super) fn complete(&mut self, status: Status, to_line: bool) {
        let (offset, _, generation) = self.flight.take().expect("one in flight");
        // A report that was sent before the end of a write does not say what that write did.
        let unseen = status.is_ok() && (self.stale || self.read_only || self.offline);
        self.epoch += u32::from(!status.is_ok() || unseen);
        self.lost_at = if unseen { self.epoch } else { self.lost_at };
        let own = generation == self.generation;
        let for_good = matches!(status, Status::ZoneReadOnly | Status::ZoneOffline);
        match status.write_pointer() {
            WritePointer::Kept if own || for_good => {
                self.wp = if own { offset } else { self.wp };
                self.read_only |= status == Status::ZoneReadOnly;
                self.offline |= status == Status::ZoneOffline;
                self.lost_at = if for_good { self.epoch } else { self.lost_at };
                self.abort();
            }
            WritePointer::Unknown => {
                (self.stale, self.lost_at) = (true, self.epoch);
                self.abort();
            }
            _ if to_line => self.line = !self.waiting.is_empty(),
            _ => self.send(),
        }
    }

    /// Fails a write. The layer then finds the write pointer by itself if it may (E12).
    pub(super) fn fail(&mut self, status: Status) {
        let (offset, _, generation) = self.flight.expect("one in flight");
        let was_stale = self.stale;
        self.complete(status, false);
        let unknown = matches!(status, Status::Timeout | Status::NoDevice);
        let (ro, off) = (self.read_only, self.offline);
        // If a native append, or a reset in doubt, has made the zone stale before, the layer does not look for the
        // write pointer.
        if was_stale || !self.stale {
            return;
        }
        if unknown || self.late || ro || off {
            return;
        }
        let own = generation == self.generation;
        let done = if own { offset } else { 0 };
        if self.recovered_wp.1 != self.generation || done > self.recovered_wp.0 {
            self.attempts = 0;
        }
        if self.attempts == 3 {
            self.attempts = 0;
            return;
        }
        self.attempts += 1;
        (self.succeeded_to, self.recovered_wp.1, self.report_number) =
            (done, self.generation, Some(self.epoch));
        (self.stale, self.wp) = (false, done);
    }

    /// Delivers the layer's own report number `number` with `cond`; `None`: it has failed.
    pub(super) fn answer(&mut self, cond: Option<Condition>, number: u32) {
        if self.report_number != Some(number) {
            return;
        }
        let wp = match cond {
            Some(Condition::Empty) => 0,
            Some(Condition::Closed) => 1,
            Some(_) => u32::MAX,
            None => 0,
        };
        match cond {
            Some(cond) if wp >= self.succeeded_to => {
                self.resume_from_report(cond, number, self.succeeded_to);
            }
            _ => {
                // A report that was sent after the failure is still believed.
                (self.stale, self.lost_at) = (true, number);
                self.abort();
            }
        }
    }

    /// Takes the reported write pointer and places the waiting writes from there on.
    pub(super) fn resume_from_report(&mut self, cond: Condition, epoch: u32, done: u32) {
        self.wp = match cond {
            Condition::Empty => 0,
            Condition::Full => ZONE,
            Condition::Closed => 1,
            _ => self.wp,
        };
        self.lost_at = if self.resync { self.lost_at } else { epoch };
        self.recovered_wp.0 = self.wp;
        self.read_only = cond == Condition::ReadOnly;
        self.offline = cond == Condition::Offline;
        if self.read_only || self.offline {
            return self.abort();
        }
        self.report_number = None;
        self.attempts = if self.wp > done { 0 } else { self.attempts };
        for (token, offset, len, nr, zeroes, append) in std::mem::take(&mut self.waiting) {
            for i in 0..nr {
                let (token, len, at) = (token + u64::from(i), len / nr, offset + i * len / nr);
                if self.wp + len <= CAP && (append || at == self.wp) {
                    self.waiting.push_back((token, self.wp, len, 1, zeroes, append));
                    self.wp += len;
                } else {
                    self.aborted.push(token);
                }
            }
        }
        self.line = !self.waiting.is_empty();
    }

    pub(super) fn restart(&mut self, wp: u32) {
        if !(self.offline || self.read_only) {
            self.wp = wp;
            self.generation += 1;
            (self.stale, self.resync) = (false, false);
            self.abort();
        }
    }

    /// Delivers a client's report (E4-E6, E10). Returns whether a resync was not allowed to correct the zone.
    pub(super) fn report(&mut self, cond: Condition, epoch: u32, resync: bool) -> bool {
        let newer = epoch as i32 >= self.lost_at as i32;
        let gone = matches!(cond, Condition::ReadOnly | Condition::Offline);
        self.epoch += u32::from(gone);
        if let Some(number) = self.report_number
            && epoch as i32 >= number as i32
            && !gone
        {
            // The client's own report was sent after the failure.
            self.resume_from_report(cond, epoch, 0);
            self.attempts = 0;
            return false;
        }
        let rests = !self.has_writes();
        let wanted = rests && (self.stale || self.read_only || self.offline);
        let wanted = wanted || resync && self.resync;
        if !(gone || newer && wanted) {
            return resync;
        }
        (self.stale, self.resync) = (false, false);
        self.read_only = cond == Condition::ReadOnly;
        self.offline = cond == Condition::Offline;
        match cond {
            Condition::Empty => self.wp = 0,
            Condition::Full => self.wp = ZONE,
            Condition::Closed => self.wp = 1,
            _ => {
                self.lost_at = self.epoch;
                self.abort();
            }
        }
        false
    }
}
