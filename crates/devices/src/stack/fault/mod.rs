//! The fault injector: a device that passes commands to the one below it, unless a rule says otherwise.
//!
//! This module has the rules, the zones that have died, and the data that a power cut may take (`power.rs`). All
//! chance comes from the seed of the plan, so the same commands meet the same faults. While no fault is configured,
//! the injector costs a command one load.
//!
//! | file | state |
//! | --- | --- |
//! | `text.rs` | rules as text |
//! | `queue.rs` | commands on their way through |
//! | `power.rs` | data that no flush covers yet |

mod power;
mod queue;
mod text;

pub use text::{FaultAction, FaultPlan, FaultRule, FaultSectors, OpSet};

use power::Cache;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Waker;
use zoneplug_core::Error;
use zoneplug_core::Random;
use zoneplug_core::bio::{Command, Op, Status};
use zoneplug_core::device::{Device, Queue};
use zoneplug_core::unit::ZoneNo;
use zoneplug_core::zone::{Condition, Geometry, Limits, Spindles, ZoneInfo};

/// The number of faults of each kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FaultCounts {
    /// Commands that failed and did not reach the device.
    pub failed: u64,
    /// Commands that the device carried out in part.
    pub torn: u64,
    /// Commands that came back as *busy*.
    pub busy: u64,
    /// Completions that were delayed.
    pub delayed: u64,
    /// Completions that never came.
    pub lost: u64,
    /// Zones that became read-only or went offline.
    pub died: u64,
    /// Power cuts.
    pub cuts: u64,
    /// Whether the device has vanished.
    pub gone: bool,
}

impl FaultCounts {
    /// Returns the sum of all counts.
    pub fn total(&self) -> u64 {
        self.failed
            + self.torn
            + self.busy
            + self.delayed
            + self.lost
            + self.died
            + self.cuts
            + u64::from(self.gone)
    }
}

/// The effect of the faults on one command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FaultEffect {
    Pass,
    Fail(Status),
    Torn(Status, u32),
    Delay(zoneplug_core::unit::Nanos),
    Lost,
}

struct State {
    rules: Vec<FaultRule>,
    random: Random,
    dead: BTreeMap<u32, Condition>,
    gone: bool,
    cache: Option<Cache>,
    counts: FaultCounts,
}

struct Shared {
    inner: Arc<dyn Device>,
    /// Whether any fault is configured. While it is false, a command looks at nothing else.
    active: AtomicBool,
    /// Grows with each power cut, and when the device vanishes. Commands that were sent under an
    /// earlier value have failed.
    epoch: AtomicU32,
    timed: bool,
    state: Mutex<State>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        zoneplug_core::poison::lock(&self.state)
    }

    fn update_active(&self, state: &State) {
        let on = !state.rules.is_empty()
            || !state.dead.is_empty()
            || state.gone
            || state.cache.is_some();
        self.active.store(on, Ordering::Relaxed);
    }

    fn begin_epoch(&self) {
        self.epoch.fetch_add(1, Ordering::AcqRel);
    }
}

/// A device with faults above another device.
///
/// ```
/// use zoneplug_devices::emu::{EmuConfig, EmuDisk};
/// use zoneplug_devices::stack::FaultDisk;
/// use zoneplug_core::{Command, Commands, Device, Nanos, Op, Sector, Status};
/// use std::task::Waker;
/// let config: EmuConfig = "null,zones=4,zone-size=64K".parse().unwrap();
/// let disk = FaultDisk::new(EmuDisk::new(config).unwrap(), &"reset/io".parse().unwrap()).unwrap();
/// let mut queue = disk.open_queue(4, Waker::noop().clone()).unwrap();
/// let mut commands = Commands::from([Command::without_data(Op::ZoneReset, Sector(0), 128)]);
/// queue.submit(Nanos(0), &mut commands);
/// queue.poll(Nanos(0), &mut commands);
/// assert_eq!(commands[0].status, Status::Io);
/// ```
pub struct FaultDisk {
    shared: Arc<Shared>,
}

impl fmt::Debug for FaultDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.shared.state();
        f.debug_struct("FaultDisk")
            .field("rules", &state.rules)
            .field("dead", &state.dead)
            .field("counts", &state.counts)
            .finish_non_exhaustive()
    }
}

