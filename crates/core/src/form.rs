//! Keys and the forms of their values: the values that each key of a specification, and each attribute of a disk,
//! accepts.
//!
//! The parser, the errors, `zoneplug help spec` and the man page all read the same [`Key`]. So names and bounds are
//! the same everywhere.

mod number;

pub use number::{Time, parse_fraction, parse_rate, parse_size, parse_time};

use crate::unit::{Bytes, Nanos, SECTOR_SIZE};
use number::plain;
use std::fmt;

/// Nanoseconds of a microsecond.
pub const US: u64 = 1_000;
/// Nanoseconds of a millisecond.
pub const MS: u64 = 1_000_000;

/// A key of specifications, or an attribute of a disk.
///
/// ```
/// use zoneplug_core::form::{DefaultValue, Form, Key, Value};
/// static ZONES: Key = Key {
///     name: "zones",
///     aliases: &["nr_zones"],
///     form: Form::Number { min: 1, max: 1000, unit: "zones" },
///     default: DefaultValue::Is("64"),
///     about: "Zones of the disk.",
/// };
/// assert!(ZONES.is("nr_zones"));
/// assert_eq!(ZONES.form.read("8"), Some(Value::Number(8)));
/// assert_eq!(ZONES.form.read("1001"), None);
/// assert_eq!(ZONES.form.allowed(), "a whole number from 1 to 1000");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key {
    /// The name: Linux's where Linux has one.
    pub name: &'static str,
    /// Other names with the same meaning.
    pub aliases: &'static [&'static str],
    /// The form of its values.
    pub form: Form,
    /// The value if the key is not given.
    pub default: DefaultValue,
    /// A description in one sentence.
    pub about: &'static str,
}

impl Key {
    /// Returns whether `name` is the key's name or one of its aliases.
    pub fn is(&self, name: &str) -> bool {
        self.name == name || self.aliases.contains(&name)
    }
}

/// The value of a key that is not given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DefaultValue {
    /// This value, as it would be written.
    Is(&'static str),
    /// The meaning of leaving the key out, in words.
    Means(&'static str),
    /// Nothing: the key must be given.
    Required,
}

impl fmt::Display for DefaultValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DefaultValue::Is(text) | DefaultValue::Means(text) => text,
            DefaultValue::Required => "must be given",
        })
    }
}

/// The value of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// A number, in the unit that the [`Form`] states.
    Number(u64),
    /// Two times, in nanoseconds.
    Pair(u64, u64),
    /// A text as it was written.
    Text(String),
}

impl Value {
    /// Returns the number. 0 for a value that is not a number.
    pub fn number(&self) -> u64 {
        match self {
            Value::Number(n) => *n,
            _ => 0,
        }
    }
}

/// The form of a key's values: which are allowed, and how they are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// 0 or 1.
    Flag,
    /// One of these names; the value is its index.
    Choice(&'static [&'static str]),
    /// A whole number.
    Number {
        /// The least.
        min: u64,
        /// The most.
        max: u64,
        /// The things that are counted, for people; may be empty.
        unit: &'static str,
    },
    /// Bytes, with `K`, `M`, `G` or `T`: a multiple of 512. The value is in sectors of 512 bytes.
    Size {
        /// The least, in sectors.
        min: u64,
        /// The most, in sectors.
        max: u64,
    },
    /// The bytes of a block: a power of two, from 512 on, with `K` or `M`. The value is in sectors of 512 bytes.
    Block {
        /// The most, in sectors.
        max: u64,
    },
    /// A time with its unit, or 0. The value is in nanoseconds.
    Time {
        /// The shortest, in nanoseconds.
        min: u64,
        /// The longest, in nanoseconds.
        max: u64,
    },
    /// A number of units of time, or a time with its unit. The value is in nanoseconds.
    Span {
        /// The unit of a plain number: `us` or `ms`.
        unit: &'static str,
        /// The shortest, in nanoseconds.
        min: u64,
        /// The longest, in nanoseconds.
        max: u64,
    },
    /// Two spans in milliseconds with a slash between them, or 0 for none.
    Balance {
        /// The longest of each, in nanoseconds.
        max: u64,
    },
    /// A rate as makers of drives write it, `246MB/s`. The value is in bytes a second.
    Rate,
    /// A fraction between 0 and 1, with up to six decimal places. The value is in millionths.
    Fraction,
    /// Any text, which these words describe.
    Text(&'static str),
}

