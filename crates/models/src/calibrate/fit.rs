//! Fits the numbers of a profile to measurements: the platter's rates, the seek curve, the turns.
//! Sends no commands.

use super::measure::{Access, Rate};

/// Fits `N` unknowns to linear equations by least squares. `None` if the equations leave one of
/// them undetermined.
fn least_squares<const N: usize>(rows: &[([f64; N], f64)]) -> Option<[f64; N]> {
    let mut v = [0.0; N];
    for (row, y) in rows {
        (0..N).for_each(|i| v[i] += row[i] * y);
    }
    solve(products(rows.iter().map(|r| &r.0)), v)
}

/// The sums over all rows of the product of each two columns.
fn products<'a, const N: usize>(rows: impl Iterator<Item = &'a [f64; N]>) -> [[f64; N]; N] {
    let mut m = [[0.0; N]; N];
    for row in rows {
        for i in 0..N {
            (0..N).for_each(|j| m[i][j] += row[i] * row[j]);
        }
    }
    m
}

/// Solves linear equations. `None` if they have no solution or more than one.
fn solve<const N: usize>(mut m: [[f64; N]; N], mut v: [f64; N]) -> Option<[f64; N]> {
    for i in 0..N {
        let pivot = (i..N).max_by(|&a, &b| m[a][i].abs().total_cmp(&m[b][i].abs()))?;
        m.swap(i, pivot);
        v.swap(i, pivot);
        if m[i][i].abs() < 1e-12 {
            return None;
        }
        let (of, by) = (m[i], v[i]);
        for (r, row) in m.iter_mut().enumerate().filter(|(r, _)| *r != i) {
            let f = row[i] / of[i];
            row.iter_mut().zip(of).for_each(|(a, b)| *a -= f * b);
            v[r] -= f * by;
        }
    }
    let mut x = [0.0; N];
    (0..N).for_each(|i| x[i] = v[i] / m[i][i]);
    Some(x)
}

/// The largest factor, over the places `at`, by which a fitted curve amplifies the error of one
/// measurement. The rows are those of [`least_squares`]. Infinite if the measurements do not
/// determine the curve.
fn growth<const N: usize>(rows: &[[f64; N]], at: impl Iterator<Item = [f64; N]>) -> f64 {
    let m = products(rows.iter());
    let squares = at.map(|place| match solve(m, place) {
        Some(x) => x.iter().zip(place).map(|(a, b)| a * b).sum(),
        None => f64::INFINITY,
    });
    squares.fold(0.0, f64::max).sqrt()
}

/// The factor by which errors of rates grow at the outer and the inner edge, given the places that
/// were measured.
pub(super) fn growth_of_rates(places: &[f64]) -> f64 {
    let rows: Vec<_> = places.iter().map(|&x| [1.0, x]).collect();
    growth(&rows, [[1.0, 0.0], [1.0, 1.0]].into_iter())
}

/// The factor by which errors of seek times grow over any distance, given the distances that were
/// measured.
pub(super) fn growth_of_seeks(distances: &[f64]) -> f64 {
    let rows: Vec<_> = distances.iter().map(|&d| seek_row(d)).collect();
    growth(&rows, (0..=STEPS).map(|i| seek_row(f64::from(i) / f64::from(STEPS))))
}

/// The number of steps into which the full distance is divided to find the growth of errors.
const STEPS: u32 = 64;

/// The three terms of the seek curve for a distance: constant, square root, linear.
fn seek_row(d: f64) -> [f64; 3] {
    [1.0, d.sqrt(), d]
}

/// Fits the platter: the rate at the outer edge in bytes a second, the inner radius as a fraction
/// of the outer one, and the error of predicted rates in percent. With constant density the square
/// of the rate falls linearly with the capacity before it.
pub(super) fn platter(rates: &[Rate]) -> Option<(f64, f64, f64)> {
    let rows: Vec<_> = rates.iter().map(|&(x, rate)| ([1.0, x], (rate / 1e6).powi(2))).collect();
    let [outer2, slope] = least_squares(&rows)?;
    let (outer, k) = (outer2.max(0.0).sqrt() * 1e6, -slope / outer2);
    // A drive whose rate is the same everywhere has no inner edge.
    let inner = (1.0 - k.clamp(0.0, 0.99)).sqrt().min(0.999);
    let at = |x: f64| outer * (1.0 - k * x).max(0.0).sqrt();
    let off = rates.iter().map(|&(x, rate)| 100.0 * (rate / at(x) - 1.0).abs()).fold(0.5, f64::max);
    let places: Vec<f64> = rates.iter().map(|r| r.0).collect();
    Some((outer, inner, off * growth_of_rates(&places).max(1.0)))
}

