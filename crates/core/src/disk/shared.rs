//! State that all queues of a disk share: the plugs in their shards, the layout, the mailboxes, the single writers,
//! the scheduler.

use super::changes::PendingChange;
use super::events::EventLog;
use super::guard::late::LateTable;
use super::guard::resets::Resets;
use super::mailbox::{self, Counts, Queues};
use super::snapshot::Layout;
use super::state::{ORPHANS, VERSION};
use crate::device::Device;
use crate::plug::{OrderWindow, PlugPlace, Shard, Words};
use crate::sched::elevator::Elevator;
use crate::sched::writer_cell::WriterCell;
use crate::sync::{AtomicBool, AtomicU32, AtomicU64, Mutex, MutexGuard, Ordering, Padded, lock};
use crate::unit::{Nanos, ZoneNo};
use crate::zone::{Spindles, ZoneInfo};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// How long a freeze waits without progress, unless [`Disk::set_drain_limit`](super::Disk::set_drain_limit) changes
/// it: 30 s, as long as Linux gives a SCSI command.
pub(crate) const DRAIN_LIMIT: Nanos = Nanos(30_000_000_000);

/// Most shards of a disk.
pub(crate) const MAX_SHARDS: usize = 64;

/// A queue that was dropped with work in flight. The other queues poll it until the work has ended. It does not refer to
/// the disk, so it does not keep a disk alive that has no other queue.
pub(crate) trait Orphan: Send {
    /// Polls the orphan. Returns whether it has work left.
    fn poll_orphan(&mut self, shared: &Arc<Shared>, now: Nanos) -> bool;

    /// Arms the orphan's queue of the device.
    fn arm_orphan(&mut self);

    /// Returns the time at which the orphan has work to do by itself.
    fn own_deadline(&self) -> Option<Nanos>;
}

/// The lock of a shard, with one plug locked. At its end the plug is unlocked.
pub(crate) struct PlugGuard<'a> {
    shard: MutexGuard<'a, Shard>,
    i: usize,
}

impl Deref for PlugGuard<'_> {
    type Target = Shard;

    #[inline]
    fn deref(&self) -> &Shard {
        &self.shard
    }
}

impl DerefMut for PlugGuard<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Shard {
        &mut self.shard
    }
}

impl Drop for PlugGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        self.shard.unlock_plug(self.i);
    }
}

/// State that all queues of a disk share.
pub(crate) struct Shared {
    /// The device below.
    pub(crate) device: Arc<dyn Device>,
    /// The word that every submit and poll compares with the value that it saw last: see `state.rs`.
    pub(crate) state: Padded<AtomicU32>,
    /// The snapshot for the hot path, of which each queue keeps a copy.
    pub(crate) layout: Mutex<Arc<Layout>>,
    /// The plugs, in shards.
    pub(crate) shards: Box<[Padded<Mutex<Shard>>]>,
    /// log2 of the number of shards.
    pub(crate) shard_bits: u32,
    /// The mailboxes of the open queues, by id.
    pub(crate) queues: Arc<Queues>,
    /// The sum of the depths of all open queues. Slot tables are made for it.
    pub(crate) depths: AtomicU64,
    /// Counts lost write pointers and resyncs (E6).
    pub(crate) epoch: AtomicU32,
    /// Queues that were dropped with work in flight.
    pub(crate) orphans: Mutex<Vec<Box<dyn Orphan>>>,
    /// The counts of queues that have closed.
    pub(crate) past: Counts,
    /// Tickets of commands that were given up and are still at the device.
    pub(crate) late: Arc<LateTable>,
    /// The events for the disk's owner. Locked under any lock; nothing is locked under it.
    pub(crate) events: Arc<EventLog>,
    /// Resets and finishes that have not ended.
    pub(crate) resets: Resets,
    /// Writes that have come before their place. Locked under a shard; nothing is locked under it.
    pub(crate) order_window: Mutex<OrderWindow>,
    /// The time at which the first of them is to be refused, in nanoseconds, for a look without the lock
    /// (`order_window.rs`).
    pub(crate) window_due: AtomicU64,
    /// Whether a native append has been used since the last reset of all zones (A8).
    pub(crate) append_used: AtomicBool,
    /// Whether the device or the layer uses the time.
    pub(crate) timed: AtomicBool,
    /// The single writer of each spindle. Locked before a shard, never after it, and never two at a time.
    pub(crate) single_writers: Box<[Padded<WriterCell>]>,
    /// The spindle of each zone, as the device reported it when the disk was opened.
    pub(crate) spindles: Spindles,
    /// Changes of attributes that wait for the disk to drain. While this is locked, the layout may be locked.
    pub(crate) changes: Mutex<Vec<PendingChange>>,
    /// The time that a freeze waits without progress, in nanoseconds.
    pub(crate) drain_limit: AtomicU64,
    /// The scheduler with its requests. While this is locked, nothing else is locked.
    pub(crate) elevator: Padded<Mutex<Elevator>>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("shards", &self.shards.len()).finish_non_exhaustive()
    }
}

