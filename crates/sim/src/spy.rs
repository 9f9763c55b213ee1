//! What stands between the layer and its device and watches: an oracle at the seam.
//!
//! It asserts what must hold for every command, whatever else went wrong: one write in flight for each sequential zone
//! (I1), in the order in which writes were accepted (I2: stamps grow), within the limits of the device, with the flags
//! of its BIOs, none to a zone that fails fast (E2, R32), no report that nobody asked for (I9). It remembers what the
//! device said to each BIO and how often writes to each zone failed, so that a BIO that fails must have a reason. It
//! shows fewer zones than there are until it is told to grow.

use crate::memory::stamp_at;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use zoneplug_core::zone::{Geometry, Limits};
use zoneplug_core::{
    Command, Commands, Device, Error, Flags, Nanos, Op, Queue, Status, WritePointer, ZoneNo,
};

/// The last write of a zone: stamps of its first and last sector.
#[derive(Debug, Clone, Copy, Default)]
struct Last {
    first: u64,
    last: u64,
}

/// What was seen of one zone.
#[derive(Default)]
struct ZoneSeen {
    /// Writes at the device, with the time at which each was sent.
    writes: Vec<(usize, Nanos)>,
    last: Last,
    /// How often the device failed a write, or left a reset or finish in doubt.
    failures: Failures,
    /// Nobody knows the write pointer, or the zone refuses for good, and neither report, reset nor finish came since.
    fails_fast: Option<Status>,
}

/// How often writes to a zone failed: in any way, and so that the write pointer became unknown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Failures {
    pub(crate) any: u64,
    pub(crate) unknown: u64,
}

#[derive(Default)]
struct Seen {
    zones: Vec<ZoneSeen>,
    failed: BTreeMap<Status, u64>,
    /// What the device said to BIOs that have not come back to their clients, by token.
    results: BTreeMap<u64, Status>,
    /// The first stamp of every write that was sent.
    sent: BTreeSet<u64>,
}

pub(crate) struct Spy {
    pub(crate) below: Arc<dyn Device>,
    /// What is shown, in turn.
    layouts: Vec<Geometry>,
    shown: AtomicUsize,
    seen: Mutex<Seen>,
    /// Whether there are plugs: without them the client keeps order, and nothing fails fast.
    plugs: bool,
    /// Commands older than this do not count as in flight: the layer has given them up.
    timeout: Option<Nanos>,
    /// One write at a time on the whole disk (Q1).
    gated: AtomicBool,
    /// The longest command was merged from so many BIOs, writes and write-zeroes.
    merged: AtomicU32,
    merged_zeroes: AtomicU32,
    /// Commands of several BIOs that ended badly.
    partial: AtomicU64,
    busy: AtomicU64,
    /// What the client knows to hold for all that is sent from now on: no merging, strict management, no reports
    /// but its own.
    pub(crate) nomerges: AtomicBool,
    pub(crate) strict: AtomicBool,
    pub(crate) asked_only: AtomicBool,
}

impl Spy {
    pub(crate) fn new(
        below: Arc<dyn Device>,
        layouts: Vec<Geometry>,
        plugs: bool,
        timeout: Option<Nanos>,
    ) -> Arc<Spy> {
        let nr_zones = layouts.last().map_or(0, Geometry::nr_zones);
        let seen =
            Seen { zones: (0..nr_zones).map(|_| ZoneSeen::default()).collect(), ..Seen::default() };
        Arc::new(Spy {
            below,
            layouts,
            shown: AtomicUsize::new(0),
            seen: Mutex::new(seen),
            plugs,
            timeout,
            gated: AtomicBool::new(false),
            merged: AtomicU32::new(0),
            merged_zeroes: AtomicU32::new(0),
            partial: AtomicU64::new(0),
            busy: AtomicU64::new(0),
            nomerges: AtomicBool::new(false),
            strict: AtomicBool::new(false),
            asked_only: AtomicBool::new(false),
        })
    }

    /// Whether there is a single writer from now on: nothing is in flight.
    pub(crate) fn set_gated(&self, on: bool) {
        self.gated.store(on, Relaxed);
    }

    /// How often writes to a zone failed at the device.
    pub(crate) fn failures_of(&self, zone: usize) -> Failures {
        self.seen().zones[zone].failures
    }

    /// What the device said to the BIO of that token, if it went down as it was: one command, or a part of one.
    pub(crate) fn result_of(&self, token: u64) -> Option<Status> {
        self.seen().results.remove(&token)
    }

    /// Whether a write of a stamp from `first` on, `len` of them, was ever sent.
    pub(crate) fn was_sent(&self, first: u64, len: u64) -> bool {
        self.seen().sent.range(first..first + len).next().is_some()
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
        let mut seen = self.seen();
        seen.results.clear();
        for z in &mut seen.zones {
            z.writes.clear();
            z.fails_fast = None;
        }
    }

    /// All zones were read again, with no write in flight.
    pub(crate) fn revalidated(&self) {
        self.seen().zones.iter_mut().for_each(|z| z.fails_fast = None);
    }

