//! Zone management, reports, and BIOs that must be refused.

use super::{Asked, World, trace};
use crate::class::Class;
use crate::memory::{append, bytes, op, read, write_as};
use std::sync::atomic::Ordering::Relaxed;
use zoneplug_core::disk::{DiskQueue, Mode};
use zoneplug_core::{Bio, Bios, Flags, Nanos, Op, Sector, Status, ZoneNo};
use zoneplug_devices::stack::{FaultAction, FaultRule, OpSet};

impl World {
    /// While the disk freezes, checks that a queue takes nothing, and polls.
    pub(super) fn submit_while_frozen(&mut self) {
        let q = self.rng.below(self.queues.len() as u32) as usize;
        if let Some(queue) = self.queues[q].as_mut() {
            let mut list = Bios::from([read(0, 1)]);
            assert_eq!(queue.submit(self.now, &mut list), 0);
            assert_eq!(list.len(), 1);
        }
        self.poll_round();
    }

    /// Resets, finishes, opens or closes one zone at rest.
    pub(super) fn manage(&mut self) {
        let z = self.any_zone();
        let zone = &self.zones[z];
        if zone.conventional || !zone.quiet() || zone.dead {
            return;
        }
        let what = self.rng.pick(&[
            Op::ZoneReset,
            Op::ZoneReset,
            Op::ZoneReset,
            Op::ZoneFinish,
            Op::ZoneOpen,
            Op::ZoneClose,
        ]);
        self.manage_zones(what, vec![z], true);
    }

    pub(super) fn manage_zones(&mut self, what: Op, zones: Vec<usize>, quiet: bool) {
        let Some(q) = self.queue_for(zones[0], 1) else { return };
        let again = what == Op::ZoneReset && quiet && self.rng.one_in(2);
        let (first, last) = (&self.zones[zones[0]], &self.zones[zones[zones.len() - 1]]);
        let len = (last.start - first.start) as u32 + last.len;
        let bio =
            if what == Op::ZoneResetAll { op(what, 0, 0) } else { op(what, first.start, len) };
        for &z in &zones {
            let zone = &mut self.zones[z];
            let turns = zone.last_queue.is_some_and(|w| w != q);
            zone.last_queue = Some(q);
            self.cover.0[Class::R4 as usize] += u64::from(turns && what == Op::ZoneReset);
            zone.managed += 1;
            zone.activity += 1;
            zone.generation += 1;
            if !quiet {
                zone.fuzzy = true;
                zone.failed = true;
                zone.unsure = true;
                zone.shadow.fill(None);
                zone.loose |= !self.strict;
                self.spoiled = true;
            }
        }
        let late_ended = zones.iter().map(|&z| self.zones[z].late_ended).sum();
        self.submit(q, vec![(bio, Asked::Manage { op: what, zones, quiet, again, late_ended })]);
    }

    pub(super) fn manage_many(&mut self) {
        let n = self.zones.len();
        let first = self.any_zone();
        let last = self.rng.range(first as u32, n as u32 - 1) as usize;
        let what = self.rng.pick(&[Op::ZoneReset, Op::ZoneResetAll, Op::ZoneFinish]);
        let zones: Vec<_> = if what == Op::ZoneResetAll {
            (0..n).filter(|&z| !self.zones[z].conventional).collect()
        } else {
            (first..=last).collect()
        };
        let ok = |&z: &usize| {
            let zone = &self.zones[z];
            zone.quiet() && !zone.conventional && !zone.dead
        };
        if zones.iter().all(ok) {
            self.manage_zones(what, zones, true);
        }
    }

    /// Resets or finishes a zone that has writes in flight (M4).
    pub(super) fn reset_in_flight(&mut self) {
        let z = self.any_zone();
        let zone = &self.zones[z];
        if self.mode == Mode::Plug && zone.writes > 0 && zone.orphans == 0 {
            let what = self.rng.pick(&[Op::ZoneReset, Op::ZoneFinish]);
            self.hit(Class::R9);
            self.manage_zones(what, vec![z], false);
        }
    }

    pub(super) fn report(&mut self) {
        let z = self.any_zone();
        self.report_of(z);
    }

