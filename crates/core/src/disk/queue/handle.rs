//! The handle of a queue: opening, sleeping, closing.

use crate::bio::Bios;
use crate::device::MappedQueue;
use crate::disk::config::QueueConfig;
use crate::disk::mailbox::Mailbox;
use crate::disk::order_window::{NOTHING_DUE, PAUSED};
use crate::disk::queue_state::QueueState;
use crate::disk::shared::Shared;
use crate::disk::snapshot::Layout;
use crate::disk::state::{self, EARLY, ORPHANS};
use crate::sync::{Ordering, lock};
use crate::unit::Nanos;
use std::sync::Arc;
use std::task::Waker;

/// A queue of a [`Disk`](crate::disk::Disk): used by one owner at a time, which submits and polls.
pub struct DiskQueue {
    pub(crate) shared: Arc<Shared>,
    pub(crate) layout: Arc<Layout>,
    pub(crate) state: QueueState,
}

/// The answer of [`DiskQueue::arm_fd`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Armed {
    /// Whether nothing is to be polled for yet, so that the owner may sleep.
    pub may_sleep: bool,
    /// The descriptor that becomes readable when a command of the queue finishes, if there is one.
    pub fd: Option<i32>,
}

impl std::fmt::Debug for DiskQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DiskQueue")
            .field("id", &self.state.id)
            .field("outstanding", &self.state.intake.outstanding())
            .field("free_tags", &self.state.tags.nr_free())
            .field("ready", &self.state.backlog.len())
            .field("waits", &self.state.waits)
            .finish_non_exhaustive()
    }
}

impl DiskQueue {
    pub(crate) fn new(shared: Arc<Shared>, lower: MappedQueue, config: &QueueConfig) -> DiskQueue {
        let mailbox = Arc::new(Mailbox::default());
        mailbox.reserve(config.depth.min(4096) as usize);
        let id = {
            let mut queues = lock(&shared.queues);
            let word = state::first_word(shared.state.0.load(Ordering::Acquire));
            mailbox.ack.store(word, Ordering::Release);
            match queues.iter().position(Option::is_none) {
                Some(free) => {
                    queues[free] = Some(mailbox.clone());
                    free
                }
                None => {
                    queues.push(Some(mailbox.clone()));
                    queues.len() - 1
                }
            }
        };
        shared.bump();
        let layout = lock(&shared.layout).clone();
        let mut state = QueueState::new(id as u32, lower, config.depth, config.tags, mailbox);
        state.waits.reserve(shared.single_writers.len());
        DiskQueue { shared, layout, state }
    }

    /// Returns how many BIOs were taken and not given back yet.
    pub fn outstanding(&self) -> u32 {
        self.state.intake.outstanding()
    }

    /// Returns how many BIOs can be submitted now.
    pub fn room(&self) -> u32 {
        self.state.intake.room()
    }

    /// Returns whether commands of this queue are at the device or wait for a tag. If so, polling the queue can make
    /// progress, perhaps for other queues. BIOs that are parked behind another queue's write do not count.
    pub fn is_busy(&self) -> bool {
        self.state.is_busy()
    }

    /// Returns whether [`DiskQueue::poll`] would return a BIO at once.
    pub fn has_completions(&self) -> bool {
        self.state.intake.nr_ended() != 0 || self.state.mailbox.is_filled()
    }

    /// Returns whether only the owner can go on: all BIOs of the queue have finished and wait for its poll, and the
    /// queue does no work for others. False if it has no BIO.
    pub fn waits_for_owner(&self) -> bool {
        let ended = self.state.intake.nr_ended();
        ended != 0 && ended == self.outstanding() as usize && !self.is_busy()
    }

    /// Returns how many commands of this queue were given up because they exceeded their time
    /// ([`DiskConfig::timeout`](crate::disk::DiskConfig::timeout)) and are still at the device. Their BIOs may belong
    /// to other queues, and BIOs of this queue may be late on others: [`Bio::late`](crate::Bio::late) says which
    /// memory is still in use. A freeze does not wait for late commands. A queue that is dropped is kept until they
    /// are back, or until the disk has no handle any more; [`DiskQueue::abandon`] does not wait.
    pub fn late(&self) -> u32 {
        self.state.late_commands.nr_late()
    }

    /// Takes no more BIOs, and frees memory that only these would need. For a queue whose client has gone and that late
    /// commands keep ([`DiskQueue::late`]): a device that never gives one back costs little more than that command.
    /// Does nothing while a BIO or a command of the queue has not ended.
    pub fn shrink(&mut self) {
        if self.outstanding() == 0 && !self.is_busy() {
            let depth = self.state.shrink();
            self.shared.depths.fetch_sub(u64::from(depth), Ordering::Relaxed);
        }
    }

    /// Closes the queue as dropping it does, but does not wait for late commands: drops the device's queue with them.
    /// BIOs of these commands are then late for ever. Returns how many commands there were. A queue with other work
    /// becomes an orphan, and 0 is returned.
    pub fn abandon(&mut self) -> u32 {
        self.drop_held();
        let late = self.state.late_commands.nr_late();
        if late == 0 || !self.state.only_late() {
            self.close();
            return 0;
        }
        drop(std::mem::replace(&mut self.state.lower, MappedQueue::closed()));
        self.state.late_commands.abandon();
        self.close();
        late
    }

