//! Early writes on disks with an order window: writes that are held, admitted when their turn comes, or refused when
//! their time is over.
//!
//! `plug/window.rs` decides; this file takes the locks and provides the time. All of it is off the usual path: a
//! write comes here only when its plug refuses it, and a call looks at the window only while something is held.

use super::handle::DiskQueue;
use super::write::Run;
use crate::bio::{Bio, Bios, Flags, Op, Status};
use crate::disk::order_window::{NOTHING_DUE, PAUSED, WindowGuard};
use crate::disk::queue_state::{QueueState, call_duties};
use crate::disk::shared::Shared;
use crate::disk::snapshot::Layout;
use crate::disk::state::{self, EARLY};
use crate::disk::trace;
use crate::plug::{Admit, AdmittedEarly, EarlyWrite, Plug, PlugChange, Shard};
use crate::sync::{MutexGuard, Ordering, lock};
use crate::unit::{Nanos, ZoneNo};

impl QueueState {
    /// Handles a refusal of `self.run` by plug `i` of the shard, with `status`. If the plug refuses everything
    /// because its zone has early writes, admits the run and the early writes that follow it. Holds a single BIO that
    /// comes early.
    #[cold]
    #[inline(never)]
    pub(super) fn not_admitted(
        &mut self,
        shared: &Shared,
        layout: &Layout,
        run: Run,
        mut shard: MutexGuard<'_, Shard>,
        i: usize,
        mut status: Status,
    ) {
        if shard.plugs[i].has_early() {
            let (at, nr) = (shard.plugs[i].write_pointer(), self.run.len() as u32);
            let offset = run.offset.unwrap_or(at);
            let (admitted, early) = self.change(shared, &mut shard, i, |state, plug| {
                state.park_before_early(layout, run, offset, plug)
            });
            match admitted {
                Err(why) => status = why,
                Ok(()) => {
                    drop(shard);
                    let sector = run.zone_start.plus(u64::from(offset));
                    trace::add_to_plug(run.zone.0, sector.0, run.len_sectors, nr);
                    Self::trace_admitted(layout, run.zone, early);
                    return self.finish_early(shared, layout);
                }
            }
        }
        if let (Some(offset), [bio]) = (run.offset, &self.run[..])
            && status == Status::NotAtWritePointer
            && let Some((mut window, write)) =
                self.may_hold(shared, layout, &shard.plugs[i], bio, run.zone, offset)
        {
            let bios = self.run.drain(..).collect();
            self.hold(&mut window, &mut shard.plugs[i], write, bios);
            drop(window);
            drop(shard);
            return Self::trace_held(layout, run.zone, offset, run.len_sectors);
        }
        shard.unlock_plug(i);
        drop(shard);
        self.run_refused(shared, layout, run, status);
    }

    /// Admits `self.run` at `offset` in a zone that has early writes, and parks it. The error is the status with which
    /// the plug refuses the run.
    fn park_before_early(
        &mut self,
        layout: &Layout,
        run: Run,
        offset: u32,
        plug: &mut PlugChange<'_>,
    ) -> Result<(), Status> {
        let admit = plug.admit(offset, run.len_sectors);
        if let Admit::Reject(status) = admit {
            return Err(status);
        }
        if run.offset.is_none() {
            self.place_appends(layout, run.zone_start, offset);
        }
        self.mailbox.counts.0.parked(self.run.len());
        let i = plug.index();
        self.park_in_parts(layout, plug, i, run.kind);
        if admit == Admit::Issue {
            plug.plugs[i].get_in_line();
            self.backlog.push_zone(run.zone);
        }
        Ok(())
    }

    /// Completes the early writes that were refused, and sends the writes that can be sent.
    pub(super) fn finish_early(&mut self, shared: &Shared, layout: &Layout) {
        if !self.aborted.is_empty() {
            self.abort_to_intake(shared, layout);
        }
        if !layout.arbitrated {
            self.send_ready(shared, layout);
        }
    }

