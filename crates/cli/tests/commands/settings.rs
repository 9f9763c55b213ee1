//! `--check-config` refuses all that `zoneplug serve` would refuse, in the same words, before a disk is opened for writing.

use super::handover::{Server, last_is, nqn, two_disks};
use super::nvme_host::KEY;
use super::{Dir, ZONEPLUG, fails, ok, soon, text};
use std::process::{Command, Output};

/// A file of settings, and the head that each needs.
struct File {
    path: String,
    head: String,
}

impl File {
    fn new(dir: &Dir) -> File {
        let head = format!(
            "nvme-tcp = \"127.0.0.1:0\"\nnqn = \"{}\"\nsocket = \"{}\"\n",
            nqn(),
            dir.path("s")
        );
        File { path: dir.path("z.toml"), head }
    }

    fn write(&self, text: &str) {
        std::fs::write(&self.path, text).unwrap();
    }

    /// A disk as a namespace.
    fn disk(spec: &str) -> String {
        format!("[[disk]]\nspec = \"{spec}\"\nnvme-tcp = true\n")
    }

    fn run(&self, args: &[&str]) -> Output {
        soon(Command::new(&*ZONEPLUG).args(["serve", "--config", &self.path]).args(args))
    }

    /// Refused by the check and by the start, with one text that begins with this line and column of the file.
    fn refused(&self, text_of: &str, code: i32, at: &str, what: &str) {
        self.write(text_of);
        let all =
            [&["--check-config"][..], &["--check-config", "--takeover"], &["--takeover"], &[]];
        for args in all {
            let out = self.run(args);
            let err = text(&out.stderr);
            assert_eq!(out.status.code(), Some(code), "{args:?}\n{text_of}\n{err}");
            assert!(
                err.starts_with(&format!("error: {}:{at}: ", self.path)),
                "{args:?} {at}: {err}"
            );
            assert!(err.lines().count() == 2 && err.contains(what), "{args:?} {what}: {err}");
        }
    }
}

/// U1. The address of the metrics is read before a disk is opened.
#[test]
fn an_address_of_metrics_is_checked() {
    let (dir, a, ..) = two_disks("settings-metrics");
    let file = File::new(&dir);
    let before = std::fs::read(&a).unwrap();
    for (value, what) in [
        ("\"0.0.0.0:9420\"", "can be read from other machines"),
        ("\"127.0.0.1:99999\"", "is no address with a port"),
        ("9420", "is no address with a port"),
    ] {
        let text = format!("{}metrics = {value}\n{}", file.head, File::disk(&a));
        file.refused(&text, 2, "4:1", what);
    }
    assert!(std::fs::read(&a).unwrap() == before, "the disk was opened for writing");
    // A flag that overrides the key is to blame itself.
    file.write(&format!("{}metrics = \"127.0.0.1:0\"\n{}", file.head, File::disk(&a)));
    let out = file.run(&["--check-config", "--metrics", "1"]);
    assert!(
        text(&out.stderr).starts_with("error: --metrics 1 is no address"),
        "{}",
        text(&out.stderr)
    );
}

/// Two sockets cannot listen at one address.
#[test]
fn an_address_is_given_once() {
    let (dir, a, ..) = two_disks("settings-addresses");
    let file = File::new(&dir);
    let of = |addresses: &str, more: &str| {
        let head = file.head.replace("\"127.0.0.1:0\"", addresses);
        format!("{head}{more}{}", File::disk(&a))
    };
    let twice = of("[\"127.0.0.1:44201\", \"127.0.0.1:44201\"]", "");
    file.refused(&twice, 2, "1:1", "127.0.0.1:44201 is given twice");
    let all = of("[\"127.0.0.1:44201\", \"0.0.0.0:44201\"]", "allow-any-host = true\n");
    file.refused(&all, 2, "1:1", "0.0.0.0:44201");
    let metrics = of("\"127.0.0.1:44201\"", "metrics = \"127.0.0.1:44201\"\n");
    file.refused(&metrics, 2, "4:1", "127.0.0.1:44201 is given twice");
}

