//! blktrace's binary records, `linux/blktrace_api.h`. Owns the layouts of versions 7 and 8, the
//! order of records by time, and the sequence numbers that show lost records.
//!
//! blktrace writes a file for each processor; `blktrace -o -` writes one stream of pieces of them.
//! The next record is the earliest of the files' next records.
//!
//! | bytes, version 7 | version 8 | content |
//! | --- | --- | --- |
//! | 0-3 | 0-3 | magic number and version; shows the byte order |
//! | 4-7 | 4-7 | sequence number of this device and processor |
//! | 8-15, 16-23, 24-27 | the same | nanoseconds, sector, length in bytes |
//! | 28-31 | 32-39 | action: the event in the low 16 bits, a bit for each category above |
//! | 36-39, 40-43 | 40-43, 44-47 | device, `major << 20 | minor`; processor |
//! | 46-47 | 50-51 | length of data behind the record |
//!
//! Version 7 has no bits for zones: appends and writes of zeroes look like writes, and zone
//! management like a write without data. Linux kernels with version 8 leave out zone operations if
//! version 7 is asked for.

use super::{Events, Line, MAX_SECTOR, Raw, Seen};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::io::{self, BufRead, Read, Write};
use zoneplug_core::{Error, ErrorKind, Nanos, Op};

/// The most data of a record that is accepted. A message of Linux has at most 128 bytes.
const MAX_DATA: u64 = 4096;
/// The number of devices and processors whose sequence numbers are followed.
const MAX_CPUS: usize = 4096;
/// Lengths of a record by version.
const LENGTHS: [(u8, usize); 2] = [(7, 48), (8, 64)];

const QUEUE: u64 = 1;
const ISSUE: u64 = 7;
const COMPLETE: u64 = 8;
/// The last event of Linux: a zone's plug was unplugged.
const LAST: u64 = 19;
/// The bit of an event with a cgroup in its data.
const CGROUP: u64 = 1 << 8;

/// Bits of the action. The last seven are those of version 8.
const WRITE: u64 = 1 << 17;
const FLUSH: u64 = 1 << 18;
const SCSI: u64 = 1 << 25;
const NOTIFY: u64 = 1 << 26;
const DISCARD: u64 = 1 << 29;
const DRIVER: u64 = 1 << 30;
const FUA: u64 = 1 << 31;
const ZONES: [(u64, Op); 7] = [
    (1 << 32, Op::ZoneAppend),
    (1 << 33, Op::ZoneReset),
    (1 << 34, Op::ZoneResetAll),
    (1 << 35, Op::ZoneFinish),
    (1 << 36, Op::ZoneOpen),
    (1 << 37, Op::ZoneClose),
    (1 << 38, Op::WriteZeroes),
];

/// Whether a file with these first bytes is one of blktrace's.
pub(super) fn is_magic(head: &[u8]) -> bool {
    matches!(head, [..0x20, b't', b'a', b'e'] | [b'e', b'a', b't', ..0x20])
}

/// A record without its data.
#[derive(Debug, Clone, Copy)]
struct Record {
    sequence: u32,
    time: u64,
    sector: u64,
    bytes: u32,
    action: u64,
    device: u32,
    cpu: u32,
}

/// The meaning of a record.
#[derive(Debug, PartialEq)]
enum Meaning {
    Operation(Raw),
    Completion(Nanos),
    /// An empty read or write.
    Empty,
    /// A SCSI command.
    PassThrough,
    /// Zone management without its kind.
    Unclear,
    Other,
    Unknown,
}

