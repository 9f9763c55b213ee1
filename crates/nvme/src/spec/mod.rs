//! Formats of the NVM Express specifications. Each has an encoder and a decoder: a target encodes what a drive's user
//! decodes.

pub mod auth;
mod command;
pub mod fabrics;
pub mod identify;
pub mod log;
pub mod status;
mod structure;
pub mod zone;

pub use command::{COMMAND_LEN, COMPLETION_LEN, Command, Completion, Direction, Sgl, SglKind};
pub use structure::text;
pub use zone::{PARTIAL_REPORT, SELECT_ALL, ZoneAction};

/// Operation codes of I/O commands, and of fabrics commands. Bits 1:0 give the direction of the data: 1 to the
/// controller, 2 to the host, 0 none.
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
    /// Every fabrics command.
    pub const FABRICS: u8 = 0x7f;
}

/// Operation codes of admin commands.
pub mod admin {
    /// Get Log Page.
    pub const GET_LOG_PAGE: u8 = 0x02;
    /// Identify.
    pub const IDENTIFY: u8 = 0x06;
    /// Abort.
    pub const ABORT: u8 = 0x08;
    /// Set Features.
    pub const SET_FEATURES: u8 = 0x09;
    /// Get Features.
    pub const GET_FEATURES: u8 = 0x0a;
    /// Asynchronous Event Request.
    pub const ASYNC_EVENT_REQUEST: u8 = 0x0c;
    /// Keep Alive.
    pub const KEEP_ALIVE: u8 = 0x18;
}

/// Feature identifiers: bits 7:0 of command dword 10 of Get Features and Set Features.
pub mod feature {
    /// Arbitration.
    pub const ARBITRATION: u8 = 0x01;
    /// Power Management.
    pub const POWER_MANAGEMENT: u8 = 0x02;
    /// Temperature Threshold.
    pub const TEMPERATURE_THRESHOLD: u8 = 0x04;
    /// Error Recovery.
    pub const ERROR_RECOVERY: u8 = 0x05;
    /// Volatile Write Cache.
    pub const WRITE_CACHE: u8 = 0x06;
    /// Number of Queues.
    pub const QUEUES: u8 = 0x07;
    /// Write Atomicity Normal.
    pub const WRITE_ATOMICITY: u8 = 0x0a;
    /// Asynchronous Event Configuration.
    pub const ASYNC_EVENTS: u8 = 0x0b;
    /// Keep Alive Timer.
    pub const KEEP_ALIVE_TIMER: u8 = 0x0f;
    /// I/O Command Set Profile.
    pub const COMMAND_SET_PROFILE: u8 = 0x19;
    /// Spinup Control.
    pub const SPINUP_CONTROL: u8 = 0x1a;
    /// Host Identifier.
    pub const HOST_IDENTIFIER: u8 = 0x81;
}

/// Every namespace.
pub const ALL_NAMESPACES: u32 = u32::MAX;
/// Force unit access: command dword 12 of a read, a write, an append or a write of zeroes.
pub const FUA: u32 = 1 << 30;
