//! All requests but commands: task management, text, NOP, logout. And what the target says by itself.

use super::command::reject;
use super::window::Turn;
use super::{Phase, Server, Session};
use crate::iscsi::header::{Header, NO_TAG, opcode};
use crate::iscsi::text::{encode_text, parse_text};
use crate::spec::sense::SenseData;
use crate::unit::{decode_lun, encode_lun};
use zoneplug_core::{DiskClient, Sense};

/// The functions of task management (RFC 7143, section 11.5.1).
mod function {
    pub(super) const ABORT_TASK: u8 = 1;
    pub(super) const ABORT_TASK_SET: u8 = 2;
    pub(super) const UNIT_RESET: u8 = 5;
    pub(super) const TARGET_RESET: u8 = 6;
    pub(super) const REASSIGN: u8 = 8;
}

/// The answers to task management (RFC 7143, section 11.6.1).
mod response {
    pub(super) const COMPLETE: u8 = 0;
    pub(super) const NO_TASK: u8 = 1;
    pub(super) const NO_UNIT: u8 = 2;
    pub(super) const NO_REASSIGNMENT: u8 = 4;
    pub(super) const UNSUPPORTED: u8 = 5;
}

/// A list of keys that comes in parts, or goes.
const CONTINUE: u8 = 0x40;
const FINAL: u8 = 0x80;
/// Most requests that wait for commands at the disks.
const MAX_PENDING: usize = 64;

/// Task management that waits for commands at the disks.
#[derive(Debug)]
pub(super) struct Pending {
    tag: u32,
    /// The slots of the commands.
    slots: Vec<u16>,
}

impl<C: DiskClient> Session<C> {
    /// Takes a request that is no command.
    pub(super) fn manage<S: Server<C>>(&mut self, h: &Header, data: &[u8], server: &mut S) {
        if h.opcode() != opcode::SNACK {
            match self.window.take(h, false) {
                Turn::Now => {}
                Turn::Ignored => return,
                Turn::Gap => return self.failed = true,
            }
        }
        match (&self.phase, h.opcode()) {
            (_, opcode::NOP_OUT) => self.nop(h, data),
            (_, opcode::TEXT) => self.text(h, data, server),
            (_, opcode::LOGOUT) => self.log_out(h, server),
            (Phase::Full(_), opcode::TASK_MANAGEMENT) => self.manage_tasks(h, server),
            _ => self.reject(h, reject::UNSUPPORTED),
        }
        // A request of the initiator may have been the last one before a command's turn.
        self.begin_commands(server);
    }

    /// Rejects a PDU. The answer has its header.
    pub(super) fn reject(&mut self, h: &Header, reason: u8) {
        let mut answer = Header::new(opcode::REJECT).with_flags(FINAL).with_word(16, NO_TAG);
        answer.0[2] = reason;
        let answer = self.window.number_status(answer);
        self.output.push(answer, h.0.to_vec());
    }

    fn nop(&mut self, h: &Header, data: &[u8]) {
        // Without a tag it answers a ping of the target, or asks for nothing.
        if h.task_tag() == NO_TAG {
            return;
        }
        let len = data.len().min(self.agreed.max_send_data as usize);
        let mut answer = Header::new(opcode::NOP_IN)
            .with_flags(FINAL)
            .with_word(16, h.task_tag())
            .with_word(20, NO_TAG);
        answer.0[8..16].copy_from_slice(&h.lun());
        let answer = self.window.number_status(answer);
        self.output.push(answer, data[..len].to_vec());
    }

    fn text<S: Server<C>>(&mut self, h: &Header, data: &[u8], server: &mut S) {
        // An empty request with the target's tag asks for the rest of a long answer. No request is so long that it
        // comes in parts.
        let rest = h.word20() != NO_TAG && data.is_empty() && !self.text.is_empty();
        if h.flags() & CONTINUE != 0 || h.task_tag() == NO_TAG {
            return self.reject(h, reject::PROTOCOL);
        }
        if !rest {
            let Ok(keys) = parse_text(data) else { return self.reject(h, reject::PROTOCOL) };
            let at = self.at;
            self.text = keys
                .iter()
                .flat_map(|(key, value)| match (*key, *value) {
                    ("SendTargets", name) => server.target(|t| {
                        let wanted = matches!(name, "All" | "") || name == t.name();
                        if wanted { t.records(at) } else { Vec::new() }
                    }),
                    (key, _) => encode_text([(key, "NotUnderstood")]),
                })
                .collect();
        }
        let len = self.text.len().min(self.agreed.max_send_data as usize);
        let part: Vec<u8> = self.text.drain(..len).collect();
        let more = !self.text.is_empty();
        let mut answer = Header::new(opcode::TEXT_RESPONSE)
            .with_flags(if more { CONTINUE } else { FINAL })
            .with_word(16, h.task_tag())
            .with_word(20, if more { 1 } else { NO_TAG });
        answer.0[8..16].copy_from_slice(&h.lun());
        let answer = self.window.number_status(answer);
        self.output.push(answer, part);
    }

