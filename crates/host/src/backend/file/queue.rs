//! Commands of a durable disk: each waits for its zone, moves data, is made durable, and ends. Work that would block
//! goes to the ring or to threads.

use super::commit::Want;
use super::exec::{Data, FileStep};
use super::storage::transfer;
use super::work::{FileAnswer, FileWork, inline};
use super::{Engine, FileShared};
use crate::backend::ring::{
    self, Completions, Job, Reply, Ring, RingSlots, Segments, SlotQueue, Steps,
};
use io_uring::{cqueue, squeue};
use std::io;
use std::sync::Arc;
use std::task::Waker;
use zoneplug_core::{Command, Flags, IoBuf};

/// The event that a command is waiting for.
#[derive(Debug, Clone, Copy, Default)]
enum Stage {
    /// A flush before its data.
    Preflush(Data),
    /// Its data.
    Data(Data),
    /// The table; then it ends with that status.
    #[default]
    Commit,
}

/// A command in flight.
#[derive(Debug, Default)]
pub(super) struct FileSlot {
    command: Option<Box<Command>>,
    stage: Stage,
    /// The memory that the kernel moves, its offset in the file, and the bytes that are left.
    segments: Segments,
    at: u64,
    left: u64,
}

impl ring::RingSlot for FileSlot {
    fn place(&mut self) -> &mut Option<Box<Command>> {
        &mut self.command
    }
}

/// The steps of the commands of a durable disk's queues.
#[derive(Debug)]
pub(super) struct FileSteps {
    shared: Arc<FileShared>,
}

/// Opens a queue. The error is that of its ring.
pub(super) fn open(
    shared: Arc<FileShared>,
    depth: u16,
    waker: Waker,
) -> io::Result<SlotQueue<FileSteps>> {
    let with_ring =
        |epoll_waker| Completions::new(waker.clone()).with_ring(Ring::new(depth)?, epoll_waker);
    let completions = match shared.epoll_waker.as_ref().map(with_ring) {
        Some(Ok(completions)) => completions,
        Some(Err(e)) if shared.engine == Engine::OnlyRing => return Err(e),
        _ => Completions::new(waker),
    };
    Ok(SlotQueue::new(FileSteps { shared }, completions, depth))
}

/// The memory of the first `sectors` of a command.
///
/// # Safety
///
/// The result is dropped before the command goes back, and the command's BIOs are not touched meanwhile. If the
/// command is a read, its memory may be written (`Command::has_whole_bios`).
unsafe fn memory(c: &Command, sectors: u32) -> impl Iterator<Item = (IoBuf, u32)> + '_ {
    let mut left = sectors;
    c.bios.iter().map_while(move |bio| {
        let n = left.min(bio.len_sectors);
        left -= n;
        // SAFETY: the caller's promise.
        (n > 0).then(|| (unsafe { bio.data().alias() }, n << 9))
    })
}

/// The memory of the first `sectors` of a command, without its first `bytes`.
///
/// # Safety
///
/// The contract of [`memory`].
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

/// How a transfer goes on after the kernel's answer.
#[derive(Debug)]
enum RingAnswer {
    /// So many bytes were moved; the rest, if there is one, is submitted.
    Moved(u32),
    /// The thread that submitted the transfer was interrupted or has ended, so the rest is submitted again.
    Again,
    /// A thread moves the rest, because the ring could not. The submitter may have ended. Or the kernel could not start
    /// a worker thread (`ulimit -u`, a pids limit), and will not be able to at the next attempt.
    ByThread,
    Failed(io::Error),
}

impl RingAnswer {
    fn of(result: i32) -> Self {
        match result {
            1.. => Self::Moved(result.unsigned_abs()),
            0 => Self::Failed(io::ErrorKind::UnexpectedEof.into()),
            _ => match -result {
                libc::EINTR | libc::EAGAIN => Self::Again,
                libc::ECANCELED => Self::ByThread,
                errno => Self::Failed(io::Error::from_raw_os_error(errno)),
            },
        }
    }
}

impl FileSteps {
    /// Takes a slot for a command that waits for `stage`.
    fn slot(slots: &mut RingSlots<Self>, c: Box<Command>, stage: Stage) -> u32 {
        let i = slots.take(c);
        slots.get(i).stage = stage;
        i
    }

