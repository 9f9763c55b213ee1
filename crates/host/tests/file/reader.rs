//! A process that reads a durable disk: what it reads of the file, and what it sees while another process writes.

use std::sync::{Arc, mpsc};
use std::task::Waker;
use std::time::Duration;
use zoneplug_core::disk::DiskConfig;
use zoneplug_core::zone::{Condition, ZoneInfo};
use zoneplug_core::{
    Bio, Command, Commands, Device, IoBuf, Nanos, Op, Queue, Sector, Status, ZoneNo,
};
use zoneplug_host::file::testing::CutStorage;
use zoneplug_host::file::{Access, CreateOptions, FileDisk, Storage};
use zoneplug_host::{BlockingDisk, HostedDisk};

fn made(zones: u64) -> Arc<CutStorage> {
    let size = Some(64 << 10);
    let o = CreateOptions { zones: Some(zones), zone_size: size, ..CreateOptions::default() };
    CutStorage::create(&o).unwrap()
}

/// An open disk and one queue of it.
struct Open {
    disk: Arc<FileDisk>,
    queue: Box<dyn Queue>,
}

impl Open {
    fn new(storage: &Arc<CutStorage>, access: Access) -> Open {
        let disk = storage.open(access).unwrap();
        let queue = disk.open_queue(1, Waker::noop().clone()).unwrap();
        Open { disk, queue }
    }

    fn run(&mut self, c: Box<Command>) -> Box<Command> {
        let (mut list, mut done) = (Commands::from([c]), Commands::new());
        self.queue.submit(Nanos(0), &mut list);
        self.queue.poll(Nanos(0), &mut done);
        done.pop_front().unwrap()
    }

    /// Up to `nr` zones from `zone` on.
    fn report(&mut self, zone: u32, nr: u32) -> Vec<ZoneInfo> {
        let start = self.disk.geometry().zone_start(ZoneNo(zone));
        let mut c = Command::without_data(Op::ReportZones, start, 0);
        c.report_max = nr;
        self.run(c).report
    }

    /// The condition of a zone, and how many blocks it has.
    fn zone(&mut self, zone: u32) -> (Condition, u64) {
        let z = self.report(zone, 1)[0];
        (z.cond, z.wp.0.wrapping_sub(z.start.0) / 8)
    }

    /// Writes a block at an offset in blocks.
    fn write(&mut self, zone: u32, block: u32) {
        self.write_blocks(zone, block, 1);
    }

    /// Writes blocks with one command.
    fn write_blocks(&mut self, zone: u32, block: u32, blocks: u32) {
        let mut buf = IoBuf::leaked(blocks * 4096);
        (0..blocks).for_each(|n| buf.copy_from(n * 4096, &[7; 4096]));
        let at = self.disk.geometry().zone_start(ZoneNo(zone)).plus(u64::from(block * 8));
        let c = Command::of(Bio::with_buf(Op::Write, at, blocks * 8, buf));
        assert_eq!(self.run(c).status, Status::Ok);
    }

    fn flush(&mut self) {
        let c = Command::without_data(Op::Flush, Sector(0), 0);
        assert_eq!(self.run(c).status, Status::Ok);
    }

    /// The first byte of a zone.
    fn read(&mut self, zone: u32) -> u8 {
        let at = self.disk.geometry().zone_start(ZoneNo(zone));
        let mut c = self.run(Command::of(Bio::with_buf(Op::Read, at, 8, IoBuf::leaked(4096))));
        assert_eq!(c.status, Status::Ok);
        let mut byte = [0];
        c.bios[0].take_buf().copy_to(0, &mut byte);
        byte[0]
    }

    fn reset(&mut self, zone: u32) {
        let g = self.disk.geometry();
        let (at, len) = (g.zone_start(ZoneNo(zone)), g.zone_len_sectors(ZoneNo(zone)));
        assert_eq!(self.run(Command::without_data(Op::ZoneReset, at, len)).status, Status::Ok);
    }
}

/// Bytes that opening a disk for reading reads: the table and the notes, once.
fn bytes_of_one_opening(s: &Arc<CutStorage>) -> u64 {
    let before = s.bytes_read();
    let _disk = s.open(Access::ReadOnly).unwrap();
    s.bytes_read() - before
}

