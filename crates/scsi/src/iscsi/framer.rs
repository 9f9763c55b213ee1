//! From bytes to PDUs. A PDU is its header, additional headers, a digest of both, data padded to a multiple of four, and
//! a digest of these (RFC 7143, section 11.1).
//!
//! The framer keeps a header at most. The owner puts data where they belong, or reads them there directly.

use super::header::{HEADER_LEN, Header};

const DIGEST_LEN: usize = 4;

/// The limits and digests of the PDUs that a connection accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameLimits {
    /// Most bytes of data in a PDU: the MaxRecvDataSegmentLength that this side has declared.
    pub max_data: usize,
    /// Headers have digests.
    pub header_digest: bool,
    /// Data have digests.
    pub data_digest: bool,
}

/// A part of a PDU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Frame<'a> {
    /// The header. Data follow, if it announces any.
    Header(Header),
    /// Some of the data, never none.
    Data(&'a [u8]),
    /// The end of the PDU. Its digests are right.
    End,
}

/// A whole PDU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pdu {
    /// The header.
    pub header: Header,
    /// The data, without padding.
    pub data: Vec<u8>,
}

/// The reason for which a connection cannot go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameError {
    /// The digest of a header is wrong: the length of the PDU is not known.
    HeaderDigest,
    /// The digest of data is wrong. A session without recovery within connections (ErrorRecoveryLevel 0) ends too.
    DataDigest,
    /// A PDU announces more data than this side takes.
    TooLong(usize),
}

/// The part of a PDU whose bytes come next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Header,
    Additional,
    HeaderDigest,
    Data,
    Padding,
    DataDigest,
}

/// Returns how many bytes pad data to a multiple of four.
fn padding(data: usize) -> usize {
    data.next_multiple_of(4) - data
}

/// The place in the bytes of a connection.
#[derive(Debug)]
pub struct Framer {
    limits: FrameLimits,
    part: Part,
    /// Bytes of this part that are still to come.
    left: usize,
    /// The header, and the digest that is being read.
    header: [u8; HEADER_LEN],
    digest: [u8; DIGEST_LEN],
    /// The digest of the bytes before it.
    crc: u32,
    failed: Option<FrameError>,
    /// The data of the PDU of [`Framer::receive`].
    data: Vec<u8>,
}

impl Framer {
    /// Makes a framer.
    pub fn new(limits: FrameLimits) -> Framer {
        Framer {
            limits,
            part: Part::Header,
            left: HEADER_LEN,
            header: [0; HEADER_LEN],
            digest: [0; DIGEST_LEN],
            crc: 0,
            failed: None,
            data: Vec::new(),
        }
    }

    /// Sets the limits of PDUs from the next one on. Call it between two PDUs.
    pub fn set_limits(&mut self, limits: FrameLimits) {
        self.limits = limits;
    }

    /// Takes bytes from the front of `input`, up to the end of a PDU at most. Returns the PDU when it is whole. After
    /// an error, nothing is taken any more. For owners that keep whole PDUs; do not mix it with [`Framer::next`].
    pub fn receive(&mut self, input: &mut &[u8]) -> Result<Option<Pdu>, FrameError> {
        loop {
            match self.next(input)? {
                None => return Ok(None),
                Some(Frame::Header(_)) => self.data.clear(),
                Some(Frame::Data(bytes)) => self.data.extend(bytes),
                Some(Frame::End) => {
                    let data = std::mem::take(&mut self.data);
                    return Ok(Some(Pdu { header: Header(self.header), data }));
                }
            }
        }
    }

