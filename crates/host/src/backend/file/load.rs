//! Reads superblock, table, session and notes, and derives the state of each zone. Opening and checking use this; it
//! writes nothing.

use super::FileError;
use super::format::{
    Debt, Found, GROUP, Layout, NOTE, Note, PAGE, Record, SECTOR, SESSION_AT, Session, Super,
    decode_table, is_newer, no_disk,
};
use super::storage::Storage;
use crate::os_error::{Attempt, os_error};
use crate::zone_memory::check_zone_memory;
use std::io;
use std::ops::Range;
use zoneplug_core::zone::Condition;
use zoneplug_core::{Error, ZoneNo};

/// Groups that are read at a time: 1 MiB of each copy of the table.
const AT_ONCE: u32 = 2048;
/// Attempts to read something that may change while it is read.
const TRIES: u32 = 4;

/// The most bytes of memory that a disk in a file takes for a zone while it is opened: its records as they are in the
/// file and as they count, its state, and its place in the list of open zones.
const FILE_ZONE_BYTES: u64 = 152;

/// The error of a failed access to the storage. `what`: the attempt.
pub(super) fn io_error(what: String, e: io::Error) -> Error {
    os_error(Attempt::DiskFile, what, e)
}

/// The superblock of a disk, and the state of its two copies.
#[derive(Debug)]
pub(super) struct Head {
    pub(super) sup: Super,
    pub(super) layout: Layout,
    /// Which copies are whole.
    pub(super) copies: [bool; 2],
    /// The first copy as it is in the file, whole or not.
    pub(super) first: Box<[u8; SECTOR]>,
}

/// Reads the superblock. `what` names the file in errors. Fails if there is too little memory for the zones.
pub(super) fn head(storage: &dyn Storage, what: &str) -> Result<Head, Error> {
    let failed = |e| io_error(format!("cannot read {what}"), e);
    let len = storage.len().map_err(failed)?;
    let read = |at: u64, bytes: &mut [u8; SECTOR]| -> Result<Found, Error> {
        if len < PAGE || at + PAGE > len {
            return Ok(Found::Foreign);
        }
        storage.read_at(at, bytes).map_err(failed)?;
        Ok(Super::decode(bytes))
    };
    let mut bytes = Box::new([0; SECTOR]);
    let first = read(0, &mut bytes)?;
    // The second copy is where the first says. If the first is not readable, the second is looked for at the end of
    // the file.
    let at = match &first {
        Found::Good(_, l) => l.supers()[1],
        _ => len.saturating_sub(PAGE) / PAGE * PAGE,
    };
    let second = match read(at, &mut [0; SECTOR])? {
        Found::Good(_, l) if l.supers()[1] != at => Found::Damaged,
        found => found,
    };
    let (sup, layout, copies) = match (first, second) {
        // A newer program may have written only one of the copies.
        (first, second) if [&first, &second].iter().any(|f| matches!(f, Found::Newer(_))) => {
            return Err(no_disk(what, [&first, &second]));
        }
        (Found::Good(s, l), Found::Good(t, _)) if *s == *t => (s, l, [true, true]),
        (Found::Good(s, l), _) => (s, l, [true, false]),
        (_, Found::Good(s, l)) => (s, l, [false, true]),
        (first, second) => return Err(no_disk(what, [&first, &second])),
    };
    if len < layout.len {
        let path = what.to_owned();
        return Err(FileError::Truncated { path, len, needed: layout.len }.into());
    }
    check_zone_memory(sup.geometry.memory().and_each(FILE_ZONE_BYTES))?;
    Ok(Head { sup: *sup, layout, copies, first: bytes })
}

/// The table and the notes of a disk, or of some groups of zones.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Zones {
    /// The number of the newest sector of each group.
    pub(super) seqs: Vec<u64>,
    /// The state in the table, which survives a power cut.
    pub(super) table: Vec<Record>,
    /// The current state: the table, and the notes that count.
    pub(super) live: Vec<Record>,
    /// The last session.
    pub(super) session: Option<Session>,
    /// Groups with a damaged copy. A sector of zeroes was never written and is not damaged.
    pub(super) damaged: Vec<u32>,
    pub(super) lost: Vec<u32>,
    /// Zones whose records are impossible.
    pub(super) impossible: Vec<u32>,
    /// Zones whose note covers data that the file does not have.
    pub(super) short: Vec<u32>,
    /// Zones whose note is damaged, or is of a later reset than the table.
    unsettled: Vec<u32>,
}

impl Zones {
    fn none(session: Option<Session>) -> Zones {
        Zones {
            seqs: Vec::new(),
            table: Vec::new(),
            live: Vec::new(),
            session,
            damaged: Vec::new(),
            lost: Vec::new(),
            impossible: Vec::new(),
            short: Vec::new(),
            unsettled: Vec::new(),
        }
    }

