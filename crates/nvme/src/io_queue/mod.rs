//! An I/O queue. It carries out its commands as BIOs of the disks, through one client for each disk that it uses. The
//! queue decides nothing about zones: order, merging and recovery belong to the disk.
//!
//! The owner of a queue is an [`Association`](crate::association::Association). It has the connection, which all calls
//! need, and makes them in this order:
//!
//! | call | when |
//! | --- | --- |
//! | [`IoQueue::new`] | after Connect |
//! | [`IoQueue::show`] | before the first command, and whenever the namespaces change |
//! | [`IoQueue::begin`] | for each command of the connection; not after [`IoQueue::leave`] or [`IoQueue::stop`] |
//! | [`IoQueue::run`] | after commands, and when a disk or another queue may have finished something |
//! | [`IoQueue::asked`] | other queues have questions ([`Disks::ask`]); then [`IoQueue::run`] |
//! | [`IoQueue::leave`] | at most once: the target ends the queue while its connection is open |
//! | [`IoQueue::stop`] | at most once: the server ends |
//! | [`IoQueue::end`] | last: the connection has ended |
//!
//! While disks hold commands, [`IoQueue::end`] returns a [`ClosingQueue`], which is run until it is empty, or abandoned
//! when the server ends. The owner supplies the disks and their clients: threads and hosted disks in a server, a disk
//! and virtual time in a simulation.
//!
//! | file | what it owns |
//! | --- | --- |
//! | `mod.rs` | commands on their way to the disks and back |
//! | `answered.rs` | the last answers, which the host may not have |
//! | `peer_query.rs` | refused writes that wait for the queues of other controllers of the host; answers to such queries |
//! | `behind.rs` | refused writes that are not answered yet, because the server holds back an earlier write |
//! | `closing.rs` | a queue without a connection |
//! | `late.rs` | resent writes that wait for commands which their disk has given up |
//! | `resend.rs` | commands that their host may have sent before |

mod answered;
mod behind;
mod closing;
mod late;
mod peer_query;
mod resend;

pub use closing::ClosingQueue;
pub use zoneplug_core::DiskClient;

use crate::spec::{Completion, status};
use crate::target::io::{CommandStep, IoRequest, IoResult, Task};
use crate::target::{Namespaces, QueueId};
use crate::tcp::{Connection, Received};
use answered::Answered;
use behind::Behind;
use peer_query::PendingQuery;
use std::collections::VecDeque;
use std::sync::Arc;
use zoneplug_buf::{AlignedBuf, Buffers, IoBuf, Lent};
use zoneplug_core::zone::Geometry;
use zoneplug_core::{Bio, BioPool, Bios, Flags, Nanos, Op, Sector, Status};
use zoneplug_recovery::{ClientKey, DiskRecovery, LateWait, Resending};

/// The disks of a server.
pub trait Disks {
    /// A client of one disk.
    type Client: DiskClient;

    /// Opens a client of the disk with this number, for a queue with `entries` entries. Returns `None` if the disk
    /// has no room for another client.
    fn open(&self, disk: u32, entries: u32) -> Option<Self::Client>;

    /// Returns whether a read of the disk writes each byte of its buffer.
    fn fills_buffers(&self, disk: u32) -> bool;

    /// Returns the layout of a disk.
    fn geometry(&self, disk: u32) -> Geometry;

    /// Returns the notes about commands of a disk whose answers may be lost.
    fn recovery(&self, disk: u32) -> &DiskRecovery;

    /// Returns whether acknowledged writes of this disk were lost and the host has not been told. The caller then
    /// answers the host's flush, or FUA write, with an error; that counts as telling it.
    fn owes(&self, _disk: u32, _host: ClientKey) -> bool {
        false
    }

    /// Returns whether a command that changes the zone of `at` was given up, and the device may still carry it out: then
    /// how long a resent write waits for that at most. For a disk whose commands have no deadline, `None` is right.
    fn late_limit(&self, _disk: u32, _at: Sector) -> Option<Nanos> {
        None
    }

    /// Called when a request is about to be sent to its disk, possibly in another form. This method and the next two
    /// serve an owner that keeps a journal.
    fn begins(&self, _request: &IoRequest) {}

