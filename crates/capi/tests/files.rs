//! Disks in files: made, checked, copied; and the structures of options.

#![allow(clippy::unwrap_used)]

mod common;

use common::{Directory, hint, message, open, property, reason, small};
use libc::{E2BIG, EBUSY, EINVAL, EOPNOTSUPP, c_char, c_void};
use std::ffi::{CStr, CString};
use std::mem::zeroed;
use std::ptr::{null, null_mut};
use zoneplug_capi::*;

fn text(of: &[c_char]) -> String {
    // SAFETY: ends with a zero byte.
    unsafe { CStr::from_ptr(of.as_ptr()) }.to_str().unwrap().to_owned()
}

/// Keeps each line in the `Vec<String>` that `arg` points to.
unsafe extern "C" fn keep(line: *const c_char, arg: *mut c_void) {
    // SAFETY: a string, and the list of the test.
    let (line, all) = unsafe { (CStr::from_ptr(line), &mut *arg.cast::<Vec<String>>()) };
    all.push(line.to_str().unwrap().to_owned());
}

#[test]
fn a_disk_is_made_checked_and_copied() {
    let directory = Directory::new("files");
    let path = directory.path("disk.zbd");
    let copy = directory.path("copy.zbd");
    let options = zp_create_options {
        zone_capacity: 768 << 10,
        last_zone_size: 512 << 10,
        last_zone_capacity: 256 << 10,
        lba_size: 512,
        granularity: 4096,
        zone_append_max: 32 << 10,
        conv: 2,
        max_open: 3,
        max_active: 4,
        label: c"scratch".as_ptr(),
        ..small()
    };
    // SAFETY: plain data.
    let mut made: zp_identity = unsafe { zeroed() };
    // SAFETY: strings, options and places.
    unsafe {
        assert_eq!(zp_create(path.as_ptr(), &raw const options, &raw mut made), 0, "{}", message());
        assert_eq!(zp_create(path.as_ptr(), &raw const options, null_mut()), -EBUSY);
        assert!(message().ends_with("disk.zbd exists"), "{}", message());
        assert_eq!(reason().as_deref(), Some("Exists"));
        assert!(hint().is_some_and(|h| h.contains("'force'")), "{:?}", hint());
    }
    assert_eq!((text(&made.uuid).len(), &*text(&made.label)), (36, "scratch"));
    assert!(made.created_unix_s > 1_700_000_000 && made.format_version == 1);

    let disk = open(path.to_str().unwrap());
    let of = |name| property(disk, name);
    assert_eq!((of(c"nr_zones"), of(c"zone_sectors"), of(c"sectors")), (8, 2048, 7 * 2048 + 1024));
    assert_eq!((of(c"zone_capacity_sectors"), of(c"nr_conventional_zones")), (1536, 2));
    assert_eq!((of(c"max_open_zones"), of(c"max_active_zones")), (3, 4));
    assert_eq!((of(c"logical_block_sectors"), of(c"zone_append_max_sectors")), (1, 64));
    assert_eq!(of(c"write_granularity_sectors"), 8);
    // SAFETY: numbers, and room for a zone of an open disk.
    let last = unsafe {
        let mut zone: zp_zone = zeroed();
        assert_eq!(zp_report(disk, of(c"sectors") - 1, &raw mut zone, 1, 0), 1);
        zone
    };
    assert_eq!((last.start, last.len, last.capacity), (7 * 2048, 1024, 512));
    let data = [5u8; 4096];
    // SAFETY: plain data.
    let mut snapshot: zp_snapshot_report = unsafe { zeroed() };
    let (mut lines, mut back) = (Vec::<String>::new(), [0u8; 4096]);
    let arg = (&raw mut lines).cast();
    // SAFETY: an open disk, strings, places, and memory of these lengths.
    unsafe {
        assert_eq!(zp_append(disk, 4096, data.as_ptr().cast(), 4096, 0), 4096);
        let to = copy.as_ptr();
        assert_eq!(
            zp_snapshot(disk, to, 0, &raw mut snapshot, Some(keep), arg),
            0,
            "{}",
            message()
        );
        assert!(lines.is_empty(), "{lines:?}");
        assert_eq!(zp_snapshot(disk, to, 0, null_mut(), None, null_mut()), -EBUSY);
        assert_eq!(zp_snapshot(disk, to, 2, null_mut(), None, null_mut()), -EINVAL);
        assert_eq!(zp_check(path.as_ptr(), ZP_CHECK_REPAIR, null_mut(), None, null_mut()), -EBUSY);
        zp_close(disk);
        let other = text(&snapshot.identity.uuid);
        assert!(other != text(&made.uuid) && text(&snapshot.identity.label) == "scratch");

        let disk = open(copy.to_str().unwrap());
        assert_eq!(zp_read(disk, 4096, back.as_mut_ptr().cast(), 4096), 0);
        assert_eq!(back, data);
        zp_close(disk);

        let mut own: zp_identity = zeroed();
        assert_eq!(zp_new_uuid(copy.as_ptr(), &raw mut own), 0, "{}", message());
        assert_ne!(text(&own.uuid), other);
        let mut counts = zp_check_report::default();
        let sound = zp_check(copy.as_ptr(), 0, &raw mut counts, Some(keep), arg);
        assert_eq!((sound, counts.zones, counts.problems), (0, 8, 0), "{lines:?}");
    }
}

