//! Counters, and faults that tests inject. `exec.rs` carries out the effect of a fault on a zone.
//!
//! While no fault is injected, this costs a command one load and two increments of memory that belongs to its queue.

use super::table::lock;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use zoneplug_core::bio::{Command, Op, Status};

/// One command that is to fail: the first command of `op` after `skip` others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// Matching commands that go unharmed before it.
    pub skip: u64,
    /// The operation that matches. `None`: all.
    pub op: Option<Op>,
    /// The status with which the command ends.
    pub status: Status,
    /// For a write, write-zeroes or append that the disk would have taken: the sectors that reach the medium and move
    /// the write pointer before it fails (E8). `None`: the command has no effect.
    pub torn_sectors: Option<u32>,
}

impl Fault {
    /// Makes a fault of the next command of `op`: it fails with `status` and has no effect.
    pub fn next(op: Op, status: Status) -> Fault {
        Fault { skip: 0, op: Some(op), status, torn_sectors: None }
    }
}

/// Counts of a disk's work.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stats {
    ops: [u64; Op::ALL.len()],
    failed: BTreeMap<Status, u64>,
    /// Sectors written to the medium.
    pub written_sectors: u64,
    /// Writes that were submitted while another write to the same sequential zone was at the device: violations of
    /// I1. On a disk that keeps the order of one queue's writes, only writes of other queues count. Counted only with
    /// [`EmuConfig::paranoid`](super::EmuConfig::paranoid).
    pub overlaps: u64,
}

impl Stats {
    /// Returns how many commands of one operation came, whether or not they failed.
    pub fn commands(&self, op: Op) -> u64 {
        self.ops[op as usize]
    }

    /// Returns how many commands came in all.
    pub fn total(&self) -> u64 {
        self.ops.iter().sum()
    }

    /// Returns how many commands ended with `status`. 0 for success, which is not counted.
    pub fn failed(&self, status: Status) -> u64 {
        self.failed.get(&status).copied().unwrap_or(0)
    }

    /// Returns the statuses of failed commands, with their numbers.
    pub fn failures(&self) -> impl Iterator<Item = (Status, u64)> {
        self.failed.iter().map(|(&s, &n)| (s, n))
    }
}

/// Number of statuses that can be counted.
const STATUSES: usize = 64;
const _: () = assert!((Status::NoDevice as usize) < STATUSES);

/// Counts of one queue's work. The thread that has the queue writes them; any thread may read them.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Counters {
    ops: [AtomicU64; Op::ALL.len()],
    written_sectors: AtomicU64,
    failed: [AtomicU64; STATUSES],
}

/// Adds without a locked instruction, because only one thread writes.
#[inline]
fn add(counter: &AtomicU64, n: u64) {
    counter.store(counter.load(Relaxed).wrapping_add(n), Relaxed);
}

impl Counters {
    fn new() -> Counters {
        Counters {
            ops: [const { AtomicU64::new(0) }; Op::ALL.len()],
            written_sectors: AtomicU64::new(0),
            failed: [const { AtomicU64::new(0) }; STATUSES],
        }
    }

    #[inline]
    pub(super) fn command(&self, op: Op) {
        add(&self.ops[op as usize], 1);
    }

    #[inline]
    pub(super) fn written(&self, sectors: u32) {
        add(&self.written_sectors, u64::from(sectors));
    }

    #[cold]
    pub(super) fn failure(&self, status: Status) {
        add(&self.failed[status as usize], 1);
    }

    fn add_to(&self, s: &mut Stats) {
        for (sum, n) in s.ops.iter_mut().zip(&self.ops) {
            *sum += n.load(Relaxed);
        }
        s.written_sectors += self.written_sectors.load(Relaxed);
        for status in Status::all() {
            match self.failed[status as usize].load(Relaxed) {
                0 => {}
                n => *s.failed.entry(status).or_default() += n,
            }
        }
    }
}

