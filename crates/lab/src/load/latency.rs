//! How long BIOs take.

use hdrhistogram::Histogram;
use serde::Serialize;

/// Latencies in nanoseconds, to two digits, up to about a minute.
pub(crate) fn histogram() -> Histogram<u64> {
    // The constant bounds are valid.
    Histogram::new_with_bounds(1, 1 << 36, 2).unwrap_or_else(|e| unreachable!("{e}"))
}

/// Latency from the submission to the completion that the client sees.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Latency {
    pub(crate) samples: u64,
    pub(crate) p50_ns: u64,
    pub(crate) p99_ns: u64,
}

impl Latency {
    pub(crate) fn of(h: &Histogram<u64>) -> Latency {
        Latency {
            samples: h.len(),
            p50_ns: h.value_at_quantile(0.5),
            p99_ns: h.value_at_quantile(0.99),
        }
    }
}