/// One disk is one disk, by whatever path, and is not opened twice.
#[test]
fn a_disk_is_named_once_by_whatever_path() {
    let (dir, a, b, _) = two_disks("settings-twice");
    let file = File::new(&dir);
    let (link, hard) = (dir.path("link.zbd"), dir.path("hard.zbd"));
    std::os::unix::fs::symlink(&a, &link).unwrap();
    std::fs::hard_link(&a, &hard).unwrap();
    let dotted = a.replace("/a.zbd", "/./a.zbd");
    let before = std::fs::read(&a).unwrap();
    for other in [&link, &hard, &dotted, &format!("{a},qd1=1"), &format!("linear@{b}%{hard}")] {
        let text = format!("{}{}{}", file.head, File::disk(&a), File::disk(other));
        file.refused(&text, 2, "7:1", "are one disk");
    }
    // The later one is named, whichever way it is served in.
    let later = format!("[[disk]]\nspec = \"{link}\"\nublk = true\n");
    file.refused(&format!("{}{}{later}", file.head, File::disk(&a)), 2, "7:1", "are one disk");
    let key = format!("[[disk]]\ndevice = \"{a}\"\nqd1 = 1\nnvme-tcp = true\n");
    file.refused(&format!("{}{}{key}", file.head, File::disk(&a)), 2, "7:1", "are one disk");
    let read = |path: &str| File::disk(&format!("{path},read-only=1"));
    file.refused(&format!("{}{}{}", file.head, read(&a), read(&link)), 2, "7:1", "are one disk");
    assert!(std::fs::read(&a).unwrap() == before, "the disk was opened for writing");
    // By flags.
    let check = ["serve", "--check-config", "--nvme-tcp", "127.0.0.1:0"];
    fails(&[&check[..], &[&a, &link]].concat(), 2, "are one disk");
    fails(&[&check[..], &["mem", "mem"]].concat(), 2, "mem is named twice");
    fails(&["serve", "--check-config", "--ublk", "mem", "--ublk", "mem"], 2, "mem is named twice");
    // A block device and a namespace; cuts of one file in one specification; a reader beside the writer of other zones.
    let both = format!("{}[[disk]]\nspec = \"{a}\"\nnvme-tcp = true\nublk = true\n", file.head);
    file.write(&both);
    ok(&["serve", "--check-config", &file.path]);
    let cuts = format!("linear@linear,first=0,zones=2@{a}%linear,first=4,zones=2@{a}");
    file.write(&format!("{}{}", file.head, File::disk(&cuts)));
    ok(&["serve", "--check-config", &file.path]);
    let part = format!("linear,first=4,zones=2@{a},read-only=1");
    file.write(&format!("{}{}{}", file.head, File::disk(&a), File::disk(&part)));
    ok(&["serve", "--check-config", &file.path]);
}

/// No two devices get one number, also where one disk is several devices.
#[test]
fn numbers_of_block_devices_do_not_collide() {
    let dir = Dir::new("settings-numbers");
    let file = File::new(&dir);
    let of = |spec: &str, key: &str| format!("[[disk]]\nspec = \"{spec}\"\nublk = true\n{key}\n");
    let check = |text: &str, at: &str, what: &str| {
        file.write(text);
        for args in [&["--check-config"][..], &["--check-config", "--takeover"]] {
            let err = text_of(&file.run(args));
            assert!(err.starts_with(&format!("error: {}:{at}: ", file.path)), "{err}");
            assert!(err.contains(what), "{what}: {err}");
        }
    };
    let three = [of("mem", "id = 4"), of("mem,zones=8", ""), of("mem,zones=9", "")].concat();
    check(&format!("id = 3\n{three}"), "10:1", "/dev/ublkb4 would be of mem and of mem,zones=9");
    let many = of("null,zones=100000,zone-size=4M", "id = 3");
    check(
        &format!("{many}{}", of("mem", "id = 5")),
        "5:1",
        "/dev/ublkb5 would be of null,zones=100000",
    );
    check(
        &format!("{}{many}", of("mem", "id = 5")),
        "5:1",
        "/dev/ublkb5 would be of mem and of null",
    );
    check(&of("mem", "id = 99999999"), "4:6", "99999999 is not in");
    let last = of("null,zones=100000,zone-size=4M", "id = 1048575");
    check(&last, "1:1", "would be up to /dev/ublkb1048581");
    fails(
        &["serve", "--check-config", "--id", "1048576", "--ublk", "mem"],
        2,
        "--id is 0 to 1048575",
    );
    file.write(&format!("{many}{}", of("mem", "id = 10")));
    ok(&["serve", "--check-config", &file.path]);
}

