//! Places the parts of recorded operations on a zoned disk and orders them. Owns a write pointer
//! and a queue for each zone in use; sends nothing itself.
//!
//! Recorded zone management waits for the outstanding writes of its zone, and later writes of the
//! zone wait for it. The recording had this order, on a disk that may have been faster. Nothing
//! else waits in [`Placement::Exact`].
//!
//! In [`Placement::Log`] a write goes to the write pointer of the zone of its address. A write that
//! does not fit waits until the zone has no outstanding writes, then has it reset. If too many
//! zones would be active, the zone written least recently is finished first. A zone with native
//! appends is reset before it is written, because the layer then knows no write pointer (A8).
//! Appends to a written zone become writes.

use crate::time::trace::TraceEvent;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use zoneplug_core::zone::{Geometry, Limits};
use zoneplug_core::{Flags, Op, Sector, Status, ZoneNo};

/// How the replay differs from the recording.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Adapted {
    /// Zones that were reset because a write found no room.
    pub resets: u64,
    /// Zones that were finished because too many would be active.
    pub finishes: u64,
    /// Writes that went to another place in their zone.
    pub moved: u64,
    /// Operations beyond the end of the disk, which were mapped to its beginning.
    pub wrapped: u64,
    /// Discards of less than a zone, which were not sent.
    pub dropped_discards: u64,
    /// Reads and writes of parts of blocks, which were sent as whole blocks.
    pub widened: u64,
}

/// How addresses map to places in zones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Placement {
    /// Unchanged. The disk refuses writes that are not at a write pointer.
    Exact {
        /// Zones that were partly written at the start, with their write pointers.
        begin: Vec<(ZoneNo, u32)>,
    },
    /// A write goes to the write pointer of the zone of its address. A read goes to its address,
    /// whatever that holds.
    Log,
}

/// A part of an operation: one BIO.
#[derive(Debug, Clone, Copy)]
pub(super) struct Part {
    pub(super) op: Op,
    pub(super) sector: Sector,
    pub(super) sectors: u32,
    /// The zone whose queue it waits in; `None` if it does not wait.
    pub(super) zone: Option<ZoneNo>,
    pub(super) offset: u32,
    pub(super) flags: Flags,
    pub(super) token: u32,
}

/// The most bytes that are kept of each zone while its writes are few: its entry in the map, and a queue of four parts.
pub(crate) const PLACE_BYTES: u64 = 2 * size_of::<Zone>() as u64 + 4 * size_of::<Part>() as u64;

#[derive(Debug, Default)]
struct Zone {
    wp: u32,
    capacity: u32,
    start: u64,
    len: u32,
    /// Writes outstanding.
    writes: u32,
    /// Whether the last write was an append.
    appending: bool,
    /// Whether management is outstanding.
    managed: bool,
    /// Whether the zone is active at the device, as far as this module knows.
    active: bool,
    /// Whether the zone waits until another zone may be active.
    wants_place: bool,
    waiting: VecDeque<Part>,
    /// The number of the zone's last write.
    used: u64,
}

/// All zones in use.
#[derive(Debug)]
pub(super) struct Placing {
    log: bool,
    begin: Vec<(ZoneNo, u32)>,
    zones: BTreeMap<u32, Zone>,
    /// Zones whose queues may have something to send.
    look: VecDeque<u32>,
    /// Parts that wait for nothing.
    ready: VecDeque<Part>,
    /// Zones that wait until another zone may be active.
    crowd: VecDeque<u32>,
    /// The active zones, ordered by their last write, and their limit. Not kept if the limit is 0.
    active: BTreeSet<(u64, u32)>,
    max_active: u32,
    granularity: u32,
    /// Sectors of a logical block, the unit of reads and of writes to conventional zones.
    block: u32,
    append_max: u32,
    uses: u64,
    /// Parts that wait or are outstanding in zones.
    in_zones: u64,
    /// The next reset of all zones, which waits for the parts before it, and the parts that wait
    /// for it.
    held: VecDeque<Part>,
    /// Whether that reset is outstanding.
    resetting_all: bool,
    /// The token of management that was not recorded.
    own: u32,
}

impl Placing {
    /// A placement for a disk with these limits. `own` is the token of management that was not recorded.
    pub(super) fn new(place: Placement, limits: &Limits, own: u32) -> Placing {
        let (log, begin) = match place {
            Placement::Exact { begin } => (false, begin),
            Placement::Log => (true, Vec::new()),
        };
        Placing {
            log,
            begin,
            zones: BTreeMap::new(),
            look: VecDeque::new(),
            ready: VecDeque::new(),
            crowd: VecDeque::new(),
            active: BTreeSet::new(),
            // The device itself closes zones when too many are open.
            max_active: limits.max_active_zones,
            granularity: limits.write_granularity_sectors.max(1),
            block: limits.logical_block_sectors.max(1),
            append_max: limits.visible_append_sectors(u32::MAX),
            uses: 0,
            in_zones: 0,
            held: VecDeque::new(),
            resetting_all: false,
            own,
        }
    }

    /// The zones that were partly written at the start.
    pub(super) fn begin(&self) -> Vec<(ZoneNo, u32)> {
        self.begin.clone()
    }

