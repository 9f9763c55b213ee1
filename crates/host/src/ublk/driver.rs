//! What the thread of a queue asks of the kernel's driver, and how [`KernelDriver`] asks it. The fake of
//! `testing.rs` stands in for the kernel where there is none.
//!
//! | mode | requests come | answers go |
//! | --- | --- | --- |
//! | each request by itself | a command for each tag waits in the ring, and is answered when the tag has a request | with the next such command |
//! | batch (Linux 7.0) | one command stays in the ring. Each of its answers is a buffer with the tags of requests | one command with a list, for all answers since the last system call |

use super::abi::{self, IoDesc};
use super::batch::{AnswerList, AnswerLists};
use super::queue_ring::{QueueRing, RingAnswer, TagBuffers};
use super::sys::{self, Descriptors, Way};
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::Duration;
use zoneplug_buf::AlignedBuf;

/// `id` of ring entries that belong to no tag and no list: the two polls, and the fetch of batch mode.
const WAKE: u64 = u64::MAX;
const DEVICE: u64 = u64::MAX - 1;
const FETCH: u64 = u64::MAX - 2;
/// Entries of a ring in batch mode: a fetch, a list of answers and two polls, with room for what the kernel did
/// not take at once.
const BATCH_ENTRIES: u32 = 32;

/// What came out of the ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    /// Linux has a request. It is in the descriptor of this tag.
    Request(u16),
    /// A descriptor that was polled is readable.
    Readable(Polled),
    /// The driver sends no more requests.
    Ended,
}

/// What a queue sleeps for besides requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Polled {
    /// The counter that the queue's waker raises.
    Wake,
    /// The descriptor of the disk's device.
    Device,
}

/// The kernel's side of a queue. Only `submit` and `wait` hand anything to the kernel.
pub(super) trait Driver {
    /// The next event. It makes no system call. An error means that the kernel did not take an answer, so
    /// that its request would never end.
    fn event(&mut self) -> io::Result<Option<Event>>;

    /// Whether there is an event, or will be one as soon as the kernel is asked.
    fn has_events(&mut self) -> bool;

    /// The descriptor of a tag that the driver has handed over.
    fn request(&self, tag: u16) -> IoDesc;

    /// Copies the first `len` bytes of a buffer to or from the data of a request.
    fn copy(&self, way: Way, tag: u16, buf: &mut AlignedBuf, len: u32) -> io::Result<()>;

    /// Whether there is room for an answer or a poll. If not, `submit` makes room.
    fn has_room(&mut self) -> bool;

    /// Answers the request of a tag. `append` is the sector at which a zone append landed, else 0.
    fn answer(&mut self, tag: u16, result: i32, append: u64) -> io::Result<()>;

    /// Reports once when `fd` is readable.
    fn poll(&mut self, fd: RawFd, polled: Polled) -> io::Result<()>;

    /// Hands answers and polls to the kernel without waiting, and takes what it has.
    fn submit(&mut self) -> io::Result<()>;

    /// Hands answers and polls to the kernel, and waits at most `most` for an event.
    fn wait(&mut self, most: Option<Duration>) -> io::Result<()>;
}

/// `/dev/ublkcN`.
#[derive(Debug, Clone)]
pub(super) struct CharDev {
    pub(super) file: Arc<File>,
    /// Whether the device was made for batch mode.
    pub(super) batch: bool,
}

/// A queue of `/dev/ublkcN`.
pub(super) struct KernelDriver {
    char_dev: Arc<File>,
    number: u16,
    depth: u16,
    ring: QueueRing,
    descriptors: Descriptors,
    mode: Mode,
}

enum Mode {
    Each {
        /// Tags that the driver has taken back.
        gone: u16,
    },
    Batch(Batch),
}

impl KernelDriver {
    /// Fetches the first requests. The error says which step failed. The thread that calls this is the one
    /// that uses the queue.
    pub(super) fn open(
        char_dev: &CharDev,
        number: u16,
        depth: u16,
    ) -> Result<KernelDriver, (&'static str, io::Error)> {
        let failed = |what| move |e| (what, e);
        // In mode `Each` an answer for each tag, and two polls.
        let entries = if char_dev.batch { BATCH_ENTRIES } else { u32::from(depth) + 2 };
        let ring = QueueRing::new(entries, 2 * entries).map_err(failed("no ring"))?;
        let mode = match char_dev.batch {
            true => Mode::Batch(Batch::new(&ring, depth).map_err(failed("no buffers"))?),
            false => Mode::Each { gone: 0 },
        };
        let mut driver = KernelDriver {
            ring,
            descriptors: Descriptors::map(&char_dev.file, number, depth)
                .map_err(failed("no descriptors"))?,
            char_dev: char_dev.file.clone(),
            number,
            depth,
            mode,
        };
        driver.prepare().map_err(failed("fetches"))?;
        driver.submit().map_err(failed("fetches"))?;
        // A refused fetch is answered at once. The others wait for requests, and none come before the
        // device is started.
        match driver.ring.answer() {
            Some(a) if a.result < 0 => {
                Err(("the driver refuses fetches", io::Error::from_raw_os_error(-a.result)))
            }
            _ => Ok(driver),
        }
    }

