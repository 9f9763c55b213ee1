//! Disks and samples for the tests of `zoneplug top`.

use super::model::{DiskSample, Sample, ZonesSample};
use crate::failure::{Failure, Kind};
use crate::server_client::zones::{WriterShown, ZoneShown, ZonesShown};
use crate::server_client::{HostShown, LatencyShown, Measured, OperationShown, Shown};
use std::time::Duration;
use zoneplug_core::zone::Condition;

/// An error of a server.
pub(crate) fn trouble(what: &str) -> Failure {
    Failure::new(Kind::Device, what).hint("again")
}

/// A disk without any operations.
pub(crate) fn shown(name: &str) -> Shown {
    Shown {
        name: name.to_owned(),
        spec: "mem,zones=96,zone-size=16M".to_owned(),
        capacity_bytes: 96 << 24,
        zones: 96,
        zone_bytes: 16 << 20,
        pid: 4711,
        recovered: false,
        handed_over: false,
        file_changed: None,
        io: Vec::new(),
        reads: 0,
        read_bytes: 0,
        writes: 0,
        written_bytes: 0,
        others: 0,
        errors: 0,
        replayed: 0,
        waiting: 0,
        live_plugs: 0,
        held: 0,
        held_total: 0,
        held_expired: 0,
        address: None,
        nqn: None,
        hosts: None,
        failed_authentications: 0,
        enabled: true,
        paths: Vec::new(),
        measured: Measured::default(),
    }
}

/// Operations that took 1000 ns each.
pub(crate) fn op(name: &str, count: u64, buckets: &[u64]) -> OperationShown {
    OperationShown {
        op: name.to_owned(),
        count,
        bytes: count * 4096,
        errors: 0,
        latency: Some(LatencyShown { sum_ns: count * 1000, buckets: buckets.to_vec() }),
    }
}

/// The `n`th sample of two disks under load, one for each second.
pub(crate) fn sample(n: u64, range: std::ops::Range<u32>, cells: u32, look: Option<u32>) -> Sample {
    let mut a = shown("tcp4420n1");
    (a.reads, a.read_bytes) = (1200 * n, (1200 * n) << 12);
    (a.writes, a.written_bytes) = (23_400 * n, (23_400 * n) << 12);
    (a.waiting, a.live_plugs) = (37, 12);
    a.errors = 3;
    a.address = Some("127.0.0.1:4420".to_owned());
    a.nqn = Some("nqn.2026-11.dev.zoneplug:test".to_owned());
    a.hosts = Some(vec![
        HostShown {
            nqn: "nqn.2014-08.org.nvmexpress:uuid:1".to_owned(),
            queues: 4,
            authenticated: true,
        },
        HostShown { nqn: "nqn.host\u{1b}[2J".to_owned(), queues: 1, authenticated: false },
    ]);
    let mut buckets = vec![0; 22];
    (buckets[14], buckets[17], buckets[21]) = (23_000 * n, 390 * n, 10 * n);
    let mut reads = vec![0; 16];
    reads[15] = 1200 * n;
    a.measured.operations = vec![
        OperationShown {
            latency: Some(LatencyShown { sum_ns: 1_200 * n * 25_000, buckets: reads }),
            ..op("read", 1200 * n, &[])
        },
        OperationShown {
            latency: Some(LatencyShown { sum_ns: 23_400 * n * 18_000, buckets }),
            ..op("write", 23_400 * n, &[])
        },
        OperationShown { bytes: 0, errors: 3, ..op("zone_reset", 2 * n, &[]) },
    ];
    (a.measured.issued, a.measured.parked, a.measured.merged) = (9_000 * n, 20_000 * n, 14_400 * n);
    a.measured.events = [("failed".to_owned(), 3), ("stale".to_owned(), 1)].into();
    a.measured.conditions =
        [("empty", 50), ("active", 12), ("full", 31), ("conventional", 2), ("stale", 1)]
            .map(|(name, n)| (name.to_owned(), n))
            .into();
    let mut b = shown("ublkb0");
    (b.reads, b.read_bytes) = (5 * n, (5 * n) << 20);
    let disks = [a, b].map(|shown| DiskSample { key: shown.name.clone(), shown, counts: true });
    let zones = ZonesSample {
        key: "tcp4420n1".to_owned(),
        table: Ok(table(n, range, cells)),
        zone: look.map(|z| (z, zone(z, n))),
    };
    Sample {
        at: Duration::from_secs(n),
        disks: disks.into(),
        zones: Some(zones),
        ..Sample::default()
    }
}

fn table(n: u64, range: std::ops::Range<u32>, cells: u32) -> ZonesShown {
    let mut table = ZonesShown::new(range.start, range.len() as u32, cells);
    range.for_each(|z| table.push(zone(z, n)));
    table.scheduled = 2;
    table.writers = vec![WriterShown {
        turn: Some(40),
        listed: 5,
        turns: 120 * n,
        longest_wait_ns: 12_000_000,
        ..WriterShown::default()
    }];
    table
}

/// Conventional, full, active and empty zones, some with waiting BIOs. Active ones grow by 1 MiB a second.
pub(crate) fn zone(number: u32, n: u64) -> ZoneShown {
    let (condition, written) = match number {
        0 | 1 => (Some(Condition::NotWp), 0),
        2..=32 => (Some(Condition::Full), 32_768),
        33..=44 => {
            (Some(Condition::Active), (u64::from(number - 32) * 2048 + n * 2048).min(32_767))
        }
        60 => (None, 4096),
        61 => (Some(Condition::Offline), 0),
        _ => (Some(Condition::Empty), 0),
    };
    let waiting = if (38..=42).contains(&number) { (number - 37) * (number - 37) } else { 0 };
    ZoneShown {
        condition,
        written_sectors: written,
        capacity_sectors: 32_768,
        waiting,
        in_flight: u32::from(waiting > 0),
    }
}
