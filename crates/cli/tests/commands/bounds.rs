//! Sizes, counts and files from outside are checked before they cost memory or time.

#[cfg(feature = "top")]
use crate::terminal::pty;
use crate::*;
use std::fmt::Write as _;

/// Memory that is more than any of these commands needs, in KiB.
const MEMORY: u32 = 2 << 20;

/// The command with so much memory at most.
fn bounded(args: &[&str]) -> Command {
    within(MEMORY, args)
}

/// Fails soon, and within the memory, with a line for what is wrong.
fn refused(args: &[&str], code: i32, what: &str) {
    let out = soon(&mut bounded(args));
    let err = text(&out.stderr);
    assert_eq!(out.status.code(), Some(code), "{args:?}: {err}");
    assert!(err.starts_with("error: ") && err.contains("\ntry: ") && err.contains(what), "{err}");
}

#[test]
fn a_file_of_settings_or_of_a_key_is_a_file_and_no_longer_than_one() {
    let dir = Dir::new("bounds");
    let pipe = dir.path("pipe");
    assert!(Command::new("mkfifo").args(["-m", "600", &pipe]).status().unwrap().success());
    let long = dir.path("long.toml");
    std::fs::write(&long, "#".repeat((1 << 20) + 1)).unwrap();
    let kernel = "/proc/self/environ";
    for (path, what) in [
        ("/dev/zero", "it is a device, not a file"),
        (&*pipe, "it is a pipe, not a file"),
        (&*long, "more than 1048576 bytes"),
    ] {
        refused(&["serve", "--check-config", path], 2, what);
        refused(&["serve", "--config", path], 2, what);
    }
    // The length of such a file is 0 in its metadata.
    refused(&["serve", "--check-config", kernel], 2, kernel);
    let serve = ["serve", "--check-config", "--nvme-tcp", "127.0.0.1:0", "mem,zones=4"];
    let key = |path: &str| format!("nqn.2014-08.org.example:host={path}");
    let of_host = |path: &str, what| {
        refused(&[&serve[..], &["--dhchap-key", &key(path)]].concat(), 2, what);
    };
    of_host(&pipe, "it is a pipe, not a file");
    of_host("/dev/zero", "it is a device, not a file");
    let own = ["--dhchap-ctrl-key", &pipe, "--dhchap-key", &key(&pipe)];
    refused(&[&serve[..], &own].concat(), 2, "it is a pipe, not a file");
}

/// The time of each disk and of each value must not grow with their number.
#[test]
fn many_disks_are_checked_soon() {
    let dir = Dir::new("many");
    let shown = dir.path("shown");
    let check = |name: &str, text: &str| {
        let path = dir.path(name);
        std::fs::write(&path, text).unwrap();
        // To a file: what is shown of so many disks does not fit into a pipe.
        let to_file = ["-c", "exec \"$@\" >\"$0\"", &shown, &ZONEPLUG];
        soon(Command::new("sh").args(to_file).args(["serve", "--check-config", &path, "--json"]))
    };
    let count = 12_000;
    let disks = |also: &dyn Fn(usize) -> String| {
        let mut text = "nvme-tcp = \"127.0.0.1:4420\"\n".to_owned();
        for n in 0..count {
            let (zone, more) = (n + 1, also(n));
            let _ = writeln!(text, "[[disk]]\nspec = \"null,zones=4,zone-size={zone}M\"\n{more}");
        }
        text
    };
    let out = check("network.toml", &disks(&|_| "nvme-tcp = true".to_owned()));
    let checked: Value = serde_json::from_slice(&std::fs::read(&shown).unwrap()).unwrap();
    assert_eq!(checked["disks"].as_array().unwrap().len(), count, "{}", text(&out.stderr));
    // A fault of the last one is found, and at its line.
    let last = |n| if n + 1 == count { "ublk = true\nid = 0" } else { "nvme-tcp = true" };
    let named =
        disks(&|n| format!("{}\n#", last(n))).replacen("nvme-tcp = true", "ublk = true\nid = 0", 1);
    let out = check("ublk.toml", &named);
    let err = text(&out.stderr);
    assert!(err.contains(":48002:1: the disk at line 5 has this id too"), "{err}");
    let hosts: Vec<String> = (0..20_000).map(|n| format!("\"nqn.a:{n}\"")).collect();
    let one = "[[disk]]\nspec = \"null,zones=4\"\nnvme-tcp = true\n";
    let head = "nvme-tcp = \"127.0.0.1:4420\"\nallow-host = ";
    let out = check("hosts.toml", &format!("{head}[{}]\n{one}", hosts.join(",")));
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
}

