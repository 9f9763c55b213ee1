//! Specifications: the text that describes a device, the same in every program.
//!
//! `mem,zones=64,zone-size=64M,latency=1ms` is a kind followed by options. A specification contains no colon, because
//! fio splits file names there. This file has the grammar, and [`zoneplug_core::form`] the forms of values. Each
//! module that reads a specification has a table of the [`Key`]s that it accepts. Nothing is opened here.
//!
//! A kind or a value may be enclosed in quotation marks, and then has any characters between them: `"a,b.zbd",qd1=1`. Between them, `\"`
//! stands for a quotation mark and `\\` for a backslash. A quoted kind is always the path of a file. A quotation mark elsewhere is an
//! ordinary character.
//!
//! Several modules read one [`Spec`], and each takes its own keys. A key that is left at the end is a mistake:
//!
//! ```
//! use zoneplug_core::disk::TAGS;
//! use zoneplug_devices::emu::EmuConfig;
//! use zoneplug_devices::spec::Spec;
//! let mut spec = Spec::parse("mem,zones=64,zone-size=64M,tags=32,latency=1ms").unwrap();
//! let tags = spec.number(&TAGS).unwrap();
//! let disk = EmuConfig::from_spec(&mut spec).unwrap();
//! spec.finish().unwrap();
//! assert_eq!((tags, disk.latency.0), (Some(32), 1_000_000));
//! ```

mod error;

pub use error::SpecError;

use std::collections::BTreeSet;
use zoneplug_core::Error;
use zoneplug_core::form::{Form, Key, Value};

/// A specification: a kind and options. It remembers which keys were requested, so that errors can name them.
#[derive(Debug, Clone)]
pub struct Spec {
    kind: String,
    /// Whether the kind was written in quotation marks.
    is_quoted: bool,
    /// In the order given.
    options: Vec<Given>,
    /// Names of the keys that were requested.
    known: Vec<&'static str>,
    /// The help page that errors name.
    page: &'static str,
}

/// An option as it was given.
#[derive(Debug, Clone)]
struct Given {
    key: String,
    /// The value; `None` after it was taken.
    value: Option<String>,
    /// For a default from a file, where the file has it: `profile mine, line 3`. `None` for an option of the specification.
    place: Option<String>,
}

impl Spec {
    /// Makes a specification without text, of a kind and options that were parsed before. `is_quoted`: whether the kind is the path of a
    /// file.
    pub fn new(
        kind: &str,
        is_quoted: bool,
        options: impl IntoIterator<Item = (String, String)>,
    ) -> Spec {
        let given = |(key, value)| Given { key, value: Some(value), place: None };
        let options = options.into_iter().map(given).collect();
        Spec { kind: kind.to_owned(), is_quoted, options, known: Vec::new(), page: PAGE }
    }

    /// Parses `kind,key=value,key=value`. Fails on blanks around a key or a value, on a missing kind or value, on an opening quotation
    /// mark without a closing one, and on a key that is given twice.
    pub fn parse(text: &str) -> Result<Spec, Error> {
        let (kind, mut left) = text.split_at(end_of(text, |c| c == ','));
        let name = unquoted(kind, text)?;
        let is_quoted = name.is_some();
        if kind.is_empty() || name.as_ref().is_some_and(String::is_empty) {
            let problem = format!("'{text}' names no kind of device");
            let form = "a specification starts with a kind, as in mem,zones=64";
            return Err(SpecError::syntax(problem, form).into());
        }
        if !is_quoted && kind.contains('=') {
            let problem = format!("'{kind}' is an option, not a kind of device");
            let form = "a specification starts with a kind, as in mem,zones=64; a path with = is quoted, as in \"a=b.zbd\"";
            return Err(SpecError::syntax(problem, form).into());
        }
        let kind = name.unwrap_or_else(|| kind.to_owned());
        let mut spec = Spec::new(&kind, is_quoted, []);
        let mut given = BTreeSet::new();
        while let Some(after) = left.strip_prefix(',') {
            let (part, rest) = after.split_at(end_of_option(after, |c| c == ','));
            left = rest;
            let Some((key, value)) = part.split_once('=') else {
                let form = "options are written key=value and separated by single commas";
                return Err(SpecError::syntax(format!("'{part}' is not an option"), form).into());
            };
            if key.trim() != key || value.trim() != value {
                let form = format!(
                    "options are separated by commas alone: '{}'",
                    parts_without_blanks(text)
                );
                return Err(SpecError::syntax(format!("there is a blank in '{text}'"), form).into());
            }
            let value = unquoted(value, text)?.unwrap_or_else(|| value.to_owned());
            check_option(key, &value)?;
            if !given.insert(key) {
                return Err(SpecError::Twice { key: key.to_owned() }.into());
            }
            spec.options.push(Given { key: key.to_owned(), value: Some(value), place: None });
        }
        Ok(spec)
    }

