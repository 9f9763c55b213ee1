//! The rules of zonefs, one test for each requirement, without a kernel that mounts.
#![allow(clippy::unwrap_used)]

mod errors;
mod lasts;
mod model;

use rustix::io::Errno;
use std::sync::{Arc, Mutex};
use zoneplug_core::zone::Condition;
use zoneplug_core::{Sector, ZoneNo};
use zoneplug_host::{BlockingDisk, HostedDisk};
use zoneplug_zonefs::{
    FileNo, Group, MountOptions, NoSuperBlock, SuperBlock, Volume, VolumeEvent, WriteMode,
};

/// The events of a volume.
#[derive(Clone, Default)]
struct Events(Arc<Mutex<Vec<VolumeEvent>>>);

impl Events {
    fn read_only(&self) -> usize {
        self.0.lock().unwrap().iter().filter(|e| **e == VolumeEvent::ReadOnly).count()
    }
}

/// A disk with a new volume on it, and the volume.
fn volume_of(spec: &str, format: &str, options: &str) -> (HostedDisk, Volume, Events) {
    let disk = HostedDisk::open_spec(spec).unwrap();
    Volume::format(&disk, &SuperBlock::of_options(format, 7, 8).unwrap()).unwrap();
    let (volume, events) = open(&disk, options);
    (disk, volume, events)
}

fn open(disk: &HostedDisk, options: &str) -> (Volume, Events) {
    let events = Events::default();
    let told = events.clone();
    let options = options.parse::<MountOptions>().unwrap();
    let observer = Box::new(move |e| told.0.lock().unwrap().push(e));
    (Volume::open(disk, options, observer).unwrap(), events)
}

fn seq(volume: &Volume, nth: u32) -> FileNo {
    volume.file(Group::Sequential, nth).unwrap()
}

fn cnv(volume: &Volume, nth: u32) -> FileNo {
    volume.file(Group::Conventional, nth).unwrap()
}

fn size(volume: &Volume, file: FileNo) -> u64 {
    volume.attributes(file).size
}

fn cond(disk: &HostedDisk, zone: u32) -> Condition {
    BlockingDisk::new(disk).unwrap().zone(ZoneNo(zone)).unwrap().cond
}

const DISK: &str = "mem,zones=8,zone-size=64K,zone-capacity=48K,conv=3";

#[test]
fn f1_zones_but_the_first_are_files() {
    let (disk, volume, _) = volume_of(DISK, "", "");
    assert_eq!((volume.files_of(Group::Conventional), volume.files_of(Group::Sequential)), (2, 5));
    let first = volume.attributes(cnv(&volume, 0));
    assert_eq!((first.ino, first.size, first.capacity), (1, 64 << 10, 64 << 10));
    let last = volume.attributes(seq(&volume, 4));
    assert_eq!((last.ino, last.size, last.capacity), (7, 0, 48 << 10));
    assert_eq!((last.uid, last.gid, last.mode), (7, 8, 0o640));
    assert_eq!(volume.lookup(Group::Sequential, "4"), Some(seq(&volume, 4)));
    assert!(volume.has(seq(&volume, 4)) && !volume.has(FileNo(7)), "the last has number 6");
    for name in ["5", "04", "+4", "-1", "", "x", "4294967296"] {
        assert_eq!(volume.lookup(Group::Sequential, name), None, "{name:?}");
    }
    // Without conventional zones the first sequential one has the super block, and is full as after mkzonefs.
    let (bare, volume, _) = volume_of("mem,zones=4,zone-size=64K", "", "");
    assert_eq!((volume.files_of(Group::Conventional), volume.files_of(Group::Sequential)), (0, 3));
    assert_eq!((cond(&bare, 0), cond(&disk, 0)), (Condition::Full, Condition::NotWp));
}

