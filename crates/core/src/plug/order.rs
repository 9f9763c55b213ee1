//! Several writes of a zone in flight, on a device that keeps their order, and what becomes of them when one fails.
//!
//! A plug alone has one write in flight, and its `PLUGGED` bit says so. Where several may be, beside each plug stands a
//! `Track`, and the bit says more generally that *who comes parks, for somebody sees to it*: the zone is in a queue's line,
//! has as many writes in flight as it may, has another home, or is being recovered. It is clear while the next write may
//! be sent at once. So neither admitting nor parking knows of any of this, and a disk with one write in flight pays
//! nothing. Only `disk/ordered.rs` calls in here, on disks whose depth is more than one.
//!
//! * Writes of a zone are in flight on one queue, its *home*; that changes only when none is.
//! * After a failure nothing is sent. What failed is held; when nothing is in flight any more the zone is reported, and goes on
//!   from the write pointer that the device says ([`Shard::go_on`]).
//! * What is sent again is what provably is not on the medium: the write pointer is at or before its start. An append is
//!   placed anew, a positional write only ever goes where its client said.

use super::shard::{Merge, Shard};
use super::state::{NEED_WP, OFFLINE, PLUGGED, READONLY};
use super::{Kind, NONE};
use crate::bio::{Bio, Command, Op, Status, WritePointer};
use crate::planted::{Bug, planted};
use crate::unit::Sector;
use crate::zone::{Condition, ZoneInfo};

/// How often a zone goes on after a failure without any progress in between.
const MAX_ATTEMPTS: u8 = 3;

/// Beside a plug: 48 bytes.
#[derive(Debug, Default)]
pub(crate) struct Track {
    /// The queue that the writes in flight are on.
    home: u32,
    /// How far writes have succeeded since the zone was last without any in flight, in sectors.
    done: u32,
    /// Recoveries since a write last succeeded.
    attempts: u8,
    /// The number of the report that is on its way.
    asked: u32,
    /// What has failed and waits for the others.
    held: Vec<Held>,
}

/// A write that has failed.
#[derive(Debug)]
struct Held {
    /// It says how it failed. If the device was busy it is as if it had not been sent: it may still say how it failed before.
    bio: Box<Bio>,
    status: Status,
    /// Provably no data moved.
    kept: bool,
}

/// What has been sent of a zone that was in line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sent {
    /// Nothing: nobody waits, or they have to.
    Nothing,
    /// A command.
    One,
    /// A command, and the zone goes to the end of the line with more.
    More,
}

/// What follows the end of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Then {
    /// Nothing by this queue.
    Nothing,
    /// The zone gets in line with what is parked.
    InLine,
    /// The zone is reported, under this number.
    Report(u32),
}

impl Shard {
    /// From now on several writes of a zone may be in flight, or one: nothing is in flight.
    pub(crate) fn keep_tracks(&mut self, on: bool) {
        let n = if on { self.plugs.len() } else { 0 };
        self.tracks.resize_with(n, Track::default);
        self.tracks.shrink_to_fit();
    }

    /// Whether `queue` cannot send the next write of zone `i` now, whatever tags it has: who ends the last one sees to it.
    pub(crate) fn must_wait(&self, i: usize, queue: u32, depth: u16) -> bool {
        let (plug, track) = (&self.plugs[i], &self.tracks[i]);
        let elsewhere = plug.in_flight > 0 && track.home != queue;
        plug.recovering || plug.in_flight >= depth || elsewhere && !planted(Bug::HomeForgotten)
    }

    /// The zone leaves the line without a tag.
    pub(crate) fn leave_line(&mut self, i: usize) {
        self.plugs[i].in_line = false;
    }

    /// [`Shard::fill`] for a zone that was in the line of `queue`, of which `depth` writes may be in flight.
    pub(crate) fn fill_in_order(
        &mut self,
        i: usize,
        merge: Merge,
        cmd: &mut Command,
        queue: u32,
        depth: u16,
    ) -> Sent {
        self.leave_line(i);
        if self.must_wait(i, queue, depth) || !self.fill(i, merge, cmd) {
            return Sent::Nothing;
        }
        let (plug, track) = (&mut self.plugs[i], &mut self.tracks[i]);
        if plug.in_flight == 0 {
            track.done = 0;
        }
        plug.in_flight += 1;
        track.home = queue;
        let room = plug.in_flight < depth;
        if plug.parked > 0 && room {
            plug.get_in_line();
            return Sent::More;
        }
        if room {
            plug.state &= !PLUGGED;
        }
        Sent::One
    }

