//! What a new server needs to go on with the device of a server that has died.
//!
//! | file | what it owns |
//! | --- | --- |
//! | `identity.rs` | how a device is recognised: which disks, which layers, which copy of them |
//! | `journal.rs`, `journal_file.rs` | which appends were acknowledged; the file that keeps it for the next server |
//! | `unacked.rs` | the search for appends that were written and not acknowledged |
//! | `replay.rs` | requests that Linux sends again |
//! | `model.rs` | a test: servers that are killed one after the other, against a list of who owns which block |

pub(super) mod identity;
pub(super) mod journal;
pub(super) mod journal_file;
#[cfg(test)]
mod model;
pub(super) mod replay;
mod unacked;
