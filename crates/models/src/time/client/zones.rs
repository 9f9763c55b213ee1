//! Jobs that write to random zones of a set of open zones: fio's `zonemode=zbd` with
//! `rw=randwrite`, or the same jobs without fio's locks.
//!
//! fio has a recursive lock on each zone. A job takes the lock for a write and releases it when the
//! write has been reaped; with several writes in flight it holds the lock several times. A job that
//! wants a zone locked by another job waits until all its own writes are reaped, then sleeps on the
//! lock. A zone leaves the set when its last write is reaped, and the next job that finds the set
//! too small opens another zone anywhere on the disk. So 16 jobs with 32 writes each never have 512
//! writes outstanding: while most zones have one write in flight, the queue is nearly empty,
//! whatever its depth.

use crate::time::io::{Client, Finished, Io};
use std::collections::{BTreeSet, VecDeque};
use zoneplug_core::zone::Geometry;
use zoneplug_core::{Nanos, Random, ZoneNo};

/// Jobs that write to random open zones.
///
/// ```
/// use zoneplug_core::Nanos;
/// use zoneplug_devices::emu::timing::Profile;
/// use zoneplug_models::time::{Run, ZoneWriter};
/// let mut run = Run::new(Profile::builtin("zns1").unwrap());
/// (run.warm_up, run.length) = (Nanos(1_000_000), Nanos(50_000_000));
/// let report = run.go(vec![Box::new(ZoneWriter::fio_zbd(16, 16, 128 << 10, 14, 1))]).unwrap();
/// assert!((1800.0..2000.0).contains(&report.mb_per_s()));
/// ```
#[derive(Debug, Clone)]
pub struct ZoneWriter {
    /// The number of jobs.
    pub jobs: u32,
    /// Most BIOs that a job has outstanding.
    pub depth: u32,
    /// Length of each BIO in sectors.
    pub bs_sectors: u32,
    /// Zones that are written at a time.
    pub open_zones: u32,
    /// Whether a zone is locked from a submission to its reaping, as in fio.
    pub zone_lock: bool,
    /// Whether jobs send zone appends instead of writes at their own write pointer.
    pub append: bool,
    /// Time from a completion until the job reaps it.
    pub reap: Nanos,
    /// Time from the release of a lock until the job that slept on it runs.
    pub wake: Nanos,
    random: Random,
    zones: Vec<Zone>,
    /// The open zones.
    open: Vec<u32>,
    job: Vec<Job>,
    /// Jobs that sleep because every open zone is full.
    asleep: Vec<u32>,
    /// All zones that were ever written.
    used: BTreeSet<u32>,
    /// Sectors written to a zone before it leaves the set.
    limit: u32,
    nr_zones: u32,
}

/// A zone that is or was open, identified by its index in the table.
#[derive(Debug, Clone)]
struct Zone {
    zone: u32,
    /// Sectors submitted.
    wp: u32,
    /// Sectors reaped.
    done: u32,
    owner: Option<u32>,
    in_flight: u32,
    waiters: VecDeque<u32>,
    waking: bool,
    open: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Running,
    /// The job has its maximum of BIOs outstanding.
    Full,
    /// The job waits until its own BIOs are reaped.
    Quiescing,
    /// The job sleeps on a zone's lock.
    Locking,
    /// The job sleeps until a zone leaves the set.
    Asleep,
}

#[derive(Debug, Clone)]
struct Job {
    in_flight: u32,
    state: State,
    /// The zone that the job waits for or chose.
    target: Option<u32>,
}

// A token holds a kind, a zone and a job.
const KIND: u32 = 30;
const REAP: u32 = 0 << KIND;
const WAKE: u32 = 1 << KIND;
const STEP: u32 = 2 << KIND;
const JOB_BITS: u32 = 10;

fn pack(zone: u32, job: u32) -> u32 {
    zone << JOB_BITS | job
}

fn unpack(token: u32) -> (u32, u32) {
    let t = token & ((1 << KIND) - 1);
    (t >> JOB_BITS, t & ((1 << JOB_BITS) - 1))
}

impl ZoneWriter {
    /// fio's zoned mode: `jobs` with `depth` writes of `bs_bytes` each, over `max_open_zones`
    /// zones.
    ///
    /// # Panics
    ///
    /// With 1024 jobs or more.
    pub fn fio_zbd(
        jobs: u32,
        depth: u32,
        bs_bytes: u32,
        max_open_zones: u32,
        seed: u64,
    ) -> ZoneWriter {
        assert!(jobs < 1 << JOB_BITS, "a token has room for 1023 jobs");
        ZoneWriter {
            jobs,
            depth,
            bs_sectors: bs_bytes >> 9,
            open_zones: max_open_zones,
            zone_lock: true,
            append: false,
            reap: Nanos(20_000),
            wake: Nanos(50_000),
            random: Random::new(seed),
            zones: Vec::new(),
            open: Vec::new(),
            job: vec![Job { in_flight: 0, state: State::Running, target: None }; jobs as usize],
            asleep: Vec::new(),
            used: BTreeSet::new(),
            limit: 0,
            nr_zones: 0,
        }
    }

    /// A full queue: `outstanding` writes over `zones` zones at all times, without a lock.
    pub fn open_queue(outstanding: u32, bs_bytes: u32, zones: u32, seed: u64) -> ZoneWriter {
        ZoneWriter { zone_lock: false, ..Self::fio_zbd(1, outstanding, bs_bytes, zones, seed) }
    }

