//! The file of a server (`--config`): TOML, read key by key, so that an error names the line and the column of the
//! wrong key or value. The valid keys come from the parser of the command line (settings.rs) and from the tables of
//! specifications.

use crate::failure::{self, Attempt, Failure, FailureParts};
use clap::error::{ContextKind, ContextValue};
use clap::{Arg, ArgAction, Command};
use std::collections::HashMap;
use std::fmt;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::num::{IntErrorKind, ParseIntError};
use std::path::Path;
use std::rc::Rc;
use toml::Spanned;
use toml::de::{DeTable, DeValue};
use zoneplug_core::form::Key;
use zoneplug_core::{Hint, plain};
use zoneplug_devices::spec::nearest;
use zoneplug_host::{Specification, read_text};

/// Flags that are not keys of the file: they ask for an action now, or name disks, which are `[[disk]]` in a file.
pub(super) const FLAGS_ONLY: [&str; 10] = [
    "ublk",
    "moved",
    "forget-hosts",
    "takeover",
    "background",
    "config",
    "check-config",
    "json",
    "remove",
    "udev-rule",
];
/// Longest file. A large sensible one has a few KiB.
const MAX_FILE: u64 = 1 << 20;
/// Keys of a disk beside those of its block device and of its specification.
pub(super) const DISK_KEYS: [&str; 5] = ["spec", "device", "ublk", "nvme-tcp", "iscsi"];

/// A place in the file: `zoneplug.toml:3:8`. Every key has one and few are shown, so the line is counted only then.
#[derive(Debug, Clone)]
pub(super) struct ConfigPlace {
    file: Rc<Source>,
    /// Offset from the start of the file in bytes.
    at: usize,
}

impl ConfigPlace {
    fn before(&self) -> &str {
        self.file.text.get(..self.at).unwrap_or(&self.file.text)
    }

    fn line(&self) -> usize {
        self.before().matches('\n').count() + 1
    }

    fn column(&self) -> usize {
        self.before().rsplit('\n').next().unwrap_or_default().chars().count() + 1
    }
}

impl fmt::Display for ConfigPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file.name, self.line(), self.column())
    }
}

/// Adds the place of its cause in the file to a failure.
pub(super) trait AtConfigPlace {
    /// Puts the place in front of the message.
    fn at(self, place: &ConfigPlace) -> Self;
}

impl AtConfigPlace for Failure {
    fn at(self, place: &ConfigPlace) -> Failure {
        self.before(&format!("{place}: "))
    }
}

/// The value of a key, as the words of a flag.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Given {
    Switch(bool),
    Values(Vec<String>),
}

/// A key with its value.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) given: Given,
    pub(super) place: ConfigPlace,
}

/// The settings of a `[[disk]]`.
#[derive(Debug)]
pub(super) struct DiskTable {
    pub(super) place: ConfigPlace,
    pub(super) spec: Specification,
    /// Whether the disk is served as a block device, over NVMe/TCP and over iSCSI.
    pub(super) ublk: bool,
    pub(super) network: bool,
    pub(super) iscsi: bool,
    /// Keys of the block device.
    pub(super) keys: Vec<Entry>,
}

/// A parsed file. It is valid as far as this shows without opening disks.
#[derive(Debug, Default)]
pub(super) struct ConfigFile {
    pub(super) keys: Vec<Entry>,
    pub(super) disks: Vec<DiskTable>,
}

/// A key and its value, with their places.
type Pair<'a, 'i> = (&'a Spanned<std::borrow::Cow<'i, str>>, &'a Spanned<DeValue<'i>>);

/// The text and the name of the file.
#[derive(Debug)]
struct Source {
    name: String,
    text: String,
}

/// Reads the keys of a file.
struct Reader(Rc<Source>);

impl ConfigFile {
    /// Reads the file. `top` and `device` have the flags that are keys at the top of the file and of a disk.
    pub(super) fn read(
        path: &Path,
        top: &Command,
        device: &Command,
    ) -> Result<ConfigFile, Failure> {
        let unread = |e: std::io::Error| {
            Failure::of_system(Attempt::ReadFile, path.display().to_string(), e)
        };
        let unfit = |why: String| {
            Failure::usage(format!("{}: {why}", path.display()))
                .hint("a file of settings, at most 1 MiB long, as packaging/zoneplug.toml is")
        };
        let text = read_text(path, MAX_FILE).map_err(|e| match e.kind() {
            ErrorKind::InvalidInput | ErrorKind::InvalidData => unfit(e.to_string()),
            _ => unread(e),
        })?;
        ConfigFile::parse(&path.display().to_string(), text, top, device)
    }

