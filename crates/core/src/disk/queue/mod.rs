//! A client's queue: the way down. `poll` has the way up.

mod complete;
pub(crate) mod intake;
pub(crate) mod own_report;
mod split;
mod split_table;
pub(crate) mod tags;
mod write;

use crate::bio::{Bio, Bios, Command, Commands, Flags, NO_PARENT, Op, Status};
use crate::device::MappedQueue;
use crate::disk::config::QueueConfig;
use crate::disk::dispatch::backlog::Backlog;
use crate::disk::dispatch::waits::Waits;
use crate::disk::guard::outlook::Outlook;
use crate::disk::mailbox::Mailbox;
use crate::disk::orphans::Bell;
use crate::disk::snapshot::Layout;
use crate::disk::{ORPHANS, Shared};
use crate::planted::{Bug, planted};
use crate::sync::{Ordering, lock};
use crate::unit::{Nanos, ZoneNo};
use intake::Intake;
use own_report::OwnReport;
use split_table::SplitTable;
use std::sync::Arc;
use std::task::Waker;
use tags::Tags;

/// A queue of a [`Disk`](crate::disk::Disk): used by one owner at a time, who submits and polls.
pub struct DiskQueue {
    pub(crate) shared: Arc<Shared>,
    pub(crate) layout: Arc<Layout>,
    pub(crate) lane: Lane,
}

impl std::fmt::Debug for DiskQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DiskQueue")
            .field("id", &self.lane.id)
            .field("outstanding", &self.lane.intake.outstanding())
            .field("free_tags", &self.lane.tags.nr_free())
            .field("ready", &self.lane.backlog.len())
            .field("waits", &self.lane.waits)
            .finish_non_exhaustive()
    }
}

/// The queue's own state: nobody else touches it.
pub(crate) struct Lane {
    pub(crate) id: u32,
    /// `Shared::state` as it was when `layout` was taken.
    pub(crate) seen: u32,
    /// What the client has submitted and not got back.
    pub(crate) intake: Intake,
    /// The queue of the device.
    pub(crate) lower: MappedQueue,
    /// `Layout::special`, here because each call asks for it.
    pub(crate) special: bool,
    pub(crate) tags: Tags,
    pub(crate) own_report: OwnReport,
    /// On the way to the device.
    pub(crate) out: Commands,
    /// Back from it.
    pub(crate) fin: Commands,
    /// What waits for a tag.
    pub(crate) backlog: Backlog,
    /// Single writers that wait with this queue.
    pub(crate) waits: Waits,
    /// A run that is being submitted.
    pub(crate) run: Vec<Box<Bio>>,
    pub(crate) scratch: Vec<Box<Bio>>,
    pub(crate) owners: Vec<(u32, u32)>,
    pub(crate) aborted: Vec<Box<Bio>>,
    /// Split BIOs whose parts are on their way.
    pub(crate) splits: SplitTable,
    pub(crate) mailbox: Arc<Mailbox>,
    /// What its queue of the device wakes.
    pub(crate) bell: Option<Arc<Bell>>,
    /// Commands that may come late.
    pub(crate) outlook: Outlook,
    /// The mailboxes of the other queues, by id.
    pub(crate) peers: Vec<Option<Arc<Mailbox>>>,
}

