//! Hosted disks: many clients on many threads, none of which can hold up another.
//!
//! The context that completes a write sends the next one of the zone, which may be another client's. That write is
//! then in flight on the *lane* of the client that completed the first one: its queue of the device. So a lane belongs
//! to the disk, not to the client, and any thread that needs progress can run it:
//!
//! * a client that polls runs its own lane, and after some polls in vain those of the others too;
//! * for a client that sleeps the reactor thread runs every lane that has work (see `reactor`).
//!
//! A client may block for ever on a mutex of its own, panic, be forgotten or dropped: only its own completions wait
//! for it.

use crate::clock::Clock;
use crate::runtime::client::Client;
use crate::runtime::deferred_wake::{Kick, Wakers};
use crate::runtime::reactor::Reactor;
use crate::runtime::shared_queue::{Lane, Work, lock};
use crate::runtime::withheld::{Shelf, Withheld};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Waker;
use std::time::Duration;
use zoneplug_core::disk::{Disk, DiskConfig, DiskCounters, DiskQueue, Freeze, QueueConfig};
use zoneplug_core::zone::{Geometry, Limits};
use zoneplug_core::{Device, Error, Nanos};

/// How long the drop of a disk's last handle waits until the reactor has left.
const CLOSE_PATIENCE: Duration = Duration::from_secs(2);

/// What the clients of a disk share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) disk: Disk,
    pub(crate) clock: Clock,
    /// Whether commands have deadlines.
    pub(crate) deadlines: bool,
    pub(crate) lanes: Mutex<Vec<Arc<Lane>>>,
    /// Counts changes of `lanes`.
    pub(crate) version: AtomicU32,
    pub(crate) reactor: Arc<Reactor>,
    pub(crate) wakers: Arc<Wakers>,
    pub(crate) shelf: Shelf,
    handles: AtomicUsize,
}

impl Shared {
    /// The time for the disk. Reads the clock only if the disk is timed.
    #[inline]
    pub(crate) fn now(&self) -> Nanos {
        if self.disk.is_timed() { self.clock.now() } else { Nanos(0) }
    }

    /// Has the reactor look at the lanes.
    pub(crate) fn kick(&self) {
        self.reactor.kick();
    }