    /// Whether nothing of zone `i` is at the device but one command, and nothing has failed.
    pub(crate) fn is_alone(&self, i: usize) -> bool {
        let plug = &self.plugs[i];
        plug.in_flight == 1 && !plug.recovering && plug.state & (NEED_WP | READONLY | OFFLINE) == 0
    }

    /// A write command of zone `i`, which begins at `start`, has ended. BIOs that are to be given to their owners stay in
    /// the command, with what it says; `aborted` gets those of others, which say themselves how they failed if they were
    /// sent. `epoch` counts errors (E6).
    pub(crate) fn complete_in_order(
        &mut self,
        i: usize,
        cmd: &mut Command,
        start: Sector,
        epoch: &dyn Fn() -> u32,
        aborted: &mut Vec<Box<Bio>>,
    ) -> Then {
        let (plug, track) = (&mut self.plugs[i], &mut self.tracks[i]);
        debug_assert!(plug.in_flight > 0, "I4: a completion of an idle zone");
        plug.in_flight -= 1;
        // A reset came between (M4): nothing of it is tried again.
        let own = plug.generation == cmd.generation;
        if cmd.status.is_ok() {
            if own {
                let end = (cmd.sector.0 - start.0) as u32 + cmd.len_sectors;
                (track.done, track.attempts) = (track.done.max(end), 0);
            }
            // Some may have failed before.
            cmd.bios.iter_mut().for_each(|b| b.status = Status::Ok);
        } else if own && plug.state & (NEED_WP | READONLY | OFFLINE) == 0 {
            plug.recovering = true;
            plug.state |= PLUGGED;
            let (status, kept) = (cmd.status, cmd.write_pointer() == WritePointer::Kept);
            track.held.extend(cmd.bios.drain(..).map(|mut bio| {
                if status != Status::Busy {
                    bio.status = status;
                }
                Held { bio, status, kept }
            }));
        } else {
            if cmd.status == Status::Busy {
                // Nothing of it has happened, and nothing of it will.
                aborted.append(&mut cmd.bios);
            }
            let lost = cmd.write_pointer() == WritePointer::Unknown;
            if lost {
                plug.state |= NEED_WP;
                self.counters.lost += 1;
            }
            if plug.refused_for_good(cmd.status, epoch()) || lost {
                self.abort(i, aborted);
            }
        }
        let plug = &mut self.plugs[i];
        if plug.state & NEED_WP != 0 {
            // No report from before says what this one did.
            plug.error_epoch = epoch();
        }
        if plug.recovering {
            if plug.in_flight > 0 && !planted(Bug::RetryBeforeDrained) {
                return Then::Nothing;
            }
            return self.decide(i, start, epoch, aborted);
        }
        self.next_in_order(i)
    }

    /// What is next of a zone that is well.
    fn next_in_order(&mut self, i: usize) -> Then {
        let plug = &mut self.plugs[i];
        if plug.in_line {
            // Somebody has it in his line, and sees to it.
            Then::Nothing
        } else if plug.parked > 0 {
            plug.get_in_line();
            Then::InLine
        } else {
            plug.state &= !PLUGGED;
            Then::Nothing
        }
    }

    /// Nothing is in flight, and something has failed: is it worth a report?
    fn decide(
        &mut self,
        i: usize,
        start: Sector,
        epoch: &dyn Fn() -> u32,
        aborted: &mut Vec<Box<Bio>>,
    ) -> Then {
        let track = &mut self.tracks[i];
        track.held.sort_by_key(|h| h.bio.sector);
        let Some(head) = track.held.first() else { return self.next_in_order(i) };
        // Those behind it failed because of it; its own status says what happened.
        let status = head.status;
        // What nobody knows the outcome of may be carried out yet.
        let unknown = |h: &Held| matches!(h.status, Status::Timeout | Status::NoDevice);
        // W23: one that was busy is asked again, however often.
        let busy = status == Status::Busy;
        let again = busy || track.attempts < MAX_ATTEMPTS || planted(Bug::RetryUnbounded);
        if status.is_retryable() && !track.held.iter().any(unknown) && again {
            track.attempts = track.attempts.saturating_add(u8::from(!busy));
            track.asked = epoch();
            return Then::Report(track.asked);
        }
        self.give_up(i, start, false, epoch(), aborted);
        self.next_in_order(i)
    }