fn text_of(out: &Output) -> String {
    assert_eq!(out.status.code(), Some(2), "{}", text(&out.stderr));
    text(&out.stderr)
}

/// A trace is made by a start, and the check says if it cannot be.
#[test]
fn a_trace_that_cannot_be_made_is_refused_by_the_check() {
    let (dir, a, b, _) = two_disks("settings-trace");
    let file = File::new(&dir);
    let before = std::fs::read(&a).unwrap();
    let traced = File::disk(&format!("trace,file=/none/t@{b}"));
    file.refused(
        &format!("{}{}{traced}", file.head, File::disk(&a)),
        3,
        "7:1",
        "there is no directory",
    );
    assert!(std::fs::read(&a).unwrap() == before, "the disk was opened for writing");
}

/// One file takes the trace of one disk, so two disks that name the same file are refused.
#[test]
fn two_disks_do_not_trace_into_one_file() {
    let (dir, a, b, _) = two_disks("settings-one-trace");
    let file = File::new(&dir);
    let of = |path: &str, disk: &str| File::disk(&format!("trace,file={path}@{disk}"));
    let (one, same) = (dir.path("t"), dir.path("./t"));
    let both = format!("{}{}{}", file.head, of(&one, &a), of(&same, &b));
    file.refused(&both, 2, "7:1", "trace into one file\ntry: a file for each, not ");
    file.write(&format!("{}{}{}", file.head, of(&one, &a), of(&dir.path("u"), &b)));
    ok(&["serve", "--check-config", &file.path]);
    let joined = File::disk(&format!("linear@trace,file={one}@{a}%trace,file={one}@{b}"));
    file.refused(&format!("{}{joined}", file.head), 2, "4:1", "two traces into one file");
}

/// The check refuses a disk that namespaces cannot show, and a name that no subsystem can have, as a start does.
#[test]
fn what_the_network_does_not_take_is_refused_by_the_check() {
    let (dir, a, ..) = two_disks("settings-network");
    let file = File::new(&dir);
    let long = dir.path("long.zbd");
    ok(&["create", &long, "--zones", "4", "--zone-size", "1M", "--lba-size", "8K"]);
    let before = std::fs::read(&a).unwrap();
    let disks = format!("{}{}", File::disk(&a), File::disk(&long));
    file.refused(&format!("{}{disks}", file.head), 4, "7:1", "a namespace has blocks of up to 4K");
    let head = file.head.replace(nqn(), "nqn.2014-08.org.nvmexpress.discovery");
    let text = format!("{head}{}", File::disk(&a));
    file.refused(&text, 2, "2:1", "is the name of every discovery controller");
    assert!(std::fs::read(&a).unwrap() == before, "the disk was opened for writing");
}

/// The hint about a wrong key names keys: a flag in a file of settings would be another error.
#[test]
fn a_hint_about_a_key_names_keys() {
    let (dir, a, ..) = two_disks("settings-hints");
    let file = File::new(&dir);
    let head = file.head.replace("127.0.0.1:0", "0.0.0.0:4420");
    let hint = "\ntry: dhchap-key = \"NQN=FILE\"; allow-host = \"NQN\" (on the host: cat /etc/nvme/hostnqn); allow-any-host = true\n";
    file.refused(&format!("{head}{}", File::disk(&a)), 2, "1:1", hint);
}

