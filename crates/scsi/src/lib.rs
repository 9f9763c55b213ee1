//! SCSI for zoned disks. The crate has no sockets, threads or clock: bytes go in and out.
//!
//! | room | what it owns |
//! | --- | --- |
//! | [`spec`] | the formats of the standards: commands, sense data, pages, descriptors, numbers |
//! | [`command`] | from the bytes of a command to its checked fields |
//! | [`unit`] | a disk as SCSI shows it: the answer to each command, and what a command asks of the disk |
//!
//! The standards: SPC-6, SBC-4 and ZBC-2 of INCITS.

#![forbid(unsafe_code)]

pub mod command;
pub mod spec;
pub mod unit;
