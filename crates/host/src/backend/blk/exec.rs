//! One command and the block device: the checks that need no device, the entry for the ring, the work of a thread, and
//! the meaning of the answer. A command that fails a check has changed nothing.

use super::diagnose::{Reason, reason};
use super::sys;
use crate::backend::drive::{
    Drive, DriveEvent, DriveSlot, DriveStep, Node, Outcome, Rules, check, status_of,
};
use crate::backend::ring::{Job, Reply, Worker, transfer};
use io_uring::{cqueue, opcode, squeue, types};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use zoneplug_core::zone::{Geometry, Limits, ZoneInfo};
use zoneplug_core::{Flags, Op, Sector, Status};

/// Zones of one `BLKREPORTZONE`: 256 KiB.
const ZONES_PER_REPORT: u32 = 4096;

/// An open block device.
#[derive(Debug)]
pub(super) struct Blk {
    pub(super) file: File,
    pub(super) node: Node,
    pub(super) geometry: Geometry,
    pub(super) limits: Limits,
    pub(super) rules: Rules,
    /// The drive has a command for zeroes; otherwise they are written as data.
    pub(super) zero_command: bool,
    /// The device has been removed. No command is sent to it any more.
    pub(super) gone: AtomicBool,
}

/// The answer that a command is waiting for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Stage {
    #[default]
    New,
    /// A flush, before its data moves.
    Preflush,
    /// Its data, on the ring.
    Data,
    /// A flush: the command itself, or the flush that makes its zeroes durable.
    Flush,
    /// The answer of a thread.
    Thread,
}

/// The state of a command.
#[derive(Debug, Default)]
pub(super) struct BlkState {
    stage: Stage,
    /// Whether the command was already sent a second time ([`Reason::Again`]).
    again: bool,
}

/// The work of a thread.
#[derive(Debug)]
pub(super) enum BlkWork {
    Report {
        sector: Sector,
        max: u32,
    },
    Manage {
        op: Op,
        sector: Sector,
        len: u64,
    },
    Discard {
        sector: Sector,
        len: u32,
    },
    Zero {
        sector: Sector,
        len: u32,
    },
    /// Finds out why this command failed.
    Why {
        op: Op,
        sector: Sector,
        len: u32,
        errno: i32,
    },
}

/// A thread returns this status to ask for the command to be sent again. No command ends with it.
const AGAIN: Status = Status::WouldBlock;

type BlkStep = DriveStep<squeue::Entry, BlkWork>;

impl Blk {
    /// Checks whether the device has been removed. While a device is being removed, its size becomes 0 first, and it
    /// leaves sysfs last.
    fn check_removed(&self) -> bool {
        if sys::size(&self.file) == 0 || self.node.is_gone() {
            self.gone.store(true, Ordering::Relaxed);
        }
        self.gone.load(Ordering::Relaxed)
    }

    /// Checks a command and says what it needs first.
    fn begin(&self, slot: &mut DriveSlot<BlkState>) -> Result<BlkStep, Status> {
        if self.gone.load(Ordering::Relaxed) {
            return Err(Status::NoDevice);
        }
        let c = slot.command();
        check(&self.geometry, &self.limits, c)?;
        let work = match c.op {
            Op::Read | Op::Write | Op::WriteZeroes => {
                let preflush = c.op != Op::Read && c.flags.contains(Flags::PREFLUSH);
                return Ok(if preflush && self.limits.write_cache {
                    slot.state.stage = Stage::Preflush;
                    DriveStep::Ring(flush())
                } else {
                    self.data(slot)
                });
            }
            Op::Flush if !self.limits.write_cache => {
                return Ok(DriveStep::Done(Status::Ok));
            }
            Op::Flush => {
                slot.state.stage = Stage::Flush;
                return Ok(DriveStep::Ring(flush()));
            }
            Op::Discard => BlkWork::Discard { sector: c.sector, len: c.len_sectors },
            Op::ZoneAppend => return Err(Status::NotSupported),
            Op::ZoneResetAll => {
                BlkWork::Manage { op: c.op, sector: Sector(0), len: self.geometry.capacity().0 }
            }
            Op::ZoneOpen | Op::ZoneClose | Op::ZoneFinish | Op::ZoneReset => {
                BlkWork::Manage { op: c.op, sector: c.sector, len: u64::from(c.len_sectors) }
            }
            Op::ReportZones => BlkWork::Report { sector: c.sector, max: c.report_max },
        };
        slot.state.stage = Stage::Thread;
        Ok(DriveStep::Work(work))
    }

