//! The condition machine that ZBC and ZNS give a sequential zone, and the budget of open and active zones.
//!
//! This file has the rules: which operation is allowed in which condition, what it costs, and which zone is closed
//! when no more may be open. It stores no zones (its caller does, behind [`ZoneStates`]), takes no lock, and knows
//! neither data nor commands. Only emulated disks use it.
//!
//! [`ZoneState::advance`] only moves a write pointer, so it needs the zone alone. Every change of a condition goes
//! through the [`Budget`]. A caller with threads puts the budget under one lock and takes that lock first. A write to
//! an open zone then needs no lock.

use super::condition::Condition;
use crate::status::Status;
use crate::unit::ZoneNo;

/// The state of one zone: 8 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ZoneState {
    /// The write pointer as an offset in sectors: the amount written since the zone was empty. A zone that was
    /// finished early or became read-only keeps it, so that written sectors can be told from others (O7). A report
    /// does not show it then. 0 for a conventional zone.
    pub wp: u32,
    /// The condition. Only a [`Budget`] changes it.
    pub cond: Condition,
}

/// The result of [`ZoneState::advance`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Advance {
    /// The write pointer moved; the write starts at this offset in sectors.
    At(u32),
    /// The condition would have to change, so nothing was changed. The caller asks [`Budget::write`].
    Transition,
    /// The write is refused. Nothing changed.
    Refused(Status),
}

impl ZoneState {
    /// An empty zone.
    pub const EMPTY: ZoneState = ZoneState { wp: 0, cond: Condition::Empty };
    /// A conventional zone.
    pub const CONVENTIONAL: ZoneState = ZoneState { wp: 0, cond: Condition::NotWp };

    /// Writes `len_sectors` to a zone of `capacity_sectors`, if that does not change its condition: the zone is open
    /// and stays open. `at` is the offset in sectors; `None` is an append, at the write pointer.
    #[inline]
    pub fn advance(&mut self, at: Option<u32>, len_sectors: u32, capacity_sectors: u32) -> Advance {
        match self.cond {
            Condition::ImpOpen | Condition::ExpOpen | Condition::Empty | Condition::Closed => {}
            _ => return Advance::Refused(self.refusal()),
        }
        let start = self.wp;
        if at.is_some_and(|at| at != start) {
            return Advance::Refused(Status::UnalignedWrite);
        }
        // `wp` is at most the capacity, so the subtraction does not wrap.
        let left = capacity_sectors - start;
        if len_sectors > left {
            return Advance::Refused(Status::Boundary);
        }
        if len_sectors == left || !self.cond.is_open() {
            return Advance::Transition;
        }
        self.wp = start + len_sectors;
        Advance::At(start)
    }

    /// Returns the status for a write to a zone in this condition that takes none.
    #[cold]
    fn refusal(self) -> Status {
        match self.cond {
            Condition::Full => Status::ZoneFull,
            Condition::ReadOnly => Status::ZoneReadOnly,
            Condition::Offline => Status::ZoneOffline,
            _ => Status::InvalidField,
        }
    }
}

/// The place where the zones of a disk are stored.
pub trait ZoneStates {
    /// Reads and changes one zone in one step. Calls `f` again if another thread has changed the zone in between. `f`
    /// must not call this.
    fn update<R>(&mut self, zone: ZoneNo, f: impl FnMut(&mut ZoneState) -> R) -> R;
}

impl ZoneStates for Vec<ZoneState> {
    fn update<R>(&mut self, zone: ZoneNo, mut f: impl FnMut(&mut ZoneState) -> R) -> R {
        f(&mut self[zone.0 as usize])
    }
}

/// The end of a list of zones.
const NONE: u32 = u32::MAX;

/// The open and active zones of a disk against their limits (O1), and every change of a condition.
///
/// ```
/// use zoneplug_core::zone::machine::{Budget, ZoneState};
/// use zoneplug_core::zone::Condition;
/// use zoneplug_core::{Status, ZoneNo};
/// let mut zones = vec![ZoneState::EMPTY; 3];
/// let mut budget = Budget::new(3, 1, 2);
/// budget.write(&mut zones, ZoneNo(0), Some(0), 8, 64).unwrap();
/// budget.write(&mut zones, ZoneNo(1), Some(0), 8, 64).unwrap();
/// assert_eq!(zones[0].cond, Condition::Closed); // to make room for zone 1
/// assert_eq!(budget.write(&mut zones, ZoneNo(2), Some(0), 8, 64), Err(Status::ActiveLimit));
/// ```
#[derive(Debug, Clone)]
pub struct Budget {
    max_open: u32,
    max_active: u32,
    open: u32,
    active: u32,
    /// The implicitly open zones, a list through `links` with the one that has been open longest first. Kept only if
    /// `max_open` is set, because otherwise no zone is closed implicitly.
    oldest: u32,
    newest: u32,
    /// (previous, next) of each zone.
    links: Vec<(u32, u32)>,
}

