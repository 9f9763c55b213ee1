//! Files that commands make, and what they never overwrite; what is named as a disk, a key or a profile and is no such
//! file.

use crate::*;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::time::{Duration, Instant};

fn pipe(dir: &Dir) -> String {
    let path = dir.path("pipe");
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    path
}

impl Dir {
    /// The names in it, sorted.
    pub(crate) fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.0).unwrap();
        let mut all: Vec<_> =
            entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        all.sort();
        all
    }
}

#[test]
fn read_never_overwrites_a_disk_unless_forced() {
    let dir = Dir::new("over");
    let disk = dir.disk("--zones 4 --zone-size 1M");
    ok_with(&["write", &disk], &noise(500_000, 1));
    let other = dir.path("other.zbd");
    ok(&["create", &other, "--zones", "2", "--zone-size", "1M"]);
    ok_with(&["write", &other], &noise(100_000, 2));
    let before = [std::fs::read(&disk).unwrap(), std::fs::read(&other).unwrap()];
    // Itself, under each of its names, forced or not.
    let (link, hard) = (dir.path("link"), dir.path("hard"));
    std::os::unix::fs::symlink(&disk, &link).unwrap();
    std::fs::hard_link(&disk, &hard).unwrap();
    for spec in [&disk, &link, &format!("po2@{disk}"), &format!("linear@{other}%{disk}")] {
        for file in [&disk, &link, &hard] {
            fails(&["read", spec, file], 2, "is what is read");
            fails(&["read", spec, file, "--force"], 2, "is what is read");
        }
    }
    // Another, also a damaged one.
    fails(&["read", &disk, &other], 3, "is a zoneplug disk");
    fails(&["read", "mem,zones=2", &other], 3, "--force");
    let damaged = dir.path("damaged.zbd");
    let mut bytes = before[1].clone();
    bytes[..4096].fill(0);
    std::fs::write(&damaged, &bytes).unwrap();
    fails(&["read", &disk, &damaged], 3, "is a zoneplug disk");
    let after = [std::fs::read(&disk).unwrap(), std::fs::read(&other).unwrap()];
    assert!(before == after && std::fs::read(&damaged).unwrap() == bytes);
    // One that is in use is kept also from --force.
    let file = std::fs::OpenOptions::new().read(true).write(true).open(&other).unwrap();
    let mut server = Command::new(&*ZONEPLUG)
        .args(["write", &other])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let taken = Instant::now() + Duration::from_secs(10);
    while Instant::now() < taken
        && at_once(&["resync", &format!("{other},read-only=0")]).status.success()
    {}
    fails(&["read", &disk, &other, "--force"], 3, "open for writing in another process");
    drop((server.stdin.take(), file));
    assert!(server.wait().unwrap().success());
    ok(&["read", &disk, &other, "--force"]);
    assert_eq!(std::fs::read(&other).unwrap()[..500_000], noise(500_000, 1));
}

#[test]
fn no_other_command_overwrites_a_disk() {
    let dir = Dir::new("others");
    let disk = dir.disk("--zones 4 --zone-size 1M");
    let before = std::fs::read(&disk).unwrap();
    let is = "is a zoneplug disk";
    let bench = ["bench", "--disk", "sim-zns1", "--runtime", "1ms", "--write-trace"];
    fails(&[&bench[..], &[&disk]].concat(), 3, is);
    fails(&["reproduce", "zns", "--quick", "--html", &disk], 3, is);
    fails(&["reproduce", "zns", "--quick", "--picture", &disk], 3, is);
    fails(&["create", &disk, "--zones", "2"], 3, "exists");
    fails(&["flush", &format!("trace,file={disk}@mem")], 3, "it is there already");
    let man = dir.path("zoneplug-read.1");
    std::fs::copy(&disk, &man).unwrap();
    fails(&["man", dir.0.to_str().unwrap()], 3, is);
    assert!(std::fs::read(&man).unwrap() == before);
    // Nor does standard output.
    let append = std::fs::OpenOptions::new().append(true).open(&disk).unwrap();
    let out = Command::new(&*ZONEPLUG).args(["info", "mem"]).stdout(append).output().unwrap();
    assert_eq!(out.status.code(), Some(3), "{}", text(&out.stderr));
    assert!(text(&out.stderr).contains("standard output is a zoneplug disk"));
    assert!(std::fs::read(&disk).unwrap() == before);
}

