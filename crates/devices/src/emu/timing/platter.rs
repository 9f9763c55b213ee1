//! The platter: the place of a zone, its speed under the head, and the time of a seek. The platter has no state:
//! everything follows from the profile.
//!
//! Linear density is constant and tracks lie evenly, so the capacity outside of radius `r` grows with `1 - r^2`. At
//! the fraction `x` of the disk the radius is `sqrt(1 - k x)` with `k = 1 - inner^2`. Rate, cylinder and angle follow
//! from the radius alone. The angle of a place is that of the time in which everything before it is written. This
//! time includes skews, so a stream that continues at once never waits for the platter.

use super::profile::{Profile, SmrParams};
use zoneplug_core::unit::SECTOR_SHIFT;

/// A place on the platter.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct PlatterPlace {
    /// Distance from the outer edge: 0 at the outer edge, 1 at the inner one.
    pub(super) cylinder: f64,
    /// The time within a turn at which it passes under the head, in nanoseconds.
    pub(super) angle_ns: u32,
}

/// The platter of one disk.
#[derive(Debug)]
pub(super) struct Platter {
    /// Sectors of the disk.
    sectors: f64,
    zone_sectors: u64,
    /// `1 - inner^2`.
    k: f64,
    /// `1 - inner`.
    stroke: f64,
    /// Sectors per nanosecond at the outer edge.
    outer_rate: f64,
    /// The time to write the whole disk at the rate of its outer edge, in nanoseconds, times `2 / k`.
    scale_ns: f64,
    turn_ns: u32,
    seek_settle_ns: f64,
    seek_sqrt_ns: f64,
    seek_linear_ns: f64,
}

impl Platter {
    pub(super) fn new(profile: &Profile, p: &SmrParams) -> Platter {
        let inner = f64::from(p.inner_radius_ppm) / 1e6;
        let k = 1.0 - inner * inner;
        let sectors = f64::from(profile.zones) * f64::from(profile.zone_sectors);
        let outer_rate = p.outer_rate as f64 / 1e9 / f64::from(1u32 << SECTOR_SHIFT);
        Platter {
            sectors,
            zone_sectors: u64::from(profile.zone_sectors),
            k,
            stroke: 1.0 - inner,
            outer_rate,
            scale_ns: sectors / outer_rate * 2.0 / k,
            turn_ns: p.turn.0 as u32,
            seek_settle_ns: p.seek_settle.0 as f64,
            seek_sqrt_ns: p.seek_sqrt.0 as f64,
            seek_linear_ns: p.seek_linear.0 as f64,
        }
    }

    pub(super) fn turn_ns(&self) -> u32 {
        self.turn_ns
    }

    fn radius(&self, zone: u32, offset: u32) -> f64 {
        let sector = u64::from(zone) * self.zone_sectors + u64::from(offset);
        (1.0 - self.k * (sector as f64 / self.sectors)).sqrt()
    }

    /// Returns the place of an offset in a zone.
    pub(super) fn place(&self, zone: u32, offset: u32) -> PlatterPlace {
        let inward = 1.0 - self.radius(zone, offset);
        // The time to write everything before: the integral of 1 / rate.
        let before_ns = (self.scale_ns * inward) as u64;
        PlatterPlace {
            cylinder: inward / self.stroke,
            angle_ns: (before_ns % u64::from(self.turn_ns)) as u32,
        }
    }

    /// Returns how long a transfer takes on the medium, at the rate of the zone's start, in nanoseconds.
    pub(super) fn transfer_ns(&self, zone: u32, sectors: u32) -> u64 {
        (f64::from(sectors) / (self.outer_rate * self.radius(zone, 0)) + 0.5) as u64
    }

    /// Returns how long a seek between two cylinders takes, in nanoseconds. The time grows with the distance.
    pub(super) fn seek_ns(&self, from: f64, to: f64) -> u32 {
        let d = if from < to { to - from } else { from - to };
        (self.seek_settle_ns + self.seek_sqrt_ns * d.sqrt() + self.seek_linear_ns * d + 0.5) as u32
    }

    /// Returns how long it takes until `angle_ns` passes under the head, starting `phase_ns` into a turn.
    pub(super) fn wait_ns(&self, angle_ns: u32, phase_ns: u32) -> u32 {
        let phase = phase_ns % self.turn_ns;
        if angle_ns >= phase { angle_ns - phase } else { angle_ns + self.turn_ns - phase }
    }
}

#[cfg(test)]
mod tests {
    use super::super::profile::Model;
    use super::*;

    fn smr30() -> (Platter, SmrParams) {
        let profile = Profile::builtin("smr30").unwrap();
        let Model::Smr(p) = &profile.model else { panic!("a disk") };
        (Platter::new(&profile, p), p.clone())
    }

    /// The mean rate over the disk is the rate at the mean radius; one open zone at a random place gets it.
    #[test]
    fn the_mean_rate_is_that_of_the_middle_radius() {
        let (p, params) = smr30();
        let zones = 111_759;
        let step = 97;
        let total: u64 = (0..zones).step_by(step).map(|z| p.transfer_ns(z, 524_288)).sum();
        let n = (0..zones).step_by(step).count() as f64;
        let mean = n * 268_435_456.0 / total as f64 * 1e3;
        let expected = params.outer_rate as f64 / 1e6 * (1.0 + 0.59) / 2.0;
        assert!((mean / expected - 1.0).abs() < 1e-3, "{mean} MB/s, {expected} expected");
    }

    /// A stream that continues at once never waits for the platter: the angle of a place is the time to write
    /// everything before it.
    #[test]
    fn angles_advance_with_the_time_of_the_data() {
        let (p, _) = smr30();
        for zone in [0, 1, 1500, 60_000, 111_758] {
            let (a, b) = (p.place(zone, 0), p.place(zone, 2048));
            let advance = p.wait_ns(b.angle_ns, a.angle_ns);
            let took = p.transfer_ns(zone, 2048) % u64::from(p.turn_ns());
            assert!(
                u64::from(advance).abs_diff(took) < 200,
                "zone {zone}: {advance} ns, {took} ns"
            );
            assert!(b.cylinder > a.cylinder);
        }
        let (first, last) = (p.place(0, 0), p.place(111_758, 524_288));
        assert_eq!((first.cylinder, first.angle_ns), (0.0, 0));
        assert!((last.cylinder - 1.0).abs() < 1e-12);
    }

    #[test]
    fn a_seek_takes_longer_the_further_it_is() {
        let (p, _) = smr30();
        assert_eq!(p.seek_ns(0.5, 0.5), 1_000_000);
        assert_eq!(p.seek_ns(0.0, 1.0), 17_500_000);
        assert_eq!(p.seek_ns(1.0, 0.0), 17_500_000);
        let mut before = 0;
        for i in 0..1000 {
            let t = p.seek_ns(0.3, 0.3 + f64::from(i) / 2000.0);
            assert!(t >= before, "{i}");
            before = t;
        }
    }

    #[test]
    fn waiting_for_an_angle_takes_less_than_a_turn() {
        let (p, _) = smr30();
        let turn = p.turn_ns();
        assert_eq!(turn, 8_333_333);
        assert_eq!(p.wait_ns(5, 5), 0);
        assert_eq!(p.wait_ns(5, 6), turn - 1);
        assert_eq!(p.wait_ns(6, 5 + 3 * turn), 1);
    }
}
