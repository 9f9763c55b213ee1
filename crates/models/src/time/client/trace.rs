//! Replays a block trace: sends each operation at its time, or as soon as the window allows. Owns
//! the clock of the replay and the state of each operation; `place.rs` decides where its parts go.

use super::place::{Adapted, Part, Placement, Placing};
use crate::time::io::{Client, Finished, Io, MAX_BYTES};
use crate::time::trace::TraceEvent;
use std::fmt;
use zoneplug_core::zone::{Geometry, Limits};
use zoneplug_core::{Error, Flags, Nanos, Status, ZoneNo};

/// The schedule of operations.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pace {
    /// The speed relative to the recording. `None`: the recorded times do not count.
    pub speed: Option<f64>,
    /// Most operations outstanding. `None`: no limit, so no operation waits for earlier ones.
    pub window: Option<u32>,
}

/// A completed operation.
#[derive(Debug, Clone, Copy)]
pub struct Replayed {
    /// The recorded operation.
    pub event: TraceEvent,
    /// Time from its due time to the last completion of its parts; with a window, from its
    /// submission.
    pub took: Nanos,
    /// The first failure of its parts.
    pub status: Status,
}

/// An operation with parts outstanding.
#[derive(Debug, Clone, Copy)]
struct Slot {
    event: TraceEvent,
    /// The time from which the latency counts.
    since: Nanos,
    /// Parts that are not completed.
    parts: u32,
    /// The first failure of a part.
    status: Status,
}

/// Most BIOs outstanding. Further operations wait in the client; their latency counts from their
/// due time.
const MAX_BIOS: u32 = 32 << 10;

/// The token of resets and finishes that the client sends by itself, for no recorded operation.
const OWN: u32 = u32::MAX;

/// The source of operations; returns `None` at the end.
type Source<'a> = Box<dyn FnMut() -> Result<Option<TraceEvent>, Error> + 'a>;

/// A client that replays a trace.
///
/// ```
/// use zoneplug_core::{Nanos, Op};
/// use zoneplug_devices::emu::timing::Profile;
/// use zoneplug_models::time::{Pace, Placement, Run, TraceClient};
/// use zoneplug_models::time::trace::{Events, Reader};
/// let text = "fio version 2 iolog\nf write 0 65536\nf write 65536 65536\nf read 0 4096\n";
/// let mut trace = Reader::new(text.as_bytes(), Events::Queued, None).unwrap();
/// let profile = Profile::builtin("smr30").unwrap();
/// let mut done = 0;
/// let mut client = TraceClient::new(
///     Placement::Exact { begin: Vec::new() },
///     &profile.limits(),
///     Pace { speed: None, window: Some(1) },
///     Box::new(move || trace.next_event()),
///     Box::new(|r| done += u32::from(r.status.is_ok())),
/// );
/// let mut run = Run::new(profile.clone());
/// (run.warm_up, run.length) = (Nanos(0), Nanos(u64::MAX >> 2));
/// let report = run.go_with(&mut [&mut client]).unwrap();
/// assert!(client.makespan() > Nanos(0) && report.clients[0].bytes == 135_168);
/// drop(client);
/// assert_eq!(done, 3);
/// ```
pub struct TraceClient<'a> {
    source: Source<'a>,
    seen: Box<dyn FnMut(&Replayed) + 'a>,
    pace: Pace,
    placing: Placing,
    begin: Nanos,
    /// The next operation, read but not yet sent.
    next: Option<TraceEvent>,
    exhausted: bool,
    timer: bool,
    slots: Vec<Slot>,
    free: Vec<u32>,
    outstanding: u32,
    bios: u32,
    last: Nanos,
    busy: Nanos,
    busy_since: Nanos,
    parts: Vec<Part>,
    adapted: Adapted,
}

impl fmt::Debug for TraceClient<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TraceClient")
            .field("pace", &self.pace)
            .field("outstanding", &self.outstanding)
            .finish_non_exhaustive()
    }
}

