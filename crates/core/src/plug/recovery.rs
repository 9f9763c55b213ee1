//! Recovery of a zone after a failed write: the layer reports the zone, and believes only that report (E12, E7).
//!
//! Two paths lead here. On disks with several writes of a zone in flight, `pipelined.rs` holds the failed writes and
//! asks for the report when the rest has drained. On other disks the client has been told of the error, and the
//! writes behind the failed one were aborted (E1). [`PlugChange::ask`] then begins the recovery if the attribute
//! `zone_recovery` is `auto`. From there on both paths are the same:
//!
//! * While the report is in flight, the plug is busy and nothing is sent. Two kinds of writes are admitted and park:
//!   appends, and a positional write at the place of the failed one, where a client that tries again wants it.
//! * The report has a number. A reset, a finish, a native append or a report by the client ends the recovery, and the
//!   answer to the old number is no longer believed (E6).
//! * While a reset or finish is in flight, no answer is believed. The device may have carried out the reset before it
//!   answered, and the failed writes would then be sent again into an emptied zone. The zone is stale until the reset
//!   succeeds or the client sends a report.
//! * If the write pointer is before the end of what was acknowledged, the zone stays stale until its client acts. The
//!   same holds if the report fails, or if the zone makes no progress ([`MAX_ATTEMPTS`]).
//! * Otherwise the parked writes are placed from the reported write pointer on: an append gets a new sector, and a
//!   positional write must be where its client wants it. Writes that do not fit there are aborted.
//!
//! This file is plain state; `disk/recovery.rs` sends the report.

use super::shard::{PlugChange, Shard};
use super::state::{CONVENTIONAL, NEED_WP, OFFLINE, PLUGGED, READONLY, RESYNC};
use super::track::{MAX_ATTEMPTS, QueueStep, Track};
use super::{Kind, NONE, Recovery, ReportEpochs};
use crate::bio::{Bio, Command, Op, Status};
use crate::unit::Sector;
use crate::zone::{Condition, ZoneInfo, ZoneType};

/// The answer to the layer's own report of a zone, and facts that only the disk knows.
pub(crate) struct RecoveryReport<'a> {
    /// The report command that has come back.
    pub(crate) cmd: &'a Command,
    /// The start of the zone.
    pub(crate) start: Sector,
    /// The write granularity in sectors, less one.
    pub(crate) mask: u32,
    /// Says whether the device may carry out a reset or finish of the zone at any moment, or has done so.
    pub(crate) may_move: &'a dyn Fn() -> bool,
    /// Begins a new error epoch and returns its number.
    pub(crate) epoch: &'a dyn Fn() -> u32,
}

impl Shard {
    /// Notes that a write or native append of zone `i` was given up under `ticket`; 0: none was. `join_late`: as in
    /// [`PlugChange::ask`].
    pub(crate) fn given_up(
        &mut self,
        i: usize,
        ticket: u32,
        join_late: impl FnOnce(u32, u32) -> u32,
    ) {
        self.need_tracks();
        let track = &mut self.tracks[i];
        track.late = join_late(track.late, ticket);
    }

    /// Returns the ticket of the writes and native appends of zone `i` that were given up; 0: none was.
    pub(crate) fn late_ticket(&self, i: usize) -> u32 {
        self.tracks.get(i).map_or(0, |track| track.late)
    }

    /// Makes the tracks of the shard, if there are none.
    pub(super) fn need_tracks(&mut self) {
        if self.tracks.len() < self.plugs.len() {
            self.tracks.resize_with(self.plugs.len(), Track::default);
        }
    }

    /// Takes the write pointer of zone `i` from `info`, which is believed. `head` is where the first failure began.
    fn resume_from_report(
        &mut self,
        i: usize,
        info: &ZoneInfo,
        epoch: u32,
        head: Sector,
        mask: u32,
        aborted: &mut Vec<Box<Bio>>,
    ) -> QueueStep {
        let (plug, track) = (&mut self.plugs[i], &mut self.tracks[i]);
        // A resync that the client has sent meanwhile keeps its mark, so that its answer counts (E10).
        let resync = plug.state & RESYNC;
        plug.set_from(info);
        plug.state |= resync;
        if resync == 0 {
            plug.error_epoch = epoch;
        }
        track.recovered_wp = plug.wp;
        self.counters.resynced += 1;
        let (wp, state) = (plug.wp, plug.state);
        self.count(i, |c| c.resynced += 1);
        if state & (READONLY | OFFLINE) != 0 || wp & mask != 0 {
            self.abort(i, aborted);
            return self.next_in_order(i);
        }
        if head < info.start.plus(u64::from(wp)) {
            self.tracks[i].attempts = 0;
        }
        self.place(i, info.start, aborted);
        self.next_in_order(i)
    }

