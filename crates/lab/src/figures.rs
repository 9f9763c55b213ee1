//! Figures as people read them.

/// Formats a figure with about three significant digits.
pub(crate) fn figure(x: f64) -> String {
    match x {
        _ if !x.is_finite() => "-".to_owned(),
        0.0 => "0".to_owned(),
        x if x >= 99.95 => thousands(x.round() as u64),
        x if x >= 0.995 => format!("{x:.1}"),
        x => format!("{x:.2}"),
    }
}

/// Formats a whole number with commas.
pub(crate) fn thousands(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (i, d) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(d);
    }
    text
}

/// Formats a time in nanoseconds, with a unit.
pub(crate) fn time(ns: u64) -> String {
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{} us", figure(ns as f64 / 1e3)),
        1_000_000..1_000_000_000 => format!("{} ms", figure(ns as f64 / 1e6)),
        _ => format!("{} s", figure(ns as f64 / 1e9)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_keep_three_digits() {
        for (x, text) in [
            (0.0, "0"),
            (0.123, "0.12"),
            (9.96, "10.0"),
            (42.42, "42.4"),
            (1234567.8, "1,234,568"),
            (99.97, "100"),
            (f64::NAN, "-"),
        ] {
            assert_eq!(figure(x), text);
        }
        assert_eq!(time(950), "950 ns");
        assert_eq!(time(1_500), "1.5 us");
        assert_eq!(time(97_000_000), "97.0 ms");
        assert_eq!(time(2_000_000_000), "2.0 s");
    }
}
