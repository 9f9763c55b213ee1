//! The table of attributes: every attribute at its bounds and one beyond, under each of its names, in a `DiskConfig`
//! and as a change of a disk in use. `crates/host/tests/hosted/spec_keys.rs` does the same through specifications.

use std::collections::BTreeSet;
use zoneplug_core::disk::{ATTRIBUTES, AttributeInfo, Change, Disk, DiskConfig, find_attribute};
use zoneplug_core::form::{DefaultValue, Edges, Form, MS, US};
use zoneplug_core::sched::Balance;
use zoneplug_core::{Error, ErrorKind, Nanos};
use zoneplug_devices::emu::EmuDisk;

/// A device that all attributes go with.
const DEVICE: &str = "null,zones=8,zone-size=64K,ordered=1";

fn open(config: DiskConfig) -> Result<Disk, Error> {
    let device = EmuDisk::new(DEVICE.parse().unwrap()).unwrap();
    Disk::open(device, config, &mut |next| next.unwrap_or(Nanos(0)))
}

/// The configuration that a program makes from attributes as text.
fn config(options: &str) -> DiskConfig {
    let mut config = DiskConfig::default();
    for option in options.split(',').filter(|o| !o.is_empty()) {
        let (name, value) = option.split_once('=').unwrap();
        let attribute = find_attribute(name).unwrap();
        let value = attribute.key.form.read(value).unwrap();
        attribute.set(&mut config, value);
    }
    config
}

/// A disk that has the attribute, in use.
fn disk_with(attribute: &AttributeInfo) -> Disk {
    let scheduled = ["", "scheduler=mq-deadline"].map(|o| open(config(o)).unwrap());
    let has = |d: &Disk| d.attribute(attribute.key.name).is_some();
    scheduled.into_iter().find(has).unwrap_or_else(|| panic!("no disk has {}", attribute.key.name))
}

fn names(attribute: &AttributeInfo) -> impl Iterator<Item = &'static str> {
    std::iter::once(attribute.key.name).chain(attribute.key.aliases.iter().copied())
}

fn keys() -> impl Iterator<Item = &'static AttributeInfo> {
    ATTRIBUTES.iter().filter(|a| a.is_key())
}

#[test]
fn no_two_attributes_share_a_name_and_each_is_explained() {
    let all: Vec<_> = ATTRIBUTES.iter().flat_map(names).collect();
    assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len());
    for a in &ATTRIBUTES {
        assert!(a.key.about.ends_with('.') && a.key.about.len() <= 90, "{}", a.key.about);
        assert_eq!(a.is_key(), a.change != Change::Never, "{}", a.key.name);
        for name in names(a) {
            assert_eq!(find_attribute(name).unwrap().key.name, a.key.name);
        }
    }
    // Today's short keys.
    for (alias, name) in [
        ("qd1", "zoned_qd1_writes"),
        ("policy", "zoned_qd1_policy"),
        ("strict", "strict_management"),
        ("anticipation-us", "anticipation_us"),
        ("zone-deadline-ms", "zone_deadline_ms"),
        ("zone-write-depth", "zone_write_depth"),
        ("zone-recovery", "zone_recovery"),
        ("queue-depth", "queue_depth"),
        ("emulate-append", "emulate_append"),
        ("timeout", "io_timeout"),
    ] {
        assert_eq!(find_attribute(alias).unwrap().key.name, name);
    }
}

/// A disk opens with every attribute at its bounds, and shows it.
#[test]
fn a_disk_opens_with_every_attribute_at_its_bounds() {
    for a in keys() {
        for value in &a.key.form.edges().good {
            for name in names(a) {
                let disk = open(config(&format!("{name}={value}")));
                let disk = disk.unwrap_or_else(|e| panic!("{name}={value}: {e}"));
                if let Some(shown) = disk.attribute(name) {
                    assert_eq!(a.key.form.read(&shown), a.key.form.read(value), "{name}");
                }
            }
        }
    }
}

/// A disk in use: the same bounds, the same names.
#[test]
fn a_disk_in_use_takes_every_writable_attribute_within_its_bounds() {
    for a in ATTRIBUTES.iter().filter(|a| a.is_writable()) {
        let disk = disk_with(a);
        let Edges { good, bad } = a.key.form.edges();
        for name in names(a) {
            for value in &good {
                disk.set_attribute(name, value).unwrap_or_else(|e| panic!("{name}={value}: {e}"));
                let same = a.key.name == "scheduler"
                    || a.key.form.read(&disk.attribute(a.key.name).unwrap())
                        == a.key.form.read(value);
                assert!(same, "{name}={value}");
                if a.key.name == "zone_write_depth" {
                    disk.set_attribute(name, "1").unwrap();
                }
            }
            let before = disk.attribute(name).unwrap();
            for value in &bad {
                let e = disk.set_attribute(name, value).unwrap_err();
                assert_eq!(e.kind(), ErrorKind::Invalid, "{name}={value}");
                assert!(e.to_string().contains(&a.key.form.allowed()), "{e}");
                assert_eq!(disk.attribute(name).unwrap(), before);
            }
        }
    }
}

