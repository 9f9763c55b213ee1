//! Zone management and reports (Zoned Namespace Command Set Specification).

use super::{IoRequest, Namespace, Namespaces, Zones, check_length, no_data, zone_start};
use crate::spec::zone::{
    PARTIAL_REPORT, REPORT_ZONES, SELECT_ALL, SEQUENTIAL_ZONE, ZoneAction, ZoneDescriptor,
    ZoneReportHeader, ZoneState,
};
use crate::spec::{Command, status};
use zoneplug_buf::AlignedBuf;
use zoneplug_core::zone::{Condition, ZONE_RECORD_LEN, ZoneInfo};
use zoneplug_core::{Op, Sector};

const RECORD: u32 = ZONE_RECORD_LEN as u32;
const HEADER: u32 = ZoneReportHeader::LEN as u32;
// A record of the disk and a descriptor have the same length, so a report is converted in place.
const _: () = assert!(ZONE_RECORD_LEN == ZoneDescriptor::LEN);

/// The position of a namespace's zones on its disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ZoneMap {
    start: Sector,
    zone_sectors: u32,
    shift: u32,
    count: u32,
}

impl ZoneMap {
    fn of(n: &Namespace, zones: &Zones) -> ZoneMap {
        let (zone_sectors, count) = (zones.layout.zone_sectors(), zones.layout.nr_zones());
        ZoneMap { start: n.start(), zone_sectors, shift: n.shift(), count }
    }

    fn sector(&self, zone: u32) -> Sector {
        self.start.plus(u64::from(zone) * u64::from(self.zone_sectors))
    }

    /// Decodes the record at `offset`, if it describes `zone`.
    fn record(&self, buffer: &AlignedBuf, offset: u32, zone: u32) -> Option<ZoneInfo> {
        ZoneInfo::decode_at(buffer, offset).filter(|z| z.start == self.sector(zone))
    }

    /// Returns the descriptor of a zone.
    fn descriptor(&self, z: &ZoneInfo) -> ZoneDescriptor {
        let state = state(z.cond);
        let lba = |s: Sector| s.0.saturating_sub(self.start.0) >> self.shift;
        let wp = match state {
            // The write pointer is not valid in these states.
            ZoneState::Full | ZoneState::ReadOnly | ZoneState::Offline => u64::MAX,
            _ => lba(z.wp),
        };
        ZoneDescriptor {
            zt: SEQUENTIAL_ZONE,
            zs: (state as u8) << 4,
            zcap: z.capacity_sectors >> self.shift,
            zslba: lba(z.start),
            wp,
            ..Default::default()
        }
    }
}

/// Returns the state of a zone in this condition. A disk's report never has the last two conditions.
fn state(cond: Condition) -> ZoneState {
    match cond {
        Condition::Empty => ZoneState::Empty,
        Condition::ImpOpen => ZoneState::ImplicitlyOpened,
        Condition::ExpOpen => ZoneState::ExplicitlyOpened,
        Condition::Closed => ZoneState::Closed,
        Condition::ReadOnly => ZoneState::ReadOnly,
        Condition::Full => ZoneState::Full,
        Condition::Offline => ZoneState::Offline,
        Condition::Active | Condition::NotWp => ZoneState::Closed,
    }
}

/// The requests of a Zone Management Send.
pub(super) enum Manage {
    /// One request.
    One(IoRequest),
    /// All zones, one after the other.
    All(AllZones),
}

/// Checks a Zone Management Send: the action is in bits 7:0 of command dword 13. *Set zone descriptor extension* is
/// not supported, and there are no random write areas.
pub(super) fn manage(c: &Command, n: &Namespace) -> Result<Manage, u16> {
    let zones = n.zones().ok_or(status::INVALID_OPCODE)?;
    let map = ZoneMap::of(n, zones);
    no_data(c)?;
    let (op, action) = match ZoneAction::from_u8(c.cdw(13) as u8) {
        Some(action @ ZoneAction::Close) => (Op::ZoneClose, action),
        Some(action @ ZoneAction::Finish) => (Op::ZoneFinish, action),
        Some(action @ ZoneAction::Open) => (Op::ZoneOpen, action),
        Some(action @ ZoneAction::Reset) => (Op::ZoneReset, action),
        // Only a read-only zone may become offline, and no disk has a command for it.
        Some(ZoneAction::Offline) => return Err(status::ZONE_TRANSITION),
        None => return Err(status::INVALID_FIELD),
    };
    // ZSASO: these bits are for random write areas.
    if c.cdw(13) & !(0xff | SELECT_ALL) != 0 {
        return Err(status::INVALID_FIELD);
    }
    if c.cdw(13) & SELECT_ALL != 0 {
        return Ok(if action == ZoneAction::Reset && zones.all {
            Manage::One(IoRequest::new(n.disk(), Op::ZoneResetAll))
        } else {
            Manage::All(AllZones { map, action, op, base: 0, mask: 0 })
        });
    }
    let lba = c.cdw_pair(10);
    if lba >= n.blocks() {
        return Err(status::LBA_RANGE);
    }
    let sector = n.start().plus(lba << n.shift());
    zone_start(n, zones, sector)?;
    Ok(Manage::One(IoRequest {
        sector,
        len_sectors: map.zone_sectors,
        ..IoRequest::new(n.disk(), op)
    }))
}

