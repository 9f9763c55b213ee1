//! The storage of a disk: a small trait, so that tests can cut its power, and its implementation for files.

use super::format::{PAGE, SECTOR, SESSION_AT, Session};
use super::sys;
use super::{FilePlace, FileUse};
use crate::backend::ring::{Segments, transfer_now};
use crate::held::HeldDisk;
use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use zoneplug_buf::IoBuf;

/// Shorter commands go through the page cache. A sequential zone has one write in flight, so with direct I/O the
/// latency of the device would limit small writes. Drives have a write cache for the same reason; the page cache also
/// survives the process.
const LONG: u64 = 256 << 10;

/// The bytes of a disk.
///
/// A write that returned is seen by every later read, and survives the process. Only what [`Storage::sync`]
/// covers survives a power cut: of later writes any subset may be there, in units of 512 bytes.
pub trait Storage: Send + Sync + std::fmt::Debug {
    /// Fills `buf` from `at`.
    fn read_at(&self, at: u64, buf: &mut [u8]) -> io::Result<()>;

    /// Writes `buf` at `at`.
    fn write_at(&self, at: u64, buf: &[u8]) -> io::Result<()>;

    /// Makes all writes and holes so far durable. After an error it is unknown which of them are durable, and a later
    /// sync skips those that this one did not write, unless they are written again with `write_at`.
    fn sync(&self) -> io::Result<()>;

    /// Makes a range zeroes and gives back its space. Fails with `Unsupported` if the storage cannot.
    fn punch(&self, at: u64, len: u64) -> io::Result<()>;

    /// Makes a range zeroes that count as a hole, and keeps its space. Fails with `Unsupported` if the storage cannot.
    fn unwrite(&self, at: u64, len: u64) -> io::Result<()>;

    /// Writes zeroes into a range.
    fn write_zeroes(&self, at: u64, len: u64) -> io::Result<()> {
        let zeroes = vec![0; len.min(1 << 20) as usize];
        let mut done = 0;
        while done < len {
            let n = (len - done).min(zeroes.len() as u64);
            self.write_at(at + done, &zeroes[..n as usize])?;
            done += n;
        }
        Ok(())
    }

    /// The next byte from `at` on that is not in a hole. `None`: there are only holes, or it is unknown.
    fn next_data(&self, at: u64) -> Option<u64>;

    /// Whether [`Storage::next_hole`] knows holes.
    fn tells_holes(&self) -> bool {
        false
    }

    /// The first byte from `at` on that is in a hole: neither on the medium nor in memory. Written data is never in a
    /// hole, nor are written zeroes. `None`: there is no hole, or it is unknown.
    fn next_hole(&self, _at: u64) -> Option<u64> {
        None
    }

    /// Reads what is in the page cache from `at` on, and nothing from the medium. Returns the number of
    /// bytes.
    fn read_cached(&self, at: u64, buf: &mut [u8]) -> io::Result<usize>;

    /// Drops a synced range from the page cache, so that the next read is from the medium.
    fn forget(&self, at: u64, len: u64) -> io::Result<()>;

    /// Length in bytes.
    fn len(&self) -> io::Result<u64>;

    /// Whether the length is 0.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// The boot id, which is the same while the power stays on. `None`: unknown.
    fn boot_id(&self) -> Option<[u8; 16]>;

    /// The file, for I/O that does not go through this trait.
    fn file(&self) -> Option<&FileStorage> {
        None
    }
}

/// Moves the first `len` bytes of `bufs`, all of one command, to or from `at`. A storage that is not a file is given
/// bytes, never the memory of a command.
pub(super) fn transfer(
    storage: &dyn Storage,
    write: bool,
    mut at: u64,
    bufs: &mut dyn Iterator<Item = (IoBuf, u32)>,
) -> io::Result<()> {
    if let Some(file) = storage.file() {
        // Buffered: no descriptor that requires aligned memory.
        return transfer_now(file.meta.as_raw_fd(), write, at, bufs);
    }
    for (mut buf, len) in bufs {
        let mut bytes = vec![0; len as usize];
        if write {
            buf.copy_to(0, &mut bytes);
            storage.write_at(at, &bytes)?;
        } else {
            storage.read_at(at, &mut bytes)?;
            buf.copy_from(0, &bytes);
        }
        at += u64::from(len);
    }
    Ok(())
}

