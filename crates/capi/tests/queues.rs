//! Queues: order, room, memory that comes late, threads, descriptors, closing.

#![allow(clippy::unwrap_used)]

mod common;

use common::{hint, message, op, open, poll, queue, submit, wait};
use libc::{EAGAIN, EBUSY, EINVAL, EIO, EPERM, ETIMEDOUT, c_int, iovec, pollfd};
use std::collections::HashMap;
use std::ptr::null_mut;
use std::time::{Duration, Instant};
use zoneplug_capi::*;

/// Sleeps until the descriptor is readable. False: it took more than `timeout_ms`.
fn sleep_on(fd: c_int, timeout_ms: c_int) -> bool {
    let mut fd = pollfd { fd, events: libc::POLLIN, revents: 0 };
    // SAFETY: one element, which lives across the call.
    (unsafe { libc::poll(&raw mut fd, 1, timeout_ms) }) == 1
}

#[test]
fn operations_go_out_in_order_and_come_back_with_their_numbers() {
    let disk = open("mem,zones=4,zone-size=1M,reorder=3");
    let q = queue(disk, 64);
    let written: Vec<u8> = (0..64 * 4096).map(|i| (i / 4096) as u8).collect();
    let at = |n: usize| written[n * 4096..].as_ptr();
    // Four zones at a time, each in order, as writes or appends.
    let ops: Vec<_> = (0..64u64)
        .map(|n| match n % 4 {
            z @ 0..3 => op(ZP_OP_WRITE, z * 2048 + n / 4 * 8, at(n as usize), 4096, 1000 + n),
            z => op(ZP_OP_ZONE_APPEND, z * 2048, at(n as usize), 4096, 1000 + n),
        })
        .collect();
    submit(q, &ops);
    // SAFETY: an open queue, and an operation whose memory stays.
    assert_eq!(unsafe { zp_queue_submit(q, ops.as_ptr(), 1) }, -EAGAIN);
    assert_eq!(message(), "the queue is full");
    // SAFETY: an open queue.
    assert_eq!(unsafe { zp_queue_in_flight(q) }, 64);
    let done: HashMap<_, _> = wait(q, 64, -1).into_iter().map(|c| (c.user_data, c)).collect();
    for n in 0..64 {
        let c = done[&(1000 + n)];
        assert_eq!((c.result, c.status, c.flags), (0, ZP_STATUS_OK, 0));
        assert_eq!(c.sector, n % 4 * 2048 + n / 4 * 8);
    }
    // A vectored read, a report, management and a flush at a time.
    let mut back = vec![0u8; 8192];
    let half = back.as_mut_ptr();
    let pieces = [
        iovec { iov_base: half.cast(), iov_len: 1000 },
        // SAFETY: within the memory.
        iovec { iov_base: unsafe { half.add(1000) }.cast(), iov_len: 7192 },
    ];
    let mut zones = [zp_zone::default(); 3];
    let vectored = zp_op { iovcnt: 2, ..op(ZP_OP_READ, 2048, pieces.as_ptr().cast(), 8192, 1) };
    submit(
        q,
        &[
            vectored,
            op(ZP_OP_REPORT_ZONES, 2048, zones.as_mut_ptr().cast(), 3 * 64, 2),
            zp_op { nr_sectors: 2048, ..op(ZP_OP_ZONE_FINISH, 0, null_mut(), 0, 3) },
            op(ZP_OP_FLUSH, 0, null_mut(), 0, 4),
        ],
    );
    let mut done = wait(q, 4, -1);
    done.sort_by_key(|c| c.user_data);
    assert!(done.iter().all(|c| c.result == 0), "{done:?}");
    assert_eq!(done[1].nr_zones, 3);
    // Operations that use the slot of the report again describe no zones.
    let again: Vec<_> = (0..64).map(|n| op(ZP_OP_FLUSH, 0, null_mut(), 0, 2000 + n)).collect();
    submit(q, &again);
    assert!(wait(q, 64, -1).iter().all(|c| c.nr_zones == 0));
    assert!(zones.iter().all(|z| z.wp == z.start + 128 && z.cond == ZP_COND_IMP_OPEN));
    assert!(back[..4096] == written[4096..8192] && back[4096..] == written[5 * 4096..6 * 4096]);
    assert!(poll(q, 4).is_empty());
    // SAFETY: an open queue and disk. The queue outlives the disk's handle.
    unsafe {
        zp_close(disk);
        assert_eq!(zp_queue_in_flight(q), 0);
        assert_eq!(zp_queue_close(q, -1), 0);
        assert_eq!(zp_queue_close(null_mut(), 0), 0);
    }
}

