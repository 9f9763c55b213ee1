//! A model of an initiator: the host's side of one connection, without a socket. For tests, simulated worlds and load
//! generators; it is no driver. The model trusts no answer of the controller: a violation of the protocol is an error
//! that names it.
//!
//! ```
//! use zoneplug_nvme::initiator::{Initiator, Options};
//! let mut host = Initiator::new(Options::default());
//! let bytes = host.take_output();
//! assert_eq!(bytes.len(), 128, "ICReq");
//! ```

mod authenticate;
mod commands;

pub use authenticate::Authenticate;
pub use commands::{connect, read, report_zones, reset_zone, set_queues, write, zone_append};

use crate::spec::{COMPLETION_LEN, Command, Completion};
use crate::tcp::pdu::{
    COMMON_LEN, Common, Digests, FatalError, INITIALIZE_LEN, Initialize, Kind, Transfer, field,
    flag,
};
use crate::tcp::{DIGEST_LEN, Digest, IN_CAPSULE_MAX};
use std::collections::{BTreeMap, VecDeque};

/// The parameters that an initiator requests for its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Digests to request.
    pub digests: Digests,
    /// HPDA: alignment of data from the controller, in dwords less one.
    pub align: u8,
    /// Write data of up to this many bytes travel in the command capsule.
    pub in_capsule: u32,
}

impl Default for Options {
    fn default() -> Options {
        Options { digests: Digests::default(), align: 0, in_capsule: IN_CAPSULE_MAX }
    }
}

/// The data of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Data {
    /// No data.
    None,
    /// Data for the controller.
    Out(Vec<u8>),
    /// Data from the controller, at most this many bytes.
    In(u32),
}

/// A command that is complete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Done {
    /// The controller's completion, or the one that the SUCCESS flag of its last C2HData stands for.
    pub completion: Completion,
    /// Data from the controller.
    pub data: Vec<u8>,
}

/// A command in flight.
#[derive(Debug)]
struct Pending {
    out: Vec<u8>,
    /// Bytes of `out` that R2Ts have requested so far.
    asked: u32,
    data: Vec<u8>,
    max_in: u32,
}

/// The host's side of a connection.
#[derive(Debug)]
pub struct Initiator {
    options: Options,
    /// The parameters of the controller's ICResp, once it has arrived.
    agreed: Option<Initialize>,
    input: Vec<u8>,
    output: Vec<u8>,
    /// Commands that wait for ICResp.
    early: VecDeque<(Command, Data)>,
    pending: BTreeMap<u16, Pending>,
    next_cid: u16,
    done: VecDeque<Done>,
}

impl Initiator {
    /// Opens a connection. ICReq is in the output.
    pub fn new(options: Options) -> Initiator {
        let digests = u8::from(options.digests.header) | u8::from(options.digests.data) << 1;
        let ask = Initialize { version: 0, align: options.align, digests, max: 0 };
        Initiator {
            options,
            agreed: None,
            input: Vec::new(),
            output: ask.encode(Kind::IcReq).to_vec(),
            early: VecDeque::new(),
            pending: BTreeMap::new(),
            next_cid: 0,
            done: VecDeque::new(),
        }
    }

    /// Sends a command. Returns its identifier. The initiator overwrites the command's identifier and data pointer.
    pub fn send(&mut self, command: Command, data: Data) -> u16 {
        while self.pending.contains_key(&self.next_cid) {
            self.next_cid = self.next_cid.wrapping_add(1);
        }
        let cid = self.next_cid;
        self.next_cid = cid.wrapping_add(1);
        let max_in = if let Data::In(len) = data { len } else { 0 };
        self.pending.insert(cid, Pending { out: Vec::new(), asked: 0, data: Vec::new(), max_in });
        let command = command.with_cid(cid);
        if self.agreed.is_some() {
            self.capsule(command, data);
        } else {
            self.early.push_back((command, data));
        }
        cid
    }

