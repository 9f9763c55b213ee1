//! A shard: plugs that share a lock, and the table of the writes that they have parked.

use super::slots::Slots;
use super::state::{CONVENTIONAL, EARLY, MANAGED, NEED_WP, OFFLINE, PLUGGED, READONLY, RESYNC};
use super::track::Track;
use super::word::{self, Words};
use super::{Kind, NONE, Plug, ReportEpochs};
use crate::bio::{Bio, Command, Flags, Status, Waiter, WritePointer};
use crate::unit::Sector;
use crate::zone::{Condition, ZoneInfo};
use std::ops::{Deref, DerefMut, Range};
use std::sync::Arc;

/// Counts of the plugs of a disk since it was opened.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Write commands sent by plugs.
    pub issued: u64,
    /// BIOs that waited in a plug.
    pub parked: u64,
    /// BIOs that were merged into the command of another BIO.
    pub merged: u64,
    /// Waiting BIOs that were aborted.
    pub aborted: u64,
    /// Write pointers that became unknown.
    pub lost: u64,
    /// Write pointers that a report made known again.
    pub resynced: u64,
    /// Reports by the layer itself that showed less data in a zone than was acknowledged. The zone stays stale until
    /// the client acts.
    pub missing: u64,
    /// BIOs that were sent again after a failure, on disks with several writes of a zone in flight.
    pub retried: u64,
    /// BIOs that were refused before any device saw them.
    pub rejected: Rejections,
}

/// BIOs that were refused before any device saw them, by reason.
///
/// ```
/// use zoneplug_core::Status;
/// let rejected = zoneplug_core::disk::Counters::default().rejected;
/// assert_eq!((rejected.by(Status::ZoneFull), rejected.total(), rejected.iter().count()), (0, 0, 0));
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Rejections([u64; Status::NUMBER]);

impl Default for Rejections {
    fn default() -> Self {
        Rejections([0; Status::NUMBER])
    }
}

impl std::fmt::Debug for Rejections {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_map().entries(self.iter().map(|(status, n)| (status.name(), n))).finish()
    }
}

impl Rejections {
    /// Returns how many were refused for this reason.
    pub fn by(&self, reason: Status) -> u64 {
        self.0[reason as usize]
    }

    /// Returns how many were refused in all.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Returns each reason that occurred, with its number.
    pub fn iter(&self) -> impl Iterator<Item = (Status, u64)> {
        Status::all().zip(self.0).filter(|(_, n)| *n > 0)
    }

    pub(crate) fn count(&mut self, reason: Status) {
        self.0[reason as usize] += 1;
    }
}

impl Counters {
    /// Adds the counts of another shard.
    pub fn add(&mut self, o: &Counters) {
        self.issued += o.issued;
        self.parked += o.parked;
        self.merged += o.merged;
        self.aborted += o.aborted;
        self.lost += o.lost;
        self.resynced += o.resynced;
        self.missing += o.missing;
        self.retried += o.retried;
        for (a, b) in self.rejected.0.iter_mut().zip(o.rejected.0) {
            *a += b;
        }
    }
}

/// Counts of the plug of one zone, on disks that keep the side table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ZoneCounters {
    /// BIOs that waited.
    pub parked: u64,
    /// Write commands sent.
    pub issued: u64,
    /// BIOs that were merged into the command of another BIO.
    pub merged: u64,
    /// Waiting BIOs that were aborted.
    pub aborted: u64,
    /// BIOs that were refused before the device saw them.
    pub rejected: u64,
    /// Times that a report made the write pointer known again.
    pub resynced: u64,
}

/// The state of a plug after the end of its only write in flight, which says what the queue does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AfterWrite {
    /// No write waits: the plug is idle.
    Idle,
    /// The plug stays busy: the caller fills a command with [`Shard::fill`] and sends it.
    Issue,
    /// The writes that waited were appended to the abort list; the plug is idle.
    Aborted,
    /// As `Aborted`; in addition the write pointer has become unknown.
    Lost,
}

/// The limits within which writes merge into one command.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Merge {
    /// Longest write, in sectors.
    pub(crate) max_sectors: u32,
    /// Longest write-zeroes, in sectors.
    pub(crate) max_zeroes_sectors: u32,
    /// Most BIOs of a command; 1 when merging is off.
    pub(crate) max_bios: u32,
}

