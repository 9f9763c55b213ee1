//! What happens to a file and its volume after errors of the disk.

use super::{DISK, cnv, cond, open, seq, size, volume_of};
use rustix::io::Errno;
use zoneplug_core::zone::Condition;
use zoneplug_zonefs::{Volume, WriteMode};

/// Size, permissions, and whether the volume can be written after a write of 8 KiB of which 4 KiB were written failed.
fn after_a_torn_write(options: &str) -> (Volume, u64, u32, bool, usize) {
    let spec = format!("{DISK},zone_recovery=client,fault=write/torn=4K/zone=3/skip=1");
    let (_, volume, events) = volume_of(&spec, "", options);
    let file = seq(&volume, 0);
    volume.write(file, 0, &[1; 4096], WriteMode::DIRECT).unwrap();
    assert_eq!(volume.write(file, 4096, &[2; 8192], WriteMode::DIRECT), Err(Errno::IO));
    let a = volume.attributes(file);
    let read_only = volume.is_read_only();
    (volume, a.size, a.mode, read_only, events.read_only())
}

/// The volume can only be read, and what was not acknowledged is not shown.
#[test]
fn f9_errors_remount_ro() {
    let (volume, size, mode, read_only, told) = after_a_torn_write("");
    assert_eq!((size, mode, read_only, told), (4096, 0o640, true, 1));
    let file = seq(&volume, 0);
    assert_eq!(volume.write(file, 4096, &[1; 4096], WriteMode::DIRECT), Err(Errno::ROFS));
    assert_eq!(volume.write(cnv(&volume, 0), 0, &[1; 4096], WriteMode::DIRECT), Err(Errno::ROFS));
    assert_eq!(volume.truncate(file, 0), Err(Errno::ROFS));
    assert_eq!(volume.open_file(seq(&volume, 1), true), Err(Errno::ROFS));
    assert_eq!(volume.read(file, 0, 8192).unwrap().as_slice(), [1; 4096]);
}

#[test]
fn f9_errors_zone_ro() {
    let (volume, size, mode, read_only, told) = after_a_torn_write("errors=zone-ro");
    assert_eq!((size, mode, read_only, told), (4096, 0o440, false, 0));
    let file = seq(&volume, 0);
    assert_eq!(volume.write(file, 4096, &[1; 4096], WriteMode::DIRECT), Err(Errno::PERM));
    assert_eq!(volume.truncate(file, 0), Err(Errno::PERM));
    assert_eq!(volume.set_owner(file, Some(0o666), None, None), Err(Errno::PERM));
    assert_eq!(volume.read(file, 0, 8192).unwrap().as_slice(), [1; 4096]);
    assert_eq!(volume.write(seq(&volume, 1), 0, &[1; 4096], WriteMode::DIRECT), Ok(4096));
}

#[test]
fn f9_errors_zone_offline() {
    let (volume, size, mode, read_only, _) = after_a_torn_write("errors=zone-offline");
    assert_eq!((size, mode, read_only), (0, 0, false));
    let file = seq(&volume, 0);
    assert_eq!(volume.read(file, 0, 8192).unwrap_err(), Errno::PERM);
    assert_eq!(volume.sync(file), Err(Errno::PERM));
    assert_eq!(volume.open_file(file, false), Err(Errno::PERM));
    assert_eq!(volume.write(seq(&volume, 1), 0, &[1; 4096], WriteMode::DIRECT), Ok(4096));
}

/// A file of several zones is what the worst of them allows.
#[test]
fn f9_each_zone_of_a_file_is_looked_at() {
    let spec = format!("{DISK},fault=write/readonly/zone=2");
    let (_, volume, _) = volume_of(&spec, "aggr_cnv", "errors=repair");
    let file = cnv(&volume, 0);
    assert_eq!(volume.write(file, 0, &[1; 4096], WriteMode::DIRECT), Ok(4096));
    assert!(volume.write(file, 64 << 10, &[1; 4096], WriteMode::DIRECT).is_err());
    assert_eq!(volume.attributes(file).mode, 0o440);
    assert_eq!(volume.write(file, 0, &[1; 4096], WriteMode::DIRECT), Err(Errno::PERM));
    assert_eq!(volume.read(file, 0, 4096).unwrap().as_slice(), [1; 4096]);
}