    /// Appends the groups that follow these.
    fn append(&mut self, mut next: Zones) {
        self.seqs.append(&mut next.seqs);
        self.table.append(&mut next.table);
        self.live.append(&mut next.live);
        self.damaged.append(&mut next.damaged);
        self.lost.append(&mut next.lost);
        self.impossible.append(&mut next.impossible);
        self.short.append(&mut next.short);
        self.unsettled.append(&mut next.unsettled);
    }

    /// Whether the last writer died and the system has not been restarted since.
    pub(super) fn process_died(&self, boot: Option<[u8; 16]>) -> bool {
        self.session.is_some_and(|s| !s.closed && boot == Some(s.boot))
    }

    /// The error (errno) that left it unknown which writes of the last writer are durable.
    pub(super) fn failure(&self) -> Option<u32> {
        self.session.filter(|s| !s.closed && s.failure != 0).map(|s| s.failure)
    }

    /// The loss to report to clients that have outlived the last writer. A power cut leaves no such clients, and may
    /// lose unflushed writes.
    pub(super) fn debt(&self, boot: Option<[u8; 16]>) -> Debt {
        let Some(session) = self.session else { return Debt::default() };
        // A program older than debts writes a failure without one.
        let failed = self.failure().is_some() && session.debt.boot == [0; 16];
        match failed || !self.short.is_empty() {
            true => Debt::new(boot),
            false if session.debt.is_of(boot) => session.debt,
            false => Debt::default(),
        }
    }

    /// Whether the last writer did not close the disk.
    pub(super) fn is_unclean(&self) -> bool {
        self.session.is_none_or(|s| !s.closed)
    }
}

/// Reads table, session and notes.
pub(super) fn zones(storage: &dyn Storage, head: &Head) -> io::Result<Zones> {
    let reader = Reader { storage, sup: &head.sup, layout: &head.layout };
    reader.read_in_one_session(0..head.layout.groups)
}

/// Reads the current state of the zones of a range, and no groups outside it, so that a report of all zones in parts
/// reads the file once.
pub(super) fn live(
    storage: &dyn Storage,
    sup: &Super,
    layout: &Layout,
    zones: Range<u32>,
) -> io::Result<Vec<Record>> {
    let reader = Reader { storage, sup, layout };
    let groups = zones.start / GROUP..zones.end.div_ceil(GROUP);
    let mut live = reader.read_in_one_session(groups)?.live;
    live.drain(..(zones.start % GROUP) as usize);
    live.truncate(zones.len());
    Ok(live)
}

/// Reads the zones of a disk that another process may be writing.
struct Reader<'a> {
    storage: &'a dyn Storage,
    sup: &'a Super,
    layout: &'a Layout,
}