/// An address that no interface has may be there before the start: the check names it.
#[test]
fn an_address_of_another_machine_is_named_by_the_check() {
    let (dir, a, ..) = two_disks("settings-elsewhere");
    let file = File::new(&dir);
    // An address of documentation (RFC 5737).
    let head = file.head.replace("127.0.0.1:0", "192.0.2.77:4420");
    file.write(&format!("{head}allow-any-host = true\n{}", File::disk(&a)));
    let out = file.run(&["--check-config"]);
    let err = text(&out.stderr);
    assert_eq!(out.status.code(), Some(0), "{err}");
    let says = "192.0.2.77:4420: no interface of this machine has that address now: a start fails";
    assert!(err.contains(says) && err.lines().count() == 1, "{err}");
    assert_eq!(file.run(&[]).status.code(), Some(3));
}

/// The place of a socket is looked at before a disk is opened.
#[test]
fn the_path_of_a_socket_is_checked() {
    let (dir, a, b, _) = two_disks("settings-socket");
    let file = File::new(&dir);
    let before = std::fs::read(&a).unwrap();
    let (here, inside, long) = (dir.path(""), format!("{b}/s"), dir.path(&"x".repeat(200)));
    for (path, what) in [
        (&*here, "something is there that is no socket"),
        (&b, "something is there that is no socket"),
        (&inside, "not a directory"),
        (&long, "path must be shorter"),
    ] {
        let head = file.head.replace(&dir.path("s"), path);
        file.refused(&format!("{head}{}", File::disk(&a)), 2, "3:1", what);
    }
    assert!(std::fs::read(&a).unwrap() == before, "the disk was opened for writing");
}

/// A disk that cannot be written, or that another process has, is found before another disk is opened for writing.
#[test]
fn a_disk_that_cannot_be_opened_changes_no_other() {
    let (dir, a, b, socket) = two_disks("settings-busy");
    let file = File::new(&dir);
    let other = dir.path("t");
    let (_server, _) = Server::start(&["--nvme-tcp", "127.0.0.1:0", &b, "--socket", &other]);
    let before = std::fs::read(&a).unwrap();
    // Another name, or the check would find the name of the running server taken.
    let head = file.head.replace(nqn(), &format!("{}-next", nqn()));
    file.write(&format!("{head}{}{}", File::disk(&a), File::disk(&b)));
    let is_refused = |args: &[&str]| {
        let out = file.run(args);
        let err = text(&out.stderr);
        assert_eq!(out.status.code(), Some(3), "{args:?}: {err}");
        assert!(
            err.starts_with(&format!("error: {}:7:1: {b} is open for writing", file.path)),
            "{err}"
        );
    };
    is_refused(&["--check-config", "--takeover"]);
    is_refused(&[]);
    assert!(std::fs::read(&a).unwrap() == before, "the disk was opened for writing");
    // The check may run beside the server that is to be replaced.
    let out = file.run(&["--check-config"]);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    assert!(text(&out.stderr).contains(&format!("{b} is open for writing in another process now")));
    assert!(!std::path::Path::new(&socket).exists());
}

