//! What goes wrong with the file of a durable disk, and what is said then.

use crate::one_command::run;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Instant;
use zoneplug_core::zone::Condition;
use zoneplug_core::{Bio, Command, Device, Error, ErrorKind, IoBuf, Op, Sector, Status, ZoneNo};
use zoneplug_host::DiskSpec;
use zoneplug_host::file::testing::CutStorage;
use zoneplug_host::file::{Access, CreateOptions, FileDisk, check, create};

struct Disk(PathBuf);

impl Disk {
    fn new(name: &str) -> Disk {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let path = dir.join(format!("zoneplug-err-{name}-{}.zbd", std::process::id()));
        let _ = std::fs::remove_file(&path);
        create(&path, &options(), false).unwrap();
        Disk(path)
    }

    fn damage(&self, at: u64, bytes: &[u8]) {
        let f = std::fs::OpenOptions::new().write(true).open(&self.0).unwrap();
        f.write_all_at(bytes, at).unwrap();
    }

    fn len(&self) -> u64 {
        std::fs::metadata(&self.0).unwrap().len()
    }

    fn open(&self) -> Result<std::sync::Arc<FileDisk>, Error> {
        FileDisk::open(&self.0, Access::ReadWrite)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn options() -> CreateOptions {
    CreateOptions {
        zones: Some(20),
        zone_size: Some(1 << 20),
        label: "test".into(),
        ..CreateOptions::default()
    }
}

fn write(disk: &FileDisk, zone: u32, at: u32, len: u32, byte: u8) -> Status {
    let mut buf = IoBuf::leaked(len * 512);
    buf.copy_from(0, &vec![byte; len as usize * 512]);
    let sector = disk.geometry().zone_start(ZoneNo(zone)).plus(u64::from(at));
    run(disk, Command::of(Bio::with_buf(Op::Write, sector, len, buf))).status
}

fn read(disk: &FileDisk, zone: u32, at: u32) -> u8 {
    let buf = IoBuf::leaked(4096);
    let sector = disk.geometry().zone_start(ZoneNo(zone)).plus(u64::from(at));
    let c = run(disk, Command::of(Bio::with_buf(Op::Read, sector, 8, buf)));
    assert_eq!(c.status, Status::Ok);
    let mut b = [0; 4096];
    c.bios[0].data().copy_to(0, &mut b);
    assert!(b.iter().all(|x| *x == b[0]));
    b[0]
}

fn report(disk: &FileDisk, zone: u32) -> (Condition, u64) {
    let start = disk.geometry().zone_start(ZoneNo(zone));
    let mut c = Command::without_data(Op::ReportZones, start, 0);
    c.report_max = 1;
    let z = run(disk, c).report[0];
    (z.cond, z.wp.0.wrapping_sub(start.0))
}

#[track_caller]
fn says(r: Result<impl std::fmt::Debug, Error>, kind: ErrorKind, what: &str) {
    let e = r.expect_err(what);
    assert!(e.to_string().contains(what), "{e}");
    assert_eq!(e.kind(), kind, "{e}");
    assert!(e.what_to_try().is_some(), "{e}");
}

#[test]
fn what_is_no_disk_says_why() {
    let d = Disk::new("no-disk");
    says(
        FileDisk::open(Path::new("/nowhere/x.zbd"), Access::ReadOnly),
        ErrorKind::NotFound,
        "cannot open",
    );
    says(create(&d.0, &options(), false), ErrorKind::Busy, "exists");
    let head = std::fs::read(&d.0).unwrap()[..512].to_vec();
    let end = d.len() - 4096;

    // One copy, the other, both.
    d.damage(100, b"x");
    assert!(d.open().unwrap().notices()[0].contains("first copy of the superblock is damaged"));
    d.damage(0, &head);
    d.damage(end + 100, b"x");
    assert!(d.open().unwrap().notices()[0].contains("second copy of the superblock is damaged"));
    d.damage(100, b"x");
    says(d.open(), ErrorKind::Io, "both copies of the superblock");
    d.damage(0, &head);
    d.damage(end, &head);

    let file = std::fs::OpenOptions::new().write(true).open(&d.0).unwrap();
    file.set_len(end / 2).unwrap();
    says(d.open(), ErrorKind::Io, "is truncated");
    file.set_len(0).unwrap();
    says(d.open(), ErrorKind::Invalid, "is not a zoneplug disk");
    file.write_all_at(&vec![7; 1 << 20], 0).unwrap();
    says(d.open(), ErrorKind::Invalid, "is not a zoneplug disk");
    create(&d.0, &options(), true).unwrap();
    assert_eq!(d.open().unwrap().identity().label, "test");
}

#[test]
fn a_newer_version_is_left_alone() {
    let d = Disk::new("newer");
    let mut head = std::fs::read(&d.0).unwrap()[..512].to_vec();
    head[20] = 9;
    let crc = crc32c::crc32c(&head[20..]);
    head[16..20].copy_from_slice(&crc.to_le_bytes());
    d.damage(0, &head);
    says(d.open(), ErrorKind::NotSupported, "has format version 9");
    says(check(&d.0, true), ErrorKind::NotSupported, "has format version 9");
}

#[test]
fn one_writer_at_a_time_and_any_readers() {
    let d = Disk::new("lock");
    let disk = d.open().unwrap();
    assert_eq!(write(&disk, 3, 0, 8, 7), Status::Ok);
    says(d.open(), ErrorKind::Busy, "is open for writing in another process");
    says(create(&d.0, &options(), true), ErrorKind::Busy, "is open for writing in another process");
    let reader = FileDisk::open(&d.0, Access::ReadOnly).unwrap();
    assert_eq!((report(&reader, 3), read(&reader, 3, 0)), ((Condition::Closed, 8), 7));
    assert_eq!(write(&disk, 3, 8, 8, 8), Status::Ok);
    assert_eq!((report(&reader, 3), read(&reader, 3, 8)), ((Condition::Closed, 16), 8));
    assert_eq!(write(&reader, 3, 16, 8, 9), Status::ReadOnlyDisk);
    let c = Command::without_data(Op::ZoneResetAll, Sector(0), 0);
    assert_eq!(run(&reader, c).status, Status::ReadOnlyDisk);
    drop((disk, reader));
    d.open().unwrap();
}

#[test]
fn everything_survives_a_restart() {
    let d = Disk::new("restart");
    let mut id = d.open().unwrap().identity();
    assert_eq!(id.opened, 1);
    let manage = |op, zone: u64| Command::without_data(op, Sector(zone * 2048), 2048);
    for turn in 0..3u32 {
        let disk = d.open().unwrap();
        id.opened += 1;
        assert_eq!(disk.identity(), id);
        let reader = FileDisk::open(&d.0, Access::ReadOnly).unwrap();
        assert_eq!((reader.identity(), reader.place()), (disk.identity(), disk.place()));
        assert_eq!(write(&disk, 1, turn * 8, 8, turn as u8 + 1), Status::Ok);
        assert_eq!(disk.write_count(ZoneNo(1)), u64::from(turn) + 1);
        for t in 0..=turn {
            assert_eq!(read(&disk, 1, t * 8), t as u8 + 1);
        }
        assert_eq!(report(&disk, 1), (Condition::ImpOpen, u64::from(turn + 1) * 8));
        match turn {
            0 => {
                assert_eq!(run(&disk, manage(Op::ZoneOpen, 1)).status, Status::Ok);
                assert_eq!(run(&disk, manage(Op::ZoneOpen, 2)).status, Status::Ok);
                assert_eq!(write(&disk, 5, 0, 8, 1), Status::Ok);
                assert_eq!(run(&disk, manage(Op::ZoneFinish, 5)).status, Status::Ok);
            }
            _ => {
                assert_eq!(report(&disk, 2).0, Condition::Empty);
                assert_eq!(report(&disk, 5).0, Condition::Full);
                assert_eq!((read(&disk, 5, 0), read(&disk, 5, 8)), (1, 0));
            }
        }
    }
    assert!(check(&d.0, false).unwrap().lines[1].contains("it was closed"));
}

#[test]
fn check_finds_and_repairs() {
    let d = Disk::new("check");
    {
        let disk = d.open().unwrap();
        for zone in 0..20 {
            assert_eq!(write(&disk, zone, 0, 8, 1), Status::Ok);
        }
    }
    let clean = check(&d.0, false).unwrap();
    assert_eq!((clean.zones, clean.problems, clean.repaired), (20, 0, 0), "{clean}");
    // The table has two groups; copy A is at 8192, B a page later.
    d.damage(8192 + 40, b"xx");
    d.damage(8192 + 4096 + 40, b"xx");
    d.damage(8192 + 512 + 40, b"xx");
    d.damage(200, b"x");
    {
        let disk = FileDisk::open(&d.0, Access::ReadOnly).unwrap();
        assert_eq!(report(&disk, 3).0, Condition::Offline);
        assert_eq!(report(&disk, 17), (Condition::Closed, 8));
        assert_eq!(disk.notices().len(), 3, "{:?}", disk.notices());
    }
    let found = check(&d.0, false).unwrap();
    assert_eq!((found.problems, found.repaired), (3, 0), "{found}");
    let repaired = check(&d.0, true).unwrap();
    assert_eq!((repaired.problems, repaired.repaired), (3, 3), "{repaired}");
    let again = check(&d.0, false).unwrap();
    assert_eq!(again.problems, 0, "{again}");
    let disk = d.open().unwrap();
    assert_eq!((report(&disk, 3).0, report(&disk, 17).1), (Condition::Empty, 8));
    assert_eq!(write(&disk, 3, 0, 8, 5), Status::Ok);
    assert_eq!((read(&disk, 3, 0), read(&disk, 17, 0)), (5, 1));
}

#[test]
fn a_full_file_system_fails_the_write_and_damages_nothing() {
    let storage = CutStorage::create(&options()).unwrap();
    let disk = storage.open(Access::ReadWrite).unwrap();
    assert_eq!(write(&disk, 1, 0, 16, 1), Status::Ok);
    storage.limit_room(Some(0));
    assert_eq!(write(&disk, 1, 16, 16, 2), Status::NoSpace);
    assert_eq!(write(&disk, 2, 0, 16, 2), Status::NoSpace);
    assert_eq!(report(&disk, 1).1, 16);
    assert_eq!(report(&disk, 2).1, 0);
    assert_eq!((read(&disk, 1, 8), read(&disk, 1, 16)), (1, 0));
    let flush = Command::without_data(Op::Flush, Sector(0), 0);
    assert_eq!(run(&disk, flush).status, Status::Ok);
    storage.limit_room(None);
    assert_eq!(write(&disk, 1, 16, 16, 3), Status::Ok);
    assert_eq!((read(&disk, 1, 8), read(&disk, 1, 16)), (1, 3));
}

/// What a failed sync left behind is unknown to the kernel too: no later flush may say that it is durable.
#[test]
fn after_a_flush_that_failed_none_succeeds() {
    let storage = CutStorage::create(&options()).unwrap();
    let disk = storage.open(Access::ReadWrite).unwrap();
    let flush = || run(&disk, Command::without_data(Op::Flush, Sector(0), 0)).status;
    assert_eq!((write(&disk, 1, 0, 16, 1), flush()), (Status::Ok, Status::Ok));
    assert_eq!(write(&disk, 1, 16, 16, 2), Status::Ok);
    storage.fail_syncs(true);
    assert_eq!(flush(), Status::Io);
    storage.fail_syncs(false);
    assert_eq!((flush(), flush()), (Status::Io, Status::Io));
    assert_eq!(write(&disk, 1, 32, 16, 3), Status::Io);
}

/// Zones as long as those of real disks.
fn of_long_zones(size: u64) -> CreateOptions {
    CreateOptions { size: Some(size), zone_size: Some(256 << 20), ..CreateOptions::default() }
}

#[test]
fn a_big_disk_is_made_at_once_and_is_sparse() {
    use std::os::unix::fs::MetadataExt;
    let d = Disk::new("big");
    let o = of_long_zones(20 << 30);
    let begin = Instant::now();
    create(&d.0, &o, true).unwrap();
    let took = begin.elapsed();
    assert!(took.as_millis() < 1000, "{took:?}");
    let used = std::fs::metadata(&d.0).unwrap().blocks() * 512;
    assert!(used < 4 << 20, "{used} bytes of the file are not holes");
    let disk = d.open().unwrap();
    assert_eq!(disk.geometry().nr_zones(), 80);
    assert_eq!(write(&disk, 7, 0, 2048, 1), Status::Ok);
    let reset =
        Command::without_data(Op::ZoneReset, disk.geometry().zone_start(ZoneNo(7)), 256 << 11);
    assert_eq!(run(&disk, reset).status, Status::Ok);
    drop(disk);
    let used = std::fs::metadata(&d.0).unwrap().blocks() * 512;
    assert!(used < 4 << 20, "a reset gives space back, but {used} bytes are used");
}

/// The file system below must hold what is written, and a little more.
#[test]
fn zones_with_little_data_take_little_space() {
    use std::os::unix::fs::MetadataExt;
    let d = Disk::new("little");
    create(&d.0, &of_long_zones(4 << 30), true).unwrap();
    let disk = d.open().unwrap();
    for zone in 0..16 {
        assert_eq!(write(&disk, zone, 0, 128, 1), Status::Ok);
    }
    let used = || std::fs::metadata(&d.0).unwrap().blocks() * 512;
    assert!(used() < 16 * (5 << 20), "{} bytes for 1 MiB of data", used());
    // A zone that goes on being written has at most as much again.
    let before = used();
    for at in 1..512 {
        assert_eq!(write(&disk, 3, at * 128, 128, 1), Status::Ok);
    }
    let more = used() - before;
    assert!(more >= 28 << 20, "{more} bytes for 32 MiB of data, of which 4 MiB were there");
    assert!(more <= 72 << 20, "{more} bytes for 32 MiB of data");
}

#[test]
fn a_disk_that_keeps_its_space_is_written_again() {
    use std::os::unix::fs::MetadataExt;
    let d = Disk::new("keeps");
    create(&d.0, &CreateOptions { preallocate: true, ..options() }, true).unwrap();
    let used = || std::fs::metadata(&d.0).unwrap().blocks() * 512;
    assert!(used() >= 20 << 20);
    let disk = d.open().unwrap();
    assert_eq!(write(&disk, 2, 0, 64, 1), Status::Ok);
    assert_eq!(
        run(&disk, Command::without_data(Op::ZoneReset, Sector(4096), 2048)).status,
        Status::Ok
    );
    assert_eq!(read(&disk, 2, 0), 0);
    assert_eq!(
        run(&disk, Command::without_data(Op::WriteZeroes, Sector(4096), 8)).status,
        Status::Ok
    );
    assert_eq!((read(&disk, 2, 0), read(&disk, 2, 8)), (0, 0));
    assert!(used() >= 20 << 20);
}

#[test]
fn a_path_is_a_specification() {
    let d = Disk::new("spec");
    let text = format!("{},mode=none,tags=4", d.0.display());
    let spec = DiskSpec::parse(&text).unwrap();
    assert_eq!((spec.device.geometry().nr_zones(), spec.tags), (20, Some(4)));
    drop(spec);
    let e = DiskSpec::parse(&format!("{},zones=4", d.0.display())).unwrap_err();
    assert!(e.to_string().contains("has no option zones"), "{e}");
    let spec = DiskSpec::parse(&format!("{},read-only=1", d.0.display())).unwrap();
    assert!(spec.device.limits().read_only);
}

/// More pieces of memory than one call takes: the kernel moves the first 1024, and the rest goes on from there.
#[test]
fn a_transfer_that_ends_early_goes_on_where_it_ended() {
    use zoneplug_buf::Segment;
    use zoneplug_host::file::Io;
    const PIECES: usize = 2048;
    let d = Disk::new("pieces");
    for (turn, io) in [Io::Auto, Io::Threads].into_iter().enumerate() {
        let disk = FileDisk::open_with(&d.0, Access::ReadWrite, io, false).unwrap();
        let zone = 4 + turn as u32;
        let start = disk.geometry().zone_start(ZoneNo(zone));
        // Every second sector of this memory, so that no piece joins the next.
        let mut memory = IoBuf::leaked((PIECES * 1024) as u32);
        // SAFETY: addresses for the list below.
        let base = unsafe { memory.segments(0, 512) }.next().unwrap().ptr;
        let list: Vec<Segment> =
            (0..PIECES).map(|i| Segment { ptr: base.wrapping_add(i * 1024), len: 512 }).collect();
        // SAFETY: memory and list outlive both commands, and each is over before they are read.
        let buf = || unsafe { IoBuf::from_segments(list.as_ptr(), (PIECES * 512) as u32) };
        let stamp = |i: usize| [(i % 251) as u8 + 1; 512];
        (0..PIECES).for_each(|i| memory.copy_from((i * 1024) as u32, &stamp(i)));
        let write = Command::of(Bio::with_buf(Op::Write, start, PIECES as u32, buf()));
        assert_eq!(run(&disk, write).status, Status::Ok);
        (0..PIECES).for_each(|i| memory.copy_from((i * 1024) as u32, &[0; 512]));
        let read = Command::of(Bio::with_buf(Op::Read, start, PIECES as u32, buf()));
        assert_eq!(run(&disk, read).status, Status::Ok);
        for i in 0..PIECES {
            let mut sector = [0; 512];
            memory.copy_to((i * 1024) as u32, &mut sector);
            assert_eq!(sector, stamp(i), "{}, sector {i}", disk.io());
        }
    }
}