impl Shared {
    /// Returns the place of a zone's plug. The mapping is one to one. Each row of `1 << shard_bits` consecutive
    /// zones is spread over all shards, in an order that differs from row to row. So evenly spaced zones do not all
    /// fall into one shard.
    #[inline]
    pub(crate) fn place(&self, zone: ZoneNo) -> PlugPlace {
        let row = zone.0 >> self.shard_bits;
        let mix = (row.wrapping_mul(0x9e37_79b1)) >> 16;
        // There are `1 << shard_bits` shards. Written this way, the compiler sees that the index is in range.
        let mask = self.shards.len() - 1;
        PlugPlace { shard: (zone.0 ^ mix) as usize & mask, index: row as usize }
    }

    /// Returns the zone whose [`Shared::place`] this is.
    pub(crate) fn zone_at(&self, place: PlugPlace) -> ZoneNo {
        let row = place.index as u32;
        let mix = (row.wrapping_mul(0x9e37_79b1)) >> 16;
        let low = (place.shard as u32 ^ mix) & (self.shards.len() - 1) as u32;
        ZoneNo(row << self.shard_bits | low)
    }

    /// Returns the shard of a zone, locked, with the zone's plug locked, and the zone's index in it.
    #[inline]
    pub(crate) fn shard(&self, zone: ZoneNo) -> (PlugGuard<'_>, usize) {
        let (shard, i) = self.shard_of(zone);
        (PlugGuard { shard, i }, i)
    }

    /// Like [`Shared::shard`], for callers that unlock the plug themselves ([`Shard::unlock_plug`]). Unlocking has no
    /// effect while a write waits in the plug or the disk keeps all plugs.
    #[inline]
    pub(crate) fn shard_of(&self, zone: ZoneNo) -> (MutexGuard<'_, Shard>, usize) {
        let place = self.place(zone);
        (self.lock_plug(place), place.index)
    }