/// The next step in the management of all zones.
pub(super) enum NextZone {
    /// Manage this zone.
    Manage(Op, Sector, u32),
    /// Report from this sector on, into this part of the buffer.
    Report(Sector, (u32, u32)),
    /// No zone is left.
    End,
}

/// The management of all zones whose state the action changes: *select all*. Zones are reported 64 at a time, and the
/// matching ones are managed one by one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct AllZones {
    map: ZoneMap,
    action: ZoneAction,
    op: Op,
    /// The zone that the lowest bit of `mask` stands for.
    base: u32,
    /// Zones that are still to be managed.
    mask: u64,
}

impl AllZones {
    const ZONES: u32 = u64::BITS;
    /// Bytes of a report.
    pub(super) const BUFFER_BYTES: u32 = AllZones::ZONES * RECORD;

    /// Returns the first report to request: sector and memory.
    pub(super) fn first(&self) -> (Sector, (u32, u32)) {
        let zones = (self.map.count - self.base).min(AllZones::ZONES);
        (self.map.sector(self.base), (0, zones * RECORD))
    }

    /// Takes a report of `zones` zones. Returns false if the report is wrong.
    pub(super) fn take(&mut self, buffer: &AlignedBuf, zones: u32) -> bool {
        let asked = (self.map.count - self.base).min(AllZones::ZONES);
        if zones != asked {
            return false;
        }
        for i in 0..zones {
            let Some(z) = self.map.record(buffer, i * RECORD, self.base + i) else { return false };
            if self.matches(state(z.cond)) {
                self.mask |= 1 << i;
            }
        }
        true
    }

    fn matches(&self, state: ZoneState) -> bool {
        use ZoneState::{Closed, ExplicitlyOpened, Full, ImplicitlyOpened};
        match self.action {
            ZoneAction::Close => matches!(state, ImplicitlyOpened | ExplicitlyOpened),
            ZoneAction::Open => state == Closed,
            ZoneAction::Finish => matches!(state, ImplicitlyOpened | ExplicitlyOpened | Closed),
            ZoneAction::Reset => {
                matches!(state, ImplicitlyOpened | ExplicitlyOpened | Closed | Full)
            }
            ZoneAction::Offline => false,
        }
    }

    pub(super) fn next(&mut self) -> NextZone {
        if self.mask != 0 {
            let zone = self.base + self.mask.trailing_zeros();
            self.mask &= self.mask - 1;
            return NextZone::Manage(self.op, self.map.sector(zone), self.map.zone_sectors);
        }
        self.base += AllZones::ZONES;
        if self.base >= self.map.count {
            return NextZone::End;
        }
        let (sector, memory) = self.first();
        NextZone::Report(sector, memory)
    }
}

/// Bytes of buffer for records of zones that are only counted.
const SCRATCH: u32 = 4096;

/// A report for the host. The disk's records are converted in the command's buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Report {
    map: ZoneMap,
    /// Bytes of the report.
    bytes: u32,
    /// The requested state; `None`: all.
    filter: Option<ZoneState>,
    partial: bool,
    /// The next zone to report.
    next: u32,
    /// Descriptors that are in the buffer.
    filled: u32,
    /// Zones that match.
    matched: u32,
    /// Whether the disk was asked. It is asked at least once, because the report is written when the disk has
    /// answered.
    asked: bool,
}

