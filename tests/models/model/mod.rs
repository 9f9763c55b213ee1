//! What the model checkers run: the engine itself, over a device that checks what reaches it, used by clients that
//! sleep as real ones do. This file owns the device and the disk, `client` the clients; `cases` and `turns` have the
//! models. Called by `loom_disk.rs` and `shuttle_disk.rs`. Never a copy of the engine: nothing here plugs, parks or freezes.
//!
//! A hang is found as a deadlock: a client sleeps on its bell and nothing else, and the checker sees that all threads
//! do.

pub(crate) mod cases;
pub(crate) mod client;
pub(crate) mod turns;

#[cfg(loom)]
pub(crate) use loom::{
    sync::{
        Condvar, Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
};
#[cfg(shuttle)]
pub(crate) use shuttle::{
    sync::{
        Condvar, Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
};

use std::sync::Arc;
use std::task::{Wake, Waker};
use zoneplug_core::disk::{Disk, DiskConfig, DiskQueue, Freeze, Mode, QueueConfig, ZoneRecovery};
use zoneplug_core::sched::Scheduler;
use zoneplug_core::zone::{Condition, Geometry, Limits, Spindles, ZoneInfo, ZoneType};
use zoneplug_core::{
    Bio, Bios, Command, Commands, Device, Error, IoBuf, Nanos, Op, Queue, Sector, Status, ZoneNo,
    lost_bios,
};

/// A block, and the shortest write, in sectors.
pub(crate) const BLOCK: u32 = 8;
/// The same, as a distance of sectors.
pub(crate) const B: u64 = BLOCK as u64;
const NOW: Nanos = Nanos(0);

/// The device's word: commands in flight in the lowest byte, then these bits, then 12 bits for each zone.
const FROZEN: u64 = 1 << 8;
/// There is a single writer.
const QD1: u64 = 1 << 9;
/// A scheduler is on, and lets at most `Floor::depth` commands go.
const LIMITED: u64 = 1 << 10;
/// In a zone's bits, above its write pointer in blocks.
const WRITING: u64 = 1 << 8;

const fn shift(zone: u32) -> u32 {
    16 + 12 * zone
}

/// The medium, and the first oracle. One word, so that a command costs the checker two steps; its accesses are
/// relaxed, so that they order nothing that the engine forgot to order.
pub(crate) struct Floor {
    word: AtomicU64,
    geometry: Geometry,
    limits: Limits,
    /// Writes to this sector fail: 0 is none.
    fails_at: u64,
    /// Their data are there all the same.
    tears: bool,
    /// Whether a write that is not at the write pointer is the engine's fault. It is not where resets are in flight.
    strict: bool,
    /// Most commands while a scheduler is on.
    depth: u64,
    /// A queue with a write to this sector panics when it is polled.
    dies_at: Option<u64>,
    /// What the device does when it has finished something.
    tells: Option<Line>,
    spindles: Spindles,
}

/// A device that finishes nothing until it [rings](Floor::ring), and then everything at once. It has no deadlines: it
/// only calls the wakers of the queues that were armed.
#[derive(Default)]
struct Line(Mutex<(bool, Vec<Waker>)>);

impl Line {
    fn has_rung(&self) -> bool {
        self.0.lock().expect("nobody panics here").0
    }

    /// Calls `waker` when it rings, or now if it has.
    fn tell(&self, waker: &Waker) {
        let mut line = self.0.lock().expect("nobody panics here");
        if !line.0 {
            return line.1.push(waker.clone());
        }
        drop(line);
        waker.wake_by_ref();
    }
}

impl Floor {
    /// From now on commands finish; wakes whom that concerns.
    pub(crate) fn ring(&self) {
        let line = self.tells.as_ref().expect("a device that tells");
        let mut line = line.0.lock().expect("nobody panics here");
        line.0 = true;
        let wakers = std::mem::take(&mut line.1);
        drop(line);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// What every command that comes from now on must keep to: a single writer, the depth of a scheduler.
    pub(crate) fn expects(&self, single_writer: bool, scheduler: bool) {
        let bits = (QD1 * u64::from(single_writer)) | (LIMITED * u64::from(scheduler));
        let _ = self.word.fetch_update(Relaxed, Relaxed, |w| Some(w & !(QD1 | LIMITED) | bits));
    }

    /// What holds of any command that comes when the word was `old`.
    fn check_arrival(&self, old: u64) {
        assert!(old & FROZEN == 0, "W13: sent to a frozen disk");
        assert!(old & LIMITED == 0 || old & 0xff < self.depth, "more commands than queue_depth");
    }

    /// A write, or any other command, has come.
    fn arrives(&self, c: &mut Command) {
        let (zone, offset) = self.geometry.zone_of(c.sector);
        let s = shift(zone.0);
        if !matches!(c.op, Op::Write | Op::WriteZeroes) {
            return self.check_arrival(self.word.fetch_add(1, Relaxed));
        }
        // A write that fails has written nothing, or all.
        let fails = self.fails_at != 0 && c.sector.0 == self.fails_at;
        let len = if fails && !self.tears { 0 } else { u64::from(c.len_sectors / BLOCK) };
        let wp = |word: u64| (word >> s & 0xff) as u32 * BLOCK;
        let reserve = 1 + (WRITING << s) + (len << s);
        let old = if self.strict {
            self.word.fetch_add(reserve, Relaxed)
        } else {
            let admitted = self.word.fetch_update(Relaxed, Relaxed, |w| {
                Some(w + if wp(w) == offset { reserve } else { 1 + (WRITING << s) })
            });
            let old = admitted.expect("it always has a new value");
            if wp(old) != offset {
                c.status = Status::UnalignedWrite;
            }
            old
        };
        if fails && c.status.is_ok() {
            c.status = Status::Medium;
        }
        self.check_arrival(old);
        let head = self.spindles.of(zone);
        let shared = (0..self.geometry.nr_zones()).filter(|&z| self.spindles.of(ZoneNo(z)) == head);
        let writing = shared.fold(0, |m, z| m | WRITING << shift(z));
        assert!(old & QD1 == 0 || old & writing == 0, "Q1: two writes are at one head");
        assert!(old >> s & WRITING == 0, "I1: two writes of one zone are at the device");
        assert!(!self.strict || wp(old) == offset, "I2: a write that is not at the write pointer");
    }

    /// It has ended.
    fn leaves(&self, c: &mut Command) {
        let (zone, _) = self.geometry.zone_of(c.sector);
        let s = shift(zone.0);
        match c.op {
            Op::Write | Op::WriteZeroes => {
                self.word.fetch_sub(1 + (WRITING << s), Relaxed);
            }
            Op::ZoneReset => {
                self.word.fetch_and(!(0xff << s), Relaxed);
                self.word.fetch_sub(1, Relaxed);
            }
            Op::ZoneResetAll => {
                let all = (0..self.geometry.nr_zones()).fold(0, |m, z| m | 0xff << shift(z));
                self.word.fetch_and(!all, Relaxed);
                self.word.fetch_sub(1, Relaxed);
            }
            _ => {
                self.word.fetch_sub(1, Relaxed);
            }
        }
    }

    fn report(&self, c: &mut Command) {
        let word = self.word.load(Relaxed);
        let g = &self.geometry;
        let (first, _) = g.zone_of(c.sector);
        for zone in (first.0..g.nr_zones()).map(ZoneNo).take(c.report_max as usize) {
            let wp = (word >> shift(zone.0) & 0xff) * u64::from(BLOCK);
            let full = wp == u64::from(g.capacity_of(zone));
            c.report.push(ZoneInfo {
                start: g.zone_start(zone),
                len_sectors: u64::from(g.zone_len_sectors(zone)),
                capacity_sectors: u64::from(g.capacity_of(zone)),
                wp: Sector(if full { u64::MAX } else { g.zone_start(zone).0 + wp }),
                zone_type: ZoneType::SeqWriteRequired,
                cond: match (wp, full) {
                    (0, _) => Condition::Empty,
                    (_, true) => Condition::Full,
                    _ => Condition::ImpOpen,
                },
            });
        }
    }

    /// How many commands are at the device.
    pub(crate) fn flying(&self) -> u64 {
        self.word.load(Relaxed) & 0xff
    }

    /// A freeze says that nothing is in flight: from now on nothing may come.
    pub(crate) fn frozen(&self) {
        let old = self.word.fetch_add(FROZEN, Relaxed);
        assert_eq!(old & 0xff, 0, "W13: frozen, with commands in flight");
    }

    /// The freeze is about to end.
    pub(crate) fn thawing(&self) {
        let old = self.word.fetch_sub(FROZEN, Relaxed);
        assert_eq!(old & 0xff, 0, "W13: commands in flight at the end of a freeze");
    }

    /// Blocks written in `zone`.
    pub(crate) fn written(&self, zone: u32) -> u32 {
        (self.word.load(Relaxed) >> shift(zone) & 0xff) as u32
    }

    /// Everything that was sent has come back, and the plugs know what the medium knows.
    pub(crate) fn check_rest(&self, disk: &Disk) {
        self.check_idle(disk);
        for zone in (0..self.geometry.nr_zones()).map(ZoneNo) {
            if let Ok(z) = disk.cached_zone(zone) {
                let full = self.geometry.zone_start(zone).0 + z.len_sectors;
                let wp = z.start.0 + u64::from(self.written(zone.0) * BLOCK);
                let at_end = z.wp.0 == full && wp == z.start.0 + z.capacity_sectors;
                assert!(z.wp.0 == wp || at_end, "I3: {zone} at {}, the medium at {wp}", z.wp);
            }
        }
    }

    /// Everything that was sent has come back.
    pub(crate) fn check_idle(&self, disk: &Disk) {
        assert_eq!(self.word.load(Relaxed) & 0xff, 0, "commands are left at the device");
        assert_eq!(disk.counters().waiting, 0, "writes are left in a plug");
        assert_eq!(disk.scheduled(), 0, "requests are left in the scheduler");
        for w in disk.writers() {
            assert!(w.turn.is_none() && w.listed.is_empty(), "Q8: a turn that nobody ends: {w:?}");
        }
        assert_eq!(lost_bios(), 0, "a BIO was dropped in flight");
    }
}

struct Ground(Arc<Floor>);

impl Device for Ground {
    fn geometry(&self) -> &Geometry {
        &self.0.geometry
    }

    fn limits(&self) -> &Limits {
        &self.0.limits
    }

    fn spindles(&self) -> Spindles {
        self.0.spindles.clone()
    }

    fn open_queue(&self, places: u16, waker: Waker) -> Result<Box<dyn Queue>, Error> {
        let (floor, held) = (self.0.clone(), Commands::new());
        Ok(Box::new(GroundQueue { floor, held, places, waker, armed: false }))
    }
}

/// The report of a revalidation, which is sent while the disk is frozen. That of a zone that recovers is of one zone.
fn is_revalidation(c: &Command) -> bool {
    c.op == Op::ReportZones && c.report_max != 1
}

/// A command is at the device from the `submit` that brought it to the next `poll`.
struct GroundQueue {
    floor: Arc<Floor>,
    held: Commands,
    places: u16,
    waker: Waker,
    armed: bool,
}

impl GroundQueue {
    /// Asks to be woken when a command ends, if the queue is armed and has one at a device that [tells](Line).
    fn tell(&mut self) {
        if let Some(line) = &self.floor.tells
            && self.armed
            && !self.held.is_empty()
        {
            self.armed = false;
            line.tell(&self.waker);
        }
    }
}

impl Queue for GroundQueue {
    fn submit(&mut self, _: Nanos, commands: &mut Commands) {
        for mut c in commands.drain(..) {
            if c.op == Op::ReportZones {
                self.floor.report(&mut c);
            }
            if !is_revalidation(&c) {
                self.floor.arrives(&mut c);
            }
            self.held.push_back(c);
            assert!(self.held.len() <= self.places.into(), "more commands than the queue has tags");
        }
        self.tell();
    }

    fn poll(&mut self, _: Nanos, done: &mut Commands) {
        if self.floor.tells.as_ref().is_some_and(|line| !line.has_rung()) {
            return;
        }
        let dies = self.floor.dies_at;
        let dies = dies.is_some_and(|at| {
            self.held.iter().any(|c| c.sector.0 == at && c.op == Op::WriteZeroes)
        });
        for mut c in self.held.drain(..) {
            if !is_revalidation(&c) {
                self.floor.leaves(&mut c);
            }
            if !dies {
                done.push_back(c);
            }
        }
        if dies {
            // Without a message: there are thousands of schedules.
            std::panic::resume_unwind(Box::new("the device panics on purpose"));
        }
    }

    fn next_deadline(&self) -> Option<Nanos> {
        (!self.held.is_empty() && self.floor.tells.is_none()).then_some(NOW)
    }

    fn arm(&mut self) {
        self.armed = true;
        self.tell();
    }
}

/// How a model's disk is.
pub(crate) struct World {
    pub(crate) zones: u64,
    pub(crate) zone_blocks: u32,
    pub(crate) fails_at: u64,
    pub(crate) tears: bool,
    pub(crate) strict: bool,
    /// Where a write kills its queue of the device.
    pub(crate) dies_at: Option<u64>,
    /// The device [tells](Line), and has no deadlines.
    pub(crate) tells: bool,
    /// The spindle of each zone; none: one for all.
    pub(crate) spindles: &'static [usize],
    pub(crate) config: DiskConfig,
}

impl Default for World {
    fn default() -> Self {
        let zone_recovery = Some(ZoneRecovery::Client);
        let config = DiskConfig { shards: 1, zone_recovery, ..DiskConfig::default() };
        World {
            zones: 1,
            zone_blocks: 8,
            fails_at: 0,
            tears: false,
            strict: true,
            dies_at: None,
            tells: false,
            spindles: &[],
            config,
        }
    }
}

impl World {
    /// The disk and what is below it. Set-up is sequential: the checkers have nothing to choose.
    pub(crate) fn open(self) -> (Disk, Arc<Floor>) {
        assert!(self.zones <= 4, "a word has room for four zones");
        let zone = self.zone_blocks * BLOCK;
        let floor = Arc::new(Floor {
            word: AtomicU64::new(0),
            geometry: Geometry::new(self.zones, zone, zone).expect("a geometry"),
            limits: Limits::default(),
            fails_at: self.fails_at,
            tears: self.tears,
            strict: self.strict,
            depth: if self.config.queue_depth == 0 { 0xff } else { self.config.queue_depth.into() },
            dies_at: self.dies_at,
            tells: self.tells.then(Line::default),
            spindles: match self.spindles {
                [] => Spindles::one(0),
                of => {
                    let each: Vec<_> = of.iter().map(|&s| Spindles::one(s)).collect();
                    Spindles::join(each.iter().map(|s| (s, ZoneNo(0))))
                }
            },
        });
        let plugs = self.config.mode == Mode::Plug;
        let single = plugs && self.config.zoned_qd1_writes == Some(true);
        let scheduled = self.config.scheduler != Scheduler::None || self.config.mode == Mode::Lock;
        let device = Arc::new(Ground(floor.clone()));
        if self.tells {
            // The first report.
            floor.ring();
        }
        let disk = Disk::open(device, self.config, &mut |_| NOW).expect("the disk opens");
        if let Some(line) = &floor.tells {
            line.0.lock().expect("nobody panics here").0 = false;
        }
        floor.expects(single, scheduled);
        (disk, floor)
    }
}

/// Looks at a freeze `looks` times. Once it says that nothing is in flight, the device takes nothing until the thaw.
pub(crate) fn hold(freeze: Freeze, floor: &Floor, looks: u32) {
    for _ in 0..looks {
        if freeze.poll() {
            floor.frozen();
            assert!(freeze.poll(), "a freeze that was complete stays it");
            floor.thawing();
            break;
        }
    }
    drop(freeze);
}
