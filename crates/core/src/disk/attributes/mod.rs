//! Attributes of a disk: their values, and how a change takes effect.
//!
//! The table in `table.rs` has the name, the form and the time of change of each attribute. Specifications,
//! [`Disk::change_attribute`] and [`Disk::open`] all read that table.
//!
//! Most changes take effect at each queue's next call. A change of the dispatch of commands is made while the disk is
//! drained (Q9): [`Disk::change_attribute`] freezes the disk for as long as that takes.

mod error;
mod info;
mod table;

pub use error::AttributeError;
pub use info::{AttributeInfo, Change};
pub use table::{ATTRIBUTES, TAGS};

use super::changes::PendingChange;
use super::config::{DiskConfig, Mode};
use super::freeze::Freeze;
use super::handle::Disk;
use super::snapshot::{Layout, no_zone_depth};
use crate::error::Error;
use crate::form::Value;
use crate::sched::Scheduler;
use crate::sync::lock;
use crate::unit::Nanos;
use crate::zone::Limits;
use info::View;
use std::sync::Arc;

impl AttributeInfo {
    /// A note of the change to `value`, if the disk must drain for it.
    fn pending(&self, value: &Value) -> Option<PendingChange> {
        let (_, set) = self.config.filter(|_| self.change == Change::Drained)?;
        let text = format!("{}={}", self.key.name, self.key.form.show(value));
        Some(PendingChange { name: self.key.name, value: value.clone(), text, set })
    }
}

/// Finds an attribute by its name or an alias.
///
/// ```
/// use zoneplug_core::disk::find_attribute;
/// assert_eq!(find_attribute("qd1").unwrap().key.name, "zoned_qd1_writes");
/// assert!(find_attribute("qd2").is_none());
/// ```
pub fn find_attribute(name: &str) -> Option<&'static AttributeInfo> {
    ATTRIBUTES.iter().find(|a| a.key.is(name))
}

/// One attribute of a disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attribute {
    /// Its name, Linux's where Linux has one.
    pub name: &'static str,
    /// Its value as text.
    pub value: String,
    /// Whether [`Disk::change_attribute`] takes it.
    pub writable: bool,
}

impl DiskConfig {
    /// Checks that every attribute is within the bounds of the table, and that they agree with each other and with
    /// the device.
    pub(super) fn check(&self, limits: &Limits) -> Result<(), Error> {
        for a in &ATTRIBUTES {
            let value = a.config.and_then(|(get, _)| get(self));
            if let Some(value) = value.filter(|v| !a.key.form.has(v)) {
                return Err(a.out_of_range(&a.key.form.show(&value)));
            }
        }
        check_zone_depth(limits, self)
    }
}

/// A change of an attribute that has begun. Call [`poll`](AttributeChange::poll) until it has taken effect, and
/// meanwhile poll every queue of the disk, because they may have to drain. Dropping it before that leaves the
/// attribute as it was.
#[derive(Debug)]
pub struct AttributeChange {
    disk: Disk,
    attribute: &'static AttributeInfo,
    value: Value,
    freeze: Option<Freeze>,
    done: bool,
}

impl AttributeChange {
    /// Makes the change if the disk is ready for it. Returns whether the new value is in effect.
    pub fn poll(&mut self) -> bool {
        if !self.done && self.freeze.as_ref().is_none_or(Freeze::poll) {
            // The value was checked when the change began, also against other pending changes.
            self.disk.commit(self.attribute, self.value.clone());
            self.done = true;
            self.end();
        }
        self.done
    }

    /// Returns an error if the disk has not drained for too long, so that the caller gives up: see
    /// [`Freeze::overdue`].
    pub fn overdue(&mut self, now: Nanos) -> Option<Error> {
        self.freeze.as_mut()?.overdue(now)
    }

