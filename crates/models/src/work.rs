//! Workloads: what a client does, and where its next BIO goes.

use serde::Serialize;
use std::fmt;
use zoneplug_core::zone::{Geometry, Limits};
use zoneplug_core::{Op, Sector, ZoneNo};

/// The kind of a workload, in fio's words.
///
/// ```
/// use zoneplug_models::work::Rw;
/// assert_eq!(Rw::from_name("randwrite"), Some(Rw::Randwrite));
/// assert!(Rw::Randread.is_read() && Rw::from_name("trim").is_none());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Rw {
    /// Sequential writes, zone after zone.
    Write,
    /// Writes at the write pointers of random zones.
    Randwrite,
    /// Zone appends, zone after zone.
    Append,
    /// Sequential reads.
    Read,
    /// Random reads.
    Randread,
}

impl Rw {
    /// All kinds.
    pub const ALL: [Rw; 5] = [Rw::Write, Rw::Randwrite, Rw::Append, Rw::Read, Rw::Randread];

    /// Its name in fio.
    pub const fn name(self) -> &'static str {
        match self {
            Rw::Write => "write",
            Rw::Randwrite => "randwrite",
            Rw::Append => "append",
            Rw::Read => "read",
            Rw::Randread => "randread",
        }
    }

    /// The workload with this name.
    pub fn from_name(name: &str) -> Option<Rw> {
        Rw::ALL.into_iter().find(|rw| rw.name() == name)
    }

    /// Whether the workload reads.
    pub fn is_read(self) -> bool {
        matches!(self, Rw::Read | Rw::Randread)
    }

    /// Whether its rate is best shown in KIOPS; otherwise in MB/s, as in the published table.
    pub fn is_counted(self) -> bool {
        matches!(self, Rw::Randwrite | Rw::Randread | Rw::Append)
    }
}

impl fmt::Display for Rw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The load of one client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Work {
    /// The kind of workload.
    pub rw: Rw,
    /// Length of a BIO, in sectors of 512 bytes.
    pub block_sectors: u32,
    /// The number of BIOs in flight.
    pub depth: u32,
    /// Most commands at the device.
    pub tags: u16,
}

/// The number of zones that random writes go to at a time, if the disk allows as many.
pub const RANDOM_ZONES: u32 = 64;

/// The number of zones that may be written at a time; 0: any number.
pub fn max_open(l: &Limits) -> u32 {
    match (l.max_open_zones, l.max_active_zones) {
        (0, n) | (n, 0) => n,
        (open, active) => open.min(active),
    }
}

/// A small random generator (Marsaglia's xorshift64): the load generator must cost less than what
/// it measures.
#[derive(Debug, Clone)]
pub struct Rng(u64);

impl Rng {
    /// A generator that draws the same numbers for the same seed.
    pub fn new(seed: u64) -> Rng {
        Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Returns a number below `n`, where `n` is below 2^32.
    #[inline]
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0 >> 32) * n) >> 32
    }
}

/// The bytes that [`Offsets`] keep of each zone.
#[cfg(feature = "virtual-time")]
pub(crate) const SLOT_BYTES: u64 = size_of::<Slot>() as u64;

#[derive(Debug, Clone, Copy)]
struct Slot {
    start: u64,
    len: u32,
    capacity: u32,
    /// Sectors handed out.
    used: u32,
    /// Whether a write was refused: no more writes go to this zone.
    refused: bool,
}

/// The seed of one of several disks, by its number. The first disk has the given seed, as a disk
/// alone would.
#[cfg(feature = "virtual-time")]
pub(crate) fn seed_of_disk(seed: u64, disk: u32) -> u64 {
    seed + (u64::from(disk) << 32)
}

/// Chooses where one client's BIOs go: its zones, and how much of each is used.
#[derive(Debug)]
pub struct Offsets {
    rw: Rw,
    block: u32,
    zones: Vec<Slot>,
    /// The zone of sequential work; the next unused zone of random writes.
    next: usize,
    /// Zones that random writes go to now.
    open: Vec<usize>,
    max_open: usize,
    rng: Rng,
    /// Blocks in each zone, for reads.
    blocks: u64,
}

