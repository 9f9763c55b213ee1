//! The most bytes for the time: the bytes that wait in a zone, divided by the time to get there, half a turn of the
//! platter, and the transfer.
//!
//! A zone with few waiting bytes may be passed over as long as others have more, so use this policy with a deadline
//! (`zone_deadline_ms`). The costs are those of a 3.5 inch disk with 7200 rpm; only their ratios matter.

use super::view::{Candidate, View};

/// The shortest seek and the two terms of a longer one, in microseconds. A seek over a part `d` of the full stroke
/// takes `1.0 + 11.5 sqrt(d) + 6.0 d` milliseconds. Fitted to a published measurement of a 30 TB disk
/// (docs/models.md). Its data sheet has 8.2 ms as the average write seek; this formula gives 9.0.
const SEEK_US: [u64; 3] = [1_000, 11_500, 6_000];
/// Half of a turn at 7200 rpm.
const HALF_TURN_US: u64 = 4_167;
/// The mean rate of the medium: the published rate for one zone at a random place, 192 MB/s.
const BYTES_PER_US: u64 = 192;

/// Picks the zone with the best ratio. Among equal ones, the zone that has waited longest.
pub(super) fn pick(view: &View<'_>) -> usize {
    let mut best = (0, 0, 1);
    for (i, c) in view.listed.iter().enumerate() {
        let (gain, cost) = (c.bytes.0, cost_us(view, c));
        // gain / cost > best gain / best cost, without division.
        if u128::from(gain) * u128::from(best.2) > u128::from(best.1) * u128::from(cost) {
            best = (i, gain, cost);
        }
    }
    best.0
}

fn cost_us(view: &View<'_>, c: &Candidate) -> u64 {
    let distance = c.sector.0.abs_diff(view.head.0);
    // The distance in 2^-20 of the stroke.
    let d = ((u128::from(distance) << 20) / u128::from(view.capacity.0.max(1))) as u64;
    let seek = SEEK_US[0] + ((SEEK_US[1] * (d << 20).isqrt() + SEEK_US[2] * d) >> 20);
    let seek = if distance == 0 { 0 } else { seek + HALF_TURN_US };
    seek + c.bytes.0 / BYTES_PER_US + 1
}

#[cfg(test)]
mod tests {
    use super::super::{candidates, view};
    use super::*;

    #[test]
    fn of_equal_amounts_the_nearest_is_next() {
        let listed = candidates(&[(900, 1024), (12, 1024), (500, 1024)]);
        assert_eq!(pick(&view(&listed, Some(10))), 1);
        assert_eq!(pick(&view(&listed, Some(890))), 0);
    }

    #[test]
    fn much_far_away_beats_little_near_by() {
        let listed = candidates(&[(11, 4), (900, 8192)]);
        assert_eq!(pick(&view(&listed, Some(10))), 1);
    }

    #[test]
    fn of_equals_the_one_that_waits_longest_is_next() {
        let listed = candidates(&[(20, 64), (20, 64), (20, 64)]);
        assert_eq!(pick(&view(&listed, Some(10))), 0);
    }

    #[test]
    fn seeks_cost_what_the_model_says() {
        let listed = candidates(&[(0, 0), (1, 0), (512, 0), (1023, 0)]);
        let v = view(&listed, Some(0));
        let cost: Vec<_> = listed.iter().map(|c| cost_us(&v, c)).collect();
        assert_eq!(cost[0], 1, "where the head is nothing has to be waited for");
        // 1.0 + 11.5 sqrt(1/1024) + 6/1024 = 1.365 ms and half a turn.
        assert!((5_500..5_580).contains(&cost[1]), "{}", cost[1]);
        // 1.0 + 8.13 + 3.0.
        assert!((16_280..16_320).contains(&cost[2]), "{}", cost[2]);
        assert!((22_600..22_680).contains(&cost[3]), "{}", cost[3]);
    }
}