    /// Takes bytes from the front of `input` and returns the next part of a PDU. `None`: more bytes are needed. After
    /// an error, nothing is taken any more.
    pub fn next<'a>(&mut self, input: &mut &'a [u8]) -> Result<Option<Frame<'a>>, FrameError> {
        if let Some(failed) = self.failed {
            return Err(failed);
        }
        self.step(input).inspect_err(|e| self.failed = Some(*e))
    }

    /// Returns how many bytes of data come next: the owner may read them past the framer.
    pub fn data_left(&self) -> usize {
        if self.part == Part::Data { self.left } else { 0 }
    }

    /// Returns how many bytes come before the next header, behind the data of [`Framer::data_left`]; less than 0 if the
    /// framer has taken some of that header. `None`: not known.
    pub fn before_header(&self) -> Option<isize> {
        let behind = match self.part {
            Part::Header => return Some(self.left as isize - HEADER_LEN as isize),
            Part::Additional | Part::HeaderDigest => return None,
            Part::Data => self.behind_data(),
            Part::Padding => self.left + self.data_digest_len(),
            Part::DataDigest => self.left,
        };
        Some(behind as isize)
    }

    /// Returns how many bytes lie behind the data of the PDU: their pad and digest.
    pub fn behind_data(&self) -> usize {
        padding(Header(self.header).data_len()) + self.data_digest_len()
    }

    /// Returns the length of the digest of the PDU's data.
    fn data_digest_len(&self) -> usize {
        let any = Header(self.header).data_len() > 0;
        if self.limits.data_digest && any { DIGEST_LEN } else { 0 }
    }

    /// Returns how many bytes the header of the PDU has, with additional headers and digest.
    pub fn header_bytes(&self) -> usize {
        let digest = if self.limits.header_digest { DIGEST_LEN } else { 0 };
        HEADER_LEN + Header(self.header).additional_len() + digest
    }

    /// Notes data that were read past the framer, at most [`Framer::data_left`].
    pub fn read_past(&mut self, data: &[u8]) {
        debug_assert!(data.len() <= self.data_left());
        self.left -= data.len();
        if self.limits.data_digest {
            self.crc = crc32c::crc32c_append(self.crc, data);
        }
    }

    fn step<'a>(&mut self, input: &mut &'a [u8]) -> Result<Option<Frame<'a>>, FrameError> {
        loop {
            if self.left == 0 {
                match self.part {
                    Part::Header => {
                        let header = Header(self.header);
                        if self.limits.header_digest {
                            self.crc = crc32c::crc32c(&self.header);
                        }
                        self.go_to(Part::Additional, header.additional_len());
                    }
                    Part::Additional if self.limits.header_digest => {
                        self.go_to(Part::HeaderDigest, DIGEST_LEN);
                    }
                    Part::HeaderDigest if self.crc != u32::from_le_bytes(self.digest) => {
                        return Err(FrameError::HeaderDigest);
                    }
                    Part::Additional | Part::HeaderDigest => {
                        let header = Header(self.header);
                        let data = header.data_len();
                        if data > self.limits.max_data {
                            return Err(FrameError::TooLong(data));
                        }
                        self.crc = 0;
                        self.go_to(Part::Data, data);
                        return Ok(Some(Frame::Header(header)));
                    }
                    Part::Data => {
                        self.go_to(Part::Padding, padding(Header(self.header).data_len()));
                    }
                    Part::Padding => {
                        self.go_to(Part::DataDigest, self.data_digest_len());
                        if self.left == 0 {
                            self.digest = self.crc.to_le_bytes();
                        }
                    }
                    Part::DataDigest if self.crc != u32::from_le_bytes(self.digest) => {
                        return Err(FrameError::DataDigest);
                    }
                    Part::DataDigest => {
                        self.go_to(Part::Header, HEADER_LEN);
                        return Ok(Some(Frame::End));
                    }
                }
                continue;
            }
            if input.is_empty() {
                return Ok(None);
            }
            let (bytes, rest) = input.split_at(self.left.min(input.len()));
            *input = rest;
            match self.part {
                Part::Header => {
                    self.header[HEADER_LEN - self.left..][..bytes.len()].copy_from_slice(bytes);
                }
                Part::HeaderDigest | Part::DataDigest => {
                    self.digest[DIGEST_LEN - self.left..][..bytes.len()].copy_from_slice(bytes);
                }
                Part::Data => {
                    self.read_past(bytes);
                    return Ok(Some(Frame::Data(bytes)));
                }
                Part::Additional if self.limits.header_digest => {
                    self.crc = crc32c::crc32c_append(self.crc, bytes);
                }
                Part::Padding if self.limits.data_digest => {
                    self.crc = crc32c::crc32c_append(self.crc, bytes);
                }
                Part::Additional | Part::Padding => {}
            }
            self.left -= bytes.len();
        }
    }

    fn go_to(&mut self, part: Part, bytes: usize) {
        (self.part, self.left) = (part, bytes);
    }
}

/// The bytes of a PDU around its data: those before them, and those behind.
#[derive(Debug, Clone, Copy)]
pub(super) struct Envelope {
    head: [u8; HEADER_LEN + DIGEST_LEN],
    head_len: u8,
    tail: [u8; 3 + DIGEST_LEN],
    tail_len: u8,
}

