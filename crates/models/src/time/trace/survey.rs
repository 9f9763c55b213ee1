//! Reads a whole trace once: its content, and whether it is from a zoned disk. Owns counts, and a
//! write pointer for each zone that the trace uses.

use super::changes::Changes;
use super::reader::no_trace;
use super::{Format, Reader, Seen, TraceEvent};
use std::collections::BTreeMap;
use std::io::BufRead;
use zoneplug_core::zone::{Geometry, Limits};
use zoneplug_core::{Error, Nanos, Op, Sector, ZoneNo};

/// The content of a trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Survey {
    /// Its format.
    pub format: Format,
    /// Writes and zone appends.
    pub writes: u64,
    /// Bytes written.
    pub written: u64,
    /// Reads.
    pub reads: u64,
    /// Bytes read.
    pub read: u64,
    /// Number of flushes.
    pub flushes: u64,
    /// Number of discards.
    pub discards: u64,
    /// Number of zone management operations.
    pub management: u64,
    /// The end of the highest range, in sectors.
    pub end_sector: u64,
    /// The time from the first event to the last.
    pub span: Nanos,
    /// Counts of lines and of what was skipped.
    pub seen: Seen,
}

impl Survey {
    /// Reads a whole trace, and passes each event to `fits`. Fails if the trace has no operation, or cannot be read.
    pub fn of<R: BufRead>(mut trace: Reader<R>, fits: &mut [Fit]) -> Result<Survey, Error> {
        let mut s = Survey::empty(trace.format());
        while let Some(event) = trace.next_event()? {
            s.see(&event, fits);
        }
        // The line that shows the format may come after others.
        s.format = trace.format();
        s.seen = trace.seen().clone();
        if s.operations() == 0 { Err(no_trace(s.format, &s.seen)) } else { Ok(s) }
    }

    /// Surveys the same events in their sorted order, in which none is late. `next` returns `None`
    /// at the end.
    pub fn in_order(
        &self,
        next: &mut dyn FnMut() -> Result<Option<TraceEvent>, Error>,
        fits: &mut [Fit],
    ) -> Result<Survey, Error> {
        let mut s = Survey::empty(self.format);
        while let Some(event) = next()? {
            s.see(&event, fits);
        }
        s.seen = Seen { late: 0, ..self.seen.clone() };
        Ok(s)
    }

    fn empty(format: Format) -> Survey {
        Survey {
            format,
            writes: 0,
            written: 0,
            reads: 0,
            read: 0,
            flushes: 0,
            discards: 0,
            management: 0,
            end_sector: 0,
            span: Nanos(0),
            seen: Seen::default(),
        }
    }

    fn see(&mut self, event: &TraceEvent, fits: &mut [Fit]) {
        match event.op {
            Op::Write | Op::ZoneAppend | Op::WriteZeroes => {
                self.writes += 1;
                self.written += event.sectors << 9;
            }
            Op::Read => {
                self.reads += 1;
                self.read += event.sectors << 9;
            }
            Op::Flush => self.flushes += 1,
            Op::Discard => self.discards += 1,
            _ => self.management += 1,
        }
        self.end_sector = self.end_sector.max(event.sector + event.sectors);
        self.span = event.at;
        fits.iter_mut().for_each(|f| f.see(event));
    }

    /// Number of operations.
    pub fn operations(&self) -> u64 {
        self.writes + self.reads + self.flushes + self.discards + self.management
    }

    /// The length of the recorded run: to its last completion if the trace has completions,
    /// otherwise to its last event.
    pub fn makespan(&self) -> Nanos {
        self.seen.last_completion.unwrap_or(self.span).max(self.span)
    }
}

/// The reason why a write cannot be sent to a disk as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MisplacedWhy {
    /// The write pointer of its zone is elsewhere.
    WritePointer,
    /// The write begins or ends within a block of the disk.
    PartOfBlock,
    /// The write ends behind the capacity of its zone.
    PastCapacity,
}

/// A write that is not where a disk would take it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Misplaced {
    /// Why.
    pub why: MisplacedWhy,
    /// Its line.
    pub line: u64,
    /// Its sector.
    pub sector: u64,
    /// Its zone.
    pub zone: u32,
    /// The write pointer of the zone, in sectors from its start.
    pub write_pointer: u32,
}

/// Whether the writes of a trace could come from a disk with these zones. The first write of a zone
/// shows where its write pointer was when the trace began.
#[derive(Debug, Clone)]
pub struct Fit {
    geometry: Geometry,
    granularity: u32,
    /// The write pointers of each zone in use: at the start, and now.
    zones: BTreeMap<u32, (u32, u32)>,
    /// Writes that are not at the write pointer.
    pub misplaced: u64,
    /// The first of them.
    pub first: Option<Misplaced>,
    /// Operations beyond the end of the disk.
    pub beyond: u64,
    /// The zones changed; noted only for a disk that may hold data.
    changes: Option<Changes>,
}