impl Budget {
    /// The budget of a disk whose `nr_zones` zones are all empty or conventional. A limit of 0 means none.
    pub fn new(nr_zones: u32, max_open: u32, max_active: u32) -> Budget {
        let links = if max_open == 0 { 0 } else { nr_zones as usize };
        Budget {
            max_open,
            max_active,
            open: 0,
            active: 0,
            oldest: NONE,
            newest: NONE,
            links: vec![(NONE, NONE); links],
        }
    }

    /// Returns how many zones are open now, implicitly or explicitly.
    pub fn open_zones(&self) -> u32 {
        self.open
    }

    /// Returns how many zones are open or closed now.
    pub fn active_zones(&self) -> u32 {
        self.active
    }

    /// Carries out a write, with the conditions that it changes: it opens the zone implicitly, and makes it full if
    /// it ends at the capacity. Returns the offset at which the write starts. Arguments as for
    /// [`ZoneState::advance`]. Fails as a drive would: if the condition or the limits do not allow the write, or if
    /// it does not start at the write pointer or does not fit.
    pub fn write(
        &mut self,
        zones: &mut impl ZoneStates,
        zone: ZoneNo,
        at: Option<u32>,
        len_sectors: u32,
        capacity_sectors: u32,
    ) -> Result<u32, Status> {
        // Only the holder of the budget changes a zone that is not open, and this call holds it.
        let before = zones.update(zone, |s| *s);
        match { before }.advance(at, len_sectors, capacity_sectors) {
            Advance::Refused(status) if !before.cond.is_open() => return Err(status),
            _ if before.cond.is_open() => {}
            _ => self.take_open(zones, before.cond != Condition::Closed)?,
        }
        // The zone is open, so other threads may have moved the write pointer meanwhile: everything is checked again.
        let (done, filled) = zones.update(zone, |s| {
            let was = *s;
            s.cond = if was.cond == Condition::ExpOpen { was.cond } else { Condition::ImpOpen };
            match s.advance(at, len_sectors, capacity_sectors) {
                Advance::At(start) => (Ok(start), false),
                Advance::Transition => {
                    let start = s.wp;
                    s.wp = capacity_sectors;
                    s.cond = Condition::Full;
                    (Ok(start), true)
                }
                Advance::Refused(status) => {
                    *s = was;
                    (Err(status), false)
                }
            }
        });
        if filled {
            if before.cond == Condition::ImpOpen {
                self.unlink(zone);
            }
            self.open -= 1;
            self.active -= 1;
        } else if done.is_ok() && !before.cond.is_open() {
            self.link(zone);
        }
        done
    }

    /// Opens a zone explicitly. Fails for a full zone, if the limits do not allow it, and for a zone that is
    /// conventional, read-only or offline.
    pub fn open(&mut self, zones: &mut impl ZoneStates, zone: ZoneNo) -> Result<(), Status> {
        match Self::usable(zones, zone)? {
            Condition::ExpOpen => return Ok(()),
            Condition::ImpOpen => self.unlink(zone),
            Condition::Full => return Err(Status::InvalidTransition),
            cond => self.take_open(zones, cond != Condition::Closed)?,
        }
        zones.update(zone, |s| s.cond = Condition::ExpOpen);
        Ok(())
    }

    /// Closes a zone. A zone without data becomes empty. Fails for a zone that is neither open nor closed.
    pub fn close(&mut self, zones: &mut impl ZoneStates, zone: ZoneNo) -> Result<(), Status> {
        match Self::usable(zones, zone)? {
            Condition::Closed => return Ok(()),
            Condition::ImpOpen => self.unlink(zone),
            Condition::ExpOpen => {}
            _ => return Err(Status::InvalidTransition),
        }
        self.give_open(zones, zone);
        Ok(())
    }

