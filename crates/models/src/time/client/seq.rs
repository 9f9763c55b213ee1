//! One job that writes zone after zone with a fixed number of BIOs outstanding: fio with `rw=write`.

use crate::time::io::{Client, Finished, Io};
use zoneplug_core::zone::Geometry;
use zoneplug_core::{Nanos, ZoneNo};

/// A sequential writer.
#[derive(Debug, Clone)]
pub struct SeqWriter {
    /// Number of BIOs outstanding.
    pub depth: u32,
    /// Length of each BIO in sectors.
    pub bs_sectors: u32,
    /// The first zone. The outer zones of a disk with a head are faster.
    pub first_zone: u32,
    /// Time from a completion until the client handles it.
    pub reap: Nanos,
    /// Processor time of a submission, after `reap`. Submissions do not overlap, but for the first `depth`, which the
    /// client sends at once and which take no time.
    pub cpu: Nanos,
    /// When the job's processor is free again.
    free_at: Nanos,
    zone: u32,
    offset: u32,
}

impl SeqWriter {
    /// A writer with `depth` writes of `bs_bytes` outstanding, which handles a completion after 10 us.
    pub fn new(depth: u32, bs_bytes: u32) -> SeqWriter {
        SeqWriter {
            depth,
            bs_sectors: bs_bytes >> 9,
            first_zone: 0,
            reap: Nanos(10_000),
            cpu: Nanos(0),
            free_at: Nanos(0),
            zone: 0,
            offset: 0,
        }
    }

    fn send(&mut self, io: &mut Io) {
        let g = io.geometry();
        if self.offset + self.bs_sectors > g.capacity_of(ZoneNo(self.zone)) {
            // A run is shorter than the disk: no zone is reset.
            self.zone = (self.zone + 1) % g.nr_zones();
            self.offset = 0;
        }
        io.write(self.zone, self.offset, self.bs_sectors, 0);
        self.offset += self.bs_sectors;
    }
}

impl Client for SeqWriter {
    fn prepare(&mut self, geometry: &Geometry) -> Vec<(ZoneNo, u32)> {
        self.zone = self.first_zone % geometry.nr_zones();
        Vec::new()
    }

    fn start(&mut self, io: &mut Io) {
        for _ in 0..self.depth {
            self.send(io);
        }
    }

    fn finished(&mut self, io: &mut Io, _: Finished) {
        self.free_at = self.free_at.max(io.completed_at().plus(self.reap)).plus(self.cpu);
        io.at(self.free_at, 0);
    }

    fn timer(&mut self, io: &mut Io, _: u32) {
        self.send(io);
    }
}
