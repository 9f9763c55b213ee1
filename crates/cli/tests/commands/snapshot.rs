//! `zoneplug snapshot`: of a disk that is not open, of one that is served, and what the server allows. What a snapshot has is in
//! `crates/host/tests/file/snapshot.rs`.

use super::{Dir, ZONEPLUG, fails, json, noise, ok, ok_with};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A server that does not outlive its test, and the name of its disk.
struct Server {
    process: Child,
    name: String,
    socket: String,
}

impl Server {
    fn start(dir: &Dir, spec: &str) -> Server {
        let socket = dir.path("s");
        let mut process = Command::new(&*ZONEPLUG)
            .args(["serve", "--nvme-tcp", "127.0.0.1:0", spec, "--socket", &socket])
            .current_dir(dir.path(""))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let port = line.split_once("  ").unwrap().0.rsplit_once(':').unwrap().1;
        Server { process, name: format!("tcp{port}n1"), socket }
    }

    /// A connection, and the answer to each line.
    fn connect(&self) -> impl FnMut(&str) -> String + use<> {
        let mut stream = BufReader::new(UnixStream::connect(&self.socket).unwrap());
        move |question| {
            let _ = writeln!(stream.get_mut(), "{question}");
            let mut line = String::new();
            let _ = stream.read_line(&mut line);
            line
        }
    }

    fn pause(&self, most_ms: u64) -> String {
        format!(r#"{{"cmd":"pause","disk":"{}","most_ms":{most_ms}}}"#, self.name)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

const RESUME: &str = r#"{"cmd":"resume"}"#;

/// The UUID and the label of a disk.
fn identity(of: &str) -> String {
    ok(&["check", of]).lines().next().unwrap().split("UUID ").nth(1).unwrap().to_owned()
}

#[test]
fn a_snapshot_of_a_disk_that_is_not_open() {
    let dir = Dir::new("snapshot");
    let (disk, copy) = (dir.path("d.zbd"), dir.path("copy.zbd"));
    ok(&["create", &disk, "--size", "64M", "--zone-size", "8M", "--label", "mine"]);
    let data = noise(3 << 20, 1);
    ok_with(&["write", &disk], &data);
    let said = ok(&["snapshot", &disk, &copy]);
    assert!(said.contains("a snapshot of") && !said.contains("waited"), "{said}");
    assert_eq!(ok_with(&["read", &copy], b""), data);
    assert_ne!(identity(&disk), identity(&copy));
    assert!(identity(&copy).ends_with("label 'mine'"));
    let same = dir.path("same.zbd");
    ok(&["snapshot", &disk, &same, "--keep-uuid"]);
    assert_eq!(identity(&disk), identity(&same));
    std::fs::remove_file(&same).unwrap();
    // It replaces nothing, and a disk must be in one file.
    fails(&["snapshot", &disk, &copy], 3, "exists");
    let other = dir.path("other.zbd");
    fails(&["snapshot", "mem,zones=8", &other], 4, "is not in a file");
    fails(&["snapshot", "/none.zbd", &other], 3, "/none.zbd");
    fails(&["snapshot", "ublkb987654", &other], 3, "no server has ublkb987654");
    fails(&["snapshot", &disk, "/none/copy.zbd"], 3, "/none/copy.zbd");
    let there: Vec<_> =
        std::fs::read_dir(dir.path("")).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(there.len(), 2, "{there:?}");
}

#[test]
fn a_snapshot_of_a_disk_that_is_served() {
    let dir = Dir::new("snapshot-served");
    let (disk, copy) = (dir.path("d.zbd"), dir.path("copy.zbd"));
    ok(&["create", &disk, "--size", "64M", "--zone-size", "8M"]);
    let data = noise(3 << 20, 2);
    ok_with(&["write", &disk], &data);
    let own = identity(&disk);
    let server = Server::start(&dir, &format!("po2@{disk},timeout=30s"));
    // By its path, and by its name.
    for (of, keeps) in [(&disk, false), (&server.name, true)] {
        let mut command = vec!["snapshot", of, &copy, "--socket", &server.socket, "--json"];
        command.extend(keeps.then_some("--keep-uuid"));
        let made = json(&command);
        assert!(made["pause_ns"].as_u64().is_some_and(|ns| ns > 0), "{made}");
        assert_eq!(ok_with(&["read", &copy], b""), data);
        assert_eq!(identity(&copy) == own, keeps);
        std::fs::remove_file(&copy).unwrap();
    }
    // Without a way to its server, the command sees a disk that another process has open.
    fails(&["snapshot", &disk, &copy], 3, "is open for writing in another process");
    assert!(!std::path::Path::new(&copy).exists());
    fails(&["snapshot", &disk, &copy, "--pause", "2m"], 2, "not a time from 1ms to 60s");
}

/// U14. A copy of a served file has the UUID of the disk, and is another disk: it is not served, also where the disk was.
#[test]
fn u14_a_copy_of_a_served_file_is_another_disk() {
    let dir = Dir::new("snapshot-of-copy");
    let (disk, same, copy) = (dir.path("d.zbd"), dir.path("same.zbd"), dir.path("copy.zbd"));
    ok(&["create", &disk, "--size", "64M", "--zone-size", "8M"]);
    std::fs::copy(&disk, &same).unwrap();
    let data = noise(3 << 20, 4);
    ok_with(&["write", &same], &data);
    let server = Server::start(&dir, &disk);
    let snapshot = |of: &str| {
        let made = json(&["snapshot", of, &copy, "--socket", &server.socket, "--json"]);
        assert!(made["pause_ns"].is_null(), "{made}");
        assert_eq!(ok_with(&["read", &copy], b""), data);
        std::fs::remove_file(&copy).unwrap();
    };
    snapshot(&same);
    std::fs::rename(&disk, dir.path("away.zbd")).unwrap();
    std::fs::rename(&same, &disk).unwrap();
    snapshot(&disk);
}

/// U14. A server names its disk by a path that begins in its own directory.
#[test]
fn u14_a_relative_path_begins_where_its_server_is() {
    let dir = Dir::new("snapshot-relative");
    let (disk, copy) = (dir.path("d.zbd"), dir.path("copy.zbd"));
    ok(&["create", &disk, "--size", "64M", "--zone-size", "8M"]);
    let server = Server::start(&dir, "./d.zbd");
    let made = json(&["snapshot", &disk, &copy, "--socket", &server.socket, "--json"]);
    assert!(made["pause_ns"].as_u64().is_some_and(|ns| ns > 0), "{made}");
}

/// U14. The file of the disk was renamed, and another disk is at its path.
#[test]
fn u14_a_snapshot_is_of_the_file_that_is_served() {
    let dir = Dir::new("snapshot-renamed");
    let (disk, other) = (dir.path("d.zbd"), dir.path("other.zbd"));
    let (away, copy) = (dir.path("away.zbd"), dir.path("copy.zbd"));
    ok(&["create", &disk, "--size", "64M", "--zone-size", "8M"]);
    ok(&["create", &other, "--size", "64M", "--zone-size", "8M"]);
    let data = noise(3 << 20, 3);
    ok_with(&["write", &disk], &data);
    let server = Server::start(&dir, &disk);
    std::fs::rename(&disk, &away).unwrap();
    std::fs::rename(&other, &disk).unwrap();
    ok(&["snapshot", &server.name, &copy, "--socket", &server.socket]);
    assert_eq!(ok_with(&["read", &copy], b""), data, "of the disk that is served");
    // The other disk is no served one, and is copied as such.
    std::fs::remove_file(&copy).unwrap();
    let made = ok(&["snapshot", &disk, &copy, "--socket", &server.socket]);
    assert!(!made.contains("waited"), "{made}");
    assert_eq!(ok_with(&["read", &copy], b""), b"");
}

/// A server as it is seen by who asks it late: what is said is passed on, `resume` after its pause has ended.
fn late(server: &Server, path: &str) {
    let listener = UnixListener::bind(path).unwrap();
    let socket = server.socket.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut asks = BufReader::new(stream.unwrap());
            let mut answers = BufReader::new(UnixStream::connect(&socket).unwrap());
            let mut line = String::new();
            while asks.read_line(&mut line).is_ok_and(|n| n > 0) {
                if line.contains("resume") {
                    std::thread::sleep(Duration::from_millis(300));
                }
                let _ = answers.get_mut().write_all(line.as_bytes());
                line.clear();
                let _ = answers.read_line(&mut line);
                let _ = asks.get_mut().write_all(line.as_bytes());
                if line.is_empty() {
                    break;
                }
                line.clear();
            }
        }
    });
}

