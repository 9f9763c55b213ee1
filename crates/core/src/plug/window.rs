//! The order window: writes that have come before their place in the zone, held until the gap before them fills.
//!
//! With the attribute `order_window`, a positional write to a healthy zone that starts past the write pointer is held
//! instead of refused. A held write is called *early* here. It has not been accepted: the write pointer, the parked
//! writes, tags, budgets and the single writer do not know of it. It leaves the window in one of three ways:
//!
//! * An admission, or a report, brings the write pointer to its start: [`OrderWindow::follow_plug`] admits it next.
//! * Its time is over ([`OrderWindow::expire`]), or its client goes away ([`OrderWindow::leave`]): it is refused.
//! * It can no longer be admitted, because another write took its place, or because the zone was reset or finished or
//!   takes no writes any more: [`OrderWindow::follow_plug`] refuses it.
//!
//! An early write is refused with the status that a disk without a window would give it. A write that starts at the
//! write pointer is admitted whatever is held behind it. So another write fails because of an early one only if that
//! was first at its place.
//!
//! While a zone has early writes, its plug has the state bit `EARLY`. [`Plug::admit`] then refuses every write, and
//! the caller turns to [`PlugChange::admit`](super::PlugChange::admit). So zones without early writes pay nothing. Whatever changes
//! such a plug goes through [`Shard::change`], which calls `follow_plug` at its end (`change.rs`).
//!
//! This file is plain state: the time is an argument, and `disk/queue/early.rs` takes the locks. The caller holds the
//! lock of the zone's shard, and under it that of the window.

use super::shard::Shard;
use super::state::{EARLY, MANAGED, NEED_WP, PLUGGED, RESYNC};
use super::{Admit, Kind, Plug};
use crate::bio::{Bio, Status};
use crate::unit::{Nanos, ZoneNo};
use std::collections::{BTreeMap, BTreeSet};

/// A number of writes, and their length.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct HeldAmount {
    writes: u64,
    sectors: u64,
}

/// The limit of held writes on a disk: 65,536 writes, 4 GiB. Each client may use an equal share.
const DISK: HeldAmount = HeldAmount { writes: 65_536, sectors: 4096 << 11 };
/// The limit of held writes in a zone: 1024 writes, 256 MiB. It is not shared out, because the clients of a zone depend on each
/// other anyway.
const ZONE: HeldAmount = HeldAmount { writes: 1024, sectors: 256 << 11 };

impl HeldAmount {
    fn with(self, sectors: u64) -> HeldAmount {
        HeldAmount { writes: self.writes + 1, sectors: self.sectors + sectors }
    }

    fn without(self, sectors: u64) -> HeldAmount {
        HeldAmount { writes: self.writes - 1, sectors: self.sectors - sectors }
    }

    fn fits(self, all: HeldAmount) -> bool {
        self.writes <= all.writes && self.sectors <= all.sectors
    }

    /// Returns whether this is at most one client's share of `all` among `clients`. Each client may use room for one
    /// write.
    fn fits_share(self, all: HeldAmount, clients: u64) -> bool {
        let share = HeldAmount { writes: all.writes / clients, sectors: all.sectors / clients };
        self.writes <= 1 || self.fits(share)
    }
}

/// Counts of a disk's order window since the disk was opened, and its present content.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WindowCounters {
    /// Writes that are held now.
    pub writes: u64,
    /// Their length in sectors.
    pub sectors: u64,
    /// Writes that were ever held. Each of them is held now, or counts as admitted, expired or dropped.
    pub held: u64,
    /// Held writes that were admitted.
    pub admitted: u64,
    /// Held writes that were refused because their time was over.
    pub expired: u64,
    /// Held writes that were refused for another reason: another write took their place, the zone was reset or takes
    /// no writes any more, or their client went away.
    pub dropped: u64,
    /// Writes that were refused at once because the zone held too much.
    pub over_zone: u64,
    /// Writes that were refused at once because their client had too much held.
    pub over_client: u64,
    /// Writes that were refused at once because the disk held too much.
    pub over_disk: u64,
}

/// The reason for which an early write was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reason {
    Expired,
    Dropped,
}

/// An early write: one BIO, or the parts of a split one.
#[derive(Debug)]
struct Early {
    bios: Vec<Box<Bio>>,
    len_sectors: u32,
    queue: u32,
    /// The zone's generation when the write came.
    generation: u32,
    /// The time of its refusal. `None` until the call that submitted it ends.
    due: Option<Nanos>,
}