    /// Makes a zone full. Fails if the limits do not allow to open it, and for a zone that is conventional, read-only
    /// or offline.
    pub fn finish(&mut self, zones: &mut impl ZoneStates, zone: ZoneNo) -> Result<(), Status> {
        match Self::usable(zones, zone)? {
            Condition::Full => return Ok(()),
            Condition::ImpOpen => self.unlink(zone),
            Condition::ExpOpen => {}
            cond => self.take_open(zones, cond != Condition::Closed)?,
        }
        zones.update(zone, |s| s.cond = Condition::Full);
        self.open -= 1;
        self.active -= 1;
        Ok(())
    }

    /// Makes a zone empty. Fails for a zone that is conventional, read-only or offline.
    pub fn reset(&mut self, zones: &mut impl ZoneStates, zone: ZoneNo) -> Result<(), Status> {
        let cond = Self::usable(zones, zone)?;
        self.forget(zone, cond);
        zones.update(zone, |s| *s = ZoneState::EMPTY);
        Ok(())
    }

    /// Makes every sequential zone empty, except read-only and offline ones.
    pub fn reset_all(&mut self, zones: &mut impl ZoneStates, nr_zones: u32) {
        for zone in (0..nr_zones).map(ZoneNo) {
            // This fails only for a zone that a reset of all zones skips.
            let _ = self.reset(zones, zone);
        }
    }

    /// Puts a sequential zone into a condition without regard to rules and limits, as a drive does that declares a
    /// zone read-only or offline. *Empty* sets the write pointer to 0. Returns false for a conventional zone, and for
    /// the conditions *not write pointer* and *active*, which no sequential zone of a device has.
    pub fn set_condition(
        &mut self,
        zones: &mut impl ZoneStates,
        zone: ZoneNo,
        cond: Condition,
    ) -> bool {
        let old = zones.update(zone, |s| s.cond);
        if old == Condition::NotWp || matches!(cond, Condition::NotWp | Condition::Active) {
            return false;
        }
        self.forget(zone, old);
        zones.update(zone, |s| {
            s.cond = cond;
            if cond == Condition::Empty {
                s.wp = 0;
            }
        });
        self.open += u32::from(cond.is_open());
        self.active += u32::from(cond.is_active());
        if cond == Condition::ImpOpen {
            self.link(zone);
        }
        true
    }

    /// The condition of a zone, if the zone takes management commands.
    fn usable(zones: &mut impl ZoneStates, zone: ZoneNo) -> Result<Condition, Status> {
        match zones.update(zone, |s| s.cond) {
            Condition::ReadOnly => Err(Status::ZoneReadOnly),
            Condition::Offline => Err(Status::ZoneOffline),
            Condition::NotWp => Err(Status::InvalidField),
            cond => Ok(cond),
        }
    }

    /// Takes an open slot, and an active one if the zone was `empty`; a closed zone has its active slot already (O5).
    /// If no open slot is free, closes the zone that was implicitly open for longest.
    fn take_open(&mut self, zones: &mut impl ZoneStates, empty: bool) -> Result<(), Status> {
        if empty && self.max_active != 0 && self.active >= self.max_active {
            return Err(Status::ActiveLimit);
        }
        if self.max_open != 0 && self.open >= self.max_open {
            if self.oldest == NONE {
                return Err(Status::OpenLimit);
            }
            let victim = ZoneNo(self.oldest);
            self.unlink(victim);
            self.give_open(zones, victim);
        }
        self.open += 1;
        self.active += u32::from(empty);
        Ok(())
    }

    /// Closes an open zone that is in no list.
    fn give_open(&mut self, zones: &mut impl ZoneStates, zone: ZoneNo) {
        let emptied = zones.update(zone, |s| {
            s.cond = if s.wp == 0 { Condition::Empty } else { Condition::Closed };
            s.wp == 0
        });
        self.open -= 1;
        self.active -= u32::from(emptied);
    }

    /// Gives back the slots that a zone in this condition has.
    fn forget(&mut self, zone: ZoneNo, cond: Condition) {
        if cond == Condition::ImpOpen {
            self.unlink(zone);
        }
        self.open -= u32::from(cond.is_open());
        self.active -= u32::from(cond.is_active());
    }

    fn link(&mut self, zone: ZoneNo) {
        if self.max_open == 0 {
            return;
        }
        self.links[zone.0 as usize] = (self.newest, NONE);
        match self.newest {
            NONE => self.oldest = zone.0,
            last => self.links[last as usize].1 = zone.0,
        }
        self.newest = zone.0;
    }

