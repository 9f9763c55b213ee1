//! The events of a trace in the order of their times, repeatable. Owns the sorting.
//!
//! Most traces are in order, or nearly so: then each pass reads the files again and sorts in a
//! window. A trace with an event too late for the window is sorted once: in memory, or in sorted
//! runs that are written to an unnamed file and merged as they are read. So memory is bounded for
//! any order of the lines.

use super::Trace;
use crate::time::trace::{Fit, Format, Survey, TraceEvent, WINDOW};
use crate::workers::Workers;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use zoneplug_core::{Error, ErrorKind, Nanos, Op};
use zoneplug_host::scratch_file;

/// The number of events sorted in memory: 40 MB.
pub(super) const ROOM: usize = 1 << 20;
/// Bytes of an event in a run.
const RECORD: usize = 40;
/// Events of a run that are read at once.
const PIECE: usize = 1 << 10;

/// Returns the next event; `None` at the end.
pub(super) type Next<'a> = Box<dyn FnMut() -> Result<Option<TraceEvent>, Error> + 'a>;

/// A trace with a known way to order its events.
#[derive(Debug)]
pub(super) struct Ordered<'a> {
    trace: &'a Trace<'a>,
    order: Order,
}

/// The source of the order of events.
#[derive(Debug)]
enum Order {
    /// The lines are in order; the value is the earliest time.
    Lines(Nanos),
    /// A window of this many operations sorts them.
    Window(usize),
    Sorted(Sorted),
}

impl<'a> Ordered<'a> {
    /// Reads a trace for its survey and its fit on the disks, and sorts it if necessary. If the
    /// workers are asked to end meanwhile, all of this covers a part.
    pub(super) fn look(
        trace: &'a Trace<'a>,
        fits: &dyn Fn() -> Vec<Fit>,
        workers: &Workers<'_>,
    ) -> Result<(Ordered<'a>, Survey, Vec<Fit>), Error> {
        let window = WINDOW.min(trace.room);
        let mut fitted = fits();
        let behind = Arc::default();
        let reader = trace.reader(Some(workers), &behind)?.with_window(window);
        let mut survey = Survey::of(reader, &mut fitted)?;
        survey.seen.behind_gzip = behind.load(Ordering::Relaxed);
        let seen = &survey.seen;
        let in_order = seen.backwards == 0 && survey.format != Format::Blktrace;
        let order = match seen.earliest {
            Some(earliest) if seen.late > 0 => {
                let reader = trace.reader(Some(workers), &Arc::default())?;
                let mut reader = reader.in_order_of_lines(earliest);
                let sorted = Sorted::of(&mut || reader.next_event(), trace.room)?;
                fitted = fits();
                survey = survey.in_order(&mut *sorted.events()?, &mut fitted)?;
                Order::Sorted(sorted)
            }
            Some(earliest) if in_order => Order::Lines(earliest),
            _ => Order::Window(window),
        };
        Ok((Ordered { trace, order }, survey, fitted))
    }

    /// All events, from the first.
    pub(super) fn events(&self) -> Result<Next<'_>, Error> {
        let reader = || self.trace.reader(None, &Arc::default());
        let mut reader = match &self.order {
            Order::Lines(earliest) => reader()?.in_order_of_lines(*earliest),
            Order::Window(operations) => reader()?.with_window(*operations),
            Order::Sorted(sorted) => return sorted.events(),
        };
        Ok(Box::new(move || reader.next_event()))
    }
}

/// Sorted events.
#[derive(Debug)]
struct Sorted {
    /// All events, if they fit in memory.
    held: Vec<TraceEvent>,
    /// Otherwise a file of all events, and the number of events of each run.
    file: Option<(File, Vec<u64>)>,
}

impl Sorted {
    /// Sorts events, of which `room` fit in memory.
    fn of(
        next: &mut dyn FnMut() -> Result<Option<TraceEvent>, Error>,
        room: usize,
    ) -> Result<Sorted, Error> {
        let room = room.max(1);
        let (mut held, mut file) = (Vec::new(), None);
        while let Some(event) = next()? {
            if held.len() == room {
                write_run(&mut held, &mut file)?;
            }
            held.push(event);
        }
        if file.is_some() {
            write_run(&mut held, &mut file)?;
            return Ok(Sorted { held: Vec::new(), file });
        }
        held.sort_unstable_by_key(key);
        Ok(Sorted { held, file })
    }

    fn events(&self) -> Result<Next<'_>, Error> {
        let Some((file, lengths)) = &self.file else {
            let mut all = self.held.iter().copied();
            return Ok(Box::new(move || Ok(all.next())));
        };
        let mut runs = Vec::new();
        let mut begin = 0;
        for length in lengths {
            runs.push(Run { at: begin, end: begin + length, piece: Vec::new() });
            begin += length;
        }
        let mut heads = BinaryHeap::new();
        for (i, run) in runs.iter_mut().enumerate() {
            heads.extend(run.next(file)?.map(|e| Reverse(Head(e, i))));
        }
        Ok(Box::new(move || {
            let Some(Reverse(Head(event, i))) = heads.pop() else { return Ok(None) };
            heads.extend(runs[i].next(file)?.map(|e| Reverse(Head(e, i))));
            Ok(Some(event))
        }))
    }
}

