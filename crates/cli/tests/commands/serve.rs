//! `zoneplug serve` and `status` where nothing is served. What they do with a kernel is proven in a virtual machine.

use super::{fails, ok, text};
use std::path::Path;
use std::process::Command;

/// U1.
#[test]
fn without_the_driver_it_says_what_is_missing() {
    if Path::new("/dev/ublk-control").exists() {
        return;
    }
    fails(&["serve", "--ublk", "mem,zones=8"], 4, "/dev/ublk-control");
    fails(&["serve", "--remove", "/dev/ublkb0"], 4, "/dev/ublk-control");
}

#[test]
fn flags_that_make_no_sense_are_refused() {
    fails(&["serve"], 2, "--ublk");
    fails(&["serve", "--remove", "sda"], 2, "not a ublk device");
    fails(&["serve", "--ublk", "mem", "--remove", "ublkb0"], 2, "--remove");
    fails(&["serve", "--ublk", "mem", "--depth", "5000"], 2, "5000");
    fails(&["serve", "--ublk", "mem", "--udev-rule"], 2, "--udev-rule");
}

/// It needs no driver, and no privileges: a package or a person puts it where udev looks.
#[test]
fn the_rule_for_udev_is_printed() {
    let rule = ok(&["serve", "--udev-rule"]);
    assert!(rule.contains("KERNEL==\"ublkb*\"") && rule.contains("OPTIONS+=\"nowatch\""), "{rule}");
}

#[test]
fn a_disk_that_nobody_serves() {
    fails(&["status", "ublkb987654"], 3, "no server has ublkb987654");
    fails(&["attr", "ublkb987654"], 3, "no server has ublkb987654");
    fails(&["zone-wplugs", "/dev/ublkb987654"], 3, "no server has ublkb987654");
    fails(&["status", "--socket", "/nowhere/x.sock"], 3, "no server listens on /nowhere/x.sock");
    ok(&["status"]);
}

/// The unit in the documentation is one, and as tight as systemd can say of it. Whether it serves is not seen here.
#[test]
fn the_unit_is_hardened() {
    let unit = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/zoneplug.service");
    let unit = std::fs::read_to_string(unit).unwrap();
    let needed =
        "CAP_SYS_ADMIN CAP_SYS_RESOURCE CAP_SYS_RAWIO CAP_DAC_OVERRIDE CAP_DAC_READ_SEARCH";
    assert!(unit.contains(&format!("CapabilityBoundingSet={needed}\n")), "see serve/confine.rs");
    let analyze = |args: &[&str]| Command::new("systemd-analyze").args(args).output();
    if analyze(&["--version"]).is_err() {
        println!("skipped: there is no systemd-analyze");
        return;
    }
    let dir = super::Dir::new("unit");
    let path = dir.path("zoneplug.service");
    std::fs::write(&path, unit.replace("/usr/local/bin/zoneplug", super::ZONEPLUG)).unwrap();
    let out = analyze(&["verify", "--man=no", &path]).unwrap();
    let err = text(&out.stderr);
    assert!(!err.lines().any(|l| l.contains("zoneplug.service")), "{err}");
    // Of 100; a service without a word on security has 96.
    let out = analyze(&["security", "--offline=true", "--threshold=25", &path]).unwrap();
    assert!(out.status.success(), "{}{}", text(&out.stdout), text(&out.stderr));
}
