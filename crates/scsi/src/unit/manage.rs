//! OPEN, CLOSE and FINISH of all zones, or of several. A disk resets all zones with one command.
//!
//! Zones are reported 64 at a time, and those that the action changes are managed one by one.

use super::report::record;
use crate::spec::zone::ZoneAction;
use zoneplug_buf::AlignedBuf;
use zoneplug_core::zone::{Condition, Geometry, ZONE_RECORD_LEN};
use zoneplug_core::{Op, ZoneNo};

const RECORD: u32 = ZONE_RECORD_LEN as u32;

/// The purpose of a turn through the zones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    /// Counts zones for which OPEN ZONE needs resources: if there are not enough, no zone is changed.
    Count {
        zones: u32,
    },
    /// Manages zones in these conditions.
    Open,
    Closed,
    /// Manages each zone of a range, whatever its condition.
    Range,
}

/// The next step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NextZone {
    /// Manage this zone.
    Manage(ZoneNo),
    /// Report so many zones from this one on.
    Report(ZoneNo, u32),
    /// No zone is left.
    End,
    /// The zones need more resources than there are.
    NoResources,
}

/// The management of several zones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ZoneSweep {
    turn: Turn,
    action: ZoneAction,
    max_open: Option<u32>,
    /// The zone that the lowest bit of `mask` stands for.
    base: u32,
    end: u32,
    /// Zones that are still to be managed.
    mask: u64,
    /// Whether the zones from `base` on were reported.
    reported: bool,
}

impl ZoneSweep {
    const ZONES: u32 = u64::BITS;
    /// Bytes of a report.
    pub(super) const BUFFER_BYTES: u32 = ZoneSweep::ZONES * RECORD;

    /// Manages all zones that the action changes. The action is no reset.
    pub(super) fn all(action: ZoneAction, count: u32, max_open: Option<u32>) -> ZoneSweep {
        let turn = match action {
            ZoneAction::Open => Turn::Count { zones: 0 },
            // An open zone that is finished frees what a closed one needs.
            ZoneAction::Close | ZoneAction::Finish | ZoneAction::Reset => Turn::Open,
        };
        ZoneSweep { turn, action, max_open, base: 0, end: count, mask: 0, reported: false }
    }

    /// Manages `count` zones from `first` on.
    pub(super) fn range(action: ZoneAction, first: ZoneNo, count: u32) -> ZoneSweep {
        let (base, end) = (first.0, first.0 + count);
        ZoneSweep { turn: Turn::Range, action, max_open: None, base, end, mask: 0, reported: false }
    }

    /// Returns the operation for each zone.
    pub(super) fn op(&self) -> Op {
        match self.action {
            ZoneAction::Close => Op::ZoneClose,
            ZoneAction::Finish => Op::ZoneFinish,
            ZoneAction::Open => Op::ZoneOpen,
            ZoneAction::Reset => Op::ZoneReset,
        }
    }

    /// Returns the next step.
    pub(super) fn next(&mut self) -> NextZone {
        loop {
            if self.mask != 0 {
                let zone = self.base + self.mask.trailing_zeros();
                self.mask &= self.mask - 1;
                return NextZone::Manage(ZoneNo(zone));
            }
            if self.reported {
                self.base += ZoneSweep::ZONES;
                self.reported = false;
            }
            if self.base < self.end {
                let zones = (self.end - self.base).min(ZoneSweep::ZONES);
                if self.turn != Turn::Range {
                    return NextZone::Report(ZoneNo(self.base), zones);
                }
                self.mask = u64::MAX >> (ZoneSweep::ZONES - zones);
                self.reported = true;
                continue;
            }
            self.turn = match (self.turn, self.action) {
                (Turn::Count { zones }, _) if self.max_open.is_some_and(|max| zones > max) => {
                    return NextZone::NoResources;
                }
                (Turn::Count { .. }, _) | (Turn::Open, ZoneAction::Finish) => Turn::Closed,
                _ => return NextZone::End,
            };
            self.base = 0;
        }
    }

    /// Takes a report of `zones` zones. Returns false if it is wrong.
    pub(super) fn take(&mut self, g: &Geometry, buffer: &AlignedBuf, zones: u32) -> bool {
        if zones != (self.end - self.base).min(ZoneSweep::ZONES) {
            return false;
        }
        self.reported = true;
        for i in 0..zones {
            let Some(z) = record(g, buffer, i * RECORD, self.base + i) else { return false };
            let selected = match &mut self.turn {
                Turn::Count { zones } => {
                    *zones += u32::from(matches!(z.cond, Condition::ExpOpen | Condition::Closed));
                    false
                }
                Turn::Open => z.cond.is_open(),
                Turn::Closed => z.cond == Condition::Closed,
                Turn::Range => false,
            };
            self.mask |= u64::from(selected) << i;
        }
        true
    }
}
