//! Ctrl-C: what is known is printed and called partial, a second one ends the process, nothing half made is left.

use crate::*;
use rustix::process::Signal;
use std::os::unix::fs::MetadataExt;
use std::process::Child;

/// Signals have their usual effect on the command, even if these tests run under nohup(1), which ignores SIGHUP.
pub(crate) fn start(args: &[&str]) -> Child {
    let mut command = Command::new("env");
    command
        .args(["--default-signal", program(args)])
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command.spawn().unwrap()
}

/// Starts a command that takes long, and sends it a signal after a while. A replay looks at its trace first, and has
/// nothing to show if the signal comes then.
fn interrupted(args: &[&str], how: Signal) -> Output {
    let mut after = Duration::from_millis(700);
    loop {
        let child = start(args);
        std::thread::sleep(after);
        signal(&child, how);
        let out = end(child, Duration::from_secs(60));
        if !text(&out.stderr).contains("nothing was replayed yet") || after.as_secs() > 30 {
            return out;
        }
        after *= 2;
    }
}

/// A trace whose replay takes long if it is repeated. One run of each policy ends before the first signal on a fast machine.
fn trace(dir: &Dir) -> String {
    let path = dir.path("trace");
    let mut lines = String::from("fio version 2 iolog\nsda add\nsda open\n");
    for i in 0..300_000u64 {
        lines += &format!("sda write {} 4096\n", i * 4096);
    }
    std::fs::write(&path, lines).unwrap();
    path
}

#[test]
fn an_interrupted_command_prints_what_it_knows_and_calls_it_partial() {
    let dir = Dir::new("partial");
    let trace = trace(&dir);
    let words = |line: &'static str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let mut replay = words("replay --disk sim-smr30 --policy off,fifo,clook,score --repeat 20");
    replay.insert(1, trace);
    let slow = dir.path("slow");
    std::fs::write(&slow, "time_s,op,offset,length\n0,write,0,4096\n3600,write,4096,4096\n")
        .unwrap();
    let mut real = words("replay --real-time --disk mem,zones=4");
    real.insert(1, slow);
    for (args, key, says) in [
        (words("demo --seconds 20"), "order", "1. Writes stay in order"),
        (words("bench --seconds 20"), "disks", "ns/BIO"),
        (words("bench --disk mem,zones=16 --runtime 1h"), "measure", "CPU ns per BIO"),
        (words("bench --disk mem,zones=16 --runtime 1h --numjobs 2"), "measure", "a thread each"),
        (words("bench --disk sim-smr30 --runtime 24h --policy off,fifo"), "rows", "head busy"),
        (replay, "rows", "drive busy"),
        (real, "rows", "drive busy"),
        (words("reproduce smr30"), "tables", "not run"),
        (words("sim --seeds 1..10000000"), "worlds", "worlds a minute"),
    ] {
        let mut args: Vec<&str> = args.iter().map(String::as_str).collect();
        let out = interrupted(&args, Signal::INT);
        let (said, err) = (text(&out.stdout), text(&out.stderr));
        assert_eq!(out.status.code(), Some(130), "{args:?}: {said}{err}");
        assert!(err.starts_with("error: Ctrl-C before the end: ") && err.lines().count() == 2);
        assert!(said.contains("PARTIAL: "), "{args:?}: {said}");
        assert!(said.contains(says), "{args:?}: no {says} in {said}");
        // The time that was simulated, not the time that was requested.
        if let Some((before, _)) = said.split_once(" s of virtual time in ") {
            let time = before.lines().last().unwrap().replace(',', "");
            assert!(time.parse::<f64>().unwrap() < 86_400.0, "{said}");
        }
        args.push("--json");
        let out = interrupted(&args, Signal::TERM);
        let v: Value = serde_json::from_slice(&out.stdout).unwrap();
        assert_eq!((&v["partial"], out.status.code()), (&true.into(), Some(143)), "{args:?}");
        assert_eq!(
            (&v["error"]["kind"], &v["error"]["exit"]),
            (&"interrupted".into(), &143.into())
        );
        let known = &v[key];
        let some = known.as_array().map_or(!known.is_null(), |a| !a.is_empty());
        assert!(some && *known != 0, "{args:?}: {v}");
    }
}

/// Before its end a run is not partial.
#[test]
fn a_run_that_ends_is_not_partial() {
    for line in ["bench --disk null --runtime 10ms --json", "sim --seeds 1..3 --json"] {
        assert_eq!(json(&line.split(' ').collect::<Vec<_>>())["partial"], false, "{line}");
    }
}

/// The disk takes minutes for what is in flight: the first signal waits for that, the second does not.
#[test]
fn a_second_signal_ends_at_once() {
    let child = start(&["bench", "--disk", "mem,latency=5m", "--runtime", "1h", "--json"]);
    std::thread::sleep(Duration::from_millis(500));
    signal(&child, Signal::INT);
    std::thread::sleep(Duration::from_millis(500));
    let mut child = child;
    assert!(child.try_wait().unwrap().is_none(), "the first signal waits");
    signal(&child, Signal::INT);
    let out = end(child, Duration::from_secs(5));
    assert_eq!((out.status.code(), out.stdout.len()), (Some(130), 0));
}

