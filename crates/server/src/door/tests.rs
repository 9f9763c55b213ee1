//! Tests that a server handles the test door like the doors of real protocols: it is served, listed, handed over and
//! ended.

use super::testing::{StubDoor, TestDoor};
use super::*;
use crate::config::{Config, Takeover};
use crate::opening;
use crate::server::{Ended, Server};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use zoneplug_control::client;
use zoneplug_host::BlockingDisk;
use zoneplug_host::file::{CreateOptions, create};
use zoneplug_host::signals::{Held, Signals};

/// The variable that tells a child process what to serve: specification, address, socket, and whether it takes over.
const SERVE: &str = "ZONEPLUG_TEST_DOOR";
/// The test that the child process runs.
const SERVES: &str = "door::tests::a_process_of_the_test_serves";

/// A directory of a test, and the specification of a new disk in it.
fn disk(name: &str) -> (PathBuf, String) {
    let dir = std::env::temp_dir().join(format!("zoneplug-door-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let spec = dir.join("d.zbd");
    let o = CreateOptions { zones: Some(4), zone_size: Some(1 << 20), ..Default::default() };
    create(&spec, &o, true).unwrap();
    (dir, spec.display().to_string())
}

fn door(spec: &str, at: &str) -> Box<TestDoor> {
    let (spec, at) = (spec.to_owned(), at.parse().unwrap());
    Box::new(TestDoor { spec: spec.parse().unwrap(), at, listener: None, serving: None })
}

/// Appends a block through a server. Returns its sector.
fn append(at: &str) -> String {
    let mut sector = String::new();
    let mut stream = TcpStream::connect(at).unwrap();
    stream.write_all(&[0]).unwrap();
    stream.read_to_string(&mut sector).unwrap();
    sector
}

#[test]
fn a_process_of_the_test_serves() {
    let Ok(what) = std::env::var(SERVE) else { return };
    let [spec, at, socket, takes_over] = what.split(' ').collect::<Vec<_>>()[..] else { return };
    let takeover = if takes_over == "true" { Takeover::Any } else { Takeover::No };
    let socket = Some(PathBuf::from(socket));
    let config = Config { takeover, socket, own_process: true, ..Config::default() };
    let signals = Signals::block().unwrap();
    let server = Server::new(config, vec![door(spec, at)], signals);
    let ended = server.run(&|told| println!("\nserves {}", told.lines.join("; "))).unwrap();
    println!("{ended:?}");
    if ended == Ended::Left {
        std::process::exit(0);
    }
}

struct Process(Child, BufReader<ChildStdout>);

impl Process {
    fn start(spec: &str, at: &str, socket: &Path, takes_over: bool) -> (Process, String) {
        // Signals are blocked before the child starts, because its first thread is not the one that serves.
        let held = Held::begin().unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", SERVES, "--nocapture", "--test-threads=1"])
            .env(SERVE, format!("{spec} {at} {} {takes_over}", socket.display()))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        held.release();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let mut process = Process(child, stdout);
        let line = process.line("serves ");
        (process, line.split("  ").next().unwrap().to_owned())
    }

    /// The rest of the first line with this beginning.
    fn line(&mut self, start: &str) -> String {
        let mut lines = (&mut self.1).lines().map_while(Result::ok);
        let found = lines.find_map(|line| line.strip_prefix(start).map(str::to_owned));
        found.unwrap_or_else(|| panic!("no line begins with {start}"))
    }

    fn ends(&mut self) -> Option<i32> {
        self.0.wait().unwrap().code()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// U9: the methods of the trait are enough for the server to serve, list, hand over and end a door.
#[test]
fn u9_a_door_is_served_listed_handed_over_and_ended() {
    let (dir, spec) = disk("served");
    let socket = dir.join("socket");
    let ask = || client::Server::connect(&socket).unwrap().disks().unwrap();
    let (mut first, at) = Process::start(&spec, "127.0.0.1:0", &socket, false);
    assert_eq!([append(&at), append(&at)], ["0", "8"]);
    let [ref shown] = ask()[..] else { panic!("one disk") };
    assert_eq!((&*shown.name, &*shown.spec), ("test0", &*spec));
    assert_eq!((shown.address.as_deref(), shown.handed_over), (Some(&*at), false));
    assert_eq!(shown.pid, first.0.id());
    let (mut second, again) = Process::start(&spec, &at, &socket, true);
    assert_eq!((first.line("Le"), first.ends()), ("ft".to_owned(), Some(0)));
    assert_eq!((&again, &*append(&at)), (&at, "16"), "it goes on where the first one was");
    let [ref shown] = ask()[..] else { panic!("one disk") };
    assert_eq!((shown.pid, shown.handed_over), (second.0.id(), true));
    kill_process(Pid::from_child(&second.0), Signal::TERM).unwrap();
    assert_eq!((second.line("Sto"), second.ends()), ("pped".to_owned(), Some(0)));
    assert!(!socket.exists() && TcpStream::connect(&at).is_err());
    let disk = zoneplug_host::HostedDisk::open_spec(&spec).unwrap();
    let zone = BlockingDisk::new(&disk).unwrap().report(zoneplug_core::Sector(0), 1).unwrap()[0];
    assert_eq!(zone.wp.0, 24, "three blocks are durable");
    std::fs::remove_dir_all(&dir).unwrap();
}

/// Binds an address that nothing listens at. A process that another test starts has all descriptors of this one until its
/// exec, also a listener that was closed meanwhile.
fn bind_soon(at: SocketAddr) -> std::io::Result<TcpListener> {
    let end = Instant::now() + Duration::from_secs(5);
    loop {
        match TcpListener::bind(at) {
            Err(e) if e.kind() == ErrorKind::AddrInUse && Instant::now() < end => {
                std::thread::sleep(Duration::from_millis(5));
            }
            bound => return bound,
        }
    }
}

/// If a step after the start of a door fails, its disk is closed and its address is free.
#[test]
fn a_start_that_fails_is_undone() {
    let (dir, spec) = disk("undone");
    let fails = StubDoor { does_not_start: true, ..StubDoor::default() };
    let mut doors: Doors = vec![door(&spec, "127.0.0.1:0"), Box::new(Arc::new(fails))];
    let inherited = Inherited::default();
    let mut disks = OpenDisks::default();
    opening::open(&mut disks, &doors, &inherited, Config::default().open).unwrap();
    doors[0].listen(&mut Vec::new()).unwrap();
    let at = doors[0].sockets()[0].local_addr().unwrap();
    let notifier = Signals::block().unwrap().notifier();
    let mut starting = Starting::new(doors);
    let e = starting.start(&disks, &inherited, &notifier).unwrap_err().to_string();
    assert!(e.contains("does not start"), "{e}");
    assert_eq!((starting[0].served().len(), &*append(&at.to_string())), (1, "0"));
    let below = disks.devices();
    drop((disks, starting));
    assert!(below.iter().all(|device| device.strong_count() == 0), "the disk is closed");
    drop(bind_soon(at).unwrap());
    std::fs::remove_dir_all(&dir).unwrap();
}
