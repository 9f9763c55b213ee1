//! The input of a connection: from bytes to PDUs and their effects. Nothing of a PDU is used before its header was
//! checked (K1), and no memory is taken for data before the command was checked (K2).

use super::output::{self, Body};
use super::slots::SlotState;
use super::{Connection, Ended};
use crate::spec::{COMMAND_LEN, Command, Completion};
use crate::tcp::pdu::{
    CAPSULE_COMMAND_LEN, COMMON_LEN, Common, DATA_LEN, Digests, FatalError, INITIALIZE_LEN,
    Initialize, Kind, MAX_ALIGN, TERMINATE_LEN, TERMINATE_MAX, Transfer, fatal, field, flag,
};
use crate::tcp::{DIGEST_LEN, DataPointer, Digest, IN_CAPSULE_MAX};
use zoneplug_buf::{Buffers, Shape};

/// The kind of bytes that come next.
#[derive(Debug, Clone, Copy)]
pub(super) enum Rx {
    Header,
    /// The last `left` bytes of a PDU's data, for a command.
    Data {
        slot: u16,
        left: u32,
        digest: Digest,
    },
    /// The digest of a PDU's data (K5).
    DataDigest {
        slot: u16,
        digest: Digest,
    },
    /// The last bytes of a PDU whose data are not used.
    Discard {
        left: u32,
    },
}

/// Returns the error for a wrong field of a header.
const fn bad_field(field: u32) -> FatalError {
    FatalError { status: fatal::HEADER_FIELD, info: field }
}

const SEQUENCE: FatalError = FatalError { status: fatal::SEQUENCE, info: 0 };
const LIMIT: FatalError = FatalError { status: fatal::LIMIT, info: 0 };
const OUT_OF_RANGE: FatalError = FatalError { status: fatal::OUT_OF_RANGE, info: 0 };

/// A header that was checked.
struct Checked {
    kind: Kind,
    common: Common,
    /// Bytes before the data, or of the whole PDU if it has none.
    head: usize,
    /// Bytes of data.
    data: u32,
}

impl Connection {
    /// Processes the next piece of input. Returns false if that needs more bytes.
    pub(super) fn step(&mut self, buffers: &mut Buffers) -> bool {
        self.step_in_one_piece(buffers) || self.ahead.join(buffers)
    }

    fn step_in_one_piece(&mut self, buffers: &mut Buffers) -> bool {
        match self.rx {
            Rx::Header => self.header(buffers),
            Rx::Data { slot, left, .. } => {
                if self.ahead.bytes().is_empty() {
                    return false;
                }
                let bytes = self.ahead.take(left as usize);
                let n = bytes.len();
                self.slots.rest_of_data(slot, left)[..n].copy_from_slice(bytes);
                self.took_data(slot, n);
                true
            }
            Rx::DataDigest { slot, digest } => {
                let Some(came) = self.ahead.bytes().first_chunk::<DIGEST_LEN>() else {
                    return false;
                };
                if *came != digest.bytes()
                    && let Some(entry) = self.slots.get_mut(slot)
                {
                    entry.spoilt = true;
                }
                self.ahead.take(DIGEST_LEN);
                self.end_of_data(slot);
                true
            }
            Rx::Discard { left } => {
                let n = self.ahead.take(left as usize).len() as u32;
                self.rx = if n == left { Rx::Header } else { Rx::Discard { left: left - n } };
                if n == left {
                    self.pdu_since = None;
                }
                n > 0
            }
        }
    }

    /// Notes that `n` bytes were put into the data of `slot`.
    pub(super) fn took_data(&mut self, slot: u16, n: usize) {
        let Rx::Data { left, mut digest, .. } = self.rx else { return };
        if self.digests.data {
            digest.update(&self.slots.rest_of_data(slot, left)[..n]);
        }
        if let Some(entry) = self.slots.get_mut(slot) {
            entry.got += n as u32;
        }
        let left = left - n as u32;
        self.rx = Rx::Data { slot, left, digest };
        if left > 0 {
            return;
        }
        if self.digests.data {
            self.rx = Rx::DataDigest { slot, digest };
        } else {
            self.end_of_data(slot);
        }
    }

    /// Handles the end of a PDU with data.
    fn end_of_data(&mut self, slot: u16) {
        self.rx = Rx::Header;
        self.pdu_since = None;
        let Some(entry) = self.slots.get_mut(slot) else { return };
        if entry.state == SlotState::Fetching {
            self.fetch_progress = self.now;
            if entry.got < entry.len {
                return;
            }
            self.fetching -= 1;
            // The command has its memory, so it does not wait for earlier commands that have none.
            self.ready.push_front(slot);
        } else {
            self.ready.push_back(slot);
        }
        entry.state = SlotState::Ready;
    }

