//! Random reads with a fixed number outstanding.

use crate::time::io::{Client, Finished, Io};
use zoneplug_core::zone::Geometry;
use zoneplug_core::{Nanos, Random, ZoneNo};

/// A client that reads random places of the whole disk.
#[derive(Debug, Clone)]
pub struct RandomReader {
    /// Number of BIOs outstanding.
    pub depth: u32,
    /// Length of each BIO in sectors.
    pub bs_sectors: u32,
    /// Time from a completion to the next submission.
    pub reap: Nanos,
    random: Random,
}

impl RandomReader {
    /// A reader with `depth` reads of `bs_bytes` outstanding and 20 us from a completion to the
    /// next read.
    pub fn new(depth: u32, bs_bytes: u32, seed: u64) -> RandomReader {
        RandomReader {
            depth,
            bs_sectors: bs_bytes >> 9,
            reap: Nanos(20_000),
            random: Random::new(seed ^ 0x5ead),
        }
    }

    fn send(&mut self, io: &mut Io) {
        let g = io.geometry();
        let zone = ZoneNo(self.random.below(g.nr_zones()));
        let places = (g.capacity_of(zone) / self.bs_sectors).max(1);
        let offset = self.random.below(places) * self.bs_sectors;
        let sector = g.zone_start(zone).plus(u64::from(offset));
        io.read(sector, self.bs_sectors, 0);
    }
}

impl Client for RandomReader {
    fn prepare(&mut self, _: &Geometry) -> Vec<(ZoneNo, u32)> {
        Vec::new()
    }

    fn start(&mut self, io: &mut Io) {
        for _ in 0..self.depth {
            self.send(io);
        }
    }

    fn finished(&mut self, io: &mut Io, _: Finished) {
        io.at(io.completed_at().plus(self.reap), 0);
    }

    fn timer(&mut self, io: &mut Io, _: u32) {
        self.send(io);
    }
}
