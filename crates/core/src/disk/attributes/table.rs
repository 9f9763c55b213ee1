//! The table of attributes: the only place for their names, ranges, units and defaults.

use super::info::{AttributeInfo, Change, Get, Set, View, When};
use crate::disk::config::{MAX_TAGS, MAX_ZONE_WRITES, Mode, ZoneRecovery};
use crate::disk::snapshot::Layout;
use crate::form::{DefaultValue, Form, Key, MS, US, Value};
use crate::sched::{Balance, Policy, Scheduler};
use crate::unit::{Nanos, SECTOR_SHIFT};
use DefaultValue::{Is, Means};

/// The longest span that an attribute takes: a day.
const DAY: u64 = 86_400_000 * MS;
/// The longest wait of the single writer: a second.
const LONGEST_WAIT: u64 = 1_000_000 * US;
/// The longest deadline of a zone: an hour.
const LONGEST_DEADLINE: u64 = 3_600_000 * MS;
/// The largest number that fits 16 bits.
const MANY: u64 = 65_535;

/// The tags of each queue of a disk. This is a key of specifications only, because each queue has its own number.
///
/// ```
/// assert!(zoneplug_core::disk::TAGS.form.read("4097").is_none());
/// ```
pub const TAGS: Key = Key {
    name: "tags",
    aliases: &[],
    form: Form::Number { min: 1, max: MAX_TAGS as u64, unit: "commands" },
    default: Means("32, or as many as a modelled drive has"),
    about: "Most commands of a queue at the device. A BIO that waits in a plug has no tag.",
};