#[test]
fn f2_usage_counts_files_and_directories() {
    let (_, volume, _) = volume_of(DISK, "", "");
    let u = volume.usage();
    let blocks = (2 * 64 + 5 * 48) / 4;
    assert_eq!((u.block, u.blocks, u.free, u.files), (4096, blocks, 5 * 48 / 4, 9));
    volume.write(seq(&volume, 0), 0, &[1; 8192], WriteMode::DIRECT).unwrap();
    assert_eq!(volume.usage().free, 5 * 48 / 4 - 2);
}

#[test]
fn f3_conventional_files_are_written_anywhere() {
    let (_, volume, _) = volume_of(DISK, "", "");
    let file = cnv(&volume, 1);
    // Parts of blocks, over two blocks.
    assert_eq!(volume.write(file, 4000, &[5; 200], WriteMode::BUFFERED), Ok(200));
    assert_eq!(volume.write(file, 4050, &[6; 10], WriteMode::BUFFERED), Ok(10));
    let read = volume.read(file, 3999, 202).unwrap();
    let wanted: Vec<u8> = [&[0][..], &[5; 50], &[6; 10], &[5; 140], &[0]].concat();
    assert_eq!(read.as_slice(), wanted);
    // The neighbour is untouched.
    assert_eq!(volume.read(cnv(&volume, 0), 65536 - 8, 100).unwrap().as_slice(), [0; 8]);
    assert_eq!(volume.write(file, 4000, &[5; 200], WriteMode::DIRECT), Err(Errno::INVAL));
    assert_eq!(volume.write(file, 65536, &[5; 1], WriteMode::BUFFERED), Err(Errno::FBIG));
    assert_eq!(volume.write(file, 65535, &[5; 9], WriteMode::BUFFERED), Ok(1));
    let at_the_end = WriteMode { direct: false, append: true };
    assert_eq!(volume.write(file, 0, &[5; 1], at_the_end), Err(Errno::INVAL));
    assert_eq!(volume.truncate(file, 0), Err(Errno::PERM));
    assert_eq!(volume.truncate(file, 65536), Err(Errno::PERM));
    assert_eq!(size(&volume, file), 65536);
}

#[test]
fn f3_conventional_zones_that_follow_each_other_are_one_file() {
    let (disk, volume, _) = volume_of(DISK, "aggr_cnv", "");
    assert_eq!((volume.files_of(Group::Conventional), volume.files_of(Group::Sequential)), (1, 5));
    let file = cnv(&volume, 0);
    assert_eq!(size(&volume, file), 128 << 10);
    let data: Vec<u8> = (0..16384u32).map(|n| n as u8).collect();
    assert_eq!(volume.write(file, (64 << 10) - 8192, &data, WriteMode::DIRECT), Ok(16384));
    assert_eq!(volume.read(file, (64 << 10) - 8192, 16384).unwrap().as_slice(), data);
    let mut io = BlockingDisk::new(&disk).unwrap();
    assert_eq!(io.read(Sector(256), 16).unwrap().as_slice(), &data[8192..]);
}

#[test]
fn f4_sequential_files_need_o_direct() {
    let (_, volume, _) = volume_of(DISK, "", "");
    let file = seq(&volume, 0);
    assert_eq!(volume.write(file, 0, &[1; 4096], WriteMode::BUFFERED), Err(Errno::IO));
    assert_eq!(size(&volume, file), 0);
}

