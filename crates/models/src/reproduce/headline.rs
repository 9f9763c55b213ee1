//! The headline: counts the distinct results of all figures. A figure that set a number of the model
//! and a repeated figure are no results; results that a constant would pass are counted separately.

use super::outcome::{CellReport, TableReport, Verdict};
use super::published::{How, Layout};
use serde::Serialize;

/// The least gain that is not noise, in published figures, whose text says so, and in ours.
const LEAST_GAIN: f64 = 0.1;
/// The tolerance of our ratios relative to the published ones.
const GAIN_BAND: f64 = 0.15;

/// Counts of results, gains and claims.
///
/// ```
/// use zoneplug_models::Workers;
/// use zoneplug_models::reproduce::{Headline, Plan, TableReport, chosen, tables};
/// let all = tables().unwrap();
/// let zns = chosen(&all, &["zns"], true).unwrap();
/// let runs = Plan::new(&zns, true).unwrap().go(&Workers::all(&|| false), || ()).unwrap();
/// let reports: Vec<_> = zns.iter().zip(runs).map(|(t, runs)| TableReport::new(t, runs)).collect();
/// let h = Headline::of(&reports);
/// assert_eq!(h.bands, h.results + h.calibrating + h.repeats);
/// assert!(h.results < h.bands && h.by_a_constant <= h.results);
/// ```
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Headline {
    /// Cells with a band.
    pub bands: usize,
    /// Cells with a band that set a number of the model.
    pub calibrating: usize,
    /// Cells with a band whose figure equals that of another column of the row to half a percent: the
    /// model cannot tell the two apart.
    pub repeats: usize,
    /// Cells with a band that neither set a number nor repeat another cell.
    pub results: usize,
    /// Results inside their band whose repeats are inside theirs as well.
    pub inside: usize,
    /// Results that a constant figure would pass as well, with the best constant for each unit
    /// (`constants`).
    pub by_a_constant: usize,
    /// The constants.
    pub constants: Vec<Constant>,
    /// Ratios to the first column of a row that are not noise (more than 10 percent, as published
    /// or as ours), of cells that were run and do not repeat the first.
    pub gains: usize,
    /// Gains within 15 percent of the published ratio.
    pub gains_inside: usize,
    /// Measured ratios with a band.
    pub ratios: usize,
    /// Measured ratios inside their band.
    pub ratios_inside: usize,
    /// Cells with a band for which some runs are outside it.
    pub unsteady: Vec<Unsteady>,
    /// Claims that a run must hold.
    pub claims: usize,
    /// Binding claims that hold.
    pub claims_held: usize,
    /// Claims that are shown, whether they hold or not.
    pub aims: usize,
    /// Shown claims that hold.
    pub aims_held: usize,
}

/// A figure that passes the most results of its unit.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Constant {
    /// The figure.
    pub value: f64,
    /// Its unit.
    pub unit: &'static str,
    /// How many results it passes.
    pub passes: usize,
}

/// A cell with runs outside its band, wherever their mean is.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Unsteady {
    /// The table of the cell.
    pub table: &'static str,
    /// Its row.
    pub row: &'static str,
    /// Its column.
    pub column: &'static str,
    /// Runs outside the band.
    pub outside: usize,
    /// The number of all runs.
    pub runs: usize,
}

/// The range that a band allows.
fn allowed(c: &CellReport) -> Option<(f64, f64)> {
    let (p, band) = (c.published?, c.band_percent? / 100.0);
    Some((p * (1.0 - band), p * (1.0 + band)))
}

/// The relative difference below which two figures count as one: published figures have three
/// digits.
const ONE_FIGURE: f64 = 0.005;

/// Whether the model gives two cells the same figure.
fn same(a: &CellReport, b: &CellReport) -> bool {
    matches!((a.ours, b.ours), (Some(a), Some(b)) if (a / b - 1.0).abs() < ONE_FIGURE)
}

impl Headline {
    /// Counts the results of some tables.
    pub fn of(tables: &[TableReport]) -> Headline {
        let mut h = Headline::default();
        let mut results = Vec::new();
        for t in tables {
            for row in t.cells.chunks(t.columns.len().max(1)) {
                h.row(t, row, &mut results);
            }
            for c in &t.claims {
                let (all, held) = if c.binds {
                    (&mut h.claims, &mut h.claims_held)
                } else {
                    (&mut h.aims, &mut h.aims_held)
                };
                *all += 1;
                *held += usize::from(c.holds);
            }
        }
        h.constants(&results);
        h
    }

