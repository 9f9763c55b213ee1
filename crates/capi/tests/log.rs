//! Logs in the zones of a disk.

#![allow(clippy::unwrap_used)]

mod common;

use common::{hint, message, open};
use libc::{
    EEXIST, EINVAL, EIO, EMSGSIZE, ENODATA, ENOSPC, ENOTRECOVERABLE, ESTALE, c_void, iovec,
};
use std::mem::zeroed;
use std::ptr::{null, null_mut};
use zoneplug_capi::*;

/// Opens a log in some zones.
fn log_in(disk: *mut zp_disk, id: u64, zones: std::ops::Range<u32>, flags: u32) -> *mut zp_log {
    // SAFETY: numbers.
    let mut options: zp_log_options = unsafe { zeroed() };
    options.struct_size = size_of_val(&options);
    (options.id, options.flags) = (id, flags);
    (options.first_zone, options.nr_zones) = (zones.start, zones.end - zones.start);
    let mut log = null_mut();
    // SAFETY: an open disk, options and a place.
    assert_eq!(unsafe { zp_log_open(disk, &raw const options, &raw mut log) }, 0, "{}", message());
    log
}

/// Appends a record.
fn append(log: *mut zp_log, data: &[u8], flags: u32) -> Result<zp_log_address, i32> {
    let mut at = zp_log_address::default();
    // SAFETY: an open log, memory and a place.
    match unsafe { zp_log_append(log, data.as_ptr().cast(), data.len(), flags, &raw mut at) } {
        0 => Ok(at),
        errno => Err(errno),
    }
}

/// Reads a record of up to 64 KiB.
fn read(log: *mut zp_log, at: zp_log_address) -> Result<Vec<u8>, i64> {
    let mut buf = vec![0u8; 65536];
    // SAFETY: an open log, an address and memory.
    let n = unsafe { zp_log_read(log, &raw const at, buf.as_mut_ptr().cast(), buf.len()) };
    buf.truncate(usize::try_from(n).map_err(|_| n)?);
    Ok(buf)
}

/// All that a cursor finds: the number and the data of each record, or an errno.
fn all(log: *mut zp_log, from: *const zp_log_address) -> Vec<Result<(u64, Vec<u8>), i32>> {
    let (mut cursor, mut found) = (null_mut(), Vec::new());
    // SAFETY: an open log and places; the data are there until the next call.
    unsafe {
        assert_eq!(zp_log_cursor_open(log, from, &raw mut cursor), 0, "{}", message());
        loop {
            let mut record: zp_log_record = zeroed();
            match zp_log_next(cursor, &raw mut record) {
                0 => break,
                1 => {
                    let data = std::slice::from_raw_parts(record.data.cast::<u8>(), record.len);
                    found.push(Ok((record.address.sequence, data.to_vec())));
                }
                errno => found.push(Err(errno)),
            }
        }
        zp_log_cursor_close(cursor);
    }
    found
}

#[test]
fn records_are_found_again() {
    let disk = open("mem,zones=8,zone-size=256K");
    let log = log_in(disk, 7, 2..6, 0);
    let first = append(log, b"first", 0).unwrap();
    let second = append(log, &[2; 5000], ZP_LOG_SYNC).unwrap();
    assert_eq!((first.sequence, second.sequence), (1, 2));
    assert!(first.position >= 2 * 262_144 && second.position > first.position);
    let data = [b"third".as_slice(), b"", b"fifth"];
    let list = data.map(|d| iovec { iov_base: d.as_ptr().cast_mut().cast(), iov_len: d.len() });
    let mut at = [zp_log_address::default(); 3];
    // SAFETY: an open log, lists and places.
    unsafe {
        let batch = zp_log_append_batch(log, list.as_ptr(), 3, ZP_LOG_SYNC, at.as_mut_ptr());
        assert_eq!(batch, 0, "{}", message());
        assert_eq!(zp_log_append_batch(log, null(), 0, 0, null_mut()), 0);
    }
    assert_eq!(at.map(|a| a.sequence), [3, 4, 5]);
    assert_eq!(read(log, second).unwrap(), [2; 5000]);
    assert_eq!(read(log, at[2]).unwrap(), b"fifth");
    let mut start = [9u8; 8];
    // SAFETY: an open log, an address and memory.
    unsafe {
        let buf = start.as_mut_ptr().cast();
        assert_eq!(zp_log_read(log, &raw const second, buf, 4), 5000, "only a part fits");
        assert_eq!(start, [2, 2, 2, 2, 9, 9, 9, 9]);
        assert_eq!(zp_log_read(log, &raw const second, null_mut(), 0), 5000);
        zp_log_close(log);
    }

    // The log keeps the disk open; its numbers go on.
    let log = log_in(disk, 7, 2..6, 0);
    // SAFETY: an open disk, which the log keeps, and an open log with places.
    unsafe {
        zp_close(disk);
        let mut found = zp_log_recovery::default();
        assert_eq!(zp_log_recovered(log, &raw mut found), 0);
        let wanted =
            zp_log_recovery { first: 1, last: 5, zones_in_use: 1, ..zp_log_recovery::default() };
        assert_eq!(found, wanted);
        let (mut first, mut next) = (0, 0);
        assert_eq!(zp_log_numbers(log, &raw mut first, &raw mut next), 0);
        assert_eq!((first, next), (1, 6));
        assert_eq!(zp_log_numbers(log, null_mut(), null_mut()), 0);
    }
    let records = all(log, null());
    assert_eq!(records.len(), 5);
    assert_eq!(records[2], Ok((3, b"third".to_vec())));
    assert_eq!(all(log, &raw const at[1]), [Ok((4, vec![])), Ok((5, b"fifth".to_vec()))]);
    // SAFETY: an open log.
    unsafe { zp_log_close(log) };
}

