//! The commands on disks: what one process does is there for the next, and `read` takes up what `write` laid down.

#![allow(clippy::unwrap_used)]

mod bounds;
#[path = "../common/commands.rs"]
mod common;
mod completion;
mod copy;
mod create;
mod errno;
mod file_changed;
mod files;
mod forms;
mod found;
mod handover;
mod handover_changes;
mod handover_races;
mod hostile;
#[path = "../../../host/tests/common/iscsi_initiator.rs"]
mod initiator;
mod interrupt;
mod maintainer;
mod metrics;
#[path = "../../../host/tests/common/nvme_host.rs"]
mod nvme_host;
mod operating_page;
mod reload;
mod serve;
mod serve_flags;
mod serve_status;
mod settings;
mod snapshot;
mod spec_page;
mod stalled;
mod stamp;
mod terminal;
#[cfg(feature = "top")]
mod top;

use common::*;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// The record by which a server at this socket would hand its disks over.
fn state(socket: &str) -> Value {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.write_all(b"{\"cmd\":\"state\"}\n").unwrap();
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).unwrap();
    serde_json::from_str::<Value>(&line).unwrap()["ok"].take()
}

#[test]
fn a_report_has_the_forms_of_blkzone_and_zbd() {
    let spec = "mem,zones=6,zone-size=1M,zone-capacity=512K,conv=2";
    let table = ok(&["report", spec]);
    let lines: Vec<&str> = table.lines().collect();
    let head: Vec<&str> = lines[0].split_whitespace().collect();
    assert_eq!(head, ["zone", "start", "len", "cap", "wptr", "reset", "non-seq", "zcond", "type"]);
    let row: Vec<&str> = lines[3].split_whitespace().collect();
    let want = ["2", "0x0000001000", "0x00000800", "0x00000400", "0x00000000", "0", "0"];
    assert_eq!(row[..7], want);
    assert_eq!(row[7..], ["1(em)", "2(SEQ_WRITE_REQUIRED)"]);
    assert_eq!(lines.len(), 7);

    let blkzone = ok(&["report", "--blkzone", "-o", "0x1000", "-c", "1", spec]);
    assert_eq!(
        blkzone,
        "  start: 0x000001000, len 0x000800, cap 0x000400, wptr 0x000000 reset:0 non-seq:0, \
         zcond: 1(em) [type: 2(SEQ_WRITE_REQUIRED)]\n"
    );
    // Numbers are in bytes, as in zbd.
    let csv = ok(&["report", "--csv", "--ofst", "1M", "--len", "2M", spec]);
    let csv: Vec<&str> = csv.lines().collect();
    assert_eq!(csv[0], "zone num, type, ofst, len, cap, wp, cond, non_seq, reset");
    assert_eq!(csv[1], "1, 1, 1048576, 1048576, 1048576, , 0, 0, 0");
    assert_eq!(csv[2], "2, 2, 2097152, 1048576, 524288, 2097152, 1, 0, 0");
    assert_eq!(ok(&["report", "-n", "--ro", "em", spec]), "4\n");
    assert_eq!(ok(&["report", "-n", "--ro", "fu", spec]), "0\n");

    assert!(ok(&["report", "-v", "-o", "0x800", spec]).starts_with("Found 5 zones from 0x800\n"));
    let v = json(&["report", "--json", "-l", "1", spec]);
    assert_eq!(v["zones"].as_array().unwrap().len(), 1);
    assert_eq!(
        (&v["zones"][0]["write_pointer_sector"], &v["zones"][0]["cond"]),
        (&Value::Null, &"nw".into())
    );
    assert_eq!(json(&["report", "--json", "--ro", "ol", spec])["zones"], Value::Array(vec![]));
    let many = json(&["report", "--json", "mem,zones=10000,zone-size=4K"]);
    assert_eq!(many["zones"][9999]["start_sector"], 9999 * 8);
}

