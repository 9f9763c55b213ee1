//! Deadlines of commands: between a queue and its device, if the disk was opened with a timeout, and not there at all
//! if it was not.
//!
//! A command that goes down leaves a twin here: the same BIOs, in handles of their own. If the command is not back when
//! its time is over, the twin goes up in its place with status *timeout*, and the engine deals with it as with every
//! outcome that nobody knows. The command itself, its handles and its place at the device stay taken until it
//! comes back after all, which changes nothing else. A device of which every place is taken like this is
//! offline: what is sent to it fails at once.
//!
//! The memory of a BIO that timed out may still be read or written by the device. It must stay valid until
//! [`DiskQueue::late`](super::DiskQueue::late) is 0.

use super::sync::{AtomicU32, Ordering};
use crate::bio::{Bio, Command, Commands, Status};
use crate::device::Queue;
use crate::planted::{Bug, planted};
use crate::unit::Nanos;
use std::sync::Arc;

/// A command at the device.
struct Sent {
    /// Where it is: a box does not move while the device holds it.
    at: usize,
    due: Nanos,
    /// None: it was given up, and has not come back yet.
    twin: Option<Box<Command>>,
}

pub(crate) struct Watch {
    lower: Box<dyn Queue>,
    timeout: Nanos,
    /// Commands that the device takes at a time.
    places: usize,
    /// In the order of their deadlines.
    sent: Vec<Sent>,
    /// How many were given up and are not back.
    late: Arc<AtomicU32>,
    back: Commands,
    /// Turned away because the device is offline.
    failed: Commands,
    seen: Nanos,
    /// To be used again.
    commands: Vec<Box<Command>>,
    bios: Vec<Box<Bio>>,
}

fn address(c: &Command) -> usize {
    std::ptr::from_ref(c).addr()
}

impl Watch {
    pub(crate) fn new(
        lower: Box<dyn Queue>,
        timeout: Nanos,
        places: u16,
        late: Arc<AtomicU32>,
    ) -> Watch {
        Watch {
            lower,
            timeout,
            places: usize::from(places),
            sent: Vec::new(),
            late,
            back: Commands::new(),
            failed: Commands::new(),
            seen: Nanos(0),
            commands: Vec::new(),
            bios: Vec::new(),
        }
    }

    fn twin(&mut self, c: &mut Command) -> Box<Command> {
        let mut t = self.commands.pop().unwrap_or_else(|| Command::new(c.bios.len()));
        t.set(c.op, c.sector, c.len_sectors, c.flags);
        t.plugged = c.plugged;
        (t.zone, t.generation, t.epoch, t.owner) = (c.zone, c.generation, c.epoch, c.owner);
        t.owners.clone_from(&c.owners);
        t.report.clear();
        t.report_max = c.report_max;
        for bio in &mut c.bios {
            let mut b = self.bios.pop().unwrap_or_else(|| Bio::new(bio.op, bio.sector, 0));
            b.set(bio.op, bio.sector, bio.len_sectors, bio.buf);
            (b.token, b.flags, b.result) = (bio.token, bio.flags, bio.result);
            (b.queue, b.parent) = (bio.queue, bio.parent);
            // Of the two, the twin is the one that must not be lost.
            (b.in_flight, bio.in_flight) = (true, false);
            t.bios.push(b);
        }
        t
    }

    /// Takes a command apart whose BIOs are nobody's any more.
    fn recycle(&mut self, mut c: Box<Command>) {
        for mut bio in c.bios.drain(..) {
            bio.in_flight = false;
            self.bios.push(bio);
        }
        self.commands.push(c);
    }

    fn came_back(&mut self, mut c: Box<Command>, done: &mut Commands) {
        let Some(i) = self.sent.iter().position(|s| s.at == address(&c)) else {
            return done.push_back(c);
        };
        match self.sent.remove(i).twin {
            Some(twin) => {
                c.bios.iter_mut().for_each(|b| b.in_flight = true);
                self.recycle(twin);
                done.push_back(c);
            }
            None => {
                self.late.fetch_sub(1, Ordering::AcqRel);
                if planted(Bug::LateCountedTwice) {
                    return done.push_back(c);
                }
                self.recycle(c);
            }
        }
    }

    fn give_up(&mut self, now: Nanos, done: &mut Commands) {
        for s in &mut self.sent {
            if s.due > now || planted(Bug::DeadlineForgotten) {
                break;
            }
            if let Some(mut twin) = s.twin.take() {
                twin.status = Status::Timeout;
                self.late.fetch_add(1, Ordering::AcqRel);
                done.push_back(twin);
            }
        }
    }
}

impl Queue for Watch {
    fn submit(&mut self, now: Nanos, commands: &mut Commands) {
        self.seen = now;
        if self.late.load(Ordering::Acquire) as usize >= self.places {
            for mut c in commands.drain(..) {
                c.status = Status::NoDevice;
                self.failed.push_back(c);
            }
            return;
        }
        let (first, nr) = (self.sent.len(), commands.len());
        let due = Nanos(now.0.saturating_add(self.timeout.0));
        for c in commands.iter_mut() {
            let twin = self.twin(c);
            self.sent.push(Sent { at: address(c), due, twin: Some(twin) });
        }
        self.lower.submit(now, commands);
        // What is left was not taken: its time has not begun.
        let taken = nr - commands.len();
        for c in commands.iter_mut() {
            c.bios.iter_mut().for_each(|b| b.in_flight = true);
        }
        while self.sent.len() > first + taken {
            if let Some(Sent { twin: Some(twin), .. }) = self.sent.pop() {
                self.recycle(twin);
            }
        }
    }

    fn poll(&mut self, now: Nanos, done: &mut Commands) {
        self.seen = now;
        let mut back = std::mem::take(&mut self.back);
        self.lower.poll(now, &mut back);
        for c in back.drain(..) {
            self.came_back(c, done);
        }
        self.back = back;
        self.give_up(now, done);
        done.append(&mut self.failed);
    }

    fn next_deadline(&self) -> Option<Nanos> {
        if !self.failed.is_empty() {
            return Some(self.seen);
        }
        let due = self.sent.iter().find(|s| s.twin.is_some()).map(|s| s.due);
        self.lower.next_deadline().into_iter().chain(due).min()
    }

    fn arm(&mut self) {
        self.lower.arm();
    }

    fn arm_fd(&mut self) -> Option<i32> {
        self.lower.arm_fd()
    }
}
