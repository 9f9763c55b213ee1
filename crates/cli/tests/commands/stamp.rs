//! Servers of NVMe/TCP that are killed or ended, and started again with other arguments or other files: hosts find the disks
//! that they know under their numbers, or the start is refused.

use super::nvme_host::Queue;
use super::{Dir, ZONEPLUG, fails, noise, ok, soon, state, text};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// The place of one subsystem: its address, its name, and what its servers leave for the next one.
struct StampedSubsystem {
    dir: Dir,
    address: String,
    nqn: String,
}

impl StampedSubsystem {
    fn new(name: &str) -> StampedSubsystem {
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let nqn = format!("nqn.2026-11.dev.zoneplug:stamp-{name}-{}", std::process::id());
        StampedSubsystem { dir: Dir::new(&format!("stamp-{name}")), address: port.to_string(), nqn }
    }

    /// The file that a server leaves.
    fn stamp(&self) -> PathBuf {
        let directory = match rustix::process::geteuid().is_root() {
            true => PathBuf::from("/run/zoneplug"),
            false => PathBuf::from(self.dir.path("run/zoneplug")),
        };
        directory.join(format!("{}.hosts", self.nqn))
    }

    fn create(&self, name: &str) -> String {
        let path = self.dir.path(name);
        ok(&["create", &path, "--size", "64M", "--zone-size", "8M"]);
        path
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&*ZONEPLUG);
        let socket = self.dir.path("s");
        command.args(["serve", "--nqn", &self.nqn, "--socket", &socket]).args(args);
        command.env("XDG_RUNTIME_DIR", self.dir.path("run"));
        command
    }

    /// Serves disks.
    fn serve(&self, disks: &[&str]) -> Server {
        self.serve_with(&[], disks)
    }

    fn serve_with(&self, flags: &[&str], disks: &[&str]) -> Server {
        let args = [flags, &["--nvme-tcp", &self.address], disks].concat();
        let mut child = self.command(&args).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let lines = lines.take_while(|line| !line.starts_with("nvme connect")).collect();
        Server { child, lines, socket: self.dir.path("s") }
    }

    /// Serves disks in vain: the error.
    fn refused(&self, flags: &[&str], disks: &[&str]) -> String {
        let out = soon(&mut self.command(&[flags, &["--nvme-tcp", &self.address], disks].concat()));
        let said = text(&out.stderr);
        assert_eq!(out.status.code(), Some(3), "{said}");
        assert!(said.contains("--forget-hosts"), "{said}");
        said
    }
}

impl Drop for StampedSubsystem {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(self.stamp());
    }
}

/// A server that does not outlive its test.
struct Server {
    child: Child,
    /// The lines that it says first.
    lines: Vec<String>,
    socket: String,
}

impl Server {
    /// Each namespace: its number, and the file of its disk, or the kind of a disk in memory.
    fn namespaces(&self) -> Vec<String> {
        let of = |line: &String| {
            let (nsid, rest) = line.strip_prefix("namespace ")?.split_once("  ")?;
            Some(format!("{nsid} {}", rest.split("  ").next()?.rsplit('/').next()?))
        };
        self.lines.iter().filter_map(of).collect()
    }

    /// The identifier of the disk with this number.
    fn uuid(&self, nsid: u32) -> String {
        let state = state(&self.socket);
        let disks = state["disks"].as_array().unwrap();
        let is = |d: &&Value| d["name"].as_str().unwrap().ends_with(&format!("n{nsid}"));
        disks.iter().find(is).unwrap()["uuid"].as_str().unwrap().to_owned()
    }

    fn end(mut self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
        let status = self.child.wait().unwrap();
        assert_eq!(status.success(), signal == Signal::TERM, "{status}");
    }

