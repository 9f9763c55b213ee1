//! Commands whose answers were lost. A client sends them again, and its server must not carry them out twice.
//!
//! A server recognises such a command, compares its data with the disk, and answers it. This crate decides the steps. It has no I/O, no
//! thread and no clock: the caller sends what a step asks of the disk, and time is an argument.
//!
//! Clients are of two kinds:
//!
//! | client | commands that may be old |
//! | --- | --- |
//! | one of several that lose connections, such as a host of NVMe/TCP | those that are noted, and for a time after the start of the server all of the last server |
//! | the only one, which outlives the server and has one write of a zone in flight, such as Linux on a ublk device | the first ones of each zone |
//!
//! | file | what it owns |
//! | --- | --- |
//! | `ledger.rs` | the writes and appends of a disk whose answers clients may not have, and clients whose old commands still run |
//! | `last_server.rs` | the commands that the last server of the disk may have carried out without an answer |
//! | `notes.rs` | such commands, by zone and client |
//! | `resend.rs` | what to ask the disk about a command that may have been sent again |
//! | `resending.rs` | the steps as a door carries them out, and a command while a step is with the disk |
//! | `client_key.rs` | the names of clients and of their queues |
//! | `data.rs` | the data of a command and of a zone |
//! | `peer_queries.rs` | what the queues of a client ask each other |
//! | `space.rs` | space of a zone that belongs to no client |
//! | `first_tests.rs` | tests of a client whose first commands of each zone may be old |
//! | `space_model.rs` | a test: appends that are looked for in such space, several at a time |
//! | `model.rs` | a test: clients that lose their connections and servers, against a list of the owner of each block |
//! | `disk.rs` | the ledger of one disk, shared by threads |

#![forbid(unsafe_code)]

mod client_key;
mod data;
mod disk;
#[cfg(test)]
mod first_tests;
mod last_server;
mod ledger;
#[cfg(test)]
mod model;
mod notes;
mod peer_queries;
mod resend;
mod resending;
mod space;
#[cfg(test)]
mod space_model;

pub use client_key::{ClientKey, ClientQueue};
pub use data::{data_hash, written_in};
pub use disk::{DiskRecovery, FirstCommands};
pub use ledger::{Landed, ResendLedger};
pub use peer_queries::{Asked, PeerQueryId, Reply};
pub use resend::{Outcome, Resend, ResendStep, Search, SentCommand, StepIo};
pub use resending::{DoorStep, LateWait, NOTHING_LATE, Resending, StepEnd};
pub use space::{Space, block_hashes};
