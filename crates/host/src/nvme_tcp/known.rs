//! Hosts for which a server reserves places: those that have a key, and those that it knows by name and address. A
//! peer that connects under invented names takes places from unknown hosts only.
//!
//! A host becomes known at its first Connect, if its address has room for one more: of a machine with many names the
//! first few are known. It stays known for an hour after its last connection, and in the next server.

use std::net::{IpAddr, Ipv6Addr};
use zoneplug_core::Nanos;
use zoneplug_nvme::target::Nqn;

/// Most known hosts, in total and of one address.
const HOSTS: usize = 256;
const HOSTS_OF_ADDRESS: usize = 4;
/// How long a host without a connection is known.
const KEEP: Nanos = Nanos(3_600_000_000_000);
/// Most controllers of a known host that have reserved places: one for each path to the server.
const CONTROLLERS: u32 = 8;
/// A known host has reserved places for this part of all connections: one in so many.
const PART_OF_HOST: usize = 32;

/// A host that a server knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownHost {
    /// The NQN of the host.
    pub nqn: String,
    /// The address of the host; with IPv6 the network (64 bits).
    pub address: IpAddr,
}

#[derive(Debug)]
struct Known {
    id: u64,
    nqn: Nqn,
    address: IpAddr,
    connections: usize,
    controllers: u32,
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
pub(super) enum HostPlace {
    /// The place is not counted: the target refuses the host.
    Uncounted,
    /// The host is known.
    Known { id: u64, is_admin: bool, is_new: bool },
    /// The host is unknown.
    Other,
}

impl HostPlace {
    /// Whether a place is reserved for the host.
    pub(super) fn is_kept(self) -> bool {
        self != HostPlace::Other
    }
}

/// The hosts that a server knows, and the number of connections of unknown hosts.
#[derive(Debug)]
pub(super) struct KnownHosts {
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

impl KnownHosts {
    /// For a server with so many connections; `known`: the hosts that the last server knew.
    pub(super) fn new(max_connections: usize, known: &[KnownHost], now: Nanos) -> KnownHosts {
        let mut all = KnownHosts { max_connections, known: Vec::new(), others: 0, last: 0 };
        for k in known {
            if let Ok(nqn) = Nqn::new(&k.nqn) {
                all.learn(&nqn, network(k.address), now);
            }
        }
        all
    }

    /// The hosts that are known.
    pub(super) fn all(&self) -> Vec<KnownHost> {
        let host = |k: &Known| KnownHost { nqn: k.nqn.as_str().to_owned(), address: k.address };
        self.known.iter().map(host).collect()
    }

    /// The index of a host, and whether it is new. `None`: there is no room for it.
    fn learn(&mut self, nqn: &Nqn, address: IpAddr, now: Nanos) -> Option<(usize, bool)> {
        let is = |k: &Known| k.address == address && k.nqn == *nqn;
        if let Some(n) = self.known.iter().position(is) {
            return Some((n, false));
        }
        self.known.retain(|k| !k.has_gone(now));
        let of_address = self.known.iter().filter(|k| k.address == address).count();
        if self.known.len() >= HOSTS || of_address >= HOSTS_OF_ADDRESS {
            return None;
        }
        self.last += 1;
        let (id, nqn) = (self.last, nqn.clone());
        self.known.push(Known { id, nqn, address, connections: 0, controllers: 0, seen: now });
        Some((self.known.len() - 1, true))
    }

    /// Takes a place for a connection that becomes a queue of this host, which has no key. `None`: there is none. A
    /// quarter of all connections is left for hosts with keys, and for connections before their Connect.
    pub(super) fn enter(
        &mut self,
        nqn: &Nqn,
        address: IpAddr,
        is_admin: bool,
        now: Nanos,
    ) -> Option<HostPlace> {
        let most = (self.max_connections / PART_OF_HOST).max(2);
        let all = self.others + self.known.iter().map(|k| k.connections).sum::<usize>();
        if all >= self.max_connections - self.max_connections / 4 {
            return None;
        }
        if let Some((n, is_new)) = self.learn(nqn, network(address), now) {
            let k = &mut self.known[n];
            if k.connections < most && (!is_admin || k.controllers < CONTROLLERS) {
                k.connections += 1;
                k.controllers += u32::from(is_admin);
                return Some(HostPlace::Known { id: k.id, is_admin, is_new });
            }
        }
        if self.others >= self.max_connections / 2 {
            return None;
        }
        self.others += 1;
        Some(HostPlace::Other)
    }