    /// Like [`Shared::shard_of`], for a place that [`Shared::place`] has returned.
    #[inline(always)]
    pub(crate) fn lock_plug(&self, place: PlugPlace) -> MutexGuard<'_, Shard> {
        let mut shard = lock(&self.shards[place.shard & (self.shards.len() - 1)].0);
        shard.lock_plug(place.index);
        shard
    }

    /// The single writer of a zone, and the number of its spindle.
    #[inline]
    pub(crate) fn single_writer(&self, zone: ZoneNo) -> (&WriterCell, usize) {
        let spindle = match &*self.single_writers {
            [_] => 0,
            _ => self.spindles.of(zone),
        };
        (&self.single_writers[spindle].0, spindle)
    }

    /// Wakes every queue that sleeps.
    pub(crate) fn wake_all(&self) {
        mailbox::wake_all(&self.queues);
    }

    /// Publishes the state derived from a new layout for readers that hold no copy of it.
    pub(crate) fn note(&self, layout: &Layout) {
        // Never set back to false: times that were stored before are compared with later ones.
        if layout.timed || self.device.is_timed() {
            self.timed.store(true, Ordering::Relaxed);
        }
        self.configure_elevator(layout);
        for writer in &self.single_writers {
            writer.0.inspect().allow_short_turns(layout.short_turns);
        }
        for s in &self.shards {
            let mut shard = lock(&s.0);
            shard.keep_tracks(layout.zone_depth > 1);
            // The code of arbitrated disks, and the counts of each zone, read the plug and not its word. Short turns, and
            // writes that pass a scheduler by, use the word.
            let uses_words = layout.short_turns || layout.passes_scheduler;
            shard.keep_locked(layout.arbitrated && !uses_words || layout.config.zone_counters);
        }
    }

    pub(crate) fn bump(&self) {
        self.state.0.fetch_add(VERSION, Ordering::AcqRel);
    }

    /// Makes room for the plugs of `zones` zones, and returns words for them. `None`: there is too little memory, and
    /// nothing has changed.
    pub(crate) fn room_for_plugs(&self, zones: usize) -> Option<Arc<Words>> {
        let rows = zones.div_ceil(self.shards.len());
        for shard in &self.shards {
            let plugs = &mut lock(&shard.0).plugs;
            plugs.try_reserve_exact(rows.saturating_sub(plugs.len())).ok()?;
        }
        Words::new(self.shards.len(), rows).map(Arc::new)
    }

    /// Makes new plugs for all zones, as `zones` describes them, with the words of [`Shared::room_for_plugs`].
    pub(crate) fn rebuild_plugs(
        &self,
        words: &Arc<Words>,
        zones: &[ZoneInfo],
        per_zone: bool,
        aborted: &mut Vec<Box<crate::Bio>>,
    ) {
        let depths = self.depths.load(Ordering::Relaxed) as usize;
        self.single_writers.iter().for_each(|writer| writer.0.inspect().clear());
        for (s, shard) in self.shards.iter().enumerate() {
            let mut g = lock(&shard.0);
            g.abort_all(aborted);
            g.plugs.clear();
            g.forget_tracks();
            g.take_words(words.clone(), s);
            g.reserve(depths);
        }
        // In the order of zone numbers, each zone is the next one of its shard, because rows ascend.
        for (z, info) in zones.iter().enumerate() {
            let PlugPlace { shard, index: i } = self.place(ZoneNo(z as u32));
            let mut g = lock(&self.shards[shard].0);
            debug_assert_eq!(i, g.plugs.len());
            g.push(crate::plug::Plug::new(info));
            if per_zone && g.per_zone.len() <= i {
                g.per_zone.push(crate::plug::ZoneCounters::default());
            }
        }
    }

    /// Returns how many requests usually wait at most. A queue that is opened makes room for its own.
    pub(crate) fn usual_waiting(&self) -> usize {
        self.depths.load(Ordering::Relaxed).min(4096) as usize
    }

    /// Sets up the scheduler as the layout says.
    pub(crate) fn configure_elevator(&self, layout: &Layout) {
        let mut elevator = lock(&self.elevator.0);
        elevator.configure(layout.elevator_setup());
        elevator.reserve(if layout.scheduled { self.usual_waiting() } else { 0 });
    }

    /// Polls the queues that were dropped with work in flight, and drops those that have finished.
    #[cold]
    pub(crate) fn poll_orphans(shared: &Arc<Shared>, now: Nanos) {
        shared.visit_orphans(|orphan| orphan.poll_orphan(shared, now));
    }

    /// Arms the orphans' queues of the device, because a BIO of a sleeping owner may wait behind an orphan's command.
    /// The caller's waker is in place already, so no completion from here on is missed.
    #[cold]
    pub(crate) fn arm_orphans(&self) {
        self.visit_orphans(|orphan| {
            orphan.arm_orphan();
            true
        });
    }

    /// Calls `visit` for each orphan. An orphan for which it returns false is removed. If it panics, the others stay.
    fn visit_orphans(&self, mut visit: impl FnMut(&mut dyn Orphan) -> bool) {
        // The list is empty during the visit, because an orphan that updates its state visits the list as well.
        let orphans = std::mem::take(&mut *lock(&self.orphans));
        let mut taken = TakenOrphans { shared: self, orphans };
        taken.orphans.retain_mut(|orphan| visit(&mut **orphan));
    }
}

/// The orphans that a visitor has taken off the list. They go back when this is dropped, also when a device panics.
struct TakenOrphans<'a> {
    shared: &'a Shared,
    orphans: Vec<Box<dyn Orphan>>,
}

impl Drop for TakenOrphans<'_> {
    fn drop(&mut self) {
        let shared = self.shared;
        let mut list = lock(&shared.orphans);
        list.append(&mut self.orphans);
        // Under the list's lock: another visitor may have found the list empty meanwhile and cleared the bit.
        let mut missed = false;
        if list.is_empty() {
            shared.state.0.fetch_and(!ORPHANS, Ordering::AcqRel);
        } else {
            missed = shared.state.0.fetch_or(ORPHANS, Ordering::AcqRel) & ORPHANS == 0;
        }
        drop(list);
        if missed {
            // That other visitor may sleep by now, and this queue's owner may have no reason to poll again.
            shared.wake_all();
        }
    }
}