    fn log_out<S: Server<C>>(&mut self, h: &Header, server: &mut S) {
        let mut answer =
            Header::new(opcode::LOGOUT_RESPONSE).with_flags(FINAL).with_word(16, h.task_tag());
        // To keep a connection's commands for another one (reason 2) needs a higher level of recovery.
        let ends = h.flags() & 0x7f < 2;
        answer.0[2] = if ends { 0 } else { 2 };
        if ends {
            self.drop_waiting(server);
        }
        // DefaultTime2Wait.
        answer.0[41] = 2;
        let answer = self.window.number_status(answer);
        self.output.push(answer, Vec::new());
        if ends {
            self.phase = Phase::Closing(self.member());
        }
    }

    fn manage_tasks<S: Server<C>>(&mut self, h: &Header, server: &mut S) {
        if self.pending.len() >= MAX_PENDING {
            return self.reject(h, reject::IMMEDIATE);
        }
        let (function, tag) = (h.flags() & 0x7f, h.word20());
        let unit = server.target(|target| target.unit(h.lun()));
        let Phase::Full(member) = self.phase else { return };
        let result = match function {
            function::ABORT_TASK => match self.slot_of(tag) {
                Some(slot) => Ok(self.abort([slot], server)),
                None => Err(response::NO_TASK),
            },
            function::ABORT_TASK_SET | function::UNIT_RESET if unit.is_none() => {
                Err(response::NO_UNIT)
            }
            function::ABORT_TASK_SET => Ok(self.abort_unit(unit, server)),
            function::UNIT_RESET => {
                server.target(|target| target.reset(unit, member));
                Ok(self.abort_unit(unit, server))
            }
            function::TARGET_RESET => {
                server.target(|target| target.reset(None, member));
                Ok(self.abort_unit(None, server))
            }
            function::REASSIGN => Err(response::NO_REASSIGNMENT),
            _ => Err(response::UNSUPPORTED),
        };
        match result {
            Ok(slots) if !slots.is_empty() => {
                self.pending.push(Pending { tag: h.task_tag(), slots });
            }
            Ok(_) => self.task_response(h.task_tag(), response::COMPLETE),
            Err(response) => self.task_response(h.task_tag(), response),
        }
    }

    fn task_response(&mut self, tag: u32, response: u8) {
        let mut answer =
            Header::new(opcode::TASK_MANAGEMENT_RESPONSE).with_flags(FINAL).with_word(16, tag);
        answer.0[2] = response;
        let answer = self.window.number_status(answer);
        self.output.push(answer, Vec::new());
    }

    /// Aborts commands. Those that have not begun are gone. Returns those at the disks: they end there, and are not
    /// answered.
    fn abort<S: Server<C>>(
        &mut self,
        slots: impl IntoIterator<Item = u16>,
        server: &mut S,
    ) -> Vec<u16> {
        let mut at_disks = Vec::new();
        for slot in slots {
            let waits = self.order.iter().position(|s| *s == slot);
            if let Some(n) = waits {
                self.order.remove(n);
                self.forget(slot, server);
            } else if let Some(c) = self.command(slot) {
                c.aborted = true;
                at_disks.push(slot);
            }
        }
        at_disks
    }

    /// Aborts the commands of a unit, or of all. Returns those at the disks.
    pub(super) fn abort_unit<S: Server<C>>(
        &mut self,
        lun: Option<u16>,
        server: &mut S,
    ) -> Vec<u16> {
        let is = |h: &Header| lun.is_none_or(|lun| decode_lun(h.lun()) == Some(lun));
        let slots: Vec<u16> = (0u16..)
            .zip(&self.commands)
            .filter(|(_, c)| c.as_ref().is_some_and(|c| is(&c.header)))
            .map(|(slot, _)| slot)
            .collect();
        self.abort(slots, server)
    }

    /// Notes that an aborted command has ended, and answers the task management that has waited for it.
    pub(super) fn command_aborted<S: Server<C>>(&mut self, slot: u16, server: &mut S) {
        for pending in &mut self.pending {
            pending.slots.retain(|s| *s != slot);
        }
        let ended = |p: &mut Pending| p.slots.is_empty();
        let tags: Vec<u32> = self.pending.extract_if(.., ended).map(|p| p.tag).collect();
        if !tags.is_empty() {
            self.is_back(server);
        }
        tags.into_iter().for_each(|tag| self.task_response(tag, response::COMPLETE));
    }

    /// Sends an asynchronous message with an event of a unit.
    pub(super) fn push_event(&mut self, lun: u16, sense: Sense) {
        let mut event = Header::new(opcode::ASYNC).with_flags(FINAL).with_word(16, NO_TAG);
        event.0[8..16].copy_from_slice(&encode_lun(lun));
        let event = self.window.number_status(event);
        let sense = SenseData::from(sense).encode_fixed();
        self.output.push(event, [&(sense.len() as u16).to_be_bytes()[..], &sense].concat());
    }
}
