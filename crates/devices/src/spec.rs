//! Specifications: how a device is written as text, the same in every program.
//!
//! `mem,zones=64,zone-size=64M,latency=1ms` is a kind, then options. There is no colon in one, because fio splits
//! file names there. This room owns the grammar and the forms of values; which keys exist is for those who take
//! them. It opens nothing.
//!
//! Several rooms read one [`Spec`], each taking the keys that are its own; what is left at the end is a mistake:
//!
//! ```
//! use zoneplug_devices::emu::EmuConfig;
//! use zoneplug_devices::spec::Spec;
//! let mut spec = Spec::parse("mem,zones=64,zone-size=64M,tags=32,latency=1ms").unwrap();
//! let tags = spec.take_number("tags", 1..=4096).unwrap();
//! let disk = EmuConfig::from_spec(&mut spec).unwrap();
//! spec.finish().unwrap();
//! assert_eq!((tags, disk.latency.0), (Some(32), 1_000_000));
//! ```

use std::fmt;
use std::ops::RangeInclusive;
use zoneplug_core::unit::{Bytes, Nanos, SECTOR_SIZE};
use zoneplug_core::{Error, ErrorKind};

/// Units of sizes: powers of 1024.
const SIZES: [(&str, u64); 4] = [("K", 1 << 10), ("M", 1 << 20), ("G", 1 << 30), ("T", 1 << 40)];
/// Units of times, in nanoseconds; a longer name before one that it ends with.
const TIMES: [(&str, u64); 4] = [("ns", 1), ("us", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000)];
/// Units of times that are read and not shown.
const LONG_TIMES: [(&str, u64); 2] = [("m", 60_000_000_000), ("h", 3_600_000_000_000)];

/// A specification: a kind and options. Remembers which keys were asked for, so that it can name them.
#[derive(Debug, Clone)]
pub struct Spec {
    kind: String,
    /// Key and value, in the order given; the value is gone once it was taken.
    options: Vec<(String, Option<String>)>,
    /// Keys that somebody asked for.
    known: Vec<&'static str>,
}

impl Spec {
    /// Reads `kind,key=value,key=value`.
    pub fn parse(text: &str) -> Result<Spec, Error> {
        let mut parts = text.split(',');
        let kind = parts.next().unwrap_or_default();
        if kind.is_empty() {
            return Err(Error::invalid(format!("'{text}' names no kind of device"))
                .hint("a specification starts with a kind, as in mem,zones=64"));
        }
        if kind.contains('=') {
            return Err(Error::invalid(format!("'{kind}' is an option, not a kind of device"))
                .hint("a specification starts with a kind, as in mem,zones=64"));
        }
        let mut spec = Spec { kind: kind.to_owned(), options: Vec::new(), known: Vec::new() };
        for part in parts {
            let Some((key, value)) = part.split_once('=') else {
                return Err(Error::invalid(format!("'{part}' is not an option"))
                    .hint("options are written key=value and separated by single commas"));
            };
            if key.trim() != key || value.trim() != value {
                return Err(Error::invalid(format!("there is a blank in '{text}'")).hint(format!(
                    "options are separated by commas alone: '{}'",
                    parts_without_blanks(text)
                )));
            }
            if key.is_empty() || value.is_empty() {
                return Err(Error::invalid(format!("the option '{part}' has an empty side"))
                    .hint("options are written key=value; leave an option out for its default"));
            }
            if spec.options.iter().any(|(k, _)| k == key) {
                return Err(Error::invalid(format!("the option {key} is given twice"))
                    .hint(format!("give {key} once")));
            }
            spec.options.push((key.to_owned(), Some(value.to_owned())));
        }
        Ok(spec)
    }

    /// Gives `key` a value, unless it was given one or has been taken: what a file of defaults says.
    pub(crate) fn add_default(&mut self, key: &str, value: &str) {
        if !self.options.iter().any(|(k, _)| k == key) {
            self.options.push((key.to_owned(), Some(value.to_owned())));
        }
    }

    /// The kind: what is before the first comma.
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// The error for a kind that is none of `kinds`.
    pub fn unknown_kind(&self, kinds: &[&str]) -> Error {
        let hint = match nearest(&self.kind, kinds) {
            Some(k) => format!("did you mean {k}? There are: {}", kinds.join(", ")),
            None => format!("there are: {}", kinds.join(", ")),
        };
        Error::new(ErrorKind::NotFound, format!("no kind of device is called '{}'", self.kind))
            .hint(hint)
    }

    /// Takes the text of `key`.
    pub fn take_text(&mut self, key: &'static str) -> Option<String> {
        if !self.known.contains(&key) {
            self.known.push(key);
        }
        self.options.iter_mut().find(|(k, _)| k == key).and_then(|(_, v)| v.take())
    }

