//! NVMe for zoned namespaces. No sockets, no threads, no clock: bytes go in and out, time is an argument.
//!
//! | room | what it owns |
//! | --- | --- |
//! | [`spec`] | the formats of the specifications: commands, completions, data structures, numbers |
//!
//! The specifications: NVM Express Base 2.0, NVM Command Set 1.0, Zoned Namespace Command Set 1.1.

#![forbid(unsafe_code)]

pub mod spec;
