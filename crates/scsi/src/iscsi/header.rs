//! The header of a PDU: 48 bytes (RFC 7143, section 11.2). Fields that several PDUs have lie at the same offsets.

use crate::spec::bytes::{be16, be32, put};

/// The length of a header.
pub const HEADER_LEN: usize = 48;
/// The tag that names no task.
pub const NO_TAG: u32 = u32::MAX;

/// Operation codes.
#[allow(missing_docs)]
pub mod opcode {
    pub const NOP_OUT: u8 = 0x00;
    pub const COMMAND: u8 = 0x01;
    pub const TASK_MANAGEMENT: u8 = 0x02;
    pub const LOGIN: u8 = 0x03;
    pub const TEXT: u8 = 0x04;
    pub const DATA_OUT: u8 = 0x05;
    pub const LOGOUT: u8 = 0x06;
    pub const SNACK: u8 = 0x10;
    pub const NOP_IN: u8 = 0x20;
    pub const RESPONSE: u8 = 0x21;
    pub const TASK_MANAGEMENT_RESPONSE: u8 = 0x22;
    pub const LOGIN_RESPONSE: u8 = 0x23;
    pub const TEXT_RESPONSE: u8 = 0x24;
    pub const DATA_IN: u8 = 0x25;
    pub const LOGOUT_RESPONSE: u8 = 0x26;
    pub const R2T: u8 = 0x31;
    pub const ASYNC: u8 = 0x32;
    pub const REJECT: u8 = 0x3f;
}

/// A header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header(pub [u8; HEADER_LEN]);

impl Header {
    /// Makes a header with this operation code, whose other fields are 0.
    pub fn new(opcode: u8) -> Header {
        let mut b = [0; HEADER_LEN];
        b[0] = opcode;
        Header(b)
    }

    /// Returns the operation code.
    pub fn opcode(&self) -> u8 {
        self.0[0] & 0x3f
    }

    /// Returns whether the request is for immediate delivery: it has no place in the order of commands.
    pub fn is_immediate(&self) -> bool {
        self.0[0] & 0x40 != 0
    }

    /// Returns the final bit, with which a sequence ends.
    pub fn is_final(&self) -> bool {
        self.0[1] & 0x80 != 0
    }

    /// Returns the byte of flags, which each operation code has its own of.
    pub fn flags(&self) -> u8 {
        self.0[1]
    }

    /// Returns the bytes of additional headers.
    pub fn additional_len(&self) -> usize {
        usize::from(self.0[4]) * 4
    }

    /// Returns the bytes of data, without padding.
    pub fn data_len(&self) -> usize {
        usize::from(self.0[5]) << 16 | usize::from(be16(&self.0, 6))
    }

    /// Returns the LUN.
    pub fn lun(&self) -> [u8; 8] {
        let mut lun = [0; 8];
        lun.copy_from_slice(&self.0[8..16]);
        lun
    }

    /// Returns the initiator task tag.
    pub fn task_tag(&self) -> u32 {
        be32(&self.0, 16)
    }

    /// Returns the target transfer tag, or the expected data transfer length of a command.
    pub fn word20(&self) -> u32 {
        be32(&self.0, 20)
    }

    /// Returns CmdSN, in a request that has one.
    pub fn cmd_sn(&self) -> u32 {
        be32(&self.0, 24)
    }

    /// Returns ExpStatSN: the initiator has all answers with smaller numbers.
    pub fn exp_stat_sn(&self) -> u32 {
        be32(&self.0, 28)
    }

    /// Returns the CDB of a command.
    pub fn cdb(&self) -> &[u8] {
        &self.0[32..48]
    }

    /// Returns DataSN, the number of data in their sequence.
    pub fn data_sn(&self) -> u32 {
        be32(&self.0, 36)
    }

    /// Returns the buffer offset of data.
    pub fn buffer_offset(&self) -> u32 {
        be32(&self.0, 40)
    }

    /// Sets the byte of flags.
    #[must_use]
    pub fn with_flags(mut self, flags: u8) -> Header {
        self.0[1] = flags;
        self
    }

    /// Sets four bytes at an offset.
    #[must_use]
    pub fn with_word(mut self, at: usize, word: u32) -> Header {
        put(&mut self.0, at, &word.to_be_bytes());
        self
    }

    /// Sets the length of the data.
    #[must_use]
    pub(super) fn with_data_len(mut self, len: usize) -> Header {
        put(&mut self.0, 5, &(len as u32).to_be_bytes()[1..]);
        self
    }
}
