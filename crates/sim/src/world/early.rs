//! A client whose writes arrive in another order than it sent them, on a disk with an order window.
//!
//! Only these writes may be held: the other positional writes of such a world have the flag NOWAIT. A step of this
//! client ends when no write is held any more, so the expectations of other steps about the write pointer stay true.

use super::{Asked, World, trace};
use crate::class::Class;
use crate::memory::write_as;
use zoneplug_core::disk::Mode;
use zoneplug_core::{Bio, Flags, Nanos, Op, Status};

type Entry = (Box<Bio>, Asked);

/// The fate of writes that wait behind one that was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trouble {
    /// They expire.
    Expire,
    /// A write or an append takes the place of the lost one, and of the first of them.
    Overtake,
    /// Their zone is reset or finished.
    Restart,
    /// A queue goes away.
    Drop,
    /// The disk is frozen for a while.
    Freeze,
}

impl World {
    /// Returns whether the disk holds writes that come before their place.
    pub(super) fn has_window(&self) -> bool {
        self.config.order_window != Nanos(0)
    }

    /// The flags of a positional write that the window must not hold.
    pub(super) fn strictly_placed(&self, flags: Flags) -> Flags {
        if self.has_window() { flags.with(Flags::NOWAIT) } else { flags }
    }

    /// Writes the next sectors of a zone in pieces, which are submitted in random order through random queues. In some
    /// steps one piece is lost. Returns false if the zone that it draws, or the room of the queues, does not allow it.
    pub(super) fn write_shuffled(&mut self) -> bool {
        let z = self.any_zone();
        let zone = &self.zones[z];
        let odd = zone.conventional || zone.unsure || zone.fuzzy || zone.dead || zone.moved;
        let odd = odd || zone.managed > 0 || zone.orphans > 0 || zone.may_change || zone.spans > 0;
        if odd || self.mode != Mode::Plug || self.native || self.gone || self.is_torn(z) {
            return false;
        }
        let mut left = (self.zones[z].cap - self.zones[z].wp.min(self.zones[z].cap)) / self.grain;
        let most = if self.rng.one_in(3) { 20 } else { (self.max_transfer / self.grain).min(20) };
        let mut pieces = Vec::new();
        for _ in 0..self.rng.range(2, 6) {
            let blocks = self.rng.range(1, left.min(most).max(1));
            if blocks > left {
                break;
            }
            left -= blocks;
            pieces.push(blocks * self.grain);
        }
        // One more for the trouble that follows.
        let Some(queues) = self.queues_for(pieces.len() + 1) else { return false };
        if pieces.len() < 2 {
            return false;
        }
        let lost = self.rng.one_in(3).then(|| self.rng.below(pieces.len() as u32 - 1) as usize);
        self.shuffled = Some(z);
        self.early_troubled = false;
        let admitted = self.disk.counters().window.admitted;
        let mut entries = self.make_pieces(z, &pieces, lost);
        for i in (1..entries.len()).rev() {
            entries.swap(i, self.rng.below(i as u32 + 1) as usize);
        }
        for ((mut bio, mut asked), &q) in entries.into_iter().zip(&queues) {
            bio.flags = Flags(bio.flags.0 & !Flags::NOWAIT.0);
            if let Asked::Early { due, .. } = &mut asked {
                *due = Nanos(self.now.0 + self.config.order_window.0);
            }
            self.note_writer(z, q);
            self.submit(q, vec![(bio, asked)]);
            self.between_pieces();
        }
        match lost {
            None if self.disk.counters().window.admitted > admitted => self.hit(Class::Early),
            None => {}
            Some(i) => self.trouble(z, pieces[i], pieces[i + 1], queues[queues.len() - 1]),
        }
        self.until_nothing_is_held();
        self.shuffled = None;
        true
    }

    /// Queues with room for `n` BIOs, one for each.
    fn queues_for(&mut self, n: usize) -> Option<Vec<usize>> {
        let mut room: Vec<_> =
            self.queues.iter().map(|q| q.as_ref().map_or(0, |q| q.room())).collect();
        let mut all = Vec::new();
        for _ in 0..n {
            let first = self.rng.below(room.len() as u32) as usize;
            let q = (0..room.len()).map(|i| (first + i) % room.len()).find(|&q| room[q] > 0)?;
            room[q] -= 1;
            all.push(q);
        }
        Some(all)
    }

    /// Makes the writes of the pieces, in order. Those behind the lost one never get their turn.
    fn make_pieces(&mut self, z: usize, pieces: &[u32], lost: Option<usize>) -> Vec<Entry> {
        let mut entries = Vec::new();
        let mut at = self.zones[z].wp;
        for (i, &len) in pieces.iter().enumerate() {
            if lost.is_none_or(|lost| i < lost) {
                entries.push(self.make_write(z, len));
            } else if lost != Some(i) {
                // The rules for the medium treat this stamp as never written.
                let stamp = self.stamp(len);
                let bio = write_as(self.zones[z].start + u64::from(at), len, stamp);
                entries.push((bio, Asked::Early { zone: z, due: Nanos(0) }));
            }
            at += len;
        }
        entries
    }