    /// Adds an option, whose value may have any characters. Fails on a key that no specification can have, on an empty value, and on a
    /// key that was given before.
    ///
    /// ```
    /// use zoneplug_devices::spec::Spec;
    /// let mut spec = Spec::parse("mem,zones=64").unwrap();
    /// spec.add("label", "a,b").unwrap();
    /// assert!(spec.add("zones", "8").is_err());
    /// assert_eq!(spec.options().collect::<Vec<_>>(), [("zones", "64"), ("label", "a,b")]);
    /// ```
    pub fn add(&mut self, key: &str, value: &str) -> Result<(), Error> {
        // In a text, these would end the key, or be a blank around it.
        if key.contains('=') || key.trim() != key {
            let form = "options are written key=value, without blanks around the key";
            return Err(SpecError::syntax(format!("'{key}' is not a key"), form).into());
        }
        check_option(key, value)?;
        if self.options.iter().any(|o| o.key == key) {
            return Err(SpecError::Twice { key: key.to_owned() }.into());
        }
        self.options.push(Given {
            key: key.to_owned(),
            value: Some(value.to_owned()),
            place: None,
        });
        Ok(())
    }

    /// Removes an option, whatever its form. Returns its value; `None` if it is not given.
    pub fn remove(&mut self, key: &str) -> Option<String> {
        let at = self.options.iter().position(|o| o.key == key)?;
        self.options.remove(at).value
    }

    /// Adds an option from a file of defaults, unless the specification has an option `key` that was not taken. Errors name `place`, its
    /// line in the file.
    pub(crate) fn add_default(&mut self, key: &str, value: &str, place: String) {
        if !self.has(key) {
            let (key, value) = (key.to_owned(), Some(value.to_owned()));
            self.options.push(Given { key, value, place: Some(place) });
        }
    }

    /// Fails if an option from a file of defaults was not taken. The hint names the nearest of `keys`, which such a file may have.
    pub(crate) fn finish_defaults(&self, keys: &[&str]) -> Result<(), Error> {
        let mut left = self.options.iter().filter(|o| o.value.is_some());
        let Some((key, place)) = left.find_map(|o| Some((&o.key, o.place.as_ref()?))) else {
            return Ok(());
        };
        let near = nearest(key, keys).map(str::to_owned);
        let known = keys.iter().map(|&k| k.to_owned()).collect();
        Err(SpecError::UnknownDefault { place: place.clone(), key: key.clone(), near, known }
            .into())
    }

    /// Returns the kind: the text before the first comma.
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// Whether the kind was written in quotation marks: the path of a file.
    pub fn is_quoted(&self) -> bool {
        self.is_quoted
    }

    /// The options that were not taken yet, in the order given.
    pub fn options(&self) -> impl Iterator<Item = (&str, &str)> {
        self.options.iter().filter_map(|o| Some((&*o.key, o.value.as_deref()?)))
    }

    /// Makes the error for a kind that is not in `kinds`.
    pub fn unknown_kind(&self, kinds: &[&str]) -> Error {
        let near = nearest(&self.kind, kinds).map(str::to_owned);
        let known = kinds.iter().map(|&k| k.to_owned()).collect();
        SpecError::UnknownKind { kind: self.kind.clone(), near, known }.into()
    }

    /// Sets the help page that errors name, instead of `zoneplug help spec`.
    #[must_use]
    pub fn explained_by(mut self, page: &'static str) -> Spec {
        self.page = page;
        self
    }

    /// Takes the value of `key`, which may be given under its name or an alias. `None` if it is not given. Fails if
    /// the value does not have the key's form.
    pub fn take(&mut self, key: &Key) -> Result<Option<Value>, Error> {
        let names = std::iter::once(&key.name).chain(key.aliases);
        let given: Vec<&'static str> = names.copied().filter(|n| self.has(n)).collect();
        self.known.push(key.name);
        match given[..] {
            [] => Ok(None),
            [name] => self.take_as(name, &key.form),
            [name, other, ..] => {
                Err(SpecError::SameKey { names: [name, other], key: key.name }.into())
            }
        }
    }