impl Reader<'_> {
    /// Reads groups under one session. A writer that begins or ends meanwhile writes the table and decides which
    /// notes count, so groups read before and after that do not fit together.
    fn read_in_one_session(&self, groups: Range<u32>) -> io::Result<Zones> {
        let mut session = self.session()?;
        for _ in 1..TRIES {
            let zones = self.all(groups.clone(), session)?;
            let now = self.session()?;
            if now == session {
                return Ok(zones);
            }
            session = now;
        }
        self.all(groups, session)
    }

    fn session(&self) -> io::Result<Option<Session>> {
        let mut b = [0; SECTOR];
        self.storage.read_at(SESSION_AT, &mut b)?;
        Ok(Session::decode(&b))
    }

    fn all(&self, groups: Range<u32>, session: Option<Session>) -> io::Result<Zones> {
        let mut all = Zones::none(session);
        // Room for all at once: lists that grow may take twice as much.
        all.seqs.reserve_exact(groups.len());
        all.table.reserve_exact(groups.len() * GROUP as usize);
        all.live.reserve_exact(groups.len() * GROUP as usize);
        for first in groups.clone().step_by(AT_ONCE as usize) {
            let end = groups.end.min(first + AT_ONCE);
            all.append(self.checked(first..end, session)?);
        }
        Ok(all)
    }

    /// Reads groups that fit into memory. A sector or note that is being written looks damaged; a zone that is being
    /// reset looks short, or has a note that does not fit the table. So such a finding counts only if a second
    /// reading confirms it.
    fn checked(&self, groups: Range<u32>, session: Option<Session>) -> io::Result<Zones> {
        let mut zones = self.groups(groups.clone(), session)?;
        for _ in 1..TRIES {
            if zones.damaged.is_empty() && zones.short.is_empty() && zones.unsettled.is_empty() {
                break;
            }
            let again = self.groups(groups.clone(), session)?;
            if again == zones {
                break;
            }
            zones = again;
        }
        Ok(zones)
    }

    fn groups(&self, groups: Range<u32>, session: Option<Session>) -> io::Result<Zones> {
        let mut z = Zones::none(session);
        self.read_table(groups.clone(), &mut z)?;
        z.live = z.table.clone();
        if let Some(session) = session.filter(|_| z.process_died(self.storage.boot_id())) {
            self.read_notes(groups.start * GROUP, session, &mut z)?;
        }
        Ok(z)
    }

    /// Reads the table of some groups.
    fn read_table(&self, groups: Range<u32>, z: &mut Zones) -> io::Result<()> {
        let (g, nr) = (&self.sup.geometry, self.sup.geometry.nr_zones());
        let unit = self.sup.limits.write_granularity_sectors;
        let mut copies = [0, 1].map(|_| vec![0; groups.len() * SECTOR]);
        for (copy, at) in copies.iter_mut().zip(self.layout.tables) {
            self.storage.read_at(at + u64::from(groups.start) * SECTOR as u64, copy)?;
        }
        for (i, group) in groups.enumerate() {
            let sector = |copy: usize| &copies[copy][i * SECTOR..][..SECTOR];
            let read = [0, 1].map(|copy| decode_table(sector(copy), &self.sup.uuid, group, copy));
            let bad = |copy: usize| read[copy].is_none() && sector(copy).iter().any(|b| *b != 0);
            if bad(0) || bad(1) {
                z.damaged.push(group);
            }
            let first = group * GROUP;
            let zones = first..nr.min(first + GROUP);
            let newest =
                read.into_iter().flatten().reduce(|a, b| if is_newer(a.0, b.0) { a } else { b });
            if newest.is_none() {
                z.lost.push(group);
            }
            z.seqs.push(newest.map_or(0, |(seq, _)| seq));
            for (n, zone) in zones.enumerate() {
                let conv = g.is_conventional(ZoneNo(zone));
                let lost = if conv { Condition::NotWp } else { Condition::Offline };
                let mut r = match newest {
                    Some((_, records)) => records[n],
                    None => Record { cond: lost, ..Record::new(conv) },
                };
                if !r.is_possible(conv, g.capacity_of(ZoneNo(zone)), unit) {
                    z.impossible.push(zone);
                    (r.wp, r.cond) = (0, lost);
                }
                z.table.push(r);
            }
        }
        Ok(())
    }

    /// Reads the notes of the zones in `z`, the first of which is `first`, and applies those that count.
    fn read_notes(&self, first: u32, session: Session, z: &mut Zones) -> io::Result<()> {
        let unit = self.sup.limits.write_granularity_sectors;
        let mut notes = vec![0; z.live.len() * NOTE as usize];
        self.storage.read_at(self.layout.note(first), &mut notes)?;
        let mut holes = Holes { storage: self.storage, known: None };
        for ((zone, r), bytes) in (first..).zip(&mut z.live).zip(notes.chunks(NOTE as usize)) {
            let Some(note) = Note::decode(bytes) else {
                // A note that was never written is zeroes.
                if bytes.iter().any(|b| *b != 0) {
                    z.unsettled.push(zone);
                }
                continue;
            };
            if note.session != session.id || note.generation != r.generation {
                // A reset is in the table before the zone's next note is written.
                if note.session == session.id
                    && note.generation.wrapping_sub(r.generation) as i64 > 0
                {
                    z.unsettled.push(zone);
                }
                continue;
            }
            let capacity = self.sup.geometry.capacity_of(ZoneNo(zone));
            r.writes = r.writes.max(note.writes);
            if !matches!(r.cond, Condition::Empty | Condition::Closed)
                || note.wp <= r.wp
                || note.wp > capacity
                || !note.wp.is_multiple_of(unit)
            {
                continue;
            }
            // Data that could not be written back becomes a hole when the page cache drops it.
            let at = |sectors| self.layout.data(zone, sectors);
            // A program that does not count openings wrote zeroes as holes.
            let hole = if session.opened == 0 { None } else { holes.next(at(r.wp)) };
            let hole = hole.filter(|hole| *hole < at(note.wp));
            let there = |hole: u64| (hole.saturating_sub(at(0)) >> 9) as u32 / unit * unit;
            let wp = hole.map_or(note.wp, |hole| there(hole).max(r.wp));
            if wp < note.wp {
                z.short.push(zone);
            }
            r.wp = wp;
            r.cond = match wp {
                0 => Condition::Empty,
                _ if wp == capacity => Condition::Full,
                _ => Condition::Closed,
            };
        }
        Ok(())
    }
}

/// Finds holes at ascending offsets, for notes that were all read before. If many zones are full, it asks the system
/// once for all of them, instead of once for each zone.
struct Holes<'a> {
    storage: &'a dyn Storage,
    /// Where the last search began, and its result.
    known: Option<(u64, Option<u64>)>,
}

impl Holes<'_> {
    /// The first byte from `at` on that is in a hole. `None`: there is no hole, or it is unknown.
    fn next(&mut self, at: u64) -> Option<u64> {
        match self.known {
            Some((from, hole)) if from <= at && hole.is_none_or(|hole| at <= hole) => hole,
            _ => {
                let hole = self.storage.next_hole(at);
                self.known = Some((at, hole));
                hole
            }
        }
    }
}
