//! Opens a log: finds the content of each zone, the end of the log, and what a crash has torn.

use super::format::{ALIGN, Header};
use super::io::Io;
use super::pool::Pool;
use super::table::{Held, LogZone, Table, Use};
use super::walk::{Found, Walk};
use super::{LogError, LogOptions};
use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::sync::Arc;
use zoneplug_core::zone::{Condition, Geometry, Limits, ZoneInfo};
use zoneplug_core::{Op, Status, ZoneNo};

/// Bytes at the start of each zone that are searched for a header of the log.
const FIRST: u64 = 4096;
/// Bytes searched in a zone without a header there.
const SEARCHED: u64 = 1 << 20;

/// The findings of opening a log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Recovery {
    /// Zones that hold records.
    pub zones_in_use: u32,
    /// The number of the oldest record, if there is one.
    pub first: Option<u64>,
    /// The number of the newest record, if there is one.
    pub last: Option<u64>,
    /// Bytes behind the newest record that are no whole record: torn by a crash. They are skipped,
    /// and were never durable.
    pub torn_bytes: u64,
    /// Records missing or damaged in the newest zone. Opening does not read older zones: an
    /// iteration finds their damage.
    pub holes: Vec<LogError>,
    /// Zones of the set that the log cannot write: read-only or offline. The records of an offline
    /// zone are gone; if it was not the newest zone, an iteration finds a hole.
    pub lost: Vec<(ZoneNo, Condition)>,
    /// Zones of the set that hold other data. The log does not touch them.
    pub foreign: Vec<ZoneNo>,
}

/// Tracks the number of the next record.
#[derive(Debug, Default)]
pub(super) struct Follow {
    pub(super) expected: Option<u64>,
    session: u32,
}

impl Follow {
    pub(super) fn from(expected: u64, session: u32) -> Follow {
        Follow { expected: Some(expected), session }
    }

    /// Checks a record against the expected number. `skipped`: the first byte of data before it
    /// that form no record. Returns the error before the record, if any.
    pub(super) fn see(&mut self, header: &Header, skipped: Option<u64>) -> Option<LogError> {
        let (sequence, session) = (header.sequence, header.session);
        let expected = self.expected.replace(sequence + 1).unwrap_or(sequence);
        let before = std::mem::replace(&mut self.session, session);
        if sequence != expected {
            return Some(LogError::Hole { first: expected, next: sequence });
        }
        // After a crash the next session writes behind a torn record. No record is torn within a
        // session.
        let damaged = skipped.filter(|_| session == before);
        damaged.map(|at| LogError::Corrupted { sector: zoneplug_core::Sector(at >> 9) })
    }
}

/// A set of logs, checked against the disk.
#[derive(Debug)]
pub(super) struct Set {
    /// The ids of the logs.
    ids: RangeInclusive<u64>,
    /// The zones that the logs may use: sequential, more than there are logs.
    zones: Vec<ZoneNo>,
}

impl Set {
    pub(super) fn new(
        options: &LogOptions,
        g: &Geometry,
        limits: &Limits,
        logs: u32,
    ) -> Result<Set, LogError> {
        let wrong = |what: String| Err(LogError::Setup(what));
        let Some(more) = u64::from(logs).checked_sub(1) else {
            return wrong("a set of no logs".to_owned());
        };
        let Some(last) = options.id.checked_add(more) else {
            return wrong(format!("{logs} logs from id {} on: there are not so many", options.id));
        };
        for (max, what) in [(limits.max_open_zones, "open"), (limits.max_active_zones, "active")] {
            if max != 0 && logs > max {
                return wrong(format!("{logs} logs on a disk that allows {max} {what} zones"));
            }
        }
        let set = options.zones.clone().unwrap_or(0..g.nr_zones());
        if set.end > g.nr_zones() {
            let what = format!("zones {} to {} of a disk of {}", set.start, set.end, g.nr_zones());
            return wrong(what);
        }
        let zones: Vec<ZoneNo> = set.map(ZoneNo).filter(|z| !g.is_conventional(*z)).collect();
        // Each log has a head, and one more zone lets a log continue.
        match zones.len() as u64 {
            n if n > u64::from(logs) => Ok(Set { ids: options.id..=last, zones }),
            n if logs == 1 => {
                wrong(format!("a log needs two sequential zones, and the set has {n}"))
            }
            n => wrong(format!(
                "{logs} logs need {} sequential zones, and the set has {n}",
                more + 2
            )),
        }
    }
}

