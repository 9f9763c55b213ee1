//! For tests: a storage whose power can be cut and whose syncs can fail. It records every write, hole and sync, and
//! can produce every state that a cut, a kill or a failure may leave. No program uses this.
//!
//! A failed sync behaves as in Linux: pages that could not be written count as clean, and processes see them until
//! memory is short (`medium.rs`).

mod medium;

use super::check::{CheckReport, check_in, new_uuid_in};
use super::format::{self, Layout, NOTE, PAGE, SESSION_AT};
use super::{Access, CreateOptions, Engine, FileDisk, Identity, Storage, create, load};
use medium::{Memory, SECTOR, StorageChange};
use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use zoneplug_core::{Error, Random};

/// The state of a sector that was being written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Left {
    /// The old content.
    Nothing,
    /// Neither the old nor the new content.
    Torn,
    /// The new content.
    All,
}

/// The syncs that fail, and the pages that they lose.
#[derive(Debug, Clone, Copy)]
struct Failing {
    /// Syncs that succeed first.
    after: u64,
    /// Syncs that fail after these.
    times: u64,
    /// Draws the pages that are lost. 0: all.
    seed: u64,
}

/// Calls to make while a process reads the storage: each before the next read of a place, in this order.
#[derive(Default)]
struct Meanwhile(VecDeque<(u64, Box<dyn FnOnce() + Send>)>);

impl std::fmt::Debug for Meanwhile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} to come", self.0.len())
    }
}

/// Calls to make before and after the next write of a place.
struct AroundWrite {
    at: u64,
    before: Box<dyn FnOnce() + Send>,
    after: Box<dyn FnOnce() + Send>,
}

impl std::fmt::Debug for AroundWrite {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "at {}", self.at)
    }
}

#[derive(Debug, Default)]
struct Inner {
    /// The state at the start of the log.
    first: Memory,
    now: Memory,
    log: Vec<StorageChange>,
    boot: u8,
    /// Bytes that writes may still allocate. Without room they fail.
    room: Option<u64>,
    failing: Option<Failing>,
    len: u64,
    /// The boot id is unknown.
    no_boot_id: bool,
    /// The file system tells no holes.
    no_holes: bool,
    /// The next sync panics.
    panics: bool,
    /// Bytes that were read.
    read: u64,
    meanwhile: Meanwhile,
    around_write: Option<AroundWrite>,
}

impl Inner {
    /// The storage after the first `moment` events.
    fn at(&self, moment: usize) -> Memory {
        let mut m = self.first.clone();
        self.log[..moment].iter().for_each(|e| m.apply(e));
        m
    }

    fn event(&mut self, e: StorageChange) {
        self.now.apply(&e);
        self.log.push(e);
    }

    /// Writing back fails: loses the dirty pages that `seed` draws.
    fn lose(&mut self, seed: u64, silent: bool) {
        let lost = self.now.dirty_sectors().into_iter().filter(|n| drawn(seed, n / 8));
        let lost = lost.collect();
        self.event(StorageChange::Failed { lost, silent });
    }
}

/// Whether `seed` draws this page; 0 draws all.
fn drawn(seed: u64, page: u64) -> bool {
    seed == 0 || Random::new(seed.wrapping_add(page)).draw() & 1 == 1
}

/// The places of a disk's structures, in bytes of its storage, for tests that damage them.
#[derive(Debug, Clone, Copy)]
pub struct Places {
    /// Both copies of the superblock.
    pub supers: [u64; 2],
    /// Number of zones.
    pub nr_zones: u32,
    /// The session.
    pub session: u64,
    /// Both copies of the table, and the sectors of each.
    pub tables: [u64; 2],
    /// See `tables`.
    pub groups: u32,
    /// The notes.
    pub notes: u64,
    /// The data of the zones, and the distance between two zones.
    pub data: u64,
    /// See `data`.
    pub stride: u64,
    /// The length of the storage.
    pub len: u64,
}

