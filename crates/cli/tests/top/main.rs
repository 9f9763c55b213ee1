//! `zoneplug top` on a terminal, beside real servers with I/O.

#![cfg(feature = "top")]
#![allow(clippy::unwrap_used)]

#[allow(dead_code)]
#[path = "../common/commands.rs"]
mod common;
mod load;
mod screen;

use common::Dir;
use load::{Disk, Load, NQN};
use rustix::process::Signal;
use screen::Screen;
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const ZONEPLUG: &str = env!("CARGO_BIN_EXE_zoneplug");

/// A server that does not outlive its test.
struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn start(socket: &str, address: &str, specs: &[&str]) -> Server {
        let mut child = Command::new(ZONEPLUG)
            .args(["serve", "--latency", "--nqn", NQN, "--socket", socket, "--nvme-tcp", address])
            .args(specs)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let line = lines.next().unwrap().unwrap();
        let address = line.split("  ").next().unwrap().to_owned();
        let last = |l: &String| l.starts_with("nvme connect");
        assert!(lines.map(Result::unwrap).any(|l| last(&l)));
        Server { child, address }
    }

    fn port(&self) -> &str {
        self.address.rsplit_once(':').unwrap().1
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn top(args: &[&str]) -> Command {
    let mut command = Command::new(ZONEPLUG);
    command.arg("top").args(args).env("TERM", "xterm-256color").env_remove("NO_COLOR");
    command
}

const MEM: &str = "mem,zones=64,zone-size=4M,latency=200us,qd1=1";
const WORK: Disk = Disk { nsid: 1, zone: 1024, at_a_time: 6, zones: 64 };

/// The number that stands in a column of the table.
fn value(text: &str, disk: &str, column: usize) -> Option<String> {
    let line = text.lines().skip(1).find(|l| l.trim_start().starts_with(disk))?;
    line.split_whitespace().nth(column).map(str::to_owned)
}

/// Rates and a map come from a server at work, and keys lead from the map to a zone and back.
#[test]
fn a_disk_at_work_is_watched_and_looked_into() {
    let dir = Dir::new("work");
    let socket = dir.path("s");
    let server = Server::start(&socket, "127.0.0.1:0", &[MEM, "null,zones=8"]);
    let disk = format!("tcp{}n1", server.port());
    let load = Load::start(&server.address, WORK);
    let args = ["--socket", &socket, "--interval", "200ms"];
    let mut screen = Screen::start(top(&args), 24, 80);
    let is_rate = |v: Option<String>| v.is_some_and(|v| v != "-" && v != "0");
    screen.until("writes per second", |t| is_rate(value(t, &disk, 2)));
    screen.until("p99", |t| value(t, &disk, 6).is_some_and(|v| v.ends_with('s')));
    screen.shows("single writer serves zone");
    screen.shows("zones 0-63: filled to the write pointer");
    screen.shows("zone_reset");
    assert!(screen.is_taken() && !screen.edits_lines() && screen.has_colours());
    screen.press("mm");
    screen.shows("written per second");
    screen.until("written zones in the map", |t| t.contains("B/s in the cell with the most"));
    screen.press("v");
    screen.shows("DISP");
    screen.press("v\r");
    screen.shows("── zone 0 ");
    screen
        .until("its write pointer", |t| t.contains("write pointer ") && t.contains(" = start + "));
    screen
        .until("a change of the zone", |t| t.contains("s ago  ") && t.contains("write pointer +"));
    screen.press("\x1b");
    screen.until("out of the zone", |t| !t.contains("── zone 0 "));
    // The zone in which the most waits: at a moment there may be none.
    let begun = std::time::Instant::now();
    while !screen.text().contains("starts at sector") {
        assert!(begun.elapsed() < Duration::from_secs(30), "no zone waits:\n{}", screen.text());
        screen.press("w");
        std::thread::sleep(Duration::from_millis(300));
    }
    screen.shows("BIOs wait, ");
    screen.press("?");
    screen.shows("the disk before, the next disk");
    screen.press("x");
    screen.until("without help", |t| !t.contains("the next disk"));
    screen.press("]");
    screen.shows("zones 0-7: ");
    // A terminal of another size, and a very small one.
    screen.resize(40, 160);
    screen.shows("SPECIFICATION");
    screen.resize(5, 20);
    screen.until("five rows", |t| t.contains("q quit") && !t.contains("SPEC"));
    screen.resize(24, 80);
    screen.shows("zones 0-7: ");
    drop(load);
    screen.press("q");
    assert_eq!(screen.end().code(), Some(0));
    assert!(!screen.is_taken() && screen.edits_lines());
}

/// Each way out gives the terminal back.
#[test]
fn the_terminal_is_given_back() {
    let dir = Dir::new("end");
    let disk = dir.path("d.zbd");
    let made = Command::new(ZONEPLUG)
        .args(["create", &disk, "--zones", "100", "--zone-size", "1M"])
        .output()
        .unwrap();
    assert!(made.status.success());
    let start = || {
        let screen = Screen::start(top(&[&disk, "--interval", "100ms"]), 24, 80);
        screen.shows("zones 0-99: ");
        assert!(screen.is_taken() && !screen.edits_lines());
        screen
    };
    for (signal, code) in [(Signal::TERM, 143), (Signal::HUP, 129), (Signal::INT, 0)] {
        let mut screen = start();
        screen.signal(signal);
        assert_eq!(screen.end().code(), Some(code), "{signal:?}");
        assert!(!screen.is_taken() && screen.edits_lines(), "{signal:?}");
    }
    let mut screen = start();
    screen.press("\x03");
    assert_eq!(screen.end().code(), Some(0));
    assert!(!screen.is_taken() && screen.edits_lines());
}

/// A terminal that is closed ends it, also if no signal says so.
#[test]
fn it_ends_with_its_terminal() {
    let mut screen = Screen::start(top(&["mem,zones=40", "--interval", "100ms"]), 24, 80);
    screen.shows("zones 0-39: ");
    screen.hang_up();
    let status = screen.end();
    let hang_up = Signal::HUP.as_raw();
    assert!(status.code() == Some(128 + hang_up) || status.signal() == Some(hang_up), "{status}");
}

/// The state of a process, as /proc has it.
fn state(pid: u32) -> char {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit_once(") ").unwrap().1.chars().next().unwrap()
}

#[test]
fn a_stopped_job_leaves_the_terminal_to_the_shell() {
    let mut screen = Screen::start(top(&["mem,zones=40", "--interval", "100ms"]), 24, 80);
    for round in 0..4 {
        screen.shows("zones 0-39: ");
        screen.until("the terminal", |_| screen.is_taken() && !screen.edits_lines());
        match round % 2 {
            0 => screen.signal(Signal::TSTP),
            _ => screen.press("\x1a"),
        }
        screen.until("stopped", |_| state(screen.child.id()) == 'T');
        // What it wrote before may still be on its way.
        screen.until("given back", |_| !screen.is_taken() && screen.edits_lines());
        screen.signal(Signal::CONT);
    }
    screen.shows("zones 0-39: ");
    screen.until("the terminal", |_| screen.is_taken() && !screen.edits_lines());
    // A stop that cannot be caught: the shell sets the terminal in its own way.
    screen.signal(Signal::STOP);
    screen.until("stopped", |_| state(screen.child.id()) == 'T');
    screen.signal(Signal::CONT);
    screen.press("q");
    assert_eq!(screen.end().code(), Some(0));
    assert!(!screen.is_taken() && screen.edits_lines());
}

/// A server that is killed is gone, and is there again when it is started again; rates begin again.
#[test]
fn a_server_that_dies_and_comes_back() {
    let dir = Dir::new("back");
    let socket = dir.path("s");
    let server = Server::start(&socket, "127.0.0.1:0", &[MEM]);
    let (address, disk) = (server.address.clone(), format!("tcp{}n1", server.port()));
    let mut screen = Screen::start(top(&["--socket", &socket, "--interval", "100ms"]), 24, 80);
    screen.shows("zones 0-63: ");
    drop(server);
    screen.shows("1 disk, 1 gone");
    screen.shows("no server listens on");
    let server = Server::start(&socket, &address, &[MEM]);
    let load = Load::start(&server.address, WORK);
    screen.until("there again", |t| !t.contains("gone") && !t.contains("no server listens"));
    screen.until("rates", |t| value(t, &disk, 2).is_some_and(|v| v != "-" && v != "0"));
    drop(load);
    screen.press("q");
    assert_eq!(screen.end().code(), Some(0));
}

#[test]
fn without_colours_there_are_none_on_the_terminal() {
    let mut command = top(&["mem,zones=40,conv=4"]);
    command.env("NO_COLOR", "1");
    let mut screen = Screen::start(command, 24, 80);
    screen.shows("zones 0-39: ");
    screen.shows("4 conv");
    assert!(!screen.has_colours());
    screen.press("q");
    screen.end();
}

/// In a pipe: 80 columns, no escapes; as JSON: rates of the time between two samples.
#[test]
fn a_snapshot_in_a_pipe() {
    let dir = Dir::new("once");
    let socket = dir.path("s");
    let server = Server::start(&socket, "127.0.0.1:0", &[MEM]);
    let load = Load::start(&server.address, WORK);
    std::thread::sleep(Duration::from_millis(300));
    let args = ["--once", "--socket", &socket, "--interval", "500ms"];
    let out = top(&args).output().unwrap();
    let text = String::from_utf8(out.stdout).unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    assert!(text.lines().all(|l| l.chars().count() <= 80) && !text.contains('\x1b'), "{text}");
    for what in
        ["DISK", "write", "single writer serves zone", "zones 0-63: filled", "1 host with 1 queue"]
    {
        assert!(text.contains(what), "{what}: {text}");
    }
    let begun = Instant::now();
    let out = top(&[&args[..], &["--json"]].concat()).output().unwrap();
    assert!(begun.elapsed() >= Duration::from_millis(500));
    let v: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    let rates = &v["disks"][0]["rates"];
    assert!(rates["writes_per_s"].as_f64().unwrap() > 10.0, "{v}");
    assert!(rates["latency"]["p50_ns"].as_u64().unwrap() >= 200_000, "{v}");
    let depth = rates["depth"].as_f64().unwrap();
    assert!((1.0..=64.0).contains(&depth), "48 commands are under way: {depth}");
    let written = v["map"]["written_sectors"].as_array().unwrap();
    assert_eq!(written.len(), 64);
    assert!(written.iter().any(|n| n.as_u64().unwrap() > 0));
    drop(load);
}

/// A bench under way is a disk like those of a server. Its socket goes when it ends.
#[test]
fn a_bench_is_watched() {
    let dir = Dir::new("bench");
    let socket = dir.path("s");
    let work = ["--rw", "randwrite", "--bs", "4k", "--runtime", "10s", "--socket", &socket];
    let mut bench = Command::new(&*common::ZONEPLUG_LAB)
        .args(["bench", "--disk", "mem,zones=8,zone-size=4M"])
        .args(work)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let end = Instant::now() + Duration::from_secs(20);
    while !std::path::Path::new(&socket).exists() {
        assert!(Instant::now() < end, "there is no socket");
        std::thread::sleep(Duration::from_millis(10));
    }
    let out = top(&["--once", "--json", "--socket", &socket, "--interval", "500ms"]).output();
    let v: serde_json::Value = serde_json::from_slice(&out.unwrap().stdout).unwrap();
    assert_eq!(v["disks"][0]["spec"], "mem,zones=8,zone-size=4M", "{v}");
    let rates = &v["disks"][0]["rates"];
    assert!(rates["writes_per_s"].as_f64().unwrap() > 10.0, "{v}");
    assert!(rates["latency"]["p50_ns"].as_u64().unwrap() > 0, "{v}");
    let pid = bench.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    bench.wait().unwrap();
    assert!(!std::path::Path::new(&socket).exists(), "the socket is left");
}

#[test]
fn what_cannot_be_watched_is_said_in_two_lines() {
    let dir = Dir::new("wrong");
    let fails = |args: &[&str], code: i32, what: &str| {
        let out = top(args).stdin(Stdio::null()).output().unwrap();
        let said = String::from_utf8(out.stderr).unwrap();
        assert_eq!(out.status.code(), Some(code), "{args:?}: {said}");
        assert!(said.contains(what) && said.contains("\ntry: "), "{args:?}: {said}");
        assert!(!said.contains('\x1b'));
    };
    fails(&["--socket", &dir.path("none"), "--once"], 3, "no server listens on");
    fails(&["nix.zbd", "--once"], 3, "nix.zbd");
    fails(&["mem,zones=4"], 2, "needs a terminal");
    fails(&["mem,zones=4", "--interval", "1ms"], 2, "100ms to 10s");
    fails(&["mem,zones=4", "--json"], 2, "--once");
    // A socket with a name that is no text.
    use std::os::unix::ffi::OsStrExt;
    let name = dir.0.join(std::ffi::OsStr::from_bytes(b"s\xff\x1b[2J"));
    let out = top(&["--once", "--socket"]).arg(&name).output().unwrap();
    let said = String::from_utf8(out.stderr).unwrap();
    assert_eq!(out.status.code(), Some(3), "{said}");
    assert!(said.contains("no server listens on") && !said.contains('\x1b'), "{said}");
}

/// Works on the server whose address is in the environment, for a picture.
#[test]
#[ignore = "a load for scripts/top-picture"]
fn load_for_a_picture() {
    let address = std::env::var("ZONEPLUG_TOP_ADDRESS").unwrap();
    let number = |name: &str| std::env::var(name).unwrap().parse().unwrap();
    let zones = number("ZONEPLUG_TOP_ZONES");
    let load = Load::start(
        &address,
        Disk { nsid: 1, zone: number("ZONEPLUG_TOP_BLOCKS"), at_a_time: 12, zones },
    );
    std::thread::sleep(Duration::from_secs(number("ZONEPLUG_TOP_SECONDS")));
    drop(load);
}
