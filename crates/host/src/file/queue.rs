//! One queue of a durable disk: its commands wait for their zone, move data, are being made durable, or are
//! done. It never blocks: work that would block goes to the ring or to threads.

use super::commit::Want;
use super::exec::{Data, Next};
use super::storage::transfer;
use super::work::{Answer, Work, inline};
use super::{Engine, Shared};
use crate::ring::{self, Inbox, Job, Reply, Ring, Segments};
use std::io;
use std::sync::Arc;
use std::task::Waker;
use zoneplug_core::{Command, Commands, Flags, IoBuf, Nanos, Op, Queue, Status};

/// What a command is waiting for.
#[derive(Debug, Clone, Copy)]
enum Stage {
    /// A flush before its data.
    Preflush(Data),
    /// Its data.
    Data(Data),
    /// The table; then it ends with this status.
    Commit,
}

/// A command in flight.
#[derive(Debug)]
struct Slot {
    command: Option<Box<Command>>,
    stage: Stage,
    /// What the kernel moves, and how many bytes are left.
    segments: Segments,
    at: u64,
    left: u64,
}

#[derive(Debug)]
pub(super) struct FileQueue {
    /// First, because its drop waits until neither the kernel nor a thread uses the memory of commands.
    inbox: Inbox<Answer>,
    shared: Arc<Shared>,
    depth: usize,
    /// Commands that were taken and not given back.
    held: usize,
    done: Commands,
    /// Commands whose zone is in use, in order.
    waiting: Commands,
    slots: Vec<Slot>,
    free: Vec<u32>,
    seen: Nanos,
}

/// The memory of the first `sectors` of a command.
///
/// # Safety
///
/// What is returned is gone before the command goes back, and the command's BIOs are left alone meanwhile. A read has memory that
/// may be written (`Command::has_whole_bios`).
unsafe fn memory(c: &Command, sectors: u32) -> impl Iterator<Item = (IoBuf, u32)> + '_ {
    let mut left = sectors;
    c.bios.iter().map_while(move |bio| {
        let n = left.min(bio.len_sectors);
        left -= n;
        // SAFETY: the caller's promise.
        (n > 0).then(|| (unsafe { bio.data().alias() }, n << 9))
    })
}

/// The same, without its first `bytes`.
///
/// # Safety
///
/// As [`memory`].
unsafe fn memory_after(c: &Command, sectors: u32, bytes: u64) -> Vec<(IoBuf, u32)> {
    let mut skip = bytes;
    // SAFETY: the caller's promise.
    let rest = unsafe { memory(c, sectors) }.filter_map(|(mut buf, n)| {
        let gone = skip.min(n.into()) as u32;
        skip -= u64::from(gone);
        let _gone = buf.split_to(gone);
        (gone < n).then_some((buf, n - gone))
    });
    rest.collect()
}

impl FileQueue {
    pub(super) fn new(shared: Arc<Shared>, depth: u16, waker: Waker) -> FileQueue {
        let with_ring = || match (&shared.engine, &shared.bell) {
            (Engine::Ring, Some(bell)) => {
                Inbox::new(waker.clone()).with_ring(Ring::new(depth).ok()?, bell).ok()
            }
            _ => None,
        };
        FileQueue {
            inbox: with_ring().unwrap_or_else(|| Inbox::new(waker)),
            shared,
            depth: usize::from(depth),
            held: 0,
            done: Commands::new(),
            waiting: Commands::new(),
            slots: Vec::new(),
            free: Vec::new(),
            seen: Nanos(0),
        }
    }

    fn finish(&mut self, mut c: Box<Command>, status: Status) {
        c.status = status;
        self.done.push_back(c);
    }

    fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    fn slot(&mut self, c: Box<Command>, stage: Stage) -> u32 {
        let i = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot {
                command: None,
                stage,
                segments: Segments::default(),
                at: 0,
                left: 0,
            });
            self.slots.len() as u32 - 1
        });
        let slot = &mut self.slots[i as usize];
        slot.command = Some(c);
        slot.stage = stage;
        i
    }

    fn release(&mut self, i: u32) -> Box<Command> {
        self.free.push(i);
        self.slots[i as usize].command.take().expect("a slot in use has a command")
    }

    /// Begins a command, or gives it back because its zone is in use.
    fn start(&mut self, mut c: Box<Command>) -> Result<(), Box<Command>> {
        match self.shared.core.begin(&mut c) {
            Next::Done(status) => self.finish(c, status),
            Next::Wait => return Err(c),
            Next::Commit(want) => {
                let i = self.slot(c, Stage::Commit);
                self.work(i, Work::Commit(want));
            }
            Next::Data(data) => {
                let pre = data.write
                    && c.flags.contains(Flags::PREFLUSH)
                    && self.shared.core.state().is_dirty();
                if pre {
                    let i = self.slot(c, Stage::Preflush(data));
                    self.work(i, Work::Commit(Want::Flush));
                } else if self.shared.engine == Engine::Inline && !data.zeroes {
                    let at = self.shared.core.layout.data(data.zone, data.at);
                    // SAFETY: the call is over before the command goes on.
                    let mut bufs = unsafe { memory(&c, data.len) };
                    let storage = &*self.shared.core.storage;
                    let moved = transfer(storage, data.write, at, &mut bufs);
                    drop(bufs);
                    self.moved(c, data, moved);
                } else {
                    let i = self.slot(c, Stage::Data(data));
                    self.transfer(i, data);
                }
            }
        }
        Ok(())
    }

    /// Gives the work of a slot to the threads, or does it if there are none.
    fn work(&mut self, slot: u32, work: Work) {
        match &self.shared.pool {
            Some(pool) => pool.push(Job { work, mailbox: self.inbox.mailbox().clone(), slot }),
            None => {
                let answer = inline(&self.shared.core, work);
                self.inbox.mailbox().push(slot, answer);
            }
        }
    }

    /// Moves the data of a slot.
    fn transfer(&mut self, i: u32, data: Data) {
        let at = self.shared.core.layout.data(data.zone, data.at);
        let len = u64::from(data.len) << 9;
        let slot = &mut self.slots[i as usize];
        let c = slot.command.as_ref().expect("a slot in use has a command");
        if data.zeroes {
            // What is written to a sequential zone is never a hole, so that a hole shows data that could
            // not be written back.
            let hole = self.shared.core.is_conventional(data.zone);
            return self.work(i, Work::Zero { at, len, hole });
        }
        if self.inbox.ring().is_none() {
            // SAFETY: the slot keeps the command as it is until the answer, and the worker drops them before that.
            let bufs = unsafe { memory(c, data.len) }.collect();
            return self.work(i, Work::Data { write: data.write, at, bufs });
        }
        slot.segments.clear();
        // SAFETY: used in this loop only; of the addresses, see `push`.
        for (buf, n) in unsafe { memory(c, data.len) } {
            slot.segments.push(&buf, 0, n);
        }
        (slot.at, slot.left) = (at, len);
        self.push(i, data.write);
    }

    /// Puts the rest of a slot's transfer on the ring.
    fn push(&mut self, i: u32, write: bool) {
        let slot = &self.slots[i as usize];
        let (Some(ring), Some(file)) = (self.inbox.ring(), self.shared.core.storage.file()) else {
            return;
        };
        let Stage::Data(data) = slot.stage else { return };
        // In a conventional zone overlapping commands may be in flight. If one goes past the page cache and
        // another through it, Linux fails the next sync, so all go through it.
        let one_way = self.shared.core.is_conventional(data.zone);
        let fd = file.fd_for(&slot.segments, slot.left, one_way);
        // SAFETY: the slot keeps command and list unchanged until the answer, and `drop` waits for it.
        let pushed = unsafe {
            ring.push(ring::transfer(fd, write, slot.at, &slot.segments, 0), u64::from(i))
        };
        if !pushed {
            let full = io::Error::from_raw_os_error(libc::EBUSY);
            self.inbox.mailbox().push(i, Answer::Moved(Err(full)));
        }
    }

    /// The kernel has moved some bytes, or failed.
    fn ring_answer(&mut self, i: u32, result: i32) {
        let slot = &mut self.slots[i as usize];
        let Stage::Data(data) = slot.stage else { return };
        match result {
            1.. => {
                slot.at += result as u64;
                slot.left -= (result as u64).min(slot.left);
                slot.segments.advance(result as usize);
            }
            // The thread that submitted it was interrupted or has ended, so it is submitted again.
            _ if [libc::EINTR, libc::EAGAIN].contains(&-result) => {}
            // The submitter may have ended. Or the kernel could not start a worker thread (`ulimit -u`, a
            // pids limit), and will not be able to at the next attempt.
            _ if result == -libc::ECANCELED => {
                let (write, at, left) = (data.write, slot.at, slot.left);
                let c = slot.command.as_ref().expect("a slot in use has a command");
                // SAFETY: as in `transfer`; the kernel has given its part back.
                let bufs = unsafe { memory_after(c, data.len, (u64::from(data.len) << 9) - left) };
                return self.work(i, Work::Data { write, at, bufs });
            }
            0 => return self.data_done(i, Err(io::ErrorKind::UnexpectedEof.into())),
            _ => return self.data_done(i, Err(io::Error::from_raw_os_error(-result))),
        }
        if slot.left > 0 { self.push(i, data.write) } else { self.data_done(i, Ok(())) }
    }

    fn data_done(&mut self, i: u32, moved: io::Result<()>) {
        if let Stage::Data(data) = self.slots[i as usize].stage {
            let c = self.release(i);
            self.moved(c, data, moved);
        }
    }

    /// Continues a command after its data has moved: it is done, or is made durable.
    fn moved(&mut self, mut c: Box<Command>, data: Data, moved: io::Result<()>) {
        let status = self.shared.core.end(&mut c, data, moved);
        if status.is_ok() && data.write && c.flags.contains(Flags::FUA) {
            let i = self.slot(c, Stage::Commit);
            self.work(i, Work::Commit(Want::Flush));
        } else {
            self.finish(c, status);
        }
    }

    fn answer(&mut self, i: u32, answer: Answer) {
        match (self.slots[i as usize].stage, answer) {
            (Stage::Commit, Answer::Committed(status)) => {
                let c = self.release(i);
                self.finish(c, status);
            }
            (Stage::Preflush(data), Answer::Committed(status)) => {
                if status.is_ok() {
                    self.slots[i as usize].stage = Stage::Data(data);
                    self.transfer(i, data);
                } else {
                    self.shared.core.give_up(data);
                    let c = self.release(i);
                    self.finish(c, status);
                }
            }
            (Stage::Data(_), Answer::Moved(moved)) => self.data_done(i, moved),
            (stage, answer) => unreachable!("{answer:?} for {stage:?}"),
        }
    }

    /// Takes all answers, and begins commands that waited.
    fn advance(&mut self) {
        loop {
            let mut some = false;
            while let Some((i, reply)) = self.inbox.next() {
                match reply {
                    Reply::Ring { result, .. } => self.ring_answer(i, result),
                    Reply::Worked(answer) => self.answer(i, answer),
                }
                some = true;
            }
            while let Some(c) = self.waiting.pop_front() {
                if let Err(c) = self.start(c) {
                    self.waiting.push_front(c);
                    break;
                }
                some = true;
            }
            self.inbox.send();
            if !some {
                return;
            }
        }
    }

    /// Whether `poll` has anything to do.
    fn has_work(&self) -> bool {
        !self.done.is_empty()
            || self.inbox.is_full()
            || (!self.waiting.is_empty() && self.in_flight() == 0)
    }
}

