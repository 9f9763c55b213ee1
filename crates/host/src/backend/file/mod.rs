//! Durable disks: a zoned disk in one sparse file, which survives restarts, crashes and power cuts.
//!
//! The disk behaves like a drive with a volatile write cache. If a process dies, every write that was acknowledged to
//! it is kept. A power cut keeps every write that a completed flush covers, or that had FUA. It may lose others, but
//! a write pointer never covers data that is lost. A reset or finish is durable when it is acknowledged.
//!
//! `docs/disk-format.md` describes the file and gives reasons. The rules of zones are in
//! [`zoneplug_core::zone::machine`].
//!
//! | file | what it owns |
//! | --- | --- |
//! | `format.rs` | the bytes of each structure |
//! | `probe.rs` | whether a file is a disk |
//! | `create.rs`, `load.rs`, `check.rs` | making, reading and checking a disk |
//! | `error.rs` | the errors, with fields for programs |
//! | `changed.rs` | whether the file is still this disk's |
//! | `claim.rs` | the right to replace the file of a disk |
//! | `recover.rs` | what the last writer left: makes it durable, or void |
//! | `snapshot.rs` | a consistent copy in another file |
//! | `state.rs` | the zones and the notes |
//! | `commit.rs` | the table and the session: makes changes durable |
//! | `exec.rs` | the rules for one command |
//! | `queue.rs` | commands on their way |
//! | `work.rs` | work for threads; they and the kernel's ring are in `crate::backend::ring` |
//! | `storage.rs`, `sys.rs` | the file; system calls |
//! | `testing/` | a storage whose power can be cut and whose syncs can fail |
//!
//! ```
//! use zoneplug_host::file::{self, Access, CreateOptions, FileDisk};
//! use zoneplug_host::HostedDisk;
//! use zoneplug_core::disk::DiskConfig;
//! # let dir = std::env::temp_dir().join(format!("zoneplug-doc-{}", std::process::id()));
//! # std::fs::create_dir_all(&dir).unwrap();
//! let path = dir.join("disk.zbd");
//! let opts = CreateOptions { size: Some(1 << 30), zone_size: Some(96 << 20), ..Default::default() };
//! file::create(&path, &opts, false).unwrap();
//! let disk = FileDisk::open(&path, Access::ReadWrite).unwrap();
//! assert_eq!(disk.identity().version, 1);
//! let disk = HostedDisk::open(disk, DiskConfig::default()).unwrap();
//! # drop(disk);
//! # std::fs::remove_dir_all(&dir).unwrap();
//! ```

mod changed;
mod check;
mod claim;
mod commit;
mod create;
#[cfg(test)]
mod durable_names;
mod error;
mod exec;
mod format;
mod load;
mod probe;
mod queue;
mod recover;
mod snapshot;
mod state;
mod storage;
mod sys;
#[doc(hidden)]
pub mod testing;
mod work;

pub use check::{CheckReport, check, new_uuid};
pub use claim::Claim;
pub use create::NewDisk;
pub use error::{FileChange, FileError, FileUse};
pub use probe::is_disk_file;
pub use snapshot::{Made, Snapshot, WritesPrevented};
pub use storage::{FileStorage, Storage};
#[cfg(any(feature = "iscsi", feature = "nvme-tcp", feature = "ublk"))]
pub(crate) use sys::file_system;

use crate::backend::data_path::DataPath;
use crate::backend::ring::{EpollWaker, Pool, Ring};
use crate::held::HeldDisk;
use crate::os_error::{Attempt, os_error};
use io_uring::squeue::Entry;
use state::Core;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;
use std::time::{Duration, Instant};
use storage::Lock;
use zoneplug_core::zone::{Geometry, Limits};
use zoneplug_core::{Device, Error, Queue, ZoneNo};

/// Most BIOs of a command, so that its segments fit into one vectored call.
const MAX_BIOS: u32 = 256;
/// Longest command, in sectors.
const MAX_TRANSFER: u32 = (4 << 20) >> 9;
/// How long opening waits for the lock: the kernel may still be writing for a process that was killed.
const LOCK_PATIENCE: Duration = Duration::from_secs(2);

