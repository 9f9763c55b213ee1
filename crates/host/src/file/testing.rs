//! A storage whose power can be cut: records every write, hole and sync, and makes what any cut could leave. For tests
//! of this crate; a program never uses it.

use super::check::{CheckReport, check_in};
use super::format::{self, Layout, NOTE, PAGE, SESSION_AT};
use super::{Access, CreateOptions, Engine, FileDisk, Storage, create, load};
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use zoneplug_core::Error;

/// Bytes that a power cut leaves whole or not at all.
const SECTOR: u64 = 512;

/// A sector of a disk in memory.
type Sector = [u8; SECTOR as usize];

/// What happened to the storage since the last sync that counts.
#[derive(Debug, Clone)]
enum Event {
    Write { at: u64, bytes: Vec<u8> },
    Punch { at: u64, len: u64 },
    Sync,
}

/// What is left of a sector that was being written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Left {
    /// What was there before.
    Nothing,
    /// Something that is neither.
    Torn,
    /// All.
    All,
}

/// Sectors that are not zeroes.
#[derive(Clone, Default)]
struct Image(BTreeMap<u64, Box<Sector>>);

impl std::fmt::Debug for Image {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} sectors", self.0.len())
    }
}

impl Image {
    fn read(&self, at: u64, buf: &mut [u8]) {
        let mut done = 0;
        while done < buf.len() {
            let at = at + done as u64;
            let from = (at % SECTOR) as usize;
            let n = (buf.len() - done).min(SECTOR as usize - from);
            match self.0.get(&(at / SECTOR)) {
                Some(s) => buf[done..done + n].copy_from_slice(&s[from..from + n]),
                None => buf[done..done + n].fill(0),
            }
            done += n;
        }
    }

    fn write(&mut self, at: u64, bytes: &[u8]) {
        let mut done = 0;
        while done < bytes.len() {
            let at = at + done as u64;
            let from = (at % SECTOR) as usize;
            let n = (bytes.len() - done).min(SECTOR as usize - from);
            let sector = self.0.entry(at / SECTOR).or_insert_with(|| Box::new([0; 512]));
            sector[from..from + n].copy_from_slice(&bytes[done..done + n]);
            done += n;
        }
    }

    fn apply(&mut self, e: &Event) {
        match e {
            Event::Write { at, bytes } => self.write(*at, bytes),
            Event::Punch { at, len } => {
                let (first, end) = (at / SECTOR, (at + len) / SECTOR);
                let gone: Vec<u64> = self.0.range(first..end).map(|(n, _)| *n).collect();
                for n in gone {
                    self.0.remove(&n);
                }
            }
            Event::Sync => {}
        }
    }
}

#[derive(Debug, Default)]
struct Inner {
    /// What a process sees.
    now: Image,
    /// What was durable when the log begins.
    base: Image,
    log: Vec<Event>,
    boot: u8,
    /// Bytes that writes may still use; then they fail.
    room: Option<u64>,
    /// Syncs fail.
    failing: bool,
    len: u64,
}

/// Where a disk has what, in bytes of its storage: for tests that damage it.
#[derive(Debug, Clone, Copy)]
pub struct Places {
    /// Both copies of the superblock.
    pub supers: [u64; 2],
    /// How many zones there are.
    pub nr_zones: u32,
    /// The session.
    pub session: u64,
    /// Both copies of the table, and how many sectors each has.
    pub tables: [u64; 2],
    /// See `tables`.
    pub groups: u32,
    /// The notes.
    pub notes: u64,
    /// The zones, and from one to the next.
    pub data: u64,
    /// See `data`.
    pub stride: u64,
    /// The end.
    pub len: u64,
}

/// Memory that forgets like a disk.
#[derive(Debug)]
pub struct CutStorage {
    layout: Layout,
    inner: Mutex<Inner>,
}

impl CutStorage {
    /// A disk in memory, as `create` makes it, but for its UUID and time: the same options give the same bytes.
    pub fn create(o: &CreateOptions) -> Result<Arc<CutStorage>, Error> {
        let sup = format::Super::new(o, [0x55; 16], 0)?;
        let sup = format::Super { keeps_space: o.preallocate, ..sup };
        let layout = Layout::of(&sup.geometry);
        let s = Arc::new(CutStorage { layout, inner: Mutex::default() });
        s.lock().boot = 1;
        s.lock().len = layout.len;
        create::format(&*s, &sup)
            .map_err(|e| load::io_error("cannot format memory".to_owned(), e))?;
        s.settle();
        Ok(s)
    }

    /// Opens the disk in it; everything happens in the caller's thread.
    pub fn open(self: &Arc<Self>, access: Access) -> Result<Arc<FileDisk>, Error> {
        let head = load::head(&**self, "memory")?;
        let write = access == Access::ReadWrite;
        FileDisk::with(self.clone(), head, write, Engine::Inline, false, "memory")
    }

