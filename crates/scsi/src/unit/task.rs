//! The steps of a command. Nothing here takes a lock.

use super::answer::{Answer, AnswerData};
use super::manage::{NextZone, ZoneSweep};
use super::outcome::sense;
use super::report::{Report, record};
use super::{MAX_UNMAP_RANGES, Unit, control};
use crate::command::{BlockRange, ScsiCommand};
use crate::spec::block::{UNMAP_HEADER_LEN, UNMAP_RANGE_LEN, unmap_range, unmap_ranges};
use crate::spec::sense::{
    INTERNAL, INVALID_FIELD, MISCOMPARE, NO_ZONE_RESOURCES, OUT_OF_RANGE, READ_INVALID, SenseData,
    TOO_FEW_DATA,
};
use crate::spec::zone::ZoneAction;
use zoneplug_buf::AlignedBuf;
use zoneplug_core::zone::ZONE_RECORD_LEN;
use zoneplug_core::{Flags, Op, Sector, ZoneNo};

pub use zoneplug_core::{IoRequest, IoResult};

/// Most bytes that a WRITE SAME writes at a time, if its block is not of zeroes.
const MAX_FILL: u32 = 1 << 20;

/// The next step of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TaskStep {
    /// Submit this request, and call [`Task::next`] when it has ended.
    Submit(IoRequest),
    /// Answer the command.
    Answer(Answer),
}

/// A command that is being carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Task {
    work: Work,
    /// Bytes of the buffer that the command needs.
    buffer_bytes: u32,
    /// Bytes of data that the command brings.
    data_out: u64,
    request: IoRequest,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Work {
    /// One request.
    Single(End),
    /// The zone of a read is reported first, because blocks above its write pointer cannot be read.
    RestrictedRead {
        range: BlockRange,
        zone: ZoneNo,
        end: End,
    },
    /// One block is written to a range, `piece` blocks at a time, of which `done` were requested.
    Fill {
        range: BlockRange,
        piece: u32,
        done: u32,
    },
    Report(Report),
    Sweep(ZoneSweep),
    /// The ranges of UNMAP, of which so many were requested.
    Unmap {
        done: usize,
        ranges: usize,
    },
}

/// The next step after the last request of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Nothing,
    /// So many bytes are sent.
    Send(u32),
    /// So many bytes behind the data of the command are compared with them.
    Compare(u32),
}

impl Task {
    /// A command that is answered at once.
    pub(super) fn answered(unit: u32, answer: Answer) -> (Task, TaskStep) {
        let task = Task {
            work: Work::Single(End::Nothing),
            buffer_bytes: 0,
            data_out: 0,
            request: IoRequest::new(unit, Op::Flush),
        };
        (task, TaskStep::Answer(answer))
    }

    /// Checks a command and returns the first step. `data`: the buffer with the data of the command, and
    /// how many bytes came. `expected`: most bytes
    /// that the initiator takes.
    pub(super) fn begin(
        unit: &Unit,
        command: &ScsiCommand,
        data: Option<&AlignedBuf>,
        brought: u32,
        expected: u32,
    ) -> (Task, TaskStep) {
        match Task::checked(unit, command, data, brought, expected) {
            Ok(Begun::Task(mut task)) => {
                let step = task.start(unit, data);
                (task, step)
            }
            Ok(Begun::Answer(answer)) => Task::answered(unit.disk(), answer),
            Err(sense) => Task::answered(unit.disk(), Answer::failed(sense)),
        }
    }

    /// Returns the bytes of data that the command brings, as its fields say.
    pub fn data_out(&self) -> u64 {
        self.data_out
    }

    /// Sets the bytes of data that the command brings.
    pub(super) fn with_data_out(mut self, bytes: u64) -> Task {
        self.data_out = bytes;
        self
    }

    /// Returns the bytes that the command's buffer must have before the first request is submitted.
    pub fn buffer_bytes(&self) -> u32 {
        self.buffer_bytes
    }

