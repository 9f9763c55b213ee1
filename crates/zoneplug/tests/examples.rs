//! The examples on disks that a reader may give them.

#![allow(clippy::unwrap_used)]

#[allow(dead_code, reason = "its main is for the command line")]
#[path = "../../../examples/append_log.rs"]
mod append_log;

/// The smallest disk panicked: it holds fewer records than the example read back.
#[test]
fn the_log_runs_on_a_disk_of_any_size_or_says_why_not() {
    for spec in [
        "mem,zones=2,zone-size=1M",
        "mem,zones=2,zone-size=64K",
        "mem,zones=2,zone-size=4K",
        "mem,zones=3,conv=1,zone-size=16K,zone-capacity=12K",
        "mem,zones=2,zone-size=16K,last-zone-size=8K",
        "mem,zones=64,zone-size=4M,append=native",
        "mem,zones=2,mode=none",
    ] {
        let said = append_log::run(spec).unwrap_or_else(|e| panic!("{spec}: {e}"));
        assert!(said.starts_with("1000 records"), "{spec}: {said}");
    }
    for (spec, why) in [
        ("mem,zones=2,zone-size=1K,lba-size=512", "the longest is 960"),
        ("mem,zones=2,conv=1", "two sequential zones"),
    ] {
        let said = append_log::run(spec).unwrap_err().to_string();
        assert!(said.contains(why), "{spec}: {said}");
    }
}

#[allow(dead_code, reason = "its main is for the command line")]
#[path = "../../../examples/crash_log.rs"]
mod crash_log;

/// The example that looks for a missing sync finds it, early and small; without one it finds nothing.
#[test]
fn a_forgotten_sync_is_found_and_told_in_few_lines() {
    let report = crash_log::run(500, false).unwrap();
    assert_eq!((report.cuts, report.runs), (500, 100));
    let found = crash_log::run(500, true).unwrap_err();
    assert!(found.message.contains("is not in the log"), "{found}");
    let text = found.to_string();
    assert!(text.contains("repeat it: ZONEPLUG_CRASH="), "{text}");
    assert!(text.lines().count() <= 15, "{text}");
}
