//! Several writes of a zone in flight, on a device that keeps their order, and recovery when one of them fails.
//!
//! A plug alone has one write in flight, and its `PLUGGED` bit says so. Where several may be in flight, each plug has
//! a `Track` beside it, and the bit means that *a new write parks*. It is set in four cases: the zone is in a queue's
//! line, has as many writes in flight as it may, has another queue as its home, or is being recovered. The bit is
//! clear while the next write may be sent at once. The code that admits and parks writes tests only this bit, so a
//! disk with one write in flight pays nothing. Only `disk/dispatch/pipelined.rs` calls the functions of this file, on
//! disks whose depth is more than one.
//!
//! * The writes of a zone that are in flight are all on one queue, its *home*. The home changes only when none is in
//!   flight.
//! * After a failure nothing more is sent. The failed writes are held. When nothing is in flight any more, the layer
//!   reports the zone, and the zone goes on from the write pointer that the device reports ([`PlugChange::recover`] in
//!   `recovery.rs`).
//! * A write is sent again only if it is provably not on the medium: the write pointer is at or before its start. An
//!   append gets a new sector; a positional write goes only where its client said.

use super::Recovery;
use super::shard::{Merge, PlugChange, Shard};
use super::state::{NEED_WP, OFFLINE, PLUGGED, READONLY};
use super::track::{Held, MAX_ATTEMPTS, QueueStep, Track};
use crate::bio::{Bio, Command, Status, WritePointer};
use crate::unit::Sector;

/// The result of sending writes of a zone that was in line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SentWrites {
    /// Nothing was sent: no write waits, or those that wait cannot be sent yet.
    Nothing,
    /// One command was sent.
    One,
    /// One command was sent. More writes wait, and the zone goes to the end of the line.
    More,
}

impl Shard {
    /// Prepares for several writes of a zone in flight (`on`), or for one. Nothing is in flight during the call.
    pub(crate) fn keep_tracks(&mut self, on: bool) {
        // With one write in flight a recovery may be under way, so existing tracks stay.
        if on {
            self.tracks.resize_with(self.plugs.len(), Track::default);
        }
    }

    /// Forgets everything but late writes: all zones were read again with nothing in flight, but a write that was
    /// given up may still be at the device.
    pub(crate) fn forget_tracks(&mut self) {
        for track in &mut self.tracks {
            *track = Track { late: track.late, ..Track::default() };
        }
    }

    /// Returns whether `queue` cannot send the next write of zone `i` now, even with a free tag. A later completion
    /// in the zone decides what follows.
    pub(crate) fn must_wait(&self, i: usize, queue: u32, depth: u16) -> bool {
        let (plug, track) = (&self.plugs[i], &self.tracks[i]);
        let elsewhere = plug.in_flight > 0 && track.home != queue;
        plug.recovery != Recovery::None || plug.in_flight >= depth || elsewhere
    }

    /// Takes the zone out of the line, without a tag.
    pub(crate) fn leave_line(&mut self, i: usize) {
        self.plugs[i].in_line = false;
    }

    /// Like [`Shard::fill`], for a zone that was in the line of `queue` and may have `depth` writes in flight.
    pub(crate) fn fill_in_order(
        &mut self,
        i: usize,
        merge: Merge,
        cmd: &mut Command,
        queue: u32,
        depth: u16,
    ) -> SentWrites {
        self.leave_line(i);
        if self.must_wait(i, queue, depth) || !self.fill(i, merge, cmd) {
            return SentWrites::Nothing;
        }
        let (plug, track) = (&mut self.plugs[i], &mut self.tracks[i]);
        if plug.in_flight == 0 {
            track.succeeded_to = 0;
        }
        plug.in_flight += 1;
        track.home = queue;
        let room = plug.in_flight < depth;
        if plug.parked > 0 && room {
            plug.get_in_line();
            return SentWrites::More;
        }
        if room {
            plug.state &= !PLUGGED;
        }
        SentWrites::One
    }

    /// Returns whether exactly one command of zone `i` is at the device, and none has failed.
    pub(crate) fn is_alone(&self, i: usize) -> bool {
        let plug = &self.plugs[i];
        plug.in_flight == 1
            && plug.recovery == Recovery::None
            && plug.state & (NEED_WP | READONLY | OFFLINE) == 0
    }

    /// Returns the next step of a zone without a failure.
    pub(super) fn next_in_order(&mut self, i: usize) -> QueueStep {
        let plug = &mut self.plugs[i];
        if plug.in_line {
            // The zone is in a queue's line already, and that queue sends its next write.
            QueueStep::Nothing
        } else if plug.parked > 0 {
            plug.get_in_line();
            QueueStep::InLine
        } else {
            plug.state &= !PLUGGED;
            QueueStep::Nothing
        }
    }

