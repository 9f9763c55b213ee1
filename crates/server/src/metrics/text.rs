//! The metrics of a server in Prometheus's text format, from the data of `zoneplug status`. docs/metrics.md lists
//! them.

use prometheus_client::collector::Collector;
use prometheus_client::encoding::prometheus_text;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use std::collections::BTreeMap;
use std::fmt;
use zoneplug_control::client::{LatencyShown, OperationShown, Shown};
use zoneplug_control::names::{LOGICAL_UNIT, NAMESPACE, NameForm};
use zoneplug_core::plain;

pub(super) use prometheus_text::CONTENT_TYPE;

/// The upper bounds of buckets, as powers of two of a nanosecond: 1 us to 17 s. The first bucket includes all faster
/// operations.
const BUCKETS: std::ops::RangeInclusive<u32> = 10..=34;

/// The state of a server at one moment.
#[derive(Debug)]
struct Scrape(Vec<Shown>);

/// The text for the present state of a server.
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
        for (mut labels, value) in values {
            // The format escapes only `\\`, `"` and line ends.
            labels.iter_mut().for_each(|(_, text)| *text = plain(text).into_owned());
            encode(&mut family.encode_family(&&labels[..])?, value)?;
        }
        Ok(())
    }

    /// Adds a counter, with the suffix `_total`.
    fn counter(&mut self, name: &str, help: &str, values: Vec<(Labels, u64)>) -> fmt::Result {
        let encode =
            |m: &mut MetricEncoder<'_>, v| m.encode_counter::<NoLabelSet, _, u64>(&v, None);
        self.family(name, help, MetricType::Counter, values, encode)
    }

    fn gauge(&mut self, name: &str, help: &str, values: Vec<(Labels, f64)>) -> fmt::Result {
        let encode = |m: &mut MetricEncoder<'_>, v| m.encode_gauge(&v);
        self.family(name, help, MetricType::Gauge, values, encode)
    }

    /// A value for each element of a list of each disk.
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

    /// Adds a counter for each disk.
    fn count(&mut self, name: &str, help: &str, of: impl Fn(&Shown) -> u64) -> fmt::Result {
        let values = self.disks.iter().map(|d| (of_disk(d), of(d))).collect();
        self.counter(name, help, values)
    }

    /// Adds a gauge for each disk.
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
            "1 if the block device of the disk was taken over from another server, else 0",
            |d| u64::from(d.recovered),
        )?;
        self.count(
            "zoneplug_replayed_requests",
            "Writes that came again after a server or connection had ended, and were on the disk already",
            |d| d.replayed,
        )
    }

    /// A value for each kind of operation of each disk.
    fn of_operations<V>(&self, value: impl Fn(&OperationShown) -> Option<V>) -> Vec<(Labels, V)> {
        self.each(|d| &d.measured.operations[..], |o| Some((vec![("op", o.op.clone())], value(o)?)))
    }

    fn operations(&mut self) -> fmt::Result {
        let counts = self.of_operations(|o| Some(o.count));
        self.counter("zoneplug_io_operations", "Requests that succeeded", counts)?;
        let bytes = self.of_operations(|o| o.moves_data().then_some(o.bytes));
        self.counter("zoneplug_io_bytes", "Bytes of the requests that succeeded", bytes)?;
        let errors = self.of_operations(|o| Some(o.errors));
        self.counter("zoneplug_io_errors", "Requests that failed", errors)?;
        let latencies = self.of_operations(|o| o.latency.clone());
        self.family(
            "zoneplug_io_latency_seconds",
            "How long requests took from the server to the disk and back. \
             A busy queue times a sample, and each timed request counts for those since the one before it",
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

    /// Adds the metrics of the servers on the network. All disks of a server report the same values.
    fn network(&mut self) -> fmt::Result {
        let hosts = |d: &Shown| d.hosts.iter().flatten().count() as u64;
        let queues = |d: &Shown| d.hosts.iter().flatten().map(|h| u64::from(h.queues)).sum();
        let failed = |d: &Shown| d.failed_authentications;
        let level = |(labels, n): (Labels, u64)| (labels, n as f64);
        let levels = |values: Vec<(Labels, u64)>| values.into_iter().map(level).collect();
        let (subsystems, targets) = (self.servers(NAMESPACE), self.servers(LOGICAL_UNIT));
        let (connected, io_queues) =
            (levels(subsystems.each(hosts)), levels(subsystems.each(queues)));
        self.gauge("zoneplug_nvme_hosts", "Hosts that are connected over NVMe/TCP", connected)?;
        self.gauge("zoneplug_nvme_io_queues", "I/O queues of these hosts", io_queues)?;
        self.counter(
            "zoneplug_nvme_failed_authentications",
            "Hosts that did not prove that they know their key",
            subsystems.each(failed),
        )?;
        self.gauge(
            "zoneplug_iscsi_initiators",
            "Initiators that are logged in over iSCSI",
            levels(targets.each(hosts)),
        )?;
        self.counter(
            "zoneplug_iscsi_failed_logins",
            "Initiators that did not prove that they know their secret",
            targets.each(failed),
        )
    }

    /// The servers with disks of this form of names, one of each address.
    fn servers(&self, form: NameForm) -> NetworkServers<'a> {
        let mut servers = NetworkServers(Vec::new());
        for d in self.disks.iter().filter(|d| form.disk(&d.name).is_some()) {
            let Some(address) = &d.address else { continue };
            let labels = vec![("address", address.clone())];
            if servers.0.iter().all(|(_, other)| *other != labels) {
                servers.0.push((d, labels));
            }
        }
        servers
    }
}

