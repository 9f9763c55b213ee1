//! Errors of the control path: what is wrong, and what to try.

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
    hint: Option<String>,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
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
        Error { kind, what: shown(what.into()), hint: None, source: None }
    }

    /// Makes an error of kind [`ErrorKind::Invalid`].
    pub fn invalid(what: impl Into<String>) -> Error {
        Self::new(ErrorKind::Invalid, what)
    }

    /// Adds a suggestion what to try.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Error {
        self.hint = Some(shown(hint.into()));
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

    /// Returns the line that says what is wrong.
    pub fn what(&self) -> &str {
        &self.what
    }

    /// Returns the suggestion what to try, if there is one.
    pub fn what_to_try(&self) -> Option<&str> {
        self.hint.as_deref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.hint {
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
