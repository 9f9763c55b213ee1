//! Continues the device of a dead server.
//!
//! | file | what it owns |
//! | --- | --- |
//! | `identity.rs` | how a device is recognised: which disks, which layers, which copy of them |
//! | `search.rs` | the search for a device that a dead server has left |
//! | `journal_file.rs` | the journal of a device, which keeps for the next server which appends were acknowledged |
//! | `unacked.rs` | the search for appends that are on the disk and were not acknowledged |
//! | `replay.rs` | requests that Linux sends again |
//! | `compare.rs` | whether data is on the disk |
//! | `model.rs` | a test: servers that are killed one after the other, against a list of the owner of each block |
//! | `queue_tests.rs` | tests of the queues of such servers |

mod compare;
pub(super) mod identity;
pub(super) mod journal_file;
#[cfg(test)]
mod model;
#[cfg(test)]
mod queue_tests;
pub(super) mod replay;
pub(super) mod search;
mod unacked;
