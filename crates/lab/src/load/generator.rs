//! The load generator: clients that keep a number of BIOs in flight, and their figures.
//!
//! Reading the clock for each BIO would cost too much. One BIO in [`SAMPLE`] is timed, and a client checks for the
//! end of a slice once in many rounds. A device with timing gets the real time once a round.
//!
//! A client talks to a [`Port`]: either a queue of a Driven disk, which the measuring thread polls itself, or a
//! client of a Hosted disk, with a thread of its own.

use super::arena::{Arena, Buffer};
use super::clock::{nap, process_cpu, thread_cpu};
use super::latency::histogram;
use super::notes::{Counts, Notes};
use crate::failure::Failure;
use crate::interrupt::is_asked;
use crate::threads::together;
use hdrhistogram::Histogram;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use zoneplug_buf::Parts;
use zoneplug_core::disk::DiskQueue;
use zoneplug_core::{Bio, BioPool, Bios, IoBuf, Nanos, Op, Sector, Status};
use zoneplug_host::Client;
use zoneplug_models::work::{Offsets, Rng, Work};

/// One BIO in so many is timed, on average. The step is random: a fixed one would always hit the same place of a
/// batch.
pub(crate) const SAMPLE: u64 = 64;

/// The interface through which a client submits BIOs and gets them back.
pub(crate) trait Port: Send {
    /// Takes BIOs from the front of the list.
    fn submit(&mut self, now: Nanos, bios: &mut Bios);
    /// Appends completed BIOs to `done`.
    fn poll(&mut self, now: Nanos, done: &mut Bios);
    /// The time at which a poll will find something, if it is known.
    fn deadline(&self) -> Option<Nanos>;
}

impl Port for DiskQueue {
    #[inline]
    fn submit(&mut self, now: Nanos, bios: &mut Bios) {
        DiskQueue::submit(self, now, bios);
    }
    #[inline]
    fn poll(&mut self, now: Nanos, done: &mut Bios) {
        DiskQueue::poll(self, now, done);
    }
    fn deadline(&self) -> Option<Nanos> {
        self.next_deadline()
    }
}

/// The hosted disk keeps the time. `poll` waits: the client sleeps when it has polled without success for a while.
impl Port for Client {
    #[inline]
    fn submit(&mut self, _: Nanos, bios: &mut Bios) {
        Client::submit(self, bios);
    }
    #[inline]
    fn poll(&mut self, _: Nanos, done: &mut Bios) {
        Client::wait(self, done, 1, None);
    }
    fn deadline(&self) -> Option<Nanos> {
        None
    }
}

/// Counts and latencies of the BIOs of clients.
#[derive(Debug, Clone)]
pub(crate) struct Tally {
    pub(crate) bios: u64,
    pub(crate) bytes: u64,
    /// BIOs that failed, by status.
    pub(crate) refused: BTreeMap<Status, u64>,
    pub(crate) latency: Histogram<u64>,
}

impl Tally {
    pub(crate) fn new() -> Tally {
        Tally { bios: 0, bytes: 0, refused: BTreeMap::new(), latency: histogram() }
    }

    pub(crate) fn add(&mut self, other: &Tally) {
        self.bios += other.bios;
        self.bytes += other.bytes;
        for (&s, n) in &other.refused {
            *self.refused.entry(s).or_default() += n;
        }
        self.latency += &other.latency;
    }
}

/// The BIOs and times of one stretch of work.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Slice {
    pub(crate) bios: u64,
    pub(crate) wall_ns: u64,
    pub(crate) cpu_ns: u64,
}

/// One client.
pub(crate) struct Worker<P> {
    port: P,
    pub(crate) offsets: Offsets,
    depth: usize,
    /// The data of each write, one BIO long.
    zeroes: &'static [u8],
    /// The memory of reads: each BIO has its own and keeps it.
    buffers: Vec<Buffer>,
    /// The unused memory of reads that are shorter than the block.
    cuts: Vec<Parts>,
    pool: BioPool,
    list: Bios,
    done: Bios,
    in_flight: usize,
    /// BIOs until the next one that is timed.
    countdown: u64,
    rng: Rng,
    /// Whether to send no new BIOs until those in flight are back: the slice ends, or the zones are used up.
    stop: bool,
    exhausted: bool,
    start: Instant,
    /// Whether the device needs the real time.
    timed: bool,
    /// Where the client publishes its counters, if `zoneplug top` may watch it.
    notes: Option<Notes>,
    pub(crate) tally: Tally,
}

impl<P: Port> Worker<P> {
    /// Publishes the counters through `notes` from now on.
    pub(super) fn watch(&mut self, notes: Notes) {
        self.notes = Some(notes);
    }

