//! A program of the user's serves a disk, and ends when it wants to.

#![allow(clippy::unwrap_used)]

#[path = "../../host/tests/common/nvme_host.rs"]
mod nvme_host;

#[path = "../../host/tests/common/iscsi_initiator.rs"]
mod iscsi_initiator;

use iscsi_initiator::Initiator;
use nvme_host::{BLOCK, HOST, KEY, OTHER_KEY, Queue, pattern};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use zoneplug::file::FileError;
use zoneplug::iscsi::{IscsiOptions, Secret};
use zoneplug::nvme_tcp::NvmeTcpOptions;
use zoneplug::serve::{Access, ControlError, Serve, ServeError, Serving, parse_address};
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

/// The child of a fork that drops what its parent serves takes nothing from the parent.
#[test]
#[allow(unsafe_code)]
fn the_child_of_a_fork_ends_no_server() {
    for stops in [false, true] {
        let options = NvmeTcpOptions::new("127.0.0.1:0".parse().unwrap(), NQN);
        let serve = Serve::new().nvme_tcp(options, ["mem,zones=4"]).private_socket();
        let served = serve.start().unwrap();
        // SAFETY: the child uses nothing that another thread of its parent may have locked, and ends without handlers.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let refused = match stops {
                true => served.stop().is_err(),
                false => {
                    drop(served);
                    true
                }
            };
            // SAFETY: ends the child.
            unsafe { libc::_exit(i32::from(!refused)) }
        }
        let mut status = 1;
        // SAFETY: the status is valid for a write.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0, "the child refuses");
        assert!(served.is_served());
        assert!(ask(served.socket().unwrap(), r#"{"cmd":"status"}"#).contains(NQN));
        served.stop().unwrap();
    }
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
        clients: Some(vec!["nqn.a".to_owned()]),
        any_client: true,
        proofs: vec![(HOST.to_owned(), key)],
        own_proof: Some(own),
    };
    let o = given.nvme_tcp("127.0.0.1:4420", NQN).unwrap();
    assert_eq!((o.listen, &*o.nqn), ("127.0.0.1:4420".parse().unwrap(), NQN));
    assert_eq!((o.hosts, o.any_host), (Some(vec!["nqn.a".to_owned()]), true));
    let check = |text: &str| zoneplug::nvme_tcp::Key::parse(text).unwrap().check(HOST);
    let keys: Vec<_> = o.dhchap_keys.iter().map(|(h, k)| (h.clone(), k.check(HOST))).collect();
    assert_eq!(keys, [(HOST.to_owned(), check(KEY))]);
    assert_eq!(o.dhchap_ctrl_key.map(|k| k.check(HOST)), Some(check(OTHER_KEY)));
    std::fs::remove_dir_all(&dir).unwrap();
}

const INITIATOR: &str = "iqn.2026-11.org.example:initiator";

fn iscsi(at: &str) -> IscsiOptions {
    IscsiOptions::new(at.parse().unwrap(), iscsi_initiator::NAME)
}

