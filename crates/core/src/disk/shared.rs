//! What all queues of a disk share: the plugs in their shards, the layout, the mailboxes, the single writers, the scheduler.

use super::changes::PendingChange;
use super::guard::late::LateTable;
use super::guard::resets::Resets;
use super::mailbox::{self, Counts, Queues};
use super::snapshot::Layout;
use super::state::{ORPHANS, VERSION};
use crate::device::Device;
use crate::plug::Shard;
use crate::sched::elevator::Elevator;
use crate::sched::writer::Gate;
use crate::sync::{AtomicBool, AtomicU32, AtomicU64, Mutex, MutexGuard, Ordering, Padded, lock};
use crate::unit::{Nanos, ZoneNo};
use crate::zone::{Spindles, ZoneInfo};
use std::sync::Arc;

/// How long a freeze waits without progress, unless [`Disk::set_drain_limit`](super::Disk::set_drain_limit) says otherwise: 30 s, as
/// long as Linux gives a SCSI command.
pub(crate) const DRAIN_LIMIT: Nanos = Nanos(30_000_000_000);

/// Most shards of a disk.
pub(crate) const MAX_SHARDS: usize = 64;

/// A queue that was dropped with work in flight: another queue polls it until the work is done.
pub(crate) trait Orphan: Send {
    /// Polls it. Returns whether it has work left.
    fn poll_orphan(&mut self, now: Nanos) -> bool;

    /// Arms its queue of the device.
    fn arm_orphan(&mut self);

    /// When polling it has work of its own.
    fn own_deadline(&self) -> Option<Nanos>;
}

/// What all queues of a disk share.
pub(crate) struct Shared {
    pub(crate) device: Arc<dyn Device>,
    /// One word that every submit and poll compares with what it saw last: see `state.rs`.
    pub(crate) state: Padded<AtomicU32>,
    pub(crate) layout: Mutex<Arc<Layout>>,
    pub(crate) shards: Box<[Padded<Mutex<Shard>>]>,
    pub(crate) shard_bits: u32,
    pub(crate) queues: Arc<Queues>,
    /// Sum of the depths of all open queues; its maximum is the size of the slot tables.
    pub(crate) depths: AtomicU64,
    /// Counts lost write pointers and resyncs (E6).
    pub(crate) epoch: AtomicU32,
    pub(crate) orphans: Mutex<Vec<Box<dyn Orphan>>>,
    /// The counts of queues that have closed.
    pub(crate) past: Counts,
    /// Commands that were given up and are still at the device.
    pub(crate) late: Arc<LateTable>,
    /// Resets and finishes that are not over.
    pub(crate) resets: Resets,
    /// A native append has been used since the last reset of all zones (A8).
    pub(crate) append_used: AtomicBool,
    /// Whether the device or the layer looks at the time.
    pub(crate) timed: AtomicBool,
    /// The single writer of each spindle. Taken before a shard's lock, never after it, and never two.
    pub(crate) gates: Box<[Padded<Mutex<Gate>>]>,
    /// The spindle of each zone, as the device reported it when the disk was opened.
    pub(crate) spindles: Spindles,
    /// Changes of attributes that wait for the disk to drain. The layout's lock may be taken under it.
    pub(crate) changes: Mutex<Vec<PendingChange>>,
    /// How long a freeze waits without progress, in nanoseconds: see [`Disk::set_drain_limit`](super::Disk::set_drain_limit).
    pub(crate) drain_limit: AtomicU64,
    /// What waits where a scheduler is on. No other lock is taken under it.
    pub(crate) elevator: Padded<Mutex<Elevator>>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("shards", &self.shards.len()).finish_non_exhaustive()
    }
}

impl Shared {
    /// The shard of a zone and its index there. A bijection: `1 << shard_bits` zones in a row go to as many shards,
    /// in an order that differs from row to row, so that evenly spaced zones do not meet in one.
    #[inline]
    pub(crate) fn place(&self, zone: ZoneNo) -> (usize, usize) {
        let row = zone.0 >> self.shard_bits;
        let mix = (row.wrapping_mul(0x9e37_79b1)) >> 16;
        // There are `1 << shard_bits` shards, and the compiler sees that the index is in range.
        let mask = self.shards.len() - 1;
        ((zone.0 ^ mix) as usize & mask, row as usize)
    }