    /// Hands all tags to the driver.
    fn prepare(&mut self) -> io::Result<()> {
        let Mode::Batch(batch) = &mut self.mode else {
            return (0..self.depth).try_for_each(|tag| self.command(abi::FETCH_REQ, tag, 0, 0));
        };
        (0..self.depth).for_each(|tag| batch.lists.push(tag, 0, 0));
        let Some(list) = batch.lists.take() else { return Ok(()) };
        let cmd = abi::list_cmd(self.number, list.elements);
        // SAFETY: the list stays until `taken` below. If this fails, it stays for ever.
        unsafe {
            self.ring.list_command(&self.char_dev, abi::PREP_IO_CMDS, cmd, list.ptr, 0)?;
        }
        let answer = loop {
            self.ring.wait(1, None)?;
            if let Some(answer) = self.ring.answer() {
                break answer;
            }
        };
        if answer.result < 0 {
            return Err(io::Error::from_raw_os_error(-answer.result));
        }
        batch.lists.taken(list.number, list.bytes())
    }

    fn command(&mut self, op: u32, tag: u16, result: i32, append: u64) -> io::Result<()> {
        let cmd = abi::io_cmd(self.number, tag, result, append);
        self.ring.command(&self.char_dev, op, cmd, u64::from(tag))
    }

    /// What an answer of the ring means. `None`: nothing to the queue, or a batch whose tags are in `ready`.
    fn event_of(&mut self, answer: RingAnswer) -> io::Result<Option<Event>> {
        let RingAnswer { id, result, .. } = answer;
        match (&mut self.mode, id) {
            (_, WAKE) => Ok(Some(Event::Readable(Polled::Wake))),
            (_, DEVICE) => Ok(Some(Event::Readable(Polled::Device))),
            (Mode::Each { .. }, tag) if result == 0 => Ok(Some(Event::Request(tag as u16))),
            // `UBLK_IO_RES_ABORT`: the device stops.
            (Mode::Each { gone }, _) if result == -libc::ENODEV => {
                *gone += 1;
                Ok((*gone == self.depth).then_some(Event::Ended))
            }
            (Mode::Each { .. }, _) => Err(io::Error::from_raw_os_error(result.abs())),
            (Mode::Batch(batch), FETCH) => batch.fetched(answer),
            (Mode::Batch(batch), list) => batch.lists.taken(list as usize, result).map(|()| None),
        }
    }

    /// Puts what batch mode hands to the kernel into the ring.
    fn push_batch(&mut self) -> io::Result<()> {
        let Mode::Batch(batch) = &mut self.mode else { return Ok(()) };
        if !batch.fetching && !batch.ended && !self.ring.is_full() {
            let cmd = abi::fetch_cmd(self.number);
            // SAFETY: the buffers are of this ring, and `Batch` keeps them for as long as the command is there.
            unsafe {
                self.ring.multishot_command(
                    &self.char_dev,
                    abi::FETCH_IO_CMDS,
                    cmd,
                    &batch.buffers,
                    FETCH,
                )?;
            }
            batch.fetching = true;
        }
        if !self.ring.is_full()
            && let Some(list) = batch.lists.take()
        {
            let AnswerList { number, elements, ptr } = list;
            let cmd = abi::list_cmd(self.number, elements);
            // SAFETY: the list stays until its answer.
            unsafe {
                self.ring.list_command(
                    &self.char_dev,
                    abi::COMMIT_IO_CMDS,
                    cmd,
                    ptr,
                    number as u64,
                )?;
            }
        }
        Ok(())
    }
}

/// Batch mode.
struct Batch {
    lists: AnswerLists,
    buffers: std::mem::ManuallyDrop<TagBuffers>,
    /// Tags of requests that the queue has not taken.
    ready: VecDeque<u16>,
    /// What `has_events` found.
    found: Option<io::Result<Event>>,
    /// Whether the fetch is in the ring, so that the kernel may fill buffers.
    fetching: bool,
    /// Whether the driver has ended the fetch for good.
    ended: bool,
}

