//! The control socket with the disks of a server behind it.

use crate::answer::Serving;
use crate::handover::HandOver;
use crate::served::{PassedDisk, Served};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use zoneplug_control::client::{AttributeShown, Request, Server};
use zoneplug_control::place::Id;
use zoneplug_control::{Access, Bounds, LAST_ANSWERS, MAX_QUESTION, Socket};
use zoneplug_core::Sector;
use zoneplug_host::HostedDisk;
use zoneplug_host::ServedCounters;

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A server of two disks, without the kernel's side.
fn server() -> Socket<Serving> {
    server_with(Bounds::default())
}

fn server_with(bounds: Bounds) -> Socket<Serving> {
    let n = NEXT.fetch_add(1, Ordering::Relaxed);
    let path = std::env::temp_dir().join(format!("zoneplug-{}-{n}.sock", std::process::id()));
    let of = |i: u64, spec: &str| Served {
        door: "ublk",
        name: format!("ublkb{i}"),
        spec: spec.to_owned(),
        disk: HostedDisk::open_spec(spec).unwrap(),
        recovered: i == 1,
        outlives: i == 1,
        counters: Box::new(move || ServedCounters { reads: i, ..ServedCounters::default() }),
        network: None,
        passed: PassedDisk::default(),
    };
    let disks = vec![of(0, "mem,zones=8,zone-size=1M"), of(1, "null,zones=4,zone-size=2M,tags=4")];
    Socket::open_with(Some(&path), Access::default(), serving(disks), &[], bounds).unwrap()
}

fn serving(disks: Vec<Served>) -> Serving {
    Serving::new(disks, Vec::new(), Vec::new(), HandOver::new(|| {}))
}

fn ask(socket: &Socket<Serving>, request: &Request) -> Result<Value, String> {
    Server::connect(socket.path()).unwrap().ask(request).map_err(|f| f.to_string())
}

#[test]
fn status_shows_every_disk() {
    let socket = server();
    let all = Server::connect(socket.path()).unwrap().disks().unwrap();
    let names: Vec<(&str, u64, bool)> =
        all.iter().map(|d| (&*d.name, d.reads, d.recovered)).collect();
    assert_eq!(names, [("ublkb0", 0, false), ("ublkb1", 1, true)]);
    assert_eq!((all[0].zones, all[0].zone_bytes), (8, 1 << 20));
    assert_eq!(all[1].pid, std::process::id());
}

/// T1, Q9: attributes of a disk in use are shown and set.
#[test]
fn t1_attributes_of_a_live_disk_are_shown_and_set() {
    let socket = server();
    let client = socket.serving().unwrap().disks[0].disk.open_client(4, 4).unwrap();
    let disk = || "/dev/ublkb0".to_owned();
    let set = |name: &str, value: &str| {
        let (name, value) = (name.to_owned(), value.to_owned());
        ask(&socket, &Request::Set { disk: disk(), name, value })
    };
    assert_eq!(set("zoned_qd1_writes", "1").unwrap(), json!({"was": "0"}));
    assert_eq!(set("zoned_qd1_policy", "clook").unwrap(), json!({"was": "fifo"}));
    assert_eq!(
        socket.serving().unwrap().disks[0].disk.disk().attribute("zoned_qd1_writes").unwrap(),
        "1"
    );
    let all = ask(&socket, &Request::Attributes { disk: disk() }).unwrap();
    let all: Vec<AttributeShown> = serde_json::from_value(all).unwrap();
    let qd1 = all.iter().find(|a| a.name == "zoned_qd1_policy").unwrap();
    assert_eq!((&*qd1.value, qd1.writable), ("clook", true));
    let e = set("zoned_qd1_writes", "2").unwrap_err();
    assert!(e.starts_with("error: zoned_qd1_writes is 0 or 1, not 2\ntry: "), "{e}");
    let e = set("zones", "2").unwrap_err();
    assert!(e.contains("no attribute zones") && e.contains("nr_zones"), "{e}");
    drop(client);
}

