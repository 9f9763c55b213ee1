//! `zoneplug serve` and `status` where nothing is served. What they do with a kernel is proven in a virtual machine.

use super::nvme_host::{BLOCK, HOST, KEY, NQN, Queue, ZONE, pattern};
use super::{Dir, ZONEPLUG, at_once, fails, ok, soon, text};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use zoneplug_nvme::initiator::{Options, connect};
use zoneplug_nvme::spec::fabrics::ANY_CONTROLLER;

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
    serve(&["192.0.2.1:0", "mem", "--allow-any-host"], 3, "cannot listen");
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
    let server = Command::new(&*ZONEPLUG)
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
    let said = attr(&[&name, "non-optimized"]);
    assert!(said.contains(": optimized -> non-optimized"), "{said}");
    assert_eq!(attr(&[&name]).trim(), "non-optimized");
    assert!(status().contains(&format!("at {}, non-optimized", addresses[1])), "{}", status());
    assert!(status().contains(&format!("at {}, optimized", addresses[0])), "{}", status());
    let refused = |args: &[&str], what| {
        fails(&[&["attr", "--socket", &socket, &disk], args].concat(), 2, what);
    };
    refused(&[&name, "lost"], "optimized, non-optimized, inaccessible");
    refused(&["ana_state@127.0.0.9:1", "optimized"], addresses[1]);
}