impl Offsets {
    /// The share of client `index` of `clients` in the sequential zones of a disk. All clients
    /// together may have `max_open` zones open (0: any number).
    pub fn new(g: &Geometry, work: Work, index: u32, clients: u32, max_open: u32) -> Self {
        Self::seeded(g, work, index, clients, max_open, 1)
    }

    /// The share as in [`Offsets::new`], with random places of another `seed` than 1.
    pub fn seeded(
        g: &Geometry,
        work: Work,
        index: u32,
        clients: u32,
        max_open: u32,
        seed: u64,
    ) -> Self {
        let (n, i, clients) =
            ((g.nr_zones() - g.nr_conventional()) as usize, index as usize, clients as usize);
        let mine = n * i / clients..n * (i + 1) / clients;
        let all = (0..g.nr_zones()).map(ZoneNo).filter(|&z| !g.is_conventional(z));
        let mut zones = Vec::with_capacity(mine.len());
        zones.extend(all.skip(mine.start).take(mine.len()).map(|z| Slot {
            start: g.zone_start(z).0,
            len: g.zone_len_sectors(z),
            capacity: g.capacity_of(z),
            used: 0,
            refused: false,
        }));
        let limit = if max_open == 0 { RANDOM_ZONES } else { RANDOM_ZONES.min(max_open) };
        let max_open = (limit as usize / clients).max(1).min(zones.len());
        // The last zone may be shorter. Reads use as much of each zone as the shortest has.
        let blocks = zones.iter().map(|z| z.capacity / work.block_sectors).min().unwrap_or(0);
        let mut offsets = Offsets {
            rw: work.rw,
            block: work.block_sectors,
            zones,
            next: 0,
            open: Vec::new(),
            max_open,
            // Seeds are far apart, so that no two clients with different seeds draw the same
            // places.
            rng: Rng::new((u64::from(index) + 1) ^ seed.wrapping_sub(1).rotate_left(16)),
            blocks: u64::from(blocks),
        };
        offsets.rewind();
        offsets
    }

    /// The operation of the BIOs.
    pub fn rw(&self) -> Rw {
        self.rw
    }

    /// Whether there is a place for at least one BIO.
    pub fn is_usable(&self) -> bool {
        !self.zones.is_empty() && (!self.rw.is_read() || self.blocks > 0)
    }

    /// Keeps only the first zones, as many as hold `sectors`.
    pub fn limit(&mut self, sectors: u64) {
        let mut sum = 0;
        let n = self.zones.iter().take_while(|z| {
            let more = sum < sectors;
            sum += u64::from(z.capacity);
            more
        });
        let n = n.count();
        self.zones.truncate(n.max(1));
        self.max_open = self.max_open.min(self.zones.len());
        self.rewind();
    }

    /// Keeps this many zones open for random writes, if there are as many.
    pub fn spread_over(&mut self, zones: u32) {
        self.max_open = (zones as usize).clamp(1, self.zones.len().max(1));
        self.rewind();
    }

    /// The capacity of all zones, in sectors.
    pub fn sectors(&self) -> u64 {
        self.zones.iter().map(|z| u64::from(z.capacity)).sum()
    }

    /// Starts over with empty zones.
    pub fn rewind(&mut self) {
        for z in &mut self.zones {
            (z.used, z.refused) = (0, false);
        }
        self.next = 0;
        self.open.clear();
        if self.rw == Rw::Randwrite {
            self.open.extend(0..self.max_open);
            self.next = self.max_open;
        }
    }

    /// The zones used since the last rewind: start and length.
    pub fn used(&self) -> impl Iterator<Item = (Sector, u32)> {
        self.zones.iter().filter(|z| z.used > 0).map(|z| (Sector(z.start), z.len))
    }

