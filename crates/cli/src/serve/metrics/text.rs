//! The metrics of a server in Prometheus's text format, made of what `zoneplug status` shows. docs/metrics.md lists them.

use crate::server_client::{LatencyShown, OperationShown, Shown};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::prometheus_text;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use std::collections::BTreeMap;
use std::fmt;

pub(super) use prometheus_text::CONTENT_TYPE;

/// The upper ends of the buckets that are shown, as powers of two of a nanosecond: 1 us to 17 s. What is faster is in the
/// first of them.
const BUCKETS: std::ops::RangeInclusive<u32> = 10..=34;

/// What a server shows at one moment.
#[derive(Debug)]
struct Scrape(Vec<Shown>);

/// The text for what a server shows now.
pub(super) fn of(disks: Vec<Shown>) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Scrape(disks)));
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = prometheus_text::encode(&mut text, &registry);
    text
}

/// Names and values of labels.
type Labels = Vec<(&'static str, String)>;

impl Collector for Scrape {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let disks = &self.0[..];
        let mut families = Families { encoder, disks };
        families.server()?;
        families.disks()?;
        families.operations()?;
        families.plugs()?;
        families.zones()?;
        families.network()
    }
}

struct Families<'a, 'e> {
    encoder: DescriptorEncoder<'e>,
    disks: &'a [Shown],
}