    /// Returns the next moment at which `poll` has work to do by itself: for this queue, for queues that were dropped
    /// with work in flight, or for writes of any queue that the order window holds.
    pub fn next_deadline(&self) -> Option<Nanos> {
        let mut own = self.state.next_deadline();
        let state = self.shared.state.0.load(Ordering::Acquire);
        if state & EARLY != 0 {
            let due = self.shared.window_due.load(Ordering::Acquire);
            // After a freeze the next call, whenever it comes, restarts the time limits of held writes.
            let paused = due == PAUSED && state::is_frozen(state);
            let held = (!paused && due != NOTHING_DUE).then_some(Nanos(due));
            own = own.into_iter().chain(held).min();
        }
        if state & ORPHANS == 0 {
            return own;
        }
        // An orphan has no owner to ask for its deadline, and a BIO of this queue may wait behind its command.
        let orphans = lock(&self.shared.orphans);
        if orphans.is_empty() {
            // A poller has taken the orphans off the list. If it puts any back, it finds the bit clear and wakes
            // every queue.
            self.shared.state.0.fetch_and(!ORPHANS, Ordering::AcqRel);
        }
        orphans.iter().filter_map(|o| o.own_deadline()).chain(own).min()
    }

    /// Prepares for sleep. `waker` is woken when another queue delivers a BIO of this one, or when a freeze ends. The
    /// device's waker ([`QueueConfig::waker`]) is woken when a command of this queue finishes. Returns false if there
    /// is something to poll for already. Arm, poll once more, then sleep.
    pub fn arm(&mut self, waker: &Waker) -> bool {
        self.state.lower.arm();
        self.arm_mailbox(waker)
    }

    /// Like [`DiskQueue::arm`], for an owner that sleeps in poll(2). If a descriptor is returned, it becomes readable
    /// when a command of this queue finishes, and the device's waker is not woken (see
    /// [`Queue::arm_fd`](crate::Queue::arm_fd)).
    pub fn arm_fd(&mut self, waker: &Waker) -> Armed {
        let fd = self.state.lower.arm_fd();
        Armed { may_sleep: self.arm_mailbox(waker), fd }
    }

    fn arm_mailbox(&mut self, waker: &Waker) -> bool {
        if self.state.intake.nr_ended() != 0 || !self.state.mailbox.arm(waker) {
            return false;
        }
        // The waker is in place, so the end of a freeze is either seen here or wakes the owner.
        let state = self.shared.state.0.load(Ordering::Acquire);
        if state & ORPHANS != 0 {
            self.shared.arm_orphans();
        }
        let frozen = state::is_frozen(state);
        !self.state.intake.is_thawed(frozen)
    }

    /// Handles a change of layout, freeze, queues or orphans since the last call. Returns false if the disk is
    /// frozen.
    #[cold]
    pub(crate) fn refresh(&mut self, now: Nanos) -> bool {
        let state = self.shared.state.0.load(Ordering::Acquire);
        if state & ORPHANS != 0 {
            Shared::poll_orphans(&self.shared, now);
        }
        self.layout = lock(&self.shared.layout).clone();
        self.state.follow(&self.layout);
        self.state.peers.clone_from(&lock(&self.shared.queues));
        let frozen = self.state.acknowledge(state);
        // While there are orphans or a freeze, every call must come here, so `seen` must not match.
        self.state.seen = if frozen || state & ORPHANS != 0 { u32::MAX } else { state & !EARLY };
        !frozen
    }

    /// Polls on behalf of the owner. Keeps finished BIOs for the owner's next poll, and wakes an armed owner. Returns
    /// whether any BIO finished that was not kept before this call.
    pub fn poll_for_owner(&mut self, now: Nanos) -> bool {
        let kept = self.state.intake.nr_ended();
        let mut done = Bios::new();
        self.poll(now, &mut done);
        let any = done.len() > kept;
        if !done.is_empty() {
            self.state.intake.keep(&mut done);
            self.state.mailbox.wake();
        }
        any
    }

    /// Closes the queue, as dropping it does. It takes nothing any more, and no freeze waits for it. With work in
    /// flight it becomes an orphan that other queues of the disk poll.
    pub fn close(&mut self) {
        if self.state.is_closed() {
            return;
        }
        self.drop_held();
        if !self.state.holds_commands() && self.unregister() {
            return;
        }
        let state = std::mem::replace(&mut self.state, QueueState::closed());
        if let Some(bell) = &state.bell {
            bell.owner_leaves();
        }
        lock(&self.shared.orphans).push(Box::new(state));
        self.shared.state.0.fetch_or(ORPHANS, Ordering::AcqRel);
        // Every other owner may be asleep, and one of them has to poll the orphan.
        self.shared.wake_all();
    }

    /// Takes the queue off the list of queues. Returns false if another queue has just left it an errand.
    fn unregister(&mut self) -> bool {
        let id = self.state.id;
        debug_assert!(self.state.intake.nr_ended() == 0, "a rejected BIO is outstanding");
        // A BIO in the mailbox counts as outstanding, so there should be none. A BIO that is there counts as lost.
        let Some(left) = self.state.mailbox.close() else { return false };
        drop(left);
        self.state.id = QueueState::CLOSED;
        self.shared.past.add(&self.state.mailbox.counts.0);
        lock(&self.shared.queues)[id as usize] = None;
        let depth = self.state.intake.close();
        self.shared.depths.fetch_sub(u64::from(depth), Ordering::Relaxed);
        self.shared.bump();
        if self.shared.state.0.load(Ordering::Acquire) & ORPHANS != 0 {
            // Every other owner may be asleep, and one of them has to poll the orphans.
            self.shared.wake_all();
        }
        true
    }
}

impl Drop for DiskQueue {
    /// Closes the queue. The disk's other queues finish the work in flight. If this is the last handle of the disk,
    /// the device's queue is dropped, which may wait for the commands that it has, and their BIOs are lost.
    fn drop(&mut self) {
        self.close();
    }
}
