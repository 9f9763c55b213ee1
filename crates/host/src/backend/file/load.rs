//! Reads superblock, table, session and notes, and finds the state of each zone. Opening and checking use
//! this; it writes nothing.

use super::format::{
    Found, GROUP, Layout, NOTE, Note, PAGE, Record, SECTOR, SESSION_AT, Session, Super,
    decode_table, is_newer, no_disk,
};
use super::storage::Storage;
use std::io;
use zoneplug_core::zone::Condition;
use zoneplug_core::{Bytes, Error, ErrorKind, ZoneNo};

/// Bytes that are read at a time.
const CHUNK: u64 = 1 << 20;

/// The error of a failed access to the storage, with what was attempted.
pub(super) fn io_error(what: String, e: io::Error) -> Error {
    let kind = match e.kind() {
        io::ErrorKind::NotFound => ErrorKind::NotFound,
        io::ErrorKind::InvalidInput => ErrorKind::Invalid,
        io::ErrorKind::ResourceBusy => ErrorKind::Busy,
        _ => ErrorKind::Io,
    };
    let hint = match e.kind() {
        io::ErrorKind::PermissionDenied => "check the permissions of the file",
        io::ErrorKind::NotFound => "check the path; zoneplug create makes a disk",
        io::ErrorKind::InvalidInput => {
            "a durable disk is a regular file; zoneplug create makes one"
        }
        io::ErrorKind::ResourceBusy => "try again",
        io::ErrorKind::StorageFull => "make room in the file system",
        _ => "see the kernel's log for errors of the device below",
    };
    Error::new(kind, format!("{what}: {e}")).hint(hint).source(e)
}

/// The superblock of a disk, and the state of its two copies.
#[derive(Debug)]
pub(super) struct Head {
    pub(super) sup: Super,
    pub(super) layout: Layout,
    /// Which copies are whole.
    pub(super) copies: [bool; 2],
}

fn super_at(storage: &dyn Storage, at: u64) -> io::Result<Found> {
    let mut b = [0; SECTOR];
    storage.read_at(at, &mut b)?;
    Ok(Super::decode(&b))
}

/// Reads the superblock. `what` names the file in errors.
pub(super) fn head(storage: &dyn Storage, what: &str) -> Result<Head, Error> {
    let failed = |e| io_error(format!("cannot read {what}"), e);
    let len = storage.len().map_err(failed)?;
    let read = |at: u64| match len >= PAGE && at + PAGE <= len {
        true => super_at(storage, at).map_err(failed),
        false => Ok(Found::Foreign),
    };
    let first = read(0)?;
    // The second copy is where the first says. Without the first it is at the end of the file, if its
    // content says so.
    let at = match &first {
        Found::Good(_, l) => l.supers()[1],
        _ => len.saturating_sub(PAGE) / PAGE * PAGE,
    };
    let second = match read(at)? {
        Found::Good(_, l) if l.supers()[1] != at => Found::Damaged,
        found => found,
    };
    let (sup, layout, copies) = match (first, second) {
        // A newer program may have written only one of them.
        (first, second) if [&first, &second].iter().any(|f| matches!(f, Found::Newer(_))) => {
            return Err(no_disk(what, [&first, &second]));
        }
        (Found::Good(s, l), Found::Good(t, _)) if *s == *t => (s, l, [true, true]),
        (Found::Good(s, l), _) => (s, l, [true, false]),
        (_, Found::Good(s, l)) => (s, l, [false, true]),
        (first, second) => return Err(no_disk(what, [&first, &second])),
    };
    if len < layout.len {
        return Err(Error::new(
            ErrorKind::Io,
            format!("{what} is truncated: {} of {} bytes are there", len, layout.len),
        )
        .hint(format!(
            "restore it from a backup; truncate -s {} makes it readable, what was cut off reads as zeroes",
            Bytes(layout.len)
        )));
    }
    Ok(Head { sup: *sup, layout, copies })
}

/// The table and the notes of a disk.
#[derive(Debug)]
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
    /// Zones whose note says more than the file has.
    pub(super) short: Vec<u32>,
}

impl Zones {
    /// Whether the last writer died and the system has not been restarted since.
    pub(super) fn process_died(&self, boot: Option<[u8; 16]>) -> bool {
        self.session.is_some_and(|s| !s.closed && boot == Some(s.boot))
    }

    /// The error after which the last writer did not know what is durable.
    pub(super) fn failure(&self) -> Option<u32> {
        self.session.filter(|s| !s.closed && s.failure != 0).map(|s| s.failure)
    }

