//! The journal: which appends the clients of a device were told of, for the next server if this one is killed. It is
//! a file in memory (tmpfs), mapped and shared, so its stores survive the process. `queue.rs` stores,
//! `journal_file.rs` opens it, `replay.rs` asks for the remaining space. Nothing here waits for a disk.
//!
//! The journal errs on one side only: it has every append that a client *may* have been told of. So each store comes
//! before the kernel gets the answer that it is about, and whatever is unknown hides space:
//!
//! | word | what it says |
//! | --- | --- |
//! | one for each zone | the offset from which on there may be space that no client was told of, and the *generation* of the zone, which counts its resets |
//! | a ring for each queue | the last appends that it acknowledged: sector, length, generation. An entry that falls out of the ring hides its zone up to the entry's end |
//!
//! * A write other than an append hides its whole zone until a reset, both when it is sent and when it comes back. A
//!   finish does the same, because the end of the zone is unknown. So a zone that is *not* hidden has had nothing but
//!   appends.
//! * An acknowledged reset shows all of its zone: entries of another generation no longer count. An append that is
//!   acknowledged while a reset is in flight may have landed before or after it, so the zone stays hidden.
//! * Stores are in program order, and a killed process has done all stores up to some instruction. So no entry is
//!   half written: it is overwritten only after its zone is hidden up to its end, and it counts only after its append
//!   was acknowledged.
//!
//! A server believes the file if it is about this device (the kernel's object, not its number), of this boot and this
//! shape, and was kept by the last server. Each server leaves a *stamp* at the device to prove that
//! (`journal_file.rs`). Otherwise the server searches a zone only after its next reset.

use super::bases::DiskState;
use super::shared_words::{self, SharedWords};
#[cfg(feature = "nvme-tcp")]
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed, Ordering::Release};
use zoneplug_core::zone::{Condition, Geometry, ZoneInfo};
use zoneplug_core::{Op, Sector, ZoneNo};
use zoneplug_recovery::written_in;

/// The offset of a zone that is completely hidden.
pub(crate) const HIDDEN: u32 = u32::MAX;

/// The version of the layout.
pub(crate) const VERSION: u64 = 2;
/// `zptold` and the version.
const MAGIC: u64 = VERSION << 48 | 0x646c_6f74_707a;
/// Words of the header: one page.
const HEADER: usize = 512;
/// Words before the entries of a ring, of which the first counts all entries ever written. A cache line,
/// because each queue has a thread.
const RING_HEADER: usize = 8;
/// Words of an entry.
const ENTRY: usize = 2;
/// Entries of a ring: so many for each request of the queue, up to `MAX_ENTRIES`. If more appends of the queue were
/// acknowledged after an append, its entry is gone and its space hidden.
const ENTRIES_PER_REQUEST: usize = 16;
const MAX_ENTRIES: usize = 16_384;
/// The header words with the stamps of the server that keeps the journal and of the one before. From here on, words
/// are not compared.
const KEEPER: usize = 10;
const KEEPER_BEFORE: usize = 11;
/// The note of the server that keeps the journal: the place of its disks, how often they were opened, and their paths
/// as bytes that end with a 0.
const PLACE: usize = 12;
const OPENED: usize = 13;
const PATHS: usize = 14;
const _: () = assert!(KEEPER_BEFORE < PLACE && PATHS < HEADER);

/// The part of a request that the journal needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) op: Op,
    pub(crate) sector: Sector,
    pub(crate) len_sectors: u32,
}

/// The device, boot, disk and queues that a journal is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct About {
    pub(crate) dev_id: u32,
    /// The kernel's object behind the number. A new device has a new object.
    pub(crate) instance: u64,
    /// The boot id of the kernel.
    pub(crate) boot: u128,
    /// The disk and its layers.
    pub(crate) identity: u64,
    pub(crate) geometry: Geometry,
    /// The zones that the device shows: a reset of all zones resets these. The identity contains them.
    pub(crate) shown: Range<u32>,
    pub(crate) queues: u16,
    pub(crate) depth: u16,
    /// Where the disks are, for the server that keeps the journal. Not compared here.
    pub(crate) disks: DiskState,
}

