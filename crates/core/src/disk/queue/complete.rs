//! A client's queue: the way up. Completions, what follows them, and deliveries.
//!
//! For each command: first the plug's state, then what it says comes next is put on its way, and only then do the
//! BIOs reach their owners (section 15.10 of the requirements; the original does it the other way round and
//! pays with B7, B32c and CODE-4).

use crate::bio::{Bio, Bios, Command, Flags, MIXED, NO_PARENT, Op, Status, Waits};
use crate::disk::dispatch::backlog::Work;
use crate::disk::queue::{DiskQueue, Lane};
use crate::disk::snapshot::Layout;
#[cfg(feature = "trace")]
use crate::disk::trace;
use crate::disk::{ORPHANS, Shared};
use crate::planted::{Bug, planted};
use crate::plug::Next;
use crate::sync::{Ordering, lock};
use crate::unit::{Nanos, Sector, ZoneNo};

impl DiskQueue {
    /// Does what there is to do, and appends the BIOs that have finished to `done`.
    ///
    /// All state is settled before a BIO is in `done`, and no lock is held: submit from there whatever you like.
    pub fn poll(&mut self, now: Nanos, done: &mut Bios) {
        if self.shared.state.0.load(Ordering::Acquire) != self.lane.seen {
            return self.poll_changed(now, done);
        }
        self.poll_seen(now, done);
    }

    #[cold]
    #[inline(never)]
    fn poll_changed(&mut self, now: Nanos, done: &mut Bios) {
        self.refresh(now);
        self.poll_seen(now, done);
    }

    /// A special layout has its own copy of the code, so that the ordinary one keeps its registers.
    #[inline(always)]
    fn poll_seen(&mut self, now: Nanos, done: &mut Bios) {
        if self.lane.special {
            self.poll_special(now, done);
        } else {
            self.poll_plain(now, done);
        }
    }

    #[inline(never)]
    fn poll_plain(&mut self, now: Nanos, done: &mut Bios) {
        self.poll_as::<false>(now, done);
    }

    #[cold]
    #[inline(never)]
    fn poll_special(&mut self, now: Nanos, done: &mut Bios) {
        self.poll_as::<true>(now, done);
    }

    /// `SPECIAL`: a scheduler, a single writer or several writes of a zone decide what is sent.
    #[inline(always)]
    fn poll_as<const SPECIAL: bool>(&mut self, now: Nanos, done: &mut Bios) {
        let DiskQueue { shared, layout, lane } = self;
        let before = done.len();
        lane.lower.poll_lowered(now, &mut lane.fin);
        while let Some(cmd) = lane.lower.pop(&mut lane.fin) {
            lane.finished::<SPECIAL>(shared, layout, cmd, done);
        }
        if SPECIAL {
            lane.line_up(shared, layout, now);
        }
        // One test for all three: at depth 1 there is none of them.
        let waiting = if SPECIAL { 0 } else { lane.backlog.ready.len() } | lane.intake.nr_ended();
        if waiting | lane.out.len() != 0 {
            if waiting != 0 {
                lane.look_after::<SPECIAL>(shared, layout, done);
            }
            if !lane.out.is_empty() {
                lane.lower.submit(now, &mut lane.out);
            }
        }
        if lane.mailbox.is_filled() {
            let mut bios = std::mem::take(&mut lane.scratch);
            lane.mailbox.collect(&mut bios);
            lane.deliver_own(&mut bios, done);
            lane.scratch = bios;
        }
        lane.intake.gave_back((done.len() - before) as u32);
    }

    /// Polls for an owner who is not here: what has finished is kept for the owner's next poll, and an armed owner is
    /// woken. Returns whether anything finished.
    pub fn poll_for_owner(&mut self, now: Nanos) -> bool {
        let mut done = Bios::new();
        self.poll(now, &mut done);
        let any = !done.is_empty();
        if any {
            self.lane.intake.keep(&mut done);
            self.lane.mailbox.wake();
        }
        any
    }

