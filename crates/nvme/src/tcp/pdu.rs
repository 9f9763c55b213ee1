//! The headers of PDUs, both ways (TCP Transport Specification, *PDU Definitions*). All numbers are little endian.

/// Bytes of the common header, with which each PDU begins.
pub const COMMON_LEN: usize = 8;
/// Bytes of the headers of ICReq and ICResp.
pub const INITIALIZE_LEN: usize = 128;
/// Bytes of the header of a command capsule.
pub const CAPSULE_COMMAND_LEN: usize = 72;
/// Bytes of the header of a response capsule.
pub const CAPSULE_RESPONSE_LEN: usize = 24;
/// Bytes of the headers of H2CData, C2HData and R2T.
pub const DATA_LEN: usize = 24;
/// Bytes of the header of H2CTermReq and C2HTermReq.
pub const TERMINATE_LEN: usize = 24;
/// Most bytes of H2CTermReq and C2HTermReq: the header, and the header of the PDU that was wrong.
pub const TERMINATE_MAX: usize = 152;
/// Highest value of HPDA and CPDA.
pub const MAX_ALIGN: u8 = 31;

/// The type of a PDU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Initialize Connection Request.
    IcReq = 0,
    /// Initialize Connection Response.
    IcResp = 1,
    /// Terminate Connection Request of the host.
    H2cTerm = 2,
    /// Terminate Connection Request of the controller.
    C2hTerm = 3,
    /// Command Capsule.
    CapsuleCmd = 4,
    /// Response Capsule.
    CapsuleResp = 5,
    /// Data of the host, which an R2T has asked for.
    H2cData = 6,
    /// Data of the controller.
    C2hData = 7,
    /// Ready to Transfer.
    R2t = 9,
}

impl Kind {
    /// Returns the type with this number.
    pub const fn from_u8(n: u8) -> Option<Kind> {
        Some(match n {
            0 => Kind::IcReq,
            1 => Kind::IcResp,
            2 => Kind::H2cTerm,
            3 => Kind::C2hTerm,
            4 => Kind::CapsuleCmd,
            5 => Kind::CapsuleResp,
            6 => Kind::H2cData,
            7 => Kind::C2hData,
            9 => Kind::R2t,
            _ => return None,
        })
    }

    /// Returns the bytes of the type's header.
    pub const fn header_len(self) -> usize {
        match self {
            Kind::IcReq | Kind::IcResp => INITIALIZE_LEN,
            Kind::H2cTerm | Kind::C2hTerm => TERMINATE_LEN,
            Kind::CapsuleCmd => CAPSULE_COMMAND_LEN,
            Kind::CapsuleResp => CAPSULE_RESPONSE_LEN,
            Kind::H2cData | Kind::C2hData | Kind::R2t => DATA_LEN,
        }
    }

    /// Returns whether a header digest follows the header on a connection that uses them.
    pub const fn has_header_digest(self) -> bool {
        !matches!(self, Kind::IcReq | Kind::IcResp | Kind::H2cTerm | Kind::C2hTerm)
    }
}

/// Flags of the common header.
pub mod flag {
    /// HDGSTF: a digest follows the header.
    pub const HEADER_DIGEST: u8 = 1;
    /// DDGSTF: a digest follows the data.
    pub const DATA_DIGEST: u8 = 1 << 1;
    /// LAST_PDU of H2CData and C2HData: last data of the R2T, or of the command.
    pub const LAST: u8 = 1 << 2;
    /// SUCCESS of C2HData: the command is complete without a response capsule.
    pub const SUCCESS: u8 = 1 << 3;
}

/// Offset of a field from the start of its PDU, for the Fatal Error Information about a wrong field.
pub mod field {
    /// PDU-Type.
    pub const KIND: u32 = 0;
    /// FLAGS.
    pub const FLAGS: u32 = 1;
    /// HLEN.
    pub const HLEN: u32 = 2;
    /// PDO.
    pub const PDO: u32 = 3;
    /// PLEN.
    pub const PLEN: u32 = 4;
    /// PFV of ICReq.
    pub const PFV: u32 = 8;
    /// HPDA of ICReq.
    pub const HPDA: u32 = 10;
    /// DGST of ICReq.
    pub const DGST: u32 = 11;
    /// CCCID of H2CData, C2HData and R2T.
    pub const CCCID: u32 = 8;
    /// TTAG of H2CData and R2T.
    pub const TTAG: u32 = 10;
    /// DATAL of H2CData and C2HData.
    pub const DATAL: u32 = 16;
}

