//! Numbers in at most five columns.

/// A rate or a number: `0`, `0.3`, `12`, `1.2k`, `123k`, `4.5M`.
pub(crate) fn si(n: f64) -> String {
    if !n.is_finite() || n < 0.05 {
        return "0".to_owned();
    }
    let mut n = n;
    for unit in ["", "k", "M", "G", "T", "P"] {
        if n < 9.95 && (!unit.is_empty() || n.fract() != 0.0) {
            return format!("{n:.1}{unit}");
        }
        if n < 999.5 {
            return format!("{n:.0}{unit}");
        }
        n /= 1000.0;
    }
    "many".to_owned()
}

/// A time: `512ns`, `16us`, `1.0ms`, `134ms`, `2.1s`.
pub(crate) fn time(ns: u64) -> String {
    let units = [(1_000_000_000.0, "s"), (1_000_000.0, "ms"), (1000.0, "us")];
    let of = |(size, unit): &(f64, &str)| {
        let n = ns as f64 / size;
        (n >= 0.9995)
            .then(|| if n < 9.95 { format!("{n:.1}{unit}") } else { format!("{n:.0}{unit}") })
    };
    units.iter().find_map(of).unwrap_or_else(|| format!("{ns}ns"))
}

/// A time that may be unknown.
pub(crate) fn maybe_time(ns: Option<u64>) -> String {
    ns.map_or_else(|| "-".to_owned(), time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_at_most_five_columns() {
        let all: Vec<String> = [
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
            4.5e6,
            1e20,
            f64::NAN,
        ]
        .into_iter()
        .map(si)
        .collect();
        let want = [
            "0", "0", "0.3", "1", "9.9", "10", "12", "999", "1.0k", "1.2k", "100k", "4.5M", "many",
            "0",
        ];
        assert_eq!(all, want);
        let all: Vec<String> =
            [1, 999, 1000, 16_384, 999_999, 1 << 20, 1 << 27, 1 << 31, 1 << 37].map(time).into();
        assert_eq!(
            all,
            ["1ns", "999ns", "1.0us", "16us", "1.0ms", "1.0ms", "134ms", "2.1s", "137s"]
        );
    }
}
