//! Disks with the times of real drives, by their specifications.
#![allow(clippy::unwrap_used)]

use std::fs;
use zoneplug_devices::emu::timing::Profile;
use zoneplug_host::DiskSpec;

fn error(text: &str) -> String {
    let e = DiskSpec::parse(text).expect_err(text);
    format!("{} | {}", e.what(), e.what_to_try().unwrap_or("no hint"))
}

#[test]
fn every_builtin_drive_has_a_specification() {
    for name in Profile::builtin_names() {
        let spec = DiskSpec::parse(&format!("sim-{name}")).unwrap();
        let profile = Profile::builtin(name).unwrap();
        assert_eq!(spec.device.geometry().nr_zones(), profile.zones);
        assert_eq!(spec.tags, Some(profile.queue_depth));
        assert!(spec.device.is_timed());
    }
    let spec = DiskSpec::parse("sim-smr30,tags=8,data=1,mode=plug,cache=64M").unwrap();
    assert_eq!(spec.tags, Some(8));
    assert!(spec.device.limits().rotational && spec.device.limits().write_cache);
}

/// A new drive is one data file.
#[test]
fn a_drive_of_ones_own_is_a_file() {
    let path = std::env::temp_dir().join(format!("zoneplug-{}.profile", std::process::id()));
    let text = Profile::builtin_text("smr30").unwrap().replace("111759", "1000");
    fs::write(&path, text).unwrap();
    let spec = DiskSpec::parse(&format!("sim,profile={},max-transfer=1M", path.display()));
    fs::remove_file(&path).unwrap();
    let spec = spec.unwrap();
    assert_eq!(spec.device.geometry().nr_zones(), 1000);
    assert_eq!(spec.device.limits().max_transfer_sectors, 2048);
}

#[test]
fn what_is_wrong_is_said() {
    assert!(error("sim-smr31").contains("did you mean sim-smr30?"), "{}", error("sim-smr31"));
    assert!(error("sim").contains("sim,profile=FILE"));
    assert!(error("sim,profile=/nowhere/x.profile").contains("/nowhere/x.profile cannot be read"));
    assert!(error("sim-smr30,cahce=64M").contains("did you mean cache?"));
    assert!(error("sim-zns1,cache=64M").contains("has no option cache"));
}
