//! Disks as units of SCSI.

use super::error::IscsiError;
use super::{Disk, IscsiOptions};
use crate::DiskMark;
use crate::served::identity::{new_uuid, uuid_of};
use std::sync::Arc;
use zoneplug_core::zone::{Geometry, Limits};
use zoneplug_core::{Error, Sector, ZoneNo};
use zoneplug_scsi::unit::{Unit, UnitConfig};

/// Makes a unit of a disk.
fn unit(
    disk: u32,
    uuid: [u8; 16],
    g: &Geometry,
    limits: &Limits,
    conventional_only: bool,
) -> Result<Unit, Error> {
    let config = UnitConfig {
        disk,
        uuid,
        vendor: "ZONEPLUG".to_owned(),
        product: "disk".to_owned(),
        revision: concat!(env!("CARGO_PKG_VERSION_MAJOR"), ".", env!("CARGO_PKG_VERSION_MINOR"))
            .to_owned(),
        rotation_rate: None,
        // Linux takes no disk whose blocks above a write pointer cannot be read.
        unrestricted_reads: true,
    };
    if conventional_only {
        return Unit::conventional(config, conventional(g)?, limits);
    }
    Unit::zoned(config, g, limits)
}

/// Returns how long the conventional zones at the beginning of a disk are.
fn conventional(g: &Geometry) -> Result<Sector, Error> {
    let first = (0..g.nr_zones()).find(|z| !g.is_conventional(ZoneNo(*z)));
    let sectors = first.map_or(g.capacity(), |z| g.zone_start(ZoneNo(z)));
    if sectors.0 == 0 || g.conventional_capacity_sectors() != g.zone_sectors() {
        return Err(IscsiError::NoConventionalZones.into());
    }
    Ok(sectors)
}

/// Checks that a disk can be shown as a unit. Opens nothing.
pub fn check(g: &Geometry, limits: &Limits, options: &IscsiOptions) -> Result<(), Error> {
    unit(0, [0; 16], g, limits, options.conventional_only).map(drop)
}

/// Returns the identifiers of disks of a target, which initiators know them by. `None`: a disk in memory, which gets a
/// new one, because no other server can have that disk. As a plain disk and as an SMR disk, a disk has different identifiers.
pub fn identifiers(options: &IscsiOptions, marks: &[Option<DiskMark>]) -> Vec<[u8; 16]> {
    let plain = format!("{} conventional", options.name);
    let target = if options.conventional_only { &plain } else { &options.name };
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
pub(super) fn of(options: &IscsiOptions, disks: &[Disk]) -> Result<Vec<Identified>, Error> {
    let mark = |d: &Disk| (!d.spec.is_volatile()).then(|| DiskMark::held(&d.disk, &d.spec));
    let marks: Vec<_> = disks.iter().map(mark).collect();
    let uuids = identifiers(options, &marks);
    let make = |(n, d): (usize, &Disk)| {
        let uuid = uuids[n];
        let (g, limits) = (d.disk.geometry(), d.disk.limits());
        let unit = unit(n as u32, uuid, &g, &limits, options.conventional_only)?;
        Ok((uuid, Arc::new(unit)))
    };
    disks.iter().enumerate().map(make).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// Initiators tell two copies of a disk apart, and recognise each when further ones are added.
    #[test]
    fn copies_of_a_disk_have_identifiers_of_their_own() {
        let options = IscsiOptions::new("127.0.0.1:3260".parse().unwrap(), "iqn.2026-11.dev.x:y");
        let of = |specs: &[&str]| {
            let marks = specs.iter().map(|s| Some(DiskMark::of(&s.parse().unwrap())));
            identifiers(&options, &marks.collect::<Vec<_>>())
        };
        let (a, b) = ("/nowhere/a.zbd", "/nowhere/b.zbd");
        let all = of(&[a, b, a, a]);
        let distinct: std::collections::BTreeSet<_> = all.iter().collect();
        assert_eq!(distinct.len(), 4);
        assert_eq!(of(&[a, b, a]), all[..3]);
        assert_eq!(of(&[a, a, b]), [all[0], all[2], all[1]]);
    }
}
