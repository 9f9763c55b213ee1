//! Power cuts of code in C.

#![allow(clippy::unwrap_used)]

mod common;

use common::{message, open, property, queue};
use libc::{EINVAL, EIO, c_int, c_void};
use std::ffi::{CStr, CString};
use std::ptr::{from_mut, null, null_mut};
use zoneplug_capi::*;

const DISK: &CStr = c"mem,zones=2,zone-size=64K";

/// A store of blocks in zone 0, which forgets some flushes.
struct Store {
    /// Forgets the flush of every nth value. 0: of none.
    forget_every: u8,
    /// The check says nothing, and returns the number of the call that fails.
    silent: bool,
    checks: u32,
}

unsafe extern "C" fn work(work: *mut zp_work, arg: *mut c_void) -> c_int {
    // SAFETY: what the test was given, an open disk, and memory of these lengths.
    unsafe {
        let store = &*arg.cast::<Store>();
        let disk = zp_work_disk(work);
        for n in 0..10u8 {
            let block = [n + 1; 4096];
            if zp_append(disk, 0, block.as_ptr().cast(), 4096, 0) < 0 {
                return -1;
            }
            let forgets = store.forget_every > 0 && n % store.forget_every == 2;
            if !forgets && zp_flush(disk) < 0 {
                return -1;
            }
            assert_eq!(zp_work_promise(work, (&raw const n).cast(), 1), 0);
        }
    }
    0
}

unsafe extern "C" fn check(cut: *mut zp_cut, arg: *mut c_void) -> c_int {
    // SAFETY: what the test was given, an open disk, and memory of these lengths.
    unsafe {
        let store = &mut *arg.cast::<Store>();
        store.checks += 1;
        let (disk, mut nth, mut len) = (zp_cut_disk(cut), 0, 0);
        loop {
            let promise = zp_cut_promise(cut, nth, &raw mut len).cast::<u8>();
            if promise.is_null() {
                return 0;
            }
            assert_eq!((len, *promise), (1, nth as u8), "promises come in order");
            let mut block = [0u8; 4096];
            let at = nth as u64 * 8;
            assert_eq!(zp_read(disk, at, block.as_mut_ptr().cast(), 4096), 0);
            if block != [*promise + 1; 4096] && store.silent {
                // Fails, because the sector is not the write pointer.
                return zp_write(disk, 120, block.as_ptr().cast(), 4096, 0);
            }
            if block != [*promise + 1; 4096] {
                let why = CString::new(format!("value {} is gone", *promise)).unwrap();
                return zp_cut_broken(cut, why.as_ptr());
            }
            nth += 1;
        }
    }
}

fn store(forget_every: u8) -> Store {
    Store { forget_every, silent: false, checks: 0 }
}

fn options() -> zp_crash_options {
    zp_crash_options {
        struct_size: size_of::<zp_crash_options>(),
        first_seed: 5,
        nr_seeds: 2,
        cuts: 100,
        flags: 0,
        reserved: 0,
    }
}

/// Tests a store: what the call returned, counts, and the failure's text, message and repetition.
fn test(
    store: &mut Store,
    options: *const zp_crash_options,
) -> (c_int, zp_crash_report, Option<[String; 3]>) {
    let (mut counts, mut failure) = (zp_crash_report::default(), null_mut());
    let (arg, report) = (from_mut(store).cast(), &raw mut counts);
    // SAFETY: strings, functions, options and places.
    unsafe {
        let (disk, found) = (DISK.as_ptr(), &raw mut failure);
        let number = zp_crash_test(disk, options, Some(work), Some(check), arg, report, found);
        let texts = failure.as_ref().map(|f| {
            assert!(f.seed == 5 && f.point > 0 && f.nr > 0);
            [f.text, f.message, f.repeat]
                .map(|text| CStr::from_ptr(text).to_str().unwrap().to_owned())
        });
        zp_crash_failure_free(failure);
        (number, counts, texts)
    }
}

#[test]
fn a_store_that_keeps_its_promises_passes() {
    let (number, counts, failure) = test(&mut store(0), &options());
    assert_eq!((number, failure), (0, None), "{}", message());
    assert_eq!((counts.runs, counts.commands, counts.cuts), (2, 40, 100));
    let every = zp_crash_options { flags: ZP_CRASH_EVERY | ZP_CRASH_CUT_CHECK, ..options() };
    let mut tested = store(0);
    let (number, counts, _) = test(&mut tested, &raw const every);
    assert!(number == 0 && counts.cuts == counts.points * 4, "{counts:?}");
    assert_eq!(u64::from(tested.checks), counts.cuts);
    let (number, counts, _) = test(&mut store(0), null());
    assert_eq!((number, counts.runs, counts.cuts), (0, 10, 1000), "the defaults");
}

