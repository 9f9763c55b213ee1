//! The output of a connection: PDUs in order, partly sent.

use crate::spec::{Command, Completion};
use crate::tcp::digest::{DIGEST_LEN, Digest};
use crate::tcp::pdu::{
    CAPSULE_RESPONSE_LEN, COMMON_LEN, Common, DATA_LEN, Digests, Kind, Transfer, flag,
};
use std::collections::VecDeque;
use std::io::IoSlice;
use zoneplug_buf::{AlignedBuf, Buffers};
use zoneplug_core::Nanos;

/// Padding for the largest alignment: 32 dwords.
static PAD: [u8; 128] = [0; 128];

/// The data of a PDU.
#[derive(Debug)]
pub(super) enum Body {
    None,
    /// The first bytes of a buffer, and their number.
    Buf(AlignedBuf, u32),
    /// A whole PDU of a rare kind.
    Bytes(Box<[u8]>),
}

/// A PDU: header with digest, pad, data, digest of the data.
#[derive(Debug)]
pub(super) struct Pdu {
    head: [u8; DATA_LEN + DIGEST_LEN],
    head_len: u8,
    pad_len: u8,
    body: Body,
    tail: [u8; DIGEST_LEN],
    tail_len: u8,
    /// The slot that becomes free once this is sent.
    frees: Option<u16>,
}

impl Pdu {
    fn parts(&self) -> [&[u8]; 4] {
        let body = match &self.body {
            Body::None => &[],
            Body::Buf(buf, len) => &buf.as_slice()[..*len as usize],
            Body::Bytes(bytes) => bytes,
        };
        [
            &self.head[..usize::from(self.head_len)],
            &PAD[..usize::from(self.pad_len)],
            body,
            &self.tail[..usize::from(self.tail_len)],
        ]
    }

    fn len(&self) -> usize {
        self.parts().iter().map(|p| p.len()).sum()
    }
}

/// Makes a PDU from a header of 24 bytes, with a digest if the connection uses them.
fn with_header(header: [u8; DATA_LEN], digests: Digests) -> Pdu {
    let mut head = [0; DATA_LEN + DIGEST_LEN];
    head[..DATA_LEN].copy_from_slice(&header);
    let mut head_len = DATA_LEN;
    if digests.header {
        head[DATA_LEN..].copy_from_slice(&Digest::of(&header).bytes());
        head_len += DIGEST_LEN;
    }
    let head_len = head_len as u8;
    Pdu { head, head_len, pad_len: 0, body: Body::None, tail: [0; 4], tail_len: 0, frees: None }
}

fn header_flag(digests: Digests) -> u8 {
    if digests.header { flag::HEADER_DIGEST } else { 0 }
}

/// Returns the bytes of a header with its digest.
fn header_len(digests: Digests) -> u32 {
    (DATA_LEN + if digests.header { DIGEST_LEN } else { 0 }) as u32
}

/// Returns the common header of a PDU without data whose header has `hlen` bytes.
fn without_data(kind: Kind, hlen: usize, digests: Digests) -> Common {
    Common {
        kind: kind as u8,
        flags: header_flag(digests),
        hlen: hlen as u8,
        pdo: 0,
        plen: header_len(digests),
    }
}

/// Makes a PDU that is encoded already.
pub(super) fn whole(body: Body) -> Pdu {
    Pdu {
        head: [0; DATA_LEN + DIGEST_LEN],
        head_len: 0,
        pad_len: 0,
        body,
        tail: [0; 4],
        tail_len: 0,
        frees: None,
    }
}

/// Makes a response capsule (figure *CapsuleResp*).
pub(super) fn response(completion: &Completion, digests: Digests) -> Pdu {
    let common = without_data(Kind::CapsuleResp, CAPSULE_RESPONSE_LEN, digests);
    let mut header = [0; CAPSULE_RESPONSE_LEN];
    header[..COMMON_LEN].copy_from_slice(&common.encode());
    header[COMMON_LEN..].copy_from_slice(&completion.encode());
    with_header(header, digests)
}