    /// Fails a command before it comes up.
    pub(super) fn fail(&mut self, slot: u16, status: u16) {
        if let Some(entry) = self.slots.get_mut(slot) {
            entry.state = SlotState::Up;
            // Freed instead of returned to the pool, because this is rare.
            entry.data = None;
        }
        let completion = Completion { status, ..Completion::default() };
        let (mut none, now) = (Buffers::new(0), self.now);
        self.answer(slot, completion, None, &mut none, now);
    }

    fn header(&mut self, buffers: &mut Buffers) -> bool {
        let bytes = self.ahead.bytes();
        let Some(common) = bytes.first_chunk::<COMMON_LEN>() else { return false };
        let checked = match self.check(Common::decode(common)) {
            Ok(checked) => checked,
            Err(e) => return self.end_with(e, COMMON_LEN),
        };
        let header_len = checked.kind.header_len();
        if bytes.len() < checked.head {
            return false;
        }
        if checked.common.has(flag::HEADER_DIGEST) && checked.kind.has_header_digest() {
            let (header, rest) = bytes.split_at(header_len);
            let came = &rest[..DIGEST_LEN];
            if Digest::of(header).bytes() != *came {
                let info = u32::from_le_bytes([came[0], came[1], came[2], came[3]]);
                let error = FatalError { status: fatal::HEADER_DIGEST, info };
                return self.end_with(error, header_len);
            }
        }
        let done = match checked.kind {
            Kind::IcReq => self.initialize(),
            Kind::CapsuleCmd => self.command(&checked, buffers),
            Kind::H2cData => self.data(&checked),
            _ => self.terminated(),
        };
        match done {
            Ok(()) => {
                self.ahead.take(checked.head);
                if matches!(self.rx, Rx::Header) {
                    self.pdu_since = None;
                }
                true
            }
            Err(e) => self.end_with(e, header_len),
        }
    }

    /// Ends the connection because of the next header. The peer is sent the header's first `len` bytes.
    #[cold]
    fn end_with(&mut self, error: FatalError, len: usize) -> bool {
        let header = self.ahead.bytes()[..len].to_vec();
        self.fatal(error, &header);
        true
    }

    /// Checks a common header. Fields are named as in the figure *PDU Header*.
    fn check(&self, common: Common) -> Result<Checked, FatalError> {
        let kind = match Kind::from_u8(common.kind) {
            Some(Kind::IcReq) if self.initialized => return Err(SEQUENCE),
            Some(Kind::CapsuleCmd | Kind::H2cData) if !self.initialized => return Err(SEQUENCE),
            Some(k @ (Kind::IcReq | Kind::CapsuleCmd | Kind::H2cData | Kind::H2cTerm)) => k,
            // The kind is unknown or has the other direction.
            _ => return Err(bad_field(field::KIND)),
        };
        if usize::from(common.hlen) != kind.header_len() {
            return Err(bad_field(field::HLEN));
        }
        let plen = common.plen as usize;
        if !kind.has_header_digest() {
            let most = if kind == Kind::IcReq { INITIALIZE_LEN } else { TERMINATE_MAX };
            if plen < kind.header_len() || plen > most {
                return Err(bad_field(field::PLEN));
            }
            return Ok(Checked { kind, common, head: kind.header_len(), data: 0 });
        }
        if common.has(flag::HEADER_DIGEST) != self.digests.header {
            return Err(bad_field(field::FLAGS));
        }
        let header = kind.header_len() + if self.digests.header { DIGEST_LEN } else { 0 };
        if plen == header && kind == Kind::CapsuleCmd {
            return Ok(Checked { kind, common, head: header, data: 0 });
        }
        if plen <= header {
            return Err(bad_field(field::PLEN));
        }
        if common.has(flag::DATA_DIGEST) != self.digests.data {
            return Err(bad_field(field::FLAGS));
        }
        let head = usize::from(common.pdo);
        if head < header || !head.is_multiple_of(4) {
            return Err(bad_field(field::PDO));
        }
        let digest = if self.digests.data { DIGEST_LEN } else { 0 };
        let data = plen.checked_sub(head + digest).filter(|n| *n > 0);
        let data = data.ok_or(bad_field(field::PLEN))? as u32;
        match kind {
            Kind::CapsuleCmd if data > IN_CAPSULE_MAX => Err(bad_field(field::PLEN)),
            Kind::H2cData if data > self.config.max_h2c_data => Err(LIMIT),
            _ => Ok(Checked { kind, common, head, data }),
        }
    }

