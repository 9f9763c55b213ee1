//! Events: occurrences that the owner of a disk should know of, and does not see in a completion.
//!
//! Only code that handles failures, reports and resets records events, so a write that succeeds pays nothing. The log
//! keeps the last [`EVENTS_KEPT`] events. Its lock is taken under any other lock, and nothing is locked under it. A
//! [`DeferredWake`] calls the waker when it is dropped, after the locks are released.

use super::snapshot::Layout;
use super::trace;
use crate::bio::{Command, Op, Status};
use crate::plug::Plug;
use crate::sync::{AtomicU32, Mutex, Ordering, lock};
use crate::unit::{Sector, ZoneNo};
use std::collections::{BTreeMap, VecDeque};
use std::task::Waker;

/// The number of events that a disk keeps for its readers. A new one replaces the oldest.
pub const EVENTS_KEPT: usize = 256;

/// The kind of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
#[non_exhaustive]
pub enum EventKind {
    /// A command failed at the device, with `status`: an error of the medium, a limit of open zones, a command that
    /// did not end in time, a device that is gone. If the disk sends failed writes again, the BIOs may still succeed.
    Failed = 1,
    /// The write pointer of the zone is unknown. Its writes are refused until a report, a reset or a finish.
    Stale = 2,
    /// The write pointer of a zone is known again, after a failure.
    Recovered = 3,
    /// The device reports less data in the zone than it has acknowledged. The zone is stale.
    DataMissing = 4,
    /// A command that was given up has come back. Its memory is free again.
    LateBack = 5,
    /// A queue of the device has panicked, and is not used any more.
    QueueDied = 6,
    /// The layout and the zones were read from the device again.
    Revalidated = 7,
}

impl EventKind {
    /// Every kind, in the order of its number.
    pub const ALL: [EventKind; 7] = [
        EventKind::Failed,
        EventKind::Stale,
        EventKind::Recovered,
        EventKind::DataMissing,
        EventKind::LateBack,
        EventKind::QueueDied,
        EventKind::Revalidated,
    ];

    /// Returns a word for the kind.
    ///
    /// ```
    /// assert_eq!(zoneplug_core::disk::EventKind::DataMissing.name(), "data-missing");
    /// ```
    pub const fn name(self) -> &'static str {
        match self {
            EventKind::Failed => "failed",
            EventKind::Stale => "stale",
            EventKind::Recovered => "recovered",
            EventKind::DataMissing => "data-missing",
            EventKind::LateBack => "late-back",
            EventKind::QueueDied => "queue-died",
            EventKind::Revalidated => "revalidated",
        }
    }
}

/// An event of a disk: see [`Disk::events`](super::Disk::events).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Event {
    /// Counts up from 1 without gaps.
    pub sequence: u64,
    /// The kind.
    pub kind: EventKind,
    /// The operation of the command concerned, if there is one.
    pub op: Option<Op>,
    /// The status that caused the event; [`Status::Ok`] if none did.
    pub status: Status,
    /// The zone, if the event concerns one.
    pub zone: Option<ZoneNo>,
    /// The first sector of the command; without a command, the start of the zone; without either, 0.
    pub sector: Sector,
    /// The number of occurrences that this event stands for. An occurrence with the kind, zone, operation and status
    /// of the last event is added to that event until a reader has read it. `sector` is that of the first.
    pub count: u32,
    /// BIOs that waited behind the failed writes and were aborted.
    pub aborted: u32,
}

/// Calls the waker of a log when it is dropped. Callers make it before they take the locks under which events are
/// recorded.
#[derive(Debug, Default)]
pub(crate) struct DeferredWake(Option<Waker>);

impl Drop for DeferredWake {
    fn drop(&mut self) {
        if let Some(waker) = self.0.take() {
            waker.wake();
        }
    }
}

#[derive(Debug, Default)]
struct Inner {
    kept: VecDeque<Event>,
    /// The number of the last event.
    last: u64,
    /// The number of the last event that a reader has read. Such an event no longer changes.
    read: u64,
    /// Zones whose write pointer a failure has made unknown, and whether an event has reported that.
    doubtful: BTreeMap<u32, bool>,
    waker: Option<Waker>,
    /// The number of occurrences of each kind, also of those that were added to an event or are no longer kept.
    counts: [u64; EventKind::ALL.len()],
}

