//! What was found by trying the commands as a stranger: each failed before it was mended.

use crate::*;
use std::collections::BTreeSet;

/// What a command that succeeds says on stdout and on stderr.
fn says(args: &[&str], input: &[u8]) -> (String, String) {
    let out = feed(args, input);
    let err = text(&out.stderr);
    assert_eq!(out.status.code(), Some(0), "zoneplug {args:?}: {err}");
    (text(&out.stdout), err)
}

#[test]
fn a_disk_that_goes_with_the_command_is_said_to_go() {
    let dir = Dir::new("volatile");
    let disk = dir.disk("--zones 4 --zone-size 1M");
    for args in [
        &["write", "mem,zones=4"][..],
        &["append", "mem,zones=4"],
        &["write", "po2@mem,zones=4", "--json"],
        &["reset", "mem,zones=4"],
        &["finish", "null", "-c", "1"],
    ] {
        let (_, err) = says(args, b"hi");
        let spec = args[1];
        assert!(err.contains(&format!("the disk {spec} ends with this command")), "{err}");
        assert_eq!(err.lines().count(), 1, "{err}");
    }
    for args in [&["write", &disk][..], &["append", &disk], &["reset", &disk, "--yes"]] {
        assert_eq!(says(args, b"hi").1, "", "{args:?}");
    }
    // Nothing is lost by a command that looks.
    assert_eq!(says(&["report", "mem,zones=4"], b"").1, "");
}

#[test]
fn no_disk_is_made_that_no_specification_reaches() {
    let dir = Dir::new("names");
    let soon = |name: &str| {
        let mut command = Command::new(&*ZONEPLUG);
        command.current_dir(&dir.0).args(["create", name, "--zones", "2", "--zone-size", "1M"]);
        let out = soon(&mut command);
        let info = soon(Command::new(&*ZONEPLUG).current_dir(&dir.0).args(["info", name]));
        (out.status.code(), text(&out.stderr), info.status.code())
    };
    for (name, hint) in
        [("mem", "./mem or mem.zbd"), ("sim-smr30", "./sim-smr30"), ("ublkb0", "ublkb0.zbd")]
    {
        let (code, err, _) = soon(name);
        assert_eq!((code, err.lines().count()), (Some(2), 2), "{name}: {err}");
        assert!(err.contains(hint), "{name}: {err}");
        assert!(!dir.0.join(name).exists(), "{name}");
    }
    for name in ["./mem", "disk", "po2", "my disk.zbd", "./po2@x.zbd", "50%.zbd", "ublkb0.zbd"] {
        assert_eq!(soon(name), (Some(0), String::new(), Some(0)), "{name}");
    }
    for name in ["a,b.zbd", "./a=b.zbd", "po2@y.zbd", "\"5\\\".zbd"] {
        let (code, said, found) = soon(name);
        assert!(code == Some(0) && found != Some(0), "{name}: {said}");
        let quoted = said.trim_end().rsplit_once(": ").unwrap().1;
        assert!(quoted.starts_with('"') && quoted.ends_with('"'), "{name}: {said}");
        let named = format!("po2@{quoted},qd1=1");
        let mut info = Command::new(&*ZONEPLUG);
        let info = super::soon(info.current_dir(&dir.0).args(["info", &named]));
        assert_eq!(text(&info.stderr), "", "{name} as {quoted}");
    }
}

#[test]
fn info_says_whether_a_disk_takes_writes() {
    let dir = Dir::new("writable");
    let disk = dir.disk("--zones 4 --zone-size 1M");
    let read_only =
        |spec: &str| json(&["info", "--json", spec])["limits"]["read_only"].as_bool().unwrap();
    assert!(!read_only(&disk));
    assert!(!read_only(&format!("po2@{disk}")));
    assert!(read_only(&format!("{disk},read-only=1")));
    assert!(read_only("mem,read-only=1"));
    assert!(!read_only("mem"));
}

/// The document and the table agree about write pointers.
#[test]
fn a_write_pointer_is_the_same_in_every_form_of_a_report() {
    let dir = Dir::new("wptr");
    let disk = dir.disk("--zones 6 --zone-size 1M --zone-capacity 512K --conv 1");
    ok_with(&["write", &disk], &noise(600 << 10, 1));
    let zones = json(&["report", "--json", &disk])["zones"].clone();
    let table = ok(&["report", &disk]);
    for (zone, row) in zones.as_array().unwrap().iter().zip(table.lines().skip(1)) {
        let shown = row.split_whitespace().nth(4).unwrap().strip_prefix("0x").unwrap();
        let shown = u64::from_str_radix(shown, 16).unwrap();
        assert_eq!(zone["write_pointer_offset_sectors"].as_u64().unwrap_or(0), shown, "{row}");
        let of = |key: &str| zone[key].as_u64();
        let (start, wptr) = (of("start_sector").unwrap(), of("write_pointer_offset_sectors"));
        assert_eq!(of("write_pointer_sector"), wptr.map(|w| start + w), "{row}");
    }
    let key = |n: usize, key: &str| zones[n][key].as_u64();
    let of = |n: usize| (key(n, "write_pointer_offset_sectors"), key(n, "write_pointer_sector"));
    assert_eq!(
        (of(0), of(2), of(4)),
        ((None, None), (Some(176), Some(4272)), (Some(0), Some(8192)))
    );
}