    /// Opens the disk in it with threads of its own, as a file without io_uring.
    pub fn open_with_threads(self: &Arc<Self>) -> Result<Arc<FileDisk>, Error> {
        let head = load::head(&**self, "memory")?;
        FileDisk::with(self.clone(), head, true, Engine::Threads, true, "memory")
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes all that was written durable, and forgets how it came about.
    pub fn settle(&self) {
        let mut s = self.lock();
        s.base = s.now.clone();
        s.log.clear();
    }

    /// How many events there are: moments at which the power can be cut.
    pub fn moments(&self) -> usize {
        self.lock().log.len()
    }

    /// From now on only so many bytes can be written to the data area.
    pub fn leave_room(&self, bytes: Option<u64>) {
        self.lock().room = bytes;
    }

    /// From now on syncs fail, or no longer.
    pub fn fail_syncs(&self, failing: bool) {
        self.lock().failing = failing;
    }

    /// The storage as it was after the first `moment` events, for another process while the power stays on.
    pub fn after_kill(&self, moment: usize) -> Arc<CutStorage> {
        let s = self.lock();
        let mut image = s.base.clone();
        s.log[..moment].iter().for_each(|e| image.apply(e));
        self.with(image, s.boot, s.len)
    }

    /// What a power cut after the first `moment` events leaves. Everything before the last sync among these is there;
    /// of each sector of a later event `pick` says what is. A torn sector is only ever one of the table and its
    /// neighbours: they have checksums, data is the client's.
    pub fn after_cut(&self, moment: usize, pick: &mut dyn FnMut() -> Left) -> Arc<CutStorage> {
        let s = self.lock();
        let log = &s.log[..moment];
        let synced = log.iter().rposition(|e| matches!(e, Event::Sync)).map_or(0, |i| i + 1);
        let mut image = s.base.clone();
        log[..synced].iter().for_each(|e| image.apply(e));
        for e in &log[synced..] {
            match e {
                Event::Write { at, bytes } => {
                    let mut done = 0;
                    while done < bytes.len() {
                        let at = at + done as u64;
                        let n = ((SECTOR - at % SECTOR) as usize).min(bytes.len() - done);
                        match pick() {
                            Left::Nothing => {}
                            Left::Torn if at < self.layout.data => image.write(at, &vec![0x5a; n]),
                            Left::Torn | Left::All => image.write(at, &bytes[done..done + n]),
                        }
                        done += n;
                    }
                }
                // The file system's journal does it whole or not at all.
                Event::Punch { .. } if pick() != Left::Nothing => image.apply(e),
                Event::Punch { .. } | Event::Sync => {}
            }
        }
        self.with(image, s.boot.wrapping_add(1), s.len)
    }

    fn with(&self, image: Image, boot: u8, len: u64) -> Arc<CutStorage> {
        let log = Vec::new();
        let inner =
            Inner { base: image.clone(), now: image, boot, log, room: None, failing: false, len };
        Arc::new(CutStorage { layout: self.layout, inner: Mutex::new(inner) })
    }

    fn event(&self, e: Event) {
        let mut s = self.lock();
        s.now.apply(&e);
        s.log.push(e);
    }

    /// Overwrites bytes, without a trace in the log.
    pub fn damage(&self, at: u64, bytes: &[u8]) {
        let mut s = self.lock();
        s.now.write(at, bytes);
        s.base.write(at, bytes);
    }

    /// Where the disk that was made has what.
    pub fn places(&self) -> Places {
        let Layout { tables, groups, notes, data, stride, len } = self.layout;
        let (supers, nr_zones) = (self.layout.supers(), ((len - PAGE - data) / stride) as u32);
        Places { supers, nr_zones, session: SESSION_AT, tables, groups, notes, data, stride, len }
    }

    /// Cuts off the end, or makes it longer by a hole, without a trace in the log.
    pub fn resize(&self, len: u64) {
        let mut s = self.lock();
        s.len = len;
        s.now.0.split_off(&len.div_ceil(SECTOR));
        s.base.0.split_off(&len.div_ceil(SECTOR));
    }

    /// Makes the checksum of the structure that has the byte at `at` right, without a trace in the log.
    pub fn seal(&self, at: u64) {
        let l = &self.layout;
        // Where the structure is, its length, where its checksum is, and from where on that counts.
        let (start, len, sum, from) = if (l.notes..l.data).contains(&at) {
            (at / NOTE * NOTE, NOTE as usize, 0, 4)
        } else if at < PAGE || at >= l.supers()[1] {
            (at / PAGE * PAGE, 512, 16, 20)
        } else if at < l.notes {
            (at / SECTOR * SECTOR, 512, 4, 8)
        } else {
            return;
        };
        let mut b = vec![0; len];
        self.lock().now.read(start, &mut b);
        let crc = format::crc32c(&b[from..]);
        self.damage(start + sum, &crc.to_le_bytes());
    }

    /// Checks the disk, as [`super::check`] does a file.
    pub fn check(&self, repair: bool) -> Result<CheckReport, Error> {
        check_in(self, "memory", repair)
    }
}

impl Storage for CutStorage {
    fn read_at(&self, at: u64, buf: &mut [u8]) -> io::Result<()> {
        let s = self.lock();
        if at.saturating_add(buf.len() as u64) > s.len {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        s.now.read(at, buf);
        Ok(())
    }

    fn write_at(&self, at: u64, buf: &[u8]) -> io::Result<()> {
        if buf.len() as u64 > SECTOR {
            let mut s = self.lock();
            if let Some(room) = &mut s.room {
                let len = buf.len() as u64;
                if *room < len {
                    return Err(io::ErrorKind::StorageFull.into());
                }
                *room -= len;
            }
        }
        self.event(Event::Write { at, bytes: buf.to_vec() });
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        if self.lock().failing {
            return Err(io::Error::other("a sync that fails"));
        }
        self.event(Event::Sync);
        Ok(())
    }

    fn punch(&self, at: u64, len: u64) -> io::Result<()> {
        if !at.is_multiple_of(SECTOR) || !len.is_multiple_of(SECTOR) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        self.event(Event::Punch { at, len });
        Ok(())
    }

    fn next_data(&self, at: u64) -> Option<u64> {
        let s = self.lock();
        s.now.0.range(at / SECTOR..).next().map(|(n, _)| (n * SECTOR).max(at))
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.lock().len)
    }

    fn boot_id(&self) -> Option<[u8; 16]> {
        Some([self.lock().boot; 16])
    }
}
