//! REPORT ZONES. The disk's records are converted in the command's buffer.

use super::{Unit, same};
use crate::spec::zone::{
    DESCRIPTOR_LEN, NO_WRITE_POINTER, REPORT_HEADER_LEN, Reporting, ZoneDescriptor,
    encode_report_header,
};
use zoneplug_buf::AlignedBuf;
use zoneplug_core::zone::{Condition, Geometry, ZONE_RECORD_LEN, ZoneInfo, ZoneType};
use zoneplug_core::{Sector, ZoneNo};

const RECORD: u32 = ZONE_RECORD_LEN as u32;
const HEADER: u32 = REPORT_HEADER_LEN as u32;
// A record of the disk and a descriptor have the same length, so a report is converted in place.
const _: () = assert!(ZONE_RECORD_LEN == DESCRIPTOR_LEN);
/// Bytes of buffer for records of zones that are only counted.
const SCRATCH: u32 = 4096;

/// Decodes the record at `offset`, if it describes `zone`.
pub(super) fn record(
    g: &Geometry,
    buffer: &AlignedBuf,
    offset: u32,
    zone: u32,
) -> Option<ZoneInfo> {
    ZoneInfo::decode_at(buffer, offset).filter(|z| z.start == g.zone_start(ZoneNo(zone)))
}

/// A report that is being made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Report {
    /// Most bytes of the report.
    bytes: u32,
    reporting: Reporting,
    partial: bool,
    /// The next zone to report.
    next: u32,
    /// The number of zones of the disk.
    count: u32,
    /// Descriptors that are in the buffer.
    filled: u32,
    /// Zones that match.
    matched: u32,
}

impl Report {
    /// Begins a report of the zones from `first` on, of at most `bytes` bytes. `count`: how many zones the disk has.
    pub(super) fn new(
        first: ZoneNo,
        count: u32,
        reporting: Reporting,
        partial: bool,
        bytes: u32,
    ) -> Report {
        Report { bytes, reporting, partial, next: first.0, count, filled: 0, matched: 0 }
    }

    /// Descriptors for which the report has room. The last one may be cut.
    fn room(&self) -> u32 {
        self.bytes.saturating_sub(HEADER).div_ceil(RECORD)
    }

    /// The offset of the memory for records that are only counted.
    fn scratch(&self) -> u32 {
        HEADER + self.room() * RECORD
    }

    /// Returns the length of the buffer that the report needs.
    pub(super) fn buffer_bytes(&self) -> u32 {
        self.scratch() + SCRATCH
    }

    /// Returns memory for one record. A report without room for descriptors asks the disk for one all the same, so it fails if
    /// the disk does.
    pub(super) fn one_record(&self) -> (u32, u32) {
        (self.scratch(), RECORD)
    }

    /// Returns the next part to request from the disk: its zone and memory. `None`: the report is complete.
    pub(super) fn next_part(&mut self) -> Option<(ZoneNo, (u32, u32))> {
        let free = self.room() - self.filled;
        if free == 0 && self.reporting == Reporting::All {
            // The rest is counted without the disk.
            self.matched += self.count - self.next;
            self.next = self.count;
        }
        let left = self.count - self.next;
        let memory = if left == 0 || free == 0 && self.partial {
            return None;
        } else if free > 0 {
            (HEADER + self.filled * RECORD, left.min(free) * RECORD)
        } else {
            (self.scratch(), left.min(SCRATCH / RECORD) * RECORD)
        };
        Some((ZoneNo(self.next), memory))
    }

    /// Takes `zones` records that the disk has put into `memory`. Returns false if they are wrong.
    pub(super) fn take(
        &mut self,
        unit: &Unit,
        buffer: &mut AlignedBuf,
        memory: (u32, u32),
        zones: u32,
    ) -> bool {
        let Some(g) = unit.zones else { return false };
        let (offset, bytes) = memory;
        if zones == 0 || zones > bytes / RECORD {
            return false;
        }
        if self.next == self.count || self.room() == 0 && self.partial {
            // The record shows only that the disk answers: see `one_record`.
            return true;
        }
        for i in 0..zones {
            let Some(z) = record(&g, buffer, offset + i * RECORD, self.next) else { return false };
            self.next += 1;
            if !self.reporting.selects(z.cond) {
                continue;
            }
            self.matched += 1;
            if offset != self.scratch() {
                // The descriptor never reaches beyond the record that was just read.
                buffer.write(HEADER + self.filled * RECORD, &descriptor(unit, &z).encode());
                self.filled += 1;
            }
        }
        true
    }

    /// Writes the header. Returns how many bytes the report has.
    pub(super) fn finish(&self, unit: &Unit, buffer: &mut AlignedBuf) -> u32 {
        let whole = self.bytes.saturating_sub(HEADER) / RECORD;
        let zones = if self.partial { self.filled.min(whole) } else { self.matched };
        let same = unit.zones.map_or(crate::spec::zone::Same::All, |g| same(&g));
        buffer.write(0, &encode_report_header(zones, same, unit.blocks - 1));
        self.bytes.min(HEADER + self.filled * RECORD)
    }
}

/// Returns the descriptor of a zone.
fn descriptor(unit: &Unit, z: &ZoneInfo) -> ZoneDescriptor {
    let write_pointer = match z.cond {
        Condition::NotWp | Condition::Full | Condition::ReadOnly | Condition::Offline => {
            NO_WRITE_POINTER
        }
        _ => unit.lba(z.wp),
    };
    ZoneDescriptor {
        conventional: z.zone_type == ZoneType::Conventional,
        condition: z.cond,
        length: unit.lba(Sector(z.len_sectors)),
        start: unit.lba(z.start),
        write_pointer,
    }
}