/// Options of a new disk. Sizes are in bytes; the rules are those of an emulated disk's specification.
///
/// ```
/// use zoneplug_host::file::CreateOptions;
/// let o = CreateOptions { size: Some(20 << 30), zone_size: Some(256 << 20), conv: 4, ..Default::default() };
/// assert_eq!(o.zone_capacity, None);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CreateOptions {
    /// Size of the whole disk in bytes. The remainder after whole zones becomes a shorter last zone. `None`: `zones`
    /// determines the size.
    pub size: Option<u64>,
    /// Number of zones, instead of `size`.
    pub zones: Option<u64>,
    /// Bytes of a zone, any multiple of the block size. `None`: 256 MiB.
    pub zone_size: Option<u64>,
    /// Capacity of a zone in bytes. `None`: the zone size.
    pub zone_capacity: Option<u64>,
    /// Bytes of the last zone (with `zones`).
    pub last_zone_size: Option<u64>,
    /// Bytes of the last zone that can be written.
    pub last_zone_capacity: Option<u64>,
    /// Conventional zones at the start of the disk.
    pub conv: u32,
    /// Most open zones; 0: no limit.
    pub max_open: u32,
    /// Most active zones; 0: no limit.
    pub max_active: u32,
    /// Bytes of a logical block. `None`: 4096.
    pub lba_size: Option<u64>,
    /// Write granularity in bytes. `None`: a logical block.
    pub granularity: Option<u64>,
    /// Longest native append in bytes; `None`: no native append, the layer emulates it.
    pub zone_append_max: Option<u64>,
    /// A name, up to 63 bytes.
    pub label: String,
    /// Allocates space for all data now, and keeps it when a zone is reset. The file is not sparse, and no
    /// write fails for want of space.
    pub preallocate: bool,
}

/// How a disk is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// For writing, by one process at a time.
    ReadWrite,
    /// For reading, also while another process writes. A report reads its zones from the file again. A read uses the
    /// state of a zone that the last report of it, or the opening, has read.
    ReadOnly,
}

impl From<Access> for FileUse {
    fn from(access: Access) -> FileUse {
        match access {
            Access::ReadWrite => FileUse::Writing,
            Access::ReadOnly => FileUse::Reading,
        }
    }
}

/// The identity of a disk.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Identity {
    /// Its UUID, as text.
    pub uuid: String,
    /// Its label; may be empty.
    pub label: String,
    /// Version of the format.
    #[serde(rename = "format_version")]
    pub version: u32,
    /// When it was made, in seconds since 1970.
    #[serde(rename = "created_unix_s")]
    pub created: u64,
    /// How often the disk was opened for writing; a copy of the file continues the count. 0 also if the last program
    /// that wrote does not count.
    #[serde(rename = "opened_for_writing")]
    pub opened: u64,
}

/// Identifies the file that a disk is in. Differs between a file and its copies, whatever their names.
///
/// ```
/// use zoneplug_host::file::{create, Access, CreateOptions, FileDisk};
/// # let dir = std::env::temp_dir().join(format!("zoneplug-place-{}", std::process::id()));
/// # std::fs::create_dir_all(&dir).unwrap();
/// let (path, copy) = (dir.join("disk.zbd"), dir.join("copy.zbd"));
/// create(&path, &CreateOptions { size: Some(1 << 30), ..Default::default() }, false).unwrap();
/// std::fs::copy(&path, &copy).unwrap();
/// let [a, b] = [path, copy].map(|p| FileDisk::open(&p, Access::ReadOnly).unwrap());
/// assert_eq!(a.identity(), b.identity());
/// assert_ne!(a.place(), b.place());
/// # std::fs::remove_dir_all(&dir).unwrap();
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct FilePlace {
    /// The file system (`st_dev`).
    pub device: u64,
    /// The file in it (`st_ino`).
    pub inode: u64,
}