    /// What failed has failed, and what waits behind it with it (E1).
    /// `moved`: the write pointer is not even where the first of them was sent.
    fn give_up(
        &mut self,
        i: usize,
        start: Sector,
        moved: bool,
        epoch: u32,
        aborted: &mut Vec<Box<Bio>>,
    ) {
        let (plug, track) = (&mut self.plugs[i], &mut self.tracks[i]);
        let offset = |h: &Held| (h.bio.sector.0 - start.0) as u32;
        let head = track.held.first();
        // The first one did nothing, so the others were not at the write pointer.
        let idle = |h: &Held| h.kept || h.status == Status::UnalignedWrite;
        let kept = !moved && head.is_some_and(|h| h.kept && track.done <= offset(h));
        if let (Some(head), true) = (head, kept && track.held.iter().all(idle)) {
            plug.wp = offset(head);
        } else {
            plug.state |= NEED_WP;
            plug.error_epoch = epoch;
            self.counters.lost += 1;
        }
        for h in &track.held {
            plug.refused_for_good(h.status, epoch);
        }
        self.abort(i, aborted);
    }

    /// The report of a zone that is being recovered is back: it goes on from there. `mask`: of the write granularity.
    pub(crate) fn go_on(
        &mut self,
        i: usize,
        cmd: &Command,
        start: Sector,
        mask: u32,
        epoch: &dyn Fn() -> u32,
        aborted: &mut Vec<Box<Bio>>,
    ) -> Then {
        let (plug, track) = (&mut self.plugs[i], &mut self.tracks[i]);
        if !plug.recovering || track.asked != cmd.epoch {
            // A reset, a finish or a report of the client's has ended it.
            return Then::Nothing;
        }
        let info = cmd.report.first().filter(|z| cmd.status.is_ok() && z.start == start);
        // What is before the first failure was acknowledged. If it is not there something else has happened, a power cut
        // perhaps: that is the client's to look at, before anything is put in its place.
        let head = track.held.first().map_or(start, |h| h.bio.sector);
        let missing = |z: &&ZoneInfo| match z.cond {
            Condition::Empty => start < head,
            Condition::Full | Condition::ReadOnly | Condition::Offline => false,
            _ => z.wp < head,
        };
        let is_missing = info.as_ref().is_some_and(missing) && !planted(Bug::LossUnnoticed);
        let Some(info) = info.filter(|_| !is_missing) else {
            // What the device was too busy for has no other reason to fail.
            let why = if cmd.status.is_ok() { Status::Io } else { cmd.status };
            for h in track.held.iter_mut().filter(|h| h.bio.status.is_ok()) {
                h.bio.status = why;
            }
            self.give_up(i, start, is_missing, epoch(), aborted);
            return self.next_in_order(i);
        };
        plug.set_from(info);
        plug.error_epoch = cmd.epoch;
        self.counters.resynced += 1;
        let gone = matches!(info.cond, Condition::ReadOnly | Condition::Offline);
        if gone || plug.wp & mask != 0 {
            self.abort(i, aborted);
            return self.next_in_order(i);
        }
        self.place(i, start, aborted);
        self.next_in_order(i)
    }

    /// Walks what was sent and failed, then what waited, from the write pointer on: it goes out again, or fails.
    fn place(&mut self, i: usize, start: Sector, aborted: &mut Vec<Box<Bio>>) {
        let (plug, track) = (&mut self.plugs[i], &mut self.tracks[i]);
        let found = plug.wp;
        let mut waiting = Vec::new();
        let mut at = plug.head;
        while at != NONE {
            at = self.slots.take(at, &mut waiting);
        }
        (plug.head, plug.tail, plug.parked) = (NONE, NONE, 0);
        plug.recovering = false;
        plug.state |= PLUGGED;
        let held = std::mem::take(&mut track.held);
        if held.first().is_some_and(|h| h.bio.sector < start.plus(u64::from(found))) {
            track.attempts = 0;
        }
        let sent = held.into_iter().map(|h| (h.bio, h.status != Status::Busy));
        let mut place = found;
        let mut run = Vec::new();
        for (mut bio, sent) in sent.chain(waiting.into_iter().map(|b| (b, false))) {
            let offset = (bio.sector.0 - start.0) as u32;
            let append = bio.op == Op::ZoneAppend;
            let fits = u64::from(place) + u64::from(bio.len_sectors) <= self.capacity(i);
            // Past its start some of it may be there: a second copy would be one too many (E9).
            let absent = !sent || found <= offset;
            let there = append || offset == place || planted(Bug::PositionalPlacedAnew);
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

    /// Ends the recovery of zone `i`, if there is one: what was held goes to `aborted`.
    pub(super) fn end_recovery(&mut self, i: usize, aborted: &mut Vec<Box<Bio>>) {
        let plug = &mut self.plugs[i];
        let Some(track) = self.tracks.get_mut(i).filter(|_| plug.recovering) else { return };
        aborted.extend(track.held.drain(..).map(|h| h.bio));
        track.attempts = 0;
        plug.recovering = false;
        if plug.in_flight == 0 && !plug.in_line {
            plug.state &= !PLUGGED;
        }
    }
}