/// The common header (figure *PDU Header*).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Common {
    /// PDU-Type: a [`Kind`], if it is one.
    pub kind: u8,
    /// FLAGS.
    pub flags: u8,
    /// HLEN: bytes of the header, without digest.
    pub hlen: u8,
    /// PDO: offset of the data from the start of the PDU in bytes. 0: no data.
    pub pdo: u8,
    /// PLEN: bytes of the whole PDU.
    pub plen: u32,
}

impl Common {
    /// Encodes the header.
    pub const fn encode(&self) -> [u8; COMMON_LEN] {
        let l = self.plen.to_le_bytes();
        [self.kind, self.flags, self.hlen, self.pdo, l[0], l[1], l[2], l[3]]
    }

    /// Decodes the header.
    pub const fn decode(b: &[u8; COMMON_LEN]) -> Common {
        let plen = u32::from_le_bytes([b[4], b[5], b[6], b[7]]);
        Common { kind: b[0], flags: b[1], hlen: b[2], pdo: b[3], plen }
    }

    /// Returns whether this flag is set.
    pub const fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// The digests that a connection uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Digests {
    /// HDGST_ENABLE.
    pub header: bool,
    /// DDGST_ENABLE.
    pub data: bool,
}

/// ICReq and ICResp behind the common header: both have the same fields at the same places.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Initialize {
    /// PFV: the version of the format. 0 is the only one.
    pub version: u16,
    /// HPDA of ICReq or CPDA of ICResp: the alignment that the host, or the controller, requires for the data of a
    /// PDU, in dwords less one.
    pub align: u8,
    /// DGST: bit 0 header digests, bit 1 data digests.
    pub digests: u8,
    /// MAXR2T of ICReq: R2Ts that a command may have outstanding, less one. MAXH2CDATA of ICResp: most bytes of data
    /// in an H2CData PDU.
    pub max: u32,
}

impl Initialize {
    /// Encodes the whole PDU. `kind` is ICReq or ICResp.
    pub fn encode(&self, kind: Kind) -> [u8; INITIALIZE_LEN] {
        let common = Common {
            kind: kind as u8,
            flags: 0,
            hlen: INITIALIZE_LEN as u8,
            pdo: 0,
            plen: INITIALIZE_LEN as u32,
        };
        let mut b = [0; INITIALIZE_LEN];
        b[..8].copy_from_slice(&common.encode());
        b[8..10].copy_from_slice(&self.version.to_le_bytes());
        (b[10], b[11]) = (self.align, self.digests);
        b[12..16].copy_from_slice(&self.max.to_le_bytes());
        b
    }

    /// Decodes the whole PDU.
    pub const fn decode(b: &[u8; INITIALIZE_LEN]) -> Initialize {
        Initialize {
            version: u16::from_le_bytes([b[8], b[9]]),
            align: b[10],
            digests: b[11],
            max: u32::from_le_bytes([b[12], b[13], b[14], b[15]]),
        }
    }
}

/// H2CData, C2HData and R2T behind the common header: all have the same fields at the same places.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transfer {
    /// CCCID: the identifier of the command.
    pub cid: u16,
    /// TTAG of R2T and H2CData: the controller's tag for the transfer. Reserved in C2HData.
    pub tag: u16,
    /// DATAO or R2TO: offset in the command's data, in bytes.
    pub offset: u32,
    /// DATAL or R2TL: length in bytes.
    pub len: u32,
}

impl Transfer {
    /// Encodes the header. `common` is its common part.
    pub fn encode(&self, common: Common) -> [u8; DATA_LEN] {
        let mut b = [0; DATA_LEN];
        b[..8].copy_from_slice(&common.encode());
        b[8..10].copy_from_slice(&self.cid.to_le_bytes());
        b[10..12].copy_from_slice(&self.tag.to_le_bytes());
        b[12..16].copy_from_slice(&self.offset.to_le_bytes());
        b[16..20].copy_from_slice(&self.len.to_le_bytes());
        b
    }

    /// Decodes the header with its common part.
    pub const fn decode(b: &[u8; DATA_LEN]) -> Transfer {
        Transfer {
            cid: u16::from_le_bytes([b[8], b[9]]),
            tag: u16::from_le_bytes([b[10], b[11]]),
            offset: u32::from_le_bytes([b[12], b[13], b[14], b[15]]),
            len: u32::from_le_bytes([b[16], b[17], b[18], b[19]]),
        }
    }
}

/// Fatal Error Status of H2CTermReq and C2HTermReq.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FatalError {
    /// FES: one of [`fatal`].
    pub status: u16,
    /// FEI. For [`fatal::HEADER_FIELD`] and [`fatal::PARAMETER`] the offset of the field, see [`field`]; for
    /// [`fatal::HEADER_DIGEST`] the digest that arrived; otherwise 0.
    pub info: u32,
}

