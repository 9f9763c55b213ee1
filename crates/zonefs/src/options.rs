//! The options of a mount, with the names of Linux's zonefs, and one more.

use zoneplug_core::Error;

/// What happens to a file, and to the volume, after an I/O error (`errors=`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnError {
    /// The volume can only be read from then on.
    #[default]
    RemountReadOnly,
    /// The file can only be read.
    ZoneReadOnly,
    /// The file can be neither read nor written.
    ZoneOffline,
    /// The size of the file becomes what its zone holds, and the file can be written.
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

/// How a volume is mounted.
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
    /// `errors=`.
    pub on_error: OnError,
    /// Opening a sequential file for writing opens its zone explicitly (`explicit-open`).
    pub explicit_open: bool,
    /// Sequential files also take writes without `O_DIRECT` (`buffered`).
    pub buffered: bool,
    /// Nothing is written (`ro`).
    pub read_only: bool,
    /// Who may use the mount: `Some(true)` all users (`allow_other`), `Some(false)` only the user who mounts
    /// (`no_allow_other`); otherwise all if root mounts.
    pub allow_other: Option<bool>,
}

impl std::str::FromStr for MountOptions {
    type Err = Error;

    /// Options that are separated by commas. An empty text has none.
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