    /// If a write that `plug` has refused for its place may be held, returns the arguments for [`QueueState::hold`],
    /// with the lock of the window.
    pub(super) fn may_hold<'a>(
        &self,
        shared: &'a Shared,
        layout: &Layout,
        plug: &Plug,
        bio: &Bio,
        zone: ZoneNo,
        offset: u32,
    ) -> Option<(WindowGuard<'a>, EarlyWrite)> {
        let positional = matches!(bio.op, Op::Write | Op::WriteZeroes);
        if layout.order_window == Nanos(0) || !positional || bio.flags.contains(Flags::NOWAIT) {
            return None;
        }
        let write = EarlyWrite {
            zone,
            offset,
            len_sectors: bio.len_sectors,
            queue: self.id,
            queues: self.peers.iter().flatten().count(),
        };
        let mut window = shared.window();
        window.may_hold(plug, write).then_some((window, write))
    }

    /// Holds a write: its BIO, or its parts. It is refused when its time is over, which counts from the time of this
    /// call of the queue.
    pub(super) fn hold(
        &mut self,
        window: &mut WindowGuard<'_>,
        plug: &mut Plug,
        write: EarlyWrite,
        bios: Vec<Box<Bio>>,
    ) {
        window.hold(plug, write, bios);
        self.duties |= call_duties::SET_DUE;
    }

    /// Sets the time limit of the early writes that this call has submitted, at its end.
    #[cold]
    #[inline(never)]
    pub(super) fn set_due(&mut self, shared: &Shared, layout: &Layout, now: Nanos) {
        self.duties &= !call_duties::SET_DUE;
        shared.window().set_due(self.id, Nanos(now.0.saturating_add(layout.order_window.0)));
    }

    /// Reports that a write is held. Called without a lock.
    pub(super) fn trace_held(layout: &Layout, zone: ZoneNo, offset: u32, len: u32) {
        let sector = layout.geometry.zone_start(zone).0 + u64::from(offset);
        trace::hold_write(zone.0, sector, len);
    }

    /// Reports that held writes now wait in their plug. Called without a lock.
    pub(super) fn trace_admitted(layout: &Layout, zone: ZoneNo, early: AdmittedEarly) {
        if early.bios > 0 {
            let sector = layout.geometry.zone_start(zone).0 + u64::from(early.offset);
            trace::add_to_plug(zone.0, sector, early.len_sectors, early.bios as u32);
        }
    }

    /// Changes plug `i` of the shard by `change`. If the zone has early writes, then parks those whose turn has come,
    /// and puts those that can no longer be admitted into the abort list.
    #[inline]
    pub(crate) fn change<R>(
        &mut self,
        shared: &Shared,
        shard: &mut Shard,
        i: usize,
        change: impl FnOnce(&mut QueueState, &mut PlugChange<'_>) -> R,
    ) -> (R, AdmittedEarly) {
        let zone = shared.zone_at(shard.place_of(i));
        let (mut refused, window) = (Vec::new(), || shared.window());
        let change = |plug: &mut PlugChange<'_>| change(self, plug);
        let (result, early) = shard.change(i, zone, change, window, &mut refused);
        self.aborted.append(&mut refused);
        if early.bios > 0 {
            self.mailbox.counts.0.parked(early.bios);
        }
        if early.in_line {
            shard.plugs[i].get_in_line();
            self.backlog.push_zone(zone);
        }
        (result, early)
    }
}

impl DiskQueue {
    /// Handles changes since the last call: writes are held in the order window, or the layout, the queues or a
    /// freeze have changed. Returns false if the disk is frozen.
    #[cold]
    #[inline(never)]
    pub(crate) fn catch_up(&mut self, now: Nanos) -> bool {
        let state = self.shared.state.0.load(Ordering::Acquire);
        if state & EARLY != 0 {
            self.look_at_window(state::is_frozen(state), now);
        }
        state & !EARLY == self.state.seen || self.refresh(now)
    }

    /// Refuses the early writes of the disk whose time is over. While the disk is frozen no time passes for them.
    fn look_at_window(&mut self, frozen: bool, now: Nanos) {
        let DiskQueue { shared, layout, state } = self;
        let due = shared.window_due.load(Ordering::Acquire);
        if frozen {
            if due != PAUSED {
                shared.window().pause(now);
            }
            return;
        }
        // `PAUSED` is less than any time, so the first call after a freeze passes this test and lets the time go on.
        if due == NOTHING_DUE || now.0 < due {
            return;
        }
        let mut window = shared.window();
        window.resume(now);
        let zones = window.zones_due(now);
        drop(window);
        for zone in zones {
            let (mut shard, i) = shared.shard(zone);
            shared.window().expire(zone, &mut shard, i, now, &mut state.aborted);
        }
        if !state.aborted.is_empty() {
            #[cfg(feature = "probes")]
            for bio in &state.aborted {
                let zone = layout.geometry.zone_of(bio.sector).0.0;
                trace::expire_write(zone, bio.sector.0, bio.len_sectors);
            }
            state.abort_to_intake(shared, layout);
        }
    }

    /// Refuses the writes of this queue that are held in the order window, because its client goes away. They come
    /// back through [`DiskQueue::poll`] with the status *not at the write pointer*. No part of them was accepted.
    /// Dropping the queue does the same.
    pub fn refuse_held(&mut self) {
        self.refuse_early();
    }

    /// Like [`DiskQueue::refuse_held`]. Returns whether any was refused.
    fn refuse_early(&mut self) -> bool {
        if self.shared.state.0.load(Ordering::Acquire) & EARLY == 0 {
            return false;
        }
        let DiskQueue { shared, state, .. } = self;
        // Locked because a revalidation that commits rebuilds the plugs.
        let layout = lock(&shared.layout);
        let zones = shared.window().zones(Some(state.id));
        for zone in zones {
            let (mut shard, i) = shared.shard(zone);
            shared.window().leave(zone, &mut shard, i, state.id, &mut state.aborted);
        }
        let current = layout.clone();
        drop(layout);
        let any = !state.aborted.is_empty();
        if any {
            state.abort_to_intake(shared, &current);
        }
        any
    }

    /// Drops the writes of a closing queue that the window holds.
    pub(super) fn drop_held(&mut self) {
        if !self.refuse_early() {
            return;
        }
        let (mut ended, mut done) = (self.state.intake.take_ended(), Bios::new());
        self.state.deliver_own(&mut ended, &mut done);
        self.state.intake.put_list(ended);
        self.state.intake.gave_back(done.len() as u32);
    }
}
