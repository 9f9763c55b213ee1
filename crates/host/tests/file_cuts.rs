//! Power cuts and kills at every step of random work on a durable disk, with any subset of what was not synced lost.
//!
//!     cargo test --release -p zoneplug-host --test file_cuts
//!     ZONEPLUG_CUTS=2000 cargo test --release -p zoneplug-host --test file_cuts -- --nocapture
//!     ZONEPLUG_CUT_SEED=17 cargo test -p zoneplug-host --test file_cuts       # one seed again
//!
//! The oracle knows what was asked for and when it was acknowledged, nothing of how the disk works. Every sector that
//! is written has a number of its own, so what a read shows says which write it came from.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::task::Waker;
use zoneplug_core::zone::{Condition, ZoneInfo};
use zoneplug_core::{
    Bio, Command, Commands, Device, Flags, IoBuf, Nanos, Op, Queue, Sector, Status, ZoneNo,
};
use zoneplug_host::file::testing::{CutStorage, Left};
use zoneplug_host::file::{Access, CreateOptions, FileDisk};

/// splitmix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// What is left of a sector: something in `odds` of 4 cases, and then not always all.
    fn left(&mut self, odds: u64) -> Left {
        match self.below(4) {
            n if n >= odds => Left::Nothing,
            _ if odds < 4 && self.one_in(8) => Left::Torn,
            _ => Left::All,
        }
    }
}

/// What was asked for. Sectors, and the generation that the zone had or gets.
#[derive(Debug, Clone, PartialEq)]
enum Kind {
    Write { zone: u32, generation: u32, at: u32, len: u32, fua: bool, preflush: bool },
    Conventional { zone: u32, at: u32, len: u32, number: u32, fua: bool },
    Reset { zone: u32, generation: u32 },
    Finish { zone: u32, generation: u32, wp: u32 },
    Flush,
}

/// Something that was asked for, and the events of the storage at which it began and was acknowledged.
#[derive(Debug, Clone)]
struct Asked {
    kind: Kind,
    start: usize,
    ack: usize,
}

const NEVER: usize = usize::MAX;

/// A sequential zone as its client knows it.
#[derive(Debug, Clone, Default)]
struct Zone {
    generation: u32,
    wp: u32,
    /// What was durable when the world began.
    base: u32,
    full: bool,
    base_full: bool,
    base_generation: u32,
    busy: bool,
}

/// Numbers of sectors: (zone, generation) to the number of each sector, 0 for zeroes.
type Numbers = BTreeMap<(u32, u32), Vec<u32>>;

struct World {
    storage: Arc<CutStorage>,
    disk: Arc<FileDisk>,
    zones: Vec<Zone>,
    numbers: Numbers,
    /// Of conventional zones: what each sector may be when the world begins.
    first: BTreeMap<(u32, u32), u32>,
    /// Writes of each zone before the world began.
    counts: Vec<u64>,
    asked: Vec<Asked>,
    random: Random,
    next_number: u32,
}

fn stamp(number: u32) -> [u8; 512] {
    let mut s = [0; 512];
    if number > 0 {
        for (i, part) in s.chunks_mut(8).enumerate() {
            part[..4].copy_from_slice(&number.to_le_bytes());
            part[4..].copy_from_slice(&(number.wrapping_mul(31) ^ i as u32).to_le_bytes());
        }
    }
    s
}

/// The number of a sector; `None`: it is none that was ever written whole.
fn number(sector: &[u8; 512]) -> Option<u32> {
    let n = u32::from_le_bytes([sector[0], sector[1], sector[2], sector[3]]);
    (stamp(n) == *sector).then_some(n)
}

fn options(r: &mut Random) -> CreateOptions {
    let unit = if r.one_in(2) { 512 } else { 4096 };
    let zone = (8 + r.below(24)) * unit;
    let capacity = if r.one_in(2) { zone } else { zone - r.below(4) * unit };
    CreateOptions {
        zones: Some(3 + r.below(18)),
        zone_size: Some(zone),
        zone_capacity: Some(capacity),
        conv: r.below(2) as u32,
        max_open: r.below(4) as u32,
        lba_size: Some(unit),
        ..CreateOptions::default()
    }
}

/// Sends commands and waits until all are back.
fn run(queue: &mut dyn Queue, mut list: Commands) -> Commands {
    let n = list.len();
    let mut done = Commands::new();
    while done.len() < n {
        queue.submit(Nanos(0), &mut list);
        queue.poll(Nanos(0), &mut done);
        std::thread::yield_now();
    }
    done
}

