//! What fuzzing found in durable disks (`fuzz/`, target `disk_format`), or the thought of what it should find. Each
//! test failed before its bug was mended. Mostly something else has changed the file: damage that a checksum shows is
//! in `file_errors.rs`; here the checksum is right again.

use std::sync::Arc;
use std::task::Waker;
use zoneplug_core::zone::{Condition, ZoneInfo};
use zoneplug_core::{
    Bio, Command, Commands, Device, ErrorKind, IoBuf, Nanos, Op, Sector, Status, ZoneNo,
};
use zoneplug_host::file::testing::{CutStorage, Left};
use zoneplug_host::file::{Access, CreateOptions, FileDisk, Storage};

/// Fields of a record of the table, as `docs/disk-format.md` has them.
const WP: u64 = 0;
const GENERATION: u64 = 8;
const WRITES: u64 = 16;

fn options() -> CreateOptions {
    CreateOptions { zones: Some(20), zone_size: Some(64 << 10), ..CreateOptions::default() }
}

fn made() -> Arc<CutStorage> {
    CutStorage::create(&options()).unwrap()
}

/// The storage when the process that has it dies.
fn killed(s: &CutStorage) -> Arc<CutStorage> {
    s.after_kill(s.moments())
}

/// The storage after a power cut that leaves only what was synced.
fn cut(s: &CutStorage) -> Arc<CutStorage> {
    s.after_cut(s.moments(), &mut || Left::Nothing)
}

/// Changes bytes and makes the checksum right.
fn set(s: &CutStorage, at: u64, bytes: &[u8]) {
    s.damage(at, bytes);
    s.seal(at);
}

/// Where a field of a zone's record is, in a copy of the table.
fn record(s: &CutStorage, copy: usize, zone: u64, field: u64) -> u64 {
    s.places().tables[copy] + zone / 15 * 512 + 32 + zone % 15 * 32 + field
}

/// Sets the number of a table sector.
fn set_number(s: &CutStorage, copy: usize, group: u64, number: u64) {
    set(s, s.places().tables[copy] + group * 512 + 16, &number.to_le_bytes());
}

fn run(disk: &FileDisk, c: Box<Command>) -> Box<Command> {
    let mut queue = disk.open_queue(1, Waker::noop().clone()).unwrap();
    let (mut list, mut done) = (Commands::from([c]), Commands::new());
    queue.submit(Nanos(0), &mut list);
    queue.poll(Nanos(0), &mut done);
    done.pop_front().unwrap()
}

fn report(disk: &FileDisk) -> Vec<ZoneInfo> {
    let mut c = Command::without_data(Op::ReportZones, Sector(0), 0);
    c.report_max = u32::MAX;
    run(disk, c).report
}

/// The condition and the write pointer of a zone, as a reader of the disk sees them.
fn seen(s: &Arc<CutStorage>, zone: usize) -> (Condition, u64) {
    let z = report(&s.open(Access::ReadOnly).unwrap())[zone];
    (z.cond, z.wp.0.wrapping_sub(z.start.0))
}

/// Writes a block at the write pointer of a zone.
fn write(disk: &FileDisk, zone: usize, byte: u8) -> Status {
    let mut buf = IoBuf::leaked(4096);
    buf.copy_from(0, &[byte; 4096]);
    let at = report(disk)[zone].wp;
    run(disk, Command::of(Bio::with_buf(Op::Write, at, 8, buf))).status
}

fn manage(disk: &FileDisk, op: Op, zone: u32) -> Status {
    let g = disk.geometry();
    let c = Command::without_data(op, g.zone_start(ZoneNo(zone)), g.zone_len_sectors(ZoneNo(zone)));
    run(disk, c).status
}

fn flush(disk: &FileDisk) -> Status {
    run(disk, Command::without_data(Op::Flush, Sector(0), 0)).status
}

/// A disk with one block in zone 3, table sector 1 of group 0, closed.
fn written() -> Arc<CutStorage> {
    let s = made();
    let disk = s.open(Access::ReadWrite).unwrap();
    assert_eq!((write(&disk, 3, 7), flush(&disk)), (Status::Ok, Status::Ok));
    drop(disk);
    let s = killed(&s);
    assert_eq!(seen(&s, 3), (Condition::Closed, 8));
    s
}

#[track_caller]
fn mended(s: &Arc<CutStorage>) {
    let report = s.check(true).unwrap();
    assert_eq!(report.repaired, report.problems, "{report}");
    assert_eq!(s.check(false).unwrap().problems, 0, "{report}");
}

#[test]
fn a_file_that_became_longer_has_its_second_superblock_where_the_first_says() {
    for more in [1, 512, 4096, 1 << 20] {
        let s = made();
        s.resize(s.places().len + more);
        assert!(s.open(Access::ReadWrite).unwrap().notices().is_empty(), "{more} bytes more");
        assert_eq!(s.check(false).unwrap().problems, 0, "{more} bytes more");
        // It is read there, not at the end.
        s.damage(s.places().supers[1] + 30, b"x");
        assert_eq!(s.check(false).unwrap().problems, 1);
        mended(&s);
    }
}

#[test]
fn a_second_superblock_that_is_not_where_it_says_is_none() {
    let s = made();
    let mut b = [0; 512];
    s.read_at(0, &mut b).unwrap();
    let end = s.places().len + (1 << 20);
    s.resize(end);
    s.damage(end - 4096, &b);
    s.damage(0, &[0; 512]);
    let e = s.open(Access::ReadOnly).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Io, "{e}");
}