    fn checked(
        unit: &Unit,
        command: &ScsiCommand,
        data: Option<&AlignedBuf>,
        brought: u32,
        expected: u32,
    ) -> Result<Begun, SenseData> {
        let disk = unit.disk();
        let needed = command.data_out(unit.block_len());
        let brought = data.map_or(0, |d| u64::from(brought.min(d.len())));
        let nothing = Begun::Answer(Answer::good(AnswerData::None));
        let single = |op, range: BlockRange, flags, memory: (u32, u32), end| {
            let request = IoRequest {
                sector: unit.sector(range.lba),
                len_sectors: range.blocks << unit.shift,
                flags,
                memory,
                ..IoRequest::new(disk, op)
            };
            let buffer_bytes = memory.0 + memory.1;
            Begun::Task(Task { work: Work::Single(end), buffer_bytes, data_out: 0, request })
        };
        let no_range = BlockRange { lba: 0, blocks: 0 };
        let fua = |fua| if fua { Flags::FUA } else { Flags::NONE };
        Ok(match *command {
            ScsiCommand::Read { range, .. } | ScsiCommand::Verify { range, .. } => {
                let restricted = unit.check_read(range)?;
                if range.blocks == 0 {
                    return Ok(nothing);
                }
                if brought < needed {
                    return Err(TOO_FEW_DATA.into());
                }
                let bytes = range.blocks * unit.block_len();
                // The data to compare are read behind the data of the command.
                let (memory, end) = match *command {
                    ScsiCommand::Read { .. } => ((0, bytes), End::Send(bytes)),
                    ScsiCommand::Verify { compare: true, .. } => {
                        ((bytes, bytes), End::Compare(bytes))
                    }
                    _ => ((0, bytes), End::Nothing),
                };
                match (restricted, single(Op::Read, range, Flags::NONE, memory, end)) {
                    (Some(zone), Begun::Task(task)) => {
                        let work = Work::RestrictedRead { range, zone, end };
                        let buffer_bytes = memory.0 + bytes.max(ZONE_RECORD_LEN as u32);
                        Begun::Task(Task { work, buffer_bytes, ..task })
                    }
                    (_, whole) => whole,
                }
            }
            ScsiCommand::Write { range, fua: durable } => {
                unit.check_write(range)?;
                unit.check_transfer(range)?;
                if range.blocks == 0 {
                    return Ok(nothing);
                }
                if brought < needed {
                    return Err(TOO_FEW_DATA.into());
                }
                single(Op::Write, range, fua(durable), (0, needed as u32), End::Nothing)
            }
            ScsiCommand::WriteSame { range, .. } => {
                unit.check_write(range)?;
                if range.blocks == 0 || range.blocks > unit.max_zeroes() {
                    return Err(INVALID_FIELD.into());
                }
                if brought < needed {
                    return Err(TOO_FEW_DATA.into());
                }
                let block = data.map_or(&[][..], |d| &d.as_slice()[..needed as usize]);
                if block.iter().all(|b| *b == 0) {
                    single(Op::WriteZeroes, range, Flags::NONE, (0, 0), End::Nothing)
                } else {
                    let most = unit.max_transfer().min(MAX_FILL) / unit.block_len();
                    let piece = range.blocks.min(most.max(1));
                    Begun::Task(Task {
                        work: Work::Fill { range, piece, done: 0 },
                        buffer_bytes: piece * unit.block_len(),
                        data_out: 0,
                        request: IoRequest::new(disk, Op::Write),
                    })
                }
            }
            ScsiCommand::SynchronizeCache(range) => {
                unit.check_range(range)?;
                single(Op::Flush, no_range, Flags::NONE, (0, 0), End::Nothing)
            }
            // A unit that stops keeps what it has acknowledged.
            ScsiCommand::StartStopUnit { start: false, condition: 0 } => {
                single(Op::Flush, no_range, Flags::NONE, (0, 0), End::Nothing)
            }
            ScsiCommand::Unmap { list_len } => {
                if list_len == 0 {
                    return Ok(nothing);
                }
                let list = data.map_or(&[][..], |d| d.as_slice());
                let list = list
                    .get(..list_len as usize)
                    .filter(|_| brought >= needed)
                    .ok_or(TOO_FEW_DATA)?;
                let ranges = unmap(unit, list)?;
                Begun::Task(Task {
                    work: Work::Unmap { done: 0, ranges },
                    buffer_bytes: 0,
                    data_out: 0,
                    request: IoRequest::new(disk, Op::Discard),
                })
            }
            ScsiCommand::ReportZones { lba, reporting, partial, allocation } => {
                let Some(g) = unit.zones else { return Err(INVALID_FIELD.into()) };
                if lba >= unit.blocks {
                    return Err(SenseData { information: Some(lba), ..OUT_OF_RANGE.into() });
                }
                let bytes = allocation.min(expected).min(unit.max_transfer());
                let first = g.zone_of(unit.sector(lba)).0;
                let report = Report::new(first, g.nr_zones(), reporting, partial, bytes);
                let buffer_bytes = report.buffer_bytes();
                Begun::Task(Task {
                    work: Work::Report(report),
                    buffer_bytes,
                    data_out: 0,
                    request: IoRequest::new(disk, Op::ReportZones),
                })
            }
            ScsiCommand::ManageZones { action, lba, count, all } => {
                return manage(unit, action, lba, u32::from(count), all).map(Begun::Task);
            }
            ref other => Begun::Answer(control::answer(unit, other)?),
        })
    }