impl World {
    fn open(storage: Arc<CutStorage>, threads: bool) -> Arc<FileDisk> {
        match threads {
            true => storage.open_with_threads().unwrap(),
            false => storage.open(Access::ReadWrite).unwrap(),
        }
    }

    fn new(seed: u64, threads: bool) -> World {
        let mut random = Random(seed);
        let storage = CutStorage::create(&options(&mut random)).unwrap();
        let disk = World::open(storage.clone(), threads);
        storage.settle();
        let zones = vec![Zone::default(); disk.geometry().nr_zones() as usize];
        World {
            storage,
            numbers: Numbers::new(),
            first: BTreeMap::new(),
            counts: vec![0; disk.geometry().nr_zones() as usize],
            asked: Vec::new(),
            random,
            next_number: 1,
            zones,
            disk,
        }
    }

    /// Something for a zone that has nothing in flight, and its command.
    fn choose(&mut self, memory: IoBuf) -> Option<(Kind, Box<Command>)> {
        let g = self.disk.geometry().clone();
        let (r, unit) = (&mut self.random, self.disk.limits().logical_block_sectors);
        if r.one_in(9) {
            return Some((Kind::Flush, Command::without_data(Op::Flush, Sector(0), 0)));
        }
        let zone = r.below(u64::from(g.nr_zones().min(6))) as u32;
        let (start, len) = (g.zone_start(ZoneNo(zone)), g.zone_len_sectors(ZoneNo(zone)));
        let z = &mut self.zones[zone as usize];
        if z.busy {
            return None;
        }
        let manage = |op| Command::without_data(op, start, len);
        let (fua, preflush) = (r.one_in(6), r.one_in(10));
        let flags =
            Flags((u8::from(fua) * Flags::FUA.0) | (u8::from(preflush) * Flags::PREFLUSH.0));
        if g.is_conventional(ZoneNo(zone)) {
            let at = r.below(u64::from(len / unit)) as u32 * unit;
            let n = (1 + r.below(6) as u32).min((len - at) / unit) * unit;
            let first = self.next_number;
            self.next_number += n;
            (0..n).for_each(|i| memory.copy_from(i * 512, &stamp(first + i)));
            let bio =
                Bio::with_buf(Op::Write, start.plus(u64::from(at)), n, memory.slice(0, n * 512));
            let mut c = Command::of(bio);
            c.flags = flags;
            z.busy = true;
            return Some((Kind::Conventional { zone, at, len: n, number: first, fua }, c));
        }
        let capacity = g.capacity_of(ZoneNo(zone));
        let generation = z.generation;
        match r.below(12) {
            0 => {
                z.busy = true;
                Some((Kind::Reset { zone, generation: generation + 1 }, manage(Op::ZoneReset)))
            }
            1 if r.one_in(3) => {
                z.busy = true;
                Some((Kind::Finish { zone, generation, wp: z.wp }, manage(Op::ZoneFinish)))
            }
            2 => {
                // Neither is remembered after a restart.
                let op = if r.one_in(2) { Op::ZoneOpen } else { Op::ZoneClose };
                let mut queue = self.disk.open_queue(1, Waker::noop().clone()).unwrap();
                run(&mut *queue, Commands::from([manage(op)]));
                None
            }
            _ if z.full => None,
            _ => {
                let most = (capacity - z.wp) / unit;
                let len = (1 + r.below(8) as u32).min(most) * unit;
                let at = z.wp;
                let zeroes = r.one_in(12);
                let first = self.next_number;
                self.next_number += len;
                let numbers = self.numbers.entry((zone, generation)).or_default();
                numbers.truncate(at as usize);
                numbers.extend((0..len).map(|i| if zeroes { 0 } else { first + i }));
                let sector = start.plus(u64::from(at));
                let mut c = if zeroes {
                    Command::without_data(Op::WriteZeroes, sector, len)
                } else {
                    (0..len).for_each(|i| memory.copy_from(i * 512, &stamp(first + i)));
                    Command::of(Bio::with_buf(Op::Write, sector, len, memory.slice(0, len * 512)))
                };
                c.flags = flags;
                z.busy = true;
                Some((Kind::Write { zone, generation, at, len, fua, preflush }, c))
            }
        }
    }

