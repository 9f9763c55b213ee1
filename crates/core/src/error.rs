//! Errors of the control path: what is wrong, and what to try.

use std::fmt;

/// What kind of error it is. The command line's exit code is made from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// A specification, an attribute or an argument is wrong.
    Invalid,
    /// The thing that was named does not exist.
    NotFound,
    /// It is in use, or not in the right state.
    Busy,
    /// A device gave an error.
    Io,
    /// This build, device or system cannot do it.
    NotSupported,
}

/// An error with one line for what is wrong and one for what to try.
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    what: String,
    hint: Option<String>,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    /// An error that says `what` is wrong.
    pub fn new(kind: ErrorKind, what: impl Into<String>) -> Error {
        Error { kind, what: what.into(), hint: None, source: None }
    }

    /// An error of kind [`ErrorKind::Invalid`].
    pub fn invalid(what: impl Into<String>) -> Error {
        Self::new(ErrorKind::Invalid, what)
    }

    /// Adds what to try.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Error {
        self.hint = Some(hint.into());
        self
    }

    /// Adds where it came from.
    #[must_use]
    pub fn source(mut self, e: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
        self.source = Some(e.into());
        self
    }

    /// The kind.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// What to try, if anything is known.
    pub fn what_to_try(&self) -> Option<&str> {
        self.hint.as_deref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|e| &**e as &(dyn std::error::Error + 'static))
    }
}
