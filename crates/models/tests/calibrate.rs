//! From outside, calibrating finds the numbers that were put into a model, each as near as it says.
#![allow(clippy::unwrap_used)]

use std::cell::Cell;
use zoneplug_core::form::Value;
use zoneplug_devices::emu::timing::{Profile, SMR_KEYS};
use zoneplug_devices::emu::{EmuConfig, EmuDisk};
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
        assert!(h.error_percent().unwrap().abs() < 10.0, "{spec}: {h:?}");
    }
    // What is printed is a profile, with the same numbers.
    let again = Profile::parse("mine", &f.profile).unwrap();
    for (key, value) in values(&again) {
        assert_eq!(value, number(key).value, "{spec}: {key}");
    }
    assert!(again.source("cache").unwrap().starts_with("measured here: "), "{spec}");
}

/// The end that is asked for comes also while candidates are measured, which takes longer than the drive.
#[test]
fn a_search_over_candidates_ends_when_it_is_asked_to() {
    let drive = profile("sim-smr30,zones=6000,cache=12M");
    let zones: Vec<u32> = (0..8).map(|i| i * 857).collect();
    let (before, now, is_last) = (Cell::new(0_u64), Cell::new(0_u64), Cell::new(false));
    let is_asked = || {
        now.set(now.get() + 1);
        // The last step has one measurement of the drive, which asks less often than all others together, and the candidates.
        is_last.get() && now.get() > before.get()
    };
    let mut on = Instrument::modelled(&drive, &zones, &is_asked).unwrap();
    let mut steps = Vec::new();
    let mut progress = |_: (u32, u32), what: &str| {
        steps.push(what.to_owned());
        before.set(before.get() + now.take());
        is_last.set(what == "reads beside writes");
    };
    let e = calibrate(&mut on, "mine", &mut progress).unwrap_err();
    assert_eq!(e.what(), "the measurement was ended");
    assert_eq!(steps.last().unwrap(), "reads beside writes");
}

/// Seeks and rates anywhere are as near as the numbers say, also if the zones leave out a part of the disk.
#[test]
fn numbers_are_as_near_as_they_say() {
    let spec = "sim-smr30,zones=6000,cache=12M,protected=6M,queued-fifo=4,max-run=2M,rpm=5400";
    let drive = profile(spec);
    let put_in = values(&drive);
    let put_in = |key: &str| put_in.iter().find(|p| p.0 == key).unwrap().1 as f64;
    let outer_half: Vec<u32> = (0..12).map(|i| i * 290).collect();
    let inner_half: Vec<u32> = (0..12).map(|i| 2700 + i * 290).collect();
    let three_places: Vec<u32> =
        [0, 2980, 5960].into_iter().flat_map(|at| (at..at + 40).step_by(10)).collect();
    for zones in [outer_half, inner_half, three_places] {
        let mut on = Instrument::modelled(&drive, &zones, &|| false).unwrap();
        let f = calibrate(&mut on, "mine", &mut |_, _| ()).unwrap();
        let number = |key: &str| f.numbers.iter().find(|n| n.key == key).unwrap();
        let found = |key: &str| number(key).value as f64;
        let seek = |of: &dyn Fn(&str) -> f64, d: f64| {
            of("seek-settle") + of("seek-sqrt") * d.sqrt() + of("seek-linear") * d
        };
        let near = number("seek-sqrt").error.strip_prefix("the curve to ").unwrap();
        let near: f64 = near.strip_suffix(" ms").unwrap().parse().unwrap();
        let off = (0..=100).map(|i| f64::from(i) / 100.0);
        let off = off.map(|d| (seek(&found, d) - seek(&put_in, d)).abs() / 1e6).fold(0.0, f64::max);
        assert!(
            off <= near + 0.05,
            "{zones:?}: seeks are off by {off} ms, and said to be by {near}"
        );
        assert!(near < 3.0, "{zones:?}: {near} ms");
        let near = number("outer-rate").error.strip_prefix("to ").unwrap();
        let near: f64 = near.strip_suffix(" %").unwrap().parse().unwrap();
        for key in ["outer-rate", "inner-radius"] {
            let off = 100.0 * (found(key) / put_in(key) - 1.0).abs();
            assert!(off <= near + 0.05, "{zones:?}: {key} is off by {off} %, said to be by {near}");
        }
    }
}

/// Zones that tell nothing of the rest of the disk are refused before any is emptied.
#[test]
fn zones_that_are_near_each_other_are_refused() {
    let drive = profile("sim-smr30");
    for zones in [(0..8).collect::<Vec<u32>>(), [5].into_iter().chain(10..21).collect()] {
        let mut on = Instrument::modelled(&drive, &zones, &|| false).unwrap();
        let e = calibrate(&mut on, "mine", &mut |_, _| panic!("a measurement began")).unwrap_err();
        assert!(e.what().starts_with("the zones are too near each other"), "{zones:?}: {e}");
    }
}

/// A disk that takes no time has no rate.
#[test]
fn a_disk_without_a_rate_is_refused() {
    let emu = EmuConfig::from_spec(&mut Spec::parse("null,zones=16").unwrap()).unwrap();
    let mut on = Instrument::real(EmuDisk::new(emu).unwrap(), 32, &[1, 2, 3], &|| false).unwrap();
    let e = calibrate(&mut on, "null", &mut |_, _| ()).unwrap_err();
    assert!(e.what().contains("no rate that can be measured"), "{e}");
}

/// A number is said to be as near as the profile is to the drive: copying in memory is no model of a drive.
#[test]
fn how_near_a_number_is_says_how_well_the_profile_predicts() {
    let spec = "mem,zones=16,zone-size=4M";
    let emu = EmuConfig::from_spec(&mut Spec::parse(spec).unwrap()).unwrap();
    let zones: Vec<u32> = (0..8).collect();
    let mut on = Instrument::real(EmuDisk::new(emu).unwrap(), 32, &zones, &|| false).unwrap();
    let found = calibrate(&mut on, "mem", &mut |_, _| ()).unwrap();
    let worst =
        found.held_back.iter().map(|h| h.error_percent().unwrap().abs()).fold(0.0, f64::max);
    for n in found.numbers.iter().filter(|n| n.is_measured && n.error.ends_with(" %")) {
        let near: f64 = n.error["to ".len()..n.error.len() - 2].parse().unwrap();
        assert!(near + 0.5 >= worst, "{n:?}: {:?}", found.held_back);
    }
    let zero = found.numbers.iter().filter(|n| n.is_measured && n.value == 0);
    zero.for_each(|n| assert_eq!(n.error, "not told from 0", "{n:?}"));
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
    assert!(
        f.held_back.iter().all(|h| h.error_percent().unwrap().abs() < 2.0),
        "{:?}",
        f.held_back
    );
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

/// A case that was not measured is no agreement.
#[test]
fn a_measurement_for_which_zones_are_too_short_has_no_error() {
    let drive = profile("sim-zns1,zone-size=64K,zone-capacity=64K,zones=64");
    let f = found(&drive, 14);
    let (none, some): (Vec<_>, Vec<_>) = f.held_back.iter().partition(|h| h.measured == 0.0);
    assert!(!none.is_empty() && none.iter().all(|h| h.error_percent().is_none()), "{none:?}");
    assert!(some.iter().all(|h| h.error_percent().is_some()), "{some:?}");
    for h in none {
        let line = format!("#   {}: not measured, the zones are too short\n", h.what);
        assert!(f.profile.contains(&line), "{}", f.profile);
    }
}
