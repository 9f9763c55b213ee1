//! The zones that a measurement writes: which zones it may use, and whether they are far enough
//! from each other.

use super::{fit, measure};
use zoneplug_core::zone::{Geometry, Limits};
use zoneplug_core::{Error, ErrorKind, ZoneNo};

/// The most zones that a measurement takes.
pub const MOST_ZONES: usize = 64;
/// The most zones taken of a model.
const ENOUGH: usize = 32;
/// The fewest zones of a rotating disk.
const LEAST: usize = 8;
/// The largest factor by which an error of a measurement may grow elsewhere on the disk. Eight
/// zones all over the disk give about 1, zones over half of it about 3.
const GROWTH: f64 = 4.0;
/// The inner radius assumed for a disk before it is measured. Distances depend on it little.
const INNER: f64 = 0.5;

/// The number of zones that may be open at a time.
fn most_open(limits: &Limits) -> usize {
    [limits.max_open_zones, limits.max_active_zones]
        .into_iter()
        .filter(|n| *n > 0)
        .min()
        .map_or(MOST_ZONES, |n| n as usize)
}

/// Chooses zones all over a disk, as many as measurements need and may be open.
pub fn all_over(g: &Geometry, limits: &Limits) -> Vec<u32> {
    let sequential: Vec<u32> =
        (0..g.nr_zones()).filter(|z| !g.is_conventional(ZoneNo(*z))).collect();
    let most = most_open(limits).min(ENOUGH).min(sequential.len());
    let at = |i: usize| sequential[i * (sequential.len() - 1) / (most - 1).max(1)];
    (0..most).map(at).collect()
}

/// Refuses zones that cannot be measured. Sends no command.
///
/// ```
/// use zoneplug_devices::emu::timing::Profile;
/// use zoneplug_models::calibrate::check_zones;
/// let drive = Profile::builtin("smr30").unwrap();
/// let (g, limits) = (drive.geometry().unwrap(), drive.limits());
/// let near: Vec<u32> = (0..8).collect();
/// let far: Vec<u32> = near.iter().map(|z| z * 15_000).collect();
/// assert!(check_zones(&near, &g, &limits).unwrap_err().what().contains("too near each other"));
/// assert!(check_zones(&far, &g, &limits).is_ok());
/// ```
pub fn check_zones(zones: &[u32], g: &Geometry, limits: &Limits) -> Result<(), Error> {
    if let Some(z) = zones.iter().find(|z| **z >= g.nr_zones()) {
        return Err(Error::invalid(format!("there is no zone {z}"))
            .hint(format!("the disk has zones 0 to {}", g.nr_zones() - 1)));
    }
    if let Some(z) = zones.iter().find(|z| g.is_conventional(ZoneNo(**z))) {
        return Err(Error::invalid(format!("zone {z} is conventional")).hint("sequential zones"));
    }
    let (n, most) = (zones.len(), most_open(limits).min(MOST_ZONES));
    if n > most {
        return Err(
            Error::invalid(format!("{n} zones, and {most} may be open")).hint("fewer zones")
        );
    }
    let least = if limits.rotational { LEAST } else { 1 };
    if n < least {
        let zones = if n == 1 { "zone" } else { "zones" };
        return Err(Error::invalid(format!("{n} {zones} of a disk that turns"))
            .hint("8 or more, far from each other: seeks are measured between them"));
    }
    if limits.rotational && growth(zones, g) > GROWTH {
        return Err(Error::invalid(
            "the zones are too near each other: what is measured tells nothing of the rest of the disk",
        )
        .hint("zones all over the disk, or over half of it, at different distances from each other"));
    }
    if limits.read_only {
        return Err(Error::new(ErrorKind::Busy, "the disk takes no writes")
            .hint("leave read-only=1 out; a drive may be write-protected (blockdev --getro)"));
    }
    Ok(())
}

/// The largest factor by which errors of rates and seeks measured in these zones grow anywhere on
/// the disk.
fn growth(zones: &[u32], g: &Geometry) -> f64 {
    let place = |zone: usize| measure::place_of(zones[zone], g);
    let places: Vec<f64> = measure::places(zones.len()).into_iter().map(place).collect();
    let pairs = measure::pairs(zones);
    let distances: Vec<f64> =
        pairs.into_iter().map(|(a, b)| fit::distance(place(a), place(b), INNER)).collect();
    fit::growth_of_rates(&places).max(fit::growth_of_seeks(&distances))
}

#[cfg(test)]
mod tests {
    use super::*;
    use zoneplug_devices::emu::timing::Profile;

    /// The growth with zones at `parts` of the disk, in thousandths.
    fn grown(parts: impl Iterator<Item = u32>) -> f64 {
        let g = Profile::builtin("smr30").unwrap().geometry().unwrap();
        let last = g.nr_zones() - 1;
        let mut zones: Vec<u32> =
            parts.map(|p| (u64::from(last) * u64::from(p) / 1000) as u32).collect();
        zones.dedup();
        growth(&zones, &g)
    }

    #[test]
    fn zones_all_over_the_disk_are_enough_and_zones_of_a_part_are_not() {
        let all = grown((0..8).map(|i| i * 142));
        assert!(all < 1.1, "{all}");
        let half = grown((0..8).map(|i| i * 71));
        assert!((2.0..GROWTH).contains(&half), "{half}");
        let three_places = grown([0, 1, 2, 500, 501, 502, 998, 999, 1000].into_iter());
        assert!(three_places < 1.1, "{three_places}");
        for (what, is) in [
            ("a third", grown((0..8).map(|i| i * 47))),
            ("a tenth", grown((0..8).map(|i| i * 14))),
            ("both ends", grown([0, 1, 2, 3, 997, 998, 999, 1000].into_iter())),
        ] {
            assert!(is > GROWTH, "{what}: {is}");
        }
    }

    #[test]
    fn zones_that_cannot_be_written_are_refused() {
        let drive = Profile::builtin("zns1").unwrap();
        let (g, limits) = (drive.geometry().unwrap(), drive.limits());
        assert!(check_zones(&[0], &g, &limits).is_ok());
        let read_only = Limits { read_only: true, ..limits };
        let e = check_zones(&[0], &g, &read_only).unwrap_err();
        assert_eq!((e.kind(), e.what()), (ErrorKind::Busy, "the disk takes no writes"));
    }
}
