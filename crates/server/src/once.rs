//! Refuses settings that use a file, a drive or an address twice.
//!
//! Serving would fail for the second use too, but after opening some disks for writing, and with an error that blames
//! another process.

use crate::error::ServeError;
use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use zoneplug_control::Failure;
use zoneplug_host::{DiskMark, HeldPlace, Specification};

/// The index of each disk in the file. Of two disks, the later one is at fault.
pub type FileOrder<'a> = HashMap<&'a str, usize>;

/// A failure with the disk or the key that caused it.
pub(crate) type FailureAt<'a> = (&'a str, Failure);

/// A disk to be served by a door.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct DiskOfDoor<'a> {
    spec: &'a Specification,
    /// The index of its door.
    door: usize,
}

/// The places of the files and drives at these paths.
fn places<'a>(paths: impl Iterator<Item = &'a std::path::Path>) -> impl Iterator<Item = HeldPlace> {
    paths.filter_map(|path| HeldPlace::at(path).ok())
}

impl DiskOfDoor<'_> {
    /// Whether a server must refuse one of two disks: both would write to one file or drive, or they are equal disks of
    /// one door. A disk may be read beside its writer.
    fn excludes(self, other: DiskOfDoor<'_>) -> bool {
        let writes: HashSet<HeldPlace> = places(self.spec.writes_to()).collect();
        // A server that takes over could not tell two equal disks of a door apart.
        let alike =
            || self.door == other.door && DiskMark::of(self.spec) == DiskMark::of(other.spec);
        places(other.spec.writes_to()).any(|place| writes.contains(&place)) || alike()
    }
}

/// Refuses a disk that one door has twice, by any paths. Several doors may have it. `doors`: the disks of each.
pub(crate) fn disks<'a>(
    doors: &[Vec<&'a Specification>],
    order: &FileOrder<'_>,
) -> Result<(), FailureAt<'a>> {
    let of = |(door, specs): (usize, &Vec<&'a Specification>)| {
        let all = specs.iter().map(|spec| DiskOfDoor { spec, door });
        all.collect::<Vec<_>>()
    };
    let mut all: Vec<DiskOfDoor<'a>> = doors.iter().enumerate().flat_map(of).collect();
    all.sort_by_key(|d| order.get(&**d.spec));
    let mut known = HashSet::new();
    let mut at: HashMap<HeldPlace, Vec<DiskOfDoor<'_>>> = HashMap::new();
    for d in all {
        if !known.insert(d) {
            return Err((d.spec, twice(d, d)));
        }
        for place in places(d.spec.paths()) {
            let others = at.entry(place).or_default();
            let mut others_here = others.iter().filter(|o| o.spec != d.spec);
            if let Some(other) = others_here.find(|o| d.excludes(**o)) {
                return Err((d.spec, twice(d, *other)));
            }
            others.push(d);
        }
    }
    Ok(())
}

/// The failure of a disk that is one with another.
fn twice(disk: DiskOfDoor<'_>, other: DiskOfDoor<'_>) -> Failure {
    let [disk, other] = [disk, other].map(|d| d.spec.to_string());
    ServeError::DiskTwice { disk, other }.into()
}

/// An address at which a server is to listen, and the key that gives it.
#[derive(Debug, Clone, Copy)]
pub struct NamedAddress<'a> {
    /// The key.
    pub key: &'a str,
    /// The address.
    pub address: SocketAddr,
}

/// Refuses two addresses at which a server cannot listen together.
pub fn addresses<'k>(all: &[NamedAddress<'k>]) -> Result<(), FailureAt<'k>> {
    for (n, NamedAddress { key, address }) in all.iter().enumerate() {
        let Some(other) = all[..n].iter().find(|other| exclude(*address, other.address)) else {
            continue;
        };
        let (address, other) = (*address, other.address);
        return Err((*key, ServeError::AddressTwice { address, other }.into()));
    }
    Ok(())
}

/// Whether listening at one of these addresses excludes listening at the other. Whether an IPv6 socket for all
/// addresses includes IPv4 depends on the system, and is ignored.
fn exclude(a: SocketAddr, b: SocketAddr) -> bool {
    let one_kind = a.is_ipv4() == b.is_ipv4();
    let has_all = a.ip().is_unspecified() || b.ip().is_unspecified();
    a.port() != 0 && a.port() == b.port() && (a == b || one_kind && has_all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_listened_at_once() {
        let is_refused = |a: &str, b: &str| {
            let all =
                [a, b].map(|text| NamedAddress { key: "nvme-tcp", address: text.parse().unwrap() });
            addresses(&all).is_err()
        };
        for (a, b, refused) in [
            ("127.0.0.1:1", "127.0.0.1:1", true),
            ("127.0.0.1:1", "127.0.0.1:2", false),
            ("127.0.0.1:1", "127.0.0.2:1", false),
            ("127.0.0.1:0", "127.0.0.1:0", false),
            ("127.0.0.1:1", "0.0.0.0:1", true),
            ("[::1]:1", "[::]:1", true),
            ("[::1]:1", "0.0.0.0:1", false),
        ] {
            assert_eq!(is_refused(a, b), refused, "{a} {b}");
            assert_eq!(is_refused(b, a), refused, "{b} {a}");
        }
    }
}
