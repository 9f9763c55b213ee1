//! Which zones a reset or a finish is on its way to: while one is, a report of such a zone does not say what will hold.
//!
//! A device may have carried out the reset, and its completion not be seen yet. The layer's own report then says *empty*, and
//! writes that failed before the reset would go out again into the emptied zone. So a zone does not go on by itself
//! (`recovery.rs`) while it is listed here. Commands of zone management write the list, recoveries read it; of locks only
//! that of the tickets is taken under its own.

use crate::bio::Late;
use crate::disk::guard::late::LateTable;
use crate::sync::{Mutex, lock};
use crate::unit::ZoneNo;
use std::ops::Range;

/// The zones of each reset and finish that is not over.
#[derive(Debug, Default)]
pub(crate) struct Resets(Mutex<Vec<Entry>>);

#[derive(Debug)]
struct Entry {
    zones: Range<u32>,
    /// 0: it is on its way. Otherwise it was given up, and may be carried out as long as this is open.
    ticket: u32,
}

impl Resets {
    /// One is about to be sent.
    pub(crate) fn begin(&self, zones: Range<u32>) {
        lock(&self.0).push(Entry { zones, ticket: 0 });
    }

    /// Of one for a range of zones: those before `left` are done.
    pub(crate) fn go_on(&self, left: Range<u32>) {
        let mut all = lock(&self.0);
        let before = left.start - 1..left.end;
        // Those of equal zones are alike.
        let entry = all.iter_mut().find(|e| e.ticket == 0 && e.zones == before);
        debug_assert!(entry.is_some(), "zones that are not listed are done");
        if let Some(entry) = entry {
            entry.zones = left;
        }
    }

    /// One is over, of whose zones `left` were still to be done. If it was given up, `late` has the zones that the device may
    /// change yet, and the ticket of its BIO.
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
            debug_assert!(false, "one that is not listed is over");
        }
        if let Some((zones, ticket)) = late {
            Self::forget_closed(&mut all, table);
            all.push(Entry { zones, ticket });
        }
    }

    /// Whether one that was given up may empty or fill `zone` at any moment.
    pub(crate) fn is_late(&self, zone: ZoneNo, table: &LateTable) -> bool {
        let mut all = lock(&self.0);
        Self::forget_closed(&mut all, table);
        all.iter().any(|e| e.ticket != 0 && e.zones.contains(&zone.0))
    }

    /// Whether one may, given up or not.
    pub(crate) fn move_zone(&self, zone: ZoneNo, table: &LateTable) -> bool {
        let mut all = lock(&self.0);
        Self::forget_closed(&mut all, table);
        all.iter().any(|e| e.zones.contains(&zone.0))
    }

    fn forget_closed(all: &mut Vec<Entry>, table: &LateTable) {
        all.retain(|e| Late::of(e.ticket).is_none_or(|ticket| table.is_open(ticket)));
    }
}
