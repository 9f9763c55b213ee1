//! Worlds of the simulation: a few in each test run, many in `zoneplug-lab sim`.
//!
//! `ZONEPLUG_SEEDS=n` runs so many. A seed that fails says how to run it again.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use zoneplug_sim::{Class, Steps, Tally, run, shrink};

fn env(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|v| v.parse().ok())
}

/// I1-I7, R44: every promise is kept in every world, and every class of old mistakes is met in some.
/// W9, E4, E10, E12, A5, M4, M11, O7, Q1, C1, C2, R2, R3, R12, R29, R35. Half of the worlds reach the disk over
/// NVMe/TCP: H1-H5, H10, H12, J2, J6, J10, J13, K1, K3-K5, L3, L11, L12.
#[test]
fn random_worlds_keep_every_promise() {
    let seeds = env("ZONEPLUG_SEEDS").unwrap_or(3000);
    let (last, tallies) = (AtomicU64::new(0), Mutex::new((Tally::default(), Tally::default())));
    let work = || {
        loop {
            let seed = last.fetch_add(1, Relaxed) + 1;
            if seed > seeds {
                break;
            }
            match run(seed, &Steps::All, false) {
                Ok(o) => {
                    let (tally, plain) = &mut *tallies.lock().unwrap();
                    tally.add(&o);
                    if o.coverage.of(Class::Target) == 0 {
                        plain.add(&o);
                    }
                }
                Err(f) => {
                    // The other threads begin no further world.
                    last.store(seeds, Relaxed);
                    let steps = shrink(seed).map(|s| s.steps).unwrap_or_default();
                    panic!("zoneplug-lab sim --seed {seed} --steps {steps}: {}", f.what);
                }
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..std::thread::available_parallelism().map_or(1, |n| n.get()) {
            scope.spawn(work);
        }
        work();
    });
    let (tally, plain) = tallies.into_inner().unwrap();
    assert!(plain.bios / plain.worlds >= 500, "a world has hundreds of BIOs");
    assert!(plain.faults / plain.worlds >= 2, "and a few faults");
    let (worlds, bios) = (tally.worlds - plain.worlds, tally.bios - plain.bios);
    assert!(worlds + 1 >= plain.worlds, "half of the worlds have a target");
    assert!(bios / worlds >= 200, "whose hosts send hundreds of commands");
    assert!((tally.faults - plain.faults) / worlds >= 2, "through a bad network");
    if seeds >= 2000 {
        let missing: Vec<_> = tally.coverage.missing().map(Class::name).collect();
        assert!(missing.is_empty(), "no world met {missing:?}");
    }
}

/// A write of eight commands at a device without latency: each poll ends one and sends the next, and no time passes.
#[test]
fn a_device_that_needs_many_polls_and_no_time_does_not_hang() {
    run(95_840, &Steps::All, false).unwrap();
}

/// A host does not reset a zone while a write below its write pointer is on its way, to be refused.
#[test]
fn a_reset_does_not_meet_a_write_that_must_be_refused() {
    run(97_682, &Steps::All, false).unwrap();
}

/// A device without latency takes nothing four times, then two parts of a write. The queue that sends them has nothing
/// else to do, and gives the BIO back to another.
#[test]
fn a_write_that_another_queue_ends_does_not_hang() {
    run(159_326, &Steps::All, false).unwrap();
    run(212_590, &Steps::All, false).unwrap();
}

/// Everything follows from the seed.
#[test]
fn a_world_is_the_same_each_time() {
    for seed in 1..20 {
        assert_eq!(run(seed, &Steps::All, false), run(seed, &Steps::All, true));
    }
    assert_ne!(run(1, &Steps::All, false), run(2, &Steps::All, false));
}

/// A world is the same whatever memory it gets: nothing in it follows from addresses.
#[test]
fn a_world_is_the_same_in_other_memory() {
    let after = |gap: usize, seed| {
        let world = move || {
            let _holes: Vec<_> = (0..64).map(|i| vec![0u8; (i + 1) * gap]).step_by(2).collect();
            run(seed, &Steps::All, false)
        };
        std::thread::spawn(world).join().expect("no panic")
    };
    for seed in [1671, 1673, 1799, 2, 836, 900] {
        let first = after(0, seed);
        for gap in 1..40 {
            assert_eq!(after(gap, seed), first, "seed {seed}, gap {gap}");
        }
    }
}

/// Runs the worlds of these seeds. Panics if one breaks a promise.
fn keep_every_promise(seeds: &[u64]) {
    for &seed in seeds {
        run(seed, &Steps::All, false).unwrap_or_else(|f| panic!("seed {seed}: {}", f.what));
    }
}

/// Worlds whose oracle was too strict: a native append that is given up and lands late, one that fails while the device
/// is too busy for a write, and a reset that is given up and comes back together with the failures of later writes.
#[test]
fn what_comes_back_late_beside_failures_keeps_every_promise() {
    keep_every_promise(&[174_123, 467_241, 705_471]);
}

/// A host connects again while the target does not know yet that its earlier connections are cut, and then loses access.
#[test]
fn a_host_that_loses_access_may_still_have_queues_of_an_earlier_association() {
    keep_every_promise(&[713_376]);
}

/// A host sends into a link that was cut while it was almost full; a queue is full of reads of 100 KiB when its host
/// authenticates.
#[test]
fn a_slow_connection_is_no_hang() {
    keep_every_promise(&[726_128, 783_736]);
}

/// A report overtakes a write that waits in the scheduler of a zone which a native append has made stale (E6).
#[test]
fn a_report_that_overtakes_a_write_keeps_every_promise() {
    keep_every_promise(&[1_368_533]);
}

/// A write fails in front of an append that was to overtake a held write.
#[test]
fn an_append_behind_a_failed_write_keeps_every_promise() {
    keep_every_promise(&[2_055_127]);
}

/// A freeze is complete with the last poll of a world in which nothing else happens any more.
#[test]
fn a_freeze_that_has_ended_is_no_hang() {
    keep_every_promise(&[1_555_322]);
}

/// What shrinking relies on: any selection of steps is a world that keeps its promises.
#[test]
fn steps_can_be_left_out() {
    for seed in 1..200 {
        let steps =
            Steps::Only((0..2000).filter(|n| !(n / 7 + seed as u32).is_multiple_of(3)).collect());
        let o = run(seed, &steps, false).unwrap_or_else(|f| panic!("seed {seed}: {}", f.what));
        assert!(o.bios > 0);
    }
    assert!(shrink(1).is_none(), "a world that keeps its promises does not shrink");
}

#[test]
fn a_list_of_steps_is_read_as_it_is_shown_and_is_not_endless() {
    for (text, shown) in [("all", "all"), ("3,5-7,4", "3-7"), ("4294967295", "4294967295")] {
        assert_eq!(text.parse::<Steps>().unwrap().to_string(), shown);
    }
    // A few bytes each, and four million of them.
    let text = ["0-1048575"; 40].join(",");
    let e = text.parse::<Steps>().map(|_| ()).unwrap_err();
    assert!(e.contains("more than"), "{e}");
    for text in ["", "7-3", "-", "1,", "4294967296", "0-4294967295"] {
        assert!(!text.parse::<Steps>().map(|_| ()).unwrap_err().is_empty(), "{text}");
    }
}