/// Each of these disks fits into the memory, and all of them do not. What a disk keeps is counted once, however many doors
/// have it.
#[test]
fn the_disks_of_a_server_are_weighed_together() {
    let dir = Dir::new("together");
    let path = dir.path("all.toml");
    let check = |count: usize| {
        let mut text = "nvme-tcp = \"127.0.0.1:0\"\niscsi = \"127.0.0.1:0\"\n".to_owned();
        for n in 0..count {
            let spec = format!("null,zones=200000,zone-size={}M", n + 1);
            let _ = writeln!(text, "[[disk]]\nspec = \"{spec}\"\nnvme-tcp = true\niscsi = true");
        }
        std::fs::write(&path, text).unwrap();
    };
    check(60);
    let out = soon(&mut bounded(&["serve", "--check-config", &path]));
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    check(1000);
    for how in ["--check-config", "--config"] {
        refused(&["serve", how, &path], 4, "zones take ");
    }
}

/// A terminal says itself how large it is.
#[cfg(feature = "top")]
#[test]
fn a_terminal_of_65535_columns_and_rows_is_drawn_on() {
    let dir = Dir::new("large");
    let disk = dir.disk("--zones 4 --zone-size 1M");
    top_at_a_terminal(&disk, u16::MAX, u16::MAX);
    // A variable that says so much is bounded as a terminal is.
    let out = soon(bounded(&["report", "--map", &disk]).env("COLUMNS", "99999999999"));
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
}

/// A serial console says that its size is 0.
#[cfg(feature = "top")]
#[test]
fn a_terminal_without_a_size_is_drawn_on() {
    let dir = Dir::new("serial");
    let disk = dir.disk("--zones 4 --zone-size 1M");
    let seen = top_at_a_terminal(&disk, 0, 0);
    assert!(text(&seen).contains("disk.zbd"), "{}", text(&seen));
}

/// Shows a disk in `top` until the first key. Returns what the terminal was given.
#[cfg(feature = "top")]
fn top_at_a_terminal(disk: &str, rows: u16, columns: u16) -> Vec<u8> {
    let (mut pty, side) = pty::open(rows, columns);
    let mut command = bounded(&["top", disk]);
    command.env("TERM", "xterm-256color").stdin(side()).stdout(side()).stderr(side());
    let mut child = command.spawn().unwrap();
    // Reading ends once nothing has the other side.
    drop((command, side));
    pty.write_all(b"q").unwrap();
    let mut seen = Vec::new();
    let mut some = [0; 1 << 16];
    while let Ok(n @ 1..) = pty.read(&mut some) {
        seen.extend(&some[..n]);
    }
    let status = child.wait().unwrap();
    let end = &seen[seen.len().saturating_sub(1000)..];
    assert_eq!(status.code(), Some(0), "{status}: {}", text(end));
    seen
}

/// Where memory is short, a disk of many zones is refused with a line that says so. An allocation that fails would end
/// the program with a signal.
#[test]
fn a_disk_of_many_zones_is_refused_where_memory_is_short() {
    let dir = Dir::new("short");
    let mem = "mem,zones=100000,max-open=14";
    let joined = ["mem,zones=25000"; 4].join("%");
    let joined = format!("linear@{joined}");
    let file = dir.disk("--zones 100000 --zone-size 1M");
    for args in [["info", mem], ["info", &joined], ["info", &file], ["check", &file]] {
        let works = (0..6).map(|step| works_within(50_000 + step * 40_000, &args));
        let works: Vec<bool> = works.collect();
        assert!(!works[0] && works[5] && works.is_sorted(), "{args:?}: {works:?}");
    }
}

/// Making a disk takes no memory for its zones, so that a disk that is replaced is never lost for want of it.
#[test]
fn a_disk_of_many_zones_is_made_in_little_memory() {
    let dir = Dir::new("made");
    let disk = dir.disk("--zones 4 --zone-size 1M");
    let create = ["create", &disk, "--force", "--zones", "1000000", "--zone-size", "1M"];
    let out = soon(&mut within(60_000, &create));
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    assert!(text(&out.stdout).contains("1000000 zones of 1M"), "{}", text(&out.stdout));
    let names: Vec<_> = std::fs::read_dir(dir.0.as_path()).unwrap().collect();
    assert_eq!(names.len(), 1, "{names:?}");
    let check = ["check", &disk];
    let out = soon(&mut bounded(&check));
    assert!(text(&out.stdout).contains("1000000 zones, 0 problems"), "{}", text(&out.stdout));
}
