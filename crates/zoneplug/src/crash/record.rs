//! Records the commands of the code under test: a device that notes every change when it is sent and
//! when it completes.

use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Waker;
use zoneplug_core::bio::{Command, Commands, Flags, Op, Status};
use zoneplug_core::zone::{Geometry, Limits, Spindles};
use zoneplug_core::{Device, Error, Nanos, Queue, Sector};

/// A command that is not a read or a report: it changes the disk, or what is durable.
#[derive(Debug, Clone)]
pub(super) struct Change {
    pub(super) op: Op,
    pub(super) flags: Flags,
    /// The sector; for a completed append, the one where the data landed.
    pub(super) sector: Sector,
    pub(super) len_sectors: u32,
    /// The data of writes and appends.
    pub(super) data: Vec<u8>,
    /// The number of events before its completion, and its status.
    pub(super) done: Option<(usize, Status)>,
}

/// An event at the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TapeEvent {
    /// The change with this number is sent.
    Sent(usize),
    /// The change with this number completes or fails.
    Done(usize),
}

/// The record of a run of the work.
#[derive(Debug, Default)]
pub(super) struct Tape {
    pub(super) changes: Vec<Change>,
    pub(super) events: Vec<TapeEvent>,
}

/// Records the tape of a device in use.
#[derive(Debug, Clone, Default)]
pub(super) struct Recorder(Arc<Mutex<Tape>>);

impl Recorder {
    pub(super) fn tape(&self) -> MutexGuard<'_, Tape> {
        zoneplug_core::poison::lock(&self.0)
    }

    /// The number of events so far.
    pub(super) fn now(&self) -> usize {
        self.tape().events.len()
    }

    /// Takes the tape; later events are not on it.
    pub(super) fn take(&self) -> Tape {
        std::mem::take(&mut *self.tape())
    }
}

/// A device above `inner` that records changes.
pub(super) struct Recorded {
    inner: Arc<dyn Device>,
    limits: Limits,
    recorder: Recorder,
}

impl Recorded {
    pub(super) fn new(inner: Arc<dyn Device>, recorder: Recorder) -> Arc<Recorded> {
        let limits = Limits { write_cache: true, ..inner.limits().clone() };
        Arc::new(Recorded { inner, limits, recorder })
    }
}

impl Device for Recorded {
    fn geometry(&self) -> &Geometry {
        self.inner.geometry()
    }

    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn is_timed(&self) -> bool {
        self.inner.is_timed()
    }

    fn never_panics(&self) -> bool {
        self.inner.never_panics()
    }

    fn spindles(&self) -> Spindles {
        self.inner.spindles()
    }

    fn open_queue(&self, depth: u16, waker: Waker) -> Result<Box<dyn Queue>, Error> {
        Ok(Box::new(RecordedQueue {
            inner: self.inner.open_queue(depth, waker)?,
            recorder: self.recorder.clone(),
            below: Vec::new(),
        }))
    }
}

struct RecordedQueue {
    inner: Box<dyn Queue>,
    recorder: Recorder,
    /// The address of each command at the inner device, and the number of its change.
    below: Vec<(usize, usize)>,
}

fn address(c: &Command) -> usize {
    std::ptr::from_ref(c).addr()
}

/// Returns the change that `c` makes. `None` for a read or a report.
fn change(c: &Command) -> Option<Change> {
    if matches!(c.op, Op::Read | Op::ReportZones) {
        return None;
    }
    let mut data = Vec::new();
    if c.op.has_data() {
        for bio in &c.bios {
            let from = data.len();
            data.resize(from + bio.data().len() as usize, 0);
            bio.data().copy_to(0, &mut data[from..]);
        }
    }
    let (op, flags) = (c.op, c.flags);
    Some(Change { op, flags, sector: c.sector, len_sectors: c.len_sectors, data, done: None })
}

impl Queue for RecordedQueue {
    fn submit(&mut self, now: Nanos, commands: &mut Commands) {
        let going: Vec<_> = commands.iter().map(|c| (address(c), change(c))).collect();
        // The lock makes the order on the tape the order in which the device takes the commands.
        let mut tape = self.recorder.tape();
        self.inner.submit(now, commands);
        let taken = going.len() - commands.len();
        for (address, change) in going.into_iter().take(taken) {
            let Some(change) = change else { continue };
            let nr = tape.changes.len();
            tape.changes.push(change);
            tape.events.push(TapeEvent::Sent(nr));
            self.below.push((address, nr));
        }
    }

    fn poll(&mut self, now: Nanos, done: &mut Commands) {
        let first = done.len();
        self.inner.poll(now, done);
        if done.len() == first {
            return;
        }
        let mut tape = self.recorder.tape();
        for c in done.range(first..) {
            let Some(i) = self.below.iter().position(|(a, _)| *a == address(c)) else { continue };
            let (_, nr) = self.below.swap_remove(i);
            let at = tape.events.len();
            let Some(change) = tape.changes.get_mut(nr) else { continue };
            change.done = Some((at, c.status));
            if c.op == Op::ZoneAppend {
                change.sector = c.sector;
            }
            tape.events.push(TapeEvent::Done(nr));
        }
    }

    fn next_deadline(&self) -> Option<Nanos> {
        self.inner.next_deadline()
    }

    fn arm(&mut self) {
        self.inner.arm();
    }

    fn arm_fd(&mut self) -> Option<i32> {
        self.inner.arm_fd()
    }
}