/// As timeout(1) does it, which signals its child and then the group of both.
#[test]
fn signals_that_come_together_are_one() {
    let child = start(&["demo", "--seconds", "20"]);
    std::thread::sleep(Duration::from_millis(700));
    signal(&child, Signal::TERM);
    signal(&child, Signal::INT);
    let out = end(child, Duration::from_secs(20));
    assert!(text(&out.stdout).contains("PARTIAL: "), "{}", text(&out.stderr));
}

/// The signal comes as soon as the temporary file can be seen.
#[test]
fn an_interrupted_command_leaves_no_file_behind() {
    let dir = Dir::new("left");
    let file = dir.path("file");
    let slow = "mem,latency=400ms,zones=16,zone-size=16M";
    std::fs::write(&file, "old").unwrap();
    for args in [
        ["read", slow, &file, "--len=200M", "--depth=1"],
        ["create", &dir.path("disk.zbd"), "--zones=400000", "--zone-size=64K", "--json"],
    ] {
        let name = ["disk.zbd", "file"][usize::from(args[0] == "read")];
        for (how, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
            let child = start(&args);
            let part = dir.path(&format!("{name}.zoneplug-{}.part", child.id()));
            let begun = Instant::now();
            while !std::path::Path::new(&part).exists() {
                assert!(begun.elapsed() < Duration::from_secs(20), "{part} is not there");
                std::thread::yield_now();
            }
            signal(&child, how);
            let out = end(child, Duration::from_secs(5));
            if args[0] == "create" && out.status.success() {
                // The disk was in place before the signal.
                std::fs::remove_file(args[1]).unwrap();
                continue;
            }
            let err = text(&out.stderr);
            assert_eq!(
                (out.status.code(), err.lines().count()),
                (Some(code), 2),
                "{args:?}: {err}"
            );
            assert_eq!(dir.names(), ["file"], "{args:?}");
            assert_eq!(std::fs::read_to_string(&file).unwrap(), "old");
        }
    }
}

/// A signal that comes when the disk is in place is too late: the command ends as without it, and says that the disk is made.
#[test]
fn a_signal_after_the_disk_is_in_place_is_too_late() {
    let dir = Dir::new("in-place");
    let disk = dir.path("disk.zbd");
    let create = ["create", &disk, "--zones", "600000", "--zone-size", "64K"];
    for flags in [&["--json"][..], &["--json", "--force"]] {
        let before = std::fs::metadata(&disk).map(|m| m.ino()).ok();
        let child = start(&[&create[..], flags].concat());
        let begun = Instant::now();
        while std::fs::metadata(&disk).map(|m| m.ino()).ok() == before {
            assert!(begun.elapsed() < Duration::from_secs(60), "{disk} is not there");
            std::thread::sleep(Duration::from_millis(1));
        }
        signal(&child, Signal::INT);
        let out = end(child, Duration::from_secs(60));
        let err = text(&out.stderr);
        assert_eq!((out.status.code(), &*err), (Some(0), ""), "{flags:?}");
        let v: Value = serde_json::from_slice(&out.stdout).unwrap();
        assert_eq!(v["zones"], 600_000, "{v}");
    }
}

/// A question is no measurement: the first signal ends the command, which has changed nothing.
#[test]
fn a_signal_ends_a_command_that_asks() {
    let dir = Dir::new("asks");
    let disk = dir.disk("--zones 4 --zone-size 1M");
    ok_with(&["write", &disk], &noise(8192, 3));
    let args = ["bench", "--disk", &disk, "--runtime", "20ms"];
    let (child, mut terminal) = crate::terminal::start_on_a_terminal(&args, 80);
    let (mut seen, mut some) = (Vec::new(), [0; 4096]);
    while !text(&seen).contains("[y/N]") {
        let n = terminal.read(&mut some).unwrap();
        seen.extend(&some[..n]);
    }
    signal(&child, Signal::INT);
    let status = end(child, Duration::from_secs(5)).status;
    assert_eq!(status.code(), Some(130), "{status}");
    assert_eq!(conditions(&disk), "cl em em em");
}

/// A signal may come before the command has read its arguments. It waits until the command listens to it.
#[test]
fn a_signal_that_comes_early_gets_a_document_too() {
    // SIGINT is signal 2.
    let field = |status: &str, name: &str, radix| {
        let value = status.lines().find_map(|l| l.strip_prefix(name));
        value.and_then(|v| u64::from_str_radix(v.trim(), radix).ok())
    };
    let end_of = Instant::now() + Duration::from_secs(60);
    // One that has not yet started the thread that listens is not always seen.
    while Instant::now() < end_of {
        let child = start(&["bench", "--json", "--disk", "mem,zones=64,zone-size=4M"]);
        let path = format!("/proc/{}/status", child.id());
        let early = loop {
            let status = std::fs::read_to_string(&path).unwrap();
            if field(&status, "SigBlk:", 16).is_some_and(|blocked| blocked & 1 << 1 != 0) {
                break field(&status, "Threads:", 10) == Some(1);
            }
        };
        signal(&child, Signal::INT);
        let out = end(child, Duration::from_secs(60));
        assert_eq!(out.status.code(), Some(130), "{}", text(&out.stderr));
        let document: Value = serde_json::from_slice(&out.stdout).unwrap();
        assert_eq!(document["partial"], true, "{document}");
        if early {
            return;
        }
    }
    panic!("signals are blocked only once a thread listens to them");
}
