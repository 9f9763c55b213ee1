//! Clients for which a server reserves places: those that have proven who they are, and those that it knows by name and
//! address. A peer that connects under invented names takes places from unknown clients only. A client is a host of NVMe/TCP
//! or an initiator of iSCSI; its sessions are controllers there.
//!
//! A client becomes known at its first Connect or login, if its address has room for one more: of a machine with many names
//! the first few are known. It stays known for an hour after its last connection, and in the next server.

use std::net::{IpAddr, Ipv6Addr};
use zoneplug_core::Nanos;

/// Most known clients, in total and of one address.
const CLIENTS: usize = 256;
const CLIENTS_OF_ADDRESS: usize = 4;
/// How long a client without a connection is known.
const KEEP: Nanos = Nanos(3_600_000_000_000);
/// Most sessions of a known client that have reserved places: one for each path to the server.
const SESSIONS: u32 = 8;
/// A known client has reserved places for this part of all connections: one in so many.
const PART_OF_CLIENT: usize = 32;

/// A client that a server knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownClient {
    /// The NQN of a host, or the name of an initiator.
    pub name: String,
    /// The address of the client; with IPv6 the network (64 bits).
    pub address: IpAddr,
}

#[derive(Debug)]
struct Known {
    id: u64,
    name: String,
    address: IpAddr,
    connections: usize,
    sessions: u32,
    /// When its last connection ended.
    seen: Nanos,
}

impl Known {
    fn has_gone(&self, now: Nanos) -> bool {
        self.connections == 0 && now >= self.seen.plus(KEEP)
    }
}

/// The place of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClientPlace {
    /// The place is not counted: the client has proven who it is, or will be refused.
    Uncounted,
    /// The client is known.
    Known { id: u64, is_session: bool, is_new: bool },
    /// The client is unknown.
    Other,
}

impl ClientPlace {
    /// Whether a place is reserved for the client.
    #[cfg(any(feature = "nvme-tcp", test))]
    pub(crate) fn is_kept(self) -> bool {
        self != ClientPlace::Other
    }
}

/// The clients that a server knows, and the number of connections of unknown clients.
#[derive(Debug)]
pub(crate) struct KnownClients {
    max_connections: usize,
    known: Vec<Known>,
    others: usize,
    last: u64,
}

/// The part of an address that all addresses of one machine have.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(a) => IpAddr::V6(Ipv6Addr::from_bits(a.to_bits() >> 64 << 64)),
        v4 => v4,
    }
}

