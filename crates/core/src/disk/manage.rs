//! The rare kinds of BIOs: zone management, reports, flush, discard and native append. This file also handles the end
//! of every command that no plug waits for, except reads and writes that succeeded.
//!
//! `validate.rs` checks such a BIO and changes nothing. `begin`, in this file, notes its effect before it is sent.
//! When the command has come back, its effect on the plugs is noted, and the claim of `begin` is given up.

mod validate;

use super::events::DeferredWake;
use super::shared::Shared;
use crate::bio::{Bio, Bios, Command, Flags, Op, Status, UNSENT, Waiter, ZoneClaim};
use crate::disk::queue_state::QueueState;
use crate::disk::snapshot::Layout;
use crate::plug::{PlugChange, QueueStep, ReportEpochs};
use crate::sync::{Ordering, lock};
use crate::unit::{Sector, ZoneNo};
use crate::zone::{Condition, ZONE_RECORD_LEN};
use std::ops::Range;
use validate::{resets_all, validate, zones_of};

impl QueueState {
    /// Checks a BIO of the rare kinds and sends it.
    pub(crate) fn submit_rare(&mut self, shared: &Shared, layout: &Layout, mut bio: Box<Bio>) {
        let checked = validate(layout, &bio, || self.idle_tags())
            .and_then(|()| self.begin(shared, layout, &mut bio));
        if let Err(status) = checked {
            return self.reject(bio, status);
        }
        #[cfg(feature = "probes")]
        if bio.op.is_zone_management() {
            let all = resets_all(layout, &bio);
            let (sector, count) = match all {
                true => (0, layout.geometry.capacity().0),
                false => (bio.sector.0, u64::from(bio.len_sectors)),
            };
            super::trace::zone_management(bio.op, sector, count);
        }
        if bio.op == Op::Discard {
            return self.send_unordered(layout, bio, u32::MAX);
        }
        self.submit_unplugged(layout, bio);
    }

    /// Notes in the disk and the BIO the effect that a valid BIO is about to have. After an error, nothing was noted.
    fn begin(&mut self, shared: &Shared, layout: &Layout, bio: &mut Bio) -> Result<(), Status> {
        match bio.op {
            Op::ZoneAppend => self.begin_native_append(shared, layout, bio),
            Op::ReportZones => {
                Self::begin_report(shared, layout, bio);
                Ok(())
            }
            op if op.is_zone_management() => Self::begin_management(shared, layout, bio),
            _ => Ok(()),
        }
    }