/// Both copies of the table have 32 bytes a zone, and so have the notes.
#[test]
fn a_report_in_many_parts_reads_the_table_once() {
    let s = made(40_000);
    let mut writer = Open::new(&s, Access::ReadWrite);
    writer.write(39_000, 0);
    let once = bytes_of_one_opening(&s);
    assert!((3 * 32 * 40_000..4 * 32 * 40_000).contains(&once), "{once}");
    let mut reader = Open::new(&s, Access::ReadOnly);
    let before = s.bytes_read();
    let parts = (0..40_000).step_by(1000).flat_map(|zone| reader.report(zone, 1000));
    let all: Vec<ZoneInfo> = parts.collect();
    let read = s.bytes_read() - before;
    assert_eq!((all.len(), all[39_000].wp.0 - all[39_000].start.0), (40_000, 8));
    // Parts share table sectors at their edges, and each reads the session.
    assert!(read < once + once / 4, "{read} bytes for a report, {once} for an opening");
}

/// `zoneplug info` and `report` open a disk so, and ask for all of its zones.
#[test]
fn a_hosted_disk_reads_the_table_three_times_for_a_report() {
    let s = made(40_000);
    let _writer = Open::new(&s, Access::ReadWrite);
    let once = bytes_of_one_opening(&s);
    let before = s.bytes_read();
    let device = s.open(Access::ReadOnly).unwrap();
    let disk = HostedDisk::open(device, DiskConfig::default()).unwrap();
    let mut io = BlockingDisk::new(&disk).unwrap();
    assert_eq!(io.report(Sector(0), u32::MAX).unwrap().len(), 40_000);
    let read = s.bytes_read() - before;
    // The opening, the first look of the layer, and the report.
    assert!(read < 3 * once + once / 2, "{read} bytes, {once} for an opening");
}

#[test]
fn every_report_finds_what_was_written_since() {
    let s = made(40);
    let (mut writer, mut reader) =
        (Open::new(&s, Access::ReadWrite), Open::new(&s, Access::ReadOnly));
    for zone in [0, 14, 15, 29, 39] {
        assert_eq!(reader.zone(zone), (Condition::Empty, 0));
        writer.write(zone, 0);
        assert_eq!(reader.zone(zone), (Condition::Closed, 1));
        writer.reset(zone);
        assert_eq!(reader.zone(zone), (Condition::Empty, 0));
        for block in 0..16 {
            writer.write(zone, block);
        }
        assert_eq!(reader.report(zone, 2)[0].cond, Condition::Full);
    }
    let all: Vec<Condition> = reader.report(0, u32::MAX).iter().map(|z| z.cond).collect();
    for (zone, cond) in (0..).zip(all) {
        let full = [0, 14, 15, 29, 39].contains(&zone);
        assert_eq!(cond, if full { Condition::Full } else { Condition::Empty }, "zone {zone}");
    }
}

/// The writer closes the disk after the reader has read the table, and before it reads which session is open: the notes
/// are void then, and the table that was read lacks what they said.
#[test]
fn a_disk_that_is_closed_while_it_is_read_has_every_write() {
    let s = made(20);
    let mut writer = Open::new(&s, Access::ReadWrite);
    let mut reader = Open::new(&s, Access::ReadOnly);
    writer.write(3, 0);
    // The second copy of the table is read after the first.
    s.before_read(s.places().tables[1], move || drop(writer));
    assert_eq!(reader.zone(3), (Condition::Closed, 1));
    assert!(s.check(false).unwrap().lines[1].contains("it was closed"));
    assert_eq!(reader.zone(3), (Condition::Closed, 1));
}

/// A process that died left the note of a write. After the reader has read the table, another writer opens the disk,
/// which puts that write into the table, and writes a note of its own.
#[test]
fn a_disk_that_is_opened_for_writing_while_it_is_read_has_every_write() {
    let s = made(20);
    let mut writer = Open::new(&s, Access::ReadWrite);
    writer.write(3, 0);
    let s = s.after_kill(s.moments());
    let mut reader = Open::new(&s, Access::ReadOnly);
    assert_eq!(reader.zone(3), (Condition::Closed, 1));
    let storage = s.clone();
    s.before_read(s.places().notes + 3 * 32, move || {
        let mut writer = Open::new(&storage, Access::ReadWrite);
        writer.write(3, 1);
        std::mem::forget(writer);
    });
    assert_eq!(reader.zone(3), (Condition::Closed, 2));
}

