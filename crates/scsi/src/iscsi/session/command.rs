//! Commands that arrive: their data, requests for data (R2T), and their order.
//!
//! The commands of a unit begin in the order of their numbers, each when all of its data are there. So a write with
//! immediate data does not overtake an earlier one whose data are still to come.

use super::window::Turn;
use super::{Phase, Server, Session};
use crate::iscsi::header::{Header, NO_TAG, opcode};
use crate::iscsi::target::Begun;
use crate::spec::ScsiStatus;
use crate::spec::sense::INVALID_FIELD;
use crate::unit::{Answer, AnswerData, Task, TaskStep, Unit};
use std::sync::Arc;
use zoneplug_buf::{AlignedBuf, Lent};
use zoneplug_core::{DiskClient, IoRequest};
use zoneplug_recovery::Resending;

/// The reasons of Reject (RFC 7143, section 11.17.1).
pub(super) mod reject {
    pub(crate) const PROTOCOL: u8 = 0x04;
    pub(crate) const UNSUPPORTED: u8 = 0x05;
    pub(crate) const IMMEDIATE: u8 = 0x06;
    pub(crate) const IN_PROGRESS: u8 = 0x07;
}

/// The place of the data of the PDU that arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DataPlace {
    /// They are not used.
    Nowhere,
    /// The list of bytes.
    List,
    /// The buffer of a command, from this byte on.
    Buffer(u16, usize),
}

/// A command that is being carried out.
#[derive(Debug)]
pub(super) struct Work {
    pub(super) unit: Arc<Unit>,
    pub(super) task: Task,
    /// The request that is at the disk.
    pub(super) request: IoRequest,
}

impl Work {
    /// Returns the request that is at the disk, together with those of a WRITE SAME before it.
    pub(super) fn changes(&self) -> IoRequest {
        self.task.since_its_begin(&self.unit, &self.request)
    }
}

/// A command that has not ended.
#[derive(Debug)]
pub(super) struct Command {
    pub(super) header: Header,
    /// The memory, while no BIO has it.
    pub(super) data: Option<AlignedBuf>,
    pub(super) lent: Option<Lent>,
    /// Bytes of its data that have come.
    pub(super) received: u32,
    /// The end of the data that were asked for, or that may come unasked.
    until: u32,
    /// Data come unasked until a final PDU.
    unsolicited: bool,
    /// The tag of the data that were asked for.
    transfer: u32,
    /// The number of the next data of the sequence.
    sequence_sn: u32,
    /// R2T so far: their numbers count within a command. Later: PDUs with data to the initiator.
    pub(super) data_sn: u32,
    /// All data are there.
    ready: bool,
    /// The answer, if the data are not used.
    refusal: Option<ScsiStatus>,
    /// Not answered: task management has ended it.
    pub(super) aborted: bool,
    pub(super) work: Option<Work>,
    /// The steps that replace the request if the initiator may have sent it before.
    pub(super) resending: Option<Box<Resending>>,
}

impl Command {
    /// Returns the expected data transfer length.
    pub(super) fn expected(&self) -> u32 {
        self.header.word20()
    }

    pub(super) fn reads(&self) -> bool {
        self.header.flags() & 0x40 != 0
    }

    pub(super) fn writes(&self) -> bool {
        is_write(&self.header)
    }

    /// Returns the disk that has a BIO of the command.
    pub(super) fn disk(&self) -> Option<u32> {
        self.work.as_ref().map(|work| work.request.disk)
    }
}

/// Returns whether a command brings data (W).
pub(super) fn is_write(h: &Header) -> bool {
    h.flags() & 0x20 != 0
}

impl<C: DiskClient> Session<C> {
    pub(super) fn command(&mut self, slot: u16) -> Option<&mut Command> {
        self.commands[usize::from(slot)].as_mut()
    }

    /// Returns the slot of the command with this tag.
    pub(super) fn slot_of(&self, tag: u32) -> Option<u16> {
        if tag == NO_TAG {
            return None;
        }
        // A fold over eight tags has no branches, so that few instructions compare them.
        let is = |t: &u32| *t == tag;
        let has = |all: &[u32]| all.iter().fold(false, |found, t| found | is(t));
        let first = 8 * self.tags.chunks_exact(8).position(has)?;
        let n = first + self.tags[first..].iter().position(is)?;
        Some(n as u16)
    }

