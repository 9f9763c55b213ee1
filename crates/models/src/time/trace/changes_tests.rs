//! Tests of the zones that a trace changes on a disk with data.

use super::TraceEvent;
use super::changes::Changes;
use zoneplug_core::zone::Geometry;
use zoneplug_core::{Nanos, Op, ZoneNo};

const ZONE: u64 = 64;

/// A disk with two conventional zones and six sequential ones.
fn geometry() -> Geometry {
    Geometry::new(8, ZONE as u32, ZONE as u32)
        .and_then(|g| g.with_conventional([ZoneNo(0), ZoneNo(1)]))
        .unwrap_or_else(|e| panic!("{e}"))
}

/// Returns the zones that these operations change, each with whether it is emptied first.
fn changed(wraps: bool, events: &[(Op, u64, u64)]) -> (bool, Vec<(u32, bool)>) {
    let mut changes = Changes::new(&geometry());
    for &(op, sector, sectors) in events {
        let (fua, preflush, line, at) = (false, false, 1, Nanos(0));
        changes.see(&TraceEvent { line, at, op, fua, preflush, sector, sectors });
    }
    let zones = changes.zones(wraps);
    (changes.resets_all(), zones.iter().map(|z| (z.0, changes.is_emptied(*z))).collect())
}

fn of_one(op: Op, sector: u64, sectors: u64) -> Vec<(u32, bool)> {
    changed(false, &[(op, sector, sectors)]).1
}

/// A replay asks permission to lose the data of these zones, so none may be missing.
#[test]
fn a_zone_that_an_operation_empties_is_changed() {
    for (op, sectors) in [(Op::ZoneReset, 0), (Op::ZoneReset, ZONE), (Op::Discard, ZONE)] {
        assert_eq!(of_one(op, 3 * ZONE, sectors), [(3, true)], "{op:?} of {sectors}");
    }
    assert_eq!(of_one(Op::Discard, 3 * ZONE, 3 * ZONE), [(3, true), (4, true), (5, true)]);
    // A longer range discards the whole zones in it, not the partial ones: nothing is sent for
    // those.
    assert_eq!(of_one(Op::Discard, 3 * ZONE - 8, 2 * ZONE), [(3, true)]);
    assert_eq!(of_one(Op::Discard, 3 * ZONE, ZONE - 8), []);
    assert_eq!(of_one(Op::Discard, 3 * ZONE + 8, ZONE - 8), []);
    // Any part of a conventional zone can be discarded, and the rest stays.
    assert_eq!(of_one(Op::Discard, ZONE + 8, 8), [(1, false)]);
    assert_eq!(of_one(Op::Discard, ZONE, 2 * ZONE), [(1, false), (2, true)]);
}

#[test]
fn a_reset_of_all_zones_is_noted_and_empties_what_is_written_after_it() {
    let all = (Op::ZoneResetAll, 0, 0);
    assert_eq!(changed(false, &[all]), (true, vec![]));
    let (before, after) = ((Op::Write, 3 * ZONE, 8), (Op::Write, 4 * ZONE, 8));
    assert_eq!(changed(false, &[before, all, after]), (true, vec![(3, false), (4, true)]));
    assert_eq!(changed(false, &[before, after]), (false, vec![(3, false), (4, false)]));
}

#[test]
fn what_changes_no_data_changes_no_zone() {
    for op in [Op::Read, Op::Flush, Op::ZoneOpen, Op::ZoneClose] {
        assert_eq!(of_one(op, 3 * ZONE, 8), [], "{op:?}");
    }
    for op in [Op::Write, Op::WriteZeroes, Op::ZoneAppend, Op::ZoneFinish] {
        assert_eq!(of_one(op, 3 * ZONE, 8), [(3, false)], "{op:?}");
    }
    assert_eq!(of_one(Op::Write, 4 * ZONE - 8, 16), [(3, false), (4, false)]);
}

/// The first change of a zone decides. An operation past the end of the disk counts only if it
/// wraps around.
#[test]
fn the_first_change_decides_and_what_wraps_counts_where_it_is_sent() {
    let (write, reset) = ((Op::Write, 3 * ZONE, 8), (Op::ZoneReset, 3 * ZONE, 0));
    assert_eq!(changed(false, &[reset, write]).1, [(3, true)]);
    assert_eq!(changed(false, &[write, reset]).1, [(3, false)]);
    let beyond = (Op::Write, 11 * ZONE, 8);
    assert_eq!(
        (changed(false, &[beyond]).1, changed(true, &[beyond]).1),
        (vec![], vec![(3, false)])
    );
    assert_eq!(changed(false, &[beyond, reset]).1, [(3, true)], "the disk does not see the first");
    // A write up to the last sector is not past the end.
    assert_eq!(of_one(Op::Write, 8 * ZONE - 8, 8), [(7, false)]);
    assert_eq!(of_one(Op::Write, 8 * ZONE - 8, 9), []);
    let zone = ZoneNo(7);
    assert!(!Changes::new(&geometry()).is_emptied(zone), "an empty trace");
}