#[test]
fn a_file_that_is_there_is_replaced_when_the_new_one_is_complete() {
    let dir = Dir::new("replace");
    let disk = dir.disk("--zones 4 --zone-size 1M");
    let data = noise(2 << 20, 3);
    ok_with(&["write", &disk], &data);
    let (real, copy) = (dir.path("real"), dir.path("copy"));
    std::fs::write(&real, "before").unwrap();
    std::fs::set_permissions(&real, PermissionsExt::from_mode(0o640)).unwrap();
    std::os::unix::fs::symlink("real", &copy).unwrap();
    fails(&["read", &format!("{disk},fault=read/medium/zone=1"), &copy], 1, "read at sector 2048");
    assert_eq!(std::fs::read(&real).unwrap(), b"before");
    assert_eq!(dir.names(), ["copy", "disk.zbd", "real"], "nothing is left beside");
    ok(&["read", &disk, &copy]);
    assert!(std::fs::read(&real).unwrap() == data);
    assert_eq!(std::fs::metadata(&real).unwrap().mode() & 0o7777, 0o640);
    assert!(std::fs::symlink_metadata(&copy).unwrap().is_symlink());
    // A link that leads nowhere yet.
    let (link, new) = (dir.path("link"), dir.path("new"));
    std::os::unix::fs::symlink("new", &link).unwrap();
    ok(&["read", &disk, &link]);
    assert!(std::fs::read(&new).unwrap() == data);
    fails(&["read", &disk, dir.0.to_str().unwrap()], 2, "is a directory");
    fails(&["read", &disk, &dir.path("none/copy")], 3, "cannot be made");
}

#[test]
fn what_is_no_file_is_written_as_it_is() {
    let dir = Dir::new("special");
    let disk = dir.disk("--zones 4 --zone-size 1M");
    let data = noise(1 << 20, 4);
    ok_with(&["write", &disk], &data);
    ok(&["read", &disk, "/dev/null"]);
    assert!(ok_with(&["read", &disk, "/dev/stdout"], b"") == data, "a pipe");
    assert!(ok_with(&["read", &disk, "/proc/self/fd/1"], b"") == data);
    // Standard output that is a file keeps what was before.
    let file = dir.path("out");
    std::fs::write(&file, "before").unwrap();
    let out = std::fs::OpenOptions::new().append(true).open(&file).unwrap();
    let args = ["read", &disk, "/dev/stdout", "--len", "4"];
    assert!(Command::new(&*ZONEPLUG).args(args).stdout(out).status().unwrap().success());
    assert_eq!(std::fs::read(&file).unwrap(), [b"before", &data[..4]].concat());
    let pipe = pipe(&dir);
    let reader = std::thread::spawn({
        let pipe = pipe.clone();
        move || std::fs::read(pipe).unwrap()
    });
    ok(&["read", &disk, &pipe]);
    assert!(reader.join().unwrap() == data);
    assert_eq!(dir.names(), ["disk.zbd", "out", "pipe"]);
}

#[test]
fn pipes_directories_and_endless_files_are_refused_at_once() {
    let dir = Dir::new("nofile");
    let disk = dir.disk("--zones 4 --zone-size 1M");
    let (pipe, here) = (pipe(&dir), dir.0.to_str().unwrap().to_owned());
    let refused = |args: &[&str], what: &str| {
        let out = at_once(args);
        let err = text(&out.stderr);
        assert!(matches!(out.status.code(), Some(2..=4)), "{args:?}: {err}");
        assert!(err.lines().count() == 2 && err.contains(what), "{args:?}: {err}");
    };
    for (path, what) in [
        (&*pipe, "it is a pipe"),
        (&*here, "it is a directory"),
        ("/dev/stdin", "it is a pipe"),
        ("/dev/zero", "is not an NVMe namespace"),
    ] {
        for command in ["info", "report", "read", "check", "flush", "zone-wplugs"] {
            if command != "check" || path != "/dev/zero" {
                refused(&[command, path], what);
            }
        }
        refused(&["write", path, "/dev/null"], what);
        refused(&["bench", "--disk", &format!("{path},read-only=1")], what);
        let is_pipe = what == "it is a pipe";
        let what = if path == "/dev/zero" { "it is a device" } else { what };
        refused(&["info", &format!("crypt,key-file={path}@{disk}")], what);
        refused(&["info", &format!("sim,profile={path}")], what);
        refused(&["bench", "--disk", &format!("sim,profile={path}")], what);
        refused(&["reproduce", "--book", path], what);
        // A trace may come through a pipe, and is waited for.
        if !is_pipe {
            refused(&["replay", path, "--disk", "sim-zns1"], "");
        }
    }
    let long = dir.path("long.profile");
    std::fs::write(&long, vec![b'#'; 1 << 20]).unwrap();
    refused(&["info", &format!("sim,profile={long}")], "it has more than 65536 bytes");
    // A length beyond the disk is refused before memory is taken for it.
    for len in ["--len=4G", "--len=16T", "--length=36028797018963967"] {
        refused(&["read", &disk, "/dev/null", len], "more than there are");
    }
}
