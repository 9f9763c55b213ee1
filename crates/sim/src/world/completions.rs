//! The conclusions that a client draws from a BIO that has come back.

use super::{Asked, World, trace};
use crate::class::Class;
use crate::memory::{first_record, stamps};
use zoneplug_core::disk::Mode;
use zoneplug_core::{Bio, Flags, Op, Status, ZoneNo};

impl World {
    pub(super) fn completed(&mut self, q: usize, bio: Box<Bio>) {
        trace!(self, "  done {} at {}: {}", bio.token(), bio.sector.0, bio.status);
        let o = self.outstanding.remove(&bio.token()).expect("I7: a BIO completes exactly once");
        assert_eq!(o.queue, q, "it comes back through its own queue");
        if bio.status == Status::Timeout && self.late > 0 && self.faults.counts().lost > 0 {
            self.hit(Class::Lost);
        }
        if !bio.status.is_ok() {
            self.seen.insert(bio.status);
            // If several parts fail, the status is that of one of them.
            let z = self.zones.iter().rposition(|z| z.start <= bio.sector.0).unwrap_or(0);
            let end = self.zones[z].start + u64::from(self.zones[z].len);
            self.hidden |= bio.len_sectors > self.grain
                && (bio.len_sectors > self.max_transfer || bio.end().is_none_or(|e| e.0 > end));
            self.hidden |= bio.op == Op::WriteZeroes;
        }
        self.check_promise(&bio);
        if !matches!(o.asked, Asked::Bad { .. }) {
            self.check_result(&bio);
        }
        match o.asked {
            Asked::Write { parts, stamp } => self.wrote(&bio, parts, stamp),
            Asked::Append { zone, generation, at, len, stamp } => {
                self.appended(&bio, zone, generation, at, len, stamp);
            }
            Asked::Read { expect, crowded } => {
                if crowded && bio.status.is_ok() {
                    self.hit(Class::R37);
                }
                self.was_read(&bio, &expect);
            }
            Asked::Manage { op, zones, quiet, again, late_ended } => {
                assert_eq!(bio.op, op, "the engine never changes a BIO's operation");
                let late_between =
                    late_ended != zones.iter().map(|&z| self.zones[z].late_ended).sum::<u64>();
                self.managed(&bio, &zones, quiet, late_between);
                if again && bio.status.is_ok() && zones.len() == 1 && !self.is_freezing() {
                    // The client continues directly from the completion (CODE-4).
                    self.hit(Class::R45);
                    self.write_to(zones[0]);
                }
            }
            Asked::Report { zone, quiet, activity } => self.reported(&bio, zone, quiet, activity),
            Asked::Flush { covers } => self.flushed(&bio, &covers),
            Asked::Early { zone, due } => self.early_ended(&bio, zone, due),
            Asked::Bad { zone, first, statuses } => {
                let gone = self.gone && bio.status == Status::NoDevice;
                assert!(statuses.contains(&bio.status) || gone, "not {statuses:?}: {bio:?}");
                if bio.op == Op::ZoneAppend {
                    self.hit(Class::R26);
                }
                if bio.status == Status::NotAtWritePointer {
                    let behind = self.zones[zone].writes > 0;
                    self.hit(if first { Class::R1 } else { Class::R2 });
                    self.cover.0[Class::R2 as usize] += u64::from(first && behind);
                }
            }
        }
        if self.tags[q] == 1 && self.queues[q].as_ref().is_some_and(|q| q.outstanding() > 1) {
            self.hit(Class::R19);
        }
    }

    fn flushed(&mut self, bio: &Bio, covers: &[(usize, u64, u32)]) {
        if !bio.status.is_ok() {
            assert!(self.has_faults, "{bio:?}");
            return;
        }
        for &(z, generation, reach) in covers {
            let zone = &mut self.zones[z];
            if zone.generation != generation {
                continue;
            }
            if !zone.conventional {
                zone.durable = zone.durable.max(reach);
            } else if reach == 1 {
                zone.firm = Some(generation);
            }
        }
    }

