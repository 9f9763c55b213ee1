//! The state of one queue of a disk: a [`QueueState`], made of parts that own their fields.
//!
//! The queue state belongs to the owner of the queue. Other queues reach it only through its mailbox. A part, such as
//! [`Tags`], knows no device and no disk, and has tests of its own. The modules `queue` and `dispatch` work on the queue
//! state.

pub(crate) mod backlog;
pub(crate) mod intake;
pub(crate) mod own_report;
pub(crate) mod split_table;
pub(crate) mod tags;
pub(crate) mod waits;

use super::bell::Bell;
use super::guard::late_commands::LateCommands;
use super::mailbox::Mailbox;
use super::snapshot::Layout;
use super::state;
use crate::bio::{Bio, Commands, NO_PARENT, Status};
use crate::device::MappedQueue;
use crate::sync::Ordering;
use crate::unit::Nanos;
use backlog::Backlog;
use intake::Intake;
use own_report::OwnReport;
use split_table::SplitTable;
use std::sync::Arc;
use tags::Tags;
use waits::AnticipationWaits;

/// Extra duties of the calls of some queues. They share one byte, so that the usual call tests only once.
pub(crate) mod call_duties {
    /// `dispatch` decides what is sent: see `Layout::arbitrated`.
    pub(crate) const ARBITRATED: u8 = 1;
    /// At its end the call must set the time limit of the early writes (`queue/early.rs`) that it submitted. Clear between
    /// two calls.
    pub(crate) const SET_DUE: u8 = 2;
}

/// The state of one queue.
pub(crate) struct QueueState {
    /// The number of the queue among those of the disk.
    pub(crate) id: u32,
    /// `Shared::state` as it was when the queue took its present layout (`DiskQueue::layout`).
    pub(crate) seen: u32,
    /// The BIOs that the client has submitted and not got back.
    pub(crate) intake: Intake,
    /// The queue of the device.
    pub(crate) lower: MappedQueue,
    /// The extra duties of the queue's calls: bits of [`call_duties`].
    pub(crate) duties: u8,
    pub(crate) tags: Tags,
    /// The command for the disk's own reports.
    pub(crate) own_report: OwnReport,
    /// Commands on the way to the device.
    pub(crate) out: Commands,
    /// Commands that have come back from it.
    pub(crate) fin: Commands,
    /// Work that waits for a tag.
    pub(crate) backlog: Backlog,
    /// The single writers that wait, with this queue, for more writes of their zone (anticipation).
    pub(crate) waits: AnticipationWaits,
    /// A run that is being submitted.
    pub(crate) run: Vec<Box<Bio>>,
    /// BIOs of the call that submits it.
    pub(crate) call_bios: usize,
    /// A spare list for BIOs on the way to their owners. Empty between two calls.
    pub(crate) spare_bios: Vec<Box<Bio>>,
    /// A spare list for the owners of these BIOs: queue and number of BIOs. Empty between two calls.
    pub(crate) spare_owners: Vec<(u32, u32)>,
    /// The abort list: BIOs that plugs have aborted and that are to be completed.
    pub(crate) aborted: Vec<Box<Bio>>,
    /// Split BIOs whose parts have not all come back.
    pub(crate) splits: SplitTable,
    /// The mailbox into which other queues put BIOs that they have completed for this one.
    pub(crate) mailbox: Arc<Mailbox>,
    /// The waker that `lower` calls.
    pub(crate) bell: Option<Arc<Bell>>,
    /// Commands that were given up and may still come back.
    pub(crate) late_commands: LateCommands,
    /// The mailboxes of the other queues, by id.
    pub(crate) peers: Vec<Option<Arc<Mailbox>>>,
}

impl QueueState {
    /// The id of a queue state whose contents were moved out.
    pub(crate) const CLOSED: u32 = u32::MAX - 1;