/// S12. Secrets of CHAP come from files that other users cannot read. Initiator and target have different ones.
#[test]
fn s12_secrets_of_initiators_come_from_files_that_others_cannot_read() {
    use std::os::unix::fs::PermissionsExt;
    let dir = Dir::new("serve-secrets");
    let (file, other) = (dir.path("secret"), dir.path("other"));
    let write = |file: &str, text, mode| {
        std::fs::write(file, text).unwrap();
        std::fs::set_permissions(file, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    let check = ["serve", "--check-config", "--iscsi", "127.0.0.1:0", "mem"];
    let serve = |args: &[&str], code, what| fails(&[&check, args].concat(), code, what);
    let named = |file: &str| format!("iqn.2026-11.test:a={file}");
    write(&file, "twelve bytes\n", 0o644);
    serve(&["--chap-secret", &named(&file)], 2, "chmod 600");
    write(&file, "short\n", 0o600);
    serve(&["--chap-secret", &named(&file)], 2, "fewer than 12 bytes");
    let said = at_once(&[&check[..], &["--chap-secret", &named(&file)]].concat());
    assert!(!text(&said.stderr).contains("short"), "{}", text(&said.stderr));
    write(&file, "twelve bytes\n", 0o600);
    write(&other, "another secret\n", 0o600);
    serve(&["--chap-secret", &file], 2, "NAME=FILE");
    serve(&["--chap-secret", &format!("disk={file}")], 2, "no name of iSCSI");
    serve(&["--chap-secret", &named("/nowhere")], 3, "the secret /nowhere: No such file");
    serve(&["--chap-target-secret", &file], 2, "--chap-secret");
    let both = ["--chap-secret", &named(&file), "--chap-target-secret"];
    serve(&[&both[..], &[&*file]].concat(), 2, "that of the target too");
    serve(&["--chap-secret", &named(&file), "--chap-secret", &named(&other)], 2, "two secrets");
    serve(&["--chap-secret", &named(&file), "--allow-any-initiator"], 2, "any initiator");
    ok(&[&check[..], &both, &[&*other]].concat());
    // With a secret, an address that other machines reach needs no other permission.
    let outside = ["serve", "--check-config", "--iscsi", "0.0.0.0:0", "mem"];
    fails(&outside, 2, "--chap-secret");
    ok(&[&outside[..], &["--chap-secret", &named(&file)]].concat());
}

/// J15.
#[test]
fn keys_come_from_files_that_others_cannot_read() {
    use std::os::unix::fs::PermissionsExt;
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
    serve(&["--dhchap-key", &named("/nowhere")], 3, "the key /nowhere: No such file");
    // A key itself is not taken, and not shown.
    serve(&["--dhchap-key", &named(KEY)], 2, "nvme gen-dhchap-key");
    let said = at_once(&["serve", "--nvme-tcp", "127.0.0.1:0", "mem", "--dhchap-key", &named(KEY)]);
    assert!(!text(&said.stderr).contains("AAECAwQF"), "{}", text(&said.stderr));
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

/// A slip in a path makes no directories.
#[test]
fn the_directory_of_a_socket_must_be_there() {
    let dir = Dir::new("serve-socket");
    let socket = dir.path("not/there/s");
    let args = ["serve", "--nvme-tcp", "127.0.0.1:0", "mem,zones=8", "--socket", &socket];
    fails(&args, 3, &format!("no socket at {socket}: No such file"));
    assert!(!std::path::Path::new(&dir.path("not")).exists());
}

/// Neither a driver nor privileges are needed.
#[test]
fn a_disk_is_served_over_the_network_until_a_signal() {
    let dir = Dir::new("serve-nvme-tcp");
    let socket = dir.path("s");
    let server = Command::new(&*ZONEPLUG)
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
        line.starts_with("Linux makes no block device of namespace 1") && line.contains("po2@"),
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

/// The unit of the packages is one, and as tight as systemd can say of it. Whether it serves is not seen here.
#[test]
fn the_unit_is_hardened() {
    let unit = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/zoneplug@.service");
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
    let path = dir.path("zoneplug@.service");
    std::fs::write(&path, unit.replace("/usr/bin/zoneplug", &super::ZONEPLUG)).unwrap();
    let out = analyze(&["verify", "--man=no", &path]).unwrap();
    let err = text(&out.stderr);
    assert!(!err.lines().any(|l| l.contains("zoneplug@")), "{err}");
    // Of 100; a service without a word on security has 96.
    let out = analyze(&["security", "--offline=true", "--threshold=32", &path]).unwrap();
    assert!(out.status.success(), "{}{}", text(&out.stdout), text(&out.stderr));
}

/// A server of a file of settings, with what it says on stderr.
struct FromFile {
    server: Running,
    lines: Box<dyn Iterator<Item = String>>,
    said: std::sync::mpsc::Receiver<String>,
    socket: String,
}

impl FromFile {
    fn start(dir: &Dir, text: &str, args: &[&str]) -> FromFile {
        let (file, socket) = (dir.path("zoneplug.toml"), dir.path("s"));
        std::fs::write(&file, text).unwrap();
        let mut server = Command::new(&*ZONEPLUG);
        let server = server.args(["serve", "--config", &file, "--socket", &socket]).args(args);
        let server = server.env_remove("ZONEPLUG_LOG").env_remove("JOURNAL_STREAM");
        let server = server.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut server = Running(server.unwrap());
        let lines = BufReader::new(server.0.stdout.take().unwrap()).lines().map(Result::unwrap);
        let stderr = BufReader::new(server.0.stderr.take().unwrap()).lines().map(Result::unwrap);
        let (tell, said) = std::sync::mpsc::channel();
        std::thread::spawn(move || stderr.for_each(|line| drop(tell.send(line))));
        FromFile { server, lines: Box::new(lines), said, socket }
    }

    /// The address in the first line.
    fn address(&mut self) -> std::net::SocketAddr {
        let line = self
            .lines
            .next()
            .unwrap_or_else(|| panic!("{:?}", self.said.iter().collect::<Vec<_>>()));
        line.split("  ").next().unwrap().parse().unwrap()
    }

    fn said(&self) -> String {
        self.said.recv_timeout(std::time::Duration::from_secs(20)).expect("it says nothing")
    }

    /// Ends it; what it said since.
    fn end(mut self) -> (Option<i32>, Vec<String>) {
        assert!(
            Command::new("kill").arg(self.server.0.id().to_string()).status().unwrap().success()
        );
        let code = self.server.0.wait().unwrap().code();
        (code, self.said.iter().collect())
    }
}

/// Of a file: several disks, keys of a specification, the log of what befalls a disk, and its end.
#[test]
fn a_server_of_a_file_logs_what_befalls_its_disks() {
    let dir = Dir::new("serve-config");
    let text = r#"
        nvme-tcp = "127.0.0.1:0"
        nqn = "nqn.2026-11.dev.zoneplug:test"

        [[disk]]
        device = "mem"
        zones = 8
        zone-size = "4M"
        zone_recovery = "client"
        fault = "write/io/zone=1"
        nvme-tcp = true

        [[disk]]
        spec = "null,zones=4"
        nvme-tcp = true
    "#;
    let mut server = FromFile::start(&dir, text, &["--log-level", "info"]);
    let address = server.address();
    let spec = "mem,zones=8,zone-size=4M,zone_recovery=client,fault=write/io/zone=1";
    let line = server.lines.next().unwrap();
    assert!(line.starts_with(&format!("namespace 1  {spec}")), "{line}");
    assert!(server.said().starts_with("zoneplug: info: "), "it has started");
    let (admin, mut q) = Queue::pair_at(&address.to_string(), NQN);
    let bytes = pattern(4096, 1);
    let write = |at| zoneplug_nvme::initiator::write(1, at, bytes.clone(), BLOCK);
    assert_ne!(q.run(write(ZONE)).completion.status, 0);
    let name = format!("tcp{}n1", address.port());
    let mut said = Vec::new();
    while !said.last().is_some_and(|l: &String| l.contains("stale")) {
        said.push(server.said());
    }
    let failed =
        format!("zoneplug: error: {name}: write at sector 8192 failed: I/O error (zone 1)");
    assert!(said.contains(&failed), "{said:#?}");
    // Zones of the other disk, and what succeeds, are no events.
    q.ok(write(0));
    drop((admin, q));
    let (code, last) = server.end();
    assert_eq!(code, Some(0), "{last:?}");
    assert!(
        last.iter().any(|l| l == "zoneplug: info: the server ends: a signal has come"),
        "{last:?}"
    );
    assert!(!last.iter().any(|l| l.contains("error") || l.contains("warning")), "{last:?}");
}

/// T7. A line like the last one is held back for a second, and comes then although nothing else is logged.
#[test]
fn a_line_that_is_held_back_comes_by_itself() {
    let dir = Dir::new("serve-repeats");
    let text = "nvme-tcp = \"127.0.0.1:0\"\nnqn = \"nqn.2026-11.dev.zoneplug:test\"\nallow-host = [\"nqn.other\"]\n[[disk]]\nspec = \"null,zones=4\"\nnvme-tcp = true\n";
    let mut server = FromFile::start(&dir, text, &[]);
    let address = server.address();
    for _ in 0..3 {
        let mut q = Queue::open_at(address, Options::default());
        assert_ne!(q.run(connect(0, 32, ANY_CONTROLLER, NQN, HOST)).completion.status, 0);
    }
    let (first, rest) = (server.said(), server.said());
    assert!(first.contains(HOST) && !first.contains("more like this"), "{first}");
    assert!(rest.contains(HOST) && rest.ends_with(", and 1 more like this"), "{rest}");
}

/// A command that fails at the end of the server is logged before the process ends.
#[test]
fn what_fails_at_the_end_is_logged_too() {
    let dir = Dir::new("serve-last");
    let text =
        "nvme-tcp = \"127.0.0.1:0\"\n[[disk]]\nspec = \"mem,fault=flush/io\"\nnvme-tcp = true\n";
    let mut server = FromFile::start(&dir, text, &[]);
    server.address();
    let (code, said) = server.end();
    assert_eq!(code, Some(1), "{said:?}");
    let line = said.iter().find(|l| l.starts_with("zoneplug: error: tcp"));
    assert!(line.is_some_and(|l| l.contains(": flush at sector 0 failed: I/O error")), "{said:?}");
}

#[test]
fn the_level_of_the_log_comes_from_the_flag_the_variable_or_the_file() {
    let dir = Dir::new("serve-level");
    let spec = "[[disk]]\nspec = \"mem\"\nnvme-tcp = true\n";
    let lines = |level: &str, variable: &str, flag: &str| {
        let file = dir.path("z.toml");
        std::fs::write(&file, format!("nvme-tcp = \"127.0.0.1:0\"\n{level}\n{spec}")).unwrap();
        let mut server = Command::new(&*ZONEPLUG);
        let server = server.args(["serve", "--config", &file, "--socket", &dir.path("s")]);
        if !flag.is_empty() {
            server.args(["--log-level", flag]);
        }
        server.env_remove("JOURNAL_STREAM").env_remove("ZONEPLUG_LOG");
        if !variable.is_empty() {
            server.env("ZONEPLUG_LOG", variable);
        }
        let server = server.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut server = Running(server);
        let mut out = BufReader::new(server.0.stdout.take().unwrap()).lines();
        let first = out.next();
        let _ = Command::new("kill").arg(server.0.id().to_string()).status();
        let mut said = String::new();
        std::io::Read::read_to_string(server.0.stderr.as_mut().unwrap(), &mut said).unwrap();
        assert!(first.is_some() || said.contains("error"), "{said}");
        (server.0.wait().unwrap().code(), said)
    };
    let info = |(code, said): (Option<i32>, String)| {
        assert_eq!(code, Some(0), "{said}");
        said.contains("zoneplug: info: ")
    };
    assert!(!info(lines("", "", "")), "warn where stdout has the disks");
    assert!(info(lines("log-level = \"info\"", "", "")));
    assert!(!info(lines("log-level = \"info\"", "error", "")));
    assert!(info(lines("log-level = \"off\"", "error", "info")));
    let (code, said) = lines("", "loud", "");
    assert!(code == Some(2) && said.contains("loud") && said.contains("info"), "{said}");
    for key in ["", "log-level = \"info\""] {
        let (code, said) = lines(key, "loud", "");
        let first = "error: ZONEPLUG_LOG = loud: no such value\ntry: one of off, error,";
        assert!(code == Some(2) && said.starts_with(first), "{said}");
    }
    assert!(info(lines("", "loud", "info")), "a flag overrides the variable");
}

/// U1, and what a person types.
#[test]
fn a_file_is_checked_without_serving_it() {
    let dir = Dir::new("serve-check");
    let (file, disk) = (dir.path("zoneplug.toml"), dir.path("d.zbd"));
    let write = |text: &str| std::fs::write(&file, text).unwrap();
    let check = |code, what| fails(&["serve", "--check-config", &file], code, what);
    write(&format!("depth = 64\n\n[[disk]]\nspec = \"{disk}\"\nublk = true\n"));
    check(3, "zoneplug.toml:3:1: cannot open");
    ok(&["create", &disk, "--size", "64M", "--zone-size", "4M"]);
    let before = std::fs::read(&disk).unwrap();
    let out = ok(&["serve", "--check-config", &file]);
    assert!(out.contains("64M, 16 zones of 4M") && out.contains("of 64 requests"), "{out}");
    assert!(ok(&["serve", "--config", &file, "--check-config", "--depth", "7"]).contains("of 7 "));
    assert!(std::fs::read(&disk).unwrap() == before, "it was written");
    write(&format!("depht = 64\n[[disk]]\nspec = \"{disk}\"\nublk = true\n"));
    check(2, "zoneplug.toml:1:1: there is no key depht");
    fails(&["serve", "--config", &file], 2, "zoneplug.toml:1:1: there is no key depht");
    write("[[disk]]\nspec = \"mem,zone-size=96M\"\nublk = true\n");
    check(4, "zoneplug.toml:1:1: Linux takes zones of a power of two");
    write("socket-group = \"no such group\"\n[[disk]]\nspec = \"mem\"\nublk = true\n");
    check(3, "zoneplug.toml:1:1: there is no group");
    fails(&["serve", "--check-config", "/nowhere"], 3, "/nowhere");
    fails(&["serve", "--check-config", &file, "--config", &file], 2, "both name a file");
    fails(&["serve", "--json", "--ublk", "mem"], 2, "--check-config");
    for json in [&["serve", "--check-config"][..], &["serve", "--check-config", "--json"]] {
        fails(json, 2, "zoneplug serve needs a disk");
    }
}

/// Needs root: the socket is given to a group, and a client of another user asks.
#[test]
fn members_of_the_sockets_group_may_ask() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    use std::os::unix::process::CommandExt;
    let is_root = ok_of(Command::new("id").arg("-u")).trim() == "0";
    if !is_root {
        println!("skipped: this is not root");
        return;
    }
    let dir = Dir::new("serve-group");
    std::fs::set_permissions(&dir.0, std::fs::Permissions::from_mode(0o755)).unwrap();
    let text = "nvme-tcp = \"127.0.0.1:0\"\nsocket-group = 54321\n[[disk]]\nspec = \"mem\"\nnvme-tcp = true\n";
    let mut server = FromFile::start(&dir, text, &[]);
    server.address();
    // The server prints its lines when the socket is there.
    let file = std::fs::metadata(&server.socket).unwrap();
    assert_eq!((file.gid(), file.mode() & 0o777), (54321, 0o660));
    let ask = "import os, socket, sys
s = socket.socket(socket.AF_UNIX)
os.setgroups([int(g) for g in sys.argv[2].split(',')])
os.setgid(65534)
os.setuid(65534)
try:
    s.connect(sys.argv[1])
    s.send(b'{\"cmd\":\"status\"}\\n')
except OSError as e:
    print(e)
try: print(s.makefile().readline())
except OSError: pass";
    let asks = |groups: &str| {
        let mut python = Command::new("/usr/bin/python3");
        ok_of(python.args(["-c", ask, &server.socket, groups]).uid(0))
    };
    assert!(asks("5,54321").contains("{\"ok\":["), "{}", asks("5,54321"));
    // The kernel refuses another; and if the file were open to all, the server would.
    assert!(asks("5").contains("Permission denied"), "{}", asks("5"));
    std::fs::set_permissions(&server.socket, std::fs::Permissions::from_mode(0o666)).unwrap();
    assert!(asks("5").contains("another user's"), "{}", asks("5"));
    let (code, said) = server.end();
    let line = "zoneplug: warning: a client of user 65534 was refused at the socket";
    assert!(code == Some(0) && said.iter().any(|l| l == line), "{said:?}");
}

fn ok_of(command: &mut Command) -> String {
    let out = command.output().unwrap();
    assert!(out.status.success(), "{}", text(&out.stderr));
    text(&out.stdout)
}

/// A shell that takes the output of a command waits for its end. The server lets go of it once it is ready.
#[test]
fn a_server_in_the_background_lets_go_of_its_callers_output() {
    let dir = Dir::new("background");
    let socket = dir.path("s");
    let script = "x=$(\"$0\" serve --nvme-tcp 127.0.0.1:0 mem,zones=8 --socket \"$1\" --background 2>&1) && echo \"$x\"";
    let out = soon(Command::new("sh").args(["-c", script, &ZONEPLUG, &socket]));
    let shown = ok(&["status", "--socket", &socket, "--json"]);
    let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
    let pid = shown[0]["pid"].as_u64().or_else(|| shown["disks"][0]["pid"].as_u64()).unwrap();
    let fd = |n: u32| std::fs::read_link(format!("/proc/{pid}/fd/{n}")).unwrap();
    let open = [0, 1, 2].map(fd);
    assert!(Command::new("kill").arg(pid.to_string()).status().unwrap().success());
    let said = text(&out.stdout);
    assert!(out.status.success(), "{said}{}", text(&out.stderr));
    assert!(
        said.contains("namespace 1") && said.contains("nvme connect"),
        "all of its lines: {said}"
    );
    assert_eq!(open[..2], ["/dev/null", "/dev/null"].map(std::path::PathBuf::from));
    assert!(!open[2].starts_with("/dev/pts") && !open[2].to_string_lossy().starts_with("pipe:"));
}

/// The advice about `enable` can be followed, whichever disk it was asked of.
#[test]
fn the_advice_about_enable_can_be_followed() {
    let dir = Dir::new("serve-enable");
    let (disk, socket) = (dir.path("d.zbd"), dir.path("s"));
    ok(&["create", &disk, "--size", "64M", "--zone-size", "8M"]);
    let server = Command::new(&*ZONEPLUG)
        .args(["serve", "--nvme-tcp", "127.0.0.1:0", &disk, "--socket", &socket])
        .args(["--nqn", "nqn.2026-11.dev.zoneplug:enable"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut server = Running(server);
    let line = BufReader::new(server.0.stdout.take().unwrap()).lines().next().unwrap().unwrap();
    let port = line.split_once("  ").unwrap().0.rsplit_once(':').unwrap().1;
    let name = format!("tcp{port}n1");
    let set = |name_and_value: [&'static str; 2]| {
        [&["attr", "--socket", &*socket, &*name], &name_and_value[..]].concat()
    };
    fails(&set(["enable", "5"]), 2, "enable 1: hosts see the disk; enable 0: they do not");
    fails(&set(["enabl", "0"]), 3, ", enable");
    assert!(ok(&set(["enable", "0"])).contains("enable: 1 -> 0"));
    let shown = ok(&["status", "--socket", &socket]);
    assert!(shown.contains(&format!("zoneplug attr {name} enable 1")), "{shown}");
    ok(&set(["enable", "1"]));
    // A disk that no host sees, and no disk at all.
    fails(&["attr", "mem,zones=8", "enable", "0"], 3, "zoneplug attr tcp4420n1 enable");
    fails(&["attr", "enable", "0"], 2, "zoneplug attr DISK enable 0");
    fails(&["attr", "qd1", "1"], 2, "zoneplug attr DISK qd1 1");
    // The file is open in a server that has its socket elsewhere.
    fails(&["snapshot", &disk, &dir.path("copy.zbd")], 3, "--socket PATH");
    // How the data moves.
    let shown: serde_json::Value =
        serde_json::from_str(&ok(&["status", "--socket", &socket, "--json"])).unwrap();
    let io = &shown["disks"][0]["io"][0];
    assert!(["ring", "threads", "copy"].contains(&io["by"].as_str().unwrap()), "{shown}");
    assert!(ok(&["status", "--socket", &socket]).contains("  I/O by "));
}

#[test]
fn the_help_names_both_ways_to_serve() {
    let help = ok(&["serve", "--help"]);
    let about = help.split("Usage:").next().unwrap();
    assert!(about.contains("/dev/ublkbN") && about.contains("NVMe/TCP"), "{about}");
    let all = ok(&["--help"]);
    let line = all.lines().find(|line| line.trim_start().starts_with("serve ")).unwrap();
    assert!(line.contains("NVMe/TCP"), "{line}");
}