/// The names of policies, schedulers and modes stand in one list: that of the engine.
#[test]
fn help_and_errors_name_every_policy_and_scheduler() {
    use zoneplug_core::sched::{Policy, Scheduler};
    for command in ["bench", "replay"] {
        let help = ok(&[command, "--help"]).split_whitespace().collect::<Vec<_>>().join(" ");
        for names in [&Policy::NAMES[..], &Scheduler::NAMES] {
            assert!(help.contains(&format!(": {}", names.join(", "))), "{command}: {help}");
        }
    }
    let all = Policy::NAMES.join(", ");
    fails(&["bench", "--disk", "sim-smr30", "--policy", "fast"], 2, &all);
    for name in Policy::NAMES {
        let run = ["bench", "--disk", "sim-zns1,qd1=1", "--runtime", "1ms", "--policy", name];
        assert_eq!(feed(&run, b"").status.code(), Some(0), "{name}");
    }
}

/// An expression gives the figures of the policy that it is, in a list too, and is named in the table and in JSON.
#[test]
fn an_expression_is_a_policy() {
    let trace = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/tests/data/traces/fio-v3.log");
    let list = "fifo,[max(wait_us, 0)],clook+300us/4s,[-sweep]+300us/4s";
    for command in [
        &["bench", "--rw", "randwrite", "--bs", "1M", "--iodepth", "64", "--runtime", "2s"][..],
        &["replay", trace, "--speed", "asap"],
    ] {
        let with = |policy, more: &[&'static str]| {
            [command, &["--disk", "sim-smr30", "--policy", policy], more].concat()
        };
        let mut rows = json(&with(list, &["--json"]))["rows"].as_array().unwrap().clone();
        let names: Vec<Value> = rows.iter_mut().map(|row| row["layer"].take()).collect();
        assert_eq!(names[1], "plug none qd1 [max(wait_us, 0)]");
        assert_eq!(names[3], "plug none qd1 [-sweep] +300us 4000ms");
        assert!(rows[0] == rows[1] && rows[2] == rows[3], "{command:?}: {rows:#?}");
        let long = format!("[{}wait_us]", "1 + ".repeat(40));
        let table = ok(&with(&long, &[]));
        assert!(table.contains("qd1 [1 + 1 + ") && table.contains("...]"), "{table}");
        assert!(ok(&with(&long, &["--csv"])).contains(&long));
        fails(&with("off,[wait_us + bites]", &[]), 2, "'bites' is no variable at character 16");
    }
    for run in [
        &["bench", "--disk", "sim-smr30", "--real-time", "--policy", "[0]"][..],
        &["bench", "--disk", "mem", "--policy", "fifo,[0]"],
        &["info", "mem,policy=[0]"],
        &["serve", "--nvme-tcp", "127.0.0.1:0", "mem,policy=[0]"],
    ] {
        fails(run, 2, "virtual time");
    }
}

#[test]
fn a_policy_about_waiting_says_that_it_may_not_wait() {
    let line = "without +300us (anticipation_us) never waits: ";
    let run = |args: &str| says(&args.split(' ').collect::<Vec<_>>(), b"").1;
    for policy in ["brief", "steady", "brief/4s"] {
        let err = run(&format!("bench --disk sim-zns1 --runtime 1ms --policy {policy}"));
        assert!(err.contains(line) && err.lines().count() == 1, "{policy}: {err}");
    }
    assert!(run("bench --disk sim-zns1,qd1=1,policy=brief --runtime 1ms").contains("it is fifo"));
    assert!(run("bench --disk null --runtime 1ms --policy brief").contains("it is fifo"));
    let trace = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/tests/data/traces/fio-seq.log");
    assert!(run(&format!("replay {trace} --disk sim-zns1 --policy brief")).contains("it is fifo"));
    assert!(run("attr mem,qd1=1 zoned_qd1_policy brief").contains("it is fifo"));
    assert!(run("bench --disk sim-zns1 --runtime 1ms --policy [0;1]").contains(line));
    for quiet in ["brief+300us", "fifo", "clook,score", "off", "steady+1ms", "[0]", "[0;1]+1ms"] {
        let err = run(&format!("bench --disk sim-zns1 --runtime 1ms --policy {quiet}"));
        assert_eq!(err, "", "{quiet}");
    }
    assert_eq!(run("bench --disk sim-zns1,policy=brief,qd1=0 --runtime 1ms"), "");
    assert_eq!(run("attr mem,qd1=1,anticipation-us=300 zoned_qd1_policy brief"), "");
}

