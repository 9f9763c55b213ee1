//! What stands between the layer and its device and watches: an oracle at the seam.
//!
//! It asserts what must hold for every command, whatever else went wrong: one write in flight for each sequential zone
//! (I1), in the order in which writes were accepted (I2: stamps grow), within the limits of the device. It shows
//! fewer zones than there are until it is told to grow.

use crate::memory::stamp_at;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use zoneplug_core::zone::{Geometry, Limits};
use zoneplug_core::{Command, Commands, Device, Error, Nanos, Op, Queue, Status};

/// The last write of a zone: stamps of its first and last sector.
#[derive(Debug, Clone, Copy, Default)]
struct Last {
    first: u64,
    last: u64,
}

#[derive(Default)]
struct Seen {
    /// Writes at the device, by zone, with the time at which each was sent.
    writes: BTreeMap<u32, Vec<(usize, Nanos)>>,
    last: BTreeMap<u32, Last>,
    failed: BTreeMap<Status, u64>,
}

pub(crate) struct Spy {
    pub(crate) below: Arc<dyn Device>,
    /// What is shown, in turn.
    layouts: Vec<Geometry>,
    shown: AtomicUsize,
    seen: Mutex<Seen>,
    /// Whether order is promised: not to native appends, nor to writes without plugs.
    ordered: bool,
    /// Commands older than this do not count as in flight: the layer has given them up.
    timeout: Option<Nanos>,
    /// The longest command was merged from so many BIOs, writes and write-zeroes.
    merged: AtomicU32,
    merged_zeroes: AtomicU32,
    /// Commands of several BIOs that ended badly.
    partial: AtomicU64,
    busy: AtomicU64,
}