/// What is written without `O_DIRECT` is there at once, also what does not fill a block. A sync and the last close fill
/// the block up.
#[test]
fn f4_buffered_writes_are_collected_to_blocks() {
    let (disk, volume, _) = volume_of(DISK, "", "buffered");
    let file = seq(&volume, 0);
    volume.open_file(file, true).unwrap();
    volume.open_file(file, true).unwrap();
    let mut wanted = Vec::new();
    for n in 0..20u8 {
        let data = vec![n + 1; 700];
        assert_eq!(volume.write(file, wanted.len() as u64, &data, WriteMode::BUFFERED), Ok(700));
        wanted.extend(data);
        assert_eq!(size(&volume, file), wanted.len() as u64);
        assert_eq!(volume.read(file, 0, 1 << 20).unwrap().as_slice(), wanted);
        let from = wanted.len() - 900.min(wanted.len());
        assert_eq!(volume.read(file, from as u64, 1 << 20).unwrap().as_slice(), &wanted[from..]);
    }
    let held = || BlockingDisk::new(&disk).unwrap().zone(ZoneNo(3)).unwrap();
    assert_eq!(held().wp.0 - held().start.0, 24, "14000 bytes are three blocks and a part");
    // Elsewhere, or a direct write behind a part of a block.
    assert_eq!(volume.write(file, 12288, &[0; 10], WriteMode::BUFFERED), Err(Errno::INVAL));
    assert_eq!(volume.write(file, 14000, &[0; 4096], WriteMode::DIRECT), Err(Errno::INVAL));
    volume.close_file(file, true).unwrap();
    assert_eq!(size(&volume, file), 14000, "another writer is left");
    volume.sync(file).unwrap();
    wanted.resize(16384, 0);
    assert_eq!(volume.read(file, 0, 1 << 20).unwrap().as_slice(), wanted);
    assert_eq!(volume.write(file, 16384, b"end", WriteMode::BUFFERED), Ok(3));
    volume.close_file(file, true).unwrap();
    assert_eq!((size(&volume, file), held().wp.0 - held().start.0), (20480, 40));
    assert_eq!(volume.read(file, 16384, 5).unwrap().as_slice(), b"end\0\0");
}

/// A volume that is closed with files that are still open writes what waits.
#[test]
fn f4_closing_a_volume_writes_what_waits() {
    let (disk, volume, _) = volume_of(DISK, "", "buffered");
    volume.open_file(seq(&volume, 1), true).unwrap();
    volume.write(seq(&volume, 1), 0, b"abc", WriteMode::BUFFERED).unwrap();
    volume.close().unwrap();
    drop(volume);
    let (volume, _) = open(&disk, "");
    assert_eq!(volume.read(seq(&volume, 1), 0, 4).unwrap().as_slice(), b"abc\0");
    assert_eq!(size(&volume, seq(&volume, 1)), 4096);
}

#[test]
fn f5_sequential_files_are_written_at_their_end() {
    let (_, volume, _) = volume_of(DISK, "", "");
    let file = seq(&volume, 2);
    assert_eq!(volume.write(file, 4096, &[1; 4096], WriteMode::DIRECT), Err(Errno::INVAL));
    assert_eq!(volume.write(file, 0, &[1; 512], WriteMode::DIRECT), Err(Errno::INVAL));
    assert_eq!(volume.write(file, 0, &[1; 20480], WriteMode::DIRECT), Ok(20480));
    assert_eq!(volume.write(file, 0, &[2; 4096], WriteMode::DIRECT), Err(Errno::INVAL));
    let at_the_end = WriteMode { direct: true, append: true };
    assert_eq!(volume.write(file, 0, &[3; 4096], at_the_end), Ok(4096));
    assert_eq!(size(&volume, file), 24576);
    assert_eq!(volume.read(file, 20479, 2).unwrap().as_slice(), [1, 3]);
    // What does not fit is not written.
    assert_eq!(volume.write(file, 24576, &[4; 32768], WriteMode::DIRECT), Ok(24576));
    assert_eq!(volume.write(file, 49152, &[4; 4096], WriteMode::DIRECT), Err(Errno::FBIG));
    assert_eq!(volume.write(file, 49152, &[4; 4096], at_the_end), Err(Errno::FBIG));
    assert_eq!(volume.read(file, 49151, 100).unwrap().as_slice(), [4]);
    assert!(volume.read(file, 49152, 100).unwrap().as_slice().is_empty());
    assert!(volume.read(file, u64::MAX, u32::MAX).unwrap().as_slice().is_empty());
}