    /// Begins a command, or gives it back because its zone is in use.
    fn start(&self, slots: &mut RingSlots<Self>, mut c: Box<Command>) -> Result<(), Box<Command>> {
        match self.shared.core.begin(&mut c) {
            FileStep::Done(status) => slots.finish(c, status),
            FileStep::Wait => return Err(c),
            FileStep::Commit(want) => {
                let i = Self::slot(slots, c, Stage::Commit);
                self.work(slots, i, FileWork::Commit(want));
            }
            FileStep::Data(data) => {
                let pre = data.write
                    && c.flags.contains(Flags::PREFLUSH)
                    && self.shared.core.state().is_dirty();
                if pre {
                    let i = Self::slot(slots, c, Stage::Preflush(data));
                    self.work(slots, i, FileWork::Commit(Want::Flush));
                } else if self.shared.engine == Engine::Inline && !data.zeroes {
                    let at = self.shared.core.layout.data(data.zone, data.at);
                    // SAFETY: the call is over before the command goes on.
                    let mut bufs = unsafe { memory(&c, data.len) };
                    let storage = &*self.shared.core.storage;
                    let moved = transfer(storage, data.write, at, &mut bufs);
                    drop(bufs);
                    self.moved(slots, c, data, moved);
                } else {
                    let i = Self::slot(slots, c, Stage::Data(data));
                    self.transfer(slots, i, data);
                }
            }
        }
        Ok(())
    }

    /// Gives the work of a slot to the threads, or does it if there are none.
    fn work(&self, slots: &mut RingSlots<Self>, slot: u32, work: FileWork) {
        match &self.shared.pool {
            Some(pool) => {
                pool.push(Job { work, mailbox: slots.completions.mailbox().clone(), slot });
            }
            None => {
                let answer = inline(&self.shared.core, work);
                slots.completions.mailbox().push(slot, answer);
            }
        }
    }

    /// Moves the data of a slot.
    fn transfer(&self, slots: &mut RingSlots<Self>, i: u32, data: Data) {
        let at = self.shared.core.layout.data(data.zone, data.at);
        let len = u64::from(data.len) << 9;
        if data.zeroes {
            // A written range of a sequential zone never becomes a hole, so that a hole shows data that could not be
            // written back.
            let hole = self.shared.core.is_conventional(data.zone);
            return self.work(slots, i, FileWork::Zero { at, len, hole });
        }
        let (slot, completions) = slots.parts(i);
        let c = slot.command.as_ref().expect("a slot in use has a command");
        if completions.ring().is_none() {
            // SAFETY: the slot keeps the command as it is until the answer, and the worker drops them before that.
            let bufs = unsafe { memory(c, data.len) }.collect();
            return self.work(slots, i, FileWork::Data { write: data.write, at, bufs });
        }
        slot.segments.clear();
        // SAFETY: used in this loop only; of the addresses, see `push`.
        for (buf, n) in unsafe { memory(c, data.len) } {
            slot.segments.push(&buf, 0, n);
        }
        (slot.at, slot.left) = (at, len);
        self.push(slots, i, data.write);
    }

    /// Puts the rest of a slot's transfer on the ring.
    fn push(&self, slots: &mut RingSlots<Self>, i: u32, write: bool) {
        let (slot, completions) = slots.parts(i);
        let (Some(ring), Some(file)) = (completions.ring(), self.shared.core.storage.file()) else {
            return;
        };
        let Stage::Data(data) = slot.stage else { return };
        // Overlapping commands of a conventional zone may be in flight. If one goes past the page cache and another
        // through it, Linux fails the next sync, so all go through it.
        let one_way = self.shared.core.is_conventional(data.zone);
        let fd = file.fd_for(&slot.segments, slot.left, one_way);
        // SAFETY: the slot keeps command and list unchanged until the answer, and `drop` waits for it.
        let pushed = unsafe {
            ring.push(ring::transfer(fd, write, slot.at, &slot.segments, 0), u64::from(i))
        };
        if !pushed {
            let full = io::Error::from_raw_os_error(libc::EBUSY);
            slots.completions.mailbox().push(i, FileAnswer::Moved(Err(full)));
        }
    }

