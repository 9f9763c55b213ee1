//! The next operation of a client: writes, appends, reads.

use super::{Asked, World, trace};
use crate::class::Class;
use crate::memory::{append, op, read, write_as};
use zoneplug_core::disk::Mode;
use zoneplug_core::{Bio, Flags, Op, Sector};

impl World {
    /// Takes one step of the client.
    pub(crate) fn act(&mut self) {
        if self.is_freezing() {
            return self.submit_while_frozen();
        }
        if self.has_cut_a_recovery() {
            return;
        }
        match self.rng.below(200) {
            0..=92 => self.write(),
            93..=99 => self.submit_mixed_list(),
            100..=117 => self.read(),
            118..=129 => self.manage(),
            130..=133 => self.manage_many(),
            134..=137 => self.reset_in_flight(),
            138..=147 => self.submit_invalid(),
            148..=151 => self.submit_invalid_behind_writes(),
            152..=158 => self.report(),
            159..=163 => self.flush(),
            164..=169 => self.inject_fault(),
            170..=172 => self.make_device_busy(),
            173..=176 => {
                trace!(self, "  freeze");
                if !self.outstanding.is_empty() {
                    self.hit(Class::Freeze);
                }
                self.freeze = Some(self.disk.begin_freeze());
            }
            177 => self.drop_queue(),
            178..=180 => self.change_attribute(),
            181..=184 => self.revalidate(),
            185..=187 => self.out_of_band(),
            188 => self.kill_zone(),
            189 => self.power_cut(),
            190 => self.grow(),
            191 => self.undo_around_reset(),
            192 => self.slow_report(),
            193 => self.reset_in_line(),
            _ => {
                if self.config.timeout.is_some() && self.rng.one_in(2) {
                    // No queue is polled for a while.
                    self.now.0 += u64::from(self.rng.range(100, 8000));
                }
                self.poll_round();
            }
        }
    }

    /// Changes an attribute of the open disk.
    pub(super) fn attribute(&mut self, name: &str, on: &str) {
        trace!(self, "  {name}={on}");
        self.disk.set_attribute(name, on).expect("a writable attribute");
        let known = if name == "nomerges" { &mut self.nomerges } else { &mut self.strict };
        *known = on == "1";
        self.note_attributes();
        if !self.outstanding.is_empty() {
            self.hit(Class::Attribute);
        }
    }

    /// Notes that queue `q` writes to zone `z`.
    pub(super) fn note_writer(&mut self, z: usize, q: usize) {
        let zone = &mut self.zones[z];
        let others = zone.queues & !(1 << q) != 0;
        let first = zone.shadow[0].is_none() && !zone.unsure && zone.writes > 0;
        if zone.writes == 0 {
            zone.queues = 0;
        }
        zone.queues |= 1 << q;
        zone.last_queue = Some(q);
        if others && first && !zone.conventional {
            self.hit(Class::R5);
        }
    }

    fn flush(&mut self) {
        let Some(q) = self.queue_for(0, 1) else { return };
        let covers = self.covers();
        self.submit(q, vec![(Bio::new(Op::Flush, Sector(0), 0), Asked::Flush { covers })]);
    }

    /// Returns how far each zone is acknowledged, which a flush that is sent now makes durable.
    pub(super) fn covers(&self) -> Vec<(usize, u64, u32)> {
        let reach = |z: &super::WorldZone| {
            let prefix = z.shadow.iter().take_while(|s| s.is_some()).count() as u32;
            match z.managed > 0 || z.fuzzy || z.unsure {
                true => 0,
                false if z.conventional => {
                    u32::from(z.writes == 0 && z.orphans == 0 && !z.may_change)
                }
                false => prefix,
            }
        };
        // An acknowledged append is covered. So are all data in front of it, even if they are not acknowledged.
        let last =
            |z: &super::WorldZone| z.shadow.iter().rposition(|s| s.is_some()).map_or(0, |i| i + 1);
        let native = |i: usize, z: &super::WorldZone| self.is_native(i) && reach(z) > 0;
        let covers = |(i, z): (usize, &super::WorldZone)| {
            let reach = if native(i, z) { last(z) as u32 } else { reach(z) };
            (i, z.generation, reach)
        };
        self.zones.iter().enumerate().map(covers).collect()
    }

    pub(super) fn queue_for(&mut self, zone: usize, n: u32) -> Option<usize> {
        let all = self.queues.len();
        let first = match self.mode {
            Mode::Lock => zone % all,
            _ => self.rng.below(all as u32) as usize,
        };
        let fits = |q: &usize| self.queues[*q].as_ref().is_some_and(|q| q.room() >= n);
        let others = if self.mode == Mode::Lock { 1 } else { all };
        (0..others).map(|i| (first + i) % all).find(fits)
    }

    pub(super) fn stamp(&mut self, sectors: u32) -> u64 {
        self.next_stamp += u64::from(sectors);
        self.next_stamp - u64::from(sectors)
    }

