//! How a failed command ends: one line for what is wrong, one for what to try, and an exit code.

use clap::error::{ContextKind, ContextValue};
use std::fmt;
use std::io;
use zoneplug_core::one_line;
use zoneplug_core::{Error, ErrorKind, Status};
use zoneplug_devices::spec::nearest;
pub(crate) use zoneplug_host::Attempt;
use zoneplug_host::{IoError, os_error};

/// Why a command failed.
#[derive(Debug)]
pub(crate) struct Failure {
    kind: Kind,
    exit: u8,
    what: String,
    hint: Option<String>,
    /// The specification of the disk that it is of.
    disk: Option<String>,
    /// A printed JSON document contains it.
    in_json: bool,
}

/// The meaning of an exit code. The numbers are shown by `--help` and do not change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// Data was not what was written, I/O failed, or a figure is not what is expected.
    Io = 1,
    /// The command line or a specification is wrong.
    Usage = 2,
    /// A device is in use, or does not exist.
    Device = 3,
    /// This build, device or system cannot do it.
    NotSupported = 4,
    /// A signal ended the command early. The exit code is 128 plus the number of the signal.
    Interrupted = 130,
    /// The reader of the output has gone: nothing is printed.
    BrokenPipe = 0,
}

impl Kind {
    /// The kind of an exit code.
    pub(crate) fn from_code(code: u8) -> Kind {
        let all = [Kind::Usage, Kind::Device, Kind::NotSupported];
        all.into_iter().find(|k| *k as u8 == code).unwrap_or(Kind::Io)
    }

    /// Its name in JSON.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Io => "io",
            Kind::Usage => "usage",
            Kind::Device => "device",
            Kind::NotSupported => "not_supported",
            Kind::Interrupted => "interrupted",
            Kind::BrokenPipe => "broken_pipe",
        }
    }
}

/// The exit codes, for the help.
pub(crate) const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  I/O failed, data read back is not what was written, or a figure is outside
     of its band
  2  wrong usage, or an impossible specification of a disk
  3  a device is busy, or does not exist
  4  not supported by this device or build
  130  ended by Ctrl-C; 128 and the number of the signal, after another one";

impl Failure {
    /// A failure of the given kind.
    pub(crate) fn new(kind: Kind, what: impl Into<String>) -> Failure {
        Failure {
            kind,
            exit: kind as u8,
            what: what.into(),
            hint: None,
            disk: None,
            in_json: false,
        }
    }

    /// A signal ended the command.
    pub(crate) fn interrupted(signal: i32, what: impl Into<String>) -> Failure {
        Failure { exit: 128 + signal.clamp(0, 127) as u8, ..Self::new(Kind::Interrupted, what) }
    }

    /// The command line is wrong.
    pub(crate) fn usage(what: impl Into<String>) -> Failure {
        Self::new(Kind::Usage, what)
    }

    /// I/O or a comparison failed.
    pub(crate) fn io(what: impl Into<String>) -> Failure {
        Self::new(Kind::Io, what)
    }

    /// The system has refused a step. `what`: the step and its object.
    pub(crate) fn of_system(at: Attempt, what: impl AsRef<str>, e: io::Error) -> Failure {
        Failure::from(os_error(at, what, e))
    }

