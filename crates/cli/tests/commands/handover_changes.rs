//! Paths, keys, files, attributes and names that change while a server hands its disks over.

use super::handover::{Server, last_is, nqn, two_disks, wait_for};
use super::nvme_host::{BLOCK, HOST, KEY, Queue};
use super::{ZONEPLUG, fails, ok, soon, state, text};
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

/// U9, U16. What was compared is what is served, and what is taken back, whatever is at the paths of disks and keys by then.
#[test]
fn u16_paths_and_keys_that_change_meanwhile_change_no_disk() {
    let (dir, a, b, socket) = two_disks("handover-paths");
    let (key, other, moved) = (dir.path("key"), dir.path("other-key"), dir.path("moved.zbd"));
    for (key, first) in [(&key, 0u8), (&other, 100)] {
        std::fs::write(key, (first..first + 64).collect::<Vec<u8>>()).unwrap();
    }
    let spec = format!("crypt,key-file={key}@{a}");
    let (server, address) =
        Server::start(&["--nvme-tcp", "127.0.0.1:0", &spec, "--socket", &socket]);
    let data = vec![7u8; BLOCK as usize];
    let (_admin, mut q) = Queue::pair_at(&address, nqn());
    q.ok(zoneplug_nvme::initiator::write(1, 0, data.clone(), BLOCK));
    drop((_admin, q));
    let holds = || {
        let (_admin, mut q) = Queue::pair_at(&address, nqn());
        q.ok(zoneplug_nvme::initiator::read(1, 0, 1, BLOCK)).data == data
    };
    // A next server that leaves time for a change, and then gives up.
    let ask = "import shutil, socket, sys
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
s.send(b'{\"cmd\":\"hand-over\"}\\n')
s.makefile().readline()
for a, b in zip(sys.argv[2::2], sys.argv[3::2]): shutil.move(a, b)";
    let change = |moves: &[&str]| {
        let done = Command::new("python3").args(["-c", ask, &socket]).args(moves).status();
        assert!(done.unwrap().success());
        wait_for(&socket);
        assert_eq!(last_is(&socket), server.0.id());
    };
    change(&[&key, &dir.path("key-elsewhere")]);
    assert!(holds(), "its key is gone");
    change(&[&other, &key, &a, &moved, &b, &a]);
    assert!(holds(), "another key and another disk are at its paths");
    // The next server is told of the disk where it is now.
    let new = format!("crypt,key-file={}@{moved}", dir.path("key-elsewhere"));
    let wrong =
        ["serve", "--nqn", nqn(), "--takeover", "--socket", &socket, "--nvme-tcp", &address];
    // Another disk is there, so this is no take-over: its address is in use.
    fails(&[&wrong[..], &[&spec]].concat(), 3, &address);
    assert_eq!(last_is(&socket), server.0.id());
    let (_next, _) = Server::start(&[&wrong[3..], &[&new]].concat());
    assert!(holds());
}

/// L13. Two servers of one name would give numbers away that hosts have from the other.
#[test]
fn l13_a_name_is_of_one_server() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let (dir, a, b, socket) = two_disks("handover-name");
    let free = || {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap().to_string()
    };
    let (first, second) = (free(), free());
    let (mut server, _) = Server::start(&["--nvme-tcp", &first, &a, "--socket", &socket]);
    let args = ["--nvme-tcp", &second, &b, "--socket", &dir.path("t")];
    let named = ["serve", "--nqn", nqn()];
    fails(&[&named[..], &args].concat(), 3, "another server of this machine serves");
    // One that takes over has the name, and keeps it.
    let next = ["--takeover", "--socket", &socket, "--nvme-tcp", &first, &a];
    let (mut next, _) = Server::start(&next);
    server.0.wait().unwrap();
    fails(&[&named[..], &args].concat(), 3, "another server of this machine serves");
    next.0.kill().unwrap();
    next.0.wait().unwrap();
    let (_other, _) = Server::start(&args);
}

