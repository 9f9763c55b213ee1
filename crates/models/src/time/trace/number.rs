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

/// Parses a whole number. Accepts a final `.0`, which programs write after a floating-point number without a fraction. Refuses
/// `.000`, which may be a group of thousands.
pub(super) fn whole(text: &[u8]) -> Option<u64> {
    number(text).or_else(|| decimal(text.strip_suffix(b".0")?))
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
    let (whole, fraction) = split_fraction(word);
    let Some(whole) = number(whole) else { return with_exponent(word, unit) };
    let mut parts = whole.checked_mul(unit)?;
    let mut place = unit;
    for digit in fraction {
        if matches!(digit, b'e' | b'E') {
            return with_exponent(word, unit);
        }
        let digit = digit.is_ascii_digit().then(|| u64::from(digit - b'0'))?;
        place /= 10;
        parts = parts.checked_add(digit * place)?;
    }
    Some(parts)
}

/// Parses a number as [`scaled`] does, which may be negative, or too large for 64 bits when it is multiplied.
pub(super) fn wide(word: &[u8], unit: u64) -> Option<i128> {
    match scaled(word, unit) {
        Some(n) => Some(n.into()),
        None => beyond(word, unit),
    }
}

#[cold]
fn beyond(word: &[u8], unit: u64) -> Option<i128> {
    if let Some(word) = word.strip_prefix(b"-") {
        let is_number = word.first().is_some_and(u8::is_ascii_digit);
        return is_number.then(|| wide(word, unit))?.map(|n| -n);
    }
    let (whole, fraction) = split_fraction(word);
    // So many digits, and any unit, fit into 128 bits.
    let whole = Some(whole).filter(|digits| matches!(digits.len(), 1..=28))?;
    let whole = whole
        .iter()
        .try_fold(0i128, |n, b| Some(n * 10 + b.is_ascii_digit().then(|| i128::from(b - b'0'))?))?;
    let whole = whole.checked_mul(unit.into())?;
    let fraction = match fraction {
        b"" => 0,
        digits => scaled(&[b"0.", digits].concat(), unit)?,
    };
    Some(whole + i128::from(fraction))
}

/// Parses a number with an exponent, as Python writes small ones (`5e-06`), and multiplies it by `unit`.
#[cold]
fn with_exponent(word: &[u8], unit: u64) -> Option<u64> {
    /// A floating-point number has fewer digits. The product of so many digits and `unit` fits into 128 bits.
    const DIGITS: usize = 18;
    let e = word.iter().position(|b| matches!(b, b'e' | b'E'))?;
    let exponent: i32 = std::str::from_utf8(&word[e + 1..]).ok()?.parse().ok()?;
    let (whole, fraction) = split_fraction(&word[..e]);
    if whole.is_empty() || whole.len() + fraction.len() > DIGITS {
        return None;
    }
    let digits = decimal(&[whole, fraction].concat())?;
    let parts = u128::from(digits) * u128::from(unit);
    let shift = exponent.checked_sub(fraction.len() as i32)?;
    let ten = 10u128.checked_pow(shift.unsigned_abs());
    let parts = match (shift < 0, ten) {
        _ if digits == 0 => 0,
        (true, None) => 0,
        (true, Some(ten)) => parts / ten,
        (false, ten) => parts.checked_mul(ten?)?,
    };
    u64::try_from(parts).ok()
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
            (".5", 10, None),
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