impl Spy {
    pub(crate) fn new(
        below: Arc<dyn Device>,
        layouts: Vec<Geometry>,
        ordered: bool,
        timeout: Option<Nanos>,
    ) -> Arc<Spy> {
        Arc::new(Spy {
            below,
            layouts,
            shown: AtomicUsize::new(0),
            seen: Mutex::default(),
            ordered,
            timeout,
            merged: AtomicU32::new(0),
            merged_zeroes: AtomicU32::new(0),
            partial: AtomicU64::new(0),
            busy: AtomicU64::new(0),
        })
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Shows the next layout. False if there is none.
    pub(crate) fn grow(&self) -> bool {
        let next = self.shown.load(Relaxed) + 1;
        if next < self.layouts.len() {
            self.shown.store(next, Relaxed);
        }
        next < self.layouts.len()
    }

    /// What commands failed with, and how often.
    pub(crate) fn failures(&self) -> BTreeMap<Status, u64> {
        self.seen().failed.clone()
    }

    /// Whether a write, a write-zeroes was merged from several BIOs, and whether such a command failed.
    pub(crate) fn merged(&self) -> (bool, bool, bool) {
        let more = |n: &AtomicU32| n.load(Relaxed) > 1;
        (more(&self.merged), more(&self.merged_zeroes), self.partial.load(Relaxed) > 0)
    }

    /// How often the device was busy.
    pub(crate) fn busy(&self) -> u64 {
        self.busy.load(Relaxed)
    }

    /// All that was in flight is gone, with whoever sent it.
    pub(crate) fn restart(&self) {
        self.seen().writes.clear();
    }

    fn geometry(&self) -> &Geometry {
        &self.layouts[self.shown.load(Relaxed)]
    }

    fn limits(&self) -> &Limits {
        self.below.limits()
    }

    fn zone(&self, c: &Command) -> Option<u32> {
        let g = self.geometry();
        let write = matches!(c.op, Op::Write | Op::WriteZeroes) && g.contains(c.sector, 1);
        let (zone, _) = g.zone_of(c.sector);
        (write && !g.is_conventional(zone)).then_some(zone.0)
    }

    fn down(&self, now: Nanos, c: &Command) {
        let (g, l) = (self.geometry(), self.limits());
        if !matches!(c.op, Op::Read | Op::Write | Op::WriteZeroes | Op::ZoneAppend) {
            return;
        }
        assert!(g.contains(c.sector, c.len_sectors), "limits: {c:?} is not on the disk");
        let max = match c.op {
            Op::WriteZeroes => l.max_write_zeroes_sectors,
            Op::ZoneAppend => l.zone_append_max_sectors,
            _ => l.transfer_sectors(),
        };
        assert!(
            c.len_sectors <= max,
            "limits: {} sectors are more than {max}: {c:?}",
            c.len_sectors
        );
        let nr = c.bios.len() as u32;
        assert!(l.max_bios == 0 || nr <= l.max_bios, "limits: {nr} BIOs: {c:?}");
        let (zone, offset) = g.zone_of(c.sector);
        assert!(
            c.op == Op::ZoneAppend || offset + c.len_sectors <= g.zone_len_sectors(zone),
            "limits: a command crosses a zone: {c:?}"
        );
        let sum: u32 = c.bios.iter().map(|b| b.len_sectors).sum();
        assert_eq!(sum, c.len_sectors, "a command is as long as its BIOs: {c:?}");
        let Some(zone) = self.zone(c) else { return };
        let kind = if c.op == Op::Write { &self.merged } else { &self.merged_zeroes };
        kind.fetch_max(nr, Relaxed);
        let mut seen = self.seen();
        let timeout = self.timeout;
        let list = seen.writes.entry(zone).or_default();
        let others = list
            .iter()
            .filter(|w| timeout.is_none_or(|t| now.0 < w.1.0.saturating_add(t.0)))
            .count();
        assert!(!self.ordered || others == 0, "I1: two writes of zone {zone} at the device: {c:?}");
        list.push((std::ptr::from_ref(c).addr(), now));
        if c.op == Op::Write && self.ordered {
            let b = &c.bios[c.bios.len() - 1];
            let (first, last) = (stamp_at(&c.bios[0].buf, 0), stamp_at(&b.buf, b.len_sectors - 1));
            let before = seen.last.entry(zone).or_default();
            assert!(
                first > before.last || first == before.first,
                "I2: zone {zone}: the write of stamp {first} comes after {before:?}: {c:?}"
            );
            *before = Last { first, last };
        }
    }

    /// The device has not taken `c` after all, or has given it back.
    fn not_down(&self, c: &Command) {
        if let Some(zone) = self.zone(c)
            && let Some(list) = self.seen().writes.get_mut(&zone)
        {
            let at = std::ptr::from_ref(c).addr();
            list.retain(|w| w.0 != at);
        }
    }

    fn up(&self, c: &mut Command) {
        self.not_down(c);
        if c.op == Op::ReportZones {
            let end = self.geometry().capacity();
            c.report.retain(|z| z.start < end);
        }
        if c.status == Status::Busy {
            self.busy.fetch_add(1, Relaxed);
        } else if !c.status.is_ok() {
            self.partial.fetch_add(u64::from(c.bios.len() > 1), Relaxed);
            *self.seen().failed.entry(c.status).or_default() += 1;
        }
    }
}

/// The device that the layer sees: its queues keep the spy.
pub(crate) struct Spied(pub(crate) Arc<Spy>);

impl Device for Spied {
    fn geometry(&self) -> &Geometry {
        self.0.geometry()
    }

    fn limits(&self) -> &Limits {
        self.0.limits()
    }

    fn open_queue(&self, depth: u16, waker: Waker) -> Result<Box<dyn Queue>, Error> {
        let below = self.0.below.open_queue(depth, waker)?;
        Ok(Box::new(SpyQueue { spy: self.0.clone(), below }))
    }
}

struct SpyQueue {
    spy: Arc<Spy>,
    below: Box<dyn Queue>,
}

impl Queue for SpyQueue {
    fn submit(&mut self, now: Nanos, commands: &mut Commands) {
        // One at a time: what is not taken has not gone.
        let mut list = Commands::new();
        while let Some(c) = commands.pop_front() {
            self.spy.down(now, &c);
            list.push_back(c);
            self.below.submit(now, &mut list);
            if let Some(c) = list.pop_front() {
                self.spy.not_down(&c);
                commands.push_front(c);
                return;
            }
        }
    }

    fn poll(&mut self, now: Nanos, done: &mut Commands) {
        let before = done.len();
        self.below.poll(now, done);
        for c in done.iter_mut().skip(before) {
            self.spy.up(c);
        }
    }

    fn next_deadline(&self) -> Option<Nanos> {
        self.below.next_deadline()
    }

    fn arm(&mut self) {
        self.below.arm();
    }
}