impl Merge {
    /// Returns how many BIOs at the front of a run make one command, and their length in sectors. At least one BIO
    /// does.
    #[cold]
    pub(crate) fn prefix(&self, kind: Kind, run: &[Box<Bio>]) -> (usize, u32) {
        let max = self.max_of(kind);
        let (mut n, mut sectors) = (0, 0u32);
        for bio in run.iter().take(self.max_bios as usize) {
            if n > 0 && bio.len_sectors > max.saturating_sub(sectors) {
                break;
            }
            n += 1;
            sectors += bio.len_sectors;
        }
        (n, sectors)
    }

    #[inline]
    pub(crate) fn max_of(&self, kind: Kind) -> u32 {
        if kind.op() == crate::bio::Op::Write { self.max_sectors } else { self.max_zeroes_sectors }
    }
}

/// Plugs under one lock. The fields that every write touches come first: with the lock they fill one cache line.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Shard {
    pub(crate) plugs: Vec<Plug>,
    pub(super) slots: Slots,
    pub(crate) counters: Counters,
    /// Counters of each zone, indexed like `plugs`. Empty on disks that do not keep them.
    pub(crate) per_zone: Vec<ZoneCounters>,
    /// State of each zone for recoveries and several writes in flight. Empty until one of them needs it.
    pub(crate) tracks: Vec<Track>,
    /// The words of all plugs of the disk, and the number of this shard, which says where its own are.
    pub(super) words: Arc<Words>,
    pub(super) number: usize,
    /// Whether all plugs stay under the lock.
    pub(super) keeps_locked: bool,
}

/// A plug that is being changed, and its shard. [`Shard::change`] hands it out.
pub(crate) struct PlugChange<'a> {
    pub(super) shard: &'a mut Shard,
    pub(super) i: usize,
}

impl Deref for PlugChange<'_> {
    type Target = Shard;

    #[inline]
    fn deref(&self) -> &Shard {
        self.shard
    }
}

impl DerefMut for PlugChange<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Shard {
        self.shard
    }
}

impl Shard {
    /// Counts in the side table, if there is one.
    #[inline]
    pub(crate) fn count(&mut self, i: usize, f: impl FnOnce(&mut ZoneCounters)) {
        if let Some(c) = self.per_zone.get_mut(i) {
            f(c);
        }
    }

    /// Makes room for `n` parked writes. Runs need fewer slots than writes, and the table grows when it is full.
    pub(crate) fn reserve(&mut self, n: usize) {
        self.slots.reserve(n.min(64));
    }

    /// Counts a command of `nr` BIOs in the side table.
    #[inline]
    pub(crate) fn issued(&mut self, i: usize, nr: u32) {
        self.count(i, |c| {
            c.issued += 1;
            c.merged += u64::from(nr - 1);
        });
    }

    /// Counts a refusal and passes the status on.
    #[cold]
    pub(crate) fn rejected(&mut self, i: usize, status: Status) -> Status {
        self.counters.rejected.count(status);
        self.count(i, |c| c.rejected += 1);
        status
    }

    /// Parks an admitted run at the tail of its zone. A run is contiguous BIOs of one queue and kind, `len_sectors`
    /// long in all. Leaves `run` empty.
    #[inline(always)]
    pub(crate) fn park(
        &mut self,
        i: usize,
        run: &mut Vec<Box<Bio>>,
        len_sectors: u32,
        queue: u32,
        kind: Kind,
    ) {
        let nr = run.len() as u32;
        let slot = self.slots.put(run, len_sectors, queue, kind);
        let plug = &mut self.plugs[i];
        debug_assert!(plug.is_plugged(), "I4: a parked write needs a busy plug");
        if plug.parked == 0 {
            plug.head = slot;
        } else {
            self.slots.link(plug.tail, slot);
        }
        plug.tail = slot;
        plug.parked += nr;
        self.count(i, |c| c.parked += u64::from(nr));
    }

    /// Fills `cmd` with the parked writes at the head of a busy plug: the first one, and as many as merge with it
    /// (W15). Returns false if no write is parked; the plug is idle then.
    #[inline(always)]
    pub(crate) fn fill(&mut self, i: usize, merge: Merge, cmd: &mut Command) -> bool {
        let plug = &mut self.plugs[i];
        debug_assert!(plug.is_plugged(), "I4");
        debug_assert!(cmd.bios.is_empty());
        if plug.parked == 0 {
            plug.state &= !PLUGGED;
            return false;
        }
        // All parked writes of a zone are contiguous: an append got its sector when it was admitted.
        let first = self.slots.get(plug.head);
        let (kind, owner) = (first.kind, first.queue);
        let (sector, mut total) = (first.sector, first.len_sectors);
        let mut next = self.slots.take(plug.head, &mut cmd.bios);
        cmd.set(kind.op(), sector, 0, kind.flags());
        cmd.generation = plug.generation;
        cmd.waiter = Waiter::Plug;
        cmd.begin_owners(owner);
        let max = merge.max_of(kind);
        let max_bios = merge.max_bios;
        while next != NONE && (cmd.bios.len() as u32) < max_bios {
            let s = self.slots.get(next);
            if !s.kind.merges(kind)
                || s.len_sectors > max.saturating_sub(total)
                || s.nr() > max_bios - cmd.bios.len() as u32
            {
                break;
            }
            total += s.len_sectors;
            cmd.add_owner(s.queue, s.nr());
            next = self.slots.take(next, &mut cmd.bios);
        }
        let nr = cmd.bios.len() as u32;
        cmd.len_sectors = total;
        plug.head = next;
        plug.parked -= nr;
        self.issued(i, nr);
        true
    }

