//! NVMe for zoned namespaces. The crate has no sockets, threads or clock: bytes go in and out, and time is an
//! argument.
//!
//! | room | what it owns |
//! | --- | --- |
//! | [`dhchap`] | authentication: the computations of a host and a controller |
//! | [`spec`] | the formats of the specifications: commands, completions, data structures, numbers |
//! | [`initiator`] | a model of an initiator, for tests and load |
//! | [`tcp`] | one connection of NVMe over TCP as a state machine |
//! | [`association`] | a connection for its whole life: its role, the host's authentication, its end |
//! | [`target`] | the answers of a target to commands, without a transport |
//! | [`io_queue`] | the commands of a connection as BIOs of disks |
//! | `recovery_names.rs` | the keys and numbers by which [`zoneplug_recovery`] knows hosts and queues |
//!
//! Without the feature `target` there is only [`spec`].
//!
//! The specifications: NVM Express Base 2.0, NVM Command Set 1.0, Zoned Namespace Command Set 1.1, TCP Transport 1.0.

#![forbid(unsafe_code)]

#[cfg(feature = "target")]
pub mod association;
#[cfg(feature = "target")]
pub mod dhchap;
#[cfg(feature = "target")]
pub mod initiator;
#[cfg(feature = "target")]
pub mod io_queue;
#[cfg(feature = "target")]
mod recovery_names;
pub mod spec;
#[cfg(feature = "target")]
pub mod target;
#[cfg(feature = "target")]
pub mod tcp;
