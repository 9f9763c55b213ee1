//! Status codes of completions: status code type in bits 10:8, status code in bits 7:0 (Base Specification, figures
//! *Generic Command Status Values* and *Command Specific Status Values*; Fabrics: *Connect*).
//!
//! `zoneplug_core::Status::nvme` has those of the commands that reach a disk. The tests have a table of all, with the section
//! of the specification and whether *do not retry* is set.

/// Do Not Retry: the same command would fail again.
pub const DNR: u16 = 1 << 14;

/// Success.
pub const SUCCESS: u16 = 0;
/// Invalid Command Opcode.
pub const INVALID_OPCODE: u16 = 0x01;
/// Invalid Field in Command.
pub const INVALID_FIELD: u16 = 0x02;
/// Internal Error.
pub const INTERNAL: u16 = 0x06;
/// Command Abort Requested.
pub const ABORTED: u16 = 0x07;
/// Invalid Namespace or Format.
pub const INVALID_NAMESPACE: u16 = 0x0b;
/// Command Sequence Error.
pub const SEQUENCE: u16 = 0x0c;
/// Data SGL Length Invalid.
pub const SGL_LENGTH: u16 = 0x0f;
/// SGL Descriptor Type Invalid.
pub const SGL_TYPE: u16 = 0x11;
/// SGL Offset Invalid.
pub const SGL_OFFSET: u16 = 0x16;
/// Keep Alive Timeout Invalid.
pub const KEEP_ALIVE_INVALID: u16 = 0x1a;
/// Transient Transport Error: may be sent again.
pub const TRANSIENT_TRANSPORT: u16 = 0x22;
/// LBA Out of Range.
pub const LBA_RANGE: u16 = 0x80;
/// Namespace Not Ready.
pub const NOT_READY: u16 = 0x82;

/// Asynchronous Event Request Limit Exceeded.
pub const EVENT_LIMIT: u16 = 0x105;
/// Invalid Log Page.
pub const INVALID_LOG: u16 = 0x109;
/// Feature Identifier Not Saveable.
pub const NOT_SAVEABLE: u16 = 0x10d;
/// Feature Not Changeable.
pub const NOT_CHANGEABLE: u16 = 0x10e;
/// I/O Command Set Not Supported.
pub const COMMAND_SET_NOT_SUPPORTED: u16 = 0x129;
/// I/O Command Set Combination Rejected.
pub const COMMAND_SET_REJECTED: u16 = 0x12b;
/// Invalid I/O Command Set.
pub const COMMAND_SET: u16 = 0x12c;
/// Connect: Incompatible Format.
pub const CONNECT_FORMAT: u16 = 0x180;
/// Connect: Controller Busy.
pub const CONNECT_BUSY: u16 = 0x181;
/// Connect Invalid Parameters.
pub const CONNECT_PARAMETERS: u16 = 0x182;
/// Connect Invalid Host.
pub const CONNECT_HOST: u16 = 0x184;
/// Invalid Queue Type: Disconnect on the admin queue.
pub const QUEUE_TYPE: u16 = 0x185;
/// Authentication Required: the queue takes no other command until its host has authenticated.
pub const AUTHENTICATION_REQUIRED: u16 = 0x191;
/// Zone Boundary Error.
pub const ZONE_BOUNDARY: u16 = 0x1b8;
/// Invalid Zone State Transition.
pub const ZONE_TRANSITION: u16 = 0x1bf;

/// Unrecovered Read Error.
pub const UNRECOVERED_READ: u16 = 0x281;
/// Asymmetric Access Inaccessible: the host must use another port.
pub const INACCESSIBLE: u16 = 0x302;

#[cfg(test)]
mod table;
