//! One command and the drive: the checks that need no drive, its NVMe command, and the meaning of the drive's answer. A
//! command that fails a check has changed nothing.

use super::command::{Blocks, report_bytes, zones_in};
use super::sys::{Passthru, URING_CMD_IO, URING_CMD_IO_VEC};
use crate::backend::drive::{
    Drive, DriveEvent, DriveSlot, DriveStep, Memory, Node, Outcome, Rules, check, is_gone_errno,
    status_of,
};
use crate::backend::ring::{Job, Reply, Worker};
use io_uring::{cqueue, opcode, squeue, types};
use std::fs::File;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use zoneplug_core::zone::{Geometry, Limits};
use zoneplug_core::{Command, Flags, Op, Sector, Status};

/// An open namespace.
#[derive(Debug)]
pub(super) struct Nvme {
    pub(super) file: File,
    /// The block device of the namespace, if the kernel shows one. Held open so that no other program mounts it.
    pub(super) sibling: Option<File>,
    pub(super) node: Node,
    pub(super) blocks: Blocks,
    pub(super) geometry: Geometry,
    pub(super) limits: Limits,
    pub(super) rules: Rules,
    /// The drive has a command for zeroes; otherwise they are written as data.
    pub(super) zero_command: bool,
    /// Bytes of a report.
    pub(super) report_bytes: u32,
    pub(super) gone: AtomicBool,
}

/// The answer that a command is waiting for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Stage {
    /// A flush, before its data moves.
    Preflush,
    /// A part of a report, of so many bytes.
    Report(u32),
    /// The last answer that the command needs.
    #[default]
    Last,
}

/// The state of a command.
#[derive(Debug, Default)]
pub(super) struct NvmeState {
    stage: Stage,
}

/// The work of threads: there is none.
#[derive(Debug)]
pub(super) enum Never {}

type NvmeStep = DriveStep<squeue::Entry128, Never>;

impl Nvme {
    fn check_removed(&self) -> bool {
        if self.node.is_gone() {
            self.gone.store(true, Ordering::Relaxed);
        }
        self.gone.load(Ordering::Relaxed)
    }

    fn begin(&self, slot: &mut DriveSlot<NvmeState>) -> Result<NvmeStep, Status> {
        if self.gone.load(Ordering::Relaxed) {
            return Err(Status::NoDevice);
        }
        let c = slot.command();
        check(&self.geometry, &self.limits, c)?;
        match c.op {
            Op::Read | Op::Write | Op::WriteZeroes | Op::ZoneAppend => {
                let preflush = c.op != Op::Read && c.flags.contains(Flags::PREFLUSH);
                if preflush && self.limits.write_cache {
                    slot.state.stage = Stage::Preflush;
                    return Ok(entry(self.blocks.flush(), None));
                }
                Ok(self.data(slot))
            }
            Op::Flush if !self.limits.write_cache => Ok(DriveStep::Done(Status::Ok)),
            Op::Flush => Ok(entry(self.blocks.flush(), None)),
            // ZNS has no conventional zones, and only those are discarded.
            Op::Discard => Err(Status::InvalidField),
            Op::ZoneResetAll => Ok(entry(self.blocks.manage(c.op, Sector(0)), None)),
            Op::ZoneOpen | Op::ZoneClose | Op::ZoneFinish | Op::ZoneReset => {
                Ok(entry(self.blocks.manage(c.op, c.sector), None))
            }
            Op::ReportZones => {
                c.report.clear();
                Ok(self.report(slot))
            }
        }
    }

    /// The command that moves a command's data.
    fn data(&self, slot: &mut DriveSlot<NvmeState>) -> NvmeStep {
        slot.state.stage = Stage::Last;
        let (c, memory) = slot.parts();
        let len = c.len_sectors << 9;
        let fua = c.op != Op::Read && c.flags.contains(Flags::FUA) && self.limits.write_cache;
        match c.op {
            Op::WriteZeroes if self.zero_command => {
                let cmd = self.blocks.data(c.op, c.sector, c.len_sectors, fua);
                return entry(cmd, None);
            }
            Op::WriteZeroes => memory.zeroes(len),
            op => memory.gather(c, 0, len, &self.rules, op != Op::Read),
        }
        let op = if c.op == Op::WriteZeroes { Op::Write } else { c.op };
        entry(self.blocks.data(op, c.sector, c.len_sectors, fua), Some(memory))
    }

