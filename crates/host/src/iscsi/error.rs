//! Errors of the options of a server.

use std::fmt;
use std::net::SocketAddr;
use zoneplug_core::{ErrorDetail, ErrorKind, Hint};

/// The reason why the options of a server are refused. [`Error::detail`](zoneplug_core::Error::detail) returns it. A name or a
/// secret that is none has a [`CredentialError`](super::CredentialError).
///
/// ```
/// use zoneplug_host::iscsi::{IscsiError, IscsiOptions};
/// let address = "192.0.2.1:3260".parse().unwrap();
/// let e = IscsiOptions::new(address, "iqn.2026-11.org.example:disks").check().unwrap_err();
/// assert!(matches!(e.detail(), Some(IscsiError::Open { address }) if address.port() == 3260));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum IscsiError {
    /// Other machines reach the address, and nothing says which initiators may log in.
    Open {
        /// The address.
        address: SocketAddr,
    },
    /// Some initiators are listed or have secrets, and any initiator may log in.
    ListedAndAny,
    /// An initiator has two secrets.
    TwoSecrets {
        /// The name of the initiator.
        initiator: String,
    },
    /// An initiator has the secret of the target.
    SharedSecret {
        /// The name of the initiator.
        initiator: String,
    },
    /// The target has a secret, and no initiator has one.
    TargetSecretAlone,
    /// Every user of the machine can read the file of a secret.
    SecretReadable {
        /// The file.
        path: String,
    },
    /// Only conventional zones are to be shown, and the disk does not begin with whole ones.
    NoConventionalZones,
}

impl fmt::Display for IscsiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IscsiError::Open { address } => {
                write!(
                    f,
                    "{address} is reached from other machines, and any initiator could log in"
                )
            }
            IscsiError::ListedAndAny => write!(f, "some initiators, and any initiator"),
            IscsiError::TwoSecrets { initiator } => write!(f, "two secrets of {initiator}"),
            IscsiError::SharedSecret { initiator } => {
                write!(f, "the secret of {initiator} is that of the target too")
            }
            IscsiError::TargetSecretAlone => {
                write!(f, "a secret of the target, and none of an initiator")
            }
            IscsiError::SecretReadable { path } => {
                write!(f, "every user of this machine can read the secret in {path}")
            }
            IscsiError::NoConventionalZones => {
                write!(f, "the disk does not begin with whole conventional zones")
            }
        }
    }
}

impl std::error::Error for IscsiError {}

impl ErrorDetail for IscsiError {
    fn kind(&self) -> ErrorKind {
        match self {
            IscsiError::NoConventionalZones => ErrorKind::NotSupported,
            _ => ErrorKind::Invalid,
        }
    }

    fn hint(&self) -> Option<Hint> {
        Some(match self {
            IscsiError::Open { .. } => Hint::from("")
                .option_with("chap-secret", "IQN=FILE")
                .text("; ")
                .option_with("allow-initiator", "IQN")
                .text(" (on the initiator: cat /etc/iscsi/initiatorname.iscsi); ")
                .option("allow-any-initiator"),
            IscsiError::ListedAndAny => "either a list of initiators, or any".into(),
            IscsiError::TwoSecrets { .. } => "an initiator has one secret".into(),
            IscsiError::SharedSecret { .. } => {
                "a secret of its own: an initiator could pretend to be the target".into()
            }
            IscsiError::TargetSecretAlone => Hint::from("")
                .option_with("chap-secret", "IQN=FILE")
                .text(": the target proves itself to initiators that do"),
            IscsiError::SecretReadable { path } => {
                format!("chmod 600 {path}, and another secret if that was not meant").into()
            }
            IscsiError::NoConventionalZones => {
                "a disk with conv=N, or leave out the option for conventional zones, to serve an SMR disk"
                    .into()
            }
        })
    }
}
