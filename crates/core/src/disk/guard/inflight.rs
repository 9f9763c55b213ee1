//! A queue's notes of its commands while the device has them. A queue has this layer only if the disk was opened with
//! a timeout or with `survive_panics`.
//!
//! Before a command goes down, its contents and those of its BIOs are noted here. If the command is not back in time,
//! BIOs made from the note go up in its place with status *timeout*, and the engine treats them like any error of
//! unknown outcome. The command itself is *late*: it keeps its place at the device until it comes back, which changes
//! nothing else. If late commands fill all places of a device, new commands to it fail at once, and leave write
//! pointers as they are.
//!
//! A queue of the device that panics is dead. It is not called any more, and not dropped, because the device may go
//! on using it. All commands that it had go up with status *no device*, and so does every later one.
//!
//! The device may still read or write the memory of BIOs that go up like this. So they go up without their memory,
//! and carry a ticket (`late.rs`). When the command comes back, its memory is compared with the note and kept for its
//! lender.

use crate::bio::{BioNote, Command, Commands, MIXED, NO_SLOT, Status, UNSENT};
use crate::device::{ClosedQueue, Queue};
use crate::disk::guard::late::{FOREVER, LateTable};
use crate::sync::{AtomicBool, AtomicU32, Ordering};
use crate::unit::Nanos;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// State of the note of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// No command uses the note.
    Free,
    /// The command is at the device.
    Sent,
    /// Given up under this ticket, and not back yet.
    GivenUp(u32),
}

/// The note of a command.
struct Slot {
    state: State,
    /// The time at which the command is given up.
    due: Nanos,
    /// The serial number of the command, in the order of sending.
    nr: u64,
    /// The command that goes up in place of this one if this one is given up. It has no BIOs until then.
    stand_in: Box<Command>,
    /// The notes of its BIOs.
    bios: Vec<BioNote>,
}

/// Wraps a queue of the device, and notes the commands that it has. The queue of the disk sends to the wrapper.
pub(crate) struct GuardedQueue {
    /// The queue of the device.
    lower: Box<dyn Queue>,
    /// The device's queue has panicked.
    panicked: Cell<bool>,
    /// The device's queue has panicked, and everything that it had has been failed.
    dead: bool,
    /// The time limit of a command. `None`: no limit.
    timeout: Option<Nanos>,
    /// How many commands the device takes at a time.
    places: usize,
    /// Notes, by [`Command::slot`].
    slots: Vec<Slot>,
    /// Slots that no command uses.
    free: Vec<u32>,
    /// The number of the next command.
    nr: u64,
    /// No command is due before this.
    next_due: Nanos,
    /// The losses of the device's queue, shared with the queue state.
    losses: Arc<Losses>,
    /// The tickets of the disk.
    table: Arc<LateTable>,
    /// Commands that have failed without the device and go up at the next poll.
    failed: Commands,
    /// The time of the last call.
    seen: Nanos,
}

/// The losses of a device's queue, for the queue state above it.
#[derive(Debug, Default)]
pub(crate) struct Losses {
    /// Commands that were given up and are not back.
    pub(crate) late: AtomicU32,
    /// Whether the device's queue has panicked.
    pub(crate) dead: AtomicBool,
}

/// Calls into a device. Returns `None` if the call panicked.
fn caught<R>(f: impl FnOnce() -> R) -> Option<R> {
    // A panic's payload may panic again when it is dropped.
    catch_unwind(AssertUnwindSafe(f)).map_err(std::mem::forget).ok()
}

impl GuardedQueue {
    pub(crate) fn new(
        lower: Box<dyn Queue>,
        timeout: Option<Nanos>,
        places: u16,
        losses: Arc<Losses>,
        table: Arc<LateTable>,
    ) -> GuardedQueue {
        let places = usize::from(places);
        GuardedQueue {
            lower,
            panicked: Cell::new(false),
            dead: false,
            timeout,
            places,
            slots: Vec::with_capacity(places),
            free: Vec::with_capacity(places),
            nr: 0,
            next_due: Nanos(u64::MAX),
            losses,
            table,
            failed: Commands::new(),
            seen: Nanos(0),
        }
    }

