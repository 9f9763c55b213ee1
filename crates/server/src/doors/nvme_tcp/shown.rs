//! Hosts and namespaces as the control socket shows them.

use zoneplug_control::client::{HostShown, StateOfNamespace};
use zoneplug_host::nvme_tcp::{NvmeTcpHost, ShownNamespace};

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