/// The slowest and the fastest rate, in bytes a second.
const RATES: (u64, u64) = (1_000, 100_000_000_000);

/// Nanoseconds in one unit of [`Form::Span`].
fn nanos_of(unit: &str) -> u64 {
    if unit == "us" { US } else { MS }
}

impl Form {
    /// Reads a value. `None` if the text does not have this form, or the value is out of bounds.
    pub fn read(&self, text: &str) -> Option<Value> {
        let value = match *self {
            Form::Flag | Form::Number { .. } => Value::Number(plain(text)?),
            Form::Choice(names) => Value::Number(names.iter().position(|n| *n == text)? as u64),
            Form::Size { .. } | Form::Block { .. } => {
                let (bytes, unit) = (parse_size(text)?, u64::from(SECTOR_SIZE));
                Value::Number(bytes.is_multiple_of(unit).then_some(bytes / unit)?)
            }
            Form::Time { .. } => Value::Number(parse_time(text)?),
            Form::Span { unit, .. } => Value::Number(read_span(text, unit)?),
            Form::Balance { .. } if text == "0" => Value::Number(0),
            Form::Balance { .. } => {
                let (first, second) = text.split_once('/')?;
                Value::Pair(read_span(first, "ms")?, read_span(second, "ms")?)
            }
            Form::Rate => Value::Number(parse_rate(text)?),
            Form::Fraction => Value::Number(u64::from(parse_fraction(text)?)),
            Form::Text(_) => Value::Text(text.to_owned()),
        };
        self.has(&value).then_some(value)
    }

    /// Returns whether a value is within the bounds.
    pub fn has(&self, value: &Value) -> bool {
        let n = match (self, value) {
            (Form::Balance { max }, Value::Pair(a, b)) => return a.max(b) <= max,
            (Form::Text(_), Value::Text(_)) => return true,
            (_, Value::Number(n)) => *n,
            _ => return false,
        };
        let (min, max) = self.bounds();
        let is_whole = !matches!(self, Form::Block { .. }) || n.is_power_of_two();
        is_whole && (min..=max).contains(&n)
    }

    /// Returns the least and the most number.
    fn bounds(&self) -> (u64, u64) {
        match *self {
            Form::Flag => (0, 1),
            Form::Choice(names) => (0, (names.len() as u64).saturating_sub(1)),
            Form::Number { min, max, .. }
            | Form::Size { min, max }
            | Form::Time { min, max }
            | Form::Span { min, max, .. } => (min, max),
            Form::Block { max } => (1, max),
            Form::Rate => RATES,
            Form::Fraction => (1, 999_999),
            Form::Balance { .. } => (0, 0),
            Form::Text(_) => (1, 0),
        }
    }

    /// Returns the text of a value, as [`read`](Form::read) accepts it.
    pub fn show(&self, value: &Value) -> String {
        let n = match value {
            Value::Text(text) => return text.clone(),
            Value::Pair(a, b) => return format!("{}/{}", show_span(*a, "ms"), show_span(*b, "ms")),
            Value::Number(n) => *n,
        };
        match *self {
            Form::Choice(names) => names.get(n as usize).copied().unwrap_or_default().to_owned(),
            Form::Size { .. } | Form::Block { .. } => {
                Bytes(n.saturating_mul(u64::from(SECTOR_SIZE))).to_string()
            }
            Form::Time { .. } => Time(Nanos(n)).to_string(),
            Form::Span { unit, .. } => show_span(n, unit),
            Form::Rate => {
                let units = [(1_000_000_000, "G"), (1_000_000, "M"), (1_000, "k")];
                let fits = units.iter().find(|(u, _)| n.is_multiple_of(*u));
                fits.map_or(format!("{n}B/s"), |(u, unit)| format!("{}{unit}B/s", n / u))
            }
            Form::Fraction => {
                let text = format!("{}.{:06}", n / 1_000_000, n % 1_000_000);
                text.trim_end_matches('0').to_owned()
            }
            _ => n.to_string(),
        }
    }

