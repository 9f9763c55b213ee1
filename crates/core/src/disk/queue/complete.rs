//! A client's queue, on the way up: completions, what follows them, and deliveries.
//!
//! Each command takes three steps. The plug's state is updated first; then the next command of the zone is put on its
//! way; only then do the BIOs reach their owners. So an owner that is told of a completion never finds the plug in an
//! older state (CODE-4).

use super::handle::DiskQueue;
use crate::bio::{Bios, Command, Op, Status, Waiter};
use crate::disk::queue_state::{QueueState, call_duties};
use crate::disk::shared::Shared;
use crate::disk::snapshot::Layout;
use crate::disk::trace;
use crate::plug::{AfterWrite, Shard};
use crate::sync::{MutexGuard, Ordering};
use crate::unit::{Nanos, ZoneNo};

/// A plug whose write has ended, and what follows.
#[derive(Debug, Clone, Copy)]
pub(super) struct EndedWrite {
    /// The plug's place in its shard.
    pub(super) plug: usize,
    pub(super) next: AfterWrite,
}

impl DiskQueue {
    /// Does the work of the queue, and appends the BIOs that have finished to `done`.
    ///
    /// All state is up to date before a BIO is in `done`, and no lock is held, so the caller may submit any BIO next.
    pub fn poll(&mut self, now: Nanos, done: &mut Bios) {
        if self.shared.state.0.load(Ordering::Acquire) != self.state.seen {
            return self.poll_changed(now, done);
        }
        self.poll_seen(now, done);
    }

    #[cold]
    #[inline(never)]
    fn poll_changed(&mut self, now: Nanos, done: &mut Bios) {
        self.catch_up(now);
        self.poll_seen(now, done);
    }

