//! Lists that mix zones, operations and mistakes. Also checks the promises to a BIO that are not about its data: a BIO
//! that must not wait does not wait; a split BIO fails with the cause; and a BIO that another queue has completed is
//! there when its client looks.

use super::{Asked, World, trace};
use crate::class::Class;
use crate::memory::{append, bytes, write_as};
use std::collections::BTreeSet;
use zoneplug_core::disk::Mode;
use zoneplug_core::sched::Scheduler;
use zoneplug_core::zone::Condition;
use zoneplug_core::{Bio, Bios, Flags, Op, Sector, Status};
use zoneplug_devices::emu::Fault;

type Entry = (Box<Bio>, Asked);

impl World {
    /// Submits one list for several zones, with invalid BIOs in it.
    pub(super) fn submit_mixed_list(&mut self) {
        if self.mode == Mode::None {
            return;
        }
        let n = self.rng.range(3, 10);
        let mut z = self.any_zone();
        let Some(q) = self.queue_for(z, n) else { return };
        let own = |w: &World, z: usize| w.mode != Mode::Lock || z % w.queues.len() == q;
        let (mut list, mut zones, mut bad) = (Vec::new(), BTreeSet::new(), 0);
        for _ in 0..n {
            let full = self.zones[z].wp >= self.zones[z].cap;
            if full || self.rng.one_in(4) {
                // A BIO behind one that fills a zone often continues in the next zone.
                let next =
                    if self.rng.one_in(3) { self.any_zone() } else { (z + 1) % self.zones.len() };
                z = if own(self, next) { next } else { z };
            }
            let entry = match self.rng.below(8) {
                0 => self.make_malformed(z),
                1 => self.make_misplaced(z),
                2 => Some(self.make_read(z, q)),
                _ => self.make_valid(z, q),
            };
            let Some(entry) = entry else { continue };
            zones.insert(z);
            bad += usize::from(matches!(entry.1, Asked::Bad { .. }));
            list.push(entry);
        }
        if zones.len() > 1 && bad > 0 && list.len() > zones.len() {
            self.hit(Class::Mixed);
        }
        if !list.is_empty() {
            self.submit(q, list);
        }
    }

    /// Makes a write or append that fits.
    fn make_valid(&mut self, z: usize, q: usize) -> Option<Entry> {
        let zone = &self.zones[z];
        let left = (zone.cap - zone.wp.min(zone.cap)) / self.grain;
        let odd = zone.conventional || zone.unsure || zone.fuzzy || zone.dead || zone.moved;
        let locked = self.mode == Mode::Lock && zone.spans > 0;
        if odd || locked || left == 0 || zone.managed > 0 || zone.orphans > 0 || zone.may_change {
            return None;
        }
        let most = left.min(20);
        let blocks = if self.rng.one_in(2) { most } else { self.rng.range(1, most) };
        let len = self.grain * blocks;
        let (appends, writes) = (self.appends_to(z), self.writes_to(z));
        if self.is_native(z) && writes && zone.writes > 0 && !self.rng.one_in(4) {
            return None;
        }
        self.note_writer(z, q);
        let native = self.emu.config().limits.zone_append_max_sectors;
        let limit = if self.native { native.min(self.max_transfer) } else { self.max_transfer };
        let fits = len <= limit.min(self.zones[0].len);
        if appends && fits && (!writes || self.rng.one_in(4)) {
            return Some(self.make_append(z, len));
        }
        writes.then(|| self.make_write(z, len))
    }

    /// Makes an invalid BIO at the place of the next valid one.
    fn make_malformed(&mut self, z: usize) -> Option<Entry> {
        let (zone, g) = (&self.zones[z], self.grain);
        let (at, left) = (zone.start + u64::from(zone.wp), zone.len - zone.wp.min(zone.len));
        let start = zone.start;
        if zone.conventional || left <= g || !zone.wp.is_multiple_of(g) {
            return None;
        }
        let (bio, status) = match self.rng.below(4) {
            0 if g > 1 => (write_as(at, g + 1, 1), Status::Unaligned),
            1 if g > 1 && self.mode == Mode::Plug => (append(start, g + 1, 1), Status::Unaligned),
            2 => (write_as(at, 0, 1), Status::OutOfRange),
            _ => (Bio::with_buf(Op::Write, Sector(at), g, bytes(256)), Status::BadBuffer),
        };
        Some((bio, Asked::Bad { zone: z, first: false, statuses: vec![status] }))
    }

    /// Makes a write past the place of the next valid one.
    fn make_misplaced(&mut self, z: usize) -> Option<Entry> {
        use Status as S;
        let zone = &self.zones[z];
        let odd = zone.conventional || zone.unsure || zone.fuzzy || zone.dead || zone.may_change;
        if odd || self.mode != Mode::Plug || self.native || zone.wp + self.grain >= zone.cap {
            return None;
        }
        if !zone.quiet() && (zone.managed > 0 || zone.orphans > 0) {
            return None;
        }
        let mut statuses = vec![S::NotAtWritePointer];
        if self.has_faults || zone.writes > 0 {
            statuses.extend([S::StaleWritePointer, S::ZoneReadOnly, S::ZoneOffline]);
            statuses.extend([S::ZoneFull, S::PastCapacity]);
        }
        let mut bio = write_as(zone.start + u64::from(zone.wp + self.grain), self.grain, 1);
        bio.flags = self.strictly_placed(bio.flags);
        Some((bio, Asked::Bad { zone: z, first: false, statuses }))
    }