    /// Splits an operation into parts: none crosses a zone boundary or is longer than `max`.
    pub(super) fn split(
        &mut self,
        g: &Geometry,
        event: &TraceEvent,
        max: u32,
        parts: &mut Vec<Part>,
        adapted: &mut Adapted,
    ) {
        let part = |op, sector, sectors| Part {
            op,
            sector: Sector(sector),
            sectors,
            zone: None,
            offset: 0,
            flags: Flags::NONE,
            token: 0,
        };
        let disk = g.capacity().0;
        let (mut at, mut left) = (event.sector, event.sectors_on(g));
        if matches!(event.op, Op::Flush | Op::ZoneResetAll) {
            return parts.push(part(event.op, 0, 0));
        }
        if at + left > disk {
            if !self.log {
                // The disk refuses the operation, so one BIO is enough.
                let one = left.min(u64::from(max)) as u32;
                return parts.push(part(event.op, at, one));
            }
            adapted.wrapped += 1;
            left = left.min(disk);
        }
        let discards = event.op == Op::Discard;
        let begun = parts.len();
        let mut is_short = false;
        while left > 0 {
            let (zone, offset) = g.zone_of(Sector(at % disk));
            let len = left.min(u64::from(g.zone_len_sectors(zone) - offset)) as u32;
            at += u64::from(len);
            left -= u64::from(len);
            let start = g.zone_start(zone);
            let conventional = g.is_conventional(zone);
            let mut put = |op: Op, offset: u32, sectors: u32, queued: bool| {
                let mut p = part(op, start.0 + u64::from(offset), sectors);
                (p.zone, p.offset) = (queued.then_some(zone), offset);
                if queued {
                    let z = self.zones.entry(zone.0).or_default();
                    (z.capacity, z.start) = (g.capacity_of(zone), start.0);
                    z.len = g.zone_len_sectors(zone);
                }
                parts.push(p);
            };
            match event.op {
                Op::Discard if !conventional => {
                    // Only whole zones can be discarded, by a reset.
                    if offset == 0 && len == g.zone_len_sectors(zone) {
                        put(Op::ZoneReset, 0, len, true);
                    }
                }
                // In a log, writes go to other places, so other zones are open than in the
                // recording.
                Op::ZoneOpen | Op::ZoneClose if self.log => {}
                op if op.is_zone_management() => put(op, offset, len, !conventional),
                Op::ZoneAppend if !conventional => {
                    let unit = self.granularity;
                    let mut n = len;
                    let mut most = max;
                    if self.log {
                        is_short |= !n.is_multiple_of(unit);
                        n = n.next_multiple_of(unit);
                        most = max.min(self.append_max).min(g.capacity_of(zone)) / unit * unit;
                    }
                    while n > 0 {
                        let one = n.min(most.max(1));
                        put(Op::ZoneAppend, 0, one, true);
                        n -= one;
                    }
                }
                op => {
                    let op = if op == Op::ZoneAppend { Op::Write } else { op };
                    let (mut o, mut n) = (offset, len);
                    // In a sequential zone, an exact write keeps its recorded place and length; a
                    // log rounds it to whole units.
                    if self.log || op == Op::Read || conventional {
                        let unit = if self.log { self.granularity } else { self.block };
                        let blocks =
                            (u64::from(o % unit) + u64::from(n)).next_multiple_of(u64::from(unit));
                        o -= o % unit;
                        n = blocks as u32;
                        is_short |= n != len;
                    }
                    // Parts of a log stay below the capacity. An operation that is longer goes on at the start of the
                    // zone; a write then finds no room, and has the zone reset.
                    let end = if self.log { g.capacity_of(zone) } else { u32::MAX };
                    o = o.min(end - n.min(end));
                    let queued = op != Op::Read && !conventional;
                    let unit = max / self.granularity * self.granularity;
                    while n > 0 {
                        o = if o == end { 0 } else { o };
                        let one = n.min(unit.max(1)).min(end - o);
                        put(op, o, one, queued);
                        o += one;
                        n -= one;
                    }
                }
            }
        }
        adapted.dropped_discards += u64::from(discards && parts.len() == begun);
        adapted.widened += u64::from(is_short);
    }

    /// Adds a part to its queue.
    pub(super) fn queue(&mut self, part: Part) {
        let all = part.op == Op::ZoneResetAll;
        if all || part.zone.is_some() && !self.held.is_empty() {
            return self.held.push_back(part);
        }
        let zone = part.zone.and_then(|z| Some((z.0, self.zones.get_mut(&z.0)?)));
        let Some((number, zone)) = zone else { return self.ready.push_back(part) };
        self.in_zones += 1;
        zone.waiting.push_back(part);
        if zone.waiting.len() == 1 {
            self.look.push_back(number);
        }
    }

    /// Returns the next part that may be sent.
    pub(super) fn next(&mut self, adapted: &mut Adapted) -> Option<Part> {
        if let Some(part) = self.ready.pop_front() {
            return Some(part);
        }
        while let Some(&number) = self.look.front() {
            if let Some(part) = self.next_of(number, adapted) {
                return Some(part);
            }
            self.look.pop_front();
        }
        if self.in_zones == 0 && !self.resetting_all && !self.held.is_empty() {
            self.resetting_all = true;
            return self.held.front().copied();
        }
        None
    }