    /// The first zone that a report does not have yet.
    fn next_zone(&self, c: &Command) -> Sector {
        let g = &self.geometry;
        match c.report.last() {
            Some(z) => z.start.plus(z.len_sectors),
            None => g.zone_start(g.zone_of(c.sector).0),
        }
    }

    /// The next part of a report, or its end.
    fn report(&self, slot: &mut DriveSlot<NvmeState>) -> NvmeStep {
        let (c, memory) = slot.parts();
        let at = self.next_zone(c);
        let left = c.report_max.saturating_sub(c.report.len() as u32);
        if left == 0 || at >= self.geometry.capacity() {
            return DriveStep::Done(Status::Ok);
        }
        let bytes = report_bytes(left.min(zones_in(self.report_bytes)));
        memory.own(bytes);
        let next = entry(self.blocks.report(at, bytes), Some(memory));
        slot.state.stage = Stage::Report(bytes);
        next
    }

    /// The status of an answer. A positive answer is the drive's, a negative one the kernel's.
    fn status(&self, result: i32) -> Status {
        let status = match result {
            0 => return Status::Ok,
            1.. => Status::from_nvme(result as u16),
            // The command was sent to the drive, and the kernel has cancelled it.
            e if -e == libc::EINTR => Status::Timeout,
            e => status_of(-e),
        };
        let lost = status == Status::NoDevice || result < 0 && is_gone_errno(-result);
        match status {
            _ if lost && self.check_removed() => Status::NoDevice,
            // The controller was reset during the command and works again. The outcome of the command is unknown.
            Status::NoDevice => Status::Timeout,
            s => s,
        }
    }

    fn answered(&self, slot: &mut DriveSlot<NvmeState>, result: i32, extra: u64) -> NvmeStep {
        let status = self.status(result);
        if !status.is_ok() {
            return DriveStep::Done(status);
        }
        match slot.state.stage {
            Stage::Preflush => self.data(slot),
            Stage::Report(bytes) => {
                let (c, memory) = slot.parts();
                let size = u64::from(self.geometry.zone_sectors());
                match self.blocks.zones(&memory.bytes(bytes), self.next_zone(c), size) {
                    Some(zones) if !zones.is_empty() => c.report.extend(zones),
                    _ => return DriveStep::Done(Status::Io),
                }
                self.report(slot)
            }
            Stage::Last => {
                let (c, memory) = slot.parts();
                match c.op {
                    Op::Read => memory.scatter(c, 0, c.len_sectors << 9),
                    // Y5: the first block of the data.
                    Op::ZoneAppend => c.sector = Sector(extra << self.blocks.shift),
                    _ => {}
                }
                DriveStep::Done(Status::Ok)
            }
        }
    }
}

/// The ring's entry for a command, which moves `memory`.
fn entry(mut cmd: Passthru, memory: Option<&mut Memory>) -> NvmeStep {
    let mut op = URING_CMD_IO;
    if let Some(memory) = memory {
        match memory.segments().as_slice() {
            [one] => (cmd.addr, cmd.data_len) = (one.ptr as u64, one.len as u32),
            list => {
                op = URING_CMD_IO_VEC;
                (cmd.addr, cmd.data_len) = (list.as_ptr() as u64, list.len() as u32);
            }
        }
    }
    DriveStep::Ring(opcode::UringCmd80::new(types::Fixed(0), op).cmd(cmd.bytes()).build())
}

impl Worker for Nvme {
    type Work = Never;
    type Answer = Outcome;

    fn run(&self, _: Vec<Job<Nvme>>) {
        // There is no value of `Never`, hence no job.
    }
}

// SAFETY: the only addresses in entries are those that `entry` takes from the slot's memory.
unsafe impl Drive for Nvme {
    type Sqe = squeue::Entry128;
    type Cqe = cqueue::Entry32;
    type State = NvmeState;

    fn step(&self, slot: &mut DriveSlot<NvmeState>, event: DriveEvent) -> NvmeStep {
        match event {
            DriveEvent::Begin => self.begin(slot).unwrap_or_else(DriveStep::Done),
            DriveEvent::Reply(Reply::Ring { result, extra }) => self.answered(slot, result, extra),
            DriveEvent::Reply(Reply::Worked(outcome)) => DriveStep::Done(outcome.status),
        }
    }

    fn fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}
