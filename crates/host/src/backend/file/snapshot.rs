//! Snapshots: a consistent copy of a disk in another file, also of a disk that another process serves meanwhile.
//!
//! Where the file system can, the copy shares the blocks of the original (`FICLONE`). Otherwise data is copied: most
//! of it while the disk is in use, the rest while nothing is written. The rest is small: of a sequential zone that was
//! not reset meanwhile, only what was added. The record of a zone shows both: its write pointer and the number of its
//! resets.

use super::format::{PAGE, Record, Session};
use super::load::{self, Head, io_error};
use super::storage::{FileStorage, Storage};
use super::{
    Access, FileDisk, FileError, Identity, create, new_uuid, open_file, recover, wait_unused,
};
use crate::os_error::cannot_make;
use crate::part::Part;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use zoneplug_core::{Error, ErrorKind, ZoneNo};

/// The disk stays in use while more bytes than this are left to copy; the rest is copied during the pause.
const LITTLE: u64 = 16 << 20;
/// Most rounds in which the copy tries to catch up with the disk.
const ROUNDS: u32 = 8;
/// Bytes that are copied at a time.
const CHUNK: usize = 1 << 20;

/// How writes are prevented while the last part is copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WritesPrevented {
    /// The snapshot takes the writer's lock: no process has the disk open for writing. On a read-only file system, where nothing can
    /// take that lock, the snapshot fails if a process had the disk open for writing elsewhere.
    ByLock,
    /// The caller prevents writes during [`Snapshot::copy_rest`].
    ByCaller,
}

/// The state of the disk when its data was last copied.
#[derive(Debug)]
struct CopiedState {
    /// The session. If the disk has another one now, another writer may have begun from older records, so all data is
    /// copied again.
    session: Option<u64>,
    records: Vec<Record>,
}

/// A snapshot that is being made. Only [`finish`](Snapshot::finish) gives the copy its name, when the data of the copy
/// is durable. If the snapshot is dropped earlier, nothing is left.
///
/// ```
/// use zoneplug_host::file::{check, create, CreateOptions, WritesPrevented, Snapshot};
/// # let dir = std::env::temp_dir().join(format!("zoneplug-snapshot-{}", std::process::id()));
/// # std::fs::create_dir_all(&dir).unwrap();
/// let (path, copy) = (dir.join("disk.zbd"), dir.join("copy.zbd"));
/// let original = create(&path, &CreateOptions { size: Some(1 << 30), ..Default::default() }, false).unwrap();
/// let mut snapshot = Snapshot::begin(&path, &copy, WritesPrevented::ByLock).unwrap();
/// snapshot.copy_rest().unwrap();
/// let made = snapshot.finish(true).unwrap();
/// assert_ne!(made.identity.uuid, original.uuid);
/// assert_eq!(check(&copy, false).unwrap().problems, 0);
/// # std::fs::remove_dir_all(&dir).unwrap();
/// ```
#[derive(Debug)]
pub struct Snapshot {
    source: FileStorage,
    /// The name of the source, for errors.
    what: String,
    head: Head,
    copy: FileStorage,
    part: Part,
    to: PathBuf,
    /// Whether the blocks are shared; `None` until that was tried.
    shared: Option<bool>,
    copied_state: Option<CopiedState>,
    copied: u64,
    /// Set if the disk is on a read-only file system: its state when the copy began.
    read_only: Option<AsFound>,
}

/// The state of a disk that cannot be locked or changed: its file system is read-only, here or everywhere.
#[derive(Debug)]
struct AsFound {
    session: Option<Session>,
    /// The error of making durable what the last writer left.
    unsettled: Option<io::Error>,
}

impl AsFound {
    fn of(source: &FileStorage, head: &Head, what: &str) -> Result<AsFound, Error> {
        let failed = |e| io_error(format!("cannot read {what}"), e);
        let zones = load::zones(source, head).map_err(failed)?;
        let unsettled = if zones.is_unclean() { source.sync().err() } else { None };
        Ok(AsFound { session: zones.session, unsettled })
    }
}

