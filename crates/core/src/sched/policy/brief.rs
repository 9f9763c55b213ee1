//! First in, first out, with a short wait at the beginning of a turn. It has most of the gain of waiting, at little
//! cost in tail latency.
//!
//! When the first writes of a zone have ended, a client that waited for them often sends the next one a moment later.
//! The writer waits only for that one, so a sweep over all zones takes about as long as without the wait.

use super::view::View;
use crate::unit::{Bytes, Nanos};

/// Waits only while the turn has written less than this: one write of 1 MiB and no more.
const LONG: Bytes = Bytes(2 << 20);
/// Waits only while no listed zone has waited longer than a limit: the first number, plus the second for each listed
/// zone. A sweep of `fifo` over as many zones takes about that long (docs/models.md).
const PATIENCE: [Nanos; 2] = [Nanos(55_000_000), Nanos(16_000_000)];

/// Picks the zone that has been listed longest.
pub(super) fn pick(_: &View<'_>) -> usize {
    0
}

pub(super) fn stay(view: &View<'_>) -> bool {
    let zones = view.listed.len() as u64;
    if zones == 1 {
        // With two zones, each gets the same number of waits. Otherwise one would run out of clients, and the other
        // would have all of them.
        return view.turn.waits < 1;
    }
    let patience = PATIENCE[0].0 + PATIENCE[1].0 * zones;
    view.turn.written < LONG && view.longest_wait().0 < patience
}

#[cfg(test)]
mod tests {
    use super::super::{Turn, candidates, view};
    use super::*;

    #[test]
    fn it_waits_once_while_others_have_not_waited_long() {
        let listed = candidates(&[(9, 4), (2, 4), (5, 4)]);
        let turn = |mib: u64| Turn { written: Bytes(mib << 20), ..Turn::default() };
        let at = |mib, now| View { now: Nanos(now), turn: turn(mib), ..view(&listed, Some(1)) };
        assert!(stay(&at(1, 50_000_000)));
        assert!(!stay(&at(2, 50_000_000)), "the turn is long enough");
        assert!(!stay(&at(1, 104_000_000)), "somebody has waited too long");
        assert_eq!(pick(&at(1, 0)), 0);
    }

    #[test]
    fn of_two_zones_each_has_one_wait_in_a_turn() {
        let listed = candidates(&[(9, 4)]);
        let at = |waits| View { turn: Turn { waits, ..Turn::default() }, ..view(&listed, Some(1)) };
        assert!(stay(&at(0)) && !stay(&at(1)));
    }
}