impl<'a> TraceClient<'a> {
    /// A client for a disk with these limits that sends the operations of `source`, and calls
    /// `seen` when an operation completes.
    pub fn new(
        place: Placement,
        limits: &Limits,
        pace: Pace,
        source: Source<'a>,
        seen: Box<dyn FnMut(&Replayed) + 'a>,
    ) -> TraceClient<'a> {
        TraceClient {
            source,
            seen,
            pace,
            placing: Placing::new(place, limits, OWN),
            begin: Nanos(0),
            next: None,
            exhausted: false,
            timer: false,
            slots: Vec::new(),
            free: Vec::new(),
            outstanding: 0,
            bios: 0,
            last: Nanos(0),
            busy: Nanos(0),
            busy_since: Nanos(0),
            parts: Vec::new(),
            adapted: Adapted::default(),
        }
    }

    /// The time from the first operation to the last completion.
    pub fn makespan(&self) -> Nanos {
        Nanos(self.last.0.saturating_sub(self.begin.0))
    }

    /// The time in which any BIO was outstanding; if the run ended early, up to the last
    /// completion.
    pub fn busy(&self) -> Nanos {
        let goes_on =
            if self.outstanding > 0 { self.last.0.saturating_sub(self.busy_since.0) } else { 0 };
        self.busy.plus(Nanos(goes_on))
    }

    /// How the replay differed from the recording.
    pub fn adapted(&self) -> Adapted {
        self.adapted
    }

    /// The due time of an operation.
    fn due(&self, event: &TraceEvent) -> Nanos {
        match self.pace.speed {
            Some(speed) => self.begin.plus(Nanos((event.at.0 as f64 / speed) as u64)),
            None => self.begin,
        }
    }

    /// Sends the operations that are due, as far as the window allows.
    fn pump(&mut self, io: &mut Io) {
        while self.bios < MAX_BIOS && self.pace.window.is_none_or(|w| self.outstanding < w) {
            if self.next.is_none() && !self.exhausted {
                match (self.source)() {
                    Ok(next) => (self.exhausted, self.next) = (next.is_none(), next),
                    Err(e) => return io.end(Err(e)),
                }
            }
            let Some(event) = self.next else {
                if self.outstanding == 0 {
                    io.end(Ok(()));
                }
                return;
            };
            let due = self.due(&event);
            if due > io.now() {
                if !self.timer {
                    self.timer = true;
                    io.at(due, 0);
                }
                return;
            }
            self.next = None;
            let since = if self.pace.window.is_some() { io.now() } else { due };
            self.send(io, event, since);
        }
    }

    fn send(&mut self, io: &mut Io, event: TraceEvent, since: Nanos) {
        let mut parts = std::mem::take(&mut self.parts);
        self.placing.split(io.geometry(), &event, MAX_BYTES >> 9, &mut parts, &mut self.adapted);
        if self.outstanding == 0 {
            self.busy_since = io.now();
        }
        self.outstanding += 1;
        let slot = Slot { event, since, parts: parts.len() as u32, status: Status::Ok };
        let i = match self.free.pop() {
            Some(i) => {
                self.slots[i as usize] = slot;
                i
            }
            None => {
                self.slots.push(slot);
                self.slots.len() as u32 - 1
            }
        };
        let mut flags = Flags::NONE;
        if event.fua {
            flags = flags.with(Flags::FUA);
        }
        if event.preflush {
            flags = flags.with(Flags::PREFLUSH);
        }
        if parts.is_empty() {
            // A discard of less than a zone has no parts.
            self.complete(i, io.now());
        }
        for mut part in parts.drain(..) {
            part.token = i;
            part.flags = flags;
            self.placing.queue(part);
        }
        self.parts = parts;
        self.submit(io);
    }

    /// Submits the parts that may be sent now.
    fn submit(&mut self, io: &mut Io) {
        while self.bios < MAX_BIOS
            && let Some(part) = self.placing.next(&mut self.adapted)
        {
            self.bios += 1;
            io.submit_with(part.op, part.sector, part.sectors, part.flags, part.token);
        }
    }

    fn part_completed(&mut self, io: &mut Io, bio: Finished, status: Status) {
        self.bios -= 1;
        self.placing.done(io.geometry(), bio.op, bio.sector, bio.token == OWN, status);
        if bio.token != OWN {
            let slot = &mut self.slots[bio.token as usize];
            if slot.status.is_ok() {
                slot.status = status;
            }
            slot.parts -= 1;
            if slot.parts == 0 {
                self.complete(bio.token, io.completed_at());
            }
        }
        self.submit(io);
        self.pump(io);
    }

    fn complete(&mut self, i: u32, at: Nanos) {
        let slot = self.slots[i as usize];
        // A completion is dated back by the host's work. For an operation that is refused at once,
        // that gives a time before its submission.
        let at = at.max(slot.since);
        self.free.push(i);
        self.outstanding -= 1;
        self.last = self.last.max(at);
        if self.outstanding == 0 {
            self.busy = self.busy.plus(Nanos(at.0.saturating_sub(self.busy_since.0)));
        }
        let took = Nanos(at.0 - slot.since.0);
        (self.seen)(&Replayed { event: slot.event, took, status: slot.status });
    }
}

impl Client for TraceClient<'_> {
    fn prepare(&mut self, _: &Geometry) -> Vec<(ZoneNo, u32)> {
        self.placing.begin()
    }

    fn start(&mut self, io: &mut Io) {
        self.begin = io.now();
        self.last = io.now();
        self.pump(io);
    }

    fn finished(&mut self, io: &mut Io, bio: Finished) {
        self.part_completed(io, bio, Status::Ok);
    }

    fn failed(&mut self, io: &mut Io, bio: Finished, status: Status) -> bool {
        self.part_completed(io, bio, status);
        true
    }

    fn timer(&mut self, io: &mut Io, _: u32) {
        self.timer = false;
        self.pump(io);
    }
}