    /// Random work, several commands at a time.
    fn work(&mut self, steps: usize, depth: usize, memory: &[IoBuf]) {
        let mut queue = self.disk.open_queue(depth as u16, Waker::noop().clone()).unwrap();
        let mut free: Vec<usize> = (0..depth).collect();
        let mut begun = 0;
        while begun < steps || free.len() < depth {
            if begun < steps
                && let Some(slot) = free.pop()
            {
                begun += 1;
                match self.choose(memory[slot]) {
                    None => free.push(slot),
                    Some((kind, mut c)) => {
                        let index = self.asked.len() as u64;
                        if c.bios.is_empty() {
                            c.bios.push(Bio::new(c.op, c.sector, c.len_sectors));
                        }
                        c.bios[0].token = index << 8 | slot as u64;
                        self.asked.push(Asked { kind, start: self.storage.moments(), ack: NEVER });
                        let mut list = Commands::from([c]);
                        queue.submit(Nanos(0), &mut list);
                        assert!(list.is_empty());
                    }
                }
            }
            let mut done = Commands::new();
            queue.poll(Nanos(0), &mut done);
            let now = self.storage.moments();
            for c in done {
                let token = c.bios[0].token;
                free.push((token & 0xff) as usize);
                self.acknowledge((token >> 8) as usize, c.status, now);
            }
        }
    }

    fn acknowledge(&mut self, index: usize, status: Status, now: usize) {
        let a = &mut self.asked[index];
        if status == Status::OpenLimit {
            // Nothing happened.
            if let Kind::Write { zone, .. } | Kind::Finish { zone, .. } = a.kind {
                self.zones[zone as usize].busy = false;
            }
            a.kind = Kind::Flush;
            return;
        }
        assert_eq!(status, Status::Ok, "{a:?}");
        a.ack = now;
        match a.kind {
            Kind::Flush => {}
            Kind::Write { zone, at, len, .. } => {
                let capacity = self.disk.geometry().capacity_of(ZoneNo(zone));
                let z = &mut self.zones[zone as usize];
                (z.wp, z.busy, z.full) = (at + len, false, at + len == capacity);
            }
            Kind::Conventional { zone, .. } => self.zones[zone as usize].busy = false,
            Kind::Reset { zone, generation } => {
                let z = &mut self.zones[zone as usize];
                (z.wp, z.generation, z.full, z.busy) = (0, generation, false, false);
            }
            Kind::Finish { zone, .. } => {
                let z = &mut self.zones[zone as usize];
                (z.full, z.busy) = (true, false);
            }
        }
    }

    /// Checks what is there after a cut, or a kill, at `moment`; returns the zones as they are then.
    fn check(
        &self,
        disk: &FileDisk,
        moment: usize,
        kill: bool,
        memory: IoBuf,
    ) -> Result<Vec<Zone>, String> {
        let g = self.disk.geometry();
        let mut queue = disk.open_queue(4, Waker::noop().clone()).unwrap();
        let mut report = Command::without_data(Op::ReportZones, Sector(0), 0);
        report.report_max = u32::MAX;
        let report = run(&mut *queue, Commands::from([report])).pop_front().unwrap().report;
        let mut zones = Vec::new();
        let mut shown = Vec::new();
        for (n, info) in (0..).zip(&report) {
            let len = g.zone_len_sectors(ZoneNo(n));
            let c =
                Command::of(Bio::with_buf(Op::Read, info.start, len, memory.slice(0, len * 512)));
            let c = run(&mut *queue, Commands::from([c])).pop_front().unwrap();
            if !c.status.is_ok() {
                return Err(format!("zone {n} cannot be read: {}", c.status));
            }
            let mut sectors = Vec::new();
            for i in 0..len {
                let mut s = [0; 512];
                memory.copy_to(i * 512, &mut s);
                let what = number(&s).ok_or(format!("zone {n}: sector {i} is torn"))?;
                sectors.push(what);
            }
            shown.push(sectors);
            zones.push(Zone::default());
        }
        // A write with a preflush that is there brings all that was acknowledged before it.
        let mut flushes: Vec<usize> = Vec::new();
        for a in self.asked.iter().filter(|a| a.start <= moment) {
            match &a.kind {
                Kind::Flush if a.ack <= moment => flushes.push(a.start),
                Kind::Write { preflush: true, zone, at, len, generation, .. } => {
                    let there = &shown[*zone as usize][*at as usize..(at + len) as usize];
                    let want = &self.numbers[&(*zone, *generation)];
                    let all = want.len() >= (at + len) as usize
                        && want[*at as usize..(at + len) as usize] == *there
                        && there.iter().any(|n| *n != 0);
                    if a.ack <= moment || all {
                        flushes.push(a.start);
                    }
                }
                _ => {}
            }
        }
        let durable = |a: &Asked, fua: bool| {
            a.ack <= moment && (kill || fua || flushes.iter().any(|f| *f >= a.ack))
        };
        for (n, info) in (0..).zip(&report) {
            let sectors = &shown[n as usize];
            if g.is_conventional(ZoneNo(n)) {
                self.check_conventional(n, moment, sectors, &durable)?;
            } else {
                zones[n as usize] = self.check_zone(n, moment, info, sectors, &durable)?;
            }
        }
        self.check_counts(disk, moment, &durable)?;
        Ok(zones)
    }

