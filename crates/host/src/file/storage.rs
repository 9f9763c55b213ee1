//! What a disk is stored in: a small trait, so that tests can cut its power, and a file.

use super::FilePlace;
use super::format::{PAGE, SECTOR, SESSION_AT, Session};
use super::sys;
use crate::ring::{Segments, transfer_now};
use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::OnceLock;
use zoneplug_buf::IoBuf;

/// Shorter commands go through the page cache, although it could be passed. A sequential zone has one write in flight,
/// so with direct I/O the latency of the device, not its bandwidth, would limit small writes; drives have a write
/// cache for the same reason, and this one survives the process.
const LONG: u64 = 256 << 10;

/// Where the bytes of a disk are, and what it does with them.
///
/// A write that returned is seen by every later read, and survives the process. Only what [`Storage::sync`] covers
/// survives the power: of what was written since, any subset may be there, in units of 512 bytes.
pub trait Storage: Send + Sync + std::fmt::Debug {
    /// Fills `buf` from `at`.
    fn read_at(&self, at: u64, buf: &mut [u8]) -> io::Result<()>;

    /// Writes `buf` at `at`.
    fn write_at(&self, at: u64, buf: &[u8]) -> io::Result<()>;

    /// Makes durable what was written and punched. After an error nobody knows what of it is durable: what was not
    /// written then is not written by a later call either, unless it is given to `write_at` again.
    fn sync(&self) -> io::Result<()>;

    /// Makes a range zeroes and gives its space back. An error of kind `Unsupported` says that it cannot.
    fn punch(&self, at: u64, len: u64) -> io::Result<()>;

    /// The next byte from `at` on that is not in a hole. `None`: there are only holes, or it cannot be told.
    fn next_data(&self, at: u64) -> Option<u64>;

    /// The first byte from `at` on that is in a hole, so neither on the medium nor in memory, where data that was
    /// written never is, zeroes neither. `None`: there is none, or it cannot be told.
    fn next_hole(&self, _at: u64) -> Option<u64> {
        None
    }

    /// Reads what is in memory from `at` on, and from the medium nothing; says how many bytes that is.
    fn read_cached(&self, at: u64, buf: &mut [u8]) -> io::Result<usize>;

    /// Forgets what memory has of a range that was synced: the next read is from the medium.
    fn forget(&self, at: u64, len: u64) -> io::Result<()>;

    /// Bytes.
    fn len(&self) -> io::Result<u64>;

    /// Whether there is no byte.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// In which life of the system this is: the same number for as long as the power stays on. `None`: unknown.
    fn boot_id(&self) -> Option<[u8; 16]>;

    /// Moves the first `len` bytes that `bufs` name, all of one command, to or from `at`.
    fn transfer(
        &self,
        write: bool,
        at: u64,
        bufs: &mut dyn Iterator<Item = (IoBuf, u32)>,
    ) -> io::Result<()> {
        let mut at = at;
        for (buf, len) in bufs {
            let mut bytes = vec![0; len as usize];
            if write {
                buf.copy_to(0, &mut bytes);
                self.write_at(at, &bytes)?;
            } else {
                self.read_at(at, &mut bytes)?;
                buf.copy_from(0, &bytes);
            }
            at += u64::from(len);
        }
        Ok(())
    }

    /// The file behind it, for I/O that goes past this trait.
    fn file(&self) -> Option<&FileStorage> {
        None
    }
}

/// A file: two descriptions of it, one for the table and one for the data, which may be direct.
#[derive(Debug)]
pub struct FileStorage {
    /// Table, notes, everything small, and data whose memory direct I/O does not take.
    meta: File,
    /// Data. The same file, opened through `meta`: its path may name another one by now.
    data: File,
    /// Direct: alignment of memory, of offsets and lengths.
    direct: OnceLock<(usize, usize)>,
    tmpfs: bool,
    /// A range that was written is no hole, whatever it was written with.
    tells_holes: bool,
    place: FilePlace,
}

impl FileStorage {
    /// Opens a file.
    pub(super) fn open(path: &Path, write: bool) -> io::Result<FileStorage> {
        // A FIFO would keep the caller waiting. It is refused below.
        let flags = libc::O_NONBLOCK;
        let meta = OpenOptions::new().read(true).write(write).custom_flags(flags).open(path)?;
        FileStorage::of(meta, path, write)
    }