    /// Finds a slot for a command that has none.
    #[cold]
    fn new_slot(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            let (state, due, stand_in) = (State::Free, Nanos(0), Command::new(0));
            self.slots.push(Slot { state, due, nr: 0, stand_in, bios: Vec::new() });
            self.slots.len() as u32 - 1
        })
    }

    /// Notes the contents of `c` before it goes down. A command keeps its slot for the next time.
    #[inline]
    fn note(&mut self, c: &mut Command, due: Nanos) {
        if c.slot as usize >= self.slots.len() {
            c.slot = self.new_slot();
        }
        let slot = &mut self.slots[c.slot as usize];
        debug_assert!(slot.state == State::Free && slot.bios.is_empty());
        (slot.state, slot.due, slot.nr) = (State::Sent, due, self.nr);
        self.nr += 1;
        let t = &mut *slot.stand_in;
        (t.op, t.sent_op, t.flags, t.waiter) = (c.op, c.sent_op, c.flags, c.waiter);
        (t.sector, t.len_sectors, t.report_max) = (c.sector, c.len_sectors, c.report_max);
        (t.zone, t.generation, t.epoch, t.owner) = (c.zone, c.generation, c.epoch, c.owner);
        (t.managed, t.claim) = (c.managed.clone(), c.claim);
        if c.owner == MIXED {
            t.owners.clone_from(&c.owners);
        }
        slot.bios.extend(c.bios.iter_mut().map(|bio| {
            // The note completes in place of a BIO that the device loses, so such a BIO does not count as lost.
            bio.in_flight = false;
            bio.note()
        }));
    }

    /// Deletes the note of a command that is back, or was not sent.
    #[inline]
    fn forget(slot: &mut Slot, c: &mut Command) {
        slot.state = State::Free;
        slot.bios.clear();
        c.bios.iter_mut().for_each(|b| b.in_flight = true);
    }

    /// Matches the commands that the device has appended to `done`, from index `first` on, with their notes.
    #[inline]
    fn take_back(&mut self, first: usize, done: &mut Commands) {
        let mut late = false;
        for c in done.range_mut(first..) {
            match self.slots.get_mut(c.slot as usize) {
                Some(slot) if slot.state == State::Sent => Self::forget(slot, c),
                slot => late |= slot.is_some(),
            }
        }
        if late {
            self.take_back_late(first, done);
        }
    }

    /// Takes back commands that were given up. Their BIOs have completed already, so nothing is delivered.
    #[cold]
    fn take_back_late(&mut self, first: usize, done: &mut Commands) {
        let mut back = Vec::new();
        let mut rest = done.split_off(first);
        for mut c in rest.drain(..) {
            let i = c.slot;
            let slot = self.slots.get_mut(i as usize);
            if let Some(slot) = slot
                && let State::GivenUp(ticket) = slot.state
            {
                slot.state = State::Free;
                self.free.push(i);
                self.losses.late.fetch_sub(1, Ordering::AcqRel);
                back.push(self.table.events.late_back(&c));
                let whole = slot.bios.len() == c.bios.len()
                    && slot.bios.iter().zip(&c.bios).all(|(note, bio)| note.has_memory_of(bio));
                slot.bios.clear();
                c.bios.iter_mut().for_each(|bio| self.table.give_back(bio.take_buf()));
                if whole {
                    self.table.close(ticket);
                }
                c.slot = NO_SLOT;
                continue;
            }
            done.push_back(c);
        }
        // Recorded now, because the memory is available from here on.
        self.table.events.record_late_back(back);
    }

    /// Sends up a stand-in made from the note, in place of the command.
    #[cold]
    fn complete_from_note(&mut self, i: u32, status: Status, ticket: u32, done: &mut Commands) {
        let slot = &mut self.slots[i as usize];
        let mut stand_in = std::mem::replace(&mut slot.stand_in, Command::new(0));
        for note in &slot.bios {
            let mut bio = note.bio();
            (bio.in_flight, bio.late) = (true, ticket);
            stand_in.bios.push(bio);
        }
        stand_in.status = status;
        done.push_back(stand_in);
    }

    /// Returns the slots of commands that are at the device and due by `now`, in the order in which they were sent.
    fn due(&self, now: Nanos) -> Vec<u32> {
        let all = self.slots.iter().enumerate();
        let due = all.filter(|(_, s)| s.state == State::Sent && s.due <= now);
        let mut due: Vec<_> = due.map(|(i, s)| (s.nr, i as u32)).collect();
        due.sort_unstable();
        due.into_iter().map(|(_, i)| i).collect()
    }

    fn first_due(&self) -> Option<Nanos> {
        let sent = self.slots.iter().filter(|s| s.state == State::Sent && s.due.0 != u64::MAX);
        sent.map(|s| s.due).min()
    }

    #[cold]
    fn give_up(&mut self, now: Nanos, done: &mut Commands) {
        for i in self.due(now) {
            let ticket = self.table.open();
            self.losses.late.fetch_add(1, Ordering::AcqRel);
            self.slots[i as usize].state = State::GivenUp(ticket);
            self.complete_from_note(i, Status::Timeout, ticket, done);
        }
        self.next_due = self.first_due().unwrap_or(Nanos(u64::MAX));
    }

    /// Fails all commands that a queue of the device had when it panicked.
    #[cold]
    fn declare_dead(&mut self) {
        self.dead = true;
        self.losses.dead.store(true, Ordering::Release);
        self.table.dead_queues.fetch_add(1, Ordering::Relaxed);
        self.table.events.queue_died();
        // The queue is not dropped, because threads or the kernel may still use its resources.
        std::mem::forget(std::mem::replace(&mut self.lower, Box::new(ClosedQueue)));
        let mut failed = std::mem::take(&mut self.failed);
        for i in self.due(Nanos(u64::MAX)) {
            // The slot is never used again.
            self.slots[i as usize].state = State::GivenUp(FOREVER);
            self.complete_from_note(i, Status::NoDevice, FOREVER, &mut failed);
        }
        self.failed = failed;
        // None of these commands comes back, so their tickets stay open.
        self.losses.late.store(0, Ordering::Release);
    }

    /// Fails commands that the device does not get. `slot` is [`UNSENT`] if the device has not seen them.
    #[cold]
    fn turn_away(&mut self, commands: &mut Commands, slot: u32) {
        for mut c in commands.drain(..) {
            if (c.slot as usize) < self.slots.len() {
                self.free.push(c.slot);
            }
            (c.status, c.slot) = (Status::NoDevice, slot);
            self.failed.push_back(c);
        }
    }
}