    /// Returns the unit of the shown value, as in `us` or `zones`. Empty if there is none, or if the shown value
    /// contains it.
    pub fn unit(&self) -> &'static str {
        match *self {
            Form::Number { unit, .. } | Form::Span { unit, .. } => unit,
            Form::Balance { .. } => "ms",
            _ => "",
        }
    }

    /// Returns the range in a few words, for tables: `1..4096 tags`.
    pub fn range(&self) -> String {
        let shown = |n: u64| self.show(&Value::Number(n));
        let (min, max) = self.bounds();
        match *self {
            Form::Flag => "0 or 1".to_owned(),
            Form::Choice(names) => names.join(", "),
            Form::Number { min, max, unit } if max >= u64::from(u32::MAX) => {
                format!("{min} or more {unit}")
            }
            Form::Number { unit: "", .. } => format!("{min}..{max}"),
            Form::Number { unit, .. } => format!("{min}..{max} {unit}"),
            Form::Size { max: u64::MAX, .. } => format!("{} or more", shown(min)),
            // The limit of a size may be one sector less than a round number.
            Form::Size { max, .. } if (max + 1).is_power_of_two() => {
                format!("{} to below {}", shown(min), shown(max + 1))
            }
            Form::Time { min: 0, max: u64::MAX } => "0 or a time".to_owned(),
            Form::Size { .. } | Form::Block { .. } | Form::Time { .. } | Form::Rate => {
                format!("{}..{}", shown(min), shown(max))
            }
            Form::Span { unit, min: 1, max } => {
                format!("above 0, up to {} {unit}", show_span(max, unit))
            }
            Form::Span { unit, min, max } => {
                format!("{}..{} {unit}", show_span(min, unit), show_span(max, unit))
            }
            Form::Balance { .. } => "0 or WRITES/READS in ms".to_owned(),
            Form::Fraction => "between 0 and 1".to_owned(),
            Form::Text(what) => what.to_owned(),
        }
        .trim_end()
        .to_owned()
    }

    /// Returns the allowed values as the end of a sentence: `zones is a whole number from 1 to 4096`.
    pub fn allowed(&self) -> String {
        let shown = |n: u64| self.show(&Value::Number(n));
        let (min, max) = self.bounds();
        match *self {
            Form::Flag => "0 or 1".to_owned(),
            Form::Choice(names) => format!("one of {}", names.join(", ")),
            Form::Number { .. } => format!("a whole number from {min} to {max}"),
            Form::Size { .. } => format!(
                "a multiple of {SECTOR_SIZE} bytes {}, such as 4096, 128K or 64M",
                match (min, max) {
                    (0 | 1, u64::MAX) => "below 2^64".to_owned(),
                    (0, _) => format!("up to {}", shown(max)),
                    _ => format!("from {} to {}", shown(min), shown(max)),
                }
            ),
            Form::Block { .. } => {
                format!("a power of two from {} to {}, such as 4096 or 64K", shown(min), shown(max))
            }
            Form::Time { min: 0, max: u64::MAX } => {
                "a time, such as 500ns, 80us, 1ms or 2s".to_owned()
            }
            Form::Time { .. } => {
                format!("a time from {} to {}, such as 80us or 1ms", shown(min), shown(max))
            }
            Form::Span { unit, min: 1, max } => format!(
                "a time above 0, such as 500ms or 30s, or a number of {unit} up to {}; leave it out for none",
                show_span(max, unit)
            ),
            Form::Span { unit, min, max } => format!(
                "a number of {unit} from {} to {}, or a time such as 300us",
                show_span(min, unit),
                show_span(max, unit)
            ),
            Form::Balance { max } => format!(
                "0 for none, or two numbers of ms up to {}: 100/50 gives writes 100 ms, then reads 50 ms",
                max / MS
            ),
            Form::Rate => "a rate from 1kB/s to 100GB/s, such as 246MB/s".to_owned(),
            Form::Fraction => "a fraction between 0 and 1, such as 0.55".to_owned(),
            Form::Text(what) => what.to_owned(),
        }
    }

    /// Returns texts at the bounds, and texts just beyond them, for tests of every place that reads values.
    pub fn edges(&self) -> Edges {
        let (min, max) = self.bounds();
        let mut good = vec![self.show(&Value::Number(min)), self.show(&Value::Number(max))];
        let mut bad = vec![String::from("x"), String::from("-1"), String::from("+1")];
        match *self {
            Form::Choice(names) => {
                good = names.iter().map(|n| (*n).to_owned()).collect();
            }
            Form::Balance { max } => {
                good.push(format!("{0}/{0}", max / MS));
                bad.extend(["1".to_owned(), format!("{}/0", max / MS + 1)]);
            }
            Form::Fraction => bad.extend(["0".to_owned(), "1".to_owned()]),
            Form::Rate => bad.extend(["999B/s".to_owned(), "100000000001B/s".to_owned()]),
            Form::Text(_) => return Edges { good: vec!["a".to_owned()], bad: Vec::new() },
            _ => {
                let beyond = [min.checked_sub(1), max.checked_add(1)];
                let beyond = beyond.into_iter().flatten();
                bad.extend(beyond.map(|n| self.show(&Value::Number(n))));
            }
        }
        if let Form::Block { .. } = self {
            bad.extend(["513".to_owned(), "1536".to_owned()]);
        }
        if let Form::Size { .. } = self {
            bad.push("513".to_owned());
            // Above 2^64 bytes.
            bad.push("16777216T".to_owned());
            if max == u64::MAX {
                // More sectors than bytes fit into 64 bits.
                good.truncate(1);
            }
        }
        Edges { good, bad }
    }
}

