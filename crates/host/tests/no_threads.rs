//! A user who may not start any more threads (`ulimit -u`, a pids limit): what needs one says so, or does without; it
//! never sleeps for a thread that does not exist. Each case runs in a process of its own, which gives up its rights and
//! then its threads.

#![allow(clippy::unwrap_used)]

mod common;

use common::LONG;
use std::io::Read;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use zoneplug_buf::AlignedBuf;
use zoneplug_core::Sector;
use zoneplug_host::file::{CreateOptions, create};
use zoneplug_host::{AsyncDisk, BlockingDisk, HostedDisk};

const CASE: &str = "ZONEPLUG_NO_THREADS_CASE";

/// Lets this process start `more` threads. False: this user has other processes, and only "none" can be had. Root
/// becomes a user with no other process, who owns `file`.
fn limit(more: u64, file: &str) -> bool {
    let mine = std::fs::read_dir("/proc/self/task").unwrap().count() as u64;
    // SAFETY: calls without pointers, but for a limit that lives across its call.
    unsafe {
        let root = libc::getuid() == 0;
        if root {
            let loner = 1_000_000 + std::process::id();
            // An emulated disk has no file.
            let _ = std::os::unix::fs::chown(file, Some(loner), Some(loner));
            assert_eq!(libc::setresuid(loner, loner, loner), 0);
        }
        let n = if root { mine + more } else { 0 };
        let limit = libc::rlimit { rlim_cur: n, rlim_max: n };
        assert_eq!(libc::setrlimit(libc::RLIMIT_NPROC, &limit), 0);
        root || more == 0
    }
}

/// Writes, reads and flushes, so that a client sleeps and a file's threads are needed.
fn blocking(disk: &HostedDisk) -> Result<(), zoneplug_core::Error> {
    let mut io = BlockingDisk::new(disk)?;
    for i in 0..4u64 {
        let mut buf = AlignedBuf::zeroed(4096);
        buf.write(0, &i.to_le_bytes());
        let (at, _) = io.append(Sector(0), buf).unwrap();
        assert_eq!(at, Sector(8 * i));
        io.flush().unwrap();
        assert_eq!(&io.read(at, 8).unwrap().to_vec()[..8], i.to_le_bytes());
    }
    Ok(())
}

/// The same with futures: no thread sleeps on a descriptor for their waker.
fn futures(disk: &HostedDisk) -> Result<(), zoneplug_core::Error> {
    let io = AsyncDisk::new(disk, 4)?;
    common::block_on(async {
        for i in 0..4u64 {
            io.append(Sector(0), AlignedBuf::zeroed(4096)).await.unwrap();
            io.flush().await.unwrap();
            io.read(Sector(8 * i), 8).await.unwrap();
        }
    });
    Ok(())
}

/// Two clients on two threads, both started before the limit.
fn clients(disk: &HostedDisk) -> Result<(), zoneplug_core::Error> {
    let (mut a, mut b) = (BlockingDisk::new(disk)?, BlockingDisk::new(disk)?);
    a.append(Sector(0), AlignedBuf::zeroed(4096)).unwrap();
    b.append(Sector(0), AlignedBuf::zeroed(4096)).unwrap();
    drop(a);
    b.append(Sector(0), AlignedBuf::zeroed(4096)).unwrap();
    Ok(())
}

/// What a child does: see `run`.
#[test]
fn child() {
    let Ok(case) = std::env::var(CASE) else { return };
    let [what, more, spec] = case.splitn(3, '|').collect::<Vec<_>>().try_into().unwrap();
    if !limit(more.parse().unwrap(), spec.split(',').next().unwrap()) {
        return println!("\nsaid: skipped");
    }
    assert!(more != "0" || std::thread::Builder::new().spawn(|| {}).is_err(), "no limit");
    let run = |disk: HostedDisk| match what {
        "blocking" => blocking(&disk),
        "futures" => futures(&disk),
        "clients" => clients(&disk),
        _ => disk.revalidate(),
    };
    match HostedDisk::open_spec(spec).and_then(run) {
        Ok(()) => println!("\nsaid: done"),
        Err(e) => println!("\nsaid: {}; {}", e.what(), e.what_to_try().unwrap_or("no hint")),
    }
}

/// What a child says that may start `more` threads.
fn run(what: &str, more: u32, spec: &str) -> String {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child", "--nocapture", "--test-threads=1"])
        .env(CASE, format!("{what}|{more}|{spec}"))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let end = Instant::now() + LONG;
    while child.try_wait().unwrap().is_none() {
        if Instant::now() > end {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("hang: {what} with {more} threads on {spec}");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let mut text = String::new();
    child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    let said = text.lines().find_map(|l| l.strip_prefix("said: "));
    said.unwrap_or_else(|| panic!("{what} with {more} threads on {spec}: {text}")).to_owned()
}

fn cannot(said: &str) -> bool {
    said.starts_with("cannot start the thread zoneplug-") && said.contains("; more processes")
}

#[test]
fn an_emulated_disk_without_a_reactor_says_so() {
    for what in ["blocking", "futures", "clients", "revalidate"] {
        let spec = "mem,zones=4,zone-size=1M,latency=2ms";
        let said = run(what, 0, spec);
        assert!(cannot(&said), "{what}: {said}");
        let said = run(what, 1, spec);
        assert!(said == "done" || said == "skipped", "{what}: {said}");
    }
}

/// Whatever of its threads it gets: it works with those, or says which one it lacks.
#[test]
fn a_durable_disk_works_with_fewer_threads_or_says_so() {
    let dir = std::env::temp_dir().join(format!("zoneplug-no-threads-{}", std::process::id()));
    std::fs::create_dir(&dir).unwrap();
    for io in ["threads", "ring"] {
        for what in ["blocking", "futures", "clients"] {
            let mut worked = 0;
            for more in 0..=6 {
                let path = dir.join(format!("{io}-{what}-{more}.zbd"));
                let o = CreateOptions {
                    zones: Some(4),
                    zone_size: Some(1 << 20),
                    ..CreateOptions::default()
                };
                create(&path, &o, false).unwrap();
                let said = run(what, more, &format!("{},io={io}", path.display()));
                assert!(
                    said == "done" || said == "skipped" || cannot(&said),
                    "{what} with {more} threads, io={io}: {said}"
                );
                assert!(more > 0 || cannot(&said), "{said}");
                worked += u32::from(said != "skipped" && said == "done");
                println!("{what} with {more} threads, io={io}: {said}");
            }
            // The reactor and one of its own.
            // SAFETY: a call without pointers.
            if unsafe { libc::getuid() } == 0 {
                assert_eq!(worked, 5, "{what} io={io}");
            }
        }
    }
    std::fs::remove_dir_all(&dir).unwrap();
}
