//! Rounded figures, as `status`, its watch and the page of a server show them.

/// Formats a number of bytes, rounded.
///
/// ```
/// assert_eq!(zoneplug_control::figures::about(1536), "1.5K");
/// ```
pub fn about(bytes: u64) -> String {
    let units = [(40, "T"), (30, "G"), (20, "M"), (10, "K")];
    match units.iter().find(|(shift, _)| bytes >> shift > 0) {
        Some((shift, unit)) => format!("{:.1}{unit}", bytes as f64 / (1u64 << shift) as f64),
        None => bytes.to_string(),
    }
}

/// Formats nanoseconds, rounded.
///
/// ```
/// assert_eq!(zoneplug_control::figures::duration(1_500_000), "1.5 ms");
/// ```
pub fn duration(ns: u64) -> String {
    let units = [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us"), (1, "ns")];
    let (unit, name) = units.into_iter().find(|(unit, _)| ns >= *unit).unwrap_or((1, "ns"));
    let n = ns as f64 / unit as f64;
    if n < 10.0 { format!("{n:.1} {name}") } else { format!("{n:.0} {name}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_the_largest_unit_that_fits() {
        assert_eq!(about(0), "0");
        assert_eq!(about(1536), "1.5K");
        assert_eq!(about(3 << 30), "3.0G");
    }
}
