//! Errors of the system: each names its cause and the way out. A filter of system calls refuses what this machine allows.

use super::{Dir, ZONEPLUG, error_lines, fails, feed, json, ok, soon, text};
use std::path::Path;
use std::process::{Command, Output};

/// `io_uring_setup(2)` and `io_uring_enter(2)` have these numbers on every architecture.
const IO_URING_SETUP: u32 = 425;
const IO_URING_ENTER: u32 = 426;

/// Runs a program in which a system call fails with an error number.
const REFUSE: &str = "import ctypes, os, struct, sys
call, errno = int(sys.argv[1]), int(sys.argv[2])
steps = [(0x20, 0, 0, 0), (0x15, 0, 1, call), (0x06, 0, 0, 0x50000 | errno), (0x06, 0, 0, 0x7fff0000)]
code = ctypes.create_string_buffer(b''.join(struct.pack('HBBI', *s) for s in steps))
class Program(ctypes.Structure):
    _fields_ = [('len', ctypes.c_ushort), ('filter', ctypes.c_void_p)]
program = Program(len(steps), ctypes.addressof(code))
libc = ctypes.CDLL(None)
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, ctypes.byref(program), 0, 0) == 0
os.execv(sys.argv[3], sys.argv[3:])";

/// The command, where a system call fails.
fn without(call: u32, errno: i32, args: &[&str]) -> Output {
    let mut python = Command::new("python3");
    python.args(["-c", REFUSE, &call.to_string(), &errno.to_string(), &ZONEPLUG]);
    soon(python.args(args))
}

/// The command, where `io_uring_setup(2)` fails.
fn without_ring(errno: i32, args: &[&str]) -> Output {
    without(IO_URING_SETUP, errno, args)
}

/// A ring that may be made and not used is no ring: threads move the data, and who asks for a ring hears why.
#[test]
fn a_ring_that_may_not_be_used_is_none() {
    let dir = Dir::new("errno-enter");
    let disk = dir.path("d.zbd");
    ok(&["create", &disk, "--size", "64M", "--zone-size", "8M"]);
    for errno in [libc::EPERM, libc::ENOSYS] {
        let [error, _] = error_lines(
            &without(IO_URING_ENTER, errno, &["info", &format!("{disk},io=ring")]),
            4,
            "",
        );
        assert!(error.contains("io_uring cannot be used"), "{error}");
        let wrote = without(IO_URING_ENTER, errno, &["write", &disk, "/proc/self/status"]);
        assert_eq!(wrote.status.code(), Some(0), "{}", text(&wrote.stderr));
        let doctor = text(&without(IO_URING_ENTER, errno, &["doctor"]).stdout);
        assert!(doctor.contains("io_uring    limited"), "{doctor}");
    }
}

/// Each error of `io_uring_setup(2)`: its cause, and the way out of it.
#[test]
fn a_ring_that_is_refused_names_the_cause_and_the_way_out() {
    let dir = Dir::new("errno-ring");
    let disk = dir.path("d.zbd");
    ok(&["create", &disk, "--size", "64M", "--zone-size", "8M"]);
    let spec = format!("{disk},io=ring");
    let cases = [
        (libc::EPERM, 4, "a filter of system calls (seccomp)", "io_uring_setup"),
        (libc::ENOSYS, 4, "no io_uring", "CONFIG_IO_URING"),
        (libc::ENOMEM, 3, "locked memory", "ulimit -l"),
        (libc::EMFILE, 3, "open files", "ulimit -n"),
    ];
    for (errno, code, cause, way) in cases {
        let [error, hint] = error_lines(&without_ring(errno, &["info", &spec]), code, "info");
        assert!(error.contains("io_uring cannot be used") && error.contains(cause), "{error}");
        assert!(hint.contains(way) && hint.contains("io=threads"), "{hint}");
    }
}

/// Without a word on how data is to move, threads do it, and the command says so.
#[test]
fn info_says_whether_a_ring_or_threads_move_the_data() {
    let dir = Dir::new("errno-info");
    let disk = dir.path("d.zbd");
    ok(&["create", &disk, "--size", "64M", "--zone-size", "8M"]);
    let by = |document: &serde_json::Value| document["io"][0]["by"].as_str().unwrap().to_owned();
    let threads = format!("{disk},io=threads");
    assert_eq!(by(&json(&["info", &threads, "--json"])), "threads");
    assert!(ok(&["info", &threads]).contains("threads, buffered"));
    let stack = json(&[
        "info",
        &format!("linear@{threads}%mem,zones=8,zone-size=8M,lba-size=4096"),
        "--json",
    ]);
    assert_eq!((by(&stack), stack["io"].as_array().unwrap().len()), ("threads".to_owned(), 1));
    assert!(json(&["info", "mem,zones=8", "--json"]).get("io").is_none());
    let out = without_ring(libc::EPERM, &["info", &disk, "--json"]);
    let document = serde_json::from_slice(&out.stdout).unwrap();
    assert!(["threads", "copy"].contains(&&*by(&document)), "{document}");
    if ok(&["info", &disk]).contains("io_uring") {
        let found = json(&["info", &disk, "--json"]);
        assert_eq!(by(&found), "ring");
        let with = |errno| text(&without_ring(errno, &["info", &disk]).stdout);
        assert!(with(libc::ENOSYS).contains("threads, buffered"), "{}", with(libc::ENOSYS));
    }
}

