//! A durable disk in memory, and one queue of it.

use std::sync::Arc;
use std::task::Waker;
use zoneplug_core::zone::Condition;
use zoneplug_core::{
    Bio, Command, Commands, Device, IoBuf, Nanos, Op, Queue, Sector, Status, ZoneNo,
};
use zoneplug_host::file::testing::{CutStorage, Left};
use zoneplug_host::file::{Access, CreateOptions, FileDisk};

pub(crate) fn options() -> CreateOptions {
    CreateOptions { zones: Some(20), zone_size: Some(64 << 10), ..CreateOptions::default() }
}

/// A disk in memory, and one queue of it.
pub(crate) struct Open {
    pub(crate) storage: Arc<CutStorage>,
    pub(crate) disk: Arc<FileDisk>,
    pub(crate) queue: Box<dyn Queue>,
}

impl Open {
    pub(crate) fn new(storage: Arc<CutStorage>) -> Open {
        let disk = storage.open(Access::ReadWrite).unwrap();
        Open::of(storage, disk)
    }

    pub(crate) fn of(storage: Arc<CutStorage>, disk: Arc<FileDisk>) -> Open {
        let queue = disk.open_queue(1, Waker::noop().clone()).unwrap();
        Open { storage, disk, queue }
    }

    /// A new disk whose commits are made by threads of its own.
    pub(crate) fn with_threads() -> Open {
        let storage = CutStorage::create(&options()).unwrap();
        let disk = storage.open_with_threads().unwrap();
        Open::of(storage, disk)
    }

    pub(crate) fn made() -> Open {
        Open::new(CutStorage::create(&options()).unwrap())
    }

    /// The same disk, for another thread of its process.
    pub(crate) fn another_queue(&self) -> Open {
        Open::of(self.storage.clone(), self.disk.clone())
    }

    /// The storage that another process finds when this one is killed.
    pub(crate) fn left(&self) -> Arc<CutStorage> {
        self.storage.after_kill(self.storage.moments())
    }

    /// The same disk after its process was killed.
    pub(crate) fn killed(&self) -> Open {
        Open::new(self.left())
    }

    /// The same disk after a power cut that left only what was synced.
    pub(crate) fn cut(&self) -> Open {
        Open::new(self.storage.after_cut(self.storage.moments(), &mut || Left::Nothing))
    }

    pub(crate) fn run(&mut self, c: Box<Command>) -> Box<Command> {
        let mut done = Commands::new();
        self.queue.submit(Nanos(0), &mut Commands::from([c]));
        while done.is_empty() {
            self.queue.poll(Nanos(0), &mut done);
        }
        done.pop_front().unwrap()
    }

    pub(crate) fn manage(&mut self, op: Op, zone: u32) -> Status {
        let g = self.disk.geometry();
        let len = if op == Op::ZoneResetAll { 0 } else { g.zone_len_sectors(ZoneNo(zone)) };
        let c = Command::without_data(op, g.zone_start(ZoneNo(zone)), len);
        self.run(c).status
    }

    pub(crate) fn flush(&mut self) -> Status {
        self.run(Command::without_data(Op::Flush, Sector(0), 0)).status
    }

    /// Writes a block at an offset in blocks.
    pub(crate) fn write(&mut self, zone: u32, block: u32, byte: u8) -> Status {
        let mut buf = IoBuf::leaked(4096);
        buf.copy_from(0, &[byte; 4096]);
        let at = self.disk.geometry().zone_start(ZoneNo(zone)).plus(u64::from(block * 8));
        self.run(Command::of(Bio::with_buf(Op::Write, at, 8, buf))).status
    }

    /// The condition of a zone, how many blocks it has, and the first byte of each of the first four.
    pub(crate) fn zone(&mut self, zone: u32) -> (Condition, u64, [u8; 4]) {
        let start = self.disk.geometry().zone_start(ZoneNo(zone));
        let mut c = Command::without_data(Op::ReportZones, start, 0);
        c.report_max = 1;
        let z = self.run(c).report[0];
        let buf = IoBuf::leaked(4 * 4096);
        let c = self.run(Command::of(Bio::with_buf(Op::Read, start, 32, buf)));
        assert_eq!(c.status, Status::Ok);
        let blocks = [0, 1, 2, 3].map(|i| {
            let mut b = [0; 4096];
            c.bios[0].data().copy_to(i * 4096, &mut b);
            assert!(b.iter().all(|x| *x == b[0]), "block {i} is torn");
            b[0]
        });
        (z.cond, z.wp.0.wrapping_sub(start.0) / 8, blocks)
    }
}
