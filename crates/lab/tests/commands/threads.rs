//! Commands of a user who may start few more threads or none (`ulimit -u`): they do without, or say so; none hangs or
//! panics.

use crate::*;
use std::os::unix::process::CommandExt;
use std::path::Path;

#[test]
fn without_threads_no_command_hangs_or_panics() {
    // A limit binds users that have no other process, and root not at all.
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let loner = 2_000_000 + std::process::id();
    let dir = std::env::temp_dir().join(format!("zoneplug-threads-{loner}"));
    std::fs::create_dir_all(&dir).unwrap();
    let at = |name: &str| dir.join(name).to_str().unwrap().to_owned();
    let (disk, data) = (at("disk.zbd"), at("data"));
    for (name, path) in [("zoneplug", &ZONEPLUG), ("zoneplug-lab", &ZONEPLUG_LAB)] {
        std::fs::copy(&**path, at(name)).unwrap();
    }
    std::fs::write(&data, noise(1 << 20, 1)).unwrap();
    ok(&["create", &disk, "--zones", "64", "--zone-size", "1M"]);
    for path in [&dir.to_str().unwrap().to_owned(), &disk] {
        std::os::unix::fs::chown(path, Some(loner), Some(loner)).unwrap();
    }
    let bench = ["bench", "--disk", "mem,zones=32,zone-size=1M", "--numjobs", "8", "--runtime"];
    let timed = ["bench", "--disk", "sim-zns1", "--runtime", "10ms", "--policy", "off,fifo"];
    let cases = [
        vec!["append", &disk, &data],
        vec!["write", &disk, &data],
        vec!["read", &disk, "/dev/null"],
        [&bench[..], &["20ms"]].concat(),
        [&bench[..], &["20ms", "--verify"]].concat(),
        timed.to_vec(),
        vec!["bench", "--seconds", "0.01"],
    ];
    for case in &cases {
        let (mut ended_well, mut refused) = (0, 0);
        // The whole bench is long.
        let limits = if case[1] == "--seconds" { &[1, 24][..] } else { &[1, 2, 3, 5, 9, 24] };
        for threads in limits {
            let name = Path::new(program(case)).file_name().unwrap().to_string_lossy();
            let mut command = Command::new("prlimit");
            command.arg(format!("--nproc={threads}")).arg(at(&name)).args(case);
            let out = soon(command.uid(loner).gid(loner).current_dir(&dir));
            let err = text(&out.stderr);
            let case = format!("{case:?} with {threads}: {err}");
            assert!(matches!(out.status.code(), Some(0..=4)), "{case}");
            assert!(!err.contains("panicked"), "{case}");
            match out.status.success() {
                true => ended_well += 1,
                false => refused += 1,
            }
            assert!(out.status.success() || err.contains("thread"), "{case}");
        }
        assert!(ended_well > 0, "{case:?} is refused whatever the limit");
        assert!(refused > 0 || *case == timed || case[0] == "read", "{case:?} needs no thread");
    }
    std::fs::remove_dir_all(&dir).unwrap();
}
