//! The oracle at the seam stands between the layer and its device, and sees every command.
//!
//! The oracle asserts these rules for every command, also after failures:
//!
//! * A sequential zone has at most one write in flight (I1). On a disk that may have several, all are on one queue, and
//!   each begins where the previous one ends. If one fails, the next write is sent only after all have come back.
//! * Writes are sent in the order in which they were accepted (I2): their stamps grow.
//! * Commands keep to the limits of the device, and carry the flags of their BIOs.
//! * The layer sends no write to a zone that fails fast (E2, R32). Unless it is reading all zones, each report of its own
//!   recovers a zone (I9).
//!
//! The oracle remembers the device's answer for each BIO, and how often writes to each zone failed, so that the worlds
//! can check that each failed BIO has a reason. The oracle may show the layer only a part of the device's zones; `grow`
//! shows more.

mod observed;

use crate::memory::stamp_at;
use crate::queueing::Queueing;
pub(crate) use crate::zone_history::Failures;
use crate::zone_history::{Flying, Last, Ordered, SeamHistory, ZoneHistory, harmless};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};
use zoneplug_core::zone::{Geometry, Limits, Spindles};
use zoneplug_core::{Command, Device, Flags, Nanos, Op, Status, WritePointer, ZoneNo};

pub(crate) use observed::ObservedDevice;

/// Most recovery reports of a zone in a row. A successful write, or a report that shows progress, begins a new row.
const MOST_ATTEMPTS: u32 = 3;

pub(crate) struct SeamOracle {
    pub(crate) below: Arc<dyn Device>,
    /// The layouts that the oracle shows in turn, and the index of the current one.
    layouts: Vec<Geometry>,
    shown: AtomicUsize,
    history: Mutex<SeamHistory>,
    queueing: Mutex<Queueing>,
    /// Whether the disk has plugs. Without plugs the client keeps the order, and no zone fails fast.
    plugs: bool,
    /// The time after which the layer gives up a command, so that it no longer counts as in flight.
    timeout: Option<Nanos>,
    /// Whether there is a single writer: one write at a time for each head (Q1).
    single_writer: AtomicBool,
    spindles: Spindles,
    /// Most writes of a zone that may be in flight.
    depth: AtomicUsize,
    /// Whether the layer may report a zone by itself after an error (E12).
    auto_recovery: AtomicBool,
    queues: AtomicUsize,
    /// The largest number of BIOs that one write has carried, and one write-zeroes.
    merged: AtomicU32,
    merged_zeroes: AtomicU32,
    /// Failed commands that carried several BIOs.
    partial: AtomicU64,
    /// How often the device was busy.
    busy: AtomicU64,
    /// Whether each command must carry one BIO.
    pub(crate) nomerges: AtomicBool,
    /// Whether a zone must have no write in flight when it is reset or finished.
    pub(crate) strict: AtomicBool,
    /// Whether all reports must be requested by clients, but for recovery. False while the layer reads all zones.
    pub(crate) asked_only: AtomicBool,
    /// Whether the stamps of appends need not grow, because clients do not know the order of their appends.
    pub(crate) appends_in_any_order: AtomicBool,
}

impl SeamOracle {
    pub(crate) fn new(
        below: Arc<dyn Device>,
        layouts: Vec<Geometry>,
        plugs: bool,
        timeout: Option<Nanos>,
    ) -> Arc<SeamOracle> {
        let nr_zones = layouts.last().map_or(0, Geometry::nr_zones);
        let history = SeamHistory {
            zones: (0..nr_zones).map(|_| ZoneHistory::default()).collect(),
            ..SeamHistory::default()
        };
        Arc::new(SeamOracle {
            spindles: below.spindles(),
            below,
            layouts,
            shown: AtomicUsize::new(0),
            history: Mutex::new(history),
            queueing: Mutex::default(),
            plugs,
            timeout,
            single_writer: AtomicBool::new(false),
            depth: AtomicUsize::new(1),
            auto_recovery: AtomicBool::new(false),
            queues: AtomicUsize::new(0),
            merged: AtomicU32::new(0),
            merged_zeroes: AtomicU32::new(0),
            partial: AtomicU64::new(0),
            busy: AtomicU64::new(0),
            nomerges: AtomicBool::new(false),
            strict: AtomicBool::new(false),
            asked_only: AtomicBool::new(false),
            appends_in_any_order: AtomicBool::new(false),
        })
    }

