//! SCSI for zoned disks. The crate has no sockets, threads or clock: bytes go in and out.
//!
//! | room | what it owns |
//! | --- | --- |
//! | [`spec`] | the formats of the standards: commands, sense data, pages, descriptors, numbers |
//! | [`command`] | from the bytes of a command to its checked fields |
//! | [`mod@unit`] | a disk as SCSI shows it: the answer to each command, and what a command asks of the disk |
//! | [`iscsi`] | the transport iSCSI: PDUs in bytes of any fragmentation, text keys and their negotiation |
//!
//! The standards: SPC-6, SBC-4 and ZBC-2 of INCITS, and RFC 7143.

#![forbid(unsafe_code)]

pub mod command;
pub mod iscsi;
pub mod spec;
pub mod unit;