/// T2: the plugs of a disk in use are shown.
#[test]
fn t2_plugs_of_a_live_disk() {
    let socket = server();
    let mut io =
        zoneplug_host::BlockingDisk::new(&socket.serving().unwrap().disks[0].disk).unwrap();
    io.write(Sector(0x800), zoneplug_buf::AlignedBuf::zeroed(8192)).unwrap();
    let text = ask(&socket, &Request::ZoneWplugs { disk: "ublkb0".to_owned() }).unwrap();
    let line = "Zone no: 1, flags: 0x0, ref: 1, cond: ACTIVE, wp ofst: 16, pending BIO: 0\n";
    assert_eq!(text, json!(line));
    let e = ask(&socket, &Request::ZoneWplugs { disk: "ublkb7".to_owned() }).unwrap_err();
    assert!(e.contains("served: ublkb0, ublkb1"), "{e}");
}

#[test]
fn nonsense_is_answered_and_the_connection_goes_on() {
    let socket = server();
    let stream = UnixStream::connect(socket.path()).unwrap();
    let mut lines = BufReader::new(stream.try_clone().unwrap());
    let mut out = stream;
    let mut say = |text: &[u8]| {
        out.write_all(text).unwrap();
        let mut line = String::new();
        lines.read_line(&mut line).unwrap();
        serde_json::from_str::<Value>(&line).unwrap()
    };
    for bad in [&b"\xff\xfe\n"[..], b"\n", b"{}\n", b"{\"cmd\":\"stop\"}\n", b"[1,2]\n"] {
        let answer = say(bad);
        assert_eq!(answer["error"]["code"], 2, "{answer}");
    }
    assert_eq!(say(b"{\"cmd\":\"status\"}\n")["ok"][1]["name"], "ublkb1");
    // A line without an end is answered, and ends the connection.
    let long = vec![b'x'; MAX_QUESTION as usize];
    assert_eq!(say(&long)["error"]["code"], 2);
    let mut rest = Vec::new();
    assert_eq!(lines.read_to_end(&mut rest).unwrap_or(0), 0);
}

