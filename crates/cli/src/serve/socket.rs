//! The socket of a server: answers what `zoneplug status`, `attr` and `zone-wplugs` ask of its disks. A thread for each
//! connection, for a change of an attribute waits for the disk.

use crate::failure::{Failure, Kind};
use crate::live::{self, Answer, AttributeShown, Request, Shown, Wrong};
use serde_json::{Value, json};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use zoneplug_core::{Error, Sector};
use zoneplug_host::HostedDisk;
use zoneplug_host::ublk::UblkCounters;

/// Longest question.
const MAX_QUESTION: u64 = 64 << 10;
/// Most connections at a time; further ones are closed.
const MAX_CONNECTIONS: usize = 32;
/// How long a connection may say nothing.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long the end waits for questions that are being answered.
const LAST_ANSWERS: Duration = Duration::from_secs(5);

/// A disk that is served.
pub(super) struct Served {
    /// `ublkb0`.
    pub(super) name: String,
    pub(super) spec: String,
    pub(super) disk: HostedDisk,
    pub(super) recovered: bool,
    /// What the kernel's side has counted.
    pub(super) counters: Box<dyn Fn() -> UblkCounters + Send + Sync>,
}

impl Served {
    fn shown(&self) -> Shown {
        let (g, c, k) =
            (self.disk.disk().geometry(), (self.counters)(), self.disk.disk().counters());
        Shown {
            name: self.name.clone(),
            spec: self.spec.clone(),
            capacity_bytes: g.capacity_bytes().0,
            zones: g.nr_zones(),
            zone_bytes: Sector(u64::from(g.zone_sectors())).to_bytes().0,
            pid: std::process::id(),
            recovered: self.recovered,
            reads: c.reads,
            read_bytes: c.read_bytes,
            writes: c.writes,
            written_bytes: c.written_bytes,
            others: c.others,
            errors: c.errors,
            replayed: c.replayed,
            waiting: k.waiting,
            live_plugs: k.live_plugs,
        }
    }
}

/// A socket that answers, until it is dropped. Its threads hold the disks only while they answer, so that a disk is closed
/// when its server ends.
pub(super) struct Socket {
    path: PathBuf,
    /// There until it is dropped.
    disks: Option<Arc<Vec<Served>>>,
}

impl Socket {
    /// Makes the socket, at `path` or in the usual place under the number of this process, and answers on it from now on.
    pub(super) fn open(path: Option<&Path>, disks: Vec<Served>) -> Result<Socket, Failure> {
        let usual = || PathBuf::from(format!("{}/{}.sock", live::DIRECTORY, std::process::id()));
        let path = path.map_or_else(usual, Path::to_owned);
        let failed = |e: io::Error| {
            Failure::new(Kind::Device, format!("no socket at {}: {e}", path.display()))
                .hint("--socket PATH, in a directory where this user may make one")
        };
        if let Some(parent) = path.parent().filter(|p| !p.as_os_str().is_empty()) {
            std::fs::create_dir_all(parent).map_err(failed)?;
        }
        sweep(&path).map_err(failed)?;
        let listener = UnixListener::bind(&path).map_err(failed)?;
        let disks = Arc::new(disks);
        let for_answers = Arc::downgrade(&disks);
        let socket = Socket { path: path.clone(), disks: Some(disks) };
        // Whoever may change attributes may as well stop the server.
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).map_err(failed)?;
        let body = move || listen(&listener, &for_answers);
        std::thread::Builder::new()
            .name("zoneplug-socket".to_owned())
            .spawn(body)
            .map_err(failed)?;
        Ok(socket)
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
        // Who is being answered has the disks too, for a moment.
        let end = Instant::now() + LAST_ANSWERS;
        while let Some(disks) = self.disks.take() {
            match Arc::try_unwrap(disks) {
                Err(shared) if Instant::now() < end => {
                    self.disks = Some(shared);
                    std::thread::sleep(Duration::from_millis(1));
                }
                _ => {}
            }
        }
    }
}

