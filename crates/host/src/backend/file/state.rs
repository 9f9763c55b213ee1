//! The zones of an open disk. Owns the state of the condition machine and the notes; moves no data.
//! `commit.rs` makes changes durable.
//!
//! Lock order: the table before the state. A write locks the state twice, for a moment. Under that lock nothing is
//! written to the file except the notes of conventional zones.

use super::FileChange;
use super::format::{Debt, Layout, Note, Record, SECTOR, Session, Super};
use super::load::{Head, Zones};
use super::storage::{Storage, make_hole};
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
pub(super) use zoneplug_core::poison::lock;
use zoneplug_core::zone::machine::{Advance, Budget, ZoneState};
use zoneplug_core::zone::{Condition, Geometry, Limits};
use zoneplug_core::{Status, ZoneNo};

/// Most bytes in a hole of several zones. Other accesses to the file wait while the system makes a hole.
const LONGEST_HOLE: u64 = 1 << 30;

/// The data of a zone that the condition machine does not have.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Meta {
    pub(super) generation: u64,
    /// See `FileDisk::write_count`.
    pub(super) writes: u64,
    /// Writes and discards of this conventional zone that have begun and not ended.
    pub(super) in_flight: u32,
    /// A write, reset or finish of this sequential zone is in progress; others wait.
    pub(super) busy: bool,
    /// The zone is in `FileState::dirty`: the table is older.
    pub(super) dirty: bool,
    /// There may be data in the zone.
    pub(super) touched: bool,
    /// Space is allocated up to here, in sectors.
    pub(super) space: u32,
}

/// The state that changes with a write.
#[derive(Debug)]
pub(super) struct FileState {
    pub(super) zones: Vec<ZoneState>,
    pub(super) budget: Budget,
    pub(super) meta: Vec<Meta>,
    /// Zones whose records in the table are older.
    pub(super) dirty: Vec<u32>,
    /// A commit of dirty zones is under way; a flush waits for it.
    pub(super) committing: bool,
    /// Data was written since the last sync.
    pub(super) unsynced: bool,
    /// The loss to report to clients, and whether the file has an older version of it.
    pub(super) debt: Debt,
    pub(super) debt_changed: bool,
    /// The table could not be written. It is unknown which writes are durable, so all writes and flushes fail from
    /// then on.
    pub(super) failed: Option<Status>,
}

impl FileState {
    pub(super) fn record(&self, zone: u32) -> Record {
        let (z, m) = (self.zones[zone as usize], self.meta[zone as usize]);
        let cond = match z.cond {
            Condition::ImpOpen | Condition::ExpOpen | Condition::Closed | Condition::Empty => {
                if z.wp == 0 { Condition::Empty } else { Condition::Closed }
            }
            other => other,
        };
        Record { wp: z.wp, cond, generation: m.generation, writes: m.writes }
    }

    /// Sets the state of a zone from its record.
    fn load(&mut self, zone: u32, r: &Record) {
        let z = zone as usize;
        self.meta[z] = Meta {
            generation: r.generation,
            writes: r.writes,
            touched: r.wp > 0 || r.cond != Condition::Empty,
            ..Meta::default()
        };
        // A conventional zone has no other condition.
        if self.budget.set_condition(&mut self.zones, ZoneNo(zone), r.cond) {
            self.zones[z].wp = r.wp;
        }
    }

    fn touch(&mut self, zone: u32) {
        if !std::mem::replace(&mut self.meta[zone as usize].dirty, true) {
            self.dirty.push(zone);
        }
    }

    /// Whether a flush has anything to do or to report.
    pub(super) fn is_dirty(&self) -> bool {
        let changed = self.unsynced || self.debt_changed || !self.dirty.is_empty();
        self.failed.is_some() || changed || self.committing
    }
}

/// The table as it is in the file; `commit.rs` changes it.
#[derive(Debug)]
pub(super) struct ZoneTable {
    pub(super) seqs: Vec<u64>,
    pub(super) records: Vec<Record>,
}

/// An open disk, without queues and threads.
#[derive(Debug)]
pub(super) struct Core {
    pub(super) storage: Arc<dyn Storage>,
    pub(super) sup: Super,
    /// The first sector of the file when the disk was opened. It is damaged if the disk was found by its second
    /// superblock.
    pub(super) first: Box<[u8; SECTOR]>,
    pub(super) layout: Layout,
    pub(super) limits: Limits,
    /// This process's session. If the disk is read only, the last writer's, as it was at opening.
    pub(super) session: Session,
    state: Mutex<FileState>,
    pub(super) table: Mutex<ZoneTable>,
    /// The change of the file by another program, once it was found. From then on reads fail too.
    pub(super) change: OnceLock<FileChange>,
    /// Whether a discard had to write zeroes: the file system has no holes, or the disk keeps its space.
    no_holes: AtomicBool,
}

