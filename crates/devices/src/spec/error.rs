//! Errors of specifications.

use std::fmt;
use zoneplug_core::{ErrorDetail, ErrorKind, Hint};

/// The reason why a text is not the specification of a disk. [`Error::detail`](zoneplug_core::Error::detail) returns it.
///
/// ```
/// use zoneplug_devices::emu::EmuConfig;
/// use zoneplug_devices::spec::SpecError;
/// let e = "mem,zone-szie=1M".parse::<EmuConfig>().unwrap_err();
/// let Some(SpecError::UnknownKey { key, near, .. }) = e.detail() else { panic!("{e}") };
/// assert_eq!((key.as_str(), near.as_deref()), ("zone-szie", Some("zone-size")));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum SpecError {
    /// The text has not the form of a specification.
    Syntax {
        /// The mistake.
        problem: String,
        /// The form that is right.
        form: String,
    },
    /// No kind of device, or layer, has this name.
    UnknownKind {
        /// The name.
        kind: String,
        /// The name that was probably meant.
        near: Option<String>,
        /// All names.
        known: Vec<String>,
    },
    /// The kind of device has no such option.
    UnknownKey {
        /// The kind.
        kind: String,
        /// The option.
        key: String,
        /// The option that was probably meant.
        near: Option<String>,
        /// The help page that lists the options.
        page: &'static str,
    },
    /// A file of defaults, such as a profile, has a key that no such file has.
    UnknownDefault {
        /// The file and the line.
        place: String,
        /// The key.
        key: String,
        /// The key that was probably meant.
        near: Option<String>,
        /// All keys.
        known: Vec<String>,
    },
    /// The value of an option is not possible.
    Value {
        /// The option.
        key: String,
        /// The value of the option.
        value: String,
        /// The values that are possible, as the end of a sentence: `a whole number from 1 to 8`.
        allowed: String,
        /// The file and the line of a value that a file of defaults has.
        place: Option<String>,
        /// The help page that has all values, if there is one.
        page: Option<&'static str>,
    },
    /// One option is given twice.
    Twice {
        /// The option.
        key: String,
    },
    /// One option is given under two names.
    SameKey {
        /// The names.
        names: [&'static str; 2],
        /// The name that specifications are printed with.
        key: &'static str,
    },
    /// Two options contradict each other.
    Exclusive {
        /// The options.
        keys: [&'static str; 2],
        /// The decision that has to be made.
        choice: &'static str,
    },
    /// A kind lacks an option that it needs.
    Missing {
        /// The kind.
        kind: &'static str,
        /// The option.
        key: &'static str,
        /// The thing that the option names.
        thing: &'static str,
        /// How the option is written.
        form: &'static str,
    },
    /// A layer has no device below it.
    LayerAlone {
        /// The layer.
        layer: String,
    },
    /// The name is neither that of a file nor that of a kind of device, or of a layer.
    NoSuchDisk {
        /// The name.
        name: String,
        /// The layer in front of the first `@` of the name, if it has one.
        layer: Option<String>,
        /// The kind or the layer that was probably meant.
        near: Option<&'static str>,
        /// All kinds, or all layers.
        known: Vec<&'static str>,
    },
    /// The name is that of a directory.
    Directory {
        /// The directory.
        path: String,
    },
}

impl SpecError {
    /// The error for a value that is not possible. `allowed`: the end of the sentence that says which are.
    pub fn value(
        key: impl Into<String>,
        value: impl fmt::Display,
        allowed: impl Into<String>,
    ) -> SpecError {
        let (key, value, allowed) = (key.into(), value.to_string(), allowed.into());
        SpecError::Value { key, value, allowed, place: None, page: None }
    }

    /// The error for a text that has not the form of a specification.
    pub fn syntax(problem: impl Into<String>, form: impl Into<String>) -> SpecError {
        SpecError::Syntax { problem: problem.into(), form: form.into() }
    }
}

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SpecError::Syntax { problem, .. } => f.write_str(problem),
            SpecError::UnknownKind { kind, .. } => {
                write!(f, "no kind of device is called '{kind}'")
            }
            SpecError::UnknownKey { kind, key, .. } => write!(f, "{kind} has no option {key}"),
            SpecError::UnknownDefault { place, key, .. } => {
                write!(f, "{place}: there is no key {key}")
            }
            SpecError::Value { key, value, place, .. } => {
                place.as_ref().map_or(Ok(()), |place| write!(f, "{place}: "))?;
                write!(f, "{key}={value} is not possible")
            }
            SpecError::Twice { key } => write!(f, "the option {key} is given twice"),
            SpecError::SameKey { names: [a, b], .. } => {
                write!(f, "{a} and {b} are the same option")
            }
            SpecError::Exclusive { keys: [a, b], .. } => {
                write!(f, "{a} and {b} exclude each other")
            }
            SpecError::Missing { kind, thing, .. } => write!(f, "{kind} without {thing}"),
            SpecError::LayerAlone { layer } => write!(f, "{layer} is a layer, and on no device"),
            SpecError::NoSuchDisk { name, layer: Some(layer), .. } => {
                write!(f, "there is no file '{name}', and no layer is called '{layer}'")
            }
            SpecError::NoSuchDisk { name, .. } => {
                write!(f, "there is no file '{name}', and no kind of device of that name")
            }
            SpecError::Directory { path } => write!(f, "{path} is a directory"),
        }
    }
}

