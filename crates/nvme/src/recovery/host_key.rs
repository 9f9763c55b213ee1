//! The key that names a host in notes.

use crate::target::HostId;
use std::hash::{DefaultHasher, Hash, Hasher};

/// A host: a hash of its NQN and identifier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostKey(pub(super) u64);

impl HostKey {
    /// Returns the key of a host.
    pub fn of(host: &HostId) -> HostKey {
        let mut hasher = DefaultHasher::new();
        (host.nqn.as_str(), host.id).hash(&mut hasher);
        HostKey(hasher.finish())
    }

    /// Returns the key as a number, never 0. Other processes of this build compute the same number.
    pub fn number(self) -> u64 {
        self.0.max(1)
    }
}