    /// Places the failed writes, and then the waiting ones, from the write pointer on. Each is parked again or
    /// aborted.
    pub(super) fn place(&mut self, i: usize, start: Sector, aborted: &mut Vec<Box<Bio>>) {
        let (plug, track) = (&mut self.plugs[i], &mut self.tracks[i]);
        let found = plug.wp;
        let mut waiting = Vec::new();
        let mut at = plug.head;
        while at != NONE {
            at = self.slots.take(at, &mut waiting);
        }
        (plug.head, plug.tail, plug.parked) = (NONE, NONE, 0);
        plug.recovery = Recovery::None;
        plug.state |= PLUGGED;
        let held = std::mem::take(&mut track.held);
        let sent = held.into_iter().map(|h| (h.bio, h.status != Status::Busy));
        let mut place = found;
        let mut run = Vec::new();
        for (mut bio, sent) in sent.chain(waiting.into_iter().map(|b| (b, false))) {
            let offset = bio.sector.0.wrapping_sub(start.0) as u32;
            let append = bio.op == Op::ZoneAppend;
            let fits = u64::from(place) + u64::from(bio.len_sectors) <= self.capacity(i);
            // If the write pointer is past the start of a write that was sent, some of it may be on the medium. It is
            // not written a second time (E9).
            let absent = !sent || found <= offset;
            let there = append || offset == place;
            if !(fits && absent && there) {
                aborted.push(bio);
                continue;
            }
            bio.sector = start.plus(u64::from(place));
            place += bio.len_sectors;
            self.counters.retried += u64::from(sent);
            let (len, queue, kind) = (bio.len_sectors, bio.queue, Kind::of(&bio));
            run.push(bio);
            self.park(i, &mut run, len, queue, kind);
        }
        self.plugs[i].wp = place;
    }

    fn capacity(&self, i: usize) -> u64 {
        u64::from(self.plugs[i].capacity)
    }

    /// Ends the recovery of zone `i` if there is one. The held writes go to `aborted`.
    pub(super) fn end_recovery(&mut self, i: usize, aborted: &mut Vec<Box<Bio>>) {
        let plug = &mut self.plugs[i];
        let Some(track) = self.tracks.get_mut(i).filter(|_| plug.recovery != Recovery::None) else {
            return;
        };
        aborted.extend(track.held.drain(..).map(|h| h.bio));
        track.attempts = 0;
        plug.recovery = Recovery::None;
        if plug.in_flight == 0 && !plug.in_line {
            plug.state &= !PLUGGED;
        }
    }
}