    pub(super) fn any_zone(&mut self) -> usize {
        self.rng.below(self.zones.len() as u32) as usize
    }

    pub(super) fn flags(&mut self) -> Flags {
        let mut f = Flags::NONE;
        for flag in [Flags::FUA, Flags::PREFLUSH, Flags::NOMERGE] {
            if self.rng.one_in(8) {
                f = f.with(flag);
            }
        }
        if self.mode == Mode::Plug && self.rng.one_in(8) {
            f = f.with(Flags::NOWAIT);
        }
        if self.rng.one_in(8) {
            f = f.with(Flags::RT);
        }
        f
    }

    pub(super) fn write(&mut self) {
        if self.has_window() && self.rng.one_in(6) && self.write_shuffled() {
            return;
        }
        let z = match self.rng.below(3) {
            0 => self.next_in_sequence(),
            _ => self.any_zone(),
        };
        self.write_to(z);
    }

    /// Returns the next zone of the client that fills one zone after the other.
    fn next_in_sequence(&mut self) -> usize {
        let n = self.zones.len();
        let zone = &self.zones[self.cursor % n];
        if zone.wp >= zone.cap || zone.dead || zone.conventional {
            self.cursor += 1;
        }
        self.cursor % n
    }

    pub(super) fn write_to(&mut self, z: usize) {
        if self.zones[z].conventional {
            return self.write_conventional(z);
        }
        let zone = &self.zones[z];
        let locked = self.mode == Mode::Lock && zone.spans > 0;
        if zone.managed > 0 || zone.orphans > 0 || locked || self.shuffled.is_some() {
            return;
        }
        if self.is_torn(z) {
            return self.reset_torn_zone(z);
        }
        if self.zones[z].dead && self.spoiled_blocks {
            // The zone may have become read-only with its write pointer in the middle of a block.
            return;
        }
        let zone = &self.zones[z];
        if zone.unsure {
            // A dead zone is tried a few times.
            let (tries, writes) = if zone.dead { (2, 1) } else { (4, 8) };
            if zone.quiet() && !self.rng.one_in(tries) {
                return self.report_of(z);
            }
            if !self.rng.one_in(writes) {
                return;
            }
            let zone = &self.zones[z];
            self.spoiled |= zone.moved || zone.fuzzy;
        }
        let zone = &self.zones[z];
        if self.mode == Mode::None && zone.writes > 0 {
            return;
        }
        if self.mode != Mode::None && !self.native && self.rng.one_in(8) {
            return self.write_spanning(z);
        }
        let (mut appends, mut writes) = (self.appends_to(z), self.writes_to(z));
        if self.is_native(z) && writes {
            let append = self.rng.one_in(2);
            if !self.rng.one_in(4) {
                // Mostly, appends and writes are not in flight at a time.
                (appends, writes) = (append, !append);
                let zone = &self.zones[z];
                let others = if append { zone.writes - zone.appends } else { zone.appends };
                if others > 0 {
                    return;
                }
            }
        }
        let n = if self.mode == Mode::None { 1 } else { self.rng.range(1, 5) };
        // One more BIO for a report.
        let Some(q) = self.queue_for(z, n + 1) else { return };
        self.note_writer(z, q);
        let mut batch = Vec::new();
        for _ in 0..n {
            let zone = &self.zones[z];
            let left = (zone.cap - zone.wp) / self.grain;
            if left == 0 {
                if zone.quiet() && self.rng.one_in(2) {
                    return self.manage_zones(Op::ZoneReset, vec![z], true);
                }
                break;
            }
            let append = appends && (!writes || self.rng.one_in(3));
            let mut max = left.min(20);
            if append {
                let limit = self.emu.config().limits.zone_append_max_sectors;
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
        // Sends a report first. If the write then fails, the answer of the report is old (E6).
        if self.rng.one_in(5) {
            self.report_of(z);
        }
        self.submit(q, batch);
        if self.rng.one_in(5) {
            self.report_of(z);
        }
    }

    pub(super) fn make_write(&mut self, z: usize, len: u32) -> (Box<Bio>, Asked) {
        let flags = self.flags();
        let zeroes = self.emu.config().limits.max_write_zeroes_sectors;
        // Without plugs nothing may be split, because the parts would not be ordered.
        let fits = self.mode != Mode::None || len <= zeroes;
        let zeroes = zeroes >= self.grain && fits && self.rng.one_in(6);
        let stamp = self.stamp(len);
        self.stamps.add(stamp, len, z, Some(self.zones[z].wp));
        let zone = &mut self.zones[z];
        let (sector, offset) = (zone.start + u64::from(zone.wp), zone.wp);
        zone.writes += 1;
        zone.crossed |= zone.appends > 0;
        self.spoiled |= zone.crossed;
        zone.wp += len;
        zone.activity += 1;
        let parts = vec![(z, zone.generation, offset, len)];
        let mut bio =
            if zeroes { op(Op::WriteZeroes, sector, len) } else { write_as(sector, len, stamp) };
        bio.flags = self.strictly_placed(flags);
        (bio, Asked::Write { parts, stamp: (!zeroes).then_some(stamp) })
    }

    pub(super) fn make_append(&mut self, z: usize, len: u32) -> (Box<Bio>, Asked) {
        let mut flags = self.flags();
        if self.native {
            flags = Flags(flags.0 & !Flags::NOWAIT.0);
        }
        let stamp = self.stamp(len);
        self.stamps.add(stamp, len, z, None);
        let zone = &mut self.zones[z];
        let mut bio = append(zone.start, len, stamp);
        bio.flags = flags;
        let asked = Asked::Append { zone: z, generation: zone.generation, at: zone.wp, len, stamp };
        if self.native {
            zone.crossed |= zone.writes > zone.appends;
            zone.appends += 1;
            self.spoiled |= zone.crossed;
        }
        zone.writes += 1;
        zone.wp += len;
        zone.activity += 1;
        (bio, asked)
    }

    pub(super) fn write_spanning(&mut self, z: usize) {
        let mut parts = Vec::new();
        let mut total = 0;
        let mut at = z;
        while let Some(zone) = self.zones.get(at) {
            let offset = if at == z { zone.wp } else { 0 };
            let ready = !zone.unsure && !zone.dead && !zone.may_change;
            let ready = ready && zone.managed == 0 && zone.orphans == 0;
            // Zone locks keep the order within a queue only, so each zone has its own queue.
            let ready = ready && (self.mode != Mode::Lock || at == z || zone.writes == 0);
            let ready = ready && !self.is_torn(at);
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
        let mut first = stamp;
        let several = u32::from(parts.len() > 1);
        for (z, generation, offset, len) in &mut parts {
            self.zones[*z].spans += several;
            self.stamps.add(first, *len, *z, Some(*offset));
            first += u64::from(*len);
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
        let flags = self.flags();
        bio.flags = self.strictly_placed(flags);
        self.submit(q, vec![(bio, Asked::Write { parts, stamp: Some(stamp) })]);
    }

    pub(super) fn write_conventional(&mut self, z: usize) {
        if self.zones[z].writes > 0 || self.zones[z].orphans > 0 || self.zones[z].may_change {
            return;
        }
        let Some(q) = self.queue_for(z, 1) else { return };
        let blocks = self.zones[z].len / self.grain;
        let first = self.rng.below(blocks);
        let (offset, len) =
            (first * self.grain, self.rng.range(1, (blocks - first).min(20)) * self.grain);
        let stamp = self.stamp(len);
        self.stamps.add(stamp, len, z, Some(offset));
        let zone = &mut self.zones[z];
        zone.writes += 1;
        zone.generation += 1;
        zone.shadow[offset as usize..(offset + len) as usize].fill(None);
        let parts = vec![(z, zone.generation, offset, len)];
        let bio = write_as(zone.start + u64::from(offset), len, stamp);
        self.submit(q, vec![(bio, Asked::Write { parts, stamp: Some(stamp) })]);
    }

    pub(super) fn read(&mut self) {
        let Some(q) = self.queue_for(0, 1) else { return };
        let last = self.zones.last().expect("a zone");
        let blocks = (last.start + u64::from(last.len)) as u32 / self.grain;
        let first = self.rng.below(blocks);
        let len = self.rng.range(1, (blocks - first).min(64)) * self.grain;
        let entry = self.read_of(u64::from(first * self.grain), len, q);
        self.submit(q, vec![entry]);
    }

    /// Makes a read of a few blocks of zone `z`.
    pub(super) fn make_read(&mut self, z: usize, q: usize) -> (Box<Bio>, Asked) {
        let blocks = self.zones[z].len / self.grain;
        let first = self.rng.below(blocks);
        let len = self.rng.range(1, (blocks - first).min(8)) * self.grain;
        self.read_of(self.zones[z].start + u64::from(first * self.grain), len, q)
    }

    fn read_of(&mut self, first: u64, len: u32, q: usize) -> (Box<Bio>, Asked) {
        let mut expect = Vec::new();
        for s in first..first + u64::from(len) {
            let z = self.zones.iter().rposition(|z| z.start <= s).expect("the disk starts at 0");
            let zone = &self.zones[z];
            let changing =
                zone.conventional && (zone.writes > 0 || zone.orphans > 0) || zone.managed > 0;
            let changing = changing || zone.may_change;
            let stamp = zone.shadow[(s - zone.start) as usize].filter(|_| !changing);
            expect.push((z, zone.generation, stamp));
        }
        let mut bio = read(first, len);
        match self.rng.below(8) {
            0 => bio.flags = Flags::NOWAIT,
            1 => bio.flags = Flags::RT,
            _ => {}
        }
        let busy = self.queues[q].as_ref().map_or(0, |q| q.outstanding());
        let crowded = busy > u32::from(self.tags[q]);
        (bio, Asked::Read { expect, crowded })
    }
}
