//! Errors of the control path: what is wrong, and what to try.

use crate::hint::{Hint, Spelling};
use crate::plain::one_line;
use std::borrow::Cow;
use std::fmt;

/// The kind of an error. It decides the exit code of the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A specification, an attribute or an argument is wrong.
    Invalid,
    /// The thing that was named does not exist.
    NotFound,
    /// The thing is in use, or not in the right state now.
    Busy,
    /// A device returned an error.
    Io,
    /// This build, device or system does not support it.
    NotSupported,
}

/// An error: one line for what is wrong and one for what to try. Both are in its text, and in what a `main` that
/// returns it prints.
///
/// ```
/// let e = zoneplug_core::Error::invalid("zones=0 is not possible").hint("1 to 64 zones");
/// assert_eq!(e.to_string(), "zones=0 is not possible; try: 1 to 64 zones");
/// assert_eq!(format!("{e:?}"), e.to_string());
/// assert_eq!((e.what(), e.what_to_try()), ("zones=0 is not possible", Some("1 to 64 zones")));
/// // What it quotes cannot speak to a terminal.
/// assert_eq!(zoneplug_core::Error::invalid("no \x1b[2J").what(), "no \\u{1b}[2J");
/// ```
pub struct Error {
    kind: ErrorKind,
    what: String,
    hint: Option<Box<Shown>>,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
    detail: Option<Box<Detail>>,
}

/// The error that an [`Error`] was made from.
struct Detail {
    error: Box<dyn std::error::Error + Send + Sync>,
    /// The name of the enum's variant.
    reason: String,
}

/// A hint with its text.
struct Shown {
    hint: Hint,
    text: String,
}

/// The error of one family of operations: an enum with fields that a program can use. [`Error`] takes its texts and its
/// kind from it, and [`Error::detail`] returns it.
///
/// ```
/// use std::fmt;
/// use zoneplug_core::{Error, ErrorDetail, ErrorKind, Hint};
/// #[derive(Debug, PartialEq)]
/// enum ShelfError {
///     Full { disks: u32 },
/// }
/// impl fmt::Display for ShelfError {
///     fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
///         let ShelfError::Full { disks } = self;
///         write!(f, "the shelf has {disks} disks already")
///     }
/// }
/// impl std::error::Error for ShelfError {}
/// impl ErrorDetail for ShelfError {
///     fn kind(&self) -> ErrorKind {
///         ErrorKind::Busy
///     }
///     fn hint(&self) -> Option<Hint> {
///         Some("another shelf".into())
///     }
/// }
/// let e = Error::from(ShelfError::Full { disks: 24 });
/// assert_eq!(e.to_string(), "the shelf has 24 disks already; try: another shelf");
/// assert_eq!(e.detail(), Some(&ShelfError::Full { disks: 24 }));
/// assert_eq!(e.reason(), Some("Full"));
/// ```
pub trait ErrorDetail: std::error::Error + Send + Sync + 'static {
    /// Returns the kind of the error.
    fn kind(&self) -> ErrorKind;

    /// Returns what to try, if there is something.
    fn hint(&self) -> Option<Hint>;
}

impl<T: ErrorDetail> From<T> for Error {
    fn from(detail: T) -> Error {
        let error = Error::new(detail.kind(), detail.to_string());
        let error = detail.hint().into_iter().fold(error, Error::hint);
        // A derived `Debug` begins with the name of the variant.
        let reason = format!("{detail:?}").split(|c: char| !c.is_alphanumeric()).take(1).collect();
        let detail = Detail { error: Box::new(detail), reason };
        Error { detail: Some(Box::new(detail)), ..error }
    }
}

/// Makes a text of an error safe to show. It may quote a path, a label or a specification.
fn shown(text: String) -> String {
    match one_line(&text) {
        Cow::Borrowed(_) => text,
        Cow::Owned(line) => line,
    }
}