impl Envelope {
    /// Makes the envelope of a PDU without additional headers.
    pub(super) fn new(header: Header, data: &[u8], limits: &FrameLimits) -> Envelope {
        let header = header.with_data_len(data.len());
        let mut e =
            Envelope { head: [0; 52], head_len: HEADER_LEN as u8, tail: [0; 7], tail_len: 0 };
        e.head[..HEADER_LEN].copy_from_slice(&header.0);
        if limits.header_digest {
            e.head[HEADER_LEN..].copy_from_slice(&crc32c::crc32c(&header.0).to_le_bytes());
            e.head_len += DIGEST_LEN as u8;
        }
        let padding = padding(data.len());
        e.tail_len = padding as u8;
        if limits.data_digest && !data.is_empty() {
            let crc = crc32c::crc32c_append(crc32c::crc32c(data), &e.tail[..padding]);
            e.tail[padding..][..DIGEST_LEN].copy_from_slice(&crc.to_le_bytes());
            e.tail_len += DIGEST_LEN as u8;
        }
        e
    }

    /// Returns the bytes before the data.
    pub(super) fn head(&self) -> &[u8] {
        &self.head[..usize::from(self.head_len)]
    }

    /// Returns the bytes behind the data.
    pub(super) fn tail(&self) -> &[u8] {
        &self.tail[..usize::from(self.tail_len)]
    }
}

/// Encodes a PDU without additional headers.
pub fn encode_pdu(header: Header, data: &[u8], limits: &FrameLimits) -> Vec<u8> {
    let envelope = Envelope::new(header, data, limits);
    [envelope.head(), data, envelope.tail()].concat()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::iscsi::opcode;
    use proptest::prelude::*;

    fn limits(header_digest: bool, data_digest: bool) -> FrameLimits {
        FrameLimits { max_data: 64, header_digest, data_digest }
    }

    #[test]
    fn pdus_come_out_of_bytes_cut_anywhere() {
        for (h, d) in [(false, false), (true, false), (false, true), (true, true)] {
            let limits = limits(h, d);
            let header = Header::new(opcode::DATA_OUT).with_flags(0x80).with_word(40, 512);
            let mut all = encode_pdu(header, b"hello", &limits);
            all.extend(encode_pdu(Header::new(opcode::NOP_OUT), b"", &limits));
            for cut in 0..=all.len() {
                let mut framer = Framer::new(limits);
                let mut pdus = Vec::new();
                for mut part in [&all[..cut], &all[cut..]] {
                    while let Some(pdu) = framer.receive(&mut part).unwrap() {
                        pdus.push(pdu);
                    }
                    assert!(part.is_empty());
                }
                assert_eq!(pdus.len(), 2, "cut at {cut}");
                assert_eq!(pdus[0].data, b"hello");
                assert_eq!(
                    (pdus[0].header.buffer_offset(), pdus[0].header.is_final()),
                    (512, true)
                );
                assert_eq!(pdus[1].header.opcode(), opcode::NOP_OUT);
            }
        }
    }

    #[test]
    fn additional_headers_are_skipped() {
        let mut b = encode_pdu(Header::new(opcode::COMMAND), b"data", &limits(false, false));
        b[4] = 2;
        b.splice(48..48, [9; 8]);
        let pdu = Framer::new(limits(false, false)).receive(&mut &b[..]).unwrap().unwrap();
        assert_eq!(pdu.data, b"data");
    }

    #[test]
    fn wrong_digests_are_told_apart() {
        let limits = limits(true, true);
        let good = encode_pdu(Header::new(opcode::COMMAND), b"data", &limits);
        let mut bad = good.clone();
        bad[20] ^= 1;
        let mut framer = Framer::new(limits);
        assert_eq!(framer.receive(&mut &bad[..]), Err(FrameError::HeaderDigest));
        assert_eq!(framer.receive(&mut &good[..]), Err(FrameError::HeaderDigest), "for ever");
        let mut bad = good;
        bad[52] ^= 1;
        let mut framer = Framer::new(limits);
        assert_eq!(framer.receive(&mut &bad[..]), Err(FrameError::DataDigest));
    }

    #[test]
    fn a_pdu_that_is_too_long_ends_the_connection_at_its_header() {
        let mut framer = Framer::new(limits(false, false));
        let header = Header::new(opcode::DATA_OUT).with_data_len(65);
        assert_eq!(framer.receive(&mut &header.0[..]), Err(FrameError::TooLong(65)));
    }

    proptest! {
        /// Any bytes give PDUs or an error, and no more memory is kept than bytes have come.
        #[test]
        fn hostile_bytes_cost_their_length(bytes in prop::collection::vec(any::<u8>(), 0..400), h in any::<bool>(), d in any::<bool>()) {
            let mut framer = Framer::new(limits(h, d));
            let mut input = &bytes[..];
            while let Ok(Some(pdu)) = framer.receive(&mut input) {
                prop_assert!(pdu.data.len() <= 64);
            }
            prop_assert!(framer.data.len() <= bytes.len().min(64));
        }
    }
}
