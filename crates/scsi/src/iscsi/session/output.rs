//! PDUs on their way to the initiator. Data of reads are sent from the buffers of their commands.

use crate::iscsi::framer::{Envelope, FrameLimits};
use crate::iscsi::header::Header;
use std::collections::VecDeque;
use std::io::IoSlice;
use zoneplug_buf::{AlignedBuf, Buffers};

/// The data of a PDU.
#[derive(Debug)]
enum Data {
    None,
    Bytes(Vec<u8>),
    /// A part of a buffer, by its place in [`Output::held`]. `last`: no later PDU sends of it.
    Held {
        n: usize,
        from: u32,
        len: u32,
        last: bool,
    },
}

#[derive(Debug)]
struct OutPdu {
    envelope: Envelope,
    data: Data,
}

/// PDUs that were not sent yet, in their order.
#[derive(Debug)]
pub(super) struct Output {
    limits: FrameLimits,
    pdus: VecDeque<OutPdu>,
    /// Bytes of the first PDU that were sent.
    sent: usize,
    /// Bytes that were not sent.
    bytes: usize,
    held: Vec<Option<AlignedBuf>>,
    free: Vec<usize>,
}

impl Output {
    pub(super) fn new(limits: FrameLimits) -> Output {
        Output {
            limits,
            pdus: VecDeque::new(),
            sent: 0,
            bytes: 0,
            held: Vec::new(),
            free: Vec::new(),
        }
    }

    /// Sets the digests of the PDUs from the next one on.
    pub(super) fn set_limits(&mut self, limits: FrameLimits) {
        self.limits = limits;
    }

    /// Returns the bytes that were not sent.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds a PDU with these data.
    pub(super) fn push(&mut self, header: Header, data: Vec<u8>) {
        let envelope = Envelope::new(header, &data, &self.limits);
        let data = if data.is_empty() { Data::None } else { Data::Bytes(data) };
        self.add(OutPdu { envelope, data });
    }

    /// Keeps a buffer, for [`Output::push_part`].
    pub(super) fn hold(&mut self, buf: AlignedBuf) -> usize {
        let n = self.free.pop().unwrap_or_else(|| {
            self.held.push(None);
            self.held.len() - 1
        });
        self.held[n] = Some(buf);
        n
    }

    /// Adds a PDU with a part of a held buffer. `last`: the buffer is not needed any more once this PDU is sent.
    pub(super) fn push_part(&mut self, header: Header, n: usize, from: u32, len: u32, last: bool) {
        let data = Data::Held { n, from, len, last };
        let envelope = Envelope::new(header, self.data(&data), &self.limits);
        self.add(OutPdu { envelope, data });
    }

    fn add(&mut self, pdu: OutPdu) {
        self.bytes += self.len(&pdu);
        self.pdus.push_back(pdu);
    }

    fn data<'a>(&'a self, data: &'a Data) -> &'a [u8] {
        match *data {
            Data::None => &[],
            Data::Bytes(ref bytes) => bytes,
            Data::Held { n, from, len, .. } => self.held[n]
                .as_ref()
                .and_then(|buf| buf.as_slice().get(from as usize..(from + len) as usize))
                .unwrap_or(&[]),
        }
    }

    fn len(&self, pdu: &OutPdu) -> usize {
        pdu.envelope.head().len() + self.data(&pdu.data).len() + pdu.envelope.tail().len()
    }

    /// Fills `slices` with the next bytes to send. Returns how many it has filled.
    pub(super) fn fill<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let (mut filled, mut skip) = (0, self.sent);
        let parts = self
            .pdus
            .iter()
            .flat_map(|pdu| [pdu.envelope.head(), self.data(&pdu.data), pdu.envelope.tail()]);
        for part in parts {
            let skipped = skip.min(part.len());
            skip -= skipped;
            if part.len() == skipped {
                continue;
            }
            let Some(slice) = slices.get_mut(filled) else { break };
            *slice = IoSlice::new(&part[skipped..]);
            filled += 1;
        }
        filled
    }

    /// Notes that the next `n` bytes were sent. Returns the bytes of buffers that went back to the pool.
    pub(super) fn sent(&mut self, n: usize, buffers: &mut Buffers) -> u32 {
        self.bytes -= n;
        self.sent += n;
        let mut freed = 0;
        while let Some(first) = self.pdus.front()
            && let len = self.len(first)
            && self.sent >= len
        {
            self.sent -= len;
            let pdu = self.pdus.pop_front();
            if let Some(OutPdu { data: Data::Held { n, last: true, .. }, .. }) = pdu {
                freed += self.free(n, buffers);
            }
        }
        freed
    }

    /// Drops what was not sent. Returns the bytes of buffers that went back to the pool.
    pub(super) fn clear(&mut self, buffers: &mut Buffers) -> u32 {
        self.pdus.clear();
        (self.sent, self.bytes) = (0, 0);
        (0..self.held.len()).map(|n| self.free(n, buffers)).sum()
    }

    fn free(&mut self, n: usize, buffers: &mut Buffers) -> u32 {
        let Some(buf) = self.held[n].take() else { return 0 };
        self.free.push(n);
        let len = buf.len();
        buffers.put(buf);
        len
    }
}