    pub(crate) fn new(
        id: u32,
        lower: MappedQueue,
        depth: u32,
        tags: u16,
        mailbox: Arc<Mailbox>,
    ) -> QueueState {
        // Lists that can grow start at the usual size.
        let (nr_tags, nr_bios) = (usize::from(tags), depth.min(4096) as usize);
        QueueState {
            id,
            // Never equal to a real state, so the first call updates the queue state.
            seen: u32::MAX,
            intake: Intake::new(depth, nr_bios),
            lower,
            duties: 0,
            tags: Tags::new(tags, nr_bios.min(64)),
            own_report: OwnReport::new(),
            out: Commands::with_capacity(nr_tags + 1),
            fin: Commands::with_capacity(nr_tags + 1),
            backlog: Backlog::new(nr_bios),
            waits: AnticipationWaits::default(),
            run: Vec::with_capacity(nr_bios),
            call_bios: 0,
            spare_bios: Vec::with_capacity(nr_bios),
            spare_owners: Vec::new(),
            aborted: Vec::new(),
            splits: SplitTable::default(),
            mailbox,
            bell: None,
            late_commands: LateCommands::default(),
            peers: Vec::new(),
        }
    }

    pub(crate) fn closed() -> QueueState {
        QueueState::new(Self::CLOSED, MappedQueue::closed(), 0, 0, Arc::default())
    }

    /// Takes no more BIOs and frees memory that only these would need. The queue can still send work that other
    /// queues leave to it, one command at a time. It must have nothing in flight. Returns the depth that it had.
    pub(crate) fn shrink(&mut self) -> u32 {
        self.tags.shrink(self.duties & call_duties::ARBITRATED != 0);
        self.backlog.shrink();
        self.out = Commands::new();
        self.fin = Commands::new();
        (self.run, self.spare_bios, self.aborted) = (Vec::new(), Vec::new(), Vec::new());
        self.spare_owners = Vec::new();
        drop(self.intake.take_ended());
        self.intake.close()
    }

    /// Takes what the queue state needs of a layout, also while commands are in flight.
    pub(crate) fn follow(&mut self, layout: &Layout) {
        self.duties = if layout.arbitrated { call_duties::ARBITRATED } else { 0 };
        self.tags.place(layout.arbitrated);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.id == Self::CLOSED
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.tags.any_out()
            || !self.backlog.is_empty()
            || !self.waits.is_empty()
            || self.late_commands.is_watched() && self.mailbox.has_errands()
    }

    /// A measure of the work left. While no BIO is taken, it goes down with each command that ends and each entry of
    /// the backlog that is sent.
    fn work_left(&self) -> u32 {
        (self.tags.nr_out() + self.backlog.len()) as u32
    }

    /// Returns the next moment at which polling this queue does something by itself.
    pub(crate) fn next_deadline(&self) -> Option<Nanos> {
        self.lower.next_deadline().into_iter().chain(self.waits.next_deadline()).min()
    }

    /// Returns how many BIOs can be sent now, besides those that wait already.
    pub(crate) fn idle_tags(&self) -> usize {
        self.tags.idle(self.backlog.len())
    }

    /// Returns whether the queue must still be polled after its owner has gone.
    pub(crate) fn holds_commands(&self) -> bool {
        !self.only_late() || self.late_commands.nr_late() > 0
    }

    /// Returns whether the queue has no work except commands that were given up.
    pub(crate) fn only_late(&self) -> bool {
        self.intake.outstanding() == 0 && !self.is_busy() && !self.own_report.is_out()
    }

    #[inline]
    pub(crate) fn take(&mut self, bio: &mut Bio) {
        self.intake.took_one();
        bio.queue = self.id;
        (bio.parent, bio.late) = (NO_PARENT, 0);
        bio.in_flight = true;
        bio.status = Status::Ok;
    }

    /// Fails a BIO that no device has seen.
    #[cold]
    pub(crate) fn reject(&mut self, mut bio: Box<Bio>, status: Status) {
        bio.status = status;
        self.intake.ended(bio);
    }

    /// Answers a freeze in the mailbox. Returns whether the disk is frozen.
    pub(crate) fn acknowledge(&self, state: u32) -> bool {
        let frozen = state::is_frozen(state);
        if frozen {
            let busy = self.is_busy();
            let word = state::word(state::version(state), busy);
            self.mailbox.work_left.store(self.work_left(), Ordering::Relaxed);
            if self.late_commands.is_watched() {
                self.mailbox.acknowledge(word);
            } else {
                self.mailbox.ack.store(word, Ordering::Release);
            }
        }
        frozen
    }
}