    /// Returns the next BIO; `None` when all zones are used up.
    #[inline]
    #[allow(clippy::should_implement_trait)] // unlike an iterator, it starts over
    pub fn next(&mut self) -> Option<(Op, Sector, u32)> {
        match self.rw {
            Rw::Write | Rw::Append => {
                let z = loop {
                    let z = self.zones.get_mut(self.next)?;
                    if z.used < z.capacity && !z.refused {
                        break z;
                    }
                    self.next += 1;
                };
                let len = self.block.min(z.capacity - z.used);
                let at = z.start + u64::from(z.used);
                z.used += len;
                Some(match self.rw {
                    Rw::Append => (Op::ZoneAppend, Sector(z.start), len),
                    _ => (Op::Write, Sector(at), len),
                })
            }
            Rw::Randwrite => loop {
                if self.open.is_empty() {
                    return None;
                }
                let i = self.rng.below(self.open.len() as u64) as usize;
                let z = &mut self.zones[self.open[i]];
                if z.used == z.capacity || z.refused {
                    self.replace(i);
                    continue;
                }
                let len = self.block.min(z.capacity - z.used);
                let at = z.start + u64::from(z.used);
                z.used += len;
                return Some((Op::Write, Sector(at), len));
            },
            Rw::Read => {
                let blocks = self.blocks as u32;
                let z = self.zones.get_mut(self.next)?;
                let at = z.start + u64::from(z.used) * u64::from(self.block);
                z.used += 1;
                if z.used == blocks {
                    z.used = 0;
                    self.next = if self.next + 1 == self.zones.len() { 0 } else { self.next + 1 };
                }
                Some((Op::Read, Sector(at), self.block))
            }
            Rw::Randread => {
                let z = &self.zones[self.rng.below(self.zones.len() as u64) as usize];
                let at = z.start + self.rng.below(self.blocks) * u64::from(self.block);
                Some((Op::Read, Sector(at), self.block))
            }
        }
    }

    #[cold]
    fn replace(&mut self, i: usize) {
        if self.next < self.zones.len() {
            self.open[i] = self.next;
            self.next += 1;
        } else {
            self.open.swap_remove(i);
        }
    }

    /// Notes that a write at `sector` was refused: the device would refuse every further write to
    /// its zone.
    #[cold]
    pub fn refused(&mut self, sector: Sector) {
        let i = self.zones.partition_point(|z| z.start <= sector.0);
        if let Some(z) = i.checked_sub(1).and_then(|i| self.zones.get_mut(i)) {
            z.refused = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work(rw: Rw, block_sectors: u32) -> Work {
        Work { rw, block_sectors, depth: 4, tags: 4 }
    }

    fn geometry() -> Geometry {
        Geometry::new(6, 100, 80).unwrap().with_conventional([ZoneNo(0)]).unwrap()
    }

    #[test]
    fn sequential_work_fills_its_own_zones_and_ends() {
        for rw in [Rw::Write, Rw::Randwrite, Rw::Append] {
            let mut seen = vec![0u32; 6];
            for client in 0..2 {
                let mut o = Offsets::new(&geometry(), work(rw, 24), client, 2, 0);
                while let Some((op, sector, len)) = o.next() {
                    let (z, at) = geometry().zone_of(sector);
                    let wp = &mut seen[z.0 as usize];
                    assert_eq!(at, if op == Op::ZoneAppend { 0 } else { *wp }, "{rw}");
                    *wp += len;
                }
                assert!(o.used().count() >= 2);
            }
            assert_eq!(seen, [0, 80, 80, 80, 80, 80], "{rw}: no conventional zone, all else full");
        }
    }

    #[test]
    fn a_zone_that_refused_a_write_gets_no_more() {
        let mut o = Offsets::new(&geometry(), work(Rw::Write, 8), 0, 1, 0);
        let (_, first, _) = o.next().unwrap();
        o.refused(first);
        let (_, second, _) = o.next().unwrap();
        assert_eq!((first, second), (Sector(100), Sector(200)));
    }

    #[test]
    fn reads_stay_inside_what_can_be_written() {
        for rw in [Rw::Read, Rw::Randread] {
            let mut o = Offsets::new(&geometry(), work(rw, 24), 0, 1, 0);
            o.limit(100);
            assert_eq!(o.sectors(), 160);
            for _ in 0..100 {
                let (_, sector, len) = o.next().unwrap();
                let (z, at) = geometry().zone_of(sector);
                assert!((1..3).contains(&z.0) && at + len <= 80, "{rw} {z} {at}");
            }
        }
    }
}
