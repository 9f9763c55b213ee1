//! A job of one's own workload in virtual time: it keeps its depth in flight at the places that [`Offsets`] gives, as a
//! client of `load.rs` does in real time, and may write down what it sends.

use super::work::Offsets;
use crate::failure::Failure;
use crate::output::Output;
use std::cell::RefCell;
use std::io::{BufWriter, Write};
use zoneplug_core::zone::Geometry;
use zoneplug_core::{Nanos, Op, Sector, Status, ZoneNo};
use zoneplug_sim::time::{Client, Finished, HostTimes, Io};

/// What jobs sent, in the form of `blkparse`. A write that fails is kept until the end.
pub(super) struct Trace(RefCell<Lines>);

struct Lines {
    file: BufWriter<Output>,
    number: u64,
    start: Option<Nanos>,
    result: std::io::Result<()>,
}

impl Trace {
    /// A trace that is written to a file.
    pub(super) fn new(file: Output) -> Trace {
        let file = BufWriter::new(file);
        Trace(RefCell::new(Lines { file, number: 0, start: None, result: Ok(()) }))
    }

    fn line(&self, at: Nanos, job: u32, action: char, op: Op, sector: Sector, sectors: u32) {
        let mut l = self.0.borrow_mut();
        let start = *l.start.get_or_insert(at);
        let ns = at.0.saturating_sub(start.0);
        l.number += 1;
        let rwbs = match op {
            Op::Read => "R",
            Op::ZoneAppend => "ZA",
            Op::ZoneReset => "ZR",
            _ => "W",
        };
        let (s, ns, n) = (ns / 1_000_000_000, ns % 1_000_000_000, l.number);
        let text = format_args!(
            "  8,0  {job:3} {n:8} {s:5}.{ns:09} {:5}  {action} {rwbs:>3} {} + {sectors} [job{job}]\n",
            1000 + job,
            sector.0
        );
        let written = l.file.write_fmt(text);
        if l.result.is_ok() {
            l.result = written;
        }
    }

    /// The end of it: the file takes its place.
    pub(super) fn finish(self) -> Result<(), Failure> {
        let mut lines = self.0.into_inner();
        let written = lines.result.and_then(|()| lines.file.flush());
        written.map_err(|e| lines.file.get_ref().failed(&e))?;
        let (file, _) = lines.file.into_parts();
        file.finish()
    }
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
    /// Every zone is used up: they are reset, and it starts over.
    over: bool,
    resets: Vec<(Sector, u32)>,
    trace: Option<&'a Trace>,
}

impl<'a> Job<'a> {
    /// A job that keeps `depth` BIOs in flight.
    pub(super) fn new(
        number: u32,
        offsets: Offsets,
        depth: u32,
        times: HostTimes,
        trace: Option<&'a Trace>,
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
            trace,
        }
    }

    fn submit(&mut self, io: &mut Io, op: Op, sector: Sector, sectors: u32) {
        self.in_flight += 1;
        if let Some(trace) = self.trace {
            trace.line(io.now(), self.number, 'Q', op, sector, sectors);
        }
        io.submit(op, sector, sectors, 0);
    }

    /// Fills a free place.
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

    /// Resets what was written, when nothing else is in flight, and begins again.
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
        if let Some(trace) = self.trace {
            trace.line(io.completed_at(), self.number, 'C', bio.op, bio.sector, bio.sectors);
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