/// Every attribute, in the order in which they are listed.
///
/// ```
/// use zoneplug_core::disk::ATTRIBUTES;
/// let anticipation = ATTRIBUTES.iter().find(|a| a.key.is("anticipation-us")).unwrap();
/// assert_eq!(anticipation.key.name, "anticipation_us");
/// assert_eq!(anticipation.key.form.range(), "0..1000000 us");
/// ```
pub static ATTRIBUTES: [AttributeInfo; 33] = [
    device("zoned", Form::Choice(&["host-managed"]), "The zone model.", |_| number(0)),
    device("nr_zones", count("zones"), "Zones of the disk.", |v| {
        number(v.layout.geometry.nr_zones())
    }),
    device("chunk_sectors", count("sectors"), "Sectors of 512 bytes in a zone.", |v| {
        number(v.layout.geometry.zone_sectors())
    }),
    device(
        "zone_write_granularity",
        count("bytes"),
        "The length and the place of a write to a sequential zone are multiples of this.",
        |v| bytes(v.layout.limits.write_granularity_sectors),
    ),
    device(
        "zone_append_max_bytes",
        count("bytes"),
        "The longest zone append; 0: the disk has none.",
        |v| bytes(if append(v.layout) == NO_APPEND { 0 } else { v.layout.append_max }),
    ),
    device(
        "max_open_zones",
        count("zones"),
        "Most open zones; 0: no limit that can be reached.",
        |v| reachable(v.layout, open_zones(v.layout)),
    ),
    device(
        "max_active_zones",
        count("zones"),
        "Most active zones, open or closed; 0: no limit that can be reached.",
        |v| reachable(v.layout, v.layout.limits.max_active_zones),
    ),
    device(
        "logical_block_size",
        count("bytes"),
        "The length and the place of each I/O are multiples of this.",
        |v| bytes(v.layout.limits.logical_block_sectors),
    ),
    device("max_transfer_bytes", count("bytes"), "The longest command with data.", |v| {
        bytes(v.layout.limits.max_transfer_sectors)
    }),
    device("fua", Form::Flag, "Whether the device carries out FUA by itself.", |v| {
        number(u32::from(v.layout.limits.fua))
    }),
    device("rotational", Form::Flag, "Whether the medium turns.", |v| {
        number(u32::from(v.layout.limits.rotational))
    }),
    device(
        "zone_append",
        Form::Choice(&["native", "emulated", "none"]),
        "What carries out a zone append: the device, the layer, or neither.",
        |v| number(append(v.layout)),
    ),
    at_open(
        "mode",
        &[],
        Form::Choice(&Mode::NAMES),
        Is("plug"),
        "What orders writes: plugs, nothing, or zone locks in a scheduler.",
        |c| index(&Mode::ALL, c.mode),
        |c, v| c.mode = Mode::ALL[v.number() as usize],
    ),
    at_open(
        "emulate_append",
        &["emulate-append"],
        Form::Flag,
        Is("0"),
        "The layer emulates zone append although the device has it.",
        |c| flag(c.emulate_append),
        |c, v| c.emulate_append = v.number() == 1,
    ),
    at_open(
        "io_timeout",
        &["timeout"],
        Form::Span { unit: "ms", min: 1, max: DAY },
        Means("none"),
        "A command that takes longer ends with the status timeout, its outcome unknown.",
        |c| c.timeout.map(|t| Value::Number(t.0)),
        |c, v| c.timeout = Some(Nanos(v.number())),
    ),
    device(
        "spindles",
        count("spindles"),
        "Single writers of a joined disk: one for each device that turns.",
        |v| Value::Number(v.spindles as u64),
    )
    // A number is needed only if there is more than one spindle, and only with a single writer.
    .when(SPINDLES),
    in_use(
        "nomerges",
        &[],
        Form::Flag,
        Is("0"),
        "One BIO in a command: writes next to each other are not merged.",
        |c| flag(c.nomerges),
        |c, v| c.nomerges = v.number() == 1,
    ),
    in_use(
        "strict_management",
        &["strict"],
        Form::Flag,
        Is("0"),
        "A reset or a finish of a zone with writes in flight fails.",
        |c| flag(c.strict_management),
        |c, v| c.strict_management = v.number() == 1,
    ),
    in_use(
        "zoned_qd1_writes",
        &["qd1"],
        Form::Flag,
        Means("1 on a device that turns, else 0"),
        "A single writer: one write to sequential zones at a time, zone after zone.",
        |c| c.zoned_qd1_writes.and_then(flag),
        |c, v| c.zoned_qd1_writes = Some(v.number() == 1),
    )
    .drained()
    .when(PLUGS)
    .shown(|v| number(u32::from(v.layout.single_writer))),
    in_use(
        "zoned_qd1_policy",
        &["policy"],
        Form::Choice(&Policy::NAMES),
        Is("fifo"),
        "Which zone the single writer takes next (expressions: bench --policy, virtual time).",
        |c| index(&Policy::ALL, c.zoned_qd1_policy),
        |c, v| c.zoned_qd1_policy = Policy::ALL[v.number() as usize],
    )
    .when(PLUGS)
    // A program's own policy has no number.
    .shown(|v| Value::Text(v.layout.writer_params.policy.name().to_owned())),
    in_use(
        "anticipation_us",
        &["anticipation-us"],
        Form::Span { unit: "us", min: 0, max: LONGEST_WAIT },
        Is("0"),
        "How long the single writer waits for the next write of its zone; 0: it does not.",
        |c| span(c.anticipation),
        |c, v| c.anticipation = Nanos(v.number()),
    )
    .when(PLUGS),
    in_use(
        "zone_deadline_ms",
        &["zone-deadline-ms"],
        Form::Span { unit: "ms", min: 0, max: LONGEST_DEADLINE },
        Is("0"),
        "How long a zone waits for the single writer before it is next; 0: no limit.",
        |c| span(c.zone_deadline),
        |c, v| c.zone_deadline = Nanos(v.number()),
    )
    .when(PLUGS),
    in_use(
        "zone_write_depth",
        &["zone-write-depth"],
        Form::Number { min: 1, max: MAX_ZONE_WRITES as u64, unit: "writes" },
        Is("1"),
        "Most writes of a zone in flight. Above 1 only where the device keeps their order.",
        |c| Some(Value::Number(u64::from(c.zone_write_depth))),
        |c, v| c.zone_write_depth = v.number() as u16,
    )
    .drained()
    .when(PLUGS)
    .shown(|v| number(u32::from(v.layout.zone_depth))),
    in_use(
        "zone_recovery",
        &["zone-recovery"],
        Form::Choice(&ZoneRecovery::NAMES),
        Means("auto where the layer emulates appends, else client"),
        "What finds the write pointer after a failed write: the layer, or the client.",
        |c| c.zone_recovery.and_then(|r| index(&ZoneRecovery::ALL, r)),
        |c, v| c.zone_recovery = Some(ZoneRecovery::ALL[v.number() as usize]),
    )
    .when(PLUGS)
    .shown(|v| number(u32::from(!v.layout.zone_recovery))),
    in_use(
        "order_window",
        &["order-window"],
        Form::Span { unit: "ms", min: 0, max: DAY },
        Is("0"),
        "How long a write that comes before its place in the zone is held; 0: it is refused.",
        |c| span(c.order_window),
        |c, v| c.order_window = Nanos(v.number()),
    )
    .when(PLUGS),
    in_use(
        "scheduler",
        &[],
        Form::Choice(&Scheduler::NAMES),
        Means("none; mq-deadline with mode=lock"),
        "What decides which request gets a tag first.",
        |c| scheduler(c.scheduler),
        |c, v| {
            let name = Scheduler::NAMES[v.number() as usize];
            c.scheduler = Scheduler::from_name(name).unwrap_or_default();
        },
    )
    .drained()
    .shown(|v| scheduler(v.layout.scheduler()).unwrap_or(Value::Number(0))),
    in_use(
        "queue_depth",
        &["queue-depth"],
        Form::Number { min: 0, max: MANY, unit: "commands" },
        Is("0"),
        "With a scheduler: most commands at the device; 0: as many as there are tags.",
        |c| Some(Value::Number(u64::from(c.queue_depth))),
        |c, v| c.queue_depth = v.number() as u32,
    )
    .when(SCHEDULED),
    in_use(
        "read_write_balance",
        &[],
        Form::Balance { max: DAY },
        Is("0"),
        "With a scheduler: how writes and reads share the time while both wait.",
        |c| {
            let none = Value::Number(0);
            Some(c.read_write_balance.map_or(none, |b| Value::Pair(b.write.0, b.read.0)))
        },
        |c, v| {
            c.read_write_balance = match v {
                Value::Pair(w, r) => Some(Balance { write: Nanos(w), read: Nanos(r) }),
                _ => None,
            };
        },
    )
    .when(SCHEDULED),
    in_use(
        "read_expire",
        &[],
        Form::Span { unit: "ms", min: 0, max: DAY },
        Is("500"),
        "mq-deadline: how long a read waits for requests in better places.",
        |c| span(c.deadline.read_expire),
        |c, v| c.deadline.read_expire = Nanos(v.number()),
    )
    .when(DEADLINES),
    in_use(
        "write_expire",
        &[],
        Form::Span { unit: "ms", min: 0, max: DAY },
        Is("5000"),
        "mq-deadline: how long a write waits for requests in better places.",
        |c| span(c.deadline.write_expire),
        |c, v| c.deadline.write_expire = Nanos(v.number()),
    )
    .when(DEADLINES),
    in_use(
        "fifo_batch",
        &[],
        Form::Number { min: 1, max: MANY, unit: "requests" },
        Is("16"),
        "mq-deadline: requests of a batch.",
        |c| Some(Value::Number(u64::from(c.deadline.fifo_batch))),
        |c, v| c.deadline.fifo_batch = v.number() as u32,
    )
    .when(DEADLINES),
    in_use(
        "writes_starved",
        &[],
        Form::Number { min: 0, max: MANY, unit: "batches" },
        Is("2"),
        "mq-deadline: batches of reads that may pass writes that wait.",
        |c| Some(Value::Number(u64::from(c.deadline.writes_starved))),
        |c, v| c.deadline.writes_starved = v.number() as u32,
    )
    .when(DEADLINES),
    in_use(
        "prio_aging_expire",
        &[],
        Form::Span { unit: "ms", min: 0, max: DAY },
        Is("10000"),
        "mq-deadline: how long a request waits for those of higher priority.",
        |c| span(c.deadline.prio_aging_expire),
        |c, v| c.deadline.prio_aging_expire = Nanos(v.number()),
    )
    .when(DEADLINES),
];