    /// Goes on after the kernel's answer to a transfer.
    fn ring_answer(&self, slots: &mut RingSlots<Self>, i: u32, result: i32) {
        let slot = slots.get(i);
        let Stage::Data(data) = slot.stage else { return };
        match RingAnswer::of(result) {
            RingAnswer::Moved(bytes) => {
                slot.at += u64::from(bytes);
                slot.left -= u64::from(bytes).min(slot.left);
                slot.segments.advance(bytes as usize);
            }
            RingAnswer::Again => {}
            RingAnswer::ByThread => {
                let (write, at, left) = (data.write, slot.at, slot.left);
                let c = slot.command.as_ref().expect("a slot in use has a command");
                // SAFETY: as in `transfer`; the kernel has given its part back.
                let bufs = unsafe { memory_after(c, data.len, (u64::from(data.len) << 9) - left) };
                return self.work(slots, i, FileWork::Data { write, at, bufs });
            }
            RingAnswer::Failed(e) => return self.data_done(slots, i, Err(e)),
        }
        if slot.left > 0 {
            self.push(slots, i, data.write);
        } else {
            self.data_done(slots, i, Ok(()));
        }
    }

    fn data_done(&self, slots: &mut RingSlots<Self>, i: u32, moved: io::Result<()>) {
        if let Stage::Data(data) = slots.get(i).stage {
            let c = slots.release(i);
            self.moved(slots, c, data, moved);
        }
    }

    /// Continues a command after its data has moved: it is done, or is made durable.
    fn moved(
        &self,
        slots: &mut RingSlots<Self>,
        mut c: Box<Command>,
        data: Data,
        moved: io::Result<()>,
    ) {
        let status = self.shared.core.end(&mut c, data, moved);
        if status.is_ok() && data.write && c.flags.contains(Flags::FUA) {
            let i = Self::slot(slots, c, Stage::Commit);
            self.work(slots, i, FileWork::Commit(Want::Flush));
        } else {
            slots.finish(c, status);
        }
    }

    fn answer(&self, slots: &mut RingSlots<Self>, i: u32, answer: FileAnswer) {
        match (slots.get(i).stage, answer) {
            (Stage::Commit, FileAnswer::Committed(status)) => {
                let c = slots.release(i);
                slots.finish(c, status);
            }
            (Stage::Preflush(data), FileAnswer::Committed(status)) => {
                if status.is_ok() {
                    slots.get(i).stage = Stage::Data(data);
                    self.transfer(slots, i, data);
                } else {
                    self.shared.core.give_up(data);
                    let c = slots.release(i);
                    slots.finish(c, status);
                }
            }
            (Stage::Data(_), FileAnswer::Moved(moved)) => self.data_done(slots, i, moved),
            (stage, answer) => unreachable!("{answer:?} for {stage:?}"),
        }
    }
}

impl Steps for FileSteps {
    type Slot = FileSlot;
    type Answer = FileAnswer;
    type Sqe = squeue::Entry;
    type Cqe = cqueue::Entry;

    fn begin(&mut self, slots: &mut RingSlots<Self>, c: Box<Command>) -> Result<(), Box<Command>> {
        self.start(slots, c)
    }

    fn reply(&mut self, slots: &mut RingSlots<Self>, i: u32, reply: Reply<FileAnswer>) {
        match reply {
            Reply::Ring { result, .. } => self.ring_answer(slots, i, result),
            Reply::Worked(answer) => self.answer(slots, i, answer),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A transfer that a ring cannot carry out goes on by a thread. Only an error of the file is the command's.
    #[test]
    fn each_answer_of_a_ring_has_its_next_step() {
        assert!(matches!(RingAnswer::of(4096), RingAnswer::Moved(4096)));
        assert!(matches!(RingAnswer::of(i32::MAX), RingAnswer::Moved(0x7fff_ffff)));
        for errno in [libc::EINTR, libc::EAGAIN] {
            assert!(matches!(RingAnswer::of(-errno), RingAnswer::Again), "{errno}");
        }
        assert!(matches!(RingAnswer::of(-libc::ECANCELED), RingAnswer::ByThread));
        for errno in [libc::EIO, libc::ENOSPC, libc::EINVAL] {
            let answer = RingAnswer::of(-errno);
            let RingAnswer::Failed(e) = answer else { panic!("{answer:?}") };
            assert_eq!(e.raw_os_error(), Some(errno));
        }
        let answer = RingAnswer::of(0);
        let RingAnswer::Failed(e) = answer else { panic!("{answer:?}") };
        assert_eq!(e.kind(), io::ErrorKind::UnexpectedEof);
    }
}