/// A storage in memory that can lose unsynced data, as a disk does in a power cut.
#[derive(Debug)]
pub struct CutStorage {
    layout: Layout,
    inner: Mutex<Inner>,
}

impl CutStorage {
    /// A disk in memory, as `create` makes it, except for its UUID and time: the same options give the same
    /// bytes.
    pub fn create(o: &CreateOptions) -> Result<Arc<CutStorage>, Error> {
        let sup = format::Super::new(o, [0x55; 16], 0)?;
        let sup = format::Super { keeps_space: o.preallocate, ..sup };
        let layout = Layout::of(&sup.geometry);
        let s = Arc::new(CutStorage { layout, inner: Mutex::default() });
        s.lock().boot = 1;
        s.lock().len = layout.len;
        create::format(&*s, &sup)
            .map_err(|e| load::io_error("cannot format memory".to_owned(), e))?;
        s.make_durable();
        Ok(s)
    }

    /// Opens the disk. Everything runs in the caller's thread.
    pub fn open(self: &Arc<Self>, access: Access) -> Result<Arc<FileDisk>, Error> {
        let head = load::head(&**self, "memory")?;
        let write = access == Access::ReadWrite;
        FileDisk::with(self.clone(), head, write, Engine::Inline, false, "memory")
    }

    /// Opens the disk with threads, as a file without io_uring.
    pub fn open_with_threads(self: &Arc<Self>) -> Result<Arc<FileDisk>, Error> {
        let head = load::head(&**self, "memory")?;
        FileDisk::with(self.clone(), head, true, Engine::Threads, true, "memory")
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        zoneplug_core::poison::lock(&self.inner)
    }

    /// Makes everything durable, and clears the log.
    pub fn make_durable(&self) {
        let mut s = self.lock();
        s.now.make_durable();
        s.first = s.now.clone();
        s.log.clear();
    }

    /// Clears the log. Writes that are not durable stay so.
    pub fn begin(&self) {
        let mut s = self.lock();
        s.first = s.now.clone();
        s.log.clear();
    }

    /// The number of events in the log. The power can be cut after each.
    pub fn moments(&self) -> usize {
        self.lock().log.len()
    }

    /// Limits the bytes that can still be written to the data area.
    pub fn limit_room(&self, bytes: Option<u64>) {
        self.lock().room = bytes;
    }

    /// Makes syncs fail from now on, or succeed again. A failed sync loses all writes since the last successful one.
    pub fn fail_syncs(&self, failing: bool) {
        self.lock().failing = failing.then_some(Failing { after: 0, times: u64::MAX, seed: 0 });
    }

    /// After `after` syncs, `times` syncs fail. They lose the pages that `seed` draws; 0 draws all.
    pub fn fail_some_syncs(&self, after: u64, times: u64, seed: u64) {
        self.lock().failing = Some(Failing { after, times, seed });
    }

    /// Makes the kernel's own write-back fail. The pages that `seed` draws are lost; 0 draws all. The next sync of
    /// any file reports it.
    pub fn fail_writing_back(&self, seed: u64) {
        self.lock().lose(seed, true);
    }

    /// Memory is short: the clean pages that `seed` draws are read from the medium from now on; 0 draws all.
    pub fn evict(&self, seed: u64) {
        let mut s = self.lock();
        let sectors = s.now.phantoms().into_iter().filter(|n| drawn(seed, n / 8)).collect();
        s.event(StorageChange::Evict { sectors });
    }

    /// The moment of the first failed write-back in the log.
    pub fn first_failure(&self) -> Option<usize> {
        self.lock().log.iter().position(|e| matches!(e, StorageChange::Failed { .. }))
    }

    /// The next sync panics, as a bug would.
    pub fn panic_in_sync(&self) {
        self.lock().panics = true;
    }

    /// The number of bytes that were read so far.
    pub fn bytes_read(&self) -> u64 {
        self.lock().read
    }

    /// Calls `then` once, before the next read of the byte at `at`, and after all calls that were requested earlier.
    /// Such calls play a writer that works while another process reads.
    pub fn before_read(&self, at: u64, then: impl FnOnce() + Send + 'static) {
        self.lock().meanwhile.0.push_back((at, Box::new(then)));
    }

