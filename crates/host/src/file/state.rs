//! The zones of an open disk, and what makes their changes durable. Owns the condition machine's state, the table in
//! the file and its notes; moves no data.
//!
//! Locks, in the order in which they are taken: the table, the state. A write takes the second one twice, for a
//! moment; nothing is written to the file under it, but for the notes of conventional zones.

use super::format::{GROUP, Layout, Note, Record, SESSION_AT, Session, Super, encode_table};
use super::load::Zones;
use super::storage::Storage;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use zoneplug_core::zone::machine::{Advance, Budget, ZoneState};
use zoneplug_core::zone::{Condition, Geometry, Limits};
use zoneplug_core::{Status, ZoneNo};

/// What a zone has beside its state.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Meta {
    pub(super) generation: u64,
    pub(super) writes: u64,
    /// A write, reset or finish of this sequential zone is in progress: others wait.
    pub(super) busy: bool,
    /// In `State::dirty`: the table does not have it yet.
    dirty: bool,
    /// There may be data past the write pointer, or below it.
    pub(super) touched: bool,
    /// Space was found up to here, in sectors.
    pub(super) space: u32,
}

/// Everything that changes with a write.
#[derive(Debug)]
pub(super) struct State {
    pub(super) zones: Vec<ZoneState>,
    pub(super) budget: Budget,
    pub(super) meta: Vec<Meta>,
    /// Zones of which the table is older.
    dirty: Vec<u32>,
    /// What was dirty is on its way: a flush waits for it.
    committing: bool,
    /// Data was written since the last sync.
    pub(super) unsynced: bool,
    /// The table could not be written: what is durable is unknown, so nothing more is promised.
    pub(super) failed: Option<Status>,
}

impl State {
    fn record(&self, zone: u32) -> Record {
        let (z, m) = (self.zones[zone as usize], self.meta[zone as usize]);
        let cond = match z.cond {
            Condition::ImpOpen | Condition::ExpOpen | Condition::Closed | Condition::Empty => {
                if z.wp == 0 { Condition::Empty } else { Condition::Closed }
            }
            other => other,
        };
        Record { wp: z.wp, cond, generation: m.generation, writes: m.writes }
    }

    fn touch(&mut self, zone: u32) {
        if !std::mem::replace(&mut self.meta[zone as usize].dirty, true) {
            self.dirty.push(zone);
        }
    }

    /// Whether a flush has anything to do, or to say.
    pub(super) fn is_dirty(&self) -> bool {
        self.failed.is_some() || self.unsynced || !self.dirty.is_empty() || self.committing
    }
}

/// The table as it is in the file.
#[derive(Debug)]
struct Table {
    seqs: Vec<u64>,
    records: Vec<Record>,
}

/// What is to become durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Want {
    /// All that was acknowledged.
    Flush,
    /// A zone that was finished.
    Finish(u32),
    /// An empty zone.
    Reset(u32),
    /// Every sequential zone that can be reset.
    ResetAll,
}

/// An open disk, without queues and threads.
#[derive(Debug)]
pub(super) struct Core {
    pub(super) storage: Arc<dyn Storage>,
    pub(super) sup: Super,
    pub(super) layout: Layout,
    pub(super) limits: Limits,
    /// Ours; of a disk that is read only the last writer's, as it was when it was opened.
    session: Session,
    state: Mutex<State>,
    table: Mutex<Table>,
}

/// A panic elsewhere cannot leave these half changed, so a poisoned lock is as good as any.
pub(super) fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What an error of the storage is to a client.
pub(super) fn status_of(e: &io::Error) -> Status {
    match e.raw_os_error() {
        Some(libc::ENOSPC | libc::EDQUOT | libc::EFBIG) => Status::NoSpace,
        Some(libc::ENODEV | libc::ENXIO) => Status::NoDevice,
        _ if e.kind() == io::ErrorKind::StorageFull => Status::NoSpace,
        _ => Status::Io,
    }
}