/// Data that were copied after the end of the pause may be newer than the rest.
#[test]
fn a_snapshot_whose_pause_was_too_short_is_not_made() {
    let dir = Dir::new("snapshot-late");
    let (disk, copy, socket) = (dir.path("d.zbd"), dir.path("copy.zbd"), dir.path("late"));
    ok(&["create", &disk, "--size", "64M", "--zone-size", "8M"]);
    let server = Server::start(&dir, &disk);
    late(&server, &socket);
    let snapshot = ["snapshot", &server.name, &copy, "--socket", &socket, "--pause"];
    fails(&[&snapshot[..], &["20ms"]].concat(), 1, "not kept still to the end");
    assert!(!std::fs::exists(&copy).unwrap());
    ok(&[&snapshot[..], &["10s"]].concat());
}

/// A pause ends when its time is over or its client has gone, and another client is answered meanwhile.
#[test]
fn a_pause_is_the_clients_and_ends_by_itself() {
    let dir = Dir::new("snapshot-pause");
    let disk = dir.path("d.zbd");
    ok(&["create", &disk, "--size", "64M", "--zone-size", "8M"]);
    let server = Server::start(&dir, &disk);
    // A drained disk is needed for the change of this attribute, so it waits for the end of a pause.
    let change = || {
        let since = Instant::now();
        let args = ["attr", &server.name, "zoned_qd1_writes", "1", "--socket", &server.socket];
        ok(&args);
        since.elapsed()
    };
    let mut ask = server.connect();
    assert!(ask(RESUME).contains("has no pause"));
    assert!(ask(&server.pause(60_001)).contains("no longer than 60s"));
    assert!(ask(&server.pause(30_000)).starts_with(r#"{"ok""#));
    let shown = ok(&["status", "--socket", &server.socket]);
    assert!(shown.contains("process"), "{shown}");
    assert!(ask(RESUME).contains("pause_ns"));
    assert!(ask(RESUME).contains("has no pause"));
    // Its time is over: the connection ends, and who asked learns that the disk was not still.
    let mut late = server.connect();
    assert!(late(&server.pause(300)).starts_with(r#"{"ok""#));
    std::thread::sleep(Duration::from_millis(600));
    assert_eq!(late(RESUME), "");
    assert!(change() < Duration::from_secs(20));
    // Its client has gone.
    let mut gone = server.connect();
    assert!(gone(&server.pause(60_000)).starts_with(r#"{"ok""#));
    drop(gone);
    assert!(change() < Duration::from_secs(20));
}
