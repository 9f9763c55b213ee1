//! Real drives behind the device seam: the conformance suite on the drive that `ZONEPLUG_TEST_DEVICE` names as a specification
//! (`/dev/nullb0`, `/dev/ng0n1,force=1`). Its data are destroyed. Without the variable there is nothing to do: the guests of
//! `tests/vm` run this.

#![allow(clippy::unwrap_used)]

use std::time::Instant;
use zoneplug_core::conformance::{Target, checks, run_one};
use zoneplug_host::open_device;

#[test]
fn a_drive_conforms() {
    let Ok(spec) = std::env::var("ZONEPLUG_TEST_DEVICE") else { return };
    let device = open_device(&spec).unwrap();
    println!("{spec}: {:?}", device.limits());
    let keeps_data = std::env::var("ZONEPLUG_TEST_FORGETS").is_err();
    let only = std::env::var("ZONEPLUG_TEST_CHECK").ok();
    let mut make = || device.clone();
    let mut target = Target::new(&mut make, keeps_data).of_a_drive();
    let mut failed = Vec::new();
    for &(name, check) in checks() {
        if only.as_ref().is_some_and(|o| o != name) {
            continue;
        }
        let begin = Instant::now();
        let run = std::panic::AssertUnwindSafe(|| run_one(&mut target, name, check));
        let passed = std::panic::catch_unwind(run).is_ok();
        println!(
            "{} {name} ({} ms)",
            if passed { "ok  " } else { "FAIL" },
            begin.elapsed().as_millis()
        );
        if !passed {
            failed.push(name);
        }
    }
    assert!(failed.is_empty(), "{spec}: {failed:?}");
}