/// The file is what the zone is, and goes on.
#[test]
fn f9_errors_repair() {
    let (volume, size, mode, read_only, _) = after_a_torn_write("errors=repair");
    assert_eq!((size, mode, read_only), (8192, 0o640, false));
    let file = seq(&volume, 0);
    assert_eq!(volume.write(file, 8192, &[3; 4096], WriteMode::DIRECT), Ok(4096));
    let read = volume.read(file, 0, 12288).unwrap();
    assert_eq!((read.as_slice()[4095], read.as_slice()[4096], read.as_slice()[8192]), (1, 2, 3));
    volume.truncate(file, 0).unwrap();
}

/// A part of a write that several appends carry is acknowledged, and counts.
#[test]
fn f6_a_part_of_a_write_is_a_short_write() {
    let spec = format!("{DISK},max-transfer=8K,zone_recovery=client,fault=write/io/zone=3/skip=2");
    let (_, volume, _) = volume_of(&spec, "", "errors=repair");
    let file = seq(&volume, 0);
    assert_eq!(volume.write(file, 0, &[1; 40960], WriteMode::DIRECT), Ok(16384));
    assert_eq!(size(&volume, file), 16384);
    assert_eq!(volume.write(file, 16384, &[1; 4096], WriteMode::DIRECT), Ok(4096));
}

/// A zone that the disk makes read-only or offline stops its file, whatever `errors=` says.
#[test]
fn f9_bad_zones_stop_their_files() {
    for (fault, mode, kept, read) in
        [("readonly", 0o440, 4096, Ok(4096)), ("offline", 0, 0, Err(Errno::PERM))]
    {
        let spec = format!("{DISK},fault=write/{fault}/zone=3/skip=1");
        let (disk, volume, _) = volume_of(&spec, "", "errors=repair");
        let file = seq(&volume, 0);
        volume.write(file, 0, &[1; 4096], WriteMode::DIRECT).unwrap();
        assert_eq!(
            volume.write(file, 4096, &[2; 4096], WriteMode::DIRECT),
            Err(Errno::IO),
            "{fault}"
        );
        let a = volume.attributes(file);
        assert_eq!((a.size, a.mode), (kept, mode), "{fault}");
        assert_eq!(volume.read(file, 0, 8192).map(|d| d.as_slice().len()), read, "{fault}");
        assert_eq!(volume.truncate(file, 0), Err(Errno::PERM), "{fault}");
        // Mounted again, what a read-only zone holds is not known.
        drop(volume);
        let (volume, _) = open(&disk, "");
        let a = volume.attributes(seq(&volume, 0));
        assert_eq!((a.size, a.mode), (0, 0), "{fault}");
        assert_eq!(volume.open_file(seq(&volume, 0), true), Err(Errno::PERM), "{fault}");
    }
}

/// A read that fails says so, and changes nothing if the zone is as it was.
#[test]
fn f9_a_failed_read_changes_nothing() {
    let (_, volume, events) = volume_of(&format!("{DISK},fault=read/medium/zone=3"), "", "");
    let file = seq(&volume, 0);
    volume.write(file, 0, &[1; 4096], WriteMode::DIRECT).unwrap();
    assert_eq!(volume.read(file, 0, 4096).unwrap_err(), Errno::IO);
    assert_eq!((size(&volume, file), events.read_only()), (4096, 0));
    assert_eq!(volume.read(file, 0, 4096).unwrap().as_slice(), [1; 4096]);
}