impl FaultDisk {
    /// Puts the faults of `plan` on `inner`. Fails if the plan has a power cut and the zones of `inner` cannot be
    /// read.
    pub fn new(inner: Arc<dyn Device>, plan: &FaultPlan) -> Result<Arc<FaultDisk>, Error> {
        let timed = inner.is_timed() || !plan.rules.is_empty();
        let state = State {
            rules: Vec::new(),
            random: Random::new(plan.seed),
            dead: BTreeMap::new(),
            gone: false,
            cache: None,
            counts: FaultCounts::default(),
        };
        let shared = Arc::new(Shared {
            inner,
            active: AtomicBool::new(false),
            epoch: AtomicU32::new(0),
            timed,
            state: Mutex::new(state),
        });
        let disk = Arc::new(FaultDisk { shared });
        if plan.rules.iter().any(|r| r.action == FaultAction::Cut) {
            disk.watch_cache()?;
        }
        plan.rules.iter().for_each(|r| disk.add(*r));
        Ok(disk)
    }

    /// Adds a rule after the existing ones.
    pub fn add(&self, rule: FaultRule) {
        let mut state = self.shared.state();
        state.rules.push(rule);
        self.shared.update_active(&state);
    }

    /// Removes all rules. Zones that have died stay dead, and a device that has vanished does not come back.
    pub fn clear(&self) {
        let mut state = self.shared.state();
        state.rules.clear();
        self.shared.update_active(&state);
    }

    /// Gives the device a volatile cache: from now on the injector records the data that [`FaultDisk::power_cut`] may
    /// take. Fails if the zones of the device cannot be read.
    pub fn watch_cache(&self) -> Result<(), Error> {
        let cache = Cache::new(&*self.shared.inner)?;
        let mut state = self.shared.state();
        state.cache = Some(cache);
        self.shared.update_active(&state);
        Ok(())
    }

    /// Cuts the power and restores it. Commands in flight end with *no device*. Of data that was written and not
    /// flushed, each sequential zone keeps a random prefix, and each write to a conventional zone is kept or lost at
    /// random. Zones that were open are closed. Fails if the zones of the device cannot be read or written.
    pub fn power_cut(&self) -> Result<(), Error> {
        self.shared.begin_epoch();
        let mut guard = self.shared.state();
        let state = &mut *guard;
        state.counts.cuts += 1;
        match &mut state.cache {
            Some(cache) => cache.cut(&*self.shared.inner, &mut state.random, &state.dead),
            None => Ok(()),
        }
    }

    /// Makes the device vanish: all commands in flight and all later ones end with *no device*.
    pub fn vanish(&self) {
        let mut state = self.shared.state();
        (state.gone, state.counts.gone) = (true, true);
        self.shared.update_active(&state);
        self.shared.begin_epoch();
    }

    /// Makes a zone read-only or offline.
    pub fn kill_zone(&self, zone: ZoneNo, cond: Condition) {
        debug_assert!(matches!(cond, Condition::ReadOnly | Condition::Offline));
        let mut state = self.shared.state();
        state.dead.insert(zone.0, cond);
        state.counts.died += 1;
        self.shared.update_active(&state);
    }

    /// Returns the counts so far.
    pub fn counts(&self) -> FaultCounts {
        self.shared.state().counts
    }

    /// Returns the device below.
    pub fn inner(&self) -> &Arc<dyn Device> {
        &self.shared.inner
    }
}

impl State {
    /// Returns the effect on `c` of the first rule that hits it, and of dead zones. Counts `c` in
    /// the rules.
    fn effect_on(&mut self, shared: &Shared, c: &Command) -> FaultEffect {
        if self.gone {
            return FaultEffect::Fail(Status::NoDevice);
        }
        let mut hit = None;
        for i in 0..self.rules.len() {
            if !touches(shared.inner.geometry(), &self.rules[i], c) {
                continue;
            }
            if self.rules[i].skip > 0 {
                self.rules[i].skip -= 1;
                continue;
            }
            let ppm = self.rules[i].ppm;
            if ppm < 1_000_000 && self.random.below(1_000_000) >= ppm {
                continue;
            }
            hit = Some(i);
            break;
        }
        let effect = match hit {
            Some(i) => self.apply_rule(shared, i, c),
            None => FaultEffect::Pass,
        };
        match effect {
            FaultEffect::Fail(_) => effect,
            _ => self.dead_zone(shared, c).map_or(effect, FaultEffect::Fail),
        }
    }