    /// Adds what to try.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Failure {
        self.hint = Some(hint.into());
        self
    }

    /// Says which disk it is of, by its specification.
    pub(crate) fn of_disk(self, spec: &str) -> Failure {
        Failure { disk: Some(spec.to_owned()), ..self }
    }

    /// The specification of the disk that it is of, if it says that.
    pub(crate) fn disk(&self) -> Option<&str> {
        self.disk.as_deref()
    }

    /// Its kind, what is wrong and what to try.
    pub(crate) fn parts(&self) -> (Kind, &str, &str) {
        (self.kind, &self.what, self.hint.as_deref().unwrap_or("zoneplug --help"))
    }

    /// The exit code of a command that fails so.
    pub(crate) fn exit_code(&self) -> u8 {
        self.exit
    }

    /// Adds what had been done when it failed.
    pub(crate) fn after(mut self, done: &str) -> Failure {
        self.what = format!("{} ({done})", self.what);
        self
    }

    /// Puts `text` in front of what is wrong.
    pub(crate) fn before(mut self, text: &str) -> Failure {
        self.what.insert_str(0, text);
        self
    }

    /// What clap found wrong, in two lines instead of its page. `cli`: what it parsed for.
    pub(crate) fn from_clap(e: &clap::Error, cli: &clap::Command) -> Failure {
        let text = e.render().to_string();
        let mut what = Vec::new();
        let mut tips = Vec::new();
        let mut command = "";
        for line in text.lines().map(str::trim).filter(|l| !l.is_empty()) {
            if let Some(usage) = line.strip_prefix("Usage: zoneplug ") {
                command = usage.split(' ').next().unwrap_or_default();
            }
            if line.starts_with("Usage:") || line.starts_with("For more information") {
                break;
            }
            match line.strip_prefix("tip: ") {
                // clap suggests passing the mistyped option as a value. Users do not mean that.
                Some(tip) if tip.starts_with("to pass") => {}
                Some(tip) => tips.push(tip.to_owned()),
                None => what.push(line.strip_prefix("error: ").unwrap_or(line).to_owned()),
            }
        }
        let given = |kind| match e.get(kind) {
            Some(ContextValue::String(s)) => Some(s.as_str()),
            _ => None,
        };
        #[cfg(not(feature = "trace"))]
        if given(ContextKind::InvalidArg) == Some("--trace") {
            return no_trace();
        }
        let command = cli.find_subcommand(command).or_else(|| command_of(cli));
        match (e.kind(), command) {
            (clap::error::ErrorKind::InvalidSubcommand, _) => {
                if let Some(given) = given(ContextKind::InvalidSubcommand) {
                    return no_command(given, cli, &[]);
                }
            }
            (clap::error::ErrorKind::UnknownArgument, Some(command)) if tips.is_empty() => {
                if let Some(given) = given(ContextKind::InvalidArg) {
                    return no_argument(given, command);
                }
            }
            (clap::error::ErrorKind::ValueValidation, Some(command)) => {
                let given = [ContextKind::InvalidArg, ContextKind::InvalidValue].map(given);
                if let ([Some(arg), Some(value)], Some(range)) = (given, range_of(&text)) {
                    return out_of_range(arg, value, &range, command);
                }
            }
            (clap::error::ErrorKind::MissingRequiredArgument, Some(command)) => {
                if let Some(ContextValue::Strings(missing)) = e.get(ContextKind::InvalidArg) {
                    return too_little(missing, command);
                }
            }
            _ => {}
        }
        // A parser's own hint is better than the general one.
        let inner = std::error::Error::source(e).and_then(|s| s.downcast_ref::<Error>());
        let inner = inner.and_then(Error::what_to_try).map(str::to_owned);
        let what = what.join(" ");
        // The text of clap's error contains the hint too.
        let what = match &inner {
            Some(hint) => what.strip_suffix(&format!("; try: {hint}")).unwrap_or(&what),
            None => &what,
        };
        let hint =
            inner.or_else(|| (!tips.is_empty()).then(|| tips.join("; "))).unwrap_or_else(|| {
                match command {
                    Some(c) => format!("zoneplug {} --help", c.get_name()),
                    None => "zoneplug --help, or zoneplug COMMAND --help".to_owned(),
                }
            });
        let what = if what.is_empty() { "wrong usage" } else { what };
        Failure::usage(what).hint(hint)
    }

    /// Marks the failure as printed in a JSON document.
    pub(crate) fn in_json(mut self) -> Failure {
        self.in_json = true;
        self
    }

    /// Whether a printed JSON document contains it.
    pub(crate) fn is_in_json(&self) -> bool {
        self.in_json
    }
}

