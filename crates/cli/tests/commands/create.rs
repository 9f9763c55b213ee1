//! `zoneplug create`: a new disk has its name when it is whole, and what had the name before stays until then.

use crate::interrupt::start;
use crate::*;
use rustix::process::Signal;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

/// Runs the command where a file may have 512 * `blocks` bytes. A shell whose blocks are larger allows more.
fn with_short_files(blocks: u32, args: &[&str]) -> Output {
    let script = format!("ulimit -f {blocks} && exec \"$0\" \"$@\"");
    let mut command = Command::new("sh");
    soon(command.args(["-c", &script, &ZONEPLUG]).args(args))
}

/// Each option of `create` is in the disk that the next command opens.
#[test]
fn every_option_is_in_the_disk() {
    let dir = Dir::new("create-options");
    let disk = dir.disk(
        "--zones 8 --zone-size 1M --zone-capacity 768K --last-zone-size 512K --last-zone-capacity 256K --conv 2 \
         --max-open 3 --max-active 4 --lba-size 512 --granularity 8K --zone-append-max 32K --label mine",
    );
    let v = json(&["info", "--json", &disk]);
    let sizes = [
        ("capacity_bytes", 7680 << 10),
        ("zones", 8),
        ("conventional_zones", 2),
        ("zone_bytes", 1 << 20),
        ("zone_capacity_bytes", 768 << 10),
        ("last_zone_bytes", 512 << 10),
        ("last_zone_capacity_bytes", 256 << 10),
    ];
    for (name, value) in sizes {
        assert_eq!(v[name], value, "{name}");
    }
    let limits = [
        ("logical_block_bytes", 512),
        ("write_granularity_bytes", 8192),
        ("native_append_max_bytes", 32 << 10),
        ("max_open_zones", 3),
        ("max_active_zones", 4),
    ];
    for (name, value) in limits {
        assert_eq!(v["limits"][name], value, "{name}");
    }
    assert_eq!(v["identity"]["label"], "mine");
    // A file without --preallocate has holes.
    let allocated = |options: &[&str]| {
        let path = dir.path("sized.zbd");
        ok(&[&["create", &path, "--force"], options].concat());
        let file = std::fs::metadata(&path).unwrap();
        assert_eq!(json(&["info", "--json", &path])["capacity_bytes"], 16 << 20);
        file.blocks() * 512 >= 16 << 20
    };
    let size = ["--size", "16M", "--zone-size", "4M"];
    assert!(!allocated(&size));
    assert!(allocated(&[&size[..], &["--preallocate"]].concat()));
}

#[test]
fn an_old_disk_stays_if_a_new_one_cannot_be_made() {
    let dir = Dir::new("create-fails");
    let disk = dir.disk("--zones 4 --zone-size 1M");
    let data = noise(300_000, 5);
    ok_with(&["write", &disk], &data);
    let before = std::fs::read(&disk).unwrap();
    // Both shells' blocks, of 512 and of 1024 bytes, make the limit less than a disk and more than nothing.
    for more in [&["--zones=4000000", "--zone-size=1M"][..], &["--size=1G", "--preallocate"]] {
        let out = with_short_files(1000, &[&["create", &disk, "--force"], more].concat());
        assert_failed(&out, 1, "File too large", "create");
        assert!(std::fs::read(&disk).unwrap() == before, "{more:?}");
        assert_eq!(dir.names(), ["disk.zbd"], "{more:?}");
    }
    // Nor does a new disk that fails leave anything.
    for command in [
        &["create", &dir.path("new.zbd"), "--zones", "10000"][..],
        &["snapshot", &disk, &dir.path("new.zbd")],
        &["read", &disk, &dir.path("new.zbd"), "--len", "300000"],
    ] {
        assert_failed(&with_short_files(10, command), 1, "File too large", "create");
        assert_eq!(dir.names(), ["disk.zbd"], "{command:?}");
    }
}

#[test]
fn a_new_disk_takes_the_place_of_the_old_one() {
    let dir = Dir::new("create-replaces");
    let disk = dir.disk("--zones 4 --zone-size 1M");
    std::fs::set_permissions(&disk, PermissionsExt::from_mode(0o640)).unwrap();
    let (link, other) = (dir.path("link"), dir.path("other"));
    symlink("disk.zbd", &link).unwrap();
    std::fs::hard_link(&disk, &other).unwrap();
    let before = std::fs::read(&disk).unwrap();
    ok(&["create", &link, "--zones", "7", "--zone-size", "1M", "-f"]);
    assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(json(&["info", &disk, "--json"])["zones"], 7);
    assert_eq!(std::fs::metadata(&disk).unwrap().mode() & 0o7777, 0o640);
    // The old disk keeps its other names.
    assert!(std::fs::read(&other).unwrap() == before);
    assert_eq!(dir.names(), ["disk.zbd", "link", "other"]);
}