impl Error {
    /// Makes an error. `what` says what is wrong.
    pub fn new(kind: ErrorKind, what: impl Into<String>) -> Error {
        Error { kind, what: shown(what.into()), hint: None, source: None, detail: None }
    }

    /// Makes an error of kind [`ErrorKind::Invalid`].
    pub fn invalid(what: impl Into<String>) -> Error {
        Self::new(ErrorKind::Invalid, what)
    }

    /// Sets what to try.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<Hint>) -> Error {
        let hint = hint.into();
        self.hint = Some(Box::new(Shown { text: hint.to_string(), hint }));
        self
    }

    /// Appends to what to try.
    #[must_use]
    pub fn and_try(self, more: impl Into<Hint>) -> Error {
        let hint = match &self.hint {
            Some(first) => first.hint.clone().and_try(more),
            None => more.into(),
        };
        self.hint(hint)
    }

    /// Says what is wrong in other words: a caller knows the place or the step. Kind, hint, cause and detail stay.
    ///
    /// ```
    /// use zoneplug_core::{Error, ErrorKind};
    /// let e = Error::new(ErrorKind::Busy, "a.zbd is in use").hint("zoneplug status");
    /// let line = format!("line 3: {}", e.what());
    /// assert_eq!(e.worded(line).to_string(), "line 3: a.zbd is in use; try: zoneplug status");
    /// ```
    #[must_use]
    pub fn worded(mut self, what: impl Into<String>) -> Error {
        self.what = shown(what.into());
        self
    }

    /// Adds the error that caused this one.
    #[must_use]
    pub fn source(mut self, e: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
        self.source = Some(e.into());
        self
    }

    /// The kind of the error.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Returns the positive Linux `errno`: that of the system call that failed, if one did, else that of the kind.
    ///
    /// ```
    /// use zoneplug_core::Error;
    /// let denied = std::io::Error::from_raw_os_error(13);
    /// assert_eq!(Error::invalid("no such zone").errno(), 22);
    /// assert_eq!(Error::invalid("cannot open a.zbd").source(denied).errno(), 13);
    /// ```
    #[cold]
    pub fn errno(&self) -> i32 {
        let mut cause = std::error::Error::source(self);
        while let Some(e) = cause {
            if let Some(errno) =
                e.downcast_ref::<std::io::Error>().and_then(std::io::Error::raw_os_error)
            {
                return errno;
            }
            cause = e.source();
        }
        match self.kind {
            ErrorKind::Invalid => 22,
            ErrorKind::NotFound => 2,
            ErrorKind::Busy => 16,
            ErrorKind::Io => 5,
            ErrorKind::NotSupported => 95,
        }
    }

    /// Returns the line that says what is wrong.
    pub fn what(&self) -> &str {
        &self.what
    }

    /// Returns the line that says what to try, if there is one.
    pub fn what_to_try(&self) -> Option<&str> {
        Some(&self.hint.as_ref()?.text)
    }

    /// Returns the hint, for another error of the same cause.
    pub fn remedy(&self) -> Option<&Hint> {
        Some(&self.hint.as_ref()?.hint)
    }

    /// Returns what to try in the words of a language, if there is something.
    pub fn what_to_try_in(&self, language: &dyn Spelling) -> Option<String> {
        Some(self.hint.as_ref()?.hint.spelled(language))
    }

    /// Returns the error of the operation's family, if this error was made from one of type `T`.
    pub fn detail<T: ErrorDetail>(&self) -> Option<&T> {
        self.detail.as_ref()?.error.downcast_ref()
    }

    /// Returns the name of the reason in the operation's family, such as `Exists`, if this error was made from an
    /// [`ErrorDetail`]. For languages that have no enums with fields.
    pub fn reason(&self) -> Option<&str> {
        Some(&self.detail.as_ref()?.reason)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.what_to_try() {
            Some(hint) => write!(f, "{}; try: {hint}", self.what),
            None => f.write_str(&self.what),
        }
    }
}

/// The text for people: a `main` that returns an error prints it in this form.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|e| &**e as &(dyn std::error::Error + 'static))
    }
}
