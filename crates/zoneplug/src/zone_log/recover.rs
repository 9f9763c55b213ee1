//! Opening a log: which zones hold what, where the end is, and what a crash has left behind it.

use super::format::{ALIGN, Header};
use super::io::Io;
use super::table::{Held, Table, Use, Zone};
use super::walk::{Found, Walk};
use super::{LogError, LogOptions};
use std::collections::VecDeque;
use zoneplug_core::zone::{Condition, Geometry, Limits, ZoneInfo};
use zoneplug_core::{Op, Status, ZoneNo};

/// Bytes at the start of each zone that are looked at for a header of the log.
const FIRST: u64 = 4096;
/// As many of a zone that has none there.
const SEARCHED: u64 = 1 << 20;

/// What opening a log has found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Recovery {
    /// Zones that hold records.
    pub zones_in_use: u32,
    /// The number of the oldest record, if there is one.
    pub first: Option<u64>,
    /// The number of the newest record, if there is one.
    pub last: Option<u64>,
    /// Bytes behind the newest record that are no whole record: what a crash has torn. They are passed over, and were never
    /// durable.
    pub torn_bytes: u64,
    /// Records that are missing or damaged in the newest zone. Older zones are not read on opening: an iteration finds
    /// what is wrong there.
    pub holes: Vec<LogError>,
    /// Zones of the set that the log cannot write: read-only or offline. Records in a zone that went offline are gone; if it
    /// was not the newest zone, an iteration finds a hole.
    pub lost: Vec<(ZoneNo, Condition)>,
    /// Zones of the set that hold something else. The log does not touch them.
    pub foreign: Vec<ZoneNo>,
}

/// Which record comes next.
#[derive(Debug, Default)]
pub(super) struct Follow {
    pub(super) expected: Option<u64>,
    session: u32,
}

impl Follow {
    pub(super) fn from(expected: u64, session: u32) -> Follow {
        Follow { expected: Some(expected), session }
    }

    /// A record was found, behind something that is none from byte `skipped` of the disk on. What is wrong?
    pub(super) fn see(&mut self, header: &Header, skipped: Option<u64>) -> Option<LogError> {
        let (sequence, session) = (header.sequence, header.session);
        let expected = self.expected.replace(sequence + 1).unwrap_or(sequence);
        let before = std::mem::replace(&mut self.session, session);
        if sequence != expected {
            return Some(LogError::Hole { first: expected, next: sequence });
        }
        // What a crash tears, another session writes behind. Within a session nothing is torn.
        let damaged = skipped.filter(|_| session == before);
        damaged.map(|at| LogError::Corrupted { sector: zoneplug_core::Sector(at >> 9) })
    }
}

/// The zones that a log may use.
fn zones_of(options: &LogOptions, g: &Geometry) -> Result<Vec<ZoneNo>, LogError> {
    let set = options.zones.clone().unwrap_or(0..g.nr_zones());
    if set.end > g.nr_zones() {
        let what = format!("zones {} to {} of a disk of {}", set.start, set.end, g.nr_zones());
        return Err(LogError::Setup(what));
    }
    let zones: Vec<ZoneNo> = set.map(ZoneNo).filter(|z| !g.is_conventional(*z)).collect();
    match zones.len() {
        n @ 0..2 => {
            Err(LogError::Setup(format!("a log needs two sequential zones, and the set has {n}")))
        }
        _ => Ok(zones),
    }
}

/// Makes all zones of the set empty, but those that cannot be written.
pub(super) async fn erase<I: Io>(
    io: &I,
    g: &Geometry,
    options: &LogOptions,
) -> Result<(), LogError> {
    for zone in zones_of(options, g)? {
        let info = io.zone(g.zone_start(zone)).await?;
        if !matches!(info.cond, Condition::Empty | Condition::ReadOnly | Condition::Offline) {
            io.manage(Op::ZoneReset, info.start, info.len_sectors as u32).await?;
        }
    }
    Ok(())
}

/// What a zone holds that a report describes.
async fn look<I: Io>(io: &I, log: u64, zone: &Zone, info: &ZoneInfo) -> Result<Use, LogError> {
    let end = match info.cond {
        Condition::Offline => return Ok(Use::Lost(info.cond)),
        Condition::Full | Condition::ReadOnly => zone.limit(),
        _ => info.wp.0 << 9,
    };
    if end <= zone.start {
        return Ok(Use::Empty);
    }
    let none = if info.cond == Condition::ReadOnly { Use::Lost(info.cond) } else { Use::Foreign };
    // Damage at the start of a zone must not cost the zone: any header of this log says what the zone is.
    let mut header = None;
    for len in [FIRST, SEARCHED] {
        let sectors = (end - zone.start).min(len) >> 9;
        let bytes = match io.read(zone.sector(), sectors as u32).await {
            Ok(bytes) => bytes,
            Err(LogError::Io { status: Status::Medium, .. }) => return Ok(none),
            Err(e) => return Err(e),
        };
        header = (0..bytes.len()).step_by(ALIGN as usize).find_map(|at| {
            let header = Header::decode(&bytes[at..])?;
            let ours = header.log == log && header.position == zone.start + at as u64;
            ours.then_some(header)
        });
        if header.is_some() {
            break;
        }
    }
    Ok(header.map_or(none, |h| {
        let sealed = matches!(info.cond, Condition::Full | Condition::ReadOnly);
        Use::Held(Held { generation: h.generation, first: h.sequence, end, sealed })
    }))
}

/// Opens the log that is there, or a new one in zones that are all empty.
pub(super) async fn open<I: Io>(
    io: &I,
    g: &Geometry,
    limits: &Limits,
    options: &LogOptions,
) -> Result<(Table, Recovery), LogError> {
    let set = zones_of(options, g)?;
    let block = u64::from(limits.write_granularity_sectors) << 9;
    let (mut zones, mut conds) = (Vec::new(), Vec::new());
    let mut found = Recovery::default();
    let (first, last) = (set[0], set[set.len() - 1]);
    let report = io.report(g.zone_start(first), last.0 - first.0 + 1).await?;
    for info in report {
        let (no, _) = g.zone_of(info.start);
        if g.is_conventional(no) || no > last {
            continue;
        }
        let capacity = (info.capacity_sectors << 9) / block * block;
        let (start, len_sectors) = (info.start.0 << 9, info.len_sectors as u32);
        let mut zone = Zone { no, start, len_sectors, capacity, state: Use::Empty };
        zone.state = look(io, options.id, &zone, &info).await?;
        match (zone.state, info.cond) {
            (Use::Foreign, _) => found.foreign.push(no),
            (_, cond @ (Condition::ReadOnly | Condition::Offline)) => found.lost.push((no, cond)),
            _ => {}
        }
        zones.push(zone);
        conds.push(info.cond);
    }
    let mut table = Table {
        log: options.id,
        block,
        zones,
        line: VecDeque::new(),
        head: None,
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
    if let (None, Some(zone)) = (table.line.back(), found.foreign.first()) {
        return Err(LogError::NotALog { zone: *zone });
    }
    found.zones_in_use = table.line.len() as u32;
    if let Some(&newest) = table.line.back() {
        find_last(io, &mut table, &mut found, newest).await?;
        if conds[newest] != Condition::ReadOnly {
            table.head = Some(newest);
        }
        // Finished before the newest was written, but perhaps not for good.
        for &i in table.line.iter().take(table.line.len() - 1) {
            let zone = &table.zones[i];
            if conds[i].is_active() {
                io.manage(Op::ZoneFinish, zone.sector(), zone.len_sectors).await?;
            }
        }
        // What is shown from now on is there after the next crash too.
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
