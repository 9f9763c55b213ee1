//! Revalidation: reads the zones of the device again, checks them, and makes them the zones of the disk.
//!
//! The disk is frozen first. The report is then sent with a command that no freeze waits for, so the report shows the
//! state that the device has when it takes effect (V5, I9). If anything is wrong, the old state stays (V6).

use super::events::DeferredWake;
use super::freeze::Freeze;
use super::handle::Disk;
use crate::bio::{Flags, Op, Waiter};
use crate::disk::queue::DiskQueue;
use crate::disk::snapshot::Layout;
use crate::error::{Error, ErrorKind};
use crate::sync::lock;
use crate::unit::{Nanos, Sector};
use crate::zone::{Condition, Geometry, ZoneInfo, ZoneType};
use std::sync::Arc;

/// Zones asked for in one report.
const ZONES_PER_REPORT: u32 = 4096;
/// How often a device may change its capacity while it is being read (V7).
const RETRIES: u32 = 2;

/// A revalidation that has begun. Call [`poll`](Revalidation::poll) until it returns a result, and meanwhile poll the
/// other queues of the disk, because they must drain.
#[derive(Debug)]
pub struct Revalidation {
    disk: Disk,
    /// The freeze. Dropped when there is a result, so that the disk goes on.
    freeze: Option<Freeze>,
    zones: Vec<ZoneInfo>,
    geometry: Geometry,
    retries: u32,
    state: State,
    /// The time since which the report has been awaited.
    asked: Option<Nanos>,
}

#[derive(Debug, PartialEq, Eq)]
enum State {
    Draining,
    Asking,
    Waiting,
    Finished,
    Failed,
}

impl Disk {
    /// Begins to read the zones again. The disk is frozen until the result is there, or until the revalidation is
    /// dropped.
    pub fn revalidate(&self) -> Revalidation {
        Revalidation {
            freeze: Some(self.begin_freeze()),
            zones: Vec::new(),
            geometry: *self.shared.device.geometry(),
            retries: 0,
            state: State::Draining,
            asked: None,
            disk: self.clone(),
        }
    }
}

impl Revalidation {
    /// Takes one step, through `queue`. This may be any queue of the disk, but must be the same one each time, with
    /// one revalidation at a time. The disk goes on as soon as this has returned a result: with the new state, or
    /// after an error with the old one.
    ///
    /// Fails if the device does not answer for the drain limit ([`Disk::set_drain_limit`]), if its report fails, or
    /// if the report does not describe a disk that it may be (V2, V3).
    pub fn poll(&mut self, queue: &mut DiskQueue, now: Nanos) -> Option<Result<(), Error>> {
        let mut done = crate::Bios::new();
        queue.poll(now, &mut done);
        // The client gets the BIOs of the queue that finished meanwhile at its own next poll.
        queue.state.intake.keep(&mut done);
        match self.state {
            State::Draining => {
                if self.freeze.as_ref().is_none_or(Freeze::poll) {
                    self.state = State::Asking;
                    return None;
                }
                let e = self.freeze.as_mut()?.overdue(now)?;
                Some(self.give_up(e))
            }
            State::Asking => {
                self.ask(queue, now);
                self.overdue(now)
            }
            State::Waiting => {
                let Some(result) = self.answer(queue) else { return self.overdue(now) };
                let result = result.and_then(|()| self.commit(queue));
                self.state = if result.is_ok() { State::Finished } else { State::Failed };
                self.freeze = None;
                Some(result)
            }
            State::Finished => Some(Ok(())),
            State::Failed => {
                let e = Error::new(ErrorKind::Io, "this revalidation has failed");
                Some(Err(e.hint("the zones are as they were; start another")))
            }
        }
    }

    /// Returns an error if the device has not answered for the drain limit ([`Disk::set_drain_limit`]).
    fn overdue(&mut self, now: Nanos) -> Option<Result<(), Error>> {
        let waited = Nanos(now.0.saturating_sub(self.asked.get_or_insert(now).0));
        if waited < self.disk.shared.drain_limit() {
            return None;
        }
        let e = self.disk.shared.not_drained(waited);
        Some(self.give_up(e))
    }

    fn give_up(&mut self, e: Error) -> Result<(), Error> {
        self.state = State::Failed;
        self.freeze = None;
        Err(e)
    }

    fn ask(&mut self, queue: &mut DiskQueue, now: Nanos) {
        let Some(mut cmd) = queue.state.own_report.take() else { return };
        cmd.set(Op::ReportZones, self.end(), 0, Flags::NONE);
        cmd.waiter = Waiter::Revalidation;
        cmd.report.clear();
        cmd.report_max = ZONES_PER_REPORT;
        queue.state.send(cmd);
        let state = &mut queue.state;
        state.lower.submit(now, &mut state.out);
        self.state = State::Waiting;
    }

