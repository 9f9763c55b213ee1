//! Which host a note is of.

use crate::target::HostId;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Names a host: a hash of its NQN and identifier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostKey(pub(super) u64);

impl HostKey {
    /// That of a host.
    pub fn of(host: &HostId) -> HostKey {
        let mut hasher = DefaultHasher::new();
        (host.nqn.as_str(), host.id).hash(&mut hasher);
        HostKey(hasher.finish())
    }

    /// The same in another process of this build; never 0.
    pub fn number(self) -> u64 {
        self.0.max(1)
    }
}