    /// Notes, before BIOs are submitted, which reads must not wait, and which must be sent in order. Returns the tokens of
    /// those that must be sent at once.
    pub(super) fn promise(&mut self, list: &Bios) -> Vec<u64> {
        let mut at_once = Vec::new();
        let direct = self.config.scheduler == Scheduler::None && self.mode != Mode::Lock;
        let direct = direct && self.config.timeout.is_none() && self.cover.of(Class::R41) == 0;
        for bio in list.iter().filter(|b| b.op == Op::Read) {
            if !matches!(self.outstanding[&bio.token()].asked, Asked::Read { .. }) {
                // The BIO is one that must be refused.
                continue;
            }
            let nowait = bio.flags.contains(Flags::NOWAIT);
            if nowait && direct && !self.is_split(bio) {
                self.seam.queueing().must_not_wait(bio.token());
                at_once.push(bio.token());
            }
            let plain = !bio.flags.contains(Flags::RT);
            if plain && self.cover.of(Class::R41) == 0 {
                // A NOWAIT read may come back unsent, so it is treated like a read of two commands, for which no order is
                // checked.
                let parts = self.parts_of(bio).max(1 + u64::from(nowait));
                self.seam.queueing().asked(bio.token(), self.now, parts);
            }
        }
        at_once
    }

    /// Notes, after BIOs were submitted, which of those that must not wait were not sent, unless the device was full. They
    /// must come back with `WouldBlock`.
    pub(super) fn note_not_sent(&mut self, at_once: Vec<u64>, held_up: u64) {
        let mut queueing = self.seam.queueing();
        let busy = queueing.held_up != held_up;
        let kept: Vec<_> = at_once.into_iter().filter(|&t| queueing.was_kept(t)).collect();
        drop(queueing);
        self.not_sent.extend(kept.into_iter().filter(|_| !busy));
    }

    /// Checks the promises of a BIO that has come back.
    pub(super) fn check_promise(&mut self, bio: &Bio) {
        self.seam.queueing().completed(bio.token());
        if self.not_sent.remove(&bio.token()) {
            assert_eq!(
                bio.status,
                Status::WouldBlock,
                "W11: a BIO that must not wait has waited: {bio:?}"
            );
        }
    }

    /// Returns the least number of commands of a BIO.
    fn parts_of(&self, bio: &Bio) -> u64 {
        let (mut at, end) = (bio.sector.0, bio.sector.0 + u64::from(bio.len_sectors));
        let mut parts = 0;
        while at < end {
            let zone = &self.zones[self.zone_at(at)];
            let stop = end.min(zone.start + u64::from(zone.len));
            parts += (stop - at).div_ceil(u64::from(self.max_transfer));
            at = stop;
        }
        parts
    }

    /// Checks that a split write of which a part failed at the device has that part's status (W4), unless management
    /// aborted the write. *Aborted behind* would not tell the client what to do.
    pub(super) fn check_cause(&mut self, bio: &Bio, stamp: Option<u64>) {
        let Some(first) = stamp.filter(|_| self.is_split(bio)) else { return };
        // With deadlines, and where zones recover, a part has several answers.
        if self.config.timeout.is_some() || self.seam.ordered().reports > 0 {
            return;
        }
        let mut said = self.seam.answers_to(first, u64::from(bio.len_sectors));
        said.retain(|s| !s.is_ok() && *s != Status::Busy);
        if said.is_empty() {
            return;
        }
        let aborted = bio.status == Status::AbortedByManagement;
        assert!(said.contains(&bio.status) || aborted, "W4: the device said {said:?}: {bio:?}");
        self.hit(Class::Cause);
    }

    /// Polls a queue for its owner, which looks later. Returns whether anything finished.
    pub(super) fn poll_for_owner_of(&mut self, q: usize) -> bool {
        let Some(queue) = self.queues[q].as_mut() else { return false };
        let any = queue.poll_for_owner(self.now);
        if any {
            assert!(
                queue.has_completions(),
                "what was finished for the owner of queue {q} is there"
            );
            self.hit(Class::Helped);
        }
        any
    }

    /// Tears the next write at the device, so that the write pointer may lie in the middle of a block. Not done below a
    /// layer that keeps its own write pointers (a cache, a timeout, a pending device), because the layer would not notice.
    pub(super) fn tear_next_write(&mut self) -> bool {
        if self.grain < 2
            || self.cached
            || self.device_pending.is_some()
            || self.config.timeout.is_some()
        {
            return false;
        }
        let status = self.rng.pick(&[Status::Io, Status::Medium, Status::ShortTransfer]);
        let torn = self.rng.range(1, 3 * self.grain);
        trace!(self, "  the next write is torn after {torn} sectors: {status}");
        (self.has_faults, self.spoiled_blocks) = (true, true);
        self.troubles += 1;
        self.emu.fail_next(Fault { torn_sectors: Some(torn), ..Fault::next(Op::Write, status) });
        true
    }

    /// Returns whether the write pointer of a zone is in the middle of a block, where nothing can be written.
    pub(super) fn is_torn(&self, z: usize) -> bool {
        let zone = &self.zones[z];
        if !self.spoiled_blocks || zone.conventional || zone.dead {
            return false;
        }
        let info = self.on_device(z);
        let none = [Condition::NotWp, Condition::Full, Condition::ReadOnly, Condition::Offline];
        !none.contains(&info.cond)
            && !(info.wp.0 - info.start.0).is_multiple_of(u64::from(self.grain))
    }

    /// Resets a torn zone, as its client does.
    pub(super) fn reset_torn_zone(&mut self, z: usize) {
        self.hit(Class::Misaligned);
        self.zones[z].unsure = true;
        if self.zones[z].quiet() && !self.is_freezing() {
            self.manage_zones(Op::ZoneReset, vec![z], true);
        }
    }
}