impl Inner {
    fn push(&mut self, wake: &mut DeferredWake, mut event: Event) {
        self.counts[event.kind as usize - 1] += 1;
        let zone = event.zone.map_or(u32::MAX, |z| z.0);
        match event.kind {
            EventKind::Failed => {
                trace::error(event.op, event.status, zone, event.sector.0, event.aborted);
            }
            kind => trace::zone_event(kind as u8, zone, event.sector.0),
        }
        let identity = |e: &Event| (e.kind, e.op, e.status, e.zone);
        if let Some(last) = self.kept.back_mut()
            && last.sequence > self.read
            && identity(last) == identity(&event)
        {
            last.count = last.count.saturating_add(1);
            last.aborted = last.aborted.saturating_add(event.aborted);
        } else {
            self.last += 1;
            event.sequence = self.last;
            if self.kept.len() == EVENTS_KEPT {
                self.kept.pop_front();
            }
            self.kept.push_back(event);
        }
        if wake.0.is_none() {
            wake.0 = self.waker.take();
        }
    }
}

fn event(kind: EventKind) -> Event {
    let (op, zone, sector) = (None, None, Sector(0));
    Event { sequence: 0, kind, op, status: Status::Ok, zone, sector, count: 1, aborted: 0 }
}

fn of_zone(kind: EventKind, layout: &Layout, zone: ZoneNo, status: Status) -> Event {
    let sector = layout.geometry.zone_start(zone);
    Event { zone: Some(zone), sector, status, ..event(kind) }
}

/// The events of a disk.
#[derive(Debug, Default)]
pub(crate) struct EventLog {
    inner: Mutex<Inner>,
    /// The number of doubtful zones, which can be read without the lock. Changes under the lock of the zone's shard, or
    /// while the disk is drained.
    nr_doubtful: AtomicU32,
}

impl EventLog {
    /// Discards the events that opening the disk has recorded.
    pub(crate) fn clear(&self) {
        *lock(&self.inner) = Inner::default();
        self.nr_doubtful.store(0, Ordering::Relaxed);
    }

    /// Appends up to `max` events with numbers above `after` to `events`.
    pub(crate) fn read(&self, after: u64, max: usize, events: &mut Vec<Event>) {
        let mut inner = lock(&self.inner);
        let first = inner.kept.partition_point(|e| e.sequence <= after);
        events.extend(inner.kept.range(first..).take(max));
        let read = events.last().map_or(0, |e| e.sequence);
        inner.read = inner.read.max(read);
    }

    /// Returns how often a kind has occurred.
    pub(crate) fn count(&self, kind: EventKind) -> u64 {
        lock(&self.inner).counts[kind as usize - 1]
    }

    /// Wakes `waker` once, when the next event is recorded. Replaces an earlier waker.
    pub(crate) fn wake_at_next(&self, waker: &Waker) {
        let old = lock(&self.inner).waker.replace(waker.clone());
        // The drop of a waker runs client code, so it happens outside the lock.
        drop(old);
    }

    /// Records that a command has failed. `aborted` BIOs waited behind it and were aborted.
    #[cold]
    pub(crate) fn failed(
        &self,
        wake: &mut DeferredWake,
        layout: &Layout,
        cmd: &Command,
        aborted: usize,
    ) {
        let g = &layout.geometry;
        let has_sector = !matches!(cmd.op, Op::Flush | Op::ZoneResetAll);
        let zone = (has_sector && cmd.sector < g.capacity()).then(|| g.zone_of(cmd.sector).0);
        let (op, aborted) = (Some(cmd.op), aborted as u32);
        let (status, sector) = (cmd.status, cmd.sector);
        let kind = EventKind::Failed;
        let event = Event { op, status, zone, sector, aborted, ..event(kind) };
        lock(&self.inner).push(wake, event);
    }

    /// Makes the event of a command that was given up and has come back, for [`EventLog::record_late_back`].
    #[cold]
    pub(crate) fn late_back(&self, cmd: &Command) -> Event {
        let ordered = matches!(cmd.op, Op::Write | Op::WriteZeroes | Op::ZoneAppend);
        let zone = ordered.then_some(ZoneNo(cmd.zone));
        let (op, sector) = (Some(cmd.op), cmd.sector);
        Event { op, zone, sector, ..event(EventKind::LateBack) }
    }

    /// Records commands that have come back late and whose memory is available. Called under no lock of the disk.
    #[cold]
    pub(crate) fn record_late_back(&self, events: Vec<Event>) {
        let mut wake = DeferredWake::default();
        for event in events {
            lock(&self.inner).push(&mut wake, event);
        }
    }

    /// Records that a queue of the device has panicked. Called under no lock of the disk.
    #[cold]
    pub(crate) fn queue_died(&self) {
        let event = Event { status: Status::NoDevice, ..event(EventKind::QueueDied) };
        let mut wake = DeferredWake::default();
        lock(&self.inner).push(&mut wake, event);
    }