impl<'a> Families<'a, '_> {
    fn family<T>(
        &mut self,
        name: &str,
        help: &str,
        kind: MetricType,
        values: Vec<(Labels, T)>,
        encode: impl Fn(&mut MetricEncoder<'_>, T) -> fmt::Result,
    ) -> fmt::Result {
        if values.is_empty() {
            return Ok(());
        }
        let mut family = self.encoder.encode_descriptor(name, help, None, kind)?;
        for (labels, value) in values {
            encode(&mut family.encode_family(&&labels[..])?, value)?;
        }
        Ok(())
    }

    /// A counter. Its name gets the end `_total`.
    fn counter(&mut self, name: &str, help: &str, values: Vec<(Labels, u64)>) -> fmt::Result {
        let encode =
            |m: &mut MetricEncoder<'_>, v| m.encode_counter::<NoLabelSet, _, u64>(&v, None);
        self.family(name, help, MetricType::Counter, values, encode)
    }

    fn gauge(&mut self, name: &str, help: &str, values: Vec<(Labels, f64)>) -> fmt::Result {
        let encode = |m: &mut MetricEncoder<'_>, v| m.encode_gauge(&v);
        self.family(name, help, MetricType::Gauge, values, encode)
    }

    /// A value of each thing that each disk has.
    fn each<T, V>(
        &self,
        of: impl Fn(&'a Shown) -> &'a [T],
        value: impl Fn(&T) -> Option<(Labels, V)>,
    ) -> Vec<(Labels, V)>
    where
        T: 'a,
    {
        let labelled = |d: &'a Shown| {
            let values = of(d).iter().filter_map(&value);
            let with_disk = |(labels, v)| ([of_disk(d), labels].concat(), v);
            values.map(with_disk).collect::<Vec<_>>()
        };
        self.disks.iter().flat_map(labelled).collect()
    }

    /// A counter of each disk.
    fn count(&mut self, name: &str, help: &str, of: impl Fn(&Shown) -> u64) -> fmt::Result {
        let values = self.disks.iter().map(|d| (of_disk(d), of(d))).collect();
        self.counter(name, help, values)
    }

    /// A gauge of each disk.
    fn level(&mut self, name: &str, help: &str, of: impl Fn(&Shown) -> u64) -> fmt::Result {
        let values = self.disks.iter().map(|d| (of_disk(d), of(d) as f64)).collect();
        self.gauge(name, help, values)
    }

    fn server(&mut self) -> fmt::Result {
        let Some(m) = self.disks.first().map(|d| &d.measured) else { return Ok(()) };
        let version = vec![("version", m.version.clone())];
        self.gauge(
            "zoneplug_build_info",
            "The version of the server; the value is 1",
            vec![(version, 1.0)],
        )?;
        self.gauge(
            "process_start_time_seconds",
            "When the server began, in seconds since 1970",
            vec![(Vec::new(), m.started_unix_s as f64)],
        )
    }

    fn disks(&mut self) -> fmt::Result {
        let specs =
            self.disks.iter().map(|d| ([of_disk(d), vec![("spec", d.spec.clone())]].concat(), 1.0));
        let specs = specs.collect();
        self.gauge(
            "zoneplug_disk_info",
            "The specification of a served disk; the value is 1",
            specs,
        )?;
        self.level("zoneplug_disk_capacity_bytes", "Size of the disk", |d| d.capacity_bytes)?;
        self.level(
            "zoneplug_disk_taken_over",
            "1 if the disk was taken over from a server that had ended, else 0",
            |d| u64::from(d.recovered),
        )?;
        self.count(
            "zoneplug_replayed_requests",
            "Writes that came again after a server or connection had ended, and were on the disk already",
            |d| d.replayed,
        )
    }

    /// A value of each operation of each disk.
    fn of_operations<V>(&self, value: impl Fn(&OperationShown) -> Option<V>) -> Vec<(Labels, V)> {
        self.each(|d| &d.measured.operations[..], |o| Some((vec![("op", o.op.clone())], value(o)?)))
    }

    fn operations(&mut self) -> fmt::Result {
        let counts = self.of_operations(|o| Some(o.count));
        self.counter("zoneplug_io_operations", "Requests that succeeded", counts)?;
        let moves_data = |o: &OperationShown| ["read", "write", "zone_append"].contains(&&*o.op);
        let bytes = self.of_operations(|o| moves_data(o).then_some(o.bytes));
        self.counter("zoneplug_io_bytes", "Bytes of the requests that succeeded", bytes)?;
        let errors = self.of_operations(|o| Some(o.errors));
        self.counter("zoneplug_io_errors", "Requests that failed", errors)?;
        let latencies = self.of_operations(|o| o.latency.clone());
        self.family(
            "zoneplug_io_latency_seconds",
            "How long requests took from the server to the disk and back. \
             A busy queue times one in many, which counts for all",
            MetricType::Histogram,
            latencies,
            |m, latency| {
                let (buckets, sum) = (buckets(&latency), latency.sum_ns as f64 / 1e9);
                m.encode_histogram::<NoLabelSet>(sum, latency.total(), &buckets, None)
            },
        )
    }

    fn plugs(&mut self) -> fmt::Result {
        self.level("zoneplug_waiting_bios", "BIOs that wait in plugs", |d| d.waiting)?;
        self.level(
            "zoneplug_live_plugs",
            "Zones whose plug is in use: busy, stale or partly written",
            |d| u64::from(d.live_plugs),
        )?;
        self.count(
            "zoneplug_plug_commands",
            "Write commands that plugs have sent to the device",
            |d| d.measured.issued,
        )?;
        self.count("zoneplug_parked_bios", "BIOs that had to wait in a plug", |d| {
            d.measured.parked
        })?;
        self.count("zoneplug_merged_bios", "BIOs that left in the command of another BIO", |d| {
            d.measured.merged
        })?;
        self.count(
            "zoneplug_aborted_bios",
            "BIOs that waited in a plug and failed because a write before them had failed",
            |d| d.measured.aborted,
        )?;
        self.level(
            "zoneplug_order_window_writes",
            "Writes that came before their place and are held",
            |d| d.held,
        )?;
        self.count(
            "zoneplug_order_window_held_writes",
            "Writes that came before their place and were held for a time",
            |d| d.held_total,
        )?;
        self.count(
            "zoneplug_order_window_expired_writes",
            "Held writes that were refused because the gap before them did not fill in time",
            |d| d.held_expired,
        )?;
        self.count(
            "zoneplug_command_timeouts",
            "Commands that were given up because their time was over",
            |d| d.measured.timeouts,
        )?;
        self.level(
            "zoneplug_late_commands",
            "Commands that were given up and that the device still has",
            |d| d.measured.late,
        )
    }

    fn zones(&mut self) -> fmt::Result {
        let of_map = |of: fn(&Shown) -> &BTreeMap<String, u64>, label: &'static str| {
            let of_disk = |d| {
                of(d)
                    .iter()
                    .map(move |(k, n)| ([of_disk(d), vec![(label, k.clone())]].concat(), *n))
            };
            self.disks.iter().flat_map(of_disk).collect::<Vec<_>>()
        };
        let zones = of_map(|d| &d.measured.conditions, "condition");
        let events = of_map(|d| &d.measured.events, "event");
        self.gauge(
            "zoneplug_zones",
            "Zones by condition as the server knows it; stale: with an unknown write pointer",
            zones.into_iter().map(|(labels, n)| (labels, n as f64)).collect(),
        )?;
        self.counter(
            "zoneplug_events",
            "Events of a disk: commands that failed, and what happened to zones",
            events,
        )?;
        let waiting = self.each(
            |d| &d.measured.waiting_zones[..],
            |z| Some((vec![("zone", z.zone.to_string())], f64::from(z.waiting))),
        );
        self.gauge(
            "zoneplug_zone_waiting_bios",
            "BIOs that wait in the zones where most wait, eight of each disk at most",
            waiting,
        )?;
        let slow = self.each(
            |d| &d.measured.slow_zones[..],
            |z| {
                let labels = vec![("zone", z.zone.to_string()), ("op", z.op.clone())];
                Some((labels, z.longest_ns as f64 / 1e9))
            },
        );
        self.gauge(
            "zoneplug_zone_slowest_seconds",
            "The slowest request of the last minute in the slowest zones, eight of each disk at most",
            slow,
        )
    }

    /// Of servers of NVMe/TCP. All disks of one say the same.
    fn network(&mut self) -> fmt::Result {
        let mut servers: Vec<(&Shown, Labels)> = Vec::new();
        for d in self.disks {
            let Some(address) = &d.address else { continue };
            let labels = vec![("address", address.clone())];
            if servers.iter().all(|(_, other)| *other != labels) {
                servers.push((d, labels));
            }
        }
        let each = |of: fn(&Shown) -> u64| -> Vec<(Labels, u64)> {
            servers.iter().map(|(d, labels)| (labels.clone(), of(d))).collect()
        };
        let levels =
            |values: Vec<(Labels, u64)>| values.into_iter().map(|(l, n)| (l, n as f64)).collect();
        let hosts = each(|d| d.hosts.iter().flatten().count() as u64);
        let queues = each(|d| d.hosts.iter().flatten().map(|h| u64::from(h.queues)).sum());
        let failed = each(|d| d.failed_authentications);
        self.gauge("zoneplug_nvme_hosts", "Hosts that are connected over NVMe/TCP", levels(hosts))?;
        self.gauge("zoneplug_nvme_io_queues", "I/O queues of these hosts", levels(queues))?;
        self.counter(
            "zoneplug_nvme_failed_authentications",
            "Hosts that did not prove that they know their key",
            failed,
        )
    }
}

fn of_disk(d: &Shown) -> Labels {
    vec![("disk", d.name.clone())]
}

/// The buckets that are shown, each with its upper end in seconds.
fn buckets(latency: &LatencyShown) -> Vec<(f64, u64)> {
    let n = |i: u32| latency.buckets.get(i as usize).copied().unwrap_or(0);
    let (first, last) = (*BUCKETS.start(), *BUCKETS.end());
    let shown = BUCKETS.map(|i| {
        let faster = if i == first { (0..first).map(n).sum() } else { 0 };
        ((1u64 << i) as f64 / 1e9, faster + n(i))
    });
    let rest = (last + 1..u64::BITS).map(n).sum();
    shown.chain([(f64::INFINITY, rest)]).collect()
}
