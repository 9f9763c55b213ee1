//! All tables of a run, and what they come to.

use super::headline::Headline;
use super::outcome::TableReport;
use crate::time::{GEOMETRIES, SEEDS};
use serde::Serialize;

/// All of it.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// The version of this library.
    pub zoneplug: &'static str,
    /// One geometry and one seed: nothing is judged.
    pub quick: bool,
    /// The end was asked for early: some runs are missing, and nothing is judged.
    pub partial: bool,
    /// Rates of the medium for each cell.
    pub geometries: usize,
    /// Seeds for each cell.
    pub seeds: usize,
    /// In the order of the published tables.
    pub tables: Vec<TableReport>,
    /// Cells outside their bands, and claims that do not hold.
    pub failed: usize,
    /// What all of it comes to.
    pub headline: Headline,
}

impl Report {
    /// The reports of tables. `quick`: of one geometry and one seed; `partial`: some runs are missing.
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