impl Record {
    fn of(bytes: &[u8], version: u8, big: bool) -> Record {
        let four = |at: usize| {
            let b = [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
            if big { u32::from_be_bytes(b) } else { u32::from_le_bytes(b) }
        };
        let eight = |at: usize| {
            let (first, second) = (u64::from(four(at)), u64::from(four(at + 4)));
            if big { first << 32 | second } else { second << 32 | first }
        };
        let new = version == 8;
        Record {
            sequence: four(4),
            time: eight(8),
            sector: eight(16),
            bytes: four(24),
            action: if new { eight(32) } else { u64::from(four(28)) },
            device: four(if new { 40 } else { 36 }),
            cpu: four(if new { 44 } else { 40 }),
        }
    }

    fn has(&self, bits: u64) -> bool {
        self.action & bits != 0
    }

    /// Interprets the record; events of the kind `wanted` are taken. The error is a message.
    fn meaning(&self, wanted: Events) -> Result<Meaning, String> {
        let event = self.action & 0xffff & !CGROUP;
        if self.has(NOTIFY | DRIVER) {
            return Ok(Meaning::Other);
        }
        if event == 0 || event > LAST {
            return Ok(Meaning::Unknown);
        }
        let taken = match wanted {
            Events::Queued => QUEUE,
            Events::Issued => ISSUE,
        };
        if event != taken && event != COMPLETE {
            return Ok(Meaning::Other);
        }
        if self.has(SCSI) {
            return Ok(if event == taken { Meaning::PassThrough } else { Meaning::Other });
        }
        let (at, sectors) = (Nanos(self.time), u64::from(self.bytes >> 9));
        let raw = Raw { at, op: Op::Flush, fua: false, preflush: false, sector: 0, sectors: 0 };
        if event == COMPLETE {
            return Ok(Meaning::Completion(at));
        }
        let zone = ZONES.iter().find(|(bit, _)| self.has(*bit)).map(|(_, op)| *op);
        let op = match zone {
            _ if self.has(DISCARD) => Op::Discard,
            Some(op) => op,
            None if self.has(WRITE) => Op::Write,
            None => Op::Read,
        };
        if op == Op::ZoneResetAll {
            return Ok(Meaning::Operation(Raw { op, ..raw }));
        }
        if sectors == 0 && !op.is_zone_management() {
            return Ok(match op {
                _ if self.has(FLUSH) => Meaning::Operation(raw),
                Op::Write => Meaning::Unclear,
                _ => Meaning::Empty,
            });
        }
        let (sector, fua, preflush) = (self.sector, self.has(FUA), self.has(FLUSH));
        if sector >= MAX_SECTOR {
            return Err(format!("{sector} + {sectors} is no place on a disk"));
        }
        Ok(Meaning::Operation(Raw { at, op, fua, preflush, sector, sectors }))
    }
}

/// The read position in a file.
#[derive(Debug, Clone, Default)]
struct Place {
    offset: u64,
    /// The byte order of its first record.
    big: Option<bool>,
    next: Option<Record>,
}

/// Sequence numbers of one device and processor.
#[derive(Debug, Clone, Copy)]
struct Numbers {
    least: u32,
    most: u32,
    count: u64,
}

/// The records of files that are one trace.
#[derive(Debug)]
pub(super) struct Records {
    wanted: Events,
    places: Vec<Place>,
    /// The time of the next record of each file that has one.
    heads: BinaryHeap<Reverse<(u64, usize)>>,
    begun: bool,
    /// The device of the last operation, and its name.
    device: Option<u32>,
    name: Vec<u8>,
    cpus: BTreeMap<(u32, u32), Numbers>,
}

impl Records {
    pub(super) fn new(wanted: Events, files: usize) -> Records {
        Records {
            wanted,
            places: vec![Place::default(); files],
            heads: BinaryHeap::new(),
            begun: false,
            device: None,
            name: Vec::new(),
            cpus: BTreeMap::new(),
        }
    }

    /// Returns the next record, with its number; `None` at the end.
    pub(super) fn next<R: BufRead>(
        &mut self,
        files: &mut [R],
        seen: &mut Seen,
    ) -> Result<Option<(u64, Line<'_>)>, Error> {
        if !self.begun {
            self.begun = true;
            for i in 0..files.len() {
                self.advance(files, i, seen)?;
            }
        }
        let Some(record) = self.take(files, seen)? else { return Ok(None) };
        let n = seen.lines;
        let meaning = record.meaning(self.wanted).map_err(|what| {
            Error::invalid(format!("record {n} of the trace: {what}")).hint(AGAIN)
        })?;
        if self.device != Some(record.device) {
            self.device = Some(record.device);
            self.name.clear();
            // Writing to a vector cannot fail.
            let _ = write!(self.name, "{},{}", record.device >> 20, record.device & 0xf_ffff);
        }
        let name = &self.name[..];
        let line = match meaning {
            Meaning::Operation(raw) => Line::Event(name, raw),
            Meaning::Completion(at) => Line::Completion(name, at),
            Meaning::Empty => Line::Empty,
            Meaning::PassThrough => Line::PassThrough,
            Meaning::Unclear => Line::Unclear,
            Meaning::Other => Line::Skipped,
            Meaning::Unknown => Line::NotOfFormat,
        };
        Ok(Some((n, line)))
    }