#[test]
fn a_blank_in_a_specification_is_named() {
    fails(&["report", "mem, zones=4"], 2, "there is a blank in 'mem, zones=4'");
    fails(&["report", "mem, zones=4"], 2, "'mem,zones=4'");
    fails(&["report", "mem,zones=4 ,conv=1"], 2, "'mem,zones=4,conv=1'");
}

#[test]
fn a_file_that_is_missing_is_called_a_file() {
    for name in ["disk", "memo.img", "disk1"] {
        fails(&["info", name], 3, &format!("there is no file '{name}'"));
    }
    fails(&["info", "disk"], 3, "zoneplug create");
    fails(&["info", "nul"], 3, "did you mean null?");
    let dir = Dir::new("missing");
    fails(&["info", &dir.path("none")], 3, "zoneplug create");
    let inside = feed(&["info", &dir.path("")], b"");
    assert!(text(&inside.stderr).contains("directory"), "{}", text(&inside.stderr));
}

#[test]
fn what_a_command_does_not_take_is_answered_with_what_it_takes() {
    for (args, what) in [
        (&["serve", "db.zbd"][..], "try: zoneplug serve --ublk db.zbd\n"),
        (&["reset", "d", "-z", "3"], "error: zoneplug reset has no option '-z'\n"),
        (&["reset", "d", "-z", "3"], "--offset SECTOR and --count N"),
        (&["serve"], "error: zoneplug serve needs a disk\n"),
        (&["serve"], "try: --ublk, --nvme-tcp or --iscsi, and a disk; or --config FILE\n"),
        (&["serve", "--queues", "2"], "error: zoneplug serve needs a disk\n"),
        (&["attr"], "error: zoneplug attr needs <DISK>\n"),
        (&["status", "-z"], "try: zoneplug status --help lists its options\n"),
        (&["flush", "d", "e"], "error: zoneplug flush does not take 'e' here\n"),
        (&["reset", "d", "--cuont", "3"], "'--count'"),
    ] {
        fails(args, 2, what);
        assert!(!text(&feed(args, b"").stderr).contains("as a value"), "{args:?}");
    }
}

#[test]
fn a_command_that_destroys_data_is_not_offered_for_another_word() {
    for word in ["delete", "remove", "erase", "format", "frob"] {
        fails(&[word, "disk.zbd"], 2, "try: zoneplug --help lists the commands\n");
    }
    for (word, command) in [("rest", "reset"), ("crate", "create"), ("reports", "report")] {
        fails(&[word], 2, &format!("try: zoneplug {command}; "));
    }
}

#[test]
fn a_disk_holds_at_least_one_whole_zone() {
    let dir = Dir::new("whole-zone");
    let path = dir.path("disk.zbd");
    let create = |size: &str, zone: &str| {
        let args = ["create", &path, "--size", size, "--zone-size", zone];
        (feed(&args, b"").status.code(), text(&feed(&args, b"").stderr))
    };
    let (code, err) = create("1G", "2G");
    assert!(code == Some(2) && err.contains("1G has no room for a zone of 2G"), "{err}");
    assert!(!std::path::Path::new(&path).exists());
    fails(&["info", "mem,size=1M,zone-size=2M"], 2, "1M has no room for a zone of 2M");
    assert_eq!(create("2G", "2G").0, Some(0));
}

#[test]
fn a_new_disk_needs_a_size_or_a_number_of_zones() {
    let dir = Dir::new("extent");
    let path = dir.path("disk.zbd");
    fails(&["create", &path], 2, "create needs --size <BYTES> or --zones <N>\n");
    fails(&["create"], 2, "create needs <FILE>; --size <BYTES> or --zones <N>\n");
    fails(&["create", &path, "--size", "1G", "--zones", "4"], 2, "--zones");
    ok(&["create", &path, "--zones", "4", "--zone-size", "1M", "--last-zone-size", "512K"]);
    assert_eq!(json(&["info", "--json", &path])["zones"], 4);
}

