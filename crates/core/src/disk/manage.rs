//! Everything that is neither a read nor a plugged write: zone management, reports, flush, discard, native append,
//! and the writes of a disk without plugs.

use super::Shared;
use crate::bio::{Bio, Bios, Command, Flags, Op, Status, UNSENT, Waits};
use crate::disk::queue::Lane;
use crate::disk::snapshot::Layout;
use crate::planted::{Bug, planted};
use crate::plug::Then;
use crate::sync::{Ordering, lock};
use crate::unit::{Sector, ZoneNo};
use crate::zone::ZONE_RECORD_LEN;

/// In [`Bio::result`] of a reset or finish on its way: strict mode has marked its zones, and it is listed (`guard/resets.rs`).
const MARKED: u32 = 1;
const LISTED: u32 = 2;

impl Lane {
    /// Checks a BIO of the rare kinds and sends it.
    pub(crate) fn other(&mut self, shared: &Shared, layout: &Layout, mut bio: Box<Bio>) {
        let checked = match bio.op {
            Op::Flush => Ok(()),
            Op::Read | Op::Write | Op::WriteZeroes => layout.check_write(&bio),
            Op::Discard => Self::check_discard(layout, &bio),
            Op::ZoneAppend => self.check_native_append(shared, layout, &bio),
            Op::ReportZones => self.check_report(shared, layout, &mut bio),
            Op::ZoneOpen | Op::ZoneClose | Op::ZoneFinish | Op::ZoneReset | Op::ZoneResetAll => {
                Self::check_management(shared, layout, &mut bio)
            }
        };
        if let Err(status) = checked {
            return self.reject(bio, status);
        }
        if planted(Bug::FlushSwallowed) && bio.op == Op::Flush {
            return self.intake.ended(bio);
        }
        #[cfg(feature = "trace")]
        if bio.op.is_zone_management() {
            let all = Self::resets_all(layout, &bio);
            let (sector, count) = match all {
                true => (0, layout.geometry.capacity().0),
                false => (bio.sector.0, u64::from(bio.len_sectors)),
            };
            super::trace::trace!(
                "zone-management",
                op = bio.op.name(),
                sector = sector,
                count = count
            );
        }
        if matches!(bio.op, Op::Write | Op::WriteZeroes | Op::Discard) {
            let (_, offset) = layout.geometry.zone_of(bio.sector);
            let end = u64::from(offset) + u64::from(bio.len_sectors);
            let max = if bio.op == Op::Discard { u32::MAX } else { layout.max_of(bio.op) };
            if bio.len_sectors > max || end > u64::from(layout.geometry.zone_sectors()) {
                return self.split_unordered(layout, bio);
            }
        }
        self.pass(layout, bio);
    }

    fn check_discard(layout: &Layout, bio: &Bio) -> Result<(), Status> {
        layout.check_write(bio)?;
        let (first, _) = layout.geometry.zone_of(bio.sector);
        let last = bio.sector.plus(u64::from(bio.len_sectors) - 1);
        let (last, _) = layout.geometry.zone_of(last);
        let conventional = (first.0..=last.0).all(|z| layout.geometry.is_conventional(ZoneNo(z)));
        if layout.limits.discard && conventional { Ok(()) } else { Err(Status::NotSupported) }
    }