    fn start(&mut self, unit: &Unit, data: Option<&AlignedBuf>) -> TaskStep {
        match self.work {
            Work::Single(_) => TaskStep::Submit(self.request),
            Work::RestrictedRead { zone, .. } => {
                let memory = (self.request.memory.0, ZONE_RECORD_LEN as u32);
                let report = IoRequest { memory, ..self.request };
                let sector = unit.zones.map_or(Sector(0), |g| g.zone_start(zone));
                TaskStep::Submit(IoRequest {
                    op: Op::ReportZones,
                    sector,
                    len_sectors: 0,
                    ..report
                })
            }
            // The header of a report is written when the disk has answered; a report asks for one zone at least.
            Work::Report(_) => self.go_on(unit, None),
            Work::Sweep(_) | Work::Unmap { .. } | Work::Fill { .. } => self.go_on(unit, data),
        }
    }

    /// Prepares the command's buffer, which has [`Task::buffer_bytes`] and begins with the data of the command, before the
    /// first request is submitted.
    pub fn prepare(&self, buffer: &mut AlignedBuf) {
        let Work::Fill { piece, .. } = self.work else { return };
        let block = self.buffer_bytes as usize / piece.max(1) as usize;
        let bytes = &mut buffer.as_mut_slice()[..self.buffer_bytes as usize];
        for n in 1..piece as usize {
            bytes.copy_within(..block, n * block);
        }
    }

    /// Returns a request of the command together with the earlier ones that have written before it.
    pub fn since_its_begin(&self, unit: &Unit, request: &IoRequest) -> IoRequest {
        let Work::Fill { range, .. } = self.work else { return *request };
        if request.op != Op::Write {
            return *request;
        }
        let sector = unit.sector(range.lba);
        let end = request.sector.0 + u64::from(request.len_sectors);
        IoRequest { sector, len_sectors: (end - sector.0) as u32, ..*request }
    }

