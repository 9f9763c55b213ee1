//! Failures of commands: a line about the cause, a line about what to try, and an exit code.

use crate::error::ControlError;
use std::fmt;
use std::io;
use zoneplug_core::{Error, ErrorDetail, ErrorKind, Hint, Spelling, Status};
pub use zoneplug_host::Attempt;
use zoneplug_host::{IoError, os_error};

/// The reason why a command failed: an error with an exit code, and with its hint as the command line spells it.
#[derive(Debug)]
pub struct Failure {
    kind: Kind,
    exit: u8,
    /// The cause and the hint. A failure that becomes an error again returns this one, with the enum of its family.
    error: Error,
    /// The text of the hint on the command line.
    hint_text: Option<Box<str>>,
    /// The specification of the disk that caused the failure, if one did.
    disk: Option<Box<str>>,
    /// Whether a printed JSON document contains the failure.
    in_json: bool,
}

/// The parts of a failure that are shown.
#[derive(Debug, Clone, Copy)]
pub struct FailureParts<'a> {
    /// The meaning of the exit code.
    pub kind: Kind,
    /// The cause.
    pub what: &'a str,
    /// The hint: what to try.
    pub hint: &'a str,
}

/// The meaning of an exit code. `--help` shows the numbers, and they do not change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Data was not as written, I/O failed, or a figure is outside of its expected range.
    Io = 1,
    /// The command line or a specification is wrong.
    Usage = 2,
    /// A device is in use, or does not exist.
    Device = 3,
    /// This build, device or system does not support it.
    NotSupported = 4,
    /// A signal ended the command early. The exit code is 128 plus the number of the signal.
    Interrupted = 130,
    /// The reader of the output has gone, so nothing is printed.
    BrokenPipe = 0,
}

impl Kind {
    /// The kind for the exit code of a server's failure. Any other code is [`Kind::Io`].
    pub fn from_code(code: u8) -> Kind {
        let all = [Kind::Usage, Kind::Device, Kind::NotSupported];
        all.into_iter().find(|k| *k as u8 == code).unwrap_or(Kind::Io)
    }

    /// The kind's name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Io => "io",
            Kind::Usage => "usage",
            Kind::Device => "device",
            Kind::NotSupported => "not_supported",
            Kind::Interrupted => "interrupted",
            Kind::BrokenPipe => "broken_pipe",
        }
    }

    /// The kind of failures with an error of this kind.
    fn of_error(kind: ErrorKind) -> Kind {
        match kind {
            ErrorKind::Invalid => Kind::Usage,
            ErrorKind::NotFound | ErrorKind::Busy => Kind::Device,
            ErrorKind::NotSupported => Kind::NotSupported,
            _ => Kind::Io,
        }
    }

    /// The kind of an error without an enum of its family.
    pub(crate) fn error(self) -> ErrorKind {
        match self {
            Kind::Usage => ErrorKind::Invalid,
            Kind::Device => ErrorKind::Busy,
            Kind::NotSupported => ErrorKind::NotSupported,
            Kind::Io | Kind::Interrupted | Kind::BrokenPipe => ErrorKind::Io,
        }
    }
}

impl Failure {
    /// A failure of the given kind.
    pub fn new(kind: Kind, what: impl Into<String>) -> Failure {
        Self::of(kind, Error::new(kind.error(), what))
    }

    /// A failure of the given kind with this error.
    fn of(kind: Kind, error: Error) -> Failure {
        let hint_text = error.remedy().map(|hint| hint.spelled(&CommandSpelling).into());
        Failure { kind, exit: kind as u8, error, hint_text, disk: None, in_json: false }
    }

    /// The failure of a command that a signal ended.
    pub fn interrupted(signal: i32, what: impl Into<String>) -> Failure {
        Failure { exit: 128 + signal.clamp(0, 127) as u8, ..Self::new(Kind::Interrupted, what) }
    }

    /// The failure of a wrong command line.
    pub fn usage(what: impl Into<String>) -> Failure {
        Self::new(Kind::Usage, what)
    }

    /// The failure of I/O or of a comparison.
    pub fn io(what: impl Into<String>) -> Failure {
        Self::new(Kind::Io, what)
    }

    /// The failure of a system call. `what`: the step and its object.
    pub fn of_system(at: Attempt, what: impl AsRef<str>, e: io::Error) -> Failure {
        Failure::from(os_error(at, what, e))
    }

    /// Sets the hint: what to try.
    pub fn hint(self, hint: impl Into<Hint>) -> Failure {
        let hint = hint.into();
        let hint_text = Some(hint.spelled(&CommandSpelling).into());
        Failure { error: self.error.hint(hint), hint_text, ..self }
    }

    /// Appends to what to try.
    pub fn and_try(self, more: impl Into<Hint>) -> Failure {
        let hint = match self.error.remedy() {
            Some(first) => first.clone().and_try(more),
            None => more.into(),
        };
        self.hint(hint)
    }

    /// The text of the hint.
    fn hint_text(&self) -> &str {
        self.hint_text.as_deref().unwrap_or("zoneplug --help")
    }

    /// Sets the disk that caused the failure, by its specification.
    pub fn of_disk(self, spec: &str) -> Failure {
        Failure { disk: Some(spec.into()), ..self }
    }

    /// The specification of the disk that caused the failure, if one did.
    pub fn disk(&self) -> Option<&str> {
        self.disk.as_deref()
    }

