//! Several runs of one row: how much its figures depend on a drive's unknown layout of tracks.

use super::row::{Kind, Latencies, Row, Spread};
use crate::time::GEOMETRIES;

/// The most runs of one row.
pub const MAX_REPEAT: u32 = 20;

/// The rate of a drive's own profile.
const OWN: u32 = 1_000_000;

/// The first `n` rates of the medium, in millionths of the profile's: its own, the other
/// [`GEOMETRIES`] from near to far, then the middles of the widest gaps. A smaller `n` gives a
/// prefix of a larger one.
///
/// ```
/// use zoneplug_models::replay::rates;
/// assert_eq!(rates(3), [1_000_000, 995_000, 1_005_000]);
/// assert_eq!(rates(7)[5..], [990_000, 1_010_000]);
/// ```
pub fn rates(n: u32) -> Vec<u32> {
    let far = |ppm: u32| (ppm.abs_diff(OWN), ppm);
    let mut all = GEOMETRIES.to_vec();
    all.sort_by_key(|ppm| far(*ppm));
    while all.len() < n as usize {
        let mut sorted = all.clone();
        sorted.sort_unstable();
        let gaps = sorted.windows(2).map(|w| (w[1] - w[0], u32::midpoint(w[0], w[1])));
        let widest = gaps.min_by_key(|&(gap, middle)| (u32::MAX - gap, far(middle)));
        all.extend(widest.map(|(_, middle)| middle));
    }
    all.truncate(n as usize);
    all
}

/// One value of each run, from low to high.
fn sorted<T>(
    runs: &[(u32, Row)],
    of: impl Fn(&Row) -> T,
    order: fn(&T, &T) -> std::cmp::Ordering,
) -> Vec<T> {
    let mut all: Vec<T> = runs.iter().map(|(_, row)| of(row)).collect();
    all.sort_by(order);
    all
}

/// The median; of an even number, the lower of the two.
fn middle<T: Copy>(sorted: &[T]) -> T {
    sorted[(sorted.len() - 1) / 2]
}

fn ends<T: Copy>(sorted: &[T]) -> [T; 2] {
    [sorted[0], sorted[sorted.len() - 1]]
}

impl Row {
    /// Joins several runs, each with its rate, into one row: the median of each figure, and the
    /// spread of the runs. Counts are those of the first run with the most failures. `None` without
    /// runs.
    pub(super) fn of_runs(runs: &[(u32, Row)]) -> Option<Row> {
        let most = runs.iter().map(|(_, r)| r.refused.operations).max()?;
        let mut row = runs.iter().find(|(_, r)| r.refused.operations == most)?.1.clone();
        let floats = |of: fn(&Row) -> f64| sorted(runs, of, f64::total_cmp);
        let whole = |of: &dyn Fn(&Row) -> u64| sorted(runs, of, Ord::cmp);
        let kind = |of: fn(&Row) -> &Kind| {
            let figure = |ns: fn(&Kind) -> u64| whole(&|row| ns(of(row)));
            let mut rates: Vec<f64> = runs.iter().map(|(_, r)| of(r).mb_per_s).collect();
            rates.sort_by(f64::total_cmp);
            let (mean, p50) = (figure(|k| k.mean_ns), figure(|k| k.p50_ns));
            let (p99, max) = (figure(|k| k.p99_ns), figure(|k| k.max_ns));
            let median = Kind {
                mb_per_s: middle(&rates),
                mean_ns: middle(&mean),
                p50_ns: middle(&p50),
                p90_ns: middle(&figure(|k| k.p90_ns)),
                p99_ns: middle(&p99),
                p999_ns: middle(&figure(|k| k.p999_ns)),
                max_ns: middle(&max),
                ..*of(&row)
            };
            let spread = Latencies {
                mean_ns: ends(&mean),
                p50_ns: ends(&p50),
                p99_ns: ends(&p99),
                max_ns: ends(&max),
            };
            (median, spread)
        };
        let ((writes, of_writes), (reads, of_reads)) = (kind(|r| &r.writes), kind(|r| &r.reads));
        let mb_per_s = floats(|r| r.mb_per_s);
        row.mb_per_s = middle(&mb_per_s);
        row.makespan_s = middle(&floats(|r| r.makespan_s));
        row.busy_s = middle(&floats(|r| r.busy_s));
        let busy = || floats(|r| r.drive_busy_percent.unwrap_or(0.0));
        row.drive_busy_percent = row.drive_busy_percent.map(|_| middle(&busy()));
        row.head_moves = row.head_moves.map(|_| middle(&whole(&|r| r.head_moves.unwrap_or(0))));
        (row.writes, row.reads) = (writes, reads);
        row.spread = Some(Spread {
            runs: runs.len(),
            rates_ppm: runs.iter().map(|(ppm, _)| *ppm).collect(),
            mb_per_s: ends(&mb_per_s),
            writes: of_writes,
            reads: of_reads,
        });
        Some(row)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_distinct_and_begin_with_those_of_fewer() {
        let all = rates(MAX_REPEAT);
        let mut sorted = all.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), MAX_REPEAT as usize);
        assert_eq!((sorted[0], *sorted.last().unwrap()), (985_000, 1_015_000));
        let mut five = all[..5].to_vec();
        five.sort_unstable();
        assert_eq!(five, GEOMETRIES);
        for n in 1..MAX_REPEAT {
            assert_eq!(rates(n), all[..n as usize]);
        }
    }

    #[test]
    fn the_middle_is_one_of_the_runs() {
        assert_eq!((middle(&[1, 2, 9]), middle(&[1, 2, 3, 9]), middle(&[7])), (2, 2, 7));
        assert_eq!(ends(&[1, 2, 9]), [1, 9]);
    }
}