    /// Gives up the queue, as dropping it does: it takes nothing any more, and no freeze waits for it. With work in flight
    /// it becomes an orphan that other queues of the disk poll.
    pub fn close(&mut self) {
        if self.lane.is_closed() {
            return;
        }
        if !self.lane.holds_commands() && self.unregister() {
            return;
        }
        let lane = std::mem::replace(&mut self.lane, Lane::closed());
        if let Some(bell) = &lane.bell {
            bell.owner_leaves();
        }
        let orphan = DiskQueue { shared: self.shared.clone(), layout: self.layout.clone(), lane };
        lock(&self.shared.orphans).push(orphan);
        if !planted(Bug::OrphanForgotten) {
            self.shared.state.0.fetch_or(ORPHANS, Ordering::AcqRel);
        }
        // Somebody who sleeps may be the only one left to poll it.
        if !planted(Bug::OrphanWakesNobody) {
            self.shared.wake_all();
        }
    }

    /// False: another queue has just left something to this one.
    fn unregister(&mut self) -> bool {
        let id = self.lane.id;
        debug_assert!(self.lane.intake.nr_ended() == 0, "a rejected BIO is outstanding");
        let Some(left) = self.lane.mailbox.close() else { return false };
        for mut bio in left {
            bio.in_flight = false;
        }
        self.lane.id = Lane::CLOSED;
        self.shared.past.add(&self.lane.mailbox.counts.0);
        lock(&self.shared.queues)[id as usize] = None;
        let depth = self.lane.intake.close();
        self.shared.depths.fetch_sub(u64::from(depth), Ordering::Relaxed);
        self.shared.bump();
        if self.shared.state.0.load(Ordering::Acquire) & ORPHANS != 0 {
            // Somebody who sleeps may be the only one left to poll them.
            self.shared.wake_all();
        }
        true
    }
}

impl Lane {
    #[inline(always)]
    fn finished<const SPECIAL: bool>(
        &mut self,
        shared: &Shared,
        layout: &Layout,
        mut cmd: Box<Command>,
        done: &mut Bios,
    ) {
        if SPECIAL && layout.zone_depth > 1 && cmd.waits == Waits::Plug {
            return self.finished_in_order(shared, layout, cmd, done);
        }
        let again = planted(Bug::AppendRetried)
            && cmd.op == Op::ZoneAppend
            && matches!(cmd.status, Status::Io | Status::Medium);
        if cmd.status == Status::Busy && !planted(Bug::BusyNotRetried) || again {
            // W23: the same command again; nothing else of the zone was sent meanwhile.
            cmd.status = Status::Ok;
            return self.out.push_back(cmd);
        }
        if cmd.waits != Waits::Plug {
            if cmd.op == Op::Read && cmd.status.is_ok() {
                self.deliver(shared, &mut cmd, done);
                return self.tags.put(cmd);
            }
            return self.finished_other(shared, layout, cmd, done);
        }
        #[cfg(feature = "trace")]
        if cmd.status.is_ok() {
            trace::appends(layout, &cmd.bios);
        }
        let zone = ZoneNo(cmd.zone);
        let (mut guard, i) = shared.shard(zone);
        let (mut next, mut epoch) = (Next::Idle, 0);
        if cmd.status.is_ok() && guard.plugs[i].parked() == 0 {
            if planted(Bug::UnlockBeforeIdle) {
                drop(guard);
                guard = shared.shard(zone).0;
            }
            guard.plugs[i].unlock_zone();
        } else {
            if !cmd.status.is_ok() {
                epoch = shared.epoch.fetch_add(1, Ordering::AcqRel).wrapping_add(1);
            }
            let offset = (cmd.sector.0 - layout.geometry.zone_start(zone).0) as u32;
            next = guard.complete(i, &cmd, offset, epoch, &mut self.aborted);
        }
        if !cmd.status.is_ok() {
            self.settle_status(layout, &mut cmd);
            if next == Next::Lost {
                let asks = Self::begin_recovery(shared, layout, &mut guard, i, &cmd, epoch);
                if asks {
                    drop(guard);
                    return self.ask_for_write_pointer(shared, layout, cmd, epoch, done);
                }
                next = Next::Aborted;
            } else {
                Self::note_given_up(shared, &mut guard, i, &cmd);
            }
        }
        if SPECIAL {
            if next == Next::Issue {
                guard.plugs[i].get_in_line();
            }
            drop(guard);
            return self.finished_special(shared, layout, next, cmd, done);
        }
        if next == Next::Issue && !self.backlog.ready.is_empty() {
            // Others wait for a tag, perhaps reads: a zone that is written without end keeps none from them (C3). It goes
            // to the end of the line, still plugged.
            guard.plugs[i].get_in_line();
            drop(guard);
            self.backlog.zone(zone);
            self.deliver(shared, &mut cmd, done);
            return self.tags.put(cmd);
        }
        if next == Next::Issue {
            // The tag goes on to the next writes of the zone: they leave with the lock still warm.
            let owner = cmd.owner;
            std::mem::swap(&mut cmd.bios, &mut self.scratch);
            std::mem::swap(&mut cmd.owners, &mut self.owners);
            guard.fill(i, layout.merge, &mut cmd);
            drop(guard);
            #[cfg(feature = "trace")]
            trace::issued(&cmd);
            let mut bios = std::mem::take(&mut self.scratch);
            let owners = std::mem::take(&mut self.owners);
            self.hand_over(shared, owner, &owners, &mut bios, done);
            self.scratch = bios;
            self.owners = owners;
            return self.send_write(cmd);
        }
        drop(guard);
        if planted(Bug::OwnReport)
            && next == Next::Aborted
            && let Some(mut report) = self.own_report.take()
        {
            report.set(Op::ReportZones, Sector(0), 0, Flags::NONE);
            report.report.clear();
            report.report_max = 1;
            self.out.push_back(report);
        }
        if next == Next::Aborted {
            self.abort_waiting(shared, layout, Status::AbortedBehind, done);
        }
        let failed = !cmd.status.is_ok();
        self.deliver(shared, &mut cmd, done);
        if !(failed && planted(Bug::TagLost)) {
            self.tags.put(cmd);
        }
    }