    fn check_counts(
        &self,
        disk: &FileDisk,
        moment: usize,
        durable: &dyn Fn(&Asked, bool) -> bool,
    ) -> Result<(), String> {
        for n in 0..self.zones.len() as u32 {
            let (mut least, mut most) = (0, 0);
            for a in &self.asked {
                if let Kind::Write { zone, fua, .. } | Kind::Conventional { zone, fua, .. } = a.kind
                    && zone == n
                {
                    least += u64::from(durable(a, fua));
                    most += u64::from(a.start <= moment);
                }
            }
            let count = disk.write_count(ZoneNo(n)) - self.counts[n as usize];
            if !(least..=most).contains(&count) {
                return Err(format!("zone {n}: {count} writes, not {least} to {most}"));
            }
        }
        Ok(())
    }

    fn check_conventional(
        &self,
        n: u32,
        moment: usize,
        sectors: &[u32],
        durable: &dyn Fn(&Asked, bool) -> bool,
    ) -> Result<(), String> {
        for (i, got) in (0..).zip(sectors) {
            let mut allowed = vec![self.first.get(&(n, i)).copied().unwrap_or(0)];
            for a in self.asked.iter().filter(|a| a.start <= moment) {
                if let Kind::Conventional { zone, at, len, number, fua } = a.kind
                    && zone == n
                    && (at..at + len).contains(&i)
                {
                    if durable(a, fua) {
                        allowed.clear();
                    }
                    allowed.push(number + i - at);
                }
            }
            if !allowed.contains(got) {
                return Err(format!("zone {n}: sector {i} is {got}, not one of {allowed:?}"));
            }
        }
        Ok(())
    }

    fn check_zone(
        &self,
        n: u32,
        moment: usize,
        info: &ZoneInfo,
        sectors: &[u32],
        durable: &dyn Fn(&Asked, bool) -> bool,
    ) -> Result<Zone, String> {
        let z = &self.zones[n as usize];
        let capacity = self.disk.geometry().capacity_of(ZoneNo(n));
        // Generations that it may be in.
        let mut generations = vec![z.base_generation];
        for a in self.asked.iter().filter(|a| a.start <= moment) {
            if let Kind::Reset { zone, generation } = a.kind
                && zone == n
            {
                if a.ack <= moment {
                    generations.clear();
                }
                generations.push(generation);
            }
        }
        let mut why = String::new();
        for &generation in &generations {
            let base = generation == z.base_generation;
            let (mut least, mut most) = if base { (z.base, z.base) } else { (0, 0) };
            let (mut must_full, mut may_full) = (base && z.base_full, base && z.base_full);
            for a in self.asked.iter().filter(|a| a.start <= moment) {
                match a.kind {
                    Kind::Write { zone, generation: of, at, len, fua, .. }
                        if (zone, of) == (n, generation) =>
                    {
                        most = most.max(at + len);
                        if durable(a, fua) {
                            least = least.max(at + len);
                        }
                    }
                    Kind::Finish { zone, generation: of, wp } if (zone, of) == (n, generation) => {
                        may_full = true;
                        if a.ack <= moment {
                            must_full = true;
                            least = least.max(wp);
                        }
                    }
                    _ => {}
                }
            }
            let none = Vec::new();
            let numbers = self.numbers.get(&(n, generation)).unwrap_or(&none);
            // How much of what was written is there.
            let full = info.cond == Condition::Full;
            let wp = match full {
                true => {
                    let zeroes = sectors.iter().rev().take_while(|s| **s == 0).count();
                    ((sectors.len() - zeroes) as u32).max(least).min(capacity)
                }
                false => (info.wp.0 - info.start.0) as u32,
            };
            let said = match info.cond {
                Condition::Empty => wp == 0 && !must_full && least == 0,
                Condition::Closed => wp > 0 && wp < capacity && !must_full,
                Condition::Full => may_full || most == capacity,
                _ => false,
            };
            let data = wp as usize <= numbers.len()
                && sectors[..wp as usize] == numbers[..wp as usize]
                && sectors[wp as usize..].iter().all(|s| *s == 0);
            if said && data && wp >= least && wp <= most {
                let wp = if full && most == capacity && !may_full { capacity } else { wp };
                return Ok(Zone {
                    generation,
                    wp,
                    base: wp,
                    full,
                    base_full: full,
                    base_generation: generation,
                    busy: false,
                });
            }
            let _ = write!(
                why,
                "generation {generation}: {} with {wp} sectors, {least} to {most} expected, full {must_full} {may_full}, data {data}; ",
                info.cond
            );
        }
        Err(format!("zone {n}: {why}"))
    }
}