    /// Called when a request has come back from its disk.
    fn ended(&self, _request: &IoRequest, _ok: bool) {}

    /// Called when an append that has landed is about to be answered. The next bytes that are sent may inform its
    /// host.
    fn acknowledges(&self, _append: &IoRequest) {}

    /// Counts a command that has ended.
    fn count(&self, disk: u32, op: Op, bytes: u32, ok: bool);

    /// Called when these queues are asked about a write. For each, the owner calls [`IoQueue::asked`] once it has
    /// received the bytes that have arrived by now, and then [`IoQueue::run`]. An owner that keeps calling both for
    /// all of its queues need not react.
    fn ask(&self, _queues: &[QueueId]) {}

    /// Called when a query was answered, or when a disk has ended the last command of a closed connection. The owner
    /// calls [`IoQueue::run`] for the queues that wait ([`IoQueue::waits`]), unless it keeps calling it for all of
    /// its queues.
    fn queries_answered(&self) {}

    /// Called when the host is told that this write was refused for its place.
    fn refuses(&self, _write: &IoRequest) {}

    /// Counts a command that the disk had carried out already when its host sent it again.
    fn count_replayed(&self, disk: u32);
}

/// The arguments that every call of an I/O queue needs.
#[derive(Debug)]
pub struct IoContext<'a, D> {
    /// The disks.
    pub disks: D,
    /// Memory for the data of commands.
    pub buffers: &'a mut Buffers,
    /// The time.
    pub now: Nanos,
}

/// The queue's use of one disk.
#[derive(Debug)]
struct Used<C> {
    disk: u32,
    client: C,
    /// BIOs to submit.
    list: Bios,
    /// False while commands of the host's closed connections are still being carried out: this queue waits for them.
    open: bool,
}

/// A command that is being carried out.
#[derive(Debug)]
struct Running {
    task: Task,
    /// The last request that the task made of a disk. After an append has landed, its sector is the place.
    request: IoRequest,
    /// The number of resets of the zone when an append was sent ([`DiskRecovery::resets`]).
    resets: u32,
    /// Whether a BIO of the command is with the disk, or about to be.
    sent: bool,
    /// The command's memory, while no BIO has it.
    buf: Option<AlignedBuf>,
    lent: Option<Lent>,
    /// Bytes of the command's data.
    len: u32,
    /// The steps that replace the request if the host may have sent it before.
    resending: Option<Box<Resending>>,
    /// Other queues were asked about the command.
    asked: bool,
    /// No queue has an earlier write. The command was submitted once more, and is not submitted again after that.
    tried_last: bool,
    /// The last BIO was refused. The next one gets its token ([`Behind`]), so that the two count as one operation.
    refused: bool,
}

/// Returns the slot of a BIO's command: see [`DiskClient::token`].
fn slot_of(bio: &Bio) -> u16 {
    bio.token() as u16
}

/// Returns whether a disk has refused a BIO for its place, or because it would have had to wait.
fn is_refused(status: Status) -> bool {
    matches!(status, Status::NotAtWritePointer | Status::WouldBlock)
}

/// A placeholder: a request for no disk.
const NO_REQUEST: IoRequest = IoRequest::new(u32::MAX, Op::Flush);

/// An I/O queue.
#[derive(Debug)]
pub struct IoQueue<C> {
    namespaces: Arc<Namespaces>,
    /// The disks that are or were shown to this queue. Other queues ask it about them.
    shown: Vec<u32>,
    queue: QueueId,
    host: ClientKey,
    entries: u32,
    used: Vec<Used<C>>,
    /// The running commands, indexed by the slot of the command in its connection.
    running: Vec<Option<Running>>,
    /// Slots of commands that wait for commands of closed connections: all commands of a disk that is not open; on an
    /// open disk, appends only.
    waiting: VecDeque<u16>,
    /// Refused writes that wait for answers of other queues.
    pending_queries: Vec<PendingQuery>,
    /// Resent writes that wait for commands which their disk has given up.
    late: Vec<LateWait>,
    /// Refused writes that are submitted again when earlier ones have reached the disk.
    behind: Behind,
    /// The queue answers no write that is refused for its place: see [`IoQueue::stop`].
    stops: bool,
    answered: Answered,
    /// The host's new connections wait for this queue ([`IoQueue::leave`]).
    leaves: bool,
    pool: BioPool,
    done: Bios,
}