/// The hooks of one disk.
#[derive(Debug)]
pub(super) struct Hooks {
    /// Whether a fault or a busy call waits. A command without faults looks at nothing else.
    armed: AtomicBool,
    faults: Mutex<Vec<Fault>>,
    busy: AtomicU64,
    /// Counts of closed queues, and the counters of open ones.
    counters: Mutex<(Stats, Vec<Arc<Counters>>)>,
    /// If paranoid: for each zone the number of writes at the device, and the queue of the last one. Else empty.
    writes: Box<[(AtomicU32, AtomicUsize)]>,
    overlaps: AtomicU64,
}

impl Hooks {
    pub(super) fn new(paranoid_zones: u32) -> Hooks {
        Hooks {
            armed: AtomicBool::new(false),
            faults: Mutex::default(),
            busy: AtomicU64::new(0),
            counters: Mutex::default(),
            writes: (0..paranoid_zones).map(|_| <_>::default()).collect(),
            overlaps: AtomicU64::new(0),
        }
    }

    /// Returns whether a fault or a busy call waits.
    #[inline]
    pub(super) fn armed(&self) -> bool {
        self.armed.load(Relaxed)
    }

    pub(super) fn add_fault(&self, fault: Fault) {
        lock(&self.faults).push(fault);
        self.armed.store(true, Relaxed);
    }

    pub(super) fn set_busy(&self, calls: u64) {
        let _faults = lock(&self.faults);
        self.busy.store(calls, Relaxed);
        self.armed.store(true, Relaxed);
    }

    /// Returns whether this call of submit takes nothing.
    #[cold]
    pub(super) fn take_busy(&self) -> bool {
        let faults = lock(&self.faults);
        let left = self.busy.load(Relaxed);
        self.busy.store(left.saturating_sub(1), Relaxed);
        self.armed.store(left > 1 || !faults.is_empty(), Relaxed);
        left > 0
    }

    /// Returns the fault that hits this command, if there is one. Every fault that matches the command counts it.
    #[cold]
    pub(super) fn take_fault(&self, c: &Command) -> Option<Fault> {
        let mut faults = lock(&self.faults);
        let mut hit = None;
        for (i, f) in faults.iter_mut().enumerate() {
            if f.op.is_none_or(|op| op == c.op) {
                if f.skip > 0 {
                    f.skip -= 1;
                } else if hit.is_none() {
                    hit = Some(i);
                }
            }
        }
        let hit = hit.map(|i| faults.remove(i));
        self.armed.store(self.busy.load(Relaxed) > 0 || !faults.is_empty(), Relaxed);
        hit
    }

    pub(super) fn new_counters(&self) -> Arc<Counters> {
        let c = Arc::new(Counters::new());
        lock(&self.counters).1.push(Arc::clone(&c));
        c
    }

    pub(super) fn drop_counters(&self, c: &Arc<Counters>) {
        let (sum, live) = &mut *lock(&self.counters);
        c.add_to(sum);
        live.retain(|l| !Arc::ptr_eq(l, c));
    }

    pub(super) fn stats(&self) -> Stats {
        let (mut sum, live) = {
            let c = lock(&self.counters);
            (c.0.clone(), c.1.clone())
        };
        live.iter().for_each(|c| c.add_to(&mut sum));
        sum.overlaps = self.overlaps.load(Relaxed);
        sum
    }

    /// Counts a write to a sequential zone that arrives at the device, on the queue with the counters `queue`.
    pub(super) fn write_arrives(&self, zone: u32, queue: &Counters, ordered: bool) {
        let (writes, last) = &self.writes[zone as usize];
        let queue = std::ptr::from_ref(queue).addr();
        let same = last.swap(queue, Relaxed) == queue;
        if writes.fetch_add(1, Relaxed) > 0 && !(ordered && same) {
            self.overlaps.fetch_add(1, Relaxed);
        }
    }

    /// Counts a write that is handed back.
    pub(super) fn write_leaves(&self, zone: u32) {
        self.writes[zone as usize].0.fetch_sub(1, Relaxed);
    }
}
