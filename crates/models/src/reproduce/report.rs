//! The report of a run: all tables and their headline.

use super::headline::Headline;
use super::outcome::TableReport;
use crate::time::{GEOMETRIES, SEEDS};
use serde::Serialize;

/// The report of a run.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// The version of this library.
    pub zoneplug: &'static str,
    /// Whether there is one geometry and one seed: nothing is judged.
    pub quick: bool,
    /// Whether the run ended early: some runs are missing, and nothing is judged.
    pub partial: bool,
    /// The number of rates of the medium for each cell.
    pub geometries: usize,
    /// The number of seeds for each cell.
    pub seeds: usize,
    /// The tables, in published order.
    pub tables: Vec<TableReport>,
    /// Cells outside their bands, and binding claims that do not hold.
    pub failed: usize,
    /// Counts over all tables.
    pub headline: Headline,
}

impl Report {
    /// Builds the report. `quick`: one geometry and one seed; `partial`: some runs are missing.
    pub fn new(tables: Vec<TableReport>, quick: bool, partial: bool) -> Report {
        let (geometries, seeds) = if quick { (1, 1) } else { (GEOMETRIES.len(), SEEDS.len()) };
        Report {
            zoneplug: env!("CARGO_PKG_VERSION"),
            quick,
            partial,
            geometries,
            seeds,
            failed: tables.iter().map(TableReport::failed).sum(),
            headline: Headline::of(&tables),
            tables,
        }
    }
}
