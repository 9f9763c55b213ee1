//! Hosted disks: many clients on many threads, none of which can hold up another.
//!
//! The context that completes a write sends the next one of the zone, which may be another client's. That write is
//! then in flight on the queue of the client that completed the first one. So queues belong to the disk, not to their
//! clients, and any thread that needs progress can run them (`shared_queue.rs`):
//!
//! * a client that polls runs its own queue; after some polls that found nothing, it runs those of the others too;
//! * for a client that sleeps the reactor's thread runs every queue that has work (`reactor.rs`).
//!
//! A client may block for ever on a mutex of its own, panic, be forgotten or dropped: only its own completions are
//! delayed.

#[cfg(feature = "file")]
use crate::backend::file::FileDisk;
use crate::clock::Clock;
use crate::runtime::client::Client;
use crate::runtime::deferred_wake::DeferredWaker;
use crate::runtime::io_error::IoError;
use crate::runtime::reactor;
use crate::runtime::shared::Handle;
use crate::runtime::shared_queue::QueueOwner;
use crate::runtime::withheld::Withheld;
use crate::spec::meaning::Meaning;
use crate::spec::{DiskSpec, Specification};
use crate::threads::Pauses;
use crate::zone_memory::check_zone_memory;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Waker;
use zoneplug_core::disk::{Disk, DiskConfig, DiskCounters, Event, Freeze, QueueConfig};
use zoneplug_core::poison::lock;
use zoneplug_core::zone::{Geometry, Limits};
use zoneplug_core::{Device, Error, Op, Sector};

/// A disk that any number of threads share. Clones are the same disk.
///
/// The device is closed after the last of its clones and clients is dropped: at once if nothing is in flight,
/// otherwise by the reactor when that is done. The reactor waits for commands that were given up as long as their
/// timeout was.
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
    pub(super) shared: Handle,
    /// The meaning of the specification that the disk was opened from, if there was one.
    #[cfg_attr(
        not(any(feature = "iscsi", feature = "nvme-tcp", feature = "ublk")),
        allow(dead_code, reason = "servers use it")
    )]
    meaning: Option<Arc<Meaning>>,
    /// The disks in files below this disk.
    #[cfg(feature = "file")]
    pub(super) files: Arc<[Arc<FileDisk>]>,
}

/// The closing of a disk. The thread that drops the last handle makes the last writes to its files; a thread that
/// drops another handle does not wait for that.
#[cfg(feature = "file")]
#[derive(Debug)]
pub struct Closing(Vec<Arc<std::sync::atomic::AtomicBool>>);

#[cfg(feature = "file")]
impl Closing {
    /// Whether nothing more will be written to the disk's files.
    pub fn is_over(&self) -> bool {
        self.0.iter().all(|closed| closed.load(Ordering::Acquire))
    }
}

impl HostedDisk {
    /// Opens `device` as a disk. With [`DiskConfig::timeout`] commands have deadlines, and a client that waits learns
    /// when one has passed, also while it sleeps. If a queue of the device panics, that queue is dead and the rest of
    /// the disk goes on, whatever [`DiskConfig::survive_panics`] says. The setting counts only for a device that
    /// [never panics](Device::never_panics).
    pub fn open(device: Arc<dyn Device>, config: DiskConfig) -> Result<HostedDisk, Error> {
        let survive_panics = config.survive_panics || !device.never_panics();
        let config = DiskConfig { survive_panics, ..config };
        let deadlines = config.timeout.is_some();
        let clock = Clock::start();
        check_zone_memory(device.geometry().memory())?;
        let disk = Disk::open(device, config, &mut |_| clock.now())?;
        Ok(HostedDisk {
            shared: Handle::first(disk, clock, deadlines),
            meaning: None,
            #[cfg(feature = "file")]
            files: Arc::new([]),
        })
    }

    /// Opens the device of a specification, with its attributes (see [`crate::DiskSpec`]).
    pub fn open_spec(spec: &str) -> Result<HostedDisk, Error> {
        Self::open_named(DiskSpec::parse(spec)?)
    }

