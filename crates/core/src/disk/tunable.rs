//! Attributes that can be changed while the disk is in use: what they are called, what they take, and how a change
//! takes effect.
//!
//! Most hold from each queue's next call on. Those that say who sends what are changed while the disk is drained (Q9):
//! [`Disk::change_attribute`] freezes it for as long as that takes.

use super::config::{DiskConfig, MAX_ZONE_WRITES, Mode, ZoneRecovery};
use super::freeze::Freeze;
use super::{Attribute, Disk};
use crate::disk::snapshot::{Layout, no_zone_depth};
use crate::error::{Error, ErrorKind};
use crate::planted::{Bug, planted};
use crate::sched::{Balance, Policy, Scheduler};
use crate::sync::lock;
use crate::unit::Nanos;
use crate::zone::Limits;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// A change of an attribute under way: [`poll`](AttributeChange::poll) it until it has taken effect, and every queue
/// of the disk meanwhile, for they may have to drain. Dropping it earlier leaves the attribute as it was.
#[derive(Debug)]
pub struct AttributeChange {
    disk: Disk,
    name: String,
    value: String,
    freeze: Option<Freeze>,
    done: bool,
}

impl AttributeChange {
    /// Whether the new value is in effect.
    pub fn poll(&mut self) -> bool {
        if !self.done && self.freeze.as_ref().is_none_or(Freeze::poll) {
            if planted(Bug::ThawBeforeChange) {
                self.freeze = None;
            }
            // It has been checked, and nothing that could make it invalid changes.
            self.done = self.disk.commit(&self.name, &self.value).is_ok();
            self.freeze = None;
        }
        self.done
    }
}

impl Disk {
    /// Starts to change an attribute of a disk in use.
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
        self.check_attribute(name, value)?;
        let freeze =
            (needs_drained(name) && !planted(Bug::ToggleAtOnce)).then(|| self.begin_freeze());
        Ok(AttributeChange {
            disk: self.clone(),
            name: name.to_owned(),
            value: value.to_owned(),
            freeze,
            done: false,
        })
    }

    /// Changes an attribute at once. One that needs a drained disk is refused as busy unless no queue is open, or it
    /// has that value: see [`Disk::change_attribute`].
    pub fn set_attribute(&self, name: &str, value: &str) -> Result<(), Error> {
        let mut change = self.change_attribute(name, value)?;
        if self.attribute(name).as_deref() == Some(value) || change.poll() {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Busy, format!("{name} is changed while the disk is drained"))
            .hint("use change_attribute and poll every queue, or close the queues"))
    }

    fn check_attribute(&self, name: &str, value: &str) -> Result<(), Error> {
        let known = self.attributes();
        let Some(attribute) = known.iter().find(|a| a.name == name) else {
            return Err(Error::new(ErrorKind::NotFound, format!("there is no attribute {name}"))
                .hint(format!("attributes: {}", names(known.iter()))));
        };
        if !attribute.writable {
            return Err(Error::invalid(format!("the attribute {name} cannot be changed")).hint(
                format!("writable attributes: {}", names(known.iter().filter(|a| a.writable))),
            ));
        }
        let layout = self.layout();
        let mut config = layout.config.clone();
        set(&mut config, name, value)?;
        match name {
            "zone_write_depth" => check_zone_depth(&layout.limits, &config),
            "scheduler" | "zoned_qd1_writes" => check_zone_depth(&layout.limits, &config)
                .map_err(|e| e.hint("set zone_write_depth to 1 first")),
            _ => Ok(()),
        }
    }

    fn commit(&self, name: &str, value: &str) -> Result<(), Error> {
        let mut layout = lock(&self.shared.layout);
        let mut config = layout.config.clone();
        set(&mut config, name, value)?;
        debug_assert!(
            !needs_drained(name)
                || planted(Bug::ToggleAtOnce)
                || planted(Bug::ThawBeforeChange)
                || self.shared.gates.iter().all(|g| lock(&g.0).is_idle()) && self.scheduled() == 0,
            "Q9: nobody waits on a disk that is drained"
        );
        let new = Layout::new(layout.geometry, layout.limits.clone(), config);
        self.shared.note(&new);
        *layout = Arc::new(new);
        drop(layout);
        self.shared.bump();
        Ok(())
    }
}

