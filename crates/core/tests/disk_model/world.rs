//! A world: a device, a disk, queues, what the client knows of each zone, and what is outstanding.

use super::common::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use zoneplug_core::disk::{Disk, DiskConfig, DiskQueue, Freeze, Mode, Revalidation};
use zoneplug_core::emu::{EmuConfig, EmuDisk, EmuKind};
use zoneplug_core::zone::{Condition, Geometry, Limits};
use zoneplug_core::{Bio, Bios, Nanos, Op, Sector, Status, ZoneNo};

/// What the client knows of a zone.
#[derive(Debug, Default)]
pub(crate) struct Zone {
    pub(crate) start: u64,
    pub(crate) len: u32,
    pub(crate) cap: u32,
    pub(crate) conventional: bool,
    /// Where the next write goes, if nothing that is in flight fails.
    pub(crate) wp: u32,
    /// Writes and appends in flight.
    pub(crate) writes: u32,
    /// Management commands in flight.
    pub(crate) managed: u32,
    /// Orphans: writes of queues that were dropped. Nobody says when they finish, but a freeze.
    pub(crate) orphans: u32,
    /// A write failed: the write pointer must be asked for.
    pub(crate) unsure: bool,
    /// A write failed at some time.
    pub(crate) failed: bool,
    /// A reset or finish met writes in flight: nothing is promised until the next quiet reset (M4).
    pub(crate) fuzzy: bool,
    /// The zone was made read-only or offline.
    pub(crate) dead: bool,
    /// Something else than the disk moved the write pointer: only a resync tells (E10).
    pub(crate) moved: bool,
    /// Counts what was submitted: a report that met none of it describes the zone as it is.
    pub(crate) activity: u64,
    /// Changed by every reset and every conventional write: what a read compares with is of one generation.
    pub(crate) generation: u64,
    /// The stamps of what was acknowledged, by sector.
    pub(crate) shadow: Vec<Option<u64>>,
}

impl Zone {
    pub(crate) fn quiet(&self) -> bool {
        self.writes == 0 && self.managed == 0 && self.orphans == 0
    }
}

/// What was asked for with a BIO that is outstanding.
#[derive(Debug)]
pub(crate) enum Asked {
    /// A write or write-zeroes: (zone, generation, offset, length) of each zone, and the stamp of the first sector
    /// (none: zeroes).
    Write { parts: Vec<(usize, u64, u32, u32)>, stamp: Option<u64> },
    /// An append of `len` sectors; `at` is where it must land if nothing failed.
    Append { zone: usize, generation: u64, at: u32, len: u32, stamp: u64 },
    /// A read: what must be found where nothing changed meanwhile (zone, generation, stamp).
    Read { expect: Vec<(usize, u64, Option<u64>)> },
    /// Reset, finish, open or close of zones; whether all were quiet.
    Manage { op: Op, zones: Vec<usize>, quiet: bool },
    /// A report; `quiet` if the zone was; `activity` as it was then.
    Report { zone: usize, quiet: bool, activity: u64 },
    /// Flush.
    Flush,
    /// Something that must be refused like this.
    Bad { status: Status },
}

#[derive(Debug)]
pub(crate) struct Outstanding {
    pub(crate) queue: usize,
    pub(crate) asked: Asked,
}