/// A snapshot that was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Made {
    /// Its identity.
    pub identity: Identity,
    /// Problems of the disk, such as damage, for the user, one line each.
    pub notices: Vec<String>,
    /// Whether it shares blocks with the original.
    pub shared: bool,
    /// Bytes of data that were copied instead.
    pub copied: u64,
}

impl Snapshot {
    /// Begins a snapshot of the disk in the file `from`. The snapshot becomes the file `to`, which must not exist.
    ///
    /// # Errors
    ///
    /// [`Busy`](zoneplug_core::ErrorKind::Busy) if `to` exists, or with [`WritesPrevented::ByLock`] if a process has the disk open for
    /// writing.
    pub fn begin(
        from: &Path,
        to: &Path,
        writes_prevented: WritesPrevented,
    ) -> Result<Snapshot, Error> {
        if std::fs::symlink_metadata(to).is_ok() {
            return Err(exists(to));
        }
        let what = from.display().to_string();
        if writes_prevented == WritesPrevented::ByCaller {
            return Snapshot::of(open_file(from, false)?, what, to);
        }
        match open_file(from, true) {
            Ok(source) => {
                // From here on the state that the last writer left is on the medium, or discarded.
                recover::zones(&source, &load::head(&source, &what)?, &what)?;
                Snapshot::of(source, what, to)
            }
            Err(e) if e.errno() == libc::EROFS => {
                let source = open_file(from, false)?;
                wait_unused(&source, from, Duration::ZERO)?;
                let mut snapshot = Snapshot::of(source, what, to)?;
                let found = AsFound::of(&snapshot.source, &snapshot.head, &snapshot.what)?;
                snapshot.read_only = Some(found);
                Ok(snapshot)
            }
            Err(e) => Err(e),
        }
    }

    /// Begins a snapshot of an open disk, whatever file is at its path by now. The caller prevents writes during
    /// [`Snapshot::copy_rest`].
    pub(crate) fn of_open(disk: &FileDisk, to: &Path) -> Result<Snapshot, Error> {
        if std::fs::symlink_metadata(to).is_ok() {
            return Err(exists(to));
        }
        let held = disk.held()?;
        let held = held.ok_or_else(|| Error::invalid(format!("{} is in no file", disk.path)))?;
        let failed = |e| io_error(format!("cannot read {}", disk.path), e);
        let source = FileStorage::of_held(held.duplicate().map_err(failed)?).map_err(failed)?;
        Snapshot::of(source, disk.path.clone(), to)
    }

    fn of(source: FileStorage, what: String, to: &Path) -> Result<Snapshot, Error> {
        let head = load::head(&source, &what)?;
        let (part, file) = Part::beside(to, 0o600).map_err(|e| cannot_make(to, e))?;
        let copy = FileStorage::of(file, part.path(), true);
        let copy = copy.map_err(|e| io_error(format!("cannot make {}", to.display()), e))?;
        Ok(Snapshot {
            source,
            what,
            head,
            copy,
            part,
            to: to.to_owned(),
            shared: None,
            copied_state: None,
            copied: 0,
            read_only: None,
        })
    }

    /// Copies data while the disk is in use, until little is left for [`Snapshot::copy_rest`] or the disk is written as
    /// fast as it is copied.
    pub fn catch_up(&mut self) -> Result<(), Error> {
        for _ in 0..ROUNDS {
            if self.copy_ahead()? <= LITTLE {
                break;
            }
        }
        Ok(())
    }

    /// Copies data while the disk is in use, so that less is left for [`Snapshot::copy_rest`]. Returns the bytes that
    /// were copied, 0 if blocks are shared. May be called again.
    pub fn copy_ahead(&mut self) -> Result<u64, Error> {
        // Sharing writes the page cache of the disk back, so that the next sharing takes less time.
        if self.share()? {
            return Ok(0);
        }
        self.copy_data()
    }