/// One seed: work, cuts and kills at random moments, work again on what one of them left. Returns cuts and kills.
fn seed(seed: u64, threads: bool) -> (u64, u64) {
    thread_local!(static MEMORY: Vec<IoBuf> = (0..9).map(|_| IoBuf::leaked(160 << 10)).collect());
    let memory = MEMORY.with(Clone::clone);
    let mut world = World::new(seed, threads);
    let (mut cuts, mut kills) = (0, 0);
    for round in 0..3 {
        let steps = 20 + world.random.below(60) as usize;
        world.work(steps, if threads { 6 } else { 1 }, &memory);
        let moments = world.storage.moments();
        let mut next = None;
        for i in 0..6 {
            let moment = world.random.below(moments as u64 + 1) as usize;
            let kill = i == 5;
            // All, nothing, and everything in between.
            let odds = world.random.below(5);
            let mut coin = Random(world.random.next());
            let after = match kill {
                true => world.storage.after_kill(moment),
                false => world.storage.after_cut(moment, &mut || coin.left(odds)),
            };
            let copy = after.after_kill(0);
            // Also cut while the disk recovers: it must not make things worse.
            drop(World::open(after.clone(), false));
            let later = after
                .after_cut(world.random.below(after.moments() as u64 + 1) as usize, &mut || {
                    coin.left(2)
                });
            for (storage, what) in [(copy, "first"), (after, "second"), (later, "third")] {
                if what == "third" && kill {
                    continue;
                }
                let disk = World::open(storage.clone(), false);
                storage.settle();
                let zones = match world.check(&disk, moment, kill, memory[8]) {
                    Ok(zones) => zones,
                    Err(e) => panic!(
                        "after {} at {moment} of {moments} in round {round}, {what} opening: {e}\n\
                         ZONEPLUG_CUT_SEED={seed} cargo test -p zoneplug-host --test file_cuts\n{:#?}",
                        if kill { "a kill" } else { "a power cut" },
                        world.asked
                    ),
                };
                if what == "third" {
                    next = Some((storage, zones, disk));
                }
            }
            if kill { kills += 1 } else { cuts += 1 }
        }
        let Some((storage, zones, disk)) = next else { break };
        drop(disk);
        let disk = World::open(storage.clone(), threads);
        storage.settle();
        // What conventional zones hold now is what they began with.
        let mut queue = disk.open_queue(1, Waker::noop().clone()).unwrap();
        world.first.clear();
        for n in (0..zones.len() as u32).filter(|n| disk.geometry().is_conventional(ZoneNo(*n))) {
            let (start, len) = (
                disk.geometry().zone_start(ZoneNo(n)),
                disk.geometry().zone_len_sectors(ZoneNo(n)),
            );
            let c = Command::of(Bio::with_buf(Op::Read, start, len, memory[8].slice(0, len * 512)));
            run(&mut *queue, Commands::from([c]));
            for i in 0..len {
                let mut s = [0; 512];
                memory[8].copy_to(i * 512, &mut s);
                world.first.insert((n, i), number(&s).unwrap());
            }
        }
        drop(queue);
        world.counts = (0..zones.len() as u32).map(|n| disk.write_count(ZoneNo(n))).collect();
        world.disk = disk;
        world.storage = storage;
        world.zones = zones;
        world.asked.clear();
    }
    (cuts, kills)
}

fn wanted() -> u64 {
    std::env::var("ZONEPLUG_CUTS").ok().and_then(|n| n.parse().ok()).unwrap_or(400)
}

fn all(threads: bool, first: u64, wanted: u64) {
    if let Ok(n) = std::env::var("ZONEPLUG_CUT_SEED") {
        seed(n.parse().unwrap(), threads);
        return;
    }
    let (mut cuts, mut kills, mut n) = (0, 0, first);
    while cuts < wanted {
        let (c, k) = seed(n, threads);
        (cuts, kills, n) = (cuts + c, kills + k, n + 1);
    }
    println!("{cuts} power cuts and {kills} kills replayed in {} seeds: no violation", n - first);
}

#[test]
fn power_cuts_lose_what_they_may_and_nothing_else() {
    all(false, 1, wanted());
}

/// Commits and writes at the same time; the seed fixes the work, not the interleaving.
#[test]
fn power_cuts_between_threads() {
    all(true, 1_000_001, wanted() / 4);
}