    /// Records that the zones were read again, so all write pointers are known.
    #[cold]
    pub(crate) fn revalidated(&self, wake: &mut DeferredWake) {
        let mut inner = lock(&self.inner);
        inner.doubtful.clear();
        self.nr_doubtful.store(0, Ordering::Relaxed);
        inner.push(wake, event(EventKind::Revalidated));
    }

    /// Notes that the write pointer of `zone` is unknown and that the disk asks its device for it. This method and the next
    /// three are called under the lock of the zone's shard.
    #[cold]
    pub(crate) fn doubtful(&self, zone: ZoneNo) {
        let mut inner = lock(&self.inner);
        inner.doubtful.entry(zone.0).or_insert(false);
        self.nr_doubtful.store(inner.doubtful.len() as u32, Ordering::Relaxed);
    }

    /// Records that the write pointer of `zone` is unknown and that the disk does not ask its device for it.
    #[cold]
    pub(crate) fn stale(
        &self,
        wake: &mut DeferredWake,
        layout: &Layout,
        zone: ZoneNo,
        why: Status,
    ) {
        let mut inner = lock(&self.inner);
        if inner.doubtful.insert(zone.0, true) != Some(true) {
            inner.push(wake, of_zone(EventKind::Stale, layout, zone, why));
        }
        self.nr_doubtful.store(inner.doubtful.len() as u32, Ordering::Relaxed);
    }

    /// Records that a report shows less data in `zone` than was acknowledged.
    #[cold]
    pub(crate) fn missing(&self, wake: &mut DeferredWake, layout: &Layout, zone: ZoneNo) {
        let mut inner = lock(&self.inner);
        inner.doubtful.insert(zone.0, true);
        self.nr_doubtful.store(inner.doubtful.len() as u32, Ordering::Relaxed);
        inner.push(wake, of_zone(EventKind::DataMissing, layout, zone, Status::Io));
    }

    /// Records the recovery of `zone` if its write pointer was doubtful and is known again.
    #[inline]
    pub(crate) fn known_again(
        &self,
        wake: &mut DeferredWake,
        layout: &Layout,
        zone: ZoneNo,
        plug: &Plug,
    ) {
        if self.nr_doubtful.load(Ordering::Relaxed) != 0 && !plug.is_stale() {
            self.recovered(wake, layout, zone);
        }
    }

    #[cold]
    fn recovered(&self, wake: &mut DeferredWake, layout: &Layout, zone: ZoneNo) {
        let mut inner = lock(&self.inner);
        if inner.doubtful.remove(&zone.0).is_some() {
            self.nr_doubtful.store(inner.doubtful.len() as u32, Ordering::Relaxed);
            inner.push(wake, of_zone(EventKind::Recovered, layout, zone, Status::Ok));
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    fn numbers(log: &EventLog) -> Vec<(u64, u32)> {
        lock(&log.inner).kept.iter().map(|e| (e.sequence, e.count)).collect()
    }

    #[test]
    fn equal_occurrences_are_one_event_until_it_is_read() {
        let (log, mut wake) = (EventLog::default(), DeferredWake::default());
        log.queue_died();
        log.queue_died();
        assert_eq!(numbers(&log), [(1, 2)]);
        lock(&log.inner).read = 1;
        log.queue_died();
        log.revalidated(&mut wake);
        log.queue_died();
        assert_eq!(numbers(&log), [(1, 2), (2, 1), (3, 1), (4, 1)]);
    }

    /// Repeated events, events that a reader has seen, and events that are gone all count.
    #[test]
    fn every_event_is_counted_by_its_kind() {
        let (log, mut wake) = (EventLog::default(), DeferredWake::default());
        for _ in 0..EVENTS_KEPT {
            log.queue_died();
            log.queue_died();
            log.revalidated(&mut wake);
        }
        let counts = EventKind::ALL.map(|kind| log.count(kind));
        let n = EVENTS_KEPT as u64;
        assert_eq!(counts, [0, 0, 0, 0, 0, 2 * n, n]);
        assert!(EventKind::ALL.iter().zip(1..).all(|(kind, n)| *kind as u32 == n));
    }

    #[test]
    fn new_events_replace_the_oldest() {
        let (log, mut wake) = (EventLog::default(), DeferredWake::default());
        for _ in 0..EVENTS_KEPT {
            log.queue_died();
            log.revalidated(&mut wake);
        }
        let kept = numbers(&log);
        let n = EVENTS_KEPT as u64;
        assert_eq!((kept.len(), kept[0].0, kept[kept.len() - 1].0), (EVENTS_KEPT, n + 1, 2 * n));
    }
}