/// A trace goes on with its disk, whether another server takes the disk over or the same one takes it back.
#[test]
fn a_trace_goes_on_over_a_hand_over() {
    let (dir, a, _, socket) = two_disks("handover-trace");
    let (trace, none) = (dir.path("trace"), dir.path("none/trace"));
    let traced = format!("trace,file={trace}@{a}");
    let (first, address) =
        Server::start(&["--nvme-tcp", "127.0.0.1:0", &traced, "--socket", &socket]);
    let lines = || std::fs::read_to_string(&trace).unwrap_or_default().lines().count();
    let asks = || {
        let (_admin, mut q) = Queue::pair_at(&address, nqn());
        q.ok(zoneplug_nvme::initiator::read(1, 0, 1, BLOCK));
    };
    asks();
    let next = ["serve", "--nqn", nqn(), "--takeover", "--socket", &socket, "--nvme-tcp", &address];
    // A trace that cannot be made is known before the running server leaves.
    let elsewhere = format!("trace,file={none}@{a}");
    fails(&[&next[..], &[&elsewhere]].concat(), 3, "there is no directory");
    let check = ["serve", "--check-config", "--nvme-tcp", "127.0.0.1:0", &elsewhere];
    fails(&check, 3, "there is no directory");
    assert_eq!(last_is(&socket), first.0.id());
    // One that fails at the last step: the first server goes on, and its trace.
    let before = lines();
    fails(&[&next[..], &[&format!("{traced},zone_write_depth=4")]].concat(), 4, "keeps the order");
    wait_for(&socket);
    asks();
    assert_eq!(last_is(&socket), first.0.id());
    assert!(lines() > before && before > 0, "{before} lines, then {}", lines());
    let before = lines();
    let (_next, _) = Server::start(&[&next[3..], &[&traced]].concat());
    asks();
    assert!(lines() > before, "{before} lines, then {}", lines());
    let text = std::fs::read_to_string(&trace).unwrap();
    let fields = |n: usize| text.lines().map(move |l| l.split_whitespace().nth(n).unwrap());
    let numbers: Vec<u64> = fields(2).map(|n| n.parse().unwrap()).collect();
    assert_eq!(numbers, (1..=numbers.len() as u64).collect::<Vec<_>>());
    let times: Vec<f64> = fields(3).map(|t| t.parse().unwrap()).collect();
    assert!(times.is_sorted(), "{times:?}");
}

/// U15. What is set before the disks are left is set again by the next server; after that it is refused, and not forgotten.
#[test]
fn u15_what_is_set_meanwhile_is_passed_on_or_refused() {
    let (_dir, a, _, socket) = two_disks("handover-meanwhile");
    let (_server, address) = Server::start(&["--nvme-tcp", "127.0.0.1:0", &a, "--socket", &socket]);
    let name = ok(&["status", "--socket", &socket]).split_whitespace().next().unwrap().to_owned();
    let ask = "import socket, sys
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
f = s.makefile()
for question in 'state', 'hand-over':
    s.send(b'{\"cmd\":\"%s\"}\\n' % question.encode())
    print(f.readline(), end='', flush=True)
    sys.stdin.readline()";
    let mut next = Command::new("python3")
        .args(["-c", ask, &socket])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(next.stdout.take().unwrap()).lines();
    let mut line = || lines.next().unwrap().unwrap();
    assert!(line().contains("\"set\":{}"));
    ok(&["attr", "--socket", &socket, &name, "nomerges", "1"]);
    ok(&["attr", "--socket", &socket, &name, "enable", "0"]);
    next.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    let left = line();
    assert!(left.contains("\"nomerges\":\"1\"") && left.contains("\"enabled\":false"), "{left}");
    let late = ["attr", "--socket", &socket, &name, "nomerges", "2"];
    let late = soon(Command::new(&*ZONEPLUG).args(late));
    assert!(!late.status.success() && text(&late.stderr).contains("being left"), "{late:?}");
    drop(next.stdin.take());
    next.wait().unwrap();
    // Taken back, and handed over after all.
    wait_for(&socket);
    let (_next, _) =
        Server::start(&["--takeover", "--nvme-tcp", &address, &a, "--socket", &socket]);
    let is = |attribute: &str| ok(&["attr", "--socket", &socket, &name, attribute]);
    assert_eq!((is("nomerges").trim(), is("enable").trim()), ("1", "0"));
}

/// U9. A server says which key and group a host has, and never the key, so that the next one can compare them.
#[test]
fn u9_keys_of_hosts_are_compared() {
    let (dir, a, _, socket) = two_disks("handover-keys");
    // One secret, for two transformations.
    let other = KEY.replace("DHHC-1:01:", "DHHC-1:00:");
    let keys = [dir.private("key", KEY), dir.private("other", other)];
    let [key, other] = keys.map(|key| format!("{HOST}={key}"));
    let (_server, address) = Server::start(&[
        "--nvme-tcp",
        "127.0.0.1:0",
        &a,
        "--socket",
        &socket,
        "--dhchap-key",
        &key,
    ]);
    let checks = |of: &serde_json::Value| of["subsystem"]["key_checks"][HOST].clone();
    let was = checks(&state(&socket));
    assert!(was.as_str().is_some_and(|text| text.len() > 20), "{was}");
    let told = |more: &[&str]| {
        let at = ["--takeover", "--nvme-tcp", &address, &a, "--socket", &socket];
        // No host is connected, so each is taken over.
        let (next, _) = Server::start(&[&at[..], more].concat());
        let is = checks(&state(&socket));
        drop(next);
        is
    };
    assert_eq!(told(&["--dhchap-key", &key]), was);
    assert_ne!(told(&["--dhchap-key", &other]), was);
    assert_ne!(told(&["--dhchap-key", &key, "--dhchap-dhgroup", "null"]), was);
}