    /// Does something between two pieces: polls queues, lets a little time pass, or freezes the disk for a while. A
    /// whole step takes less time than the window is long, not counting the freeze.
    fn between_pieces(&mut self) {
        match self.rng.below(12) {
            0..=3 => (0..self.queues.len()).for_each(|q| self.poll(q)),
            4..=5 => self.now.0 += u64::from(self.rng.below(self.config.order_window.0 as u32 / 8)),
            // With faults a freeze may last until a deadline.
            6 if !self.has_faults => self.freeze_for_a_while(),
            _ => {}
        }
    }

    fn freeze_for_a_while(&mut self) {
        trace!(self, "  freeze");
        self.freeze = Some(self.disk.begin_freeze());
        while self.is_freezing() {
            self.poll_round();
        }
    }

    /// Disturbs the writes behind a lost piece of `lost` sectors; the first of them is `first` long.
    fn trouble(&mut self, z: usize, lost: u32, first: u32, q: usize) {
        use Trouble as T;
        let trouble = self.rng.pick(&[T::Expire, T::Overtake, T::Restart, T::Drop, T::Freeze]);
        trace!(self, "  a write is lost: {trouble:?}");
        self.early_troubled = matches!(trouble, T::Overtake | T::Restart);
        match trouble {
            // The write pointer may be anywhere after a failure.
            T::Overtake if !self.zones[z].unsure && self.queues[q].is_some() => {
                let len = lost + self.grain * self.rng.range(1, first / self.grain);
                // If a write before it fails, an append may end just where the held write begins.
                let calm = self.zones[z].writes == 0;
                let appends = calm && len <= self.max_transfer.min(self.zones[0].len);
                let len = if len == lost + first { lost + first - self.grain } else { len };
                if len <= lost {
                    return;
                }
                let entry = match appends && self.rng.one_in(2) {
                    true => self.make_append(z, len),
                    false => self.make_write(z, len),
                };
                self.note_writer(z, q);
                self.submit(q, vec![entry]);
                self.hit(Class::Overtaken);
            }
            T::Restart => {
                let what = if self.rng.one_in(3) { Op::ZoneFinish } else { Op::ZoneReset };
                self.manage_zones(what, vec![z], false);
            }
            T::Drop => {
                self.drop_queue();
                // Writes that are held now have an owner that waits for them.
                let early = |o: &super::Outstanding| matches!(o.asked, Asked::Early { .. });
                let early = self.outstanding.values().filter(|o| early(o)).count() as u64;
                let most = early + u64::from(self.zones[z].writes);
                let held = self.disk.counters().window.writes;
                assert!(held <= most, "H10: {held} are held, and {most} at most have an owner");
            }
            T::Freeze if !self.is_freezing() => {
                self.freeze = Some(self.disk.begin_freeze());
            }
            _ => self.hit(Class::LostWrite),
        }
    }

    /// Lets time pass until the window is empty.
    fn until_nothing_is_held(&mut self) {
        for _ in 0..2000 {
            let early = self.outstanding.values().any(|o| matches!(o.asked, Asked::Early { .. }));
            if !early && self.disk.counters().window.writes == 0 {
                return;
            }
            self.poll_round();
        }
        panic!("H5: held for ever: {:?}, {:?}", self.disk.counters().window, self.outstanding);
    }

    /// Checks a write behind a lost one that has come back.
    pub(super) fn early_ended(&mut self, bio: &Bio, z: usize, due: Nanos) {
        use Status as S;
        let refused = matches!(
            bio.status,
            S::NotAtWritePointer
                | S::ZoneFull
                | S::StaleWritePointer
                | S::ZoneReadOnly
                | S::ZoneOffline
                | S::ZoneBusy
        );
        assert!(refused, "H5: the gap before it did not fill: {bio:?}");
        let calm = bio.status == S::NotAtWritePointer && !self.early_troubled;
        assert!(!calm || self.now >= due, "H5: at {:?}, before {due:?}: {bio:?}", self.now);
        let zone = &self.zones[z];
        let known =
            !(self.early_troubled || zone.failed || zone.fuzzy || zone.dead || self.has_faults);
        assert!(!known || bio.status == S::NotAtWritePointer, "H5: {bio:?} {zone:?}");
    }

    /// Checks the conditions that must hold at rest.
    pub(super) fn check_window(&self) {
        let w = self.disk.counters().window;
        assert_eq!((w.writes, w.sectors), (0, 0), "H12: {w:?}");
        assert_eq!(w.held, w.admitted + w.expired + w.dropped, "H12: {w:?}");
        assert!(self.has_window() || w.held == 0, "H1: {w:?}");
    }
}