    pub(super) fn report_of(&mut self, z: usize) {
        let Some(q) = self.queue_for(z, 1) else { return };
        let zone = &self.zones[z];
        let mut bio = Bio::with_buf(Op::ReportZones, Sector(zone.start), 0, bytes(64));
        let quiet = zone.quiet();
        if quiet && (zone.moved || zone.fuzzy || self.rng.one_in(4)) {
            bio.flags = Flags::RESYNC;
        }
        let activity = zone.activity;
        self.submit(q, vec![(bio, Asked::Report { zone: z, quiet, activity })]);
    }

    /// Submits one invalid BIO for a zone at rest. It fails with the status that says why, and changes nothing (W9).
    pub(super) fn submit_invalid(&mut self) {
        let z = self.any_zone();
        let zone = &self.zones[z];
        if zone.dead || zone.unsure || zone.fuzzy || !zone.quiet() || self.mode != Mode::Plug {
            return;
        }
        let Some(q) = self.queue_for(z, 1) else { return };
        let zone = &self.zones[z];
        let (g, at) = (self.grain, zone.start + u64::from(zone.wp));
        let (start, wp, cap, len) = (zone.start, zone.wp, zone.cap, zone.len);
        let conventional = zone.conventional;
        let last = self.zones.last().expect("a zone");
        let end = last.start + u64::from(last.len);
        let known = self.writes_to(z);
        let mut choices: Vec<(Box<Bio>, Status)> = vec![
            (write_as(end, g, 1), Status::OutOfRange),
            (write_as(start, 0, 1), Status::OutOfRange),
            (read(end, g), Status::OutOfRange),
            (op(Op::Write, start, g), Status::BadBuffer),
            (Bio::with_buf(Op::ReportZones, Sector(end), 0, bytes(64)), Status::OutOfRange),
            (Bio::new(Op::ReportZones, Sector(start), 0), Status::BadBuffer),
            (op(Op::ZoneReset, end, len), Status::OutOfRange),
            (op(Op::ZoneReset, start, 0), Status::OutOfRange),
        ];
        if len > 1 && !conventional {
            choices.push((op(Op::ZoneFinish, start + 1, 1), Status::NotZoneStart));
            choices.push((op(Op::Discard, start, g), Status::NotSupported));
        }
        if conventional {
            choices.push((append(start, g, 0), Status::ConventionalZone));
            choices.push((op(Op::ZoneReset, start, len), Status::ConventionalZone));
        } else if len > g {
            choices.push((append(start + u64::from(g), g, 0), Status::NotZoneStart));
        }
        if !conventional && known {
            if g > 1 {
                let inside = start + u64::from(wp.min(len - 1));
                choices.push((write_as(inside, 1, 1), Status::Unaligned));
            }
            if wp == cap {
                choices.push((write_as(start, g, 1), Status::ZoneFull));
                if !self.native {
                    choices.push((append(start, g, 0), Status::ZoneFull));
                }
            } else {
                let other = if wp == 0 { g } else { wp - g };
                if other < len && (g <= self.max_transfer) {
                    choices.push((
                        write_as(start + u64::from(other), g, 1),
                        Status::NotAtWritePointer,
                    ));
                }
                if cap < len {
                    choices.push((write_as(at, cap - wp + g, 1), Status::PastCapacity));
                }
            }
        }
        choices.extend(self.spanning(z));
        let i = self.rng.below(choices.len() as u32) as usize;
        let (mut bio, status) = choices.swap_remove(i);
        if status == Status::NotAtWritePointer {
            bio.flags = self.strictly_placed(bio.flags);
        }
        let before = format!("{:?}", self.disk.cached_zone(ZoneNo(z as u32)));
        let device = self.on_device(z);
        let mut statuses = vec![status];
        if known && self.is_native(z) && self.zones[z].late_ended > 0 {
            // The device has ended a command that was given up, and the layer may not have heard of it. Then it does
            // not know where the zone ends behind a native append (A7).
            statuses.push(Status::StaleWritePointer);
        }
        self.submit(q, vec![(bio, Asked::Bad { zone: z, first: wp == 0, statuses })]);
        assert_eq!(before, format!("{:?}", self.disk.cached_zone(ZoneNo(z as u32))), "W9");
        // The condition is not compared: a delayed command may have closed the zone implicitly.
        assert_eq!(device.wp, self.on_device(z).wp);
    }

