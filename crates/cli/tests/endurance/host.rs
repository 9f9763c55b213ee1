//! A host: its connections, its load, and its record of what must be on the disks.

use super::{HOSTS, Kind, NQN};
use hdrhistogram::Histogram;
use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use zoneplug_core::Random;
use zoneplug_nvme::initiator::{
    Data, Done, Initiator, Options, connect, read, report_zones, reset_zone, set_queues, write,
    zone_append,
};
use zoneplug_nvme::spec::fabrics::{ANY_CONTROLLER, Configuration, property};
use zoneplug_nvme::spec::{Command, opcode};

const BLOCK: u32 = 4096;
const ZONES_EACH: u32 = 2;
/// Blocks of a zone that are written before it is reset.
const FULL: u32 = 192;
const MOST_BLOCKS: u32 = 16;
const IN_FLIGHT: usize = 24;
/// Between two commands of a host, so that the machine is not busy with them alone.
const PACE: Duration = Duration::from_millis(2);
/// How long the commands of the stalled disk are sent, and then not sent.
const STALL: Duration = Duration::from_secs(8);
/// How long a connection lasts.
const CONNECTION: Duration = Duration::from_secs(15);

/// What a host did with a disk.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Count {
    pub(crate) writes: u64,
    pub(crate) reads: u64,
    pub(crate) others: u64,
    pub(crate) failed: u64,
    /// Blocks that were read and are as they must be.
    pub(crate) compared: u64,
}

/// What a host has seen.
pub(crate) struct Report {
    pub(crate) counts: Vec<Count>,
    /// Nanoseconds of reads and writes of good disks, while no command is at the stalled one and while some are.
    pub(crate) alone: Histogram<u64>,
    pub(crate) beside: Histogram<u64>,
    pub(crate) connections: u64,
    pub(crate) wrong: Vec<String>,
}

impl Report {
    pub(crate) fn new(disks: usize) -> Report {
        let histogram = || Histogram::new(3).unwrap();
        let counts = vec![Count::default(); disks];
        Report {
            counts,
            alone: histogram(),
            beside: histogram(),
            connections: 0,
            wrong: Vec::new(),
        }
    }

    pub(crate) fn add(&mut self, other: &Report) {
        for (mine, c) in self.counts.iter_mut().zip(&other.counts) {
            mine.writes += c.writes;
            mine.reads += c.reads;
            mine.others += c.others;
            mine.failed += c.failed;
            mine.compared += c.compared;
        }
        self.alone.add(&other.alone).unwrap();
        self.beside.add(&other.beside).unwrap();
        self.connections += other.connections;
        self.wrong.extend(other.wrong.iter().cloned());
    }

    pub(crate) fn operations(&self) -> u64 {
        self.counts.iter().map(|c| c.writes + c.reads + c.others).sum()
    }
}

/// A zone of this host's.
#[derive(Debug, Clone, Copy, Default)]
struct HostZone {
    /// How often it was reset.
    generation: u32,
    /// Blocks that are written.
    end: u32,
    busy: bool,
    /// A command has failed, so the disk must be asked where the write pointer is.
    unsure: Option<Unsure>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unsure {
    Write,
    Reset,
}

#[derive(Debug, Clone, Copy)]
enum Request {
    Write(u32),
    Read(u32, u32),
    Reset,
    Report,
    Flush,
}

/// The words of a block.
fn fill(bytes: &mut [u8], disk: usize, zone: u32, generation: u32, block: u32) {
    for (i, chunk) in bytes.chunks_exact_mut(8).enumerate() {
        let word = (disk as u64) << 56
            | u64::from(zone) << 48
            | u64::from(generation) << 24
            | u64::from(block) << 9
            | i as u64;
        chunk.copy_from_slice(&word.to_le_bytes());
    }
}

fn content(disk: usize, zone: u32, generation: u32, first: u32, count: u32) -> Vec<u8> {
    let mut data = vec![0; (count * BLOCK) as usize];
    for (block, bytes) in (first..).zip(data.chunks_exact_mut(BLOCK as usize)) {
        fill(bytes, disk, zone, generation, block);
    }
    data
}

/// A connection to the server.
struct Queue {
    stream: TcpStream,
    host: Initiator,
    input: Vec<u8>,
}

impl Queue {
    fn open(address: &str) -> Queue {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        Queue { stream, host: Initiator::new(Options::default()), input: vec![0; 1 << 17] }
    }

    /// Takes what comes within a time, and returns a command that is complete.
    fn next(&mut self, most: Duration) -> Option<Done> {
        let bytes = self.host.take_output();
        self.stream.set_read_timeout(None).unwrap();
        self.stream.write_all(&bytes).unwrap();
        let end = Instant::now() + most;
        loop {
            if let Some(done) = self.host.done() {
                return Some(done);
            }
            let left = end.saturating_duration_since(Instant::now());
            self.stream.set_read_timeout(Some(left.max(Duration::from_micros(50)))).unwrap();
            match self.stream.read(&mut self.input) {
                Ok(0) => panic!("the server has closed the connection"),
                Ok(n) => self.host.received(&self.input[..n]).unwrap(),
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    return None;
                }
                Err(e) => panic!("{e}"),
            }
            let bytes = self.host.take_output();
            self.stream.write_all(&bytes).unwrap();
        }
    }