    /// The end of the zones that were read so far. Their records have not been checked yet, so the sum must not
    /// overflow.
    fn end(&self) -> Sector {
        let end = |z: &ZoneInfo| Sector(z.start.0.saturating_add(z.len_sectors));
        self.zones.last().map_or(Sector(0), end)
    }

    fn answer(&mut self, queue: &mut DiskQueue) -> Option<Result<(), Error>> {
        let cmd = queue.state.own_report.take_answer()?;
        self.asked = None;
        let status = cmd.status;
        let got = cmd.report.len();
        // Room for all zones at once, and not twice as much, which a list that grows may take.
        let more = (self.geometry.nr_zones() as usize).saturating_sub(self.zones.len()).max(got);
        if self.zones.try_reserve_exact(more).is_err() {
            queue.state.own_report.put(cmd);
            return Some(Err(self.geometry.memory().too_much(None)));
        }
        self.zones.extend_from_slice(&cmd.report);
        queue.state.own_report.put(cmd);
        if !status.is_ok() {
            let e = Error::new(ErrorKind::Io, format!("report zones failed: {status}"));
            return Some(Err(e.hint("the zones are as they were; try again")));
        }
        let geometry = self.disk.shared.device.geometry();
        if *geometry != self.geometry {
            self.retries += 1;
            if self.retries > RETRIES {
                let e = Error::new(ErrorKind::Busy, "the device keeps changing its capacity");
                return Some(Err(e.hint("try again when it has settled")));
            }
            self.geometry = *geometry;
            self.zones.clear();
            self.state = State::Asking;
            return None;
        }
        let more = self.zones.len() < self.geometry.nr_zones() as usize;
        if got > 0 && more && self.end() < self.geometry.capacity() {
            self.state = State::Asking;
            return None;
        }
        Some(check_zones(&self.geometry, &self.zones))
    }

    /// Makes the report the state of the disk, which is drained.
    fn commit(&mut self, queue: &mut DiskQueue) -> Result<(), Error> {
        let shared = &self.disk.shared;
        let limits = shared.device.limits().clone();
        limits.check()?;
        // Held until the layout is in place, because two concurrent commits would mix their plugs. Code that looks up
        // plugs by number holds this lock too.
        let mut current = lock(&shared.layout);
        let config = current.config.clone();
        let per_zone = config.zone_counters;
        // Held writes were checked, and cut into parts, for the limits that held before.
        let same = current.geometry == self.geometry && current.limits == limits;
        let words = shared.room_for_plugs(self.zones.len());
        let words = words.ok_or_else(|| self.geometry.memory().too_much(None))?;
        let early = shared.early_before();
        shared.rebuild_plugs(&words, &self.zones, per_zone, &mut queue.state.aborted);
        let layout = Arc::new(Layout::new(self.geometry, limits, config, words));
        debug_assert!(queue.state.aborted.is_empty(), "a drained disk has nothing parked");
        shared.note(&layout);
        *current = layout.clone();
        shared.early_after(early, &layout.geometry, same, &mut queue.state.aborted);
        drop(current);
        shared.events.revalidated(&mut DeferredWake::default());
        shared.bump();
        if !queue.state.aborted.is_empty() {
            queue.state.abort_to_intake(shared, &layout);
        }
        Ok(())
    }
}

/// Checks that a report can be believed (V2, V3).
pub(crate) fn check_zones(g: &Geometry, zones: &[ZoneInfo]) -> Result<(), Error> {
    let bad = |n: usize, what: &str| {
        Err(Error::new(ErrorKind::Io, format!("zone {n} of the report: {what}"))
            .hint("the device's report is not one of a host-managed zoned disk"))
    };
    if zones.len() != g.nr_zones() as usize {
        return bad(zones.len(), &format!("the report ends, {} zones are expected", g.nr_zones()));
    }
    let mut expected = Sector(0);
    for (n, z) in zones.iter().enumerate() {
        let zone = crate::ZoneNo(n as u32);
        if z.start != expected {
            return bad(n, &format!("starts at {}, {expected} is expected", z.start));
        }
        if z.len_sectors != u64::from(g.zone_len_sectors(zone)) {
            return bad(n, &format!("is {} sectors long", z.len_sectors));
        }
        if z.capacity_sectors != u64::from(g.capacity_of(zone)) {
            return bad(n, &format!("has a capacity of {} sectors", z.capacity_sectors));
        }
        if z.zone_type != g.zone_type(zone) {
            return bad(n, &format!("is of type {:?}", z.zone_type));
        }
        let conventional = z.zone_type == ZoneType::Conventional;
        if conventional != (z.cond == Condition::NotWp) || z.cond == Condition::Active {
            return bad(n, &format!("{:?} in condition {}", z.zone_type, z.cond));
        }
        let open = z.cond.is_active();
        if open && (z.wp < z.start || z.wp.0 > z.start.0 + z.capacity_sectors) {
            return bad(n, &format!("has its write pointer at {}", z.wp));
        }
        expected = expected.plus(z.len_sectors);
    }
    Ok(())
}