    /// Moves the data of a command.
    fn data(&self, slot: &mut DriveSlot<BlkState>) -> BlkStep {
        slot.state.stage = Stage::Data;
        let (c, memory) = slot.parts();
        let (at, len) = (c.sector.0 << 9, c.len_sectors << 9);
        match c.op {
            Op::WriteZeroes if self.zero_command => {
                let work = BlkWork::Zero { sector: c.sector, len: c.len_sectors };
                slot.state.stage = Stage::Thread;
                return DriveStep::Work(work);
            }
            Op::WriteZeroes => memory.zeroes(len),
            op => memory.gather(c, 0, len, &self.rules, op == Op::Write),
        }
        // The kernel sends a write with FUA. For a drive without FUA it sends a flush after the write.
        let flags = if c.flags.contains(Flags::FUA) && c.op != Op::Read && self.limits.write_cache {
            libc::RWF_DSYNC
        } else {
            0
        };
        let entry = transfer(0, c.op != Op::Read, at, memory.segments(), flags);
        DriveStep::Ring(entry.flags(squeue::Flags::FIXED_FILE))
    }

    /// The ring has answered for the data of a command.
    fn moved(&self, slot: &mut DriveSlot<BlkState>, result: i32) -> BlkStep {
        let (c, memory) = slot.parts();
        let bytes = c.len_sectors << 9;
        if result >= 0 {
            if result as u32 != bytes {
                // A device that was removed has no sectors, so its transfers are short too.
                let gone = self.check_removed();
                return DriveStep::Done(if gone {
                    Status::NoDevice
                } else {
                    Status::ShortTransfer
                });
            }
            if c.op == Op::Read {
                memory.scatter(c, 0, bytes);
            }
            return DriveStep::Done(Status::Ok);
        }
        self.failed(slot, -result)
    }

    /// A command failed with this errno. The errno says little about a zone, so a thread reads a report of the zone. It
    /// does so after every write that failed, whatever the errno: a kernel with plugs has then lost its own write
    /// pointer, and the report restores it (E4).
    fn failed(&self, slot: &mut DriveSlot<BlkState>, errno: i32) -> BlkStep {
        let c = slot.command();
        let status = status_of(errno);
        if status == Status::Busy {
            return DriveStep::Done(status);
        }
        // A removed device is not asked for a report: what the kernel still keeps of it may answer anything. (A write
        // to a device of size 0 is ENOSPC.)
        if self.check_removed() {
            return DriveStep::Done(Status::NoDevice);
        }
        if c.op == Op::Read && status != Status::Io {
            return DriveStep::Done(status);
        }
        let work = BlkWork::Why { op: c.op, sector: c.sector, len: c.len_sectors, errno };
        slot.state.stage = Stage::Thread;
        DriveStep::Work(work)
    }

    /// A thread has answered.
    fn worked(&self, slot: &mut DriveSlot<BlkState>, outcome: Outcome) -> BlkStep {
        if outcome.status == AGAIN {
            if std::mem::replace(&mut slot.state.again, true) {
                return DriveStep::Done(Status::Io);
            }
            return self.data(slot);
        }
        let c = slot.command();
        c.report.extend_from_slice(&outcome.zones);
        let forced = c.op == Op::WriteZeroes && c.flags.contains(Flags::FUA);
        if outcome.status.is_ok() && forced && self.limits.write_cache {
            slot.state.stage = Stage::Flush;
            return DriveStep::Ring(flush());
        }
        DriveStep::Done(outcome.status)
    }

    /// Reports up to `max` zones, in as many calls as needed.
    pub(super) fn report(&self, sector: Sector, max: u32) -> io::Result<Vec<ZoneInfo>> {
        report_all(&self.file, sector, max, self.geometry.capacity())
    }

