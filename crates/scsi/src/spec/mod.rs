//! The formats of the standards: SPC-6, SBC-4 and ZBC-2.
//!
//! | file | what it owns |
//! | --- | --- |
//! | `bytes.rs` | big-endian numbers in bytes |
//! | `operation.rs` | the one table of commands: numbers, names, lengths, bits in use |
//! | `sense.rs` | sense data in both formats, and the sense of everything that the target refuses |
//! | `inquiry.rs` | standard INQUIRY data and the pages of vital product data |
//! | `mode.rs` | mode pages, and the parameter data around them |
//! | `zone.rs` | zones: reporting options, the header and the descriptors of a report |
//! | `block.rs` | capacities, and the ranges of UNMAP |

pub mod block;
pub(crate) mod bytes;
pub mod inquiry;
pub mod mode;
pub mod operation;
pub mod sense;
pub mod zone;

/// The status of a command (SAM-6, *Status codes*).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum ScsiStatus {
    /// Done.
    Good = 0x00,
    /// Refused or failed: the sense data say why.
    CheckCondition = 0x02,
    /// The unit cannot take the command now.
    Busy = 0x08,
    /// Another initiator has a reservation.
    ReservationConflict = 0x18,
    /// The unit has too many commands of this initiator.
    TaskSetFull = 0x28,
    /// Another initiator has aborted the command.
    TaskAborted = 0x40,
}
