//! How long operations took, by kind. The thread of a queue writes, other threads read.

use super::add;
use crate::clock::Clock;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use zoneplug_core::{Nanos, Op, Sector, ZoneNo};

/// Buckets of a [`LatencyHistogram`].
pub const LATENCY_BUCKETS: usize = 40;
/// The number of zones that are kept as those with the slowest operations.
pub const SLOW_ZONES: usize = 8;
/// How long a slow operation is kept.
const SLOW_FOR: Nanos = Nanos(60_000_000_000);

/// How long operations took.
///
/// A busy queue times one operation in many. It counts for all operations of its kind since the last timed one, so
/// the counts of buckets grow in steps of up to 240.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LatencyHistogram {
    /// Bucket `i` counts operations that took at most 2^i nanoseconds, and longer than those of the bucket before.
    /// The last one also counts all that took longer.
    pub buckets: [u64; LATENCY_BUCKETS],
    /// The time that all operations took together.
    pub sum: Nanos,
}

impl Default for LatencyHistogram {
    fn default() -> LatencyHistogram {
        LatencyHistogram { buckets: [0; LATENCY_BUCKETS], sum: Nanos(0) }
    }
}

impl LatencyHistogram {
    /// How many operations there were.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }
}

/// The bucket of an operation that took so long.
fn bucket_of(took: Nanos) -> usize {
    let bits = u64::BITS - took.0.saturating_sub(1).leading_zeros();
    (bits as usize).min(LATENCY_BUCKETS - 1)
}

/// A zone with one of the slowest operations of the last minute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlowZone {
    /// The zone.
    pub zone: ZoneNo,
    /// Its slowest operation that was timed.
    pub op: Op,
    /// How long that took.
    pub took: Nanos,
}

#[derive(Debug)]
struct OfKind {
    sum: AtomicU64,
    buckets: [AtomicU64; LATENCY_BUCKETS],
}

/// How long the operations of one thread on one disk took. Only that thread writes, so it needs no locked operation
/// for the buckets.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct LatencyLog {
    kinds: [OfKind; Op::ALL.len()],
    clock: Clock,
    interval: Nanos,
    zone_sectors: u64,
    /// Each zone with the time at which its operation ended.
    slow: Mutex<Vec<(SlowZone, Nanos)>>,
}

impl LatencyLog {
    /// A log for a disk with zones of `zone_sectors`. About one operation of a kind is timed in each `interval`.
    pub(crate) fn new(zone_sectors: u32, interval: Nanos) -> LatencyLog {
        LatencyLog {
            kinds: Op::ALL.map(|_| OfKind {
                sum: AtomicU64::new(0),
                buckets: [const { AtomicU64::new(0) }; LATENCY_BUCKETS],
            }),
            clock: Clock::start(),
            interval,
            zone_sectors: u64::from(zone_sectors),
            slow: Mutex::new(Vec::with_capacity(SLOW_ZONES)),
        }
    }

    pub(super) fn now(&self) -> Nanos {
        self.clock.now()
    }

    pub(super) fn interval(&self) -> Nanos {
        self.interval
    }

    /// Records an operation that began at `sector`, took `took`, and stands for `stands_for` operations.
    pub(super) fn record(&self, op: Op, sector: Sector, took: Nanos, stands_for: u64, now: Nanos) {
        let kind = &self.kinds[op as usize];
        add(&kind.sum, took.0.saturating_mul(stands_for));
        add(&kind.buckets[bucket_of(took)], stands_for);
        if matches!(op, Op::Flush | Op::ZoneResetAll | Op::ReportZones) {
            return;
        }
        let zone = ZoneNo((sector.0 / self.zone_sectors) as u32);
        // If another thread is reading the list, the operation is left out, because this thread must not wait.
        if let Ok(mut slow) = self.slow.try_lock() {
            note(&mut slow, SlowZone { zone, op, took }, now);
        }
    }

    /// Adds the recorded times of a kind of operation.
    pub(super) fn add_to(&self, op: Op, sum: &mut LatencyHistogram) {
        let kind = &self.kinds[op as usize];
        for (sum, bucket) in sum.buckets.iter_mut().zip(&kind.buckets) {
            *sum += bucket.load(Ordering::Relaxed);
        }
        sum.sum.0 += kind.sum.load(Ordering::Relaxed);
    }