    /// Makes the calls that are due before a read of this range. A call may use the storage.
    fn meanwhile(&self, range: Range<u64>) {
        let mut s = self.lock();
        if s.meanwhile.0.front().is_some_and(|(at, _)| range.contains(at)) {
            let next = s.meanwhile.0.pop_front();
            drop(s);
            if let Some((_, then)) = next {
                then();
            }
        }
    }

    /// Calls `before` and `after` once, around the next write of the byte at `at`: what other threads do while its
    /// command is in flight. The calls may use the storage.
    pub fn around_write(
        &self,
        at: u64,
        before: impl FnOnce() + Send + 'static,
        after: impl FnOnce() + Send + 'static,
    ) {
        let (before, after) = (Box::new(before), Box::new(after));
        self.lock().around_write = Some(AroundWrite { at, before, after });
    }

    /// Makes the boot id unknown from now on.
    pub fn without_boot_id(&self) {
        self.lock().no_boot_id = true;
    }

    /// The file system tells no holes from now on.
    pub fn without_holes(&self) {
        self.lock().no_holes = true;
    }

    /// The storage after the first `moment` events, as another process sees it while the power stays on.
    pub fn after_kill(&self, moment: usize) -> Arc<CutStorage> {
        let s = self.lock();
        self.with(s.at(moment), s.boot, &s)
    }