/// The distance of two places in cylinders, as a fraction of all cylinders. Places are fractions of
/// the capacity.
pub(super) fn distance(from: f64, to: f64, inner: f64) -> f64 {
    let k = 1.0 - inner * inner;
    let cylinder = |x: f64| (1.0 - (1.0 - k * x).sqrt()) / (1.0 - inner);
    (cylinder(from) - cylinder(to)).abs()
}

/// The head's seek curve and the speed of the disk.
#[derive(Debug, Clone, Copy)]
pub(super) struct Head {
    /// Turns a minute.
    pub(super) rpm: u64,
    /// The terms of the seek time: constant, for the square root of the distance, for the distance.
    pub(super) seek_ns: [f64; 3],
    /// How far a seek over any distance may differ from the curve, in nanoseconds.
    pub(super) off_ns: f64,
}

/// Speeds at which disks turn.
const SPEEDS: [u64; 6] = [4200, 5400, 5900, 7200, 10_000, 15_000];
/// The fraction of accesses between the two times kept of each pair of places.
const KEPT: f64 = 0.8;

/// Fits the head to the times of accesses. An access is a seek and a wait of anything up to a turn,
/// so the times that enclose 80 % of the accesses differ by 0.8 turns. `read_ns` is the data time
/// of a read.
pub(super) fn head(accesses: &[Access], inner: f64, read_ns: f64) -> Option<Head> {
    let turns = accesses.iter().map(|a| (a.high - a.low) / KEPT);
    let turn = turns.sum::<f64>() / accesses.len() as f64;
    let measured = 60e9 / turn;
    // Disks turn at standard speeds; the nearest one is more accurate than the measurement.
    let nearest = SPEEDS.into_iter().min_by_key(|&s| (measured - s as f64).abs() as u64)?;
    let known = (measured / nearest as f64 - 1.0).abs() < 0.08;
    let rpm = if known { nearest } else { measured.round() as u64 };
    let turn_ns = 60e9 / rpm as f64;
    let seeks: Vec<([f64; 3], f64)> = accesses
        .iter()
        .map(|a| {
            // Within one place the head hardly moves, but it has to settle.
            let d = distance(a.from, a.to, inner);
            (seek_row(d), (a.low + a.high) / 2.0 - turn_ns / 2.0 - read_ns)
        })
        .collect();
    let mut seek_ns = least_squares(&seeks)?;
    if seek_ns[2] < 0.0 {
        let rows: Vec<_> = seeks.iter().map(|(r, y)| ([r[0], r[1]], *y)).collect();
        let [settle, root] = least_squares(&rows)?;
        seek_ns = [settle, root, 0.0];
    } else if seek_ns[1] < 0.0 {
        let rows: Vec<_> = seeks.iter().map(|(r, y)| ([r[0], r[2]], *y)).collect();
        let [settle, linear] = least_squares(&rows)?;
        seek_ns = [settle, 0.0, linear];
    }
    seek_ns = seek_ns.map(|n| n.max(0.0));
    let curve = |r: &[f64; 3]| r.iter().zip(&seek_ns).map(|(a, b)| a * b).sum::<f64>();
    let off_ns = seeks.iter().map(|(r, y)| (y - curve(r)).abs()).fold(0.1e6, f64::max);
    let distances: Vec<f64> = seeks.iter().map(|(r, _)| r[2]).collect();
    let off_ns = off_ns * growth_of_seeks(&distances).max(1.0);
    Some(Head { rpm, seek_ns, off_ns })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_platter_is_found_from_its_rates() {
        let k = 1.0 - 0.59 * 0.59;
        let rates: Vec<Rate> = (0..10)
            .map(|i| f64::from(i) / 10.0)
            .map(|x| (x, 245e6 * (1.0 - k * x).sqrt()))
            .collect();
        let (outer, inner, off) = platter(&rates).unwrap();
        assert!((outer / 245e6 - 1.0).abs() < 1e-9 && (inner - 0.59).abs() < 1e-9 && off == 0.5);
        assert!(platter(&rates[..1]).is_none(), "one place tells nothing of another");
    }

    #[test]
    fn a_head_is_found_from_its_accesses() {
        let turn = 60e9 / 7200.0;
        let access = |i: u32| {
            let (from, to) = (0.02, 0.02 + 0.09 * f64::from(i));
            let d = distance(from, to, 0.6);
            let seek = 1e6 + 10.5e6 * d.sqrt() + 6e6 * d + 20_000.0;
            Access { from, to, low: seek + 0.1 * turn, high: seek + 0.9 * turn }
        };
        let all: Vec<Access> = (0..10).map(access).collect();
        let head = head(&all, 0.6, 20_000.0).unwrap();
        assert_eq!(head.rpm, 7200);
        for (found, is) in head.seek_ns.iter().zip([1e6, 10.5e6, 6e6]) {
            assert!((found - is).abs() < 1e3, "{found} {is}");
        }
        assert!((1e5..2e5).contains(&head.off_ns), "{head:?}");
    }
}