/// The attributes of a disk that can be changed.
pub(super) fn all(layout: &Layout) -> Vec<Attribute> {
    let c = &layout.config;
    let flag = |b: bool| u8::from(b).to_string();
    let rw = |name, value| Attribute { name, value, writable: true };
    let mut all =
        vec![rw("nomerges", flag(c.nomerges)), rw("strict_management", flag(c.strict_management))];
    let sequential = layout.geometry.nr_conventional() < layout.geometry.nr_zones();
    // Q9: a disk without sequential zones, or without plugs, has none to hide.
    if c.mode == Mode::Plug && sequential {
        all.extend([
            rw("zoned_qd1_writes", flag(layout.gated)),
            rw("zoned_qd1_policy", c.zoned_qd1_policy.to_string()),
            rw("anticipation_us", (c.anticipation.0 / 1000).to_string()),
            rw("zone_deadline_ms", (c.zone_deadline.0 / 1_000_000).to_string()),
            rw("zone_write_depth", layout.zone_depth.to_string()),
            rw("zone_recovery", recovery(layout).name().to_owned()),
        ]);
    }
    all.push(rw("scheduler", layout.scheduler().to_string()));
    if layout.scheduled {
        let balance = match c.read_write_balance {
            None => "0".to_owned(),
            Some(b) => format!("{}/{}", ms(b.write), ms(b.read)),
        };
        all.extend([
            rw("queue_depth", c.queue_depth.to_string()),
            rw("read_write_balance", balance),
        ]);
    }
    if layout.scheduler() == Scheduler::MqDeadline {
        let d = &c.deadline;
        all.extend([
            rw("read_expire", ms(d.read_expire).to_string()),
            rw("write_expire", ms(d.write_expire).to_string()),
            rw("fifo_batch", d.fifo_batch.to_string()),
            rw("writes_starved", d.writes_starved.to_string()),
            rw("prio_aging_expire", ms(d.prio_aging_expire).to_string()),
        ]);
    }
    all
}

fn recovery(layout: &Layout) -> ZoneRecovery {
    if layout.zone_recovery { ZoneRecovery::Auto } else { ZoneRecovery::Client }
}

fn ms(t: Nanos) -> u64 {
    t.0 / MS
}

/// Nanoseconds of a millisecond.
const MS: u64 = 1_000_000;

/// Whether an attribute is changed while the disk is drained.
fn needs_drained(name: &str) -> bool {
    matches!(name, "zoned_qd1_writes" | "scheduler" | "zone_write_depth")
}

/// Several writes of a zone in flight do not go with everything.
pub(super) fn check_zone_depth(limits: &Limits, config: &DiskConfig) -> Result<(), Error> {
    let n = config.zone_write_depth;
    if n == 0 || n > MAX_ZONE_WRITES {
        return Err(Error::invalid(format!("zone_write_depth of {n}"))
            .hint(format!("it is a number of 1 to {MAX_ZONE_WRITES}")));
    }
    match no_zone_depth(limits, config) {
        Some((why, what)) if n > 1 => {
            let text = format!("zone_write_depth={n} does not go with {why}");
            Err(Error::new(ErrorKind::NotSupported, text).hint(what))
        }
        _ => Ok(()),
    }
}

