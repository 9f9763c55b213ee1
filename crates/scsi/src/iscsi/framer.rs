//! From bytes to PDUs. A PDU is its header, additional headers, a digest of both, data padded to a multiple of four, and
//! a digest of these (RFC 7143, section 11.1).
//!
//! A PDU takes no more memory than its bytes that have arrived, whatever its header announces.

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

/// A whole PDU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pdu {
    /// The header.
    pub header: Header,
    /// The data, without padding.
    pub data: Vec<u8>,
    /// Whether the digest of the data is right. If not, the PDU is rejected, and its data are not used.
    pub data_intact: bool,
}

/// The reason for which a connection cannot go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameError {
    /// The digest of a header is wrong: the length of the PDU is not known.
    HeaderDigest,
    /// A PDU announces more data than this side takes.
    TooLong(usize),
}

/// The bytes of a connection that are no whole PDU yet.
#[derive(Debug)]
pub struct Framer {
    limits: FrameLimits,
    bytes: Vec<u8>,
    failed: Option<FrameError>,
}

impl Framer {
    /// Makes a framer.
    pub fn new(limits: FrameLimits) -> Framer {
        Framer { limits, bytes: Vec::new(), failed: None }
    }

    /// Sets the limits of PDUs from the next one on. Call it between two PDUs.
    pub fn set_limits(&mut self, limits: FrameLimits) {
        self.limits = limits;
    }

    /// Takes bytes from the front of `input`, up to the end of a PDU at most. Returns the PDU when it is whole. After
    /// an error, nothing is taken any more.
    pub fn receive(&mut self, input: &mut &[u8]) -> Result<Option<Pdu>, FrameError> {
        if let Some(failed) = self.failed {
            return Err(failed);
        }
        loop {
            let wanted = self.wanted().inspect_err(|e| self.failed = Some(*e))?;
            if self.bytes.len() == wanted {
                return Ok(Some(self.take()));
            }
            if input.is_empty() {
                return Ok(None);
            }
            let n = (wanted - self.bytes.len()).min(input.len());
            self.bytes.extend(&input[..n]);
            *input = &input[n..];
        }
    }

    /// The end of the headers with their digest, if the header is there.
    fn head(&self) -> Option<(Header, usize)> {
        let header = Header(*self.bytes.first_chunk::<HEADER_LEN>()?);
        let digest = if self.limits.header_digest { DIGEST_LEN } else { 0 };
        Some((header, HEADER_LEN + header.additional_len() + digest))
    }

    /// Returns how many bytes are needed before the next decision: the header, all headers, or the whole PDU.
    fn wanted(&self) -> Result<usize, FrameError> {
        let Some((header, head)) = self.head() else { return Ok(HEADER_LEN) };
        if self.bytes.len() < head {
            return Ok(head);
        }
        if self.limits.header_digest {
            let (headers, digest) = self.bytes[..head].split_at(head - DIGEST_LEN);
            if crc32c::crc32c(headers).to_le_bytes() != digest {
                return Err(FrameError::HeaderDigest);
            }
        }
        let data = header.data_len();
        if data > self.limits.max_data {
            return Err(FrameError::TooLong(data));
        }
        let digest = if self.limits.data_digest && data > 0 { DIGEST_LEN } else { 0 };
        Ok(head + data.next_multiple_of(4) + digest)
    }

    /// Takes the PDU, which is whole.
    fn take(&mut self) -> Pdu {
        let bytes = std::mem::take(&mut self.bytes);
        let mut header = [0; HEADER_LEN];
        header.copy_from_slice(&bytes[..HEADER_LEN]);
        let header = Header(header);
        let digest = if self.limits.header_digest { DIGEST_LEN } else { 0 };
        let rest = &bytes[HEADER_LEN + header.additional_len() + digest..];
        let (data, digest) = rest.split_at(header.data_len().next_multiple_of(4));
        let data_intact = digest.is_empty() || crc32c::crc32c(data).to_le_bytes() == digest;
        Pdu { header, data: data[..header.data_len()].to_vec(), data_intact }
    }
}

/// Encodes a PDU without additional headers.
pub fn encode_pdu(header: Header, data: &[u8], limits: &FrameLimits) -> Vec<u8> {
    let mut b = header.with_data_len(data.len()).0.to_vec();
    if limits.header_digest {
        b.extend(crc32c::crc32c(&b).to_le_bytes());
    }
    if !data.is_empty() {
        let at = b.len();
        b.extend(data);
        b.resize(at + data.len().next_multiple_of(4), 0);
        if limits.data_digest {
            b.extend(crc32c::crc32c(&b[at..]).to_le_bytes());
        }
    }
    b
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
                assert_eq!((&pdus[0].data[..], pdus[0].data_intact), (&b"hello"[..], true));
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
        let pdu = Framer::new(limits).receive(&mut &bad[..]).unwrap().unwrap();
        assert!(!pdu.data_intact);
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
            prop_assert!(framer.bytes.len() <= bytes.len());
        }
    }
}