impl Batch {
    fn new(ring: &QueueRing, depth: u16) -> io::Result<Batch> {
        Ok(Batch {
            lists: AnswerLists::new(depth),
            buffers: std::mem::ManuallyDrop::new(TagBuffers::new(ring)?),
            ready: VecDeque::with_capacity(usize::from(depth)),
            found: None,
            fetching: false,
            ended: false,
        })
    }

    /// Takes the tags of an answer to the fetch.
    fn fetched(&mut self, answer: RingAnswer) -> io::Result<Option<Event>> {
        if let Some(id) = answer.buffer {
            let len = usize::try_from(answer.result).unwrap_or(0);
            self.ready.extend(self.buffers.tags(id, len));
            self.buffers.free(id);
        }
        if answer.more {
            return Ok(None);
        }
        self.fetching = false;
        match answer.result {
            // It ended for lack of a buffer or of room in the ring. The next `submit` sends it again.
            0.. => Ok(None),
            r if r == -libc::ENOBUFS => Ok(None),
            // `UBLK_IO_RES_ABORT`: the device stops.
            r if r == -libc::ENODEV => {
                self.ended = true;
                Ok(Some(Event::Ended))
            }
            r => Err(io::Error::from_raw_os_error(-r)),
        }
    }
}

impl Drop for Batch {
    /// The kernel ends a fetch some time after the ring was closed. If one is there, its buffers stay: then the
    /// queue has failed, and the process ends soon.
    fn drop(&mut self) {
        if !self.fetching {
            // SAFETY: dropped once, here.
            unsafe { std::mem::ManuallyDrop::drop(&mut self.buffers) };
        }
    }
}

impl Driver for KernelDriver {
    fn event(&mut self) -> io::Result<Option<Event>> {
        loop {
            if let Mode::Batch(batch) = &mut self.mode {
                if let Some(tag) = batch.ready.pop_front() {
                    return Ok(Some(Event::Request(tag)));
                }
                if let Some(found) = batch.found.take() {
                    return found.map(Some);
                }
            }
            let Some(answer) = self.ring.answer() else { return Ok(None) };
            if let Some(event) = self.event_of(answer)? {
                return Ok(Some(event));
            }
        }
    }

    fn has_events(&mut self) -> bool {
        loop {
            if let Mode::Batch(batch) = &self.mode
                && (!batch.ready.is_empty() || batch.found.is_some())
            {
                return true;
            }
            // The answer to a list is no event.
            let Mode::Batch(_) = &self.mode else { return self.ring.has_answers() };
            let Some(answer) = self.ring.answer() else { return self.ring.has_answers() };
            let found = self.event_of(answer).transpose();
            if let Mode::Batch(batch) = &mut self.mode {
                batch.found = found;
            }
        }
    }

    fn request(&self, tag: u16) -> IoDesc {
        self.descriptors.get(tag)
    }

    fn copy(&self, way: Way, tag: u16, buf: &mut AlignedBuf, len: u32) -> io::Result<()> {
        sys::copy(&self.char_dev, way, abi::data_offset(self.number, tag), buf, len)
    }

    fn has_room(&mut self) -> bool {
        !self.ring.is_full()
    }

    fn answer(&mut self, tag: u16, result: i32, append: u64) -> io::Result<()> {
        match &mut self.mode {
            Mode::Each { .. } => self.command(abi::COMMIT_AND_FETCH_REQ, tag, result, append),
            Mode::Batch(batch) => {
                batch.lists.push(tag, result, append);
                Ok(())
            }
        }
    }

    fn poll(&mut self, fd: RawFd, polled: Polled) -> io::Result<()> {
        let id = match polled {
            Polled::Wake => WAKE,
            Polled::Device => DEVICE,
        };
        self.ring.poll(fd, id)
    }

    fn submit(&mut self) -> io::Result<()> {
        self.push_batch()?;
        self.ring.submit()
    }

    fn wait(&mut self, most: Option<Duration>) -> io::Result<()> {
        self.push_batch()?;
        match &self.mode {
            Mode::Each { .. } => self.ring.wait(1, most),
            // Answers that did not fit into the ring must not wait for another request.
            Mode::Batch(batch) if batch.lists.has_answers() => self.ring.submit(),
            // Each list is answered at once, and that is not what this waits for.
            Mode::Batch(batch) => self.ring.wait(1 + batch.lists.in_flight(), most),
        }
    }
}
