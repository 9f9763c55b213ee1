//! What a client does next.

use super::common::*;
use super::world::{Asked, World};
use zoneplug_core::disk::Mode;
use zoneplug_core::emu::Fault;
use zoneplug_core::zone::Condition;
use zoneplug_core::{Bio, Bios, Flags, IoBuf, Op, Sector, Status, ZoneNo};

impl World {
    pub(crate) fn act(&mut self) {
        if self.freeze.is_some() || self.revalidation.is_some() {
            return self.knock();
        }
        match self.rng.below(100) {
            0..=44 => self.write(),
            45..=54 => self.read(),
            55..=60 => self.manage(),
            61..=62 => self.manage_many(),
            63..=64 => self.reset_in_flight(),
            65..=70 => self.bad(),
            71..=74 => self.report(),
            75..=76 => {
                if let Some(q) = self.queue_for(0, 1) {
                    self.submit(q, vec![(Bio::new(Op::Flush, Sector(0), 0), Asked::Flush)]);
                }
            }
            77..=80 => self.fault(),
            81..=82 => self.dev.force_busy(u64::from(self.rng.range(1, 3))),
            83..=84 => self.freeze = Some(self.disk.begin_freeze()),
            85 => self.drop_queue(),
            86..=87 => {
                let on = if self.rng.one_in(2) { "1" } else { "0" };
                let name = self.rng.pick(&["nomerges", "strict_management"]);
                self.disk.set_attribute(name, on).expect("a writable attribute");
            }
            88..=89 => {
                let open: Vec<_> =
                    (0..self.queues.len()).filter(|&q| self.queues[q].is_some()).collect();
                let q = self.rng.pick(&open);
                self.revalidation = Some((self.disk.revalidate(), q));
            }
            90..=91 => self.out_of_band(),
            92 => self.kill_zone(),
            _ => {
                self.poll_round();
            }
        }
    }

    /// A frozen disk takes nothing, and leaves the list alone.
    fn knock(&mut self) {
        let q = self.rng.below(self.queues.len() as u32) as usize;
        if let Some(queue) = self.queues[q].as_mut() {
            let mut list = Bios::from([read(0, 1)]);
            assert_eq!(queue.submit(self.now, &mut list), 0);
            assert_eq!(list.len(), 1);
        }
        self.poll_round();
    }

    /// A queue with room for `n`. With zone locks, order is a promise of one queue: the zone's.
    fn queue_for(&mut self, zone: usize, n: u32) -> Option<usize> {
        let all = self.queues.len();
        let first = match self.mode {
            Mode::Lock => zone % all,
            _ => self.rng.below(all as u32) as usize,
        };
        let fits = |q: &usize| self.queues[*q].as_ref().is_some_and(|q| q.room() >= n);
        let others = if self.mode == Mode::Lock { 1 } else { all };
        (0..others).map(|i| (first + i) % all).find(fits)
    }

    fn stamp(&mut self, sectors: u32) -> u64 {
        self.next_stamp += u64::from(sectors);
        self.next_stamp - u64::from(sectors)
    }

    fn any_zone(&mut self) -> usize {
        self.rng.below(self.zones.len() as u32) as usize
    }

    fn flags(&mut self) -> Flags {
        let mut f = Flags::NONE;
        for flag in [Flags::FUA, Flags::PREFLUSH, Flags::NOMERGE] {
            if self.rng.one_in(8) {
                f = f.with(flag);
            }
        }
        if self.mode == Mode::Plug && self.rng.one_in(8) {
            f = f.with(Flags::NOWAIT);
        }
        f
    }

    fn write(&mut self) {
        let z = self.any_zone();
        if self.zones[z].conventional {
            return self.write_conventional(z);
        }
        let zone = &self.zones[z];
        if zone.managed > 0 || zone.orphans > 0 {
            return;
        }
        if zone.unsure {
            if zone.quiet() && !self.rng.one_in(4) {
                return self.report_of(z);
            }
            if !self.rng.one_in(8) {
                return;
            }
            self.spoiled |= zone.moved || zone.fuzzy;
        }
        let zone = &self.zones[z];
        if self.mode == Mode::None && zone.writes > 0 {
            return;
        }
        if self.mode == Mode::Plug && !self.native && self.rng.one_in(8) {
            return self.write_spanning(z);
        }
        let appends = if self.native { z.is_multiple_of(2) } else { self.mode == Mode::Plug };
        let writes = !self.native || !z.is_multiple_of(2);
        let n = if self.mode == Mode::None { 1 } else { self.rng.range(1, 5) };
        // One more for a report.
        let Some(q) = self.queue_for(z, n + 1) else { return };
        let mut batch = Vec::new();
        for _ in 0..n {
            let zone = &self.zones[z];
            let left = (zone.cap - zone.wp) / self.grain;
            if left == 0 {
                break;
            }
            let append = appends && (!writes || self.rng.one_in(3));
            let mut max = left.min(20);
            if append {
                let limit = self.dev.config().limits.zone_append_max_sectors;
                let limit = if self.native { limit } else { u32::MAX };
                max = max.min(limit.min(self.max_transfer).min(self.zones[0].len) / self.grain);
            } else if self.mode == Mode::None || self.rng.one_in(2) {
                max = max.min(self.max_transfer / self.grain);
            }
            let len = self.grain * self.rng.range(1, max);
            batch.push(if append { self.make_append(z, len) } else { self.make_write(z, len) });
        }
        if batch.is_empty() {
            return;
        }
        // A report that the write overtakes, if it fails: its answer is old (E6).
        if self.rng.one_in(5) {
            self.report_of(z);
        }
        self.submit(q, batch);
        if self.rng.one_in(5) {
            self.report_of(z);
        }
    }

