//! What makes changes of the zones durable: the table, and the session that says whether notes count. Owns both in the
//! file. A commit first makes a plan of what it changes; the records, the zones in memory and the space that is given
//! back all follow that plan, and nothing else.

use super::format::{GROUP, Record, SESSION_AT, Session, encode_table};
use super::recover;
use super::state::{Core, State, is_resettable, lock, status_of};
use std::io;
use zoneplug_core::zone::Condition;
use zoneplug_core::{Status, ZoneNo};

/// The table as it is in the file.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) seqs: Vec<u64>,
    pub(super) records: Vec<Record>,
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

/// What becomes of a zone when a commit ends. The zone is busy until then, so nothing else changes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Full,
    /// Empty. The generation is that of the record that says so; a zone without data gets none and keeps its own.
    Empty(Option<u64>),
}

/// What a commit changes.
#[derive(Debug, Default)]
struct Plan {
    /// Data was written since the last sync.
    unsynced: bool,
    /// The zones whose records change, each once.
    records: Vec<(u32, Record)>,
    ends: Vec<(u32, End)>,
    /// Zones whose space is given back, and from which sector on.
    holes: Vec<(u32, u32)>,
}

impl Plan {
    fn new(s: &mut State, wants: &[Want]) -> Plan {
        let mut plan = Plan::default();
        if wants.iter().any(|w| matches!(w, Want::Flush | Want::Finish(_))) {
            plan.unsynced = std::mem::take(&mut s.unsynced);
            for zone in std::mem::take(&mut s.dirty) {
                s.meta[zone as usize].dirty = false;
                plan.records.push((zone, s.record(zone)));
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
        // A zone has one record: what is wanted of it comes after what it was.
        plan.records.reverse();
        plan.records.sort_by_key(|(zone, _)| *zone);
        plan.records.dedup_by_key(|(zone, _)| *zone);
        plan
    }

    fn finish(&mut self, s: &State, zone: u32) {
        let record = Record { cond: Condition::Full, ..s.record(zone) };
        self.records.push((zone, record));
        self.ends.push((zone, End::Full));
        if s.meta[zone as usize].touched {
            self.holes.push((zone, record.wp));
        }
    }

    fn reset(&mut self, s: &State, zone: u32) {
        let (now, meta) = (s.record(zone), s.meta[zone as usize]);
        if now.cond == Condition::Empty && !meta.touched {
            // Nothing to forget. It may have been opened.
            return self.ends.push((zone, End::Empty(None)));
        }
        let generation = meta.generation.wrapping_add(1);
        let record = Record { wp: 0, cond: Condition::Empty, generation, writes: meta.writes };
        self.records.push((zone, record));
        self.ends.push((zone, End::Empty(Some(generation))));
        if meta.touched {
            self.holes.push((zone, 0));
        }
    }

    /// The commit has ended: lets the zones go, changed if it succeeded.
    fn end(&self, s: &mut State, done: bool) {
        s.committing = false;
        for &(zone, end) in &self.ends {
            let m = &mut s.meta[zone as usize];
            m.busy = false;
            if !done {
                continue;
            }
            // Both succeed: a zone that is to be full is open or full, one that is to be empty can be reset.
            let _ = match end {
                End::Full => s.budget.finish(&mut s.zones, ZoneNo(zone)),
                End::Empty(generation) => {
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
    /// Puts what was recovered into the table, then begins a session: from then on the notes of the last one are void.
    /// What was recovered is durable (`recover.rs`).
    pub(super) fn take_over(&self, live: &[Record], last: Option<Session>) -> io::Result<()> {
        let mut table = lock(&self.table);
        let now = (0..).zip(live.iter().copied());
        let changes: Vec<_> = now.filter(|(n, r)| table.records[*n as usize] != *r).collect();
        let begun = (|| {
            self.write_table(&mut table, &changes)?;
            self.storage.write_at(SESSION_AT, &self.session.encode())?;
            // Before anything of this session: memory could forget that there is one, and keep what it left.
            self.storage.sync()
        })();
        begun.inspect_err(|e| {
            let _ = recover::void(&*self.storage, last, recover::errno(e));
        })
    }

    /// Makes durable what is wanted, gives space back, and lets the zones go. One answer for all.
    pub(super) fn commit(&self, wants: &[Want]) -> Status {
        let mut table = lock(&self.table);
        let (plan, failed) = {
            let mut s = self.state();
            if std::mem::replace(&mut s.committing, true) && s.failed.is_none() {
                // One before panicked, and what it was to make durable is known to nobody. The notes still have it.
                s.failed = Some(Status::Io);
            }
            (Plan::new(&mut s, wants), s.failed)
        };
        let done = failed.map_or_else(|| self.carry_out(&mut table, &plan), Err);
        if done.is_ok() {
            // Only now: before the table was durable, the old data was what the zone has.
            for &(zone, from) in &plan.holes {
                self.give_back(zone, from);
            }
        }
        plan.end(&mut self.state(), done.is_ok());
        done.err().unwrap_or(Status::Ok)
    }

    fn carry_out(&self, table: &mut Table, plan: &Plan) -> Result<(), Status> {
        let synced = if plan.unsynced { self.storage.sync() } else { Ok(()) };
        synced.and_then(|()| self.write_table(table, &plan.records)).map_err(|e| {
            let status = status_of(&e);
            // First: nobody writes any more, so what is said below is the last that is said.
            self.state().failed = Some(status);
            // If this fails too, the next opening finds holes, or what the medium has.
            let _ = recover::void(&*self.storage, Some(self.session), recover::errno(&e));
            status
        })
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