/// Needs root, to mount a file system that is read-only.
#[test]
fn a_disk_on_a_read_only_file_system_is_refused() {
    let (dir, a, b, _) = two_disks("settings-ro");
    let file = File::new(&dir);
    let mount = dir.path("ro");
    std::fs::create_dir(&mount).unwrap();
    let disk = format!("{mount}/b.zbd");
    let script = "set -e; mount -t tmpfs t \"$1\"; cp \"$2\" \"$1/b.zbd\"; mount -o remount,ro \"$1\"; shift 2; exec \"$@\"";
    let before = std::fs::read(&a).unwrap();
    file.write(&format!("{}{}{}", file.head, File::disk(&a), File::disk(&disk)));
    for check in [&["--check-config"][..], &["--check-config", "--takeover"], &[]] {
        let mut command = Command::new("unshare");
        command.args([
            "-m", "sh", "-c", script, "sh", &mount, &b, &ZONEPLUG, "serve", "--config", &file.path,
        ]);
        let out = soon(command.args(check));
        let err = text(&out.stderr);
        if err.contains("unshare: ") || err.contains("mount: ") {
            println!("skipped: {err}");
            return;
        }
        assert_eq!(out.status.code(), Some(3), "{check:?}: {err}");
        assert!(
            err.starts_with(&format!("error: {}:7:1: cannot open {disk}: Read-only", file.path)),
            "{err}"
        );
    }
    assert!(std::fs::read(&a).unwrap() == before, "the disk was opened for writing");
    // To read it is possible.
    file.write(&format!("{}{}", file.head, File::disk(&format!("{disk},read-only=1"))));
    let mut command = Command::new("unshare");
    command.args([
        "-m",
        "sh",
        "-c",
        script,
        "sh",
        &mount,
        &b,
        &ZONEPLUG,
        "serve",
        "--check-config",
        &file.path,
    ]);
    assert_eq!(soon(&mut command).status.code(), Some(0));
}

/// U9. The server that runs was started without a socket of its own, and the next one gets one. Needs a place for the usual one.
#[test]
fn u9_a_takeover_finds_the_server_at_the_usual_socket() {
    let (dir, a, ..) = two_disks("settings-new-socket");
    let file = File::new(&dir);
    if std::fs::create_dir_all("/run/zoneplug").is_err() {
        println!("skipped: this user has no usual place");
        return;
    }
    let (mut first, address) = Server::start(&["--nvme-tcp", "127.0.0.1:0", &a]);
    let head = file.head.replace("127.0.0.1:0", &address);
    file.write(&format!("{head}{}", File::disk(&a)));
    ok(&["serve", "--check-config", &file.path, "--takeover"]);
    ok(&["serve", "--check-config", &file.path, &format!("--takeover={}", first.0.id())]);
    let (next, _) = Server::start(&["--config", &file.path, "--takeover"]);
    assert!(first.0.wait().unwrap().success());
    assert_eq!(last_is(&dir.path("s")), next.0.id());
    // Where the running server cannot be found, the check says what a start would.
    drop(next);
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (at, hidden) = (free.to_string(), dir.path("hidden"));
    let (_hidden, _) = Server::start(&["--nvme-tcp", &at, &a, "--socket", &hidden]);
    let head = file.head.replace("127.0.0.1:0", &at.replace("127.0.0.1", "127.0.0.2"));
    file.write(&format!("{head}[[disk]]\nspec = \"mem\"\nnvme-tcp = true\n"));
    for args in [&["--check-config", "--takeover"][..], &["--takeover"]] {
        let out = file.run(args);
        let err = text(&out.stderr);
        assert_eq!(out.status.code(), Some(3), "{args:?}: {err}");
        assert!(err.contains("another server of this machine serves"), "{err}");
    }
}

/// U9. Another disk at the path of one that is served.
#[test]
fn u9_a_takeover_says_that_another_disk_is_at_the_path() {
    let (dir, a, b, socket) = two_disks("settings-other-disk");
    let (_server, address) =
        Server::start(&["--nvme-tcp", "127.0.0.1:0", &a, &b, "--socket", &socket]);
    std::fs::rename(&b, dir.path("old.zbd")).unwrap();
    ok(&["create", &b, "--size", "64M", "--zone-size", "8M"]);
    let next = ["--takeover", "--socket", &socket, "--nqn", nqn(), "--nvme-tcp", &address, &a, &b];
    for how in [&["serve", "--check-config"][..], &["serve"]] {
        fails(&[how, &next].concat(), 3, "another disk is at its path now");
    }
}

