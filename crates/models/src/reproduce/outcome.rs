//! The results of a run: figures of each cell, their comparison with the published ones, and
//! whether claims hold. Plain data and arithmetic; other modules format them.

use super::published::{
    Claim, Column, Expect, How, Layout, Metric, RatioBand, Side, Source, Table,
};
use serde::Serialize;

/// One run of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Run {
    /// Rate of the medium, in millionths of the profile's.
    pub geometry_ppm: u32,
    /// The seed of random places.
    pub seed: u64,
    /// The figure, in the unit of the cell.
    pub value: f64,
    /// The 99th percentile of the counted client's latency.
    pub p99_ms: f64,
    /// The longest latency.
    pub max_ms: f64,
    /// Mean length of a write command at the device.
    pub command_bytes: f64,
}

/// The verdict on our figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Inside the band.
    Inside,
    /// Outside the band: the run fails.
    Outside,
    /// Outside the band, but the run does not fail: it judges nothing (`--quick`), or the figure is
    /// an aim, or only some of the measurements are outside.
    Unjudged,
    /// The figure need not match; claims may bind its direction.
    ShapeOnly,
    /// The figure is only shown.
    Illustration,
    /// Not run.
    NotRun,
    /// Measured here and not judged.
    Measured,
}

impl Verdict {
    /// The word for it in a table.
    pub const fn text(self) -> &'static str {
        match self {
            Verdict::Inside => "pass",
            Verdict::Outside => "FAIL",
            Verdict::Unjudged => "miss",
            Verdict::ShapeOnly => "shape only",
            Verdict::Illustration => "illustration",
            Verdict::NotRun => "not run",
            Verdict::Measured => "measured",
        }
    }
}

/// The results of a cell.
#[derive(Debug, Clone, Serialize)]
pub struct CellReport {
    /// The name of its row.
    pub row: &'static str,
    /// The name of its column.
    pub column: &'static str,
    /// The unit of its figures.
    pub unit: &'static str,
    /// The client that was run.
    pub client: String,
    /// The way in which the disk was opened: mode, scheduler, single writer.
    pub layer: String,
    /// The published figure.
    pub published: Option<f64>,
    /// Whether it set a number of the model.
    pub calibrates: bool,
    /// Our figure: the mean over geometries and seeds, or the median of measured repeats.
    pub ours: Option<f64>,
    /// The standard error of the mean. Runs of one seed draw the same zones in each geometry, so a
    /// seed counts once.
    pub standard_error: Option<f64>,
    /// The largest figure less the smallest.
    pub spread: Option<f64>,
    /// The difference of our figure from the published one, in percent.
    pub error_percent: Option<f64>,
    /// The allowed difference from the published figure, or from the published ratio for a
    /// measurement.
    pub band_percent: Option<f64>,
    /// The mean of the runs' 99th percentiles.
    pub p99_ms: Option<f64>,
    /// The longest latency of all runs.
    pub max_ms: Option<f64>,
    /// Mean length of a write command at the device.
    pub command_bytes: Option<f64>,
    /// The published ratio to the first column of the row.
    pub published_ratio: Option<f64>,
    /// Our ratio to the first column; for a measurement, the median over repeats, each of which
    /// compares runs made by turns.
    pub our_ratio: Option<f64>,
    /// The lowest and the highest ratio of these repeats.
    pub our_ratio_range: Option<[f64; 2]>,
    /// The verdict on our figure.
    pub verdict: Verdict,
    /// Why there is no band, or no figure.
    pub reason: Option<&'static str>,
    /// Each run, by geometry and seed; for a measurement each repeat, by its number.
    pub runs: Vec<Run>,
}

/// A claim, and whether it holds.
#[derive(Debug, Clone, Serialize)]
pub struct ClaimReport {
    /// The claim as the file of published tables has it.
    pub text: &'static str,
    /// The figure nearest to the end of the allowed range, or farthest outside; `None` if a cell
    /// has no figure.
    pub worst: Option<f64>,
    /// Whether it holds.
    pub holds: bool,
    /// Whether the run fails if it does not hold.
    pub binds: bool,
}

/// The results of a table.
#[derive(Debug, Clone, Serialize)]
pub struct TableReport {
    /// Its name.
    pub name: &'static str,
    /// The title of the table.
    pub title: &'static str,
    /// The source of its published figures.
    pub source: Source,
    /// How our figures were obtained.
    pub how: How,
    /// The specification of its device.
    pub drive: &'static str,
    /// The layout: which figures are side by side.
    pub layout: Layout,
    /// The meaning of the rows, if they are numbers.
    pub x: Option<&'static str>,
    /// Ways to open the disk.
    pub columns: Vec<Column>,
    /// The cells, row by row.
    pub cells: Vec<CellReport>,
    /// The claims about the figures.
    pub claims: Vec<ClaimReport>,
    /// Notes for the reader.
    pub notes: Vec<&'static str>,
}

