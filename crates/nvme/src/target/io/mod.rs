//! I/O commands: their requests to a disk, and the meaning of its answers.
//!
//! [`Task::begin`] checks a command and returns the first step: submit a BIO to the disk, or send a completion.
//! [`Task::next`] returns the step after the BIO has ended. Reads, writes and the management of a zone take one BIO;
//! reports, the management of all zones and deallocation may take several.
//!
//! This module takes no lock and allocates nothing.

mod deallocate;
#[cfg(test)]
mod tests;
mod zones;

use super::controller::{check_flags, check_length, no_data};
use super::namespace::{Namespace, Namespaces, Zones};
use crate::spec::{Command, Completion, FUA, opcode, status};
use deallocate::Deallocation;
use zoneplug_buf::AlignedBuf;
use zoneplug_core::{Flags, Op, Sector, Status};
use zones::{AllZones, Report};

pub use zoneplug_core::{IoRequest, IoResult};

/// The next step of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandStep {
    /// Submit this request, and call [`Task::next`] when it has ended.
    Submit(IoRequest),
    /// Send this many bytes from the start of the command's buffer, then the completion.
    Answer(Completion, u32),
}

/// A command that is being carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Task {
    cid: u16,
    work: Work,
    /// Bytes of the buffer that the command needs.
    buffer_bytes: u32,
    request: IoRequest,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Work {
    /// One BIO; then this many bytes are sent.
    Single {
        send: u32,
    },
    /// An append: the completion contains the place where the data landed.
    Append {
        start: Sector,
        shift: u32,
    },
    Report(Report),
    AllZones(AllZones),
    Deallocation(Deallocation),
}

impl Task {
    /// Checks a command of an I/O queue and returns the first step. `data` is all the data of a command that brings
    /// some. A command that fails a check is answered at once and makes no request to a disk (J2).
    /// ```
    /// use zoneplug_core::{Op, Sector};
    /// # use zoneplug_core::zone::{Geometry, Limits};
    /// # use zoneplug_nvme::target::{Namespace, Nqn, SubsystemConfig, Target};
    /// use zoneplug_nvme::spec::{Command, Sgl, SglKind, opcode};
    /// use zoneplug_nvme::target::io::{CommandStep, Task};
    /// # let nqn = Nqn::new("nqn.x")?;
    /// # let mut target = Target::new(vec![]);
    /// # target.add_subsystem(SubsystemConfig::new(nqn.clone()))?;
    /// # let g = Geometry::new(64, 0x8000, 0x8000)?;
    /// # target.add_namespaces(&nqn, Namespace::of(0, [1; 16], &g, &Limits::default())?)?;
    /// # let namespaces = target.namespaces(&nqn).unwrap();
    /// let sgl = Sgl { address: 0, length: 8192, kind: SglKind::Transport };
    /// let read = Command::new(opcode::READ).with_nsid(1).with_sgl(sgl).with_cdw_pair(10, 5).with_cdw(12, 1);
    /// let (task, step) = Task::begin(&read, &namespaces, None);
    /// let CommandStep::Submit(request) = step else { panic!("{step:?}") };
    /// assert_eq!((request.op, request.sector, request.len_sectors), (Op::Read, Sector(40), 16));
    /// assert_eq!(task.buffer_bytes(), 8192);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline(always)]
    pub fn begin(
        command: &Command,
        namespaces: &Namespaces,
        data: Option<&AlignedBuf>,
    ) -> (Task, CommandStep) {
        match Task::checked(command, namespaces, data) {
            Ok(mut task) => {
                let step = task.start(data);
                (task, step)
            }
            Err(status) => {
                // With *do not retry*, a host would not send the command to another port.
                let dnr = if status == status::INACCESSIBLE { 0 } else { status::DNR };
                let task = Task {
                    cid: command.cid(),
                    work: Work::Single { send: 0 },
                    buffer_bytes: 0,
                    request: IoRequest::new(0, Op::Flush),
                };
                (task, task.end(status | dnr, 0, 0))
            }
        }
    }

    /// Returns the size of the buffer that the command needs: at least the length of its data.
    pub fn buffer_bytes(&self) -> u32 {
        self.buffer_bytes
    }

