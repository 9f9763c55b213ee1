//! C-LOOK: the next zone upward; after the last zone, the first.
//!
//! A zone that gets new writes during its turn waits for the next sweep. So a sweep visits each zone once, and no
//! zone starves.

use super::view::View;

/// Picks the zone with the lowest number above that of the last turn. If there is none, the zone with the lowest
/// number.
pub(super) fn pick(view: &View<'_>) -> usize {
    let (mut up, mut low) = (None, 0);
    for (i, c) in view.listed.iter().enumerate() {
        if c.zone < view.listed[low].zone {
            low = i;
        }
        let above = view.last.is_none_or(|last| c.zone > last);
        if above && up.is_none_or(|u: usize| c.zone < view.listed[u].zone) {
            up = Some(i);
        }
    }
    up.unwrap_or(low)
}

#[cfg(test)]
mod tests {
    use super::super::{candidates, view};
    use super::pick;

    #[test]
    fn the_next_zone_upward_is_next() {
        let listed = candidates(&[(9, 4), (2, 4), (5, 4)]);
        assert_eq!(pick(&view(&listed, Some(3))), 2);
        assert_eq!(pick(&view(&listed, Some(5))), 0);
    }

    #[test]
    fn past_the_last_zone_it_starts_again_at_the_first() {
        let listed = candidates(&[(9, 4), (2, 4), (5, 4)]);
        assert_eq!(pick(&view(&listed, Some(9))), 1);
        assert_eq!(pick(&view(&listed, None)), 1);
    }

    #[test]
    fn a_zone_that_is_listed_again_waits_for_the_next_sweep() {
        let listed = candidates(&[(4, 4), (9, 4)]);
        assert_eq!(pick(&view(&listed, Some(4))), 1, "not zone 4 once more");
        assert_eq!(pick(&view(&listed[..1], Some(4))), 0, "unless there is no other");
    }
}