    /// Removes the change from the pending ones.
    fn end(&mut self) {
        self.freeze = None;
        if let Some(this) = self.attribute.pending(&self.value) {
            let mut all = lock(&self.disk.shared.changes);
            if let Some(at) = all.iter().position(|c| c.is(&this)) {
                all.swap_remove(at);
            }
        }
    }
}

impl Drop for AttributeChange {
    fn drop(&mut self) {
        if !self.done {
            self.end();
        }
    }
}

impl Disk {
    /// Returns all attributes, in the order of the table.
    pub fn attributes(&self) -> Vec<Attribute> {
        let layout = self.layout();
        let view = View { layout: &layout, spindles: self.shared.spindles.count() };
        let here = ATTRIBUTES.iter().filter(|a| (a.when.holds)(&view));
        here.map(|a| Attribute {
            name: a.key.name,
            value: a.text(&view),
            writable: a.is_writable(),
        })
        .collect()
    }

    /// The value of one attribute, by its name or an alias. `None` if the disk has no such attribute.
    pub fn attribute(&self, name: &str) -> Option<String> {
        let layout = self.layout();
        let view = View { layout: &layout, spindles: self.shared.spindles.count() };
        find_attribute(name).filter(|a| (a.when.holds)(&view)).map(|a| a.text(&view))
    }

    /// The error for the name of an attribute that this disk does not have.
    ///
    /// ```
    /// # use zoneplug_core::disk::{Disk, DiskConfig};
    /// # use zoneplug_core::Nanos;
    /// # use zoneplug_devices::emu::{EmuConfig, EmuDisk};
    /// # let device = EmuDisk::new("null,zones=4,zone-size=1M".parse::<EmuConfig>().unwrap()).unwrap();
    /// let disk = Disk::open(device, DiskConfig::default(), &mut |_| Nanos(0)).unwrap();
    /// let why = "this disk has no fifo_batch: it is an attribute of disks with scheduler=mq-deadline";
    /// assert_eq!(disk.no_attribute("fifo_batch").what(), why);
    /// assert_eq!(disk.no_attribute("speed").what(), "there is no attribute speed");
    /// ```
    pub fn no_attribute(&self, name: &str) -> Error {
        if let Some(of_others) = find_attribute(name) {
            return AttributeError::Absent { name: of_others.key.name, with: of_others.when.with }
                .into();
        }
        let known = self.attributes().iter().map(|a| a.name).collect();
        AttributeError::Unknown { name: name.to_owned(), known }.into()
    }

    /// Begins to change an attribute of a disk in use.
    ///
    /// Fails if the disk has no such attribute (*not found*), if it cannot be changed or the value is not allowed
    /// (*invalid*), if the value does not go with the device or other attributes (*not supported*), or if it
    /// contradicts a pending change (*busy*).
    ///
    /// ```
    /// # use zoneplug_core::disk::{Disk, DiskConfig};
    /// # use zoneplug_core::{Bios, Nanos};
    /// # use zoneplug_devices::{emu::{EmuConfig, EmuDisk}, spec::Spec};
    /// # let config = EmuConfig::from_spec(&mut Spec::parse("null,zones=4,zone-size=1M").unwrap()).unwrap();
    /// # let disk = Disk::open(EmuDisk::new(config).unwrap(), DiskConfig::default(), &mut |_| Nanos(0)).unwrap();
    /// let mut queue = disk.open_polled_queue(16, 4).unwrap();
    /// let mut change = disk.change_attribute("zoned_qd1_writes", "1").unwrap();
    /// while !change.poll() {
    ///     queue.poll(Nanos(0), &mut Bios::new()); // and every other queue of the disk
    /// }
    /// assert_eq!(disk.attribute("zoned_qd1_writes").unwrap(), "1");
    /// ```
    pub fn change_attribute(&self, name: &str, value: &str) -> Result<AttributeChange, Error> {
        let (attribute, value) = self.check_attribute(name, value)?;
        if let Some(change) = attribute.pending(&value) {
            self.note_change(change)?;
        }
        let drained = attribute.change == Change::Drained;
        Ok(AttributeChange {
            disk: self.clone(),
            attribute,
            value,
            freeze: drained.then(|| self.begin_freeze()),
            done: false,
        })
    }