    /// The zones with the slowest operations of the last minute.
    pub(super) fn slow(&self) -> Vec<SlowZone> {
        let now = self.now();
        let mut slow = zoneplug_core::poison::lock(&self.slow);
        slow.retain(|(_, at)| !is_over(*at, now));
        slow.iter().map(|(zone, _)| *zone).collect()
    }
}

fn is_over(at: Nanos, now: Nanos) -> bool {
    now.0.saturating_sub(at.0) > SLOW_FOR.0
}

/// Adds an operation to the list, if it is one of the slowest. Each zone is listed once.
fn note(slow: &mut Vec<(SlowZone, Nanos)>, new: SlowZone, now: Nanos) {
    let same = slow.iter().position(|(old, _)| old.zone == new.zone);
    let at = match same {
        Some(at) => Some(at),
        None if slow.len() < SLOW_ZONES => {
            slow.push((new, now));
            return;
        }
        // Replaces an entry whose time is over, or else the least slow one.
        None => {
            let rank =
                |(old, at): &(SlowZone, Nanos)| if is_over(*at, now) { 0 } else { old.took.0 };
            (0..slow.len()).min_by_key(|i| rank(&slow[*i]))
        }
    };
    if let Some((old, then)) = at.and_then(|at| slow.get_mut(at))
        && (new.took >= old.took || is_over(*then, now))
    {
        (*old, *then) = (new, now);
    }
}

/// The slowest zones of several threads: each zone once, the slowest first.
pub(super) fn slowest(mut all: Vec<SlowZone>) -> Vec<SlowZone> {
    all.sort_by_key(|z| (z.zone, std::cmp::Reverse(z.took)));
    all.dedup_by_key(|z| z.zone);
    all.sort_by_key(|z| std::cmp::Reverse(z.took));
    all.truncate(SLOW_ZONES);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_has_what_took_at_most_its_power_of_two() {
        for (nanos, bucket) in
            [(0, 0), (1, 0), (2, 1), (3, 2), (4, 2), (5, 3), (1024, 10), (1025, 11), (1 << 39, 39)]
        {
            assert_eq!(bucket_of(Nanos(nanos)), bucket, "{nanos}");
        }
        assert_eq!(bucket_of(Nanos(u64::MAX)), LATENCY_BUCKETS - 1);
    }

    fn slow(zone: u32, took: u64) -> SlowZone {
        SlowZone { zone: ZoneNo(zone), op: Op::Write, took: Nanos(took) }
    }

    fn zones(all: &[(SlowZone, Nanos)]) -> Vec<(u32, u64)> {
        all.iter().map(|(z, _)| (z.zone.0, z.took.0)).collect()
    }

    #[test]
    fn the_slowest_zones_of_the_last_minute_are_kept() {
        let mut all = Vec::new();
        for zone in 0..8 {
            note(&mut all, slow(zone, 100 + u64::from(zone)), Nanos(0));
        }
        // In order: less slow than all, less slow than its own zone, slower than its own zone, slower than the least.
        for (zone, took) in [(20, 99), (7, 50), (7, 200), (21, 150)] {
            note(&mut all, slow(zone, took), Nanos(1));
        }
        let mut found = zones(&all);
        found.sort_unstable();
        assert_eq!(
            found,
            [(1, 101), (2, 102), (3, 103), (4, 104), (5, 105), (6, 106), (7, 200), (21, 150)]
        );
        // After a minute each new one replaces an old one, of its own zone if there is one.
        note(&mut all, slow(3, 1), Nanos(SLOW_FOR.0 + 1));
        note(&mut all, slow(30, 1), Nanos(SLOW_FOR.0 + 2));
        let found = zones(&all);
        assert!(found.contains(&(3, 1)) && found.contains(&(30, 1)), "{found:?}");
        assert_eq!(found.len(), SLOW_ZONES);
    }

    #[test]
    fn zones_of_several_threads_are_there_once() {
        let all = vec![slow(1, 5), slow(2, 9), slow(1, 7), slow(3, 8)];
        assert_eq!(slowest(all), [slow(2, 9), slow(3, 8), slow(1, 7)]);
        assert_eq!(slowest((0..20).map(|z| slow(z, 1)).collect()).len(), SLOW_ZONES);
    }
}