impl About {
    /// The words of the header that must be equal.
    fn words(&self) -> [(u64, &'static str); KEEPER] {
        let g = &self.geometry;
        [
            (MAGIC, "is no journal, or of another version"),
            (self.boot as u64, "is of another boot"),
            ((self.boot >> 64) as u64, "is of another boot"),
            (u64::from(self.dev_id), "is of another device"),
            (self.instance, "is of another device"),
            (self.identity, "is of another disk"),
            (g.capacity().0, "is of a disk of another layout"),
            (u64::from(g.zone_sectors()), "is of a disk of another layout"),
            (u64::from(self.queues), "is of other queues"),
            (u64::from(self.depth), "is of other queues"),
        ]
    }

    fn entries(&self) -> usize {
        (usize::from(self.depth) * ENTRIES_PER_REQUEST).next_power_of_two().min(MAX_ENTRIES)
    }

    fn ring_words(&self) -> usize {
        RING_HEADER + self.entries() * ENTRY
    }

    /// The first word of the rings, at a cache line.
    fn rings(&self) -> usize {
        HEADER + (self.geometry.nr_zones() as usize).next_multiple_of(RING_HEADER)
    }

    fn len(&self) -> usize {
        self.rings() + usize::from(self.queues) * self.ring_words()
    }
}

/// The word of a zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ZoneWord {
    /// The offset below which the server does not search.
    hidden: u32,
    /// Counts resets, and wraps around.
    generation: u16,
    /// Resets in flight. At `MAX_RESETS` the number is unknown.
    resets: u16,
    /// A request was acknowledged or sent while resets were in flight.
    mixed: bool,
}

const MAX_RESETS: u16 = (1 << 15) - 1;

impl ZoneWord {
    fn of(w: u64) -> ZoneWord {
        ZoneWord {
            hidden: w as u32,
            generation: (w >> 32) as u16,
            resets: (w >> 48) as u16 & MAX_RESETS,
            mixed: w >> 63 != 0,
        }
    }

    fn word(self) -> u64 {
        u64::from(self.hidden)
            | u64::from(self.generation) << 32
            | u64::from(self.resets) << 48
            | u64::from(self.mixed) << 63
    }

    /// A reset is done: the server may search the whole zone.
    fn reset(self) -> ZoneWord {
        ZoneWord { hidden: 0, generation: self.generation.wrapping_add(1), ..self }
    }

    /// Ends one of the resets in flight.
    fn reset_ended(self, succeeded: bool) -> ZoneWord {
        let left = match self.resets {
            MAX_RESETS => MAX_RESETS,
            n => n.saturating_sub(1),
        };
        let z = match succeeded {
            true if self.mixed || left == MAX_RESETS => self.hide(),
            true => self.reset(),
            false => self,
        };
        ZoneWord { resets: left, mixed: z.mixed && left > 0, ..z }
    }

    /// Hides the whole zone, even beyond resets that are in flight now.
    fn hide(self) -> ZoneWord {
        ZoneWord { hidden: HIDDEN, mixed: self.mixed || self.resets > 0, ..self }
    }
}

fn change(word: &AtomicU64, f: impl Fn(ZoneWord) -> ZoneWord) {
    // The function always returns a value.
    let _ = word.fetch_update(Release, Relaxed, |w| Some(f(ZoneWord::of(w)).word()));
}

/// The state in which a new server finds a zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FoundZone {
    /// Sectors that hold data, from the start of the zone.
    pub(crate) written: u32,
    pub(crate) empty: bool,
}

impl FoundZone {
    pub(crate) fn of(zone: &ZoneInfo) -> FoundZone {
        FoundZone { written: written_in(zone), empty: zone.cond == Condition::Empty }
    }

    /// The offset from which on a new journal may be searched: the data that the zone has now belongs to a client.
    pub(crate) fn hidden(&self, is_conventional: bool) -> u32 {
        // A zone that is neither empty nor written is read-only or offline.
        let odd = self.written == 0 && !self.empty;
        if odd || is_conventional { HIDDEN } else { self.written }
    }
}