    /// Opens the disk in a file, or a drive, for writing. The path may have any characters. For other ways of opening
    /// and for layers see [`Specification`](crate::Specification).
    ///
    /// ```
    /// # #[cfg(feature = "file")] {
    /// use zoneplug_host::{HostedDisk, file};
    /// # let dir = std::env::temp_dir().join(format!("zoneplug-path-{}", std::process::id()));
    /// # std::fs::create_dir_all(&dir).unwrap();
    /// let path = dir.join("a,b.zbd");
    /// // The second argument `false`: no file is replaced.
    /// file::create(&path, &file::CreateOptions { zones: Some(4), ..Default::default() }, false).unwrap();
    /// let disk = HostedDisk::open_path(&path).unwrap();
    /// assert_eq!(disk.geometry().nr_zones(), 4);
    /// # drop(disk);
    /// # std::fs::remove_dir_all(&dir).unwrap();
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// A path that is not UTF-8, and the errors of opening the file or drive.
    pub fn open_path(path: impl AsRef<Path>) -> Result<HostedDisk, Error> {
        Self::open_named(Specification::of_path(path.as_ref())?.open()?)
    }

    /// Opens the disk of a parsed specification. The disk remembers which files, drives and keys were opened, so that
    /// a server knows what it serves even if other files are at their paths later.
    ///
    /// ```
    /// # use zoneplug_host::{DiskSpec, HostedDisk};
    /// let mut spec = DiskSpec::parse("mem,zones=4,zone-size=1M").unwrap();
    /// spec.config.zoned_qd1_writes = Some(true);
    /// let disk = HostedDisk::open_named(spec).unwrap();
    /// assert_eq!(disk.disk().attribute("zoned_qd1_writes").unwrap(), "1");
    /// ```
    pub fn open_named(spec: DiskSpec) -> Result<HostedDisk, Error> {
        let disk = Self::open(spec.device, spec.config)?;
        Ok(HostedDisk {
            meaning: Some(Arc::new(spec.meaning)),
            #[cfg(feature = "file")]
            files: spec.files.into(),
            ..disk
        })
    }

    /// Whether `client`, which has outlived an earlier server, must be told that acknowledged writes were lost: the
    /// server then fails its flush, once. See [`FileDisk::owes`].
    #[cfg(any(feature = "iscsi", feature = "nvme-tcp", feature = "ublk"))]
    pub(crate) fn owes(&self, client: u64) -> bool {
        self.files.iter().fold(false, |owes, file| file.owes(client) | owes)
    }

    /// Checks that the files below are still those of this disk. See [`FileDisk::check_file`].
    ///
    /// # Errors
    ///
    /// The first error of one of them.
    ///
    /// ```
    /// let disk = zoneplug_host::HostedDisk::open_spec("mem,zones=4,zone-size=1M").unwrap();
    /// disk.check_files().unwrap();
    /// ```
    #[cfg(feature = "file")]
    pub fn check_files(&self) -> Result<(), Error> {
        self.files.iter().try_for_each(|file| file.check_file())
    }

    /// The change of a file below that a check or a commit has found. Reads nothing.
    #[cfg(feature = "file")]
    pub fn changed_file(&self) -> Option<Error> {
        self.files.iter().find_map(|file| file.changed())
    }

    /// Tells when the disk is closed, after its last handle has gone.
    ///
    /// ```
    /// # use zoneplug_host::HostedDisk;
    /// let disk = HostedDisk::open_spec("mem,zones=4,zone-size=1M").unwrap();
    /// let closing = disk.closing();
    /// drop(disk);
    /// assert!(closing.is_over(), "nothing of it is in a file");
    /// ```
    #[cfg(feature = "file")]
    pub fn closing(&self) -> Closing {
        Closing(self.files.iter().map(|file| file.closed()).collect())
    }

    /// The identities of the disks in files below this disk.
    ///
    /// ```
    /// # use zoneplug_host::HostedDisk;
    /// let disk = HostedDisk::open_spec("mem,zones=4,zone-size=1M").unwrap();
    /// assert_eq!(disk.identities().count(), 0, "a disk in memory has none");
    /// ```
    #[cfg(feature = "file")]
    pub fn identities(&self) -> impl Iterator<Item = crate::file::Identity> {
        self.files.iter().map(|file| file.identity())
    }

    /// Whether the disk stands on files.
    #[cfg(feature = "file")]
    pub fn is_in_files(&self) -> bool {
        !self.files.is_empty()
    }

    #[cfg(any(feature = "iscsi", feature = "nvme-tcp", feature = "ublk"))]
    pub(crate) fn meaning(&self) -> Option<&Arc<Meaning>> {
        self.meaning.as_ref()
    }

