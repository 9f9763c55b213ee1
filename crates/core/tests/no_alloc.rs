//! Nothing is allocated per BIO once a workload has warmed up.

#![allow(clippy::unwrap_used)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use zoneplug_core::disk::{Disk, DiskConfig, DiskQueue, Mode};
use zoneplug_core::sched::{Policy, Scheduler};
use zoneplug_core::zone::Geometry;
use zoneplug_core::{Bio, BioPool, Bios, IoBuf, Nanos, Op, Random, Sector};
use zoneplug_devices::emu::timing::Profile;
use zoneplug_devices::emu::{EmuConfig, EmuDisk, EmuKind};
use zoneplug_devices::spec::Spec;

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: passes everything to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: `ptr` came from `alloc` above.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const ZONE_SECTORS: u32 = 64 << 11;
const ZONES: u64 = 256;

/// What every BIO moves: the device keeps no data.
static BLOCK: [u8; 4096] = [0; 4096];

/// Clients with a queue each, driven in turn, that share what they work on.
struct World {
    queues: Vec<DiskQueue>,
    pool: BioPool,
    lists: Vec<Bios>,
    done: Bios,
    wps: Vec<u64>,
    rng: Random,
    now: Nanos,
}

impl World {
    fn new(mode: Mode, nomerges: bool, queues: usize, tags: u16) -> World {
        let config = DiskConfig { mode, nomerges, ..DiskConfig::default() };
        Self::with(config, queues, tags)
    }

    fn with(config: DiskConfig, queues: usize, tags: u16) -> World {
        let geometry = Geometry::new(ZONES, ZONE_SECTORS, ZONE_SECTORS).unwrap();
        let device = EmuDisk::new(EmuConfig::new(EmuKind::Null, geometry)).unwrap();
        Self::on(device, config, queues, tags)
    }

    /// On a drive of so many zones, in virtual time.
    fn timed(profile: &str, queues: usize, tags: u16) -> World {
        let spec = format!(
            "sim-{profile},zones={ZONES},zone-size=64M,zone-capacity=64M,max-open=0,max-active=0"
        );
        let profile = Profile::from_spec(&mut Spec::parse(&spec).unwrap()).unwrap().unwrap();
        Self::on(
            EmuDisk::timed(&profile, EmuKind::Null).unwrap(),
            DiskConfig::default(),
            queues,
            tags,
        )
    }

    fn on(device: Arc<EmuDisk>, config: DiskConfig, queues: usize, tags: u16) -> World {
        let mut now = Nanos(0);
        let disk = Disk::open(device, config, &mut |due| {
            now = due.unwrap_or(now).max(now);
            now
        })
        .unwrap();
        World {
            queues: (0..queues).map(|_| disk.open_polled_queue(16, tags).unwrap()).collect(),
            pool: BioPool::new(queues * 16),
            lists: (0..queues).map(|_| Bios::with_capacity(16)).collect(),
            done: Bios::with_capacity(64),
            wps: (0..ZONES).map(|z| z * u64::from(ZONE_SECTORS)).collect(),
            rng: Random::new(1),
            now,
        }
    }

    fn random(&mut self, n: u64) -> usize {
        (self.rng.draw() % n) as usize
    }

    /// `rounds` rounds in which each client submits what `next` makes and polls.
    fn run(&mut self, rounds: usize, next: &mut dyn FnMut(&mut World, &mut Bio)) {
        for round in 0..rounds {
            for q in 0..self.queues.len() {
                while (self.lists[q].len() as u32) < self.queues[q].room() {
                    let mut bio = self.pool.get();
                    next(self, &mut bio);
                    self.lists[q].push_back(bio);
                }
                self.queues[q].submit(self.now, &mut self.lists[q]);
            }
            let next = self.queues.iter().filter_map(DiskQueue::next_deadline).min();
            self.now = next.unwrap_or(self.now).max(self.now);
            // Polled in changing order, so that one completes what another parked.
            for k in 0..self.queues.len() {
                let q = (k + round) % self.queues.len();
                self.queues[q].poll(self.now, &mut self.done);
                while let Some(bio) = self.done.pop_front() {
                    assert!(bio.status.is_ok(), "{}", bio.status);
                    self.pool.put(bio);
                }
            }
        }
    }

    fn check(mut self, name: &str, mut next: impl FnMut(&mut World, &mut Bio)) {
        // Lists become as long as they ever do only after many rounds.
        self.run(30_000, &mut next);
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        self.run(2000, &mut next);
        let n = ALLOCATIONS.load(Ordering::Relaxed) - before;
        assert_eq!(n, 0, "{name}: {n} allocations in 2000 rounds after warm-up");
    }
}

fn sequential(w: &mut World, bio: &mut Bio) {
    bio.set(Op::Write, Sector(w.wps[0]), 8, IoBuf::from_static(&BLOCK));
    w.wps[0] += 8;
}

fn random_write(w: &mut World, bio: &mut Bio) {
    let z = w.random(64);
    bio.set(Op::Write, Sector(w.wps[z]), 8, IoBuf::from_static(&BLOCK));
    w.wps[z] += 8;
}

fn append(w: &mut World, bio: &mut Bio) {
    let z = w.random(64) as u64;
    bio.set(Op::ZoneAppend, Sector(z * u64::from(ZONE_SECTORS)), 8, IoBuf::from_static(&BLOCK));
}

fn read(w: &mut World, bio: &mut Bio) {
    let at = w.random(1 << 20) as u64 * 8;
    bio.set(Op::Read, Sector(at), 8, IoBuf::from_static(&BLOCK));
}

/// One test, because the count is the process's.
#[test]
fn nothing_is_allocated_after_warm_up() {
    World::new(Mode::Plug, false, 1, 16).check("sequential", sequential);
    World::new(Mode::Plug, true, 1, 16).check("sequential, nomerges", sequential);
    World::new(Mode::Plug, false, 1, 4).check("random, few tags", random_write);
    World::new(Mode::Plug, false, 3, 4).check("append, three queues", append);
    World::new(Mode::Plug, false, 1, 16).check("read", read);
    World::new(Mode::None, false, 1, 16).check("none", sequential);
    World::timed("smr30", 1, 16).check("smr30, random", random_write);
    World::timed("smr30", 2, 4).check("smr30, append, two queues", append);
    World::timed("zns1", 1, 16).check("zns1, read", read);
    // One queue: the dispatcher orders what has a tag, and two queues get theirs in any order.
    World::new(Mode::Lock, false, 1, 4).check("lock", |w, b| {
        if w.random(2) == 0 {
            read(w, b);
        } else {
            random_write(w, b);
        }
    });
    let mixed = |w: &mut World, b: &mut Bio| {
        if w.random(2) == 0 {
            read(w, b);
        } else {
            append(w, b);
        }
    };
    for policy in Policy::ALL {
        let single = DiskConfig {
            zoned_qd1_writes: Some(true),
            zoned_qd1_policy: policy,
            ..DiskConfig::default()
        };
        World::with(single, 3, 4).check("a single writer", mixed);
    }
    for scheduler in [Scheduler::MqDeadline, Scheduler::Shuffle(1)] {
        for queue_depth in [0, 3] {
            let scheduled = DiskConfig { scheduler, queue_depth, ..DiskConfig::default() };
            World::with(scheduled, 3, 4).check("a scheduler", mixed);
        }
    }
}