/// A limit changes nothing either: another zone is finished, and the write succeeds.
#[test]
fn f9_a_limit_is_no_damage() {
    let (_, volume, events) = volume_of(&format!("{DISK},max-open=1,max-active=1"), "", "");
    volume.write(seq(&volume, 0), 0, &[1; 4096], WriteMode::DIRECT).unwrap();
    let refused = volume.write(seq(&volume, 1), 0, &[1; 4096], WriteMode::DIRECT).unwrap_err();
    assert!([Errno::OVERFLOW, Errno::TOOMANYREFS].contains(&refused), "{refused}");
    assert_eq!((size(&volume, seq(&volume, 1)), events.read_only()), (0, 0));
    volume.truncate(seq(&volume, 0), 48 << 10).unwrap();
    assert_eq!(volume.write(seq(&volume, 1), 0, &[1; 4096], WriteMode::DIRECT), Ok(4096));
}

/// Bytes that wait for a whole block survive a failed write that changed nothing, and a failed sync says so.
#[test]
fn f9_what_waits_for_a_block_is_not_lost_by_a_failed_write() {
    let (_, volume, _) =
        volume_of(&format!("{DISK},fault=write/active-limit/zone=3/count=2"), "", "buffered");
    let file = seq(&volume, 0);
    assert_eq!(volume.write(file, 0, b"abc", WriteMode::BUFFERED), Ok(3));
    assert_eq!(volume.write(file, 3, &[7; 8192], WriteMode::BUFFERED), Err(Errno::OVERFLOW));
    assert_eq!(volume.sync(file), Err(Errno::OVERFLOW));
    assert_eq!(volume.read(file, 0, 100).unwrap().as_slice(), b"abc");
    assert_eq!(volume.write(file, 3, b"def", WriteMode::BUFFERED), Ok(3));
    volume.sync(file).unwrap();
    assert_eq!(volume.read(file, 0, 7).unwrap().as_slice(), b"abcdef\0");
}

/// A disk that is opened for reading is mounted so.
#[test]
fn f9_a_read_only_mount_writes_nothing() {
    let (disk, volume, _) = volume_of(DISK, "", "");
    volume.write(seq(&volume, 0), 0, &[1; 4096], WriteMode::DIRECT).unwrap();
    drop(volume);
    let (volume, _) = open(&disk, "ro");
    assert!(volume.is_read_only());
    assert_eq!(
        volume.write(seq(&volume, 0), 4096, &[1; 4096], WriteMode::DIRECT),
        Err(Errno::ROFS)
    );
    assert_eq!(volume.open_file(seq(&volume, 0), true), Err(Errno::ROFS));
    assert_eq!(volume.read(seq(&volume, 0), 0, 4096).unwrap().as_slice(), [1; 4096]);
}

/// A reset that fails takes nothing away, also not what waits for a whole block.
#[test]
fn f9_a_failed_truncate_keeps_the_file() {
    let (_, volume, _) = volume_of(&format!("{DISK},fault=reset/io/zone=3"), "", "buffered");
    let file = seq(&volume, 0);
    assert_eq!(volume.write(file, 0, &[7; 5000], WriteMode::BUFFERED), Ok(5000));
    assert_eq!(volume.truncate(file, 0), Err(Errno::IO));
    assert_eq!(volume.read(file, 0, 9999).unwrap().as_slice(), [7; 5000]);
    volume.truncate(file, 0).unwrap();
    assert_eq!(size(&volume, file), 0);
}

/// F9, F10. A zone that was opened before a write failed, and can still be written, is closed with its file.
#[test]
fn f9_a_zone_that_was_repaired_is_closed_with_its_file() {
    let spec = format!("{DISK},max-open=2,zone_recovery=client,fault=write/torn=4K/zone=3/skip=1");
    let (disk, volume, _) = volume_of(&spec, "", "explicit-open,errors=repair");
    let file = seq(&volume, 0);
    volume.open_file(file, true).unwrap();
    volume.write(file, 0, &[1; 4096], WriteMode::DIRECT).unwrap();
    assert_eq!(volume.write(file, 4096, &[2; 8192], WriteMode::DIRECT), Err(Errno::IO));
    assert_eq!(cond(&disk, 3), Condition::ExpOpen);
    volume.close_file(file, true).unwrap();
    assert_eq!(cond(&disk, 3), Condition::Closed);
}