/// The reader finds the first copy of a table sector half written, and then the second.
#[test]
fn a_sector_that_is_being_written_is_not_damaged() {
    let s = made(20);
    Open::new(&s, Access::ReadWrite).write(3, 0);
    let [a, b] = s.places().tables;
    let torn = |storage: &Arc<CutStorage>, at: u64| {
        let mut good = [0; 512];
        storage.read_at(at, &mut good).unwrap();
        storage.damage(at + 100, &[0xff; 8]);
        let storage = storage.clone();
        move || storage.damage(at, &good)
    };
    let first_is_whole = torn(&s, a);
    let later = s.clone();
    s.before_read(b, move || {
        first_is_whole();
        later.before_read(a, torn(&later, b));
    });
    let disk = s.open(Access::ReadOnly).unwrap();
    assert!(disk.notices().is_empty(), "{:?}", disk.notices());
    let mut reader = Open::new(&s, Access::ReadOnly);
    assert_eq!(reader.zone(3), (Condition::Closed, 1));
}

/// The reader has the note of a write, and then finds a hole where the data was.
#[test]
fn a_zone_that_is_reset_while_it_is_read_has_lost_nothing() {
    let s = made(20);
    let mut writer = Open::new(&s, Access::ReadWrite);
    writer.write(3, 0);
    // The last thing that is read before the data is looked at.
    s.before_read(s.places().notes + 3 * 32, move || {
        writer.reset(3);
        writer.write(4, 0);
        // The process goes on.
        std::mem::forget(writer);
    });
    let disk = s.open(Access::ReadOnly).unwrap();
    assert!(disk.notices().is_empty(), "{:?}", disk.notices());
    let mut reader = Open::new(&s, Access::ReadOnly);
    assert_eq!((reader.zone(3), reader.zone(4)), ((Condition::Empty, 0), (Condition::Closed, 1)));
}

/// The reader has the table of before a reset, and the note of the write after it. The zone had two blocks, none, and
/// three. It had one when it was flushed, which was long before.
#[test]
fn a_zone_that_is_reset_and_written_while_it_is_read_does_not_go_back() {
    let s = made(20);
    let mut writer = Open::new(&s, Access::ReadWrite);
    let mut reader = Open::new(&s, Access::ReadOnly);
    writer.write(3, 0);
    writer.flush();
    writer.write(3, 1);
    assert_eq!(reader.zone(3), (Condition::Closed, 2));
    s.before_read(s.places().notes + 3 * 32, move || {
        writer.reset(3);
        writer.write_blocks(3, 0, 3);
        // The process goes on.
        std::mem::forget(writer);
    });
    assert_eq!(reader.zone(3), (Condition::Closed, 3));
}

/// Linux copies a note while another process reads it.
#[test]
fn a_note_that_is_being_written_is_not_missing() {
    let s = made(20);
    let mut writer = Open::new(&s, Access::ReadWrite);
    let mut reader = Open::new(&s, Access::ReadOnly);
    writer.write(3, 0);
    writer.write(3, 1);
    let at = s.places().notes + 3 * 32;
    let mut good = [0; 32];
    s.read_at(at, &mut good).unwrap();
    s.damage(at + 16, &[0xff; 8]);
    let later = s.clone();
    s.before_read(at, move || {
        let storage = later.clone();
        later.before_read(at, move || storage.damage(at, &good));
    });
    assert_eq!(reader.zone(3), (Condition::Closed, 2));
}

/// A thread has read the zones for a report, and another thread reports meanwhile what was written since. What the first
/// one has read is older.
#[test]
fn a_report_does_not_take_back_what_another_has_found() {
    let s = made(20);
    let mut writer = Open::new(&s, Access::ReadWrite);
    let mut first = Open::new(&s, Access::ReadOnly);
    let queue = first.disk.open_queue(1, Waker::noop().clone()).unwrap();
    let mut second = Open { disk: first.disk.clone(), queue };
    let (begin, begins) = mpsc::channel();
    let (tell, told) = mpsc::channel();
    let storage = s.clone();
    s.before_read(s.places().notes + 3 * 32, move || {
        // The session is read last.
        storage.before_read(4096, move || {
            writer.write(3, 0);
            std::mem::forget(writer);
            begin.send(()).unwrap();
            // The second report may have to wait for the first.
            let _ = told.recv_timeout(Duration::from_millis(200));
        });
    });
    let second = std::thread::spawn(move || {
        begins.recv().unwrap();
        assert_eq!(second.zone(3), (Condition::Closed, 1));
        tell.send(()).unwrap_or_default();
        second
    });
    assert_eq!(first.zone(3), (Condition::Empty, 0));
    assert_eq!(second.join().unwrap().read(3), 7, "the report said that there is data");
}
