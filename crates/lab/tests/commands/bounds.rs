//! Sizes and counts from outside are checked before they cost memory.

use crate::*;

/// The zones of all drives of a shelf, and what each client keeps of them, are counted before they are made. So are
/// the buffers of a client.
#[test]
fn drives_and_buffers_are_refused_where_memory_is_short() {
    let shelf = ["bench", "--disk", "sim-smr30,zones=250000", "--drives", "8", "--runtime", "1ms"];
    let works = [250_000, 300_000, 350_000, 400_000, 450_000, 2_000_000];
    let works = works.map(|kib| works_within(kib, &shelf));
    assert_eq!(works, [false, false, false, false, false, true]);
    let large = ["bench", "--disk", "mem", "--bs", "512M", "--runtime", "1ms"];
    assert!(!works_within(400_000, &large));
}

/// Lists are multiplied with each other, so their product is checked.
#[test]
fn more_ways_to_open_a_disk_than_can_be_measured_are_refused() {
    let list = |word: &str| [word; 2000].join(",");
    let (policies, schedulers) = (list("fifo"), list("none"));
    let args = ["bench", "--disk", "sim-smr30", "--policy", &policies, "--scheduler", &schedulers];
    let out = soon(&mut within(2 << 20, &args));
    let err = text(&out.stderr);
    assert_eq!(out.status.code(), Some(2), "{err}");
    assert!(err.contains("4000000 ways to open a disk, more than 10000"), "{err}");
}