    /// Decides whether the layer reports the zone. Writes have failed, and none is in flight.
    fn decide(
        &mut self,
        i: usize,
        start: Sector,
        epoch: &dyn Fn() -> u32,
        late_at_device: &dyn Fn(u32) -> bool,
        aborted: &mut Vec<Box<Bio>>,
    ) -> QueueStep {
        let track = &mut self.tracks[i];
        track.held.sort_by_key(|h| h.bio.sector);
        let Some(head) = track.held.first() else {
            // A faulty device has kept the BIOs, so it is unknown what was written.
            self.give_up(i, start, true, epoch(), aborted);
            return self.next_in_order(i);
        };
        // Only the status of the first failure says what happened: the writes behind it failed because of it.
        let status = head.status;
        // A write with an unknown outcome may still be carried out, whether it is one of these or an earlier one.
        let unknown = |h: &Held| matches!(h.status, Status::Timeout | Status::NoDevice);
        let late = late_at_device(track.late) || track.appends.any();
        // A write that found the device busy is sent again, however often (W23).
        let busy = status == Status::Busy;
        let again = busy || track.attempts < MAX_ATTEMPTS;
        if status.is_retryable() && !late && !track.held.iter().any(unknown) && again {
            track.attempts = track.attempts.saturating_add(u8::from(!busy));
            track.report_number = epoch();
            return QueueStep::Report(track.report_number);
        }
        // The device was busy for the first one, and the others were not at the write pointer, so nothing was
        // written.
        let at = head.offset(start);
        let idle = |h: &Held| matches!(h.status, Status::Busy | Status::UnalignedWrite);
        if busy && track.succeeded_to <= at && track.held.iter().all(idle) {
            self.plugs[i].wp = at;
            self.place(i, start, aborted);
            return self.next_in_order(i);
        }
        self.give_up(i, start, false, epoch(), aborted);
        self.next_in_order(i)
    }

    /// Fails the held writes, and the writes that wait behind them (E1). `moved`: the write pointer is not where the
    /// first of them was sent.
    pub(super) fn give_up(
        &mut self,
        i: usize,
        start: Sector,
        moved: bool,
        epoch: u32,
        aborted: &mut Vec<Box<Bio>>,
    ) {
        let (plug, track) = (&mut self.plugs[i], &mut self.tracks[i]);
        let head = track.held.first();
        // The first one did nothing, so the others were not at the write pointer and did nothing either.
        let idle = |h: &Held| h.wrote_nothing || h.status == Status::UnalignedWrite;
        let wrote_nothing = !moved
            && head.is_some_and(|h| h.wrote_nothing && track.succeeded_to <= h.offset(start));
        if let (Some(head), true) = (head, wrote_nothing && track.held.iter().all(idle)) {
            plug.wp = head.offset(start);
        } else {
            plug.state |= NEED_WP;
            plug.error_epoch = epoch;
            // On disks with one write in flight the failure has been counted already.
            self.counters.lost += u64::from(plug.recovery == Recovery::Held);
        }
        for h in &track.held {
            plug.refused_for_good(h.status, epoch);
        }
        self.abort(i, aborted);
    }
}

impl PlugChange<'_> {
    /// Ends a write command of the zone, which begins at `start`.
    ///
    /// BIOs that go back to their clients stay in the command and get its status. BIOs that end for another reason go
    /// to `aborted`; those that were sent keep the status with which they failed. `epoch` counts errors (E6).
    /// `late_at_device` says whether a write that was given up under this ticket (0: none), or a reset that was given
    /// up, is still at the device.
    pub(crate) fn complete_in_order(
        &mut self,
        cmd: &mut Command,
        start: Sector,
        epoch: &dyn Fn() -> u32,
        late_at_device: &dyn Fn(u32) -> bool,
        aborted: &mut Vec<Box<Bio>>,
    ) -> QueueStep {
        let (shard, i) = (&mut *self.shard, self.i);
        let (plug, track) = (&mut shard.plugs[i], &mut shard.tracks[i]);
        debug_assert!(plug.in_flight > 0, "I4: a completion of an idle zone");
        plug.in_flight -= 1;
        // After a reset in between, nothing of the command is tried again (M4).
        let own = plug.generation == cmd.generation;
        if cmd.status.is_ok() {
            if own {
                // A faulty device may have changed sector and length.
                let offset = cmd.sector.0.wrapping_sub(start.0) as u32;
                let end = offset.saturating_add(cmd.len_sectors);
                (track.succeeded_to, track.attempts) = (track.succeeded_to.max(end), 0);
            }
            // A BIO that was sent again still has the status of its earlier failure.
            cmd.bios.iter_mut().for_each(|b| b.status = Status::Ok);
        } else if own && plug.state & (NEED_WP | READONLY | OFFLINE) == 0 {
            plug.recovery = Recovery::Held;
            plug.state |= PLUGGED;
            let (status, wrote_nothing) = (cmd.status, cmd.write_pointer() == WritePointer::Kept);
            track.held.extend(cmd.bios.drain(..).map(|mut bio| {
                if status != Status::Busy {
                    bio.status = status;
                }
                Held { bio, status, wrote_nothing }
            }));
        } else {
            if cmd.status == Status::Busy {
                // The device has done no part of it, and it is not sent again.
                aborted.append(&mut cmd.bios);
            }
            let lost = cmd.write_pointer() == WritePointer::Unknown;
            if lost {
                plug.state |= NEED_WP;
                shard.counters.lost += 1;
            }
            if plug.refused_for_good(cmd.status, epoch()) || lost {
                shard.abort(i, aborted);
            }
        }
        let (plug, appends) = (&mut shard.plugs[i], &mut shard.tracks[i].appends);
        if plug.awaits_report() {
            // A report that was sent earlier does not say what this command did.
            appends.write_ended(plug, cmd.status.is_ok(), epoch());
        }
        if plug.recovery == Recovery::Held {
            if plug.in_flight > 0 {
                return QueueStep::Nothing;
            }
            return shard.decide(i, start, epoch, late_at_device, aborted);
        }
        shard.next_in_order(i)
    }
}