    /// Updates the zone after a failed write.
    fn note_failure(&mut self, z: usize, status: Status) {
        use Status as S;
        match status {
            S::AbortedBehind => self.hit(Class::R10),
            S::AbortedByManagement => self.hit(Class::R7),
            S::WouldBlock => self.hit(Class::R18),
            S::ZoneReadOnly | S::ZoneOffline => self.hit(Class::R32),
            S::OpenLimit | S::ActiveLimit => self.zones[z].limit_hit = true,
            S::NoDevice => self.hit(Class::R17),
            S::Io | S::Medium | S::ShortTransfer | S::Timeout => {
                self.zones[z].fault_hit = true;
                if self.is_freezing() {
                    self.hit(Class::R11);
                }
            }
            _ => {}
        }
    }

    /// Updates the zone after a write that succeeded.
    fn note_success(&mut self, z: usize, bio: &Bio) {
        let flags = bio.flags;
        if flags.contains(Flags::FUA) || flags.contains(Flags::PREFLUSH) {
            self.hit(Class::R20);
        }
        let zone = &mut self.zones[z];
        if std::mem::take(&mut zone.limit_hit) {
            self.hit(Class::R33);
        }
        let zone = &mut self.zones[z];
        if std::mem::take(&mut zone.fault_hit) {
            self.hit(Class::R15);
        }
    }

    /// Returns whether a write to `z` may fail.
    fn excused(&self, z: usize) -> bool {
        let zone = &self.zones[z];
        self.has_faults || self.limited || zone.failed || zone.fuzzy || zone.dead || zone.crossed
    }

    fn wrote(&mut self, bio: &Bio, parts: Vec<(usize, u64, u32, u32)>, stamp: Option<u64>) {
        if !bio.status.is_ok() {
            assert!(parts.iter().any(|p| self.excused(p.0)), "{bio:?} {parts:?}");
            let zones: Vec<_> = parts.iter().map(|p| p.0).collect();
            let len = parts.iter().map(|p| u64::from(p.3)).sum();
            self.check_reason(bio, &zones, stamp.map(|s| (s, len)));
            zones.iter().for_each(|&z| self.note_late(z, bio.late().is_some()));
            self.check_failure(bio, parts.iter().any(|p| self.zones[p.0].dead));
            self.check_cause(bio, stamp);
            self.note_failure(parts[0].0, bio.status);
        } else {
            self.note_success(parts[0].0, bio);
            if std::mem::take(&mut self.zones[parts[0].0].appended) {
                self.hit(Class::AppendThenWrite);
            }
            if parts.len() > 1 {
                self.hit(if self.mode == Mode::Lock { Class::LockSpan } else { Class::R21 });
                self.split = true;
            } else if bio.op == Op::Write && bio.len_sectors > self.max_transfer {
                self.hit(Class::R22);
                self.split = true;
            }
        }
        let fua = bio.flags.contains(Flags::FUA);
        let mut at = 0;
        let several = u32::from(parts.len() > 1);
        for (z, generation, offset, len) in parts {
            let zone = &mut self.zones[z];
            zone.writes -= 1;
            zone.spans -= several;
            zone.half |= several > 0 && !bio.status.is_ok();
            if !bio.status.is_ok() {
                zone.unsure |= !zone.conventional;
                zone.failed = true;
            } else if zone.generation == generation && !zone.fuzzy {
                let stamps = (at..at + len).map(|i| stamp.map_or(0, |s| s + u64::from(i)));
                zone.acknowledged(offset, stamps);
                if fua && !zone.conventional {
                    zone.durable = zone.durable.max(offset + len);
                }
            }
            at += len;
            self.uncross(z);
        }
    }

    /// If the zone is at rest and none of its commands has failed, appends and writes that were in flight at a time
    /// have all succeeded, and the next write must succeed too.
    fn uncross(&mut self, z: usize) {
        let zone = &mut self.zones[z];
        if zone.crossed && zone.quiet() && !zone.unsure {
            zone.crossed = false;
            self.hit(Class::AppendBesideWrite);
        }
    }

