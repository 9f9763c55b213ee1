//! Events, and their descriptor.

#![allow(clippy::unwrap_used)]

mod common;

use common::{message, op, open, poll, queue, submit, wait};
use libc::{EINVAL, pollfd};
use std::ptr::{null, null_mut};
use std::time::{Duration, Instant};
use zoneplug_capi::*;
use zoneplug_core::disk::EventKind;

/// The events of a disk with numbers above `after`.
fn events(disk: *mut zp_disk, after: u64, max: u32) -> Vec<zp_event> {
    let mut all = Vec::with_capacity(max as usize);
    // SAFETY: an open disk and an array of that length.
    let n = unsafe { zp_events(disk, after, all.as_mut_ptr(), max) };
    assert!(n >= 0, "{}", message());
    // SAFETY: so many were written.
    unsafe { all.set_len(n as usize) };
    all
}

/// Whether the descriptor is readable within `ms`.
fn readable(fd: i32, ms: i32) -> bool {
    let mut fd = pollfd { fd, events: libc::POLLIN, revents: 0 };
    // SAFETY: one element, which lives across the call.
    (unsafe { libc::poll(&raw mut fd, 1, ms) }) == 1
}

/// Which eventfd the descriptor is, if it is one.
fn eventfd_id(fd: i32) -> Option<String> {
    let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).ok()?;
    info.lines().find(|line| line.starts_with("eventfd-id")).map(str::to_owned)
}

#[test]
fn the_kinds_are_those_of_the_engine() {
    let kinds = [
        (ZP_EVENT_FAILED, EventKind::Failed),
        (ZP_EVENT_STALE, EventKind::Stale),
        (ZP_EVENT_RECOVERED, EventKind::Recovered),
        (ZP_EVENT_DATA_MISSING, EventKind::DataMissing),
        (ZP_EVENT_LATE_BACK, EventKind::LateBack),
        (ZP_EVENT_QUEUE_DIED, EventKind::QueueDied),
        (ZP_EVENT_REVALIDATED, EventKind::Revalidated),
    ];
    assert!(kinds.iter().all(|(n, kind)| *n == *kind as u8));
}

/// A failed write, what it took with it, its zone; a wrong call; a revalidation.
#[test]
fn a_program_hears_of_a_zone_that_goes_stale_and_recovers() {
    let disk =
        open("mem,zones=4,zone-size=1M,nomerges=1,zone_recovery=client,fault=write/io/zone=1");
    let q = queue(disk, 8);
    let buf = [0u8; 4096];
    let at = |n: u64| op(ZP_OP_WRITE, 2048 + n * 8, buf.as_ptr(), 4096, n);
    submit(q, &[at(0), at(1), at(2)]);
    assert!(wait(q, 3, -1).iter().all(|c| c.result != 0));
    let none = zp_event::default();
    let failed = zp_event {
        sequence: 1,
        sector: 2048,
        zone: 1,
        count: 1,
        aborted: 2,
        kind: ZP_EVENT_FAILED,
        op: ZP_OP_WRITE,
        status: ZP_STATUS_IO,
        ..none
    };
    let stale = zp_event { sequence: 2, aborted: 0, kind: ZP_EVENT_STALE, op: ZP_NO_OP, ..failed };
    assert_eq!(events(disk, 0, 8), [failed, stale]);
    assert_eq!(events(disk, 1, 8), [stale]);
    assert_eq!(events(disk, 0, 1), [failed]);
    assert!(events(disk, 2, 8).is_empty() && events(disk, u64::MAX, 8).is_empty());
    // SAFETY: an open disk, or none, and places.
    unsafe {
        assert_eq!(zp_reset(disk, 2048, 2048), 0);
        assert_eq!(zp_revalidate(disk), 0);
        assert_eq!(zp_events(disk, 0, null_mut(), 0), 0);
        assert_eq!(zp_events(disk, 0, null_mut(), 1), -EINVAL);
        assert_eq!(zp_events(null_mut(), 0, null_mut(), 0), -EINVAL);
        assert_eq!(zp_events_fd(null_mut()), -EINVAL);
        assert_eq!(zp_open(null(), null_mut()), -EINVAL);
    }
    let kinds: Vec<_> = events(disk, 2, 8).iter().map(|e| (e.kind, e.zone)).collect();
    assert_eq!(kinds, [(ZP_EVENT_RECOVERED, 1), (ZP_EVENT_REVALIDATED, ZP_NO_ZONE)]);
    // SAFETY: an open queue and disk.
    unsafe {
        assert_eq!(zp_queue_close(q, -1), 0);
        zp_close(disk);
    }
}

/// The descriptor ends a sleep for each event, also one that another thread's operation has caused, and is closed with the
/// handle although a queue keeps the disk open.
#[test]
fn t6_a_descriptor_announces_every_event() {
    let disk = open(
        "mem,zones=4,zone-size=1M,timeout=20ms,fault=read/delay=60ms/count=1+flush/io/count=all",
    );
    // SAFETY: an open disk.
    let fd = unsafe { zp_events_fd(disk) };
    // SAFETY: the same.
    assert!(fd >= 0 && unsafe { zp_events_fd(disk) } == fd, "{}", message());
    assert!(readable(fd, 0), "the program does not know yet that there is nothing");
    assert!(events(disk, 0, 4).is_empty() && !readable(fd, 10));
    let q = queue(disk, 8);
    let buf = [0u8; 4096];
    submit(q, &[op(ZP_OP_READ, 0, buf.as_ptr(), 4096, 1)]);
    // Nothing polls the queue: its own descriptor makes the disk go on.
    // SAFETY: an open queue.
    assert!(unsafe { zp_queue_fd(q) } >= 0);
    assert!(readable(fd, 5000), "the deadline is an event");
    let first = events(disk, 0, 1);
    assert_eq!((first[0].kind, first[0].status), (ZP_EVENT_FAILED, ZP_STATUS_TIMEOUT));
    assert!(readable(fd, 0), "the array was full");
    assert!(readable(fd, 5000));
    let mut after = 1;
    while after < 2 {
        assert!(readable(fd, 5000), "an answer that comes late is an event");
        after += events(disk, after, 4).len() as u64;
    }
    let disk_at = disk.expose_provenance();
    let thread = std::thread::spawn(move || {
        let disk = std::ptr::with_exposed_provenance_mut::<zp_disk>(disk_at);
        // SAFETY: an open disk, which is closed later.
        assert!((0..50).all(|_| unsafe { zp_flush(disk) } < 0));
    });
    let mut failures = 0;
    while failures < 50 {
        assert!(readable(fd, 5000), "asleep after {failures} failures");
        for e in events(disk, after, 4) {
            assert_eq!((e.kind, e.op, e.sequence), (ZP_EVENT_FAILED, ZP_OP_FLUSH, after + 1));
            (after, failures) = (e.sequence, failures + e.count);
        }
    }
    thread.join().unwrap();
    while !poll(q, 8).is_empty() {}
    let id = eventfd_id(fd);
    assert!(id.is_some());
    // SAFETY: an open disk and queue.
    unsafe {
        zp_close(disk);
        // Another thread may be about to ring it for the last time. Another test may have the number again, not the eventfd.
        let end = Instant::now() + Duration::from_secs(10);
        while eventfd_id(fd) == id {
            assert!(Instant::now() < end, "the descriptor outlives the handle");
            std::thread::yield_now();
        }
        assert_eq!(zp_queue_close(q, -1), 0);
    }
}