impl DiskQueue {
    pub(crate) fn new(shared: Arc<Shared>, lower: MappedQueue, config: &QueueConfig) -> DiskQueue {
        let mailbox = Arc::new(Mailbox::default());
        mailbox.reserve(config.depth.min(4096) as usize);
        let id = {
            let mut queues = lock(&shared.queues);
            let word = crate::disk::freeze::first_word(shared.state.0.load(Ordering::Acquire));
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
        let mut lane = Lane::new(id as u32, lower, config.depth, config.tags, mailbox);
        lane.waits.reserve(shared.gates.len());
        DiskQueue { shared, layout, lane }
    }

    /// Takes BIOs from the front of `bios`, as many as the depth allows, and returns how many. What is left was not
    /// looked at: the queue is full, or the disk is frozen.
    ///
    /// Whatever becomes of a BIO that was taken, it comes back through [`DiskQueue::poll`], exactly once.
    pub fn submit(&mut self, now: Nanos, bios: &mut Bios) -> usize {
        if self.shared.state.0.load(Ordering::Acquire) != self.lane.seen
            && !self.refresh(now)
            && !planted(Bug::FreezeTakesNew)
        {
            self.lane.intake.turn_away(!bios.is_empty());
            return 0;
        }
        let DiskQueue { shared, layout, lane } = self;
        let before = lane.intake.outstanding();
        while lane.intake.has_room() {
            let Some(mut bio) = bios.pop_front() else { break };
            lane.take(&mut bio);
            match bio.op {
                Op::Read => lane.read(layout, bio),
                Op::Write | Op::WriteZeroes if layout.plugs => {
                    lane.write(shared, layout, bio, bios);
                }
                Op::ZoneAppend if layout.plugs && !layout.native_append => {
                    lane.write(shared, layout, bio, bios);
                }
                _ => lane.other(shared, layout, bio),
            }
        }
        if lane.special {
            lane.line_up(shared, layout, now);
        }
        lane.lower.submit(now, &mut lane.out);
        (self.lane.intake.outstanding() - before) as usize
    }

    /// BIOs that were taken and not given back yet.
    pub fn outstanding(&self) -> u32 {
        self.lane.intake.outstanding()
    }

    /// How many BIOs can be submitted now.
    pub fn room(&self) -> u32 {
        self.lane.intake.room()
    }

    /// Whether commands of this queue are at the device, or wait for a tag: whether polling it can make
    /// progress for anybody. BIOs that are parked behind another queue's write do not count.
    pub fn is_busy(&self) -> bool {
        self.lane.is_busy()
    }

    /// Whether [`DiskQueue::poll`] has something to give back at once.
    pub fn has_completions(&self) -> bool {
        self.lane.intake.nr_ended() != 0 || self.lane.mailbox.is_filled()
    }

    /// Commands of this queue that were given up when their time was over
    /// ([`DiskConfig::timeout`](crate::disk::DiskConfig::timeout)) and are still at the device. Their BIOs may be other queues',
    /// and BIOs of this one may be late on others: [`Bio::late`] says which memory is still in use. A freeze does not
    /// wait for late commands; a queue that is dropped is kept until they are back, see [`DiskQueue::abandon`].
    pub fn late(&self) -> u32 {
        self.lane.outlook.nr_late()
    }

    /// Closes the queue as dropping it does, but waits for no late command: the device's queue is dropped with them, and
    /// BIOs that came back before them are late for ever. Returns how many there were. A queue that has other work becomes
    /// an orphan as usual, and 0 is returned.
    pub fn abandon(&mut self) -> u32 {
        let late = self.lane.outlook.nr_late();
        if late == 0 || !self.lane.only_late() {
            self.close();
            return 0;
        }
        drop(std::mem::replace(&mut self.lane.lower, MappedQueue::gone()));
        self.lane.outlook.abandon();
        self.close();
        late
    }

    /// The next moment at which `poll` has work of its own, or of queues that were dropped with work in flight.
    pub fn next_deadline(&self) -> Option<Nanos> {
        let own = self.lane.next_deadline();
        if self.shared.state.0.load(Ordering::Acquire) & ORPHANS == 0 {
            return own;
        }
        // Nobody else asks for them: what this queue waits for may be behind one of theirs.
        let orphans = lock(&self.shared.orphans);
        if orphans.is_empty() && !planted(Bug::OrphanLookUnseen) {
            // Somebody has them out to poll them. He sees this when he brings them back, and wakes who sleeps.
            self.shared.state.0.fetch_and(!ORPHANS, Ordering::AcqRel);
        }
        orphans.iter().filter_map(|o| o.lane.next_deadline()).chain(own).min()
    }

    /// Prepares for sleep: `waker` is woken when another queue delivers a BIO of this one or when the disk is thawed;
    /// the device's waker (see [`QueueConfig::waker`]) when a command of this queue finishes. False: there is
    /// something to poll for already. Arm, poll once more, then sleep.
    pub fn arm(&mut self, waker: &Waker) -> bool {
        self.lane.lower.arm();
        self.arm_mailbox(waker)
    }

    /// [`DiskQueue::arm`], for an owner who sleeps in poll(2): with a descriptor, completions of this queue's commands
    /// make it readable, and nobody is woken for them (see [`Queue::arm_fd`](crate::Queue::arm_fd)).
    pub fn arm_fd(&mut self, waker: &Waker) -> (bool, Option<i32>) {
        let fd = self.lane.lower.arm_fd();
        (self.arm_mailbox(waker), fd)
    }

    fn arm_mailbox(&mut self, waker: &Waker) -> bool {
        if self.lane.intake.nr_ended() != 0 || !self.lane.mailbox.arm(waker) {
            return false;
        }
        // The waker is in place: a thaw is seen here, or wakes.
        let state = self.shared.state.0.load(Ordering::Acquire);
        if state & ORPHANS != 0 {
            self.shared.arm_orphans();
        }
        let frozen = state & crate::disk::FREEZES != 0;
        !self.lane.intake.is_thawed(frozen) || planted(Bug::ThawNotSeen)
    }

    /// Something is not as it was last time: layout, freeze, queues or orphans. Returns false if the disk is frozen.
    #[cold]
    pub(crate) fn refresh(&mut self, now: Nanos) -> bool {
        let state = self.shared.state.0.load(Ordering::Acquire);
        if state & ORPHANS != 0 {
            self.poll_orphans(now);
        }
        self.layout = lock(&self.shared.layout).clone();
        self.lane.follow(&self.layout);
        self.lane.peers.clone_from(&lock(&self.shared.queues));
        let frozen = crate::disk::freeze::acknowledge(&self.lane, state);
        // An orphan or a freeze keeps this path: `seen` must not match.
        self.lane.seen = if frozen || state & ORPHANS != 0 { u32::MAX } else { state };
        !frozen
    }
}

impl Drop for DiskQueue {
    /// Never blocks. What is in flight is finished by whoever polls another queue of the disk.
    fn drop(&mut self) {
        self.close();
    }
}

impl Lane {
    /// The id of a lane that has been given away.
    pub(crate) const CLOSED: u32 = u32::MAX - 1;