    /// A write, or write-zeroes, at the write pointer of `z`.
    fn make_write(&mut self, z: usize, len: u32) -> (Box<Bio>, Asked) {
        let flags = self.flags();
        let zeroes = self.dev.config().limits.max_write_zeroes_sectors;
        // Without an order, what has to be cut cannot be sent.
        let fits = self.mode != Mode::None || len <= zeroes;
        let zeroes = zeroes >= self.grain && fits && self.rng.one_in(6);
        let stamp = self.stamp(len);
        let zone = &mut self.zones[z];
        let (sector, offset) = (zone.start + u64::from(zone.wp), zone.wp);
        zone.writes += 1;
        zone.wp += len;
        zone.activity += 1;
        let parts = vec![(z, zone.generation, offset, len)];
        let mut bio =
            if zeroes { op(Op::WriteZeroes, sector, len) } else { write_as(sector, len, stamp) };
        bio.flags = flags;
        (bio, Asked::Write { parts, stamp: (!zeroes).then_some(stamp) })
    }

    fn make_append(&mut self, z: usize, len: u32) -> (Box<Bio>, Asked) {
        let mut flags = self.flags();
        if self.native {
            flags = Flags(flags.0 & !Flags::NOWAIT.0);
        }
        let stamp = self.stamp(len);
        let zone = &mut self.zones[z];
        let mut bio = append(zone.start, len, stamp);
        bio.flags = flags;
        let asked = Asked::Append { zone: z, generation: zone.generation, at: zone.wp, len, stamp };
        zone.writes += 1;
        zone.wp += len;
        zone.activity += 1;
        (bio, asked)
    }

    /// From the write pointer of a zone that is writable to its end into the next, and perhaps on.
    fn write_spanning(&mut self, z: usize) {
        let mut parts = Vec::new();
        let mut total = 0;
        let mut at = z;
        while let Some(zone) = self.zones.get(at) {
            let offset = if at == z { zone.wp } else { 0 };
            let ready = !zone.unsure && !zone.dead && zone.managed == 0 && zone.orphans == 0;
            let at_wp = if zone.conventional { zone.writes == 0 } else { zone.wp == offset };
            if !ready || !at_wp || offset == zone.cap {
                break;
            }
            let whole = zone.cap == zone.len && at + 1 < self.zones.len() && parts.len() < 3;
            let blocks = (zone.cap - offset) / self.grain;
            let len =
                if whole { zone.cap - offset } else { self.grain * self.rng.range(1, blocks) };
            parts.push((at, self.zones[at].generation, offset, len));
            total += len;
            at += 1;
            if !whole {
                break;
            }
        }
        let Some(q) = self.queue_for(z, 1) else { return };
        if parts.is_empty() {
            return;
        }
        let stamp = self.stamp(total);
        for (z, generation, offset, len) in &mut parts {
            let zone = &mut self.zones[*z];
            zone.writes += 1;
            zone.activity += 1;
            if zone.conventional {
                zone.generation += 1;
                *generation += 1;
                zone.shadow[*offset as usize..(*offset + *len) as usize].fill(None);
            } else {
                zone.wp += *len;
            }
        }
        let sector = self.zones[z].start + u64::from(parts[0].2);
        let mut bio = write_as(sector, total, stamp);
        bio.flags = self.flags();
        self.submit(q, vec![(bio, Asked::Write { parts, stamp: Some(stamp) })]);
    }

    fn write_conventional(&mut self, z: usize) {
        if self.zones[z].writes > 0 || self.zones[z].orphans > 0 {
            return;
        }
        let Some(q) = self.queue_for(z, 1) else { return };
        let blocks = self.zones[z].len / self.grain;
        let first = self.rng.below(blocks);
        let (offset, len) =
            (first * self.grain, self.rng.range(1, (blocks - first).min(20)) * self.grain);
        let stamp = self.stamp(len);
        let zone = &mut self.zones[z];
        zone.writes += 1;
        zone.generation += 1;
        zone.shadow[offset as usize..(offset + len) as usize].fill(None);
        let parts = vec![(z, zone.generation, offset, len)];
        let bio = write_as(zone.start + u64::from(offset), len, stamp);
        self.submit(q, vec![(bio, Asked::Write { parts, stamp: Some(stamp) })]);
    }

