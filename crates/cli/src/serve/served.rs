//! What a server knows of a disk that it serves.

use super::network_attributes::NetworkAttributes;
use crate::server_client::{HostShown, IoShown};
use zoneplug_host::nvme_tcp::KnownDisk;
use zoneplug_host::{DiskMark, HeldDisks, HostedDisk, ServedCounters};

/// A disk that is served.
pub(crate) struct Served {
    /// `ublkb0`; `tcp4420n1` for namespace 1 at port 4420.
    pub(crate) name: String,
    pub(crate) spec: String,
    pub(crate) disk: HostedDisk,
    pub(crate) recovered: bool,
    /// Whether another server can take it over.
    pub(crate) outlives: bool,
    /// What the kernel's side has counted.
    pub(crate) counters: Box<dyn Fn() -> ServedCounters + Send + Sync>,
    /// How it is reached, if it is served over the network.
    pub(crate) network: Option<Network>,
    pub(crate) passed: Passed,
}

/// From where a server has the open files of a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Origin {
    /// The server has opened them.
    #[default]
    Own,
    /// The server before it has handed them over.
    HandedOver,
    /// From itself: a hand-over came to nothing.
    TakenBack,
}

/// The part of a disk that a server passes to the next one, as it was opened.
#[derive(Debug, Clone, Default)]
pub(crate) struct Passed {
    pub(crate) mark: DiskMark,
    pub(crate) held: HeldDisks,
    /// How its data moves.
    pub(crate) io: Vec<IoShown>,
    pub(crate) origin: Origin,
    /// How hosts know it.
    pub(crate) known: Option<KnownDisk>,
}

/// A server of NVMe/TCP.
pub(crate) struct Network {
    pub(crate) address: String,
    pub(crate) nqn: String,
    /// Its place among the disks of the server.
    pub(crate) place: usize,
    pub(crate) hosts: Box<dyn Fn() -> Vec<HostShown> + Send + Sync>,
    pub(crate) failed_authentications: Box<dyn Fn() -> u64 + Send + Sync>,
    pub(crate) attributes: NetworkAttributes,
}
