//! Commands whose answers were lost. A client sends them again, and its server must not carry them out twice.
//!
//! A server recognises such a command, compares its data with the disk, and answers it. This crate decides the steps. It has no I/O, no
//! thread and no clock: the caller sends what a step asks of the disk, and time is an argument.
//!
//! | file | what it owns |
//! | --- | --- |
//! | `ledger.rs` | the writes and appends of a disk whose answers clients may not have, and clients whose old commands still run |
//! | `notes.rs` | such commands, by zone and client |
//! | `resend.rs` | what to ask the disk about a command that may have been sent again |
//! | `client_key.rs` | the names of clients and of their queues |
//! | `peer_queries.rs` | what the queues of a client ask each other |
//! | `space.rs` | space of a zone that belongs to no client |
//! | `space_model.rs` | a test: appends that are looked for in such space, several at a time |
//! | `model.rs` | a test: clients that lose their connections, against a list of the owner of each block |
//! | `disk.rs` | the ledger of one disk, shared by threads |

#![forbid(unsafe_code)]

mod client_key;
mod disk;
mod ledger;
#[cfg(test)]
mod model;
mod notes;
mod peer_queries;
mod resend;
mod space;
#[cfg(test)]
mod space_model;

pub use client_key::{ClientKey, ClientQueue};
pub use disk::{DiskRecovery, data_hash, written_in};
pub use ledger::{AppendData, Landed, ResendLedger};
pub use peer_queries::{Asked, PeerQueryId, Reply};
pub use resend::{Outcome, Resend, ResendStep, Sent};
pub use space::{Space, block_hashes};
