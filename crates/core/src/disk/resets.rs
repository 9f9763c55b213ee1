//! Which zones a reset or a finish is on its way to: while one is, a report of such a zone does not say what will hold.
//!
//! A device may have carried out the reset, and its completion not be seen yet. The layer's own report then says *empty*, and
//! writes that failed before the reset would go out again into the emptied zone. So a zone does not go on by itself
//! (`recovery.rs`) while it is listed here. Commands of zone management write the list, recoveries read it; of locks only
//! that of the tickets is taken under its own.

use super::late::{Late, LateTable};
use super::sync::{Mutex, lock};
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
    pub(super) fn begin(&self, zones: Range<u32>) {
        lock(&self.0).push(Entry { zones, ticket: 0 });
    }

    /// One of these zones is back. `ticket`: that of its BIO, 0 unless it was given up.
    pub(super) fn end(&self, zones: &Range<u32>, ticket: u32) {
        let mut all = lock(&self.0);
        // Those of equal zones are alike.
        let at = all.iter().position(|e| e.ticket == 0 && e.zones == *zones);
        let Some(at) = at else { return debug_assert!(false, "ended, and never begun") };
        if ticket == 0 {
            all.swap_remove(at);
        } else {
            all[at].ticket = ticket;
        }
    }

    /// Whether one may empty or fill `zone` at any moment.
    pub(super) fn move_zone(&self, zone: ZoneNo, late: &LateTable) -> bool {
        let mut all = lock(&self.0);
        all.retain(|e| Late::of(e.ticket).is_none_or(|ticket| late.is_open(ticket)));
        all.iter().any(|e| e.zones.contains(&zone.0))
    }
}
