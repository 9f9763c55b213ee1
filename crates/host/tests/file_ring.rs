//! Rings that cannot be made, because the process may open no more files, and rings whose writes fail, because it may make no
//! larger files. The limits are those of the process, so the tests take turns, and no others are in this program.

#![allow(clippy::unwrap_used)]

#[path = "common/one_command.rs"]
mod one_command;

use one_command::run;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::task::Waker;
use zoneplug_core::poison::lock;
use zoneplug_core::{Bio, Command, Device, IoBuf, Op, Sector, Status};
use zoneplug_host::file::{Access, CreateOptions, FileDisk, Io, create};

/// A test has it while limits of the process are lower than usual.
static LIMITS: Mutex<()> = Mutex::new(());

/// Sets a limit of this process; `None`: the highest that it may have.
fn limit(what: libc::__rlimit_resource_t, most: Option<libc::rlim_t>) {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the limit lives across both calls.
    unsafe {
        assert_eq!(libc::getrlimit(what, &mut limit), 0);
        limit.rlim_cur = most.unwrap_or(limit.rlim_max);
        assert_eq!(libc::setrlimit(what, &limit), 0);
    }
}

fn made(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let options = CreateOptions { zones: Some(4), zone_size: Some(1 << 20), ..Default::default() };
    create(&path, &options, true).unwrap();
    path
}

#[test]
fn a_queue_without_a_ring_is_an_error_where_a_ring_is_asked_for() {
    let _turn = lock(&LIMITS);
    let path = made("file-ring.zbd");
    let open = |io| FileDisk::open_with(&path, Access::ReadOnly, io, true);
    let Ok(asked) = open(Io::Ring) else { return println!("skipped: no io_uring here") };
    let any = open(Io::Auto).unwrap();
    // The fewest descriptors with which a disk opens have no room for a ring.
    let next = File::open(&path).unwrap().as_raw_fd() as libc::rlim_t;
    let is_enough = |most: &libc::rlim_t| {
        limit(libc::RLIMIT_NOFILE, Some(*most));
        open(Io::Threads).is_ok()
    };
    let enough = (next..next + 8).find(is_enough).expect("a disk has a few descriptors");
    let (ring, threads) = (open(Io::Ring), open(Io::Auto));
    limit(libc::RLIMIT_NOFILE, Some(3));
    let opened = asked.open_queue(8, Waker::noop().clone());
    let by_threads = any.open_queue(8, Waker::noop().clone());
    limit(libc::RLIMIT_NOFILE, None);
    let e = ring.expect_err("a ring was asked for").to_string();
    assert!(e.contains("io_uring cannot be used"), "{e}");
    assert!(threads.is_ok(), "{enough} descriptors: {threads:?}");
    let e = opened.err().expect("threads do what a ring was asked for").to_string();
    assert!(e.contains("io_uring cannot be used") && e.contains("ulimit -n"), "{e}");
    assert!(by_threads.is_ok(), "threads do without a ring");
}

/// A write for which there is no room says so, whether a ring or threads move the data.
#[test]
fn a_write_without_room_fails_for_lack_of_room() {
    let _turn = lock(&LIMITS);
    // SAFETY: ignores the signal that comes with the error.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    for io in [Io::Ring, Io::Threads] {
        let path = made("file-full.zbd");
        let Ok(disk) = FileDisk::open_with(&path, Access::ReadWrite, io, true) else {
            println!("skipped: no io_uring here");
            continue;
        };
        let write = Bio::with_buf(Op::Write, Sector(0), 8, IoBuf::leaked(4096));
        // The data of zones begin at 1 MiB.
        limit(libc::RLIMIT_FSIZE, Some(1 << 20));
        let status = run(&disk, Command::of(write)).status;
        limit(libc::RLIMIT_FSIZE, None);
        assert_eq!(status, Status::NoSpace, "{io:?}");
    }
}
