//! One queue of a disk with a timing. A queue owns its commands at the drive. All queues share the drive under one
//! lock, which a queue holds during one call.
//!
//! A command changes the zones as soon as it arrives; only its completion waits until the modelled time is over. A real
//! drive does not refuse a command that it has accepted, so the outcome is known on arrival. A refused command comes
//! back at once.

use super::{CommandAtDrive, Drive, State};
use crate::emu::exec::Shared;
use crate::emu::hooks::Counters;
use std::fmt;
use std::sync::Arc;
use std::task::Waker;
use zoneplug_core::bio::Commands;
use zoneplug_core::device::Queue;
use zoneplug_core::unit::Nanos;

pub(in crate::emu) struct TimedQueue {
    shared: Arc<Shared>,
    drive: Arc<Drive>,
    counters: Arc<Counters>,
    id: u32,
    depth: u32,
    paranoid: bool,
    /// Whether the owner has armed the queue, and wants to be woken.
    armed: bool,
    /// Whether the last submit took nothing although there was room. The caller must try again.
    turned_away: bool,
    /// The time of the last call.
    seen: Nanos,
    waker: Waker,
}

impl fmt::Debug for TimedQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TimedQueue")
            .field("id", &self.id)
            .field("depth", &self.depth)
            .finish_non_exhaustive()
    }
}

impl TimedQueue {
    pub(in crate::emu) fn new(
        shared: Arc<Shared>,
        drive: Arc<Drive>,
        depth: u16,
        waker: Waker,
    ) -> TimedQueue {
        let counters = shared.hooks.new_counters();
        let id = {
            let slots = &mut drive.lock().out.0;
            let free = slots.iter().position(|s| s.closed && s.held == 0);
            let id = free.unwrap_or(slots.len());
            if free.is_none() {
                slots.push(super::Slot::default());
            }
            slots[id].closed = false;
            slots[id].done.reserve(usize::from(depth));
            id as u32
        };
        TimedQueue {
            counters,
            id,
            depth: u32::from(depth),
            paranoid: shared.config.paranoid,
            armed: false,
            turned_away: false,
            seen: Nanos(0),
            waker,
            shared,
            drive,
        }
    }

    fn has_work(&self, state: &State) -> bool {
        self.turned_away
            || !state.out.0[self.id as usize].done.is_empty()
            || state.next().is_some_and(|at| at <= self.seen)
    }

    /// Wakes the owner if the queue is armed and there is work. Called without a lock.
    fn wake_if(&mut self, has_work: bool) {
        if self.armed && has_work {
            self.armed = false;
            self.waker.wake_by_ref();
        }
    }
}

impl Queue for TimedQueue {
    fn submit(&mut self, now: Nanos, commands: &mut Commands) {
        self.seen = self.seen.max(now);
        self.turned_away = false;
        if self.shared.hooks.armed() && !commands.is_empty() && self.shared.hooks.take_busy() {
            self.turned_away = true;
            return self.wake_if(true);
        }
        let drive = self.drive.clone();
        let mut state = drive.lock();
        state.advance(now);
        let room = self.depth - state.out.0[self.id as usize].held;
        let n = commands.len().min(room as usize);
        if self.paranoid {
            self.shared.arrive(commands, n, &self.counters);
        }
        let g = &self.shared.config.geometry;
        for mut command in commands.drain(..n) {
            self.shared.execute(&mut command, &self.counters);
            let (refused, sector) = (!command.status.is_ok(), command.sector);
            let held = CommandAtDrive { command, queue: self.id };
            state.out.0[self.id as usize].held += 1;
            if refused {
                state.out.finish(held);
            } else {
                // A flush has no place, and its sector may be anything. Zone 0 stands in for it.
                let (zone, offset) =
                    if g.contains(sector, 1) { g.zone_of(sector) } else { Default::default() };
                state.take(now, zone.0, offset, held);
            }
        }
        let work = self.armed && self.has_work(&state);
        drop(state);
        self.wake_if(work);
    }

    fn poll(&mut self, now: Nanos, done: &mut Commands) {
        self.seen = self.seen.max(now);
        let mut state = self.drive.lock();
        state.advance(now);
        let slot = &mut state.out.0[self.id as usize];
        slot.held -= slot.done.len() as u32;
        if self.paranoid {
            self.shared.leave(slot.done.iter());
        }
        if done.is_empty() {
            std::mem::swap(&mut slot.done, done);
        } else {
            done.append(&mut slot.done);
        }
    }

    fn next_deadline(&self) -> Option<Nanos> {
        let state = self.drive.lock();
        let slot = &state.out.0[self.id as usize];
        if self.turned_away || !slot.done.is_empty() {
            return Some(self.seen);
        }
        state.next().filter(|_| slot.held > 0)
    }

    fn arm(&mut self) {
        self.armed = true;
        let work = self.has_work(&self.drive.lock());
        self.wake_if(work);
    }
}

impl Drop for TimedQueue {
    fn drop(&mut self) {
        let mut state = self.drive.lock();
        let slot = &mut state.out.0[self.id as usize];
        let done = std::mem::take(&mut slot.done);
        slot.held -= done.len() as u32;
        slot.closed = true;
        drop(state);
        if self.paranoid {
            self.shared.leave(done.iter());
        }
        self.shared.hooks.drop_counters(&self.counters);
    }
}
