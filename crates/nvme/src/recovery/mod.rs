//! What a target needs to know of commands whose answers were lost, so that a host which sends them again finds them carried
//! out once.
//!
//! | file | what it owns |
//! | --- | --- |
//! | `lost.rs` | the writes and appends of a disk whose answers hosts may not have, and hosts whose old commands still run |
//! | `resend.rs` | what to ask the disk about a command that may have been sent again |
//! | `disk.rs` | the notes of one disk that threads share |

mod disk;
mod lost;
mod resend;

pub(crate) use disk::data_hash;
pub use disk::{DiskRecovery, written_in};
pub use lost::HostKey;
pub(crate) use lost::{Landed, Lost};
pub(crate) use resend::{Outcome, Resend, ResendStep, Sent};