/// An operation that needs no disk to be wrong ends the call; one that the disk refuses is a completion.
#[test]
fn what_is_wrong_is_refused() {
    let disk = open("mem,zones=4,zone-size=1M");
    let q = queue(disk, 8);
    let buf = [0u8; 4096];
    let good = op(ZP_OP_WRITE, 0, buf.as_ptr(), 4096, 1);
    let pieces = [iovec { iov_base: buf.as_ptr().cast_mut().cast(), iov_len: 4096 }];
    let list = pieces.as_ptr().cast();
    let wrong = [
        op(12, 0, buf.as_ptr(), 4096, 2),
        zp_op { flags: 0x80, ..good },
        zp_op { reserved: 1, ..good },
        op(ZP_OP_WRITE, 8, null_mut(), 4096, 2),
        op(ZP_OP_WRITE, 8, buf.as_ptr(), 0, 2),
        op(ZP_OP_WRITE, 8, buf.as_ptr(), 100, 2),
        op(ZP_OP_REPORT_ZONES, 0, buf.as_ptr(), 100, 2),
        op(ZP_OP_REPORT_ZONES, 0, null_mut(), 64, 2),
        zp_op { iovcnt: 1, ..op(ZP_OP_READ, 0, list, 8192, 2) },
        zp_op { iovcnt: 2000, ..op(ZP_OP_READ, 0, list, 4096, 2) },
        zp_op { iovcnt: u32::MAX, ..op(ZP_OP_READ, 0, list, 4096, 2) },
        zp_op { iovcnt: 1, ..op(ZP_OP_READ, 0, null_mut(), 4096, 2) },
        // Records would be written over the list.
        zp_op { iovcnt: 1, ..op(ZP_OP_REPORT_ZONES, 0, list, 64, 2) },
        // A list that lies askew, as in a packed structure.
        zp_op { iovcnt: 1, ..op(ZP_OP_READ, 0, buf[1..].as_ptr(), 4096, 2) },
        zp_op { iovcnt: 1, ..op(ZP_OP_WRITE, 8, buf[1..].as_ptr(), 4096, 2) },
    ];
    for (i, bad) in wrong.into_iter().enumerate() {
        let next = zp_op { sector: i as u64 * 8, ..good };
        let ops = [next, bad, next];
        // SAFETY: an open queue; the memory of what it takes stays.
        unsafe {
            assert_eq!(zp_queue_submit(q, ops.as_ptr(), 3), 1, "{bad:?}");
            assert_eq!(zp_queue_submit(q, &raw const bad, 1), -EINVAL, "{bad:?}");
        }
        let needs_sectors = hint().unwrap().contains("512");
        assert!(!(needs_sectors && bad.op == ZP_OP_REPORT_ZONES), "{}: {:?}", message(), hint());
        assert_eq!(message().contains(" pieces"), bad.iovcnt != 0 && bad.op < 12, "{}", message());
        assert_eq!(wait(q, 1, -1)[0].result, 0);
    }
    submit(
        q,
        &[
            op(ZP_OP_WRITE, 0, buf.as_ptr(), 4096, 7),
            op(ZP_OP_READ, 1 << 40, buf.as_ptr(), 4096, 8),
            op(ZP_OP_ZONE_RESET, 0, null_mut(), 0, 9),
        ],
    );
    let mut done = wait(q, 3, -1);
    done.sort_by_key(|c| c.user_data);
    let seen = |c: &zp_completion| (c.result, c.status);
    assert_eq!(seen(&done[0]), (-EIO, ZP_STATUS_NOT_AT_WRITE_POINTER));
    assert_eq!(seen(&done[1]), (-EINVAL, ZP_STATUS_OUT_OF_RANGE));
    assert_eq!(done[2].result, -EINVAL);
    // SAFETY: an open queue, or none.
    unsafe {
        assert_eq!(zp_queue_submit(q, std::ptr::null(), 1), -EINVAL);
        assert_eq!(zp_queue_submit(q, std::ptr::null(), 0), 0);
        assert_eq!(zp_queue_poll(q, null_mut(), 1), -EINVAL);
        assert_eq!(zp_queue_poll(null_mut(), null_mut(), 0), -EINVAL);
        let mut one = zp_completion::default();
        assert_eq!(zp_queue_wait(q, &raw mut one, 2, 1, 0), -EINVAL);
        assert_eq!(zp_queue_close(q, -1), 0);
        let mut none = null_mut();
        assert_eq!(zp_queue_open(disk, 0, &raw mut none), -EINVAL);
        assert_eq!(zp_queue_open(disk, 4097, &raw mut none), -EINVAL);
        assert_eq!(zp_queue_open(disk, 1, null_mut()), -EINVAL);
        assert_eq!(zp_queue_open(null_mut(), 1, &raw mut none), -EINVAL);
        zp_close(disk);
    }
}

