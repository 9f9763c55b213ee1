//! Who uses a disk in memory: one command at a time, everything in this thread.

use std::cell::Cell;
use std::hash::{DefaultHasher, Hasher};
use std::sync::Arc;
use std::task::Waker;
use zoneplug_core::zone::{Condition, Geometry, Limits, ZoneInfo};
use zoneplug_core::{
    Bio, Command, Commands, Device, Error, Flags, IoBuf, Nanos, Op, Parts, Queue, Sector, Status,
    ZoneNo,
};
use zoneplug_host::file::testing::CutStorage;
use zoneplug_host::file::{Access, FileDisk};

/// Sectors that one command moves at most here.
const CHUNK: u32 = 256;
static ZEROES: [u8; CHUNK as usize * 512] = [0; CHUNK as usize * 512];
/// Most zones whose data is read.
const ZONES: u32 = 48;

thread_local! {
    /// Memory for all commands, so that it is not leaked anew by each.
    static MEMORY: Cell<IoBuf> = const { Cell::new(IoBuf::empty()) };
}

/// Memory of a command, and all of which it is a part.
fn memory(sectors: u32) -> (Parts, IoBuf) {
    let whole = MEMORY.take();
    let whole = if whole.is_empty() { IoBuf::leaked(CHUNK * 512) } else { whole };
    let mut parts = Parts::new(whole);
    let buf = parts.take_front(sectors * 512);
    (parts, buf)
}

/// The command is back.
fn give_back(mut parts: Parts, c: &mut Command) {
    assert!(parts.put_back(c.bios[0].take_buf()).is_ok(), "a command has other memory");
    MEMORY.set(parts.join().expect("all of it is back"));
}

/// What a disk shows of one zone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Shown {
    pub(super) info: ZoneInfo,
    /// What a read answers, and a sum of what was read.
    pub(super) data: (Status, u64),
}

/// An open disk.
pub(super) struct Client {
    disk: Arc<FileDisk>,
    queue: Box<dyn Queue>,
}

impl Client {
    pub(super) fn open(storage: &Arc<CutStorage>, access: Access) -> Result<Client, Error> {
        let disk = storage.open(access)?;
        let queue = disk.open_queue(1, Waker::noop().clone())?;
        Ok(Client { disk, queue })
    }

    pub(super) fn disk(&self) -> &FileDisk {
        &self.disk
    }

    pub(super) fn geometry(&self) -> &Geometry {
        self.disk.geometry()
    }

    pub(super) fn limits(&self) -> &Limits {
        self.disk.limits()
    }

    pub(super) fn nr_zones(&self) -> u32 {
        self.geometry().nr_zones()
    }

    fn run(&mut self, c: Box<Command>) -> Box<Command> {
        let (mut list, mut done) = (Commands::from([c]), Commands::new());
        for _ in 0..1000 {
            self.queue.submit(Nanos(0), &mut list);
            self.queue.poll(Nanos(0), &mut done);
            if let Some(c) = done.pop_front() {
                return c;
            }
        }
        panic!("a command never completes");
    }

    pub(super) fn manage(&mut self, op: Op, zone: u32) -> Status {
        let g = self.geometry();
        let len = match op {
            Op::ZoneResetAll => 0,
            _ => g.zone_len_sectors(ZoneNo(zone)),
        };
        let c = Command::without_data(op, g.zone_start(ZoneNo(zone)), len);
        self.run(c).status
    }

    pub(super) fn flush(&mut self) -> Status {
        self.run(Command::without_data(Op::Flush, Sector(0), 0)).status
    }

    pub(super) fn report(&mut self) -> Vec<ZoneInfo> {
        let mut c = Command::without_data(Op::ReportZones, Sector(0), 0);
        c.report_max = u32::MAX;
        let c = self.run(c);
        assert_eq!(c.status, Status::Ok, "a report of all zones");
        assert_eq!(c.report.len(), self.nr_zones() as usize);
        c.report
    }

    /// Writes so many units (or what fits) at the write pointer of a zone, or the start of a conventional one.
    pub(super) fn write(&mut self, zone: u32, units: u32, stamp: u8, fua: bool) -> Status {
        let (start, unit) =
            (self.geometry().zone_start(ZoneNo(zone)), self.limits().write_granularity_sectors);
        let info = self.report()[zone as usize];
        let at = if info.cond == Condition::NotWp { start } else { info.wp };
        let capacity = info.capacity_sectors;
        let left = at.0.checked_sub(start.0).map_or(0, |wp| capacity.saturating_sub(wp));
        let len = u64::from(unit).saturating_mul(u64::from(units.max(1))).min(left);
        if len == 0 || len > u64::from(CHUNK) {
            return Status::InvalidField;
        }
        let len = len as u32;
        let (parts, mut buf) = memory(len);
        buf.copy_from(0, &vec![stamp; len as usize * 512]);
        let mut c = Command::of(Bio::with_buf(Op::Write, at, len, buf));
        if fua {
            c.flags = c.flags.with(Flags::FUA);
        }
        let mut c = self.run(c);
        give_back(parts, &mut c);
        c.status
    }

    /// Reads a range.
    fn read(&mut self, at: Sector, len: u32) -> (Status, Vec<u8>) {
        let (parts, buf) = memory(len);
        let mut c = self.run(Command::of(Bio::with_buf(Op::Read, at, len, buf)));
        let mut bytes = vec![0; len as usize * 512];
        c.bios[0].data().copy_to(0, &mut bytes);
        give_back(parts, &mut c);
        (c.status, bytes)
    }

    /// What all zones show; the data of a large zone only at its ends and around its write pointer, and of many zones
    /// only of the first. What is past a write pointer must be zeroes.
    pub(super) fn look(&mut self) -> Vec<Shown> {
        let block = self.limits().logical_block_sectors;
        let infos = self.report();
        let mut all = Vec::with_capacity(infos.len());
        for (n, info) in (0..).zip(infos) {
            let len = info.len_sectors as u32;
            let wp = match info.wp.0.checked_sub(info.start.0) {
                Some(wp) if wp <= info.len_sectors => wp as u32,
                _ => 0,
            };
            let near = wp.saturating_sub(CHUNK / 2) / block.max(1) * block;
            let last = len.saturating_sub(CHUNK).next_multiple_of(block.max(1));
            let mut starts = if len <= CHUNK { vec![0] } else { vec![0, near, last] };
            starts.dedup();
            let (mut status, mut sum) = (Status::Ok, DefaultHasher::new());
            let read = n < ZONES && block <= CHUNK;
            for from in starts.into_iter().filter(|from| read && *from < len) {
                let count = (len - from).min(CHUNK);
                let (s, bytes) = self.read(info.start.plus(u64::from(from)), count);
                if !s.is_ok() {
                    status = s;
                    break;
                }
                if matches!(info.cond, Condition::Empty | Condition::Closed) {
                    let past = wp.saturating_sub(from).min(count) as usize * 512;
                    // Slices are compared without a counter in the loop.
                    assert!(
                        bytes[past..] == ZEROES[past..bytes.len()],
                        "zone {n} shows what is past its write pointer"
                    );
                }
                sum.write(&bytes);
            }
            all.push(Shown { info, data: (status, sum.finish()) });
        }
        all
    }
}
