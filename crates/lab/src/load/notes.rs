//! Counters that clients publish now and then, not for each BIO, so that another thread can show them.

use crate::server_client::LatencyShown;
use hdrhistogram::Histogram;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Time between two updates of a client's published counters.
const EVERY: Duration = Duration::from_millis(50);

/// The counters that a client has published last.
#[derive(Debug, Default)]
pub(crate) struct Noted {
    pub(crate) bios: AtomicU64,
    pub(crate) bytes: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) latency: Mutex<LatencyShown>,
}

/// The BIOs of a client so far.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Counts {
    pub(crate) bios: u64,
    /// The bytes of the successful ones.
    pub(crate) bytes: u64,
    pub(crate) failed: u64,
}

/// Publishes a client's counters.
#[derive(Debug)]
pub(crate) struct Notes {
    noted: Arc<Noted>,
    last: Instant,
    /// One BIO in so many is timed.
    sample: u64,
}

impl Notes {
    /// The two ends of the counters of a client that times one BIO in `sample`.
    pub(crate) fn new(sample: u64) -> (Notes, Arc<Noted>) {
        let noted = Arc::new(Noted::default());
        (Notes { noted: noted.clone(), last: Instant::now(), sample }, noted)
    }

    /// Whether the next update is due.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        now - self.last >= EVERY
    }

    /// Publishes counts and latencies.
    pub(crate) fn note(&mut self, now: Instant, counts: Counts, times: &Histogram<u64>) {
        let Counts { bios, bytes, failed } = counts;
        self.last = now;
        self.noted.bios.store(bios, Ordering::Relaxed);
        self.noted.bytes.store(bytes, Ordering::Relaxed);
        self.noted.failed.store(failed, Ordering::Relaxed);
        *zoneplug_core::poison::lock(&self.noted.latency) = latency(times, self.sample);
    }
}

/// Latencies as the socket shows them. Each timed BIO counts for `sample`.
fn latency(times: &Histogram<u64>, sample: u64) -> LatencyShown {
    let mut shown = LatencyShown::default();
    for step in times.iter_recorded() {
        let (ns, n) = (step.value_iterated_to(), step.count_since_last_iteration() * sample);
        let bucket = ns.max(1).next_power_of_two().trailing_zeros() as usize;
        if shown.buckets.len() <= bucket {
            shown.buckets.resize(bucket + 1, 0);
        }
        shown.buckets[bucket] += n;
        shown.sum_ns += ns * n;
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timed_bio_counts_for_those_that_were_not() {
        let mut times = Histogram::new_with_bounds(1, 1 << 36, 2).unwrap();
        for ns in [900, 1000, 40_000] {
            times.record(ns).unwrap();
        }
        let l = latency(&times, 64);
        assert_eq!(
            (l.total(), l.quantile_ns(0.5), l.quantile_ns(1.0)),
            (192, Some(1024), Some(65_536))
        );
        // The histogram keeps two digits of a value.
        let mean = l.sum_ns as f64 / l.total() as f64;
        assert!((mean / (41_900.0 / 3.0) - 1.0).abs() < 0.01, "{mean}");
    }
}