impl Queue for GuardedQueue {
    fn submit(&mut self, now: Nanos, commands: &mut Commands) {
        self.seen = now;
        if self.panicked.get() && !self.dead {
            self.declare_dead();
        }
        if self.dead || self.losses.late.load(Ordering::Acquire) as usize >= self.places {
            return self.turn_away(commands, UNSENT);
        }
        let due = Nanos(self.timeout.map_or(u64::MAX, |t| now.0.saturating_add(t.0)));
        for c in commands.iter_mut() {
            self.note(c, due);
        }
        self.next_due = self.next_due.min(due);
        let lower = &mut self.lower;
        let alive = caught(|| lower.submit(now, commands)).is_some();
        // The device has not taken the commands that are left, so their time has not begun.
        for c in commands.iter_mut() {
            Self::forget(&mut self.slots[c.slot as usize], c);
        }
        if !alive {
            self.declare_dead();
            self.turn_away(commands, NO_SLOT);
        }
    }

    fn poll(&mut self, now: Nanos, done: &mut Commands) {
        self.seen = now;
        let mut alive = !self.panicked.get();
        if alive && !self.dead {
            let (lower, first) = (&mut self.lower, done.len());
            alive = caught(|| lower.poll(now, done)).is_some();
            if done.len() > first {
                self.take_back(first, done);
            }
        }
        if !alive && !self.dead {
            self.declare_dead();
        }
        if now >= self.next_due && self.timeout.is_some() && !self.dead {
            self.give_up(now, done);
        }
        if !self.failed.is_empty() {
            done.append(&mut self.failed);
        }
    }

    fn next_deadline(&self) -> Option<Nanos> {
        if !self.failed.is_empty() {
            return Some(self.seen);
        }
        if self.dead || self.panicked.get() {
            return (!self.dead).then_some(self.seen);
        }
        let Some(lower) = caught(|| self.lower.next_deadline()) else {
            self.panicked.set(true);
            return Some(self.seen);
        };
        lower.into_iter().chain(self.first_due()).min()
    }

    fn arm(&mut self) {
        let lower = &mut self.lower;
        if !self.dead && !self.panicked.get() && caught(|| lower.arm()).is_none() {
            self.declare_dead();
        }
    }

    fn arm_fd(&mut self) -> Option<i32> {
        if self.dead || self.panicked.get() {
            return None;
        }
        let lower = &mut self.lower;
        let armed = caught(|| lower.arm_fd());
        if armed.is_none() {
            self.declare_dead();
        }
        armed.flatten()
    }
}

impl Drop for GuardedQueue {
    fn drop(&mut self) {
        let lower = std::mem::replace(&mut self.lower, Box::new(ClosedQueue));
        if self.panicked.get() {
            return std::mem::forget(lower);
        }
        if caught(|| drop(lower)).is_none() {
            self.table.dead_queues.fetch_add(1, Ordering::Relaxed);
        }
    }
}