/// After a deadline the operation is over, and its memory is not: that is said once it is.
#[test]
fn memory_that_comes_late_is_announced() {
    let disk = open("mem,zones=4,zone-size=1M,timeout=30ms,fault=read/delay=400ms/count=1");
    let q = queue(disk, 2);
    let buf = [0u8; 4096];
    submit(q, &[op(ZP_OP_READ, 0, buf.as_ptr(), 4096, 5)]);
    let c = wait(q, 1, -1)[0];
    assert_eq!((c.result, c.status), (-ETIMEDOUT, ZP_STATUS_TIMEOUT));
    assert_eq!((c.user_data, c.flags), (5, ZP_COMPLETION_MEMORY_LENT));
    // Its place in the queue is not free, and the other one is.
    // SAFETY: an open queue.
    assert_eq!(unsafe { zp_queue_in_flight(q) }, 1);
    let other = [0u8; 4096];
    submit(q, &[op(ZP_OP_WRITE, 0, other.as_ptr(), 4096, 6)]);
    let c = wait(q, 1, -1)[0];
    assert_eq!((c.result, c.user_data, c.flags), (0, 6, 0));
    // SAFETY: an open queue.
    assert_eq!(unsafe { zp_queue_close(q, 1) }, -EBUSY);
    // Waiting waits for the memory too.
    let c = wait(q, 1, 20_000)[0];
    assert_eq!((c.result, c.user_data, c.flags), (0, 5, ZP_COMPLETION_MEMORY_BACK));
    // Both places are free again.
    submit(
        q,
        &[op(ZP_OP_READ, 0, buf.as_ptr(), 4096, 7), op(ZP_OP_READ, 0, other.as_ptr(), 4096, 8)],
    );
    assert!(wait(q, 2, -1).iter().all(|c| c.result == 0));
    // SAFETY: an open queue and disk.
    unsafe {
        assert_eq!(zp_queue_close(q, 0), 0);
        zp_close(disk);
    }
}

/// Closing in vain takes no completion away: of an operation that has ended, of one whose memory is late, and of that memory.
#[test]
fn closing_in_vain_keeps_all_completions() {
    let disk = open("mem,zones=4,zone-size=1M,timeout=30ms,fault=read/delay=300ms/count=1");
    let q = queue(disk, 4);
    let (a, b) = ([0u8; 4096], [0u8; 4096]);
    submit(q, &[op(ZP_OP_READ, 0, a.as_ptr(), 4096, 1), op(ZP_OP_WRITE, 0, b.as_ptr(), 4096, 2)]);
    // SAFETY: an open queue.
    unsafe {
        assert_eq!(zp_queue_close(q, 100), -EBUSY);
        assert_eq!(message(), "still with the device: operations, or their memory: 1");
        assert_eq!(zp_queue_in_flight(q), 2);
    }
    let done = wait(q, 3, -1);
    let mut seen: Vec<_> = done.iter().map(|c| (c.user_data, c.result, c.flags)).collect();
    seen.sort_unstable();
    assert_eq!(
        seen,
        [(1, -ETIMEDOUT, ZP_COMPLETION_MEMORY_LENT), (1, 0, ZP_COMPLETION_MEMORY_BACK), (2, 0, 0),]
    );
    // SAFETY: an open queue and disk.
    unsafe {
        assert_eq!(zp_queue_in_flight(q), 0);
        assert_eq!(zp_queue_close(q, 0), 0);
        zp_close(disk);
    }
}