    /// A full queue as in [`ZoneWriter::open_queue`], of zone appends.
    pub fn appender(outstanding: u32, bs_bytes: u32, zones: u32, seed: u64) -> ZoneWriter {
        ZoneWriter { append: true, ..Self::open_queue(outstanding, bs_bytes, zones, seed) }
    }

    /// Opens a zone that was never written, anywhere on the disk.
    fn open_zone(&mut self) -> u32 {
        if self.used.len() as u32 == self.nr_zones {
            // All zones are used. A run this long writes to full zones, and fails.
            self.used.clear();
        }
        let zone = loop {
            let zone = self.random.below(self.nr_zones);
            if self.used.insert(zone) {
                break zone;
            }
        };
        self.zones.push(Zone {
            zone,
            wp: 0,
            done: 0,
            owner: None,
            in_flight: 0,
            waiters: VecDeque::new(),
            waking: false,
            open: true,
        });
        let id = self.zones.len() as u32 - 1;
        self.open.push(id);
        id
    }

    /// Runs a job until it has to wait.
    fn step(&mut self, io: &mut Io, j: u32) {
        while self.job[j as usize].state == State::Running {
            let job = &self.job[j as usize];
            if job.in_flight >= self.depth {
                self.job[j as usize].state = State::Full;
                return;
            }
            let id = match job.target {
                Some(id) => id,
                None if (self.open.len() as u32) < self.open_zones => self.open_zone(),
                None => self.random.pick(&self.open),
            };
            let (zone, job) = (&mut self.zones[id as usize], &mut self.job[j as usize]);
            if !zone.open {
                job.target = None;
                continue;
            }
            if self.zone_lock && zone.owner.is_some_and(|o| o != j) {
                job.target = Some(id);
                if job.in_flight > 0 {
                    job.state = State::Quiescing;
                } else {
                    zone.waiters.push_back(j);
                    job.state = State::Locking;
                }
                return;
            }
            job.target = None;
            if zone.wp + self.bs_sectors > self.limit {
                let room = |id: &u32| self.zones[*id as usize].wp + self.bs_sectors <= self.limit;
                job.target = self.open.iter().copied().find(room);
                if job.target.is_none() {
                    if job.in_flight > 0 {
                        job.state = State::Quiescing;
                    } else {
                        job.state = State::Asleep;
                        self.asleep.push(j);
                    }
                }
                continue;
            }
            zone.owner = Some(j);
            zone.in_flight += 1;
            job.in_flight += 1;
            let at = zone.wp;
            zone.wp += self.bs_sectors;
            if self.append {
                io.append(zone.zone, self.bs_sectors, pack(id, j));
            } else {
                io.write(zone.zone, at, self.bs_sectors, pack(id, j));
            }
        }
    }

    fn reap(&mut self, io: &mut Io, id: u32, j: u32) {
        let zone = &mut self.zones[id as usize];
        self.job[j as usize].in_flight -= 1;
        zone.in_flight -= 1;
        zone.done += self.bs_sectors;
        if zone.in_flight == 0 {
            zone.owner = None;
        }
        if zone.done + self.bs_sectors > self.limit {
            zone.open = false;
            let waiters = std::mem::take(&mut zone.waiters);
            self.open.retain(|&o| o != id);
            for w in waiters.into_iter().chain(std::mem::take(&mut self.asleep)) {
                let job = &mut self.job[w as usize];
                job.state = State::Running;
                job.target = None;
                io.after(self.wake, STEP | pack(0, w));
            }
        }
        self.pass_on(io, id);
        let job = &mut self.job[j as usize];
        if job.state == State::Full || job.state == State::Quiescing && job.in_flight == 0 {
            job.state = State::Running;
            self.step(io, j);
        }
    }

    /// Wakes the first job that sleeps on the lock of a free zone.
    fn pass_on(&mut self, io: &mut Io, id: u32) {
        let zone = &mut self.zones[id as usize];
        if zone.owner.is_none()
            && !zone.waking
            && let Some(j) = zone.waiters.pop_front()
        {
            zone.waking = true;
            io.after(self.wake, WAKE | pack(id, j));
        }
    }
}

impl Client for ZoneWriter {
    fn prepare(&mut self, geometry: &Geometry) -> Vec<(ZoneNo, u32)> {
        let capacity = geometry.zone_capacity_sectors();
        self.limit = capacity / self.bs_sectors * self.bs_sectors;
        self.nr_zones = geometry.nr_zones();
        let blocks = self.limit / self.bs_sectors;
        // Zones begin at different places, otherwise all would be full at the same time. A single
        // zone begins empty.
        (0..self.open_zones)
            .map(|_| {
                let id = self.open_zone() as usize;
                let blocks = if self.open_zones > 1 { self.random.below(blocks) } else { 0 };
                let zone = &mut self.zones[id];
                zone.wp = blocks * self.bs_sectors;
                zone.done = zone.wp;
                (ZoneNo(zone.zone), zone.wp)
            })
            .collect()
    }

    fn start(&mut self, io: &mut Io) {
        for j in 0..self.jobs {
            self.step(io, j);
        }
    }

    fn finished(&mut self, io: &mut Io, bio: Finished) {
        io.at(io.completed_at().plus(self.reap), REAP | bio.token);
    }

    fn timer(&mut self, io: &mut Io, token: u32) {
        let (id, j) = unpack(token);
        match token & !((1 << KIND) - 1) {
            REAP => self.reap(io, id, j),
            WAKE => {
                self.zones[id as usize].waking = false;
                self.job[j as usize].state = State::Running;
                self.step(io, j);
                self.pass_on(io, id);
            }
            _ => self.step(io, j),
        }
    }
}