    /// Makes a write that fits into zone `z` and not into the next; no part of it may be written (W4).
    fn spanning(&self, z: usize) -> Option<(Box<Bio>, Status)> {
        let (zone, next) = (&self.zones[z], self.zones.get(z + 1)?);
        let sure = !(next.unsure || next.fuzzy || next.dead || next.conventional) && next.quiet();
        let whole = !zone.conventional && zone.cap == zone.len && zone.wp < zone.cap;
        if self.native || !sure || !whole || next.wp == 0 || next.len < self.grain {
            return None;
        }
        let status = if next.wp == next.cap { Status::ZoneFull } else { Status::NotAtWritePointer };
        let len = zone.cap - zone.wp + self.grain;
        Some((write_as(zone.start + u64::from(zone.wp), len, 1), status))
    }

    /// Resets a zone whose write waits for a tag, in a queue whose reads take long. After the aborted write has come
    /// back the zone is free, although it may still be in that queue's line (M5).
    pub(super) fn reset_in_line(&mut self) {
        let z = self.any_zone();
        let zone = &self.zones[z];
        let ready = zone.quiet() && !(zone.conventional || zone.unsure || zone.fuzzy || zone.dead);
        if !ready || zone.wp >= zone.cap || self.gone || self.mode != Mode::Plug || self.native {
            return;
        }
        let n = self.rng.range(1, 5);
        let Some(q) = self.queue_for(z, n + 2) else { return };
        let mut rule = FaultRule::next(OpSet::of(&[Op::Read]), FaultAction::Delay(Nanos(9000)));
        rule.count = Some(u64::from(n));
        self.add_fault(rule);
        self.attribute("strict_management", "0");
        let (reads, grain) = (Asked::Read { expect: Vec::new(), crowded: false }, self.grain);
        let mut batch: Vec<_> = (0..n).map(|_| (read(0, grain), reads.clone())).collect();
        batch.push(self.make_write(z, grain));
        self.submit(q, batch);
        self.manage_zones(Op::ZoneReset, vec![z], false);
        for _ in 0..6 {
            self.poll_round();
        }
        if self.zones[z].quiet() && !self.is_freezing() {
            self.attribute("strict_management", "1");
            self.manage_zones(Op::ZoneReset, vec![z], true);
        }
    }

    /// Delays a report, and lets a write that was sent after it fail and leave some of its data (E6).
    pub(super) fn slow_report(&mut self) {
        let z = self.any_zone();
        let zone = &self.zones[z];
        let ready = zone.quiet() && !(zone.conventional || zone.unsure || zone.fuzzy || zone.dead);
        if !ready || self.gone || self.mode != Mode::Plug {
            return;
        }
        let delay = FaultAction::Delay(Nanos(u64::from(self.rng.range(500, 4000))));
        let torn = FaultAction::Torn(self.rng.pick(&[Status::Io, Status::Medium]), None);
        for (op, action) in [(Op::ReportZones, delay), (Op::Write, torn)] {
            let mut rule = FaultRule::next(OpSet::of(&[op]), action);
            rule.zone = Some(self.below_zone(z) as u32);
            self.add_fault(rule);
        }
        self.report_of(z);
        self.write_to(z);
    }

