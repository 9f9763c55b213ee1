//! Changes of attributes that wait for the disk to drain.

use super::config::DiskConfig;
use crate::form::Value;

/// A change of an attribute that waits.
#[derive(Debug)]
pub(crate) struct PendingChange {
    /// The attribute.
    pub(crate) name: &'static str,
    /// Its new value.
    pub(crate) value: Value,
    /// Attribute and value as a user writes them: `scheduler=none`.
    pub(crate) text: String,
    /// Puts the value into a configuration.
    pub(crate) set: fn(&mut DiskConfig, Value),
}

impl PendingChange {
    /// Applies this change to a configuration.
    pub(crate) fn apply(&self, mut config: DiskConfig) -> DiskConfig {
        (self.set)(&mut config, self.value.clone());
        config
    }

    /// Returns whether both changes give the same value to the same attribute.
    pub(crate) fn is(&self, other: &PendingChange) -> bool {
        self.name == other.name && self.value == other.value
    }
}
