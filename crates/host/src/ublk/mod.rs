//! ublk: serves a disk as a zoned block device `/dev/ublkbN` of this machine's Linux (6.6 or newer).
//!
//! | file | what it owns |
//! | --- | --- |
//! | `mod.rs` | the life of a device: making, taking over, removing |
//! | `error.rs` | the errors, with fields for programs |
//! | `control.rs` | `/dev/ublk-control` |
//! | `queue.rs` | the thread of a queue |
//! | `driver.rs`, `queue_ring.rs` | what that thread asks of the kernel's driver; its ring |
//! | `busy_poll.rs` | when such a thread polls before it sleeps |
//! | `request.rs`, `params.rs` | requests as BIOs; the parameters of a device |
//! | `takeover/` | what a new server needs to continue a dead server's device |
//! | `in_use.rs` | who uses a device, and what is written before it is removed |
//! | `leave.rs` | how the queues are told to leave a device to the next server |
//! | `options.rs` | how a device is served |
//! | `udev.rs` | whether udev watches a block device |
//! | `abi.rs`, `sys.rs` | the driver's numbers and structures; system calls |
//!
//! `zoneplug serve` uses this module. Order, merging and checks of zones are the disk's.
//!
//! This module uses the driver directly. Each queue is a thread with a ring and a client of the disk, and sleeps in
//! the ring for both the kernel's requests and the disk's completions. (A crate for ublk would bring an executor, and
//! rules of its own for sleeping.) Data is copied once, by pread and pwrite on `/dev/ublkcN` (`UBLK_F_USER_COPY`,
//! which zoned devices need: U1).

mod abi;
mod busy_poll;
mod control;
mod driver;
mod error;
mod in_use;
mod leave;
mod options;
mod params;
mod queue;
mod queue_ring;
mod request;
mod sys;
mod takeover;
#[doc(hidden)]
pub mod testing;
mod udev;

use crate::recovery::bases::Bases;
use crate::runtime::hosted::HostedDisk;
use crate::served::latency::LatencyLog;
use crate::served::timing::INTERVAL;
use crate::served::{Counters, ServedCounters};
use crate::spec::Specification;
use abi::DevInfo;
use control::Control;
pub use error::{UblkError, WaitReason};
pub use in_use::{InUse, in_use, sync_before_stop};
use leave::{Leave, LeaveStep};
pub use options::UblkOptions;
use queue::UblkShared;
use request::Slice;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use takeover::identity::DeviceIdentity;
use takeover::journal_file::{self, JournalFile, Served};
use takeover::replay;
use takeover::search::{self, Machine, Patience};
use zoneplug_core::poison::lock;
use zoneplug_core::zone::{Geometry, Limits};
use zoneplug_core::{Error, ErrorKind, ZoneNo};
use zoneplug_recovery::DiskRecovery;

/// How long to wait for a dead server's device to become free, and for the files of a new device to appear.
const DEVICE_LIMIT: Duration = Duration::from_secs(10);
/// How long udev and similar programs may have a device open that is to be removed.
const OPEN_FOR_A_MOMENT: Duration = Duration::from_secs(1);
/// The highest number of a device: the driver has 2^20 minor numbers (`UBLK_MINORS` of `drivers/block/ublk_drv.c`).
pub const MAX_ID: u32 = (1 << 20) - 1;
/// The interval of these checks.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The zones of each device that a disk is served as. Linux takes at most 16,384 zones in a ublk device; the device
/// mapper can join several (`linear`).
///
/// ```
/// use zoneplug_core::zone::Geometry;
/// let disk = Geometry::new(40_000, 0x800, 0x800).unwrap();
/// assert_eq!(zoneplug_host::ublk::slices(&disk), [0..16_384, 16_384..32_768, 32_768..40_000]);
/// ```
pub fn slices(geometry: &Geometry) -> Vec<Range<u32>> {
    params::slices(geometry)
}

/// Checks that Linux takes a disk of this layout as ublk devices. The error has a way out.
///
/// ```
/// use zoneplug_core::zone::{Geometry, Limits};
/// let disk = Geometry::new(8, 0x600, 0x600).unwrap();
/// let e = zoneplug_host::ublk::check(&disk, &Limits::default()).unwrap_err();
/// assert!(e.what_to_try().unwrap().contains("po2@"));
/// ```
pub fn check(geometry: &Geometry, limits: &Limits) -> Result<(), Error> {
    let mut all = slices(geometry).into_iter();
    all.try_for_each(|zones| params::of(geometry, zones, limits, u32::MAX).map(drop))
}