/// The status of an error of the storage.
pub(super) fn status_of(e: &io::Error) -> Status {
    match e.raw_os_error() {
        Some(libc::ENOSPC | libc::EDQUOT | libc::EFBIG) => Status::NoSpace,
        Some(libc::ENODEV | libc::ENXIO) => Status::NoDevice,
        _ if e.kind() == io::ErrorKind::StorageFull => Status::NoSpace,
        _ => Status::Io,
    }
}

fn state(g: &Geometry, limits: &Limits, live: &[Record]) -> FileState {
    let mut s = FileState {
        zones: Vec::with_capacity(live.len()),
        budget: Budget::new(g.nr_zones(), limits.max_open_zones, limits.max_active_zones),
        meta: Vec::with_capacity(live.len()),
        dirty: Vec::new(),
        committing: false,
        unsynced: false,
        debt: Debt::default(),
        debt_changed: false,
        failed: None,
    };
    for n in 0..g.nr_zones() {
        let conv = g.is_conventional(ZoneNo(n));
        s.zones.push(if conv { ZoneState::CONVENTIONAL } else { ZoneState::EMPTY });
        s.meta.push(Meta::default());
    }
    for (n, r) in (0..).zip(live) {
        s.load(n, r);
    }
    s
}

impl Core {
    /// The disk that was loaded. For writing, makes the state that the last writer left durable, and begins a
    /// session.
    pub(super) fn new(
        storage: Arc<dyn Storage>,
        Head { sup, layout, first, .. }: Head,
        loaded: Zones,
        write: bool,
        session_id: u64,
    ) -> io::Result<Core> {
        let mut limits = sup.limits.clone();
        let g = &sup.geometry;
        let sequential = g.nr_zones() - g.nr_conventional();
        for limit in [&mut limits.max_open_zones, &mut limits.max_active_zones] {
            if *limit >= sequential {
                *limit = 0;
            }
        }
        limits.max_bios = super::MAX_BIOS;
        limits.max_transfer_sectors = super::MAX_TRANSFER.max(limits.write_granularity_sectors);
        limits.write_cache = true;
        limits.read_only = !write;
        let boot = storage.boot_id();
        let before = loaded.session.map_or(0, |s| s.opened);
        let session = Session {
            id: session_id,
            boot: boot.unwrap_or_default(),
            closed: false,
            failure: 0,
            opened: if write { before.wrapping_add(1) } else { before },
            debt: if write { loaded.debt(boot) } else { Debt::default() },
        };
        let mut core = Core {
            state: Mutex::new(state(g, &limits, &loaded.live)),
            table: Mutex::new(ZoneTable { seqs: loaded.seqs, records: loaded.table }),
            session,
            storage,
            sup,
            first,
            layout,
            limits,
            change: OnceLock::new(),
            no_holes: AtomicBool::new(false),
        };
        // Without a boot id notes are void at the next opening, so every write is made durable.
        if boot.is_none() {
            core.limits.write_cache = false;
        }
        core.state().debt = core.session.debt;
        if write {
            core.begin_session(&loaded.live, loaded.session)?;
        }
        Ok(core)
    }

    /// How often the disk was opened for writing, including this opening.
    pub(super) fn opened(&self) -> u64 {
        self.session.opened
    }

    pub(super) fn is_conventional(&self, zone: u32) -> bool {
        self.sup.geometry.is_conventional(ZoneNo(zone))
    }

    /// This process's session, with the clients that have been told by now.
    pub(super) fn session_now(&self) -> Session {
        Session { debt: self.state().debt, ..self.session }
    }

    /// Whether acknowledged writes were lost and this client does not know. Marks it as told; the next flush writes
    /// that to the file, and a client flushes only after it has this answer.
    pub(super) fn owes(&self, client: u64) -> bool {
        if self.session.debt.boot == [0; 16] {
            return false;
        }
        let mut s = self.state();
        let owed = s.debt.tell(client);
        s.debt_changed |= owed;
        owed
    }

