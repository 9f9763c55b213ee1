//! One queue of an emulated disk: commands that wait for their time, and commands that have ended. Queues share no
//! state here.
//!
//! * Without a latency or a reordering, a command is carried out in `submit` and waits in `done`. A whole list moves
//!   by exchange with an empty one.
//! * With a latency, a command is carried out in `submit` and waits in `pending` until its time.
//! * With a reordering, a command waits in `pending` and then in `ready`, and is carried out when it is picked from
//!   there at random. So a program that relies on the order fails. If the disk declares that it keeps the order of
//!   writes, the first write of the same zone is picked instead.

use super::exec::Shared;
use super::hooks::Counters;
use std::fmt;
use std::sync::Arc;
use std::task::Waker;
use zoneplug_core::Random;
use zoneplug_core::bio::Commands;
use zoneplug_core::device::Queue;
use zoneplug_core::unit::Nanos;

pub(super) struct EmuQueue {
    shared: Arc<Shared>,
    counters: Arc<Counters>,
    depth: usize,
    /// Commands that have ended and were not polled yet.
    done: Commands,
    /// Commands that are not due yet, in the order of submission, which is also that of `due`.
    pending: Commands,
    /// With a reordering: commands that are due and not picked yet.
    ready: Commands,
    random: Option<Random>,
    /// Whether every command finishes in `submit`.
    inline: bool,
    paranoid: bool,
    /// Whether the owner has armed the queue, and wants to be woken.
    armed: bool,
    /// Whether the last submit took nothing although there was room. The caller must try again.
    turned_away: bool,
    /// The time of the last call.
    seen: Nanos,
    waker: Waker,
}

impl fmt::Debug for EmuQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmuQueue")
            .field("depth", &self.depth)
            .field("done", &self.done.len())
            .field("pending", &self.pending.len())
            .field("ready", &self.ready.len())
            .finish_non_exhaustive()
    }
}

impl EmuQueue {
    pub(super) fn new(shared: Arc<Shared>, depth: u16, waker: Waker) -> EmuQueue {
        let config = &shared.config;
        let depth = usize::from(depth);
        let counters = shared.hooks.new_counters();
        let inline = config.latency == Nanos(0) && config.reorder.is_none();
        EmuQueue {
            counters,
            depth,
            done: Commands::with_capacity(depth),
            pending: Commands::with_capacity(if inline { 0 } else { depth }),
            ready: Commands::with_capacity(if config.reorder.is_some() { depth } else { 0 }),
            random: config
                .reorder
                .map(|seed| Random::new(Random::new(seed ^ shared.next_queue()).draw())),
            inline,
            paranoid: config.paranoid,
            armed: false,
            turned_away: false,
            seen: Nanos(0),
            waker,
            shared,
        }
    }

    /// Returns whether `poll` would find something, or `submit` would take more than the last time.
    fn has_work(&self) -> bool {
        !self.done.is_empty()
            || !self.ready.is_empty()
            || self.turned_away
            || self.pending.front().is_some_and(|c| c.due <= self.seen)
    }

    #[cold]
    fn wake(&mut self) {
        self.armed = false;
        self.waker.wake_by_ref();
    }

    /// Takes the first `n` commands, which end later.
    fn submit_later(&mut self, now: Nanos, commands: &mut Commands, n: usize) {
        // Without a latency the device is not timed, and callers need not advance `now`.
        let due = match self.shared.config.latency {
            Nanos(0) => Nanos(0),
            Nanos(latency) => Nanos(now.0.saturating_add(latency)),
        };
        for mut c in commands.drain(..n) {
            c.due = due;
            if self.random.is_none() {
                self.shared.execute(&mut c, &self.counters);
            }
            self.pending.push_back(c);
        }
    }

    /// Moves commands that are due to `done`.
    fn complete_due(&mut self, now: Nanos) {
        while self.pending.front().is_some_and(|c| c.due <= now) {
            let c = self.pending.pop_front().expect("there is a front");
            match self.random {
                None => self.done.push_back(c),
                Some(_) => self.ready.push_back(c),
            }
        }
        let Some(random) = &mut self.random else { return };
        if self.ready.is_empty() {
            return;
        }
        let ordered = self.shared.config.limits.keeps_write_order;
        for _ in 0..=random.below(self.ready.len() as u32) {
            let mut i = random.below(self.ready.len() as u32) as usize;
            if ordered {
                i = self.shared.first_of_zone(&self.ready, i);
            }
            let taken = match ordered {
                // The other commands keep their order.
                true => self.ready.remove(i),
                false => self.ready.swap_remove_back(i),
            };
            let mut c = taken.expect("an index below the length");
            self.shared.execute(&mut c, &self.counters);
            self.done.push_back(c);
        }
    }
}

impl Queue for EmuQueue {
    #[inline]
    fn submit(&mut self, now: Nanos, commands: &mut Commands) {
        self.seen = now;
        self.turned_away = false;
        if self.shared.hooks.armed() && !commands.is_empty() && self.shared.hooks.take_busy() {
            self.turned_away = true;
            if self.armed {
                self.wake();
            }
            return;
        }
        let held = self.done.len() + self.pending.len() + self.ready.len();
        let n = commands.len().min(self.depth - held);
        if self.paranoid {
            self.shared.arrive(commands, n, &self.counters);
        }
        if !self.inline {
            self.submit_later(now, commands, n);
        } else if n == commands.len() {
            // A list is almost always one slice already.
            for c in commands.make_contiguous() {
                self.shared.execute(c, &self.counters);
            }
            if self.done.is_empty() {
                std::mem::swap(&mut self.done, commands);
            } else {
                self.done.append(commands);
            }
        } else {
            for mut c in commands.drain(..n) {
                self.shared.execute(&mut c, &self.counters);
                self.done.push_back(c);
            }
        }
        if self.armed && self.has_work() {
            self.wake();
        }
    }

    #[inline]
    fn poll(&mut self, now: Nanos, done: &mut Commands) {
        self.seen = now;
        // After this poll the caller tries again, or has nothing more to send.
        self.turned_away = false;
        if !self.inline {
            self.complete_due(now);
        }
        if self.paranoid {
            self.shared.leave(self.done.iter());
        }
        if done.is_empty() {
            std::mem::swap(&mut self.done, done);
        } else {
            done.append(&mut self.done);
        }
    }

    fn next_deadline(&self) -> Option<Nanos> {
        if self.has_work() {
            return Some(self.seen);
        }
        self.pending.front().map(|c| c.due)
    }

    fn arm(&mut self) {
        self.armed = true;
        if self.has_work() {
            self.wake();
        }
    }
}

impl Drop for EmuQueue {
    fn drop(&mut self) {
        if self.paranoid {
            self.shared.leave(self.done.iter().chain(&self.pending).chain(&self.ready));
        }
        self.shared.hooks.drop_counters(&self.counters);
    }
}
