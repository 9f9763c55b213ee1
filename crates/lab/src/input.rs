//! Files that commands read.

use std::io;
use zoneplug_core::{Error, ErrorKind};

/// The error of a file that cannot be read: of one that is not there, or that this user may not read, as for a disk.
/// `hint`: what the file should be.
pub(crate) fn unreadable(name: &str, e: &io::Error, hint: &str) -> Error {
    let kind = match e.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied => ErrorKind::NotFound,
        _ => ErrorKind::Invalid,
    };
    Error::new(kind, format!("reading {name}: {e}")).hint(hint)
}