/// A file with two open descriptions: one for the table, and one for the data, which may be direct.
#[derive(Debug)]
pub struct FileStorage {
    /// The table, notes, everything small, and data whose memory direct I/O refuses.
    meta: File,
    /// Data. Opened through `meta`, because the path may name another file by now.
    data: File,
    /// For direct I/O: alignment of memory, and of offsets and lengths.
    direct: OnceLock<(usize, usize)>,
    tmpfs: bool,
    /// Whether a written range is never a hole.
    tells_holes: bool,
    place: FilePlace,
}

impl FileStorage {
    /// Opens a file.
    pub(super) fn open(path: &Path, write: bool) -> io::Result<FileStorage> {
        // Opening a FIFO would block. FIFOs are refused below.
        let flags = libc::O_NONBLOCK;
        let meta = OpenOptions::new().read(true).write(write).custom_flags(flags).open(path)?;
        FileStorage::of(meta, path, write)
    }

    /// The storage in an open file. `path` named it when it was opened.
    pub(super) fn of(meta: File, path: &Path, write: bool) -> io::Result<FileStorage> {
        let m = meta.metadata()?;
        if !m.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
        }
        sys::set_blocking(&meta)?;
        let place = place_of(&m);
        // Another description of the same file, because the path may name another one by now.
        let again = |path: &Path| OpenOptions::new().read(true).write(write).open(path);
        let data = again(Path::new(&format!("/proc/self/fd/{}", meta.as_raw_fd())))
            // For systems without /proc.
            .or_else(|_| again(path))?;
        if place_of(&data.metadata()?) != place {
            return Err(another_file());
        }
        Ok(FileStorage::with(meta, data, place))
    }

    /// Fails if `path` no longer leads to this file. Another process may replace the file while this one waits for its lock.
    pub(super) fn check_path(&self, path: &Path) -> io::Result<()> {
        let is_here = std::fs::metadata(path).is_ok_and(|m| place_of(&m) == self.place);
        if is_here { Ok(()) } else { Err(another_file()) }
    }

    fn with(meta: File, data: File, place: FilePlace) -> FileStorage {
        let kind = sys::file_system(&meta).ok();
        let (tmpfs, tells_holes) =
            (kind == Some(TMPFS), kind.is_some_and(|k| TELL_HOLES.contains(&k)));
        FileStorage { meta, data, direct: OnceLock::new(), tmpfs, tells_holes, place }
    }

    /// Duplicates of both descriptions, for another storage.
    pub(super) fn held(&self) -> io::Result<HeldDisk> {
        HeldDisk::of([&self.meta, &self.data])
    }

    /// The storage of the descriptions of another one, perhaps of another process.
    pub(super) fn of_held(files: Vec<File>) -> io::Result<FileStorage> {
        let [meta, data]: [File; 2] =
            files.try_into().map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        let places = (meta.metadata()?, data.metadata()?);
        let place = place_of(&places.0);
        if !places.0.is_file() || place_of(&places.1) != place {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        Ok(FileStorage::with(meta, data, place))
    }

    /// Moves data past the page cache from now on, if the file system can and every offset and length is a
    /// multiple of a page (`unit`, in bytes). Then a command with unaligned memory may go through the page
    /// cache, because no page belongs to two commands.
    pub(super) fn make_direct(&self, unit: u64) {
        if self.tmpfs || !unit.is_multiple_of(PAGE) {
            return;
        }
        let (memory, length) = sys::direct_alignment(&self.data).unwrap_or((4096, 4096));
        if memory == 0 || length == 0 || u64::from(length) > PAGE {
            return;
        }
        if sys::set_direct(&self.data).is_ok() {
            let _ = self.direct.set((memory as usize, length as usize));
        }
    }

    /// Takes the locks for a use. `docs/disk-format.md` explains the choice.
    pub(super) fn lock(&self, wanted: FileUse) -> io::Result<Lock> {
        if wanted == FileUse::Reading {
            let locked = sys::lock_byte(&self.meta, READERS_AT, libc::F_RDLCK);
            // A file system without locks can be read: the lock only keeps the file from being replaced.
            return Ok(locked
                .ok()
                .flatten()
                .map_or(Lock::Taken, |_| Lock::HeldFor(Some(FileUse::Replacing))));
        }
        // A writer's locks are on both descriptions, because the kernel may write through either of them for a process
        // that died.
        for (file, at) in [(&self.meta, LOCK_AT), (&self.data, LOCK_AT + 1)] {
            match sys::lock_byte(file, at, libc::F_WRLCK)? {
                None => {}
                Some(libc::F_RDLCK) => return Ok(Lock::HeldFor(None)),
                Some(_) => return Ok(Lock::HeldFor(Some(FileUse::Writing))),
            }
        }
        // Programs older than the byte lock take only this lock. Any reader can take it, so it counts only if the
        // session is of such a program.
        if self.data.try_lock().is_err() && self.is_of_older_writer() {
            return Ok(Lock::HeldFor(Some(FileUse::Writing)));
        }
        if wanted == FileUse::Replacing
            && sys::lock_byte(&self.meta, READERS_AT, libc::F_WRLCK)?.is_some()
        {
            return Ok(Lock::HeldFor(Some(FileUse::Reading)));
        }
        Ok(Lock::Taken)
    }

    /// Whether another description has the writer's lock. This file may be open for reading only.
    pub(super) fn is_written_elsewhere(&self) -> io::Result<bool> {
        Ok(sys::is_write_locked(&self.meta, LOCK_AT)?
            || sys::is_write_locked(&self.meta, LOCK_AT + 1)?)
    }

    /// Whether a program that does not take the byte lock may have the disk open for writing.
    fn is_of_older_writer(&self) -> bool {
        let mut b = [0; SECTOR];
        let session = self.read_at(SESSION_AT, &mut b).ok().and_then(|()| Session::decode(&b));
        session.is_some_and(|s| !s.closed && s.opened == 0)
    }

    /// Sets the length of the file.
    pub(super) fn set_len(&self, len: u64) -> io::Result<()> {
        self.meta.set_len(len)
    }

    /// The description to move data of this memory with: the direct one if the data is long and aligned, and not
    /// `cached`.
    pub(super) fn fd_for(&self, s: &Segments, bytes: u64, cached: bool) -> RawFd {
        match self.direct.get() {
            Some(&(memory, length)) if cached || bytes < LONG || !s.is_aligned(memory, length) => {
                self.meta.as_raw_fd()
            }
            _ => self.data.as_raw_fd(),
        }
    }

    /// Whether data goes past the page cache.
    pub(super) fn is_direct(&self) -> bool {
        self.direct.get().is_some()
    }

    pub(super) fn place(&self) -> FilePlace {
        self.place
    }

    pub(super) fn is_tmpfs(&self) -> bool {
        self.tmpfs
    }

    /// Makes this file share all blocks of another one, and take its length. False: the file system cannot.
    pub(super) fn share(&self, from: &FileStorage) -> io::Result<bool> {
        sys::share(&self.meta, &from.meta)
    }

    /// Whether `next_data` and `hole_from` find everything that was written.
    pub(super) fn shows_holes(&self) -> bool {
        self.tells_holes || self.tmpfs
    }

    /// The next byte in a hole from `at` on.
    pub(super) fn hole_from(&self, at: u64) -> Option<u64> {
        sys::next_hole(&self.meta, at)
    }

    /// Allocates space for a range ahead of its writes.
    pub(super) fn preallocate(&self, at: u64, len: u64) -> io::Result<()> {
        sys::preallocate(&self.meta, at, len)
    }
}