#[test]
fn a_map_in_a_pipe_is_plain_and_fits() {
    for spec in ["mem,zones=64,conv=3", "mem,zones=200000,zone-size=4K", "null,zones=1"] {
        let map = ok(&["report", "--map", spec]);
        assert!(!map.contains('\x1b') && map.contains("empty") && map.contains("0 used of"));
        assert!(map.lines().all(|l| l.chars().count() <= 100), "{map}");
        assert!(map.lines().count() < 20, "{map}");
    }
}

#[test]
fn management_changes_zones_for_the_next_process() {
    let dir = Dir::new("manage");
    let disk = dir.disk("--zones 8 --zone-size 1M --conv 1 --max-open 3 --max-active 6");
    let data = noise(1_500_000, 9);
    ok_with(&["write", &disk], &data);
    assert_eq!(conditions(&disk), "nw fu cl em em em em em");
    assert_eq!(ok(&["open", &disk, "-o", "8192", "-c", "2", "-v"]), "open: 2 zones (4-5)\n");
    // As after a power cycle: an empty zone that was open is empty again.
    assert_eq!(conditions(&disk), "nw fu cl em em em em em");
    assert_eq!(ok(&["finish", &disk, "--ofst", "3M", "--len", "2M"]), "");
    assert_eq!(conditions(&disk), "nw fu cl fu fu em em em");
    let v = json(&["close", &disk, "--json"]);
    assert_eq!(
        v,
        serde_json::json!(
            {"schema": 1, "command": "close", "zones": [2], "skipped": [0, 1, 3, 4, 5, 6, 7]}
        )
    );
    fails(&["close", &disk, "-o", "12288"], 2, "no zone to close");
    fails(&["open", &disk, "-o", "8192", "-l", "100"], 2, "a multiple of 2048 sectors");
    fails(&["open", &disk, "-o", "8193"], 2, "zone 4 starts at sector 8192");
    fails(&["open", &disk], 1, "");

    let plugs = ok(&["zone-wplugs", &disk]);
    assert!(plugs.starts_with("Zone no: 2, flags: 0x"), "{plugs}");
    assert!(plugs.contains("cond: ACTIVE, wp ofst: ") && plugs.ends_with("pending BIO: 0\n"));
    assert_eq!(json(&["zone-wplugs", &disk, "--json"])["plugs"][0]["zone"], 2);
    assert_eq!(ok(&["resync", &disk]), "8 zones read, 0 corrected\n");
    assert_eq!(json(&["resync", &disk, "-c", "3", "--json"])["zones"], 3);
    assert_eq!(ok(&["flush", &disk]), "");
    let v = json(&["check", &disk, "--json"]);
    assert_eq!((&v["problems"], &v["zones"]), (&0.into(), &8.into()));
    assert!(ok(&["check", &disk, "--repair"]).contains("0 problems"));
}

#[test]
fn a_copy_gets_a_uuid_of_its_own() {
    let dir = Dir::new("uuid");
    let (disk, copy) = (dir.disk("--zones 8 --zone-size 1M"), dir.path("copy.zbd"));
    ok_with(&["write", &disk, "-"], &noise(64 << 10, 3));
    std::fs::copy(&disk, &copy).unwrap();
    let uuid = |path: &str| json(&["info", path, "--json"])["identity"]["uuid"].clone();
    assert_eq!(uuid(&disk), uuid(&copy));
    let old = uuid(&disk);
    assert!(ok(&["check", &copy, "--new-uuid"]).contains("its UUID is"));
    assert_eq!(uuid(&disk), old);
    assert_ne!(uuid(&copy), old);
    assert!(ok(&["check", &copy]).contains("0 problems"));
}

/// What opening for writing settles is said before it does.
#[test]
fn writes_that_were_lost_are_told() {
    let dir = Dir::new("lost");
    let disk = dir.disk("--zones 8 --zone-size 1M");
    ok(&["flush", &disk]);
    // The session of a writer whose sync failed: open, with an error, without a boot id.
    let mut bytes = std::fs::read(&disk).unwrap();
    let session = &mut bytes[4096..4608];
    session[16] = 0;
    session[20] = 28;
    session[24..40].fill(0);
    let crc = crc32c::crc32c(&session[8..]);
    session[4..8].copy_from_slice(&crc.to_le_bytes());
    std::fs::write(&disk, &bytes).unwrap();
    fails(&["check", &disk], 1, "1 of 1 problems are left");
    for lost in [true, false] {
        let err = text(&feed(&["flush", &disk], b"").stderr);
        assert_eq!(err.contains("could not make its writes durable (No space left"), lost, "{err}");
    }
    assert!(ok(&["check", &disk]).contains("0 problems"));
}

