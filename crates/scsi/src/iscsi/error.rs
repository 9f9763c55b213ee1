//! Errors of names and secrets.

use std::fmt;
use zoneplug_core::{ErrorDetail, ErrorKind, Hint};

/// The reason why a text is no name or no secret of iSCSI.
/// [`Error::detail`](zoneplug_core::Error::detail) returns it.
///
/// ```
/// use zoneplug_scsi::iscsi::{CredentialError, check_name};
/// let e = check_name("disk").unwrap_err();
/// assert!(matches!(e.detail(), Some(CredentialError::InvalidName { name }) if name == "disk"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum CredentialError {
    /// The text is no name of a target or an initiator.
    InvalidName {
        /// The text.
        name: String,
    },
    /// The text is too short or too long for a secret of CHAP.
    SecretLength,
}

impl fmt::Display for CredentialError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CredentialError::InvalidName { name } => write!(f, "{name:?} is no name of iSCSI"),
            CredentialError::SecretLength => {
                write!(f, "no secret of CHAP: it has fewer than 12 bytes, or more than 1024")
            }
        }
    }
}

impl std::error::Error for CredentialError {}

impl ErrorDetail for CredentialError {
    fn kind(&self) -> ErrorKind {
        ErrorKind::Invalid
    }

    fn hint(&self) -> Option<Hint> {
        let hint = match self {
            CredentialError::InvalidName { .. } => "iqn.2026-11.com.example:disk, in lower case",
            CredentialError::SecretLength => {
                "12 to 16 random characters: some initiators take no more"
            }
        };
        Some(hint.into())
    }
}