    /// Sets whether there is a single writer. Called while nothing is in flight.
    pub(crate) fn set_single_writer(&self, on: bool) {
        self.single_writer.store(on, Relaxed);
    }

    /// Sets how many writes of a zone may be in flight. Called while nothing is in flight.
    pub(crate) fn set_depth(&self, n: usize) {
        self.depth.store(n, Relaxed);
    }

    /// Sets whether the layer may report a zone by itself after an error.
    pub(crate) fn set_auto_recovery(&self, on: bool) {
        self.auto_recovery.store(on, Relaxed);
    }

    /// Returns the counts for disks with several writes of a zone in flight.
    pub(crate) fn ordered(&self) -> Ordered {
        self.history().ordered
    }

    /// Returns how often writes to a zone failed at the device.
    pub(crate) fn failures_of(&self, zone: usize) -> Failures {
        self.history().zones[zone].failures
    }

    /// Returns the device's answer to the BIO with that token, if the BIO went down as one command or as a part of
    /// one.
    pub(crate) fn result_of(&self, token: u64) -> Option<Status> {
        self.history().results.remove(&token)
    }

    /// Returns whether a write with a stamp in this range was ever sent.
    pub(crate) fn was_sent(&self, first: u64, len: u64) -> bool {
        self.history().sent.range(first..first + len).next().is_some()
    }

