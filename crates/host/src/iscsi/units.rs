//! Disks as units of SCSI.

use super::Disk;
use crate::DiskMark;
use crate::served::identity::{new_uuid, uuid_of};
use std::sync::Arc;
use zoneplug_core::Error;
use zoneplug_core::zone::{Geometry, Limits};
use zoneplug_scsi::unit::{Unit, UnitConfig};

/// Makes a unit of a disk.
fn unit(disk: u32, uuid: [u8; 16], g: &Geometry, limits: &Limits) -> Result<Unit, Error> {
    let config = UnitConfig {
        disk,
        uuid,
        vendor: "ZONEPLUG".to_owned(),
        product: "disk".to_owned(),
        revision: concat!(env!("CARGO_PKG_VERSION_MAJOR"), ".", env!("CARGO_PKG_VERSION_MINOR"))
            .to_owned(),
        rotation_rate: None,
        // Linux takes no disk whose blocks behind a write pointer cannot be read.
        unrestricted_reads: true,
    };
    // A disk that has conventional zones only is a plain disk to Linux.
    if g.nr_conventional() == g.nr_zones() {
        return Unit::conventional(config, g.capacity(), limits);
    }
    Unit::zoned(config, g, limits)
}

/// Checks that a disk can be shown as a unit. Opens nothing.
pub fn check(g: &Geometry, limits: &Limits) -> Result<(), Error> {
    unit(0, [0; 16], g, limits).map(drop)
}

/// Returns the identifiers of disks of a target, which initiators know them by. `None`: a disk in memory, which gets a
/// new one, because no other server can have that disk.
pub fn identifiers(target: &str, marks: &[Option<DiskMark>]) -> Vec<[u8; 16]> {
    let of = |(n, mark): (usize, &Option<DiskMark>)| {
        let Some(mark) = *mark else { return new_uuid() };
        // Copies of a disk are told apart by their order.
        let is = |o: &&DiskMark| (o.disks, o.layers) == (mark.disks, mark.layers);
        uuid_of(target, mark, marks[..n].iter().flatten().filter(is).count())
    };
    marks.iter().enumerate().map(of).collect()
}

/// A unit and the identifier of its disk.
pub(super) type Identified = ([u8; 16], Arc<Unit>);

/// Makes the units of a target.
pub(super) fn of(target: &str, disks: &[Disk]) -> Result<Vec<Identified>, Error> {
    let mark = |d: &Disk| (!d.spec.is_volatile()).then(|| DiskMark::held(&d.disk, &d.spec));
    let marks: Vec<_> = disks.iter().map(mark).collect();
    let uuids = identifiers(target, &marks);
    let make = |(n, d): (usize, &Disk)| {
        let uuid = uuids[n];
        let unit = unit(n as u32, uuid, &d.disk.geometry(), &d.disk.limits())?;
        Ok((uuid, Arc::new(unit)))
    };
    disks.iter().enumerate().map(make).collect()
}
