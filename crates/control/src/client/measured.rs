//! Measurements of a disk, as the control socket shows them.

use serde::{Deserialize, Serialize};

/// Counters of one kind of operation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperationShown {
    /// `read`, `write`, `zone_append`, `flush` and so on.
    pub op: String,
    /// Operations that succeeded.
    pub count: u64,
    /// Bytes of these operations.
    pub bytes: u64,
    /// Operations that failed.
    pub errors: u64,
    /// Latencies. `None`: the server does not measure them.
    pub latency: Option<LatencyShown>,
}

impl OperationShown {
    /// Whether these operations read or write data of the disk.
    pub fn moves_data(&self) -> bool {
        matches!(&*self.op, "read" | "write" | "zone_append")
    }
}

/// The distribution of latencies.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LatencyShown {
    /// The sum of all latencies.
    pub sum_ns: u64,
    /// Element `i` counts operations that took at most 2^i nanoseconds and more than the bound before. Zeroes at the
    /// end are left out.
    pub buckets: Vec<u64>,
}

impl LatencyShown {
    /// The latencies that were added since `before`, an earlier state.
    pub fn since(&self, before: &LatencyShown) -> LatencyShown {
        let was = before.buckets.iter().copied().chain(std::iter::repeat(0));
        LatencyShown {
            sum_ns: self.sum_ns.saturating_sub(before.sum_ns),
            buckets: self.buckets.iter().zip(was).map(|(n, was)| n.saturating_sub(was)).collect(),
        }
    }

    /// Adds the latencies of another distribution.
    pub fn add(&mut self, other: &LatencyShown) {
        if self.buckets.len() < other.buckets.len() {
            self.buckets.resize(other.buckets.len(), 0);
        }
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
        self.buckets.iter_mut().zip(&other.buckets).for_each(|(n, more)| *n += more);
    }

    /// How many operations there are.
    pub fn total(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// A time within which the share `q` (0 to 1) of the operations ended: the upper bound of the last one's bucket,
    /// at most twice the true time. `None`: there are no operations.
    pub fn quantile_ns(&self, q: f64) -> Option<u64> {
        let total = self.total();
        let rank = ((total as f64 * q).ceil() as u64).clamp(1, total.max(1));
        let mut seen = 0;
        let bucket = self.buckets.iter().position(|n| {
            seen += n;
            seen >= rank
        })?;
        Some(1 << bucket.min(63))
    }
}

/// A zone with BIOs that wait in its plug.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ZoneWaiting {
    pub zone: u32,
    /// Number of waiting BIOs.
    pub waiting: u32,
}

/// A zone with one of the slowest operations of the last minute.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ZoneSlow {
    pub zone: u32,
    /// The kind and latency of its slowest timed operation.
    pub op: String,
    pub longest_ns: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(buckets: &[u64]) -> LatencyShown {
        LatencyShown { sum_ns: 0, buckets: buckets.to_vec() }
    }

    #[test]
    fn a_quantile_is_the_end_of_its_bucket() {
        let l = of(&[0, 0, 50, 0, 49, 1]);
        let of_q = |q| l.quantile_ns(q).unwrap();
        assert_eq!([0.0, 0.5, 0.51, 0.99, 0.991, 1.0].map(of_q), [4, 4, 16, 16, 32, 32]);
        assert_eq!(of(&[]).quantile_ns(0.5), None);
        assert_eq!(of(&[0, 0]).quantile_ns(0.5), None);
    }

    #[test]
    fn what_has_come_since_is_the_difference() {
        let (before, now) = (of(&[1, 2]), of(&[1, 5, 0, 7]));
        assert_eq!(now.since(&before), of(&[0, 3, 0, 7]));
        // A restarted server has new counters.
        assert_eq!(before.since(&now), of(&[0, 0]));
    }
}