    /// Polls a queue that has seen the latest state. Arbitrated disks (see [`Layout::arbitrated`]) have their own
    /// copy of the code, so that the ordinary copy keeps its registers.
    #[inline(always)]
    fn poll_seen(&mut self, now: Nanos, done: &mut Bios) {
        if self.state.duties & call_duties::ARBITRATED != 0 {
            self.poll_arbitrated(now, done);
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
    fn poll_arbitrated(&mut self, now: Nanos, done: &mut Bios) {
        self.poll_as::<true>(now, done);
    }

    /// Polls as one of the two copies. `ARBITRATED` is the value of [`Layout::arbitrated`].
    #[inline(always)]
    fn poll_as<const ARBITRATED: bool>(&mut self, now: Nanos, done: &mut Bios) {
        let DiskQueue { shared, layout, state } = self;
        let before = done.len();
        state.lower.poll_lowered(now, &mut state.fin);
        while let Some(cmd) = state.lower.pop(&mut state.fin) {
            state.finished::<ARBITRATED>(shared, layout, cmd, done);
        }
        if ARBITRATED {
            state.dispatch(shared, layout, now);
        }
        // One test for three lists. With one BIO in flight all of them are empty.
        let waiting =
            if ARBITRATED { 0 } else { state.backlog.ready.len() } | state.intake.nr_ended();
        if waiting | state.out.len() != 0 {
            if waiting != 0 {
                state.drain_backlog::<ARBITRATED>(shared, layout, done);
            }
            if !state.out.is_empty() {
                state.lower.submit(now, &mut state.out);
            }
        }
        if state.mailbox.is_filled() {
            let mut bios = std::mem::take(&mut state.spare_bios);
            state.mailbox.collect(&mut bios);
            state.deliver_own(&mut bios, done);
            state.spare_bios = bios;
        }
        state.intake.gave_back((done.len() - before) as u32);
    }
}

impl QueueState {
    #[inline(always)]
    fn finished<const ARBITRATED: bool>(
        &mut self,
        shared: &Shared,
        layout: &Layout,
        mut cmd: Box<Command>,
        done: &mut Bios,
    ) {
        trace::complete(&cmd);
        if ARBITRATED && layout.zone_depth > 1 && cmd.waiter == Waiter::Plug {
            return self.finished_in_order(shared, layout, cmd, done);
        }
        if cmd.status == Status::Busy {
            // Sends the same command again. No other write of the zone was sent meanwhile (W23); a native append may have
            // been, and may have failed. The device then judges the write.
            cmd.status = Status::Ok;
            return self.send(cmd);
        }
        if cmd.waiter != Waiter::Plug {
            // The test covers more than the operation, because a faulty device may have changed it.
            let plain = cmd.waiter == Waiter::Client
                && matches!(cmd.op, Op::Read | Op::Write | Op::WriteZeroes);
            if plain && cmd.status.is_ok() {
                // The success of a read, or of a write that no plug orders, changes nothing but its BIOs.
                debug_assert!(self.aborted.is_empty(), "code that aborts BIOs also completes them");
                self.deliver(shared, &mut cmd, done);
                return self.tags.put(cmd);
            }
            return self.finished_other(shared, layout, cmd, done);
        }
        if !cmd.status.is_ok() {
            return self.write_failed::<ARBITRATED>(shared, layout, cmd, done);
        }
        let undisturbed = if ARBITRATED {
            if layout.passes_scheduler && self.tags.nr_out() == 1 {
                return self.finished_alone(shared, layout, cmd, done);
            }
            layout.short_turns && self.end_short_turn(shared, layout, &cmd)
        } else {
            layout.words.complete(shared.place(ZoneNo(cmd.zone)))
        };
        if undisturbed {
            self.deliver(shared, &mut cmd, done);
            return self.tags.put(cmd);
        }
        self.finished_locked::<ARBITRATED>(shared, layout, cmd, done);
    }

    /// Handles the success of a plugged write under the lock of the zone's shard, because other writes may wait.
    #[inline(never)]
    fn finished_locked<const ARBITRATED: bool>(
        &mut self,
        shared: &Shared,
        layout: &Layout,
        cmd: Box<Command>,
        done: &mut Bios,
    ) {
        let (guard, ended) = self.next_of(shared, ZoneNo(cmd.zone));
        self.follow_up::<ARBITRATED>(shared, layout, guard, ended, cmd, done);
    }

    /// Locks the shard of a zone whose write has succeeded. Returns the zone's plug, and what follows.
    #[inline(always)]
    pub(super) fn next_of<'s>(
        &mut self,
        shared: &'s Shared,
        zone: ZoneNo,
    ) -> (MutexGuard<'s, Shard>, EndedWrite) {
        let (mut guard, i) = shared.shard_of(zone);
        let next = guard.next(i);
        if next == AfterWrite::Idle && guard.plugs[i].awaits_report() {
            self.written_before_report(shared, &mut guard, i, zone);
        }
        (guard, EndedWrite { plug: i, next })
    }

    /// Handles the success of a write of plug `i` whose zone awaits a report.
    #[cold]
    #[inline(never)]
    fn written_before_report(
        &mut self,
        shared: &Shared,
        shard: &mut Shard,
        i: usize,
        zone: ZoneNo,
    ) {
        let epoch = shared.epoch.fetch_add(1, Ordering::AcqRel).wrapping_add(1);
        self.change(shared, shard, i, |_, plug| {
            plug.written_before_report(epoch);
            Self::learn_wp_from_appends(shared, plug, zone);
        });
    }

    /// Handles the end of a plugged write that failed, on disks with one write of a zone in flight.
    #[cold]
    #[inline(never)]
    fn write_failed<const ARBITRATED: bool>(
        &mut self,
        shared: &Shared,
        layout: &Layout,
        mut cmd: Box<Command>,
        done: &mut Bios,
    ) {
        let mut wake = crate::disk::events::DeferredWake::default();
        let zone = ZoneNo(cmd.zone);
        let (mut guard, i) = shared.shard_of(zone);
        let epoch = shared.epoch.fetch_add(1, Ordering::AcqRel).wrapping_add(1);
        // The subtraction may wrap around: a faulty device may have changed the sector.
        let offset = cmd.sector.0.wrapping_sub(layout.geometry.zone_start(zone).0) as u32;
        let ((mut next, asks), _) = self.change(shared, &mut guard, i, |state, plug| {
            let next = plug.complete(&cmd, offset, epoch, &mut state.aborted);
            shared.events.failed(&mut wake, layout, &cmd, state.aborted.len());
            state.give_status(layout, &mut cmd);
            let lost = next == AfterWrite::Lost;
            if !lost {
                Self::note_given_up(shared, plug, i, &cmd);
                Self::learn_wp_from_appends(shared, plug, zone);
            }
            (next, lost && Self::begin_recovery(shared, layout, plug, &cmd, epoch))
        });
        if asks {
            shared.events.doubtful(zone);
            drop(guard);
            return self.ask_for_write_pointer(shared, layout, cmd, epoch, done);
        }
        if next == AfterWrite::Lost {
            shared.events.stale(&mut wake, layout, zone, cmd.status);
            next = AfterWrite::Aborted;
        }
        let ended = EndedWrite { plug: i, next };
        self.follow_up::<ARBITRATED>(shared, layout, guard, ended, cmd, done);
    }

    /// Handles what follows the end of `cmd`, a write of a plug of the shard: sends the writes that wait, or gives
    /// the plug back. Then delivers the BIOs, those that the plug has aborted first.
    #[inline(always)]
    pub(super) fn follow_up<const ARBITRATED: bool>(
        &mut self,
        shared: &Shared,
        layout: &Layout,
        mut guard: MutexGuard<'_, Shard>,
        ended: EndedWrite,
        mut cmd: Box<Command>,
        done: &mut Bios,
    ) {
        let EndedWrite { plug: i, next } = ended;
        if ARBITRATED {
            if next == AfterWrite::Issue {
                guard.plugs[i].get_in_line();
            }
            drop(guard);
            return self.finished_arbitrated(shared, layout, next, cmd, done);
        }
        if next == AfterWrite::Issue {
            return self.send_next(shared, layout, guard, i, cmd, done);
        }
        guard.unlock_plug(i);
        drop(guard);
        if next == AfterWrite::Aborted {
            self.abort_waiting(shared, layout, Status::AbortedBehind, done);
        }
        self.deliver(shared, &mut cmd, done);
        self.tags.put(cmd);
    }

    /// Sends the writes that wait in plug `i` of the shard, with the tag of the write that has ended, and delivers
    /// that write's BIOs.
    #[inline(always)]
    fn send_next(
        &mut self,
        shared: &Shared,
        layout: &Layout,
        mut guard: MutexGuard<'_, Shard>,
        i: usize,
        mut cmd: Box<Command>,
        done: &mut Bios,
    ) {
        if !self.backlog.ready.is_empty() {
            // Others wait for a tag, perhaps reads. A zone that is written without a pause must not keep tags from
            // them (C3), so it goes to the end of the line. Its plug stays busy.
            guard.plugs[i].get_in_line();
            drop(guard);
            self.backlog.push_zone(ZoneNo(cmd.zone));
            self.deliver(shared, &mut cmd, done);
            return self.tags.put(cmd);
        }
        // The tag is used for the next writes of the zone at once, while the lock is still held.
        let own = if cmd.owner == self.id && cmd.bios.len() == 1 { cmd.bios.pop() } else { None };
        let Some(own) = own else {
            return self.send_next_of_all(shared, layout, guard, i, cmd, done);
        };
        guard.fill(i, layout.merge, &mut cmd);
        guard.unlock_plug(i);
        drop(guard);
        trace::issued(&cmd);
        self.give_back(own, done);
        self.send_write(cmd);
    }

    /// Like [`QueueState::send_next`], after a command of any number of BIOs of any owners.
    #[inline(never)]
    fn send_next_of_all(
        &mut self,
        shared: &Shared,
        layout: &Layout,
        mut guard: MutexGuard<'_, Shard>,
        i: usize,
        mut cmd: Box<Command>,
        done: &mut Bios,
    ) {
        let owner = cmd.owner;
        std::mem::swap(&mut cmd.bios, &mut self.spare_bios);
        std::mem::swap(&mut cmd.owners, &mut self.spare_owners);
        guard.fill(i, layout.merge, &mut cmd);
        guard.unlock_plug(i);
        drop(guard);
        trace::issued(&cmd);
        let mut bios = std::mem::take(&mut self.spare_bios);
        let owners = std::mem::take(&mut self.spare_owners);
        self.hand_over(shared, owner, &owners, &mut bios, done);
        self.spare_bios = bios;
        self.spare_owners = owners;
        self.send_write(cmd);
    }

    /// The rare work at the end of a poll: sends work that waited for a tag, and delivers BIOs that have finished
    /// without the device.
    #[inline(never)]
    fn drain_backlog<const ARBITRATED: bool>(
        &mut self,
        shared: &Shared,
        layout: &Layout,
        done: &mut Bios,
    ) {
        if !ARBITRATED && !self.backlog.ready.is_empty() {
            self.send_ready(shared, layout);
        }
        let mut ended = self.intake.take_ended();
        self.deliver_own(&mut ended, done);
        self.intake.put_list(ended);
    }
}