    /// Copies the rest. Nothing may write to the disk meanwhile.
    pub fn copy_rest(&mut self) -> Result<(), Error> {
        self.copy_still()?;
        let Some(found) = &self.read_only else { return Ok(()) };
        let failed = |e| io_error(format!("cannot copy {}", self.what), e);
        let now = load::zones(&self.source, &self.head).map_err(failed)?;
        if self.source.is_written_elsewhere().map_err(failed)? || now.session != found.session {
            let what = format!("{} was opened for writing while it was copied", self.what);
            return Err(Error::new(ErrorKind::Busy, what)
                .hint("again, where its file system is not mounted read-only"));
        }
        if let Some(e) = &found.unsettled {
            // Pages of the last writer may be lost although reads still see them.
            recover::void(&self.copy, found.session, recover::errno(e)).map_err(failed)?;
        }
        Ok(())
    }

    fn copy_still(&mut self) -> Result<(), Error> {
        if self.share()? {
            return Ok(());
        }
        self.copy_data()?;
        let failed = |e| io_error(format!("cannot copy {}", self.what), e);
        let layout = &self.head.layout;
        // Superblock, session, table and notes; the superblock's second copy.
        self.copy_range(0, layout.data).map_err(failed)?;
        self.copy_range(layout.len - PAGE, layout.len).map_err(failed).map(drop)
    }

    /// Makes the snapshot durable and gives it its name. `new_uuid`: with a UUID of its own, so that it can be served
    /// beside the original.
    ///
    /// # Errors
    ///
    /// The copy cannot be made durable, or a file `to` exists meanwhile: then nothing is left. If only the directory
    /// cannot be made durable, the snapshot is complete and has its name, which a power cut may take away.
    pub fn finish(self, new_uuid: bool) -> Result<Made, Error> {
        let Snapshot { part, to, copy, shared, copied, .. } = self;
        let failed = |e| io_error(format!("cannot make {}", to.display()), e);
        copy.sync().map_err(failed)?;
        drop(copy);
        // Opening recovers the copy as if its writer had died: the table of zones gets the acknowledged writes.
        let disk = FileDisk::open(part.path(), Access::ReadWrite)?;
        let notices = disk.notices().to_vec();
        drop(disk);
        if new_uuid {
            self::new_uuid(part.path())?;
        }
        let identity = FileDisk::open(part.path(), Access::ReadOnly)?.identity();
        File::open(part.path()).and_then(|f| f.sync_all()).map_err(failed)?;
        part.name(&to).map_err(|e| match e.kind() {
            io::ErrorKind::AlreadyExists => exists(&to),
            _ => failed(e),
        })?;
        create::sync_directory(&to).map_err(failed)?;
        Ok(Made { identity, notices, shared: shared == Some(true), copied })
    }

    /// Makes the copy share all current blocks of the disk. False: the file system cannot.
    fn share(&mut self) -> Result<bool, Error> {
        if self.shared == Some(false) {
            return Ok(false);
        }
        let shared = self.copy.share(&self.source);
        let shared = shared.map_err(|e| io_error(format!("cannot copy {}", self.what), e))?;
        if !shared {
            self.begin_to_copy()
                .map_err(|e| io_error(format!("cannot make {}", self.to.display()), e))?;
        }
        self.shared = Some(shared);
        Ok(shared)
    }

    fn begin_to_copy(&self) -> io::Result<()> {
        let layout = &self.head.layout;
        self.copy.set_len(layout.len)?;
        if self.head.sup.keeps_space {
            self.copy.preallocate(layout.data, layout.len - layout.data)?;
        }
        Ok(())
    }