/// Resets all zones of the set, except those that cannot be written.
pub(super) async fn erase<I: Io>(io: &I, g: &Geometry, set: &Set) -> Result<(), LogError> {
    for zone in &set.zones {
        let info = io.zone(g.zone_start(*zone)).await?;
        if !matches!(info.cond, Condition::Empty | Condition::ReadOnly | Condition::Offline) {
            io.manage(Op::ZoneReset, info.start, info.len_sectors as u32).await?;
        }
    }
    Ok(())
}

/// A zone as opening finds it.
struct Seen {
    zone: LogZone,
    cond: Condition,
    /// The log of the set that has records in the zone.
    log: Option<u64>,
}

/// Finds the log that a reported zone belongs to, and how the log uses the zone.
async fn look<I: Io>(
    io: &I,
    logs: &RangeInclusive<u64>,
    zone: &LogZone,
    info: &ZoneInfo,
) -> Result<(Option<u64>, Use), LogError> {
    let end = match info.cond {
        Condition::Offline => return Ok((None, Use::Lost(info.cond))),
        Condition::Full | Condition::ReadOnly => zone.limit(),
        _ => info.wp.0 << 9,
    };
    if end <= zone.start {
        return Ok((None, Use::Free));
    }
    let none = if info.cond == Condition::ReadOnly { Use::Lost(info.cond) } else { Use::Foreign };
    // Any header of a log identifies the zone, so damage at its start does not lose the whole zone.
    let mut header = None;
    for len in [FIRST, SEARCHED] {
        let sectors = (end - zone.start).min(len) >> 9;
        let bytes = match io.read(zone.sector(), sectors as u32).await {
            Ok(bytes) => bytes,
            Err(LogError::Io { status: Status::Medium, .. }) => return Ok((None, none)),
            Err(e) => return Err(e),
        };
        header = (0..bytes.len()).step_by(ALIGN as usize).find_map(|at| {
            let header = Header::decode(&bytes[at..])?;
            let ours = logs.contains(&header.log) && header.position == zone.start + at as u64;
            ours.then_some(header)
        });
        if header.is_some() {
            break;
        }
    }
    Ok(header.map_or((None, none), |h| {
        let sealed = matches!(info.cond, Condition::Full | Condition::ReadOnly);
        let held = Held { generation: h.generation, first: h.sequence, end, sealed };
        (Some(h.log), Use::Held(held))
    }))
}

/// Opens the existing logs, or new ones in zones that are all empty. A log of the set without a
/// zone begins.
pub(super) async fn open<I: Io>(
    io: &I,
    g: &Geometry,
    limits: &Limits,
    set: &Set,
) -> Result<Vec<(Table, Recovery)>, LogError> {
    let block = u64::from(limits.write_granularity_sectors) << 9;
    let mut all = Vec::new();
    let (first, last) = (set.zones[0], set.zones[set.zones.len() - 1]);
    let report = io.report(g.zone_start(first), last.0 - first.0 + 1).await?;
    for info in report {
        let (no, _) = g.zone_of(info.start);
        if g.is_conventional(no) || no > last {
            continue;
        }
        let capacity = (info.capacity_sectors << 9) / block * block;
        let (start, len_sectors) = (info.start.0 << 9, info.len_sectors as u32);
        let mut zone = LogZone { no, start, len_sectors, capacity, state: Use::Free };
        let (log, state) = look(io, &set.ids, &zone, &info).await?;
        zone.state = state;
        all.push(Seen { zone, cond: info.cond, log });
    }
    let foreign = all.iter().find(|s| s.zone.state == Use::Foreign);
    if let (true, Some(foreign)) = (all.iter().all(|s| s.log.is_none()), foreign) {
        return Err(LogError::NotALog { zone: foreign.zone.no });
    }
    let free = all.iter().map(|s| s.zone.state == Use::Free).collect();
    let pool = Arc::new(Pool::new(free));
    let mut opened = Vec::new();
    for id in set.ids.clone() {
        opened.push(open_one(io, id, block, &all, pool.clone()).await?);
    }
    Ok(opened)
}

