//! The spread of the repeats of rows, and which rows the repeats cannot tell apart.

use crate::figures::{figure, time};
use crate::virtual_disk::short;
use serde::Serialize;
use zoneplug_models::replay::{Row, Spread};

/// A figure that has a spread.
pub(super) struct Figure {
    /// Its name in CSV.
    pub(super) key: &'static str,
    /// Its name in a sentence.
    says: &'static str,
    of: fn(&Spread) -> [f64; 2],
    /// The number of operations in the figure.
    operations: fn(&Row) -> u64,
}

fn ns([low, high]: [u64; 2]) -> [f64; 2] {
    [low as f64, high as f64]
}

macro_rules! latency {
    ($kind:ident, $field:ident, $says:literal) => {
        Figure {
            key: concat!(stringify!($kind), "_", stringify!($field)),
            says: concat!($says, " of ", stringify!($kind)),
            of: |s| ns(s.$kind.$field),
            operations: |r| r.$kind.operations,
        }
    };
}

/// All figures that have a spread.
pub(super) const FIGURES: [Figure; 9] = [
    Figure {
        key: "mb_per_s",
        says: "MB/s",
        of: |s| s.mb_per_s,
        operations: |r| r.writes.operations + r.reads.operations,
    },
    latency!(writes, mean_ns, "mean"),
    latency!(writes, p50_ns, "p50"),
    latency!(writes, p99_ns, "p99"),
    latency!(writes, max_ns, "max"),
    latency!(reads, mean_ns, "mean"),
    latency!(reads, p50_ns, "p50"),
    latency!(reads, p99_ns, "p99"),
    latency!(reads, max_ns, "max"),
];

impl Figure {
    /// The lowest and highest value of the figure in a row's repeats.
    pub(super) fn of(&self, row: &Row) -> Option<[f64; 2]> {
        (row.spread.as_ref()).filter(|_| (self.operations)(row) > 0).map(self.of)
    }
}

/// Two rows of one disk that have figures whose repeats overlap.
#[derive(Debug, Serialize)]
pub(super) struct Overlap {
    disk: String,
    layers: [String; 2],
    figures: Vec<&'static str>,
    #[serde(skip)]
    says: String,
}

impl Overlap {
    /// The overlaps of all pairs of rows with repeats, in the order of the rows.
    pub(super) fn among(rows: &[Row]) -> Vec<Overlap> {
        let pairs =
            rows.iter().enumerate().flat_map(|(i, a)| rows[i + 1..].iter().map(move |b| (a, b)));
        pairs.filter(|(a, b)| can_compare(a, b)).filter_map(|(a, b)| Self::of(a, b)).collect()
    }

    fn of(a: &Row, b: &Row) -> Option<Overlap> {
        let ranges = |f: &'static Figure| Some((f, f.of(a)?, f.of(b)?));
        let both: Vec<_> = FIGURES.iter().filter_map(ranges).collect();
        let overlap = |([low, high], [other_low, other_high]): ([f64; 2], [f64; 2])| {
            low <= other_high && other_low <= high
        };
        let found: Vec<&Figure> =
            both.iter().filter(|(_, a, b)| overlap((*a, *b))).map(|(f, ..)| *f).collect();
        let says = match found.len() == both.len() {
            true => "every figure".to_owned(),
            false => found.iter().map(|f| f.says).collect::<Vec<_>>().join(", "),
        };
        (!found.is_empty()).then(|| Overlap {
            disk: a.disk.clone(),
            layers: [a.layer.clone(), b.layer.clone()],
            figures: found.iter().map(|f| f.key).collect(),
            says: format!("{} {} and {}: {says}", a.disk, short(&a.layer), short(&b.layer)),
        })
    }
}

/// Whether both rows are of one disk and have several runs.
fn can_compare(a: &Row, b: &Row) -> bool {
    let several = |r: &Row| r.spread.as_ref().is_some_and(|s| s.runs > 1);
    a.disk == b.disk && several(a) && several(b)
}

/// A note on whether differences between rows may be chance; empty if no two rows have repeats.
pub(super) fn of_differences(rows: &[Row], overlaps: &[Overlap]) -> String {
    let pairs = |(i, a): (usize, &Row)| rows[i + 1..].iter().any(|b| can_compare(a, b));
    match overlaps {
        [] if rows.iter().enumerate().any(pairs) => {
            "No repeat of a row has a figure within those of another row\n".to_owned()
        }
        [] => String::new(),
        all => {
            let lines: String = all.iter().map(|o| format!("  {}\n", o.says)).collect();
            format!("Repeats overlap, so these differences may be chance:\n{lines}")
        }
    }
}

/// The range of a rate: `95.1-99.9`; a single value if both ends look the same.
pub(super) fn rates([low, high]: [f64; 2]) -> String {
    range(&figure(low), &figure(high))
}

/// The range of a time: `407-422 ms`.
pub(super) fn times([low, high]: [u64; 2]) -> String {
    range(&time(low), &time(high))
}

fn range(low: &str, high: &str) -> String {
    let number = |text: &str| text.split_once(' ').map(|(n, unit)| (n.to_owned(), unit.to_owned()));
    match (number(low), number(high)) {
        _ if low == high => low.to_owned(),
        (Some((n, unit)), Some((_, other))) if unit == other => format!("{n}-{high}"),
        _ => format!("{low}-{high}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_names_its_unit_once() {
        assert_eq!(times([407_000_000, 422_000_000]), "407-422 ms");
        assert_eq!(times([950_000, 1_200_000]), "950 us-1.2 ms");
        assert_eq!(times([5_000, 5_000]), "5.0 us");
        assert_eq!((rates([95.1, 99.9]), rates([3.0, 3.0])), ("95.1-99.9".into(), "3.0".into()));
    }
}
