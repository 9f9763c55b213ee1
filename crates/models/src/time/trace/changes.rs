//! The zones of a disk that a trace changes: a real disk loses what they hold.

use super::TraceEvent;
use std::collections::BTreeMap;
use zoneplug_core::zone::Geometry;
use zoneplug_core::{Op, Sector, ZoneNo};

/// What a trace does to a zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Change {
    /// Its first change empties it, so that it does not matter what the zone held.
    is_emptied: bool,
    /// An operation is at an address of the zone, and not only past the end of the disk, where it wraps around.
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

    /// Whether it resets all zones of the disk.
    pub fn resets_all(&self) -> bool {
        self.resets_all
    }

    /// The zones that it changes, conventional ones too. `wraps`: also those that only operations past the end of the
    /// disk change, which wrap around.
    pub fn zones(&self, wraps: bool) -> Vec<ZoneNo> {
        let these = self.zones.iter().filter(|(_, c)| wraps || c.is_named);
        these.map(|(&zone, _)| ZoneNo(zone)).collect()
    }

    /// Whether the trace empties this zone before it does anything else with it.
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
                // Of a sequential zone only the whole can be discarded.
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