    fn unlink(&mut self, zone: ZoneNo) {
        if self.max_open == 0 {
            return;
        }
        let (prev, next) = self.links[zone.0 as usize];
        match prev {
            NONE => self.oldest = next,
            p => self.links[p as usize].1 = next,
        }
        match next {
            NONE => self.newest = prev,
            n => self.links[n as usize].0 = prev,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Condition::{Closed, Empty, ExpOpen, Full, ImpOpen, Offline, ReadOnly};

    /// Capacity of every zone of the model, in sectors.
    const CAP: u32 = 3;

    #[derive(Debug, Clone, Copy)]
    enum Do {
        /// A write of this many sectors at the write pointer.
        Write(u32),
        /// A write one sector past the write pointer.
        Misplaced,
        Open,
        Close,
        Finish,
        Reset,
        Inject(Condition),
    }

    /// The rules a second time, in a naive way: zones in the order in which they were opened implicitly, and counts
    /// made from scratch.
    #[derive(Clone)]
    struct Model {
        zones: Vec<(Condition, u32)>,
        opened: Vec<usize>,
        max_open: usize,
        max_active: usize,
    }

    impl Model {
        fn count(&self, f: fn(Condition) -> bool) -> usize {
            self.zones.iter().filter(|z| f(z.0)).count()
        }

        fn make_room(&mut self, z: usize) -> Result<(), Status> {
            let active = self.count(|c| matches!(c, ImpOpen | ExpOpen | Closed));
            if self.zones[z].0 == Empty && self.max_active > 0 && active == self.max_active {
                return Err(Status::ActiveLimit);
            }
            if self.max_open > 0 && self.count(|c| matches!(c, ImpOpen | ExpOpen)) >= self.max_open
            {
                let Some(&v) = self.opened.iter().find(|&&v| self.zones[v].0 == ImpOpen) else {
                    return Err(Status::OpenLimit);
                };
                self.zones[v].0 = if self.zones[v].1 == 0 { Empty } else { Closed };
            }
            Ok(())
        }

        fn apply(&mut self, z: usize, op: Do) -> Result<(), Status> {
            let (cond, wp) = self.zones[z];
            if let Do::Inject(c) = op {
                self.zones[z] = (c, if c == Empty { 0 } else { wp });
                return Ok(());
            }
            match cond {
                ReadOnly => return Err(Status::ZoneReadOnly),
                Offline => return Err(Status::ZoneOffline),
                _ => {}
            }
            match op {
                Do::Write(_) | Do::Misplaced if cond == Full => return Err(Status::ZoneFull),
                Do::Misplaced => return Err(Status::UnalignedWrite),
                Do::Write(n) if wp + n > CAP => return Err(Status::Boundary),
                Do::Write(n) => {
                    if matches!(cond, Empty | Closed) {
                        self.make_room(z)?;
                        self.opened.retain(|&o| o != z);
                        self.opened.push(z);
                        self.zones[z].0 = ImpOpen;
                    }
                    self.zones[z].1 += n;
                    if wp + n == CAP {
                        self.zones[z].0 = Full;
                    }
                }
                Do::Open => match cond {
                    Full => return Err(Status::InvalidTransition),
                    Empty | Closed => {
                        self.make_room(z)?;
                        self.zones[z].0 = ExpOpen;
                    }
                    _ => self.zones[z].0 = ExpOpen,
                },
                Do::Close => match cond {
                    Empty | Full => return Err(Status::InvalidTransition),
                    _ => self.zones[z].0 = if wp == 0 { Empty } else { Closed },
                },
                Do::Finish => {
                    if matches!(cond, Empty | Closed) {
                        self.make_room(z)?;
                    }
                    self.zones[z].0 = Full;
                }
                Do::Reset => self.zones[z] = (Empty, 0),
                Do::Inject(_) => unreachable!("handled above"),
            }
            Ok(())
        }
    }

    fn apply(b: &mut Budget, zones: &mut Vec<ZoneState>, z: usize, op: Do) -> Result<(), Status> {
        let zone = ZoneNo(z as u32);
        let wp = zones[z].wp;
        let mut write = |at, n| match zones[z].advance(Some(at), n, CAP) {
            Advance::At(_) => Ok(()),
            Advance::Refused(s) => Err(s),
            Advance::Transition => b.write(zones, zone, Some(at), n, CAP).map(|_| ()),
        };
        match op {
            Do::Write(n) => write(wp, n),
            Do::Misplaced => write(wp + 1, 1),
            Do::Open => b.open(zones, zone),
            Do::Close => b.close(zones, zone),
            Do::Finish => b.finish(zones, zone),
            Do::Reset => b.reset(zones, zone),
            Do::Inject(c) => {
                assert!(b.set_condition(zones, zone, c));
                Ok(())
            }
        }
    }

    fn explore(b: &Budget, zones: &[ZoneState], m: &Model, ops: &[Do], depth: u32, n: &mut u64) {
        for z in 0..zones.len() {
            for &op in ops {
                let (mut b, mut zones, mut m) = (b.clone(), zones.to_vec(), m.clone());
                let want = m.apply(z, op);
                let before = zones.clone();
                let got = apply(&mut b, &mut zones, z, op);
                let now: Vec<_> = zones.iter().map(|s| (s.cond, s.wp)).collect();
                assert_eq!(got, want, "{op:?} on zone {z} of {before:?}");
                assert_eq!(now, m.zones, "{op:?} on zone {z} of {before:?}");
                assert_eq!(b.open as usize, m.count(Condition::is_open), "{op:?} {before:?}");
                assert_eq!(b.active as usize, m.count(Condition::is_active), "{op:?} {before:?}");
                if got.is_err() {
                    assert_eq!(zones, before, "a refusal changes nothing: {op:?} on zone {z}");
                }
                *n += 1;
                if depth > 1 {
                    explore(&b, &zones, &m, ops, depth - 1, n);
                }
            }
        }
    }

    /// R33, O1, O4, O5, O7. Every sequence of operations to a small depth gives the results of the model above.
    #[test]
    fn every_short_sequence_of_operations_agrees_with_the_naive_model() {
        let all = [
            Do::Write(1),
            Do::Write(2),
            Do::Misplaced,
            Do::Open,
            Do::Close,
            Do::Finish,
            Do::Reset,
            Do::Inject(ReadOnly),
            Do::Inject(Offline),
            Do::Inject(Empty),
        ];
        let mut n = 0;
        let runs: [(usize, &[Do], u32); 3] = [(2, &all, 4), (3, &all[..7], 4), (3, &all[..5], 5)];
        for (zones, ops, depth) in runs {
            for (max_open, max_active) in [(0, 0), (1, 0), (1, 1), (1, 2), (2, 2), (2, 3), (0, 2)] {
                let b = Budget::new(zones as u32, max_open, max_active);
                let m = Model {
                    zones: vec![(Empty, 0); zones],
                    opened: Vec::new(),
                    max_open: max_open as usize,
                    max_active: max_active as usize,
                };
                explore(&b, &vec![ZoneState::EMPTY; zones], &m, ops, depth, &mut n);
            }
        }
        assert!(n > 5_000_000, "{n} steps");
    }

    /// A14. An append writes at the write pointer and must fit its zone.
    #[test]
    fn an_append_goes_to_the_write_pointer_and_must_fit() {
        let mut zones = vec![ZoneState::EMPTY; 2];
        let mut b = Budget::new(2, 0, 0);
        assert_eq!(b.write(&mut zones, ZoneNo(0), None, 2, CAP), Ok(0));
        assert_eq!(zones[0].advance(None, 2, CAP), Advance::Refused(Status::Boundary));
        assert_eq!(zones[0].advance(None, 1, CAP), Advance::Transition);
        assert_eq!(b.write(&mut zones, ZoneNo(0), None, 1, CAP), Ok(2));
        assert_eq!((zones[0].cond, zones[0].wp), (Full, CAP));
        assert_eq!((b.open_zones(), b.active_zones()), (0, 0));
    }

    /// M3. A reset of all zones skips conventional, read-only and offline ones.
    #[test]
    fn reset_all_leaves_conventional_read_only_and_offline_zones_alone() {
        let mut zones = vec![ZoneState::EMPTY; 5];
        zones[0] = ZoneState::CONVENTIONAL;
        let mut b = Budget::new(5, 2, 3);
        for z in 1..5 {
            b.write(&mut zones, ZoneNo(z), Some(0), 1, CAP).unwrap();
            b.set_condition(
                &mut zones,
                ZoneNo(z),
                [Closed, ReadOnly, Offline, ImpOpen][z as usize - 1],
            );
        }
        assert!(!b.set_condition(&mut zones, ZoneNo(0), Offline), "conventional");
        assert_eq!(b.reset(&mut zones, ZoneNo(0)), Err(Status::InvalidField));
        b.reset_all(&mut zones, 5);
        let conds: Vec<_> = zones.iter().map(|s| s.cond).collect();
        assert_eq!(conds, [Condition::NotWp, Empty, ReadOnly, Offline, Empty]);
        assert_eq!((b.open_zones(), b.active_zones()), (0, 0));
    }
}