    /// Copies the data of all zones that have changed since they were copied.
    fn copy_data(&mut self) -> Result<u64, Error> {
        let failed = |e| io_error(format!("cannot copy {}", self.what), e);
        let before = self.copied;
        let zones = load::zones(&self.source, &self.head).map_err(failed)?;
        let session = zones.session.map(|s| s.id);
        let copied = self.copied_state.take().filter(|c| c.session == session);
        let first = before == 0 && copied.is_none();
        for (zone, now) in (0..).zip(&zones.live) {
            let was = copied.as_ref().map(|c| c.records[zone as usize]);
            self.copied += self.copy_zone(zone, was, now, first).map_err(failed)?;
        }
        self.copied_state = Some(CopiedState { session, records: zones.live });
        Ok(self.copied - before)
    }

    /// Copies the data of a zone and returns the number of bytes. `was`: its record when it was last copied. `first`:
    /// nothing was copied yet.
    fn copy_zone(
        &self,
        zone: u32,
        was: Option<Record>,
        now: &Record,
        first: bool,
    ) -> io::Result<u64> {
        let (g, layout) = (&self.head.sup.geometry, &self.head.layout);
        let conventional = g.is_conventional(ZoneNo(zone));
        let end = if conventional { g.zone_len_sectors(ZoneNo(zone)) } else { now.wp };
        let from = match was {
            // A discard is not counted as a write; it shows as holes.
            Some(was) if conventional && was.writes == now.writes => {
                return self.copy_holes(layout.data(zone, 0), layout.data(zone, end));
            }
            Some(was) if !conventional && was.generation == now.generation && was.wp <= now.wp => {
                was.wp
            }
            _ => 0,
        };
        let (at, end) = (layout.data(zone, from), layout.data(zone, end));
        if !first && from == 0 {
            // Data of an earlier copy must not remain in a hole, nor past the write pointer.
            let written = match was {
                Some(was) if !conventional => layout.data(zone, was.wp) - at,
                _ => layout.stride,
            };
            self.empty(at, written, layout.stride)?;
        }
        self.copy_range(at, end)
    }

    /// Empties the `len` bytes of the copy from `at` on, of which the first `written` may have data: with a hole, or
    /// with zeroes on a file system without holes.
    fn empty(&self, at: u64, written: u64, len: u64) -> io::Result<()> {
        match self.copy.punch(at, len) {
            Err(e) if e.kind() == io::ErrorKind::Unsupported => self.copy.write_zeroes(at, written),
            done => done,
        }
    }

    /// Copies data outside holes. Returns the number of bytes.
    fn copy_range(&self, mut at: u64, end: u64) -> io::Result<u64> {
        if !self.source.shows_holes() {
            return self.copy_all(at, end);
        }
        let mut copied = 0;
        while let Some(data) = self.source.next_data(at).filter(|d| *d < end) {
            let to = self.source.hole_from(data).map_or(end, |hole| hole.min(end));
            copied += self.copy_all(data, to)?;
            at = to;
        }
        Ok(copied)
    }

    /// Makes holes in the copy where the disk has some. If the holes of the disk cannot be seen, copies all.
    fn copy_holes(&self, mut at: u64, end: u64) -> io::Result<u64> {
        if !self.source.shows_holes() {
            return self.copy_all(at, end);
        }
        while at < end {
            let data = self.source.next_data(at).map_or(end, |data| data.min(end));
            if data > at {
                self.empty(at, data - at, data - at)?;
            }
            at = self.source.hole_from(data).map_or(end, |hole| hole.max(data + 1));
        }
        Ok(0)
    }

    fn copy_all(&self, mut at: u64, end: u64) -> io::Result<u64> {
        let from = at;
        let mut buf = vec![0; CHUNK];
        while at < end {
            let len = (end - at).min(CHUNK as u64) as usize;
            self.source.read_at(at, &mut buf[..len])?;
            self.copy.write_at(at, &buf[..len])?;
            at += len as u64;
        }
        Ok(end.saturating_sub(from))
    }
}

fn exists(to: &Path) -> Error {
    FileError::SnapshotExists { path: to.display().to_string() }.into()
}