    /// Removes the lanes of clients that have gone, once they are empty.
    pub(crate) fn bury(&self) {
        let mut lanes = lock(&self.lanes);
        let before = lanes.len();
        let mut gone = Vec::new();
        lanes.retain(|lane| {
            let dead = lane.is_orphan() && self.is_dead(lane);
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

    /// Whether nothing is in flight on the lane of a client that has gone, neither BIOs of its own nor commands of
    /// others. Only then may the lane be removed: the reactor does not run a removed lane, even if a blocked client
    /// holds on to it.
    fn is_dead(&self, lane: &Lane) -> bool {
        let Some(mut queue) = lane.try_lock() else { return false };
        let work = Work::of(&queue);
        if work == Work::Busy {
            return false;
        }
        self.shelf.put(&self.disk, lane.take_legacy());
        if work == Work::Late {
            lane.lingers.store(true, Ordering::Release);
            return false;
        }
        // Others may still hold the lane, and will not run it: no freeze may wait for it.
        queue.close();
        true
    }

    /// Gives up late commands. No handle of the disk is left, and the commands had their time.
    #[cold]
    pub(crate) fn abandon(&self) {
        for lane in std::mem::take(&mut *lock(&self.lanes)) {
            lane.lock().abandon();
        }
    }

    /// Keeps a queue without a client until its commands are back.
    fn adopt(&self, queue: DiskQueue) {
        let lane = Lane::new(queue);
        lane.orphan.store(true, Ordering::Release);
        lock(&self.lanes).push(Arc::new(lane));
        self.version.fetch_add(1, Ordering::Release);
        self.kick();
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.shelf.end(&self.disk);
    }
}

/// A reference that keeps the disk open. A [`HostedDisk`], a client and a freeze hold one; the reactor does not.
#[derive(Debug)]
pub(crate) struct Handle(Arc<Shared>);

impl Handle {
    fn first(shared: Shared) -> Handle {
        shared.handles.store(1, Ordering::Relaxed);
        Handle(Arc::new(shared))
    }
}

impl Clone for Handle {
    fn clone(&self) -> Handle {
        self.0.handles.fetch_add(1, Ordering::Relaxed);
        Handle(self.0.clone())
    }
}

impl std::ops::Deref for Handle {
    type Target = Arc<Shared>;

    #[inline]
    fn deref(&self) -> &Arc<Shared> {
        &self.0
    }
}

impl Drop for Handle {
    /// The last one waits until the reactor has given up the disk, unless something is in flight: then the reactor closes it
    /// when that is done.
    fn drop(&mut self) {
        if self.0.handles.fetch_sub(1, Ordering::AcqRel) > 1 || !self.0.reactor.close() {
            return;
        }
        let idle = lock(&self.0.lanes).iter().all(|l| Work::of(&l.lock()) == Work::None);
        if idle {
            self.0.reactor.wait_left(CLOSE_PATIENCE);
        }
    }
}

/// A disk that any number of threads share. Clones are the same disk.
///
/// The device is closed when the last of its clones and clients is dropped: at once if nothing is in flight, and else by the
/// reactor when that is done (commands that were given up get as long again as they had).
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
    shared: Handle,
}

impl HostedDisk {
    /// Opens `device` as a disk. With [`DiskConfig::timeout`] commands have deadlines: a client that waits, awake or
    /// asleep, is told when one is over. If a queue of the device panics, that queue is dead and the rest of the disk
    /// goes on, whatever [`DiskConfig::survive_panics`] says. The setting counts only for a device that
    /// [never panics](Device::never_panics).
    pub fn open(device: Arc<dyn Device>, config: DiskConfig) -> Result<HostedDisk, Error> {
        let survive_panics = config.survive_panics || !device.never_panics();
        let config = DiskConfig { survive_panics, ..config };
        let deadlines = config.timeout.is_some();
        let clock = Clock::new(true);
        let disk = Disk::open(device, config, &mut |_| clock.now())?;
        Ok(HostedDisk {
            shared: Handle::first(Shared {
                disk,
                clock,
                deadlines,
                lanes: Mutex::default(),
                version: AtomicU32::new(0),
                reactor: Arc::default(),
                wakers: Arc::default(),
                shelf: Shelf::default(),
                handles: AtomicUsize::new(0),
            }),
        })
    }

    /// Opens what a specification names: device and attributes (see [`crate::DiskSpec`]).
    pub fn open_spec(spec: &str) -> Result<HostedDisk, Error> {
        let spec = crate::DiskSpec::parse(spec)?;
        Self::open(spec.device, spec.config)
    }

    /// The layout of zones, as it is now. It is copied: a [revalidation](HostedDisk::revalidate) may change it.
    ///
    /// ```
    /// let disk = zoneplug_host::HostedDisk::open_spec("mem,zones=4,zone-size=1M").unwrap();
    /// let g = disk.geometry();
    /// assert_eq!((g.nr_zones(), g.zone_sectors()), (4, 2048));
    /// ```
    pub fn geometry(&self) -> Geometry {
        self.shared.disk.geometry()
    }

    /// What the device can do: block sizes, limits of open and active zones, each with its unit in its name.
    pub fn limits(&self) -> Limits {
        self.shared.disk.limits()
    }

    /// What the disk has counted since it was opened.
    ///
    /// ```
    /// # use zoneplug_core::{Sector, Status};
    /// let disk = zoneplug_host::HostedDisk::open_spec("mem,zones=4,zone-size=1M").unwrap();
    /// let mut io = zoneplug_host::BlockingDisk::new(&disk).unwrap();
    /// assert!(io.write_from(Sector(8), &[0; 4096]).is_err());
    /// let counters = disk.counters();
    /// assert_eq!(counters.plugs.rejected.by(Status::NotAtWritePointer), 1);
    /// assert_eq!(counters.plugs.issued, 0);
    /// ```
    pub fn counters(&self) -> DiskCounters {
        self.shared.disk.counters()
    }

    /// The disk itself: attributes, the plug dump.
    pub fn disk(&self) -> &Disk {
        &self.shared.disk
    }

    /// What the adapters have not given back or freed, because the device may still use it: the buffers of operations
    /// that ended before their commands did. They are freed when the commands come back (the reactor looks every 50 ms);
    /// what is there when the disk is closed is leaked, and counted by [`leaked_buffers`](crate::leaked_buffers).
    ///
    /// ```
    /// use zoneplug_host::{BlockingDisk, HostedDisk};
    /// use zoneplug_core::{Sector, Status};
    /// let disk = HostedDisk::open_spec("null,zones=4,zone-size=1M,timeout=20ms,fault=read/lost").unwrap();
    /// let mut io = BlockingDisk::new(&disk).unwrap();
    /// assert_eq!(io.read(Sector(0), 8).unwrap_err().status, Status::Timeout);
    /// assert_eq!(disk.withheld().bytes, 4096);
    /// assert!(io.read(Sector(0), 8).is_ok());
    /// ```
    pub fn withheld(&self) -> Withheld {
        self.shared.shelf.sweep(&self.shared.disk);
        self.shared.shelf.withheld()
    }

    /// A client that holds up to `depth` BIOs and has up to `tags` commands at the device. The first client starts the disk's
    /// reactor thread: if the system refuses a thread, this is an error.
    pub fn open_client(&self, depth: u32, tags: u16) -> Result<Client, Error> {
        Reactor::start(&self.shared)?;
        let waker = Waker::from(Arc::new(Kick(self.shared.reactor.clone())));
        let queue = self.shared.disk.open_queue(QueueConfig { depth, tags, waker })?;
        let lane = Arc::new(Lane::new(queue));
        lock(&self.shared.lanes).push(lane.clone());
        self.shared.version.fetch_add(1, Ordering::Release);
        Ok(Client::new(self.shared.clone(), lane, depth))
    }

    /// Freezes the disk: returns when nothing is in flight, and keeps it so until the result is dropped. BIOs that
    /// are submitted meanwhile stay with their clients.
    ///
    /// # Errors
    ///
    /// [`Busy`](zoneplug_core::ErrorKind::Busy) if no command ends for the drain limit, 30 s unless
    /// [`Disk::set_drain_limit`] says otherwise: the device has lost a command. The disk then goes on. The same holds for
    /// [`HostedDisk::revalidate`] and [`HostedDisk::set_attribute`].
    pub fn freeze(&self) -> Result<Frozen, Error> {
        let mut freeze = self.shared.disk.begin_freeze();
        while !freeze.poll() {
            self.run_all();
            if let Some(e) = freeze.overdue(self.shared.clock.now()) {
                drop(freeze);
                self.shared.wakers.call();
                return Err(e);
            }
            std::thread::yield_now();
        }
        Ok(Frozen { freeze: Some(freeze), shared: self.shared.clone() })
    }

    /// Reads the zones of the device again. The disk is frozen meanwhile.
    pub fn revalidate(&self) -> Result<(), Error> {
        // For the queue of a report that does not come back.
        Reactor::start(&self.shared)?;
        let mut queue = self.shared.disk.open_polled_queue(1, 1)?;
        let mut revalidation = self.shared.disk.revalidate();
        loop {
            if let Some(result) = revalidation.poll(&mut queue, self.shared.clock.now()) {
                drop(revalidation);
                if queue.late() > 0 {
                    // Its report has not come back. A queue dropped now would be the disk's orphan and slow down
                    // all clients.
                    self.shared.adopt(queue);
                }
                self.shared.wakers.call();
                return result;
            }
            self.run_all();
            std::thread::yield_now();
        }
    }

    /// Changes an attribute: returns when it has taken effect. One that needs a drained disk freezes it for that long.
    ///
    /// ```
    /// let disk = zoneplug_host::HostedDisk::open_spec("null,zones=4,zone-size=1M").unwrap();
    /// let client = disk.open_client(16, 8).unwrap();
    /// disk.set_attribute("zoned_qd1_writes", "1").unwrap();
    /// assert_eq!(disk.disk().attribute("zoned_qd1_writes").unwrap(), "1");
    /// ```
    pub fn set_attribute(&self, name: &str, value: &str) -> Result<(), Error> {
        let mut change = self.shared.disk.change_attribute(name, value)?;
        let mut result = Ok(());
        while !change.poll() {
            self.run_all();
            if let Some(e) = change.overdue(self.shared.clock.now()) {
                result = Err(e);
                break;
            }
            std::thread::yield_now();
        }
        drop(change);
        self.shared.wakers.call();
        result
    }

    fn run_all(&self) {
        let lanes = lock(&self.shared.lanes).clone();
        let now = self.shared.now();
        for lane in lanes {
            if let Some(mut queue) = lane.try_lock() {
                queue.poll_for_owner(now);
            }
        }
        self.shared.wakers.call();
    }
}

/// A disk with nothing in flight, until this is dropped.
#[derive(Debug)]
pub struct Frozen {
    freeze: Option<Freeze>,
    shared: Handle,
}

impl Drop for Frozen {
    fn drop(&mut self) {
        self.freeze = None;
        self.shared.wakers.call();
    }
}
