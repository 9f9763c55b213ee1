//! What a volume that is closed has made durable, and buffered writes of which a part could be written.

use super::{DISK, cnv, open, seq, size, volume_of};
use rustix::io::Errno;
use zoneplug_core::Sector;
use zoneplug_host::{BlockingDisk, HostedDisk};
use zoneplug_zonefs::WriteMode;

/// A disk with a cache. A write of zeroes cuts its power.
const CACHED: &str = "write-cache=1,fault=zeroes/cut";

fn cut(disk: &HostedDisk) {
    let _ = BlockingDisk::new(disk).unwrap().write_zeroes(Sector(0), 8);
    disk.revalidate().unwrap();
}

/// What was written is there after a power cut, in each kind of file, once the volume was closed without an error. No file
/// was synced.
#[test]
fn f11_a_volume_that_is_closed_is_durable() {
    let (disk, volume, _) = volume_of(&format!("{DISK},{CACHED}"), "", "buffered");
    volume.open_file(seq(&volume, 1), true).unwrap();
    volume.write(seq(&volume, 0), 0, &[1; 8192], WriteMode::DIRECT).unwrap();
    volume.write(seq(&volume, 1), 0, b"abc", WriteMode::BUFFERED).unwrap();
    volume.write(cnv(&volume, 0), 4096, &[2; 4096], WriteMode::DIRECT).unwrap();
    volume.close().unwrap();
    drop(volume);
    cut(&disk);
    let (volume, _) = open(&disk, "");
    assert_eq!(volume.read(seq(&volume, 0), 0, 9000).unwrap().as_slice(), [1; 8192]);
    assert_eq!(volume.read(seq(&volume, 1), 0, 4).unwrap().as_slice(), b"abc\0");
    assert_eq!(volume.read(cnv(&volume, 0), 4096, 4096).unwrap().as_slice(), [2; 4096]);
}

/// A file whose last bytes cannot be written keeps no other from being made durable when the volume is closed.
#[test]
fn f11_closing_makes_the_other_files_durable_after_an_error() {
    let spec = format!("{DISK},{CACHED}+write/active-limit/zone=3");
    let (disk, volume, _) = volume_of(&spec, "", "buffered");
    volume.write(seq(&volume, 0), 0, b"abc", WriteMode::BUFFERED).unwrap();
    volume.write(seq(&volume, 1), 0, &[1; 4096], WriteMode::DIRECT).unwrap();
    volume.write(seq(&volume, 2), 0, b"def", WriteMode::BUFFERED).unwrap();
    assert_eq!(volume.close(), Err(Errno::OVERFLOW), "the first file");
    drop(volume);
    cut(&disk);
    let (volume, _) = open(&disk, "");
    assert_eq!(size(&volume, seq(&volume, 0)), 0);
    assert_eq!(volume.read(seq(&volume, 1), 0, 9000).unwrap().as_slice(), [1; 4096]);
    assert_eq!(volume.read(seq(&volume, 2), 0, 4).unwrap().as_slice(), b"def\0");
}

/// A flush that fails at the end is an error of the close, although all files were written.
#[test]
fn f11_a_flush_that_fails_is_an_error_of_the_close() {
    let (_, volume, _) = volume_of(&format!("{DISK},write-cache=1,fault=flush/io/skip=1"), "", "");
    volume.write(seq(&volume, 0), 0, &[1; 4096], WriteMode::DIRECT).unwrap();
    assert_eq!(volume.close(), Err(Errno::IO));
}

/// A buffered write that several appends carry and of which some fail: what counts of it are the bytes that are in the
/// zone, without those of earlier writes that had waited for a block. It goes on where the file ends.
#[test]
fn f6_a_part_of_a_buffered_write_is_a_short_write() {
    let fault = "max-transfer=8K,zone_recovery=client,fault=write/io/zone=3/skip=2";
    let (_, volume, _) = volume_of(&format!("{DISK},{fault}"), "", "buffered,errors=repair");
    let file = seq(&volume, 0);
    let data: Vec<u8> = (0..30_000u32).map(|i| (i / 7) as u8).collect();
    assert_eq!(volume.write(file, 0, &data[..100], WriteMode::BUFFERED), Ok(100));
    let written = volume.write(file, 100, &data[100..], WriteMode::BUFFERED);
    assert_eq!(written, Ok(16384 - 100), "two appends of three");
    assert_eq!(size(&volume, file), 16384);
    let rest = &data[16384..];
    assert_eq!(volume.write(file, 16384, rest, WriteMode::BUFFERED), Ok(rest.len()));
    assert_eq!(volume.read(file, 0, 1 << 20).unwrap().as_slice(), data);
    volume.sync(file).unwrap();
    assert_eq!(volume.read(file, 0, 30_000).unwrap().as_slice(), data);
    assert_eq!(size(&volume, file), 32768);
}

/// A block that was filled up is in the zone although its write failed. The file is what the zone is, and the bytes are
/// not there twice.
#[test]
fn f9_a_tail_that_landed_with_an_error_is_not_written_again() {
    let spec = format!("{DISK},zone_recovery=client,fault=write/torn=4K/zone=3");
    let (_, volume, _) = volume_of(&spec, "", "buffered,errors=repair");
    let file = seq(&volume, 0);
    assert_eq!(volume.write(file, 0, b"abc", WriteMode::BUFFERED), Ok(3));
    assert_eq!(volume.sync(file), Err(Errno::IO));
    assert_eq!(size(&volume, file), 4096);
    volume.sync(file).unwrap();
    assert_eq!(size(&volume, file), 4096);
    assert_eq!(volume.read(file, 0, 4).unwrap().as_slice(), b"abc\0");
}
