//! The thread of one queue: takes requests from the driver, submits them to the disk as BIOs, and returns their
//! results. It owns its side of the driver, a client of the disk, and buffers. The queues of a device share only the
//! disk.
//!
//! The thread decides nothing about zones: order, merging and recovery are the disk's.

mod resend;

use super::abi::Params;
use super::busy_poll::{BusyPoll, MOMENT};
use super::driver::{Driver, DriverEvent, KernelDriver, NO_RING, Polled};
use super::leave::{Leave, LeaveStep};
use super::request::{self, Request, Slice};
use super::sys::CopyDirection;
use super::takeover::replay;
use crate::eventfd::eventfd;
use crate::os_error::{Attempt, os_error};
use crate::recovery::journal::Journal;
use crate::runtime::client::{Client, TICK};
use crate::runtime::hosted::HostedDisk;
use crate::served::Counters;
use crate::served::latency::LatencyLog;
use crate::served::timing::{Timed, Timing, Untimed};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Wake, Waker};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use zoneplug_buf::{AlignedBuf, IoBuf, Lent};
use zoneplug_core::poison::lock;
use zoneplug_core::{BioPool, Bios, Error, IoRequest, IoResult, Op, Sector, Status};
use zoneplug_recovery::DiskRecovery;
use zoneplug_recovery::Resending;

/// Longer buffers are freed after their request. Only reports of very many zones need them.
const KEEP_BYTES: u32 = 2 << 20;

/// State that the queues of a device share.
pub(super) struct UblkShared {
    pub(super) disk: HostedDisk,
    pub(super) params: Params,
    /// The zones that the device shows.
    pub(super) slice: Slice,
    /// Requests that a queue takes at a time.
    pub(super) depth: u16,
    /// Commands of a queue at the device below.
    pub(super) tags: u16,
    /// The counters of each queue.
    pub(super) counters: Vec<Counters>,
    /// The log of each queue, if operations are timed.
    pub(super) latencies: Vec<Arc<LatencyLog>>,
    /// Why a queue ended although the device did not.
    pub(super) failure: Mutex<Option<String>>,
    /// The requests that the last server may have carried out, if the device was taken over.
    pub(super) replay: Option<DiskRecovery>,
    /// The journal, if the device can be taken over and has one.
    pub(super) journal: Option<Journal>,
    pub(super) leave: Leave,
    /// The number by which the disk knows the client behind the device.
    pub(super) client: u64,
}

/// Wakes a thread that sleeps in its ring.
struct EventWaker(File);

impl Wake for EventWaker {
    fn wake(self: Arc<Self>) {
        // The write fails only if the counter is raised already.
        let _ = (&self.0).write(&1u64.to_ne_bytes());
    }
}

