//! The reactor: the thread that runs lanes for clients that sleep or have gone.
//!
//! It exists once somebody has slept or gone, is idle while nobody has, and ends with the disk.

use crate::hosted::{Lane, Shared, lock};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;
use zoneplug_core::{Bios, Nanos};

/// How long the reactor sleeps at most while somebody waits: work that it was not told of (a lane that a poller left
/// in mid-work) is found after this.
const TICK: Duration = Duration::from_micros(500);
/// How often it looks, while nobody waits, whether anybody else still has the disk.
const IDLE: Duration = Duration::from_millis(100);
/// A deadline nearer than this is spun for: sleeping would miss it.
const NEAR: Nanos = Nanos(60_000);

#[derive(Debug, Default)]
struct State {
    started: bool,
    kicked: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Reactor {
    state: Mutex<State>,
    wake: Condvar,
}

impl Reactor {
    /// Somebody is about to sleep, or has gone, or a device has finished something.
    pub(crate) fn kick(&self, shared: &Arc<Shared>) {
        let mut state = lock(&self.state);
        state.kicked = true;
        if state.started {
            drop(state);
            self.wake.notify_one();
            return;
        }
        state.started = true;
        drop(state);
        // The thread owns the disk: what is in flight for a client that has gone must not lose its memory.
        let owned = shared.clone();
        let spawned =
            std::thread::Builder::new().name("zoneplug-reactor".to_owned()).spawn(|| run(owned));
        if spawned.is_err() {
            // Without a thread, sleepers wake at their timeouts and poll; the memory of those who have gone stays.
            lock(&self.state).started = false;
            std::mem::forget(shared.clone());
        }
    }
}

/// Runs until nobody else has the disk and nothing is in flight.
fn run(shared: Arc<Shared>) {
    let mut dropped = Bios::new();
    loop {
        let now = shared.clock.now();
        let lanes = lock(&shared.lanes).clone();
        let wanted = lanes.iter().any(|l| is_wanted(l));
        let mut progress = false;
        let mut next: Option<Nanos> = None;
        if wanted {
            for lane in &lanes {
                let Some(mut queue) = lane.try_lock() else { continue };
                if lane.orphan.load(Ordering::Acquire) {
                    queue.poll(now, &mut dropped);
                    progress |= !dropped.is_empty();
                    dropped.clear();
                } else {
                    progress |= queue.poll_for_owner(now);
                }
                next = [next, queue.next_deadline()].into_iter().flatten().min();
            }
            drop(lanes);
            shared.bury();
        }
        shared.wake();
        if progress {
            continue;
        }
        match next {
            _ if !wanted => {
                // The count before the kick: whoever has gone has kicked first.
                let alone = !rest(&shared, IDLE) && Arc::strong_count(&shared) == 1;
                if alone && !lock(&shared.reactor.state).kicked {
                    return;
                }
            }
            Some(t) if t.0 <= now.0 + NEAR.0 => std::thread::yield_now(),
            Some(t) => {
                rest(&shared, Duration::from_nanos(t.0 - now.0 - NEAR.0).min(TICK));
            }
            None => {
                rest(&shared, TICK);
            }
        }
    }
}

fn is_wanted(lane: &Lane) -> bool {
    lane.armed.load(Ordering::Acquire) || lane.orphan.load(Ordering::Acquire)
}

/// Sleeps until a kick, or for `sleep`. Returns whether there was a kick.
fn rest(shared: &Shared, sleep: Duration) -> bool {
    let mut state = lock(&shared.reactor.state);
    if !state.kicked {
        state = shared
            .reactor
            .wake
            .wait_timeout(state, sleep)
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .0;
    }
    std::mem::take(&mut state.kicked)
}