impl std::error::Error for SpecError {}

impl ErrorDetail for SpecError {
    fn kind(&self) -> ErrorKind {
        match self {
            SpecError::UnknownKind { .. }
            | SpecError::LayerAlone { .. }
            | SpecError::NoSuchDisk { .. } => ErrorKind::NotFound,
            _ => ErrorKind::Invalid,
        }
    }

    fn hint(&self) -> Option<Hint> {
        let hint = match self {
            SpecError::Syntax { form, .. } => form.clone(),
            SpecError::UnknownKind { near, known, .. } => {
                let known = known.join(", ");
                match near {
                    Some(near) => format!("did you mean {near}? There are: {known}"),
                    None => format!("there are: {known}"),
                }
            }
            SpecError::UnknownKey { kind, near, page, .. } => {
                let all = format!("{page} lists the options of {kind}");
                match near {
                    Some(near) => format!("did you mean {near}? {all}"),
                    None => all,
                }
            }
            SpecError::UnknownDefault { near, known, .. } => match near {
                Some(near) => format!("did you mean {near}?"),
                None => format!("there are: {}", known.join(", ")),
            },
            SpecError::Value { key, allowed, page, .. } => match page {
                Some(page) => format!("{key} is {allowed}; see {page}"),
                None => format!("{key} is {allowed}"),
            },
            SpecError::Twice { key } => format!("give {key} once"),
            SpecError::SameKey { key, .. } => format!("give {key} once"),
            SpecError::Exclusive { choice, .. } => (*choice).to_owned(),
            SpecError::Missing { form, .. } => (*form).to_owned(),
            SpecError::LayerAlone { layer } => {
                format!("the device behind an @, as in {layer}@mem,zones=8")
            }
            SpecError::NoSuchDisk { layer, near, known, .. } => {
                let known = known.join(", ");
                match (layer, near) {
                    (Some(_), Some(near)) => format!("did you mean {near}@? There are: {known}"),
                    (Some(_), None) => format!("check the path; layers are {known}"),
                    (None, Some(near)) => format!("did you mean {near}? There are: {known}"),
                    (None, None) => format!(
                        "check the path; zoneplug create makes a disk. Kinds of device are {known}"
                    ),
                }
            }
            SpecError::Directory { .. } => "the file of a disk in it".to_owned(),
        };
        Some(hint.into())
    }
}