    /// Returns the range of sectors that waits in zone `i`, which starts at `start`.
    pub(crate) fn extent(&self, i: usize, start: Sector) -> Option<Range<Sector>> {
        let plug = &self.plugs[i];
        (plug.parked != 0).then(|| self.slots.get(plug.head).sector..start.plus(u64::from(plug.wp)))
    }

    /// The flags of the first BIO that waits in zone `i`.
    pub(crate) fn next_flags(&self, i: usize) -> Flags {
        let plug = &self.plugs[i];
        if plug.parked == 0 { Flags::NONE } else { self.slots.get(plug.head).flags() }
    }

    /// Like [`Shard::fill`], for a zone that was in line and has got `cmd` as its tag.
    pub(crate) fn fill_from_line(&mut self, i: usize, merge: Merge, cmd: &mut Command) -> bool {
        self.plugs[i].in_line = false;
        self.fill(i, merge, cmd)
    }

    /// Ends the only write in flight of zone `i`, of which nothing is to be undone. Returns the next step.
    #[inline(always)]
    pub(crate) fn next(&mut self, i: usize) -> AfterWrite {
        let plug = &mut self.plugs[i];
        if plug.parked == 0 {
            plug.unlock_zone();
            AfterWrite::Idle
        } else {
            debug_assert!(plug.is_plugged(), "I4: a completion of an idle plug");
            AfterWrite::Issue
        }
    }

    /// Moves every waiting write of zone `i` to `aborted`. The plug keeps its `PLUGGED` bit, because a write may be
    /// in flight. Only if the zone is in the single writer's list is nothing in flight, and the bit is cleared.
    #[cold]
    pub(super) fn abort(&mut self, i: usize, aborted: &mut Vec<Box<Bio>>) {
        self.end_recovery(i, aborted);
        let plug = &mut self.plugs[i];
        let mut at = plug.head;
        let waiting = u64::from(plug.parked);
        while at != NONE {
            at = self.slots.take(at, aborted);
        }
        (plug.head, plug.tail, plug.parked) = (NONE, NONE, 0);
        if plug.abort_listing() {
            // The zone was listed, so nothing is in flight, and now nothing waits either. The next write lists the
            // zone again (Q7), or is sent at once if the single writer has been switched off.
            plug.state &= !PLUGGED;
            plug.in_line = false;
        }
        self.counters.aborted += waiting;
        self.count(i, |c| c.aborted += waiting);
    }

    /// Returns the runs that wait in zone `i`: first sector, length in sectors, number of BIOs, and whether it is
    /// write-zeroes.
    #[cfg(test)]
    pub(crate) fn waiting(&self, i: usize) -> Vec<(u64, u32, u32, bool)> {
        let mut all = Vec::new();
        let (mut at, mut left) = (self.plugs[i].head, self.plugs[i].parked);
        while left > 0 {
            let s = self.slots.get(at);
            let zeroes = s.kind.op() == crate::bio::Op::WriteZeroes;
            all.push((s.sector.0, s.len_sectors, s.nr(), zeroes));
            left -= s.nr();
            at = self.slots.next(at);
        }
        all
    }

    /// Moves all waiting writes of all zones to `aborted`, because the layout has changed (V7).
    pub(crate) fn abort_all(&mut self, aborted: &mut Vec<Box<Bio>>) {
        for i in 0..self.plugs.len() {
            if self.plugs[i].parked != 0 {
                self.abort(i, aborted);
            }
        }
    }

    /// Begins a change of plug `i` without its end, for [`Shard::change`] and for tests of one plug.
    #[inline]
    pub(super) fn begin_change(&mut self, i: usize) -> PlugChange<'_> {
        PlugChange { shard: self, i }
    }
}

