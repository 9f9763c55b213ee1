//! `systemctl reload`: what the unit starts, in the order and by the rules of systemd, over the network, which needs no kernel.

use super::handover::{Server, last_is, nqn, two_disks};
use super::{ZONEPLUG, fails, ok, text};
use std::os::unix::net::UnixDatagram;
use std::process::{Command, Output};
use std::time::Duration;

const UNIT: &str = include_str!("../../../../packaging/zoneplug@.service");

/// Does as systemd for a reload of an instance whose main process is `main`: each `ExecReload=` in its order, until one fails.
/// Returns the last one.
fn reload(file: &str, main: u32, notify: &str) -> Output {
    let mut last = None;
    for line in UNIT.lines().filter_map(|line| line.strip_prefix("ExecReload=")) {
        let line =
            line.replace("/etc/zoneplug/%i.toml", file).replace("${MAINPID}", &main.to_string());
        let mut words = line.split(' ');
        assert_eq!(words.next(), Some("/usr/bin/zoneplug"));
        let out =
            Command::new(&*ZONEPLUG).args(words).env("NOTIFY_SOCKET", notify).output().unwrap();
        let failed = !out.status.success();
        last = Some(out);
        if failed {
            break;
        }
    }
    last.unwrap()
}

/// The messages that systemd has got.
fn told(socket: &UnixDatagram) -> String {
    let (mut all, mut buf) = (String::new(), [0; 4096]);
    while let Ok(n) = socket.recv(&mut buf) {
        all += &String::from_utf8_lossy(&buf[..n]);
    }
    all
}

fn settings(address: &str, socket: &str, disks: &[&str], more: &str) -> String {
    let disks = disks.iter().map(|d| format!("[[disk]]\nspec = \"{d}\"\nnvme-tcp = true\n"));
    let nqn = nqn();
    format!(
        "nvme-tcp = \"{address}\"\nnqn = \"{nqn}\"\nsocket = \"{socket}\"\n{more}\n{}",
        disks.collect::<String>()
    )
}

/// U9. Settings that the running server cannot be replaced with are refused before anything happens to it, and systemd has the
/// reason.
#[test]
fn u9_a_reload_is_checked_before_it_is_done() {
    let (dir, a, b, socket) = two_disks("reload");
    let (file, notify) = (dir.path("unit.toml"), dir.path("notify"));
    let systemd = UnixDatagram::bind(&notify).unwrap();
    systemd.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    let (mut first, address) =
        Server::start(&["--nvme-tcp", "127.0.0.1:0", &a, "--socket", &socket]);
    let main = first.0.id();
    let write = |text: &str| std::fs::write(&file, text).unwrap();
    let refused = |what: &str, code: i32| {
        let out = reload(&file, main, &notify);
        let err = text(&out.stderr);
        assert_eq!(out.status.code(), Some(code), "{err}");
        assert_eq!(err.lines().count(), 2, "{err}");
        assert!(
            err.starts_with("error: ") && err.contains("\ntry: ") && err.contains(what),
            "{err}"
        );
        let status = told(&systemd);
        assert!(status.starts_with("STATUS=reload refused: ") && status.contains(what), "{status}");
        assert_eq!(last_is(&socket), main, "{what}");
    };
    // A key that there is not; a disk that there is not; another name.
    write(&settings(&address, &socket, &[&a], "depht = 4"));
    refused("there is no key depht", 2);
    write(&settings(&address, &socket, &[&a, "/none.zbd"], ""));
    refused("/none.zbd", 3);
    write(&settings(&address, &socket, &[&a], "").replace(nqn(), "nqn.2026-11.dev.zoneplug:other"));
    refused("would have the name", 3);
    // Wholly other disks.
    let elsewhere = "127.0.0.1:0";
    write(&settings(elsewhere, &socket, &[&b], ""));
    refused("serves none of these disks", 3);
    refused("systemctl restart", 3);
    write(&settings(elsewhere, &dir.path("t"), &[&b], ""));
    refused("answers at no socket", 3);
    // One more disk is taken.
    write(&settings(&address, &socket, &[&a, &b], ""));
    let out = reload(&file, main, &notify);
    assert!(out.status.success(), "{}", text(&out.stderr));
    assert!(first.0.wait().unwrap().success());
    let status = told(&systemd);
    let next = last_is(&socket);
    assert!(next != main && status.contains(&format!("MAINPID={next}\n")), "{status}");
    assert!(status.contains("READY=1\nSTATUS=\n"), "{status}");
    let next = rustix::process::Pid::from_raw(next as i32).unwrap();
    rustix::process::kill_process(next, rustix::process::Signal::TERM).unwrap();
}

/// U9. A reload follows the server of its own unit, and no other one.
#[test]
fn u9_a_take_over_by_number_is_of_that_server_alone() {
    let (dir, a, b, socket) = two_disks("reload-own");
    let other_socket = dir.path("t");
    let (own, address) = Server::start(&["--nvme-tcp", "127.0.0.1:0", &a, "--socket", &socket]);
    // A thread of its own, because the name of a subsystem is that of the thread.
    let start = |disk: String, socket: String| {
        let other = std::thread::Builder::new().name(format!("{}-other", nqn()));
        let server =
            move || Server::start(&["--nvme-tcp", "127.0.0.1:0", &disk, "--socket", &socket]).0;
        other.spawn(server).unwrap().join().unwrap()
    };
    let foreign = start(b.clone(), other_socket.clone());
    let of = |pid: u32| format!("--takeover={pid}");
    let next = |pid: u32, socket: &str, disks: &[&str]| {
        let args = ["serve", "--nqn", nqn(), &of(pid), "--socket", socket, "--nvme-tcp", &address];
        fails(&[&args[..], disks].concat(), 3, "process");
        let check = [
            "serve",
            "--check-config",
            "--nqn",
            nqn(),
            &of(pid),
            "--socket",
            socket,
            "--nvme-tcp",
            &address,
        ];
        fails(&[&check[..], disks].concat(), 3, "process");
        assert_eq!(
            last_is(socket),
            if socket == other_socket { foreign.0.id() } else { own.0.id() }
        );
    };
    next(own.0.id(), &other_socket, &[&b]);
    next(foreign.0.id(), &socket, &[&a]);
    // Its number, with its disk.
    let args = [&*of(own.0.id()), "--socket", &socket, "--nvme-tcp", &address, &a];
    let (_next, _) = Server::start(&args);
    assert!(ok(&["status", "--socket", &socket]).contains("handed over by the server before it"));
}