/// Each failure of a log has a number of its own.
#[test]
fn errors_of_a_log_have_numbers_of_their_own() {
    let disk = open("mem,zones=2,zone-size=64K");
    let log = log_in(disk, 0, 0..2, ZP_LOG_CREATE);
    // SAFETY: an open log.
    let max = unsafe { zp_log_max_record(log) } as usize;
    assert!(max > 60_000 && max < 65_536, "{max}");
    assert_eq!(append(log, &vec![0; max + 1], 0), Err(-EMSGSIZE));
    assert_eq!(hint().unwrap(), "split the record");
    let oldest = append(log, &vec![1; max], 0).unwrap();
    let newest = append(log, &vec![2; max], 0).unwrap();
    assert_eq!(append(log, b"more", 0), Err(-ENOSPC));
    assert_eq!(message(), "the log is full");
    // SAFETY: an open log, addresses and places.
    unsafe {
        assert_eq!(zp_log_trim(log, &raw const newest), 1, "{}", message());
        assert_eq!(read(log, oldest), Err(i64::from(-ESTALE)));
        assert_eq!(zp_log_trim(log, &raw const oldest), 0, "nothing is older");
        assert_eq!(zp_log_reset_oldest(log), 0, "only one zone holds records");
        let third = append(log, b"third", 0).unwrap();
        assert_eq!(zp_log_reset_oldest(log), 1);
        assert_eq!(all(log, null()), [Ok((third.sequence, b"third".to_vec()))]);

        let mut cursor = null_mut();
        assert_eq!(zp_log_cursor_open(log, &raw const newest, &raw mut cursor), -ESTALE);
        assert_eq!(zp_log_cursor_open(log, null(), null_mut()), -EINVAL);
        assert_eq!(zp_log_next(null_mut(), null_mut()), -EINVAL);
        assert_eq!(zp_log_append(log, null(), 1, 0, null_mut()), -EINVAL);
        assert_eq!(zp_log_append(log, null(), 0, 2, null_mut()), -EINVAL);
        assert_eq!(zp_log_read(log, null(), null_mut(), 0), i64::from(-EINVAL));
        assert_eq!(zp_log_read(log, &raw const third, null_mut(), 1), i64::from(-EINVAL));
        assert_eq!(zp_log_sync(null_mut()), -EINVAL);
        assert_eq!(message(), "the log is NULL");
        assert_eq!(zp_log_open(disk, null(), null_mut()), -EINVAL);
        zp_log_close(log);
        zp_log_close(null_mut());
        zp_log_cursor_close(null_mut());
        zp_close(disk);

        // Zones with other data.
        let disk = open("mem,zones=4,zone-size=64K");
        let (block, mut log) = ([7u8; 4096], null_mut());
        assert_eq!(zp_append(disk, 0, block.as_ptr().cast(), 4096, 0), 0);
        assert_eq!(zp_log_open(disk, null(), &raw mut log), -EEXIST, "{}", message());
        assert!(log.is_null() && message().contains("zone 0"), "{}", message());
        let one =
            zp_log_options { struct_size: size_of::<zp_log_options>(), first_zone: 3, ..zeroed() };
        assert_eq!(zp_log_open(disk, &raw const one, &raw mut log), -EINVAL, "one zone");
        zp_close(disk);
    }
}

