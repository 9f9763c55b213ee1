//! Servers that take over from one that has just been started, or that dies meanwhile; signals that come together.

use crate::handover::{Server, nqn, process_in, two_disks};
use crate::*;
use rustix::process::{Pid, Signal, kill_process};
use std::process::Child;

/// A server of these arguments that is starting.
fn starts(args: &[&str]) -> Server {
    let mut command = Command::new(&*ZONEPLUG);
    command
        .args(["serve", "--nqn", nqn()])
        .args(args)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    Server::of(command.spawn().unwrap())
}

/// An address that is free.
fn free() -> String {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

/// Waits until the server of this process serves.
fn serves(socket: &str, server: &mut Child, what: &str) {
    let begun = Instant::now();
    let ask = || soon(Command::new(&*ZONEPLUG).args(["status", "--socket", socket]));
    while process_in(&text(&ask().stdout)) != server.id() {
        if let Some(status) = server.try_wait().unwrap() {
            let mut said = String::new();
            let _ = std::io::Read::read_to_string(server.stderr.as_mut().unwrap(), &mut said);
            panic!("{what}: {status}\n{said}");
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "{what}: it does not serve");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// U9. A server has its disks before it answers at its socket. The next one waits for that answer.
#[test]
fn u9_a_server_that_has_just_been_started_is_taken_over() {
    let (_dir, a, _, socket) = two_disks("races-start");
    let address = free();
    let first = ["--nvme-tcp", &address, &a, "--socket", &socket];
    let next = ["--takeover", "--nvme-tcp", &address, &a, "--socket", &socket];
    for milliseconds in [1, 3, 6, 10, 20] {
        let _first = starts(&first);
        std::thread::sleep(Duration::from_millis(milliseconds));
        let mut next = starts(&next);
        serves(&socket, &mut next.0, &format!("after {milliseconds} ms"));
    }
}

/// U9. A server that is killed while its disks are taken over leaves them to the next one, whatever it has said before.
#[test]
fn u9_a_server_that_dies_during_a_hand_over_leaves_its_disks() {
    let (_dir, a, _, socket) = two_disks("races-death");
    let address = free();
    let first = ["--nvme-tcp", &address, &a, "--socket", &socket];
    let next = ["--takeover", "--nvme-tcp", &address, &a, "--socket", &socket];
    for milliseconds in (0..40).step_by(4) {
        let (mut first, _) = Server::start(&first);
        let mut next = starts(&next);
        std::thread::sleep(Duration::from_millis(milliseconds));
        first.0.kill().unwrap();
        first.0.wait().unwrap();
        serves(&socket, &mut next.0, &format!("killed after {milliseconds} ms"));
    }
}

/// U9. The same at the worst moment: the next server has the open files, and has asked for the disks. A program between the two
/// passes everything on, and at that question it kills the server and ends.
#[test]
fn u9_a_server_that_dies_when_it_is_asked_leaves_its_disks() {
    let (dir, a, _, socket) = two_disks("races-asked");
    let (address, behind) = (free(), dir.path("behind"));
    let (first, _) = Server::start(&["--nvme-tcp", &address, &a, "--socket", &behind]);
    let between = "import os, signal, socket, sys
here = socket.socket(socket.AF_UNIX)
here.bind(sys.argv[1])
here.listen()
print('ready', flush=True)
while True:
    asks, there = here.accept()[0], socket.socket(socket.AF_UNIX)
    there.connect(sys.argv[2])
    for line in asks.makefile('rb'):
        if b'hand-over' in line:
            os.kill(int(sys.argv[3]), signal.SIGKILL)
            sys.exit()
        there.sendall(line)
        data, files = b'', []
        while not data.endswith(b'\\n'):
            part, some, _, _ = socket.recv_fds(there, 65536, 64)
            data, files = data + part, files + some
        socket.send_fds(asks, [data], files)";
    let mut python = Command::new("python3");
    python.args(["-c", between, &socket, &behind, &first.0.id().to_string()]);
    let mut python = python.stdout(Stdio::piped()).spawn().unwrap();
    let ready = BufReader::new(python.stdout.take().unwrap()).lines().next().unwrap().unwrap();
    assert_eq!(ready, "ready");
    let mut next = starts(&["--takeover", "--nvme-tcp", &address, &a, "--socket", &socket]);
    assert!(python.wait().unwrap().success(), "it was asked for the disks");
    serves(&socket, &mut next.0, "after it was asked");
}

/// timeout(1) signals its child, and then the group of both. That is one request to end, and not two.
#[test]
fn signals_that_come_together_ask_once() {
    let (_dir, a, _, socket) = two_disks("races-signals");
    let slow = format!("{a},fault=flush/delay=400ms");
    for (gap, code) in [(0, 0), (150, 130)] {
        let (mut server, _) =
            Server::start(&["--nvme-tcp", "127.0.0.1:0", &slow, "--socket", &socket]);
        kill_process(Pid::from_child(&server.0), Signal::TERM).unwrap();
        std::thread::sleep(Duration::from_millis(gap));
        kill_process(Pid::from_child(&server.0), Signal::INT).unwrap();
        assert_eq!(server.0.wait().unwrap().code(), Some(code), "{gap} ms later");
    }
}
