//! An I/O queue: its commands as BIOs of the disks, through a client of its own for each disk that it uses. It never
//! decides anything about zones: order, merging and recovery are the disk's.
//!
//! The owner of a connection hands [`IoQueue::begin`] each command that comes up, and calls [`IoQueue::run`] to move BIOs
//! to the disks and back. What a disk and its client are is the owner's: threads and hosted disks in a server, a disk
//! and virtual time in a simulation. When the connection has ended, [`IoQueue::end`] leaves a [`ClosingQueue`].
//!
//! | file | what it owns |
//! | --- | --- |
//! | `mod.rs` | commands on their way to the disks and back |
//! | `answered.rs` | which answers the host may not have |
//! | `peer_query.rs` | refused writes that wait for what the queues of the host's other controllers say; what queues answer |
//! | `behind.rs` | refused writes that are not answered, because the server holds back what they wait for |
//! | `closing.rs` | a queue without a connection |
//! | `resend.rs` | commands that their host may have sent before |

mod answered;
mod behind;
mod closing;
mod peer_query;
mod resend;

pub use closing::{ClosingQueue, END_LIMIT, END_LOOK};

use crate::recovery::{DiskRecovery, HostKey};
use crate::spec::{Completion, status};
use crate::target::io::{IoRequest, IoResult, Step, Task};
use crate::target::{Namespaces, QueueId};
use crate::tcp::{Buffers, Connection, Received};
use answered::Answered;
use behind::Behind;
use peer_query::PendingQuery;
use resend::Resending;
use std::collections::VecDeque;
use std::sync::Arc;
use zoneplug_buf::{AlignedBuf, IoBuf, Lent};
use zoneplug_core::zone::Geometry;
use zoneplug_core::{Bio, BioPool, Bios, Flags, Nanos, Op, Sector, Status};

/// A client of a disk, which only one queue uses.
pub trait DiskClient {
    /// The token of a BIO that is about to be submitted, with the slot of its command in the low 16 bits. What the others are
    /// for is up to the owner, which may measure how long BIOs take.
    #[inline(always)]
    fn token(&mut self, slot: u16, _op: Op) -> u64 {
        u64::from(slot)
    }

    /// A BIO with this token is back. It began at `sector`, or has landed there.
    #[inline(always)]
    fn ended(&mut self, _token: u64, _op: Op, _sector: Sector) {}

    /// Takes BIOs from the front of `bios`, as many as there is room for, and returns how many.
    fn submit(&mut self, bios: &mut Bios) -> usize;

    /// Does what there is to do, and appends BIOs that have ended to `done`.
    fn poll(&mut self, done: &mut Bios);

    /// BIOs that were taken and have not been given back.
    fn outstanding(&self) -> u32;

    /// The buffer that was lent to a BIO that is back. `None`: the BIO came back without it, and the client keeps the loan
    /// until the memory is back too.
    fn reclaim(&mut self, bio: &mut Bio, lent: Lent) -> Option<AlignedBuf>;

    /// Refuses the writes of this client that an order window holds. They come back with the next poll.
    fn refuse_held(&mut self);

    /// Keeps lent memory until it is back, also when the client has gone.
    fn keep_lent(&mut self, lent: impl Iterator<Item = Lent>);
}

/// The disks of a server.
pub trait Disks {
    /// A client of one of them.
    type Client: DiskClient;

    /// A client of the disk with this number, for a queue with so many entries. `None`: there is no place for one.
    fn open(&self, disk: u32, entries: u32) -> Option<Self::Client>;

    /// Whether a read of the disk writes each byte of its buffer.
    fn fills_buffers(&self, disk: u32) -> bool;

    /// The layout of a disk.
    fn geometry(&self, disk: u32) -> Geometry;

    /// What is lost of a disk.
    fn recovery(&self, disk: u32) -> &DiskRecovery;

    /// Whether acknowledged writes of this disk were lost and the host does not know: its flush, or its write that is to be
    /// durable, is answered with an error. From now on it knows.
    fn owes(&self, _disk: u32, _host: HostKey) -> bool {
        false
    }

    /// A request is about to be sent to its disk, in this form or another. This and the next two are for an owner that keeps a
    /// journal.
    fn begins(&self, _request: &IoRequest) {}

    /// A request has come back from its disk.
    fn ended(&self, _request: &IoRequest, _ok: bool) {}

    /// An append that has landed is about to be answered: the next bytes that are sent may tell its host.
    fn acknowledges(&self, _append: &IoRequest) {}

    /// Counts a command that has ended.
    fn count(&self, disk: u32, op: Op, bytes: u32, ok: bool);

