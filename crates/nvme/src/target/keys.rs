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
    /// The weakest Diffie-Hellman group that is accepted. The strongest accepted one is the next stronger group, or
    /// `ffdhe3072` if that is stronger. Of the accepted groups that a host offers, the controller chooses the weakest.
    pub group: DhGroup,
}

impl Keys {
    pub(super) fn of(&self, host: &Nqn) -> Option<&Key> {
        self.hosts.iter().find(|(nqn, _)| nqn == host).map(|(_, key)| key)
    }
}
