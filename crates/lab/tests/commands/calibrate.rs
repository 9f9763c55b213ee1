//! `zoneplug-lab calibrate` on a disk that is in use: what it asks for, and what it leaves alone.

use crate::*;

/// A command line without zones, with too few, or with zones that cannot be written is refused, and nothing is written.
#[test]
fn it_writes_nothing_before_it_knows_where() {
    let dir = Dir::new("calibrate-asks");
    let disk = dir.path("disk.zbd");
    ok(&["create", &disk, "--zones", "12", "--zone-size", "1M", "--conv", "2"]);
    for (line, says) in [
        ("DISK", "which zones of the drive may be written?\ntry: --zones 2-11/1: what is in"),
        ("mem,zones=640", "try: --zones 0-639/20: "),
        ("mem,zones=640,max-open=10", "try: --zones 0-639/64: "),
        ("DISK --zones 1-4", "zone 1 is conventional"),
        ("DISK --zones 4-12", "no zone 12"),
        ("DISK --zones 4-6", "not without --yes"),
        ("DISK --zones 6-4", "names no zones"),
        ("sim-smr30 --zones 1-3", "3 zones of a disk that turns"),
        ("sim-smr30 --zones 0-7", "the zones are too near each other"),
        ("sim-smr30 --zones 5,10-20", "the zones are too near each other"),
        ("po2@sim-zns1", "a drive with layers has no profile\ntry: the drive alone: sim-zns1\n"),
        ("sim-zns1 --zones 0-20", "21 zones, and 14 may be open"),
    ] {
        let line = format!("calibrate {}", line.replace("DISK", &disk));
        let words: Vec<&str> = line.split_whitespace().collect();
        fails(&words, 2, says);
    }
    fails(
        &["calibrate", &format!("{disk},read-only=1"), "--zones", "4-11", "--yes"],
        3,
        "takes no writes",
    );
    fails(&["calibrate", &dir.path("none.zbd")], 3, "No such file or directory");
    assert_eq!(conditions(&disk), format!("nw nw{}", " em".repeat(10)));
}

/// Zones that were not named keep what they have; a profile is written.
#[test]
fn other_zones_keep_their_data() {
    let dir = Dir::new("calibrate-keeps");
    let (disk, data, profile) = (dir.path("disk.zbd"), dir.path("data"), dir.path("mine.profile"));
    std::fs::write(&data, noise(1 << 20, 3)).unwrap();
    ok(&["create", &disk, "--zones", "12", "--zone-size", "4M"]);
    ok(&["write", &disk, &data]);
    ok(&["calibrate", &disk, "--zones", "4-11", "--yes", "--out", &profile]);
    let back = dir.path("back");
    ok(&["read", &disk, &back]);
    // What the measurement wrote is zeroes behind it.
    assert!(std::fs::read(&back).unwrap().starts_with(&std::fs::read(&data).unwrap()));
    ok(&["bench", "--disk", &format!("sim,profile={profile}"), "--runtime", "10ms"]);
}

/// A path is shown on one line, and the profile of a disk with a line feed in its name can be read.
#[test]
fn a_path_is_shown_plainly() {
    let dir = Dir::new("calibrate-plain");
    let (disk, profile) = (dir.path("e\nzones 4\u{1b}[31m.zbd"), dir.path("e.profile"));
    ok(&["create", &disk, "--zones", "8", "--zone-size", "4M"]);
    let shown = ok(&["calibrate", &disk, "--zones", "0-7", "--yes", "--out", &profile]);
    assert!(shown.contains("e\\nzones 4\\u{1b}[31m.zbd, 8 zones"), "{shown}");
    ok(&["bench", "--disk", &format!("sim,profile={profile}"), "--runtime", "10ms"]);
}

/// A disk is never overwritten by a profile, with `--force` neither.
#[test]
fn a_profile_goes_to_no_disk() {
    let dir = Dir::new("calibrate-out");
    let (disk, other) = (dir.path("disk.zbd"), dir.path("other.zbd"));
    ok(&["create", &disk, "--zones", "8", "--zone-size", "1M"]);
    ok(&["create", &other, "--zones", "8", "--zone-size", "1M"]);
    for flag in ["--yes", "--force"] {
        let out = feed(&["calibrate", &disk, "--zones", "0-7", flag, "--out", &other], b"");
        let says = text(&out.stderr);
        assert_eq!(out.status.code(), Some(3), "{says}");
        assert!(says.contains("is a zoneplug disk") && !says.contains("--force"), "{says}");
    }
    assert_eq!(conditions(&other), " em".repeat(8).trim_start());
}

/// A profile on standard output is all that is there: no table follows it, and no document.
#[test]
fn a_profile_on_standard_output_is_alone() {
    let shown = ok(&["calibrate", "sim-zns1", "--out", "-"]);
    let dir = Dir::new("calibrate-stdout");
    let profile = dir.path("p");
    ok(&["calibrate", "sim-zns1", "--out", &profile]);
    assert_eq!(shown, std::fs::read_to_string(&profile).unwrap());
    for flag in ["--json", "--csv"] {
        let args = ["calibrate", "sim-zns1", "--out", "-", flag];
        let out = at_once(&args);
        let err = text(&out.stderr);
        assert_eq!(out.status.code(), Some(2), "{err}");
        let what = format!("--out and {flag} would both be on standard output\ntry: --out FILE\n");
        assert!(err.contains(&what), "{err}");
    }
}

/// A profile that cannot be written to its file is printed: the drive took minutes to measure.
#[test]
fn what_was_found_is_not_lost_with_the_file() {
    let out = at_once(&["calibrate", "sim-zns1", "--out", "/dev/full"]);
    let (shown, err) = (text(&out.stdout), text(&out.stderr));
    assert_eq!(out.status.code(), Some(1), "{err}");
    assert!(err.starts_with("error: writing /dev/full: No space left"), "{err}");
    assert!(shown.contains("zone-rate") && !shown.contains("Try next"), "{shown}");
    let (_, profile) = shown.split_once("The profile, which is in no file:\n").unwrap();
    assert!(
        profile.starts_with("# sim-zns1") && profile.contains("\nlatency = 16us #"),
        "{profile}"
    );
    let out = at_once(&["calibrate", "sim-zns1", "--out", "/dev/full", "--json"]);
    let v: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!((&v["error"]["exit"], &v["profile"]), (&1.into(), &profile.into()));
}