/// Events are ordered by time, then by line.
fn key(event: &TraceEvent) -> (Nanos, u64) {
    (event.at, event.line)
}

/// The first event of the rest of a run.
struct Head(TraceEvent, usize);

impl PartialEq for Head {
    fn eq(&self, other: &Head) -> bool {
        key(&self.0) == key(&other.0)
    }
}

impl Eq for Head {}

impl PartialOrd for Head {
    fn partial_cmp(&self, other: &Head) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Head {
    fn cmp(&self, other: &Head) -> std::cmp::Ordering {
        key(&self.0).cmp(&key(&other.0))
    }
}

/// The rest of a run: indices of events in the file, and the events already read, the next one
/// last.
struct Run {
    at: u64,
    end: u64,
    piece: Vec<TraceEvent>,
}

impl Run {
    fn next(&mut self, file: &File) -> Result<Option<TraceEvent>, Error> {
        if self.piece.is_empty() {
            let n = (self.end - self.at).min(PIECE as u64);
            let mut bytes = vec![0; n as usize * RECORD];
            file.read_exact_at(&mut bytes, self.at * RECORD as u64).map_err(|e| failed(&e))?;
            self.at += n;
            self.piece.extend(bytes.chunks_exact(RECORD).rev().filter_map(decode));
        }
        Ok(self.piece.pop())
    }
}

/// Sorts the held events and appends them to the file as a run.
fn write_run(held: &mut Vec<TraceEvent>, file: &mut Option<(File, Vec<u64>)>) -> Result<(), Error> {
    if file.is_none() {
        *file = Some((scratch_file().map_err(|e| failed(&e))?, Vec::new()));
    }
    let Some((file, lengths)) = file else { return Ok(()) };
    held.sort_unstable_by_key(key);
    let mut out = BufWriter::with_capacity(1 << 20, &*file);
    for event in held.iter() {
        out.write_all(&encode(event)).map_err(|e| failed(&e))?;
    }
    out.flush().map_err(|e| failed(&e))?;
    lengths.push(held.len() as u64);
    held.clear();
    Ok(())
}

fn encode(e: &TraceEvent) -> [u8; RECORD] {
    let mut bytes = [0; RECORD];
    for (i, n) in [e.line, e.at.0, e.sector, e.sectors].into_iter().enumerate() {
        bytes[i * 8..][..8].copy_from_slice(&n.to_ne_bytes());
    }
    bytes[32..35].copy_from_slice(&[e.op as u8, u8::from(e.fua), u8::from(e.preflush)]);
    bytes
}

fn decode(bytes: &[u8]) -> Option<TraceEvent> {
    let number = |i: usize| bytes[i * 8..][..8].try_into().ok().map(u64::from_ne_bytes);
    Some(TraceEvent {
        line: number(0)?,
        at: Nanos(number(1)?),
        op: *Op::ALL.get(usize::from(bytes[32]))?,
        fua: bytes[33] != 0,
        preflush: bytes[34] != 0,
        sector: number(2)?,
        sectors: number(3)?,
    })
}

fn failed(e: &std::io::Error) -> Error {
    let dir = std::env::temp_dir();
    Error::new(ErrorKind::Io, format!("sorting the trace in {}: {e}", dir.display()))
        .hint("TMPDIR=DIR, a directory with room for 40 bytes of each operation")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(line: u64, at: u64) -> TraceEvent {
        let op = Op::ALL[(line % 11) as usize];
        let (fua, preflush) = (line.is_multiple_of(2), line.is_multiple_of(3));
        TraceEvent { line, at: Nanos(at), op, fua, preflush, sector: line << 30, sectors: at }
    }

    /// Events are sorted by time and line, complete, whether they fit in memory or not.
    #[test]
    fn events_are_sorted_in_memory_and_in_a_file() {
        for n in [0, 1, 2, 99, 100, 101, 5_000] {
            let all: Vec<TraceEvent> =
                (0..n).map(|i| event(i + 1, i * 7_919 % 1_009 * 1_000)).collect();
            let mut want = all.clone();
            want.sort_by_key(key);
            for room in [1, 7, 100, 3_000, ROOM] {
                // One file access for each event would be slow.
                if room == 1 && n > 200 {
                    continue;
                }
                let mut source = all.iter().copied();
                let sorted = Sorted::of(&mut || Ok(source.next()), room).unwrap();
                assert_eq!(sorted.file.is_some(), n > room as u64);
                for _ in 0..2 {
                    let mut next = sorted.events().unwrap();
                    let got: Vec<_> = std::iter::from_fn(|| next().unwrap()).collect();
                    assert!(got == want, "{n} with room for {room}");
                }
            }
        }
    }
}
