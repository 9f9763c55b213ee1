//! `zoneplug serve` and `status` where nothing is served. What they do with a kernel is proven in a virtual machine.

use super::{Dir, ZONEPLUG, fails, ok, text};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

/// U1.
#[test]
fn without_the_driver_it_says_what_is_missing() {
    if Path::new("/dev/ublk-control").exists() {
        return;
    }
    fails(&["serve", "--ublk", "mem,zones=8"], 4, "/dev/ublk-control");
    fails(&["serve", "--remove", "/dev/ublkb0"], 4, "/dev/ublk-control");
}

#[test]
fn flags_that_make_no_sense_are_refused() {
    fails(&["serve"], 2, "--ublk");
    fails(&["serve", "--remove", "sda"], 2, "not a ublk device");
    fails(&["serve", "--ublk", "mem", "--remove", "ublkb0"], 2, "--remove");
    fails(&["serve", "--ublk", "mem", "--depth", "5000"], 2, "5000");
    fails(&["serve", "--ublk", "mem", "--udev-rule"], 2, "--udev-rule");
}

#[test]
fn what_cannot_be_served_over_the_network_is_refused_in_a_line() {
    let serve =
        |args: &[&str], code, what| fails(&[&["serve", "--nvme-tcp"], args].concat(), code, what);
    serve(&["0.0.0.0:0", "mem"], 2, "--allow-host");
    serve(&["127.0.0.1", "mem"], 2, "no address with a port");
    serve(&["127.0.0.1:0"], 2, "<SPEC>");
    serve(&["127.0.0.1:0", "mem", "--nqn", "disk"], 2, "no NVMe qualified name");
    serve(&["127.0.0.1:0", "mem", "mem"], 2, "named twice");
    serve(&["127.0.0.1:0", "mem", "--allow-any-host", "--allow-host", "nqn.x"], 2, "--allow");
    serve(&["192.0.2.1:0", "mem", "--allow-any-host"], 1, "cannot listen");
    serve(&["127.0.0.1:0", "--nvme-tcp", "127.0.0.2:0"], 2, "names no disk");
    serve(&["127.0.0.1:0", "mem", "--nvme-tcp", "127.0.0.2:0", "null"], 2, "second address");
    serve(&["127.0.0.1:0", "mem", "--nvme-tcp", "0.0.0.0:0"], 2, "--allow-host");
    serve(&["mem", "127.0.0.1:0"], 2, "no address with a port");
    fails(&["serve", "--nqn", "nqn.x"], 2, "--nvme-tcp");
}

