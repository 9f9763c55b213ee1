//! What a queue remembers of its commands while the device has them. A queue has this layer only if the disk was
//! opened with a timeout or with `survive_panics`.
//!
//! A command that goes down leaves a note here of what it and its BIOs say. If its time is over before it is
//! back, BIOs made from the note go up in its place with status *timeout*, and the engine deals with it as with
//! every unknown outcome. The command itself and its place at the device stay taken until it comes
//! back after all, which changes nothing else. A device of which every place is taken like this is offline:
//! what is sent to it fails at once, and leaves write pointers as they are.
//!
//! A device's queue that panics is dead: it is called no more, and not dropped either, for something may go on
//! in it. All that it had goes up with status *no device*, and so does what is sent from then on.
//!
//! The memory of BIOs that go up like this may still be read or written by the device: they go up without it,
//! and carry a ticket (see `late`). When the command is back its memory is compared with the note and kept for
//! its lenders.

use crate::bio::{BioNote, Command, Commands, MIXED, NO_SLOT, Status, UNSENT};
use crate::device::{Gone, Queue};
use crate::disk::guard::late::{FOREVER, LateTable};
use crate::sync::{AtomicBool, AtomicU32, Ordering};
use crate::unit::Nanos;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// What has become of a command that was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Free,
    Sent,
    /// Given up, and not back yet: its ticket.
    GivenUp(u32),
}

/// A command at the device.
struct Slot {
    state: State,
    due: Nanos,
    /// Counts up in the order in which commands were sent.
    nr: u64,
    /// What goes up in the command's place; its BIOs are notes only.
    twin: Box<Command>,
    bios: Vec<BioNote>,
}

pub(crate) struct Watch {
    lower: Box<dyn Queue>,
    /// It has panicked,
    panicked: Cell<bool>,
    /// and nothing is asked of it any more.
    dead: bool,
    timeout: Option<Nanos>,
    /// Commands that the device takes at a time.
    places: usize,
    /// By [`Command::slot`].
    slots: Vec<Slot>,
    /// Those of no command.
    free: Vec<u32>,
    nr: u64,
    /// No command is due before this.
    next_due: Nanos,
    /// How many were given up and are not back.
    toll: Arc<Toll>,
    table: Arc<LateTable>,
    /// What goes up without the device.
    failed: Commands,
    seen: Nanos,
}

/// What a queue of the device has lost, for the lane above it.
#[derive(Debug, Default)]
pub(crate) struct Toll {
    /// Commands that were given up and are not back.
    pub(crate) late: AtomicU32,
    /// It has panicked.
    pub(crate) dead: AtomicBool,
}

/// Calls into a device. `None`: it panicked.
fn caught<R>(f: impl FnOnce() -> R) -> Option<R> {
    // A panic's payload may panic again when it is dropped.
    catch_unwind(AssertUnwindSafe(f)).map_err(std::mem::forget).ok()
}

impl Watch {
    pub(crate) fn new(
        lower: Box<dyn Queue>,
        timeout: Option<Nanos>,
        places: u16,
        toll: Arc<Toll>,
        table: Arc<LateTable>,
    ) -> Watch {
        let places = usize::from(places);
        Watch {
            lower,
            panicked: Cell::new(false),
            dead: false,
            timeout,
            places,
            slots: Vec::with_capacity(places),
            free: Vec::with_capacity(places),
            nr: 0,
            next_due: Nanos(u64::MAX),
            toll,
            table,
            failed: Commands::new(),
            seen: Nanos(0),
        }
    }

