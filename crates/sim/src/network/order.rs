//! The reasons for which a write may be refused for its place.
//!
//! The hosts send the writes of a zone one behind the other, through several connections. So the disk refuses a write
//! only if an earlier write did not come in time: that one failed, or it reached the disk later than the order window
//! holds (H3, H5), or, without a window, later at all.

use super::disks::Note;
use super::{NetworkWorld, NetworkZone};
use crate::class::Class;
use zoneplug_core::{Nanos, Op};

/// A write of a zone, and the disk's events about it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Placed {
    offset: u32,
    submitted: Option<Nanos>,
    /// The time of its failure.
    failed: Option<Nanos>,
}

impl Placed {
    pub(super) fn new(offset: u32) -> Placed {
        Placed { offset, submitted: None, failed: None }
    }
}

impl NetworkWorld {
    /// Returns the zone of a sector.
    pub(super) fn zone_at(&self, sector: u64) -> usize {
        self.zones.iter().rposition(|z| z.start <= sector).expect("the disk starts at 0")
    }

    /// Notes a request to the disk, or its answer.
    pub(super) fn note_place(&mut self, note: &Note) {
        if !matches!(note.op, Op::Write | Op::WriteZeroes) {
            return;
        }
        let z = self.zone_at(note.sector.0);
        let zone = &mut self.zones[z];
        let offset = (note.sector.0 - zone.start) as u32;
        let Some(n) = zone.train.iter().position(|p| p.offset == offset) else { return };
        let behind = zone.train[n + 1..].iter().any(|p| p.submitted.is_some());
        let placed = &mut zone.train[n];
        match note.ended {
            None => {
                placed.submitted = Some(note.at);
                if behind {
                    self.hit(Class::Reordered);
                }
            }
            Some(status) if !status.is_ok() => placed.failed = Some(note.at),
            Some(_) => {}
        }
    }

    /// Notes that a write at this place failed before it reached the disk, so those behind it have a reason to fail.
    pub(super) fn never_came(&mut self, z: usize, offset: u32) {
        let now = self.now;
        if let Some(p) = self.zones[z].train.iter_mut().find(|p| p.offset == offset) {
            p.failed = Some(now);
        }
    }

    /// Checks that a connection's write was rightly refused for not being at the write pointer, and that its time was
    /// over before the server began to end.
    pub(super) fn check_refusal(&mut self, c: usize, z: usize, offset: u32) {
        let window = self.config.order_window;
        let zone: &NetworkZone = &self.zones[z];
        let own = zone.train.iter().find(|p| p.offset == offset);
        let own = own.unwrap_or_else(|| panic!("no write at {offset} of {zone:?}"));
        let asked = own.submitted.expect("H5: it was refused, and the disk was not asked");
        let due = asked.plus(window);
        let late = |p: &super::Placed| p.failed.is_some() || p.submitted.is_none_or(|at| at >= due);
        let reason = zone.train.iter().any(|p| p.offset < offset && late(p));
        assert!(reason, "H3, H5: all before {offset} came in time: {window:?} {zone:?}");
        let left = self.connections[c].left;
        assert!(left.is_none_or(|at| due <= at), "L12: refused because the server ends: {zone:?}");
        if self.is_calm() && !zone.fuzzy {
            let refused = own.failed.expect("a failed write");
            assert!(refused >= due, "H5: refused at {refused:?} and not at {due:?}: {zone:?}");
        }
        self.hit(Class::TooLate);
    }
}