#[test]
fn a_disk_that_is_served_read_only_is_not_replaced() {
    let dir = Dir::new("create-served");
    let disk = dir.disk("--zones 4 --zone-size 1M");
    let source = dir.path("source.zbd");
    std::fs::copy(&disk, &source).unwrap();
    let before = std::fs::metadata(&disk).unwrap().ino();
    {
        let _server = metrics::Server::start("create-server", &format!("{disk},read-only=1"));
        let is = "is open for reading in another process";
        fails(&["create", &disk, "--zones", "4", "-f"], 3, is);
        fails(&["read", &source, &disk, "-f"], 3, is);
        // Others may read it, and write to it.
        ok(&["report", &disk]);
        ok(&["flush", &disk]);
    }
    assert_eq!(std::fs::metadata(&disk).unwrap().ino(), before);
    ok(&["create", &disk, "--zones", "4", "-f"]);
}

#[test]
fn a_signal_leaves_no_half_made_disk() {
    let dir = Dir::new("create-signal");
    let disk = dir.disk("--zones 4 --zone-size 1M");
    let before = std::fs::read(&disk).unwrap();
    let new = dir.path("new.zbd");
    for (how, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        for args in [&["create", &new][..], &["create", &disk, "--force"]] {
            let child = start(&[args, &["--zones", "2000000", "--zone-size", "1M"]].concat());
            let begun = Instant::now();
            while dir.names() == ["disk.zbd"] && begun.elapsed() < Duration::from_secs(20) {
                std::thread::yield_now();
            }
            std::thread::sleep(Duration::from_millis(20));
            signal(&child, how);
            let out = end(child, Duration::from_secs(20));
            assert_failed(&out, code, "before the end: nothing more was done", "create");
            assert_eq!(dir.names(), ["disk.zbd"]);
            assert!(std::fs::read(&disk).unwrap() == before);
        }
    }
}

#[test]
fn a_name_that_no_disk_can_have_is_told() {
    let dir = Dir::new("create-names");
    for (name, to) in [("loop", "loop"), ("nowhere", "none/there")] {
        symlink(to, dir.path(name)).unwrap();
    }
    std::fs::write(dir.path("file"), "").unwrap();
    let long = "x".repeat(300);
    for (name, code, what, way) in [
        (&*long, 2, "File name too long", "a shorter name"),
        ("loop", 2, "Too many levels of symbolic links", "the links of the path"),
        ("nowhere", 3, "is a link to none/there, and that does not exist", "rm "),
        ("none/a.zbd", 3, "there is no directory", "mkdir -p "),
        ("file/a.zbd", 2, "is not a directory", "another directory"),
        ("a.zbd/", 2, "Is a directory", "the name of a file"),
        ("", 2, "is not a regular file", "a durable disk is made in a regular file"),
    ] {
        for force in [&["--zones=4"][..], &["--zones=4", "--force"]] {
            let out = at_once(&[&["create", &dir.path(name)], force].concat());
            assert_failed(&out, code, what, "create");
            let way = format!("\ntry: {way}");
            assert!(text(&out.stderr).contains(&way), "{name}: {}", text(&out.stderr));
        }
    }
    assert_eq!(dir.names(), ["file", "loop", "nowhere"]);
    // The longest name that a file can have.
    let longest = dir.path(&"y".repeat(255));
    ok(&["create", &longest, "--zones", "4"]);
    ok(&["create", &longest, "--zones", "4", "-f"]);
}

#[test]
fn an_impossible_number_names_its_flag() {
    let dir = Dir::new("create-numbers");
    let disk = dir.path("a.zbd");
    for (args, what) in [
        ("--zones 0", "--zones is 1 to 4000000, not 0"),
        ("--zones 4000001", "--zones is 1 to 4000000, not 4000001"),
        ("--zones 4 --zone-append-max 1", "--zone-append-max 1 is not possible"),
        ("--zones 4 --zone-append-max 1", "\ntry: --zone-append-max is a multiple of 512 bytes"),
        ("--zones 4 --zone-append-max 512", "--zone-append-max of 512 is less than one block"),
        ("--zones 4 --zone-size 1", "--zone-size 1 is not possible"),
        ("--zones 4 --zone-capacity 1G", "--zone-capacity 1G is not possible"),
        ("--zones 4 --last-zone-size 512M", "--last-zone-size 512M is not possible"),
        ("--zones 4 --last-zone-size 512M", "to the zone size, 256M"),
        ("--zones 4 --last-zone-capacity 512M", "--last-zone-capacity 512M is not possible"),
        ("--zones 4 --last-zone-capacity 512M", "to the size of the last zone, 256M"),
        ("--zones 4 --conv 4", "--conv 4 of 4 zones is not possible"),
        ("--zones 4 --max-open 9 --max-active 3", "--max-open 9 is more than --max-active 3"),
        ("--zones 4 --lba-size 1000", "--lba-size 1000 is not possible"),
        ("--zones 4 --lba-size 128M --zone-size 512M", "--lba-size 128M is not possible"),
        ("--zones 4 --lba-size 8K --granularity 4K", "--granularity is a power of two"),
        ("--zones 4 --granularity 6K", "--granularity is a power of two from 512 to 64M"),
        ("--zones 4 --lba-size 1536", "--lba-size is a power of two from 512 to 64M"),
        ("--size 1G --zone-size 1G --lba-size 64M --granularity 128M", "--granularity 128M is not"),
    ] {
        let out = at_once(&[&["create", &disk][..], &args.split(' ').collect::<Vec<_>>()].concat());
        assert_failed(&out, 2, what, "create");
        assert!(!text(&out.stderr).contains("sectors"), "{args}: {}", text(&out.stderr));
    }
    assert!(dir.names().is_empty());
}
