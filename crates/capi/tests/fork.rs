//! A child of a fork. In a file of its own, so that no test of another kind runs in this process meanwhile.

#![allow(clippy::unwrap_used)]

mod common;

use common::{Directory, message, op, open, poll, queue, small, submit, wait};
use libc::EPERM;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;
use zoneplug_capi::*;

/// The child's calls with what it has inherited are refused in words, closing does nothing, and disks of its own work. The
/// parent goes on.
#[test]
fn a_child_is_refused_in_words_and_opens_its_own() {
    let disk = open("mem,zones=4,zone-size=1M");
    let q = queue(disk, 8);
    let mut log = std::ptr::null_mut();
    let other = open("mem,zones=4,zone-size=1M");
    // SAFETY: an open disk and the place of a log.
    assert_eq!(unsafe { zp_log_open(other, std::ptr::null(), &raw mut log) }, 0, "{}", message());
    let buf = [3u8; 4096];
    submit(q, &[op(ZP_OP_WRITE, 0, buf.as_ptr(), 4096, 1)]);
    // SAFETY: the child ends with `_exit`, and only its own thread exists there.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: handles that were open at the fork, and memory of these lengths.
        let refused = unsafe {
            zp_flush(disk) == -EPERM
                && message() == "the disk was opened before this process was forked"
                && zp_append(disk, 0, buf.as_ptr().cast(), 4096, 0) == -i64::from(EPERM)
                && zp_queue_submit(q, std::ptr::null(), 0) == -EPERM
                && zp_queue_close(q, -1) == 0
                && zp_log_sync(log) == -EPERM
        };
        // SAFETY: the same.
        unsafe {
            zp_log_close(log);
            zp_close(disk);
        }
        let own = open("mem,zones=4,zone-size=1M");
        // SAFETY: an open disk.
        let works = unsafe { zp_append(own, 2048, buf.as_ptr().cast(), 4096, 0) == 2048 };
        // SAFETY: ends the child without what the test harness does at an end.
        unsafe { libc::_exit(i32::from(!refused) + 2 * i32::from(!works)) };
    }
    let mut status = 0;
    // SAFETY: the place of a number.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "1: not refused; 2: a disk of its own failed (in the high byte)");
    assert_eq!(wait(q, 1, -1)[0].result, 0);
    assert!(poll(q, 1).is_empty());
    // SAFETY: an open disk and queue.
    unsafe {
        assert_eq!(zp_append(disk, 0, buf.as_ptr().cast(), 4096, 0), 8);
        assert_eq!(zp_queue_close(q, -1), 0);
        assert_eq!(
            zp_log_append(log, buf.as_ptr().cast(), 4, ZP_LOG_SYNC, std::ptr::null_mut()),
            0
        );
        zp_log_close(log);
        zp_close(other);
        zp_close(disk);
    }
}

/// A child opens the disk that a thread of its parent writes at the moment of the fork. That thread is not in the child, so
/// whatever it had locked stays locked there.
#[test]
fn a_child_opens_the_disk_that_the_parent_writes() {
    let d = Directory::new("fork");
    let path = d.path("disk.zbd");
    let options = small();
    // SAFETY: a path, and options.
    assert_eq!(unsafe { zp_create(path.as_ptr(), &raw const options, std::ptr::null_mut()) }, 0);
    let path = path.to_str().unwrap();
    let read_only = std::ffi::CString::new(format!("{path},read-only=1")).unwrap();
    let disk = open(path) as usize;
    let (stop, written) = (AtomicBool::new(false), AtomicU32::new(0));
    let failed = std::thread::scope(|s| {
        s.spawn(|| {
            let (disk, buf) = (disk as *mut zp_disk, [5u8; 4096]);
            while !stop.load(Ordering::Relaxed) {
                let n = written.fetch_add(1, Ordering::Relaxed) % 256;
                // SAFETY: an open disk.
                unsafe {
                    assert!(n > 0 || zp_reset(disk, 0, 2048) == 0, "{}", message());
                    let done = zp_write(disk, u64::from(n) * 8, buf.as_ptr().cast(), 4096, 0);
                    assert_eq!(done, 0, "{}", message());
                }
            }
        });
        let child = |nth: u32| {
            while written.load(Ordering::Relaxed) <= nth {
                std::thread::yield_now();
            }
            // Each fork meets another moment of a write.
            std::thread::sleep(Duration::from_micros(u64::from(nth) * 130));
            // SAFETY: the child ends with `_exit` or by the alarm, and only its own thread exists there.
            let child = unsafe { libc::fork() };
            if child == 0 {
                // SAFETY: as above.
                unsafe {
                    libc::alarm(10);
                    let mut copy = std::ptr::null_mut();
                    libc::_exit(i32::from(zp_open(read_only.as_ptr(), &raw mut copy) != 0));
                }
            }
            let mut status = 0;
            // SAFETY: the place of a number.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            status
        };
        let failed = (0..16).map(child).find(|status| *status != 0);
        stop.store(true, Ordering::Relaxed);
        failed
    });
    // SAFETY: an open disk.
    unsafe { zp_close(disk as *mut zp_disk) };
    assert_eq!(failed, None, "14: a child waited for what no thread of its own has");
}
