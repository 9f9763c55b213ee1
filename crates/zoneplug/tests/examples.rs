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
