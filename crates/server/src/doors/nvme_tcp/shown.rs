//! Hosts and namespaces as the control socket shows them.

use crate::client::{HostShown, KnownHostShown, StateOfNamespace};
use zoneplug_host::nvme_tcp::{KnownHost, NvmeTcpHost, ShownNamespace};

impl KnownHostShown {
    pub(super) fn of(k: KnownHost) -> KnownHostShown {
        KnownHostShown { nqn: k.nqn, address: k.address.to_string() }
    }

    /// The host. `None`: its address is invalid.
    pub(super) fn host(&self) -> Option<KnownHost> {
        Some(KnownHost { nqn: self.nqn.clone(), address: self.address.parse().ok()? })
    }
}

impl StateOfNamespace {
    /// A namespace of the disk with this name.
    pub(super) fn of(n: &ShownNamespace, disk: String) -> StateOfNamespace {
        StateOfNamespace {
            nsid: n.nsid,
            disk,
            block_bytes: n.block_bytes,
            blocks: n.blocks,
            zone_blocks: n.zone_blocks,
            digest: n.digest,
        }
    }
}

impl HostShown {
    pub(super) fn of(h: NvmeTcpHost) -> HostShown {
        HostShown { nqn: h.nqn, queues: h.queues as u32, authenticated: h.authenticated }
    }
}