    fn appended(&mut self, bio: &Bio, z: usize, generation: u64, at: u32, len: u32, stamp: u64) {
        if !bio.status.is_ok() {
            assert!(self.excused(z), "{bio:?}");
            self.check_reason(bio, &[z], (!self.native).then_some((stamp, u64::from(len))));
            self.note_late(z, bio.late().is_some());
            self.check_failure(bio, self.zones[z].dead);
            self.note_failure(z, bio.status);
            self.zones[z].append_failed = true;
        } else {
            self.note_success(z, bio);
            if self.native {
                let cached = self.disk.cached_zone(ZoneNo(z as u32));
                assert!(cached.is_err(), "A8: after a native append: {cached:?}");
                self.hit(Class::R28);
            } else if self.zones[z].queues.count_ones() > 1 {
                self.hit(Class::R25);
            }
            if std::mem::take(&mut self.zones[z].append_failed) {
                self.hit(Class::R27);
            }
        }
        let native = self.native;
        let zone = &mut self.zones[z];
        zone.writes -= 1;
        zone.appends -= u32::from(native);
        zone.appended = native && bio.status.is_ok();
        assert_eq!(bio.op, Op::ZoneAppend, "A3");
        if !bio.status.is_ok() {
            assert_eq!(bio.sector.0, zone.start, "a failed append reports no sector");
            (zone.unsure, zone.failed) = (true, true);
            return;
        }
        let offset = bio.sector.0.checked_sub(zone.start).expect("in the zone") as u32;
        assert!(offset + len <= zone.cap, "A4: {bio:?}");
        if zone.generation == generation && !zone.fuzzy {
            zone.acknowledged(offset, stamp..stamp + u64::from(len));
            if bio.flags.contains(Flags::FUA) {
                zone.durable = zone.durable.max(offset + len);
            }
        }
        if !native {
            let generation = zone.generation;
            self.appends.push((z, generation, at, offset));
        }
        self.uncross(z);
    }

    /// Checks that the status of a failed write makes sense.
    fn check_failure(&self, bio: &Bio, dead: bool) {
        use Status as S;
        let s = bio.status;
        if self.mode != Mode::Plug {
            return;
        }
        let own = matches!(s, S::StaleWritePointer | S::NotAtWritePointer | S::AbortedBehind);
        let device = matches!(s, S::Io | S::Medium | S::Timeout | S::ShortTransfer | S::NoDevice);
        let limit = matches!(s, S::OpenLimit | S::ActiveLimit);
        let spoiled = matches!(
            s,
            S::AbortedByManagement
                | S::UnalignedWrite
                | S::ZoneFull
                | S::PastCapacity
                | S::Boundary
                | S::InvalidTransition
        );
        let gone = matches!(s, S::ZoneReadOnly | S::ZoneOffline | S::AbortedByManagement);
        // After a torn write that its client has not been told of, an append starts in the middle of a
        // block. So does a write at a write pointer that a report has named.
        let inside = !bio.sector.0.is_multiple_of(u64::from(self.grain));
        let torn = match s {
            S::InvalidField => bio.op == Op::ZoneAppend,
            S::Unaligned => inside,
            _ => false,
        } && self.spoiled_blocks;
        let ok = own
            || torn
            || device && self.has_faults
            || limit && (self.limited || self.has_faults)
            || spoiled
            || gone && (dead || self.spoiled);
        assert!(ok, "{bio:?}");
    }

    fn was_read(&mut self, bio: &Bio, expect: &[(usize, u64, Option<u64>)]) {
        let nowait = bio.flags.contains(Flags::NOWAIT) && bio.status == Status::WouldBlock;
        if nowait {
            self.hit(Class::R18);
        }
        if !bio.status.is_ok() {
            let dead = expect.iter().any(|e| self.zones[e.0].dead);
            assert!(self.has_faults || dead || nowait, "{bio:?}");
            return;
        }
        for (i, (found, (z, generation, stamp))) in stamps(bio.data()).zip(expect).enumerate() {
            let zone = &self.zones[*z];
            if let Some(s) = stamp
                && zone.generation == *generation
                && !zone.dead
            {
                assert_eq!(found, *s, "sector {i} of {bio:?}: zone {z}");
            }
        }
    }