/// The mean figure of runs.
pub fn mean(runs: &[Run]) -> f64 {
    mean_of(runs.iter().map(|r| r.value))
}

fn mean_of(all: impl Iterator<Item = f64>) -> f64 {
    let (sum, n) = all.fold((0.0, 0.0), |(s, n), x| (s + x, n + 1.0));
    sum / n
}

/// The standard error of the mean figure. Runs of one seed draw the same zones in each geometry, so
/// a seed counts once, with the mean over its geometries.
pub fn standard_error(runs: &[Run]) -> f64 {
    let mut seeds: Vec<u64> = runs.iter().map(|r| r.seed).collect();
    seeds.sort_unstable();
    seeds.dedup();
    let of = |s: u64| mean_of(runs.iter().filter(|r| r.seed == s).map(|r| r.value));
    // With one seed only the layout of tracks varies.
    let means: Vec<f64> = match seeds.len() {
        1 => runs.iter().map(|r| r.value).collect(),
        _ => seeds.into_iter().map(of).collect(),
    };
    let (m, n) = (mean_of(means.iter().copied()), means.len() as f64);
    if n < 2.0 {
        return 0.0;
    }
    (means.iter().map(|x| (x - m) * (x - m)).sum::<f64>() / (n - 1.0) / n).sqrt()
}

fn median(all: impl Iterator<Item = f64>) -> Option<f64> {
    let mut all: Vec<f64> = all.collect();
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 2).copied()
}

/// A ratio that was measured several times.
struct Ratios {
    median: f64,
    range: [f64; 2],
}

impl Ratios {
    /// Ratios of repeats that ran by turns with those of the first column.
    fn of(runs: &[Run], first: &[Run]) -> Option<Ratios> {
        let repeat = |r: &Run| Some(r.value / first.iter().find(|f| f.seed == r.seed)?.value);
        let all = || runs.iter().filter_map(repeat);
        let range = [all().reduce(f64::min)?, all().reduce(f64::max)?];
        Some(Ratios { median: median(all())?, range })
    }

    /// The verdict beside a published ratio.
    fn judge(&self, published: f64, band: RatioBand) -> Verdict {
        let allowed = band.percent / 100.0 * published;
        let (low, high) = (published - allowed, published + allowed);
        let [least, most] = self.range;
        match () {
            () if (low..=high).contains(&self.median) => Verdict::Inside,
            () if band.binds && (least > high || most < low) => Verdict::Outside,
            () => Verdict::Unjudged,
        }
    }
}

impl TableReport {
    /// Builds the report of a table from the runs of its cells, row by row.
    pub fn new(table: &Table, all: Vec<CellRuns>) -> TableReport {
        let columns = table.columns.len();
        let mut cells: Vec<CellReport> = Vec::with_capacity(all.len());
        for (i, CellRuns { client, layer, runs }) in all.into_iter().enumerate() {
            let (row, c) = (&table.rows[i / columns], i % columns);
            let cell = &row.cells[c];
            let some = |f: &dyn Fn(&[Run]) -> f64| (!runs.is_empty()).then(|| f(&runs));
            let is_measured = table.how == How::Measure;
            let value = |r: &Run| r.value;
            let ours = match is_measured {
                true => median(runs.iter().map(value)),
                false => some(&mean),
            };
            let extreme = |f: fn(f64, f64) -> f64, key: fn(&Run) -> f64| {
                runs.iter().map(key).reduce(f).unwrap_or(0.0)
            };
            let first = cells.get(i - c);
            let base = first.and_then(|f: &CellReport| f.ours).or(ours);
            let published_base = row.cells[0].published;
            let error = |o: f64| cell.published.map(|p| (o / p - 1.0) * 100.0);
            let error_percent = ours.and_then(error).filter(|_| !is_measured);
            let ratio = |x: Option<f64>, b: Option<f64>| Some(x? / b?);
            let published_ratio = ratio(cell.published, published_base);
            let base_runs = first.map_or(&runs, |f| &f.runs);
            let measured = Ratios::of(&runs, base_runs).filter(|_| is_measured);
            let (verdict, band_percent, reason) = match cell.expect {
                Expect::Band(band) => {
                    let inside = error_percent.is_some_and(|e| e.abs() <= band);
                    (if inside { Verdict::Inside } else { Verdict::Outside }, Some(band), None)
                }
                Expect::Shape(why) => (Verdict::ShapeOnly, None, Some(why)),
                Expect::Show(why) => (Verdict::Illustration, None, Some(why)),
                Expect::Not(why) => (Verdict::NotRun, None, Some(why)),
                Expect::Ratio(band) => {
                    let both = measured.as_ref().zip(published_ratio).zip(band);
                    let judged = both.map(|((ours, published), band)| ours.judge(published, band));
                    let verdict = judged.unwrap_or(Verdict::Measured);
                    (verdict, band.map(|b| b.percent), None)
                }
            };
            cells.push(CellReport {
                row: row.name,
                column: table.columns[c].name,
                unit: row.unit,
                client,
                layer,
                published: cell.published,
                calibrates: cell.calibrates,
                ours,
                standard_error: some(&standard_error),
                spread: some(&|_| extreme(f64::max, |r| r.value) - extreme(f64::min, |r| r.value)),
                error_percent,
                band_percent,
                p99_ms: some(&|r| mean_of(r.iter().map(|r| r.p99_ms))),
                max_ms: some(&|_| extreme(f64::max, |r| r.max_ms)),
                command_bytes: some(&|r| mean_of(r.iter().map(|r| r.command_bytes))),
                published_ratio,
                our_ratio: measured.as_ref().map(|r| r.median).or(ratio(ours, base)),
                our_ratio_range: measured.map(|r| r.range),
                verdict,
                reason,
                runs,
            });
        }
        let mut report = TableReport {
            name: table.name,
            title: table.title,
            source: table.source,
            how: table.how,
            drive: table.drive,
            layout: table.layout,
            x: table.x,
            columns: table.columns.clone(),
            cells,
            claims: Vec::new(),
            notes: table.notes.clone(),
        };
        report.claims = table.claims.iter().map(|c| report.judge(table, c)).collect();
        report
    }

