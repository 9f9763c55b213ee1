//! `zoneplug serve --takeover` over the network, which needs no kernel. With block devices it is proven in a virtual
//! machine.

use super::initiator::{Initiator, NAME};
use super::nvme_host::{HOST, KEY, Queue};
use super::{Dir, ZONEPLUG, fails, ok, soon, state, text};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Lines, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixListener;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use zoneplug_nvme::initiator::{Options, connect};
use zoneplug_nvme::spec::fabrics::ANY_CONTROLLER;

thread_local! {
    static NQN: &'static str = {
        let test = std::thread::current().name().unwrap_or_default().replace(':', ".");
        Box::leak(format!("nqn.2026-11.dev.zoneplug:{test}-{}", std::process::id()).into())
    };
}

/// The name of the subsystem of a test.
pub(crate) fn nqn() -> &'static str {
    NQN.with(|nqn| *nqn)
}

/// A server that does not outlive its test.
pub(crate) struct Server(pub(crate) Child, Lines<BufReader<ChildStdout>>);

impl Server {
    /// Starts one, and returns the address that it says.
    pub(crate) fn start(args: &[&str]) -> (Server, String) {
        let server = Command::new(&*ZONEPLUG)
            .args(["serve", "--nqn", nqn()])
            .args(args)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut server = Server::of(server);
        let line = server.1.next().unwrap().unwrap();
        let address = line.split_once("  ").unwrap().0.to_owned();
        (server, address)
    }

    /// A server that has been started, with a pipe for its output.
    pub(crate) fn of(mut server: Child) -> Server {
        let lines = BufReader::new(server.stdout.take().unwrap()).lines();
        Server(server, lines)
    }

    /// The next line with this text.
    pub(crate) fn line_with(&mut self, text: &str) -> String {
        let mut lines = self.1.by_ref().map(Result::unwrap);
        lines.find(|line| line.contains(text)).unwrap_or_else(|| panic!("no line has {text}"))
    }

    /// The address in the next line with this name.
    pub(crate) fn address_of(&mut self, name: &str) -> SocketAddr {
        self.line_with(&format!("  {name}")).split_once("  ").unwrap().0.parse().unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
        let _ = std::fs::remove_file(format!("/run/zoneplug/{}.hosts", nqn()));
    }
}

/// Starts a server with these arguments, whose socket is `s` in the directory. Returns its first address at which `name`, a
/// subsystem or target, is served.
pub(crate) fn serve(dir: &Dir, name: &str, args: &[&str]) -> (Server, SocketAddr) {
    let server = Command::new(&*ZONEPLUG)
        .arg("serve")
        .args(args)
        .args(["--socket", &dir.path("s")])
        .stdout(Stdio::piped())
        .spawn();
    let mut server = Server::of(server.unwrap());
    let address = server.address_of(name);
    (server, address)
}

