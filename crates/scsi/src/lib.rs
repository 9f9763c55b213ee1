//! SCSI for zoned disks. The crate has no sockets, threads or clock: bytes go in and out.
//!
//! | room | what it owns |
//! | --- | --- |
//! | [`spec`] | the formats of the standards: commands, sense data, pages, descriptors, numbers |
//! | [`command`] | from the bytes of a command to its checked fields |
//!
//! The standards: SPC-6, SBC-4 and ZBC-2 of INCITS T10.

#![forbid(unsafe_code)]

pub mod command;
pub mod spec;