    fn new(id: u32, lower: MappedQueue, depth: u32, tags: u16, mailbox: Arc<Mailbox>) -> Lane {
        // Lists that grow to their high-water mark start with what is usual.
        let (nr_tags, nr_bios) = (usize::from(tags), depth.min(4096) as usize);
        Lane {
            id,
            // Never equal to a real state, so that the first call looks.
            seen: u32::MAX,
            intake: Intake::new(depth, nr_bios),
            lower,
            special: false,
            tags: Tags::new(tags, nr_bios.min(64)),
            own_report: OwnReport::new(),
            out: Commands::with_capacity(nr_tags + 1),
            fin: Commands::with_capacity(nr_tags + 1),
            backlog: Backlog::new(nr_bios),
            waits: Waits::default(),
            run: Vec::with_capacity(nr_bios),
            scratch: Vec::with_capacity(nr_bios),
            owners: Vec::new(),
            aborted: Vec::new(),
            splits: SplitTable::default(),
            mailbox,
            bell: None,
            outlook: Outlook::default(),
            peers: Vec::new(),
        }
    }

    pub(crate) fn closed() -> Lane {
        Lane::new(Self::CLOSED, MappedQueue::gone(), 0, 0, Arc::default())
    }

    /// Goes by a layout that may be new. The queue may have commands in flight.
    pub(crate) fn follow(&mut self, layout: &Layout) {
        self.special = layout.special;
        self.tags.place(layout.special);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.id == Self::CLOSED
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.tags.any_out()
            || !self.backlog.is_empty()
            || !self.waits.is_empty()
            || self.outlook.is_watched() && self.mailbox.has_errands()
    }

    /// The next moment at which polling this queue does something by itself.
    fn next_deadline(&self) -> Option<Nanos> {
        self.lower.next_deadline().into_iter().chain(self.waits.next_deadline()).min()
    }

    /// How many BIOs can be sent now, beside those that wait already.
    pub(crate) fn idle_tags(&self) -> usize {
        self.tags.idle(self.backlog.len())
    }

    /// Whether the queue must go on being polled though its owner has gone.
    pub(crate) fn holds_commands(&self) -> bool {
        !self.only_late() || self.outlook.nr_late() > 0
    }

    /// Whether nothing is at the device but what was given up.
    fn only_late(&self) -> bool {
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

    /// Fails a BIO before a device has seen it.
    #[cold]
    pub(crate) fn reject(&mut self, mut bio: Box<Bio>, status: Status) {
        bio.status = status;
        self.intake.ended(bio);
    }

    /// Refuses a BIO of a zone's plug, and counts it there.
    #[cold]
    pub(crate) fn refuse(&mut self, shared: &Shared, bio: Box<Bio>, zone: ZoneNo, status: Status) {
        let (mut shard, i) = shared.shard(zone);
        shard.rejected(i, status);
        drop(shard);
        self.reject(bio, status);
    }

    #[inline]
    fn read(&mut self, layout: &Layout, bio: Box<Bio>) {
        if let Err(status) = layout.check_read(&bio) {
            return self.reject(bio, status);
        }
        let (_, offset) = layout.geometry.zone_of(bio.sector);
        // The last zone may be shorter, but a read that passed the check does not cross its end.
        let fits = u64::from(offset) + u64::from(bio.len_sectors)
            <= u64::from(layout.geometry.zone_sectors());
        if !fits || bio.len_sectors > layout.max_transfer {
            return self.split_unordered(layout, bio);
        }
        self.pass(layout, bio);
    }

    /// Sends a BIO that no plug orders, or lets it wait for a tag.
    #[inline]
    pub(crate) fn pass(&mut self, layout: &Layout, bio: Box<Bio>) {
        match self.tags.take() {
            Some(cmd) => self.launch(layout, bio, cmd),
            // W11: a tag would have to be waited for; nothing has been reserved.
            None if bio.flags.contains(Flags::NOWAIT)
                && !bio.op.is_zone_management()
                && self.idle_tags() == 0 =>
            {
                self.reject(bio, Status::WouldBlock);
            }
            None => self.backlog.bio(bio),
        }
    }

    /// Makes the command of one BIO and puts it on the way.
    #[inline]
    pub(crate) fn launch(&mut self, layout: &Layout, bio: Box<Bio>, mut cmd: Box<Command>) {
        cmd.set(bio.op, bio.sector, bio.len_sectors, bio.flags);
        cmd.begin_owners(self.id);
        if bio.op != Op::Read {
            Self::prepare(layout, &bio, &mut cmd);
        }
        cmd.bios.push(bio);
        self.out.push_back(cmd);
    }
}