    fn read(&mut self) {
        let Some(q) = self.queue_for(0, 1) else { return };
        let last = self.zones.last().expect("a zone");
        let blocks = (last.start + u64::from(last.len)) as u32 / self.grain;
        let first = self.rng.below(blocks);
        let len = self.rng.range(1, (blocks - first).min(64)) * self.grain;
        let first = u64::from(first * self.grain);
        let mut expect = Vec::new();
        for s in first..first + u64::from(len) {
            let z = self.zones.iter().rposition(|z| z.start <= s).expect("the disk starts at 0");
            let zone = &self.zones[z];
            let changing =
                zone.conventional && (zone.writes > 0 || zone.orphans > 0) || zone.managed > 0;
            let stamp = zone.shadow[(s - zone.start) as usize].filter(|_| !changing);
            expect.push((z, zone.generation, stamp));
        }
        let mut bio = read(first, len);
        if self.rng.one_in(8) {
            bio.flags = Flags::NOWAIT;
        }
        self.submit(q, vec![(bio, Asked::Read { expect })]);
    }

    /// One zone, quiet.
    fn manage(&mut self) {
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

    fn manage_zones(&mut self, what: Op, zones: Vec<usize>, quiet: bool) {
        let Some(q) = self.queue_for(zones[0], 1) else { return };
        let (first, last) = (&self.zones[zones[0]], &self.zones[zones[zones.len() - 1]]);
        let len = (last.start - first.start) as u32 + last.len;
        let bio =
            if what == Op::ZoneResetAll { op(what, 0, 0) } else { op(what, first.start, len) };
        for &z in &zones {
            let zone = &mut self.zones[z];
            zone.managed += 1;
            zone.activity += 1;
            zone.generation += 1;
            if !quiet {
                zone.fuzzy = true;
                zone.failed = true;
                zone.unsure = true;
                zone.shadow.fill(None);
                self.spoiled = true;
            }
        }
        self.submit(q, vec![(bio, Asked::Manage { op: what, zones, quiet })]);
    }

    /// A range of quiet zones, or all of them.
    fn manage_many(&mut self) {
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

    /// M4: a reset or finish that meets writes in flight. Nothing hangs.
    fn reset_in_flight(&mut self) {
        let z = self.any_zone();
        let zone = &self.zones[z];
        if self.mode == Mode::Plug && zone.writes > 0 && zone.orphans == 0 {
            let what = self.rng.pick(&[Op::ZoneReset, Op::ZoneFinish]);
            self.manage_zones(what, vec![z], false);
        }
    }

    fn report(&mut self) {
        let z = self.any_zone();
        self.report_of(z);
    }

    fn report_of(&mut self, z: usize) {
        let Some(q) = self.queue_for(z, 1) else { return };
        let zone = &self.zones[z];
        let mut bio = report(zone.start, 1);
        bio.buf = buf(1).slice(0, 64);
        let quiet = zone.quiet();
        if quiet && (zone.moved || zone.fuzzy || self.rng.one_in(4)) {
            bio.flags = Flags::RESYNC;
        }
        let activity = zone.activity;
        self.submit(q, vec![(bio, Asked::Report { zone: z, quiet, activity })]);
    }

    fn fault(&mut self) {
        let lost = [Status::Io, Status::Medium, Status::Timeout, Status::ShortTransfer];
        let kept = [Status::OpenLimit, Status::ActiveLimit, Status::Busy];
        let what = self.rng.pick(&[
            Some(Op::Write),
            Some(Op::Write),
            Some(Op::ZoneAppend),
            Some(Op::Read),
            Some(Op::ZoneReset),
            Some(Op::ReportZones),
            None,
        ]);
        let torn = self.rng.one_in(2);
        let unknown = torn || self.rng.one_in(2);
        let status = if unknown { self.rng.pick(&lost) } else { self.rng.pick(&kept) };
        self.faults = true;
        let skip = u64::from(self.rng.below(3));
        let torn_sectors = torn.then_some(self.grain * self.rng.range(0, 6));
        self.trace.push(format!("fault {what:?} {status} skip {skip} torn {torn_sectors:?}"));
        self.dev.fail_next(Fault { skip, op: what, status, torn_sectors });
    }

    /// The owner of a queue goes away with work in flight; a freeze tells when it has finished.
    fn drop_queue(&mut self) {
        let q = self.rng.below(self.queues.len() as u32) as usize;
        let open = self.queues.iter().flatten().count();
        if self.mode != Mode::Plug || open < 2 || self.queues[q].is_none() {
            return;
        }
        self.trace.push(format!("drop q{q}"));
        self.hidden = true;
        self.queues[q] = None;
        let tokens: Vec<_> =
            self.outstanding.iter().filter(|(_, o)| o.queue == q).map(|(&t, _)| t).collect();
        for t in tokens {
            let gone = self.outstanding.remove(&t).expect("just listed");
            self.orphaned(gone.asked);
        }
        if self.rng.one_in(2) {
            let (depth, tags) = (self.rng.range(1, 24), self.rng.range(1, 5) as u16);
            self.queues[q] = Some(self.disk.open_polled_queue(depth, tags).expect("a queue"));
        }
        self.freeze = Some(self.disk.begin_freeze());
    }

    fn orphaned(&mut self, asked: Asked) {
        match asked {
            Asked::Write { parts, .. } => {
                for (z, ..) in parts {
                    self.orphan_write(z);
                }
            }
            Asked::Append { zone, .. } => self.orphan_write(zone),
            Asked::Manage { zones, .. } => {
                for z in zones {
                    let zone = &mut self.zones[z];
                    zone.managed -= 1;
                    zone.orphans += 1;
                    (zone.unsure, zone.failed, zone.fuzzy) = (true, true, true);
                    zone.shadow.fill(None);
                }
                self.spoiled = true;
            }
            Asked::Read { .. } | Asked::Report { .. } | Asked::Flush | Asked::Bad { .. } => {}
        }
    }

    fn orphan_write(&mut self, z: usize) {
        let zone = &mut self.zones[z];
        zone.writes -= 1;
        zone.orphans += 1;
        zone.activity += 1;
        if !zone.conventional {
            (zone.unsure, zone.failed) = (true, true);
        }
    }

    /// E10: somebody else moves a write pointer.
    fn out_of_band(&mut self) {
        let z = self.any_zone();
        let zone = &mut self.zones[z];
        if zone.conventional || !zone.quiet() || zone.dead || self.mode != Mode::Plug {
            return;
        }
        let wp = self.grain * self.rng.below(zone.cap / self.grain + 1);
        self.dev.set_write_pointer(ZoneNo(z as u32), wp);
        zone.shadow[wp as usize..].fill(None);
        (zone.unsure, zone.failed, zone.moved) = (true, true, true);
        zone.generation += 1;
        zone.activity += 1;
    }

    fn kill_zone(&mut self) {
        let z = self.any_zone();
        if !self.zones[z].conventional && self.rng.one_in(2) {
            let cond = self.rng.pick(&[Condition::ReadOnly, Condition::Offline]);
            assert!(self.dev.set_condition(ZoneNo(z as u32), cond));
            let zone = &mut self.zones[z];
            (zone.dead, zone.failed) = (true, true);
            zone.shadow.fill(None);
        }
    }

    /// Something that must be refused, with its own status, and without any effect.
    fn bad(&mut self) {
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
        let known = !self.native || !z.is_multiple_of(2);
        let mut choices: Vec<(Box<Bio>, Status)> = vec![
            (write(end, g), Status::OutOfRange),
            (write(start, 0), Status::OutOfRange),
            (read(end, g), Status::OutOfRange),
            (op(Op::Write, start, g), Status::BadBuffer),
            (report(end, 1), Status::OutOfRange),
            (op(Op::ReportZones, start, 0), Status::BadBuffer),
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
                choices.push((write(at.min(end - 1), 1), Status::Unaligned));
            }
            if wp == cap {
                choices.push((write(start, g), Status::ZoneFull));
                if !self.native {
                    choices.push((append(start, g, 0), Status::ZoneFull));
                }
            } else {
                let other = if wp == 0 { g } else { wp - g };
                if other < len && (g <= self.max_transfer) {
                    choices.push((write(start + u64::from(other), g), Status::NotAtWritePointer));
                }
                if cap < len {
                    choices.push((write(at, cap - wp + g), Status::PastCapacity));
                }
            }
        }
        let i = self.rng.below(choices.len() as u32) as usize;
        let (mut bio, status) = choices.swap_remove(i);
        if bio.op == Op::ReportZones && !bio.buf.is_empty() {
            bio.buf = IoBuf::empty();
        }
        let before = format!("{:?}", self.disk.cached_zone(ZoneNo(z as u32)));
        let device = self.dev.zone_info(ZoneNo(z as u32));
        self.submit(q, vec![(bio, Asked::Bad { status })]);
        assert_eq!(before, format!("{:?}", self.disk.cached_zone(ZoneNo(z as u32))), "W9");
        // Not the condition: a command that was held up may have gone out and closed the zone implicitly.
        assert_eq!(device.wp, self.dev.zone_info(ZoneNo(z as u32)).wp);
    }
}