/// Texts at the bounds of a form, and just beyond them: [`Form::edges`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edges {
    /// Texts that the form reads.
    pub good: Vec<String>,
    /// Texts that the form refuses.
    pub bad: Vec<String>,
}

/// Reads nanoseconds from a number of units, or from a time with its own unit.
fn read_span(text: &str, unit: &str) -> Option<u64> {
    match plain(text) {
        Some(n) => n.checked_mul(nanos_of(unit)),
        None => parse_time(text),
    }
}

/// Shows a time in `unit`, or with a unit of its own if it is not a whole number of these.
fn show_span(nanos: u64, unit: &str) -> String {
    let each = nanos_of(unit);
    if nanos.is_multiple_of(each) {
        return (nanos / each).to_string();
    }
    Time(Nanos(nanos)).to_string()
}

#[cfg(test)]
mod tests {
    use super::number::TIMES;
    use super::*;
    use proptest::prelude::*;

    const FORMS: [Form; 17] = [
        Form::Flag,
        Form::Choice(&["plug", "none"]),
        Form::Number { min: 1, max: 4096, unit: "tags" },
        Form::Number { min: 0, max: u64::MAX, unit: "" },
        Form::Size { min: 0, max: 8 },
        Form::Size { min: 1, max: 1 << 32 },
        Form::Size { min: 1, max: u64::MAX },
        Form::Block { max: 1 << 17 },
        Form::Time { min: 0, max: 1_000_000_000 },
        Form::Time { min: 0, max: u64::MAX },
        Form::Span { unit: "us", min: 0, max: 1000 * MS },
        Form::Span { unit: "ms", min: 1, max: 1000 * MS },
        Form::Balance { max: 86_400_000 * MS },
        Form::Rate,
        Form::Fraction,
        Form::Text("a path"),
        Form::Number { min: 0, max: 7, unit: "" },
    ];

    /// The test fails if a bound of a form is off by one in either direction.
    #[test]
    fn a_form_takes_its_bounds_and_nothing_beyond() {
        for form in FORMS {
            let Edges { good, bad } = form.edges();
            assert!(!good.is_empty());
            for text in good {
                let value = form.read(&text).unwrap_or_else(|| panic!("{form:?} takes {text}"));
                assert_eq!(form.read(&form.show(&value)), Some(value), "{form:?}: {text}");
            }
            for text in bad {
                assert_eq!(form.read(&text), None, "{form:?} refuses {text}");
            }
            assert!(!form.range().is_empty() && !form.allowed().is_empty());
        }
    }