impl KnownClients {
    /// For a server with so many connections; `known`: the clients that the last server knew.
    pub(crate) fn new<'a>(
        max_connections: usize,
        known: impl Iterator<Item = &'a KnownClient>,
        now: Nanos,
    ) -> KnownClients {
        let mut all = KnownClients { max_connections, known: Vec::new(), others: 0, last: 0 };
        for k in known {
            all.learn(&k.name, network(k.address), now);
        }
        all
    }

    /// The clients that are known.
    pub(crate) fn all(&self) -> Vec<KnownClient> {
        let client = |k: &Known| KnownClient { name: k.name.clone(), address: k.address };
        self.known.iter().map(client).collect()
    }

    /// The index of a client, and whether it is new. `None`: there is no room for it.
    fn learn(&mut self, name: &str, address: IpAddr, now: Nanos) -> Option<(usize, bool)> {
        let is = |k: &Known| k.address == address && k.name == name;
        if let Some(n) = self.known.iter().position(is) {
            return Some((n, false));
        }
        self.known.retain(|k| !k.has_gone(now));
        let of_address = self.known.iter().filter(|k| k.address == address).count();
        if self.known.len() >= CLIENTS || of_address >= CLIENTS_OF_ADDRESS {
            return None;
        }
        self.last += 1;
        let (id, name) = (self.last, name.to_owned());
        self.known.push(Known { id, name, address, connections: 0, sessions: 0, seen: now });
        Some((self.known.len() - 1, true))
    }

    /// Takes a place for a connection of this client, which has not proven who it is. `None`: there is none. A quarter of all
    /// connections is left for clients that have, and for connections before their Connect or login. `is_session`: the
    /// connection is an admin queue or a session.
    pub(crate) fn enter(
        &mut self,
        name: &str,
        address: IpAddr,
        is_session: bool,
        now: Nanos,
    ) -> Option<ClientPlace> {
        let most = (self.max_connections / PART_OF_CLIENT).max(2);
        let all = self.others + self.known.iter().map(|k| k.connections).sum::<usize>();
        if all >= self.max_connections - self.max_connections / 4 {
            return None;
        }
        if let Some((n, is_new)) = self.learn(name, network(address), now) {
            let k = &mut self.known[n];
            if k.connections < most && (!is_session || k.sessions < SESSIONS) {
                k.connections += 1;
                k.sessions += u32::from(is_session);
                return Some(ClientPlace::Known { id: k.id, is_session, is_new });
            }
        }
        if self.others >= self.max_connections / 2 {
            return None;
        }
        self.others += 1;
        Some(ClientPlace::Other)
    }

    /// Frees the place of a connection that has ended. `refused`: it did not become a queue or session, so a new client does
    /// not become known.
    pub(crate) fn free_place(&mut self, place: ClientPlace, refused: bool, now: Nanos) {
        match place {
            ClientPlace::Uncounted => {}
            ClientPlace::Other => self.others -= 1,
            ClientPlace::Known { id, is_session, is_new } => {
                let Some(n) = self.known.iter().position(|k| k.id == id) else { return };
                let k = &mut self.known[n];
                k.connections -= 1;
                k.sessions -= u32::from(is_session);
                k.seen = now;
                if refused && is_new {
                    self.known.remove(n);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Nanos = Nanos(1_000_000_000);

    fn nqn(n: usize) -> String {
        format!("nqn.host{n}")
    }

    fn clients(max_connections: usize) -> KnownClients {
        KnownClients::new(max_connections, [].iter(), NOW)
    }

    fn at(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    /// K3. The first names of an address are known. All its other names together get half of the places at most.
    #[test]
    fn k3_invented_names_of_an_address_share_the_places_of_others() {
        let mut all = clients(256);
        let places: Vec<_> =
            (0..600).filter_map(|n| all.enter(&nqn(n), at("192.0.2.1"), true, NOW)).collect();
        let kept = places.iter().filter(|p| p.is_kept()).count();
        assert_eq!((kept, places.len()), (CLIENTS_OF_ADDRESS, CLIENTS_OF_ADDRESS + 128));
        assert_eq!(all.enter(&nqn(0), at("192.0.2.2"), true, NOW).map(|p| p.is_kept()), Some(true));
        // The first names are still known. A place that another name gives back can be taken again.
        assert!(all.enter(&nqn(3), at("192.0.2.1"), false, NOW).unwrap().is_kept());
        assert_eq!(all.enter(&nqn(4), at("192.0.2.1"), false, NOW), None);
        all.free_place(ClientPlace::Other, false, NOW);
        assert_eq!(all.enter(&nqn(4), at("192.0.2.1"), false, NOW), Some(ClientPlace::Other));
    }

    /// K3. A known host has a limited number of connections and controllers. Beyond that it counts as unknown.
    #[test]
    fn k3_a_known_host_has_a_bounded_share() {
        let mut all = clients(4096);
        let mut kept = |is_session, n: usize| {
            let enter = |_| all.enter(&nqn(1), at("192.0.2.1"), is_session, NOW).unwrap();
            (0..n).map(enter).filter(|p| p.is_kept()).count()
        };
        assert_eq!((kept(true, 12), kept(false, 200)), (8, 4096 / PART_OF_CLIENT - 8));
    }

    /// K3. A known host that connects again and again takes the places that it has given back.
    #[test]
    fn k3_a_known_host_gets_its_places_back_after_each_end() {
        let mut all = clients(256);
        for _ in 0..1000 {
            let places = [true, false]
                .map(|is_session| all.enter(&nqn(1), at("192.0.2.1"), is_session, NOW));
            assert!(places.iter().flatten().filter(|place| place.is_kept()).count() == 2);
            places.into_iter().flatten().for_each(|place| all.free_place(place, false, NOW));
        }
    }

    /// K3. Known hosts of many addresses leave a quarter to hosts with keys.
    #[test]
    fn k3_known_hosts_leave_room_for_others() {
        let mut all = clients(256);
        let address = |n: usize| IpAddr::from([192, 0, 2, (n / CLIENTS_OF_ADDRESS) as u8]);
        let enter = |n: usize| all.enter(&nqn(n % 100), address(n % 100), false, NOW);
        assert_eq!((0..1000).filter_map(enter).count(), 192);
    }

    /// K3. A host is known for an hour after its last connection. Only then can another name of its address replace
    /// it.
    #[test]
    fn k3_a_host_is_known_for_an_hour_after_its_last_connection() {
        let mut all = clients(256);
        let address = at("::ffff:192.0.2.1");
        let places = [0, 1, 2, 3].map(|n| all.enter(&nqn(n), address, true, NOW).unwrap());
        let later = NOW.plus(KEEP);
        all.free_place(places[0], false, later);
        let before = Nanos(later.plus(KEEP).0 - 1);
        assert_eq!(all.enter(&nqn(9), at("192.0.2.1"), true, before), Some(ClientPlace::Other));
        assert!(all.enter(&nqn(9), at("192.0.2.1"), true, later.plus(KEEP)).unwrap().is_kept());
        assert_eq!(all.enter(&nqn(0), address, true, later.plus(KEEP)), Some(ClientPlace::Other));
        // A refused host does not become known.
        let mut all = clients(256);
        let place = all.enter(&nqn(1), address, true, NOW).unwrap();
        all.free_place(place, true, NOW);
        assert_eq!(all.all(), []);
        let first = all.enter(&nqn(1), address, true, NOW).unwrap();
        let second = all.enter(&nqn(1), address, true, NOW).unwrap();
        all.free_place(second, true, NOW);
        all.free_place(first, false, NOW);
        assert_eq!(all.all().len(), 1);
    }

    /// K3. The next server knows the same hosts. The addresses of one network count as one.
    #[test]
    fn k3_the_next_server_knows_the_same_hosts() {
        let mut all = clients(256);
        all.enter(&nqn(1), at("2001:db8::1"), true, NOW).unwrap();
        all.enter(&nqn(2), at("2001:db8:0:1::1"), true, NOW).unwrap();
        let mut next = KnownClients::new(256, all.all().iter(), NOW);
        assert_eq!(next.all(), all.all());
        for n in 3..9 {
            next.enter(&nqn(n), at("2001:db8::7"), true, NOW).unwrap();
        }
        assert!(next.enter(&nqn(1), at("2001:db8::9"), true, NOW).unwrap().is_kept());
    }
}
