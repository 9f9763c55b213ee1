//! A program of the user's serves a disk, and ends when it wants to.

#![allow(clippy::unwrap_used)]

#[path = "../../host/tests/common/nvme_host.rs"]
mod nvme_host;

use nvme_host::{BLOCK, HOST, KEY, OTHER_KEY, Queue, pattern};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use zoneplug::file::FileError;
use zoneplug::nvme_tcp::NvmeTcpOptions;
use zoneplug::serve::{Access, ControlError, Serve, ServeError, Serving};
use zoneplug::{BlockingDisk, ErrorKind, HostedDisk, Sector};
use zoneplug_nvme::initiator::write;

const NQN: &str = "nqn.2026-11.dev.zoneplug:library";

fn dir(name: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("zoneplug-serve-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    dir
}

fn serve(spec: &str, at: &str, socket: &Path) -> Result<Serving, zoneplug::Error> {
    let options = NvmeTcpOptions::new(at.parse().unwrap(), NQN);
    Serve::new().nvme_tcp(options, [spec]).socket(socket).start()
}

fn address(served: &Serving) -> SocketAddr {
    served.addresses()[0]
}

/// Asks the control socket, and returns its line.
fn ask(socket: &Path, question: &str) -> String {
    let mut stream = BufReader::new(UnixStream::connect(socket).unwrap());
    writeln!(stream.get_mut(), "{question}").unwrap();
    let mut line = String::new();
    stream.read_line(&mut line).unwrap();
    line
}

#[test]
fn a_program_serves_a_disk_and_ends_it() {
    let dir = dir("ends");
    let (disk, socket) = (dir.join("d.zbd"), dir.join("s"));
    let o = zoneplug::file::CreateOptions {
        zones: Some(4),
        zone_size: Some(1 << 20),
        ..Default::default()
    };
    zoneplug::file::create(&disk, &o, false).unwrap();
    let spec = disk.display().to_string();
    let served = serve(&spec, "127.0.0.1:0", &socket).unwrap();
    let at = address(&served);
    assert!(served.is_served() && TcpStream::connect(at).is_ok());
    let status = ask(&socket, r#"{"cmd":"status"}"#);
    assert!(status.contains(&format!("tcp{}n1", at.port())) && status.contains(NQN), "{status}");
    // The program has the disk for as long as it likes.
    let refused = ask(&socket, r#"{"cmd":"hand-over"}"#);
    assert!(refused.contains("error") && refused.contains("program"), "{refused}");
    assert!(HostedDisk::open_spec(&spec).is_err(), "the server has it");
    served.stop().unwrap();
    assert!(!socket.exists());
    drop(TcpListener::bind(at).unwrap());
    let disk = HostedDisk::open_spec(&spec).unwrap();
    BlockingDisk::new(&disk).unwrap().append_from(Sector(0), &[7; 4096]).unwrap();
    drop(disk);
    // Again in the same program; what is dropped ends too.
    let again = serve(&spec, &at.to_string(), &socket).unwrap();
    assert_eq!(address(&again), at);
    drop(again);
    assert!(HostedDisk::open_spec(&spec).is_ok());
    std::fs::remove_dir_all(&dir).unwrap();
}

/// A start that fails returns the reason, and serves nothing.
#[test]
fn a_start_that_fails_says_why() {
    let dir = dir("fails");
    let socket = dir.join("s");
    let e = serve("mem,zones=0", "127.0.0.1:0", &socket).unwrap_err();
    assert!(e.what_to_try().is_some(), "{e}");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = taken.local_addr().unwrap().to_string();
    assert!(serve("mem,zones=8", &at, &socket).unwrap_err().to_string().contains(&at));
    drop(taken);
    let e = Serve::new().start().unwrap_err().to_string();
    assert!(e.contains("no disk"), "{e}");
    // A hint names options without the dashes of a command line.
    let e = serve("mem,zones=8", "127.0.0.1:0", &dir.join("none/s")).unwrap_err();
    assert!(e.what_to_try().unwrap().starts_with("'socket' PATH, in an existing"), "{e}");
    let options = NvmeTcpOptions::new("127.0.0.1:0".parse().unwrap(), NQN);
    let twice = Serve::new().nvme_tcp(options, ["mem,zones=8", "mem,zones=8"]).start();
    assert!(twice.unwrap_err().to_string().contains("twice"));
    assert!(!socket.exists());
    std::fs::remove_dir_all(&dir).unwrap();
}

/// A program compares enums, not texts: a failure that passes through the server keeps the enum of its family.
#[test]
fn a_start_that_fails_keeps_the_reason_of_its_family() {
    let dir = dir("reasons");
    let (path, socket) = (dir.join("d.zbd"), dir.join("s"));
    let spec = path.display().to_string();
    let e = serve(&spec, "127.0.0.1:0", &socket).unwrap_err();
    assert_eq!((e.kind(), e.errno()), (ErrorKind::NotFound, 2), "{e}");
    zoneplug::file::create(&path, &Default::default(), false).unwrap();
    let held = HostedDisk::open_spec(&spec).unwrap();
    let e = serve(&spec, "127.0.0.1:0", &socket).unwrap_err();
    assert!(matches!(e.detail(), Some(FileError::InUse { path, .. }) if *path == spec), "{e}");
    drop(held);
    // The failures of serving itself.
    let e = Serve::new().start().unwrap_err();
    assert_eq!((e.detail(), e.reason()), (Some(&ServeError::NoDisk), Some("NoDisk")));
    let options = NvmeTcpOptions::new("127.0.0.1:7".parse().unwrap(), NQN);
    let (address, one) =
        (options.listen, || Serve::new().nvme_tcp(options.clone(), ["mem,zones=8"]));
    let e = one().metrics(address).start().unwrap_err();
    assert_eq!(e.detail(), Some(&ServeError::AddressTwice { address, other: address }));
    let path = dir.join("none/s").display().to_string();
    let e = one().socket(&path).start().unwrap_err();
    let is_there =
        |e: &ControlError| matches!(e, ControlError::NoSocket { path: at, .. } if *at == path);
    assert!(e.detail().is_some_and(is_there), "{e}");
    assert_eq!(e.errno(), 2, "the system's error");
    std::fs::remove_dir_all(&dir).unwrap();
}

/// Two servers of one program do not share a directory, and each removes its own.
#[test]
fn a_private_socket_is_gone_with_its_server() {
    let start = || {
        let options = NvmeTcpOptions::new("127.0.0.1:0".parse().unwrap(), NQN);
        Serve::new().nvme_tcp(options, ["mem,zones=4"]).private_socket().start().unwrap()
    };
    let [first, second] = [start(), start()];
    let sockets = [&first, &second].map(|served| served.socket().unwrap().to_owned());
    assert_ne!(sockets[0], sockets[1]);
    assert!(sockets.iter().all(|socket| ask(socket, r#"{"cmd":"status"}"#).contains(NQN)));
    first.stop().unwrap();
    drop(second);
    assert!(sockets.iter().all(|socket| !socket.parent().unwrap().exists()));
    // A path of a server that ended leads to no other one.
    let third = start();
    assert!(sockets.iter().all(|socket| socket != third.socket().unwrap()));
}

/// Each part of an access that a program gives as texts is in the options.
#[test]
fn an_access_arrives() {
    use std::os::unix::fs::PermissionsExt;
    let dir = dir("access");
    let file = |name: &str, text: &str| {
        let path = dir.join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        path
    };
    let (key, own) = (file("key", KEY), file("own", OTHER_KEY));
    let given = Access {
        hosts: Some(vec!["nqn.a".to_owned()]),
        any_host: true,
        keys: vec![(HOST.to_owned(), key)],
        own_key: Some(own),
    };
    let o = given.options("127.0.0.1:4420", NQN).unwrap();
    assert_eq!((o.listen, &*o.nqn), ("127.0.0.1:4420".parse().unwrap(), NQN));
    assert_eq!((o.hosts, o.any_host), (Some(vec!["nqn.a".to_owned()]), true));
    let check = |text: &str| zoneplug::nvme_tcp::Key::parse(text).unwrap().check(HOST);
    let keys: Vec<_> = o.dhchap_keys.iter().map(|(h, k)| (h.clone(), k.check(HOST))).collect();
    assert_eq!(keys, [(HOST.to_owned(), check(KEY))]);
    assert_eq!(o.dhchap_ctrl_key.map(|k| k.check(HOST)), Some(check(OTHER_KEY)));
    std::fs::remove_dir_all(&dir).unwrap();
}

/// A program that asks for metrics has them, with latencies; another reads no clock for them.
#[test]
fn metrics_and_latencies_are_there_if_they_are_wanted() {
    for measured in [false, true] {
        let options = NvmeTcpOptions::new("127.0.0.1:0".parse().unwrap(), NQN);
        let mut serve = Serve::new().nvme_tcp(options, ["mem,zones=4"]).private_socket();
        if measured {
            serve = serve.metrics("127.0.0.1:0".parse().unwrap());
        }
        let served = serve.start().unwrap();
        let (_admin, mut io) = Queue::pair_at(&address(&served).to_string(), NQN);
        io.ok(write(1, 0, pattern(BLOCK as usize, 1), BLOCK));
        let status = ask(served.socket().unwrap(), r#"{"cmd":"status"}"#);
        assert!(status.contains(r#""bytes":4096,"count":1,"errors":0,"latency":"#), "{status}");
        assert_eq!(!status.contains(r#""latency":null"#), measured, "{status}");
        let at = served.lines().iter().find_map(|l| l.strip_prefix("metrics at http://"));
        assert_eq!(at.is_some(), measured);
        if let Some(at) = at {
            let mut stream = TcpStream::connect(at.trim_end_matches("/metrics")).unwrap();
            stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
            let mut text = String::new();
            stream.read_to_string(&mut text).unwrap();
            assert!(text.contains("zoneplug_io_operations_total"), "{text}");
        }
        served.stop().unwrap();
    }
}