/// The index of `none` among the values of `zone_append`.
const NO_APPEND: u32 = 2;

/// Returns the index among the values of `zone_append`. Without plugs nothing emulates appends.
fn append(l: &Layout) -> u32 {
    match (l.native_append, l.plugs) {
        (true, _) => 0,
        (false, true) => 1,
        (false, false) => NO_APPEND,
    }
}

/// Returns the shown limit of open zones. A disk without a limit shows 128, a hint that may be exceeded. Conventional
/// zones do not count (O2).
fn open_zones(l: &Layout) -> u32 {
    const POOL: u32 = 128;
    match (l.limits.max_open_zones, l.limits.max_active_zones) {
        (0, 0) => POOL,
        (open, _) => open,
    }
}

/// Returns the shown limit of zones: a limit that no workload can reach is shown as none (O1).
fn reachable(l: &Layout, limit: u32) -> Value {
    let sequential = l.geometry.nr_zones() - l.geometry.nr_conventional();
    number(if limit >= sequential { 0 } else { limit })
}

const ALWAYS: When = When { holds: |_| true, with: "" };

/// Attributes of zones and of the single writer exist on a disk with plugs and sequential zones (Q9).
const PLUGS: When = When {
    holds: |v| {
        let g = &v.layout.geometry;
        v.layout.config.mode == Mode::Plug && g.nr_conventional() < g.nr_zones()
    },
    with: "mode=plug",
};