/// `f_type` of tmpfs, where I/O is a copy of memory (statfs(2)).
const TMPFS: u64 = 0x0102_1994;
/// ext4, XFS, btrfs: a written range is never a hole, and a range whose write-back failed stays one. Other file
/// systems turn zeroes into holes (ZFS), or are untested.
const TELL_HOLES: [u64; 3] = [0xef53, 0x5846_5342, 0x9123_683e];

/// The bytes that a writer locks, far past the end of every disk: one for each description.
const LOCK_AT: i64 = 1 << 62;
/// The byte whose lock readers share. A program that replaces the file locks it exclusively.
const READERS_AT: i64 = LOCK_AT + 2;

/// The result of an attempt to lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lock {
    Taken,
    /// Another process has a lock, for this use. `None`: a read lock on the whole file, which zoneplug never takes.
    HeldFor(Option<FileUse>),
}

/// The error of a path that leads to another file than before.
fn another_file() -> io::Error {
    let what = "another file took its name while it was opened";
    io::Error::new(io::ErrorKind::ResourceBusy, what)
}

/// The identity of a file.
pub(super) fn place_of(m: &Metadata) -> FilePlace {
    FilePlace { device: m.dev(), inode: m.ino() }
}

/// The boot id of the system (random(4)).
fn boot_id() -> Option<[u8; 16]> {
    /// The two halves, and whether they are valid. There is no lock, because a child of a fork would wait for a
    /// thread that exists in its parent only. Threads that ask at the same time store the same values.
    static ID: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];
    static KNOWN: AtomicBool = AtomicBool::new(false);
    let id = || {
        let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        let hex: String = text.chars().filter(char::is_ascii_hexdigit).collect();
        u128::from_str_radix(&hex, 16).ok()
    };
    if !KNOWN.load(Ordering::Acquire) {
        let n = id().unwrap_or(0);
        ID[0].store((n >> 64) as u64, Ordering::Relaxed);
        ID[1].store(n as u64, Ordering::Relaxed);
        KNOWN.store(true, Ordering::Release);
    }
    let [high, low] = ID.each_ref().map(|half| half.load(Ordering::Relaxed));
    let n = u128::from(high) << 64 | u128::from(low);
    // A session with a boot id of zeroes has no valid notes.
    (n != 0).then(|| n.to_be_bytes())
}