    /// Removes the judgement, for a run of only some geometries and seeds: figures outside their
    /// bands fail nothing, and cells that were not run say so.
    pub fn without_judgement(mut self) -> TableReport {
        for cell in self.cells.iter_mut().filter(|c| c.runs.is_empty()) {
            cell.verdict = Verdict::NotRun;
        }
        for cell in self.cells.iter_mut().filter(|c| c.verdict == Verdict::Outside) {
            cell.verdict = Verdict::Unjudged;
        }
        for claim in &mut self.claims {
            claim.binds = false;
        }
        self
    }

    /// The cell of a row and a column, by number.
    pub fn cell(&self, row: usize, column: usize) -> &CellReport {
        &self.cells[row * self.columns.len() + column]
    }

    /// The number of rows.
    pub fn rows(&self) -> usize {
        self.cells.len() / self.columns.len().max(1)
    }

    fn side(&self, table: &Table, side: &Side) -> Vec<Option<f64>> {
        let Some(column) = table.column(side.column) else { return Vec::new() };
        let figure = |r: usize| {
            let cell = self.cell(r, column);
            match side.metric {
                Metric::Rate => cell.ours,
                Metric::P99 => cell.p99_ms,
                Metric::Max => cell.max_ms,
            }
        };
        table.rows_of(side.rows).into_iter().map(figure).collect()
    }

    fn judge(&self, table: &Table, claim: &Claim) -> ClaimReport {
        let above = self.side(table, &claim.above);
        let all: Option<Vec<f64>> = match &claim.below {
            None => above.into_iter().collect(),
            Some(side) => {
                let below = self.side(table, side);
                // A single figure below is compared with all above.
                let b = |i: usize| below.get(i).or(below.first()).copied().flatten();
                above.into_iter().enumerate().map(|(i, a)| Some(a? / b(i)?)).collect()
            }
        };
        let (low, high) = (*claim.allowed.start(), *claim.allowed.end());
        let distance = |x: f64| (x - low).min(high - x);
        let worst = all
            .unwrap_or_default()
            .into_iter()
            .min_by(|a, b| distance(*a).total_cmp(&distance(*b)));
        let holds = worst.is_some_and(|w| claim.allowed.contains(&w));
        ClaimReport { text: claim.text, worst, holds, binds: claim.binds }
    }

    /// The number of cells outside their bands and of binding claims that do not hold.
    pub fn failed(&self) -> usize {
        let cells = self.cells.iter().filter(|c| c.verdict == Verdict::Outside).count();
        cells + self.claims.iter().filter(|c| c.binds && !c.holds).count()
    }
}

/// The runs of a cell, and its names.
#[derive(Debug, Clone, Default)]
pub struct CellRuns {
    /// The client that was run.
    pub client: String,
    /// The way in which the disk was opened.
    pub layer: String,
    /// Each run.
    pub runs: Vec<Run>,
}

#[cfg(test)]
mod tests {
    use super::super::published::tables;
    use super::*;

    fn run(seed: u64, value: f64) -> Run {
        Run {
            geometry_ppm: 1_000_000,
            seed,
            value,
            p99_ms: 1.0,
            max_ms: 2.0,
            command_bytes: 4096.0,
        }
    }

    /// A report of smr30-random in which each figure is `by` times the published one.
    fn scaled(by: f64) -> TableReport {
        scaled_table(1, by)
    }

