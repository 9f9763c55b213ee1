//! A queue of a disk in a file whose ring cannot be made, because the process may open no more files. This process gives that up, so
//! it has no other test.

#![allow(clippy::unwrap_used)]

use std::path::PathBuf;
use std::task::Waker;
use zoneplug_core::Device;
use zoneplug_host::file::{Access, CreateOptions, FileDisk, Io, create};

#[test]
fn a_queue_without_a_ring_is_an_error_where_a_ring_is_asked_for() {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("file-ring.zbd");
    let options = CreateOptions { zones: Some(4), zone_size: Some(1 << 20), ..Default::default() };
    create(&path, &options, true).unwrap();
    let open = |io| FileDisk::open_with(&path, Access::ReadOnly, io, true);
    let Ok(asked) = open(Io::Ring) else { return println!("skipped: no io_uring here") };
    let any = open(Io::Auto).unwrap();
    let limit = libc::rlimit { rlim_cur: 3, rlim_max: 3 };
    // SAFETY: the limit lives across the call.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) }, 0);
    let opened = asked.open_queue(8, Waker::noop().clone());
    let e = opened.err().expect("threads do what a ring was asked for").to_string();
    assert!(e.contains("io_uring cannot be used") && e.contains("ulimit -n"), "{e}");
    assert!(any.open_queue(8, Waker::noop().clone()).is_ok(), "threads do without a ring");
}