    /// One result for all BIOs of a command; after an error none reports a sector.
    pub(crate) fn settle_status(&mut self, layout: &Layout, cmd: &mut Command) {
        if cmd.status.is_ok() {
            return;
        }
        let skip = usize::from(planted(Bug::PartlyOk) && cmd.bios.len() > 1);
        for bio in cmd.bios.iter_mut().skip(skip) {
            bio.status = cmd.status;
            Self::forget_sector(layout, bio);
        }
    }

    fn forget_sector(layout: &Layout, bio: &mut Bio) {
        if bio.op == Op::ZoneAppend && !planted(Bug::FailedAppendHasSector) {
            bio.sector = layout.geometry.zone_start(layout.geometry.zone_of(bio.sector).0);
        }
    }

    /// Completes what the abort list holds.
    #[cold]
    pub(crate) fn abort_waiting(
        &mut self,
        shared: &Shared,
        layout: &Layout,
        status: Status,
        done: &mut Bios,
    ) {
        let mut bios = std::mem::take(&mut self.aborted);
        if planted(Bug::AbortForgotten)
            && let Some(mut bio) = bios.pop()
        {
            bio.in_flight = false;
        }
        for bio in &mut bios {
            if planted(Bug::AbortAsOk) {
                bio.status = Status::Ok;
            } else if bio.status.is_ok() {
                // One that was sent and failed says so itself.
                bio.status = status;
            }
            Self::forget_sector(layout, bio);
        }
        if layout.gated && !bios.is_empty() {
            Self::sweep(shared);
        }
        self.sort_out(shared, &mut bios, done);
        self.aborted = bios;
    }

    /// Delivers the BIOs of a command, which keeps its list for the next time.
    #[inline]
    pub(crate) fn deliver(&mut self, shared: &Shared, cmd: &mut Command, done: &mut Bios) {
        if cmd.owner == self.id {
            if cmd.bios.len() == 1 {
                if let Some(bio) = cmd.bios.pop() {
                    self.give_back(bio, done);
                }
                return;
            }
            return self.deliver_own(&mut cmd.bios, done);
        }
        let owners = std::mem::take(&mut cmd.owners);
        let mut bios = std::mem::take(&mut cmd.bios);
        self.hand_over(shared, cmd.owner, &owners, &mut bios, done);
        cmd.bios = bios;
        cmd.owners = owners;
    }