pub(crate) struct World {
    pub(crate) rng: Rng,
    pub(crate) mode: Mode,
    pub(crate) dev: Arc<EmuDisk>,
    pub(crate) disk: Disk,
    pub(crate) queues: Vec<Option<DiskQueue>>,
    pub(crate) now: Nanos,
    pub(crate) zones: Vec<Zone>,
    pub(crate) outstanding: BTreeMap<u64, Outstanding>,
    pub(crate) next_token: u64,
    pub(crate) next_stamp: u64,
    pub(crate) max_transfer: u32,
    pub(crate) grain: u32,
    pub(crate) native: bool,
    pub(crate) freeze: Option<Freeze>,
    pub(crate) revalidation: Option<(Revalidation, usize)>,
    /// Faults may have been injected, so that any BIO may fail.
    pub(crate) faults: bool,
    /// Something happened after which the device may see a misplaced write.
    pub(crate) spoiled: bool,
    /// Where appends landed and where they had to, unless something before them failed.
    pub(crate) appends: Vec<(usize, u32, u32)>,
    pub(crate) limited: bool,
    /// How BIOs failed; and whether some failures were not for the client to see.
    pub(crate) seen: BTreeSet<Status>,
    pub(crate) hidden: bool,
    pub(crate) completions: u64,
    pub(crate) trace: Vec<String>,
}

fn geometry(rng: &mut Rng, grain: u32) -> Geometry {
    let zones = rng.range(2, 6);
    let size = grain * if rng.one_in(2) { 1 << rng.range(2, 5) } else { rng.range(3, 40) };
    let cap = if rng.one_in(2) { size } else { grain * rng.range(1, size / grain) };
    let mut g = Geometry::new(u64::from(zones), size, cap).expect("a layout");
    if rng.one_in(3) {
        let last = grain * rng.range(1, size / grain);
        let last_cap = grain * rng.range(1, last / grain);
        g = g.with_last_zone(last, last_cap).expect("a last zone");
    }
    if rng.one_in(3) {
        let conventional: Vec<_> = (0..rng.range(1, zones - 1)).map(ZoneNo).collect();
        g = g.with_conventional(conventional).expect("zones");
    }
    g
}

impl World {
    pub(crate) fn new(seed: u64, mode: Mode) -> World {
        recycle_buffers();
        let mut rng = Rng(seed.wrapping_mul(0x2545_f491_4f6c_dd1d) ^ mode as u64);
        let grain = 1 << rng.range(0, 2);
        let geometry = geometry(&mut rng, grain);
        let mut l = Limits {
            logical_block_sectors: if rng.one_in(2) { 1 } else { grain },
            write_granularity_sectors: grain,
            ..Limits::default()
        };
        if rng.one_in(2) {
            l.max_transfer_sectors = grain * rng.range(1, 12) + rng.below(grain);
        }
        if rng.one_in(3) {
            l.max_write_zeroes_sectors = rng.range(0, 12);
        }
        if rng.one_in(3) {
            l.max_bios = rng.range(1, 5);
        }
        if rng.one_in(4) {
            l.max_active_zones = rng.range(1, 4);
            l.max_open_zones = rng.range(0, l.max_active_zones);
        }
        if rng.one_in(6) {
            l.zone_append_max_sectors = grain * rng.range(1, 6);
        }
        let mut emu = EmuConfig::new(EmuKind::Mem, geometry.clone());
        emu.limits = l.clone();
        emu.latency = Nanos(if rng.one_in(2) { 0 } else { u64::from(rng.range(1, 1000)) });
        emu.reorder = rng.one_in(2).then(|| rng.draw());
        emu.paranoid = true;
        let dev = EmuDisk::new(emu).expect("a device");
        let config = DiskConfig {
            mode,
            nomerges: rng.one_in(4),
            emulate_append: rng.one_in(3),
            shards: 1 << rng.range(0, 6),
            strict_management: rng.one_in(5),
            ..DiskConfig::default()
        };
        let native = l.zone_append_max_sectors != 0 && !config.emulate_append;
        let disk = open(dev.clone(), config);
        let queues = (0..rng.range(1, 4))
            .map(|_| {
                Some(
                    disk.open_polled_queue(rng.range(1, 24), rng.range(1, 5) as u16)
                        .expect("a queue"),
                )
            })
            .collect();
        let zones = (0..geometry.nr_zones())
            .map(|z| {
                let len = geometry.zone_len_sectors(ZoneNo(z));
                Zone {
                    start: geometry.zone_start(ZoneNo(z)).0,
                    len,
                    cap: geometry.capacity_of(ZoneNo(z)),
                    conventional: geometry.is_conventional(ZoneNo(z)),
                    shadow: vec![None; len as usize],
                    ..Zone::default()
                }
            })
            .collect();
        let mut world = World {
            mode,
            disk,
            queues,
            now: Nanos(0),
            zones,
            outstanding: BTreeMap::new(),
            next_token: 1,
            next_stamp: 1,
            max_transfer: l.transfer_sectors(),
            grain,
            native,
            freeze: None,
            revalidation: None,
            faults: false,
            spoiled: false,
            appends: Vec::new(),
            limited: l.max_active_zones != 0,
            seen: BTreeSet::new(),
            hidden: false,
            completions: 0,
            trace: Vec::new(),
            dev,
            rng,
        };
        if native {
            // A8: the cache of a disk with native appends is of no use.
            world.spoiled = true;
        }
        world
    }

