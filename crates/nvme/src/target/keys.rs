//! The keys of a subsystem and of its hosts.

use super::nqn::Nqn;
use crate::dhchap::{DhGroup, Key};

/// The keys of a subsystem. Hosts that have one must authenticate.
#[derive(Debug, Clone, Default)]
pub struct Keys {
    /// The keys of hosts. They may connect.
    pub hosts: Vec<(Nqn, Key)>,
    /// The key by which the subsystem authenticates itself to hosts that want it to.
    pub controller: Option<Key>,
    /// The weakest Diffie-Hellman group that is taken. Of those that a host offers, it is the weakest that is not weaker. It may
    /// be the next stronger one, or ffdhe3072, and none that takes longer.
    pub group: DhGroup,
}

impl Keys {
    pub(super) fn of(&self, host: &Nqn) -> Option<&Key> {
        self.hosts.iter().find(|(nqn, _)| nqn == host).map(|(_, key)| key)
    }
}