    /// Takes a whole number inside `range`.
    pub fn take_number(
        &mut self,
        key: &'static str,
        range: RangeInclusive<u64>,
    ) -> Result<Option<u64>, Error> {
        self.take_with(
            key,
            |v| plain(v).filter(|n| range.contains(n)),
            || format!("a whole number from {} to {}", range.start(), range.end()),
        )
    }

    /// Takes a whole number below 2^32.
    pub fn take_u32(&mut self, key: &'static str) -> Result<Option<u32>, Error> {
        Ok(self.take_number(key, 0..=u64::from(u32::MAX))?.map(|n| n as u32))
    }

    /// Takes a flag: 0 or 1.
    pub fn take_flag(&mut self, key: &'static str) -> Result<Option<bool>, Error> {
        Ok(self.take_number(key, 0..=1)?.map(|n| n == 1))
    }

    /// Takes a size in bytes, with `K`, `M`, `G` or `T` for powers of 1024.
    pub fn take_size(&mut self, key: &'static str) -> Result<Option<Bytes>, Error> {
        self.take_with(
            key,
            |v| parse_size(v).map(Bytes),
            || "a size below 2^64 bytes, such as 4096, 128K, 64M, 1G or 2T".to_owned(),
        )
    }

    /// Takes a size that is a multiple of 512 bytes and at most `max_sectors` sectors; returns sectors.
    pub fn take_sectors(
        &mut self,
        key: &'static str,
        max_sectors: u64,
    ) -> Result<Option<u64>, Error> {
        let unit = u64::from(SECTOR_SIZE);
        let sectors = |v: &str| {
            parse_size(v).filter(|n| n % unit == 0 && n / unit <= max_sectors).map(|n| n / unit)
        };
        self.take_with(key, sectors, || {
            let max = Bytes(max_sectors.saturating_mul(unit));
            format!("a multiple of {unit} bytes up to {max}, such as 4096, 128K or 64M")
        })
    }

    /// Takes a time: `ns`, `us`, `ms` or `s` after a number, or 0.
    pub fn take_time(&mut self, key: &'static str) -> Result<Option<Nanos>, Error> {
        self.take_with(
            key,
            |v| parse_time(v).map(Nanos),
            || "a time, such as 500ns, 80us, 1ms or 2s".to_owned(),
        )
    }

    /// Takes one of `names`; returns its index.
    pub fn take_choice(
        &mut self,
        key: &'static str,
        names: &[&str],
    ) -> Result<Option<usize>, Error> {
        self.take_with(
            key,
            |v| names.iter().position(|n| *n == v),
            || format!("one of {}", names.join(", ")),
        )
    }

    /// Takes a value of a form that `read` understands and `allowed` describes.
    pub fn take_with<T>(
        &mut self,
        key: &'static str,
        read: impl FnOnce(&str) -> Option<T>,
        allowed: impl FnOnce() -> String,
    ) -> Result<Option<T>, Error> {
        let Some(text) = self.take_text(key) else { return Ok(None) };
        match read(&text) {
            Some(value) => Ok(Some(value)),
            None => Err(Error::invalid(format!("{key}={text} is not possible"))
                .hint(format!("{key} is {}", allowed()))),
        }
    }

    /// Ends the reading: an option that nobody took is an error.
    pub fn finish(&self) -> Result<(), Error> {
        let Some((key, _)) = self.options.iter().find(|(_, v)| v.is_some()) else {
            return Ok(());
        };
        let mut known = self.known.clone();
        known.sort_unstable();
        let all = format!("{} has: {}", self.kind, known.join(", "));
        let hint = match nearest(key, &known) {
            Some(k) => format!("did you mean {k}? {all}"),
            None => all,
        };
        Err(Error::invalid(format!("{} has no option {key}", self.kind)).hint(hint))
    }
}

/// A specification without blanks at the ends of its parts.
fn parts_without_blanks(text: &str) -> String {
    let part = |p: &str| match p.split_once('=') {
        Some((key, value)) => format!("{}={}", key.trim(), value.trim()),
        None => p.trim().to_owned(),
    };
    text.split(',').map(part).collect::<Vec<_>>().join(",")
}