    fn checked(c: &Command, all: &Namespaces, data: Option<&AlignedBuf>) -> Result<Task, u16> {
        if c.opcode() == opcode::FABRICS {
            return Err(status::INVALID_OPCODE);
        }
        check_flags(c)?;
        let n = all.get(c.nsid()).ok_or(status::INVALID_NAMESPACE)?;
        if all.are_inaccessible() {
            return Err(status::INACCESSIBLE);
        }
        let task = |work, request, buffer_bytes| Task { cid: c.cid(), work, buffer_bytes, request };
        let single = |send, request| task(Work::Single { send }, request, send);
        match c.opcode() {
            opcode::READ => {
                let r = transfer(c, n, all, Op::Read)?;
                Ok(single(r.memory.1, r))
            }
            opcode::WRITE => {
                let r = transfer(c, n, all, Op::Write)?;
                in_one_zone(n, &r)?;
                Ok(task(Work::Single { send: 0 }, r, r.memory.1))
            }
            opcode::WRITE_ZEROES => {
                no_data(c)?;
                let r = range(c, n, Op::WriteZeroes)?;
                in_one_zone(n, &r)?;
                Ok(single(0, r))
            }
            opcode::FLUSH => {
                no_data(c)?;
                Ok(single(0, IoRequest::new(n.disk(), Op::Flush)))
            }
            opcode::DATASET_MANAGEMENT => {
                let (work, bytes) = Deallocation::new(c, n, data)?;
                Ok(task(Work::Deallocation(work), IoRequest::new(n.disk(), Op::Discard), bytes))
            }
            opcode::ZONE_APPEND => {
                let zones = n.zones().ok_or(status::INVALID_OPCODE)?;
                let r = transfer(c, n, all, Op::ZoneAppend)?;
                zone_start(n, zones, r.sector)?;
                if r.len_sectors > zones.append_sectors {
                    return Err(status::INVALID_FIELD);
                }
                let work = Work::Append { start: n.start(), shift: n.shift() };
                Ok(task(work, r, r.memory.1))
            }
            opcode::ZONE_MANAGEMENT_SEND => match zones::manage(c, n)? {
                zones::Manage::One(r) => Ok(single(0, r)),
                zones::Manage::All(work) => {
                    let r = IoRequest::new(n.disk(), Op::ReportZones);
                    Ok(task(Work::AllZones(work), r, AllZones::BUFFER_BYTES))
                }
            },
            opcode::ZONE_MANAGEMENT_RECEIVE => {
                let report = Report::new(c, n, all)?;
                let r = IoRequest::new(n.disk(), Op::ReportZones);
                Ok(task(Work::Report(report), r, report.buffer_bytes()))
            }
            _ => Err(status::INVALID_OPCODE),
        }
    }

    fn start(&mut self, data: Option<&AlignedBuf>) -> CommandStep {
        match &mut self.work {
            Work::Single { .. } | Work::Append { .. } => CommandStep::Submit(self.request),
            Work::Report(report) => match report.submit() {
                Some((sector, memory)) => self.report(sector, memory),
                // A report makes at least one request, so this does not happen.
                None => self.end(status::INTERNAL, 0, 0),
            },
            Work::AllZones(all) => {
                let (sector, memory) = all.first();
                self.report(sector, memory)
            }
            Work::Deallocation(_) => self.deallocate(data),
        }
    }

    /// Takes the result of a BIO and returns the next step. `buffer` is the command's buffer, of at least
    /// [`Task::buffer_bytes`].
    pub fn next(&mut self, result: IoResult, buffer: Option<&mut AlignedBuf>) -> CommandStep {
        if !result.status.is_ok() {
            // If a disk cannot discard a range, its data stay: deallocation is a hint.
            let hint = self.request.op == Op::Discard && result.status == Status::NotSupported;
            if !hint {
                return self.end(code(self.request.op, result.status), 0, 0);
            }
        }
        match &mut self.work {
            Work::Single { send } => {
                let send = *send;
                self.end(status::SUCCESS, 0, send)
            }
            Work::Append { start, shift } => {
                let lba = result.sector.0.saturating_sub(start.0) >> *shift;
                self.end(status::SUCCESS, lba, 0)
            }
            Work::Report(report) => {
                let Some(buffer) = buffer else { return self.end(status::INTERNAL, 0, 0) };
                if !report.take(buffer, result.zones) {
                    return self.end(status::INTERNAL, 0, 0);
                }
                match report.submit() {
                    Some((sector, memory)) => self.report(sector, memory),
                    None => {
                        report.finish(buffer);
                        self.end_report()
                    }
                }
            }
            Work::AllZones(all) => {
                if self.request.op == Op::ReportZones {
                    let taken = buffer.is_some_and(|b| all.take(b, result.zones));
                    if !taken {
                        return self.end(status::INTERNAL, 0, 0);
                    }
                }
                match all.next() {
                    zones::NextZone::Manage(op, sector, len_sectors) => {
                        self.request = IoRequest {
                            sector,
                            len_sectors,
                            ..IoRequest::new(self.request.disk, op)
                        };
                        CommandStep::Submit(self.request)
                    }
                    zones::NextZone::Report(sector, memory) => self.report(sector, memory),
                    zones::NextZone::End => self.end(status::SUCCESS, 0, 0),
                }
            }
            Work::Deallocation(_) => self.deallocate(buffer.as_deref()),
        }
    }