/// A write that asks to be held.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EarlyWrite {
    pub(crate) zone: ZoneNo,
    /// Its offset in the zone, in sectors.
    pub(crate) offset: u32,
    pub(crate) len_sectors: u32,
    /// The queue to which it was submitted.
    pub(crate) queue: u32,
    /// The number of queues of the disk.
    pub(crate) queues: usize,
}

/// The result of [`OrderWindow::follow_plug`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct AdmittedEarly {
    /// The number of admitted BIOs. They are parked, one behind the other.
    pub(crate) bios: usize,
    /// The offset of the first of them in the zone, and their length in sectors.
    pub(crate) offset: u32,
    pub(crate) len_sectors: u32,
    /// Whether the first of them found the plug idle. The caller puts the zone in line.
    pub(crate) in_line: bool,
}

/// The early writes of a zone.
#[derive(Debug, Default)]
struct EarlyZone {
    /// By offset. They do not overlap.
    writes: BTreeMap<u32, Early>,
    amount: HeldAmount,
}

/// The early writes of a disk.
#[derive(Debug, Default)]
pub(crate) struct OrderWindow {
    /// The zones that have early writes.
    zones: BTreeMap<ZoneNo, EarlyZone>,
    /// The times of refusal, earliest first. Writes without a time are in `undated`.
    due: BTreeSet<(Nanos, ZoneNo, u32)>,
    /// Zone and offset of early writes that have come with calls that have not ended. Some of them may have left.
    undated: Vec<(ZoneNo, u32)>,
    /// The writes that are held for each client.
    clients: BTreeMap<u32, HeldAmount>,
    all: HeldAmount,
    /// The time since which the disk is frozen, as far as a call has seen it. Nothing expires meanwhile.
    paused: Option<Nanos>,
    counters: WindowCounters,
}

impl Plug {
    /// Returns whether the zone has early writes.
    #[inline]
    pub(crate) fn has_early(&self) -> bool {
        self.state & EARLY != 0
    }

    /// Returns whether early writes of the zone go on waiting. Strict management may be in flight.
    fn keeps_early(&self) -> bool {
        self.state & !(PLUGGED | RESYNC | MANAGED | EARLY) == 0 && self.wp < self.capacity
    }

    /// Like [`Plug::admit`], also for a zone that has early writes.
    pub(super) fn admit_beside_early(&mut self, offset: u32, len: u32) -> Admit {
        let early = self.state & EARLY;
        self.state &= !EARLY;
        let admit = self.admit(offset, len);
        self.state |= early;
        admit
    }

    /// Returns the status with which an early write is refused: that of a write that came now, without a window and
    /// without strict management.
    fn early_refusal(&self, offset: u32) -> Status {
        match self.refusal(offset) {
            // The write pointer has reached the place of a write that can no longer be admitted.
            Status::PastCapacity => Status::NotAtWritePointer,
            Status::ZoneBusy if self.state & NEED_WP != 0 => Status::StaleWritePointer,
            Status::ZoneBusy if self.wp >= self.capacity => Status::ZoneFull,
            Status::ZoneBusy => Status::NotAtWritePointer,
            status => status,
        }
    }
}

impl Shard {
    /// Parks an admitted BIO of zone `i`.
    pub(crate) fn park_one(&mut self, i: usize, bio: Box<Bio>, list: &mut Vec<Box<Bio>>) {
        let (len, queue, kind) = (bio.len_sectors, bio.queue, Kind::of(&bio));
        debug_assert!(list.is_empty());
        list.push(bio);
        self.park(i, list, len, queue, kind);
    }
}

impl OrderWindow {
    /// Returns whether nothing is held.
    pub(crate) fn is_empty(&self) -> bool {
        self.zones.is_empty()
    }

    /// Returns the counts so far, and the present content.
    pub(crate) fn counters(&self) -> WindowCounters {
        let HeldAmount { writes, sectors } = self.all;
        WindowCounters { writes, sectors, ..self.counters.clone() }
    }

    /// Returns how many writes of `zone` are held.
    pub(crate) fn nr_of(&self, zone: ZoneNo) -> usize {
        self.zones.get(&zone).map_or(0, |z| z.writes.len())
    }

    /// Returns the zones that have early writes, or early writes of one client.
    pub(crate) fn zones(&self, of: Option<u32>) -> Vec<ZoneNo> {
        let has = |zone: &EarlyZone| {
            of.is_none_or(|queue| zone.writes.values().any(|e| e.queue == queue))
        };
        self.zones.iter().filter(|(_, zone)| has(zone)).map(|(&zone, _)| zone).collect()
    }

