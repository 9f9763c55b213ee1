//! Turns that are long with few zones, short with 6 to 16 and longer again with more. No zone has much longer turns than the
//! others.
//!
//! A move to another zone costs a seek, however much is written there. Waiting in a zone costs no seek, but it delays
//! the other zones. A sweep over several zones already takes long, so turns are shorter there; with many zones, whose sweep
//! takes long anyway, longer turns matter less. The limits were found by
//! trying many of them on the model of a 30 TB disk, with fio's workload and few seeds (docs/models.md). Treat them
//! as a hypothesis.

use super::clook;
use super::view::View;
use crate::unit::{Bytes, Nanos};

/// With two zones: waits in one turn. The limit is a number and not a time, because each wait lets one more client
/// through. Zones whose turns have unequal numbers run out of clients one after the other.
const WAITS: u32 = 6;
/// With two zones: if this much waits in the other zone, the seek there is worth it at once.
const WORTH_A_SEEK: Bytes = Bytes(16 << 20);
/// With three to five zones: how long one of the others may have waited.
const PATIENCE: Nanos = Nanos(200_000_000);
/// With six or more zones: the length of a turn, for fewer than [`MANY`] others and for more.
const TURN: [Nanos; 2] = [Nanos(17_000_000), Nanos(30_000_000)];
const MANY: u64 = 16;

pub(super) fn pick(view: &View<'_>) -> usize {
    if view.listed.len() < 5 { 0 } else { clook::pick(view) }
}

pub(super) fn stay(view: &View<'_>) -> bool {
    let turn = view.turn;
    match view.listed.len() as u64 {
        0 | 1 => turn.waits < WAITS && view.listed.iter().all(|c| c.bytes < WORTH_A_SEEK),
        2..=4 => view.longest_wait() < PATIENCE,
        n => view.now.0.saturating_sub(turn.began.0) < TURN[usize::from(n >= MANY)].0,
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Turn, candidates, view};
    use super::*;

    #[test]
    fn two_zones_have_equal_numbers_of_waits() {
        let listed = candidates(&[(9, 4096)]);
        let at = |waits| View { turn: Turn { waits, ..Turn::default() }, ..view(&listed, Some(1)) };
        assert!(stay(&at(5)) && !stay(&at(6)));
        let full = candidates(&[(9, 16 << 10)]);
        assert!(!stay(&View { listed: &full, ..at(0) }), "the other has enough for its seek");
    }

    #[test]
    fn few_zones_wait_for_one_that_goes_on_but_not_for_ever() {
        let listed = candidates(&[(9, 4), (2, 4), (5, 4)]);
        let at = |now| View { now: Nanos(now), ..view(&listed, Some(1)) };
        assert!(stay(&at(199_000_000)) && !stay(&at(201_000_000)));
    }

    #[test]
    fn turns_with_several_zones_are_short_and_those_with_many_are_longer_and_sorted() {
        let zones: Vec<(u32, u64)> = (0..20).map(|z| (100 - z, 4)).collect();
        let listed = candidates(&zones);
        let at = |now| View { now: Nanos(now), ..view(&listed, Some(90)) };
        assert!(stay(&at(29_000_000)) && !stay(&at(31_000_000)));
        assert_eq!(pick(&at(0)), 9, "zone 91 is next above 90");
        let some = |n| View { listed: &listed[..n], ..at(18_000_000) };
        assert!(!stay(&some(8)), "several zones have shorter turns than many");
        assert_eq!(pick(&some(4)), 0, "few are not worth sorting");
    }
}