/// This build has no trace events.
#[cfg(not(feature = "trace"))]
fn no_trace() -> Failure {
    Failure::new(Kind::NotSupported, "this build has no trace events")
        .hint("its probes (docs/probes.md); or cargo install --path crates/cli --features trace")
}

/// The command does not exist, and is none of the `more` words that may stand for one. Suggests only a nearly identical
/// name, because some commands destroy data.
pub(crate) fn no_command(given: &str, cli: &clap::Command, more: &[&str]) -> Failure {
    let names = cli.get_subcommands().map(clap::Command::get_name);
    let names: Vec<&str> = names.chain(more.iter().copied()).collect();
    let hint = match nearest(given, &names) {
        Some(name) => format!("zoneplug {name}; zoneplug --help lists all commands"),
        None => "zoneplug --help lists the commands".to_owned(),
    };
    Failure::usage(format!("there is no command '{given}'")).hint(hint)
}

/// The command of an error in which clap does not name it: that of a parser which has one, else the one on the command line.
fn command_of(cli: &clap::Command) -> Option<&clap::Command> {
    let mut all = cli.get_subcommands();
    match (all.next(), all.next()) {
        (Some(only), None) => Some(only),
        _ => std::env::args().skip(1).find_map(|word| cli.find_subcommand(word)),
    }
}

/// The range in which clap wants a number: `1 to 64` of `65 is not in 1..=64`.
fn range_of(text: &str) -> Option<String> {
    let range = text.lines().next()?.rsplit_once(" is not in ")?.1;
    let (first, last) = range.split_once("..")?;
    Some(match last.strip_prefix('=') {
        Some(last) => format!("{first} to {last}"),
        // The bound of the type is none.
        None if last.is_empty() || last == u64::MAX.to_string() => format!("{first} or more"),
        None => format!("{first} to below {last}"),
    })
}

/// A number is not in its range.
fn out_of_range(arg: &str, value: &str, range: &str, command: &clap::Command) -> Failure {
    let name = arg.split(' ').next().unwrap_or(arg);
    Failure::usage(format!("{name} is {range}, not {value}"))
        .hint(format!("zoneplug {} --help shows what it takes", command.get_name()))
}

/// A command needs more than it was given.
fn too_little(missing: &[String], command: &clap::Command) -> Failure {
    let name = command.get_name();
    let one = |arg: &String| match arg.strip_prefix('<').and_then(|a| a.strip_suffix('>')) {
        // One of several, as in <--size <BYTES>|--zones <N>>.
        Some(several) if several.contains('|') => several.replace('|', " or "),
        _ => arg.clone(),
    };
    let mut all: Vec<String> = missing.iter().map(one).collect();
    // As they are written: words, then options.
    all.sort_by_key(|a| a.starts_with('-'));
    let all = all.join("; ");
    Failure::usage(format!("zoneplug {name} needs {all}"))
        .hint(format!("zoneplug {name} --help shows what it takes"))
}

/// A command has no such option, or takes no further word.
fn no_argument(given: &str, command: &clap::Command) -> Failure {
    let name = command.get_name();
    if !given.starts_with('-') {
        let hint = match name {
            "serve" => format!("zoneplug serve --ublk {given}"),
            _ => format!("zoneplug {name} --help shows what it takes"),
        };
        return Failure::usage(format!("zoneplug {name} does not take '{given}' here")).hint(hint);
    }
    let zones = command.get_arguments().any(|a| a.get_id() == "count");
    let zones =
        if zones { "--offset SECTOR and --count N say which zones; " } else { Default::default() };
    Failure::usage(format!("zoneplug {name} has no option '{given}'"))
        .hint(format!("{zones}zoneplug {name} --help lists its options"))
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The text may come from a file, a drive or a socket.
        writeln!(f, "error: {}", one_line(&self.what))?;
        writeln!(f, "try: {}", one_line(self.hint.as_deref().unwrap_or("zoneplug --help")))
    }
}

