//! Hosted disks: many clients on many threads, none of which can hold up another.
//!
//! The context that completes a write sends the next one of the zone, and that may be another client's: from then
//! on the other's write is in flight on this client's *lane*, its queue of the device. So a lane belongs to the
//! disk, not to the client, and whoever needs progress can run it:
//!
//! * a client that polls runs its own lane, and after some polls in vain those of the others too;
//! * for a client that sleeps the reactor thread runs every lane that has work (see `reactor`).
//!
//! A client may block for ever on a mutex of its own, panic, be forgotten or dropped: only its own completions wait
//! for it.

use crate::clock::Clock;
use crate::reactor::Reactor;
use crate::sleep::Alarm;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::task::{Wake, Waker};
use std::time::{Duration, Instant};
use zoneplug_buf::AlignedBuf;
use zoneplug_core::disk::{Disk, DiskConfig, DiskQueue, Freeze, QueueConfig};
use zoneplug_core::{Bios, Device, Error, ErrorKind};

/// Polls in vain after which a client runs the lanes of others.
const PATIENCE: u32 = 64;
/// Polls in vain after which [`Client::wait`] sleeps.
const SPINS: u32 = 256;

/// A lane: the queue of one client, to be run by anybody.
#[derive(Debug)]
pub(crate) struct Lane {
    queue: Mutex<DiskQueue>,
    /// The client sleeps, or is about to.
    pub(crate) armed: AtomicBool,
    /// The client has gone; the lane is run until it is empty.
    pub(crate) orphan: AtomicBool,
    /// Buffers of a client that has gone, for as long as a device may use them.
    kept: Mutex<Vec<AlignedBuf>>,
}

/// Locks, whatever happened: no client code runs under these locks.
pub(crate) fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

impl Lane {
    pub(crate) fn lock(&self) -> MutexGuard<'_, DiskQueue> {
        lock(&self.queue)
    }

    /// The queue, unless somebody is running it.
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, DiskQueue>> {
        match self.queue.try_lock() {
            Ok(q) => Some(q),
            Err(TryLockError::Poisoned(p)) => Some(p.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

/// Whether nothing of the client is in flight, and nothing of others on its lane either: only then may the lane go,
/// for a client that is blocked may hold on to it, and nobody would run it.
fn is_empty(queue: &DiskQueue) -> bool {
    queue.outstanding() == 0 && !queue.is_busy()
}

impl Drop for Lane {
    fn drop(&mut self) {
        if !is_empty(&self.lock()) {
            // A device may still use them: rather lose the memory.
            std::mem::forget(std::mem::take(&mut *lock(&self.kept)));
        }
    }
}

/// What the clients of a disk share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) disk: Disk,
    pub(crate) clock: Clock,
    pub(crate) lanes: Mutex<Vec<Arc<Lane>>>,
    /// Counts changes of `lanes`.
    version: AtomicU32,
    pub(crate) reactor: Reactor,
    /// Clients' wakers that are to be called as soon as no lane is locked (I8).
    to_wake: Mutex<Vec<Waker>>,
    /// Whether there are any.
    some_to_wake: AtomicBool,
}

impl Shared {
    /// Calls the wakers that came up while lanes were locked. They are clients' code: they may use their clients, and
    /// their panics are their own.
    #[inline]
    pub(crate) fn wake(&self) {
        if self.some_to_wake.load(Ordering::Acquire) {
            self.call_wakers();
        }
    }

    #[cold]
    fn call_wakers(&self) {
        self.some_to_wake.store(false, Ordering::Release);
        for waker in std::mem::take(&mut *lock(&self.to_wake)) {
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| waker.wake()));
        }
    }

    /// Removes the lanes of clients that have gone, once they are empty.
    pub(crate) fn bury(&self) {
        let mut lanes = lock(&self.lanes);
        let before = lanes.len();
        let mut gone = Vec::new();
        lanes.retain(|lane| {
            let dead = lane.orphan.load(Ordering::Acquire)
                && lane.try_lock().is_some_and(|mut queue| {
                    let empty = is_empty(&queue);
                    if empty {
                        // Others may still hold the lane, and will not run it: no freeze may wait for it.
                        queue.close();
                    }
                    empty
                });
            if dead {
                gone.push(lane.clone());
            }
            !dead
        });
        if lanes.len() != before {
            self.version.fetch_add(1, Ordering::Release);
        }
        drop(lanes);
        drop(gone);
    }
}

