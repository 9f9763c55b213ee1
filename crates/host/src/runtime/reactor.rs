//! The reactor: the thread that runs the lanes of clients that sleep or have gone, and ends commands at their deadlines
//! if no client polls.
//!
//! It exists once the disk has a client, so that no client ever sleeps without it. It rests while no client sleeps or has gone, and
//! leaves as soon as no handle of the disk is left and nothing is in flight. The drop of the last handle waits for
//! that, so that the device is closed when the drop returns.

use crate::runtime::hosted::Shared;
use crate::runtime::shared_queue::lock;
use crate::threads::spawn;
use std::sync::{Arc, Condvar, Mutex};
use std::thread::ThreadId;
use std::time::{Duration, Instant};
use zoneplug_core::{Bios, Error, Nanos};

/// How long the reactor sleeps at most while a client waits. It finds work that it was not told of (a lane that a
/// poller left in mid-work) after this time.
const TICK: Duration = Duration::from_micros(500);
/// How often it looks, while no client waits, whether late commands have come back.
const LOOK: Duration = Duration::from_millis(50);
/// A deadline nearer than this is spun for: sleeping would miss it.
const NEAR: Nanos = Nanos(60_000);
/// How long a disk without handles waits for late commands: as long as a command may take, within these bounds.
const LATE_PATIENCE: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(5)];

#[derive(Debug, Default)]
struct State {
    started: bool,
    kicked: bool,
    /// No handle of the disk is left.
    closing: bool,
    /// The thread has given up the disk.
    left: bool,
    thread: Option<ThreadId>,
}

#[derive(Debug, Default)]
pub(crate) struct Reactor {
    state: Mutex<State>,
    wake: Condvar,
    left: Condvar,
}

impl Reactor {
    /// Something is to be looked at.
    pub(crate) fn kick(&self) {
        lock(&self.state).kicked = true;
        self.wake.notify_one();
    }

    /// Starts the thread, if it does not exist yet.
    pub(crate) fn start(shared: &Arc<Shared>) -> Result<(), Error> {
        let reactor = shared.reactor.clone();
        let mut state = lock(&reactor.state);
        if state.started {
            return Ok(());
        }
        // The thread owns the disk: what is in flight for a client that has gone must not lose its memory.
        let owned = shared.clone();
        let body = move || {
            let leaves = Leaves(owned.reactor.clone());
            lock(&leaves.0.state).thread = Some(std::thread::current().id());
            run(&owned);
            drop(owned);
            drop(leaves);
        };
        // It waits for this lock.
        drop(spawn("zoneplug-reactor", body)?);
        state.started = true;
        Ok(())
    }

    /// Asks the reactor to end, since no handle of the disk is left. Returns whether there is a thread to wait for,
    /// which is not this one.
    pub(crate) fn close(&self) -> bool {
        let mut state = lock(&self.state);
        state.closing = true;
        let wait = state.started && state.thread != Some(std::thread::current().id());
        drop(state);
        self.wake.notify_one();
        wait
    }

    /// Waits until the thread has given up the disk, at most `patience`.
    pub(crate) fn wait_left(&self, patience: Duration) {
        let state = lock(&self.state);
        let waited = self.left.wait_timeout_while(state, patience, |s| !s.left);
        drop(zoneplug_core::poison::unpoisoned(waited));
    }

    fn is_closing(&self) -> bool {
        lock(&self.state).closing
    }

    /// Sleeps until a kick, at most `sleep`.
    fn nap(&self, sleep: Duration) {
        let state = lock(&self.state);
        let woken = self.wake.wait_timeout_while(state, sleep, |s| !s.kicked);
        zoneplug_core::poison::unpoisoned(woken).0.kicked = false;
    }

    /// Sleeps until a kick or until the disk is closing.
    fn rest(&self) {
        let state = lock(&self.state);
        let woken = self.wake.wait_while(state, |s| !s.kicked && !s.closing);
        zoneplug_core::poison::unpoisoned(woken).kicked = false;
    }
}

/// Says that the thread has given up the disk, however that came.
struct Leaves(Arc<Reactor>);

impl Drop for Leaves {
    fn drop(&mut self) {
        lock(&self.0.state).left = true;
        self.0.left.notify_all();
    }
}

/// Runs every lane once. Returns whether anything finished, and the next moment at which something is due.
fn round(shared: &Shared, now: Nanos) -> (bool, Option<Nanos>) {
    let (mut progress, mut next) = (false, None);
    let mut dropped = Bios::new();
    let lanes = lock(&shared.lanes).clone();
    for lane in &lanes {
        let Some(mut queue) = lane.try_lock() else { continue };
        if lane.is_orphan() {
            queue.poll(now, &mut dropped);
            progress |= !dropped.is_empty();
            lane.dropped(&mut dropped);
        } else {
            progress |= queue.poll_for_owner(now);
        }
        next = [next, queue.next_deadline()].into_iter().flatten().min();
    }
    drop(lanes);
    shared.bury();
    shared.shelf.sweep(&shared.disk);
    (progress, next)
}

/// Runs until no handle of the disk is left and nothing is in flight.
fn run(shared: &Shared) {
    let reactor = &shared.reactor;
    let mut end = None;
    loop {
        // Read before the lanes are: without a handle of the disk, no lane is added.
        let closing = reactor.is_closing();
        let now = shared.now();
        let (wanted, late) = {
            let lanes = lock(&shared.lanes);
            let late = shared.deadlines && lanes.iter().any(|l| l.may_be_late());
            (lanes.iter().any(|l| l.is_wanted()), late)
        };
        let (mut progress, mut next) = (false, None);
        if wanted || late {
            (progress, next) = round(shared, now);
        }
        shared.wakers.call();
        if progress {
            continue;
        }
        if wanted {
            match next {
                Some(t) if t.0 <= now.0.saturating_add(NEAR.0) => std::thread::yield_now(),
                Some(t) => reactor.nap(Duration::from_nanos(t.0 - now.0 - NEAR.0).min(TICK)),
                None => reactor.nap(TICK),
            }
        } else if closing {
            if lock(&shared.lanes).is_empty() {
                return;
            }
            // Nothing but late commands: they had their time once.
            let [least, most] = LATE_PATIENCE;
            let timeout = shared.disk.config().timeout.map_or(least, |t| Duration::from_nanos(t.0));
            let end = *end.get_or_insert_with(|| Instant::now() + timeout.clamp(least, most));
            if Instant::now() >= end {
                return shared.abandon();
            }
            reactor.nap(LOOK);
        } else if late {
            reactor.nap(LOOK);
        } else {
            reactor.rest();
        }
    }
}
