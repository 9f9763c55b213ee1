//! NVMe over TCP: the controller's side of a connection, without sockets. Bytes go in and out, commands come up, answers
//! go down, time is an argument.
//!
//! | file | what it owns |
//! | --- | --- |
//! | `pdu.rs` | the headers of PDUs, both ways |
//! | `digest.rs` | CRC32C |
//! | `data_pointer.rs` | where a command says that its data are |
//! | `buffers.rs` | free memory for data |
//! | `connection/` | one connection: what it received, its commands, what it sends |
//!
//! Specification: NVM Express TCP Transport 1.0.

mod buffers;
mod connection;
mod data_pointer;
mod digest;
pub mod pdu;

pub use buffers::Buffers;
pub use connection::{Config, Connection, Ended, Event, Queue, Received, TimedOut};
pub use data_pointer::DataPointer;
pub use digest::{DIGEST_LEN, Digest};

/// Most bytes of data in a command capsule, of an admin queue and of an I/O queue alike. An admin queue has to take so
/// many (TCP Transport Specification, *Capsules and Data Transfers*). For I/O queues, Identify Controller says so in
/// IOCCSZ.
pub const IN_CAPSULE_MAX: u32 = 8192;