/// U9: the last server ends well, and the next one serves the same at the same place.
#[test]
fn u9_a_server_hands_its_disks_over() {
    let dir = Dir::new("handover");
    let (disk, socket) = (dir.path("d.zbd"), dir.path("s"));
    ok(&["create", &disk, "--size", "64M", "--zone-size", "8M"]);
    let of = |address: &str| {
        ["--nvme-tcp", address, &disk, "--socket", &socket].map(str::to_owned).to_vec()
    };
    let args = |list: &[String]| list.iter().map(String::as_str).collect::<Vec<_>>().join("\n");
    let first = args(&of("127.0.0.1:0"));
    let (mut last, address) = Server::start(&first.split('\n').collect::<Vec<_>>());
    for handover in 1..=3 {
        let next = args(&of(&address));
        let next: Vec<&str> = next.split('\n').chain(["--takeover"]).collect();
        let (server, at) = Server::start(&next);
        assert_eq!(at, address, "handover {handover}");
        let status = last.0.wait().unwrap();
        assert!(status.success(), "the last server: {status}");
        assert!(last.1.next().is_none_or(|line| !line.unwrap().starts_with("error")));
        let shown = ok(&["status", "--socket", &socket]);
        assert!(shown.contains(&format!("process {}", server.0.id())), "{shown}");
        last = server;
    }
    // One that would not serve all is refused, and the last one goes on.
    let other = dir.path("other.zbd");
    ok(&["create", &other, "--size", "64M", "--zone-size", "8M"]);
    let refused = |args: &[&str], what: &str| {
        fails(&[&["serve", "--takeover", "--socket", &socket], args].concat(), 3, what);
        assert!(last_is_there(&socket), "{what}");
    };
    refused(&["--nvme-tcp", "127.0.0.1:0", &disk], "where this one would not listen");
    let layered = format!("po2@{disk}");
    refused(&["--nvme-tcp", &address, &layered], "with other layers");
    fails(
        &["serve", "--takeover", "--socket", &socket, "--nvme-tcp", &address, "/none.zbd"],
        3,
        "/none.zbd",
    );
    assert!(last_is_there(&socket));
    // The server is not found where it has no socket.
    fails(
        &["serve", "--takeover", "--socket", &dir.path("t"), "--nvme-tcp", "127.0.0.1:0", &disk],
        3,
        "--socket PATH as the server has it that is to hand over",
    );
    assert!(last_is_there(&socket));
    // It has no disk of the one that is running, and so does not touch it; but the address is taken.
    fails(
        &["serve", "--takeover", "--socket", &dir.path("t"), "--nvme-tcp", &address, &other],
        3,
        &address,
    );
    assert!(last_is_there(&socket));
}

/// The lines that say which namespace is which disk.
fn namespaces(lines: &mut Lines<BufReader<ChildStdout>>) -> Vec<String> {
    let lines = lines.map(Result::unwrap).take_while(|line| !line.starts_with("nvme connect"));
    let of = |line: String| {
        let (nsid, rest) = line.strip_prefix("namespace ")?.split_once("  ")?;
        Some(format!("{nsid} {}", rest.split("  ").next()?.rsplit('/').next()?))
    };
    lines.filter_map(of).collect()
}

/// Two disks that are served, and their socket.
pub(crate) fn two_disks(name: &str) -> (Dir, String, String, String) {
    let dir = Dir::new(name);
    let (a, b, socket) = (dir.path("a.zbd"), dir.path("b.zbd"), dir.path("s"));
    for disk in [&a, &b] {
        ok(&["create", disk, "--size", "64M", "--zone-size", "8M"]);
    }
    (dir, a, b, socket)
}

/// U15. Hosts know a disk by the number of its namespace, in whatever order the next server is told of the disks.
#[test]
fn u15_a_namespace_keeps_its_number_and_new_disks_get_higher_ones() {
    let (dir, a, b, socket) = two_disks("handover-order");
    let new = dir.path("new.zbd");
    ok(&["create", &new, "--size", "64M", "--zone-size", "8M"]);
    let (mut first, address) =
        Server::start(&["--nvme-tcp", "127.0.0.1:0", &a, &b, "--socket", &socket]);
    assert_eq!(namespaces(&mut first.1), ["1 a.zbd", "2 b.zbd"]);
    let of = ["--nvme-tcp", &address, &b, &new, &a, "--socket", &socket, "--takeover"];
    let (mut next, _) = Server::start(&of);
    assert_eq!(namespaces(&mut next.1), ["1 a.zbd", "2 b.zbd", "3 new.zbd"]);
    assert!(first.0.wait().unwrap().success());
}

/// K3. The next server keeps places for the hosts that the last one knew.
#[test]
fn k3_a_host_is_known_to_the_next_server() {
    let (_dir, a, _, socket) = two_disks("handover-known");
    let (_first, address) = Server::start(&["--nvme-tcp", "127.0.0.1:0", &a, "--socket", &socket]);
    let known = || state(&socket)["subsystem"]["known_hosts"].take();
    assert_eq!(known(), serde_json::json!([]));
    let mut admin = Queue::open_at(address.parse().unwrap(), Options::default());
    admin.ok(connect(0, 32, ANY_CONTROLLER, nqn(), HOST));
    let host = serde_json::json!([{"nqn": HOST, "address": "127.0.0.1"}]);
    assert_eq!(known(), host);
    drop(admin);
    let of = ["--nvme-tcp", &address, &a, "--socket", &socket, "--takeover"];
    let (_next, _) = Server::start(&of);
    assert_eq!(known(), host);
}