    /// The kind, the cause and the hint.
    pub fn parts(&self) -> FailureParts<'_> {
        FailureParts { kind: self.kind, what: self.error.what(), hint: self.hint_text() }
    }

    /// Returns the enum of the family, if the failure was made from an error of that type.
    pub fn detail<T: ErrorDetail>(&self) -> Option<&T> {
        self.error.detail()
    }

    /// The exit code of a command with this failure.
    pub fn exit_code(&self) -> u8 {
        self.exit
    }

    /// Appends what the command had done before it failed.
    pub fn after(self, done: &str) -> Failure {
        let what = format!("{} ({done})", self.error.what());
        self.worded(what)
    }

    /// Puts `text` in front of the cause.
    pub fn before(self, text: &str) -> Failure {
        let what = format!("{text}{}", self.error.what());
        self.worded(what)
    }

    /// Says the cause in other words.
    pub(crate) fn worded(self, what: String) -> Failure {
        Failure { error: self.error.worded(what), ..self }
    }

    /// Marks the failure as printed in a JSON document.
    pub fn in_json(mut self) -> Failure {
        self.in_json = true;
        self
    }

    /// Whether a printed JSON document contains the failure.
    pub fn is_in_json(&self) -> bool {
        self.in_json
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "error: {}", self.error.what())?;
        writeln!(f, "try: {}", self.hint_text())
    }
}

/// How hints name the options of a command: `--force`, `--id 7`.
struct CommandSpelling;

impl Spelling for CommandSpelling {
    fn option(&self, name: &str, value: Option<&str>) -> String {
        value.map_or_else(|| format!("--{name}"), |value| format!("--{name} {value}"))
    }
}

impl From<Error> for Failure {
    fn from(e: Error) -> Self {
        Failure::of(Kind::of_error(e.kind()), e)
    }
}

impl From<ControlError> for Failure {
    fn from(e: ControlError) -> Self {
        Failure::from(Error::from(e))
    }
}

impl From<Failure> for Error {
    fn from(f: Failure) -> Self {
        f.error
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
            // The layer's write pointer was right before, so another program has written to the zone.
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
            Status::NoSpace => (
                Kind::Io,
                "make room on the file system below the disk; or a higher limit of the length of files (ulimit -f)",
            ),
            Status::ZoneReadOnly | Status::ZoneOffline => (Kind::Io, "another zone"),
            _ => {
                (Kind::Io, "zoneplug report shows the zones; zoneplug check looks at a disk's file")
            }
        };
        Failure::of(kind, Error::from(e)).hint(hint)
    }
}

impl From<io::Error> for Failure {
    /// Such errors come only from writing output, so they are stdout's.
    fn from(e: io::Error) -> Self {
        if e.kind() == io::ErrorKind::BrokenPipe {
            return Failure::new(Kind::BrokenPipe, "");
        }
        Failure::io(format!("writing the output: {e}")).hint("look where stdout goes")
    }
}

impl From<serde_json::Error> for Failure {
    /// A document is written to stdout, or read from the answer of a server.
    fn from(e: serde_json::Error) -> Self {
        if e.is_io() {
            return Failure::from(io::Error::from(e));
        }
        Failure::from(ControlError::BadAnswer { because: e.to_string() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zoneplug_core::disk::AttributeError;

    /// A server of another version may send what this one cannot read. Nothing is said of the output then.
    #[test]
    fn an_answer_that_cannot_be_read_is_no_fault_of_the_output() {
        let bad = serde_json::from_str::<u32>("{}").unwrap_err();
        let f = Failure::from(bad);
        assert!(matches!(f.detail(), Some(ControlError::BadAnswer { .. })), "{f}");
        assert!(f.parts().what.starts_with("the server's answer cannot be read: "), "{f}");
        let mut room = [0; 1];
        let full = serde_json::to_writer(&mut room[..], "long").unwrap_err();
        assert!(Failure::from(full).parts().what.starts_with("writing the output: "));
    }

    #[test]
    fn a_failure_is_two_lines_whatever_it_was_made_from() {
        let f = Failure::from(Error::invalid("zones=0 is\nnot possible").hint("more"));
        assert_eq!(f.to_string(), "error: zones=0 is not possible\ntry: more\n");
        let hint = Hint::from("say ").option("force").text(", or ").option_with("id", "7");
        let f = Failure::from(Error::invalid("no").hint(hint));
        assert_eq!(f.parts().hint, "say --force, or --id 7");
        // A program that uses the library gets an `Error`, which spells the options of a hint in its own way.
        assert_eq!(Error::from(f).what_to_try(), Some("say 'force', or 'id' 7"));
        let f = Failure::from(Error::invalid("no"));
        assert_eq!(f.kind, Kind::Usage);
        // An error keeps its kind and its enum, whatever the failure adds to its words.
        let detail = AttributeError::Unknown { name: "speed".to_owned(), known: Vec::new() };
        let f = Failure::from(Error::from(detail.clone())).before("disk 1: ").after("set 2 others");
        assert_eq!(f.parts().what, "disk 1: there is no attribute speed (set 2 others)");
        assert_eq!((f.kind, f.detail()), (Kind::Device, Some(&detail)));
        let e = Error::from(f.and_try("another"));
        assert_eq!((e.kind(), e.detail()), (ErrorKind::NotFound, Some(&detail)));
        let pipe = Failure::from(io::Error::from(io::ErrorKind::BrokenPipe));
        assert_eq!(pipe.kind as u8, 0);
    }
}
