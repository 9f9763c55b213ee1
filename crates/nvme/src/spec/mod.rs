//! Formats of the NVM Express specifications, both ways: a drive's answers are decoded with what a target encodes.

mod command;

pub use command::{COMMAND_LEN, COMPLETION_LEN, Command, Completion};

/// Operation codes. Bits 1:0 say which way the data goes: 1 to the controller, 2 to the host, 0 none.
pub mod opcode {
    /// Flush (NVM Command Set).
    pub const FLUSH: u8 = 0x00;
    /// Write.
    pub const WRITE: u8 = 0x01;
    /// Read.
    pub const READ: u8 = 0x02;
    /// Write Zeroes.
    pub const WRITE_ZEROES: u8 = 0x08;
    /// Dataset Management, of which deallocate is a part.
    pub const DATASET_MANAGEMENT: u8 = 0x09;
    /// Zone Management Send (Zoned Namespace Command Set).
    pub const ZONE_MANAGEMENT_SEND: u8 = 0x79;
    /// Zone Management Receive.
    pub const ZONE_MANAGEMENT_RECEIVE: u8 = 0x7a;
    /// Zone Append.
    pub const ZONE_APPEND: u8 = 0x7d;
}

/// Force unit access: command dword 12 of a write, an append or a write of zeroes.
pub const FUA: u32 = 1 << 30;
/// Select all: command dword 13 of Zone Management Send.
pub const SELECT_ALL: u32 = 1 << 8;
/// Partial report: command dword 13 of Zone Management Receive. The count is that of the descriptors in the report,
/// not of the zones that match.
pub const PARTIAL_REPORT: u32 = 1 << 16;

/// Bytes before the descriptors of a zone report, and of one of them.
pub const ZONE_DESCRIPTOR_LEN: usize = 64;

/// The action of Zone Management Send, bits 7:0 of command dword 13.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum ZoneAction {
    /// Close.
    Close = 1,
    /// Finish.
    Finish = 2,
    /// Open explicitly.
    Open = 3,
    /// Reset.
    Reset = 4,
    /// Make a read-only or offline zone offline.
    Offline = 5,
}

impl ZoneAction {
    /// The action with this number.
    pub const fn from_u8(n: u8) -> Option<ZoneAction> {
        Some(match n {
            1 => ZoneAction::Close,
            2 => ZoneAction::Finish,
            3 => ZoneAction::Open,
            4 => ZoneAction::Reset,
            5 => ZoneAction::Offline,
            _ => return None,
        })
    }
}
