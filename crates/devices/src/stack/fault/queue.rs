//! One queue of a fault injector: commands that are held back, and commands that went down in place of others.

use super::{FaultEffect, Shared};
use crate::stack::part::{Cut, address, cut};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Waker;
use zoneplug_core::bio::{Command, Commands, Flags, Op, Status};
use zoneplug_core::device::Queue;
use zoneplug_core::unit::Nanos;

/// The treatment of a command when it comes back from below.
enum Mark {
    /// The command was sent in place of this one, which ends with this status.
    InsteadOf(Cut, Status),
    /// The command is delayed by this time.
    Late(Nanos),
    /// The command never comes back.
    Lost,
    /// The command is a flush, or has a preflush. This number names the data that it covers.
    Covers(u64),
}

pub(super) struct FaultQueue {
    shared: Arc<Shared>,
    inner: Box<dyn Queue>,
    depth: usize,
    /// The number of commands below.
    below: usize,
    /// [`Shared::epoch`] when this queue last looked at it.
    epoch: u32,
    /// The number of commands that were below at the last power cut, or when the device vanished, and are not
    /// back. They fail when they come back. Until all of them are back, every new command fails.
    below_at_cut: usize,
    /// Commands on the way down.
    out: Commands,
    /// A spare list for commands that come back from below. Empty between two calls.
    back: Commands,
    /// The marks of commands, by their addresses, for when they come back. A torn command and the part that is below
    /// have different addresses: the mark of the part leads to the whole, and then the marks of the whole are taken.
    /// The order of the list has no meaning.
    marks: Vec<(usize, Mark)>,
    /// Commands that were carried out and wait for their time. A flush also has the number of the data that it
    /// covers.
    held: Vec<(Nanos, Option<u64>, Box<Command>)>,
    /// Commands that were carried out and never come back.
    lost: Vec<Box<Command>>,
    /// Commands that have ended and were not polled yet.
    done: Commands,
    armed: bool,
    seen: Nanos,
    waker: Waker,
}

impl FaultQueue {
    pub(super) fn new(
        shared: Arc<Shared>,
        inner: Box<dyn Queue>,
        depth: u16,
        waker: Waker,
    ) -> FaultQueue {
        FaultQueue {
            epoch: shared.epoch.load(Ordering::Acquire),
            shared,
            inner,
            depth: usize::from(depth),
            below: 0,
            below_at_cut: 0,
            out: Commands::new(),
            back: Commands::new(),
            marks: Vec::new(),
            held: Vec::new(),
            lost: Vec::new(),
            done: Commands::new(),
            armed: false,
            seen: Nanos(0),
            waker,
        }
    }

    fn room(&self) -> usize {
        let here = self.out.len() + self.held.len() + self.lost.len() + self.done.len();
        self.depth.saturating_sub(self.below + here)
    }

    /// Returns whether the queue only passes commands on.
    fn is_clear(&self) -> bool {
        !self.shared.active.load(Ordering::Relaxed)
            && self.marks.is_empty()
            && self.held.is_empty()
            && self.lost.is_empty()
            && self.done.is_empty()
            && self.out.is_empty()
            && self.below_at_cut == 0
            && self.epoch == self.shared.epoch.load(Ordering::Acquire)
    }

    /// Fails all commands that were in flight, after a power cut or when the device has vanished. Does nothing if
    /// neither has happened since the last call.
    fn fail_after_cut(&mut self) {
        let epoch = self.shared.epoch.load(Ordering::Acquire);
        if epoch == self.epoch {
            return;
        }
        self.epoch = epoch;
        self.below_at_cut = self.below;
        while let Some(c) = self.out.pop_front() {
            // The command was not sent, so its marks are dropped. The command that it stands for fails.
            let mut whole = c;
            while let Some(i) = self.marks.iter().position(|(a, _)| *a == address(&whole)) {
                if let Mark::InsteadOf(c, _) = self.marks.swap_remove(i).1 {
                    whole = c.rejoin(&mut whole);
                }
            }
            self.done.push_back(whole);
        }
        let here = self.held.drain(..).map(|(_, _, c)| c).chain(self.lost.drain(..));
        self.done.extend(here);
        // Commands that are below come back by themselves, and fail then.
        for (_, mark) in &mut self.marks {
            if matches!(mark, Mark::Late(_) | Mark::Lost) {
                *mark = Mark::Late(Nanos(0));
            }
        }
        self.done.iter_mut().for_each(|c| c.status = Status::NoDevice);
    }

