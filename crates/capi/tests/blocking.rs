//! Calls that wait, and what a disk says of itself.

#![allow(clippy::unwrap_used)]

mod common;

use common::{hint, message, open, property};
use libc::{EINVAL, EIO, ENOENT, c_void, iovec};
use std::ffi::CStr;
use std::ptr::{null, null_mut};
use zoneplug_capi::*;

const SPEC: &str = "mem,zones=8,zone-size=1M,conv=1";

#[test]
fn data_goes_there_and_back() {
    let disk = open(SPEC);
    let (a, b) = ([7u8; 4096], [9u8; 4096]);
    let pieces = [
        iovec { iov_base: a.as_ptr().cast_mut().cast(), iov_len: 100 },
        iovec { iov_base: null_mut(), iov_len: 0 },
        iovec { iov_base: b.as_ptr().cast_mut().cast(), iov_len: 3996 },
    ];
    let mut back = [0u8; 12288];
    let mut halves = [0u8; 12288];
    let half = halves.as_mut_ptr();
    // SAFETY: an open disk, and memory of these lengths.
    unsafe {
        assert_eq!(zp_write(disk, 2048, a.as_ptr().cast(), 4096, 0), 0, "{}", message());
        assert_eq!(zp_append(disk, 2048, b.as_ptr().cast(), 4096, ZP_FUA.into()), 2056);
        assert_eq!(zp_appendv(disk, 2048, pieces.as_ptr(), 3, 0), 2064);
        assert_eq!(zp_writev(disk, 2072, pieces.as_ptr(), 3, ZP_FUA.into()), 0);
        assert_eq!(zp_write_zeroes(disk, 2080, 8), 0);
        assert_eq!(zp_read(disk, 2048, back.as_mut_ptr().cast(), 12288), 0);
        let at = |n: usize| half.add(n).cast::<c_void>();
        let two =
            [iovec { iov_base: at(0), iov_len: 5000 }, iovec { iov_base: at(5000), iov_len: 7288 }];
        assert_eq!(zp_readv(disk, 2048, two.as_ptr(), 2), 0);
        assert_eq!(zp_flush(disk), 0);
    }
    assert!(back[..4096] == a && back[4096..8192] == b);
    assert!(back[8192..8292] == [7; 100] && back[8292..] == [9; 3996]);
    assert_eq!(back, halves);

    let mut zones = [zp_zone::default(); 9];
    // SAFETY: an open disk and an array.
    unsafe {
        assert_eq!(zp_report(disk, 0, zones.as_mut_ptr(), 9, 0), 8);
        assert_eq!((zones[0].zone_type, zones[0].cond), (ZP_ZONE_CONVENTIONAL, ZP_COND_NOT_WP));
        let z = zones[1];
        assert_eq!((z.start, z.len, z.capacity, z.wp), (2048, 2048, 2048, 2088));
        assert_eq!((z.zone_type, z.cond), (ZP_ZONE_SEQ_WRITE_REQUIRED, ZP_COND_IMP_OPEN));
        let cond = |sector| {
            let mut z = zp_zone::default();
            assert_eq!(zp_report(disk, sector, &raw mut z, 1, ZP_RESYNC.into()), 1);
            z.cond
        };
        assert_eq!(zp_close_zone(disk, 2048, 2048), 0);
        assert_eq!(cond(2048), ZP_COND_CLOSED);
        assert_eq!(zp_open_zone(disk, 2048, 4096), 0);
        assert_eq!((cond(2048), cond(4096)), (ZP_COND_EXP_OPEN, ZP_COND_EXP_OPEN));
        assert_eq!(zp_finish(disk, 2048, 2048), 0);
        assert_eq!(cond(2048), ZP_COND_FULL);
        assert_eq!(zp_reset(disk, 2048, 2048), 0);
        assert_eq!((cond(2048), cond(4096)), (ZP_COND_EMPTY, ZP_COND_EXP_OPEN));
        assert_eq!(zp_reset_all(disk), 0);
        assert_eq!(cond(4096), ZP_COND_EMPTY);
        assert_eq!(zp_discard(disk, 0, 2048), 0);
        assert_eq!(zp_revalidate(disk), 0);
        zp_close(disk);
    }
}

