//! Early writes on disks with an order window: writes that are held, admitted when their turn comes, or refused when
//! their time is over.
//!
//! `plug/window.rs` decides; this file takes the locks and provides the time. All of it is off the usual path: a
//! write comes here only when its plug refuses it, and a call looks at the window only while something is held.

use super::handle::DiskQueue;
use super::write::Run;
use crate::bio::{Bio, Bios, Flags, Op, Status};
use crate::disk::order_window::{NOTHING_DUE, PAUSED, WindowGuard};
use crate::disk::queue_state::{QueueState, duty};
use crate::disk::shared::Shared;
use crate::disk::snapshot::Layout;
use crate::disk::state::{self, EARLY};
use crate::disk::trace;
use crate::plug::{Admit, EarlyWrite, Plug, Settled, Shard};
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
        let plug = &mut shard.plugs[i];
        if plug.has_early() {
            let at = plug.write_pointer();
            match plug.admit_beside_early(run.offset.unwrap_or(at), run.len_sectors) {
                Admit::Reject(why) => status = why,
                admit => {
                    let lines_up = admit == Admit::Issue;
                    return self.park_before_early(shared, layout, run, shard, i, at, lines_up);
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

    /// Parks an admitted run, and behind it the early writes whose turn has come. `at`: where the run starts, if it
    /// is one of appends. `lines_up`: the plug was idle.
    #[allow(clippy::too_many_arguments)] // one step of `not_admitted`
    fn park_before_early(
        &mut self,
        shared: &Shared,
        layout: &Layout,
        run: Run,
        mut shard: MutexGuard<'_, Shard>,
        i: usize,
        at: u32,
        lines_up: bool,
    ) {
        if run.offset.is_none() {
            self.place_appends(layout, run.zone_start, at);
        }
        #[cfg(feature = "traced")]
        let (sector, nr) = (self.run[0].sector.0, self.run.len() as u32);
        self.mailbox.counts.0.parked(self.run.len());
        self.park_in_parts(layout, &mut shard, i, run.kind);
        if lines_up {
            shard.plugs[i].get_in_line();
            self.backlog.zone(run.zone);
        }
        let settled = self.settle_early(shared, &mut shard, i, run.zone);
        drop(shard);
        #[cfg(feature = "traced")]
        trace::add_to_plug(run.zone.0, sector, run.len_sectors, nr);
        Self::trace_admitted(layout, run.zone, settled);
        self.finish_early(shared, layout);
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
        self.duties |= duty::SET_DUE;
    }

    /// Sets the time limit of the early writes that this call has submitted, at its end.
    #[cold]
    #[inline(never)]
    pub(super) fn set_due(&mut self, shared: &Shared, layout: &Layout, now: Nanos) {
        self.duties &= !duty::SET_DUE;
        shared.window().set_due(self.id, Nanos(now.0.saturating_add(layout.order_window.0)));
    }

    /// Reports that a write is held. Called without a lock.
    pub(super) fn trace_held(layout: &Layout, zone: ZoneNo, offset: u32, len: u32) {
        let sector = layout.geometry.zone_start(zone).0 + u64::from(offset);
        trace::hold_write(zone.0, sector, len);
    }

    /// Reports that held writes now wait in their plug. Called without a lock.
    pub(super) fn trace_admitted(layout: &Layout, zone: ZoneNo, settled: Settled) {
        if settled.bios > 0 {
            let sector = layout.geometry.zone_start(zone).0 + u64::from(settled.offset);
            trace::add_to_plug(zone.0, sector, settled.len_sectors, settled.bios as u32);
        }
    }

    /// Called under the lock of the shard when plug `i` has changed: parks its early writes whose turn has come, and
    /// puts those that can no longer be admitted into the abort list.
    #[inline]
    pub(crate) fn settle_early(
        &mut self,
        shared: &Shared,
        shard: &mut Shard,
        i: usize,
        zone: ZoneNo,
    ) -> Settled {
        match shard.plugs[i].has_early() {
            true => self.settle_early_of(shared, shard, i, zone),
            false => Settled::default(),
        }
    }

    #[cold]
    #[inline(never)]
    fn settle_early_of(
        &mut self,
        shared: &Shared,
        shard: &mut Shard,
        i: usize,
        zone: ZoneNo,
    ) -> Settled {
        let settled = shared.window().settle(zone, shard, i, &mut self.aborted);
        if settled.bios > 0 {
            self.mailbox.counts.0.parked(settled.bios);
        }
        if settled.in_line {
            shard.plugs[i].get_in_line();
            self.backlog.zone(zone);
        }
        settled
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
            #[cfg(feature = "traced")]
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