    /// Takes the earliest of the files' next records.
    fn take<R: BufRead>(
        &mut self,
        files: &mut [R],
        seen: &mut Seen,
    ) -> Result<Option<Record>, Error> {
        let Some(Reverse((_, i))) = self.heads.pop() else { return Ok(None) };
        let record = self.places[i].next.take();
        self.advance(files, i, seen)?;
        seen.lines += 1;
        if let Some(record) = record {
            self.count(&record, seen);
        }
        Ok(record)
    }

    /// Follows the sequence numbers: missing numbers are lost records. Notes have no numbers.
    fn count(&mut self, record: &Record, seen: &mut Seen) {
        if record.has(NOTIFY) {
            return;
        }
        let n = record.sequence;
        let key = (record.device, record.cpu);
        if self.cpus.len() >= MAX_CPUS && !self.cpus.contains_key(&key) {
            return;
        }
        let lost = |c: &Numbers| (u64::from(c.most - c.least) + 1).saturating_sub(c.count);
        let c = self.cpus.entry(key).or_insert(Numbers { least: n, most: n, count: 0 });
        let before = if c.count > 0 { lost(c) } else { 0 };
        *c = Numbers { least: c.least.min(n), most: c.most.max(n), count: c.count + 1 };
        seen.lost = seen.lost + lost(c) - before;
    }

    /// Reads the next record of a file.
    fn advance<R: BufRead>(
        &mut self,
        files: &mut [R],
        i: usize,
        seen: &mut Seen,
    ) -> Result<(), Error> {
        let (n, place, file) = (files.len(), &mut self.places[i], &mut files[i]);
        let begin = place.offset;
        let spot = || match n {
            1 => format!("byte {begin}"),
            _ => format!("byte {begin} of file {} of {n}", i + 1),
        };
        let wrong = |what: &str, hint: &str| {
            Err(Error::invalid(format!("{what} at {}", spot())).hint(hint))
        };
        let failed = |e: io::Error| {
            let what = format!("reading the trace after {}: {e}", spot());
            Error::new(ErrorKind::Io, what).hint("look at the file").source(e)
        };
        let mut bytes = [0; 64];
        let mut got = fill(file, &mut bytes[..4]).map_err(failed)?;
        let (mut whole, mut data, mut skipped) = (4, 0, 0);
        let big = bytes[0] == b'e';
        let version = if big { bytes[3] } else { bytes[0] };
        if got == whole {
            let is_first = place.big.is_none();
            if !is_magic(&bytes[..4]) || *place.big.get_or_insert(big) != big {
                let first = "the files of one trace, FILE.blktrace.0 and so on";
                return wrong("no record of blktrace's", if is_first { first } else { AGAIN });
            }
            let Some((_, length)) = LENGTHS.iter().find(|(v, _)| *v == version) else {
                let hint = "versions 7 and 8 are read; else blkparse -i FILE > FILE.txt, and that";
                return wrong(&format!("a record of version {version}"), hint);
            };
            whole = *length;
            got += fill(file, &mut bytes[4..whole]).map_err(failed)?;
        }
        if got == whole {
            let at = if version == 8 { 50 } else { 46 };
            let pair = [bytes[at], bytes[at + 1]];
            data = u64::from(if big { u16::from_be_bytes(pair) } else { u16::from_le_bytes(pair) });
            if data > MAX_DATA {
                return wrong(&format!("a record with {data} bytes of data"), AGAIN);
            }
            skipped = io::copy(&mut file.take(data), &mut io::sink()).map_err(failed)?;
        }
        place.offset += got as u64 + skipped;
        seen.bytes += got as u64 + skipped;
        if got == whole && skipped == data {
            let record = Record::of(&bytes, version, big);
            place.next = Some(record);
            self.heads.push(Reverse((record.time, i)));
        } else if got > 0 {
            // The file ends within this record.
            seen.cut += 1;
        }
        Ok(())
    }
}

/// The hint for a damaged file.
const AGAIN: &str = "the file is damaged: copy it in binary, or record it again";

/// Reads until `bytes` is full or the file ends.
fn fill<R: Read>(file: &mut R, bytes: &mut [u8]) -> io::Result<usize> {
    let mut got = 0;
    while got < bytes.len() {
        match file.read(&mut bytes[got..]) {
            Ok(0) => break,
            Ok(n) => got += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(got)
}