/// A whole number without sign.
fn plain(text: &str) -> Option<u64> {
    // `parse` takes a plus sign.
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

/// A number of bytes, as in `4096`, `128K`, `64M` or `1TiB`. `None` if it is none, or above 2^64.
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

/// A number of nanoseconds, as in `500ns`, `80us`, `1ms`, `10s`, `5m` (minutes) or `1h`. `None` if it is none, or has no unit and is not 0.
pub fn parse_time(text: &str) -> Option<u64> {
    for (unit, n) in TIMES.into_iter().chain(LONG_TIMES) {
        if let Some(number) = text.strip_suffix(unit) {
            return plain(number)?.checked_mul(n);
        }
    }
    (text == "0").then_some(0)
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

/// The name that `text` was probably meant to be.
pub fn nearest<'a>(text: &str, names: &[&'a str]) -> Option<&'a str> {
    let limit = 1 + text.chars().count() / 4;
    names
        .iter()
        .map(|n| (distance(text, n), *n))
        .filter(|(d, n)| *d <= limit || n.starts_with(text) || text.starts_with(n))
        .min()
        .map(|(_, n)| n)
}

/// How many characters have to be put in, taken out or changed (Levenshtein). Long texts are all far away.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().take(64).collect(), b.chars().collect());
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.iter().enumerate() {
        let mut diagonal = i;
        row[0] = i + 1;
        for (j, cb) in b.iter().enumerate() {
            let change = diagonal + usize::from(ca != cb);
            diagonal = row[j + 1];
            row[j + 1] = change.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn error(r: Result<impl fmt::Debug, Error>) -> String {
        let e = r.expect_err("an error");
        format!("{} | {}", e.what(), e.what_to_try().unwrap_or("no hint"))
    }

    #[test]
    fn what_is_no_specification_says_why() {
        for (text, what) in [
            ("", "'' names no kind of device"),
            (",zones=4", "',zones=4' names no kind"),
            ("zones=4", "'zones=4' is an option"),
            ("mem,", "'' is not an option"),
            ("mem,,zones=4", "'' is not an option"),
            ("mem,zones", "'zones' is not an option"),
            ("mem,zones=", "'zones=' has an empty side"),
            ("mem,=4", "'=4' has an empty side"),
            ("mem,zones=4,conv=1,zones=4", "zones is given twice"),
            (
                "mem, zones=4",
                "a blank in 'mem, zones=4' | options are separated by commas alone: 'mem,zones=4'",
            ),
            ("mem,zones=4 ,conv=1", "'mem,zones=4,conv=1'"),
            ("mem,zones =4", "'mem,zones=4'"),
        ] {
            let e = error(Spec::parse(text));
            assert!(e.contains(what), "{text}: {e}");
        }
    }

    #[test]
    fn a_value_that_is_not_possible_names_its_key_and_what_is_allowed() {
        let mut s =
            Spec::parse("mem,a=-1,b=5000,c=2,d=3X,e=513,f=10,g=99999999999999999999,h=no").unwrap();
        assert_eq!(
            error(s.take_u32("a")),
            "a=-1 is not possible | a is a whole number from 0 to 4294967295"
        );
        assert!(error(s.take_number("b", 1..=4096)).contains("from 1 to 4096"));
        assert!(error(s.take_flag("c")).contains("from 0 to 1"));
        assert!(error(s.take_size("d")).contains("d=3X is not possible | d is a size"));
        assert!(error(s.take_sectors("e", 8)).contains("a multiple of 512 bytes up to 4K"));
        assert!(error(s.take_time("f")).contains("f is a time"));
        assert!(error(s.take_u32("g")).contains("g=99999999999999999999"));
        assert!(error(s.take_choice("h", &["plug", "none"])).contains("one of plug, none"));
        assert!(s.take_text("i").is_none());
        s.finish().unwrap();
    }

    #[test]
    fn an_option_that_nobody_takes_is_named_with_the_nearest_that_exists() {
        let mut s = Spec::parse("mem,zone-szie=1M").unwrap();
        s.take_size("zone-size").unwrap();
        s.take_u32("zones").unwrap();
        let e = error(s.finish());
        assert_eq!(
            e,
            "mem has no option zone-szie | did you mean zone-size? mem has: zone-size, zones"
        );
        let e = error(Err::<(), _>(Spec::parse("nul").unwrap().unknown_kind(&["mem", "null"])));
        assert!(e.contains("did you mean null?"), "{e}");
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

    proptest! {
        #[test]
        fn any_text_is_read_without_a_panic(text in "\\PC*", more in "(,[a-z]{0,3}=?[0-9a-zMK]{0,3}){0,4}") {
            for text in [&text, &format!("mem{more}")] {
                if let Ok(mut s) = Spec::parse(text) {
                    for key in ["a", "b", "ab"] {
                        let _ = s.clone().take_u32(key);
                        let _ = s.clone().take_size(key);
                        let _ = s.clone().take_time(key);
                        let _ = s.clone().take_choice(key, &["x"]);
                        let _ = s.take_sectors(key, u64::MAX);
                    }
                    let _ = s.finish();
                    let _ = s.unknown_kind(&["mem", "null"]);
                }
            }
        }

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
    }
}