/// A failed call says what is wrong and what to try, and changes nothing.
#[test]
fn errors_have_a_number_and_words() {
    let mut none = null_mut();
    // SAFETY: strings, or what is refused; memory of these lengths.
    unsafe {
        assert_eq!(zp_open(c"mem,zone=64".as_ptr(), &raw mut none), -EINVAL);
        assert!(message().contains("zone"), "{}", message());
        assert!(hint().is_some() && none.is_null());
        assert_eq!(zp_open(c"/nowhere/at.zbd".as_ptr(), &raw mut none), -ENOENT, "{}", message());
        assert_eq!(zp_open(null(), &raw mut none), -EINVAL);
        assert_eq!(zp_open(c"\xff".as_ptr(), &raw mut none), -EINVAL);
        assert_eq!(zp_open(c"mem,zones=1".as_ptr(), null_mut()), -EINVAL);
        assert_eq!(zp_flush(null_mut()), -EINVAL);
        assert_eq!(
            (message().as_str(), hint().unwrap().as_str()),
            ("the disk is NULL", "what zp_open gave")
        );
        zp_close(null_mut());

        let disk = open(SPEC);
        let mut buf = [1u8; 4096];
        let at = buf.as_mut_ptr().cast::<c_void>();
        assert_eq!(zp_write(disk, 2056, at, 4096, 0), -EIO);
        assert_eq!(message(), "write at sector 2056: not at the write pointer");
        assert_eq!(hint().unwrap(), "append, or write where the zone's report says");
        assert_eq!(zp_write(disk, 2048, at, 4095, 0), -EINVAL);
        assert_eq!(zp_write(disk, 2048, at, 512, 0), -EINVAL, "the block has 4096 bytes");
        assert_eq!(zp_write(disk, 2048, null(), 4096, 0), -EINVAL);
        assert_eq!(zp_write(disk, 2048, at, 1 << 32, 0), -EINVAL);
        assert_eq!(zp_write(disk, 2048, at, 4096, ZP_NOWAIT.into()), -EINVAL);
        assert_eq!(zp_read(disk, u64::MAX, at, 4096), -EINVAL);
        assert_eq!(zp_read(disk, 2048, at, 100), -EINVAL);
        assert_eq!(zp_readv(disk, 2048, null(), 1), -EINVAL);
        assert_eq!(zp_readv(disk, 2048, null(), -1), -EINVAL);
        let huge = [iovec { iov_base: at, iov_len: usize::MAX }; 2];
        assert_eq!(zp_writev(disk, 2048, huge.as_ptr(), 2, 0), -EINVAL);
        assert_eq!(zp_append(disk, 2056, at, 4096, 0), -i64::from(EINVAL));
        assert_eq!(zp_append(disk, 0, at, 4096, 0), -i64::from(EIO), "conventional");
        assert_eq!(zp_reset(disk, 2048, 1), -EINVAL);
        assert_eq!(zp_reset(disk, 0, u64::MAX), -EINVAL);
        assert_eq!(zp_report(disk, 0, null_mut(), 1, 0), -EINVAL);
        assert_eq!(buf, [1; 4096]);
        let mut z = zp_zone::default();
        assert_eq!(zp_report(disk, 2048, &raw mut z, 1, 0), 1);
        assert_eq!(z.wp, 2048, "nothing was written");
        // Another thread's failure is its own.
        let before = message();
        std::thread::spawn(|| assert_eq!(message(), "")).join().unwrap();
        assert_eq!(message(), before);
        zp_close(disk);
    }
}

