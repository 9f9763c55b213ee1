//! Turns the first report of a drive into its geometry. Zones that the layer cannot serve (V2, V3) are refused with a
//! reason.

use super::DriveError;
use zoneplug_core::zone::{Geometry, ZoneInfo, ZoneType};
use zoneplug_core::{Error, ZoneNo};

/// The geometry of a drive with these zones, `zone_sectors` apart. `what` names the drive.
pub(crate) fn geometry_of(
    what: &str,
    zones: &[ZoneInfo],
    zone_sectors: u64,
) -> Result<Geometry, Error> {
    let refuse =
        |text: String| Error::from(DriveError::Zones { drive: what.to_owned(), why: text });
    let Some((first, last)) = zones.first().zip(zones.last()) else {
        return Err(refuse("its report has no zones".to_owned()));
    };
    let size = u32::try_from(zone_sectors)
        .ok()
        .filter(|&n| n > 0)
        .ok_or_else(|| refuse(format!("zones of {zone_sectors} sectors")))?;
    let sequential = |z: &&ZoneInfo| z.zone_type == ZoneType::SeqWriteRequired;
    let usual =
        zones.iter().find(sequential).map_or(first.capacity_sectors, |z| z.capacity_sectors);
    let short = |sectors: u64| u32::try_from(sectors).unwrap_or(u32::MAX);
    let build = || {
        Geometry::new(zones.len() as u64, size, short(usual))?
            .with_last_zone(short(last.len_sectors), short(last.capacity_sectors))?
            .with_conventional(
                (0..zones.len())
                    .filter(|&n| zones[n].zone_type == ZoneType::Conventional)
                    .map(|n| ZoneNo(n as u32)),
            )
    };
    let g = build().map_err(|e| refuse(e.to_string()))?;
    for (n, z) in zones.iter().enumerate() {
        let zone = ZoneNo(n as u32);
        let want = (g.zone_start(zone), u64::from(g.zone_len_sectors(zone)));
        if (z.start, z.len_sectors) != want {
            return Err(refuse(format!(
                "zone {n} is {} sectors at {}, not {} at {}",
                z.len_sectors, z.start.0, want.1, want.0.0
            )));
        }
        if z.capacity_sectors != u64::from(g.capacity_of(zone)) {
            return Err(refuse(format!(
                "zone {n} has a capacity of {} sectors, the others {}",
                z.capacity_sectors,
                g.capacity_of(zone)
            )));
        }
    }
    Ok(g)
}

#[cfg(test)]
mod tests {
    use super::*;
    use zoneplug_core::Sector;
    use zoneplug_core::zone::Condition;

    fn zone(n: u64, len: u64, cap: u64, conventional: bool) -> ZoneInfo {
        let (zone_type, cond) = if conventional {
            (ZoneType::Conventional, Condition::NotWp)
        } else {
            (ZoneType::SeqWriteRequired, Condition::Empty)
        };
        let start = Sector(n * 1000);
        ZoneInfo { start, len_sectors: len, capacity_sectors: cap, wp: start, zone_type, cond }
    }

    /// V2, V3, W18: the geometry has the zones of the report; the last zone may be shorter.
    #[test]
    fn the_geometry_is_what_the_report_says() {
        let mut zones: Vec<_> = (0..4).map(|n| zone(n, 1000, 800, false)).collect();
        zones[0] = zone(0, 1000, 1000, true);
        zones[3] = zone(3, 600, 500, false);
        let g = geometry_of("x", &zones, 1000).unwrap();
        assert_eq!((g.nr_zones(), g.zone_capacity_sectors(), g.capacity().0), (4, 800, 3600));
        assert!(g.is_conventional(ZoneNo(0)) && !g.is_conventional(ZoneNo(1)));
        assert_eq!(g.capacity_of(ZoneNo(3)), 500);
        let only_last = [zone(0, 1000, 1000, true), zone(1, 1000, 900, false)];
        assert_eq!(geometry_of("x", &only_last, 1000).unwrap().capacity_of(ZoneNo(1)), 900);
    }

    /// V2: a report that is wrong is refused with a reason.
    #[test]
    fn a_report_that_is_none_is_refused_with_a_reason() {
        let usual: Vec<_> = (0..4).map(|n| zone(n, 1000, 800, false)).collect();
        let said = |zones: &[ZoneInfo], size| {
            geometry_of("/dev/x", zones, size).unwrap_err().what().to_owned()
        };
        assert_eq!(said(&[], 1000), "/dev/x: its report has no zones");
        assert!(said(&usual, 0).contains("zones of 0 sectors"));
        assert!(said(&usual, 1 << 33).contains("8589934592 sectors"));
        let mut gap = usual.clone();
        gap[2].start = Sector(2001);
        assert!(said(&gap, 1000).contains("zone 2 is 1000 sectors at 2001"));
        let mut other = usual;
        other[1].capacity_sectors = 700;
        assert!(said(&other, 1000).contains("zone 1 has a capacity of 700"));
        let conventional: Vec<_> = (0..2).map(|n| zone(n, 1000, 1000, true)).collect();
        assert!(said(&conventional, 1000).contains("at least one must be sequential"));
    }
}
