//! The published tables of zone write plugging, zone append and the single writer, beside the
//! figures that the engine gives on models of the drives.
//!
//! | file | what it owns |
//! | --- | --- |
//! | `published.txt`, `published.rs` | the published figures, the client run beside each, the expectations |
//! | `client.rs` | clients as text |
//! | `simulate.rs` | cells in virtual time, on all processors |
//! | `outcome.rs` | means, errors, bands, claims |
//! | `headline.rs` | counts of distinct results over all tables |
//! | `report.rs` | all tables of a run, with their headline |
//!
//! Some tables show processor time. A program such as the command measures those on its machine
//! ([`measured`]).
//!
//! ```
//! use zoneplug_models::Workers;
//! use zoneplug_models::reproduce::{Plan, Report, TableReport, chosen, tables};
//! let all = tables().unwrap();
//! let zns = chosen(&all, &["append-zns"], true).unwrap();
//! let runs = Plan::new(&zns, true).unwrap().go(&Workers::all(&|| false), || ()).unwrap();
//! let reports = zns.iter().zip(runs).map(|(t, runs)| TableReport::new(t, runs).without_judgement());
//! let report = Report::new(reports.collect(), true, false);
//! assert!(report.tables[0].cells[0].ours.unwrap() > 0.0);
//! ```

mod client;
mod headline;
mod outcome;
mod published;
mod report;
mod simulate;

pub use client::{Modelled, length, measured, measured_name};
pub use headline::{Constant, Headline, Unsteady};
pub use outcome::{
    CellReport, CellRuns, ClaimReport, Run, TableReport, Verdict, mean, standard_error,
};
pub use published::{
    Cell, Claim, Column, Expect, How, Layout, Metric, RatioBand, Row, Side, Source, Table, parse,
    tables,
};
pub use report::Report;
pub use simulate::{Plan, Simulation};

use zoneplug_core::Error;

/// The tables of `all` whose names begin with one of `names`, in their order; all tables if `names`
/// is empty. `simulated` leaves out measured tables.
pub fn chosen<'a>(
    all: &'a [Table],
    names: &[impl AsRef<str>],
    simulated: bool,
) -> Result<Vec<&'a Table>, Error> {
    let begins = |t: &Table, name: &str| t.name.starts_with(name);
    for name in names.iter().map(AsRef::as_ref) {
        if !all.iter().any(|t| begins(t, name)) {
            let names: Vec<&str> = all.iter().map(|t| t.name).collect();
            return Err(Error::invalid(format!("no table is called '{name}'"))
                .hint(format!("one of {}", names.join(", "))));
        }
    }
    let wanted = |t: &&Table| {
        let named = names.is_empty() || names.iter().any(|n| begins(t, n.as_ref()));
        named && !(simulated && t.how == How::Measure)
    };
    Ok(all.iter().filter(wanted).collect())
}