    /// Changes an attribute at once. Fails as [`Disk::change_attribute`] does. Fails with *busy* if the disk must
    /// drain for the change; this does not happen if no queue is open, or if the attribute has that value already.
    pub fn set_attribute(&self, name: &str, value: &str) -> Result<(), Error> {
        let mut change = self.change_attribute(name, value)?;
        if self.attribute(name).as_deref() == Some(value) || change.poll() {
            return Ok(());
        }
        Err(AttributeError::Drains { name: name.to_owned() }.into())
    }

    /// Checks that the attribute can be given that value now. Returns both.
    fn check_attribute(
        &self,
        name: &str,
        value: &str,
    ) -> Result<(&'static AttributeInfo, Value), Error> {
        let known = self.attributes();
        let here = |a: &&AttributeInfo| known.iter().any(|k| k.name == a.key.name);
        let Some(attribute) = find_attribute(name).filter(here) else {
            return Err(self.no_attribute(name));
        };
        if !attribute.is_writable() {
            let writable = known.iter().filter(|a| a.writable).map(|a| a.name).collect();
            return Err(AttributeError::ReadOnly { name: name.to_owned(), writable }.into());
        }
        let layout = self.layout();
        let mut config = layout.config.clone();
        let value = attribute.read(value)?;
        attribute.set(&mut config, value.clone());
        match attribute.key.name {
            "zone_write_depth" => check_zone_depth(&layout.limits, &config)?,
            "scheduler" if config.mode == Mode::Lock && config.scheduler == Scheduler::None => {
                return Err(AttributeError::LocksWithoutScheduler.into());
            }
            "scheduler" | "zoned_qd1_writes" => check_zone_depth(&layout.limits, &config)
                .map_err(|e| e.hint("set zone_write_depth to 1 first"))?,
            _ => {}
        }
        Ok((attribute, value))
    }

    /// Notes a change that waits for the disk to drain, unless it contradicts another one. That one was checked when
    /// the disk had neither value yet.
    fn note_change(&self, change: PendingChange) -> Result<(), Error> {
        let mut all = lock(&self.shared.changes);
        let layout = self.layout();
        let contradicts = |other: &&PendingChange| {
            let both = change.apply(other.apply(layout.config.clone()));
            other.name == change.name && other.value != change.value
                || check_zone_depth(&layout.limits, &both).is_err()
        };
        if let Some(other) = all.iter().find(contradicts) {
            let (change, pending) = (change.text, other.text.clone());
            return Err(AttributeError::Pending { change, pending }.into());
        }
        all.push(change);
        Ok(())
    }

    fn commit(&self, attribute: &AttributeInfo, value: Value) {
        let mut layout = lock(&self.shared.layout);
        let mut config = layout.config.clone();
        attribute.set(&mut config, value);
        debug_assert!(
            attribute.change != Change::Drained
                || self.shared.single_writers.iter().all(|g| g.0.inspect().is_idle())
                    && self.scheduled() == 0,
            "Q9: nothing waits on a disk that is drained"
        );
        let new = Layout::new(layout.geometry, layout.limits.clone(), config, layout.words.clone());
        self.shared.note(&new);
        *layout = Arc::new(new);
        drop(layout);
        self.shared.bump();
    }
}

/// Checks that the other attributes allow several writes of a zone in flight.
fn check_zone_depth(limits: &Limits, config: &DiskConfig) -> Result<(), Error> {
    let n = config.zone_write_depth;
    match no_zone_depth(limits, config) {
        Some((with, instead)) if n > 1 => {
            Err(AttributeError::ZoneDepth { depth: n.into(), with, instead }.into())
        }
        _ => Ok(()),
    }
}
