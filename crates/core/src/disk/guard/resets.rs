//! The zones of each reset and finish that has not ended. A report of such a zone may become wrong at any moment.
//!
//! A device may have carried out a reset whose completion has not been seen yet. A report that the disk asks for then says
//! *empty*, and writes that failed before the reset would be sent again into the emptied zone. So a zone does not
//! recover by itself (`disk/recovery.rs`) while it is listed here. Zone management writes the list, and recoveries
//! read it. Under the list's lock only that of the tickets may be taken.

use crate::bio::Late;
use crate::disk::guard::late::LateTable;
use crate::sync::{Mutex, lock};
use crate::unit::ZoneNo;
use std::ops::Range;

/// The zones of each reset and finish that has not ended.
#[derive(Debug, Default)]
pub(crate) struct Resets(Mutex<Vec<Entry>>);

#[derive(Debug)]
struct Entry {
    zones: Range<u32>,
    /// 0 while the command is in flight. Otherwise the command was given up, and may be carried out while this ticket
    /// is open.
    ticket: u32,
}

impl Resets {
    /// Lists `zones`, because a reset or finish of them is about to be sent.
    pub(crate) fn begin(&self, zones: Range<u32>) {
        lock(&self.0).push(Entry { zones, ticket: 0 });
    }

    /// Notes that a reset or finish of a range has done one more zone: those before `left` are done.
    pub(crate) fn advance(&self, left: Range<u32>) {
        let mut all = lock(&self.0);
        let before = left.start - 1..left.end;
        // Two entries with the same zones are interchangeable.
        let entry = all.iter_mut().find(|e| e.ticket == 0 && e.zones == before);
        debug_assert!(entry.is_some(), "progress of a reset that is not listed");
        if let Some(entry) = entry {
            entry.zones = left;
        }
    }

    /// Notes the end of a reset or finish, with `left` of its zones not done. If it was given up, `late` has the
    /// zones that the device may still change, and the ticket of its BIO.
    pub(crate) fn end(
        &self,
        left: &Range<u32>,
        late: Option<(Range<u32>, u32)>,
        table: &LateTable,
    ) {
        let mut all = lock(&self.0);
        if let Some(at) = all.iter().position(|e| e.ticket == 0 && e.zones == *left) {
            all.swap_remove(at);
        } else {
            debug_assert!(false, "end of a reset that is not listed");
        }
        if let Some((zones, ticket)) = late {
            Self::forget_closed(&mut all, table);
            all.push(Entry { zones, ticket });
        }
    }

    /// Returns whether a command that was given up may still empty or fill `zone`.
    pub(crate) fn may_change_late(&self, zone: ZoneNo, table: &LateTable) -> bool {
        self.any(table, |e| e.ticket != 0 && e.zones.contains(&zone.0))
    }

    /// Returns whether any command, given up or in flight, may empty or fill `zone`.
    pub(crate) fn may_change(&self, zone: ZoneNo, table: &LateTable) -> bool {
        self.any(table, |e| e.zones.contains(&zone.0))
    }

    fn any(&self, table: &LateTable, wanted: impl FnMut(&Entry) -> bool) -> bool {
        let mut all = lock(&self.0);
        Self::forget_closed(&mut all, table);
        all.iter().any(wanted)
    }

    /// Removes commands that were given up and have come back.
    fn forget_closed(all: &mut Vec<Entry>, table: &LateTable) {
        all.retain(|e| Late::of(e.ticket).is_none_or(|ticket| table.is_open(ticket)));
    }
}