/// Writers of one file and of others at a time: each write is whole, and at a place of its own.
#[test]
fn f5_several_writers() {
    let (_, volume, _) = volume_of("mem,zones=6,zone-size=1M,reorder=3,latency=20us", "", "");
    let end = WriteMode { direct: true, append: true };
    std::thread::scope(|scope| {
        for n in 0..4u8 {
            let volume = &volume;
            scope.spawn(move || {
                for i in 0..20u8 {
                    let shared = vec![n * 32 + i + 1; 8192];
                    assert_eq!(volume.write(seq(volume, 0), 0, &shared, end), Ok(8192));
                    let own = seq(volume, 1 + u32::from(n));
                    assert_eq!(
                        volume.write(own, u64::from(i) * 4096, &[i; 4096], WriteMode::DIRECT),
                        Ok(4096)
                    );
                }
            });
        }
    });
    let all = volume.read(seq(&volume, 0), 0, 1 << 20).unwrap();
    assert_eq!(all.as_slice().len(), 80 * 8192);
    let mut seen: Vec<u8> = Vec::new();
    for write in all.as_slice().chunks(8192) {
        assert!(write.iter().all(|b| *b == write[0]), "a write in two pieces");
        seen.push(write[0]);
    }
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), 80);
}

#[test]
fn f7_truncating_resets_and_finishes() {
    let (disk, volume, _) = volume_of(DISK, "", "");
    let file = seq(&volume, 0);
    volume.write(file, 0, &[9; 8192], WriteMode::DIRECT).unwrap();
    for other in [1, 4096, 8192, 49151, 49153, 65536] {
        assert_eq!(volume.truncate(file, other), Err(Errno::PERM), "{other}");
    }
    volume.truncate(file, 0).unwrap();
    assert_eq!((size(&volume, file), cond(&disk, 3)), (0, Condition::Empty));
    volume.write(file, 0, &[9; 4096], WriteMode::DIRECT).unwrap();
    volume.truncate(file, 49152).unwrap();
    assert_eq!((size(&volume, file), cond(&disk, 3)), (49152, Condition::Full));
    assert_eq!(volume.read(file, 4095, 2).unwrap().as_slice(), [9, 0]);
    assert_eq!(volume.write(file, 49152, &[9; 4096], WriteMode::DIRECT), Err(Errno::FBIG));
}

/// What a read returns was the file at some moment, also while the file is truncated and written again.
#[test]
fn f7_a_read_beside_a_truncation_shows_no_other_data() {
    let (_, volume, _) = volume_of("mem,zones=3,zone-size=256K,latency=10us", "", "");
    let file = seq(&volume, 0);
    let over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !over.load(std::sync::atomic::Ordering::Relaxed) {
                    let data = volume.read(file, 0, 1 << 18).unwrap();
                    assert!(
                        data.as_slice().iter().all(|b| *b == 7),
                        "bytes that were never written"
                    );
                }
            });
        }
        for _ in 0..400 {
            volume.write(file, 0, &[7; 65536], WriteMode::DIRECT).unwrap();
            volume.truncate(file, 0).unwrap();
        }
        over.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

/// An append that lands elsewhere than at the end of the file is an error, because the zone is not what the file says.
/// With `errors=repair` the file then is what the zone is.
#[test]
fn f8_an_append_lands_at_the_end_of_the_file() {
    let (disk, volume, events) = volume_of(DISK, "", "errors=repair");
    let file = seq(&volume, 1);
    volume.write(file, 0, &[1; 4096], WriteMode::DIRECT).unwrap();
    // Something else appends to the zone.
    let mut other = BlockingDisk::new(&disk).unwrap();
    let start = other.zone(ZoneNo(4)).unwrap().start;
    other.append_from(start, &[2; 4096]).unwrap();
    assert_eq!(volume.write(file, 4096, &[3; 4096], WriteMode::DIRECT), Err(Errno::IO));
    assert_eq!(size(&volume, file), 12288);
    assert_eq!(volume.write(file, 12288, &[4; 4096], WriteMode::DIRECT), Ok(4096));
    assert_eq!(events.read_only(), 0);
}

