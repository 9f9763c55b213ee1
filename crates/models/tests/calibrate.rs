//! From outside, calibrating finds the numbers that were put into a model, each as near as it says.
#![allow(clippy::unwrap_used)]

use zoneplug_core::form::Value;
use zoneplug_devices::emu::timing::{Profile, SMR_KEYS};
use zoneplug_devices::spec::Spec;
use zoneplug_models::calibrate::{Found, Instrument, Number, calibrate, values};

fn profile(spec: &str) -> Profile {
    let mut spec = Spec::parse(spec).unwrap();
    Profile::from_spec(&mut spec).unwrap().unwrap()
}

fn found(drive: &Profile, zones: u32) -> Found {
    let all = (0..zones).map(|i| i * (drive.zones - 1) / (zones - 1));
    let zones: Vec<u32> = all.collect();
    let mut on = Instrument::modelled(drive, &zones, &|| false).unwrap();
    calibrate(&mut on, "mine", &mut |_, _| ()).unwrap()
}

/// Whether a choice among candidates is the right one, or says that it cannot be told from that.
fn is_told(n: &Number, put_in: u64) -> bool {
    let form = SMR_KEYS.iter().find(|k| k.name == n.key).unwrap().form;
    let right = form.show(&Value::Number(put_in));
    let others = n.error.strip_prefix("not told from ").unwrap_or_default();
    n.text == right || others.split(", ").any(|o| o == right)
}

/// Checks all that was found of an SMR disk.
fn is_found(spec: &str) {
    let drive = profile(spec);
    let f = found(&drive, 32);
    let put_in = values(&drive);
    let put_in = |key: &str| put_in.iter().find(|p| p.0 == key).unwrap().1;
    let number = |key: &str| f.numbers.iter().find(|n| n.key == key).unwrap();
    let off = |key: &str| number(key).value as f64 / put_in(key) as f64 - 1.0;
    assert_eq!(number("rpm").value, put_in("rpm"), "{spec}");
    for (key, near) in [
        ("outer-rate", 0.005),
        ("inner-radius", 0.005),
        ("link-rate", 0.03),
        ("command-time", 0.1),
        ("cache", 0.05),
    ] {
        assert!(off(key).abs() <= near, "{spec}: {key} is {}", number(key).text);
    }
    // The parts of a seek are not told from each other; the whole is.
    let seek = |of: &dyn Fn(&str) -> u64, d: f64| {
        of("seek-settle") as f64 + of("seek-sqrt") as f64 * d.sqrt() + of("seek-linear") as f64 * d
    };
    for d in [0.001, 0.03, 0.1, 0.3, 0.6, 1.0] {
        let (ours, theirs) = (seek(&|k| number(k).value, d), seek(&put_in, d));
        assert!(
            (ours - theirs).abs() < 0.3e6,
            "{spec}: a seek over {d} takes {ours} for {theirs} ns"
        );
    }
    let eighth = put_in("cache") / 8;
    assert!(number("protected").value.abs_diff(put_in("protected")) <= eighth, "{spec}");
    if put_in("cache-entries") > 0 {
        assert!(off("cache-entries").abs() <= 0.06, "{spec}");
    } else {
        assert_eq!(number("cache-entries").value, 0, "{spec}");
    }
    assert_eq!(number("destage").value, put_in("destage"), "{spec}");
    if put_in("destage") == 0 {
        for key in ["max-run", "queued-fifo"] {
            assert!(is_told(number(key), put_in(key)), "{spec}: {:?}", number(key));
        }
    }
    for h in &f.held_back {
        assert!(h.error_percent().abs() < 10.0, "{spec}: {h:?}");
    }
    // What is printed is a profile, with the same numbers.
    let again = Profile::parse("mine", &f.profile).unwrap();
    for (key, value) in values(&again) {
        assert_eq!(value, number(key).value, "{spec}: {key}");
    }
    assert!(again.source("cache").unwrap().starts_with("measured here: "), "{spec}");
}

#[test]
fn an_smr_disk_is_found() {
    is_found("sim-smr30,zones=6000,cache=12M,protected=6M,queued-fifo=4,max-run=2M,rpm=5400");
}

#[test]
fn a_zns_ssd_is_found() {
    let drive = profile("sim-zns1,latency=25us,read-latency=80us,zone-rate=700MB/s");
    let f = found(&drive, 14);
    for (key, put_in) in values(&drive) {
        let n = f.numbers.iter().find(|n| n.key == key).unwrap();
        assert!((n.value as f64 / put_in as f64 - 1.0).abs() < 0.02, "{key} is {}", n.text);
    }
    assert!(f.held_back.iter().all(|h| h.error_percent().abs() < 2.0), "{:?}", f.held_back);
}

/// Half a minute, optimized: the profiles of this program, and others.
#[test]
#[ignore = "long; .ci/run --full"]
fn many_smr_disks_are_found() {
    for spec in [
        "sim-smr30",
        "sim-smr20",
        "sim-smr14",
        "sim-smr30,rpm=5400,outer-rate=180MB/s,inner-radius=0.48,cache=64M,protected=0,queued-fifo=4,max-run=8M",
        "sim-smr30,cache=32M,protected=8M,queued-fifo=0,max-run=1M,seek-sqrt=7ms,seek-linear=2ms,seek-settle=500us",
        "sim-smr30,destage=fifo",
        "sim-smr30,command-time=100us,link-rate=300MB/s,queued-fifo=2,cache=48M,protected=24M,max-run=4M",
        "sim-smr20,cache-entries=1000",
    ] {
        is_found(spec);
    }
}