    /// Takes the header of a command. Returns the place of its immediate data.
    pub(super) fn command_begins<S: Server<C>>(&mut self, h: &Header, server: &mut S) -> DataPlace {
        if self.stops {
            return DataPlace::Nowhere;
        }
        match self.window.take(h, true) {
            Turn::Now => {}
            Turn::Ignored => return DataPlace::Nowhere,
            Turn::Gap => {
                self.failed = true;
                return DataPlace::Nowhere;
            }
        }
        let reason = if h.task_tag() == NO_TAG {
            Some(reject::PROTOCOL)
        } else if self.slot_of(h.task_tag()).is_some() {
            Some(reject::IN_PROGRESS)
        } else if self.free.is_empty() {
            Some(reject::IMMEDIATE)
        } else {
            None
        };
        if let Some(reason) = reason {
            if !h.is_immediate() {
                self.window.ended();
            }
            self.reject(h, reason);
            return DataPlace::Nowhere;
        }
        let writes = is_write(h);
        let expected = if writes { h.word20() } else { 0 };
        let (brings, agreed) = (h.data_len() as u32, &self.agreed);
        let first = agreed.first_burst.min(expected);
        let wrong = brings > first
            || brings > 0 && !agreed.immediate_data
            || !h.is_final() && (agreed.initial_r2t || !writes);
        let Some(slot) = self.free.pop().filter(|_| !wrong) else {
            self.failed = true;
            return DataPlace::Nowhere;
        };
        let mut command = Command {
            header: *h,
            data: None,
            lent: None,
            received: 0,
            until: if h.is_final() { brings } else { first },
            unsolicited: !h.is_final(),
            transfer: NO_TAG,
            sequence_sn: 0,
            data_sn: 0,
            ready: false,
            refusal: None,
            aborted: false,
            work: None,
            resending: None,
        };
        if expected > self.config.max_transfer {
            command.refusal = Some(ScsiStatus::CheckCondition);
        } else if self.memory + expected > self.config.memory {
            command.refusal = Some(ScsiStatus::TaskSetFull);
        } else if expected > 0 {
            let buf = server.buffers().take(expected);
            self.memory += buf.len();
            command.data = Some(buf);
        }
        self.commands[usize::from(slot)] = Some(command);
        self.tags[usize::from(slot)] = h.task_tag();
        self.order.push_back(slot);
        DataPlace::Buffer(slot, 0)
    }

    /// Takes the header of data. Returns their place.
    pub(super) fn data_begin(&mut self, h: &Header) -> DataPlace {
        let found = match h.word20() {
            NO_TAG => self.slot_of(h.task_tag()),
            // The low half of a tag is the slot.
            tag => Some(tag as u16).filter(|n| usize::from(*n) < self.commands.len()),
        };
        // The data of a command that has ended may still come.
        let Some(slot) = found else { return DataPlace::Nowhere };
        let Some(c) = self.command(slot) else { return DataPlace::Nowhere };
        let (at, tag) = (h.buffer_offset(), h.word20());
        if c.header.task_tag() != h.task_tag() || c.transfer != tag {
            return DataPlace::Nowhere;
        }
        let fits = u64::from(at) + h.data_len() as u64 <= u64::from(c.until);
        let asked = tag != NO_TAG || c.unsolicited;
        // A number that is missing stands for data that are missing, and no data are asked for twice (ErrorRecoveryLevel 0).
        if c.ready || !asked || at != c.received || !fits || h.data_sn() != c.sequence_sn {
            self.failed = true;
            return DataPlace::Nowhere;
        }
        c.sequence_sn = c.sequence_sn.wrapping_add(1);
        DataPlace::Buffer(slot, at as usize)
    }

    /// Takes the end of a PDU with data of a command, or of a command.
    pub(super) fn data_arrived<S: Server<C>>(&mut self, slot: u16, h: &Header, server: &mut S) {
        let Some(c) = self.command(slot) else { return };
        c.received += h.data_len() as u32;
        if !h.is_final() {
            return;
        }
        c.unsolicited = false;
        if h.opcode() == opcode::DATA_OUT && c.transfer != NO_TAG && c.received != c.until {
            // A sequence that was asked for, and that ends early.
            self.failed = true;
            return;
        }
        c.ready = !c.writes() || c.refusal.is_some() || c.received == c.expected();
        if !c.ready {
            self.ask_for_data(slot);
        }
        self.begin_commands(server);
    }

    /// Takes the end of a PDU whose data are not used.
    pub(super) fn data_discarded<S: Server<C>>(&mut self, _: &Header, server: &mut S) {
        self.begin_commands(server);
    }