    /// The storage in an open file, which `path` named when it was opened.
    pub(super) fn of(meta: File, path: &Path, write: bool) -> io::Result<FileStorage> {
        let m = meta.metadata()?;
        if !m.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
        }
        sys::set_blocking(&meta)?;
        let place = place_of(&m);
        let again = |path: &Path| OpenOptions::new().read(true).write(write).open(path);
        let data = again(Path::new(&format!("/proc/self/fd/{}", meta.as_raw_fd())))
            // Where there is no /proc.
            .or_else(|_| again(path))?;
        if place_of(&data.metadata()?) != place {
            let what = "another file took its name while it was opened";
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, what));
        }
        let kind = sys::file_system(&meta);
        let (tmpfs, tells_holes) =
            (kind == Some(TMPFS), kind.is_some_and(|k| TELL_HOLES.contains(&k)));
        Ok(FileStorage { meta, data, direct: OnceLock::new(), tmpfs, tells_holes, place })
    }

    /// Moves data past the page cache from now on, where the file system can and every offset and length is a
    /// multiple of a page (`unit` bytes): then a command whose memory is not aligned may go through the page cache,
    /// for no page ever belongs to two commands.
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

    /// Takes the lock of a writer, on both descriptions: the kernel may write through either for a process that died.
    /// `docs/disk-format.md` says why this lock.
    pub(super) fn lock(&self) -> io::Result<Lock> {
        for (file, at) in [(&self.meta, LOCK_AT), (&self.data, LOCK_AT + 1)] {
            match sys::lock_byte(file, at)? {
                None => {}
                Some(libc::F_RDLCK) => return Ok(Lock::Reader),
                Some(_) => return Ok(Lock::Writer),
            }
        }
        // Programs before the byte lock knew only this one. Who may only read can have it, so it is not asked for more
        // than it is worth.
        if self.data.try_lock().is_err() && self.is_of_older_writer() {
            return Ok(Lock::Writer);
        }
        Ok(Lock::Taken)
    }

    /// Whether a program that does not take the byte lock may still have the disk open for writing.
    fn is_of_older_writer(&self) -> bool {
        let mut b = [0; SECTOR];
        let session = self.read_at(SESSION_AT, &mut b).ok().and_then(|()| Session::decode(&b));
        session.is_some_and(|s| !s.closed && s.opened == 0)
    }

    /// The length of the file.
    pub(super) fn set_len(&self, len: u64) -> io::Result<()> {
        self.meta.set_len(len)
    }

    /// The description for data in such memory: past the page cache if it is long and aligned, and not `cached`.
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

    /// Finds space for a range ahead of its writes.
    pub(super) fn preallocate(&self, at: u64, len: u64) -> io::Result<()> {
        sys::preallocate(&self.meta, at, len)
    }
}

/// `f_type` of tmpfs, where I/O is a copy of memory (statfs(2)).
const TMPFS: i64 = 0x0102_1994;
/// ext4, XFS, btrfs: what was written there never is a hole, and a range that could not be written stays one. Others
/// make holes of zeroes (ZFS), or nobody has looked.
const TELL_HOLES: [i64; 3] = [0xef53, 0x5846_5342, 0x9123_683e];

/// The bytes of the lock, far past the end of every disk: one for each description.
const LOCK_AT: i64 = 1 << 62;

/// What came of an attempt to lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lock {
    Taken,
    /// Somebody has it open for writing.
    Writer,
    /// Somebody has a read lock on all of the file, which no zoneplug takes.
    Reader,
}

/// Which file this is of.
pub(super) fn place_of(m: &Metadata) -> FilePlace {
    FilePlace { device: m.dev(), inode: m.ino() }
}

/// The number of this life of the system (random(4)).
fn boot_id() -> Option<[u8; 16]> {
    static ID: OnceLock<Option<[u8; 16]>> = OnceLock::new();
    *ID.get_or_init(|| {
        let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        let hex: String = text.chars().filter(char::is_ascii_hexdigit).collect();
        let n = u128::from_str_radix(&hex, 16).ok()?;
        // Zeroes say in a session that no note of it counts.
        (n != 0).then(|| n.to_be_bytes())
    })
}

impl Storage for FileStorage {
    fn read_at(&self, at: u64, buf: &mut [u8]) -> io::Result<()> {
        // What is read ahead is in memory, where `next_hole` takes it for data.
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

    fn next_data(&self, at: u64) -> Option<u64> {
        sys::next_data(&self.meta, at)
    }

    fn next_hole(&self, at: u64) -> Option<u64> {
        if self.tells_holes { sys::next_hole(&self.meta, at) } else { None }
    }

    fn read_cached(&self, at: u64, buf: &mut [u8]) -> io::Result<usize> {
        if self.tmpfs {
            // Memory is the medium.
            return Ok(0);
        }
        sys::read_ahead(&self.meta, false);
        let read = sys::read_cached(&self.meta, at, buf);
        sys::read_ahead(&self.meta, true);
        match read {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(0),
            // It cannot be told, so all is taken to be there.
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

    fn transfer(
        &self,
        write: bool,
        at: u64,
        bufs: &mut dyn Iterator<Item = (IoBuf, u32)>,
    ) -> io::Result<()> {
        // Buffered: no descriptor that wants memory to be aligned.
        transfer_now(self.meta.as_raw_fd(), write, at, bufs)
    }

    fn file(&self) -> Option<&FileStorage> {
        Some(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The name goes to another file between the first open and the second.
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
