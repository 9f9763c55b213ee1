//! Data and statuses to the initiator. GOOD comes with the last data of a command (phase collapse), any other status in
//! a PDU of its own.

use super::command::{Command, Work};
use super::resend::is_write;
use super::{Server, Session};
use crate::iscsi::header::{Header, NO_TAG, opcode};
use crate::spec::ScsiStatus;
use crate::unit::{Answer, AnswerData};
use zoneplug_core::DiskClient;

const FINAL: u8 = 0x80;
const OVERFLOW: u8 = 0x04;
const UNDERFLOW: u8 = 0x02;
const STATUS: u8 = 0x01;

/// Returns the flag and the number that say how many bytes more or less were moved than the initiator expects.
fn residual(expected: u32, moved: u64) -> (u8, u32) {
    let expected = u64::from(expected);
    let difference = expected.abs_diff(moved).min(u64::from(u32::MAX)) as u32;
    match expected.cmp(&moved) {
        std::cmp::Ordering::Equal => (0, 0),
        std::cmp::Ordering::Less => (OVERFLOW, difference),
        std::cmp::Ordering::Greater => (UNDERFLOW, difference),
    }
}

impl<C: DiskClient> Session<C> {
    /// Answers a command and frees its slot.
    pub(super) fn answer<S: Server<C>>(&mut self, slot: u16, answer: Answer, server: &mut S) {
        let Some(c) = self.commands[usize::from(slot)].as_mut() else { return };
        if let Some(work) = c.work.as_ref().filter(|work| work.request.disk != u32::MAX) {
            let bytes = match &answer.data {
                AnswerData::Buffer(n) => *n,
                _ => c.received,
            };
            let ok = answer.status == ScsiStatus::Good;
            server.count(work.request.disk, work.request.op, bytes, ok);
        }
        // A buffer whose data are sent stays until they are.
        let buffer = match answer.data {
            AnswerData::Buffer(_) if !c.aborted && !self.ended => c.data.take(),
            _ => None,
        };
        let Some(c) = self.forget(slot, server) else { return };
        if self.ended {
            return;
        }
        let request = c.work.as_ref().map(Work::changes);
        if c.aborted {
            // The initiator does not know whether the command was carried out, and may send it again.
            if let Some(r) = request.filter(is_write) {
                self.lose_write(&r, server);
            }
            return self.command_aborted(slot, server);
        }
        match answer.data {
            _ if answer.status != ScsiStatus::Good => self.respond(&c, &answer, 0),
            AnswerData::None => self.respond(&c, &answer, 0),
            AnswerData::Bytes(ref bytes) => {
                let buffer = zoneplug_buf::AlignedBuf::from_slice(bytes);
                self.memory += buffer.len();
                self.send_data(&c, &answer, buffer, bytes.len() as u32);
            }
            AnswerData::Buffer(n) => match buffer {
                Some(buffer) => self.send_data(&c, &answer, buffer, n),
                None => self.respond(&c, &answer, 0),
            },
        }
        if let Some(r) = request {
            self.note_answer(&r);
        }
    }

    /// Sends the first `len` bytes of a buffer, as many as the initiator expects, and GOOD with the last of them.
    fn send_data(&mut self, c: &Command, answer: &Answer, buf: zoneplug_buf::AlignedBuf, len: u32) {
        let send = if c.reads() { len.min(c.expected()) } else { 0 };
        let n = self.output.hold(buf);
        if send == 0 {
            // The buffer goes back with the answer.
            let header = self.response(c, answer, len);
            return self.output.push_part(header, n, 0, 0, true);
        }
        let (flag, rest) = residual(c.expected(), u64::from(len));
        let (piece, burst) = (self.agreed.max_send_data, self.agreed.max_burst);
        let (mut at, mut data_sn) = (0, c.data_sn);
        while at < send {
            // A sequence ends after each burst.
            let end = (at - at % burst).saturating_add(burst).min(send);
            let part = piece.min(end - at);
            let last = at + part == send;
            let mut h = Header::new(opcode::DATA_IN)
                .with_flags(if at + part == end { FINAL } else { 0 })
                .with_word(16, c.header.task_tag())
                .with_word(20, NO_TAG)
                .with_word(36, data_sn)
                .with_word(40, at);
            h = if last {
                h.0[3] = answer.status as u8;
                let h = h.with_flags(FINAL | STATUS | flag).with_word(44, rest);
                self.window.number_status(h)
            } else {
                self.window.number(h)
            };
            self.output.push_part(h, n, at, part, last);
            (at, data_sn) = (at + part, data_sn + 1);
        }
    }

    /// Answers a command without data.
    fn respond(&mut self, c: &Command, answer: &Answer, moved: u32) {
        let header = self.response(c, answer, moved);
        let sense = answer.sense.map_or_else(Vec::new, |sense| {
            let sense = sense.encode_fixed();
            [&(sense.len() as u16).to_be_bytes()[..], &sense].concat()
        });
        self.output.push(header, sense);
    }

    /// Makes the header of an answer. `moved`: the bytes that the command had for the initiator.
    fn response(&mut self, c: &Command, answer: &Answer, moved: u32) -> Header {
        let good = answer.status == ScsiStatus::Good;
        let moved = match &c.work {
            Some(work)
                if c.writes() && (good || work.task.data_out() > u64::from(c.expected())) =>
            {
                work.task.data_out()
            }
            None if c.writes() && good => 0,
            _ if c.writes() => u64::from(c.received),
            _ => u64::from(moved),
        };
        let any = c.reads() || c.writes() || moved > 0;
        let (flag, rest) = residual(if any { c.expected() } else { 0 }, moved);
        let mut h = Header::new(opcode::RESPONSE)
            .with_flags(FINAL | flag)
            .with_word(16, c.header.task_tag())
            .with_word(36, c.data_sn)
            .with_word(44, rest);
        h.0[3] = answer.status as u8;
        self.window.number_status(h)
    }
}