/// A disk that any number of threads share. Clones are the same disk.
///
/// ```
/// use zoneplug_host::HostedDisk;
/// use zoneplug_core::{Bio, Bios, Op, Sector};
///
/// let disk = HostedDisk::open_spec("null,zones=4,zone-size=1M").unwrap();
/// let mut client = disk.open_client(16, 8).unwrap();
/// let mut list = Bios::from([Bio::new(Op::WriteZeroes, Sector(0), 8)]);
/// client.submit(&mut list);
/// let mut done = Bios::new();
/// client.wait(&mut done, 1, None);
/// assert!(done[0].status.is_ok());
/// ```
#[derive(Debug, Clone)]
pub struct HostedDisk {
    shared: Arc<Shared>,
}

impl HostedDisk {
    /// Opens `device` as a disk.
    pub fn open(device: Arc<dyn Device>, config: DiskConfig) -> Result<HostedDisk, Error> {
        if config.timeout.is_some() {
            // The adapters give buffers back with their BIO, and the device may still be using one that timed out.
            return Err(Error::new(
                ErrorKind::NotSupported,
                "a hosted disk has no command deadlines yet",
            )
            .hint("open the disk without a timeout, or drive it yourself"));
        }
        let real = Clock::new(true);
        let clock = Clock::new(device.is_timed());
        let disk = Disk::open(device, config, &mut |_| real.now())?;
        Ok(HostedDisk {
            shared: Arc::new(Shared {
                disk,
                clock,
                lanes: Mutex::default(),
                version: AtomicU32::new(0),
                reactor: Reactor::default(),
                to_wake: Mutex::default(),
                some_to_wake: AtomicBool::new(false),
            }),
        })
    }

    /// Opens what a specification names: device and attributes (see [`crate::DiskSpec`]).
    pub fn open_spec(spec: &str) -> Result<HostedDisk, Error> {
        let spec = crate::DiskSpec::parse(spec)?;
        Self::open(spec.device, spec.config)
    }

    /// The disk itself: attributes, counters, the plug dump.
    pub fn disk(&self) -> &Disk {
        &self.shared.disk
    }

    /// A client that holds up to `depth` BIOs and has up to `tags` commands at the device.
    pub fn open_client(&self, depth: u32, tags: u16) -> Result<Client, Error> {
        let waker = Waker::from(Arc::new(Kick(Arc::downgrade(&self.shared))));
        let queue = self.shared.disk.open_queue(QueueConfig { depth, tags, waker })?;
        let lane = Arc::new(Lane {
            queue: Mutex::new(queue),
            armed: AtomicBool::new(false),
            orphan: AtomicBool::new(false),
            kept: Mutex::default(),
        });
        lock(&self.shared.lanes).push(lane.clone());
        self.shared.version.fetch_add(1, Ordering::Release);
        Ok(Client {
            shared: self.shared.clone(),
            lane,
            deferred: Deferred::new(&self.shared),
            depth,
            seen: u32::MAX,
            others: Vec::new(),
            in_vain: 0,
            alarm: None,
        })
    }

    /// Freezes the disk: returns when nothing is in flight, and keeps it so until the result is dropped. BIOs that
    /// are submitted meanwhile stay with their clients.
    pub fn freeze(&self) -> Frozen {
        let freeze = self.shared.disk.begin_freeze();
        while !freeze.poll() {
            self.run_all();
            std::thread::yield_now();
        }
        Frozen { freeze: Some(freeze), shared: self.shared.clone() }
    }

    /// Reads the zones of the device again (V1-V9). The disk is frozen meanwhile.
    pub fn revalidate(&self) -> Result<(), Error> {
        let mut queue = self.shared.disk.open_polled_queue(1, 1)?;
        let mut revalidation = self.shared.disk.revalidate();
        loop {
            if let Some(result) = revalidation.poll(&mut queue, self.shared.clock.now()) {
                drop(revalidation);
                self.shared.wake();
                return result;
            }
            self.run_all();
            std::thread::yield_now();
        }
    }

    fn run_all(&self) {
        let lanes = lock(&self.shared.lanes).clone();
        let now = self.shared.clock.now();
        for lane in lanes {
            if let Some(mut queue) = lane.try_lock() {
                queue.poll_for_owner(now);
            }
        }
        self.shared.wake();
    }
}