/// Closing waits as long as it is told to, and gives all memory back.
#[test]
fn closing_waits_for_what_is_in_flight() {
    let disk = open("mem,zones=4,zone-size=1M,fault=any/delay=300ms/count=all");
    let q = queue(disk, 4);
    let buf = [0u8; 4096];
    let begin = Instant::now();
    submit(q, &[op(ZP_OP_WRITE, 0, buf.as_ptr(), 4096, 1), op(ZP_OP_FLUSH, 0, null_mut(), 0, 2)]);
    assert!(poll(q, 4).is_empty());
    assert!(wait(q, 1, 10).is_empty(), "a wait ends with its time");
    // SAFETY: an open queue.
    assert_eq!(unsafe { zp_queue_close(q, 10) }, -EBUSY);
    assert!(message().ends_with(": 2"), "{}", message());
    // The queue is as before.
    assert_eq!(wait(q, 1, -1).len(), 1);
    // SAFETY: an open queue and disk.
    unsafe {
        assert_eq!(zp_queue_close(q, -1), 0);
        zp_close(disk);
    }
    assert!(begin.elapsed() >= Duration::from_millis(300));
}

/// The descriptor alone tells when to look: no operation is left behind by a program that sleeps on it.
#[test]
fn a_descriptor_ends_every_sleep() {
    for (spec, times) in [
        ("mem,zones=4,zone-size=1M", 500),
        ("mem,zones=4,zone-size=1M,fault=any/delay=1ms/count=all", 200),
    ] {
        let disk = open(spec);
        let q = queue(disk, 8);
        // SAFETY: an open queue.
        let fd = unsafe { zp_queue_fd(q) };
        assert!(fd >= 0, "{}", message());
        // SAFETY: the same.
        assert_eq!(unsafe { zp_queue_fd(q) }, fd);
        assert!(!sleep_on(fd, 20), "nothing is in flight");
        let buf = [0u8; 4096];
        let mut ended = 0;
        for n in 0..times {
            let nr = n % 8 + 1;
            let read = op(ZP_OP_READ, 0, buf.as_ptr(), 4096, 0);
            submit(q, &vec![read; nr as usize]);
            let mut left = nr;
            while left > 0 {
                assert!(sleep_on(fd, 10_000), "asleep with {left} of {nr} in flight");
                // One at a time: what is not fetched keeps the descriptor readable.
                left -= poll(q, 1).len() as u64;
            }
            ended += nr;
            assert!(poll(q, 1).is_empty(), "more completions than operations");
        }
        assert!(ended > times * 4);
        assert!(!sleep_on(fd, 20), "nothing is in flight");
        // SAFETY: an open queue and disk.
        unsafe {
            assert_eq!(zp_queue_close(q, -1), 0);
            zp_close(disk);
        }
    }
}

#[test]
fn a_queue_belongs_to_one_thread() {
    let disk = open("mem,zones=4,zone-size=1M");
    let q = queue(disk, 8).expose_provenance();
    std::thread::spawn(move || {
        let q = std::ptr::with_exposed_provenance_mut::<zp_queue>(q);
        let mut one = zp_completion::default();
        // SAFETY: an open queue, whose owner waits for this thread.
        unsafe {
            assert_eq!(zp_queue_submit(q, std::ptr::null(), 0), -EPERM);
            assert_eq!(zp_queue_poll(q, &raw mut one, 1), -EPERM);
            assert_eq!(zp_queue_fd(q), -EPERM);
            assert_eq!(zp_queue_close(q, -1), -EPERM);
        }
        assert_eq!(message(), "the queue belongs to another thread");
    })
    .join()
    .unwrap();
    // SAFETY: an open queue and disk.
    unsafe {
        assert_eq!(zp_queue_close(std::ptr::with_exposed_provenance_mut(q), -1), 0);
        zp_close(disk);
    }
}