    fn apply_rule(&mut self, shared: &Shared, i: usize, c: &Command) -> FaultEffect {
        let action = self.rules[i].action;
        if let Some(n) = &mut self.rules[i].count {
            *n = n.saturating_sub(1);
            if *n == 0 {
                self.rules.remove(i);
                shared.update_active(self);
            }
        }
        let counts = &mut self.counts;
        match action {
            FaultAction::Fail(status) => {
                *(if status == Status::Busy { &mut counts.busy } else { &mut counts.failed }) += 1;
                FaultEffect::Fail(status)
            }
            FaultAction::Torn(status, take) => {
                let unit = shared.inner.limits().write_granularity_sectors;
                let max = c.len_sectors / unit;
                let take = match take {
                    Some(n) => n / unit,
                    None => self.random.below(max.saturating_add(1).max(1)),
                };
                counts.torn += 1;
                if c.bios.is_empty() || !(c.op.has_data() || c.op == Op::WriteZeroes) {
                    return FaultEffect::Fail(status);
                }
                FaultEffect::Torn(status, take.min(max) * unit)
            }
            FaultAction::Delay(t) => {
                counts.delayed += 1;
                FaultEffect::Delay(t)
            }
            FaultAction::Lost => {
                counts.lost += 1;
                FaultEffect::Lost
            }
            FaultAction::ReadOnly | FaultAction::Offline => {
                let cond = if action == FaultAction::Offline {
                    Condition::Offline
                } else {
                    Condition::ReadOnly
                };
                let (zone, _) = shared.inner.geometry().zone_of(c.sector);
                if zone.0 < shared.inner.geometry().nr_zones() && c.op != Op::Flush {
                    self.dead.insert(zone.0, cond);
                    counts.died += 1;
                    shared.update_active(self);
                }
                FaultEffect::Pass
            }
            FaultAction::Gone => {
                (self.gone, counts.gone) = (true, true);
                shared.update_active(self);
                shared.begin_epoch();
                FaultEffect::Fail(Status::NoDevice)
            }
            FaultAction::Cut => {
                counts.cuts += 1;
                shared.begin_epoch();
                if let Some(cache) = &mut self.cache {
                    // An error means that zones cannot be read or written; their data stay as they
                    // are.
                    let _ = cache.cut(&*shared.inner, &mut self.random, &self.dead);
                }
                FaultEffect::Fail(Status::NoDevice)
            }
        }
    }

    /// Returns the status with which a dead zone fails `c`, if it does.
    fn dead_zone(&self, shared: &Shared, c: &Command) -> Option<Status> {
        if self.dead.is_empty() || matches!(c.op, Op::Flush | Op::ReportZones | Op::ZoneResetAll) {
            return None;
        }
        let (zone, _) = shared.inner.geometry().zone_of(c.sector);
        match (self.dead.get(&zone.0)?, c.op) {
            (Condition::Offline, Op::Read) => Some(Status::ZoneOffline),
            (_, Op::Read) => None,
            (_, op) if op.is_zone_management() => Some(Status::InvalidTransition),
            (Condition::Offline, _) => Some(Status::ZoneOffline),
            _ => Some(Status::ZoneReadOnly),
        }
    }

    /// Changes the records of dead zones in a report.
    fn edit_report(&self, geometry: &Geometry, report: &mut [ZoneInfo]) {
        for info in report {
            let (zone, _) = geometry.zone_of(info.start);
            if let Some(&cond) = self.dead.get(&zone.0) {
                info.cond = cond;
                info.wp = zoneplug_core::Sector(u64::MAX);
            }
        }
    }
}

/// Returns whether `rule` applies to `c`.
fn touches(g: &Geometry, rule: &FaultRule, c: &Command) -> bool {
    if !rule.kinds.has(c.op) {
        return false;
    }
    let ranged = !matches!(c.op, Op::Flush | Op::ZoneResetAll) && g.contains(c.sector, 1);
    let (first, end) = (c.sector.0, c.sector.0.saturating_add(u64::from(c.len_sectors.max(1))));
    let in_zone = rule.zone.is_none_or(|z| ranged && g.zone_of(c.sector).0.0 == z);
    let in_range = rule.sectors.is_none_or(|s| ranged && first < s.to && s.from < end);
    in_zone && in_range
}

impl Device for FaultDisk {
    fn geometry(&self) -> &Geometry {
        self.shared.inner.geometry()
    }

    fn limits(&self) -> &Limits {
        self.shared.inner.limits()
    }

    fn is_timed(&self) -> bool {
        self.shared.timed
    }

    fn spindles(&self) -> Spindles {
        self.shared.inner.spindles()
    }

    fn open_queue(&self, depth: u16, waker: Waker) -> Result<Box<dyn Queue>, Error> {
        let inner = self.shared.inner.open_queue(depth, waker.clone())?;
        Ok(Box::new(queue::FaultQueue::new(self.shared.clone(), inner, depth, waker)))
    }
}