#[test]
fn a_disk_says_what_it_is_and_what_it_did() {
    let disk = open("mem,zones=8,zone-size=1M,zone-capacity=768K,conv=2,max-open=3");
    let of = |name| property(disk, name);
    assert_eq!((of(c"nr_zones"), of(c"sectors"), of(c"zone_sectors")), (8, 16384, 2048));
    assert_eq!((of(c"zone_capacity_sectors"), of(c"nr_conventional_zones")), (1536, 2));
    assert_eq!((of(c"logical_block_sectors"), of(c"max_open_zones")), (8, 3));
    let names: Vec<_> = (0..)
        .map(|n| zp_property_name(n))
        .take_while(|n| !n.is_null())
        // SAFETY: a string that lives for ever.
        .map(|n| unsafe { CStr::from_ptr(n) })
        .collect();
    let mut once = names.clone();
    once.sort_unstable();
    once.dedup();
    assert!(names.len() == once.len() && names.len() > 30);
    assert!(names.iter().filter(|n| of(n) > 0).count() > 5, "each of them has a value");

    let buf = [0u8; 4096];
    let mut text = [b'x'; 256];
    let at = text.as_mut_ptr().cast();
    // SAFETY: an open disk, strings, and memory of these lengths.
    unsafe {
        assert_eq!(zp_append(disk, 4096, buf.as_ptr().cast(), 4096, 0), 4096);
        assert_eq!(zp_write(disk, 4096, buf.as_ptr().cast(), 4096, 0), -EIO);
        assert_eq!((of(c"issued"), of(c"rejected"), of(c"live_plugs")), (1, 1, 1));
        let n = zp_wplugs(disk, at, 256) as usize;
        let line = CStr::from_ptr(at).to_str().unwrap();
        assert!(line.starts_with("Zone no: 2, flags: 0x"), "{line}");
        assert_eq!(line.len(), n);
        assert_eq!(zp_wplugs(disk, null_mut(), 0) as usize, n, "only the length");
        assert_eq!(zp_wplugs(disk, at, 5) as usize, n);
        assert_eq!(CStr::from_ptr(at).to_str().unwrap(), "Zone");
        assert_eq!(zp_wplugs(disk, null_mut(), 5), -EINVAL);

        assert_eq!(zp_set_attribute(disk, c"qd1".as_ptr(), c"1".as_ptr()), 0, "{}", message());
        assert_eq!(zp_attribute(disk, c"zoned_qd1_writes".as_ptr(), at, 256), 1);
        assert_eq!(CStr::from_ptr(at), c"1");
        assert_eq!(zp_set_attribute(disk, c"qd1".as_ptr(), c"2".as_ptr()), -EINVAL);
        assert_eq!(zp_set_attribute(disk, c"qd2".as_ptr(), c"1".as_ptr()), -ENOENT);
        assert_eq!(zp_attribute(disk, c"qd2".as_ptr(), at, 256), -ENOENT);
        let mut names = Vec::new();
        while zp_attribute_name(disk, names.len() as u32, at, 256) > 0 {
            names.push(CStr::from_ptr(at).to_owned());
        }
        assert!(names.iter().any(|n| &**n == c"zoned_qd1_writes"), "{names:?}");
        let mut n = 0;
        assert_eq!(zp_property(disk, c"colour".as_ptr(), &raw mut n), -ENOENT);
        zp_close(disk);
    }
    assert!(zp_status_name(200).is_null());
    // SAFETY: strings that live for ever.
    unsafe {
        assert_eq!(CStr::from_ptr(zp_status_name(ZP_STATUS_ZONE_FULL)), c"zone full");
        assert_eq!(CStr::from_ptr(zp_version()).to_str().unwrap(), env!("CARGO_PKG_VERSION"));
        let buf = zp_buf_alloc(5000);
        assert!(buf.addr().is_multiple_of(4096));
        assert_eq!(std::slice::from_raw_parts(buf.cast::<u8>(), 5000), [0; 5000]);
        zp_buf_free(buf);
        zp_buf_free(null_mut());
        assert!(zp_buf_alloc(usize::MAX / 2).is_null());
    }
}

/// Threads share a disk; each append gets a place of its own.
#[test]
fn threads_share_a_disk() {
    let disk = open("mem,zones=4,zone-size=1M").expose_provenance();
    let mut at: Vec<i64> = std::thread::scope(|s| {
        let append = || {
            let disk = std::ptr::with_exposed_provenance_mut::<zp_disk>(disk);
            let buf = [1u8; 4096];
            // SAFETY: an open disk and memory.
            (0..50).map(|_| unsafe { zp_append(disk, 0, buf.as_ptr().cast(), 4096, 0) }).collect()
        };
        let threads: Vec<_> = (0..4).map(|_| s.spawn(append)).collect();
        threads.into_iter().flat_map(|t| -> Vec<i64> { t.join().unwrap() }).collect()
    });
    at.sort_unstable();
    assert!(at.iter().copied().eq((0..200).map(|n| n * 8)));
    // SAFETY: open, and no thread uses it any more.
    unsafe { zp_close(std::ptr::with_exposed_provenance_mut(disk)) };
}

/// The most memory that this process has had, in bytes.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:")).unwrap();
    line.trim_end_matches("kB").trim().parse::<u64>().unwrap() << 10
}