    /// The shard of a zone, locked, and the zone's index in it.
    #[inline]
    pub(crate) fn shard(&self, zone: ZoneNo) -> (MutexGuard<'_, Shard>, usize) {
        let (s, i) = self.place(zone);
        (lock(&self.shards[s].0), i)
    }

    /// Wakes every queue that sleeps.
    pub(crate) fn wake_all(&self) {
        mailbox::wake_all(&self.queues);
    }

    /// Publishes the state derived from a new layout for readers that hold no copy of it.
    pub(crate) fn note(&self, layout: &Layout) {
        // Never cleared: times that were stored are compared with later ones.
        if layout.timed || self.device.is_timed() {
            self.timed.store(true, Ordering::Relaxed);
        }
        self.configure_elevator(layout);
        for s in &self.shards {
            lock(&s.0).keep_tracks(layout.zone_depth > 1);
        }
    }

    pub(crate) fn bump(&self) {
        self.state.0.fetch_add(VERSION, Ordering::AcqRel);
    }

    /// New plugs for all zones, as `zones` describes them.
    pub(crate) fn rebuild_plugs(
        &self,
        zones: &[ZoneInfo],
        per_zone: bool,
        aborted: &mut Vec<Box<crate::Bio>>,
    ) {
        let depths = self.depths.load(Ordering::Relaxed) as usize;
        self.gates.iter().for_each(|gate| lock(&gate.0).clear());
        for s in &self.shards {
            let mut g = lock(&s.0);
            g.abort_all(aborted);
            g.plugs.clear();
            g.forget_tracks();
            g.reserve(depths);
        }
        // In the order of zone numbers each zone is the next of its shard: rows ascend.
        for (z, info) in zones.iter().enumerate() {
            let (mut g, i) = self.shard(ZoneNo(z as u32));
            debug_assert_eq!(i, g.plugs.len());
            g.plugs.push(crate::plug::Plug::new(info));
            if per_zone && g.per_zone.len() <= i {
                g.per_zone.push(crate::plug::ZoneCounters::default());
            }
        }
    }

    /// How many requests usually wait at most: a queue that is opened makes room for its own.
    pub(crate) fn usual_waiting(&self) -> usize {
        self.depths.load(Ordering::Relaxed).min(4096) as usize
    }

    /// The scheduler behaves as the layout says from now on.
    pub(crate) fn configure_elevator(&self, layout: &Layout) {
        let mut elevator = lock(&self.elevator.0);
        elevator.configure(layout.elevator_setup());
        elevator.reserve(if layout.scheduled { self.usual_waiting() } else { 0 });
    }

    /// Polls the queues that were dropped with work in flight, and drops those that have none left.
    #[cold]
    pub(crate) fn poll_orphans(&self, now: Nanos) {
        self.visit_orphans(|orphan| orphan.poll_orphan(now));
    }

    /// Arms the orphans' queues of the device, so that they wake the owners that sleep: a BIO of one of these may wait
    /// behind an orphan's command. Called with the caller's waker in place, so that no completion from here on is
    /// missed.
    #[cold]
    pub(crate) fn arm_orphans(&self) {
        self.visit_orphans(|orphan| {
            orphan.arm_orphan();
            true
        });
    }

    /// Lets `visit` see each of them; it answers whether the orphan stays.
    fn visit_orphans(&self, mut visit: impl FnMut(&mut dyn Orphan) -> bool) {
        // Off the list during the visit, because an orphan's own refresh visits the list as well.
        let mut orphans = std::mem::take(&mut *lock(&self.orphans));
        orphans.retain_mut(|orphan| visit(&mut **orphan));
        let mut list = lock(&self.orphans);
        list.append(&mut orphans);
        // Under the list's lock: another visitor may have found it empty meanwhile, and cleared the bit.
        let mut missed = false;
        if list.is_empty() {
            self.state.0.fetch_and(!ORPHANS, Ordering::AcqRel);
        } else {
            missed = self.state.0.fetch_or(ORPHANS, Ordering::AcqRel) & ORPHANS == 0;
        }
        drop(list);
        if missed {
            // The other visitor may sleep by now, and this queue's owner may have no reason to poll again.
            self.wake_all();
        }
    }
}