    fn next_of(&mut self, number: u32, adapted: &mut Adapted) -> Option<Part> {
        let log = self.log;
        let zone = self.zones.get_mut(&number)?;
        let mut part = *zone.waiting.front()?;
        if zone.managed || zone.wants_place {
            return None;
        }
        if part.op.is_zone_management() {
            if zone.writes > 0 {
                return None;
            }
            zone.managed = true;
            return zone.waiting.pop_front();
        }
        // After a native append the layer knows no write pointer, so a zone of a log has either
        // appends or writes.
        if log && zone.wp > 0 && !zone.appending {
            part.op = if part.op == Op::ZoneAppend { Op::Write } else { part.op };
        }
        let appends = part.op == Op::ZoneAppend;
        let strange = log && zone.wp > 0 && zone.appending && !appends;
        if zone.writes > 0 && zone.appending != appends {
            // Native appends are not plugged, so only this module orders them and writes.
            return None;
        }
        if log {
            if strange || part.sectors > zone.capacity - zone.wp {
                if zone.writes > 0 {
                    return None;
                }
                adapted.resets += 1;
                zone.managed = true;
                return self.own(number, Op::ZoneReset);
            }
            let full = self.max_active > 0 && self.active.len() >= self.max_active as usize;
            if !zone.active && full {
                zone.wants_place = true;
                self.crowd.push_back(number);
                return self.make_place(adapted);
            }
            if self.max_active > 0 {
                // This zone becomes the one written last.
                self.active.remove(&(zone.used, number));
                self.active.insert((self.uses + 1, number));
                zone.active = true;
            }
            adapted.moved += u64::from(!appends && part.offset != zone.wp);
            if !appends {
                part.sector = Sector(zone.start + u64::from(zone.wp));
            }
            zone.wp += part.sectors;
        }
        self.uses += 1;
        (zone.used, zone.appending) = (self.uses, appends);
        zone.writes += 1;
        zone.waiting.pop_front();
        Some(part)
    }

    /// Finishes the active zone that was written least recently, if an idle one exists.
    fn make_place(&mut self, adapted: &mut Adapted) -> Option<Part> {
        let rests = |z: &Zone| z.writes == 0 && !z.managed && z.waiting.is_empty();
        let zones = &mut self.zones;
        let found = self.active.iter().find(|(_, n)| zones.get(n).is_some_and(rests));
        let &(_, number) = found?;
        let zone = zones.get_mut(&number)?;
        zone.managed = true;
        adapted.finishes += 1;
        self.own(number, Op::ZoneFinish)
    }

    /// Builds management that was not recorded.
    fn own(&self, number: u32, op: Op) -> Option<Part> {
        let zone = self.zones.get(&number)?;
        Some(Part {
            op,
            sector: Sector(zone.start),
            sectors: zone.len,
            zone: None,
            offset: 0,
            flags: Flags::NONE,
            token: self.own,
        })
    }

    /// Continues the parts behind a completed reset of all zones.
    fn all_reset(&mut self, status: Status) {
        if status.is_ok() {
            self.zones.values_mut().for_each(|z| (z.wp, z.active) = (0, false));
            self.active.clear();
        }
        self.resetting_all = false;
        let mut behind = std::mem::take(&mut self.held);
        behind.pop_front();
        for part in behind {
            self.queue(part);
        }
    }

    /// Notes the completion of a part. `own`: the part was not recorded.
    pub(super) fn done(&mut self, g: &Geometry, op: Op, sector: Sector, own: bool, status: Status) {
        if op == Op::ZoneResetAll {
            return self.all_reset(status);
        }
        if matches!(op, Op::Read | Op::Flush | Op::Discard) || !g.contains(sector, 1) {
            return;
        }
        let number = g.zone_of(sector).0.0;
        let Some(zone) = self.zones.get_mut(&number) else { return };
        self.in_zones = self.in_zones.saturating_sub(u64::from(!own));
        if op.is_zone_management() {
            if !zone.managed {
                return;
            }
            zone.managed = false;
            // Failed management is not retried. The writes behind it are sent and fail with their
            // own status.
            match op {
                Op::ZoneReset => zone.wp = 0,
                Op::ZoneFinish => zone.wp = zone.capacity,
                _ => {}
            }
        } else {
            zone.writes = zone.writes.saturating_sub(1);
        }
        // A zone is full once its last write has completed.
        let ends = op == Op::ZoneReset || zone.wp == zone.capacity;
        if ends && zone.writes == 0 && std::mem::take(&mut zone.active) {
            self.active.remove(&(zone.used, number));
        }
        if !zone.waiting.is_empty() {
            self.look.push_back(number);
        }
        // Another zone may be active now, or can be finished.
        if let Some(waits) = self.crowd.pop_front() {
            if let Some(zone) = self.zones.get_mut(&waits) {
                zone.wants_place = false;
            }
            self.look.push_back(waits);
        }
    }
}
