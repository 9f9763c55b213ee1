//! An I/O queue: its commands as BIOs of the disks, through a client of its own for each disk that it uses. It never
//! decides anything about zones: order, merging and recovery are the disk's.
//!
//! The owner of a connection hands [`IoQueue::begin`] each command that comes up, and calls [`IoQueue::run`] to move BIOs
//! to the disks and back. What a disk and its client are is the owner's: threads and hosted disks in a server, a disk
//! and virtual time in a simulation.

use crate::spec::{Completion, status};
use crate::target::Namespaces;
use crate::target::io::{IoRequest, IoResult, Step, Task};
use crate::tcp::{Buffers, Connection, Received};
use std::sync::Arc;
use zoneplug_buf::{AlignedBuf, IoBuf, Lent};
use zoneplug_core::{Bio, BioPool, Bios, Nanos, Op, Status};

/// A client of a disk, which only one queue uses.
pub trait DiskClient {
    /// Takes BIOs from the front of `bios`, as many as there is room for, and returns how many.
    fn submit(&mut self, bios: &mut Bios) -> usize;

    /// Does what there is to do, and appends BIOs that have ended to `done`.
    fn poll(&mut self, done: &mut Bios);

    /// BIOs that were taken and have not been given back.
    fn outstanding(&self) -> u32;

    /// The buffer that was lent to a BIO that is back. `None`: the BIO came back without it, and the client keeps the loan
    /// until the memory is back too.
    fn reclaim(&mut self, bio: &mut Bio, lent: Lent) -> Option<AlignedBuf>;

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

    /// Counts a command that has ended.
    fn count(&self, disk: u32, op: Op, bytes: u32, ok: bool);
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
}

/// A command that is being carried out.
#[derive(Debug)]
struct Running {
    task: Task,
    /// What its BIO does.
    op: Op,
    /// The disk that it uses, once that is known.
    disk: Option<u32>,
    /// Its memory, while no BIO has it.
    buf: Option<AlignedBuf>,
    lent: Option<Lent>,
    /// Bytes of its data.
    len: u32,
}

/// An I/O queue.
#[derive(Debug)]
pub struct IoQueue<C> {
    namespaces: Arc<Namespaces>,
    entries: u32,
    used: Vec<Used<C>>,
    /// By the slot of the command in its connection.
    running: Vec<Option<Running>>,
    pool: BioPool,
    done: Bios,
}

impl<C: DiskClient> IoQueue<C> {
    /// A queue with so many entries.
    pub fn new(namespaces: Arc<Namespaces>, entries: u32) -> IoQueue<C> {
        let n = entries as usize;
        IoQueue {
            namespaces,
            entries,
            used: Vec::new(),
            running: Vec::new(),
            pool: BioPool::new(n),
            done: Bios::with_capacity(n),
        }
    }

    /// Shows these namespaces to the commands that come from now on.
    pub fn show(&mut self, namespaces: Arc<Namespaces>) {
        self.namespaces = namespaces;
    }

    /// Whether a disk has work of this queue, or has not taken it yet.
    pub fn is_busy(&self) -> bool {
        self.used.iter().any(Used::is_busy)
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
        let running = Running { task, op: Op::Flush, disk: None, buf, lent: None, len: c.len };
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
                if let Err(running) = self.submit_one(slot, running, &request, &ctx.disks) {
                    let status = status::NOT_READY;
                    let step = Step::Answer(Completion { status, ..Completion::default() }, 0);
                    self.go_on(slot, *running, step, tcp, ctx);
                }
            }
            Step::Answer(completion, send) => {
                if let Some(disk) = running.disk {
                    ctx.disks.count(disk, running.op, running.len, completion.status == 0);
                }
                let mut data = None;
                match running.buf.take() {
                    Some(buf) if send > 0 => data = Some((buf, send)),
                    Some(buf) => ctx.buffers.put(buf),
                    None => {}
                }
                tcp.answer(slot, completion, data, ctx.buffers, ctx.now);
            }
        }
    }

    /// Makes a BIO of a request. The error is the command, if its disk has no place for a client.
    fn submit_one<D: Disks<Client = C>>(
        &mut self,
        slot: u16,
        mut running: Running,
        request: &IoRequest,
        disks: &D,
    ) -> Result<(), Box<Running>> {
        let Some(n) = self.client(request.disk, disks) else { return Err(Box::new(running)) };
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
        (running.op, running.disk) = (request.op, Some(request.disk));
        let mut bio = self.pool.get();
        bio.set(request.op, request.sector, request.len_sectors, io);
        bio.flags = request.flags;
        bio.set_token(u64::from(slot));
        let at = usize::from(slot);
        if self.running.len() <= at {
            self.running.resize_with(at + 1, || None);
        }
        self.running[at] = Some(running);
        self.used[n].list.push_back(bio);
        Ok(())
    }

    /// The client of a disk, which is opened when it is first needed.
    fn client<D: Disks<Client = C>>(&mut self, disk: u32, disks: &D) -> Option<usize> {
        if let Some(n) = self.used.iter().position(|u| u.disk == disk) {
            return Some(n);
        }
        let client = disks.open(disk, self.entries)?;
        self.used.push(Used { disk, client, list: Bios::with_capacity(self.entries as usize) });
        Some(self.used.len() - 1)
    }

    /// Hands BIOs to the disks and takes those that have ended. Answers their commands. False: nothing has happened.
    pub fn run<D: Disks<Client = C>>(
        &mut self,
        tcp: &mut Connection,
        ctx: &mut IoContext<'_, D>,
    ) -> bool {
        let mut progress = false;
        for n in 0..self.used.len() {
            let Used { client, list, .. } = &mut self.used[n];
            if !list.is_empty() {
                progress |= client.submit(list) > 0;
            }
            if client.outstanding() == 0 {
                continue;
            }
            client.poll(&mut self.done);
            progress |= !self.done.is_empty();
            while let Some(mut bio) = self.done.pop_front() {
                let slot = bio.token() as u16;
                let entry = self.running.get_mut(usize::from(slot)).and_then(Option::take);
                // A token of no command: a faulty device made up the BIO.
                let Some(mut running) = entry else { continue };
                let mut result =
                    IoResult { status: bio.status, sector: bio.sector, zones: bio.result };
                if let Some(lent) = running.lent.take() {
                    running.buf = self.used[n].client.reclaim(&mut bio, lent);
                    if running.buf.is_none() && result.status.is_ok() {
                        // A BIO without its memory does not answer the command.
                        result.status = Status::Io;
                    }
                }
                self.pool.put(bio);
                let step = running.task.next(result, running.buf.as_mut());
                self.go_on(slot, running, step, tcp, ctx);
            }
        }
        progress
    }

    /// Ends the queue. What is in flight goes on; its memory is kept until it has ended.
    pub fn close(mut self) {
        for u in &mut self.used {
            // What the disk has not taken is not in flight.
            while let Some(mut bio) = u.list.pop_front() {
                let entry = self.running.get_mut(bio.token() as usize).and_then(Option::take);
                if let Some(lent) = entry.and_then(|r| r.lent) {
                    // Frees the memory.
                    let _ = u.client.reclaim(&mut bio, lent);
                }
            }
            let lent = self
                .running
                .iter_mut()
                .filter_map(|r| r.take_if(|r| r.disk == Some(u.disk)).and_then(|r| r.lent));
            u.client.keep_lent(lent);
        }
    }
}

impl<C: DiskClient> Used<C> {
    fn is_busy(&self) -> bool {
        self.client.outstanding() > 0 || !self.list.is_empty()
    }
}