    /// Parses the text of a file.
    pub(super) fn parse(
        file: &str,
        text: String,
        top: &Command,
        device: &Command,
    ) -> Result<ConfigFile, Failure> {
        let file = Rc::new(Source { name: plain(file).into_owned(), text });
        let source = Reader(file.clone());
        let table = DeTable::parse(&file.text).map_err(|e| {
            let failure =
                Failure::usage(e.message().to_owned()).hint("the grammar of TOML, https://toml.io");
            failure.at(&source.place(e.span().map_or(0, |s| s.start)))
        })?;
        let mut read = ConfigFile::default();
        for (key, value) in in_order(table.get_ref()) {
            if key.get_ref() == "disk" {
                for disk in source.tables(value)? {
                    read.disks.push(source.disk(disk, top, device)?);
                }
            } else {
                let mut entry = source.entry(key, value, top, &["disk"])?;
                if ["nvme-tcp", "iscsi"].contains(&&*entry.name) {
                    source.addresses(value, &mut entry)?;
                }
                read.keys.push(entry);
            }
        }
        source.check_disks(&read.disks)?;
        Ok(read)
    }
}

/// The flags of `command` that are keys of the file.
pub(super) fn flag_keys(command: &Command) -> Vec<&Arg> {
    let is_key = |a: &&Arg| a.get_long().is_some_and(|name| !FLAGS_ONLY.contains(&name));
    command.get_arguments().filter(is_key).collect()
}

/// The keys of a table in the order of the file.
fn in_order<'a, 'i>(table: &'a DeTable<'i>) -> Vec<Pair<'a, 'i>> {
    let mut all: Vec<Pair<'_, '_>> = table.iter().collect();
    all.sort_by_key(|(key, _)| key.span().start);
    all
}

/// A value as a word; `None` for a list or a table. `octal`: a number keeps its digits, as for modes.
fn word(value: &DeValue<'_>, octal: bool) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.to_string()),
        // Plain digits are octal too, as for chmod(1). The flag refuses a number with another radix.
        DeValue::Integer(n) if octal => Some(match n.radix() {
            2 => format!("0b{}", n.as_str()),
            16 => format!("0x{}", n.as_str()),
            _ => n.as_str().to_owned(),
        }),
        DeValue::Integer(n) => {
            let number = i64::from_str_radix(n.as_str(), n.radix()).map(|n| n.to_string());
            // The parser of the key refuses a longer one in its own words.
            Some(number.unwrap_or_else(|_| n.as_str().to_owned()))
        }
        DeValue::Float(n) => Some(n.as_str().to_owned()),
        DeValue::Boolean(yes) => Some(u8::from(*yes).to_string()),
        _ => None,
    }
}

/// Checks that a flag takes these words, one at a time.
fn parse(command: &Command, name: &str, words: &[String]) -> Result<(), clap::Error> {
    let flags = words.iter().map(|word| format!("--{name}={word}"));
    let Err(e) = command.clone().try_get_matches_from(flags) else { return Ok(()) };
    use clap::error::ErrorKind as K;
    match e.kind() {
        // Keys that the flag requires or excludes are checked when all keys are known.
        K::MissingRequiredArgument | K::ArgumentConflict => Ok(()),
        _ => Err(e),
    }
}

/// Checks that a flag takes this word. If not, returns the reason, and the parser's hint if there is one.
pub(super) fn refused_value(
    command: &Command,
    name: &str,
    word: &str,
) -> Option<(String, Option<String>)> {
    refused(command, name, &[word.to_owned()]).map(|(_, why, hint)| (why, hint))
}

