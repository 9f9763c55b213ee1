//! An I/O queue: its commands as BIOs of the disks, through a client of its own for each disk that it uses. It never
//! decides anything about zones: order, merging and recovery are the disk's.

use super::counters::Counters;
use super::{Disk, sys};
use crate::runtime::client::Client;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::task::Waker;
use zoneplug_buf::{AlignedBuf, IoBuf, Lent};
use zoneplug_core::{BioPool, Bios, Nanos, Op, Status};
use zoneplug_nvme::spec::{Completion, status};
use zoneplug_nvme::target::Namespaces;
use zoneplug_nvme::target::io::{IoRequest, IoResult, Step, Task};
use zoneplug_nvme::tcp::{Buffers, Connection, Received};

/// What an I/O queue is called with.
pub(super) struct IoContext<'a> {
    pub(super) disks: &'a [Disk],
    /// Whether a read writes each byte of its buffer, for each disk.
    pub(super) fills_buffers: &'a [bool],
    /// Of this thread, for each disk.
    pub(super) counters: &'a [Counters],
    pub(super) buffers: &'a mut Buffers,
    pub(super) now: Nanos,
}

/// A client of a disk.
struct DiskClient {
    disk: u32,
    client: Client,
    /// BIOs that are to be submitted.
    list: Bios,
    /// The descriptor of its device that is watched.
    watched: Option<RawFd>,
}

/// A command that is being carried out.
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
pub(super) struct IoQueue {
    namespaces: Arc<Namespaces>,
    entries: u32,
    clients: Vec<DiskClient>,
    /// By the slot of the command in its connection.
    running: Vec<Option<Running>>,
    pool: BioPool,
    done: Bios,
}

impl IoQueue {
    pub(super) fn new(namespaces: Arc<Namespaces>, entries: u32) -> IoQueue {
        let n = entries as usize;
        IoQueue {
            namespaces,
            entries,
            clients: Vec::new(),
            running: Vec::new(),
            pool: BioPool::new(n),
            done: Bios::with_capacity(n),
        }
    }

    /// Shows these namespaces to the commands that come from now on.
    pub(super) fn show(&mut self, namespaces: Arc<Namespaces>) {
        self.namespaces = namespaces;
    }

    /// Whether a disk has work of this queue, or has not taken it yet.
    pub(super) fn is_busy(&self) -> bool {
        self.clients.iter().any(|c| c.client.outstanding() > 0 || !c.list.is_empty())
    }

    /// Begins a command. It may be answered at once.
    pub(super) fn begin(&mut self, c: Received, tcp: &mut Connection, ctx: &mut IoContext<'_>) {
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
    fn go_on(
        &mut self,
        slot: u16,
        mut running: Running,
        step: Step,
        tcp: &mut Connection,
        ctx: &mut IoContext<'_>,
    ) {
        match step {
            Step::Submit(request) => {
                if let Err(running) = self.submit_one(slot, running, &request, ctx) {
                    let status = status::NOT_READY;
                    let step = Step::Answer(Completion { status, ..Completion::default() }, 0);
                    self.go_on(slot, *running, step, tcp, ctx);
                }
            }
            Step::Answer(completion, send) => {
                if let Some(counters) = running.disk.and_then(|n| ctx.counters.get(n as usize)) {
                    counters.count(running.op, running.len, completion.status == 0);
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
    fn submit_one(
        &mut self,
        slot: u16,
        mut running: Running,
        request: &IoRequest,
        ctx: &IoContext<'_>,
    ) -> Result<(), Box<Running>> {
        let Some(n) = self.client(request.disk, ctx.disks) else { return Err(Box::new(running)) };
        let (offset, bytes) = request.memory;
        let io = match running.buf.take() {
            Some(mut buf) if bytes > 0 => {
                if request.op == Op::Read && !ctx.fills_buffers[request.disk as usize] {
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
        self.clients[n].list.push_back(bio);
        Ok(())
    }

    /// The client of a disk, which is opened when it is first needed.
    fn client(&mut self, disk: u32, disks: &[Disk]) -> Option<usize> {
        if let Some(n) = self.clients.iter().position(|c| c.disk == disk) {
            return Some(n);
        }
        let Disk { disk: hosted, tags, .. } = disks.get(disk as usize)?;
        let tags = tags.unwrap_or(self.entries.min(u32::from(u16::MAX)) as u16);
        let client = hosted.open_client(self.entries, tags).ok()?;
        let list = Bios::with_capacity(self.entries as usize);
        self.clients.push(DiskClient { disk, client, list, watched: None });
        Some(self.clients.len() - 1)
    }

    /// Hands BIOs to the disks and takes those that have ended. Answers their commands. False: nothing has happened.
    pub(super) fn run(&mut self, tcp: &mut Connection, ctx: &mut IoContext<'_>) -> bool {
        let mut progress = false;
        for n in 0..self.clients.len() {
            let c = &mut self.clients[n];
            if !c.list.is_empty() {
                progress |= c.client.submit(&mut c.list) > 0;
            }
            if c.client.outstanding() == 0 {
                continue;
            }
            c.client.poll(&mut self.done);
            progress |= !self.done.is_empty();
            while let Some(mut bio) = self.done.pop_front() {
                let slot = bio.token() as u16;
                let entry = self.running.get_mut(usize::from(slot)).and_then(Option::take);
                // A token of no command: a faulty device made up the BIO.
                let Some(mut running) = entry else { continue };
                let mut result =
                    IoResult { status: bio.status, sector: bio.sector, zones: bio.result };
                if let Some(lent) = running.lent.take() {
                    running.buf = self.clients[n].client.reclaim(&mut bio, Some(lent));
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

    /// Prepares for sleep: `waker` is woken when there is something to do. False: run again instead. Notes in `watched`
    /// that a descriptor is watched, and that the sleep is to be short.
    pub(super) fn arm(
        &mut self,
        waker: &Waker,
        epoll: &sys::Epoll,
        key: u64,
        watched: &mut bool,
    ) -> bool {
        for c in &mut self.clients {
            if c.client.outstanding() == 0 && c.list.is_empty() {
                continue;
            }
            match c.client.arm_fd(waker) {
                None => return false,
                Some(None) => {}
                Some(Some(fd)) => {
                    if c.watched != Some(fd) {
                        // If it cannot be watched, the sleep is short all the same.
                        let _ = epoll.add(fd, sys::READ, key);
                        c.watched = Some(fd);
                    }
                    *watched = true;
                }
            }
        }
        true
    }

    /// The thread is awake.
    pub(super) fn disarm(&self) {
        self.clients.iter().for_each(|c| c.client.disarm());
    }

    /// Ends the queue. What is in flight goes on; its memory is kept until it has ended.
    pub(super) fn close(mut self, epoll: &sys::Epoll) {
        self.clients.iter().filter_map(|c| c.watched).for_each(|fd| epoll.remove(fd));
        for c in &mut self.clients {
            // What the disk has not taken is not in flight.
            while let Some(mut bio) = c.list.pop_front() {
                let entry = self.running.get_mut(bio.token() as usize).and_then(Option::take);
                if let Some(lent) = entry.and_then(|r| r.lent) {
                    // Frees the memory.
                    let _ = c.client.reclaim(&mut bio, Some(lent));
                }
            }
            let lent = self
                .running
                .iter_mut()
                .filter_map(|r| r.take_if(|r| r.disk == Some(c.disk)).and_then(|r| r.lent));
            c.client.keep_lent(lent);
        }
    }
}
