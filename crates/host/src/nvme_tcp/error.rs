//! Errors of the access of hosts.

use std::fmt;
use std::net::SocketAddr;
use zoneplug_core::{ErrorDetail, ErrorKind, Hint};

/// The reason why the options of a server do not say which hosts may connect.
/// [`Error::detail`](zoneplug_core::Error::detail) returns it.
///
/// ```
/// use zoneplug_host::nvme_tcp::{AccessError, NvmeTcpOptions};
/// let address = "192.0.2.1:4420".parse().unwrap();
/// let e = NvmeTcpOptions::new(address, "nqn.2026-11.org.example:disks").check().unwrap_err();
/// assert!(matches!(e.detail(), Some(AccessError::Open { address }) if address.port() == 4420));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum AccessError {
    /// Other machines reach the address, and nothing says which hosts may connect.
    Open {
        /// The address.
        address: SocketAddr,
    },
    /// Some hosts are listed, and any host may connect.
    ListedAndAny,
    /// Some hosts have keys, and any host may connect without one.
    KeysAndAny,
    /// A host has two keys.
    TwoKeys {
        /// The NQN of the host.
        host: String,
    },
    /// A host has the key of the subsystem.
    SharedKey {
        /// The NQN of the host.
        host: String,
    },
    /// The subsystem has a key, and no host has one.
    SubsystemKeyAlone,
    /// A key is given in place of the path of its file.
    KeyInPlaceOfPath,
    /// Every user of the machine can read the file of a key.
    KeyReadable {
        /// The file.
        path: String,
    },
}

impl fmt::Display for AccessError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AccessError::Open { address } => {
                write!(f, "{address} is reached from other machines, and any host could connect")
            }
            AccessError::ListedAndAny => write!(f, "some hosts, and any host"),
            AccessError::KeysAndAny => write!(f, "hosts with keys, and any host without one"),
            AccessError::TwoKeys { host } => write!(f, "two keys of {host}"),
            AccessError::SharedKey { host } => {
                write!(f, "the key of {host} is that of the subsystem too")
            }
            AccessError::SubsystemKeyAlone => {
                write!(f, "a key of the subsystem, and none of a host")
            }
            // The key is secret: no message has it.
            AccessError::KeyInPlaceOfPath => {
                write!(f, "a key is given in place of the path of its file")
            }
            AccessError::KeyReadable { path } => {
                write!(f, "every user of this machine can read the key in {path}")
            }
        }
    }
}

impl std::error::Error for AccessError {}

impl ErrorDetail for AccessError {
    fn kind(&self) -> ErrorKind {
        ErrorKind::Invalid
    }

    fn hint(&self) -> Option<Hint> {
        let either = |a: &'static str, b: &'static str| {
            Hint::from("either ").option(a).text(" or ").option(b)
        };
        Some(match self {
            AccessError::Open { .. } => Hint::from("")
                .option_with("dhchap-key", "NQN=FILE")
                .text("; ")
                .option_with("allow-host", "NQN")
                .text(" (on the host: cat /etc/nvme/hostnqn); ")
                .option("allow-any-host"),
            AccessError::ListedAndAny => either("allow-host", "allow-any-host"),
            AccessError::KeysAndAny => either("dhchap-key", "allow-any-host"),
            AccessError::TwoKeys { .. } => "a host has one key".into(),
            AccessError::SharedKey { .. } => {
                "a key of its own: a host could pretend to be the subsystem".into()
            }
            AccessError::SubsystemKeyAlone => Hint::from("")
                .option_with("dhchap-key", "NQN=FILE")
                .text(": the subsystem authenticates itself to hosts that do"),
            AccessError::KeyInPlaceOfPath => {
                "nvme gen-dhchap-key --hmac 1 > FILE, and the path of that file".into()
            }
            AccessError::KeyReadable { path } => {
                format!("chmod 600 {path}, and another key if that was not meant").into()
            }
        })
    }
}
