//! Disks that are served over NVMe/TCP, and hosts that come, go, flood, lose their link and take other paths.
#![allow(clippy::unwrap_used)]

mod auth;
mod flood;
mod held;
mod idle;
mod keep_alive;
#[path = "../common/kept_log.rs"]
mod kept_log;
mod loss;
#[path = "../common/lost_writes.rs"]
mod lost_writes;
mod multipath;
#[path = "../common/nvme_host.rs"]
mod nvme_host;
mod restart;
mod target;