impl Report {
    /// Checks a Zone Management Receive. Command dword 12 is the length in dwords, less one; 13 has the action (7:0),
    /// the filter (15:8) and *partial report* (16). Zones have no descriptor extensions, so extended reports are not
    /// supported.
    pub(super) fn new(c: &Command, n: &Namespace, all: &Namespaces) -> Result<Report, u16> {
        let zones = n.zones().ok_or(status::INVALID_OPCODE)?;
        let map = ZoneMap::of(n, zones);
        let bytes = (u64::from(c.cdw(12)) + 1) * 4;
        check_length(c, bytes)?;
        let (action, filter) = (c.cdw(13) as u8, (c.cdw(13) >> 8) as u8);
        let state = ZoneState::from_filter(filter);
        let known = action == REPORT_ZONES && (filter == 0 || state.is_some());
        if !known || bytes > u64::from(all.max_data()) || bytes < u64::from(HEADER) {
            return Err(status::INVALID_FIELD);
        }
        let lba = c.cdw_pair(10);
        if lba >= n.blocks() {
            return Err(status::LBA_RANGE);
        }
        let (zone, _) = zones.layout.zone_of(Sector(lba << n.shift()));
        let next = zone.0;
        let partial = c.cdw(13) & PARTIAL_REPORT != 0;
        // Without a filter, the number of zones is known without asking the disk.
        let matched = if state.is_none() { map.count - next } else { 0 };
        let bytes = bytes as u32;
        Ok(Report { map, bytes, filter: state, partial, next, filled: 0, matched, asked: false })
    }

    /// Returns the number of bytes to send.
    pub(super) fn bytes(&self) -> u32 {
        self.bytes
    }

    /// Returns whether zones must be read for which the report has no room.
    fn counts_on(&self) -> bool {
        self.filter.is_some() && !self.partial || self.room() == 0 && !self.asked
    }

    /// Returns the offset of the memory for records that are only counted: behind the report.
    fn scratch(&self) -> u32 {
        self.bytes.next_multiple_of(RECORD)
    }

    pub(super) fn buffer_bytes(&self) -> u32 {
        self.scratch() + if self.counts_on() { SCRATCH } else { 0 }
    }

    /// Returns the number of descriptors for which the report has room.
    fn room(&self) -> u32 {
        (self.bytes - HEADER) / RECORD
    }

    /// Returns the next part to request from the disk: sector and memory. `None`: the report is complete.
    pub(super) fn submit(&self) -> Option<(Sector, (u32, u32))> {
        let left = self.map.count - self.next;
        let free = self.room() - self.filled;
        let memory = if left == 0 {
            return None;
        } else if free > 0 {
            (HEADER + self.filled * RECORD, left.min(free) * RECORD)
        } else if self.counts_on() {
            (self.scratch(), left.min(SCRATCH / RECORD) * RECORD)
        } else {
            return None;
        };
        Some((self.map.sector(self.next), memory))
    }

    /// Takes `zones` records of the part that [`Report::submit`] requested. Returns false if they are wrong.
    pub(super) fn take(&mut self, buffer: &mut AlignedBuf, zones: u32) -> bool {
        let Some((_, (offset, bytes))) = self.submit() else { return false };
        let counted = offset == self.scratch();
        self.asked = true;
        if zones == 0 || zones > bytes / RECORD {
            return false;
        }
        for i in 0..zones {
            let Some(z) = self.map.record(buffer, offset + i * RECORD, self.next) else {
                return false;
            };
            self.next += 1;
            if self.filter.is_some_and(|f| f != state(z.cond)) {
                continue;
            }
            if !counted {
                // The descriptor never lies past the record that was just read.
                let to = HEADER + self.filled * RECORD;
                buffer.write(to, &self.map.descriptor(&z).encode());
                self.filled += 1;
            }
            if self.filter.is_some() {
                self.matched += 1;
            }
        }
        true
    }

    /// Writes the header, and zeroes behind the last descriptor, where old data may lie.
    pub(super) fn finish(&self, buffer: &mut AlignedBuf) {
        let nr_zones = u64::from(if self.partial { self.filled } else { self.matched });
        buffer.write(0, &ZoneReportHeader { nr_zones }.encode());
        let mut at = HEADER + self.filled * RECORD;
        while at < self.bytes {
            let len = (self.bytes - at).min(RECORD);
            buffer.write(at, &[0; ZONE_RECORD_LEN][..len as usize]);
            at += len;
        }
    }
}