    /// Returns whether a write that the plug has refused may be held: it starts past the write pointer of a healthy
    /// zone, ends within the capacity, overlaps no early write, and there is room. Counts the bound that it exceeds.
    pub(crate) fn may_hold(&mut self, plug: &Plug, write: EarlyWrite) -> bool {
        let EarlyWrite { zone, offset, len_sectors, queue, queues } = write;
        let end = u64::from(offset) + u64::from(len_sectors);
        if !plug.keeps_early()
            || plug.is_managed()
            || offset <= plug.wp
            || end > u64::from(plug.capacity)
        {
            return false;
        }
        let mut here = HeldAmount::default();
        if let Some(early) = self.zones.get(&zone) {
            let before = early.writes.range(..end as u32).next_back();
            if before.is_some_and(|(&at, e)| at + e.len_sectors > offset) {
                return false;
            }
            here = early.amount;
        }
        let (len, clients) = (u64::from(len_sectors), queues.max(1) as u64);
        let own = self.clients.get(&queue).copied().unwrap_or_default();
        let over = if !own.with(len).fits_share(DISK, clients) {
            &mut self.counters.over_client
        } else if !here.with(len).fits(ZONE) {
            &mut self.counters.over_zone
        } else if !self.all.with(len).fits(DISK) {
            &mut self.counters.over_disk
        } else {
            return true;
        };
        *over += 1;
        false
    }

    /// Holds a write for which [`OrderWindow::may_hold`] has just returned true: its BIO, or its parts in order.
    pub(crate) fn hold(&mut self, plug: &mut Plug, write: EarlyWrite, bios: Vec<Box<Bio>>) {
        let EarlyWrite { zone, offset, len_sectors, queue, .. } = write;
        let early = Early { bios, len_sectors, queue, generation: plug.generation(), due: None };
        let len = u64::from(len_sectors);
        let here = self.zones.entry(zone).or_default();
        let before = here.writes.insert(offset, early);
        debug_assert!(before.is_none(), "early writes do not overlap");
        here.amount = here.amount.with(len);
        self.undated.push((zone, offset));
        let own = self.clients.entry(queue).or_default();
        (*own, self.all) = (own.with(len), self.all.with(len));
        self.counters.held += 1;
        plug.state |= EARLY;
    }

    /// Sets the time of refusal of the writes that a call of `queue` has submitted, at its end.
    pub(crate) fn set_due(&mut self, queue: u32, due: Nanos) {
        let zones = &mut self.zones;
        let set = &mut self.due;
        self.undated.retain(|&(zone, offset)| {
            // The write may have left, and a write of another queue may have its place.
            let Some(early) = zones.get_mut(&zone).and_then(|early| early.writes.get_mut(&offset))
            else {
                return false;
            };
            let own = early.queue == queue && early.due.is_none();
            if own {
                early.due = Some(due);
                set.insert((due, zone, offset));
            }
            !own && early.due.is_none()
        });
    }

    /// Returns the time at which the next write is to be refused. `None`: nothing is held, or the disk is frozen.
    pub(crate) fn next_due(&self) -> Option<Nanos> {
        if self.paused.is_some() {
            return None;
        }
        self.due.first().map(|&(due, ..)| due)
    }

    /// Notes that the disk is frozen at `now`: no gap can fill, so the time limits of held writes stop.
    pub(crate) fn pause(&mut self, now: Nanos) {
        if !self.is_empty() {
            self.paused.get_or_insert(now);
        }
    }

    /// Returns whether [`OrderWindow::pause`] was called and [`OrderWindow::resume`] was not.
    pub(crate) fn is_paused(&self) -> bool {
        self.paused.is_some()
    }

    /// Notes that the disk is not frozen any more: the time limits of held writes go on.
    pub(crate) fn resume(&mut self, now: Nanos) {
        let Some(since) = self.paused.take() else { return };
        let pause = now.0.saturating_sub(since.0);
        let later = |due: Nanos| Nanos(due.0.saturating_add(pause));
        self.due = self.due.iter().map(|&(due, zone, at)| (later(due), zone, at)).collect();
        for early in self.zones.values_mut().flat_map(|zone| zone.writes.values_mut()) {
            early.due = early.due.map(later);
        }
    }

    /// Returns the zones in which a write is to be refused at `now`.
    pub(crate) fn zones_due(&self, now: Nanos) -> Vec<ZoneNo> {
        let due = self.due.iter().take_while(|&&(due, ..)| due <= now && self.paused.is_none());
        let zones: BTreeSet<_> = due.map(|&(_, zone, _)| zone).collect();
        zones.into_iter().collect()
    }