/// The kernel's ublk driver: makes block devices.
///
/// ```
/// // Where the driver is not there, the error says what is missing.
/// if let Err(e) = zoneplug_host::ublk::Ublk::open() {
///     println!("{e}");
/// }
/// ```
#[derive(Debug, Clone)]
pub struct Ublk {
    control: Arc<Control>,
}

impl Ublk {
    /// Opens the control device. The error names what is missing. Call this before opening the disks to be served:
    /// this thread, and those that it starts later, no longer write out pages when memory is short.
    pub fn open() -> Result<Ublk, Error> {
        let control = Arc::new(Control::open()?);
        sys::never_write_out_pages();
        Ok(Ublk { control })
    }

    /// The numbers of the devices that a dead server of `spec` has left, one for each of its [`slices`], with numbers
    /// from `options.id` on. Fails if a device waits for another copy of the disk, or for other layers, and so must
    /// not be taken over. Call this before the disk is opened for writing: the disk's file counts each opening, and
    /// the count distinguishes it from an older copy.
    pub fn waiting(
        &self,
        spec: &Specification,
        geometry: &Geometry,
        options: &UblkOptions,
    ) -> Result<Vec<u32>, Error> {
        let mut found = Vec::new();
        if spec.is_volatile() {
            return Ok(found);
        }
        let bases = Bases::at_paths_of(spec);
        let parts = slices(geometry);
        for (part, nth) in parts.iter().zip(0..) {
            let options = UblkOptions { id: options.id.map(|id| id + nth), ..options.clone() };
            let identity = bases.identity(part, &parts);
            // A device that is still served is not an error here: the disk's lock and `serve` handle it.
            let patience = Patience::new(Duration::ZERO);
            let machine = Machine::new(&self.control);
            let info = search::abandoned(&machine, &identity, 0, &options, patience)?;
            found.extend(info.map(|info| info.dev_id));
        }
        Ok(found)
    }

    /// Serves `disk`, which was opened from `spec`. Returns when the block device exists. Calls `ended` from another
    /// thread when the device is gone, for any reason.
    ///
    /// If a dead server has left a device of the same specification that may be taken over, takes that device over,
    /// and Linux continues with it.
    pub fn serve(
        &self,
        disk: &HostedDisk,
        spec: &Specification,
        options: &UblkOptions,
        ended: impl Fn() + Clone + Send + 'static,
    ) -> Result<UblkDisk, Error> {
        let (g, limits) = (disk.disk().geometry(), disk.disk().limits());
        let append = limits.visible_append_sectors(g.zone_sectors());
        let (identity, shown) = what_is_shown(disk, spec, &g, options);
        let params = params::of(&g, shown.clone(), &limits, append)?;
        let outlives = !spec.is_volatile();
        let recovery = options.recovery && outlives;
        let own = if limits.read_only { 0 } else { identity.files };
        let machine = Machine::new(&self.control);
        let find =
            || search::abandoned(&machine, &identity, own, options, Patience::new(DEVICE_LIMIT));
        if outlives && let Some(info) = find()? {
            let served = Served { shown, disks: identity.now };
            return self.take_over(disk, options, &params, info, served, ended);
        }
        let flags = abi::F_ZONED
            | abi::F_USER_COPY
            | abi::F_CMD_IOCTL_ENCODE
            | if recovery { abi::F_USER_RECOVERY | abi::F_USER_RECOVERY_REISSUE } else { 0 };
        let (name, more) = if recovery { identity.words() } else { (0, [0; 2]) };
        let info = self.control.add(DevInfo {
            nr_hw_queues: options.queues.max(1),
            queue_depth: options.depth.clamp(1, abi::MAX_QUEUE_DEPTH),
            max_io_bytes: params.max_sectors << 9,
            dev_id: options.id.unwrap_or(u32::MAX),
            flags,
            identity: name,
            more,
            ..DevInfo::default()
        })?;
        let id = info.dev_id;
        let kept = self.keeps(name, more, id);
        let started = kept.and_then(|()| self.control.set_params(id, &params)).and_then(|()| {
            let records = options.records.as_deref().filter(|_| recovery);
            let served = Served { shown: shown.clone(), disks: identity.now };
            let record = JournalFile::of_new(disk, records, &info, served);
            let device = DriverDevice { info, shown, record, replay: None };
            let disk = self.begin(disk, options, &params, device, ended)?;
            self.control.start(id)?;
            Ok(disk)
        });
        if started.is_err() {
            // The threads end with the device. The first error is more useful than one from these calls.
            let _ = self.control.stop(id);
            let _ = self.control.delete(id);
        }
        started
    }