/// F10. A zone that another program left open would count against the limit of open zones.
#[test]
fn f10_zones_that_were_left_open_are_closed() {
    let (disk, volume, _) = volume_of(DISK, "", "");
    drop(volume);
    let mut io = BlockingDisk::new(&disk).unwrap();
    for zone in [4, 5] {
        io.open_zones(Sector(zone * 128), 128).unwrap();
        assert_eq!(cond(&disk, zone as u32), Condition::ExpOpen);
    }
    io.write_from(Sector(5 * 128), &[1; 4096]).unwrap();
    let (volume, _) = open(&disk, "");
    assert_eq!((cond(&disk, 4), cond(&disk, 5)), (Condition::Empty, Condition::Closed));
    assert_eq!((size(&volume, seq(&volume, 1)), size(&volume, seq(&volume, 2))), (0, 4096));
}

#[test]
fn f10_explicit_open_opens_zones_within_the_limit() {
    let (disk, volume, _) = volume_of(&format!("{DISK},max-open=2"), "", "explicit-open");
    let (a, b, c) = (seq(&volume, 0), seq(&volume, 1), seq(&volume, 2));
    volume.open_file(a, false).unwrap();
    assert_eq!((volume.open_for_writing(), cond(&disk, 3)), (0, Condition::Empty));
    volume.open_file(a, true).unwrap();
    volume.open_file(a, true).unwrap();
    volume.open_file(b, true).unwrap();
    assert_eq!((volume.open_for_writing(), volume.active_files()), (2, 2));
    assert_eq!((cond(&disk, 3), cond(&disk, 4)), (Condition::ExpOpen, Condition::ExpOpen));
    assert_eq!(volume.open_file(c, true), Err(Errno::BUSY));
    volume.write(a, 0, &[1; 4096], WriteMode::DIRECT).unwrap();
    // Reset and open again, for the writers that are there.
    volume.truncate(a, 0).unwrap();
    assert_eq!(cond(&disk, 3), Condition::ExpOpen);
    volume.write(a, 0, &[1; 4096], WriteMode::DIRECT).unwrap();
    volume.close_file(a, true).unwrap();
    assert_eq!(cond(&disk, 3), Condition::ExpOpen);
    volume.close_file(a, true).unwrap();
    assert_eq!(cond(&disk, 3), Condition::Closed);
    volume.open_file(c, true).unwrap();
    // Nothing was written: closing it would leave an active zone.
    volume.close_file(b, true).unwrap();
    assert_eq!(cond(&disk, 4), Condition::Empty);
    volume.truncate(c, 48 << 10).unwrap();
    volume.close_file(c, true).unwrap();
    assert_eq!((cond(&disk, 5), volume.open_for_writing()), (Condition::Full, 0));
}

/// A zone that is closed without data counts as active on a real drive, so it is reset. An emulated one becomes empty either way, and
/// a trace shows the command.
#[test]
fn f10_a_zone_without_data_is_reset_and_not_closed() {
    let path = std::env::temp_dir().join(format!("zoneplug-f10-{}", std::process::id()));
    let (disk, volume, _) =
        volume_of(&format!("trace,file={}@{DISK},max-open=2", path.display()), "", "explicit-open");
    let commands = |op: &str| {
        let trace = std::fs::read_to_string(&path).unwrap();
        let fields = trace.lines().map(|line| line.split_whitespace().skip(5));
        fields.filter(|fields| fields.clone().take(2).eq(["D", op])).count()
    };
    let before = commands("ZR");
    volume.open_file(seq(&volume, 0), true).unwrap();
    volume.close_file(seq(&volume, 0), true).unwrap();
    let all = ["ZO", "ZR", "ZC"].map(commands);
    assert_eq!(all, [1, before + 1, 0], "{}", std::fs::read_to_string(&path).unwrap());
    drop((volume, disk));
    std::fs::remove_file(&path).unwrap();
}

