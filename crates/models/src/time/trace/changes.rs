//! The zones of a disk that a trace changes. Their data is lost in a replay on a real disk.

use super::TraceEvent;
use std::collections::BTreeMap;
use zoneplug_core::zone::Geometry;
use zoneplug_core::{Op, Sector, ZoneNo};

/// How a trace changes a zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Change {
    /// Whether its first change empties the zone, so that the zone's previous content does not
    /// matter.
    is_emptied: bool,
    /// Whether an operation is at an address of the zone, rather than past the end of the disk and
    /// wrapped around to it.
    is_named: bool,
}

/// The zones that a trace changes.
#[derive(Debug, Clone)]
pub struct Changes {
    geometry: Geometry,
    zones: BTreeMap<u32, Change>,
    resets_all: bool,
}

impl Changes {
    pub(super) fn new(geometry: &Geometry) -> Changes {
        Changes { geometry: *geometry, zones: BTreeMap::new(), resets_all: false }
    }

    /// Whether the trace resets all zones of the disk.
    pub fn resets_all(&self) -> bool {
        self.resets_all
    }

    /// The zones that the trace changes, including conventional ones. With `wraps`, also those that
    /// only wrapped operations past the end of the disk change.
    pub fn zones(&self, wraps: bool) -> Vec<ZoneNo> {
        let these = self.zones.iter().filter(|(_, c)| wraps || c.is_named);
        these.map(|(&zone, _)| ZoneNo(zone)).collect()
    }

    /// Whether the trace empties this zone before any other change of it.
    pub fn is_emptied(&self, zone: ZoneNo) -> bool {
        self.zones.get(&zone.0).is_some_and(|c| c.is_emptied)
    }

    pub(super) fn see(&mut self, event: &TraceEvent) {
        let g = &self.geometry;
        match event.op {
            Op::ZoneResetAll => return self.resets_all = true,
            Op::Read | Op::Flush | Op::ZoneOpen | Op::ZoneClose => return,
            _ => {}
        }
        let disk = g.capacity().0;
        let (mut at, end) = (event.sector, event.sector + event.sectors_on(g));
        let is_named = end <= disk;
        while at < end {
            let (zone, offset) = g.zone_of(Sector(at % disk));
            let len = g.zone_len_sectors(zone);
            let part = (end - at).min(u64::from(len - offset)) as u32;
            at += u64::from(part);
            let resets = match event.op {
                Op::ZoneReset => true,
                // Only a whole sequential zone can be discarded.
                Op::Discard if !g.is_conventional(zone) => match offset == 0 && part == len {
                    true => true,
                    false => continue,
                },
                _ => false,
            };
            let first = Change { is_emptied: resets || self.resets_all, is_named };
            let change = self.zones.entry(zone.0).or_insert(first);
            if is_named && !change.is_named {
                *change = first;
            }
        }
    }
}
