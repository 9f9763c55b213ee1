//! Numbers with units, as people write them: sizes, times, rates, fractions.

use crate::unit::Nanos;
use std::fmt;

/// Units of sizes: powers of 1024.
const SIZES: [(&str, u64); 4] = [("K", 1 << 10), ("M", 1 << 20), ("G", 1 << 30), ("T", 1 << 40)];
/// Units of times, in nanoseconds. A name stands before every name that it ends with.
pub(super) const TIMES: [(&str, u64); 4] =
    [("ns", 1), ("us", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000)];
/// Units of times that are read but never shown.
const LONG_TIMES: [(&str, u64); 2] = [("m", 60_000_000_000), ("h", 3_600_000_000_000)];

/// Reads a whole number without a sign.
pub(super) fn plain(text: &str) -> Option<u64> {
    // `parse` would accept a plus sign.
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

/// Reads a number of bytes, as in `4096`, `128K`, `64M` or `1TiB`. `None` if it is not a number, or above 2^64.
pub fn parse_size(text: &str) -> Option<u64> {
    // `KiB` is `K`, but `KB` is 1000 to some and 1024 to others.
    let text = match text.strip_suffix("iB") {
        Some(short) if short.ends_with(['K', 'k', 'M', 'm', 'G', 'g', 'T', 't']) => short,
        _ => text,
    };
    for (unit, n) in SIZES {
        let lower = unit.to_ascii_lowercase();
        if let Some(number) = text.strip_suffix(unit).or_else(|| text.strip_suffix(&lower)) {
            return plain(number)?.checked_mul(n);
        }
    }
    plain(text)
}

/// Reads a number of nanoseconds, as in `500ns`, `80us`, `1ms`, `10s`, `5m` (minutes) or `1h`. `None` if it is not a
/// number, or has no unit and is not 0.
pub fn parse_time(text: &str) -> Option<u64> {
    for (unit, n) in TIMES.into_iter().chain(LONG_TIMES) {
        if let Some(number) = text.strip_suffix(unit) {
            return plain(number)?.checked_mul(n);
        }
    }
    (text == "0").then_some(0)
}

/// Reads a rate in bytes per second, as makers of drives count: `246MB/s` is 246,000,000.
pub fn parse_rate(text: &str) -> Option<u64> {
    let number = text.strip_suffix("B/s")?;
    let (digits, unit) = match number.char_indices().next_back()? {
        (i, 'k') => (&number[..i], 1_000),
        (i, 'M') => (&number[..i], 1_000_000),
        (i, 'G') => (&number[..i], 1_000_000_000),
        _ => (number, 1),
    };
    plain(digits)?.checked_mul(unit)
}

/// Reads a number below 10 with up to six decimal places, in millionths: `0.55` is 550,000.
pub fn parse_fraction(text: &str) -> Option<u32> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let digits = |t: &str| t.bytes().all(|b| b.is_ascii_digit());
    if whole.len() != 1 || part.len() > 6 || !digits(whole) || !digits(part) {
        return None;
    }
    format!("{whole}{part:0<6}").parse().ok()
}

/// Shows a time in the largest unit that divides it, as [`parse_time`] reads it.
#[derive(Debug, Clone, Copy)]
pub struct Time(pub Nanos);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let n = self.0.0;
        let fits = TIMES.iter().rev().find(|(_, t)| n != 0 && n.is_multiple_of(*t));
        match fits {
            Some((unit, t)) => write!(f, "{}{unit}", n / t),
            None => write!(f, "0"),
        }
    }
}