    /// Checks that the driver keeps the words by which the device is recognised.
    fn keeps(&self, identity: u64, more: [u64; 2], id: u32) -> Result<(), Error> {
        match self.control.info(id)? {
            Some(info) if (info.identity, info.more) == (identity, more) => Ok(()),
            _ => Err(UblkError::KeepsNoIdentity.into()),
        }
    }

    /// Takes over the device of a dead server.
    fn take_over(
        &self,
        disk: &HostedDisk,
        options: &UblkOptions,
        params: &abi::Params,
        info: DevInfo,
        served: Served,
        ended: impl Fn() + Clone + Send + 'static,
    ) -> Result<UblkDisk, Error> {
        let id = info.dev_id;
        let known = self.control.params(id)?;
        let shape = |p: &abi::Params| (p.dev_sectors, p.zone_sectors, p.block_shift);
        if shape(&known) != shape(params) {
            return Err(UblkError::OtherLayout { id }.into());
        }
        let end = Instant::now() + DEVICE_LIMIT;
        while let Err(e) = self.control.start_recovery(id) {
            if e.kind() != ErrorKind::Busy || Instant::now() >= end {
                return Err(e);
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        // From here on no request of the last server is in flight.
        let found = replay::find(disk, served.shown.clone())?;
        let records = options.records.as_deref();
        let shown = served.shown.clone();
        let record = JournalFile::of_last(disk, records, &info, &found, served)?;
        let most = replay::most_in_flight(&info);
        let replay = replay::recovery(disk, &found, record.of_last_server(), most);
        let device = DriverDevice { info, shown, record, replay: Some(replay) };
        let device = self.begin(disk, options, &known, device, ended)?;
        match self.control.end_recovery(id) {
            Ok(()) => Ok(device),
            Err(e) => {
                device.abandon();
                Err(e)
            }
        }
    }

    /// Opens `/dev/ublkcN` and starts the threads.
    fn begin(
        &self,
        disk: &HostedDisk,
        options: &UblkOptions,
        params: &abi::Params,
        device: DriverDevice,
        ended: impl Fn() + Clone + Send + 'static,
    ) -> Result<UblkDisk, Error> {
        let DriverDevice { info, shown, record, replay } = device;
        let recovered = replay.is_some();
        let timed = if options.latencies { info.nr_hw_queues } else { 0 };
        #[cfg(feature = "probes")]
        if recovered && zoneplug_probe::takeover::is_watched() {
            zoneplug_probe::takeover::fire(info.dev_id.into(), info.nr_hw_queues.into());
        }
        let char_dev = Arc::new(open_char_dev(info.dev_id)?);
        let shared = Arc::new(UblkShared {
            disk: disk.clone(),
            params: *params,
            slice: slice(&disk.disk().geometry(), shown),
            depth: info.queue_depth,
            tags: options.tags.unwrap_or(info.queue_depth).min(info.queue_depth),
            counters: (0..info.nr_hw_queues).map(|_| Counters::default()).collect(),
            latencies: (0..timed)
                .map(|_| Arc::new(LatencyLog::new(params.zone_sectors, INTERVAL)))
                .collect(),
            failure: Mutex::default(),
            replay,
            journal: record.journal,
            leave: Leave::default(),
            client: journal_file::instance(info.dev_id).unwrap_or(u64::from(info.dev_id) + 1),
        });
        if !recovered {
            // A new device has no client that an earlier server has answered.
            disk.owes(shared.client);
        }
        let mut device = UblkDisk {
            control: self.control.clone(),
            id: info.dev_id,
            recovered,
            outlives: info.flags & abi::F_USER_RECOVERY != 0,
            unrecorded: record.unknown,
            threads: Vec::new(),
            shared: Some(shared.clone()),
        };
        for q in 0..info.nr_hw_queues {
            match queue::spawn(&shared, &char_dev, q, ended.clone()) {
                Ok(thread) => device.threads.push(thread),
                // Dropping `device` ends the threads that were started for a new device.
                Err(e) => {
                    if recovered {
                        device.abandon();
                    }
                    return Err(e);
                }
            }
        }
        Ok(device)
    }

    /// Removes a device that a dead server has left, even one of another program. Also removes its journal in the
    /// directory of [`UblkOptions::records`].
    pub fn remove(&self, id: u32, records: Option<&Path>) -> Result<(), Error> {
        let machine = Machine::new(&self.control);
        let Some(info) = search::once_noticed(&machine, id, Patience::new(Duration::ZERO))? else {
            return Err(UblkError::NoDevice { id }.into());
        };
        if info.state == abi::S_DEV_LIVE && info.pid > 0 {
            return Err(UblkError::InUse { id, process: info.pid }.into());
        }
        if info.state != abi::S_DEV_DEAD {
            self.control.stop(id)?;
        }
        // The journal goes first: the next device may get this number, and its server may make a journal.
        if let Some(directory) = records {
            journal_file::remove(directory, id);
        }
        self.control.delete(id)
    }
}

/// Whether udev watches a block device. If so, correct io_uring writes to it may fail (docs/ublk.md). Waits until udev has
/// seen the device, but not after `end`.
pub fn is_watched(device: &Path, end: Instant) -> bool {
    let dev = std::fs::metadata(device).map_or(0, |m| m.rdev());
    udev::watches(Path::new(udev::RUN), (libc::major(dev), libc::minor(dev)), end)
}

/// A device that the driver has, and the state from which this server goes on.
struct DriverDevice {
    info: DevInfo,
    /// The zones of the disk that the device shows.
    shown: Range<u32>,
    record: JournalFile,
    /// `None`: the device is new.
    replay: Option<DiskRecovery>,
}

/// The identity of a device, and the zones that it shows.
fn what_is_shown(
    disk: &HostedDisk,
    spec: &Specification,
    g: &Geometry,
    options: &UblkOptions,
) -> (DeviceIdentity, Range<u32>) {
    let shown = options.zones.clone().unwrap_or(0..params::whole_zones(g));
    (Bases::held(disk, spec).identity(&shown, &params::slices(g)), shown)
}

/// The zones of a device as sectors.
fn slice(g: &Geometry, shown: Range<u32>) -> Slice {
    let start = g.zone_start(ZoneNo(shown.start)).0;
    let all = shown == (0..params::whole_zones(g));
    Slice { start, resets: (!all).then(|| params::resets(g, shown)) }
}

/// Opens `/dev/ublkcN`. The file may take a moment to appear and to get its owner.
fn open_char_dev(id: u32) -> Result<File, Error> {
    let path = format!("/dev/ublkc{id}");
    let end = Instant::now() + DEVICE_LIMIT;
    loop {
        match File::options().read(true).write(true).open(&path) {
            Ok(file) => return Ok(file),
            Err(e) if e.kind() == io::ErrorKind::NotFound && Instant::now() < end => {
                std::thread::sleep(POLL_INTERVAL);
            }
            Err(e) => {
                return Err(Error::new(ErrorKind::Io, format!("{path} cannot be opened: {e}"))
                    .hint("run it as root, with /dev as the kernel makes it (devtmpfs)")
                    .source(e));
            }
        }
    }
}

/// A block device that this process serves until it is stopped or dropped.
#[derive(Debug)]
pub struct UblkDisk {
    control: Arc<Control>,
    id: u32,
    recovered: bool,
    outlives: bool,
    /// Why the last server's appends are unknown, or why this server's will be unknown to the next.
    unrecorded: Option<String>,
    threads: Vec<JoinHandle<()>>,
    /// `None` after the device was stopped.
    shared: Option<Arc<UblkShared>>,
}

/// Why [`UblkDisk::stop_unless_in_use`] did not remove the device.
#[derive(Debug)]
pub enum StopFailed {
    /// The device is in use, and still served.
    InUse(UblkDisk, InUse),
    /// The removal has failed.
    Error(Error),
}

impl std::fmt::Debug for UblkShared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UblkShared").field("depth", &self.depth).finish_non_exhaustive()
    }
}