impl PlugChange<'_> {
    /// Decides whether the layer reports the zone after its only write, which began at `offset`, has failed. The
    /// failure has made the write pointer unknown, and the writes behind it were aborted. If the answer is yes, the
    /// report has the number `epoch`, which is that of the failure. A zone whose write pointer was unknown before,
    /// because of a native append or a reset in doubt, is not reported: these may still be at the device.
    ///
    /// `join_late` joins the tickets of two writes that were given up, and returns the ticket of those that are still
    /// at the device. While there is one, no report is final, because the device may carry out that write at any
    /// moment. So the client has to recover the zone after a timeout or the death of the device's queue, and after
    /// every failure until the late write has come back.
    pub(crate) fn ask(
        &mut self,
        cmd: &Command,
        offset: u32,
        epoch: u32,
        auto: bool,
        join_late: impl FnOnce(u32, u32) -> u32,
    ) -> bool {
        let (shard, i) = (&mut *self.shard, self.i);
        let unknown = matches!(cmd.status, Status::Timeout | Status::NoDevice);
        let ticket = cmd.bios.first().map_or(0, |b| b.late);
        if !auto && ticket == 0 {
            return false;
        }
        shard.given_up(i, ticket, join_late);
        let (plug, track) = (&mut shard.plugs[i], &mut shard.tracks[i]);
        let rests = track.late == 0 && !unknown && !track.appends.any();
        if !auto || !rests || plug.state & (CONVENTIONAL | READONLY | OFFLINE) != 0 {
            return false;
        }
        // After a reset in between, nothing of the zone has been acknowledged (M4).
        let own = plug.generation == cmd.generation;
        let done = if own { offset } else { 0 };
        if track.generation != plug.generation || done > track.recovered_wp {
            track.attempts = 0;
        }
        if track.attempts >= MAX_ATTEMPTS {
            track.attempts = 0;
            return false;
        }
        track.attempts = track.attempts.saturating_add(1);
        (track.succeeded_to, track.generation, track.report_number) =
            (done, plug.generation, epoch);
        // The writes behind the failed one were aborted, so their reservations are undone.
        plug.wp = done;
        plug.state = plug.state & !NEED_WP | PLUGGED;
        plug.recovery = Recovery::Asked;
        true
    }

    /// Takes the layer's own report of a zone that is being recovered; the zone goes on from its write pointer.
    pub(crate) fn recover(
        &mut self,
        report: &RecoveryReport<'_>,
        aborted: &mut Vec<Box<Bio>>,
    ) -> QueueStep {
        let (shard, i) = (&mut *self.shard, self.i);
        let &RecoveryReport { cmd, start, mask, may_move, epoch } = report;
        let plug = &shard.plugs[i];
        let current = shard.tracks.get(i).is_some_and(|t| t.report_number == cmd.epoch);
        // A failure that still waits for the writes behind it has not been reported yet: `report_number` is still that
        // of an earlier report.
        let drains = plug.in_flight > 0;
        let ended = plug.recovery == Recovery::None || drains || !current;
        let (Some(track), false) = (shard.tracks.get_mut(i), ended) else {
            // A reset, a finish or a client's report has ended the recovery.
            return QueueStep::Nothing;
        };
        // A record of another zone, or of one that is not sequential, says nothing about this zone (V2).
        let sequential =
            |z: &ZoneInfo| z.zone_type == ZoneType::SeqWriteRequired && z.cond != Condition::NotWp;
        let info = cmd.report.first();
        let info = info.filter(|z| cmd.status.is_ok() && z.start == start && sequential(z));
        // Data before the first failure were acknowledged. If they are missing, something else has happened, such as
        // a power cut. The client must look at that before anything is written in their place.
        let head =
            track.held.first().map_or(start.plus(u64::from(track.succeeded_to)), |h| h.bio.sector);
        let missing = |z: &&ZoneInfo| match z.cond {
            Condition::Empty => start < head,
            Condition::Full | Condition::ReadOnly | Condition::Offline => false,
            _ => z.wp < head,
        };
        // The device may have answered before it carried out the reset or finish, or after. The end of the reset
        // decides.
        let in_doubt = may_move();
        let is_missing = info.as_ref().is_some_and(missing) && !in_doubt;
        let Some(info) = info.filter(|_| !is_missing && !in_doubt) else {
            // A write that only found the device busy has no status of its own.
            let why = match cmd.status {
                _ if in_doubt => Status::AbortedByManagement,
                Status::Ok => Status::Io,
                status => status,
            };
            for h in track.held.iter_mut().filter(|h| h.bio.status.is_ok()) {
                h.bio.status = why;
            }
            shard.counters.missing += u64::from(is_missing);
            // With one write in flight nothing has happened since the failure, so a client's report that is in flight
            // may still be believed.
            let asked = plug.recovery == Recovery::Asked;
            let epoch = if asked { track.report_number } else { epoch() };
            shard.give_up(i, start, is_missing || in_doubt, epoch, aborted);
            return shard.next_in_order(i);
        };
        shard.resume_from_report(i, info, cmd.epoch, head, mask, aborted)
    }

    /// Takes a client's report of a zone, with its epochs, while the layer's own report of that zone is in flight. If the client's report was sent after the failure, it ends the recovery in place of the layer's
    /// report: the client may write at once where it says. Returns `None` if the report does not end the recovery.
    /// `may_move`: as in [`RecoveryReport`].
    pub(crate) fn reported_meanwhile(
        &mut self,
        info: &ZoneInfo,
        epochs: ReportEpochs,
        mask: u32,
        may_move: &dyn Fn() -> bool,
        aborted: &mut Vec<Box<Bio>>,
    ) -> Option<QueueStep> {
        let i = self.i;
        if self.plugs[i].recovery != Recovery::Asked {
            return None;
        }
        let newer = epochs.are_since(self.tracks[i].report_number);
        let gone = matches!(info.cond, Condition::ReadOnly | Condition::Offline);
        if gone || !newer {
            return None;
        }
        let first = aborted.len();
        if may_move() {
            // The client knows of the reset. Writes that wait are aborted, because the report may not hold any more.
            self.abort(i, aborted);
        }
        let step = self.resume_from_report(i, info, epochs.sent, info.start, mask, aborted);
        // A report by the client makes the count of recoveries begin again.
        self.tracks[i].attempts = 0;
        for bio in aborted.iter_mut().skip(first).filter(|b| b.status.is_ok()) {
            bio.status = Status::AbortedBehind;
        }
        Some(step)
    }
}
