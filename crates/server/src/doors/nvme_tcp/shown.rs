//! Hosts and namespaces as the control socket shows them.

use zoneplug_control::client::{HostShown, KnownHostShown, StateOfNamespace};
use zoneplug_host::nvme_tcp::{KnownHost, NvmeTcpHost, ShownNamespace};

/// A known host, as the record for the next server has it.
pub(super) fn known_host(k: KnownHost) -> KnownHostShown {
    KnownHostShown { nqn: k.nqn, address: k.address.to_string() }
}

/// The known host of such a record. `None`: its address is invalid.
pub(super) fn known_host_of(k: &KnownHostShown) -> Option<KnownHost> {
    Some(KnownHost { nqn: k.nqn.clone(), address: k.address.parse().ok()? })
}

/// A namespace of the disk with this name.
pub(super) fn namespace(n: &ShownNamespace, disk: String) -> StateOfNamespace {
    StateOfNamespace {
        nsid: n.nsid,
        disk,
        block_bytes: n.block_bytes,
        blocks: n.blocks,
        zone_blocks: n.zone_blocks,
        digest: n.digest,
    }
}

/// A connected host.
pub(super) fn host(h: NvmeTcpHost) -> HostShown {
    HostShown { nqn: h.nqn, queues: h.queues as u32, authenticated: h.authenticated }
}