/// Flags reach the device, from queues and from calls that wait.
#[test]
fn flags_reach_the_device() {
    let path = std::env::temp_dir().join(format!("zoneplug-capi-trace-{}", std::process::id()));
    let spec = format!("trace,file={}@mem,zones=4,zone-size=1M,write-cache=1", path.display());
    let disk = open(&spec);
    let q = queue(disk, 4);
    let buf = [0u8; 4096];
    submit(q, &[zp_op { flags: ZP_FUA, ..op(ZP_OP_WRITE, 0, buf.as_ptr(), 4096, 1) }]);
    assert_eq!(wait(q, 1, -1)[0].result, 0);
    submit(q, &[op(ZP_OP_WRITE, 8, buf.as_ptr(), 4096, 1)]);
    assert_eq!(wait(q, 1, -1)[0].result, 0);
    // SAFETY: an open queue and disk, and memory.
    unsafe {
        assert_eq!(zp_append(disk, 2048, buf.as_ptr().cast(), 4096, ZP_FUA.into()), 2048);
        assert_eq!(zp_write(disk, 2056, buf.as_ptr().cast(), 4096, ZP_FUA.into()), 0);
        assert_eq!(zp_write(disk, 2064, buf.as_ptr().cast(), 4096, 0), 0);
        assert_eq!(zp_queue_close(q, -1), 0);
        zp_close(disk);
    }
    let trace = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(path).unwrap();
    let sent: Vec<_> = trace
        .lines()
        .map(|l| l.split_whitespace().skip(5).collect::<Vec<_>>().join(" "))
        .filter(|l| l.starts_with('D'))
        .collect();
    assert_eq!(
        sent,
        [
            "D WF 0 + 8 [zoneplug]",
            "D W 8 + 8 [zoneplug]",
            "D WF 2048 + 8 [zoneplug]",
            "D WF 2056 + 8 [zoneplug]",
            "D W 2064 + 8 [zoneplug]",
        ]
    );
}

/// A frozen disk takes nothing: what was submitted meanwhile counts as in flight, also for closing, and is done afterwards.
#[test]
fn a_frozen_disk_takes_operations_later() {
    let disk = open("mem,zones=4,zone-size=1M,fault=write/delay=400ms/count=1");
    let (slow, q) = (queue(disk, 4), queue(disk, 4));
    let buf = [5u8; 4096];
    submit(slow, &[op(ZP_OP_WRITE, 0, buf.as_ptr(), 4096, 1)]);
    let handle = disk.expose_provenance();
    let change = std::thread::spawn(move || {
        let disk = std::ptr::with_exposed_provenance_mut::<zp_disk>(handle);
        // SAFETY: an open disk, which is closed after this thread, and strings.
        unsafe { zp_set_attribute(disk, c"scheduler".as_ptr(), c"mq-deadline".as_ptr()) }
    });
    // Once the change has begun, the disk is frozen until the slow write is done.
    std::thread::sleep(Duration::from_millis(100));
    submit(q, &[op(ZP_OP_WRITE, 2048, buf.as_ptr(), 4096, 2)]);
    assert!(poll(q, 4).is_empty() && !change.is_finished(), "the disk is not frozen");
    // SAFETY: an open queue.
    unsafe {
        assert_eq!(zp_queue_in_flight(q), 1);
        assert_eq!(zp_queue_close(q, 1), -EBUSY, "{}", message());
    }
    assert_eq!(wait(q, 1, -1)[0].result, 0);
    assert_eq!(change.join().unwrap(), 0);
    assert_eq!(wait(slow, 1, -1)[0].result, 0);
    // SAFETY: open queues and disk.
    unsafe {
        assert_eq!((zp_queue_close(q, 0), zp_queue_close(slow, 0)), (0, 0));
        zp_close(disk);
    }
}