    /// Takes the value of a key that is in no table. `None` if it is not given. Fails if the value does not have this
    /// form.
    pub fn take_as(&mut self, name: &'static str, form: &Form) -> Result<Option<Value>, Error> {
        self.known.push(name);
        let option = self.options.iter_mut().find(|o| o.key == name && o.value.is_some());
        let Some((text, place)) = option.and_then(|o| Some((o.value.take()?, &o.place))) else {
            return Ok(None);
        };
        let Some(value) = form.read(&text) else {
            return Err(SpecError::Value {
                key: name.to_owned(),
                value: text,
                allowed: form.allowed(),
                place: place.clone(),
                page: Some(self.page),
            }
            .into());
        };
        Ok(Some(value))
    }

    /// Like [`Spec::take`], for a key whose value is a number, in the unit of its form.
    pub fn number(&mut self, key: &Key) -> Result<Option<u64>, Error> {
        Ok(self.take(key)?.map(|v| v.number()))
    }

    /// Like [`Spec::take`], for a flag.
    pub fn flag(&mut self, key: &Key) -> Result<Option<bool>, Error> {
        Ok(self.number(key)?.map(|n| n == 1))
    }

    /// Like [`Spec::take`], for a key whose value is a text.
    pub fn text(&mut self, key: &Key) -> Result<Option<String>, Error> {
        Ok(self.take(key)?.and_then(|v| match v {
            Value::Text(text) => Some(text),
            _ => None,
        }))
    }

    fn has(&self, name: &str) -> bool {
        self.options.iter().any(|o| o.key == name && o.value.is_some())
    }

    /// Returns the names of the keys that were requested, given or not, in order.
    pub fn known(&self) -> Vec<&'static str> {
        let mut known = self.known.clone();
        known.sort_unstable();
        known.dedup();
        known
    }

    /// Ends the reading. Fails if an option was not taken.
    pub fn finish(&self) -> Result<(), Error> {
        let Some(Given { key, .. }) = self.options.iter().find(|o| o.value.is_some()) else {
            return Ok(());
        };
        let near = nearest(key, &self.known()).map(str::to_owned);
        let (kind, key) = (self.kind.clone(), key.clone());
        Err(SpecError::UnknownKey { kind, key, near, page: self.page }.into())
    }
}

/// Checks what holds for each option, wherever it was written.
fn check_option(key: &str, value: &str) -> Result<(), Error> {
    if key.is_empty() || value.is_empty() {
        let form = "options are written key=value; leave an option out for its default";
        let problem = format!("the option '{key}={value}' has an empty side");
        return Err(SpecError::syntax(problem, form).into());
    }
    // A key is printed without quotation marks, so one of these would end it when the text is parsed again.
    if let Some(c) = key.chars().find(|&c| is_special(c)) {
        let problem = format!("the key '{key}' has a '{c}'");
        let form = "a value and a path with , @ % or brackets are quoted, as in \"a,b.zbd\"";
        return Err(SpecError::syntax(problem, form).into());
    }
    Ok(())
}

/// The quotation mark.
const QUOTE: char = '"';

/// Returns whether a character has a meaning in a specification. Text that has it in it is quoted.
pub fn is_special(c: char) -> bool {
    matches!(c, ',' | '@' | '%' | '[' | ']' | QUOTE)
}

/// Returns the place of the first character outside of quotation marks for which `stops` returns true, or the length of the text. The
/// text begins with a kind.
pub fn end_of(text: &str, stops: impl Fn(char) -> bool) -> usize {
    end(text, true, stops)
}

/// Like [`end_of`], for a text that begins with the key of an option.
pub fn end_of_option(text: &str, stops: impl Fn(char) -> bool) -> usize {
    end(text, false, stops)
}

/// Like [`end_of`]. `may_open`: whether a quotation mark at the beginning of the text opens a quotation.
fn end(text: &str, mut may_open: bool, stops: impl Fn(char) -> bool) -> usize {
    let (mut is_quoted, mut is_value) = (false, false);
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' if is_quoted => drop(chars.next()),
            QUOTE if is_quoted => is_quoted = false,
            _ if is_quoted => {}
            QUOTE if may_open => (is_quoted, may_open) = (true, false),
            c if stops(c) => return at,
            c => {
                may_open = c == '=' && !is_value;
                is_value = c != ',' && (is_value || c == '=');
            }
        }
    }
    text.len()
}

