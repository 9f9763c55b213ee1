//! Rounded figures, as `status`, its watch, `top` and the page of a server show them.

/// Formats a number without its unit: one digit behind the point below ten.
fn digits(n: f64) -> String {
    if n < 9.95 { format!("{n:.1}") } else { format!("{n:.0}") }
}

/// A number in the largest unit in which it rounds to at least one, to `decimals` digits, and the name of the unit.
/// `units` are the sizes of units and their names, the largest first. `None`: it is below all of them.
fn in_units(n: f64, decimals: i32, units: &[(f64, &'static str)]) -> Option<(f64, &'static str)> {
    let least = 1.0 - 0.5 * 10f64.powi(-decimals - 2);
    units.iter().map(|(size, name)| (n / size, *name)).find(|(n, _)| *n >= least)
}

/// Formats a number of bytes, rounded.
///
/// ```
/// assert_eq!(zoneplug_control::figures::about(1536), "1.5K");
/// ```
pub fn about(bytes: u64) -> String {
    let units = [(40, "T"), (30, "G"), (20, "M"), (10, "K")];
    let units = units.map(|(shift, name)| ((1u64 << shift) as f64, name));
    // Up to 1023.9 of a unit are shown, so a number rounds up from 0.99995 of the next one.
    match in_units(bytes as f64, 2, &units) {
        Some((n, unit)) => format!("{n:.1}{unit}"),
        None => bytes.to_string(),
    }
}

/// Formats a rate or a number in at most five columns: `0`, `0.3`, `12`, `1.2k`, `123k`, `4.5M`.
///
/// ```
/// assert_eq!(zoneplug_control::figures::rounded(1234.0), "1.2k");
/// ```
pub fn rounded(n: f64) -> String {
    let units = [(1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")];
    match in_units(n, 1, &units) {
        _ if !n.is_finite() || n < 0.05 => "0".to_owned(),
        Some((n, _)) if n >= 999.5 => "many".to_owned(),
        Some((n, unit)) => digits(n) + unit,
        None if n.fract() == 0.0 => n.to_string(),
        None => digits(n),
    }
}

/// Nanoseconds, rounded, and their unit.
fn time(ns: u64) -> (String, &'static str) {
    match in_units(ns as f64, 1, &[(1e9, "s"), (1e6, "ms"), (1e3, "us")]) {
        Some((n, unit)) => (digits(n), unit),
        None => (ns.to_string(), "ns"),
    }
}

/// Formats nanoseconds, rounded.
///
/// ```
/// assert_eq!(zoneplug_control::figures::duration(1_500_000), "1.5 ms");
/// ```
pub fn duration(ns: u64) -> String {
    let (n, unit) = time(ns);
    format!("{n} {unit}")
}

/// Formats nanoseconds in at most five columns: `512ns`, `16us`, `1.0ms`, `134ms`, `2.1s`.
///
/// ```
/// assert_eq!(zoneplug_control::figures::short_duration(1_500_000), "1.5ms");
/// ```
pub fn short_duration(ns: u64) -> String {
    let (n, unit) = time(ns);
    n + unit
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_the_largest_unit_that_fits() {
        let all = [0, 1023, 1536, (1 << 20) - 1, 150 << 20, 3 << 30, (1 << 40) - 1];
        let want = ["0", "1023", "1.5K", "1.0M", "150.0M", "3.0G", "1.0T"];
        assert_eq!(all.map(about), want);
    }

    #[test]
    fn numbers_have_at_most_five_columns() {
        let all = [
            0.0,
            0.04,
            0.3,
            1.0,
            9.94,
            9.96,
            12.4,
            999.4,
            999.6,
            1234.0,
            99_960.0,
            999_600.0,
            4.5e6,
            1e20,
            f64::NAN,
        ];
        let want = [
            "0", "0", "0.3", "1", "9.9", "10", "12", "999", "1.0k", "1.2k", "100k", "1.0M", "4.5M",
            "many", "0",
        ];
        assert_eq!(all.map(rounded), want);
    }

    #[test]
    fn times_round_up_to_the_next_unit() {
        let all = [1, 999, 1000, 9960, 16_384, 999_999, 1 << 20, 1 << 27, 1 << 31, 1 << 37];
        let want =
            ["1ns", "999ns", "1.0us", "10us", "16us", "1.0ms", "1.0ms", "134ms", "2.1s", "137s"];
        assert_eq!(all.map(short_duration), want);
        assert_eq!([5, 9960, 999_999].map(duration), ["5 ns", "10 us", "1.0 ms"]);
    }
}