impl<C: DiskClient> IoQueue<C> {
    /// Makes a queue of a host. `queue` is its identity at the target. The queue has no namespaces before
    /// [`IoQueue::show`].
    pub fn new(queue: QueueId, host: ClientKey, entries: u32) -> IoQueue<C> {
        let n = entries as usize;
        IoQueue {
            namespaces: Arc::default(),
            shown: Vec::new(),
            queue,
            host,
            entries,
            used: Vec::new(),
            running: Vec::new(),
            waiting: VecDeque::new(),
            pending_queries: Vec::new(),
            late: Vec::new(),
            behind: Behind::default(),
            stops: false,
            answered: Answered::new(n),
            leaves: false,
            pool: BioPool::new(n),
            done: Bios::with_capacity(n),
        }
    }

    /// Shows these namespaces to commands that begin from now on. If they are inaccessible, the order windows refuse
    /// the writes that they hold, because the writes that those wait for no longer arrive here.
    pub fn show<D: Disks<Client = C>>(&mut self, namespaces: Arc<Namespaces>, disks: &D) {
        self.namespaces = namespaces;
        for (_, n) in self.namespaces.iter() {
            if !self.shown.contains(&n.disk()) {
                self.shown.push(n.disk());
                disks.recovery(n.disk()).with(|ledger| ledger.enter(self.host, self.queue.into()));
            }
        }
        if self.namespaces.are_inaccessible() {
            self.refuse_held();
        }
    }

    /// Returns whether a disk has work of this queue, or has yet to take it.
    pub fn is_busy(&self) -> bool {
        self.waits() || self.used.iter().any(Used::is_busy)
    }

    /// Returns whether commands wait for other queues, or for commands that a disk has given up. No client of this queue
    /// then signals when they can go on.
    pub fn waits(&self) -> bool {
        !self.waiting.is_empty()
            || !self.pending_queries.is_empty()
            || self.behind.asks()
            || self.waits_for_late()
    }

    /// Returns the queue's clients.
    pub fn clients(&self) -> impl Iterator<Item = &C> {
        self.used.iter().map(|u| &u.client)
    }

    /// Returns the clients that have work in flight, or work that they have not taken.
    pub fn busy_clients(&mut self) -> impl Iterator<Item = &mut C> {
        self.used.iter_mut().filter(|u| u.is_busy()).map(|u| &mut u.client)
    }

    /// Begins a command. The command may be answered at once.
    #[inline(always)]
    pub fn begin<D: Disks<Client = C>>(
        &mut self,
        c: Received,
        tcp: &mut Connection,
        ctx: &mut IoContext<'_, D>,
    ) {
        debug_assert!(!self.leaves && !self.stops, "the queue takes no more commands");
        let (task, step) = Task::begin(&c.command, &self.namespaces, c.data.as_ref());
        let need = task.buffer_bytes();
        let buf = match c.data {
            Some(buf) => Some(buf),
            None if need > 0 => Some(ctx.buffers.take(need)),
            None => None,
        };
        let running = Running {
            task,
            request: NO_REQUEST,
            resets: 0,
            sent: false,
            buf,
            lent: None,
            len: c.len,
            resending: None,
            asked: false,
            tried_last: false,
            refused: false,
        };
        self.go_on(c.slot, running, step, tcp, ctx);
    }

    /// Carries out the step that a command's task has returned.
    fn go_on<D: Disks<Client = C>>(
        &mut self,
        slot: u16,
        mut running: Running,
        step: CommandStep,
        tcp: &mut Connection,
        ctx: &mut IoContext<'_, D>,
    ) {
        match step {
            CommandStep::Submit(request) => {
                running.request = request;
                self.start(slot, running, tcp, ctx);
            }
            CommandStep::Answer(completion, send) => {
                let r = running.request;
                let ok = completion.status == 0;
                if r.disk != NO_REQUEST.disk {
                    ctx.disks.count(r.disk, r.op, running.len, ok);
                }
                let mut data = None;
                match running.buf.take() {
                    Some(buf) if send > 0 => data = Some((buf, send)),
                    Some(buf) => ctx.buffers.put(buf),
                    None => {}
                }
                tcp.answer(slot, completion, data, ctx.buffers, ctx.now);
                match r.op {
                    // A failed write may have landed in part.
                    Op::Write | Op::WriteZeroes => self.answered.push(tcp.output_end(), &r, 0),
                    Op::ZoneAppend if ok => {
                        self.answered.push(tcp.output_end(), &r, running.resets);
                        ctx.disks.acknowledges(&r);
                    }
                    _ => {}
                }
            }
        }
    }

