//! Clients on a disk in real time: a drive, a disk in memory, or a model that keeps its times by
//! the clock. Owns the order of events: BIOs go to the disk as soon as they are submitted, and each
//! client learns of a completion when it is seen.
//!
//! The run reads no clock itself: the caller supplies one that also sleeps.

use super::io::{Client, Finished, Io};
use super::own_memory::OwnMemory;
use super::report::ClientReport;
use std::fmt;
use std::sync::Arc;
use std::task::Waker;
use zoneplug_core::disk::{Disk, DiskConfig, DiskQueue, QueueConfig};
use zoneplug_core::{Bios, Device, Error, ErrorKind, Nanos};

/// The time of a run on a real disk.
pub trait Clock {
    /// Returns the time now, which never goes back.
    fn now(&mut self) -> Nanos;

    /// Lets others work. Returns at `until`, or earlier; at once if that is past.
    fn pause(&mut self, until: Nanos);

    /// Returns the waker that ends a pause.
    fn waker(&self) -> Waker;

    /// Whether the run should end early.
    fn is_asked(&mut self) -> bool;
}

/// A run on a real disk.
///
/// ```
/// use std::task::Waker;
/// use std::time::Instant;
/// use zoneplug_core::Nanos;
/// use zoneplug_models::time::{Clock, Pace, Placement, RealRun, TraceClient};
/// use zoneplug_models::time::trace::{Events, Reader};
/// struct Wall(Instant);
/// impl Clock for Wall {
///     fn now(&mut self) -> Nanos {
///         Nanos(self.0.elapsed().as_nanos() as u64)
///     }
///     fn pause(&mut self, _: Nanos) {
///         std::thread::yield_now();
///     }
///     fn waker(&self) -> Waker {
///         Waker::noop().clone()
///     }
///     fn is_asked(&mut self) -> bool {
///         false
///     }
/// }
/// # use zoneplug_core::{disk::DiskConfig, zone::Geometry};
/// # use zoneplug_devices::emu::{EmuConfig, EmuDisk};
/// # use zoneplug_devices::spec::Spec;
/// # let mut spec = Spec::parse("mem,zones=4,zone-size=1M").unwrap();
/// # let device = EmuDisk::new(EmuConfig::from_spec(&mut spec).unwrap()).unwrap();
/// let text = "fio version 2 iolog\nf write 0 65536\nf write 65536 65536\nf read 0 4096\n";
/// let mut trace = Reader::new(text.as_bytes(), Events::Queued, None).unwrap();
/// let mut client = TraceClient::new(
///     Placement::Exact { begin: Vec::new() },
///     &zoneplug_core::Device::limits(&*device).clone(),
///     Pace { speed: None, window: Some(1) },
///     Box::new(move || trace.next_event()),
///     Box::new(|_| ()),
/// );
/// let run = RealRun { device, config: DiskConfig::default(), tags: 32 };
/// let reports = run.go(&mut [&mut client], &mut Wall(Instant::now())).unwrap();
/// assert_eq!((reports[0].bios, reports[0].bytes), (3, 135_168));
/// ```
pub struct RealRun {
    /// The disk. Clients find its zones as the caller left them, also those named in
    /// [`Client::prepare`].
    pub device: Arc<dyn Device>,
    /// The layer: mode, schedulers, the single writer.
    pub config: DiskConfig,
    /// Most commands at the disk at a time.
    pub tags: u16,
}

/// Most BIOs that all clients together may have outstanding.
const DEPTH: u32 = 1 << 16;

/// How long a run polls without a pause after the last event: falling asleep and waking up takes
/// longer than a command of a fast drive.
const SPIN: Nanos = Nanos(200_000);

/// The longest pause, after which the run checks whether it should end.
const LONGEST: Nanos = Nanos(10_000_000);

impl fmt::Debug for RealRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RealRun").field("config", &self.config).finish_non_exhaustive()
    }
}

impl RealRun {
    /// Runs the clients until one of them ends the run, or the clock asks for its end. Then sends
    /// nothing more, and reports to the clients the completions of commands at the disk. Fails if
    /// the disk cannot be opened, or with the error of a client.
    pub fn go(
        &self,
        clients: &mut [&mut dyn Client],
        clock: &mut dyn Clock,
    ) -> Result<Vec<ClientReport>, Error> {
        let disk = Disk::open(self.device.clone(), self.config.clone(), &mut |due| {
            let now = clock.now();
            clock.pause(due.unwrap_or(now).min(now.plus(LONGEST)));
            clock.now()
        })?;
        let waker = clock.waker();
        let queue =
            disk.open_queue(QueueConfig { depth: DEPTH, tags: self.tags, waker: waker.clone() })?;
        let mut run = Running {
            io: Io::new(*self.device.geometry(), clients.len(), false),
            queue,
            memory: OwnMemory::new(),
            ready: Bios::new(),
            done: Bios::new(),
            waker,
            is_timed: disk.is_timed(),
            active_at: Nanos(0),
        };
        run.io.now = clock.now();
        for (i, client) in clients.iter_mut().enumerate() {
            run.io.current = i as u16;
            client.start(&mut run.io);
        }
        run.until_end(clients, clock)
    }
}

