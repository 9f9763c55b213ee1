//! First listed, first served: the order of Linux's single writer (Q3).

use super::view::View;

/// Picks the zone that has been listed longest.
pub(super) fn pick(_: &View<'_>) -> usize {
    0
}

#[cfg(test)]
mod tests {
    use super::super::{candidates, view};

    /// Q3. The policy picks the zone that was listed first.
    #[test]
    fn the_first_listed_is_next() {
        let listed = candidates(&[(9, 4), (2, 4096), (5, 4)]);
        assert_eq!(super::pick(&view(&listed, Some(2))), 0);
    }
}
