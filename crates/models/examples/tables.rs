//! Prints every cell of the published tables that a model can give: published, ours with its standard error, difference.
//!
//!     cargo run --release -p zoneplug-models --example tables
//!     cargo run --release -p zoneplug-models --example tables smr30 cache=128M,queued-fifo=0
//!
//! The second form is a hypothesis about a drive: the tables whose names begin with that, with other numbers.

use zoneplug_core::Error;
use zoneplug_models::Workers;
use zoneplug_models::reproduce::{Plan, TableReport, chosen, tables};

fn main() -> Result<(), Error> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let mut all = tables()?;
    if let Some(options) = args.get(1) {
        for table in &mut all {
            table.drive = format!("{},{options}", table.drive).leak();
        }
    }
    let chosen = chosen(&all, &args[..args.len().min(1)], true)?;
    let runs = Plan::new(&chosen, false)?.go(&Workers::all(&|| false), || ())?;
    println!("table           column       row        published     ours      ±   error  expected");
    for (table, runs) in chosen.into_iter().zip(runs) {
        for c in TableReport::new(table, runs).cells {
            let (Some(published), Some(ours)) = (c.published, c.ours) else { continue };
            let expected = match (c.band_percent, c.reason) {
                (Some(p), _) if c.calibrates => format!("within {p} %, calibrates"),
                (Some(p), _) => format!("within {p} %"),
                (None, why) => format!("{}: {}", c.verdict.text(), why.unwrap_or_default()),
            };
            println!(
                "{:15} {:12} {:10} {published:9.1} {ours:8.1} {:6.1} {:+6.1}%  {expected}",
                table.name,
                c.column,
                c.row,
                c.standard_error.unwrap_or_default(),
                c.error_percent.unwrap_or_default(),
            );
        }
    }
    Ok(())
}