    fn run(&mut self, (command, data): (Command, Data)) -> Done {
        self.host.send(command, data);
        let done = self.next(Duration::from_secs(30)).expect("an answer in half a minute");
        assert_eq!(done.completion.status, 0);
        done
    }
}

/// An admin queue and an I/O queue.
fn attach(address: &str, number: u32) -> (Queue, Queue) {
    let name =
        format!("nqn.2014-08.org.nvmexpress:uuid:5a5a5a5a-5a5a-5a5a-5a5a-5a5a5a5a5a{number:02x}");
    let mut admin = Queue::open(address);
    let id = admin.run(connect(0, 32, ANY_CONTROLLER, NQN, &name)).completion.result as u16;
    let start = Command::property_set(property::CC, Configuration::START.encode());
    admin.run((start, Data::None));
    admin.run(set_queues(1));
    let mut io = Queue::open(address);
    io.run(connect(1, 128, id, NQN, &name));
    (admin, io)
}

struct Host<'a> {
    kinds: &'a [Kind],
    number: u32,
    zones: Vec<[HostZone; ZONES_EACH as usize]>,
    report: Report,
    random: Random,
    /// By the identifiers of their commands.
    pending: HashMap<u16, (usize, usize, Request, Instant)>,
    at_stalled: u32,
}

/// Works until it is told to stop, and then compares everything.
pub(crate) fn run(address: &str, kinds: &[Kind], number: u32, stop: &AtomicBool) -> Report {
    let mut host = Host {
        kinds,
        number,
        zones: vec![Default::default(); kinds.len()],
        report: Report::new(kinds.len()),
        random: Random::new(u64::from(number)),
        pending: HashMap::new(),
        at_stalled: 0,
    };
    let begun = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        let (admin, mut io) = attach(address, number);
        host.report.connections += 1;
        let (connected, lasts) =
            (Instant::now(), CONNECTION + Duration::from_secs(u64::from(number)));
        let mut due = Instant::now();
        while !stop.load(Ordering::Relaxed) && connected.elapsed() < lasts {
            let stalls = (begun.elapsed().as_millis() / STALL.as_millis()) % 2 == 1;
            if host.pending.len() < IN_FLIGHT && Instant::now() >= due {
                host.send(&mut io, stalls);
                due = Instant::now().max(due + PACE);
            }
            if let Some(done) = io.next(due.saturating_duration_since(Instant::now())) {
                host.take(&done);
            }
        }
        host.drain(&mut io);
        drop((io, admin));
    }
    let (_admin, mut io) = attach(address, number);
    host.report.connections += 1;
    host.compare_all(&mut io);
    host.report
}