/// An initiator writes and reads a disk that a program serves over iSCSI. `zoneplug status` lists it until the program ends it.
#[test]
fn a_program_serves_a_disk_over_iscsi() {
    let dir = dir("iscsi");
    let (disk, socket) = (dir.join("d.zbd"), dir.join("s"));
    let o = zoneplug::file::CreateOptions {
        zones: Some(4),
        zone_size: Some(1 << 20),
        ..Default::default()
    };
    zoneplug::file::create(&disk, &o, false).unwrap();
    let spec = disk.display().to_string();
    let start = |at: &str| Serve::new().iscsi(iscsi(at), [&*spec]).socket(&socket).start().unwrap();
    let served = start("127.0.0.1:0");
    assert!(served.addresses().is_empty(), "nothing is served over NVMe/TCP");
    let at = served.iscsi_addresses()[0];
    assert!(at.port() != 0 && served.lines()[0].contains(iscsi_initiator::NAME));
    let data: Vec<u8> = (0..8192u32).map(|i| (i / 11) as u8).collect();
    let mut initiator = Initiator::logged_in_at(at, INITIATOR);
    assert_eq!(initiator.write(0, &data), (0, None));
    assert_eq!(initiator.read(0, 2), data);
    let status = ask(&socket, r#"{"cmd":"status"}"#);
    assert!(status.contains(INITIATOR) && status.contains(iscsi_initiator::NAME), "{status}");
    assert!(HostedDisk::open_spec(&spec).is_err(), "the server has it");
    served.stop().unwrap();
    assert!(!socket.exists());
    assert_eq!(initiator.command(0, &[0; 6], 0, &[]), None, "the session has ended");
    drop(TcpListener::bind(at).unwrap());
    // The next server of the program has the data.
    let again = start(&at.to_string());
    assert_eq!(Initiator::logged_in_at(at, INITIATOR).read(0, 2), data);
    drop(again);
    assert!(HostedDisk::open_spec(&spec).is_ok());
    std::fs::remove_dir_all(&dir).unwrap();
}

/// A disk is served over both protocols at a time, each at its own address. The two see the same data.
#[test]
fn one_disk_is_served_at_two_doors() {
    let nvme = NvmeTcpOptions::new("127.0.0.1:0".parse().unwrap(), NQN);
    let spec = "mem,zones=4,zone-size=1M";
    let served = Serve::new().nvme_tcp(nvme, [spec]).iscsi(iscsi("127.0.0.1:0"), [spec]);
    let served = served.private_socket().start().unwrap();
    let (nvme, scsi) = (served.addresses(), served.iscsi_addresses());
    assert!(nvme.len() == 1 && scsi.len() == 1 && nvme != scsi);
    let (_admin, mut io) = Queue::pair_at(&nvme[0].to_string(), NQN);
    let data = pattern(BLOCK as usize, 1);
    io.ok(write(1, 0, data.clone(), BLOCK));
    assert_eq!(Initiator::logged_in_at(scsi[0], INITIATOR).read(0, 1), data);
    let status = ask(served.socket().unwrap(), r#"{"cmd":"status"}"#);
    for port in [nvme[0].port(), scsi[0].port()] {
        assert!(status.contains(&port.to_string()), "{status}");
    }
    served.stop().unwrap();
}

/// A start over iSCSI that fails says what is wrong, and what to try.
#[test]
fn a_start_over_iscsi_that_fails_says_why() {
    let dir = dir("iscsi-fails");
    let disk = dir.join("d.zbd");
    let o = zoneplug::file::CreateOptions {
        zones: Some(4),
        zone_size: Some(1 << 20),
        ..Default::default()
    };
    zoneplug::file::create(&disk, &o, false).unwrap();
    let spec = disk.display().to_string();
    let said = |serve: Serve| {
        let e = serve.private_socket().start().unwrap_err();
        let (what, hint) = (e.what().to_owned(), e.what_to_try().unwrap().to_owned());
        assert!(!what.contains('\n') && !hint.contains('\n'), "one line each: {what:?} {hint:?}");
        (what, hint)
    };
    let e = Access::default().iscsi("here", iscsi_initiator::NAME).unwrap_err();
    assert_eq!((e.what(), e.what_to_try()), ("'here' is no address", Some("127.0.0.1:3260")));
    let e = Access::default().nvme_tcp("here", NQN).unwrap_err();
    assert_eq!(e.what_to_try(), Some("127.0.0.1:4420"));
    let e = parse_address("here").unwrap_err();
    assert_eq!((e.what(), e.what_to_try()), ("'here' is no address", Some("127.0.0.1:9420")));
    let open = said(Serve::new().iscsi(iscsi("0.0.0.0:0"), [&*spec]));
    assert!(
        open.0.contains("any initiator could log in") && open.1.contains("'allow-"),
        "{open:?}"
    );
    let unnamed = IscsiOptions { name: "disk".to_owned(), ..iscsi("127.0.0.1:0") };
    assert!(said(Serve::new().iscsi(unnamed, [&*spec])).0.contains("no name of iSCSI"));
    let plain = IscsiOptions { conventional_only: true, ..iscsi("127.0.0.1:0") };
    let e = Serve::new().iscsi(plain, [&*spec]).private_socket().start().unwrap_err();
    assert_eq!(e.reason(), Some("NoConventionalZones"), "{e}");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = taken.local_addr().unwrap().to_string();
    assert!(said(Serve::new().iscsi(iscsi(&at), [&*spec])).0.contains(&at));
    // Both doors would write to the one file.
    let nvme = NvmeTcpOptions::new("127.0.0.1:0".parse().unwrap(), NQN);
    let other_name = format!("{spec},qd1=1");
    let twice = Serve::new().nvme_tcp(nvme.clone(), [&*spec]);
    let twice = said(twice.iscsi(iscsi("127.0.0.1:0"), [other_name]));
    assert_eq!(twice.0, format!("{spec} and {spec},qd1=1 are one disk"));
    assert_eq!(twice.1, "each disk once, by whichever of its names");
    let nvme = NvmeTcpOptions { listen: at.parse().unwrap(), ..nvme };
    let one_address = Serve::new().nvme_tcp(nvme, [&*spec]).iscsi(iscsi(&at), [&*spec]);
    assert_eq!(said(one_address).0, format!("{at} is given twice"));
    // Each start that failed has left the disk.
    assert!(HostedDisk::open_spec(&spec).is_ok());
    std::fs::remove_dir_all(&dir).unwrap();
}

/// An initiator with a secret proves it, and each part of an access that a program gives as texts has its effect.
#[test]
fn an_access_over_iscsi_arrives() {
    use std::os::unix::fs::PermissionsExt;
    let dir = dir("iscsi-access");
    let file = |name: &str, text: &str| {
        let path = dir.join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        path
    };
    let texts = ["secret of a host", "secret of the disk"];
    let [theirs, own] = texts.map(|text| Secret::parse(text).unwrap());
    let refused = |path: PathBuf| {
        let given = Access { own_proof: Some(path), ..Access::default() };
        let e = given.iscsi("127.0.0.1:0", iscsi_initiator::NAME).unwrap_err();
        (e.reason().unwrap_or_default().to_owned(), e.to_string())
    };
    let (reason, text) = refused(file("short", "short"));
    assert!(reason == "SecretLength" && text.contains("short: no secret of CHAP"), "{text}");
    let long = format!("{}{}", texts[1], " ".repeat(4096));
    assert!(refused(file("long", &long)).1.contains("more than 4096 bytes"));
    let open = file("open", texts[1]);
    std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o644)).unwrap();
    assert_eq!(refused(open).0, "SecretReadable");
    let other = "iqn.2026-11.org.example:other";
    let given = Access {
        clients: Some(vec![other.to_owned()]),
        proofs: vec![(INITIATOR.to_owned(), file("theirs", texts[0]))],
        own_proof: Some(file("own", texts[1])),
        ..Access::default()
    };
    let options = given.iscsi("0.0.0.0:0", iscsi_initiator::NAME).unwrap();
    assert!(options.own_secret.as_ref().is_some_and(|secret| secret.is_same(&own)));
    let served = Serve::new().iscsi(options, ["mem,zones=4"]).private_socket().start().unwrap();
    let at = SocketAddr::from(([127, 0, 0, 1], served.iscsi_addresses()[0].port()));
    let connect = || Initiator::connect_at(at);
    assert_eq!(connect().prove(INITIATOR, &theirs, &[7; 16]).0, [0, 0]);
    assert_eq!(connect().prove(INITIATOR, &own, &[]).0, [2, 1], "another secret");
    assert_eq!(connect().log_in(INITIATOR, 1), [2, 1], "no proof");
    assert_eq!(connect().log_in(other, 1), [0, 0]);
    assert_eq!(connect().log_in("iqn.2026-11.org.example:third", 1), [2, 2]);
    served.stop().unwrap();
    let any = Access { any_client: true, ..Access::default() };
    any.iscsi("0.0.0.0:0", iscsi_initiator::NAME).unwrap().check().unwrap();
    let none = Access { own_proof: Some(dir.join("none")), ..Access::default() };
    assert!(none.iscsi("127.0.0.1:0", iscsi_initiator::NAME).unwrap_err().what_to_try().is_some());
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