/// Values of [`FatalError::status`].
pub mod fatal {
    /// Invalid PDU Header Field.
    pub const HEADER_FIELD: u16 = 1;
    /// PDU Sequence Error.
    pub const SEQUENCE: u16 = 2;
    /// Header Digest Error.
    pub const HEADER_DIGEST: u16 = 3;
    /// Data Transfer Out of Range.
    pub const OUT_OF_RANGE: u16 = 4;
    /// Data Transfer Limit Exceeded; from a host, R2T Limit Exceeded.
    pub const LIMIT: u16 = 5;
    /// Unsupported Parameter.
    pub const PARAMETER: u16 = 6;
}

impl FatalError {
    /// Encodes the PDU that reports the error. `kind` is H2CTermReq or C2HTermReq. `wrong` is the header of the wrong
    /// PDU; its first 128 bytes are sent along.
    pub fn encode(&self, kind: Kind, wrong: &[u8]) -> Vec<u8> {
        let wrong = &wrong[..wrong.len().min(TERMINATE_MAX - TERMINATE_LEN)];
        let plen = (TERMINATE_LEN + wrong.len()) as u32;
        let common = Common { kind: kind as u8, flags: 0, hlen: TERMINATE_LEN as u8, pdo: 0, plen };
        let mut b = common.encode().to_vec();
        b.extend_from_slice(&self.status.to_le_bytes());
        b.extend_from_slice(&self.info.to_le_bytes());
        b.resize(TERMINATE_LEN, 0);
        b.extend_from_slice(wrong);
        b
    }

    /// Decodes the header with its common part.
    pub const fn decode(b: &[u8; TERMINATE_LEN]) -> FatalError {
        FatalError {
            status: u16::from_le_bytes([b[8], b[9]]),
            info: u32::from_le_bytes([b[10], b[11], b[12], b[13]]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Figures *ICReq* and *ICResp*.
    #[test]
    fn initialize_has_its_fields_where_the_figures_have_them() {
        let i = Initialize { version: 0x0102, align: 3, digests: 2, max: 0x0405_0607 };
        let b = i.encode(Kind::IcReq);
        assert_eq!(b[..16], [0, 0, 128, 0, 128, 0, 0, 0, 2, 1, 3, 2, 7, 6, 5, 4]);
        assert_eq!(b[16..], [0; 112]);
        assert_eq!(Initialize::decode(&b), i);
        assert_eq!(i.encode(Kind::IcResp)[..8], [1, 0, 128, 0, 128, 0, 0, 0]);
    }

    /// Figures *H2CData*, *C2HData* and *R2T*.
    #[test]
    fn transfers_have_their_fields_where_the_figures_have_them() {
        let t = Transfer { cid: 0x0102, tag: 0x0304, offset: 0x0506_0708, len: 0x090a_0b0c };
        let common = Common { kind: 6, flags: 4, hlen: 24, pdo: 28, plen: 0x0d0e_0f10 };
        let b = t.encode(common);
        assert_eq!(b[..8], [6, 4, 24, 28, 0x10, 0x0f, 0x0e, 0x0d]);
        assert_eq!(b[8..20], [2, 1, 4, 3, 8, 7, 6, 5, 0x0c, 0x0b, 0x0a, 9]);
        assert_eq!(b[20..], [0; 4]);
        assert_eq!(Transfer::decode(&b), t);
        assert_eq!(Common::decode(&[6, 4, 24, 28, 0x10, 0x0f, 0x0e, 0x0d]), common);
    }

    /// Figures *H2CTermReq* and *C2HTermReq*.
    #[test]
    fn a_terminate_request_has_at_most_128_bytes_of_the_header() {
        let e = FatalError { status: fatal::SEQUENCE, info: 0x0102_0304 };
        let b = e.encode(Kind::C2hTerm, &[0xee; 300]);
        assert_eq!(b[..14], [3, 0, 24, 0, 152, 0, 0, 0, 2, 0, 4, 3, 2, 1]);
        assert_eq!(b[14..24], [0; 10]);
        assert_eq!(b[24..], [0xee; 128]);
        assert_eq!(FatalError::decode(b[..24].try_into().unwrap()), e);
        assert_eq!(e.encode(Kind::H2cTerm, &[1; 8]).len(), 32);
    }

    #[test]
    fn kinds_have_the_numbers_of_the_specification() {
        for n in 0..=255 {
            assert!(Kind::from_u8(n).is_none_or(|k| k as u8 == n));
        }
        assert!(Kind::from_u8(8).is_none() && Kind::from_u8(10).is_none());
    }
}