/// A length that no operation of the disk can have costs no memory, not even that of the caller.
#[test]
fn a_length_beyond_the_disk_costs_nothing() {
    const LEN: usize = (4 << 30) - 512;
    let disk = open("mem,zones=8,zone-size=1M");
    // SAFETY: new memory, which is never touched, and which is given back.
    let memory = unsafe {
        let (prot, flags) = (libc::PROT_NONE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        libc::mmap(null_mut(), LEN, prot, flags | libc::MAP_NORESERVE, -1, 0)
    };
    assert_ne!(memory, libc::MAP_FAILED);
    let before = peak();
    // SAFETY: an open disk. The memory could be neither read nor written, so a call that touches it ends the process.
    unsafe {
        for sector in [0, 2048, u64::MAX] {
            assert_eq!(zp_read(disk, sector, memory, LEN), -EINVAL);
            assert_eq!(message(), format!("read at sector {sector}: out of range"));
            assert_eq!(zp_write(disk, sector, memory, LEN, 0), -EINVAL);
            assert_eq!(zp_append(disk, sector, memory, LEN, 0), i64::from(-EINVAL));
        }
        // Longer than an append of this disk, though not than the disk.
        assert_eq!(zp_append(disk, 0, memory, 2 << 20, 0), i64::from(-EINVAL));
        assert_eq!(message(), "zone_append at sector 0: append too large");
        libc::munmap(memory, LEN);
        zp_close(disk);
    }
    assert!(peak() - before < 64 << 20, "{} bytes", peak() - before);
}

/// Each piece of a list is an append of its own, and has its own place or its own error.
#[test]
fn several_appends_in_one_call_have_a_place_each() {
    let disk = open("mem,zones=4,zone-size=256K,reorder=5");
    let blocks: Vec<[u8; 4096]> = (0..70).map(|n| [n; 4096]).collect();
    let piece = |b: &[u8; 4096]| iovec { iov_base: b.as_ptr().cast_mut().cast(), iov_len: 4096 };
    let mut list: Vec<iovec> = blocks.iter().map(piece).collect();
    let mut sectors = [0i64; 70];
    let mut back = [0u8; 4096];
    // SAFETY: an open disk, lists, and memory of these lengths.
    unsafe {
        let at = sectors.as_mut_ptr();
        assert_eq!(zp_append_each(disk, 0, list.as_ptr(), 10, 0, at), 0, "{}", message());
        assert!((0..10).all(|n| sectors[n] == n as i64 * 8), "{sectors:?}");
        for (block, sector) in blocks[..10].iter().zip(sectors) {
            assert_eq!(zp_read(disk, sector as u64, back.as_mut_ptr().cast(), 4096), 0);
            assert_eq!(back, *block);
        }
        assert_eq!(zp_append_each(disk, 512, list.as_ptr(), 4, ZP_FUA.into(), at), 0);
        assert_eq!(sectors[..4], [512, 520, 528, 536]);
        assert_eq!(zp_append_each(disk, 512, list.as_ptr(), 0, 0, null_mut()), 0);

        // A zone holds 64 blocks.
        let full = zp_append_each(disk, 1024, list.as_ptr(), 70, 0, at);
        assert!(full < 0 && message().contains("zone_append"), "{full} {}", message());
        assert_eq!(sectors.iter().filter(|s| **s >= 0).count(), 64);
        assert!(sectors[64..].iter().all(|s| *s == i64::from(full)), "{sectors:?}");

        // Nothing is sent if one piece is wrong.
        list[3].iov_len = 100;
        let wrong = zp_append_each(disk, 1536, list.as_ptr(), 5, 0, at);
        assert_eq!((wrong, sectors[0], sectors[4]), (-EINVAL, i64::from(-EINVAL), sectors[0]));
        let mut z = zp_zone::default();
        assert_eq!(zp_report(disk, 1536, &raw mut z, 1, 0), 1);
        assert_eq!(z.wp, 1536, "nothing was written");
        assert_eq!(zp_append_each(disk, 0, list.as_ptr(), 1, 0, null_mut()), -EINVAL);
        assert_eq!(zp_append_each(disk, 0, list.as_ptr(), 1, 4, at), -EINVAL);
        assert_eq!(zp_append_each(disk, 0, null(), 1, 0, at), -EINVAL);
        zp_close(disk);
    }
}