    fn note(&mut self, now: Instant) {
        if let Some(notes) = self.notes.as_mut().filter(|n| n.is_due(now)) {
            let t = &self.tally;
            let failed = t.refused.values().sum();
            notes.note(now, Counts { bios: t.bios, bytes: t.bytes, failed }, &t.latency);
        }
    }

    /// A client that does `work` at `offsets`, with memory from `arena`.
    pub(crate) fn new(
        port: P,
        offsets: Offsets,
        work: Work,
        arena: &mut Arena,
        timed: bool,
    ) -> Result<Self, Failure> {
        let depth = work.depth as usize;
        let mut pool = BioPool::new(0);
        let mut buffers = Vec::new();
        if offsets.rw().is_read() {
            buffers = arena.buffers(work.depth, work.block_sectors)?;
            for buffer in &mut buffers {
                let buf = buffer.lend(work.block_sectors << 9);
                pool.put(Bio::with_buf(Op::Read, Sector(0), work.block_sectors, buf));
            }
        }
        Ok(Worker {
            port,
            offsets,
            depth,
            zeroes: arena.zeroes(work.block_sectors)?,
            buffers,
            cuts: Vec::new(),
            pool,
            list: Bios::with_capacity(depth),
            done: Bios::with_capacity(depth),
            in_flight: 0,
            countdown: SAMPLE,
            rng: Rng::new(7),
            stop: false,
            exhausted: false,
            start: Instant::now(),
            timed,
            notes: None,
            tally: Tally::new(),
        })
    }

    #[inline]
    fn now(&self) -> Nanos {
        if self.timed { self.elapsed() } else { Nanos(0) }
    }

    fn elapsed(&self) -> Nanos {
        Nanos(self.start.elapsed().as_nanos() as u64)
    }

    /// Does one round: fills the queue up, submits, polls.
    #[inline]
    fn round(&mut self) {
        while self.in_flight < self.depth && !self.stop {
            let Some((op, sector, len)) = self.offsets.next() else {
                (self.exhausted, self.stop) = (true, true);
                break;
            };
            let mut bio = self.pool.get();
            if op == Op::Read {
                bio.renew(op, sector, len);
                if len << 9 != bio.data().len() {
                    self.cut(&mut bio);
                }
            } else {
                bio.set(op, sector, len, IoBuf::from_static(&self.zeroes[..(len as usize) << 9]));
            }
            self.countdown -= 1;
            bio.set_token(0);
            if self.countdown == 0 {
                self.countdown = SAMPLE / 2 + self.rng.below(SAMPLE);
                bio.set_token(self.elapsed().0.max(1));
            }
            self.list.push_back(bio);
            self.in_flight += 1;
        }
        let now = self.now();
        if !self.list.is_empty() {
            self.port.submit(now, &mut self.list);
        }
        self.port.poll(now, &mut self.done);
        if self.timed && self.done.is_empty() {
            nap(now, self.port.deadline());
        }
        self.in_flight -= self.done.len();
        self.tally.bios += self.done.len() as u64;
        while let Some(mut bio) = self.done.pop_front() {
            if bio.status.is_ok() {
                self.tally.bytes += u64::from(bio.len_sectors) << 9;
            } else {
                self.failed(&bio);
            }
            if bio.token() != 0 {
                let ns = self.elapsed().0 - bio.token();
                self.tally.latency.saturating_record(ns);
            }
            if !self.cuts.is_empty() {
                self.join(&mut bio);
            }
            self.pool.put(bio);
        }
    }

    /// Cuts the memory of a BIO to the length of its read.
    #[cold]
    fn cut(&mut self, bio: &mut Bio) {
        let mut parts = Parts::new(bio.take_buf());
        bio.set_buf(parts.take_front(bio.len_sectors << 9));
        self.cuts.push(parts);
    }

    /// Gives a BIO that was cut its whole memory back.
    #[cold]
    fn join(&mut self, bio: &mut Bio) {
        let mut buf = bio.take_buf();
        for i in 0..self.cuts.len() {
            match self.cuts[i].put_back(buf) {
                Err(other) => buf = other,
                Ok(()) => {
                    return bio.set_buf(self.cuts.swap_remove(i).join().unwrap_or_default());
                }
            }
        }
        bio.set_buf(buf);
    }

    #[cold]
    fn failed(&mut self, bio: &Bio) {
        *self.tally.refused.entry(bio.status).or_default() += 1;
        if bio.op.is_write() {
            self.offsets.refused(bio.sector);
        }
    }

