//! Writing back that really fails: a disk on ext4 on a loop device whose backing file is on a tmpfs that is full. Needs
//! root, loop devices and mkfs.ext4; without them it says so and tests nothing.
//!
//!     cargo test -p zoneplug-host --test file_lost -- --nocapture
#![allow(clippy::unwrap_used)]

#[path = "common/one_command.rs"]
mod one_command;

use one_command::run;
use std::path::{Path, PathBuf};
use std::process::{Command as Process, Stdio};
use std::time::Duration;
use zoneplug_core::zone::Condition;
use zoneplug_core::{Bio, Command, IoBuf, Op, Sector, Status};
use zoneplug_host::file::{Access, CreateOptions, FileDisk, Io, check, create};

const CHILD: &str = "ZONEPLUG_LOST_CHILD";
/// Blocks that are flushed, and that are written after that.
const KEPT: u32 = 4;
const LOST: u32 = 252;
/// Attempts at each case. Where another process syncs in the moment between writing and flush or kill, Linux may
/// forget the error (`docs/disk-format.md`), and no program can know. A wrong disk fails each time. The pause before an
/// attempt doubles from one to the next, to two minutes in all: a package manager syncs for as long as it installs.
const TRIES: u32 = 8;

fn sh(line: &str) -> bool {
    let quiet = || Stdio::null();
    let run = Process::new("sh").args(["-c", line]).stdout(quiet()).stderr(quiet()).status();
    run.is_ok_and(|s| s.success())
}

/// ext4 on a loop device on a tmpfs.
struct Full(PathBuf);