/// A check returns the problems that are left, and says each.
#[test]
fn a_damaged_disk_is_repaired() {
    let directory = Directory::new("damaged");
    let path = directory.path("disk.zbd");
    let options = small();
    // SAFETY: strings, options and places.
    unsafe {
        assert_eq!(zp_create(path.as_ptr(), &raw const options, null_mut()), 0, "{}", message());
        let name = path.to_str().unwrap();
        let mut bytes = std::fs::read(name).unwrap();
        bytes[100] ^= 1;
        std::fs::write(name, bytes).unwrap();
        let mut lines = Vec::<String>::new();
        let (arg, mut counts) = ((&raw mut lines).cast(), zp_check_report::default());
        assert_eq!(zp_check(path.as_ptr(), 0, &raw mut counts, Some(keep), arg), 1);
        assert!(lines.iter().any(|line| line.contains("superblock")), "{lines:?}");
        assert_eq!((counts.problems, counts.repaired), (1, 0));
        let repair = zp_check(path.as_ptr(), ZP_CHECK_REPAIR, &raw mut counts, None, null_mut());
        assert_eq!((repair, counts.problems, counts.repaired), (0, 1, 1));
        assert_eq!(zp_check(path.as_ptr(), 0, null_mut(), None, null_mut()), 0);
        std::fs::write(name, "no disk").unwrap();
        assert_eq!(zp_check(path.as_ptr(), 0, null_mut(), None, null_mut()), -EINVAL);
        assert_eq!(zp_check(path.as_ptr(), 2, null_mut(), None, null_mut()), -EINVAL);
        assert_eq!(zp_check(null(), 0, null_mut(), None, null_mut()), -EINVAL);
        assert_eq!(zp_new_uuid(null(), null_mut()), -EINVAL);
    }
}

/// A program of another version gives other structures: a shorter one, or a longer one whose new fields are zero.
#[test]
fn options_have_the_size_that_their_program_knows() {
    let directory = Directory::new("options");
    let path = directory.path("disk.zbd");
    let make = |options: *const zp_create_options| {
        // SAFETY: a string, and options of their size.
        let made = unsafe { zp_create(path.as_ptr(), options, null_mut()) };
        let _ = std::fs::remove_file(path.to_str().unwrap());
        made
    };
    let full = small();
    assert_eq!(make(&raw const full), 0, "{}", message());
    // Up to the zone size.
    let short = zp_create_options { struct_size: 32, conv: u32::MAX, ..full };
    assert_eq!(make(&raw const short), 0, "{}", message());
    #[repr(C)]
    struct Long(zp_create_options, u64);
    let mut long = Long(zp_create_options { struct_size: size_of::<Long>(), ..full }, 0);
    assert_eq!(make((&raw const long).cast()), 0, "{}", message());
    long.1 = 1;
    assert_eq!(make((&raw const long).cast()), -E2BIG);
    assert_eq!(hint().unwrap(), "a newer libzoneplug");
    for size in [0, 7, 4097] {
        let wrong = zp_create_options { struct_size: size, ..full };
        assert_eq!(make(&raw const wrong), -EINVAL);
        assert_eq!(message(), format!("struct_size is {size}"));
        assert_eq!(hint().unwrap(), "sizeof(struct zp_create_options)");
    }
    assert_eq!(make(null()), -EINVAL, "a disk without a size");
    let both = zp_create_options { size: 8 << 20, ..full };
    assert_eq!(make(&raw const both), -EINVAL);
    let unknown = zp_create_options { flags: 4, ..full };
    assert_eq!(make(&raw const unknown), -EINVAL);
    let odd = zp_create_options { label: c"\xff".as_ptr(), ..full };
    assert_eq!(make(&raw const odd), -EINVAL);
    assert_eq!(message(), "the label is not UTF-8");
}

#[test]
fn a_disk_that_is_no_file_has_no_snapshot() {
    let disk = open("mem,zones=2,zone-size=1M");
    let to = CString::new("/nowhere/copy.zbd").unwrap();
    // SAFETY: an open disk and strings.
    unsafe {
        assert_eq!(zp_snapshot(disk, to.as_ptr(), 0, null_mut(), None, null_mut()), -EOPNOTSUPP);
        assert_eq!(zp_snapshot(disk, null(), 0, null_mut(), None, null_mut()), -EINVAL);
        zp_close(disk);
    }
}