    /// The state of the zones.
    pub(super) fn state(&self) -> MutexGuard<'_, FileState> {
        lock(&self.state)
    }

    /// Makes holes of the ends of zones, as ranges of the file in ascending order. Reads never show data past the write pointer, but
    /// later data that are lost there are found only where there was a hole.
    pub(super) fn make_holes(&self, ends: impl Iterator<Item = Range<u64>>) {
        // Adjacent zones become one hole: each hole is a transaction of the file system.
        let mut hole = 0..0;
        for next in ends {
            if next.start == hole.end && next.end - hole.start <= LONGEST_HOLE {
                hole.end = next.end;
            } else {
                make_hole(&*self.storage, self.sup.keeps_space, std::mem::replace(&mut hole, next));
            }
        }
        make_hole(&*self.storage, self.sup.keeps_space, hole);
    }

    /// Makes a range read as zeroes: as a hole if `hole` and the storage can, otherwise by writing.
    pub(super) fn zero(&self, at: u64, len: u64, hole: bool) -> io::Result<()> {
        match if hole && !self.sup.keeps_space {
            self.storage.punch(at, len)
        } else {
            Err(io::ErrorKind::Unsupported.into())
        } {
            Err(e) if e.kind() == io::ErrorKind::Unsupported => {
                self.no_holes.fetch_or(hole, Ordering::Relaxed);
                self.storage.write_zeroes(at, len)
            }
            done => done,
        }
    }

    /// Whether discards write zeroes instead of making holes: a discard then changes the data of its zone as a write
    /// does.
    pub(super) fn discards_by_writing(&self) -> bool {
        self.no_holes.load(Ordering::Relaxed)
    }

    /// The data of a write is in the file: moves the write pointer, writes the note, releases the zone.
    /// Returns the offset of the write in sectors.
    pub(super) fn written(&self, zone: u32, at: u32, len: u32, writes: u32) -> Result<u32, Status> {
        let capacity = self.sup.geometry.capacity_of(ZoneNo(zone));
        let mut guard = self.state();
        let s = &mut *guard;
        let (z, m) = (zone as usize, &mut s.meta[zone as usize]);
        s.unsynced = true;
        m.in_flight = m.in_flight.saturating_sub(1);
        if let Some(status) = s.failed {
            m.busy = false;
            return Err(status);
        }
        if s.zones[z].cond == Condition::NotWp {
            return self.note_change(s, zone, writes).map(|()| at);
        }
        // Other writes may have closed the zone meanwhile, so the limits are checked again before the write is
        // acknowledged.
        let done = match s.zones[z].advance(Some(at), len, capacity) {
            Advance::At(start) => Ok(start),
            Advance::Refused(status) => Err(status),
            Advance::Transition => {
                s.budget.write(&mut s.zones, ZoneNo(zone), Some(at), len, capacity)
            }
        };
        if let Err(status) = done {
            m.busy = false;
            return Err(status);
        }
        m.writes = m.writes.saturating_add(u64::from(writes));
        let note = self.note(at + len, *m);
        s.touch(zone);
        // The zone is still busy, so its notes are written in order. A zone that became full has left the active
        // zones, and no other zone may enter them before the note is written.
        let left = if s.zones[z].cond == Condition::Full {
            self.write_note(zone, &note)
        } else {
            drop(guard);
            let left = self.write_note(zone, &note);
            guard = self.state();
            left
        };
        let s = &mut *guard;
        s.meta[z].busy = false;
        if let Err(e) = left {
            let status = status_of(&e);
            s.failed = Some(status);
            return Err(status);
        }
        done
    }

    /// A command that changes the data of a conventional zone begins. Its zone has a note that is newer than the table
    /// before the data moves, so that an opening after a kill writes that data again: a sync that failed meanwhile
    /// may have lost it, and memory shows it until it is short.
    pub(super) fn conventional_begins(&self, s: &mut FileState, zone: u32) -> Result<(), Status> {
        // The zone stays dirty, and its note newer than the table, until a commit meets it with nothing in flight.
        if !s.meta[zone as usize].dirty {
            self.note_change(s, zone, 1)?;
        }
        s.meta[zone as usize].in_flight += 1;
        Ok(())
    }

    /// Counts a change of a conventional zone, and writes its note.
    fn note_change(&self, s: &mut FileState, zone: u32, writes: u32) -> Result<(), Status> {
        let m = &mut s.meta[zone as usize];
        m.writes = m.writes.saturating_add(u64::from(writes));
        let note = self.note(0, *m);
        self.write_note(zone, &note).map_err(|e| status_of(&e))?;
        s.touch(zone);
        Ok(())
    }

    fn note(&self, wp: u32, m: Meta) -> Note {
        Note { wp, generation: m.generation, writes: m.writes, session: self.session.id }
    }

    fn write_note(&self, zone: u32, note: &Note) -> io::Result<()> {
        self.storage.write_at(self.layout.note(zone), &note.encode())
    }

    /// Takes over the state of zones that another process has written. Only for a disk that is open for reading.
    pub(super) fn replace(&self, first: u32, live: &[Record]) {
        let mut s = self.state();
        for (zone, r) in (first..).zip(live) {
            s.load(zone, r);
        }
    }
}

/// Whether a reset of all zones resets a zone of this condition.
pub(super) fn is_resettable(cond: Condition) -> bool {
    !matches!(cond, Condition::NotWp | Condition::ReadOnly | Condition::Offline)
}