/// A log writes to all of its zones and to no other.
#[test]
fn a_log_has_the_zones_that_it_is_given() {
    let disk = open("mem,zones=8,zone-size=64K");
    let log = log_in(disk, 0, 2..5, 0);
    while append(log, &[7; 8192], 0).is_ok() {}
    // SAFETY: an open log and disk, numbers, and room for 8 zones.
    let written: Vec<bool> = unsafe {
        zp_log_close(log);
        let mut zones: [zp_zone; 8] = zeroed();
        assert_eq!(zp_report(disk, 0, zones.as_mut_ptr(), 8, 0), 8);
        zp_close(disk);
        zones.iter().map(|z| z.wp > z.start).collect()
    };
    assert_eq!(written, [false, false, true, true, true, false, false, false]);
}

/// After a failed sync the log does not know what is durable, until the log is opened again.
#[test]
fn a_failed_sync_ends_the_log() {
    let disk = open("mem,zones=4,zone-size=64K,fault=flush/io/skip=1/count=1");
    let log = log_in(disk, 0, 0..4, 0);
    append(log, b"a", 0).unwrap();
    // SAFETY: an open log and disk.
    unsafe {
        let errno = (0..4).map(|_| zp_log_sync(log)).find(|n| *n != 0);
        assert_eq!(errno, Some(-EIO), "{}", message());
        assert_eq!(append(log, b"b", 0), Err(-ENOTRECOVERABLE));
        zp_log_close(log);
        zp_close(disk);
    }
}

/// Records that are missing between two others are told once, and then the cursor goes on.
#[test]
fn a_hole_is_an_error_and_then_the_cursor_goes_on() {
    let disk = open("mem,zones=4,zone-size=64K");
    let log = log_in(disk, 0, 0..4, 0);
    let record = vec![1u8; 50_000];
    assert!((0..3).all(|_| append(log, &record, ZP_LOG_SYNC).is_ok()));
    // SAFETY: an open log and disk.
    unsafe {
        zp_log_close(log);
        assert_eq!(zp_reset(disk, 128, 128), 0, "the second record is gone");
    }
    let log = log_in(disk, 0, 0..4, 0);
    let found: Vec<_> = all(log, null()).into_iter().map(|r| r.map(|(n, _)| n)).collect();
    assert_eq!(found, [Ok(1), Err(-ENODATA), Ok(3)]);
    // SAFETY: an open log and disk.
    unsafe {
        zp_log_close(log);
        zp_close(disk);
    }
}

/// Logs of a set share zones, and each thread writes its own.
#[test]
fn a_set_of_logs_shares_its_zones() {
    let disk = open("mem,zones=8,zone-size=64K,max-open=2");
    let mut logs = [null_mut::<zp_log>(); 2];
    // SAFETY: an open disk and an array.
    let opened = unsafe { zp_log_open_set(disk, null(), 2, logs.as_mut_ptr()) };
    assert_eq!(opened, 0, "{}", message());
    let logs = logs.map(|log| log.expose_provenance());
    std::thread::scope(|s| {
        for (n, log) in logs.into_iter().enumerate() {
            s.spawn(move || {
                let log = std::ptr::with_exposed_provenance_mut::<zp_log>(log);
                assert!((0..20).all(|_| append(log, &[n as u8; 3000], ZP_LOG_SYNC).is_ok()));
            });
        }
    });
    for (n, log) in logs.into_iter().enumerate() {
        let log = std::ptr::with_exposed_provenance_mut::<zp_log>(log);
        let wanted = (1..21).map(|number| Ok((number, vec![n as u8; 3000])));
        assert!(all(log, null()).into_iter().eq(wanted));
        // SAFETY: an open log that no thread uses any more.
        unsafe { zp_log_close(log) };
    }
    let mut none = null_mut::<c_void>();
    // SAFETY: an open disk; no log is opened.
    unsafe {
        assert_eq!(zp_log_open_set(disk, null(), 0, (&raw mut none).cast()), -EINVAL);
        zp_close(disk);
    }
}