impl From<Error> for Failure {
    fn from(e: Error) -> Self {
        let kind = match e.kind() {
            ErrorKind::Invalid => Kind::Usage,
            ErrorKind::NotFound | ErrorKind::Busy => Kind::Device,
            ErrorKind::NotSupported => Kind::NotSupported,
            _ => Kind::Io,
        };
        let hint = e.what_to_try().map(str::to_owned);
        Failure { hint, ..Failure::new(kind, e.what()) }
    }
}

impl From<IoError> for Failure {
    fn from(e: IoError) -> Self {
        let (kind, hint) = match e.status {
            Status::NotSupported => {
                (Kind::NotSupported, "another disk; zoneplug info shows what this one can")
            }
            Status::ReadOnlyDisk => (
                Kind::Device,
                "open the disk for writing: leave read-only=1 out; a drive may be write-protected (blockdev --getro)",
            ),
            Status::NoDevice => {
                (Kind::Device, "look at the device; its file or its cable has gone")
            }
            Status::OutOfRange => {
                (Kind::Usage, "a sector of this disk; zoneplug info shows its capacity")
            }
            Status::Unaligned | Status::BadBuffer => (
                Kind::Usage,
                "multiples of the logical block and the write granularity; see zoneplug info",
            ),
            Status::NotZoneStart => {
                (Kind::Usage, "where zones start and end; zoneplug report shows them")
            }
            Status::ConventionalZone => {
                (Kind::Usage, "a sequential zone; zoneplug report shows the types")
            }
            Status::NotAtWritePointer => {
                (Kind::Io, "the zone's write pointer; zoneplug report shows it")
            }
            // The layer's write pointer was right when it looked.
            Status::UnalignedWrite => (
                Kind::Io,
                "something else has written or reset the zone: zoneplug report shows where its write pointer is",
            ),
            Status::ZoneFull | Status::PastCapacity => {
                (Kind::Io, "another zone, or zoneplug reset")
            }
            Status::StaleWritePointer => (Kind::Io, "zoneplug resync, or reset the zone"),
            Status::OpenLimit => (Kind::Io, "close some zones: zoneplug close"),
            Status::ActiveLimit => (Kind::Io, "finish or reset some zones: zoneplug finish"),
            Status::InvalidTransition => {
                (Kind::Io, "zoneplug report shows the condition of the zone")
            }
            Status::NoSpace => (Kind::Io, "make room on the file system below the disk"),
            Status::ZoneReadOnly | Status::ZoneOffline => (Kind::Io, "another zone"),
            _ => {
                (Kind::Io, "zoneplug report shows the zones; zoneplug check looks at a disk's file")
            }
        };
        Failure::new(kind, e.to_string()).hint(hint)
    }
}

impl From<io::Error> for Failure {
    /// Only output is written here, so the error is that of stdout.
    fn from(e: io::Error) -> Self {
        if e.kind() == io::ErrorKind::BrokenPipe {
            return Failure::new(Kind::BrokenPipe, "");
        }
        Failure::io(format!("writing the output: {e}")).hint("look where stdout goes")
    }
}

impl From<serde_json::Error> for Failure {
    fn from(e: serde_json::Error) -> Self {
        Failure::from(io::Error::from(e))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_two_lines_whatever_it_was_made_from() {
        let f = Failure::from(Error::invalid("zones=0 is\nnot possible").hint("more"));
        assert_eq!(f.to_string(), "error: zones=0 is not possible\ntry: more\n");
        assert_eq!(f.kind, Kind::Usage);
        let pipe = Failure::from(io::Error::from(io::ErrorKind::BrokenPipe));
        assert_eq!(pipe.kind as u8, 0);
    }

    #[test]
    fn every_kind_is_in_the_table_of_exit_codes() {
        for k in [Kind::Io, Kind::Usage, Kind::Device, Kind::NotSupported, Kind::Interrupted] {
            assert!(EXIT_CODES.contains(&format!("\n  {}  ", k as u8)));
        }
        assert!(EXIT_CODES.lines().all(|l| l.len() <= 80));
    }
}
