//! The doors that there are. Each of these files knows its protocol; nothing else here knows one.

pub mod nvme_tcp;
pub mod ublk;
