//! Numbers and words of a line.

/// Parses decimal digits, or hexadecimal ones after `0x`.
pub(super) fn number(text: &[u8]) -> Option<u64> {
    decimal(text).or_else(|| hexadecimal(text))
}

fn decimal(text: &[u8]) -> Option<u64> {
    if text.is_empty() || text.len() > 20 {
        return None;
    }
    text.iter().try_fold(0u64, |n, b| {
        let digit = b.is_ascii_digit().then(|| u64::from(b - b'0'))?;
        n.checked_mul(10)?.checked_add(digit)
    })
}

#[cold]
fn hexadecimal(text: &[u8]) -> Option<u64> {
    let [b'0', b'x' | b'X', digits @ ..] = text else { return None };
    if digits.is_empty() || digits.len() > 16 {
        return None;
    }
    digits.iter().try_fold(0u64, |n, b| Some(n << 4 | u64::from(char::from(*b).to_digit(16)?)))
}

/// Parses a whole number. Accepts a final `.0`, which programs write after a floating-point number without a fraction, and an
/// exponent (`1e+05`). Refuses `.000`, which may be a group of thousands.
pub(super) fn whole(text: &[u8]) -> Option<u64> {
    number(text).or_else(|| decimal(text.strip_suffix(b".0")?)).or_else(|| {
        let exact = Exact::of(text).filter(|n| n.has_exponent && n.shift >= 0)?;
        u64::try_from(exact.times(1)?).ok()
    })
}

/// Splits a number at its point or comma, which both parts lack. Without one the second part is empty.
fn split_fraction(word: &[u8]) -> (&[u8], &[u8]) {
    match word.iter().position(|b| matches!(b, b'.' | b',')) {
        Some(i) => (&word[..i], &word[i + 1..]),
        None => (word, b""),
    }
}

/// Parses a number with an optional fraction after a point or a comma and an optional exponent after `e`, and multiplies it by
/// `unit`. Rounds down.
pub(super) fn scaled(word: &[u8], unit: u64) -> Option<u64> {
    in_64_bits(word, unit).or_else(|| u64::try_from(exact(word, unit)?).ok())
}

/// Parses a number as [`scaled`] does, which may be negative, or too large for 64 bits when it is multiplied.
pub(super) fn wide(word: &[u8], unit: u64) -> Option<i128> {
    match in_64_bits(word, unit) {
        Some(n) => Some(n.into()),
        None => signed(word, unit),
    }
}

/// The usual number: digits, and perhaps a fraction.
#[inline]
fn in_64_bits(word: &[u8], unit: u64) -> Option<u64> {
    let (whole, fraction) = split_fraction(word);
    let mut parts = number(whole)?.checked_mul(unit)?;
    let mut place = unit;
    for digit in fraction {
        let digit = digit.is_ascii_digit().then(|| u64::from(digit - b'0'))?;
        place /= 10;
        parts = parts.checked_add(digit * place)?;
    }
    Some(parts)
}

#[cold]
fn signed(word: &[u8], unit: u64) -> Option<i128> {
    let size = word.strip_prefix(b"-").unwrap_or(word);
    let size = match number(size) {
        Some(n) => u128::from(n) * u128::from(unit),
        None => exact(size, unit)?,
    };
    let size = i128::try_from(size).ok()?;
    Some(if word.starts_with(b"-") { -size } else { size })
}

/// Parses any decimal number that is not negative, and multiplies it by `unit`. Rounds down.
#[cold]
fn exact(word: &[u8], unit: u64) -> Option<u128> {
    Exact::of(word)?.times(unit)
}

/// A decimal number: digits, and the power of ten by which they are shifted.
struct Exact {
    digits: u128,
    shift: i32,
    has_exponent: bool,
}

impl Exact {
    /// Parses a number such as `12`, `.5`, `1,25` or `5e-06`.
    fn of(word: &[u8]) -> Option<Exact> {
        /// So many digits, multiplied by a unit, fit into 128 bits.
        const DIGITS: usize = 28;
        let e = word.iter().position(|b| matches!(b, b'e' | b'E'));
        let exponent: i32 = match e {
            Some(e) => std::str::from_utf8(&word[e + 1..]).ok()?.parse().ok()?,
            None => 0,
        };
        let (whole, fraction) = split_fraction(&word[..e.unwrap_or(word.len())]);
        // Digits behind the last one that fits are less than any unit.
        let fraction = &fraction[..fraction.len().min(DIGITS.saturating_sub(whole.len()))];
        if whole.len() > DIGITS || whole.len() + fraction.len() == 0 {
            return None;
        }
        let digits = whole.iter().chain(fraction).try_fold(0u128, |n, b| {
            Some(n * 10 + b.is_ascii_digit().then(|| u128::from(b - b'0'))?)
        })?;
        let shift = exponent.checked_sub(fraction.len() as i32)?;
        Some(Exact { digits, shift, has_exponent: e.is_some() })
    }

    fn times(&self, unit: u64) -> Option<u128> {
        let parts = self.digits.checked_mul(unit.into())?;
        let ten = 10u128.checked_pow(self.shift.unsigned_abs());
        match (self.shift < 0, ten) {
            _ if parts == 0 => Some(0),
            (true, None) => Some(0),
            (true, Some(ten)) => Some(parts / ten),
            (false, ten) => parts.checked_mul(ten?),
        }
    }
}