    pub(crate) fn run(mut self) {
        let steps = self.rng.range(20, 120);
        for _ in 0..steps {
            if !self.rng.one_in(3) {
                self.act();
            } else {
                self.poll_round();
            }
        }
        self.drain();
        self.check_at_rest();
    }

    /// Hands BIOs to a queue, which has room for them.
    pub(crate) fn submit(&mut self, q: usize, bios: Vec<(Box<Bio>, Asked)>) {
        let mut list = Bios::new();
        for (mut bio, asked) in bios {
            bio.token = self.next_token;
            self.next_token += 1;
            self.trace.push(format!(
                "{:?} q{q} {:?}@{}+{} {asked:?}",
                bio.token, bio.op, bio.sector.0, bio.len_sectors
            ));
            self.outstanding.insert(bio.token, Outstanding { queue: q, asked });
            list.push_back(bio);
        }
        let n = list.len();
        let queue = self.queues[q].as_mut().expect("an open queue");
        assert_eq!(queue.submit(self.now, &mut list), n, "a queue with room takes all");
    }

    /// Polls every queue once, in a random order, and lets time pass to the next deadline if nothing happened.
    /// Whether something happened or is due.
    pub(crate) fn poll_round(&mut self) -> bool {
        let before = self.completions;
        let n = self.queues.len() as u32;
        let mut order: Vec<usize> = (0..n as usize).collect();
        for i in (1..n).rev() {
            order.swap(i as usize, self.rng.below(i + 1) as usize);
        }
        for q in order {
            self.poll(q);
        }
        let next = self.queues.iter().flatten().filter_map(DiskQueue::next_deadline).min();
        if self.completions == before {
            self.now = next.unwrap_or(self.now).max(self.now);
        }
        self.poll_freeze();
        self.completions > before || next.is_some()
    }

    fn poll(&mut self, q: usize) {
        if let Some((mut r, rq)) = self.revalidation.take() {
            if rq != q {
                self.revalidation = Some((r, rq));
            } else {
                let queue = self.queues[q].as_mut().expect("a queue that revalidates is kept");
                match r.poll(queue, self.now) {
                    None => self.revalidation = Some((r, rq)),
                    Some(result) => {
                        assert!(result.is_ok() || self.faults, "{result:?}");
                        self.hidden |= result.is_err();
                        self.completions += 1;
                    }
                }
                return;
            }
        }
        let Some(queue) = self.queues[q].as_mut() else { return };
        let mut done = Bios::new();
        queue.poll(self.now, &mut done);
        for bio in done {
            self.completions += 1;
            self.completed(q, bio);
        }
    }

    fn poll_freeze(&mut self) {
        if let Some(freeze) = &self.freeze
            && freeze.poll()
        {
            // Drained: what queues left behind has finished.
            for z in &mut self.zones {
                z.orphans = 0;
            }
            self.freeze = None;
            self.completions += 1;
        }
    }