    /// Begins a native append, which is not plugged: from its submission on, the layer does not know the zone's write
    /// pointer (A7, A8). `plug/appends.rs` says when it is known again.
    fn begin_native_append(
        &mut self,
        shared: &Shared,
        layout: &Layout,
        bio: &Bio,
    ) -> Result<(), Status> {
        if !layout.plugs {
            return Ok(());
        }
        let (zone, _) = layout.geometry.zone_of(bio.sector);
        let start = layout.geometry.zone_start(zone);
        let (mut shard, i) = shared.shard(zone);
        if shard.plugs[i].is_managed() {
            return Err(Status::ZoneBusy);
        }
        // A report that was sent before this append does not say where the write pointer is after it (E6). The epoch
        // begins under the lock, so that those of a zone ascend.
        let epoch = shared.epoch.fetch_add(1, Ordering::AcqRel).wrapping_add(1);
        self.change(shared, &mut shard, i, |state, plug| {
            plug.begin_append(start, bio.len_sectors, epoch, &mut state.aborted);
        });
        drop(shard);
        if !self.aborted.is_empty() {
            self.abort_to_intake(shared, layout);
        }
        if !shared.append_used.load(Ordering::Relaxed) {
            shared.append_used.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Notes the error epoch with which the answer will be compared (E6). A resync also marks the plugs of its zones.
    fn begin_report(shared: &Shared, layout: &Layout, bio: &mut Bio) {
        bio.result = 0;
        if !bio.flags.contains(Flags::RESYNC) || !layout.plugs {
            bio.epoch = shared.epoch.load(Ordering::Acquire);
            return;
        }
        // A resync has an epoch of its own, because the answer to an earlier resync may still come.
        bio.epoch = shared.epoch.fetch_add(1, Ordering::AcqRel).wrapping_add(1);
        let records = bio.data().len() / ZONE_RECORD_LEN as u32;
        let (first, _) = layout.geometry.zone_of(bio.sector);
        let last = layout.geometry.nr_zones().min(first.0.saturating_add(records));
        for z in first.0..last {
            let (mut shard, i) = shared.shard(ZoneNo(z));
            let now = shared.epoch.load(Ordering::Acquire);
            shard.plugs[i].begin_resync(ReportEpochs { sent: bio.epoch, now });
        }
    }

    /// Lists the zones of a reset or finish. In strict mode the zones must be idle (M5), and take no writes until the
    /// command has ended.
    fn begin_management(shared: &Shared, layout: &Layout, bio: &mut Bio) -> Result<(), Status> {
        (bio.result, bio.claim) = (0, ZoneClaim::None);
        let zones = zones_of(layout, bio);
        if !layout.plugs || !Self::aborts(bio.op) {
            return Ok(());
        }
        if layout.config.strict_management {
            Self::claim_idle(shared, zones.clone())?;
            bio.claim = ZoneClaim::Exclusive;
        } else {
            bio.claim = ZoneClaim::Listed;
        }
        shared.resets.begin(zones);
        Ok(())
    }

    /// Returns whether a management operation aborts the writes that wait for its zones.
    fn aborts(op: Op) -> bool {
        matches!(op, Op::ZoneReset | Op::ZoneResetAll | Op::ZoneFinish)
    }

    /// Strict mode: keeps writes away from all of these zones. If one of them has a write, keeps them away from none,
    /// and fails.
    fn claim_idle(shared: &Shared, zones: Range<u32>) -> Result<(), Status> {
        for z in zones.clone() {
            let (mut shard, i) = shared.shard(ZoneNo(z));
            if !shard.begin_management(i) {
                drop(shard);
                Self::release(shared, zones.start..z);
                return Err(Status::ZoneBusy);
            }
        }
        Ok(())
    }

    /// Strict mode: lets writes come again.
    fn release(shared: &Shared, zones: Range<u32>) {
        for z in zones {
            let (mut shard, i) = shared.shard(ZoneNo(z));
            shard.plugs[i].end_management();
        }
    }

    /// Gives up the claim of [`QueueState::begin_management`], because a management command has ended.
    fn end_management(shared: &Shared, cmd: &mut Command) {
        let claim = std::mem::replace(&mut cmd.claim, ZoneClaim::None);
        if claim == ZoneClaim::None {
            return;
        }
        let ticket = cmd.bios.first().map_or(0, |bio| bio.late);
        let zones = cmd.managed.clone();
        let left = cmd.zone..zones.end;
        let all = cmd.op == Op::ZoneResetAll;
        let sent = if all { zones.clone() } else { cmd.zone..cmd.zone + 1 };
        shared.resets.end(&left, (ticket != 0).then_some((sent, ticket)), &shared.late);
        if claim == ZoneClaim::Exclusive {
            Self::release(shared, zones);
        }
    }

    /// Handles the end of a native append. The write pointer is known from now on if the account of the zone's
    /// appends tells it.
    fn end_native_append(&mut self, shared: &Shared, layout: &Layout, cmd: &Command) {
        let zone = ZoneNo(cmd.zone);
        let start = layout.geometry.zone_start(zone);
        let (mut shard, i) = shared.shard(zone);
        let epoch = shared.epoch.fetch_add(1, Ordering::AcqRel).wrapping_add(1);
        self.change(shared, &mut shard, i, |state, plug| {
            plug.end_append(start, cmd, epoch, &mut state.aborted);
            Self::note_given_up(shared, plug, i, cmd);
            Self::learn_wp_from_appends(shared, plug, zone);
        });
        drop(shard);
        if !self.aborted.is_empty() {
            self.abort_to_intake(shared, layout);
        }
    }

    /// Called when a write or native append of a zone with an unknown write pointer has ended. Takes the write
    /// pointer from the account of the zone's native appends if no command of the zone is under way any more.
    #[cold]
    #[inline(never)]
    pub(crate) fn learn_wp_from_appends(shared: &Shared, plug: &mut PlugChange<'_>, zone: ZoneNo) {
        plug.learn_wp_from_appends(|ticket| {
            shared.late.join(ticket, 0) != 0 || shared.resets.may_change(zone, &shared.late)
        });
    }

    /// Completes the BIOs of the abort list where the caller has no list of done BIOs.
    #[cold]
    pub(crate) fn abort_to_intake(&mut self, shared: &Shared, layout: &Layout) {
        let mut done = Bios::new();
        self.abort_waiting(shared, layout, Status::AbortedBehind, &mut done);
        for mut bio in done {
            bio.in_flight = true;
            self.intake.ended(bio);
        }
    }

    /// Fills in the command of a BIO that is not a read.
    pub(crate) fn prepare(layout: &Layout, bio: &Bio, cmd: &mut Command) {
        let g = &layout.geometry;
        match bio.op {
            Op::Write | Op::WriteZeroes | Op::ZoneAppend => {
                let (zone, _) = g.zone_of(bio.sector);
                cmd.zone = zone.0;
            }
            Op::ZoneReset | Op::ZoneResetAll if resets_all(layout, bio) => {
                // The command is a reset of all zones; the BIO keeps its operation.
                (cmd.op, cmd.sent_op) = (Op::ZoneResetAll, Op::ZoneResetAll);
                cmd.sector = Sector(0);
                cmd.len_sectors = 0;
                cmd.manage(zones_of(layout, bio), bio.claim);
            }
            Op::ZoneOpen | Op::ZoneClose | Op::ZoneFinish | Op::ZoneReset | Op::ZoneResetAll => {
                cmd.manage(zones_of(layout, bio), bio.claim);
                cmd.len_sectors = g.zone_len_sectors(ZoneNo(cmd.zone));
            }
            Op::ReportZones => {
                cmd.report.clear();
                cmd.report_max = bio.data().len() / ZONE_RECORD_LEN as u32;
                cmd.epoch = bio.epoch;
                cmd.len_sectors = 0;
            }
            Op::Read | Op::Flush | Op::Discard => {}
        }
    }

    /// Handles a command of the rare kinds that has come back.
    #[cold]
    pub(crate) fn finished_other(
        &mut self,
        shared: &Shared,
        layout: &Layout,
        mut cmd: Box<Command>,
        done: &mut Bios,
    ) {
        if matches!(cmd.waiter, Waiter::Recovery | Waiter::Revalidation) {
            // A report of the layer itself has no BIO. A BIO that a faulty device has added is dropped.
            cmd.bios.clear();
            if cmd.waiter == Waiter::Recovery {
                return self.zone_reported(shared, layout, cmd, done);
            }
            return self.own_report.answered(cmd);
        }
        // A faulty device may have changed the operation.
        if cmd.sent_op == Op::ZoneAppend && layout.plugs {
            self.end_native_append(shared, layout, &cmd);
        }
        if !cmd.status.is_ok() {
            shared.events.failed(&mut DeferredWake::default(), layout, &cmd, 0);
        }
        if cmd.status.is_ok() {
            match cmd.op {
                Op::ZoneAppend => {
                    for bio in &mut cmd.bios {
                        bio.sector = cmd.sector;
                    }
                    super::trace::append_positions(layout, &cmd.bios);
                }
                Op::ReportZones => self.reported(shared, layout, &mut cmd),
                _ if cmd.waiter == Waiter::Management => {
                    self.managed(shared, layout, &cmd);
                    if self.next_zone(layout, &mut cmd) {
                        if cmd.claim != ZoneClaim::None {
                            shared.resets.advance(cmd.zone..cmd.managed.end);
                        }
                        self.abort_waiting(shared, layout, Status::AbortedByManagement, done);
                        return self.send(cmd);
                    }
                }
                _ => {}
            }
        }
        // Devices reset all zones one by one, so some may be reset although the command failed.
        let some = cmd.op == Op::ZoneResetAll && !cmd.status.is_ok();
        let unknown = matches!(cmd.status, Status::Timeout | Status::NoDevice);
        if (some || unknown) && cmd.slot != UNSENT {
            self.in_doubt(shared, layout, &cmd);
        }
        if cmd.waiter == Waiter::Management {
            Self::end_management(shared, &mut cmd);
        }
        self.give_status(layout, &mut cmd);
        self.abort_waiting(shared, layout, Status::AbortedByManagement, done);
        self.deliver(shared, &mut cmd, done);
        self.tags.put(cmd);
    }

    /// Applies the effect of a management command that succeeded (M2, M3).
    fn managed(&mut self, shared: &Shared, layout: &Layout, cmd: &Command) {
        if !layout.plugs {
            return;
        }
        let zone = ZoneNo(cmd.zone);
        let mut wake = DeferredWake::default();
        match cmd.op {
            Op::ZoneReset => {
                let (mut shard, i) = shared.shard(zone);
                self.change(shared, &mut shard, i, |state, plug| plug.reset(&mut state.aborted));
                shared.events.known_again(&mut wake, layout, zone, &shard.plugs[i]);
            }
            Op::ZoneFinish => {
                let len = layout.geometry.zone_len_sectors(zone);
                let (mut shard, i) = shared.shard(zone);
                self.change(shared, &mut shard, i, |state, plug| {
                    plug.finish(len, &mut state.aborted);
                });
                shared.events.known_again(&mut wake, layout, zone, &shard.plugs[i]);
            }
            Op::ZoneResetAll => {
                // Before the plugs are reset: an append that comes meanwhile sets it again.
                shared.append_used.store(false, Ordering::Relaxed);
                for shard in &shared.shards {
                    let mut shard = lock(&shard.0);
                    for i in 0..shard.plugs.len() {
                        shard.lock_plug(i);
                        self.change(shared, &mut shard, i, |state, plug| {
                            plug.reset(&mut state.aborted);
                        });
                        let zone = shared.zone_at(shard.place_of(i));
                        shared.events.known_again(&mut wake, layout, zone, &shard.plugs[i]);
                        shard.unlock_plug(i);
                    }
                }
            }
            _ => {}
        }
    }

    /// Handles a reset or finish with an unknown outcome: the device may have carried it out, or may still do so,
    /// perhaps for some of its zones only. Only a report can tell where their write pointers are.
    #[cold]
    fn in_doubt(&mut self, shared: &Shared, layout: &Layout, cmd: &Command) {
        if !layout.plugs || !Self::aborts(cmd.op) {
            return;
        }
        let zones = match cmd.op {
            Op::ZoneResetAll => 0..layout.geometry.nr_zones(),
            _ => cmd.zone..cmd.zone + 1,
        };
        let mut wake = DeferredWake::default();
        for z in zones {
            let (mut shard, i) = shared.shard(ZoneNo(z));
            // The epoch begins under the lock: a report that is sent before this zone's turn does not count.
            let epoch = shared.epoch.fetch_add(1, Ordering::AcqRel).wrapping_add(1);
            self.change(shared, &mut shard, i, |state, plug| {
                plug.forget_write_pointer(epoch, &mut state.aborted);
            });
            if shard.plugs[i].is_stale() {
                shared.events.stale(&mut wake, layout, ZoneNo(z), cmd.status);
            }
        }
    }

    /// Moves a management command to the next zone of its range, if there is one.
    fn next_zone(&self, layout: &Layout, cmd: &mut Command) -> bool {
        if cmd.op == Op::ZoneResetAll {
            return false;
        }
        let next = ZoneNo(cmd.zone + 1);
        if next.0 >= cmd.managed.end {
            return false;
        }
        cmd.zone = next.0;
        cmd.sector = layout.geometry.zone_start(next);
        cmd.len_sectors = layout.geometry.zone_len_sectors(next);
        true
    }

    /// Handles a client's report that has come back: corrects the plugs, and gives the records to the client. Ignores
    /// a report whose BIO a faulty device has kept.
    fn reported(&mut self, shared: &Shared, layout: &Layout, cmd: &mut Command) {
        let Some(bio) = cmd.bios.first() else { return };
        let resync = bio.flags.contains(Flags::RESYNC);
        let mut busy = false;
        if layout.plugs {
            busy = self.apply_report(shared, layout, cmd, resync);
        }
        let Command { bios, report, report_max, .. } = cmd;
        let Some(bio) = bios.first_mut() else { return };
        // A faulty device may keep the client's memory, or change how many zones were asked for. Records are written
        // only into memory that is there.
        let room =
            if bio.data().is_shared() { 0 } else { bio.data().len() / ZONE_RECORD_LEN as u32 };
        let nr = (*report_max).min(report.len() as u32).min(room);
        for (n, zone) in (0..nr).zip(report.iter()) {
            bio.data_mut().copy_from(n * ZONE_RECORD_LEN as u32, &zone.encode());
        }
        bio.result = nr;
        if busy {
            cmd.status = Status::ZoneBusy;
        }
    }

    /// Corrects plugs by a report. Finds each zone by its start, not by its place in the report (V9). Returns whether
    /// a resync met a busy zone.
    pub(crate) fn apply_report(
        &mut self,
        shared: &Shared,
        layout: &Layout,
        cmd: &Command,
        resync: bool,
    ) -> bool {
        let mut busy = false;
        for info in &cmd.report {
            let (zone, offset) = layout.geometry.zone_of(info.start);
            if offset != 0
                || zone.0 >= layout.geometry.nr_zones()
                || info.zone_type != layout.geometry.zone_type(zone)
            {
                continue;
            }
            let mut wake = DeferredWake::default();
            let (mut shard, i) = shared.shard(zone);
            // A zone that has gone begins an epoch.
            let now = match info.cond {
                Condition::ReadOnly | Condition::Offline => {
                    shared.epoch.fetch_add(1, Ordering::AcqRel).wrapping_add(1)
                }
                _ => shared.epoch.load(Ordering::Acquire),
            };
            let (epochs, mask) = (ReportEpochs { sent: cmd.epoch, now }, layout.write_mask());
            let may_move = || shared.resets.may_change(zone, &shared.late);
            let (met_busy, _) = self.change(shared, &mut shard, i, |state, plug| {
                let aborted = &mut state.aborted;
                let Some(step) = plug.reported_meanwhile(info, epochs, mask, &may_move, aborted)
                else {
                    return plug.reported(info, epochs, resync, aborted);
                };
                if step == QueueStep::InLine {
                    state.backlog.push_zone(zone);
                }
                false
            });
            busy |= met_busy;
            shared.events.known_again(&mut wake, layout, zone, &shard.plugs[i]);
        }
        busy
    }
}
