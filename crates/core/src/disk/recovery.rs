//! The layer's own report of a zone whose write has failed: when it is sent, and what its answer leads to.
//!
//! `plug/recovery.rs` decides whether a zone is reported, and what the answer means. This file takes the shard's lock
//! for it, and sends the report with the tag of the command that failed last. So a report waits for no tag (I9), and
//! several zones can recover at a time. A queue with a report in flight is busy: freezes wait for it, and an orphan
//! is polled until the report is back. Writes that succeed do not use this file.

use super::events::DeferredWake;
use super::shared::Shared;
use crate::bio::{Bios, Command, Flags, Op, Status, Waiter};
use crate::disk::queue_state::QueueState;
use crate::disk::queue_state::backlog::TurnEvent;
use crate::disk::snapshot::Layout;
use crate::plug::{PlugChange, QueueStep, RecoveryReport, Shard};
use crate::sync::{Ordering, lock};
use crate::unit::ZoneNo;

impl QueueState {
    /// Called when the only write of a zone has failed, and the writes behind it were aborted. Returns whether the
    /// layer reports the zone by itself now: the attribute `zone_recovery` and the kind of failure decide (E12).
    #[cold]
    pub(super) fn begin_recovery(
        shared: &Shared,
        layout: &Layout,
        plug: &mut PlugChange<'_>,
        cmd: &Command,
        epoch: u32,
    ) -> bool {
        let start = layout.geometry.zone_start(ZoneNo(cmd.zone));
        let offset = cmd.sector.0.wrapping_sub(start.0) as u32;
        let join = |whole, part| shared.late.join(whole, part);
        // The ticket of a late reset may close before the answer arrives. Then nothing would show that the device
        // carried out the reset in between.
        let auto =
            layout.zone_recovery && !shared.resets.may_change_late(ZoneNo(cmd.zone), &shared.late);
        plug.ask(cmd, offset, epoch, auto, join)
    }

    /// Notes that a command of a zone was given up and may still be at the device. The layer does not report the zone
    /// until the command is back.
    #[cold]
    pub(super) fn note_given_up(shared: &Shared, shard: &mut Shard, i: usize, cmd: &Command) {
        let ticket = cmd.bios.first().map_or(0, |b| b.late);
        if ticket != 0 {
            shard.given_up(i, ticket, |whole, part| shared.late.join(whole, part));
        }
    }

    /// Delivers the failed BIOs and those that were aborted behind them, and sends the report.
    #[cold]
    pub(super) fn ask_for_write_pointer(
        &mut self,
        shared: &Shared,
        layout: &Layout,
        mut cmd: Box<Command>,
        epoch: u32,
        done: &mut Bios,
    ) {
        if layout.single_writer {
            // The single writer does not wait for the report. The zone is listed again with the writes that park
            // meanwhile.
            self.backlog.push_event(TurnEvent::Broken(ZoneNo(cmd.zone)));
        }
        if layout.scheduled {
            lock(&shared.elevator.0).becomes(cmd.sent_op, Op::ReportZones);
        }
        self.abort_waiting(shared, layout, Status::AbortedBehind, done);
        self.deliver(shared, &mut cmd, done);
        self.report_zone(layout, epoch, cmd);
    }

    /// Sends the report of the zone of `cmd`, under `number`. `cmd` is used again for it.
    pub(super) fn report_zone(&mut self, layout: &Layout, number: u32, mut cmd: Box<Command>) {
        let zone = ZoneNo(cmd.zone);
        cmd.set(Op::ReportZones, layout.geometry.zone_start(zone), 0, Flags::NONE);
        cmd.report.clear();
        (cmd.report_max, cmd.epoch, cmd.waiter) = (1, number, Waiter::Recovery);
        cmd.begin_owners(self.id);
        super::trace::zone_recovery(zone.0, number);
        self.send(cmd);
    }

    /// Handles the layer's own report when it has come back.
    #[cold]
    pub(super) fn zone_reported(
        &mut self,
        shared: &Shared,
        layout: &Layout,
        cmd: Box<Command>,
        done: &mut Bios,
    ) {
        let zone = ZoneNo(cmd.zone);
        let start = layout.geometry.zone_start(zone);
        let epoch = || shared.epoch.fetch_add(1, Ordering::AcqRel).wrapping_add(1);
        let mut wake = DeferredWake::default();
        let (mut shard, i) = shared.shard(zone);
        let missing = shard.counters.missing;
        let may_move = || shared.resets.may_change(zone, &shared.late);
        let mask = layout.write_mask();
        let report = RecoveryReport { cmd: &cmd, start, mask, may_move: &may_move, epoch: &epoch };
        let recover = |state: &mut QueueState, plug: &mut PlugChange<'_>| {
            plug.recover(&report, &mut state.aborted)
        };
        let (step, _) = self.change(shared, &mut shard, i, recover);
        if !cmd.status.is_ok() {
            shared.events.failed(&mut wake, layout, &cmd, self.aborted.len());
        }
        if shard.counters.missing > missing {
            shared.events.missing(&mut wake, layout, zone);
        } else if shard.plugs[i].is_stale() {
            shared.events.stale(&mut wake, layout, zone, cmd.status);
        } else {
            shared.events.known_again(&mut wake, layout, zone, &shard.plugs[i]);
        }
        drop(shard);
        if !self.aborted.is_empty() {
            self.abort_waiting(shared, layout, Status::AbortedBehind, done);
        }
        self.take_step(layout, step, cmd);
    }

    /// Carries out the next step for the zone of `cmd`. `cmd` is free for new use.
    pub(super) fn take_step(&mut self, layout: &Layout, step: QueueStep, cmd: Box<Command>) {
        match step {
            QueueStep::Nothing => {}
            QueueStep::InLine => self.backlog.push_zone(ZoneNo(cmd.zone)),
            QueueStep::Report(number) => return self.report_zone(layout, number, cmd),
        }
        self.tags.put(cmd);
    }
}
