//! Files that hold one secret, such as the key of a host or the secret of an initiator.

use crate::os_error::{Attempt, os_error};
use crate::paths::open_regular;
use std::io::{ErrorKind as IoErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use zeroize::Zeroizing;
use zoneplug_core::Error;

/// The most bytes of a file. A key or a secret is one line.
const MAX_FILE: u64 = 4096;
/// The bits of other users in the mode of a file.
const OTHERS: u32 = 0o007;

/// The reason why a file gives no secret.
#[derive(Debug)]
pub(crate) enum SecretFileError {
    /// Every user of the machine can read the file.
    Readable,
    /// The file cannot be read.
    Unread(Error),
}

/// Reads the text of a file. `what`: the name of such a secret in messages. `form`: a hint for a file that has none.
pub(crate) fn read_secret(
    path: &Path,
    what: &str,
    form: &'static str,
) -> Result<Zeroizing<String>, SecretFileError> {
    let name = path.display();
    let failed = |e: std::io::Error| {
        SecretFileError::Unread(match e.kind() {
            // A pipe or a device has no secret, nor has a file whose bytes are not text.
            IoErrorKind::InvalidInput | IoErrorKind::InvalidData => {
                Error::invalid(format!("{name}: {e}")).hint(form).source(e)
            }
            _ => os_error(Attempt::ReadFile, format!("the {what} {name}"), e),
        })
    };
    let file = open_regular(path).map_err(failed)?;
    // The mode is that of the open file: the path may lead to another file by now.
    if file.metadata().map_err(failed)?.mode() & OTHERS != 0 {
        return Err(SecretFileError::Readable);
    }
    let mut text = Zeroizing::new(String::with_capacity(MAX_FILE as usize + 1));
    file.take(MAX_FILE + 1).read_to_string(&mut text).map_err(failed)?;
    if text.len() as u64 > MAX_FILE {
        let what = format!("{name}: the file has more than {MAX_FILE} bytes");
        return Err(SecretFileError::Unread(Error::invalid(what).hint(form)));
    }
    Ok(text)
}
