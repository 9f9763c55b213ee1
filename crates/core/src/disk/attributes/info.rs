//! An entry of the attribute table, and how the value of its attribute is read and set.

use super::error::AttributeError;
use crate::disk::config::DiskConfig;
use crate::disk::snapshot::Layout;
use crate::error::Error;
use crate::form::{Key, Value};

/// The state that an attribute's value is computed from.
pub(super) struct View<'a> {
    pub(super) layout: &'a Layout,
    pub(super) spindles: usize,
}

/// An attribute in the table.
#[derive(Debug)]
pub struct AttributeInfo {
    /// Name, aliases, form and description.
    pub key: Key,
    /// When the attribute can be changed.
    pub change: Change,
    /// Reads it from a configuration and writes it there. `None` if the device decides it.
    pub(super) config: Option<(Get, Set)>,
    /// Computes the shown value, if that is not the configured one.
    pub(super) shown: Option<fn(&View<'_>) -> Value>,
    /// The disks that have the attribute.
    pub(super) when: When,
}

/// The disks that have an attribute.
#[derive(Debug)]
pub(super) struct When {
    pub(super) holds: fn(&View<'_>) -> bool,
    /// The setting of such a disk, as the end of a sentence.
    pub(super) with: &'static str,
}

/// Reads an attribute from a configuration; `None` where the configuration leaves it to the layer.
pub(super) type Get = fn(&DiskConfig) -> Option<Value>;
/// Puts a value of the attribute's form into a configuration.
pub(super) type Set = fn(&mut DiskConfig, Value);

/// When an attribute can be changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// Never: the device decides it.
    Never,
    /// When the disk is opened, by a specification or a [`DiskConfig`].
    AtOpen,
    /// Also while the disk is in use; it takes effect with each queue's next call.
    InUse,
    /// Also while the disk is in use. The disk is drained for the change.
    Drained,
}

impl AttributeInfo {
    /// Returns whether a specification accepts the attribute as a key.
    pub fn is_key(&self) -> bool {
        self.config.is_some()
    }

    /// Returns whether [`Disk::change_attribute`](crate::disk::Disk::change_attribute) accepts the attribute.
    pub fn is_writable(&self) -> bool {
        matches!(self.change, Change::InUse | Change::Drained)
    }

    /// Returns its value on a disk, as text: `none` if it has no value.
    pub(super) fn text(&self, view: &View<'_>) -> String {
        let value = match (self.shown, self.config) {
            (Some(shown), _) => Some(shown(view)),
            (None, Some((get, _))) => get(&view.layout.config),
            (None, None) => None,
        };
        value.map_or_else(|| "none".to_owned(), |v| self.key.form.show(&v))
    }

    /// Reads a value from text. The error says what is allowed.
    pub(super) fn read(&self, text: &str) -> Result<Value, Error> {
        self.key.form.read(text).ok_or_else(|| self.out_of_range(text))
    }

    pub(super) fn out_of_range(&self, value: &str) -> Error {
        let (name, allowed) = (self.key.name, self.key.form.allowed());
        AttributeError::Value { name, value: value.to_owned(), allowed }.into()
    }

    /// Puts a value of the attribute's form into a configuration. Does nothing for an attribute that the device
    /// decides.
    ///
    /// ```
    /// use zoneplug_core::disk::{DiskConfig, find_attribute};
    /// let attribute = find_attribute("anticipation_us").unwrap();
    /// let mut config = DiskConfig::default();
    /// attribute.set(&mut config, attribute.key.form.read("300").unwrap());
    /// assert_eq!(config.anticipation.0, 300_000);
    /// ```
    pub fn set(&self, config: &mut DiskConfig, value: Value) {
        if let Some((_, set)) = self.config {
            set(config, value);
        }
    }
}