/// Runs commands of a shell where a tmpfs with a disk at `disk` is read-only. `None`: this machine has no user namespaces.
fn read_only(dir: &Dir, args: &str) -> Option<Output> {
    let at = dir.path("ro");
    std::fs::create_dir_all(&at).unwrap();
    let zoneplug = &*ZONEPLUG;
    let script = format!(
        "mount -t tmpfs none {at} && {zoneplug} create {at}/d.zbd --size 64M --zone-size 8M >/dev/null \
         && mount -o remount,ro {at} || exit 99; cd {at} && exec {zoneplug} {args}"
    );
    let out = Command::new("unshare").args(["-rm", "sh", "-c", &script]).output().ok()?;
    let is_there = out.status.code() != Some(99) && !text(&out.stderr).contains("unshare");
    if !is_there {
        println!("skipped: {}", text(&out.stderr));
    }
    is_there.then_some(out)
}

/// Runs `zoneplug` as root without the right to read every directory, where /run/zoneplug belongs to another user and may be listed by
/// no one else. `None`: this machine cannot do that.
fn without_servers_in_sight(args: &[&str]) -> Option<Output> {
    let script = "mkdir -p /run/zoneplug && mount -t tmpfs -o mode=0700,uid=65534 none /run/zoneplug || exit 99; \
        exec setpriv --bounding-set=-dac_override,-dac_read_search \"$@\"";
    let mut command = Command::new("unshare");
    let out = command.args(["-m", "sh", "-c", script, "sh", &ZONEPLUG]).args(args).output().ok()?;
    let err = text(&out.stderr);
    let is_there = out.status.code() != Some(99)
        && !["unshare: ", "setpriv: ", "sh: "].iter().any(|program| err.starts_with(program));
    if !is_there {
        println!("skipped: {err}");
    }
    is_there.then_some(out)
}

/// A command that may not look for servers does not say that none has the disk. Needs root.
#[test]
fn servers_that_this_user_may_not_see_are_not_taken_for_none() {
    let to = Dir::new("unseen").path("copy.zbd");
    for args in [
        &["attr", "ublkb7"][..],
        &["attr", "/dev/ublkb7", "nomerges"],
        &["top", "--once"],
        &["top", "--once", "ublkb7"],
        &["snapshot", "ublkb7", &to],
        &["status"],
        &["status", "ublkb7"],
    ] {
        let Some(out) = without_servers_in_sight(args) else { return };
        let [error, hint] = error_lines(&out, 4, "");
        assert_eq!(error, "error: this user may not see the servers in /run/zoneplug", "{args:?}");
        assert_eq!(hint, "try: as root, or as a member of the group zoneplug", "{args:?}");
    }
    for args in [&["doctor"][..], &["status", "--json"]] {
        let Some(out) = without_servers_in_sight(args) else { return };
        assert!(text(&out.stdout).contains("this user may not see the servers"), "{out:?}");
    }
}

#[test]
fn a_read_only_file_system_is_named() {
    let dir = Dir::new("errno-read-only");
    for args in ["reset d.zbd --yes", "serve --nvme-tcp 127.0.0.1:0 d.zbd"] {
        let Some(out) = read_only(&dir, args) else { return };
        let [error, hint] = error_lines(&out, 3, "");
        assert!(error.contains("Read-only file system"), "{args}: {error}");
        assert!(hint.contains("remount,rw") && hint.contains("read-only=1"), "{args}: {hint}");
    }
    let Some(out) = read_only(&dir, "create new.zbd --size 1G") else { return };
    let [error, hint] = error_lines(&out, 3, "");
    assert!(error.contains("Read-only file system"), "{error}");
    assert!(hint.contains("remount,rw") && !hint.contains("read-only=1"), "{hint}");
}

#[test]
fn a_file_whose_directory_is_not_there_is_not_made() {
    let dir = Dir::new("errno-directory");
    let at = dir.path("none/deep");
    fails(&["create", &format!("{at}/d.zbd"), "--size", "1G"], 3, &format!("mkdir -p {at}"));
    assert!(!Path::new(&at).exists());
    let file = dir.path("file");
    std::fs::write(&file, b"x").unwrap();
    fails(
        &["create", &format!("{file}/d.zbd"), "--size", "1G"],
        2,
        &format!("{file} is not a directory"),
    );
}

