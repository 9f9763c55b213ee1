//! `zoneplug serve --takeover` over the network, which needs no kernel. With block devices it is proven in a virtual
//! machine.

use super::{Dir, ZONEPLUG, fails, ok, soon, text};
use std::io::{BufRead, BufReader, Lines, Write};
use std::os::unix::net::UnixListener;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex};

const NQN: &str = "nqn.2026-11.dev.zoneplug:handover";

/// A server that does not outlive its test.
struct Server(Child, Lines<BufReader<ChildStdout>>);

impl Server {
    /// Starts one, and returns the address that it says.
    fn start(args: &[&str]) -> (Server, String) {
        let mut server = Command::new(ZONEPLUG)
            .args(["serve", "--nqn", NQN])
            .args(args)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
        let line = lines.next().unwrap().unwrap();
        let address = line.split_once("  ").unwrap().0.to_owned();
        (Server(server, lines), address)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
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
        assert!(last.1.next().is_none_or(|line| !line.unwrap().contains("error")));
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
    // It has no disk of the one that is running, and so does not touch it; but the address is taken.
    fails(
        &["serve", "--takeover", "--socket", &dir.path("t"), "--nvme-tcp", &address, &other],
        1,
        &address,
    );
    assert!(last_is_there(&socket));
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
        let answers = answers.iter().map(|a| a.replace("DISK", &disk)).collect();
        let socket = dir.path(&format!("s{n}"));
        let asked = fake(&socket, answers);
        let mut next = Command::new(ZONEPLUG);
        let next = next.args(["serve", "--takeover", "--nvme-tcp", "127.0.0.1:0", &disk]);
        let out = soon(next.args(["--socket", &socket]));
        let err = text(&out.stderr);
        assert_eq!(out.status.code(), Some(3), "{err}");
        assert!(err.contains("process") && err.contains("\ntry: "), "{err}");
        let asked = asked.lock().unwrap();
        assert!(!asked.iter().any(|q| q.contains("hand-over")), "{asked:?}");
    }
}
