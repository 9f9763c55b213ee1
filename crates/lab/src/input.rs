//! Files that commands read.

use std::io;
use zoneplug_core::{Error, ErrorKind};

/// The error of a file that cannot be read, of the kind that the same error of a disk's file has.
/// `hint`: what the file should be.
pub(crate) fn unreadable(name: &str, e: &io::Error, hint: &str) -> Error {
    let kind = match e.kind() {
        io::ErrorKind::NotFound => ErrorKind::NotFound,
        io::ErrorKind::PermissionDenied => ErrorKind::NotSupported,
        _ => ErrorKind::Invalid,
    };
    Error::new(kind, format!("reading {name}: {e}")).hint(hint)
}