/// J16.
#[test]
fn a_disk_is_served_at_two_addresses() {
    let dir = Dir::new("serve-two");
    let socket = dir.path("s");
    let server = Command::new(ZONEPLUG)
        .args(["serve", "--nvme-tcp", "127.0.0.1:0", "mem,zones=8,zone-size=16M"])
        .args(["--nvme-tcp", "127.0.0.2:0", "--nqn", "nqn.2026-11.dev.zoneplug:two"])
        .args(["--socket", &socket])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut server = Running(server);
    let mut lines = BufReader::new(server.0.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut line = || lines.next().unwrap();
    let addresses = [line(), line()];
    let addresses = addresses.each_ref().map(|l| l.split_once("  ").unwrap().0);
    let ports = addresses.map(|a| a.rsplit_once(':').unwrap().1);
    assert!(line().starts_with("namespace 1  mem"));
    for (ip, port) in ["127.0.0.1", "127.0.0.2"].into_iter().zip(ports) {
        let connect =
            format!("nvme connect -t tcp -a {ip} -s {port} -n nqn.2026-11.dev.zoneplug:two");
        assert_eq!(line(), connect);
    }
    let (disk, name) = (format!("tcp{}n1", ports[0]), format!("ana_state@{}", addresses[1]));
    let attr = |args: &[&str]| ok(&[&["attr", "--socket", &socket, &disk], args].concat());
    let status = || ok(&["status", "--socket", &socket]);
    assert!(attr(&[]).contains(&name), "{}", attr(&[]));
    assert_eq!(attr(&[&name]).trim(), "optimized");
    attr(&[&name, "non-optimized"]);
    assert_eq!(attr(&[&name]).trim(), "non-optimized");
    assert!(status().contains(&format!("at {}, non-optimized", addresses[1])), "{}", status());
    assert!(status().contains(&format!("at {}, optimized", addresses[0])), "{}", status());
    let refused = |args: &[&str], what| {
        fails(&[&["attr", "--socket", &socket, &disk], args].concat(), 2, what);
    };
    refused(&[&name, "lost"], "optimized, non-optimized, inaccessible");
    refused(&["ana_state@127.0.0.9:1", "optimized"], addresses[1]);
}

/// J15.
#[test]
fn keys_come_from_files_that_others_cannot_read() {
    use std::os::unix::fs::PermissionsExt;
    const KEY: &str = "DHHC-1:01:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";
    let dir = Dir::new("serve-keys");
    let file = dir.path("key");
    std::fs::write(&file, KEY).unwrap();
    let mode = |mode| {
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    let serve = |args: &[&str], code, what| {
        fails(&[&["serve", "--nvme-tcp", "127.0.0.1:0", "mem"], args].concat(), code, what);
    };
    let named = |key: &str| format!("nqn.a={key}");
    mode(0o644);
    serve(&["--dhchap-key", &named(&file)], 2, "chmod 600");
    mode(0o600);
    serve(&["--dhchap-key", &file], 2, "NQN=FILE");
    serve(&["--dhchap-key", &format!("a={file}")], 2, "no NVMe qualified name");
    serve(&["--dhchap-key", &named("/nowhere")], 1, "gen-dhchap-key");
    // A key itself is not taken, and not shown.
    serve(&["--dhchap-key", &named(KEY)], 1, "nvme gen-dhchap-key");
    serve(&["--dhchap-key", &named(&file), "--dhchap-ctrl-key", &file], 2, "of the subsystem");
    serve(&["--dhchap-ctrl-key", &file], 2, "--dhchap-key");
    serve(&["--dhchap-key", &named(&file), "--allow-any-host"], 2, "--allow-any-host");
    serve(&["--dhchap-key", &named(&file), "--dhchap-dhgroup", "ffdhe1024"], 2, "ffdhe2048");
    serve(&["--dhchap-dhgroup", "null"], 2, "--dhchap-key");
    std::fs::write(&file, KEY.replace("AAEC", "AAED")).unwrap();
    serve(&["--dhchap-key", &named(&file)], 2, "checksum");
}

/// A server that does not outlive its test.
struct Running(std::process::Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
    }
}

/// Neither a driver nor privileges are needed.
#[test]
fn a_disk_is_served_over_the_network_until_a_signal() {
    let dir = Dir::new("serve-nvme-tcp");
    let socket = dir.path("s");
    let server = Command::new(ZONEPLUG)
        .args(["serve", "--nvme-tcp", "127.0.0.1:0", "mem,zones=8,zone-size=24M", "null,zones=4"])
        .arg("null,zones=4,order-window=0")
        .args(["--nqn", "nqn.2026-11.dev.zoneplug:test", "--socket", &socket])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut server = Running(server);
    let mut lines = BufReader::new(server.0.stdout.take().unwrap()).lines().map(Result::unwrap);
    let address = lines.next().unwrap();
    let address = address.strip_suffix("  nqn.2026-11.dev.zoneplug:test").unwrap();
    let line = lines.next().unwrap();
    assert!(
        line.starts_with("namespace 1  mem,zones=8,zone-size=24M  192M, 8 zones of 24M"),
        "{line}"
    );
    let line = lines.next().unwrap();
    assert!(
        line.starts_with("namespace 1 becomes no block device") && line.contains("po2@"),
        "{line}"
    );
    let line = lines.next().unwrap();
    assert!(line.starts_with("namespace 2  null,zones=4"), "{line}");
    let line = lines.next().unwrap();
    assert!(line.starts_with("namespace 3  null,zones=4,order-window=0"), "{line}");
    let port = address.strip_prefix("127.0.0.1:").unwrap();
    let attach =
        format!("nvme connect -t tcp -a 127.0.0.1 -s {port} -n nqn.2026-11.dev.zoneplug:test");
    assert_eq!(lines.next().unwrap(), attach);
    std::net::TcpStream::connect(address).unwrap();
    let status = ok(&["status", "--socket", &socket]);
    assert!(status.contains(&format!("tcp{port}n1  mem")) && status.contains("tcp"), "{status}");
    let attr = ok(&["attr", "--socket", &socket, &format!("tcp{port}n2")]);
    assert!(attr.contains("nr_zones"), "{attr}");
    for (disk, milliseconds) in [("n2", "1000"), ("n3", "0")] {
        let disk = format!("tcp{port}{disk}");
        let window = ok(&["attr", "--socket", &socket, &disk, "order_window"]);
        assert_eq!(window.trim(), milliseconds);
    }
    let disk = format!("tcp{port}n2");
    let enable = |value| ok(&["attr", "--socket", &socket, &disk, "enable", value]);
    let hidden = || ok(&["status", "--socket", &socket, &disk]).contains("hosts do not see it");
    enable("0");
    assert!(hidden());
    enable("1");
    assert!(!hidden());
    fails(&["attr", "--socket", &socket, &disk, "enable", "yes"], 2, "enable is 0 or 1");
    assert!(Command::new("kill").arg(server.0.id().to_string()).status().unwrap().success());
    assert!(server.0.wait().unwrap().success());
    assert_eq!(lines.next(), None);
}

/// It needs no driver, and no privileges: a package or a person puts it where udev looks.
#[test]
fn the_rule_for_udev_is_printed() {
    let rule = ok(&["serve", "--udev-rule"]);
    assert!(rule.contains("KERNEL==\"ublkb*\"") && rule.contains("OPTIONS+=\"nowatch\""), "{rule}");
}

#[test]
fn a_disk_that_nobody_serves() {
    fails(&["status", "ublkb987654"], 3, "no server has ublkb987654");
    fails(&["attr", "ublkb987654"], 3, "no server has ublkb987654");
    fails(&["zone-wplugs", "/dev/ublkb987654"], 3, "no server has ublkb987654");
    fails(&["status", "--socket", "/nowhere/x.sock"], 3, "no server listens on /nowhere/x.sock");
    ok(&["status"]);
}

/// The unit in the documentation is one, and as tight as systemd can say of it. Whether it serves is not seen here.
#[test]
fn the_unit_is_hardened() {
    let unit = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/zoneplug.service");
    let unit = std::fs::read_to_string(unit).unwrap();
    let needed =
        "CAP_SYS_ADMIN CAP_SYS_RESOURCE CAP_SYS_RAWIO CAP_DAC_OVERRIDE CAP_DAC_READ_SEARCH";
    assert!(unit.contains(&format!("CapabilityBoundingSet={needed}\n")), "see serve/confine.rs");
    let analyze = |args: &[&str]| Command::new("systemd-analyze").args(args).output();
    if analyze(&["--version"]).is_err() {
        println!("skipped: there is no systemd-analyze");
        return;
    }
    let dir = super::Dir::new("unit");
    let path = dir.path("zoneplug.service");
    std::fs::write(&path, unit.replace("/usr/local/bin/zoneplug", super::ZONEPLUG)).unwrap();
    let out = analyze(&["verify", "--man=no", &path]).unwrap();
    let err = text(&out.stderr);
    assert!(!err.lines().any(|l| l.contains("zoneplug.service")), "{err}");
    // Of 100; a service without a word on security has 96.
    let out = analyze(&["security", "--offline=true", "--threshold=25", &path]).unwrap();
    assert!(out.status.success(), "{}{}", text(&out.stdout), text(&out.stderr));
}
