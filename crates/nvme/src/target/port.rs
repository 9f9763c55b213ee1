//! The addresses at which a target listens, and how a host reaches the namespaces through each (Base Specification,
//! section 8.1, *Asymmetric Namespace Access Reporting*). All namespaces are in one ANA group. Its state depends on
//! the port.

use std::net::SocketAddr;

/// The ANA group of all namespaces.
pub(super) const GROUP: u32 = 1;

/// The state of the ANA group at a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AnaState {
    /// Hosts use this port.
    #[default]
    Optimized = 1,
    /// Hosts use this port if there is no optimized one.
    NonOptimized = 2,
    /// I/O commands fail here; hosts must send them to another port.
    Inaccessible = 3,
}

impl AnaState {
    /// All states.
    pub const ALL: [AnaState; 3] =
        [AnaState::Optimized, AnaState::NonOptimized, AnaState::Inaccessible];

    /// Returns the state's name as Linux spells it.
    pub const fn name(self) -> &'static str {
        match self {
            AnaState::Optimized => "optimized",
            AnaState::NonOptimized => "non-optimized",
            AnaState::Inaccessible => "inaccessible",
        }
    }
}

/// A port.
#[derive(Debug)]
struct Port {
    address: SocketAddr,
    state: AnaState,
}

/// The ports of a target.
#[derive(Debug)]
pub(super) struct Ports {
    all: Vec<Port>,
    /// The number of state changes.
    pub(super) changes: u64,
}

impl Ports {
    pub(super) fn new(addresses: Vec<SocketAddr>) -> Ports {
        let port = |address| Port { address, state: AnaState::default() };
        Ports { all: addresses.into_iter().map(port).collect(), changes: 0 }
    }

    /// Returns whether a host may have several paths to a namespace.
    pub(super) fn are_several(&self) -> bool {
        self.all.len() > 1
    }

    pub(super) fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        self.all.iter().map(|p| p.address)
    }

    /// Returns the port of a connection that came in at this address: the port with the address, or a wildcard port.
    pub(super) fn at(&self, local: SocketAddr) -> Option<usize> {
        let ip = local.ip().to_canonical();
        let same = |p: &Port| p.address.port() == local.port();
        let exact = self.all.iter().position(|p| same(p) && p.address.ip().to_canonical() == ip);
        exact.or_else(|| self.all.iter().position(|p| same(p) && p.address.ip().is_unspecified()))
    }

    pub(super) fn state(&self, port: Option<usize>) -> AnaState {
        port.and_then(|n| self.all.get(n)).map_or(AnaState::default(), |p| p.state)
    }

    /// Sets the state of a port. Returns false if the port does not exist or had this state.
    pub(super) fn set(&mut self, port: usize, state: AnaState) -> bool {
        let port = self.all.get_mut(port).filter(|p| p.state != state);
        let Some(port) = port else { return false };
        port.state = state;
        self.changes += 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_port_of_a_connection() {
        let at = |text: &str| text.parse::<SocketAddr>().unwrap();
        let ports = ["0.0.0.0:1", "10.0.0.1:1", "127.0.0.1:2", "[::]:3"].map(at);
        let ports = Ports::new(ports.to_vec());
        let wanted = [
            ("10.0.0.1:1", Some(1)),
            ("10.0.0.2:1", Some(0)),
            ("127.0.0.1:2", Some(2)),
            ("127.0.0.2:2", None),
            ("[::ffff:10.0.0.1]:1", Some(1)),
            ("[::ffff:10.0.0.1]:3", Some(3)),
            ("[::1]:3", Some(3)),
            ("10.0.0.1:4", None),
        ];
        for (local, port) in wanted {
            assert_eq!(ports.at(at(local)), port, "{local}");
        }
    }
}