    /// Whether the last writer did not close the disk.
    pub(super) fn is_unclean(&self) -> bool {
        self.session.is_none_or(|s| !s.closed)
    }
}

/// Reads a region in pieces.
fn region(storage: &dyn Storage, at: u64, len: u64) -> io::Result<Vec<u8>> {
    let mut all = vec![0; len as usize];
    for (i, part) in all.chunks_mut(CHUNK as usize).enumerate() {
        storage.read_at(at + i as u64 * CHUNK, part)?;
    }
    Ok(all)
}

/// Reads table, session and notes.
pub(super) fn zones(storage: &dyn Storage, head: &Head) -> io::Result<Zones> {
    let (g, layout) = (&head.sup.geometry, &head.layout);
    let (nr, unit) = (g.nr_zones(), head.sup.limits.write_granularity_sectors);
    let bytes = u64::from(layout.groups) * SECTOR as u64;
    let copies =
        [region(storage, layout.tables[0], bytes)?, region(storage, layout.tables[1], bytes)?];
    let mut z = Zones {
        seqs: Vec::with_capacity(layout.groups as usize),
        table: Vec::with_capacity(nr as usize),
        live: Vec::new(),
        session: None,
        damaged: Vec::new(),
        lost: Vec::new(),
        impossible: Vec::new(),
        short: Vec::new(),
    };
    for group in 0..layout.groups {
        let sector = |i: usize| &copies[i][group as usize * SECTOR..][..SECTOR];
        let read = [0, 1].map(|i| decode_table(sector(i), &head.sup.uuid, group, i));
        let bad = |i: usize| read[i].is_none() && sector(i).iter().any(|b| *b != 0);
        if bad(0) || bad(1) {
            z.damaged.push(group);
        }
        let first = group * GROUP;
        let zones = first..nr.min(first + GROUP);
        let newest =
            read.into_iter().flatten().reduce(|a, b| if is_newer(a.0, b.0) { a } else { b });
        match newest {
            Some((seq, records)) => {
                z.seqs.push(seq);
                z.table.extend(&records[..zones.len()]);
            }
            None => {
                z.lost.push(group);
                z.seqs.push(0);
                z.table.extend(zones.map(|n| match g.is_conventional(ZoneNo(n)) {
                    true => Record::new(true),
                    false => Record { cond: Condition::Offline, ..Record::new(false) },
                }));
            }
        }
    }
    for (n, r) in z.table.iter_mut().enumerate() {
        let (zone, conv) = (ZoneNo(n as u32), g.is_conventional(ZoneNo(n as u32)));
        if !r.is_possible(conv, g.capacity_of(zone), unit) {
            z.impossible.push(zone.0);
            *r = Record {
                wp: 0,
                cond: if conv { Condition::NotWp } else { Condition::Offline },
                ..*r
            };
        }
    }
    let mut b = [0; SECTOR];
    storage.read_at(SESSION_AT, &mut b)?;
    z.session = Session::decode(&b);
    z.live = z.table.clone();
    if let Some(session) = z.session.filter(|_| z.process_died(storage.boot_id())) {
        let notes = region(storage, layout.notes, u64::from(nr) * NOTE)?;
        for (n, r) in z.live.iter_mut().enumerate() {
            let note = Note::decode(&notes[n * NOTE as usize..][..NOTE as usize]);
            let Some(note) =
                note.filter(|n| n.session == session.id && n.generation == r.generation)
            else {
                continue;
            };
            let capacity = g.capacity_of(ZoneNo(n as u32));
            r.writes = r.writes.max(note.writes);
            if matches!(r.cond, Condition::Empty | Condition::Closed)
                && note.wp > r.wp
                && note.wp <= capacity
                && note.wp.is_multiple_of(unit)
            {
                // Data that could not be written back becomes a hole when the page cache forgets it.
                let at = |sectors| layout.data(n as u32, sectors);
                // A program that does not count openings wrote zeroes as holes.
                let first = if session.opened == 0 { None } else { storage.next_hole(at(r.wp)) };
                let hole = first.filter(|hole| *hole < at(note.wp));
                let there = |hole: u64| (hole.saturating_sub(at(0)) >> 9) as u32 / unit * unit;
                let wp = hole.map_or(note.wp, |hole| there(hole).max(r.wp));
                if wp < note.wp {
                    z.short.push(n as u32);
                }
                r.wp = wp;
                r.cond = match wp {
                    0 => Condition::Empty,
                    _ if wp == capacity => Condition::Full,
                    _ => Condition::Closed,
                };
            }
        }
    }
    Ok(z)
}