/// Removes files of servers that were killed while they created a journal for `path`.
fn sweep(path: &Path) {
    let (Some(dir), Some(stem)) = (path.parent(), path.file_stem()) else { return };
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let left = PathBuf::from(entry.file_name());
        let of = left.file_stem().map(Path::new).and_then(Path::file_stem);
        if of == Some(stem) && left.extension().is_some_and(|e| e == "new") {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

/// Whether no other user can have changed a file.
fn is_own(file: &File) -> io::Result<bool> {
    let meta = file.metadata()?;
    let private = meta.uid() == shared_words::user() && meta.mode() & 0o077 == 0;
    Ok(meta.is_file() && private && meta.nlink() == 1)
}

/// Writes the note about the disks that this server serves.
fn write_disk_state(words: &[AtomicU64], disks: &DiskState) {
    let mut bytes = disks.paths.clone().into_bytes();
    bytes.truncate((HEADER - PATHS) * 8 - 1);
    let text = bytes.chunks(8).map(|c| {
        let mut word = [0; 8];
        word[..c.len()].copy_from_slice(c);
        u64::from_le_bytes(word)
    });
    for (word, is) in words[PATHS..HEADER].iter().zip(text.chain(std::iter::repeat(0))) {
        word.store(is, Relaxed);
    }
    words[PLACE].store(disks.place, Relaxed);
    words[OPENED].store(disks.opened, Release);
}

/// The note of the last server of a device about its disks, if that server kept the journal at `path`. Changes
/// nothing.
#[cfg_attr(not(feature = "ublk"), expect(dead_code, reason = "ublk uses it"))]
pub(crate) fn noted(
    path: &Path,
    dev_id: u32,
    instance: u64,
    boot: u128,
    last: u64,
) -> Option<DiskState> {
    let mut how = File::options();
    let file = how.read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path).ok()?;
    if !is_own(&file).ok()? {
        return None;
    }
    let mut page = Vec::with_capacity(HEADER * 8);
    file.take(HEADER as u64 * 8).read_to_end(&mut page).ok()?;
    let words: Vec<u64> = page.as_chunks().0.iter().map(|b| u64::from_le_bytes(*b)).collect();
    let expected = [MAGIC, boot as u64, (boot >> 64) as u64, u64::from(dev_id), instance];
    let keepers = words.get(KEEPER..=KEEPER_BEFORE)?;
    if words.len() != HEADER || !words.starts_with(&expected) || !keepers.contains(&last) {
        return None;
    }
    let text = page[PATHS * 8..].split(|b| *b == 0).next().unwrap_or_default();
    let paths = String::from_utf8_lossy(text).into_owned();
    Some(DiskState { place: words[PLACE], opened: words[OPENED], paths })
}

/// The journal of one device.
pub(crate) struct Journal {
    words: SharedWords,
    about: About,
    entries: usize,
    path: PathBuf,
}

impl Journal {
    /// Creates a journal for the server `me`. `hidden` has the offset of each zone from which on it may be searched;
    /// zones that it does not list are hidden. Replaces a file at `path`.
    pub(crate) fn create(
        path: &Path,
        about: About,
        me: u64,
        hidden: impl Iterator<Item = u32>,
    ) -> io::Result<Journal> {
        let new = path.with_extension(format!("{me}.new"));
        sweep(path);
        let mut how = File::options();
        let file = how.read(true).write(true).create_new(true).mode(0o600).open(&new)?;
        let journal = SharedWords::allocate(&file, about.len())
            .and_then(|()| SharedWords::map(&file, about.len()))
            .and_then(|words| {
                let all = words.words();
                let hidden = hidden.chain(std::iter::repeat(HIDDEN));
                for (word, hidden) in all[HEADER..about.rings()].iter().zip(hidden) {
                    word.store(u64::from(hidden), Relaxed);
                }
                for (word, (is, _)) in all.iter().zip(about.words()) {
                    word.store(is, Relaxed);
                }
                all[KEEPER].store(me, Relaxed);
                all[KEEPER_BEFORE].store(me, Relaxed);
                write_disk_state(all, &about.disks);
                std::fs::rename(&new, path)?;
                let entries = about.entries();
                Ok(Journal { words, about, entries, path: path.to_owned() })
            });
        if journal.is_err() {
            let _ = std::fs::remove_file(&new);
        }
        journal
    }

    /// Opens the journal of the server `last`, whose stamp the device has, and makes `me` its keeper. `found` has the
    /// state of each zone, after all resets that were in flight. The error says why the journal cannot be believed.
    pub(crate) fn open(
        path: &Path,
        about: About,
        last: u64,
        me: u64,
        found: &[FoundZone],
    ) -> Result<Journal, String> {
        let failed = |e: io::Error| match e.kind() {
            io::ErrorKind::NotFound => "there is none".to_owned(),
            _ => format!("it cannot be read: {e}"),
        };
        let mut how = File::options();
        how.read(true).write(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
        let file = how.open(path).map_err(failed)?;
        if !is_own(&file).map_err(failed)? {
            return Err("it is a file that others can change".to_owned());
        }
        let words = SharedWords::map(&file, about.len()).map_err(|e| match e.kind() {
            io::ErrorKind::InvalidData => "it has another length".to_owned(),
            _ => failed(e),
        })?;
        let all = words.words();
        for (word, (expected, wrong)) in all.iter().zip(about.words()) {
            if word.load(Relaxed) != expected {
                return Err(format!("it {wrong}"));
            }
        }
        // A keeper that died before it left its stamp at the device has served nothing, so the keeper before it
        // counts too.
        let kept_by = |at: usize| all[at].load(Relaxed) == last;
        if !kept_by(KEEPER) && !kept_by(KEEPER_BEFORE) {
            return Err("the last server did not keep it".to_owned());
        }
        let entries = about.entries();
        all[KEEPER_BEFORE].store(last, Release);
        all[KEEPER].store(me, Release);
        write_disk_state(all, &about.disks);
        let journal = Journal { words, about, entries, path: path.to_owned() };
        journal.end_resets(found);
        Ok(journal)
    }

    /// Removes the file: the device is gone.
    #[cfg_attr(not(feature = "ublk"), expect(dead_code, reason = "ublk uses it"))]
    pub(crate) fn remove(&self) {
        let _ = std::fs::remove_file(&self.path);
    }

    fn zones(&self) -> &[AtomicU64] {
        &self.words.words()[HEADER..HEADER + self.about.geometry.nr_zones() as usize]
    }

    fn ring(&self, queue: u16) -> &[AtomicU64] {
        let words = self.about.ring_words();
        let at = self.about.rings() + usize::from(queue) * words;
        &self.words.words()[at..at + words]
    }

    fn zone(&self, zone: ZoneNo) -> Option<&AtomicU64> {
        self.zones().get(zone.0 as usize)
    }

    /// Call it before a request is sent to the disk.
    pub(crate) fn begin(&self, r: &Change) {
        match r.op {
            Op::Write | Op::WriteZeroes | Op::ZoneFinish => self.hide_zones_of(r),
            Op::ZoneReset | Op::ZoneResetAll => {
                self.each_reset(r, |z| ZoneWord { resets: (z.resets + 1).min(MAX_RESETS), ..z });
            }
            _ => {}
        }
    }

    fn hide_zones_of(&self, r: &Change) {
        let (first, offset) = self.about.geometry.zone_of(r.sector);
        self.hide(first);
        let size = self.about.geometry.zone_sectors();
        if r.len_sectors > size - offset {
            // Linux does not send such writes to sequential zones.
            let more = (u64::from(offset) + u64::from(r.len_sectors) - 1) / u64::from(size);
            (1..=more as u32).for_each(|n| self.hide(ZoneNo(first.0.saturating_add(n))));
        }
    }

    fn hide(&self, zone: ZoneNo) {
        let Some(word) = self.zone(zone) else { return };
        let now = ZoneWord::of(word.load(Relaxed));
        if now != now.hide() {
            change(word, ZoneWord::hide);
        }
    }

    /// A request has come back from the disk and is about to be answered. For an append that succeeded, call
    /// [`record`](Journal::record) too.
    pub(crate) fn end(&self, r: &Change, succeeded: bool) {
        match r.op {
            // Hides the zone again: the write may have been carried out after a later reset, which has shown the
            // zone.
            Op::Write | Op::WriteZeroes | Op::ZoneFinish => self.hide_zones_of(r),
            Op::ZoneReset | Op::ZoneResetAll => self.each_reset(r, |z| z.reset_ended(succeeded)),
            _ => {}
        }
    }

    fn each_reset(&self, r: &Change, f: impl Fn(ZoneWord) -> ZoneWord + Copy) {
        if r.op == Op::ZoneResetAll {
            let shown = self.about.shown.start as usize..self.about.shown.end as usize;
            self.zones()[shown].iter().for_each(|word| change(word, f));
        } else if let Some(word) = self.zone(self.about.geometry.zone_of(r.sector).0) {
            change(word, f);
        }
    }

    /// An append of `queue` has landed and is about to be acknowledged. Only the thread of that queue calls
    /// this.
    #[inline]
    pub(crate) fn record(&self, queue: u16, sector: Sector, len_sectors: u32) {
        let Some(word) = self.zone(self.about.geometry.zone_of(sector).0) else { return };
        let ring = self.ring(queue);
        let count = ring[0].load(Relaxed);
        let at = RING_HEADER + (count as usize & (self.entries - 1)) * ENTRY;
        let (where_, what) = (&ring[at], &ring[at + 1]);
        self.fall_out(Sector(where_.load(Relaxed)), what.load(Relaxed));
        let zone = ZoneWord::of(word.load(Relaxed));
        if zone.resets > 0 {
            change(word, ZoneWord::hide);
        }
        where_.store(sector.0, Release);
        what.store(u64::from(zone.generation) << 32 | u64::from(len_sectors), Release);
        ring[0].store(count.wrapping_add(1), Release);
    }

    /// Removes recorded appends that clients were not told of, so that the next server may find them. Call it when no
    /// thread records any more. An append whose entry was overwritten stays acknowledged.
    #[cfg(feature = "nvme-tcp")]
    pub(crate) fn withdraw(&self, appends: &BTreeSet<(Sector, u32)>) {
        for queue in (0..self.about.queues).filter(|_| !appends.is_empty()) {
            for entry in self.ring(queue)[RING_HEADER..].chunks_exact(ENTRY) {
                let (sector, what) = (entry[0].load(Relaxed), entry[1].load(Relaxed));
                if appends.contains(&(Sector(sector), what as u32)) {
                    entry[1].store(0, Release);
                }
            }
        }
    }

    /// Moves an entry that is about to be overwritten into the word of its zone.
    fn fall_out(&self, sector: Sector, what: u64) {
        let (zone, offset) = self.about.geometry.zone_of(sector);
        let Some(word) = self.zone(zone).filter(|_| what as u32 > 0) else { return };
        let (end, generation) = (offset.saturating_add(what as u32), (what >> 32) as u16);
        let now = ZoneWord::of(word.load(Relaxed));
        if now.generation == generation && now.hidden < end {
            change(word, |z| match z.generation == generation {
                true => ZoneWord { hidden: z.hidden.max(end), ..z },
                false => z,
            });
        }
    }

    /// Ends the resets that were in flight when the last server died; the kernel sends them again.
    fn end_resets(&self, found: &[FoundZone]) {
        for (word, found) in self.zones().iter().zip(found) {
            let z = ZoneWord::of(word.load(Relaxed));
            if z.resets > 0 {
                let z = if found.empty { z.reset() } else { z.hide() };
                word.store(ZoneWord { resets: 0, mixed: false, ..z }.word(), Release);
            }
        }
    }

    /// Whether a zone has had nothing but appends since its reset, or since the journal was created.
    #[cfg_attr(not(feature = "ublk"), expect(dead_code, reason = "ublk uses it"))]
    pub(crate) fn only_appends(&self, zone: ZoneNo) -> bool {
        self.zone(zone).is_some_and(|w| ZoneWord::of(w.load(Relaxed)).hidden != HIDDEN)
    }

    /// For each zone that has any: the space below the write pointer that no client was told of, as offsets.
    pub(crate) fn unacked(&self, found: &[FoundZone]) -> Vec<(ZoneNo, Vec<Range<u32>>)> {
        let zones = self.zones();
        let mut journal: Vec<(u32, u32, u32)> = Vec::new();
        for queue in 0..self.about.queues {
            for entry in self.ring(queue)[RING_HEADER..].chunks_exact(ENTRY) {
                let (sector, what) = (entry[0].load(Relaxed), entry[1].load(Relaxed));
                let (zone, offset) = self.about.geometry.zone_of(Sector(sector));
                let Some(word) = self.zone(zone) else { continue };
                let (len, generation) = (what as u32, (what >> 32) as u16);
                if len > 0 && generation == ZoneWord::of(word.load(Relaxed)).generation {
                    journal.push((zone.0, offset, offset.saturating_add(len)));
                }
            }
        }
        journal.sort_unstable();
        let mut journal = journal.into_iter().peekable();
        let mut all = Vec::new();
        for (zone, (word, found)) in (0u32..).zip(zones.iter().zip(found)) {
            let mut at = ZoneWord::of(word.load(Relaxed)).hidden;
            let mut unacked = Vec::new();
            while let Some((_, from, to)) = journal.next_if(|t| t.0 == zone) {
                if at < from.min(found.written) {
                    unacked.push(at..from.min(found.written));
                }
                at = at.max(to);
            }
            if at < found.written {
                unacked.push(at..found.written);
            }
            if !unacked.is_empty() {
                all.push((ZoneNo(zone), unacked));
            }
        }
        all
    }
}

#[cfg(test)]
mod model;
#[cfg(test)]
pub(crate) mod tests;