    fn history(&self) -> MutexGuard<'_, SeamHistory> {
        zoneplug_core::poison::lock(&self.history)
    }

    /// Returns the oracle for the order of commands.
    pub(crate) fn queueing(&self) -> MutexGuard<'_, Queueing> {
        zoneplug_core::poison::lock(&self.queueing)
    }

    /// Returns the device's last answers to writes with stamps in this range, except *busy*.
    pub(crate) fn answers_to(&self, first: u64, len: u64) -> Vec<Status> {
        self.history().answers.range(first..first + len).map(|(_, s)| *s).collect()
    }

    /// Shows the next layout. Returns false if there is none.
    pub(crate) fn grow(&self) -> bool {
        let next = self.shown.load(Relaxed) + 1;
        if next < self.layouts.len() {
            self.shown.store(next, Relaxed);
        }
        next < self.layouts.len()
    }

    /// Returns the statuses of failed commands, and how often each has occurred.
    pub(crate) fn failures(&self) -> BTreeMap<Status, u64> {
        self.history().failed.clone()
    }

    /// Returns whether a write was merged from several BIOs, whether a write-zeroes was, and whether such a command
    /// failed.
    pub(crate) fn merged(&self) -> (bool, bool, bool) {
        let more = |n: &AtomicU32| n.load(Relaxed) > 1;
        (more(&self.merged), more(&self.merged_zeroes), self.partial.load(Relaxed) > 0)
    }

    /// Returns how often the device was busy.
    pub(crate) fn busy(&self) -> u64 {
        self.busy.load(Relaxed)
    }

    /// Forgets all commands in flight, because a new disk replaces the old one and its queues.
    pub(crate) fn restart(&self) {
        self.queueing().restart();
        let mut history = self.history();
        history.results.clear();
        for z in &mut history.zones {
            z.writes.clear();
            z.pointer_known();
        }
    }

    /// Notes that all zones were read again while no write was in flight.
    pub(crate) fn revalidated(&self) {
        self.history().zones.iter_mut().for_each(ZoneHistory::pointer_known);
    }

    /// Notes that something other than the disk moves the write pointer of zone `z`.
    pub(crate) fn moved(&self, z: usize) {
        self.history().zones[z].moved_outside = true;
    }

    pub(crate) fn geometry(&self) -> &Geometry {
        &self.layouts[self.shown.load(Relaxed)]
    }

    fn limits(&self) -> &Limits {
        self.below.limits()
    }

    /// Returns the sequential zone of a write. `None`: the command is no such write.
    fn written_zone(&self, c: &Command) -> Option<u32> {
        let g = self.geometry();
        let write = matches!(c.op, Op::Write | Op::WriteZeroes) && g.contains(c.sector, 1);
        let (zone, _) = g.zone_of(c.sector);
        (write && !g.is_conventional(zone)).then_some(zone.0)
    }

    /// Checks a command that the layer sends to the device.
    fn down(&self, now: Nanos, queue: usize, c: &Command) {
        self.queueing().down(now, c);
        let again = self.take_repeat(queue, c);
        let (g, l) = (self.geometry(), self.limits());
        if !matches!(c.op, Op::Read | Op::Write | Op::WriteZeroes | Op::ZoneAppend) {
            return self.rare_down(c, again);
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
        assert!(same, "W16: the command and its BIOs differ in FUA or PREFLUSH: {c:?}");
        let (zone, offset) = g.zone_of(c.sector);
        assert!(
            c.op == Op::ZoneAppend || offset + c.len_sectors <= g.zone_len_sectors(zone),
            "limits: a command crosses the end of a zone: {c:?}"
        );
        let sum: u32 = c.bios.iter().map(|b| b.len_sectors).sum();
        assert_eq!(sum, c.len_sectors, "the length of a command is not the sum of its BIOs: {c:?}");
        let Some(zone) = self.written_zone(c) else { return };
        let kind = if c.op == Op::Write { &self.merged } else { &self.merged_zeroes };
        kind.fetch_max(nr, Relaxed);
        let mut history = self.history();
        let SeamHistory { zones, sent, failed_at, ordered, .. } = &mut *history;
        if self.single_writer.load(Relaxed) {
            let shared =
                |z: usize| self.spindles.of(ZoneNo(z as u32)) == self.spindles.of(ZoneNo(zone));
            let writing = zones
                .iter()
                .enumerate()
                .position(|(i, z)| z.writes.iter().any(|w| !w.given_up) && shared(i));
            assert!(
                writing.is_none(),
                "Q1: zone {writing:?} of the same head is being written: {c:?}"
            );
        }
        let z = &mut zones[zone as usize];
        let depth = self.depth.load(Relaxed);
        let flying = || z.writes.iter().filter(|w| !w.given_up);
        let others = flying().count();
        assert!(depth > 1 || others == 0, "I1: two writes of zone {zone} at the device: {c:?}");
        assert!(others < depth, "I1: {others} writes of zone {zone} at the device: {c:?}");
        let is_one_queue = flying().all(|w| w.queue == queue);
        assert!(is_one_queue, "I1: zone {zone} has writes of another queue at the device: {c:?}");
        if others > 0 {
            let failed = &z.burst;
            assert!(
                failed.is_empty(),
                "zone {zone}: a write after {failed:?}, before all are back: {c:?}"
            );
            // A zone that was reset may start again while older writes are in flight (M4).
            let follows = z.sent_end == c.sector.0 || offset == 0;
            assert!(follows, "I2: zone {zone}: not at the end of the last write sent: {c:?}");
        } else if !z.burst.is_empty() {
            if harmless(&z.burst, z.acked_end) {
                z.fails_fast = None;
            }
            z.burst.clear();
            z.last = z.acked;
        }
        if others == 0 {
            z.acked_end = 0;
        }
        // The device was too busy for this write, which goes down again although a native append has failed since.
        let is_repeated = again && z.append_failed;
        assert!(
            z.fails_fast.is_none() || !self.plugs || is_repeated,
            "E2: a write to zone {zone} after {:?}, and no report, reset or finish: {c:?}",
            z.fails_fast
        );
        let at = std::ptr::from_ref(c).addr();
        z.sent_end = c.sector.0 + u64::from(c.len_sectors);
        z.just_reset &= offset != 0;
        let generation = z.generation - u64::from(z.just_reset);
        z.writes.push(Flying { at, sent: now, queue, generation, given_up: false });
        ordered.most = ordered.most.max(others + 1);
        for b in c.bios.iter().filter(|b| b.token() != 0) {
            if let Some(before) = failed_at.remove(&b.token()) {
                ordered.retried += 1;
                ordered.placed += u64::from(b.op == Op::ZoneAppend && b.sector.0 != before);
            }
        }
        if c.op == Op::Write {
            let b = &c.bios[c.bios.len() - 1];
            let (first, last) =
                (stamp_at(c.bios[0].data(), 0), stamp_at(b.data(), b.len_sectors - 1));
            sent.extend(c.bios.iter().map(|b| stamp_at(b.data(), 0)));
            let before = &mut z.last;
            let any_order = self.appends_in_any_order.load(Relaxed)
                && c.bios.iter().any(|b| b.op == Op::ZoneAppend);
            assert!(
                first > before.last || first == before.first || z.moved_outside || any_order,
                "I2: zone {zone}: the write of stamp {first} comes after {before:?}: {c:?}"
            );
            z.before = *before;
            *before = Last { first, last };
        }
    }

    /// Notes that a queue was polled. A poll makes the layer give up the queue's commands that are over their time.
    fn polled(&self, now: Nanos, queue: usize) {
        let Some(timeout) = self.timeout else { return };
        let mut history = self.history();
        for w in history.zones.iter_mut().flat_map(|z| &mut z.writes).filter(|w| w.queue == queue) {
            w.given_up |= now.0 >= w.sent.0.saturating_add(timeout.0);
        }
    }

    /// Checks a command that neither reads nor writes, on its way down. `again`: the device was too busy for the same
    /// report before.
    fn rare_down(&self, c: &Command, again: bool) {
        let own = c.bios.is_empty();
        let recovers = own && (again || self.recovers(c));
        assert!(!own || recovers || !self.asked_only.load(Relaxed), "I9: nobody requested {c:?}");
        let strict = self.strict.load(Relaxed) && self.plugs && self.timeout.is_none();
        if strict && matches!(c.op, Op::ZoneReset | Op::ZoneFinish | Op::ZoneResetAll) {
            let history = self.history();
            for z in self.zones_of(c) {
                let busy = !history.zones[z].writes.is_empty();
                assert!(
                    !busy,
                    "M5: zone {z} has a write at the device, and the disk is strict: {c:?}"
                );
            }
        }
    }

    /// Returns whether a command of the layer itself is a recovery report: a write of the zone has failed. Asserts that
    /// no write of the zone is at the device, and that the reports do not go on without progress.
    fn recovers(&self, c: &Command) -> bool {
        let several = self.depth.load(Relaxed) > 1;
        if c.op != Op::ReportZones
            || c.report_max != 1
            || !several && !self.auto_recovery.load(Relaxed)
        {
            return false;
        }
        let (zone, _) = self.geometry().zone_of(c.sector);
        let mut history = self.history();
        let SeamHistory { zones, ordered, .. } = &mut *history;
        let z = &mut zones[zone.0 as usize];
        // On a disk with one write of a zone in flight, a write that was given up counts too.
        let flying = z.writes.iter().filter(|w| !several || !w.given_up).count();
        assert!(flying == 0, "{zone} is reported with {flying} writes at the device: {c:?}");
        if !std::mem::take(&mut z.failed) {
            return false;
        }
        if let (false, Some(&(_, said))) = (several, z.burst.last()) {
            let unknown = said.write_pointer() == WritePointer::Unknown;
            let over = !matches!(said, Status::Timeout | Status::NoDevice);
            assert!(unknown && over, "E12: {zone} is reported after {said}: {c:?}");
        }
        ordered.asked += u64::from(!several);
        // No failure is left if a reset came back together with it, which ends the recovery.
        let first = z.burst.iter().min_by_key(|b| b.0);
        let status = first.map_or(Status::Busy, |b| b.1);
        ordered.reports += 1;
        if status != Status::Busy {
            z.attempts += 1;
            ordered.given_up += u64::from(z.attempts == MOST_ATTEMPTS);
        }
        assert!(z.attempts <= MOST_ATTEMPTS, "{zone} has too many recovery reports: {:?}", z.burst);
        true
    }

    /// Returns the zones of a management command.
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

    /// Notes that the device has not taken `c`.
    fn not_taken(&self, queue: usize, c: &Command) {
        let mut queueing = self.queueing();
        queueing.up(c);
        queueing.busy();
        drop(queueing);
        if let Some(zone) = self.written_zone(c) {
            let mut history = self.history();
            let z = &mut history.zones[zone as usize];
            (z.sent_end, z.last) = (c.sector.0, z.before);
            history.unsend(c);
        }
        self.remove_in_flight(c);
        self.expect_repeat(queue, c);
    }

    /// Notes a write, or a report by the layer itself, that will be sent again.
    fn expect_repeat(&self, queue: usize, c: &Command) {
        let is_own_report = c.op == Op::ReportZones && c.bios.is_empty();
        if is_own_report || self.written_zone(c).is_some() {
            let (zone, _) = self.geometry().zone_of(c.sector);
            let at = std::ptr::from_ref(c).addr();
            let noted = &mut self.history().repeats;
            noted.retain(|r| (r.2, r.3) != (queue, at));
            noted.push((c.op, zone, queue, at));
        }
    }

    /// Returns whether [`SeamOracle::expect_repeat`] has noted `c`. Removes the note, because a queue uses the memory of
    /// its commands again for other commands.
    fn take_repeat(&self, queue: usize, c: &Command) -> bool {
        let at = std::ptr::from_ref(c).addr();
        let noted = &mut self.history().repeats;
        let Some(i) = noted.iter().position(|r| (r.2, r.3) == (queue, at)) else { return false };
        let (op, zone, ..) = noted.swap_remove(i);
        let is_report = c.op == Op::ReportZones && c.bios.is_empty() && c.report_max == 1;
        c.op == op
            && (c.op != Op::ReportZones || is_report)
            && self.geometry().zone_of(c.sector).0 == zone
    }

    /// Removes `c` from the writes at the device, which did not take it or has answered it.
    fn remove_in_flight(&self, c: &Command) {
        if let Some(zone) = self.written_zone(c) {
            let at = std::ptr::from_ref(c).addr();
            self.history().zones[zone as usize].writes.retain(|w| w.at != at);
        }
    }

    /// Updates the history of zones after the device has answered a command, but for *busy*.
    fn learn(&self, c: &Command) {
        let mut history = self.history();
        if c.op == Op::Write {
            for b in &c.bios {
                history.answers.insert(stamp_at(b.data(), 0), c.status);
            }
        }
        for b in c.bios.iter().filter(|b| b.token() != 0) {
            history.results.insert(b.token(), c.status);
            if !c.status.is_ok() {
                history.failed_at.insert(b.token(), b.sector.0);
            }
        }
        let fails = c.status.write_pointer();
        if let Some(zone) = self.written_zone(c) {
            let at = std::ptr::from_ref(c).addr();
            let z = &mut history.zones[zone as usize];
            // A command that comes back after its deadline changes nothing.
            let Some(w) = z.writes.iter().find(|w| w.at == at) else { return };
            if w.given_up {
                return;
            }
            let is_current = w.generation == z.generation;
            if c.status.is_ok() {
                if is_current {
                    z.acked(c);
                }
                return;
            }
            // A failed write that provably did nothing, and was sent before a reset, does not matter any more (M4).
            if is_current || fails == WritePointer::Unknown {
                z.failed = true;
                z.burst.push((c.sector.0, c.status));
                z.head = is_current.then_some(c.sector.0);
            }
            z.failures.any += 1;
            z.failures.unknown += u64::from(fails == WritePointer::Unknown);
            let for_good = matches!(c.status, Status::ZoneReadOnly | Status::ZoneOffline);
            if for_good || fails == WritePointer::Unknown {
                z.fails_fast = Some(c.status);
                z.append_failed = false;
            }
        } else if c.op == Op::ZoneAppend {
            self.append_ended(&mut history, c);
        } else if matches!(c.op, Op::ZoneReset | Op::ZoneFinish | Op::ZoneResetAll) {
            // A reset of all zones that failed may have reset some of them.
            let some = c.op == Op::ZoneResetAll && !c.status.is_ok();
            let doubt = some || matches!(c.status, Status::Timeout | Status::NoDevice);
            for z in self.zones_of(c) {
                let z = &mut history.zones[z];
                if doubt {
                    z.failures.any += 1;
                    z.failures.unknown += 1;
                } else if c.status.is_ok() {
                    z.pointer_known();
                    z.generation += 1;
                    (z.just_reset, z.moved_outside) = (true, false);
                }
            }
        } else if c.op == Op::ReportZones && c.bios.is_empty() && !c.status.is_ok() {
            // The writes that waited for the recovery fail too.
            for z in self.zones_of(c) {
                history.zones[z].failures.any += 1;
            }
        } else if c.op == Op::ReportZones && c.status.is_ok() {
            for info in &c.report {
                let ZoneNo(zone) = self.geometry().zone_of(info.start).0;
                if let Some(z) = history.zones.get_mut(zone as usize) {
                    z.just_reset = false;
                    // Acknowledged data is missing, so the client must report the zone.
                    let lost = c.bios.is_empty() && z.head.is_some_and(|h| info.wp.0 < h);
                    if !lost || self.depth.load(Relaxed) > 1 {
                        z.fails_fast = None;
                    }
                    let head = z.burst.iter().map(|b| b.0).min();
                    let own = c.bios.is_empty();
                    // The count of attempts starts again after a client's report, and after progress.
                    if !own && z.writes.is_empty() || own && head.is_some_and(|h| info.wp.0 > h) {
                        z.attempts = 0;
                    }
                }
            }
        }
    }

    /// Notes the end of a native append. One with an unknown outcome makes its zone stale, like a write. With deadlines,
    /// nothing is noted: the append may come back long after the layer gave it up.
    fn append_ended(&self, history: &mut SeamHistory, c: &Command) {
        if c.status.is_ok() || self.timeout.is_some() {
            return;
        }
        let ZoneNo(zone) = self.geometry().zone_of(c.sector).0;
        let Some(z) = history.zones.get_mut(zone as usize) else { return };
        z.failures.any += 1;
        if c.status.write_pointer() == WritePointer::Unknown {
            z.failures.unknown += 1;
            z.fails_fast = Some(c.status);
            z.append_failed = true;
        }
    }

    /// Notes a command that has come back from the device.
    fn up(&self, queue: usize, c: &mut Command) {
        self.queueing().up(c);
        if c.status != Status::Busy {
            self.learn(c);
        }
        self.remove_in_flight(c);
        if let (Status::Busy, Some(zone)) = (c.status, self.written_zone(c)) {
            let mut history = self.history();
            history.unsend(c);
            let z = &mut history.zones[zone as usize];
            // With other writes of the zone in flight or failed, this one counts as failed: the zone is drained first. A
            // write that was alone is sent again.
            z.failed = true;
            if !z.writes.is_empty() || !z.burst.is_empty() {
                z.burst.push((c.sector.0, c.status));
            }
        }
        if c.status == Status::Busy {
            self.expect_repeat(queue, c);
        }
        if c.op == Op::ReportZones {
            let end = self.geometry().capacity();
            c.report.retain(|z| z.start < end);
        }
        if c.status == Status::Busy {
            self.busy.fetch_add(1, Relaxed);
            self.queueing().busy();
        } else if !c.status.is_ok() {
            self.partial.fetch_add(u64::from(c.bios.len() > 1), Relaxed);
            *self.history().failed.entry(c.status).or_default() += 1;
        }
    }
}