    fn capsule(&mut self, command: Command, data: Data) {
        match data {
            Data::None => self.pdu(Kind::CapsuleCmd, &command.with_data_apart(0).0, &[], false),
            Data::In(n) => self.pdu(Kind::CapsuleCmd, &command.with_data_apart(n).0, &[], false),
            Data::Out(bytes) if bytes.len() <= self.options.in_capsule as usize => {
                let command = command.with_data_in_capsule(bytes.len() as u32);
                self.pdu(Kind::CapsuleCmd, &command.0, &bytes, false);
            }
            Data::Out(bytes) => {
                let apart = command.with_data_apart(bytes.len() as u32);
                if let Some(p) = self.pending.get_mut(&command.cid()) {
                    p.out = bytes;
                }
                self.pdu(Kind::CapsuleCmd, &apart.0, &[], false);
            }
        }
    }

    /// Appends a PDU to the output. `rest` is the header behind the common part.
    fn pdu(&mut self, kind: Kind, rest: &[u8], data: &[u8], last: bool) {
        let Digests { header, data: data_digest } = self.options.digests;
        let data_digest = data_digest && !data.is_empty();
        let hlen = COMMON_LEN + rest.len();
        let align = (usize::from(self.agreed.map_or(0, |a| a.align)) + 1) * 4;
        let head = hlen + if header { DIGEST_LEN } else { 0 };
        let pdo = if data.is_empty() { 0 } else { head.next_multiple_of(align) };
        let plen = head.max(pdo) + data.len() + if data_digest { DIGEST_LEN } else { 0 };
        let flags =
            [(header, flag::HEADER_DIGEST), (data_digest, flag::DATA_DIGEST), (last, flag::LAST)];
        let flags = flags.iter().filter(|(on, _)| *on).fold(0, |all, (_, f)| all | f);
        let (kind, hlen, pdo) = (kind as u8, hlen as u8, pdo as u8);
        let common = Common { kind, flags, hlen, pdo, plen: plen as u32 };
        let begin = self.output.len();
        self.output.extend_from_slice(&common.encode());
        self.output.extend_from_slice(rest);
        if header {
            let digest = Digest::of(&self.output[begin..]);
            self.output.extend_from_slice(&digest.bytes());
        }
        self.output.resize(begin + head.max(usize::from(pdo)), 0);
        self.output.extend_from_slice(data);
        if data_digest {
            self.output.extend_from_slice(&Digest::of(data).bytes());
        }
    }

