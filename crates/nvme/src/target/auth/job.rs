//! The Diffie-Hellman computations that an authentication needs. They are data, so that a caller may have another
//! thread compute them.

use crate::dhchap::PrivateValue;
use zeroize::Zeroizing;

/// A value that is to be computed for a command.
#[derive(Debug)]
pub struct Job {
    pub(super) cid: u16,
    pub(super) private: PrivateValue,
    /// The host's public value, to compute the shared one. `None`: compute this side's public value.
    pub(super) other: Option<Vec<u8>>,
}

/// The result of a [`Job`].
pub struct Computed {
    pub(super) cid: u16,
    pub(super) private: PrivateValue,
    /// `None`: the host's value does not belong to the group.
    pub(super) value: Option<Zeroizing<Vec<u8>>>,
}

impl Job {
    /// Computes the value: about 1 ms in the weakest group, 100 ms in the strongest.
    pub fn run(self) -> Computed {
        let Job { cid, private, other } = self;
        let value = match &other {
            Some(other) => private.shared(other),
            None => Some(Zeroizing::new(private.public())),
        };
        Computed { cid, private, value }
    }
}

impl std::fmt::Debug for Computed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Computed")
    }
}