impl Host<'_> {
    fn zone_of(&self, nth: usize) -> u32 {
        self.number * ZONES_EACH + nth as u32
    }

    fn blocks_of_zone(&self, disk: usize) -> u64 {
        if self.kinds[disk] == Kind::Modelled { 65_536 } else { 256 }
    }

    /// Sends a command to a zone that has none.
    fn send(&mut self, io: &mut Queue, stalls: bool) {
        let mut disk = self.random.below(self.kinds.len() as u32) as usize;
        if stalls && self.at_stalled < 2 {
            disk = 0;
        } else if disk == 0 {
            return;
        }
        let nth = self.random.below(ZONES_EACH) as usize;
        let z = self.zones[disk][nth];
        if z.busy {
            return;
        }
        let request = match self.random.below(100) {
            _ if z.unsure.is_some() => Request::Report,
            _ if z.end >= FULL => Request::Reset,
            0..2 => Request::Flush,
            2..4 => Request::Report,
            4..40 if z.end > 0 => {
                let count = (1 + self.random.below(MOST_BLOCKS)).min(z.end);
                Request::Read(self.random.below(z.end - count + 1), count)
            }
            _ => Request::Write(1 + self.random.below(MOST_BLOCKS)),
        };
        self.start(io, disk, nth, request);
    }

    fn start(&mut self, io: &mut Queue, disk: usize, nth: usize, request: Request) {
        let (zone, z, nsid) = (self.zone_of(nth), self.zones[disk][nth], disk as u32 + 1);
        let lba = u64::from(zone) * self.blocks_of_zone(disk);
        let (command, data) = match request {
            Request::Write(count) => {
                let data = content(disk, zone, z.generation, z.end, count);
                match disk % 2 {
                    0 => zone_append(nsid, lba, data, BLOCK),
                    _ => write(nsid, lba + u64::from(z.end), data, BLOCK),
                }
            }
            Request::Read(first, count) => read(nsid, lba + u64::from(first), count, BLOCK),
            Request::Reset => reset_zone(nsid, lba),
            Request::Report => report_zones(nsid, lba, 128),
            Request::Flush => (Command::new(opcode::FLUSH).with_nsid(nsid), Data::None),
        };
        let cid = io.host.send(command, data);
        self.zones[disk][nth].busy = true;
        self.at_stalled += u32::from(disk == 0);
        self.pending.insert(cid, (disk, nth, request, Instant::now()));
    }

    /// Takes the answer to a command.
    fn take(&mut self, done: &Done) {
        let (disk, nth, request, sent) =
            self.pending.remove(&done.completion.cid).expect("a command in flight");
        self.at_stalled -= u32::from(disk == 0);
        let zone = self.zone_of(nth);
        let (z, count) = (&mut self.zones[disk][nth], &mut self.report.counts[disk]);
        z.busy = false;
        let is_ok = done.completion.status == 0;
        if self.kinds[disk] == Kind::Good
            && matches!(request, Request::Write(_) | Request::Read(..))
        {
            let h =
                if self.at_stalled > 0 { &mut self.report.beside } else { &mut self.report.alone };
            h.record(sent.elapsed().as_nanos() as u64).unwrap();
        }
        let mut wrong =
            |what: String| self.report.wrong.push(format!("disk {disk}, zone {zone}: {what}"));
        match request {
            _ if !is_ok => {
                count.failed += 1;
                match request {
                    Request::Write(_) => z.unsure = Some(Unsure::Write),
                    Request::Reset => z.unsure = Some(Unsure::Reset),
                    _ => {}
                }
            }
            Request::Write(blocks) => {
                count.writes += 1;
                let lba =
                    u64::from(zone) * if self.kinds[disk] == Kind::Modelled { 65_536 } else { 256 };
                if disk % 2 == 0 && done.completion.result != lba + u64::from(z.end) {
                    wrong(format!(
                        "an append landed at {}, expected {}",
                        done.completion.result,
                        lba + u64::from(z.end)
                    ));
                }
                z.end += blocks;
            }
            Request::Read(first, blocks) => {
                count.reads += 1;
                if self.kinds[disk] != Kind::Modelled {
                    count.compared += u64::from(blocks);
                    if done.data != content(disk, zone, z.generation, first, blocks) {
                        wrong(format!(
                            "blocks {first} to {} of generation {} differ",
                            first + blocks,
                            z.generation
                        ));
                    }
                }
            }
            Request::Reset => {
                count.others += 1;
                (z.generation, z.end) = (z.generation + 1, 0);
            }
            Request::Flush => count.others += 1,
            Request::Report => {
                count.others += 1;
                let field =
                    |at: usize| u64::from_le_bytes(done.data[at..at + 8].try_into().unwrap());
                let (start, wp) = (field(64 + 16), field(64 + 24));
                let end = wp.saturating_sub(start) as u32;
                match z.unsure.take() {
                    // Blocks that were written before the failure are as they would have been.
                    Some(Unsure::Write) if end >= z.end && end <= z.end + MOST_BLOCKS => {
                        z.end = end;
                    }
                    Some(Unsure::Reset) if end == 0 => {
                        (z.generation, z.end) = (z.generation + 1, 0);
                    }
                    _ if end == z.end => {}
                    was => wrong(format!(
                        "the write pointer is at {end}, expected {} ({was:?})",
                        z.end
                    )),
                }
            }
        }
    }

    /// Waits for all that is in flight.
    fn drain(&mut self, io: &mut Queue) {
        while !self.pending.is_empty() {
            match io.next(Duration::from_secs(60)) {
                Some(done) => self.take(&done),
                None => panic!("host {}: no answer in a minute to {:?}", self.number, self.pending),
            }
        }
    }

    /// Reads all that must be there, until each disk has said it without a failure.
    fn compare_all(&mut self, io: &mut Queue) {
        for disk in 0..self.kinds.len() {
            for nth in 0..ZONES_EACH as usize {
                let mut left = 0;
                for _ in 0..50 {
                    let failed = self.report.counts[disk].failed;
                    let end = self.zones[disk][nth].end;
                    let request = match self.zones[disk][nth].unsure {
                        Some(_) => Request::Report,
                        None if left < end => Request::Read(left, (end - left).min(64)),
                        None => break,
                    };
                    self.start(io, disk, nth, request);
                    self.drain(io);
                    if let (Request::Read(_, count), true) =
                        (request, failed == self.report.counts[disk].failed)
                    {
                        left += count;
                    }
                }
                let z = self.zones[disk][nth];
                if z.unsure.is_some() || left < z.end {
                    let what =
                        format!("disk {disk}: zone {} was not read to its end", self.zone_of(nth));
                    self.report.wrong.push(what);
                }
            }
        }
    }
}

const _: () = assert!(HOSTS * ZONES_EACH <= 16 && FULL + MOST_BLOCKS <= 256);