/// Makes an R2T for all data of a command.
pub(super) fn ready_to_transfer(command: &Command, tag: u16, len: u32, digests: Digests) -> Pdu {
    let common = without_data(Kind::R2t, DATA_LEN, digests);
    with_header(Transfer { cid: command.cid(), tag, offset: 0, len }.encode(common), digests)
}

/// Makes a C2HData PDU with all data of a command for the host. `alone`: no response capsule follows. Data begin at a
/// multiple of `align` bytes.
pub(super) fn data(
    command: &Command,
    buf: AlignedBuf,
    len: u32,
    alone: bool,
    digests: Digests,
    align: u32,
) -> Pdu {
    let mut flags = header_flag(digests) | flag::LAST;
    let data_offset = header_len(digests).next_multiple_of(align);
    let mut plen = data_offset + len;
    if digests.data {
        flags |= flag::DATA_DIGEST;
        plen += DIGEST_LEN as u32;
    }
    if alone {
        flags |= flag::SUCCESS;
    }
    let (kind, hlen, pdo) = (Kind::C2hData as u8, DATA_LEN as u8, data_offset as u8);
    let transfer = Transfer { cid: command.cid(), tag: 0, offset: 0, len };
    let mut pdu = with_header(transfer.encode(Common { kind, flags, hlen, pdo, plen }), digests);
    pdu.pad_len = (data_offset - header_len(digests)) as u8;
    if digests.data {
        pdu.tail = Digest::of(&buf.as_slice()[..len as usize]).bytes();
        pdu.tail_len = DIGEST_LEN as u8;
    }
    pdu.body = Body::Buf(buf, len);
    pdu
}

/// PDUs in order.
#[derive(Debug, Default)]
pub(super) struct Output {
    pdus: VecDeque<Pdu>,
    /// Bytes of the first PDU that were sent.
    done: usize,
    /// Bytes of all PDUs ever pushed, and how many of them were sent.
    pushed: u64,
    sent: u64,
    /// The time when output was last sent or began to wait.
    progress: Nanos,
}

impl Output {
    pub(super) fn is_empty(&self) -> bool {
        self.pdus.is_empty()
    }

    pub(super) fn push(&mut self, mut pdu: Pdu, frees: Option<u16>) {
        pdu.frees = frees;
        self.pushed += pdu.len() as u64;
        self.pdus.push_back(pdu);
    }

    /// Starts the clock of output that begins to wait, if the output `was_empty`.
    pub(super) fn began(&mut self, was_empty: bool, now: Nanos) {
        if was_empty {
            self.progress = now;
        }
    }

    /// Returns the time since which no output was sent, if there is output.
    pub(super) fn progress(&self) -> Option<Nanos> {
        (!self.pdus.is_empty()).then_some(self.progress)
    }

    /// Returns the bytes ever pushed.
    pub(super) fn pushed(&self) -> u64 {
        self.pushed
    }

    /// Returns the bytes ever sent.
    pub(super) fn bytes_sent(&self) -> u64 {
        self.sent
    }

    #[inline(always)]
    pub(super) fn fill<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let (mut skip, mut filled) = (self.done, 0);
        for part in self.pdus.iter().flat_map(Pdu::parts) {
            let skipped = skip.min(part.len());
            skip -= skipped;
            if part.len() == skipped {
                continue;
            }
            if filled == slices.len() {
                break;
            }
            slices[filled] = IoSlice::new(&part[skipped..]);
            filled += 1;
        }
        filled
    }

    /// Notes that `n` bytes were sent. Calls `free` for each slot that becomes free.
    #[inline(always)]
    pub(super) fn sent(
        &mut self,
        n: usize,
        buffers: &mut Buffers,
        now: Nanos,
        mut free: impl FnMut(u16),
    ) {
        if n > 0 {
            self.progress = now;
        }
        self.done += n;
        self.sent += n as u64;
        while let Some(len) = self.pdus.front().map(Pdu::len)
            && self.done >= len
        {
            self.done -= len;
            let Some(pdu) = self.pdus.pop_front() else { break };
            if let Body::Buf(buf, _) = pdu.body {
                buffers.put(buf);
            }
            pdu.frees.into_iter().for_each(&mut free);
        }
        debug_assert!(!self.pdus.is_empty() || self.done == 0, "more was sent than there was");
    }
}
