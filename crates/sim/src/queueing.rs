//! The oracle for the order in which commands are sent:
//!
//! * At most `queue_depth` commands are at the device.
//! * In `mq-deadline` a read that has expired, and whose class has aged, waits for at most the rest of a batch, one
//!   batch of the other direction, and the reads of its class that came before it.
//! * A BIO that may not wait does not wait (W11).
//!
//! The oracle keeps the reads that were submitted and not sent. The seam oracle reports commands to it, and the world
//! reports BIOs. While the device is busy, commands that the scheduler has released are held up; reads that wait then
//! are not judged.

use zoneplug_core::disk::{DiskConfig, Mode};
use zoneplug_core::sched::Scheduler;
use zoneplug_core::{Command, Nanos, Op};

/// More than the tags of all queues of a world.
const MOST_ON_THE_WAY: u32 = 32;

/// A read that was not sent yet.
struct Waiting {
    token: u64,
    since: Nanos,
    /// The number of its commands. A read of several commands is not judged, but counts for the reads behind it.
    parts: u64,
    /// Commands of any zone that were sent after it was late, and their limit.
    passed: u64,
    most: Option<u64>,
}

#[derive(Default)]
pub(crate) struct Queueing {
    /// Most commands at the device; 0: no limit.
    depth: u32,
    flying: u32,
    /// The time after which a read is late, and the length of a batch. `None`: the scheduler promises
    /// nothing.
    late: Option<(Nanos, u64)>,
    waiting: Vec<Waiting>,
    /// Commands that the scheduler had released while the device was busy and that may still come down.
    disturbed: u32,
    /// The number of times that `depth` commands were at the device.
    pub(crate) full: u64,
    /// Late reads that went ahead of others.
    pub(crate) expired: u64,
    /// The number of times that the device took fewer commands than it was given.
    pub(crate) held_up: u64,
    /// Reads that may not wait and were sent at once.
    pub(crate) at_once: u64,
    nowait: Vec<u64>,
}

impl Queueing {
    /// Sets the rules from now on. Reads that wait already are not judged.
    pub(crate) fn configure(&mut self, c: &DiskConfig) {
        let scheduled = c.scheduler != Scheduler::None || c.mode == Mode::Lock;
        self.depth = if scheduled && c.timeout.is_none() { c.queue_depth } else { 0 };
        let promised = c.scheduler == Scheduler::MqDeadline
            && c.mode != Mode::Lock
            && c.read_write_balance.is_none()
            && c.timeout.is_none()
            && c.deadline.writes_starved > 0;
        let after = c.deadline.read_expire.max(c.deadline.prio_aging_expire);
        self.late = promised.then_some((after, u64::from(c.deadline.fifo_batch)));
        self.waiting.iter_mut().for_each(|w| w.parts = w.parts.max(2));
    }

    /// Forgets everything in flight.
    pub(crate) fn restart(&mut self) {
        self.flying = 0;
        self.waiting.clear();
        self.nowait.clear();
    }

    /// Notes that a read of the ordinary class, of `parts` commands, was submitted.
    pub(crate) fn asked(&mut self, token: u64, now: Nanos, parts: u64) {
        let parts = parts.max(1 + u64::from(self.disturbed > 0));
        self.waiting.push(Waiting { token, since: now, parts, passed: 0, most: None });
    }

    /// Notes that a BIO has come back, whether it was sent or not.
    pub(crate) fn completed(&mut self, token: u64) {
        self.waiting.retain(|w| w.token != token);
    }

    /// Judges a command that is sent to the device.
    pub(crate) fn down(&mut self, now: Nanos, c: &Command) {
        if c.bios.is_empty() {
            // Reports of the layer itself have no client.
            return;
        }
        self.flying += 1;
        self.disturbed = self.disturbed.saturating_sub(1);
        assert!(
            self.depth == 0 || self.flying <= self.depth,
            "queue_depth: {} commands at the device, not {}: {c:?}",
            self.flying,
            self.depth
        );
        self.full += u64::from(self.flying == self.depth);
        if !matches!(c.op, Op::Read | Op::Write | Op::WriteZeroes) {
            return;
        }
        let token = c.bios[0].token();
        if c.op == Op::Read {
            self.nowait.retain(|&t| t != token);
            if let Some(i) = self.waiting.iter().position(|w| w.token == token && w.parts == 1) {
                let w = self.waiting.remove(i);
                self.expired += u64::from(w.most.is_some());
            }
        }
        let Some((after, batch)) = self.late else { return };
        let mut older = 0;
        for w in &mut self.waiting {
            older += w.parts;
            // It is unknown which command of a read of several was sent.
            if w.parts > 1 || now.0.saturating_sub(w.since.0) < after.0 {
                continue;
            }
            let most = *w.most.get_or_insert(2 * batch * older);
            w.passed += 1;
            assert!(
                w.passed <= most,
                "C5: read {} waits since {:?}, was late {} commands ago, and {c:?} is sent at {now:?}",
                w.token,
                w.since,
                w.passed
            );
        }
    }

    /// Notes that the device has given a command back, or has not taken it.
    pub(crate) fn up(&mut self, c: &Command) {
        if !c.bios.is_empty() {
            self.flying = self.flying.saturating_sub(1);
        }
    }

    /// Notes that the device was busy.
    pub(crate) fn busy(&mut self) {
        self.held_up += 1;
        self.disturbed = MOST_ON_THE_WAY;
        self.waiting.iter_mut().for_each(|w| w.parts = w.parts.max(2));
    }

    /// Notes that a read that must not wait is about to be submitted.
    pub(crate) fn must_not_wait(&mut self, token: u64) {
        self.nowait.push(token);
    }

    /// Returns whether that read was not sent.
    pub(crate) fn was_kept(&mut self, token: u64) -> bool {
        let kept = self.nowait.iter().position(|&t| t == token).map(|i| self.nowait.remove(i));
        self.at_once += u64::from(kept.is_none());
        kept.is_some()
    }
}