    /// Begins a request of a command.
    #[inline]
    fn start<D: Disks<Client = C>>(
        &mut self,
        slot: u16,
        mut running: Running,
        tcp: &mut Connection,
        ctx: &mut IoContext<'_, D>,
    ) {
        let request = running.request;
        if request.op == Op::ZoneAppend {
            running.resets = ctx.disks.recovery(request.disk).resets(request.sector);
        }
        let Some(n) = self.client(request.disk, &ctx.disks) else {
            let status = status::NOT_READY;
            running.request = NO_REQUEST;
            let step = CommandStep::Answer(Completion { status, ..Completion::default() }, 0);
            return self.go_on(slot, running, step, tcp, ctx);
        };
        let durable = request.op == Op::Flush || request.flags.contains(Flags::FUA);
        let owes = durable && ctx.disks.owes(request.disk, self.host);
        let after_loss = ctx.disks.recovery(request.disk).is_before(request.op);
        if running.refused && (owes || after_loss) {
            self.count_refused(slot, &mut running);
        }
        if owes {
            let result = IoResult { status: Status::Medium, sector: request.sector, zones: 0 };
            self.ended(slot, running, result, tcp, ctx);
        } else if !self.used[n].open {
            self.keep(slot, running);
            self.waiting.push_back(slot);
        } else if after_loss {
            self.start_after_loss(slot, running, n, tcp, ctx);
        } else {
            self.submit(slot, running, n, &request, &ctx.disks);
        }
    }

    /// Begins the waiting requests that may begin now. Returns false if none did.
    #[cold]
    fn start_waiting<D: Disks<Client = C>>(
        &mut self,
        tcp: &mut Connection,
        ctx: &mut IoContext<'_, D>,
    ) -> bool {
        for u in self.used.iter_mut().filter(|u| !u.open) {
            u.open = ctx.disks.recovery(u.disk).with(|ledger| {
                let open = !ledger.is_draining(self.host);
                if open {
                    ledger.is_back(self.host, ctx.now);
                }
                open
            });
        }
        let waited = self.waiting.len();
        for slot in std::mem::take(&mut self.waiting) {
            if let Some(running) = self.running[usize::from(slot)].take() {
                // A request waits again if its disk is still draining, or if it is an append that must wait.
                self.start(slot, running, tcp, ctx);
            }
        }
        self.waiting.len() < waited
    }

    /// Makes a BIO of a request and queues it.
    #[inline]
    fn submit<D: Disks<Client = C>>(
        &mut self,
        slot: u16,
        mut running: Running,
        n: usize,
        request: &IoRequest,
        disks: &D,
    ) {
        let (offset, bytes) = request.memory;
        let io = match running.buf.take() {
            Some(mut buf) if bytes > 0 => {
                if request.op == Op::Read && !disks.fills_buffers(request.disk) {
                    // The buffer may contain data of another host (K6).
                    buf.as_mut_slice()[offset as usize..][..bytes as usize].fill(0);
                }
                let (lent, io) = buf.lend_part(offset, bytes);
                running.lent = Some(lent);
                io
            }
            buf => {
                running.buf = buf;
                IoBuf::empty()
            }
        };
        running.sent = true;
        disks.begins(&running.request);
        let mut bio = self.pool.get();
        bio.set(request.op, request.sector, request.len_sectors, io);
        bio.flags = request.flags;
        let used = &mut self.used[n];
        let token = match running.refused {
            true => self.behind.take_token(slot),
            false => used.client.token(slot, request.op),
        };
        running.refused = false;
        bio.set_token(token);
        used.list.push_back(bio);
        self.keep(slot, running);
    }