/// A disk with nothing in flight, until this is dropped.
#[derive(Debug)]
pub struct Frozen {
    freeze: Option<Freeze>,
    shared: Arc<Shared>,
}

impl Drop for Frozen {
    fn drop(&mut self) {
        self.freeze = None;
        self.shared.wake();
    }
}

/// What the engine wakes in a client's place: it may hold locks then, so the client's own waker is put aside.
#[derive(Debug)]
struct Deferred {
    waker: Mutex<Option<Waker>>,
    shared: std::sync::Weak<Shared>,
}

impl Deferred {
    fn new(shared: &Arc<Shared>) -> Arc<Deferred> {
        Arc::new(Deferred { waker: Mutex::default(), shared: Arc::downgrade(shared) })
    }
}

impl Wake for Deferred {
    fn wake(self: Arc<Self>) {
        let (Some(shared), Some(waker)) = (self.shared.upgrade(), lock(&self.waker).take()) else {
            return;
        };
        lock(&shared.to_wake).push(waker);
        shared.some_to_wake.store(true, Ordering::Release);
    }
}

/// Wakes the reactor: a device has finished something that somebody waits for.
struct Kick(std::sync::Weak<Shared>);

impl Wake for Kick {
    fn wake(self: Arc<Self>) {
        if let Some(shared) = self.0.upgrade() {
            shared.reactor.kick(&shared);
        }
    }
}

/// A client of a hosted disk: one thread at a time submits and polls.
#[derive(Debug)]
pub struct Client {
    shared: Arc<Shared>,
    lane: Arc<Lane>,
    /// Registered with the engine in place of the client's wakers.
    deferred: Arc<Deferred>,
    depth: u32,
    /// The version of the lanes that `others` is.
    seen: u32,
    others: Vec<Arc<Lane>>,
    /// Polls in a row that found nothing.
    in_vain: u32,
    /// What wakes this client's thread, once it has slept.
    alarm: Option<Arc<Alarm>>,
}

impl Client {
    /// Takes BIOs from the front of `bios`, as many as the depth allows, and returns how many.
    #[inline]
    pub fn submit(&mut self, bios: &mut Bios) -> usize {
        let now = self.shared.clock.now();
        let taken = self.lane.lock().submit(now, bios);
        self.shared.wake();
        taken
    }

    /// Does what there is to do, and appends BIOs of this client that have finished to `done`.
    #[inline]
    pub fn poll(&mut self, done: &mut Bios) {
        let now = self.shared.clock.now();
        let before = done.len();
        let mut own_work = false;
        if let Some(mut queue) = self.lane.try_lock() {
            queue.poll(now, done);
            own_work = queue.is_busy();
        }
        self.shared.wake();
        if done.len() == before {
            self.nothing_done(own_work);
        } else {
            self.in_vain = 0;
        }
    }

    /// What this client waits for may be on the lane of another, who may never run it.
    #[cold]
    fn nothing_done(&mut self, own_work: bool) {
        self.in_vain = self.in_vain.wrapping_add(1);
        let patience = if own_work { PATIENCE * 16 } else { PATIENCE };
        if self.in_vain.is_multiple_of(patience) {
            self.help();
        }
    }

    fn help(&mut self) {
        let version = self.shared.version.load(Ordering::Acquire);
        if version != self.seen {
            self.others = lock(&self.shared.lanes)
                .iter()
                .filter(|lane| !Arc::ptr_eq(lane, &self.lane))
                .cloned()
                .collect();
            self.seen = version;
        }
        let now = self.shared.clock.now();
        for lane in &self.others {
            if let Some(mut queue) = lane.try_lock()
                && queue.is_busy()
            {
                queue.poll_for_owner(now);
            }
        }
        self.shared.wake();
    }

    /// BIOs that were taken and have not been given back.
    pub fn outstanding(&self) -> u32 {
        self.lane.lock().outstanding()
    }

    /// How many BIOs the client can hold.
    pub fn depth(&self) -> u32 {
        self.depth
    }