/// S9. The next server keeps places for the initiators that the last one knew.
#[test]
fn s9_an_initiator_is_known_to_the_next_server() {
    let (dir, a, _, socket) = two_disks("handover-known-initiator");
    let disk = [&*a, "--iqn", NAME];
    let (_first, at) = serve(&dir, NAME, &[&["--iscsi", "127.0.0.1:0"], &disk[..]].concat());
    let known = || state(&socket)["known_initiators"].take();
    assert_eq!(known(), serde_json::json!([]));
    let initiator = Initiator::logged_in_at(at, "iqn.2026-11.test:known");
    let all = serde_json::json!([{"nqn": "iqn.2026-11.test:known", "address": "127.0.0.1"}]);
    assert_eq!(known(), all);
    drop(initiator);
    let next = ["--takeover", "--iscsi", &at.to_string()];
    let _next = serve(&dir, NAME, &[&next[..], &disk].concat());
    assert_eq!(known(), all);
}

/// S11. Initiators know a disk by its number, so that a take-over which would give it another one is refused.
#[test]
fn s11_a_takeover_that_would_swap_units_is_refused() {
    let (dir, a, b, socket) = two_disks("handover-units");
    let (mut first, at) = serve(&dir, NAME, &["--iscsi", "127.0.0.1:0", &a, &b, "--iqn", NAME]);
    let at = at.to_string();
    let next = ["--takeover", "--iqn", NAME, "--iscsi", &at];
    let swapped = [&["serve", "--socket", &socket], &next[..], &[&*b, &*a]].concat();
    fails(&swapped, 3, "which would be LUN");
    assert!(last_is_there(&socket));
    let _next = serve(&dir, NAME, &[&next[..], &[&*a, &*b]].concat());
    assert!(first.0.wait().unwrap().success());
}

/// U16. What a server would need in vain is found before the running one is asked to leave, and that one goes on.
#[test]
fn u16_a_server_that_could_not_serve_takes_nothing() {
    let (dir, a, b, socket) = two_disks("handover-prove");
    let (server, address) = Server::start(&["--nvme-tcp", "127.0.0.1:0", &a, "--socket", &socket]);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let (_other, _) = Server::start(&["--nvme-tcp", "127.0.0.1:0", &b, "--socket", &dir.path("t")]);
    let link = dir.path("link.zbd");
    std::os::unix::fs::symlink(&a, &link).unwrap();
    let pid = format!("process {}", server.0.id());
    let next = ["serve", "--takeover", "--socket", &socket, "--nvme-tcp", &address, &a];
    let check = ["serve", "--check-config", "--takeover", "--socket", &socket];
    let other = ["--nvme-tcp", &address, &a, "--nqn", "nqn.2026-11.dev.zoneplug:other"];
    fails(&[&check[..], &other].concat(), 3, "would have the name");
    ok(&[&check[..], &["--nvme-tcp", &address, &a, "--nqn", nqn()]].concat());
    for (more, code, what) in [
        (&["--nqn", "nqn.2026-11.dev.zoneplug:other"][..], 3, "would have the name"),
        (&["--nqn", nqn(), "--metrics", &taken], 3, "no metrics at"),
        (&["--nqn", nqn(), "--nvme-tcp", &taken], 3, "cannot listen"),
        (&["--nqn", nqn(), "--nvme-tcp", "192.0.2.1:4420", "--allow-any-host"], 3, "cannot listen"),
    ] {
        fails(&[&next, more].concat(), code, what);
        assert!(ok(&["status", "--socket", &socket]).contains(&pid), "{what}");
    }
    for (disk, code, what) in [(&*b, 3, "open for writing"), (&link, 2, "are one disk")] {
        fails(&[&next, &[disk, "--nqn", nqn()][..]].concat(), code, what);
        assert!(ok(&["status", "--socket", &socket]).contains(&pid), "{what}");
    }
    // Another file at the path of the disk: a copy, and another disk.
    let away = dir.path("away.zbd");
    std::fs::rename(&a, &away).unwrap();
    for other in [&away, &b] {
        std::fs::copy(other, &a).unwrap();
        let mut copied = Command::new(&*ZONEPLUG);
        let out = soon(copied.args(&next[..]).args(["--nqn", nqn()]));
        assert!(!out.status.success(), "{}", text(&out.stdout));
        assert!(ok(&["status", "--socket", &socket]).contains(&pid));
        std::fs::remove_file(&a).unwrap();
    }
    // By its new name it is the same file.
    let moved = ["--nvme-tcp", &address, &away, "--socket", &socket, "--takeover"];
    let (next, _) = Server::start(&moved);
    assert!(ok(&["status", "--socket", &socket]).contains(&format!("process {}", next.0.id())));
}