/// A disk of each server on the network, with the labels of the server.
struct NetworkServers<'a>(Vec<(&'a Shown, Labels)>);

impl NetworkServers<'_> {
    fn each(&self, of: impl Fn(&Shown) -> u64) -> Vec<(Labels, u64)> {
        self.0.iter().map(|(d, labels)| (labels.clone(), of(d))).collect()
    }
}

fn of_disk(d: &Shown) -> Labels {
    vec![("disk", d.name.clone())]
}

/// The buckets, each with its upper bound in seconds.
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

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Most series of a disk. docs/metrics.md states the same number.
    const MOST_SERIES: usize = 450;

    /// A disk with all optional values.
    pub(in crate::metrics) const DISK: &str = r#"{"name":"tcp4420n1","spec":"disk \"a\".zbd","capacity_bytes":1073741824,
        "zones":4,"zone_bytes":268435456,"pid":1,"recovered":true,"reads":1,"read_bytes":4096,
        "writes":1,"written_bytes":4096,"others":0,"errors":0,"replayed":3,"waiting":7,
        "live_plugs":2,"held":1,"held_total":5,"held_expired":2,"address":"127.0.0.1:4420",
        "nqn":"nqn.x","hosts":[{"nqn":"nqn.y","queues":2},{"nqn":"nqn.z","queues":3}],
        "failed_authentications":4,"version":"1.2.3","started_unix_s":1700000000,
        "operations":[
          {"op":"write","count":3,"bytes":12288,"errors":1,
           "latency":{"sum_ns":20000000000,"buckets":[0,0,0,0,0,0,0,0,0,1,1,0,0,0,0,0,0,0,0,0,0,0,0,
             0,0,0,0,0,0,0,0,0,0,0,1,1]}},
          {"op":"flush","count":2,"bytes":0,"errors":0,"latency":null}],
        "issued":9,"parked":8,"merged":6,"aborted":1,"timeouts":2,"late":1,
        "events":{"failed":1,"stale":0},"conditions":{"empty":3,"stale":1},
        "waiting_zones":[{"zone":3,"waiting":7}],
        "slow_zones":[{"zone":2,"op":"write","longest_ns":1500000}]}"#;

    fn disk(text: &str) -> Shown {
        serde_json::from_str(text).unwrap()
    }

    /// The exact text for a known state.
    #[test]
    fn a_known_state_is_this_text() {
        let text = of(vec![disk(DISK)]);
        let want = include_str!("testdata/one_disk.txt");
        if std::env::var_os("ZONEPLUG_BLESS").is_some() {
            let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/metrics/testdata/one_disk.txt");
            std::fs::write(path, &text).unwrap();
        }
        assert_eq!(text, want, "ZONEPLUG_BLESS=1 accepts it");
    }

    /// A unit of an iSCSI target with all optional values.
    fn unit() -> Shown {
        disk(&DISK.replace("tcp4420n1", "iscsi3260l0").replace(":4420", ":3260"))
    }

    /// Initiators are not counted as hosts of NVMe/TCP.
    #[test]
    fn initiators_are_counted_apart_from_hosts() {
        let text = of(vec![disk(DISK), unit()]);
        let network = |l: &&str| l.starts_with("zoneplug_nvme") || l.starts_with("zoneplug_iscsi");
        let lines: Vec<&str> = text.lines().filter(network).collect();
        assert_eq!(
            lines,
            [
                "zoneplug_nvme_hosts{address=\"127.0.0.1:4420\"} 2.0",
                "zoneplug_nvme_io_queues{address=\"127.0.0.1:4420\"} 5.0",
                "zoneplug_nvme_failed_authentications_total{address=\"127.0.0.1:4420\"} 4",
                "zoneplug_iscsi_initiators{address=\"127.0.0.1:3260\"} 2.0",
                "zoneplug_iscsi_failed_logins_total{address=\"127.0.0.1:3260\"} 4",
            ]
        );
    }

    /// The disks of a server share its hosts.
    #[test]
    fn two_disks_are_told_apart_and_their_server_is_there_once() {
        let second = disk(&DISK.replace("tcp4420n1", "tcp4420n2"));
        let text = of(vec![disk(DISK), second]);
        let lines = |what: &str| text.lines().filter(|l| l.starts_with(what)).count();
        assert_eq!(lines("zoneplug_waiting_bios{disk=\"tcp4420n1\"} 7"), 1);
        assert_eq!(lines("zoneplug_waiting_bios{disk=\"tcp4420n2\"} 7"), 1);
        assert_eq!(lines("zoneplug_nvme_hosts{address=\"127.0.0.1:4420\"} 2"), 1);
        assert_eq!((lines("zoneplug_nvme_hosts{"), lines("zoneplug_build_info{")), (1, 1));
        assert_eq!(of(Vec::new()), "");
    }

    /// A disk with all possible operations, conditions, events and zones.
    fn largest() -> Shown {
        let mut d = disk(DISK);
        let m = &mut d.measured;
        let write = m.operations[0].clone();
        let of =
            |op: zoneplug_core::Op| OperationShown { op: op.name().to_owned(), ..write.clone() };
        m.operations = zoneplug_core::Op::ALL.map(of).to_vec();
        m.conditions = (0..9).map(|i| (format!("condition{i}"), i)).collect();
        m.events = (0..9).map(|i| (format!("event{i}"), i)).collect();
        m.waiting_zones = vec![m.waiting_zones[0].clone(); zoneplug_host::SLOW_ZONES];
        m.slow_zones = vec![m.slow_zones[0].clone(); zoneplug_host::SLOW_ZONES];
        d
    }

    #[test]
    fn the_number_of_series_is_bounded() {
        let text = of(vec![largest()]);
        let series = text.lines().filter(|l| !l.starts_with('#')).count();
        assert!(series <= MOST_SERIES && series > MOST_SERIES - 50, "{series}");
        let page = document("docs/metrics.md");
        assert!(page.contains(&format!("at most {MOST_SERIES} series")), "docs/metrics.md");
    }

    fn document(path: &str) -> String {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../");
        std::fs::read_to_string(format!("{root}{path}")).unwrap()
    }

    /// The names and types of metrics in the text.
    fn families() -> BTreeSet<(String, String)> {
        let text = of(vec![largest(), unit()]);
        let types = text.lines().filter_map(|l| l.strip_prefix("# TYPE ")?.split_once(' '));
        types.map(|(name, kind)| (name.to_owned(), kind.to_owned())).collect()
    }

    /// Each metric is in the page's table with its type, and each row of the table is a metric.
    #[test]
    fn the_page_lists_the_metrics() {
        let page = document("docs/metrics.md");
        let rows = page.lines().filter_map(|l| l.strip_prefix("| `")?.split_once('`'));
        let row = |(name, rest): (&str, &str)| {
            let kind = rest.split('|').nth(1).unwrap_or_default();
            (name.split('{').next().unwrap_or_default().to_owned(), kind.trim().to_owned())
        };
        let listed: BTreeSet<_> = rows.map(row).collect();
        assert_eq!(listed, families());
    }

    /// Each word of the dashboard's queries that looks like a metric is one, with the suffixes of histograms.
    #[test]
    fn the_dashboard_uses_metrics_that_exist() {
        let text = document("packaging/grafana/zoneplug.json");
        let board: serde_json::Value = serde_json::from_str(&text).unwrap();
        let known = |word: &str| {
            families().into_iter().any(|(name, kind)| match &*kind {
                "histogram" => {
                    ["_bucket", "_sum", "_count"].iter().any(|end| word == name.clone() + end)
                }
                _ => word == name,
            })
        };
        let (mut queries, mut used) = (0, BTreeSet::new());
        let mut panels: Vec<&serde_json::Value> =
            board["panels"].as_array().unwrap().iter().collect();
        while let Some(panel) = panels.pop() {
            panels.extend(panel["panels"].as_array().into_iter().flatten());
            for target in panel["targets"].as_array().into_iter().flatten() {
                queries += 1;
                let words = target["expr"]
                    .as_str()
                    .unwrap()
                    .split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
                used.extend(
                    words
                        .filter(|w| w.starts_with("zoneplug_") || w.starts_with("process_"))
                        .map(str::to_owned),
                );
            }
        }
        for variable in board["templating"]["list"].as_array().unwrap() {
            let query = variable["query"]["query"]
                .as_str()
                .or(variable["query"].as_str())
                .unwrap_or_default();
            let words = query.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
            used.extend(words.filter(|w| w.starts_with("zoneplug_")).map(str::to_owned));
        }
        let unknown: Vec<&String> = used.iter().filter(|w| !known(w)).collect();
        assert!(unknown.is_empty(), "{unknown:?}");
        assert!(queries >= 10 && used.len() >= 12, "{queries} queries of {used:?}");
    }

    /// Every operation is in one bucket; the encoder adds them up to `le`.
    #[test]
    fn buckets_keep_every_operation() {
        let latency = LatencyShown { sum_ns: 0, buckets: vec![1; 40] };
        let all = buckets(&latency);
        assert_eq!(all.len(), 26);
        assert_eq!((all[0], all[1]), ((1.024e-6, 11), (2.048e-6, 1)));
        assert_eq!((all[24], all[25]), ((17.179869184, 1), (f64::INFINITY, 5)));
        assert_eq!(all.iter().map(|(_, n)| n).sum::<u64>(), 40);
    }
}
