//! Commands whose answers were lost. A host sends them again, and the target must not carry them out twice.
//!
//! | file | what it owns |
//! | --- | --- |
//! | `resend_ledger.rs` | the writes and appends of a disk whose answers hosts may not have, and hosts whose old commands still run |
//! | `notes.rs` | such commands, by zone and host |
//! | `resend.rs` | what to ask the disk about a command that may have been sent again |
//! | `host_key.rs` | the key that names a host in notes |
//! | `peer_queries.rs` | what the queues of a host ask each other |
//! | `space.rs` | space of a zone that belongs to no client |
//! | `space_model.rs` | a test: appends that are looked for in such space, several at a time |
//! | `model.rs` | a test: hosts that lose their connections, against a list of the owner of each block |
//! | `disk.rs` | the ledger of one disk, shared by threads |

#[cfg(feature = "target")]
mod disk;
#[cfg(feature = "target")]
mod host_key;
#[cfg(test)]
#[cfg(feature = "target")]
mod model;
#[cfg(feature = "target")]
mod notes;
#[cfg(feature = "target")]
mod peer_queries;
#[cfg(feature = "target")]
mod resend;
#[cfg(feature = "target")]
mod resend_ledger;
mod space;
#[cfg(test)]
#[cfg(feature = "target")]
mod space_model;

#[cfg(feature = "target")]
pub(crate) use disk::data_hash;
#[cfg(feature = "target")]
pub use disk::{DiskRecovery, written_in};
#[cfg(feature = "target")]
pub use host_key::HostKey;
#[cfg(feature = "target")]
pub(crate) use peer_queries::{Asked, PeerQueryId, Reply};
#[cfg(feature = "target")]
pub(crate) use resend::{Outcome, Resend, ResendStep, Sent};
#[cfg(feature = "target")]
pub(crate) use resend_ledger::{AppendData, Landed};
pub use space::{Space, block_hashes};