#[test]
fn the_data_of_more_than_one_zone_is_destroyed_with_yes_only() {
    let dir = Dir::new("yes");
    let disk = dir.disk("--zones 8 --zone-size 1M");
    let data = noise(2_500_000, 9);
    ok_with(&["write", &disk], &data);
    let before = conditions(&disk);
    assert_eq!(before, "fu fu cl em em em em em");
    fails(&["reset", &disk], 2, "destroys the data of 3 zones (0-2): 2.4M written");
    fails(&["reset", &disk, "-c", "2"], 2, "destroys the data of 2 zones (0-1): 2M written");
    assert_eq!(conditions(&disk), before);
    assert!(ok_with(&["read", &disk, "--len", "2500000"], b"") == data);
    // To finish full zones destroys nothing, and one zone is not worth a question.
    ok(&["finish", &disk, "-c", "3"]);
    ok(&["reset", &disk, "-o", "4096"]);
    assert_eq!(conditions(&disk), "fu fu em em em em em em");
    ok(&["reset", &disk, "-f", "-c", "1"]);
    ok_with(&["write", &disk, "-", "-o", "0"], &data[..8192]);
    ok_with(&["write", &disk, "-", "-o", "8192"], &data[..8192]);
    assert_eq!(conditions(&disk), "cl fu em em cl em em em");
    fails(
        &["finish", &disk],
        2,
        "fills 2 zones that are partly written (0, 4), and gives up 2.0M of room",
    );
    ok(&["finish", &disk, "-c", "6", "-y"]);
    assert_eq!(conditions(&disk), "fu fu fu fu fu fu em em");
    assert_eq!(ok(&["reset", &disk, "--force", "--verbose"]), "reset: 8 zones (0-7)\n");
    assert_eq!(conditions(&disk), "em em em em em em em em");
    assert!(ok_with(&["read", &disk, "-l", "8"], b"") == [0; 4096], "the data are gone");
}

#[test]
fn a_benchmark_does_not_destroy_what_a_disk_holds() {
    let dir = Dir::new("bench");
    let disk = dir.disk("--zones 4 --zone-size 1M");
    let data = noise(8192, 3);
    ok_with(&["write", &disk], &data);
    let bench = ["bench", "--disk", &disk, "--runtime", "20ms"];
    fails(&bench, 2, "destroys the data of 1 zone of ");
    assert!(ok_with(&["read", &disk], b"") == data, "nothing has changed");
    ok(&[&bench[..], &["--yes"]].concat());
    ok(&["reset", &disk, "--yes"]);
    ok(&bench);
}