/// U16. A server that fails when the running one has left already ends, and that one opens its disks again.
#[test]
fn u16_a_server_takes_its_disks_back_from_one_that_fails() {
    let (_dir, a, b, socket) = two_disks("handover-back");
    let (server, address) =
        Server::start(&["--nvme-tcp", "127.0.0.1:0", &a, &b, "--socket", &socket]);
    let status = || ok(&["status", "--socket", &socket]);
    let name = status().split_whitespace().next().unwrap().to_owned();
    let attr = |args: &[&str]| ok(&[&["attr", "--socket", &socket, &name], args].concat());
    attr(&["nomerges", "1"]);
    attr(&["enable", "0"]);
    // In the order of their names this one comes before the scheduler that has it.
    attr(&["scheduler", "mq-deadline"]);
    attr(&["fifo_batch", "4"]);
    let shown = || ["nomerges", "enable", "scheduler", "fifo_batch"].map(|name| attr(&[name]));
    let set = shown();
    let deep = format!("{b},zone_write_depth=4");
    let next = ["serve", "--nqn", nqn(), "--takeover", "--socket", &socket, "--nvme-tcp", &address];
    for time in 1..=3 {
        fails(&[&next[..], &[&a, &deep]].concat(), 4, "keeps the order of writes");
        wait_for(&socket);
        assert!(status().contains(&format!("process {}", server.0.id())), "time {time}");
        assert_eq!(shown(), set, "attributes that were set stay, time {time}");
    }
    // One that is killed in the middle.
    let ask = "import socket, sys
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
s.send(b'{\"cmd\":\"hand-over\"}\\n')
print(s.makefile().readline())";
    let left = Command::new("python3").args(["-c", ask, &socket]).output().unwrap();
    assert!(text(&left.stdout).contains("\"ends\":false"), "{}", text(&left.stdout));
    wait_for(&socket);
    assert_eq!(shown(), set);
    // One that dies when its own socket is in the place of the other's.
    let ask = "import os, socket, sys
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
s.send(b'{\"cmd\":\"hand-over\"}\\n')
s.makefile().readline()
os.unlink(sys.argv[1])
socket.socket(socket.AF_UNIX).bind(sys.argv[1])";
    assert!(Command::new("python3").args(["-c", ask, &socket]).status().unwrap().success());
    wait_for(&socket);
    assert_eq!(shown(), set);
    // And at last one that serves.
    let at_last = ["--takeover", "--socket", &socket, "--nvme-tcp", &address, &b, &a];
    let (mut last, _) = Server::start(&at_last);
    assert_eq!(shown(), set, "the next server sets them again");
    assert_eq!(namespaces(&mut last.1), ["2 b.zbd"], "the other one is not shown to hosts");
}