#[test]
fn a_socket_is_private_is_not_taken_from_a_server_and_goes_with_it() {
    let socket = server();
    let mode = std::fs::metadata(socket.path()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let e =
        Socket::open(Some(socket.path()), Access::default(), serving(Vec::new())).err().unwrap();
    assert!(e.to_string().contains("in use"), "{e}");
    let path = socket.path().to_owned();
    // A connected client and the listening thread remain.
    let client = UnixStream::connect(&path).unwrap();
    let disks = Arc::downgrade(&socket.serving().unwrap());
    drop(socket);
    assert!(!path.exists());
    assert!(disks.upgrade().is_none(), "its disks are closed when it has gone");
    drop(client);
    // A socket that a killed server left.
    drop(UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    drop(Socket::open(Some(&path), Access::default(), serving(Vec::new())).unwrap());
}

/// A program may serve disks many times. A socket that has gone leaves no thread with a listener, and neither does one that was
/// replaced and made anew.
#[test]
fn sockets_that_have_gone_leave_no_threads() {
    const MANY: usize = 64;
    for _ in 0..MANY {
        let mut socket = server();
        let path = socket.path().to_owned();
        let (from, access) = (Id::of(&path).unwrap(), Access::default());
        drop(Socket::open_replacing(Some(&path), access, serving(Vec::new()), &[from]).unwrap());
        socket.restore().unwrap();
        let mut client = UnixStream::connect(&path).unwrap();
        client.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        drop(socket);
        assert_eq!(client.read(&mut [0; 1]).unwrap(), 0, "an idle client sees the end");
    }
    // Other tests have a few.
    let end = Instant::now() + Duration::from_secs(10);
    let threads = || {
        let all = std::fs::read_dir("/proc/self/task").unwrap();
        let names = all.filter_map(|t| std::fs::read_to_string(t.ok()?.path().join("comm")).ok());
        names.filter(|name| name.trim() == "zoneplug-socket").count()
    };
    while threads() >= MANY {
        assert!(Instant::now() < end, "{} threads are left", threads());
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// U16: a server that got its disks back makes its socket anew, and it is its own: it makes it again after the next hand-over
/// that fails, and removes it at its end.
#[test]
fn u16_a_socket_that_was_made_anew_is_its_servers_own() {
    let mut socket = server();
    let path = socket.path().to_owned();
    // A second name keeps the number of the first socket's inode from another one.
    let second_name = path.with_extension("first");
    std::fs::hard_link(&path, &second_name).unwrap();
    for _ in 0..2 {
        let (from, access) = (Id::of(&path).unwrap(), Access::default());
        drop(Socket::open_replacing(Some(&path), access, serving(Vec::new()), &[from]).unwrap());
        assert!(!path.exists(), "the other server takes its socket along");
        socket.restore().unwrap();
        assert!(path.exists());
    }
    drop(socket);
    std::fs::remove_file(second_name).unwrap();
    assert!(!path.exists(), "a dead socket is left");
}

/// Silent clients must not keep other clients out.
#[test]
fn silent_clients_give_their_places_to_others() {
    let socket = server_with(Bounds { most: 4, ..Bounds::default() });
    let mut silent: Vec<UnixStream> =
        (0..20).map(|_| UnixStream::connect(socket.path()).unwrap()).collect();
    for _ in 0..8 {
        ask(&socket, &Request::Status {}).unwrap();
    }
    // The first client has lost its place, and sees the end.
    silent[0].set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    assert_eq!(silent[0].read(&mut [0; 1]).unwrap(), 0);
}

/// A pause ends when its time is over, though its client hangs: it neither asks for anything nor goes away.
#[test]
fn a_pause_ends_by_itself_while_its_client_hangs() {
    let socket = server();
    let mut client = UnixStream::connect(socket.path()).unwrap();
    client.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    client.write_all(b"{\"cmd\":\"pause\",\"disk\":\"ublkb0\",\"most_ms\":1}\n").unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).expect("the answer, and the end of the connection");
    assert_eq!(answer, "{\"ok\":{}}\n");
    // The disk goes on.
    let disk = &socket.serving().unwrap().disks[0].disk;
    let mut io = zoneplug_host::BlockingDisk::new(disk).unwrap();
    io.write(Sector(0x800), zoneplug_buf::AlignedBuf::zeroed(8192)).unwrap();
}

/// A client that asks on and on and reads no answer does not prolong its pause.
#[test]
fn a_pause_ends_by_itself_while_its_client_reads_nothing() {
    let socket = server();
    let disk = &socket.serving().unwrap().disks[0].disk;
    let mut io = zoneplug_host::BlockingDisk::new(disk).unwrap();
    let mut client = UnixStream::connect(socket.path()).unwrap();
    client.write_all(b"{\"cmd\":\"pause\",\"disk\":\"ublkb0\",\"most_ms\":500}\n").unwrap();
    client.read_exact(&mut [0; 10]).unwrap();
    let mut asks = client.try_clone().unwrap();
    let asking =
        std::thread::spawn(move || while asks.write_all(b"{\"cmd\":\"status\"}\n").is_ok() {});
    let start = Instant::now();
    io.write(Sector(0x800), zoneplug_buf::AlignedBuf::zeroed(8192)).unwrap();
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    client.shutdown(std::net::Shutdown::Both).unwrap();
    asking.join().unwrap();
}

/// The time limit covers a whole request, not each byte.
#[test]
fn a_question_has_a_limit_as_a_whole() {
    let patience = Duration::from_millis(300);
    let socket = server_with(Bounds { patience, ..Bounds::default() });
    let mut stream = UnixStream::connect(socket.path()).unwrap();
    let start = Instant::now();
    while stream.write_all(b" ").is_ok() {
        assert!(start.elapsed() < Duration::from_secs(10), "it is listened to for ever");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(start.elapsed() >= patience);
    // A client that never reads its answers is disconnected too.
    let mut stream = UnixStream::connect(socket.path()).unwrap();
    let start = Instant::now();
    while stream.write_all(b"{\"cmd\":\"status\"}\n").is_ok() {
        assert!(start.elapsed() < Duration::from_secs(10), "it is told for ever");
    }
}

#[test]
fn a_handler_that_panics_gives_its_place_back() {
    let path = std::env::temp_dir().join(format!("zoneplug-{}-p.sock", std::process::id()));
    let disk = Served {
        door: "ublk",
        name: "ublkb0".to_owned(),
        spec: "mem,zones=8".to_owned(),
        disk: HostedDisk::open_spec("mem,zones=8").unwrap(),
        recovered: false,
        outlives: false,
        counters: Box::new(|| panic!("planned, in a test")),
        network: None,
        passed: PassedDisk::default(),
    };
    let bounds = Bounds { most: 2, ..Bounds::default() };
    let socket =
        Socket::open_with(Some(&path), Access::default(), serving(vec![disk]), &[], bounds)
            .unwrap();
    for _ in 0..6 {
        let e = ask(&socket, &Request::Status {}).unwrap_err();
        assert!(e.contains("does not answer"), "{e}");
    }
    ask(&socket, &Request::Attributes { disk: "ublkb0".to_owned() }).unwrap();
    let start = Instant::now();
    drop(socket);
    assert!(start.elapsed() < LAST_ANSWERS, "a handler that panicked holds the disks");
}

/// U13: only the server's user and root may end the server or receive its files, whatever the mode of the socket
/// is.
#[test]
fn u13_a_member_of_the_group_may_ask_and_not_take() {
    use std::os::unix::process::CommandExt;
    use std::process::Command;
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let access = Access { owner: None, group: None, mode: 0o666 };
    let n = NEXT.fetch_add(1, Ordering::Relaxed);
    let path = std::env::temp_dir().join(format!("zoneplug-{}-{n}.sock", std::process::id()));
    let asked = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let tell = asked.clone();
    let hand_over = HandOver::new(move || tell.store(true, Ordering::Relaxed));
    let serving = Serving::new(Vec::new(), Vec::new(), Vec::new(), hand_over);
    let _socket = Socket::open(Some(&path), access, serving).unwrap();
    let ask = "import socket, sys
s = socket.socket(socket.AF_UNIX)
s.settimeout(10)
s.connect(sys.argv[1])
s.send(sys.argv[2].encode() + b'\\n')
print(s.makefile().readline())";
    let answer = |uid: u32, question: &str| {
        let mut python = Command::new("/usr/bin/python3");
        let python = python.args(["-c", ask]).arg(&path).arg(question);
        String::from_utf8(python.uid(uid).output().unwrap().stdout).unwrap()
    };
    assert!(answer(65534, r#"{"cmd":"status"}"#).starts_with("{\"ok\""));
    for of_owner in
        [r#"{"cmd":"hand-over"}"#, r#"{"cmd":"pass","disk":null}"#, r#"{"cmd":"served"}"#]
    {
        let refused = answer(65534, of_owner);
        assert!(refused.contains("only the user of this server"), "{of_owner}: {refused}");
    }
    assert!(!asked.load(Ordering::Relaxed), "the server was not asked to leave");
    assert!(answer(0, r#"{"cmd":"pass","disk":null}"#).starts_with("{\"ok\":[0]"));
}

/// Another user is refused even if the socket's mode admits every user.
#[test]
fn another_user_is_refused() {
    use std::os::unix::process::CommandExt;
    use std::process::Command;
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let socket = server();
    std::fs::set_permissions(socket.path(), PermissionsExt::from_mode(0o666)).unwrap();
    let ask = "import socket, sys
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
try: s.send(b'{\"cmd\":\"status\"}\\n')
except BrokenPipeError: pass
print(s.makefile().readline())";
    let answer = |uid: u32| {
        let mut python = Command::new("/usr/bin/python3");
        let out = python.args(["-c", ask]).arg(socket.path()).uid(uid).output().unwrap();
        String::from_utf8(out.stdout).unwrap()
    };
    assert!(answer(0).starts_with("{\"ok\":["), "{}", answer(0));
    let refused = answer(65534);
    assert!(refused.contains("\"code\":4") && refused.contains("another user's"), "{refused}");
}