fn state(g: &Geometry, limits: &Limits, live: &[Record]) -> State {
    let mut s = State {
        zones: Vec::with_capacity(live.len()),
        budget: Budget::new(g.nr_zones(), limits.max_open_zones, limits.max_active_zones),
        meta: Vec::with_capacity(live.len()),
        dirty: Vec::new(),
        committing: false,
        unsynced: false,
        failed: None,
    };
    for (n, r) in live.iter().enumerate() {
        let conv = g.is_conventional(ZoneNo(n as u32));
        s.zones.push(if conv { ZoneState::CONVENTIONAL } else { ZoneState::EMPTY });
        s.meta.push(Meta {
            generation: r.generation,
            writes: r.writes,
            touched: r.wp > 0 || r.cond != Condition::Empty,
            ..Meta::default()
        });
    }
    for (n, r) in live.iter().enumerate() {
        if !matches!(r.cond, Condition::NotWp | Condition::Empty) {
            s.budget.set_condition(&mut s.zones, ZoneNo(n as u32), r.cond);
            s.zones[n].wp = r.wp;
        }
    }
    s
}

impl Core {
    /// The disk that was loaded. For writing, it becomes ours: what the last writer left is made durable, and our
    /// session begins.
    pub(super) fn new(
        storage: Arc<dyn Storage>,
        sup: Super,
        layout: Layout,
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
            opened: if write { before.wrapping_add(1) } else { before },
        };
        let mut core = Core {
            state: Mutex::new(state(g, &limits, &loaded.live)),
            table: Mutex::new(Table { seqs: loaded.seqs, records: loaded.table }),
            session,
            storage,
            sup,
            layout,
            limits,
        };
        // Notes are worth nothing where lives of the system cannot be told apart: then every write is durable.
        if boot.is_none() {
            core.limits.write_cache = false;
        }
        if write {
            core.take_over(&loaded.live, loaded.session.is_none_or(|s| !s.closed))?;
        }
        Ok(core)
    }

    /// Makes what was recovered durable, then begins a session: from then on the notes of the last one are void.
    fn take_over(&self, live: &[Record], unclean: bool) -> io::Result<()> {
        let mut table = lock(&self.table);
        let now = (0..).zip(live.iter().copied());
        let changes: Vec<_> = now.filter(|(n, r)| table.records[*n as usize] != *r).collect();
        if unclean {
            self.storage.sync()?;
        }
        self.write_table(&mut table, &changes)?;
        self.storage.write_at(SESSION_AT, &self.session.encode())
    }

    /// How often the disk was opened for writing, by this opening too.
    pub(super) fn opened(&self) -> u64 {
        self.session.opened
    }

    /// The state of the zones.
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Makes zones that changed durable, each of which is there once.
    fn write_table(&self, table: &mut Table, changes: &[(u32, Record)]) -> io::Result<()> {
        // A power cut may keep one sector and lose another. So a zone gives up its place among the active ones in the
        // table before another takes it, or there could be more than the disk allows.
        let was = |zone: u32| table.records[zone as usize].cond.is_active();
        let gives = |(zone, r): &&(u32, Record)| was(*zone) && !r.cond.is_active();
        let takes = |(zone, r): &(u32, Record)| !was(*zone) && r.cond.is_active();
        if self.limits.max_active_zones == 0 || !changes.iter().any(takes) {
            return self.write_sectors(table, changes);
        }
        let (first, then): (Vec<_>, Vec<_>) = changes.iter().partition(gives);
        self.write_sectors(table, &first)?;
        self.write_sectors(table, &then)
    }

    /// Writes and syncs the sectors of zones that changed, each to the copy that is not the newest.
    fn write_sectors(&self, table: &mut Table, changes: &[(u32, Record)]) -> io::Result<()> {
        if changes.is_empty() {
            return Ok(());
        }
        let mut groups: Vec<u32> = Vec::new();
        for (zone, record) in changes {
            table.records[*zone as usize] = *record;
            groups.push(zone / GROUP);
        }
        groups.sort_unstable();
        groups.dedup();
        for group in groups {
            let seq = table.seqs[group as usize].wrapping_add(1);
            let first = (group * GROUP) as usize;
            let last = table.records.len().min(first + GROUP as usize);
            let sector = encode_table(&self.sup.uuid, group, seq, &table.records[first..last]);
            self.storage.write_at(self.layout.table(group, seq), &sector)?;
            table.seqs[group as usize] = seq;
        }
        self.storage.sync()
    }

    /// Makes durable what is wanted, gives space back, and lets the zones go. One answer for all.
    pub(super) fn commit(&self, wants: &[Want]) -> Status {
        let mut table = lock(&self.table);
        let status = match self.commit_table(&mut table, wants) {
            Ok(()) => Status::Ok,
            Err(status) => status,
        };
        if status.is_ok() {
            // Only now: before the table was durable, the old data was what the zone has.
            for (zone, from) in self.punches(wants) {
                self.give_back(zone, from);
            }
        }
        let mut state = self.state();
        state.committing = false;
        for want in wants {
            match *want {
                Want::Flush => {}
                Want::Finish(zone) => {
                    let s = &mut *state;
                    s.meta[zone as usize].busy = false;
                    if status.is_ok() {
                        // It is open or full, so this needs nothing more.
                        let _ = s.budget.finish(&mut s.zones, ZoneNo(zone));
                    }
                }
                Want::Reset(zone) => Self::let_go(&mut state, zone, status),
                Want::ResetAll => {
                    for zone in 0..self.sup.geometry.nr_zones() {
                        if is_resettable(state.zones[zone as usize].cond) {
                            Self::let_go(&mut state, zone, status);
                        }
                    }
                }
            }
        }
        status
    }

    /// A zone whose reset has ended.
    fn let_go(s: &mut State, zone: u32, status: Status) {
        let m = &mut s.meta[zone as usize];
        m.busy = false;
        if status.is_ok() {
            m.generation = m.generation.wrapping_add(1);
            m.touched = false;
            m.space = 0;
            // Fails for a zone that cannot be reset, and then it was not.
            let _ = s.budget.reset(&mut s.zones, ZoneNo(zone));
        }
    }

    fn commit_table(&self, table: &mut Table, wants: &[Want]) -> Result<(), Status> {
        let flush = wants.iter().any(|w| matches!(w, Want::Flush | Want::Finish(_)));
        let mut changes: Vec<(u32, Record)> = Vec::new();
        let mut unsynced = false;
        {
            let mut s = self.state();
            if let Some(status) = s.failed {
                return Err(status);
            }
            s.committing = true;
            if flush {
                unsynced = std::mem::take(&mut s.unsynced);
                for zone in std::mem::take(&mut s.dirty) {
                    s.meta[zone as usize].dirty = false;
                    changes.push((zone, s.record(zone)));
                }
            }
            let reset = |s: &State, zone: u32| {
                let m = s.meta[zone as usize];
                let (wp, cond) = (0, Condition::Empty);
                let generation = m.generation.wrapping_add(1);
                (zone, Record { wp, cond, generation, writes: m.writes })
            };
            for want in wants {
                match *want {
                    Want::Flush => {}
                    Want::Finish(zone) => {
                        changes.push((zone, Record { cond: Condition::Full, ..s.record(zone) }));
                    }
                    Want::Reset(zone) => changes.push(reset(&s, zone)),
                    Want::ResetAll => {
                        let all = (0..s.zones.len() as u32)
                            .filter(|&z| is_resettable(s.zones[z as usize].cond))
                            .filter(|&z| {
                                s.record(z).cond != Condition::Empty || s.meta[z as usize].touched
                            })
                            .map(|z| reset(&s, z));
                        changes.extend(all);
                    }
                }
            }
        }
        // A zone has one record: what is wanted of it comes after what it was.
        changes.reverse();
        changes.sort_by_key(|(zone, _)| *zone);
        changes.dedup_by_key(|(zone, _)| *zone);
        let done = (|| {
            if unsynced {
                self.storage.sync()?;
            }
            self.write_table(table, &changes)
        })();
        done.map_err(|e| {
            let status = status_of(&e);
            self.state().failed = Some(status);
            status
        })
    }

    /// Ranges to give back: zone, and from which sector on.
    fn punches(&self, wants: &[Want]) -> Vec<(u32, u32)> {
        let s = self.state();
        let mut list = Vec::new();
        for want in wants {
            match *want {
                Want::Flush => {}
                Want::Finish(zone) => list.push((zone, s.zones[zone as usize].wp)),
                Want::Reset(zone) => list.push((zone, 0)),
                Want::ResetAll => list.extend(
                    (0..s.zones.len() as u32)
                        .filter(|&z| is_resettable(s.zones[z as usize].cond))
                        .map(|z| (z, 0)),
                ),
            }
        }
        list.retain(|(zone, _)| s.meta[*zone as usize].touched);
        list
    }

    /// Gives the space of a zone from a sector on back. An error costs space, nothing else: what is past the write
    /// pointer is never shown.
    pub(super) fn give_back(&self, zone: u32, from: u32) {
        let at = self.layout.data(zone, from);
        let end = self.layout.data(zone, 0) + self.layout.stride;
        if at < end && !self.sup.keeps_space {
            let _ = self.storage.punch(at, end - at);
        }
    }

    /// Makes a range zeroes, by a hole or by writing them.
    pub(super) fn zero(&self, at: u64, len: u64) -> io::Result<()> {
        let holes = !self.sup.keeps_space;
        match if holes {
            self.storage.punch(at, len)
        } else {
            Err(io::ErrorKind::Unsupported.into())
        } {
            Err(e) if e.kind() == io::ErrorKind::Unsupported => {}
            done => return done,
        }
        let zeroes = vec![0; len.min(1 << 20) as usize];
        let mut done = 0;
        while done < len {
            let n = (len - done).min(zeroes.len() as u64);
            self.storage.write_at(at + done, &zeroes[..n as usize])?;
            done += n;
        }
        Ok(())
    }

    /// The data of a write is in the file: moves the write pointer, leaves the note, lets the zone go. Returns the
    /// offset of the write in sectors.
    pub(super) fn written(&self, zone: u32, at: u32, len: u32, writes: u32) -> Result<u32, Status> {
        let capacity = self.sup.geometry.capacity_of(ZoneNo(zone));
        let mut guard = self.state();
        let s = &mut *guard;
        let (z, m) = (zone as usize, &mut s.meta[zone as usize]);
        s.unsynced = true;
        if s.zones[z].cond == Condition::NotWp {
            m.writes = m.writes.saturating_add(u64::from(writes));
            let note = self.note(0, *m);
            s.touch(zone);
            self.leave(zone, &note).map_err(|e| status_of(&e))?;
            return Ok(at);
        }
        // Others may have closed the zone for theirs meanwhile, so the limits are asked again, before anything is said.
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
        // The zone is still ours: its notes are written in order. A zone that has become full has given up its place
        // among the active ones, which nobody may take before its note is there.
        let left = if s.zones[z].cond == Condition::Full {
            self.leave(zone, &note)
        } else {
            drop(guard);
            let left = self.leave(zone, &note);
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

    fn note(&self, wp: u32, m: Meta) -> Note {
        Note { wp, generation: m.generation, writes: m.writes, session: self.session.id }
    }

    fn leave(&self, zone: u32, note: &Note) -> io::Result<()> {
        self.storage.write_at(self.layout.note(zone), &note.encode())
    }

    /// Makes the zones what another process left (a disk that is read only).
    pub(super) fn replace(&self, live: &[Record]) {
        *self.state() = state(&self.sup.geometry, &self.limits, live);
    }

    /// Ends the session: all that was acknowledged becomes durable, and the notes void.
    pub(super) fn close(&self) {
        if self.limits.read_only {
            return;
        }
        if self.commit(&[Want::Flush]).is_ok() {
            let closed = Session { closed: true, ..self.session };
            // Without it the next one reads the notes, which say the same.
            let _ = self.storage.write_at(SESSION_AT, &closed.encode());
        }
    }
}

/// Whether a reset of all zones resets this one.
pub(super) fn is_resettable(cond: Condition) -> bool {
    !matches!(cond, Condition::NotWp | Condition::ReadOnly | Condition::Offline)
}
