//! Continues the device of a dead server.
//!
//! | file | what it owns |
//! | --- | --- |
//! | `identity.rs` | how a device is recognised: which disks, which layers, which copy of them |
//! | `search.rs` | the search for a device that a dead server has left |
//! | `journal_file.rs` | the journal of a device, which keeps for the next server which appends were acknowledged |
//! | `unacked.rs` | the space in which appends are that were not acknowledged |
//! | `replay.rs` | requests that Linux sends again, as [`zoneplug_recovery`] knows them |
//! | `testing.rs` | for tests: carries out the steps of such a request |
//! | `queue_tests.rs` | tests of the queues of such servers |

pub(super) mod identity;
pub(super) mod journal_file;
#[cfg(test)]
mod queue_tests;
pub(super) mod replay;
pub(super) mod search;
#[cfg(test)]
mod testing;
mod unacked;