    /// Polls until at least `min` BIOs have been appended to `done`, nothing is outstanding, or `timeout` has passed;
    /// sleeps where there is nothing to do. Returns how many were appended.
    pub fn wait(&mut self, done: &mut Bios, min: usize, timeout: Option<Duration>) -> usize {
        let before = done.len();
        let end = timeout.and_then(|t| Instant::now().checked_add(t));
        let mut spins = 0;
        loop {
            self.poll(done);
            let got = done.len() - before;
            if got >= min || self.outstanding() == 0 {
                return got;
            }
            let left = end.map(|e| e.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return got;
            }
            spins += 1;
            if spins < SPINS {
                std::hint::spin_loop();
                continue;
            }
            let alarm = self.alarm();
            if let Some(fd) = self.arm_fd(&alarm) {
                // Once more, after arming: what finished before is seen here, what finishes later wakes.
                self.poll(done);
                if done.len() - before < min {
                    alarm.sleep(fd, left);
                }
            }
            self.lane.armed.store(false, Ordering::Release);
        }
    }

    fn alarm(&mut self) -> Arc<Alarm> {
        self.alarm.get_or_insert_with(Alarm::new).clone()
    }

    /// [`Client::arm`], for a thread that sleeps in poll(2). `None`: poll again instead. With a descriptor, and without
    /// other clients, the reactor need not do anything.
    fn arm_fd(&mut self, alarm: &Arc<Alarm>) -> Option<Option<i32>> {
        *lock(&self.deferred.waker) = Some(Waker::from(alarm.clone()));
        let mut queue = self.lane.lock();
        let (armed, fd) = queue.arm_fd(&Waker::from(self.deferred.clone()));
        let timer = queue.next_deadline().is_some();
        drop(queue);
        if !armed {
            return None;
        }
        // With others, what this client waits for may be on a lane that nobody runs.
        if fd.is_none() || timer || lock(&self.shared.lanes).len() > 1 {
            self.lane.armed.store(true, Ordering::Release);
            self.shared.reactor.kick(&self.shared);
        }
        Some(fd)
    }

    /// Sleeps until the disk is thawed, at most `timeout`: for a client whose BIOs a frozen disk has not taken.
    pub fn wait_thaw(&mut self, timeout: Option<Duration>) {
        let alarm = self.alarm();
        if self.arm(&Waker::from(alarm.clone())) {
            alarm.sleep(None, timeout);
        }
        self.lane.armed.store(false, Ordering::Release);
    }

    /// Prepares for sleep: `waker` is woken when a BIO of this client has finished, or the disk was thawed. From now
    /// until the next poll the reactor runs the lanes. False: poll again instead. Arm, poll once more, then sleep.
    pub fn arm(&mut self, waker: &Waker) -> bool {
        *lock(&self.deferred.waker) = Some(waker.clone());
        let armed = self.lane.lock().arm(&Waker::from(self.deferred.clone()));
        if armed {
            self.lane.armed.store(true, Ordering::Release);
            self.shared.reactor.kick(&self.shared);
        }
        armed
    }

    /// The reverse of [`Client::arm`], for a client that nothing is in flight of: the reactor need not run its lane.
    pub fn disarm(&self) {
        self.lane.armed.store(false, Ordering::Release);
    }

    /// Waits until nothing of this client is in flight, at most `timeout`. True if that is so. What finished is in
    /// `done`.
    pub fn drain(&mut self, done: &mut Bios, timeout: Duration) -> Result<(), Error> {
        let end = Instant::now().checked_add(timeout);
        while self.outstanding() > 0 {
            let left = end.map_or(timeout, |e| e.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                let n = self.outstanding();
                return Err(Error::new(ErrorKind::Busy, format!("{n} BIOs are still in flight"))
                    .hint("wait longer; the device has not answered"));
            }
            let all = self.outstanding() as usize;
            self.wait(done, all, Some(left));
        }
        Ok(())
    }

    /// Keeps `bufs` until what is in flight has finished, though the client goes.
    pub(crate) fn keep_buffers(&self, bufs: impl Iterator<Item = AlignedBuf>) {
        lock(&self.lane.kept).extend(bufs);
    }
}

impl Drop for Client {
    /// Never blocks: what is in flight is finished by the reactor.
    fn drop(&mut self) {
        self.lane.orphan.store(true, Ordering::Release);
        if is_empty(&self.lane.lock()) {
            self.shared.bury();
        } else {
            self.shared.reactor.kick(&self.shared);
        }
    }
}
