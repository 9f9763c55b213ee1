//! The disk of a world as the I/O queues of a target see it, in virtual time.
//!
//! The queues are here, as in the reactor of a server, because a queue may have work of others even if its client
//! waits for nothing, or has gone.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use zoneplug_buf::{AlignedBuf, Lent};
use zoneplug_core::disk::{Disk, DiskQueue};
use zoneplug_core::zone::Geometry;
use zoneplug_core::{Bio, Bios, Flags, Nanos, Op, Sector, Status};
use zoneplug_nvme::io_queue::{DiskClient, Disks};
use zoneplug_recovery::DiskRecovery;

/// A request to a disk, or its answer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Note {
    pub(super) op: Op,
    pub(super) sector: Sector,
    pub(super) at: Nanos,
    /// `None`: the disk has taken the BIO.
    pub(super) ended: Option<Status>,
}

/// A queue of the disk.
#[derive(Debug)]
struct Opened {
    queue: DiskQueue,
    /// Whether its client has gone, with no work of its own left.
    left: bool,
}

/// The disk, its queues, and the state that outlives their clients.
#[derive(Debug)]
pub(super) struct ServedDisk {
    pub(super) disk: Disk,
    pub(super) now: Cell<Nanos>,
    pub(super) notes: RefCell<Vec<Note>>,
    /// Commands that were on the disk when their host sent them again.
    pub(super) replayed: Cell<u64>,
    recovery: DiskRecovery,
    queues: RefCell<BTreeMap<u32, Opened>>,
}

impl ServedDisk {
    pub(super) fn new(disk: Disk) -> Rc<ServedDisk> {
        Rc::new(ServedDisk {
            now: Cell::new(Nanos(0)),
            notes: RefCell::default(),
            replayed: Cell::new(0),
            recovery: DiskRecovery::new(disk.geometry()),
            queues: RefCell::default(),
            disk,
        })
    }

    fn note(&self, bio: &Bio, ended: Option<Status>) {
        let (op, sector, at) = (bio.op, bio.sector, self.now.get());
        self.notes.borrow_mut().push(Note { op, sector, at, ended });
    }

    /// Calls `f` with a queue, and the time.
    fn with<T>(&self, id: u32, f: impl FnOnce(&mut DiskQueue, Nanos) -> T) -> T {
        let mut queues = self.queues.borrow_mut();
        let opened = queues.get_mut(&id).expect("a queue with a client");
        f(&mut opened.queue, self.now.get())
    }

    /// Runs the queues whose clients have gone, on which there may be work of others. Returns whether one has ended.
    pub(super) fn run_left(&self) -> bool {
        let mut queues = self.queues.borrow_mut();
        for opened in queues.values_mut().filter(|o| o.left) {
            opened.queue.poll_for_owner(self.now.get());
        }
        let before = queues.len();
        queues.retain(|_, o| !o.left || o.queue.is_busy());
        queues.len() < before
    }

    /// Runs all queues for their clients, which may have nothing to wait for: work of others may be on them. Returns
    /// whether anything was finished.
    pub(super) fn run_for_clients(&self) -> bool {
        let mut any = false;
        for opened in self.queues.borrow_mut().values_mut().filter(|o| !o.left) {
            any |= opened.queue.poll_for_owner(self.now.get());
        }
        any
    }

    pub(super) fn next_deadline(&self) -> Option<Nanos> {
        self.queues.borrow().values().filter_map(|o| o.queue.next_deadline()).min()
    }

    /// Returns whether further polls make progress although no time passes. A poll of a device without latency ends
    /// one part of a long write and sends the next, a device that takes nothing counts the polls, and a queue may
    /// have got back a BIO that another queue has sent.
    pub(super) fn needs_polls(&self) -> bool {
        self.queues.borrow().values().any(|o| o.queue.is_busy() || o.queue.has_completions())
    }
}

/// The disk for the queue of one connection.
#[derive(Debug, Clone)]
pub(super) struct DiskOfQueue {
    pub(super) served: Rc<ServedDisk>,
    pub(super) tags: u16,
}

impl Disks for DiskOfQueue {
    type Client = QueueClient;

    fn open(&self, disk: u32, entries: u32) -> Option<QueueClient> {
        assert_eq!(disk, 0, "there is one disk");
        let queue = self.served.disk.open_polled_queue(entries, self.tags).expect("a queue");
        let served = self.served.clone();
        let mut queues = served.queues.borrow_mut();
        let id = queues.last_key_value().map_or(0, |(id, _)| id + 1);
        queues.insert(id, Opened { queue, left: false });
        drop(queues);
        Some(QueueClient { served, id, outstanding: 0 })
    }

    fn fills_buffers(&self, _: u32) -> bool {
        false
    }

    fn geometry(&self, _: u32) -> Geometry {
        self.served.disk.geometry()
    }

    fn recovery(&self, _: u32) -> &DiskRecovery {
        &self.served.recovery
    }

    fn count(&self, _: u32, _: Op, _: u32, _: bool) {}

    fn count_replayed(&self, _: u32) {
        self.served.replayed.set(self.served.replayed.get() + 1);
    }
}

/// A client of the disk.
#[derive(Debug)]
pub(super) struct QueueClient {
    served: Rc<ServedDisk>,
    id: u32,
    outstanding: u32,
}

impl DiskClient for QueueClient {
    fn submit(&mut self, bios: &mut Bios) -> usize {
        // The last try of a refused write is not held: its wait counts from the try before.
        let asked: Vec<_> = bios
            .iter()
            .map(|b| (!b.flags.contains(Flags::NOWAIT)).then_some((b.op, b.sector)))
            .collect();
        let at = self.served.now.get();
        let taken = self.served.with(self.id, |queue, now| queue.submit(now, bios));
        self.outstanding += taken as u32;
        let notes = asked[..taken].iter().flatten();
        let notes = notes.map(|&(op, sector)| Note { op, sector, at, ended: None });
        self.served.notes.borrow_mut().extend(notes);
        taken
    }

    fn poll(&mut self, done: &mut Bios) {
        let before = done.len();
        self.served.with(self.id, |queue, now| queue.poll(now, done));
        for bio in done.iter().skip(before) {
            self.served.note(bio, Some(bio.status));
        }
        self.outstanding -= (done.len() - before) as u32;
    }

    fn outstanding(&self) -> u32 {
        self.outstanding
    }

    fn reclaim(&mut self, bio: &mut Bio, lent: Lent) -> Option<AlignedBuf> {
        Some(lent.take_back(bio.take_buf()).expect("a BIO comes back with its memory"))
    }

    fn refuse_held(&mut self) {
        self.served.with(self.id, |queue, _| queue.refuse_held());
    }

    fn keep_lent(&mut self, _: impl Iterator<Item = Lent>) {
        panic!("no server of a world ends with its commands in flight");
    }
}

impl Drop for QueueClient {
    fn drop(&mut self) {
        if let Some(opened) = self.served.queues.borrow_mut().get_mut(&self.id) {
            opened.left = true;
        }
    }
}