const SCHEDULED: When = When {
    holds: |v| v.layout.scheduled,
    with: "a scheduler or a single writer, such as scheduler=mq-deadline",
};

const DEADLINES: When = When {
    holds: |v| v.layout.scheduler() == Scheduler::MqDeadline,
    with: "scheduler=mq-deadline",
};

const SPINDLES: When = When {
    holds: |v| v.layout.single_writer && v.spindles > 1,
    with: "zoned_qd1_writes=1 and several drives that turn",
};

fn number(n: u32) -> Value {
    Value::Number(u64::from(n))
}

fn bytes(sectors: u32) -> Value {
    Value::Number(u64::from(sectors) << SECTOR_SHIFT)
}

fn span(t: Nanos) -> Option<Value> {
    Some(Value::Number(t.0))
}

fn flag(on: bool) -> Option<Value> {
    Some(Value::Number(u64::from(on)))
}

fn index<T: PartialEq>(all: &[T], one: T) -> Option<Value> {
    all.iter().position(|t| *t == one).map(|i| Value::Number(i as u64))
}

fn scheduler(s: Scheduler) -> Option<Value> {
    index(&Scheduler::NAMES, s.name())
}

const fn count(unit: &'static str) -> Form {
    Form::Number { min: 0, max: u64::MAX, unit }
}

/// An attribute that the device decides.
const fn device(
    name: &'static str,
    form: Form,
    about: &'static str,
    shown: fn(&View<'_>) -> Value,
) -> AttributeInfo {
    AttributeInfo {
        key: Key { name, aliases: &[], form, default: Means("the device's"), about },
        change: Change::Never,
        config: None,
        shown: Some(shown),
        when: ALWAYS,
    }
}

/// An attribute that is set when the disk is opened.
const fn at_open(
    name: &'static str,
    aliases: &'static [&'static str],
    form: Form,
    default: DefaultValue,
    about: &'static str,
    get: Get,
    set: Set,
) -> AttributeInfo {
    AttributeInfo {
        key: Key { name, aliases, form, default, about },
        change: Change::AtOpen,
        config: Some((get, set)),
        shown: None,
        when: ALWAYS,
    }
}

/// An attribute that can be changed while the disk is in use.
const fn in_use(
    name: &'static str,
    aliases: &'static [&'static str],
    form: Form,
    default: DefaultValue,
    about: &'static str,
    get: Get,
    set: Set,
) -> AttributeInfo {
    let opened = at_open(name, aliases, form, default, about, get, set);
    AttributeInfo { change: Change::InUse, ..opened }
}

impl AttributeInfo {
    /// Marks an attribute that is changed while the disk is drained.
    const fn drained(self) -> AttributeInfo {
        AttributeInfo { change: Change::Drained, ..self }
    }

    /// Marks an attribute that exists only on some disks.
    const fn when(self, when: When) -> AttributeInfo {
        AttributeInfo { when, ..self }
    }

    /// Marks an attribute that shows what the layer does, not the value that was set.
    const fn shown(self, shown: fn(&View<'_>) -> Value) -> AttributeInfo {
        AttributeInfo { shown: Some(shown), ..self }
    }
}
