//! Commits: make changes of zones durable. Owns, in the file, the table of zones and the session. The session says
//! whether the notes of writes after the last commit count (`state.rs`). A commit first makes a plan of its changes. The records, the zones in memory and the space
//! to give back follow from that plan alone.

use super::format::{GROUP, Record, SESSION_AT, Session, encode_table};
use super::recover;
use super::state::{Core, FileState, ZoneTable, is_resettable, lock, status_of};
use std::io;
use zoneplug_core::zone::Condition;
use zoneplug_core::{Status, ZoneNo};

/// A request to make something durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Want {
    /// All acknowledged writes.
    Flush,
    /// A zone is finished.
    Finish(u32),
    /// A zone is reset.
    Reset(u32),
    /// Every sequential zone that can be reset is reset.
    ResetAll,
}

/// The state of a zone after a commit that succeeded. The zone is busy until the commit ends, so nothing else changes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Full,
    /// Empty. The generation is that of the new record. A zone without data gets no record and keeps its
    /// generation.
    Empty(Option<u64>),
}

/// The changes of a commit.
#[derive(Debug, Default)]
struct Plan {
    /// Data was written since the last sync.
    unsynced: bool,
    /// The debt has changed: clients were told of a loss since the last commit.
    told: bool,
    /// The zones whose records change, each once.
    records: Vec<(u32, Record)>,
    ends: Vec<(u32, Outcome)>,
    /// The zones whose space is given back, and from which sector on.
    holes: Vec<(u32, u32)>,
}

impl Plan {
    fn new(s: &mut FileState, wants: &[Want]) -> Plan {
        let mut plan = Plan::default();
        if wants.iter().any(|w| matches!(w, Want::Flush | Want::Finish(_))) {
            plan.unsynced = std::mem::take(&mut s.unsynced);
            plan.told = std::mem::take(&mut s.debt_changed);
            for zone in std::mem::take(&mut s.dirty) {
                let mut record = s.record(zone);
                let m = &mut s.meta[zone as usize];
                m.dirty = m.in_flight > 0;
                if m.dirty {
                    // A write in flight in a conventional zone may miss the sync, so the zone's note stays newer than
                    // the table.
                    record.writes = record.writes.saturating_sub(1);
                    s.dirty.push(zone);
                }
                plan.records.push((zone, record));
            }
        }
        for want in wants {
            match *want {
                Want::Flush => {}
                Want::Finish(zone) => plan.finish(s, zone),
                Want::Reset(zone) => plan.reset(s, zone),
                Want::ResetAll => {
                    for zone in 0..s.zones.len() as u32 {
                        if is_resettable(s.zones[zone as usize].cond) {
                            plan.reset(s, zone);
                        }
                    }
                }
            }
        }
        // A zone has one record. If several changes of it are wanted, the last counts.
        plan.records.reverse();
        plan.records.sort_by_key(|(zone, _)| *zone);
        plan.records.dedup_by_key(|(zone, _)| *zone);
        plan
    }

    fn finish(&mut self, s: &FileState, zone: u32) {
        let record = Record { cond: Condition::Full, ..s.record(zone) };
        self.records.push((zone, record));
        self.ends.push((zone, Outcome::Full));
        if s.meta[zone as usize].touched {
            self.holes.push((zone, record.wp));
        }
    }

    fn reset(&mut self, s: &FileState, zone: u32) {
        let (now, meta) = (s.record(zone), s.meta[zone as usize]);
        if now.cond == Condition::Empty && !meta.touched {
            // The zone has no data, so no record changes. In memory it may be open, which the table does not hold.
            return self.ends.push((zone, Outcome::Empty(None)));
        }
        let generation = meta.generation.wrapping_add(1);
        let record = Record { wp: 0, cond: Condition::Empty, generation, writes: meta.writes };
        self.records.push((zone, record));
        self.ends.push((zone, Outcome::Empty(Some(generation))));
        if meta.touched {
            self.holes.push((zone, 0));
        }
    }

