//! A device that calls a listener for every command on its way down and up, and changes none. blktrace shows the same
//! events as *D* and *C*.
//!
//! The events come in the order of the device's calls. A command costs two calls of the listener.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Waker;
use zoneplug_core::Error;
use zoneplug_core::bio::{Command, Commands, Flags, Op, Status};
use zoneplug_core::device::{Device, Queue};
use zoneplug_core::unit::{Nanos, Sector};
use zoneplug_core::zone::{Geometry, Limits, Spindles};

/// One command at the seam.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TapEvent {
    /// The time of the event, on the clock of the program that drives the disk.
    pub at: Nanos,
    /// The number of the queue, in the order in which queues were opened.
    pub queue: u32,
    /// `None`: the command goes down. Otherwise its status on the way up.
    pub status: Option<Status>,
    /// Its operation.
    pub op: Op,
    /// Its flags.
    pub flags: Flags,
    /// First sector. For an append on the way up: where the data landed.
    pub sector: Sector,
    /// Length in sectors.
    pub len_sectors: u32,
}

impl TapEvent {
    fn of(c: &Command, at: Nanos, queue: u32, status: Option<Status>) -> TapEvent {
        let (op, flags, sector) = (c.op, c.flags, c.sector);
        TapEvent { at, queue, status, op, flags, sector, len_sectors: c.len_sectors }
    }
}

/// The function that gets the events. Any thread that drives the disk may call it, but never two at once for one
/// queue.
pub type Listener = dyn Fn(&TapEvent) + Send + Sync;

/// A device that reports every command to a [`Listener`].
///
/// ```
/// use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
/// use std::{sync::Arc, task::Waker};
/// use zoneplug_devices::emu::{EmuConfig, EmuDisk};
/// use zoneplug_devices::stack::TapDisk;
/// use zoneplug_core::{Command, Commands, Device, Nanos, Op, Sector};
/// let disk = EmuDisk::new("null,zones=4,zone-size=64K".parse::<EmuConfig>().unwrap()).unwrap();
/// let heard = Arc::new(AtomicU64::new(0));
/// let count = heard.clone();
/// let tap = TapDisk::new(disk, Arc::new(move |_: &_| { count.fetch_add(1, Relaxed); }));
/// let mut queue = tap.open_queue(4, Waker::noop().clone()).unwrap();
/// let mut list = Commands::from([Command::without_data(Op::Flush, Sector(0), 0)]);
/// queue.submit(Nanos(0), &mut list);
/// queue.poll(Nanos(0), &mut list);
/// assert_eq!(heard.load(Relaxed), 2);
/// ```
pub struct TapDisk {
    inner: Arc<dyn Device>,
    listener: Arc<Listener>,
    queues: AtomicU32,
}

impl fmt::Debug for TapDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TapDisk").field("queues", &self.queues).finish_non_exhaustive()
    }
}

impl TapDisk {
    /// Wraps `inner`. `listener` is called for every command that goes through.
    pub fn new(inner: Arc<dyn Device>, listener: Arc<Listener>) -> Arc<TapDisk> {
        Arc::new(TapDisk { inner, listener, queues: AtomicU32::new(0) })
    }

    /// Returns the device below.
    pub fn inner(&self) -> &Arc<dyn Device> {
        &self.inner
    }
}

impl Device for TapDisk {
    fn geometry(&self) -> &Geometry {
        self.inner.geometry()
    }

    fn limits(&self) -> &Limits {
        self.inner.limits()
    }

    /// Returns true, because every event carries a time.
    fn is_timed(&self) -> bool {
        true
    }

    fn spindles(&self) -> Spindles {
        self.inner.spindles()
    }

    fn open_queue(&self, depth: u16, waker: Waker) -> Result<Box<dyn Queue>, Error> {
        Ok(Box::new(TapQueue {
            inner: self.inner.open_queue(depth, waker)?,
            listener: Arc::clone(&self.listener),
            nr: self.queues.fetch_add(1, Ordering::Relaxed),
            going: Vec::with_capacity(usize::from(depth)),
        }))
    }
}

struct TapQueue {
    inner: Box<dyn Queue>,
    listener: Arc<Listener>,
    nr: u32,
    /// Events of commands that are offered to the device. Afterwards the device's answer shows which of them it took.
    going: Vec<TapEvent>,
}

impl Queue for TapQueue {
    fn submit(&mut self, now: Nanos, commands: &mut Commands) {
        self.going.clear();
        self.going.extend(commands.iter().map(|c| TapEvent::of(c, now, self.nr, None)));
        self.inner.submit(now, commands);
        let taken = self.going.len() - commands.len();
        self.going[..taken].iter().for_each(|e| (self.listener)(e));
    }

    fn poll(&mut self, now: Nanos, done: &mut Commands) {
        let first = done.len();
        self.inner.poll(now, done);
        for c in done.range(first..) {
            (self.listener)(&TapEvent::of(c, now, self.nr, Some(c.status)));
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
