//! The discovery log (Base Specification, *Discovery Log Page*).

use super::Controller;
use crate::spec::fabrics::ANY_CONTROLLER;
use crate::spec::log::{
    DiscoveryEntry, DiscoveryHeader, FAMILY_IPV4, FAMILY_IPV6, FLOW_CONTROL_MAY_BE_OFF,
    NO_SECURE_CHANNEL, SUBSYSTEM_NVM, TRANSPORT_TCP,
};
use crate::spec::text;
use crate::target::Registry;
use std::net::{IpAddr, SocketAddr};

impl Controller {
    /// Returns the log: the subsystems to which the host may connect, at every port.
    pub(super) fn discovery_log(&self, registry: &Registry) -> Vec<u8> {
        let mut entries = Vec::new();
        for s in registry.subsystems.iter().filter(|s| s.config.admits(&self.host)) {
            for (i, port) in registry.ports.addresses().enumerate() {
                let entry = DiscoveryEntry {
                    subtype: SUBSYSTEM_NVM,
                    portid: i as u16 + 1,
                    cntlid: ANY_CONTROLLER,
                    asqsz: s.admin_entries(),
                    subnqn: text(s.config.nqn.as_str(), 0),
                    ..address(port, self.local)
                };
                entries.push(entry.encode());
            }
        }
        let header = DiscoveryHeader {
            genctr: registry.generation,
            numrec: entries.len() as u64,
            recfmt: 0,
        };
        let mut log = header.encode().to_vec();
        log.extend(entries.as_flattened());
        log
    }
}

/// Returns the address of a port. For a wildcard port, the address at which this host came in.
fn address(port: SocketAddr, local: SocketAddr) -> DiscoveryEntry {
    let ip = if port.ip().is_unspecified() { local.ip() } else { port.ip() }.to_canonical();
    DiscoveryEntry {
        trtype: TRANSPORT_TCP,
        adrfam: match ip {
            IpAddr::V4(_) => FAMILY_IPV4,
            IpAddr::V6(_) => FAMILY_IPV6,
        },
        treq: NO_SECURE_CHANNEL | FLOW_CONTROL_MAY_BE_OFF,
        trsvcid: text(&port.port().to_string(), b' '),
        traddr: text(&ip.to_string(), b' '),
        ..Default::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A socket for IPv6 also takes hosts that come over IPv4. They could not use an address that maps theirs.
    #[test]
    fn an_entry_has_the_address_at_which_its_host_came_in() {
        for (port, local, family, shown) in [
            ("192.0.2.1:4420", "192.0.2.1:4420", FAMILY_IPV4, "192.0.2.1"),
            ("0.0.0.0:4420", "192.0.2.7:4420", FAMILY_IPV4, "192.0.2.7"),
            ("[::]:4420", "[2001:db8::7]:4420", FAMILY_IPV6, "2001:db8::7"),
            ("[::]:4420", "[::ffff:192.0.2.7]:4420", FAMILY_IPV4, "192.0.2.7"),
        ] {
            let entry = address(port.parse().unwrap(), local.parse().unwrap());
            assert_eq!(entry.adrfam, family, "{port} {local}");
            assert_eq!(entry.traddr, text(shown, b' '), "{port} {local}");
        }
    }
}