    /// Updates the zones after a management command. `late_between`: a command that the layer had given up was
    /// carried out meanwhile.
    fn managed(&mut self, bio: &Bio, zones: &[usize], quiet: bool, late_between: bool) {
        let ok = bio.status.is_ok();
        let changes = matches!(bio.op, Op::ZoneReset | Op::ZoneResetAll | Op::ZoneFinish);
        // A reset of all zones goes to the device as such, even if only one zone is sequential.
        let whole = bio.op == Op::ZoneResetAll
            || u64::from(bio.len_sectors) == self.disk.geometry().capacity().0;
        for &z in zones {
            if !ok {
                self.note_late(z, bio.late().is_some());
            }
            let next_stamp = self.next_stamp;
            let zone = &mut self.zones[z];
            zone.managed -= 1;
            if !changes {
                continue;
            }
            let late_between = late_between || zone.may_change;
            if late_between {
                // The order of this command and the one that was given up is unknown.
                zone.shadow.fill(None);
                (zone.unsure, zone.failed, zone.moved, zone.mixed) = (true, true, true, true);
                zone.durable = 0;
                zone.fuzzy |= !ok;
            }
            let unknown = matches!(bio.status, Status::NoDevice | Status::Timeout);
            if !ok && (zones.len() > 1 || whole || unknown) {
                // Some zones were reset or finished, or all of them were in spite of the status.
                zone.shadow.fill(None);
                zone.durable = 0;
                (zone.unsure, zone.failed, zone.half) = (true, true, true);
            }
            if ok && bio.op != Op::ZoneFinish {
                zone.durable = 0;
            }
            if ok && quiet && zone.quiet() && !late_between {
                let reset = bio.op != Op::ZoneFinish;
                zone.wp = if reset { 0 } else { zone.cap };
                (zone.unsure, zone.moved) = (false, false);
                if reset {
                    zone.shadow.fill(None);
                    (zone.fuzzy, zone.mixed, zone.born) = (false, false, next_stamp);
                }
                self.settled(z);
            }
        }
        if ok && changes && self.shuffled.is_some_and(|z| zones.contains(&z)) {
            let window = self.disk.counters().window;
            assert_eq!(window.writes, 0, "H8: zone {zones:?} was reset or finished: {window:?}");
            self.hit(Class::EarlyRestart);
        }
        if !ok && changes {
            self.hit(Class::R8);
        }
        if !ok && quiet {
            let dead = zones.iter().any(|&z| self.zones[z].dead);
            let open = matches!(bio.op, Op::ZoneOpen | Op::ZoneClose);
            assert!(bio.status != Status::ZoneBusy, "M5: nothing is in flight: {bio:?}");
            assert!(self.has_faults || self.limited || dead || open, "{bio:?}");
        }
    }

    fn reported(&mut self, bio: &Bio, z: usize, quiet: bool, activity: u64) {
        if !bio.status.is_ok() {
            assert!(self.has_faults || bio.status == Status::ZoneBusy, "{bio:?}");
            if bio.status != Status::ZoneBusy {
                assert_eq!(bio.result, 0, "a report that failed describes nothing");
            }
            return;
        }
        let info = first_record(bio);
        let zone = &mut self.zones[z];
        if zone.unsure
            && zone.activity != activity
            && self.disk.cached_zone(ZoneNo(z as u32)).is_err()
        {
            self.cover.0[Class::R14 as usize] += 1;
        }
        let changed = zone.activity != activity || zone.may_change;
        if zone.conventional || !quiet || !zone.quiet() || changed || zone.dead {
            return;
        }
        let resync = bio.flags.contains(Flags::RESYNC);
        if (zone.moved || zone.fuzzy) && !resync {
            return;
        }
        zone.wp = zone.write_pointer_of(&info);
        if !zone.wp.is_multiple_of(self.grain) {
            // The write was torn.
            zone.unsure = true;
            return self.reset_torn_zone(z);
        }
        if zone.moved && resync {
            self.cover.0[Class::R43 as usize] += 1;
        }
        self.recovered += u64::from(zone.unsure);
        (zone.unsure, zone.moved) = (false, false);
        self.settled(z);
        if self.mode == Mode::Plug && !self.native {
            let cached =
                self.disk.cached_zone(ZoneNo(z as u32)).expect("E4: the report cleared it");
            assert_eq!(cached.wp, info.wp, "E4: {:?}", self.zones[z]);
            self.hit(Class::R29);
        }
    }
}
