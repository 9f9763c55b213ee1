//! Measurements of a disk, for the socket and the metrics.

use crate::served::Served;
use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::time::{SystemTime, UNIX_EPOCH};
use zoneplug_control::client::{LatencyShown, Measured, OperationShown, ZoneSlow, ZoneWaiting};
use zoneplug_core::disk::EventKind;
use zoneplug_core::zone::Condition;
use zoneplug_host::{LatencyHistogram, SLOW_ZONES, ServedCounters, ServedOperation};

/// The start of this server, in seconds since 1970.
static STARTED: LazyLock<u64> = LazyLock::new(|| {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
});

/// Sets the start of the server to now.
pub(crate) fn begin() {
    LazyLock::force(&STARTED);
}

/// The conditions of zones, by name, in the order in which the page for readers shows them. A zone with an unknown write
/// pointer is `stale`.
pub(crate) const CONDITIONS: [(&str, Option<Condition>); 7] = [
    ("conventional", Some(Condition::NotWp)),
    ("full", Some(Condition::Full)),
    ("active", Some(Condition::Active)),
    ("stale", None),
    ("read_only", Some(Condition::ReadOnly)),
    ("offline", Some(Condition::Offline)),
    ("empty", Some(Condition::Empty)),
];

/// The measurements of a disk. `counters`: those of its door.
pub(crate) fn measure(served: &Served, counters: &ServedCounters) -> Measured {
    let disk = served.disk.disk();
    let (all, census) = (disk.counters(), disk.census(SLOW_ZONES));
    let zones = |condition: Option<Condition>| match condition {
        None => census.stale,
        Some(c) => census.conditions.iter().find(|n| n.condition == c).map_or(0, |n| n.zones),
    };
    let conditions = CONDITIONS.map(|(name, c)| (name.to_owned(), u64::from(zones(c))));
    let events = EventKind::ALL.map(|k| (k.name().replace('-', "_"), disk.event_count(k)));
    let waiting =
        |w: &zoneplug_core::disk::ZoneWaiting| ZoneWaiting { zone: w.zone.0, waiting: w.bios };
    let slow = counters.slow_zones.iter().map(|z| ZoneSlow {
        zone: z.zone.0,
        op: z.op.name().to_owned(),
        longest_ns: z.took.0,
    });
    Measured {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        started_unix_s: *STARTED,
        operations: counters.operations.iter().map(operation).collect(),
        issued: all.plugs.issued,
        parked: all.plugs.parked,
        merged: all.plugs.merged,
        aborted: all.plugs.aborted,
        timeouts: all.timeouts,
        late: all.late,
        events: BTreeMap::from(events),
        conditions: BTreeMap::from(conditions),
        waiting_zones: census.waiting.iter().map(waiting).collect(),
        slow_zones: slow.collect(),
    }
}

fn operation(o: &ServedOperation) -> OperationShown {
    OperationShown {
        op: o.op.name().to_owned(),
        count: o.succeeded,
        bytes: o.bytes,
        errors: o.failed,
        latency: o.latency.as_ref().map(latency),
    }
}

fn latency(h: &LatencyHistogram) -> LatencyShown {
    let used = h.buckets.iter().rposition(|n| *n > 0).map_or(0, |last| last + 1);
    LatencyShown { sum_ns: h.sum.0, buckets: h.buckets[..used].to_vec() }
}