/// Sets one attribute, or says what it takes.
fn set(config: &mut DiskConfig, name: &str, value: &str) -> Result<(), Error> {
    match name {
        "nomerges" => config.nomerges = flag(name, value)?,
        "strict_management" => config.strict_management = flag(name, value)?,
        "zoned_qd1_writes" => config.zoned_qd1_writes = Some(flag(name, value)?),
        "zoned_qd1_policy" => {
            let policies = Policy::ALL.map(Policy::name);
            config.zoned_qd1_policy = Policy::from_name(value)
                .ok_or_else(|| choice(name, value, &policies.join(", ")))?;
        }
        "anticipation_us" => config.anticipation = span(name, value, 1_000)?,
        "zone_deadline_ms" => config.zone_deadline = span(name, value, MS)?,
        "zone_write_depth" => {
            let most = u32::from(MAX_ZONE_WRITES);
            config.zone_write_depth = number(name, value, 1..=most)? as u16;
        }
        "zone_recovery" => {
            let names = ZoneRecovery::ALL.map(ZoneRecovery::name).join(", ");
            let known = ZoneRecovery::from_name(value);
            config.zone_recovery = Some(known.ok_or_else(|| choice(name, value, &names))?);
        }
        "scheduler" => {
            let scheduler = Scheduler::from_name(value)
                .ok_or_else(|| choice(name, value, &Scheduler::NAMES.join(", ")))?;
            if config.mode == Mode::Lock && scheduler == Scheduler::None {
                return Err(Error::invalid("zone locks need a scheduler".to_owned())
                    .hint("use mq-deadline, or open the disk with mode=plug"));
            }
            config.scheduler = scheduler;
        }
        "queue_depth" => config.queue_depth = number(name, value, 0..=65_535)?,
        "read_write_balance" => config.read_write_balance = balance(name, value)?,
        "read_expire" => config.deadline.read_expire = span(name, value, MS)?,
        "write_expire" => config.deadline.write_expire = span(name, value, MS)?,
        "fifo_batch" => config.deadline.fifo_batch = number(name, value, 1..=65_535)?,
        "writes_starved" => config.deadline.writes_starved = number(name, value, 0..=65_535)?,
        "prio_aging_expire" => config.deadline.prio_aging_expire = span(name, value, MS)?,
        _ => return Err(Error::invalid(format!("the attribute {name} cannot be changed"))),
    }
    Ok(())
}

fn flag(name: &str, value: &str) -> Result<bool, Error> {
    match value {
        "0" => Ok(false),
        "1" => Ok(true),
        _ => Err(Error::invalid(format!("{name} is 0 or 1, not {value}"))
            .hint(format!("set {name} to 0 or to 1"))),
    }
}

fn choice(name: &str, value: &str, of: &str) -> Error {
    Error::invalid(format!("{name} is one of {of}, not {value}")).hint("use one of these")
}

/// Longest span that an attribute takes: a day.
const LONGEST: u64 = 86_400_000_000_000;

/// A number of units of `ns` nanoseconds.
fn span(name: &str, value: &str, ns: u64) -> Result<Nanos, Error> {
    let most = LONGEST / ns;
    match value.parse::<u64>() {
        Ok(n) if n <= most => Ok(Nanos(n * ns)),
        _ => Err(Error::invalid(format!("{name} is a number of 0 to {most}, not {value}"))
            .hint("the unit is in the name; 0 switches it off")),
    }
}

fn number(name: &str, value: &str, range: RangeInclusive<u32>) -> Result<u32, Error> {
    let (least, most) = (range.start(), range.end());
    value.parse().ok().filter(|n| range.contains(n)).ok_or_else(|| {
        Error::invalid(format!("{name} is a number of {least} to {most}, not {value}"))
            .hint("use one of these")
    })
}

/// `100/50`: milliseconds for writes, then for reads. `0`: off.
fn balance(name: &str, value: &str) -> Result<Option<Balance>, Error> {
    if value == "0" {
        return Ok(None);
    }
    let (write, read) = value.split_once('/').ok_or_else(|| {
        Error::invalid(format!("{name} is two times, or 0, and not {value}"))
            .hint("100/50 gives writes 100 ms, then reads 50 ms; 0 switches it off")
    })?;
    Ok(Some(Balance { write: span(name, write, MS)?, read: span(name, read, MS)? }))
}

fn names<'a>(attributes: impl Iterator<Item = &'a Attribute>) -> String {
    attributes.map(|a| a.name).collect::<Vec<_>>().join(", ")
}