    /// Admits the early writes of zone `i` of the shard whose turn has come, and refuses those that can no longer be
    /// admitted; these go to `ended` with their status.
    pub(super) fn follow_plug(
        &mut self,
        zone: ZoneNo,
        shard: &mut Shard,
        i: usize,
        ended: &mut Vec<Box<Bio>>,
    ) -> AdmittedEarly {
        let (mut done, mut list) = (AdmittedEarly::default(), Vec::new());
        while let Some((offset, len, generation)) = self.first(zone) {
            let plug = &mut shard.plugs[i];
            let current = generation == plug.generation();
            if current && offset > plug.wp && plug.keeps_early() {
                break;
            }
            let admit = match current {
                true => plug.admit_beside_early(offset, len),
                false => Admit::Reject(Status::NotAtWritePointer),
            };
            let Some(early) = self.take(zone, offset) else { break };
            if matches!(admit, Admit::Reject(_)) {
                self.refuse(shard, i, offset, early, Reason::Dropped, ended);
                continue;
            }
            self.counters.admitted += 1;
            if done.bios == 0 {
                done.offset = offset;
            }
            done.len_sectors += len;
            done.in_line |= admit == Admit::Issue;
            done.bios += early.bios.len();
            for bio in early.bios {
                shard.park_one(i, bio, &mut list);
            }
        }
        self.clear(zone, shard, i);
        done
    }

    /// Refuses the early writes of zone `i` of the shard whose time is over at `now`.
    pub(crate) fn expire(
        &mut self,
        zone: ZoneNo,
        shard: &mut Shard,
        i: usize,
        now: Nanos,
        ended: &mut Vec<Box<Bio>>,
    ) {
        if self.paused.is_some() {
            return;
        }
        let over = |e: &Early| e.due.is_some_and(|due| due <= now);
        self.refuse_some(zone, shard, i, Reason::Expired, over, ended);
    }

    /// Refuses the early writes of `queue` in zone `i` of the shard, because its client goes away.
    pub(crate) fn leave(
        &mut self,
        zone: ZoneNo,
        shard: &mut Shard,
        i: usize,
        queue: u32,
        ended: &mut Vec<Box<Bio>>,
    ) {
        self.refuse_some(zone, shard, i, Reason::Dropped, |e| e.queue == queue, ended);
    }

    /// Refuses all early writes of a zone that a revalidation has changed. `None`: the zone does not exist any more.
    pub(crate) fn drop_zone(
        &mut self,
        zone: ZoneNo,
        mut place: Option<(&mut Shard, usize)>,
        ended: &mut Vec<Box<Bio>>,
    ) {
        while let Some((offset, ..)) = self.first(zone) {
            let Some(early) = self.take(zone, offset) else { return };
            match &mut place {
                Some((shard, i)) => self.refuse(shard, *i, offset, early, Reason::Dropped, ended),
                None => self.end(early, Status::OutOfRange, Reason::Dropped, ended),
            }
        }
    }

    /// Keeps the early writes of a zone that a revalidation has left as it was, with a new plug. The new plug may
    /// refuse all writes of the zone; the early ones then go to `ended`.
    pub(crate) fn keep_zone(
        &mut self,
        zone: ZoneNo,
        shard: &mut Shard,
        i: usize,
        ended: &mut Vec<Box<Bio>>,
    ) {
        let plug = &mut shard.plugs[i];
        for early in self.zones.get_mut(&zone).into_iter().flat_map(|z| z.writes.values_mut()) {
            early.generation = plug.generation();
            plug.state |= EARLY;
        }
        self.follow_plug(zone, shard, i, ended);
    }

    fn refuse_some(
        &mut self,
        zone: ZoneNo,
        shard: &mut Shard,
        i: usize,
        reason: Reason,
        of: impl Fn(&Early) -> bool,
        ended: &mut Vec<Box<Bio>>,
    ) {
        let early = self.zones.get(&zone).into_iter().flat_map(|z| &z.writes);
        let offsets: Vec<u32> = early.filter(|(_, e)| of(e)).map(|(&offset, _)| offset).collect();
        for offset in offsets {
            let Some(early) = self.take(zone, offset) else { continue };
            self.refuse(shard, i, offset, early, reason, ended);
        }
        self.clear(zone, shard, i);
    }