#[test]
fn an_attribute_that_is_set_at_opening_cannot_be_changed_later() {
    for a in ATTRIBUTES.iter().filter(|a| !a.is_writable()) {
        // A disk of one spindle has no such attribute.
        if a.key.name == "spindles" {
            continue;
        }
        let disk = disk_with(a);
        for name in names(a) {
            let e = disk.set_attribute(name, "1").err().unwrap();
            assert!(e.to_string().contains("cannot be changed"), "{name}: {e}");
        }
    }
}

/// A program that fills in a `DiskConfig` by hand: what its types allow beyond the table is refused when it opens the
/// disk.
#[test]
fn a_configuration_beyond_a_bound_opens_no_disk() {
    const DAY: u64 = 86_400_000 * MS;
    type Set = fn(&mut DiskConfig);
    let beyond: [(&str, Set); 20] = [
        ("io_timeout", |c| c.timeout = Some(Nanos(0))),
        ("io_timeout", |c| c.timeout = Some(Nanos(DAY + 1))),
        ("anticipation_us", |c| c.anticipation = Nanos(1_000_000 * US + 1)),
        ("zone_deadline_ms", |c| c.zone_deadline = Nanos(3_600_000 * MS + 1)),
        ("zone_write_depth", |c| c.zone_write_depth = 0),
        ("zone_write_depth", |c| c.zone_write_depth = 1025),
        ("order_window", |c| c.order_window = Nanos(DAY + 1)),
        ("queue_depth", |c| c.queue_depth = 65_536),
        ("read_write_balance", |c| c.read_write_balance = balance(DAY + 1, 0)),
        ("read_write_balance", |c| c.read_write_balance = balance(0, DAY + 1)),
        ("read_expire", |c| c.deadline.read_expire = Nanos(DAY + 1)),
        ("write_expire", |c| c.deadline.write_expire = Nanos(DAY + 1)),
        ("prio_aging_expire", |c| c.deadline.prio_aging_expire = Nanos(DAY + 1)),
        ("fifo_batch", |c| c.deadline.fifo_batch = 0),
        ("fifo_batch", |c| c.deadline.fifo_batch = 65_536),
        ("writes_starved", |c| c.deadline.writes_starved = 65_536),
        // The last value that is taken.
        ("", |c| c.anticipation = Nanos(1_000_000 * US)),
        ("", |c| c.zone_deadline = Nanos(3_600_000 * MS)),
        ("", |c| c.queue_depth = 65_535),
        ("", |c| c.timeout = Some(Nanos(1))),
    ];
    for (name, set) in &beyond {
        let mut c = DiskConfig::default();
        set(&mut c);
        match (open(c), *name) {
            (result, "") => assert!(result.is_ok()),
            (result, name) => {
                let e = result.unwrap_err();
                assert_eq!(e.kind(), ErrorKind::Invalid);
                assert!(e.to_string().starts_with(&format!("{name} is ")), "{e}");
            }
        }
    }
    // An attribute is in this list, or its type has no value beyond its form.
    for a in keys().filter(|a| !matches!(a.key.form, Form::Flag | Form::Choice(_))) {
        assert!(beyond.iter().any(|(name, _)| *name == a.key.name), "{}", a.key.name);
    }
}

fn balance(write: u64, read: u64) -> Option<Balance> {
    Some(Balance { write: Nanos(write), read: Nanos(read) })
}

/// The default of the table is that of a `DiskConfig`.
#[test]
fn a_default_may_as_well_be_written() {
    for a in keys() {
        match a.key.default {
            DefaultValue::Is(value) => {
                let written = config(&format!("{}={value}", a.key.name));
                assert_eq!(written, DiskConfig::default(), "{}", a.key.name);
            }
            DefaultValue::Means(words) => assert!(!words.is_empty()),
            DefaultValue::Required => panic!("{} has no default", a.key.name),
        }
    }
}

/// A field that is new in `DiskConfig` does not compile here: it belongs into the table, or into the list of those that
/// only programs set.
#[test]
fn every_field_of_a_configuration_is_an_attribute_or_for_programs_only() {
    let DiskConfig {
        mode: _,
        nomerges: _,
        emulate_append: _,
        strict_management: _,
        zoned_qd1_writes: _,
        zoned_qd1_policy: _,
        anticipation: _,
        zone_deadline: _,
        zone_write_depth: _,
        zone_recovery: _,
        order_window: _,
        scheduler: _,
        // Five attributes.
        deadline: _,
        queue_depth: _,
        read_write_balance: _,
        timeout: _,
        // For programs only.
        zone_counters: _,
        survive_panics: _,
        shards: _,
    } = DiskConfig::default();
    assert_eq!(keys().count(), 16 - 1 + 5);
}

/// Times that are no whole number of the attribute's unit are shown with a unit of their own, and taken again.
#[test]
fn a_time_is_shown_as_it_is() {
    let disk = open(DiskConfig { anticipation: Nanos(1_500), ..DiskConfig::default() }).unwrap();
    assert_eq!(disk.attribute("anticipation_us").unwrap(), "1500ns");
    disk.set_attribute("anticipation_us", "1500ns").unwrap();
    disk.set_attribute("anticipation-us", "1ms").unwrap();
    assert_eq!(disk.attribute("anticipation_us").unwrap(), "1000");
    assert_eq!(disk.attribute("io_timeout").unwrap(), "none");
    let disk = open(config("timeout=30s")).unwrap();
    assert_eq!(disk.attribute("io_timeout").unwrap(), "30000");
}