    fn scaled_table(n: usize, by: f64) -> TableReport {
        let t = &tables().unwrap()[n];
        let cells = t.rows.iter().flat_map(|r| &r.cells);
        let runs = cells.map(|c| CellRuns {
            runs: vec![
                run(1, c.published.unwrap() * by * 0.9),
                run(2, c.published.unwrap() * by * 1.1),
            ],
            ..CellRuns::default()
        });
        TableReport::new(t, runs.collect())
    }

    #[test]
    fn a_cell_outside_its_band_fails_and_one_without_does_not() {
        let good = scaled(1.0);
        assert_eq!(good.failed(), 0);
        assert!(good.cells.iter().all(|c| c.error_percent.unwrap().abs() < 1e-9));
        // 14 percent: outside the patched column's 12, inside the baseline's 15.
        let bad = scaled(1.14);
        assert_eq!(bad.failed(), 8);
        assert!(
            bad.cells.iter().all(|c| (c.verdict == Verdict::Outside) == (c.column == "patched"))
        );
        // Depth 128 of sequential writes has no band.
        let shape = scaled_table(0, 2.0);
        assert_eq!((shape.cell(7, 0).row, shape.cell(7, 0).verdict), ("128", Verdict::ShapeOnly));
        assert!(shape.cell(7, 0).reason.is_some());
    }

    #[test]
    fn a_mean_has_the_error_of_its_seeds() {
        let c = &scaled(1.0).cells[0];
        let (m, e) = (c.ours.unwrap(), c.standard_error.unwrap());
        // Two seeds at 0.9 and 1.1: the error of their mean is a tenth.
        assert!((e / m - 0.1).abs() < 1e-9, "{m} ± {e}");
        assert!((c.spread.unwrap() / m - 0.2).abs() < 1e-9);
    }

    #[test]
    fn a_claim_is_judged_by_its_worst_row_and_one_without_figures_fails() {
        let t = &tables().unwrap()[1];
        let claim = |r: &TableReport| r.claims.iter().find(|c| c.binds).unwrap().clone();
        let good = claim(&scaled(1.0));
        // 115 of 123 MB/s with 4 zones is nearest to 1.
        assert!(good.holds && (good.worst.unwrap() - 115.0 / 123.0).abs() < 1e-9);
        let empty = vec![CellRuns::default(); t.rows.len() * t.columns.len()];
        let none = TableReport::new(t, empty);
        assert!(!claim(&none).holds);
        assert!(none.failed() > 0);
    }

    /// Measured ratios of repeats that ran by turns, beside a published one of 155 / 157: the
    /// median decides, and a binding band fails if all repeats are outside on one side.
    #[test]
    fn a_measured_ratio_is_judged_by_its_repeats() {
        let t = tables().unwrap().into_iter().find(|t| t.name == "po2").unwrap();
        assert_eq!(
            t.rows[0].cells[2].expect,
            Expect::Ratio(Some(RatioBand { percent: 20.0, binds: true }))
        );
        let judge = |ratios: [f64; 3]| {
            // The load of the machine differs between repeats.
            let first: Vec<Run> = (1..4).map(|n| run(n, 100.0 * n as f64)).collect();
            let layer = first.iter().zip(ratios).map(|(f, r)| Run { value: f.value * r, ..*f });
            let cells = [first.clone(), first.clone(), layer.collect(), Vec::new()];
            let cells = cells.map(|runs| CellRuns { runs, ..CellRuns::default() });
            let rest = vec![CellRuns::default(); (t.rows.len() - 1) * t.columns.len()];
            TableReport::new(&t, cells.into_iter().chain(rest).collect())
        };
        for (ratios, verdict) in [
            ([0.9, 0.81, 0.7], Verdict::Inside),
            ([0.9, 0.78, 0.7], Verdict::Unjudged),
            ([0.77, 0.78, 0.7], Verdict::Outside),
            ([1.21, 1.3, 1.4], Verdict::Outside),
            // No repeat is inside, but they are on both sides.
            ([0.7, 0.75, 1.4], Verdict::Unjudged),
        ] {
            let report = judge(ratios);
            let c = report.cell(0, 2);
            assert_eq!(
                (c.verdict, report.cell(0, 0).verdict),
                (verdict, Verdict::Measured),
                "{ratios:?}"
            );
            let mut sorted = ratios;
            sorted.sort_by(f64::total_cmp);
            let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
            let [low, high] = c.our_ratio_range.unwrap();
            assert!(
                near(c.our_ratio.unwrap(), sorted[1])
                    && near(low, sorted[0])
                    && near(high, sorted[2])
            );
        }
        // A row that was not run has no ratio and no failure.
        assert_eq!(judge([1.0; 3]).failed(), 0);
    }
}