/// The kernel need not tell of the last closes of a mount that ends, so the end gives back the zones that are open.
#[test]
fn f10_an_end_without_closes_gives_zones_back() {
    let (disk, volume, _) = volume_of(&format!("{DISK},max-open=2"), "", "explicit-open");
    let (a, b) = (seq(&volume, 0), seq(&volume, 1));
    volume.open_file(a, true).unwrap();
    volume.open_file(b, true).unwrap();
    volume.write(a, 0, &[1; 4096], WriteMode::DIRECT).unwrap();
    volume.close().unwrap();
    assert_eq!((cond(&disk, 3), cond(&disk, 4)), (Condition::Closed, Condition::Empty));
}

/// Without limits nothing is reserved; without the option no zone is opened explicitly.
#[test]
fn f10_explicit_open_needs_limits_and_the_option() {
    for (spec, options) in [(DISK.to_owned(), "explicit-open"), (format!("{DISK},max-open=1"), "")]
    {
        let (disk, volume, _) = volume_of(&spec, "", options);
        for n in 0..3 {
            volume.open_file(seq(&volume, n), true).unwrap();
        }
        assert_eq!((cond(&disk, 3), volume.open_for_writing()), (Condition::Empty, 3));
    }
}

/// What a sync has acknowledged is there after a power cut, and a file that can be written again.
#[test]
fn f11_a_sync_is_durable() {
    let spec = format!("{DISK},write-cache=1,fault=zeroes/cut");
    let (disk, volume, _) = volume_of(&spec, "", "");
    volume.write(seq(&volume, 0), 0, &[1; 8192], WriteMode::DIRECT).unwrap();
    volume.sync(seq(&volume, 0)).unwrap();
    drop(volume);
    // Any command of this kind cuts the power.
    let _ = BlockingDisk::new(&disk).unwrap().write_zeroes(Sector(0), 8);
    disk.revalidate().unwrap();
    let (volume, _) = open(&disk, "");
    assert_eq!(volume.read(seq(&volume, 0), 0, 8192).unwrap().as_slice(), [1; 8192]);
}

#[test]
fn f12_a_disk_without_a_known_super_block_is_refused() {
    let disk = HostedDisk::open_spec("mem,zones=4,zone-size=64K").unwrap();
    assert_eq!(Volume::super_block_of(&disk).unwrap(), Err(NoSuperBlock::Absent));
    let refused = Volume::open(&disk, MountOptions::default(), Box::new(|_| {})).unwrap_err();
    assert!(refused.to_string().contains("holds no zonefs"), "{refused}");
    let mut damaged = SuperBlock::default().encode();
    damaged[100] ^= 1;
    BlockingDisk::new(&disk).unwrap().write_from(Sector(0), &damaged).unwrap();
    assert_eq!(Volume::super_block_of(&disk).unwrap(), Err(NoSuperBlock::Checksum));
    // One zone is not enough, nor zones of which the super block would be several.
    for spec in ["mem,zones=1,zone-size=64K", "mem,zones=8,zone-size=2K,lba-size=512"] {
        let disk = HostedDisk::open_spec(spec).unwrap();
        assert!(Volume::format(&disk, &SuperBlock::default()).is_err(), "{spec}");
        assert!(Volume::open(&disk, MountOptions::default(), Box::new(|_| {})).is_err(), "{spec}");
    }
}

/// A block that is larger than the super block, and blocks of one sector.
#[test]
fn f12_any_block_size() {
    for (block, whole) in [("16K", 16384), ("512", 512)] {
        let spec = format!("mem,zones=4,zone-size=64K,lba-size={block}");
        let (_, volume, _) = volume_of(&spec, "perm=604,label=a b", "");
        assert_eq!(
            (volume.super_block().mode, volume.super_block().label.as_str()),
            (0o604, "a b")
        );
        let file = seq(&volume, 0);
        assert_eq!(volume.write(file, 0, &[1; 256], WriteMode::DIRECT), Err(Errno::INVAL));
        assert_eq!(volume.write(file, 0, &vec![1; whole], WriteMode::DIRECT), Ok(whole));
    }
}
