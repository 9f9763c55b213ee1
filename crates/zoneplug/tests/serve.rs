//! A program of the user's serves a disk, and ends when it wants to.

#![allow(clippy::unwrap_used)]

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use zoneplug::nvme_tcp::NvmeTcpOptions;
use zoneplug::serve::{Serve, Serving};
use zoneplug::{BlockingDisk, HostedDisk, Sector};

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
    let options = NvmeTcpOptions::new("127.0.0.1:0".parse().unwrap(), NQN);
    let twice = Serve::new().nvme_tcp(options, ["mem,zones=8", "mem,zones=8"]).start();
    assert!(twice.unwrap_err().to_string().contains("twice"));
    assert!(!socket.exists());
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
}
