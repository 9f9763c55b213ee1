//! One queue over the queues of several devices. Each command goes to the queue of its device, and waits here while
//! that queue is full.

use super::Map;
use super::fan::{FanOutStep, FanOuts};
use super::lower::Lower;
use std::sync::Arc;
use std::task::Waker;
use zoneplug_core::bio::{Command, Commands, Flags, Op, Status};
use zoneplug_core::device::Queue;
use zoneplug_core::unit::Nanos;

pub(super) struct JoinQueue {
    map: Arc<Map>,
    lower: Vec<Lower>,
    /// Commands that concern several devices.
    fan_outs: FanOuts,
    depth: usize,
    /// The number of commands that were taken and not given back.
    taken: usize,
    /// The list into which devices are polled. Empty between calls, and kept so that `poll` allocates nothing.
    back: Commands,
    /// Commands that have ended and were not polled yet.
    done: Commands,
    armed: bool,
    /// The time of the last call.
    last_call: Nanos,
    waker: Waker,
}

impl JoinQueue {
    pub(super) fn new(
        map: Arc<Map>,
        inner: Vec<Box<dyn Queue>>,
        depth: u16,
        waker: Waker,
    ) -> JoinQueue {
        let depth = usize::from(depth);
        let lower = inner.into_iter().map(|queue| Lower::new(queue, depth)).collect();
        JoinQueue {
            map,
            lower,
            fan_outs: FanOuts::default(),
            depth,
            taken: 0,
            back: Commands::with_capacity(depth),
            done: Commands::with_capacity(depth),
            armed: false,
            last_call: Nanos(0),
            waker,
        }
    }

    fn take(&mut self, mut c: Box<Command>) {
        let map = &*self.map;
        let several = match c.op {
            Op::Flush | Op::ZoneResetAll | Op::ReportZones => true,
            // Data that the other devices have acknowledged must be durable before the write is sent.
            _ => c.flags.contains(Flags::PREFLUSH) && self.lower.len() > 1,
        };
        let has_sector = c.op != Op::Flush && c.op != Op::ZoneResetAll;
        if has_sector && !map.geometry.contains(c.sector, 1) {
            c.status = Status::InvalidField;
            return self.done.push_back(c);
        }
        if several {
            let step = self.fan_outs.begin(map, c, &mut self.lower);
            return self.follow(step);
        }
        let (part, sector) = map.sector_down(c.sector);
        c.sector = sector;
        self.lower[part].out.push_back(c);
    }

    fn follow(&mut self, step: FanOutStep) {
        match step {
            FanOutStep::Wait => {}
            FanOutStep::Done(c) => self.done.push_back(c),
            FanOutStep::Send(mut c) => {
                let (part, sector) = self.map.sector_down(c.sector);
                c.sector = sector;
                self.lower[part].out.push_back(c);
            }
        }
    }

    fn send(&mut self, now: Nanos) {
        self.lower.iter_mut().for_each(|l| l.send(now));
    }

    /// Returns whether a command has ended here. A command that waits for room below needs no wake-up from this queue,
    /// because the device wakes the owner when it completes a command.
    fn has_work(&self) -> bool {
        !self.done.is_empty()
    }

    fn wake_if_armed(&mut self) {
        if self.armed && self.has_work() {
            self.armed = false;
            self.waker.wake_by_ref();
        }
    }
}

impl Queue for JoinQueue {
    fn submit(&mut self, now: Nanos, commands: &mut Commands) {
        self.last_call = now;
        while self.taken < self.depth {
            let Some(c) = commands.pop_front() else { break };
            self.taken += 1;
            self.take(c);
        }
        self.send(now);
        self.wake_if_armed();
    }

    fn poll(&mut self, now: Nanos, done: &mut Commands) {
        self.last_call = now;
        self.send(now);
        for part in 0..self.lower.len() {
            let mut back = std::mem::take(&mut self.back);
            self.lower[part].queue.poll(now, &mut back);
            for mut c in back.drain(..) {
                if !self.fan_outs.is_empty() {
                    match self.fan_outs.completed(&self.map, part, c, &mut self.lower) {
                        Ok(step) => {
                            self.follow(step);
                            continue;
                        }
                        Err(other) => c = other,
                    }
                }
                c.sector = self.map.sector_up(part, c.sector);
                self.done.push_back(c);
            }
            self.back = back;
        }
        // Completions may have made room below, or started the next step of a command that concerns several devices.
        self.send(now);
        self.taken -= self.done.len();
        done.append(&mut self.done);
    }

    fn next_deadline(&self) -> Option<Nanos> {
        if self.has_work() {
            return Some(self.last_call);
        }
        self.lower.iter().filter_map(|l| l.queue.next_deadline()).min()
    }

    fn arm(&mut self) {
        self.armed = true;
        self.lower.iter_mut().for_each(|l| l.queue.arm());
        self.wake_if_armed();
    }
}
