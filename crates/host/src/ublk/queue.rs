//! The thread of one queue: takes requests from the kernel's driver, hands them to the disk as BIOs, and gives back how they
//! ended. It owns a ring, a client of the disk and a buffer for each tag; all queues of a device share nothing but the disk.
//!
//! It never decides anything about zones: order, merging and recovery are the disk's.

use super::abi::{self, Params};
use super::busy_poll::{BusyPoll, MOMENT};
use super::counters::Counters;
use super::request::{Request, Slice};
use super::sys::{self, Descriptors, QueueRing, Way};
use super::takeover::journal::Journal;
use super::takeover::replay::Replay;
use crate::client::{Client, TICK};
use crate::hosted::HostedDisk;
use crate::lane::lock;
use crate::sleep::eventfd;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Wake, Waker};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use zoneplug_buf::{AlignedBuf, IoBuf};
use zoneplug_core::{BioPool, Bios, Error, ErrorKind, Op, Sector, Status};

/// `id` of the answers that are no request: a completion wakes, and the device's descriptor is readable.
const BELL: u64 = u64::MAX;
const DEVICE: u64 = u64::MAX - 1;
/// A buffer that is longer is not kept: a report of very many zones.
const KEEP_BYTES: u32 = 2 << 20;

/// What the queues of a device have in common.
pub(super) struct Shared {
    pub(super) char_dev: File,
    pub(super) disk: HostedDisk,
    pub(super) params: Params,
    /// The zones that the device shows.
    pub(super) slice: Slice,
    /// Requests of a queue.
    pub(super) depth: u16,
    /// Commands of a queue at the device below.
    pub(super) tags: u16,
    pub(super) counters: Counters,
    /// Why a queue ended though the device did not.
    pub(super) failure: Mutex<Option<String>>,
    /// Of a device that was taken over.
    pub(super) replay: Option<Replay>,
    /// Of a device that can be taken over.
    pub(super) journal: Option<Journal>,
}

/// Wakes a thread that sleeps in its ring.
struct Bell(File);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        // An error says that it is raised already.
        let _ = (&self.0).write(&1u64.to_ne_bytes());
    }
}