    /// Takes the bytes to send.
    pub fn take_output(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.output)
    }

    /// Returns the number of commands in flight.
    pub fn in_flight(&self) -> usize {
        self.pending.len()
    }

    /// Takes the next completed command.
    pub fn done(&mut self) -> Option<Done> {
        self.done.pop_front()
    }

    /// Takes bytes from the controller.
    ///
    /// # Errors
    ///
    /// The violation of the protocol, or the controller's request to terminate. The connection cannot be used any
    /// more.
    pub fn received(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.input.extend_from_slice(bytes);
        let mut begin = 0;
        while let Some(common) = self.input[begin..].first_chunk::<COMMON_LEN>() {
            let common = Common::decode(common);
            let plen = common.plen as usize;
            if plen < usize::from(common.hlen) || plen > 1 << 28 {
                return Err(format!("a length of {plen} in {common:?}"));
            }
            if self.input.len() - begin < plen {
                break;
            }
            let pdu = self.input[begin..begin + plen].to_vec();
            self.take(common, &pdu)?;
            begin += plen;
        }
        self.input.drain(..begin);
        Ok(())
    }

    fn take(&mut self, common: Common, pdu: &[u8]) -> Result<(), String> {
        let kind = Kind::from_u8(common.kind).ok_or_else(|| format!("type of {common:?}"))?;
        let header_len = kind.header_len();
        if usize::from(common.hlen) != header_len || pdu.len() < header_len {
            return Err(format!("header length of {common:?}"));
        }
        let mut head = header_len;
        if kind.has_header_digest() {
            if common.has(flag::HEADER_DIGEST) != self.options.digests.header {
                return Err(format!("header digest of {common:?}"));
            }
            if self.options.digests.header {
                head += DIGEST_LEN;
                if pdu.get(header_len..head) != Some(&Digest::of(&pdu[..header_len]).bytes()) {
                    return Err(format!("wrong header digest of {common:?}"));
                }
            }
        }
        match (kind, self.agreed) {
            (Kind::IcResp, None) => self.agree(pdu),
            (Kind::C2hTerm, _) => {
                let e = pdu.first_chunk().map(FatalError::decode);
                Err(format!("terminated by the controller: {e:?}"))
            }
            (Kind::CapsuleResp, Some(_)) => {
                let entry = pdu[COMMON_LEN..].first_chunk::<COMPLETION_LEN>();
                let completion = Completion::decode(entry.ok_or("no completion")?);
                self.complete(completion)
            }
            (Kind::C2hData, Some(_)) => self.data(common, pdu, head),
            (Kind::R2t, Some(agreed)) => self.transfer(pdu, agreed),
            _ => Err(format!("unexpected {kind:?}")),
        }
    }

    fn agree(&mut self, pdu: &[u8]) -> Result<(), String> {
        let bytes = pdu.first_chunk::<INITIALIZE_LEN>().ok_or("a short ICResp")?;
        let agreed = Initialize::decode(bytes);
        let Digests { header, data } = self.options.digests;
        if agreed.version != 0
            || agreed.digests != u8::from(header) | u8::from(data) << 1
            || agreed.max < 4096
            || !agreed.max.is_multiple_of(4)
        {
            return Err(format!("{agreed:?}"));
        }
        self.agreed = Some(agreed);
        for (command, data) in std::mem::take(&mut self.early) {
            self.capsule(command, data);
        }
        Ok(())
    }

    fn complete(&mut self, completion: Completion) -> Result<(), String> {
        let pending = self.pending.remove(&completion.cid);
        let pending = pending.ok_or_else(|| format!("no command for {completion:?}"))?;
        self.done.push_back(Done { completion, data: pending.data });
        Ok(())
    }

    fn data(&mut self, common: Common, pdu: &[u8], head: usize) -> Result<(), String> {
        let t = Transfer::decode(pdu.first_chunk().ok_or("a short C2HData")?);
        let from = usize::from(common.pdo);
        let align = (usize::from(self.options.align) + 1) * 4;
        let digests = self.options.digests.data;
        let to = from + t.len as usize;
        let end = to + if digests { DIGEST_LEN } else { 0 };
        if from < head || !from.is_multiple_of(align) || end != pdu.len() {
            return Err(format!("{common:?} with {t:?}"));
        }
        if common.has(flag::DATA_DIGEST) != digests
            || digests && Digest::of(&pdu[from..to]).bytes() != pdu[to..]
        {
            return Err(format!("data digest of {t:?}"));
        }
        let pending = self.pending.get_mut(&t.cid).ok_or_else(|| format!("no command: {t:?}"))?;
        if t.offset as usize != pending.data.len() || t.offset + t.len > pending.max_in {
            return Err(format!("{t:?} for a command with {} bytes", pending.max_in));
        }
        pending.data.extend_from_slice(&pdu[from..to]);
        if common.has(flag::SUCCESS) {
            if !common.has(flag::LAST) {
                return Err(format!("success before the last of the data: {t:?}"));
            }
            self.complete(Completion { cid: t.cid, sq_head: u16::MAX, ..Completion::default() })?;
        }
        Ok(())
    }

    /// Sends the data that an R2T requests, in H2CData PDUs of the largest allowed size.
    fn transfer(&mut self, pdu: &[u8], agreed: Initialize) -> Result<(), String> {
        let t = Transfer::decode(pdu.first_chunk().ok_or("a short R2T")?);
        let pending = self.pending.get_mut(&t.cid).ok_or_else(|| format!("no command: {t:?}"))?;
        let end = t.offset as usize + t.len as usize;
        if t.len == 0 || t.offset != pending.asked || end > pending.out.len() {
            return Err(format!("{t:?} of {} bytes", pending.out.len()));
        }
        pending.asked += t.len;
        let bytes = pending.out[t.offset as usize..end].to_vec();
        let mut offset = t.offset;
        for part in bytes.chunks(agreed.max as usize) {
            let header = Transfer { offset, len: part.len() as u32, ..t };
            // The fields behind the common header.
            let header = header.encode(Common { kind: 0, flags: 0, hlen: 0, pdo: 0, plen: 0 });
            offset += part.len() as u32;
            self.pdu(Kind::H2cData, &header[field::CCCID as usize..], part, offset as usize == end);
        }
        Ok(())
    }
}
