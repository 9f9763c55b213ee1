//! Worlds of zones of nearly 2^32 sectors.

use zoneplug_sim::{Far, far};

/// W8, W10: each write lands where it should, or is refused, however near 2^32 its end is; and each kind of such a
/// world occurs.
#[test]
fn worlds_of_large_zones_keep_every_promise() {
    let mut all = Far::default();
    for seed in 1..=400 {
        let seen = std::panic::catch_unwind(|| far(seed));
        let s = seen.unwrap_or_else(|_| panic!("the world of large zones of seed {seed}"));
        all.bios += s.bios;
        all.near += s.near;
        all.wrapped += s.wrapped;
        all.spanning += s.spanning;
        all.short += s.short;
        all.conventional += s.conventional;
        all.joined += s.joined;
    }
    let seen = [all.near, all.wrapped, all.spanning, all.short, all.conventional, all.joined];
    assert!(all.bios > 10_000 && seen.iter().all(|&n| n > 20), "{all:?}");
}
