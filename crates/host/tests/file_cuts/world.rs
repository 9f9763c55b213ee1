//! Random work on a durable disk in memory, and what its client knows of it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::Waker;
use zoneplug_buf::Parts;
use zoneplug_core::{
    Bio, Command, Commands, Device, Flags, IoBuf, Nanos, Op, Queue, Sector, Status, ZoneNo,
};
use zoneplug_host::file::testing::{CutStorage, Left};
use zoneplug_host::file::{Access, CreateOptions, FileDisk};

/// Random numbers by a seed, and what a cut draws with them.
pub(crate) struct Random(pub(crate) zoneplug_core::Random);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0.draw()
    }

    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    /// A seed for pages that are lost; in one of `n` cases 0: all.
    pub(crate) fn seed(&mut self, n: u64) -> u64 {
        if self.one_in(n) { 0 } else { self.next() }
    }

    pub(crate) fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// What is left of a sector: something in `odds` of 4 cases, and then not always all.
    pub(crate) fn left(&mut self, odds: u64) -> Left {
        match self.below(4) {
            n if n >= odds => Left::Nothing,
            _ if odds < 4 && self.one_in(8) => Left::Torn,
            _ => Left::All,
        }
    }
}

/// What was asked for. Sectors, and the generation that the zone had or gets.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Kind {
    Write {
        zone: u32,
        generation: u32,
        at: u32,
        len: u32,
        fua: bool,
        preflush: bool,
    },
    /// Number 0: a discard, after which it reads as zeroes.
    Conventional {
        zone: u32,
        at: u32,
        len: u32,
        number: u32,
        fua: bool,
    },
    Reset {
        zone: u32,
        generation: u32,
    },
    /// The next `zones` of the list, resets all, are one command.
    ResetAll {
        zones: usize,
    },
    Finish {
        zone: u32,
        generation: u32,
        wp: u32,
    },
    Flush,
}

/// Something that was asked for, and the events of the storage at which it began and was acknowledged.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) kind: Kind,
    pub(crate) start: usize,
    pub(crate) ack: usize,
}

pub(crate) const NEVER: usize = usize::MAX;

/// A sequential zone as its client knows it.
#[derive(Debug, Clone, Default)]
pub(crate) struct KnownZone {
    pub(crate) generation: u32,
    pub(crate) wp: u32,
    /// What was durable when the world began.
    pub(crate) base: u32,
    pub(crate) full: bool,
    pub(crate) base_full: bool,
    pub(crate) base_generation: u32,
    pub(crate) busy: bool,
}

/// Numbers of sectors: (zone, generation) to the number of each sector, 0 for zeroes.
pub(crate) type Numbers = BTreeMap<(u32, u32), Vec<u32>>;

pub(crate) struct World {
    pub(crate) storage: Arc<CutStorage>,
    pub(crate) disk: Arc<FileDisk>,
    pub(crate) zones: Vec<KnownZone>,
    pub(crate) numbers: Numbers,
    /// Of conventional zones: what each sector may be when the world begins.
    pub(crate) first: BTreeMap<(u32, u32), u32>,
    /// Writes of each zone before the world began.
    pub(crate) counts: Vec<u64>,
    pub(crate) asked: Vec<Asked>,
    pub(crate) random: Random,
    pub(crate) next_number: u32,
    /// There is no boot id: every write is durable when it is acknowledged.
    pub(crate) uncached: bool,
    /// A command has failed because a sync did: the disk refuses the rest.
    pub(crate) failed: bool,
}