    /// These queues are asked for a write: [`IoQueue::asked`] is to be called for each, when the bytes that have come for it by now
    /// are received, and then [`IoQueue::run`]. Nothing is to be done by an owner that calls both for all of its queues again
    /// and again.
    fn ask(&self, _queues: &[QueueId]) {}

    /// A query was answered, or a closed connection has ended on a disk: [`IoQueue::run`] is to be called for the queues
    /// that wait ([`IoQueue::waits`]), unless the owner calls it for all of its queues again and again.
    fn queries_answered(&self) {}

    /// The host is told that this write was refused for its place.
    fn refuses(&self, _write: &IoRequest) {}

    /// Counts a command that was on the disk already when its host sent it again.
    fn count_replayed(&self, disk: u32);
}

/// What an I/O queue is called with.
#[derive(Debug)]
pub struct IoContext<'a, D> {
    /// The disks.
    pub disks: D,
    /// Memory for the data of commands.
    pub buffers: &'a mut Buffers,
    /// The time.
    pub now: Nanos,
}

/// The queue's use of a disk.
#[derive(Debug)]
struct Used<C> {
    disk: u32,
    client: C,
    /// BIOs that are to be submitted.
    list: Bios,
    /// False: commands of closed connections of this host are still being carried out, and this queue waits for them.
    open: bool,
}

/// A command that is being carried out.
#[derive(Debug)]
struct Running {
    task: Task,
    /// What its task has asked of a disk last. An append that has landed has its place here.
    request: IoRequest,
    /// Resets of the zone of an append when it was sent ([`DiskRecovery::resets`]).
    resets: u32,
    /// Whether a BIO of it is with the disk, or about to be.
    sent: bool,
    /// Its memory, while no BIO has it.
    buf: Option<AlignedBuf>,
    lent: Option<Lent>,
    /// Bytes of its data.
    len: u32,
    /// What is done instead of the request, if the host may have sent it before.
    resending: Option<Box<Resending>>,
    /// Other queues were asked for it.
    asked: bool,
    /// No queue has a write before it: it was submitted once more, and is not after that.
    tried_last: bool,
    /// Its last BIO was refused. The next one gets the token of that ([`Behind`]), so that the two count as one operation.
    refused: bool,
}

/// The slot of a BIO's command: see [`DiskClient::token`].
fn slot_of(bio: &Bio) -> u16 {
    bio.token() as u16
}

/// Whether a disk has refused a BIO for its place, or because it would have had to wait.
fn is_refused(status: Status) -> bool {
    matches!(status, Status::NotAtWritePointer | Status::WouldBlock)
}

/// A request for no disk.
const NO_REQUEST: IoRequest = IoRequest {
    disk: u32::MAX,
    op: Op::Flush,
    sector: Sector(0),
    len_sectors: 0,
    flags: Flags::NONE,
    memory: (0, 0),
};

/// An I/O queue.
#[derive(Debug)]
pub struct IoQueue<C> {
    namespaces: Arc<Namespaces>,
    /// The disks that are or were shown to it: other queues ask it about them.
    shown: Vec<u32>,
    queue: QueueId,
    host: HostKey,
    entries: u32,
    used: Vec<Used<C>>,
    /// By the slot of the command in its connection.
    running: Vec<Option<Running>>,
    /// Slots of commands that wait for those of closed connections: all on a disk that is not open, else appends.
    waiting: VecDeque<u16>,
    /// Refused writes that wait for other queues.
    pending_queries: Vec<PendingQuery>,
    /// Refused writes that are submitted again when those before them have reached the disk.
    behind: Behind,
    /// The queue answers no write that is refused for its place: [`IoQueue::stop`].
    stops: bool,
    answered: Answered,
    /// Its host's new connections wait for it ([`IoQueue::leave`]).
    leaves: bool,
    pool: BioPool,
    done: Bios,
}