/// Finds the first of these words that a flag does not take: its index, the reason, and the parser's hint if there is
/// one. Parses all words at once first, because making a parser costs more than parsing a word.
fn refused(
    command: &Command,
    name: &str,
    words: &[String],
) -> Option<(usize, String, Option<String>)> {
    parse(command, name, words).err()?;
    let refusal = |n: usize| Some((n, parse(command, name, &words[..=n]).err()?));
    let (first, e) = (0..words.len()).find_map(refusal)?;
    let failure = failure::from_clap(&e, &Command::new("zoneplug"));
    let FailureParts { what, hint, .. } = failure.parts();
    let source = std::error::Error::source(&e);
    if let Some(ContextValue::Strings(all)) = e.get(ContextKind::ValidValue)
        && !all.is_empty()
    {
        return Some((
            first,
            "no such value".to_owned(),
            Some(format!("one of {}", all.join(", "))),
        ));
    }
    let why = match source.and_then(|s| s.downcast_ref::<ParseIntError>()).map(ParseIntError::kind)
    {
        Some(IntErrorKind::InvalidDigit | IntErrorKind::Empty) => {
            Some("no whole number".to_owned())
        }
        _ => source.map(ToString::to_string),
    };
    let hint = Some(hint.to_owned()).filter(|h| !h.contains("--help"));
    let said = why.map(|w| w.split("; try: ").next().unwrap_or_default().to_owned());
    Some((first, said.unwrap_or_else(|| what.to_owned()), hint))
}

impl Reader {
    fn place(&self, at: usize) -> ConfigPlace {
        ConfigPlace { file: self.0.clone(), at }
    }

    /// A failure at the place of a key or a value.
    fn wrong<T>(&self, at: &Spanned<T>, what: impl Into<String>, hint: impl Into<Hint>) -> Failure {
        Failure::usage(what).hint(hint).at(&self.place(at.span().start))
    }

    /// The failure for an unknown key. `all` are the known names.
    fn unknown<T: AsRef<str>>(&self, key: &Spanned<T>, where_: &str, all: &[&str]) -> Failure {
        let name = plain(key.get_ref().as_ref());
        let hint = match nearest(&name, all) {
            Some(near) => format!("did you mean {near}? docs/serve-config.md has all keys"),
            None => format!("one of {}", all.join(", ")),
        };
        self.wrong(key, format!("there is no key {name} {where_}"), hint)
    }

    /// Reads the tables of `[[disk]]`.
    fn tables<'a, 'i>(
        &self,
        value: &'a Spanned<DeValue<'i>>,
    ) -> Result<Vec<Spanned<&'a DeTable<'i>>>, Failure> {
        let of = |value: &'a Spanned<DeValue<'i>>| match value.get_ref() {
            DeValue::Table(table) => Ok(Spanned::new(value.span(), table)),
            _ => Err(self.wrong(value, "disk is no table", "[[disk]] above the keys of a disk")),
        };
        match value.get_ref() {
            DeValue::Array(all) => all.iter().map(of).collect(),
            _ => Err(self.wrong(value, "disk is not a list", "[[disk]], with two brackets")),
        }
    }

    /// Reads a key that is a flag. `more` are other keys that may stand there.
    fn entry(
        &self,
        key: &Spanned<std::borrow::Cow<'_, str>>,
        value: &Spanned<DeValue<'_>>,
        command: &Command,
        more: &[&str],
    ) -> Result<Entry, Failure> {
        let name = key.get_ref().as_ref();
        let flags = flag_keys(command);
        let Some(arg) = flags.iter().find(|a| a.get_long() == Some(name)) else {
            if FLAGS_ONLY.contains(&name) {
                let what = format!("{name} is a flag of zoneplug serve, and no key");
                let hint = match name {
                    "ublk" => "[[disk]] with spec = \"...\" and ublk = true",
                    _ => "the flag on the command line, where it is needed once",
                };
                return Err(self.wrong(key, what, hint));
            }
            if !more.is_empty() && ["spec", "device"].contains(&name) {
                let what = format!("{name} is a key of a disk");
                return Err(self.wrong(key, what, "[[disk]] above it"));
            }
            let names: Vec<&str> = flags.iter().filter_map(|a| a.get_long()).collect();
            return Err(self.unknown(key, "here", &[&names[..], more].concat()));
        };
        let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
        let is_not = |what: &str, try_: &str| {
            self.wrong(value, format!("{name} is {what}"), format!("{try_} ({help})"))
        };
        let given = match (arg.get_action(), value.get_ref()) {
            (ArgAction::SetTrue, DeValue::Boolean(yes)) => Given::Switch(*yes),
            (ArgAction::SetTrue, _) => {
                return Err(is_not("true or false", &format!("{name} = true")));
            }
            (ArgAction::Append, DeValue::Array(all)) => {
                Given::Values(self.checked(command, name, arg, all)?)
            }
            (
                _,
                DeValue::Array(_) | DeValue::Table(_) | DeValue::Datetime(_) | DeValue::Boolean(_),
            ) => {
                return Err(is_not("a text or a number", &format!("{name} = \"...\"")));
            }
            _ => Given::Values(self.checked(command, name, arg, std::slice::from_ref(value))?),
        };
        Ok(Entry { name: name.to_owned(), given, place: self.place(key.span().start) })
    }