    fn row<'a>(
        &mut self,
        t: &TableReport,
        row: &'a [CellReport],
        results: &mut Vec<&'a CellReport>,
    ) {
        if t.how == How::Measure {
            // A cell that was not run has no ratio.
            for c in row.iter().filter(|c| c.band_percent.is_some() && c.our_ratio.is_some()) {
                self.ratios += 1;
                self.ratios_inside += usize::from(c.verdict == Verdict::Inside);
            }
            return;
        }
        let banded = || row.iter().filter(|c| c.band_percent.is_some());
        for (i, c) in banded().enumerate() {
            self.bands += 1;
            let is_first = !banded().take(i).any(|o| same(o, c));
            if c.calibrates {
                self.calibrating += 1;
            } else if !is_first || banded().any(|o| o.calibrates && same(o, c)) {
                self.repeats += 1;
            } else {
                self.results += 1;
                let mut all = banded().filter(|o| std::ptr::eq(*o, c) || same(o, c));
                self.inside += usize::from(all.all(|o| o.verdict == Verdict::Inside));
                results.push(c);
            }
            let outside = |(low, high): (f64, f64)| {
                c.runs.iter().filter(|r| !(low..=high).contains(&r.value)).count()
            };
            let outside = allowed(c).map_or(0, outside);
            if outside > 0 {
                let (row, column) = (c.row, c.column);
                let runs = c.runs.len();
                self.unsteady.push(Unsteady { table: t.name, row, column, outside, runs });
            }
        }
        if t.layout != Layout::Beside {
            return;
        }
        for c in row.iter().skip(1) {
            let judged = matches!(
                c.verdict,
                Verdict::Inside | Verdict::Outside | Verdict::Unjudged | Verdict::ShapeOnly
            );
            let (Some(published), Some(ours)) = (c.published_ratio, c.our_ratio) else { continue };
            let is_gain = |ratio: f64| (ratio - 1.0).abs() > LEAST_GAIN;
            if judged && (is_gain(published) || is_gain(ours)) && !same(&row[0], c) {
                self.gains += 1;
                self.gains_inside += usize::from((ours / published - 1.0).abs() <= GAIN_BAND);
            }
        }
    }

    /// Finds, for each unit, the constant that passes the most results. The lower end of some band
    /// is such a constant.
    fn constants(&mut self, results: &[&CellReport]) {
        let mut units: Vec<&'static str> = results.iter().map(|c| c.unit).collect();
        units.sort_unstable();
        units.dedup();
        for unit in units {
            let bands =
                || results.iter().filter(move |c| c.unit == unit).filter_map(|c| allowed(c));
            let passes = |x: f64| bands().filter(|(low, high)| *low <= x && x <= *high).count();
            let best = bands().map(|(low, _)| (passes(low), low)).max_by_key(|(n, _)| *n);
            if let Some((passes, value)) = best {
                self.by_a_constant += passes;
                self.constants.push(Constant { value, unit, passes });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::published::tables;
    use super::super::{CellRuns, Run};
    use super::*;

    fn runs(values: &[f64]) -> CellRuns {
        let run = |(seed, value): (u64, &f64)| Run {
            geometry_ppm: 1_000_000,
            seed,
            value: *value,
            p99_ms: 1.0,
            max_ms: 2.0,
            command_bytes: 4096.0,
        };
        CellRuns { runs: (1..).zip(values).map(run).collect(), ..CellRuns::default() }
    }

    fn report(figures: impl Fn(usize, usize, f64) -> Vec<f64>) -> Headline {
        let t = &tables().unwrap()[1];
        assert_eq!((t.name, t.columns.len()), ("smr30-random", 2));
        let cells = t.rows.iter().enumerate().flat_map(|(r, row)| {
            let figures = &figures;
            row.cells
                .iter()
                .enumerate()
                .map(move |(c, cell)| runs(&figures(r, c, cell.published.unwrap())))
        });
        Headline::of(&[TableReport::new(t, cells.collect())])
    }

    /// Eight rows of two columns; four of the sixteen bands set a number of the model. Constants
    /// are chosen by the bands.
    #[test]
    fn a_figure_counts_once_and_not_if_the_model_was_made_of_it() {
        let as_published = report(|_, _, p| vec![p]);
        assert_eq!(
            (as_published.bands, as_published.calibrating, as_published.repeats),
            (16, 4, 0)
        );
        assert_eq!((as_published.results, as_published.inside), (12, 12));
        assert_eq!((as_published.gains, as_published.gains_inside), (6, 6));
        assert!(as_published.unsteady.is_empty());
        // 101 and 115 within 15 percent, 123, 120, 115, 105 and 99 within 12: 108.
        assert_eq!(as_published.by_a_constant, 7);
        // Both columns of a row have one figure: the model cannot tell them apart, and no row has a
        // gain.
        let one = report(|r, _, _| vec![[191.0, 128.0, 123.0, 120.0, 115.0, 58.0, 101.0, 99.0][r]]);
        assert_eq!((one.bands, one.gains), (16, 0));
        assert!(one.repeats >= 3 && one.results + one.calibrating + one.repeats == 16, "{one:?}");
        assert!(one.inside < one.results, "a repeated figure must be right in both columns");
    }

    #[test]
    fn gains_and_runs_are_judged_by_themselves() {
        // Twice the published gain at 4 and 8 zones, as the model gives.
        let h = report(|r, c, p| vec![if c == 0 && (r == 2 || r == 3) { p / 2.0 } else { p }]);
        assert_eq!((h.gains, h.gains_inside), (7, 5));
        // The mean is right, and each run is outside.
        let h = report(|_, _, p| vec![p * 0.7, p * 1.3]);
        assert_eq!((h.inside, h.unsteady.len()), (12, 16));
        assert!(h.unsteady.iter().all(|u| (u.outside, u.runs) == (2, 2)));
    }
}