/// Makes a disk in a new file. With `force`, also in place of a file that no process has open as a disk: the old file
/// stays until the new disk is complete, and the new file gets its owner and permissions. Other hard links to the old
/// file keep its content.
///
/// ```
/// use zoneplug_host::file::{create, CreateOptions};
/// # let path = std::env::temp_dir().join(format!("zoneplug-create-{}.zbd", std::process::id()));
/// let o = CreateOptions { size: Some(20 << 30), label: "scratch".into(), ..Default::default() };
/// let id = create(&path, &o, false).unwrap();
/// assert_eq!(id.label, "scratch");
/// assert!(create(&path, &o, false).unwrap_err().to_string().contains("exists"));
/// # std::fs::remove_file(&path).unwrap();
/// ```
pub fn create(path: &Path, opts: &CreateOptions, force: bool) -> Result<Identity, Error> {
    NewDisk::begin(path, opts, force)?.finish()
}

/// The error for a disk whose lock another process has.
fn locked(path: &Path, wanted: FileUse, by: Option<FileUse>) -> Error {
    FileError::InUse { path: path.display().to_string(), by, wanted }.into()
}

/// How data moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Engine {
    /// In `submit`: for files on tmpfs, where it is a copy of memory, and for tests.
    Inline,
    /// Threads.
    Threads,
    /// io_uring. A queue whose ring cannot be made has threads.
    Ring,
    /// io_uring. A queue whose ring cannot be made is an error.
    OnlyRing,
}

impl Engine {
    fn has_rings(self) -> bool {
        matches!(self, Engine::Ring | Engine::OnlyRing)
    }
}

/// How data moves: `io=` in a specification.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Io {
    /// A copy on tmpfs, otherwise io_uring, otherwise threads.
    #[default]
    Auto,
    /// io_uring; an error if there is none.
    Ring,
    /// Threads.
    Threads,
}

/// The state that the queues of a disk share.
#[derive(Debug)]
struct FileShared {
    pool: Option<Pool<Core>>,
    core: Arc<Core>,
    engine: Engine,
    epoll_waker: Option<Arc<EpollWaker>>,
    /// Whether the closing disk has made its last write.
    closed: Arc<AtomicBool>,
}

impl Drop for FileShared {
    fn drop(&mut self) {
        // Ends the threads.
        self.pool = None;
        self.core.close();
        self.closed.store(true, Ordering::Release);
    }
}

/// A durable disk: a [`Device`].
#[derive(Debug)]
pub struct FileDisk {
    shared: Arc<FileShared>,
    notices: Vec<String>,
    /// The path at opening, for messages.
    path: String,
}

impl FileDisk {
    /// Opens the disk in a file, with io_uring and past the page cache where the system can.
    pub fn open(path: &Path, access: Access) -> Result<Arc<FileDisk>, Error> {
        Self::open_with(path, access, Io::Auto, true)
    }

    /// Opens the disk in a file. `direct`: past the page cache where the file system can.
    pub fn open_with(
        path: &Path,
        access: Access,
        io: Io,
        direct: bool,
    ) -> Result<Arc<FileDisk>, Error> {
        let storage = open_file(path, access == Access::ReadWrite)?;
        Self::in_storage(storage, path, access, io, direct)
    }

    /// Like [`FileDisk::open_with`]. `given`: the file as it is open already, with its lock if it is for writing.
    pub(crate) fn open_held(
        given: &HeldDisk,
        path: &Path,
        access: Access,
        io: Io,
        direct: bool,
    ) -> Result<Arc<FileDisk>, Error> {
        let failed = |e| load::io_error(format!("cannot go on with {}", path.display()), e);
        let storage = FileStorage::of_held(given.duplicate().map_err(failed)?).map_err(failed)?;
        take_lock(&storage, path, access.into())?;
        Self::in_storage(storage, path, access, io, direct)
    }