/// Opens one log of a set.
async fn open_one<I: Io>(
    io: &I,
    id: u64,
    block: u64,
    all: &[Seen],
    pool: Arc<Pool>,
) -> Result<(Table, Recovery), LogError> {
    let mut found = Recovery::default();
    let mut zones = Vec::new();
    for seen in all {
        let mut zone = seen.zone;
        match (seen.log, zone.state, seen.cond) {
            (Some(log), ..) if log != id => zone.state = Use::Free,
            (_, Use::Foreign, _) => found.foreign.push(zone.no),
            (_, _, cond @ (Condition::ReadOnly | Condition::Offline)) => {
                found.lost.push((zone.no, cond));
            }
            _ => {}
        }
        zones.push(zone);
    }
    let mut table = Table {
        log: id,
        block,
        zones,
        pool,
        line: VecDeque::new(),
        head: None,
        reserved: None,
        next_sequence: 1,
        next_generation: 1,
        session: 1,
        session_durable: false,
        dirty: false,
        suspect: false,
        failed: false,
    };
    let mut line: Vec<(u64, usize)> = Vec::new();
    for i in 0..table.zones.len() {
        line.extend(table.held(i).map(|h| (h.generation, i)));
    }
    line.sort_unstable();
    table.line = line.iter().map(|(_, i)| *i).collect();
    found.zones_in_use = table.line.len() as u32;
    if let Some(&newest) = table.line.back() {
        find_last(io, &mut table, &mut found, newest).await?;
        if all[newest].cond != Condition::ReadOnly {
            table.head = Some(newest);
        }
        // These zones were finished before the newest was written, but the crash may have undone
        // that.
        for &i in table.line.iter().take(table.line.len() - 1) {
            let zone = &table.zones[i];
            if all[i].cond.is_active() {
                io.manage(Op::ZoneFinish, zone.sector(), zone.len_sectors).await?;
            }
        }
        // All records visible now must survive the next crash too.
        io.flush().await?;
    }
    Ok((table, found))
}

/// Reads the newest zone from its start.
async fn find_last<I: Io>(
    io: &I,
    table: &mut Table,
    found: &mut Recovery,
    newest: usize,
) -> Result<(), LogError> {
    let Some(held) = table.held(newest) else { return Ok(()) };
    let start = table.zones[newest].start;
    let mut walk = Walk::new(table.log, table.block, held.generation, start, held.end);
    let mut follow = Follow::from(held.first, 0);
    let mut end = start;
    let mut session = 0;
    let (rest, sealed) = loop {
        match walk.next(io).await? {
            Found::Record { header, skipped, .. } => {
                found.holes.extend(follow.see(&header, skipped));
                session = session.max(header.session);
                end = header.position + header.taken();
            }
            Found::End { rest, sealed } => break (rest, sealed),
        }
    };
    let next = follow.expected.unwrap_or(held.first);
    if let (Use::Held(held), true) = (&mut table.zones[newest].state, sealed) {
        held.sealed = true;
    }
    found.torn_bytes =
        rest.map_or(0, |_| held.end.saturating_sub(end.next_multiple_of(table.block)));
    found.first = table.line.front().and_then(|z| table.held(*z)).map(|h| h.first);
    found.first = found.first.filter(|first| *first < next);
    found.last = found.first.map(|_| next - 1);
    table.next_sequence = next;
    table.next_generation = held.generation + 1;
    table.session = session.max(walk.seen_session()) + 1;
    Ok(())
}