/// Makes a range a hole, which keeps its space if the disk does. An error is no failure: no read shows what is there.
pub(super) fn make_hole(storage: &dyn Storage, keeps_space: bool, range: Range<u64>) {
    let len = range.end - range.start;
    let _ = match (len, keeps_space) {
        (0, _) => Ok(()),
        (_, true) => storage.unwrite(range.start, len),
        (_, false) => storage.punch(range.start, len),
    };
}

impl Storage for FileStorage {
    fn read_at(&self, at: u64, buf: &mut [u8]) -> io::Result<()> {
        // Readahead would put pages of holes into memory, and `next_hole` would take them for data.
        sys::read_ahead(&self.meta, false);
        let read = self.meta.read_exact_at(buf, at);
        sys::read_ahead(&self.meta, true);
        read
    }

    fn write_at(&self, at: u64, buf: &[u8]) -> io::Result<()> {
        self.meta.write_all_at(buf, at)
    }

    fn sync(&self) -> io::Result<()> {
        self.meta.sync_data()
    }

    fn punch(&self, at: u64, len: u64) -> io::Result<()> {
        sys::punch(&self.meta, at, len)
    }

    fn unwrite(&self, at: u64, len: u64) -> io::Result<()> {
        let done = sys::unwrite(&self.meta, at, len);
        if done.is_err() {
            // XFS gives the space back before it takes it again.
            let _ = sys::preallocate(&self.meta, at, len);
        }
        done
    }

    fn next_data(&self, at: u64) -> Option<u64> {
        sys::next_data(&self.meta, at)
    }

    fn tells_holes(&self) -> bool {
        self.tells_holes
    }

    fn next_hole(&self, at: u64) -> Option<u64> {
        if self.tells_holes { sys::next_hole(&self.meta, at) } else { None }
    }

    fn read_cached(&self, at: u64, buf: &mut [u8]) -> io::Result<usize> {
        if self.tmpfs {
            // On tmpfs memory is the medium.
            return Ok(0);
        }
        sys::read_ahead(&self.meta, false);
        let read = sys::read_cached(&self.meta, at, buf);
        sys::read_ahead(&self.meta, true);
        match read {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(0),
            // The file system does not support the flag, so everything counts as cached.
            Err(e) if e.raw_os_error() == Some(libc::EOPNOTSUPP) => self.meta.read_at(buf, at),
            read => read,
        }
    }

    fn forget(&self, at: u64, len: u64) -> io::Result<()> {
        if self.tmpfs { Ok(()) } else { sys::forget(&self.meta, at, len) }
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.meta.metadata()?.len())
    }

    fn boot_id(&self) -> Option<[u8; 16]> {
        boot_id()
    }

    fn file(&self) -> Option<&FileStorage> {
        Some(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Between the first open and the second, another file is renamed to the path.
    #[test]
    fn the_second_description_is_of_the_file_that_was_opened() {
        let dir = std::env::temp_dir().join(format!("zoneplug-storage-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let (a, b) = (dir.join("a"), dir.join("b"));
        std::fs::write(&a, [1; 4096]).unwrap();
        std::fs::write(&b, [2; 4096]).unwrap();
        let opened = OpenOptions::new().read(true).write(true).open(&a).unwrap();
        std::fs::rename(&b, &a).unwrap();
        let storage = FileStorage::of(opened, &a, true).unwrap();
        let mut byte = [0];
        for file in [&storage.meta, &storage.data] {
            file.read_exact_at(&mut byte, 0).unwrap();
            assert_eq!(byte, [1], "the other file");
        }
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
