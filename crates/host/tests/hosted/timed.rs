//! Disks with the times of real drives, by their specifications.

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

/// Whatever is wrong in a profile is named with the path and the line, as a mistake of the user.
#[test]
fn a_file_that_is_wrong_is_named_with_its_line() {
    let path = std::env::temp_dir().join(format!("zoneplug-wrong-{}.profile", std::process::id()));
    let good = Profile::builtin_text("smr30").unwrap();
    let changed = |from: &str, to: &str| good.replacen(from, to, 1).into_bytes();
    let line = |key: &str| 1 + good.lines().position(|l| l.starts_with(key)).unwrap();
    let last = good.lines().count() + 1;
    for (text, says, hint) in [
        (
            changed("cache = 18M", "cache = 20X"),
            format!("profile PATH, line {}: cache=20X is not possible", line("cache = ")),
            "cache is a multiple",
        ),
        (
            format!("{good}cahce = 1M # x\n").into_bytes(),
            format!("profile PATH, line {last}: there is no key cahce"),
            "did you mean cache?",
        ),
        (
            format!("{good}cahce\n").into_bytes(),
            format!("profile PATH, line {last}: 'cahce' is not a setting"),
            "key = value # source",
        ),
        (changed("rpm = ", "# "), "profile PATH has no rpm".to_owned(), "a number of the drive"),
        (
            b"\xff\xfem\0o\0".to_vec(),
            "PATH is no profile: line 1 is no text in UTF-8".to_owned(),
            "rpm",
        ),
        (b"# a\n# na\xefve\n".to_vec(), "PATH is no profile: line 2 is no".to_owned(), "rpm"),
        (vec![b'#'; 65_537], "PATH is no profile: it has more than 65536 bytes".to_owned(), "rpm"),
    ] {
        fs::write(&path, text).unwrap();
        let spec = format!("sim,profile={}", path.display());
        let e = DiskSpec::parse(&spec).expect_err(&says);
        let says = says.replace("PATH", &path.display().to_string());
        assert!(e.what().starts_with(&says), "{says}: {e}");
        assert!(e.what_to_try().unwrap().contains(hint), "{e}");
        assert_eq!(e.kind(), zoneplug_core::ErrorKind::Invalid, "{e}");
    }
    fs::remove_file(&path).unwrap();
    assert_eq!(
        DiskSpec::parse("sim,profile=/").unwrap_err().kind(),
        zoneplug_core::ErrorKind::Invalid
    );
}