    fn report(&mut self, sector: Sector, memory: (u32, u32)) -> CommandStep {
        self.request =
            IoRequest { sector, memory, ..IoRequest::new(self.request.disk, Op::ReportZones) };
        CommandStep::Submit(self.request)
    }

    fn end_report(&self) -> CommandStep {
        let Work::Report(report) = &self.work else { return self.end(status::INTERNAL, 0, 0) };
        self.end(status::SUCCESS, 0, report.bytes())
    }

    /// Discards the next range of the list, or ends.
    fn deallocate(&mut self, data: Option<&AlignedBuf>) -> CommandStep {
        let Work::Deallocation(work) = &mut self.work else {
            return self.end(status::INTERNAL, 0, 0);
        };
        match data.and_then(|data| work.next(data)) {
            Some((sector, len_sectors)) => {
                (self.request.sector, self.request.len_sectors) = (sector, len_sectors);
                CommandStep::Submit(self.request)
            }
            None => self.end(status::SUCCESS, 0, 0),
        }
    }

    fn end(&self, status: u16, result: u64, send: u32) -> CommandStep {
        CommandStep::Answer(
            Completion { result, cid: self.cid, status, ..Default::default() },
            send,
        )
    }
}

/// Returns the range of a command: SLBA in command dwords 10 and 11, NLB in 12, less one.
fn range(c: &Command, n: &Namespace, op: Op) -> Result<IoRequest, u16> {
    let (lba, blocks) = (c.cdw_pair(10), (c.cdw(12) & 0xffff) + 1);
    if lba >= n.blocks() || u64::from(blocks) > n.blocks() - lba {
        return Err(status::LBA_RANGE);
    }
    let fua = op != Op::Read && c.cdw(12) & FUA != 0;
    Ok(IoRequest {
        sector: n.start().plus(lba << n.shift()),
        len_sectors: blocks << n.shift(),
        flags: if fua { Flags::FUA } else { Flags::NONE },
        ..IoRequest::new(n.disk(), op)
    })
}

/// Returns the range of a command whose data are as long as the range.
fn transfer(c: &Command, n: &Namespace, all: &Namespaces, op: Op) -> Result<IoRequest, u16> {
    let mut r = range(c, n, op)?;
    let bytes = u64::from(r.len_sectors) << 9;
    if bytes > u64::from(all.max_data()) {
        return Err(status::INVALID_FIELD);
    }
    check_length(c, bytes)?;
    r.memory = (0, bytes as u32);
    Ok(r)
}

/// Checks that a write does not leave its zone. NVMe requires a refusal where zoneplug would split the write.
fn in_one_zone(n: &Namespace, r: &IoRequest) -> Result<(), u16> {
    let Some(zones) = n.zones() else { return Ok(()) };
    let (_, offset) = zones.layout.zone_of(Sector(r.sector.0 - n.start().0));
    if r.len_sectors > zones.layout.zone_sectors() - offset {
        return Err(status::ZONE_BOUNDARY);
    }
    Ok(())
}

/// Checks that an append, or the management of a zone, names the start of the zone.
fn zone_start(n: &Namespace, zones: &Zones, sector: Sector) -> Result<(), u16> {
    let (_, offset) = zones.layout.zone_of(Sector(sector.0 - n.start().0));
    if offset == 0 { Ok(()) } else { Err(status::INVALID_FIELD) }
}

/// Returns the status of a completion. Hosts repeat a command unless it says *do not retry*; a repetition may succeed
/// only if a disk was busy or a read came short (J4).
pub fn code(op: Op, s: Status) -> u16 {
    match s {
        Status::Ok => status::SUCCESS,
        Status::Busy | Status::WouldBlock => s.nvme(),
        Status::ShortTransfer if op == Op::Read => s.nvme(),
        // The common table says Write Fault; a read needs Unrecovered Read Error.
        Status::Medium if op == Op::Read => status::UNRECOVERED_READ | status::DNR,
        // The common table has a path status, which only the host may report.
        Status::NoDevice => status::NOT_READY | status::DNR,
        s => s.nvme() | status::DNR,
    }
}