    /// Asks for the next data of a command (R2T).
    fn ask_for_data(&mut self, slot: u16) {
        self.transfer = self.transfer.wrapping_add(1) & 0x7fff;
        let (tag, burst) =
            (u32::from(self.transfer) << 16 | u32::from(slot), self.agreed.max_burst);
        let Some(c) = self.command(slot) else { return };
        let len = (c.expected() - c.received).min(burst);
        (c.transfer, c.until, c.sequence_sn) = (tag, c.received + len, 0);
        let mut r2t = Header::new(opcode::R2T)
            .with_flags(0x80)
            .with_word(16, c.header.task_tag())
            .with_word(20, tag)
            .with_word(36, c.data_sn)
            .with_word(40, c.received)
            .with_word(44, len);
        r2t.0[8..16].copy_from_slice(&c.header.lun());
        c.data_sn += 1;
        let r2t = self.window.number_next(r2t);
        self.output.push(r2t, Vec::new());
    }

    /// Begins the commands whose turn it is. Returns false if there was none.
    pub(super) fn begin_commands<S: Server<C>>(&mut self, server: &mut S) -> bool {
        let Phase::Full(member) = self.phase else { return false };
        if self.order.is_empty() || self.stops || self.ended {
            return false;
        }
        if !self.open {
            self.open = server.target(|target| target.may_begin(member));
            if !self.open {
                return false;
            }
        }
        let (mut n, mut progress) = (0, false);
        while let Some(slot) = self.order.get(n).copied() {
            if self.is_next(n, slot) {
                self.order.remove(n);
                self.begin(slot, member.nexus, server);
                progress = true;
            } else {
                n += 1;
            }
        }
        progress
    }

    /// Returns whether the `n`th command that has not begun may begin.
    fn is_next(&self, n: usize, slot: u16) -> bool {
        let command = |slot: u16| self.commands[usize::from(slot)].as_ref();
        let Some(c) = command(slot).filter(|c| c.ready) else { return false };
        let before = self.order.iter().take(n).filter_map(|slot| command(*slot));
        before.into_iter().all(|other| other.header.lun() != c.header.lun())
    }

    fn begin<S: Server<C>>(&mut self, slot: u16, nexus: crate::unit::Nexus, server: &mut S) {
        let Some(c) = self.commands[usize::from(slot)].as_mut() else { return };
        if let Some(status) = c.refusal {
            let sense = (status == ScsiStatus::CheckCondition).then(|| INVALID_FIELD.into());
            return self.answer(slot, Answer { status, sense, data: AnswerData::None }, server);
        }
        let (data, data_len) = (c.data.as_ref(), c.received);
        // Only a command that reads has room for an answer.
        let expected = if c.reads() { c.expected() } else { 0 };
        let h = c.header;
        match server.target(|t| t.begin(nexus, h.lun(), h.cdb(), data, data_len, expected)) {
            Begun::Answer(answer) => self.answer(slot, answer, server),
            Begun::Task(unit, task, step) => {
                let need = task.buffer_bytes();
                if matches!(step, TaskStep::Submit(_))
                    && c.data.as_ref().map_or(0, |d| d.len()) < need
                {
                    let had = c.data.take();
                    let mut buf = server.buffers().take(need);
                    if let Some(had) = &had {
                        buf.write(0, had.as_slice());
                    }
                    self.memory = self.memory + buf.len() - had.as_ref().map_or(0, |d| d.len());
                    c.data = Some(buf);
                    had.into_iter().for_each(|buf| server.buffers().put(buf));
                    if self.memory > self.config.memory {
                        let status = ScsiStatus::TaskSetFull;
                        let full = Answer { status, sense: None, data: AnswerData::None };
                        return self.answer(slot, full, server);
                    }
                }
                if let Some(buf) = &mut c.data {
                    task.prepare(buf);
                }
                let request = IoRequest::new(u32::MAX, zoneplug_core::Op::Flush);
                c.work = Some(Work { unit, task, request });
                self.go_on(slot, step, server);
            }
        }
    }

    /// Drops the commands that have not begun.
    pub(super) fn drop_waiting<S: Server<C>>(&mut self, server: &mut S) {
        while let Some(slot) = self.order.pop_front() {
            self.forget(slot, server);
        }
    }

    /// Frees the slot of a command. Returns it without its memory.
    pub(super) fn forget<S: Server<C>>(&mut self, slot: u16, server: &mut S) -> Option<Command> {
        let mut c = self.commands[usize::from(slot)].take()?;
        self.tags[usize::from(slot)] = NO_TAG;
        self.free.push(slot);
        self.incoming.forget(slot);
        if !c.header.is_immediate() {
            self.window.ended();
        }
        let kept = c.resending.take().and_then(|resending| resending.into_data());
        for buf in [c.data.take(), kept].into_iter().flatten() {
            self.memory -= buf.len();
            server.buffers().put(buf);
        }
        Some(c)
    }
}