    /// The current layout of zones. It is a copy: a [revalidation](HostedDisk::revalidate) may change the layout.
    ///
    /// ```
    /// let disk = zoneplug_host::HostedDisk::open_spec("mem,zones=4,zone-size=1M").unwrap();
    /// let g = disk.geometry();
    /// assert_eq!((g.nr_zones(), g.zone_sectors()), (4, 2048));
    /// ```
    pub fn geometry(&self) -> Geometry {
        self.shared.disk.geometry()
    }

    /// The limits of the device: block sizes, open and active zones. The name of each has its unit.
    pub fn limits(&self) -> Limits {
        self.shared.disk.limits()
    }

    /// Checks the length of an operation, in bytes, before memory is allocated for it, and returns it as the length
    /// of a buffer. The queue makes the other checks. [`BlockingDisk`](crate::BlockingDisk),
    /// [`AsyncDisk`](crate::AsyncDisk) and [`Batch`](crate::Batch) call this before they make a buffer.
    ///
    /// ```
    /// use zoneplug_core::{Op, Sector, Status};
    /// let disk = zoneplug_host::HostedDisk::open_spec("mem,zones=8,zone-size=1M").unwrap();
    /// assert_eq!(disk.check_length(Op::Read, Sector(0), 8 << 20).unwrap(), 8 << 20);
    /// let e = disk.check_length(Op::Write, Sector(0), (4 << 30) - 512).unwrap_err();
    /// assert_eq!(e.status, Status::OutOfRange);
    /// ```
    pub fn check_length(&self, op: Op, sector: Sector, bytes: u64) -> Result<u32, IoError> {
        self.shared.check_length(op, sector, bytes)
    }

    /// The counters of the disk since it was opened.
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

    /// Up to `max` events with numbers above `after`, the oldest first: failed commands, zones that went stale or recovered,
    /// commands that came back late, revalidations. The disk keeps the last
    /// [`EVENTS_KEPT`](zoneplug_core::disk::EVENTS_KEPT). If the first number is above `after + 1`, those in between are
    /// gone. `after` 0: all that are kept.
    ///
    /// ```
    /// use zoneplug_core::{Sector, Status, ZoneNo, disk::EventKind};
    /// use zoneplug_host::{BlockingDisk, HostedDisk};
    ///
    /// let disk = HostedDisk::open_spec("mem,zones=4,zone-size=1M,zone_recovery=client,fault=write/io").unwrap();
    /// let mut io = BlockingDisk::new(&disk).unwrap();
    /// assert!(io.write_from(Sector(2048), &[0; 4096]).is_err());
    /// let events = disk.events(0, 100);
    /// assert_eq!((events[0].kind, events[0].status), (EventKind::Failed, Status::Io));
    /// assert_eq!((events[1].kind, events[1].zone), (EventKind::Stale, Some(ZoneNo(1))));
    /// io.reset(Sector(2048), 2048).unwrap();
    /// assert_eq!(disk.events(events[1].sequence, 100)[0].kind, EventKind::Recovered);
    /// ```
    pub fn events(&self, after: u64, max: usize) -> Vec<Event> {
        let mut events = Vec::new();
        self.shared.disk.events(after, max, &mut events);
        events
    }

    /// Wakes `waker` once, at the next event. Replaces the waker of an earlier call, also of another clone of this
    /// disk. Call this, then [`HostedDisk::events`], then sleep: no event in between is lost.
    ///
    /// ```
    /// use std::{os::fd::AsFd, task::Waker};
    /// # use zoneplug_host::{HostedDisk, WakeFd};
    /// # let disk = HostedDisk::open_spec("mem,zones=4,zone-size=1M").unwrap();
    /// let bell = WakeFd::new().unwrap();
    /// bell.clear();
    /// disk.wake_at_event(&Waker::from(bell.clone()));
    /// assert!(disk.events(0, 100).is_empty());
    /// // Here the program sleeps until `bell.as_fd()` is readable.
    /// ```
    pub fn wake_at_event(&self, waker: &Waker) {
        // The engine wakes while a queue is locked, so the waker is deferred.
        let deferred = DeferredWaker::new(&self.shared.deferred_wakes);
        deferred.set(waker);
        self.shared.disk.wake_at_event(&Waker::from(deferred));
    }

    /// The engine's disk: attributes, the plug dump.
    pub fn disk(&self) -> &Disk {
        &self.shared.disk
    }

