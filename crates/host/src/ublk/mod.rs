//! ublk: a disk of the layer as a zoned block device `/dev/ublkbN` of this machine's Linux (6.6 or newer).
//!
//! | file | what it owns |
//! | --- | --- |
//! | `mod.rs` | devices from start to end: making, taking over, removing |
//! | `control.rs` | `/dev/ublk-control` |
//! | `queue.rs` | the thread of a queue |
//! | `linger.rs` | when such a thread looks for requests before it sleeps |
//! | `counters.rs` | what a device has done |
//! | `request.rs`, `params.rs` | requests and BIOs; what Linux is told of a disk |
//! | `mark.rs` | by what a device is known again after its server has died |
//! | `replay.rs` | requests that Linux sends again after a server has died |
//! | `told.rs`, `record.rs` | which appends were acknowledged, for the next server; the file of that |
//! | `untold.rs` | what it finds of the other appends |
//! | `settle.rs` | what is written before a device goes |
//! | `model.rs` | a test: servers that are killed, one after the other, against who owns what |
//! | `udev.rs` | whether udev watches a block device |
//! | `abi.rs`, `sys.rs` | the driver's numbers and structures; system calls |
//!
//! Called by `zoneplug serve`. It never orders, merges or checks anything about zones: that is the disk's.
//!
//! The driver is spoken to directly: each queue is a thread with a ring and a client of the disk, and sleeps in the ring for both,
//! the kernel's requests and the disk's completions. (A crate for it would bring an executor and its own idea of who waits
//! for what.) Data move by pread and pwrite on `/dev/ublkcN` (`UBLK_F_USER_COPY`, which zoned disks need: U1), once each.

mod abi;
mod busy_poll;
mod control;
mod counters;
mod params;
mod queue;
mod request;
mod sync_before_stop;
mod sys;
mod takeover;
#[doc(hidden)]
pub mod testing;
mod udev;

use crate::hosted::HostedDisk;
use crate::lane::lock;
use abi::DevInfo;
use control::Control;
pub use counters::UblkCounters;
use queue::Shared;
use request::Slice;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
pub use sync_before_stop::sync_before_stop;
pub use takeover::identity::outlives_its_server;
use takeover::identity::{Bases, Identity, Match, refusal, waits};
use takeover::journal_file::{self, JournalFile, Served};
use takeover::replay::{self, Replay};
use zoneplug_core::zone::Geometry;
use zoneplug_core::{Error, ErrorKind, ZoneNo};

/// How long a dead server's device may take to be free, and a new one's files to appear.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often that is looked for.
const LOOK: Duration = Duration::from_millis(20);

/// How a disk is served.
#[derive(Debug, Clone)]
pub struct UblkOptions {
    /// The number N of `/dev/ublkbN`; the next free one if not given.
    pub id: Option<u32>,
    /// Queues, each with a thread. Linux makes no more of them than it has processors.
    pub queues: u16,
    /// Requests of a queue.
    pub depth: u16,
    /// Commands of a queue at the device, if they are to be fewer than `depth`.
    pub tags: Option<u16>,
    /// Whether Linux keeps the device when this process dies, for one that is started again.
    pub recovery: bool,
    /// A directory in memory, such as one in `/run`, for what the next server is to know of zone appends if this one is killed:
    /// a file for each device that can be taken over. Servers that follow each other must be given the same. Without it, and where
    /// it is not in memory, appends that were in flight are appended again.
    pub records: Option<PathBuf>,
    /// Take over a device whose disk was moved to another file since its server died, as to another file system. Only who moved it
    /// knows that it is no copy.
    pub moved: bool,
    /// The zones that the device shows, which is one of [`slices`]; all of them if not given.
    pub zones: Option<Range<u32>>,
}

impl Default for UblkOptions {
    /// Four queues, or as many as there are processors, of 128 requests.
    fn default() -> Self {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        UblkOptions {
            id: None,
            queues: cpus.min(4) as u16,
            depth: 128,
            tags: None,
            recovery: true,
            records: None,
            moved: false,
            zones: None,
        }
    }
}