#[test]
fn a_flush_that_is_forgotten_is_found() {
    let (number, counts, failure) = test(&mut store(3), &options());
    let [text, message, repeat] = failure.unwrap();
    assert_eq!((number, counts), (1, zp_crash_report::default()));
    assert_eq!(message, "value 2 is gone", "the first that was not flushed");
    assert!(text.contains(&format!("repeat it: ZONEPLUG_CRASH={repeat}")), "{text}");
    assert!(text.contains("zone 0 kept 16 of 24 sectors; 16 were flushed"), "{text}");

    let mut silent = Store { silent: true, ..store(3) };
    let (number, _, failure) = test(&mut silent, &options());
    assert_eq!(number, 1);
    let wanted = format!("the check returned {}: write at sector 120: ", -EIO);
    assert!(failure.clone().unwrap()[1].starts_with(&wanted), "{failure:?}");
}

unsafe extern "C" fn fails(_: *mut zp_work, _: *mut c_void) -> c_int {
    3
}

#[test]
fn a_test_that_cannot_be_made_says_why() {
    let run = |disk: &CStr,
               options: *const zp_crash_options,
               work: zp_work_fn,
               check: zp_cut_fn| {
        let arg = from_mut(&mut store(0)).cast();
        // SAFETY: strings, functions, options and NULL.
        unsafe { zp_crash_test(disk.as_ptr(), options, work, check, arg, null_mut(), null_mut()) }
    };
    assert_eq!(run(DISK, null(), Some(fails), Some(check)), -EINVAL);
    assert_eq!(message(), "the work of seed 1 failed before any power cut: the work returned 3");
    assert_eq!(run(c"null,zones=2", null(), Some(work), Some(check)), -EINVAL);
    assert!(message().contains("keeps no data"), "{}", message());
    assert_eq!(run(DISK, null(), None, Some(check)), -EINVAL);
    assert_eq!(run(DISK, null(), Some(work), None), -EINVAL);
    let unknown = zp_crash_options { flags: 4, ..options() };
    assert_eq!(run(DISK, &raw const unknown, Some(work), Some(check)), -EINVAL);
    // SAFETY: NULL is refused.
    unsafe {
        assert!(zp_work_disk(null_mut()).is_null() && zp_cut_disk(null_mut()).is_null());
        assert!(zp_cut_promise(null_mut(), 0, null_mut()).is_null());
        assert_eq!(zp_work_promise(null_mut(), null(), 0), -EINVAL);
        assert_eq!(zp_cut_broken(null_mut(), c"no".as_ptr()), -EINVAL);
        zp_crash_failure_free(null_mut());
    }
}

/// A disk keeps what was flushed over a power cut, and a part of the rest; seeds differ.
#[test]
fn a_disk_loses_what_was_not_flushed() {
    let kept = |seed: u64| {
        let (mut disk, block) = (null_mut(), [1u8; 4096]);
        // SAFETY: a string, places, and memory of these lengths.
        unsafe {
            assert_eq!(zp_crash_open(DISK.as_ptr(), seed, &raw mut disk), 0, "{}", message());
            let append = || assert!(zp_append(disk, 0, block.as_ptr().cast(), 4096, 0) >= 0);
            (0..4).for_each(|_| append());
            assert_eq!(zp_flush(disk), 0);
            (0..8).for_each(|_| append());
            let q = queue(disk, 4);
            assert!(zp_events_fd(disk) >= 0 && zp_events(disk, 0, null_mut(), 0) == 0);
            assert_eq!(zp_queue_close(q, -1), 0);
            assert_eq!(zp_crash_cut(disk), 0, "{}", message());
            let mut zone = zp_zone::default();
            assert_eq!(zp_report(disk, 0, &raw mut zone, 1, 0), 1);
            assert_eq!(property(disk, c"issued"), 0, "a disk that was opened anew");
            // The next write goes where the zone now ends.
            assert_eq!(zp_append(disk, 0, block.as_ptr().cast(), 4096, 0), zone.wp as i64);
            assert_eq!(zp_crash_cut(disk), 0);
            zp_close(disk);
            zone.wp / 8
        }
    };
    let all: Vec<u64> = (0..20).map(kept).collect();
    assert!(all.iter().all(|n| (4..=12).contains(n)), "{all:?}");
    assert!(all.iter().any(|n| *n != all[0]) && kept(3) == all[3], "{all:?}");
    let disk = open("mem,zones=2,zone-size=64K");
    // SAFETY: an open disk, strings and places.
    unsafe {
        assert_eq!(zp_crash_cut(disk), -EINVAL);
        assert_eq!(zp_crash_cut(null_mut()), -EINVAL);
        assert_eq!(zp_crash_open(DISK.as_ptr(), 1, null_mut()), -EINVAL);
        zp_close(disk);
    }
}