/// Returns the text between quotation marks. `None`: the text does not begin with one. Errors quote `whole`, the specification.
fn unquoted(text: &str, whole: &str) -> Result<Option<String>, Error> {
    let Some(inside) = text.strip_prefix(QUOTE) else { return Ok(None) };
    let (mut name, mut chars) = (String::new(), inside.chars());
    loop {
        match chars.next() {
            Some('\\') => match chars.next() {
                Some(c @ ('\\' | QUOTE)) => name.push(c),
                c => name.extend(['\\'].into_iter().chain(c)),
            },
            Some(QUOTE) => break,
            Some(c) => name.push(c),
            None => {
                let problem = format!("a quotation mark without a second one in '{whole}'");
                let form =
                    "\"a,b.zbd\" with one at each end; \\\" for one that is part of the name";
                return Err(SpecError::syntax(problem, form).into());
            }
        }
    }
    match chars.as_str() {
        "" => Ok(Some(name)),
        rest => Err(SpecError::syntax(
            format!("'{rest}' follows a quotation mark in '{whole}'"),
            "a comma, @ or the end behind the second one; \\\" for one that is part of the name",
        )
        .into()),
    }
}

/// Encloses a path or a value in quotation marks, for a specification.
///
/// ```
/// assert_eq!(zoneplug_devices::spec::quoted(r#"5",a"#), r#""5\",a""#);
/// ```
pub fn quoted(text: &str) -> String {
    let mut all = String::from(QUOTE);
    for c in text.chars() {
        all.extend(matches!(c, QUOTE | '\\').then_some('\\'));
        all.push(c);
    }
    all.push(QUOTE);
    all
}

/// The page that explains specifications.
const PAGE: &str = "zoneplug help spec";

/// Removes blanks at the ends of the parts of a specification.
fn parts_without_blanks(text: &str) -> String {
    let part = |p: &str| match p.split_once('=') {
        Some((key, value)) => format!("{}={}", key.trim(), value.trim()),
        None => p.trim().to_owned(),
    };
    text.split(',').map(part).collect::<Vec<_>>().join(",")
}

