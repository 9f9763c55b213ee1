//! FUA on a device that has none: a write, and a flush behind it.
//!
//! A write with FUA goes down without the flag. When it has succeeded, it waits here for a flush that is sent
//! afterwards, and ends with that flush. One flush is at the device at a time. All writes that ended before it was
//! sent end with it; later ones wait for the next. Linux's block layer does the same for such a device.

use super::Queue;
use crate::bio::{Command, Commands, Flags, FuaStep, Op, Status, WritePointer};
use crate::unit::{Nanos, Sector};

/// A queue of a device without FUA. Allocates nothing after it was made.
pub(crate) struct FuaQueue {
    below: Box<dyn Queue>,
    /// Whether the device has a cache. Without one it needs no flush.
    write_cache: bool,
    /// Commands that the device has returned, while they are sorted.
    ended: Commands,
    /// Writes that have succeeded and wait for a flush that is to be sent.
    written: Commands,
    /// Writes that wait for the flush at the device.
    covered: Commands,
    /// The flush, while it is not at the device. At most one command is in the list.
    flush: Commands,
    /// The time of the last call, for a flush that the device did not take.
    now: Nanos,
    armed: bool,
}

impl FuaQueue {
    /// Wraps a queue. `places` is the number of commands that the owner sends at a time; `below` must have one place
    /// more, for the flush.
    pub(crate) fn new(below: Box<dyn Queue>, places: u16, write_cache: bool) -> FuaQueue {
        let places = usize::from(places) + 1;
        let list = || Commands::with_capacity(places);
        let mut flush = Command::new(0);
        flush.set(Op::Flush, Sector(0), 0, Flags::NONE);
        flush.fua = FuaStep::Flush;
        FuaQueue {
            below,
            write_cache,
            ended: list(),
            written: list(),
            covered: list(),
            flush: Commands::from([flush]),
            now: Nanos(0),
            armed: false,
        }
    }

    /// Sorts the commands that the device has returned. The owner's commands that have ended go to `done`.
    fn sort(&mut self, done: &mut Commands) {
        while let Some(mut c) = self.ended.pop_front() {
            match c.fua {
                FuaStep::None => done.push_back(c),
                FuaStep::Write if c.status.is_ok() && c.op.is_write() && self.write_cache => {
                    self.written.push_back(c);
                }
                FuaStep::Write => {
                    give_back(&mut c);
                    done.push_back(c);
                }
                FuaStep::Flush => {
                    let failed = failure(c.status);
                    self.flush.push_back(c);
                    while let Some(mut c) = self.covered.pop_front() {
                        c.status = failed.unwrap_or(c.status);
                        give_back(&mut c);
                        done.push_back(c);
                    }
                }
            }
        }
    }

    /// Sends the flush if writes wait for one. Returns whether the device took it.
    fn send_flush(&mut self, now: Nanos) -> bool {
        if self.written.is_empty() || self.flush.is_empty() {
            return false;
        }
        self.below.submit(now, &mut self.flush);
        let sent = self.flush.is_empty();
        if sent {
            std::mem::swap(&mut self.written, &mut self.covered);
            if self.armed {
                self.below.arm();
            }
        }
        sent
    }
}

/// Returns the status of writes whose flush has failed. Their data are at the device, so statuses that prove the
/// contrary are replaced.
fn failure(flush: Status) -> Option<Status> {
    match flush {
        Status::Ok => None,
        status if status.write_pointer() == WritePointer::Unknown => Some(status),
        _ => Some(Status::Io),
    }
}

/// Restores the command as the owner has sent it.
fn give_back(c: &mut Command) {
    if c.fua == FuaStep::Write {
        (c.fua, c.flags) = (FuaStep::None, c.flags.with(Flags::FUA));
    }
}

impl Queue for FuaQueue {
    fn submit(&mut self, now: Nanos, commands: &mut Commands) {
        self.now = now;
        for c in commands.iter_mut().filter(|c| c.flags.contains(Flags::FUA)) {
            (c.fua, c.flags) = (FuaStep::Write, c.flags.without(Flags::FUA));
        }
        self.below.submit(now, commands);
        commands.iter_mut().for_each(|c| give_back(c));
    }

    fn poll(&mut self, now: Nanos, done: &mut Commands) {
        self.now = now;
        loop {
            self.below.poll(now, &mut self.ended);
            self.sort(done);
            if !self.send_flush(now) {
                return;
            }
        }
    }

    fn next_deadline(&self) -> Option<Nanos> {
        let below = self.below.next_deadline();
        // A flush that the device had no place for is offered again.
        let again = (!self.written.is_empty() && !self.flush.is_empty()).then_some(self.now);
        below.into_iter().chain(again).min()
    }

    fn arm(&mut self) {
        self.armed = true;
        self.below.arm();
    }
}