/// A next server that stands still, as one that is stopped does, keeps neither the running server from its end nor others
/// from knowing what goes on.
#[test]
fn a_server_that_waits_for_a_next_one_ends_at_a_signal() {
    let (_dir, a, _, socket) = two_disks("handover-signal");
    let (mut server, address) =
        Server::start(&["--nvme-tcp", "127.0.0.1:0", &a, "--socket", &socket]);
    let ask = "import socket, sys
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
s.send(b'{\"cmd\":\"hand-over\"}\\n')
print(s.makefile().readline(), flush=True)
sys.stdin.read()";
    let mut python = Command::new("python3");
    let python = python.args(["-c", ask, &socket]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut still = python.spawn().unwrap();
    let mut lines = BufReader::new(still.stdout.take().unwrap()).lines();
    let left = lines.next().unwrap().unwrap();
    assert!(left.contains("\"ends\":false"), "{left}");
    let next = ["serve", "--nqn", nqn(), "--takeover", "--socket", &socket, "--nvme-tcp", &address];
    // The error names the other hand-over, and not the open disk.
    let (first, second) = (still.id(), soon(Command::new(&*ZONEPLUG).args(next).arg(&a)));
    let said = text(&second.stderr);
    assert_eq!(second.status.code(), Some(3), "{said}");
    let what = format!("error: another hand-over is under way: process {first} takes over from");
    assert!(said.contains(&what) && said.contains(&format!("kill -9 {first}")), "{said}");
    let set = ["attr", "--socket", &socket, "tcp1n1", "nomerges", "1"];
    fails(&set, 3, &format!("left to process {first}"));
    let began = Instant::now();
    kill_process(Pid::from_child(&server.0), Signal::TERM).unwrap();
    let status = ends_within(&mut server.0, began + Duration::from_secs(5));
    assert!(status.success(), "{status}");
    assert!(still.try_wait().unwrap().is_none(), "it ends only because its input does");
    drop(still.stdin.take());
    still.wait().unwrap();
    let (_next, _) = Server::start(&next[3..].iter().copied().chain([&*a]).collect::<Vec<_>>());
}

/// U9. A next server that is stopped has the disks and serves none. The end of the running server ends both, and the disks are
/// free.
#[test]
fn u9_a_server_that_is_ended_takes_its_disks_back_from_one_that_is_stopped() {
    let (_dir, a, b, socket) = two_disks("handover-stopped");
    let (mut server, address) =
        Server::start(&["--nvme-tcp", "127.0.0.1:0", &a, &b, "--socket", &socket]);
    let name = ok(&["status", "--socket", &socket]).split_whitespace().next().unwrap().to_owned();
    let ask = "import os, signal, socket, sys
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
s.send(b'{\"cmd\":\"pass\",\"disk\":\"%s\"}\\n' % sys.argv[2].encode())
_, files, _, _ = socket.recv_fds(s, 65536, 16)
assert files
s.send(b'{\"cmd\":\"hand-over\"}\\n')
f = s.makefile()
while 'ends' not in f.readline(): pass
print('left', flush=True)
os.kill(os.getpid(), signal.SIGSTOP)";
    let mut python = Command::new("python3");
    let mut next = python.args(["-c", ask, &socket, &name]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(next.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "left");
    let stat = format!("/proc/{}/stat", next.id());
    while !std::fs::read_to_string(&stat).unwrap().contains(") T ") {
        std::thread::sleep(Duration::from_millis(5));
    }
    let began = Instant::now();
    kill_process(Pid::from_child(&server.0), Signal::TERM).unwrap();
    let status = ends_within(&mut server.0, began + Duration::from_secs(5));
    assert!(status.success(), "{status}");
    let ended = next.try_wait().unwrap();
    if ended.is_none() {
        let _ = next.kill();
        let _ = next.wait();
    }
    assert!(ended.is_some(), "it has the disks, and nobody serves them");
    for disk in [&a, &b] {
        assert!(ok(&["check", disk]).contains("it was closed"));
    }
    let (_next, _) = Server::start(&["--nvme-tcp", &address, &b, &a, "--socket", &socket]);
}

/// A signal ends a next server that waits for the disks, and the running one keeps them.
#[test]
fn a_server_that_waits_for_the_disks_ends_at_a_signal() {
    let (_dir, a, _, socket) = two_disks("handover-waits");
    // The running server waits ten seconds for such a disk.
    let stalls = format!("{a},fault=flush/lost");
    let (server, address) =
        Server::start(&["--nvme-tcp", "127.0.0.1:0", &stalls, "--socket", &socket]);
    let mut next = Command::new(&*ZONEPLUG)
        .args(["serve", "--nqn", nqn(), "--takeover", "--nvme-tcp", &address, &stalls])
        .args(["--socket", &socket])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let end = Instant::now() + Duration::from_secs(20);
    while state(&socket)["handed_over_to"] != next.id() {
        assert!(Instant::now() < end, "it does not ask for the disks");
        std::thread::sleep(Duration::from_millis(20));
    }
    let began = Instant::now();
    kill_process(Pid::from_child(&next), Signal::TERM).unwrap();
    let status = ends_within(&mut next, began + Duration::from_secs(5));
    assert_eq!(status.code(), Some(128 + 15), "as a shell says that SIGTERM ended it");
    assert_eq!(last_is(&socket), server.0.id());
}

/// U11. What was acknowledged is durable before a server leaves its disks, or it stays.
#[test]
fn u11_a_disk_that_cannot_be_flushed_is_not_left() {
    let (_dir, a, _, socket) = two_disks("handover-flush");
    let faulty = format!("{a},fault=flush/io");
    let (server, address) =
        Server::start(&["--nvme-tcp", "127.0.0.1:0", &faulty, "--socket", &socket]);
    let next = ["serve", "--nqn", nqn(), "--takeover", "--socket", &socket, "--nvme-tcp", &address];
    fails(&[&next[..], &[&faulty]].concat(), 1, "cannot be made durable");
    assert_eq!(last_is(&socket), server.0.id());
    // The next flush succeeds, and another server may ask.
    let (next, _) = Server::start(&[&next[3..], &[&faulty]].concat());
    assert_eq!(last_is(&socket), next.0.id());
}

/// U9. A host that is connected can connect to the next server, or nothing is taken over.
#[test]
fn u9_a_host_is_not_locked_out_by_a_takeover() {
    let (dir, a, _, socket) = two_disks("handover-locks-out");
    let key = dir.private("key", KEY);
    let (server, address) = Server::start(&["--nvme-tcp", "127.0.0.1:0", &a, "--socket", &socket]);
    let host = Queue::pair_at(&address, nqn());
    let next = ["serve", "--nqn", nqn(), "--takeover", "--socket", &socket, "--nvme-tcp", &address];
    for more in [
        ["--dhchap-key", &format!("nqn.other={key}")],
        ["--dhchap-key", &format!("{HOST}={key}")],
        ["--allow-host", "nqn.other"],
    ] {
        let what = format!("{}, and {HOST}, which is connected without a key, could not", nqn());
        fails(&[&next[..], &[&a], &more].concat(), 3, &what);
        assert_eq!(last_is(&socket), server.0.id());
    }
    drop(host);
}

/// Waits until a server has taken its disks back.
pub(crate) fn wait_for(socket: &str) {
    let end = std::time::Instant::now() + std::time::Duration::from_secs(20);
    let ask = || soon(Command::new(&*ZONEPLUG).args(["status", "--socket", socket]));
    while !ask().status.success() {
        assert!(std::time::Instant::now() < end, "it does not take its disks back");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

/// The status of a process, which must end by `end`.
fn ends_within(child: &mut Child, end: Instant) -> ExitStatus {
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        assert!(Instant::now() < end, "it does not end");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The process that serves.
pub(crate) fn last_is(socket: &str) -> u32 {
    process_in(&ok(&["status", "--socket", socket]))
}

/// The first process in what `status` prints.
pub(crate) fn process_in(shown: &str) -> u32 {
    let pid = shown.split_once("process ").map(|(_, rest)| rest.split(|c: char| !c.is_numeric()));
    pid.and_then(|mut parts| parts.next()?.parse().ok()).unwrap_or_default()
}

fn last_is_there(socket: &str) -> bool {
    ok(&["status", "--socket", socket]).contains("process")
}

#[test]
fn a_disk_that_goes_with_its_server_is_not_handed_over() {
    let dir = Dir::new("handover-mem");
    let socket = dir.path("s");
    let (server, address) =
        Server::start(&["--nvme-tcp", "127.0.0.1:0", "mem,zones=8", "--socket", &socket]);
    let next = ["serve", "--takeover", "--nvme-tcp", &address, "mem,zones=8", "--socket", &socket];
    fails(&next, 3, "which ends with it");
    assert!(last_is_there(&socket));
    drop(server);
}

/// Without a server of these disks it is a start like any other.
#[test]
fn a_takeover_without_a_server_is_a_start() {
    let dir = Dir::new("handover-none");
    let socket = dir.path("s");
    let args = ["--nvme-tcp", "127.0.0.1:0", "mem,zones=8", "--socket", &socket, "--takeover"];
    let (_server, _) = Server::start(&args);
    assert!(last_is_there(&socket));
}

/// Answers each question with the next of these lines, and keeps the questions.
fn fake(path: &str, answers: Vec<String>) -> Arc<Mutex<Vec<String>>> {
    let listener = UnixListener::bind(path).unwrap();
    let asked = Arc::new(Mutex::new(Vec::new()));
    let keeps = asked.clone();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut questions = BufReader::new(stream.try_clone().unwrap()).lines();
        for answer in answers {
            keeps.lock().unwrap().push(questions.next().unwrap().unwrap());
            stream.write_all(answer.as_bytes()).unwrap();
        }
        // A question that must not come.
        keeps.lock().unwrap().extend(questions.next().and_then(Result::ok));
    });
    asked
}

/// U9: a server of another version is refused before it is asked for anything.
#[test]
fn u9_a_version_that_cannot_read_the_state_of_the_other_takes_nothing() {
    let dir = Dir::new("handover-version");
    let disk = dir.path("d.zbd");
    ok(&["create", &disk, "--size", "64M", "--zone-size", "8M"]);
    for (n, answers) in [
        // A later one.
        &["{\"ok\":{\"state\":99,\"version\":\"9.9.9\",\"disks\":[{\"spec\":\"DISK\",\"colour\":\"red\"}]}}\n"][..],
        // A later one whose words are the same.
        &["{\"ok\":{\"state\":99,\"version\":\"9.9.9\",\"disks\":[{\"name\":\"tcp1n1\",\"spec\":\"DISK\",\"disks\":1,\"layers\":1,\
           \"place\":1,\"outlives\":true,\"address\":\"127.0.0.1:1\"}]}}\n"][..],
        // An earlier one, which passes nothing on.
        &["{\"ok\":{\"state\":STATE,\"version\":\"0.1.0\",\"disks\":[{\"name\":\"tcp1n1\",\"spec\":\"DISK\",\"disks\":1,\"layers\":1,\
           \"place\":1,\"outlives\":true,\"address\":\"127.0.0.1:1\"}]}}\n"][..],
        // One from before there was a takeover.
        &[
            "{\"error\":{\"code\":2,\"what\":\"not a question\",\"try\":\"a line\"}}\n",
            "{\"ok\":[{\"name\":\"tcp1n1\",\"spec\":\"DISK\",\"capacity_bytes\":1,\"zones\":1,\"zone_bytes\":1,\"pid\":1,\
             \"recovered\":false,\"reads\":0,\"read_bytes\":0,\"writes\":0,\"written_bytes\":0,\"others\":0,\"errors\":0,\
             \"replayed\":0,\"waiting\":0,\"live_plugs\":0}]}\n",
        ],
    ]
    .into_iter()
    .enumerate()
    {
        let answers = answers
            .iter()
            .map(|a| a.replace("DISK", &disk).replace("STATE", &zoneplug_host::STATE_VERSION.to_string()))
            .collect();
        let socket = dir.path(&format!("s{n}"));
        let asked = fake(&socket, answers);
        let mut next = Command::new(&*ZONEPLUG);
        let next = next.args(["serve", "--takeover", "--nvme-tcp", "127.0.0.1:0", &disk]);
        let out = soon(next.args(["--socket", &socket]));
        let err = text(&out.stderr);
        assert_eq!(out.status.code(), Some(3), "{err}");
        assert!(err.contains("process") && err.contains("\ntry: "), "{err}");
        let asked = asked.lock().unwrap();
        assert!(!asked.iter().any(|q| q.contains("hand-over")), "{asked:?}");
    }
}
