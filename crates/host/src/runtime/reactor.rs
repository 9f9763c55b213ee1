//! The reactor: the thread that runs the queues of clients that sleep or have gone, and ends commands at their
//! deadlines if no client polls.
//!
//! The disk's first client starts the thread, so that no client ever sleeps without it. The thread rests while no
//! client sleeps or has gone, and ends as soon as no handle of the disk is left and nothing is in flight. The drop of
//! the last handle waits for that, so that the device is closed when the drop returns.

use crate::runtime::shared::HostedShared;
use crate::threads::spawn;
use std::sync::Arc;
use std::time::{Duration, Instant};
use zoneplug_core::poison::lock;
use zoneplug_core::{Bios, Error, Nanos};

/// The longest sleep of the reactor while a client waits. After this time it finds work that no kick announced, such
/// as a queue that a client stopped polling with commands at the device.
const TICK: Duration = Duration::from_micros(500);
/// The longest sleep of the reactor while no client waits. It then checks whether late commands have come back, and
/// whether a client that was woken has submitted more without a poll.
const LONGEST_NAP: Duration = Duration::from_millis(50);
/// The reactor spins for a deadline nearer than this, because a sleep would miss it.
const NEAR: Nanos = Nanos(60_000);
/// The longest time that the reactor spins. If a deadline has passed and has no effect, it depends on another thread.
const SPIN: Nanos = Nanos(2 * NEAR.0);
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

/// The result of one round over the queues.
#[derive(Default)]
struct Round {
    /// Something has finished, so other queues may have work now.
    progress: bool,
    /// The next time at which a queue has something to do.
    next: Option<Nanos>,
    /// A queue may need the reactor again before its client comes. A locked queue counts.
    work: bool,
}

/// Runs every queue once.
fn round(shared: &HostedShared, now: Nanos) -> Round {
    let mut round = Round::default();
    let mut dropped = Bios::new();
    let queues = lock(&shared.queues).clone();
    for queue in &queues {
        let Some(mut locked) = queue.try_lock() else {
            round.work |= queue.is_wanted();
            continue;
        };
        if queue.is_orphan() {
            locked.poll(now, &mut dropped);
            round.progress |= !dropped.is_empty();
            queue.dropped(&mut dropped);
        } else {
            round.progress |= locked.poll_for_owner(now);
        }
        round.work |= queue.is_wanted() && !locked.waits_for_owner();
        round.next = [round.next, locked.next_deadline()].into_iter().flatten().min();
    }
    drop(queues);
    shared.remove_orphans();
    shared.withheld.sweep(&shared.disk);
    round
}

/// Runs until no handle of the disk is left and nothing is in flight.
fn run(shared: &HostedShared) {
    let reactor = &shared.reactor;
    let mut end = None;
    // When the reactor began to spin for a near deadline.
    let mut spins_since: Option<Nanos> = None;
    loop {
        // Read before the queues: once no handle of the disk is left, no queue is added.
        let closing = reactor.is_closing();
        let now = shared.now();
        let (wanted, late) = {
            let queues = lock(&shared.queues);
            let late = shared.deadlines && queues.iter().any(|q| q.may_be_late());
            (queues.iter().any(|q| q.is_wanted()), late)
        };
        let Round { progress, next, work } =
            if wanted || late { round(shared, now) } else { Round::default() };
        shared.deferred_wakes.call();
        if progress {
            spins_since = None;
            continue;
        }
        if wanted {
            let left = next.map(|t| t.0.saturating_sub(now.0));
            if left.is_some_and(|left| left <= NEAR.0) {
                let since = *spins_since.get_or_insert(now);
                if now.0 <= since.0.saturating_add(SPIN.0) {
                    std::thread::yield_now();
                } else {
                    reactor.nap(TICK);
                }
                continue;
            }
            spins_since = None;
            let most = if work { TICK } else { LONGEST_NAP };
            reactor.nap(left.map_or(most, |left| Duration::from_nanos(left - NEAR.0).min(most)));
        } else if closing {
            if lock(&shared.queues).is_empty() {
                return;
            }
            // Only late commands are left. The disk waits for them as long as their timeout was.
            let [least, most] = LATE_PATIENCE;
            let timeout = shared.disk.config().timeout.map_or(least, |t| Duration::from_nanos(t.0));
            let end = *end.get_or_insert_with(|| Instant::now() + timeout.clamp(least, most));
            if Instant::now() >= end {
                return shared.abandon();
            }
            reactor.nap(LONGEST_NAP);
        } else if late {
            reactor.nap(LONGEST_NAP);
        } else {
            reactor.rest();
        }
    }
}