    #[inline]
    fn hand_over(
        &mut self,
        shared: &Shared,
        owner: u32,
        owners: &[(u32, u32)],
        bios: &mut Vec<Box<Bio>>,
        done: &mut Bios,
    ) {
        if owner == self.id {
            self.deliver_own(bios, done);
        } else if owner != MIXED {
            self.deliver_to(shared, owner, bios.drain(..));
        } else {
            self.hand_over_mixed(shared, owners, bios, done);
        }
    }

    fn hand_over_mixed(
        &mut self,
        shared: &Shared,
        owners: &[(u32, u32)],
        bios: &mut Vec<Box<Bio>>,
        done: &mut Bios,
    ) {
        let mut all = bios.drain(..);
        for &(owner, n) in owners {
            let run = all.by_ref().take(n as usize);
            if owner == self.id {
                for bio in run {
                    self.give_back(bio, done);
                }
            } else {
                self.deliver_to(shared, owner, run);
            }
        }
        debug_assert!(all.next().is_none(), "the owners of a command cover its BIOs");
    }

    /// Delivers BIOs of any owners.
    #[cold]
    pub(crate) fn sort_out(&mut self, shared: &Shared, bios: &mut Vec<Box<Bio>>, done: &mut Bios) {
        for bio in bios.drain(..) {
            if bio.queue == self.id || planted(Bug::AbortToWrongQueue) {
                self.give_back(bio, done);
            } else {
                self.deliver_to(shared, bio.queue, std::iter::once(bio));
            }
        }
    }

    fn deliver_to(&mut self, shared: &Shared, queue: u32, bios: impl Iterator<Item = Box<Bio>>) {
        let mut rest = match self.peers.get(queue as usize).and_then(Option::as_ref) {
            Some(peer) => match peer.push(bios) {
                Ok(()) => return,
                Err(rest) => rest,
            },
            None => bios.collect(),
        };
        // A queue that was opened after this one last looked. `peers` itself stays as it is until the next call: by it the tags
        // of commands that this call has delivered go back to their queues (`tags_back`), and once delivered a command keeps its
        // queue no longer from closing and leaving its id to another.
        let peer = lock(&shared.queues).get(queue as usize).cloned().flatten();
        if let Some(peer) = peer {
            match peer.push(rest.drain(..)) {
                Ok(()) => return,
                Err(still) => rest = still,
            }
        }
        debug_assert!(rest.is_empty(), "a queue is open until its last BIO has come back");
        for mut bio in rest {
            bio.in_flight = false;
        }
    }

    #[inline]
    pub(crate) fn deliver_own(&mut self, bios: &mut Vec<Box<Bio>>, done: &mut Bios) {
        for bio in bios.drain(..) {
            self.give_back(bio, done);
        }
    }

    #[inline]
    pub(crate) fn give_back(&mut self, mut bio: Box<Bio>, done: &mut Bios) {
        bio.in_flight = false;
        if bio.parent == NO_PARENT {
            done.push_back(bio);
        } else {
            self.part_done(bio, done);
        }
    }

    /// What is rare at the end of a poll: somebody waits for a tag, or BIOs have finished without the device.
    #[inline(never)]
    fn look_after<const SPECIAL: bool>(
        &mut self,
        shared: &Shared,
        layout: &Layout,
        done: &mut Bios,
    ) {
        if !SPECIAL && !self.backlog.ready.is_empty() {
            self.send_ready(shared, layout);
        }
        let mut ended = self.intake.take_ended();
        self.deliver_own(&mut ended, done);
        self.intake.put_list(ended);
    }

    /// Gives tags that have become free to those who wait, in order.
    pub(crate) fn send_ready(&mut self, shared: &Shared, layout: &Layout) {
        while let Some(mut cmd) = self.tags.take() {
            match self.backlog.ready.pop_front() {
                Some(Work::Bio(bio)) => self.launch(layout, bio, cmd),
                Some(Work::Zone(zone)) => {
                    let (mut shard, i) = shared.shard(zone);
                    if shard.fill_from_line(i, layout.merge, &mut cmd) {
                        cmd.zone = zone.0;
                        drop(shard);
                        #[cfg(feature = "trace")]
                        trace::issued(&cmd);
                        self.send_write(cmd);
                    } else {
                        // A reset took them all.
                        self.tags.put(cmd);
                    }
                }
                None => {
                    self.tags.put(cmd);
                    break;
                }
            }
        }
    }
}