    fn in_storage(
        storage: FileStorage,
        path: &Path,
        access: Access,
        io: Io,
        direct: bool,
    ) -> Result<Arc<FileDisk>, Error> {
        let write = access == Access::ReadWrite;
        let what = path.display().to_string();
        let head = load::head(&storage, &what)?;
        let engine = match io {
            Io::Auto if storage.is_tmpfs() => Engine::Inline,
            Io::Threads => Engine::Threads,
            Io::Auto | Io::Ring => match check_ring() {
                Ok(()) if io == Io::Ring => Engine::OnlyRing,
                Ok(()) => Engine::Ring,
                Err(_) if io == Io::Auto => Engine::Threads,
                Err(e) => return Err(e),
            },
        };
        // Linux may keep up to 1 MiB in one folio. Two zones must not share a folio that is written both through the
        // page cache and past it.
        let apart = head.layout.stride.is_multiple_of(1 << 20);
        if direct && apart && engine.has_rings() {
            storage.make_direct(u64::from(head.sup.limits.logical_block_sectors) << 9);
        }
        Self::with(Arc::new(storage), head, write, engine, true, &what)
    }

    /// The disk in a storage. `threads`: whether threads run the commits.
    fn with(
        storage: Arc<dyn Storage>,
        head: load::Head,
        write: bool,
        engine: Engine,
        threads: bool,
        what: &str,
    ) -> Result<Arc<FileDisk>, Error> {
        let failed = |e| load::io_error(format!("cannot read {what}"), e);
        let zones = match write {
            true => recover::zones(&*storage, &head, what)?,
            false => load::zones(&*storage, &head).map_err(failed)?,
        };
        let holes =
            if write { recover::holes_to_make(&*storage, &head, &zones) } else { Vec::new() };
        let notices = check::notices(&head, &zones);
        let id = u64::from_le_bytes(create::random());
        let core = Core::new(storage, head, zones, write, id)
            .map_err(|e| load::io_error(format!("cannot open {what}"), e))?;
        // The session has begun, so that no notes of an earlier one count any more.
        core.make_holes(holes.into_iter());
        let core = Arc::new(core);
        let epoll_waker = match engine {
            Engine::Inline | Engine::Threads => None,
            Engine::Ring => EpollWaker::new().ok().map(Arc::new),
            Engine::OnlyRing => Some(Arc::new(EpollWaker::new().map_err(no_ring)?)),
        };
        let pool = threads.then(|| {
            let nr = if engine == Engine::Threads { work::MANY } else { work::FEW };
            Pool::new(core.clone(), "zoneplug-file", nr)
        });
        Ok(Arc::new(FileDisk {
            shared: Arc::new(FileShared {
                pool,
                core,
                engine,
                epoll_waker,
                closed: Arc::default(),
            }),
            notices,
            path: what.to_owned(),
        }))
    }

    /// The identity of the disk.
    pub fn identity(&self) -> Identity {
        self.shared.core.sup.identity(self.shared.core.opened())
    }

    /// The open file, even if its path names another one by now. All zeroes for a disk that is in no file.
    pub fn place(&self) -> FilePlace {
        self.shared.core.storage.file().map_or(FilePlace::default(), FileStorage::place)
    }

    /// Whether acknowledged writes of this boot were lost and `client` does not know: its next flush must fail. Marks
    /// the client as told. `client` is not 0, and is the same whichever process serves it.
    pub fn owes(&self, client: u64) -> bool {
        self.shared.core.owes(client)
    }

    /// Becomes true when the closing disk has made its last write.
    pub(crate) fn closed(&self) -> Arc<AtomicBool> {
        self.shared.closed.clone()
    }

    /// Further descriptors of the file as it is open. `None`: the disk is in no file.
    pub(crate) fn held(&self) -> Result<Option<HeldDisk>, Error> {
        let held = self.shared.core.storage.file().map(FileStorage::held).transpose();
        held.map_err(|e| load::io_error("no further descriptor".to_owned(), e))
    }

    /// The number of writes of a zone since the disk was made. A conventional zone counts one more for each time that it
    /// is written for the first time after a flush, and for each write that fails.
    ///
    /// # Panics
    ///
    /// If there is no such zone.
    pub fn write_count(&self, zone: ZoneNo) -> u64 {
        self.shared.core.state().meta[zone.0 as usize].writes
    }

    /// Problems that opening found, such as damage, for the user, one line each.
    pub fn notices(&self) -> &[String] {
        &self.notices
    }

