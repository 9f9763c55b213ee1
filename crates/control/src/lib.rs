//! The control socket of disks in use: what is asked and answered there, both of its ends, and failures with what to try.
//!
//! A server of disks answers at a [`Socket`], and so does a measurement that can be watched. `zoneplug status`, `attr`
//! and `top` are at the other end ([`client`]).
//!
//! | file | what it owns |
//! | --- | --- |
//! | `client.rs`, `client/`, `descriptors.rs` | the protocol, and the end that asks |
//! | `socket.rs`, `place.rs`, `access.rs`, `connections.rs` | the end that answers: where it is, who may use it, its clients |
//! | `answer.rs`, `zone_table.rs`, `pause.rs` | from a line to its answer; the zones of a disk; disks that wait while they are copied |
//! | `said.rs`, `outbox.rs` | text for stdout and stderr that no server waits for |
//! | `names.rs` | the forms of names of served disks |
//! | `html.rs`, `figures.rs` | pages of HTML without scripts; rounded figures |
//! | `error.rs` | why a question is not answered, as an enum |
//! | `failure.rs` | why something failed, what to try, and the exit code of a command |

#![forbid(unsafe_code)]

mod access;
mod answer;
#[allow(missing_docs)]
// the fields are those of the protocol, and their meaning is above each struct
pub mod client;
mod connections;
mod descriptors;
mod error;
mod failure;
pub mod figures;
pub mod html;
pub mod names;
mod outbox;
mod pause;
pub mod place;
pub mod said;
mod socket;
mod zone_table;

pub use access::Access;
pub use answer::{Answers, Reply, answer_line, refusal, respond};
pub use connections::{Bounds, MAX_QUESTION};
pub use error::{ControlError, Forbidden};
pub use failure::{Attempt, Failure, FailureParts, Kind};
pub use outbox::Outbox;
pub use pause::{LONGEST as LONGEST_PAUSE, Pause};
pub use socket::{LAST_ANSWERS, Socket, check as check_socket};
pub use zone_table::zone_table;
