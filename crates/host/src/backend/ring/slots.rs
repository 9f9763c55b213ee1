//! One queue of a device. A command has a slot while the ring or a thread works for it; then it is on the list of done
//! commands. Drives and durable files use this. The device decides what a command needs next: see [`Steps`]. Never
//! blocks.

use super::{Completions, Reply, RingCqe};
use io_uring::squeue::EntryMarker;
use zoneplug_core::{Command, Commands, Nanos, Op, Queue, Status};

/// A command in flight, and the state that the device keeps for it.
pub(crate) trait RingSlot: Default + Send {
    /// The place of the command in the slot.
    fn place(&mut self) -> &mut Option<Box<Command>>;
}

/// How a device carries out commands.
pub(crate) trait Steps: Send + Sized {
    /// The slots of its queues.
    type Slot: RingSlot;
    /// The answers of its threads.
    type Answer: Send + 'static;
    /// Entries of its rings.
    type Sqe: EntryMarker + Send;
    /// Answers of its rings.
    type Cqe: RingCqe;

    /// Begins a command: finishes it, or takes a slot for it. Gives the command back if another must end first.
    fn begin(&mut self, slots: &mut RingSlots<Self>, c: Box<Command>) -> Result<(), Box<Command>>;

    /// The ring or a thread has answered for the command in slot `i`.
    fn reply(&mut self, slots: &mut RingSlots<Self>, i: u32, reply: Reply<Self::Answer>);
}

/// The answers of a device's queue.
pub(crate) type SlotCompletions<S> =
    Completions<<S as Steps>::Answer, <S as Steps>::Sqe, <S as Steps>::Cqe>;

/// The slots of a queue, their answers, and the commands that are done.
pub(crate) struct RingSlots<S: Steps> {
    /// The first field, because its drop waits until neither the kernel nor a thread uses the memory of commands.
    pub(crate) completions: SlotCompletions<S>,
    slots: Vec<S::Slot>,
    free: Vec<u32>,
    done: Commands,
}

impl<S: Steps> RingSlots<S> {
    /// Takes a slot for a command. The other fields of the slot are as its last command left them.
    pub(crate) fn take(&mut self, c: Box<Command>) -> u32 {
        let i = self.free.pop().unwrap_or_else(|| {
            self.slots.push(S::Slot::default());
            self.slots.len() as u32 - 1
        });
        *self.slots[i as usize].place() = Some(c);
        i
    }

    pub(crate) fn get(&mut self, i: u32) -> &mut S::Slot {
        &mut self.slots[i as usize]
    }

    /// A slot, and the ring and mailbox that answer it.
    pub(crate) fn parts(&mut self, i: u32) -> (&mut S::Slot, &mut SlotCompletions<S>) {
        (&mut self.slots[i as usize], &mut self.completions)
    }

    /// Takes the command out of its slot, and frees the slot.
    pub(crate) fn release(&mut self, i: u32) -> Box<Command> {
        let c = self.get(i).place().take().expect("a slot in use has a command");
        self.free.push(i);
        c
    }

    /// Puts a command on the list of done commands.
    pub(crate) fn finish(&mut self, mut c: Box<Command>, status: Status) {
        c.status = status;
        self.done.push_back(c);
    }

    /// How many slots are in use.
    fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}

/// A queue of slots.
pub(crate) struct SlotQueue<S: Steps> {
    /// Dropped before `steps`: see [`RingSlots::completions`].
    slots: RingSlots<S>,
    steps: S,
    depth: usize,
    /// Commands that were taken and have not been returned.
    held: usize,
    /// Commands that could not begin, in order.
    waiting: Commands,
    seen: Nanos,
}

impl<S: Steps> SlotQueue<S> {
    pub(crate) fn new(steps: S, completions: SlotCompletions<S>, depth: u16) -> SlotQueue<S> {
        let nr = usize::from(depth);
        SlotQueue {
            slots: RingSlots {
                completions,
                slots: Vec::new(),
                free: Vec::new(),
                done: Commands::with_capacity(nr),
            },
            steps,
            depth: nr,
            held: 0,
            waiting: Commands::new(),
            seen: Nanos(0),
        }
    }

    /// Takes all answers, and begins commands that waited.
    fn advance(&mut self) {
        loop {
            let mut some = false;
            while let Some((i, reply)) = self.slots.completions.next() {
                self.steps.reply(&mut self.slots, i, reply);
                some = true;
            }
            while let Some(c) = self.waiting.pop_front() {
                if let Err(c) = self.steps.begin(&mut self.slots, c) {
                    self.waiting.push_front(c);
                    break;
                }
                some = true;
            }
            self.slots.completions.send();
            if !some {
                return;
            }
        }
    }

    /// Whether `poll` has anything to do.
    fn has_work(&self) -> bool {
        !self.slots.done.is_empty()
            || self.slots.completions.is_full()
            || (!self.waiting.is_empty() && self.slots.in_flight() == 0)
    }
}

impl<S: Steps> Queue for SlotQueue<S> {
    fn submit(&mut self, now: Nanos, commands: &mut Commands) {
        self.seen = now;
        while self.held < self.depth {
            let Some(c) = commands.pop_front() else { break };
            self.held += 1;
            let ordered = !matches!(c.op, Op::Read | Op::Flush | Op::ReportZones);
            if ordered && !self.waiting.is_empty() {
                self.waiting.push_back(c);
            } else if let Err(c) = self.steps.begin(&mut self.slots, c) {
                self.waiting.push_back(c);
            }
        }
        self.slots.completions.send();
        if self.slots.completions.is_armed() {
            // The owner may have armed the queue before it had work, so the queue is armed again for the new commands.
            self.arm();
        }
    }

    fn poll(&mut self, now: Nanos, done: &mut Commands) {
        self.seen = now;
        self.advance();
        assert!(!self.slots.completions.is_broken(), "a thread of the device has panicked");
        let ended = &mut self.slots.done;
        self.held -= ended.len();
        if done.is_empty() {
            std::mem::swap(ended, done);
        } else {
            done.append(ended);
        }
    }

    fn next_deadline(&self) -> Option<Nanos> {
        self.has_work().then_some(self.seen)
    }

    fn arm_fd(&mut self) -> Option<i32> {
        let in_flight = self.slots.in_flight();
        if self.waiting.is_empty()
            && self.slots.done.is_empty()
            && let Some(fd) = self.slots.completions.arm_fd(in_flight)
        {
            return Some(fd);
        }
        self.arm();
        None
    }

    fn arm(&mut self) {
        let ready = self.has_work();
        self.slots.completions.arm(ready);
    }
}

impl<S: Steps> Drop for SlotQueue<S> {
    /// Waits for the commands in flight, because the kernel and the threads use their memory.
    fn drop(&mut self) {
        self.waiting.clear();
        while self.slots.in_flight() > 0 && !self.slots.completions.is_broken() {
            self.slots.completions.wait();
            self.advance();
        }
    }
}