/// The zones of each device that a disk has to be served as: Linux takes no more than 16,384 in one of ublk. The device mapper joins
/// several to one (`linear`).
///
/// ```
/// use zoneplug_core::zone::Geometry;
/// let disk = Geometry::new(40_000, 0x800, 0x800).unwrap();
/// assert_eq!(zoneplug_host::ublk::slices(&disk), [0..16_384, 16_384..32_768, 32_768..40_000]);
/// ```
pub fn slices(geometry: &Geometry) -> Vec<Range<u32>> {
    params::slices(geometry)
}

/// The kernel's side: makes block devices.
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
    /// Opens the control device, and says what is missing where that does not work. To be called before the disks are opened that
    /// are to be served: this thread, and those that it starts from then on, no longer write out pages when memory is short.
    pub fn open() -> Result<Ublk, Error> {
        let control = Arc::new(Control::open()?);
        sys::never_write_out_pages();
        Ok(Ublk { control })
    }

    /// The numbers of the devices that a dead server of `spec` has left, of one device for each of its [`slices`], with numbers from
    /// `options.id` on; an error if there is one that must not be taken over, because it waits for another copy of the disk or other
    /// layers. To be asked before the disk is opened for
    /// writing: each opening is counted in its file, and tells it from an older copy.
    pub fn waiting(
        &self,
        spec: &str,
        geometry: &Geometry,
        options: &UblkOptions,
    ) -> Result<Vec<u32>, Error> {
        let mut found = Vec::new();
        if !outlives_its_server(spec) {
            return Ok(found);
        }
        let bases = Bases::look(spec);
        let parts = slices(geometry);
        for (part, nth) in parts.iter().zip(0..) {
            let options = UblkOptions { id: options.id.map(|id| id + nth), ..options.clone() };
            let identity = bases.identity(spec, part, &parts);
            // One that is served still is left to the disk's lock, and to `serve`.
            let info = self.abandoned(&identity, 0, &options, Duration::ZERO)?;
            found.extend(info.map(|info| info.dev_id));
        }
        Ok(found)
    }

    /// Serves `disk`, which was opened from `spec`: returns when the block device is there. `ended` is called from a thread of
    /// its own when the device is gone, however that came.
    ///
    /// A device of the same specification whose server has died is taken over, if it may be: then Linux goes on with it.
    pub fn serve(
        &self,
        disk: &HostedDisk,
        spec: &str,
        options: &UblkOptions,
        ended: impl Fn() + Clone + Send + 'static,
    ) -> Result<UblkDisk, Error> {
        let (g, limits) = (disk.disk().geometry(), disk.disk().limits());
        let append = limits.visible_append_sectors(g.zone_sectors());
        let (identity, shown) = what_is_shown(spec, &g, options);
        let params = params::of(&g, shown.clone(), &limits, append)?;
        let outlives = outlives_its_server(spec);
        let recovery = options.recovery && outlives;
        let own = if limits.read_only { 0 } else { identity.files };
        if outlives && let Some(info) = self.abandoned(&identity, own, options, PATIENCE)? {
            let served = Served { shown, left: identity.left };
            return self.take_over(disk, options, &params, (info, served), ended);
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
        let kept = self.keeps((name, more), id);
        let started = kept.and_then(|()| self.control.set_params(id, &params)).and_then(|()| {
            let records = options.records.as_deref().filter(|_| recovery);
            let served = Served { shown: shown.clone(), left: identity.left };
            let record = JournalFile::of_new(disk, records, &info, served);
            let disk = self.begin(disk, options, &params, (info, shown), (record, None), ended)?;
            self.control.start(id)?;
            Ok(disk)
        });
        if started.is_err() {
            // Its threads have ended or end with this; what the error says is more than what this could say.
            let _ = self.control.stop(id);
            let _ = self.control.delete(id);
        }
        started
    }

    /// Whether the driver keeps by what a device is known again.
    fn keeps(&self, (identity, more): (u64, [u64; 2]), id: u32) -> Result<(), Error> {
        match self.control.info(id)? {
            Some(info) if (info.identity, info.more) == (identity, more) => Ok(()),
            _ => Err(Error::new(
                ErrorKind::NotSupported,
                "this kernel's ublk does not keep what another server knows a disk by",
            )
            .hint("--no-recovery: the device goes when its server dies")),
        }
    }

    /// The device that a dead server of what `mark` says has left, if there is one. `own`: how often this process has opened its
    /// files. `patience`: how long a device may take that has a server still.
    fn abandoned(
        &self,
        identity: &Identity,
        own: u64,
        options: &UblkOptions,
        patience: Duration,
    ) -> Result<Option<DevInfo>, Error> {
        let end = Instant::now() + patience;
        let mut against = None;
        for id in control::device_numbers() {
            while let Some(info) = self.control.info(id)? {
                if info.flags & abi::F_USER_RECOVERY == 0 {
                    break;
                }
                let left = journal_file::left_by_last(options.records.as_deref(), id);
                let is = match identity.compare(&info, left.as_ref(), own) {
                    Match::OtherPlace | Match::Unsaid if options.moved => Match::Same,
                    is => is,
                };
                match info.state {
                    _ if is == Match::Other => break,
                    abi::S_DEV_QUIESCED if is == Match::Same && options.recovery => {
                        if options.id.is_none_or(|wish| wish == id) {
                            return Ok(Some(info));
                        }
                        return Err(waits(id).hint(format!(
                            "--id {id}, or none; zoneplug serve --remove /dev/ublkb{id}"
                        )));
                    }
                    abi::S_DEV_QUIESCED => {
                        let paths = left.map(|l| l.paths).filter(|p| !p.is_empty());
                        let why = refusal(is, id, identity, paths.as_deref());
                        against.get_or_insert(why);
                        break;
                    }
                    // The kernel is about to find out that its server has died.
                    abi::S_DEV_LIVE if is == Match::Same && Instant::now() < end => {
                        std::thread::sleep(LOOK);
                    }
                    abi::S_DEV_LIVE if is == Match::Same && !patience.is_zero() => {
                        return Err(Error::new(
                            ErrorKind::Busy,
                            format!(
                                "/dev/ublkb{id} is this disk, and process {} serves it",
                                info.pid
                            ),
                        )
                        .hint("zoneplug status shows what is served"));
                    }
                    _ => break,
                }
            }
        }
        against.map_or(Ok(None), Err)
    }

    /// Goes on with a device that a dead server has left.
    fn take_over(
        &self,
        disk: &HostedDisk,
        options: &UblkOptions,
        params: &abi::Params,
        (info, served): (DevInfo, Served),
        ended: impl Fn() + Clone + Send + 'static,
    ) -> Result<UblkDisk, Error> {
        let id = info.dev_id;
        let known = self.control.params(id)?;
        let shape = |p: &abi::Params| (p.dev_sectors, p.zone_sectors, p.block_shift);
        if shape(&known) != shape(params) {
            return Err(Error::new(
                ErrorKind::Invalid,
                format!("/dev/ublkb{id} waits for this disk, but the disk has another layout now"),
            )
            .hint(format!("zoneplug serve --remove /dev/ublkb{id} gives it up")));
        }
        let end = Instant::now() + PATIENCE;
        while let Err(e) = self.control.start_recovery(id) {
            if e.kind() != ErrorKind::Busy || Instant::now() >= end {
                return Err(e);
            }
            std::thread::sleep(LOOK);
        }
        // From here on nothing of the last server is there any more.
        let found = replay::find(disk, served.shown.clone())?;
        let records = options.records.as_deref();
        let shown = served.shown.clone();
        let record = JournalFile::of_last(disk, records, &info, &found, served)?;
        let most = u32::from(info.nr_hw_queues) * u32::from(info.queue_depth);
        let replay = Replay::new(disk, shown.clone(), &found, record.of_last_server(), most);
        let replay = (record, Some(replay));
        let device = self.begin(disk, options, &known, (info, shown), replay, ended)?;
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
        (info, shown): (DevInfo, Range<u32>),
        (record, replay): (JournalFile, Option<Replay>),
        ended: impl Fn() + Clone + Send + 'static,
    ) -> Result<UblkDisk, Error> {
        let recovered = replay.is_some();
        let shared = Arc::new(Shared {
            char_dev: open_char_dev(info.dev_id)?,
            disk: disk.clone(),
            params: *params,
            slice: slice(&disk.disk().geometry(), shown),
            depth: info.queue_depth,
            tags: options.tags.unwrap_or(info.queue_depth).min(info.queue_depth),
            counters: counters::Counters::default(),
            failure: Mutex::default(),
            replay,
            journal: record.journal,
        });
        let mut device = UblkDisk {
            control: self.control.clone(),
            id: info.dev_id,
            recovered,
            unrecorded: record.unknown,
            threads: Vec::new(),
            shared: Some(shared.clone()),
        };
        for q in 0..info.nr_hw_queues {
            match queue::spawn(&shared, q, ended.clone()) {
                Ok(thread) => device.threads.push(thread),
                // What has started of a new one is stopped when `device` is dropped.
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

    /// Removes a device, whoever made it: one that a dead server has left, and that nobody will serve again. Its record in the
    /// directory of [`UblkOptions::records`] goes with it.
    pub fn remove(&self, id: u32, records: Option<&Path>) -> Result<(), Error> {
        let Some(info) = self.control.info(id)? else {
            return Err(Error::new(ErrorKind::NotFound, format!("there is no ublk device {id}"))
                .hint("ls /dev/ublkb*"));
        };
        if info.state == abi::S_DEV_LIVE && info.pid > 0 {
            return Err(Error::new(
                ErrorKind::Busy,
                format!("/dev/ublkb{id} is served by process {}", info.pid),
            )
            .hint("stop that process: it removes what it serves"));
        }
        if info.state != abi::S_DEV_DEAD {
            self.control.stop(id)?;
        }
        // First: the next device may have this number, and its server a record.
        if let Some(directory) = records {
            journal_file::remove(directory, id);
        }
        self.control.delete(id)
    }
}

/// What is shown of a disk, and what it is known by.
fn what_is_shown(spec: &str, g: &Geometry, options: &UblkOptions) -> (Identity, Range<u32>) {
    let shown = options.zones.clone().unwrap_or(0..params::whole_zones(g));
    (Bases::look(spec).identity(spec, &shown, &params::slices(g)), shown)
}

/// A device's zones as sectors.
fn slice(g: &Geometry, shown: Range<u32>) -> Slice {
    let start = g.zone_start(ZoneNo(shown.start)).0;
    let all = shown == (0..params::whole_zones(g));
    Slice { start, resets: (!all).then(|| params::resets(g, shown)) }
}

/// Opens `/dev/ublkcN`, which may take a moment to appear and to have its owner.
fn open_char_dev(id: u32) -> Result<File, Error> {
    let path = format!("/dev/ublkc{id}");
    let end = Instant::now() + PATIENCE;
    loop {
        match File::options().read(true).write(true).open(&path) {
            Ok(file) => return Ok(file),
            Err(e) if e.kind() == io::ErrorKind::NotFound && Instant::now() < end => {
                std::thread::sleep(LOOK);
            }
            Err(e) => {
                return Err(Error::new(ErrorKind::Io, format!("{path} cannot be opened: {e}"))
                    .hint("run it as root, with /dev as the kernel makes it (devtmpfs)")
                    .source(e));
            }
        }
    }
}

/// A block device that this process serves, until it is stopped or dropped.
#[derive(Debug)]
pub struct UblkDisk {
    control: Arc<Control>,
    id: u32,
    recovered: bool,
    /// Why appends of the last server are not known, or this one's will not be.
    unrecorded: Option<String>,
    threads: Vec<JoinHandle<()>>,
    /// `None` once it is stopped.
    shared: Option<Arc<Shared>>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("depth", &self.depth).finish_non_exhaustive()
    }
}

impl UblkDisk {
    /// Its number.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// The block device.
    pub fn path(&self) -> PathBuf {
        PathBuf::from(format!("/dev/ublkb{}", self.id))
    }

    /// Whether it was taken over from a server that had died.
    pub fn recovered(&self) -> bool {
        self.recovered
    }

    /// Why zone appends that were in flight when the last server died are appended again; of a new device, why those will be that
    /// are in flight if this one dies. `None` if they are looked for, or no place for records was given.
    pub fn unrecorded(&self) -> Option<&str> {
        self.unrecorded.as_deref()
    }

    /// Whether udev watches the block device: then writes of io_uring to it may fail, through no fault of theirs (docs/ublk.md).
    /// Waits until udev has seen the device, for seconds at most.
    pub fn is_watched(&self) -> bool {
        let dev = std::fs::metadata(self.path()).map_or(0, |m| m.rdev());
        udev::watches(Path::new(udev::RUN), (libc::major(dev), libc::minor(dev)))
    }

    /// Queues.
    pub fn queues(&self) -> usize {
        self.threads.len()
    }

    /// Whether all of its threads run: one that ended tells `ended`.
    pub fn is_served(&self) -> bool {
        self.threads.iter().all(|t| !t.is_finished())
    }

    /// Why a queue has ended though the device has not: what Linux has given it will not be answered any more. The process should
    /// end then: Linux sees the device without a server.
    pub fn failure(&self) -> Option<String> {
        self.shared.as_ref().and_then(|s| lock(&s.failure).clone())
    }

    /// What it has done.
    pub fn counters(&self) -> UblkCounters {
        self.shared.as_ref().map_or_else(UblkCounters::default, |s| s.counters.now())
    }

    /// Has Linux write what it holds for the device: mounted file systems, the page cache. Returns where it is mounted. To be
    /// called before [`UblkDisk::stop`], while it is served.
    pub fn sync_before_stop(&self) -> Vec<PathBuf> {
        sync_before_stop(&self.path())
    }

    /// Removes the block device: what Linux has in flight is finished first. Nothing is flushed below; that is the disk's
    /// ([`Op::Flush`](zoneplug_core::Op)).
    pub fn stop(mut self) -> Result<(), Error> {
        self.end()
    }

    /// Leaves the device to the next server. Its threads stay until this process ends, which it should soon: Linux then sees the
    /// device without a server, and keeps it if it can be taken over.
    pub fn abandon(mut self) {
        self.shared = None;
        self.threads.clear();
    }

    fn end(&mut self) -> Result<(), Error> {
        let failure = self.failure();
        let Some(shared) = self.shared.take() else { return Ok(()) };
        if let Some(why) = failure {
            // To stop it is to wait for answers that will not come.
            self.threads.clear();
            return Err(Error::new(ErrorKind::Io, format!("/dev/ublkb{}: {why}", self.id))
                .hint("start it again; dmesg has what the kernel says of it"));
        }
        let stopped = self.control.stop(self.id);
        if stopped.is_err() && self.is_served() {
            // Its threads would wait for ever.
            return stopped;
        }
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
        if let Some(journal) = &shared.journal
            && stopped.is_ok()
        {
            journal.remove();
        }
        // The number is free when nobody has its character device.
        drop(shared);
        stopped.and_then(|()| self.control.delete(self.id))
    }
}

impl Drop for UblkDisk {
    fn drop(&mut self) {
        let _ = self.end();
    }
}
