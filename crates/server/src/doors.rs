//! The doors. Only these files know a protocol.

pub mod nvme_tcp;
pub mod ublk;