/// A run in progress.
struct Running {
    io: Io,
    queue: DiskQueue,
    memory: OwnMemory,
    ready: Bios,
    done: Bios,
    waker: Waker,
    is_timed: bool,
    /// The time of the last event.
    active_at: Nanos,
}

impl Running {
    fn until_end(
        mut self,
        clients: &mut [&mut dyn Client],
        clock: &mut dyn Clock,
    ) -> Result<Vec<ClientReport>, Error> {
        while self.io.ended.is_none() {
            let asked = clock.is_asked();
            if asked {
                // BIOs that were not sent yet are dropped.
                self.io.out.clear();
                self.memory.drop_waiting();
                if self.queue.outstanding() == 0 {
                    break;
                }
            }
            self.submit(clock)?;
            if self.poll(clients, clock)? {
                continue;
            }
            let timer = if asked { None } else { self.io.next_timer() };
            if timer.is_some_and(|t| t <= self.io.now) {
                if let Some((client, token)) = self.io.pop_timer() {
                    self.active_at = self.io.now;
                    self.io.current = client;
                    clients[usize::from(client)].timer(&mut self.io, token);
                }
                continue;
            }
            if self.queue.outstanding() == 0 && timer.is_none() && self.io.out.is_empty() {
                return Err(Error::new(ErrorKind::Busy, "every client waits for another")
                    .hint("this is a bug of a client, or of the layer"));
            }
            self.pause(timer, clock);
        }
        self.io.note_waiting();
        self.io.ended.take().unwrap_or(Ok(()))?;
        Ok(std::mem::take(&mut self.io.clients))
    }

    /// Sends the BIOs that clients have submitted.
    fn submit(&mut self, clock: &mut dyn Clock) -> Result<(), Error> {
        self.memory.equip(&mut self.io.out, &mut self.ready);
        if self.ready.is_empty() {
            return Ok(());
        }
        self.active_at = clock.now();
        self.queue.submit(self.active_at, &mut self.ready);
        if !self.ready.is_empty() {
            return Err(Error::new(ErrorKind::Busy, "the clients have too many BIOs")
                .hint(format!("all together at most {DEPTH}")));
        }
        Ok(())
    }

    /// Tells the clients of completed BIOs. Returns whether there were any.
    fn poll(
        &mut self,
        clients: &mut [&mut dyn Client],
        clock: &mut dyn Clock,
    ) -> Result<bool, Error> {
        let now = clock.now();
        self.queue.poll(now, &mut self.done);
        // The completions were there before the poll ended.
        (self.io.now, self.io.completed) = (now, now);
        if self.done.is_empty() {
            return Ok(false);
        }
        self.active_at = now;
        while let Some(mut bio) = self.done.pop_front() {
            self.memory.take_back(&mut bio);
            let (client, finished, status) = self.io.back(bio);
            self.io.current = client;
            let client = &mut clients[usize::from(client)];
            if status.is_ok() {
                client.finished(&mut self.io, finished);
            } else if !client.failed(&mut self.io, finished, status) {
                let Finished { op, sector, .. } = finished;
                let what = format!("{} at {sector}: {status}", op.name());
                return Err(Error::new(ErrorKind::Io, what).hint("look at the drive"));
            }
        }
        Ok(true)
    }

    /// Waits for the next event.
    fn pause(&mut self, timer: Option<Nanos>, clock: &mut dyn Clock) {
        let now = self.io.now;
        let due = self.queue.next_deadline();
        let waits = self.queue.outstanding() > 0;
        let known = self.is_timed && due.is_some();
        if waits && !known && now.0 - self.active_at.0 < SPIN.0 {
            return clock.pause(now);
        }
        if waits {
            let armed = self.queue.arm(&self.waker);
            // A completion before the arming wakes no thread.
            self.queue.poll(clock.now(), &mut self.done);
            if !armed || !self.done.is_empty() {
                return;
            }
        }
        let until = [timer, due, Some(now.plus(LONGEST))].into_iter().flatten().min();
        clock.pause(until.unwrap_or(now));
    }
}
