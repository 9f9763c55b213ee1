//! Files of open disks that another program writes over or cuts.

use crate::one_command::run;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use zoneplug_core::{Bio, Command, IoBuf, Op, Sector, Status};
use zoneplug_host::file::{Access, CreateOptions, FileDisk, create};

const ZONE: u32 = 128;

/// A disk with a conventional zone, and a backup of it.
struct DiskWithBackup(PathBuf);

impl DiskWithBackup {
    fn new(name: &str) -> DiskWithBackup {
        let name = format!("zoneplug-changed-{name}-{}", std::process::id());
        let place = DiskWithBackup(std::env::temp_dir().join(name));
        let _ = std::fs::remove_dir_all(&place.0);
        std::fs::create_dir_all(&place.0).unwrap();
        let options = CreateOptions {
            zones: Some(4),
            zone_size: Some(u64::from(ZONE) << 9),
            conv: 1,
            ..CreateOptions::default()
        };
        create(&place.disk(), &options, false).unwrap();
        // The backup has data, so that it is not a new disk.
        let disk = place.open();
        assert_eq!([write(&disk, 1, 0), flush(&disk)], [Status::Ok; 2]);
        drop(disk);
        std::fs::copy(place.disk(), place.0.join("backup")).unwrap();
        place
    }

    fn disk(&self) -> PathBuf {
        self.0.join("disk")
    }

    fn open(&self) -> Arc<FileDisk> {
        FileDisk::open(&self.disk(), Access::ReadWrite).unwrap()
    }

    fn restore(&self) {
        std::fs::copy(self.0.join("backup"), self.disk()).unwrap();
    }

    fn is_restored(&self) -> bool {
        std::fs::read(self.disk()).unwrap() == std::fs::read(self.0.join("backup")).unwrap()
    }
}

impl Drop for DiskWithBackup {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn io(disk: &FileDisk, op: Op, zone: u32, at: u32) -> Status {
    let sector = Sector(u64::from(zone * ZONE + at));
    run(disk, Command::of(Bio::with_buf(op, sector, 8, IoBuf::leaked(4096)))).status
}

fn write(disk: &FileDisk, zone: u32, at: u32) -> Status {
    io(disk, Op::Write, zone, at)
}

fn flush(disk: &FileDisk) -> Status {
    run(disk, Command::without_data(Op::Flush, Sector(0), 0)).status
}

/// U17. A damaged first superblock is no change by another program: the disk was opened by its second one, and goes on.
#[test]
fn u17_a_disk_whose_first_superblock_is_damaged_can_be_written() {
    let place = DiskWithBackup::new("damaged");
    let file = std::fs::File::options().write(true).open(place.disk()).unwrap();
    file.write_all_at(b"?", 100).unwrap();
    let disk = place.open();
    assert_eq!([write(&disk, 1, 8), flush(&disk)], [Status::Ok; 2]);
    disk.check_file().unwrap();
    // Another copy there is a change.
    place.restore();
    assert_eq!(flush(&disk), Status::Ok, "nothing is to be made durable");
    assert_eq!([write(&disk, 1, 16), flush(&disk)], [Status::Ok, Status::Io]);
    assert!(disk.changed().is_some());
}

/// U17. A flush notices it. From then on everything fails, and the file stays what the other program made of it.
#[test]
fn u17_a_flush_into_another_disk_fails_and_everything_after_it() {
    let place = DiskWithBackup::new("flush");
    let disk = place.open();
    assert_eq!([write(&disk, 1, 8), flush(&disk)], [Status::Ok; 2]);
    assert!(disk.check_file().is_ok());
    place.restore();
    // The write does not look: it is in neither disk's data, because a zone of the backup ends before it.
    assert_eq!(write(&disk, 1, 16), Status::Ok);
    assert!(disk.changed().is_none());
    assert_eq!(flush(&disk), Status::Io);
    let said = disk.changed().unwrap().to_string();
    assert!(said.contains("this file was overwritten"), "{said}");
    place.restore();
    for zone in 0..3 {
        let all = [Op::Read, Op::Write, Op::WriteZeroes].map(|op| io(&disk, op, zone, 0));
        assert_eq!(all, [Status::Io; 3], "zone {zone}");
    }
    let whole = |op, zone: u32| Command::without_data(op, Sector(u64::from(zone * ZONE)), ZONE);
    for c in [
        whole(Op::ZoneReset, 1),
        whole(Op::ZoneFinish, 2),
        whole(Op::Discard, 0),
        Command::without_data(Op::ZoneResetAll, Sector(0), 0),
        Command::without_data(Op::Flush, Sector(0), 0),
    ] {
        let op = c.op;
        assert_eq!(run(&disk, c).status, Status::Io, "{op:?}");
    }
    drop(disk);
    assert!(place.is_restored(), "the other disk is written to");
    let again = place.open();
    assert_eq!(write(&again, 1, 8), Status::Ok, "the backup goes on where it ended");
}

/// U17. Whatever would write to the file first looks at it.
#[test]
fn u17_nothing_is_written_into_another_disk_at_the_end_or_by_a_reset() {
    type Act = fn(&FileDisk) -> Status;
    let acts: [(&str, Act); 4] = [
        ("close", |_| Status::Io),
        ("reset", |disk| {
            run(disk, Command::without_data(Op::ZoneReset, Sector(ZONE.into()), ZONE)).status
        }),
        ("finish", |disk| {
            run(disk, Command::without_data(Op::ZoneFinish, Sector(ZONE.into()), ZONE)).status
        }),
        ("check", |disk| disk.check_file().map_or(Status::Io, |()| Status::Ok)),
    ];
    for (name, act) in acts {
        let place = DiskWithBackup::new(name);
        let disk = place.open();
        assert_eq!(write(&disk, 1, 8), Status::Ok);
        place.restore();
        assert_eq!(act(&disk), Status::Io, "{name}");
        drop(disk);
        assert!(place.is_restored(), "{name}: the other disk is written to");
    }
}

/// U17. An end has its session to write although nothing else is.
#[test]
fn u17_the_end_of_a_disk_without_changes_looks_too() {
    let place = DiskWithBackup::new("idle");
    let disk = place.open();
    place.restore();
    drop(disk);
    assert!(place.is_restored(), "the other disk is closed");
}

/// U17. A read of a part that was cut off fails; it does not return zeroes.
#[test]
fn u17_a_file_that_was_cut_is_not_read_as_zeroes() {
    let place = DiskWithBackup::new("cut");
    let disk = place.open();
    assert_eq!([write(&disk, 1, 8), flush(&disk)], [Status::Ok; 2]);
    let len = std::fs::metadata(place.disk()).unwrap().len();
    let file = std::fs::File::options().write(true).open(place.disk()).unwrap();
    file.set_len(len - u64::from(2 * ZONE * 512)).unwrap();
    let said = disk.check_file().unwrap_err().to_string();
    assert!(said.contains("was truncated to"), "{said}");
    assert_eq!([io(&disk, Op::Read, 1, 0), flush(&disk)], [Status::Io; 2]);
}

/// A reader sees what a writer does to the session, and that is no change.
#[test]
fn a_reader_takes_its_writer_for_no_other_disk() {
    let place = DiskWithBackup::new("reader");
    let reader = FileDisk::open(&place.disk(), Access::ReadOnly).unwrap();
    drop(place.open());
    assert!(reader.check_file().is_ok());
    assert!(io(&reader, Op::Read, 1, 0).is_ok());
}