/// Removes sockets that servers left when they were killed: the one that is to be made, and in the usual place all.
fn sweep(path: &Path) -> io::Result<()> {
    let usual = path.parent() == Some(Path::new(live::DIRECTORY));
    let others = if usual { live::sockets(None) } else { Vec::new() };
    for p in others.iter().map(PathBuf::as_path).chain([path]) {
        match UnixStream::connect(p) {
            Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => {
                let _ = std::fs::remove_file(p);
            }
            Ok(_) if p == path => return Err(io::ErrorKind::AddrInUse.into()),
            _ => {}
        }
    }
    Ok(())
}

fn listen(listener: &UnixListener, disks: &Weak<Vec<Served>>) {
    let open = Arc::new(AtomicUsize::new(0));
    for stream in listener.incoming() {
        let Ok(stream) = stream else {
            // Too many files are open: not at once again.
            std::thread::sleep(Duration::from_millis(100));
            continue;
        };
        if open.fetch_add(1, Ordering::Relaxed) >= MAX_CONNECTIONS {
            open.fetch_sub(1, Ordering::Relaxed);
            continue;
        }
        let (disks, count) = (disks.clone(), open.clone());
        let body = move || {
            // A client that has gone is no error.
            let _ = converse(stream, &disks);
            count.fetch_sub(1, Ordering::Relaxed);
        };
        if std::thread::Builder::new().name("zoneplug-client".to_owned()).spawn(body).is_err() {
            open.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

fn converse(stream: UnixStream, disks: &Weak<Vec<Served>>) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut out = stream.try_clone()?;
    let mut stream = BufReader::new(stream);
    let mut line = Vec::new();
    loop {
        line.clear();
        if (&mut stream).take(MAX_QUESTION).read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        let whole = line.ends_with(b"\n");
        let answer = match serde_json::from_slice(&line) {
            Ok(request) => match disks.upgrade() {
                Some(disks) => answer(&request, &disks),
                // The server is ending.
                None => return Ok(()),
            },
            Err(e) => Err(Failure::usage(format!("not a question: {e}"))
                .hint(r#"a line such as {"cmd":"status"}"#)),
        };
        let answer = match answer {
            Ok(value) => Answer::Ok(value),
            Err(f) => {
                let (kind, what, hint) = f.parts();
                let (what, hint) = (what.to_owned(), hint.to_owned());
                Answer::Error(Wrong { code: kind as u8, what, hint })
            }
        };
        let mut text = serde_json::to_vec(&answer)?;
        text.push(b'\n');
        out.write_all(&text)?;
        if !whole {
            return Ok(());
        }
    }
}

fn named<'a>(disks: &'a [Served], disk: &str) -> Result<&'a Served, Failure> {
    disks.iter().find(|d| d.name == live::name_of(disk)).ok_or_else(|| {
        let all: Vec<&str> = disks.iter().map(|d| &*d.name).collect();
        Failure::new(Kind::Device, format!("{disk} is not served here"))
            .hint(format!("served: {}", all.join(", ")))
    })
}

/// Answers one question.
fn answer(request: &Request, disks: &[Served]) -> Result<Value, Failure> {
    match request {
        Request::Status {} => {
            let all: Vec<Shown> = disks.iter().map(Served::shown).collect();
            Ok(serde_json::to_value(all)?)
        }
        Request::Attributes { disk } => {
            let all = named(disks, disk)?.disk.disk().attributes();
            let all: Vec<AttributeShown> = all.iter().map(AttributeShown::of).collect();
            Ok(serde_json::to_value(all)?)
        }
        Request::Set { disk, name, value } => {
            let hosted = &named(disks, disk)?.disk;
            let was = hosted.disk().attribute(name).unwrap_or_default();
            hosted.set_attribute(name, value).map_err(|e: Error| Failure::from(e))?;
            Ok(json!({"was": was}))
        }
        Request::ZoneWplugs { disk } => {
            let mut text = String::new();
            // Writing to a string does not fail.
            let _ = named(disks, disk)?.disk.disk().zone_wplugs(&mut text);
            Ok(Value::String(text))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::Server;
    use std::sync::atomic::AtomicU32;

    static NEXT: AtomicU32 = AtomicU32::new(0);

    /// A server of two disks, without the kernel's side.
    fn server() -> Socket {
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("zoneplug-{}-{n}.sock", std::process::id()));
        let of = |i: u64, spec: &str| Served {
            name: format!("ublkb{i}"),
            spec: spec.to_owned(),
            disk: HostedDisk::open_spec(spec).unwrap(),
            recovered: i == 1,
            counters: Box::new(move || UblkCounters { reads: i, ..UblkCounters::default() }),
        };
        let disks =
            vec![of(0, "mem,zones=8,zone-size=1M"), of(1, "null,zones=4,zone-size=2M,tags=4")];
        Socket::open(Some(&path), disks).unwrap()
    }

    fn ask(socket: &Socket, request: &Request) -> Result<Value, String> {
        Server::connect(&socket.path).unwrap().ask(request).map_err(|f| f.to_string())
    }

    #[test]
    fn status_shows_every_disk() {
        let socket = server();
        let all = Server::connect(&socket.path).unwrap().disks().unwrap();
        let names: Vec<(&str, u64, bool)> =
            all.iter().map(|d| (&*d.name, d.reads, d.recovered)).collect();
        assert_eq!(names, [("ublkb0", 0, false), ("ublkb1", 1, true)]);
        assert_eq!((all[0].zones, all[0].zone_bytes), (8, 1 << 20));
        assert_eq!(all[1].pid, std::process::id());
    }

    /// T1, Q9: on a disk in use.
    #[test]
    fn t1_attributes_of_a_live_disk_are_shown_and_set() {
        let socket = server();
        let client = socket.disks.as_ref().unwrap()[0].disk.open_client(4, 4).unwrap();
        let disk = || "/dev/ublkb0".to_owned();
        let set = |name: &str, value: &str| {
            let (name, value) = (name.to_owned(), value.to_owned());
            ask(&socket, &Request::Set { disk: disk(), name, value })
        };
        assert_eq!(set("zoned_qd1_writes", "1").unwrap(), json!({"was": "0"}));
        assert_eq!(set("zoned_qd1_policy", "clook").unwrap(), json!({"was": "fifo"}));
        assert_eq!(
            socket.disks.as_ref().unwrap()[0].disk.disk().attribute("zoned_qd1_writes").unwrap(),
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

    /// T2.
    #[test]
    fn t2_plugs_of_a_live_disk() {
        let socket = server();
        let mut io =
            zoneplug_host::BlockingDisk::new(&socket.disks.as_ref().unwrap()[0].disk).unwrap();
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
        let stream = UnixStream::connect(&socket.path).unwrap();
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
        // A line without an end is answered, and is the last.
        let long = vec![b'x'; MAX_QUESTION as usize];
        assert_eq!(say(&long)["error"]["code"], 2);
        let mut rest = Vec::new();
        assert_eq!(lines.read_to_end(&mut rest).unwrap_or(0), 0);
    }

    #[test]
    fn a_socket_is_private_is_not_taken_from_a_server_and_goes_with_it() {
        let socket = server();
        let mode = std::fs::metadata(&socket.path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let e = Socket::open(Some(&socket.path), Vec::new()).err().unwrap();
        assert!(e.to_string().contains("in use"), "{e}");
        let path = socket.path.clone();
        // Somebody stays connected, and the thread that listens stays too.
        let client = UnixStream::connect(&path).unwrap();
        let disks = Arc::downgrade(socket.disks.as_ref().unwrap());
        drop(socket);
        assert!(!path.exists());
        assert!(disks.upgrade().is_none(), "its disks are closed when it has gone");
        drop(client);
        // One that a killed server left.
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        drop(Socket::open(Some(&path), Vec::new()).unwrap());
    }
}