#[test]
fn a_newer_version_in_either_copy_is_left_alone() {
    for copy in [0, 1] {
        let s = written();
        set(&s, s.places().supers[copy] + 20, &[9]);
        let e = s.open(Access::ReadWrite).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::NotSupported, "copy {copy}: {e}");
        let e = s.check(true).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::NotSupported, "copy {copy}: {e}");
        assert_eq!(s.moments(), 0, "copy {copy} was changed");
    }
}

#[test]
fn numbers_of_table_sectors_come_round_and_belong_to_a_copy() {
    for number in [u64::MAX, u64::MAX - 1, 1 << 63, 5, 4] {
        for copy in [0, 1] {
            let s = written();
            set_number(&s, copy, 0, number);
            let possible = number % 2 == copy as u64;
            let problems = s.check(false).unwrap().problems;
            assert_eq!(problems, u32::from(!possible), "{number} in copy {copy}");
            mended(&killed(&s));
            let disk = s.open(Access::ReadWrite).unwrap();
            assert_eq!((write(&disk, 4, 1), flush(&disk)), (Status::Ok, Status::Ok));
            assert_eq!(seen(&cut(&s), 4), (Condition::Closed, 8), "{number} in copy {copy}");
        }
    }
}

#[test]
fn generations_come_round() {
    for wp in [8u32, 9] {
        let s = written();
        set(&s, record(&s, 1, 3, GENERATION), &u64::MAX.to_le_bytes());
        set(&s, record(&s, 1, 3, WP), &wp.to_le_bytes());
        mended(&s);
        let disk = s.open(Access::ReadWrite).unwrap();
        assert_eq!(write(&disk, 3, 1), Status::Ok);
        assert_eq!(manage(&disk, Op::ZoneReset, 3), Status::Ok);
        assert_eq!(seen(&cut(&s), 3), (Condition::Empty, 0));
        assert_eq!(seen(&killed(&s), 3), (Condition::Empty, 0));
    }
}

#[test]
fn a_count_of_writes_stays_at_its_end() {
    let s = written();
    set(&s, record(&s, 1, 3, WRITES), &u64::MAX.to_le_bytes());
    let disk = s.open(Access::ReadWrite).unwrap();
    assert_eq!(write(&disk, 3, 1), Status::Ok);
    assert_eq!(disk.write_count(ZoneNo(3)), u64::MAX);
}

#[test]
fn a_write_pointer_inside_a_block_is_impossible() {
    let s = written();
    set(&s, record(&s, 1, 3, WP), &9u32.to_le_bytes());
    assert_eq!(seen(&s, 3).0, Condition::Offline);
    mended(&s);
    assert_eq!(seen(&s, 3), (Condition::Empty, 0));
}

#[test]
fn a_note_inside_a_block_does_not_count() {
    let s = made();
    let disk = s.open(Access::ReadWrite).unwrap();
    assert_eq!(write(&disk, 3, 7), Status::Ok);
    let dead = killed(&s);
    set(&dead, s.places().notes + 3 * 32 + 4, &9u32.to_le_bytes());
    assert_eq!(seen(&dead, 3), (Condition::Empty, 0));
}

#[test]
fn a_zone_that_a_repair_made_empty_stays_empty() {
    // Twice: the first repair gives the zone a generation, a writer leaves a note of that, then the sector is lost
    // again.
    let s = written();
    let lose = |s: &CutStorage| (0..2).for_each(|i| s.damage(s.places().tables[i], &[1; 512]));
    lose(&s);
    mended(&s);
    let disk = s.open(Access::ReadWrite).unwrap();
    assert_eq!(write(&disk, 3, 1), Status::Ok);
    let dead = killed(&s);
    assert_eq!(seen(&dead, 3), (Condition::Closed, 8));
    lose(&dead);
    mended(&dead);
    assert_eq!(seen(&dead, 3), (Condition::Empty, 0));
}

#[test]
fn a_power_cut_never_leaves_more_active_zones_than_there_may_be() {
    // Two zones whose records are in different sectors: one becomes full, and so the other may be written.
    let o = CreateOptions { max_active: 1, ..options() };
    let s = CutStorage::create(&o).unwrap();
    let disk = s.open(Access::ReadWrite).unwrap();
    assert_eq!((write(&disk, 17, 1), flush(&disk)), (Status::Ok, Status::Ok));
    while report(&disk)[17].cond != Condition::Full {
        assert_eq!(write(&disk, 17, 1), Status::Ok);
    }
    assert_eq!(write(&disk, 0, 1), Status::Ok);
    let begin = s.moments();
    assert_eq!(flush(&disk), Status::Ok);
    for moment in begin..=s.moments() {
        for subset in 0..1u32 << 4 {
            let mut bits = subset;
            let cut = s.after_cut(moment, &mut || {
                bits = bits.rotate_right(1);
                if bits >> 31 == 1 { Left::All } else { Left::Nothing }
            });
            let zones = report(&cut.open(Access::ReadOnly).unwrap());
            let active = zones.iter().filter(|z| z.cond.is_active()).count();
            assert!(active <= 1, "{active} active zones, cut at {moment}, {subset:b} left");
        }
    }
    let zones = report(&cut(&s).open(Access::ReadOnly).unwrap());
    assert_eq!((zones[0].cond, zones[17].cond), (Condition::Closed, Condition::Full));
}
