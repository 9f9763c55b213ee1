//! Readers and servers that stall: nothing else waits for them.

use super::{Dir, ZONEPLUG, at_once, ok, text};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{ErrorKind, PipeReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A time that is far above what each step takes, and below what a stalled reader takes.
const MOST: Duration = Duration::from_secs(30);

fn eventually(mut is: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + MOST;
    while !is() {
        if Instant::now() > end {
            return false;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    true
}

/// A server that does not outlive its test.
struct Server(Child);

impl Server {
    fn start(args: &[&str], out: Stdio, err: Stdio) -> Server {
        let args = [&["serve", "--log-level", "info"], args].concat();
        Server(Command::new(&*ZONEPLUG).args(args).stdout(out).stderr(err).spawn().unwrap())
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }

    /// The exit code with which it ends. `None`: it does not end.
    fn ends(&mut self) -> Option<i32> {
        let ended = eventually(|| self.0.try_wait().unwrap().is_some());
        ended.then(|| self.0.wait().unwrap().code().unwrap_or(-1))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A pipe that is full, and its reader, which reads nothing.
fn full_pipe() -> (PipeReader, Stdio) {
    let (reader, writer) = std::io::pipe().unwrap();
    const O_NONBLOCK: i32 = 0o4000;
    let path = format!("/proc/self/fd/{}", writer.as_raw_fd());
    let mut fill =
        std::fs::OpenOptions::new().write(true).custom_flags(O_NONBLOCK).open(path).unwrap();
    for piece in [4096, 1] {
        while fill.write(&[b'x'; 4096][..piece]).is_ok() {}
    }
    (reader, writer.into())
}

fn shown(socket: &str) -> bool {
    let out = at_once(&["status", "--socket", socket]);
    out.status.success() && text(&out.stdout).contains("process")
}

/// T8: a server whose log is not read answers, and sees a signal.
#[test]
fn t8_a_stalled_reader_does_not_hold_up_the_end_of_a_server() {
    for stalls in ["stderr", "stdout"] {
        let dir = Dir::new(&format!("stalled-{stalls}"));
        let socket = dir.path("s");
        let (_reader, pipe) = full_pipe();
        let (out, err) = match stalls {
            "stdout" => (pipe, Stdio::null()),
            _ => (Stdio::null(), pipe),
        };
        let args = ["--nvme-tcp", "127.0.0.1:0", "mem,zones=8", "--socket", &socket];
        let mut server = Server::start(&args, out, err);
        assert!(eventually(|| shown(&socket)));
        server.signal(Signal::TERM);
        assert_eq!(server.ends(), Some(0), "it waits for the reader of its {stalls}");
    }
}

/// U9, T8: a server whose log is not read hands its disks over.
#[test]
fn u9_a_stalled_reader_does_not_hold_up_a_hand_over() {
    let dir = Dir::new("stalled-handover");
    let (disk, socket) = (dir.path("d.zbd"), dir.path("s"));
    ok(&["create", &disk, "--size", "64M", "--zone-size", "8M"]);
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let address = port.to_string();
    let args = ["--nvme-tcp", &address, &disk, "--socket", &socket, "--nqn", "nqn.2026-11.dev.x:y"];
    let (_reader, pipe) = full_pipe();
    let mut last = Server::start(&args, Stdio::null(), pipe);
    assert!(eventually(|| shown(&socket)));
    let next = [&args[..], &["--takeover"]].concat();
    let next = Server::start(&next, Stdio::null(), Stdio::inherit());
    assert_eq!(last.ends(), Some(0), "the last server waits for the reader of its log");
    let process = format!("process {}", next.0.id());
    assert!(eventually(
        || text(&at_once(&["status", "--socket", &socket]).stdout).contains(&process)
    ));
}

/// A server that fails says why, and ends although its words are not read.
#[test]
fn t8_a_failed_start_ends_although_nothing_reads_why() {
    let (_reader, pipe) = full_pipe();
    let args = ["serve", "--nvme-tcp", "127.0.0.1:0", "/none.zbd"];
    let server = Command::new(&*ZONEPLUG).args(args).stdout(Stdio::null()).stderr(pipe).spawn();
    let mut server = Server(server.unwrap());
    assert_eq!(server.ends(), Some(3), "it waits for the reader of its error");
}

/// T7: a server that is stopped is named.
#[test]
fn t7_status_names_a_server_that_does_not_answer() {
    let dir = Dir::new("stalled-server");
    let socket = dir.path("s");
    let args = ["--nvme-tcp", "127.0.0.1:0", "mem,zones=8", "--socket", &socket];
    let server = Server::start(&args, Stdio::null(), Stdio::null());
    assert!(eventually(|| shown(&socket)));
    server.signal(Signal::STOP);
    let (pid, start) = (server.0.id(), Instant::now());
    let why = format!("process {pid} does not answer at {socket}");
    let out = at_once(&["status", "--socket", &socket]);
    let said = text(&out.stderr);
    assert_eq!(out.status.code(), Some(3), "{said}");
    assert!(said.contains(&why) && said.contains(&format!("kill -CONT {pid}")), "{said}");
    assert_eq!(said.lines().count(), 2, "{said}");
    let out = at_once(&["status", "--json", "--socket", &socket]);
    assert_eq!(out.status.code(), Some(3));
    let document: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(
        (&document["disks"], &document["error"]["exit"]),
        (&serde_json::json!([]), &3.into())
    );
    assert_eq!(
        (&document["silent"][0]["pid"], &document["silent"][0]["socket"]),
        (&pid.into(), &socket.as_str().into())
    );
    let out = at_once(&["attr", "tcp4420n1", "--socket", &socket]);
    assert!(text(&out.stderr).contains(&why), "{}", text(&out.stderr));
    assert!(start.elapsed() < Duration::from_secs(40), "{:?}", start.elapsed());
    server.signal(Signal::CONT);
    assert!(shown(&socket));
}

#[test]
fn a_server_over_nvme_tcp_that_had_no_file_left_accepts_again() {
    accepts_again("--nvme-tcp");
}

#[test]
fn a_server_over_iscsi_that_had_no_file_left_accepts_again() {
    accepts_again("--iscsi");
}

/// A server that could not accept connections, because it had no file left for them, accepts again when some have ended.
fn accepts_again(door: &str) {
    let dir = Dir::new(&format!("no-file-left{door}"));
    let socket = dir.path("s");
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let args = [door, &address.to_string(), "mem,zones=4,zone-size=1M", "--socket", &socket];
    let server = Server::start(&args, Stdio::null(), Stdio::null());
    assert!(eventually(|| shown(&socket)));
    let files = format!("/proc/{}/fd", server.0.id());
    let open = || std::fs::read_dir(&files).unwrap().count();
    // At its start a server sees to it that it may open enough.
    let limit = ["--pid", &server.0.id().to_string(), "--nofile=64"];
    assert!(Command::new("prlimit").args(limit).status().unwrap().success());
    let connect = || TcpStream::connect(address).unwrap();
    let many: Vec<TcpStream> = (0..100).map(|_| connect()).collect();
    // An accept that waits holds a number without a file; a caller of this test may have left it a file above the limit.
    assert!(eventually(|| open() >= 60), "{door}: {} files", open());
    let mut last = 0;
    assert!(eventually(|| std::mem::replace(&mut last, open()) == last), "{door}");
    drop(many);
    // No door speaks this, so the connection ends as soon as it is accepted.
    let mut late = connect();
    late.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    late.write_all(&[0; 128]).unwrap();
    let ended = late.read(&mut [0; 1]).map_err(|e| e.kind());
    assert_ne!(ended, Err(ErrorKind::WouldBlock), "{door}: no connection is accepted");
}

/// A server that has no file left for a client of its metrics answers that client once it may open files again.
#[test]
fn metrics_of_a_server_that_had_no_file_left_are_there_again() {
    let dir = Dir::new("no-file-left-metrics");
    let socket = dir.path("s");
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let metrics = ["--metrics", &address.to_string()];
    let disk = ["--nvme-tcp", "127.0.0.1:0", "mem,zones=4,zone-size=1M", "--socket", &socket];
    let server = Server::start(&[&disk[..], &metrics].concat(), Stdio::null(), Stdio::null());
    assert!(eventually(|| shown(&socket)));
    let pid = server.0.id().to_string();
    let is_open = |n: &u32| std::path::Path::new(&format!("/proc/{pid}/fd/{n}")).exists();
    let may_open = |most: u32| {
        let limit = ["--pid", &pid, &format!("--nofile={most}:")];
        assert!(Command::new("prlimit").args(limit).status().unwrap().success());
    };
    // A file that the server closes meanwhile is one for the client: then another client tries.
    let mut waiting = None;
    let waits = || {
        may_open((0..).find(|n| !is_open(n)).unwrap());
        let mut client = TcpStream::connect(address).unwrap();
        client.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
        client.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        // At the end of an answer the server has closed its connection, which the next try must not count as open.
        let answer = client.read_to_end(&mut Vec::new()).map_err(|e| e.kind());
        waiting = Some(client);
        answer == Err(ErrorKind::WouldBlock)
    };
    assert!(eventually(waits));
    let mut client = waiting.unwrap();
    may_open(1024);
    client.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    assert_eq!(client.read(&mut [0; 1]).map_err(|e| e.kind()), Ok(1));
}
