//! A replay that is asked to end early: what it had whole is not mixed with what was cut.
#![allow(clippy::unwrap_used)]

use std::fmt::Write;
use std::io::Read;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use zoneplug_core::disk::DiskConfig;
use zoneplug_models::replay::{Map, Replay, Row, Speed, Trace};
use zoneplug_models::time::trace::Events;
use zoneplug_models::{VirtualDisk, Workers};

const WRITES: u64 = 100;

/// The rows of a trace with three runs each, in one thread, which is asked to end in the run with this number, from 1, after
/// some writes. 0: never.
fn rows(cut: u32) -> Vec<Row> {
    let mut text = "fio version 2 iolog\n".to_owned();
    (0..WRITES).for_each(|n| writeln!(text, "f write {} 65536", n * 65536).unwrap());
    // The first reader is the survey's.
    let (readers, looks) = (AtomicU32::new(0), AtomicU32::new(0));
    let open = || {
        readers.fetch_add(1, Relaxed);
        looks.store(0, Relaxed);
        Ok(vec![Box::new(text.as_bytes()) as Box<dyn Read>])
    };
    let is_asked = || {
        let looks = looks.fetch_add(1, Relaxed);
        cut > 0
            && (readers.load(Relaxed) > cut + 1 || readers.load(Relaxed) == cut + 1 && looks > 40)
    };
    let workers = Workers::all(&is_asked).at_most(1);
    let disks = [VirtualDisk::parse("sim-smr30").unwrap().unwrap()];
    let trace = Trace::new(&open, Events::Queued, None);
    let replay = Replay::of(&trace, &disks, &workers).unwrap();
    let pace = replay.pace(Speed::Asap, None);
    let ways = [vec![DiskConfig::default().into()]];
    replay.rows(&ways, Map::Auto, pace, 3, &workers).unwrap()
}

#[test]
fn a_run_that_was_cut_is_not_compared_with_whole_ones() {
    for (cut, whole) in [(0, 3), (2, 1), (3, 2)] {
        let rows = rows(cut);
        let spread = rows[0].spread.as_ref().unwrap();
        assert_eq!((rows.len(), spread.runs), (1, whole), "cut in run {cut}");
        assert_eq!(rows[0].writes.operations, WRITES, "cut in run {cut}");
        // The rates of the whole runs, and figures of these.
        assert_eq!(spread.rates_ppm, [1_000_000, 995_000, 1_005_000][..whole]);
        assert!(whole > 1 || spread.mb_per_s[0] == spread.mb_per_s[1], "{spread:?}");
    }
}

/// If no run is whole, the row is of the part that the first has replayed.
#[test]
fn a_row_without_a_whole_run_is_of_one_part() {
    let rows = rows(1);
    assert_eq!((rows.len(), rows[0].spread.as_ref().unwrap().runs), (1, 1));
    assert!((1..WRITES).contains(&rows[0].writes.operations), "{}", rows[0].writes.operations);
}