    pub(crate) fn drain(&mut self) {
        let (mut idle, mut rounds) = (0, 0);
        while !self.outstanding.is_empty() || self.freeze.is_some() || self.revalidation.is_some() {
            idle = if self.poll_round() { 0 } else { idle + 1 };
            rounds += 1;
            assert!(
                idle < 8 && rounds < 20_000,
                "hang: outstanding {:?}, queues {:?}",
                self.outstanding,
                self.queues
            );
        }
    }

    fn check_at_rest(&mut self) {
        let (stats, counters) = (self.dev.stats(), self.disk.counters());
        for q in self.queues.iter().flatten() {
            assert_eq!(q.outstanding(), 0);
        }
        // What failed at the device failed for somebody.
        for (status, n) in stats.failures().filter(|f| f.0 != Status::Busy && !self.hidden) {
            assert!(self.seen.contains(&status), "{n} commands: {status}, and no BIO");
        }
        if self.mode == Mode::Plug {
            assert_eq!(stats.overlaps, 0, "I1");
            if !self.spoiled {
                assert_eq!(stats.failed(Status::UnalignedWrite), 0, "I2, I3");
                assert_eq!(stats.failed(Status::InvalidField), 0);
            }
            assert_eq!(counters.waiting, 0);
            let mut dump = String::new();
            self.disk.zone_wplugs(&mut dump).expect("a string takes everything");
            for line in dump.lines() {
                assert!(line.ends_with("pending BIO: 0") && line.contains("ref: 1,"), "{line}");
            }
            assert!(counters.plugs.aborted <= counters.plugs.parked);
            assert!(counters.plugs.resynced <= self.next_token * self.zones.len() as u64);
        }
        for &(zone, expected, at) in &self.appends {
            let z = &self.zones[zone];
            assert!(z.failed || z.fuzzy || expected == at, "A5: {expected}, not {at}, in {z:?}");
        }
        for z in 0..self.zones.len() {
            self.check_zone(z);
        }
    }

    fn check_zone(&mut self, z: usize) {
        let zone = &self.zones[z];
        let info = self.dev.zone_info(ZoneNo(z as u32));
        if zone.dead {
            return;
        }
        let medium = on_medium(&self.dev, Sector(zone.start), zone.len);
        // What was acknowledged is there.
        for (i, expected) in zone.shadow.iter().enumerate() {
            if let Some(s) = expected {
                assert_eq!(medium[i], *s, "zone {z}, offset {i} of {zone:?}");
            }
        }
        if zone.conventional {
            return;
        }
        // I2: what is there was submitted in the order in which it lies there.
        let written = match info.cond {
            Condition::Full => zone.cap,
            _ => (info.wp.0 - info.start.0) as u32,
        };
        let order: Vec<_> =
            medium[..written as usize].iter().copied().filter(|&s| s != 0).collect();
        if !(zone.fuzzy || self.native && z.is_multiple_of(2)) {
            assert!(order.windows(2).all(|w| w[0] < w[1]), "I2: zone {z} holds {medium:?}");
        }
        // R29: what the layer believes is what the device has.
        if self.mode == Mode::Plug && !zone.fuzzy && !zone.moved && !self.native {
            if let Ok(cached) = self.disk.cached_zone(ZoneNo(z as u32)) {
                assert_eq!(cached.wp, info.wp, "zone {z}: {zone:?}");
                let active = info.cond.is_active() && cached.cond == Condition::Active;
                // ZBC: an empty zone that was opened explicitly is open; the layer keeps wp 0 as empty.
                let opened = info.cond.is_active() && cached.cond == Condition::Empty;
                assert!(active || opened || cached.cond == info.cond, "{cached:?} {info:?}");
            } else {
                assert!(zone.failed, "only an error makes a zone stale");
            }
        }
    }
}

impl Drop for World {
    #[allow(clippy::disallowed_macros)] // a failing test shows what it did
    fn drop(&mut self) {
        if std::thread::panicking() && std::env::var("ZONEPLUG_SEED").is_ok() {
            for line in &self.trace {
                println!("{line}");
            }
        }
    }
}