    /// Empties the zones that were written, so that the work can start again.
    fn rewind(&mut self) -> Result<(), Failure> {
        (self.exhausted, self.stop) = (false, false);
        if self.offsets.rw().is_read() {
            return Ok(());
        }
        let mut zones: Vec<(Sector, u32)> = self.offsets.used().collect();
        while !zones.is_empty() || self.in_flight > 0 {
            while self.in_flight < self.depth
                && let Some((start, len)) = zones.pop()
            {
                let mut bio = self.pool.get();
                bio.set(Op::ZoneReset, start, len, IoBuf::empty());
                self.list.push_back(bio);
                self.in_flight += 1;
            }
            let now = self.now();
            self.port.submit(now, &mut self.list);
            self.port.poll(now, &mut self.done);
            self.in_flight -= self.done.len();
            while let Some(bio) = self.done.pop_front() {
                if !bio.status.is_ok() {
                    return Err(Failure::io(format!("resetting zones: {}", bio.status)));
                }
                self.pool.put(bio);
            }
        }
        self.offsets.rewind();
        Ok(())
    }
}

impl<P> Drop for Worker<P> {
    fn drop(&mut self) {
        // The arena does not get the buffers of BIOs in flight back.
        while !self.pool.is_empty()
            && let Some(buffer) = self.buffers.pop()
        {
            let mut buffer = buffer;
            buffer.take_back(self.pool.get().take_buf());
        }
    }
}

/// Time between two readings of the clock, in which many rounds run.
const CLOCK_INTERVAL: Duration = Duration::from_micros(500);

/// Runs `workers` in this thread for `time`, and until all BIOs in flight are back. The time of zone resets between
/// passes does not count. At the end, the zones that were written are empty again.
pub(crate) fn run<P: Port>(workers: &mut [Worker<P>], time: Duration) -> Result<Slice, Failure> {
    let mut slice = Slice::default();
    let before: u64 = workers.iter().map(|w| w.tally.bios).sum();
    let (mut start, mut cpu) = (Instant::now(), thread_cpu());
    let mut rounds = 1u32;
    let mut looked = start;
    loop {
        let mut exhausted = false;
        for _ in 0..rounds {
            for w in &mut *workers {
                w.round();
                exhausted |= w.exhausted;
            }
            if exhausted {
                break;
            }
        }
        if exhausted {
            drain(workers, |w| w.exhausted);
            slice.wall_ns += start.elapsed().as_nanos() as u64;
            slice.cpu_ns += thread_cpu() - cpu;
            for w in workers.iter_mut().filter(|w| w.exhausted) {
                w.rewind()?;
            }
            (start, cpu) = (Instant::now(), thread_cpu());
            looked = start;
        }
        let now = Instant::now();
        let all = slice.wall_ns + (now - start).as_nanos() as u64;
        if all >= time.as_nanos() as u64 || is_asked() {
            break;
        }
        workers.iter_mut().for_each(|w| w.note(now));
        rounds = match now - looked {
            took if took < CLOCK_INTERVAL / 2 && !exhausted => (rounds * 2).min(1 << 20),
            took if took > CLOCK_INTERVAL => (rounds / 2).max(1),
            _ => rounds,
        };
        looked = now;
    }
    for w in &mut *workers {
        w.stop = true;
    }
    drain(workers, |_| true);
    slice.wall_ns += start.elapsed().as_nanos() as u64;
    slice.cpu_ns += thread_cpu() - cpu;
    slice.bios = workers.iter().map(|w| w.tally.bios).sum::<u64>() - before;
    for w in workers {
        w.rewind()?;
    }
    Ok(slice)
}

/// Polls until the workers that `whose` selects have nothing in flight. The other workers are polled too, because the
/// selected ones may depend on their polls.
fn drain<P: Port>(workers: &mut [Worker<P>], whose: impl Fn(&Worker<P>) -> bool) {
    while workers.iter().any(|w| whose(w) && w.in_flight > 0) {
        for w in &mut *workers {
            w.round();
        }
    }
}

/// One pass of one worker over all of its zones, which must be empty and are full afterwards.
pub(crate) fn fill<P: Port>(worker: &mut Worker<P>) -> Slice {
    let (start, cpu) = (Instant::now(), thread_cpu());
    let before = worker.tally.bios;
    while !worker.exhausted || worker.in_flight > 0 {
        worker.round();
    }
    Slice {
        bios: worker.tally.bios - before,
        wall_ns: start.elapsed().as_nanos() as u64,
        cpu_ns: thread_cpu() - cpu,
    }
}

/// Like `run`, with each worker on a thread of its own. CPU time is that of the process, with the threads of the
/// disk.
pub(crate) fn run_threads<P: Port>(
    workers: &mut [Worker<P>],
    time: Duration,
) -> Result<Slice, Failure> {
    let cpu = process_cpu();
    let slices = together(workers.iter_mut().map(|w| || run(std::slice::from_mut(w), time)))?;
    let slices = slices.into_iter().collect::<Result<Vec<_>, _>>()?;
    Ok(Slice {
        bios: slices.iter().map(|s| s.bios).sum(),
        wall_ns: slices.iter().map(|s| s.wall_ns).max().unwrap_or(0),
        cpu_ns: process_cpu() - cpu,
    })
}