    /// A place for the note of a command that has none.
    #[cold]
    fn new_slot(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            let (state, due, twin) = (State::Free, Nanos(0), Command::new(0));
            self.slots.push(Slot { state, due, nr: 0, twin, bios: Vec::new() });
            self.slots.len() as u32 - 1
        })
    }

    /// Notes what `c` says, before it goes down. A command keeps its place for the next time.
    #[inline]
    fn note(&mut self, c: &mut Command, due: Nanos) {
        if c.slot as usize >= self.slots.len() {
            c.slot = self.new_slot();
        }
        let slot = &mut self.slots[c.slot as usize];
        debug_assert!(slot.state == State::Free && slot.bios.is_empty());
        (slot.state, slot.due, slot.nr) = (State::Sent, due, self.nr);
        self.nr += 1;
        let t = &mut *slot.twin;
        (t.op, t.flags, t.waits) = (c.op, c.flags, c.waits);
        (t.sector, t.len_sectors, t.report_max) = (c.sector, c.len_sectors, c.report_max);
        (t.zone, t.generation, t.epoch, t.owner) = (c.zone, c.generation, c.epoch, c.owner);
        if c.owner == MIXED {
            t.owners.clone_from(&c.owners);
        }
        slot.bios.extend(c.bios.iter_mut().map(|bio| {
            // Of the two, the note is the one that must not be lost.
            bio.in_flight = false;
            bio.note()
        }));
    }

    /// The command is back, or has not gone: it is the one that counts again.
    #[inline]
    fn forget(slot: &mut Slot, c: &mut Command) {
        slot.state = State::Free;
        slot.bios.clear();
        c.bios.iter_mut().for_each(|b| b.in_flight = true);
    }

    /// Looks at what the device has appended to `done` from index `first` on.
    #[inline]
    fn came_back(&mut self, first: usize, done: &mut Commands) {
        let mut late = false;
        for c in done.range_mut(first..) {
            match self.slots.get_mut(c.slot as usize) {
                Some(slot) if slot.state == State::Sent => Self::forget(slot, c),
                slot => late |= slot.is_some(),
            }
        }
        if late {
            self.came_back_late(first, done);
        }
    }

    /// Takes back commands that were given up. Their BIOs have completed already, so nothing is delivered.
    #[cold]
    fn came_back_late(&mut self, first: usize, done: &mut Commands) {
        let mut rest = done.split_off(first);
        for mut c in rest.drain(..) {
            let i = c.slot;
            let slot = self.slots.get_mut(i as usize);
            if let Some(slot) = slot
                && let State::GivenUp(ticket) = slot.state
            {
                slot.state = State::Free;
                self.free.push(i);
                self.toll.late.fetch_sub(1, Ordering::AcqRel);
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
    }

    /// Sends up what was noted, in the place of the command.
    #[cold]
    fn replace(&mut self, i: u32, status: Status, ticket: u32, done: &mut Commands) {
        let slot = &mut self.slots[i as usize];
        let mut twin = std::mem::replace(&mut slot.twin, Command::new(0));
        for note in &slot.bios {
            let mut bio = note.bio();
            (bio.in_flight, bio.late) = (true, ticket);
            twin.bios.push(bio);
        }
        twin.status = status;
        done.push_back(twin);
    }

    /// The slots that are sent and due by `now`, first sent first.
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
            self.toll.late.fetch_add(1, Ordering::AcqRel);
            self.slots[i as usize].state = State::GivenUp(ticket);
            self.replace(i, Status::Timeout, ticket, done);
        }
        self.next_due = self.first_due().unwrap_or(Nanos(u64::MAX));
    }

    /// The device's queue has panicked.
    #[cold]
    fn bury(&mut self) {
        self.dead = true;
        self.toll.dead.store(true, Ordering::Release);
        self.table.dead_queues.fetch_add(1, Ordering::Relaxed);
        // Not dropped: threads or a kernel may go on with what it holds.
        std::mem::forget(std::mem::replace(&mut self.lower, Box::new(Gone)));
        let mut failed = std::mem::take(&mut self.failed);
        for i in self.due(Nanos(u64::MAX)) {
            // The slot is never used again.
            self.slots[i as usize].state = State::GivenUp(FOREVER);
            self.replace(i, Status::NoDevice, FOREVER, &mut failed);
        }
        self.failed = failed;
        // None of them comes back: their tickets stay open.
        self.toll.late.store(0, Ordering::Release);
    }

    /// What the device does not get; `slot`: [`UNSENT`] if it has not even seen it.
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

impl Queue for Watch {
    fn submit(&mut self, now: Nanos, commands: &mut Commands) {
        self.seen = now;
        if self.panicked.get() && !self.dead {
            self.bury();
        }
        if self.dead || self.toll.late.load(Ordering::Acquire) as usize >= self.places {
            return self.turn_away(commands, UNSENT);
        }
        let due = Nanos(self.timeout.map_or(u64::MAX, |t| now.0.saturating_add(t.0)));
        for c in commands.iter_mut() {
            self.note(c, due);
        }
        self.next_due = self.next_due.min(due);
        let lower = &mut self.lower;
        let alive = caught(|| lower.submit(now, commands)).is_some();
        // What is left was not taken: its time has not begun.
        for c in commands.iter_mut() {
            Self::forget(&mut self.slots[c.slot as usize], c);
        }
        if !alive {
            self.bury();
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
                self.came_back(first, done);
            }
        }
        if !alive && !self.dead {
            self.bury();
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
            self.bury();
        }
    }

    fn arm_fd(&mut self) -> Option<i32> {
        if self.dead || self.panicked.get() {
            return None;
        }
        let lower = &mut self.lower;
        let armed = caught(|| lower.arm_fd());
        if armed.is_none() {
            self.bury();
        }
        armed.flatten()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let lower = std::mem::replace(&mut self.lower, Box::new(Gone));
        if self.panicked.get() {
            return std::mem::forget(lower);
        }
        if caught(|| drop(lower)).is_none() {
            self.table.dead_queues.fetch_add(1, Ordering::Relaxed);
        }
    }
}
