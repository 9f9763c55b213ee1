//! The keys of a subsystem and of its hosts.

use super::nqn::Nqn;
use crate::dhchap::{DhGroup, Key};

/// The keys of a subsystem. Hosts with a key must authenticate.
#[derive(Debug, Clone, Default)]
pub struct Keys {
    /// The hosts with a key. They may connect.
    pub hosts: Vec<(Nqn, Key)>,
    /// The key with which the subsystem authenticates itself to hosts that request it.
    pub controller: Option<Key>,
    /// The weakest Diffie-Hellman group that is accepted. The controller chooses the weakest offered group that is at
    /// least as strong. Groups up to `ffdhe3072` are always accepted; above that, at most one step above this group.
    pub group: DhGroup,
}

impl Keys {
    pub(super) fn of(&self, host: &Nqn) -> Option<&Key> {
        self.hosts.iter().find(|(nqn, _)| nqn == host).map(|(_, key)| key)
    }
}
