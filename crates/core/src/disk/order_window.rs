//! The order window of a disk: its lock, its state that queues see without the lock, and its treatment by a
//! revalidation.

use super::shared::Shared;
use super::state::EARLY;
use crate::bio::Bio;
use crate::plug::OrderWindow;
use crate::sync::{MutexGuard, Ordering, lock};
use crate::unit::ZoneNo;
use crate::zone::Geometry;
use std::ops::{Deref, DerefMut};

/// The value of [`Shared::window_due`] from the start of a freeze to the first call after it. It is less than any
/// time, so each call looks at the window.
pub(crate) const PAUSED: u64 = 0;
/// The value of [`Shared::window_due`] while no early write has a time at which it is refused.
pub(crate) const NOTHING_DUE: u64 = u64::MAX;

/// The lock of the window. It is taken under that of a shard; nothing is locked under it. Its drop publishes the
/// changes to the queues.
pub(crate) struct WindowGuard<'a> {
    shared: &'a Shared,
    window: MutexGuard<'a, OrderWindow>,
}

impl Deref for WindowGuard<'_> {
    type Target = OrderWindow;

    fn deref(&self) -> &OrderWindow {
        &self.window
    }
}

impl DerefMut for WindowGuard<'_> {
    fn deref_mut(&mut self) -> &mut OrderWindow {
        &mut self.window
    }
}

impl Drop for WindowGuard<'_> {
    fn drop(&mut self) {
        let due = match (self.window.is_paused(), self.window.next_due()) {
            (true, _) => PAUSED,
            (false, due) => due.map_or(NOTHING_DUE, |due| due.0),
        };
        self.shared.window_due.store(due, Ordering::Release);
        // Only the holder of the window's lock changes the bit.
        let state = &self.shared.state.0;
        let shown = state.load(Ordering::Relaxed) & EARLY == 0;
        if shown != self.window.is_empty() {
            match shown {
                true => state.fetch_or(EARLY, Ordering::AcqRel),
                false => state.fetch_and(!EARLY, Ordering::AcqRel),
            };
        }
    }
}

/// The state of a zone with early writes that a revalidation compares.
pub(crate) struct ZoneBefore {
    zone: ZoneNo,
    wp: u32,
}

impl Shared {
    /// Locks the order window.
    pub(crate) fn window(&self) -> WindowGuard<'_> {
        WindowGuard { shared: self, window: lock(&self.order_window) }
    }

    /// Returns the zones with early writes, before a revalidation makes their plugs anew.
    pub(super) fn early_before(&self) -> Vec<ZoneBefore> {
        let zones = self.window().zones(None);
        let before = |zone| {
            let (shard, i) = self.shard(zone);
            ZoneBefore { zone, wp: shard.plugs[i].write_pointer() }
        };
        zones.into_iter().map(before).collect()
    }

    /// Called when a revalidation has made the plugs anew: keeps the early writes of zones that have not changed, and
    /// refuses the others.
    pub(super) fn early_after(
        &self,
        before: Vec<ZoneBefore>,
        geometry: &Geometry,
        same: bool,
        ended: &mut Vec<Box<Bio>>,
    ) {
        for ZoneBefore { zone, wp } in before {
            if zone.0 >= geometry.nr_zones() {
                self.window().drop_zone(zone, None, ended);
                continue;
            }
            let (mut shard, i) = self.shard(zone);
            let mut window = self.window();
            if same && shard.plugs[i].write_pointer() == wp {
                window.keep_zone(zone, &mut shard, i, ended);
            } else {
                window.drop_zone(zone, Some((&mut shard, i)), ended);
            }
        }
    }
}