#[test]
fn one_process_writes_while_others_look() {
    let dir = Dir::new("lock");
    let disk = dir.disk("--zones 8 --zone-size 1M");
    let mut writer = Command::new(&*ZONEPLUG)
        .args(["write", &disk, "-", "--bs", "64K", "--depth", "1"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = writer.stdin.take().unwrap();
    let data = noise(1 << 20, 11);
    stdin.write_all(&data).unwrap();
    let end = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while !conditions(&disk).starts_with("fu") {
        assert!(std::time::Instant::now() < end, "{}", conditions(&disk));
    }
    assert!(ok_with(&["read", &disk], b"")[..] == data[..], "what was acknowledged is there");
    fails_with(&["write", &disk], &data, 3, "");
    fails(&["reset", &disk, "--yes"], 3, "");
    drop(stdin);
    assert!(writer.wait().unwrap().success());
    ok(&["reset", &disk, "--yes"]);
}

#[test]
fn attributes_have_their_linux_names() {
    let spec = "mem,zones=16,zone-size=1M";
    let all = ok(&["attr", spec]);
    assert!(all.contains("ro chunk_sectors            2048\n") && all.contains("rw nomerges"));
    assert_eq!(ok(&["attr", spec, "nr_zones"]), "16\n");
    let set = ok(&["attr", spec, "strict_management", "1"]);
    assert!(set.starts_with("strict_management: 0 -> 1, for as long as this process"), "{set}");
    assert!(set.contains("strict_management=1 in a specification"));
    assert_eq!(ok(&["attr", &format!("{spec},strict=1"), "strict_management"]), "1\n");
    let v = json(&["attr", spec, "--json"]);
    let nomerges = serde_json::json!(
        {"value": 0, "writable": true, "unit": "", "range": "0 or 1", "default": 0}
    );
    assert_eq!(v["attributes"]["nomerges"], nomerges);
    assert_eq!(v["attributes"]["nr_zones"]["unit"], "zones");
    assert_eq!(json(&["attr", spec, "zoned", "--json"])["value"], "host-managed");
    assert_eq!(json(&["attr", spec, "nomerges", "1", "--json"])["was"], 0);
    fails(&["attr", spec, "nr_zones", "5"], 2, "cannot be changed");
    fails(&["attr", spec, "nr_zone"], 3, "nomerges");
    fails(&["attr", spec, "nomerges", "2"], 2, "0 or 1");
}

#[test]
fn a_disk_is_created_with_what_was_asked_for() {
    let dir = Dir::new("create");
    let path = dir.path("a.zbd");
    let start = std::time::Instant::now();
    let v = json(&[
        "create",
        &path,
        "--size",
        "20G",
        "--zone-size",
        "256M",
        "--label",
        "mine",
        "--json",
    ]);
    assert!(start.elapsed().as_secs_f64() < 1.0, "{:?}", start.elapsed());
    assert_eq!((&v["zones"], &v["capacity_bytes"]), (&80.into(), &(20u64 << 30).into()));
    assert_eq!((&v["label"], &v["zone_bytes"]), (&"mine".into(), &(256 << 20).into()));
    let uuid = v["uuid"].as_str().unwrap();
    let info = json(&["info", &path, "--json"]);
    assert_eq!(
        (&info["identity"]["uuid"], &info["identity"]["label"]),
        (&uuid.into(), &"mine".into())
    );
    assert!(ok(&["info", &path]).contains(uuid));
    let size = std::process::Command::new("du").args(["-k", &path]).output().unwrap();
    let kib: u64 = text(&size.stdout).split_whitespace().next().unwrap().parse().unwrap();
    assert!(kib < 4096, "sparse: {kib} KiB");

    fails(&["create", &path, "--size", "1G"], 3, "");
    assert_eq!(json(&["info", &path, "--json"])["identity"]["uuid"], uuid);
    let said = ok(&["create", &path, "--zones", "3", "--zone-size", "1000K", "--force"]);
    assert!(said.starts_with(&format!("{path}: 2.9M in 3 zones of 1000K, UUID ")), "{said}");
    fails(&["create", &dir.path("b.zbd")], 2, "--size");
    fails(&["create", &dir.path("b.zbd"), "--size", "1X"], 2, "'1X' is no size");
    fails(&["create", &dir.path("b.zbd"), "--size", "1G", "--conv", "9999"], 2, "");
    assert!(!std::path::Path::new(&dir.path("b.zbd")).exists());
}

#[test]
fn what_is_wrong_is_said_in_two_lines_with_its_exit_code() {
    for (args, code, what) in [
        ("report nix", 3, "nix"),
        ("report ./nix.zbd", 3, "nix.zbd"),
        ("report mem --json --map", 2, "cannot be used with"),
        ("report mem -o 1M", 2, "--ofst and --len take bytes"),
        ("report mem -o 99999999", 2, "the disk ends at sector 2097152"),
        ("report mem -l 0", 2, "no sectors"),
        ("report mem --ofst 5", 2, "not a multiple of 512"),
        ("report mem -o 0 --ofst 0", 2, "cannot be used with"),
        ("report mem --ro xx", 2, "nw, em, oi, oe, cl, fu, ro, ol"),
        ("reset mem,read-only=1", 3, "read"),
        ("write mem,read-only=1", 3, "read"),
        ("write mem nix.dat", 3, "nix.dat"),
        ("write mem --bs 1000", 2, "a multiple of 4096 bytes up to 64M"),
        ("write mem --depth 0", 2, "--depth is 1 to 1024, not 0"),
        ("write mem -o 8", 2, "--offset 0: the write pointer is there"),
        ("append mem --bs 99M", 2, "a multiple of 4096 bytes up to"),
        ("append mem -o 8", 2, "--offset 0"),
        ("read mem -o 2097144 -l 16", 2, "--len 4096"),
        ("read mem /nix/nix", 3, "/nix/nix"),
        ("check mem", 4, "no file to check"),
        ("check nix", 3, "nix"),
        ("flush nix.zbd", 3, "nix.zbd"),
    ] {
        // Data to write, for those that read standard input.
        let args: Vec<&str> = args.split(' ').collect();
        fails_with(&args, &[1; 5000], code, what);
    }
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let commands: [&[&str]; 2] =
        [&["report", "mem,zones=100000,zone-size=4K"], &["read", "mem", "--len", "1G"]];
    for args in commands {
        let mut child = Command::new(&*ZONEPLUG)
            .args(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let out = child.wait_with_output().unwrap();
        assert_eq!((out.status.code(), out.stderr.len()), (Some(0), 0), "{args:?}");
    }
}

#[test]
fn completions_and_man_pages_know_every_command() {
    let help = ok(&["--help"]);
    let commands = help.lines().skip_while(|l| !l.starts_with("Commands:")).skip(1);
    let commands: Vec<&str> = commands
        .take_while(|l| !l.is_empty())
        .filter(|l| l.starts_with("  ") && !l.starts_with("   "))
        .filter_map(|l| l.split_whitespace().next())
        .filter(|c| *c != "help")
        .collect();
    assert!(commands.len() >= 18 && commands.contains(&"zone-wplugs"), "{commands:?}");
    let dir = Dir::new("man");
    let pages = ok(&["man", &dir.path("man1")]);
    // One of each command and of help, zoneplug.1, zoneplug-spec.5.
    assert_eq!(pages.lines().count(), commands.len() + 3);
    for shell in ["bash", "zsh", "fish"] {
        let script = ok(&["completions", shell]);
        for c in &commands {
            assert!(script.contains(c), "{c} in {shell}");
            let page = std::fs::read_to_string(dir.path(&format!("man1/zoneplug-{c}.1"))).unwrap();
            assert!(page.contains(&format!(".TH zoneplug-{c} 1")), "{c}");
            for section in ["EXAMPLES", "\"EXIT STATUS\"", "\"SEE ALSO\""] {
                assert!(page.contains(&format!("\n.SH {section}\n")), "{c}: {section}");
            }
        }
    }
    assert!(ok(&["man"]).contains(".TH zoneplug 1"));
    // The synopsis shows what an option takes.
    let create = std::fs::read_to_string(dir.path("man1/zoneplug-create.1")).unwrap();
    assert!(create.contains("[\\-\\-zone\\-size <BYTES>]"), "{create}");
    let pages = std::fs::read_dir(dir.path("man1")).unwrap().map(|page| page.unwrap().path());
    match Command::new("mandoc").args(["-T", "lint", "-W", "warning"]).args(pages).output() {
        Ok(out) => assert!(out.status.success(), "{}{}", text(&out.stdout), text(&out.stderr)),
        Err(e) => assert!(std::env::var_os("ZONEPLUG_CI").is_none(), "mandoc: {e}"),
    }
}

/// A text that is no specification is wrong usage, and no device that is missing.
#[cfg(feature = "top")]
#[test]
fn top_of_a_text_that_is_no_specification_is_wrong_usage() {
    fails(&["top", "--once", "mem,,zones=4"], 2, "'' is not an option");
    fails(&["top", "--once", "/nowhere/disk.zbd"], 3, "/nowhere/disk.zbd");
}