impl Queue for FileQueue {
    fn submit(&mut self, now: Nanos, commands: &mut Commands) {
        self.seen = now;
        while self.held < self.depth {
            let Some(c) = commands.pop_front() else { break };
            self.held += 1;
            let ordered = !matches!(c.op, Op::Read | Op::Flush | Op::ReportZones);
            if ordered && !self.waiting.is_empty() {
                self.waiting.push_back(c);
            } else if let Err(c) = self.start(c) {
                self.waiting.push_back(c);
            }
        }
        self.inbox.send();
        if self.inbox.is_armed() {
            // A client that armed the queue before it had work sleeps until this.
            self.arm();
        }
    }

    fn poll(&mut self, now: Nanos, done: &mut Commands) {
        self.seen = now;
        self.advance();
        assert!(!self.inbox.is_broken(), "a thread of the device has panicked");
        self.held -= self.done.len();
        if done.is_empty() {
            std::mem::swap(&mut self.done, done);
        } else {
            done.append(&mut self.done);
        }
    }

    fn next_deadline(&self) -> Option<Nanos> {
        self.has_work().then_some(self.seen)
    }

    fn arm_fd(&mut self) -> Option<i32> {
        let in_flight = self.in_flight();
        if self.waiting.is_empty()
            && self.done.is_empty()
            && let Some(fd) = self.inbox.arm_fd(in_flight)
        {
            return Some(fd);
        }
        self.arm();
        None
    }

    fn arm(&mut self) {
        let ready = self.has_work();
        self.inbox.arm(ready);
    }
}

impl Drop for FileQueue {
    /// Waits for the transfers in flight, because the kernel uses the memory of the commands.
    fn drop(&mut self) {
        self.waiting.clear();
        while self.in_flight() > 0 && !self.inbox.is_broken() {
            self.inbox.wait();
            self.advance();
        }
    }
}
