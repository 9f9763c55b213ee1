//! The rates of a disk between two samples.

use crate::server_client::{LatencyShown, OperationShown, Shown};
use serde::Serialize;
use std::time::Duration;

/// Upper bounds of quantiles of latencies. Each is at most twice the true quantile.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub(crate) struct Quantiles {
    pub(crate) p50_ns: Option<u64>,
    pub(crate) p99_ns: Option<u64>,
    pub(crate) p99_9_ns: Option<u64>,
}

impl Quantiles {
    fn of(l: &LatencyShown) -> Quantiles {
        Quantiles {
            p50_ns: l.quantile_ns(0.5),
            p99_ns: l.quantile_ns(0.99),
            p99_9_ns: l.quantile_ns(0.999),
        }
    }
}

/// The rates of one kind of operation.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct OpRates {
    pub(crate) op: String,
    pub(crate) per_s: f64,
    pub(crate) bytes_per_s: f64,
    pub(crate) errors_per_s: f64,
    pub(crate) latency: Quantiles,
}

/// The rates of a disk.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Rates {
    pub(crate) reads_per_s: f64,
    pub(crate) read_bytes_per_s: f64,
    pub(crate) writes_per_s: f64,
    pub(crate) written_bytes_per_s: f64,
    pub(crate) others_per_s: f64,
    pub(crate) errors_per_s: f64,
    pub(crate) merged_per_s: f64,
    pub(crate) parked_per_s: f64,
    pub(crate) issued_per_s: f64,
    /// Latencies of reads, writes and appends together.
    pub(crate) latency: Quantiles,
    /// Average number of operations in flight. `None`: the server does not measure times.
    pub(crate) depth: Option<f64>,
    pub(crate) operations: Vec<OpRates>,
}

impl Rates {
    /// The rates between two samples. `None`: no time has passed, or the counters started again, as in another
    /// process.
    pub(crate) fn between(before: &Shown, now: &Shown, time: Duration) -> Option<Rates> {
        let began_again = before.pid != now.pid
            || before.measured.started_unix_s != now.measured.started_unix_s
            || now.reads < before.reads
            || now.writes < before.writes
            || now.measured.issued < before.measured.issued;
        if began_again || time.is_zero() {
            return None;
        }
        let s = time.as_secs_f64();
        let per_s = |now: u64, before: u64| now.saturating_sub(before) as f64 / s;
        let (m, b) = (&now.measured, &before.measured);
        let (mut all, mut sum_ns) = (LatencyShown::default(), 0u64);
        let mut has_latencies = false;
        let operations: Vec<OpRates> = m
            .operations
            .iter()
            .map(|o| {
                let was = b.operations.iter().find(|w| w.op == o.op);
                let (count, bytes, errors) =
                    was.map_or((0, 0, 0), |w| (w.count, w.bytes, w.errors));
                let new = latency_since(o, was);
                has_latencies |= o.latency.is_some();
                sum_ns = sum_ns.saturating_add(new.sum_ns);
                if o.moves_data() {
                    all.add(&new);
                }
                OpRates {
                    op: o.op.clone(),
                    per_s: per_s(o.count, count),
                    bytes_per_s: per_s(o.bytes, bytes),
                    errors_per_s: per_s(o.errors, errors),
                    latency: Quantiles::of(&new),
                }
            })
            .collect();
        Some(Rates {
            reads_per_s: per_s(now.reads, before.reads),
            read_bytes_per_s: per_s(now.read_bytes, before.read_bytes),
            writes_per_s: per_s(now.writes, before.writes),
            written_bytes_per_s: per_s(now.written_bytes, before.written_bytes),
            others_per_s: per_s(now.others, before.others),
            errors_per_s: per_s(now.errors, before.errors),
            merged_per_s: per_s(m.merged, b.merged),
            parked_per_s: per_s(m.parked, b.parked),
            issued_per_s: per_s(m.issued, b.issued),
            latency: Quantiles::of(&all),
            // Little's law: the average depth is the sum of the latencies divided by the time.
            depth: has_latencies.then(|| sum_ns as f64 / time.as_nanos() as f64),
            operations,
        })
    }

    /// Reads, writes and appends per second.
    pub(crate) fn iops(&self) -> f64 {
        self.reads_per_s + self.writes_per_s
    }

    /// Bytes read and written per second.
    pub(crate) fn bytes_per_s(&self) -> f64 {
        self.read_bytes_per_s + self.written_bytes_per_s
    }
}

fn latency_since(o: &OperationShown, was: Option<&OperationShown>) -> LatencyShown {
    let none = LatencyShown::default();
    let before = was.and_then(|w| w.latency.as_ref()).unwrap_or(&none);
    o.latency.as_ref().map_or_else(LatencyShown::default, |l| l.since(before))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{op, shown};
    use super::*;

    #[test]
    fn rates_are_of_the_time_between_two_samples() {
        let mut before = shown("a");
        before.measured.operations = vec![op("write", 100, &[0, 0, 50, 50])];
        (before.writes, before.written_bytes, before.measured.merged) = (100, 4096, 7);
        let mut now = before.clone();
        (now.writes, now.written_bytes, now.measured.merged) = (300, 8192 + 4096, 17);
        now.errors = 4;
        now.measured.operations =
            vec![op("write", 300, &[0, 0, 50, 50, 100, 99, 1]), op("read", 2, &[0, 2])];
        let r = Rates::between(&before, &now, Duration::from_secs(2)).unwrap();
        assert_eq!((r.writes_per_s, r.written_bytes_per_s), (100.0, 4096.0));
        assert_eq!((r.merged_per_s, r.errors_per_s, r.iops()), (5.0, 2.0, 100.0));
        // Only operations between the samples count: 100 in bucket 4, 99 in bucket 5, 1 in bucket 6.
        let l = r.operations[0].latency;
        assert_eq!((l.p50_ns, l.p99_ns, l.p99_9_ns), (Some(16), Some(32), Some(64)));
        // The first sample lacks this operation.
        assert_eq!(r.operations[1].per_s, 1.0);
        // 200 writes of 1000 ns and 2 reads of 1000 ns in 2 s.
        assert!((r.depth.unwrap() - 202.0 * 1000.0 / 2e9).abs() < 1e-12);
        assert_eq!(r.latency.p50_ns, Some(16));
    }

    #[test]
    fn counters_that_began_again_give_no_rates() {
        let mut before = shown("a");
        before.reads = 10;
        let second = Duration::from_secs(1);
        let mut now = before.clone();
        now.reads = 9;
        assert_eq!(Rates::between(&before, &now, second), None);
        now.reads = 20;
        assert!(Rates::between(&before, &now, second).is_some());
        assert_eq!(Rates::between(&before, &now, Duration::ZERO), None);
        now.pid += 1;
        assert_eq!(Rates::between(&before, &now, second), None, "another process");
    }

    #[test]
    fn a_server_that_does_not_time_has_no_latencies() {
        let mut before = shown("a");
        before.measured.operations = vec![OperationShown { latency: None, ..op("read", 1, &[]) }];
        let mut now = before.clone();
        now.measured.operations[0].count = 5;
        let r = Rates::between(&before, &now, Duration::from_secs(1)).unwrap();
        assert_eq!((r.depth, r.latency, r.operations[0].per_s), (None, Quantiles::default(), 4.0));
    }
}
