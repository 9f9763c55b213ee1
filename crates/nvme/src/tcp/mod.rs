//! NVMe over TCP: the controller's side of a connection, without sockets. Bytes go in and out, commands come up,
//! answers go down, and time is an argument.
//!
//! | file | what it owns |
//! | --- | --- |
//! | `pdu.rs` | the headers of PDUs, both ways |
//! | `digest.rs` | CRC32C |
//! | `data_pointer.rs` | the position of a command's data |
//! | `connection/` | one connection: its input, its commands, its output |
//!
//! Specification: NVM Express TCP Transport 1.0.

mod connection;
mod data_pointer;
mod digest;
pub mod pdu;

pub use connection::{Config, Connection, ConnectionEvent, Ended, Queue, Received, TimedOut};
pub use data_pointer::DataPointer;
pub use digest::{DIGEST_LEN, Digest};

/// Most bytes of data in a command capsule, of an admin queue and of an I/O queue. An admin queue must accept this
/// many (TCP Transport Specification, *Capsules and Data Transfers*). For I/O queues, IOCCSZ of Identify Controller
/// tells the host.
pub const IN_CAPSULE_MAX: u32 = 8192;
