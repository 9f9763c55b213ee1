//! The options of a mount, with the names of Linux's zonefs, and one more.

use zoneplug_core::Error;

/// The reaction to an I/O error (`errors=`): how it restricts the file and the volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnError {
    /// The volume becomes read-only.
    #[default]
    RemountReadOnly,
    /// The file becomes read-only.
    ZoneReadOnly,
    /// The file can be neither read nor written.
    ZoneOffline,
    /// The file gets the size of its zone's data and stays writable.
    Repair,
}

impl OnError {
    const NAMES: [(&str, OnError); 4] = [
        ("remount-ro", OnError::RemountReadOnly),
        ("zone-ro", OnError::ZoneReadOnly),
        ("zone-offline", OnError::ZoneOffline),
        ("repair", OnError::Repair),
    ];
}

/// The options of a mount.
///
/// ```
/// use zoneplug_zonefs::{MountOptions, OnError};
/// let options: MountOptions = "errors=repair,explicit-open".parse().unwrap();
/// assert_eq!(options.on_error, OnError::Repair);
/// assert!(options.explicit_open && !options.buffered);
/// let error = "errors=panic".parse::<MountOptions>().unwrap_err();
/// assert_eq!(error.to_string(), "errors=panic is no mount option; try: errors=remount-ro, zone-ro, zone-offline or repair");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MountOptions {
    /// The reaction to an I/O error (`errors=`).
    pub on_error: OnError,
    /// Whether opening a sequential file for writing opens its zone explicitly (`explicit-open`).
    pub explicit_open: bool,
    /// Whether sequential files also accept writes without `O_DIRECT` (`buffered`).
    pub buffered: bool,
    /// Whether writes are refused (`ro`).
    pub read_only: bool,
    /// The users of the mount: `Some(true)` all (`allow_other`), `Some(false)` only the mounting
    /// user (`no_allow_other`), `None` all if root mounts.
    pub allow_other: Option<bool>,
}

impl std::str::FromStr for MountOptions {
    type Err = Error;

    /// Parses options separated by commas. An empty text gives the defaults.
    fn from_str(text: &str) -> Result<MountOptions, Error> {
        let mut options = MountOptions::default();
        for word in text.split(',').filter(|w| !w.is_empty()) {
            match word.split_once('=') {
                Some(("errors", value)) => {
                    let known = OnError::NAMES.iter().find(|(name, _)| *name == value);
                    let no = || {
                        Error::invalid(format!("{word} is no mount option"))
                            .hint("errors=remount-ro, zone-ro, zone-offline or repair")
                    };
                    options.on_error = known.ok_or_else(no)?.1;
                }
                None if word == "explicit-open" => options.explicit_open = true,
                None if word == "buffered" => options.buffered = true,
                None if word == "ro" => options.read_only = true,
                None if word == "rw" => options.read_only = false,
                None if word == "allow_other" => options.allow_other = Some(true),
                None if word == "no_allow_other" => options.allow_other = Some(false),
                _ => {
                    let known =
                        "errors=, explicit-open, buffered, ro, rw, allow_other, no_allow_other";
                    return Err(Error::invalid(format!("{word} is no mount option")).hint(known));
                }
            }
        }
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_of_two_options_counts() {
        let of = |text: &str| text.parse::<MountOptions>().unwrap();
        assert_eq!(of(""), MountOptions::default());
        assert_eq!(of("ro,errors=zone-ro,errors=zone-offline,rw").on_error, OnError::ZoneOffline);
        assert!(!of("ro,rw").read_only && of("rw,ro").read_only);
        assert_eq!(of("no_allow_other").allow_other, Some(false));
    }

    #[test]
    fn what_linux_has_no_option_for_is_refused() {
        for text in ["errors=continue", "errors", "foo=bar", "bad_option", "explicit-open=1"] {
            assert!(text.parse::<MountOptions>().is_err(), "{text}");
        }
    }
}