    /// Returns the step after a request has ended. `buffer`: the command's buffer, with its data or what was read.
    pub fn next(
        &mut self,
        unit: &Unit,
        result: IoResult,
        mut buffer: Option<&mut AlignedBuf>,
    ) -> TaskStep {
        let report = matches!(self.work, Work::RestrictedRead { .. });
        let op = if report { Op::ReportZones } else { self.request.op };
        if let Some(sense) = sense(op, result.status) {
            return TaskStep::Answer(Answer::failed(sense));
        }
        let wrong = || TaskStep::Answer(Answer::failed(INTERNAL));
        match &mut self.work {
            Work::Single(End::Nothing) => return TaskStep::Answer(Answer::good(AnswerData::None)),
            Work::Single(End::Send(n)) => {
                return TaskStep::Answer(Answer::good(AnswerData::Buffer(*n)));
            }
            Work::Single(End::Compare(n)) => {
                let n = *n as usize;
                let Some(bytes) = buffer.as_deref().and_then(|b| b.as_slice().get(..2 * n)) else {
                    return wrong();
                };
                return TaskStep::Answer(match bytes[..n] == bytes[n..] {
                    true => Answer::good(AnswerData::None),
                    false => Answer::failed(MISCOMPARE),
                });
            }
            Work::RestrictedRead { range, zone, end: then } => {
                let (Some(g), Some(buffer)) = (unit.zones, buffer.as_deref()) else {
                    return wrong();
                };
                let at = self.request.memory.0;
                let Some(z) = record(&g, buffer, at, zone.0) else { return wrong() };
                let end = unit.sector(range.lba + u64::from(range.blocks));
                // The write pointer of a full or read-only zone is behind it.
                if end.0 > z.wp.0 {
                    return TaskStep::Answer(Answer::failed(READ_INVALID));
                }
                self.work = Work::Single(*then);
                return TaskStep::Submit(self.request);
            }
            Work::Report(report) => {
                let Some(buffer) = buffer.as_deref_mut() else { return wrong() };
                if !report.take(unit, buffer, self.request.memory, result.zones) {
                    return wrong();
                }
            }
            Work::Sweep(sweep) if op == Op::ReportZones => {
                let (Some(g), Some(buffer)) = (unit.zones, buffer.as_deref()) else {
                    return wrong();
                };
                if !sweep.take(&g, buffer, result.zones) {
                    return wrong();
                }
            }
            Work::Sweep(_) | Work::Unmap { .. } | Work::Fill { .. } => {}
        }
        if let (Work::Report(report), Some(buffer)) = (&mut self.work, buffer.as_deref_mut())
            && report.next_part().is_none()
        {
            let bytes = report.finish(unit, buffer);
            return TaskStep::Answer(Answer::good(AnswerData::Buffer(bytes)));
        }
        self.go_on(unit, buffer.as_deref())
    }

    /// Returns the next request of a command that makes several.
    fn go_on(&mut self, unit: &Unit, buffer: Option<&AlignedBuf>) -> TaskStep {
        if let Work::Fill { range, piece, done } = &mut self.work {
            let blocks = (*piece).min(range.blocks - *done);
            if blocks == 0 {
                return TaskStep::Answer(Answer::good(AnswerData::None));
            }
            self.request.sector = unit.sector(range.lba + u64::from(*done));
            self.request.len_sectors = blocks << unit.shift;
            self.request.memory = (0, blocks * unit.block_len());
            *done += blocks;
            return TaskStep::Submit(self.request);
        }
        let Some(g) = unit.zones else { return self.next_range(unit, buffer) };
        let disk = unit.disk();
        match &mut self.work {
            Work::Report(report) => {
                let (zone, memory) = report.next_part().unwrap_or((ZoneNo(0), report.one_record()));
                self.request = IoRequest {
                    sector: g.zone_start(zone),
                    memory,
                    ..IoRequest::new(disk, Op::ReportZones)
                };
                TaskStep::Submit(self.request)
            }
            Work::Sweep(sweep) => {
                let op = sweep.op();
                self.request = match sweep.next() {
                    NextZone::Manage(zone) => IoRequest {
                        sector: g.zone_start(zone),
                        len_sectors: g.zone_len_sectors(zone),
                        ..IoRequest::new(disk, op)
                    },
                    NextZone::Report(zone, zones) => IoRequest {
                        sector: g.zone_start(zone),
                        memory: (0, zones * ZONE_RECORD_LEN as u32),
                        ..IoRequest::new(disk, Op::ReportZones)
                    },
                    NextZone::End => return TaskStep::Answer(Answer::good(AnswerData::None)),
                    NextZone::NoResources => {
                        return TaskStep::Answer(Answer::failed(NO_ZONE_RESOURCES));
                    }
                };
                TaskStep::Submit(self.request)
            }
            _ => self.next_range(unit, buffer),
        }
    }