    /// How data moves.
    pub fn io(&self) -> DataPath {
        let direct = self.shared.core.storage.file().is_some_and(FileStorage::is_direct);
        match self.shared.engine {
            Engine::Inline => DataPath { by: "copy", direct: false },
            Engine::Threads => DataPath { by: "threads", direct: false },
            Engine::Ring | Engine::OnlyRing => DataPath { by: "ring", direct },
        }
    }
}

/// The error of a ring that cannot be made.
fn no_ring(e: std::io::Error) -> Error {
    os_error(Attempt::FileRing, "io_uring cannot be used", e)
}

/// The depth of a usual queue. A ring of it takes more memory than a small one.
const USUAL_DEPTH: u16 = 128;

/// Checks whether the data of disks in files can move by io_uring here. Without it threads move them.
///
/// # Errors
///
/// The error of opening a disk with `io=ring`, which names the cause.
pub fn check_ring() -> Result<(), Error> {
    Ring::<Entry>::new(USUAL_DEPTH).map(drop).map_err(no_ring)
}

/// Opens the file of a disk, and takes the lock of a writer or a reader.
fn open_file(path: &Path, write: bool) -> Result<FileStorage, Error> {
    let failed = |e| load::io_error(format!("cannot open {}", path.display()), e);
    crate::paths::refuse_special(path)?;
    let purpose = if write { FileUse::Writing } else { FileUse::Reading };
    let end = Instant::now() + LOCK_PATIENCE;
    loop {
        let storage = FileStorage::open(path, write).map_err(failed)?;
        take_lock(&storage, path, purpose)?;
        match storage.check_path(path) {
            Ok(()) => return Ok(storage),
            // The path leads to another file by now. That one is opened instead.
            Err(_) if Instant::now() < end => {}
            Err(e) => return Err(failed(e)),
        }
    }
}

/// Checks that this process may open the file of a disk for writing. Does not open it for writing, which would change
/// it.
///
/// # Errors
///
/// The errors of opening it.
pub fn check_writable(path: &Path) -> Result<(), Error> {
    crate::paths::refuse_special(path)?;
    let failed = |e| load::io_error(format!("cannot open {}", path.display()), e);
    crate::paths::may_write(path).map_err(failed)
}

/// Checks that no other process has the file of a disk open for writing. Waits up to `patience` for one to close it.
///
/// # Errors
///
/// The error of opening the disk for writing. If that cannot be found out here, the check succeeds.
pub fn check_unused(path: &Path, patience: Duration) -> Result<(), Error> {
    FileStorage::open(path, false).map_or(Ok(()), |storage| wait_unused(&storage, path, patience))
}

/// Checks that no other process has an open file of a disk open for writing. Waits up to `patience` for one to close it.
fn wait_unused(storage: &FileStorage, path: &Path, patience: Duration) -> Result<(), Error> {
    let end = Instant::now() + patience;
    while storage.is_written_elsewhere().unwrap_or(false) {
        if Instant::now() >= end {
            return Err(locked(path, FileUse::Writing, Some(FileUse::Writing)));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// Takes the locks for a use. A descriptor from another process has the locks already, and takes them again.
fn take_lock(storage: &FileStorage, path: &Path, wanted: FileUse) -> Result<(), Error> {
    let failed = |e| load::io_error(format!("cannot lock {}", path.display()), e);
    let end = Instant::now() + LOCK_PATIENCE;
    loop {
        match storage.lock(wanted).map_err(failed)? {
            Lock::Taken => return Ok(()),
            _ if Instant::now() < end => std::thread::sleep(Duration::from_millis(5)),
            Lock::HeldFor(by) => return Err(locked(path, wanted, by)),
        }
    }
}

impl Device for FileDisk {
    fn geometry(&self) -> &Geometry {
        &self.shared.core.sup.geometry
    }

    fn limits(&self) -> &Limits {
        &self.shared.core.limits
    }

    fn is_timed(&self) -> bool {
        false
    }

    fn open_queue(&self, depth: u16, waker: Waker) -> Result<Box<dyn Queue>, Error> {
        crate::backend::ring::check_depth(depth)?;
        self.shared.pool.as_ref().map_or(Ok(()), Pool::start)?;
        Ok(Box::new(queue::open(self.shared.clone(), depth, waker).map_err(no_ring)?))
    }
}