    /// The storage that a power cut after the first `moment` events leaves. It has everything up to the last sync
    /// among these; `pick` draws the state of each sector of a later event. Only sectors of the table and its
    /// neighbours are ever torn: they have checksums, and data is the client's.
    pub fn after_cut(&self, moment: usize, pick: &mut dyn FnMut() -> Left) -> Arc<CutStorage> {
        let s = self.lock();
        let Memory { medium: mut image, dirty, .. } = s.at(moment);
        for e in &dirty {
            match e {
                StorageChange::Write { at, bytes } => {
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
                // The journal of the file system makes a hole completely or not at all.
                StorageChange::Punch { at, len } if pick() != Left::Nothing => {
                    image.punch(*at, *len);
                }
                _ => {}
            }
        }
        let m = Memory { seen: image.clone(), medium: image, ..Memory::default() };
        self.with(m, s.boot.wrapping_add(1), &s)
    }

    /// The storage after a power cut that keeps the holes, and loses all else that was not synced.
    pub fn after_cut_with_holes(&self, moment: usize) -> Arc<CutStorage> {
        let s = self.lock();
        let Memory { medium: mut image, dirty, .. } = s.at(moment);
        for e in &dirty {
            if let StorageChange::Punch { at, len } = e {
                image.punch(*at, *len);
            }
        }
        let m = Memory { seen: image.clone(), medium: image, ..Memory::default() };
        self.with(m, s.boot.wrapping_add(1), &s)
    }

    fn with(&self, now: Memory, boot: u8, of: &Inner) -> Arc<CutStorage> {
        let inner = Inner {
            first: now.clone(),
            now,
            boot,
            len: of.len,
            no_boot_id: of.no_boot_id,
            no_holes: of.no_holes,
            ..Inner::default()
        };
        Arc::new(CutStorage { layout: self.layout, inner: Mutex::new(inner) })
    }

    fn event(&self, e: StorageChange) {
        self.lock().event(e);
    }

    /// Overwrites bytes without a log entry.
    pub fn damage(&self, at: u64, bytes: &[u8]) {
        let mut s = self.lock();
        s.now.damage(at, bytes);
        s.first.damage(at, bytes);
    }

    /// The places of the disk's structures.
    pub fn places(&self) -> Places {
        let Layout { tables, groups, notes, data, stride, len } = self.layout;
        let (supers, nr_zones) = (self.layout.supers(), ((len - PAGE - data) / stride) as u32);
        Places { supers, nr_zones, session: SESSION_AT, tables, groups, notes, data, stride, len }
    }

    /// Cuts off the end, or appends a hole, without a log entry.
    pub fn resize(&self, len: u64) {
        let mut s = self.lock();
        s.len = len;
        s.now.truncate(len);
        s.first.truncate(len);
    }

    /// Corrects the checksum of the structure that contains the byte at `at`, without a log entry.
    pub fn seal(&self, at: u64) {
        let l = &self.layout;
        // The structure's start, its length, the place of its checksum, and the first byte that the
        // checksum covers.
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
        self.lock().now.seen.read(start, &mut b);
        let crc = crc32c::crc32c(&b[from..]);
        self.damage(start + sum, &crc.to_le_bytes());
    }

    /// Gives the disk a UUID, as [`super::new_uuid`] does that in a file.
    pub fn new_uuid(&self) -> Result<Identity, Error> {
        new_uuid_in(self, "memory")
    }

    /// Checks the disk, as [`super::check`] does a file.
    pub fn check(&self, repair: bool) -> Result<CheckReport, Error> {
        check_in(self, "memory", repair)
    }
}

impl Storage for CutStorage {
    fn read_at(&self, at: u64, buf: &mut [u8]) -> io::Result<()> {
        self.meanwhile(at..at.saturating_add(buf.len() as u64));
        let mut s = self.lock();
        s.read += buf.len() as u64;
        if at.saturating_add(buf.len() as u64) > s.len {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        s.now.seen.read(at, buf);
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
        let range = at..at.saturating_add(buf.len() as u64);
        let around = self.lock().around_write.take_if(|a| range.contains(&a.at));
        let after = around.map(|a| {
            (a.before)();
            a.after
        });
        self.event(StorageChange::Write { at, bytes: buf.to_vec() });
        if let Some(after) = after {
            after();
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut s = self.lock();
        assert!(!std::mem::take(&mut s.panics), "a sync that panics");
        let failed = || io::Error::other("a sync that fails");
        if let Some(f) = &mut s.failing {
            if f.after > 0 {
                f.after -= 1;
            } else if f.times > 0 {
                f.times -= 1;
                let seed = f.seed;
                s.lose(seed, false);
                return Err(failed());
            }
        }
        let unreported = s.now.unreported;
        s.event(StorageChange::Sync);
        if unreported { Err(failed()) } else { Ok(()) }
    }

    fn punch(&self, at: u64, len: u64) -> io::Result<()> {
        if !at.is_multiple_of(SECTOR) || !len.is_multiple_of(SECTOR) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        self.event(StorageChange::Punch { at, len });
        Ok(())
    }

    /// This model knows no space, only content.
    fn unwrite(&self, at: u64, len: u64) -> io::Result<()> {
        self.punch(at, len)
    }

    fn next_data(&self, at: u64) -> Option<u64> {
        let s = self.lock();
        s.now.seen.0.range(at / SECTOR..).next().map(|(n, _)| (n * SECTOR).max(at))
    }

    fn tells_holes(&self) -> bool {
        !self.lock().no_holes
    }

    fn next_hole(&self, at: u64) -> Option<u64> {
        let s = self.lock();
        if s.no_holes {
            return None;
        }
        (at / SECTOR..s.len / SECTOR).find(|n| !s.now.seen.0.contains_key(n)).map(|n| n * SECTOR)
    }

    fn read_cached(&self, at: u64, buf: &mut [u8]) -> io::Result<usize> {
        self.read_at(at, buf).map(|()| buf.len())
    }

    fn forget(&self, at: u64, len: u64) -> io::Result<()> {
        let mut s = self.lock();
        let range = at / SECTOR..at.saturating_add(len).div_ceil(SECTOR);
        let sectors = s.now.phantoms().into_iter().filter(|n| range.contains(n)).collect();
        s.event(StorageChange::Evict { sectors });
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.lock().len)
    }

    fn boot_id(&self) -> Option<[u8; 16]> {
        let s = self.lock();
        (!s.no_boot_id).then_some([s.boot; 16])
    }
}
