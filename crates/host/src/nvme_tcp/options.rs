//! Options of a server.

use super::KnownClient;
use std::net::SocketAddr;
use std::path::PathBuf;
use zoneplug_nvme::dhchap::{DhGroup, Key};
use zoneplug_nvme::target::AnaState;

/// Options of a server.
#[derive(Debug, Clone)]
pub struct NvmeTcpOptions {
    /// The address to listen at. Port 0: any free one, see [`NvmeTcp::address`](super::NvmeTcp::address).
    pub listen: SocketAddr,
    /// Further addresses to listen at. A host that connects at several has as many paths to each disk (multipath),
    /// and learns how to use them (ANA).
    pub also_listen: Vec<SocketAddr>,
    /// The name of the subsystem.
    pub nqn: String,
    /// The hosts that may connect without a key, by their NQNs. `None`: the hosts that have a key, or any host if
    /// there are no keys. Any host is refused for an address that other machines reach, unless
    /// [`NvmeTcpOptions::any_host`] is set: there is no other protection.
    pub hosts: Option<Vec<String>>,
    /// Whether any host may connect, from anywhere.
    pub any_host: bool,
    /// Hosts that may connect and have to authenticate (DH-HMAC-CHAP), by their NQNs, with their keys.
    pub dhchap_keys: Vec<(String, Key)>,
    /// The key by which the subsystem authenticates itself to hosts that ask for it.
    pub dhchap_ctrl_key: Option<Key>,
    /// The weakest Diffie-Hellman group that a host may use to authenticate.
    pub dhchap_dhgroup: DhGroup,
    /// Threads that serve connections.
    pub threads: usize,
    /// Most connections at a time; further ones are closed at once. If this process may open fewer files, the limit
    /// is lower: [`NvmeTcp::max_connections`](super::NvmeTcp::max_connections).
    pub max_connections: usize,
    /// Hosts that the last server knew: [`NvmeTcp::known_hosts`](super::NvmeTcp::known_hosts).
    pub known_hosts: Vec<KnownClient>,
    /// How hosts should use addresses at the start; *optimized* for those that are not named.
    pub ana_states: Vec<(SocketAddr, AnaState)>,
    /// A directory in memory (tmpfs) for the journals of durable disks. If this server is killed, the next one reads
    /// there which appends have been acknowledged. `None`: appends that were in flight are appended again.
    pub records: Option<PathBuf>,
    /// Namespaces of new disks get numbers above this. Lower numbers may belong to disks that are no longer served,
    /// and that hosts still know.
    pub last_nsid: u32,
    /// Whether to measure how long operations take: [`ServedOperation::latency`](crate::ServedOperation). Costs at
    /// most ten instructions for each operation of a busy queue.
    pub latencies: bool,
}

impl NvmeTcpOptions {
    /// The most connections of a server, unless its options set another number.
    pub const MAX_CONNECTIONS: usize = 4096;

    /// A server at `listen` for the subsystem `nqn`, with one thread for each processor, but at most four.
    pub fn new(listen: SocketAddr, nqn: &str) -> NvmeTcpOptions {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        NvmeTcpOptions {
            listen,
            also_listen: Vec::new(),
            nqn: nqn.to_owned(),
            hosts: None,
            any_host: false,
            dhchap_keys: Vec::new(),
            dhchap_ctrl_key: None,
            dhchap_dhgroup: DhGroup::default(),
            threads: cpus.min(4),
            max_connections: Self::MAX_CONNECTIONS,
            known_hosts: Vec::new(),
            ana_states: Vec::new(),
            records: None,
            last_nsid: 0,
            latencies: false,
        }
    }

    /// All addresses to listen at.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        [self.listen].into_iter().chain(self.also_listen.iter().copied())
    }
}