    /// Buffers that the adapters have neither given back nor freed, because the device may still use them: those of
    /// operations that ended before their commands did. They are freed when the commands come back (the reactor
    /// checks every 50 ms). Those that are left when the disk is closed are leaked, and counted by
    /// [`leaked_buffers`](crate::leaked_buffers).
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
        self.shared.withheld.sweep(&self.shared.disk);
        self.shared.withheld.count()
    }

    /// A client that holds up to `depth` BIOs and has up to `tags` commands at the device. The first client starts the
    /// disk's reactor thread: if the system refuses a thread, this is an error.
    pub fn open_client(&self, depth: u32, tags: u16) -> Result<Client, Error> {
        reactor::start(&self.shared)?;
        let waker = Waker::from(self.shared.reactor.clone());
        let queue = self.shared.disk.open_queue(QueueConfig { depth, tags, waker })?;
        let queue = QueueOwner::new(queue);
        lock(&self.shared.queues).push(queue.shared().clone());
        self.shared.version.fetch_add(1, Ordering::Release);
        Ok(Client::new(self.shared.clone(), queue, depth))
    }

    /// Freezes the disk: waits until nothing is in flight, and keeps it so until the result is dropped. BIOs that are
    /// submitted meanwhile stay with their clients.
    ///
    /// # Errors
    ///
    /// [`Busy`](zoneplug_core::ErrorKind::Busy) if no command ends for the drain limit, 30 s unless
    /// [`Disk::set_drain_limit`] says otherwise: the device has lost a command. The disk then goes on. The same holds
    /// for [`HostedDisk::revalidate`] and [`HostedDisk::set_attribute`].
    pub fn freeze(&self) -> Result<Frozen, Error> {
        let mut freeze = self.shared.disk.begin_freeze();
        let mut pauses = Pauses::default();
        while !freeze.poll() {
            self.run_all();
            if let Some(e) = freeze.overdue(self.shared.clock.now()) {
                drop(freeze);
                self.shared.deferred_wakes.call();
                return Err(e);
            }
            pauses.pause();
        }
        Ok(Frozen { freeze: Some(freeze), shared: self.shared.clone() })
    }

    /// Reads the zones of the device again. The disk is frozen meanwhile.
    pub fn revalidate(&self) -> Result<(), Error> {
        // The reactor takes the queue of a report that does not come back.
        reactor::start(&self.shared)?;
        let mut queue = self.shared.disk.open_polled_queue(1, 1)?;
        let mut revalidation = self.shared.disk.revalidate();
        let mut pauses = Pauses::default();
        loop {
            if let Some(result) = revalidation.poll(&mut queue, self.shared.clock.now()) {
                drop(revalidation);
                if queue.late() > 0 {
                    // The report has not come back. If the queue were dropped now, it would become the disk's orphan
                    // and slow down all clients.
                    self.shared.adopt(queue);
                }
                self.shared.deferred_wakes.call();
                return result;
            }
            self.run_all();
            pauses.pause();
        }
    }

    /// Changes an attribute, and waits until it has taken effect. If that needs a drained disk, freezes the disk
    /// meanwhile.
    ///
    /// ```
    /// let disk = zoneplug_host::HostedDisk::open_spec("null,zones=4,zone-size=1M").unwrap();
    /// let client = disk.open_client(16, 8).unwrap();
    /// disk.set_attribute("zoned_qd1_writes", "1").unwrap();
    /// assert_eq!(disk.disk().attribute("zoned_qd1_writes").unwrap(), "1");
    /// ```
    pub fn set_attribute(&self, name: &str, value: &str) -> Result<(), Error> {
        let mut change = self.shared.disk.change_attribute(name, value)?;
        let (mut result, mut pauses) = (Ok(()), Pauses::default());
        while !change.poll() {
            self.run_all();
            if let Some(e) = change.overdue(self.shared.clock.now()) {
                result = Err(e);
                break;
            }
            pauses.pause();
        }
        drop(change);
        self.shared.deferred_wakes.call();
        result
    }

    fn run_all(&self) {
        let queues = lock(&self.shared.queues).clone();
        let now = self.shared.now();
        for queue in queues {
            if let Some(mut locked) = queue.try_lock() {
                locked.poll_for_owner(now);
            }
        }
        self.shared.deferred_wakes.call();
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
        self.shared.deferred_wakes.call();
    }
}