impl Full {
    fn new(name: &str) -> Option<Full> {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("zoneplug-lost-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let full = Full(dir);
        let d = full.0.display();
        let made = sh(&format!(
            "cd {d} && mkdir ram mnt && mount -t tmpfs -o size=24m none ram && truncate -s 128M ram/back && \
             mkfs.ext4 -q -O ^has_journal -E lazy_itable_init=0 ram/back"
        )) && full.mount();
        made.then_some(full)
    }

    fn mount(&self) -> bool {
        let d = self.0.display();
        sh(&format!("cd {d} && mount -o loop ram/back mnt"))
    }

    fn unmount(&self) {
        let d = self.0.display();
        assert!(sh(&format!(
            "for i in 1 2 3 4 5 6 7 8 9; do umount {d}/mnt && exit 0; sleep 0.2; done; exit 1"
        )));
    }

    fn fill(&self) {
        sh(&format!("dd if=/dev/zero of={}/ram/fill bs=64k", self.0.display()));
    }

    fn free(&self) {
        sh(&format!("rm {}/ram/fill", self.0.display()));
    }

    fn disk(&self) -> PathBuf {
        self.0.join("mnt/disk.zbd")
    }
}

impl Drop for Full {
    fn drop(&mut self) {
        let d = self.0.display();
        sh(&format!("umount {d}/mnt; umount -l {d}/mnt; umount {d}/ram; umount -l {d}/ram"));
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn flush(disk: &FileDisk) -> Status {
    run(disk, Command::without_data(Op::Flush, Sector(0), 0)).status
}

/// Writes blocks of zone 1, one by one, as small writes go.
fn write(disk: &FileDisk, from: u32, nr: u32) {
    for block in from..from + nr {
        let mut buf = IoBuf::leaked(4096);
        buf.copy_from(0, &[block as u8 | 1; 4096]);
        let bio = Bio::with_buf(Op::Write, Sector(u64::from(2048 + block * 8)), 8, buf);
        assert_eq!(run(disk, Command::of(bio)).status, Status::Ok, "block {block}");
    }
}

/// How many blocks zone 1 has, and how many of them are not what was written.
fn count_blocks(disk: &FileDisk) -> (u32, u32) {
    let mut c = Command::without_data(Op::ReportZones, Sector(2048), 0);
    c.report_max = 1;
    let z = run(disk, c).report[0];
    assert!(matches!(z.cond, Condition::Closed | Condition::ImpOpen | Condition::Full), "{z:?}");
    let blocks = (z.wp.0 - 2048) as u32 / 8;
    let wrong = (0..blocks).filter(|block| {
        let buf = IoBuf::leaked(4096);
        let bio = Bio::with_buf(Op::Read, Sector(u64::from(2048 + block * 8)), 8, buf);
        let c = run(disk, Command::of(bio));
        assert_eq!(c.status, Status::Ok);
        let mut b = [0; 4096];
        c.bios[0].data().copy_to(0, &mut b);
        b != [*block as u8 | 1; 4096]
    });
    (blocks, wrong.count() as u32)
}

/// The child: writes, says so, and waits to be killed, before the flush or in a flush that has failed.
fn child(args: &str) {
    let (path, flushes) = args.split_once(' ').unwrap();
    let disk = FileDisk::open_with(Path::new(path), Access::ReadWrite, Io::Auto, true).unwrap();
    write(&disk, KEPT, LOST);
    if flushes == "true" {
        assert_ne!(flush(&disk), Status::Ok);
        assert_ne!(flush(&disk), Status::Ok);
        assert_eq!(count_blocks(&disk).0, KEPT + LOST, "reads go on");
    }
    println!("\nwritten");
    loop {
        std::thread::park();
    }
}

fn spawn(path: &Path, flushes: bool) -> Result<std::process::Child, String> {
    use std::io::BufRead;
    let mut process = Process::new(std::env::current_exe().unwrap())
        .args(["--exact", "what_never_reached_the_medium_is_never_shown", "--nocapture"])
        .env(CHILD, format!("{} {flushes}", path.display()))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = std::io::BufReader::new(process.stdout.take().unwrap()).lines();
    if lines.map_while(Result::ok).any(|l| l == "written") {
        return Ok(process);
    }
    process.wait().unwrap();
    Err("a flush on a full medium succeeded, or the child failed".into())
}

/// One case: whether the writer flushes, and whether memory forgets before the next opening.
fn case(full: &Full, flushes: bool, remount: bool) -> Result<(), String> {
    let options =
        CreateOptions { zones: Some(4), zone_size: Some(1 << 20), ..CreateOptions::default() };
    create(&full.disk(), &options, false).unwrap();
    let disk = FileDisk::open(&full.disk(), Access::ReadWrite).unwrap();
    write(&disk, 0, KEPT);
    assert_eq!(flush(&disk), Status::Ok);
    drop(disk);
    sh("sync");
    full.fill();
    let mut process = spawn(&full.disk(), flushes)?;
    process.kill().unwrap();
    process.wait().unwrap();
    if remount {
        // Writes back, and fails in silence.
        full.unmount();
        full.free();
        assert!(full.mount());
    } else {
        full.free();
    }
    let found = check(&full.disk(), false).unwrap();
    let mut opened = FileDisk::open(&full.disk(), Access::ReadWrite);
    if let Err(e) = &opened {
        println!("{e}");
        opened = FileDisk::open(&full.disk(), Access::ReadWrite);
    }
    let disk = opened.unwrap();
    let notices = disk.notices().to_vec();
    assert_eq!(flush(&disk), Status::Ok);
    let shown = count_blocks(&disk);
    drop(disk);
    full.unmount();
    assert!(full.mount());
    let disk = FileDisk::open(&full.disk(), Access::ReadWrite).unwrap();
    let (blocks, wrong) = count_blocks(&disk);
    println!(
        "{} problems, {notices:?}, {} blocks shown, {} wrong; after a remount {blocks}, {wrong} wrong",
        found.problems, shown.0, shown.1
    );
    drop(disk);
    let promises = [
        ((shown.1, wrong) == (0, 0), "blocks are not what was written"),
        (shown.0 == blocks, "blocks come or go with a remount"),
        (blocks >= KEPT, "flushed blocks are lost"),
        (blocks == KEPT + LOST || flushes || remount, "memory had all of it"),
        (!flushes || found.problems > 0, "the check finds nothing"),
    ];
    match promises.iter().find(|(kept, _)| !kept) {
        Some((_, broken)) => Err((*broken).into()),
        None => Ok(()),
    }
}

#[test]
fn what_never_reached_the_medium_is_never_shown() {
    if let Ok(args) = std::env::var(CHILD) {
        return child(&args);
    }
    for (flushes, remount) in [(true, true), (true, false), (false, true), (false, false)] {
        let what = format!("flushes {flushes}, remount {remount}");
        let mut broken = Vec::new();
        let kept = (0..TRIES).any(|n| {
            if n > 0 {
                std::thread::sleep(Duration::from_secs(1 << (n - 1)));
            }
            let Some(full) = Full::new(&format!("{flushes}-{remount}")) else {
                println!("skipped: no root, loop device or mkfs.ext4");
                return true;
            };
            println!("{what}:");
            case(&full, flushes, remount).map_err(|e| broken.push(e)).is_ok()
        });
        assert!(kept, "{what}: {broken:?}");
    }
}

/// Blocks of which the file system has nothing, and memory has forgotten them. Opening reads the ones before, and what
/// the kernel reads ahead then is memory, which is no hole on ext4 and XFS.
#[test]
fn what_is_read_ahead_is_not_data() {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("zoneplug-ahead-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let (path, left) = (dir.join("disk.zbd"), dir.join("left.zbd"));
    let options =
        CreateOptions { zones: Some(4), zone_size: Some(1 << 20), ..CreateOptions::default() };
    create(&path, &options, false).unwrap();
    let disk = FileDisk::open(&path, Access::ReadWrite).unwrap();
    write(&disk, 0, KEPT);
    assert_eq!(flush(&disk), Status::Ok);
    write(&disk, KEPT, 24);
    // What a kill leaves, without the last blocks: space was found for them, and nothing was written there.
    std::fs::copy(&path, &left).unwrap();
    let (file, from) = (left.display(), (2 << 20) + u64::from(KEPT) * 4096);
    let at = from + 8 * 4096;
    let made = sh(&format!(
        "stat -f -c %T {file} | grep -q -e ext -e xfs && fallocate -p -o {at} -l 65536 {file} && \
         fallocate -n -o {at} -l 65536 {file} && dd of={file} oflag=nocache conv=notrunc,fdatasync count=0 && \
         dd if={file} of=/dev/null iflag=skip_bytes skip={from} bs=24576 count=1"
    ));
    if made {
        let disk = FileDisk::open(&left, Access::ReadWrite).unwrap();
        assert_eq!(count_blocks(&disk), (KEPT + 8, 0), "{:?}", disk.notices());
    } else {
        println!("skipped: neither ext4 nor XFS, or no fallocate");
    }
    drop(disk);
    std::fs::remove_dir_all(&dir).unwrap();
}