/// A workload with a wrong number names that number, whatever else it lacks.
#[test]
fn a_depth_of_nothing_is_the_error() {
    fails(&["bench", "--iodepth", "0"], 2, "--iodepth");
    fails(&["bench", "--iodepth", "0"], 2, "1 to 65535");
    fails(&["bench", "--numjobs", "65"], 2, "1 to 64");
}

/// A disk that is served at a socket elsewhere is found by naming the socket.
#[test]
fn a_disk_that_no_server_has_may_be_at_another_socket() {
    for args in
        [&["status", "ublkb77"][..], &["snapshot", "tcp1n77", "none.zbd"], &["attr", "tcp1n77"]]
    {
        fails(args, 3, "--socket");
    }
}

/// `doctor` names each thing that it has tried, and says of what does not work the same as a command that needs it.
#[test]
fn doctor_says_what_a_command_would_say() {
    let document = |out: &Output| {
        assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
        serde_json::from_slice::<serde_json::Value>(&out.stdout).unwrap()
    };
    let check = |document: &serde_json::Value, name: &str| {
        let mut all = document["checks"].as_array().unwrap().iter();
        all.find(|c| c["check"] == name).cloned().unwrap_or_else(|| panic!("{document}"))
    };
    let (here, shown) = (json(&["doctor", "--json"]), ok(&["doctor"]));
    for name in ["kernel", "io_uring", "ublk", "FUSE", "drives", "open files", "servers"] {
        let c = check(&here, name);
        let state = c["state"].as_str().unwrap();
        assert!(["ok", "limited", "missing"].contains(&state), "{c}");
        assert_eq!(state == "ok", c["hint"].is_null(), "{c}");
        // Other tests start and end servers.
        let line = format!("{name:<11} {}", if name == "servers" { "" } else { state });
        assert!(shown.lines().any(|l| l.starts_with(&line)), "{line} in\n{shown}");
    }
    let ublk = check(&here, "ublk");
    if ublk["state"] == "missing" {
        let refused = text(&feed(&["serve", "--ublk", "mem,zones=8"], b"").stderr);
        assert!(refused.contains(ublk["what"].as_str().unwrap()), "{refused}");
        assert!(refused.contains(ublk["hint"].as_str().unwrap()), "{refused}");
    }
    let ring = check(&document(&without_ring(libc::ENOMEM, &["doctor", "--json"])), "io_uring");
    assert_eq!(ring["state"], "limited");
    assert!(ring["what"].as_str().unwrap().contains("locked memory"), "{ring}");
    assert!(ring["hint"].as_str().unwrap().contains("ulimit -l"), "{ring}");
    let few = Command::new("sh")
        .args(["-c", "ulimit -n 64; exec \"$0\" doctor --json", &ZONEPLUG])
        .output();
    let files = check(&document(&few.unwrap()), "open files");
    let what = files["what"].as_str().unwrap();
    assert_eq!((&files["state"], what.contains("may open 64:")), (&"limited".into(), true));
    // A limit that the system refuses to tell is named, too.
    let limits = without(libc::SYS_prlimit64 as u32, libc::EPERM, &["doctor", "--json"]);
    assert_eq!(check(&document(&limits), "open files")["state"], "limited");
}

/// A pipe and a directory are called that, also by a name without a slash.
#[test]
fn a_pipe_and_a_directory_are_no_unknown_kinds() {
    let dir = Dir::new("errno-names");
    assert!(Command::new("mkfifo").arg(dir.path("pipe")).status().unwrap().success());
    std::fs::create_dir(dir.path("folder")).unwrap();
    for (name, what) in [("pipe", "it is a pipe"), ("folder", "it is a directory")] {
        let mut command = Command::new(&*ZONEPLUG);
        let out = soon(command.args(["info", name]).current_dir(&dir.0));
        let err = text(&out.stderr);
        assert!(err.contains(&format!("{name} is no disk: {what}")), "{err}");
    }
}

/// An attribute that other disks have is not unknown, and the error says which disks.
#[test]
fn an_attribute_of_other_disks_says_of_which() {
    for (attribute, with) in [
        ("fifo_batch", "scheduler=mq-deadline"),
        ("queue_depth", "a scheduler"),
        ("spindles", "zoned_qd1_writes=1 and several drives"),
    ] {
        let what = format!("this disk has no {attribute}: it is an attribute of disks with {with}");
        for value in [None, Some("1")] {
            let args: Vec<&str> =
                ["attr", "null,zones=4", attribute].into_iter().chain(value).collect();
            fails(&args, 3, &what);
        }
    }
    let zones = ["attr", "null,zones=4,scheduler=mq-deadline,mode=lock", "zone_recovery", "auto"];
    fails(&zones, 3, "it is an attribute of disks with mode=plug");
}