/// Starts the thread of queue `number`. Returns when the thread has fetched its first requests, so that the device
/// can be started.
pub(super) fn spawn(
    shared: &Arc<UblkShared>,
    char_dev: &Arc<File>,
    number: u16,
    ended: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>, Error> {
    let (ready, is_ready) = mpsc::channel();
    let (shared, failed, char_dev) = (shared.clone(), shared.clone(), char_dev.clone());
    let body = move || {
        // The callback runs however this thread ends.
        let _ended = Ended(Some(ended));
        let ended = match shared.latencies.is_empty() {
            true => serve::<Untimed>(shared, &char_dev, number, ready),
            false => serve::<Timed>(shared, &char_dev, number, ready),
        };
        if let Err(e) = ended {
            let mut failure = lock(&failed.failure);
            failure.get_or_insert_with(|| format!("queue {number}: {e}"));
        }
    };
    let cannot = |e: io::Error| os_error(Attempt::Thread, "a thread for a queue", e);
    let thread = std::thread::Builder::new().name(format!("zoneplug-q{number}"));
    let thread = thread.spawn(body).map_err(cannot)?;
    match is_ready.recv() {
        Ok(Ok(())) => Ok(thread),
        Ok(Err(e)) => Err(e),
        Err(_) => Err(cannot(io::ErrorKind::BrokenPipe.into())),
    }
}

/// Serves a queue of the kernel's driver until it ends. Tells `ready` when the queue can be used, or why it cannot.
fn serve<T: Timing>(
    shared: Arc<UblkShared>,
    char_dev: &Arc<File>,
    number: u16,
    ready: mpsc::Sender<Result<(), Error>>,
) -> io::Result<()> {
    let driver = KernelDriver::open(char_dev, number, shared.depth);
    let driver = driver.map_err(|(what, e)| failed(number, what, e));
    match driver.and_then(|driver| Queue::<_, T>::new(shared, number, driver)) {
        Ok(mut queue) => {
            let _ = ready.send(Ok(()));
            drop(ready);
            queue.run()
        }
        Err(e) => {
            let _ = ready.send(Err(e));
            Ok(())
        }
    }
}

fn failed(number: u16, what: &str, e: io::Error) -> Error {
    let at = if what == NO_RING { Attempt::UblkRing } else { Attempt::UblkCommand };
    os_error(at, format!("queue {number}: {what}"), e)
}

struct Ended<F: FnOnce()>(Option<F>);

impl<F: FnOnce()> Drop for Ended<F> {
    fn drop(&mut self) {
        if let Some(f) = self.0.take() {
            f();
        }
    }
}

/// The state of a tag.
struct UblkSlot {
    /// The last request.
    request: Request,
    /// Whether a BIO carries it out.
    busy: bool,
    /// Commands of the request that were sent to the disk: one, except for a reset of all zones of a slice.
    sent: usize,
    /// The buffer whose memory the BIO uses.
    lent: Option<Lent>,
    /// The step that the BIO carries out, if the last server may have carried out the request.
    resending: Option<Box<Resending>>,
}

impl UblkSlot {
    fn new() -> UblkSlot {
        UblkSlot { request: Request::NONE, busy: false, sent: 0, lent: None, resending: None }
    }
}

pub(super) struct Queue<D, T> {
    shared: Arc<UblkShared>,
    number: u16,
    driver: D,
    client: Client,
    timing: T,
    event_waker: Arc<EventWaker>,
    waker: Waker,
    slots: Vec<UblkSlot>,
    /// Free buffers. The last one was used last, so its memory is in the cache, and there are only as many as
    /// requests were in flight at a time.
    bufs: Vec<AlignedBuf>,
    pool: BioPool,
    list: Bios,
    done: Bios,
    /// The driver sends no more requests.
    ended: bool,
    /// The device may be left to the next server: the queue begins no requests.
    leaving: bool,
    /// Requests that came since then, and were not begun.
    waiting: Vec<u16>,
    busy_poll: BusyPoll,
    /// Whether the driver polls the event counter, and whether it polls the device.
    polls_event: bool,
    polls_device: bool,
    /// Appends that the journal does not have yet. The driver has their answers, the kernel does not.
    to_tell: Vec<(Sector, u32)>,
}

impl<D: Driver, T: Timing> Queue<D, T> {
    pub(super) fn new(shared: Arc<UblkShared>, number: u16, driver: D) -> Result<Self, Error> {
        let depth = shared.depth;
        let timing = T::of(shared.latencies.get(usize::from(number)));
        let counter = eventfd().map_err(|e| failed(number, "no event counter", e))?;
        let event_waker = Arc::new(EventWaker(counter));
        let waker = Waker::from(event_waker.clone());
        shared.leave.join(&waker);
        Ok(Queue {
            number,
            driver,
            client: shared.disk.open_client(u32::from(depth), shared.tags)?,
            timing: timing.ok_or_else(|| Error::invalid("no place for latencies"))?,
            waker,
            event_waker,
            slots: (0..depth).map(|_| UblkSlot::new()).collect(),
            bufs: Vec::with_capacity(usize::from(depth)),
            pool: BioPool::new(usize::from(depth)),
            list: Bios::with_capacity(usize::from(depth)),
            done: Bios::with_capacity(usize::from(depth)),
            ended: false,
            leaving: false,
            waiting: Vec::new(),
            busy_poll: BusyPoll::new(),
            polls_event: false,
            polls_device: false,
            to_tell: Vec::with_capacity(usize::from(depth)),
            shared,
        })
    }

    /// Answers the request of a tag.
    fn answer(&mut self, tag: u16, result: i32, append: u64) -> io::Result<()> {
        self.make_room()?;
        self.driver.answer(tag, result, append)
    }

    fn poll(&mut self, fd: i32, polled: Polled) -> io::Result<()> {
        self.make_room()?;
        self.driver.poll(fd, polled)
    }

    /// Makes room for an answer or a poll.
    fn make_room(&mut self) -> io::Result<()> {
        if self.driver.has_room() { Ok(()) } else { self.submit() }
    }

    /// Passes the answers to the kernel.
    fn submit(&mut self) -> io::Result<()> {
        self.tell();
        self.driver.submit()
    }

    /// Passes the answers to the kernel, and waits.
    fn wait(&mut self, most: Option<Duration>) -> io::Result<()> {
        self.tell();
        self.driver.wait(most)
    }

    /// Answers an append that landed at `at`.
    fn appended(&mut self, tag: u16, request: &Request, at: Sector) -> io::Result<()> {
        if self.shared.journal.is_some() {
            self.to_tell.push((at, request.len_sectors));
        }
        let at = self.shared.slice.up(at);
        self.answer(tag, request.result(Status::Ok), at.0)
    }

    /// Writes the appends that are about to be acknowledged into the journal. Runs directly before the call that
    /// passes the answers to the kernel: if this process is killed between the two, the next server takes the appends
    /// for acknowledged. So nothing else may come between the two, above all no system call.
    fn tell(&mut self) {
        if let Some(journal) = &self.shared.journal {
            for (at, len_sectors) in self.to_tell.drain(..) {
                journal.record(self.number, at, len_sectors);
            }
        }
    }

    pub(super) fn run(&mut self) -> io::Result<()> {
        loop {
            if self.leaving && self.drain_to_leave()? {
                return Ok(());
            }
            let mut progress = self.take_events()?;
            if !self.list.is_empty() {
                progress |= self.client.submit(&mut self.list) > 0;
            }
            progress |= self.take_done()?;
            if progress {
                continue;
            }
            if self.ended {
                return Ok(());
            }
            self.sleep()?;
        }
    }

    /// Takes the driver's events.
    fn take_events(&mut self) -> io::Result<bool> {
        let mut any = false;
        while let Some(event) = self.driver.event()? {
            any = true;
            match event {
                DriverEvent::Request(tag) => {
                    self.busy_poll.took();
                    self.begin(tag)?;
                }
                DriverEvent::Readable(polled) => {
                    self.woken(polled);
                    self.leaving = self.shared.leave.step() != LeaveStep::Serve;
                }
                DriverEvent::Ended => self.ended = true,
            }
        }
        Ok(any)
    }

    fn woken(&mut self, polled: Polled) {
        match polled {
            Polled::Wake => {
                self.polls_event = false;
                // The read fails only if nothing has raised the counter.
                let _ = (&self.event_waker.0).read(&mut [0; 8]);
            }
            Polled::Device => self.polls_device = false,
        }
    }

    /// Answers the requests that were begun, and begins no others. True: the queue ends, and the driver gives the
    /// others to the next server once the ring and `/dev/ublkcN` are closed. False: the device stays, and the others
    /// were begun.
    #[cold]
    fn drain_to_leave(&mut self) -> io::Result<bool> {
        let mut drained = None;
        loop {
            while let Some(event) = self.driver.event()? {
                match event {
                    DriverEvent::Request(tag) => self.waiting.push(tag),
                    DriverEvent::Readable(polled) => self.woken(polled),
                    DriverEvent::Ended => self.ended = true,
                }
            }
            if !self.list.is_empty() {
                self.client.submit(&mut self.list);
            }
            if self.take_done()? {
                continue;
            }
            let order = self.shared.leave.order();
            match order.step {
                LeaveStep::Drain => {}
                LeaveStep::End => return self.submit().map(|()| true),
                LeaveStep::Serve => break,
            }
            if drained != Some(order) && self.client.outstanding() == 0 && self.list.is_empty() {
                // The kernel must have the answers before this queue counts as drained.
                self.submit()?;
                self.shared.leave.add_drained(order);
                drained = Some(order);
            }
            self.sleep()?;
        }
        self.leaving = false;
        for tag in std::mem::take(&mut self.waiting) {
            self.begin(tag)?;
        }
        Ok(false)
    }

    /// Submits a request as a BIO.
    fn begin(&mut self, tag: u16) -> io::Result<()> {
        let request = match Request::of(self.driver.request(tag), &self.shared.params) {
            Ok(request) => self.shared.slice.down(request),
            Err(errno) => return self.answer(tag, -errno, 0),
        };
        if request.wants_durability() && self.shared.disk.owes(self.shared.client) {
            // Writes that an earlier server has acknowledged are lost, and this client does not know yet.
            self.counters().count(request.op, request.bytes, false);
            return self.answer(tag, -libc::EIO, 0);
        }
        let mut buf = self.buffer(request.bytes);
        if request.brings_data()
            && let Some(buf) = &mut buf
            && self.driver.copy(CopyDirection::Fetch, tag, buf, request.bytes).is_err()
        {
            return self.answer(tag, -libc::EIO, 0);
        }
        let begun = match &self.shared.replay {
            Some(recovery) if recovery.is_before_first(request.op, request.sector) => {
                replay::begin(recovery, &request, buf.as_ref())
            }
            _ => None,
        };
        if let Some(journal) = &self.shared.journal {
            journal.begin(&request.change());
        }
        let Some(part) = self.shared.slice.part(&request, 0) else {
            // The slice has conventional zones only, so there is nothing to reset.
            return self.answer(tag, 0, 0);
        };
        let slot = &mut self.slots[usize::from(tag)];
        (slot.request, slot.sent, slot.busy) = (request, 1, true);
        let token = self.timing.token(tag, request.op);
        if let Some(begun) = begun {
            return self.search(tag, token, buf, begun);
        }
        self.send(tag, token, &part.of_disk(), buf);
        Ok(())
    }

    /// Sends a BIO for the request of a tag. Lends it the request's part of `buf`.
    #[inline]
    fn send(&mut self, tag: u16, token: u64, r: &IoRequest, buf: Option<AlignedBuf>) {
        let mut bio = self.pool.get();
        let io = match buf {
            Some(buf) => {
                let (lent, io) = buf.lend_part(r.memory.0, r.memory.1);
                self.slots[usize::from(tag)].lent = Some(lent);
                io
            }
            None => IoBuf::empty(),
        };
        bio.set(r.op, r.sector, r.len_sectors, io);
        bio.flags = r.flags;
        bio.set_token(token);
        self.list.push_back(bio);
    }

    /// A buffer for a request with so many bytes of data. `None`: the request has no data.
    fn buffer(&mut self, bytes: u32) -> Option<AlignedBuf> {
        (bytes > 0).then(|| self.take_buffer(bytes))
    }

    /// A buffer of at least so many bytes.
    fn take_buffer(&mut self, bytes: u32) -> AlignedBuf {
        match self.bufs.pop() {
            Some(buf) if buf.len() >= bytes => buf,
            // A buffer that is too short is replaced.
            _ => AlignedBuf::zeroed(bytes.next_power_of_two().max(1 << 16)),
        }
    }

    fn counters(&self) -> &Counters {
        &self.shared.counters[usize::from(self.number)]
    }

    /// Answers the requests whose BIOs have completed.
    fn take_done(&mut self) -> io::Result<bool> {
        if self.client.outstanding() == 0 {
            return Ok(false);
        }
        self.client.poll(&mut self.done);
        let any = !self.done.is_empty();
        while let Some(mut bio) = self.done.pop_front() {
            let (token, mut status, landed) = (bio.token(), bio.status, bio.sector);
            let tag = token as u16;
            let zones = bio.result;
            // If no request has this token, a faulty device made up the BIO.
            let slot = self.slots.get_mut(usize::from(tag)).filter(|s| s.busy);
            let Some(slot) = slot else { continue };
            let request = slot.request;
            let mut buf = None;
            if let Some(lent) = slot.lent.take() {
                buf = self.client.reclaim(&mut bio, Some(lent));
                if buf.is_none() && status.is_ok() {
                    // The BIO has come back without its memory, so the request fails.
                    status = Status::Io;
                }
            }
            if slot.resending.is_some() {
                self.pool.put(bio);
                self.step_ended(tag, token, IoResult { status, sector: landed, zones }, buf)?;
                continue;
            }
            if status.is_ok()
                && let Some(part) = self.shared.slice.part(&request, slot.sent)
            {
                slot.sent += 1;
                let mut next = bio;
                next.set(part.op, part.sector, part.len_sectors, IoBuf::empty());
                next.set_token(token);
                self.list.push_back(next);
                continue;
            }
            self.pool.put(bio);
            if request.wants_data() && status.is_ok() {
                let stored = buf.as_mut().map(|buf| {
                    if request.op == Op::ReportZones {
                        request::end_report(buf, zones, request.bytes);
                        self.shared.slice.up_zones(buf, request.bytes);
                    }
                    self.driver.copy(CopyDirection::Store, tag, buf, request.bytes)
                });
                if !matches!(stored, Some(Ok(()))) {
                    status = Status::Io;
                }
            }
            self.finish(tag, token, status, landed, buf)?;
        }
        Ok(any)
    }

    /// Answers the request of a tag. `landed`: where an append is. `buf`: the buffer of its data.
    #[inline]
    fn finish(
        &mut self,
        tag: u16,
        token: u64,
        status: Status,
        landed: Sector,
        buf: Option<AlignedBuf>,
    ) -> io::Result<()> {
        let slot = &mut self.slots[usize::from(tag)];
        slot.busy = false;
        let request = slot.request;
        self.keep_buffer(buf);
        self.counters().count(request.op, request.bytes, status.is_ok());
        self.timing.ended(token, request.op, request.sector);
        if let Some(journal) = &self.shared.journal {
            journal.end(&request.change(), status.is_ok());
        }
        if request.op == Op::ZoneAppend && status.is_ok() {
            return self.appended(tag, &request, landed);
        }
        let append = match request.op {
            Op::ZoneAppend => self.shared.slice.up(request.sector).0,
            _ => 0,
        };
        self.answer(tag, request.result(status), append)
    }

    /// Keeps a buffer for another request.
    #[inline]
    fn keep_buffer(&mut self, buf: Option<AlignedBuf>) {
        self.bufs.extend(buf.filter(|b| b.len() <= KEEP_BYTES));
    }

    /// Passes the answers to the kernel, and sleeps until a request or a completion comes.
    fn sleep(&mut self) -> io::Result<()> {
        if self.client.outstanding() == 0 && self.list.is_empty() {
            if self.busy_poll.before_sleep() {
                self.poll_for_requests()?;
            }
            self.poll_event()?;
            return self.wait(None);
        }
        let armed = self.client.arm_fd(&self.waker);
        let Some(fd) = armed else { return self.submit() };
        // This poll, after arming, sees earlier completions; a later one wakes the thread.
        if !self.take_done()? {
            self.poll_event()?;
            if let Some(fd) = fd
                && !self.polls_device
            {
                self.poll(fd, Polled::Device)?;
                self.polls_device = true;
            }
            let ticks = fd.is_some() || self.leaving;
            self.wait(ticks.then_some(TICK))?;
        }
        self.client.disarm();
        Ok(())
    }

    /// Makes the driver poll the event counter, by which the disk and [`Leave`] wake this thread.
    fn poll_event(&mut self) -> io::Result<()> {
        if !self.polls_event {
            self.poll(self.event_waker.0.as_raw_fd(), Polled::Wake)?;
            self.polls_event = true;
        }
        Ok(())
    }

    /// Passes the answers to the kernel, and polls for requests for a moment.
    #[cold]
    fn poll_for_requests(&mut self) -> io::Result<()> {
        self.submit()?;
        let begun = Instant::now();
        while !self.driver.has_events() && begun.elapsed() < MOMENT {
            std::hint::spin_loop();
        }
        Ok(())
    }
}

impl<D, T> Drop for Queue<D, T> {
    /// Usually nothing is in flight here, because the driver ends a queue after all requests are answered.
    fn drop(&mut self) {
        let lent = self.slots.drain(..).filter_map(|s| s.lent);
        self.client.keep_lent(lent);
    }
}
