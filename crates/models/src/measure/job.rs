//! A job of a workload in virtual time. Keeps its depth in flight at the places that [`Offsets`]
//! gives, like a client of a benchmark in real time, and can log its BIOs.

use crate::time::{Client, Finished, HostTimes, Io};
use crate::work::Offsets;
use zoneplug_core::zone::Geometry;
use zoneplug_core::{Nanos, Op, Sector, Status, ZoneNo};

/// Receives a line for each event of a BIO.
pub trait Log {
    /// Job number `job` sent a BIO (`Q`), or its BIO completed (`C`), at a virtual time.
    fn line(&self, at: Nanos, job: u32, action: char, op: Op, sector: Sector, sectors: u32);
}

/// A job.
pub(super) struct Job<'a> {
    number: u32,
    offsets: Offsets,
    depth: u32,
    times: HostTimes,
    /// When the job's processor is free again.
    free: Nanos,
    in_flight: u32,
    /// Whether all zones are used up; the job then resets them and starts over.
    over: bool,
    resets: Vec<(Sector, u32)>,
    log: Option<&'a dyn Log>,
}

impl<'a> Job<'a> {
    /// A job that keeps `depth` BIOs in flight.
    pub(super) fn new(
        number: u32,
        offsets: Offsets,
        depth: u32,
        times: HostTimes,
        log: Option<&'a dyn Log>,
    ) -> Job<'a> {
        Job {
            number,
            offsets,
            depth,
            times,
            free: Nanos(0),
            in_flight: 0,
            over: false,
            resets: Vec::new(),
            log,
        }
    }

    fn submit(&mut self, io: &mut Io, op: Op, sector: Sector, sectors: u32) {
        self.in_flight += 1;
        if let Some(log) = self.log {
            log.line(io.now(), self.number, 'Q', op, sector, sectors);
        }
        io.submit(op, sector, sectors, 0);
    }

    /// Sends a BIO if fewer than `depth` are in flight.
    fn send(&mut self, io: &mut Io) {
        if self.in_flight >= self.depth {
            return;
        }
        if !self.over {
            if let Some((op, sector, sectors)) = self.offsets.next() {
                return self.submit(io, op, sector, sectors);
            }
            self.over = true;
        }
        self.start_over(io);
    }

    /// Resets the written zones once nothing else is in flight, then begins again.
    fn start_over(&mut self, io: &mut Io) {
        if self.in_flight > 0 {
            return;
        }
        if self.resets.is_empty() {
            self.resets = self.offsets.used().collect();
        }
        while self.in_flight < self.depth
            && let Some((start, sectors)) = self.resets.pop()
        {
            self.submit(io, Op::ZoneReset, start, sectors);
        }
    }

    fn back(&mut self, io: &mut Io, bio: Finished, status: Status) {
        self.in_flight -= 1;
        if let Some(log) = self.log {
            log.line(io.completed_at(), self.number, 'C', bio.op, bio.sector, bio.sectors);
        }
        if !status.is_ok() && bio.op.is_write() {
            self.offsets.refused(bio.sector);
        }
        if bio.op == Op::ZoneReset && self.resets.is_empty() && self.in_flight == 0 {
            self.over = false;
            self.offsets.rewind();
            for _ in 0..self.depth {
                self.send(io);
            }
        } else if self.over {
            self.start_over(io);
        } else {
            self.free = self.free.max(io.completed_at().plus(self.times.next)).plus(self.times.cpu);
            io.at(self.free, 0);
        }
    }
}

impl Client for Job<'_> {
    fn prepare(&mut self, _: &Geometry) -> Vec<(ZoneNo, u32)> {
        Vec::new()
    }

    fn start(&mut self, io: &mut Io) {
        for _ in 0..self.depth {
            self.send(io);
        }
    }

    fn finished(&mut self, io: &mut Io, bio: Finished) {
        self.back(io, bio, Status::Ok);
    }

    fn failed(&mut self, io: &mut Io, bio: Finished, status: Status) -> bool {
        self.back(io, bio, status);
        true
    }

    fn timer(&mut self, io: &mut Io, _: u32) {
        self.send(io);
    }
}