    #[inline]
    fn keep(&mut self, slot: u16, running: Running) {
        let at = usize::from(slot);
        if self.running.len() <= at {
            self.running.resize_with(at + 1, || None);
        }
        self.running[at] = Some(running);
    }

    /// Returns the index of a disk's client, which is opened on first use.
    #[inline]
    fn client<D: Disks<Client = C>>(&mut self, disk: u32, disks: &D) -> Option<usize> {
        let used = self.used.iter().position(|u| u.disk == disk);
        used.or_else(|| self.open_client(disk, disks))
    }

    #[cold]
    fn open_client<D: Disks<Client = C>>(&mut self, disk: u32, disks: &D) -> Option<usize> {
        let client = disks.open(disk, self.entries)?;
        let list = Bios::with_capacity(self.entries as usize);
        self.used.push(Used { disk, client, list, open: false });
        Some(self.used.len() - 1)
    }

    /// Hands BIOs to the disks, takes those that have ended, and answers their commands. Returns false if nothing
    /// happened.
    pub fn run<D: Disks<Client = C>>(
        &mut self,
        tcp: &mut Connection,
        ctx: &mut IoContext<'_, D>,
    ) -> bool {
        let mut progress = !self.waiting.is_empty() && self.start_waiting(tcp, ctx);
        if !self.behind.is_empty() {
            progress |= self.start_behind(tcp, ctx);
        }
        if self.waits_for_late() {
            progress |= self.start_late(tcp, ctx);
        }
        for n in 0..self.used.len() {
            let Used { disk, client, list, .. } = &mut self.used[n];
            let disk = *disk;
            if !list.is_empty() {
                progress |= client.submit(list) > 0;
            }
            if client.outstanding() == 0 {
                continue;
            }
            client.poll(&mut self.done);
            progress |= !self.done.is_empty();
            while let Some(mut bio) = self.done.pop_front() {
                let slot = slot_of(&bio);
                let entry = self.running.get_mut(usize::from(slot)).and_then(Option::take);
                // The token belongs to no command: a faulty device made up the BIO.
                let Some(mut running) = entry else { continue };
                let client = &mut self.used[n].client;
                let (token, op, sector) = (bio.token(), bio.op, bio.sector);
                let mut result =
                    IoResult { status: bio.status, sector: bio.sector, zones: bio.result };
                if let Some(lent) = running.lent.take() {
                    running.buf = client.reclaim(&mut bio, lent);
                    if running.buf.is_none() && result.status.is_ok() {
                        // Without its memory, a BIO cannot give the host the data.
                        result.status = Status::Io;
                    }
                }
                self.pool.put(bio);
                running.sent = false;
                ctx.disks.ended(&running.request, result.status.is_ok());
                let recovery = ctx.disks.recovery(disk);
                let after_loss = running.resending.is_some()
                    || recovery.is_after(running.request.op, result.status);
                if is_refused(result.status) && !after_loss {
                    self.behind.keep_token(token);
                    running.refused = true;
                } else {
                    self.used[n].client.ended(token, op, sector);
                }
                if after_loss {
                    self.ended_after_loss(slot, running, n, result, tcp, ctx);
                } else {
                    self.ended(slot, running, result, tcp, ctx);
                }
            }
        }
        if !self.pending_queries.is_empty() {
            progress |= self.take_answers(tcp, ctx);
        }
        self.answer_questions(tcp, ctx);
        progress
    }

    /// Handles the end of a command's request.
    fn ended<D: Disks<Client = C>>(
        &mut self,
        slot: u16,
        mut running: Running,
        result: IoResult,
        tcp: &mut Connection,
        ctx: &mut IoContext<'_, D>,
    ) {
        if running.request.op == Op::ZoneAppend {
            running.request.sector = result.sector;
        }
        if is_refused(result.status) {
            return self.refused(slot, running, result, tcp, ctx);
        }
        let step = running.task.next(result, running.buf.as_mut());
        self.go_on(slot, running, step, tcp, ctx);
    }
}

impl<C: DiskClient> Used<C> {
    fn is_busy(&self) -> bool {
        self.client.outstanding() > 0 || !self.list.is_empty()
    }
}