/// The first sector that a range of bytes touches, and the number of sectors.
pub(super) fn touched(begin: u64, length: u64) -> (u64, u64) {
    let (sector, end) = (begin >> 9, (begin + length).div_ceil(512));
    (sector, end - sector)
}

/// Splits a line into words, without allocating.
pub(super) fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(u8::is_ascii_whitespace).filter(|w| !w.is_empty())
}

/// Quotes a word in printable form.
pub(super) fn shown(word: &[u8]) -> String {
    let text = String::from_utf8_lossy(word);
    let short: String = text.chars().filter(|c| !c.is_control()).take(40).collect();
    format!("'{short}'")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_decimal_or_hexadecimal() {
        for (text, is) in [
            ("0", Some(0)),
            ("18446744073709551615", Some(u64::MAX)),
            ("18446744073709551616", None),
            ("0x0", Some(0)),
            ("0X1f", Some(31)),
            ("0xFFFFFFFFFFFFFFFF", Some(u64::MAX)),
            ("0x10000000000000000", None),
            ("0x", None),
            ("0xg", None),
            ("x1", None),
            ("1f", None),
            ("", None),
            ("-1", None),
        ] {
            assert_eq!(number(text.as_bytes()), is, "{text}");
        }
    }

    #[test]
    fn a_whole_number_may_end_in_point_zero() {
        for (text, is) in [
            ("4096.0", Some(4_096)),
            ("0.0", Some(0)),
            ("4096", Some(4_096)),
            ("0x10", Some(16)),
            // Possible groups of thousands, and fractions.
            ("4.096", None),
            ("4.000", None),
            ("4,0", None),
            ("1e+05", Some(100_000)),
            ("1.5e3", Some(1_500)),
            ("1.5e0", None),
            ("5e-1", None),
            ("4096.5", None),
            ("0x10.0", None),
            (".0", None),
        ] {
            assert_eq!(whole(text.as_bytes()), is, "{text}");
        }
    }

    #[test]
    fn a_time_may_be_negative_or_wide() {
        for (text, unit, is) in [
            ("12.5", 10, Some(125)),
            ("-12.5", 10, Some(-125)),
            ("-0x10", 1, Some(-16)),
            ("-5e-06", 1_000_000_000, Some(-5_000)),
            // Ticks of .NET, from the year 1 on.
            ("638000000000000000", 100, Some(63_800_000_000_000_000_000)),
            ("638000000000000000,25", 100, Some(63_800_000_000_000_000_025)),
            ("-638000000000000000", 100, Some(-63_800_000_000_000_000_000)),
            ("6.3800000000001e17", 100, Some(63_800_000_000_001_000_000)),
            ("6e+17", 100, Some(60_000_000_000_000_000_000)),
            ("-.5", 10, Some(-5)),
            ("--1", 1, None),
            ("-", 1, None),
            ("-x", 1, None),
            ("638000000000000000.x", 100, None),
            ("63800000000000000000", 1, Some(63_800_000_000_000_000_000)),
            ("99999999999999999999999999999", 1, None),
            ("9999999999999999999999999999", u64::MAX, None),
        ] {
            assert_eq!(wide(text.as_bytes(), unit), is, "{text}");
        }
    }

    #[test]
    fn a_fraction_may_follow_a_point_or_a_comma() {
        for (text, unit, is) in [
            ("12.5", 1_000, Some(12_500)),
            ("12,5", 1_000, Some(12_500)),
            ("1700000000.123456789", 1_000_000_000, Some(1_700_000_000_123_456_789)),
            ("128166372003061629.9", 100, Some(12_816_637_200_306_162_990)),
            ("0x10", 1_000, Some(16_000)),
            ("1.", 10, Some(10)),
            ("1.2.3", 10, None),
            (".5", 10, Some(5)),
            (".", 10, None),
            ("1.500000000000000000e+00", 1_000_000_000, Some(1_500_000_000)),
            ("0.12345678901234567890123456789012345", 1_000_000_000, Some(123_456_789)),
            ("18446744073.8", 1_000_000_000, None),
            ("5e-06", 1_000_000_000, Some(5_000)),
            ("1.25E+3", 1_000, Some(1_250_000)),
            ("1,5e-9", 1_000_000_000, Some(1)),
            ("1.5e-10", 1_000_000_000, Some(0)),
            ("2e0", 7, Some(14)),
            ("0e99999", 1, Some(0)),
            ("1e-99999", 1, Some(0)),
            ("1e19", 1, Some(10_000_000_000_000_000_000)),
            ("1e20", 1, None),
            ("1e99999", 1, None),
            ("1e-2147483648", 1, Some(0)),
            ("e5", 1, None),
            ("1e", 1, None),
            ("1e5e5", 1, None),
            ("0x1e5", 1, Some(0x1e5)),
            ("nan", 1, None),
            ("inf", 1, None),
        ] {
            assert_eq!(scaled(text.as_bytes(), unit), is, "{text}");
        }
    }
}