impl UblkDisk {
    /// The number N of `/dev/ublkbN`.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// The path of the block device.
    pub fn path(&self) -> PathBuf {
        PathBuf::from(format!("/dev/ublkb{}", self.id))
    }

    /// Whether the device was taken over from a dead server.
    pub fn recovered(&self) -> bool {
        self.recovered
    }

    /// Why zone appends that were in flight when the last server died are appended again. For a new device: why those
    /// of this server would be. `None` if such appends are looked for, or if no directory for journals was given.
    pub fn unrecorded(&self) -> Option<&str> {
        self.unrecorded.as_deref()
    }

    /// Number of queues.
    pub fn queues(&self) -> usize {
        self.threads.len()
    }

    /// Whether all queue threads run. The callback `ended` is called when one ends.
    pub fn is_served(&self) -> bool {
        self.threads.iter().all(|t| !t.is_finished())
    }

    /// Why a queue has ended although the device has not. Requests to it will not be answered, so the process should
    /// end; Linux then sees the device without a server.
    pub fn failure(&self) -> Option<String> {
        self.shared.as_ref().and_then(|s| lock(&s.failure).clone())
    }

    /// The counters of the device.
    pub fn counters(&self) -> ServedCounters {
        let logs = self.shared.iter().flat_map(|s| &s.latencies).map(|log| &**log);
        let logs: Vec<&LatencyLog> = logs.collect();
        Counters::sum(self.shared.iter().flat_map(|s| &s.counters), &logs)
    }

