//! Recovery of a zone after a failed write: the layer reports the zone, and trusts only that report (E12, E7).
//!
//! Two paths lead here. Where several writes of a zone are in flight, `pipelined.rs` holds what failed and asks when the rest
//! has drained. Where one is in flight, its client has its error, and the writes behind it were aborted (E1);
//! [`Shard::ask`] begins, if the attribute `zone_recovery` is `auto`. From there on both are the same:
//!
//! * While the report is on its way the plug is busy, and nothing is sent. What is admitted parks: an append, and a
//!   positional write at the place of the one that failed, where a client that tries again wants it.
//! * The report has a number. A reset, a finish, a native append or a report of the client ends the recovery; the answer to
//!   the old number is not believed (E6). While a reset or finish is on its way, no answer is: the device may have carried it
//!   out before, and what failed would go out again into a zone that was emptied. The zone is stale until the reset
//!   succeeds, or its client looks.
//! * A write pointer before what was acknowledged leaves the zone stale: that is for the client to look at. So do a report
//!   that fails, and a zone that makes no progress ([`MAX_ATTEMPTS`]).
//! * What parked is placed from the write pointer that was found: an append anew, a positional write only where its client
//!   wants it. The rest is aborted.
//!
//! Plain state, as all of this room: `disk/recovery.rs` sends the report.

use super::shard::Shard;
use super::state::{CONVENTIONAL, NEED_WP, OFFLINE, PLUGGED, READONLY, RESYNC};
use super::track::{MAX_ATTEMPTS, Then, Track};
use super::{Kind, NONE, Recovery};
use crate::bio::{Bio, Command, Op, Status};
use crate::unit::Sector;
use crate::zone::{Condition, ZoneInfo, ZoneType};

impl Shard {
    /// The only write of zone `i` failed, and began at `offset`; it has made the write pointer unknown, and what waited behind
    /// it was aborted. Whether the layer reports the zone now, under the number `epoch`, which is that of the failure. A
    /// zone whose write pointer a native append or a reset in doubt has made unknown before is not asked for: those may be
    /// at the device.
    ///
    /// `late` joins the tickets of two writes that were given up, and answers which of them are still at the device. While
    /// one is, the zone is not at rest: whatever a report says, the write may be carried out the next moment. So a timeout
    /// and a dead queue are left to the client, and so is every failure after them until the late write has come back.
    pub(crate) fn ask(
        &mut self,
        i: usize,
        cmd: &Command,
        offset: u32,
        epoch: u32,
        auto: bool,
        late: impl FnOnce(u32, u32) -> u32,
    ) -> bool {
        let unknown = matches!(cmd.status, Status::Timeout | Status::NoDevice);
        let ticket = cmd.bios.first().map_or(0, |b| b.late);
        if !auto && ticket == 0 {
            return false;
        }
        self.given_up(i, ticket, late);
        let (plug, track) = (&mut self.plugs[i], &mut self.tracks[i]);
        let rests = track.late == 0 && !unknown;
        if !auto || !rests || plug.state & (CONVENTIONAL | READONLY | OFFLINE) != 0 {
            return false;
        }
        // After a reset in between (M4) nothing has been acknowledged.
        let own = plug.generation == cmd.generation;
        let done = if own { offset } else { 0 };
        if track.generation != plug.generation || done > track.found {
            track.attempts = 0;
        }
        if track.attempts >= MAX_ATTEMPTS {
            track.attempts = 0;
            return false;
        }
        track.attempts = track.attempts.saturating_add(1);
        (track.done, track.generation, track.asked) = (done, plug.generation, epoch);
        // What was reserved behind it has been aborted.
        plug.wp = done;
        plug.state = plug.state & !NEED_WP | PLUGGED;
        plug.recovery = Recovery::Asked;
        true
    }

    /// A write or native append of zone `i` was given up under `ticket`, 0: none was. `late`: as in [`Shard::ask`].
    pub(crate) fn given_up(&mut self, i: usize, ticket: u32, late: impl FnOnce(u32, u32) -> u32) {
        if self.tracks.len() <= i {
            self.tracks.resize_with(self.plugs.len(), Track::default);
        }
        let track = &mut self.tracks[i];
        track.late = late(track.late, ticket);
    }

