//! Queues of a disk that may have several writes of a zone in flight, because its device keeps their order.
//!
//! `plug/pipelined.rs` decides what may be sent and what follows a failure. This file takes the shard's lock for it,
//! and provides the tags. A zone is in the line of at most one queue. While writes of a zone are in flight, the queue
//! that sent them (its *home*) sends the next ones at each completion. So a zone with work always belongs to a busy
//! queue.
//!
//! `disk/recovery.rs` sends the report after a failure.

use crate::bio::{Bios, Command, Commands, Status, Waiter};
use crate::disk::events::DeferredWake;
use crate::disk::queue_state::QueueState;
use crate::disk::queue_state::backlog::Work;
use crate::disk::shared::Shared;
use crate::disk::snapshot::Layout;
use crate::disk::trace;
use crate::plug::{QueueStep, SentWrites};
use crate::sync::Ordering;
use crate::unit::ZoneNo;

impl QueueState {
    /// Puts a zone with parked writes in line, unless another queue is its home or it has as many writes in flight as
    /// it may.
    pub(crate) fn queue_up(&mut self, shared: &Shared, layout: &Layout, zone: ZoneNo) {
        let (mut shard, i) = shared.shard_of(zone);
        if shard.must_wait(i, self.id, layout.zone_depth) {
            shard.leave_line(i);
        } else {
            drop(shard);
            self.backlog.line.push_back(Work::Zone(zone));
        }
    }

    /// Sends the next write of a zone that was in line. If the zone has more, it goes to the end of the line, because
    /// others wait for tags too (C3).
    pub(crate) fn send_in_order(
        &mut self,
        shared: &Shared,
        layout: &Layout,
        zone: ZoneNo,
        mut cmd: Box<Command>,
    ) {
        let (mut shard, i) = shared.shard_of(zone);
        let sent = shard.fill_in_order(i, layout.merge, &mut cmd, self.id, layout.zone_depth);
        drop(shard);
        if sent == SentWrites::Nothing {
            return self.tags.put_held(cmd);
        }
        cmd.zone = zone.0;
        trace::issued(&cmd);
        self.send_write(cmd);
        if sent == SentWrites::More {
            self.backlog.line.push_back(Work::Zone(zone));
        }
    }

    /// After a failure, takes back the writes of the zone that the device has not taken yet. They end as if the
    /// device had been busy.
    fn call_back(&mut self, zone: ZoneNo) {
        let mut kept = Commands::with_capacity(self.out.len());
        for mut c in self.out.drain(..) {
            if c.waiter == Waiter::Plug && c.zone == zone.0 {
                c.status = Status::Busy;
                self.fin.push_back(c);
            } else {
                kept.push_back(c);
            }
        }
        self.out = kept;
    }

    /// Handles the end of a plugged write.
    #[cold]
    pub(crate) fn finished_in_order(
        &mut self,
        shared: &Shared,
        layout: &Layout,
        mut cmd: Box<Command>,
        done: &mut Bios,
    ) {
        let zone = ZoneNo(cmd.zone);
        let start = layout.geometry.zone_start(zone);
        let epoch = || shared.epoch.fetch_add(1, Ordering::AcqRel).wrapping_add(1);
        let mut wake = DeferredWake::default();
        let (mut shard, i) = shared.shard_of(zone);
        if cmd.status == Status::Busy && shard.is_alone(i) {
            // The same command is sent again (W23). If others are in flight behind it, *busy* is a failure like any
            // other, because they are no longer at the write pointer.
            drop(shard);
            cmd.status = Status::Ok;
            return self.send(cmd);
        }
        if !cmd.status.is_ok() && !self.out.is_empty() {
            self.call_back(zone);
        }
        if !cmd.status.is_ok() {
            Self::note_given_up(shared, &mut shard, i, &cmd);
        }
        let late_at_device = |ticket| {
            shared.late.join(ticket, 0) != 0 || shared.resets.may_change_late(zone, &shared.late)
        };
        let (step, _) = self.change(shared, &mut shard, i, |state, plug| {
            let aborted = &mut state.aborted;
            let step = plug.complete_in_order(&mut cmd, start, &epoch, &late_at_device, aborted);
            if plug.plugs[i].is_stale() {
                Self::learn_wp_from_appends(shared, plug, zone);
            }
            step
        });
        if !cmd.status.is_ok() {
            shared.events.failed(&mut wake, layout, &cmd, self.aborted.len());
        }
        if matches!(step, QueueStep::Report(_)) {
            shared.events.doubtful(zone);
        } else if shard.plugs[i].is_stale() {
            shared.events.stale(&mut wake, layout, zone, cmd.status);
        }
        drop(shard);
        self.give_status(layout, &mut cmd);
        self.deliver(shared, &mut cmd, done);
        if !self.aborted.is_empty() {
            self.abort_waiting(shared, layout, Status::AbortedBehind, done);
        }
        self.take_step(layout, step, cmd);
    }
}