    /// Makes Linux write out the file systems that are mounted on the device, and its page cache. Returns
    /// the mount points. Call it before [`UblkDisk::stop`], while the device is served.
    pub fn sync_before_stop(&self) -> Vec<PathBuf> {
        sync_before_stop(&self.path())
    }

    /// Removes the block device after the requests in flight have ended. Does not flush the disk; a client of the
    /// disk does that ([`Op::Flush`](zoneplug_core::Op)).
    pub fn stop(mut self) -> Result<(), Error> {
        self.end()
    }

    /// Removes the block device like [`UblkDisk::stop`], unless it is in use: then returns it unchanged, with its
    /// user. Before Linux 7.0, notices file systems, the device mapper and programs that opened it exclusively
    /// (`O_EXCL`), but no other programs that have it open.
    pub fn stop_unless_in_use(mut self) -> Result<(), StopFailed> {
        if let Some(by) = in_use(&self.path()) {
            return Err(StopFailed::InUse(self, by));
        }
        let end = Instant::now() + OPEN_FOR_A_MOMENT;
        loop {
            match self.control.try_stop(self.id) {
                Some(Err(e)) if e.kind() == ErrorKind::Busy && Instant::now() < end => {
                    std::thread::sleep(POLL_INTERVAL);
                }
                Some(Err(e)) if e.kind() == ErrorKind::Busy => {
                    return Err(StopFailed::InUse(self, InUse::Open));
                }
                // The device was stopped, or the kernel lacks the command and `end` must stop it.
                _ => return self.end().map_err(StopFailed::Error),
            }
        }
    }

    /// Whether Linux keeps the device when this process ends, and another server can take it over.
    pub fn outlives(&self) -> bool {
        self.outlives
    }

    /// Makes the queues answer the requests that they have begun, and begin no others. Call
    /// [`UblkDisk::leave_device`] or [`UblkDisk::stay`] next.
    pub fn ask_to_leave(&self) {
        self.shared.iter().for_each(|shared| shared.leave.tell(LeaveStep::Drain));
    }

    /// Waits until the queues have answered the requests that they had begun when they were asked to leave. False:
    /// `end` has come first.
    pub fn drains_until(&self, end: Instant) -> bool {
        self.shared.iter().all(|shared| shared.leave.wait_drained(end))
    }

    /// Takes [`UblkDisk::ask_to_leave`] back: the queues begin the requests that have come meanwhile.
    pub fn stay(&self) {
        self.shared.iter().for_each(|shared| shared.leave.tell(LeaveStep::Serve));
    }

    /// Leaves the device to the next server. Answers the requests that were begun, and waits ten seconds for them at
    /// most. Linux sends all others to the next server; those that are in flight then, once this process has ended.
    pub fn leave_device(mut self) {
        self.ask_to_leave();
        if let Some(shared) = self.shared.take() {
            shared.leave.wait_over();
            shared.leave.tell(LeaveStep::End);
        }
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }

    /// Leaves the device to the next server without waiting. The queue threads run until this process ends, which
    /// should be soon; Linux then keeps the device if it can be taken over.
    pub fn abandon(mut self) {
        self.shared = None;
        self.threads.clear();
    }

    fn end(&mut self) -> Result<(), Error> {
        let failure = self.failure();
        let Some(shared) = self.shared.take() else { return Ok(()) };
        if let Some(why) = failure {
            // Stopping the device would wait for answers that never come.
            self.threads.clear();
            return Err(Error::new(ErrorKind::Io, format!("/dev/ublkb{}: {why}", self.id))
                .hint("start it again; dmesg has what the kernel says of it"));
        }
        let stopped = self.control.stop(self.id);
        if stopped.is_err() && self.is_served() {
            // The threads would wait for ever.
            return stopped;
        }
        // The device number becomes free when the last thread closes the character device.
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
        if let Some(journal) = &shared.journal
            && stopped.is_ok()
        {
            journal.remove();
        }
        stopped.and_then(|()| self.control.delete(self.id))
    }
}

impl Drop for UblkDisk {
    fn drop(&mut self) {
        let _ = self.end();
    }
}