/// Returns the name that was probably meant by `text`. Only the first 64 characters of a text count.
pub fn nearest<'a>(text: &str, names: &[&'a str]) -> Option<&'a str> {
    let text: String = text.chars().take(64).collect();
    let text = text.as_str();
    let limit = 1 + text.chars().count() / 4;
    names
        .iter()
        .map(|n| (strsim::levenshtein(text, n), *n))
        .filter(|(d, n)| *d <= limit || n.starts_with(text) || text.starts_with(n))
        .min()
        .map(|(_, n)| n)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::fmt;
    use zoneplug_core::form::DefaultValue;

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
            ("mem,z%=4", "the key 'z%' has a '%'"),
            ("mem,z\"=4", "the key 'z\"' has a '\"'"),
            ("mem,zones=", "'zones=' has an empty side"),
            ("mem,=4", "'=4' has an empty side"),
            ("mem,zones=4,conv=1,zones=4", "zones is given twice"),
            (
                "mem, zones=4",
                "a blank in 'mem, zones=4' | options are separated by commas alone: 'mem,zones=4'",
            ),
            ("mem,zones=4 ,conv=1", "'mem,zones=4,conv=1'"),
            ("mem,zones =4", "'mem,zones=4'"),
            ("\"a,b", "a quotation mark without a second one in '\"a,b'"),
            ("mem,key=\"a", "a quotation mark without a second one"),
            ("\"a\"b,c=d", "'b' follows a quotation mark"),
            ("mem,key=\"a\"b", "'b' follows a quotation mark"),
            ("\"\",a=b", "names no kind"),
            ("mem,key=\"\"", "has an empty side"),
        ] {
            let e = error(Spec::parse(text));
            assert!(e.contains(what), "{text}: {e}");
        }
    }

    const fn key(name: &'static str, form: Form) -> Key {
        Key { name, aliases: &[], form, default: DefaultValue::Required, about: "" }
    }

    #[test]
    fn a_value_that_is_not_possible_names_its_key_and_what_is_allowed() {
        let text = "mem,a=-1,b=5000,c=2,d=3X,e=513,f=10,g=99999999999999999999,h=no,i=";
        let whole = Form::Number { min: 0, max: u64::from(u32::MAX), unit: "" };
        let mut s = Spec::parse(&format!("{text}1")).unwrap();
        let mut wrong = |name, form| error(s.take(&key(name, form)));
        assert_eq!(
            wrong("a", whole),
            "a=-1 is not possible | a is a whole number from 0 to 4294967295; see zoneplug help spec"
        );
        let tags = Form::Number { min: 1, max: 4096, unit: "tags" };
        assert!(wrong("b", tags).contains("from 1 to 4096"));
        assert!(wrong("c", Form::Flag).contains("c is 0 or 1;"));
        let size = Form::Size { min: 0, max: u64::MAX };
        assert!(wrong("d", size).contains("d=3X is not possible | d is a multiple of 512"));
        let size = Form::Size { min: 0, max: 8 };
        assert!(wrong("e", size).contains("a multiple of 512 bytes up to 4K"));
        assert!(wrong("f", Form::Time { min: 0, max: u64::MAX }).contains("f is a time"));
        assert!(wrong("g", whole).contains("g=99999999999999999999"));
        assert!(wrong("h", Form::Choice(&["plug", "none"])).contains("one of plug, none"));
        assert_eq!(s.text(&key("i", Form::Text("any"))).unwrap().unwrap(), "1");
        assert_eq!(s.text(&key("j", Form::Text("any"))).unwrap(), None);
        s.finish().unwrap();
        let mut s = Spec::parse("seq,bs=x").unwrap().explained_by("the manual");
        assert!(error(s.take(&key("bs", size))).ends_with("; see the manual"));
    }

    #[test]
    fn a_key_is_taken_under_its_name_or_an_alias_and_once() {
        const DEPTH: Key = Key {
            aliases: &["queue-depth", "qd"],
            ..key("queue_depth", Form::Number { min: 0, max: 9, unit: "" })
        };
        for name in ["queue_depth", "queue-depth", "qd"] {
            let mut s = Spec::parse(&format!("mem,{name}=4")).unwrap();
            assert_eq!(s.number(&DEPTH).unwrap(), Some(4), "{name}");
            s.finish().unwrap();
            let mut s = Spec::parse(&format!("mem,{name}=10")).unwrap();
            assert!(error(s.take(&DEPTH)).starts_with(&format!("{name}=10 is not possible")));
        }
        let mut s = Spec::parse("mem,qd=4,queue_depth=4").unwrap();
        assert!(error(s.take(&DEPTH)).contains("queue_depth and qd are the same option"));
    }

    #[test]
    fn an_option_that_is_not_taken_is_named_with_the_nearest_that_exists() {
        let mut s = Spec::parse("mem,zone-szie=1M").unwrap();
        s.take(&key("zone-size", Form::Size { min: 1, max: 9 })).unwrap();
        s.take(&key("zones", Form::Flag)).unwrap();
        assert_eq!(
            error(s.finish()),
            "mem has no option zone-szie | did you mean zone-size? zoneplug help spec lists the options of mem"
        );
        assert_eq!(s.known(), ["zone-size", "zones"]);
        let e = error(Err::<(), _>(Spec::parse("nul").unwrap().unknown_kind(&["mem", "null"])));
        assert!(e.contains("did you mean null?"), "{e}");
    }

    #[test]
    fn quotation_marks_have_any_text_between() {
        for (text, kind, value) in [
            (r#""a,b@c=d%.zbd",k="x, y""#, "a,b@c=d%.zbd", "x, y"),
            (r#""5\" and \\",k="\\""#, r#"5" and \"#, "\\"),
            (r#"./5"a",k=b"c"#, r#"./5"a""#, r#"b"c"#),
            (r#""a\b",k=a=",b=c"#, "a\\b", r#"a=""#),
        ] {
            let mut s = Spec::parse(text).unwrap();
            assert_eq!((s.kind(), s.is_quoted()), (kind, text.starts_with('"')), "{text}");
            assert_eq!(s.text(&key("k", Form::Text("any"))).unwrap().unwrap(), value, "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_quoted_is_read_as_it_was(kind in "\\PC+", value in "\\PC+") {
            let text = format!("{},k={}", quoted(&kind), quoted(&value));
            prop_assert_eq!(end_of(&text, |c| c == ','), quoted(&kind).len());
            let s = Spec::parse(&text).unwrap();
            prop_assert_eq!(s.kind(), kind);
            prop_assert_eq!(s.options().collect::<Vec<_>>(), [("k", &*value)]);
        }

        #[test]
        fn any_text_is_read_without_a_panic(text in "\\PC*", more in "(,[a-z]{0,3}=?[0-9a-zMK]{0,3}){0,4}") {
            for text in [&text, &format!("mem{more}")] {
                if let Ok(s) = Spec::parse(text) {
                    for name in ["a", "b", "ab"] {
                        for form in [
                            Form::Number { min: 0, max: u64::MAX, unit: "" },
                            Form::Size { min: 0, max: u64::MAX },
                            Form::Time { min: 0, max: u64::MAX },
                            Form::Span { unit: "us", min: 0, max: u64::MAX },
                            Form::Balance { max: u64::MAX },
                            Form::Choice(&["x"]),
                            Form::Rate,
                            Form::Fraction,
                        ] {
                            let _ = s.clone().take_as(name, &form);
                        }
                    }
                    let _ = s.finish();
                    let _ = s.unknown_kind(&["mem", "null"]);
                }
            }
        }

    }
}