    /// Submits a misplaced write behind writes in flight: only the misplaced one fails.
    pub(super) fn submit_invalid_behind_writes(&mut self) {
        let z = self.any_zone();
        let zone = &self.zones[z];
        let busy = zone.writes > 0 && zone.managed == 0 && zone.orphans == 0 && !zone.conventional;
        if !busy || zone.unsure || zone.fuzzy || zone.dead || self.mode != Mode::Plug || self.native
        {
            return;
        }
        let Some(q) = self.queue_for(z, 1) else { return };
        let zone = &self.zones[z];
        // After an error the zone may go on from where it failed, but never from further ahead.
        let fails = self.has_faults || self.limited;
        let offset = if zone.wp >= 2 * self.grain && !fails {
            zone.wp - 2 * self.grain
        } else if zone.wp + self.grain < zone.cap {
            zone.wp + self.grain
        } else {
            return;
        };
        use Status as S;
        let mut statuses =
            vec![S::NotAtWritePointer, S::StaleWritePointer, S::ZoneReadOnly, S::ZoneOffline];
        if zone.wp == zone.cap {
            statuses.push(S::ZoneFull);
        }
        if fails {
            // The write pointer may be back at that place, or a report may have found the zone full.
            statuses.extend([S::ZoneFull, S::PastCapacity]);
        }
        let mut bio = write_as(zone.start + u64::from(offset), self.grain, 1);
        bio.flags = self.strictly_placed(bio.flags);
        self.submit(q, vec![(bio, Asked::Bad { zone: z, first: false, statuses })]);
    }

    /// Reads the zones again, and the layout if it has changed.
    pub(super) fn revalidate(&mut self) {
        let open: Vec<_> = (0..self.queues.len()).filter(|&q| self.queues[q].is_some()).collect();
        let q = self.rng.pick(&open);
        trace!(self, "  revalidate through queue {q}");
        self.seam.asked_only.store(false, Relaxed);
        self.revalidation = Some((self.disk.revalidate(), q, !self.outstanding.is_empty()));
    }

    /// Tests a write that provably did nothing and ends before or after a reset. The write pointer of the reset
    /// counts (M4).
    pub(super) fn undo_around_reset(&mut self) {
        let z = self.any_zone();
        let zone = &self.zones[z];
        let ready = zone.quiet() && !(zone.conventional || zone.unsure || zone.fuzzy || zone.dead);
        if !ready || zone.wp == 0 || zone.wp >= zone.cap || self.mode != Mode::Plug {
            return;
        }
        if self.native || self.gone || self.is_freezing() || self.config.timeout.is_some() {
            return;
        }
        let (at, start, len) = (zone.start + u64::from(zone.wp), zone.start, zone.len);
        let Some(w) = self.queue_for(z, 1) else { return };
        let Some(m) = (0..self.queues.len())
            .find(|&q| q != w && self.queues[q].as_ref().is_some_and(|q| q.room() > 0))
        else {
            return;
        };
        self.drain();
        self.faults.clear();
        let mut rule =
            FaultRule::next(OpSet::of(&[Op::Write]), FaultAction::Fail(Status::OpenLimit));
        rule.zone = Some(self.below_zone(z) as u32);
        trace!(self, "  fault {rule}");
        (self.has_faults, self.troubles) = (true, self.troubles + 1);
        self.faults.add(rule);
        if !self.zones[z].quiet() || self.zones[z].unsure {
            return;
        }
        let stamp = self.stamp(self.grain);
        let bad = |statuses| Asked::Bad { zone: z, first: false, statuses };
        let write = write_as(at, self.grain, stamp);
        let refused = vec![Status::OpenLimit, Status::AbortedByManagement];
        self.submit(w, vec![(write, bad(refused))]);
        let done = vec![Status::Ok, Status::ZoneBusy];
        let token = self.next_token;
        self.submit(m, vec![(op(Op::ZoneReset, start, len), bad(done))]);
        if self.rng.one_in(2) {
            // The writer looks only after the reset has ended.
            for _ in 0..6 {
                self.poll(m);
                let next = self.queues[m].as_ref().and_then(DiskQueue::next_deadline);
                self.now = next.unwrap_or(self.now).max(self.now);
            }
        }
        self.drain();
        self.faults.clear();
        let info = self.on_device(z);
        let zone = &mut self.zones[z];
        zone.activity += 1;
        zone.generation += 1;
        zone.failed = true;
        let cached = self.disk.cached_zone(ZoneNo(z as u32)).expect("M4: nothing made it stale");
        assert_eq!(
            cached.wp, info.wp,
            "M4: an undo belongs to its generation: bio {token}, zone {z}"
        );
        if info.wp == zoneplug_core::Sector(start) {
            zone.shadow.fill(None);
            (zone.wp, zone.durable) = (0, 0);
        }
    }
}