    fn kill(self) {
        self.end(Signal::KILL);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// L13.
#[test]
fn l13_a_disk_keeps_its_number_and_identifier_when_its_server_is_killed() {
    let place = StampedSubsystem::new("order");
    let [a, b, new] = ["a.zbd", "b.zbd", "new.zbd"].map(|name| place.create(name));
    let server = place.serve(&[&a, &b]);
    assert_eq!(server.namespaces(), ["1 a.zbd", "2 b.zbd"]);
    // Hosts cannot know anything of a subsystem that is new.
    assert!(
        !server.lines.iter().any(|line| line.starts_with("hosts may find")),
        "{:?}",
        server.lines
    );
    let uuids = [1, 2].map(|nsid| server.uuid(nsid));
    server.kill();
    // In another order, spelled in other ways, with a new disk in front.
    let link = place.dir.path("link.zbd");
    std::os::unix::fs::symlink(&a, &link).unwrap();
    let server = place.serve(&[&new, &format!("delay,write=0ms@{b},nomerges=1"), &link]);
    assert_eq!(server.namespaces(), ["1 link.zbd", "2 b.zbd,nomerges=1", "3 new.zbd"]);
    assert_eq!([1, 2].map(|nsid| server.uuid(nsid)), uuids);
    server.kill();
    // A number that a host may hold goes to no other disk.
    let server = place.serve(&[&new, &b]);
    assert_eq!(server.namespaces(), ["2 b.zbd", "3 new.zbd"]);
    server.kill();
    std::fs::remove_file(&link).unwrap();
    let other = place.create("other.zbd");
    let server = place.serve(&[&other, &b]);
    assert_eq!(server.namespaces(), ["2 b.zbd", "4 other.zbd"]);
    server.kill();
    // A file that was moved is the same one.
    let moved = place.dir.path("moved.zbd");
    std::fs::rename(&a, &moved).unwrap();
    let server = place.serve(&[&b, &moved]);
    assert_eq!(server.namespaces(), ["1 moved.zbd", "2 b.zbd"]);
    assert_eq!(server.uuid(1), uuids[0]);
    server.kill();
    // The operator says that no host has them any more.
    let server = place.serve_with(&["--forget-hosts"], &[&b, &moved]);
    assert_eq!(server.namespaces(), ["1 b.zbd", "2 moved.zbd"]);
    assert_eq!([2, 1].map(|nsid| server.uuid(nsid)), uuids, "they are of the disks");
}

/// L13. Whatever hosts would find changed is refused, before a disk is opened for writing.
#[test]
fn l13_a_disk_that_is_not_what_hosts_know_is_refused() {
    let place = StampedSubsystem::new("refused");
    let disk = place.create("a.zbd");
    let key = place.dir.private("key", noise(64, 1));
    let other_key = place.dir.private("other-key", noise(64, 2));
    let spec = format!("crypt,key-file={key}@{disk}");
    let backup = place.dir.path("backup.zbd");
    std::fs::copy(&disk, &backup).unwrap();
    let server = place.serve(&[&spec]);
    let uuid = server.uuid(1);
    server.kill();
    let bytes = std::fs::read(&disk).unwrap();
    let same_bytes = || assert!(std::fs::read(&disk).unwrap() == bytes, "the disk is changed");
    // Another key in the same file, another file with another key, other layers.
    let keys = [&key, &other_key].map(|path| std::fs::read(path).unwrap());
    std::fs::write(&key, &keys[1]).unwrap();
    let said = place.refused(&[], &[&spec]);
    assert!(said.contains("hosts know namespace 1 as") && said.contains("another key"), "{said}");
    let check = place.refused(&["--check-config"], &[&spec]);
    assert_eq!(check, said, "it says the same beforehand");
    std::fs::write(&key, &keys[0]).unwrap();
    for other in [&format!("crypt,key-file={other_key}@{disk}"), &disk, &format!("po2@{spec}")] {
        let said = place.refused(&[], &[other]);
        assert!(said.contains("other layers"), "{other}: {said}");
    }
    same_bytes();
    // A copy, an older one in the same file, another disk at the path.
    let (copy, away) = (place.dir.path("copy.zbd"), place.dir.path("away.zbd"));
    std::fs::copy(&disk, &copy).unwrap();
    let of_copy = format!("crypt,key-file={key}@{copy}");
    let said = place.refused(&[], &[&of_copy]);
    assert!(said.contains("is a copy"), "{said}");
    std::fs::copy(&backup, &disk).unwrap();
    let said = place.refused(&[], &[&spec]);
    assert!(said.contains("is older"), "{said}");
    std::fs::write(&disk, &bytes).unwrap();
    std::fs::rename(&disk, &away).unwrap();
    place.create("a.zbd");
    let said = place.refused(&[], &[&spec]);
    assert!(said.contains("another disk is at its path"), "{said}");
    std::fs::rename(&away, &disk).unwrap();
    same_bytes();
    // The disk itself, with the same key in another file.
    std::fs::copy(&key, &other_key).unwrap();
    let server = place.serve(&[&format!("crypt,key-file={other_key}@{disk}")]);
    assert_eq!(server.uuid(1), uuid);
    server.kill();
    // The operator knows better: moved to another file, and then without the key.
    std::fs::copy(&disk, &copy).unwrap();
    let server = place.serve_with(&["--moved"], &[&of_copy]);
    assert_eq!((server.uuid(1), server.namespaces().len()), (uuid.clone(), 1));
    server.kill();
    place.refused(&[], &[&copy]);
    let server = place.serve_with(&["--forget-hosts"], &[&copy]);
    assert_ne!(server.uuid(1), uuid, "hosts see that it has other data");
}

/// L13. A disk in memory comes back without its data.
#[test]
fn l13_a_disk_in_memory_gets_another_identifier_and_keeps_its_number() {
    let place = StampedSubsystem::new("memory");
    let disk = place.create("a.zbd");
    let server = place.serve(&["mem,zones=8", &disk]);
    let uuids = [1, 2].map(|nsid| server.uuid(nsid));
    server.kill();
    // The number of a disk in memory goes to no disk in a file: hosts may send there what they have not written yet.
    let server = place.serve(&[&disk, "mem,zones=8"]);
    let kind = |line: &String| line.split(',').next().unwrap().to_owned();
    let names: Vec<String> = server.namespaces().iter().map(kind).collect();
    assert_eq!(names, ["1 mem", "2 a.zbd"]);
    assert_ne!(server.uuid(1), uuids[0]);
    assert_eq!(server.uuid(2), uuids[1]);
    server.kill();
    let other = place.create("b.zbd");
    let server = place.serve(&[&other, "mem,zones=9"]);
    let names: Vec<String> = server.namespaces().iter().map(kind).collect();
    assert_eq!(names, ["3 b.zbd", "4 mem"]);
}

/// L13. After an orderly end hosts go on connecting for a while, if there were any.
#[test]
fn l13_an_orderly_end_holds_the_numbers_of_disks_that_hosts_have_used() {
    let place = StampedSubsystem::new("end");
    let [a, b] = ["a.zbd", "b.zbd"].map(|name| place.create(name));
    let server = place.serve(&[&a, &b]);
    server.end(Signal::TERM);
    assert!(!place.stamp().exists(), "no host was there");
    let server = place.serve(&[&b, &a]);
    assert_eq!(server.namespaces(), ["1 b.zbd", "2 a.zbd"]);
    {
        let (_admin, mut io) = Queue::pair_at(&place.address, &place.nqn);
        let read = zoneplug_nvme::initiator::read(1, 0, 1, 4096);
        assert_eq!(io.run(read).completion.status, 0);
    }
    server.end(Signal::TERM);
    assert!(place.stamp().exists());
    for _ in 0..2 {
        let server = place.serve(&[&a, &b]);
        // The host has used one of them, and may come back to this server.
        assert_eq!(server.namespaces(), ["1 b.zbd", "2 a.zbd"]);
        server.end(Signal::TERM);
    }
    let server = place.serve_with(&["--forget-hosts"], &[&a, &b]);
    assert_eq!(server.namespaces(), ["1 a.zbd", "2 b.zbd"]);
    server.end(Signal::TERM);
    assert!(!place.stamp().exists());
}

/// L13. A server that can leave no stamp serves, and says so.
#[test]
fn l13_a_server_without_a_place_for_its_stamp_says_so() {
    let place = StampedSubsystem::new("nowhere");
    let disk = place.create("a.zbd");
    let stamp = place.stamp();
    std::fs::create_dir_all(stamp.join("not-empty")).unwrap();
    let server = place.serve(&[&disk]);
    std::fs::remove_dir_all(&stamp).unwrap();
    let says = |line: &&String| line.starts_with("hosts may find other disks");
    let line = server.lines.iter().find(says).unwrap_or_else(|| panic!("{:?}", server.lines));
    assert!(line.contains(&place.nqn), "{line}");
    server.kill();
    let server = place.serve(&[&disk]);
    assert!(!server.lines.iter().any(|line| says(&line)), "{:?}", server.lines);
    server.kill();
    // Nonsense is not believed.
    std::fs::write(&stamp, "nonsense\n{").unwrap();
    let server = place.serve(&[&disk]);
    assert_eq!(server.namespaces(), ["1 a.zbd"]);
    server.end(Signal::TERM);
    // The flag is of one start.
    fails(
        &["serve", "--forget-hosts", "--takeover", "--nvme-tcp", "127.0.0.1:0", &disk],
        2,
        "cannot be used with",
    );
}