    /// Reads values and checks that the flag's parser takes them.
    fn checked(
        &self,
        command: &Command,
        name: &str,
        arg: &Arg,
        values: &[Spanned<DeValue<'_>>],
    ) -> Result<Vec<String>, Failure> {
        let octal = arg.get_value_names().is_some_and(|n| n.iter().any(|n| n == "MODE"));
        let words = values.iter().map(|value| {
            word(value.get_ref(), octal).ok_or_else(|| {
                let what = format!("{name} has no such value");
                self.wrong(value, what, "a text or a number")
            })
        });
        let words: Vec<String> = words.collect::<Result<_, _>>()?;
        let Some((n, why, hint)) = refused(command, name, &words) else { return Ok(words) };
        let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
        let hint = hint.unwrap_or_else(|| format!("another value ({name}: {help})"));
        Err(self.wrong(&values[n], format!("{name} = {}: {why}", plain(&words[n])), hint))
    }

    /// Checks that the key of a door of the network has only addresses at the top. Disks have their own key for being
    /// served there.
    fn addresses(&self, value: &Spanned<DeValue<'_>>, entry: &mut Entry) -> Result<(), Failure> {
        let Given::Values(all) = &entry.given else { return Ok(()) };
        match all.iter().find(|a| a.parse::<SocketAddr>().is_err()) {
            None => Ok(()),
            Some(bad) => Err(self.wrong(
                value,
                format!("{} is no address with a port", plain(bad)),
                format!(
                    "{0} = \"127.0.0.1:{1}\"; a disk says {0} = true",
                    entry.name,
                    if entry.name == "iscsi" { 3260 } else { 4420 }
                ),
            )),
        }
    }

    /// Reads a `[[disk]]`: a specification, or a device and the keys of its specification.
    fn disk(
        &self,
        table: Spanned<&DeTable<'_>>,
        top: &Command,
        device: &Command,
    ) -> Result<DiskTable, Failure> {
        let place = self.place(table.span().start);
        let pairs = in_order(table.get_ref());
        let text = |name: &str| {
            let Some((_, value)) = pairs.iter().find(|(key, _)| key.get_ref() == name) else {
                return Ok(None);
            };
            match value.get_ref() {
                DeValue::String(text) => Ok(Some((text.to_string(), *value))),
                _ => {
                    Err(self.wrong(value, format!("{name} is a text"), format!("{name} = \"...\"")))
                }
            }
        };
        let (spec, base) = (text("spec")?, text("device")?);
        let (spec, whole) = match (spec, base) {
            (Some((spec, _)), None) => (spec, true),
            (None, Some((base, _))) => (base, false),
            (Some(_), Some((_, at))) => {
                return Err(self.wrong(at, "a disk has spec or device, not both", "one of them"));
            }
            (None, None) => {
                return Err(Failure::usage("a disk without spec and without device")
                    .hint("spec = \"disk.zbd,qd1=1\"; or device = \"disk.zbd\" and qd1 = 1")
                    .at(&place));
            }
        };
        let read = |e: zoneplug_core::Error| Failure::from(e).at(&place);
        let spec = Specification::parse(&spec).map_err(read)?;
        let keys: Vec<_> = spec.disk().keys().collect();
        let flags = flag_keys(device);
        let mut disk =
            DiskTable { place, spec, ublk: false, network: false, iscsi: false, keys: Vec::new() };
        for (key, value) in pairs {
            match key.get_ref().as_ref() {
                "spec" | "device" => {}
                name @ ("ublk" | "nvme-tcp" | "iscsi") => {
                    let DeValue::Boolean(yes) = value.get_ref() else {
                        let what = format!("{name} of a disk is true or false");
                        return Err(self.wrong(value, what, format!("{name} = true")));
                    };
                    match name {
                        "ublk" => disk.ublk = *yes,
                        "iscsi" => disk.iscsi = *yes,
                        _ => disk.network = *yes,
                    }
                }
                name if flags.iter().any(|a| a.get_long() == Some(name)) => {
                    disk.keys.push(self.entry(key, value, device, &[])?);
                }
                name => match keys.iter().find(|k| k.is(name)) {
                    Some(_) if whole => {
                        let hint = format!(
                            "device = \"...\" in place of spec, or spec = \"...,{name}=...\""
                        );
                        return Err(self.wrong(key, format!("{name} beside spec"), hint));
                    }
                    Some(k) => {
                        let value = self.of_specification(name, k, value)?;
                        let with = disk.spec.with(name, &value);
                        disk.spec = with.map_err(|e| Failure::from(e).at(&disk.place))?;
                    }
                    None if flag_keys(top).iter().any(|a| a.get_long() == Some(name)) => {
                        let what = format!("{name} is a key of the server, and none of a disk");
                        return Err(self.wrong(key, what, "above the first [[disk]]"));
                    }
                    None => {
                        let mut all: Vec<&str> = DISK_KEYS.to_vec();
                        all.extend(flags.iter().filter_map(|a| a.get_long()));
                        all.extend(keys.iter().map(|k| k.name).filter(|_| !whole));
                        return Err(self.unknown(key, "of a disk", &all));
                    }
                },
            }
        }
        if !disk.ublk && !disk.network && !disk.iscsi {
            return Err(Failure::usage("a disk that is served in no way")
                .hint(
                    "ublk = true for /dev/ublkbN, nvme-tcp = true or iscsi = true for the network",
                )
                .at(&disk.place));
        }
        if let Some(entry) = disk.keys.iter().find(|_| !disk.ublk) {
            return Err(Failure::usage(format!(
                "{} of a disk that is no block device",
                entry.name
            ))
            .hint("ublk = true, or without the key")
            .at(&entry.place));
        }
        Ok(disk)
    }

    /// Formats the value of a key of a specification.
    fn of_specification(
        &self,
        name: &str,
        key: &Key,
        value: &Spanned<DeValue<'_>>,
    ) -> Result<String, Failure> {
        let text = word(value.get_ref(), false);
        let fits = |t: &&String| key.form.read(t).is_some();
        if let Some(text) = text.as_ref().filter(fits) {
            return Ok(text.clone());
        }
        let is = |what: &str| format!("{name} = {} is not possible", plain(what));
        let what = match value.get_ref() {
            DeValue::Array(_) => format!("{name} is a list"),
            DeValue::Table(_) => format!("{name} is a table"),
            DeValue::Datetime(date) => is(&date.to_string()),
            DeValue::Integer(number) => is(number.as_str()),
            _ => is(&text.unwrap_or_default()),
        };
        Err(self.wrong(value, what, format!("{name} is {}", key.form.allowed())))
    }

    /// Refuses two disks with the same number or specification.
    fn check_disks(&self, disks: &[DiskTable]) -> Result<(), Failure> {
        let (mut specs, mut ids) = (HashMap::new(), HashMap::new());
        for disk in disks {
            if let Some(other) = specs.insert(&*disk.spec, &disk.place) {
                let line = other.line();
                let what = format!("{} is a disk at line {line} already", plain(&disk.spec));
                return Err(Failure::usage(what).hint("each disk once").at(&disk.place));
            }
            let Some(own) = disk.keys.iter().find(|e| e.name == "id") else { continue };
            if let Some(other) = ids.insert(&own.given, &own.place) {
                let what = format!("the disk at line {} has this id too", other.line());
                return Err(Failure::usage(what).hint("a number of its own").at(&own.place));
            }
        }
        Ok(())
    }
}