impl Fit {
    /// A fit for an empty disk.
    pub fn new(geometry: &Geometry, limits: &Limits) -> Fit {
        Fit {
            geometry: *geometry,
            granularity: limits.write_granularity_sectors.max(1),
            zones: BTreeMap::new(),
            misplaced: 0,
            first: None,
            beyond: 0,
            changes: None,
        }
    }

    /// A fit for a disk that may hold data: also notes which zones the trace changes.
    pub fn with_changes(geometry: &Geometry, limits: &Limits) -> Fit {
        Fit { changes: Some(Changes::new(geometry)), ..Fit::new(geometry, limits) }
    }

    /// The zones that the trace changes, if they were noted.
    pub fn changes(&self) -> Option<&Changes> {
        self.changes.as_ref()
    }

    /// Whether every operation can be sent to its own address.
    pub fn is_exact(&self) -> bool {
        self.misplaced == 0 && self.beyond == 0
    }

    /// The zones that were partly written when the trace began, each with its write pointer.
    pub fn begin(&self) -> Vec<(ZoneNo, u32)> {
        let partly = self.zones.iter().filter(|(_, z)| z.0 > 0);
        partly.map(|(&zone, z)| (ZoneNo(zone), z.0)).collect()
    }

    fn see(&mut self, event: &TraceEvent) {
        if let Some(changes) = &mut self.changes {
            changes.see(event);
        }
        let g = &self.geometry;
        if event.op == Op::ZoneResetAll {
            self.zones.values_mut().for_each(|z| z.1 = 0);
            return;
        }
        if event.op == Op::Flush {
            return;
        }
        let (mut at, end) = (event.sector, event.sector + event.sectors_on(g));
        if end > g.capacity().0 {
            self.beyond += 1;
            return;
        }
        while at < end {
            let (zone, offset) = g.zone_of(Sector(at));
            let len = (end - at).min(u64::from(g.zone_len_sectors(zone) - offset)) as u32;
            at += u64::from(len);
            if g.is_conventional(zone) {
                continue;
            }
            let capacity = g.capacity_of(zone);
            let is_whole = |sectors: u32| sectors.is_multiple_of(self.granularity);
            match event.op {
                Op::Write | Op::WriteZeroes => {
                    let z = self.zones.entry(zone.0).or_insert((offset, offset));
                    let aligned = is_whole(len) && is_whole(offset);
                    if z.1 == offset && aligned && len <= capacity.saturating_sub(offset) {
                        z.1 += len;
                        continue;
                    }
                    let why = match (aligned, z.1 == offset) {
                        (false, _) => MisplacedWhy::PartOfBlock,
                        (true, false) => MisplacedWhy::WritePointer,
                        (true, true) => MisplacedWhy::PastCapacity,
                    };
                    if z.0 >= capacity || !aligned && z.0 == z.1 {
                        // A write pointer cannot have started there.
                        *z = (0, 0);
                    }
                    let write_pointer = z.1;
                    return self.misplace(event, zone, write_pointer, why);
                }
                // A disk with such blocks accepts only appends of whole blocks.
                Op::ZoneAppend if !is_whole(len) => {
                    let write_pointer = self.zones.entry(zone.0).or_insert((0, 0)).1;
                    let why = MisplacedWhy::PartOfBlock;
                    return self.misplace(event, zone, write_pointer, why);
                }
                Op::ZoneAppend => {
                    let z = self.zones.entry(zone.0).or_insert((0, 0));
                    z.1 = z.1.saturating_add(len).min(capacity);
                }
                Op::ZoneReset => self.zones.entry(zone.0).or_insert((0, 0)).1 = 0,
                Op::ZoneFinish => self.zones.entry(zone.0).or_insert((0, 0)).1 = capacity,
                // A discard of a whole zone is sent as a reset.
                Op::Discard if offset == 0 && len == g.zone_len_sectors(zone) => {
                    self.zones.entry(zone.0).or_insert((0, 0)).1 = 0;
                }
                _ => {}
            }
        }
    }

    fn misplace(
        &mut self,
        event: &TraceEvent,
        zone: ZoneNo,
        write_pointer: u32,
        why: MisplacedWhy,
    ) {
        self.misplaced += 1;
        let (line, sector) = (event.line, event.sector);
        self.first.get_or_insert(Misplaced { why, line, sector, zone: zone.0, write_pointer });
    }
}