#[test]
fn units_are_read_as_people_write_them() {
    let dir = Dir::new("units");
    let path = dir.path("disk.zbd");
    ok(&["create", &path, "--size", "1TiB", "--zone-size", "1GiB"]);
    assert_eq!(json(&["info", "--json", &path])["capacity_bytes"].as_u64(), Some(1 << 40));
    let v = json(&["info", "--json", "mem,zones=4,zone-size=64KiB"]);
    assert_eq!(v["zone_bytes"], 64 << 10);
    let run = ["bench", "--json", "--disk", "sim-zns1", "--bs", "64KiB", "--runtime"];
    let v = json(&[&run[..], &["1m"]].concat());
    assert_eq!((&v["virtual_s"], &v["block_bytes"]), (&Value::from(60.0), &(64 << 10).into()));
    fails(&[&run[..], &["2"]].concat(), 2, "m (minutes)");
}

/// The probes of the build are those of its documentation: the notes of a binary have a name for each.
#[test]
fn the_probes_of_the_command_are_documented() {
    let page = include_str!("../../../../docs/probes.md");
    let rows = page.lines().filter_map(|l| l.strip_prefix("| `")?.split_once('`'));
    let documented: BTreeSet<String> = rows.map(|(name, _)| name.to_owned()).collect();
    let binary = std::fs::read(&*ZONEPLUG).unwrap();
    let mut found = BTreeSet::new();
    let provider = b"zoneplug\0";
    for at in binary.windows(provider.len()).enumerate().filter(|(_, w)| *w == provider) {
        let name: Vec<u8> =
            binary[at.0 + provider.len()..].iter().copied().take_while(|b| *b != 0).collect();
        let args = binary[at.0 + provider.len() + name.len() + 1..].first_chunk::<3>();
        // What follows the name in a note: the places of the arguments.
        if args == Some(b"-8@") {
            found.insert(text(&name));
        }
    }
    let expected = if cfg!(feature = "probes") { documented } else { BTreeSet::new() };
    assert_eq!(found, expected);
    assert!(cfg!(not(feature = "probes")) || found.len() > 10, "{found:?}");
}

#[test]
fn info_and_report_draw_zones_in_one_alphabet() {
    let dir = Dir::new("alphabet");
    let disk = dir.disk("--zones 200 --zone-size 1M --conv 3");
    ok_with(&["write", &disk], &noise(5 << 19, 1));
    let (info, map) = (ok(&["info", &disk]), ok(&["report", "--map", &disk]));
    assert!(map.contains("  0 ░░░██▄··") && info.ends_with(&format!("\nzones\n{map}")), "{info}");
}

/// BIOs that fail while the disk warms up are in no figure, and fail the command all the same.
#[test]
fn failures_before_the_measurement_fail_the_command() {
    for (rw, fault) in [
        ("write", "write/io/count=1"),
        ("append", "append/io/count=1"),
        ("read", "read/io/count=1"),
    ] {
        let disk = format!("mem,zones=4,append=native,fault={fault}");
        let args = ["bench", "--disk", &disk, "--rw", rw, "--runtime", "100ms"];
        let out = feed(&args, b"");
        let (told, err) = (text(&out.stdout), text(&out.stderr));
        assert_eq!(out.status.code(), Some(1), "{rw}: {told}{err}");
        assert!(
            told.contains("refused before the measurement: ") && told.contains("(I/O error: "),
            "{told}"
        );
        assert!(err.contains("BIOs failed"), "{err}");
        let v: Value =
            serde_json::from_slice(&feed(&[&args[..], &["--json"]].concat(), b"").stdout).unwrap();
        assert_eq!(v["measure"]["refused"], 0, "{v}");
        assert!(v["measure"]["refused_before"]["io_error"].as_u64().unwrap() > 0, "{v}");
    }
}

/// blkparse writes its events with capitals, and so does a hint.
#[test]
fn events_are_taken_as_they_are_written() {
    let trace = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/tests/data/traces/blkparse.txt");
    let replay = |events: &str| ok(&["replay", trace, "--disk", "sim-zns1", "--events", events]);
    assert_eq!(replay("D"), replay("d"));
    assert_eq!(replay("Q"), ok(&["replay", trace, "--disk", "sim-zns1"]));
}

/// Only plugs emulate zone append: in the other modes a disk has its own or none.
#[test]
fn a_disk_without_zone_append_says_so() {
    for (options, kind, max) in [
        ("mode=none", "none", "0"),
        ("mode=lock", "none", "0"),
        ("mode=plug", "emulated", "1048576"),
        ("mode=none,append=native", "native", "1048576"),
        ("mode=plug,append=native", "native", "1048576"),
        ("mode=plug,append=native,emulate-append=1", "emulated", "1048576"),
    ] {
        let spec = format!("mem,zones=4,zone-size=1M,{options}");
        let attr = |name: &str| ok(&["attr", &spec, name]).trim().to_owned();
        assert_eq!(
            (attr("zone_append"), attr("zone_append_max_bytes")),
            (kind.into(), max.into()),
            "{spec}"
        );
    }
    fails_with(&["append", "mem,mode=none"], b"hi", 4, "not supported");
}