/// A file of a key that is missing is like any other that is, and the key that names it is the place.
#[test]
fn a_missing_file_of_a_key_is_named() {
    let (dir, a, ..) = two_disks("settings-key");
    let file = File::new(&dir);
    let none = dir.path("none");
    let of = |keys: &str| format!("{}{keys}{}", file.head, File::disk(&a));
    let host = of(&format!("dhchap-key = \"nqn.a={none}\"\n"));
    file.refused(&host, 3, "4:1", "check the path");
    file.refused(&host, 3, "4:1", &format!("the key {none}: No such file"));
    let own = dir.private("own", KEY);
    let both = of(&format!("dhchap-key = \"nqn.a={own}\"\ndhchap-ctrl-key = \"{none}\"\n"));
    file.refused(&both, 3, "5:1", &format!("the key {none}: No such file"));
}

/// Relative paths begin at the working directory, and an error says so.
#[test]
fn an_error_says_where_a_relative_path_begins() {
    let (dir, ..) = two_disks("settings-relative");
    let file = File::new(&dir);
    file.write(&format!("{}{}", file.head, File::disk("./a.zbd")));
    let run = |here: &str| {
        let mut command = Command::new(&*ZONEPLUG);
        command.args(["serve", "--check-config", &file.path]).current_dir(here);
        soon(&mut command)
    };
    assert_eq!(run(&dir.path("")).status.code(), Some(0));
    let out = run("/");
    assert_eq!(out.status.code(), Some(3));
    let err = text(&out.stderr);
    assert!(
        err.contains(":4:1: cannot open ./a.zbd") && err.contains("working directory, here /\n"),
        "{err}"
    );
}

/// A value is refused as it stands in the file.
#[test]
fn a_value_of_another_kind_is_named() {
    let dir = Dir::new("settings-values");
    let file = File::new(&dir);
    let disk = |line: &str| format!("[[disk]]\ndevice = \"mem\"\nnvme-tcp = true\n{line}\n");
    let mode = |mode: &str| format!("{}socket-mode = {mode}\n{}", file.head, disk(""));
    for (value, shown) in [("0x1b0", "0x1b0"), ("0b11", "0b11"), ("0o999", "0o999")] {
        file.write(&mode(value));
        let err = text_of(&file.run(&["--check-config"]));
        assert!(err.contains(":4:") && (err.contains(shown) || err.contains("octal")), "{err}");
    }
    for good in ["0o660", "660", "\"0660\""] {
        file.write(&mode(good));
        ok(&["serve", "--check-config", &file.path]);
    }
    for (line, what) in [
        ("tags = 2026-01-01", "tags = 2026-01-01 is not possible"),
        ("tags = [1]", "tags is a list"),
        ("tags = { a = 1 }", "tags is a table"),
        ("tags = 99999999999999999999", "tags = 99999999999999999999 is not possible"),
    ] {
        file.write(&format!("{}{}", file.head, disk(line)));
        let err = text_of(&file.run(&["--check-config"]));
        assert!(err.contains(":7:8: ") && err.contains(what), "{err}");
    }
}

#[test]
fn a_value_that_a_key_cannot_have_is_named_with_its_key() {
    let dir = Dir::new("settings-words");
    let file = File::new(&dir);
    let block = |line: &str| format!("[[disk]]\nspec = \"mem,zones=4\"\nublk = true\n{line}\n");
    let hint =
        "try: another value (queues: The number of queues of a disk; each queue has a thread)";
    file.refused(&block("queues = 0"), 2, "4:10", hint);
    let id = "99999999999999999999";
    file.refused(&block(&format!("id = {id}")), 2, "4:6", &format!("id = {id}: "));
}

/// The check says what the server says of such a disk.
#[test]
fn a_disk_that_linux_makes_no_block_device_of_is_named() {
    let check =
        ["serve", "--check-config", "--nvme-tcp", "127.0.0.1:0", "mem,zones=4,zone-size=3M"];
    let said = ok(&check);
    let line = "  Linux makes no block device of it: Linux takes zones of a power of two, and these have 3M";
    assert!(said.contains(line) && said.contains("po2@SPEC"), "{said}");
    let v = super::json(&[&check[..], &["null,zones=4", "--json"]].concat());
    assert!(v["disks"][0]["refused_by_linux"].is_string(), "{v:#}");
    assert!(v["disks"][1]["refused_by_linux"].is_null(), "{v:#}");
}