    /// Ends the commit: releases the zones, and changes them if it succeeded.
    fn end(&self, s: &mut FileState, done: bool) {
        s.committing = false;
        for &(zone, end) in &self.ends {
            let m = &mut s.meta[zone as usize];
            m.busy = false;
            if !done {
                continue;
            }
            // Both succeed: a zone to be finished is open or full, and a zone to be reset can be reset.
            let _ = match end {
                Outcome::Full => s.budget.finish(&mut s.zones, ZoneNo(zone)),
                Outcome::Empty(generation) => {
                    if let Some(generation) = generation {
                        m.generation = generation;
                        m.touched = false;
                        m.space = 0;
                    }
                    s.budget.reset(&mut s.zones, ZoneNo(zone))
                }
            };
        }
    }
}

impl Core {
    /// Writes the recovered state into the table and begins a session, which makes the notes of the last session
    /// void. The recovered state is durable already (`recover.rs`).
    pub(super) fn begin_session(&self, live: &[Record], last: Option<Session>) -> io::Result<()> {
        let mut table = lock(&self.table);
        let now = (0..).zip(live.iter().copied());
        let changes: Vec<_> = now.filter(|(n, r)| table.records[*n as usize] != *r).collect();
        let begun = (|| {
            self.write_table(&mut table, &changes)?;
            self.storage.write_at(SESSION_AT, &self.session.encode())?;
            // The sync comes before anything else of this session: the page cache could lose the new session and keep
            // what the session wrote.
            self.storage.sync()
        })();
        begun.inspect_err(|e| {
            let _ = recover::void(&*self.storage, last, recover::errno(e));
        })
    }

    /// Makes the wanted changes durable, gives space back, and releases the zones. All wants have one result.
    pub(super) fn commit(&self, wants: &[Want]) -> Status {
        let mut table = lock(&self.table);
        let (plan, failed) = {
            let mut s = self.state();
            if std::mem::replace(&mut s.committing, true) && s.failed.is_none() {
                // An earlier commit panicked, so it is unknown which of its changes are durable. The notes still have
                // all of them.
                s.failed = Some(Status::Io);
            }
            (Plan::new(&mut s, wants), s.failed)
        };
        let done = failed.map_or_else(|| self.carry_out(&mut table, &plan), Err);
        if done.is_ok() {
            // Not earlier: until the table was durable, the old data was the content of the zone.
            let ends = plan.holes.iter();
            self.make_holes(ends.map(|&(n, at)| self.layout.data(n, at)..self.layout.zone_end(n)));
        }
        plan.end(&mut self.state(), done.is_ok());
        done.err().unwrap_or(Status::Ok)
    }

    fn carry_out(&self, table: &mut ZoneTable, plan: &Plan) -> Result<(), Status> {
        // Nothing is written to a file that belongs to another disk now, not even the mark of a failure.
        self.check_unchanged()?;
        let told = match plan.told {
            true => self.storage.write_at(SESSION_AT, &self.session_now().encode()),
            false => Ok(()),
        };
        let synced = told.and_then(|()| match plan.unsynced || plan.told {
            true => self.storage.sync(),
            false => Ok(()),
        });
        synced.and_then(|()| self.write_table(table, &plan.records)).map_err(|e| {
            let status = status_of(&e);
            // The disk is marked as failed first, so that nothing is written after the session is void.
            self.state().failed = Some(status);
            // If this fails too, the next opening finds lost data by the holes in the file, or uses what the medium has.
            let _ = recover::void(&*self.storage, Some(self.session_now()), recover::errno(&e));
            status
        })
    }

    /// Makes changed zones durable. Each is listed once.
    fn write_table(&self, table: &mut ZoneTable, changes: &[(u32, Record)]) -> io::Result<()> {
        // A power cut may keep one sector and lose another. So a zone leaves the active zones in the table
        // before another enters them; otherwise more zones could be active than the disk allows.
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

    /// Writes and syncs the table sectors of changed zones, each to the copy that is older.
    fn write_sectors(&self, table: &mut ZoneTable, changes: &[(u32, Record)]) -> io::Result<()> {
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

    /// Ends the session: makes all acknowledged writes durable, and the notes void.
    pub(super) fn close(&self) {
        if self.limits.read_only {
            return;
        }
        if self.commit(&[Want::Flush]).is_ok() {
            let closed = Session { closed: true, ..self.session_now() };
            // If this fails, the next opening reads the notes, which say the same.
            let _ = self.storage.write_at(SESSION_AT, &closed.encode());
        }
    }
}