impl<C: DiskClient> IoQueue<C> {
    /// A queue of a host, which is this for the target, with so many entries. It has no namespaces before [`IoQueue::show`].
    pub fn new(queue: QueueId, host: HostKey, entries: u32) -> IoQueue<C> {
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
            behind: Behind::default(),
            stops: false,
            answered: Answered::new(n),
            leaves: false,
            pool: BioPool::new(n),
            done: Bios::with_capacity(n),
        }
    }

    /// Shows these namespaces to the commands that come from now on. If they are inaccessible, the writes that an order window
    /// holds are not carried out: what they wait for does not come here any more.
    pub fn show<D: Disks<Client = C>>(&mut self, namespaces: Arc<Namespaces>, disks: &D) {
        self.namespaces = namespaces;
        for (_, n) in self.namespaces.iter() {
            if !self.shown.contains(&n.disk()) {
                self.shown.push(n.disk());
                disks.recovery(n.disk()).with(|ledger| ledger.enter(self.host, self.queue));
            }
        }
        if self.namespaces.are_inaccessible() {
            self.refuse_held();
        }
    }

    /// Whether a disk has work of this queue, or has not taken it yet.
    pub fn is_busy(&self) -> bool {
        self.waits() || self.used.iter().any(Used::is_busy)
    }

    /// Whether commands wait for other queues, so that no client of this one tells when they go on.
    pub fn waits(&self) -> bool {
        !self.waiting.is_empty() || !self.pending_queries.is_empty() || self.behind.asks()
    }

    /// Its clients.
    pub fn clients(&self) -> impl Iterator<Item = &C> {
        self.used.iter().map(|u| &u.client)
    }

    /// Its clients with work in flight, or work that they have not taken.
    pub fn busy_clients(&mut self) -> impl Iterator<Item = &mut C> {
        self.used.iter_mut().filter(|u| u.is_busy()).map(|u| &mut u.client)
    }

    /// Begins a command. It may be answered at once.
    #[inline(always)]
    pub fn begin<D: Disks<Client = C>>(
        &mut self,
        c: Received,
        tcp: &mut Connection,
        ctx: &mut IoContext<'_, D>,
    ) {
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

    /// Does what the task of a command says.
    fn go_on<D: Disks<Client = C>>(
        &mut self,
        slot: u16,
        mut running: Running,
        step: Step,
        tcp: &mut Connection,
        ctx: &mut IoContext<'_, D>,
    ) {
        match step {
            Step::Submit(request) => {
                running.request = request;
                self.start(slot, running, tcp, ctx);
            }
            Step::Answer(completion, send) => {
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
                    // One that has failed may have landed in part.
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
            let step = Step::Answer(Completion { status, ..Completion::default() }, 0);
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

    /// Begins the requests that have waited, if they may. False: none did.
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
                // It waits on if its disk does, or if it is an append that still has to.
                self.start(slot, running, tcp, ctx);
            }
        }
        self.waiting.len() < waited
    }

    /// Makes a BIO of a request.
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
                    // The data of another host may be in it (K6).
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

    fn keep(&mut self, slot: u16, running: Running) {
        let at = usize::from(slot);
        if self.running.len() <= at {
            self.running.resize_with(at + 1, || None);
        }
        self.running[at] = Some(running);
    }

    /// The client of a disk, which is opened when it is first needed.
    fn client<D: Disks<Client = C>>(&mut self, disk: u32, disks: &D) -> Option<usize> {
        if let Some(n) = self.used.iter().position(|u| u.disk == disk) {
            return Some(n);
        }
        let client = disks.open(disk, self.entries)?;
        let list = Bios::with_capacity(self.entries as usize);
        self.used.push(Used { disk, client, list, open: false });
        Some(self.used.len() - 1)
    }

    /// Hands BIOs to the disks and takes those that have ended. Answers their commands. False: nothing has happened.
    pub fn run<D: Disks<Client = C>>(
        &mut self,
        tcp: &mut Connection,
        ctx: &mut IoContext<'_, D>,
    ) -> bool {
        let mut progress = !self.waiting.is_empty() && self.start_waiting(tcp, ctx);
        if !self.behind.is_empty() {
            progress |= self.start_behind(tcp, ctx);
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
                // A token of no command: a faulty device made up the BIO.
                let Some(mut running) = entry else { continue };
                let client = &mut self.used[n].client;
                let (token, op, sector) = (bio.token(), bio.op, bio.sector);
                let mut result =
                    IoResult { status: bio.status, sector: bio.sector, zones: bio.result };
                if let Some(lent) = running.lent.take() {
                    running.buf = client.reclaim(&mut bio, lent);
                    if running.buf.is_none() && result.status.is_ok() {
                        // A BIO without its memory does not answer the command.
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

    /// The request of a command has ended so.
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

    /// Ends the queue together with the server. What is in flight goes on; its memory is kept until it has ended.
    pub fn abandon(mut self) {
        for u in &mut self.used {
            // What the disk has not taken is not in flight.
            while let Some(mut bio) = u.list.pop_front() {
                let slot = usize::from(slot_of(&bio));
                let entry = self.running.get_mut(slot).and_then(Option::take);
                if let Some(lent) = entry.and_then(|r| r.lent) {
                    // Frees the memory.
                    let _ = u.client.reclaim(&mut bio, lent);
                }
            }
            let lent = self
                .running
                .iter_mut()
                .filter_map(|r| r.take_if(|r| r.request.disk == u.disk).and_then(|r| r.lent));
            u.client.keep_lent(lent);
        }
    }
}

impl<C: DiskClient> Used<C> {
    fn is_busy(&self) -> bool {
        self.client.outstanding() > 0 || !self.list.is_empty()
    }
}
