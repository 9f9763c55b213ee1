//! The doors that there are. Each of these files knows its protocol; nothing else here knows one.

pub(crate) mod nvme_tcp;
pub(crate) mod ublk;