impl PlugChange<'_> {
    /// Returns the index of the plug in its shard.
    #[inline]
    pub(crate) fn index(&self) -> usize {
        self.i
    }

    /// Ends a write command of the zone. `offset` is the write's offset in the zone, in sectors.
    #[inline(always)]
    pub(crate) fn complete(
        &mut self,
        cmd: &Command,
        offset: u32,
        epoch: u32,
        aborted: &mut Vec<Box<Bio>>,
    ) -> AfterWrite {
        let i = self.i;
        let plug = &mut self.plugs[i];
        debug_assert!(plug.is_plugged(), "I4: a completion of an idle plug");
        let known = plug.state & NEED_WP == 0;
        let undo = match cmd.write_pointer() {
            WritePointer::Advanced => false,
            WritePointer::Kept => {
                // After a reset in between, the write pointer of the reset stands and the parked writes are not
                // aborted (M4), unless the zone refuses all writes from now on.
                let own = plug.generation == cmd.generation;
                if own {
                    plug.wp = offset;
                }
                plug.refused_for_good(cmd.status, epoch) || own
            }
            WritePointer::Unknown => {
                plug.state |= NEED_WP;
                plug.error_epoch = epoch;
                self.counters.lost += 1;
                true
            }
        };
        if undo {
            self.abort(i, aborted);
            self.plugs[i].state &= !PLUGGED;
            let plug = &self.plugs[i];
            let lost = known && plug.state & NEED_WP != 0;
            return if lost { AfterWrite::Lost } else { AfterWrite::Aborted };
        }
        self.next(i)
    }

    /// Notes that a reset of the zone succeeded (M3).
    pub(crate) fn reset(&mut self, aborted: &mut Vec<Box<Bio>>) {
        self.restart(0, aborted);
    }

    /// Notes that a finish of the zone, `zone_sectors` long, succeeded (M3).
    pub(crate) fn finish(&mut self, zone_sectors: u32, aborted: &mut Vec<Box<Bio>>) {
        let wp = zone_sectors;
        self.restart(wp, aborted);
    }

    fn restart(&mut self, wp: u32, aborted: &mut Vec<Box<Bio>>) {
        let i = self.i;
        let plug = &mut self.plugs[i];
        if plug.state & (CONVENTIONAL | READONLY | OFFLINE) != 0 {
            return;
        }
        plug.wp = wp;
        plug.generation = word::generation(plug.generation + 1);
        plug.state &= PLUGGED | MANAGED | EARLY;
        self.abort(i, aborted);
    }

    /// Takes the report of the zone, with its epochs (E4-E6). With `resync` it also corrects an idle zone (E10). Returns
    /// whether it should have corrected the zone and could not, because the zone was busy.
    pub(crate) fn reported(
        &mut self,
        zone: &ZoneInfo,
        epochs: ReportEpochs,
        resync: bool,
        aborted: &mut Vec<Box<Bio>>,
    ) -> bool {
        let i = self.i;
        let appends = self.has_appends(i);
        let plug = &mut self.plugs[i];
        if plug.state & CONVENTIONAL != 0 {
            return false;
        }
        let gone = matches!(zone.cond, Condition::ReadOnly | Condition::Offline);
        let newer = epochs.are_since(plug.error_epoch);
        // While a write or a native append of the zone is at the device, the report is already out of date.
        let rests = !plug.has_writes() && !appends;
        let back = plug.state & (READONLY | OFFLINE) != 0 && !gone && newer && rests;
        let lost = plug.state & NEED_WP != 0;
        let fresh = lost && newer && rests;
        let marked = plug.state & RESYNC != 0;
        let asked = resync && marked && newer && !appends;
        if gone {
            plug.set_from(zone);
            // Reports that were sent earlier do not bring the zone back: they may be from before it went.
            plug.error_epoch = epochs.now;
            self.abort(i, aborted);
        } else if fresh || back || asked {
            plug.set_from(zone);
            self.counters.resynced += 1;
            self.count(i, |c| c.resynced += 1);
        }
        resync && !gone && !fresh && !back && !asked
    }

    /// Marks the write pointer of the zone as unknown, because a native append is sent or has ended (A7), or because a
    /// reset or finish ended with an unknown outcome.
    pub(crate) fn forget_write_pointer(&mut self, epoch: u32, aborted: &mut Vec<Box<Bio>>) {
        let i = self.i;
        let plug = &mut self.plugs[i];
        plug.state &= !RESYNC;
        if plug.state & (NEED_WP | CONVENTIONAL) == 0 {
            plug.state |= NEED_WP;
            self.abort(i, aborted);
        }
        self.plugs[i].error_epoch = epoch;
    }
}
