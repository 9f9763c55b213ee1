//! Profiles of drives in files that a specification names: `sim,profile=FILE`.

use super::keys;
use crate::paths::{is_foreign, read_text};
use std::io;
use std::path::Path;
use zoneplug_core::{Error, ErrorKind};
use zoneplug_devices::emu::timing::Profile;
use zoneplug_devices::spec::Spec;

/// Length of the longest profile, in bytes. The profiles of zoneplug have less than 4 KiB.
const MAX_PROFILE: u64 = 64 << 10;

/// Reads the profile of a specification of kind `sim`.
pub(super) fn from_file(spec: &mut Spec) -> Result<Profile, Error> {
    let Some(path) = spec.text(&keys::PROFILE)? else {
        return Err(Error::invalid("sim without a profile").hint(
            "say sim,profile=FILE with the numbers of a drive, or sim-smr30 for a known one",
        ));
    };
    let text = read_text(Path::new(&path), MAX_PROFILE).map_err(|e| refused(&path, e))?;
    let stem = Path::new(&path).file_stem().and_then(|s| s.to_str()).unwrap_or("profile");
    // An error may quote lines of the file, so it is replaced if the file belongs to another user.
    Profile::with_options(spec, stem, &path, &text).map_err(|e| {
        match is_foreign(Path::new(&path)) {
            true => Error::invalid(format!("{path} is no profile, or a wrong one"))
                .hint("a file of your own: the lines of another user's are not shown"),
            false => e,
        }
    })
}

/// The error for a file that cannot be read, or is not text.
fn refused(path: &str, e: io::Error) -> Error {
    if matches!(e.kind(), io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput) {
        return Error::invalid(format!("{path} is no profile: {e}"))
            .hint("a text of lines such as: rpm = 7200 # the data sheet")
            .source(e);
    }
    let hint = match e.kind() {
        io::ErrorKind::NotFound => {
            "zoneplug's own profiles are called sim-smr30, sim-smr20, sim-smr14, sim-zns1"
        }
        _ => "a file that this user may read",
    };
    Error::new(ErrorKind::NotFound, format!("the profile {path} cannot be read: {e}"))
        .hint(hint)
        .source(e)
}