    #[test]
    fn a_span_is_a_number_of_its_unit_or_a_time() {
        let us = Form::Span { unit: "us", min: 0, max: 1000 * MS };
        for (text, n) in [("300", 300 * US), ("300us", 300 * US), ("1s", 1000 * MS), ("7ns", 7)] {
            assert_eq!(us.read(text), Some(Value::Number(n)), "{text}");
        }
        assert_eq!(us.show(&Value::Number(300 * US)), "300");
        assert_eq!(us.show(&Value::Number(1500)), "1500ns");
        assert_eq!(us.range(), "0..1000000 us");
        let deadline = Form::Span { unit: "ms", min: 1, max: 86_400_000 * MS };
        assert_eq!(deadline.read("0"), None);
        assert_eq!(deadline.read("30s"), deadline.read("30000"));
    }

    #[test]
    fn a_balance_is_two_times_or_none() {
        let form = Form::Balance { max: 1000 * MS };
        assert_eq!(form.read("100/50"), Some(Value::Pair(100 * MS, 50 * MS)));
        assert_eq!(form.show(&Value::Pair(100 * MS, 50 * MS)), "100/50");
        for text in ["", "1", "/", "1/", "1001/0", "0/1001", "a/b", "1/2/3"] {
            assert_eq!(form.read(text), None, "{text}");
        }
    }

    #[test]
    fn sizes_and_times_are_read_with_their_units() {
        for (text, n) in [("0", 0), ("512", 512), ("4k", 4096), ("64M", 64 << 20), ("2T", 2 << 40)]
        {
            assert_eq!(parse_size(text), Some(n), "{text}");
        }
        for (text, n) in [("1TiB", 1 << 40), ("64KiB", 64 << 10), ("64kiB", 64 << 10)] {
            assert_eq!(parse_size(text), Some(n), "{text}");
        }
        for text in ["", "K", "+1", "1.5M", "16777216T", "1KB", " 1", "1_0", "1iB", "iB", "1KiBiB"]
        {
            assert_eq!(parse_size(text), None, "{text}");
        }
        for (text, n) in [
            ("0", 0),
            ("7ns", 7),
            ("80us", 80_000),
            ("1ms", 1_000_000),
            ("0s", 0),
            ("1m", 60_000_000_000),
            ("2h", 7_200_000_000_000),
        ] {
            assert_eq!(parse_time(text), Some(n), "{text}");
        }
        for text in ["", "1", "ms", "m", "1min", "9999999h", "-1s", "99999999999999s"] {
            assert_eq!(parse_time(text), None, "{text}");
        }
    }

    #[test]
    fn rates_and_fractions_are_read() {
        for (text, n) in [("246MB/s", 246_000_000), ("1GB/s", 1_000_000_000), ("2000B/s", 2000)] {
            assert_eq!(parse_rate(text), Some(n), "{text}");
        }
        for text in ["", "B/s", "MB/s", "246", "246M", "1.5GB/s", "+1MB/s"] {
            assert_eq!(parse_rate(text), None, "{text}");
        }
        for (text, n) in [("0.59", 590_000), ("0.1", 100_000), ("0", 0), ("0.000001", 1)] {
            assert_eq!(parse_fraction(text), Some(n), "{text}");
        }
        for text in ["", ".5", "0.1234567", "-0.5", "0,5", "10"] {
            assert_eq!(parse_fraction(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_time_is_read_as_it_is_shown(n: u64, scale in 0usize..4) {
            let n = n.wrapping_mul(TIMES[scale].1);
            prop_assert_eq!(parse_time(&Time(Nanos(n)).to_string()), Some(n));
        }

        #[test]
        fn a_size_is_read_as_it_is_shown(n: u64, shift in 0u32..50) {
            let n = n << shift;
            prop_assert_eq!(parse_size(&Bytes(n).to_string()), Some(n));
        }

        #[test]
        fn any_text_is_read_without_a_panic(text in "\\PC*", short in "[0-9a-zA-Z/.]{0,12}") {
            for form in FORMS {
                for text in [&text, &short] {
                    let shown = form.read(text).map(|v| form.show(&v));
                    prop_assert_eq!(shown.as_ref().map(|s| form.read(s).is_some()), shown.as_ref().map(|_| true));
                }
            }
        }
    }
}
