//! `zoneplug serve` and `status` where nothing is served. What they do with a kernel is proven in a virtual machine.

use super::{fails, ok};
use std::path::Path;

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
}

#[test]
fn a_disk_that_nobody_serves() {
    fails(&["status", "ublkb987654"], 3, "nobody serves ublkb987654");
    fails(&["attr", "ublkb987654"], 3, "nobody serves ublkb987654");
    fails(&["zone-wplugs", "/dev/ublkb987654"], 3, "nobody serves ublkb987654");
    fails(&["status", "--socket", "/nowhere/x.sock"], 3, "no server listens on /nowhere/x.sock");
    ok(&["status"]);
}