    /// Returns the request for the next range of UNMAP.
    fn next_range(&mut self, unit: &Unit, list: Option<&AlignedBuf>) -> TaskStep {
        let Work::Unmap { done, ranges } = &mut self.work else {
            return TaskStep::Answer(Answer::failed(INTERNAL));
        };
        while *done < *ranges {
            let Some(list) = list else { return TaskStep::Answer(Answer::failed(INTERNAL)) };
            let (lba, blocks) = unmap_range(list.as_slice(), *done);
            *done += 1;
            if blocks > 0 {
                self.request.sector = unit.sector(lba);
                self.request.len_sectors = blocks << unit.shift;
                return TaskStep::Submit(self.request);
            }
        }
        TaskStep::Answer(Answer::good(AnswerData::None))
    }
}

/// A command that passed its checks.
enum Begun {
    Task(Task),
    Answer(Answer),
}

/// Checks the ranges of UNMAP. Returns their number. Blocks of a sequential zone are forgotten by its reset only.
fn unmap(unit: &Unit, list: &[u8]) -> Result<usize, SenseData> {
    let ranges = unmap_ranges(list).ok_or(crate::spec::sense::PARAMETER_LENGTH)?;
    if ranges > MAX_UNMAP_RANGES as usize {
        return Err(SenseData::parameter(2, None));
    }
    for i in 0..ranges {
        let (lba, blocks) = unmap_range(list, i);
        let range = BlockRange { lba, blocks };
        unit.check_range(range)?;
        if !unit.is_conventional(range) || blocks > u32::MAX >> unit.shift {
            return Err(SenseData::parameter(
                (UNMAP_HEADER_LEN + i * UNMAP_RANGE_LEN) as u16,
                None,
            ));
        }
    }
    Ok(ranges)
}

/// Checks a command that changes zones.
fn manage(
    unit: &Unit,
    action: ZoneAction,
    lba: u64,
    count: u32,
    all: bool,
) -> Result<Task, SenseData> {
    let Some(g) = unit.zones else { return Err(INVALID_FIELD.into()) };
    let disk = unit.disk();
    if all && action == ZoneAction::Reset {
        let request = IoRequest::new(disk, Op::ZoneResetAll);
        return Ok(Task {
            work: Work::Single(End::Nothing),
            buffer_bytes: 0,
            data_out: 0,
            request,
        });
    }
    let sweep = if all {
        ZoneSweep::all(action, g.nr_zones(), unit.max_open())
    } else {
        if lba >= unit.blocks {
            return Err(SenseData { information: Some(lba), ..OUT_OF_RANGE.into() });
        }
        let (first, offset) = g.zone_of(unit.sector(lba));
        if offset != 0 {
            return Err(SenseData::field(2, None));
        }
        if count > g.nr_zones() - first.0 {
            return Err(SenseData::field(12, None));
        }
        if (first.0..first.0 + count).any(|z| g.is_conventional(ZoneNo(z))) {
            return Err(SenseData::field(2, None));
        }
        ZoneSweep::range(action, first, count)
    };
    let buffer_bytes = if all { ZoneSweep::BUFFER_BYTES } else { 0 };
    let request = IoRequest::new(disk, Op::Flush);
    Ok(Task { work: Work::Sweep(sweep), buffer_bytes, data_out: 0, request })
}