    /// A native append is not plugged; from now on the layer does not know the zone's write pointer (A7, A8).
    fn check_native_append(
        &mut self,
        shared: &Shared,
        layout: &Layout,
        bio: &Bio,
    ) -> Result<(), Status> {
        if !layout.native_append {
            return Err(Status::NotSupported);
        }
        layout.check_write(bio)?;
        let (zone, offset) = layout.geometry.zone_of(bio.sector);
        if layout.geometry.is_conventional(zone) {
            return Err(Status::ConventionalZone);
        }
        if offset != 0 {
            return Err(Status::NotZoneStart);
        }
        if bio.len_sectors > layout.append_max {
            return Err(Status::AppendTooLarge);
        }
        if bio.flags.contains(Flags::NOWAIT) && self.idle_tags() == 0 {
            return Err(Status::WouldBlock);
        }
        if layout.plugs && !planted(Bug::NativeAppendTracked) {
            let (shard, i) = shared.shard(zone);
            if shard.plugs[i].is_managed() {
                return Err(Status::ZoneBusy);
            }
            drop(shard);
            // No report that was sent before this append says where the write pointer is after it (E6).
            let epoch = shared.epoch.fetch_add(1, Ordering::AcqRel).wrapping_add(1);
            let (mut shard, i) = shared.shard(zone);
            shard.forget_write_pointer(i, epoch, &mut self.aborted);
            drop(shard);
            if !self.aborted.is_empty() {
                self.abort_early(shared, layout);
            }
            if !shared.append_used.load(Ordering::Relaxed) {
                shared.append_used.store(true, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    /// A native append has ended: a report that was carried out while it was at the device says nothing of it (E6).
    fn forget_write_pointer(&mut self, shared: &Shared, layout: &Layout, cmd: &Command) {
        let (zone, _) = layout.geometry.zone_of(cmd.bios[0].sector);
        let epoch = shared.epoch.fetch_add(1, Ordering::AcqRel).wrapping_add(1);
        let (mut shard, i) = shared.shard(zone);
        shard.forget_write_pointer(i, epoch, &mut self.aborted);
        Self::note_given_up(shared, &mut shard, i, cmd);
        drop(shard);
        if !self.aborted.is_empty() {
            self.abort_early(shared, layout);
        }
    }

    /// Completes what the abort list holds while there is no list of done BIOs at hand.
    #[cold]
    fn abort_early(&mut self, shared: &Shared, layout: &Layout) {
        let mut done = Bios::new();
        self.abort_waiting(shared, layout, Status::AbortedBehind, &mut done);
        for mut bio in done {
            bio.in_flight = true;
            self.intake.ended(bio);
        }
    }

    fn check_report(&self, shared: &Shared, layout: &Layout, bio: &mut Bio) -> Result<(), Status> {
        if bio.sector.0 >= layout.geometry.capacity().0 {
            return Err(Status::OutOfRange);
        }
        if bio.flags.contains(Flags::NOWAIT) && self.idle_tags() == 0 {
            return Err(Status::WouldBlock);
        }
        let records = bio.data().len() as usize / ZONE_RECORD_LEN;
        if records == 0 || !(bio.data().len() as usize).is_multiple_of(ZONE_RECORD_LEN) {
            return Err(Status::BadBuffer);
        }
        // What the report will be compared with (E6): taken before it is sent.
        bio.result = shared.epoch.load(Ordering::Acquire);
        if bio.flags.contains(Flags::RESYNC) && layout.plugs {
            // An epoch of its own: the answer to an earlier resync may still be on its way.
            bio.result = shared.epoch.fetch_add(1, Ordering::AcqRel).wrapping_add(1);
            let (first, _) = layout.geometry.zone_of(bio.sector);
            let last =
                u64::from(layout.geometry.nr_zones()).min(u64::from(first.0) + records as u64);
            for z in first.0..last as u32 {
                let (mut shard, i) = shared.shard(ZoneNo(z));
                shard.plugs[i].begin_resync(bio.result);
            }
        }
        Ok(())
    }

    /// M1, M5, M6: whole zones, none of them conventional, and in strict mode none busy.
    fn check_management(shared: &Shared, layout: &Layout, bio: &mut Bio) -> Result<(), Status> {
        bio.result = 0;
        if layout.limits.read_only {
            return Err(Status::ReadOnlyDisk);
        }
        let g = &layout.geometry;
        let all = Self::resets_all(layout, bio);
        if !all {
            if !g.contains(bio.sector, bio.len_sectors) {
                return Err(Status::OutOfRange);
            }
            let (_, offset) = g.zone_of(bio.sector);
            let end = bio.sector.plus(u64::from(bio.len_sectors));
            if offset != 0 || (g.zone_of(end).1 != 0 && end != g.capacity()) {
                return Err(Status::NotZoneStart);
            }
        }
        let zones = Self::zones_of(layout, bio);
        if !all && zones.clone().any(|z| g.is_conventional(ZoneNo(z))) {
            return Err(Status::ConventionalZone);
        }
        if planted(Bug::ResetAtSubmission) && layout.plugs && bio.op == Op::ZoneReset {
            for z in zones.clone() {
                let (mut shard, i) = shared.shard(ZoneNo(z));
                shard.plugs[i].reset_write_pointer();
            }
        }
        if !layout.plugs || !Self::aborts(bio.op) {
            return Ok(());
        }
        if layout.config.strict_management {
            for z in zones.clone() {
                let (mut shard, i) = shared.shard(ZoneNo(z));
                if !shard.plugs[i].begin_management() {
                    drop(shard);
                    Self::unmark(shared, zones.start..z);
                    return Err(Status::ZoneBusy);
                }
            }
            bio.result = MARKED;
        }
        shared.resets.begin(zones);
        bio.result |= LISTED;
        Ok(())
    }

    /// Whether a management operation aborts the writes that wait for its zones.
    fn aborts(op: Op) -> bool {
        matches!(op, Op::ZoneReset | Op::ZoneResetAll | Op::ZoneFinish)
    }

    /// The zones of a management BIO that has been checked.
    fn zones_of(layout: &Layout, bio: &Bio) -> std::ops::Range<u32> {
        let g = &layout.geometry;
        if Self::resets_all(layout, bio) {
            return 0..g.nr_zones();
        }
        let (first, _) = g.zone_of(bio.sector);
        let (last, _) = g.zone_of(bio.sector.plus(u64::from(bio.len_sectors) - 1));
        first.0..last.0 + 1
    }

    /// A reset or finish is over: takes its marks away.
    fn end_management(shared: &Shared, layout: &Layout, cmd: &mut Command) {
        let bio = &mut cmd.bios[0];
        let (marks, ticket) = (std::mem::take(&mut bio.result), bio.late);
        if marks == 0 {
            return;
        }
        let zones = Self::zones_of(layout, bio);
        let all = cmd.op == Op::ZoneResetAll;
        let left = if all { zones.clone() } else { cmd.zone..zones.end };
        let sent = if all { zones.clone() } else { cmd.zone..cmd.zone + 1 };
        shared.resets.end(&left, (ticket != 0).then_some((sent, ticket)), &shared.late);
        if marks & MARKED != 0 {
            Self::unmark(shared, zones);
        }
    }

    /// Strict mode: writes may come again.
    fn unmark(shared: &Shared, zones: std::ops::Range<u32>) {
        for z in zones {
            let (mut shard, i) = shared.shard(ZoneNo(z));
            shard.plugs[i].end_management();
        }
    }

    /// A reset of exactly the whole disk is a reset of all zones (M1).
    fn resets_all(layout: &Layout, bio: &Bio) -> bool {
        bio.op == Op::ZoneResetAll
            || bio.op == Op::ZoneReset
                && bio.sector == Sector(0)
                && u64::from(bio.len_sectors) == layout.geometry.capacity().0
    }

    /// Shapes the command of a BIO that is not a read.
    pub(crate) fn prepare(layout: &Layout, bio: &Bio, cmd: &mut Command) {
        let g = &layout.geometry;
        match bio.op {
            Op::Write | Op::WriteZeroes => {
                let (zone, _) = g.zone_of(bio.sector);
                cmd.zone = zone.0;
            }
            Op::ZoneReset | Op::ZoneResetAll if Self::resets_all(layout, bio) => {
                // The BIO's own operation stays what it is.
                cmd.op = Op::ZoneResetAll;
                cmd.sector = Sector(0);
                cmd.len_sectors = 0;
            }
            Op::ZoneOpen | Op::ZoneClose | Op::ZoneFinish | Op::ZoneReset | Op::ZoneResetAll => {
                let (zone, _) = g.zone_of(bio.sector);
                cmd.zone = zone.0;
                cmd.len_sectors = g.zone_len_sectors(zone);
            }
            Op::ReportZones => {
                cmd.report.clear();
                cmd.report_max = bio.data().len() / ZONE_RECORD_LEN as u32;
                cmd.epoch = bio.result;
                cmd.len_sectors = 0;
            }
            Op::Read | Op::Flush | Op::Discard | Op::ZoneAppend => {}
        }
    }

    /// A command of the rare kinds has come back.
    #[cold]
    pub(crate) fn finished_other(
        &mut self,
        shared: &Shared,
        layout: &Layout,
        mut cmd: Box<Command>,
        done: &mut Bios,
    ) {
        if cmd.bios.is_empty() {
            if cmd.waits == Waits::Recovery {
                return self.zone_reported(shared, layout, cmd, done);
            }
            self.own_report.answered(cmd);
            return;
        }
        if cmd.op == Op::ZoneAppend && layout.plugs && !planted(Bug::NativeAppendTracked) {
            self.forget_write_pointer(shared, layout, &cmd);
        }
        if cmd.status.is_ok() {
            match cmd.op {
                Op::ZoneAppend => {
                    for bio in &mut cmd.bios {
                        bio.sector = cmd.sector;
                    }
                    #[cfg(feature = "trace")]
                    super::trace::appends(layout, &cmd.bios);
                }
                Op::ReportZones => self.reported(shared, layout, &mut cmd),
                op if op.is_zone_management() => {
                    self.managed(shared, layout, &cmd);
                    if self.next_zone(layout, &mut cmd) {
                        if cmd.bios[0].result & LISTED != 0 {
                            let end = Self::zones_of(layout, &cmd.bios[0]).end;
                            shared.resets.go_on(cmd.zone..end);
                        }
                        self.abort_waiting(shared, layout, Status::AbortedByManagement, done);
                        return self.out.push_back(cmd);
                    }
                }
                _ => {}
            }
        }
        // Devices reset all zones one by one: one that failed may have been preceded by others.
        let some = cmd.op == Op::ZoneResetAll && !cmd.status.is_ok();
        let unknown = matches!(cmd.status, Status::Timeout | Status::NoDevice);
        if (some || unknown) && cmd.slot != UNSENT {
            self.in_doubt(shared, layout, &cmd);
        }
        if Self::aborts(cmd.op) {
            Self::end_management(shared, layout, &mut cmd);
        }
        if !cmd.status.is_ok() && cmd.op == Op::ReportZones && cmd.status != Status::ZoneBusy {
            // The epoch was there.
            cmd.bios[0].result = 0;
        }
        self.settle_status(layout, &mut cmd);
        self.abort_waiting(shared, layout, Status::AbortedByManagement, done);
        self.deliver(shared, &mut cmd, done);
        self.tags.put(cmd);
    }

    /// The effect of a management command that succeeded (M2, M3).
    fn managed(&mut self, shared: &Shared, layout: &Layout, cmd: &Command) {
        if !layout.plugs {
            return;
        }
        let zone = ZoneNo(cmd.zone);
        match cmd.op {
            Op::ZoneReset => {
                let (mut shard, i) = shared.shard(zone);
                shard.reset(i, &mut self.aborted);
            }
            Op::ZoneFinish => {
                let len = layout.geometry.zone_len_sectors(zone);
                let (mut shard, i) = shared.shard(zone);
                shard.finish(i, len, &mut self.aborted);
            }
            Op::ZoneResetAll if planted(Bug::ResetAllKeepsPlugs) => {}
            Op::ZoneResetAll => {
                // Before the plugs: an append that comes meanwhile sets it again.
                shared.append_used.store(false, Ordering::Relaxed);
                for s in &shared.shards {
                    let mut shard = lock(&s.0);
                    for i in 0..shard.plugs.len() {
                        shard.reset(i, &mut self.aborted);
                    }
                }
            }
            _ => {}
        }
    }

    /// A reset or finish that may or may not have happened, or may happen yet, perhaps of some zones only: the write pointer is
    /// where a report says.
    #[cold]
    fn in_doubt(&mut self, shared: &Shared, layout: &Layout, cmd: &Command) {
        if !layout.plugs || !Self::aborts(cmd.op) {
            return;
        }
        let epoch = shared.epoch.fetch_add(1, Ordering::AcqRel).wrapping_add(1);
        let zones = match cmd.op {
            Op::ZoneResetAll => 0..layout.geometry.nr_zones(),
            _ => cmd.zone..cmd.zone + 1,
        };
        for z in zones {
            let (mut shard, i) = shared.shard(ZoneNo(z));
            shard.forget_write_pointer(i, epoch, &mut self.aborted);
        }
    }

    /// Moves a management command to the next zone of its range, if there is one.
    fn next_zone(&self, layout: &Layout, cmd: &mut Command) -> bool {
        if cmd.op == Op::ZoneResetAll {
            return false;
        }
        let next = cmd.sector.plus(u64::from(cmd.len_sectors));
        let end = cmd.bios[0].sector.plus(u64::from(cmd.bios[0].len_sectors));
        if next >= end {
            return false;
        }
        let len = layout.geometry.zone_len_sectors(ZoneNo(cmd.zone + 1));
        if planted(Bug::RangeStopsShort) && next.plus(u64::from(len)) >= end {
            return false;
        }
        cmd.sector = next;
        cmd.zone += 1;
        cmd.len_sectors = len;
        true
    }

    /// A report has come back: correct what it may correct, and give it to the client.
    fn reported(&mut self, shared: &Shared, layout: &Layout, cmd: &mut Command) {
        let resync = cmd.bios[0].flags.contains(Flags::RESYNC);
        let mut busy = false;
        if layout.plugs {
            busy = self.apply_report(shared, layout, cmd, resync);
        }
        let Command { bios, report, report_max, .. } = cmd;
        let bio = &mut bios[0];
        let nr = (*report_max).min(report.len() as u32);
        for (n, zone) in (0..nr).zip(report.iter()) {
            bio.data().copy_from(n * ZONE_RECORD_LEN as u32, &zone.encode());
        }
        bio.result = nr;
        if busy {
            cmd.status = Status::ZoneBusy;
        }
    }

    /// Lets the plugs see a report. The zone is found by its start, never by its place in the report (V9). Returns
    /// whether a resync met a busy zone.
    pub(crate) fn apply_report(
        &mut self,
        shared: &Shared,
        layout: &Layout,
        cmd: &Command,
        resync: bool,
    ) -> bool {
        let mut busy = false;
        for (n, info) in cmd.report.iter().enumerate() {
            let (zone, offset) = layout.geometry.zone_of(info.start);
            let zone = if planted(Bug::ReportByIndex) { ZoneNo(n as u32) } else { zone };
            if offset != 0
                || zone.0 >= layout.geometry.nr_zones()
                || info.zone_type != layout.geometry.zone_type(zone)
            {
                continue;
            }
            let (mut shard, i) = shared.shard(zone);
            let (epoch, mask) = (cmd.epoch, layout.write_mask());
            let moves = || shared.resets.move_zone(zone, &shared.late);
            let aborted = &mut self.aborted;
            if let Some(then) = shard.reported_meanwhile(i, info, epoch, mask, &moves, aborted) {
                if then == Then::InLine {
                    self.backlog.zone(zone);
                }
                continue;
            }
            busy |= shard.reported(i, info, cmd.epoch, resync, &mut self.aborted);
        }
        busy
    }
}