    /// Refuses a write that has left the window.
    fn refuse(
        &mut self,
        shard: &mut Shard,
        i: usize,
        offset: u32,
        early: Early,
        reason: Reason,
        ended: &mut Vec<Box<Bio>>,
    ) {
        let status = shard.plugs[i].early_refusal(offset);
        shard.rejected(i, status);
        self.end(early, status, reason, ended);
    }

    fn end(&mut self, early: Early, status: Status, reason: Reason, ended: &mut Vec<Box<Bio>>) {
        *match reason {
            Reason::Expired => &mut self.counters.expired,
            Reason::Dropped => &mut self.counters.dropped,
        } += 1;
        ended.extend(early.bios.into_iter().map(|mut bio| {
            bio.status = status;
            bio
        }));
    }

    /// The first early write of a zone: offset, length, generation.
    fn first(&self, zone: ZoneNo) -> Option<(u32, u32, u32)> {
        let (&offset, early) = self.zones.get(&zone)?.writes.first_key_value()?;
        Some((offset, early.len_sectors, early.generation))
    }

    /// Takes a write out of the window, and subtracts it from the held amounts.
    fn take(&mut self, zone: ZoneNo, offset: u32) -> Option<Early> {
        let here = self.zones.get_mut(&zone)?;
        let early = here.writes.remove(&offset)?;
        let len = u64::from(early.len_sectors);
        here.amount = here.amount.without(len);
        if here.writes.is_empty() {
            self.zones.remove(&zone);
        }
        if let Some(due) = early.due {
            self.due.remove(&(due, zone, offset));
        }
        self.all = self.all.without(len);
        if let Some(own) = self.clients.get_mut(&early.queue) {
            *own = own.without(len);
            if own.writes == 0 {
                self.clients.remove(&early.queue);
            }
        }
        if self.is_empty() {
            self.paused = None;
        }
        Some(early)
    }

    /// Makes the plug of a zone without early writes ordinary again.
    fn clear(&self, zone: ZoneNo, shard: &mut Shard, i: usize) {
        if !self.zones.contains_key(&zone) {
            shard.plugs[i].state &= !EARLY;
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;

/// For `scripts/loom`: every interleaving of two threads.
#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::Sector;
    use crate::bio::Op;
    use crate::plug::plug_lock::loom_tests::{CAPACITY, empty_zone};
    use crate::plug::{LockFreeAdmission, PlugPlace, Words};
    use crate::sync::{Mutex, lock};
    use loom::thread;
    use std::sync::Arc;

    const LEN: u32 = 8;

    struct Zone {
        words: Arc<Words>,
        shard: Mutex<Shard>,
        window: Mutex<OrderWindow>,
    }

    impl Zone {
        fn new() -> Arc<Zone> {
            let (words, shard) = empty_zone();
            Arc::new(Zone { words, shard: Mutex::new(shard), window: Mutex::default() })
        }

        /// Submits a write as a queue does: without the lock, and with it if that fails.
        fn write(&self, offset: u32, queue: u32) {
            let place = PlugPlace { shard: 0, index: 0 };
            let admission = self.words.admit(place, Some(offset), LEN, || CAPACITY);
            if matches!(admission, LockFreeAdmission::Admitted { .. }) {
                return;
            }
            let mut shard = lock(&self.shard);
            shard.lock_plug(0);
            let bio = Bio::new(Op::WriteZeroes, Sector(u64::from(offset)), LEN);
            let zone = ZoneNo(0);
            if let Admit::Reject(_) = shard.plugs[0].admit_beside_early(offset, LEN) {
                let write = EarlyWrite { zone, offset, len_sectors: LEN, queue, queues: 2 };
                let mut window = lock(&self.window);
                assert!(window.may_hold(&shard.plugs[0], write), "the gap is before it");
                window.hold(&mut shard.plugs[0], write, vec![bio]);
            } else {
                shard.park_one(0, bio, &mut Vec::new());
                lock(&self.window).follow_plug(zone, &mut shard, 0, &mut Vec::new());
            }
            shard.unlock_plug(0);
        }
    }

    /// H3. A write that comes early is admitted, either by its own call or by the write that fills its gap.
    #[test]
    fn loom_early_against_its_gap() {
        loom::model(|| {
            let zone = Zone::new();
            let other = zone.clone();
            let other = thread::spawn(move || other.write(LEN, 1));
            zone.write(0, 0);
            other.join().expect("the early one");
            let mut shard = lock(&zone.shard);
            shard.lock_plug(0);
            let plug = &shard.plugs[0];
            assert_eq!((plug.write_pointer(), plug.has_early()), (2 * LEN, false), "H3");
            assert!(lock(&zone.window).is_empty());
        });
    }
}