    /// The work of a thread.
    fn perform(&self, work: &BlkWork) -> Outcome {
        let ended = |r: io::Result<()>, op, sector, len| match r {
            Ok(()) => Status::Ok.into(),
            Err(e) => self.why(op, sector, len, errno_of(&e)).into(),
        };
        match *work {
            BlkWork::Report { max: 0, .. } => Status::Ok.into(),
            BlkWork::Report { sector, max } => match self.report(sector, max) {
                Ok(zones) => Outcome { status: Status::Ok, zones },
                Err(_) if self.check_removed() => Status::NoDevice.into(),
                Err(e) => status_of(errno_of(&e)).into(),
            },
            BlkWork::Manage { op, sector, len } => {
                let short = u32::try_from(len).unwrap_or(u32::MAX);
                ended(sys::manage(&self.file, op, sector, len), op, sector, short)
            }
            BlkWork::Discard { sector, len } => {
                ended(sys::discard(&self.file, sector, len.into()), Op::Discard, sector, len)
            }
            BlkWork::Zero { sector, len } => {
                match ended(sys::zero(&self.file, sector, len.into()), Op::WriteZeroes, sector, len)
                {
                    // A command for zeroes is not sent a second time, which `worked` would do for `AGAIN`.
                    o if o.status == AGAIN => Status::Io.into(),
                    o => o,
                }
            }
            BlkWork::Why { op, sector, len, errno } => self.why(op, sector, len, errno).into(),
        }
    }

    fn why(&self, op: Op, sector: Sector, len: u32, errno: i32) -> Status {
        if self.check_removed() {
            return Status::NoDevice;
        }
        let status = status_of(errno);
        if op == Op::ZoneResetAll {
            return status;
        }
        let start = self.geometry.zone_start(self.geometry.zone_of(sector).0);
        match sys::report(&self.file, start, 1) {
            Ok(z) => match z.first().map(|z| reason(op, sector, len, status, z)) {
                Some(Reason::Is(status)) => status,
                Some(Reason::Again) => AGAIN,
                None => status,
            },
            Err(_) if self.check_removed() => Status::NoDevice,
            Err(_) => status,
        }
    }
}

/// Reports up to `max` zones from `sector` on a device that ends at `capacity`.
pub(super) fn report_all(
    file: &File,
    sector: Sector,
    max: u32,
    capacity: Sector,
) -> io::Result<Vec<ZoneInfo>> {
    let (mut zones, mut at) = (Vec::new(), sector);
    while zones.len() < max as usize && at < capacity {
        let left = max - zones.len() as u32;
        let got = sys::report(file, at, left.min(ZONES_PER_REPORT))?;
        let Some(last) = got.last() else { break };
        let end = last.start.0.checked_add(last.len_sectors).filter(|end| *end > at.0);
        at = Sector(end.ok_or_else(|| io::Error::other(format!("no report at {at}")))?);
        zones.extend(got);
    }
    Ok(zones)
}

/// `fdatasync` of the registered file, which flushes the drive.
fn flush() -> squeue::Entry {
    opcode::Fsync::new(types::Fixed(0)).flags(types::FsyncFlags::DATASYNC).build()
}

/// An error without an errno is from this module: the report was impossible.
fn errno_of(e: &io::Error) -> i32 {
    e.raw_os_error().unwrap_or(libc::EIO)
}

impl Worker for Blk {
    type Work = BlkWork;
    type Answer = Outcome;

    fn run(&self, jobs: Vec<Job<Blk>>) {
        for job in jobs {
            job.mailbox.push(job.slot, self.perform(&job.work));
        }
    }
}

// SAFETY: the entries are transfers of the slot's memory, and flushes, which have no memory.
unsafe impl Drive for Blk {
    type Sqe = squeue::Entry;
    type Cqe = cqueue::Entry;
    type State = BlkState;

    fn step(&self, slot: &mut DriveSlot<BlkState>, event: DriveEvent) -> BlkStep {
        match (event, slot.state.stage) {
            (DriveEvent::Begin, _) => self.begin(slot).unwrap_or_else(DriveStep::Done),
            (DriveEvent::Reply(Reply::Worked(outcome)), _) => self.worked(slot, outcome),
            (DriveEvent::Reply(Reply::Ring { result, .. }), Stage::Preflush) if result >= 0 => {
                self.data(slot)
            }
            (DriveEvent::Reply(Reply::Ring { result, .. }), Stage::Preflush | Stage::Flush) => {
                match status_of(-result.min(0)) {
                    Status::Io if self.check_removed() => DriveStep::Done(Status::NoDevice),
                    status => DriveStep::Done(status),
                }
            }
            (DriveEvent::Reply(Reply::Ring { result, .. }), _) => self.moved(slot, result),
        }
    }

    fn fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}