    fn initialize(&mut self) -> Result<(), FatalError> {
        let Some(bytes) = self.ahead.bytes().first_chunk::<INITIALIZE_LEN>() else { return Ok(()) };
        let asked = Initialize::decode(bytes);
        if asked.version != 0 {
            return Err(FatalError { status: fatal::PARAMETER, info: field::PFV });
        }
        if asked.align > MAX_ALIGN {
            return Err(bad_field(field::HPDA));
        }
        if asked.digests > 3 {
            return Err(bad_field(field::DGST));
        }
        self.align = (u32::from(asked.align) + 1) * 4;
        self.digests = Digests { header: asked.digests & 1 != 0, data: asked.digests & 2 != 0 };
        self.initialized = true;
        if self.handshake_until.is_some() {
            self.handshake_until = Some(self.now.plus(self.config.connect));
        }
        // MAXR2T is not needed: a command has one R2T, which requests all of its data.
        let max = self.config.max_h2c_data;
        let answer = Initialize { version: 0, align: 0, digests: asked.digests, max };
        let pdu = Body::Bytes(answer.encode(Kind::IcResp).into());
        let was_empty = self.output.is_empty();
        self.output.push(output::whole(pdu), None);
        self.output.began(was_empty, self.now);
        Ok(())
    }

    fn command(&mut self, checked: &Checked, buffers: &mut Buffers) -> Result<(), FatalError> {
        let bytes = self.ahead.bytes();
        let Some(header) = bytes.first_chunk::<CAPSULE_COMMAND_LEN>() else { return Ok(()) };
        let mut command = Command([0; COMMAND_LEN]);
        command.0.copy_from_slice(&header[COMMON_LEN..]);
        let pointer = DataPointer::of(&command, checked.data, self.max_data());
        let (state, len) = match pointer {
            Ok(DataPointer::None) | Err(_) => (SlotState::Ready, 0),
            Ok(DataPointer::InCapsule(len)) => (SlotState::InCapsule, len),
            Ok(DataPointer::Fetch(len)) => (SlotState::WaitsToFetch, len),
            Ok(DataPointer::Send(len)) => (SlotState::WaitsToSend, len),
        };
        // A host has at most as many commands outstanding as the queue has entries.
        let slot = self.slots.take(command, state, len, self.queue.entries).ok_or(SEQUENCE)?;
        match pointer {
            Ok(DataPointer::InCapsule(len)) => {
                let came = self.ahead.data_behind(checked.head, len);
                let (data, got) = came.unwrap_or_else(|| (buffers.take(len), 0));
                if let Some(entry) = self.slots.get_mut(slot) {
                    entry.data = Some(data);
                }
                self.rx = Rx::Data { slot, left: len, digest: Digest::default() };
                self.took_data(slot, got as usize);
                let tail = if self.digests.data { DIGEST_LEN } else { 0 };
                self.ahead.note_write(Shape { head: checked.head, len, tail });
            }
            Ok(_) => {
                self.ready.push_back(slot);
                self.ahead.note_other(None);
            }
            Err(status) => {
                self.fail(slot, status);
                if checked.data > 0 {
                    let digest = if self.digests.data { DIGEST_LEN as u32 } else { 0 };
                    self.rx = Rx::Discard { left: checked.data + digest };
                }
            }
        }
        Ok(())
    }

    /// Handles H2CData, which must be the next part of a command's data (K4).
    fn data(&mut self, checked: &Checked) -> Result<(), FatalError> {
        let Some(header) = self.ahead.bytes().first_chunk::<DATA_LEN>() else { return Ok(()) };
        let transfer = Transfer::decode(header);
        let entry = self.slots.get(transfer.tag).filter(|e| e.state == SlotState::Fetching);
        let entry = entry.ok_or(bad_field(field::TTAG))?;
        if entry.command.cid() != transfer.cid {
            return Err(bad_field(field::CCCID));
        }
        if transfer.len != checked.data {
            return Err(bad_field(field::DATAL));
        }
        let end = u64::from(transfer.offset) + u64::from(transfer.len);
        if end > u64::from(entry.len) {
            return Err(OUT_OF_RANGE);
        }
        if transfer.offset != entry.got {
            return Err(SEQUENCE);
        }
        if checked.common.has(flag::LAST) != (end == u64::from(entry.len)) {
            return Err(bad_field(field::FLAGS));
        }
        self.rx = Rx::Data { slot: transfer.tag, left: transfer.len, digest: Digest::default() };
        self.ahead.note_other((transfer.len > IN_CAPSULE_MAX).then_some(true));
        Ok(())
    }

    fn terminated(&mut self) -> Result<(), FatalError> {
        let header = self.ahead.bytes().first_chunk::<TERMINATE_LEN>();
        self.ended = header.map(|h| Ended::Terminated(FatalError::decode(h)));
        Ok(())
    }
}