    /// The report of a zone that is being recovered is back: it goes on from there. `mask`: of the write granularity.
    /// `moves`: whether a reset or finish of the zone may be carried out at any moment, or has been.
    #[expect(
        clippy::too_many_arguments,
        reason = "the zone, the answer, and what only the disk knows"
    )]
    pub(crate) fn go_on(
        &mut self,
        i: usize,
        cmd: &Command,
        start: Sector,
        mask: u32,
        moves: &dyn Fn() -> bool,
        epoch: &dyn Fn() -> u32,
        aborted: &mut Vec<Box<Bio>>,
    ) -> Then {
        let plug = &self.plugs[i];
        let current = self.tracks.get(i).is_some_and(|t| t.asked == cmd.epoch);
        // While a failure waits for the writes behind it nothing has been asked for it: the number is still that of the last one.
        let drains = plug.in_flight > 0;
        let ended = plug.recovery == Recovery::None || drains || !current;
        let (Some(track), false) = (self.tracks.get_mut(i), ended) else {
            // A reset, a finish or a report of the client's has ended it.
            return Then::Nothing;
        };
        // One that is not of this zone, or not of a sequential one (V2), says nothing.
        let sequential =
            |z: &ZoneInfo| z.zone_type == ZoneType::SeqWriteRequired && z.cond != Condition::NotWp;
        let info = cmd.report.first();
        let info = info.filter(|z| cmd.status.is_ok() && z.start == start && sequential(z));
        // What is before the first failure was acknowledged. If it is not there something else has happened, a power cut
        // perhaps: that is the client's to look at, before anything is put in its place.
        let head = track.held.first().map_or(start.plus(u64::from(track.done)), |h| h.bio.sector);
        let missing = |z: &&ZoneInfo| match z.cond {
            Condition::Empty => start < head,
            Condition::Full | Condition::ReadOnly | Condition::Offline => false,
            _ => z.wp < head,
        };
        // The answer may be that of the reset or finish, whose completion ends this recovery, or that of before it.
        let moves = moves();
        let is_missing = info.as_ref().is_some_and(missing) && !moves;
        let Some(info) = info.filter(|_| !is_missing && !moves) else {
            // What the device was too busy for has no other reason to fail.
            let why = match cmd.status {
                _ if moves => Status::AbortedByManagement,
                Status::Ok => Status::Io,
                status => status,
            };
            for h in track.held.iter_mut().filter(|h| h.bio.status.is_ok()) {
                h.bio.status = why;
            }
            self.counters.missing += u64::from(is_missing);
            // Where one write is in flight nothing has happened since its failure: a report of the client's that is on its way
            // may say more.
            let asked = plug.recovery == Recovery::Asked;
            let epoch = if asked { track.asked } else { epoch() };
            self.give_up(i, start, is_missing || moves, epoch, aborted);
            return self.next_in_order(i);
        };
        self.settle(i, info, cmd.epoch, head, mask, aborted)
    }

    /// Takes a client's report of a zone, sent at error epoch `epoch`, while the layer's own report of that zone is on
    /// its way. If the client's report was sent after the failure, it ends the recovery in place of the layer's report:
    /// the client may write at once where it says. `None`: the report does not end the recovery. `moves`: as in
    /// [`Shard::go_on`].
    pub(crate) fn reported_meanwhile(
        &mut self,
        i: usize,
        info: &ZoneInfo,
        epoch: u32,
        mask: u32,
        moves: &dyn Fn() -> bool,
        aborted: &mut Vec<Box<Bio>>,
    ) -> Option<Then> {
        if self.plugs[i].recovery != Recovery::Asked {
            return None;
        }
        let newer = epoch.wrapping_sub(self.tracks[i].asked) as i32 >= 0;
        let gone = matches!(info.cond, Condition::ReadOnly | Condition::Offline);
        if gone || !newer {
            return None;
        }
        let first = aborted.len();
        if moves() {
            // Its client knows of the reset; what waits is not sent to where it may not be any more.
            self.abort(i, aborted);
        }
        let then = self.settle(i, info, epoch, info.start, mask, aborted);
        // A client that looks begins anew.
        self.tracks[i].attempts = 0;
        for bio in aborted.iter_mut().skip(first).filter(|b| b.status.is_ok()) {
            bio.status = Status::AbortedBehind;
        }
        Some(then)
    }

    /// The write pointer of zone `i` is where `info` says, which is believed. `head`: where the first failure began.
    fn settle(
        &mut self,
        i: usize,
        info: &ZoneInfo,
        epoch: u32,
        head: Sector,
        mask: u32,
        aborted: &mut Vec<Box<Bio>>,
    ) -> Then {
        let (plug, track) = (&mut self.plugs[i], &mut self.tracks[i]);
        // A resync that the client has sent meanwhile has its answer coming (E10).
        let resync = plug.state & RESYNC;
        plug.set_from(info);
        plug.state |= resync;
        if resync == 0 {
            plug.error_epoch = epoch;
        }
        track.found = plug.wp;
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

    /// Walks what was sent and failed, then what waited, from the write pointer on: it goes out again, or fails.
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
            let offset = (bio.sector.0 - start.0) as u32;
            let append = bio.op == Op::ZoneAppend;
            let fits = u64::from(place) + u64::from(bio.len_sectors) <= self.capacity(i);
            // Past its start some of it may be there: a second copy would be one too many (E9).
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

    /// Ends the recovery of zone `i`, if there is one: what was held goes to `aborted`.
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
