//! The reactor: the thread that runs the queues of clients that sleep or have gone, and ends commands at their
//! deadlines if no client polls.
//!
//! The thread is started with the disk's first client, so that no client ever sleeps without it. It rests while no
//! client sleeps or has gone, and ends as soon as no handle of the disk is left and nothing is in flight. The drop of
//! the last handle waits for that, so that the device is closed when the drop returns.

use crate::runtime::shared::HostedShared;
use crate::threads::spawn;
use std::sync::Arc;
use std::time::{Duration, Instant};
use zoneplug_core::poison::lock;
use zoneplug_core::{Bios, Error, Nanos};

/// How long the reactor sleeps at most while a client waits. It finds work after this time that no kick told of, such
/// as a queue that a client stopped polling with commands at the device.
const TICK: Duration = Duration::from_micros(500);
/// How often the reactor looks, while no client waits, whether late commands have come back.
const LOOK: Duration = Duration::from_millis(50);
/// The reactor spins for a deadline nearer than this, because a sleep would miss it.
const NEAR: Nanos = Nanos(60_000);
/// How long a disk without handles waits for late commands: as long as a command may take, within these bounds.
const LATE_PATIENCE: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(5)];

/// Starts the thread, if it does not exist yet.
pub(crate) fn start(shared: &Arc<HostedShared>) -> Result<(), Error> {
    shared.reactor.start(|| {
        // The thread owns the disk, so that memory of commands in flight outlives the clients that lent it.
        let owned = shared.clone();
        let body = move || {
            let leaves = owned.reactor.enter();
            run(&owned);
            drop(owned);
            drop(leaves);
        };
        spawn("zoneplug-reactor", body).map(drop)
    })
}

/// Runs every queue once. Returns whether anything finished, and the next moment at which something is due.
fn round(shared: &HostedShared, now: Nanos) -> (bool, Option<Nanos>) {
    let (mut progress, mut next) = (false, None);
    let mut dropped = Bios::new();
    let queues = lock(&shared.queues).clone();
    for queue in &queues {
        let Some(mut locked) = queue.try_lock() else { continue };
        if queue.is_orphan() {
            locked.poll(now, &mut dropped);
            progress |= !dropped.is_empty();
            queue.dropped(&mut dropped);
        } else {
            progress |= locked.poll_for_owner(now);
        }
        next = [next, locked.next_deadline()].into_iter().flatten().min();
    }
    drop(queues);
    shared.remove_orphans();
    shared.withheld.sweep(&shared.disk);
    (progress, next)
}

/// Runs until no handle of the disk is left and nothing is in flight.
fn run(shared: &HostedShared) {
    let reactor = &shared.reactor;
    let mut end = None;
    loop {
        // Read before the queues: once no handle of the disk is left, no queue is added.
        let closing = reactor.is_closing();
        let now = shared.now();
        let (wanted, late) = {
            let queues = lock(&shared.queues);
            let late = shared.deadlines && queues.iter().any(|q| q.may_be_late());
            (queues.iter().any(|q| q.is_wanted()), late)
        };
        let (mut progress, mut next) = (false, None);
        if wanted || late {
            (progress, next) = round(shared, now);
        }
        shared.deferred_wakes.call();
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
            if lock(&shared.queues).is_empty() {
                return;
            }
            // Only late commands are left. They get as long again as they had.
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