    fn take(&mut self, c: Box<Command>) {
        let shared = Arc::clone(&self.shared);
        let mut state = shared.state();
        // The commands from before the power cut are not all back: the device is still starting.
        let effect = match self.below_at_cut {
            0 => state.effect_on(&shared, &c),
            _ => FaultEffect::Fail(Status::NoDevice),
        };
        if let (
            Some(cache),
            FaultEffect::Pass | FaultEffect::Torn(..) | FaultEffect::Delay(_) | FaultEffect::Lost,
        ) = (&mut state.cache, effect)
        {
            cache.goes_down(&*shared.inner, &c);
            if c.op == Op::Flush || c.flags.contains(Flags::PREFLUSH) {
                let covers = cache.snapshot();
                self.marks.push((address(&c), Mark::Covers(covers)));
            }
        }
        drop(state);
        match effect {
            FaultEffect::Pass => {}
            FaultEffect::Fail(status) => {
                let mut c = c;
                c.status = status;
                c.report.clear();
                return self.done.push_back(c);
            }
            FaultEffect::Torn(status, 0) => {
                let mut c = c;
                c.status = status;
                return self.done.push_back(c);
            }
            FaultEffect::Torn(status, take) => {
                let (part, whole) = cut(c, take);
                self.marks.push((address(&part), Mark::InsteadOf(whole, status)));
                return self.out.push_back(part);
            }
            FaultEffect::Delay(t) => {
                self.marks.push((address(&c), Mark::Late(t)));
            }
            FaultEffect::Lost => self.marks.push((address(&c), Mark::Lost)),
        }
        self.out.push_back(c);
    }

    /// Sends the waiting commands. Calls the device also if none waits: a device that turned a command away waits for
    /// the next call, and that command may have failed here meanwhile.
    fn send(&mut self, now: Nanos) {
        let before = self.out.len();
        self.inner.submit(now, &mut self.out);
        self.below += before - self.out.len();
    }

    fn completed(&mut self, now: Nanos, mut c: Box<Command>) {
        self.below = self.below.saturating_sub(1);
        let was_cut = self.below_at_cut > 0;
        self.below_at_cut = self.below_at_cut.saturating_sub(1);
        if was_cut {
            c.status = Status::NoDevice;
        }
        let mut covers = None;
        let mut late = None;
        let mut lost = false;
        while let Some(i) = self.marks.iter().position(|(a, _)| *a == address(&c)) {
            match self.marks.swap_remove(i).1 {
                Mark::InsteadOf(whole, status) => {
                    c = whole.rejoin(&mut c);
                    c.status = if was_cut { Status::NoDevice } else { status };
                }
                Mark::Late(t) => late = Some(Nanos(now.0.saturating_add(t.0))),
                Mark::Lost => lost = true,
                Mark::Covers(what) => covers = Some(what),
            }
        }
        let mut state = self.shared.state();
        if c.op == Op::ReportZones {
            state.edit_report(self.shared.inner.geometry(), &mut c.report);
        }
        // A command whose completion is lost or delayed is not acknowledged yet.
        if let Some(cache) = &mut state.cache
            && c.status.is_ok()
            && !lost
            && late.is_none()
        {
            cache.acknowledged(self.shared.inner.geometry(), &c, covers);
        }
        drop(state);
        match late {
            _ if lost => self.lost.push(c),
            Some(due) => self.held.push((due, covers, c)),
            None => self.done.push_back(c),
        }
    }

    fn has_work(&self) -> bool {
        !self.done.is_empty()
            || !self.out.is_empty()
            || self.epoch != self.shared.epoch.load(Ordering::Acquire)
            || self.held.iter().any(|h| h.0 <= self.seen)
    }

    fn wake_if_armed(&mut self) {
        if self.armed && self.has_work() {
            self.armed = false;
            self.waker.wake_by_ref();
        }
    }
}

impl Queue for FaultQueue {
    fn submit(&mut self, now: Nanos, commands: &mut Commands) {
        self.seen = now;
        if self.is_clear() {
            let before = commands.len();
            self.inner.submit(now, commands);
            self.below += before - commands.len();
            return;
        }
        self.fail_after_cut();
        while self.room() > 0 {
            let Some(c) = commands.pop_front() else { break };
            self.take(c);
            self.fail_after_cut();
        }
        self.send(now);
        self.wake_if_armed();
    }

    fn poll(&mut self, now: Nanos, done: &mut Commands) {
        self.seen = now;
        if self.is_clear() {
            let before = done.len();
            self.inner.poll(now, done);
            self.below = self.below.saturating_sub(done.len() - before);
            return;
        }
        self.fail_after_cut();
        self.send(now);
        let mut back = std::mem::take(&mut self.back);
        self.inner.poll(now, &mut back);
        for c in back.drain(..) {
            self.completed(now, c);
        }
        self.back = back;
        let mut i = 0;
        while i < self.held.len() {
            if self.held[i].0 <= now {
                let (_, covers, c) = self.held.remove(i);
                let mut state = self.shared.state();
                if let (Some(cache), true) = (&mut state.cache, c.status.is_ok()) {
                    cache.acknowledged(self.shared.inner.geometry(), &c, covers);
                }
                drop(state);
                self.done.push_back(c);
            } else {
                i += 1;
            }
        }
        done.append(&mut self.done);
    }

    fn next_deadline(&self) -> Option<Nanos> {
        if self.has_work() {
            return Some(self.seen);
        }
        let held = self.held.iter().map(|h| h.0).min();
        self.inner.next_deadline().into_iter().chain(held).min()
    }

    fn arm(&mut self) {
        self.armed = true;
        self.inner.arm();
        self.wake_if_armed();
    }
}