    pub(crate) fn geometry(&self) -> &Geometry {
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
            return self.rare_down(c);
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
        assert!(nr == 1 || !self.nomerges.load(Relaxed), "W15e: nomerges, and {nr} BIOs: {c:?}");
        let device = |f: Flags| f.0 & (Flags::FUA.0 | Flags::PREFLUSH.0);
        let same = c.bios.iter().all(|b| device(b.flags) == device(c.flags));
        assert!(same, "W16: what a BIO was promised, FUA or PREFLUSH, does not go down: {c:?}");
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
        let Seen { zones, sent, .. } = &mut *seen;
        if self.gated.load(Relaxed) {
            let writing =
                zones.iter().position(|z| z.writes.iter().any(|w| !self.is_overdue(w.1, now)));
            assert!(writing.is_none(), "Q1: zone {writing:?} is being written: {c:?}");
        }
        let z = &mut zones[zone as usize];
        let others = z.writes.iter().filter(|w| !self.is_overdue(w.1, now)).count();
        assert!(others == 0, "I1: two writes of zone {zone} at the device: {c:?}");
        assert!(
            z.fails_fast.is_none() || !self.plugs,
            "E2: a write to zone {zone} after {:?}, and no report, reset or finish: {c:?}",
            z.fails_fast
        );
        z.writes.push((std::ptr::from_ref(c).addr(), now));
        if c.op == Op::Write {
            let b = &c.bios[c.bios.len() - 1];
            let (first, last) = (stamp_at(&c.bios[0].buf, 0), stamp_at(&b.buf, b.len_sectors - 1));
            sent.extend(c.bios.iter().map(|b| stamp_at(&b.buf, 0)));
            let before = &mut z.last;
            assert!(
                first > before.last || first == before.first,
                "I2: zone {zone}: the write of stamp {first} comes after {before:?}: {c:?}"
            );
            *before = Last { first, last };
        }
    }

    /// Whether the layer has given up what it sent at `sent`.
    fn is_overdue(&self, sent: Nanos, now: Nanos) -> bool {
        self.timeout.is_some_and(|t| now.0 >= sent.0.saturating_add(t.0))
    }

    fn rare_down(&self, c: &Command) {
        let own = c.bios.is_empty();
        assert!(!(own && self.asked_only.load(Relaxed)), "I9: who asked for {c:?}?");
        let strict = self.strict.load(Relaxed) && self.plugs && self.timeout.is_none();
        if strict && matches!(c.op, Op::ZoneReset | Op::ZoneFinish | Op::ZoneResetAll) {
            let seen = self.seen();
            for z in self.zones_of(c) {
                let busy = !seen.zones[z].writes.is_empty();
                assert!(!busy, "M5: strict, and zone {z} has a write at the device: {c:?}");
            }
        }
    }

    /// The zones that a management command is for.
    fn zones_of(&self, c: &Command) -> std::ops::Range<usize> {
        let g = self.geometry();
        match c.op {
            Op::ZoneResetAll => 0..g.nr_zones() as usize,
            _ => {
                let (zone, _) = g.zone_of(c.sector);
                zone.0 as usize..zone.0 as usize + 1
            }
        }
    }

    /// The device has not taken `c` after all, or has given it back.
    fn not_down(&self, c: &Command) {
        if let Some(zone) = self.zone(c) {
            let at = std::ptr::from_ref(c).addr();
            self.seen().zones[zone as usize].writes.retain(|w| w.0 != at);
        }
    }

    /// What the end of a command says of zones.
    fn learn(&self, now: Nanos, c: &Command) {
        let mut seen = self.seen();
        for b in c.bios.iter().filter(|b| b.token != 0) {
            seen.results.insert(b.token, c.status);
        }
        let fails = c.status.write_pointer();
        if let Some(zone) = self.zone(c) {
            let at = std::ptr::from_ref(c).addr();
            let z = &mut seen.zones[zone as usize];
            // What comes back after its deadline changes nothing.
            let sent = z.writes.iter().find(|w| w.0 == at).map_or(now, |w| w.1);
            if c.status.is_ok() || self.is_overdue(sent, now) {
                return;
            }
            z.failures.any += 1;
            z.failures.unknown += u64::from(fails == WritePointer::Unknown);
            let for_good = matches!(c.status, Status::ZoneReadOnly | Status::ZoneOffline);
            if for_good || fails == WritePointer::Unknown {
                z.fails_fast = Some(c.status);
            }
        } else if matches!(c.op, Op::ZoneReset | Op::ZoneFinish | Op::ZoneResetAll) {
            let doubt = matches!(c.status, Status::Timeout | Status::NoDevice);
            for z in self.zones_of(c) {
                let z = &mut seen.zones[z];
                if doubt {
                    z.failures.any += 1;
                    z.failures.unknown += 1;
                } else if c.status.is_ok() {
                    z.fails_fast = None;
                }
            }
        } else if c.op == Op::ReportZones && c.status.is_ok() {
            for info in &c.report {
                let ZoneNo(zone) = self.geometry().zone_of(info.start).0;
                if let Some(z) = seen.zones.get_mut(zone as usize) {
                    z.fails_fast = None;
                }
            }
        }
    }

    fn up(&self, now: Nanos, c: &mut Command) {
        if c.status != Status::Busy {
            self.learn(now, c);
        }
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
            self.spy.up(now, c);
        }
    }

    fn next_deadline(&self) -> Option<Nanos> {
        self.below.next_deadline()
    }

    fn arm(&mut self) {
        self.below.arm();
    }
}