pub(crate) fn stamp(number: u32) -> [u8; 512] {
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
pub(crate) fn number(sector: &[u8; 512]) -> Option<u32> {
    let n = u32::from_le_bytes([sector[0], sector[1], sector[2], sector[3]]);
    (stamp(n) == *sector).then_some(n)
}

pub(crate) fn options(r: &mut Random, limited: bool) -> CreateOptions {
    let unit = if r.one_in(2) { 512 } else { 4096 };
    let zone = (8 + r.below(24)) * unit;
    let capacity = if r.one_in(2) { zone } else { zone - r.below(4) * unit };
    let mut max_open = r.below(4) as u32;
    let mut max_active = if r.one_in(2) { 0 } else { max_open + 1 + r.below(2) as u32 };
    if limited {
        max_active = 1 + r.below(3) as u32;
        max_open = r.below(u64::from(max_active) + 1) as u32;
    }
    CreateOptions {
        zones: Some(3 + r.below(18)),
        zone_size: Some(zone),
        zone_capacity: Some(capacity),
        conv: r.below(2) as u32,
        max_open,
        max_active,
        lba_size: Some(unit),
        zone_append_max: r.one_in(2).then_some(8 * unit),
        preallocate: r.one_in(8),
        ..CreateOptions::default()
    }
}

/// Sends commands and waits until all are back.
pub(crate) fn run(queue: &mut dyn Queue, mut list: Commands) -> Commands {
    let n = list.len();
    let mut done = Commands::new();
    while done.len() < n {
        queue.submit(Nanos(0), &mut list);
        queue.poll(Nanos(0), &mut done);
        std::thread::yield_now();
    }
    done
}

/// Reads into the first bytes of `memory`.
pub(crate) fn read(queue: &mut dyn Queue, memory: &mut IoBuf, start: Sector, len: u32) -> Status {
    let mut parts = Parts::new(std::mem::take(memory));
    let c = Command::of(Bio::with_buf(Op::Read, start, len, parts.take_front(len * 512)));
    let mut c = run(queue, Commands::from([c])).pop_front().unwrap();
    parts.put_back(c.bios[0].take_buf()).unwrap();
    *memory = parts.join().unwrap();
    c.status
}

impl World {
    pub(crate) fn open(storage: Arc<CutStorage>, threads: bool) -> Arc<FileDisk> {
        let open = || match threads {
            true => storage.open_with_threads(),
            false => storage.open(Access::ReadWrite),
        };
        // The first may be the one that hears that writing back has failed.
        open()
            .or_else(
                |e| if e.to_string().contains("cannot make durable") { open() } else { Err(e) },
            )
            .unwrap()
    }

    pub(crate) fn new(seed: u64, threads: bool, limited: bool) -> World {
        let mut random = Random(zoneplug_core::Random::new(seed));
        let storage = CutStorage::create(&options(&mut random, limited)).unwrap();
        let uncached = random.one_in(8);
        if uncached {
            storage.without_boot_id();
        }
        let disk = World::open(storage.clone(), threads);
        storage.make_durable();
        let zones = vec![KnownZone::default(); disk.geometry().nr_zones() as usize];
        World {
            storage,
            numbers: Numbers::new(),
            first: BTreeMap::new(),
            counts: vec![0; disk.geometry().nr_zones() as usize],
            asked: Vec::new(),
            random,
            next_number: 1,
            uncached,
            failed: false,
            zones,
            disk,
        }
    }

    /// Something for a zone that has nothing in flight, and its command.
    pub(crate) fn choose(&mut self, memory: &mut Parts) -> Option<(Kind, Box<Command>)> {
        let g = *self.disk.geometry();
        let (r, unit) = (&mut self.random, self.disk.limits().logical_block_sectors);
        if r.one_in(9) {
            return Some((Kind::Flush, Command::without_data(Op::Flush, Sector(0), 0)));
        }
        let idle = !self.zones.iter().any(|z| z.busy);
        if idle && r.one_in(40) {
            return Some((
                Kind::ResetAll { zones: 0 },
                Command::without_data(Op::ZoneResetAll, Sector(0), 0),
            ));
        }
        let zone = r.below(u64::from(g.nr_zones().min(6))) as u32;
        // Some in another sector of the table.
        let zone = if zone >= 3 && g.nr_zones() >= 18 { zone + 12 } else { zone };
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
            if r.one_in(8) {
                z.busy = true;
                let c = Command::without_data(Op::Discard, start.plus(u64::from(at)), n);
                return Some((Kind::Conventional { zone, at, len: n, number: 0, fua: false }, c));
            }
            let fua = fua || self.uncached;
            let first = self.next_number;
            self.next_number += n;
            let mut buf = memory.take_front(n * 512);
            (0..n).for_each(|i| buf.copy_from(i * 512, &stamp(first + i)));
            let bio = Bio::with_buf(Op::Write, start.plus(u64::from(at)), n, buf);
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
                let append = self.disk.limits().zone_append_max_sectors > 0 && r.one_in(3);
                let fua = fua || self.uncached;
                let first = self.next_number;
                self.next_number += len;
                let numbers = self.numbers.entry((zone, generation)).or_default();
                numbers.truncate(at as usize);
                numbers.extend((0..len).map(|i| if zeroes { 0 } else { first + i }));
                let sector = start.plus(u64::from(at));
                let mut c = if zeroes {
                    Command::without_data(Op::WriteZeroes, sector, len)
                } else {
                    let mut buf = memory.take_front(len * 512);
                    (0..len).for_each(|i| buf.copy_from(i * 512, &stamp(first + i)));
                    let (op, sector) =
                        if append { (Op::ZoneAppend, start) } else { (Op::Write, sector) };
                    Command::of(Bio::with_buf(op, sector, len, buf))
                };
                c.flags = flags;
                z.busy = true;
                Some((Kind::Write { zone, generation, at, len, fua, preflush }, c))
            }
        }
    }

    /// Notes what is asked for.
    fn ask(&mut self, kind: Kind) {
        let (start, ack) = (self.storage.moments(), NEVER);
        if !matches!(kind, Kind::ResetAll { .. }) {
            return self.asked.push(Asked { kind, start, ack });
        }
        let at = self.asked.len();
        self.asked.push(Asked { kind, start, ack });
        let g = self.disk.geometry();
        for (zone, z) in (0..).zip(&mut self.zones).filter(|(n, _)| !g.is_conventional(ZoneNo(*n)))
        {
            z.busy = true;
            let kind = Kind::Reset { zone, generation: z.generation + 1 };
            self.asked.push(Asked { kind, start, ack });
        }
        self.asked[at].kind = Kind::ResetAll { zones: self.asked.len() - at - 1 };
    }

    /// What the client that wrote sees, after a failure too: all that it was told of, in zones of which nothing is in
    /// flight or unknown, and in others what was there before.
    pub(crate) fn check_client_view(&self, memory: &mut IoBuf) {
        let g = self.disk.geometry();
        let mut queue = self.disk.open_queue(1, Waker::noop().clone()).unwrap();
        for (n, z) in (0..).zip(&self.zones).filter(|(n, _)| !g.is_conventional(ZoneNo(*n))) {
            let (start, len) = (g.zone_start(ZoneNo(n)), g.zone_len_sectors(ZoneNo(n)));
            assert!(read(&mut *queue, memory, start, len).is_ok());
            let none = Vec::new();
            let want = self.numbers.get(&(n, z.generation)).unwrap_or(&none);
            for i in 0..z.wp.min(want.len() as u32) {
                let mut s = [0; 512];
                memory.copy_to(i * 512, &mut s);
                assert_eq!(number(&s), Some(want[i as usize]), "zone {n}: sector {i}");
            }
        }
    }

    /// Random work, several commands at a time.
    pub(crate) fn work(&mut self, steps: usize, depth: usize, memory: &mut [IoBuf]) {
        let mut queue = self.disk.open_queue(depth as u16, Waker::noop().clone()).unwrap();
        let mut free: Vec<usize> = (0..depth).collect();
        let mut lent: Vec<Option<Parts>> = (0..depth).map(|_| None).collect();
        let mut begun = 0;
        while begun < steps && !self.failed || free.len() < depth {
            if begun < steps
                && !self.failed
                && let Some(slot) = free.pop()
            {
                begun += 1;
                let mut parts = Parts::new(std::mem::take(&mut memory[slot]));
                match self.choose(&mut parts) {
                    None => {
                        memory[slot] = parts.join().unwrap();
                        free.push(slot);
                    }
                    Some((kind, mut c)) => {
                        lent[slot] = Some(parts);
                        let index = self.asked.len() as u64;
                        if c.bios.is_empty() {
                            c.bios.push(Bio::new(c.op, c.sector, c.len_sectors));
                        }
                        c.bios[0].set_token(index << 8 | slot as u64);
                        self.ask(kind);
                        let mut list = Commands::from([c]);
                        queue.submit(Nanos(0), &mut list);
                        assert!(list.is_empty());
                    }
                }
            }
            let mut done = Commands::new();
            queue.poll(Nanos(0), &mut done);
            let now = self.storage.moments();
            for mut c in done {
                let token = c.bios[0].token();
                let slot = (token & 0xff) as usize;
                let mut parts = lent[slot].take().unwrap();
                if !c.bios[0].data().is_empty() {
                    parts.put_back(c.bios[0].take_buf()).unwrap();
                }
                memory[slot] = parts.join().unwrap();
                free.push(slot);
                if let (Op::ZoneAppend, Kind::Write { zone, at, .. }, Status::Ok) =
                    (c.op, &self.asked[(token >> 8) as usize].kind, c.status)
                {
                    let start = self.disk.geometry().zone_start(ZoneNo(*zone));
                    assert_eq!(c.sector, start.plus(u64::from(*at)), "where an append went");
                }
                self.acknowledge((token >> 8) as usize, c.status, now);
            }
        }
    }

    pub(crate) fn acknowledge(&mut self, index: usize, status: Status, now: usize) {
        let a = &mut self.asked[index];
        if matches!(status, Status::OpenLimit | Status::ActiveLimit) {
            // Nothing happened.
            if let Kind::Write { zone, .. } | Kind::Finish { zone, .. } = a.kind {
                self.zones[zone as usize].busy = false;
            }
            a.kind = Kind::Flush;
            return;
        }
        if status != Status::Ok && self.storage.first_failure().is_some() {
            // It may have happened. What was there before still is, which `look` sees.
            self.failed = true;
            return;
        }
        assert_eq!(status, Status::Ok, "{a:?}");
        a.ack = now;
        match a.kind {
            Kind::Flush => {}
            Kind::ResetAll { zones } => {
                (1..=zones).for_each(|i| self.acknowledge(index + i, status, now));
            }
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
}
