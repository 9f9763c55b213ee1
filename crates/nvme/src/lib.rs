//! NVMe for zoned namespaces. The crate has no sockets, threads or clock: bytes go in and out, and time is an
//! argument.
//!
//! | room | what it owns |
//! | --- | --- |
//! | [`dhchap`] | authentication: the computations of a host and a controller |
//! | [`spec`] | the formats of the specifications: commands, completions, data structures, numbers |
//! | [`initiator`] | a model of an initiator, for tests and load |
//! | [`tcp`] | one connection of NVMe over TCP as a state machine |
//! | [`target`] | the answers of a target to commands, without a transport |
//! | [`io_queue`] | the commands of a connection as BIOs of disks |
//! | [`recovery`] | commands that were sent again after their answers were lost |
//!
//! Without the feature `target` there are only [`spec`] and the search for appends in space of a zone
//! ([`recovery::Space`]).
//!
//! The specifications: NVM Express Base 2.0, NVM Command Set 1.0, Zoned Namespace Command Set 1.1, TCP Transport 1.0.

#![forbid(unsafe_code)]

#[cfg(feature = "target")]
pub mod dhchap;
#[cfg(feature = "target")]
pub mod initiator;
#[cfg(feature = "target")]
pub mod io_queue;
pub mod recovery;
pub mod spec;
#[cfg(feature = "target")]
pub mod target;
#[cfg(feature = "target")]
pub mod tcp;
