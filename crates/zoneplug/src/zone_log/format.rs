//! The format of a record on the disk, as docs/zone-log.md describes it.
//!
//! Owns the 64 bytes in front of each record; does no I/O.

/// Bytes of a header.
pub(super) const HEADER_LEN: usize = 64;
/// Records begin at multiples of this, in bytes.
pub(super) const ALIGN: u64 = 8;
/// The first four bytes of a header.
const MAGIC: [u8; 4] = *b"ZPLG";
/// The version of the format.
const VERSION: u16 = 1;

/// The kind of a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A record of the client.
    Record,
    /// A seal, without data: the log continues in the next zone.
    Seal,
}

/// The header of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) kind: Kind,
    /// The id of the log.
    pub(super) log: u64,
    /// The number of the record. A seal has that of the record after it.
    pub(super) sequence: u64,
    /// The number of the zone's use: the same in every record of this use, and larger in every zone
    /// used later.
    pub(super) generation: u64,
    /// The number of the session that wrote the record.
    pub(super) session: u32,
    /// Bytes of data.
    pub(super) len: u32,
    /// The place of this header, in bytes from the start of the disk.
    pub(super) position: u64,
    /// CRC-32 of the data.
    pub(super) data_sum: u32,
}

impl Header {
    pub(super) fn encode(&self) -> [u8; HEADER_LEN] {
        let mut b = [0; HEADER_LEN];
        b[0..4].copy_from_slice(&MAGIC);
        b[4..6].copy_from_slice(&VERSION.to_le_bytes());
        let kind: u16 = match self.kind {
            Kind::Record => 1,
            Kind::Seal => 2,
        };
        b[6..8].copy_from_slice(&kind.to_le_bytes());
        b[8..16].copy_from_slice(&self.log.to_le_bytes());
        b[16..24].copy_from_slice(&self.sequence.to_le_bytes());
        b[24..32].copy_from_slice(&self.generation.to_le_bytes());
        b[32..36].copy_from_slice(&self.session.to_le_bytes());
        b[36..40].copy_from_slice(&self.len.to_le_bytes());
        b[40..48].copy_from_slice(&self.position.to_le_bytes());
        b[48..52].copy_from_slice(&self.data_sum.to_le_bytes());
        let sum = crc32fast::hash(&b[..60]);
        b[60..64].copy_from_slice(&sum.to_le_bytes());
        b
    }

    /// Decodes a header. `None` if the bytes are no whole header of this version.
    pub(super) fn decode(b: &[u8]) -> Option<Header> {
        let b: &[u8; HEADER_LEN] = b.first_chunk()?;
        if b[0..4] != MAGIC {
            return None;
        }
        let u16_at = |i: usize| u16::from_le_bytes([b[i], b[i + 1]]);
        let u32_at = |i: usize| u32::from_le_bytes([b[i], b[i + 1], b[i + 2], b[i + 3]]);
        let u64_at = |i: usize| u64::from(u32_at(i)) | u64::from(u32_at(i + 4)) << 32;
        if u32_at(60) != crc32fast::hash(&b[..60]) || u16_at(4) != VERSION {
            return None;
        }
        let kind = match u16_at(6) {
            1 => Kind::Record,
            2 => Kind::Seal,
            _ => return None,
        };
        Some(Header {
            kind,
            log: u64_at(8),
            sequence: u64_at(16),
            generation: u64_at(24),
            session: u32_at(32),
            len: u32_at(36),
            position: u64_at(40),
            data_sum: u32_at(48),
        })
    }

    /// Bytes from this header to the next.
    pub(super) fn taken(&self) -> u64 {
        taken(u64::from(self.len))
    }
}

/// Bytes that a record with `len` bytes of data takes on the disk.
pub(super) fn taken(len: u64) -> u64 {
    (HEADER_LEN as u64 + len).next_multiple_of(ALIGN)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> Header {
        Header {
            kind: Kind::Record,
            log: 0x1122_3344_5566_7788,
            sequence: 7,
            generation: 3,
            session: 2,
            len: 5,
            position: 4096,
            data_sum: crc32fast::hash(b"hello"),
        }
    }

    /// The table of docs/zone-log.md, byte by byte: changing it requires a new version.
    #[test]
    fn the_header_is_the_documented_one() {
        let b = header().encode();
        assert_eq!(&b[0..8], b"ZPLG\x01\x00\x01\x00");
        assert_eq!(b[8..16], [0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11]);
        assert_eq!((b[16], b[24], b[32], b[36], b[41]), (7, 3, 2, 5, 16));
        assert_eq!(b[48..52], 0x3610_a686_u32.to_le_bytes(), "CRC-32 of hello");
        assert_eq!(b[52..60], [0; 8]);
        assert_eq!(Header::decode(&b), Some(header()));
    }

    #[test]
    fn one_wrong_bit_makes_no_header() {
        let good = header().encode();
        for bit in 0..HEADER_LEN * 8 {
            let mut b = good;
            b[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Header::decode(&b), None, "bit {bit}");
        }
        assert_eq!(Header::decode(&good[..63]), None);
    }
}