    /// Frees the place of a connection that has ended. `refused`: it did not become a queue, so a new host does not
    /// become known.
    pub(super) fn free_place(&mut self, place: HostPlace, refused: bool, now: Nanos) {
        match place {
            HostPlace::Uncounted => {}
            HostPlace::Other => self.others -= 1,
            HostPlace::Known { id, is_admin, is_new } => {
                let Some(n) = self.known.iter().position(|k| k.id == id) else { return };
                let k = &mut self.known[n];
                k.connections -= 1;
                k.controllers -= u32::from(is_admin);
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

    fn nqn(n: usize) -> Nqn {
        Nqn::new(&format!("nqn.host{n}")).unwrap()
    }

    fn at(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    /// K3. The first names of an address are known. All its other names together get half of the places at most.
    #[test]
    fn k3_invented_names_of_an_address_share_the_places_of_others() {
        let mut all = KnownHosts::new(256, &[], NOW);
        let places: Vec<_> =
            (0..600).filter_map(|n| all.enter(&nqn(n), at("192.0.2.1"), true, NOW)).collect();
        let kept = places.iter().filter(|p| p.is_kept()).count();
        assert_eq!((kept, places.len()), (HOSTS_OF_ADDRESS, HOSTS_OF_ADDRESS + 128));
        assert_eq!(all.enter(&nqn(0), at("192.0.2.2"), true, NOW).map(|p| p.is_kept()), Some(true));
        // The first names are still known. A place that another name gives back can be taken again.
        assert!(all.enter(&nqn(3), at("192.0.2.1"), false, NOW).unwrap().is_kept());
        assert_eq!(all.enter(&nqn(4), at("192.0.2.1"), false, NOW), None);
        all.free_place(HostPlace::Other, false, NOW);
        assert_eq!(all.enter(&nqn(4), at("192.0.2.1"), false, NOW), Some(HostPlace::Other));
    }

    /// K3. A known host has a limited number of connections and controllers. Beyond that it counts as unknown.
    #[test]
    fn k3_a_known_host_has_a_bounded_share() {
        let mut all = KnownHosts::new(4096, &[], NOW);
        let mut kept = |is_admin, n: usize| {
            let enter = |_| all.enter(&nqn(1), at("192.0.2.1"), is_admin, NOW).unwrap();
            (0..n).map(enter).filter(|p| p.is_kept()).count()
        };
        assert_eq!((kept(true, 12), kept(false, 200)), (8, 4096 / PART_OF_HOST - 8));
    }

    /// K3. A known host that connects again and again takes the places that it has given back.
    #[test]
    fn k3_a_known_host_gets_its_places_back_after_each_end() {
        let mut all = KnownHosts::new(256, &[], NOW);
        for _ in 0..1000 {
            let places =
                [true, false].map(|is_admin| all.enter(&nqn(1), at("192.0.2.1"), is_admin, NOW));
            assert!(places.iter().flatten().filter(|place| place.is_kept()).count() == 2);
            places.into_iter().flatten().for_each(|place| all.free_place(place, false, NOW));
        }
    }

    /// K3. Known hosts of many addresses leave a quarter to hosts with keys.
    #[test]
    fn k3_known_hosts_leave_room_for_others() {
        let mut all = KnownHosts::new(256, &[], NOW);
        let address = |n: usize| IpAddr::from([192, 0, 2, (n / HOSTS_OF_ADDRESS) as u8]);
        let enter = |n: usize| all.enter(&nqn(n % 100), address(n % 100), false, NOW);
        assert_eq!((0..1000).filter_map(enter).count(), 192);
    }

    /// K3. A host is known for an hour after its last connection. Only then can another name of its address replace
    /// it.
    #[test]
    fn k3_a_host_is_known_for_an_hour_after_its_last_connection() {
        let mut all = KnownHosts::new(256, &[], NOW);
        let address = at("::ffff:192.0.2.1");
        let places = [0, 1, 2, 3].map(|n| all.enter(&nqn(n), address, true, NOW).unwrap());
        let later = NOW.plus(KEEP);
        all.free_place(places[0], false, later);
        let before = Nanos(later.plus(KEEP).0 - 1);
        assert_eq!(all.enter(&nqn(9), at("192.0.2.1"), true, before), Some(HostPlace::Other));
        assert!(all.enter(&nqn(9), at("192.0.2.1"), true, later.plus(KEEP)).unwrap().is_kept());
        assert_eq!(all.enter(&nqn(0), address, true, later.plus(KEEP)), Some(HostPlace::Other));
        // A refused host does not become known.
        let mut all = KnownHosts::new(256, &[], NOW);
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
        let mut all = KnownHosts::new(256, &[], NOW);
        all.enter(&nqn(1), at("2001:db8::1"), true, NOW).unwrap();
        all.enter(&nqn(2), at("2001:db8:0:1::1"), true, NOW).unwrap();
        let mut next = KnownHosts::new(256, &all.all(), NOW);
        assert_eq!(next.all(), all.all());
        for n in 3..9 {
            next.enter(&nqn(n), at("2001:db8::7"), true, NOW).unwrap();
        }
        assert!(next.enter(&nqn(1), at("2001:db8::9"), true, NOW).unwrap().is_kept());
        let bad = KnownHost { nqn: "no name".repeat(99), address: at("192.0.2.1") };
        assert_eq!(KnownHosts::new(256, &[bad], NOW).all(), []);
    }
}