/// Starts the thread of queue `number`: returns when it has fetched its requests, so that the device can be started.
pub(super) fn spawn(
    shared: &Arc<Shared>,
    number: u16,
    ended: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>, Error> {
    let (ready, is_ready) = mpsc::channel();
    let (shared, failed) = (shared.clone(), shared.clone());
    let body = move || {
        // Called however this ends: whoever waits for requests on this queue must be told.
        let _ended = Ended(Some(ended));
        match Queue::new(shared, number) {
            Ok(mut queue) => {
                let _ = ready.send(Ok(()));
                drop(ready);
                if let Err(e) = queue.run() {
                    let mut failure = lock(&failed.failure);
                    failure.get_or_insert_with(|| format!("queue {number}: {e}"));
                }
            }
            Err(e) => {
                let _ = ready.send(Err(e));
            }
        }
    };
    let cannot = |e: io::Error| {
        Error::new(ErrorKind::Io, format!("a thread for a queue: {e}")).hint("fewer --queues")
    };
    let thread = std::thread::Builder::new().name(format!("zoneplug-q{number}"));
    let thread = thread.spawn(body).map_err(cannot)?;
    match is_ready.recv() {
        Ok(Ok(())) => Ok(thread),
        Ok(Err(e)) => Err(e),
        Err(_) => Err(cannot(io::ErrorKind::BrokenPipe.into())),
    }
}

struct Ended<F: FnOnce()>(Option<F>);

impl<F: FnOnce()> Drop for Ended<F> {
    fn drop(&mut self) {
        if let Some(f) = self.0.take() {
            f();
        }
    }
}

/// A request in the hands of this queue.
struct Slot {
    request: Request,
    /// Commands of it that have been sent to the disk: one, unless it is a reset of all zones of a part.
    sent: usize,
    /// Kept from request to request.
    buf: Option<AlignedBuf>,
}

struct Queue {
    shared: Arc<Shared>,
    number: u16,
    ring: QueueRing,
    descriptors: Descriptors,
    client: Client,
    bell: Arc<Bell>,
    waker: Waker,
    slots: Vec<Option<Slot>>,
    pool: BioPool,
    list: Bios,
    done: Bios,
    /// Tags that the driver has taken back.
    gone: u16,
    busy_poll: BusyPoll,
    /// Polls that the ring has.
    polls_bell: bool,
    polls_device: bool,
    /// Appends whose answers are in the ring, and that are not on record yet.
    to_tell: Vec<(Sector, u32)>,
}

impl Queue {
    fn new(shared: Arc<Shared>, number: u16) -> Result<Queue, Error> {
        let failed = |what: &'static str| {
            move |e: io::Error| {
                Error::new(ErrorKind::Io, format!("queue {number}: {what}: {e}"))
                    .hint("a smaller --depth, or fewer --queues")
                    .source(e)
            }
        };
        let depth = shared.depth;
        let bell = Arc::new(Bell(eventfd().map_err(failed("no event counter"))?));
        let mut queue = Queue {
            number,
            ring: QueueRing::new(depth).map_err(failed("no ring"))?,
            descriptors: Descriptors::map(&shared.char_dev, number, depth)
                .map_err(failed("no descriptors"))?,
            client: shared.disk.open_client(u32::from(depth), shared.tags)?,
            waker: Waker::from(bell.clone()),
            bell,
            slots: (0..depth).map(|_| None).collect(),
            pool: BioPool::new(usize::from(depth)),
            list: Bios::with_capacity(usize::from(depth)),
            done: Bios::with_capacity(usize::from(depth)),
            gone: 0,
            busy_poll: BusyPoll::new(),
            polls_bell: false,
            polls_device: false,
            to_tell: Vec::with_capacity(usize::from(depth)),
            shared,
        };
        for tag in 0..depth {
            queue.command(abi::FETCH_REQ, tag, 0, 0).map_err(failed("a fetch"))?;
        }
        queue.ring.submit().map_err(failed("fetches"))?;
        // One that was refused is answered at once; the others wait for requests, and there are none before the start.
        if let Some((_, r)) = queue.ring.answer()
            && r < 0
        {
            return Err(failed("the driver refuses fetches")(io::Error::from_raw_os_error(-r)));
        }
        Ok(queue)
    }

    fn command(&mut self, op: u32, tag: u16, result: i32, append: u64) -> io::Result<()> {
        self.make_room()?;
        let cmd = abi::io_cmd(self.number, tag, result, append);
        self.ring.command(&self.shared.char_dev, op, cmd, u64::from(tag))
    }

    fn poll(&mut self, fd: i32, id: u64) -> io::Result<()> {
        self.make_room()?;
        self.ring.poll(fd, id)
    }

    /// For one more entry.
    fn make_room(&mut self) -> io::Result<()> {
        if self.ring.is_full() { self.submit() } else { Ok(()) }
    }

    /// Hands the kernel what was answered.
    fn submit(&mut self) -> io::Result<()> {
        self.tell();
        self.ring.submit()
    }

    /// That, and waits.
    fn wait(&mut self, most: Option<Duration>) -> io::Result<()> {
        self.tell();
        self.ring.wait(most)
    }

    /// Answers an append that is at `at`.
    fn appended(&mut self, tag: u16, request: &Request, at: Sector) -> io::Result<()> {
        if self.shared.journal.is_some() {
            self.to_tell.push((at, request.len_sectors));
        }
        let at = self.shared.slice.up(at);
        self.command(abi::COMMIT_AND_FETCH_REQ, tag, request.result(Status::Ok), at.0)
    }

    /// Puts on record what the answers say that the kernel is handed next, and right before that: what is on record and was not
    /// answered is not found when this process is killed in between. Nothing else may be there, and above all no call.
    fn tell(&mut self) {
        if let Some(journal) = &self.shared.journal {
            for (at, len_sectors) in self.to_tell.drain(..) {
                journal.record(self.number, at, len_sectors);
            }
        }
    }

    fn run(&mut self) -> io::Result<()> {
        loop {
            let mut progress = self.take_answers()?;
            if !self.list.is_empty() {
                progress |= self.client.submit(&mut self.list) > 0;
            }
            progress |= self.take_done()?;
            if progress {
                continue;
            }
            if self.gone == self.shared.depth {
                return Ok(());
            }
            self.sleep()?;
        }
    }

    /// Looks at what came out of the ring.
    fn take_answers(&mut self) -> io::Result<bool> {
        let mut any = false;
        while let Some((id, result)) = self.ring.answer() {
            any = true;
            match id {
                BELL => {
                    self.polls_bell = false;
                    // An error says that nobody raised it.
                    let _ = (&self.bell.0).read(&mut [0; 8]);
                }
                DEVICE => self.polls_device = false,
                // The tag, and a request in its descriptor.
                tag if result == 0 => {
                    self.busy_poll.took();
                    self.begin(tag as u16)?;
                }
                // `UBLK_IO_RES_ABORT`: the device stops.
                _ if result == -libc::ENODEV => self.gone += 1,
                // It does not take an answer, so the request that it was for will never end.
                _ => return Err(io::Error::from_raw_os_error(result.abs())),
            }
        }
        Ok(any)
    }

    /// Makes a BIO of a request.
    fn begin(&mut self, tag: u16) -> io::Result<()> {
        let request = match Request::of(self.descriptors.get(tag), &self.shared.params) {
            Ok(request) => self.shared.slice.down(request),
            Err(errno) => return self.command(abi::COMMIT_AND_FETCH_REQ, tag, -errno, 0),
        };
        let old = self.slots[usize::from(tag)].take().and_then(|s| s.buf);
        let mut slot = Slot { request, sent: 1, buf: old };
        if request.bytes > 0 {
            let fits = |b: &AlignedBuf| b.len() >= request.bytes;
            let buf = slot.buf.take().filter(fits);
            let mut buf = buf.unwrap_or_else(|| {
                AlignedBuf::zeroed(request.bytes.next_power_of_two().max(1 << 16))
            });
            if request.brings_data() {
                let at = abi::data_offset(self.number, tag);
                let fetched =
                    sys::copy(&self.shared.char_dev, Way::Fetch, at, &mut buf, request.bytes);
                if fetched.is_err() {
                    return self.command(abi::COMMIT_AND_FETCH_REQ, tag, -libc::EIO, 0);
                }
            }
            slot.buf = Some(buf);
        }
        let mut done_sectors = 0;
        if let Some(replay) = &self.shared.replay {
            let buf = slot.buf.as_ref().filter(|_| request.bytes > 0);
            if request.op == Op::ZoneAppend {
                if let Some(at) = replay.append_before(&request, buf, &self.shared.disk) {
                    self.shared.counters.replayed.fetch_add(1, Ordering::Relaxed);
                    self.slots[usize::from(tag)] = Some(slot);
                    return self.appended(tag, &request, at);
                }
            } else {
                done_sectors = replay.done_before(&request, buf, &self.shared.disk);
            }
        }
        if let Some(journal) = &self.shared.journal {
            journal.begin(&request);
        }
        let Some((op, sector, len_sectors)) = self.shared.slice.part(&request, 0) else {
            // Nothing but conventional zones is shown, and nothing to reset.
            self.slots[usize::from(tag)] = Some(slot);
            return self.command(abi::COMMIT_AND_FETCH_REQ, tag, 0, 0);
        };
        let mut bio = self.pool.get();
        let io = match &slot.buf {
            // SAFETY: the buffer goes into its slot below, which keeps it until the BIO has come back, and `finish` asks then
            // whether it is late; `drop` hands what is left to the lane.
            Some(buf) if request.bytes > 0 => unsafe { sys::lend(buf, request.bytes) },
            _ => IoBuf::empty(),
        };
        bio.set(op, sector, len_sectors, io);
        bio.flags = request.flags;
        bio.set_token(u64::from(tag));
        self.slots[usize::from(tag)] = Some(slot);
        if done_sectors > 0 {
            self.shared.counters.replayed.fetch_add(1, Ordering::Relaxed);
            if done_sectors == request.len_sectors {
                let answer = request.result(Status::Ok);
                self.pool.put(bio);
                return self.command(abi::COMMIT_AND_FETCH_REQ, tag, answer, 0);
            }
            bio.sector = request.sector.plus(u64::from(done_sectors));
            bio.len_sectors -= done_sectors;
            if request.bytes > 0 {
                bio.set_buf(
                    bio.data().slice(done_sectors << 9, request.bytes - (done_sectors << 9)),
                );
            }
        }
        self.list.push_back(bio);
        Ok(())
    }

    /// Gives back what has finished.
    fn take_done(&mut self) -> io::Result<bool> {
        if self.client.outstanding() == 0 {
            return Ok(false);
        }
        self.client.poll(&mut self.done);
        let any = !self.done.is_empty();
        while let Some(bio) = self.done.pop_front() {
            let (tag, mut status, landed) = (bio.token() as u16, bio.status, bio.sector);
            let Some(slot) = &mut self.slots[usize::from(tag)] else { continue };
            let request = slot.request;
            slot.buf = self.client.reclaim(&bio, slot.buf.take());
            if status.is_ok()
                && let Some((op, sector, len)) = self.shared.slice.part(&request, slot.sent)
            {
                slot.sent += 1;
                let mut next = bio;
                next.set(op, sector, len, IoBuf::empty());
                next.set_token(u64::from(tag));
                self.list.push_back(next);
                continue;
            }
            self.pool.put(bio);
            if request.wants_data() && status.is_ok() {
                let at = abi::data_offset(self.number, tag);
                let stored = slot.buf.as_mut().map(|buf| {
                    if request.op == Op::ReportZones {
                        self.shared.slice.up_zones(buf, request.bytes);
                    }
                    sys::copy(&self.shared.char_dev, Way::Store, at, buf, request.bytes)
                });
                if !matches!(stored, Some(Ok(()))) {
                    status = Status::Io;
                }
            }
            if slot.buf.as_ref().is_some_and(|b| b.len() > KEEP_BYTES) {
                slot.buf = None;
            }
            self.shared.counters.count(&request, status);
            if let Some(journal) = &self.shared.journal {
                journal.end(&request, status.is_ok());
            }
            if request.op == Op::ZoneAppend && status.is_ok() {
                self.appended(tag, &request, landed)?;
                continue;
            }
            let append = match request.op {
                Op::ZoneAppend => self.shared.slice.up(request.sector).0,
                _ => 0,
            };
            self.command(abi::COMMIT_AND_FETCH_REQ, tag, request.result(status), append)?;
        }
        Ok(any)
    }

    /// Hands over what was answered, and waits for requests and completions.
    fn sleep(&mut self) -> io::Result<()> {
        if self.client.outstanding() == 0 && self.list.is_empty() {
            if self.busy_poll.before_sleep() {
                self.look()?;
            }
            return self.wait(None);
        }
        let armed = self.client.arm_fd(&self.waker);
        let Some(fd) = armed else { return self.submit() };
        // Once more, after arming: what finished before is seen here, what finishes later wakes.
        if !self.take_done()? {
            if !self.polls_bell {
                self.poll(self.bell.0.as_raw_fd(), BELL)?;
                self.polls_bell = true;
            }
            if let Some(fd) = fd
                && !self.polls_device
            {
                self.poll(fd, DEVICE)?;
                self.polls_device = true;
            }
            self.wait(fd.map(|_| TICK))?;
        }
        self.client.disarm();
        Ok(())
    }

    /// Hands over what was answered, and looks for requests for a moment.
    #[cold]
    fn look(&mut self) -> io::Result<()> {
        self.submit()?;
        let begun = Instant::now();
        while !self.ring.has_answers() && begun.elapsed() < MOMENT {
            std::hint::spin_loop();
        }
        Ok(())
    }
}

impl Drop for Queue {
    /// Usually nothing is in flight: the driver ends a queue when all is answered.
    fn drop(&mut self) {
        let bufs = self.slots.drain(..).flatten().filter_map(|s| s.buf);
        self.client.keep_buffers(bufs);
    }
}
